//! The reasons for which the server refuses a command of a client, or an order of the API.
//!
//! Owns: the reasons, which of several counts, the reply to each, and the words for operators. [`crate::http`] has the
//! status of the response to each.

use std::fmt;

use crate::job::JobId;
use crate::protocol::Reply;

/// The reason why a command is refused, with its body if it has one. If a `complete` has several reasons, the first in
/// this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandRefusal {
    /// There is no such job, or the client may not know it.
    NotFound,
    /// The client does not have the permission.
    Forbidden,
    /// The job is above the server's limit.
    JobTooBig,
    /// There is no memory or disk space for the job.
    OutOfMemory,
    /// The server is in drain mode.
    Draining,
    /// A rule limits the job's tube, which has no room for it.
    TubeFull,
    /// A tag is wrong.
    BadTag,
    /// The bytes after the body are not CRLF.
    ExpectedCrlf,
}

/// The reason why the server does not store the job of a put, whether a client or an order puts it. Some changes of a
/// job need room as a put does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutRefusal {
    /// See [`CommandRefusal::JobTooBig`].
    JobTooBig,
    /// See [`CommandRefusal::OutOfMemory`].
    OutOfMemory,
    /// See [`CommandRefusal::Draining`].
    Draining,
    /// See [`CommandRefusal::TubeFull`].
    TubeFull,
}

/// The reason why a job, or everything in an order, stays unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeRefusal {
    /// A reason for which puts are refused, too.
    Put(PutRefusal),
    /// There is no such job.
    NotFound,
    /// There is no such tube.
    NoTube,
    /// There is no such client.
    NoClient,
    /// A client has reserved the job.
    Reserved,
    /// The job's state does not allow the change.
    WrongState,
    /// No rule has sent the job to a dead tube.
    NotDead,
    /// A job of the other tube has the same `idp` key.
    KeyExists(JobId),
}

/// The reason in a sentence, for the log and the API.
impl fmt::Display for ChangeRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Put(PutRefusal::JobTooBig) => "the body is longer than the server's largest job (-z)",
            Self::Put(PutRefusal::OutOfMemory) => "the server has no memory or disk space for it",
            Self::Put(PutRefusal::Draining) => "the server is draining: it takes no jobs",
            Self::Put(PutRefusal::TubeFull) => "a rule limits the jobs of the tube, and it is full",
            Self::NotFound => "there is no such job",
            Self::NoTube => "there is no such tube",
            Self::NoClient => "there is no such client",
            Self::Reserved => "a client has reserved the job",
            Self::WrongState => "the job is in a state in which this cannot be done",
            Self::NotDead => "the job is not dead: no rule has sent it to a dead tube",
            Self::KeyExists(_) => "a job of the other tube has the same idp key",
        })
    }
}

impl From<PutRefusal> for CommandRefusal {
    fn from(refusal: PutRefusal) -> Self {
        match refusal {
            PutRefusal::JobTooBig => Self::JobTooBig,
            PutRefusal::OutOfMemory => Self::OutOfMemory,
            PutRefusal::Draining => Self::Draining,
            PutRefusal::TubeFull => Self::TubeFull,
        }
    }
}

impl From<PutRefusal> for ChangeRefusal {
    fn from(refusal: PutRefusal) -> Self {
        Self::Put(refusal)
    }
}

impl From<CommandRefusal> for Reply<'_> {
    fn from(refusal: CommandRefusal) -> Self {
        match refusal {
            CommandRefusal::NotFound => Self::NotFound,
            CommandRefusal::JobTooBig => Self::JobTooBig,
            CommandRefusal::OutOfMemory => Self::OutOfMemory,
            CommandRefusal::Draining => Self::Draining,
            CommandRefusal::TubeFull => Self::TubeFull,
            CommandRefusal::BadTag => Self::BadFormat,
            CommandRefusal::Forbidden => Self::Forbidden,
            CommandRefusal::ExpectedCrlf => Self::ExpectedCrlf,
        }
    }
}

impl From<ChangeRefusal> for Reply<'_> {
    fn from(refusal: ChangeRefusal) -> Self {
        match refusal {
            ChangeRefusal::Put(refusal) => CommandRefusal::from(refusal).into(),
            ChangeRefusal::NotFound
            | ChangeRefusal::NoTube
            | ChangeRefusal::NoClient
            | ChangeRefusal::Reserved
            | ChangeRefusal::WrongState
            | ChangeRefusal::NotDead => Self::NotFound,
            ChangeRefusal::KeyExists(id) => Self::Exists(id),
        }
    }
}
