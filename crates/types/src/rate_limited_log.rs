//! Log lines about events that may happen a thousand times a second.

use crate::clock::{NS_PER_S, Timestamp};

/// The shortest time between two lines about the same thing, unless [`RateLimitedLog::every`] sets another.
const INTERVAL_NS: u64 = 5 * NS_PER_S;

/// Decides which events of a frequent kind get a line in the log.
#[derive(Debug)]
pub struct RateLimitedLog {
    interval_ns: u64,
    next_at: Timestamp,
    withheld: u64,
}

impl Default for RateLimitedLog {
    fn default() -> Self {
        Self::every(INTERVAL_NS)
    }
}

impl RateLimitedLog {
    /// At most one line in `interval_ns` nanoseconds.
    #[must_use]
    pub fn every(interval_ns: u64) -> Self {
        Self { interval_ns, next_at: Timestamp::AT_ONCE, withheld: 0 }
    }

    /// Calls `write` unless it was called less than the interval ago. Its argument is the number of events without a
    /// line since the last call.
    pub fn line(&mut self, now: Timestamp, write: impl FnOnce(u64)) {
        if now < self.next_at {
            self.withheld += 1;
            return;
        }
        self.next_at = now + self.interval_ns;
        write(std::mem::take(&mut self.withheld));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_gets_a_line_now_and_then_that_counts_the_others() {
        let mut log = RateLimitedLog::default();
        let mut lines = Vec::new();
        for tick in 0..1_000 {
            log.line(Timestamp(tick * NS_PER_S / 100), |withheld| lines.push(withheld));
        }
        assert_eq!(lines, [0, 499]);
    }
}
