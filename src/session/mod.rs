//! The pure half of a connection: one client's stream of bytes, both ways.
//!
//! Owns: where in the stream the server is (the `Phase`), the bytes that were read and not executed yet, and the
//! replies not sent yet. Pure: it touches no socket and executes nothing. Driven by the server, which feeds it what
//! it has read, executes each [`Request`] that comes out, and applies its [`Outcome`].
//!
//! ```text
//!                 ┌────────── too long a line ──▶ SkipLine ──┐
//!                 │                                          ▼
//!  ──▶ WantCommand ── put accepted ──▶ WantBody ───▶ a request comes out; WantCommand again
//!       │  ▲   │ ├─── put refused ───▶ SkipBody ───────────▲
//!       │  │   │ └──── complete ─────▶ Complete ───────────▲
//!       │  │   └──── quit, the end ──▶ Closing ──▶ ends once its replies are sent
//!       ▼  └ answer, or the command goes on
//!     Unfinished
//! ```
//!
//! Sending is no phase: a client may send the next commands before it has read the replies to the last ones, so
//! replies leave in each of the phases.

#![deny(clippy::wildcard_enum_match_arm)]

mod activity;
mod body_room;
mod complete;
mod description;
mod outcome;
mod output;
mod put;
#[cfg(test)]
mod tests;

use std::collections::TryReserveError;
use std::fmt::Debug;

use memchr::memchr;
use zeroize::Zeroize;

pub use self::activity::Activity;
pub use self::complete::Complete;
pub use self::description::MAX_OUTPUT_BYTES;
pub use self::outcome::{BodyRefusal, Outcome, Until};
pub use self::output::Output;
pub use self::put::{Put, PutExtras};

use self::body_room::{Taken, body_with_crlf, make_room, take_body};
use self::complete::Progress;
use crate::job::Body;
use crate::protocol::{
    CRLF, Command, MAX_LINE_BYTES, ParseError, PutHeader, Verb, longest_line, parse, tagged_put,
};

/// Once this many bytes of a body have arrived and at least as many are missing, it is read directly into its own
/// allocation; copying fewer is cheaper than another system call.
const DIRECT_READ_FROM_BYTES: usize = 32 * 1024;

/// Stands for the tags of a `put` on a line that is too long.
const TOO_LONG: &[u8] = b" idp:";

/// The next request of the client.
#[derive(Debug)]
pub enum Request<'a> {
    /// Execute this.
    Command(Command<'a>),
    /// The line was no command.
    Malformed(ParseError),
    /// The job announced by an accepted `put` has come whole.
    Put(Put, Body),
    /// A body that is not to be stored has ended: answer this.
    Refused(BodyRefusal),
    /// The line of a put of a `complete`, with the text behind its size, is to be judged. So much is held already.
    PutOfComplete(PutHeader, &'a [u8], usize),
    /// All puts of a `complete` have come.
    Complete(Box<Complete>),
    /// A `complete` is malformed, or one of its puts: where the next command begins is not known.
    Lost,
}

/// Where in the client's stream the server is.
#[derive(Debug)]
enum Phase<R> {
    WantCommand,
    /// The body of an accepted `put` with its CRLF, as far as it has come in pieces.
    WantBody {
        put: Put,
        body: Vec<u8>,
    },
    /// `left` bytes to be thrown away, then the answer.
    SkipBody {
        left: u64,
        refusal: BodyRefusal,
    },
    /// A line that is too long, up to its end.
    SkipLine,
    /// A line of a `put` with tags that is too long, up to its end; then its body is skipped.
    SkipPutLine(PutHeader),
    /// The puts of a `complete`.
    Complete(Box<Complete>),
    /// A command is not finished; what follows it stays unparsed.
    Unfinished {
        rest: R,
        until: Until,
        held_bytes: usize,
    },
    /// Nothing more is executed; the connection ends once its replies are sent.
    Closing,
    /// There is no memory for what the client is owed or has sent: the connection ends at once.
    Aborted,
}

/// Why executing a piece of input has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The rest of the input is not a whole command: only more input helps.
    WantsInput,
    /// The rest of the input may hold whole commands. Nothing more may be executed now.
    CutShort,
}

