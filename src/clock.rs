//! Time as the server counts it.
//!
//! Owns: the type of an instant. Never reads a clock: the server reads one per turn and passes the
//! instant down as the last argument, so that every pure part can be replayed.

use std::ops::Add;

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// An instant, in nanoseconds since 1970 on a clock that never jumps: the wall time at start plus the
/// boot time that has passed since. It overflows in the year 2554.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The instant that never comes: what a deadline further off than the clock can count becomes.
    pub const NEVER: Self = Self(u64::MAX);

    /// This instant and `seconds` whole seconds more.
    #[must_use]
    pub fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(u64::from(seconds) * NS_PER_S))
    }

    /// The instant `ns` nanoseconds earlier; never before 1970.
    #[must_use]
    pub fn minus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// Nanoseconds from `earlier` to this instant; 0 if `earlier` is in fact later.
    #[must_use]
    pub fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds from `earlier` to this instant, rounded down as all times in replies are; 0 if
    /// `earlier` is in fact later.
    #[must_use]
    pub fn since_s(self, earlier: Self) -> u64 {
        self.since_ns(earlier) / NS_PER_S
    }
}

impl Add<u64> for Timestamp {
    type Output = Self;

    /// This instant and `ns` nanoseconds more.
    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}
