//! The orders of the API: the same commands, each run for an internal client of its own.
//!
//! Owns: the slice of each order in a turn, and when the task of an order ends: not before the log has its changes. An
//! unfinished order has the [`Continuation`] of a command. Driven by the turn; [`crate::http`] passes in the orders and
//! reads the table of tasks.

mod jobs;
#[cfg(test)]
mod tests;

use log::{Level, log};

use self::jobs::JobsOrder;
use super::put::Stored;
use crate::clock::Timestamp;
use crate::exchange::{Output, Put, PutExtras, Unfinished, Until};
use crate::executor::{
    Awaits, Caller, Continuation, Executor, NotDone, OrderSlice, Outcome, RunningOrder, stall,
};
use crate::job::Body;
use crate::orders::{Control, Order, Progress, PutOrder, TaskId, Tasks};
use crate::protocol::PutHeader;
use crate::queue::ClientId;
use crate::refusal::{ChangeRefusal, PutRefusal};
use crate::stats::{ClientView, Connections, ServerView};

/// The maximum cost of all orders together in a turn, in simple requests: about 150 microseconds. A flush may cost
/// more, as it may for other clients.
const COST_PER_TURN: u64 = 512;

impl Control for Executor {
    fn server_view(&self, now: Timestamp) -> ServerView<'_> {
        Self::server_view(self, now)
    }

    fn order(&mut self, order: Order, now: Timestamp) -> Option<TaskId> {
        let orders = self.orders.as_mut()?;
        let task = orders.tasks.add(&order, now)?;
        if self.queue.make_room_for_client().is_err() {
            orders.settling.push_back((task, Progress::Failed(PutRefusal::OutOfMemory.into()), None));
            return Some(task);
        }
        let client = self.queue.connect_internal();
        let continuation =
            Continuation::new(move |executor, caller| executor.begin_order(caller, order, now));
        orders.running.push_back(RunningOrder { task, client, continuation, awaits: Awaits::NextTurn });
        Some(task)
    }

    fn stop(&mut self, id: TaskId) {
        let Some(orders) = &mut self.orders else { return };
        if let Some(task) = orders.tasks.get_mut(id).filter(|task| !task.is_over()) {
            task.is_to_stop = true;
        }
        for running in orders.running.iter_mut().filter(|running| running.task == id) {
            running.awaits = Awaits::NextTurn;
        }
    }

    fn tasks(&self) -> &Tasks {
        static NONE: Tasks = Tasks::none();
        self.orders.as_ref().map_or(&NONE, |orders| &orders.tasks)
    }

    fn client(&self, id: ClientId, connections: &dyn Connections, now: Timestamp) -> Option<ClientView<'_>> {
        self.client_view(id, connections, now)
    }

    fn may_answer(&self) -> bool {
        !self.persistence.is_leased() || self.persistence.lease_left_ns() > 0
    }
}

impl Executor {
    /// Ends the orders that wait because of their rate, before another program takes over the queue.
    pub(crate) fn stop_waiting_orders(&mut self) {
        let running = self.orders.iter().flat_map(|orders| &orders.running);
        let waiting: Vec<TaskId> = running
            .filter(|running| running.awaits.resumes_at().is_some())
            .map(|running| running.task)
            .collect();
        waiting.into_iter().for_each(|task| self.stop(task));
    }

    /// Does a turn's share of the orders; returns whether there can be any.
    #[inline]
    pub(crate) fn carry_out_orders(&mut self, now: Timestamp) -> bool {
        if self.orders.is_some() {
            self.carry_out(now);
        }
        self.orders.is_some()
    }

    #[cold]
    fn carry_out(&mut self, now: Timestamp) {
        self.end_settled_tasks();
        let end = self.measured_cost() + COST_PER_TURN;
        let count = self.orders.as_ref().map_or(0, |orders| orders.running.len());
        for _ in 0..count {
            if self.measured_cost() >= end {
                break;
            }
            let Some(orders) = &mut self.orders else { break };
            let Some(running) = orders.running.pop_front() else { break };
            if running.awaits.is_over(now) {
                self.continue_order(running, end, now);
            } else {
                orders.running.push_back(running);
            }
        }
    }

    /// Ends the tasks whose changes the log has.
    fn end_settled_tasks(&mut self) {
        let settled = self.persistence.settled();
        let Some(orders) = &mut self.orders else { return };
        while let Some(&(id, progress, _)) =
            orders.settling.front().filter(|(_, _, last)| last.is_none_or(|last| last <= settled))
        {
            if let Some(task) = orders.tasks.end(id, progress) {
                let level = if task.job.is_some() { Level::Debug } else { Level::Info };
                log!(
                    level, task = id.0, done = task.done;
                    "administration: task {}: {progress}; {} done, {} unchanged", id.0, task.done, task.skipped
                );
            }
            orders.settling.pop_front();
        }
    }

