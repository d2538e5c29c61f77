//! The server: where connections, the queue and the binlog meet.
//!
//! Owns: every client's connection, and the order of a turn. [`Server::turn`] is the one place that states
//! that order. Generic over the kind of stream, so that a simulation drives it with neither sockets nor a clock;
//! `event_loop` drives it with the real ones.

mod budget;
mod buffers;
mod client_lists;
mod clients;
mod connection;
mod description;
pub mod event_loop;
mod gate;
pub mod hand_over;
mod idle;
mod invariants;
mod log_ins;
mod notifier;
mod reload;
#[cfg(test)]
mod turn_tests;
mod unsettled_replies;

use std::time::Duration;

use log::{debug, warn};

pub use self::connection::Readiness;
pub use crate::executor::{Executor, ExecutorConfig, MemoryShares};

use self::budget::{
    CLOSING_COST, HANDSHAKES_PER_TURN, MAX_SHORT_REPLIES_BYTES, READ_BUFFER_BYTES, RUNNABLE_COST, TURN_COST,
    TURN_SENT_BYTES,
};
use self::buffers::BufferPool;
use self::client_lists::{ClientLists, Lists, WaitList, enlist};
use self::connection::Connection;
use self::gate::ReplyGate;
use self::idle::IdleTimeouts;
use self::invariants::Sweeps;
use self::log_ins::LogIns;
use crate::binlog::Completion;
use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::poll_token;
use crate::queue::ClientId;
use crate::rate_limited_log::RateLimitedLog;
use crate::refusal::CommandRefusal;
use crate::stream::Stream;

/// All connections, and the executor that serves their commands. Each rule of a turn (its budget, its lists, its gate,
/// its time-outs) has its own state here.
#[derive(Debug)]
pub struct Server<S> {
    executor: Executor,
    /// By the index of the [`ClientId`].
    connections: Vec<ConnectionSlot<S>>,
    buffer: Box<[u8]>,
    buffers: BufferPool,
    lists: ClientLists,
    /// Whether replies may be sent.
    gate: ReplyGate,
    shortages: RateLimitedLog,
    idle_timeouts: IdleTimeouts,
    log_ins: LogIns,
    sweeps: Sweeps,
    /// The index of the connection that is checked next, after a reload.
    next_check: Option<usize>,
    /// The cost of the clients with new input in the last turn.
    cost_of_events: u64,
    /// Whether no new command is executed, because the server is about to be handed over.
    is_paused: bool,
}

impl<S: Stream> Server<S> {
    /// A server without connections.
    #[must_use]
    pub fn new(executor: Executor) -> Self {
        Self {
            executor,
            connections: Vec::new(),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            buffers: BufferPool::default(),
            lists: ClientLists::default(),
            gate: ReplyGate::OPEN,
            shortages: RateLimitedLog::default(),
            idle_timeouts: IdleTimeouts::default(),
            log_ins: LogIns::default(),
            sweeps: Sweeps::default(),
            next_check: None,
            cost_of_events: 0,
            is_paused: false,
        }
    }

    /// From now on, closes each new connection that is idle for `timeout`, unless its client waits for the end of a
    /// command or has reserved a job.
    pub fn close_idle_after(&mut self, timeout: Duration) {
        self.idle_timeouts.set_timeout(timeout);
    }

