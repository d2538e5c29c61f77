//! The command `complete`: ends a job that the client has reserved and puts up to a hundred others, all or nothing.
//!
//! Owns: which of several reasons refuses it, and the rule that its records are one change of the log. The exchange
//! reads the puts; each line is checked here when it arrives, and all of them are executed here once the last body has
//! arrived.

use std::collections::TryReserveError;
use std::{iter, mem};

use super::put::{LineOf, new_job};
use crate::binlog::{CompleteRoom, NoRoom};
use crate::exchange::{Complete, Put, Until};
use crate::executor::{
    Caller, Continuation, Executor, MemoryClass, NotDone, Outcome, Permission, Spares, answer,
};
use crate::job::{Body, JobId};
use crate::protocol::{Command, IdList, PutHeader, Reply};
use crate::queue::{ClientId, CompletedPut, NewJob, Planned, Queue};
use crate::refusal::CommandRefusal;
use crate::tags::{EncodedTags, TagSet};

impl Executor {
    /// The line of a `complete`, which the access rules may have refused.
    pub(super) fn begin_complete(
        &mut self,
        caller: &mut Caller<'_>,
        (id, count): (JobId, u32),
        refusal: Option<CommandRefusal>,
    ) -> Outcome {
        let complete = match self.spares.complete.take() {
            Some(mut complete) => {
                complete.renew(id, count, refusal);
                complete
            }
            None => Box::new(Complete::new(id, count, refusal)),
        };
        if complete.is_whole() { self.complete(caller, complete, false) } else { Outcome::ReadPuts(complete) }
    }

    /// Checks the line of the next put, or executes the `complete` if all of them have arrived.
    #[inline(never)]
    pub(super) fn continue_puts<const GUARDED: bool>(
        &mut self,
        caller: &mut Caller<'_>,
        mut complete: Box<Complete>,
        line: Option<(PutHeader, &[u8])>,
    ) -> Outcome {
        let Some(line) = line else { return self.complete(caller, complete, false) };
        let checked = self.check_line::<GUARDED>(caller, line, complete.memory_bytes());
        complete.begin_put(checked);
        Outcome::ReadPuts(complete)
    }

    /// A `complete` with one put that has arrived whole and has no tags. `body` ends with the CRLF.
    #[inline(never)]
    pub(super) fn complete_with<const GUARDED: bool>(
        &mut self,
        caller: &mut Caller<'_>,
        id: JobId,
        (header, body): (PutHeader, &[u8]),
    ) -> Outcome {
        let command = Command::Complete { id, count: 1 };
        self.note_line(caller.client, &command);
        if !GUARDED && let Some(outcome) = self.complete_at_once(caller, id, (header, body)) {
            return outcome;
        }
        // There is a reason to refuse or delay it, or there may be one: the usual path finds the first one.
        let refused = if GUARDED { self.guard_command(caller, &command) } else { None };
        let begun = refused.unwrap_or_else(|| self.begin_complete(caller, (id, 1), None));
        let Outcome::ReadPuts(mut complete) = begun else { return begun };
        let checked = self.check_line::<GUARDED>(caller, (header, b""), complete.memory_bytes());
        complete.take_last_put(checked, body);
        self.complete(caller, complete, false)
    }

