//! The commands `release` and `bury`.

use super::{Executor, Outcome, answer, lacks_room};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::job::{JobId, Priority};
use crate::protocol::Reply;
use crate::queue::{ClientId, Release, Released};
use crate::session::Output;

impl Executor {
    /// A release without delay succeeds even if the disk is full, because the job must not stay with its client.
    pub(super) fn release(
        &mut self,
        client: ClientId,
        id: JobId,
        release: Release,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.queue.holds(client, id) {
            return answer(output, &Reply::NotFound);
        }
        match self.persistence.room_for_update() {
            Err(NoRoom::Full) if release.delay_s.is_zero() => {}
            Err(no_room) => {
                return lacks_room(no_room, output, move |server, client, output, now| {
                    server.release(client, id, release, output, now)
                });
            }
            Ok(()) => {}
        }
        let reply = match self.queue.release(client, id, release, now) {
            Released::Queued => Reply::Released,
            Released::Buried => Reply::Buried,
        };
        self.answer_when_logged(reply, Some(id), output, now)
    }

    pub(super) fn bury(
        &mut self,
        client: ClientId,
        id: JobId,
        priority: Priority,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.queue.holds(client, id) {
            return answer(output, &Reply::NotFound);
        }
        if let Err(no_room) = self.persistence.room_for_update() {
            return lacks_room(no_room, output, move |server, client, output, now| {
                server.bury(client, id, priority, output, now)
            });
        }
        self.queue.bury(client, id, priority, now);
        self.answer_when_logged(Reply::Buried, Some(id), output, now)
    }
}
