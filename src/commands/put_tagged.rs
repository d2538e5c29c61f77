//! `put` with tags.
//!
//! Owns: the tags of puts whose body is on its way. They are kept here and not in the session, so that a put without
//! tags carries no place for them. Driven by `put`.

use std::collections::BTreeMap;

use super::put::put_later;
use super::{Executor, Outcome, answer};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState, Priority};
use crate::protocol::{PutHeader, Reply};
use crate::queue::{ClientId, Duplicate, NewJob};
use crate::session::{Output, Refusal, Until};
use crate::tags::{EncodedTags, Name, TagError, TagSet};

/// What the tags of a put take beside their bytes.
const ENTRY_BYTES: usize = 64;

/// The tags of puts whose body is on its way, in their bytes, by the index of the client.
#[derive(Debug, Default)]
pub struct PendingTags {
    /// The client whose line came last. Its body mostly comes with the line, and is complete before the next line.
    last: Option<u32>,
    /// The tags of the last one; kept for its room.
    last_tags: Vec<u8>,
    /// Those of other clients.
    others: BTreeMap<u32, Vec<u8>>,
    /// What the others take.
    bytes: usize,
}

impl PendingTags {
    /// The line of a put has come. If the allocator has no memory, the tags are not there when they are taken.
    fn begin(&mut self, client: ClientId, tags: &TagSet<'_>) {
        self.end(client);
        let mut room = self.take_room();
        room.clear();
        if tags.encode(&mut room).is_ok() {
            self.keep(client, room);
        }
    }

    /// The tags are to be taken later.
    fn keep(&mut self, client: ClientId, tags: Vec<u8>) {
        self.take_room();
        (self.last, self.last_tags) = (Some(client.index), tags);
    }

    /// The room of the last tags, which are put with the others if they are not taken yet.
    fn take_room(&mut self) -> Vec<u8> {
        let tags = std::mem::take(&mut self.last_tags);
        if let Some(last) = self.last.take() {
            self.bytes += tags.len() + ENTRY_BYTES;
            self.others.insert(last, tags);
            return Vec::new();
        }
        tags
    }

    /// The tags of the client's put, which stay there; none if there are none.
    pub fn of(&self, client: ClientId) -> &[u8] {
        if self.last == Some(client.index) {
            return &self.last_tags;
        }
        self.others.get(&client.index).map_or(&[], Vec::as_slice)
    }

    fn take(&mut self, client: ClientId) -> Option<Vec<u8>> {
        if self.last == Some(client.index) {
            self.last = None;
            return Some(std::mem::take(&mut self.last_tags));
        }
        let tags = self.others.remove(&client.index)?;
        self.bytes -= tags.len() + ENTRY_BYTES;
        Some(tags)
    }

    /// Tags that were taken are used no more: their room is for the next.
    fn give_back(&mut self, tags: Vec<u8>) {
        if self.last.is_none() {
            self.last_tags = tags;
        }
    }

    /// The client's put is over, or the client is gone.
    pub fn end(&mut self, client: ClientId) {
        if let Some(tags) = self.take(client) {
            self.give_back(tags);
        }
    }

    /// The names of groups and concurrency keys in the tags of the client's put.
    pub fn names(&self, client: ClientId) -> Vec<String> {
        let is_last = self.last == Some(client.index);
        let tags = if is_last { Some(&self.last_tags) } else { self.others.get(&client.index) };
        let Some(tags) = tags.and_then(|tags| TagSet::decode(tags)) else { return Vec::new() };
        let after = tags.after.map(|after| after.group);
        let names = [tags.concurrency.map(|tag| tag.key), tags.group, after];
        names.into_iter().flatten().map(|name| name.as_str().to_owned()).collect()
    }

    /// What they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.last_tags.capacity()
    }
}

