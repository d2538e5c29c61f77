//! The list of tubes.
//!
//! Owns: its JSON, and the text of its cursors.

use super::problem::Problem;
use super::url::QueryParameters;
use super::write::{close_page, write_tubes};
use crate::http::rendering::{Rendering, ResponseFormat};
use crate::http::snapshot::{Snapshot, TubeChoice};
use crate::http::tube_query::{MAX_PATTERN_BYTES, Query, Rank};
use crate::http::{Sources, put};
use crate::tube_name::TubeName;

/// Tubes on a page, unless the request has a limit.
const DEFAULT_LIMIT: usize = 100;
/// The maximum number of tubes on a page: they can be sorted in a few hundred microseconds.
const MAX_LIMIT: usize = 500;

/// The format of the list.
#[derive(Debug)]
pub(crate) struct TubeList;

/// The page for the query; nothing is rendered yet.
pub(crate) fn list(
    parameters: &mut QueryParameters,
    sources: &Sources<'_>,
) -> Result<Rendering<TubeList>, Problem> {
    let limit = parameters.limit(DEFAULT_LIMIT, MAX_LIMIT)?;
    let mut query = Query::default();
    if let Some(key) = parameters.take("sort")
        && !query.sort_by(&key)
    {
        return Err(Problem::bad("sort: expected name, jobs, or a key of stats-tube that is a number"));
    }
    match parameters.take("order").as_deref() {
        None | Some("descending") => {}
        Some("ascending") => query.ascend(),
        Some(_) => return Err(Problem::bad("order: expected ascending or descending")),
    }
    if !query.filter_by(&parameters.take("search").unwrap_or_default()) {
        let expected = format!("search: expected a text, or a pattern of at most {MAX_PATTERN_BYTES} bytes");
        return Err(Problem::bad(expected));
    }
    if let Some(rank) = parameters.cursor(rank)? {
        query.start_after(rank);
    }
    Ok(Rendering::new(TubeChoice::First(limit, query), sources))
}

/// The rank in a cursor: two numbers and a name.
fn rank(cursor: &str) -> Option<Rank> {
    let mut parts = cursor.splitn(3, '~');
    let (value, jobs) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Rank { value, jobs, name: TubeName::parse(parts.next()?.as_bytes())? })
}

impl ResponseFormat for TubeList {
    type Position = usize;

    fn write_server(sources: &Sources<'_>, snapshot: &Snapshot, out: &mut String) {
        let all = sources.server.queue.figures().tubes;
        put(out, format_args!("{{\"total\":{all},\"matched\":{},\"tubes\":[", snapshot.matched));
    }

    fn write_tubes(snapshot: &Snapshot, first: usize, out: &mut String) -> Option<usize> {
        if let Some(next) = write_tubes(snapshot, first, out) {
            return Some(next);
        }
        let last = snapshot.query().zip(snapshot.tubes().last()).filter(|_| snapshot.omitted > 0);
        let next = last.map(|(query, tube)| {
            let Rank { value, jobs, name } = query.rank(tube);
            format!("{value}~{jobs}~{name}")
        });
        close_page(&next, out);
        None
    }
}
