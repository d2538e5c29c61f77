//! Room: whether a record can be appended so that every change that must not fail can still be appended after it.
//!
//! Owns: the room in the file to which records are appended and in the files made ahead of it; how many short records
//! must still find room, and which jobs need more than one. Driven by all code that appends: it asks before anything
//! changes, and again when it appends, to get the file for the record.

mod description;

use std::collections::VecDeque;
use std::num::NonZeroU8;

use beanstalkd_structures::IdMap;

use crate::BLOCK_BYTES;
use crate::assertions::in_debug;
use crate::attachment::{MAX_DELETE_UNITS, side_effect_units};
use crate::format::SHORT_BYTES;
use crate::job::JobId;
use crate::marker::HEAD_BYTES;
use crate::tags::TagSet;

/// Room that is kept at the end of each file: for the marker with the next file, and for zeros: C recognises the end of
/// the file by a whole record of them.
const TAIL_BYTES: u64 = 2 * SHORT_BYTES;
/// Length of the bytes before a file's first record: the head, and the marker that the file is in use.
const FRONT_BYTES: u64 = HEAD_BYTES + SHORT_BYTES;
/// Room that records leave free, in short records: a marker must precede the removal of a file, and on a full disk only
/// that removal makes room.
const SPARE_MARKERS: u64 = 1;

/// A file made ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub index: u32,
    pub bytes: u64,
    pub nonce: u64,
}

impl Spare {
    fn free(&self) -> u64 {
        self.bytes.saturating_sub(FRONT_BYTES + TAIL_BYTES)
    }
}

/// The target of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Into the file to which records are appended.
    Current,
    /// The spare after this many others, which are skipped.
    Spare(usize),
}

/// The room that is reserved for one job in addition to that for its delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobRoom {
    /// Short records for the side effects of its delete, and for the record that ends the cooldown.
    side_effects: u8,
    /// Whether its first reservation needs room, because from then on the job does not expire any more.
    first_reservation: bool,
}

const _: () = assert!(MAX_DELETE_UNITS < 1 << 7, "it fits into a byte with one more bit");

impl JobRoom {
    /// The room that a job in such a tube with such tags may need.
    pub(crate) fn of(tube_len: usize, tags: &TagSet<'_>, was_reserved: bool) -> Self {
        let side_effects = side_effect_units(tube_len, tags);
        Self { side_effects, first_reservation: tags.expires_after_s.is_some() && !was_reserved }
    }

    fn units(self) -> u64 {
        u64::from(self.side_effects) + u64::from(self.first_reservation)
    }

    /// In one byte; `None` if nothing is reserved.
    fn packed(self) -> Option<NonZeroU8> {
        NonZeroU8::new(self.side_effects << 1 | u8::from(self.first_reservation))
    }

    fn from_packed(packed: NonZeroU8) -> Self {
        Self { side_effects: packed.get() >> 1, first_reservation: packed.get() & 1 != 0 }
    }
}

/// A record for which there was no room.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    bytes: u64,
    /// How many short records must find room after it.
    after: u64,
}

/// The available room, and the needs.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Bytes that records may still take in the file to which they are appended: its length less the appended bytes and
    /// the tail.
    free: u64,
    /// The files made ahead, by ascending index.
    spares: VecDeque<Spare>,
    /// How many of the spares are open; these are the first ones.
    open_count: usize,
    /// Short records that fit into the spares, whatever the deletes are: the sum of their usable units.
    spare_units: u64,
    spare_bytes: u64,
    /// How many short records at the end of each file do not count as room, because a delete of several short records
    /// must be in one file and may leave this many unused. 0 until a job may have such a delete, then
    /// [`MAX_DELETE_UNITS`] - 1.
    waste_units: u64,
    /// Short records that must still find room, in total: the delete of each live job, its other reserved room, the end
    /// of each cooldown, and each unlogged change with its side effects. No record is appended if less than this would
    /// be left; only a start on a full disk can begin with less.
    needed: u64,
    /// The room that is reserved for each job in addition to that for its delete. A job that needs none has no entry.
    by_job: IdMap<NonZeroU8>,
    /// The sum of these in short records, which is a part of `needed`.
    by_job_units: u64,
    /// The last record for which there was no room, if any.
    wanted: Option<Wanted>,
}

/// How many short records fit into `bytes`.
fn units(bytes: u64) -> u64 {
    bytes / SHORT_BYTES
}

