//! Appends the server's records: puts, moves, changes of a job's state and deletes.
//!
//! Owns: the check of each for room; those for which there was none are in `unlogged`. Driven by the server, command by
//! command, then by one commit per turn.

use super::Binlog;
use super::appender::MIN_BUFFER_BYTES;
use super::durability::LogMark;
use super::files_ahead::Creation;
use super::room::{JobRoom, Target, file_units};
use super::unlogged::NeededChange;
use crate::attachment::{AttachmentKind, LoggedReservation, MAX_DELETE_UNITS, tag_record_bytes};
use crate::clock::Timestamp;
use crate::format::{DeleteKind, DiskRecord, MAX_BODY_BYTES, SHORT_BYTES, full_record_bytes};
use crate::item::Item;
use crate::job::{BodyRef, JobId, JobRecord, JobState};
use crate::marker::MarkerKind;
use crate::tags::EncodedTags;
use crate::tube_name::TubeName;
use crate::wall_clock::WallTime;
use crate::{BinlogError, NoRoom, SyncPolicy};

/// A job, with all that a record of the whole of it contains.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct WholeJob<'a> {
    pub record: &'a JobRecord,
    pub tube: &'a TubeName,
    pub body: BodyRef<'a>,
    pub tags: EncodedTags<'a>,
    /// Whether it is one of the puts of a `complete`.
    pub is_part_of_complete: bool,
}

impl<'a> WholeJob<'a> {
    /// A job without tags, and not of a `complete`.
    pub fn plain(record: &'a JobRecord, tube: &'a TubeName, body: impl Into<BodyRef<'a>>) -> Self {
        Self { record, tube, body: body.into(), tags: EncodedTags::NONE, is_part_of_complete: false }
    }

    /// The length of its record with the attachment before it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        whole_bytes(self.tube.as_bytes().len(), self.body.len(), &self.tags)
    }
}

/// The length of the record of a whole job with the attachment before it, in bytes.
fn whole_bytes(tube_len: usize, body_len: usize, tags: &EncodedTags<'_>) -> u64 {
    tag_record_bytes(tags.bytes().len()) + full_record_bytes(tube_len, body_len)
}

/// The room for a `complete`: the length of its records, and how many short records they add to the short records that
/// must still find room.
#[derive(Clone, Copy, Debug)]
pub struct CompleteRoom {
    bytes: u64,
    added: u64,
}

impl Binlog {
    // ---- room ----

    /// Checks that job `id` may be acknowledged before it is on the medium. It must wait for a marker if a restart
    /// after a power loss could assign the id to another job.
    ///
    /// # Errors
    /// If it must wait, or if there is no room for the marker.
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

    /// Reserves room for a put, and for the delete of the job after it with all its side effects. `tags` are those of
    /// [`Binlog::append_put`]. The result is valid until the next append.
    ///
    /// # Errors
    /// If it does not fit; nothing has changed.
    pub fn reserve_put(
        &mut self,
        tube_len: usize,
        body_len: usize,
        tags: &EncodedTags<'_>,
    ) -> Result<(), NoRoom> {
        self.reserve_whole(0, tube_len, body_len, tags, 1)
    }

    /// Reserves room for the records of a job that moves to another tube. If a session has reserved the job, also
    /// reserves room for the record of [`Binlog::append_session_reservation`]; `session` has the lengths of the
    /// identity and of the name. The result is valid until the next append.
    ///
    /// # Errors
    /// If they do not fit; nothing has changed.
    pub fn reserve_move(
        &mut self,
        tube_len: usize,
        body_len: usize,
        tags: &EncodedTags<'_>,
        session: Option<(usize, usize)>,
    ) -> Result<(), NoRoom> {
        let session_bytes =
            session.map_or(0, |(identity, name)| LoggedReservation::record_bytes(identity, name));
        // The cooldown contains the name of the tube, so the delete may need more room than before.
        self.reserve_whole(SHORT_BYTES + session_bytes, tube_len, body_len, tags, 0)
    }

    /// Reserves room for the whole of a job with `more` bytes of records. `deletes` is 1 for a new job, because its
    /// delete needs room, too; otherwise 0.
    fn reserve_whole(
        &mut self,
        more: u64,
        tube_len: usize,
        body_len: usize,
        tags: &EncodedTags<'_>,
        deletes: u64,
    ) -> Result<(), NoRoom> {
        if body_len > MAX_BODY_BYTES || self.is_store_full() {
            return Err(NoRoom::Full);
        }
        let bytes = more + whole_bytes(tube_len, body_len, tags);
        // In memory, too: the bytes of the turn contain the body again.
        if !self.has_memory_for(bytes) {
            return Err(NoRoom::Full);
        }
        let added = self.contents.room.units_for(JobRoom::of(tube_len, tags.set(), false)) + deletes;
        self.reserve(bytes, added).map(drop)
    }

