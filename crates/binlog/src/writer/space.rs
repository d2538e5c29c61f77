//! Room: whether a record can be appended such that all live jobs can still be deleted afterwards.
//!
//! Owns: the lengths of the file to which records are appended and of the files made ahead of it. Driven by
//! `append`, which asks before anything changes, and again when it appends, to learn which file the record goes to.

use std::collections::VecDeque;

use crate::format::SHORT_BYTES;
use crate::marker::HEAD_BYTES;

/// Room that is kept at the end of each file: for the marker that says where the log goes on, and for zeros, of
/// which C needs a whole record to see that the file ends.
const TAIL_BYTES: u64 = 2 * SHORT_BYTES;
/// What precedes a file's first record: the head, and the marker that says that the file is in use.
const FRONT_BYTES: u64 = HEAD_BYTES + SHORT_BYTES;
/// Room that records leave free, in short records: a marker must precede the removal of a file, and on a
/// full disk that removal is what makes room.
const SPARE_MARKERS: u64 = 1;
/// The blocks in which file lengths are counted.
pub const BLOCK_BYTES: u64 = 4096;

/// A file made ahead.
#[derive(Clone, Copy, Debug)]
pub struct Spare {
    /// Its index.
    pub index: u32,
    /// Its length.
    pub bytes: u64,
    /// Its nonce.
    pub nonce: u64,
}

impl Spare {
    fn free(&self) -> u64 {
        self.bytes.saturating_sub(FRONT_BYTES + TAIL_BYTES)
    }
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into the file to which records are appended.
    Current,
    /// Into the spare that comes after this many others, which are passed over.
    Spare(usize),
}

/// The room there is.
#[derive(Debug, Default)]
pub struct Space {
    /// Bytes that records may still take in the file to which they are appended.
    free: u64,
    spares: VecDeque<Spare>,
    /// How many of the spares are open; these are the first ones.
    open_count: usize,
    /// Short records that fit into the spares, whatever the deletes are.
    spare_units: u64,
    spare_bytes: u64,
    /// How many short records at the end of each file do not count as room, because a delete of several short records must be
    /// in one file and may leave this many unused. 0 while each delete is one short record.
    waste_units: u64,
}

/// How many short records fit into `bytes`.
fn units(bytes: u64) -> u64 {
    bytes / SHORT_BYTES
}

impl Space {
    /// Records are now appended to a file of `bytes`, from `offset` on.
    pub fn use_file(&mut self, bytes: u64, offset: u64) {
        self.free = bytes.saturating_sub(TAIL_BYTES + offset);
    }

