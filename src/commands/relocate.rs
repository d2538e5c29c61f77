//! The commands `move` and `reprioritize`.

use super::{Executor, Outcome, answer, lacks_room};
use crate::clock::Timestamp;
use crate::job::{JobId, Priority};
use crate::protocol::Reply;
use crate::queue::ClientId;
use crate::session::Output;

impl Executor {
    pub(super) fn move_job(
        &mut self,
        client: ClientId,
        id: JobId,
        tube: &str,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let Some(job) = self.queue.job(id).filter(|_| self.queue.is_movable(client, id)) else {
            return answer(output, &Reply::NotFound);
        };
        if let Some(double) = self.queue.double_in(id, tube, now) {
            return answer(output, &Reply::Exists(double));
        }
        if job.tube.as_str() != tube
            && let Err(no_room) = self.persistence.room_for_move(&self.queue, id, tube)
        {
            let tube: Box<str> = tube.into();
            return lacks_room(no_room, output, move |server, client, output, now| {
                server.move_job(client, id, &tube, output, now)
            });
        }
        self.queue.move_job(id, tube, now);
        answer(output, &Reply::Moved)
    }

    /// The command `reprioritize`.
    pub(super) fn set_priority(
        &mut self,
        id: JobId,
        priority: Priority,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.queue.is_unreserved(id) {
            return answer(output, &Reply::NotFound);
        }
        if let Err(no_room) = self.persistence.room_for_update() {
            return lacks_room(no_room, output, move |server, _, output, now| {
                server.set_priority(id, priority, output, now)
            });
        }
        self.queue.set_priority(id, priority, now);
        answer(output, &Reply::Reprioritized)
    }
}
