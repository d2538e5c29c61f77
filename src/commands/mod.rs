//! The commands. Each is a row of the table here, and a file beside it with all of its work.
//!
//! Owns: the table with the requirements and the action of each command, and the executor, which holds the state on
//! which they work: the queue, the log, the access rules. Only this part changes the queue, and only this part logs the
//! changes. Driven by the turn ([`server`](crate::server)), which passes in one request after the other.
//!
//! These files are not commands:
//!
//! | what all commands share | where |
//! |---|---|
//! | the state, and the steps of every request | `executor`, `invariants`; for another program: `description` |
//! | the log: room for changes, records, replies that wait | `persistence/` |
//! | the access rules: identities, verdicts, the audit, the tubes that a client may see | `guard/` |
//! | the memory limit | `memory/` |
//! | the cost of a turn, and what becomes due in it | `cost` |
//! | lines of the log about commands, refused puts and full dead tubes | `words`, `refused_puts`, `dead_tubes` |
//! | orders of the API | `orders` |
//!
//! Each command checks, reserves room in the log, changes the queue, and appends: every step that can fail comes before
//! the first change. A command that does not end in its turn leaves a [`Continuation`].
//!
//! An operator's order through the API takes the same way, for an internal client of the queue: see `orders`.

mod auth;
mod clients;
mod complete;
mod cost;
mod dead_tubes;
mod delete;
mod description;
mod executor;
mod fields;
mod flush;
mod guard;
mod invariants;
mod kick;
mod list_jobs;
mod list_tubes;
mod memory;
mod orders;
mod persistence;
mod put;
mod refused_puts;
mod release;
mod relocate;
mod reserve;
mod reserve_batch;
mod sessions;
mod stats;
#[cfg(test)]
mod tests;
mod touch;
mod wait_job;
mod watch;
mod words;

use std::fmt;

pub use self::executor::{Executor, ExecutorConfig};
pub use self::memory::MemoryShares;

#[cfg(test)]
pub(crate) use self::guard::WATCHED_NAMES;

use self::Subject::{
    AnyTube, Every, Group, Mentioned, Named, Nothing, OfJob, OfJobAndNamed, OfJobs, Target, Used, Watched,
};
use self::memory::MemoryClass::{self, AddsTube, Free, Margin};
use self::orders::OrderSlice;
use self::reserve_batch::Batch;
use self::touch::TouchAll;
use crate::access::Roles;
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::exchange::{self, Complete, Output, Put, Unfinished, Until, WaitKind};
use crate::job::{Body, JobId, JobState};
use crate::protocol::{Command, IdList, PutHeader, Reply};
use crate::queue::{ClientId, FlushScope, Release};
use crate::refusal::{ChangeRefusal, CommandRefusal, PutRefusal};
use crate::tube_name::TubeNameRef;

/// The continuation of a command that does not end in its turn. The exchange of its client, or its order, holds it
/// without knowing its contents. It ends with its client.
pub(crate) struct Continuation(ContinuationKind);

/// The kinds of continuations.
enum ContinuationKind {
    /// A function that continues the command.
    Function(Box<Resume>),
    /// A job whose body has arrived, to be stored. This kind and the next one are values, because another program can
    /// continue them.
    Put(Box<(Put, Body)>),
    /// A `complete` whose puts have arrived, to be executed.
    Complete(Box<Complete>),
}

type Resume = dyn FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome;

/// The client that gives a command, or an internal one for an order of the API.
///
/// The functions of the hot path take its parts `(client, output, now)` instead, which the compiler keeps in registers:
/// the functions of the executor that every request passes through, and the functions of `put`, `reserve` and `delete`.
/// All other commands take a caller, which also has the order. Helpers that only answer take the output.
struct Caller<'a> {
    client: ClientId,
    /// Takes the reply.
    output: &'a mut Output,
    /// The instant of the turn.
    now: Timestamp,
    /// The order, if the client is an internal one.
    order: Option<&'a mut OrderSlice>,
}

