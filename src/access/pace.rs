//! Puts per second: the time of the next permitted put.
//!
//! Owns: the arithmetic, with one instant for each identity. Never waits: `executor/guard` delays the puts.

use crate::clock::{NS_PER_S, Timestamp};

/// The pace of an identity's puts. After a while without puts, it may do as many at once as one second permits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// When the next put would be permitted if none had been saved up.
    next_at: Timestamp,
}

fn interval_ns(per_second: u32) -> u64 {
    NS_PER_S / u64::from(per_second)
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

    /// Forgets puts that were saved up before the last second.
    pub fn forget_saved(&mut self, per_second: u32, now: Timestamp) {
        self.next_at = self.next_at.max(now.minus_ns(NS_PER_S) + interval_ns(per_second));
    }

    /// Makes a put that was taken at a slower pace, which the rules had before, delay the next one as at this pace.
    pub fn adapt(&mut self, per_second: u32, now: Timestamp) {
        self.next_at = self.next_at.min(now + interval_ns(per_second));
    }

    /// When the last of the next `count` puts is permitted. There is at least one put.
    pub fn permits_at(&self, count: u64, per_second: u32) -> Timestamp {
        self.next_at + count.saturating_sub(1).saturating_mul(interval_ns(per_second))
    }

    /// Takes the next `count` puts.
    pub fn take(&mut self, count: u32, per_second: u32) {
        self.next_at = self.next_at + u64::from(count) * interval_ns(per_second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

    /// Takes `count` puts at `now`; returns when the last of them may be done.
    fn take(pace: &mut Pace, count: u32, per_second: u32, now: Timestamp) -> Timestamp {
        pace.forget_saved(per_second, now);
        let at = pace.permits_at(count.into(), per_second);
        pace.take(count, per_second);
        at.max(now)
    }

    #[test]
    fn a_second_of_puts_may_be_done_at_once_and_then_one_at_a_time() {
        let mut pace = Pace::default();
        let at: Vec<u64> =
            (0..14).map(|_| take(&mut pace, 1, 10, START).since_ns(START) / 1_000_000).collect();
        assert_eq!(at, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 300, 400]);
        let half = START + NS_PER_S / 2;
        assert_eq!(take(&mut pace, 1, 10, half), half);
        assert_eq!(take(&mut pace.clone(), 1, 10, half), START + NS_PER_S / 10 * 6);
        assert_eq!(take(&mut pace.clone(), 40, 10, half), START + NS_PER_S / 10 * 45);
        assert_eq!(take(&mut pace, 2, 10, half), START + NS_PER_S / 10 * 7);
    }

    #[test]
    fn over_a_long_time_no_more_puts_are_done_than_are_permitted() {
        for per_second in [1, 3, 1000, u32::MAX] {
            let (mut pace, mut now, mut done) = (Pace::default(), START, 0);
            while now < START + 10 * NS_PER_S && done < 100_000 {
                now = take(&mut pace, 1, per_second, now);
                done += 1;
            }
            assert!(done <= 11 * u64::from(per_second) + 1, "{done} of {per_second}");
        }
    }
}
