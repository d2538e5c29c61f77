//! The result of executing a request.

use super::{Complete, Put};
use crate::protocol::{PutHeader, Reply};

/// The result of a request. [`Session::apply`](super::Session::apply) makes a phase of it. `R` is what is left of a
/// command that is not finished, of which a session knows nothing.
#[derive(Debug)]
#[must_use = "an outcome has to be applied to the session"]
pub enum Outcome<R> {
    /// The reply is in the output.
    Done,
    /// A `put` is accepted: its body comes next.
    ReadBody(Put),
    /// A `put` is refused: its body comes next, is thrown away, and then answered.
    SkipBody(PutHeader, BodyRefusal),
    /// The puts of a `complete` come next.
    ReadPuts(Box<Complete>),
    /// The line of a put of a `complete` is accepted, or refused: its body comes next, and is thrown away then.
    OfComplete(Result<Put, (PutHeader, BodyRefusal)>),
    /// The command has passed its checks and is not finished. The client's later commands wait.
    Stall {
        /// The rest of the command.
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

/// Why a body is not stored. If there are several reasons in a `complete`, the first in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyRefusal {
    /// There is no such job that the client could complete.
    NotFound,
    /// The client may not put it.
    Forbidden,
    /// It is above the server's limit.
    JobTooBig,
    /// There is no memory for it.
    OutOfMemory,
    /// A tag is wrong.
    BadTag,
    /// The bytes behind it are not CRLF.
    ExpectedCrlf,
}

impl From<BodyRefusal> for Reply<'_> {
    fn from(refusal: BodyRefusal) -> Self {
        match refusal {
            BodyRefusal::NotFound => Self::NotFound,
            BodyRefusal::JobTooBig => Self::JobTooBig,
            BodyRefusal::OutOfMemory => Self::OutOfMemory,
            BodyRefusal::BadTag => Self::BadFormat,
            BodyRefusal::Forbidden => Self::Forbidden,
            BodyRefusal::ExpectedCrlf => Self::ExpectedCrlf,
        }
    }
}

/// The event that an unfinished command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The queue's answer to a reserve, or the end of what the client sends.
    Delivery,
    /// The queue's answer to a reserve, the end of what the client sends, or its next byte.
    DeliveryOrInput,
    /// Nothing: it has more to do than fits in a turn, and goes on in the next one.
    NextTurn,
    /// The next file of the binlog: there is no room before.
    BinlogRoom,
    /// The list of all tubes, which is made once for all clients that ask at the same time.
    TubeList,
    /// The instant at which the client's identity may put again, or at which an order goes on that has a rate.
    Permitted,
}

impl Until {
    /// Whether a delivery of the queue ends it.
    #[must_use]
    pub fn is_delivery(self) -> bool {
        match self {
            Self::Delivery | Self::DeliveryOrInput => true,
            Self::NextTurn | Self::BinlogRoom | Self::TubeList | Self::Permitted => false,
        }
    }
}
