//! A client of raw bytes, each of whose reads has a deadline.
//!
//! Owns: one connection, the bytes that were read ahead, and a transcript for messages. It splits the input into
//! replies (a line, then the body that the line announces), and does not interpret them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::server::POLL_INTERVAL;
use crate::tls::Progress;
use crate::{PATIENCE, printable};

/// The maximum number of bytes of one read.
const MAX_READ_BYTES: usize = 64 * 1024;

/// How many sends and receipts of a conversation a failure shows.
const SHOWN_EXCHANGES: usize = 12;

/// A failure of a conversation.
#[derive(Debug)]
pub struct Failure {
    /// The step of a script at which it failed.
    pub step: Option<String>,
    /// The problem.
    pub problem: String,
    /// The reply that was wrong, if it was a reply.
    pub reply: Option<Box<WrongReply>>,
    /// The last sends and receipts before it.
    pub conversation: Vec<String>,
}

/// A reply that differs from the required one.
#[derive(Debug)]
pub struct WrongReply {
    /// The bytes that were sent last.
    pub asked: String,
    /// The required reply.
    pub expected: String,
    /// The actual reply.
    pub actual: String,
}

impl Failure {
    /// A failure without further details.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { step: None, problem: problem.into(), reply: None, conversation: Vec::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = &self.step {
            write!(f, "at `{step}`: ")?;
        }
        f.write_str(&self.problem)?;
        self.conversation.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
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

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
        }
    }
}

/// One connection to a server.
pub struct Client {
    stream: Stream,
    /// The number of bytes sent, and the progress of the bridge that passes them on with TLS.
    sent: u64,
    bridge: Option<Progress>,
    unread: Vec<u8>,
    /// The last sends and receipts.
    transcript: VecDeque<String>,
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

    /// A client whose bytes a bridge passes on with TLS.
    pub fn over_tls((stream, bridge): (UnixStream, Progress)) -> io::Result<Self> {
        Ok(Self { bridge: Some(bridge), ..Self::over_unix(stream)? })
    }

    fn new(stream: Stream) -> Self {
        Self {
            stream,
            sent: 0,
            bridge: None,
            unread: Vec::new(),
            transcript: VecDeque::new(),
            patience: PATIENCE,
        }
    }

