//! A connection: sends commands and receives their replies, in the order of the commands.
//!
//! Owns: the socket, and how long a reply may take. What is sent and what was received is in its [`Exchange`]. Never:
//! sends more commands than the kernel's buffers can take before it reads replies, so that no pipeline deadlocks.

use crate::address::Address;
use crate::error::Error;
use crate::exchange::{Exchange, Request};
#[cfg(feature = "tls")]
use crate::tls::{Tls, TlsStream};
use beanstalkd_protocol::{Command, Reply, Verb};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The default time-out of a connect and of each reply.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

impl Stream {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.sock.set_read_timeout(timeout),
        }
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
            Self::Unix(stream) => stream.set_write_timeout(timeout),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.sock.set_write_timeout(timeout),
        }
    }

    /// The same socket; of a connection with TLS, the one below it.
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Self::Tcp(stream.sock.try_clone()?),
        })
    }

    fn close_sending(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush()?;
                stream.sock.shutdown(Shutdown::Write)
            }
        }
    }

    fn as_read(&mut self) -> &mut dyn Read {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream,
        }
    }

    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream,
        }
    }
}

/// Closes a connection from another thread. A thread that waits for a reply gets [`Error::Closed`].
#[derive(Debug)]
pub struct Closer(Stream);

impl Closer {
    /// Closes the connection. The jobs that it has reserved become ready again.
    pub fn close(&self) {
        // This fails only if the connection is already closed.
        let _ = match &self.0 {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.sock.shutdown(Shutdown::Both),
        };
    }
}

