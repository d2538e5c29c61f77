//! The state machine of one connection, over bytes.
//!
//! Owns: where in the client's stream the server is (want-command, want-body, skipping a body or a line,
//! waiting in a reserve), the bytes that are not understood yet, and the replies not sent yet. Pure: it
//! touches no socket and executes nothing. Driven by the server, which feeds it what it has read and
//! executes each [`Request`] that comes out.
//!
//! ```text
//!                 ┌────────── too long a line ──▶ SkipLine ──┐
//!                 │                                          ▼
//!  ──▶ WantCommand ── put accepted ──▶ WantBody ───▶ a request comes out; WantCommand again
//!         │  ▲    └── put refused ───▶ SkipBody ───────────▲
//!         ▼  └ answer
//!     WaitingReserve
//! ```

use std::collections::TryReserveError;

use memchr::memchr;

use crate::job::{Body, JobId};
use crate::protocol::{CRLF, Command, MAX_LINE_BYTES, Output, ParseError, PutHeader, Reply, parse};

/// Once so many bytes of a body have come, and from this many missing ones on, it is read straight into its
/// own allocation; what is shorter is cheaper to copy than another system call.
const DIRECT_READ_FROM_BYTES: usize = 32 * 1024;

/// The least that is allocated for a body in progress. It grows with what arrives, so that announcing a
/// gigabyte costs nothing, and neither do thousands of clients that send a byte now and then.
const FIRST_ALLOCATION_BYTES: usize = 1024;

/// Once this much of a body has arrived, the rest is taken to be meant, and allocated whole.
const ALLOCATE_REST_FROM_BYTES: usize = 1024 * 1024;
/// The same as a share of the body: one part in so many.
const ALLOCATE_REST_FROM_PART: usize = 4;

/// A connection that owes this many bytes is served no further until the client reads: its own copies.
const MAX_UNSENT_OWN_BYTES: usize = 64 * 1024;
/// The same with the bodies that it keeps alive.
const MAX_UNSENT_BYTES: usize = 1024 * 1024;

/// What the server does next for the client.
#[derive(Debug)]
pub enum Request<'a> {
    /// Execute this.
    Command(Command<'a>),
    /// The line was no command.
    Malformed(ParseError),
    /// The job announced by an accepted `put` has come whole.
    Put(JobId, PutHeader, Body),
    /// A body that is not to be stored has ended: answer this.
    Refused(Refusal),
}

/// Why a body is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is above the server's limit.
    JobTooBig,
    /// There is no memory for it.
    OutOfMemory,
    /// What follows it is not CRLF.
    ExpectedCrlf,
}

impl From<Refusal> for Reply<'_> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::JobTooBig => Self::JobTooBig,
            Refusal::OutOfMemory => Self::OutOfMemory,
            Refusal::ExpectedCrlf => Self::ExpectedCrlf,
        }
    }
}

#[derive(Debug)]
enum State {
    WantCommand,
    /// The body of an accepted `put` with its CRLF; what has come of it is kept.
    WantBody {
        id: JobId,
        header: PutHeader,
    },
    /// `left` bytes to be thrown away, then the answer.
    SkipBody {
        left: u64,
        refusal: Refusal,
    },
    /// A line that is too long, up to its end.
    SkipLine,
    /// A reserve is not answered yet; what follows it stays unparsed.
    WaitingReserve,
}

/// One client's stream, both ways.
#[derive(Debug)]
pub struct Connection {
    state: State,
    /// What has come of a body, or else was read and not understood yet. Without capacity while the client is idle.
    kept: Vec<u8>,
    /// How many bytes at its start have been understood since.
    kept_done: u32,
    /// Replies on their way.
    pub output: Output,
}

impl Default for Connection {
    fn default() -> Self {
        Self { state: State::WantCommand, kept: Vec::new(), kept_done: 0, output: Output::default() }
    }
}

