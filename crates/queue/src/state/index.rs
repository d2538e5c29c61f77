//! The keys of the indexes in which jobs are found by their tags.
//!
//! Owns: the hashes, and how a hash and an id become one key of an ordered index. `HashIndex` needs only the hash; the
//! ordered indexes are for jobs that are found by a hash and a number, such as a priority. Two names can have the same
//! hash, so code that finds a job also checks its tags. The hash is seeded, so that nobody can choose names that
//! collide.

use std::cmp::Ordering;
use std::iter;

use beanstalkd_structures::{Key, OrderedQueue};

use crate::job::{JobId, Priority};
use crate::state::keys::ReadyKey;

/// Fibonacci hashing: spreads a number over all 64 bits. Any part that includes the low 32 bits is free of collisions;
/// in other parts an attacker could choose colliding numbers.
pub(crate) fn fibonacci_hash(number: u32) -> u64 {
    // An odd number: 2^64 divided by the golden ratio.
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A hash of a seeded hash and a number. A client, which does not know the seed, cannot choose numbers with which any
/// part of the result collides: the steps are those by which `MurmurHash3` ends.
pub(crate) fn mixed(hash: u64, number: u64) -> u64 {
    let mut bits = hash ^ number;
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ bits >> 33).wrapping_mul(factor);
    }
    bits ^ bits >> 33
}

/// 48 bits of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hash(u64);

impl Hash {
    /// The low 48 bits.
    pub(crate) fn new(bits: u64) -> Self {
        Self(bits & (u64::MAX >> 16))
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// A job, by a hash, and then by a number: its priority or its tube. The bytes are big-endian numbers, so that keys are
/// compared some words at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked([u8; 18]);

impl Ranked {
    pub(crate) fn new(Hash(hash): Hash, rank: u32, JobId(id): JobId) -> Self {
        let mut bytes = [0; 18];
        bytes[..8].copy_from_slice(&(hash << 16).to_be_bytes());
        bytes[6..10].copy_from_slice(&rank.to_be_bytes());
        bytes[10..].copy_from_slice(&id.to_be_bytes());
        Self(bytes)
    }

    pub(crate) fn hash(self) -> Hash {
        Hash(word(&self.0, 0) >> 16)
    }

    /// The key of a ready job, ranked by its priority.
    pub(crate) fn ready(hash: Hash, key: ReadyKey) -> Self {
        Self::new(hash, key.priority().0, key.job())
    }

    /// The job's key, if it is ranked by its priority.
    pub(crate) fn ready_key(self) -> ReadyKey {
        ReadyKey::new(Priority(self.rank()), self.job())
    }

    fn rank(self) -> u32 {
        word(&self.0, 2) as u32
    }

    pub(crate) fn job(self) -> JobId {
        JobId(word(&self.0, 10))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        crate::testing::steps::note();
        let words = |at| word(&self.0, at).cmp(&word(&other.0, at));
        words(0).then_with(|| words(8)).then_with(|| words(10))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The eight bytes at `at`, as a number.
#[inline(always)]
fn word<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}

impl Key for Ranked {
    fn id(self) -> u64 {
        self.job().0
    }
}

/// The keys after `start`. Few are ever examined, usually none.
fn after<K: Key>(index: &OrderedQueue<K>, start: K) -> impl Iterator<Item = K> {
    let mut last = start;
    iter::from_fn(move || {
        last = index.first_after(last)?;
        Some(last)
    })
}

/// The jobs with this hash and this number.
pub(crate) fn with_hash_and_rank(
    index: &OrderedQueue<Ranked>,
    hash: Hash,
    rank: u32,
) -> impl Iterator<Item = JobId> {
    let start = Ranked::new(hash, rank, JobId(0));
    let is_meant = move |key: &Ranked| key.hash() == hash && key.rank() == rank;
    after(index, start).take_while(is_meant).map(Ranked::job)
}

/// The jobs with this hash in the order of their numbers; if these are priorities, only those after `behind`.
pub(crate) fn ranked_after(
    index: &OrderedQueue<Ranked>,
    hash: Hash,
    behind: Option<ReadyKey>,
) -> impl Iterator<Item = Ranked> {
    let start = Ranked::ready(hash, behind.unwrap_or(ReadyKey::new(Priority(0), JobId(0))));
    after(index, start).take_while(move |key| key.hash() == hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_by_their_hash_and_no_others() {
        let mut index = OrderedQueue::default();
        for (hash, rank) in [(1, 0), (1, u32::MAX), (2, 7), (2, 8), (2, 0x0001_0000), (3, 7)] {
            index.insert(Ranked::new(Hash::new(hash), rank, JobId(u64::from(rank) << 20 | hash)));
        }
        let of_tube = with_hash_and_rank(&index, Hash::new(2), 7);
        assert_eq!(of_tube.collect::<Vec<_>>(), [JobId(7 << 20 | 2)]);
        assert_eq!(with_hash_and_rank(&index, Hash::new(2), 0).count(), 0);
        assert_eq!(ranked_after(&index, Hash::new(2), None).count(), 3);
    }
}
