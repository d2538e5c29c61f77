//! Group commit: a commit is delayed, to wait for the clients that the last commit has answered.
//!
//! Owns: the decision. Without a delay, the clients of a queue split into two halves: one half waits while the other is
//! answered. Then each change takes the time of two commits. Pure. Driven by the helper.

use std::time::{Duration, Instant};

/// The delay is one part in this many of the time of the last commit.
const SHARE: u32 = 2;
/// The maximum delay.
const MAX_DELAY: Duration = Duration::from_millis(2);
/// How many commits after one with several clients are delayed. A single client has nobody to wait for.
const CROWDED_FOR: u32 = 16;

/// Measures the last commits, and decides how long the next one waits.
#[derive(Debug, Default)]
pub(super) struct CommitDelay {
    /// The next commit does not begin before this instant, unless it has this many bytes.
    pause: Option<(Instant, usize)>,
    crowded_for: u32,
}

impl CommitDelay {
    /// Notes that a commit of some `bytes` has ended at `now`. Clients from `turns` turns waited for it. Other
    /// clients wait with `waiting` bytes.
    pub(super) fn note_commit(
        &mut self,
        now: Instant,
        took: Duration,
        turns: usize,
        bytes: usize,
        waiting: usize,
    ) {
        let is_crowded = turns > 1 || waiting > 0;
        self.crowded_for = if is_crowded { CROWDED_FOR } else { self.crowded_for.saturating_sub(1) };
        // The clients that are answered now will have about the same amount to commit.
        let all = bytes + waiting;
        self.pause = (self.crowded_for > 0).then(|| (now + (took / SHARE).min(MAX_DELAY), all - all / 8));
    }

    /// How long a commit of `bytes` still waits; `None` if it may begin.
    pub(super) fn pause(&self, now: Instant, bytes: usize) -> Option<Duration> {
        let (until, enough) = self.pause?;
        let left = until.saturating_duration_since(now);
        (bytes < enough && !left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_client_that_is_alone_does_not_wait() {
        let (start, mut commit_delay) = (Instant::now(), CommitDelay::default());
        commit_delay.note_commit(start, 2 * MS, 1, 100, 0);
        assert_eq!(commit_delay.pause(start, 0), None);
        commit_delay.note_commit(start, 2 * MS, 2, 100, 0);
        for _ in 0..CROWDED_FOR {
            assert_eq!(commit_delay.pause(start, 10), Some(MS));
            commit_delay.note_commit(start, 2 * MS, 1, 100, 0);
        }
        assert_eq!(commit_delay.pause(start, 10), None, "the others have gone");
    }

    #[test]
    fn many_clients_wait_for_each_other_and_not_for_long() {
        let (start, mut commit_delay) = (Instant::now(), CommitDelay::default());
        commit_delay.note_commit(start, 2 * MS, 1, 800, 800);
        assert_eq!(commit_delay.pause(start, 800), Some(MS), "half of them");
        assert_eq!(commit_delay.pause(start, 1400), None, "nearly all of them");
        assert_eq!(commit_delay.pause(start + MS, 800), None, "the others do not come");
        commit_delay.note_commit(start, 100 * MS, 1, 800, 800);
        assert_eq!(commit_delay.pause(start, 800), Some(MAX_DELAY));
    }
}