    /// Does a share of an order.
    fn continue_order(&mut self, running: RunningOrder, end: u64, now: Timestamp) {
        let RunningOrder { task: id, client, continuation, .. } = running;
        let mut progress = Progress::Stopped;
        if let Some(task) = self.tasks().get(id).filter(|task| !task.is_to_stop) {
            let mut slice = OrderSlice { task: task.clone(), failure: None, resumes_at: None, end };
            self.count_cost(1);
            let mut output = Output::default();
            let outcome = continuation
                .resume(self, &mut Caller { client, output: &mut output, now, order: Some(&mut slice) });
            self.persistence.log_changes(&mut self.queue, now);
            let OrderSlice { task, failure, resumes_at, .. } = slice;
            let Some(orders) = &mut self.orders else { return };
            orders.tasks.replace(task);
            progress = match outcome {
                Outcome::Unfinished(Unfinished::Stalled { continuation, until, .. }) => {
                    let awaits = match (until, resumes_at) {
                        (Until::BinlogRoom, _) => Awaits::BinlogRoom,
                        (Until::NextTurn | Until::TubeList | Until::PutPace, Some(at)) => Awaits::Pace(at),
                        (Until::NextTurn | Until::TubeList | Until::PutPace, None) => Awaits::NextTurn,
                    };
                    orders.running.push_back(RunningOrder { task: id, client, continuation, awaits });
                    return;
                }
                Outcome::Abort => Progress::Failed(PutRefusal::OutOfMemory.into()),
                Outcome::Done => failure.map_or(Progress::Done, Progress::Failed),
                Outcome::Close
                | Outcome::ReadBody(_)
                | Outcome::SkipBody(..)
                | Outcome::ReadPuts(_)
                | Outcome::Unfinished(Unfinished::Waiting(_)) => {
                    debug_assert!(false, "an order has no input, no wait and no connection");
                    failure.map_or(Progress::Done, Progress::Failed)
                }
            };
        }
        self.queue.end_flush(client, now);
        self.disconnect(client, now);
        let last = self.persistence.awaited();
        if let Some(orders) = &mut self.orders {
            orders.settling.push_back((id, progress, last));
        }
    }

    /// The first step of an order that was given at `came_at`.
    fn begin_order(&mut self, caller: &mut Caller<'_>, order: Order, came_at: Timestamp) -> Outcome {
        match order {
            Order::Put(job) => self.begin_put_order(caller, job),
            Order::Change(action, selection) => {
                let order = JobsOrder::new(action, selection, came_at, caller.now);
                self.change_jobs(caller, order)
            }
            Order::Drain(draining) => {
                caller.count_done(1);
                self.set_draining(draining);
                Outcome::Done
            }
            Order::Pause(tube, _) | Order::Flush(tube, _)
                if self.queue.tube_name(tube.as_str()).is_none() =>
            {
                caller.refuse(ChangeRefusal::NoTube)
            }
            Order::Pause(tube, delay_s) => {
                caller.count_done(1);
                self.queue.pause_tube(tube.as_str(), delay_s, caller.now);
                Outcome::Done
            }
            Order::KillClient(number) => self.kill_client(caller, number),
            Order::Flush(tube, scope) => self.flush_tube(caller, tube.as_str(), scope),
        }
    }

    /// Puts a job, as a client does with a tag that names its tube.
    fn begin_put_order(&mut self, caller: &mut Caller<'_>, job: PutOrder) -> Outcome {
        let PutOrder { tube, body, priority, delay_s, ttr_s, tags } = job;
        if body.len() as u64 > self.memory.max_job_bytes {
            return self.refuse_put_order(caller, PutRefusal::JobTooBig);
        }
        let header = PutHeader { priority, delay_s, ttr_s, size: body.len() as u32 };
        let extras = PutExtras::of_tags(tags, Some(tube.as_str().into()));
        let put = Put::new(self.queue.allocate_id(), header, Some(extras));
        self.store_for_order(caller, put, body)
    }

    /// Stores the job of a put as soon as the log has room.
    fn store_for_order(&mut self, caller: &mut Caller<'_>, put: Put, body: Body) -> Outcome {
        let stored = if self.lacks_memory_for(body.len()) {
            Err(PutRefusal::OutOfMemory.into())
        } else {
            self.store_with_extras(caller.client, &put, body, caller.output, caller.now)
        };
        let (job, done, skipped) = match stored {
            Ok(Stored::New) => (put.id, 1, 0),
            Ok(Stored::Duplicate(first, ..)) => (first, 0, 1),
            Err(NotDone::NoRoomYet(body)) => {
                return stall(Until::BinlogRoom, |executor, caller| {
                    executor.store_for_order(caller, put, body)
                });
            }
            Err(NotDone::Refused(refusal)) => return self.refuse_put_order(caller, refusal),
        };
        if let Some(OrderSlice { task, .. }) = &mut caller.order {
            (task.job, task.done, task.skipped) = (Some(job), done, skipped);
        }
        Outcome::Done
    }

    fn refuse_put_order(&mut self, caller: &mut Caller<'_>, refusal: PutRefusal) -> Outcome {
        self.count_refused_put(refusal.into());
        caller.refuse(refusal)
    }
}
