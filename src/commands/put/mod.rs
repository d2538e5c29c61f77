//! The command `put`, from its line to its reply.
//!
//! Owns: the checks once the body is complete, and the reply. The id is assigned when the line is accepted, as in C, so
//! a put that is refused later leaves a gap in the ids. `line` checks the line, `store` stores the job. A put that
//! lacks room in the log, or waits for its pace, is a continuation; on a server with access rules it is checked again
//! when it continues.

mod line;
mod store;

pub(super) use self::line::LineOf;

use crate::access::{Roles, Verdict};
use crate::binlog::LogState;
use crate::clock::Timestamp;
use crate::exchange::{Output, Put, Until};
use crate::executor::{Caller, Continuation, Executor, NotDone, Outcome, Permission, answer};
use crate::job::{Body, JobId, JobState, Priority};
use crate::protocol::{PutHeader, Reply, parse_tags};
use crate::queue::{ClientId, NewJob};
use crate::refusal::{CommandRefusal, PutRefusal};
use crate::tags::{EncodedTags, TagError, TagSet};

/// The result of a put.
pub(super) enum Stored {
    /// The job is in its tube.
    New,
    /// This job has the same key: its state, unless it has been deleted, and its new priority if it has become more
    /// urgent.
    Duplicate(JobId, Option<JobState>, Option<Priority>),
}

/// The reason why the job of a put is not stored.
type NotStored = NotDone<PutRefusal, Body>;

