//! The command `reserve-batch`.
//!
//! Owns: how many jobs a batch reserves in a turn. It first reserves its jobs, in several turns if necessary, and keeps
//! their replies until the last one, because the reply to the batch begins with their number.

use std::collections::TryReserveError;
use std::mem;

use super::watch::WatchRights;
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::exchange::{Output, Until, WaitKind};
use crate::executor::{Caller, Executor, Outcome, answer, lacks_room, stall_with_memory, wait};
use crate::job::JobId;
use crate::protocol::{FieldList, Reply, ReservedJobs, write_reserved};
use crate::queue::Reserve;
use crate::seconds::Seconds;

/// The maximum cost of a batch in a turn, in simple requests: about 100 microseconds.
const COST_PER_TURN: u64 = 400;
/// How many jobs' replies can be written for the cost of a simple request.
const REPLIES_PER_COST: u64 = 4;

/// A `reserve-batch` that is being executed.
pub(crate) struct Batch {
    /// The maximum number of jobs that the client wants, less the jobs that it has lost.
    max_jobs: u32,
    /// How long it waits for the first job; `None` if it does not wait, or has had one.
    timeout_s: Option<Seconds>,
    /// The jobs that have been reserved so far, and not lost since.
    ids: Vec<JobId>,
    /// Their replies.
    replies: Output,
}

