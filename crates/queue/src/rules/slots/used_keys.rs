//! The keys of the tag `con` that ready or reserved jobs have.
//!
//! Owns: a small entry for each key: how many of its jobs are reserved, and the first job in one of its lines. Most
//! keys have one job at a time, and then the entry is all that a put, a reserve or a delete looks up. Driven by
//! `mod.rs`, which keeps the other jobs of a key in ordered indexes. They are counted here, and an entry says whether
//! its key has any, so that the indexes are searched only for keys that do.
//!
//! A key is its seeded hash of 64 bits. Two keys with the same hash would share an entry and their slots, but no job
//! would be reserved above its limit. If a million keys are in use, the chance of that is one in 30 million.

use std::collections::BTreeMap;

use beanstalkd_structures::HashIndex;

use crate::job::JobId;

/// The bit of `UsedKey::first` that says that jobs of the key are in the ordered indexes. No larger id fits.
const INDEXED: u64 = 1 << 47;

/// The memory that a key with reserved jobs counts, in bytes. Its entry takes less. All other entries count with the
/// jobs that have them.
const KEY_BYTES: usize = 40;

/// A key that is in use, in 10 bytes without alignment: each such job pays for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UsedKey {
    /// The id of the first job of one of its lines, 0 if there is none, and the bit `INDEXED`. Little-endian.
    first: [u8; 6],
    /// How many of its jobs are reserved.
    taken: [u8; 4],
}

impl UsedKey {
    fn new(first: u64, taken: u32) -> Self {
        let mut key = Self { first: [0; 6], taken: taken.to_ne_bytes() };
        key.set_bits(first);
        key
    }

    #[inline]
    fn bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.first;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    #[inline]
    fn set_bits(&mut self, bits: u64) {
        let [a, b, c, d, e, f, ..] = bits.to_le_bytes();
        self.first = [a, b, c, d, e, f];
    }

    /// The first job that this entry has.
    #[inline]
    pub(super) fn first(self) -> Option<JobId> {
        Some(JobId(self.bits() & !INDEXED)).filter(|first| first.0 > 0)
    }

    /// Whether jobs of the key are in the ordered indexes.
    #[inline]
    pub(super) fn has_indexed(self) -> bool {
        self.bits() & INDEXED != 0
    }

    /// How many of its jobs are reserved.
    #[inline]
    pub(super) fn taken(self) -> u32 {
        u32::from_ne_bytes(self.taken)
    }

    fn is_unused(self) -> bool {
        self == Self::default()
    }
}

/// The jobs of a key, for the check of the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyJobs {
    pub(super) first: Option<JobId>,
    pub(super) taken: u32,
    pub(super) indexed: u32,
}

/// The keys that are in use.
#[derive(Debug, Default)]
pub(super) struct UsedKeys {
    by_hash: HashIndex<UsedKey>,
    /// How many jobs of a key are in the ordered indexes; not 0.
    indexed: HashIndex<u32>,
    /// How many keys have reserved jobs.
    taken_keys: usize,
}

impl UsedKeys {
    /// The entry of a key.
    #[inline]
    pub(super) fn get(&self, hash: u64) -> UsedKey {
        self.by_hash.get(hash).unwrap_or_default()
    }

    fn change(&mut self, hash: u64, change: impl FnOnce(&mut UsedKey)) {
        let Some(key) = self.by_hash.get_mut(hash) else {
            let mut key = UsedKey::default();
            change(&mut key);
            if !key.is_unused() {
                self.by_hash.insert(hash, key);
            }
            return;
        };
        change(key);
        if key.is_unused() {
            self.by_hash.remove(hash, |_| true);
        }
    }

    /// Sets the first job of the entry; returns whether it fits. If it does not, the entry has none.
    pub(super) fn set_first(&mut self, hash: u64, first: Option<JobId>) -> bool {
        let id = first.map_or(0, |first| first.0);
        let fits = id < INDEXED;
        let id = if fits { id } else { 0 };
        self.change(hash, |key| key.set_bits(key.bits() & INDEXED | id));
        fits
    }

    /// Makes `id` the first job of the key if the key has no other ready job; returns how many of its jobs are reserved
    /// then.
    #[inline]
    pub(super) fn enter_alone(&mut self, hash: u64, JobId(id): JobId) -> Option<u32> {
        if id >= INDEXED {
            return None;
        }
        let Some(key) = self.by_hash.get_mut(hash) else {
            self.by_hash.insert(hash, UsedKey::new(id, 0));
            return Some(0);
        };
        if key.bits() != 0 {
            return None;
        }
        key.set_bits(id);
        Some(key.taken())
    }

    /// Counts a reserved job of the key if it was the only ready one, which the key then no longer has; returns whether
    /// it was.
    #[inline]
    pub(super) fn take_if_alone(&mut self, hash: u64, JobId(id): JobId) -> bool {
        if id >= INDEXED {
            return false;
        }
        let Some(key) = self.by_hash.get_mut(hash).filter(|key| key.bits() == id) else { return false };
        self.taken_keys += usize::from(key.taken() == 0);
        *key = UsedKey::new(0, key.taken() + 1);
        true
    }