    /// A record or marker of `bytes` is appended.
    pub fn take(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.free, "a record is appended where there is room for it");
        self.free = self.free.saturating_sub(bytes);
    }

    /// From now on, a delete may have as many as `units` short records.
    pub fn allow_deletes_of(&mut self, units: u64) {
        self.waste_units = self.waste_units.max(units - 1);
        self.spare_units = self.spares.iter().map(|spare| self.usable_units(spare.free())).sum();
    }

    /// How many short records fit into `bytes` of one file, whatever the deletes are.
    fn usable_units(&self, bytes: u64) -> u64 {
        units(bytes).saturating_sub(self.waste_units)
    }

    /// A file was made.
    pub fn add_spare(&mut self, spare: Spare) {
        self.spare_units += self.usable_units(spare.free());
        self.spare_bytes += spare.bytes;
        self.spares.push_back(spare);
    }

    /// Takes the next file into use.
    pub fn next_spare(&mut self) -> Option<Spare> {
        let spare = self.spares.pop_front()?;
        self.open_count = self.open_count.saturating_sub(1);
        self.spare_units -= self.usable_units(spare.free());
        self.spare_bytes -= spare.bytes;
        Some(spare)
    }

    /// Takes back the newest file made.
    pub fn drop_newest_spare(&mut self) -> Option<Spare> {
        let spare = self.spares.pop_back()?;
        self.open_count = self.open_count.min(self.spares.len());
        self.spare_units -= self.usable_units(spare.free());
        self.spare_bytes -= spare.bytes;
        Some(spare)
    }

    /// Index of the first spare that is not ready to be appended to, if that is one of the first `count`.
    #[must_use]
    pub fn next_to_open(&self, count: usize) -> Option<u32> {
        self.spares.get(self.open_count).filter(|_| self.open_count < count).map(|spare| spare.index)
    }

    /// The spare that [`Space::next_to_open`] names is ready now.
    pub fn note_open(&mut self) {
        self.open_count += 1;
    }

    /// Index of the spare made last; `None` if there is none.
    #[must_use]
    pub fn newest_spare(&self) -> Option<u32> {
        self.spares.back().map(|spare| spare.index)
    }

    /// Where records and markers may go in a file of `bytes` of which they have taken all but the room that is left.
    #[must_use]
    pub fn end_in(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(TAIL_BYTES + self.free)
    }

    /// Asserts what is true between two calls.
    #[inline]
    pub fn check_invariants(&self) {
        assert_eq!(
            self.spare_units,
            self.spares.iter().map(|spare| self.usable_units(spare.free())).sum::<u64>()
        );
        assert_eq!(self.spare_bytes, self.spares.iter().map(|spare| spare.bytes).sum::<u64>());
        assert!(self.open_count <= self.spares.len(), "only files that are there are ready");
        assert!(self.spares.iter().is_sorted_by(|a, b| a.index < b.index), "files are used in order");
    }

    /// Length of all spares.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.spare_bytes
    }

    /// How many spares there are.
    #[must_use]
    pub fn spare_count(&self) -> usize {
        self.spares.len()
    }

    /// Where a record of `bytes` fits such that `deletes` short records fit after it, with room for the
    /// marker that precedes the removal of a file.
    #[must_use]
    pub fn find(&self, bytes: u64, deletes: u64) -> Option<Target> {
        self.find_exactly(bytes, deletes + SPARE_MARKERS)
    }

    /// As [`Space::find`], without regard to that marker.
    #[must_use]
    pub fn find_exactly(&self, bytes: u64, deletes: u64) -> Option<Target> {
        if bytes <= self.free && self.usable_units(self.free - bytes) + self.spare_units >= deletes {
            return Some(Target::Current);
        }
        let mut after = self.spare_units;
        for (at, spare) in self.spares.iter().enumerate() {
            after -= self.usable_units(spare.free());
            if bytes <= spare.free() && self.usable_units(spare.free() - bytes) + after >= deletes {
                return Some(Target::Spare(at));
            }
        }
        None
    }

    /// Sets how many short records at the end of each file do not count as room.
    #[must_use]
    pub fn waste_units(&self) -> u64 {
        self.waste_units
    }

    /// Whether less than a file of `file_bytes` would be left after `deletes` short records: time to
    /// make the next one.
    #[must_use]
    pub fn is_low(&self, file_bytes: u64, deletes: u64) -> bool {
        let file_units = file_units(file_bytes).saturating_sub(self.waste_units);
        self.usable_units(self.free) + self.spare_units < deletes + SPARE_MARKERS + file_units
    }
}

/// How many short records fit into a file of `file_bytes`.
#[must_use]
pub fn file_units(file_bytes: u64) -> u64 {
    units(file_bytes.saturating_sub(FRONT_BYTES + TAIL_BYTES))
}

