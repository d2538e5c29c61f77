//! The encrypted half of a connection: plaintext on one side, a socket on the other.
//!
//! Owns: the state of TLS for one connection, and the bytes between the two sides. Reads and writes keep the guarantees
//! of plain sockets: a read that returns less than requested has emptied the socket, unless it has used up its share of
//! records, and the system has everything that a write has taken.

use std::fmt;
use std::io::{self, BufRead, ErrorKind, IoSlice, Read, Write};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use rustls::{Error, IoState, ServerConfig, ServerConnection};

use super::acceptor::MAX_READ_BYTES;
use super::records::Records;
use super::sessions::SessionEnd;
use super::{Acceptor, HandshakeFailure, MAX_HANDSHAKE_BYTES};

/// The maximum of plaintext that is encrypted before the socket has taken it. It is not less than a connection offers
/// in one write under `Budget::Sustained`, so such a turn needs one system call.
const MAX_UNSENT_BYTES: usize = 48 * 1024;

/// How far ahead a waiting reserve looks for the end of the client's input, in bytes: if a client sends more than this
/// after a reserve, or more than `MAX_RECORDS` at once, the server sees its end only when the client closes its socket.
const MAX_LOOK_AHEAD_BYTES: usize = 16 * 1024;

/// How many records a call decrypts. A turn executes as many requests of a client that never pauses. Clients choose the
/// length of their records, and a short one takes almost as long as a long one.
pub(crate) const MAX_RECORDS: usize = 128;

/// The minimum of ciphertext that a read asks the socket for, however little room there is for plaintext: a record that
/// contains only padding would otherwise be read a few bytes at a time.
const MIN_READ_BYTES: usize = 4 * 1024;

/// The bytes of an incomplete message that rustls keeps.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// How many records rustls gets at once: it keeps its list of buffers, which has room for as many as it ever held.
const MAX_RECORDS_AT_ONCE: usize = 16;

/// The memory of a connection that does nothing: the state of rustls with its keys and its smallest buffers.
const IDLE_BYTES: usize = 9 * 1024;

/// The encrypted half of a connection.
pub struct Channel {
    tls: ServerConnection,
    acceptor: Rc<Acceptor>,
    stage: ChannelStage,
    /// Until when the client can resume its session.
    session_end: SessionEnd,
    /// Bytes from the socket that are more records than the share of a call.
    unfed: Vec<u8>,
    records: Records,
    share: Share,
    /// The bytes of the records since the last one with plaintext: rustls may keep them, until their message is whole.
    silent_bytes: usize,
    /// Decrypted bytes that have not been taken yet. rustls would keep a buffer for each record.
    plaintext: Vec<u8>,
    /// The client has said that it will send no more, or has closed its half of the socket.
    has_ended: bool,
    /// Bytes of plaintext that are encrypted, but that the socket has not taken completely. The caller offers them
    /// again, as it does with a full socket.
    encrypted: usize,
    /// The memory that the acceptor counts for this connection.
    memory_bytes: usize,
}

/// The stage of a connection.
enum ChannelStage {
    Handshake {
        /// The number of bytes received so far.
        received: usize,
        /// The settings of the handshake, which a reload may have replaced since.
        config: Arc<ServerConfig>,
    },
    Open,
    /// Nothing more is read or written.
    Failed,
}

/// What is left of the share of a call.
struct Share {
    records: usize,
    /// Bytes from the socket: a client can pad records without limit.
    wire_bytes: usize,
}

impl Share {
    fn of(wire_bytes: usize) -> Self {
        Self { records: MAX_RECORDS, wire_bytes }
    }

    fn is_spent(&self) -> bool {
        self.records == 0 || self.wire_bytes == 0
    }
}

/// What the last read, or the last look for the end, has decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decryption {
    /// How many records.
    pub records: u64,
    /// Whether the client will send nothing after the bytes received so far.
    pub has_ended: bool,
    /// Whether it has used up its share, so that the socket may not be empty.
    pub may_have_more: bool,
}

