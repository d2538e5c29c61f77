//! Does operations on the queue and on its model, and fails if their replies differ.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use beanstalkd_model::{self as model, CompletedPut, Model, NO_JUMPS_FROM, State};
use beanstalkd_queue::{
    self as queue, BeginFlush, BeginSession, ClientId, Duplicate, EncodedBody, FlushScope, FlushStep, NewJob,
    Planned, PoisonLimits, Queue, Reserve, ReserveMode, SessionKey, Slices, TubeRule, WaitJob,
};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{EncodedTags, JobTags};

use super::flushes::{Flush, end_slices, flush, flush_step};
use super::{ClientCommand, Operation, completed_puts, job_of, rules};
use crate::tags::encoded;

/// The most clients at a time.
const MAX_CLIENTS: usize = 5;
/// The time at which each case begins.
const START: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// Small limits, so that long work often takes several slices, and that clients often watch "many" tubes.
const SLICES: Slices = Slices { given_back: 2, delivered: 2, probed_tubes: 2, few_tubes: 2 };

/// Whether the end of the job frees more jobs than fit into one slice: then its puts would come between the slices.
fn frees_too_many(model: &Model, job: JobId, puts: &[CompletedPut]) -> bool {
    let group = model.job(job.0).and_then(|job| job.tags.group);
    group.is_some_and(|group| !puts.is_empty() && model.waiting_for(group).count() > model.share)
}

/// With so many rules, a step of a reload handles one tube.
const RULES_FOR_SLICES: usize = 4096;

/// The queue, the model, and the connected clients.
pub struct Pair {
    pub queue: Queue,
    pub model: Model,
    pub(super) clients: Vec<ClientId>,
    /// The ids of puts that were announced.
    announced: VecDeque<JobId>,
    pub(super) now: Timestamp,
    /// Whether long work stays unfinished, so that the model, which does all at once, is not asked: see `sliced.rs`.
    pub(super) keeps_slices: bool,
    /// Whether the queue has done an operation in slices that has not been compared yet.
    pub(super) was_sliced: bool,
    /// The clients that flush, and do nothing else.
    pub(super) flushing: Vec<Flush>,
}

/// Applies all operations to the queue and to the model.
///
/// # Panics
/// If the two differ, or if an invariant of the queue does not hold.
pub fn run(limits: PoisonLimits, operations: &[Operation]) {
    step_through(Pair::new(limits), operations);
}

/// As [`run`], but with the slices of the server, which put off nothing of so few jobs: a fuzzer would find operations
/// for which the small slices change the order in which the keys of a fair tube begin to rotate.
///
/// # Panics
/// As [`run`].
pub fn run_with_usual_slices(limits: PoisonLimits, operations: &[Operation]) {
    let slices = Slices { few_tubes: SLICES.few_tubes, ..Slices::default() };
    step_through(Pair::with(limits, slices), operations);
}

fn step_through(mut pair: Pair, operations: &[Operation]) {
    for &operation in operations {
        pair.step(operation);
    }
}

impl Pair {
    pub fn new(limits: PoisonLimits) -> Self {
        Self::with(limits, SLICES)
    }

    fn with(limits: PoisonLimits, slices: Slices) -> Self {
        let mut queue = Queue::new(limits, slices);
        queue.keep_changes();
        let mut model = Model::new(limits);
        model.share = slices.given_back;
        Self {
            queue,
            model,
            clients: Vec::new(),
            announced: VecDeque::new(),
            now: START,
            keeps_slices: false,
            was_sliced: false,
            flushing: Vec::new(),
        }
    }

    /// Asserts that the model comes to the same result.
    fn agree<T: PartialEq + Debug>(&mut self, found: T, expected: impl FnOnce(&mut Model) -> T) {
        if !self.keeps_slices {
            assert_eq!(found, expected(&mut self.model));
        }
    }

