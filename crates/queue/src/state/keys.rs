//! The keys of the ordered queues, the key of a tube, and the hash of a name.
//!
//! Owns: the order of the keys, which is the protocol's order. Driven by all other files of the queue.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};

use beanstalkd_structures::Key;
pub(crate) use beanstalkd_structures::{ClientKey, TubeKey};

use crate::clock::Timestamp;
use crate::job::{JobId, Priority};

/// The seeded hash of a name.
pub(crate) fn hash_of(hasher: &RandomState, name: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(name);
    state.finish()
}

/// A `u64` with the alignment of a `u32`, so that there is no padding beside a `u32`. It is ordered by its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CompactU64([u32; 2]);

impl From<u64> for CompactU64 {
    fn from(number: u64) -> Self {
        Self([(number >> 32) as u32, number as u32])
    }
}

impl From<CompactU64> for u64 {
    fn from(CompactU64([high, low]): CompactU64) -> Self {
        Self::from(high) << 32 | Self::from(low)
    }
}

impl From<CompactU64> for Timestamp {
    fn from(at: CompactU64) -> Self {
        Self(at.into())
    }
}

/// A ready job in its tube's order: by priority, then by age (protocol, "reserve").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadyKey(Priority, CompactU64);

impl ReadyKey {
    /// The key of a job.
    pub(crate) fn new(priority: Priority, id: JobId) -> Self {
        Self(priority, id.0.into())
    }

    /// The job.
    pub(crate) fn job(self) -> JobId {
        JobId(self.1.into())
    }

    /// The job's priority.
    pub(crate) fn priority(self) -> Priority {
        self.0
    }
}

/// A delayed job in the order of its deadline.
pub(crate) type DueKey = (Timestamp, JobId);

/// A reserved job in the order of its deadline, with the instant of the reservation, which does not affect the order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub until: Timestamp,
    pub id: JobId,
    /// When it began; a `touch` leaves it as it is.
    pub since: Timestamp,
}

impl Reservation {
    /// Equal to the reservation of this job that ends at `until`, whenever it began.
    pub(crate) fn key(until: Timestamp, id: JobId) -> Self {
        Self { until, id, since: Timestamp::default() }
    }
}

impl PartialEq for Reservation {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Reservation {}

impl PartialOrd for Reservation {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Reservation {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.until, self.id).cmp(&(other.until, other.id))
    }
}

/// A buried job in the order of burial.
pub(crate) type BuriedKey = (u64, JobId);

/// The waiting clients in the order in which they began to wait: the number of the wait, and the client.
pub(crate) type WaitKey = (u64, ClientKey);

impl Key for ReadyKey {
    fn id(self) -> u64 {
        self.job().0
    }
}

impl Key for Reservation {
    fn id(self) -> u64 {
        self.id.0
    }
}
