//! The end of a run: the log comes to rest for a hand-over, or is closed at the exit.
//!
//! Owns: nothing; the state is in the parts that it waits for. Only these calls, and the start, wait for the store.

use crate::clock::Timestamp;
use crate::marker::MarkerKind;
use crate::storage::StoreTask;
use crate::{Binlog, BinlogError, SyncPolicy};

use super::Health;

impl Binlog {
    /// Sets whether copies and removals of files must wait: a hand-over is about to come.
    pub fn hold_compaction(&mut self, is_on_hold: bool) {
        self.compaction.is_on_hold = is_on_hold;
    }

    /// Prepares for [`Binlog::quiesce`], which waits for nothing, however slow the store is, if everything is on the
    /// medium, or need not be, and no task is in progress. Returns whether this is so; if not, the next commit requests
    /// what is missing.
    pub fn come_to_rest(&mut self) -> bool {
        let is_written = self.appender.is_empty();
        let is_settled = is_written && self.durability.is_settled();
        if !is_written {
            self.appender.require_write();
        }
        if !is_settled {
            self.durability.hurry();
        }
        is_settled && !self.storage.is_busy()
    }

    /// Writes everything, and waits for the store: then the new program of a hand-over can continue the log, as after a
    /// crash without losses. Unless the log needs the room, no further file is removed meanwhile: the new
    /// program removes the files that are left. Returns whether a task was in progress: it may have made room.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn quiesce(&mut self, needs_room: bool, now: Timestamp) -> Result<bool, BinlogError> {
        self.outcome()?;
        let mut has_waited = false;
        self.hold_compaction(!needs_room);
        while let Some(done) = self.storage.wait() {
            self.note(done, now);
            has_waited = true;
        }
        self.hold_compaction(false);
        self.outcome()?;
        self.clock.last_turn_at = now;
        self.log_needed();
        self.write_buffer();
        self.flush(!self.durability.is_settled(), now)?;
        Ok(has_waited)
    }

    /// Ends the log at a clean exit: everything is written, synced and marked accordingly, and the files made ahead are
    /// removed.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn close(&mut self, now: Timestamp) -> Result<(), BinlogError> {
        self.outcome()?;
        self.health = Health::Closing;
        while let Some(done) = self.storage.wait() {
            self.on_completion(done, now)?;
        }
        self.clock.last_turn_at = now;
        self.log_needed();
        let syncs = self.config.sync != SyncPolicy::Never;
        self.flush(syncs, now)?;
        if syncs && self.append_marker(MarkerKind::Closed).is_ok() {
            self.flush(syncs, now)?;
        }
        // From the highest down, so that C finds no gap. A file that remains is empty, and does no harm.
        while let Some(spare) = self.contents.room.drop_newest_spare() {
            if self.run(StoreTask::Remove { file: spare.index }, now).is_err() {
                break;
            }
        }
        self.health = Health::Stopped;
        Ok(())
    }
}
