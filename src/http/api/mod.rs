//! The API under `/api/v1/`: its requests, and the format of orders.
//!
//! Owns: the paths. An answer is complete at once, or it is rendered in slices, or it is an order for the server. Never
//! changes anything itself. A test compares [`ROUTES`] with `doc/openapi.yaml`.

mod bodies;
mod clients;
mod filter;
mod jobs;
mod problem;
mod tubes;
mod url;
pub(crate) mod write;

pub(crate) use self::problem::Problem;

use serde_core::ser::{Serialize, SerializeMap, Serializer};

use self::bodies::{UnreadKeys, tube_name};
use self::clients::ClientList;
use self::jobs::{JobCount, JobList, MAX_WAIT_S, job_view};
use self::url::QueryParameters;
use self::write::{JobAndBody, TaskNow, figures};
use super::Sources;
use super::rendering::SlicedText;
use super::request::{HttpRequest, Method};
use crate::job::{self, JobId, JobState};
use crate::json::{self, Object};
use crate::number::plain_u64;
use crate::orders::{Order, Task, TaskId, Tasks};
use crate::refusal::{ChangeRefusal, PutRefusal};
use crate::stats::{SERVER, TUBE};
use crate::{percent, queue};

/// The prefix of every path of the API.
pub(crate) const ROOT: &str = "/api/v1/";

/// The maximum size of a request's body, in bytes: enough for a job's body of 65,535 bytes, unless it is a text with
/// many characters that JSON writes as six others, or for the ids of ten thousand jobs, and small enough to parse in a
/// few hundred microseconds.
pub(crate) const MAX_BODY_BYTES: u64 = 256 * 1024;

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum ApiAnswer {
    /// A JSON text.
    Json(String),
    /// The job with this id, once it has ended or is buried, or after this many seconds.
    Follow(JobId, u32),
    /// A JSON text, in slices.
    Stream(Box<dyn SlicedText>),
    /// The bytes of a job's body.
    Body(JobId, job::Body),
    /// An order for the server.
    Order(Order),
    /// The request to stop a task.
    Stop(TaskId),
}

/// A request that has passed the access rules.
pub(crate) struct PermittedRequest<'r, 'a> {
    http: &'r HttpRequest,
    /// The answer takes the parameters that it knows; any other parameter is a mistake.
    parameters: &'r mut QueryParameters,
    /// Empty if the request has none.
    body: &'r [u8],
    sources: &'r Sources<'a>,
}

/// Answers a request. The text is the segment of its path where the route has a word in braces.
pub(crate) type Handler = fn(PermittedRequest<'_, '_>, &str) -> Result<ApiAnswer, Problem>;

/// Every method and path, and its handler. HEAD is answered where GET is.
#[rustfmt::skip]
pub(crate) const ROUTES: &[(Method, &str, Handler)] = &[
    (Method::Get, "server", |request, _| {
        Ok(ApiAnswer::Json(json::line(&ServerObject(request.sources))))
    }),
    (Method::Post, "server/actions", |request, _| bodies::on_server(request.fields()?).map(ApiAnswer::Order)),
    (Method::Get, "tubes", |request, _| tubes::list(request.parameters, request.sources).map(stream)),
    (Method::Get, "tubes/{tube}", |request, tube| tube_figures(tube, request.sources).map(ApiAnswer::Json)),
    (Method::Post, "tubes/{tube}/actions", |request, tube| {
        let instance = &request.sources.server.info.instance;
        bodies::on_tube(tube_name(tube)?, request.fields()?, instance).map(ApiAnswer::Order)
    }),
    (Method::Get, "tubes/{tube}/jobs", |request, tube| {
        JobList::new(tube, request.parameters, request.sources).map(stream)
    }),
    (Method::Post, "tubes/{tube}/jobs", |request, tube| {
        bodies::put(tube_name(tube)?, request.fields()?).map(ApiAnswer::Order)
    }),
    (Method::Get, "tubes/{tube}/jobs/count", |request, tube| {
        JobCount::new(tube, request.parameters, request.sources).map(stream)
    }),
    // Before the path with any other word in its place.
    (Method::Post, "jobs/actions", |request, _| bodies::on_jobs(None, request.fields()?).map(ApiAnswer::Order)),
    (Method::Get, "jobs/{job}", |request, id| {
        let wait = request.parameters.number_in(1..=MAX_WAIT_S, "wait")?;
        let (id, job) = job(id, request.sources)?;
        match wait.filter(|_| job.record.state != JobState::Buried) {
            Some(seconds) => Ok(ApiAnswer::Follow(id, seconds)),
            None => job_now(id, request.sources).map(ApiAnswer::Json),
        }
    }),
    (Method::Get, "jobs/{job}/body", |request, id| {
        let (id, job) = job(id, request.sources)?;
        let body = job.body.to_owned().map_err(|_| Problem::from(ChangeRefusal::from(PutRefusal::OutOfMemory)))?;
        Ok(ApiAnswer::Body(id, body))
    }),
    (Method::Post, "jobs/{job}/actions", |request, id| {
        bodies::on_jobs(Some(job_id(id)?), request.fields()?).map(ApiAnswer::Order)
    }),
    (Method::Get, "clients", |request, _| ClientList::new(request.parameters).map(stream)),
    (Method::Post, "clients/{client}/actions", |request, id| {
        let id = plain_u64(id).ok_or_else(|| Problem::bad("expected the id of a client: a whole number"))?;
        bodies::on_client(id, request.fields()?).map(ApiAnswer::Order)
    }),
    (Method::Get, "tasks", |request, _| {
        let tasks: Vec<_> =
            request.sources.tasks.newest_first().map(|task| TaskNow(task, request.sources.server.now)).collect();
        Ok(ApiAnswer::Json(json::line(&Object([("tasks", &tasks)]))))
    }),
    (Method::Get, "tasks/{task}", |request, id| {
        Ok(ApiAnswer::Json(json::line(&TaskNow(task(id, request.sources.tasks)?, request.sources.server.now))))
    }),
    (Method::Post, "tasks/{task}/stop", |request, id| Ok(ApiAnswer::Stop(task(id, request.sources.tasks)?.id))),
];