/// Input that was read and not executed yet.
#[derive(Debug)]
enum Unread {
    /// The beginning of a line.
    Partial(Vec<u8>),
    /// Whole commands may be among it.
    Pending(Pending),
}

/// Input that waits to be executed.
#[derive(Debug)]
pub struct Pending {
    bytes: Vec<u8>,
    /// How many bytes at its start are executed.
    done: u32,
}

impl Pending {
    /// Wipes what was executed, all but the last `left` bytes: there was a token in it.
    pub fn wipe(&mut self, left: usize) {
        let done = self.bytes.len() - left;
        self.bytes[..done].zeroize();
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.done as usize..]
    }
}

/// One client's stream, both ways. `R` is what is left of a command that is not finished.
#[derive(Debug)]
pub struct Session<R> {
    phase: Phase<R>,
    /// `None` while the client is idle, and while a request of it is executed.
    unread: Option<Box<Unread>>,
    /// Whether memory is short, so that this session makes do with little.
    pub is_memory_low: bool,
    /// The command lines so far, malformed ones included: the low half of the number, and what it has overflowed into.
    /// So they fit beside `is_memory_low`; 2^48 lines take a client years.
    lines: u32,
    lines_high: u16,
    /// Replies on their way.
    pub output: Output,
}

impl<R> Default for Session<R> {
    fn default() -> Self {
        Self {
            phase: Phase::WantCommand,
            unread: None,
            is_memory_low: false,
            lines: 0,
            lines_high: 0,
            output: Output::default(),
        }
    }
}

