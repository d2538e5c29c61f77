//! Commands on a server with access rules. [`Executor::guard_command`] is the one place where rules decide, before a
//! command is executed.
//!
//! Owns: what a refusal looks like. A client that may not know of a job is told that there is none, and a `put` that is
//! refused has its body skipped.

use super::words::in_words_of_audit;
use super::{Executor, Outcome, Row, answer};
use crate::access::{Roles, Verdict};
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::protocol::{Command, IdList, Reply, ReplyBuffer, Verb, target_of};
use crate::queue::{ClientId, JobView};
use crate::session::{BodyRefusal, Output};
use crate::tags::TagSet;

/// The cost of a line of the audit, in simple requests.
const AUDIT_WORK: u64 = 16;

/// The subject of a command: the tubes and jobs for which it needs roles.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Nothing that needs a role: every client may.
    Nothing,
    /// Some tube or other: the answer tells only of tubes that the client may see.
    AnyTube,
    /// This tube, which the command names; the answer tells only of tubes that the client may see.
    Mentioned(&'a str),
    /// All tubes.
    Every,
    /// The tube that the client uses.
    Used,
    /// The tube into which a `put` with this text behind its size goes: the one that it names, or the used one.
    Target(&'a [u8]),
    /// The tubes that the client watches. The others leave its watch list.
    Watched,
    /// The tube, or the group, of this name.
    Named(&'a str),
    /// The tube of this job.
    OfJob(JobId),
    /// The tubes of these jobs. They are judged one by one, when it is their turn.
    OfJobs(IdList<'a>),
    /// The tube of this job, and the tube to which it goes: see [`Roles::MOVE_TARGET`].
    OfJobAndNamed(JobId, &'a str),
}

impl Executor {
    /// Judges a command. Returns its outcome if it is refused.
    pub(super) fn guard_command(
        &mut self,
        client: ClientId,
        command: &Command<'_>,
        output: &mut Output,
        now: Timestamp,
    ) -> Option<Outcome> {
        let row = Row::of(command);
        let verdict = self.judge(client, &row);
        self.audit(client, command, &row, verdict, now);
        match (verdict, command) {
            (Verdict::Allowed, _) => None,
            (Verdict::NotFound, &Command::Complete { id, count }) => {
                Some(self.begin_complete(client, (id, count), Some(BodyRefusal::NotFound), output, now))
            }
            (Verdict::Forbidden, &Command::Complete { id, count }) => {
                Some(self.begin_complete(client, (id, count), Some(BodyRefusal::Forbidden), output, now))
            }
            (Verdict::NotFound, _) => Some(answer(output, &Reply::NotFound)),
            (Verdict::Forbidden, Command::Put(header) | Command::PutWith(header, _)) => {
                Some(Outcome::SkipBody(*header, BodyRefusal::Forbidden))
            }
            (Verdict::Forbidden, _) => Some(answer(output, &Reply::Forbidden)),
        }
    }

    /// Notes a refusal, and the beginning of a managing command. That there is no such job is no refusal. If there is
    /// one that the client may not know of, only the log says so: the client can see what is counted.
    fn audit(
        &mut self,
        client: ClientId,
        command: &Command<'_>,
        row: &Row<'_>,
        verdict: Verdict,
        now: Timestamp,
    ) {
        let exists = |id| self.queue.job(id).is_some();
        let is_real = verdict != Verdict::NotFound
            || matches!(row.subject, Subject::OfJob(id) | Subject::OfJobAndNamed(id, _) if exists(id));
        let Some(guard) = &mut self.guard else { return };
        if verdict == Verdict::Forbidden {
            guard.count_refusal(client);
        }
        if verdict != Verdict::Allowed {
            guard.log_refusal(client, command.verb().as_str(), is_real, now);
        } else if row.is_managing() {
            guard.begin_action(client, in_words_of_audit(command, self.queue.used_tube(client).as_str()));
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

    /// Whether the client may give a command of this row.
    fn judge(&mut self, client: ClientId, row: &Row<'_>) -> Verdict {
        let Some(grants) = self.grants(client) else {
            let is_open = matches!(row.subject, Subject::Nothing);
            return if is_open { Verdict::Allowed } else { Verdict::Forbidden };
        };
        let tube_of = |id: JobId| self.queue.job(id).map(|job| job.tube.as_str());
        let is_allowed = match row.subject {
            Subject::Nothing => true,
            Subject::AnyTube | Subject::Mentioned(_) | Subject::Watched | Subject::OfJobs(_) => {
                grants.somewhere().meets(row.roles)
            }
            Subject::Every => grants.everywhere().meets(row.roles),
            Subject::Used => self.judge_used(client, row.roles),
            Subject::Target(text) => match target_of(text) {
                Some(tube) => return grants.judge(row.roles, tube),
                None => self.judge_used(client, row.roles),
            },
            Subject::Named(name) => return grants.judge(row.roles, name),
            Subject::OfJob(id) => return grants.judge_job(row.roles, tube_of(id)),
            Subject::OfJobAndNamed(id, name) => match grants.judge_job(row.roles, tube_of(id)) {
                Verdict::Allowed => return grants.judge(Roles::MOVE_TARGET, name),
                verdict @ (Verdict::Forbidden | Verdict::NotFound) => return verdict,
            },
        };
        if is_allowed { Verdict::Allowed } else { Verdict::Forbidden }
    }

    /// Whether the client has `needed` for the tube that it uses; remembers the roles.
    fn judge_used(&mut self, client: ClientId, needed: Roles) -> bool {
        let Self { guard: Some(guard), queue, .. } = self else { return false };
        let Some(grants) = guard.grants(client) else { return false };
        let known = guard.client(client).and_then(|known| known.used);
        let roles = known.unwrap_or_else(|| grants.on(queue.used_tube(client).as_str()));
        if let Some(known) = guard.client_mut(client) {
            known.used = Some(roles);
        }
        roles.meets(needed)
    }

    /// Whether the access rules let the client end this job. If not, there is none for it.
    pub(super) fn may_end(&self, client: ClientId, id: JobId) -> bool {
        let Some(guard) = &self.guard else { return true };
        let tube = self.queue.job(id).map(|job| job.tube.as_str());
        guard.grants(client).is_some_and(|grants| grants.judge_job(Roles::END_JOBS, tube) == Verdict::Allowed)
    }

    /// Whether the client may name the groups and the concurrency keys in these tags of a `put`.
    pub(super) fn may_name(&self, client: ClientId, tags: &TagSet<'_>) -> bool {
        let grants = self.grants(client);
        let names = [tags.concurrency.map(|tag| tag.key), tags.group, tags.after.map(|after| after.group)];
        let mut names = names.into_iter().flatten();
        grants.is_some_and(|grants| names.all(|name| grants.on(name.as_str()).meets(Roles::PRODUCE)))
    }

    /// The names in the tags of a `put` were refused.
    pub(super) fn note_refused_put(&mut self, client: ClientId, now: Timestamp) {
        if let Some(guard) = &mut self.guard {
            guard.count_refusal(client);
            guard.log_refusal(client, Verb::Put.as_str(), true, now);
        }
    }

    /// The tube that a dead job comes from, if it is dead and the client has a role for that tube; else empty.
    pub(super) fn source_shown_to<'a>(&self, client: ClientId, job: &JobView<'a>) -> &'a str {
        let from = job.dead_from();
        match &self.guard {
            Some(guard) if !from.is_empty() => {
                let is_seen = guard.grants(client).is_some_and(|grants| grants.on(from).meets(Roles::ANY));
                if is_seen { from } else { "" }
            }
            _ => from,
        }
    }

    /// Whether the client may see all tubes. On an open server it may.
    pub(super) fn sees_every_tube(&self, client: ClientId) -> bool {
        self.guard.as_ref().is_none_or(|guard| {
            guard.grants(client).is_some_and(|grants| grants.everywhere().meets(Roles::ANY))
        })
    }
}
