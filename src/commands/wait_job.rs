//! The command `wait-job`: a client waits until a job is deleted or buried.
//!
//! Owns: the replies, which must not show anything about a tube that the client may not know. The queue has the waits.

use crate::access::Roles;
use crate::exchange::WaitKind;
use crate::executor::{Caller, Executor, Outcome, answer, wait};
use crate::job::JobId;
use crate::protocol::Reply;
use crate::queue::{AwaitedEnd, WaitJob};
use crate::seconds::Seconds;

impl Executor {
    pub(super) fn wait_job(
        &mut self,
        caller: &mut Caller<'_>,
        id: JobId,
        timeout_s: Option<Seconds>,
    ) -> Outcome {
        match self.queue.wait_job(caller.client, id, timeout_s, caller.now) {
            WaitJob::NotFound => answer(caller.output, &Reply::NotFound),
            WaitJob::Buried => answer(caller.output, &Reply::BuriedJob(id)),
            WaitJob::TimedOut => answer(caller.output, &Reply::TimedOut),
            WaitJob::Waiting => wait(WaitKind::EndOf(id)),
        }
    }

    /// Answers a client that has waited for the end of this job. The job may have been buried in a tube that is hidden
    /// from the client. A job that has been deleted since is in no tube.
    pub(super) fn answer_awaited_end(
        &mut self,
        caller: &mut Caller<'_>,
        id: JobId,
        end: AwaitedEnd,
    ) -> Outcome {
        let is_hidden = || self.queue.job(id).is_some() && !self.meets_for_job(caller.client, id, Roles::ANY);
        let reply = match end {
            AwaitedEnd::Deleted => Reply::DeletedJob(id),
            AwaitedEnd::Buried if is_hidden() => Reply::NotFound,
            AwaitedEnd::Buried => Reply::BuriedJob(id),
        };
        answer(caller.output, &reply)
    }
}