    /// Executes a `complete` with one put on a server without access rules. Returns `None`, and changes nothing, if
    /// there is any reason to refuse or delay it, or if the job has tags. It does not decide which reason counts, so
    /// the order of the reasons is in `plan_complete` alone.
    fn complete_at_once(
        &mut self,
        caller: &mut Caller<'_>,
        id: JobId,
        (header, body): (PutHeader, &[u8]),
    ) -> Option<Outcome> {
        let &mut Caller { client, ref mut output, now, .. } = caller;
        let PutHeader { priority, delay_s, ttr_s, size } = header;
        let of = LineOf::Complete { memory_bytes: size_of::<Complete>() + output.memory_bytes() };
        let needs_usual_path = self.check_put_line::<false>(client, header, b"", of, now).is_err()
            || !self.queue.has_reserved(client, id)
            || self.queue.has_tags(id)
            || self.admit_put(client, None, &TagSet::NONE, size as usize, output, now).is_err();
        if needs_usual_path {
            return None;
        }
        let body = &body[..size as usize];
        self.persistence.log_changes(&mut self.queue, now);
        let new = NewJob { id: self.queue.next_id(), priority, delay_s, ttr_s };
        let completed = CompletedPut { new, tags: &EncodedTags::NONE, tube: None, body_bytes: body.len() };
        let body = Body::copy_of(body).ok()?;
        let puts = iter::once((completed, Planned::New));
        let room = self.persistence.room_for_complete(&self.queue, client, puts).ok()?;
        self.note_line(client, &Command::Put(header));
        self.queue.mark_producer(client);
        self.queue.allocate_id();
        self.delete(client, id, now);
        self.queue.put(client, new, body, now);
        self.persistence.log_complete(&mut self.queue, id, room, now);
        self.count_cost(1);
        Some(answer(output, &Reply::Completed(IdList::of_reply(&[new.id]))))
    }

    /// The line of a put, with `text` after its size. The `complete` already uses `memory_bytes`.
    fn check_line<const GUARDED: bool>(
        &mut self,
        caller: &Caller<'_>,
        (header, text): (PutHeader, &[u8]),
        memory_bytes: usize,
    ) -> Result<Put, (PutHeader, CommandRefusal)> {
        let &Caller { client, ref output, now, .. } = caller;
        self.note_line(client, &Command::PutWith(header, text));
        let of = LineOf::Complete { memory_bytes: memory_bytes + output.memory_bytes() };
        let extras = self.check_put_line::<GUARDED>(client, header, text, of, now);
        let extras = extras.map_err(|refusal| (header, refusal))?;
        self.queue.mark_producer(client);
        Ok(Put::new(self.queue.allocate_id(), header, extras))
    }

    /// Continues a `complete` that was put off.
    pub(super) fn continue_complete(&mut self, caller: &mut Caller<'_>, complete: Box<Complete>) -> Outcome {
        if let Some(guard) = &mut self.guard {
            if guard.gives_up_put(caller.client, caller.now) {
                return self.refuse_late_put(caller.output);
            }
            if guard.has_waiting_put(caller.client) {
                return Continuation::Complete(complete).later(Until::PutPace);
            }
        }
        self.complete(caller, complete, true)
    }

    /// Executes it, or answers why not. Unless its puts are permitted already, it asks the pace of its identity after
    /// all other checks: if it is refused anyway, it waits for nothing and uses no permission.
    fn complete(
        &mut self,
        caller: &mut Caller<'_>,
        mut complete: Box<Complete>,
        is_permitted: bool,
    ) -> Outcome {
        let planned = self.plan_complete(caller, &complete);
        let count = complete.puts.len() as u32;
        let asks_pace = !is_permitted && count > 0 && self.has_pace(caller.client);
        let permission = if !asks_pace || matches!(planned, Err(NotDone::Refused(_))) {
            Permission::Now
        } else {
            // The end of the job's reservation is too late, since the client would no longer have the job.
            let reserved_until = self.queue.job(complete.id).map(|job| job.record.deadline_at);
            self.permit_puts(caller.client, count, reserved_until, caller.now)
        };
        let outcome = match (permission, planned) {
            (Permission::Later, _) => return self.continue_complete(caller, complete),
            (Permission::TooLate, _) => self.refuse_late_put(caller.output),
            (Permission::Now, Ok(room)) => self.carry_out_complete(caller, &mut complete, room),
            (Permission::Now, Err(NotDone::Refused(refusal))) => self.refuse_put(refusal, caller.output),
            (Permission::Now, Err(NotDone::NoRoomYet(()))) => {
                return Continuation::Complete(complete).later(Until::BinlogRoom);
            }
        };
        complete.puts.clear();
        self.spares.complete = Some(complete);
        outcome
    }

