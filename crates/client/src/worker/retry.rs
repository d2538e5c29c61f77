//! The number of attempts of a job, and the delay after each.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::{Settled, WorkerJob};
use crate::core::data::JobInfo;
use crate::core::fields::Fields;
use crate::lock;

/// The maximum number of failed jobs that a worker remembers. If there are more, it forgets the jobs with the smallest
/// ids.
const MAX_FAILED: usize = 100_000;

/// How often a job is tried, and the delays between. The default: five attempts, after 1, 2, 4 and 8 seconds.
///
/// The failures that count are the failures that the worker has seen itself, and otherwise the counters of the job: its
/// releases and time-outs, as far as the server still counts them. A job that was buried and kicked has all its
/// attempts again. Because the counters do not show how many failures came before a burial, other workers assume
/// [`Self::max_attempts`] of them. If there were fewer, they give the job more attempts; if there were more, such as
/// time-outs that led to no burial, they give it fewer. A server with rules for tubes counts by itself; then use
/// [`Self::by_server`], which leaves the decision to it. [`Self::by_handler`] leaves it to the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The job is buried when it has failed this many times, at least once.
    pub max_attempts: u64,
    /// The delay after the first failure. It doubles with each one.
    pub first_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        let (first_delay, max_delay) = (Duration::from_secs(1), Duration::from_secs(3600));
        Self { max_attempts: 5, first_delay, max_delay }
    }
}

impl Retry {
    /// The default: five attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of attempts, at least one.
    #[must_use]
    pub fn max_attempts(self, max_attempts: u64) -> Self {
        Self { max_attempts: max_attempts.max(1), ..self }
    }

    /// Sets the delay after the first failure, and the longest delay.
    #[must_use]
    pub fn delays(self, first_delay: Duration, max_delay: Duration) -> Self {
        Self { first_delay, max_delay, ..self }
    }

    /// Releases each job without a delay: the rules of the server for its tube count the failures, delay the job, and
    /// bury it or move it.
    pub fn by_server() -> Self {
        Self { max_attempts: u64::MAX, first_delay: Duration::ZERO, max_delay: Duration::ZERO }
    }

    /// Leaves the decision to the handler, which counts the failures by itself: it delays a failed job with
    /// [`Handled::RetryAfter`] and ends its attempts with [`Handled::Bury`]. A [`Handled::Failed`] releases the job
    /// without a delay, and no number of failures buries it.
    ///
    /// [`Handled::RetryAfter`]: super::Handled::RetryAfter
    /// [`Handled::Bury`]: super::Handled::Bury
    /// [`Handled::Failed`]: super::Handled::Failed
    pub fn by_handler() -> Self {
        // The worker does the same as where the server decides: nothing.
        Self::by_server()
    }

    /// How often the job has failed since it was last kicked, as far as its counters show it: a burial was the end of a
    /// series of at most `max_attempts` failures, and the last failure was neither a release nor a time-out.
    fn failures(&self, counted: u64, buries: u64) -> u64 {
        let before = if self.counts_buries() { buries.saturating_mul(self.max_attempts - 1) } else { 0 };
        counted.saturating_sub(before)
    }

    /// Whether the burials of a job show how many of its failures belong to an earlier series.
    pub(super) fn counts_buries(&self) -> bool {
        self.max_attempts > 1 && self.max_attempts < u64::MAX
    }

    /// The delay after this many failures.
    pub(super) fn delay(&self, failures: u64) -> Duration {
        let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(31).min(31);
        self.first_delay.saturating_mul(1 << doublings).min(self.max_delay)
    }
}

/// How often a job was released, or its TTR has ended.
pub(super) fn given_back(fields: &Fields) -> u64 {
    fields.releases.unwrap_or_default().saturating_add(fields.timeouts.unwrap_or_default())
}

/// The counters of a job that show its failures.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FailureCounts {
    /// Releases and time-outs that count.
    counted: u64,
    /// `None` if nothing counts: then the worker does not ask for them.
    buries: Option<u64>,
}

impl FailureCounts {
    pub(super) fn of(fields: &Fields, info: Option<&JobInfo>) -> Self {
        Self {
            counted: info.and_then(|info| info.failures).unwrap_or_else(|| given_back(fields)),
            buries: info.map(|info| info.buries),
        }
    }

    /// Whether both may be of one series of failures: the job was not buried in between, as far as both know it.
    fn may_continue(self, earlier: Self) -> bool {
        match (self.buries, earlier.buries) {
            (Some(now), Some(before)) => now == before,
            (None, _) | (_, None) => true,
        }
    }
}

/// A job that has failed here.
#[derive(Debug)]
struct FailedJob {
    failures: u64,
    /// As the next reservation shows it, if nothing happens in between.
    failure_counts: FailureCounts,
}

/// The jobs of one server that have failed here and are to be tried again.
#[derive(Debug, Default)]
pub(crate) struct FailedJobs(Mutex<BTreeMap<u64, FailedJob>>);

impl FailedJobs {
    /// The number of the attempt that begins now, from 1.
    pub(super) fn attempt(&self, id: u64, failure_counts: FailureCounts, retry: &Retry) -> u64 {
        let FailureCounts { counted, buries } = failure_counts;
        let known = lock(&self.0);
        let known = known.get(&id).filter(|failed| failure_counts.may_continue(failed.failure_counts));
        let since = known.and_then(|failed| counted.checked_sub(failed.failure_counts.counted));
        let seen = known.zip(since).map_or(0, |(failed, since)| failed.failures + since);
        retry.failures(counted, buries.unwrap_or_default()).max(seen) + 1
    }

    /// Notes how an attempt has ended.
    pub(crate) fn note(&self, job: &WorkerJob, settled: Settled) {
        let WorkerJob { id, attempt, failure_counts, .. } = *job;
        let failed = match settled {
            Settled::Released(_) => FailedJob {
                failures: attempt,
                failure_counts: FailureCounts { counted: failure_counts.counted + 1, ..failure_counts },
            },
            // This attempt does not count.
            Settled::GivenBack(_) => FailedJob { failures: attempt - 1, failure_counts },
            Settled::Lost | Settled::Unconfirmed => return,
            Settled::Deleted | Settled::Completed | Settled::Buried => {
                FailedJob { failures: 0, failure_counts }
            }
        };
        let mut known = lock(&self.0);
        if failed.failures == 0 {
            known.remove(&id);
            return;
        }
        known.insert(id, failed);
        if known.len() > MAX_FAILED {
            known.pop_first();
        }
    }
}