/// A token for `auth`. It is not shown by `Debug`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The token in a text: visible characters of ASCII, with white space around it.
    pub fn parse(text: &str) -> Option<Self> {
        let token = text.trim_ascii();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self(token.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// How connections are opened.
#[derive(Debug, Clone)]
pub struct Connector {
    /// How long the connect and each reply may take; `None` means no limit.
    pub timeout: Option<Duration>,
    /// Logs in on each connection with this token.
    pub token: Option<Token>,
    /// Connections to hosts use TLS with these settings.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
}

impl Connector {
    /// Opens plain connections.
    pub fn plain(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            token: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Connects. A unix socket is always plain.
    pub fn open(&self, address: &Address) -> Result<Connection, Error> {
        let stream = match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp { host, port } => {
                connect_tcp(host, *port, self.timeout).and_then(|stream| self.over(host, *port, stream))
            }
        };
        let failed = |source| Error::Connect { address: address.clone(), source };
        let mut connection = Connection::new(stream.map_err(failed)?).map_err(failed)?;
        connection.set_timeout(self.timeout)?;
        if let Some(Token(token)) = &self.token {
            match connection.call(Command::Auth(token.as_bytes()))? {
                Reply::Authenticated => {}
                other => return Err(Error::of_reply(Verb::Auth, &other)),
            }
        }
        Ok(connection)
    }

    #[cfg(feature = "tls")]
    fn over(&self, host: &str, port: u16, stream: TcpStream) -> io::Result<Stream> {
        let Some(tls) = &self.tls else { return Ok(Stream::Tcp(stream)) };
        stream.set_nodelay(true)?;
        let stream = tls.begin(host, stream, self.timeout, || speaks_protocol(host, port))?;
        Ok(Stream::Tls(Box::new(stream)))
    }

    #[cfg(not(feature = "tls"))]
    fn over(&self, _: &str, _: u16, stream: TcpStream) -> io::Result<Stream> {
        Ok(Stream::Tcp(stream))
    }
}

/// A connection to a server, on which any [`Request`] can be sent.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    exchange: Exchange,
    timeout: Option<Duration>,
}

impl Connection {
    /// Connects. The connect and each reply time out after 60 seconds.
    pub fn open(address: &Address) -> Result<Self, Error> {
        Self::open_within(address, Some(DEFAULT_TIMEOUT))
    }

    /// Connects. The connect and each reply time out after `timeout`; `None` means no limit.
    pub fn open_within(address: &Address, timeout: Option<Duration>) -> Result<Self, Error> {
        Connector::plain(timeout).open(address)
    }

    /// Uses a connected TCP socket.
    pub fn over_tcp(stream: TcpStream) -> Result<Self, Error> {
        Ok(Self::new(Stream::Tcp(stream))?)
    }

    /// Uses a connected unix socket.
    pub fn over_unix(stream: UnixStream) -> Result<Self, Error> {
        Ok(Self::new(Stream::Unix(stream))?)
    }

    fn new(stream: Stream) -> io::Result<Self> {
        if let Stream::Tcp(stream) = &stream {
            stream.set_nodelay(true)?;
        }
        stream.set_write_timeout(Some(DEFAULT_TIMEOUT))?;
        Ok(Self { stream, exchange: Exchange::default(), timeout: Some(DEFAULT_TIMEOUT) })
    }

    /// Sets the time-out of each reply; `None` means no limit. For a reserve, its own wait is added.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        // The system refuses a time-out of zero.
        self.timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        Ok(self.stream.set_write_timeout(self.timeout)?)
    }

    /// Returns a handle that closes this connection from another thread.
    pub fn closer(&self) -> Result<Closer, Error> {
        Ok(Closer(self.stream.try_clone()?))
    }

    /// Closes the sending half. Replies can still be received.
    pub fn close_sending(&mut self) -> Result<(), Error> {
        Ok(self.stream.close_sending()?)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let output = self.exchange.take_output();
        self.send_bytes(&output)
    }

    /// Sends any bytes, for tests of servers.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self.stream.as_write().write_all(bytes) {
            Err(error) if is_closed(&error) => Err(Error::Closed),
            other => Ok(other?),
        }
    }

    /// Receives the next reply. After [`Error::TimedOut`], a further call waits for the same reply again.
    pub fn receive(&mut self) -> Result<Reply<'_>, Error> {
        let timeout = match (self.timeout, self.exchange.longest_wait()) {
            (Some(timeout), Some(seconds)) => Some(timeout + Duration::from_nanos(seconds.as_ns())),
            _ => None,
        };
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut missing = self.exchange.missing()?;
        while missing > 0 {
            let read = self.read_some(deadline)?;
            missing = if read < missing { missing - read } else { self.exchange.missing()? };
        }
        self.exchange.next_reply()?.ok_or(Error::Closed)
    }

    /// Reads what has arrived, or waits for it. Returns how many bytes there were.
    fn read_some(&mut self, deadline: Option<Instant>) -> Result<usize, Error> {
        let left = match deadline {
            Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => Some(left),
                _ => return Err(Error::TimedOut),
            },
            None => None,
        };
        self.stream.set_read_timeout(left)?;
        let stream = self.stream.as_read();
        let read = self.exchange.receive(|input| {
            let start = input.len();
            input.resize(start + READ_BYTES, 0);
            let read = stream.read(&mut input[start..]);
            input.truncate(start + *read.as_ref().unwrap_or(&0));
            read
        });
        match read {
            Ok(0) => Err(Error::Closed),
            Err(error) if is_closed(&error) => Err(Error::Closed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => Ok(other?),
        }
    }

    /// Sends a command and waits for its reply.
    pub fn call<'a>(&mut self, request: impl Into<Request<'a>>) -> Result<Reply<'_>, Error> {
        self.exchange.push(&request.into());
        self.exchange.admit();
        self.flush()?;
        self.receive()
    }

    /// Sends many commands without waiting for each reply. `each` gets the replies in the order of the commands, with
    /// their positions. After an error, only the commands whose replies it got are known to be executed.
    pub fn pipeline<'a>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        mut each: impl FnMut(usize, Reply<'_>),
    ) -> Result<(), Error> {
        let mut position = 0;
        for request in requests {
            self.exchange.push(&request.into());
            if self.exchange.is_full() {
                self.flush()?;
            }
            while self.exchange.is_full() {
                each(position, self.receive()?);
                position += 1;
            }
        }
        self.flush()?;
        while !self.exchange.is_idle() {
            each(position, self.receive()?);
            position += 1;
        }
        Ok(())
    }

    /// Sends many commands as [`Self::pipeline`] does, and returns what `read` makes of the replies.
    pub fn call_all<'a, T>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        mut read: impl FnMut(Reply<'_>) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut results = Vec::new();
        self.pipeline(requests, |_, reply| results.push(read(reply)))?;
        Ok(results)
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
    )
}

/// Whether a port speaks the protocol without TLS, which a second connection asks it.
#[cfg(feature = "tls")]
fn speaks_protocol(host: &str, port: u16) -> bool {
    const PATIENCE: Duration = Duration::from_secs(2);
    let asked = connect_tcp(host, port, Some(PATIENCE)).map_err(Error::from).and_then(|stream| {
        let mut connection = Connection::over_tcp(stream)?;
        connection.set_timeout(Some(PATIENCE))?;
        connection.call(Command::ListTubeUsed).map(drop)
    });
    asked.is_ok()
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
