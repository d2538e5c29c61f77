//! The encrypted half of a connection: plaintext on one side, a socket on the other.
//!
//! Owns: the state of TLS for one connection, and the bytes between the two sides. Reads and writes keep the promises
//! of plain sockets: a read that returns less than was asked for has emptied the socket, and what a write has taken is
//! with the system.

use std::fmt;
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use rustls::{Error, IoState, ServerConfig, ServerConnection};

use super::sessions::SessionEnd;
use super::{Acceptor, HANDSHAKE_BYTES, HandshakeFailure};

/// The most plaintext that is encrypted before the socket has taken it. No write of a connection is offered less than
/// this where it could be more (`Budget::Sustained`), so a turn needs one system call.
const MAX_UNSENT_BYTES: usize = 48 * 1024;

/// How far ahead a wait for a job looks for the client's end, in bytes: a client that sends more than this behind a
/// reserve has to close its socket for the server to see it.
const LOOK_AHEAD_BYTES: usize = 16 * 1024;

/// The memory of a connection that has nothing under way: the state of rustls with its keys and its smallest buffers.
const IDLE_BYTES: usize = 9 * 1024;

/// The encrypted half of a connection.
pub struct Channel {
    tls: ServerConnection,
    acceptor: Rc<Acceptor>,
    stage: Stage,
    /// Until when the client can resume its session.
    session_end: SessionEnd,
    /// Bytes of the socket that rustls had no room for, because decrypted bytes have not been taken yet.
    unfed: Vec<u8>,
    /// The client has said that it will send no more, or has closed its half of the socket.
    has_ended: bool,
    /// Bytes of plaintext that are encrypted, but not all taken by the socket. The caller offers them again, as it does
    /// with a socket that is full.
    encrypted: usize,
    /// The memory that the acceptor counts for this connection.
    held_bytes: usize,
}

/// How far a connection has come.
enum Stage {
    Handshake {
        /// The bytes that came so far.
        received: usize,
        /// The settings of the handshake, which a reload may have replaced since.
        config: Arc<ServerConfig>,
    },
    Open,
    /// Nothing more is read or written.
    Failed,
}

/// The result of a read of the socket.
#[derive(PartialEq, Eq)]
enum Received {
    /// Bytes, and there may be more.
    Some,
    /// No more than there were.
    All,
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    pub(super) fn new(config: Arc<ServerConfig>, acceptor: Rc<Acceptor>) -> Result<Self, Error> {
        let mut tls = ServerConnection::new(Arc::clone(&config))?;
        tls.set_buffer_limit(Some(MAX_UNSENT_BYTES));
        let mut channel = Self {
            tls,
            acceptor,
            stage: Stage::Handshake { received: 0, config },
            session_end: SessionEnd::NEVER,
            unfed: Vec::new(),
            has_ended: false,
            encrypted: 0,
            held_bytes: 0,
        };
        channel.count();
        Ok(channel)
    }

    /// Has the acceptor count what the connection holds. rustls does not say how long its buffers are, so those of a
    /// handshake are taken to be as long as what has come.
    fn count(&mut self) {
        let received = if let Stage::Handshake { received, .. } = self.stage { received } else { 0 };
        let held_bytes = IDLE_BYTES + received + self.unfed.capacity() + self.encrypted;
        self.acceptor.holds(self.held_bytes, held_bytes);
        self.held_bytes = held_bytes;
    }

