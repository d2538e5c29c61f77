//! Compaction and removal: live jobs are copied out of the oldest file, and a file without jobs is removed.
//!
//! Owns: how much may be copied, and the removal in progress, in [`Compaction`]. Driven by the server, which appends
//! the copies before each commit, and by the outcomes of syncs and of [`StoreTask::Remove`].

use std::io;

use log::warn;

use super::append::WholeJob;
use super::files_ahead::Creation;
use super::{Binlog, Timestamp};
use crate::attachment::MAX_SESSION_UNITS;
use crate::clock::NS_PER_S;
use crate::described;
use crate::files::Files;
use crate::format::SHORT_BYTES;
use crate::item::Item;
use crate::job::JobId;
use crate::marker::MarkerKind;
use crate::storage::{StoreTask, is_lack_of_room, is_shortage};
use crate::{BinlogError, LogPosition, MAX_NUMBER};

use super::room::file_units;

/// How long the log waits before it tries again to remove a file.
const REMOVE_RETRY_NS: u64 = NS_PER_S;
/// How many bytes may be copied for each logged byte.
const COPIES_TO_LOGGED: u64 = 4;
/// How many bytes a turn may copy even if it logs little: a few dozen small jobs, which takes some microseconds.
const COPIED_PER_TURN: u64 = 16 * 1024;
/// Jobs are copied when the closed files are longer than this factor times the records of all jobs, or when all files
/// are longer than one more than this factor times these records, plus one file. Each logged byte then costs at most
/// about one byte of copies.
const CLOSED_TO_LIVE: u64 = 2;
/// While files wait for their removal, no further file is made if the directory would then be longer than this many
/// times the live bytes plus [`DIRECTORY_FILES`] files.
const DIRECTORY_TO_LIVE: u64 = 3;
/// See [`DIRECTORY_TO_LIVE`].
const DIRECTORY_FILES: u64 = 2;
/// This many files may always exist: the one to which records are appended, one made ahead, one about to be removed,
/// and one that was filled in the meantime. With fewer, every new file would wait for a removal if there are few jobs.
const UNHINDERED_FILES: u64 = 4;

/// The copying of records, and the removal of files.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    removal: Option<FileRemoval>,
    /// Whether no further removal may begin now.
    pub(super) holds_removals: bool,
    /// Bytes that the current turn may still copy.
    turn_bytes: u64,
    /// Bytes that may be copied until something else is logged. Without this limit, copying that frees nothing would
    /// never end.
    credit: u64,
    /// Length of the full records of the jobs deleted in this turn.
    freed_bytes: u64,
    /// Records copied since the start.
    pub(super) copied_records: u64,
    /// Whether a session may have reserved a job: the oldest file's record of that is copied with the job.
    has_session_reservations: bool,
}

/// The removal of files without live jobs.
#[derive(Clone, Copy, Debug)]
struct FileRemoval {
    /// The files with a smaller index are removed, one after another.
    below: u32,
    stage: RemovalStage,
}

/// The progress of the removal of the oldest file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovalStage {
    /// The file can be removed once the log is durable up to here: then the marker and all copies of its jobs are
    /// durable.
    Announced(LogPosition),
    /// The store is removing the file.
    UnderWay,
    /// It could not remove the file, and tries again at this instant.
    Failed { retry_at: Timestamp },
}

/// The compaction as the old program has left it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescribedCompaction {
    /// The files with a smaller index are removed, one after another, if there are any.
    pub(super) below: Option<u32>,
    credit: u64,
    copied_records: u64,
}

described!(DescribedCompaction { below, credit, copied_records });

impl Compaction {
    /// The state of the compaction for the new program.
    pub(super) fn described(&self) -> DescribedCompaction {
        let below = self.removal.map(|removal| removal.below);
        DescribedCompaction { below, credit: self.credit, copied_records: self.copied_records }
    }

