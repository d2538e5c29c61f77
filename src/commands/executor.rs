//! The executor: the state on which commands work, and the steps that all commands share.
//!
//! Owns: the queue, the log, the counters of commands, drain mode; that each command is counted, checked, traced and
//! logged. The table defines the commands. Driven by [`Server`](crate::server::Server).

use log::{Level, log_enabled};

use super::clients::ClientRecords;
use super::complete::CompleteBuffers;
use super::cost::CostMeter;
use super::guard::Guard;
use super::list_tubes::TubeLists;
use super::memory::{MemoryShares, MemoryUse};
use super::orders::Orders;
use super::persistence::Persistence;
use super::refused_puts::RefusedPuts;
use super::words::{log_command, log_reply};
use super::{Caller, CommandRow, Continuation, Follows, Outcome, answer, answer_last, run};
use crate::clock::Timestamp;
use crate::exchange::{Output, Request, WaitKind};
use crate::protocol::{Command, ParseError, Reply, ReplyBuffer};
use crate::queue::{ClientId, Delivery, PoisonLimits, Queue, Slices, TubeRule, WaitOutcome};
use crate::rate_limited_log::RateLimitedLog;
use crate::refusal::CommandRefusal;
use crate::stats::{CommandCounts, ServerInfo, Timings};

/// The settings of the executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExecutorConfig {
    /// The largest body that a `put` may carry, in bytes.
    pub max_job_bytes: u64,
    /// The maximum memory of jobs and connections, in bytes.
    pub max_memory_bytes: Option<u64>,
    /// The size of a binlog file, in bytes, for the stats.
    pub binlog_file_bytes: u64,
    /// When a job that fails again and again is buried.
    pub poison: PoisonLimits,
    /// The shares of the memory.
    pub shares: MemoryShares,
    /// For the random numbers with which clients in a weighted reserve mode choose their tubes.
    pub seed: u64,
}

/// The server's counts since its start, beside the queue's own counters.
#[derive(Debug, Default)]
pub(super) struct ServerCounters {
    pub(super) commands: CommandCounts,
    pub(super) connections: u64,
    /// Connections that a limit, or lack of memory, has ended before they could do anything.
    pub(super) refused_connections: u64,
    /// Lines that were not commands.
    pub(super) malformed: u64,
    /// Complete puts that were not stored, because memory or disk space was low, or because of drain mode.
    pub(super) refused_puts: RefusedPuts,
    /// Jobs that full dead tubes did not take, which the queue counts.
    pub(super) full_dead_tubes: RateLimitedLog,
    /// Histograms of turns, commands and syncs; recorded only while metrics are served.
    pub(super) timings: Timings,
    /// Commands whose time is in `timings`.
    pub(super) timed_commands: u64,
}

/// Executes commands.
#[derive(Debug)]
pub struct Executor {
    pub(super) queue: Queue,
    pub(super) persistence: Persistence,
    /// The access rules; `None` if every client may do everything.
    pub(super) guard: Option<Box<Guard>>,
    /// The orders of the API; `None` if there is no API.
    pub(super) orders: Option<Box<Orders>>,
    pub(super) memory: MemoryUse,
    pub(super) meter: CostMeter,
    pub(super) clients: ClientRecords,
    pub(super) tube_lists: TubeLists,
    pub(super) complete_buffers: CompleteBuffers,
    pub(super) is_draining: bool,
    pub(super) info: ServerInfo,
    pub(super) counters: ServerCounters,
}

impl Executor {
    /// An executor with an empty queue.
    #[must_use]
    pub fn new(config: ExecutorConfig, info: ServerInfo) -> Self {
        let mut queue = Queue::new(config.poison, Slices::default());
        queue.seed(config.seed);
        queue.limit_cooldowns(config.shares.max_cooldown_s);
        Self {
            queue,
            persistence: Persistence::new(config.binlog_file_bytes),
            guard: None,
            orders: None,
            memory: MemoryUse::new(config.max_memory_bytes, config.max_job_bytes, config.shares),
            meter: CostMeter::default(),
            clients: ClientRecords::default(),
            tube_lists: TubeLists::default(),
            complete_buffers: CompleteBuffers::default(),
            is_draining: false,
            info,
            counters: ServerCounters::default(),
        }
    }

