//! Lines: the jobs of one tube with the same key and the same limit.
//!
//! Owns: the common values of the jobs of a line, and their positions in the ordered indexes of `mod.rs`.

use std::hash::RandomState;

use crate::job::JobId;
use crate::state::index::{Hash, Ranked, fibonacci_hash, mixed};
use crate::state::keys::{ReadyKey, TubeKey, hash_of};
use crate::tags::{Concurrency, Name};

/// A key and a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotKey {
    pub(crate) key: Box<[u8]>,
    pub(crate) limit: u32,
    /// The hash of the key.
    pub(super) hash: u64,
}

impl SlotKey {
    pub(super) fn of(line: KeyLine<'_>) -> Self {
        Self { key: line.tag.key.as_bytes().into(), limit: line.tag.limit, hash: line.key }
    }

    /// Its line of jobs in a tube.
    pub(crate) fn line(&self, tube: TubeKey) -> KeyLine<'_> {
        KeyLine { tube, tag: self.tag(), key: self.hash }
    }

    pub(crate) fn tag(&self) -> Concurrency<'_> {
        Concurrency { key: Name::again(&self.key), limit: self.limit }
    }
}

/// The common values of the jobs of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLine<'a> {
    pub(super) tube: TubeKey,
    pub(super) tag: Concurrency<'a>,
    /// The hash of the key.
    pub(super) key: u64,
}

impl<'a> KeyLine<'a> {
    pub(super) fn new(tube: TubeKey, tag: Concurrency<'a>, hasher: &RandomState) -> Self {
        Self { tube, tag, key: hash_of(hasher, tag.key.as_bytes()) }
    }

    /// The hash by which the first jobs of all tubes are found.
    pub(super) fn hash(self) -> Hash {
        Hash::new(self.key ^ fibonacci_hash(self.tag.limit))
    }

    /// The hash by which the jobs behind the first are found. The numbers of tubes can be guessed, so they are mixed
    /// with the seeded hash: no client can choose a tube and a key whose line falls among the million jobs of another
    /// line.
    pub(super) fn hash_behind(self) -> Hash {
        Hash::new(mixed(self.key, u64::from(self.tag.limit) << 32 | u64::from(self.tube.0)))
    }

    /// The position of a job of the line, if it is the first job.
    pub(super) fn first(self, id: JobId) -> Ranked {
        Ranked::new(self.hash(), self.tube.0, id)
    }

    /// The position of a job of the line behind the first job.
    pub(super) fn behind(self, key: ReadyKey) -> Ranked {
        Ranked::ready(self.hash_behind(), key)
    }

    /// The position of a job of the line among the parked first jobs.
    pub(super) fn parked(self, key: ReadyKey) -> Ranked {
        Ranked::ready(self.hash(), key)
    }

    /// The line of the jobs with another limit.
    pub(super) fn with_limit(self, limit: u32) -> Self {
        Self { tag: Concurrency { limit, ..self.tag }, ..self }
    }
}
