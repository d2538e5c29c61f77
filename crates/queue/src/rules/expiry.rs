//! The tag `exp`: a job that no client has reserved in time is deleted.
//!
//! Owns: when each such job expires. The first reservation ends that permanently.

use beanstalkd_structures::{OrderedQueue, Timer};

use super::{JobEnd, MarkedJob, Rule, Rules};
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::{Body, JobId};
use crate::state::jobs::Marks;
use crate::state::keys::DueKey;

/// The jobs that expire.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// By the instant.
    jobs: OrderedQueue<DueKey>,
    /// The large bodies of jobs that have expired: replies may still hold them.
    bodies: Vec<Body>,
}

impl Expiry {
    /// Whether no job can expire.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Keeps the body of a job that has expired, if replies may hold it.
    pub(crate) fn keep_body(&mut self, body: Body) {
        if body.watch().is_some() {
            self.bodies.push(body);
        }
    }

    /// Removes the expiry of the job, if it has one.
    fn forget(&mut self, job: &MarkedJob<'_>) {
        if let Some(at) = expires_at(job) {
            let found = self.jobs.remove((at, job.id));
            assert!(found.is_some(), "each job that can expire has a timer");
        }
    }
}

/// When the job expires unless a client reserves it before.
fn expires_at(job: &MarkedJob<'_>) -> Option<Timestamp> {
    Some(job.created_at.plus_seconds(job.tags.expires_after_s?))
}

impl Rule for Expiry {
    const ADDED: Marks = Marks::TAGGED;
    fn added(queue: &mut Queue, job: &MarkedJob<'_>) {
        let Some(seconds) = job.tags.expires_after_s else { return };
        let record = queue.jobs.expect(job.id);
        if queue.jobs.history(record).counters.reserves == 0 {
            queue.jobs.expect_mut(job.id).marks |= Marks::EXPIRES;
            queue.rules.expiry.jobs.insert((job.created_at.plus_seconds(seconds), job.id));
            queue.schedule(Timer::Rules);
        }
    }

    const RESERVED: Marks = Marks::EXPIRES;
    fn reserved(queue: &mut Queue, job: &MarkedJob<'_>) {
        queue.rules.expiry.forget(job);
        queue.jobs.expect_mut(job.id).marks &= !Marks::EXPIRES;
    }

    const ENDED: Marks = Marks::EXPIRES;
    fn ended(queue: &mut Queue, job: &MarkedJob<'_>, _end: &mut JobEnd) {
        queue.rules.expiry.forget(job);
    }

    fn next_due(rules: &Rules) -> Option<DueKey> {
        rules.expiry.jobs.first()
    }

    /// The job has expired.
    fn tick(_queue: &mut Queue, _id: JobId) -> bool {
        true
    }

    #[inline]
    fn check(queue: &Queue) {
        let expiring = queue.jobs.ids().filter_map(|id| Some((queue.expires_at(id)?, id)));
        let mut expiring: Vec<_> = expiring.collect();
        expiring.sort_unstable();
        assert!(
            queue.rules.expiry.jobs.iter().eq(expiring),
            "a job has a timer if and only if it can expire"
        );
    }
}

impl Queue {
    /// When the job expires unless a client reserves it before.
    pub(crate) fn expires_at(&self, id: JobId) -> Option<Timestamp> {
        let job = self.jobs.get(id).filter(|job| job.has(Marks::EXPIRES))?;
        expires_at(&MarkedJob::new(id, job, &self.tags(id)?))
    }

    /// Lets the job, which is in no collection, expire again if no client has reserved it: its first reservation was
    /// undone. Returns whether its time is over.
    pub(crate) fn expires_again(&mut self, id: JobId, now: Timestamp) -> bool {
        debug_assert!(!self.is_linked(id), "the job was taken out of its collection");
        if !self.jobs.expect(id).has(Marks::TAGGED) {
            return false;
        }
        self.with_tags(id, Expiry::added);
        self.has_expired(id, now)
    }

    /// Whether the job has expired, and has not been deleted yet.
    pub(crate) fn has_expired(&self, id: JobId, now: Timestamp) -> bool {
        self.expires_at(id).is_some_and(|at| at <= now)
    }

    /// The large body of a job that has expired: replies may still hold it. Each is returned once.
    #[inline]
    pub fn next_expired_body(&mut self) -> Option<Body> {
        self.rules.expiry.bodies.pop()
    }
}
