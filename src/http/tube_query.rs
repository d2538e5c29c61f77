//! The choice and the order of the tubes in a list.
//!
//! Owns: the filter by name, and the order. Driven by the snapshot, which keeps the first tubes.

use std::cmp::Ordering;

use crate::pattern::Pattern;
use crate::queue::TubeView;
use crate::stats::{Read, TUBE};
use crate::tube_name::TubeName;

/// The maximum length of a pattern, in bytes: comparing it with a long name takes some thousand steps at worst.
pub(super) const MAX_PATTERN_BYTES: usize = 64;

/// A choice of tubes, and their order.
#[derive(Debug, Default)]
pub struct Query {
    sort: Sort,
    /// Whether the smallest comes first.
    is_ascending: bool,
    names: Names,
    /// The list begins after this rank.
    after: Option<Rank>,
}

/// A filter by name. Texts are in lower case.
#[derive(Debug, Default)]
enum Names {
    #[default]
    All,
    Containing(String),
    Matching(Pattern),
}

/// The position of a tube in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The value by which the tubes are sorted, if it is a number.
    pub value: u64,
    /// The number of jobs, if the tubes are not sorted by name.
    pub jobs: u64,
    /// The name.
    pub name: TubeName,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    /// By the number of jobs in any state.
    #[default]
    Jobs,
    Name,
    /// By the figure in this row of the table.
    Figure(usize),
}

impl Query {
    /// Sorts by `name`, by `jobs`, or by a numeric figure of a tube. Returns whether the key is one of these.
    pub fn sort_by(&mut self, key: &str) -> bool {
        let is_number = |read: &Read<_>| !matches!(read, Read::Text(_) | Read::Word(_));
        let row = TUBE.iter().position(|figure| figure.key == key && is_number(&figure.read));
        self.sort = match key {
            "name" => Sort::Name,
            _ => row.map_or(Sort::Jobs, Sort::Figure),
        };
        row.is_some() || matches!(key, "name" | "jobs")
    }

    /// Puts the smallest first.
    pub fn ascend(&mut self) {
        self.is_ascending = true;
    }

    /// Selects the tubes whose names contain the text or, if it has a `*` or `?`, the tubes whose whole names match it.
    /// Upper and lower case are the same. Returns false for a pattern of more than `MAX_PATTERN_BYTES`.
    pub fn filter_by(&mut self, text: &str) -> bool {
        self.names = match text.to_ascii_lowercase() {
            text if text.is_empty() => Names::All,
            text if !text.contains(['*', '?']) => Names::Containing(text),
            pattern if pattern.len() <= MAX_PATTERN_BYTES => Names::Matching(Pattern::new(&pattern)),
            _ => return false,
        };
        true
    }

    /// Whether names are compared with a pattern, which takes longer than a search for a text.
    #[must_use]
    pub fn has_pattern(&self) -> bool {
        matches!(self.names, Names::Matching(_))
    }

    /// Selects the tubes after this rank.
    pub fn start_after(&mut self, rank: Rank) {
        self.after = Some(rank);
    }

    /// Whether the filter selects a tube called `name`.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        let name = || name.to_ascii_lowercase();
        match &self.names {
            Names::All => true,
            Names::Containing(text) => name().contains(text),
            Names::Matching(pattern) => pattern.matches(&name()),
        }
    }

    /// Whether the tube comes after the rank with which the list begins.
    #[must_use]
    pub fn is_ahead(&self, tube: &TubeView) -> bool {
        self.after.as_ref().is_none_or(|Rank { value, jobs, name }| {
            self.order(self.parts(tube), (*value, *jobs, name.as_str())) == Ordering::Greater
        })
    }

    /// The rank of a tube.
    #[must_use]
    pub fn rank(&self, tube: &TubeView) -> Rank {
        let (value, jobs, _) = self.parts(tube);
        Rank { value, jobs, name: tube.name.clone() }
    }

    /// Compares two tubes. If their values are equal, the one with more jobs comes first, and then the one with the
    /// smaller name.
    #[must_use]
    pub fn compare(&self, a: &TubeView, b: &TubeView) -> Ordering {
        self.order(self.parts(a), self.parts(b))
    }

    /// The values that decide the order.
    fn parts<'t>(&self, tube: &'t TubeView) -> (u64, u64, &'t str) {
        let (name, jobs) = (tube.name.as_str(), tube.jobs.total() as u64);
        match self.sort {
            Sort::Jobs => (jobs, 0, name),
            Sort::Name => (0, 0, name),
            Sort::Figure(row) => (TUBE[row].value(tube).number(), jobs, name),
        }
    }

    fn order(&self, a: (u64, u64, &str), b: (u64, u64, &str)) -> Ordering {
        let names = a.2.cmp(b.2);
        let order = if self.sort == Sort::Name { names } else { a.0.cmp(&b.0) };
        let order = if self.is_ascending { order } else { order.reverse() };
        order.then(b.1.cmp(&a.1)).then(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::queue::{JobCounts, Queue};

    #[test]
    fn names_are_compared_without_their_case() {
        let mut query = Query::default();
        assert!(query.filter_by("Ai"));
        assert!(query.wants("MAIL") && query.wants("mail") && !query.wants("milk"));
        assert!(query.filter_by(""));
        assert!(query.wants("milk"));
    }

    #[test]
    fn patterns_match_whole_names() {
        let mut query = Query::default();
        assert!(query.filter_by(&"*".repeat(MAX_PATTERN_BYTES)));
        assert!(!query.filter_by(&"*".repeat(MAX_PATTERN_BYTES + 1)), "a longer pattern would take long");
        for (pattern, name, is_match) in [
            ("*", "mail", true),
            ("m*l", "mail", true),
            ("M?IL", "mail", true),
            ("mail*", "mail", true),
            ("*a*l*", "mail", true),
            ("a*", "mail", false),
            ("m?l", "mail", false),
            ("*aab", "aaaab", true),
            ("*x", "mail", false),
            ("?", "", false),
        ] {
            assert!(query.filter_by(pattern));
            assert_eq!(query.wants(name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn jobs_of_every_state_count_and_decide_between_equal_tubes() {
        let queue = Queue::default();
        let tube = |jobs| TubeView { jobs, ..queue.tubes_from(0, Timestamp(1)).next().unwrap() };
        let none = JobCounts::default();
        for one in [
            JobCounts { ready: 1, ..none },
            JobCounts { reserved: 1, ..none },
            JobCounts { delayed: 1, ..none },
            JobCounts { buried: 1, ..none },
        ] {
            let by_watching = |is_ascending| {
                let mut query = Query { is_ascending, ..Query::default() };
                assert!(query.sort_by("current-watching"));
                query
            };
            for query in [Query::default(), by_watching(false), by_watching(true)] {
                let order = query.compare(&tube(one), &tube(none));
                assert_eq!(order, Ordering::Less, "{query:?}: {one:?}");
            }
        }
    }
}