    /// Sets how long each reply may take from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.record(format!("> {}", printable(bytes)));
        let sent = match &mut self.stream {
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tcp(stream) => stream.write_all(bytes),
        };
        sent.map_err(|error| self.failure(&format!("sending: {error}")))?;
        self.sent += bytes.len() as u64;
        if let Some(bridge) = &self.bridge {
            bridge.wait_for(self.sent);
        }
        Ok(())
    }

    /// Sends `bytes` again and again until the socket takes no more without waiting. Returns how many bytes it took.
    pub fn send_until_full(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let mut sent = 0;
        let end = loop {
            match self.stream.write(&bytes[sent % bytes.len()..]) {
                Ok(written) => sent += written,
                Err(error) => break error,
            }
        };
        self.stream.set_nonblocking(false)?;
        self.sent += sent as u64;
        if end.kind() == io::ErrorKind::WouldBlock { Ok(sent) } else { Err(end) }
    }

    /// Sends all of `bytes` from a thread, for more than the socket's buffers hold while replies are
    /// being read.
    pub fn send_in_background(
        &mut self,
        bytes: Vec<u8>,
    ) -> io::Result<std::thread::JoinHandle<io::Result<()>>> {
        self.record(format!("> {}", printable(&bytes)));
        let mut twin: Box<dyn Write + Send> = match &self.stream {
            Stream::Unix(stream) => Box::new(stream.try_clone()?),
            Stream::Tcp(stream) => Box::new(stream.try_clone()?),
        };
        self.sent += bytes.len() as u64;
        Ok(std::thread::spawn(move || twin.write_all(&bytes)))
    }

    /// Closes the sending half.
    pub fn half_close(&mut self) -> Result<(), Failure> {
        self.record("> (half-close)".to_owned());
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
                return Err(self.wrong_bytes(expected, Some(&error)));
            }
        }
        if !self.unread.starts_with(expected) {
            return Err(self.wrong_bytes(expected, None));
        }
        self.take(expected.len());
        Ok(())
    }

    /// Sends `bytes` and requires `expected`.
    pub fn exchange(&mut self, bytes: &[u8], expected: &[u8]) -> Result<(), Failure> {
        self.send(bytes)?;
        self.expect(expected)
    }

    /// Reads one reply: its line, and its body if the line announces one, both with their CRLF.
    pub fn read_reply(&mut self) -> Result<Vec<u8>, Failure> {
        self.try_reply()?.ok_or_else(|| self.wrong_reply("a reply", "the close"))
    }

    /// Reads one reply like [`Client::read_reply`], or `None` if the server has closed the connection.
    pub fn try_reply(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.read_whole("a reply", whole_reply)
    }

    /// Reads a line, and returns it without its CRLF, or `None` if the server has closed the connection.
    pub fn read_line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let line = self.read_whole("a line", line_length)?;
        Ok(line.map(|mut line| {
            line.truncate(line.len() - 2);
            line
        }))
    }

    /// Reads until there are the bytes whose `length` is known once all of them are there, or `None` if the server
    /// closes the connection before that.
    fn read_whole(
        &mut self,
        what: &str,
        length: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let start = Instant::now();
        loop {
            if let Some(length) = length(&self.unread) {
                return Ok(Some(self.take(length)));
            }
            match self.fill(start) {
                Ok(()) => {}
                Err(error) if is_closed(&error) => return Ok(None),
                Err(error) => return Err(self.wrong_reply(what, &nothing_or(&error))),
            }
        }
    }

    /// Reads exactly `count` bytes.
    pub fn read_bytes(&mut self, count: usize) -> Result<Vec<u8>, Failure> {
        let start = Instant::now();
        while self.unread.len() < count {
            self.fill(start).map_err(|error| self.wrong_reply("more bytes", &nothing_or(&error)))?;
        }
        Ok(self.take(count))
    }

    /// The descriptor, for options, and for closing with a reset.
    pub fn into_fd(self) -> OwnedFd {
        match self.stream {
            Stream::Unix(stream) => stream.into(),
            Stream::Tcp(stream) => stream.into(),
        }
    }

    /// The port of this end, if it has one.
    pub fn local_port(&self) -> Option<u16> {
        match &self.stream {
            Stream::Unix(_) => None,
            Stream::Tcp(stream) => stream.local_addr().ok().map(|address| address.port()),
        }
    }

    /// Whether bytes of a reply have arrived, or arrive within `time`.
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

    /// Sends a command, and returns the pairs in the data of its reply, by key and without quotes.
    pub fn pairs(&mut self, command: &str) -> Result<BTreeMap<String, String>, Failure> {
        Ok(pairs_of(&self.ask(format!("{command}\r\n").as_bytes())?).into_iter().collect())
    }

    /// A number among the stats.
    pub fn stat(&mut self, key: &str) -> Result<u64, Failure> {
        let stats = self.pairs("stats")?;
        let number = stats.get(key).and_then(|text| text.parse().ok());
        number.ok_or_else(|| self.failure(&format!("{key} is no number among the stats")))
    }

    /// The reserved jobs of these tubes that sessions have, by the name of the session.
    pub fn jobs_by_session(&mut self, tubes: &[&str]) -> Result<BTreeMap<String, BTreeSet<u64>>, Failure> {
        let mut by_session: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for tube in tubes {
            let mut cursor = Some(String::new());
            while let Some(after) = cursor {
                let list = self.ask(format!("list-jobs {tube} reserved 1000{after}\r\n").as_bytes())?;
                let list = String::from_utf8_lossy(&list);
                for (id, name) in jobs_of_list(&list).filter(|(_, name)| !name.is_empty()) {
                    by_session.entry(name.to_owned()).or_default().insert(id);
                }
                let next = list.lines().find_map(|line| line.strip_prefix("next: \"")?.strip_suffix('"'));
                cursor = next.filter(|next| !next.is_empty()).map(|next| format!(" {next}"));
            }
        }
        Ok(by_session)
    }

    /// The number of jobs of all states on the server.
    pub fn job_count(&mut self) -> Result<u64, Failure> {
        Ok(count_jobs(&self.pairs("stats")?))
    }

    /// Waits until the server has noticed that all other clients have gone, for this time at most.
    pub fn wait_until_alone(&mut self, patience: Duration) -> Result<(), Failure> {
        let start = Instant::now();
        while self.stat("current-connections")? > 1 {
            if start.elapsed() > patience {
                return Err(self.failure("the server has clients that do not belong to the suite"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Reads until the server closes the connection.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, Failure> {
        let start = Instant::now();
        loop {
            match self.fill(start) {
                Ok(()) => {}
                // A server that closes before it has read our bytes resets the connection. That counts as closed.
                Err(error) if is_closed(&error) => return Ok(self.take(self.unread.len())),
                Err(error) => return Err(self.wrong_reply("the close", &nothing_or(&error))),
            }
        }
    }

    /// Reads until the server closes, and discards the bytes. Returns how many there were.
    pub fn discard_to_end(&mut self) -> Result<usize, Failure> {
        let mut bytes = 0;
        loop {
            bytes += self.unread.len();
            self.unread.clear();
            match self.fill(Instant::now()) {
                Ok(()) => {}
                Err(error) if is_closed(&error) => return Ok(bytes),
                Err(error) => return Err(self.wrong_reply("the close", &nothing_or(&error))),
            }
        }
    }

    /// Requires that the server closes the connection without sending more.
    pub fn expect_closed(&mut self) -> Result<(), Failure> {
        let rest = self.read_to_end()?;
        if rest.is_empty() { Ok(()) } else { Err(self.wrong_reply("the close", &printable(&rest))) }
    }

    /// A failure with this problem and the last exchanges.
    pub fn failure(&self, problem: &str) -> Failure {
        let mut conversation: Vec<String> = self.transcript.iter().cloned().collect();
        if !self.unread.is_empty() {
            conversation.push(format!("unread {}", printable(&self.unread)));
        }
        Failure { conversation, ..Failure::new(problem) }
    }

    /// A failure because the reply is not `expected`.
    pub fn wrong_reply(&self, expected: &str, actual: &str) -> Failure {
        let sent = self.transcript.iter().rev().find_map(|line| line.strip_prefix("> "));
        let asked = sent.unwrap_or_default().to_owned();
        let reply = WrongReply { asked, expected: expected.to_owned(), actual: actual.to_owned() };
        let problem = format!("expected {expected}, got {actual}");
        Failure { reply: Some(Box::new(reply)), ..self.failure(&problem) }
    }

    /// A failure because the bytes are not `expected`; it begins with the first line that differs.
    fn wrong_bytes(&self, expected: &[u8], error: Option<&io::Error>) -> Failure {
        let same = expected.iter().zip(&self.unread).take_while(|(a, b)| a == b).count();
        let line = expected[..same].windows(2).rposition(|pair| pair == b"\r\n").map_or(0, |at| at + 2);
        let actual = match error {
            Some(error) if self.unread[line..].is_empty() => nothing_or(error),
            _ => printable(&self.unread[line..]),
        };
        self.wrong_reply(&printable(&expected[line..]), &actual)
    }

    /// Removes the last exchange from the conversation that failures show, because it will be repeated.
    pub fn forget_last_exchange(&mut self) {
        self.transcript.truncate(self.transcript.len().saturating_sub(2));
    }

    fn record(&mut self, exchange: String) {
        if self.transcript.len() == SHOWN_EXCHANGES {
            self.transcript.pop_front();
        }
        self.transcript.push_back(exchange);
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken: Vec<u8> = self.unread.drain(..count).collect();
        self.record(format!("< {}", printable(&taken)));
        taken
    }

    fn fill(&mut self, start: Instant) -> io::Result<()> {
        let mut buffer = [0; MAX_READ_BYTES];
        let count = loop {
            let left = self.patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no reply in time"));
            }
            match self.stream.read_within(&mut buffer, left) {
                // The system does not restart a read with a time limit after the machine was suspended.
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

/// Whether a read has failed because the server has closed, or reset, the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Describes a read that has failed.
fn nothing_or(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "nothing".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => "the close".to_owned(),
        _ => error.to_string(),
    }
}

/// The length of the first reply in these bytes, with its body, if all of it is there.
pub fn whole_reply(received: &[u8]) -> Option<usize> {
    let line = line_length(received)?;
    let length = line + body_length(&received[..line]);
    (received.len() >= length).then_some(length)
}

/// The length of the first line in these bytes, with its CRLF.
fn line_length(received: &[u8]) -> Option<usize> {
    received.windows(2).position(|pair| pair == b"\r\n").map(|end| end + 2)
}

/// How many bytes follow the line of a reply, with their CRLF.
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

/// The pairs in the data of a reply, such as that to `stats`, in their order and without quotes.
pub fn pairs_of(reply: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(reply);
    let pair = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// The number of jobs of all states, in the pairs of `stats` or of `stats-tube`.
pub fn count_jobs(stats: &BTreeMap<String, String>) -> u64 {
    let states = ["ready", "reserved", "delayed", "buried"].map(|state| format!("current-jobs-{state}"));
    states.iter().filter_map(|key| stats.get(key)?.parse::<u64>().ok()).sum()
}

/// A `put` of `body`.
pub fn put_command(priority: u32, delay_s: u32, ttr_s: u32, body: &[u8]) -> Vec<u8> {
    let line = format!("put {priority} {delay_s} {ttr_s} {}\r\n", body.len());
    [line.as_bytes(), body, b"\r\n"].concat()
}

/// The jobs in the reply to a `list-jobs`, each with the name of its session or an empty name.
///
/// # Panics
///
/// If an id is not a number.
pub fn jobs_of_list(list: &str) -> impl Iterator<Item = (u64, &str)> {
    list.lines().filter_map(|line| {
        let (id, rest) = line.strip_prefix("- {id: ")?.split_once(',')?;
        let session = rest.split_once("session: \"").and_then(|(_, name)| name.split_once('"'));
        Some((id.parse().expect("an id is a number"), session.map_or("", |(name, _)| name)))
    })
}

/// The number in a reply whose first word is `word`, such as the id in `INSERTED <id>`.
pub fn id_of(reply: &[u8], word: &str) -> Option<u64> {
    let line = str::from_utf8(reply.split(|&byte| byte == b'\r').next()?).ok()?;
    line.strip_prefix(word)?.strip_prefix(' ')?.split(' ').next()?.parse().ok()
}

/// The id in `INSERTED <id>` without another word, which would mean that the put has made no job.
pub fn inserted_id(reply: &[u8]) -> Option<u64> {
    id_of(reply, "INSERTED").filter(|id| reply == format!("INSERTED {id}\r\n").as_bytes())
}

/// The body that follows the line of a reply, without its CRLF.
pub fn body_of(reply: &[u8]) -> &[u8] {
    let line = reply.iter().position(|&byte| byte == b'\n').map_or(reply.len(), |end| end + 1);
    let rest = &reply[line..];
    rest.strip_suffix(b"\r\n").unwrap_or(rest)
}
