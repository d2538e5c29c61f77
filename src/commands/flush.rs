//! The commands that flush a tube.
//!
//! Owns: how many jobs a flush deletes in a turn.

use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::executor::{Caller, Executor, Outcome, answer, stall};
use crate::job::JobId;
use crate::protocol::Reply;
use crate::queue::{BeginFlush, FlushScope, FlushStep};

/// Jobs and clients that a flush probes in a turn: about 200 microseconds.
const PROBES_PER_TURN: usize = 500;
/// The maximum cost of a flush in a turn, in simple requests: freeing large bodies takes longer than finding them.
const COST_PER_TURN: u64 = 1000;

impl Executor {
    /// The commands `flush-tube` and `flush-buried`.
    pub(super) fn flush_tube(&mut self, caller: &mut Caller<'_>, tube: &str, scope: FlushScope) -> Outcome {
        match self.queue.begin_flush(caller.client, tube, scope) {
            BeginFlush::Begun => self.continue_flush(caller, scope, 0),
            BeginFlush::NoTube => answer(caller.output, &Reply::Flushed(0)),
            BeginFlush::TooMany => {
                let tube: Box<str> = tube.into();
                stall(Until::NextTurn, move |executor, caller| executor.flush_tube(caller, &tube, scope))
            }
        }
    }

    /// Continues the client's flush, which has deleted `deleted` jobs. A delete needs no room in the binlog.
    fn continue_flush(&mut self, caller: &mut Caller<'_>, scope: FlushScope, mut deleted: u64) -> Outcome {
        let end = self.measured_cost() + COST_PER_TURN;
        let mut probes = PROBES_PER_TURN;
        while self.measured_cost() < end {
            let before = probes;
            let step = self.queue.next_to_flush(caller.client, &mut probes);
            self.count_cost((before - probes) as u64);
            match step {
                FlushStep::Job(id) => {
                    self.delete_in_any_state(id, caller.now);
                    caller.count_done(1);
                    deleted += 1;
                }
                FlushStep::Cooldown(id) => {
                    self.queue.end_cooldown(id);
                    self.persistence.log_changes(&mut self.queue, caller.now);
                    caller.count_done(u64::from(scope == FlushScope::Cooldowns));
                    self.count_cost(1);
                }
                FlushStep::Unfinished => break,
                FlushStep::Done => {
                    self.queue.end_flush(caller.client, caller.now);
                    return answer(caller.output, &Reply::Flushed(deleted));
                }
            }
        }
        stall(Until::NextTurn, move |executor, caller| executor.continue_flush(caller, scope, deleted))
    }

    /// Deletes a job, even one that a client has reserved.
    pub(super) fn delete_in_any_state(&mut self, id: JobId, now: Timestamp) {
        self.flushed.keep_for_delivery(&self.queue, id);
        let body = self.queue.flush_job(id, now);
        debug_assert!(self.queue.job(id).is_none(), "a flushed job does not exist");
        self.persistence.log_changes(&mut self.queue, now);
        if let Some(watch) = body.watch() {
            self.detach_body(watch, body);
        }
    }
}
