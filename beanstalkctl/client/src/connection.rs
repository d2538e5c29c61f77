//! A connection: commands go out, replies come in, in the order of the commands.
//!
//! Owns: the socket, the bytes that were read ahead, the bytes that were not yet written.
//! Never: sends more than the server can take while nobody reads its replies, so that no pipeline stands still.

use crate::address::Address;
use crate::command::Command;
use crate::error::Error;
use crate::reply::{Parsed, Reply};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long to wait for a connection and for each reply, unless the caller says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The most that one read takes.
const READ_BYTES: usize = 64 * 1024;

/// The most bytes of commands without their replies. A server that cannot get rid of its replies reads no more: what
/// was sent must fit into the kernel's buffers, or each side waits for the other. Those have 200 KB by default.
const MAX_OUTSTANDING_BYTES: usize = 32 * 1024;

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
            Self::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }

    fn as_read(&mut self) -> &mut dyn Read {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }
}

/// Closes a connection from another thread: whoever waits there for a reply gets [`Error::Closed`].
#[derive(Debug)]
pub struct Closer(Stream);

impl Closer {
    /// Closes the connection. The server makes the jobs that it held ready again.
    pub fn close(&self) {
        // A connection that is closed already is what was asked for.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// One connection to a server, beneath the commands.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Received; what is parsed ends at `parsed`, and goes at the next read.
    input: Vec<u8>,
    parsed: usize,
    /// Encoded, not yet written.
    output: Vec<u8>,
    timeout: Option<Duration>,
}

impl Connection {
    /// Connects within 60 seconds, which every reply may take, too.
    pub fn open(address: &Address) -> Result<Self, Error> {
        Self::open_within(address, Some(DEFAULT_TIMEOUT))
    }

    /// Connects within `timeout`, which every reply may take, too.
    pub fn open_within(address: &Address, timeout: Option<Duration>) -> Result<Self, Error> {
        let stream = match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp { host, port } => connect_tcp(host, *port, timeout).map(Stream::Tcp),
        };
        let failed = |source| Error::Connect { address: address.clone(), source };
        let mut connection = Self::new(stream.map_err(failed)?).map_err(failed)?;
        connection.set_timeout(timeout)?;
        Ok(connection)
    }

    /// Takes over a connected socket.
    pub fn over_tcp(stream: TcpStream) -> Result<Self, Error> {
        Ok(Self::new(Stream::Tcp(stream))?)
    }

    /// Takes over a connected socket.
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

    /// How long each reply may take from now on; `None`: for ever. The wait that a reserve asks for is added to it.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        // The system refuses a time-out of zero.
        self.timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        Ok(self.stream.set_write_timeout(self.timeout)?)
    }

    /// What closes this connection from another thread.
    pub fn closer(&self) -> Result<Closer, Error> {
        Ok(Closer(self.stream.try_clone()?))
    }

    /// Says that nothing more will be sent. Replies still come.
    pub fn close_sending(&mut self) -> Result<(), Error> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
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

    /// Sends bytes that may be no command: for tests of servers.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self.stream.as_write().write_all(bytes) {
            Err(error) if is_closed(&error) => Err(Error::Closed),
            other => Ok(other?),
        }
    }

    /// Waits for the next reply. After [`Error::TimedOut`] it may be called again for the same reply.
    pub fn receive(&mut self) -> Result<Reply, Error> {
        self.receive_within(self.timeout)
    }

    fn receive_within(&mut self, timeout: Option<Duration>) -> Result<Reply, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut needed = 1;
        loop {
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
    /// their position; after an error, what it has got is what the server has certainly done.
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

    /// The same, with the replies in a vector.
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
    /// A command that is larger than all room goes alone.
    fn has_room_for(&self, next: &Sent, max_bytes: usize) -> bool {
        self.sent.is_empty() || self.bytes + next.bytes <= max_bytes
    }

    fn push(&mut self, sent: Sent) {
        self.bytes += sent.bytes;
        self.sent.push_back(sent);
    }

    /// Takes the first one out: how long the server may wait before it answers it.
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

/// The first address of the host that accepts.
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
