//! What each command does. Only this file and `persistence.rs` use the queue and the binlog together.
//!
//! Owns: the queue, the counters of commands, drain mode. One short function per verb that
//! needs more than a line: check, reserve, mutate, append. Driven by [`Server`](super::Server).

use std::rc::Rc;

use log::{Level, log_enabled};

use super::admin::Orders;
use super::budget::Meter;
use super::command_log::{log_command, log_reply};
use super::detached_bodies::DetachedBodies;
use super::guard::Guard;
use super::list_jobs::Searches;
use super::memory::MemoryShares;
use super::persistence::Persistence;
use super::tagged_put::PendingTags;
use super::tube_lists::TubeLists;
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::job::{Body, BodyRef, JobId, Priority};
use crate::protocol::{Command, ParseError, PutHeader, Reply, ReplyBuffer};
use crate::queue::{ClientId, Delivery, NewJob, PoisonLimits, Queue, Released, Reserve, WaitOutcome};
use crate::session::{Outcome, Output, Refusal, Request, StalledCommand, Until, Waiting};
use crate::stats::{CommandCounts, Identity, Timings};
use crate::tls::Acceptor;

/// How commands are to be executed.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The largest body that a `put` may carry, in bytes.
    pub max_job_bytes: u64,
    /// The most memory that jobs and connections may take, in bytes.
    pub max_memory_bytes: Option<u64>,
    /// The size of a binlog file, in bytes, for the stats.
    pub binlog_file_bytes: u64,
    /// When a job that fails again and again is buried.
    pub poison: PoisonLimits,
}

/// Bytes of stats and lists that cost as much as a simple request to render and copy.
const DATA_BYTES_PER_WORK: u64 = 64;

/// Executes commands.
#[derive(Debug)]
pub struct Executor {
    pub(super) queue: Queue,
    pub(super) persistence: Persistence,
    pub(super) config: Config,
    pub(super) identity: Identity,
    pub(super) commands: CommandCounts,
    pub(super) draining: bool,
    /// Connections since the start.
    pub(super) connections: u64,
    /// Lines that were no command.
    pub(super) malformed: u64,
    /// Puts that were complete and not stored, because memory or disk was short or the server drains.
    pub(super) rejected_puts: super::refused_puts::RefusedPuts,
    /// Histograms of turns, commands and syncs; recorded only while metrics are served.
    pub(super) timings: Timings,
    /// Commands whose time is in `timings`.
    timed_commands: u64,
    /// Connections that were closed at once since the start.
    pub(super) refused_connections: u64,
    /// What connections with TLS begin with, for its figures.
    pub(super) tls: Option<Rc<Acceptor>>,
    /// Bytes that connections hold: bodies that are not complete, input that is not executed, replies that are not sent.
    pub(super) buffer_bytes: usize,
    pub(super) detached_bodies: DetachedBodies,
    pub(super) tube_lists: TubeLists,
    pub(super) searches: Searches,
    pub(super) pending_tags: PendingTags,
    /// Jobs that were flushed in this turn and may have been given to a client that waited for one, and is not told yet.
    pub(super) flushed_bodies: Vec<(JobId, Body)>,
    /// The orders of the API; `None` if there is no API.
    pub(super) orders: Option<Box<Orders>>,
    /// The access rules; `None` if everybody may do everything.
    pub(super) guard: Option<Box<Guard>>,
    /// Whether the allocator has begun to use its reserve.
    pub(super) is_memory_exhausted: fn() -> bool,
    pub(super) shares: MemoryShares,
    /// The cost of all requests so far, without [`Queue::work`]; a simple request costs 1.
    pub(super) work: u64,
    pub(super) meter: Meter,
}

impl Executor {
    /// An executor with an empty queue.
    #[must_use]
    pub fn new(config: Config, identity: Identity) -> Self {
        Self {
            queue: Queue::new(config.poison),
            persistence: Persistence::default(),
            config,
            identity,
            commands: CommandCounts::default(),
            draining: false,
            connections: 0,
            malformed: 0,
            rejected_puts: Default::default(),
            timings: Timings::default(),
            timed_commands: 0,
            refused_connections: 0,
            tls: None,
            buffer_bytes: 0,
            detached_bodies: DetachedBodies::default(),
            tube_lists: TubeLists::default(),
            searches: Searches::default(),
            pending_tags: PendingTags::default(),
            flushed_bodies: Vec::new(),
            orders: None,
            guard: None,
            is_memory_exhausted: || false,
            shares: MemoryShares::default(),
            work: 0,
            meter: Meter::default(),
        }
    }