    /// Resumes after a hand-over: the log is durable beyond the announcement of a removal.
    pub(super) fn resume(described: DescribedCompaction) -> Self {
        let DescribedCompaction { below, credit, copied_records } = described;
        let stage = RemovalStage::Announced(LogPosition::default());
        let removal = below.map(|below| FileRemoval { below, stage });
        let copied_records = copied_records.min(MAX_NUMBER);
        // The old program does not record whether it had sessions.
        Self { removal, credit, copied_records, has_session_reservations: true, ..Self::default() }
    }

    /// A compaction that may copy everything in the log once.
    pub(super) fn new() -> Self {
        Self { credit: u64::MAX, ..Self::default() }
    }

    /// The oldest file that is needed, for markers: files that are announced for removal are not needed.
    pub(super) fn oldest_needed(&self, files: &Files) -> u32 {
        self.removal.map_or(files.oldest_index(), |removal| removal.below)
    }

    /// Notes that full records of `bytes` are no longer live.
    pub(super) fn note_freed(&mut self, bytes: u64) {
        self.freed_bytes += bytes;
    }

    /// Notes that a session has reserved a job.
    pub(super) fn note_session_reservation(&mut self) {
        self.has_session_reservations = true;
    }

    /// The room for the copy of an item whose record has `bytes`. The job and its session are copied as one: a file
    /// must not be removed if its job is copied but there is no room for the record of the session.
    fn copy_bytes(&self, item: Item, bytes: u64) -> u64 {
        match item {
            Item::Job(_) if self.has_session_reservations => bytes + MAX_SESSION_UNITS * SHORT_BYTES,
            Item::Job(_) | Item::Cooldown(_) => bytes,
        }
    }

    /// When a removal that has failed is tried again.
    pub(super) fn removal_retry_at(&self) -> Option<Timestamp> {
        match self.removal?.stage {
            RemovalStage::Failed { retry_at } => Some(retry_at),
            RemovalStage::Announced(_) | RemovalStage::UnderWay => None,
        }
    }

    /// Retries a failed removal, if it is time.
    pub(super) fn retry(&mut self, now: Timestamp) {
        if self.removal_retry_at().is_some_and(|at| at <= now) {
            self.removal = self.removal.map(FileRemoval::at_once);
        }
    }

    /// Increases the credit, because logged records and deleted jobs leave bytes that copying can free. `max` limits
    /// the credit.
    fn earn(&mut self, logged: u64, max: u64) {
        let earned = COPIES_TO_LOGGED * logged + std::mem::take(&mut self.freed_bytes);
        self.credit = self.credit.saturating_add(earned).min(max);
    }

    /// Counts a copied record of `bytes`.
    fn note_copied(&mut self, bytes: u64) {
        self.pay(bytes);
        self.copied_records += 1;
    }

    /// Subtracts copied bytes from the budgets.
    pub(super) fn pay(&mut self, bytes: u64) {
        self.turn_bytes = self.turn_bytes.saturating_sub(bytes);
        self.credit = self.credit.saturating_sub(bytes);
    }

    /// Whether the store is removing a file.
    fn is_under_way(&self) -> bool {
        self.removal.is_some_and(|removal| removal.stage == RemovalStage::UnderWay)
    }

    /// Asserts the invariants between two calls.
    #[inline]
    pub(super) fn check_invariants(&self, files: &Files, current: u32) {
        let Some(FileRemoval { below, .. }) = self.removal else { return };
        assert!(below <= current, "the file that records go to is never removed");
        assert!(files.oldest_index() < below, "there is a file to remove");
        let doomed = files.closed().filter(|file| file.index < below);
        assert!(doomed.into_iter().all(|file| file.live == 0), "a file that is removed has no live records");
    }
}

impl Binlog {
    // ---- copies ----

    /// The next job whose record must be copied out of the oldest file, if this turn must copy one. The caller appends
    /// it with [`Binlog::append_migrated`] and calls this again. Cooldowns before it are copied.
    pub fn next_migration(&mut self) -> Option<JobId> {
        loop {
            if self.compaction.turn_bytes == 0 || !self.can_migrate() {
                return None;
            }
            let item = self.contents.files.find_first()?;
            debug_assert_eq!(
                self.contents.files.first_to_migrate(),
                Some(item),
                "the first item is copied first"
            );
            match item {
                Item::Job(id) => {
                    let bytes = self.contents.files.record_bytes(item)?;
                    let bytes = self.compaction.copy_bytes(item, bytes);
                    let target = self.contents.room.find(bytes, 0)?;
                    // The copy can wait for a descriptor, and for memory.
                    return (self.open_up_to(target) && self.has_memory_for(bytes)).then_some(id);
                }
                Item::Cooldown(id) => {
                    let bytes = self.copy_cooldown(id)?;
                    self.appender.uncount(bytes);
                    self.compaction.note_copied(bytes);
                }
            }
        }
    }

