//! `put` with tags.
//!
//! Owns: the tags of puts whose body is on its way. They are kept here and not in the session, so that a put without
//! tags carries no place for them. Driven by `execute`.

use std::collections::BTreeMap;

use super::execute::{Executor, answer, lacks_room};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState};
use crate::protocol::{PutHeader, Reply, TagError, parse_tags};
use crate::queue::{ClientId, Duplicate, NewJob};
use crate::session::{Outcome, Output, Refusal, StalledCommand, Until};
use crate::tags::TagSet;

/// What the tags of a put take beside their bytes.
const ENTRY_BYTES: usize = 64;

/// The tags of puts whose body is on its way, in their bytes, by the index of the client.
#[derive(Debug, Default)]
pub struct PendingTags {
    by_client: BTreeMap<u32, Box<[u8]>>,
    bytes: usize,
}

impl PendingTags {
    fn insert(&mut self, client: ClientId, tags: Box<[u8]>) {
        self.end(client);
        self.bytes += tags.len() + ENTRY_BYTES;
        self.by_client.insert(client.index, tags);
    }

    fn take(&mut self, client: ClientId) -> Option<Box<[u8]>> {
        let tags = self.by_client.remove(&client.index)?;
        self.bytes -= tags.len() + ENTRY_BYTES;
        Some(tags)
    }

    /// The client's put is over, or the client is gone.
    #[inline]
    pub fn end(&mut self, client: ClientId) {
        if !self.by_client.is_empty() {
            self.take(client);
        }
    }

    /// What they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Executor {
    /// The line of a `put` with text behind its size. The size is judged before the text, as in C.
    #[cold]
    pub(super) fn put_with(
        &mut self,
        client: ClientId,
        header: PutHeader,
        text: &[u8],
        output: &mut Output,
    ) -> Outcome {
        if u64::from(header.size) > self.config.max_job_bytes {
            return Outcome::SkipBody(header, Refusal::JobTooBig);
        }
        let tags = match parse_tags(text) {
            Ok(tags) => tags,
            Err(TagError::UnknownWord) => return answer(output, &Reply::BadFormat),
            Err(TagError::BadTag) => return Outcome::SkipBody(header, Refusal::BadTag),
        };
        let mut bytes = Vec::new();
        if tags.encode(&mut bytes).is_ok() {
            self.pending_tags.insert(client, bytes.into_boxed_slice());
        }
        self.accept_put(client, PutHeader { has_tags: true, ..header }, output)
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
        let Some(mut tags) = self.pending_tags.take(client) else {
            return self.reject_put(&Reply::OutOfMemory, output);
        };
        let Some(set) = TagSet::decode(&tags) else { return answer(output, &Reply::InternalError) };
        if let Some(duplicate) = self.queue.duplicate(client, &set, now) {
            let reply = match duplicate {
                Duplicate::OfDeleted(first) => Reply::Duplicate(first, "DELETED", None),
                Duplicate::Of(first, state) if !self.queue.would_upgrade(first, header.priority) => {
                    Reply::Duplicate(first, word(state), None)
                }
                Duplicate::Of(first, state) => {
                    if let Err(no_room) = self.persistence.room_for_update() {
                        self.pending_tags.insert(client, tags);
                        return lacks_room(no_room, StalledCommand::Put(id, header, body), output);
                    }
                    self.queue.upgrade(first, header.priority, now);
                    Reply::Duplicate(first, word(state), Some(header.priority))
                }
            };
            return answer(output, &reply);
        }
        if self.queue.reserve_put().is_err() {
            return self.reject_put(&Reply::OutOfMemory, output);
        }
        match self.persistence.room_for_put(id, self.queue.used_tube(client), &body, &tags) {
            Err(NoRoom::Full) => return self.reject_put(&Reply::OutOfMemory, output),
            Err(NoRoom::Pending) => {
                self.pending_tags.insert(client, tags);
                return Outcome::stall(StalledCommand::Put(id, header, body), Until::BinlogRoom);
            }
            Ok(()) => {}
        }
        let PutHeader { priority, delay_s, ttr_s, .. } = header;
        let new = NewJob { id, priority, delay_s, ttr_s };
        match self.queue.put_tagged(client, new, body, &mut tags, now) {
            Ok(()) => answer(output, &Reply::Inserted(id)),
            Err(_) => self.reject_put(&Reply::OutOfMemory, output),
        }
    }
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
