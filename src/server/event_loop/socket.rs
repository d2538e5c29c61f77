//! A connection's socket, TCP or unix, as the server's [`Stream`].

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use log::{debug, error};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry};

use crate::os;
use crate::poll_token::PollToken;
use crate::queue::ClientId;
use crate::server::Stream;
#[cfg(all(target_pointer_width = "64", not(debug_assertions)))]
use crate::server::connection::Connection;

/// An accepted socket that no poll watches yet.
pub enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Accepted {
    /// The address of the client, for the log.
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => os::socket::peer(stream),
            Self::Unix(stream) => os::socket::peer(stream),
        }
    }

    /// Sets what the listener would have given it.
    pub fn set_options(&self) {
        let result = match self {
            Self::Tcp(stream) => os::socket::set_connection_options(stream),
            Self::Unix(_) => Ok(()),
        };
        if let Err(error) = result {
            debug!("cannot set the options of a connection: {error}");
        }
    }

    /// The descriptor's number.
    pub fn number(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Has the poll of `registry` watch it for `client`.
    ///
    /// # Errors
    /// Where the system does not take the socket into its poll.
    pub fn watch(mut self, registry: Rc<Registry>, client: ClientId) -> io::Result<Socket> {
        registry.register(self.source(), PollToken::Client(client).into(), Interest::READABLE)?;
        Ok(Socket { kind: self, registry })
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }
}

/// A connection's socket, watched by the poll.
pub struct Socket {
    kind: Accepted,
    registry: Rc<Registry>,
}

// In a debug build, mio's sockets are larger.
#[cfg(all(target_pointer_width = "64", not(debug_assertions)))]
const _: () = assert!(size_of::<Connection<Socket>>() <= 160, "a connection is a block of 160 bytes");

impl Stream for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.kind {
            Accepted::Tcp(stream) => stream.read(buffer),
            Accepted::Unix(stream) => stream.read(buffer),
        }
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        match &self.kind {
            Accepted::Tcp(stream) => os::socket::read_into_spare(stream, body, max_bytes),
            Accepted::Unix(stream) => os::socket::read_into_spare(stream, body, max_bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.kind {
            Accepted::Tcp(stream) => stream.write(bytes),
            Accepted::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.kind {
            Accepted::Tcp(stream) => stream.write_vectored(slices),
            Accepted::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn await_writable(&mut self, client: ClientId, awaited: bool) {
        let interest = if awaited { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        if let Err(error) =
            self.registry.reregister(self.kind.source(), PollToken::Client(client).into(), interest)
        {
            error!("cannot watch a connection: {error}");
        }
    }
}
