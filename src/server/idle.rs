//! Idle time-outs: which connection to look at next, for `--idle-timeout` and for the time limit of handshakes and
//! log-ins.
//!
//! Owns: for each connection the instant at which the server looks at it next, in order. A byte that comes or goes does
//! not change this instant; when it is reached, the server sees how long the connection has been idle, and sets the
//! next one. The first look at a connection of an unknown client asks whether it is known. Never closes anything.
//! Driven by the server.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::ClientId;
use crate::tls::HANDSHAKE_TIMEOUT;

/// How long a client may take until it is known who it is. A handshake is a part of that.
const LOG_IN_TIMEOUT: Duration = HANDSHAKE_TIMEOUT;

/// When to look at which connection; empty while there is no time-out and no handshake.
#[derive(Debug, Default)]
pub struct IdleTimeouts {
    timeout_ns: Option<u64>,
    /// The instant, then index and generation of the client.
    looks: BTreeSet<(Timestamp, u32, u32)>,
}

/// Since when a connection is idle.
#[derive(Debug)]
pub struct IdleWatch {
    /// When a byte last came or went.
    pub active_at: Timestamp,
    /// When the server looks at that.
    pub look_at: Timestamp,
}

impl IdleTimeouts {
    /// Sets how long a connection may be idle.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout_ns = Some(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Watches a connection that was last active at `active_at`, and looks at it when it may have been idle for too
    /// long since `idle_since`; `None` where there is no time-out.
    pub fn watch(&mut self, id: ClientId, active_at: Timestamp, idle_since: Timestamp) -> Option<IdleWatch> {
        Some(self.look(id, active_at, idle_since + self.timeout_ns?))
    }

    /// Watches a connection that is made at `now`, and of which it is not known yet whose it is. The handshake and the
    /// log-in have no more time together than a connection may be idle.
    pub fn watch_log_in(&mut self, id: ClientId, now: Timestamp) -> IdleWatch {
        let limit_ns = LOG_IN_TIMEOUT.as_nanos() as u64;
        self.look(id, now, now + self.timeout_ns.map_or(limit_ns, |timeout_ns| timeout_ns.min(limit_ns)))
    }

    fn look(&mut self, id: ClientId, active_at: Timestamp, look_at: Timestamp) -> IdleWatch {
        self.looks.insert((look_at, id.index, id.generation));
        IdleWatch { active_at, look_at }
    }

    /// Watches a connection as it was watched before.
    pub fn watch_again(&mut self, id: ClientId, active_at: Timestamp, look_at: Timestamp) -> IdleWatch {
        self.look(id, active_at, look_at)
    }

    /// How long a connection may be idle, in nanoseconds, if there is a time-out.
    pub fn timeout_ns(&self) -> Option<u64> {
        self.timeout_ns
    }

    /// Stops watching a connection.
    pub fn forget(&mut self, id: ClientId, watch: &IdleWatch) {
        self.looks.remove(&(watch.look_at, id.index, id.generation));
    }

    /// How many connections are watched.
    pub fn len(&self) -> usize {
        self.looks.len()
    }

    /// When the next connection is to be looked at.
    pub fn next_look_at(&self) -> Option<Timestamp> {
        self.looks.first().map(|look| look.0)
    }

    /// A connection that is to be looked at by `now`; it is watched no further.
    pub fn next_due(&mut self, now: Timestamp) -> Option<ClientId> {
        if self.looks.first().is_none_or(|look| look.0 > now) {
            return None;
        }
        let (_, index, generation) = self.looks.pop_first()?;
        Some(ClientId { index, generation })
    }
}