    /// Whether the handshake is not done yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self.stage, Stage::Handshake { .. })
    }

    /// Whether the client will send no more than what was received.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether there are bytes for the socket that it has not taken.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// The certificate that the client has shown, in DER; `None` before the end of the handshake, and if none was asked
    /// for.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        if self.is_handshaking() {
            return None;
        }
        self.tls.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Whether the client would still get in with the certificate that it has shown.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check_certificate(&self) -> Result<(), Error> {
        self.acceptor.check(self.tls.peer_certificates().unwrap_or_default())
    }

    /// Passes at most `room` bytes of plaintext on to `take`; returns how many. 0 means that the client will send no
    /// more. A client says so within TLS, or by closing its half of the socket.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing to read; `InvalidData` if the client does not keep to TLS or is refused; any
    /// other error of the socket.
    pub fn read<S: Read + Write>(
        &mut self,
        socket: &mut S,
        room: usize,
        take: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let result = self.read_plaintext(socket, room, take);
        self.count();
        result
    }

    fn read_plaintext<S: Read + Write>(
        &mut self,
        socket: &mut S,
        room: usize,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let mut taken = 0;
        let mut received = Received::Some;
        // A socket that takes nothing shows itself in the next write. What came before is still read.
        let _ = self.flush(socket);
        loop {
            taken += self.take_plaintext(room - taken, &mut take);
            if taken == room {
                return Ok(taken);
            } else if !self.unfed.is_empty() {
                let unfed = mem::take(&mut self.unfed);
                self.feed(socket, &unfed)?;
            } else if received == Received::All || self.has_ended {
                break;
            } else {
                received = self.receive(socket, room - taken)?;
            }
        }
        match taken {
            0 if self.has_ended => Ok(0),
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Whether the client will send no more behind what has arrived. Reads a bounded part of it for that.
    ///
    /// # Errors
    /// As `read`.
    pub fn look_for_end<S: Read + Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        while !self.has_ended
            && self.unfed.is_empty()
            && self.unread_plaintext() < LOOK_AHEAD_BYTES
            && self.receive(socket, LOOK_AHEAD_BYTES)? == Received::Some
        {}
        Ok(self.has_ended)
    }

    /// Encrypts and sends; returns how many bytes of plaintext the socket has taken, all of them to the last byte of
    /// ciphertext. After an error that is not final, the same bytes must be offered again.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is full, or any other error of the socket.
    pub fn write<S: Write>(&mut self, socket: &mut S, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        debug_assert!(!self.is_handshaking(), "no command is executed before the handshake is done");
        if self.encrypted == 0 {
            // Bytes of TLS itself, which the socket has not taken earlier, would leave less room.
            self.flush(socket)?;
            let mut writer = self.tls.writer();
            self.encrypted = match slices {
                [bytes] => writer.write(bytes)?,
                slices => writer.write_vectored(slices)?,
            };
        }
        // Until the socket has taken them.
        self.count();
        debug_assert!(
            self.encrypted <= slices.iter().map(|slice| slice.len()).sum(),
            "the same bytes are offered again"
        );
        self.flush(socket)?;
        let taken = mem::take(&mut self.encrypted);
        self.count();
        Ok(taken)
    }

    /// Announces to the client that nothing more comes. May be called again.
    ///
    /// # Errors
    /// As `write`.
    pub fn finish<S: Write>(&mut self, socket: &mut S) -> io::Result<()> {
        match self.stage {
            Stage::Open => {
                self.tls.send_close_notify();
                self.flush(socket)
            }
            Stage::Handshake { .. } | Stage::Failed => Ok(()),
        }
    }

    fn unread_plaintext(&mut self) -> usize {
        self.process().map_or(0, |state| state.plaintext_bytes_to_read())
    }

    /// Has rustls go on with what it was fed.
    fn process(&mut self) -> Result<IoState, Error> {
        self.session_end.within(|| self.tls.process_new_packets())
    }

    fn take_plaintext(&mut self, room: usize, take: &mut impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        let mut reader = self.tls.reader();
        while taken < room
            && let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            let count = chunk.len().min(room - taken);
            take(&chunk[..count]);
            reader.consume(count);
            taken += count;
        }
        taken
    }

    /// Reads once from the socket, at most `most` bytes. Ciphertext is longer than its plaintext, so hardly more is
    /// decrypted than there is room for.
    fn receive<S: Read + Write>(&mut self, socket: &mut S, most: usize) -> io::Result<Received> {
        let acceptor = Rc::clone(&self.acceptor);
        let mut scratch = acceptor.scratch.borrow_mut();
        let mut most = most.min(scratch.len());
        if let Stage::Handshake { received, .. } = self.stage {
            most = most.min(HANDSHAKE_BYTES - received);
            if most == 0 {
                return Err(self.fail(HandshakeFailure::TooLong, &"more bytes than a handshake may have"));
            }
        }
        let count = loop {
            match socket.read(&mut scratch[..most]) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::All),
                Err(error) => return Err(error),
            }
        };
        if count == 0 {
            self.has_ended = true;
            if self.is_handshaking() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            return Ok(Received::All);
        }
        if let Stage::Handshake { received, .. } = &mut self.stage {
            *received += count;
        }
        self.feed(socket, &scratch[..count])?;
        Ok(if count < most { Received::All } else { Received::Some })
    }

    /// Decrypts `wire`, and sends what TLS has to say about it.
    fn feed<S: Write>(&mut self, socket: &mut S, mut wire: &[u8]) -> io::Result<()> {
        while !wire.is_empty() {
            match self.tls.read_tls(&mut wire) {
                // The client has announced its end: whatever follows does not count.
                Ok(0) => break,
                Ok(_) => {}
                Err(_) if self.unread_plaintext() > 0 => {
                    self.unfed.extend_from_slice(wire);
                    break;
                }
                Err(error) => return Err(self.fail(HandshakeFailure::Malformed, &error)),
            }
            match self.process() {
                Ok(state) => self.has_ended |= state.peer_has_closed(),
                Err(error) => {
                    // The client gets the reason, if its socket has room.
                    let _ = self.flush(socket);
                    return Err(self.fail(HandshakeFailure::of(&error), &error));
                }
            }
        }
        let _ = self.flush(socket);
        self.end_handshake()
    }

    /// Lets the client in if its handshake is done. If a reload came meanwhile, the certificate is checked as the new
    /// files say.
    fn end_handshake(&mut self) -> io::Result<()> {
        let Stage::Handshake { config, .. } = &self.stage else { return Ok(()) };
        if self.tls.is_handshaking() {
            return Ok(());
        }
        if !self.acceptor.is_in_force(config)
            && let Err(error) = self.check_certificate()
        {
            return Err(self.fail(HandshakeFailure::of(&error), &error));
        }
        self.stage = Stage::Open;
        self.acceptor.handshake_done(self.tls.handshake_kind());
        Ok(())
    }

    fn fail(&mut self, failure: HandshakeFailure, reason: &dyn fmt::Display) -> io::Error {
        if self.is_handshaking() {
            self.acceptor.handshake_failed(failure);
        }
        self.stage = Stage::Failed;
        io::Error::new(ErrorKind::InvalidData, reason.to_string())
    }

    /// Sends all that there is to send.
    fn flush<S: Write>(&mut self, socket: &mut S) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.is_handshaking() {
            self.acceptor.handshake_failed(HandshakeFailure::Unfinished);
        }
        self.acceptor.holds(self.held_bytes, 0);
        self.acceptor.closed();
    }
}
