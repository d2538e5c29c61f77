//! The command `put`, and its checks by access rules.

use std::rc::Rc;

use super::{Executor, Outcome, Rest, RestKind, answer};
use crate::access::{Roles, Verdict};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState, Priority};
use crate::protocol::{PutHeader, Reply, parse_tags};
use crate::queue::{ClientId, NewJob};
use crate::session::{BodyRefusal, Output, Put, PutExtras, Until};
use crate::tags::{EncodedTags, TagSet};

/// The result of a put.
pub(super) enum Stored {
    /// The job is in its tube.
    New,
    /// This job has the same key: its state, unless it has been deleted, and its new priority if it has become more
    /// urgent.
    Duplicate(JobId, Option<JobState>, Option<Priority>),
    /// The server is in drain mode.
    Draining,
    /// A rule limits the tube, and there is no room for the job.
    TubeFull,
    /// Memory or disk space is low.
    NoRoom,
    /// The log has no room yet. Nothing has changed, and the body is returned.
    Later(Body),
}

impl Executor {
    /// The line of a `put`, with its tags. The size is checked before the text after it, as in C.
    pub(super) fn begin_put(
        &mut self,
        client: ClientId,
        header: PutHeader,
        extras: Option<Box<PutExtras>>,
        output: &mut Output,
    ) -> Outcome {
        if u64::from(header.size) > self.memory.max_job_bytes {
            return Outcome::SkipBody(header, BodyRefusal::JobTooBig);
        }
        self.queue.mark_producer(client);
        let id = self.queue.take_id();
        if self.lacks_memory_for(header.size as usize + output.held_bytes()) {
            return Outcome::SkipBody(header, BodyRefusal::OutOfMemory);
        }
        Outcome::ReadBody(Put::new(id, header, extras))
    }

    /// A `put` whose body is complete.
    pub(super) fn put(
        &mut self,
        client: ClientId,
        put: Put,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let stored = match put.is_plain() {
            true => self.store(client, new_job(&put), &EncodedTags::NONE, body, now),
            false => self.store_with_extras(client, &put, body, output, now),
        };
        self.answer_put(client, put, stored, output)
    }

    /// Stores a job with these tags in the tube that the client uses, unless another job has its key.
    #[inline]
    pub(super) fn store(
        &mut self,
        client: ClientId,
        new: NewJob,
        tags: &EncodedTags<'_>,
        body: Body,
        now: Timestamp,
    ) -> Stored {
        if self.draining {
            return Stored::Draining;
        }
        if !tags.bytes().is_empty() {
            return self.store_tagged(client, new, tags, body, now);
        }
        if self.queue.is_full_for(client, body.len()) {
            return Stored::TubeFull;
        }
        if self.queue.reserve_put().is_err() {
            return Stored::NoRoom;
        }
        match self.persistence.room_for_put(new.id, || self.queue.used_tube(client), &body, tags) {
            Err(NoRoom::Full) => return Stored::NoRoom,
            Err(NoRoom::Pending) => return Stored::Later(body),
            Ok(()) => {}
        }
        self.queue.put(client, new, body, now);
        Stored::New
    }

    #[inline]
    fn answer_put(&mut self, client: ClientId, put: Put, stored: Stored, output: &mut Output) -> Outcome {
        match stored {
            Stored::New => answer(output, &Reply::Inserted(put.id)),
            Stored::Duplicate(first, state, priority) => {
                answer(output, &Reply::Duplicate(first, state, priority))
            }
            Stored::Draining => self.reject_put(&Reply::Draining, output),
            Stored::TubeFull => {
                match put.tube() {
                    Some(tube) => self.queue.count_refused_in(tube),
                    None => self.queue.count_refused(client),
                }
                answer(output, &Reply::TubeFull)
            }
            Stored::NoRoom => self.reject_put(&Reply::OutOfMemory, output),
            Stored::Later(body) => put_later(Until::BinlogRoom, put, body),
        }
    }

    /// Continues a `put` that was put off. On a server with access rules it is checked again, because any event of its
    /// connection retries it: it may still have to wait, other clients may have put, and the rules may have changed.
    pub(super) fn continue_put(
        &mut self,
        client: ClientId,
        put: Put,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let Some(guard) = &mut self.guard else { return self.put(client, put, body, output, now) };
        if guard.gives_up_put(client) {
            return self.reject_put(&Reply::OutOfMemory, output);
        }
        if guard.has_waiting_put(client) {
            return put_later(Until::Permitted, put, body);
        }
        self.put_permitted(client, put, body, output, now)
    }

