//! The socket of a connection: TCP, TLS or unix.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(feature = "tls")]
use beanstalkd_protocol::{Received, Reply};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::address::Address;
use crate::core::Connector;
use crate::drivers::connect;
#[cfg(feature = "tls")]
use crate::tls::{Handshake, TlsStream};

/// The socket of a connection.
#[derive(Debug)]
pub(super) enum BlockingStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

impl BlockingStream {
    #[cfg_attr(not(feature = "tls"), allow(unused_variables, reason = "only TLS has settings"))]
    pub(super) fn open(
        address: &Address,
        connector: &Connector,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        // One for the resolution of the name, the connect, and the handshake of TLS.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match address {
            Address::Unix(path) => connect_unix(path, deadline).map(Self::Unix),
            Address::Tcp { host, port } => {
                let stream = connect_tcp(host, *port, deadline)?;
                connect::configure_tcp(&stream)?;
                #[cfg(feature = "tls")]
                if let Some(tls) = &connector.tls {
                    let is_plain = || speaks_protocol(host, *port, deadline).unwrap_or(false);
                    let stream = tls.begin(host, stream, deadline, is_plain)?;
                    return Ok(Self::Tls(Box::new(stream)));
                }
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// The socket; for a connection with TLS, the one below it.
    pub(super) fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(stream) => stream.into(),
            Self::Unix(stream) => stream.into(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => (&stream.sock).into(),
        }
    }

    /// A handle that closes the socket.
    pub(super) fn closer(&self) -> io::Result<Closer> {
        self.socket().try_clone().map(Closer)
    }

    /// Whether a read would have to wait. Messages of TLS itself, such as tickets, are not bytes of the server.
    pub(super) fn is_silent(&mut self) -> io::Result<bool> {
        self.socket().set_nonblocking(true)?;
        // The byte that it reads is lost, but in that case the connection is not used any more.
        let read = self.as_read().read(&mut [0]);
        self.socket().set_nonblocking(false)?;
        Ok(read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    }

    pub(super) fn as_read(&mut self) -> &mut dyn Read {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream,
        }
    }

    /// Takes some of the bytes. TLS only encrypts them here, after all earlier ones are sent.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.conn.writer().write(bytes),
        }
    }

    /// Sends what TLS has encrypted. The flush of rustls would also read, for as long as a read may take.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => {}
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                while stream.conn.wants_write() {
                    stream.conn.write_tls(&mut stream.sock)?;
                }
            }
        }
        Ok(())
    }
}

/// Closes a connection from another thread. A thread that waits for a reply gets
/// [`Error::Closed`](crate::Error::Closed).
#[derive(Debug)]
pub struct Closer(Socket);

impl Closer {
    /// Closes the connection. The jobs that it has reserved become ready again.
    pub fn close(&self) {
        // This fails only if the connection is already closed.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Whether a port speaks the protocol without TLS; a second connection tries that.
#[cfg(feature = "tls")]
fn speaks_protocol(host: &str, port: u16, deadline: Option<Instant>) -> io::Result<bool> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let deadline = (Instant::now() + PATIENCE).min(deadline.unwrap_or(Instant::now() + PATIENCE));
    let mut stream = connect_tcp(host, port, Some(deadline))?;
    let mut stream = Handshake::new(&mut stream, Some(deadline));
    stream.write_all(b"list-tube-used\r\n")?;
    let (mut received, mut bytes) = (Vec::new(), [0; 256]);
    loop {
        let count = stream.read(&mut bytes)?;
        received.extend_from_slice(&bytes[..count]);
        match Reply::read(&received) {
            Ok(Received::Whole(..)) => return Ok(true),
            Ok(Received::Needs(_)) if count > 0 => {}
            Ok(Received::Needs(_)) | Err(_) => return Ok(false),
        }
    }
}

/// Connects to a unix socket. While the backlog of its listener is full, the system makes the connect wait.
fn connect_unix(path: &Path, deadline: Option<Instant>) -> io::Result<UnixStream> {
    let (socket, address) = (Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // The time-out of writes is also the time-out of the connect.
        socket.set_write_timeout(left.map(at_least_a_millisecond))?;
        match socket.connect(&address) {
            // With a time-out, the system does not go on by itself after a signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            connected => return connected.map(|()| socket.into()),
        }
    }
}

/// Connects to the first address of the host that accepts a connection.
fn connect_tcp(host: &str, port: u16, deadline: Option<Instant>) -> io::Result<TcpStream> {
    connect_to_one(&(host, port).to_socket_addrs()?.collect::<Vec<_>>(), deadline)
}

pub(crate) fn connect_to_one(addresses: &[SocketAddr], deadline: Option<Instant>) -> io::Result<TcpStream> {
    connect::connect_to_one!(blocking, addresses, deadline, Instant::now, connect_within)
}

fn connect_within(address: SocketAddr, limit: Option<Duration>) -> io::Result<TcpStream> {
    match limit {
        Some(limit) => TcpStream::connect_timeout(&address, at_least_a_millisecond(limit)),
        None => TcpStream::connect(address),
    }
}

/// A time-out for the system, which refuses zero.
pub(super) fn at_least_a_millisecond(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}
