//! Storing a `put` with tags. Driven by `put`.

use super::{Stored, new_job};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::commands::Executor;
use crate::commands::memory::MemoryClass;
use crate::exchange::{BodyRefusal, Output, Put};
use crate::job::Body;
use crate::queue::{ClientId, Duplicate, NewJob};
use crate::tags::{EncodedTags, TagSet};

impl Executor {
    /// Stores the job of a `put` with extras, in the tube that its tags name or in the used one.
    pub(in crate::commands) fn store_with_extras(
        &mut self,
        client: ClientId,
        put: &Put,
        body: Body,
        output: &Output,
        now: Timestamp,
    ) -> Stored {
        let Some(tube) = put.tube() else { return self.store(client, new_job(put), &put.tags(), body, now) };
        if self.is_draining {
            return Stored::Refused(BodyRefusal::Draining);
        }
        if self.lacks_memory_to(MemoryClass::AddsTube(tube), client, body.len() + output.memory_bytes()) {
            return Stored::Refused(BodyRefusal::OutOfMemory);
        }
        let before = self.queue.use_temporarily(client, tube);
        let stored = self.store(client, new_job(put), &put.tags(), body, now);
        self.queue.restore_used(client, before);
        stored
    }

    /// Stores a job with tags in the tube that the client uses, unless another job has its key.
    pub(super) fn store_tagged(
        &mut self,
        client: ClientId,
        new: NewJob,
        tags: &EncodedTags<'_>,
        body: Body,
        now: Timestamp,
    ) -> Stored {
        let duplicate = self.queue.duplicate(client, tags.set(), now);
        if duplicate.is_none() && self.queue.is_full_for(client, body.len()) {
            return self.tube_full(client);
        }
        let room = match duplicate {
            Some(Duplicate::OfDeleted(_)) => Ok(()),
            Some(Duplicate::Of(first, _)) if !self.queue.would_upgrade(first, new.priority) => Ok(()),
            Some(Duplicate::Of(..)) => self.persistence.room_for_update(),
            None if self.queue.make_room_for_put().is_err() || self.lacks_room_for_cooldown(tags.set()) => {
                Err(NoRoom::Full)
            }
            None => self.persistence.room_for_put(new.id, || self.queue.used_tube(client), &body, tags),
        };
        match room {
            Err(NoRoom::Pending) => return Stored::Later(body),
            Err(NoRoom::Full) => return Stored::Refused(BodyRefusal::OutOfMemory),
            Ok(()) => {}
        }
        match duplicate {
            Some(Duplicate::OfDeleted(first)) => Stored::Duplicate(first, None, None),
            Some(Duplicate::Of(first, state)) => {
                let is_upgrade = self.queue.would_upgrade(first, new.priority);
                if is_upgrade {
                    self.queue.upgrade(first, new.priority, now);
                }
                Stored::Duplicate(first, Some(state), is_upgrade.then_some(new.priority))
            }
            None => match self.queue.put_tagged(client, new, body, tags, now) {
                Ok(()) => Stored::New,
                Err(_) => Stored::Refused(BodyRefusal::OutOfMemory),
            },
        }
    }

    /// Whether there is no room for the cooldown of a put with these tags.
    pub(super) fn lacks_room_for_cooldown(&self, tags: &TagSet<'_>) -> bool {
        tags.idempotency.is_some_and(|tag| !tag.cooldown_s.is_zero())
            && self.memory.forbids_cooldowns(self.queue.cooldown_bytes_with(tags))
    }
}
