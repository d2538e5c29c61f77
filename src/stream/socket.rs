//! A connection's socket, TCP or unix, plain or with TLS, as a [`Stream`].
//!
//! Owns: the socket and its registration with the poll. Decides nothing about the bytes.

use std::io::{self, IoSlice, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use log::{debug, error};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry};

use super::{Handle, Stream, TlsStream};
use crate::os;
use crate::peer::Peer;
use crate::poll_token::PollToken;
use crate::tls::{Acceptor, Decryption};

/// An accepted socket that no poll watches yet.
pub enum Accepted {
    /// A TCP socket.
    Tcp(TcpStream),
    /// A unix socket in the file system.
    Unix(UnixStream),
    /// A TCP socket of a client that must use TLS.
    Tls(TcpStream, Rc<Acceptor>),
}

impl Accepted {
    /// The socket that another program has left to this process.
    ///
    /// # Errors
    /// If it is not open.
    pub fn adopt(handle: Handle) -> io::Result<Self> {
        let descriptor = os::hand_over::adopt(handle.descriptor)?;
        Ok(if handle.is_unix {
            Self::Unix(UnixStream::from_std(descriptor.into()))
        } else {
            Self::Tcp(TcpStream::from_std(descriptor.into()))
        })
    }

    /// The address of the client, for the log.
    #[must_use]
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) | Self::Tls(stream, _) => os::socket::peer(stream),
            Self::Unix(stream) => os::socket::peer(stream),
        }
    }

    /// The client, as access rules see it. An address that the system no longer knows does not count as loopback.
    #[must_use]
    pub fn access_peer(&self) -> Peer {
        match self {
            Self::Tcp(stream) | Self::Tls(stream, _) => {
                Peer::Tcp(os::socket::peer_address(stream).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()))
            }
            Self::Unix(stream) => Peer::Unix(os::socket::peer_user(stream)),
        }
    }

    /// Sets the options that the listener would have given the socket.
    pub fn set_options(&self) {
        let result = match self {
            Self::Tcp(stream) | Self::Tls(stream, _) => os::socket::set_connection_options(stream),
            Self::Unix(_) => Ok(()),
        };
        if let Err(error) = result {
            debug!("cannot set the options of a connection: {error}");
        }
    }

    /// The descriptor's number.
    #[must_use]
    pub fn number(&self) -> RawFd {
        match self {
            Self::Tcp(stream) | Self::Tls(stream, _) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Adds the socket to the poll of `registry`, which reports input to `token`.
    ///
    /// # Errors
    /// If the system does not add the socket to its poll, or has no random numbers for TLS.
    pub fn watch(self, registry: Rc<Registry>, token: PollToken) -> io::Result<Socket> {
        let mut socket = match self {
            Self::Tcp(stream) => Socket::Tcp(stream, registry),
            Self::Unix(stream) => Socket::Unix(stream, registry),
            Self::Tls(stream, acceptor) => {
                Socket::Tls(Box::new(TlsStream::new(Socket::Tcp(stream, registry), token, acceptor)?))
            }
        };
        let (source, registry) = socket.parts();
        registry.register(source, token.into(), Interest::READABLE)?;
        Ok(socket)
    }
}

/// A connection's socket, watched by the poll.
pub enum Socket {
    /// Plain TCP.
    Tcp(TcpStream, Rc<Registry>),
    /// A unix socket in the file system.
    Unix(UnixStream, Rc<Registry>),
    /// With TLS over a TCP socket.
    Tls(Box<TlsStream<Socket>>),
}

impl Socket {
    fn parts(&mut self) -> (&mut dyn Source, &Registry) {
        match self {
            Self::Tcp(stream, registry) => (stream, registry),
            Self::Unix(stream, registry) => (stream, registry),
            Self::Tls(stream) => stream.socket().parts(),
        }
    }
}

impl Stream for Socket {
    #[inline(always)]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream, _) => stream.read(buffer),
            Self::Unix(stream, _) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(stream, _) => os::socket::read_into_spare(stream, body, max_bytes),
            Self::Unix(stream, _) => os::socket::read_into_spare(stream, body, max_bytes),
            Self::Tls(stream) => stream.read_into(body, max_bytes),
        }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream, _) => stream.write(bytes),
            Self::Unix(stream, _) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream, _) => stream.write_vectored(slices),
            Self::Unix(stream, _) => stream.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(..) | Self::Unix(..) => Ok(()),
            Self::Tls(stream) => stream.finish(),
        }
    }

    fn await_writable(&mut self, token: PollToken, awaited: bool) {
        if let Self::Tls(stream) = self {
            // TLS itself may wait for room, too.
            return stream.await_writable(token, awaited);
        }
        let interest = if awaited { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let (source, registry) = self.parts();
        if let Err(error) = registry.reregister(source, token.into(), interest) {
            error!("cannot watch a connection: {error}");
        }
    }

    fn handle(&self) -> Option<Handle> {
        match self {
            Self::Tcp(stream, _) => Some(Handle { descriptor: stream.as_raw_fd(), is_unix: false }),
            Self::Unix(stream, _) => Some(Handle { descriptor: stream.as_raw_fd(), is_unix: true }),
            Self::Tls(_) => None,
        }
    }

    fn peer(&self) -> String {
        match self {
            Self::Tcp(stream, _) => os::socket::peer(stream),
            Self::Unix(stream, _) => os::socket::peer(stream),
            Self::Tls(stream) => stream.peer(),
        }
    }

    fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_handshaking())
    }

    fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.wants_write())
    }

    #[inline]
    fn decryption(&self) -> Option<Decryption> {
        match self {
            Self::Tcp(..) | Self::Unix(..) => None,
            Self::Tls(stream) => stream.decryption(),
        }
    }

    fn look_for_end(&mut self) -> bool {
        match self {
            Self::Tcp(..) | Self::Unix(..) => false,
            Self::Tls(stream) => stream.look_for_end(),
        }
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Tcp(..) | Self::Unix(..) => None,
            Self::Tls(stream) => stream.peer_certificate(),
        }
    }

    fn is_certificate_good(&self) -> bool {
        match self {
            Self::Tcp(..) | Self::Unix(..) => true,
            Self::Tls(stream) => stream.is_certificate_good(),
        }
    }
}
