//! The query of the page: in which order it shows the tubes, and which text their names contain.
//!
//! Owns: how the query of `page.json` is read, which tubes are meant, and which come first. Driven by the snapshot, which keeps the
//! first tubes.

use std::cmp::Ordering;

use crate::queue::{JobCounts, TubeView};
use crate::stats::{Read, TUBE, Value};
use crate::tube_name::TubeName;

/// The longest pattern, in bytes: to compare it with a long name takes some thousand steps at worst.
const MAX_PATTERN_BYTES: usize = 64;

/// Which tubes the page shows, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    sort: Sort,
    /// Whether the smallest comes first.
    ascending: bool,
    /// The text that the names contain, in lower case, or a pattern for all of the name if it has a `*` or `?`.
    filter: String,
    /// Only tubes behind this place are wanted.
    after: Option<Rank>,
}

/// The place of a tube in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// What the tubes are sorted by, if that is a number.
    pub value: u64,
    /// The number of jobs, if the tubes are not sorted by name.
    pub jobs: u64,
    /// The name.
    pub name: TubeName,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    /// By the number of jobs, whatever their state.
    #[default]
    Jobs,
    Name,
    /// By the figure in this row of the table.
    Figure(usize),
}

impl Query {
    /// Reads the text behind the `?`: `sort=KEY`, a key of `stats-tube` or `name`; `up=true`; `filter=TEXT`. Other
    /// parts are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut query = Self::default();
        for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "sort" => {
                    query.sort_by(value);
                }
                "up" => query.ascending = value == "true",
                "filter" => query.filter_by(&decode(value)),
                _ => {}
            }
        }
        query
    }

    /// Sorts by `name`, by `jobs`, or by a figure of a tube that is a number. Returns whether the key is one of them.
    pub fn sort_by(&mut self, key: &str) -> bool {
        let is_number = |read: &Read<_>| !matches!(read, Read::Text(_) | Read::Word(_));
        let row = TUBE.iter().position(|figure| figure.key == key && is_number(&figure.read));
        self.sort = match key {
            "name" => Sort::Name,
            _ => row.map_or(Sort::Jobs, Sort::Figure),
        };
        row.is_some() || matches!(key, "name" | "jobs")
    }

    /// The smallest comes first.
    pub fn ascend(&mut self) {
        self.ascending = true;
    }

    /// Only tubes whose names contain the text, or match the pattern, are wanted. Upper and lower case are the same. A
    /// pattern of more than `MAX_PATTERN_BYTES` matches nothing.
    pub fn filter_by(&mut self, text: &str) {
        self.filter = text.to_ascii_lowercase();
        if self.has_pattern() && self.filter.len() > MAX_PATTERN_BYTES {
            // No name is so long that it has this text.
            self.filter = "x".repeat(TubeName::MAX_BYTES + 1);
        }
    }

    /// Whether names are compared with a pattern, which takes longer than to look for a text.
    #[must_use]
    pub fn has_pattern(&self) -> bool {
        self.filter.contains(['*', '?'])
    }

    /// Only tubes behind this place are wanted.
    pub fn start_after(&mut self, rank: Rank) {
        self.after = Some(rank);
    }

    /// Whether a tube called `name` is asked for.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        let name = || name.to_ascii_lowercase();
        match self.filter.as_str() {
            "" => true,
            pattern if self.has_pattern() => matches(pattern.as_bytes(), name().as_bytes()),
            text => name().contains(text),
        }
    }

    /// Whether the tube comes behind the place from which on tubes are wanted.
    #[must_use]
    pub fn is_ahead(&self, tube: &TubeView) -> bool {
        self.after.as_ref().is_none_or(|Rank { value, jobs, name }| {
            self.order(self.parts(tube), (*value, *jobs, name.as_str())) == Ordering::Greater
        })
    }

    /// The place of a tube in the order.
    #[must_use]
    pub fn rank(&self, tube: &TubeView) -> Rank {
        let (value, jobs, _) = self.parts(tube);
        Rank { value, jobs, name: tube.name.clone() }
    }

    /// The order of two tubes. If they are equal, the one with more jobs comes first, and then the one with the
    /// smaller name.
    #[must_use]
    pub fn compare(&self, a: &TubeView, b: &TubeView) -> Ordering {
        self.order(self.parts(a), self.parts(b))
    }

    /// What decides the order.
    fn parts<'t>(&self, tube: &'t TubeView) -> (u64, u64, &'t str) {
        let name = tube.name.as_str();
        match self.sort {
            Sort::Jobs => (jobs(tube), 0, name),
            Sort::Name => (0, 0, name),
            Sort::Figure(row) => (number(tube, row), jobs(tube), name),
        }
    }

    fn order(&self, a: (u64, u64, &str), b: (u64, u64, &str)) -> Ordering {
        let names = a.2.cmp(b.2);
        let order = if self.sort == Sort::Name { names } else { a.0.cmp(&b.0) };
        let order = if self.ascending { order } else { order.reverse() };
        order.then(b.1.cmp(&a.1)).then(names)
    }
}