    /// The queue, for queries.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether the server is in drain mode.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Starts or ends drain mode, in which no `put` is accepted.
    pub fn set_draining(&mut self, draining: bool) {
        self.is_draining = draining;
    }

    /// Records that a turn, and therefore each of its commands, has taken `ns` nanoseconds.
    pub(crate) fn observe_turn(&mut self, ns: u64) {
        let ServerCounters { commands, timings, timed_commands, .. } = &mut self.counters;
        timings.turns.observe(ns, 1);
        timings.commands.observe(ns, commands.total() - *timed_commands);
        *timed_commands = commands.total();
    }

    /// Counts a connection that a limit, or lack of memory, ends before it could do anything.
    pub fn count_refused_connection(&mut self) {
        self.counters.refused_connections += 1;
    }

    pub(crate) fn connect(&mut self) -> ClientId {
        self.counters.connections += 1;
        self.queue.connect()
    }

    pub(crate) fn disconnect(&mut self, client: ClientId, now: Timestamp) {
        if let Some(guard) = &mut self.guard {
            guard.forget(client, now);
        }
        self.clients.forget(client);
        self.queue.disconnect(client, now);
        self.persistence.log_changes(&mut self.queue, now);
    }

    #[inline(always)]
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        Timestamp::earliest([self.queue.next_deadline(), self.persistence.next_deadline()])
    }

    pub(crate) fn poll_delivery(&mut self) -> Option<Delivery> {
        let delivery = self.queue.poll_delivery();
        if delivery.is_none() && !self.clients.flushed.is_empty() {
            self.clients.flushed = Vec::new();
        }
        delivery
    }

    pub(crate) fn has_deliveries(&self) -> bool {
        self.queue.has_deliveries()
    }

    /// Puts new rules for tubes in force. Called between two turns; the next turn serves clients that wait.
    pub fn set_tube_rules(&mut self, rules: Vec<TubeRule>, now: Timestamp) {
        self.queue.set_tube_rules(rules, now);
    }

    /// Makes the changes of this turn as durable as they must be before their replies are sent. Returns whether
    /// commands that have waited for room in the log can continue.
    #[inline]
    pub(crate) fn commit(&mut self, now: Timestamp) -> bool {
        if self.persistence.binlog().is_none() {
            return false;
        }
        self.persistence.commit(&self.queue, now);
        let has_caught_up = self.persistence.take_end_of_catch_up();
        if has_caught_up {
            self.wake_orders();
        }
        has_caught_up
    }

    /// Ends a client's wait with this reply. Returns `None` if the wait was already answered in this turn and the
    /// answer is about to be delivered.
    pub(crate) fn cancel_wait(
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

    /// Answers a client that has waited.
    pub(crate) fn answer_wait(
        &mut self,
        client: ClientId,
        kind: WaitKind,
        end: WaitOutcome,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let start = output.bytes().len();
        let caller = &mut Caller::new(client, output, now);
        let outcome = match end {
            WaitOutcome::Reserved(id) => match kind {
                WaitKind::Batch(max_jobs) => self.begin_delivered_batch(caller, max_jobs, id),
                WaitKind::Job { .. } | WaitKind::EndOf(_) => {
                    debug_assert!(!matches!(kind, WaitKind::EndOf(_)), "the client waits for a job");
                    self.answer_delivered(caller, id, kind.is_abortable())
                }
            },
            WaitOutcome::TimedOut => answer(caller.output, &Reply::TimedOut),
            WaitOutcome::DeadlineSoon => answer(caller.output, &Reply::DeadlineSoon),
            WaitOutcome::Ended(id, end) => {
                debug_assert_eq!(kind, WaitKind::EndOf(id), "the client waits for the end of this job");
                self.answer_awaited_end(caller, id, end)
            }
        };
        trace_reply(client, output, start);
        outcome
    }

    /// Executes one request of a client, and puts the reply into its output, if there is one yet. If the server is
    /// `GUARDED`, access rules decide first; an open server does not have this step. `GUARDED` is a constant from the
    /// turn of a connection to the line of a put, so that an open server checks nothing there, which saves 26
    /// instructions for a job that is put, reserved and deleted; all other code asks `is_guarded`.
    #[inline]
    pub(crate) fn execute<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        request: Request<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        self.meter.cost += 1;
        let start = output.bytes().len();
        let outcome = match request {
            Request::Command(command) => {
                self.note_line(client, &command);
                self.command::<GUARDED>(client, command, output, now)
            }
            // Other clients may have taken the memory while the body arrived.
            Request::Put(_, body) if self.lacks_memory_for(body.len() + output.memory_bytes()) => {
                self.refuse_put(CommandRefusal::OutOfMemory, output)
            }
            Request::Put(put, body) if GUARDED => {
                self.put_guarded(&mut Caller::new(client, output, now), put, body)
            }
            Request::Put(put, body) => self.put(client, put, body, output, now),
            Request::Malformed(error) => {
                self.counters.malformed += 1;
                answer(
                    output,
                    &match error {
                        ParseError::BadFormat => Reply::BadFormat,
                        ParseError::UnknownCommand => Reply::UnknownCommand,
                    },
                )
            }
            Request::Refused(refusal) => self.refuse_put(refusal, output),
            Request::Puts(complete, line) => {
                self.continue_puts::<GUARDED>(&mut Caller::new(client, output, now), complete, line)
            }
            Request::CompleteWith(id, header, body) => {
                self.complete_with::<GUARDED>(&mut Caller::new(client, output, now), id, (header, body))
            }
            Request::Lost => {
                self.counters.malformed += 1;
                answer_last(output, &Reply::BadFormat)
            }
        };
        self.end_request::<GUARDED>(client, output, start, now);
        outcome
    }

    /// Resumes a stalled command.
    pub(crate) fn resume(
        &mut self,
        client: ClientId,
        continuation: Continuation,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        self.meter.cost += 1;
        let start = output.bytes().len();
        let outcome = continuation.resume(self, &mut Caller::new(client, output, now));
        self.end_request::<true>(client, output, start, now);
        outcome
    }

    /// Handles the outcome of a request. Its reply is in the output from `start` on. `GUARDED` may be true on an open
    /// server: `end_audit` looks for the rules.
    #[inline(always)]
    fn end_request<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        output: &mut Output,
        start: usize,
        now: Timestamp,
    ) {
        if GUARDED {
            self.end_audit(client, output, start);
        }
        trace_reply(client, output, start);
        self.persistence.log_changes(&mut self.queue, now);
    }

    /// Counts the line of a command, and logs it if the level of the log is `trace`.
    #[inline(always)]
    pub(super) fn note_line(&mut self, client: ClientId, command: &Command<'_>) {
        self.counters.commands.add(command.verb());
        if log_enabled!(Level::Trace) {
            log_command(client, command, self.queue.used_tube(client).as_str());
        }
    }

    #[inline]
    fn command<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        command: Command<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if GUARDED {
            let refused = self.guard_command(&mut Caller::new(client, output, now), &command);
            if let Some(outcome) = refused {
                return outcome;
            }
        }
        let row = CommandRow::of(&command);
        if self.lacks_memory_to(row.memory, client, output.memory_bytes()) {
            debug_assert!(
                matches!(row.follows, Follows::Nothing),
                "the input that follows is not skipped here"
            );
            return answer(output, &Reply::OutOfMemory);
        }
        let outcome = run::<GUARDED>(self, client, command, output, now);
        debug_assert!(
            !matches!(row.follows, Follows::Nothing)
                || !matches!(outcome, Outcome::ReadBody(_) | Outcome::SkipBody(..) | Outcome::ReadPuts(_)),
            "the row says what follows the line"
        );
        outcome
    }
}

/// Logs the reply that begins at `start`, if there is one.
#[inline]
fn trace_reply(client: ClientId, output: &mut Output, start: usize) {
    if log_enabled!(Level::Trace) && output.bytes().len() > start {
        log_reply(client, &output.bytes()[start..]);
    }
}
