//! What each command does. Here alone the queue meets the binlog.
//!
//! Owns: the queue, the counters of commands, drain mode. One short function per verb that
//! needs more than a line: check, reserve, mutate, append. Driven by [`Server`](super::Server).

use log::{Level, log_enabled, trace};

use super::orphans::Orphans;
use super::persistence::Journal;
use super::stats::{self, Identity};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::connection::{Connection, Refusal, Request};
use crate::job::{Body, JobId, JobState, Priority};
use crate::metrics::Timings;
use crate::protocol::{Command, ParseError, PutHeader, Reply, Verb, write_list};
use crate::queue::{ClientId, Delivery, NewJob, PoisonLimits, Queue, Released, Reserve, WaitOutcome};

/// How commands are to be executed.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The largest body that a `put` may carry, in bytes.
    pub max_job_bytes: u64,
    /// The most memory that jobs and connections may take, in bytes.
    pub max_memory_bytes: Option<u64>,
    /// The size of a binlog file, in bytes, for the stats.
    pub binlog_file_bytes: u64,
    /// When a job is given up.
    pub poison: PoisonLimits,
}

/// How the connection goes on after a command.
#[derive(Debug)]
pub enum Next {
    GoOn,
    /// The client waits in a reserve.
    Wait,
    /// The command, and the client with it, waits for the next file of the binlog.
    Stall(Box<Stalled>),
    Close,
}

/// A command that has passed its checks, but for which the binlog has no room before its next file is made.
#[derive(Debug)]
pub enum Stalled {
    Put(JobId, PutHeader, Body),
    Release(JobId, Priority, u32),
    Bury(JobId, Priority),
    /// A kick that has `kicked` so many already.
    Kick {
        state: JobState,
        bound: u64,
        kicked: u64,
    },
    KickJob(JobId),
}

/// A reply, or how to go on without one.
type Answer<'a> = Result<Reply<'a>, Next>;

/// How often each command was given.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandCounts([u64; Verb::COUNT]);

impl CommandCounts {
    /// How often `verb` was given.
    #[must_use]
    pub fn of(&self, verb: Verb) -> u64 {
        self.0[verb as usize]
    }

    /// How many commands were given.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, verb: Verb) {
        self.0[verb as usize] += 1;
    }
}

/// Executes commands.
#[derive(Debug)]
pub struct Executor {
    pub(super) queue: Queue,
    pub(super) journal: Journal,
    pub(super) config: Config,
    pub(super) identity: Identity,
    pub(super) commands: CommandCounts,
    pub(super) draining: bool,
    /// Connections since the start.
    pub(super) connections: u64,
    /// Lines that were no command.
    pub(super) malformed: u64,
    /// Bodies that came whole and were not stored for a reason of the server's.
    pub(super) rejected_puts: u64,
    /// How long things have taken; kept up only while metrics are served.
    pub(super) timings: Timings,
    /// Commands whose time is in `timings`.
    timed_commands: u64,
    /// Connections that were closed at once since the start.
    pub(super) refused_connections: u64,
    /// What all connections hold that is not a job yet, or not sent yet.
    pub(super) buffer_bytes: usize,
    orphans: Orphans,
    /// Tells whether the allocator lives on its last reserve.
    is_memory_exhausted: fn() -> bool,
    /// The last stats or list, until it is in the reply.
    data: Vec<u8>,
}

impl Executor {
    /// An executor with an empty queue.
    #[must_use]
    pub fn new(config: Config, identity: Identity) -> Self {
        Self {
            queue: Queue::new(config.poison),
            journal: Journal::default(),
            config,
            identity,
            commands: CommandCounts::default(),
            draining: false,
            connections: 0,
            malformed: 0,
            rejected_puts: 0,
            timings: Timings::default(),
            timed_commands: 0,
            refused_connections: 0,
            buffer_bytes: 0,
            orphans: Orphans::default(),
            is_memory_exhausted: || false,
            data: Vec::new(),
        }
    }

