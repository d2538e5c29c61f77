//! A connection with its socket: what the poll has said of it, and the two system calls.
//!
//! Readiness is edge-triggered, so it is latched here: `readable` falls only where a read has shown that
//! nothing more is there, `write_blocked` only where the poll says that there is room again.

use std::io::{self, ErrorKind, IoSlice};

use super::BODY_READ_BYTES;
use super::execute::{Executor, Next, Stalled};
use super::holds::Holds;
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
    pub id: ClientId,
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
    /// Nothing more is executed; the connection ends once its replies are out.
    pub ending: bool,
    /// Reading has failed.
    pub failed: bool,
    /// When a byte last came or went.
    pub active_at: Timestamp,
    /// When its silence is to be measured, if ever.
    pub look_at: Option<Timestamp>,
    /// A command that waits for room in the binlog; those behind it wait, too.
    pub stalled: Option<Box<Stalled>>,
    /// Which replies may leave; only with a binlog.
    pub holds: Option<Box<Holds>>,
    /// What this connection has in the sum of all buffers.
    pub counted_bytes: usize,
}

impl<S: Stream> Peer<S> {
    pub fn new(id: ClientId, stream: S, now: Timestamp) -> Self {
        Self {
            id,
            stream,
            connection: Connection::default(),
            readable: false,
            read_closed: false,
            at_end: false,
            write_blocked: false,
            may_go_on: false,
            queued: false,
            ending: false,
            failed: false,
            active_at: now,
            look_at: None,
            stalled: None,
            holds: None,
            counted_bytes: 0,
        }
    }

    /// Whether nothing of this client may be executed now.
    pub fn is_blocked(&self) -> bool {
        self.ending
            || self.stalled.is_some()
            || self.connection.is_waiting()
            || self.connection.is_over_bound()
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
            let room = missing.min(BODY_READ_BYTES);
            (self.stream.read_into(body, room), room)
        } else {
            let room = buffer.len() - *filled;
            let result = self.stream.read(&mut buffer[*filled..]);
            *filled += *result.as_ref().unwrap_or(&0);
            (result, room)
        };
        if matches!(result, Ok(1..)) {
            self.active_at = now;
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

    /// Keeps what was not executed of the input, and notes how the connection goes on.
    pub fn settle(&mut self, rest: &[u8]) {
        self.connection.keep(rest);
        let blocked = self.is_blocked();
        self.may_go_on = blocked && !rest.is_empty();
        // Whatever is left at the end is no whole command, and never will be.
        self.ending |= self.at_end && !blocked;
    }

    /// Goes on after a command; tells whether the client waits in a reserve although it will send no more.
    pub fn follow(&mut self, next: Next) -> bool {
        match next {
            Next::GoOn => {}
            Next::Wait => return self.read_closed,
            Next::Stall(stalled) => self.stalled = Some(stalled),
            Next::Close => self.ending = true,
        }
        false
    }

    /// The replies made since the last call rest on all that is logged by now.
    pub fn hold(&mut self, executor: &Executor) {
        if let Some(position) = executor.position() {
            self.holds.get_or_insert_default().hold(&self.connection.output, position);
        }
    }

    /// Whether replies wait for the binlog.
    pub fn has_held_replies(&self) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.any())
    }

    /// Notes what the connection holds now, and returns it.
    pub fn count_bytes(&mut self) -> usize {
        self.counted_bytes = self.connection.held_bytes();
        self.counted_bytes
    }

    /// Sends as much as the socket takes, of the replies that rest on the log up to `settled`.
    pub fn send(&mut self, settled: Position, now: Timestamp) -> io::Result<()> {
        while !self.write_blocked {
            let output = &self.connection.output;
            let sendable = self.holds.as_mut().map_or(usize::MAX, |holds| holds.sendable(settled));
            let sendable = sendable.min(output.len());
            if sendable == 0 {
                break;
            }
            let sent = match output.as_slice() {
                Some(bytes) => self.stream.write(&bytes[..sendable]),
                None => self.stream.write_vectored(&output.slices(sendable)),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.active_at = now;
                    self.connection.output.advance(sent);
                    if let Some(holds) = &mut self.holds {
                        holds.advance(sent);
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
