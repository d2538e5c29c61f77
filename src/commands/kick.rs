//! The commands `kick` and `kick-job`.
//!
//! Owns: how many jobs a `kick` moves in a turn.

use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::executor::{Caller, Changed, Executor, Outcome, answer, lacks_room, stall};
use crate::job::{JobId, JobState};
use crate::protocol::Reply;
use crate::refusal::ChangeRefusal;

/// The maximum cost of a `kick` in a turn. A job that it moves costs 1, and more if the job goes to a waiting client.
const COST_PER_TURN: u64 = 512;

impl Executor {
    /// Kicks buried jobs if there are any, otherwise delayed ones (protocol, "kick").
    pub(super) fn kick(&mut self, caller: &mut Caller<'_>, bound: u64) -> Outcome {
        let any_buried = self.queue.peek(caller.client, JobState::Buried).is_some();
        let state = if any_buried { JobState::Buried } else { JobState::Delayed };
        self.kick_from(caller, state, bound, 0)
    }

    /// Continues a kick that has moved `kicked` jobs. If the disk becomes full, the reply counts the jobs moved so far.
    fn kick_from(
        &mut self,
        caller: &mut Caller<'_>,
        state: JobState,
        bound: u64,
        mut kicked: u64,
    ) -> Outcome {
        let end_of_slice = self.measured_cost() + COST_PER_TURN;
        while kicked < bound
            && let Some(id) = self.queue.next_to_kick(caller.client, state)
        {
            let continuation = move |executor: &mut Self, caller: &mut Caller<'_>| {
                executor.kick_from(caller, state, bound, kicked)
            };
            if self.measured_cost() >= end_of_slice {
                return stall(Until::NextTurn, continuation);
            }
            let is_kicked = match self.persistence.room_for_update() {
                Err(NoRoom::Full) if kicked > 0 => break,
                Err(no_room) => return lacks_room(no_room, caller.output, continuation),
                Ok(()) => self.queue.kick(id, caller.now),
            };
            self.persistence.log_changes(&mut self.queue, caller.now);
            self.count_cost(1);
            kicked += u64::from(is_kicked);
        }
        answer(caller.output, &Reply::Kicked(kicked))
    }

    /// Makes a buried or delayed job ready.
    pub(super) fn kick_one(&mut self, id: JobId, now: Timestamp) -> Changed {
        if !self.queue.is_kickable(id) {
            return Err(ChangeRefusal::WrongState.into());
        }
        self.persistence.room_for_update()?;
        if !self.queue.kick(id, now) {
            return Err(ChangeRefusal::NotFound.into());
        }
        debug_assert!(self.queue.job(id).is_some_and(|job| job.record.state != JobState::Buried));
        Ok(())
    }
}
