//! Appending and committing: records and markers become bytes, and the bytes of a turn become one write.
//!
//! Owns: the end of the log and the bytes that are not written yet, in [`Appender`]; the records for which there was no
//! room, in [`Unlogged`]. The calls of the server that log something are here. Driven by the server, command by command,
//! then by one commit per turn.

use std::collections::{BTreeMap, BTreeSet, TryReserveError};

use super::Binlog;
use super::aftermath::UnloggedAftermaths;
use super::durability::Mark;
use super::files_ahead::Creation;
use super::space::Target;
use crate::attachment::{Kind, Part, tag_record_bytes};
use crate::clock::Timestamp;
use crate::format::{DiskRecord, MAX_BODY_BYTES, SHORT_BYTES, Seal, TRAILER, WallOffset, full_record_bytes};
use crate::id_queue::IdQueue;
use crate::job::{BodyRef, JobId, JobRecord, JobState};
use crate::marker::{CLOCK_STEP_NS, HEAD_BYTES, Marker, MarkerKind};
use crate::tube_name::TubeName;
use crate::{BinlogError, LogPosition, NoRoom, SequenceNumber, SyncPolicy};

/// When the bytes of a turn are more than this, they are written before the turn ends, so that the buffer
/// is never much larger than one record. A larger buffer is given back after the turn.
const BUFFER_KEEP_BYTES: usize = 1024 * 1024;

/// The buffer is never smaller, so that an empty one has room for short records and markers, whose appending must not
/// fail for lack of memory.
const LEAST_BUFFER_BYTES: usize = 4096;

/// The end of the log, and the bytes that are to be appended there.
#[derive(Debug)]
pub(super) struct Appender {
    /// Where the next write begins.
    at: LogPosition,
    seal: Seal,
    /// What the next write holds.
    buffer: Vec<u8>,
    /// Whether the buffer holds more than a marker that can wait for the next record.
    must_write: bool,
    /// Length of the records of this turn in bytes, written already or not.
    turn_bytes: u64,
    appended: SequenceNumber,
    /// The last record that replies wait for: not that of a reservation that changes nothing else.
    awaited: SequenceNumber,
}

impl Appender {
    /// An appender at `end`, the end of an older file, to which nothing can be appended.
    pub(super) fn after(end: LogPosition) -> Self {
        Self {
            at: end,
            seal: Seal { nonce: 0 },
            buffer: Vec::with_capacity(LEAST_BUFFER_BYTES),
            must_write: false,
            turn_bytes: 0,
            appended: SequenceNumber::default(),
            awaited: SequenceNumber::default(),
        }
    }

    /// Index of the file to which records are appended.
    pub(super) fn file(&self) -> u32 {
        self.at.file
    }

    /// Whether the file is one of this run, to which records can be appended.
    pub(super) fn has_file(&self) -> bool {
        self.seal.nonce != 0
    }

    /// Where the log ends once the buffer is written.
    pub(super) fn end(&self) -> LogPosition {
        LogPosition { file: self.at.file, offset: self.at.offset + self.buffer.len() as u64 }
    }

    /// Goes on in file `file`, behind its head.
    pub(super) fn begin_file(&mut self, file: u32, nonce: u64) {
        assert!(self.buffer.is_empty(), "the bytes of a file are written before the next file begins");
        assert!(nonce != 0, "a file of this server has a nonce");
        self.at = LogPosition { file, offset: HEAD_BYTES };
        self.seal = Seal { nonce };
    }

    /// The last record so far.
    pub(super) fn appended(&self) -> SequenceNumber {
        self.appended
    }

    /// The last record so far that replies wait for.
    pub(super) fn awaited(&self) -> SequenceNumber {
        self.awaited
    }

