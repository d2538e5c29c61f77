//! The command `wait-job`: a client waits until a job is deleted or buried.

use super::{Executor, Outcome, Wait, answer, wait};
use crate::access::{Roles, Verdict};
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::protocol::Reply;
use crate::queue::{ClientId, WaitJob, WaitOutcome};
use crate::seconds::Seconds;
use crate::session::Output;

impl Executor {
    pub(super) fn wait_job(
        &mut self,
        client: ClientId,
        id: JobId,
        timeout_s: Option<Seconds>,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        match self.queue.wait_job(client, id, timeout_s, now) {
            WaitJob::NotFound => answer(output, &Reply::NotFound),
            WaitJob::Buried => answer(output, &Reply::BuriedPut(id)),
            WaitJob::TimedOut => answer(output, &Reply::TimedOut),
            WaitJob::Waiting => wait::<false>(Wait::EndOf(id)),
        }
    }

    /// The queue has answered a client that has waited for the end of this job.
    pub(super) fn answer_job_wait(&mut self, id: JobId, wait: WaitOutcome, output: &mut Output) -> Outcome {
        let reply = match wait {
            WaitOutcome::Deleted => Reply::DeletedJob(id),
            WaitOutcome::Buried => Reply::BuriedPut(id),
            WaitOutcome::TimedOut => Reply::TimedOut,
            WaitOutcome::Reserved(_) | WaitOutcome::DeadlineSoon => Reply::InternalError,
        };
        answer(output, &reply)
    }

    /// Whether the rules let the client wait for the end of the job for which it waits. `None` if it does not wait so.
    pub(super) fn may_wait_for_job(&self, client: ClientId) -> Option<bool> {
        let job = self.queue.job(self.queue.awaited_by(client)?)?;
        let grants = self.grants(client);
        let verdict = grants.map(|grants| grants.judge_job(Roles::ANY, Some(job.tube.as_str())));
        Some(verdict == Some(Verdict::Allowed))
    }
}
