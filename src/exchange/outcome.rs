//! The result of executing a request.
//!
//! Owns: the steps that an exchange can be asked to take next, and the events for which an unfinished command can wait.
//! The executor makes an outcome, and the exchange applies it.

use super::{Complete, Put};
use crate::job::JobId;
use crate::protocol::PutHeader;
use crate::refusal::CommandRefusal;

/// The result of a request. [`Exchange::apply`](super::Exchange::apply) turns it into a phase. `R` is the
/// continuation of an unfinished command, whose contents an exchange does not know.
#[derive(Debug)]
#[must_use = "an outcome has to be applied to the exchange"]
pub enum Outcome<R> {
    /// The reply is in the output.
    Done,
    /// A `put` is accepted: its body comes next.
    ReadBody(Put),
    /// A `put` is refused: its body comes next and is skipped, and then the refusal is answered.
    SkipBody(PutHeader, CommandRefusal),
    /// The puts of a `complete`, or the rest of them, come next.
    ReadPuts(Box<Complete>),
    /// The command has passed its checks and is not finished. The client's later commands wait.
    Unfinished(Unfinished<R>),
    /// The connection is to be closed once the replies have been sent.
    Close,
    /// There is no memory for the reply: the connection ends at once, so that its memory is freed.
    Abort,
}

/// A command that is not finished.
#[derive(Debug)]
pub enum Unfinished<R> {
    /// The client waits for an answer of the queue. The end of its input ends the wait.
    Waiting(WaitKind),
    /// The command continues by itself.
    Stalled {
        /// What continues the command.
        continuation: R,
        /// When it continues.
        until: Until,
        /// Memory that the continuation takes, in bytes.
        memory_bytes: usize,
    },
}

/// What a client waits for in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// A job.
    Job {
        /// Whether the client's next byte ends the wait, too.
        is_abortable: bool,
    },
    /// The first job of a batch of at most this many.
    Batch(u32),
    /// The end of this job.
    EndOf(JobId),
}

impl WaitKind {
    pub(crate) fn is_abortable(self) -> bool {
        matches!(self, Self::Job { is_abortable: true })
    }
}

/// The event for which a stalled command waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// No event: it has more work than fits in a turn, and continues in the next one.
    NextTurn,
    /// The next file of the binlog: there is no room before that.
    BinlogRoom,
    /// The list of all tubes, which is made once for all clients that ask at the same time.
    TubeList,
    /// The instant at which the pace of the client's identity permits its puts.
    PutPace,
}
