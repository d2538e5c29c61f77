//! The orders of the API.
//!
//! Owns: how orders become changes of the queue, a slice in each turn, and when the task of an order is over: not before
//! the log has what was changed. Every change goes the way of a command: check, reserve room in the log, change, append.
//! Driven by the turn; [`crate::http`] hands in the orders and reads the table of tasks.

use std::collections::VecDeque;
use std::vec;

use log::{Level, log};

use super::Executor;
use super::put_tagged::TaggedPut;
use crate::binlog::{NoRoom, SequenceNumber};
use crate::clock::Timestamp;
use crate::http::selection::{Share, Step, Walk};
use crate::http::task::{Change, Control, NewJob, Obstacle, Order, Progress, Selection, Task, TaskId, Tasks};
use crate::job::{JobId, JobState};
use crate::protocol::Reply;
use crate::queue::{self, BeginFlush, ClientId, Flushed};
use crate::tags::EncodedTags;
use crate::tube_name::TubeName;

/// What all orders together may cost in a turn, in simple requests: some 150 microseconds.
const WORK_PER_TURN: u64 = 512;
/// Jobs looked at that cost as much as a simple request.
const LOOKS_PER_WORK: u64 = 2;
/// Bytes of bodies searched that cost as much as a simple request.
const SEARCHED_BYTES_PER_WORK: u64 = 1024;

/// The orders that are being carried out.
#[derive(Debug, Default)]
pub struct Orders {
    tasks: Tasks,
    /// The first one is next.
    running: VecDeque<Running>,
    /// Orders that are carried out, and whose changes the log may not have yet, in their order.
    settling: VecDeque<(TaskId, Progress, Option<SequenceNumber>)>,
}

#[derive(Debug)]
struct Running {
    id: TaskId,
    work: Work,
    /// Whether it waits for room in the log.
    awaits_room: bool,
}

/// What is left to do of an order.
#[derive(Debug)]
enum Work {
    Pause(TubeName, u32),
    Drain(bool),
    BeginFlush(TubeName, Flushed),
    /// A put, and the id that the job has got, if the log had no room for it yet.
    Put(NewJob, Option<JobId>),
    /// These jobs.
    Jobs(Change, vec::IntoIter<JobId>),
    /// The jobs that a walk finds, at most as many as were counted.
    Walk {
        change: Change,
        walk: Box<Walk>,
        left: u64,
        /// A job that was found and has to wait for room in the log.
        found: Option<JobId>,
    },
    /// A flush of this client, which is nobody's connection.
    Flush(ClientId, Flushed),
}

/// Where a slice has ended.
enum End {
    /// There is more to do.
    Unfinished,
    /// There is more to do when the log has room.
    AwaitsRoom,
    /// Nothing is left to do.
    Over(Progress),
}

/// What a put has come to.
enum Put {
    Stored(JobId),
    /// This job has the same `idp` key.
    Double(JobId),
}

/// Why a job is not changed.
enum Refusal {
    /// It stays as it is.
    Job(Obstacle),
    /// It has been changed before, or need not be.
    Unchanged,
    /// The log has no room for the moment.
    NoRoomYet,
    /// Memory or disk is short, so no further job can be changed either.
    NoRoom,
}

impl From<NoRoom> for Refusal {
    fn from(no_room: NoRoom) -> Self {
        match no_room {
            NoRoom::Pending => Self::NoRoomYet,
            NoRoom::Full => Self::NoRoom,
        }
    }
}

/// Where a slice has ended that has done all of an order, or could not.
fn ended(outcome: Result<(), Refusal>) -> End {
    match outcome {
        Ok(()) => End::Over(Progress::Done),
        Err(Refusal::Job(obstacle)) => End::Over(Progress::Failed(obstacle)),
        Err(Refusal::NoRoomYet) => End::AwaitsRoom,
        Err(Refusal::NoRoom | Refusal::Unchanged) => End::Over(Progress::Failed(Obstacle::NoRoom)),
    }
}

impl Control for Executor {
    fn order(&mut self, order: Order, now: Timestamp) -> Option<TaskId> {
        let orders = self.orders.as_mut()?;
        let id = orders.tasks.add(&order, now)?;
        let work = match order {
            Order::Change(change, Selection::Jobs(jobs)) => Work::Jobs(change, jobs.into_iter()),
            Order::Change(change, Selection::Counted(walk, left)) => {
                Work::Walk { change, walk, left, found: None }
            }
            Order::Put(job) => Work::Put(job, None),
            Order::Pause(tube, seconds) => Work::Pause(tube, seconds),
            Order::Drain(draining) => Work::Drain(draining),
            Order::Flush { tube, is_buried: false } => Work::BeginFlush(tube, Flushed::All),
            Order::Flush { tube, is_buried: true } => Work::BeginFlush(tube, Flushed::Buried),
            Order::FlushCooldowns(tube) => Work::BeginFlush(tube, Flushed::Cooldowns),
        };
        orders.running.push_back(Running { id, work, awaits_room: false });
        Some(id)
    }

