//! The keys of the indexes in which jobs are found by what their tags say.
//!
//! Owns: how a hash and an id become one key. The indexes are ordered queues of hashes: such a queue never moves as a
//! whole in order to grow, as a hash table does. Two names may have the same hash, so whoever finds a job looks at its
//! tags, too. The hash is seeded, so that nobody can choose names that meet.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::job::{JobId, Priority};
use crate::queue::keys::ReadyKey;
use crate::queue::ordered::{Key, OrderedQueue};
use crate::tags::Name;

/// The hash of a name.
pub fn hash_of(hasher: &RandomState, name: Name<'_>) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(name.as_bytes());
    state.finish()
}

/// A number over all bits.
pub fn spread(number: u32) -> u64 {
    // Odd, so that no two numbers meet: 2^64 by the golden ratio.
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// 48 bits of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// The low 48 bits.
    pub fn new(bits: u64) -> Self {
        Self(bits & (u64::MAX >> 16))
    }
}

/// A job, by a hash. The bytes are big-endian numbers, so that keys are compared some words at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashed([u8; 14]);

impl Hashed {
    pub fn new(Hash(hash): Hash, JobId(id): JobId) -> Self {
        let mut bytes = [0; 14];
        bytes[..8].copy_from_slice(&(hash << 16).to_be_bytes());
        bytes[6..].copy_from_slice(&id.to_be_bytes());
        Self(bytes)
    }

    fn hash(self) -> Hash {
        Hash(word(&self.0, 0) >> 16)
    }

    pub fn job(self) -> JobId {
        JobId(word(&self.0, 6))
    }
}

impl Ord for Hashed {
    fn cmp(&self, other: &Self) -> Ordering {
        let words = |key: &Self| (word(&key.0, 0), word(&key.0, 6));
        words(self).cmp(&words(other))
    }
}

impl PartialOrd for Hashed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A job, by a hash, and then in the order of ready jobs. The bytes are as in [`Hashed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedReady([u8; 18]);

impl HashedReady {
    pub fn new(Hash(hash): Hash, priority: Priority, JobId(id): JobId) -> Self {
        let mut bytes = [0; 18];
        bytes[..8].copy_from_slice(&(hash << 16).to_be_bytes());
        bytes[6..10].copy_from_slice(&priority.0.to_be_bytes());
        bytes[10..].copy_from_slice(&id.to_be_bytes());
        Self(bytes)
    }

    fn hash(self) -> Hash {
        Hash(word(&self.0, 0) >> 16)
    }

    pub fn job(self) -> JobId {
        JobId(word(&self.0, 10))
    }
}

impl Ord for HashedReady {
    fn cmp(&self, other: &Self) -> Ordering {
        let words = |key: &Self| (word(&key.0, 0), word(&key.0, 8), word(&key.0, 10));
        words(self).cmp(&words(other))
    }
}

impl PartialOrd for HashedReady {
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

impl Key for Hashed {
    fn id(self) -> u64 {
        self.job().0
    }
}

impl Key for HashedReady {
    fn id(self) -> u64 {
        self.job().0
    }
}

impl Key for JobId {
    fn id(self) -> u64 {
        self.0
    }
}

/// The jobs with this hash.
pub fn with_hash(index: &OrderedQueue<Hashed>, hash: Hash) -> impl Iterator<Item = JobId> {
    with_prefix(index, hash, 0)
}

/// The jobs with a hash that is this one but for so many low bits.
pub fn with_prefix(index: &OrderedQueue<Hashed>, hash: Hash, free: u32) -> impl Iterator<Item = JobId> {
    let prefix = hash.0 >> free;
    let start = Hashed::new(Hash(prefix << free), JobId(0));
    index.iter_after(start).take_while(move |key| key.hash().0 >> free == prefix).map(Hashed::job)
}

/// The jobs with this hash in the order of ready jobs.
pub fn ready_with_hash(index: &OrderedQueue<HashedReady>, hash: Hash) -> impl Iterator<Item = JobId> {
    ready_after(index, hash, None)
}

/// Those of them that come after `after`.
pub fn ready_after(
    index: &OrderedQueue<HashedReady>,
    hash: Hash,
    after: Option<ReadyKey>,
) -> impl Iterator<Item = JobId> {
    let after = after.unwrap_or(ReadyKey::new(Priority(0), JobId(0)));
    let start = HashedReady::new(hash, after.priority(), after.job());
    index.iter_after(start).take_while(move |key| key.hash() == hash).map(HashedReady::job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_by_their_hash_and_no_others() {
        let mut index = OrderedQueue::default();
        let hashes = [0, 1, 0xffff, 0x1_0000, 0xffff_ffff_f000, 0xffff_ffff_ffff];
        for (at, &hash) in hashes.iter().enumerate() {
            for id in [1, 1 << 20, u64::MAX] {
                index.insert(Hashed::new(Hash::new(hash), JobId(id - at as u64 * u64::from(id > 9))));
            }
        }
        for &hash in &hashes {
            assert_eq!(with_hash(&index, Hash::new(hash)).count(), 3);
        }
        assert_eq!(with_hash(&index, Hash::new(2)).count(), 0);
        assert_eq!(with_prefix(&index, Hash::new(0x0fff), 12).count(), 6);
        assert_eq!(with_prefix(&index, Hash::new(0xffff_ffff_f00f), 12).count(), 6);
        let last = with_hash(&index, Hash::new(0)).last();
        assert_eq!(last, Some(JobId(u64::MAX)));
    }
}