    /// Counts a reserved job of the key; returns how many there are then. Its first job stays.
    pub(super) fn take(&mut self, hash: u64) -> u32 {
        let mut taken = 0;
        self.change(hash, |key| {
            taken = key.taken() + 1;
            key.taken = taken.to_ne_bytes();
        });
        self.taken_keys += usize::from(taken == 1);
        taken
    }

    /// Subtracts a reserved job of the key; returns the entry as it was before.
    #[inline]
    pub(super) fn give_back(&mut self, hash: u64) -> UsedKey {
        let key =
            self.by_hash.get_mut(hash).filter(|key| key.taken() > 0).expect("a reserved job has a slot");
        let before = *key;
        self.taken_keys -= usize::from(before.taken() == 1);
        if before == UsedKey::new(0, 1) {
            self.by_hash.remove(hash, |_| true);
        } else {
            key.taken = (before.taken() - 1).to_ne_bytes();
        }
        before
    }

    /// Counts a job of the key that has come into an ordered index.
    pub(super) fn add_indexed(&mut self, hash: u64) {
        if let Some(count) = self.indexed.get_mut(hash) {
            *count += 1;
        } else {
            self.indexed.insert(hash, 1);
            self.change(hash, |key| key.set_bits(key.bits() | INDEXED));
        }
    }

    /// Subtracts a job of the key that has left an ordered index.
    pub(super) fn remove_indexed(&mut self, hash: u64) {
        let count = self.indexed.get_mut(hash).expect("the jobs in the indexes are counted");
        *count -= 1;
        if *count == 0 {
            self.indexed.remove(hash, |_| true);
            self.change(hash, |key| key.set_bits(key.bits() & !INDEXED));
        }
    }

    /// Whether jobs with a key are reserved.
    pub(super) fn has_taken(&self) -> bool {
        self.taken_keys > 0
    }

    /// The memory that the keys with reserved jobs count, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.taken_keys * KEY_BYTES
    }

    /// Asserts that the entries are those of these jobs.
    pub(super) fn check(&self, expected: &BTreeMap<u64, KeyJobs>) {
        for (&hash, &expected) in expected {
            let (key, indexed) = (self.get(hash), self.indexed.get(hash).unwrap_or(0));
            let found = KeyJobs { first: key.first(), taken: key.taken(), indexed };
            assert_eq!(found, expected, "the entry of a key counts its jobs");
            assert_eq!(key.has_indexed(), indexed > 0);
        }
        assert_eq!(self.by_hash.len(), expected.len(), "each key in use has one entry");
        assert_eq!(self.indexed.len(), expected.values().filter(|key| key.indexed > 0).count());
        assert_eq!(self.taken_keys, expected.values().filter(|key| key.taken > 0).count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_10_bytes_and_ends_with_the_last_job_of_its_key() {
        assert_eq!((size_of::<UsedKey>(), align_of::<UsedKey>()), (10, 1));
        let mut keys = UsedKeys::default();
        assert_eq!(keys.enter_alone(7, JobId(1)), Some(0));
        assert_eq!(keys.enter_alone(7, JobId(2)), None, "another job is ready");
        assert!(!keys.take_if_alone(7, JobId(2)) && keys.take_if_alone(7, JobId(1)));
        assert_eq!(keys.enter_alone(7, JobId(2)), Some(1));
        keys.add_indexed(7);
        keys.add_indexed(7);
        assert!(!keys.take_if_alone(7, JobId(2)), "others are in the indexes");
        assert_eq!(keys.take(7), 2);
        keys.check(&BTreeMap::from([(7, KeyJobs { first: Some(JobId(2)), taken: 2, indexed: 2 })]));
        assert_eq!((keys.give_back(7).taken(), keys.give_back(7).taken(), keys.has_taken()), (2, 1, false));
        assert!(keys.set_first(7, None));
        keys.remove_indexed(7);
        assert!(keys.get(7).has_indexed());
        keys.remove_indexed(7);
        keys.check(&BTreeMap::new());
    }

    #[test]
    fn an_id_that_does_not_fit_is_never_in_an_entry() {
        let (small, large) = (JobId(INDEXED - 1), JobId(INDEXED));
        let mut keys = UsedKeys::default();
        assert_eq!((keys.enter_alone(7, large), keys.enter_alone(7, small)), (None, Some(0)));
        assert_eq!((keys.set_first(7, Some(small)), keys.get(7).first()), (true, Some(small)));
        assert_eq!((keys.set_first(7, Some(large)), keys.get(7).first()), (false, None));
        assert!(!keys.take_if_alone(7, large));
        keys.check(&BTreeMap::new());
    }
}
