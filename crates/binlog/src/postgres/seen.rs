//! The databases of the URL, as this server has seen them.
//!
//! Owns: the highest epoch of the queue, which shows whether a database is an older copy, and the warnings that have
//! been given. Shared by all connections, and forgotten when the process ends.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use log::warn;

#[derive(Debug, Default)]
pub(super) struct SeenDatabases {
    epoch: AtomicU64,
    has_warned: AtomicBool,
}

impl SeenDatabases {
    /// The highest epoch; 0 if none was seen.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Notes that the queue has this epoch.
    pub(super) fn note(&self, epoch: i64) -> u64 {
        let epoch = u64::try_from(epoch).unwrap_or(0);
        self.epoch.fetch_max(epoch, Relaxed);
        epoch
    }

    /// Notes the `synchronous_standby_names` of the database.
    pub(super) fn note_names(&self, names: &str) {
        if names.contains('*') && !self.has_warned.swap(true, Relaxed) {
            warn!(
                "synchronous_standby_names is {names}: any standby counts, so an old primary that gets a standby of \
                 its own takes commits that the others do not have; name the standbys instead of *"
            );
        }
    }
}
