//! The server: where connections, the queue and the binlog meet.
//!
//! Owns: every client's connection, and the order of a turn. [`Server::turn`] is the one place that states
//! that order. Generic over the kind of stream, so that a simulation drives it with neither sockets nor a clock;
//! `event_loop` drives it with the real ones.

mod buffers;
pub mod event_loop;
mod execute;
mod holds;
mod metrics_server;
mod notifier;
mod orphans;
mod peer;
mod persistence;
mod rare_log;
mod silence;
pub mod startup_server;
mod stats;

use std::collections::VecDeque;
use std::time::Duration;

use log::debug;

pub use self::execute::{Config, Executor};
pub use self::peer::{Readiness, Stream};
pub use self::stats::Identity;

use self::buffers::BufferPool;
use self::peer::Peer;
use self::silence::Silence;
use crate::binlog::Completion;
use crate::clock::Timestamp;
use crate::connection::Refusal;
use crate::queue::ClientId;

/// The buffer that all connections read into.
const READ_BUFFER_BYTES: usize = 256 * 1024;

/// What one connection may do in a turn.
#[derive(Debug)]
struct Share {
    /// Bytes read, in one call.
    read_bytes: usize,
    /// Requests executed.
    requests: usize,
    /// Bytes sent.
    send_bytes: usize,
}

/// The share of a client that comes anew: what clients send at once and then wait for is done in one turn, with
/// one read and one write.
const BURST: Share = Share { read_bytes: READ_BUFFER_BYTES, requests: 1024, send_bytes: 256 * 1024 };

/// The share of a client that had more to do than the last turn allowed: some 30 microseconds, so that
/// the others hardly feel it.
const SUSTAINED: Share = Share { read_bytes: 32 * 1024, requests: 128, send_bytes: 48 * 1024 };

/// Connections, and what they are served from.
#[derive(Debug)]
pub struct Server<S> {
    executor: Executor,
    /// By the index of their [`ClientId`].
    peers: Vec<Option<Box<Peer<S>>>>,
    buffer: Box<[u8]>,
    buffers: BufferPool,
    /// Who can go on although no event will say so: what they sent is here already.
    runnable: VecDeque<ClientId>,
    /// Who has replies that were not handed to the socket yet.
    unsent: Vec<ClientId>,
    /// Who has replies that wait for the binlog.
    held: Vec<ClientId>,
    /// Who has a command that waits for room in the binlog.
    stalled: Vec<ClientId>,
    silence: Silence,
}

impl<S: Stream> Server<S> {
    /// A server without connections.
    #[must_use]
    pub fn new(executor: Executor) -> Self {
        Self {
            executor,
            peers: Vec::new(),
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            buffers: BufferPool::default(),
            runnable: VecDeque::new(),
            unsent: Vec::new(),
            held: Vec::new(),
            stalled: Vec::new(),
            silence: Silence::default(),
        }
    }

    /// From now on, closes each new connection that is silent for `timeout`, unless its client waits in a
    /// reserve or holds a job.
    pub fn close_silent_after(&mut self, timeout: Duration) {
        self.silence.set_timeout(timeout);
    }

