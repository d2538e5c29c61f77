//! Jobs that go to another tube.
//!
//! Owns: the two records of that, and their room. Driven by the server, as the rest of the writer.

use super::Binlog;
use crate::binlog::format::{DiskRecord, MAX_BODY_BYTES, SHORT_BYTES, full_record_bytes};
use crate::binlog::{BinlogError, NoRoom};
use crate::job::{Body, JobRecord};
use crate::tube_name::TubeName;

impl Binlog {
    /// Whether the records of a job that goes to another tube fit. The answer holds until the next append.
    ///
    /// # Errors
    /// Where they do not; nothing has changed.
    pub fn reserve_move(&mut self, tube_len: usize, body_len: usize) -> Result<(), NoRoom> {
        if body_len > MAX_BODY_BYTES {
            return Err(NoRoom::Full);
        }
        let bytes = SHORT_BYTES + full_record_bytes(tube_len, body_len);
        self.reserve_buffer(bytes).map_err(|_| NoRoom::Full)?;
        self.reserve(bytes, self.segments.job_count())
    }

    /// Logs a job that is in another tube now. The room must have been reserved. C keeps a job that it knows in its
    /// tube, whatever a further full record says, so a delete stands before that; a replay of ours passes over it, so
    /// that a write that ends between the two loses nothing.
    pub fn append_moved(&mut self, job: &JobRecord, tube: &TubeName, body: &Body) {
        self.freed_bytes += self.segments.record_bytes(job.id).unwrap_or(0);
        match self.space.find(SHORT_BYTES, self.segments.job_count()) {
            Some(target) => self.append_short(&DiskRecord::departure(job.id), target),
            None => self.fail(BinlogError::NotReserved),
        }
        self.append_full(job, tube, body, self.segments.job_count());
    }
}
