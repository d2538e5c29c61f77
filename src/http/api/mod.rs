//! The API under `/api/v1/`: its requests, and the format of orders.
//!
//! Owns: the paths. An answer is complete at once, or it is rendered in slices, or it is an order for the server. Never
//! changes anything itself. Tests compare [`ROUTES`] with the paths that answer, and with `doc/openapi.yaml`.

mod clients;
mod jobs;
mod orders;
mod problem;
mod tubes;
mod url;
pub(crate) mod write;

pub(crate) use self::problem::Problem;

use serde_core::ser::{Serialize, SerializeMap, Serializer};

use self::clients::ClientList;
use self::jobs::{JobCount, JobList, MAX_WAIT_S, job_view};
use self::orders::{UnreadKeys, tube_name};
use self::url::QueryParameters;
use self::write::{JobAndBody, TaskNow, figures};
use super::Sources;
use super::access::Access;
use super::rendering::SlicedText;
use super::request::{HttpRequest, Method};
use crate::job::{self, JobId, JobState};
use crate::json::{self, Object};
use crate::orders::{Obstacle, Order, TaskId, Tasks};
use crate::stats::{SERVER, TUBE};
use crate::{percent, queue};

/// The prefix of every path of the API.
pub(crate) const ROOT: &str = "/api/v1/";

/// The maximum size of a request's body, in bytes: enough for a job's body of 65,535 bytes in any encoding, or for the
/// ids of ten thousand jobs, and small enough to parse in a few hundred microseconds.
pub(crate) const MAX_BODY_BYTES: u64 = 256 * 1024;

/// Every method and path.
#[cfg(test)]
pub(crate) const ROUTES: &[(&str, &str)] = &[
    ("get", "/api/v1/server"),
    ("post", "/api/v1/server/actions"),
    ("get", "/api/v1/tubes"),
    ("get", "/api/v1/tubes/{tube}"),
    ("post", "/api/v1/tubes/{tube}/actions"),
    ("get", "/api/v1/tubes/{tube}/jobs"),
    ("post", "/api/v1/tubes/{tube}/jobs"),
    ("get", "/api/v1/tubes/{tube}/jobs/count"),
    ("post", "/api/v1/jobs/actions"),
    ("get", "/api/v1/jobs/{job}"),
    ("get", "/api/v1/jobs/{job}/body"),
    ("post", "/api/v1/jobs/{job}/actions"),
    ("get", "/api/v1/clients"),
    ("post", "/api/v1/clients/{client}/actions"),
    ("get", "/api/v1/tasks"),
    ("get", "/api/v1/tasks/{task}"),
    ("post", "/api/v1/tasks/{task}/stop"),
];

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum ApiAnswer {
    /// This JSON.
    Json(String),
    /// This job, once it has ended or is buried, or after this many seconds.
    Follow(JobId, u32),
    /// This JSON, in slices.
    Stream(Box<dyn SlicedText>),
    /// The bytes of a job's body.
    Body(JobId, job::Body),
    /// An order for the server.
    Order(Order),
    /// The request to stop a task.
    Stop(TaskId),
}

/// Answers a request that has passed the access rules. `body` is empty if the request has none.
///
/// # Errors
/// The reason why there is no answer.
pub(crate) fn answer(
    request: &HttpRequest,
    body: &[u8],
    access: &Access,
    tasks: &Tasks,
    sources: &Sources<'_>,
) -> Result<ApiAnswer, Problem> {
    let nothing = || Problem::not_found("there is nothing here; /openapi.yaml has all paths");
    let rest = request.path.strip_prefix(ROOT).ok_or_else(nothing)?;
    let decoded: Option<Vec<String>> = rest.split('/').map(percent::decode).collect();
    let decoded = decoded.ok_or_else(|| Problem::bad("the path has a broken escape"))?;
    let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let (reads, changes) = match segments.as_slice() {
        ["jobs", "actions"]
        | ["server", "actions"]
        | ["jobs" | "tubes" | "clients", _, "actions"]
        | ["tasks", _, "stop"] => (false, true),
        ["tubes", _, "jobs"] => (true, true),
        _ => (true, false),
    };
    match request.method {
        Method::Get | Method::Head if reads => {
            read(&segments, request, access, tasks, sources).unwrap_or_else(|| Err(nothing()))
        }
        Method::Post if changes => match segments.as_slice() {
            ["tasks", id, "stop"] => task_id(id, tasks).map(ApiAnswer::Stop),
            segments => order(segments, request, body, sources)
                .unwrap_or_else(|| Err(nothing()))
                .map(ApiAnswer::Order),
        },
        Method::Get | Method::Head | Method::Post | Method::Other => {
            Err(Problem::method(match (reads, changes) {
                (true, true) => "Allow: GET, HEAD, POST\r\n",
                (true, false) => "Allow: GET, HEAD\r\n",
                _ => "Allow: POST\r\n",
            }))
        }
    }
}

