//! The description of the server: its clients and their state, so that another program can take them over.
//!
//! Owns: the order of the description, and the check that its parts fit together. Connections come in the order of the
//! clients of the queue. `doc/handover.md` has the format. Driven by `event_loop/hand_over.rs`, between two turns; a
//! simulation drives it with its own sockets.

use super::client_lists::{Lists, WaitList};
use super::connection::Connection;
use super::{Server, each, find};
use crate::clock::Timestamp;
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::exchange::{Exchange, Until, WaitKind};
use crate::executor::Continuation;
use crate::queue::ClientId;
use crate::stream::{Handle, Stream};

/// A connection, without its exchange.
#[derive(Debug)]
struct DescribedConnection {
    handle: Handle,
    /// When it was made, in whole seconds, and when a byte last came or went.
    connected_s: u32,
    active_at: Timestamp,
    /// When the server checks for a time-out, if there is one.
    check_at: Option<Timestamp>,
    /// Whether the client has not been identified yet.
    awaits_log_in: bool,
}

described!(DescribedConnection { handle, connected_s, active_at, check_at, awaits_log_in });

impl<S: Stream> Server<S> {
    /// Sets whether new commands are executed. Commands in progress continue.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        if !is_paused {
            // Completing the log may have made room for them. Connections with events in the meantime are in the list
            // of turns.
            self.wake(WaitList::BinlogRoom);
        }
    }

    /// Whether everything can be described: no command is in progress that continues by itself, and no reply waits for
    /// the log. Examines each connection.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.executor.is_quiet()
            && !self.executor.has_work_on_lists()
            && self.connections.iter().flatten().all(|connection| connection.is_quiet())
    }

    /// Starts to end the connections that cannot be handed over: they still get the replies that they are owed,
    /// including the reply to a command in progress. Returns how many of them are left.
    pub fn end_those_that_cannot_be_described(&mut self) -> usize {
        let mut count = 0;
        for (id, connection) in each(&mut self.connections).filter(|(_, it)| it.handle().is_none()) {
            count += 1;
            if connection.exchange.stalled_until().is_none() {
                // It gets no job while it still sends replies.
                self.executor.queue.stop_waiting(id);
                connection.exchange.close();
                self.lists.send(id, &mut connection.listed);
            }
        }
        count
    }

    /// Closes these connections now.
    pub fn close_those_that_cannot_be_described(&mut self, now: Timestamp) {
        let ended = each(&mut self.connections).filter(|(_, it)| it.handle().is_none());
        let ended: Vec<ClientId> = ended.map(|(id, _)| id).collect();
        ended.into_iter().for_each(|id| self.close(id, now));
    }

    /// The sockets of all clients, by their descriptors.
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        self.connections.iter().flatten().filter_map(|connection| connection.handle())
    }

    /// Writes the executor and all connections.
    pub fn describe(&self, out: &mut Writer<'_>) {
        let Self {
            executor,
            connections,
            log_ins: _,
            // Empty memory, and lists of clients with work: they are made again.
            buffer: _,
            buffers: _,
            lists: _,
            idle_timeouts: _,
            // The next program has its own log, database and certificates, and checks all clients.
            gate: _,
            next_check: _,
            shortages: _,
            sweeps: _,
            cost_of_events: _,
            is_paused: _,
        } = self;
        executor.describe(out);
        for id in executor.queue().described_clients() {
            let connection = connections.get(id.index as usize).and_then(Option::as_deref);
            let connection = connection.filter(|connection| connection.belongs_to(id));
            let described = connection.and_then(|connection| Some((connection.handle()?, connection)));
            described.is_some().describe(out);
            if let Some((handle, connection)) = described {
                self.describe_connection(id, handle, connection, out);
            }
        }
        executor.describe_guard(out);
    }

    /// Continues with the state that another server had at `now`. This server is new. `open` makes the stream of a
    /// client.
    ///
    /// # Errors
    /// If the bytes are not a description, or if a stream cannot be opened. The server must not be used then.
    pub fn read_description(
        &mut self,
        from: &mut Reader<'_>,
        now: Timestamp,
        has_binlog: bool,
        mut open: impl FnMut(ClientId, Handle) -> Result<S, Malformed>,
    ) -> Result<(), Malformed> {
        self.executor.read_description(from, now)?;
        let clients: Vec<ClientId> = self.executor.queue().described_clients().collect();
        let mut without_connection = Vec::new();
        for &id in &clients {
            if !from.value::<bool>()? {
                // This connection has TLS, and is closed before the server is handed over: only a trial reads it.
                without_connection.push(id);
                continue;
            }
            let described: DescribedConnection = from.value()?;
            let exchange: Exchange<Continuation> = from.value()?;
            self.fits(id, &exchange)?;
            let stream = open(id, described.handle)?;
            self.adopt(id, stream, &described, exchange, has_binlog);
        }
        self.executor.read_guard(&clients, from, now)?;
        self.run_permitted(&clients);
        if self.executor.is_guarded() {
            self.recheck_rights();
        }
        without_connection.into_iter().for_each(|id| self.executor.disconnect(id, now));
        Ok(())
    }

    /// Checks that an exchange can belong to this client.
    fn fits(&self, id: ClientId, exchange: &Exchange<Continuation>) -> Result<(), Malformed> {
        let is_possible = match exchange.stalled_until() {
            Some(Until::BinlogRoom | Until::PutPace) | None => true,
            Some(Until::NextTurn | Until::TubeList) => false,
        };
        if is_possible && self.waits_alike(id, exchange) {
            Ok(())
        } else {
            Err(Malformed("a client and its connection do not match"))
        }
    }

    /// Whether the client waits for the same in the queue as in its exchange.
    pub(super) fn waits_alike(&self, id: ClientId, exchange: &Exchange<Continuation>) -> bool {
        let awaited = match exchange.wait_kind() {
            Some(WaitKind::EndOf(job)) => Some(job),
            Some(WaitKind::Job { .. } | WaitKind::Batch(_)) | None => None,
        };
        let queue = self.executor.queue();
        exchange.is_waiting() == queue.is_waiting(id) && awaited == queue.awaited_by(id)
    }

    fn adopt(
        &mut self,
        id: ClientId,
        stream: S,
        described: &DescribedConnection,
        exchange: Exchange<Continuation>,
        has_binlog: bool,
    ) {
        let mut connection = Box::new(Connection::new(id, stream, described.active_at));
        connection.adopt(exchange, described.connected_s, has_binlog);
        if let Some(check_at) = described.check_at {
            self.idle_timeouts.schedule(id, check_at);
        }
        connection.count_bytes(self.executor.buffer_bytes());
        let (exchange, listed) = (&connection.exchange, &mut connection.listed);
        if !exchange.output.is_empty() || exchange.is_closing() {
            self.lists.send(id, listed);
        }
        // A command that waits for room in the log checks whether there is some now.
        let is_put_off = exchange.stalled_until() == Some(Until::BinlogRoom);
        if is_put_off || exchange.has_pending() && !exchange.is_blocked() {
            self.lists.run(id, listed);
        }
        self.place(id, connection);
        if described.awaits_log_in
            && let Some(connection) = find(&mut self.connections, id)
        {
            self.log_ins.add_described(id, &mut connection.listed);
        }
    }

    /// Resumes the puts that the old program permitted after their last turn.
    fn run_permitted(&mut self, clients: &[ClientId]) {
        for &id in clients {
            if let Some(connection) = find(&mut self.connections, id)
                && connection.exchange.stalled_until() == Some(Until::PutPace)
                && !self.executor.has_waiting_put(id)
            {
                self.lists.run(id, &mut connection.listed);
            }
        }
    }

    fn describe_connection(
        &self,
        id: ClientId,
        handle: Handle,
        connection: &Connection<S>,
        out: &mut Writer<'_>,
    ) {
        let described = DescribedConnection {
            handle,
            connected_s: connection.connected_s(),
            active_at: connection.active_at,
            check_at: self.idle_timeouts.check_at(id),
            awaits_log_in: connection.listed.contains(Lists::LOG_IN),
        };
        described.describe(out);
        connection.exchange.describe(out);
    }
}
