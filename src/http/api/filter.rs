//! The filter of jobs in a request: in the query of a list or a count, or in the JSON of an order.
//!
//! Owns: the keys of the filter, and the words of its values.

use super::problem::Problem;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::number::plain_u64;
use crate::orders::selection::{AsOf, Filter, MAX_CONTAINED_BYTES};
use crate::tags::TagFilter;

/// The key of the instant at which jobs were counted.
pub(crate) const AS_OF: &str = "as_of";

/// The fields of a request from which a filter is read. Each is taken once; `None` if the request does not have it.
pub(crate) trait FilterFields {
    /// A text.
    fn text(&mut self, key: &str) -> Result<Option<String>, Problem>;
    /// A whole number of 32 bits.
    fn number(&mut self, key: &str) -> Result<Option<u32>, Problem>;
    /// A whole number of 64 bits.
    fn long(&mut self, key: &str) -> Result<Option<u64>, Problem>;
    /// True or false.
    fn flag(&mut self, key: &str) -> Result<Option<bool>, Problem>;
}

/// The filter for jobs that existed at this instant.
pub(crate) fn filter(fields: &mut impl FilterFields, as_of: AsOf) -> Result<Filter, Problem> {
    Ok(Filter {
        as_of,
        older_than_s: fields.long("older_than")?,
        younger_than_s: fields.long("younger_than")?,
        min_priority: fields.number("min_priority")?,
        max_priority: fields.number("max_priority")?,
        tag: tag(fields.text("tag")?)?,
        is_dead: fields.flag("dead")?.unwrap_or(false),
        contains: contained(fields.text("contains")?)?,
    })
}

/// The state with this name.
pub(crate) fn state(name: &str) -> Result<JobState, Problem> {
    JobState::parse(name.as_bytes())
        .ok_or_else(|| Problem::bad("state: expected ready, reserved, delayed or buried"))
}

/// The text that a body must contain.
fn contained(text: Option<String>) -> Result<Option<Box<str>>, Problem> {
    match text {
        Some(text) if text.len() > MAX_CONTAINED_BYTES => {
            Err(Problem::bad(format!("contains: expected at most {MAX_CONTAINED_BYTES} bytes")))
        }
        text => Ok(text.filter(|text| !text.is_empty()).map(String::into_boxed_str)),
    }
}

/// The filter by a tag.
fn tag(text: Option<String>) -> Result<Option<TagFilter>, Problem> {
    let wrong = || {
        Problem::bad("tag: expected idp, con, grp, aft or trc, each alone or with a name (grp:rows), or exp")
    };
    text.filter(|text| !text.is_empty()).map(|text| TagFilter::parse(&text).ok_or_else(wrong)).transpose()
}

/// The text of the instant at which this run of the server counted.
pub(crate) fn as_of_text(AsOf { next_id, at }: AsOf, instance: &str) -> String {
    format!("{}-{}-{instance}", next_id.0, at.0)
}

/// The instant from the response to a count. Another run of the server may have given its ids to other jobs, and may
/// have had another clock: its counts are stale.
pub(crate) fn as_of(text: &str, instance: &str) -> Result<AsOf, Problem> {
    let parts = || {
        let (next_id, rest) = text.split_once('-')?;
        let (at, counted_by) = rest.split_once('-')?;
        Some((AsOf { next_id: JobId(plain_u64(next_id)?), at: Timestamp(plain_u64(at)?) }, counted_by))
    };
    let (as_of, counted_by) = parts().ok_or_else(|| Problem::bad("as_of: expected the one of a count"))?;
    if counted_by == instance { Ok(as_of) } else { Err(Problem::stale()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_another_run_is_stale() {
        let counted = AsOf { next_id: JobId(6), at: Timestamp(7) };
        let text = as_of_text(counted, "a1");
        assert_eq!(as_of(&text, "a1").ok(), Some(counted));
        for (text, code) in [(text.as_str(), "stale"), ("6-7", "bad-request"), ("6-x-b2", "bad-request")] {
            let problem = as_of(text, "b2").unwrap_err();
            assert!(problem.json().contains(code), "{text}: {}", problem.json());
        }
    }
}
