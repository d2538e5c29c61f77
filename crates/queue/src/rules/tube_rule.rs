//! What the rules for tubes say: one entry of the file `--tubes`, and all of them in their order.
//!
//! Owns: which entry a tube gets: the first whose pattern matches its name. Never does what the entry says; each rule
//! has a file beside this one for that. The server reads the file.

use std::rc::Rc;

use wildmatch::WildMatch;

/// What one entry asks for. `None` asks for nothing.
#[derive(Clone, Debug)]
pub struct TubeRule {
    /// The pattern of tube names: `*` stands for any bytes, `?` for one.
    pub pattern: Box<str>,
    /// The most jobs in the tube, in whatever state.
    pub max_jobs: Option<u64>,
    /// The most bytes that the bodies of its jobs have together.
    pub max_bytes: Option<u64>,
    /// A job is dead after this many failures; at least 1.
    pub max_attempts: Option<u32>,
    /// How long a job is delayed after its first failure, in seconds; after each further one twice as long.
    pub backoff_s: Option<u32>,
    /// The longest such delay, in seconds.
    pub max_backoff_s: Option<u32>,
    /// Where dead jobs go; if there is none, they are buried, and those that are too old deleted.
    pub dead_tube: Option<Box<str>>,
    /// How long a job stays in the tube while nobody has reserved it, in seconds; at least 1.
    pub max_age_s: Option<u32>,
    /// The most jobs of the tube that are reserved at a time.
    pub max_reserved: Option<u32>,
    /// Whether jobs of the same priority are reserved by turns of their concurrency keys.
    pub is_fair: bool,
    /// How many reservations there may be in a time.
    pub rate: Option<Rate>,
}

/// So many reservations in a time: a bucket of tokens, of which each reservation takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens that come into the bucket in a period; at least 1.
    pub tokens: u32,
    /// The period; at least 1.
    pub period_ns: u64,
    /// How many tokens the bucket holds; at least 1.
    pub burst: u32,
}

impl TubeRule {
    /// An entry that asks for nothing.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self {
            pattern: pattern.into(),
            max_jobs: None,
            max_bytes: None,
            max_attempts: None,
            backoff_s: None,
            max_backoff_s: None,
            dead_tube: None,
            max_age_s: None,
            max_reserved: None,
            is_fair: false,
            rate: None,
        }
    }

    /// How long a job is delayed after its failure of this number, counted from 1, in seconds.
    pub(crate) fn backoff_after(&self, failures: u32) -> Option<u32> {
        // No delay is longer than 32 bits can say.
        let doublings = failures.saturating_sub(1).min(u32::BITS);
        let delay_s = u64::from(self.backoff_s?) << doublings;
        let most = self.max_backoff_s.unwrap_or(u32::MAX);
        Some(u32::try_from(delay_s).unwrap_or(u32::MAX).min(most))
    }

    /// Whether it limits what a tube takes.
    pub(crate) fn has_limits(&self) -> bool {
        self.max_jobs.is_some() || self.max_bytes.is_some()
    }

    /// Whether a tube with so many jobs, and bodies of so many bytes, takes one more with a body of `added`.
    pub(crate) fn has_room(&self, jobs: u64, bytes: u64, added: usize) -> bool {
        self.max_jobs.is_none_or(|most| jobs < most)
            && self.max_bytes.is_none_or(|most| bytes.saturating_add(added as u64) <= most)
    }
}

/// The entries in force.
#[derive(Debug, Default)]
pub(crate) struct RuleBook(Vec<(WildMatch, Rc<TubeRule>)>);

impl RuleBook {
    pub(crate) fn new(rules: Vec<TubeRule>) -> Self {
        Self(rules.into_iter().map(|rule| (WildMatch::new(&rule.pattern), Rc::new(rule))).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first entry that matches the name of a tube.
    #[inline]
    pub(crate) fn find(&self, tube: &str) -> Option<&Rc<TubeRule>> {
        let is_meant = |(pattern, _): &&(WildMatch, Rc<TubeRule>)| {
            #[cfg(test)]
            super::steps::note();
            pattern.matches(tube)
        };
        self.0.iter().find(is_meant).map(|(_, rule)| rule)
    }
}
