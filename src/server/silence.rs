//! Silent connections: whom to look at next, for `--idle-timeout`.
//!
//! Owns: for each connection an instant at which it is to be looked at, in order. A connection that is
//! heard of pays nothing: only at its instant is its silence measured, and a new one set. Never closes
//! anything. Driven by the server.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::ClientId;

/// When to look at which connection; empty while there is no time-out.
#[derive(Debug, Default)]
pub struct Silence {
    timeout_ns: Option<u64>,
    /// The instant, then index and generation of the client.
    looks: BTreeSet<(Timestamp, u32, u32)>,
}

impl Silence {
    /// How long a connection may be silent.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout_ns = Some(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Watches a connection; returns when it is to be looked at.
    pub fn watch(&mut self, id: ClientId, silent_since: Timestamp) -> Option<Timestamp> {
        let look_at = silent_since + self.timeout_ns?;
        self.looks.insert((look_at, id.index, id.generation));
        Some(look_at)
    }

    /// Watches a connection no further that was to be looked at at `look_at`.
    pub fn forget(&mut self, id: ClientId, look_at: Option<Timestamp>) {
        if let Some(look_at) = look_at {
            self.looks.remove(&(look_at, id.index, id.generation));
        }
    }

    /// When the next connection is to be looked at.
    pub fn next_look_at(&self) -> Option<Timestamp> {
        self.looks.first().map(|look| look.0)
    }

    /// A connection that is to be looked at by `now`, with how long it may have been silent since; it is
    /// watched no further.
    pub fn next_due(&mut self, now: Timestamp) -> Option<(ClientId, u64)> {
        let timeout_ns = self.timeout_ns?;
        if self.looks.first().is_none_or(|look| look.0 > now) {
            return None;
        }
        let (_, index, generation) = self.looks.pop_first()?;
        Some((ClientId { index, generation }, timeout_ns))
    }
}