/// Answers a request that has passed the access rules. `body` is empty if the request has none.
///
/// # Errors
/// The reason why there is no answer.
pub(crate) fn answer(
    request: &HttpRequest,
    body: &[u8],
    sources: &Sources<'_>,
) -> Result<ApiAnswer, Problem> {
    let nothing = || Problem::not_found("there is nothing here; /openapi.yaml has all paths");
    let rest = request.path.strip_prefix(ROOT).ok_or_else(nothing)?;
    // Browsers resolve the segments `.` and `..`, even if they are escaped once, so the tubes with these names are
    // escaped twice. All else is decoded once, as by a proxy that decides about the path.
    let decode = |segment| {
        percent::decode(segment).map(|name| match name.as_str() {
            "%2E" => ".".to_owned(),
            "%2E%2E" => "..".to_owned(),
            _ => name,
        })
    };
    let segments: Option<Vec<String>> = rest.split('/').map(decode).collect();
    let segments = segments.ok_or_else(|| Problem::bad("the path has a broken escape"))?;
    let is_here = |path: &str| {
        let mut parts = path.split('/').zip(&segments);
        path.split('/').count() == segments.len()
            && parts.all(|(part, segment)| part.starts_with('{') || part == segment)
    };
    let (_, path, _) = ROUTES.iter().find(|(_, path, _)| is_here(path)).ok_or_else(nothing)?;
    let mut here = ROUTES.iter().filter(|(_, other, _)| other == path);
    let wanted = if request.method == Method::Head { Method::Get } else { request.method };
    let Some((.., answer)) = here.clone().find(|(method, ..)| *method == wanted) else {
        return Err(Problem::method(match (here.next(), here.next()) {
            (Some(_), Some(_)) => "Allow: GET, HEAD, POST\r\n",
            (Some((Method::Post, ..)), None) => "Allow: POST\r\n",
            (_, None) | (None, _) => "Allow: GET, HEAD\r\n",
        }));
    };
    let mut parameters = QueryParameters::parse(&request.query)
        .map_err(|part| Problem::bad(format!("{part:?}: the query has a broken escape")))?;
    let mut parts = path.split('/').zip(&segments);
    let segment = parts.find(|(part, _)| part.starts_with('{')).map_or("", |(_, segment)| segment);
    let permitted = PermittedRequest { http: request, parameters: &mut parameters, body, sources };
    let answer = answer(permitted, segment)?;
    parameters.end()?;
    Ok(answer)
}

impl PermittedRequest<'_, '_> {
    /// The members of the JSON in the body.
    fn fields(&self) -> Result<UnreadKeys, Problem> {
        if self.http.is_json { UnreadKeys::parse(self.body) } else { Err(Problem::not_json()) }
    }
}

fn stream(text: impl SlicedText + 'static) -> ApiAnswer {
    ApiAnswer::Stream(Box::new(text))
}

/// The figures of the server.
struct ServerObject<'s, 'a>(&'s Sources<'a>);

impl Serialize for ServerObject<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(sources) = self;
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("stats", &figures(&SERVER, &sources.server))?;
        members.serialize_entry("read_only", &sources.site.access().is_read_only)?;
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

fn job_id(text: &str) -> Result<JobId, Problem> {
    plain_u64(text).map(JobId).ok_or_else(|| Problem::bad("expected the id of a job: a whole number"))
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

fn task<'t>(id: &str, tasks: &'t Tasks) -> Result<&'t Task, Problem> {
    let id = plain_u64(id).ok_or_else(|| Problem::bad("expected the id of a task: a whole number"))?;
    tasks.get(TaskId(id)).ok_or_else(|| Problem::not_found("there is no such task"))
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
                method @ ("    get" | "    post") => {
                    described.push((method.trim().to_owned(), path.to_owned()))
                }
                _ => {}
            }
        }
        let routes: Vec<_> = ROUTES
            .iter()
            .map(|(method, path, _)| (format!("{method:?}").to_lowercase(), format!("{ROOT}{path}")))
            .collect();
        assert_eq!(described, routes);
    }
}