    /// Begins a flush, for a client that does nothing else; `None` if there is no such tube.
    pub fn begin_flush(&mut self, tube: &str, scope: FlushScope) -> Option<ClientId> {
        let client = self.queue.connect();
        self.model.connect(client.index);
        let begun = self.queue.begin_flush(client, tube, scope);
        (begun == BeginFlush::Begun).then_some(client)
    }

    /// Takes a step of this flush.
    pub fn continue_flush(&mut self, client: ClientId) -> FlushStep {
        let step = flush_step(&mut self.queue, client, self.now);
        end_slices(&mut self.queue, self.now);
        match step {
            FlushStep::Job(id) => self.model.flush_job(id.0, self.now),
            FlushStep::Cooldown(id) => self.model.end_cooldown(id.0),
            FlushStep::Unfinished | FlushStep::Done => {}
        }
        self.compare();
        step
    }

    pub fn step(&mut self, operation: Operation) {
        self.execute(operation);
        if self.queue.next_deadline() == Some(Timestamp::AT_ONCE) {
            self.finish_slices();
        }
        if self.was_sliced {
            // The slices have also done what was due already, such as the end of a bucket whose tube has become idle.
            self.model.advance(self.now);
        }
        self.compare();
    }

    /// Does all work that the last operation has left for later turns.
    fn finish_slices(&mut self) {
        while !self.keeps_slices && self.queue.next_deadline().is_some_and(|at| at <= self.now) {
            self.was_sliced = true;
            self.queue.check_invariants();
            self.queue.advance(self.now);
        }
    }

    /// The client that a raw number chooses, if it may send a command.
    fn speaker(&self, raw: u64) -> Option<ClientId> {
        let id = *self.clients.get(raw as usize % self.clients.len().max(1))?;
        let is_busy = self.queue.is_waiting(id) || self.flushing.iter().any(|flush| flush.client == id);
        (!is_busy).then_some(id)
    }

    pub(super) fn execute(&mut self, operation: Operation) {
        use Operation as O;
        match operation {
            O::Connect => {
                if self.clients.len() < MAX_CLIENTS {
                    let id = self.queue.connect();
                    self.agree((), |model| model.connect(id.index));
                    self.clients.push(id);
                }
            }
            O::Disconnect { client } => {
                if !self.clients.is_empty() {
                    let id = self.clients.remove(client as usize % self.clients.len());
                    self.disconnect(id);
                }
            }
            O::StopWaiting { client } => {
                if let Some(&id) = self.clients.get(client as usize % self.clients.len().max(1)) {
                    let has_waited = self.queue.stop_waiting(id);
                    self.agree(has_waited, |model| model.stop_waiting(id.index));
                }
            }
            O::KickJob { job } => {
                let id = job_of(job, &self.model);
                let kickable = self.queue.is_kickable(id);
                if kickable {
                    assert!(self.queue.kick(id, self.now));
                }
                let now = self.now;
                self.agree(kickable, |model| model.kick_job(id.0, now));
            }
            O::PauseTube { tube, length_s } => self.pause_tube(tube, length_s),
            O::Reprioritize { job, priority } => {
                let id = job_of(job, &self.model);
                let is_free = self.queue.is_unreserved(id);
                if is_free {
                    assert!(self.queue.set_priority(id, Priority(priority), self.now));
                }
                self.agree(is_free, |model| model.reprioritize(id.0, priority));
            }
            O::SetDelay { job, delay_s } => self.set_delay(job, delay_s),
            O::SetRules { number } => self.set_rules(rules(number)),
            O::List { tube, limit } => self.list(tube, limit),
            O::Pass { ns } => self.advance(self.now + ns),
            O::PassToDeadline { offset_ns } => {
                let next =
                    if self.keeps_slices { self.queue.next_deadline() } else { self.model.next_deadline() };
                if let Some(at) = next {
                    self.advance(Timestamp(at.0.saturating_add_signed(offset_ns)).max(self.now));
                }
            }
            O::Command { client, command } => {
                if let Some(id) = self.speaker(client) {
                    self.command(id, command);
                }
            }
        }
    }

