//! What the unit tests share: jobs to put, their tags, rules that are in force at once, and counters of steps.
//!
//! Owns: the job that a test puts unless the test says otherwise, and the end of work that goes on in slices. Compiled
//! for the tests of this crate only.

use crate::clock::{NS_PER_S, Timestamp};
use crate::job::{Body, JobId, Priority};
use crate::tags::{Concurrency, EncodedTags, JobTags, Name, TagSet};
use crate::{ClientId, NewJob, Queue, TubeRule};

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