    /// Of the records so far, replies wait for those up to `awaited` alone.
    pub(super) fn await_only(&mut self, awaited: SequenceNumber) {
        debug_assert!(awaited <= self.awaited, "a record that is awaited stays so");
        self.awaited = awaited;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Whether the buffer holds more than a marker that can wait for the next record.
    pub(super) fn must_write(&self) -> bool {
        self.must_write
    }

    /// The buffer has to be written by the next commit, whatever it holds.
    pub(super) fn require_write(&mut self) {
        self.must_write = !self.buffer.is_empty();
    }

    /// Makes sure that a record of `bytes` fits into memory, with the markers around it if it begins a new file.
    fn reserve(&mut self, bytes: u64) -> Result<(), TryReserveError> {
        let bytes = (bytes + 2 * SHORT_BYTES) as usize;
        // A large record gets exactly what it needs. For small ones the buffer must not grow one by one.
        if bytes > BUFFER_KEEP_BYTES {
            self.buffer.try_reserve_exact(bytes)
        } else {
            self.buffer.try_reserve(bytes)
        }
    }

    /// Appends an attachment. What follows at once makes it count: its record, or [`Appender::count_record`].
    pub(super) fn push_attachment(&mut self, kind: Kind, job: JobId, bytes: &[u8]) {
        let start = self.buffer.len();
        for part in Part::all(kind, job, bytes) {
            let offset = self.end().offset;
            self.buffer.extend_from_slice(&part.encode(self.seal, offset));
        }
        self.turn_bytes += (self.buffer.len() - start) as u64;
    }

    /// An attachment is a record of its own. Returns whether the buffer is full.
    pub(super) fn count_record(&mut self) -> bool {
        self.count()
    }

    fn count(&mut self) -> bool {
        self.appended.0 += 1;
        self.awaited = self.appended;
        self.must_write = true;
        self.buffer.len() > BUFFER_KEEP_BYTES
    }

    /// Appends a record; a short one has no name and no body. Returns whether the buffer is full.
    fn push_record(&mut self, record: &DiskRecord, tube: &[u8], body: Option<BodyRef<'_>>) -> bool {
        let start = self.buffer.len();
        let offset = self.end().offset;
        self.buffer.extend_from_slice(&(tube.len() as i32).to_le_bytes());
        self.buffer.extend_from_slice(tube);
        let fixed_at = self.buffer.len() - start;
        self.buffer.extend_from_slice(&record.encode());
        if let Some(body) = body {
            self.buffer.extend_from_slice(body.as_slice());
            self.buffer.extend_from_slice(TRAILER);
        }
        self.seal.apply(&mut self.buffer[start..], fixed_at, offset);
        self.turn_bytes += (self.buffer.len() - start) as u64;
        self.count()
    }

    /// Appends a marker, which waits for the next write unless [`Appender::require_write`] says otherwise.
    pub(super) fn push_marker(&mut self, marker: &Marker) {
        let offset = self.end().offset;
        self.buffer.extend_from_slice(&marker.encode(self.seal, offset));
    }

    /// Drops a marker that waits for the next write.
    pub(super) fn drop_waiting_marker(&mut self) {
        debug_assert!(
            !self.must_write && self.buffer.len() as u64 <= SHORT_BYTES,
            "only a marker can be dropped"
        );
        self.buffer.clear();
    }

    /// The next write: where, and what.
    pub(super) fn next_write(&self) -> (LogPosition, &[u8]) {
        (self.at, &self.buffer)
    }

    /// The store has taken the buffer.
    pub(super) fn wrote(&mut self) {
        self.at = self.end();
        self.buffer.clear();
        self.must_write = false;
    }

    /// Ends the turn. Returns the length of its records in bytes, without those that were copied.
    pub(super) fn end_turn(&mut self) -> u64 {
        std::mem::take(&mut self.turn_bytes)
    }

    /// Gives back a buffer that a large record has needed.
    pub(super) fn trim(&mut self) {
        self.buffer.shrink_to(BUFFER_KEEP_BYTES);
    }

    /// The last `bytes` were copies, which do not count among the records of the turn.
    pub(super) fn uncount(&mut self, bytes: u64) {
        self.turn_bytes = self.turn_bytes.saturating_sub(bytes);
    }

    /// Drops the buffer: the log has ended.
    fn discard(&mut self) {
        self.buffer = Vec::new();
        self.must_write = false;
    }
}

/// What the log lacks because there was no room for it.
#[derive(Debug, Default)]
pub(super) struct Unlogged {
    /// Jobs that are deleted, in the order of their deletion. They are logged before anything else. Only a restart on
    /// a full disk, or a lack of descriptors, leaves no room for a delete.
    pub(super) deletes: IdQueue,
    /// What some of them lead to.
    pub(super) aftermaths: UnloggedAftermaths,
    /// First reservations of jobs that expire, which stand in line among the deletes.
    pub(super) reservations: BTreeMap<JobId, DiskRecord>,
    /// Jobs whose newest state is to be logged as soon as the next file is there.
    pub(super) updates: BTreeSet<JobId>,
}

impl Binlog {
    // ---- room ----

