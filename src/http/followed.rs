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
    /// The method of the request.
    pub method: Method,
    /// The instant at which it is answered at the latest.
    pub until: Timestamp,
    /// Whether the answer is due.
    pub is_over: bool,
}

impl Followed {
    /// Checks whether the job is deleted or buried, or the client has closed its side.
    pub(crate) fn check(&mut self, queue: &Queue, has_left: bool, now: Timestamp) {
        let is_pending = queue.job(self.job).is_some_and(|job| job.record.state != JobState::Buried);
        self.is_over |= !is_pending || has_left || now >= self.until;
    }
}