impl<R: Debug> Session<R> {
    /// The next request in `input`, of which it takes what it has understood; `None` where more must be
    /// read, or nothing may be parsed now.
    pub fn next_request<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        match &mut self.phase {
            Phase::WantCommand => self.next_command(input),
            Phase::WantBody { .. } => self.next_body(input),
            Phase::SkipBody { left, refusal } => {
                let (left_before, refusal) = (*left, *refusal);
                let skipped = left_before.min(input.len() as u64);
                *left -= skipped;
                *input = &input[skipped as usize..];
                (left_before == skipped).then(|| self.finish(Request::Refused(refusal)))
            }
            Phase::Complete(_) => self.next_of_complete(input),
            Phase::SkipLine | Phase::SkipPutLine(_) => match find_crlf(input) {
                Some(end) => {
                    *input = &input[end + CRLF.len()..];
                    self.count_line();
                    let request = if let Phase::SkipPutLine(header) = self.phase {
                        Request::Command(Command::PutWith(header, TOO_LONG))
                    } else {
                        Request::Malformed(ParseError::BadFormat)
                    };
                    Some(self.finish(request))
                }
                None => {
                    let may_begin_crlf = usize::from(input.last() == Some(&b'\r'));
                    *input = &input[input.len() - may_begin_crlf..];
                    None
                }
            },
            Phase::Unfinished { .. } | Phase::Closing | Phase::Aborted => None,
        }
    }

    fn next_command<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        self.next_line(input, MAX_LINE_BYTES)
    }

    /// The command on a line of at most `most` bytes: some lines of the extensions may be longer than C's.
    #[inline]
    fn next_line<'a>(&mut self, input: &mut &'a [u8], most: usize) -> Option<Request<'a>> {
        let bytes: &'a [u8] = input;
        if bytes.is_empty() {
            return None;
        }
        match find_crlf(&bytes[..bytes.len().min(most)]) {
            Some(end) => {
                *input = &bytes[end + CRLF.len()..];
                self.count_line();
                let line = &bytes[..end];
                Some(parse(line).map_or_else(|error| malformed(line, error), Request::Command))
            }
            None if bytes.len() < most => None,
            None => match longest_line(bytes) {
                longest if longest > most => self.next_line(input, longest),
                _ if is_complete(bytes) => Some(Request::Lost),
                _ => {
                    self.phase = match tagged_put(bytes) {
                        Some(header) => Phase::SkipPutLine(header),
                        None => Phase::SkipLine,
                    };
                    self.next_request(input)
                }
            },
        }
    }

    /// Reads on in a `complete`.
    fn next_of_complete<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        let Phase::Complete(complete) = &mut self.phase else { return None };
        match complete.read(input) {
            Progress::WantsInput => None,
            Progress::Line(header, text) => {
                let held_bytes = complete.held_bytes();
                self.count_line();
                Some(Request::PutOfComplete(header, text, held_bytes))
            }
            Progress::Lost => Some(self.finish(Request::Lost)),
            Progress::Whole => {
                let phase = std::mem::replace(&mut self.phase, Phase::WantCommand);
                let Phase::Complete(complete) = phase else { return None };
                Some(Request::Complete(complete))
            }
        }
    }

    fn next_body<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        let Phase::WantBody { put, body } = &mut self.phase else { return None };
        match take_body(put.size, body, input) {
            Taken::Part => None,
            Taken::WithoutCrlf => Some(self.finish(Request::Refused(BodyRefusal::ExpectedCrlf))),
            Taken::NoMemory => {
                self.give_up_body(BodyRefusal::OutOfMemory);
                self.next_request(input)
            }
            Taken::Whole(body) => {
                let phase = std::mem::replace(&mut self.phase, Phase::WantCommand);
                let Phase::WantBody { put, .. } = phase else { return None };
                Some(Request::Put(put, body))
            }
        }
    }

    fn finish<'a>(&mut self, request: Request<'a>) -> Request<'a> {
        self.phase = Phase::WantCommand;
        request
    }

    /// The last request, or what was left of it, has come to this: the one place where an outcome becomes a phase.
    #[inline(always)]
    pub fn apply(&mut self, outcome: Outcome<R>) {
        debug_assert!(
            matches!(self.phase, Phase::WantCommand | Phase::Complete(_)),
            "what has an outcome was executed: {:?}",
            self.phase
        );
        if matches!(outcome, Outcome::Done) {
            return;
        }
        self.phase = match outcome {
            Outcome::Done => Phase::WantCommand,
            Outcome::ReadBody(put) => Phase::WantBody { put, body: Vec::new() },
            Outcome::SkipBody(header, refusal) => {
                // The size is any 32-bit number here: on 32-bit machines the sum needs more bits than a usize has.
                Phase::SkipBody { left: u64::from(header.size) + CRLF.len() as u64, refusal }
            }
            Outcome::Stall { rest, until, held_bytes } => Phase::Unfinished { rest, until, held_bytes },
            Outcome::ReadPuts(complete) => Phase::Complete(complete),
            Outcome::OfComplete(judged) => {
                if let Phase::Complete(complete) = &mut self.phase {
                    complete.begin_put(judged);
                }
                return;
            }
            Outcome::Close => Phase::Closing,
            Outcome::Abort => Phase::Aborted,
        };
    }

    /// Executes nothing more: the client's input has ended, or the server ends the session.
    pub fn close(&mut self) {
        self.phase = Phase::Closing;
        self.unread = None;
    }

    /// The rest of a command that is not finished, to be resumed; its outcome is to be applied.
    pub fn take_rest(&mut self) -> Option<R> {
        self.unfinished_until()?;
        if let Phase::Unfinished { rest, .. } = std::mem::replace(&mut self.phase, Phase::WantCommand) {
            return Some(rest);
        }
        None
    }

    /// Whether nothing of this client will ever be executed.
    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Aborted)
    }

    /// Whether no request of this client may be executed now.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        matches!(self.phase, Phase::Unfinished { .. } | Phase::Closing | Phase::Aborted)
            || self.is_over_bound()
    }

    /// Whether a part of a body is held that is not whole yet.
    #[must_use]
    pub fn has_body_in_progress(&self) -> bool {
        match &self.phase {
            Phase::WantBody { body, .. } => body.capacity() > 0,
            Phase::Complete(complete) => complete.has_bodies(),
            Phase::WantCommand
            | Phase::SkipBody { .. }
            | Phase::SkipLine
            | Phase::SkipPutLine(_)
            | Phase::Unfinished { .. }
            | Phase::Closing
            | Phase::Aborted => false,
        }
    }

    /// Lets go of a body in progress; what is left of it is thrown away, and then answered.
    pub fn give_up_body(&mut self, refusal: BodyRefusal) {
        if let Phase::Complete(complete) = &mut self.phase {
            complete.give_up(refusal);
        } else if let Phase::WantBody { put, body } = &self.phase {
            let left = (body_with_crlf(put.size) - body.len()) as u64;
            self.phase = Phase::SkipBody { left, refusal };
        }
    }

    /// Whether the client owes the server some reading, and is not served until it has caught up.
    #[must_use]
    pub fn is_over_bound(&self) -> bool {
        self.output.would_exceed(self.is_memory_low, 0, 0)
    }

    /// Where the socket may be read straight into a body, and how many bytes are missing there; `None`
    /// where the usual buffer does.
    pub fn body_room(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let (body, whole) = match &mut self.phase {
            Phase::WantBody { put, body } => (body, body_with_crlf(put.size)),
            Phase::Complete(complete) => complete.body_in_progress()?,
            Phase::WantCommand
            | Phase::SkipBody { .. }
            | Phase::SkipLine
            | Phase::SkipPutLine(_)
            | Phase::Unfinished { .. }
            | Phase::Closing
            | Phase::Aborted => return None,
        };
        let missing = whole - body.len();
        // A client that has sent little so far may be slow, and gets no room in advance.
        if missing.min(body.len()) < DIRECT_READ_FROM_BYTES {
            return None;
        }
        make_room(body, whole, DIRECT_READ_FROM_BYTES).ok()?;
        let room = missing.min(body.capacity() - body.len());
        Some((body, room))
    }

    /// Keeps what is left of the input until it may be executed, or more comes. Where there is no memory for it, it
    /// is lost, and the connection with it.
    #[inline]
    pub fn keep(&mut self, rest: &[u8], stop: Stop) {
        debug_assert!(self.unread.is_none(), "what was kept before was read first");
        if rest.is_empty() || self.has_ended() {
            return;
        }
        debug_assert!(!matches!(self.phase, Phase::WantBody { .. }) || stop == Stop::CutShort);
        match copy_of(rest) {
            Ok(bytes) => self.set_unread(bytes, 0, stop),
            Err(_) => self.phase = Phase::Aborted,
        }
    }

    /// Moves the beginning of a line that was kept to the start of `buffer`; returns its length.
    #[inline]
    pub fn restore(&mut self, buffer: &mut [u8]) -> usize {
        debug_assert!(!self.has_pending(), "what is pending is executed where it is");
        let Some(unread) = self.unread.take() else { return 0 };
        let (Unread::Partial(mut bytes) | Unread::Pending(Pending { mut bytes, .. })) = *unread;
        let length = bytes.len();
        buffer[..length].copy_from_slice(&bytes);
        if bytes.starts_with(b"auth") {
            bytes.zeroize();
        }
        length
    }

    /// Whether input is here that can be executed as soon as the session is not blocked.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        matches!(self.unread.as_deref(), Some(Unread::Pending(_)))
    }

    /// The input that waits to be executed, to be executed where it is.
    pub fn take_pending(&mut self) -> Option<Pending> {
        if !self.has_pending() {
            return None;
        }
        match *self.unread.take()? {
            Unread::Pending(pending) => Some(pending),
            Unread::Partial(_) => None,
        }
    }

    /// Keeps the last `left` bytes of what was taken.
    pub fn put_back(&mut self, pending: Pending, left: usize, stop: Stop) {
        debug_assert!(self.unread.is_none(), "it was taken");
        let done = pending.bytes.len() - left;
        match stop {
            Stop::CutShort if left > 0 && !self.has_ended() => self.set_unread(pending.bytes, done, stop),
            // A few bytes need not hold a large allocation.
            Stop::CutShort | Stop::WantsInput => self.keep(&pending.bytes[done..], stop),
        }
    }

    fn set_unread(&mut self, bytes: Vec<u8>, done: usize, stop: Stop) {
        self.unread = Some(Box::new(match stop {
            Stop::WantsInput => Unread::Partial(bytes),
            Stop::CutShort => Unread::Pending(Pending { bytes, done: done as u32 }),
        }));
    }

    /// Asserts what is true of a session between two turns.
    ///
    /// # Panics
    /// Where it is not.
    #[inline]
    pub fn check_invariants(&self) {
        match (&self.phase, self.unread.as_deref()) {
            (Phase::Closing | Phase::Aborted, unread) => {
                assert!(unread.is_none(), "what will never be executed is not kept");
            }
            (Phase::WantBody { put, body }, unread) => {
                assert!(body.len() < body_with_crlf(put.size), "a whole body is a request");
                assert!(!matches!(unread, Some(Unread::Partial(_))), "a body takes all of the input");
            }
            (Phase::WantCommand | Phase::SkipLine | Phase::SkipPutLine(_), Some(Unread::Partial(bytes))) => {
                assert!((1..longest_line(bytes)).contains(&bytes.len()), "a longer line is skipped");
            }
            (Phase::Complete(complete), Some(Unread::Partial(bytes))) => {
                assert!(complete.wants_line() && (1..longest_line(bytes)).contains(&bytes.len()));
            }
            (phase, Some(Unread::Partial(_))) => panic!("{phase:?} has the beginning of a line"),
            (_, Some(Unread::Pending(_)) | None) => {}
        }
        if let Some(Unread::Pending(pending)) = self.unread.as_deref() {
            assert!(!pending.bytes().is_empty(), "there is something to be executed");
        }
        self.output.check_invariants();
    }

    /// Memory held for bytes that are not a job yet, or not sent yet.
    #[must_use]
    #[inline]
    pub fn held_bytes(&self) -> usize {
        let has_input = self.unread.is_some() || !matches!(self.phase, Phase::WantCommand);
        self.output.held_bytes() + if has_input { self.held_input_bytes() } else { 0 }
    }

    /// Memory held for bytes that are not a job yet.
    fn held_input_bytes(&self) -> usize {
        let input = match &self.phase {
            Phase::WantBody { put, body } => put.held_bytes() + body.capacity(),
            Phase::Unfinished { held_bytes, .. } => *held_bytes,
            Phase::Complete(complete) => complete.held_bytes(),
            Phase::WantCommand
            | Phase::SkipBody { .. }
            | Phase::SkipLine
            | Phase::SkipPutLine(_)
            | Phase::Closing
            | Phase::Aborted => 0,
        };
        let unread = self.unread.as_deref().map_or(0, |unread| match unread {
            Unread::Partial(bytes) | Unread::Pending(Pending { bytes, .. }) => bytes.capacity(),
        });
        input + unread
    }
}

fn copy_of(bytes: &[u8]) -> Result<Vec<u8>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Whether the line that begins so is a `complete`.
fn is_complete(start: &[u8]) -> bool {
    start.starts_with(Verb::Complete.as_str().as_bytes())
}

/// The request for a line that is not a command. Behind a `complete` there are commands that must not be executed
/// alone.
#[cold]
fn malformed<'a>(line: &[u8], error: ParseError) -> Request<'a> {
    if is_complete(line) { Request::Lost } else { Request::Malformed(error) }
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