    fn pause_tube(&mut self, tube: &str, length_s: Seconds) {
        let paused = self.queue.pause_tube(tube, length_s, self.now);
        self.finish_slices();
        let now = self.now;
        self.agree(paused, |model| model.pause_tube(tube, length_s, now));
    }

    fn set_delay(&mut self, job: u64, delay_s: Seconds) {
        let (id, now, until) = (job_of(job, &self.model), self.now, self.now.plus_seconds(delay_s));
        let is_delayable = self.queue.is_delayable(id);
        if is_delayable {
            assert!(self.queue.set_delay(id, delay_s, until, now));
        }
        self.agree(is_delayable, |model| model.set_delay(id.0, delay_s, until, now));
    }

    fn set_rules(&mut self, rules: Vec<TubeRule>) {
        let (mut padded, now) = (rules.clone(), self.now);
        if self.keeps_slices {
            padded.resize(RULES_FOR_SLICES, TubeRule::new("no-such-tube"));
        }
        self.queue.set_tube_rules(padded, now);
        self.finish_slices();
        self.agree((), |model| model.set_rules(rules, now));
    }

    /// Applies the command of a connected client that does not wait.
    fn command(&mut self, id: ClientId, command: ClientCommand) {
        use ClientCommand as C;
        let (index, now) = (id.index, self.now);
        let (queue, model) = (&mut self.queue, &self.model);
        match command {
            C::Use { tube } => {
                queue.use_tube(id, tube);
                self.agree((), |model| model.use_tube(index, tube));
            }
            C::Watch { tube } => {
                let count = queue.watch(id, tube);
                self.agree(count, |model| model.watch(index, tube));
            }
            C::WatchWithWeight { tube, weight } => {
                let count = queue.watch_with_weight(id, tube, weight);
                self.agree(count, |model| model.watch(index, tube));
            }
            C::Ignore { tube } => {
                let count = queue.ignore(id, tube);
                self.agree(count, |model| model.ignore(index, tube));
            }
            C::SetMode { mode } => {
                queue.set_reserve_mode(id, mode);
                self.agree((), |model| model.set_weighted(index, mode != ReserveMode::Fifo));
            }
            C::Session { name, grace_ms } => self.session(id, name, grace_ms),
            C::Put { priority, delay_s, ttr_s, tags, is_announced } => {
                let announced = if is_announced { self.announced.pop_front() } else { None };
                let new_id = announced.unwrap_or_else(|| self.allocate_id(id));
                self.put(id, NewJob { id: new_id, priority: Priority(priority), delay_s, ttr_s }, tags);
            }
            C::AnnouncePut => {
                let announced = self.allocate_id(id);
                self.announced.push_back(announced);
            }
            C::Reserve { timeout_s } => self.reserve(id, timeout_s),
            C::ReserveJob { job } => self.reserve_job(id, job),
            C::UndoReserve { job } => self.undo_reserve(id, job),
            C::WaitJob { job, timeout_s } => self.wait_job(id, job, timeout_s),
            C::Delete { job } => self.delete(id, job),
            C::Complete { job, number } => self.complete(id, job, number),
            C::Release { job, release } => {
                let job = job_of(job, model);
                let released = queue.has_reserved(id, job).then(|| queue.release(id, job, release, now));
                self.agree(released, |model| model.release(index, job.0, release, now));
            }
            C::Bury { job, priority } => self.bury(id, job, priority),
            C::Touch { job, for_s } => {
                let job = job_of(job, model);
                let is_touched = queue.touch(id, job, for_s, now);
                self.agree(is_touched, |model| model.touch(index, job.0, for_s, now));
            }
            C::TouchAll => self.touch_all(id),
            C::Kick { bound } => self.kick(id, bound),
            C::Move { job, tube } => self.move_job(id, job, tube),
            C::Flush { tube, only_buried } => self.flush(id, tube, only_buried),
        }
    }