impl Executor {
    /// The line of a `put` with text behind its size, which is read as `tags`, or of one whose job has an `owner`. The size is
    /// judged before the text, as in C.
    #[cold]
    pub(super) fn begin_put_with(
        &mut self,
        client: ClientId,
        header: PutHeader,
        tags: Result<TagSet<'_>, TagError>,
        owner: Option<&str>,
        output: &mut Output,
    ) -> Outcome {
        if u64::from(header.size) > self.config.max_job_bytes {
            return Outcome::SkipBody(header, Refusal::JobTooBig);
        }
        let mut tags = match tags {
            Ok(tags) => tags,
            Err(TagError::UnknownWord) => return answer(output, &Reply::BadFormat),
            Err(TagError::BadTag) => return Outcome::SkipBody(header, Refusal::BadTag),
        };
        let longest_s = self.shares.longest_cooldown_s;
        if let Some(tag) = tags.idempotency.as_mut().filter(|_| longest_s > 0) {
            tag.cooldown_s = tag.cooldown_s.min(longest_s);
        }
        self.pending_tags.begin(client, &TagSet { owner: owner.map(Name::from), ..tags });
        self.begin_put(client, PutHeader { has_tags: true, ..header }, output)
    }

    /// A `put` with tags whose body is complete.
    pub(super) fn put_tagged(
        &mut self,
        client: ClientId,
        id: JobId,
        header: PutHeader,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let Some(tags) = self.pending_tags.take(client) else {
            return self.reject_put(&Reply::OutOfMemory, output);
        };
        let PutHeader { priority, delay_s, ttr_s, .. } = header;
        let new = NewJob { id, priority, delay_s, ttr_s };
        let put = match self.store_tagged(client, new, body, &tags, now) {
            Ok(put) => put,
            Err(body) => {
                self.pending_tags.keep(client, tags);
                return put_later(Until::BinlogRoom, id, header, body);
            }
        };
        self.pending_tags.give_back(tags);
        match put {
            TaggedPut::Stored => answer(output, &Reply::Inserted(id)),
            TaggedPut::Double(first, state, priority) => {
                answer(output, &Reply::Duplicate(first, state, priority))
            }
            TaggedPut::Refused => self.reject_put(&Reply::OutOfMemory, output),
        }
    }

    /// Stores a job with these tags, in their bytes, in the tube that the client uses, unless another job has its key.
    ///
    /// # Errors
    /// If the log has no room yet. Nothing has changed, and the body comes back.
    pub(super) fn store_tagged(
        &mut self,
        client: ClientId,
        new: NewJob,
        body: Body,
        tags: &[u8],
        now: Timestamp,
    ) -> Result<TaggedPut, Body> {
        let Some(tags) = EncodedTags::read(tags) else { return Ok(TaggedPut::Refused) };
        let double = self.queue.duplicate(client, tags.set(), now);
        let room = match double {
            Some(Duplicate::OfDeleted(_)) => Ok(()),
            Some(Duplicate::Of(first, _)) if !self.queue.would_upgrade(first, new.priority) => Ok(()),
            Some(Duplicate::Of(..)) => self.persistence.room_for_update(),
            None if self.queue.reserve_put().is_err() || self.lacks_room_for_cooldown(tags.set()) => {
                Err(NoRoom::Full)
            }
            None => self.persistence.room_for_put(new.id, || self.queue.used_tube(client), &body, &tags),
        };
        match room {
            Err(NoRoom::Pending) => return Err(body),
            Err(NoRoom::Full) => return Ok(TaggedPut::Refused),
            Ok(()) => {}
        }
        Ok(match double {
            Some(Duplicate::OfDeleted(first)) => TaggedPut::Double(first, "DELETED", None),
            Some(Duplicate::Of(first, state)) => {
                let is_upgrade = self.queue.would_upgrade(first, new.priority);
                if is_upgrade {
                    self.queue.upgrade(first, new.priority, now);
                }
                TaggedPut::Double(first, word(state), is_upgrade.then_some(new.priority))
            }
            None => match self.queue.put_tagged(client, new, body, &tags, now) {
                Ok(()) => TaggedPut::Stored,
                Err(_) => TaggedPut::Refused,
            },
        })
    }
}

/// What a put with tags has come to.
pub(super) enum TaggedPut {
    Stored,
    /// This job has the same key: the word for its state, and its new priority if it has become more urgent.
    Double(JobId, &'static str, Option<Priority>),
    /// Memory or disk is short.
    Refused,
}

/// The word for the state in the answer to a duplicate.
fn word(state: JobState) -> &'static str {
    match state {
        JobState::Ready => "READY",
        JobState::Reserved => "RESERVED",
        JobState::Delayed => "DELAYED",
        JobState::Buried => "BURIED",
    }
}
