//! The query of the page: in which order it shows the tubes, and which text their names contain.
//!
//! Owns: how the query of `page.json` is read, and which tubes come first. Driven by the snapshot, which keeps the
//! first tubes.

use std::cmp::Ordering;

use crate::queue::{JobCounts, TubeView};
use crate::stats::{TUBE, Value};

/// Which tubes the page shows, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    sort: Sort,
    /// Whether the smallest comes first.
    ascending: bool,
    /// The text that the names contain, in lower case.
    filter: String,
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
                "sort" if value == "name" => query.sort = Sort::Name,
                "sort" => {
                    let row = TUBE.iter().position(|figure| figure.key == value);
                    query.sort = row.map_or(Sort::Jobs, Sort::Figure);
                }
                "up" => query.ascending = value == "true",
                "filter" => query.filter = decode(value).to_ascii_lowercase(),
                _ => {}
            }
        }
        query
    }

    /// Whether a tube called `name` is asked for.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || name.to_ascii_lowercase().contains(&self.filter)
    }

    /// The order of two tubes. If they are equal, the one with more jobs comes first.
    #[must_use]
    pub fn compare(&self, a: &TubeView, b: &TubeView) -> Ordering {
        let order = match self.sort {
            Sort::Jobs => jobs(a).cmp(&jobs(b)),
            Sort::Name => a.name.as_str().cmp(b.name.as_str()),
            Sort::Figure(row) => number(a, row).cmp(&number(b, row)),
        };
        let order = if self.ascending { order } else { order.reverse() };
        order.then_with(|| jobs(b).cmp(&jobs(a)))
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
        assert_eq!(query, Query { sort: Sort::Figure(buried), ascending: true, filter: "mail/a%2".into() });
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
