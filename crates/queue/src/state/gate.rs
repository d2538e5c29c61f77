//! The gate of a tube whose rule limits the reservations, and its token bucket.
//!
//! Owns: when a gate must be closed, and when its bucket has tokens. `rules/gate.rs` closes gates, and
//! `moves/gates.rs` opens them.

use crate::clock::Timestamp;
use crate::described;
use crate::state::tube_rule::{Rate, TubeRule};

/// The gate of a tube.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    pub(crate) is_closed: bool,
    /// The deficit of the bucket, in parts of a token: a token has as many parts as the period has nanoseconds.
    deficit: u128,
    /// The instant of `deficit`.
    at: Timestamp,
}

described!(Gate { is_closed, deficit, at });
described!(Rate { tokens, period_ns, burst });

impl Rate {
    fn period(self) -> u128 {
        self.period_ns.into()
    }

    /// The deficit of an empty bucket.
    fn max_deficit(self) -> u128 {
        u128::from(self.burst) * self.period()
    }

    /// How long the bucket needs to get `parts`, in nanoseconds.
    fn time_for(self, parts: u128) -> u64 {
        u64::try_from(parts.div_ceil(u128::from(self.tokens))).unwrap_or(u64::MAX)
    }
}

impl Gate {
    /// Adds the tokens that have come until now.
    pub(crate) fn refill(&mut self, rate: Rate, now: Timestamp) {
        let gained = u128::from(now.since_ns(self.at)) * u128::from(rate.tokens);
        self.deficit = self.deficit.saturating_sub(gained);
        self.at = self.at.max(now);
    }

    pub(crate) fn take(&mut self, rate: Rate, now: Timestamp) {
        self.refill(rate, now);
        self.deficit = (self.deficit + rate.period()).min(rate.max_deficit());
        debug_assert!(self.has_deficit(), "a bucket from which a token was taken is not full");
    }

    /// Whether the rule permits no further reservation, in a tube with `reserved` ones.
    pub(crate) fn must_close(&self, rule: Option<&TubeRule>, reserved: u32) -> bool {
        let Some(rule) = rule else { return false };
        rule.max_reserved.is_some_and(|max| reserved >= max)
            || rule.rate.is_some_and(|rate| self.lacks_token(rate))
    }

    pub(crate) fn lacks_token(&self, rate: Rate) -> bool {
        self.deficit + rate.period() > rate.max_deficit()
    }

    /// When a closed gate opens, unless a reservation must end first.
    pub(crate) fn opens_at(&self, rule: Option<&TubeRule>, reserved: u32) -> Option<Timestamp> {
        if !self.is_closed {
            return None;
        }
        let Some(rule) = rule else { return Some(self.at) };
        if rule.max_reserved.is_some_and(|max| reserved >= max) {
            return None;
        }
        let needed = rule.rate.map_or(0, |rate| {
            rate.time_for((self.deficit + rate.period()).saturating_sub(rate.max_deficit()))
        });
        Some(self.at + needed)
    }

    /// Puts another rate in force: the bucket lacks the same number of tokens as before, or all of them.
    pub(crate) fn change(&mut self, before: Option<Rate>, after: Option<Rate>, now: Timestamp) {
        if before != after {
            self.deficit = match (before, after) {
                (Some(before), Some(after)) => {
                    self.refill(before, now);
                    self.deficit.saturating_mul(after.period()) / before.period()
                }
                (None, _) | (_, None) => 0,
            };
            self.at = self.at.max(now);
        }
        self.deficit = self.deficit.min(after.map_or(0, Rate::max_deficit));
    }

    /// Puts the token of a reservation back that was undone.
    pub(crate) fn give_back(&mut self, rate: Rate) {
        self.deficit = self.deficit.saturating_sub(rate.period());
    }

    /// Fills the bucket.
    pub(crate) fn fill(&mut self) {
        self.deficit = 0;
    }

    /// When the bucket is full.
    pub(crate) fn full_at(&self, rate: Option<Rate>) -> Timestamp {
        self.at + rate.map_or(0, |rate| rate.time_for(self.deficit))
    }

    /// Whether the bucket is not full, so that removing and creating the tube again would permit more than the rule.
    pub(crate) fn has_deficit(&self) -> bool {
        self.deficit > 0
    }
}
