//! The commands with which clients release jobs: `release` and `bury`.
//!
//! Owns: the destination of a released job. A rule decides first, if the job is too old or has failed too often; then
//! the limits of the server; otherwise the client.

use crate::clock::Timestamp;
use crate::job::{Counting, JobId, JobState, Priority};
use crate::rules::ages::AgeCheck;
use crate::rules::retries::AfterFailure;
use crate::seconds::Seconds;
use crate::state::jobs::Marks;
use crate::{Change, ClientId, Queue};

/// How a job is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// New priority of the job.
    pub priority: Priority,
    /// Time until it becomes ready.
    pub delay_s: Seconds,
    /// Whether the release counts, and the limit of releases applies.
    pub counting: Counting,
}

/// The destination of a released job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The ready or the delayed jobs, as requested; or a rule has sent it to the dead tube or deleted it.
    Queued,
    /// The buried jobs: it has reached the limit of releases.
    Buried,
}

impl Queue {
    /// Whether the client has reserved this job.
    #[must_use]
    pub fn has_reserved(&self, client: ClientId, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| self.is_reserved_by(self.jobs.history(job).holder, client))
    }

    /// The command `release`, by the client that has reserved the job.
    pub fn release(&mut self, client: ClientId, id: JobId, release: Release, now: Timestamp) -> Released {
        let Release { priority, delay_s, counting } = release;
        assert!(self.has_reserved(client, id), "only the client that has reserved a job releases it");
        self.unlink(id);
        let (job, history) = self.jobs.expect_with_history(id);
        job.priority = Self::given_priority(job, priority);
        job.delay_s = delay_s.whole();
        let marks = job.marks;
        let tube = job.tube;
        let (is_poisoned, rule) = match counting {
            Counting::Uncounted => (false, AfterFailure::NoRule),
            Counting::Counted => {
                history.counters.releases = history.counters.releases.saturating_add(1);
                let releases = history.counters.releases;
                self.count(tube, |counters| &mut counters.releases);
                let is_limit = self.limits.releases.is_some_and(|limit| releases >= limit);
                (is_limit && !self.has_own_attempts(id), self.after_failure(id, delay_s > 0))
            }
        };
        self.note(Change::Updated(id));
        let age = if marks.intersects(Marks::RULED) { self.check_age(id, now) } else { AgeCheck::InTime };
        let delay_s = if let AfterFailure::Delayed(backoff_s) = rule { backoff_s.into() } else { delay_s };
        let mut released = Released::Queued;
        if age == AgeCheck::Removed {
            self.serve_waiting(Some(client), now);
            self.remove_tube_if_idle(tube);
            debug_assert!(!self.has_reserved(client, id), "the client has no longer reserved the job");
            return released;
        }
        if rule == AfterFailure::Dead && age == AgeCheck::InTime {
            released = self.send_to_dead_tube_or_bury(id, now);
        } else if is_poisoned || age == AgeCheck::MustBeBuried {
            self.bury_poisoned(id);
            released = Released::Buried;
        } else if delay_s.is_zero() {
            self.make_ready(id, now);
        } else {
            self.jobs.expect_mut(id).delay_s = delay_s.whole();
            let until = self.end_of_delay(delay_s, now);
            self.delay(id, until);
        }
        if !marks.is_empty() {
            self.serve_waiting(Some(client), now);
        }
        debug_assert!(!self.has_reserved(client, id), "the client has no longer reserved the job");
        debug_assert!(self.is_linked(id), "a job that was given back is in a collection");
        debug_assert!(released == Released::Queued || self.is_linked_as(id, JobState::Buried));
        self.remove_tube_if_idle(tube);
        released
    }

    /// The command `bury`, by the client that has reserved the job.
    pub fn bury(&mut self, client: ClientId, id: JobId, priority: Priority, now: Timestamp) {
        assert!(self.has_reserved(client, id), "only the client that has reserved a job buries it");
        self.unlink(id);
        let (job, history) = self.jobs.expect_with_history(id);
        job.priority = Self::given_priority(job, priority);
        let marks = job.marks;
        history.counters.buries = history.counters.buries.saturating_add(1);
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.buries);
        self.note(Change::Updated(id));
        if !marks.intersects(Marks::RULED) || self.check_age(id, now) != AgeCheck::Removed {
            self.make_buried(id);
        }
        if !marks.is_empty() {
            self.serve_waiting(Some(client), now);
            self.remove_tube_if_idle(tube);
        }
        debug_assert!(!self.has_reserved(client, id), "the client has no longer reserved the job");
    }

    /// Sends a job, which is in no collection, to the dead tube of its tube, or buries it in its own.
    pub(super) fn send_to_dead_tube_or_bury(&mut self, id: JobId, now: Timestamp) -> Released {
        debug_assert!(!self.is_linked(id), "a job that dies was taken out of its collection");
        if self.send_to_dead_tube(id, now) {
            return Released::Queued;
        }
        self.bury_poisoned(id);
        Released::Buried
    }
}
