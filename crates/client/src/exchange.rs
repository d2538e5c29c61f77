//! The commands and the replies of a connection, without its socket.
//!
//! Owns: the bytes that are not sent yet, the bytes that are received and not read yet, and the order of the commands
//! that have no reply yet. Never: reads, writes or waits. Driven by a transport: [`Connection`](crate::Connection) is
//! the one that blocks.

use std::collections::VecDeque;
use std::mem;

use beanstalkd_protocol::{CRLF, Command, PutHeader, Received, Reply, Verb};
use beanstalkd_types::job::Priority;
use beanstalkd_types::seconds::Seconds;

use crate::error::Error;
use crate::tag::Tag;

/// The greatest number of bytes of commands without replies. A server whose replies are not read stops reading: what is
/// sent then must fit into the kernel's buffers, about 200 KB by default, or each side waits for the other.
const MAX_OUTSTANDING_BYTES: usize = 32 * 1024;

/// The first bytes of an alert of TLS, with which a server answers a command without TLS. No reply begins with them.
const TLS_ALERT: &[u8] = &[0x15, 0x03];

/// How to put a job. The default is priority 1024, which does not count as urgent, no delay, a TTR of 60 seconds, no
/// tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// The priority; 0 is the most urgent.
    pub pri: u32,
    /// Time until the job is ready. A fraction of a second is an extension, which the server must offer.
    pub delay: Seconds,
    /// The time to run; servers treat less than a second as 1.
    pub ttr: Seconds,
    /// The tags: an extension, which the server must offer.
    pub tags: Vec<Tag>,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self { pri: 1024, delay: Seconds::ZERO, ttr: Seconds::new(60, 0), tags: Vec::new() }
    }
}

/// What is sent at once: a command, for a put with its body.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// A command without a body.
    Line(Command<'a>),
    /// Puts a job with this body into the used tube.
    Put(&'a PutOptions, &'a [u8]),
}

impl<'a> From<Command<'a>> for Request<'a> {
    fn from(command: Command<'a>) -> Self {
        Self::Line(command)
    }
}

impl Request<'_> {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Line(command) => command.write(out),
            Self::Put(PutOptions { pri, delay, ttr, tags }, body) => {
                let (priority, size) = (Priority(*pri), body.len() as u32);
                let header = PutHeader { priority, delay_s: *delay, ttr_s: *ttr, size };
                Command::Put(header).write(out);
                tags.iter().for_each(|tag| {
                    out.push(b' ');
                    out.extend_from_slice(tag.as_str().as_bytes());
                });
                out.extend_from_slice(CRLF);
                out.extend_from_slice(body);
            }
        }
        out.extend_from_slice(CRLF);
    }

    /// Which command it is.
    pub fn verb(&self) -> Verb {
        match self {
            Self::Line(command) => command.verb(),
            Self::Put(..) => Verb::Put,
        }
    }

    /// How long the server may wait before it replies: 0 if it replies at once, `None` if there is no limit.
    fn longest_wait(&self) -> Option<Seconds> {
        match *self {
            Self::Line(Command::Reserve | Command::ReserveWithAbort { timeout_s: None }) => None,
            Self::Line(
                Command::ReserveWithTimeout { timeout_s }
                | Command::ReserveWithAbort { timeout_s: Some(timeout_s) }
                | Command::ReserveBatch { timeout_s: Some(timeout_s), .. },
            ) => Some(timeout_s),
            Self::Line(_) | Self::Put(..) => Some(Seconds::ZERO),
        }
    }
}

/// A command whose reply has not come.
#[derive(Debug)]
struct Sent {
    bytes: usize,
    longest_wait: Option<Seconds>,
}

/// One side of a connection: commands go in and bytes come out; bytes go in and replies come out.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Received bytes. The first `read` ones are read, and are removed when more come.
    input: Vec<u8>,
    read: usize,
    /// Encoded commands that are not sent yet. The last of them waits for room if there is one in `last`.
    output: Vec<u8>,
    /// The commands whose replies have not come, and how many bytes they have.
    outstanding: VecDeque<Sent>,
    outstanding_bytes: usize,
    last: Option<Sent>,
}

impl Exchange {
    /// Adds a command. If it is more than the peer may take before its replies are read, it waits for room; so replies
    /// should be read before another command is added.
    pub fn push(&mut self, request: &Request<'_>) {
        self.admit();
        let start = self.output.len();
        request.encode(&mut self.output);
        self.last = Some(Sent { bytes: self.output.len() - start, longest_wait: request.longest_wait() });
        self.admit_last(MAX_OUTSTANDING_BYTES);
    }

    /// Whether the last command waits for room. It waits until half of the room is free, so that the next commands can
    /// be sent together with it.
    pub fn is_full(&mut self) -> bool {
        self.admit_last(MAX_OUTSTANDING_BYTES / 2);
        self.last.is_some()
    }

    /// Whether no command waits for a reply.
    pub fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Sends the last command without waiting for room.
    pub fn admit(&mut self) {
        self.admit_last(usize::MAX);
    }

    /// A command larger than `max_bytes` is sent alone.
    fn admit_last(&mut self, max_bytes: usize) {
        let outstanding_bytes = self.outstanding_bytes;
        let has_room =
            |sent: &mut Sent| outstanding_bytes == 0 || outstanding_bytes + sent.bytes <= max_bytes;
        if let Some(sent) = self.last.take_if(has_room) {
            self.outstanding_bytes += sent.bytes;
            self.outstanding.push_back(sent);
        }
    }

    /// Takes the bytes that can be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        let waiting =
            self.output.split_off(self.output.len() - self.last.as_ref().map_or(0, |last| last.bytes));
        mem::replace(&mut self.output, waiting)
    }

    /// How many seconds the server may wait before it sends the next reply; `None` if there is no limit.
    pub fn longest_wait(&self) -> Option<Seconds> {
        self.outstanding.front().map_or(Some(Seconds::ZERO), |sent| sent.longest_wait)
    }

    /// Adds bytes that `receive` appends to those that were received. It returns what `receive` does.
    pub fn receive<T>(&mut self, receive: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.input.drain(..mem::take(&mut self.read));
        receive(&mut self.input)
    }

    /// How many bytes there have to be before the next reply can be read; 0 if it is there.
    ///
    /// # Errors
    /// If the bytes are none of the protocol.
    pub fn missing(&self) -> Result<usize, Error> {
        let input = &self.input[self.read..];
        if input.starts_with(TLS_ALERT) {
            return Err(Error::SpeaksTls);
        }
        Ok(match Reply::read(input)? {
            Received::Whole(..) => 0,
            Received::Needs(bytes) => bytes - input.len(),
        })
    }

    /// The next reply, if it is there.
    ///
    /// # Errors
    /// If the bytes are none of the protocol.
    pub fn next_reply(&mut self) -> Result<Option<Reply<'_>>, Error> {
        let Received::Whole(reply, taken) = Reply::read(&self.input[self.read..])? else { return Ok(None) };
        self.read += taken;
        if let Some(sent) = self.outstanding.pop_front() {
            self.outstanding_bytes -= sent.bytes;
        }
        Ok(Some(reply))
    }
}
