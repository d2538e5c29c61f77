//! The responses of an exchange: which one a request gets, and the bytes of its head and body.
//!
//! Owns: the paths beside the paths of the API, and the headers of every response.

use super::{Content, ExchangeStage, HttpExchange, ServerRequest, SlicedResponse};
use crate::http::api::{self, ApiAnswer, Problem};
use crate::http::app::File;
use crate::http::followed::Followed;
use crate::http::rendering::SlicedText;
use crate::http::request::{HttpRequest, Method};
use crate::http::{ServerPhase, Site, Sources, app, page, prometheus, put};

/// The media type of the API's answers.
const JSON: &str = "application/json";

/// The query of `/readyz` that leaves out one check, as in Kubernetes: workers are still served in drain mode.
const DRAINING_IS_READY: &str = "exclude=draining";

/// A response that is rendered at once.
pub(super) struct Response<'a> {
    status: &'static str,
    content_type: &'static str,
    /// Further headers, each with its line end.
    headers: &'static str,
    body: &'a str,
}

impl HttpExchange {
    pub(super) fn refuse(&mut self, status: &'static str) {
        self.is_closing = true;
        self.respond(Method::Get, &plain(status, "", ""));
    }

    pub(super) fn answer(&mut self, request: &HttpRequest, body: &[u8], phase: ServerPhase<'_>) {
        if let ServerPhase::Serving(sources) = phase
            && sources.is_api_request(request)
        {
            return self.answer_api(request, body, sources);
        }
        if !matches!(request.method, Method::Get | Method::Head) {
            // The bytes that follow may be the body of this request.
            self.is_closing = true;
            self.respond(Method::Get, &plain("405 Method Not Allowed", "Allow: GET, HEAD\r\n", ""));
            return;
        }
        if let ServerPhase::Serving(Sources { site: Site::Admin(_), .. }) = phase {
            return self.respond(request.method, &file(app::FILES, &request.path));
        }
        self.answer_monitoring(request, phase);
    }

    /// Answers a request to the site of `--metrics`.
    fn answer_monitoring(&mut self, request: &HttpRequest, phase: ServerPhase<'_>) {
        let response = match (request.path.as_str(), phase) {
            ("/healthz", _) => plain("200 OK", "", "ok\n"),
            ("/readyz", ServerPhase::Starting(reason)) => unavailable(reason),
            ("/readyz", ServerPhase::Serving(sources))
                if sources.server.is_draining && request.query != DRAINING_IS_READY =>
            {
                unavailable("draining\n")
            }
            ("/readyz", ServerPhase::Serving(Sources { server, .. }))
                if server.binlog.database.is_some_and(|database| !database.has_lease) =>
            {
                unavailable("no lease: the database has not confirmed who owns the queue\n")
            }
            ("/readyz", _) => plain("200 OK", "", "ready\n"),
            ("/metrics", ServerPhase::Serving(sources @ Sources { site: Site::Metrics(max_tubes), .. })) => {
                let metrics = prometheus::scrape(*max_tubes, sources);
                return self.stream(request, prometheus::CONTENT_TYPE, Box::new(metrics));
            }
            (path, ServerPhase::Starting(reason))
                if path == "/metrics" || page::API_PATHS.contains(&path) =>
            {
                unavailable(reason)
            }
            (path, _) => file(page::FILES, path),
        };
        self.respond(request.method, &response);
    }

