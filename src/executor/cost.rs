//! The cost of a turn, and what becomes due in it.
//!
//! The cost is counted in simple requests, and each request counts its own. The real cost cannot be counted: to delete
//! a job that has four tags, among a million of them in no order, takes twenty times as long as to delete the next one
//! of a short queue. Therefore the [`CostMeter`] reads the clock from time to time, and adds the difference if the time
//! exceeds the count. Tests have no clock, or a clock of their own.
//!
//! Long work is done in slices. These constants bound a slice, and so the time that other clients wait:
//!
//! | slice | constant | file |
//! |---|---|---|
//! | a turn, and one client in it | `TURN_COST`, `RUNNABLE_COST`, `BURST`, `SUSTAINED` | `server/budget.rs` |
//! | what has become due, and the remains of closed clients | `ADVANCE_COST` | `executor/cost.rs` |
//! | all orders of the API together | `COST_PER_TURN` | `commands/orders/mod.rs` |
//! | a walk through jobs for the API | `WalkBudget::TURN` | `orders/selection.rs` |
//! | tubes for the API | `TUBES_PER_SLICE`, `FREED_PER_SLICE`, `MATCHED_PER_SLICE` | `http/snapshot.rs` |
//! | clients for the API | `CLIENTS_PER_SLICE`, `INDEXES_PER_SLICE` | `http/api/clients.rs` |
//! | `kick` | `COST_PER_TURN` | `commands/kick.rs` |
//! | `delete-batch` | `COST_PER_TURN` | `commands/delete.rs` |
//! | `reserve-batch` | `COST_PER_TURN` | `commands/reserve_batch.rs` |
//! | the flushes | `COST_PER_TURN`, `PROBES_PER_TURN` | `commands/flush.rs` |
//! | `list-tubes` | `TUBES_PER_SLICE` | `executor/lists.rs` |
//! | `touch-all` | `TOUCHES_PER_TURN` | `commands/touch.rs` |
//! | `list-jobs` | `JOBS_PER_TURN`, `PROBES_PER_TURN` | `commands/list_jobs.rs` |
//! | `list-clients` | `CLIENTS_PER_TURN`, `INDEXES_PER_TURN` | `commands/clients.rs` |
//! | reservations that join a session | `JOINED_PER_TURN` | `commands/sessions.rs` |
//! | tubes that a client may not watch | `TUBES_PER_TURN` | `commands/watch.rs` |
//! | tubes that a client may see | `COST_PER_TURN` | `commands/visible_tubes.rs` |
//! | changes that the log lacks | `CATCH_UP_BYTES` | `executor/persistence/postponed.rs` |
//! | copies of jobs in the log | `COPIED_PER_TURN` | `writer/compaction.rs` of the binlog |
//! | jobs that have left the oldest file of the log | `PASSED_AT_ONCE` | `src/files.rs` of the binlog |
//! | bodies that can be freed | `PROBES_PER_TURN` | `executor/memory/detached_bodies.rs` |
//! | clients after a reload | `CHECKS_PER_TURN`, `VISITS_PER_TURN` | `server/reload.rs` |
//! | a client that leaves, jobs after a pause, tubes that a reserve probes | `Slices` | `state/mod.rs` of the queue |
//! | things that one call of `advance` handles | `DUE_PER_ADVANCE` | `operations/advance.rs` of the queue |
//! | overdue jobs that a reserve ends | `MAX_OVERDUE_ENDED` | `moves/free_slots.rs` of the queue |
//! | jobs for waiting clients, before a released job becomes ready | `PROBES_BEFORE` | `moves/free_slots.rs` of the queue |
//! | jobs of a fair tube that are examined for the next one | `MAX_PROBES` | `rules/rotation.rs` of the queue |
//! | clients that wait for the end of one job | `ANSWERS_AT_ONCE` | `rules/awaited.rs` of the queue |
//! | tubes and jobs after a reload of the rules for tubes | `ITEMS_PER_STEP` | `rules/ruled_tubes.rs` of the queue |
//! | handshakes of TLS | `HANDSHAKES_PER_TURN` | `server/budget.rs` |
//! | records of TLS that a read decrypts | `MAX_RECORDS` | `tls/channel.rs` |
//! | new connections | `ACCEPTS_PER_TURN` | `server/event_loop/listeners.rs` |

use std::fmt;

use super::Executor;
use crate::clock::Timestamp;
use crate::queue::Advanced;

/// The maximum cost in a turn of what has become due, such as the ends of delays, and of the remains of closed clients.
const ADVANCE_COST: u64 = 512;

