//! The markers that the log appends between its records.
//!
//! Owns: what a marker says, and where it goes; with it, the change of the wall clock, which two markers enclose.
//! Driven by appends, by commits, by the server's reading of the clocks, and by the start and the end of a log.

use super::Binlog;
use super::room::Target;
use crate::clock::{NS_PER_S, Timestamp};
use crate::format::SHORT_BYTES;
use crate::marker::{CLOCK_STEP_NS, Marker, MarkerKind};
use crate::wall_clock::WallOffset;
use crate::{LogPosition, NoRoom};

impl Binlog {
    fn marker(&self, kind: MarkerKind) -> Marker {
        Marker {
            kind,
            file: self.appender.file(),
            next_job_id: self.ids.announced_by(kind),
            durable: self.durability.durable().end,
            oldest: self.compaction.oldest_needed(&self.contents.files),
            sync: self.config.sync,
            time: self.clock.wall.to_disk(self.clock.last_turn_at),
        }
    }

    /// The marker in the header of file `file`, which will have `bytes`.
    pub(super) fn header(&self, file: u32, bytes: u64) -> Marker {
        Marker { file, ..self.marker(MarkerKind::Header(bytes)) }
    }

    /// Puts a marker after the bytes of the turn; the caller has found room for it.
    pub(super) fn push_marker(&mut self, kind: MarkerKind) {
        let marker = self.marker(kind);
        self.ids.note_announced(marker.next_job_id);
        let end = self.appender.end().offset + SHORT_BYTES;
        self.appender.push_marker(&marker);
        debug_assert_eq!(self.appender.end().offset, end, "the marker ends where its room ends");
        self.durability.note_marked();
        if matches!(kind, MarkerKind::Durable | MarkerKind::Closed) {
            self.clock.time_mark_at = None;
        }
    }

    /// Logs the end of an old file. Before the server serves, this takes precedence over the room for deletes.
    pub(crate) fn append_cut(&mut self, end: LogPosition) -> Result<(), NoRoom> {
        let Some(target) = self.contents.room.find_for_repair() else {
            self.make_next_file();
            return Err(NoRoom::Pending);
        };
        self.append_marker_at(MarkerKind::Cut(end), target);
        Ok(())
    }

    pub(super) fn append_marker(&mut self, kind: MarkerKind) -> Result<(), NoRoom> {
        let target = self.contents.room.find_for_marker().ok_or(NoRoom::Full)?;
        if !self.open_up_to(target) {
            return Err(NoRoom::Pending);
        }
        self.append_marker_at(kind, target);
        Ok(())
    }

    fn append_marker_at(&mut self, kind: MarkerKind, target: Target) {
        self.enter(target);
        self.make_memory(SHORT_BYTES);
        self.contents.room.take(SHORT_BYTES);
        self.push_marker(kind);
        self.appender.require_write();
    }

    /// Puts a marker with the durable position at the beginning of the next write. If room is short, there is no
    /// marker.
    pub(super) fn mark_durable(&mut self) {
        if self.durability.is_marked() {
            return;
        }
        if self.appender.is_empty() {
            if self.contents.room.find(SHORT_BYTES, self.kept_units()) == Some(Target::Current) {
                self.contents.room.take(SHORT_BYTES);
                self.push_marker(MarkerKind::Durable);
            }
        } else if !self.appender.must_write() {
            // A later sync is done, and the marker for the previous one has not been written yet.
            self.appender.drop_waiting_marker();
            self.push_marker(MarkerKind::Durable);
        }
    }

    /// Sets the difference between the wall clock and the clock in memory, in nanoseconds. It has no effect if the
    /// store has its own clock.
    pub fn set_wall_offset(&mut self, wall_offset_ns: i64) {
        if !self.clock.follows_wall {
            return;
        }
        let is_set_back =
            wall_offset_ns < self.clock.wall.0.saturating_sub(CLOCK_STEP_NS) && self.appender.has_file();
        if is_set_back {
            // The old clock decides which delays have ended. If there is no room for this marker, they may last longer.
            let _ = self.append_marker(MarkerKind::Durable);
        }
        self.clock.wall = WallOffset(wall_offset_ns);
        if is_set_back {
            let _ = self.append_marker(MarkerKind::Durable);
        }
    }

    /// Notes that delays have ended. No record is written for it; a marker records the time within a second. A start
    /// with this log then knows that these jobs are ready, even if the wall clock was set back.
    pub fn note_end_of_delay(&mut self, now: Timestamp) {
        self.clock.time_mark_at.get_or_insert(now + NS_PER_S);
    }

    /// Logs the time before the log continues, because the wall clock was set back since it was written.
    pub(crate) fn log_time(&mut self, now: Timestamp) -> Result<(), NoRoom> {
        self.clock.last_turn_at = now;
        self.append_marker(MarkerKind::Durable)
    }
}
