//! The figures of the store, which the threads write and the loop reads.
//!
//! Owns: the counters. Nobody waits for anybody here, and nothing is decided by a figure.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::claim::Since;
use crate::binlog::storage::DatabaseFigures;
use crate::clock::NS_PER_S;

/// Written by the helper and by the thread of the vacuum.
#[derive(Debug)]
pub(super) struct Figures {
    since: Since,
    is_replicated: bool,
    pub(super) epoch: AtomicU64,
    commits: AtomicU64,
    pub(super) reconnects: AtomicU64,
    /// When the database has confirmed a transaction, in nanoseconds after `since`.
    confirmed_at_ns: AtomicU64,
    pub(super) table_bytes: AtomicU64,
}

impl Default for Figures {
    fn default() -> Self {
        Self::new(Since::start(), 0, false)
    }
}

impl Figures {
    pub(super) fn new(since: Since, epoch: u64, is_replicated: bool) -> Self {
        Self {
            since,
            is_replicated,
            epoch: AtomicU64::new(epoch),
            commits: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            confirmed_at_ns: AtomicU64::new(since.now().0),
            table_bytes: AtomicU64::new(0),
        }
    }

    /// The database has confirmed a transaction.
    pub(super) fn note_commit(&self) {
        self.commits.fetch_add(1, Relaxed);
        self.confirmed_at_ns.store(self.since.now().0, Relaxed);
    }

    pub(super) fn read(&self) -> DatabaseFigures {
        DatabaseFigures {
            epoch: self.epoch.load(Relaxed),
            commits: self.commits.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
            silence_s: self.since.now().0.saturating_sub(self.confirmed_at_ns.load(Relaxed)) / NS_PER_S,
            is_replicated: self.is_replicated,
            table_bytes: self.table_bytes.load(Relaxed),
        }
    }
}
