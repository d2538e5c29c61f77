//! The commands `move` and `reprioritize`, and a new delay, which only an order of the API can give to a job.

use crate::clock::Timestamp;
use crate::executor::{Changed, Executor};
use crate::job::{JobId, Priority};
use crate::queue::ClientId;
use crate::refusal::{ChangeRefusal, PutRefusal};
use crate::seconds::Seconds;

impl Executor {
    pub(super) fn move_one(&mut self, client: ClientId, id: JobId, tube: &str, now: Timestamp) -> Changed {
        // This comes first, because it may end a job, and the group of this one with it.
        let duplicate = self.queue.duplicate_in(id, tube, now);
        self.persistence.log_changes(&mut self.queue, now);
        let job = self
            .queue
            .job(id)
            .filter(|_| self.queue.is_movable(client, id))
            .ok_or(ChangeRefusal::NotFound)?;
        if let Some(duplicate) = duplicate {
            return Err(ChangeRefusal::KeyExists(duplicate).into());
        }
        if job.tube.as_str() != tube {
            if self.queue.is_full_for(client, Some(tube), job.body.len()) {
                self.queue.count_refused(client, Some(tube));
                return Err(PutRefusal::TubeFull.into());
            }
            self.persistence.room_for_move(&self.queue, id, tube, now)?;
        }
        if !self.queue.move_job(id, tube, now) {
            return Err(ChangeRefusal::NotFound.into());
        }
        debug_assert!(
            self.queue.job(id).is_some_and(|job| job.tube.as_str() == tube),
            "a moved job is there"
        );
        Ok(())
    }

    pub(super) fn reprioritize_one(&mut self, id: JobId, priority: Priority, now: Timestamp) -> Changed {
        if !self.queue.is_unreserved(id) {
            return Err(ChangeRefusal::Reserved.into());
        }
        self.persistence.room_for_update()?;
        if !self.queue.set_priority(id, priority, now) {
            return Err(ChangeRefusal::NotFound.into());
        }
        debug_assert!(self.queue.job(id).is_some_and(|job| job.record.priority == priority));
        Ok(())
    }

    /// Delays a ready or delayed job until `until`.
    pub(super) fn delay_one(
        &mut self,
        id: JobId,
        delay_s: Seconds,
        until: Timestamp,
        now: Timestamp,
    ) -> Changed {
        if !self.queue.is_delayable(id) {
            return Err(ChangeRefusal::WrongState.into());
        }
        self.persistence.room_for_update()?;
        if !self.queue.set_delay(id, delay_s, until, now) {
            return Err(ChangeRefusal::NotFound.into());
        }
        Ok(())
    }
}