    /// Whether there is room for the copy of a job from `next_migration` if its tube and its tags differ from the
    /// log's.
    pub fn has_room_for_copy(&mut self, job: &WholeJob<'_>) -> bool {
        let bytes = job.bytes();
        let target = self.contents.room.find(bytes, 0);
        target.is_some_and(|target| self.open_up_to(target) && self.has_memory_for(bytes))
    }

    /// Copies a job in the oldest file, with its present state and its present tags.
    pub fn append_migrated(&mut self, job: &WholeJob<'_>, now: Timestamp) {
        let id = job.record.id;
        let before = self.contents.files.file_of(id);
        debug_assert!(before.is_some(), "a job that is copied is in a file");
        let bytes = job.bytes();
        self.append_full(job, 0, now);
        self.note_state(job.record);
        self.appender.uncount(bytes);
        self.compaction.note_copied(bytes);
        debug_assert!(
            before < self.contents.files.file_of(id) || self.health.has_failed(),
            "a copy is in a newer file"
        );
    }

    /// Ends a turn in which `logged` bytes were logged: sets how much the next one may copy.
    pub(super) fn allot_copies(&mut self, logged: u64) {
        // Copying all live bytes once frees everything that can be freed, so more credit than for two times is useless.
        let max = 2 * self.contents.files.full_bytes() + self.config.file_bytes;
        self.compaction.earn(logged, max);
        self.compaction.turn_bytes = if self.wants_migration() { COPIED_PER_TURN.max(2 * logged) } else { 0 };
    }

    /// Whether the jobs in the oldest file with a job must be copied: the closed files have few live bytes, or one more
    /// file would make the directory too long. Files that only wait for their removal do not count, and copying does
    /// not wait for them: while one removal waits for its sync, fast writers fill more than one file.
    fn wants_migration(&self) -> bool {
        let live = self.contents.files.full_bytes();
        let emptied: u64 = self.contents.files.emptied().map(|file| file.bytes).sum();
        let bound = (CLOSED_TO_LIVE + 1) * live + self.config.file_bytes;
        (self.contents.files.closed_bytes() - emptied > CLOSED_TO_LIVE * live
            || self.directory_bytes() - emptied > bound)
            && self.compaction.credit > 0
            && self.contents.files.has_live_in_closed()
    }

    /// Whether a job must be copied and there is room for it.
    pub(super) fn can_migrate(&self) -> bool {
        if !self.unlogged.needed.is_empty()
            || !self.health.is_serving()
            || self.ahead.lacks_descriptor
            || !self.wants_migration()
        {
            return false;
        }
        let bytes = self.contents.files.first_to_migrate().and_then(|item| {
            let bytes = self.contents.files.record_bytes(item)?;
            Some(self.compaction.copy_bytes(item, bytes))
        });
        // The next turn continues the search for the first one if it has not been found.
        bytes.is_none_or(|bytes| self.contents.room.find(bytes, 0).is_some())
    }

    /// On a full disk, room for the longest closed file is kept for copies, in short records. Without it, files with
    /// few live bytes would stay forever, however many jobs are deleted.
    pub(super) fn kept_units(&self) -> u64 {
        if !self.ahead.is_disk_full {
            return 0;
        }
        file_units(self.contents.files.longest_live().min(self.config.file_bytes))
    }

    /// Total length of all files, including those made ahead and those to be removed.
    pub(super) fn directory_bytes(&self) -> u64 {
        self.contents.files.total_bytes() + self.contents.room.spare_bytes()
    }

    // ---- removal ----

