//! `put` with tags. Driven by `put`.

use super::memory::MemoryClass;
use super::put::{Stored, new_job};
use super::{Executor, Outcome, answer};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::job::Body;
use crate::protocol::{PutHeader, Reply};
use crate::queue::{ClientId, Duplicate, NewJob};
use crate::session::{BodyRefusal, Output, Put, PutExtras};
use crate::tags::{EncodedTags, Name, TagError, TagSet};

impl Executor {
    /// The line of a `put` with text after its size, which is parsed as `tags`, or of a put whose job has an `owner`.
    /// The size is checked before the text, as in C.
    #[cold]
    pub(super) fn begin_put_with(
        &mut self,
        client: ClientId,
        header: PutHeader,
        tags: Result<TagSet<'_>, TagError>,
        owner: Option<&str>,
        output: &mut Output,
    ) -> Outcome {
        if u64::from(header.size) > self.memory.max_job_bytes {
            return Outcome::SkipBody(header, BodyRefusal::JobTooBig);
        }
        let tags = match tags {
            Ok(tags) => tags,
            Err(TagError::UnknownWord) => return answer(output, &Reply::BadFormat),
            Err(TagError::BadTag) => return Outcome::SkipBody(header, BodyRefusal::BadTag),
        };
        match self.extras_of(tags, owner) {
            Ok(extras) => self.begin_put(client, header, Some(extras), output),
            Err(refusal) => Outcome::SkipBody(header, refusal),
        }
    }

    /// The extras of a put with these tags, if its job has this owner.
    #[inline]
    pub(super) fn extras_of(
        &self,
        mut tags: TagSet<'_>,
        owner: Option<&str>,
    ) -> Result<Box<PutExtras>, BodyRefusal> {
        let max_s = self.memory.shares.max_cooldown_s;
        if let Some(tag) = tags.idempotency.as_mut().filter(|_| max_s > 0) {
            tag.cooldown_s = tag.cooldown_s.min(max_s.into());
        }
        let mut bytes = Vec::new();
        let encoded = (TagSet { owner: owner.map(Name::from), ..tags }).encode(&mut bytes);
        encoded.map_err(|_| BodyRefusal::OutOfMemory)?;
        Ok(PutExtras::of_tags(bytes, tags.tube.map(|name| name.as_str().into())))
    }

    /// Stores the job of a `put` with extras, in the tube that its tags name or in the used one.
    pub(super) fn store_with_extras(
        &mut self,
        client: ClientId,
        put: &Put,
        body: Body,
        output: &Output,
        now: Timestamp,
    ) -> Stored {
        let Some(tube) = put.tube() else { return self.store(client, new_job(put), &put.tags(), body, now) };
        if self.draining {
            return Stored::Draining;
        }
        if self.lacks_memory_to(MemoryClass::AddsTube(tube), client, body.len() + output.held_bytes()) {
            return Stored::NoRoom;
        }
        let before = self.queue.use_for_put(client, tube);
        let stored = self.store(client, new_job(put), &put.tags(), body, now);
        self.queue.use_again(client, before);
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
            return Stored::TubeFull;
        }
        let room = match duplicate {
            Some(Duplicate::OfDeleted(_)) => Ok(()),
            Some(Duplicate::Of(first, _)) if !self.queue.would_upgrade(first, new.priority) => Ok(()),
            Some(Duplicate::Of(..)) => self.persistence.room_for_update(),
            None if self.queue.reserve_put().is_err() || self.lacks_room_for_cooldown(tags.set()) => {
                Err(NoRoom::Full)
            }
            None => self.persistence.room_for_put(new.id, || self.queue.used_tube(client), &body, tags),
        };
        match room {
            Err(NoRoom::Pending) => return Stored::Later(body),
            Err(NoRoom::Full) => return Stored::NoRoom,
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
                Err(_) => Stored::NoRoom,
            },
        }
    }

    /// Whether there is no room for the cooldown of a put with these tags.
    fn lacks_room_for_cooldown(&self, tags: &TagSet<'_>) -> bool {
        tags.idempotency.is_some_and(|tag| !tag.cooldown_s.is_zero())
            && self.memory.forbids_cooldowns(self.queue.cooldown_bytes_with(tags))
    }
}
