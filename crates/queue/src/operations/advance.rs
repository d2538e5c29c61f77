//! The effects of time: delays, pauses, reservations and waits end, and long operations continue.
//!
//! Owns: the order of what is due, and how much of it one call does. Driven by the server, at the start of each turn.

use beanstalkd_structures::Timer;

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::rules::retries::{AttemptEnd, NextState};
use crate::seconds::Seconds;
use crate::state::keys::{ClientKey, Reservation, TubeKey};
use crate::state::tubes::Pause;
use crate::{Change, Queue, WaitOutcome};

/// The result of a call of `advance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advanced {
    /// Whether there may be more to do immediately.
    pub has_more: bool,
    /// Whether delays have ended.
    pub have_delays_ended: bool,
}

/// The cost of one call of `advance`, in due things; a delivery costs all of it. A million delays that end at the same
/// instant must not delay every client until all are moved. A job with tags takes some microseconds.
const DUE_PER_ADVANCE: u64 = 32;

impl Queue {
    /// The earliest instant at which `advance` has work.
    #[must_use]
    #[inline]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if !self.clients.leaving.is_empty() || self.has_more_to_do() {
            return Some(Timestamp::AT_ONCE);
        }
        self.deadlines.first().map(|(at, _)| at)
    }

    /// Handles what has become due by `now`, the earliest first, up to a share that takes a fraction of a turn: while
    /// `next_deadline` is not after `now`, there is more to do.
    #[inline]
    pub fn advance(&mut self, now: Timestamp) -> Advanced {
        let delayed = self.sums.jobs.delayed;
        let mut has_more = false;
        self.note_overdue(now);
        if !self.clients.leaving.is_empty() {
            self.continue_leaving(now);
            has_more = !self.clients.leaving.is_empty();
        }
        if self.rules.has_stale_heads() {
            self.continue_offering(now);
            has_more |= self.has_more_to_do();
        }
        if self.is_reloading_rules() {
            self.continue_reload(now);
            self.note_overdue(now);
            has_more |= self.is_reloading_rules();
        }
        if !self.rules.tubes.to_open.is_empty() {
            self.open_gates(now);
        }
        let end = self.cost + DUE_PER_ADVANCE;
        while self.cost < end {
            self.cost += 1;
            if self.frees_jobs() {
                self.continue_freeing(now);
                continue;
            }
            let Some((at, timer)) = self.deadlines.first().filter(|&(at, _)| at <= now) else { break };
            // A deadline that has moved away is not due yet.
            if self.deadline_of(timer) == Some(at) {
                match timer {
                    Timer::Tube(tube) => self.tube_is_due(tube, now),
                    Timer::Client(client) => self.client_is_due(client, now),
                    Timer::Rules => self.rules_are_due(now),
                }
            }
            if self.is_timer_gone(timer) {
                continue;
            }
            self.deadlines.set(timer, self.deadline_of(timer));
        }
        self.note_overdue(now);
        Advanced {
            has_more: has_more || self.cost >= end,
            have_delays_ended: self.sums.jobs.delayed < delayed,
        }
    }

    /// Handles the earliest of what is due in a tube: the end of a delay, of a pause or of an age, a gate that opens,
    /// or a full bucket. At the same instant a delay comes first, then the gate, the pause and the age. A waiting
    /// client therefore gets the most urgent of the jobs that are ready when the pause ends, however late the server
    /// notices its end.
    fn tube_is_due(&mut self, key: TubeKey, now: Timestamp) {
        let tube = self.tubes.get_mut(key);
        let delay = tube.delayed.first().map_or(Timestamp::NEVER, |(until, _)| until);
        let pause = tube.pause.map_or(Timestamp::NEVER, Pause::until);
        let gate = tube.gate_at().unwrap_or(Timestamp::NEVER);
        let age = tube.age_ends_at().unwrap_or(Timestamp::NEVER);
        if age <= now && age < delay.min(pause).min(gate) {
            self.end_first_age(key, now);
        } else if gate < delay && gate <= pause && gate <= now {
            self.open_gate(key, now);
        } else if pause < delay && pause <= now {
            self.end_pause(key, now);
        } else if delay > now {
            self.end_deficit(key, now);
        } else if tube.delayed.first().is_some_and(|(_, id)| self.end_overdue_if_awaited(id, key, now)) {
            self.serve_waiting(None, now);
        } else if let Some((until, id)) = self.take_first_delayed(key) {
            self.make_ready_since(id, until, now);
        }
    }

    /// Handles the end of a wait or of a reservation. A waiting client's safety margin begins before its reservation
    /// ends, so the client gets DEADLINE_SOON and stops waiting before it loses the job.
    fn client_is_due(&mut self, index: ClientKey, now: Timestamp) {
        let client = &self.clients[index];
        if client.is_session() {
            self.session_is_due(index, now);
        } else if let Some(wait) = client.wait() {
            let soon = self.margin_of(index).is_some_and(|margin| margin <= wait.until);
            self.end_wait(index);
            self.deliver(index, if soon { WaitOutcome::DeadlineSoon } else { WaitOutcome::TimedOut });
        } else if let Some(Reservation { id, .. }) = client.reserved.first() {
            self.time_out(id, now);
        }
    }

    /// The time to run is over: the job has failed.
    pub(super) fn time_out(&mut self, id: JobId, now: Timestamp) {
        debug_assert!(self.is_linked_as(id, JobState::Reserved), "a reservation alone times out");
        let until = in_debug(|| self.jobs.get(id).and_then(|job| job.collection().deadline()));
        debug_assert!(until <= Some(now), "a reservation does not end early");
        self.unlink(id);
        let (job, history) = self.jobs.expect_with_history(id);
        history.counters.timeouts = history.counters.timeouts.saturating_add(1);
        let end = AttemptEnd::failed(history.counters.timeouts, self.limits.timeouts);
        let (tube, marks) = (job.tube, job.marks);
        self.count(tube, |counters| &mut counters.timeouts);
        self.note(Change::Postponable(id));
        let next = self.next_state(id, (tube, marks), end, Seconds::ZERO, now);
        self.enter(id, next, now);
        if !marks.is_empty() {
            self.serve_waiting(None, now);
        }
        debug_assert!(next == NextState::TooOld || self.is_linked(id), "the job is in a collection");
        self.remove_tube_if_idle(tube);
    }
}
