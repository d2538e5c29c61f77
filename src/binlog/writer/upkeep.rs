//! What keeps the log going between records: the write of the turn, syncs, new files, migration, removal.

use std::io;

use super::*;
use crate::binlog::disk::{Completion, is_transient, unlink_durably};
use crate::binlog::durability::Mark;
use crate::binlog::space::Spare;

/// How long a file that could not be removed is left alone.
const UNLINK_RETRY_NS: u64 = NS_PER_S;
/// How long a file is not tried again that could not be made for want of descriptors or memory: commands wait for it.
const SHORTAGE_RETRY_NS: u64 = NS_PER_S / 10;
/// So many of the files made ahead are open, beside the one that is written.
const OPEN_AHEAD: usize = 3;
/// For each byte logged so many may be copied.
const COPIES_TO_LOGGED: u64 = 4;
/// The least time between two warnings of files that can be neither made nor removed.
const QUIET_NS: u64 = 60 * NS_PER_S;

impl Binlog {
    /// Writes all that was logged since the last commit, in one write (one more for each file that was
    /// filled), and asks for the syncs that are due.
    ///
    /// # Errors
    /// Where the log has failed: nothing logged since the last sync may be acknowledged, and the process
    /// is to end.
    pub fn commit(&mut self, now: Timestamp) -> Result<(), BinlogError> {
        self.now = now;
        self.write_owed();
        let announced = self.retire_files();
        let written = std::mem::take(&mut self.turn_bytes);
        if self.must_write {
            self.write_buffer();
            self.idle_mark_at = None;
        }
        self.buffer.shrink_to(BUFFER_KEEP_BYTES);
        if announced | std::mem::take(&mut self.is_sync_urgent) {
            // Room is to come back soon, however long `-f` may wait, and a put that waits for an id is to go on.
            self.request_sync();
        }
        self.request_due_sync();
        self.remove_retired_files();
        self.open_spares(OPEN_AHEAD);
        self.prepare_files();
        self.earn_credit(written);
        self.migration_bytes = if self.wants_migration() { MIGRATION_BYTES.max(2 * written) } else { 0 };
        self.outcome()
    }

    /// All records appended so far. A reply may leave at `-f 0` once [`Binlog::durable`] has reached what
    /// this was when the reply was made.
    #[must_use]
    pub fn appended(&self) -> Position {
        Position(self.appended.0 + self.owed.len() as u64)
    }