    /// Refuses a `put` whose body is complete, because memory or disk space is low, or because of drain mode.
    #[cold]
    pub(super) fn reject_put(&mut self, reply: &Reply<'_>, output: &mut Output) -> Outcome {
        self.counters.rejected_puts.count(reply);
        answer(output, reply)
    }

    /// The line of a `put`, with `text` after its size, on a server with access rules. If the client's jobs are
    /// counted, its job gets an owner. Wrong tags are answered as on an open server.
    pub(super) fn begin_put_guarded(
        &mut self,
        client: ClientId,
        header: PutHeader,
        text: &[u8],
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let tags = if text.is_empty() { Ok(TagSet::NONE) } else { parse_tags(text) };
        if tags.is_ok_and(|tags| !self.may_name(client, &tags)) {
            self.note_refused_put(client, now);
            return Outcome::SkipBody(header, BodyRefusal::Forbidden);
        }
        match self.exceeds_job_bytes(client, header.size as usize, &tags.unwrap_or_default()) {
            Some((_, true)) if u64::from(header.size) <= self.memory.max_job_bytes => {
                Outcome::SkipBody(header, BodyRefusal::OutOfMemory)
            }
            Some((owner, _)) => self.begin_put_with(client, header, tags, Some(&owner), output),
            None if text.is_empty() => self.begin_put(client, header, None, output),
            None => self.begin_put_with(client, header, tags, None, output),
        }
    }

    /// A `put` whose body is complete, on a server with access rules. It may have to wait for its pace.
    pub(super) fn put_guarded(
        &mut self,
        client: ClientId,
        put: Put,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if self.may_still_put(client, &put)
            && let Some(guard) = &mut self.guard
            && guard.put_waits_until(client, now).is_some()
        {
            return match guard.gives_up_put(client) {
                false => put_later(Until::Permitted, put, body),
                true => self.reject_put(&Reply::OutOfMemory, output),
            };
        }
        self.put_permitted(client, put, body, output, now)
    }

    /// Does a put that need not wait for its pace. Other clients of the same identity may have put in the meantime.
    fn put_permitted(
        &mut self,
        client: ClientId,
        put: Put,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.may_still_put(client, &put) {
            if let Some(guard) = &mut self.guard {
                guard.count_refusal(client);
            }
            return answer(output, &Reply::Forbidden);
        }
        let tags = put.tags();
        if self.exceeds_job_bytes(client, body.len(), tags.set()).is_some_and(|(_, exceeds)| exceeds) {
            return self.reject_put(&Reply::OutOfMemory, output);
        }
        let stored = self.store_with_extras(client, &put, body, output, now);
        self.answer_put(client, put, stored, output)
    }

    /// The name of the client's identity, and whether a job with this body and these tags exceeds its limit. `None` if
    /// there is no limit.
    pub(super) fn exceeds_job_bytes(
        &self,
        client: ClientId,
        body_bytes: usize,
        tags: &TagSet<'_>,
    ) -> Option<(Rc<str>, bool)> {
        let (name, limits) = self.guard.as_ref()?.limits(client)?;
        let most = limits.max_job_bytes?;
        let added = self.queue.put_cost(client, body_bytes, tags);
        let exceeds = self.queue.owned_bytes(&name).saturating_add(added) > most;
        Some((name, exceeds))
    }

    /// Whether a put whose line was allowed is still allowed. Only new rules can have changed that; in that case the
    /// roles for the used tube have been forgotten.
    fn may_still_put(&self, client: ClientId, put: &Put) -> bool {
        let known = self.guard.as_ref().and_then(|guard| guard.client(client));
        let is_known = known.is_some_and(|known| known.used.is_some()) && put.tube().is_none();
        is_known || self.may_put_into(client, put.tube(), put.tags().set())
    }

    /// Whether the client may put a job with these tags into this tube, or into the used one.
    pub(super) fn may_put_into(&self, client: ClientId, tube: Option<&str>, tags: &TagSet<'_>) -> bool {
        let Some(grants) = self.grants(client) else { return false };
        let tube = tube.unwrap_or_else(|| self.queue.used_tube(client).as_str());
        grants.judge(Roles::PRODUCE, tube) == Verdict::Allowed && self.may_name(client, tags)
    }
}

pub(super) fn new_job(put: &Put) -> NewJob {
    let PutHeader { priority, delay_s, ttr_s, .. } = put.header();
    NewJob { id: put.id, priority, delay_s, ttr_s }
}

/// Continues the put after `until`.
#[cold]
fn put_later(until: Until, put: Put, body: Body) -> Outcome {
    let held_bytes = put.held_bytes() + body.len();
    Outcome::Stall { rest: Rest(RestKind::Put(Box::new((put, body)))), until, held_bytes }
}