    /// Plans its puts and reserves room in the log, or returns the first of the reasons against it. Changes nothing,
    /// but jobs with the keys of the puts end if their time is over, and a put that a full tube refuses is counted.
    fn plan_complete(
        &mut self,
        caller: &Caller<'_>,
        complete: &Complete,
    ) -> Result<Option<CompleteRoom>, NotDone<CommandRefusal>> {
        let &Caller { client, now, .. } = caller;
        let Complete { id, puts, refusal, .. } = complete;
        let decoded = tags_of(puts);
        let tags = decoded.as_deref().unwrap_or_default();
        for put in tagged(puts, tags) {
            self.queue.duplicate(client, put.tube, put.tags.set(), now);
        }
        self.persistence.log_changes(&mut self.queue, now);
        // A reason found while reading counts only if it comes no later than `least` in the order of refusals.
        let found_before =
            |least: CommandRefusal| refusal.filter(|refusal| *refusal <= least).map_or(Ok(()), Err);
        if !self.queue.has_reserved(client, *id) || !self.may_end(client, *id) {
            return Err(CommandRefusal::NotFound.into());
        }
        found_before(CommandRefusal::NotFound)?;
        if self.guard.is_some()
            && !as_completed(puts, tags).all(|put| self.may_put(client, put.tube, put.tags.set()))
        {
            return Err(CommandRefusal::Forbidden.into());
        }
        found_before(CommandRefusal::OutOfMemory)?;
        if decoded.is_err() || self.lacks_room_for_puts(caller, complete, tags) {
            return Err(CommandRefusal::OutOfMemory.into());
        }
        let completed = as_completed(puts, tags);
        let plan = &mut self.spares.plan;
        plan.clear();
        // It ends before the first put whose tube is full.
        plan.extend(self.queue.plan_complete(client, *id, completed.clone(), now).map_while(Result::ok));
        // For the log, the puts from there on count as new: a lack of room in the log comes before a full tube.
        let planned = completed.zip(plan.iter().copied().chain(iter::repeat(Planned::New)));
        let room = match self.persistence.room_for_complete(&self.queue, client, planned) {
            Err(NoRoom::Full) => return Err(NoRoom::Full.into()),
            room => room,
        };
        // A put with a wrong tag is not among the stored puts.
        if self.is_draining && (!puts.is_empty() || refusal.is_some()) {
            return Err(CommandRefusal::Draining.into());
        }
        if let Some((refused, _)) = puts.get(plan.len()) {
            self.queue.count_refused(client, refused.tube());
            return Err(CommandRefusal::TubeFull.into());
        }
        found_before(CommandRefusal::ExpectedCrlf)?;
        Ok(room?)
    }