/// How long a simple request takes, in nanoseconds.
const REQUEST_NS: u64 = 250;

/// How many bytes of input are read and searched for the end of a line in the time of a simple request.
const INPUT_BYTES_PER_COST: u64 = 2048;

/// The maximum cost between two readings of the clock.
const MAX_COST_UNSEEN: u64 = 64;

/// The cost of all requests, and its measurement.
#[derive(Default)]
pub(crate) struct CostMeter {
    /// The cost of all requests so far, without [`Queue::cost`](crate::queue::Queue::cost); a simple request costs 1.
    cost: u64,
    /// `None` if only the count is used.
    clock: Option<Box<dyn Fn() -> Timestamp>>,
    /// The cost at the last reading of the clock, including the queue's cost, and the instant of that reading.
    seen: u64,
    at: Timestamp,
    /// The cost between two readings, which is less if the real cost is more.
    step: u64,
}

impl CostMeter {
    /// From now on, time counts. The clock is the clock of the turns.
    pub(crate) fn set_clock(&mut self, clock: impl Fn() -> Timestamp + 'static) {
        self.clock = Some(Box::new(clock));
        self.step = MAX_COST_UNSEEN;
    }

    /// Begins a turn at `now`, when `cost` had already been counted. The time before it is not counted.
    #[inline]
    pub(crate) fn begin_turn(&mut self, cost: u64, now: Timestamp) {
        (self.seen, self.at) = (cost, now);
    }

    /// Whether a reading is due.
    #[inline]
    pub(crate) fn is_due(&self, cost: u64) -> bool {
        cost - self.seen >= self.step && self.step > 0
    }

    /// Reads the clock, and adds the time that `cost` has taken to it if that is more.
    #[cold]
    pub(crate) fn read_clock(&mut self, cost: u64) {
        let Some(clock) = &self.clock else { return };
        let now = clock();
        let (counted, taken) = (cost - self.seen, now.since_ns(self.at) / REQUEST_NS);
        let added = taken.saturating_sub(counted);
        // At the same rate, the next reading comes after the time that `MAX_COST_UNSEEN` should take.
        self.step = (counted * MAX_COST_UNSEEN / taken.max(1)).clamp(1, MAX_COST_UNSEEN);
        self.cost += added;
        self.begin_turn(cost + added, now);
    }
}

impl Executor {
    /// From now on a turn ends when its time is over, even if the counted cost is low.
    pub fn measure_time(&mut self, clock: impl Fn() -> Timestamp + 'static) {
        self.meter.set_clock(clock);
    }

    /// Begins a turn.
    pub(crate) fn begin_turn(&mut self, now: Timestamp) {
        self.meter.begin_turn(self.counted_cost(), now);
    }

    /// Counts the cost of a request or of other work: a simple request costs 1.
    #[inline]
    pub(crate) fn count_cost(&mut self, cost: u64) {
        self.meter.cost += cost;
    }

    /// Counts the cost of an input, of this many bytes, that does not end with a request.
    #[cold]
    pub(crate) fn count_input_without_request(&mut self, bytes: usize) {
        self.count_cost(1 + bytes as u64 / INPUT_BYTES_PER_COST);
    }

    /// The cost of everything so far, in simple requests, as far as it has been counted. Does not read the clock.
    pub(crate) fn counted_cost(&self) -> u64 {
        self.meter.cost + self.queue.cost()
    }

    /// The cost of everything so far. If a reading of the clock is due, first adds the time that the work has taken,
    /// if that is more than was counted. Code that works until a budget is spent calls this, also when it begins: then
    /// the time before is not counted for it, and it can do some work however long that time was.
    #[inline]
    pub(crate) fn measured_cost(&mut self) -> u64 {
        let cost = self.counted_cost();
        if self.meter.is_due(cost) {
            self.meter.read_clock(cost);
        }
        self.counted_cost()
    }

    /// Does a turn's share of the work that has become due.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        let end = self.counted_cost() + ADVANCE_COST;
        loop {
            let Advanced { has_more, have_delays_ended } = self.queue.advance(now);
            if have_delays_ended {
                self.persistence.note_end_of_delay(now);
            }
            self.detach_expired_bodies();
            self.persistence.log_changes(&mut self.queue, now);
            if !has_more || self.measured_cost() >= end {
                break;
            }
        }
        self.persistence.advance(now);
        if !self.memory.detached_bodies.is_empty() {
            self.memory.detached_bodies.forget_freed();
        }
        if self.tube_lists.are_in_use() {
            self.manage_lists();
        }
    }
}

impl fmt::Debug for CostMeter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CostMeter")
            .field("cost", &self.cost)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
