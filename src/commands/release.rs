//! The commands `release` and `bury`.
//!
//! Owns: the rule that a release without delay never fails for lack of disk space. If a rule has sent the job to a dead
//! tube, the reply may have to wait until the log has that.

use crate::binlog::NoRoom;
use crate::executor::{Caller, Executor, Outcome, answer, lacks_room};
use crate::job::{JobId, Priority};
use crate::protocol::Reply;
use crate::queue::{Release, Released};

impl Executor {
    /// A release without delay succeeds even if the disk is full, because the job must not stay with its client.
    pub(super) fn release(&mut self, caller: &mut Caller<'_>, id: JobId, release: Release) -> Outcome {
        if !self.queue.has_reserved(caller.client, id) {
            return answer(caller.output, &Reply::NotFound);
        }
        match self.persistence.room_for_update() {
            Err(NoRoom::Full) if release.delay_s.is_zero() => {}
            Err(no_room) => {
                return lacks_room(no_room, caller.output, move |executor, caller| {
                    executor.release(caller, id, release)
                });
            }
            Ok(()) => {}
        }
        let reply = match self.queue.release(caller.client, id, release, caller.now) {
            Released::Queued => Reply::Released,
            Released::Buried => Reply::Buried,
        };
        debug_assert!(
            !self.queue.has_reserved(caller.client, id),
            "a released job is not reserved by its client"
        );
        self.answer_when_logged(caller, reply, Some(id))
    }

    pub(super) fn bury(&mut self, caller: &mut Caller<'_>, id: JobId, priority: Priority) -> Outcome {
        if !self.queue.has_reserved(caller.client, id) {
            return answer(caller.output, &Reply::NotFound);
        }
        if let Err(no_room) = self.persistence.room_for_update() {
            return lacks_room(no_room, caller.output, move |executor, caller| {
                executor.bury(caller, id, priority)
            });
        }
        self.queue.bury(caller.client, id, priority, caller.now);
        debug_assert!(
            !self.queue.has_reserved(caller.client, id),
            "a buried job is not reserved by its client"
        );
        self.answer_when_logged(caller, Reply::Buried, Some(id))
    }
}