/// The room of a read for plaintext.
struct Room<F> {
    left: usize,
    take: F,
}

impl<F: FnMut(&[u8])> Room<F> {
    /// Takes what there is room for; returns the rest.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, later) = bytes.split_at(bytes.len().min(self.left));
        if !now.is_empty() {
            self.left -= now.len();
            (self.take)(now);
        }
        later
    }
}

/// The result of a read of the socket.
#[derive(PartialEq, Eq)]
enum SocketRead {
    /// Bytes, and there may be more.
    Some,
    /// Bytes, and the socket is empty now.
    All,
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl Channel {
    /// The encrypted half of a new connection.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub fn new(acceptor: Rc<Acceptor>) -> Result<Self, Error> {
        let config = acceptor.config();
        let mut tls = ServerConnection::new(Arc::clone(&config))?;
        tls.set_buffer_limit(Some(MAX_UNSENT_BYTES));
        acceptor.opened();
        let mut channel = Self {
            tls,
            acceptor,
            stage: ChannelStage::Handshake { received: 0, config },
            session_end: SessionEnd::NEVER,
            unfed: Vec::new(),
            records: Records::default(),
            share: Share::of(0),
            silent_bytes: 0,
            plaintext: Vec::new(),
            has_ended: false,
            encrypted: 0,
            memory_bytes: 0,
        };
        channel.count();
        Ok(channel)
    }

    /// Reports the memory of the connection to the acceptor. rustls does not report the size of its buffers, so during
    /// a handshake they are assumed to be as large as the received bytes.
    fn count(&mut self) {
        let received = match self.stage {
            ChannelStage::Handshake { received, .. } => received - self.unfed.len(),
            ChannelStage::Open | ChannelStage::Failed => {
                self.silent_bytes.min(MAX_HELD_BYTES) + self.records.held_bytes()
            }
        };
        let kept = self.unfed.capacity() + self.plaintext.capacity();
        let memory_bytes = IDLE_BYTES + received + kept + self.encrypted;
        self.acceptor.count_memory(self.memory_bytes, memory_bytes);
        self.memory_bytes = memory_bytes;
    }