/// What continues a batch.
type ResumeBatch = fn(&mut Executor, &mut Caller<'_>, Batch) -> Outcome;

impl Batch {
    /// A batch without jobs.
    pub(crate) fn new(max_jobs: u32, timeout_s: Option<Seconds>) -> Self {
        Self { max_jobs, timeout_s, ids: Vec::new(), replies: Output::default() }
    }

    /// Continues the batch with `resume` after `until`.
    fn stall(self, until: Until, resume: ResumeBatch) -> Outcome {
        let memory_bytes = self.ids.capacity() * size_of::<JobId>() + self.replies.memory_bytes();
        stall_with_memory(memory_bytes, until, move |executor, caller| resume(executor, caller, self))
    }

    /// Continues the batch when the log has room for its first job.
    fn await_room(self, no_room: NoRoom, output: &mut Output) -> Outcome {
        lacks_room(no_room, output, |executor, caller| executor.reserve_batch(caller, self))
    }

    /// Whether the batch may have another job. The first may have any size, as in a `reserve`.
    fn has_room_in(&self, output: &Output, is_memory_low: bool) -> bool {
        let Self { ids, replies, .. } = self;
        ids.is_empty()
            || ids.len() < self.max_jobs as usize
                && !output.would_exceed(is_memory_low, replies.own_len(), replies.len())
    }
}

impl Executor {
    /// Reserves a turn's share of a batch, and answers if the batch is complete or the output has no more room.
    pub(super) fn reserve_batch(&mut self, caller: &mut Caller<'_>, mut batch: Batch) -> Outcome {
        if self.drop_lost(&mut batch, caller).is_err() {
            return Outcome::Abort;
        }
        let is_interrupted = !batch.ids.is_empty();
        if self.is_guarded() {
            match self.drop_unwatchable(caller.client) {
                WatchRights::Allowed => {}
                WatchRights::Forbidden if !is_interrupted => return answer(caller.output, &Reply::Forbidden),
                WatchRights::Unfinished if !is_interrupted => {
                    return batch.stall(Until::NextTurn, Self::reserve_batch);
                }
                // The batch is answered with the jobs that it has; there are no more.
                WatchRights::Forbidden | WatchRights::Unfinished => batch.max_jobs = batch.ids.len() as u32,
            }
        }
        if batch.ids.is_empty() && batch.ids.try_reserve_exact(batch.max_jobs as usize).is_err() {
            return answer(caller.output, &Reply::OutOfMemory);
        }
        let end = self.measured_cost() + COST_PER_TURN;
        let fields = self.fields_of(caller.client);
        let is_memory_low = self.is_short_of_memory();
        while batch.has_room_in(caller.output, is_memory_low) {
            if self.measured_cost() >= end {
                return batch.stall(Until::NextTurn, Self::reserve_batch);
            }
            match self.room_for_session_reservation(caller.client) {
                Ok(()) => {}
                Err(_) if !batch.ids.is_empty() => break,
                Err(no_room) => return batch.await_room(no_room, caller.output),
            }
            let timeout_s = batch.timeout_s;
            match self.queue.reserve(caller.client, Some(timeout_s.unwrap_or(Seconds::ZERO)), caller.now) {
                Reserve::Job(id) => {
                    if self.add_to(&mut batch, id, fields, caller.now).is_err() {
                        return Outcome::Abort;
                    }
                }
                Reserve::Unfinished => return batch.stall(Until::NextTurn, Self::reserve_batch),
                // Only a batch without jobs waits.
                Reserve::Waiting => return wait(WaitKind::Batch(batch.max_jobs)),
                Reserve::DeadlineSoon if timeout_s.is_some() => {
                    return answer(caller.output, &Reply::DeadlineSoon);
                }
                Reserve::TimedOut if timeout_s.is_some() => return answer(caller.output, &Reply::TimedOut),
                Reserve::DeadlineSoon | Reserve::TimedOut => break,
            }
            self.persistence.log_changes(&mut self.queue, caller.now);
            self.count_cost(1);
        }
        // The fields have their present values.
        if is_interrupted && fields.is_some() && self.write_replies(&mut batch, caller).is_err() {
            return Outcome::Abort;
        }
        self.answer_batch(caller, batch)
    }

    /// Begins a batch that has waited, with its first job. The others follow in the next turn, which has time for them.
    pub(super) fn begin_delivered_batch(
        &mut self,
        caller: &mut Caller<'_>,
        max_jobs: u32,
        first: JobId,
    ) -> Outcome {
        let mut batch = Batch::new(max_jobs, None);
        let fields = self.fields_of(caller.client);
        if batch.ids.try_reserve_exact(max_jobs as usize).is_err()
            || self.add_to(&mut batch, first, fields, caller.now).is_err()
        {
            return Outcome::Abort;
        }
        batch.stall(Until::NextTurn, Self::reserve_when_logged)
    }

    /// Continues such a batch once the log has the reservation of its job, for which no room was reserved.
    fn reserve_when_logged(&mut self, caller: &mut Caller<'_>, mut batch: Batch) -> Outcome {
        if self.drop_lost(&mut batch, caller).is_err() {
            return Outcome::Abort;
        }
        match batch.ids[..] {
            [id] if self.persistence.refuses(&self.queue, id) => self.refuse_delivered(caller, id),
            [id] if self.persistence.lacks_death_or_session_of(&self.queue, id) => {
                batch.stall(Until::BinlogRoom, Self::reserve_when_logged)
            }
            _ => self.reserve_batch(caller, batch),
        }
    }

    /// Adds a job that the client has reserved to the batch, which has room for its id. The first job takes the spare
    /// memory for replies; a batch that only waits leaves it to others.
    fn add_to(
        &mut self,
        batch: &mut Batch,
        id: JobId,
        fields: Option<FieldList>,
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        if batch.ids.is_empty() {
            batch.replies = mem::take(&mut self.spares.replies);
        }
        // A batch that loses all its jobs does not wait again.
        batch.timeout_s = None;
        batch.ids.push(id);
        self.write_reserved(&mut batch.replies, id, fields, now)
    }

    /// Writes the reply to a job of a batch.
    fn write_reserved(
        &self,
        replies: &mut Output,
        id: JobId,
        fields: Option<FieldList>,
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        let Some(body) = self.queue.body(id) else { return Ok(()) };
        let values = fields.and_then(|fields| self.values(id, fields, now));
        write_reserved(replies, id, body, values.as_deref().unwrap_or_default())
    }

    fn answer_batch(&mut self, caller: &mut Caller<'_>, batch: Batch) -> Outcome {
        match self.write_batch(caller, batch) {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Abort,
        }
    }

    /// Writes the reply to a batch.
    fn write_batch(&mut self, caller: &mut Caller<'_>, mut batch: Batch) -> Result<(), TryReserveError> {
        self.count_cost(batch.ids.len() as u64 / REPLIES_PER_COST);
        caller.output.write(&Reply::ReservedBatch(ReservedJobs::new(batch.ids.len(), b"")))?;
        caller.output.append(&mut batch.replies)?;
        self.spares.replies = batch.replies;
        Ok(())
    }

    /// Leaves out the jobs that the client has lost in other turns, to a flush or at the end of their time to run,
    /// before it reserves more: it could reserve the same job again. A lost job counts, so that the batch ends even if
    /// its jobs time out faster than it gets them.
    fn drop_lost(&mut self, batch: &mut Batch, caller: &Caller<'_>) -> Result<(), TryReserveError> {
        let count = batch.ids.len();
        self.count_cost(count as u64 / REPLIES_PER_COST);
        batch.ids.retain(|&id| self.queue.has_reserved(caller.client, id));
        if batch.ids.len() == count {
            return Ok(());
        }
        batch.max_jobs = batch.max_jobs.saturating_sub((count - batch.ids.len()) as u32);
        self.write_replies(batch, caller)
    }

    /// Writes the replies to all jobs of the batch again.
    fn write_replies(&mut self, batch: &mut Batch, caller: &Caller<'_>) -> Result<(), TryReserveError> {
        self.count_cost(batch.ids.len() as u64);
        let fields = self.fields_of(caller.client);
        batch.replies = Output::default();
        batch.ids.iter().try_for_each(|&id| self.write_reserved(&mut batch.replies, id, fields, caller.now))
    }
}
