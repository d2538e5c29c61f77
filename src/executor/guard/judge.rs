//! Commands on a server with access rules. [`Executor::judge`] is the one place where rules decide, before a
//! command is executed.
//!
//! Owns: what the client may know of a job. If it may not know the job, the verdict is that the job does not exist.

use crate::access::{Roles, Verdict};
use crate::clock::Timestamp;
use crate::exchange::Output;
use crate::executor::Executor;
use crate::executor::outcome::Caller;
use crate::executor::row::{CommandRow, Subject, WordsFor};
use crate::job::JobId;
use crate::protocol::{Command, ReplyBuffer, Verb, target_of};
use crate::queue::{ClientId, JobView};
use crate::tags::TagSet;

/// The cost of a line of the audit, in simple requests.
const AUDIT_COST: u64 = 16;

impl Executor {
    /// Notes a refusal, and the beginning of a managing command. A job that does not exist is not a refusal. If the job
    /// exists and the client may not know it, only the log has the refusal: the client could see the counts.
    pub(crate) fn audit(
        &mut self,
        &Caller { client, now, .. }: &Caller<'_>,
        command: &Command<'_>,
        row: &CommandRow<'_>,
        verdict: Verdict,
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
            let used_tube = self.queue.used_tube(client).as_str();
            guard.begin_action(client, row.in_words(command, used_tube, WordsFor::Audit));
            self.count_cost(AUDIT_COST);
        }
    }

    /// Handles the outcome of a request. If it was a managing command that has ended, its reply is in the output from
    /// `start` on.
    pub(crate) fn end_audit(&mut self, client: ClientId, output: &mut Output, start: usize) {
        if let Some(guard) = &mut self.guard
            && output.bytes().len() > start
        {
            guard.end_action(client, &output.bytes()[start..]);
        }
    }

    /// Whether the client may give a command of this row.
    pub(crate) fn judge(&mut self, client: ClientId, row: &CommandRow<'_>) -> Verdict {
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
                Some(tube) => return grants.judge(row.roles, &tube),
                None => self.judge_used(client, row.roles),
            },
            Subject::Named(name) | Subject::Group(name) => return grants.judge(row.roles, &name),
            Subject::OfJob(id) => return grants.judge_job(row.roles, tube_of(id)),
            Subject::OfJobAndNamed(id, name) => match grants.judge_job(row.roles, tube_of(id)) {
                Verdict::Allowed => return grants.judge(Roles::MOVE_TARGET, &name),
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

    /// Whether the access rules let the client end this job. If not, the job does not exist for this client.
    #[inline]
    pub(crate) fn may_end(&self, client: ClientId, id: JobId) -> bool {
        self.meets_for_job(client, id, Roles::END_JOBS)
    }

    /// Whether the client has one of these roles for the tube of this job.
    #[inline]
    pub(crate) fn meets_for_job(&self, client: ClientId, id: JobId, needed: Roles) -> bool {
        let Some(guard) = &self.guard else { return true };
        let tube = self.queue.job(id).map(|job| job.tube.as_str());
        guard.grants(client).is_some_and(|grants| grants.judge_job(needed, tube) == Verdict::Allowed)
    }

    /// Whether the rules let the client wait for the end of its job, or the job has just ended. `None` if it does not
    /// wait for a job's end.
    pub(super) fn may_wait_for_job(&self, client: ClientId) -> Option<bool> {
        let id = self.queue.awaited_by(client)?;
        Some(self.queue.job(id).is_none() || self.meets_for_job(client, id, Roles::ANY))
    }

    /// Whether the client may name the groups and the concurrency keys in these tags of a `put`.
    pub(crate) fn may_name(&self, client: ClientId, tags: &TagSet<'_>) -> bool {
        let grants = self.grants(client);
        let names = [tags.concurrency.map(|tag| tag.key), tags.group, tags.after.map(|after| after.group)];
        let mut names = names.into_iter().flatten();
        grants.is_some_and(|grants| names.all(|name| grants.on(name.as_str()).meets(Roles::PRODUCE)))
    }

    /// Notes that the names in the tags of a `put` were refused.
    pub(crate) fn note_refused_put(&mut self, client: ClientId, now: Timestamp) {
        if let Some(guard) = &mut self.guard {
            guard.count_refusal(client);
            guard.log_refusal(client, Verb::Put.as_str(), true, now);
        }
    }

    /// The tube from which a dead job comes, if the client has a role for that tube; otherwise empty.
    pub(crate) fn source_shown_to<'a>(&self, client: ClientId, job: &JobView<'a>) -> &'a str {
        let from = job.dead_from();
        match &self.guard {
            Some(guard) if !from.is_empty() => {
                let is_seen = guard.grants(client).is_some_and(|grants| grants.on(from).meets(Roles::ANY));
                if is_seen { from } else { "" }
            }
            _ => from,
        }
    }

    /// Whether the client may see all tubes. On an open server every client may.
    pub(crate) fn sees_every_tube(&self, client: ClientId) -> bool {
        self.guard.as_ref().is_none_or(|guard| {
            guard.grants(client).is_some_and(|grants| grants.everywhere().meets(Roles::ANY))
        })
    }
}
