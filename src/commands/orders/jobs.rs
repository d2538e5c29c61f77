//! Orders that change jobs: the jobs that an order names, or the jobs that a walk finds.
//!
//! Owns: the progress and the rate of such an order, and the change that it makes to each job. The executor carries out
//! a share of it in each turn.

use std::num::NonZeroU32;

use crate::clock::{NS_PER_S, Timestamp};
use crate::exchange::Until;
use crate::executor::{Caller, Changed, Executor, MemoryClass, NotDone, Outcome, stall};
use crate::job::{JobId, JobState};
use crate::orders::selection::{WalkBudget, WalkStep};
use crate::orders::{JobAction, Selection};
use crate::queue::ClientId;
use crate::refusal::{ChangeRefusal, PutRefusal};

/// How many jobs can be examined for the cost of a simple request.
const PROBES_PER_COST: u64 = 2;
/// How much lost time an order with a rate may make up for: more than a turn takes, and more than the delay of a timer.
const MAX_CATCH_UP_NS: u64 = NS_PER_S / 10;
/// How many bytes of bodies can be searched for the cost of a simple request.
const SEARCHED_BYTES_PER_COST: u64 = 1024;

/// An order that changes jobs.
pub(super) struct JobsOrder {
    pub(super) action: JobAction,
    /// The jobs that are left.
    pub(super) jobs: Selection,
    pub(super) came_at: Timestamp,
    /// A job that was found and must wait for room in the log.
    pub(super) awaiting_room: Option<JobId>,
    pub(super) pace: Option<OrderPace>,
}

/// The rate at which an order changes jobs.
pub(super) struct OrderPace {
    /// The nanoseconds for each job.
    interval_ns: u64,
    /// When the next job may be changed.
    next_at: Timestamp,
}

impl OrderPace {
    fn new(per_s: NonZeroU32, now: Timestamp) -> Self {
        Self { interval_ns: NS_PER_S / u64::from(per_s.get()), next_at: now }
    }

    /// Counts a job. Lost time is made up for, up to [`MAX_CATCH_UP_NS`].
    fn count(&mut self, now: Timestamp) {
        self.next_at = self.next_at.max(now.minus_ns(MAX_CATCH_UP_NS)) + self.interval_ns;
    }
}

impl JobsOrder {
    /// An order that was given at `came_at`, and begins now.
    pub(super) fn new(action: JobAction, jobs: Selection, came_at: Timestamp, now: Timestamp) -> Self {
        let rate = if let JobAction::Redrive(rate) = action { rate } else { None };
        let pace = rate.map(|rate| OrderPace::new(rate, now));
        Self { action, jobs, came_at, awaiting_room: None, pace }
    }

    /// Continues after `until`.
    fn stall(self, until: Until) -> Outcome {
        stall(until, |executor, caller| executor.change_jobs(caller, self))
    }
}

impl Executor {
    /// Changes the next jobs of an order.
    pub(super) fn change_jobs(&mut self, caller: &mut Caller<'_>, mut order: JobsOrder) -> Outcome {
        let mut budget = WalkBudget::TURN;
        let (client, now) = (caller.client, caller.now);
        let Some(slice) = &mut caller.order else {
            debug_assert!(false, "only an order changes jobs here");
            return Outcome::Done;
        };
        loop {
            if self.measured_cost() >= slice.end {
                return order.stall(Until::NextTurn);
            }
            if let Some(pace) = order.pace.as_ref().filter(|pace| pace.next_at > now) {
                slice.resumes_at = Some(pace.next_at);
                return order.stall(Until::NextTurn);
            }
            let step = match order.awaiting_room.take() {
                Some(id) => WalkStep::Job(id),
                None => self.next_job(&mut order.jobs, &mut budget),
            };
            let id = match step {
                WalkStep::Job(id) => id,
                WalkStep::Done => return Outcome::Done,
                WalkStep::Unfinished => return order.stall(Until::NextTurn),
            };
            let counted = match self.change_job(client, id, &order.action, order.came_at, now) {
                Ok(is_changed) => {
                    // A walk finds a job again if its change has moved it to a later position.
                    if !is_changed && matches!(order.jobs, Selection::Counted(..)) {
                        continue;
                    }
                    Ok(())
                }
                Err(NotDone::NoRoomYet(())) => {
                    order.awaiting_room = Some(id);
                    return order.stall(Until::BinlogRoom);
                }
                // The other jobs would find no room either.
                Err(NotDone::Refused(refusal @ ChangeRefusal::Put(PutRefusal::OutOfMemory))) => {
                    return caller.refuse(refusal);
                }
                Err(NotDone::Refused(refusal)) => {
                    // The time of the job may have ended.
                    self.persistence.log_changes(&mut self.queue, now);
                    Err(refusal)
                }
            };
            if let Selection::Counted(_, left) = &mut order.jobs {
                *left -= 1;
            }
            if let Some(pace) = &mut order.pace {
                pace.count(now);
            }
            slice.task.count(counted);
        }
    }

