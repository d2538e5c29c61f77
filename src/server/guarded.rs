//! Commands on a server with access rules. [`Executor::guard_command`] is the one place where rules decide, before a
//! command is executed.
//!
//! Owns: what a refusal looks like. A client that may not know of a job is told that there is none, a `put` that is
//! refused has its body skipped, and tubes from which a client may not reserve leave its watch list: `default`, which
//! each client watches at first, is often one of them. Driven by `execute`.

use std::rc::Rc;

use super::execute::{Executor, answer};
use super::guard::{LogIn, watched_tubes_from};
use crate::access::{Need, Roles, Subject, Verdict};
use crate::clock::Timestamp;
use crate::job::{Body, JobId};
use crate::protocol::{Command, ListWriter, PutHeader, Reply, ReplyBuffer, parse_tags, write_list};
use crate::queue::ClientId;
use crate::session::{Batch, Outcome, Output, Refusal, StalledCommand, Until, Waiting};
use crate::tags::{Name, TagSet};

/// Watched tubes that are looked at in a turn, as long as the time for that lasts.
const TUBES_PER_TURN: u64 = 256;
/// Watched tubes that are looked at between two looks at the time: a pattern can take long to match.
const TUBES_AT_ONCE: usize = 8;

/// What a line of the audit costs, in simple requests.
const AUDIT_WORK: u64 = 16;
/// What a look at a token costs, in simple requests, and how many tokens of the rules cost as much as one.
const TOKEN_WORK: u64 = 4;
const TOKENS_PER_WORK: u64 = 64;

/// Whether a client may reserve from the tubes that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// From all of them.
    Allowed,
    /// From none: it watches one tube, which is not for it.
    Forbidden,
    /// There are tubes that were not looked at.
    Unfinished,
}