impl Connection {
    /// The next request in `input`, of which it takes what it has understood; `None` where more must be
    /// read, or nothing may be parsed now.
    pub fn next_request<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        match &mut self.state {
            State::WantCommand => self.next_command(input),
            State::WantBody { .. } => self.next_body(input),
            State::SkipBody { left, refusal } => {
                let (left_before, refusal) = (*left, *refusal);
                let skipped = left_before.min(input.len() as u64);
                *left -= skipped;
                *input = &input[skipped as usize..];
                (left_before == skipped).then(|| self.finish(Request::Refused(refusal)))
            }
            State::SkipLine => match find_crlf(input) {
                Some(end) => {
                    *input = &input[end + CRLF.len()..];
                    Some(self.finish(Request::Malformed(ParseError::BadFormat)))
                }
                None => {
                    let may_begin_crlf = usize::from(input.last() == Some(&b'\r'));
                    *input = &input[input.len() - may_begin_crlf..];
                    None
                }
            },
            State::WaitingReserve => None,
        }
    }

    fn next_command<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        let bytes: &'a [u8] = input;
        match find_crlf(&bytes[..bytes.len().min(MAX_LINE_BYTES)]) {
            Some(end) => {
                *input = &bytes[end + CRLF.len()..];
                Some(parse(&bytes[..end]).map_or_else(Request::Malformed, Request::Command))
            }
            None if bytes.len() < MAX_LINE_BYTES => None,
            None => {
                self.state = State::SkipLine;
                self.next_request(input)
            }
        }
    }

    fn next_body<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        let State::WantBody { id, header } = self.state else { return None };
        let bytes: &'a [u8] = input;
        let whole = body_with_crlf(header);
        if self.kept.is_empty() && bytes.len() >= whole {
            let (body, rest) = bytes.split_at(whole);
            *input = rest;
            let (body, trailer) = body.split_at(whole - CRLF.len());
            let body = if trailer == CRLF {
                Body::copy_of(body).ok()
            } else {
                return self.refuse(Refusal::ExpectedCrlf);
            };
            return self.finish_body(id, header, body);
        }
        let taken = bytes.len().min(whole - self.kept.len());
        if make_room(&mut self.kept, whole, taken).is_err() {
            self.give_up_body(Refusal::OutOfMemory);
            return self.next_request(input);
        }
        self.kept.extend_from_slice(&bytes[..taken]);
        *input = &bytes[taken..];
        if self.kept.len() < whole {
            return None;
        }
        let mut body = std::mem::take(&mut self.kept);
        if !body.ends_with(CRLF) {
            return self.refuse(Refusal::ExpectedCrlf);
        }
        body.truncate(whole - CRLF.len());
        self.finish_body(id, header, Some(Body::from(body)))
    }

    fn finish_body<'a>(&mut self, id: JobId, header: PutHeader, body: Option<Body>) -> Option<Request<'a>> {
        match body {
            Some(body) => Some(self.finish(Request::Put(id, header, body))),
            None => self.refuse(Refusal::OutOfMemory),
        }
    }

    fn refuse<'a>(&mut self, refusal: Refusal) -> Option<Request<'a>> {
        Some(self.finish(Request::Refused(refusal)))
    }

    fn finish<'a>(&mut self, request: Request<'a>) -> Request<'a> {
        self.state = State::WantCommand;
        request
    }

    /// A `put` is accepted: its body comes next.
    pub fn expect_body(&mut self, id: JobId, header: PutHeader) {
        self.state = State::WantBody { id, header };
    }

    /// A `put` is refused: its body is thrown away, and then answered.
    pub fn skip_body(&mut self, header: PutHeader, refusal: Refusal) {
        self.state = State::SkipBody { left: u64::from(header.size) + CRLF.len() as u64, refusal };
    }

    /// Whether a part of a body is held that is not whole yet.
    #[must_use]
    pub fn has_body_in_progress(&self) -> bool {
        matches!(self.state, State::WantBody { .. }) && self.kept.capacity() > 0
    }

    /// Lets go of a body in progress; what is left of it is thrown away, and then answered.
    pub fn give_up_body(&mut self, refusal: Refusal) {
        if let State::WantBody { header, .. } = self.state {
            let left = (body_with_crlf(header) - self.kept.len()) as u64;
            self.kept = Vec::new();
            self.state = State::SkipBody { left, refusal };
        }
    }

    /// A reserve found no job: nothing is parsed until it is answered.
    pub fn wait(&mut self) {
        self.state = State::WaitingReserve;
    }

    /// The reserve is answered.
    pub fn stop_waiting(&mut self) {
        debug_assert!(self.is_waiting(), "who is answered has waited");
        self.state = State::WantCommand;
    }

    /// Whether a reserve is unanswered.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::WaitingReserve)
    }

    /// Whether the client owes the server some reading, and is not served until it has caught up.
    #[must_use]
    pub fn is_over_bound(&self) -> bool {
        self.output.own_len() > MAX_UNSENT_OWN_BYTES || self.output.len() > MAX_UNSENT_BYTES
    }

    /// Where the socket may be read straight into a body, and how many bytes are missing there; `None`
    /// where the usual buffer does.
    pub fn body_room(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let State::WantBody { header, .. } = self.state else { return None };
        let whole = body_with_crlf(header);
        let missing = whole - self.kept.len();
        // Who has sent little so far may be slow, and gets no room in advance.
        if missing.min(self.kept.len()) < DIRECT_READ_FROM_BYTES {
            return None;
        }
        make_room(&mut self.kept, whole, DIRECT_READ_FROM_BYTES).ok()?;
        let room = missing.min(self.kept.capacity() - self.kept.len());
        Some((&mut self.kept, room))
    }

    /// Keeps what is left of the input until more comes.
    pub fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            debug_assert!(self.kept.is_empty(), "a body takes all of the input");
            self.kept.extend_from_slice(rest);
        } else if self.kept.is_empty() && self.kept.capacity() > 0 {
            self.kept = Vec::new();
        }
    }

    /// Moves what was kept of the input to the start of `buffer`; returns its length.
    pub fn restore(&mut self, buffer: &mut [u8]) -> usize {
        if matches!(self.state, State::WantBody { .. }) {
            return 0;
        }
        let kept = &self.kept[std::mem::take(&mut self.kept_done) as usize..];
        let length = kept.len();
        buffer[..length].copy_from_slice(kept);
        self.kept.clear();
        length
    }

    /// What was kept of the input, to be executed where it is.
    pub fn take_kept(&mut self) -> Kept {
        Kept { bytes: std::mem::take(&mut self.kept), done: std::mem::take(&mut self.kept_done) }
    }

    /// Keeps the last `left` bytes of what was taken.
    pub fn put_back(&mut self, kept: Kept, left: usize) {
        if left > 0 {
            debug_assert!(self.kept.is_empty(), "a body takes all of the input");
            self.kept_done = (kept.bytes.len() - left) as u32;
            self.kept = kept.bytes;
        }
    }

    /// Memory held for bytes that are not a job yet, or not sent yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.kept.capacity() + self.output.held_bytes()
    }
}

