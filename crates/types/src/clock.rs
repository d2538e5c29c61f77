//! The type of an instant.
//!
//! Owns: instants and their arithmetic. Never reads a clock: the server reads the clock once per turn and passes
//! the instant down as the last argument, so that a test can repeat whatever a pure part did.

use std::ops::Add;

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const NS_PER_MS: u64 = 1_000_000;

/// An instant, in nanoseconds since 1970, on a clock that never jumps: the wall time at the start plus the boot time
/// that has passed since then. It overflows in the year 2554.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// An instant that never comes. A deadline later than the clock can count becomes this instant.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant of something that is due whatever the clock reads: it comes before every deadline.
    pub const AT_ONCE: Self = Self(0);

    /// The earliest of the given instants.
    #[inline]
    #[must_use]
    pub fn earliest<const N: usize>(instants: [Option<Self>; N]) -> Option<Self> {
        // By hand and without branches, because every turn does it.
        let mut earliest = Self::NEVER;
        for instant in &instants {
            earliest = earliest.min(instant.unwrap_or(Self::NEVER));
        }
        Some(earliest).filter(|&at| at != Self::NEVER)
    }

    /// The instant `ns` nanoseconds earlier; never before 1970.
    #[must_use]
    pub fn minus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// The offset, in nanoseconds, of a clock that reads `clock_ns` at this instant: positive if it is ahead of the
    /// clock of this instant.
    #[must_use]
    pub fn offset_ns(self, clock_ns: u64) -> i64 {
        i64::try_from(i128::from(clock_ns) - i128::from(self.0)).unwrap_or(0)
    }

    /// Nanoseconds from `earlier` to this instant; 0 if `earlier` is later.
    #[must_use]
    pub fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds from `earlier` to this instant, rounded down like all times in replies; 0 if
    /// `earlier` is later.
    #[must_use]
    pub fn since_s(self, earlier: Self) -> u64 {
        self.since_ns(earlier) / NS_PER_S
    }
}

impl Add<u64> for Timestamp {
    type Output = Self;

    /// The instant `ns` nanoseconds later.
    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}