    /// Whether the store accepts no more, although there is room in its files. Always false for a directory.
    pub(super) fn is_store_full(&self) -> bool {
        !self.clock.follows_wall && self.storage.is_full()
    }

    /// Reserves room for a change of a job's state. The result is valid until the next append.
    ///
    /// # Errors
    /// If it does not fit; nothing has changed.
    pub fn reserve_update(&mut self) -> Result<(), NoRoom> {
        self.reserve(SHORT_BYTES, 0).map(drop)
    }

    /// The target for a record of `bytes` that adds `added` short records to the short records that must still find
    /// room.
    pub(super) fn reserve(&mut self, bytes: u64, added: u64) -> Result<Target, NoRoom> {
        if self.unlogged.needed.is_empty()
            && let Some(target) = self.contents.room.find(bytes, added + self.kept_units())
        {
            debug_assert!(
                self.contents.room.find(bytes, added).is_some(),
                "an append finds what was reserved"
            );
            return if self.open_up_to(target) { Ok(target) } else { Err(NoRoom::Pending) };
        }
        self.contents.room.want(bytes, added);
        self.prepare_files();
        match self.ahead.creation {
            Creation::UnderWay { .. }
            | Creation::Failed { is_shortage: true, .. }
            | Creation::Interrupted { .. } => Err(NoRoom::Pending),
            Creation::Idle if self.awaits_removal() => Err(NoRoom::Pending),
            Creation::Idle | Creation::Failed { is_shortage: false, .. } => Err(NoRoom::Full),
        }
    }

    /// Makes sure that a record of `bytes` fits into memory. Returns whether it does.
    pub(super) fn has_memory_for(&mut self, bytes: u64) -> bool {
        self.appender.reserve(bytes).is_ok()
    }

    // ---- records ----

    /// Logs the put of a job. The room must have been reserved; before the puts of a `complete` comes
    /// [`Binlog::begin_complete`].
    pub fn append_put(&mut self, job: &WholeJob<'_>, now: Timestamp) {
        debug_assert!(
            self.contents.files.file_of(job.record.id).is_none() || !job.is_part_of_complete,
            "a job that a `complete` puts is in no file"
        );
        self.ids.give(job.record.id);
        self.append_whole(job, 1, now);
    }