impl Executor {
    /// Judges a command. Returns its outcome if it is refused, or if its answer is narrower than on an open server.
    pub(super) fn guard_command(
        &mut self,
        client: ClientId,
        command: &Command<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Option<Outcome> {
        let verdict = self.judge(client, command);
        self.audit(client, command, verdict, now);
        match verdict {
            Verdict::Allowed => self.narrow(client, command, output, now),
            Verdict::NotFound => Some(answer(output, &Reply::NotFound)),
            Verdict::Forbidden => Some(match *command {
                Command::Put(header) | Command::PutWith(header, _) => {
                    Outcome::SkipBody(header, Refusal::Forbidden)
                }
                _ => answer(output, &Reply::Forbidden),
            }),
        }
    }

    /// Notes a refusal, and the beginning of a managing command. That there is no such job is no refusal. If there is one
    /// that the client may not know of, only the log says so: the client can see what is counted.
    fn audit(&mut self, client: ClientId, command: &Command<'_>, verdict: Verdict, now: Timestamp) {
        let is_real =
            verdict != Verdict::NotFound || job(command).is_some_and(|id| self.queue.job(id).is_some());
        let Some(guard) = &mut self.guard else { return };
        if verdict == Verdict::Forbidden {
            guard.count_refusal(client);
        }
        if verdict != Verdict::Allowed {
            guard.log_refusal(client, command.verb().as_str(), is_real, now);
        } else if Need::of(command.verb()).is_managing() {
            guard.begin_action(client, in_words(command, self.queue.used_tube(client).as_str()));
            self.work += AUDIT_WORK;
        }
    }

    /// A request has come to an outcome. If it was a managing command that is over, its reply is in the output from
    /// `start` on.
    pub(super) fn end_audit(&mut self, client: ClientId, output: &mut Output, start: usize) {
        if let Some(guard) = &mut self.guard
            && output.bytes().len() > start
        {
            guard.end_action(client, &output.bytes()[start..]);
        }
    }

    /// Whether the client may give this command.
    fn judge(&mut self, client: ClientId, command: &Command<'_>) -> Verdict {
        let Need::One(needed, subject) = Need::of(command.verb()) else { return Verdict::Allowed };
        let Some(grants) = self.guard.as_ref().and_then(|guard| guard.grants(client)) else {
            return Verdict::Forbidden;
        };
        let tube_of = |id: JobId| self.queue.job(id).map(|job| job.tube.as_str());
        let is_allowed = match subject {
            Subject::Some | Subject::Watched => grants.somewhere().meets(needed),
            Subject::Every => grants.everywhere().meets(needed),
            Subject::Used => return self.judge_used(client, needed, command),
            Subject::Named => return grants.judge(needed, named(command)),
            Subject::OfJob => match job(command) {
                Some(id) => return grants.judge_job(needed, tube_of(id)),
                // A batch, whose ids are judged one by one.
                None => grants.somewhere().meets(needed),
            },
            Subject::OfJobAndNamed => {
                let verdict = grants.judge_job(needed, job(command).and_then(tube_of));
                if verdict != Verdict::Allowed {
                    return verdict;
                }
                return grants.judge(Need::MOVE_TARGET, named(command));
            }
        };
        if is_allowed { Verdict::Allowed } else { Verdict::Forbidden }
    }

    /// The same of a command about the tube that the client uses, whose roles are remembered.
    fn judge_used(&mut self, client: ClientId, needed: Roles, command: &Command<'_>) -> Verdict {
        let Self { guard: Some(guard), queue, .. } = self else { return Verdict::Forbidden };
        let Some(grants) = guard.grants(client) else { return Verdict::Forbidden };
        let known = guard.client(client).and_then(|known| known.used);
        let roles = known.unwrap_or_else(|| grants.on(queue.used_tube(client).as_str()));
        let may_name = |name: Name<'_>| grants.on(name.as_str()).meets(Need::TAG);
        let are_names_allowed = match command {
            // Wrong tags are answered as on an open server.
            Command::PutWith(_, text) => parse_tags(text).map_or(true, |tags| {
                let names =
                    [tags.concurrency.map(|tag| tag.key), tags.group, tags.after.map(|after| after.group)];
                names.into_iter().flatten().all(may_name)
            }),
            _ => true,
        };
        if let Some(known) = guard.client_mut(client) {
            known.used = Some(roles);
        }
        if roles.meets(needed) && are_names_allowed { Verdict::Allowed } else { Verdict::Forbidden }
    }

    /// The outcome of an allowed command that is answered in another way than on an open server.
    fn narrow(
        &mut self,
        client: ClientId,
        command: &Command<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Option<Outcome> {
        match *command {
            Command::Put(header) => self.put_owned(client, header, b"", output),
            Command::PutWith(header, text) => self.put_owned(client, header, text, output),
            Command::Auth(token) => Some(self.log_in(client, token, output, now)),
            Command::Use(_) => {
                let known = self.guard.as_mut()?.client_mut(client)?;
                known.used = None;
                None
            }
            Command::Watch { .. } => self.watch_guarded(client, command, output),
            Command::Ignore(tube) => Some(self.ignore_guarded(client, tube, output)),
            Command::Reserve => self.guard_reserve(client, None, Waiting::Plain, output),
            Command::ReserveWithTimeout { timeout_s } => {
                self.guard_reserve(client, Some(timeout_s), Waiting::Plain, output)
            }
            Command::ReserveWithAbort { timeout_s } => {
                self.guard_reserve(client, timeout_s, Waiting::Abortable, output)
            }
            Command::ReserveBatch { most, timeout_s } => {
                let begin = || StalledCommand::ReserveBatch(Box::new(Batch::new(most, timeout_s)));
                self.guard_watched(client, begin, output)
            }
            Command::ListTubesWatched => self.list_watched_guarded(client, output),
            Command::ListTubes | Command::Stats if !self.sees_every_tube(client) => {
                Some(self.begin_narrowed(client, matches!(command, Command::Stats), output, now))
            }
            _ => None,
        }
    }

    fn log_in(&mut self, client: ClientId, token: &[u8], output: &mut Output, now: Timestamp) -> Outcome {
        let log_in = self.guard.as_mut().map_or(LogIn::Refused, |guard| guard.log_in(client, token, now));
        let tokens = self.guard.as_ref().map_or(0, |guard| guard.rules.token_count());
        self.work += TOKEN_WORK + tokens as u64 / TOKENS_PER_WORK;
        let reply = match log_in {
            LogIn::Done => return answer(output, &Reply::Authenticated),
            LogIn::Refused => Reply::Unauthorized,
            LogIn::Full => Reply::TooManyConnections,
        };
        match answer(output, &reply) {
            Outcome::Done => Outcome::Close,
            outcome => outcome,
        }
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

    /// The line of a `put` of a client whose jobs are counted: the job gets its owner.
    fn put_owned(
        &mut self,
        client: ClientId,
        header: PutHeader,
        text: &[u8],
        output: &mut Output,
    ) -> Option<Outcome> {
        let tags = parse_tags(text).unwrap_or_default();
        let (owner, exceeds) = self.exceeds_job_bytes(client, header.size as usize, &tags)?;
        let is_too_big = u64::from(header.size) > self.config.max_job_bytes;
        Some(if exceeds && !is_too_big {
            Outcome::SkipBody(header, Refusal::OutOfMemory)
        } else {
            self.put_with(client, header, text, Some(&owner), output)
        })
    }

    /// A `put` whose body is complete. Other clients of the same identity may have put meanwhile, and it may have to wait
    /// for its turn.
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
                false => Outcome::stall(StalledCommand::Put(id, header, body), Until::Permitted),
                true => self.give_up_put(client, output),
            };
        }
        if self.exceeds_with(client, &header, &body) {
            return self.give_up_put(client, output);
        }
        self.put(client, id, header, body, output, now)
    }