/// Length of the file to make, usually `file_bytes`, so that a record of `bytes` fits with `deletes`
/// short records after it.
#[must_use]
pub fn length_of_next_file(file_bytes: u64, bytes: u64, deletes: u64) -> u64 {
    if bytes + SHORT_BYTES <= file_bytes.saturating_sub(FRONT_BYTES + TAIL_BYTES) {
        return file_bytes;
    }
    let own = bytes + FRONT_BYTES + TAIL_BYTES + (deletes + SPARE_MARKERS + 1) * SHORT_BYTES;
    own.next_multiple_of(BLOCK_BYTES).max(file_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(bytes: u64) -> Spare {
        Spare { index: 1, bytes, nonce: 0 }
    }

    #[test]
    fn room_for_deletes_is_never_given_to_records() {
        let mut space = Space::default();
        space.use_file(4096, FRONT_BYTES);
        let free = 4096 - FRONT_BYTES - TAIL_BYTES;
        assert_eq!(space.find(free - 2 * 84, 1), Some(Target::Current));
        assert_eq!(space.find(free - 2 * 84 + 1, 1), None);
        assert_eq!(space.find_exactly(free - 84, 1), Some(Target::Current));
        space.add_spare(spare(4096));
        assert_eq!(space.find(free - 2 * 84 + 1, 1), Some(Target::Current), "the delete fits into the spare");
        space.take(free);
        assert_eq!(space.find(free - 2 * 84, 1), Some(Target::Spare(0)));
        assert_eq!(space.find(free, 1), None);
    }

    #[test]
    fn a_record_larger_than_a_file_gets_one_that_holds_all_the_deletes_too() {
        let mut space = Space::default();
        space.use_file(4096, FRONT_BYTES);
        space.add_spare(spare(4096));
        let bytes = length_of_next_file(4096, 100_000, 300);
        assert_eq!(space.find(100_000, 300), None);
        space.add_spare(spare(bytes));
        assert_eq!(space.find(100_000, 300), Some(Target::Spare(1)));
        assert_eq!(bytes % 4096, 0);
        assert_eq!(length_of_next_file(4096, 1000, 1_000_000), 4096);
    }

    #[test]
    fn files_made_ahead_are_counted_until_they_are_used_or_taken_back() {
        let mut space = Space::default();
        assert_eq!((space.newest_spare(), space.spare_bytes()), (None, 0));
        for (index, bytes) in [(7, 4096), (8, 8192), (9, 20_480)] {
            space.add_spare(Spare { index, bytes, nonce: 0 });
            assert_eq!(space.newest_spare(), Some(index));
        }
        assert_eq!((space.spare_bytes(), space.spare_count()), (32_768, 3));
        assert_eq!(space.drop_newest_spare().map(|spare| spare.index), Some(9));
        space.check_invariants();
        assert_eq!((space.newest_spare(), space.spare_bytes()), (Some(8), 12_288));
        assert_eq!(space.next_spare().map(|spare| spare.index), Some(7));
        space.check_invariants();
        assert_eq!((space.newest_spare(), space.spare_bytes(), space.spare_count()), (Some(8), 8192, 1));
    }

    #[test]
    fn a_file_made_for_a_record_holds_it_whatever_its_length() {
        let least = 4096 - FRONT_BYTES - TAIL_BYTES - SHORT_BYTES + 1;
        for bytes in least..12_500 {
            let mut space = Space::default();
            space.add_spare(spare(length_of_next_file(4096, bytes, 3)));
            assert_eq!(space.find(bytes, 3), Some(Target::Spare(0)), "{bytes} bytes");
        }
    }

    #[test]
    fn the_next_file_is_made_while_one_is_still_free() {
        let mut space = Space::default();
        space.use_file(8192, FRONT_BYTES);
        assert!(space.is_low(8192, 0));
        space.add_spare(spare(8192));
        assert!(!space.is_low(8192, 40));
        assert!(space.is_low(8192, 100));
    }

    #[test]
    fn deletes_of_several_short_records_find_room_in_any_order() {
        const MOST: u64 = 16;
        for first in 0..60 {
            for size in 1..=MOST {
                let mut space = Space::default();
                space.allow_deletes_of(MOST);
                space.use_file(FRONT_BYTES + TAIL_BYTES + first * SHORT_BYTES, FRONT_BYTES);
                space.add_spare(spare(4096));
                space.add_spare(Spare { index: 2, ..spare(4096) });
                space.check_invariants();
                // As many as fit, however the ends of the files fall.
                let mut needed =
                    (0..).take_while(|&units| space.find_exactly(0, units).is_some()).last().unwrap();
                while needed > 0 {
                    let units = size.min(needed);
                    needed -= units;
                    let target = space.find_exactly(units * SHORT_BYTES, needed);
                    let target =
                        target.unwrap_or_else(|| panic!("{first}: no room for {units} before {needed}"));
                    if let Target::Spare(passed) = target {
                        for _ in 0..=passed {
                            let next = space.next_spare().unwrap();
                            space.use_file(next.bytes, FRONT_BYTES);
                        }
                    }
                    space.take(units * SHORT_BYTES);
                }
            }
        }
    }
}
