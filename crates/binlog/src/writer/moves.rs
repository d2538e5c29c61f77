//! Jobs that are moved to another tube.
//!
//! Owns: the two records of a move, and their room. Driven by the server.

use super::{Binlog, Promise};
use crate::attachment::tag_record_bytes;
use crate::clock::Timestamp;
use crate::files::Item;
use crate::format::{DiskRecord, MAX_BODY_BYTES, SHORT_BYTES, full_record_bytes};
use crate::job::{BodyRef, JobRecord};
use crate::tube_name::TubeName;
use crate::{BinlogError, NoRoom};

impl Binlog {
    /// Whether the records of a job that goes to another tube fit. The answer holds until the next append.
    ///
    /// # Errors
    /// If they do not fit; nothing has changed.
    pub fn reserve_move(&mut self, tube_len: usize, body_len: usize, tags: &[u8]) -> Result<(), NoRoom> {
        if body_len > MAX_BODY_BYTES || self.is_store_full() {
            return Err(NoRoom::Full);
        }
        let bytes = SHORT_BYTES + tag_record_bytes(tags.len()) + full_record_bytes(tube_len, body_len);
        if !self.has_memory_for(bytes) {
            return Err(NoRoom::Full);
        }
        // The name of the tube stands in the cooldown, so that the delete may need more than before.
        let promised = if tags.is_empty() { 0 } else { self.promise_for(tube_len, tags) };
        self.reserve(bytes, self.live_units() + promised)
    }

    /// Logs a job that is in another tube now. The room must have been reserved. C keeps a job that it knows in its
    /// tube, whatever a further full record says, so that a delete precedes that record. A replay of this server ignores
    /// this delete, so that a write that ends between the two records loses nothing.
    pub fn append_moved<'a>(
        &mut self,
        job: &JobRecord,
        tube: &TubeName,
        body: impl Into<BodyRef<'a>>,
        tags: &[u8],
        now: Timestamp,
    ) {
        self.compaction.note_freed(self.files.record_bytes(Item::Job(job.id)).unwrap_or(0));
        match self.ahead.space.find(SHORT_BYTES, self.live_units()) {
            Some(target) => self.append_short(&DiskRecord::departure(job.id), target),
            None => self.fail(BinlogError::NotReserved),
        }
        self.promises.set(job.id, Promise::default());
        let promised = if tags.is_empty() { 0 } else { self.promise_for(tube.as_bytes().len(), tags) };
        self.append_full(job, tube, body.into(), tags, self.live_units() + promised, now);
    }
}
