//! A connection with its socket: what the poll has said of it, and the two system calls.
//!
//! Readiness is edge-triggered, so it is latched here: `readable` falls only where a read has shown that
//! nothing more is there, `write_blocked` only where the poll says that there is room again.

use std::io::{self, ErrorKind, IoSlice};

use super::execute::{Executor, Next, Stalled};
use super::holds::Holds;
use super::silence::Watched;
use super::{BURST, SUSTAINED, Share};
use crate::binlog::Position;
use crate::clock::Timestamp;
use crate::connection::Connection;
use crate::queue::ClientId;

/// The socket of a connection; a fake one in simulations.
pub trait Stream {
    /// Reads into `buffer`; 0 is the end of what the client sends.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there; any other error ends the connection.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Appends at most `max_bytes` to `body`, within its capacity.
    ///
    /// # Errors
    /// As `read`.
    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize>;

    /// Writes one piece.
    ///
    /// # Errors
    /// `WouldBlock` where the socket is full; any other error ends the connection.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Writes several pieces.
    ///
    /// # Errors
    /// As `write`.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// From now on the poll tells, or no longer tells, when the socket takes bytes again.
    fn await_writable(&mut self, awaited: bool);
}

/// What a poll says of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is something to read.
    pub readable: bool,
    /// The socket takes bytes again.
    pub writable: bool,
    /// The client will send no more.
    pub read_closed: bool,
    /// The connection is broken, or the client takes nothing more; what it sent may still be there.
    pub failed: bool,
}

#[derive(Debug)]
pub struct Peer<S> {
    pub stream: S,
    pub connection: Connection,
    /// A read may bring something.
    pub readable: bool,
    /// The client will send no more; the rest may still have to be read.
    pub read_closed: bool,
    /// The rest has been read.
    pub at_end: bool,
    /// The socket takes no bytes; the poll will tell when it does.
    pub write_blocked: bool,
    /// What is kept of the input may hold whole commands: they were not executed because of a wait, or of replies not taken.
    pub may_go_on: bool,
    /// It stands among the server's runnable connections.
    pub queued: bool,
    /// It stands among those who have replies to be sent.
    pub listed_unsent: bool,
    /// It had more to do than its share of the last turn allowed.
    pub is_busy: bool,
    /// Nothing more is executed; the connection ends once its replies are out.
    pub ending: bool,
    /// Reading has failed.
    pub failed: bool,
    /// Its silence, if that has an end.
    pub silence: Option<Box<Watched>>,
    /// What waits for the binlog; only with one.
    pub awaits: Option<Box<AwaitsBinlog>>,
    /// Tells this client from the others that had its place.
    generation: u32,
    /// What this connection has in the sum of all buffers, in bytes; a body is 1 GiB at most.
    counted_bytes: u32,
}

/// What of a connection waits for the binlog.
#[derive(Debug, Default)]
pub struct AwaitsBinlog {
    /// A command for which there is no room yet; those behind it wait, too.
    stalled: Option<Box<Stalled>>,
    /// Which replies may leave.
    holds: Holds,
}

impl<S: Stream> Peer<S> {
    pub fn new(id: ClientId, stream: S) -> Self {
        Self {
            stream,
            connection: Connection::default(),
            readable: false,
            read_closed: false,
            at_end: false,
            write_blocked: false,
            may_go_on: false,
            queued: false,
            listed_unsent: false,
            is_busy: false,
            ending: false,
            failed: false,
            silence: None,
            awaits: None,
            generation: id.generation,
            counted_bytes: 0,
        }
    }

    /// Whether nothing of this client may be executed now.
    pub fn is_blocked(&self) -> bool {
        self.ending || self.is_stalled() || self.connection.is_waiting() || self.connection.is_over_bound()
    }

    /// Whether this is the connection of that client.
    pub fn is_of(&self, id: ClientId) -> bool {
        self.generation == id.generation
    }

    /// The client that the connection at this index belongs to.
    pub fn id_at(&self, index: usize) -> ClientId {
        ClientId { index: index as u32, generation: self.generation }
    }

    /// Whether a command waits for room in the binlog.
    pub fn is_stalled(&self) -> bool {
        self.awaits.as_ref().is_some_and(|awaits| awaits.stalled.is_some())
    }

    /// The command that has waited for room in the binlog.
    pub fn take_stalled(&mut self) -> Option<Box<Stalled>> {
        self.awaits.as_mut()?.stalled.take()
    }

    /// A byte has come or gone.
    fn note_activity(&mut self, now: Timestamp) {
        if let Some(silence) = &mut self.silence {
            silence.active_at = now;
        }
    }

