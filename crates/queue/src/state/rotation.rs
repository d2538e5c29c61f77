//! The rotation of a fair tube: the order in which the keys of its jobs take turns.
//!
//! Owns: the positions of the keys. `rules/rotation.rs` decides which jobs are in the rotation.

use std::cmp::Ordering;

use beanstalkd_structures::{Key, OrderedQueue};

use crate::job::{JobId, Priority};
use crate::state::index::{Hash, Ranked};
use crate::state::keys::{CompactU64, ReadyKey};

/// The memory of the rotation of a tube, in bytes, while it has few jobs or none: the rotation itself, the order of its
/// jobs, and the parked ones.
pub(crate) const BYTES_PER_TUBE: usize = 360;

/// The memory of a job in a rotation, in bytes, if its key has no other.
pub(crate) const BYTES_PER_JOB: usize = 72;

/// The position of a key: by the priority of its first job, then by a number that is larger at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyPosition {
    priority: u32,
    number: CompactU64,
    job: CompactU64,
    /// The hash of the key. No two positions have the same number, so it does not affect the order.
    hash: CompactU64,
}

impl KeyPosition {
    fn new(hash: Hash, first: ReadyKey, number: u64) -> Self {
        let (number, job) = (number.into(), first.job().0.into());
        Self { priority: first.priority().0, number, job, hash: hash.bits().into() }
    }

    pub(crate) fn ready_key(self) -> ReadyKey {
        ReadyKey::new(Priority(self.priority), JobId(self.job.into()))
    }

    pub(crate) fn hash(self) -> Hash {
        Hash::new(self.hash.into())
    }
}

impl Key for KeyPosition {
    fn id(self) -> u64 {
        self.job.into()
    }
}

/// A job in a rotation, by the hash of its key, and then by priority and age.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RotationEntry {
    pub(crate) ranked: Ranked,
    /// In the first job of a key, the number of the key's position; in another job it has no meaning. It does not
    /// affect the order, and has no alignment, so that there is no padding.
    number: [u8; 8],
}

impl RotationEntry {
    fn new(hash: Hash, key: ReadyKey, number: u64) -> Self {
        Self { ranked: Ranked::ready(hash, key), number: number.to_ne_bytes() }
    }

    fn number(self) -> u64 {
        u64::from_ne_bytes(self.number)
    }

    pub(crate) fn position(self) -> KeyPosition {
        KeyPosition::new(self.ranked.hash(), self.ranked.ready_key(), self.number())
    }
}

impl PartialEq for RotationEntry {
    fn eq(&self, other: &Self) -> bool {
        self.ranked == other.ranked
    }
}

impl Eq for RotationEntry {}

impl PartialOrd for RotationEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RotationEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ranked.cmp(&other.ranked)
    }
}

impl Key for RotationEntry {
    fn id(self) -> u64 {
        self.ranked.job().0
    }
}

/// The rotation of a tube.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// The jobs, by the hashes of their keys, and then by priority and age. Two keys with the same hash would share
    /// their position. The hash is seeded, so that nobody can choose such keys; among 100,000 keys in a rotation, the
    /// chance that two have the same hash is one in 50,000.
    pub(crate) jobs: OrderedQueue<RotationEntry>,
    /// The first job of each key.
    pub(crate) positions: OrderedQueue<KeyPosition>,
    next_number: u64,
    /// The position of the job in the tube's ready queue.
    pub(crate) head: Option<KeyPosition>,
    /// The key that has just lost its last job, though not to a client, and the number of its position: if its next job
    /// comes before `forget_position`, the key keeps its position. Always `None` in a rotation that ends.
    pub(crate) leaving: Option<(Hash, u64)>,
    /// Whether the rule has been removed: the walk of a reload takes the jobs out.
    pub(crate) is_ending: bool,
}

impl Rotation {
    pub(crate) fn first_of(&self, hash: Hash) -> Option<RotationEntry> {
        let start = RotationEntry::new(hash, ReadyKey::new(Priority(0), JobId(0)), 0);
        self.jobs.first_after(start).filter(|first| first.ranked.hash() == hash)
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn insert(&mut self, hash: Hash, key: ReadyKey) {
        let leaving = self.leaving.take().filter(|&(left, _)| left == hash);
        let number = match self.first_of(hash) {
            None => leaving.map(|(_, number)| number).unwrap_or_else(|| self.next_number()),
            Some(first) if key < first.ranked.ready_key() => {
                self.positions.remove(first.position());
                first.number()
            }
            Some(_) => {
                self.jobs.insert(RotationEntry::new(hash, key, 0));
                return;
            }
        };
        let first = RotationEntry::new(hash, key, number);
        self.jobs.insert(first);
        self.positions.insert(first.position());
        debug_assert!(self.positions.len() <= self.jobs.len(), "a key in the rotation has a job");
    }

    /// Takes a job out. If a client has reserved it, its key goes to the end of the rotation.
    pub(crate) fn remove(&mut self, hash: Hash, key: ReadyKey, is_reserved: bool) {
        let found = self.jobs.remove(RotationEntry::new(hash, key, 0));
        let found = found.expect("a job in the rotation is indexed");
        self.leaving = None;
        let next = self.first_of(hash);
        if next.is_some_and(|next| next < found) {
            return;
        }
        let position = self.positions.remove(found.position());
        debug_assert!(position.is_some(), "the first job of a key is in the rotation");
        self.head = self.head.filter(|head| head.ready_key() != key);
        let Some(next) = next else {
            let may_return = !is_reserved && !self.is_ending;
            self.leaving = may_return.then_some((hash, found.number()));
            return;
        };
        let number = if is_reserved { self.next_number() } else { found.number() };
        let first = RotationEntry::new(hash, next.ranked.ready_key(), number);
        let replaced = self.jobs.replace(next, first);
        debug_assert!(replaced.is_some(), "the next job of the key is indexed");
        self.positions.insert(first.position());
        debug_assert!(self.positions.len() <= self.jobs.len(), "a key in the rotation has a job");
    }
}
