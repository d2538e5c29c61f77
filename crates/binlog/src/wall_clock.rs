//! The wall clock, whose times are in the log.
//!
//! Owns: such a time, and the conversion to and from an instant of the clock in memory. Never reads a clock.

use crate::clock::Timestamp;

/// A time of the wall clock, in nanoseconds since 1970; in a database, of the clock of the queue, which takes its
/// place. It is not an instant: the wall clock can be set. Only [`WallOffset`] converts between the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WallTime(pub(crate) i64);

impl WallTime {
    /// The start of 1970. In a marker it means that the time is not known.
    pub(crate) const EPOCH: Self = Self(0);

    /// The time `ns` nanoseconds later.
    #[must_use]
    pub(crate) fn plus_ns(self, ns: i64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds since 1970; 0 for an earlier time.
    #[must_use]
    pub(crate) fn since_epoch_ns(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }
}

/// The wall clock less the clock in memory, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WallOffset(pub(crate) i64);

impl WallOffset {
    /// The time of the wall clock at the instant `at`.
    #[must_use]
    pub(crate) fn to_disk(self, at: Timestamp) -> WallTime {
        WallTime(i64::try_from(at.0).unwrap_or(i64::MAX)).plus_ns(self.0)
    }

    /// The instant at which the wall clock shows `time`.
    #[must_use]
    pub(crate) fn to_memory(self, time: WallTime) -> Timestamp {
        Timestamp(u64::try_from(time.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_pass_between_the_clocks_and_stop_at_their_ends() {
        let wall = WallOffset(500);
        assert_eq!(wall.to_disk(Timestamp(1000)), WallTime(1500));
        assert_eq!(wall.to_memory(WallTime(1500)), Timestamp(1000));
        assert_eq!(wall.to_memory(WallTime(-7)), Timestamp(0));
        assert_eq!(wall.to_disk(Timestamp::NEVER), WallTime(i64::MAX));
    }
}