    /// Whether a put whose line was allowed still is. Only other rules can have changed that; the roles for the used tube are
    /// forgotten then.
    fn may_still_put(&mut self, client: ClientId) -> bool {
        let Self { guard: Some(guard), queue, pending_tags, .. } = self else { return false };
        let (Some(known), Some(grants)) = (guard.client(client), guard.grants(client)) else { return false };
        known.used.is_some() || {
            let names = pending_tags.names(client);
            grants.judge(Need::PUT, queue.used_tube(client).as_str()) == Verdict::Allowed
                && names.iter().all(|name| grants.on(name).meets(Need::TAG))
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

    fn sees_every_tube(&self, client: ClientId) -> bool {
        let grants = self.guard.as_ref().and_then(|guard| guard.grants(client));
        grants.is_some_and(|grants| grants.everywhere().meets(Need::SEE_TUBE))
    }

    /// Takes tubes from which the client may not reserve out of its watch list, a turn's share. The last tube stays, because
    /// a client always watches one.
    fn drop_unwatchable(&mut self, client: ClientId) -> Watched {
        let end = self.spent() + TUBES_PER_TURN;
        loop {
            let watched = self.drop_some_unwatchable(client);
            if watched != Watched::Unfinished || self.spent() >= end {
                return watched;
            }
        }
    }

    fn drop_some_unwatchable(&mut self, client: ClientId) -> Watched {
        let Self { guard: Some(guard), queue, .. } = self else { return Watched::Forbidden };
        let Some(mut checked) = guard.client(client).map(|known| known.checked) else {
            return Watched::Forbidden;
        };
        let Some(grants) = guard.grants(client) else { return Watched::Forbidden };
        let mut state = Watched::Allowed;
        let mut looks = 0;
        while checked < queue.watched_count(client) {
            if looks == TUBES_AT_ONCE {
                state = Watched::Unfinished;
                break;
            }
            looks += 1;
            let Some(tube) = watched_tubes_from(queue, client, checked).next().cloned() else { break };
            if grants.judge(Need::RESERVE, tube.as_str()) == Verdict::Allowed {
                checked += 1;
            } else if queue.ignore(client, tube.as_str()).is_none() {
                state = Watched::Forbidden;
                break;
            }
        }
        if let Some(known) = guard.client_mut(client) {
            known.checked = checked;
        }
        guard.set_watched(client, queue.watched_count(client));
        self.work += looks as u64;
        state
    }

    /// Before a reserve: refuses it, or puts it off, or returns `None`.
    fn guard_watched(
        &mut self,
        client: ClientId,
        begin: impl FnOnce() -> StalledCommand,
        output: &mut Output,
    ) -> Option<Outcome> {
        match self.drop_unwatchable(client) {
            Watched::Allowed => None,
            Watched::Forbidden => Some(answer(output, &Reply::Forbidden)),
            Watched::Unfinished => Some(Outcome::stall(begin(), Until::NextTurn)),
        }
    }

    fn guard_reserve(
        &mut self,
        client: ClientId,
        timeout_s: Option<u32>,
        waiting: Waiting,
        output: &mut Output,
    ) -> Option<Outcome> {
        self.guard_watched(client, || StalledCommand::Reserve { timeout_s, waiting }, output)
    }

    /// Judges again before a stalled command goes on, which any event of its connection has it try: a put may still have to
    /// wait, others may have put, and the rules may have changed.
    ///
    /// # Errors
    /// The outcome, if the command does not go on.
    pub(super) fn guard_stalled(
        &mut self,
        client: ClientId,
        mut command: StalledCommand,
        output: &mut Output,
    ) -> Result<StalledCommand, Outcome> {
        let outcome = match &mut command {
            StalledCommand::Put(_, header, body) => {
                if self.guard.as_mut().is_some_and(|guard| guard.gives_up_put(client)) {
                    return Err(self.give_up_put(client, output));
                }
                if self.guard.as_ref().is_some_and(|guard| guard.has_waiting_put(client)) {
                    return Err(Outcome::stall(command, Until::Permitted));
                }
                if !self.may_still_put(client) {
                    Some(self.forbid_put(client, output))
                } else {
                    self.exceeds_with(client, header, body).then(|| self.give_up_put(client, output))
                }
            }
            StalledCommand::Reserve { timeout_s, waiting } => {
                self.guard_reserve(client, *timeout_s, *waiting, output)
            }
            StalledCommand::ReserveBatch(batch) if batch.ids.is_empty() => {
                let (most, timeout_s) = (batch.most, batch.timeout_s);
                let begin = || StalledCommand::ReserveBatch(Box::new(Batch::new(most, timeout_s)));
                self.guard_watched(client, begin, output)
            }
            StalledCommand::ReserveBatch(batch) => {
                // The jobs that it has are answered; there are no more.
                if self.drop_unwatchable(client) != Watched::Allowed {
                    batch.most = batch.ids.len() as u32;
                }
                None
            }
            StalledCommand::ListWatched { written: 0, .. } => self.list_watched_guarded(client, output),
            _ => None,
        };
        outcome.map_or(Ok(command), Err)
    }

    /// The command `watch` of a client with tubes in its watch list that were not looked at: they leave it before the
    /// answer counts them.
    fn watch_guarded(
        &mut self,
        client: ClientId,
        command: &Command<'_>,
        output: &mut Output,
    ) -> Option<Outcome> {
        let Command::Watch { tube, weight } = *command else { return None };
        let checked = self.guard.as_ref()?.client(client)?.checked;
        if checked == self.queue.watched_count(client)
            || self.lacks_memory_to(command, client, output.held_bytes())
        {
            return None;
        }
        self.queue.watch_with_weight(client, tube, weight);
        self.drop_unwatchable(client);
        Some(answer(output, &Reply::Watching(self.queue.watched_count(client))))
    }

    /// The command `ignore`: the last tube of the watch list takes the place of the one that leaves it.
    fn ignore_guarded(&mut self, client: ClientId, tube: &str, output: &mut Output) -> Outcome {
        let before = self.queue.watched_count(client);
        let left = self.queue.ignore(client, tube);
        if let Some(known) = self.guard.as_mut().and_then(|guard| guard.client_mut(client)) {
            known.checked = if known.checked == before { left.unwrap_or(before) } else { 0 };
        }
        self.count_watched(client);
        answer(output, &left.map_or(Reply::NotIgnored, Reply::Watching))
    }

    /// The command `list-tubes-watched`: a tube from which the client may not reserve is not in the list, even if it is the
    /// only one that it watches.
    fn list_watched_guarded(&mut self, client: ClientId, output: &mut Output) -> Option<Outcome> {
        match self.drop_unwatchable(client) {
            Watched::Allowed => None,
            Watched::Forbidden => Some(self.answer_data(Some(write_list(std::iter::empty())), output)),
            Watched::Unfinished => Some(match ListWriter::new(0) {
                Ok(writer) => {
                    Outcome::stall(StalledCommand::ListWatched { written: 0, writer }, Until::NextTurn)
                }
                Err(_) => answer(output, &Reply::OutOfMemory),
            }),
        }
    }

    /// Whether a `delete-batch` of the client may delete this job. If not, there is none for it.
    pub(super) fn may_delete(&self, client: ClientId, id: JobId) -> bool {
        let Some(guard) = &self.guard else { return true };
        let tube = self.queue.job(id).map(|job| job.tube.as_str());
        guard.grants(client).is_some_and(|grants| grants.judge_job(Need::DELETE, tube) == Verdict::Allowed)
    }
}

/// A managing command for the log. What it contains are names and numbers.
fn in_words(command: &Command<'_>, used_tube: &str) -> String {
    let verb = command.verb().as_str();
    match *command {
        Command::Kick { bound } => format!("{verb} {bound} of {used_tube}"),
        Command::PauseTube { tube, delay_s } => format!("{verb} {tube} {delay_s}"),
        Command::FlushTube(tube) | Command::FlushBuried(tube) => format!("{verb} {tube}"),
        Command::Move { id, tube } => format!("{verb} {} {tube}", id.0),
        Command::Reprioritize { id, priority } => format!("{verb} {} {}", id.0, priority.0),
        Command::KickJob(id) => format!("{verb} {}", id.0),
        _ => verb.to_owned(),
    }
}

/// The name of a tube or a group in a command.
fn named<'a>(command: &Command<'a>) -> &'a str {
    match *command {
        Command::Use(name)
        | Command::Watch { tube: name, .. }
        | Command::StatsTube(name)
        | Command::StatsGroup(name)
        | Command::PauseTube { tube: name, .. }
        | Command::FlushTube(name)
        | Command::FlushBuried(name)
        | Command::ListJobs { tube: name, .. }
        | Command::Move { tube: name, .. } => name,
        _ => unreachable!("the table of needs says that the command names a tube"),
    }
}

/// The job in a command.
fn job(command: &Command<'_>) -> Option<JobId> {
    match *command {
        Command::ReserveJob(id)
        | Command::Delete(id)
        | Command::Release { id, .. }
        | Command::Bury { id, .. }
        | Command::Touch(id)
        | Command::Peek(id)
        | Command::KickJob(id)
        | Command::StatsJob(id)
        | Command::Move { id, .. }
        | Command::Reprioritize { id, .. } => Some(id),
        _ => None,
    }
}
