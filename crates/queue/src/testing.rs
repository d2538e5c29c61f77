//! What the unit tests share: jobs to put, their tags, rules that are in force at once, a queue that is changed at
//! random, and counters of steps.
//!
//! Owns: the job that a test puts unless the test says otherwise, the end of work that goes on in slices, and the
//! operations that interrupt work in slices. Compiled for the tests of this crate only.

use std::collections::BTreeSet;

use beanstalkd_types::random::Generator;

use crate::clock::{NS_PER_S, Timestamp};
use crate::job::{Body, Counting, JobId, JobState, Priority};
use crate::tags::{Concurrency, EncodedTags, JobTags, Name, TagSet};
use crate::{BeginSession, ClientId, NewJob, Queue, Release, Reserve, SessionKey, TubeRule};

/// The instant at which tests begin.
pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

/// The tag `con` with this key and limit.
pub(crate) fn con(key: &str, limit: u32) -> TagSet<'_> {
    TagSet { concurrency: Some(Concurrency { key: key.try_into().unwrap(), limit }), ..TagSet::default() }
}

/// A job to be put.
#[derive(Clone, Copy)]
pub(crate) struct TestJob<'a> {
    pub(crate) priority: u32,
    pub(crate) delay_s: u32,
    pub(crate) ttr_s: u32,
    pub(crate) body: &'a [u8],
    pub(crate) tags: TagSet<'a>,
    pub(crate) owner: Option<Name<'a>>,
}

impl Default for TestJob<'_> {
    fn default() -> Self {
        Self { priority: 0, delay_s: 0, ttr_s: 100, body: b"x", tags: TagSet::NONE, owner: None }
    }
}

impl TestJob<'_> {
    /// The job of a `put` with this id.
    pub(crate) fn with_id(self, id: JobId) -> NewJob {
        let Self { priority, delay_s, ttr_s, .. } = self;
        NewJob { id, priority: Priority(priority), delay_s: delay_s.into(), ttr_s: ttr_s.into() }
    }

    /// Puts the job into the tube that the client uses.
    pub(crate) fn put(self, queue: &mut Queue, client: ClientId, now: Timestamp) -> JobId {
        let id = queue.allocate_id();
        self.put_as(id, queue, client, now);
        id
    }

    /// Puts the job with an id that was assigned before.
    pub(crate) fn put_as(self, id: JobId, queue: &mut Queue, client: ClientId, now: Timestamp) {
        let (new, body) = (self.with_id(id), Body::copy_of(self.body).unwrap());
        let tags = JobTags { owner: self.owner, ..self.tags.into() };
        if tags.is_empty() {
            queue.put(client, new, body, now);
        } else {
            let mut bytes = Vec::new();
            tags.encode(&mut bytes).unwrap();
            queue.put_tagged(client, None, new, body, &EncodedTags::of(&bytes, tags), now).unwrap();
        }
    }
}

impl Queue {
    /// Puts rules in force, including all slices of the reload.
    pub(crate) fn apply_rules(&mut self, rules: Vec<TubeRule>, now: Timestamp) {
        self.set_tube_rules(rules, now);
        self.finish_slices(now);
    }

    /// Does all work that goes on in slices and waits for no instant.
    pub(crate) fn finish_slices(&mut self, now: Timestamp) {
        while self.next_deadline() == Some(Timestamp::AT_ONCE) {
            self.advance(now);
        }
    }
}

/// What [`Busy`] does at random. A new operation of the queue becomes a variant, with a row in `WEIGHTS` and an arm in
/// `Busy::change`; then every test with a `Busy` does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Put,
    /// Takes an id for a later put.
    Announce,
    PutAnnounced,
    Reserve,
    ReserveJob,
    Release,
    Bury,
    /// Buries a job that nobody had reserved.
    ReserveAndBury,
    Kick,
    Move,
    Advance,
    Reconnect,
    BeginSession,
    Delete,
}

/// How often each operation is chosen, relative to the others.
const WEIGHTS: [(Operation, u64); 14] = [
    (Operation::Put, 12),
    (Operation::Announce, 4),
    (Operation::PutAnnounced, 4),
    (Operation::Reserve, 8),
    (Operation::ReserveJob, 4),
    (Operation::Release, 4),
    (Operation::Bury, 4),
    (Operation::ReserveAndBury, 4),
    (Operation::Kick, 4),
    (Operation::Move, 4),
    (Operation::Advance, 4),
    (Operation::Reconnect, 1),
    (Operation::BeginSession, 1),
    (Operation::Delete, 4),
];

/// A queue with a few clients, whose jobs in the tubes "t" and "other" are changed at random.
pub(crate) struct Busy {
    pub(crate) queue: Queue,
    pub(crate) now: Timestamp,
    /// Jobs that have moved to the tube "t" from the other one.
    pub(crate) came: BTreeSet<JobId>,
    clients: Vec<ClientId>,
    weights: [(Operation, u64); 14],
    random: Generator,
    /// Ids that were taken, but whose jobs have not been put yet.
    announced: Vec<JobId>,
}

impl Busy {
    pub(crate) fn new(seed: u64) -> Self {
        let mut queue = Queue::default();
        let clients: Vec<_> = (0..4).map(|_| queue.connect()).collect();
        for &client in &clients {
            queue.watch(client, "t");
        }
        let (announced, came) = (Vec::new(), BTreeSet::new());
        let random = Generator::new(seed);
        Self { queue, now: NOW, came, clients, weights: WEIGHTS, random, announced }
    }

    /// Chooses the operation this often from now on.
    pub(crate) fn set_weight(&mut self, operation: Operation, weight: u64) {
        let row = self.weights.iter_mut().find(|(other, _)| *other == operation);
        row.expect("each operation has a row").1 = weight;
    }

