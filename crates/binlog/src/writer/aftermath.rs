//! Tags, deletes that start a cooldown or free a group, and first reservations that end an expiry.
//!
//! Owns: how much room these need for which jobs beside the record of their delete, in [`Promises`]; the cooldowns. A delete
//! and what it leads to are one write to one file, and so are a job and its tags. Driven by the server.

use std::collections::BTreeMap;
use std::num::NonZeroU8;

use super::Binlog;
use super::space::Target;
use crate::NoRoom;
use crate::attachment::{Aftermath, Cooldown, Kind, MAX_DELETE_UNITS, parts, units_of_aftermath};
use crate::clock::Timestamp;
use crate::cooldowns::Cooldowns;
use crate::format::{DiskRecord, SHORT_BYTES};
use crate::id_map::IdMap;
use crate::job::{JobId, JobRecord};
use crate::tags::TagSet;

/// What a job may need one day beside the record of its delete.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promise {
    /// Short records for what its delete may lead to, and for a record that forgets the cooldown.
    aftermath: u8,
    /// Whether there is to be room for its first reservation, because the job does not expire any more from then on.
    first_reservation: bool,
}

impl Promise {
    /// What a job in such a tube with such tags may need.
    pub(crate) fn of(tube_len: usize, tags: &[u8], was_reserved: bool) -> Self {
        let expires = TagSet::decode(tags).is_some_and(|tags| tags.expires_after_s.is_some());
        let aftermath = units_of_aftermath(tube_len, tags);
        Self { aftermath, first_reservation: expires && !was_reserved }
    }

    fn units(self) -> u64 {
        u64::from(self.aftermath) + u64::from(self.first_reservation)
    }

    /// As one byte; `None` if nothing is promised.
    fn packed(self) -> Option<NonZeroU8> {
        NonZeroU8::new(self.aftermath << 1 | u8::from(self.first_reservation))
    }

    fn from_packed(packed: NonZeroU8) -> Self {
        Self { aftermath: packed.get() >> 1, first_reservation: packed.get() & 1 != 0 }
    }
}

const _: () = assert!(MAX_DELETE_UNITS < 1 << 7, "it fits into a byte with one more bit");

/// The room that is kept beside one short record for each delete, in short records.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// For each job that may need any.
    by_job: IdMap<NonZeroU8>,
    /// The sum of these.
    units: u64,
}

impl Promises {
    /// What this takes in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_job.bytes()
    }

    /// Reserves the room that job `id` may need.
    pub(crate) fn set(&mut self, id: JobId, promise: Promise) {
        self.release(id);
        if let Some(packed) = promise.packed() {
            self.units += promise.units();
            self.by_job.insert(id, packed);
        }
    }

    /// Job `id` is deleted.
    fn release(&mut self, id: JobId) {
        if !self.by_job.is_empty() {
            self.units -= self.by_job.remove(id).map_or(0, |packed| Promise::from_packed(packed).units());
        }
    }

    /// The first reservation of job `id` needs no room any more. Returns whether it did.
    fn release_first_reservation(&mut self, id: JobId) -> bool {
        let promise = self.by_job.get(id).map(|&packed| Promise::from_packed(packed));
        let Some(promise) = promise.filter(|promise| promise.first_reservation) else { return false };
        self.set(id, Promise { first_reservation: false, ..promise });
        true
    }

    /// How much room is kept.
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Whether no delete may need more than its own record.
    pub(super) fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    /// Asserts what is true between two calls.
    #[inline]
    pub(super) fn check_invariants(&self, is_logged: impl Fn(JobId) -> bool) {
        let sum: u64 = self.by_job.iter().map(|(_, &packed)| Promise::from_packed(packed).units()).sum();
        assert_eq!(sum, self.units, "the sum is that of the jobs");
        assert!(self.by_job.iter().all(|(id, _)| is_logged(id)), "room is kept for jobs that are there");
    }
}

/// What a delete leads to, until there is room for it.
#[derive(Debug, Default)]
pub(super) struct UnloggedAftermath {
    cooldown: Option<Box<[u8]>>,
    freed_group: Option<Box<str>>,
}

impl UnloggedAftermath {
    fn units(&self) -> u64 {
        let cooldown = self.cooldown.as_ref().map_or(0, |bytes| parts(bytes.len()));
        cooldown + self.freed_group.as_ref().map_or(0, |group| parts(group.len()))
    }
}

/// The deletes that are not logged yet and lead to something.
#[derive(Debug, Default)]
pub(super) struct UnloggedAftermaths {
    by_job: BTreeMap<JobId, UnloggedAftermath>,
    /// Short records that they need beside those of the deletes, and for cooldowns that are to be forgotten.
    units: u64,
}

impl UnloggedAftermaths {
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    fn add(&mut self, id: JobId, aftermath: UnloggedAftermath) {
        self.units += aftermath.units() + u64::from(aftermath.cooldown.is_some());
        self.by_job.insert(id, aftermath);
    }