    /// Moves a job to a tube, which is made if there is none, if the memory is enough for the command `move`.
    fn move_for_order(&mut self, client: ClientId, id: JobId, tube: &str, now: Timestamp) -> Changed {
        if self.lacks_memory_to(MemoryClass::AddsTube(tube), client, 0) {
            return Err(PutRefusal::OutOfMemory.into());
        }
        self.move_one(client, id, tube, now)
    }

    /// The next job that an order changes.
    fn next_job(&mut self, jobs: &mut Selection, budget: &mut WalkBudget) -> WalkStep {
        match jobs {
            Selection::Jobs(ids) => ids.next().map_or(WalkStep::Done, WalkStep::Job),
            Selection::Counted(_, 0) => WalkStep::Done,
            Selection::Counted(walk, _) => {
                let before = *budget;
                let step = walk.next(&self.queue, budget);
                self.count_cost(
                    (before.jobs - budget.jobs) as u64 / PROBES_PER_COST
                        + (before.bytes - budget.bytes) as u64 / SEARCHED_BYTES_PER_COST,
                );
                step
            }
        }
    }

    /// Changes a job for an order that was given at `came_at`; returns whether that made a difference.
    fn change_job(
        &mut self,
        client: ClientId,
        id: JobId,
        action: &JobAction,
        came_at: Timestamp,
        now: Timestamp,
    ) -> Result<bool, NotDone<ChangeRefusal>> {
        self.count_cost(1);
        let job = self.queue.job(id).ok_or(ChangeRefusal::NotFound)?;
        let (record, tube_before) = (job.record, job.tube);
        if *action != JobAction::Delete && record.state == JobState::Reserved {
            return Err(ChangeRefusal::Reserved.into());
        }
        match action {
            JobAction::Delete => self.delete_in_any_state(id, now),
            JobAction::Kick => self.kick_one(id, now)?,
            JobAction::Move(tube) if tube_before == tube => return Ok(false),
            JobAction::Move(tube) => self.move_for_order(client, id, tube.as_str(), now)?,
            // A dead job that goes back to its original tube is no longer dead.
            JobAction::Redrive(_) => {
                let source: Box<str> =
                    job.tags.and_then(|tags| tags.dead()).ok_or(ChangeRefusal::NotDead)?.from.as_str().into();
                self.move_for_order(client, id, &source, now)?;
            }
            JobAction::Priority(priority) if record.priority == *priority => return Ok(false),
            JobAction::Priority(priority) => self.reprioritize_one(id, *priority, now)?,
            JobAction::Delay(delay_s) => {
                let until = came_at.plus_seconds(*delay_s);
                let is_set = match record.state {
                    JobState::Delayed => record.deadline_at == until,
                    JobState::Ready => delay_s.is_zero(),
                    JobState::Reserved | JobState::Buried => false,
                };
                if is_set && self.queue.is_delayable(id) {
                    return Ok(false);
                }
                self.delay_one(id, *delay_s, until, now)?;
            }
        }
        self.persistence.log_changes(&mut self.queue, now);
        Ok(true)
    }
}
