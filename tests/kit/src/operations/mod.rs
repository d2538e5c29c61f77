//! Random operations on the queue and on its model. The whole state of both is compared after each operation.

use std::fmt::Write;
use std::sync::Arc;

use beanstalkd::clock::{NS_PER_S, Timestamp};
use beanstalkd::job::{Body, Counting, JobId, JobState, Priority};
use beanstalkd::queue::{
    self, BeginFlush, BeginSession, Change, ClientId, Duplicate, Durations, FlushStep, Flushed, NewJob,
    PackedBody, PageOrder, Planned, PoisonLimits, Queue, Rate, Release, Reserve, ReserveMode, Search,
    SessionKey, Slices, TubeRule, TubeView,
};
use beanstalkd::seconds::Seconds;
use beanstalkd::tags::{After, Concurrency, EncodedTags, Idempotency, TagSet};
use beanstalkd::tube_name::TubeName;

use crate::random::Random;
use beanstalkd_model::{self as model, CompletedPut, Job, Model, NO_JUMPS_FROM, State, Times, TubeIndex};

/// The tubes that operations choose from.
const TUBES: [&str; 4] = ["default", "a", "b", "c"];
/// The most clients at a time.
const MAX_CLIENTS: usize = 5;
/// The time at which each case begins.
const START: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// Small limits, so that long work often takes several slices, and that clients often watch "many" tubes.
const SLICES: Slices = Slices { given_back: 2, delivered: 2, probed_tubes: 2, few_tubes: 2 };

/// One step. `client` and `job` are raw numbers that choose among the clients and jobs that exist at that time, so
/// that a list of steps stays valid if steps are removed from it.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Connect,
    Disconnect {
        client: u64,
    },
    Use {
        client: u64,
        tube: &'static str,
    },
    Watch {
        client: u64,
        tube: &'static str,
    },
    Ignore {
        client: u64,
        tube: &'static str,
    },
    Put {
        client: u64,
        priority: u32,
        delay_s: Seconds,
        ttr_s: Seconds,
        tags: TagSet<'static>,
    },
    RefusedPut {
        client: u64,
    },
    Reserve {
        client: u64,
        timeout_s: Option<Seconds>,
    },
    ReserveJob {
        client: u64,
        job: u64,
    },
    StopWaiting {
        client: u64,
    },
    Delete {
        client: u64,
        job: u64,
    },
    /// The puts are those of this number.
    Complete {
        client: u64,
        job: u64,
        number: u64,
    },
    Release {
        client: u64,
        job: u64,
        release: Release,
    },
    Bury {
        client: u64,
        job: u64,
        priority: u32,
    },
    Touch {
        client: u64,
        job: u64,
        for_s: Option<Seconds>,
    },
    Kick {
        client: u64,
        bound: u64,
    },
    KickJob {
        job: u64,
    },
    PauseTube {
        tube: &'static str,
        length_s: Seconds,
    },
    Flush {
        client: u64,
        tube: &'static str,
        only_buried: bool,
    },
    Move {
        client: u64,
        job: u64,
        tube: &'static str,
    },
    Reprioritize {
        job: u64,
        priority: u32,
    },
    WatchWithWeight {
        client: u64,
        tube: &'static str,
        weight: u16,
    },
    SetMode {
        client: u64,
        mode: ReserveMode,
    },
    TouchAll {
        client: u64,
    },
    /// Replaces the rules for tubes in force by those of this number.
    SetRules {
        number: u64,
    },
    Session {
        client: u64,
        name: &'static str,
        grace_ms: u32,
    },
    /// Lists all pages of the tube's jobs in each state.
    List {
        tube: &'static str,
        limit: usize,
    },
    /// Advances the clock.
    Pass {
        ns: u64,
    },
    /// Advances the clock to the next deadline, or to a nanosecond before or after it.
    PassToDeadline {
        offset_ns: i64,
    },
}

/// The limits and the operations of a case.
pub fn case(seed: u64) -> (PoisonLimits, Vec<Operation>) {
    let mut random = Random::new(seed);
    let limit = |random: &mut Random| random.once_in(3).then(|| 1 + random.below(3) as u32);
    let limits = PoisonLimits { timeouts: limit(&mut random), releases: limit(&mut random) };
    let length = 5 + random.below(60) as usize;
    let mut operations = vec![Operation::Connect, Operation::Connect];
    if random.once_in(2) {
        operations.push(Operation::SetRules { number: random.next() });
    }
    operations.extend((0..length).map(|_| operation(&mut random)));
    (limits, operations)
}