    fn remove(&mut self, id: JobId) -> Option<UnloggedAftermath> {
        let aftermath = self.by_job.remove(&id)?;
        self.units -= aftermath.units() + u64::from(aftermath.cooldown.is_some());
        Some(aftermath)
    }

    /// The short records of the delete of job `id`.
    pub(super) fn delete_units(&self, id: JobId) -> u64 {
        1 + self.by_job.get(&id).map_or(0, UnloggedAftermath::units)
    }

    /// Asserts what is true between two calls.
    #[inline]
    pub(super) fn check_invariants(&self, is_unlogged: impl Fn(JobId) -> bool) {
        let units = |one: &UnloggedAftermath| one.units() + u64::from(one.cooldown.is_some());
        assert_eq!(self.units, self.by_job.values().map(units).sum::<u64>());
        assert!(self.by_job.keys().all(|&id| is_unlogged(id)), "only a delete leads to something");
    }
}

/// Set in the id of a job among the deletes that are not logged: this is none. Its first reservation is to be logged, or its
/// cooldown is to be forgotten.
pub(super) const NO_DELETE: u64 = 1 << 63;

impl Binlog {
    // ---- room ----

    /// How much more a job in such a tube with such tags may need one day. From then on a delete may have several short
    /// records, so that the ends of files count less.
    pub(super) fn promise_for(&mut self, tube_len: usize, tags: &[u8]) -> u64 {
        let units = Promise::of(tube_len, tags, false).units();
        if units > 0 {
            self.ahead.space.allow_deletes_of(MAX_DELETE_UNITS);
        }
        units
    }

    /// Keeps the room for a job that stands in the log now.
    pub(super) fn keep_promise(&mut self, job: &JobRecord, tube_len: usize, tags: &[u8]) {
        if !tags.is_empty() || !self.promises.is_empty() {
            self.promises.set(job.id, Promise::of(tube_len, tags, job.counters.reserves > 0));
        }
    }

    /// The log has this state of a job. Returns whether the job would expire without this record.
    pub(super) fn note_state(&mut self, job: &JobRecord) -> bool {
        !self.promises.is_empty()
            && job.counters.reserves > 0
            && self.promises.release_first_reservation(job.id)
    }

    /// Logs a state for which there is no room if it is the first reservation of a job that expires: room was kept for it,
    /// and replies wait for it. Returns whether it is.
    pub(super) fn append_first_reservation(&mut self, job: &JobRecord, body_len: usize) -> bool {
        let is_one = job.counters.reserves > 0 && self.promises.release_first_reservation(job.id);
        if is_one {
            let record = DiskRecord::of_job(job, body_len, self.wall);
            self.unlogged.reservations.insert(job.id, record);
            self.unlogged.deletes.push(JobId(job.id.0 | NO_DELETE));
            self.log_deletes();
        }
        is_one
    }

    /// Short records for which there is room: the deletes of all jobs and all that these may lead to.
    pub(super) fn live_units(&self) -> u64 {
        self.files.job_count() + self.promises.units() + self.cooldowns.len() as u64
    }

    /// Bytes that the newest state of all jobs takes and all cooldowns, with the room for their deletes and what these may
    /// lead to.
    pub(super) fn live_bytes(&self) -> u64 {
        self.files.live_bytes() + self.promises.units() * SHORT_BYTES
    }

    /// The room that the log keeps from its beginning on.
    pub(super) fn allow_promised_deletes(&mut self) {
        if !self.promises.is_empty() {
            self.ahead.space.allow_deletes_of(MAX_DELETE_UNITS);
        }
    }

    // ---- deletes ----

    /// Logs that a job was deleted, and what follows from that, as one change. There is always room for this if the tags
    /// were given when the job was put: for a cooldown if they have an idempotency key with one, for a group if they have
    /// one.
    pub fn append_delete_with(&mut self, id: JobId, aftermath: &Aftermath<'_>) {
        let Aftermath { cooldown, freed_group } = *aftermath;
        if (cooldown.is_some() || freed_group.is_some()) && self.files.file_of(id).is_some() {
            let cooldown = cooldown.map(|cooldown| cooldown.encode(self.wall));
            let freed_group = freed_group.map(Box::from);
            self.unlogged.aftermaths.add(id, UnloggedAftermath { cooldown, freed_group });
        }
        self.append_delete(id);
    }

    /// The room that the log has kept for the delete of a job is used or not needed.
    pub(super) fn release_promise(&mut self, id: JobId) {
        self.promises.release(id);
    }