    /// What it may do in a turn.
    fn share(&self) -> &'static Share {
        if self.is_busy { &SUSTAINED } else { &BURST }
    }

    /// Whether the last turn has left anything to be read, executed or sent.
    pub fn has_work(&self) -> bool {
        self.readable || self.may_go_on || !self.connection.output.is_empty()
    }

    /// Whether it can be served although no event will come.
    pub fn wants_to_go_on(&self) -> bool {
        !self.is_blocked() && (self.may_go_on || self.readable)
    }

    /// Whether it is over: everything executed, everything sent.
    pub fn is_finished(&self) -> bool {
        self.ending && self.connection.output.is_empty()
    }

    /// Reads once, behind the `filled` bytes of `buffer` or straight into a large body.
    pub fn read(&mut self, buffer: &mut [u8], filled: &mut usize, now: Timestamp) {
        let (result, room) = if let Some((body, missing)) = self.connection.body_room() {
            let room = missing.min(SUSTAINED.read_bytes);
            (self.stream.read_into(body, room), room)
        } else {
            let room = (buffer.len() - *filled).min(self.share().read_bytes);
            let result = self.stream.read(&mut buffer[*filled..*filled + room]);
            *filled += *result.as_ref().unwrap_or(&0);
            (result, room)
        };
        if matches!(result, Ok(1..)) {
            self.note_activity(now);
        }
        match result {
            Ok(0) => {
                self.readable = false;
                self.at_end = true;
                self.read_closed = true;
            }
            // A short read has emptied the socket: the next bytes make a new edge. After the end
            // of the stream no edge follows, so that is read for.
            Ok(read) if read < room && !self.read_closed => self.readable = false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.failed = true,
        }
    }

    /// Executes what `input` holds, up to the share of a turn; returns how many bytes at its end are left.
    pub fn execute(
        &mut self,
        executor: &mut Executor,
        mut input: &[u8],
        id: ClientId,
        now: Timestamp,
    ) -> usize {
        let mut requests_left = self.share().requests;
        while requests_left > 0
            && !self.is_blocked()
            && let Some(request) = self.connection.next_request(&mut input)
        {
            requests_left -= 1;
            let next = executor.execute(id, &mut self.connection, request, now);
            if self.follow(next) {
                executor.give_up_wait(id, &mut self.connection);
            }
        }
        let was_cut_short = self.is_blocked() || (requests_left == 0 && !input.is_empty());
        self.may_go_on = was_cut_short && !input.is_empty();
        // Whatever is left at the end is no whole command, and never will be.
        self.ending |= self.at_end && !was_cut_short;
        input.len()
    }

    /// Goes on after a command; tells whether the client waits in a reserve although it will send no more.
    pub fn follow(&mut self, next: Next) -> bool {
        match next {
            Next::GoOn => {}
            Next::Wait => return self.read_closed,
            Next::Stall(stalled) => self.awaits.get_or_insert_default().stalled = Some(stalled),
            Next::Close => self.ending = true,
        }
        false
    }

    /// The replies made since the last call rest on all that is logged by now.
    pub fn hold(&mut self, executor: &Executor) {
        if let Some(position) = executor.position() {
            self.awaits.get_or_insert_default().holds.hold(&self.connection.output, position);
        }
    }

    /// Whether replies wait for the binlog.
    pub fn has_held_replies(&self) -> bool {
        self.awaits.as_ref().is_some_and(|awaits| awaits.holds.any())
    }

    /// The binlog has failed: what it does not hold is not acknowledged, and the connection ends.
    pub fn refuse_unsettled(&mut self) {
        if let Some(awaits) = &mut self.awaits {
            awaits.holds.refuse(&mut self.connection.output);
        }
        self.ending = true;
    }

    /// Brings `sum`, of what all connections hold, up to what this one holds now.
    pub fn count_bytes(&mut self, sum: &mut usize) {
        self.uncount_bytes(sum);
        self.counted_bytes = u32::try_from(self.connection.held_bytes()).unwrap_or(u32::MAX);
        *sum += self.counted_bytes as usize;
    }

    /// Takes what this connection holds out of `sum`.
    pub fn uncount_bytes(&mut self, sum: &mut usize) {
        *sum -= std::mem::take(&mut self.counted_bytes) as usize;
    }

    /// How many bytes of the replies rest on the log up to `settled`.
    fn sendable(&mut self, settled: Position) -> usize {
        let held = self.awaits.as_mut().map_or(usize::MAX, |awaits| awaits.holds.sendable(settled));
        held.min(self.connection.output.len())
    }

    /// Whether only the share of the turn has kept it from sending more.
    pub fn can_send(&mut self, settled: Position) -> bool {
        !self.write_blocked && self.sendable(settled) > 0
    }

    /// Sends as much as the socket takes, up to the share of a turn, of the replies that rest on the log up to `settled`.
    pub fn send(&mut self, settled: Position, now: Timestamp) -> io::Result<()> {
        let mut left = self.share().send_bytes;
        while !self.write_blocked && left > 0 {
            let sendable = self.sendable(settled).min(left);
            if sendable == 0 {
                break;
            }
            let output = &self.connection.output;
            let sent = match output.as_slice() {
                Some(bytes) => self.stream.write(&bytes[..sendable]),
                None => self.stream.write_vectored(&output.slices(sendable)),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    left -= sent;
                    self.note_activity(now);
                    self.connection.output.advance(sent);
                    if let Some(awaits) = &mut self.awaits {
                        awaits.holds.advance(sent);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.write_blocked = true;
                    self.stream.await_writable(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