impl<'a> Caller<'a> {
    fn new(client: ClientId, output: &'a mut Output, now: Timestamp) -> Self {
        Self { client, output, now, order: None }
    }

    /// Answers that the command cannot be executed for this reason. If it is an order, the order fails.
    fn refuse(&mut self, refusal: impl Into<ChangeRefusal>) -> Outcome {
        let refusal = refusal.into();
        if let Some(order) = &mut self.order {
            order.failure = Some(refusal);
        }
        answer(self.output, &refusal.into())
    }

    /// If the command is an order, adds `count` to the work that its task has done.
    fn count_done(&mut self, count: u64) {
        if let Some(order) = &mut self.order {
            order.task.done += count;
        }
    }
}

impl ContinuationKind {
    /// The outcome of a put or a `complete` that continues after `until`.
    #[cold]
    fn later(self, until: Until) -> Outcome {
        let memory_bytes = match &self {
            Self::Put(put) => put.0.memory_bytes() + put.1.len(),
            Self::Complete(complete) => complete.memory_bytes(),
            Self::Function(_) => 0,
        };
        Outcome::Unfinished(Unfinished::Stalled { continuation: Continuation(self), until, memory_bytes })
    }
}

/// The result of a request.
pub(crate) type Outcome = exchange::Outcome<Continuation>;

impl Continuation {
    /// The continuation that this function executes.
    fn new(resume: impl FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome + 'static) -> Self {
        Self(ContinuationKind::Function(Box::new(resume)))
    }

    /// Continues the command.
    fn resume(self, server: &mut Executor, caller: &mut Caller<'_>) -> Outcome {
        match self.0 {
            ContinuationKind::Function(resume) => resume(server, caller),
            ContinuationKind::Put(put) => server.continue_put(caller, put.0, put.1),
            ContinuationKind::Complete(complete) => server.continue_complete(caller, complete),
        }
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Continuation")
    }
}

/// The requirements of a command: a row of the table.
#[derive(Clone, Copy, Debug)]
struct CommandRow<'a> {
    /// One of these roles, for the subject, is required.
    roles: Roles,
    subject: Subject<'a>,
    memory: MemoryClass<'a>,
    follows: Follows,
    /// A number of the command, for the log.
    number: Option<u64>,
}