/// The operation that a random number stands for.
pub fn operation(random: &mut Random) -> Operation {
    let client = random.below(64);
    let job = random.below(64);
    let tube = random.pick(&TUBES);
    let priority = random.pick(&[0, 1, 7, 7, 7, 1023, 1024, 1025, u32::MAX]);
    let delay_s = seconds(random, &[0, 0, 0, 1, 1000, 2000, 2999, 10_000, 4_000_000_000_000]);
    let ttr_s = seconds(random, &[0, 999, 1000, 1000, 1001, 2500, 3000, 5000, 60_000]);
    match random.below(60) {
        57..=59 => Operation::Complete { client, job, number: random.next() },
        56 => Operation::SetRules { number: random.next() },
        52..=55 => Operation::Session {
            client,
            name: random.pick(&["s", "s", "t"]),
            grace_ms: random.pick(&[0, 1, 999, 1000, 1500, 60_000]),
        },
        47 | 48 => Operation::WatchWithWeight { client, tube, weight: random.pick(&[1, 2, 9999]) },
        49 | 50 => Operation::SetMode {
            client,
            mode: random.pick(&[ReserveMode::Fifo, ReserveMode::Weighted, ReserveMode::WeightedFair]),
        },
        51 => Operation::TouchAll { client },
        40 => Operation::Flush { client, tube, only_buried: random.once_in(2) },
        41..=43 => Operation::Move { client, job, tube },
        44 | 45 => Operation::Reprioritize { job, priority },
        46 => Operation::List { tube, limit: random.pick(&[1, 2, 3, 1000]) },
        0 | 1 => Operation::Connect,
        2 => Operation::Disconnect { client },
        3 | 4 => Operation::Use { client, tube },
        5..=7 => Operation::Watch { client, tube },
        8 | 9 => Operation::Ignore { client, tube },
        10..=14 => Operation::Put { client, priority, delay_s, ttr_s, tags: tags(random) },
        15 => Operation::RefusedPut { client },
        16..=18 => Operation::Reserve { client, timeout_s: None },
        19..=21 => {
            Operation::Reserve { client, timeout_s: Some(seconds(random, &[0, 1, 500, 1000, 2000, 10_000])) }
        }
        22 => Operation::ReserveJob { client, job },
        23 => Operation::StopWaiting { client },
        24 | 25 => Operation::Delete { client, job },
        26 | 27 => {
            let counting = random.pick(&[Counting::Counted, Counting::Counted, Counting::Uncounted]);
            Operation::Release {
                client,
                job,
                release: Release { priority: Priority(priority), delay_s, counting },
            }
        }
        28 | 29 => Operation::Bury { client, job, priority },
        30 => Operation::Touch {
            client,
            job,
            for_s: random.once_in(2).then(|| seconds(random, &[0, 999, 1001, 3000, 4_000_000_000_000])),
        },
        31 => Operation::Kick { client, bound: random.pick(&[0, 1, 2, 3, u64::MAX]) },
        32 => Operation::KickJob { job },
        33 => Operation::PauseTube { tube, length_s: seconds(random, &[0, 1, 1000, 1500, 5000, 1_000_000]) },
        34 | 35 => Operation::Pass {
            ns: random.pick(&[1, 500_000_000, 1_000_000_000, 2_000_000_000, 3_600_000_000_000]),
        },
        _ => Operation::PassToDeadline { offset_ns: random.pick(&[-1, 0, 0, 1]) },
    }
}

/// Some rules for tubes; a number always stands for the same rules.
fn rules(number: u64) -> Vec<TubeRule> {
    let mut random = Random::new(number);
    let patterns = ["default", "a", "b", "?", "*"];
    let mut rule = || {
        let mut rule = TubeRule::new(random.pick(&patterns));
        rule.max_jobs = random.once_in(2).then(|| 1 + random.below(4));
        rule.max_bytes = random.once_in(3).then(|| 1 + random.below(20));
        rule.max_attempts = random.once_in(2).then(|| 1 + random.below(3) as u32);
        rule.max_reserved = random.once_in(3).then(|| 1 + random.below(2) as u32);
        rule.rate = random.once_in(3).then(|| Rate {
            tokens: random.pick(&[1, 2, 3]),
            period_ns: random.pick(&[NS_PER_S, 7 * NS_PER_S, 3600 * NS_PER_S]),
            burst: random.pick(&[1, 2, 5]),
        });
        rule.backoff_s = random.once_in(3).then(|| random.pick(&[1, 2, 3_000_000_000]));
        rule.max_backoff_s = random.once_in(2).then(|| random.pick(&[1, 3, 100]));
        rule.is_fair = random.once_in(3);
        rule.max_age_s = random.once_in(3).then(|| random.pick(&[1, 2, 100]));
        rule.dead_tube = random.once_in(2).then(|| random.pick(&["a", "b", "d"]).into());
        rule
    };
    (0..number % 4).map(|_| rule()).collect()
}

