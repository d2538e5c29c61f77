//! The sockets of a site: its listener, and what its connections talk through, plain or with TLS.
//!
//! Owns: the readiness that a connection sees, which is that of a plain socket with and without TLS. Driven by
//! `server.rs`.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use log::debug;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};

use crate::os;
use crate::os::listen::Listener;
use crate::tls::{Acceptor, Channel, ClientCertificate};

/// A listener in the poll.
pub enum PolledListener {
    Tcp(TcpListener),
    Tls(TcpListener, Rc<Acceptor>),
    Unix(UnixListener),
}

impl PolledListener {
    /// `listener`, which needs the acceptor if it is for TLS.
    pub fn new(listener: Listener, tls: Option<Rc<Acceptor>>) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)),
            Listener::Tls(listener) => {
                let acceptor = tls.ok_or_else(|| io::Error::other("a TLS listener has no certificate"))?;
                Self::Tls(TcpListener::from_std(listener), acceptor)
            }
            Listener::Unix(listener) => Self::Unix(UnixListener::from_std(listener)),
        })
    }

    pub fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => listener,
            Self::Unix(listener) => listener,
        }
    }

    /// The socket of a client that waits.
    pub fn accept(&self) -> io::Result<Box<dyn Socket>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept()?.0),
            Self::Unix(listener) => Box::new(listener.accept()?.0),
            Self::Tls(listener, acceptor) => {
                let (socket, peer) = listener.accept()?;
                Box::new(TlsSocket::new(socket, peer, Rc::clone(acceptor))?)
            }
        })
    }
}

impl From<PolledListener> for Listener {
    fn from(polled: PolledListener) -> Self {
        match polled {
            PolledListener::Tcp(listener) => Self::Tcp(listener.into()),
            PolledListener::Tls(listener, _) => Self::Tls(listener.into()),
            PolledListener::Unix(listener) => Self::Unix(listener.into()),
        }
    }
}

/// What a connection talks through. A read that finds nothing is `WouldBlock`, and a write takes what is with the
/// system then; after an error that is not final, the same bytes are offered again.
pub trait Socket: Read + Write + Source {
    /// Whether the TLS handshake goes on, so that no request can have come.
    fn is_handshaking(&self) -> bool {
        false
    }

    /// Whether a read has something to send once there is room.
    fn wants_write(&self) -> bool {
        false
    }

    /// The address or the user of the client, for the log.
    fn peer(&self) -> String;

    /// The serial number of the certificate that the client has shown; empty if it has shown none.
    fn certificate(&self) -> String {
        String::new()
    }

    /// Whether the client would get in now with the certificate that it has shown, if it had to show one.
    fn is_certificate_good(&self) -> bool {
        true
    }
}

impl Socket for TcpStream {
    fn peer(&self) -> String {
        os::socket::peer(self)
    }
}

impl Socket for UnixStream {
    fn peer(&self) -> String {
        os::socket::peer(self)
    }
}

/// A socket with its encrypted half.
struct TlsSocket {
    socket: TcpStream,
    peer: SocketAddr,
    acceptor: Rc<Acceptor>,
    channel: Channel,
}

impl TlsSocket {
    fn new(socket: TcpStream, peer: SocketAddr, acceptor: Rc<Acceptor>) -> io::Result<Self> {
        let channel = acceptor.accept().map_err(io::Error::other)?;
        Ok(Self { socket, peer, acceptor, channel })
    }
}

impl Socket for TlsSocket {
    fn is_handshaking(&self) -> bool {
        self.channel.is_handshaking()
    }

    fn wants_write(&self) -> bool {
        self.channel.wants_write()
    }

    fn peer(&self) -> String {
        os::socket::peer(&self.socket)
    }

    fn certificate(&self) -> String {
        let certificate = self.channel.peer_certificate();
        certificate.map(|certificate| ClientCertificate::of(certificate).serial).unwrap_or_default()
    }

    fn is_certificate_good(&self) -> bool {
        // A client in its handshake is checked at the end of it.
        self.channel.is_handshaking() || self.channel.check_certificate().is_ok()
    }
}

impl Read for TlsSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        let result = self.channel.read(&mut self.socket, buffer.len(), |plaintext| {
            buffer[filled..filled + plaintext.len()].copy_from_slice(plaintext);
            filled += plaintext.len();
        });
        match &result {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                self.acceptor.note_failure(&self.peer.to_string(), error);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => debug!("HTTP of {}: {error}", self.peer),
            _ => {}
        }
        result
    }
}

impl Write for TlsSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.channel.write(&mut self.socket, &[IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for TlsSocket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}

impl Drop for TlsSocket {
    /// A response without a length ends with the connection, so the client has to be told that nothing was cut off.
    fn drop(&mut self) {
        let _ = self.channel.finish(&mut self.socket);
    }
}
