//! The commands. Each is a row of the table here, and a file beside it with all of its work.
//!
//! Owns: the table with the requirements and the action of each command; [`execute()`], the steps of every request; and
//! the slices of long work. The state on which the commands work is [`executor`](crate::executor). Only these two parts
//! change the queue and log the changes. Driven by the turn ([`server`](crate::server)), which passes in one request
//! after the other.
//!
//! Each command checks, reserves room in the log, changes the queue, and appends: every step that can fail comes before
//! the first change. A command that does not end in its turn leaves a [`Continuation`](crate::executor::Continuation).
//!
//! An operator's order through the API takes the same way, for an internal client of the queue: see `orders`.

mod auth;
mod clients;
mod complete;
mod delete;
mod execute;
mod fields;
mod flush;
mod kick;
mod list_jobs;
mod list_tubes;
mod orders;
mod put;
mod release;
mod relocate;
mod reserve;
mod reserve_batch;
mod sessions;
mod stats;
#[cfg(test)]
mod tests;
mod touch;
mod visible_tubes;
mod wait_job;
mod watch;

pub(crate) use self::execute::{answer_wait, cancel_wait, execute, resume};

use self::reserve_batch::Batch;
use self::touch::TouchAll;
use crate::access::Roles;
use crate::clock::Timestamp;
use crate::exchange::Output;
use crate::executor::MemoryClass::{AddsTube, Free, Margin};
use crate::executor::Subject::{
    AnyTube, Every, Group, Mentioned, Named, Nothing, OfJob, OfJobAndNamed, OfJobs, Target, Used, Watched,
};
use crate::executor::{Caller, CommandRow, Executor, Follows, Outcome, answer, needs};
use crate::job::JobState;
use crate::protocol::{Command, Reply};
use crate::queue::{ClientId, FlushScope, Release};