/// An answer that only reads; `None` if the API does not have this path.
fn read(
    segments: &[&str],
    request: &HttpRequest,
    access: &Access,
    tasks: &Tasks,
    sources: &Sources<'_>,
) -> Option<Result<ApiAnswer, Problem>> {
    let mut parameters = match QueryParameters::parse(&request.query) {
        Ok(parameters) => parameters,
        Err(part) => return Some(Err(Problem::bad(format!("{part:?}: the query has a broken escape")))),
    };
    let now = sources.server.now;
    Some(match segments {
        ["server"] => Ok(ApiAnswer::Json(json::line(&ServerObject(access, sources)))),
        ["tubes"] => tubes::list(parameters, sources).map(stream),
        ["tubes", tube] => tube_figures(tube, sources).map(ApiAnswer::Json),
        ["tubes", tube, "jobs"] => JobList::new(tube, parameters, sources).map(stream),
        ["tubes", tube, "jobs", "count"] => JobCount::new(tube, parameters, sources).map(stream),
        ["jobs", id] => parameters.number_in(1..=MAX_WAIT_S, "wait").and_then(|wait| {
            let (id, job) = job(id, sources)?;
            match wait.filter(|_| job.record.state != JobState::Buried) {
                Some(seconds) => Ok(ApiAnswer::Follow(id, seconds)),
                None => job_now(id, sources).map(ApiAnswer::Json),
            }
        }),
        ["jobs", id, "body"] => job(id, sources).and_then(|(id, job)| {
            let body = job.body.to_owned().map_err(|_| Problem::from(Obstacle::NoRoom))?;
            Ok(ApiAnswer::Body(id, body))
        }),
        ["clients"] => ClientList::new(parameters).map(stream),
        ["tasks"] => {
            let tasks: Vec<_> = tasks.newest_first().map(|task| TaskNow(task, now)).collect();
            Ok(ApiAnswer::Json(json::line(&Object([("tasks", &tasks)]))))
        }
        ["tasks", id] => task_id(id, tasks).and_then(|id| {
            let task = tasks.get(id).ok_or_else(|| Problem::not_found("there is no such task"))?;
            Ok(ApiAnswer::Json(json::line(&TaskNow(task, now))))
        }),
        _ => return None,
    })
}

fn stream(text: impl SlicedText + 'static) -> ApiAnswer {
    ApiAnswer::Stream(Box::new(text))
}

/// The order in a request for a change; `None` if the API does not have this path.
fn order(
    segments: &[&str],
    request: &HttpRequest,
    body: &[u8],
    sources: &Sources<'_>,
) -> Option<Result<Order, Problem>> {
    let started_at = sources.server.info.started_at;
    let fields = || if request.is_json { UnreadKeys::parse(body) } else { Err(Problem::not_json()) };
    Some(match segments {
        ["server", "actions"] => fields().and_then(orders::on_server),
        ["tubes", tube, "actions"] => {
            tube_name(tube).and_then(|tube| orders::on_tube(tube, fields()?, started_at))
        }
        ["tubes", tube, "jobs"] => tube_name(tube).and_then(|tube| orders::put(tube, fields()?)),
        ["jobs", "actions"] => fields().and_then(orders::on_jobs),
        ["clients", id, "actions"] => {
            let id = number(id).ok_or_else(|| Problem::bad("expected the id of a client: a whole number"));
            id.and_then(|id| orders::on_client(id, fields()?))
        }
        ["jobs", id, "actions"] => job_id(id).and_then(|id| orders::on_job(id, fields()?)),
        _ => return None,
    })
}

/// The figures of the server.
struct ServerObject<'s, 'a>(&'s Access, &'s Sources<'a>);

impl Serialize for ServerObject<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(access, sources) = self;
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("stats", &figures(&SERVER, &sources.server))?;
        members.serialize_entry("read_only", &access.is_read_only)?;
        members.serialize_entry("history", &sources.history.at(sources.server.now))?;
        members.end()
    }
}

fn tube_figures(name: &str, sources: &Sources<'_>) -> Result<String, Problem> {
    let name = tube_name(name)?;
    let tube = sources.server.queue.tube(name.as_str(), sources.server.now);
    let tube = tube.ok_or_else(|| Problem::not_found("there is no such tube"))?;
    Ok(json::line(&figures(TUBE, &tube)))
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn job_id(text: &str) -> Result<JobId, Problem> {
    number(text).map(JobId).ok_or_else(|| Problem::bad("expected the id of a job: a whole number"))
}

fn job<'a>(id: &str, sources: &Sources<'a>) -> Result<(JobId, queue::JobView<'a>), Problem> {
    let id = job_id(id)?;
    let job = sources.server.queue.job(id).ok_or_else(no_job)?;
    Ok((id, job))
}

/// The job at this moment.
///
/// # Errors
/// If there is no such job.
pub(crate) fn job_now(id: JobId, sources: &Sources<'_>) -> Result<String, Problem> {
    let (queue, now) = (sources.server.queue, sources.server.now);
    let job = queue.job(id).ok_or_else(no_job)?;
    let (waits_for, is_kept) = (&*queue.waits_for(id, now), queue.is_kept_for_grace(id));
    let view = job_view(queue, job, waits_for, now);
    Ok(json::line(&JobAndBody { view: &view, is_kept }))
}

fn no_job() -> Problem {
    Problem::not_found("there is no such job")
}

fn task_id(text: &str, tasks: &Tasks) -> Result<TaskId, Problem> {
    let id =
        number(text).map(TaskId).ok_or_else(|| Problem::bad("expected the id of a task: a whole number"))?;
    tasks.get(id).map(|task| task.id).ok_or_else(|| Problem::not_found("there is no such task"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_exactly_the_paths_that_there_are() {
        let text = include_str!("../../../doc/openapi.yaml");
        let (_, paths) = text.split_once("\npaths:\n").unwrap();
        let (paths, _) = paths.split_once("\ncomponents:\n").unwrap();
        let (mut path, mut described) = ("", Vec::new());
        for line in paths.lines() {
            match line.trim_end_matches(':') {
                found if found.starts_with("  /") => path = found.trim(),
                method @ ("    get" | "    post") => described.push((method.trim(), path)),
                _ => {}
            }
        }
        assert_eq!(described, ROUTES);
    }
}
