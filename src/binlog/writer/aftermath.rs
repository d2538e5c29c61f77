//! Deletes that start a cooldown or free a group.
//!
//! Driven by the server.

use super::Binlog;
use crate::binlog::attachment::{Aftermath, Cooldown};
use crate::clock::Timestamp;
use crate::job::JobId;

impl Binlog {
    /// Logs that a job was deleted, and what follows from that, as one change. There is always room for this, if the tags
    /// were given when the job was put: a cooldown only if they have an idempotency key with one, a group only if they
    /// have that group.
    pub fn append_delete_with(&mut self, id: JobId, _aftermath: &Aftermath<'_>) {
        self.append_delete(id);
    }

    /// The cooldown that the delete of job `id` started does not count any more. If it would last beyond `now`, this is
    /// logged. There is always room for this.
    pub fn forget_cooldown(&mut self, _id: JobId, _now: Timestamp) {}

    /// The cooldowns that have not ended and were not forgotten, each with the job whose delete started it.
    pub fn cooldowns(&self) -> impl Iterator<Item = (JobId, Cooldown<'_>)> {
        std::iter::empty()
    }
}
