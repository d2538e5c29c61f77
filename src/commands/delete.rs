//! The commands `delete` and `delete-batch`.
//!
//! Owns: how many jobs a batch deletes in a turn. A delete needs no room in the log.

use std::vec;

use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::executor::{Caller, Executor, Outcome, answer, stall_with_memory};
use crate::job::JobId;
use crate::protocol::{IdList, Reply};
use crate::queue::ClientId;

/// The maximum cost of a batch in a turn, in simple requests: about 100 microseconds.
const COST_PER_TURN: u64 = 400;

/// A `delete-batch` that is being executed.
struct DeleteBatch {
    /// The jobs that have not been deleted yet.
    ids: vec::IntoIter<JobId>,
    deleted: u64,
    /// How many ids belong to no job that the client may delete.
    missing: u64,
}

impl Executor {
    /// Deletes a job; returns whether the client was able to.
    #[inline]
    pub(super) fn delete(&mut self, client: ClientId, id: JobId, now: Timestamp) -> bool {
        let Some(body) = self.queue.delete(client, id, now) else { return false };
        debug_assert!(self.queue.job(id).is_none(), "a deleted job does not exist");
        if let Some(watch) = body.watch() {
            self.detach_body(watch, body);
        }
        true
    }

    pub(super) fn begin_delete_batch(&mut self, caller: &mut Caller<'_>, list: IdList<'_>) -> Outcome {
        let mut ids = Vec::new();
        if ids.try_reserve_exact(list.count()).is_err() {
            return answer(caller.output, &Reply::OutOfMemory);
        }
        ids.extend(list.iter());
        let batch = DeleteBatch { ids: ids.into_iter(), deleted: 0, missing: 0 };
        self.delete_batch(caller, batch)
    }

    /// Deletes a turn's share of a batch, and answers if the batch is complete.
    fn delete_batch(&mut self, caller: &mut Caller<'_>, mut batch: DeleteBatch) -> Outcome {
        let end = self.measured_cost() + COST_PER_TURN;
        while self.measured_cost() < end {
            let Some(id) = batch.ids.next() else {
                return answer(caller.output, &Reply::DeletedBatch(batch.deleted, batch.missing));
            };
            if self.may_end(caller.client, id) && self.delete(caller.client, id, caller.now) {
                batch.deleted += 1;
            } else {
                batch.missing += 1;
            }
            self.persistence.log_changes(&mut self.queue, caller.now);
            self.count_cost(1);
        }
        let memory_bytes = batch.ids.len() * size_of::<JobId>();
        stall_with_memory(memory_bytes, Until::NextTurn, |executor, caller| {
            executor.delete_batch(caller, batch)
        })
    }
}
