//! The number of failures of a job, and the delay after each. Pure.
//!
//! The library's `Retry` has another rule: it counts every release as a failure, or what the server has counted. Here
//! any client may release a job without having tried it, and the program has no rule of the server to rely on.
//!
//! C's server has one counter for all releases of a job, and none for failures. The workers count in the same way on
//! both servers, so they do not use the `failures` of this one: they remember the jobs that they have had, with the
//! counters of these jobs. Failures that another process has counted show in the delay of the job: after the N-th
//! failure it is the delay of the N-th failure, and a client that releases a job without having tried it leaves no
//! delay.

use std::collections::BTreeMap;

use beanstalk_client::JobInfo;

/// The maximum number of jobs that are remembered. If there are more, the jobs with the smallest ids are forgotten.
const MAX_KNOWN: usize = 100_000;

/// More doublings than this exceed every delay.
const MAX_DOUBLINGS: u64 = 31;

/// The greatest number of failures that a delay shows.
const MAX_SHOWN: u64 = 1_000;

/// How often a job may fail, and the delays between.
#[derive(Debug, Clone, Copy)]
pub struct AttemptLimits {
    /// The job is buried when it has failed this many times.
    pub attempts: u64,
    /// The delay after the first failure, in seconds; it doubles with each failure.
    pub delay: u32,
    /// The longest delay, in seconds.
    pub max_delay: u32,
}

impl AttemptLimits {
    /// Seconds until the next attempt, after this many failures. From the longest delay on, it is a second less each
    /// time, so that the delay shows the number of the failure.
    pub fn delay_after(&self, failures: u64) -> u32 {
        let doubled = |failure: u64| u64::from(self.delay) << failure.saturating_sub(1).min(MAX_DOUBLINGS);
        let longest = u64::from(self.max_delay);
        if self.delay == 0 || doubled(failures) < longest {
            return doubled(failures) as u32;
        }
        let first = (1..failures).find(|failure| doubled(*failure) >= longest).unwrap_or(failures);
        (longest - (failures - first).min(longest / 8)) as u32
    }

    /// How many failures the counters of the job show. If other clients have released it, too, it may have had more.
    fn shown_by(&self, info: &JobInfo) -> u64 {
        let seen = info.releases + info.timeouts;
        let max = seen.min(self.attempts - 1).min(MAX_SHOWN);
        let is_shown = info.delay > 0 && info.releases > 0;
        let is_delay_after = |failures: &u64| u64::from(self.delay_after(*failures)) == info.delay;
        let at_release = (1..=max).rev().filter(|_| is_shown).find(is_delay_after).unwrap_or(0);
        if info.buries == 0 {
            return at_release.min(info.releases) + info.timeouts;
        }
        // A bury ends a series of failures: all except the last were releases and time-outs.
        let before = |each: u64| info.buries.saturating_mul(each);
        let timed_out = info.timeouts.saturating_sub(before(self.attempts));
        let is_later = seen >= before(self.attempts - 1).saturating_add(at_release);
        if is_later { at_release.max(timed_out) } else { timed_out }
    }
}

/// A job as it was when a worker last had it.
#[derive(Debug)]
struct KnownJob {
    failures: u64,
    timeouts: u64,
    buries: u64,
}

/// The failures of the jobs that the workers of this process have seen.
#[derive(Debug, Default)]
pub struct FailedAttempts(BTreeMap<u64, KnownJob>);

impl FailedAttempts {
    /// How often this job, which is now reserved, has failed: its commands, and its time-outs. The count starts again
    /// after a bury.
    pub fn failures(&mut self, info: &JobInfo, limits: &AttemptLimits) -> u64 {
        let known = self.0.get(&info.id).filter(|known| known.buries == info.buries);
        let known = known.map_or(0, |known| known.failures + info.timeouts.saturating_sub(known.timeouts));
        let failures = known.max(limits.shown_by(info));
        self.remember(info, failures, info.buries);
        failures
    }

    /// Notes that the command of this job has failed; it is the last of this many failures.
    pub fn failed(&mut self, info: &JobInfo, failures: u64) {
        self.remember(info, failures, info.buries);
    }

    /// Notes that the job is buried. If it is kicked, it has all its attempts again.
    pub fn buried(&mut self, info: &JobInfo) {
        self.remember(info, 0, info.buries + 1);
    }

    /// Forgets a job that is done.
    pub fn forget(&mut self, id: u64) {
        self.0.remove(&id);
    }

