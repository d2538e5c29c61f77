//! Storing the job of a `put`: the reasons against it, in their order, and the changes.

use super::{NotStored, Stored, new_job};
use crate::clock::Timestamp;
use crate::exchange::{Output, Put};
use crate::executor::{Executor, MemoryClass, NotDone};
use crate::job::Body;
use crate::queue::{ClientId, Duplicate, NewJob};
use crate::refusal::PutRefusal;
use crate::tags::{EncodedTags, TagSet};

impl Executor {
    /// Decides about a put whose body is complete. Returns the job that already has its key, or the first reason to
    /// refuse the put. The access rules and the log have checks of their own. Changes nothing, except that a job with
    /// the key ends if its time is over. Drain mode is the reason even if there is no room; a `complete` checks its
    /// room first, in the order of [`CommandRefusal`](crate::refusal::CommandRefusal).
    #[inline(always)]
    pub(in crate::commands) fn admit_put(
        &mut self,
        client: ClientId,
        tube: Option<&str>,
        tags: &TagSet<'_>,
        body_bytes: usize,
        output: &Output,
        now: Timestamp,
    ) -> Result<Option<Duplicate>, PutRefusal> {
        if self.is_draining {
            return Err(PutRefusal::Draining);
        }
        if let Some(tube) = tube
            && self.lacks_memory_to(MemoryClass::AddsTube(tube), client, body_bytes + output.memory_bytes())
        {
            return Err(PutRefusal::OutOfMemory);
        }
        if tags.idempotency.is_some() {
            let duplicate = self.queue.duplicate(client, tube, tags, now);
            // The end of a job is logged before room is reserved.
            self.persistence.log_changes(&mut self.queue, now);
            if duplicate.is_some() {
                return Ok(duplicate);
            }
        }
        if self.queue.is_full_for(client, tube, body_bytes) {
            return Err(PutRefusal::TubeFull);
        }
        if self.queue.make_room_for_put().is_err() || self.lacks_room_for_cooldown(tags) {
            return Err(PutRefusal::OutOfMemory);
        }
        Ok(None)
    }

    /// Stores the job of a `put` with extras, as [`Self::store`].
    #[inline(never)]
    pub(in crate::commands) fn store_with_extras(
        &mut self,
        client: ClientId,
        put: &Put,
        body: Body,
        output: &Output,
        now: Timestamp,
    ) -> Result<Stored, NotStored> {
        self.store(client, put, &put.tags(), body, output, now)
    }

    /// Stores a job with these tags in the tube of its put, or in the tube that the client uses, unless another job has
    /// its key.
    #[inline(always)]
    pub(super) fn store(
        &mut self,
        client: ClientId,
        put: &Put,
        tags: &EncodedTags<'_>,
        body: Body,
        output: &Output,
        now: Timestamp,
    ) -> Result<Stored, NotStored> {
        let (new, tube) = (new_job(put), put.tube());
        match self.admit_put(client, tube, tags.set(), body.len(), output, now) {
            Ok(None) => {}
            Ok(Some(duplicate)) => return self.put_duplicate(duplicate, new, body, now),
            Err(refusal) => {
                if refusal == PutRefusal::TubeFull {
                    self.queue.count_refused(client, tube);
                }
                return Err(refusal.into());
            }
        }
        let tube_len = || self.queue.target_tube_name(client, tube).len();
        if let Err(no_room) = self.persistence.room_for_put(new.id, tube_len, &body, tags) {
            return Err(NotDone::without_room(no_room, body));
        }
        if tags.bytes().is_empty() && tube.is_none() {
            self.queue.put(client, new, body, now);
        } else if self.queue.put_tagged(client, tube, new, body, tags, now).is_err() {
            return Err(PutRefusal::OutOfMemory.into());
        }
        debug_assert!(self.queue.job(new.id).is_some(), "the job of a put exists");
        Ok(Stored::New)
    }

    /// A put whose key another job has, or had.
    fn put_duplicate(
        &mut self,
        duplicate: Duplicate,
        new: NewJob,
        body: Body,
        now: Timestamp,
    ) -> Result<Stored, NotStored> {
        match duplicate {
            Duplicate::OfDeleted(first) => Ok(Stored::Duplicate(first, None, None)),
            Duplicate::Of(first, state) if !self.queue.would_upgrade(first, new.priority) => {
                Ok(Stored::Duplicate(first, Some(state), None))
            }
            Duplicate::Of(first, state) => match self.persistence.room_for_update() {
                Ok(()) => {
                    self.queue.upgrade(first, new.priority, now);
                    Ok(Stored::Duplicate(first, Some(state), Some(new.priority)))
                }
                Err(no_room) => Err(NotDone::without_room(no_room, body)),
            },
        }
    }

    /// Whether there is no room for the cooldown of a put with these tags.
    pub(super) fn lacks_room_for_cooldown(&self, tags: &TagSet<'_>) -> bool {
        tags.idempotency.is_some_and(|tag| !tag.cooldown_s.is_zero())
            && self.memory.forbids_cooldowns(self.queue.cooldown_bytes_with(tags))
    }
}
