//! `kick`: buried and delayed jobs become ready.
//!
//! Owns: which jobs can be kicked, and which is next. The server limits their number.

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::state::jobs::Marks;
use crate::{Change, ClientId, Queue};

impl Queue {
    /// The job that `kick` would take next from the client's tube: the oldest buried job or, if no job was buried at
    /// the start of the command (`state`), the delayed job that is due first.
    #[must_use]
    pub fn next_to_kick(&self, client: ClientId, state: JobState) -> Option<JobId> {
        match state {
            JobState::Buried => self.peek(client, state),
            JobState::Delayed => self.first_to_kick(client),
            JobState::Ready | JobState::Reserved => None,
        }
    }

    /// Whether a kick would move this job.
    #[must_use]
    pub fn is_kickable(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| {
            matches!(job.state(), JobState::Buried | JobState::Delayed) && !job.has(Marks::HELD)
        })
    }

    /// Makes a buried or delayed job ready. Returns false if the time of the job was over, which has ended it instead.
    #[must_use]
    pub fn kick(&mut self, id: JobId, now: Timestamp) -> bool {
        assert!(self.is_kickable(id), "only buried and delayed jobs are kicked");
        if self.end_overdue_and_serve(id, now) {
            return false;
        }
        let before = in_debug(|| self.counted_with(id));
        self.unlink(id);
        let (job, history) = self.jobs.expect_with_history(id);
        history.counters.kicks = history.counters.kicks.saturating_add(1);
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.kicks);
        self.note(Change::Updated(id));
        self.make_ready(id, now);
        debug_assert!(
            self.is_linked_as_offered(id),
            "a kicked job is ready, or reserved by a client that waited"
        );
        debug_assert!(self.has_gained(before, tube, 0), "the number of jobs stays the same");
        true
    }
}