    /// The number of connected clients.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.executor.queue().figures().clients
    }

    /// The executor of the commands.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The executor of the commands, for changes.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Makes sure that there is room for another client; returns whether there is.
    #[must_use]
    pub fn make_room_for_client(&mut self) -> bool {
        self.executor.make_room_for_client() && self.connections.try_reserve(1).is_ok()
    }

    /// Adds a client. `open` makes its stream; the events of the stream must have the id that `open` gets.
    ///
    /// # Errors
    /// The error of `open`. Then there is no new client.
    pub fn accept<E>(
        &mut self,
        open: impl FnOnce(ClientId) -> Result<S, E>,
        now: Timestamp,
    ) -> Result<ClientId, E> {
        let id = self.executor.connect();
        match open(id) {
            Ok(stream) => {
                let connection = Connection::new(id, stream, now);
                let is_handshaking = connection.is_handshaking();
                self.idle_timeouts.watch(id, now);
                self.place(id, Box::new(connection));
                if is_handshaking {
                    self.await_log_in(id, now);
                }
                Ok(id)
            }
            Err(error) => {
                self.executor.disconnect(id, now);
                Err(error)
            }
        }
    }

    fn place(&mut self, id: ClientId, connection: Box<Connection<S>>) {
        let index = id.index as usize;
        self.connections.resize_with(self.connections.len().max(index + 1), || None);
        self.connections[index] = Some(connection);
    }

    /// Resumes the clients whose puts had to wait until now.
    fn wake_permitted(&mut self, now: Timestamp) {
        while let Some(index) = self.executor.next_permitted(now) {
            let Some(connection) = self.connections.get_mut(index as usize).and_then(Option::as_deref_mut)
            else {
                continue;
            };
            let id = connection.id_at(index as usize);
            self.lists.run(id, &mut connection.listed);
        }
    }

    /// One turn: handles what is due, and executes the commands that have arrived, in this order.
    pub fn turn(&mut self, events: impl Iterator<Item = (ClientId, Readiness)>, now: Timestamp) {
        // Deadlines come first, so that a command sees the queue as it is at `now`.
        self.executor.begin_turn(now);
        let end_of_turn = self.executor.counted_cost() + TURN_COST;
        self.do_due_work(now);
        if !self.lists.runnable.is_empty() {
            self.serve_runnable(now);
        }
        let before_events = self.executor.measured_cost();
        // Clients with new input are served however long all of that has taken.
        let end_of_turn = end_of_turn.max(before_events + TURN_COST / 4);
        if !self.lists.postponed.is_empty() {
            self.serve_postponed(end_of_turn, now);
        }
        self.serve_events(events, end_of_turn, now);
        self.cost_of_events = self.executor.counted_cost() - before_events;
        if !self.lists.handshaking.is_empty() {
            self.serve_handshakes(now);
        }
        // After the input: a client whose bytes came before a turn that is late is not idle.
        if self.idle_timeouts.next_check_at().is_some_and(|at| at <= now) {
            self.close_idle(now);
        }
        loop {
            // Deliveries come after all commands, so that a client that waited gets all its replies in one write.
            let delivered = if self.executor.queue().has_deliveries() { self.deliver(now) } else { 0 };
            // A reply is sent only after the change that it acknowledges is in the log.
            if self.executor.commit(now) {
                self.wake(WaitList::BinlogRoom);
            }
            // Replies are sent only while no other server can own the queue. This check comes after the last command,
            // so that the lease covers all commands, and before the first byte.
            if self.executor.persistence.is_leased() {
                if self.check_lease(now) {
                    continue;
                }
                if self.gate == ReplyGate::Closed {
                    self.count_unsent();
                    break;
                }
            }
            if self.executor.has_failed() {
                self.refuse_unsettled();
            }
            // One write for each connection, whatever the number of its replies.
            self.send(delivered, now);
            // A connection that failed in `send` has released its jobs, and waiting clients may have received them.
            if !self.executor.queue().has_deliveries() {
                break;
            }
        }
        self.executor.write_refusals();
        if cfg!(debug_assertions) {
            self.sweep();
        }
    }

    /// Does the work that is not a command of a client.
    #[inline(always)]
    fn do_due_work(&mut self, now: Timestamp) {
        self.executor.advance(now);
        if self.executor.take_list_change() {
            self.wake(WaitList::TubeList);
        }
        if self.executor.is_guarded() {
            self.wake_permitted(now);
        }
        if self.next_check.is_some() {
            self.check_connections(now);
        }
        if !self.executor.client_pages.is_empty() {
            self.write_client_pages(now);
        }
        if self.executor.carry_out_orders(now) {
            self.close_killed(now);
        }
    }

    /// When the next turn is due if no event comes before it.
    #[must_use]
    pub fn next_turn_at(&self) -> Option<Timestamp> {
        let is_due = !self.lists.runnable.is_empty()
            || !self.lists.postponed.is_empty()
            || !self.lists.handshaking.is_empty()
            || !self.lists.unsent.is_empty() && self.gate != ReplyGate::Closed
            || self.next_check.is_some()
            || self.executor.has_work_on_lists()
            || self.executor.has_orders();
        if is_due {
            return Some(Timestamp::AT_ONCE);
        }
        Timestamp::earliest([
            self.executor.next_deadline(),
            self.executor.next_permit_at(),
            self.executor.next_order_at(),
            self.idle_timeouts.next_check_at(),
            self.gate.ends_at(),
        ])
    }

    /// Whether there are replies that no socket has taken, or commands that continue in the next turn.
    #[must_use]
    pub fn owes_replies(&self) -> bool {
        self.connections.iter().flatten().any(|connection| {
            let exchange = &connection.exchange;
            !exchange.output.is_empty() || exchange.stalled_until() == Some(Until::NextTurn)
        })
    }

    /// Serves the connections that can continue without an event, for their part of the turn: a third, or a small
    /// minimum.
    fn serve_runnable(&mut self, now: Timestamp) {
        let end = self.executor.measured_cost() + RUNNABLE_COST.max(self.cost_of_events / 2);
        for _ in 0..self.lists.runnable.len() {
            if self.executor.measured_cost() >= end {
                break;
            }
            let Some(id) = self.lists.runnable.pop_front() else { break };
            if let Some(connection) = find(&mut self.connections, id) {
                connection.listed.remove(Lists::SCHEDULED);
                self.serve(id, now);
            }
        }
    }

    /// Serves the connections for whose events earlier turns had no time, in the order of the events. The connections
    /// that continue without an event get a part of the turn, so the postponed ones wait only for each other.
    fn serve_postponed(&mut self, end_of_turn: u64, now: Timestamp) {
        while self.executor.measured_cost() < end_of_turn {
            let Some(id) = self.lists.postponed.pop_front() else { break };
            if let Some(connection) = find(&mut self.connections, id) {
                connection.listed.remove(Lists::SCHEDULED);
                self.serve(id, now);
            }
        }
    }

    /// Notes each event, and serves its connection unless it was served in this turn or the turn has no time left.
    fn serve_events(
        &mut self,
        events: impl Iterator<Item = (ClientId, Readiness)>,
        end_of_turn: u64,
        now: Timestamp,
    ) {
        for (id, readiness) in events {
            let Some((id, connection)) = find_by_token(&mut self.connections, id) else { continue };
            if connection.notice(id, readiness) {
                self.lists.send(id, &mut connection.listed);
            }
            if connection.listed.contains(Lists::SCHEDULED) {
                continue;
            }
            if connection.is_handshaking() {
                enlist(&mut self.lists.handshaking, Lists::SCHEDULED, id, &mut connection.listed);
            } else if self.executor.measured_cost() < end_of_turn {
                self.serve(id, now);
            } else {
                enlist(&mut self.lists.postponed, Lists::SCHEDULED, id, &mut connection.listed);
            }
        }
    }

    /// Continues handshakes up to the limit for a turn, the oldest event first. They come after the work of the
    /// identified clients, and take a few hundred microseconds of each turn, however many anonymous clients there are.
    fn serve_handshakes(&mut self, now: Timestamp) {
        for _ in 0..HANDSHAKES_PER_TURN {
            let Some(id) = self.lists.handshaking.pop_front() else { break };
            if let Some(connection) = find(&mut self.connections, id) {
                connection.listed.remove(Lists::SCHEDULED);
                self.serve(id, now);
                if let Some(connection) = find(&mut self.connections, id) {
                    self.log_ins.note(connection, &self.executor, id);
                }
            }
        }
    }

    /// Reads from a connection and executes the commands that have arrived, up to its budget. If one of them has killed
    /// another client, or has taken over its session, that client is closed before anything else is executed.
    fn serve(&mut self, id: ClientId, now: Timestamp) {
        self.serve_connection(id, now);
        self.close_killed(now);
    }

    fn serve_connection(&mut self, id: ClientId, now: Timestamp) {
        let Some(connection) = find(&mut self.connections, id) else { return };
        connection.uncount_bytes(self.executor.buffer_bytes());
        self.buffers.lend(&mut connection.exchange.output);
        connection.exchange.is_memory_low = self.executor.is_short_of_memory();
        // Decided here, once for each connection and turn, so that an open server checks nothing for a command.
        if self.is_paused {
            connection.serve_paused(&mut self.executor, id, now);
        } else if self.executor.is_guarded() {
            connection.serve::<true>(&mut self.executor, &mut self.buffer, id, now);
            self.log_ins.note(connection, &self.executor, id);
        } else {
            connection.serve::<false>(&mut self.executor, &mut self.buffer, id, now);
        }
        if connection.has_failed() || self.gate.must_close(connection) {
            self.close(id, now);
            return;
        }
        let exchange = &mut connection.exchange;
        if exchange.has_body_in_progress() && self.executor.lacks_memory_for(exchange.memory_bytes()) {
            exchange.give_up_body(CommandRefusal::OutOfMemory);
        }
        if connection.refile(id, &mut self.lists, &mut self.executor, &mut self.buffers) {
            connection.exhaust_budget();
        }
    }

    /// Answers clients that waited; returns how many.
    fn deliver(&mut self, now: Timestamp) -> usize {
        let unsent_before = self.lists.unsent.len();
        while let Some(delivery) = self.executor.poll_delivery() {
            let id = delivery.client;
            let Some(connection) = find(&mut self.connections, id) else { continue };
            self.buffers.lend(&mut connection.exchange.output);
            connection.answer_wait(&mut self.executor, id, delivery.outcome, now);
            if connection.has_failed() {
                self.close(id, now);
                continue;
            }
            connection.refile(id, &mut self.lists, &mut self.executor, &mut self.buffers);
        }
        self.lists.unsent.len() - unsent_before
    }

    /// Writes the replies of this turn to the sockets, starting with the replies of the last `delivered` connections in
    /// the list.
    fn send(&mut self, delivered: usize, now: Timestamp) {
        let settled = self.executor.persistence.settled();
        let mut unsent = std::mem::take(&mut self.lists.unsent);
        // A worker that waited gets its job before the producer gets the reply to its put.
        if delivered > 0 {
            unsent.rotate_right(delivered);
        }
        let mut sent_bytes = 0;
        let mut postponed = Vec::new();
        for id in unsent.drain(..) {
            let Some(connection) = find(&mut self.connections, id) else { continue };
            if sent_bytes >= TURN_SENT_BYTES && connection.exchange.output.len() > MAX_SHORT_REPLIES_BYTES {
                connection.count_bytes(self.executor.buffer_bytes());
                postponed.push(id);
                continue;
            }
            connection.listed.remove(Lists::UNSENT);
            match connection.send(id, settled, now) {
                Ok(sent) if !connection.is_finished() => sent_bytes += sent,
                _ => {
                    self.close(id, now);
                    continue;
                }
            }
            if connection.exchange.output.is_empty() {
                self.buffers.reclaim(&mut connection.exchange.output);
            } else {
                if connection.has_unsettled_replies() {
                    self.lists.wait(WaitList::UnsettledReplies, id, &mut connection.listed);
                }
                if connection.can_send(settled) {
                    connection.exhaust_budget();
                    self.lists.send(id, &mut connection.listed);
                }
            }
            connection.count_bytes(self.executor.buffer_bytes());
            if connection.is_runnable() && !connection.listed.contains(Lists::SCHEDULED) {
                // Its unsent replies were the only reason why it could not continue.
                connection.exhaust_budget();
                self.lists.run(id, &mut connection.listed);
            }
        }
        // Connections that sent a part of their replies come after connections that sent nothing.
        unsent.append(&mut postponed);
        unsent.append(&mut self.lists.unsent);
        self.lists.unsent = unsent;
    }

    /// Polls the store of the binlog for completed work.
    pub fn poll_binlog(&mut self, now: Timestamp) {
        while let Some(completion) = self.executor.persistence.next_completion() {
            self.binlog_completed(completion, now);
        }
    }

    /// Handles a completion of the binlog's store. Replies that waited for it are sent in the next turn, and commands
    /// that waited for room are tried again.
    pub fn binlog_completed(&mut self, completion: Completion, now: Timestamp) {
        self.executor.binlog_completed(completion, now);
        self.wake(WaitList::UnsettledReplies);
        self.wake(WaitList::BinlogRoom);
    }

    /// Serves the clients of a list whose wait is over: sends their replies, or continues their commands.
    fn wake(&mut self, list: WaitList) {
        let mut clients = std::mem::take(self.lists.waiting(list));
        for id in clients.drain(..) {
            let Some(connection) = find(&mut self.connections, id) else { continue };
            connection.listed.remove(list.flag());
            if list == WaitList::UnsettledReplies {
                self.lists.send(id, &mut connection.listed);
            } else {
                self.lists.run(id, &mut connection.listed);
            }
        }
        // Its memory serves the next clients.
        *self.lists.waiting(list) = clients;
    }

    /// Handles a failure of the binlog: changes that it does not contain are not acknowledged, and every connection
    /// ends.
    fn refuse_unsettled(&mut self) {
        for (id, connection) in each(&mut self.connections) {
            connection.refuse_unsettled();
            self.lists.send(id, &mut connection.listed);
        }
    }

    /// Closes the connections that have been idle, or in their handshake, for too long. A client that waits for the end
    /// of a command, has reserved a job, or has sent what the server has not executed yet, is not idle.
    fn close_idle(&mut self, now: Timestamp) {
        while let Some(id) = self.idle_timeouts.next_due(now) {
            let Some(connection) = find(&mut self.connections, id) else { continue };
            if connection.listed.contains(Lists::LOG_IN) && connection.awaits_log_in(&self.executor, id) {
                debug!("client {} has not logged in before the time limit", id.index);
                self.close(id, now);
                continue;
            }
            let Some(timeout_ns) = self.idle_timeouts.timeout_ns() else { continue };
            let exchange = &connection.exchange;
            let is_exempt = exchange.unfinished().is_some()
                || self.executor.queue().reservation_count(id) > 0
                || connection.is_runnable();
            let idle_since = if is_exempt { now } else { connection.active_at };
            if idle_since + timeout_ns > now {
                self.idle_timeouts.watch(id, idle_since);
            } else {
                debug!("client {} has been idle for too long", id.index);
                self.close(id, now);
            }
        }
    }

    /// Closes a connection. Its jobs become ready, except jobs of a session.
    fn close(&mut self, id: ClientId, now: Timestamp) {
        if let Some(connection) = find(&mut self.connections, id) {
            if connection.exchange.is_aborted() {
                self.shortages.line(now, |withheld| {
                    warn!("out of memory: closed a connection; {withheld} others since the last such line");
                });
            }
            connection.uncount_bytes(self.executor.buffer_bytes());
            // Its replies must not count as replies of the next connection.
            self.executor.persistence.take_settled_replies();
            self.idle_timeouts.forget(id);
            self.log_ins.forget(&mut connection.listed);
            self.connections[id.index as usize] = None;
            self.executor.disconnect(id, now);
            self.executor.count_cost(CLOSING_COST);
            debug!("close {}", id.index);
        }
    }
}

/// The connection of the client with an index.
type ConnectionSlot<S> = Option<Box<Connection<S>>>;

/// The client and the connection of an event, if the client is still connected. `id` is from a poll token.
fn find_by_token<S: Stream>(
    connections: &mut [ConnectionSlot<S>],
    id: ClientId,
) -> Option<(ClientId, &mut Connection<S>)> {
    let connection = connections.get_mut(id.index as usize)?.as_deref_mut()?;
    let client = connection.id_at(id.index as usize);
    poll_token::is_for(id, client).then_some((client, connection))
}

/// The clients, with their connections.
fn each<S: Stream>(
    connections: &mut [ConnectionSlot<S>],
) -> impl Iterator<Item = (ClientId, &mut Connection<S>)> {
    connections.iter_mut().enumerate().filter_map(|(index, connection)| {
        let connection = connection.as_deref_mut()?;
        Some((connection.id_at(index), connection))
    })
}

/// The connection of the client, if it is still connected.
fn find<S: Stream>(connections: &mut [ConnectionSlot<S>], id: ClientId) -> Option<&mut Connection<S>> {
    connections.get_mut(id.index as usize)?.as_deref_mut().filter(|connection| connection.belongs_to(id))
}
