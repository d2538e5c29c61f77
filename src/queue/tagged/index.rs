//! The keys of the indexes in which jobs are found by what their tags say.
//!
//! Owns: how a hash and an id become one key. The indexes are ordered queues of hashes: such a queue never moves as a
//! whole in order to grow, as a hash table does. Two names may have the same hash, so whoever finds a job looks at its
//! tags, too. The hash is seeded, so that nobody can choose names that meet.

use crate::job::{JobId, Priority};
use crate::queue::ordered::{Key, OrderedQueue};

/// 48 bits of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash([u16; 3]);

impl Hash {
    /// The low 48 bits.
    pub fn new(bits: u64) -> Self {
        Self([(bits >> 32) as u16, (bits >> 16) as u16, bits as u16])
    }

    fn bits(self) -> u64 {
        let [high, middle, low] = self.0.map(u64::from);
        high << 32 | middle << 16 | low
    }
}

/// A job, by a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hashed(Hash, [u16; 4]);

impl Hashed {
    pub fn new(hash: Hash, id: JobId) -> Self {
        Self(hash, words(id))
    }

    pub fn job(self) -> JobId {
        id_of(self.1)
    }
}

/// A job, by a hash, and then in the order of ready jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HashedReady(Hash, [u16; 2], [u16; 4]);

impl HashedReady {
    pub fn new(hash: Hash, priority: Priority, id: JobId) -> Self {
        Self(hash, [(priority.0 >> 16) as u16, priority.0 as u16], words(id))
    }

    pub fn job(self) -> JobId {
        id_of(self.2)
    }
}

fn words(JobId(id): JobId) -> [u16; 4] {
    [(id >> 48) as u16, (id >> 32) as u16, (id >> 16) as u16, id as u16]
}

fn id_of(words: [u16; 4]) -> JobId {
    JobId(words.into_iter().fold(0, |id, word| id << 16 | u64::from(word)))
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
    let prefix = hash.bits() >> free;
    let start = Hashed::new(Hash::new(prefix << free), JobId(0));
    index.iter_after(start).take_while(move |key| key.0.bits() >> free == prefix).map(Hashed::job)
}

/// The jobs with this hash in the order of ready jobs.
pub fn ready_with_hash(index: &OrderedQueue<HashedReady>, hash: Hash) -> impl Iterator<Item = JobId> {
    let start = HashedReady::new(hash, Priority(0), JobId(0));
    index.iter_after(start).take_while(move |key| key.0 == hash).map(HashedReady::job)
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
