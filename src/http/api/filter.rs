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

/// Two numbers with a hyphen between them.
fn pair(text: &str) -> Option<(u64, u64)> {
    let (first, second) = text.split_once('-')?;
    Some((plain_u64(first)?, plain_u64(second)?))
}

/// The instant from a count's response.
pub(crate) fn as_of(text: &str) -> Result<AsOf, Problem> {
    let (id, at) = pair(text).ok_or_else(|| Problem::bad("as_of: expected the one of a count"))?;
    Ok(AsOf { next_id: JobId(id), at: Timestamp(at) })
}
