//! The command `put`, and what access rules ask of it.

use std::rc::Rc;

use super::{Executor, Outcome, answer, stall_holding};
use crate::access::{Roles, Verdict};
use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::job::{Body, JobId};
use crate::protocol::{PutHeader, Reply, parse_tags};
use crate::queue::{ClientId, NewJob};
use crate::session::{Output, Refusal, Until};
use crate::tags::{EncodedTags, TagSet};

impl Executor {
    /// The line of a `put`. The size is judged before what follows it, as in C.
    pub(super) fn begin_put(&mut self, client: ClientId, header: PutHeader, output: &mut Output) -> Outcome {
        if u64::from(header.size) > self.config.max_job_bytes {
            return Outcome::SkipBody(header, Refusal::JobTooBig);
        }
        self.queue.mark_producer(client);
        let id = self.queue.take_id();
        if self.lacks_memory_for(header.size as usize + output.held_bytes()) {
            return Outcome::SkipBody(header, Refusal::OutOfMemory);
        }
        Outcome::ReadBody(id, header)
    }

    /// A `put` whose body is complete.
    pub(super) fn put(
        &mut self,
        client: ClientId,
        id: JobId,
        header: PutHeader,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if self.draining {
            return self.reject_put(&Reply::Draining, output);
        }
        if header.has_tags {
            return self.put_tagged(client, id, header, body, output, now);
        }
        if self.queue.reserve_put().is_err() {
            return self.reject_put(&Reply::OutOfMemory, output);
        }
        match self.persistence.room_for_put(id, || self.queue.used_tube(client), &body, &EncodedTags::NONE) {
            Err(NoRoom::Full) => return self.reject_put(&Reply::OutOfMemory, output),
            Err(NoRoom::Pending) => return put_later(Until::BinlogRoom, id, header, body),
            Ok(()) => {}
        }
        let PutHeader { priority, delay_s, ttr_s, .. } = header;
        self.queue.put(client, NewJob { id, priority, delay_s, ttr_s }, body, now);
        answer(output, &Reply::Inserted(id))
    }

    /// Goes on with a `put` that was put off. On a server with access rules it is judged again, because any event of its
    /// connection has it try: it may still have to wait, others may have put, and the rules may have changed.
    fn go_on_with_put(
        &mut self,
        client: ClientId,
        id: JobId,
        header: PutHeader,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if let Some(guard) = &mut self.guard {
            if guard.gives_up_put(client) {
                return self.give_up_put(client, output);
            }
            if guard.has_waiting_put(client) {
                return put_later(Until::Permitted, id, header, body);
            }
            if !self.may_still_put(client) {
                return self.forbid_put(client, output);
            }
            if self.exceeds_with(client, &header, &body) {
                return self.give_up_put(client, output);
            }
        }
        self.put(client, id, header, body, output, now)
    }

    /// Refuses a `put` whose body is complete, because memory or disk is short or the server drains.
    #[cold]
    pub(super) fn reject_put(&mut self, reply: &Reply<'_>, output: &mut Output) -> Outcome {
        self.rejected_puts.count(reply);
        answer(output, reply)
    }

    /// The line of a `put`, with `text` behind its size, on a server with access rules. A client whose jobs are counted gets
    /// a job with an owner.
    pub(super) fn begin_put_guarded(
        &mut self,
        client: ClientId,
        header: PutHeader,
        text: &[u8],
        output: &mut Output,
    ) -> Outcome {
        let tags = if text.is_empty() { Ok(TagSet::NONE) } else { parse_tags(text) };
        match self.exceeds_job_bytes(client, header.size as usize, &tags.unwrap_or_default()) {
            Some((_, true)) if u64::from(header.size) <= self.config.max_job_bytes => {
                Outcome::SkipBody(header, Refusal::OutOfMemory)
            }
            Some((owner, _)) => self.begin_put_with(client, header, tags, Some(&owner), output),
            None if text.is_empty() => self.begin_put(client, header, output),
            None => self.begin_put_with(client, header, tags, None, output),
        }
    }

    /// A `put` whose body is complete, on a server with access rules. Other clients of the same identity may have put
    /// meanwhile, and it may have to wait for its turn.
    pub(super) fn put_guarded(
        &mut self,
        client: ClientId,
        id: JobId,
        header: PutHeader,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if !self.may_still_put(client) {
            return self.forbid_put(client, output);
        }
        if let Some(guard) = &mut self.guard
            && guard.put_waits_until(client, now).is_some()
        {
            return match guard.gives_up_put(client) {
                false => put_later(Until::Permitted, id, header, body),
                true => self.give_up_put(client, output),
            };
        }
        if self.exceeds_with(client, &header, &body) {
            return self.give_up_put(client, output);
        }
        self.put(client, id, header, body, output, now)
    }

    /// Whether a job with such a body and these tags is more than the client's identity may put, whose name comes with it.
    /// `None` if there is no limit.
    fn exceeds_job_bytes(
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

    /// The same of a put whose body is complete.
    fn exceeds_with(&self, client: ClientId, header: &PutHeader, body: &Body) -> bool {
        let bytes = if header.has_tags { self.pending_tags.of(client) } else { &[] };
        let tags = TagSet::decode(bytes).unwrap_or_default();
        self.exceeds_job_bytes(client, body.len(), &tags).is_some_and(|(_, exceeds)| exceeds)
    }

    /// Whether a put whose line was allowed still is. Only other rules can have changed that; the roles for the used tube are
    /// forgotten then.
    fn may_still_put(&mut self, client: ClientId) -> bool {
        let Self { guard: Some(guard), queue, pending_tags, .. } = self else { return false };
        let (Some(known), Some(grants)) = (guard.client(client), guard.grants(client)) else { return false };
        known.used.is_some() || {
            let names = pending_tags.names(client);
            grants.judge(Roles::PRODUCE, queue.used_tube(client).as_str()) == Verdict::Allowed
                && names.iter().all(|name| grants.on(name).meets(Roles::PRODUCE))
        }
    }

    fn forbid_put(&mut self, client: ClientId, output: &mut Output) -> Outcome {
        self.pending_tags.end(client);
        if let Some(guard) = &mut self.guard {
            guard.count_refusal(client);
        }
        answer(output, &Reply::Forbidden)
    }

    /// Refuses a put whose body is there, and forgets its tags.
    fn give_up_put(&mut self, client: ClientId, output: &mut Output) -> Outcome {
        self.pending_tags.end(client);
        self.reject_put(&Reply::OutOfMemory, output)
    }
}

/// The put goes on when `until` has come.
#[cold]
pub(super) fn put_later(until: Until, id: JobId, header: PutHeader, body: Body) -> Outcome {
    stall_holding(body.len(), until, move |server, client, output, now| {
        server.go_on_with_put(client, id, header, body, output, now)
    })
}
