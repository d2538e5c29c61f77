//! The socket of a connection: TCP, TLS or unix.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[cfg(feature = "tls")]
use beanstalkd_protocol::Command;
use socket2::{SockRef, Socket};

use crate::address::Address;
use crate::connector::{Connector, configure_tcp};
#[cfg(feature = "tls")]
use crate::tls::TlsStream;

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
        match address {
            Address::Unix(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
            Address::Tcp { host, port } => {
                let stream = connect_tcp(host, *port, timeout)?;
                configure_tcp(&stream)?;
                #[cfg(feature = "tls")]
                if let Some(tls) = &connector.tls {
                    let stream = tls.begin(host, stream, timeout, || speaks_protocol(host, *port))?;
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
fn speaks_protocol(host: &str, port: u16) -> bool {
    const PATIENCE: Duration = Duration::from_secs(2);
    let address = Address::Tcp { host: host.to_owned(), port };
    let opened = Connector::plain(Some(PATIENCE)).open(&address);
    opened.is_ok_and(|mut connection| connection.call(Command::ListTubeUsed).is_ok())
}

/// Connects to the first address of the host that accepts a connection.
fn connect_tcp(host: &str, port: u16, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout.max(Duration::from_millis(1))),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
