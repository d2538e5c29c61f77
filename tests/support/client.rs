//! A client of raw bytes, each of whose reads has a deadline.
//!
//! Owns: one connection, the bytes that were read ahead, and a transcript for messages. It frames
//! replies (a line, then the body that the line announces) and understands nothing else.

use super::printable;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a reply may take: far more than any server needs on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most that one read takes.
const READ_SIZE: usize = 64 * 1024;

/// Why a conversation went wrong. The text holds what was said before.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn read_within(&mut self, buffer: &mut [u8], time: Duration) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.read(buffer)
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.read(buffer)
            }
        }
    }
}

/// One connection to a server.
pub struct Client {
    stream: Stream,
    unread: Vec<u8>,
    transcript: Vec<String>,
    patience: Duration,
}

impl Client {
    /// A client on a connected unix socket.
    pub fn over_unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::new(Stream::Unix(stream)))
    }

    /// A client on a connected TCP socket, which sends each write at once.
    pub fn over_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::new(Stream::Tcp(stream)))
    }

    fn new(stream: Stream) -> Self {
        Self { stream, unread: Vec::new(), transcript: Vec::new(), patience: PATIENCE }
    }

    /// How long each reply may take from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.transcript.push(format!("> {}", printable(bytes)));
        let sent = match &mut self.stream {
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tcp(stream) => stream.write_all(bytes),
        };
        sent.map_err(|error| self.failure(&format!("sending: {error}")))
    }

    /// Sends all of `bytes` from a thread, for more than the socket's buffers hold while replies are
    /// being read.
    pub fn send_in_background(
        &mut self,
        bytes: Vec<u8>,
    ) -> io::Result<std::thread::JoinHandle<io::Result<()>>> {
        self.transcript.push(format!("> {}", printable(&bytes)));
        let mut twin: Box<dyn Write + Send> = match &self.stream {
            Stream::Unix(stream) => Box::new(stream.try_clone()?),
            Stream::Tcp(stream) => Box::new(stream.try_clone()?),
        };
        Ok(std::thread::spawn(move || twin.write_all(&bytes)))
    }

    /// Says that nothing more will be sent.
    pub fn half_close(&mut self) -> Result<(), Failure> {
        self.transcript.push("> (half-close)".to_owned());
        let closed = match &self.stream {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
        };
        closed.map_err(|error| self.failure(&format!("half-close: {error}")))
    }

    /// Requires that the next bytes are exactly `expected`.
    pub fn expect(&mut self, expected: &[u8]) -> Result<(), Failure> {
        let start = Instant::now();
        while self.unread.len() < expected.len() && expected.starts_with(&self.unread) {
            if let Err(error) = self.fill(start) {
                return Err(self.failure(&format!("waiting for {}: {error}", printable(expected))));
            }
        }
        if !self.unread.starts_with(expected) {
            return Err(self.failure(&format!("expected {}", printable(expected))));
        }
        self.take(expected.len());
        Ok(())
    }

    /// Sends `bytes` and requires `expected`.
    pub fn exchange(&mut self, bytes: &[u8], expected: &[u8]) -> Result<(), Failure> {
        self.send(bytes)?;
        self.expect(expected)
    }

    /// Reads one reply: its line, and its body where the line announces one, both with their CRLF.
    pub fn read_reply(&mut self) -> Result<Vec<u8>, Failure> {
        let start = Instant::now();
        let line = loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                break end + 2;
            }
            self.fill(start).map_err(|error| self.failure(&format!("waiting for a reply: {error}")))?;
        };
        let total = line + body_length(&self.unread[..line]);
        while self.unread.len() < total {
            self.fill(start).map_err(|error| self.failure(&format!("waiting for a body: {error}")))?;
        }
        Ok(self.take(total))
    }

    /// Whether bytes of a reply are there, or come within `time`.
    pub fn has_reply_within(&mut self, time: Duration) -> Result<bool, Failure> {
        if self.unread.is_empty() {
            let patience = std::mem::replace(&mut self.patience, time);
            let filled = self.fill(Instant::now());
            self.patience = patience;
            if let Err(error) = filled {
                let nothing = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                return if nothing { Ok(false) } else { Err(self.failure(&error.to_string())) };
            }
        }
        Ok(true)
    }

    /// Sends `bytes` and reads one reply.
    pub fn ask(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        self.send(bytes)?;
        self.read_reply()
    }

    /// Reads whatever comes until the server closes.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, Failure> {
        let start = Instant::now();
        loop {
            match self.fill(start) {
                Ok(()) => {}
                // A server that closes with our bytes unread resets the connection: closed all the same.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                    ) =>
                {
                    return Ok(self.take(self.unread.len()));
                }
                Err(error) => return Err(self.failure(&format!("waiting for the close: {error}"))),
            }
        }
    }

    /// Requires that the server closes, with nothing more said.
    pub fn expect_closed(&mut self) -> Result<(), Failure> {
        let rest = self.read_to_end()?;
        if rest.is_empty() { Ok(()) } else { Err(self.failure("expected the close and nothing before it")) }
    }

    /// `problem`, with what this connection said and heard.
    pub fn failure(&self, problem: &str) -> Failure {
        let unread = if self.unread.is_empty() {
            String::new()
        } else {
            format!("\n    unread {}", printable(&self.unread))
        };
        let skipped = self.transcript.len().saturating_sub(12);
        Failure(format!("{problem}{unread}\n    {}", self.transcript[skipped..].join("\n    ")))
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken: Vec<u8> = self.unread.drain(..count).collect();
        self.transcript.push(format!("< {}", printable(&taken)));
        taken
    }

    fn fill(&mut self, start: Instant) -> io::Result<()> {
        let mut buffer = [0; READ_SIZE];
        let count = loop {
            let left = self.patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
            }
            match self.stream.read_within(&mut buffer, left) {
                // A read with a time limit is not restarted when the machine was suspended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed"));
        }
        self.unread.extend_from_slice(&buffer[..count]);
        Ok(())
    }
}

/// Bytes that follow a reply's line, with their CRLF.
fn body_length(line: &[u8]) -> usize {
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_ascii_whitespace();
    let size = match words.next() {
        Some("OK") => words.next(),
        Some("FOUND" | "RESERVED") => words.nth(1),
        _ => None,
    };
    size.and_then(|size| size.parse::<usize>().ok()).map_or(0, |size| size + 2)
}