/// The subject of a command: the tubes and jobs for which it needs roles.
#[derive(Clone, Copy, Debug)]
enum Subject<'a> {
    /// Nothing that needs a role: every client may give the command.
    Nothing,
    /// At least one tube: the answer shows only tubes that the client may see.
    AnyTube,
    /// The tube that the command names; the answer shows only tubes that the client may see.
    Mentioned(TubeNameRef<'a>),
    /// All tubes.
    Every,
    /// The tube that the client uses.
    Used,
    /// The target tube of a `put` with this text after its size: the tube that the text names, or the used one.
    Target(&'a [u8]),
    /// The tubes that the client watches. Tubes without the role leave its watch list.
    Watched,
    /// The tube with this name.
    Named(TubeNameRef<'a>),
    /// The group with this name.
    Group(TubeNameRef<'a>),
    /// The tube of this job.
    OfJob(JobId),
    /// The tubes of these jobs. Each is checked when the command reaches it.
    OfJobs(IdList<'a>),
    /// The tube of this job, and its target tube: see [`Roles::MOVE_TARGET`].
    OfJobAndNamed(JobId, TubeNameRef<'a>),
}

/// The input that belongs to a command and follows its line. If the command is refused, the input is skipped, because
/// it must not be executed as commands.
#[derive(Clone, Copy, Debug)]
enum Follows {
    Nothing,
    /// The body of the put with these numbers.
    Body(PutHeader),
    /// This many puts, of the `complete` of this job.
    Puts(JobId, u32),
}

const fn needs<'a>(roles: Roles, subject: Subject<'a>, memory: MemoryClass<'a>) -> CommandRow<'a> {
    CommandRow { roles, subject, memory, follows: Follows::Nothing, number: None }
}

impl CommandRow<'_> {
    fn followed_by(self, follows: Follows) -> Self {
        Self { follows, ..self }
    }

    /// The row with a number for the log.
    fn noting(self, number: impl Into<u64>) -> Self {
        Self { number: Some(number.into()), ..self }
    }

    /// Whether only a manager may give the command.
    fn is_managing(&self) -> bool {
        self.roles == Roles::MANAGE
    }
}

/// Makes two functions of the table: the requirements of a command, and its action.
macro_rules! table {
    (<$guarded:ident> ($server:ident, $caller:ident)
     $($command:pat => $row:expr, $run:expr;)+) => {
        impl<'a> CommandRow<'a> {
            #[inline(always)]
            #[allow(unused_variables, reason = "an argument of the command can be of no concern here")]
            fn of(command: &Command<'a>) -> Self {
                match *command {
                    $($command => $row,)+
                }
            }
        }

        /// Executes the command, which has passed the checks. Each arm makes its own `Caller`, so that the compiler
        /// keeps the callers of the hot path in registers.
        #[inline(always)]
        #[allow(unused_variables, reason = "a command need not answer")]
        fn run<const $guarded: bool>(
            $server: &mut Executor,
            client: ClientId,
            command: Command<'_>,
            output: &mut Output,
            now: Timestamp,
        ) -> Outcome {
            match command {
                $($command => {
                    let $caller = &mut Caller::new(client, output, now);
                    $run
                })+
            }
        }
    };
}

// The table of commands: the role that a command needs and for which subject, its class of memory, and its action. If
// access rules are in force, the server is `GUARDED`; the commands of the hot path are compiled for both.
#[rustfmt::skip]
table! {
    <GUARDED> (server, caller)

    Command::Put(header) => needs(Roles::PRODUCE, Used, Free).followed_by(Follows::Body(header)),
        server.begin_put::<GUARDED>(caller.client, header, b"", caller.output, caller.now);
    Command::PutWith(header, text) => needs(Roles::PRODUCE, Target(text), Free).followed_by(Follows::Body(header)),
        server.begin_put::<GUARDED>(caller.client, header, text, caller.output, caller.now);
    Command::Reserve => needs(Roles::WORK, Watched, Margin),
        server.reserve::<GUARDED, false>(caller.client, None, caller.output, caller.now);
    Command::ReserveWithTimeout { timeout_s } => needs(Roles::WORK, Watched, Margin),
        server.reserve::<GUARDED, false>(caller.client, Some(timeout_s), caller.output, caller.now);
    Command::ReserveWithAbort { timeout_s } => needs(Roles::WORK, Watched, Margin),
        server.reserve::<GUARDED, true>(caller.client, timeout_s, caller.output, caller.now);
    Command::ReserveBatch { max_jobs, timeout_s } => needs(Roles::WORK, Watched, Margin),
        server.reserve_batch(caller, Batch::new(max_jobs, timeout_s));
    Command::ReserveJob(id) => needs(Roles::WORK, OfJob(id), Margin),
        server.reserve_job(caller, id);
    Command::ReserveMode(mode) => needs(Roles::WORK, AnyTube, Margin),
        server.set_mode(caller, mode);
    Command::Delete(id) => needs(Roles::END_JOBS, OfJob(id), Free),
        found(server.delete(caller.client, id, caller.now), Reply::Deleted, caller.output);
    Command::DeleteBatch(ids) => needs(Roles::END_JOBS, OfJobs(ids), Free),
        server.begin_delete_batch(caller, ids);
    Command::Release { id, priority, delay_s, counting } => needs(Roles::WORK, OfJob(id), Free),
        server.release(caller, id, Release { priority, delay_s, counting });
    Command::Bury { id, priority } => needs(Roles::WORK, OfJob(id), Free),
        server.bury(caller, id, priority);
    Command::Touch { id, for_s } => needs(Roles::WORK, OfJob(id), Free),
        server.touch(caller, id, for_s);
    Command::TouchAll => needs(Roles::WORK, AnyTube, Free),
        server.touch_all(caller, TouchAll::new(caller.now));
    Command::Use(tube) => needs(Roles::ANY, Named(tube), AddsTube(tube.as_str())),
        server.use_tube(caller, &tube);
    Command::Watch { tube, weight } => needs(Roles::WORK, Named(tube), AddsTube(tube.as_str())),
        server.watch(caller, &tube, weight);
    Command::Ignore(tube) => needs(Roles::ANY, Mentioned(tube), Free),
        server.ignore(caller, &tube);
    Command::Peek(id) => needs(Roles::SEE_JOBS, OfJob(id), Free),
        server.peek(Some(id), caller.output);
    Command::PeekReady => needs(Roles::SEE_JOBS, Used, Free),
        server.peek(server.queue.peek(caller.client, JobState::Ready), caller.output);
    Command::PeekDelayed => needs(Roles::SEE_JOBS, Used, Free),
        server.peek(server.queue.peek(caller.client, JobState::Delayed), caller.output);
    Command::PeekBuried => needs(Roles::SEE_JOBS, Used, Free),
        server.peek(server.queue.peek(caller.client, JobState::Buried), caller.output);
    Command::PeekReserved => needs(Roles::SEE_JOBS, Used, Margin),
        server.peek_reserved(caller);
    Command::ListJobs { tube, state, limit, after } => needs(Roles::SEE_JOBS, Named(tube), Margin),
        server.list_jobs(caller, (&tube, state), limit, after);
    Command::Kick { bound } => needs(Roles::MANAGE, Used, Margin).noting(bound),
        server.kick(caller, bound);
    Command::KickJob(id) => needs(Roles::MANAGE, OfJob(id), Margin),
        server.change(caller, Reply::KickedJob, move |server, _, now| server.kick_one(id, now));
    Command::Move { id, tube } => needs(Roles::MANAGE, OfJobAndNamed(id, tube), AddsTube(tube.as_str())),
    {
        let tube = Box::<str>::from(tube.as_str());
        server.change(caller, Reply::Moved, move |server, client, now| {
            server.move_one(client, id, &tube, now)
        })
    };
    Command::Reprioritize { id, priority } => needs(Roles::MANAGE, OfJob(id), Margin).noting(priority.0),
        server.change(caller, Reply::Reprioritized, move |server, _, now| {
            server.reprioritize_one(id, priority, now)
        });
    Command::PauseTube { tube, delay_s } => needs(Roles::MANAGE, Named(tube), Margin).noting(delay_s.whole()),
        found(server.queue.pause_tube(&tube, delay_s, caller.now), Reply::Paused, caller.output);
    Command::FlushTube(tube) => needs(Roles::MANAGE, Named(tube), Free),
        server.flush_tube(caller, &tube, FlushScope::All);
    Command::FlushBuried(tube) => needs(Roles::MANAGE, Named(tube), Free),
        server.flush_tube(caller, &tube, FlushScope::Buried);
    Command::Drain => needs(Roles::MANAGE, Every, Free),
    {
        server.set_draining(true);
        answer(caller.output, &Reply::Draining)
    };
    Command::Undrain => needs(Roles::MANAGE, Every, Free),
    {
        server.set_draining(false);
        answer(caller.output, &Reply::NotDraining)
    };
    Command::Stats => needs(Roles::ANY, AnyTube, Free),
        server.stats(caller);
    Command::StatsJob(id) => needs(Roles::SEE_JOBS, OfJob(id), Free),
        server.answer_data(server.stats_job(caller.client, id, caller.now), caller.output);
    Command::StatsTube(tube) => needs(Roles::ANY, Named(tube), Free),
        server.answer_data(server.stats_tube(&tube, caller.now), caller.output);
    Command::StatsGroup(name) => needs(Roles::SEE_JOBS, Group(name), Free),
        server.answer_data(server.stats_group(&name), caller.output);
    Command::ListTubes => needs(Roles::ANY, AnyTube, Free),
        server.list_tubes(caller);
    Command::ListTubesWatched => needs(Roles::ANY, AnyTube, Free),
        server.list_watched(caller);
    Command::ListTubeUsed => needs(Roles::ANY, AnyTube, Free),
        answer(caller.output, &Reply::Using(server.queue.used_tube(caller.client).as_str()));
    Command::Session { name, grace } => needs(Roles::WORK, AnyTube, Margin),
        server.begin_session(caller, &name, grace);
    Command::ListClients { limit, after_client } => needs(Roles::MANAGE, Every, Margin),
        server.list_clients(caller, limit, after_client);
    Command::KillClient { number } => needs(Roles::MANAGE, Every, Free).noting(number),
        server.kill_client(caller, number);
    Command::Complete { id, count } => needs(Roles::END_JOBS, OfJob(id), Free).followed_by(Follows::Puts(id, count)),
        server.begin_complete(caller, (id, count), None);
    Command::WaitJob { id, timeout_s } => needs(Roles::ANY, OfJob(id), Margin),
        server.wait_job(caller, id, timeout_s);
    Command::ReserveFields(fields) => needs(Roles::WORK, AnyTube, Margin),
        server.reserve_fields(caller, fields);
    Command::Auth(token) => needs(Roles::ANY, Nothing, Free),
        server.authenticate(caller, token);
    Command::Quit => needs(Roles::ANY, Nothing, Free),
        Outcome::Close;
}

/// Puts the reply into the client's output.
fn answer(output: &mut Output, reply: &Reply<'_>) -> Outcome {
    match output.write(reply) {
        Ok(()) => Outcome::Done,
        Err(_) => Outcome::Abort,
    }
}

/// Puts the reply into the client's output, and closes its connection.
fn answer_last(output: &mut Output, reply: &Reply<'_>) -> Outcome {
    match output.write(reply) {
        Ok(()) => Outcome::Close,
        Err(_) => Outcome::Abort,
    }
}

/// Answers with this reply if the subject of the command exists; otherwise with NOT_FOUND.
fn found(is_there: bool, reply: Reply<'static>, output: &mut Output) -> Outcome {
    answer(output, &if is_there { reply } else { Reply::NotFound })
}

/// Stalls the command, which continues with `continuation` after `until`.
fn stall(
    until: Until,
    continuation: impl FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome + 'static,
) -> Outcome {
    stall_with_memory(0, until, continuation)
}

/// Stalls as `stall` does, for a continuation that uses `memory_bytes`.
fn stall_with_memory(
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
fn wait(kind: WaitKind) -> Outcome {
    Outcome::Unfinished(Unfinished::Waiting(kind))
}

/// The reason why a command has changed nothing, except that a job whose time was over may have ended. `W` is the part
/// of the command that is needed to try it again.
enum NotDone<R, W = ()> {
    Refused(R),
    /// The log has no room yet: the command waits.
    NoRoomYet(W),
}

impl<R: From<PutRefusal>, W> NotDone<R, W> {
    /// The log has no room, for now or permanently.
    fn without_room(no_room: NoRoom, waiting: W) -> Self {
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
type Changed = Result<(), NotDone<ChangeRefusal>>;

impl Executor {
    /// Changes one job by `change`, which is tried again when the log has room, and answers with `reply`.
    fn change(
        &mut self,
        caller: &mut Caller<'_>,
        reply: Reply<'static>,
        change: impl Fn(&mut Self, ClientId, Timestamp) -> Changed + 'static,
    ) -> Outcome {
        match change(self, caller.client, caller.now) {
            Ok(()) => answer(caller.output, &reply),
            Err(NotDone::Refused(refusal)) => caller.refuse(refusal),
            Err(NotDone::NoRoomYet(())) => {
                stall(Until::BinlogRoom, move |server, caller| server.change(caller, reply, change))
            }
        }
    }
}

/// The outcome of a command for which the log has no room, for now or permanently.
fn lacks_room(
    no_room: NoRoom,
    output: &mut Output,
    continuation: impl FnOnce(&mut Executor, &mut Caller<'_>) -> Outcome + 'static,
) -> Outcome {
    match no_room {
        NoRoom::Pending => stall(Until::BinlogRoom, continuation),
        NoRoom::Full => answer(output, &Reply::OutOfMemory),
    }
}
