//! The pace of changes to many jobs: never faster than a rate, in small batches.

use std::time::{Duration, Instant};

use crate::cli::JobRate;

/// The number of batches into which a second of the rate is divided.
const BATCHES_PER_S: u32 = 10;

/// Decides how many jobs are next, and when.
pub struct Pacer {
    rate: Option<JobRate>,
    next_at: Instant,
}

impl Pacer {
    /// Without a rate, there is nothing to wait for.
    pub fn new(rate: Option<JobRate>, now: Instant) -> Self {
        Self { rate, next_at: now }
    }

    /// The size of a batch, at most `max`.
    pub fn batch(&self, max: usize) -> usize {
        let Some(JobRate { jobs, per }) = self.rate else { return max };
        let share = u64::from(jobs) / (per.as_secs() * u64::from(BATCHES_PER_S));
        usize::try_from(share).unwrap_or(max).clamp(1, max)
    }

    /// How long to wait before a batch of this many jobs may begin. Time lost by slow batches is not caught up.
    pub fn wait(&mut self, jobs: usize, now: Instant) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let begins_at = self.next_at.max(now);
        self.next_at = begins_at + rate.per.mul_f64(jobs as f64 / f64::from(rate.jobs));
        begins_at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_has_more_jobs_than_the_rate_and_a_batch() {
        for (jobs, seconds, batch) in
            [(1, 3600, 1), (5, 1, 1), (100, 1, 10), (60_000, 60, 100), (1_000_000, 1, 200)]
        {
            let per = Duration::from_secs(seconds);
            let begun_at = Instant::now();
            let mut pace = Pacer::new(Some(JobRate { jobs, per }), begun_at);
            assert_eq!(pace.batch(200), batch);
            let (mut now, mut done) = (begun_at, 0);
            for step in 0..50_u64 {
                now += pace.wait(batch, now);
                done += batch;
                let allowed = (now - begun_at).as_secs_f64() * f64::from(jobs) / per.as_secs_f64();
                assert!(
                    done as f64 <= allowed + batch as f64 + 1e-3,
                    "{jobs}/{seconds}: {done} after {step}"
                );
                // The server needs time, occasionally a lot.
                now += if step % 10 == 9 { per } else { Duration::from_millis(1) };
            }
        }
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let now = Instant::now();
        let mut pace = Pacer::new(None, now);
        assert_eq!(
            (pace.batch(200), pace.wait(200, now), pace.wait(200, now)),
            (200, Duration::ZERO, Duration::ZERO)
        );
    }
}
