//! Lists and counts of a tube's jobs, rendered in slices.
//!
//! Owns: the parameters of both, and the limit on the scan for one request.

use super::bodies::tube_name;
use super::filter::{as_of_text, filter, state};
use super::problem::Problem;
use super::url::QueryParameters;
use super::write::JobObject;
use crate::clock::Timestamp;
use crate::http::rendering::SlicedText;
use crate::http::{SLICE_BYTES, Sources, put};
use crate::json;
use crate::orders::selection::{AsOf, JobWalk, WalkBudget, WalkStep};
use crate::protocol::JobCursor;
use crate::queue::{self, Queue};
use crate::stats::StatsJob;

/// Jobs on a page, unless the request has a limit.
const DEFAULT_LIMIT: usize = 50;
/// The maximum number of jobs on a page.
const MAX_LIMIT: usize = 1000;
/// The maximum number of bytes of each body on a page: enough to recognise a job.
const MAX_BODY_BYTES: usize = 256;
/// How many jobs are examined for a page, which takes about a second. The cursor of the response continues the search,
/// so a client can stop between two requests.
const MAX_PROBES: u64 = 500_000;

/// How long a request can wait for the end of a job, in seconds: less than proxies and browsers allow.
pub(super) const MAX_WAIT_S: u32 = 60;

/// A page of jobs that is being rendered.
#[derive(Debug)]
pub(crate) struct JobList {
    /// The text before the first job, until it is rendered.
    opening: &'static str,
    walk: JobWalk,
    limit: usize,
    /// How many bytes of each body the page has; `None` if it has no bodies.
    body_bytes: Option<usize>,
    found: usize,
}

/// A count of the jobs that match a filter, in progress.
#[derive(Debug)]
pub(crate) struct JobCount {
    walk: JobWalk,
    found: u64,
}

/// A job as the API shows it. A user of the API may know the names of sessions.
pub(crate) fn job_view<'q>(
    queue: &'q Queue,
    job: queue::JobView<'q>,
    waits_for: &'q str,
    now: Timestamp,
) -> StatsJob<'q> {
    let session = queue.session_of_job(job.record.id).map_or("", |key| &key.name);
    let dead_from = job.dead_from();
    StatsJob { job, session, dead_from, waits_for, file: 0, now }
}

/// A scan of the jobs that match the query, in the tube with this name, after the cursor.
fn walk(
    tube: &str,
    parameters: &mut QueryParameters,
    takes_cursor: bool,
    sources: &Sources<'_>,
) -> Result<JobWalk, Problem> {
    let queue = sources.server.queue;
    let name = tube_name(tube)?;
    if queue.tube_name(name.as_str()).is_none() {
        return Err(Problem::not_found("there is no such tube"));
    }
    let state = state(&parameters.take("state").ok_or_else(|| Problem::bad("state is missing"))?)?;
    let after = if takes_cursor {
        parameters.cursor(|text| Some(JobCursor::parse(text.as_bytes(), state)?.position))?
    } else {
        None
    };
    let as_of = AsOf { next_id: queue.next_id(), at: sources.server.now };
    let filter = filter(parameters, as_of)?;
    Ok(JobWalk::new(name, state, filter, after))
}

impl JobList {
    /// The page for the query; nothing is rendered yet.
    pub(crate) fn new(
        tube: &str,
        parameters: &mut QueryParameters,
        sources: &Sources<'_>,
    ) -> Result<Self, Problem> {
        let limit = parameters.limit(DEFAULT_LIMIT, MAX_LIMIT)?;
        let body_bytes = parameters.number_in(0..=MAX_BODY_BYTES, "body_bytes")?;
        let walk = walk(tube, parameters, true, sources)?;
        Ok(Self { opening: "{\"jobs\":[", walk, limit, body_bytes, found: 0 })
    }
}

impl SlicedText for JobList {
    fn render(&mut self, sources: &Sources<'_>, out: &mut String) -> bool {
        out.push_str(std::mem::take(&mut self.opening));
        let (queue, now) = (sources.server.queue, sources.server.now);
        let mut budget = WalkBudget::TURN;
        while self.found < self.limit && self.walk.probed() < MAX_PROBES {
            if out.len() >= SLICE_BYTES {
                return false;
            }
            match self.walk.next(queue, &mut budget) {
                WalkStep::Unfinished => return false,
                WalkStep::Done => break,
                WalkStep::Job(id) => {
                    let Some(job) = queue.job(id) else { continue };
                    out.push_str(if self.found == 0 { "" } else { "," });
                    self.found += 1;
                    let (waits_for, is_kept) = (&*queue.waits_for(id, now), queue.is_kept_for_grace(id));
                    let view = job_view(queue, job, waits_for, now);
                    json::push(out, &JobObject { view: &view, is_kept, shown_bytes: self.body_bytes });
                }
            }
        }
        let next = self.walk.cursor().filter(|_| self.walk.may_find_more()).map(|cursor| cursor.to_string());
        put(out, format_args!("],\"examined\":{},\"next\":", self.walk.probed()));
        json::push(out, &next);
        out.push_str("}\n");
        true
    }
}

impl JobCount {
    /// The count for the query; nothing is counted yet.
    pub(crate) fn new(
        tube: &str,
        parameters: &mut QueryParameters,
        sources: &Sources<'_>,
    ) -> Result<Self, Problem> {
        Ok(Self { walk: walk(tube, parameters, false, sources)?, found: 0 })
    }
}

impl SlicedText for JobCount {
    fn render(&mut self, sources: &Sources<'_>, out: &mut String) -> bool {
        let mut budget = WalkBudget::TURN;
        loop {
            match self.walk.next(sources.server.queue, &mut budget) {
                WalkStep::Unfinished => return false,
                WalkStep::Job(_) => self.found += 1,
                WalkStep::Done => break,
            }
        }
        let as_of = as_of_text(self.walk.filter().as_of, &sources.server.info.instance);
        put(out, format_args!("{{\"count\":{},\"as_of\":\"{as_of}\"}}\n", self.found));
        true
    }
}
