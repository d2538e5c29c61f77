//! Tags, deletes that start a cooldown or free a group, and first reservations that end an expiry.
//!
//! Owns: the records of these. Those for which there was no room are in `unlogged`, and the cooldowns in the contents
//! of the log. A delete and its side effects are one write to one file, and so are a job and its tags. Driven by the
//! server.

use super::Binlog;
use super::room::Target;
use super::unlogged::{NeededChange, UnloggedSideEffects};
use crate::NoRoom;
use crate::attachment::{AttachmentKind, Cooldown, LoggedReservation, SideEffects, parts};
use crate::clock::Timestamp;
use crate::format::{DeleteKind, DiskRecord, SHORT_BYTES};
use crate::item::Item;
use crate::job::{JobId, JobRecord};
use crate::replay::RestoredReservation;

impl Binlog {
    // ---- first reservations ----

    /// Notes that the log has this state of a job. Returns whether the job would expire without this record.
    pub(super) fn note_state(&mut self, job: &JobRecord) -> bool {
        job.counters.reserves > 0 && self.contents.room.release_first_reservation(job.id)
    }

    /// Logs a state although there is no other room, if it is the first reservation of a job that expires: room was
    /// reserved for that, and replies wait for it. Returns whether the state is one.
    pub(super) fn append_first_reservation(&mut self, job: &JobRecord, body_len: usize) -> bool {
        let is_one = self.note_state(job);
        if is_one {
            debug_assert!(
                !self.unlogged.reservations.contains_key(&job.id),
                "a job has one first reservation"
            );
            let record = DiskRecord::of_job(job, body_len, self.clock.wall);
            self.unlogged.reservations.insert(job.id, record);
            self.contents.room.need(1);
            self.append_needed(NeededChange::FirstReservation(job.id));
        }
        is_one
    }

    /// Bytes of the newest states of all jobs and of all cooldowns, with the room for their deletes and the side
    /// effects of these.
    pub(super) fn live_bytes(&self) -> u64 {
        self.contents.files.live_bytes() + self.contents.room.reserved_bytes()
    }

    // ---- deletes ----

    /// Logs the delete of a job and its side effects as one change. There is always room for this if the tags were
    /// passed when the job was put: for a cooldown if they have an idempotency key with one, for a group if they have
    /// one.
    pub fn append_delete_with(&mut self, id: JobId, side_effects: &SideEffects<'_>) {
        let SideEffects { cooldown, freed_group, completes } = *side_effects;
        if (cooldown.is_some() || freed_group.is_some() || completes.is_some())
            && self.contents.files.file_of(id).is_some()
        {
            debug_assert!(!self.unlogged.side_effects.contains_key(&id), "a job is deleted once");
            let cooldown = cooldown.map(|cooldown| cooldown.encode(self.clock.wall));
            let freed_group = freed_group.map(Box::from);
            let side_effects = UnloggedSideEffects { cooldown, freed_group, completes };
            self.contents.room.need(side_effects.needed_units());
            self.unlogged.side_effects.insert(id, side_effects);
        }
        self.append_delete(id);
    }

    /// Logs one of the changes that must find room, at `target`.
    pub(super) fn append_unlogged(&mut self, change: NeededChange, target: Target) {
        match change {
            NeededChange::Delete(id) => self.append_unlogged_delete(id, target),
            NeededChange::FirstReservation(id) => {
                let Some(record) = self.unlogged.reservations.remove(&id) else { return };
                self.append_short(&record, target);
                self.contents.files.update(id);
            }
            NeededChange::EndOfCooldown(id) => {
                self.enter(target);
                self.append_alone(AttachmentKind::Forgets, id, &[]);
            }
        }
    }

    fn append_unlogged_delete(&mut self, id: JobId, target: Target) {
        debug_assert!(self.contents.files.file_of(id).is_none(), "a job leaves its file before its delete");
        let Some(side_effects) = self.unlogged.side_effects.remove(&id) else {
            return self.append_short(&DiskRecord::delete(id, DeleteKind::Plain), target);
        };
        debug_assert!(
            side_effects.units() > 0,
            "without side effects, the delete of job {id:?} is a plain one"
        );
        self.enter(target);
        self.make_memory((side_effects.units() + 1) * SHORT_BYTES);
        if let Some(bytes) = &side_effects.cooldown {
            self.push_attachment(AttachmentKind::DeleteCooldown, id, bytes);
        }
        if let Some(group) = &side_effects.freed_group {
            self.push_attachment(AttachmentKind::DeleteFrees, id, group.as_bytes());
        }
        let file = self.appender.file();
        let kind = match side_effects.completes {
            Some(count) => {
                self.push_attachment(AttachmentKind::Completes, id, &[count]);
                DeleteKind::Completion
            }
            None => DeleteKind::WithSideEffects,
        };
        self.append_record(&DiskRecord::delete(id, kind), &[], None, SHORT_BYTES);
        if let Some(bytes) = side_effects.cooldown {
            self.contents.files.place(Item::Cooldown(id), file, parts(bytes.len()) * SHORT_BYTES);
            let is_one = self.contents.cooldowns.insert(id, bytes);
            debug_assert!(is_one, "the cooldown of job {id:?} reads back");
            debug_assert!(
                self.contents.files.record_bytes(Item::Cooldown(id)).is_some(),
                "a cooldown is in the file of its delete"
            );
        }
    }