    /// The queue, to look at.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Starts or ends drain mode, in which no `put` is accepted.
    pub fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
    }

    /// A turn has taken so many nanoseconds; so has each of its commands.
    pub(super) fn observe_turn(&mut self, ns: u64) {
        let commands = self.commands.total();
        self.timings.turns.observe(ns, 1);
        self.timings.commands.observe(ns, commands - self.timed_commands);
        self.timed_commands = commands;
    }

    /// From now on `is_exhausted` is asked before a command that needs memory for more than a moment; while
    /// it says yes, such commands are answered OUT_OF_MEMORY.
    pub fn watch_memory(&mut self, is_exhausted: fn() -> bool) {
        self.is_memory_exhausted = is_exhausted;
    }

    /// Counts a connection that was closed at once.
    pub fn count_refused_connection(&mut self) {
        self.refused_connections += 1;
    }

    /// What jobs and connections use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.queue.job_bytes() + self.buffer_bytes + self.orphans.bytes()
    }

    /// Whether `bytes` more for a client are too many, beside what its connection holds and what is
    /// counted in `buffer_bytes` for the others.
    pub(super) fn lacks_memory_for(&self, bytes: usize, connection: &Connection) -> bool {
        let used = self.memory_bytes() + connection.held_bytes();
        let bound = self.config.max_memory_bytes;
        (self.is_memory_exhausted)() || bound.is_some_and(|bound| (used + bytes) as u64 > bound)
    }

    pub(super) fn connect(&mut self) -> ClientId {
        self.connections += 1;
        self.queue.connect()
    }

    pub(super) fn disconnect(&mut self, client: ClientId, now: Timestamp) {
        self.queue.disconnect(client, now);
        self.journal.log_changes(&mut self.queue);
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        self.queue.advance(now);
        self.journal.log_changes(&mut self.queue);
        self.journal.advance(now);
        self.orphans.tend();
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        [self.queue.next_deadline(), self.journal.next_deadline()].into_iter().flatten().min()
    }

    pub(super) fn poll_delivery(&mut self) -> Option<Delivery> {
        self.queue.poll_delivery()
    }

    pub(super) fn has_deliveries(&self) -> bool {
        self.queue.has_deliveries()
    }

    /// Makes the changes of this turn as durable as they have to be before their replies leave.
    pub(super) fn commit(&mut self, now: Timestamp) {
        self.journal.commit(&self.queue, now);
    }

    /// Ends a client's wait because it will send no more (protocol, "reserve"); unless its answer has come
    /// about in this very turn, and is only to be delivered.
    pub(super) fn give_up_wait(&mut self, client: ClientId, connection: &mut Connection) {
        if self.queue.stop_waiting(client) {
            connection.stop_waiting();
            write_reply(client, connection, &Reply::TimedOut);
        }
    }

    /// Answers a reserve that has waited.
    pub(super) fn answer_wait(
        &mut self,
        client: ClientId,
        outcome: WaitOutcome,
        connection: &mut Connection,
    ) {
        connection.stop_waiting();
        match outcome {
            WaitOutcome::Reserved(id) => {
                let reply =
                    self.queue.body(id).map_or(Reply::InternalError, |body| Reply::Reserved(id, body));
                write_reply(client, connection, &reply);
            }
            WaitOutcome::TimedOut => write_reply(client, connection, &Reply::TimedOut),
            WaitOutcome::DeadlineSoon => write_reply(client, connection, &Reply::DeadlineSoon),
        }
    }

    /// Executes one request of a client, and puts the reply into its output if there is one yet.
    pub(super) fn execute(
        &mut self,
        client: ClientId,
        connection: &mut Connection,
        request: Request<'_>,
        now: Timestamp,
    ) -> Next {
        let answer = match request {
            Request::Command(command) => {
                self.commands.add(command.verb());
                if log_enabled!(Level::Trace) {
                    trace!("<{} command {}", client.index, command.verb().as_str());
                }
                self.answer(client, connection, command, now)
            }
            // Others may have taken the room while the body came.
            Request::Put(_, _, body) if self.lacks_memory_for(body.len(), connection) => {
                self.count_rejection(Ok(Reply::OutOfMemory))
            }
            Request::Put(id, header, body) => self.put(client, id, header, body, now),
            Request::Malformed(error) => {
                self.malformed += 1;
                Ok(match error {
                    ParseError::BadFormat => Reply::BadFormat,
                    ParseError::UnknownCommand => Reply::UnknownCommand,
                })
            }
            Request::Refused(refusal) => self.count_rejection(Ok(refusal.into())),
        };
        let next = finish(client, connection, answer);
        self.journal.log_changes(&mut self.queue);
        next
    }

    /// Executes a command again that has waited for room in the binlog.
    pub(super) fn resume(
        &mut self,
        client: ClientId,
        connection: &mut Connection,
        stalled: Stalled,
        now: Timestamp,
    ) -> Next {
        let answer = match stalled {
            Stalled::Put(id, header, body) => self.put(client, id, header, body, now),
            Stalled::Release(id, priority, delay_s) => self.release(client, id, priority, delay_s, now),
            Stalled::Bury(id, priority) => self.bury(client, id, priority),
            Stalled::Kick { state, bound, kicked } => self.kick_from(client, state, bound, kicked, now),
            Stalled::KickJob(id) => self.kick_job(id, now),
        };
        let next = finish(client, connection, answer);
        self.journal.log_changes(&mut self.queue);
        next
    }

    fn answer<'a>(
        &'a mut self,
        client: ClientId,
        connection: &mut Connection,
        command: Command<'a>,
        now: Timestamp,
    ) -> Answer<'a> {
        if needs_memory(&command) && (self.is_memory_exhausted)() {
            return Ok(Reply::OutOfMemory);
        }
        Ok(match command {
            Command::Put(header) => return self.accept_put(client, connection, header),
            Command::Reserve => return self.reserve(client, connection, None, now),
            Command::ReserveWithTimeout { timeout_s } => {
                return self.reserve(client, connection, Some(timeout_s), now);
            }
            Command::Release { id, priority, delay_s } => {
                return self.release(client, id, priority, delay_s, now);
            }
            Command::Bury { id, priority } => return self.bury(client, id, priority),
            Command::Kick { bound } => return self.kick(client, bound, now),
            Command::KickJob(id) => return self.kick_job(id, now),
            Command::Quit => return Err(Next::Close),
            Command::Use(tube) => {
                self.queue.use_tube(client, tube);
                Reply::Using(tube)
            }
            Command::Watch(tube) => Reply::Watching(self.queue.watch(client, tube)),
            Command::Ignore(tube) => {
                self.queue.ignore(client, tube).map_or(Reply::NotIgnored, Reply::Watching)
            }
            Command::ReserveJob(id) => {
                if self.queue.reserve_job(client, id, now) {
                    self.reserved(id)
                } else {
                    Reply::NotFound
                }
            }
            Command::Delete(id) => self.delete(client, id),
            Command::Touch(id) => found(self.queue.touch(client, id, now), Reply::Touched),
            Command::Peek(id) => self.peek(Some(id)),
            Command::PeekReady => self.peek(self.queue.first_ready(client)),
            Command::PeekDelayed => self.peek(self.queue.first_delayed(client)),
            Command::PeekBuried => self.peek(self.queue.first_buried(client)),
            Command::PauseTube { tube, delay_s } => {
                found(self.queue.pause_tube(tube, delay_s, now), Reply::Paused)
            }
            Command::Stats => self.data(Some(stats::server(self, now))),
            Command::StatsJob(id) => self.data(stats::job(self, id, now)),
            Command::StatsTube(tube) => self.data(stats::tube(self, tube, now)),
            Command::ListTubes if !has_room_for_list(self.queue.tube_count()) => Reply::OutOfMemory,
            Command::ListTubesWatched if !has_room_for_list(self.queue.watched_tubes(client).count()) => {
                Reply::OutOfMemory
            }
            Command::ListTubes => {
                let list = write_list(self.queue.tube_names().map(|name| name.as_str()));
                self.data(Some(list))
            }
            Command::ListTubesWatched => {
                let list = write_list(self.queue.watched_tubes(client).map(|name| name.as_str()));
                self.data(Some(list))
            }
            Command::ListTubeUsed => Reply::Using(self.queue.used_tube(client).as_str()),
        })
    }

    /// The line of a `put`. The size is judged before what follows it, as in C.
    fn accept_put(
        &mut self,
        client: ClientId,
        connection: &mut Connection,
        header: PutHeader,
    ) -> Answer<'static> {
        if u64::from(header.size) > self.config.max_job_bytes {
            connection.skip_body(header, Refusal::JobTooBig);
            return Err(Next::GoOn);
        }
        if header.has_trailing_text {
            return Ok(Reply::BadFormat);
        }
        self.queue.mark_producer(client);
        let id = self.queue.take_id();
        if self.lacks_memory_for(header.size as usize, connection) {
            connection.skip_body(header, Refusal::OutOfMemory);
        } else {
            connection.expect_body(id, header);
        }
        Err(Next::GoOn)
    }

    /// A `put` whose body has come whole.
    fn put(
        &mut self,
        client: ClientId,
        id: JobId,
        header: PutHeader,
        body: Body,
        now: Timestamp,
    ) -> Answer<'static> {
        if self.draining {
            return self.count_rejection(Ok(Reply::Draining));
        }
        if self.queue.reserve_put().is_err() {
            return self.count_rejection(Ok(Reply::OutOfMemory));
        }
        if let Err(no_room) = self.journal.room_for_put(self.queue.used_tube(client), &body) {
            return self.count_rejection(refuse(no_room, Stalled::Put(id, header, body)));
        }
        let PutHeader { priority, delay_s, ttr_s, .. } = header;
        self.queue.put(client, NewJob { id, priority, delay_s, ttr_s }, body, now);
        Ok(Reply::Inserted(id))
    }

    fn count_rejection(&mut self, answer: Answer<'static>) -> Answer<'static> {
        let rejected = matches!(answer, Ok(Reply::Draining | Reply::JobTooBig | Reply::OutOfMemory));
        self.rejected_puts += u64::from(rejected);
        answer
    }

    fn reserve(
        &mut self,
        client: ClientId,
        connection: &mut Connection,
        timeout_s: Option<u32>,
        now: Timestamp,
    ) -> Answer<'_> {
        match self.queue.reserve(client, timeout_s, now) {
            Reserve::Job(id) => Ok(self.reserved(id)),
            Reserve::DeadlineSoon => Ok(Reply::DeadlineSoon),
            Reserve::TimedOut => Ok(Reply::TimedOut),
            Reserve::Waiting => {
                connection.wait();
                Err(Next::Wait)
            }
        }
    }

    fn reserved(&self, id: JobId) -> Reply<'_> {
        self.queue.body(id).map_or(Reply::InternalError, |body| Reply::Reserved(id, body))
    }

    /// A release without delay goes on where the disk is full: the job must not stay with its client.
    fn release(
        &mut self,
        client: ClientId,
        id: JobId,
        priority: Priority,
        delay_s: u32,
        now: Timestamp,
    ) -> Answer<'static> {
        if !self.queue.holds(client, id) {
            return Ok(Reply::NotFound);
        }
        match self.journal.room_for_update() {
            Err(NoRoom::Full) if delay_s == 0 => {}
            Err(no_room) => return refuse(no_room, Stalled::Release(id, priority, delay_s)),
            Ok(()) => {}
        }
        Ok(match self.queue.release(client, id, priority, delay_s, now) {
            Released::Queued => Reply::Released,
            Released::Buried => Reply::Buried,
        })
    }

    fn bury(&mut self, client: ClientId, id: JobId, priority: Priority) -> Answer<'static> {
        if !self.queue.holds(client, id) {
            return Ok(Reply::NotFound);
        }
        if let Err(no_room) = self.journal.room_for_update() {
            return refuse(no_room, Stalled::Bury(id, priority));
        }
        self.queue.bury(client, id, priority);
        Ok(Reply::Buried)
    }

    fn delete(&mut self, client: ClientId, id: JobId) -> Reply<'static> {
        let body = self.queue.body(id).and_then(|body| Some((body.watch()?, body.len())));
        let deleted = self.queue.delete(client, id);
        if let Some((body, bytes)) = body.filter(|_| deleted) {
            self.orphans.watch(body, bytes);
        }
        found(deleted, Reply::Deleted)
    }

    fn peek(&self, id: Option<JobId>) -> Reply<'_> {
        id.and_then(|id| Some(Reply::Found(id, self.queue.body(id)?))).unwrap_or(Reply::NotFound)
    }

    /// Buried jobs if there are any, else delayed ones (protocol, "kick").
    fn kick(&mut self, client: ClientId, bound: u64, now: Timestamp) -> Answer<'static> {
        let any_buried = self.queue.first_buried(client).is_some();
        let state = if any_buried { JobState::Buried } else { JobState::Delayed };
        self.kick_from(client, state, bound, 0, now)
    }

    /// Goes on with a kick that has `kicked` so many. Where the disk is full it says what it did.
    fn kick_from(
        &mut self,
        client: ClientId,
        state: JobState,
        bound: u64,
        mut kicked: u64,
        now: Timestamp,
    ) -> Answer<'static> {
        while kicked < bound
            && let Some(id) = self.queue.next_to_kick(client, state)
        {
            match self.journal.room_for_update() {
                Err(NoRoom::Full) if kicked > 0 => break,
                Err(no_room) => return refuse(no_room, Stalled::Kick { state, bound, kicked }),
                Ok(()) => self.queue.kick(id, now),
            }
            self.journal.log_changes(&mut self.queue);
            kicked += 1;
        }
        Ok(Reply::Kicked(kicked))
    }

    fn kick_job(&mut self, id: JobId, now: Timestamp) -> Answer<'static> {
        if !self.queue.is_kickable(id) {
            return Ok(Reply::NotFound);
        }
        if let Err(no_room) = self.journal.room_for_update() {
            return refuse(no_room, Stalled::KickJob(id));
        }
        self.queue.kick(id, now);
        Ok(Reply::KickedJob)
    }

    fn data(&mut self, data: Option<Vec<u8>>) -> Reply<'_> {
        match data {
            Some(data) => {
                self.data = data;
                Reply::Data(&self.data)
            }
            None => Reply::NotFound,
        }
    }
}

