//! `jobs`, `job` and `peek`: show jobs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use beanstalk_client::{JobInfo, JobState, Tag};
use serde_json::{Value, json};

use crate::cli::{JobsArguments, PeekArguments};
use crate::failure::{Failure, Result};
use crate::listing;
use crate::output::{self, Output, age, pairs, say, table};
use crate::server::Server;

/// How many rows are formatted together: their columns have the width that the longest cell needs.
const ROWS: usize = 500;

const HEADER: [&str; 13] = [
    "ID", "TUBE", "STATE", "TAGS", "PRI", "AGE", "LEFT", "TTR", "BYTES", "RESERVES", "RELEASES", "TIMEOUTS",
    "BURIES",
];

/// Prints the jobs of tubes that the filter matches.
pub fn list(server: &mut Server, arguments: &JobsArguments, out: &mut Output) -> Result {
    let filter = arguments.filter.of(&arguments.tubes);
    let limit = arguments.limit.unwrap_or(usize::MAX);
    // Without list-jobs, jobs come in the order of their ids and are sorted before they are printed.
    let in_order = server.has("list-jobs");
    let (mut printed, mut kept) = (0, Vec::new());
    listing::jobs(server, &filter, false, &mut |found| {
        kept.extend(found.into_iter().map(|found| found.info));
        if !in_order {
            return Ok(true);
        }
        kept.truncate(limit - printed);
        // Short pages make one table together; a long list is printed as it arrives.
        if kept.len() >= ROWS {
            print(&kept, printed == 0, out)?;
            printed += kept.len();
            kept.clear();
        }
        Ok(printed + kept.len() < limit)
    })?;
    if !in_order {
        sort(&mut kept);
        kept.truncate(limit);
    }
    if printed == 0 && kept.is_empty() {
        return Err(Failure::NothingMatched("no job matches".to_owned()));
    }
    print(&kept, printed == 0, out)
}

/// Sorts by tube and state, and then in the order in which the jobs would be served. C does not show the order of
/// burial, so buried jobs are sorted by id.
pub fn sort(jobs: &mut [JobInfo]) {
    let key = |job: &JobInfo| match job.state {
        JobState::Ready => (u64::from(job.pri), job.id),
        JobState::Delayed | JobState::Reserved => (job.time_left, job.id),
        JobState::Buried => (0, job.id),
    };
    jobs.sort_by(|one, other| (&one.tube, one.state, key(one)).cmp(&(&other.tube, other.state, key(other))));
}

fn print(jobs: &[JobInfo], with_header: bool, out: &mut Output) -> Result {
    if out.is_json() {
        return jobs.iter().try_for_each(|info| out.value(&output::job(info)));
    }
    if jobs.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = jobs.iter().map(row).collect();
    out.lines(&table(&HEADER, 4, &rows)[usize::from(!with_header)..])
}

fn row(job: &JobInfo) -> Vec<String> {
    let tags: Vec<String> = job.tags.iter().map(Tag::to_string).collect();
    let state = if job.held { "held" } else { job.state.as_str() };
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    vec![
        job.id.to_string(),
        job.tube.clone(),
        state.to_owned(),
        or_dash(tags.join(" ")),
        job.pri.to_string(),
        age(job.age),
        if job.time_left == 0 { "-".to_owned() } else { age(job.time_left) },
        age(job.ttr),
        job.bytes.map_or("-".to_owned(), |bytes| bytes.to_string()),
        job.reserves.to_string(),
        job.releases.to_string(),
        job.timeouts.to_string(),
        job.buries.to_string(),
    ]
}

/// Prints the counters of jobs.
pub fn show(server: &mut Server, ids: &[u64], out: &mut Output) -> Result {
    let infos = server.job_infos(ids.iter().copied())?;
    let mut missing = Vec::new();
    for (id, info) in ids.iter().zip(infos) {
        let Some(info) = info else {
            missing.push(*id);
            continue;
        };
        let value = output::job(&info);
        if out.is_json() {
            out.value(&value)?;
            continue;
        }
        let keys = value.as_object().into_iter().flatten();
        out.lines(&pairs(keys.map(|(key, value)| (key.clone(), plain(value)))))?;
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::no_jobs(&missing)) }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Prints a body.
pub fn peek(server: &mut Server, arguments: &PeekArguments, out: &mut Output) -> Result {
    let peeked = match (arguments.id, arguments.next) {
        (Some(id), _) => server.client.peek(id),
        (None, Some(JobState::Reserved)) if !server.has("peek-reserved") => {
            return Err(Failure::Refused(
                "this server cannot show reserved jobs: it has no peek-reserved".to_owned(),
            ));
        }
        (None, next) => {
            server.client.use_tube(&arguments.tube)?;
            server.client.peek_next(next.unwrap_or(JobState::Ready))
        }
    };
    let job = peeked.map_err(|error| match arguments.id {
        Some(id) if error.is_not_found() => Failure::no_jobs(&[id]),
        None if error.is_not_found() => Failure::NothingMatched("there is no such job".to_owned()),
        _ => Failure::from(error),
    })?;
    if out.is_json() {
        return out.value(&with_body(json!({ "id": job.id }), &job.body));
    }
    if arguments.pretty {
        match serde_json::from_slice::<Value>(&job.body) {
            Ok(value) => return out.json_line(&format!("{value:#}")),
            Err(_) => say("the body is not JSON and is printed unchanged"),
        }
    }
    out.body(&job.body)
}

/// Adds the body to the object: as text in `body` if it is UTF-8, otherwise in `body_base64`.
pub fn with_body(mut object: Value, body: &[u8]) -> Value {
    match std::str::from_utf8(body) {
        Ok(text) => object["body"] = json!(text),
        Err(_) => object["body_base64"] = json!(STANDARD.encode(body)),
    }
    object
}
