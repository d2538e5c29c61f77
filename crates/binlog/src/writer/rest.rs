//! The end of a run: the log comes to rest for a hand-over, or is closed at the exit.
//!
//! Owns: nothing; the state is in the parts that it waits for. Only these calls, and the start, wait for the store.

use crate::clock::Timestamp;
use crate::marker::MarkerKind;
use crate::storage::StoreTask;
use crate::{Binlog, BinlogError, SyncPolicy};

use super::Health;

impl Binlog {
    /// Whether [`Binlog::quiesce`] needs nothing of the store now, which may hang. If it needs a sync, the next commit
    /// requests it.
    pub fn is_ready_to_quiesce(&mut self) -> bool {
        let is_written = self.appender.is_empty() || self.config.sync == SyncPolicy::Never;
        let is_settled = is_written && self.durability.is_settled();
        if !is_settled {
            self.appender.require_write();
            self.durability.hurry();
        }
        is_settled && !self.storage.is_busy()
    }

    /// Asks the store to end the making of a file early, unless a command waits for the file. The log makes it again
    /// soon.
    pub fn interrupt_making(&mut self) {
        if !self.contents.room.is_wanted() {
            self.storage.interrupt_making();
        }
    }

    /// Writes everything, and waits for the store: then the new program of a hand-over can continue the log, as after a
    /// crash without losses. Unless the log needs the room, no further file is removed, and a file for which no command
    /// waits is not completed: the new program does both. Returns whether a task was in progress: it may have made
    /// room.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn quiesce(&mut self, needs_room: bool, now: Timestamp) -> Result<bool, BinlogError> {
        self.outcome()?;
        let mut has_waited = false;
        self.compaction.holds_removals = !needs_room;
        if needs_room {
            self.resume_making();
        }
        loop {
            // A removal can have begun the making of another file.
            if !needs_room {
                self.interrupt_making();
            }
            let Some(done) = self.storage.wait() else { break };
            self.note(done, now);
            has_waited = true;
        }
        self.outcome()?;
        self.clock.last_turn_at = now;
        self.log_needed();
        self.write_buffer();
        self.flush(!self.durability.is_settled(), now)?;
        self.compaction.holds_removals = false;
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
        // No command is served any more, so none waits for the file.
        self.storage.interrupt_making();
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
