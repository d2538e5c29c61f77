//! A `complete` whose puts are being read: n whole `put` commands with their bodies, one behind the other.
//!
//! Owns: where in these commands the stream is, what of them is kept, and the first reason why the `complete` is
//! refused for what was read. All n commands are read in any case, so that what follows them is executed as commands.
//! The server judges each line; nothing is executed before the last body is there.

use super::body_room::{Taken, body_with_crlf, take_body};
use super::{BodyRefusal, Put, TOO_LONG, find_crlf};
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::{Body, JobId};
use crate::protocol::{CRLF, MAX_COMPLETED_PUTS, MAX_LINE_BYTES, PutHeader, longest_line, put_line};

/// A `complete`.
#[derive(Debug)]
pub struct Complete {
    /// The job that the client has reserved.
    pub id: JobId,
    /// The puts whose lines were accepted. If the `complete` is refused, their bodies are empty.
    pub puts: Vec<(Put, Body)>,
    /// The first reason in the order of [`BodyRefusal`] why it is refused.
    pub refusal: Option<BodyRefusal>,
    /// What the puts hold beside their place in the list, in bytes.
    kept_bytes: usize,
    /// How many puts are not read yet.
    left: u32,
    step: Step,
}

/// Where in the stream the next byte stands.
#[derive(Debug)]
enum Step {
    /// In the line of a put.
    Line,
    /// In the body of an accepted put.
    Body { put: Put, body: Vec<u8> },
    /// In a body that is thrown away, of which so many bytes are left.
    SkipBody(u64),
    /// In the rest of a line that is too long.
    SkipLine(PutHeader),
}

/// What has come of a piece of input.
pub(super) enum Progress<'a> {
    /// More must be read.
    WantsInput,
    /// The line of a put, with the text behind its size: [`Complete::begin_put`] follows.
    Line(PutHeader, &'a [u8]),
    /// The last put is read.
    Whole,
    /// This is no `put`, or its size cannot be read: where the next command begins is not known.
    Lost,
}

impl Complete {
    /// One whose puts, so many, come next. It may be refused already.
    #[must_use]
    pub fn new(id: JobId, count: u32, refusal: Option<BodyRefusal>) -> Self {
        Self { id, puts: Vec::new(), refusal, kept_bytes: 0, left: count, step: Step::Line }
    }

    /// The same in the room of this one, which is done.
    pub fn renew(&mut self, id: JobId, count: u32, refusal: Option<BodyRefusal>) {
        debug_assert!(self.is_whole() && self.puts.is_empty(), "its puts are done");
        (self.id, self.refusal, self.left) = (id, refusal, count);
        self.kept_bytes = 0;
    }

