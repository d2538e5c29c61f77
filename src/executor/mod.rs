//! The executor: the state on which the commands work, and the services that they share.
//!
//! Owns: the queue, the log, the access rules, the counters; the caller of a command and its outcome. Knows no command:
//! [`commands`](crate::commands) has them, with their table. The state of a command that lives longer than the command
//! has a file here. Driven by [`Server`](crate::server::Server) and by the commands.
//!
//! | what the commands share | where |
//! |---|---|
//! | the caller, the reply, what continues a command later | `outcome` |
//! | what a command requires, and its words in the log | `row` |
//! | the log: room for changes, records, replies that wait | `persistence/` |
//! | the access rules: identities, verdicts, the audit, puts that wait for their pace | `guard/` |
//! | the memory limit, and memory that is used again | `memory/`, `spares` |
//! | the cost of a turn, and what becomes due in it | `cost` |
//! | lines of the log about refused puts and full dead tubes | `refused_puts`, `dead_tubes` |
//! | lists and pages, and who waits for which | `lists` |
//! | orders of the API, fields of RESERVED lines, bodies of flushed jobs | `orders`, `fields`, `flushed_jobs` |
//! | all of it, as another program takes it over, and as debug builds check it | `description`, `invariants` |

mod cost;
mod dead_tubes;
mod description;
mod fields;
mod flushed_jobs;
mod guard;
mod invariants;
mod lists;
mod memory;
mod outcome;
mod persistence;
mod refused_puts;
mod row;
mod running_orders;
mod spares;

use std::rc::Rc;

pub use self::memory::MemoryShares;

#[cfg(test)]
pub(crate) use self::guard::WATCHED_NAMES;

pub(crate) use self::fields::Values;
pub(crate) use self::guard::{LogInResult, Permission, watched_tubes_from};
pub(crate) use self::lists::{ClientPage, TUBES_PER_SLICE};
pub(crate) use self::memory::MemoryClass;
pub(crate) use self::outcome::{
    Caller, Changed, Continuation, NotDone, OrderSlice, Outcome, answer, answer_last, lacks_room, stall,
    stall_with_memory, wait,
};
pub(crate) use self::row::{CommandRow, Follows, Subject, WordsFor, needs};
pub(crate) use self::running_orders::{Awaits, RunningOrder};
pub(crate) use self::spares::Spares;

use self::cost::CostMeter;
use self::fields::FieldLists;
use self::flushed_jobs::FlushedJobs;
use self::guard::Guard;
use self::lists::TubeLists;
use self::memory::MemoryUse;
use self::persistence::Persistence;
use self::refused_puts::RefusedPuts;
use self::running_orders::RunningOrders;
use crate::clock::Timestamp;
use crate::queue::{ClientId, Delivery, PoisonLimits, Queue, Slices, TubeRule};
use crate::rate_limited_log::RateLimitedLog;
use crate::stats::{CommandCounts, ServerInfo, Timings};
use crate::tls::Acceptor;

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
pub(crate) struct ServerCounters {
    pub(crate) commands: CommandCounts,
    pub(crate) connections: u64,
    /// Connections that a limit, or lack of memory, has ended before they could do anything.
    pub(crate) refused_connections: u64,
    /// Lines that were not commands.
    pub(crate) malformed: u64,
    /// Complete puts that were not stored, because memory or disk space was low, or because of drain mode.
    pub(crate) refused_puts: RefusedPuts,
    /// Jobs that full dead tubes did not take, which the queue counts.
    pub(crate) full_dead_tubes: RateLimitedLog,
    /// Histograms of turns, commands and syncs; recorded only while metrics are served.
    pub(crate) timings: Timings,
    /// Commands whose time is in `timings`.
    pub(crate) timed_commands: u64,
}

/// Executes commands.
#[derive(Debug)]
pub struct Executor {
    pub(crate) queue: Queue,
    pub(crate) persistence: Persistence,
    /// The access rules; `None` if every client may do everything.
    pub(crate) guard: Option<Box<Guard>>,
    /// The orders of the API; `None` if there is no API.
    pub(crate) orders: Option<Box<RunningOrders>>,
    pub(crate) memory: MemoryUse,
    pub(crate) spares: Spares,
    pub(crate) meter: CostMeter,
    fields: FieldLists,
    pub(crate) flushed: FlushedJobs,
    pub(crate) client_pages: Vec<ClientPage>,
    /// Clients that other clients have killed, or whose sessions other clients have taken over, until their connections
    /// are closed in the same turn.
    pub(crate) to_close: Vec<ClientId>,
    pub(crate) tube_lists: TubeLists,
    pub(crate) is_draining: bool,
    pub(crate) info: ServerInfo,
    /// The acceptor of connections with TLS, which has figures for the metrics and the memory limit.
    pub(crate) tls: Option<Rc<Acceptor>>,
    pub(crate) counters: ServerCounters,
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
            spares: Spares::default(),
            meter: CostMeter::default(),
            fields: FieldLists::default(),
            flushed: FlushedJobs::default(),
            client_pages: Vec::new(),
            to_close: Vec::new(),
            tube_lists: TubeLists::default(),
            is_draining: false,
            info,
            tls: None,
            counters: ServerCounters::default(),
        }
    }

    /// The queue, for queries.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Adds the figures of the TLS listeners to the metrics.
    pub(crate) fn show_tls(&mut self, acceptor: &Rc<Acceptor>) {
        self.tls = Some(Rc::clone(acceptor));
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
        self.fields.forget(client);
        self.client_pages.retain(|page| page.asker != client);
        self.queue.disconnect(client, now);
        self.persistence.log_changes(&mut self.queue, now);
    }

    #[inline(always)]
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        Timestamp::earliest([self.queue.next_deadline(), self.persistence.next_deadline()])
    }

    pub(crate) fn poll_delivery(&mut self) -> Option<Delivery> {
        let delivery = self.queue.poll_delivery();
        if delivery.is_none() {
            self.flushed.clear();
        }
        delivery
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
}
