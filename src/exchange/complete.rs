//! A `complete` whose puts are being read: n whole `put` commands with their bodies, one after the other.
//!
//! Owns: the position of the stream in these commands, the parts that are kept, and the first reason for which the
//! `complete` is refused while it is read. All n commands are read in any case, so that the bytes after them are
//! executed as commands. The server checks each line; nothing is executed before the last body has arrived.

use super::body_room::{Arriving, BodyArrival, split_body};
use super::lines::{Line, refused_body_bytes, skip_body, skip_line, take_line};
use super::{Exchange, Phase, Put, Request, TOO_LONG};
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::{Body, JobId};
use crate::protocol::{
    Command, MAX_COMPLETED_PUTS, MAX_PUT_LINE_BYTES, PutHeader, Verb, plain_put_line, put_line,
};
use crate::refusal::CommandRefusal;

/// A `complete`.
#[derive(Debug)]
pub struct Complete {
    /// The job that the client has reserved.
    pub id: JobId,
    /// The puts whose lines were accepted, with their bodies, which are empty if the `complete` is refused.
    pub puts: Vec<(Put, Body)>,
    /// The first reason, in the order of [`CommandRefusal`], why it is refused.
    pub refusal: Option<CommandRefusal>,
    /// The memory of the puts, besides the list itself, in bytes.
    kept_bytes: usize,
    /// How many puts have not been read yet.
    left: u32,
    step: CompleteStep,
}

/// The position of the next byte of the stream.
#[derive(Debug)]
enum CompleteStep {
    /// In the line of a put.
    Line,
    /// In the body of an accepted put.
    Body(Arriving),
    /// In a body that is skipped: this many bytes of it are left.
    SkipBody(u64),
    /// In the rest of a line that is too long.
    SkipLine(PutHeader),
}

/// What the input has brought.
enum CompleteProgress<'a> {
    /// The line of a put, with the text after its size.
    Line(PutHeader, &'a [u8]),
    /// The last put has been read.
    Whole,
    /// The line is not a `put`, or its size cannot be read: the start of the next command is unknown.
    Lost,
}

impl<R> Exchange<R> {
    /// The request for the line of a `complete` with one put. If the whole put has arrived and has no tags, as is
    /// usual, the request contains it, so that the exchange need not keep it.
    #[inline(never)]
    pub(super) fn complete_of_one<'a>(&mut self, id: JobId, input: &mut &'a [u8]) -> Request<'a> {
        let mut rest = *input;
        if let Line::Whole(line) = take_line(&mut rest)
            && let Some(header) = plain_put_line(line)
            && let Some((body, rest)) = split_body(header.size, rest)
        {
            *input = rest;
            self.count_line();
            return Request::CompleteWith(id, header, body);
        }
        Request::Command(Command::Complete { id, count: 1 })
    }

    /// Continues to read a `complete`.
    pub(super) fn next_of_complete<'a>(&mut self, input: &mut &'a [u8]) -> Option<Request<'a>> {
        let Phase::Complete(complete) = &mut self.phase else { return None };
        let progress = complete.read(input)?;
        let phase = std::mem::replace(&mut self.phase, Phase::WantCommand);
        let Phase::Complete(complete) = phase else { return None };
        Some(match progress {
            CompleteProgress::Line(header, text) => {
                self.count_line();
                Request::Puts(complete, Some((header, text)))
            }
            CompleteProgress::Whole => Request::Puts(complete, None),
            CompleteProgress::Lost => Request::Lost,
        })
    }
}

/// Whether a line that begins like this is a `complete`. After it come commands that must not be executed by
/// themselves.
pub(super) fn is_complete(start: &[u8]) -> bool {
    start.starts_with(Verb::Complete.as_str().as_bytes())
}

impl Complete {
    /// A `complete` whose `count` puts come next. It may be refused already.
    #[must_use]
    pub fn new(id: JobId, count: u32, refusal: Option<CommandRefusal>) -> Self {
        Self { id, puts: Vec::new(), refusal, kept_bytes: 0, left: count, step: CompleteStep::Line }
    }