    /// Appends the parts of an attachment, for which there is room and memory, before the record that follows.
    pub(super) fn push_attachment(&mut self, kind: AttachmentKind, job: JobId, bytes: &[u8]) {
        let taken = parts(bytes.len()) * SHORT_BYTES;
        self.contents.room.take(taken);
        let end = self.appender.end().offset + taken;
        self.appender.push_attachment(kind, job, bytes);
        debug_assert_eq!(
            self.appender.end().offset,
            end,
            "an attachment takes the room that was found for it"
        );
    }

    /// Appends an attachment that needs no record.
    fn append_alone(&mut self, kind: AttachmentKind, job: JobId, bytes: &[u8]) {
        self.make_memory(parts(bytes.len()) * SHORT_BYTES);
        self.push_attachment(kind, job, bytes);
        if self.appender.count_record() {
            self.write_buffer();
        }
    }

    // ---- sessions ----

    /// The reservations of sessions that the replay has found.
    pub fn take_restored_reservations(&mut self) -> Vec<RestoredReservation> {
        std::mem::take(&mut self.restored_reservations)
    }

    /// Notes that sessions have reserved jobs.
    pub(crate) fn note_session_reservations(&mut self) {
        self.compaction.note_session_reservation();
    }

    /// Reserves room for the record of a session's reservation, whose identity and name have these lengths. The result
    /// is valid until the next append.
    ///
    /// # Errors
    /// If it does not fit; nothing has changed.
    pub fn reserve_for_session(&mut self, identity_len: usize, name_len: usize) -> Result<(), NoRoom> {
        self.reserve(LoggedReservation::record_bytes(identity_len, name_len), 0).map(drop)
    }

    /// Logs that a session has reserved the job, or that the end of its reservation has changed. No record before it
    /// says that the job is reserved: after a crash between the two, it would be ready, even if it was delayed or
    /// buried.
    ///
    /// # Errors
    /// If there is no room; nothing has changed.
    pub fn append_session_reservation(
        &mut self,
        id: JobId,
        reservation: &LoggedReservation<'_>,
    ) -> Result<(), NoRoom> {
        debug_assert!(self.contents.files.file_of(id).is_some(), "a reserved job has a record in a file");
        let target = self.reserve(
            LoggedReservation::record_bytes(reservation.identity.len(), reservation.name.len()),
            0,
        )?;
        self.append_session_reservation_at(target, id, reservation);
        self.contents.files.update(id);
        self.contents.burials.forget(id);
        // The job does not expire any more.
        self.contents.room.release_first_reservation(id);
        Ok(())
    }

    /// Logs again that a session has reserved a job that was just copied. [`Binlog::next_migration`] has found the
    /// room.
    ///
    /// # Errors
    /// If there is no room; nothing has changed.
    pub fn append_session_reservation_copy(
        &mut self,
        id: JobId,
        reservation: &LoggedReservation<'_>,
    ) -> Result<(), NoRoom> {
        debug_assert!(self.contents.files.file_of(id).is_some(), "a job that was copied is in a file");
        let bytes = LoggedReservation::record_bytes(reservation.identity.len(), reservation.name.len());
        let target = self.contents.room.find(bytes, 0).ok_or(NoRoom::Full)?;
        if !self.open_up_to(target) {
            return Err(NoRoom::Pending);
        }
        self.append_session_reservation_at(target, id, reservation);
        // As for the job: copies that count as news would pay for further copies, without an end.
        self.appender.uncount(bytes);
        self.compaction.pay(bytes);
        Ok(())
    }

    fn append_session_reservation_at(
        &mut self,
        target: Target,
        id: JobId,
        reservation: &LoggedReservation<'_>,
    ) {
        self.compaction.note_session_reservation();
        self.enter(target);
        let payload = reservation.encode(self.clock.wall);
        self.append_alone(AttachmentKind::Session, id, &payload);
    }

    // ---- cooldowns ----