    fn stop(&mut self, id: TaskId) {
        let Some(orders) = &mut self.orders else { return };
        if let Some(task) = orders.tasks.get_mut(id).filter(|task| !task.is_over()) {
            task.is_to_stop = true;
        }
        for running in orders.running.iter_mut().filter(|running| running.id == id) {
            running.awaits_room = false;
        }
    }

    fn tasks(&self) -> &Tasks {
        static NONE: Tasks = Tasks::none();
        self.orders.as_ref().map_or(&NONE, |orders| &orders.tasks)
    }

    fn may_answer(&self) -> bool {
        Self::may_answer(self)
    }
}

impl Executor {
    /// From now on, takes orders of the API.
    pub fn accept_orders(&mut self) {
        self.orders = Some(Box::default());
    }

    /// Whether there is something to do for an order even if no event comes.
    pub(crate) fn has_orders(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| {
            let settled = self.settled();
            orders.running.iter().any(|running| !running.awaits_room)
                || orders.settling.front().is_some_and(|(_, _, last)| last.is_none_or(|last| last <= settled))
        })
    }

    /// How many clients in the queue are flushes of orders, and have no connection.
    pub(crate) fn clients_of_orders(&self) -> usize {
        let running = self.orders.as_ref().map(|orders| orders.running.iter());
        running.map_or(0, |running| running.filter(|running| matches!(running.work, Work::Flush(..))).count())
    }

    /// The log may have room again.
    pub(super) fn wake_orders(&mut self) {
        if let Some(orders) = &mut self.orders {
            orders.running.iter_mut().for_each(|running| running.awaits_room = false);
        }
    }

    /// Does a turn's share of the orders.
    #[inline]
    pub(crate) fn carry_out_orders(&mut self, now: Timestamp) {
        if let Some(orders) = self.orders.take() {
            self.orders = Some(self.carry_out(orders, now));
        }
    }

    #[cold]
    fn carry_out(&mut self, mut orders: Box<Orders>, now: Timestamp) -> Box<Orders> {
        let settled = self.settled();
        while let Some(&(id, progress, _)) =
            orders.settling.front().filter(|(_, _, last)| last.is_none_or(|last| last <= settled))
        {
            if let Some(task) = orders.tasks.get_mut(id) {
                task.progress = progress;
                let level = if task.job.is_some() { Level::Debug } else { Level::Info };
                log!(
                    level, task = id.0, done = task.done;
                    "administration: task {}: {progress:?}, {} done, {} left as they are", id.0, task.done, task.skipped
                );
            }
            orders.settling.pop_front();
        }
        let end = self.spent() + WORK_PER_TURN;
        for _ in 0..orders.running.len() {
            if self.spent() >= end {
                break;
            }
            let Some(mut running) = orders.running.pop_front() else { break };
            let Some(task) = orders.tasks.get_mut(running.id) else { continue };
            let outcome = match running.awaits_room {
                true => End::AwaitsRoom,
                false => self.go_on(&mut running, task, end, now),
            };
            running.awaits_room = matches!(outcome, End::AwaitsRoom);
            if let End::Over(progress) = outcome {
                self.end_work(running.work, now);
                orders.settling.push_back((running.id, progress, self.last_logged()));
            } else {
                orders.running.push_back(running);
            }
        }
        orders
    }

    /// Does a share of an order, until all work of the executor is at `end`.
    fn go_on(&mut self, running: &mut Running, task: &mut Task, end: u64, now: Timestamp) -> End {
        if task.is_to_stop {
            return End::Over(Progress::Stopped);
        }
        self.work += 1;
        match &mut running.work {
            Work::Jobs(change, jobs) => self.change_jobs(change, jobs, task, end, now),
            Work::Walk { .. } => self.change_counted(&mut running.work, task, end, now),
            Work::Flush(client, flushed) => self.go_on_with_flush((*client, *flushed), task, end, now),
            Work::BeginFlush(tube, flushed) => {
                let flushed = *flushed;
                match self.begin_flush(tube, flushed, now) {
                    Ok(Some(client)) => running.work = Work::Flush(client, flushed),
                    Ok(None) => {}
                    Err(obstacle) => return End::Over(Progress::Failed(obstacle)),
                }
                End::Unfinished
            }
            Work::Pause(tube, seconds) => {
                let is_there = self.queue.pause_tube(tube.as_str(), *seconds, now);
                ended(if is_there { self.done(task, now) } else { Err(Refusal::Job(Obstacle::NoTube)) })
            }
            Work::Drain(draining) => {
                self.draining = *draining;
                ended(self.done(task, now))
            }
            Work::Put(job, id) => ended(self.put_for_order(job, id, task, now)),
        }
    }

    /// Ends what an order holds.
    fn end_work(&mut self, work: Work, now: Timestamp) {
        if let Work::Flush(client, _) = work {
            self.queue.end_flush(client, now);
            self.disconnect(client, now);
        }
    }

    /// What an order wanted was done at once.
    fn done(&mut self, task: &mut Task, now: Timestamp) -> Result<(), Refusal> {
        self.persistence.log_changes(&mut self.queue, now);
        task.done = 1;
        Ok(())
    }

    /// Puts a job, as a client would that uses its tube. `id` is what it got in an earlier turn.
    fn put_for_order(
        &mut self,
        job: &NewJob,
        id: &mut Option<JobId>,
        task: &mut Task,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if job.body.len() as u64 > self.config.max_job_bytes {
            return Err(Refusal::Job(Obstacle::TooBig));
        }
        let put = if self.draining {
            Err(Refusal::Job(Obstacle::Draining))
        } else if self.lacks_memory_for(job.body.len()) || !self.has_room_for_client() {
            Err(Refusal::NoRoom)
        } else {
            let client = self.queue.connect();
            let put = self.put_by(client, job, id, now);
            self.disconnect(client, now);
            put
        };
        match put {
            Ok(Put::Stored(id)) => (task.job, task.done) = (Some(id), 1),
            Ok(Put::Double(first)) => (task.job, task.skipped) = (Some(first), 1),
            Err(Refusal::NoRoomYet) => {}
            Err(Refusal::Job(Obstacle::Draining)) => self.rejected_puts.count(&Reply::Draining),
            Err(_) => self.rejected_puts.count(&Reply::OutOfMemory),
        }
        put.map(|_| ())
    }

    fn put_by(
        &mut self,
        client: ClientId,
        job: &NewJob,
        id: &mut Option<JobId>,
        now: Timestamp,
    ) -> Result<Put, Refusal> {
        if self.queue.reserve_tube(client).is_err() || self.queue.reserve_put().is_err() {
            return Err(Refusal::NoRoom);
        }
        let NewJob { tube, body, priority, delay_s, ttr_s, tags } = job;
        let id = *id.get_or_insert_with(|| self.queue.take_id());
        self.queue.use_tube(client, tube.as_str());
        let new = queue::NewJob { id, priority: *priority, delay_s: *delay_s, ttr_s: *ttr_s };
        let put = if tags.is_empty() {
            self.persistence.room_for_put(id, || tube, body, &EncodedTags::NONE)?;
            self.queue.put(client, new, body.clone(), now);
            Put::Stored(id)
        } else {
            match self.store_tagged(client, new, body.clone(), tags, now) {
                Ok(TaggedPut::Stored) => Put::Stored(id),
                Ok(TaggedPut::Double(first, ..)) => Put::Double(first),
                Ok(TaggedPut::Refused) => return Err(Refusal::NoRoom),
                Err(_) => return Err(Refusal::NoRoomYet),
            }
        };
        self.persistence.log_changes(&mut self.queue, now);
        Ok(put)
    }

    /// Changes the next of these jobs.
    fn change_jobs(
        &mut self,
        change: &Change,
        jobs: &mut vec::IntoIter<JobId>,
        task: &mut Task,
        end: u64,
        now: Timestamp,
    ) -> End {
        while let Some(&id) = jobs.as_slice().first() {
            if self.spent() >= end {
                return End::Unfinished;
            }
            let outcome = self.change_job(id, change, task.begun_at, now);
            match self.count(outcome, task) {
                Some(ended) => return ended,
                None => jobs.next(),
            };
        }
        End::Over(Progress::Done)
    }

    /// Changes the next jobs that the walk finds.
    fn change_counted(&mut self, work: &mut Work, task: &mut Task, end: u64, now: Timestamp) -> End {
        let Work::Walk { change, walk, left, found } = work else { return End::Over(Progress::Done) };
        let mut share = Share::TURN;
        while *left > 0 {
            if self.spent() >= end {
                return End::Unfinished;
            }
            let id = match found.take() {
                Some(id) => id,
                None => {
                    let before = share;
                    let step = walk.next(&self.queue, &mut share);
                    self.work += (before.jobs - share.jobs) as u64 / LOOKS_PER_WORK
                        + (before.bytes - share.bytes) as u64 / SEARCHED_BYTES_PER_WORK;
                    match step {
                        Step::Job(id) => id,
                        Step::Unfinished => return End::Unfinished,
                        Step::Done => break,
                    }
                }
            };
            let outcome = self.change_job(id, change, task.begun_at, now);
            if matches!(outcome, Err(Refusal::Unchanged)) {
                // Jobs that were changed may stand where the walk comes later.
                continue;
            }
            if let Some(ended) = self.count(outcome, task) {
                *found = Some(id);
                return ended;
            }
            *left -= 1;
        }
        End::Over(Progress::Done)
    }

    /// Counts what has become of a job; returns where the slice ends if it cannot go on.
    fn count(&mut self, outcome: Result<(), Refusal>, task: &mut Task) -> Option<End> {
        match outcome {
            Ok(()) | Err(Refusal::Unchanged) => task.count(Ok(())),
            Err(Refusal::Job(obstacle)) => task.count(Err(obstacle)),
            Err(Refusal::NoRoomYet) => return Some(End::AwaitsRoom),
            Err(Refusal::NoRoom) => return Some(End::Over(Progress::Failed(Obstacle::NoRoom))),
        }
        None
    }

    /// Changes a job for an order that began at `begun_at`.
    fn change_job(
        &mut self,
        id: JobId,
        change: &Change,
        begun_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.work += 1;
        let job = self.queue.job(id).ok_or(Refusal::Job(Obstacle::NoJob))?;
        let state = job.record.state;
        match change {
            Change::Delete => {
                self.delete_in_any_state(id, now);
                return Ok(());
            }
            _ if state == JobState::Reserved => return Err(Refusal::Job(Obstacle::Reserved)),
            Change::Kick if !self.queue.is_kickable(id) => {
                return Err(Refusal::Job(Obstacle::WrongState));
            }
            Change::Kick => {
                self.persistence.room_for_update()?;
                self.queue.kick(id, now);
            }
            Change::Move(tube) if job.tube == tube => return Err(Refusal::Unchanged),
            Change::Move(tube) => {
                if self.lacks_memory_for(0) && !self.queue.is_tube(tube.as_str()) {
                    return Err(Refusal::NoRoom);
                }
                if self.queue.double_in(id, tube.as_str(), now).is_some() {
                    return Err(Refusal::Job(Obstacle::KeyExists));
                }
                self.persistence.room_for_move(&self.queue, id, tube.as_str())?;
                self.queue.move_job(id, tube.as_str(), now);
            }
            Change::Priority(priority) if job.record.priority == *priority => {
                return Err(Refusal::Unchanged);
            }
            Change::Priority(priority) => {
                self.persistence.room_for_update()?;
                self.queue.set_priority(id, *priority, now);
            }
            Change::Delay(delay_s) => self.delay_job(id, *delay_s, begun_at, now)?,
        }
        self.persistence.log_changes(&mut self.queue, now);
        Ok(())
    }

    /// Gives a ready or delayed job a delay from the beginning of the order.
    fn delay_job(
        &mut self,
        id: JobId,
        delay_s: u32,
        begun_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if !self.queue.is_delayable(id) {
            return Err(Refusal::Job(Obstacle::WrongState));
        }
        let record = self.queue.job(id).ok_or(Refusal::Job(Obstacle::NoJob))?.record;
        let until = begun_at.plus_seconds(delay_s);
        let is_set = match record.state {
            JobState::Delayed => record.deadline_at == until,
            JobState::Ready | JobState::Reserved | JobState::Buried => delay_s == 0,
        };
        if is_set {
            return Err(Refusal::Unchanged);
        }
        self.persistence.room_for_update()?;
        self.queue.set_delay(id, delay_s, until, now);
        Ok(())
    }

    /// Begins a flush, by a client of its own, which it returns unless too many are under way.
    fn begin_flush(
        &mut self,
        tube: &TubeName,
        flushed: Flushed,
        now: Timestamp,
    ) -> Result<Option<ClientId>, Obstacle> {
        if !self.has_room_for_client() {
            return Err(Obstacle::NoRoom);
        }
        let client = self.queue.connect();
        let begun = self.queue.begin_flush(client, tube.as_str(), flushed, now);
        if begun == BeginFlush::Begun {
            return Ok(Some(client));
        }
        self.disconnect(client, now);
        if begun == BeginFlush::NoTube { Err(Obstacle::NoTube) } else { Ok(None) }
    }

    fn go_on_with_flush(
        &mut self,
        (client, flushed): (ClientId, Flushed),
        task: &mut Task,
        end: u64,
        now: Timestamp,
    ) -> End {
        let keys = self.queue.cooldowns().count;
        let (deleted, is_done) = self.flush_slice(client, end, now);
        task.done += match flushed {
            Flushed::Cooldowns => keys - self.queue.cooldowns().count,
            Flushed::All | Flushed::Buried => deleted,
        };
        if is_done { End::Over(Progress::Done) } else { End::Unfinished }
    }
}