    /// All records up to here are on the medium.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.sync.durable().position
    }

    /// The next job for the helper thread, in the order in which they are to be done.
    pub fn next_task(&mut self) -> Option<DiskTask> {
        self.tasks.pop_front()
    }

    /// When [`Binlog::on_deadline`] wants to be called; `None` if nothing is due before something happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let retry = match self.creation {
            Creation::Failed { retry_at, .. } => Some(retry_at),
            Creation::Idle | Creation::UnderWay { .. } => None,
        };
        let migrate = self.can_migrate().then_some(self.now);
        [self.sync.deadline(), self.idle_mark_at, retry, self.removal_retry_at, migrate]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due: a sync, the marker of an idle log, another attempt to make a file.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn on_deadline(&mut self, now: Timestamp) -> Result<(), BinlogError> {
        self.now = now;
        if matches!(self.creation, Creation::Failed { retry_at, .. } if retry_at <= now) {
            self.creation = Creation::Idle;
        }
        self.removal_retry_at = self.removal_retry_at.filter(|&at| at > now);
        if self.idle_mark_at.is_some_and(|at| at <= now) {
            self.idle_mark_at = None;
            // The marker that waits for the next record goes alone, and is synced like any record.
            self.must_write = !self.buffer.is_empty();
        }
        self.commit(now)
    }

    /// Takes note of what the helper thread has done.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn on_completion(&mut self, completion: Completion, now: Timestamp) -> Result<(), BinlogError> {
        self.now = now;
        let Completion { task, elapsed_us, result } = completion;
        match (task, result) {
            (DiskTask::Sync { index: file, offset }, Ok(())) => {
                self.stats.syncs += 1;
                self.stats.sync_us += elapsed_us;
                self.sync.completed(Place { file, offset });
                self.mark_durable();
                self.idle_mark_at = (!self.buffer.is_empty()).then(|| now + IDLE_MARK_NS);
                self.request_due_sync();
                self.remove_retired_files();
            }
            (DiskTask::Sync { index, .. }, Err(error)) => self.fail(BinlogError::Sync { file: index, error }),
            (DiskTask::Create { index, bytes, .. }, Ok(())) => {
                self.file_was_made(index, bytes);
                self.write_owed();
                self.prepare_files();
            }
            (DiskTask::Create { index, .. }, Err(error)) => self.file_was_not_made(index, error),
            (DiskTask::Truncate { index, bytes }, Ok(())) => self.segments.shrink(index, bytes),
            // The zeros at the end of an old file are no loss but of space.
            (DiskTask::Truncate { .. }, Err(_)) => {}
            (DiskTask::Unlink { index }, Ok(())) => self.file_was_removed(index),
            (DiskTask::Unlink { index }, Err(error)) if is_transient(&error) || is_lack_of_room(&error) => {
                self.warn(|| format!("binlog.{index}: not removed, tried again every second: {error}"));
                self.retirement = self.retirement.map(Retirement::announced);
                self.removal_retry_at = Some(now + UNLINK_RETRY_NS);
            }
            (DiskTask::Unlink { index }, Err(error)) => self.fail(BinlogError::Unlink { file: index, error }),
        }
        self.outcome()
    }

    /// The difference between the wall clock and the clock in memory, in nanoseconds.
    pub fn set_wall_offset(&mut self, wall_offset_ns: i64) {
        self.wall = WallOffset(wall_offset_ns);
    }

    // ---- migration ----

    /// The next job whose record is to be copied out of the oldest file, if this turn has to. The caller
    /// appends it with [`Binlog::append_migrated`] and asks again.
    pub fn next_migration(&mut self) -> Option<JobId> {
        if self.migration_bytes == 0 || !self.can_migrate() {
            return None;
        }
        let id = self.segments.first_to_migrate()?;
        let bytes = self.segments.record_bytes(id)?;
        let target = self.space.find(bytes, self.segments.job_count())?;
        // Where there is no descriptor, or no memory for the copy, it can wait.
        if !self.open_up_to(target) {
            return None;
        }
        self.reserve_buffer(bytes).ok()?;
        Some(id)
    }

    /// Logs a job that stands in the oldest file once more, in its present state.
    pub fn append_migrated(&mut self, job: &JobRecord, tube: &TubeName, body: &Body) {
        let bytes = full_record_bytes(tube.as_bytes().len(), body.len());
        self.migration_bytes = self.migration_bytes.saturating_sub(bytes);
        self.copy_credit = self.copy_credit.saturating_sub(bytes);
        let logged = self.turn_bytes;
        self.append_full(job, tube, body, self.segments.job_count());
        self.turn_bytes = logged;
        self.stats.records_migrated += 1;
    }

    /// What is logged and what is deleted leaves bytes behind that copying can free. A pass over all that is alive
    /// frees all there is, so that more credit than for two of them is of no use.
    fn earn_credit(&mut self, logged: u64) {
        let earned = COPIES_TO_LOGGED * logged + std::mem::take(&mut self.freed_bytes);
        let most = 2 * self.segments.full_bytes() + self.config.segment_bytes;
        self.copy_credit = self.copy_credit.saturating_add(earned).min(most);
    }

    /// Whether the oldest file with a job is to go: where the closed files hold little that is alive, or
    /// where one file more would take the directory beyond its bound. Files that only wait for their removal
    /// do not count, nor does migration wait for them: while one removal waits for its sync, fast writers
    /// fill more than one file.
    fn wants_migration(&self) -> bool {
        let live = self.segments.full_bytes();
        let emptied: u64 = self.segments.emptied().map(|segment| segment.bytes).sum();
        let bound = (CLOSED_TO_LIVE + 1) * live + self.config.segment_bytes;
        (self.segments.closed_bytes() - emptied > CLOSED_TO_LIVE * live
            || self.directory_bytes() - emptied > bound)
            && self.copy_credit > 0
            && self.segments.first_to_migrate().is_some()
    }

    /// Whether a job is to be migrated and there is room for it.
    fn can_migrate(&self) -> bool {
        if !self.owed.is_empty() || self.stopped || self.lacks_descriptor || !self.wants_migration() {
            return false;
        }
        let bytes = self.segments.first_to_migrate().and_then(|id| self.segments.record_bytes(id));
        bytes.is_some_and(|bytes| self.space.find(bytes, self.segments.job_count()).is_some())
    }

    /// On a full disk as much room, in short records, as the longest closed file has is left to migration: without
    /// it, files in which little is alive would stay for good, however many jobs are deleted.
    pub(super) fn kept_units(&self) -> u64 {
        if !self.is_disk_full {
            return 0;
        }
        let closed = self.segments.closed().filter(|segment| segment.jobs > 0);
        let longest = closed.map(|segment| segment.bytes).max().unwrap_or(0);
        file_units(longest.min(self.config.segment_bytes))
    }

    /// Length of all files, those made ahead and those to be removed included.
    fn directory_bytes(&self) -> u64 {
        self.segments.total_bytes() + self.space.spare_bytes()
    }

    /// Whether the next file has to wait for the removal of another, which is under way.
    pub(super) fn awaits_removal(&self) -> bool {
        let file = self.config.segment_bytes;
        let bound = (DIRECTORY_TO_LIVE * self.segments.live_bytes() + DIRECTORY_FILES * file)
            .max(UNHINDERED_FILES * file);
        self.retirement.is_some() && self.directory_bytes() + self.next_file_bytes() > bound
    }

    // ---- removal ----

    /// Announces the removal of the oldest files, in which no job is left. Returns whether there were any.
    fn retire_files(&mut self) -> bool {
        let empty = self.segments.oldest_closed().is_some_and(|oldest| oldest.jobs == 0);
        if !empty || self.retirement.is_some() || self.stopped {
            return false;
        }
        let kept = self.segments.closed().find(|segment| segment.jobs > 0);
        let below = kept.map_or(self.current.index, |segment| segment.index);
        // The marker is to say that those files are gone, so the retirement stands before it.
        self.retirement = Some(Retirement { below, after: Some(Place { file: u32::MAX, offset: 0 }) });
        if self.append_marker(MarkerKind::Durable).is_err() {
            self.retirement = None;
            return false;
        }
        let after =
            Place { file: self.current.index, offset: self.current.offset + self.buffer.len() as u64 };
        self.retirement = Some(Retirement { below, after: Some(after) });
        true
    }

    /// Removes the files that were announced, once the announcement is on the medium.
    fn remove_retired_files(&mut self) {
        let Some(Retirement { below, after: Some(after) }) = self.retirement else { return };
        if !self.sync.is_settled(after) || self.stopped || self.removal_retry_at.is_some() {
            return;
        }
        // One at a time, so that none goes before an older one that could not be removed.
        self.tasks.push_back(DiskTask::Unlink { index: self.segments.oldest_index() });
        self.retirement = Some(Retirement { below, after: None });
    }

    /// The oldest file is gone from the directory. The last that was announced makes way for the next
    /// removal, and each for the file that had no room before.
    fn file_was_removed(&mut self, index: u32) {
        debug_assert_eq!(self.segments.oldest_index(), index, "the oldest goes first");
        self.segments.pop_oldest();
        let left = self.retirement.filter(|retirement| self.segments.oldest_index() < retirement.below);
        self.retirement = left.map(Retirement::announced);
        self.remove_retired_files();
        if matches!(self.creation, Creation::Failed { .. }) {
            self.creation = Creation::Idle;
        }
        self.prepare_files();
    }

    // ---- the disk ----

    /// Hands the turn's bytes to the kernel.
    pub(super) fn write_buffer(&mut self) {
        self.must_write = false;
        if self.buffer.is_empty() || self.stopped {
            return;
        }
        let Current { index, offset, .. } = self.current;
        if let Err(error) = self.disk.write_at(FileName::Segment(index), offset, &self.buffer) {
            return self.fail(BinlogError::Write { file: index, offset, error });
        }
        self.current.offset += self.buffer.len() as u64;
        self.buffer.clear();
        let place = Place { file: index, offset: self.current.offset };
        self.sync.wrote(Mark { place, position: self.appended, ids: self.announced_ids }, self.now);
    }

    fn request_due_sync(&mut self) {
        if self.sync.deadline().is_some_and(|at| at <= self.now) {
            self.request_sync();
        }
    }

    pub(super) fn request_sync(&mut self) {
        if !self.stopped
            && let Some(place) = self.sync.request()
        {
            self.tasks.push_back(DiskTask::Sync { index: place.file, offset: place.offset });
        }
    }

    pub(super) fn file_was_made(&mut self, index: u32, bytes: u64) {
        if let Creation::UnderWay { nonce } = self.creation {
            self.space.add_spare(Spare { index, bytes, nonce });
            self.next_index = index + 1;
            self.creation = Creation::Idle;
            self.is_disk_full = false;
            self.lacks_descriptor = false;
            self.open_spares(OPEN_AHEAD);
            self.usual_bytes = (2 * self.usual_bytes).min(self.config.segment_bytes);
        }
    }

    /// A shorter one is tried at once where the disk has no room for it, and this one again where that may help.
    fn file_was_not_made(&mut self, index: u32, error: io::Error) {
        let has_no_room = is_lack_of_room(&error);
        if has_no_room && self.shorten_files() {
            let bytes = self.next_file_bytes();
            self.warn(|| format!("binlog.{index}: {error}; trying a file of {bytes} bytes"));
            self.creation = Creation::Idle;
            self.prepare_files();
        } else if has_no_room || is_transient(&error) {
            self.warn(|| format!("binlog.{index}: not made, tried again: {error}"));
            let pause_ns = if has_no_room { CREATE_RETRY_NS } else { SHORTAGE_RETRY_NS };
            self.creation = Creation::Failed { retry_at: self.now + pause_ns, passes: !has_no_room };
            self.is_disk_full |= has_no_room;
            // Whoever wanted so much asks again. Others may need less.
            self.wanted_bytes = 0;
        } else {
            self.fail(BinlogError::Create { file: index, error });
        }
    }

    /// Opens the first `count` files made ahead, so that going on in one needs no descriptor. Returns whether they are
    /// open now.
    fn open_spares(&mut self, count: usize) -> bool {
        while let Some(index) = self.space.next_to_open(count) {
            match self.disk.open(FileName::Segment(index)) {
                Ok(()) => self.space.note_open(),
                Err(error) => {
                    if !is_transient(&error) {
                        self.fail(BinlogError::Create { file: index, error });
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Whether the file that `target` names, and those before it, can be written now. Where a descriptor is lacking,
    /// another file is asked for: whoever waits for it tries again once it has been made.
    pub(super) fn open_up_to(&mut self, target: Target) -> bool {
        let Target::Spare(passed) = target else { return true };
        let is_open = self.open_spares(passed + 1);
        if !is_open {
            self.lacks_descriptor = true;
            self.prepare_files();
        }
        is_open
    }

    /// Length of the next file.
    pub(super) fn next_file_bytes(&self) -> u64 {
        let deletes = self.segments.job_count() + self.owed.len() as u64 + 1;
        file_bytes(self.usual_bytes, self.wanted_bytes, deletes)
    }

    /// Has the next file be half as long, unless that is too short. Returns whether the next one is shorter.
    pub(super) fn shorten_files(&mut self) -> bool {
        let before = self.next_file_bytes();
        let least = LEAST_FILE_BYTES.min(self.config.segment_bytes);
        self.usual_bytes = (self.usual_bytes / 2).next_multiple_of(BLOCK_BYTES).max(least);
        self.next_file_bytes() < before
    }

    /// Says something that could be said every second.
    fn warn(&mut self, text: impl FnOnce() -> String) {
        if self.now >= self.quiet_until {
            self.quiet_until = self.now + QUIET_NS;
            log::warn!("{}", text());
        }
    }

    /// Does the tasks here and now: before the server serves, nobody waits for it.
    pub(in crate::binlog) fn run_tasks(&mut self) -> io::Result<()> {
        while let Some(task) = self.tasks.pop_front() {
            let done = task.run(&mut *self.disk);
            match (done.task, done.result?) {
                (DiskTask::Create { index, bytes, .. }, ()) => self.file_was_made(index, bytes),
                (DiskTask::Sync { index: file, offset }, ()) => self.sync.completed(Place { file, offset }),
                (DiskTask::Truncate { .. } | DiskTask::Unlink { .. }, ()) => {}
            }
        }
        Ok(())
    }

    /// Gives the zeros at the end of an old file back.
    pub(in crate::binlog) fn trim(&mut self, index: u32, bytes: u64) {
        self.tasks.push_back(DiskTask::Truncate { index, bytes });
    }

    pub(super) fn fail(&mut self, error: BinlogError) {
        if !self.stopped {
            self.failure = Some(error);
            self.stopped = true;
            self.tasks.clear();
        }
    }

    /// Whether the log still stands; the first call after a failure says why it does not.
    pub(in crate::binlog) fn outcome(&mut self) -> Result<(), BinlogError> {
        match self.failure.take() {
            Some(error) => Err(error),
            None if self.stopped => Err(BinlogError::Stopped),
            None => Ok(()),
        }
    }

    /// Writes all that was logged, here and now, and syncs it if `syncs`.
    pub(in crate::binlog) fn flush(&mut self, syncs: bool) -> Result<(), BinlogError> {
        self.write_buffer();
        self.outcome()?;
        if !syncs {
            return Ok(());
        }
        // Files that were filled since the last sync come first: what is durable is a beginning of the log.
        let unsynced: Vec<u32> = self.segments.closed().map(|segment| segment.index).collect();
        let durable = self.sync.durable().place.file;
        for index in unsynced.into_iter().filter(|&index| index >= durable).chain([self.current.index]) {
            if let Err(error) = self.disk.sync(FileName::Segment(index)) {
                self.fail(BinlogError::Sync { file: index, error });
                return self.outcome();
            }
        }
        self.sync.all_synced();
        Ok(())
    }

    /// Ends the log at a clean exit: all is written, synced and marked as such, and the files made ahead
    /// are removed. The helper must have finished.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn close(&mut self, now: Timestamp) -> Result<(), BinlogError> {
        self.now = now;
        self.write_owed();
        let syncs = self.config.sync != SyncPolicy::Never;
        self.flush(syncs)?;
        if syncs && self.append_marker(MarkerKind::Closed).is_ok() {
            self.flush(syncs)?;
        }
        // From the highest down, so that C finds no gap. A file that stays is empty, and no harm.
        while let Some(spare) = self.space.drop_newest_spare() {
            if unlink_durably(&mut *self.disk, FileName::Segment(spare.index)).is_err() {
                break;
            }
        }
        self.stopped = true;
        Ok(())
    }

    // ---- stats ----

    /// The figures for `stats`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            oldest_index: self.segments.oldest_index(),
            current_index: self.current.index,
            max_bytes: self.config.segment_bytes,
            files: (self.segments.count() + self.space.spare_count()) as u64,
            bytes: self.directory_bytes(),
            live_bytes: self.segments.live_bytes(),
            state: match (self.stopped, self.creation) {
                (true, _) => "failed",
                (false, Creation::Failed { passes: false, .. }) => "full",
                (false, _) => "ok",
            },
            ..self.stats
        }
    }

    /// Index of the file that holds the job's record, for `file` in `stats-job`; 0 if there is none.
    #[must_use]
    pub fn file_of(&self, id: JobId) -> u32 {
        self.segments.file_of(id).unwrap_or(0)
    }
}