    fn reserve_job(&mut self, id: ClientId, job: u64) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let is_reserved = self.queue.reserve_job(id, job, now);
        self.agree(is_reserved, |model| model.reserve_job(id.index, job.0, now));
    }

    fn delete(&mut self, id: ClientId, job: u64) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let is_deleted = self.queue.delete(id, job, now).is_some();
        self.agree(is_deleted, |model| model.delete(id.index, job.0, now));
    }

    fn flush(&mut self, id: ClientId, tube: &'static str, only_buried: bool) {
        let now = self.now;
        if self.keeps_slices {
            self.flushing.extend(Flush::begin(&mut self.queue, id, tube, only_buried));
        } else {
            let flushed = flush(&mut self.queue, id, tube, only_buried, now);
            self.agree(flushed, |model| model.flush(tube, only_buried, now));
        }
    }

    fn bury(&mut self, id: ClientId, job: u64, priority: u32) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let has_reserved = self.queue.has_reserved(id, job);
        if has_reserved {
            self.queue.bury(id, job, Priority(priority), now);
        }
        self.agree(has_reserved, |model| model.bury(id.index, job.0, priority, now));
    }

    /// The id of a put, which both give to the client that puts.
    fn allocate_id(&mut self, client: ClientId) -> JobId {
        self.queue.mark_producer(client);
        let id = self.queue.allocate_id();
        self.agree(id.0, |model| model.allocate_id(client.index));
        id
    }

    /// A put. Its body is its priority.
    fn put(&mut self, id: ClientId, new: NewJob, tags: JobTags<'static>) {
        let (index, now, priority) = (id.index, self.now, new.priority);
        let queue = &mut self.queue;
        let body: Arc<[u8]> = priority.0.to_string().into_bytes().into();
        queue.make_room_for_put().expect("memory can be allocated");
        let copy = Body::copy_of(&body).expect("there is memory");
        let duplicate = queue.duplicate(id, None, &tags, now);
        let name = queue.used_tube(id).as_str().to_owned();
        let is_full = queue.is_full_for(id, None, body.len());
        assert_eq!(is_full, queue.is_full_for(id, Some(&name), body.len()));
        self.agree(is_full, |model| model.is_full(&name, body.len()));
        let queue = &mut self.queue;
        if duplicate.is_none() && is_full {
            queue.count_refused(id, None);
            self.agree((), |model| model.refuse_for(&name));
        } else if tags.is_empty() {
            queue.put(id, new, copy, now);
            self.agree((), |model| model.put(index, new, body, now));
        } else if let Some(duplicate) = duplicate {
            let found = upgrade(queue, duplicate, priority, now);
            self.agree(Some(found), |model| Some(shown(&model.duplicate(index, &tags, priority.0, now)?)));
        } else {
            let bytes = encoded(tags);
            let tags_in_log = EncodedTags::of(&bytes, tags);
            queue.put_tagged(id, None, new, copy, &tags_in_log, now).expect("there is memory");
            self.agree((), |model| {
                assert_eq!(model.duplicate(index, &tags, priority.0, now), None);
                model.put_tagged(index, new, body, tags, now);
            });
        }
    }

    fn reserve(&mut self, id: ClientId, timeout_s: Option<Seconds>) {
        let found = loop {
            match self.queue.reserve(id, timeout_s, self.now) {
                Reserve::Unfinished if !self.keeps_slices => self.queue.check_invariants(),
                found => break found,
            }
        };
        let drawn = if let Reserve::Job(id) = found { Some(id.0) } else { None };
        let now = self.now;
        self.agree(found, |model| model.reserve(id.index, timeout_s, drawn, now));
    }

    fn undo_reserve(&mut self, id: ClientId, job: u64) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let has_reserved = self.queue.has_reserved(id, job);
        if has_reserved {
            self.queue.undo_reserve(id, job, now);
        }
        self.agree(has_reserved, |model| model.undo_reserve(id.index, job.0, now));
    }

    fn wait_job(&mut self, id: ClientId, job: u64, timeout_s: Option<Seconds>) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let found = match self.queue.wait_job(id, job, timeout_s, now) {
            WaitJob::NotFound => Some("NOT_FOUND"),
            WaitJob::Buried => Some("BURIED"),
            WaitJob::TimedOut => Some("TIMED_OUT"),
            WaitJob::Waiting => None,
        };
        self.agree(found, |model| model.wait_job(id.index, job.0, timeout_s, now));
    }

    fn touch_all(&mut self, id: ClientId) {
        let (mut after, mut touched) = (None, 0);
        loop {
            after = self.queue.touch_after(id, after, &mut 1, &mut touched, |_| true, self.now);
            if after.is_none() {
                break;
            }
            self.queue.check_invariants();
        }
        let now = self.now;
        self.agree(touched, |model| model.touch_all(id.index, now));
    }

    fn kick(&mut self, id: ClientId, bound: u64) {
        let any_buried = self.queue.peek(id, JobState::Buried).is_some();
        let state = if any_buried { JobState::Buried } else { JobState::Delayed };
        let mut kicked = 0;
        while kicked < bound
            && let Some(job) = self.queue.next_to_kick(id, state)
        {
            assert!(self.queue.kick(job, self.now));
            kicked += 1;
        }
        let now = self.now;
        self.agree(kicked, |model| model.kick(id.index, bound, now));
    }

    /// The command `move`. Nothing changes if the tube is full, or has a job with the same key.
    fn move_job(&mut self, id: ClientId, job: u64, tube: &str) {
        let (index, now) = (id.index, self.now);
        let (job, queue) = (job_of(job, &self.model), &mut self.queue);
        let duplicate = queue.duplicate_in(job, tube, now);
        let is_movable = queue.is_movable(id, job);
        let moved = queue.job(job).filter(|job| is_movable && job.tube.as_str() != tube);
        let is_full = moved.is_some_and(|job| queue.is_full_for(id, Some(tube), job.body.as_slice().len()));
        self.agree(duplicate.map(|id| id.0), |model| model.duplicate_in(job.0, tube));
        self.agree(is_full, |model| model.is_refused_by(index, job.0, tube));
        if duplicate.is_some() {
            return;
        }
        if is_full {
            self.queue.count_refused(id, Some(tube));
            return self.agree((), |model| model.refuse_for(tube));
        }
        if is_movable {
            assert!(self.queue.move_job(job, tube, now));
        }
        self.agree(is_movable, |model| model.move_job(index, job.0, tube, now));
    }

    /// The command `complete`. Nothing changes if a tube is full.
    fn complete(&mut self, id: ClientId, job: u64, number: u64) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let puts = completed_puts(number, || self.allocate_id(id));
        let has_reserved = self.queue.has_reserved(id, job);
        self.agree(has_reserved, |model| model.has_reserved(id.index, job.0));
        if !has_reserved || frees_too_many(&self.model, job, &puts) {
            return;
        }
        let queue = &mut self.queue;
        let encoded: Vec<Vec<u8>> = puts.iter().map(|put| encoded(put.tags)).collect();
        let tags: Vec<EncodedTags<'_>> = encoded
            .iter()
            .map(|bytes| EncodedTags::read(bytes).expect("the bytes of tags are tags"))
            .collect();
        let asked: Vec<queue::CompletedPut<'_>> = puts
            .iter()
            .zip(&tags)
            .map(|(put, tags)| queue::CompletedPut {
                new: put.new,
                tags,
                tube: put.tube,
                body_bytes: put.body.len(),
            })
            .collect();
        let plan = queue.plan_complete(id, job, asked.iter().copied(), now);
        let plan: Vec<Planned> = plan.map_while(Result::ok).collect();
        if let Some(refused) = puts.get(plan.len()) {
            queue.count_refused(id, refused.tube);
            let name = queue.target_tube_name(id, refused.tube).to_owned();
            return self.agree(name, |model| {
                let tube = model.complete(id.index, job.0, &puts, now).expect_err("the tube is full");
                model.refuse_for(&tube);
                tube.to_string()
            });
        }
        let pack = |put: &queue::CompletedPut<'_>, body: &[u8]| {
            Queue::encode_body(Body::copy_of(body).expect("there is memory"), put.tags.bytes())
                .expect("there is memory")
        };
        let bodies: Vec<EncodedBody> =
            asked.iter().zip(&puts).map(|(asked, put)| pack(asked, &put.body)).collect();
        queue.make_room_for_put().expect("memory can be allocated");
        let ended = queue.complete(id, job, asked.iter().copied(), bodies.into_iter(), &plan, now);
        assert!(ended.is_some(), "the client has reserved it");
        let ids = puts.iter().zip(&plan).map(|(put, planned)| match planned {
            Planned::Duplicate { first, .. } => first.0,
            Planned::New => put.new.id.0,
        });
        self.agree(ids.collect(), |model| {
            model
                .complete(id.index, job.0, &puts, now)
                .expect("no tube is full")
                .into_iter()
                .collect::<Vec<_>>()
        });
    }

    /// The command `session`. A client whose session is taken over is disconnected.
    fn session(&mut self, id: ClientId, name: &str, grace_ms: u32) {
        let key = SessionKey { identity: "".into(), name: name.into() };
        let begun = self.queue.begin_session(id, &key, grace_ms).expect("there is memory");
        let BeginSession::Attached { taken_from, mut joining } = begun else {
            return self.agree(None, |model| model.begin_session(id.index, name, grace_ms));
        };
        while !self.queue.join_session(id, &mut joining, &mut 1) {
            self.queue.check_invariants();
        }
        let count = self.queue.reservation_count(id) as u64;
        self.agree(Some(count), |model| model.begin_session(id.index, name, grace_ms));
        let taken = taken_from.map(|before| before.index).into_iter().collect();
        self.agree(taken, |model| std::mem::take(&mut model.taken_over));
        if let Some(before) = taken_from {
            if !self.keeps_slices {
                self.compare();
            }
            self.clients.retain(|&client| client != before);
            self.disconnect(before);
        }
    }

    fn disconnect(&mut self, id: ClientId) {
        let now = self.now;
        self.flushing.retain(|flush| flush.client != id);
        self.queue.disconnect(id, now);
        self.finish_slices();
        self.agree((), |model| {
            model.disconnect(id.index, model.share, now);
            model.advance(now);
        });
    }

    fn advance(&mut self, to: Timestamp) {
        if self.now >= NO_JUMPS_FROM {
            return;
        }
        self.now = to;
        self.queue.advance(to);
        if self.keeps_slices {
            return;
        }
        // The remaining work, including what these calls have begun, continues with the next calls.
        while self.queue.next_deadline().is_some_and(|at| at <= to) {
            self.was_sliced = true;
            self.queue.advance(to);
        }
        self.model.advance(to);
        assert!(self.queue.next_deadline().is_none_or(|at| at > to), "no passed deadline is left");
    }
}

/// Applies the effects of a duplicate; returns it as the model shows it.
fn upgrade(queue: &mut Queue, duplicate: Duplicate, priority: Priority, now: Timestamp) -> String {
    let (first, state) = match duplicate {
        Duplicate::OfDeleted(first) => (first, None),
        Duplicate::Of(first, state) => (first, Some(state)),
    };
    let is_upgrade = state.is_some() && queue.would_upgrade(first, priority);
    if is_upgrade {
        queue.upgrade(first, priority, now);
    }
    format!("{:?}", (first.0, state.map(JobState::as_str), is_upgrade.then_some(priority.0)))
}

fn shown(duplicate: &model::Duplicate) -> String {
    let &model::Duplicate { first, state, priority } = duplicate;
    format!("{:?}", (first, state.map(State::as_str), priority))
}
