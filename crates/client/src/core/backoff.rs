//! How long a client tries to reach its server again: exponential backoff with jitter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// When a client gives up a lost connection. The default: pauses from 50 ms up to 5 s between attempts, for half a
/// minute to a minute in total. Each pause is shortened by up to a half, at random: clients that have lost the same
/// server do not all come back at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconnect {
    /// The pause before the second attempt; there is none before the first. It doubles with each attempt.
    pub first_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
    /// Gives up when the total of the pauses would exceed this. The total is that before the pauses are shortened: the
    /// client really pauses for a half of this time to all of it.
    pub give_up_after: Duration,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(50),
            max_pause: Duration::from_secs(5),
            give_up_after: Duration::from_secs(60),
        }
    }
}

impl Reconnect {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Never gives up.
    pub fn forever() -> Self {
        Self { give_up_after: Duration::MAX, ..Self::default() }
    }

    /// Gives up when the total of the pauses, before they are shortened, would exceed this.
    #[must_use]
    pub fn give_up_after(self, give_up_after: Duration) -> Self {
        Self { give_up_after, ..self }
    }

    /// The first and the longest pause.
    #[must_use]
    pub fn pauses(self, first_pause: Duration, max_pause: Duration) -> Self {
        Self { first_pause, max_pause, ..self }
    }
}

/// The pauses since the server last replied, before they are shortened.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    count: u32,
    paused: Duration,
}

impl Backoff {
    /// The number of the next attempt, from 1.
    pub(crate) fn next(&self) -> u32 {
        self.count + 1
    }

    /// The pause before the next attempt; `None` if it is time to give up.
    pub(crate) fn next_pause(&mut self, reconnect: &Reconnect) -> Option<Duration> {
        self.count += 1;
        if self.count == 1 {
            return Some(Duration::ZERO);
        }
        let doublings = (self.count - 2).min(31);
        let pause = reconnect.first_pause.saturating_mul(1 << doublings).min(reconnect.max_pause);
        // Pauses of zero would never add up to the limit.
        let pause = pause.max(Duration::from_millis(1));
        self.paused = self.paused.saturating_add(pause);
        (self.paused <= reconnect.give_up_after).then_some(pause)
    }
}

/// A time between a half of the pause and all of it, at random.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // Each state has other keys.
    let random = RandomState::new().build_hasher().finish();
    pause.mul_f64(0.5 + random as f64 / u64::MAX as f64 / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_over_their_second_half() {
        let pause = Duration::from_secs(10);
        let pauses: Vec<_> = (0..100).map(|_| jittered(pause)).collect();
        assert!(pauses.iter().all(|jittered| (pause / 2..=pause).contains(jittered)));
        let tenths = pauses.iter().map(|jittered| jittered.as_millis() / 500);
        assert!(tenths.collect::<std::collections::BTreeSet<_>>().len() > 5, "{pauses:?}");
        assert_eq!(jittered(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_come_to_an_end() {
        let mut backoff = Backoff::default();
        let reconnect = Reconnect::new().give_up_after(Duration::from_secs(2));
        let ms: Vec<u128> =
            std::iter::from_fn(|| backoff.next_pause(&reconnect)).map(|pause| pause.as_millis()).collect();
        assert_eq!(ms, [0, 50, 100, 200, 400, 800]);
        let mut backoff = Backoff::default();
        let (first, max) = (Duration::from_millis(10), Duration::from_millis(25));
        let shorter = Reconnect::new().pauses(first, max).give_up_after(Duration::from_millis(100));
        for (attempt, ms) in [(1, 0), (2, 10), (3, 20), (4, 25), (5, 25)] {
            assert_eq!(backoff.next(), attempt);
            assert_eq!(backoff.next_pause(&shorter), Some(Duration::from_millis(ms)), "attempt {attempt}");
        }
        assert_eq!(backoff.next_pause(&shorter), None, "105 ms in all");
        let mut backoff = Backoff::default();
        assert!((0..1000).all(|_| backoff.next_pause(&Reconnect::forever()).is_some()));
        let mut backoff = Backoff::default();
        let at_once = Reconnect::new().give_up_after(Duration::ZERO);
        assert_eq!(backoff.next_pause(&at_once), Some(Duration::ZERO));
        assert_eq!(backoff.next_pause(&at_once), None);
    }
}
