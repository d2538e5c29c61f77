//! Clients that the server has not identified yet: clients in a TLS handshake and, on a server with access rules,
//! clients that may do nothing before they log in.
//!
//! Owns: the maximum of such clients, and their order of arrival. If there are too many, the server closes the oldest
//! for a new one, so that silent clients do not keep others out for long; `idle` has their time limit. Driven by the
//! server.

use std::collections::VecDeque;

use log::warn;

use super::client_lists::{Lists, enlist};
use super::connection::Connection;
use super::{Executor, Server, Stream, find};
use crate::clock::Timestamp;
use crate::peer::Peer;
use crate::queue::ClientId;
use crate::rate_limited_log::RateLimitedLog;

/// How many entries of identified or closed clients the order of arrival can have before they are removed.
const MAX_GONE: usize = 1024;

/// The clients that have not been identified.
#[derive(Debug)]
pub(crate) struct LogIns {
    /// In order of arrival, with some clients that have been identified or closed since.
    clients: VecDeque<ClientId>,
    count: usize,
    max: usize,
    closed: RateLimitedLog,
}

impl Default for LogIns {
    fn default() -> Self {
        Self { clients: VecDeque::new(), count: 0, max: usize::MAX, closed: RateLimitedLog::default() }
    }
}

impl LogIns {
    /// Asserts that `count` clients, which are marked, have not been identified.
    pub(crate) fn check_invariants(&self, count: usize) {
        assert_eq!(count, self.count, "the clients that have not been identified are counted");
        assert!(self.clients.len() >= count, "each of them is in the order of arrival");
    }

    /// Removes the connection from the clients that have not been identified.
    pub(crate) fn forget(&mut self, listed: &mut Lists) {
        if listed.contains(Lists::LOG_IN) {
            listed.remove(Lists::LOG_IN);
            self.count -= 1;
        }
    }

    /// Adds a connection that another program has described as not identified.
    pub(crate) fn add_described(&mut self, id: ClientId, listed: &mut Lists) {
        self.count += usize::from(!listed.contains(Lists::LOG_IN));
        enlist(&mut self.clients, Lists::LOG_IN, id, listed);
    }

    /// Notes whether the client has been identified now.
    pub(crate) fn note<S: Stream>(
        &mut self,
        connection: &mut Connection<S>,
        executor: &Executor,
        id: ClientId,
    ) {
        if connection.listed.contains(Lists::LOG_IN) && !connection.awaits_log_in(executor, id) {
            self.forget(&mut connection.listed);
        }
    }
}

impl<S: Stream> Server<S> {
    /// From now on, at most this many connections can wait for their identification.
    pub fn limit_log_ins(&mut self, max: usize) {
        self.log_ins.max = max;
    }

    /// Registers the peer address of a connection with the guard. Before this, the client may do nothing. If its
    /// identity has reached its limit of connections, the connection ends with a reply that says so.
    pub fn identify(&mut self, id: ClientId, peer: Peer, now: Timestamp) {
        let Some(connection) = find(&mut self.connections, id) else { return };
        let is_handshaking = connection.is_handshaking();
        if !self.executor.identify(id, peer, is_handshaking, now) {
            connection.refuse_to_connect(&mut self.executor);
            connection.count_bytes(self.executor.buffer_bytes());
            self.lists.send(id, &mut connection.listed);
        } else if !is_handshaking && self.executor.is_unknown(id) {
            self.await_log_in(id, now);
        }
    }

    /// Starts the client's time limit for its identification. If there are too many such clients, the oldest of them is
    /// closed.
    pub(super) fn await_log_in(&mut self, id: ClientId, now: Timestamp) {
        let Some(connection) = find(&mut self.connections, id) else { return };
        self.idle_timeouts.watch_log_in(id, now);
        self.log_ins.count += usize::from(!connection.listed.contains(Lists::LOG_IN));
        enlist(&mut self.log_ins.clients, Lists::LOG_IN, id, &mut connection.listed);
        if self.log_ins.clients.len() > self.log_ins.count + MAX_GONE {
            let connections = &mut self.connections;
            let awaits =
                |id: &ClientId| find(connections, *id).is_some_and(|it| it.listed.contains(Lists::LOG_IN));
            self.log_ins.clients.retain(awaits);
        }
        while self.log_ins.count > self.log_ins.max
            && let Some(oldest) = self.log_ins.clients.pop_front()
        {
            if find(&mut self.connections, oldest).is_some_and(|oldest| oldest.listed.contains(Lists::LOG_IN))
            {
                self.executor.count_refused_connection();
                let max = self.log_ins.max;
                self.log_ins.closed.line(now, |withheld| {
                    warn!(
                        "closed a connection that had not logged in: there are {max} newer ones, the most for \
                         --max-connections; {withheld} others since the last such line"
                    );
                });
                self.close(oldest, now);
            }
        }
    }
}
