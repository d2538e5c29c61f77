//! What executing a request comes to, and what is kept of a command that is not finished.

use std::vec;

use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState, Priority};
use crate::protocol::{ListWriter, PutHeader, Reply};

/// What a request has come to. [`Session::apply`](super::Session::apply) makes a phase of it.
#[derive(Debug)]
#[must_use = "an outcome has to be applied to the session"]
pub enum Outcome {
    /// The reply is in the output.
    Done,
    /// A `put` is accepted: its body comes next, and belongs to the job with this id.
    ReadBody(JobId, PutHeader),
    /// A `put` is refused: its body comes next, is thrown away, and then answered.
    SkipBody(PutHeader, Refusal),
    /// A reserve found no job. A delivery answers it later.
    Wait(Waiting),
    /// The command is not finished. The client's later commands wait.
    Stall(Box<Stalled>),
    /// The client has asked for the end.
    Close,
    /// There is no memory for the reply: the connection ends at once, so that what it holds is free.
    Abort,
}

impl Outcome {
    /// The command goes on when `until` has come.
    pub fn stall(command: StalledCommand, until: Until) -> Self {
        Self::Stall(Box::new(Stalled { command, until }))
    }
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

/// A command that has passed its checks and is not finished. It ends with its client.
#[derive(Debug)]
pub struct Stalled {
    /// What is left to be done.
    pub command: StalledCommand,
    /// When it goes on.
    pub until: Until,
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

/// What is left of a stalled command.
#[derive(Debug)]
#[allow(missing_docs, reason = "the commands' own words; doc/protocol.md explains them")]
pub enum StalledCommand {
    Put(JobId, PutHeader, Body),
    Release(JobId, Priority, u32),
    Bury(JobId, Priority),
    /// A kick that has moved `kicked` jobs so far.
    Kick {
        state: JobState,
        bound: u64,
        kicked: u64,
    },
    KickJob(JobId),
    /// A list of all tubes for a client that asked when their set was at the version `since`.
    ListTubes {
        since: u64,
    },
    /// A list or stats of the tubes that the client may see, of which the guard knows how far they are.
    Narrowed,
    /// A list of watched tubes that has the first `written` of them. The watch list stays as it is until the reply.
    ListWatched {
        written: usize,
        writer: ListWriter,
    },
    /// A flush of the tube of this name, of buried jobs alone if so, that has not begun.
    BeginFlush(Box<str>, bool),
    /// A flush that has deleted `flushed` jobs so far.
    Flush {
        flushed: u64,
    },
    /// A job to be moved to the tube of this name.
    Move(JobId, Box<str>),
    Reprioritize(JobId, Priority),
    /// A look for reserved jobs, of which the executor knows how far it is.
    LookForReserved,
    /// A page of jobs of which some are written.
    ListJobs(Box<JobPage>),
    /// A reserve that has not looked at all of its tubes.
    Reserve {
        timeout_s: Option<u32>,
        waiting: Waiting,
    },
    /// A batch of which some jobs are reserved.
    ReserveBatch(Box<Batch>),
    DeleteBatch(Box<DeleteBatch>),
    TouchAll(TouchAll),
}

/// A `touch-all` that came at `at`, and has touched all reservations up to `after` in the order of their ends but those that it
/// has passed over.
#[derive(Clone, Copy, Debug)]
pub struct TouchAll {
    /// The instant of the command.
    pub at: Timestamp,
    /// The last one that it has looked at.
    pub after: Option<(Timestamp, JobId)>,
    /// How many it has passed over.
    pub passed: u64,
}

/// A `reserve-batch` that is being executed.
#[derive(Debug)]
pub struct Batch {
    /// How many jobs the client wants at most.
    pub most: u32,
    /// How long it waits for the first; `None`: not at all.
    pub timeout_s: Option<u32>,
    /// The jobs that are reserved for it so far.
    pub ids: Vec<JobId>,
    /// What their replies copy, in bytes.
    pub own_bytes: usize,
    /// How long their replies are, in bytes.
    pub all_bytes: usize,
}

impl Batch {
    /// One without jobs.
    #[must_use]
    pub fn new(most: u32, timeout_s: Option<u32>) -> Self {
        Self { most, timeout_s, ids: Vec::new(), own_bytes: 0, all_bytes: 0 }
    }
}

/// A `delete-batch` that is being executed.
#[derive(Debug)]
pub struct DeleteBatch {
    /// The jobs that are left.
    pub ids: vec::IntoIter<JobId>,
    /// How many were deleted.
    pub deleted: u64,
    /// How many ids were of no job that the client may delete.
    pub missing: u64,
}

/// A page of `list-jobs` that is being written.
#[derive(Debug)]
pub struct JobPage {
    /// The tube's name.
    pub tube: Box<str>,
    /// The state of its jobs.
    pub state: JobState,
    /// The jobs that are not written yet.
    pub jobs: vec::IntoIter<JobId>,
    /// What is written.
    pub writer: ListWriter,
}

impl Stalled {
    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match &self.command {
            StalledCommand::Put(_, _, body) => body.len(),
            StalledCommand::ListWatched { writer, .. } => writer.held_bytes(),
            StalledCommand::ListJobs(page) => page.writer.held_bytes(),
            StalledCommand::ReserveBatch(batch) => batch.ids.capacity() * size_of::<JobId>(),
            StalledCommand::DeleteBatch(batch) => batch.ids.len() * size_of::<JobId>(),
            _ => 0,
        }
    }
}