    /// Whether job `id` may be acknowledged before it is on the medium. It must wait for a marker if a restart after a
    /// loss of power could give the id to another job.
    ///
    /// # Errors
    /// If it has to wait, or if there is no room for the marker.
    pub fn reserve_id(&mut self, id: JobId) -> Result<(), NoRoom> {
        let durable = self.durability.durable().ids;
        if !matches!(self.config.sync, SyncPolicy::Every(_)) || !self.ids.is_near(id, durable) {
            return Ok(());
        }
        if self.ids.must_announce(id, durable) {
            self.ids.give(id);
            self.append_marker(MarkerKind::Durable)?;
        }
        self.durability.hurry();
        if id.0 < durable { Ok(()) } else { Err(NoRoom::Pending) }
    }

    /// Whether a put fits, and the delete of the job after it with all that this may lead to. `tags` are those of
    /// [`Binlog::append_put`]. The answer holds until the next append.
    ///
    /// # Errors
    /// If it does not fit; nothing has changed.
    pub fn reserve_put(&mut self, tube_len: usize, body_len: usize, tags: &[u8]) -> Result<(), NoRoom> {
        if body_len > MAX_BODY_BYTES || self.is_store_full() {
            return Err(NoRoom::Full);
        }
        let bytes = tag_record_bytes(tags.len()) + full_record_bytes(tube_len, body_len);
        // In memory, too: the bytes of the turn hold the body once more.
        self.appender.reserve(bytes).map_err(|_| NoRoom::Full)?;
        let promised = if tags.is_empty() { 0 } else { self.promise_for(tube_len, tags) };
        self.reserve(bytes, self.live_units() + promised + 1)
    }

    /// Whether the store takes no more, although there is room in its files. A directory is not asked.
    pub(super) fn is_store_full(&self) -> bool {
        !self.follows_wall && self.storage.is_full()
    }

    /// Whether a change of a job's state fits. The answer holds until the next append.
    ///
    /// # Errors
    /// If it does not fit; nothing has changed.
    pub fn reserve_update(&mut self) -> Result<(), NoRoom> {
        self.reserve(SHORT_BYTES, self.live_units())
    }

    pub(super) fn reserve(&mut self, bytes: u64, deletes: u64) -> Result<(), NoRoom> {
        if self.unlogged.deletes.is_empty()
            && let Some(target) = self.ahead.space.find(bytes, deletes + self.kept_units())
        {
            return if self.open_up_to(target) { Ok(()) } else { Err(NoRoom::Pending) };
        }
        self.ahead.want(bytes, deletes);
        self.prepare_files();
        match self.ahead.creation {
            Creation::UnderWay { .. } | Creation::Failed { is_shortage: true, .. } => Err(NoRoom::Pending),
            Creation::Idle if self.awaits_removal() => Err(NoRoom::Pending),
            Creation::Idle | Creation::Failed { is_shortage: false, .. } => Err(NoRoom::Full),
        }
    }

