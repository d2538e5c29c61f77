//! Does operations on the queue and on its model, and fails if their replies differ.

use std::collections::VecDeque;
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
    group.is_some_and(|group| !puts.is_empty() && model.waiting_for(group).count() > SLICES.given_back)
}

/// The queue, the model, and the connected clients.
pub struct Pair {
    pub queue: Queue,
    pub model: Model,
    pub(super) clients: Vec<ClientId>,
    /// The ids of puts that were announced.
    announced: VecDeque<JobId>,
    pub(super) now: Timestamp,
}

/// Applies all operations to the queue and to the model.
///
/// # Panics
/// If the two differ, or if an invariant of the queue does not hold.
pub fn run(limits: PoisonLimits, operations: &[Operation]) {
    let mut pair = Pair::new(limits);
    for &operation in operations {
        pair.step(operation);
    }
}

impl Pair {
    pub fn new(limits: PoisonLimits) -> Self {
        let mut queue = Queue::new(limits, SLICES);
        queue.keep_changes();
        let mut model = Model::new(limits);
        model.share = SLICES.given_back;
        Self { queue, model, clients: Vec::new(), announced: VecDeque::new(), now: START }
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
        self.compare();
    }

    /// Does all work that the last operation has left for later turns.
    fn finish_slices(&mut self) {
        while self.queue.next_deadline().is_some_and(|at| at <= self.now) {
            self.queue.check_invariants();
            self.queue.advance(self.now);
        }
    }

    /// The client that a raw number chooses, if it may send a command.
    fn speaker(&self, raw: u64) -> Option<ClientId> {
        let id = *self.clients.get(raw as usize % self.clients.len().max(1))?;
        (!self.model.client(id.index).waits()).then_some(id)
    }

