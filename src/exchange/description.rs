//! The description of an exchange: everything that another program needs to continue a client's stream.
//!
//! Owns: which parts of an exchange are described. Unsent replies are written as bytes, up to [`MAX_OUTPUT_BYTES`]. A
//! connection that owes more is not described; the server closes it.

use super::activity::LineCount;
use super::outcome::{Unfinished, Until, WaitKind};
use super::put::PutExtras;
use super::{Exchange, Output, Pending, Phase, Put, Unread};
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::protocol::{ReplyBuffer, longest_line};
use crate::refusal::CommandRefusal;
use crate::tags::JobTags;
use crate::tube_name::TubeName;

/// An exchange can be handed over with at most this many bytes of unsent replies. Only an exchange whose last reply has
/// a body of that size can exceed it.
pub(crate) const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

described!(enum CommandRefusal, "the refusal of a command" {
    0 => JobTooBig,
    1 => OutOfMemory,
    2 => BadTag,
    3 => Forbidden,
    4 => ExpectedCrlf,
    5 => NotFound,
    6 => Draining,
    7 => TubeFull,
});
described!(enum WaitKind, "the wait of a client" {
    0 => Job { is_abortable },
    1 => Batch(max_jobs),
    2 => EndOf(id),
});
described!(enum Until, "the event that continues a command" {
    0 => NextTurn,
    1 => BinlogRoom,
    2 => TubeList,
    3 => PutPace,
});
described!(enum Unfinished<R>, "an unfinished command" {
    0 => Waiting(kind),
    1 => Stalled { continuation, until, memory_bytes },
});
// An aborted exchange is closed before the end of its turn.
described!(enum Phase<R>, "the phase of an exchange" {
    0 => WantCommand,
    1 => WantBody(arriving),
    2 => SkipBody { left, refusal },
    3 => SkipLine { is_given_up },
    4 => SkipPutLine(header),
    5 => Unfinished(unfinished),
    6 => Closing,
    7 => Complete(complete);
    Aborted as 6
});

impl Described for Put {
    fn describe(&self, out: &mut Writer<'_>) {
        self.id.describe(out);
        self.header().describe(out);
        out.bytes(self.encoded_tags());
        self.tube().map(Box::<str>::from).describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (id, header, tags) = (from.value()?, from.value()?, from.bytes()?);
        let tube: Option<Box<str>> = from.value()?;
        if !tags.is_empty() && JobTags::decode_checked(tags).is_none() {
            return Err(Malformed("the tags of a put"));
        }
        if tube.as_ref().is_some_and(|name| TubeName::check(name.as_bytes()).is_none()) {
            return Err(Malformed("the tube of a put"));
        }
        let has_extras = !tags.is_empty() || tube.is_some();
        Ok(Self::new(id, header, has_extras.then(|| PutExtras::of_tags(tags.to_vec(), tube))))
    }
}

impl Described for Unread {
    fn describe(&self, out: &mut Writer<'_>) {
        let (is_pending, bytes) = match self {
            Self::Partial(bytes) => (false, &bytes[..]),
            Self::Pending(pending) => (true, pending.bytes()),
        };
        is_pending.describe(out);
        out.bytes(bytes);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (is_pending, bytes) = (from.value()?, from.bytes()?.to_vec());
        if bytes.is_empty() {
            Err(Malformed("input without bytes"))
        } else if is_pending {
            Ok(Self::Pending(Pending { bytes, done: 0 }))
        } else if bytes.len() >= longest_line(&bytes) {
            // It is copied to the start of the buffer into which the rest of the line is read.
            Err(Malformed("a line is too long"))
        } else {
            Ok(Self::Partial(bytes))
        }
    }
}

impl Described for Output {
    fn describe(&self, out: &mut Writer<'_>) {
        out.count(self.len());
        self.each_unsent(|piece| out.raw(piece));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = from.bytes()?;
        let mut output = Self::default();
        output.reserve(bytes.len()).map_err(|_| Malformed("out of memory for a reply"))?;
        output.bytes().extend_from_slice(bytes);
        Ok(output)
    }
}

impl<R: Described> Described for Exchange<R> {
    fn describe(&self, out: &mut Writer<'_>) {
        // The memory is checked again before the next command.
        let Self { phase, unread, output, lines: _, is_memory_low: _ } = self;
        phase.describe(out);
        unread.describe(out);
        output.describe(out);
        self.line_count().describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (phase, unread, output) = (from.value()?, from.value::<Option<Box<Unread>>>()?, from.value()?);
        let lines = LineCount::new(from.value()?);
        let fits = match (&phase, unread.as_deref()) {
            (Phase::Closing | Phase::Aborted, unread) => unread.is_none(),
            (Phase::WantCommand | Phase::SkipLine { .. } | Phase::SkipPutLine(_), _) => true,
            (Phase::Complete(complete), Some(Unread::Partial(_))) => complete.wants_line(),
            (
                Phase::WantBody(_) | Phase::SkipBody { .. } | Phase::Unfinished(_) | Phase::Complete(_),
                unread,
            ) => !matches!(unread, Some(Unread::Partial(_))),
        };
        if !fits {
            return Err(Malformed("the input of an exchange does not match its phase"));
        }
        Ok(Self { phase, unread, is_memory_low: false, lines, output })
    }
}