    pub(crate) fn random(&mut self, below: u64) -> u64 {
        self.random.draw() % below
    }

    /// Puts a random job into the tube that the client uses.
    pub(crate) fn put(&mut self, client: ClientId, id: JobId) {
        let (priority, delay_s) = (self.random(3) as u32, self.random(3) as u32);
        let job = TestJob { priority, delay_s, ttr_s: 1 + self.random(3) as u32, ..TestJob::default() };
        job.put_as(id, &mut self.queue, client, self.now);
    }

    /// Does a random operation of a random client with a random job, if the job's state permits it.
    pub(crate) fn change(&mut self) {
        let index = self.random(self.clients.len() as u64) as usize;
        let client = self.clients[index];
        if self.queue.client(client).wait().is_some() {
            self.queue.stop_waiting(client);
        }
        let id = JobId(1 + self.random(self.queue.numbers.next_id));
        let (has_reserved, now) = (self.queue.has_reserved(client, id), self.now);
        match self.operation() {
            Operation::Put => {
                let id = self.queue.allocate_id();
                self.put_into_some_tube(client, id);
            }
            Operation::Announce => self.announced.push(self.queue.allocate_id()),
            Operation::PutAnnounced => {
                if !self.announced.is_empty() {
                    let id = self.announced.remove(0);
                    self.put_into_some_tube(client, id);
                }
            }
            Operation::Reserve => assert_ne!(self.queue.reserve(client, None, now), Reserve::Unfinished),
            Operation::ReserveJob => drop(self.queue.reserve_job(client, id, now)),
            Operation::Release => {
                if has_reserved {
                    let delay_s = self.random(3) as u32;
                    let counting = Counting::Counted;
                    let release = Release { priority: Priority(1), delay_s: delay_s.into(), counting };
                    self.queue.release(client, id, release, now);
                }
            }
            Operation::Bury => {
                if has_reserved {
                    self.queue.bury(client, id, Priority(2), now);
                }
            }
            Operation::ReserveAndBury => {
                if self.queue.reserve_job(client, id, now) {
                    self.queue.bury(client, id, Priority(2), now);
                }
            }
            Operation::Kick => {
                if self.queue.is_kickable(id) {
                    assert!(self.queue.kick(id, now));
                }
            }
            Operation::Move => self.move_job(client, id),
            Operation::Advance => {
                self.now = now + self.random(3) * NS_PER_S;
                self.queue.advance(self.now);
            }
            Operation::Reconnect => self.reconnect(client),
            Operation::BeginSession => self.begin_session(client),
            Operation::Delete => drop(self.queue.delete(client, id, now)),
        }
        while self.queue.poll_delivery().is_some() {}
    }

    fn reconnect(&mut self, client: ClientId) {
        // So clients come and go at all indexes.
        let next = self.queue.connect();
        self.queue.disconnect(client, self.now);
        self.queue.watch(next, "t");
        let known = self.clients.iter_mut().find(|known| **known == client);
        *known.expect("only these clients have sessions") = next;
    }

    /// Attaches the client to one of a few sessions, to which its reservations go; they may be another client's.
    fn begin_session(&mut self, client: ClientId) {
        let name = ["a", "b", "c"][self.random(3) as usize];
        let key = SessionKey { identity: "".into(), name: name.into() };
        let begun = self.queue.begin_session(client, &key, 1000).unwrap();
        if let BeginSession::Attached { taken_from, mut joining } = begun {
            if let Some(before) = taken_from {
                self.reconnect(before);
            }
            while !self.queue.join_session(client, &mut joining, &mut 1) {}
        }
    }

    fn operation(&mut self) -> Operation {
        let sum = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random(sum);
        let chosen = self.weights.iter().find(|(_, weight)| {
            let is_chosen = left < *weight;
            left = left.saturating_sub(*weight);
            is_chosen
        });
        chosen.expect("the number is below the sum").0
    }

    fn put_into_some_tube(&mut self, client: ClientId, id: JobId) {
        let tube = if self.random(4) == 0 { "other" } else { "t" };
        self.queue.use_tube(client, tube);
        self.put(client, id);
    }

    fn move_job(&mut self, client: ClientId, id: JobId) {
        if self.queue.is_movable(client, id) {
            let tube = if self.random(3) == 0 { "other" } else { "t" };
            if self.queue.job(id).is_some_and(|job| job.tube.as_str() != tube) && tube == "t" {
                self.came.insert(id);
            }
            assert!(self.queue.move_job(id, tube, self.now));
        }
    }

    /// The jobs in the tube "t", or those of them in this state.
    pub(crate) fn in_tube(&self, state: Option<JobState>) -> BTreeSet<JobId> {
        let is_in = |id: &JobId| {
            self.queue.job(*id).is_some_and(|job| {
                job.tube.as_str() == "t" && state.is_none_or(|state| state == job.record.state)
            })
        };
        self.queue.jobs.ids().filter(is_in).collect()
    }
}

/// The steps that tests count instead of time: work on the indexes of tags and on rules for tubes.
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
        static PROBES: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts a comparison of two keys in an index, or of a name with a pattern.
    pub(crate) fn note() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Counts a job that was examined because an index has it.
    pub(crate) fn note_probe() {
        PROBES.set(PROBES.get() + 1);
    }

    /// All steps of this thread so far.
    pub(crate) fn all() -> u64 {
        STEPS.get() + PROBES.get()
    }

    /// The examined jobs among them.
    pub(crate) fn probes() -> u64 {
        PROBES.get()
    }
}
