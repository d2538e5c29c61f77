//! The pure half of a connection: one client's stream of bytes, both ways.
//!
//! Owns: the server's position in the stream (the `Phase`), the bytes that were read but not executed yet, and the
//! replies that have not been sent yet. Pure: it uses no socket and executes nothing. Driven by the server, which feeds
//! it the bytes that it has read, executes each [`Request`] that comes out, and applies its [`Outcome`].
//!
//! ```text
//!                 ┌ line too long or given up ▶ SkipLine ────┐
//!                 │                                          ▼
//!  ──▶ WantCommand ── put accepted ──▶ WantBody ───▶ a request comes out; WantCommand again
//!       │  ▲   │ ├─── put refused ───▶ SkipBody ───────────▲
//!       │  │   │ └──── complete ─────▶ Complete ───────────▲
//!       │  │   └──── quit, the end ──▶ Closing ──▶ ends once its replies are sent
//!       ▼  └ answer, or the command continues
//!     Unfinished
//! ```
//!
//! Sending is not a phase: a client may send the next commands before it has read the replies to the last ones, so
//! replies are sent in every phase.

mod activity;
mod body_room;
mod complete;
mod description;
mod lines;
mod outcome;
mod output;
mod put;
#[cfg(test)]
mod tests;

use std::collections::TryReserveError;
use std::fmt::Debug;

use zeroize::Zeroize;

pub(crate) use self::activity::Activity;
pub(crate) use self::complete::Complete;
pub(crate) use self::description::MAX_OUTPUT_BYTES;
pub(crate) use self::outcome::{Outcome, Unfinished, Until, WaitKind};
pub use self::output::Output;
pub(crate) use self::put::{Put, PutExtras};

use self::activity::LineCount;
use self::body_room::{Arriving, BodyArrival};
use self::complete::is_complete;
use self::lines::{Line, refused_body_bytes, skip_body, skip_line, take_line};
use crate::job::{Body, JobId};
use crate::protocol::{Command, ParseError, PutHeader, longest_line, parse, tagged_put};
use crate::refusal::CommandRefusal;

/// Replaces the tags of a `put` on a line that is too long.
const TOO_LONG: &[u8] = b" idp:";