impl Executor {
    /// The line of a `put`, with `text` after its size.
    pub(super) fn begin_put<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        header: PutHeader,
        text: &[u8],
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let extras = match self.check_put_line::<GUARDED>(client, header, text, LineOf::Put, now) {
            Ok(extras) => extras,
            // As in C, what follows such a line is not its body.
            Err(CommandRefusal::BadTag) if matches!(parse_tags(text), Err(TagError::UnknownWord)) => {
                return self.refuse_put(CommandRefusal::BadTag, output);
            }
            Err(refusal) => return Outcome::SkipBody(header, refusal),
        };
        self.queue.mark_producer(client);
        let id = self.queue.allocate_id();
        if self.lacks_memory_for(header.size as usize + output.memory_bytes()) {
            return Outcome::SkipBody(header, CommandRefusal::OutOfMemory);
        }
        Outcome::ReadBody(Put::new(id, header, extras))
    }

    /// A `put` whose body is complete.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        client: ClientId,
        put: Put,
        body: Body,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let stored = if put.is_plain() {
            self.store(client, &put, &EncodedTags::NONE, body, output, now)
        } else {
            self.store_with_extras(client, &put, body, output, now)
        };
        self.answer_put(put, stored, output)
    }

    #[inline]
    fn answer_put(&mut self, put: Put, stored: Result<Stored, NotStored>, output: &mut Output) -> Outcome {
        match stored {
            Ok(Stored::New) => {
                let outcome = answer(output, &Reply::Inserted(put.id));
                if let Some(extras) = put.into_extras() {
                    self.spares.extras = Some(extras);
                }
                outcome
            }
            Ok(Stored::Duplicate(first, state, priority)) => {
                answer(output, &Reply::Duplicate(first, state, priority))
            }
            Err(NotDone::Refused(refusal)) => self.refuse_put(refusal.into(), output),
            Err(NotDone::NoRoomYet(body)) => {
                Continuation::Put(Box::new((put, body))).later(Until::BinlogRoom)
            }
        }
    }

    /// Continues a `put` that was put off. On a server with access rules it is checked again, because any event of its
    /// connection retries it: it may still have to wait, other clients may have put, and the rules may have changed.
    pub(super) fn continue_put(&mut self, caller: &mut Caller<'_>, put: Put, body: Body) -> Outcome {
        let Some(guard) = &mut self.guard else {
            return self.put(caller.client, put, body, caller.output, caller.now);
        };
        if guard.gives_up_put(caller.client, caller.now) {
            return self.refuse_late_put(caller.output);
        }
        if guard.has_waiting_put(caller.client) {
            return Continuation::Put(Box::new((put, body))).later(Until::PutPace);
        }
        self.put_permitted(caller, put, body)
    }

    /// Answers a put, or a `complete`, that is refused for this reason, and counts it.
    #[cold]
    pub(super) fn refuse_put(&mut self, refusal: CommandRefusal, output: &mut Output) -> Outcome {
        self.count_refused_put(refusal);
        answer(output, &refusal.into())
    }

    /// Answers a put, or a `complete`, that cannot wait for its pace, and counts it. The log has no line about it: the
    /// server is short of nothing.
    #[cold]
    pub(super) fn refuse_late_put(&mut self, output: &mut Output) -> Outcome {
        self.counters.refused_puts.count_late();
        answer(output, &Reply::OutOfMemory)
    }

    /// Counts a put that is refused for this reason, from a client or from the API. The tube itself counts a put that
    /// it has no room for.
    pub(super) fn count_refused_put(&mut self, refusal: CommandRefusal) {
        match refusal {
            CommandRefusal::JobTooBig | CommandRefusal::OutOfMemory | CommandRefusal::Draining => {
                let binlog = self.persistence.binlog();
                let is_disk_full = binlog.is_some_and(|binlog| binlog.state() == LogState::Full);
                self.counters.refused_puts.count(refusal, is_disk_full);
            }
            CommandRefusal::BadTag => self.counters.malformed += 1,
            CommandRefusal::NotFound
            | CommandRefusal::Forbidden
            | CommandRefusal::TubeFull
            | CommandRefusal::ExpectedCrlf => {}
        }
    }

    /// A `put` whose body is complete, on a server with access rules. It may have to wait for its pace.
    pub(super) fn put_guarded(&mut self, caller: &mut Caller<'_>, put: Put, body: Body) -> Outcome {
        let &mut Caller { client, ref output, now, .. } = caller;
        // A put that is refused anyway does not wait. If the log has no room, that shows only later.
        let waits = self.has_pace(client) && {
            let (tags, size) = (put.tags(), put.size as usize);
            self.check_rights_to_put(client, put.tube(), tags.set(), size).is_ok()
                && self.admit_put(client, put.tube(), tags.set(), size, output, now).is_ok()
                && self.permit_puts(client, 1, None, now) == Permission::Later
        };
        if waits { self.continue_put(caller, put, body) } else { self.put_permitted(caller, put, body) }
    }

    /// Does a put that need not wait for its pace. Other clients of the same identity may have put in the meantime.
    fn put_permitted(&mut self, caller: &mut Caller<'_>, put: Put, body: Body) -> Outcome {
        let &mut Caller { client, ref mut output, now, .. } = caller;
        let tags = put.tags();
        if let Err(refusal) = self.check_rights_to_put(client, put.tube(), tags.set(), put.size as usize) {
            if refusal == CommandRefusal::Forbidden
                && let Some(guard) = &mut self.guard
            {
                guard.count_refusal(client);
            }
            return self.refuse_put(refusal, output);
        }
        let stored = self.store(client, &put, &tags, body, output, now);
        self.answer_put(put, stored, output)
    }

    /// Whether the access rules still allow a put whose line they have allowed, and the limits of its identity. Only
    /// new rules can forbid it; in that case the roles for the used tube have been forgotten.
    fn check_rights_to_put(
        &self,
        client: ClientId,
        tube: Option<&str>,
        tags: &TagSet<'_>,
        body_bytes: usize,
    ) -> Result<(), CommandRefusal> {
        let known = self.guard.as_ref().and_then(|guard| guard.client(client));
        let is_known = known.is_some_and(|known| known.used.is_some()) && tube.is_none();
        if !is_known && !self.may_put(client, tube, tags) {
            return Err(CommandRefusal::Forbidden);
        }
        let owner = self.owner_of_put(client, tube, body_bytes, tags, LineOf::Put);
        if owner.is_some_and(|(_, exceeds)| exceeds) { Err(CommandRefusal::OutOfMemory) } else { Ok(()) }
    }

    /// Whether the client may put a job with these tags into this tube, or into the used one.
    pub(super) fn may_put(&self, client: ClientId, tube: Option<&str>, tags: &TagSet<'_>) -> bool {
        let Some(grants) = self.grants(client) else { return false };
        grants.judge(Roles::PRODUCE, self.queue.target_tube_name(client, tube)) == Verdict::Allowed
            && self.may_name(client, tags)
    }
}

pub(super) fn new_job(put: &Put) -> NewJob {
    let PutHeader { priority, delay_s, ttr_s, .. } = put.header();
    NewJob { id: put.id, priority, delay_s, ttr_s }
}
