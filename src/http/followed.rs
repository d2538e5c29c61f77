//! A request that waits for the end of a job.
//!
//! Owns: when it is answered. The server checks it in each turn, after all commands: looking up one job costs less than
//! a notification would.

use super::request::Method;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::queue::Queue;

/// The request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    /// The job.
    pub job: JobId,
    /// How often it had been buried when the request came.
    buries: u32,
    /// The method of the request.
    pub method: Method,
    /// The instant at which it is answered at the latest.
    pub until: Timestamp,
    /// Whether the answer is due.
    pub is_over: bool,
}

impl Followed {
    /// A request that came now for this job.
    pub(crate) fn new(job: JobId, method: Method, until: Timestamp, queue: &Queue) -> Self {
        let buries = queue.job(job).map_or(0, |job| job.record.counters.buries);
        Self { job, buries, method, until, is_over: false }
    }

    /// Checks whether the job is deleted, or is or was buried, or the client has closed its side.
    pub(crate) fn check(&mut self, queue: &Queue, has_left: bool, now: Timestamp) {
        let is_pending = queue.job(self.job).is_some_and(|job| {
            job.record.state != JobState::Buried && job.record.counters.buries == self.buries
        });
        self.is_over |= !is_pending || has_left || now >= self.until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Body, Priority};
    use crate::queue::NewJob;

    const NOW: Timestamp = Timestamp(1);

    #[test]
    fn a_burial_ends_it_even_if_the_job_is_kicked_in_the_same_turn() {
        let mut queue = Queue::default();
        let client = queue.connect();
        let id = queue.allocate_id();
        let new = NewJob { id, priority: Priority(0), delay_s: 0.into(), ttr_s: 60.into() };
        queue.put(client, new, Body::copy_of(b"x").unwrap(), NOW);
        let mut followed = Followed::new(id, Method::Get, NOW.plus_seconds(60), &queue);
        assert!(queue.reserve_job(client, id, NOW));
        followed.check(&queue, false, NOW);
        assert!(!followed.is_over, "a reservation does not end it");
        queue.bury(client, id, Priority(0), NOW);
        assert!(queue.kick(id, NOW));
        followed.check(&queue, false, NOW);
        assert!(followed.is_over);
    }
}