    /// Makes sure that a record of `bytes` fits into memory. Returns whether it does.
    pub(super) fn has_memory_for(&mut self, bytes: u64) -> bool {
        self.appender.reserve(bytes).is_ok()
    }

    // ---- records ----

    /// Logs a job that was put. The room must have been reserved. `tags` are empty, or as
    /// [`TagSet::encode`](crate::tags::TagSet::encode) makes them.
    pub fn append_put<'a>(
        &mut self,
        job: &JobRecord,
        tube: &TubeName,
        body: impl Into<BodyRef<'a>>,
        tags: &[u8],
        now: Timestamp,
    ) {
        self.ids.give(job.id);
        let promised = if tags.is_empty() { 0 } else { self.promise_for(tube.as_bytes().len(), tags) };
        self.append_full(job, tube, body.into(), tags, self.live_units() + promised + 1, now);
    }

    /// The states of these jobs are to be logged as soon as there is room.
    pub(crate) fn log_again(&mut self, jobs: Vec<JobId>) {
        self.unlogged.updates.extend(jobs);
    }

    /// Logs a job's new state. The room must have been reserved. `body_len` is the length of its body in bytes.
    pub fn append_update(&mut self, job: &JobRecord, body_len: usize, now: Timestamp) {
        let mut record = DiskRecord::of_job(job, body_len, self.wall);
        let is_burial_noted = self.unlogged.updates.remove(&job.id)
            && job.state == JobState::Buried
            && self.burials.time(job.id).is_some();
        if !is_burial_noted {
            self.note_burial(job, now);
        }
        if let Some(time) = self.burials.time(job.id) {
            record.deadline_at = time;
        }
        let awaited = self.appender.awaited();
        match self.ahead.space.find(SHORT_BYTES, self.live_units()) {
            Some(target) => self.append_short(&record, target),
            None => self.fail(BinlogError::NotReserved),
        }
        self.files.update(job.id);
        let ends_expiry = self.note_state(job);
        if job.state == JobState::Reserved && !ends_expiry {
            // A restart makes the job ready again, with this record and without it.
            self.appender.await_only(awaited);
        }
    }

    /// Notes a job's new state for which there is `no_room`. `body_len` is that of its body in bytes. If room is to come, [`Binlog::next_postponed`]
    /// asks for the state then. On a full disk the state stays unlogged until the job's next change: the room that
    /// comes there is for commands that are refused without it.
    pub fn postpone_update(&mut self, job: &JobRecord, body_len: usize, no_room: NoRoom, now: Timestamp) {
        self.note_burial(job, now);
        if !self.append_first_reservation(job, body_len) && no_room == NoRoom::Pending {
            self.unlogged.updates.insert(job.id);
        }
    }

    /// A job whose state was postponed, if there is room for the state now. The caller appends it with
    /// [`Binlog::append_update`] and asks again.
    pub fn next_postponed(&mut self) -> Option<JobId> {
        let id = *self.unlogged.updates.first()?;
        self.reserve_update().is_ok().then_some(id)
    }

    /// Notes when the job was buried, if its new state is buried.
    fn note_burial(&mut self, job: &JobRecord, now: Timestamp) {
        if job.state == JobState::Buried {
            self.burials.bury(job.id, self.wall.to_disk(now));
        } else {
            self.burials.forget(job.id);
        }
    }

    /// Logs that a job was deleted. There is always room for this.
    pub fn append_delete(&mut self, id: JobId) {
        self.unlogged.updates.remove(&id);
        let full_bytes = self.files.full_bytes();
        if !self.files.remove(id) {
            return;
        }
        self.compaction.note_freed(full_bytes - self.files.full_bytes());
        self.release_promise(id);
        self.append_deletion(id);
    }

    /// Logs the deletion of a job that is in no file any more.
    pub(crate) fn append_deletion(&mut self, id: JobId) {
        self.burials.forget(id);
        self.unlogged.deletes.push(id);
        self.log_deletes();
    }