    fn execute(&mut self, operation: Operation) {
        use Operation as O;
        match operation {
            O::Connect => {
                if self.clients.len() < MAX_CLIENTS {
                    let id = self.queue.connect();
                    self.model.connect(id.index);
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
                    assert_eq!(self.queue.stop_waiting(id), self.model.stop_waiting(id.index));
                }
            }
            O::KickJob { job } => {
                let id = job_of(job, &self.model);
                let kickable = self.queue.is_kickable(id);
                if kickable {
                    assert!(self.queue.kick(id, self.now));
                }
                assert_eq!(kickable, self.model.kick_job(id.0, self.now));
            }
            O::PauseTube { tube, length_s } => self.pause_tube(tube, length_s),
            O::Reprioritize { job, priority } => {
                let id = job_of(job, &self.model);
                let is_free = self.queue.is_unreserved(id);
                if is_free {
                    assert!(self.queue.set_priority(id, Priority(priority), self.now));
                }
                assert_eq!(is_free, self.model.reprioritize(id.0, priority));
            }
            O::SetDelay { job, delay_s } => self.set_delay(job, delay_s),
            O::SetRules { number } => self.set_rules(rules(number)),
            O::List { tube, limit } => self.list(tube, limit),
            O::Pass { ns } => self.advance(self.now + ns),
            O::PassToDeadline { offset_ns } => {
                if let Some(at) = self.model.next_deadline() {
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
        assert_eq!(paused, self.model.pause_tube(tube, length_s, self.now));
    }

    fn set_delay(&mut self, job: u64, delay_s: Seconds) {
        let (id, now, until) = (job_of(job, &self.model), self.now, self.now.plus_seconds(delay_s));
        let is_delayable = self.queue.is_delayable(id);
        if is_delayable {
            assert!(self.queue.set_delay(id, delay_s, until, now));
        }
        assert_eq!(is_delayable, self.model.set_delay(id.0, delay_s, until, now));
    }

    fn set_rules(&mut self, rules: Vec<TubeRule>) {
        self.queue.set_tube_rules(rules.clone(), self.now);
        self.finish_slices();
        self.model.set_rules(rules, self.now);
        self.model.advance(self.now);
    }

    /// Applies the command of a connected client that does not wait.
    fn command(&mut self, id: ClientId, command: ClientCommand) {
        use ClientCommand as C;
        let (index, now) = (id.index, self.now);
        let (queue, model) = (&mut self.queue, &mut self.model);
        match command {
            C::Use { tube } => {
                queue.use_tube(id, tube);
                model.use_tube(index, tube);
            }
            C::Watch { tube } => assert_eq!(queue.watch(id, tube), model.watch(index, tube)),
            C::WatchWithWeight { tube, weight } => {
                assert_eq!(queue.watch_with_weight(id, tube, weight), model.watch(index, tube));
            }
            C::Ignore { tube } => assert_eq!(queue.ignore(id, tube), model.ignore(index, tube)),
            C::SetMode { mode } => {
                queue.set_reserve_mode(id, mode);
                model.set_weighted(index, mode != ReserveMode::Fifo);
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
            C::ReserveJob { job } => {
                let job = job_of(job, model);
                assert_eq!(queue.reserve_job(id, job, now), model.reserve_job(index, job.0, now));
            }
            C::UndoReserve { job } => self.undo_reserve(id, job),
            C::WaitJob { job, timeout_s } => self.wait_job(id, job, timeout_s),
            C::Delete { job } => {
                let job = job_of(job, model);
                let is_deleted = queue.delete(id, job, now).is_some();
                assert_eq!(is_deleted, model.delete(index, job.0, now));
            }
            C::Complete { job, number } => self.complete(id, job, number),
            C::Release { job, release } => {
                let job = job_of(job, model);
                let released = queue.has_reserved(id, job).then(|| queue.release(id, job, release, now));
                assert_eq!(released, model.release(index, job.0, release, now));
            }
            C::Bury { job, priority } => self.bury(id, job, priority),
            C::Touch { job, for_s } => {
                let job = job_of(job, model);
                assert_eq!(queue.touch(id, job, for_s, now), model.touch(index, job.0, for_s, now));
            }
            C::TouchAll => self.touch_all(id),
            C::Kick { bound } => self.kick(id, bound),
            C::Move { job, tube } => self.move_job(id, job, tube),
            C::Flush { tube, only_buried } => {
                let flushed = flush(queue, id, tube, only_buried, now);
                assert_eq!(flushed, model.flush(tube, only_buried, now));
            }
        }
    }

    fn bury(&mut self, id: ClientId, job: u64, priority: u32) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let has_reserved = self.queue.has_reserved(id, job);
        if has_reserved {
            self.queue.bury(id, job, Priority(priority), now);
        }
        assert_eq!(has_reserved, self.model.bury(id.index, job.0, priority, now));
    }

    /// The id of a put, which both give to the client that puts.
    fn allocate_id(&mut self, client: ClientId) -> JobId {
        self.queue.mark_producer(client);
        let id = self.queue.allocate_id();
        assert_eq!(id.0, self.model.allocate_id(client.index));
        id
    }

    /// A put. Its body is its priority.
    fn put(&mut self, id: ClientId, new: NewJob, tags: JobTags<'static>) {
        let (index, now, priority) = (id.index, self.now, new.priority);
        let (queue, model) = (&mut self.queue, &mut self.model);
        let body: Arc<[u8]> = priority.0.to_string().into_bytes().into();
        queue.make_room_for_put().expect("memory can be allocated");
        let copy = Body::copy_of(&body).expect("there is memory");
        let duplicate = queue.duplicate(id, None, &tags, now);
        let name = model.tube(model.client(index).using).name.clone();
        if duplicate.is_none() && model.is_full(&name, body.len()) {
            assert!([None, Some(&*name)].iter().all(|&tube| queue.is_full_for(id, tube, body.len())));
            queue.count_refused(id, None);
            model.refuse_for(&name);
            return;
        }
        assert!(duplicate.is_some() || !queue.is_full_for(id, None, body.len()));
        if tags.is_empty() {
            queue.put(id, new, copy, now);
            model.put(index, new, body, now);
        } else if let Some(duplicate) = duplicate {
            let expected = model.duplicate(index, &tags, priority.0, now);
            let found = upgrade(queue, duplicate, priority, now);
            assert_eq!(Some(found), expected.map(|duplicate| shown(&duplicate)));
        } else {
            assert_eq!(model.duplicate(index, &tags, priority.0, now), None);
            let bytes = encoded(tags);
            let tags_in_log = EncodedTags::of(&bytes, tags);
            queue.put_tagged(id, None, new, copy, &tags_in_log, now).expect("there is memory");
            model.put_tagged(index, new, body, tags, now);
        }
    }

    fn reserve(&mut self, id: ClientId, timeout_s: Option<Seconds>) {
        let found = loop {
            match self.queue.reserve(id, timeout_s, self.now) {
                Reserve::Unfinished => self.queue.check_invariants(),
                found => break found,
            }
        };
        let drawn = if let Reserve::Job(id) = found { Some(id.0) } else { None };
        assert_eq!(found, self.model.reserve(id.index, timeout_s, drawn, self.now));
    }

    fn undo_reserve(&mut self, id: ClientId, job: u64) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let has_reserved = self.queue.has_reserved(id, job);
        if has_reserved {
            self.queue.undo_reserve(id, job, now);
        }
        assert_eq!(has_reserved, self.model.undo_reserve(id.index, job.0, now));
    }

    fn wait_job(&mut self, id: ClientId, job: u64, timeout_s: Option<Seconds>) {
        let (job, now) = (job_of(job, &self.model), self.now);
        let found = match self.queue.wait_job(id, job, timeout_s, now) {
            WaitJob::NotFound => Some("NOT_FOUND"),
            WaitJob::Buried => Some("BURIED"),
            WaitJob::TimedOut => Some("TIMED_OUT"),
            WaitJob::Waiting => None,
        };
        assert_eq!(found, self.model.wait_job(id.index, job.0, timeout_s, now));
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
        assert_eq!(touched, self.model.touch_all(id.index, self.now));
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
        assert_eq!(kicked, self.model.kick(id.index, bound, self.now));
    }

    /// The command `move`. Nothing changes if the tube is full, or has a job with the same key.
    fn move_job(&mut self, id: ClientId, job: u64, tube: &str) {
        let (index, now) = (id.index, self.now);
        let (queue, model) = (&mut self.queue, &mut self.model);
        let job = job_of(job, model);
        let duplicate = queue.duplicate_in(job, tube, now);
        assert_eq!(duplicate.map(|id| id.0), model.duplicate_in(job.0, tube));
        let is_movable = queue.is_movable(id, job);
        if duplicate.is_some() {
            return;
        }
        if model.is_refused_by(index, job.0, tube) {
            assert!(queue.is_full_for(id, Some(tube), model.job(job.0).expect("it is there").body.len()));
            queue.count_refused(id, Some(tube));
            model.refuse_for(tube);
            return;
        }
        if is_movable {
            assert!(queue.move_job(job, tube, now));
        }
        assert_eq!(is_movable, model.move_job(index, job.0, tube, now));
    }

    /// The command `complete`. Nothing changes if a tube is full.
    fn complete(&mut self, id: ClientId, job: u64, number: u64) {
        let (queue, model, now) = (&mut self.queue, &mut self.model, self.now);
        let job = job_of(job, model);
        let puts = completed_puts(number, || {
            queue.mark_producer(id);
            let new = queue.allocate_id();
            assert_eq!(new.0, model.allocate_id(id.index));
            new
        });
        assert_eq!(queue.has_reserved(id, job), model.has_reserved(id.index, job.0));
        if !queue.has_reserved(id, job) || frees_too_many(model, job, &puts) {
            return;
        }
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
            let tube = model.complete(id.index, job.0, &puts, now).expect_err("the tube is full");
            assert_eq!(queue.target_tube_name(id, refused.tube), tube);
            return model.refuse_for(&tube);
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
        let expected = model.complete(id.index, job.0, &puts, now).expect("no tube is full");
        let ids = puts.iter().zip(&plan).map(|(put, planned)| match planned {
            Planned::Duplicate { first, .. } => first.0,
            Planned::New => put.new.id.0,
        });
        assert!(ids.eq(expected.iter().copied()), "{plan:?}: {expected:?}");
    }

    /// The command `session`. A client whose session is taken over is disconnected.
    fn session(&mut self, id: ClientId, name: &str, grace_ms: u32) {
        let key = SessionKey { identity: "".into(), name: name.into() };
        let begun = self.queue.begin_session(id, &key, grace_ms).expect("there is memory");
        let expected = self.model.begin_session(id.index, name, grace_ms);
        let BeginSession::Attached { taken_from, mut joining } = begun else {
            return assert_eq!(expected, None, "the client has another session");
        };
        while !self.queue.join_session(id, &mut joining, &mut 1) {
            self.queue.check_invariants();
        }
        assert_eq!(expected, Some(self.queue.reservation_count(id) as u64));
        let taken_over = std::mem::take(&mut self.model.taken_over);
        assert_eq!(taken_over, taken_from.map(|before| before.index).into_iter().collect::<Vec<_>>());
        if let Some(before) = taken_from {
            self.compare();
            self.clients.retain(|&client| client != before);
            self.disconnect(before);
        }
    }

    fn disconnect(&mut self, id: ClientId) {
        self.queue.disconnect(id, self.now);
        self.finish_slices();
        self.model.disconnect(id.index, SLICES.given_back, self.now);
        self.model.advance(self.now);
    }

    fn advance(&mut self, to: Timestamp) {
        if self.now >= NO_JUMPS_FROM {
            return;
        }
        self.now = to;
        self.queue.advance(to);
        // The remaining work, including what these calls have begun, continues with the next calls.
        while self.queue.next_deadline().is_some_and(|at| at <= to) {
            self.queue.advance(to);
        }
        self.model.advance(to);
        assert!(self.queue.next_deadline().is_none_or(|at| at > to), "no passed deadline is left");
    }
}

/// Flushes the tube in the smallest possible slices.
fn flush(queue: &mut Queue, client: ClientId, tube: &str, only_buried: bool, now: Timestamp) -> u64 {
    let scope = if only_buried { FlushScope::Buried } else { FlushScope::All };
    if queue.begin_flush(client, tube, scope) == BeginFlush::NoTube {
        return 0;
    }
    let mut count = 0;
    loop {
        match flush_step(queue, client, now) {
            FlushStep::Job(_) => count += 1,
            FlushStep::Cooldown(_) | FlushStep::Unfinished => {}
            FlushStep::Done => return count,
        }
    }
}

/// Takes the smallest possible step of a flush.
fn flush_step(queue: &mut Queue, client: ClientId, now: Timestamp) -> FlushStep {
    let step = queue.next_to_flush(client, &mut 1);
    match step {
        FlushStep::Job(job) => drop(queue.flush_job(job, now)),
        FlushStep::Cooldown(job) => queue.end_cooldown(job),
        FlushStep::Unfinished => queue.check_invariants(),
        FlushStep::Done => queue.end_flush(client, now),
    }
    while queue.next_deadline() == Some(Timestamp::AT_ONCE) {
        queue.advance(now);
    }
    step
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
