//! The caller of a command, and the outcome: the reply, or what continues the command later.
//!
//! Owns: the steps with which every command ends or is interrupted, and the reasons why a change is not made. The table
//! of commands calls the continuations.

use std::fmt;

use super::Executor;
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::exchange::{self, Complete, Output, Put, Unfinished, Until, WaitKind};
use crate::job::Body;
use crate::orders::Task;
use crate::protocol::Reply;
use crate::queue::ClientId;
use crate::refusal::{ChangeRefusal, CommandRefusal, PutRefusal};

/// The continuation of a command that does not end in its turn. The exchange of its client, or its order, holds it
/// without knowing its contents. It ends with its client.
pub(crate) enum Continuation {
    /// A function that continues the command.
    Function(Box<Resume>),
    /// A job whose body has arrived, to be stored. This kind and the next one are values, because another program can
    /// continue them.
    Put(Box<(Put, Body)>),
    /// A `complete` whose puts have arrived, to be executed.
    Complete(Box<Complete>),
}

pub(crate) type Resume = dyn FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome;

/// The client that gives a command, or an internal one for an order of the API.
///
/// The functions of the hot path take its parts `(client, output, now)` instead, which the compiler keeps in registers:
/// the functions of the executor that every request passes through, and the functions of `put`, `reserve` and `delete`.
/// All other commands take a caller, which also has the order. Helpers that only answer take the output.
pub(crate) struct Caller<'a> {
    pub(crate) client: ClientId,
    /// Takes the reply.
    pub(crate) output: &'a mut Output,
    /// The instant of the turn.
    pub(crate) now: Timestamp,
    /// The order, if the client is an internal one.
    pub(crate) order: Option<&'a mut OrderSlice>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(client: ClientId, output: &'a mut Output, now: Timestamp) -> Self {
        Self { client, output, now, order: None }
    }

    /// Answers that the command cannot be executed for this reason. If it is an order, the order fails.
    pub(crate) fn refuse(&mut self, refusal: impl Into<ChangeRefusal>) -> Outcome {
        let refusal = refusal.into();
        if let Some(order) = &mut self.order {
            order.failure = Some(refusal);
        }
        answer(self.output, &refusal.into())
    }

    /// If the command is an order, adds `count` to the work that its task has done.
    pub(crate) fn count_done(&mut self, count: u64) {
        if let Some(order) = &mut self.order {
            order.task.done += count;
        }
    }
}

/// A turn's share of an order, with the parts of its result that a command of a client does not have.
pub(crate) struct OrderSlice {
    /// The task, with its progress so far.
    pub(crate) task: Task,
    /// The reason why the order cannot continue.
    pub(crate) failure: Option<ChangeRefusal>,
    /// Before this instant, its rate does not permit the next job.
    pub(crate) resumes_at: Option<Timestamp>,
    /// The executor's cost at which the slice ends.
    pub(crate) end: u64,
}

/// The result of a request.
pub(crate) type Outcome = exchange::Outcome<Continuation>;

impl Continuation {
    /// The continuation that this function executes.
    pub(crate) fn new(resume: impl FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome + 'static) -> Self {
        Self::Function(Box::new(resume))
    }

    /// The outcome of a put or a `complete` that continues after `until`.
    #[cold]
    pub(crate) fn later(self, until: Until) -> Outcome {
        let memory_bytes = match &self {
            Self::Put(put) => put.0.memory_bytes() + put.1.len(),
            Self::Complete(complete) => complete.memory_bytes(),
            Self::Function(_) => 0,
        };
        Outcome::Unfinished(Unfinished::Stalled { continuation: self, until, memory_bytes })
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Continuation")
    }
}

/// Puts the reply into the client's output.
pub(crate) fn answer(output: &mut Output, reply: &Reply<'_>) -> Outcome {
    match output.write(reply) {
        Ok(()) => Outcome::Done,
        Err(_) => Outcome::Abort,
    }
}

/// Puts the reply into the client's output, and closes its connection.
pub(crate) fn answer_last(output: &mut Output, reply: &Reply<'_>) -> Outcome {
    match output.write(reply) {
        Ok(()) => Outcome::Close,
        Err(_) => Outcome::Abort,
    }
}

/// Stalls the command, which continues with `continuation` after `until`.
pub(crate) fn stall(
    until: Until,
    continuation: impl FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome + 'static,
) -> Outcome {
    stall_with_memory(0, until, continuation)
}

/// Stalls as `stall` does, for a continuation that uses `memory_bytes`.
pub(crate) fn stall_with_memory(
    memory_bytes: usize,
    until: Until,
    continuation: impl FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome + 'static,
) -> Outcome {
    Outcome::Unfinished(Unfinished::Stalled {
        continuation: Continuation::new(continuation),
        until,
        memory_bytes,
    })
}

/// The client waits for an answer of the queue.
pub(crate) fn wait(kind: WaitKind) -> Outcome {
    Outcome::Unfinished(Unfinished::Waiting(kind))
}

/// The reason why a command has changed nothing, except that a job whose time was over may have ended. `W` is the part
/// of the command that is needed to try it again.
pub(crate) enum NotDone<R, W = ()> {
    Refused(R),
    /// The log has no room yet: the command waits.
    NoRoomYet(W),
}

impl<R: From<PutRefusal>, W> NotDone<R, W> {
    /// The log has no room, for now or permanently.
    pub(crate) fn without_room(no_room: NoRoom, waiting: W) -> Self {
        match no_room {
            NoRoom::Full => PutRefusal::OutOfMemory.into(),
            NoRoom::Pending => Self::NoRoomYet(waiting),
        }
    }
}

impl<R: From<PutRefusal>> From<NoRoom> for NotDone<R> {
    fn from(no_room: NoRoom) -> Self {
        Self::without_room(no_room, ())
    }
}

impl<R: From<PutRefusal>, W> From<PutRefusal> for NotDone<R, W> {
    fn from(refusal: PutRefusal) -> Self {
        Self::Refused(refusal.into())
    }
}

impl From<CommandRefusal> for NotDone<CommandRefusal> {
    fn from(refusal: CommandRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ChangeRefusal> for NotDone<ChangeRefusal> {
    fn from(refusal: ChangeRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The result of a change of one job.
pub(crate) type Changed = Result<(), NotDone<ChangeRefusal>>;

impl Executor {
    /// Changes one job by `change`, which is tried again when the log has room, and answers with `reply`.
    pub(crate) fn change(
        &mut self,
        caller: &mut Caller<'_>,
        reply: Reply<'static>,
        change: impl Fn(&mut Self, ClientId, Timestamp) -> Changed + 'static,
    ) -> Outcome {
        match change(self, caller.client, caller.now) {
            Ok(()) => answer(caller.output, &reply),
            Err(NotDone::Refused(refusal)) => caller.refuse(refusal),
            Err(NotDone::NoRoomYet(())) => {
                stall(Until::BinlogRoom, move |executor, caller| executor.change(caller, reply, change))
            }
        }
    }
}

/// The outcome of a command for which the log has no room, for now or permanently.
pub(crate) fn lacks_room(
    no_room: NoRoom,
    output: &mut Output,
    continuation: impl FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome + 'static,
) -> Outcome {
    match no_room {
        NoRoom::Pending => stall(Until::BinlogRoom, continuation),
        NoRoom::Full => answer(output, &Reply::OutOfMemory),
    }
}
