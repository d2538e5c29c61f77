//! The gate for replies. If the log is in a database, another server can take over the queue.
//!
//! Owns: the behaviour of a turn without a lease. The rule is
//! [`Lease::is_valid_at`](crate::binlog::Lease::is_valid_at); the store knows the lease and reads the clock. Driven by
//! [`Server::turn`], after its last command and before the first byte of a reply.

use super::connection::Connection;
use super::{Server, each, find};
use crate::clock::Timestamp;
use crate::queue::ClientId;
use crate::stream::Stream;

/// Whether replies may be sent, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyGate {
    /// No other server can own the queue before this time; without a database, there is no end.
    Open { until: Timestamp },
    /// The server does not know whether it still owns the queue, and keeps all replies.
    Closed,
}

impl ReplyGate {
    pub(super) const OPEN: Self = Self::Open { until: Timestamp::NEVER };

    /// When the turn must check again even if no event comes. A new lease wakes the loop.
    pub(super) fn ends_at(self) -> Option<Timestamp> {
        match self {
            Self::Open { until } => Some(until).filter(|&until| until != Timestamp::NEVER),
            Self::Closed => None,
        }
    }

    /// Whether the connection must end now: its client waits for a job and should find the server that owns the
    /// queue, or it no longer waits for anything.
    pub(super) fn must_close<S: Stream>(self, connection: &Connection<S>) -> bool {
        self == Self::Closed && (connection.exchange.is_waiting() || connection.is_finished())
    }
}

impl<S: Stream> Server<S> {
    /// Opens or closes the gate. When it closes, connections end without a reply; returns whether any ended, which has
    /// made their jobs ready.
    #[cold]
    pub(super) fn check_lease(&mut self, now: Timestamp) -> bool {
        let left_ns = self.executor.persistence.lease_left_ns();
        let was_open = self.gate != ReplyGate::Closed;
        // The time is counted from a little later than `now`, so the loop checks too early rather than too late.
        self.gate = if left_ns > 0 { ReplyGate::Open { until: now + left_ns } } else { ReplyGate::Closed };
        if !was_open || self.gate != ReplyGate::Closed {
            return false;
        }
        let ended = each(&mut self.connections).filter(|(_, connection)| self.gate.must_close(connection));
        let ended: Vec<ClientId> = ended.map(|(id, _)| id).collect();
        ended.iter().for_each(|&id| self.close(id, now));
        !ended.is_empty()
    }

    /// Counts the bytes of connections whose replies are not sent; otherwise `send` counts them.
    #[cold]
    pub(super) fn count_unsent(&mut self) {
        for &id in &self.lists.unsent {
            if let Some(connection) = find(&mut self.connections, id) {
                connection.count_bytes(self.executor.buffer_bytes());
            }
        }
    }
}
