//! Jobs end: `delete`.

use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState};
use crate::rules::Ending;
use crate::state::keys::TubeKey;
use crate::{Change, ClientId, Queue};

impl Queue {
    /// The command `delete`. Returns the job's body if the job exists and no other client has reserved it.
    #[inline(always)]
    pub fn delete(&mut self, client: ClientId, id: JobId, now: Timestamp) -> Option<Body> {
        let job = self.jobs.get(id)?;
        let is_reserved = job.place().state() == JobState::Reserved;
        if is_reserved && !self.is_held_by(self.jobs.history(job).holder, client) {
            return None;
        }
        let (tube, link) = (job.tube, job.link());
        let since = self.unlink_from(id, link);
        let body = if link.marks == 0 {
            self.remove(id, tube)
        } else {
            self.remove_tagged(id, tube, Ending::Deleted, now)
        };
        if let Some(since) = since
            && let Some(times) = self.tubes.times(tube, now)
        {
            times.observe_run(now.since_ns(since), now);
        }
        if link.marks != 0 {
            self.settle(Some(client), now);
        }
        self.remove_tube_if_idle(tube);
        Some(body)
    }

    /// Ends a job of this tube that is in no queue, and returns its body; the caller looks whether the tube is to end,
    /// too.
    #[inline]
    pub(crate) fn remove(&mut self, id: JobId, tube: TubeKey) -> Body {
        debug_assert!(!self.is_linked(id));
        let job = self.jobs.remove(id).expect("what a queue held is there");
        self.count(tube, |counters| &mut counters.deletes);
        self.note(Change::Deleted(id));
        job.body
    }
}