    /// One without puts, or all of whose puts were read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// Reads on.
    pub(super) fn read<'a>(&mut self, input: &mut &'a [u8]) -> Progress<'a> {
        loop {
            if self.left == 0 {
                return Progress::Whole;
            }
            if input.is_empty() {
                return Progress::WantsInput;
            }
            let is_done = match &mut self.step {
                Step::Line => match self.read_line(input) {
                    Some(progress) => return progress,
                    None => true,
                },
                Step::SkipLine(header) => {
                    let header = *header;
                    let Some(end) = find_crlf(input) else {
                        let may_begin_crlf = usize::from(input.last() == Some(&b'\r'));
                        *input = &input[input.len() - may_begin_crlf..];
                        return Progress::WantsInput;
                    };
                    *input = &input[end + CRLF.len()..];
                    return Progress::Line(header, TOO_LONG);
                }
                Step::SkipBody(left) => {
                    let skipped = (*left).min(input.len() as u64);
                    *left -= skipped;
                    *input = &input[skipped as usize..];
                    let is_done = *left == 0;
                    if is_done {
                        self.end_put();
                    }
                    is_done
                }
                Step::Body { .. } => self.read_body(input),
            };
            if !is_done {
                return Progress::WantsInput;
            }
        }
    }

    /// The line of a put; `None` if the input goes on in another step.
    fn read_line<'a>(&mut self, input: &mut &'a [u8]) -> Option<Progress<'a>> {
        let bytes: &'a [u8] = input;
        let mut most = MAX_LINE_BYTES;
        let mut found = find_crlf(&bytes[..bytes.len().min(most)]);
        if found.is_none() && bytes.len() >= most {
            most = longest_line(bytes);
            found = find_crlf(&bytes[..bytes.len().min(most)]);
        }
        match found {
            Some(end) => {
                let Some((header, text)) = put_line(&bytes[..end]) else { return Some(Progress::Lost) };
                *input = &bytes[end + CRLF.len()..];
                Some(Progress::Line(header, text))
            }
            None if bytes.len() < most => Some(Progress::WantsInput),
            // Behind a size that is followed by something, the body is found.
            None => match put_line(&bytes[..most]) {
                Some((header, text)) if !text.is_empty() => {
                    self.step = Step::SkipLine(header);
                    None
                }
                Some(_) | None => Some(Progress::Lost),
            },
        }
    }

    /// The body of an accepted put; returns whether the input goes on in another step.
    fn read_body(&mut self, input: &mut &[u8]) -> bool {
        let Step::Body { put, body } = &mut self.step else { return true };
        let body = match take_body(put.size, body, input) {
            Taken::Part => return false,
            Taken::NoMemory => {
                self.give_up(BodyRefusal::OutOfMemory);
                return true;
            }
            Taken::WithoutCrlf => {
                self.refuse(BodyRefusal::ExpectedCrlf);
                no_body()
            }
            Taken::Whole(body) => body,
        };
        if let Step::Body { put, .. } = std::mem::replace(&mut self.step, Step::Line) {
            self.keep(put, body);
        }
        self.end_put();
        true
    }

    /// The server has judged the line of a put.
    pub(super) fn begin_put(&mut self, judged: Result<Put, (PutHeader, BodyRefusal)>) {
        match judged {
            Ok(put) if self.refusal.is_some() => {
                self.step = Step::SkipBody(body_with_crlf(put.size) as u64);
                self.keep(put, no_body());
            }
            Ok(put) => self.step = Step::Body { put, body: Vec::new() },
            Err((header, refusal)) => self.skip(header, refusal),
        }
    }

    /// The body comes next, and is thrown away.
    fn skip(&mut self, header: PutHeader, refusal: BodyRefusal) {
        self.refuse(refusal);
        self.step = Step::SkipBody(u64::from(header.size) + CRLF.len() as u64);
    }

    /// Keeps a put. If the `complete` is refused it has no body, and what its line says still counts for other reasons.
    fn keep(&mut self, put: Put, body: Body) {
        if self.puts.try_reserve(1).is_err() {
            return self.refuse(BodyRefusal::OutOfMemory);
        }
        self.kept_bytes += put.held_bytes() + body.len();
        self.puts.push((put, body));
    }

    fn end_put(&mut self) {
        self.left -= 1;
        self.step = Step::Line;
    }

    /// It is refused. No body of it is needed any more.
    fn refuse(&mut self, refusal: BodyRefusal) {
        if self.refusal.is_none() {
            self.puts.iter_mut().for_each(|(_, body)| *body = no_body());
            self.kept_bytes = self.puts.iter().map(|(put, _)| put.held_bytes()).sum();
        }
        self.refusal = Some(self.refusal.map_or(refusal, |before| before.min(refusal)));
    }

    /// Lets go of all that is kept.
    pub(super) fn give_up(&mut self, refusal: BodyRefusal) {
        self.refuse(refusal);
        self.step = match std::mem::replace(&mut self.step, Step::Line) {
            Step::Body { put, body } => {
                let left = body_with_crlf(put.size) - body.len();
                self.keep(put, no_body());
                Step::SkipBody(left as u64)
            }
            step @ (Step::Line | Step::SkipBody(_) | Step::SkipLine(_)) => step,
        };
    }

    /// Whether memory would be free if it were given up.
    pub(super) fn has_bodies(&self) -> bool {
        self.puts.iter().any(|(_, body)| !body.is_empty())
            || matches!(&self.step, Step::Body { body, .. } if body.capacity() > 0)
    }

    /// The body in progress, and the length of the whole with its CRLF.
    pub(super) fn body_in_progress(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let Step::Body { put, body } = &mut self.step else { return None };
        let whole = body_with_crlf(put.size);
        Some((body, whole))
    }

    /// Whether the next byte is one of a line.
    pub(super) fn wants_line(&self) -> bool {
        matches!(self.step, Step::Line | Step::SkipLine(_))
    }

    /// What it takes, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let in_progress = match &self.step {
            Step::Body { put, body } => put.held_bytes() + body.capacity(),
            Step::Line | Step::SkipBody(_) | Step::SkipLine(_) => 0,
        };
        size_of::<Self>() + self.puts.len() * size_of::<(Put, Body)>() + self.kept_bytes + in_progress
    }

    /// The bytes of all bodies.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.puts.iter().map(|(_, body)| body.len()).sum()
    }
}

/// The body of a put that is refused.
fn no_body() -> Body {
    Body::from(Vec::new())
}

impl Described for Complete {
    fn describe(&self, out: &mut Writer<'_>) {
        let Self { id, puts, refusal, kept_bytes: _, left, step } = self;
        id.describe(out);
        refusal.describe(out);
        left.describe(out);
        out.count(puts.len());
        for (put, body) in puts {
            put.describe(out);
            out.bytes(body.as_slice());
        }
        match step {
            Step::Line => 0u8.describe(out),
            Step::Body { put, body } => {
                1u8.describe(out);
                put.describe(out);
                out.bytes(body);
            }
            Step::SkipBody(left) => {
                2u8.describe(out);
                left.describe(out);
            }
            Step::SkipLine(header) => {
                3u8.describe(out);
                header.describe(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut complete = Self::new(from.value()?, 0, from.value()?);
        complete.left = from.value()?;
        let count = from.count()?;
        if count > MAX_COMPLETED_PUTS as usize {
            return Err(Malformed("a complete has too many puts"));
        }
        for _ in 0..count {
            let (put, body) = (from.value()?, from.bytes()?);
            let body = Body::copy_of(body).map_err(|_| Malformed("there is no memory for a body"))?;
            complete.keep(put, body);
        }
        complete.step = match from.value::<u8>()? {
            0 => Step::Line,
            1 => {
                let (put, body): (Put, _) = (from.value()?, from.bytes()?.to_vec());
                if body.len() >= body_with_crlf(put.size) {
                    return Err(Malformed("half a body is a whole one"));
                }
                Step::Body { put, body }
            }
            2 => Step::SkipBody(from.value()?),
            3 => Step::SkipLine(from.value()?),
            _ => return Err(Malformed("the step of a complete")),
        };
        // A put whose body is thrown away may be kept, and is not read yet.
        let (left, both) = (complete.left as usize, usize::from(matches!(complete.step, Step::SkipBody(_))));
        if count + left > MAX_COMPLETED_PUTS as usize + both {
            return Err(Malformed("a complete has too many puts"));
        }
        let is_possible = left > 0 || matches!(complete.step, Step::Line);
        if is_possible { Ok(complete) } else { Err(Malformed("a complete has nothing left")) }
    }
}