    /// Logs the deletes that are not logged yet, as far as there is room.
    pub(super) fn log_deletes(&mut self) {
        while let Some(id) = self.unlogged.deletes.first() {
            let units = self.unlogged.aftermaths.delete_units(id);
            let (bytes, deletes) = (units * SHORT_BYTES, self.needed_deletes() - units);
            // There can be less room than that only after a restart with too few files for all the deletes. The
            // deletes then take what room there is, in their order.
            let space = &self.ahead.space;
            let target = space.find_exactly(bytes, deletes).or_else(|| space.find_exactly(bytes, 0));
            let Some(target) = target else { return };
            if !self.open_up_to(target) {
                return;
            }
            self.unlogged.deletes.pop();
            self.append_unlogged(id, target);
        }
    }

    /// For how many short records there must be room: the deletes of all jobs that are alive and those that are not logged
    /// yet, each with what it leads to.
    pub(super) fn needed_deletes(&self) -> u64 {
        self.live_units() + self.unlogged.deletes.len() as u64 + self.unlogged.aftermaths.units()
    }

    /// Logs the whole of a job such that `deletes` short records find room after it.
    pub(super) fn append_full(
        &mut self,
        job: &JobRecord,
        tube: &TubeName,
        body: BodyRef<'_>,
        tags: &[u8],
        deletes: u64,
        now: Timestamp,
    ) {
        let tube = tube.as_bytes();
        let record_bytes = full_record_bytes(tube.len(), body.len());
        let bytes = tag_record_bytes(tags.len()) + record_bytes;
        let Some(target) = self.ahead.space.find(bytes, deletes) else {
            return self.fail(BinlogError::NotReserved);
        };
        self.enter(target);
        let mut record = DiskRecord::of_job(job, body.len(), self.wall);
        if job.state == JobState::Buried {
            let time = self.burials.time(job.id);
            record.deadline_at = time.unwrap_or_else(|| self.burials.bury(job.id, self.wall.to_disk(now)));
        }
        if !tags.is_empty() {
            record = record.with_tags();
            self.push_attachment(Kind::Tags, job.id, tags);
        }
        self.append_record(&record, tube, Some(body), record_bytes);
        self.durability.append_job(job.id);
        self.files.place(job.id, self.appender.file(), bytes);
        self.keep_promise(job, tube.len(), tags);
        self.unlogged.updates.remove(&job.id);
    }

    pub(super) fn append_short(&mut self, record: &DiskRecord, target: Target) {
        self.enter(target);
        self.make_memory(SHORT_BYTES);
        self.append_record(record, &[], None, SHORT_BYTES);
    }

    /// Makes sure that `bytes` of short records find memory, which must not fail: if the buffer cannot grow, it is
    /// written. They fit into an empty one.
    pub(super) fn make_memory(&mut self, bytes: u64) {
        debug_assert!(bytes + 2 * SHORT_BYTES <= LEAST_BUFFER_BYTES as u64, "an empty buffer has room");
        if self.appender.reserve(bytes).is_err() {
            self.write_buffer();
        }
    }

    pub(super) fn append_record(
        &mut self,
        record: &DiskRecord,
        tube: &[u8],
        body: Option<BodyRef<'_>>,
        bytes: u64,
    ) {
        self.ahead.space.take(bytes);
        if self.appender.push_record(record, tube, body) {
            self.write_buffer();
        }
    }

    // ---- markers ----

    fn marker(&self, kind: MarkerKind) -> Marker {
        Marker {
            kind,
            file: self.appender.file(),
            next_job_id: self.ids.announced_by(kind),
            durable: self.durability.durable().end,
            oldest: self.compaction.oldest_needed(&self.files),
            sync: self.config.sync,
            time: self.wall.to_disk(self.last_turn_at),
        }
    }

    /// The marker in the header of file `file`, which is to be made with `bytes`.
    pub(super) fn header(&self, file: u32, bytes: u64) -> Marker {
        Marker { file, ..self.marker(MarkerKind::Header(bytes)) }
    }