    /// Reserves room for all puts of a `complete` in one file with the delete that ends it, and for `updates` changes
    /// of other jobs after them. The result is valid until the next append.
    ///
    /// # Errors
    /// If they do not fit; nothing has changed.
    pub fn reserve_complete<'a>(
        &mut self,
        puts: impl Iterator<Item = (usize, usize, &'a EncodedTags<'a>)>,
        updates: u64,
    ) -> Result<CompleteRoom, NoRoom> {
        if self.is_store_full() {
            return Err(NoRoom::Full);
        }
        let (mut count, mut added) = (0, 0);
        let mut bytes = (MAX_DELETE_UNITS + 1 + updates) * SHORT_BYTES;
        for (tube_len, body_len, tags) in puts {
            if body_len > MAX_BODY_BYTES {
                return Err(NoRoom::Full);
            }
            count += 1;
            bytes += whole_bytes(tube_len, body_len, tags);
            added += 1 + self.contents.room.units_for(JobRoom::of(tube_len, tags.set(), false));
        }
        // A single put may be as long as any other: the next file is made long enough.
        let does_not_fit = count > 1 && bytes > file_units(self.config.file_bytes) * SHORT_BYTES;
        if does_not_fit || !self.has_memory_for(bytes) {
            return Err(NoRoom::Full);
        }
        self.reserve(bytes, added).map(|_| CompleteRoom { bytes, added })
    }

    /// Begins a `complete`, whose puts and delete follow, all of them in one file: the delete that ends its job comes
    /// after its other puts, and without this delete, none of them counts.
    pub fn begin_complete(&mut self, CompleteRoom { bytes, added }: CompleteRoom) {
        match self.contents.room.find(bytes, added) {
            Some(target) => self.enter(target),
            None => return self.fail(BinlogError::NotReserved),
        }
        debug_assert_eq!(
            self.contents.room.find(bytes, added),
            Some(Target::Current),
            "all records of a `complete` go to one file"
        );
    }

    /// Logs the move of a job to another tube. The room must have been reserved. C keeps a job that it knows in its
    /// tube, whatever a further full record says, so a delete precedes that record. This server's replay ignores this
    /// delete, so that a write that ends between the two records loses nothing.
    pub fn append_moved(&mut self, job: &WholeJob<'_>, now: Timestamp) {
        let id = job.record.id;
        let before = self.contents.files.record_bytes(Item::Job(id));
        debug_assert!(before.is_some(), "a job that is moved is in a file");
        self.compaction.note_freed(before.unwrap_or(0));
        self.append_reserved(&DiskRecord::delete(id, DeleteKind::Departure));
        self.contents.room.release_for(id);
        self.append_whole(job, 0, now);
        debug_assert_eq!(
            self.contents.files.file_of(id).is_some(),
            before.is_some(),
            "a move neither adds a job nor removes one"
        );
    }

    /// Logs the whole of a job, and reserves the other room that the job may need. `deletes` is 1 for a new job,
    /// because its delete needs room, too; otherwise 0.
    fn append_whole(&mut self, job: &WholeJob<'_>, deletes: u64, now: Timestamp) {
        debug_assert!(job.record.id.0 < self.ids.next(), "the id of a job that is logged is taken");
        let room = JobRoom::of(job.tube.as_bytes().len(), job.tags.set(), false);
        let added = self.contents.room.units_for(room) + deletes;
        self.append_full(job, added, now);
        self.contents.room.reserve_for(job.record.id, room);
        self.note_state(job.record);
        debug_assert!(
            self.contents.room.is_enough() || self.health.has_failed(),
            "a record leaves the room that is needed"
        );
    }

    /// Logs the states of these jobs as soon as there is room.
    pub(crate) fn log_again(&mut self, jobs: Vec<JobId>) {
        self.unlogged.updates.extend(jobs);
    }

    /// Logs the reservation of a ready job, as [`Binlog::append_update`] does. A restart makes it ready again, with or
    /// without this record, so no reply waits for the record, unless the job would expire without it.
    pub fn append_reservation(&mut self, job: &JobRecord, body_len: usize, now: Timestamp) {
        let awaited = self.appender.awaited();
        if !self.append_update(job, body_len, now) {
            self.appender.await_only(awaited);
        }
    }

    /// Logs a job's new state. The room must have been reserved. `body_len` is the length of its body in bytes. Returns
    /// whether the job would expire without this record.
    pub fn append_update(&mut self, job: &JobRecord, body_len: usize, now: Timestamp) -> bool {
        debug_assert!(self.contents.files.file_of(job.id).is_some(), "a changed job has a record in a file");
        let mut record = DiskRecord::of_job(job, body_len, self.clock.wall);
        self.unlogged.updates.remove(&job.id);
        record.deadline_at = self.update_burial(job, now).unwrap_or(record.deadline_at);
        self.append_reserved(&record);
        self.contents.files.update(job.id);
        self.note_state(job)
    }

    /// Appends a short record for which there is room.
    fn append_reserved(&mut self, record: &DiskRecord) {
        match self.contents.room.find(SHORT_BYTES, 0) {
            Some(target) => self.append_short(record, target),
            None => self.fail(BinlogError::NotReserved),
        }
    }

    /// Notes a job's new state for which there is no room. `body_len` is the length of its body in bytes.
    /// [`Binlog::next_postponed`] returns the job when there is room, unless `is_unneeded`: a restart makes the same of
    /// the job without this record.
    pub fn postpone_update(&mut self, job: &JobRecord, body_len: usize, is_unneeded: bool, now: Timestamp) {
        debug_assert!(self.contents.files.file_of(job.id).is_some(), "a changed job has a record in a file");
        let _ = self.update_burial(job, now);
        if !self.append_first_reservation(job, body_len) && !is_unneeded {
            self.unlogged.updates.insert(job.id);
        }
    }

    /// Whether the log lacks the state of this job, for which there was no room.
    #[must_use]
    pub fn lacks_state_of(&self, id: JobId) -> bool {
        self.unlogged.updates.contains(&id)
    }

    /// Whether the log lacks the state of any job.
    #[must_use]
    pub fn lacks_states(&self) -> bool {
        !self.unlogged.updates.is_empty()
    }

    /// A job whose state was postponed, if there is room for it now. The caller appends it with
    /// [`Binlog::append_update`] and calls this again.
    pub fn next_postponed(&mut self) -> Option<JobId> {
        let id = *self.unlogged.updates.first()?;
        self.reserve_update().is_ok().then_some(id)
    }

    /// Notes that the job was buried, after all others. The record that says so follows.
    pub fn note_burial(&mut self, id: JobId, now: Timestamp) {
        self.contents.burials.bury(id, self.clock.wall.to_disk(now));
    }

    /// Keeps the burial of a job that is buried, and returns when that was. Otherwise the log forgets its last burial.
    fn update_burial(&mut self, job: &JobRecord, now: Timestamp) -> Option<WallTime> {
        let burials = &mut self.contents.burials;
        if job.state == JobState::Buried {
            return Some(
                burials.time(job.id).unwrap_or_else(|| burials.bury(job.id, self.clock.wall.to_disk(now))),
            );
        }
        burials.forget(job.id);
        None
    }

    /// Logs the delete of a job. There is always room for this.
    pub fn append_delete(&mut self, id: JobId) {
        self.unlogged.updates.remove(&id);
        self.contents.burials.forget(id);
        let appended = self.appended();
        let Some(freed) = self.contents.files.remove(Item::Job(id)) else { return };
        self.compaction.note_freed(freed);
        self.contents.room.release_for(id);
        self.append_needed(NeededChange::Delete(id));
        debug_assert_eq!(
            self.appended().0,
            appended.0 + 1,
            "a delete is one record, now or as soon as there is room"
        );
    }

    /// Logs the delete of a job that is no longer in any file.
    pub(crate) fn append_deletion(&mut self, id: JobId) {
        debug_assert!(self.contents.files.file_of(id).is_none(), "the deleted job is in no file");
        self.contents.room.need(1);
        self.append_needed(NeededChange::Delete(id));
    }

    /// Logs a change that must find room, as soon as there is room. Its need has already been counted.
    pub(super) fn append_needed(&mut self, change: NeededChange) {
        debug_assert!(
            !matches!(change, NeededChange::Delete(id) if self.contents.files.file_of(id).is_some()),
            "a job leaves its file before its delete is logged"
        );
        self.unlogged.needed.push(change);
        self.log_needed();
    }

    /// Logs the unlogged changes that must find room, as far as there is room.
    pub(super) fn log_needed(&mut self) {
        while let Some(change) = self.unlogged.needed.first() {
            let units = match change {
                NeededChange::Delete(id) => self.unlogged.delete_units(id),
                NeededChange::FirstReservation(_) | NeededChange::EndOfCooldown(_) => 1,
            };
            let was_enough = self.contents.room.is_enough();
            let Some(target) = self.contents.room.find_for_needed(units) else { return };
            if !self.open_up_to(target) {
                return;
            }
            self.unlogged.needed.pop();
            self.append_unlogged(change, target);
            self.contents.room.release(units);
            debug_assert!(self.contents.room.is_enough() || !was_enough, "the others still find room");
        }
    }

    /// Logs the whole of a job. It adds at most `added` short records to the short records that must still find room.
    pub(super) fn append_full(&mut self, job: &WholeJob<'_>, added: u64, now: Timestamp) {
        let WholeJob { record: &JobRecord { id, .. }, tube, body, tags, is_part_of_complete } = *job;
        let (tube, tags) = (tube.as_bytes(), tags.bytes());
        let bytes = job.bytes();
        let Some(target) = self.contents.room.find(bytes, added) else {
            return self.fail(BinlogError::NotReserved);
        };
        self.enter(target);
        let mut record = DiskRecord::of_job(job.record, body.len(), self.clock.wall);
        record.deadline_at = self.update_burial(job.record, now).unwrap_or(record.deadline_at);
        if is_part_of_complete {
            record = record.as_part_of_complete();
        }
        if !tags.is_empty() {
            record = record.with_tags();
            self.push_attachment(AttachmentKind::Tags, id, tags);
        }
        self.append_record(&record, tube, Some(body), full_record_bytes(tube.len(), body.len()));
        self.durability.append_job(id);
        let was_there = self.contents.files.place(Item::Job(id), self.appender.file(), bytes);
        debug_assert_eq!(
            (self.contents.files.file_of(id), self.contents.files.record_bytes(Item::Job(id))),
            (Some(self.appender.file()), Some(bytes)),
            "the full record of the job is the one that was appended"
        );
        self.contents.room.need(u64::from(!was_there));
        self.unlogged.updates.remove(&id);
    }

    pub(super) fn append_short(&mut self, record: &DiskRecord, target: Target) {
        self.enter(target);
        self.make_memory(SHORT_BYTES);
        self.append_record(record, &[], None, SHORT_BYTES);
    }

    /// Makes sure that `bytes` of short records have memory, which must not fail: if the buffer cannot grow, it is
    /// written. They fit into an empty one.
    pub(super) fn make_memory(&mut self, bytes: u64) {
        debug_assert!(bytes + 2 * SHORT_BYTES <= MIN_BUFFER_BYTES as u64, "an empty buffer has room");
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
        self.contents.room.take(bytes);
        let end = self.appender.end().offset + bytes;
        let is_full = self.appender.push_record(record, tube, body);
        debug_assert_eq!(self.appender.end().offset, end, "the record ends where its room ends");
        if is_full {
            self.write_buffer();
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
        self.durability.wrote(LogMark { end, sequence: self.appender.appended(), ids: self.ids.announced() });
    }
}