    /// Ends the cooldown that the delete of job `id` started. If it would last beyond `now`, its end is logged; there
    /// is always room for that.
    pub fn forget_cooldown(&mut self, id: JobId, now: Timestamp) {
        let unneeded = self.unlogged.drop_cooldown(id);
        self.contents.room.release(unneeded);
        let Some(until) = self.contents.cooldowns.remove(id) else { return };
        let freed = self.contents.files.remove(Item::Cooldown(id));
        debug_assert!(freed.is_some(), "each cooldown is in a file");
        self.compaction.note_freed(freed.unwrap_or(0));
        self.contents.room.release(1);
        debug_assert_eq!(
            self.contents.cooldowns.len(),
            self.contents.files.cooldown_count(),
            "each cooldown is in a file"
        );
        if until > self.clock.wall.to_disk(now) {
            self.append_forgetting(id);
        }
    }

    /// Logs the early end of the cooldown of job `id`.
    pub(crate) fn append_forgetting(&mut self, id: JobId) {
        debug_assert!(self.contents.cooldowns.get(id).is_none(), "the cooldown that ends is in no file");
        self.contents.room.need(1);
        self.append_needed(NeededChange::EndOfCooldown(id));
    }

    /// The cooldowns that the start has found, each with the job whose delete started it, by ascending id.
    pub fn cooldowns(&self) -> impl Iterator<Item = (JobId, Cooldown<'_>)> {
        self.contents.cooldowns.iter().map(|(id, cooldown)| {
            let until = self.restored_clock.to_memory(cooldown.until);
            (id, Cooldown { tube: cooldown.tube, key: cooldown.key, until })
        })
    }

    /// Logs a cooldown again. Returns the length of its markers, or `None` if there is no room for them now.
    pub(super) fn copy_cooldown(&mut self, id: JobId) -> Option<u64> {
        let cooldown = self.contents.cooldowns.get(id)?;
        let bytes = parts(cooldown.len()) * SHORT_BYTES;
        let target = self.contents.room.find(bytes, 0)?;
        if !self.open_up_to(target) || !self.has_memory_for(bytes) {
            return None;
        }
        self.enter(target);
        // Appending does not change the cooldowns.
        let cooldowns = std::mem::take(&mut self.contents.cooldowns);
        self.append_alone(AttachmentKind::Cooldown, id, cooldowns.get(id).unwrap_or_default());
        self.contents.cooldowns = cooldowns;
        let was_there = self.contents.files.place(Item::Cooldown(id), self.appender.file(), bytes);
        debug_assert!(was_there, "a cooldown that is copied is in a file");
        debug_assert_eq!(
            self.contents.cooldowns.len(),
            self.contents.files.cooldown_count(),
            "a copy adds no cooldown"
        );
        Some(bytes)
    }

    /// Copies a cooldown to the newest file, at the start.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn repeat_cooldown(&mut self, id: JobId) -> Result<(), NoRoom> {
        let Some(cooldown) = self.contents.cooldowns.get(id) else { return Ok(()) };
        self.reserve(parts(cooldown.len()) * SHORT_BYTES, 0)?;
        self.copy_cooldown(id).map(drop).ok_or(NoRoom::Full)
    }

    /// Logs that a group has no member, at the start.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn append_freed_group(&mut self, group: &str) -> Result<(), NoRoom> {
        let bytes = parts(group.len()) * SHORT_BYTES;
        self.reserve(bytes, 0)?;
        let target = self.contents.room.find(bytes, 0).ok_or(NoRoom::Full)?;
        self.enter(target);
        self.append_alone(AttachmentKind::Frees, JobId(0), group.as_bytes());
        Ok(())
    }

    /// Asserts the invariants of tags, deletes and cooldowns between two calls.
    #[inline]
    pub(super) fn check_side_effects(&self) {
        let cooldowns = self.contents.cooldowns.len();
        assert_eq!(cooldowns, self.contents.files.cooldown_count(), "each cooldown is in a file");
        let unlogged: Vec<NeededChange> = self.unlogged.needed.iter().collect();
        let is_unlogged = |&id: &JobId| unlogged.contains(&NeededChange::Delete(id));
        assert!(self.unlogged.side_effects.keys().all(is_unlogged), "only a delete has side effects");
        assert!(
            self.unlogged
                .reservations
                .keys()
                .all(|&id| unlogged.contains(&NeededChange::FirstReservation(id))),
            "an unlogged reservation is among the needed changes"
        );
        self.contents.room.check_invariants(
            self.contents.files.job_count(),
            cooldowns as u64,
            self.unlogged.needed_units(),
        );
        assert!(
            self.contents.room.jobs().all(|id| self.contents.files.file_of(id).is_some()),
            "room is reserved only for jobs of the log"
        );
    }
}