    fn remember(&mut self, info: &JobInfo, failures: u64, buries: u64) {
        self.0.insert(info.id, KnownJob { failures, timeouts: info.timeouts, buries });
        if self.0.len() > MAX_KNOWN {
            self.0.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beanstalk_client::parse_dictionary;

    const LIMITS: AttemptLimits = AttemptLimits { attempts: 4, delay: 10, max_delay: 3600 };

    fn info(releases: u64, timeouts: u64, buries: u64, delay: u64) -> JobInfo {
        let data = format!(
            "---\nid: 1\ntube: \"t\"\nstate: reserved\npri: 0\nage: 0\nttr: 1\nreleases: {releases}\ntimeouts: \
             {timeouts}\nburies: {buries}\ndelay: {delay}\n"
        );
        JobInfo::from_stats(&parse_dictionary(data.as_bytes()).unwrap()).unwrap()
    }

    /// The failures as counted by a process that has never had the job.
    fn seen_first(job: (u64, u64, u64, u64)) -> u64 {
        FailedAttempts::default().failures(&info(job.0, job.1, job.2, job.3), &LIMITS)
    }

    #[test]
    fn the_delay_shows_the_failures_of_other_processes_and_inspections_are_none() {
        for (job, failures) in [
            ((0, 0, 0, 0), 0),
            ((0, 0, 0, 10), 0), // the delay of its put
            ((1, 0, 0, 10), 1),
            ((2, 0, 0, 20), 2),
            ((3, 0, 0, 40), 3),
            ((5, 0, 0, 0), 0),  // inspected five times
            ((5, 0, 0, 10), 1), // inspected four times, and a failure
            ((1, 0, 0, 7), 0),  // released by others with a delay of theirs
            ((4, 0, 0, 80), 0), // so was this: its fourth failure would have buried it
            ((0, 3, 0, 0), 3),
            ((1, 1, 0, 20), 2),
            ((1, 2, 0, 10), 3), // the time-outs came after the release
            ((3, 0, 1, 40), 0), // buried after the fourth failure, and kicked
            ((4, 0, 1, 10), 1),
            ((0, 4, 1, 0), 0),
            ((0, 5, 1, 0), 1),
            ((1, 4, 1, 10), 1), // buried after four time-outs
        ] {
            assert_eq!(seen_first(job), failures, "{job:?}");
        }
    }

    #[test]
    fn a_process_counts_its_own_failures_exactly() {
        let mut attempts = FailedAttempts::default();
        assert_eq!(attempts.failures(&info(0, 0, 0, 0), &LIMITS), 0);
        attempts.failed(&info(0, 0, 0, 0), 1);
        // Inspected three times, and a time-out since; then another process counts a failure.
        assert_eq!(attempts.failures(&info(4, 1, 0, 0), &LIMITS), 2);
        assert_eq!(attempts.failures(&info(5, 1, 0, 40), &LIMITS), 4);
        attempts.buried(&info(5, 1, 0, 40));
        assert_eq!(attempts.failures(&info(5, 1, 1, 0), &LIMITS), 0);
        assert_eq!(attempts.failures(&info(5, 3, 1, 0), &LIMITS), 2);
        attempts.failed(&info(5, 3, 1, 0), 3);
        assert_eq!(attempts.failures(&info(6, 3, 2, 0), &LIMITS), 0, "somebody has buried and kicked it");
        attempts.forget(1);
        assert!(attempts.0.is_empty());
    }

    #[test]
    fn the_number_of_remembered_jobs_is_bounded() {
        let (mut attempts, mut job) = (FailedAttempts::default(), info(0, 0, 0, 0));
        for id in 0..MAX_KNOWN as u64 + 5 {
            job.id = id;
            attempts.failed(&job, 1);
        }
        assert_eq!((attempts.0.len(), attempts.0.contains_key(&4)), (MAX_KNOWN, false));
    }

    #[test]
    fn delays_double_up_to_the_longest_and_each_is_another() {
        assert_eq!(
            [1, 2, 3, 9, 10, 11, 4_000_000_000].map(|failures| LIMITS.delay_after(failures)),
            [10, 20, 40, 2560, 3600, 3599, 3150]
        );
        assert_eq!(AttemptLimits { delay: 0, ..LIMITS }.delay_after(5), 0);
        let even = AttemptLimits { delay: 3600, max_delay: 3600, attempts: 9 };
        assert_eq!([1, 2, 3].map(|failures| even.delay_after(failures)), [3600, 3599, 3598]);
        assert_eq!(even.shown_by(&info(8, 0, 0, 3598)), 3);
        assert_eq!(AttemptLimits { attempts: 1, ..LIMITS }.shown_by(&info(0, 1, 0, 0)), 1);
        assert_eq!(
            AttemptLimits { delay: u32::MAX, max_delay: u32::MAX, attempts: 2 }.delay_after(9),
            u32::MAX - 8
        );
    }
}