    /// The queue, for queries.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Seeds the numbers by which clients in a weighted reserve mode get their tubes.
    pub fn seed(&mut self, seed: u64) {
        self.queue.seed(seed);
    }

    /// Starts or ends drain mode, in which no `put` is accepted.
    pub fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
    }

    /// Records that a turn, and so each of its commands, has taken `ns` nanoseconds.
    pub(super) fn observe_turn(&mut self, ns: u64) {
        let commands = self.commands.total();
        self.timings.turns.observe(ns, 1);
        self.timings.commands.observe(ns, commands - self.timed_commands);
        self.timed_commands = commands;
    }

    /// Counts a connection that was closed at once.
    pub fn count_refused_connection(&mut self) {
        self.refused_connections += 1;
    }

    pub(super) fn connect(&mut self) -> ClientId {
        self.connections += 1;
        self.queue.connect()
    }

    pub(super) fn disconnect(&mut self, client: ClientId, now: Timestamp) {
        self.searches.end(client);
        self.pending_tags.end(client);
        if let Some(guard) = &mut self.guard {
            guard.forget(client);
        }
        self.queue.disconnect(client, now);
        self.persistence.log_changes(&mut self.queue, now);
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        Timestamp::earliest([self.queue.next_deadline(), self.persistence.next_deadline()])
    }

    pub(super) fn poll_delivery(&mut self) -> Option<Delivery> {
        let delivery = self.queue.poll_delivery();
        if delivery.is_none() && !self.flushed_bodies.is_empty() {
            self.flushed_bodies = Vec::new();
        }
        delivery
    }

    pub(super) fn has_deliveries(&self) -> bool {
        self.queue.has_deliveries()
    }

    /// Makes the changes of this turn as durable as they have to be before their replies leave.
    #[inline]
    pub(super) fn commit(&mut self, now: Timestamp) {
        if self.persistence.is_kept() {
            self.persistence.commit(&self.queue, now);
        }
    }

    /// Ends a client's wait with this reply. Returns `None` if the answer came about in this turn and is about to be
    /// delivered.
    pub(super) fn cancel_wait(
        &mut self,
        client: ClientId,
        reply: &Reply<'_>,
        output: &mut Output,
    ) -> Option<Outcome> {
        if !self.queue.stop_waiting(client) {
            return None;
        }
        let start = output.bytes().len();
        let outcome = answer(output, reply);
        trace_reply(client, output, start);
        Some(outcome)
    }

    /// Answers a reserve that has waited.
    pub(super) fn answer_wait(
        &mut self,
        client: ClientId,
        waiting: Waiting,
        wait: WaitOutcome,
        output: &mut Output,
    ) -> Outcome {
        let start = output.bytes().len();
        let outcome = match wait {
            WaitOutcome::Reserved(id) => match waiting {
                Waiting::Batch(most) => self.continue_batch(most, id),
                Waiting::Plain | Waiting::Abortable => self.answer_reserved(id, output),
            },
            WaitOutcome::TimedOut => answer(output, &Reply::TimedOut),
            WaitOutcome::DeadlineSoon => answer(output, &Reply::DeadlineSoon),
        };
        trace_reply(client, output, start);
        outcome
    }

    /// Executes one request of a client, and puts the reply into its output if there is one yet. If the server is
    /// `GUARDED`, access rules decide first; an open server has no such step.
    #[inline]
    pub(super) fn execute<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        request: Request<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        self.work += 1;
        let start = output.bytes().len();
        let outcome = match request {
            Request::Command(command) => {
                self.commands.add(command.verb());
                if log_enabled!(Level::Trace) {
                    log_command(client, &command, self.queue.used_tube(client).as_str());
                }
                self.command::<GUARDED>(client, command, output, now)
            }
            // Other clients may have taken the memory while the body came.
            Request::Put(_, _, body) if self.lacks_memory_for(body.len() + output.held_bytes()) => {
                self.reject_put(&Reply::OutOfMemory, output)
            }
            Request::Put(id, header, body) if GUARDED => {
                self.put_guarded(client, id, header, body, output, now)
            }
            Request::Put(id, header, body) => self.put(client, id, header, body, output, now),
            Request::Malformed(error) => {
                self.malformed += 1;
                answer(
                    output,
                    &match error {
                        ParseError::BadFormat => Reply::BadFormat,
                        ParseError::UnknownCommand => Reply::UnknownCommand,
                    },
                )
            }
            Request::Refused(Refusal::ExpectedCrlf) => answer(output, &Reply::ExpectedCrlf),
            Request::Refused(Refusal::Forbidden) => answer(output, &Reply::Forbidden),
            Request::Refused(Refusal::BadTag) => {
                self.malformed += 1;
                answer(output, &Reply::BadFormat)
            }
            Request::Refused(refusal) => self.reject_put(&refusal.into(), output),
        };
        if GUARDED {
            self.end_audit(client, output, start);
        }
        trace_reply(client, output, start);
        self.persistence.log_changes(&mut self.queue, now);
        outcome
    }

    /// Goes on with a command that was stalled.
    pub(super) fn resume<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        mut command: StalledCommand,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if GUARDED {
            command = match self.guard_stalled(client, command, output) {
                Ok(command) => command,
                Err(outcome) => return outcome,
            };
        }
        let start = output.bytes().len();
        let outcome = match command {
            StalledCommand::Put(id, header, body) => self.put(client, id, header, body, output, now),
            StalledCommand::Release(id, priority, delay_s) => {
                self.release(client, id, priority, delay_s, output, now)
            }
            StalledCommand::Bury(id, priority) => self.bury(client, id, priority, output, now),
            StalledCommand::Kick { state, bound, kicked } => {
                self.kick_from(client, state, bound, kicked, output, now)
            }
            StalledCommand::KickJob(id) => self.kick_job(id, output, now),
            StalledCommand::BeginFlush(tube, is_buried) => self.flush(client, &tube, is_buried, output, now),
            StalledCommand::Flush { flushed } => self.go_on_flushing(client, flushed, output, now),
            StalledCommand::Move(id, tube) => self.move_job(client, id, &tube, output, now),
            StalledCommand::Reprioritize(id, priority) => self.reprioritize(id, priority, output, now),
            StalledCommand::LookForReserved => self.go_on_looking(client, output, now),
            StalledCommand::ListJobs(page) => self.write_jobs(*page, output, now),
            StalledCommand::ListTubes { since } => self.await_list(since, output),
            StalledCommand::Narrowed => self.go_on_narrowed(client, output, now),
            StalledCommand::ListWatched { written, writer } => {
                self.go_on_with_watched(client, written, writer, output)
            }
            StalledCommand::Reserve { timeout_s, waiting } => {
                self.reserve(client, timeout_s, waiting, output, now)
            }
            StalledCommand::ReserveBatch(batch) => self.reserve_batch(client, batch, output, now),
            StalledCommand::DeleteBatch(batch) => self.delete_batch(client, batch, output, now),
            StalledCommand::TouchAll(touch) => self.touch_all(client, touch, output),
        };
        if GUARDED {
            self.end_audit(client, output, start);
        }
        trace_reply(client, output, start);
        self.persistence.log_changes(&mut self.queue, now);
        outcome
    }

    fn command<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        command: Command<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if GUARDED && let Some(outcome) = self.guard_command(client, &command, output, now) {
            return outcome;
        }
        if self.lacks_memory_to(&command, client, output.held_bytes()) {
            return answer(output, &Reply::OutOfMemory);
        }
        let reply = match command {
            Command::Put(header) => return self.accept_put(client, header, output),
            Command::PutWith(header, text) => return self.put_with(client, header, text, None, output),
            Command::Reserve => return self.reserve(client, None, Waiting::Plain, output, now),
            Command::ReserveWithTimeout { timeout_s } => {
                return self.reserve(client, Some(timeout_s), Waiting::Plain, output, now);
            }
            Command::Delete(id) => self.delete(client, id, now),
            Command::Release { id, priority, delay_s } => {
                return self.release(client, id, priority, delay_s, output, now);
            }
            Command::Bury { id, priority } => return self.bury(client, id, priority, output, now),
            Command::Touch(id) => found(self.queue.touch(client, id, now), Reply::Touched),
            Command::Kick { bound } => return self.kick(client, bound, output, now),
            Command::KickJob(id) => return self.kick_job(id, output, now),
            Command::ReserveJob(id) if self.queue.reserve_job(client, id, now) => {
                return self.answer_reserved(id, output);
            }
            Command::ReserveJob(_) => Reply::NotFound,
            Command::Use(tube) => {
                self.queue.use_tube(client, tube);
                Reply::Using(tube)
            }
            Command::Watch { .. } | Command::Ignore(_) => self.change_watched(client, command),
            Command::Peek(id) => self.peek(Some(id)),
            Command::PeekReady => self.peek(self.queue.first_ready(client)),
            Command::PeekDelayed => self.peek(self.queue.first_delayed(client)),
            Command::PeekBuried => self.peek(self.queue.first_buried(client)),
            Command::PauseTube { tube, delay_s } => {
                found(self.queue.pause_tube(tube, delay_s, now), Reply::Paused)
            }
            Command::Stats | Command::StatsJob(_) | Command::StatsTube(_) | Command::StatsGroup(_) => {
                return self.answer_stats(client, command, output, now);
            }
            Command::ListTubes => return self.list_tubes(output),
            Command::ListTubesWatched => return self.list_watched(client, output),
            Command::ListTubeUsed => Reply::Using(self.queue.used_tube(client).as_str()),
            Command::Quit => return Outcome::Close,
            Command::FlushTube(_)
            | Command::FlushBuried(_)
            | Command::ListJobs { .. }
            | Command::PeekReserved
            | Command::Move { .. }
            | Command::Reprioritize { .. }
            | Command::Drain
            | Command::Undrain
            | Command::Auth(_) => return self.manage(client, command, output, now),
            Command::ReserveBatch { .. }
            | Command::DeleteBatch(_)
            | Command::TouchAll
            | Command::ReserveMode(_)
            | Command::ReserveWithAbort { .. } => return self.work_command(client, command, output, now),
        };
        answer(output, &reply)
    }

    /// The line of a `put`. The size is judged before what follows it, as in C.
    pub(super) fn accept_put(&mut self, client: ClientId, header: PutHeader, output: &mut Output) -> Outcome {
        if u64::from(header.size) > self.config.max_job_bytes {
            return Outcome::SkipBody(header, Refusal::JobTooBig);
        }
        self.queue.mark_producer(client);
        let id = self.queue.take_id();
        if self.lacks_memory_for(header.size as usize + output.held_bytes()) {
            return Outcome::SkipBody(header, Refusal::OutOfMemory);
        }
        Outcome::ReadBody(id, header)
    }

    /// A `put` whose body is complete.
    pub(super) fn put(
        &mut self,
        client: ClientId,
        id: JobId,
        header: PutHeader,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if self.draining {
            return self.reject_put(&Reply::Draining, output);
        }
        if header.has_tags {
            return self.put_tagged(client, id, header, body, output, now);
        }
        if self.queue.reserve_put().is_err() {
            return self.reject_put(&Reply::OutOfMemory, output);
        }
        match self.persistence.room_for_put(id, || self.queue.used_tube(client), &body, &[]) {
            Err(NoRoom::Full) => return self.reject_put(&Reply::OutOfMemory, output),
            Err(NoRoom::Pending) => {
                return Outcome::stall(StalledCommand::Put(id, header, body), Until::BinlogRoom);
            }
            Ok(()) => {}
        }
        let PutHeader { priority, delay_s, ttr_s, .. } = header;
        self.queue.put(client, NewJob { id, priority, delay_s, ttr_s }, body, now);
        answer(output, &Reply::Inserted(id))
    }

    /// Refuses a `put` whose body is complete, because memory or disk is short or the server drains.
    #[cold]
    pub(super) fn reject_put(&mut self, reply: &Reply<'_>, output: &mut Output) -> Outcome {
        self.rejected_puts.count(reply);
        answer(output, reply)
    }

    pub(super) fn reserve(
        &mut self,
        client: ClientId,
        timeout_s: Option<u32>,
        waiting: Waiting,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        match self.queue.reserve(client, timeout_s, now) {
            Reserve::Job(id) => self.answer_reserved(id, output),
            Reserve::DeadlineSoon => answer(output, &Reply::DeadlineSoon),
            Reserve::TimedOut => answer(output, &Reply::TimedOut),
            Reserve::Waiting => Outcome::Wait(waiting),
            Reserve::Unfinished => {
                Outcome::stall(StalledCommand::Reserve { timeout_s, waiting }, Until::NextTurn)
            }
        }
    }

    fn answer_reserved(&mut self, id: JobId, output: &mut Output) -> Outcome {
        self.note_reserved(id);
        let body = self.queue.body(id).or_else(|| self.flushed_body(id).map(BodyRef::from));
        answer(output, &body.map_or(Reply::InternalError, |body| Reply::Reserved(id, body)))
    }

    /// A release without delay is done even if the disk is full, because the job must not stay with its client.
    fn release(
        &mut self,
        client: ClientId,
        id: JobId,
        priority: Priority,
        delay_s: u32,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.queue.holds(client, id) {
            return answer(output, &Reply::NotFound);
        }
        match self.persistence.room_for_update() {
            Err(NoRoom::Full) if delay_s == 0 => {}
            Err(no_room) => {
                return lacks_room(no_room, StalledCommand::Release(id, priority, delay_s), output);
            }
            Ok(()) => {}
        }
        let reply = match self.queue.release(client, id, priority, delay_s, now) {
            Released::Queued => Reply::Released,
            Released::Buried => Reply::Buried,
        };
        answer(output, &reply)
    }

    fn bury(
        &mut self,
        client: ClientId,
        id: JobId,
        priority: Priority,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.queue.holds(client, id) {
            return answer(output, &Reply::NotFound);
        }
        if let Err(no_room) = self.persistence.room_for_update() {
            return lacks_room(no_room, StalledCommand::Bury(id, priority), output);
        }
        self.queue.bury(client, id, priority, now);
        answer(output, &Reply::Buried)
    }

    #[inline]
    pub(super) fn delete(&mut self, client: ClientId, id: JobId, now: Timestamp) -> Reply<'static> {
        let Some(body) = self.queue.delete(client, id, now) else { return Reply::NotFound };
        if let Some(watch) = body.watch() {
            self.detach_body(watch, body);
        }
        Reply::Deleted
    }

    pub(super) fn peek(&self, id: Option<JobId>) -> Reply<'_> {
        id.and_then(|id| Some(Reply::Found(id, self.queue.body(id)?))).unwrap_or(Reply::NotFound)
    }

    /// Answers with stats or a short list, if there is what was asked for.
    pub(super) fn answer_data(&mut self, data: Option<Vec<u8>>, output: &mut Output) -> Outcome {
        let Some(data) = data else { return answer(output, &Reply::NotFound) };
        self.work += data.len() as u64 / DATA_BYTES_PER_WORK;
        answer(output, &Reply::Data(&data))
    }
}

/// Puts the reply into the client's output.
pub(super) fn answer(output: &mut Output, reply: &Reply<'_>) -> Outcome {
    match output.write(reply) {
        Ok(()) => Outcome::Done,
        Err(_) => Outcome::Abort,
    }
}

/// The outcome of a command for which the binlog has no room, now or for good.
pub(super) fn lacks_room(no_room: NoRoom, command: StalledCommand, output: &mut Output) -> Outcome {
    match no_room {
        NoRoom::Pending => Outcome::stall(command, Until::BinlogRoom),
        NoRoom::Full => answer(output, &Reply::OutOfMemory),
    }
}

fn found(is_there: bool, reply: Reply<'static>) -> Reply<'static> {
    if is_there { reply } else { Reply::NotFound }
}

/// Logs the reply that begins at `start`, if there is one.
#[inline]
fn trace_reply(client: ClientId, output: &mut Output, start: usize) {
    if log_enabled!(Level::Trace) && output.bytes().len() > start {
        log_reply(client, &output.bytes()[start..]);
    }
}
