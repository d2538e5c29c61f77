//! The end of jobs: `delete`.
//!
//! Owns: the end of a job without tags, which calls no rule; `end` is also the end of a flushed job.

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState};
use crate::rules::{Ending, calls_rules_at_end};
use crate::state::jobs::Link;
use crate::{Change, ClientId, Queue};

impl Queue {
    /// The command `delete`. Returns the job's body if the job exists and no other client has reserved it.
    #[inline(always)]
    pub fn delete(&mut self, client: ClientId, id: JobId, now: Timestamp) -> Option<Body> {
        self.delete_with(client, id, Ending::Deleted, now)
    }

    /// Deletes a job and records how it ended.
    #[inline(always)]
    pub(super) fn delete_with(
        &mut self,
        client: ClientId,
        id: JobId,
        ending: Ending,
        now: Timestamp,
    ) -> Option<Body> {
        let job = self.jobs.get(id)?;
        let is_reserved = job.state() == JobState::Reserved;
        if is_reserved && !self.is_reserved_by(self.jobs.history(job).holder, client) {
            return None;
        }
        let (tube, link) = (job.tube, job.link());
        let (since, body) = self.end(id, link, ending, now);
        if let Some(since) = since
            && let Some(times) = self.tubes.times_mut(tube, now)
        {
            times.observe_run(now.since_ns(since), now);
        }
        // Without a call of the rules, the end of the job can only open the gate of its tube.
        let opens = || !self.rules.tubes.to_open.is_empty();
        if !link.marks.is_empty() && (calls_rules_at_end(link.marks) || opens()) {
            self.serve_waiting(Some(client), now);
        }
        self.remove_tube_if_idle(tube);
        Some(body)
    }

    /// Ends a job that has been looked up. Returns since when it was reserved, if it was, and its body; the caller
    /// checks whether the tube must end, too.
    #[inline(always)]
    pub(super) fn end(
        &mut self,
        id: JobId,
        link: Link,
        ending: Ending,
        now: Timestamp,
    ) -> (Option<Timestamp>, Body) {
        debug_assert!(
            self.is_linked_as(id, link.collection.state()),
            "the job is in the collection that its link names"
        );
        if calls_rules_at_end(link.marks) {
            return self.end_marked(id, link, ending, now);
        }
        let before = in_debug(|| self.counted(link.tube));
        let since = self.unlink_plain(id, link);
        let job = self.jobs.remove(id).expect("the queue has this job");
        if !link.marks.is_empty() {
            // For a job without tags, a rule of its tube knows only this.
            self.uncount(link.tube, job.body().len());
        }
        self.count(link.tube, |counters| &mut counters.deletes);
        self.note(Change::Deleted(id));
        let after = in_debug(|| before.less(link.collection.state(), link.priority));
        debug_assert_eq!(self.counted(link.tube), after, "one job less is counted");
        (since, job.body)
    }
}
