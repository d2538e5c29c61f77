//! The connections as other clients and the API see them, and the clients that another client ends.
//!
//! Owns: the data about a connection for a page of `list-clients` and for the API. Driven by the turn.

use log::debug;

use super::{ConnectionSlot, Executor, Server, Stream};
use crate::clock::Timestamp;
use crate::queue::ClientId;
use crate::stats::{ConnectionView, Connections};

/// The connections, by the index of their clients.
struct Table<'a, S>(&'a [ConnectionSlot<S>]);

impl<S: Stream> Connections for Table<'_, S> {
    fn connection(&self, client: ClientId, now: Timestamp) -> Option<ConnectionView> {
        let connection = self.0.get(client.index as usize)?.as_deref();
        connection.filter(|connection| connection.belongs_to(client)).map(|connection| connection.view(now))
    }
}

impl<S: Stream> Server<S> {
    /// The executor, which carries out the orders of the API, and the connections, which the executor does not know.
    pub fn parts(&mut self) -> (&mut Executor, impl Connections) {
        (&mut self.executor, Table(&self.connections))
    }

    /// Writes a turn's share of the pages of `list-clients`.
    #[cold]
    pub(super) fn write_client_pages(&mut self, now: Timestamp) {
        self.executor.write_client_pages(&Table(&self.connections), now);
    }

    /// Closes the clients that another client has killed, or whose session it has taken over.
    #[inline]
    pub(super) fn close_killed(&mut self, now: Timestamp) {
        while let Some(id) = self.executor.to_close.pop() {
            debug!("client {} is killed, or another client has taken over its session", id.index);
            self.close(id, now);
        }
    }
}
