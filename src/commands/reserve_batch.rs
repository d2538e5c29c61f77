//! The command `reserve-batch`.
//!
//! Owns: how many jobs a batch reserves in a turn. It first reserves its jobs, in several turns if necessary, and then
//! answers in one piece, because the reply begins with their number.

use super::reserve::reserved;
use super::watch::WatchList;
use super::{Caller, Executor, Outcome, answer, lacks_room, stall_with_memory, wait};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::exchange::{Output, Until, Wait};
use crate::job::{BodyRef, JobId};
use crate::protocol::{Reply, ReservedJobs, reserved_len};
use crate::queue::{ClientId, Reserve, WaitOutcome};
use crate::seconds::Seconds;

/// The maximum cost of a batch in a turn, in simple requests: about 100 microseconds.
const WORK_PER_TURN: u64 = 400;
/// How many jobs' replies can be written for the cost of a simple request.
const REPLIES_PER_WORK: u64 = 4;

/// A `reserve-batch` that is being executed.
pub(crate) struct Batch {
    /// The maximum number of jobs that the client wants.
    most: u32,
    /// How long it waits for the first job; `None` if it does not wait.
    timeout_s: Option<Seconds>,
    /// The jobs that have been reserved so far.
    ids: Vec<JobId>,
    /// How many bytes of their replies are copied.
    own_bytes: usize,
    /// The total length of their replies, in bytes.
    all_bytes: usize,
}

impl Batch {
    /// A batch without jobs.
    pub(crate) fn new(most: u32, timeout_s: Option<Seconds>) -> Self {
        Self { most, timeout_s, ids: Vec::new(), own_bytes: 0, all_bytes: 0 }
    }

    /// Continues the batch after `until`.
    fn stall(self, until: Until) -> Outcome {
        let memory_bytes = self.ids.capacity() * size_of::<JobId>();
        stall_with_memory(memory_bytes, until, |server, caller| server.reserve_batch(caller, self))
    }

    /// Continues the batch when the log has room for its first job.
    fn await_room(self, no_room: NoRoom, output: &mut Output) -> Outcome {
        lacks_room(no_room, output, |server, caller| server.reserve_batch(caller, self))
    }

    /// Whether the batch may have another job. The first may have any size, as in a `reserve`.
    fn has_room_in(&self, output: &Output, is_memory_low: bool) -> bool {
        self.ids.is_empty()
            || self.ids.len() < self.most as usize
                && !output.would_exceed(is_memory_low, self.own_bytes, self.all_bytes)
    }
}

impl Executor {
    /// Reserves a turn's share of a batch, and answers if the batch is complete or the output has no more room.
    pub(super) fn reserve_batch(&mut self, caller: &mut Caller<'_>, mut batch: Batch) -> Outcome {
        if self.is_guarded() {
            match self.drop_unwatchable(caller.client) {
                WatchList::Allowed => {}
                WatchList::Forbidden if batch.ids.is_empty() => {
                    return answer(caller.output, &Reply::Forbidden);
                }
                WatchList::Unfinished if batch.ids.is_empty() => return batch.stall(Until::NextTurn),
                // The batch is answered with the jobs that it has; there are no more.
                WatchList::Forbidden | WatchList::Unfinished => batch.most = batch.ids.len() as u32,
            }
        }
        // No room was reserved for a job that has come while the client waited.
        if batch
            .ids
            .first()
            .is_some_and(|&id| self.persistence.lacks(id) && self.queue.has_reserved(caller.client, id))
        {
            return batch.stall(Until::BinlogRoom);
        }
        let end = self.spent() + WORK_PER_TURN;
        let is_memory_low = self.is_short_of_memory();
        while batch.has_room_in(caller.output, is_memory_low) {
            if self.spent() >= end {
                return batch.stall(Until::NextTurn);
            }
            let is_first = batch.ids.is_empty();
            if batch.ids.try_reserve(1).is_err() {
                if is_first {
                    return answer(caller.output, &Reply::OutOfMemory);
                }
                break;
            }
            match self.room_for_session_reservation(caller.client) {
                Ok(()) => {}
                Err(_) if !is_first => break,
                Err(no_room) => return batch.await_room(no_room, caller.output),
            }
            let timeout_s = batch.timeout_s.filter(|_| is_first);
            match self.queue.reserve(caller.client, Some(timeout_s.unwrap_or(Seconds::ZERO)), caller.now) {
                Reserve::Job(id) => self.add_to(&mut batch, caller.client, id, caller.now),
                Reserve::Unfinished => return batch.stall(Until::NextTurn),
                // Only a batch without jobs waits.
                Reserve::Waiting => return wait(Wait::Batch(batch.most), false),
                Reserve::DeadlineSoon if timeout_s.is_some() => {
                    return answer(caller.output, &Reply::DeadlineSoon);
                }
                Reserve::TimedOut if timeout_s.is_some() => return answer(caller.output, &Reply::TimedOut),
                Reserve::DeadlineSoon | Reserve::TimedOut => break,
            }
            self.persistence.log_changes(&mut self.queue, caller.now);
            self.meter.work += 1;
        }
        self.answer_batch(caller, &batch.ids)
    }

    /// Handles the queue's answer to a batch that has waited for its first job. The others follow in the next turn,
    /// which has time for them.
    pub(super) fn answer_first_of_batch(
        &mut self,
        caller: &mut Caller<'_>,
        most: u32,
        wait: WaitOutcome,
    ) -> Outcome {
        match reserved(wait, caller.output) {
            Ok(id) => {
                let mut batch = Batch::new(most, None);
                if batch.ids.try_reserve(1).is_err() {
                    return Outcome::Abort;
                }
                self.add_to(&mut batch, caller.client, id, caller.now);
                batch.stall(Until::NextTurn)
            }
            Err(outcome) => outcome,
        }
    }

    fn add_to(&self, batch: &mut Batch, client: ClientId, id: JobId, now: Timestamp) {
        if let Some(body) = self.queue.body(id) {
            let values = self.fields_of(client).and_then(|fields| self.values(id, fields, now));
            let head = reserved_len(id, body) + values.map_or(0, |values| 1 + values.len());
            batch.own_bytes += head + body.copied_len();
            batch.all_bytes += head + body.len();
        }
        batch.ids.push(id);
    }

    /// Answers a batch. Jobs that the client has lost in the meantime, to a flush or at the end of their time to run,
    /// are left out.
    fn answer_batch(&mut self, caller: &mut Caller<'_>, ids: &[JobId]) -> Outcome {
        let mut jobs: Vec<(JobId, BodyRef<'_>)> = Vec::new();
        if jobs.try_reserve_exact(ids.len()).is_err() {
            return Outcome::Abort;
        }
        let reserved = |&id: &JobId| Some((id, self.queue.body_for_holder(caller.client, id)?));
        jobs.extend(ids.iter().filter_map(reserved));
        let values: Vec<String> = match self.fields_of(caller.client) {
            Some(fields) => {
                jobs.iter().map(|&(id, _)| self.values(id, fields, caller.now).unwrap_or_default()).collect()
            }
            None => Vec::new(),
        };
        let outcome = answer(caller.output, &Reply::ReservedBatch(ReservedJobs::new(&jobs, &values)));
        self.meter.work += jobs.len() as u64 / REPLIES_PER_WORK;
        outcome
    }
}