impl Room {
    /// The room for the deletes of `jobs` and the ends of `cooldowns`, before there is a file.
    pub(crate) fn needed_by(jobs: u64, cooldowns: u64) -> Self {
        Self { needed: jobs + cooldowns, ..Self::default() }
    }

    // ---- what is needed ----

    /// Adds `units` to the short records that must find room.
    pub(crate) fn need(&mut self, units: u64) {
        self.needed += units;
    }

    /// Subtracts `units` short records that are appended, or no longer needed.
    pub(crate) fn release(&mut self, units: u64) {
        self.needed = self.needed.checked_sub(units).expect("the released units are part of `needed`");
        debug_assert!(self.needed >= self.by_job_units, "the released units are of no job's room");
    }

    /// How many short records `room` adds to the needed ones. From then on a delete may have several short records, so
    /// less of each file counts as room.
    pub(crate) fn units_for(&mut self, room: JobRoom) -> u64 {
        let units = room.units();
        if units > 0 && self.waste_units == 0 {
            self.waste_units = MAX_DELETE_UNITS - 1;
            self.spare_units = self.spares.iter().map(|spare| self.usable_units(spare.free())).sum();
        }
        debug_assert!(
            units == 0 || self.waste_units + 1 == MAX_DELETE_UNITS,
            "the ends of files count less once a delete may be long"
        );
        units
    }

    /// Reserves `room` for job `id`, and releases its previous room.
    pub(crate) fn reserve_for(&mut self, id: JobId, room: JobRoom) {
        self.release_for(id);
        let units = self.units_for(room);
        if let Some(packed) = room.packed() {
            self.by_job.insert(id, packed);
            self.by_job_units += units;
            self.needed += units;
        }
        debug_assert!(self.needed >= self.by_job_units, "the room of the jobs is part of `needed`");
    }

    /// Releases the room that was reserved for job `id` in addition to its delete.
    pub(crate) fn release_for(&mut self, id: JobId) {
        if !self.by_job.is_empty() {
            let units = self.by_job.remove(id).map_or(0, |packed| JobRoom::from_packed(packed).units());
            let left = self.by_job_units.checked_sub(units);
            self.by_job_units = left.expect("the room of a job is part of that of all jobs");
            self.release(units);
        }
    }

    /// Releases the room for the first reservation of job `id`, which is logged or about to be. Returns whether there
    /// was any.
    pub(crate) fn release_first_reservation(&mut self, id: JobId) -> bool {
        let packed = if self.by_job.is_empty() { None } else { self.by_job.get(id).copied() };
        let room = packed.map(JobRoom::from_packed).filter(|room| room.first_reservation);
        let Some(room) = room else { return false };
        let before = in_debug(|| self.needed);
        self.reserve_for(id, JobRoom { first_reservation: false, ..room });
        debug_assert_eq!(self.needed + 1, before, "a first reservation is one short record");
        true
    }

