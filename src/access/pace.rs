//! Puts per second: the time of the next permitted put.
//!
//! Owns: the arithmetic, with one instant for each identity. Never waits: `commands/guard` delays the puts.

use crate::clock::{NS_PER_S, Timestamp};

/// The pace of an identity's puts. After a while without puts, it may do as many at once as one second permits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// When the next put would be permitted if none had been saved up.
    next_at: Timestamp,
}

impl Pace {
    /// A pace in which the next put is permitted at `next_at`.
    pub fn until(next_at: Timestamp) -> Self {
        Self { next_at }
    }

    /// When the next put would be permitted if none had been saved up.
    pub fn next_at(&self) -> Timestamp {
        self.next_at
    }

    /// Takes `count` puts at `now`, of which `per_second` are permitted. Returns when the last of them may be done:
    /// `now`, or later.
    pub fn take(&mut self, count: u32, per_second: u32, now: Timestamp) -> Timestamp {
        let saved_up = now.minus_ns(NS_PER_S);
        let interval_ns = NS_PER_S / u64::from(per_second);
        self.next_at = self.next_at.max(saved_up + interval_ns) + u64::from(count) * interval_ns;
        self.next_at.minus_ns(interval_ns).max(now)
    }

    /// Returns puts that had to wait and will not be done, so that the following ones need not wait for them.
    pub fn give_back(&mut self, count: u32, per_second: u32) {
        self.next_at = self.next_at.minus_ns(u64::from(count) * (NS_PER_S / u64::from(per_second)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

    #[test]
    fn a_second_of_puts_may_be_done_at_once_and_then_one_at_a_time() {
        let mut pace = Pace::default();
        let at: Vec<u64> = (0..14).map(|_| pace.take(1, 10, START).since_ns(START) / 1_000_000).collect();
        assert_eq!(at, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 300, 400]);
        let half = START + NS_PER_S / 2;
        assert_eq!(pace.take(1, 10, half), half);
        assert_eq!(pace.take(1, 10, half), START + NS_PER_S / 10 * 6);
        pace.give_back(1, 10);
        assert_eq!(pace.take(1, 10, half), START + NS_PER_S / 10 * 6);
        assert_eq!(pace.take(40, 10, half), START + NS_PER_S / 10 * 46);
        pace.give_back(40, 10);
        assert_eq!(pace.take(2, 10, half), START + NS_PER_S / 10 * 8);
    }

    #[test]
    fn over_a_long_time_no_more_puts_are_done_than_are_permitted() {
        for per_second in [1, 3, 1000, u32::MAX] {
            let (mut pace, mut now, mut done) = (Pace::default(), START, 0);
            while now < START + 10 * NS_PER_S && done < 100_000 {
                now = pace.take(1, per_second, now);
                done += 1;
            }
            assert!(done <= 11 * u64::from(per_second) + 1, "{done} of {per_second}");
        }
    }
}