/// Jobs in the tube, whatever their state.
fn jobs(tube: &TubeView) -> u64 {
    let JobCounts { urgent: _, ready, reserved, delayed, buried } = tube.jobs;
    ready + reserved + delayed + buried
}

/// The number in a row of the table.
fn number(tube: &TubeView, row: usize) -> u64 {
    match TUBE[row].value(tube) {
        Value::Number(number) => number,
        _ => 0,
    }
}

/// Whether all of `name` matches the pattern, in which `*` stands for any bytes and `?` for one. It takes at most as
/// many steps as the product of the two lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut retry = None;
    while position < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, position));
            }
            Some(&byte) if byte == b'?' || byte == name[position] => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((behind_star, from)) = retry else { return false };
                (at, position) = (behind_star, from + 1);
                retry = Some((behind_star, from + 1));
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Decodes the escapes of URLs in `text`. The names of tubes are ASCII, so other bytes match no name.
fn decode(text: &str) -> String {
    let mut decoded = String::new();
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        let escaped = rest.as_slice().get(..2).filter(|_| byte == b'%');
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        if let Some(value) = value {
            decoded.push(char::from(value));
            rest.nth(1);
        } else {
            decoded.push(char::from(if byte == b'+' { b' ' } else { byte }));
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::queue::{PoisonLimits, Queue};

    #[test]
    fn a_query_is_read_and_nonsense_is_passed_over() {
        let buried = TUBE.iter().position(|figure| figure.key == "current-jobs-buried").unwrap();
        let query = Query::parse("sort=current-jobs-buried&up=true&filter=Mail%2FA%2");
        assert_eq!(
            query,
            Query { sort: Sort::Figure(buried), ascending: true, filter: "mail/a%2".into(), after: None }
        );
        assert_eq!(Query::parse("sort=name&up=1").sort, Sort::Name);
        for nothing in ["", "sort", "sort=nonsense", "&=&", "up=false"] {
            assert_eq!(Query::parse(nothing), Query::default(), "{nothing}");
        }
    }

    #[test]
    fn names_are_compared_without_their_case() {
        let query = Query::parse("filter=ai");
        assert!(query.wants("MAIL") && query.wants("mail") && !query.wants("milk"));
        assert_eq!(decode("a+b%2Bc"), "a b+c");
    }

    #[test]
    fn patterns_match_whole_names() {
        let mut query = Query::default();
        query.filter_by(&"*".repeat(MAX_PATTERN_BYTES + 1));
        assert!(!query.wants("mail"), "a longer pattern would take long");
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
            query.filter_by(pattern);
            assert_eq!(query.wants(name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn jobs_of_every_state_count_and_decide_between_equal_tubes() {
        let queue = Queue::new(PoisonLimits::default());
        let tube = |jobs| TubeView { jobs, ..queue.tubes_from(0, Timestamp(1)).next().unwrap() };
        let none = JobCounts::default();
        for one in [
            JobCounts { ready: 1, ..none },
            JobCounts { reserved: 1, ..none },
            JobCounts { delayed: 1, ..none },
            JobCounts { buried: 1, ..none },
        ] {
            for query in ["", "sort=current-watching", "sort=current-watching&up=true"] {
                let order = Query::parse(query).compare(&tube(one), &tube(none));
                assert_eq!(order, Ordering::Less, "{query}: {one:?}");
            }
        }
    }
}