    /// Whether memory is low for the jobs of a `complete`, their tubes and their cooldowns, or its identity has reached
    /// its limit of bytes.
    fn lacks_room_for_puts(
        &mut self,
        caller: &Caller<'_>,
        complete: &Complete,
        tags: &[EncodedTags<'_>],
    ) -> bool {
        let memory_bytes = complete.body_bytes() + caller.output.memory_bytes();
        let without = self.queue.cooldown_bytes_with(&TagSet::NONE);
        let mut cooling = without;
        for put in tagged(&complete.puts, tags) {
            let lacks_tube = put.tube.is_some_and(|tube| {
                self.lacks_memory_to(MemoryClass::AddsTube(tube), caller.client, memory_bytes)
            });
            let asks = self.queue.cooldown_bytes_with(put.tags.set()) - without;
            cooling += asks;
            if lacks_tube || asks > 0 && self.memory.forbids_cooldowns(cooling) {
                return true;
            }
        }
        !complete.puts.is_empty()
            && (self.exceeds_owned(caller.client, complete, tags)
                || self.lacks_memory_for(memory_bytes)
                || self.queue.make_room_for_put().is_err())
    }

    /// Whether the jobs of a `complete` exceed the limit of the client's identity.
    fn exceeds_owned(&self, client: ClientId, complete: &Complete, tags: &[EncodedTags<'_>]) -> bool {
        let limits = self.guard.as_ref().and_then(|guard| guard.limits(client));
        let Some((name, max_bytes)) = limits.and_then(|(name, limits)| Some((name, limits.max_job_bytes?)))
        else {
            return false;
        };
        let bytes = |put: CompletedPut<'_>| {
            self.queue.owned_bytes_of_put(client, put.tube, put.body_bytes, put.tags.set())
        };
        let owned: u64 = as_completed(&complete.puts, tags).map(bytes).sum();
        let left = self.queue.owned_bytes(&name) - self.queue.bytes_left_by(complete.id, &name);
        left.saturating_add(owned) > max_bytes
    }

    fn carry_out_complete(
        &mut self,
        caller: &mut Caller<'_>,
        complete: &mut Complete,
        room: Option<CompleteRoom>,
    ) -> Outcome {
        let &mut Caller { client, ref mut output, now, .. } = caller;
        let Spares { plan, bodies, ids, .. } = &mut self.spares;
        let &mut Complete { id, ref mut puts, .. } = complete;
        debug_assert_eq!(puts.len(), plan.len());
        let encoded = puts.iter_mut().try_for_each(|(put, body)| {
            Queue::encode_body(mem::take(body), put.encoded_tags()).map(|body| bodies.push(body))
        });
        let Ok(tags) = encoded.and_then(|()| tags_of(puts)) else {
            bodies.clear();
            return self.refuse_put(CommandRefusal::OutOfMemory, output);
        };
        ids.clear();
        ids.extend(puts.iter().zip(&*plan).map(|((put, _), planned)| match planned {
            Planned::Duplicate { first, .. } => *first,
            Planned::New => put.id,
        }));
        let completed = as_completed(puts, &tags);
        if let Some(body) = self.queue.complete(client, id, completed, bodies.drain(..), plan, now)
            && let Some(watch) = body.watch()
        {
            self.detach_body(watch, body);
        }
        debug_assert!(self.queue.job(id).is_none(), "a completed job does not exist");
        self.persistence.log_complete(&mut self.queue, id, room, now);
        self.count_cost(puts.len() as u64);
        answer(output, &Reply::Completed(IdList::of_reply(&self.spares.ids)))
    }
}

/// The tags of each put; an empty list if all puts are plain.
fn tags_of(puts: &[(Put, Body)]) -> Result<Vec<EncodedTags<'_>>, TryReserveError> {
    let mut tags = Vec::new();
    if !puts.iter().all(|(put, _)| put.is_plain()) {
        tags.try_reserve_exact(puts.len())?;
        tags.extend(puts.iter().map(|(put, _)| put.tags()));
    }
    Ok(tags)
}

/// The puts with these tags, as the queue takes them.
#[inline]
fn as_completed<'a>(
    puts: &'a [(Put, Body)],
    tags: &'a [EncodedTags<'a>],
) -> impl Iterator<Item = CompletedPut<'a>> + Clone {
    puts.iter().enumerate().map(|(index, (put, _))| CompletedPut {
        new: new_job(put),
        tags: tags.get(index).unwrap_or(&EncodedTags::NONE),
        tube: put.tube(),
        body_bytes: put.size as usize,
    })
}

/// The puts with these tags; none if all puts are plain.
fn tagged<'a>(
    puts: &'a [(Put, Body)],
    tags: &'a [EncodedTags<'a>],
) -> impl Iterator<Item = CompletedPut<'a>> {
    as_completed(&puts[..tags.len()], tags)
}
