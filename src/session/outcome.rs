//! What executing a request comes to.

use crate::job::JobId;
use crate::protocol::{PutHeader, Reply};

/// What a request has come to. [`Session::apply`](super::Session::apply) makes a phase of it. `R` is what is left of a command
/// that is not finished, of which a session knows nothing.
#[derive(Debug)]
#[must_use = "an outcome has to be applied to the session"]
pub enum Outcome<R> {
    /// The reply is in the output.
    Done,
    /// A `put` is accepted: its body comes next, and belongs to the job with this id.
    ReadBody(JobId, PutHeader),
    /// A `put` is refused: its body comes next, is thrown away, and then answered.
    SkipBody(PutHeader, Refusal),
    /// A reserve found no job. A delivery answers it later.
    Wait(Waiting),
    /// The command has passed its checks and is not finished. The client's later commands wait.
    Stall {
        /// What is left to be done.
        rest: R,
        /// When it goes on.
        until: Until,
        /// Memory that the rest takes, in bytes.
        held_bytes: usize,
    },
    /// The client has asked for the end.
    Close,
    /// There is no memory for the reply: the connection ends at once, so that what it holds is free.
    Abort,
}

/// Which reserve waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// `reserve` or `reserve-with-timeout`.
    Plain,
    /// `reserve-with-abort`: it ends at the client's next byte.
    Abortable,
    /// `reserve-batch` for this many jobs, of which it waits for the first.
    Batch(u32),
}

/// Why a body is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is above the server's limit.
    JobTooBig,
    /// There is no memory for it.
    OutOfMemory,
    /// A tag is wrong.
    BadTag,
    /// The client may not put it.
    Forbidden,
    /// What follows it is not CRLF.
    ExpectedCrlf,
}

impl From<Refusal> for Reply<'_> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::JobTooBig => Self::JobTooBig,
            Refusal::OutOfMemory => Self::OutOfMemory,
            Refusal::BadTag => Self::BadFormat,
            Refusal::Forbidden => Self::Forbidden,
            Refusal::ExpectedCrlf => Self::ExpectedCrlf,
        }
    }
}

/// What a stalled command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Nothing: it has more to do than fits in a turn, and goes on in the next one.
    NextTurn,
    /// The next file of the binlog: there is no room before.
    BinlogRoom,
    /// The list of all tubes, which is made once for all clients that ask at the same time.
    TubeList,
    /// The instant at which the client's identity may put again.
    Permitted,
}
