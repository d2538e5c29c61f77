//! TLS over another stream, as a stream.
//!
//! Owns: the stream below, the [`Channel`] that encrypts, and whether the poll watches for room: because the connection
//! has a reply that waits, or because TLS itself has something to send. Connections see plaintext, and the readiness of
//! a plain stream.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::rc::Rc;

use log::debug;

use super::Stream;
use crate::poll_token::PollToken;
use crate::tls::{Acceptor, Channel, Decryption};

/// A stream with its encrypted half.
#[derive(Debug)]
pub struct TlsStream<S: Stream> {
    socket: S,
    token: PollToken,
    acceptor: Rc<Acceptor>,
    channel: Channel,
    /// A reply waits for room.
    has_waiting_reply: bool,
    /// The poll reports room.
    awaits_room: bool,
}

impl<S: Stream> TlsStream<S> {
    /// TLS for a client that has just connected. The poll reports to `token`.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub fn new(socket: S, token: PollToken, acceptor: Rc<Acceptor>) -> io::Result<Self> {
        let channel = Channel::new(Rc::clone(&acceptor)).map_err(io::Error::other)?;
        Ok(Self { socket, token, acceptor, channel, has_waiting_reply: false, awaits_room: false })
    }

    /// The stream below.
    pub fn socket(&mut self) -> &mut S {
        &mut self.socket
    }

    fn receive(&mut self, room: usize, take: impl FnMut(&[u8])) -> io::Result<usize> {
        let result = self.channel.read(&mut Wire(&mut self.socket), room, take);
        match &result {
            // The end of a client's connection is not worth a line; the reason why the server refused or ended one is.
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                self.acceptor.note_failure(&self.socket.peer(), error);
            }
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                debug!("TLS of {}: {error}", self.socket.peer())
            }
            _ => {}
        }
        self.await_room();
        result
    }

    fn await_room(&mut self) {
        let wanted = self.has_waiting_reply || self.channel.wants_write();
        if wanted != self.awaits_room {
            self.awaits_room = wanted;
            self.socket.await_writable(self.token, wanted);
        }
    }
}

impl<S: Stream> Stream for TlsStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        self.receive(buffer.len(), |plaintext| {
            buffer[filled..filled + plaintext.len()].copy_from_slice(plaintext);
            filled += plaintext.len();
        })
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        let room = max_bytes.min(body.capacity() - body.len());
        self.receive(room, |plaintext| body.extend_from_slice(plaintext))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.channel.write(&mut Wire(&mut self.socket), &[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.channel.write(&mut Wire(&mut self.socket), slices)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.channel.finish(&mut Wire(&mut self.socket))
    }

    fn await_writable(&mut self, _: PollToken, awaited: bool) {
        self.has_waiting_reply = awaited;
        self.await_room();
    }

    fn peer(&self) -> String {
        self.socket.peer()
    }

    fn is_handshaking(&self) -> bool {
        self.channel.is_handshaking()
    }

    fn wants_write(&self) -> bool {
        self.channel.wants_write()
    }

    fn decryption(&self) -> Option<Decryption> {
        Some(self.channel.decryption())
    }

    fn look_for_end(&mut self) -> bool {
        // The read that follows reports an error again.
        let has_ended = self.channel.look_for_end(&mut Wire(&mut self.socket)).unwrap_or(true);
        self.await_room();
        has_ended
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.channel.peer_certificate()
    }

    fn is_certificate_good(&self) -> bool {
        let check = self.channel.check_certificate();
        if let Err(error) = &check {
            self.acceptor.note_failure(&self.socket.peer(), error);
        }
        check.is_ok()
    }
}

impl<S: Stream> Drop for TlsStream<S> {
    fn drop(&mut self) {
        // The connection was ended early, so its end is announced only as far as there is room.
        let _ = self.channel.finish(&mut Wire(&mut self.socket));
    }
}

/// The stream below, with the traits of the standard library.
struct Wire<'a, S>(&'a mut S);

impl<S: Stream> Read for Wire<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<S: Stream> Write for Wire<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