    /// Whether the handshake is in progress.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self.stage, ChannelStage::Handshake { .. })
    }

    /// What the last `read` or `look_for_end` has decrypted.
    #[must_use]
    pub fn decryption(&self) -> Decryption {
        Decryption {
            records: (MAX_RECORDS - self.share.records) as u64,
            has_ended: self.has_ended,
            may_have_more: self.share.is_spent(),
        }
    }

    /// Whether there are bytes that the socket has not taken.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// The client's certificate, in DER; `None` before the end of the handshake, and if none was requested.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        if self.is_handshaking() {
            return None;
        }
        self.tls.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Checks whether the client's certificate would still be accepted.
    ///
    /// # Errors
    /// The reason why it would not be accepted.
    pub fn check_certificate(&self) -> Result<(), Error> {
        self.acceptor.check(self.tls.peer_certificates().unwrap_or_default())
    }

    /// Passes at most `room` bytes of plaintext to `take`; returns how many. 0 means that the client will send no more.
    /// A client says so within TLS, or by closing its half of the socket.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing to read; `Interrupted` if the share of the call was used up before the first
    /// byte of plaintext; `InvalidData` if the client breaks the protocol of TLS or is refused; any other error of the
    /// socket.
    pub fn read<S: Read + Write>(
        &mut self,
        socket: &mut S,
        room: usize,
        take: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        self.share = Share::of(room.max(MAX_READ_BYTES));
        let result = self.read_plaintext(socket, room, take);
        self.count();
        result
    }

    fn read_plaintext<S: Read + Write>(
        &mut self,
        socket: &mut S,
        size: usize,
        take: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let mut room = Room { left: size, take };
        self.plaintext = room.take(&mem::take(&mut self.plaintext)).to_vec();
        // If the socket takes nothing, the next write fails. Bytes that came before are still read.
        let _ = self.flush(socket);
        while room.left > 0
            && !self.has_ended
            && !self.share.is_spent()
            && self.decrypt_next(socket, room.left.max(MIN_READ_BYTES), &mut room)? == SocketRead::Some
        {
        }
        match size - room.left {
            0 if self.has_ended => Ok(0),
            0 if self.share.is_spent() => Err(ErrorKind::Interrupted.into()),
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Whether the client will send nothing after the bytes that have arrived. For that, it reads a bounded number of
    /// them.
    ///
    /// # Errors
    /// As `read`.
    pub fn look_for_end<S: Read + Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        self.share = Share::of(MAX_LOOK_AHEAD_BYTES);
        let result = self.look_ahead(socket);
        self.count();
        result
    }

    fn look_ahead<S: Read + Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        let mut room = Room { left: 0, take: |_: &[u8]| {} };
        while !self.has_ended
            && self.plaintext.len() < MAX_LOOK_AHEAD_BYTES
            && !self.share.is_spent()
            && self.decrypt_next(socket, MAX_LOOK_AHEAD_BYTES, &mut room)? == SocketRead::Some
        {}
        Ok(self.has_ended)
    }

    /// Encrypts and sends; returns the number of plaintext bytes whose ciphertext the socket has taken completely.
    /// After an error that is not final, the same bytes must be offered again.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is full, or any other error of the socket.
    pub fn write<S: Write>(&mut self, socket: &mut S, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        debug_assert!(!self.is_handshaking(), "no command is executed before the handshake is done");
        if self.encrypted == 0 {
            // Bytes of TLS itself that the socket has not taken earlier would leave less room.
            self.flush(socket)?;
            let mut writer = self.tls.writer();
            self.encrypted = match slices {
                [bytes] => writer.write(bytes)?,
                slices => writer.write_vectored(slices)?,
            };
        }
        // Encrypted bytes count until the socket has taken them.
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

    /// Sends the client a notice that no more data follows. May be called again.
    ///
    /// # Errors
    /// As `write`.
    pub fn finish<S: Write>(&mut self, socket: &mut S) -> io::Result<()> {
        match self.stage {
            ChannelStage::Open => {
                self.tls.send_close_notify();
                self.flush(socket)
            }
            ChannelStage::Handshake { .. } | ChannelStage::Failed => Ok(()),
        }
    }

    /// Processes the bytes that rustls was given.
    fn process(&mut self) -> Result<IoState, Error> {
        self.session_end.within(|| self.tls.process_new_packets())
    }

    /// Passes on everything that rustls has decrypted, and keeps that for which there is no room. Returns whether there
    /// was something.
    fn take_plaintext(&mut self, room: &mut Room<impl FnMut(&[u8])>) -> bool {
        let mut has_some = false;
        let mut reader = self.tls.reader();
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            self.plaintext.extend_from_slice(room.take(chunk));
            let count = chunk.len();
            reader.consume(count);
            has_some = true;
        }
        has_some
    }

    /// Decrypts what earlier calls have left, or else reads once from the socket, at most `max_bytes`.
    fn decrypt_next<S: Read + Write>(
        &mut self,
        socket: &mut S,
        max_bytes: usize,
        room: &mut Room<impl FnMut(&[u8])>,
    ) -> io::Result<SocketRead> {
        if self.unfed.is_empty() {
            return self.receive(socket, max_bytes, room);
        }
        let unfed = mem::take(&mut self.unfed);
        self.feed(socket, &unfed, room)?;
        Ok(SocketRead::Some)
    }

    /// Reads once from the socket, at most `max_bytes`. Ciphertext is longer than its plaintext, so the decrypted
    /// bytes rarely exceed the room.
    fn receive<S: Read + Write>(
        &mut self,
        socket: &mut S,
        max_bytes: usize,
        room: &mut Room<impl FnMut(&[u8])>,
    ) -> io::Result<SocketRead> {
        let acceptor = Rc::clone(&self.acceptor);
        let mut scratch = acceptor.scratch.borrow_mut();
        let mut max_bytes = max_bytes.min(scratch.len()).min(self.share.wire_bytes);
        if let ChannelStage::Handshake { received, .. } = self.stage {
            max_bytes = max_bytes.min(MAX_HANDSHAKE_BYTES - received);
            if max_bytes == 0 {
                return Err(self.fail(HandshakeFailure::TooLong, &"more bytes than a handshake may have"));
            }
        }
        let count = loop {
            match socket.read(&mut scratch[..max_bytes]) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(SocketRead::All),
                Err(error) => return Err(error),
            }
        };
        if count == 0 {
            self.has_ended = true;
            if self.is_handshaking() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            return Ok(SocketRead::All);
        }
        if let ChannelStage::Handshake { received, .. } = &mut self.stage {
            *received += count;
        }
        self.share.wire_bytes -= count;
        self.feed(socket, &scratch[..count], room)?;
        Ok(if count < max_bytes { SocketRead::All } else { SocketRead::Some })
    }

    /// Decrypts the records of `wire`, up to the share of the call, and sends the messages of TLS about them.
    fn feed<S: Write>(
        &mut self,
        socket: &mut S,
        mut wire: &[u8],
        room: &mut Room<impl FnMut(&[u8])>,
    ) -> io::Result<()> {
        while !wire.is_empty() && self.share.records > 0 && !self.has_ended {
            let max = self.share.records.min(MAX_RECORDS_AT_ONCE);
            let (count, records) = self.records.follow(wire, max);
            self.share.records -= records;
            let (part, later) = wire.split_at(count);
            self.decrypt(socket, part, room)?;
            wire = later;
        }
        if !self.has_ended {
            self.unfed.extend_from_slice(wire);
        }
        let _ = self.flush(socket);
        self.end_handshake()
    }

    fn decrypt<S: Write>(
        &mut self,
        socket: &mut S,
        mut wire: &[u8],
        room: &mut Room<impl FnMut(&[u8])>,
    ) -> io::Result<()> {
        self.silent_bytes = self.silent_bytes.saturating_add(wire.len());
        while !wire.is_empty() {
            match self.tls.read_tls(&mut wire) {
                // The client has announced its end: later bytes do not count.
                Ok(0) => break,
                Ok(_) => {}
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
            if self.take_plaintext(room) {
                self.silent_bytes = 0;
            }
        }
        Ok(())
    }

    /// Accepts the client if its handshake is done. After a reload in the meantime, its certificate is checked with the
    /// new files.
    fn end_handshake(&mut self) -> io::Result<()> {
        let ChannelStage::Handshake { config, .. } = &self.stage else { return Ok(()) };
        if self.tls.is_handshaking() {
            return Ok(());
        }
        if !self.acceptor.is_in_force(config)
            && let Err(error) = self.check_certificate()
        {
            return Err(self.fail(HandshakeFailure::of(&error), &error));
        }
        self.stage = ChannelStage::Open;
        self.silent_bytes = 0;
        self.acceptor.handshake_done(self.tls.handshake_kind());
        Ok(())
    }

    fn fail(&mut self, failure: HandshakeFailure, reason: &dyn fmt::Display) -> io::Error {
        if self.is_handshaking() {
            self.acceptor.handshake_failed(failure);
        }
        self.stage = ChannelStage::Failed;
        io::Error::new(ErrorKind::InvalidData, reason.to_string())
    }

    /// Sends all encrypted bytes.
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
        self.acceptor.count_memory(self.memory_bytes, 0);
        self.acceptor.closed();
    }
}