/// Makes two functions of the table: the requirements of a command, and its action.
macro_rules! table {
    (<$guarded:ident> ($executor:ident, $caller:ident)
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
            $executor: &mut Executor,
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
    <GUARDED> (executor, caller)

    Command::Put(header) => needs(Roles::PRODUCE, Used, Free).followed_by(Follows::Body(header)),
        executor.begin_put::<GUARDED>(caller.client, header, b"", caller.output, caller.now);
    Command::PutWith(header, text) => needs(Roles::PRODUCE, Target(text), Free).followed_by(Follows::Body(header)),
        executor.begin_put::<GUARDED>(caller.client, header, text, caller.output, caller.now);
    Command::Reserve => needs(Roles::WORK, Watched, Margin),
        executor.reserve::<GUARDED, false>(caller.client, None, caller.output, caller.now);
    Command::ReserveWithTimeout { timeout_s } => needs(Roles::WORK, Watched, Margin),
        executor.reserve::<GUARDED, false>(caller.client, Some(timeout_s), caller.output, caller.now);
    Command::ReserveWithAbort { timeout_s } => needs(Roles::WORK, Watched, Margin),
        executor.reserve::<GUARDED, true>(caller.client, timeout_s, caller.output, caller.now);
    Command::ReserveBatch { max_jobs, timeout_s } => needs(Roles::WORK, Watched, Margin),
        executor.reserve_batch(caller, Batch::new(max_jobs, timeout_s));
    Command::ReserveJob(id) => needs(Roles::WORK, OfJob(id), Margin),
        executor.reserve_job(caller, id);
    Command::ReserveMode(mode) => needs(Roles::WORK, AnyTube, Margin),
        executor.set_mode(caller, mode);
    Command::Delete(id) => needs(Roles::END_JOBS, OfJob(id), Free),
        found(executor.delete(caller.client, id, caller.now), Reply::Deleted, caller.output);
    Command::DeleteBatch(ids) => needs(Roles::END_JOBS, OfJobs(ids), Free),
        executor.begin_delete_batch(caller, ids);
    Command::Release { id, priority, delay_s, counting } => needs(Roles::WORK, OfJob(id), Free),
        executor.release(caller, id, Release { priority, delay_s, counting });
    Command::Bury { id, priority } => needs(Roles::WORK, OfJob(id), Free),
        executor.bury(caller, id, priority);
    Command::Touch { id, for_s } => needs(Roles::WORK, OfJob(id), Free),
        executor.touch(caller, id, for_s);
    Command::TouchAll => needs(Roles::WORK, AnyTube, Free),
        executor.touch_all(caller, TouchAll::new(caller.now));
    Command::Use(tube) => needs(Roles::ANY, Named(tube), AddsTube(tube.as_str())),
        executor.use_tube(caller, &tube);
    Command::Watch { tube, weight } => needs(Roles::WORK, Named(tube), AddsTube(tube.as_str())),
        executor.watch(caller, &tube, weight);
    Command::Ignore(tube) => needs(Roles::ANY, Mentioned(tube), Free),
        executor.ignore(caller, &tube);
    Command::Peek(id) => needs(Roles::SEE_JOBS, OfJob(id), Free),
        executor.peek(Some(id), caller.output);
    Command::PeekReady => needs(Roles::SEE_JOBS, Used, Free),
        executor.peek(executor.queue.peek(caller.client, JobState::Ready), caller.output);
    Command::PeekDelayed => needs(Roles::SEE_JOBS, Used, Free),
        executor.peek(executor.queue.peek(caller.client, JobState::Delayed), caller.output);
    Command::PeekBuried => needs(Roles::SEE_JOBS, Used, Free),
        executor.peek(executor.queue.peek(caller.client, JobState::Buried), caller.output);
    Command::PeekReserved => needs(Roles::SEE_JOBS, Used, Margin),
        executor.peek_reserved(caller);
    Command::ListJobs { tube, state, limit, after } => needs(Roles::SEE_JOBS, Named(tube), Margin),
        executor.list_jobs(caller, (&tube, state), limit, after);
    Command::Kick { bound } => needs(Roles::MANAGE, Used, Margin).noting(bound),
        executor.kick(caller, bound);
    Command::KickJob(id) => needs(Roles::MANAGE, OfJob(id), Margin),
        executor.change(caller, Reply::KickedJob, move |executor, _, now| executor.kick_one(id, now));
    Command::Move { id, tube } => needs(Roles::MANAGE, OfJobAndNamed(id, tube), AddsTube(tube.as_str())),
    {
        let tube = Box::<str>::from(tube.as_str());
        executor.change(caller, Reply::Moved, move |executor, client, now| {
            executor.move_one(client, id, &tube, now)
        })
    };
    Command::Reprioritize { id, priority } => needs(Roles::MANAGE, OfJob(id), Margin).noting(priority.0),
        executor.change(caller, Reply::Reprioritized, move |executor, _, now| {
            executor.reprioritize_one(id, priority, now)
        });
    Command::PauseTube { tube, delay_s } => needs(Roles::MANAGE, Named(tube), Margin).noting(delay_s.whole()),
        found(executor.queue.pause_tube(&tube, delay_s, caller.now), Reply::Paused, caller.output);
    Command::FlushTube(tube) => needs(Roles::MANAGE, Named(tube), Free),
        executor.flush_tube(caller, &tube, FlushScope::All);
    Command::FlushBuried(tube) => needs(Roles::MANAGE, Named(tube), Free),
        executor.flush_tube(caller, &tube, FlushScope::Buried);
    Command::Drain => needs(Roles::MANAGE, Every, Free),
    {
        executor.set_draining(true);
        answer(caller.output, &Reply::Draining)
    };
    Command::Undrain => needs(Roles::MANAGE, Every, Free),
    {
        executor.set_draining(false);
        answer(caller.output, &Reply::NotDraining)
    };
    Command::Stats => needs(Roles::ANY, AnyTube, Free),
        executor.stats(caller);
    Command::StatsJob(id) => needs(Roles::SEE_JOBS, OfJob(id), Free),
        executor.answer_data(executor.stats_job(caller.client, id, caller.now), caller.output);
    Command::StatsTube(tube) => needs(Roles::ANY, Named(tube), Free),
        executor.answer_data(executor.stats_tube(&tube, caller.now), caller.output);
    Command::StatsGroup(name) => needs(Roles::SEE_JOBS, Group(name), Free),
        executor.answer_data(executor.stats_group(&name), caller.output);
    Command::ListTubes => needs(Roles::ANY, AnyTube, Free),
        executor.list_tubes(caller);
    Command::ListTubesWatched => needs(Roles::ANY, AnyTube, Free),
        executor.list_watched(caller);
    Command::ListTubeUsed => needs(Roles::ANY, AnyTube, Free),
        answer(caller.output, &Reply::Using(executor.queue.used_tube(caller.client).as_str()));
    Command::Session { name, grace } => needs(Roles::WORK, AnyTube, Margin),
        executor.begin_session(caller, &name, grace);
    Command::ListClients { limit, after_client } => needs(Roles::MANAGE, Every, Margin),
        executor.list_clients(caller, limit, after_client);
    Command::KillClient { number } => needs(Roles::MANAGE, Every, Free).noting(number),
        executor.kill_client(caller, number);
    Command::Complete { id, count } => needs(Roles::END_JOBS, OfJob(id), Free).followed_by(Follows::Puts(id, count)),
        executor.begin_complete(caller, (id, count), None);
    Command::WaitJob { id, timeout_s } => needs(Roles::ANY, OfJob(id), Margin),
        executor.wait_job(caller, id, timeout_s);
    Command::ReserveFields(fields) => needs(Roles::WORK, AnyTube, Margin),
        executor.reserve_fields(caller, fields);
    Command::Auth(token) => needs(Roles::ANY, Nothing, Free),
        executor.authenticate(caller, token);
    Command::Quit => needs(Roles::ANY, Nothing, Free),
        Outcome::Close;
}

/// Answers with this reply if the subject of the command exists; otherwise with NOT_FOUND.
fn found(is_there: bool, reply: Reply<'static>, output: &mut Output) -> Outcome {
    answer(output, &if is_there { reply } else { Reply::NotFound })
}