/// A duration of one of these numbers of thousandths.
fn seconds(random: &mut Random, thousandths: &[u64]) -> Seconds {
    Seconds::of_ns(random.pick(thousandths) as i64 * 1_000_000)
}

/// The tags of a put: none, or some of a few, so that different jobs share them.
fn tags(random: &mut Random) -> TagSet<'static> {
    if random.once_in(2) {
        return TagSet::default();
    }
    let mut some = |one_in| random.once_in(one_in).then(|| random.below(12) as usize);
    TagSet {
        idempotency: some(4).map(|raw| Idempotency {
            key: ["k", "l"][raw % 2].into(),
            cooldown_s: [Seconds::ZERO, Seconds::new(0, 500), Seconds::new(3, 0)][raw % 3],
        }),
        concurrency: some(2)
            .map(|raw| Concurrency { key: ["k", "l", "m"][raw % 3].into(), limit: [1, 1, 2, 9][raw % 4] }),
        group: some(3).map(|raw| ["g", "h"][raw % 2].into()),
        after: some(3).map(|raw| After { group: ["g", "h"][raw % 2].into(), is_free: false }),
        expires_after_s: some(4)
            .map(|raw| [Seconds::new(1, 0), Seconds::new(1, 1), Seconds::new(10, 0)][raw % 3]),
        owner: some(4).map(|raw| ["o", "p"][raw % 2].into()),
        ..TagSet::default()
    }
}

/// Some puts of a `complete`, whose ids come from `take_id`; a number always stands for the same puts.
fn completed_puts(number: u64, mut take_id: impl FnMut() -> JobId) -> Vec<CompletedPut> {
    let mut random = Random::new(number);
    let count = random.below(4);
    let mut put = || {
        let priority = random.pick(&[0, 1, 7, 1024]);
        let tube = random.once_in(3).then(|| random.pick(&TUBES).into());
        CompletedPut {
            new: NewJob {
                id: take_id(),
                priority: Priority(priority),
                delay_s: seconds(&mut random, &[0, 0, 0, 1, 2000]),
                ttr_s: seconds(&mut random, &[0, 1000, 60_000]),
            },
            body: priority.to_string().into_bytes().into(),
            tags: TagSet { tube, ..tags(&mut random) },
        }
    };
    (0..count).map(|_| put()).collect()
}

/// Whether the end of the job frees more jobs than fit into one slice: then its puts would come between the slices.
fn frees_too_many(model: &Model, job: JobId, puts: &[CompletedPut]) -> bool {
    let group = model.job(job.0).and_then(|job| job.tags.group);
    group.is_some_and(|group| !puts.is_empty() && model.waiting_for(group).count() > SLICES.given_back)
}

/// The encoded tags; empty if there are none.
fn encoded(tags: &TagSet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    tags.encode(&mut bytes).expect("there is memory");
    bytes
}