/// What was read of a client's stream and not understood yet.
#[derive(Debug)]
pub struct Kept {
    bytes: Vec<u8>,
    done: u32,
}

impl Kept {
    /// The bytes.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.done as usize..]
    }
}

/// The length of a body with the CRLF behind it.
fn body_with_crlf(header: PutHeader) -> usize {
    header.size as usize + CRLF.len()
}

/// Makes room for `taken` more bytes of a body of `size`, and for no more of it than is to be expected.
fn make_room(body: &mut Vec<u8>, size: usize, taken: usize) -> Result<(), TryReserveError> {
    let needed = (body.len() + taken).min(size);
    if needed <= body.capacity() {
        return Ok(());
    }
    let capacity = if needed >= ALLOCATE_REST_FROM_BYTES.min(size / ALLOCATE_REST_FROM_PART) {
        size
    } else {
        size.min(needed.max(2 * body.capacity()).max(FIRST_ALLOCATION_BYTES))
    };
    body.try_reserve_exact(capacity - body.len())
}

/// Where the first CRLF begins.
fn find_crlf(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let newline = from + memchr(b'\n', &bytes[from..])?;
        if newline > 0 && bytes[newline - 1] == b'\r' {
            return Some(newline - 1);
        }
        from = newline + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream` in pieces of `step` bytes and writes down what comes out; every `put` of at most
    /// 1000 bytes is accepted, a reserve is answered at once.
    fn transcript(stream: &[u8], step: usize) -> Vec<String> {
        let mut connection = Connection::default();
        let mut out = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        for piece in stream.chunks(step) {
            let kept = connection.restore(&mut buffer);
            buffer[kept..kept + piece.len()].copy_from_slice(piece);
            let mut input = &buffer[..kept + piece.len()];
            while let Some(request) = connection.next_request(&mut input) {
                out.push(format!("{request:?}"));
                if let Request::Command(Command::Put(header)) = request {
                    if header.size > 1000 {
                        connection.skip_body(header, Refusal::JobTooBig);
                    } else {
                        connection.expect_body(JobId(1), header);
                    }
                }
            }
            let rest = input.to_vec();
            connection.keep(&rest);
        }
        out
    }

    #[test]
    fn what_comes_out_does_not_depend_on_how_the_bytes_arrive() {
        let mut stream = b"stats\r\nput 0 0 1 5\r\nhello\r\nput 0 0 1 3\r\nabcXYput 0 0 1 2000\r\n".to_vec();
        stream.extend([b'x'; 2002]);
        stream.extend(b"delete 1\r\nlone\rcr\r\nlone\nlf\r\n\r\n");
        stream.extend([b'y'; 300]);
        stream.extend(b"\r\nput 0 0 1 0\r\n\r\nwatch a\r\n");
        stream.extend([b'z'; 222]);
        stream.extend(b"\r\n");
        stream.extend([b'z'; 223]);
        stream.extend(b"\r\nquit\r\n");
        let whole = transcript(&stream, stream.len());
        assert_eq!(whole.len(), 18, "{whole:#?}");
        for step in 1..300 {
            assert_eq!(transcript(&stream, step), whole, "in pieces of {step}");
        }
    }

    #[test]
    fn announcing_a_large_body_allocates_for_what_has_come() {
        let mut connection = Connection::default();
        let mut input = &b"put 0 0 1 1073741824\r\nabc"[..];
        let Some(Request::Command(Command::Put(header))) = connection.next_request(&mut input) else {
            panic!("a put")
        };
        connection.expect_body(JobId(1), header);
        assert!(connection.next_request(&mut input).is_none());
        assert!(connection.held_bytes() <= 4096, "{}", connection.held_bytes());
        assert!(connection.body_room().is_none(), "no room in advance for who has sent three bytes");
        assert!(connection.next_request(&mut &[b'x'; DIRECT_READ_FROM_BYTES][..]).is_none());
        let (body, room) = connection.body_room().expect("most of it is missing");
        assert!(room >= DIRECT_READ_FROM_BYTES && body.capacity() <= 128 * 1024);
    }

    #[test]
    fn what_follows_a_waiting_reserve_stays_unparsed() {
        let mut connection = Connection::default();
        let mut input = &b"reserve\r\nstats\r\n"[..];
        assert!(matches!(connection.next_request(&mut input), Some(Request::Command(Command::Reserve))));
        connection.wait();
        assert!(connection.next_request(&mut input).is_none());
        assert_eq!(input, b"stats\r\n");
        connection.stop_waiting();
        assert!(matches!(connection.next_request(&mut input), Some(Request::Command(Command::Stats))));
    }
}
