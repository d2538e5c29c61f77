//! A connection: sends commands and receives their replies, in the order of the commands.
//!
//! Owns: the socket, the bytes that were read ahead, and the bytes that are not written yet.
//! Never: sends more commands than the kernel's buffers can take before it reads replies, so that no pipeline deadlocks.

use crate::address::Address;
use crate::command::Command;
use crate::error::Error;
use crate::reply::{Parsed, Reply};
#[cfg(feature = "tls")]
use crate::tls::{Tls, TlsStream};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The default time-out of a connect and of each reply.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

/// The greatest number of bytes of commands without replies. A server whose replies are not read stops reading: what is
/// sent then must fit into the kernel's buffers, about 200 KB by default, or each side waits for the other.
const MAX_OUTSTANDING_BYTES: usize = 32 * 1024;

/// The first bytes of an alert of TLS, with which a server answers a command without TLS. No reply begins with them.
const TLS_ALERT: &[u8] = &[0x15, 0x03];

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
            match connection.call(&Command::Auth(token))? {
                Reply::Authenticated => {}
                Reply::Refused(refusal) => return Err(Error::Refused(refusal)),
                other => return Err(Error::unexpected(&Command::Auth(""), &other)),
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

/// A connection to a server, on which any [`Command`] can be sent.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Received bytes. The first `parsed` ones are parsed, and are removed at the next read.
    input: Vec<u8>,
    parsed: usize,
    /// Encoded commands that are not written yet.
    output: Vec<u8>,
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
        Ok(Self { stream, input: Vec::new(), parsed: 0, output: Vec::new(), timeout: Some(DEFAULT_TIMEOUT) })
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

    /// Adds a command to those that the next [`Self::flush`] sends.
    pub fn push(&mut self, command: &Command<'_>) {
        command.encode(&mut self.output);
    }

    /// Sends what was pushed.
    pub fn flush(&mut self) -> Result<(), Error> {
        let output = std::mem::take(&mut self.output);
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
    pub fn receive(&mut self) -> Result<Reply, Error> {
        self.receive_within(self.timeout)
    }

    fn receive_within(&mut self, timeout: Option<Duration>) -> Result<Reply, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut needed = 1;
        loop {
            if self.input[self.parsed..].starts_with(TLS_ALERT) {
                return Err(Error::SpeaksTls);
            }
            if self.input.len() - self.parsed >= needed {
                match Reply::parse(&self.input[self.parsed..])? {
                    Parsed::Whole(reply, taken) => {
                        self.parsed += taken;
                        return Ok(reply);
                    }
                    Parsed::Needs(bytes) => needed = bytes,
                }
            }
            self.read_some(deadline)?;
        }
    }

    fn read_some(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let left = match deadline {
            Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => Some(left),
                _ => return Err(Error::TimedOut),
            },
            None => None,
        };
        self.stream.set_read_timeout(left)?;
        self.input.drain(..std::mem::take(&mut self.parsed));
        let start = self.input.len();
        self.input.resize(start + READ_BYTES, 0);
        let read = self.stream.as_read().read(&mut self.input[start..]);
        self.input.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(Error::Closed),
            Err(error) if is_closed(&error) => Err(Error::Closed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Sends a command and waits for its reply.
    pub fn call(&mut self, command: &Command<'_>) -> Result<Reply, Error> {
        self.push(command);
        self.flush()?;
        self.receive_for(command.longest_wait())
    }

    fn receive_for(&mut self, longest_wait: Option<u32>) -> Result<Reply, Error> {
        let timeout = match (self.timeout, longest_wait) {
            (Some(timeout), Some(seconds)) => Some(timeout + Duration::from_secs(seconds.into())),
            _ => None,
        };
        self.receive_within(timeout)
    }

    /// Sends many commands without waiting for each reply. `each` gets the replies in the order of the commands, with
    /// their positions. After an error, only the commands whose replies it got are known to be executed.
    pub fn pipeline<'a>(
        &mut self,
        commands: impl IntoIterator<Item = Command<'a>>,
        mut each: impl FnMut(usize, Reply),
    ) -> Result<(), Error> {
        let mut outstanding = Outstanding::default();
        let mut position = 0;
        for command in commands {
            let start = self.output.len();
            self.push(&command);
            let sent = Sent { bytes: self.output.len() - start, longest_wait: command.longest_wait() };
            if !outstanding.has_room_for(&sent, MAX_OUTSTANDING_BYTES) {
                // What was pushed before this command goes out, and replies come in until half of the room is free.
                let last = self.output.split_off(start);
                self.flush()?;
                self.output = last;
                while !outstanding.has_room_for(&sent, MAX_OUTSTANDING_BYTES / 2) {
                    each(position, self.receive_for(outstanding.pop())?);
                    position += 1;
                }
            }
            outstanding.push(sent);
        }
        self.flush()?;
        while !outstanding.sent.is_empty() {
            each(position, self.receive_for(outstanding.pop())?);
            position += 1;
        }
        Ok(())
    }

    /// Sends many commands as [`Self::pipeline`] does, and returns the replies.
    pub fn call_all<'a>(
        &mut self,
        commands: impl IntoIterator<Item = Command<'a>>,
    ) -> Result<Vec<Reply>, Error> {
        let mut replies = Vec::new();
        self.pipeline(commands, |_, reply| replies.push(reply))?;
        Ok(replies)
    }
}

/// A command whose reply has not come.
struct Sent {
    bytes: usize,
    longest_wait: Option<u32>,
}

/// The commands whose replies have not come.
#[derive(Default)]
struct Outstanding {
    sent: VecDeque<Sent>,
    bytes: usize,
}

impl Outstanding {
    /// Whether the command may be sent now. A command larger than `max_bytes` is sent alone.
    fn has_room_for(&self, next: &Sent, max_bytes: usize) -> bool {
        self.sent.is_empty() || self.bytes + next.bytes <= max_bytes
    }

    fn push(&mut self, sent: Sent) {
        self.bytes += sent.bytes;
        self.sent.push_back(sent);
    }

    /// Removes the first command, and returns how long the server may wait before it replies.
    fn pop(&mut self) -> Option<u32> {
        let sent = self.sent.pop_front()?;
        self.bytes -= sent.bytes;
        sent.longest_wait
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
        connection.call(&Command::ListTubeUsed)
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
