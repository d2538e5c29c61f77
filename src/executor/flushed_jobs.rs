//! Jobs that were flushed in this turn, and that a client has reserved but not received yet.

use super::fields::Values;
use crate::job::{Body, JobId};
use crate::queue::Queue;

/// A deleted job that may have been given to a client that has not got its reply yet.
#[derive(Debug)]
pub(crate) struct FlushedJob {
    id: JobId,
    pub(crate) body: Body,
    pub(crate) values: Values,
}

/// These jobs, until the deliveries of the turn are over.
#[derive(Debug, Default)]
pub(crate) struct FlushedJobs(Vec<FlushedJob>);

impl FlushedJobs {
    /// Keeps the body of a job that is about to be flushed, if a client may still have to receive it as reserved.
    pub(crate) fn keep_for_delivery(&mut self, queue: &Queue, id: JobId) {
        if queue.has_deliveries() && !queue.is_unreserved(id) {
            self.0.extend(queue.job(id).and_then(|job| {
                Some(FlushedJob { id, body: job.body.to_owned().ok()?, values: Values::of(&job) })
            }));
        }
    }

    /// A job that was flushed in this turn, for a client that had reserved it before.
    #[cold]
    pub(crate) fn find(&self, id: JobId) -> Option<&FlushedJob> {
        self.0.iter().find(|flushed| flushed.id == id)
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets them: no client still has to receive one.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}