/// The next request of the client.
#[derive(Debug)]
pub enum Request<'a> {
    /// Execute this.
    Command(Command<'a>),
    /// The line is not a command.
    Malformed(ParseError),
    /// A line has ended for which there was no memory.
    GivenUp,
    /// The body of an accepted `put` has arrived.
    Put(Put, Body),
    /// A body that must not be stored has ended: answer with this.
    Refused(CommandRefusal),
    /// Check the next line of the puts of a `complete`: its numbers, and the text after its size. Without a line, all
    /// puts have arrived.
    Puts(Box<Complete>, Option<(PutHeader, &'a [u8])>),
    /// A `complete` of this job with its only put, whose body, with the CRLF after it, has arrived.
    CompleteWith(JobId, PutHeader, &'a [u8]),
    /// A `complete`, or one of its puts, is malformed: the start of the next command is unknown.
    Lost,
}

/// The server's position in the client's stream.
#[derive(Debug)]
enum Phase<R> {
    WantCommand,
    /// The body of an accepted `put`.
    WantBody(Arriving),
    /// `left` bytes are skipped, then the answer follows.
    SkipBody {
        left: u64,
        refusal: CommandRefusal,
    },
    /// A line that is too long, or given up, up to its end.
    SkipLine {
        is_given_up: bool,
    },
    /// A line of a `put` with tags that is too long, up to its end; then its body is skipped.
    SkipPutLine(PutHeader),
    /// The puts of a `complete`.
    Complete(Box<Complete>),
    /// A command is not finished; the bytes after it stay unparsed.
    Unfinished(Unfinished<R>),
    /// Nothing more is executed; the connection ends once its replies are sent.
    Closing,
    /// There is no memory for replies to the client or for its input: the connection ends at once.
    Aborted,
}

/// The reason why executing a piece of input has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The rest of the input is not a whole command: more input is needed.
    WantsInput,
    /// The rest of the input may contain whole commands, but nothing more may be executed now.
    CutShort,
}

/// Input that was read but not executed yet.
#[derive(Debug)]
enum Unread {
    /// The beginning of a line.
    Partial(Vec<u8>),
    /// Input that may contain whole commands.
    Pending(Pending),
}

/// Input that waits to be executed.
#[derive(Debug)]
pub struct Pending {
    bytes: Vec<u8>,
    /// How many bytes at its start have been executed.
    done: u32,
}

impl Pending {
    /// Wipes the executed part, all except the last `left` bytes: it contained a token.
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

/// One client's stream, both ways. `R` is the continuation of an unfinished command.
#[derive(Debug)]
pub struct Exchange<R> {
    phase: Phase<R>,
    /// `None` while the client is idle, and while one of its requests is executed.
    unread: Option<Box<Unread>>,
    /// Whether memory is low, so that this exchange uses little.
    pub is_memory_low: bool,
    /// The command lines so far, including malformed ones.
    lines: LineCount,
    /// Replies that have not been sent.
    pub output: Output,
}

impl<R> Default for Exchange<R> {
    fn default() -> Self {
        Self {
            phase: Phase::WantCommand,
            unread: None,
            is_memory_low: false,
            lines: LineCount::default(),
            output: Output::default(),
        }
    }
}

impl<R: Debug> Exchange<R> {
    /// The next request in `input`, from which it removes the bytes that it has parsed; `None` if more must be read, or
    /// if nothing may be parsed now.
    pub fn next_request<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        match &mut self.phase {
            Phase::WantCommand => self.next_command(input),
            Phase::WantBody(_) => self.next_body(input),
            Phase::SkipBody { left, refusal } => {
                let refusal = *refusal;
                skip_body(left, input).then(|| self.finish(Request::Refused(refusal)))
            }
            Phase::Complete(_) => self.next_of_complete(input),
            &mut Phase::SkipLine { is_given_up } => {
                let bad_format = Request::Malformed(ParseError::BadFormat);
                let request = if is_given_up { Request::GivenUp } else { bad_format };
                skip_line(input).then(|| self.end_long_line(request))
            }
            &mut Phase::SkipPutLine(header) => {
                let put = Request::Command(Command::PutWith(header, TOO_LONG));
                skip_line(input).then(|| self.end_long_line(put))
            }
            Phase::Unfinished(_) | Phase::Closing | Phase::Aborted => None,
        }
    }

    #[inline]
    fn next_command<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        match take_line(input) {
            Line::Whole(line) => {
                self.count_line();
                Some(match parse(line) {
                    Ok(Command::Complete { id, count: 1 }) => self.complete_of_one(id, input),
                    Ok(command) => Request::Command(command),
                    Err(error) => malformed(line, error),
                })
            }
            Line::Part => None,
            Line::TooLong(start) if is_complete(start) => Some(Request::Lost),
            Line::TooLong(start) => {
                self.phase = match tagged_put(start) {
                    Some(header) => Phase::SkipPutLine(header),
                    None => Phase::SkipLine { is_given_up: false },
                };
                self.next_request(input)
            }
        }
    }

    fn next_body<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        let Phase::WantBody(arriving) = &mut self.phase else { return None };
        match arriving.take(input) {
            BodyArrival::Part => None,
            BodyArrival::WithoutCrlf => Some(self.finish(Request::Refused(CommandRefusal::ExpectedCrlf))),
            BodyArrival::NoMemory => {
                self.give_up_body(CommandRefusal::OutOfMemory);
                self.next_request(input)
            }
            BodyArrival::Whole(body) => {
                let phase = std::mem::replace(&mut self.phase, Phase::WantCommand);
                let Phase::WantBody(Arriving { put, .. }) = phase else { return None };
                Some(Request::Put(put, body))
            }
        }
    }

    fn end_long_line<'a>(&mut self, request: Request<'a>) -> Request<'a> {
        self.count_line();
        self.finish(request)
    }

    fn finish<'a>(&mut self, request: Request<'a>) -> Request<'a> {
        self.phase = Phase::WantCommand;
        request
    }

    /// Applies the outcome of the last request, or of its continuation: the one place where an outcome becomes a phase.
    #[inline(always)]
    pub fn apply(&mut self, outcome: Outcome<R>) {
        debug_assert!(
            matches!(self.phase, Phase::WantCommand),
            "no body or command is in progress when an outcome is applied: {:?}",
            self.phase
        );
        if matches!(outcome, Outcome::Done) {
            return;
        }
        self.phase = match outcome {
            Outcome::Done => Phase::WantCommand,
            Outcome::ReadBody(put) => Phase::WantBody(Arriving::new(put)),
            Outcome::SkipBody(header, refusal) => {
                Phase::SkipBody { left: refused_body_bytes(header.size), refusal }
            }
            Outcome::Unfinished(unfinished) => Phase::Unfinished(unfinished),
            Outcome::ReadPuts(complete) => Phase::Complete(complete),
            Outcome::Close => Phase::Closing,
            Outcome::Abort => Phase::Aborted,
        };
    }

    /// Executes nothing more: the client's input has ended, or the server ends the exchange.
    pub fn close(&mut self) {
        self.phase = Phase::Closing;
        self.unread = None;
    }

    /// The continuation of a stalled command, to be resumed; its outcome must then be applied.
    pub fn take_continuation(&mut self) -> Option<R> {
        self.stalled_until()?;
        let phase = std::mem::replace(&mut self.phase, Phase::WantCommand);
        if let Phase::Unfinished(Unfinished::Stalled { continuation, .. }) = phase {
            Some(continuation)
        } else {
            None
        }
    }

    /// Ends the wait of the client, to be answered; the outcome must then be applied.
    pub fn take_wait(&mut self) -> Option<WaitKind> {
        let kind = self.wait_kind()?;
        self.phase = Phase::WantCommand;
        Some(kind)
    }

    /// Whether no command of this client will be executed any more.
    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Aborted)
    }

    /// Whether no request of this client may be executed now.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        matches!(self.phase, Phase::Unfinished(_) | Phase::Closing | Phase::Aborted) || self.is_over_bound()
    }

    /// Whether a part of an incomplete body is held.
    #[must_use]
    pub fn has_body_in_progress(&self) -> bool {
        matches!(&self.phase, Phase::WantBody(arriving) if arriving.has_begun())
            || matches!(&self.phase, Phase::Complete(complete) if complete.has_bodies())
    }

    /// Drops a body in progress; the rest of it is skipped, and then answered.
    pub fn give_up_body(&mut self, refusal: CommandRefusal) {
        if let Phase::Complete(complete) = &mut self.phase {
            complete.give_up(refusal);
        } else if let Phase::WantBody(arriving) = &self.phase {
            self.phase = Phase::SkipBody { left: arriving.missing() as u64, refusal };
        }
    }

    /// Skips the line of which `input` is the beginning; its end is then answered.
    pub fn give_up_line(&mut self, input: &mut &[u8]) {
        debug_assert!(matches!(self.phase, Phase::WantCommand), "a line is given up where a command begins");
        self.phase = Phase::SkipLine { is_given_up: true };
        skip_line(input);
    }

    /// Whether the client owes the server some reading, and is not served until it has read enough.
    #[must_use]
    pub fn is_over_bound(&self) -> bool {
        self.output.would_exceed(self.is_memory_low, 0, 0)
    }

    /// The buffer of a body into which the socket can be read directly, and how many bytes it may take; `None` if the
    /// usual buffer is used.
    pub fn body_room(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        match &mut self.phase {
            Phase::WantBody(arriving) => arriving.room(),
            Phase::Complete(complete) => complete.body_room(),
            Phase::WantCommand
            | Phase::SkipBody { .. }
            | Phase::SkipLine { .. }
            | Phase::SkipPutLine(_)
            | Phase::Unfinished(_)
            | Phase::Closing
            | Phase::Aborted => None,
        }
    }

    /// Keeps the rest of the input until it can be executed, or more arrives. If there is no memory for it, it is lost,
    /// and the connection ends.
    #[inline]
    pub fn keep(&mut self, rest: &[u8], stop: Stop) {
        debug_assert!(self.unread.is_none(), "no other unread input is kept");
        if rest.is_empty() || self.has_ended() {
            return;
        }
        debug_assert!(!matches!(self.phase, Phase::WantBody(_)) || stop == Stop::CutShort);
        match copy_of(rest) {
            Ok(bytes) => self.set_unread(bytes, 0, stop),
            Err(_) => self.phase = Phase::Aborted,
        }
    }

    /// Moves the beginning of a line that was kept to the start of `buffer`; returns its length.
    #[inline]
    pub fn restore(&mut self, buffer: &mut [u8]) -> usize {
        debug_assert!(!self.has_pending(), "pending input is executed before more is read");
        let Some(unread) = self.unread.take() else { return 0 };
        let (Unread::Partial(mut bytes) | Unread::Pending(Pending { mut bytes, .. })) = *unread;
        let length = bytes.len();
        buffer[..length].copy_from_slice(&bytes);
        if bytes.starts_with(b"auth") {
            bytes.zeroize();
        }
        length
    }

    /// Whether there is input that can be executed as soon as the exchange is not blocked.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        matches!(self.unread.as_deref(), Some(Unread::Pending(_)))
    }

    /// The input that waits to be executed, which is executed without a copy.
    pub fn take_pending(&mut self) -> Option<Pending> {
        if !self.has_pending() {
            return None;
        }
        match *self.unread.take()? {
            Unread::Pending(pending) => Some(pending),
            Unread::Partial(_) => None,
        }
    }

    /// Keeps the last `left` bytes of the pending input.
    pub fn put_back(&mut self, pending: Pending, left: usize, stop: Stop) {
        debug_assert!(self.unread.is_none(), "the pending input has been taken from the exchange");
        let done = pending.bytes.len() - left;
        match stop {
            Stop::CutShort if left > 0 && !self.has_ended() => self.set_unread(pending.bytes, done, stop),
            // A few bytes need not keep a large allocation.
            Stop::CutShort | Stop::WantsInput => self.keep(&pending.bytes[done..], stop),
        }
    }

    fn set_unread(&mut self, bytes: Vec<u8>, done: usize, stop: Stop) {
        self.unread = Some(Box::new(match stop {
            Stop::WantsInput => Unread::Partial(bytes),
            Stop::CutShort => Unread::Pending(Pending { bytes, done: done as u32 }),
        }));
    }

    /// Asserts the invariants of an exchange between two turns.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline]
    pub fn check_invariants(&self) {
        match (&self.phase, self.unread.as_deref()) {
            (Phase::Closing | Phase::Aborted, unread) => {
                assert!(unread.is_none(), "an exchange that closes keeps no input");
            }
            (Phase::WantBody(arriving), unread) => {
                assert!(arriving.missing() > 0, "a whole body is a request");
                assert!(!matches!(unread, Some(Unread::Partial(_))), "a body takes all of the input");
            }
            (
                Phase::WantCommand | Phase::SkipLine { .. } | Phase::SkipPutLine(_),
                Some(Unread::Partial(bytes)),
            ) => {
                assert!((1..longest_line(bytes)).contains(&bytes.len()), "a longer line is skipped");
            }
            (Phase::Complete(complete), Some(Unread::Partial(bytes))) => {
                assert!(complete.wants_line() && (1..longest_line(bytes)).contains(&bytes.len()));
            }
            (phase, Some(Unread::Partial(_))) => panic!("{phase:?} has the beginning of a line"),
            (_, Some(Unread::Pending(_)) | None) => {}
        }
        if let Some(Unread::Pending(pending)) = self.unread.as_deref() {
            assert!(!pending.bytes().is_empty(), "pending input is not empty");
        }
        if let Phase::Complete(complete) = &self.phase {
            complete.check_invariants();
        }
        self.output.check_invariants();
    }

    /// Memory for bytes that are not yet a job, or not yet sent.
    #[must_use]
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        let has_input = self.unread.is_some() || !matches!(self.phase, Phase::WantCommand);
        self.output.memory_bytes() + if has_input { self.held_input_bytes() } else { 0 }
    }

    /// Memory for bytes that are not yet a job.
    fn held_input_bytes(&self) -> usize {
        let input = match &self.phase {
            Phase::WantBody(arriving) => arriving.memory_bytes(),
            Phase::Unfinished(Unfinished::Stalled { memory_bytes, .. }) => *memory_bytes,
            Phase::Complete(complete) => complete.memory_bytes(),
            Phase::WantCommand
            | Phase::SkipBody { .. }
            | Phase::SkipLine { .. }
            | Phase::SkipPutLine(_)
            | Phase::Unfinished(Unfinished::Waiting(_))
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

/// The request for a line that is not a command.
#[cold]
fn malformed<'a>(line: &[u8], error: ParseError) -> Request<'a> {
    if is_complete(line) { Request::Lost } else { Request::Malformed(error) }
}
