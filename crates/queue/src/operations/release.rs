//! The commands with which clients release jobs: `release` and `bury`.
//!
//! Owns: what a release and a burial change of the job. `rules/retries.rs` decides the next state of a released job.

use crate::clock::Timestamp;
use crate::job::{Counting, JobId, JobState, Priority};
use crate::rules::retries::{AttemptEnd, NextState};
use crate::seconds::Seconds;
use crate::state::jobs::Marks;
use crate::{Change, ClientId, Queue};

/// How a job is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct Release {
    pub priority: Priority,
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
        let (tube, marks) = (job.tube, job.marks);
        let end = match counting {
            Counting::Uncounted => AttemptEnd::Uncounted,
            Counting::Counted => {
                history.counters.releases = history.counters.releases.saturating_add(1);
                let releases = history.counters.releases;
                self.count(tube, |counters| &mut counters.releases);
                AttemptEnd::failed(releases, self.limits.releases)
            }
        };
        self.note(Change::Updated(id));
        let next = self.next_state(id, (tube, marks), end, delay_s, now);
        let released = self.enter(id, next, now);
        if !marks.is_empty() {
            self.serve_waiting(Some(client), now);
        }
        debug_assert!(!self.has_reserved(client, id), "the client has no longer reserved the job");
        debug_assert!(next == NextState::TooOld || self.is_linked(id), "the job is in a collection");
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
        let is_too_old = marks.intersects(Marks::RULED) && self.ages_again(id, now);
        if !(is_too_old && self.remove_too_old(id, now)) {
            self.make_buried(id);
        }
        if !marks.is_empty() {
            self.serve_waiting(Some(client), now);
            self.remove_tube_if_idle(tube);
        }
        debug_assert!(!self.has_reserved(client, id), "the client has no longer reserved the job");
    }

    /// Puts a job, which is in no collection, into this state. The caller serves waiting clients, and removes the tube
    /// of the job if it is idle.
    #[inline(always)]
    pub(super) fn enter(&mut self, id: JobId, next: NextState, now: Timestamp) -> Released {
        debug_assert!(!self.is_linked(id), "the job was taken out of its collection");
        match next {
            NextState::Ready => self.make_ready(id, now),
            NextState::Delayed(delay_s) => {
                self.jobs.expect_mut(id).delay_s = delay_s.whole();
                let until = self.end_of_delay(delay_s, now);
                self.delay(id, until);
            }
            NextState::TooOld if self.remove_too_old(id, now) => {}
            NextState::Dead if self.send_to_dead_tube(id, now) => {}
            NextState::TooOld | NextState::Dead | NextState::Buried => {
                self.bury_poisoned(id);
                return Released::Buried;
            }
        }
        Released::Queued
    }
}