/// The queue, the model, and the connected clients.
pub struct Pair {
    queue: Queue,
    model: Model,
    clients: Vec<ClientId>,
    now: Timestamp,
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
        Self { queue, model, clients: Vec::new(), now: START }
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    pub fn step(&mut self, operation: Operation) {
        self.execute(operation);
        if self.queue.next_deadline() == Some(Timestamp::default()) {
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
        self.model.client(id.index).wait.is_none().then_some(id)
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
                    self.queue.kick(id, self.now);
                }
                assert_eq!(kickable, self.model.kick_job(id.0, self.now));
            }
            O::PauseTube { tube, length_s } => {
                let paused = self.queue.pause_tube(tube, length_s, self.now);
                self.finish_slices();
                assert_eq!(paused, self.model.pause_tube(tube, length_s, self.now));
            }
            O::Reprioritize { job, priority } => {
                let id = job_of(job, &self.model);
                let is_free = self.queue.is_unreserved(id);
                if is_free {
                    self.queue.set_priority(id, Priority(priority), self.now);
                }
                assert_eq!(is_free, self.model.reprioritize(id.0, priority));
            }
            O::SetRules { number } => {
                let rules = rules(number);
                self.queue.set_tube_rules(rules.clone(), self.now);
                self.finish_slices();
                self.model.set_rules(rules, self.now);
                self.model.advance(self.now);
            }
            O::List { tube, limit } => self.list(tube, limit),
            O::Pass { ns } => self.advance(self.now + ns),
            O::PassToDeadline { offset_ns } => {
                if let Some(at) = self.model.next_deadline() {
                    self.advance(Timestamp(at.0.saturating_add_signed(offset_ns)).max(self.now));
                }
            }
            O::Use { client, .. }
            | O::Watch { client, .. }
            | O::Ignore { client, .. }
            | O::Put { client, .. }
            | O::RefusedPut { client }
            | O::Reserve { client, .. }
            | O::ReserveJob { client, .. }
            | O::Delete { client, .. }
            | O::Complete { client, .. }
            | O::Release { client, .. }
            | O::Bury { client, .. }
            | O::Touch { client, .. }
            | O::WatchWithWeight { client, .. }
            | O::SetMode { client, .. }
            | O::TouchAll { client }
            | O::Session { client, .. }
            | O::Flush { client, .. }
            | O::Move { client, .. }
            | O::Kick { client, .. } => {
                if let Some(id) = self.speaker(client) {
                    self.command(id, operation);
                }
            }
        }
    }

    /// Applies the command of a connected client that does not wait.
    fn command(&mut self, id: ClientId, operation: Operation) {
        use Operation as O;
        let (index, now) = (id.index, self.now);
        let (queue, model) = (&mut self.queue, &mut self.model);
        match operation {
            O::Use { tube, .. } => {
                queue.use_tube(id, tube);
                model.use_tube(index, tube);
            }
            O::Watch { tube, .. } => assert_eq!(queue.watch(id, tube), model.watch(index, tube)),
            O::WatchWithWeight { tube, weight, .. } => {
                assert_eq!(queue.watch_with_weight(id, tube, weight), model.watch(index, tube));
            }
            O::SetMode { mode, .. } => {
                queue.set_reserve_mode(id, mode);
                model.set_weighted(index, mode != ReserveMode::Fifo);
            }
            O::TouchAll { .. } => {
                let mut after = None;
                loop {
                    after = queue.touch_after(id, after, &mut 1, &mut 0, |_| true, now);
                    if after.is_none() {
                        break;
                    }
                    queue.check_invariants();
                }
                assert_eq!(queue.reservation_count(id) as u64, model.touch_all(index, now));
            }
            O::Session { name, grace_ms, .. } => self.session(id, name, grace_ms),
            O::Ignore { tube, .. } => assert_eq!(queue.ignore(id, tube), model.ignore(index, tube)),
            O::Put { priority, delay_s, ttr_s, tags, .. } => {
                let body: Arc<[u8]> = priority.to_string().into_bytes().into();
                queue.mark_producer(id);
                let job = queue.take_id();
                assert_eq!(job.0, model.take_id(index));
                queue.reserve_put().expect("memory can be allocated");
                let new = NewJob { id: job, priority: Priority(priority), delay_s, ttr_s };
                let copy = Body::copy_of(&body).expect("there is memory");
                let duplicate = queue.duplicate(id, &tags, now);
                let name = model.tube(model.client(index).using).name.clone();
                if duplicate.is_none() && model.is_full(&name, body.len()) {
                    assert!(queue.is_full_for(id, body.len()) && queue.is_tube_full_for(&name, body.len()));
                    queue.count_refused(id);
                    model.refuse_for(&name);
                    return;
                }
                assert!(duplicate.is_some() || !queue.is_full_for(id, body.len()));
                if tags.is_empty() {
                    queue.put(id, new, copy, now);
                    model.put(index, new, body, now);
                } else if let Some(duplicate) = duplicate {
                    let expected = model.duplicate(index, &tags, priority, now);
                    let found = upgrade(queue, duplicate, Priority(priority), now);
                    assert_eq!(Some(found), expected.map(|duplicate| shown(&duplicate)));
                } else {
                    assert_eq!(model.duplicate(index, &tags, priority, now), None);
                    let bytes = encoded(&tags);
                    queue
                        .put_tagged(id, new, copy, &EncodedTags::of(&bytes, tags), now)
                        .expect("there is memory");
                    model.put_tagged(index, new, body, tags, now);
                }
            }
            O::RefusedPut { .. } => {
                queue.mark_producer(id);
                assert_eq!(queue.take_id().0, model.take_id(index));
            }
            O::Reserve { timeout_s, .. } => {
                let found = loop {
                    match queue.reserve(id, timeout_s, now) {
                        Reserve::Unfinished => queue.check_invariants(),
                        found => break found,
                    }
                };
                let drawn = if let Reserve::Job(id) = found { Some(id.0) } else { None };
                assert_eq!(found, model.reserve(index, timeout_s, drawn, now));
            }
            O::ReserveJob { job, .. } => {
                let job = job_of(job, model);
                assert_eq!(queue.reserve_job(id, job, now), model.reserve_job(index, job.0, now));
            }
            O::Delete { job, .. } => {
                let job = job_of(job, model);
                let is_deleted = queue.delete(id, job, now).is_some();
                assert_eq!(is_deleted, model.delete(index, job.0, now));
            }
            O::Complete { job, number, .. } => self.complete(id, job, number),
            O::Release { job, release, .. } => {
                let job = job_of(job, model);
                let released = queue.holds(id, job).then(|| queue.release(id, job, release, now));
                assert_eq!(released, model.release(index, job.0, release, now));
            }
            O::Bury { job, priority, .. } => {
                let job = job_of(job, model);
                let held = queue.holds(id, job);
                if held {
                    queue.bury(id, job, Priority(priority), now);
                }
                assert_eq!(held, model.bury(index, job.0, priority, now));
            }
            O::Touch { job, for_s, .. } => {
                let job = job_of(job, model);
                assert_eq!(queue.touch(id, job, for_s, now), model.touch(index, job.0, for_s, now));
            }
            O::Move { job, tube, .. } => {
                let job = job_of(job, model);
                let duplicate = queue.duplicate_in(job, tube, now);
                assert_eq!(duplicate.map(|id| id.0), model.duplicate_in(job.0, tube));
                let is_movable = queue.is_movable(id, job);
                if duplicate.is_some() {
                    return;
                }
                if model.is_refused_by(index, job.0, tube) {
                    assert!(queue.is_tube_full_for(tube, model.job(job.0).expect("it is there").body.len()));
                    queue.count_refused_in(tube);
                    model.refuse_for(tube);
                    return;
                }
                if is_movable {
                    queue.move_job(job, tube, now);
                }
                assert_eq!(is_movable, model.move_job(index, job.0, tube, now));
            }
            O::Flush { tube, only_buried, .. } => {
                let flushed = flush(queue, id, tube, only_buried, now);
                assert_eq!(flushed, model.flush(tube, only_buried, now));
            }
            O::Kick { bound, .. } => {
                let any_buried = queue.peek(id, JobState::Buried).is_some();
                let state = if any_buried { JobState::Buried } else { JobState::Delayed };
                let mut kicked = 0;
                while kicked < bound
                    && let Some(job) = queue.next_to_kick(id, state)
                {
                    queue.kick(job, now);
                    kicked += 1;
                }
                assert_eq!(kicked, model.kick(index, bound, now));
            }
            _ => unreachable!("no command of a client: {operation:?}"),
        }
    }

    /// The command `complete`. Nothing changes if a tube is full.
    fn complete(&mut self, id: ClientId, job: u64, number: u64) {
        let (queue, model, now) = (&mut self.queue, &mut self.model, self.now);
        let job = job_of(job, model);
        let puts = completed_puts(number, || {
            queue.mark_producer(id);
            let new = queue.take_id();
            assert_eq!(new.0, model.take_id(id.index));
            new
        });
        assert_eq!(queue.holds(id, job), model.holds(id.index, job.0));
        if !queue.holds(id, job) || frees_too_many(model, job, &puts) {
            return;
        }
        let encoded: Vec<Vec<u8>> = puts.iter().map(|put| encoded(&put.tags)).collect();
        let asked: Vec<queue::CompletedPut<'_>> = puts
            .iter()
            .zip(&encoded)
            .map(|(put, bytes)| queue::CompletedPut {
                new: put.new,
                tags: bytes,
                tube: put.tags.tube.as_ref().map(|tube| tube.as_str()),
                body_bytes: put.body.len(),
            })
            .collect();
        let plan: Vec<Planned> = queue.plan_complete(id, job, asked.iter().copied(), now).collect();
        if let Some(full) = plan.iter().position(|planned| *planned == Planned::TubeFull) {
            match puts[full].tags.tube {
                Some(tube) => queue.count_refused_in(tube.as_str()),
                None => queue.count_refused(id),
            }
            let tube = model.complete(id.index, job.0, &puts, now).expect_err("the tube is full");
            return model.refuse_for(&tube);
        }
        let pack = |put: &queue::CompletedPut<'_>, body: &[u8]| {
            Queue::pack(Body::copy_of(body).expect("there is memory"), put.tags).expect("there is memory")
        };
        let bodies: Vec<PackedBody> =
            asked.iter().zip(&puts).map(|(asked, put)| pack(asked, &put.body)).collect();
        queue.reserve_put().expect("memory can be allocated");
        let ended = queue.complete(id, job, asked.iter().copied(), bodies.into_iter(), &plan, now);
        assert!(ended.is_some(), "the client has reserved it");
        let expected = model.complete(id.index, job.0, &puts, now).expect("no tube is full");
        let ids = puts.iter().zip(&plan).map(|(put, planned)| match planned {
            Planned::Duplicate { first, .. } => first.0,
            Planned::New | Planned::TubeFull => put.new.id.0,
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

    /// Lists the tube's jobs page by page, and compares them with the model's.
    fn list(&self, tube: &str, limit: usize) {
        let name = TubeName::parse(tube.as_bytes()).expect("the name is valid");
        for state in [JobState::Ready, JobState::Reserved, JobState::Delayed, JobState::Buried] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = if state == JobState::Reserved {
                    let mut search = Search::new(name.clone(), PageOrder::Deadline, after, limit);
                    while !self.queue.search_reserved(&mut search, 2) {}
                    Some(search.into_page()).filter(|_| self.queue.tube_name(tube).is_some())
                } else {
                    self.queue.page(tube, state, after, limit)
                };
                let Some(page) = page else {
                    assert_eq!(self.model.find(tube), None);
                    return;
                };
                assert!(page.jobs.len() <= limit && (page.jobs.len() == limit || page.next.is_none()));
                found.extend(page.jobs);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let place = self.model.find(tube).expect("the tube exists in the model, as it does in the queue");
            let expected = self.model.in_order(place, state).into_iter().map(|(_, id)| JobId(id));
            assert!(found.iter().copied().eq(expected), "{state:?} by {limit}: {found:?}");
        }
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

    fn compare(&mut self) {
        self.queue.check_invariants();
        let mut deliveries = Vec::new();
        assert_eq!(self.queue.has_deliveries(), !self.model.deliveries.is_empty());
        while let Some(delivery) = self.queue.poll_delivery() {
            deliveries.push((delivery.client.index, delivery.outcome));
        }
        assert_eq!(
            deliveries,
            std::mem::take(&mut self.model.deliveries),
            "the replies to clients that waited"
        );
        assert_eq!(self.queue.has_changes(), !self.model.changes.is_empty());
        let mut changes: Vec<Change> = Vec::new();
        self.queue.swap_changes(&mut changes);
        let ends = changes.iter().filter(|change| matches!(change, Change::DeletedWith(_)));
        let freed: Vec<_> = ends.map(|_| self.queue.next_freed_group().map(String::from)).collect();
        assert_eq!(freed, std::mem::take(&mut self.model.freed_groups), "the groups that are freed");
        assert_eq!(changes, std::mem::take(&mut self.model.changes), "the changes for the binlog");
        let (next, expected) = (self.queue.next_deadline(), self.model.next_deadline());
        assert!(
            expected.is_none_or(|at| next.is_some_and(|next| next <= at)),
            "the queue is asked no later than at the next deadline: {next:?}, {expected:?}"
        );
        self.compare_totals();
        self.compare_jobs();
        self.compare_tubes();
        self.compare_clients();
        self.compare_tags();
    }

    fn compare_tags(&self) {
        for name in ["g", "h"] {
            let group = self.queue.group(name).map(|group| (group.pending, group.buried, group.waiting));
            let members = self.model.members(name.into()).count() as u64;
            let is_buried = |job: &&Job| matches!(job.state, State::Buried { .. });
            let buried = self.model.members(name.into()).filter(is_buried).count() as u64;
            let waiting = self.model.waiting_for(name.into()).count() as u64;
            let is_known = members + waiting > 0 || self.model.ended_groups.contains(name);
            assert_eq!(group, is_known.then_some((members, buried, waiting)), "group {name}");
        }
        for cooldown in &self.model.cooldowns {
            let found =
                self.queue.cooldown(JobId(cooldown.id)).map(|(tube, key, until)| (tube.as_str(), key, until));
            let tube = self.model.tube(cooldown.tube).name.as_str();
            assert_eq!(found, Some((tube, cooldown.key.as_str(), cooldown.until)));
        }
    }

    fn compare_totals(&self) {
        let (queue, model) = (&self.queue, &self.model);
        assert_eq!(queue.figures().jobs, model.counts(None));
        assert_eq!(queue.figures().events, model.counters);
        assert_eq!(queue.figures().clients, model.clients.len());
        assert_eq!(queue.figures().sessions, model.sessions.len());
        assert_eq!(queue.figures().producers, model.clients_that(|client| client.producer));
        assert_eq!(queue.figures().workers, model.clients_that(|client| client.worker));
        assert_eq!(queue.figures().waiting, model.clients_that(|client| client.wait.is_some()));
    }

    fn compare_jobs(&self) {
        assert_eq!(self.queue.figures().jobs.total(), self.model.jobs.len());
        for expected in &self.model.jobs {
            let found = self.queue.job(JobId(expected.id)).expect("the queue has the job, as the model has");
            let record = found.record;
            let (state, deadline_at) = match expected.state {
                State::Ready => (JobState::Ready, Timestamp::default()),
                State::Buried { .. } => (JobState::Buried, Timestamp::default()),
                State::Delayed { until } => (JobState::Delayed, until),
                State::Reserved { until, .. } => (JobState::Reserved, until),
            };
            assert_eq!((record.id.0, record.state, record.deadline_at), (expected.id, state, deadline_at));
            assert_eq!(
                (record.priority.0, record.delay_s.whole()),
                (expected.priority, expected.delay_s.whole())
            );
            assert_eq!((record.ttr_s, record.created_at), (expected.ttr_s, expected.created_at));
            assert_eq!(record.counters, expected.counters);
            assert_eq!(found.failures(), self.model.failures(expected));
            assert_eq!(found.tube.as_str(), self.model.tube(expected.tube).name);
            assert_eq!(found.body.as_slice(), &*expected.body);
            assert_eq!((found.tags.unwrap_or_default(), found.is_held), (expected.tags, expected.held));
            assert_eq!(found.expires_at, self.model.expires_at(expected));
            let waits_for = self.model.waits_for(expected, self.now).join(" ");
            assert_eq!(self.queue.waits_for(record.id, self.now), waits_for);
            let session = self.model.session_of_job(expected);
            assert_eq!(self.queue.session_of_job(record.id).map(|key| &*key.name), session);
            for &id in &self.clients {
                assert_eq!(self.queue.holds(id, record.id), self.model.holds(id.index, expected.id));
            }
        }
    }

    fn compare_tubes(&self) {
        assert_eq!(self.queue.figures().tubes, self.model.listed.len());
        for (found, &place) in self.queue.tubes_from(0, self.now).zip(&self.model.listed) {
            let expected = self.model.tube(place);
            let (pause_until, pause_s) = expected.pause.unwrap_or_default();
            assert_eq!(found.name.as_str(), expected.name, "the order of the tubes");
            assert_eq!(found.jobs, self.model.counts(Some(place)));
            assert_eq!(
                (found.counters, found.pauses, found.pause_s),
                (expected.counters, expected.pauses, pause_s)
            );
            let rule = self.model.rule_of(place).map(|rule| &*rule.pattern);
            assert_eq!(found.rule.as_ref().map(|rule| &*rule.pattern), rule);
            assert_eq!((found.rejected, found.dead), (expected.rejected, expected.dead));
            assert_eq!(found.is_throttled, expected.is_closed, "{}", expected.name);
            assert_eq!(found.pause_left_s, pause_until.since_s(self.now));
            let using = self.model.clients_that(|client| client.using == place);
            let watching = self.model.clients_that(|client| client.watching.contains(&place));
            let waiting =
                self.model.clients_that(|client| client.watching.contains(&place) && client.wait.is_some());
            assert_eq!((u64::from(found.using), u64::from(found.watching)), (using, watching));
            assert_eq!(found.waiting as u64, waiting);
            self.compare_ages(&found, place);
            compare_times(found.wait(), self.model.waits(place, self.now));
            compare_times(found.run(), self.model.runs(place, self.now));
        }
    }

    fn compare_ages(&self, found: &TubeView, place: TubeIndex) {
        let oldest = |state| self.model.oldest(place, state);
        let age_s = |state| oldest(state).map_or(0, |job| self.now.since_s(job.created_at));
        assert_eq!(found.oldest_ready.map(|id| id.0), oldest(JobState::Ready).map(|job| job.id));
        assert_eq!(found.oldest_ready_age_s, age_s(JobState::Ready));
        assert_eq!(found.oldest_delayed_age_s, age_s(JobState::Delayed));
        assert_eq!(found.oldest_buried_age_s, age_s(JobState::Buried));
    }

    fn compare_clients(&self) {
        for &id in &self.clients {
            let expected = self.model.client(id.index);
            let using = expected.using;
            assert_eq!(self.queue.used_tube(id).as_str(), self.model.tube(using).name);
            let watched = self.queue.watched_tubes_from(id, 0).map(|name| name.as_str());
            let expected = expected.watching.iter().map(|&place| self.model.tube(place).name.as_str());
            assert!(watched.eq(expected), "the order of the watched tubes");
            assert_eq!(self.queue.peek(id, JobState::Ready).map(|id| id.0), self.model.first_ready(using));
            assert_eq!(self.queue.peek(id, JobState::Buried).map(|id| id.0), self.model.first_buried(using));
            let delayed = self.model.first_shown_as_delayed(using);
            assert_eq!(self.queue.peek(id, JobState::Delayed).map(|id| id.0), delayed);
        }
    }
}

fn compare_times(found: &Durations, expected: Times) {
    assert_eq!((found.count, found.mean_ns), (expected.count, expected.mean_ns));
    assert_eq!((found.max_ns, found.totals.iter().sum::<u64>()), (expected.max_ns, expected.total));
    let percentiles = [found.p50_ns, found.p95_ns, found.p99_ns];
    for (found, least) in percentiles.into_iter().zip(expected.percentiles_ns) {
        // The bounds of buckets are exact to a millionth. Durations below the first bound share one bucket; those above
        // the last bound, 4,096 seconds, share another one, which stands for its longest duration.
        let most = if least > 4_096 * NS_PER_S {
            expected.max_ns
        } else {
            least.saturating_add(least / 4 + 1).max(244_141)
        };
        assert!(found >= least - least / 1_000_000 && found <= most, "{found} for {least}");
    }
}

/// Flushes the tube in the smallest possible slices.
fn flush(queue: &mut Queue, client: ClientId, tube: &str, only_buried: bool, now: Timestamp) -> u64 {
    let flushed = if only_buried { Flushed::Buried } else { Flushed::All };
    if queue.begin_flush(client, tube, flushed, now) == BeginFlush::NoTube {
        return 0;
    }
    let (mut count, mut is_done) = (0, false);
    while !is_done {
        match queue.next_to_flush(client, &mut 1) {
            FlushStep::Job(job) => {
                queue.flush_job(job, now);
                count += 1;
            }
            FlushStep::Cooldown(job) => queue.end_cooldown(job),
            FlushStep::Unfinished => queue.check_invariants(),
            FlushStep::Done => {
                queue.end_flush(client, now);
                is_done = true;
            }
        }
        while queue.next_deadline() == Some(Timestamp::default()) {
            queue.advance(now);
        }
    }
    count
}

/// Applies the effects of a duplicate; returns its reply.
fn upgrade(queue: &mut Queue, duplicate: Duplicate, priority: Priority, now: Timestamp) -> String {
    match duplicate {
        Duplicate::OfDeleted(first) => format!("{} deleted", first.0),
        Duplicate::Of(first, state) if queue.would_upgrade(first, priority) => {
            queue.upgrade(first, priority, now);
            format!("{} {} {}", first.0, state.as_str(), priority.0)
        }
        Duplicate::Of(first, state) => format!("{} {}", first.0, state.as_str()),
    }
}

fn shown(duplicate: &model::Duplicate) -> String {
    match *duplicate {
        model::Duplicate::OfDeleted(first) => format!("{first} deleted"),
        model::Duplicate::Of(first, state, priority) => {
            let state = match state {
                State::Ready => JobState::Ready,
                State::Reserved { .. } => JobState::Reserved,
                State::Delayed { .. } => JobState::Delayed,
                State::Buried { .. } => JobState::Buried,
            };
            let priority = priority.map(|priority| format!(" {priority}")).unwrap_or_default();
            format!("{first} {}{priority}", state.as_str())
        }
    }
}

/// The job id that a raw number chooses; such a job need not exist.
pub(crate) fn job_of(raw: u64, model: &Model) -> JobId {
    JobId(raw % (model.next_id + 1))
}

/// Removes steps while `fails` still holds without them.
pub fn shorten(mut operations: Vec<Operation>, fails: impl Fn(&[Operation]) -> bool) -> Vec<Operation> {
    let mut piece = operations.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let before = operations.len();
        while from < operations.len() {
            let mut shorter = operations.clone();
            shorter.drain(from..(from + piece).min(operations.len()));
            if fails(&shorter) {
                operations = shorter;
            } else {
                from += piece;
            }
        }
        if piece == 1 && operations.len() == before {
            return operations;
        }
        piece = (piece / 2).max(1);
    }
}

/// The steps, one in each line.
pub fn listing(operations: &[Operation]) -> String {
    operations.iter().fold(String::new(), |mut text, operation| {
        writeln!(text, "  {operation:?}").expect("a string takes all text");
        text
    })
}