    /// Whether the next file must wait for the removal of another one, which is in progress.
    pub(super) fn awaits_removal(&self) -> bool {
        let file = self.config.file_bytes;
        let bound =
            (DIRECTORY_TO_LIVE * self.live_bytes() + DIRECTORY_FILES * file).max(UNHINDERED_FILES * file);
        self.compaction.removal.is_some() && self.directory_bytes() + self.next_file_bytes() > bound
    }

    /// Announces the removal of the oldest files without live jobs. Returns whether there were any.
    pub(super) fn announce_removal(&mut self) -> bool {
        let empty = self.contents.files.oldest_closed().is_some_and(|oldest| oldest.live == 0);
        if !empty || self.compaction.removal.is_some() || !self.health.is_serving() {
            return false;
        }
        let kept = self.contents.files.closed().find(|file| file.live > 0);
        let below = kept.map_or(self.appender.file(), |file| file.index);
        let removal = |end| FileRemoval { below, stage: RemovalStage::Announced(end) };
        // The marker must show that those files are not needed, so the removal is noted before it, then with its end.
        self.compaction.removal = Some(removal(self.appender.end()));
        let announced = self.append_marker(MarkerKind::Durable).is_ok();
        self.compaction.removal = announced.then(|| removal(self.appender.end()));
        debug_assert!(
            self.contents.files.oldest_index() < below && below <= self.appender.file(),
            "old files are removed, and never the one that records go to"
        );
        announced
    }

    /// Removes the oldest announced file, once the announcement is on the medium.
    pub(super) fn remove_announced_files(&mut self) {
        let Some(FileRemoval { below, stage: RemovalStage::Announced(after) }) = self.compaction.removal
        else {
            return;
        };
        if !self.durability.is_durable_up_to(after)
            || !self.health.is_serving()
            || self.compaction.holds_removals
        {
            return;
        }
        debug_assert!(
            self.contents
                .files
                .oldest_closed()
                .is_some_and(|oldest| oldest.live == 0 && oldest.index < below),
            "a file that is removed is old and has no live records"
        );
        // One at a time: if an older file cannot be removed, no later file is removed before it.
        self.submit(StoreTask::Remove { file: self.contents.files.oldest_index() });
        self.compaction.removal = Some(FileRemoval { below, stage: RemovalStage::UnderWay });
    }

    /// Handles the end of a removal. The next announced file can be removed at once. There may be room for a file that
    /// could not be made.
    pub(super) fn file_was_removed(&mut self, file: u32) {
        debug_assert_eq!(self.contents.files.oldest_index(), file, "the oldest is removed first");
        debug_assert!(self.compaction.is_under_way(), "a file is removed as the log has requested");
        self.contents.files.pop_oldest();
        let oldest = self.contents.files.oldest_index();
        let left = self.compaction.removal.filter(|removal| oldest < removal.below);
        self.compaction.removal = left.map(FileRemoval::at_once);
        debug_assert!(file < oldest, "a file that was removed is no file of the log");
        self.remove_announced_files();
        if matches!(self.ahead.creation, Creation::Failed { .. }) {
            self.ahead.retry();
        }
        self.prepare_files();
    }

    pub(super) fn file_was_not_removed(&mut self, file: u32, error: io::Error, now: Timestamp) {
        debug_assert_eq!(self.contents.files.oldest_index(), file, "the oldest is removed first");
        debug_assert!(self.compaction.is_under_way(), "a removal fails that the log has requested");
        if !is_shortage(&error) && !is_lack_of_room(&error) {
            return self.fail(BinlogError::Remove { file, error });
        }
        self.warnings
            .line(now, |_| warn!("binlog.{file}: cannot remove it, trying again every second: {error}"));
        let stage = RemovalStage::Failed { retry_at: now + REMOVE_RETRY_NS };
        self.compaction.removal = self.compaction.removal.map(|removal| FileRemoval { stage, ..removal });
    }
}

impl FileRemoval {
    /// Makes the next file removable at once: the log is durable beyond the announcement.
    fn at_once(self) -> Self {
        Self { stage: RemovalStage::Announced(LogPosition::default()), ..self }
    }
}
