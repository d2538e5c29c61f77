//! Idle time-outs: which connection to check next, for `--idle-timeout` and for the time limit of handshakes and
//! log-ins.
//!
//! Owns: for each connection, the instant at which the server checks it next, in order. A byte in either direction is
//! noted in the connection and does not change this instant; when the instant comes, the server sees how long the
//! connection has been idle, and sets the next one. The first check of a connection that awaits its log-in asks whether
//! its client has been identified by then. Never closes anything. Driven by the server.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::ClientId;
use crate::tls::HANDSHAKE_TIMEOUT;

/// The time limit for the identification of a client, its handshake included.
const LOG_IN_TIMEOUT: Duration = HANDSHAKE_TIMEOUT;

/// When to check which connection; empty while there is no time-out and no handshake.
#[derive(Debug, Default)]
pub(crate) struct IdleTimeouts {
    timeout_ns: Option<u64>,
    /// The instant, then index and generation of the client.
    checks: BTreeSet<(Timestamp, u32, u32)>,
    /// The instants of `checks` by the index of the client.
    by_index: Vec<Option<Timestamp>>,
}

impl IdleTimeouts {
    /// Sets how long a connection may be idle.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout_ns = Some(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Checks a connection when it may have been idle for too long since `idle_since`, if there is a time-out.
    pub(crate) fn watch(&mut self, id: ClientId, idle_since: Timestamp) {
        if let Some(timeout_ns) = self.timeout_ns {
            self.schedule(id, idle_since + timeout_ns);
        }
    }

    /// Watches a connection that is made at `now` and whose client has not been identified. The handshake and the
    /// log-in together have at most the time for which a connection may be idle.
    pub(crate) fn watch_log_in(&mut self, id: ClientId, now: Timestamp) {
        let limit_ns = LOG_IN_TIMEOUT.as_nanos() as u64;
        self.schedule(id, now + self.timeout_ns.map_or(limit_ns, |timeout_ns| timeout_ns.min(limit_ns)));
    }

    /// Checks a connection at `check_at`, and not at the instant that was set before.
    pub(crate) fn schedule(&mut self, id: ClientId, check_at: Timestamp) {
        self.forget(id);
        self.checks.insert((check_at, id.index, id.generation));
        let index = id.index as usize;
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, None);
        }
        self.by_index[index] = Some(check_at);
    }

    /// When the server checks the connection, if it is watched.
    pub(crate) fn check_at(&self, id: ClientId) -> Option<Timestamp> {
        self.by_index.get(id.index as usize).copied().flatten()
    }

    /// How long a connection may be idle, in nanoseconds, if there is a time-out.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.timeout_ns
    }

    /// Stops watching a connection, if it is watched.
    pub(crate) fn forget(&mut self, id: ClientId) {
        if let Some(check_at) = self.by_index.get_mut(id.index as usize).and_then(Option::take) {
            self.checks.remove(&(check_at, id.index, id.generation));
        }
    }

    /// How many connections are watched.
    pub(crate) fn len(&self) -> usize {
        self.checks.len()
    }

    /// Asserts that each check has the instant that is noted for its connection.
    pub(crate) fn check_invariants(&self) {
        let is_known =
            |&(at, index, _): &(Timestamp, u32, u32)| self.by_index.get(index as usize) == Some(&Some(at));
        assert!(self.checks.iter().all(is_known), "each check is that of its connection");
        assert_eq!(
            self.by_index.iter().flatten().count(),
            self.checks.len(),
            "each connection has one check"
        );
    }

    /// When the next connection must be checked.
    #[inline]
    pub(crate) fn next_check_at(&self) -> Option<Timestamp> {
        self.checks.first().map(|check| check.0)
    }

    /// A connection whose check is due at `now`; it is no longer watched.
    pub(crate) fn next_due(&mut self, now: Timestamp) -> Option<ClientId> {
        if self.checks.first().is_none_or(|check| check.0 > now) {
            return None;
        }
        let (_, index, generation) = self.checks.pop_first()?;
        self.by_index[index as usize] = None;
        Some(ClientId { index, generation })
    }
}
