//! Tags, deletes that start a cooldown or free a group, and first reservations that end an expiry.
//!
//! Owns: what deletes lead to for which there was no room; the cooldowns. A delete and what it leads to are one write to one
//! file, and so are a job and its tags. Driven by the server.

use std::collections::BTreeMap;

use super::Binlog;
use super::append::NeededChange;
use super::room::Target;
use crate::NoRoom;
use crate::attachment::{Aftermath, Cooldown, Kind, parts};
use crate::clock::Timestamp;
use crate::format::{DiskRecord, SHORT_BYTES};
use crate::job::{JobId, JobRecord};

/// What a delete leads to, until there is room for it.
#[derive(Debug, Default)]
pub(super) struct UnloggedAftermath {
    cooldown: Option<Box<[u8]>>,
    freed_group: Option<Box<str>>,
}

impl UnloggedAftermath {
    /// Its short records.
    fn units(&self) -> u64 {
        self.cooldown_units() + self.freed_group.as_ref().map_or(0, |group| parts(group.len()))
    }

    fn cooldown_units(&self) -> u64 {
        self.cooldown.as_ref().map_or(0, |bytes| parts(bytes.len()))
    }

    /// The same with the one that ends the cooldown.
    fn needed_units(&self) -> u64 {
        self.units() + u64::from(self.cooldown.is_some())
    }
}

/// The deletes that are not logged yet and lead to something.
#[derive(Debug, Default)]
pub(super) struct UnloggedAftermaths {
    by_job: BTreeMap<JobId, UnloggedAftermath>,
}

impl UnloggedAftermaths {
    /// The short records of the delete of job `id`.
    pub(super) fn delete_units(&self, id: JobId) -> u64 {
        1 + self.by_job.get(&id).map_or(0, UnloggedAftermath::units)
    }

    /// The delete of job `id`, if it is one of these, will start no cooldown. Returns how many short records are not needed
    /// for that.
    fn drop_cooldown(&mut self, id: JobId) -> u64 {
        let Some(aftermath) = self.by_job.get_mut(&id) else { return 0 };
        let units = aftermath.needed_units();
        aftermath.cooldown = None;
        units - aftermath.needed_units()
    }

    /// All short records that these need beside those of the deletes, and for the ends of their cooldowns.
    #[inline]
    pub(super) fn needed_units(&self) -> u64 {
        self.by_job.values().map(UnloggedAftermath::needed_units).sum()
    }

    /// Asserts what is true between two calls.
    #[inline]
    pub(super) fn check_invariants(&self, is_unlogged: impl Fn(JobId) -> bool) {
        assert!(self.by_job.keys().all(|&id| is_unlogged(id)), "only a delete leads to something");
    }
}

impl Binlog {
    // ---- first reservations ----

    /// The log has this state of a job. Returns whether the job would expire without this record.
    pub(super) fn note_state(&mut self, job: &JobRecord) -> bool {
        job.counters.reserves > 0 && self.room.release_first_reservation(job.id)
    }

    /// Logs a state for which there is no room if it is the first reservation of a job that expires: room was reserved for
    /// it, and replies wait for it. Returns whether it is.
    pub(super) fn append_first_reservation(&mut self, job: &JobRecord, body_len: usize) -> bool {
        let is_one = self.note_state(job);
        if is_one {
            let record = DiskRecord::of_job(job, body_len, self.wall);
            self.unlogged.reservations.insert(job.id, record);
            self.room.need(1);
            self.append_needed(NeededChange::FirstReservation(job.id));
        }
        is_one
    }

    /// Bytes that the newest state of all jobs takes and all cooldowns, with the room for their deletes and what these may
    /// lead to.
    pub(super) fn live_bytes(&self) -> u64 {
        self.files.live_bytes() + self.room.reserved_bytes()
    }

    // ---- deletes ----