    /// Puts a marker behind the bytes of the turn; the caller has found room for it.
    pub(super) fn push_marker(&mut self, kind: MarkerKind) {
        let marker = self.marker(kind);
        self.ids.note_announced(marker.next_job_id);
        self.appender.push_marker(&marker);
        self.durability.note_marked();
        if matches!(kind, MarkerKind::Durable | MarkerKind::Closed) {
            self.time_mark_at = None;
        }
    }

    /// Logs where an old file ends. Before the server serves, this takes precedence over the room for deletes.
    pub(crate) fn append_cut(&mut self, end: LogPosition) -> Result<(), NoRoom> {
        let Some(target) = self.ahead.space.find_exactly(SHORT_BYTES, 0) else {
            self.make_next_file();
            return Err(NoRoom::Pending);
        };
        self.append_marker_at(MarkerKind::Cut(end), target);
        Ok(())
    }

    pub(super) fn append_marker(&mut self, kind: MarkerKind) -> Result<(), NoRoom> {
        let target = self.ahead.space.find_exactly(SHORT_BYTES, self.needed_deletes()).ok_or(NoRoom::Full)?;
        if !self.open_up_to(target) {
            return Err(NoRoom::Pending);
        }
        self.append_marker_at(kind, target);
        Ok(())
    }

    fn append_marker_at(&mut self, kind: MarkerKind, target: Target) {
        self.enter(target);
        self.make_memory(SHORT_BYTES);
        self.ahead.space.take(SHORT_BYTES);
        self.push_marker(kind);
        self.appender.require_write();
    }

    /// Has the next write begin with a marker that says what is durable. If room is short, there is no marker.
    pub(super) fn mark_durable(&mut self) {
        if self.durability.is_marked() {
            return;
        }
        if self.appender.is_empty() {
            let deletes = self.needed_deletes() + self.kept_units();
            if self.ahead.space.find(SHORT_BYTES, deletes) == Some(Target::Current) {
                self.ahead.space.take(SHORT_BYTES);
                self.push_marker(MarkerKind::Durable);
            }
        } else if !self.appender.must_write() {
            // A later sync is done, and the marker for the one before has not been written yet.
            self.appender.drop_waiting_marker();
            self.push_marker(MarkerKind::Durable);
        }
    }

    // ---- the write ----

    /// Appends the bytes of the turn to the store.
    pub(super) fn write_buffer(&mut self) {
        if self.health.has_failed() {
            return self.appender.discard();
        }
        if self.appender.is_empty() {
            return;
        }
        let (at, bytes) = self.appender.next_write();
        if let Err(error) = self.storage.append(at, bytes) {
            self.appender.discard();
            return self.fail(BinlogError::Write { file: at.file, offset: at.offset, error });
        }
        self.appender.wrote();
        let end = self.appender.end();
        self.durability.wrote(Mark { end, sequence: self.appender.appended(), ids: self.ids.announced() });
    }

    /// The difference between the wall clock and the clock in memory, in nanoseconds. It has no effect if the store has a
    /// clock of its own.
    pub fn set_wall_offset(&mut self, wall_offset_ns: i64) {
        if !self.follows_wall {
            return;
        }
        let is_set_back =
            wall_offset_ns < self.wall.0.saturating_sub(CLOCK_STEP_NS) && self.appender.has_file();
        if is_set_back {
            // Which delays have ended is known by the clock of before. If there is no room for that, they may last longer.
            let _ = self.append_marker(MarkerKind::Durable);
        }
        self.wall = WallOffset(wall_offset_ns);
        if is_set_back {
            let _ = self.append_marker(MarkerKind::Durable);
        }
    }

    /// Has the log say what time it is before it goes on, because the wall clock was set back since it was written.
    pub(crate) fn tell_time(&mut self, now: Timestamp) -> Result<(), NoRoom> {
        self.last_turn_at = now;
        self.append_marker(MarkerKind::Durable)
    }
}
