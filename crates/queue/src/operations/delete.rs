//! Jobs end: `delete`.

use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState};
use crate::rules::Ending;
use crate::state::jobs::{Link, marks};
use crate::{Change, ClientId, Queue};

impl Queue {
    /// The command `delete`. Returns the job's body if the job exists and no other client has reserved it.
    #[inline(always)]
    pub fn delete(&mut self, client: ClientId, id: JobId, now: Timestamp) -> Option<Body> {
        self.delete_with(client, id, Ending::Deleted, now)
    }

    /// As `delete`, for a job whose end is `ending`.
    #[inline(always)]
    pub(crate) fn delete_with(
        &mut self,
        client: ClientId,
        id: JobId,
        ending: Ending,
        now: Timestamp,
    ) -> Option<Body> {
        let job = self.jobs.get(id)?;
        let is_reserved = job.place().state() == JobState::Reserved;
        if is_reserved && !self.is_held_by(self.jobs.history(job).holder, client) {
            return None;
        }
        let (tube, link) = (job.tube, job.link());
        let (since, body) = self.end(id, link, ending, now);
        if let Some(since) = since
            && let Some(times) = self.tubes.times(tube, now)
        {
            times.observe_run(now.since_ns(since), now);
        }
        // A job without tags can open the gate of its tube, and nothing else.
        let opens = || !self.rules.tubes.to_open.is_empty();
        if link.marks != 0 && (link.marks & !marks::RULED != 0 || opens()) {
            self.settle(Some(client), now);
        }
        self.remove_tube_if_idle(tube);
        Some(body)
    }

    /// Ends a job that has been looked up. Returns since when it was reserved, if it was, and its body; the caller
    /// looks whether the tube is to end, too.
    #[inline(always)]
    pub(crate) fn end(
        &mut self,
        id: JobId,
        link: Link,
        ending: Ending,
        now: Timestamp,
    ) -> (Option<Timestamp>, Body) {
        debug_assert!(self.is_linked(id));
        if link.marks & !marks::RULED != 0 {
            return self.end_tagged(id, link, ending, now);
        }
        let since = self.unlink_plain(id, link);
        let job = self.jobs.remove(id).expect("what a queue held is there");
        if link.marks != 0 {
            // Of a job without tags, a rule for its tube knows this alone.
            self.uncount(link.tube, job.body().len());
        }
        self.count(link.tube, |counters| &mut counters.deletes);
        self.note(Change::Deleted(id));
        (since, job.body)
    }
}