    /// The sum of the room that is reserved for jobs in addition to their deletes, in bytes.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.by_job_units * SHORT_BYTES
    }

    /// Memory of the map of the jobs' room, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_job.bytes()
    }

    // ---- what there is ----

    /// Whether a file of `bytes` has room for its tail after `offset`.
    pub(crate) fn has_tail(bytes: u64, offset: u64) -> bool {
        TAIL_BYTES + offset <= bytes
    }

    /// Notes that records are now appended to a file of `bytes`, from `offset` on.
    pub(crate) fn use_file(&mut self, bytes: u64, offset: u64) {
        debug_assert!(Self::has_tail(bytes, offset), "a file has room for its front and its tail");
        self.free = bytes.saturating_sub(TAIL_BYTES + offset);
    }

    /// Notes that a record or marker of `bytes` is appended.
    pub(crate) fn take(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.free, "the file has room for the record");
        self.free = self.free.saturating_sub(bytes);
    }

    /// How many short records fit into `bytes` of one file, whatever the deletes are.
    fn usable_units(&self, bytes: u64) -> u64 {
        units(bytes).saturating_sub(self.waste_units)
    }

    /// Whether there is room for everything that is needed.
    #[must_use]
    pub(crate) fn is_enough(&self) -> bool {
        self.usable_units(self.free) + self.spare_units >= self.needed
    }

    /// Adds a file that was made.
    pub(crate) fn add_spare(&mut self, spare: Spare) {
        debug_assert!(
            self.newest_spare().is_none_or(|newest| newest < spare.index),
            "files are used in order"
        );
        self.spare_units += self.usable_units(spare.free());
        self.spare_bytes += spare.bytes;
        self.spares.push_back(spare);
    }

    /// Removes and returns the next file, which is taken into use.
    pub(crate) fn next_spare(&mut self) -> Option<Spare> {
        let spare = self.spares.pop_front()?;
        self.open_count = self.open_count.saturating_sub(1);
        Some(self.without(spare))
    }

    /// Removes and returns the newest spare.
    pub(crate) fn drop_newest_spare(&mut self) -> Option<Spare> {
        let spare = self.spares.pop_back()?;
        self.open_count = self.open_count.min(self.spares.len());
        Some(self.without(spare))
    }

    /// Subtracts `spare`, which is no longer a spare.
    fn without(&mut self, spare: Spare) -> Spare {
        let units = self.spare_units.checked_sub(self.usable_units(spare.free()));
        self.spare_units = units.expect("the units of a spare are part of the sum");
        let bytes = self.spare_bytes.checked_sub(spare.bytes);
        self.spare_bytes = bytes.expect("the bytes of a spare are part of the sum");
        debug_assert_eq!(self.spares.is_empty(), self.spare_bytes == 0, "the sum is that of the spares");
        spare
    }

    /// Index of the first spare that is not ready for appends, if it is among the first `count` spares.
    #[must_use]
    pub(crate) fn next_to_open(&self, count: usize) -> Option<u32> {
        self.spares.get(self.open_count).filter(|_| self.open_count < count).map(|spare| spare.index)
    }

    /// Notes that the spare of [`Room::next_to_open`] is now ready.
    pub(crate) fn note_open(&mut self) {
        debug_assert!(self.open_count < self.spares.len(), "a spare that is opened was not open");
        self.open_count += 1;
    }

    /// Index of the spare made last; `None` if there is none.
    #[must_use]
    pub(crate) fn newest_spare(&self) -> Option<u32> {
        self.spares.back().map(|spare| spare.index)
    }

    /// Index of the spare that is used next; `None` if there is none.
    #[must_use]
    pub(crate) fn first_spare(&self) -> Option<u32> {
        self.spares.front().map(|spare| spare.index)
    }

    /// The end of the records and markers in a file of `bytes`: they have taken all except the tail and the remaining
    /// room.
    #[must_use]
    pub(crate) fn end_in(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(TAIL_BYTES + self.free)
    }

    /// Length of all spares.
    #[must_use]
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare_bytes
    }

    /// The number of spares.
    #[must_use]
    pub(crate) fn spare_count(&self) -> usize {
        self.spares.len()
    }

    // ---- where a record fits ----

    /// The target for a record of `bytes` that adds `added` short records to the needed short records, with room for
    /// the marker that precedes the removal of a file.
    #[must_use]
    pub(crate) fn find(&self, bytes: u64, added: u64) -> Option<Target> {
        self.find_before(bytes, self.needed + added + SPARE_MARKERS)
    }

    /// The target for a marker; it may take the room of the marker that precedes the removal of a file.
    #[must_use]
    pub(crate) fn find_for_marker(&self) -> Option<Target> {
        self.find_before(SHORT_BYTES, self.needed)
    }

    /// The target for `units` of the needed short records together. There can be too little room for the others only
    /// after a restart with too few files for all of them: then these take the room that there is.
    #[must_use]
    pub(crate) fn find_for_needed(&self, units: u64) -> Option<Target> {
        debug_assert!(units <= self.needed, "what must find room is part of `needed`");
        let bytes = units * SHORT_BYTES;
        let target = self.find_before(bytes, self.needed - units);
        debug_assert!(target.is_some() || !self.is_enough(), "room that is enough is enough in any order");
        target.or_else(|| self.find_before(bytes, 0))
    }

    /// The target for a marker of a repair, which takes precedence over everything that is needed.
    #[must_use]
    pub(crate) fn find_for_repair(&self) -> Option<Target> {
        self.find_before(SHORT_BYTES, 0)
    }

    /// The target for a record of `bytes` with `after` short records after it.
    fn find_before(&self, bytes: u64, after: u64) -> Option<Target> {
        if bytes <= self.free && self.usable_units(self.free - bytes) + self.spare_units >= after {
            return Some(Target::Current);
        }
        let mut beyond = self.spare_units;
        for (at, spare) in self.spares.iter().enumerate() {
            let left = beyond.checked_sub(self.usable_units(spare.free()));
            beyond = left.expect("the units of a spare are part of the sum");
            if bytes <= spare.free() && self.usable_units(spare.free() - bytes) + beyond >= after {
                return Some(Target::Spare(at));
            }
        }
        None
    }

    // ---- the next file ----

    /// Notes that there is no room for a record of `bytes` that adds `added` short records to the needed short records.
    pub(crate) fn want(&mut self, bytes: u64, added: u64) {
        let after = self.needed + added;
        let Wanted { bytes: max_bytes, after: max_after } = self.wanted.unwrap_or(Wanted { bytes, after });
        self.wanted = Some(Wanted { bytes: bytes.max(max_bytes), after: after.max(max_after) });
    }

    /// Whether a record has found no room, and no file with room for it has been made since.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Forgets the wanted record, because its command asks again. Other commands may need less.
    pub(crate) fn want_nothing(&mut self) {
        self.wanted = None;
    }

    /// Whether the next file must be made: there is no room for a wanted record besides `kept` short records, or less
    /// than a file of `file_bytes` would be left.
    pub(crate) fn check_level(&mut self, file_bytes: u64, kept: u64) -> bool {
        if let Some(Wanted { bytes, after }) = self.wanted
            && self.find_before(bytes, after.max(self.needed + 1) + kept + SPARE_MARKERS).is_some()
        {
            self.wanted = None;
        }
        let file_units = file_units(file_bytes).saturating_sub(self.waste_units);
        let left = self.usable_units(self.free) + self.spare_units;
        self.wanted.is_some() || left < self.needed + 1 + SPARE_MARKERS + file_units
    }

    /// Length of the next file, usually `usual_bytes`, so that the wanted record fits.
    #[must_use]
    pub(crate) fn next_file_bytes(&self, usual_bytes: u64) -> u64 {
        let first = self.needed + 1;
        let (bytes, after) = self.wanted.map_or((0, first), |wanted| (wanted.bytes, wanted.after.max(first)));
        length_of_next_file(usual_bytes, bytes, after + self.waste_units)
    }

    /// Asserts the invariants between two calls. The log has this many jobs and cooldowns, and unlogged changes need
    /// `unlogged_units` short records.
    #[inline]
    pub(crate) fn check_invariants(&self, jobs: u64, cooldowns: u64, unlogged_units: u64) {
        let spare_units = self.spares.iter().map(|spare| self.usable_units(spare.free())).sum::<u64>();
        assert_eq!(spare_units, self.spare_units, "`spare_units` is the sum over the spare files");
        assert_eq!(self.spare_bytes, self.spares.iter().map(|spare| spare.bytes).sum::<u64>());
        assert!(self.open_count <= self.spares.len(), "the open files are among the spare ones");
        assert!(self.spares.iter().is_sorted_by(|a, b| a.index < b.index), "files are used in order");
        let by_job = self.by_job.iter().map(|(_, &packed)| JobRoom::from_packed(packed).units()).sum::<u64>();
        assert_eq!(by_job, self.by_job_units, "`by_job_units` is the sum over the jobs");
        assert_eq!(
            jobs + by_job + cooldowns + unlogged_units,
            self.needed,
            "`needed` is the sum of deletes, ends of cooldowns and unlogged changes"
        );
        assert!(
            self.by_job.is_empty() || self.waste_units + 1 == MAX_DELETE_UNITS,
            "the ends of files count less once a delete may be long"
        );
    }

    /// The jobs with reserved room in addition to their deletes.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.by_job.iter().map(|(id, _)| id)
    }
}

/// How many short records fit into a file of `file_bytes`.
#[must_use]
pub(super) fn file_units(file_bytes: u64) -> u64 {
    units(file_bytes.saturating_sub(FRONT_BYTES + TAIL_BYTES))
}

/// Length of the next file, usually `file_bytes`, so that a record of `bytes` fits with `after` short records after it.
fn length_of_next_file(file_bytes: u64, bytes: u64, after: u64) -> u64 {
    if bytes + SHORT_BYTES <= file_bytes.saturating_sub(FRONT_BYTES + TAIL_BYTES) {
        return file_bytes;
    }
    let own = bytes + FRONT_BYTES + TAIL_BYTES + (after + SPARE_MARKERS + 1) * SHORT_BYTES;
    own.next_multiple_of(BLOCK_BYTES).max(file_bytes)
}

#[cfg(test)]
mod tests;
