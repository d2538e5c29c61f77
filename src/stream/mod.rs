//! Streams: the sockets of clients and of HTTP, plain or with TLS, and the sockets on which the server listens.
//!
//! Owns: the readiness that a connection sees. With TLS, too, it is the readiness of a plain socket. Knows neither
//! exchanges nor HTTP. Driven by the connections of `server` and of `http`.

mod listener;
mod socket;
mod tls_stream;

use std::io::{self, IoSlice};

pub(crate) use self::listener::ListenerSocket;
pub(crate) use self::socket::{Accepted, Socket};
pub use self::tls_stream::TlsStream;

use crate::described;
use crate::poll_token::PollToken;
use crate::tls::Decryption;

/// A socket without the program that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Descriptor of the socket.
    pub descriptor: i32,
    /// Whether it is a unix socket and not a TCP socket.
    pub is_unix: bool,
}

described!(Handle { descriptor, is_unix });

/// The stream of a connection: a socket, plain or with TLS; a fake one in simulations.
pub trait Stream {
    /// Reads into `buffer`; 0 means that the client will send no more.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing to read; any other error ends the connection.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Appends at most `max_bytes` to `body`, within its capacity.
    ///
    /// # Errors
    /// As `read`.
    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize>;

    /// Writes one piece.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is full; any other error ends the connection.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Writes several pieces.
    ///
    /// # Errors
    /// As `write`.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Announces to the client, within the stream, that no more data follows. The stream must not be closed until this
    /// succeeds.
    ///
    /// # Errors
    /// As `write`.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sets whether the poll reports to `token` when the socket takes bytes again.
    fn await_writable(&mut self, token: PollToken, awaited: bool);

    /// The handle with which another program in the same process can take over the stream; `None` if that is
    /// impossible, as it is with TLS.
    fn handle(&self) -> Option<Handle> {
        None
    }

    /// The address of the client, for the log.
    fn peer(&self) -> String {
        String::from("?")
    }

    /// Whether the TLS handshake of the client is in progress, so that nothing can be read or written yet. Reads
    /// continue the handshake.
    fn is_handshaking(&self) -> bool {
        false
    }

    /// Whether the stream itself has bytes for the socket and waits for room. Reads send them.
    fn wants_write(&self) -> bool {
        false
    }

    /// What the last read, or the last look for the end, has decrypted; `None` for a plain stream. A plain stream has
    /// no more after a short read, and only the poll reports its end.
    fn decryption(&self) -> Option<Decryption> {
        None
    }

    /// Whether the client has announced in its stream that it will send no more, as far as a bounded part of the unread
    /// input shows; that part must still be read.
    fn look_for_end(&mut self) -> bool {
        false
    }

    /// The certificate with which the client has identified itself, in DER. It is known from the end of the handshake
    /// on.
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    /// Whether the server would accept a client with this certificate now; if not, the stream notes the reason for the
    /// log.
    fn is_certificate_good(&self) -> bool {
        true
    }
}
