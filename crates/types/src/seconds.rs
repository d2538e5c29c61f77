//! A number of seconds, as commands have it: whole seconds and thousandths; and an instant plus such a number.

use std::cmp::Ordering;
use std::fmt;

use crate::clock::{NS_PER_S, Timestamp};
use crate::number::leading_u32;

const NS_PER_THOUSANDTH: u64 = NS_PER_S / 1000;

/// Seconds, from 0 to 4294967295.999, ordered by length.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds {
    whole: u32,
    // As wide as `whole`: both then go through the hot path in registers.
    thousandths: u32,
}

impl Seconds {
    /// No time.
    pub const ZERO: Self = Self::new(0, 0);
    /// One second.
    pub const ONE: Self = Self::new(1, 0);
    /// The longest time.
    pub const MAX: Self = Self::new(u32::MAX, 999);

    /// Whole seconds, and thousandths of a second.
    ///
    /// # Panics
    /// In a debug build, from 1000 thousandths on.
    #[inline]
    #[must_use]
    pub const fn new(whole: u32, thousandths: u16) -> Self {
        debug_assert!(thousandths < 1000, "a second has a thousand of them");
        Self { whole, thousandths: thousandths as u32 }
    }

    /// This many nanoseconds, rounded down to thousandths of a second; zero for a negative number.
    #[must_use]
    pub fn of_ns(ns: i64) -> Self {
        let thousandths = ns.max(0) as u64 / NS_PER_THOUSANDTH;
        match u32::try_from(thousandths / 1000) {
            Ok(whole) => Self::new(whole, (thousandths % 1000) as u16),
            Err(_) => Self::MAX,
        }
    }

    /// The whole seconds: a time in the stats is rounded down.
    #[inline]
    #[must_use]
    pub const fn whole(self) -> u32 {
        self.whole
    }

    /// The fraction of a second, in thousandths.
    #[inline]
    #[must_use]
    pub const fn thousandths(self) -> u16 {
        self.thousandths as u16
    }

    /// The seconds, rounded up to whole ones.
    #[must_use]
    pub const fn rounded_up(self) -> u64 {
        self.whole() as u64 + (self.thousandths() > 0) as u64
    }

    /// Whether this is no time.
    #[inline]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.whole | self.thousandths == 0
    }

    /// These seconds, or one second if they are less.
    #[inline]
    #[must_use]
    pub const fn at_least_one(self) -> Self {
        if self.whole == 0 { Self::ONE } else { self }
    }

    /// In nanoseconds, fewer than 2^63.
    #[inline]
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.whole() as u64 * NS_PER_S + self.thousandths() as u64 * NS_PER_THOUSANDTH
    }

    /// Seconds at the start of `text`, after any spaces, and the text after them. `None` without a digit, above the
    /// maximum, or if one to three digits do not follow a point.
    #[must_use]
    pub fn leading(text: &[u8]) -> Option<(Self, &[u8])> {
        let (whole, rest) = leading_u32(text)?;
        let Some(behind) = rest.strip_prefix(b".") else { return Some((whole.into(), rest)) };
        let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let places = [100, 10, 1];
        if !(1..=places.len()).contains(&digits) {
            return None;
        }
        let (digits, rest) = behind.split_at(digits);
        let thousandths =
            digits.iter().zip(places).map(|(digit, place)| u16::from(digit - b'0') * place).sum();
        Some((Self::new(whole, thousandths), rest))
    }

    /// All of `text` as seconds, with leading spaces allowed and nothing after them.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        match Self::leading(text)? {
            (seconds, []) => Some(seconds),
            _ => None,
        }
    }
}

impl Timestamp {
    /// The instant `seconds` later.
    #[inline]
    #[must_use]
    pub fn plus_seconds(self, seconds: impl Into<Seconds>) -> Self {
        Self(self.0.saturating_add(seconds.into().as_ns()))
    }
}

impl From<u32> for Seconds {
    #[inline]
    fn from(whole: u32) -> Self {
        Self::new(whole, 0)
    }
}

impl PartialEq<u32> for Seconds {
    fn eq(&self, whole: &u32) -> bool {
        *self == Self::from(*whole)
    }
}

impl PartialOrd<u32> for Seconds {
    fn partial_cmp(&self, whole: &u32) -> Option<Ordering> {
        Some(self.cmp(&Self::from(*whole)))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.thousandths() {
            0 => write!(out, "{}", self.whole()),
            thousandths => {
                let digits = format!("{thousandths:03}");
                write!(out, "{}.{}", self.whole(), digits.trim_end_matches('0'))
            }
        }
    }
}

impl fmt::Debug for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_one_to_three_digits_on_both_of_its_sides() {
        for (text, seconds, written) in [
            ("0", Seconds::ZERO, "0"),
            ("1.5", Seconds::new(1, 500), "1.5"),
            ("  007.050", Seconds::new(7, 50), "7.05"),
            ("0.001", Seconds::new(0, 1), "0.001"),
            ("0.000", Seconds::ZERO, "0"),
            ("4294967295.999", Seconds::MAX, "4294967295.999"),
        ] {
            assert_eq!(Seconds::parse(text.as_bytes()), Some(seconds), "{text:?}");
            assert_eq!(seconds.to_string(), written);
        }
        for text in
            ["", ".", ".5", "5.", "5. 1", "5.x", "5.1234", "1.5x", "-1", "+1", "4294967296", "1e3", "1,5"]
        {
            assert_eq!(Seconds::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Seconds::leading(b"1.5 60"), Some((Seconds::new(1, 500), &b" 60"[..])));
        assert_eq!(Seconds::leading(b"1.5.5"), Some((Seconds::new(1, 500), &b".5"[..])));
    }

    #[test]
    fn seconds_become_nanoseconds_and_back() {
        for seconds in [Seconds::ZERO, Seconds::new(0, 1), Seconds::new(1, 999), Seconds::MAX] {
            let ns = i64::try_from(seconds.as_ns()).expect("fewer than 2^63");
            assert_eq!([ns, ns + 999_999].map(Seconds::of_ns), [seconds; 2]);
        }
        assert_eq!((Seconds::of_ns(-1), Seconds::of_ns(i64::MAX)), (Seconds::ZERO, Seconds::MAX));
        assert!(Seconds::new(1, 999) < Seconds::new(2, 0) && Seconds::new(0, 1) > Seconds::ZERO);
        assert_eq!((Seconds::new(1, 1).rounded_up(), Seconds::new(1, 0).rounded_up()), (2, 1));
    }
}