    /// Logs one of the deletes that were not logged, or a first reservation, or that a cooldown is forgotten.
    pub(super) fn append_unlogged(&mut self, id: JobId, target: Target) {
        if id.0 & NO_DELETE != 0 {
            let id = JobId(id.0 & !NO_DELETE);
            // A job is reserved before it is deleted, and before its cooldown ends.
            if let Some(record) = self.unlogged.reservations.remove(&id) {
                self.append_short(&record, target);
                if self.files.file_of(id).is_some() {
                    self.files.update(id);
                }
                return;
            }
            self.enter(target);
            return self.append_alone(Kind::Forgets, id, &[]);
        }
        let Some(aftermath) = self.unlogged.aftermaths.remove(id) else {
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
        self.ahead.space.take(parts(bytes.len()) * SHORT_BYTES);
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
        if let Some(mut aftermath) = self.unlogged.aftermaths.remove(id) {
            // Its delete waits for room. It will start no cooldown.
            aftermath.cooldown = None;
            if aftermath.freed_group.is_some() {
                self.unlogged.aftermaths.add(id, aftermath);
            }
        }
        let Some(until) = self.cooldowns.remove(id) else { return };
        let full_bytes = self.files.full_bytes();
        self.files.remove_cooldown(id);
        self.compaction.note_freed(full_bytes - self.files.full_bytes());
        if until > self.wall.to_disk(now) {
            self.append_forgetting(id);
        }
    }

    /// Logs that the cooldown of job `id` counts no more.
    pub(crate) fn append_forgetting(&mut self, id: JobId) {
        self.unlogged.deletes.push(JobId(id.0 | NO_DELETE));
        self.log_deletes();
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
        let target = self.ahead.space.find(bytes, self.live_units())?;
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
        self.reserve(parts(cooldown.len()) * SHORT_BYTES, self.live_units())?;
        self.copy_cooldown(id).map(drop).ok_or(NoRoom::Full)
    }

    /// Logs that a group has no member, at the start.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn append_freed_group(&mut self, group: &str) -> Result<(), NoRoom> {
        let bytes = parts(group.len()) * SHORT_BYTES;
        self.reserve(bytes, self.live_units())?;
        let target = self.ahead.space.find(bytes, self.live_units()).ok_or(NoRoom::Full)?;
        self.enter(target);
        self.append_alone(Kind::Frees, JobId(0), group.as_bytes());
        Ok(())
    }

    /// Asserts what is true of tags, deletes and cooldowns between two calls.
    #[inline]
    pub(super) fn check_aftermaths(&self) {
        self.promises.check_invariants(|id| self.files.file_of(id).is_some());
        assert!(
            self.promises.is_empty() || self.ahead.space.waste_units() + 1 == MAX_DELETE_UNITS,
            "the ends of files count less once a delete may be long"
        );
        assert_eq!(self.cooldowns.len(), self.files.cooldown_count(), "each cooldown stands in a file");
        let unlogged: Vec<JobId> = self.unlogged.deletes.iter().collect();
        self.unlogged.aftermaths.check_invariants(|id| unlogged.contains(&id));
    }
}

/// What the log begins with of all this.
#[derive(Debug, Default)]
pub(crate) struct BeginningOfTags {
    pub(crate) promises: Promises,
    pub(crate) cooldowns: Cooldowns,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::Name;

    fn encoded(tags: TagSet<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        tags.encode(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn room_is_kept_for_the_first_reservation_of_a_job_that_expires_until_it_comes() {
        let expiring = encoded(TagSet { expires_after_s: Some(9), ..TagSet::default() });
        let grouped = encoded(TagSet { group: Some(Name::from("g")), ..TagSet::default() });
        let both =
            encoded(TagSet { expires_after_s: Some(9), group: Some(Name::from("g")), ..TagSet::default() });
        for (tags, was_reserved, units, first) in [
            (&expiring, false, 1, true),
            (&expiring, true, 0, false),
            (&grouped, false, 1, false),
            (&grouped, true, 1, false),
            (&both, false, 2, true),
            (&both, true, 1, false),
            (&Vec::new(), false, 0, false),
        ] {
            let mut promises = Promises::default();
            assert!(promises.is_empty());
            promises.set(JobId(1), Promise::of(7, tags, was_reserved));
            assert_eq!((promises.units(), promises.is_empty()), (units, units == 0));
            assert_eq!(promises.release_first_reservation(JobId(1)), first);
            assert!(!promises.release_first_reservation(JobId(1)), "there is one first reservation");
            assert_eq!(promises.units(), units - u64::from(first));
            promises.check_invariants(|id| id == JobId(1));
            promises.release(JobId(1));
            assert_eq!((promises.units(), promises.is_empty()), (0, true));
        }
    }

    #[test]
    fn a_promise_is_the_same_behind_its_one_byte() {
        for aftermath in 0..MAX_DELETE_UNITS as u8 {
            for first_reservation in [false, true] {
                let promise = Promise { aftermath, first_reservation };
                let units = promise.packed().map_or(0, |packed| Promise::from_packed(packed).units());
                assert_eq!(units, u64::from(aftermath) + u64::from(first_reservation));
            }
        }
    }
}