    /// As [`Self::new`], with the memory of this one, which is done.
    pub fn renew(&mut self, id: JobId, count: u32, refusal: Option<CommandRefusal>) {
        debug_assert!(self.is_whole() && self.puts.is_empty(), "its puts are done");
        (self.id, self.refusal, self.left) = (id, refusal, count);
        self.kept_bytes = 0;
    }

    /// Whether there are no puts, or all of them have been read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// Continues to read; `None` if more input is needed.
    fn read<'a>(&mut self, input: &mut &'a [u8]) -> Option<CompleteProgress<'a>> {
        loop {
            if self.left == 0 {
                return Some(CompleteProgress::Whole);
            }
            if input.is_empty() {
                return None;
            }
            let is_done = match &mut self.step {
                CompleteStep::Line => match take_line(input) {
                    Line::Part if input.len() < MAX_PUT_LINE_BYTES => false,
                    // It is a line of another command.
                    Line::Part => return Some(CompleteProgress::Lost),
                    Line::Whole(line) => {
                        let put = put_line(line);
                        return Some(put.map_or(CompleteProgress::Lost, |(header, text)| {
                            CompleteProgress::Line(header, text)
                        }));
                    }
                    // If anything follows the size, be it the CRLF, the size is enough to find the body.
                    Line::TooLong(start) => match put_line(start) {
                        Some((header, text)) if !text.is_empty() => {
                            self.step = CompleteStep::SkipLine(header);
                            true
                        }
                        Some(_) | None => return Some(CompleteProgress::Lost),
                    },
                },
                &mut CompleteStep::SkipLine(header) => {
                    return skip_line(input).then_some(CompleteProgress::Line(header, TOO_LONG));
                }
                CompleteStep::SkipBody(left) => {
                    let is_done = skip_body(left, input);
                    if is_done {
                        self.end_put();
                    }
                    is_done
                }
                CompleteStep::Body(_) => self.read_body(input),
            };
            if !is_done {
                return None;
            }
        }
    }

    /// Reads the body of an accepted put; returns whether the input continues in another step.
    fn read_body(&mut self, input: &mut &[u8]) -> bool {
        let CompleteStep::Body(arriving) = &mut self.step else { return true };
        let body = match arriving.take(input) {
            BodyArrival::Part => return false,
            BodyArrival::NoMemory => {
                self.give_up(CommandRefusal::OutOfMemory);
                return true;
            }
            BodyArrival::WithoutCrlf => {
                self.refuse(CommandRefusal::ExpectedCrlf);
                Body::default()
            }
            BodyArrival::Whole(body) => body,
        };
        if let CompleteStep::Body(Arriving { put, .. }) =
            std::mem::replace(&mut self.step, CompleteStep::Line)
        {
            self.keep(put, body);
        }
        self.end_put();
        true
    }

    /// Continues after the server has checked the line of a put.
    pub fn begin_put(&mut self, checked: Result<Put, (PutHeader, CommandRefusal)>) {
        match checked {
            Ok(put) if self.refusal.is_some() => {
                self.step = CompleteStep::SkipBody(refused_body_bytes(put.size));
                self.keep(put, Body::default());
            }
            Ok(put) => self.step = CompleteStep::Body(Arriving::new(put)),
            Err((header, refusal)) => self.skip(header, refusal),
        }
    }

    /// Reads the body of the last put, with its CRLF. The server has checked the line.
    pub fn take_last_put(&mut self, checked: Result<Put, (PutHeader, CommandRefusal)>, mut body: &[u8]) {
        self.begin_put(checked);
        let progress = self.read(&mut body);
        debug_assert!(matches!(progress, Some(CompleteProgress::Whole)), "the last body ends the command");
    }

    /// Skips the body, which comes next.
    fn skip(&mut self, header: PutHeader, refusal: CommandRefusal) {
        self.refuse(refusal);
        self.step = CompleteStep::SkipBody(refused_body_bytes(header.size));
    }

    /// Keeps a put. If the `complete` is refused, the body is dropped, but the line still counts for other reasons.
    fn keep(&mut self, put: Put, body: Body) {
        if self.puts.try_reserve(1).is_err() {
            return self.refuse(CommandRefusal::OutOfMemory);
        }
        let body = if self.refusal.is_none() { body } else { Body::default() };
        self.kept_bytes += put.memory_bytes() + body.len();
        self.puts.push((put, body));
    }

    fn end_put(&mut self) {
        self.left -= 1;
        self.step = CompleteStep::Line;
    }

    /// Refuses the `complete`. None of its bodies is needed any more.
    fn refuse(&mut self, refusal: CommandRefusal) {
        if self.refusal.is_none() {
            self.kept_bytes = 0;
            for (put, body) in &mut self.puts {
                *body = Body::default();
                self.kept_bytes += put.memory_bytes();
            }
        }
        self.refusal = Some(self.refusal.map_or(refusal, |before| before.min(refusal)));
    }

    /// Frees everything that is kept.
    pub(super) fn give_up(&mut self, refusal: CommandRefusal) {
        self.refuse(refusal);
        self.step = match std::mem::replace(&mut self.step, CompleteStep::Line) {
            CompleteStep::Body(arriving) => {
                let left = arriving.missing() as u64;
                self.keep(arriving.put, Body::default());
                CompleteStep::SkipBody(left)
            }
            step @ (CompleteStep::Line | CompleteStep::SkipBody(_) | CompleteStep::SkipLine(_)) => step,
        };
    }

    /// Whether giving it up would free memory.
    pub(super) fn has_bodies(&self) -> bool {
        self.puts.iter().any(|(_, body)| !body.is_empty())
            || matches!(&self.step, CompleteStep::Body(arriving) if arriving.has_begun())
    }

    /// See [`Arriving::room`].
    pub(super) fn body_room(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        if let CompleteStep::Body(arriving) = &mut self.step { arriving.room() } else { None }
    }

    /// Whether the next byte belongs to a line.
    pub(super) fn wants_line(&self) -> bool {
        matches!(self.step, CompleteStep::Line | CompleteStep::SkipLine(_))
    }

    /// Memory of the `complete`, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let in_progress = match &self.step {
            CompleteStep::Body(arriving) => arriving.memory_bytes(),
            CompleteStep::Line | CompleteStep::SkipBody(_) | CompleteStep::SkipLine(_) => 0,
        };
        size_of::<Self>() + self.puts.len() * size_of::<(Put, Body)>() + self.kept_bytes + in_progress
    }

    /// Asserts that the kept memory is counted, and that a refused `complete` keeps no body.
    pub(super) fn check_invariants(&self) {
        let kept = self.puts.iter().map(|(put, _)| put.memory_bytes()).sum::<usize>() + self.body_bytes();
        assert_eq!(kept, self.kept_bytes, "the memory of the puts is counted");
        assert!(self.refusal.is_none() || self.body_bytes() == 0, "a refused complete keeps no body");
        assert!(self.left > 0, "a complete that has been read is a request");
    }

    /// The bytes of all bodies.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.puts.iter().map(|(_, body)| body.len()).sum()
    }
}

described!(enum CompleteStep, "the step of a complete" {
    0 => Line,
    1 => Body(arriving),
    2 => SkipBody(left),
    3 => SkipLine(header),
});

impl Described for Complete {
    fn describe(&self, out: &mut Writer<'_>) {
        let Self { id, puts, refusal, kept_bytes: _, left, step } = self;
        id.describe(out);
        refusal.describe(out);
        left.describe(out);
        puts.describe(out);
        step.describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut complete = Self::new(from.value()?, 0, from.value()?);
        complete.left = from.value()?;
        let puts: Vec<(Put, Body)> = from.value()?;
        let count = puts.len();
        for (put, body) in puts {
            complete.keep(put, body);
        }
        complete.step = from.value()?;
        // A put whose body is skipped may be kept, and has not been read yet.
        let (left, both) =
            (complete.left as usize, usize::from(matches!(complete.step, CompleteStep::SkipBody(_))));
        if count + left > MAX_COMPLETED_PUTS as usize + both {
            return Err(Malformed("a complete has too many puts"));
        }
        let is_possible = left > 0 || matches!(complete.step, CompleteStep::Line);
        if is_possible { Ok(complete) } else { Err(Malformed("a complete has nothing left")) }
    }
}