    /// How many clients are connected.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.executor.queue().client_count()
    }

    /// What executes the commands.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// What executes the commands, to be changed.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Takes a new client in; `open` makes its stream, for which events will come under the id.
    ///
    /// # Errors
    /// That of `open`; the client then never was.
    pub fn accept<E>(
        &mut self,
        open: impl FnOnce(ClientId) -> Result<S, E>,
        now: Timestamp,
    ) -> Result<ClientId, E> {
        let id = self.executor.connect();
        match open(id) {
            Ok(stream) => {
                let index = id.index as usize;
                if self.peers.len() <= index {
                    self.peers.resize_with(index + 1, || None);
                }
                let mut peer = Peer::new(id, stream);
                peer.silence = self.silence.watch(id, now, now).map(Box::new);
                self.peers[index] = Some(Box::new(peer));
                Ok(id)
            }
            Err(error) => {
                self.executor.disconnect(id, now);
                Err(error)
            }
        }
    }

    /// One turn: everything that has become due or arrived, in this order.
    pub fn turn(&mut self, events: impl Iterator<Item = (ClientId, Readiness)>, now: Timestamp) {
        // What is due comes first, so that a command sees the queue as it is at `now`.
        self.executor.advance(now);
        self.close_silent(now);
        // Those who were cut short before get their share before those who come anew.
        for _ in 0..self.runnable.len() {
            let Some(id) = self.runnable.pop_front() else { break };
            if let Some(peer) = find(&mut self.peers, id) {
                peer.queued = false;
                peer.is_busy = true;
                self.serve(id, now);
            }
        }
        for (id, readiness) in events {
            self.notice(id, readiness, now);
        }
        loop {
            // Deliveries stand behind all commands of the turn: whoever waited has its answer in one write.
            let delivered = self.deliver();
            // No reply leaves before what it acknowledges is in the log.
            self.executor.commit(now);
            if self.executor.has_failed() {
                self.refuse_unsettled();
            }
            // One write for each connection, whatever number of replies it carries.
            self.send(delivered, now);
            // A client that turned out to be gone has left its jobs to others.
            if !self.executor.has_deliveries() {
                break;
            }
        }
    }

    /// When the next turn is to be, if no event comes before.
    #[must_use]
    pub fn next_turn_at(&self) -> Option<Timestamp> {
        if !self.runnable.is_empty() || !self.unsent.is_empty() {
            return Some(Timestamp::default());
        }
        [self.executor.next_deadline(), self.silence.next_look_at()].into_iter().flatten().min()
    }

    /// Whether any client is owed a reply that its socket has not taken.
    #[must_use]
    pub fn owes_replies(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.connection.output.is_empty())
    }

    /// Latches what the poll has said of a connection, and serves it.
    fn notice(&mut self, id: ClientId, readiness: Readiness, now: Timestamp) {
        let Some(peer) = find(&mut self.peers, id) else { return };
        // What a client sent before its connection broke is executed all the same: then a read or
        // a write fails, and ends it. On a unix socket every client that just closes has "failed".
        let Readiness { readable, writable, read_closed, failed } = readiness;
        peer.is_busy = peer.has_work();
        peer.readable |= readable | read_closed | failed;
        peer.read_closed |= read_closed | failed;
        if (writable | failed) && std::mem::take(&mut peer.write_blocked) {
            peer.stream.await_writable(false);
            list(&mut self.unsent, id, &mut peer.listed_unsent);
        }
        // Who stands in line for the next turn has had its share of this one.
        if !peer.queued {
            self.serve(id, now);
        }
    }

    /// Reads from a connection and executes what has come, up to its share of the turn.
    fn serve(&mut self, id: ClientId, now: Timestamp) {
        let Some(peer) = find(&mut self.peers, id) else { return };
        peer.uncount_bytes(&mut self.executor.buffer_bytes);
        self.buffers.lend(&mut peer.connection.output);
        if peer.connection.is_waiting() && peer.read_closed {
            self.executor.give_up_wait(id, &mut peer.connection);
        }
        if let Some(stalled) = peer.take_stalled() {
            let next = self.executor.resume(id, &mut peer.connection, *stalled, now);
            peer.follow(next);
        }
        // What is here already goes first: it may be all that the client may do for now.
        if std::mem::take(&mut peer.may_go_on) {
            let kept = peer.connection.take_kept();
            let left = peer.execute(&mut self.executor, kept.unread(), id, now);
            peer.connection.put_back(kept, left);
        } else {
            let mut filled = peer.connection.restore(&mut self.buffer);
            if peer.readable && !peer.is_blocked() {
                peer.read(&mut self.buffer, &mut filled, now);
            }
            let input = &self.buffer[..filled];
            let left = peer.execute(&mut self.executor, input, id, now);
            peer.connection.keep(&input[filled - left..]);
        }
        if peer.failed {
            self.close(id, now);
            return;
        }
        if peer.connection.has_body_in_progress() && self.executor.lacks_memory_for(0, &peer.connection) {
            peer.connection.give_up_body(Refusal::OutOfMemory);
        }
        if peer.is_stalled() {
            self.stalled.push(id);
        }
        peer.hold(&self.executor);
        if peer.connection.output.is_empty() && !peer.ending {
            self.buffers.reclaim(&mut peer.connection.output);
        } else {
            list(&mut self.unsent, id, &mut peer.listed_unsent);
        }
        peer.count_bytes(&mut self.executor.buffer_bytes);
        self.queue_if_runnable(id);
    }

    /// Answers clients that waited in a reserve; returns how many.
    fn deliver(&mut self) -> usize {
        let unsent_before = self.unsent.len();
        while let Some(delivery) = self.executor.poll_delivery() {
            let id = delivery.client;
            let Some(peer) = find(&mut self.peers, id) else { continue };
            self.buffers.lend(&mut peer.connection.output);
            self.executor.answer_wait(id, delivery.outcome, &mut peer.connection);
            peer.hold(&self.executor);
            list(&mut self.unsent, id, &mut peer.listed_unsent);
            self.queue_if_runnable(id);
        }
        self.unsent.len() - unsent_before
    }

    /// Gives the connection a place in the next turn if it can be served although no event will come.
    fn queue_if_runnable(&mut self, id: ClientId) {
        if let Some(peer) = find(&mut self.peers, id)
            && peer.wants_to_go_on()
            && !std::mem::replace(&mut peer.queued, true)
        {
            self.runnable.push_back(id);
        }
    }

    /// Hands the replies of this turn to the sockets, those of the last `delivered` connections first.
    fn send(&mut self, delivered: usize, now: Timestamp) {
        let settled = self.executor.settled();
        let mut unsent = std::mem::take(&mut self.unsent);
        // A worker that has waited for a job gets it before its producer gets the receipt.
        unsent.rotate_right(delivered);
        for id in unsent.drain(..) {
            let Some(peer) = find(&mut self.peers, id) else { continue };
            peer.listed_unsent = false;
            if peer.send(settled, now).is_err() || peer.is_finished() {
                self.close(id, now);
                continue;
            }
            if peer.connection.output.is_empty() {
                self.buffers.reclaim(&mut peer.connection.output);
            }
            if peer.has_held_replies() {
                self.held.push(id);
            }
            peer.count_bytes(&mut self.executor.buffer_bytes);
            if peer.can_send(settled) {
                list(&mut self.unsent, id, &mut peer.listed_unsent);
            }
            self.queue_if_runnable(id);
        }
        unsent.append(&mut self.unsent);
        self.unsent = unsent;
    }

    /// Takes note of what was done for the binlog on another thread. Replies that waited for it leave in
    /// the next turn, and commands that waited for room are tried again.
    pub fn binlog_completed(&mut self, completion: Completion, now: Timestamp) {
        self.executor.binlog_completed(completion, now);
        for id in self.held.drain(..) {
            if let Some(peer) = find(&mut self.peers, id) {
                list(&mut self.unsent, id, &mut peer.listed_unsent);
            }
        }
        for id in self.stalled.drain(..) {
            if let Some(peer) = find(&mut self.peers, id)
                && !std::mem::replace(&mut peer.queued, true)
            {
                self.runnable.push_back(id);
            }
        }
    }

    /// The binlog has failed: nothing that it does not hold is acknowledged, and every connection ends.
    fn refuse_unsettled(&mut self) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if let Some(peer) = peer {
                peer.refuse_unsettled();
                list(&mut self.unsent, peer.id_at(index), &mut peer.listed_unsent);
            }
        }
    }

    /// Closes the connections that have been silent for too long.
    fn close_silent(&mut self, now: Timestamp) {
        while let Some((id, timeout_ns)) = self.silence.next_due(now) {
            let Some(peer) = find(&mut self.peers, id) else { continue };
            let Some(silence) = peer.silence.take() else { continue };
            let is_exempt = peer.connection.is_waiting() || self.executor.queue().has_reservations(id);
            let silent_since = if is_exempt { now } else { silence.active_at };
            if silent_since + timeout_ns > now {
                peer.silence = self.silence.watch(id, silence.active_at, silent_since).map(Box::new);
            } else {
                debug!("{} has been silent for too long", id.index);
                self.close(id, now);
            }
        }
    }

    /// Ends a connection: its jobs become ready at once.
    fn close(&mut self, id: ClientId, now: Timestamp) {
        if let Some(peer) = find(&mut self.peers, id) {
            peer.uncount_bytes(&mut self.executor.buffer_bytes);
            if let Some(silence) = &peer.silence {
                self.silence.forget(id, silence);
            }
            self.peers[id.index as usize] = None;
            self.executor.disconnect(id, now);
            debug!("close {}", id.index);
        }
    }
}

/// Puts the client into a list, if its flag does not say that it stands there.
fn list(clients: &mut Vec<ClientId>, id: ClientId, is_listed: &mut bool) {
    if !std::mem::replace(is_listed, true) {
        clients.push(id);
    }
}

/// The connection of the client, if it is still that client's.
fn find<S: Stream>(peers: &mut [Option<Box<Peer<S>>>], id: ClientId) -> Option<&mut Peer<S>> {
    peers.get_mut(id.index as usize)?.as_deref_mut().filter(|peer| peer.is_of(id))
}
