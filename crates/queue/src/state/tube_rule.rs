//! Rules for tubes: one entry of the file `--tubes`, and all entries in order.
//!
//! Owns: the choice of the entry for a tube: the first whose pattern matches its name. Never carries out the entry;
//! each rule has a file in `rules/` for that. The server reads the file.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::pattern::Pattern;
use crate::state::keys::TubeKey;

/// One entry. A field that is `None` has no effect.
#[derive(Clone, Debug)]
pub struct TubeRule {
    /// The pattern of tube names: `*` stands for any bytes, `?` for one.
    pub pattern: Box<str>,
    /// The maximum number of jobs in the tube, in any state.
    pub max_jobs: Option<u64>,
    /// The maximum total size of the bodies of its jobs, in bytes.
    pub max_bytes: Option<u64>,
    /// A job is dead after this many failures; at least 1.
    pub max_attempts: Option<u32>,
    /// The delay of a job after its first failure, in seconds; it doubles with each further one.
    pub backoff_s: Option<u32>,
    /// The longest such delay, in seconds.
    pub max_backoff_s: Option<u32>,
    /// The target of dead jobs; without one, they are buried, and jobs that are too old are deleted.
    pub dead_tube: Option<Box<str>>,
    /// How long a job stays in the tube while no client has reserved it, in seconds; at least 1.
    pub max_age_s: Option<u32>,
    /// The maximum number of reserved jobs of the tube.
    pub max_reserved: Option<u32>,
    /// Whether jobs of the same priority are reserved round-robin by their concurrency keys.
    pub is_fair: bool,
    /// The maximum rate of reservations.
    pub rate: Option<Rate>,
}

/// A rate of reservations: a bucket of tokens, from which each reservation takes one.
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
    /// An entry without any effect.
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

    /// The delay of a job after the failure with this number, counted from 1, in seconds.
    pub(crate) fn backoff_after(&self, failures: u32) -> Option<u32> {
        // No delay needs more than 32 bits.
        let doublings = failures.saturating_sub(1).min(u32::BITS);
        let delay_s = u64::from(self.backoff_s?) << doublings;
        let max = self.max_backoff_s.unwrap_or(u32::MAX);
        Some(u32::try_from(delay_s).unwrap_or(u32::MAX).min(max))
    }

    /// Whether it limits the contents of a tube.
    pub(crate) fn has_limits(&self) -> bool {
        self.max_jobs.is_some() || self.max_bytes.is_some()
    }

    /// Whether a tube that has `jobs` jobs, whose bodies have `bytes` bytes together, has room for one more job with a
    /// body of `added` bytes.
    pub(crate) fn has_room(&self, jobs: u64, bytes: u64, added: usize) -> bool {
        self.max_jobs.is_none_or(|max| jobs < max)
            && self.max_bytes.is_none_or(|max| bytes.saturating_add(added as u64) <= max)
    }
}

/// An entry in force.
#[derive(Debug)]
struct Entry {
    pattern: Pattern,
    rule: Rc<TubeRule>,
    /// The tubes that only their buckets keep. The tube that was left first comes first. Some may be used again.
    kept: VecDeque<TubeKey>,
}

/// The entries in force.
#[derive(Debug, Default)]
pub(crate) struct RuleBook(Vec<Entry>);

impl RuleBook {
    pub(crate) fn new(rules: Vec<TubeRule>) -> Self {
        let entry = |rule: TubeRule| Entry {
            pattern: Pattern::new(&rule.pattern),
            rule: Rc::new(rule),
            kept: VecDeque::new(),
        };
        Self(rules.into_iter().map(entry).collect())
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
        let matches = |entry: &&Entry| {
            #[cfg(test)]
            crate::testing::steps::note();
            entry.pattern.matches(tube)
        };
        self.0.iter().find(matches).map(|entry| &entry.rule)
    }

    /// The tubes with this rule that only their buckets keep. `None` if the rule is of an earlier file.
    pub(crate) fn kept(&mut self, rule: &Rc<TubeRule>) -> Option<&mut VecDeque<TubeKey>> {
        self.0.iter_mut().find(|entry| Rc::ptr_eq(&entry.rule, rule)).map(|entry| &mut entry.kept)
    }

    /// Forgets a tube that is gone, among the tubes that only their buckets keep: a tube with the same key is another
    /// one. There are at most `MAX_KEPT_TUBES`, so the search takes a microsecond.
    #[cold]
    pub(crate) fn forget_kept(&mut self, tube: TubeKey, rule: &Rc<TubeRule>) {
        if let Some(kept) = self.kept(rule)
            && let Some(position) = kept.iter().position(|&other| other == tube)
        {
            kept.remove(position);
        }
    }
}