/// Whether a command leaves more behind than it found: tubes, watch lists, waits, histories of jobs. A
/// `put` does, too, but has a body to be skipped.
fn needs_memory(command: &Command<'_>) -> bool {
    use Command::{Kick, KickJob, Reserve, ReserveJob, ReserveWithTimeout, Use, Watch};
    matches!(
        command,
        Use(_) | Watch(_) | Reserve | ReserveWithTimeout { .. } | ReserveJob(_) | Kick { .. } | KickJob(_)
    )
}

/// Whether a list of this many tubes, which clients can make grow without end, finds room, with the
/// reply that carries it.
fn has_room_for_list(tubes: usize) -> bool {
    /// Up to this many the allocator's reserve would do.
    const SHORT: usize = 1000;
    /// A name and what stands around it, in a buffer that is doubled and copied while it grows.
    const BYTES_PER_TUBE: usize = 4 * 203;
    tubes <= SHORT || Vec::<u8>::new().try_reserve_exact(tubes * BYTES_PER_TUBE).is_ok()
}

/// Puts the reply into the client's output, if the answer is one.
fn finish(client: ClientId, connection: &mut Connection, answer: Answer<'_>) -> Next {
    match answer {
        Ok(reply) => {
            write_reply(client, connection, &reply);
            Next::GoOn
        }
        Err(next) => next,
    }
}

/// The answer to a command that the binlog has no room for, now or for good.
fn refuse(no_room: NoRoom, stalled: Stalled) -> Answer<'static> {
    match no_room {
        NoRoom::Pending => Err(Next::Stall(Box::new(stalled))),
        NoRoom::Full => Ok(Reply::OutOfMemory),
    }
}

fn found(is_there: bool, reply: Reply<'static>) -> Reply<'static> {
    if is_there { reply } else { Reply::NotFound }
}

fn write_reply(client: ClientId, connection: &mut Connection, reply: &Reply<'_>) {
    let start = connection.output.bytes().len();
    reply.write(&mut connection.output);
    if log_enabled!(Level::Trace) {
        // The line alone: what follows it may be anybody's secret, and long.
        let line = connection.output.bytes()[start..].split(|&byte| byte == b'\r').next();
        trace!(">{} reply {}", client.index, String::from_utf8_lossy(line.unwrap_or_default()));
    }
}
