//! The figures of the store and the lease of the owner, which the threads write and the loop reads.
//!
//! Owns: the counters, and the end of the lease. No thread waits here, and no figure decides anything. A lease that is
//! out of date when it is read was valid when it was written, and ends at its time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::now;
use crate::clock::{NS_PER_S, Timestamp};
use crate::ownership::Lease;
use crate::storage::DatabaseFigures;

/// Written by the helper and by the vacuum thread.
#[derive(Debug, Default)]
pub(super) struct StoreFigures {
    is_replicated: bool,
    pub(super) epoch: AtomicU64,
    commits: AtomicU64,
    pub(super) reconnects: AtomicU64,
    lease_end_ns: AtomicU64,
    /// When the database last confirmed a transaction.
    confirmed_at_ns: AtomicU64,
    pub(super) table_bytes: AtomicU64,
    /// Whether the database has no room for puts.
    pub(super) is_full: AtomicBool,
}

impl StoreFigures {
    pub(super) fn new(epoch: u64, is_replicated: bool) -> Self {
        Self {
            is_replicated,
            epoch: AtomicU64::new(epoch),
            confirmed_at_ns: AtomicU64::new(now().0),
            ..Self::default()
        }
    }

    /// Notes that the database has confirmed a transaction.
    pub(super) fn note_commit(&self) {
        self.commits.fetch_add(1, Relaxed);
        self.confirmed_at_ns.store(now().0, Relaxed);
    }

    pub(super) fn lease(&self) -> Lease {
        Lease::until(Timestamp(self.lease_end_ns.load(Acquire)))
    }

    pub(super) fn set_lease(&self, lease: Lease) {
        self.lease_end_ns.store(lease.end().0, Release);
    }

    pub(super) fn read(&self) -> DatabaseFigures {
        DatabaseFigures {
            epoch: self.epoch.load(Relaxed),
            commits: self.commits.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
            silence_s: now().0.saturating_sub(self.confirmed_at_ns.load(Relaxed)) / NS_PER_S,
            has_lease: self.lease().is_valid_at(now()),
            is_replicated: self.is_replicated,
            table_bytes: self.table_bytes.load(Relaxed),
        }
    }
}