    fn answer_api(&mut self, request: &HttpRequest, body: &[u8], sources: &Sources<'_>) {
        let access_checked = self.check_access(request, sources);
        match access_checked.and_then(|()| api::answer(request, body, sources)) {
            Err(problem) => self.respond_problem(request.method, &problem),
            Ok(ApiAnswer::Json(body)) => self.respond(request.method, &json("200 OK", "", &body)),
            Ok(ApiAnswer::Follow(job, seconds)) => {
                let until = sources.server.now.plus_seconds(seconds);
                let followed = Followed::new(job, request.method, until, sources.server.queue);
                self.stage = ExchangeStage::Follow(followed);
            }
            Ok(ApiAnswer::Stream(text)) => self.stream(request, JSON, text),
            Ok(ApiAnswer::Body(id, body)) => {
                let length = body.len();
                let headers = format!(
                    "Content-Length: {length}\r\nContent-Disposition: attachment; filename=\"job-{}\"\r\n\
                     Content-Security-Policy: sandbox; default-src 'none'\r\n{API_HEADERS}",
                    id.0
                );
                self.head("200 OK", "application/octet-stream", &headers);
                if request.method == Method::Get && length > 0 {
                    let sliced = SlicedResponse { body: Content::Bytes(body, 0), is_chunked: false };
                    self.stage = ExchangeStage::Render(Box::new(sliced));
                }
            }
            Ok(ApiAnswer::Order(order)) => {
                self.stage = ExchangeStage::Order(Box::new(ServerRequest::Order(order)))
            }
            Ok(ApiAnswer::Stop(id)) => self.stage = ExchangeStage::Order(Box::new(ServerRequest::Stop(id))),
        }
    }

    pub(super) fn respond_problem(&mut self, method: Method, problem: &Problem) {
        self.respond(method, &json(problem.status, problem.headers, &problem.json()));
    }

    pub(super) fn respond_json(&mut self, status: &'static str, body: &str) {
        self.respond(Method::Post, &json(status, "", body));
    }

    pub(super) fn respond(&mut self, method: Method, response: &Response<'_>) {
        let Response { status, content_type, headers, body } = response;
        let api = if *content_type == JSON { API_HEADERS } else { "" };
        let framing = format!("Content-Length: {}\r\n{headers}{api}", body.len());
        self.head(status, content_type, &framing);
        if method != Method::Head {
            self.output.extend_from_slice(body.as_bytes());
        }
    }

    /// Starts a response that is rendered in slices.
    fn stream(&mut self, request: &HttpRequest, content_type: &str, text: Box<dyn SlicedText>) {
        let is_chunked = request.is_1_1;
        self.is_closing |= !is_chunked;
        let framing = if is_chunked { "Transfer-Encoding: chunked\r\n" } else { "" };
        self.head("200 OK", content_type, &format!("{framing}{API_HEADERS}"));
        if request.method == Method::Get {
            self.stage =
                ExchangeStage::Render(Box::new(SlicedResponse { body: Content::Text(text), is_chunked }));
        }
    }

    fn head(&mut self, status: &str, content_type: &str, headers: &str) {
        let connection = if self.is_closing { "close" } else { "keep-alive" };
        let mut head = String::new();
        put(
            &mut head,
            format_args!(
                "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{headers}Connection: {connection}\r\n\
                 Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
            ),
        );
        self.output.extend_from_slice(head.as_bytes());
    }
}

/// Pages of another origin may not embed answers of the API.
const API_HEADERS: &str = "Cross-Origin-Resource-Policy: same-origin\r\n";

fn plain<'a>(status: &'static str, headers: &'static str, body: &'a str) -> Response<'a> {
    Response { status, content_type: "text/plain; charset=utf-8", headers, body }
}

/// The file under this path.
fn file(files: &[File], path: &str) -> Response<'static> {
    match files.iter().find(|(found, ..)| *found == path) {
        Some(&(_, content_type, body)) => {
            Response { status: "200 OK", content_type, headers: app::HEADERS, body }
        }
        None => plain("404 Not Found", "", "not found\n"),
    }
}

fn unavailable(reason: &str) -> Response<'_> {
    plain("503 Service Unavailable", "", reason)
}

pub(super) fn json<'a>(status: &'static str, headers: &'static str, body: &'a str) -> Response<'a> {
    Response { status, content_type: JSON, headers, body }
}