    /// Logs that a job was deleted, and what follows from that, as one change. There is always room for this if the tags
    /// were given when the job was put: for a cooldown if they have an idempotency key with one, for a group if they have
    /// one.
    pub fn append_delete_with(&mut self, id: JobId, aftermath: &Aftermath<'_>) {
        let Aftermath { cooldown, freed_group } = *aftermath;
        if (cooldown.is_some() || freed_group.is_some()) && self.files.file_of(id).is_some() {
            let cooldown = cooldown.map(|cooldown| cooldown.encode(self.wall));
            let aftermath = UnloggedAftermath { cooldown, freed_group: freed_group.map(Box::from) };
            self.room.need(aftermath.needed_units());
            self.unlogged.aftermaths.by_job.insert(id, aftermath);
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
                self.files.update(id);
            }
            NeededChange::EndOfCooldown(id) => {
                self.enter(target);
                self.append_alone(Kind::Forgets, id, &[]);
            }
        }
    }

    fn append_unlogged_delete(&mut self, id: JobId, target: Target) {
        let Some(aftermath) = self.unlogged.aftermaths.by_job.remove(&id) else {
            return self.append_short(&DiskRecord::deletion(id), target);
        };
        self.enter(target);
        self.make_memory((aftermath.units() + 1) * SHORT_BYTES);
        if let Some(bytes) = &aftermath.cooldown {
            self.push_attachment(Kind::DeleteCooldown, id, bytes);
        }
        if let Some(group) = &aftermath.freed_group {
            self.push_attachment(Kind::DeleteFrees, id, group.as_bytes());
        }
        let file = self.appender.file();
        self.append_record(&DiskRecord::deletion_with_aftermath(id), &[], None, SHORT_BYTES);
        if let Some(bytes) = aftermath.cooldown {
            self.files.place_cooldown(id, file, parts(bytes.len()) * SHORT_BYTES);
            self.cooldowns.insert(id, bytes);
        }
    }

    /// Appends the parts of an attachment, for which there is room and memory, in front of the record that follows.
    pub(super) fn push_attachment(&mut self, kind: Kind, job: JobId, bytes: &[u8]) {
        self.room.take(parts(bytes.len()) * SHORT_BYTES);
        self.appender.push_attachment(kind, job, bytes);
    }

    /// Appends an attachment that needs no record.
    fn append_alone(&mut self, kind: Kind, job: JobId, bytes: &[u8]) {
        self.make_memory(parts(bytes.len()) * SHORT_BYTES);
        self.push_attachment(kind, job, bytes);
        if self.appender.count_record() {
            self.write_buffer();
        }
    }

    // ---- cooldowns ----

    /// The cooldown that the delete of job `id` started does not count any more. If it would last beyond `now`, this is
    /// logged, for which there is always room.
    pub fn forget_cooldown(&mut self, id: JobId, now: Timestamp) {
        let unneeded = self.unlogged.aftermaths.drop_cooldown(id);
        self.room.release(unneeded);
        let Some(until) = self.cooldowns.remove(id) else { return };
        let full_bytes = self.files.full_bytes();
        self.files.remove_cooldown(id);
        self.compaction.note_freed(full_bytes - self.files.full_bytes());
        self.room.release(1);
        if until > self.wall.to_disk(now) {
            self.append_forgetting(id);
        }
    }

    /// Logs that the cooldown of job `id` counts no more.
    pub(crate) fn append_forgetting(&mut self, id: JobId) {
        self.room.need(1);
        self.append_needed(NeededChange::EndOfCooldown(id));
    }

    /// The cooldowns that have not ended and were not forgotten, each with the job whose delete started it, by ascending
    /// id.
    pub fn cooldowns(&self) -> impl Iterator<Item = (JobId, Cooldown<'_>)> {
        self.cooldowns.iter().map(|(id, cooldown)| {
            let until = self.wall.to_memory(cooldown.until);
            (id, Cooldown { tube: cooldown.tube, key: cooldown.key, until })
        })
    }

    /// Logs a cooldown once more. Returns how long its markers are, or `None` if there is no room for them now.
    pub(super) fn copy_cooldown(&mut self, id: JobId) -> Option<u64> {
        let cooldown = self.cooldowns.get(id)?;
        let bytes = parts(cooldown.len()) * SHORT_BYTES;
        let target = self.room.find(bytes, 0)?;
        if !self.open_up_to(target) || !self.has_memory_for(bytes) {
            return None;
        }
        self.enter(target);
        // Nothing of the cooldowns is changed by the appending.
        let cooldowns = std::mem::take(&mut self.cooldowns);
        self.append_alone(Kind::Cooldown, id, cooldowns.get(id).unwrap_or_default());
        self.cooldowns = cooldowns;
        self.files.place_cooldown(id, self.appender.file(), bytes);
        Some(bytes)
    }

    /// Has a cooldown stand in the newest file, at the start.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn repeat_cooldown(&mut self, id: JobId) -> Result<(), NoRoom> {
        let Some(cooldown) = self.cooldowns.get(id) else { return Ok(()) };
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
        let target = self.room.find(bytes, 0).ok_or(NoRoom::Full)?;
        self.enter(target);
        self.append_alone(Kind::Frees, JobId(0), group.as_bytes());
        Ok(())
    }

    /// Asserts what is true of tags, deletes and cooldowns between two calls.
    #[inline]
    pub(super) fn check_aftermaths(&self) {
        let cooldowns = self.cooldowns.len();
        assert_eq!(cooldowns, self.files.cooldown_count(), "each cooldown stands in a file");
        let unlogged: Vec<NeededChange> = self.unlogged.needed.iter().collect();
        self.unlogged.aftermaths.check_invariants(|id| unlogged.contains(&NeededChange::Delete(id)));
        assert!(
            self.unlogged
                .reservations
                .keys()
                .all(|&id| unlogged.contains(&NeededChange::FirstReservation(id))),
            "the record of a first reservation is to be logged"
        );
        let unlogged_units = unlogged.len() as u64 + self.unlogged.aftermaths.needed_units();
        self.room.check_invariants(self.files.job_count(), cooldowns as u64, unlogged_units);
        assert!(
            self.room.jobs().all(|id| self.files.file_of(id).is_some()),
            "room is reserved for jobs that are there"
        );
    }
}
