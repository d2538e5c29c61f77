//! The requests and responses of one HTTP connection, over bytes.
//!
//! Owns: the part of a request that has arrived, the part of the response that is rendered, and whether another request
//! may follow. It answers the requests of a connection one after the other. `httparse` parses them.

use super::page::{self, Json, Query};
use super::prometheus::{self, TextFormat};
use super::rendering::Rendering;
use super::{Phase, Sources, host, put};

/// The longest request line with headers, in bytes; browsers behind proxies send two or three thousand.
const MAX_HEAD_BYTES: usize = 8 * 1024;

/// The most headers; browsers send about twenty.
const MAX_HEADERS: usize = 64;

/// The requests of one HTTP client, and the responses to them.
#[derive(Debug, Default)]
pub struct Exchange {
    input: Vec<u8>,
    output: String,
    /// How many bytes of `output` are sent.
    sent: usize,
    /// The rest of the response, if it is not all rendered.
    rest: Option<Rest>,
    /// Whether no further request is answered.
    closing: bool,
    /// Whether the client has closed its side.
    ended: bool,
}

/// A response that is rendered in slices.
#[derive(Debug)]
struct Rest {
    body: Body,
    /// Whether the response is sent in chunks, the last of which marks its end. If not, it ends with the connection.
    chunked: bool,
}

#[derive(Debug)]
enum Body {
    Metrics(Rendering<TextFormat>),
    PageFigures(Rendering<Json>),
}

/// The parts of a request that the responses depend on.
struct Request {
    method: Method,
    path: String,
    /// The text behind the `?` of the target; empty if there is none.
    query: String,
    /// The hosts that the target and the headers name; usually there is one.
    hosts: Vec<String>,
    /// Whether this is HTTP/1.1, in which responses may be sent in chunks.
    is_1_1: bool,
    /// Whether the client may send another request on this connection.
    keep_alive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Head,
    Other,
}

/// A response that is rendered at once.
struct Response<'a> {
    status: &'static str,
    content_type: &'static str,
    /// Further headers, each with its line end.
    headers: &'static str,
    body: &'a str,
}

impl Exchange {
    /// Takes bytes that were read from the socket.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The client has closed its side. Requests that have arrived are still answered.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// How many more bytes it takes; 0 if the request that has arrived must be answered first.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.closing { 0 } else { MAX_HEAD_BYTES.saturating_sub(self.input.len()) }
    }

    /// The bytes that are rendered and not sent.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output.as_bytes()[self.sent..]
    }

    /// The socket has taken `count` bytes of the output.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.output.len(), "no more is sent than there is");
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Whether the exchange is over: no request follows, and all responses are sent.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.closing && self.rest.is_none() && self.output.is_empty()
    }

    /// Whether all that has arrived is answered, and the answers are sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.input.is_empty() && self.output.is_empty() && self.rest.is_none()
    }

    /// Whether `turn` may have something to do: the previous slice is sent, and there is more to render.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let may_begin = !self.closing && (self.ended || !self.input.is_empty());
        self.output.is_empty() && (self.rest.is_some() || may_begin)
    }

    /// Does a slice of work if the previous slice is sent. Returns whether it did any work.
    pub fn turn(&mut self, phase: Phase<'_>) -> bool {
        if !self.has_work() {
            return false;
        }
        // Such a response was begun when the server was serving, and a server that serves never returns to its start.
        if let (Phase::Serving(sources), Some(rest)) = (phase, self.rest.take()) {
            self.render(rest, sources);
            return true;
        }
        self.begin(phase)
    }

    /// Renders a slice of a response.
    fn render(&mut self, mut rest: Rest, sources: &Sources<'_>) {
        let mut slice = String::new();
        let is_last = match &mut rest.body {
            Body::Metrics(metrics) => metrics.render(sources, &mut slice),
            Body::PageFigures(figures) => figures.render(sources, &mut slice),
        };
        if rest.chunked {
            // An empty chunk would mark the end of the response.
            if !slice.is_empty() {
                put(&mut self.output, format_args!("{:x}\r\n{slice}\r\n", slice.len()));
            }
            if is_last {
                self.output.push_str("0\r\n\r\n");
            }
        } else {
            self.output = slice;
        }
        if !is_last {
            self.rest = Some(rest);
        }
    }

    /// Answers the next request if all of it has arrived.
    fn begin(&mut self, phase: Phase<'_>) -> bool {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        let request = match parsed.parse(&self.input) {
            Ok(httparse::Status::Complete(length)) => {
                let request = Request::of(&parsed);
                self.input.drain(..length);
                request
            }
            Ok(httparse::Status::Partial) if self.input.len() < MAX_HEAD_BYTES => {
                self.closing |= self.ended;
                return false;
            }
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                self.refuse("431 Request Header Fields Too Large");
                return true;
            }
            Err(_) => {
                self.refuse("400 Bad Request");
                return true;
            }
        };
        self.closing = !request.keep_alive;
        self.answer(&request, phase);
        true
    }

    fn refuse(&mut self, status: &'static str) {
        self.closing = true;
        self.respond(Method::Get, &plain(status, "", ""));
    }

    fn answer(&mut self, request: &Request, phase: Phase<'_>) {
        if request.method == Method::Other {
            // The bytes that follow may be the body of this request.
            self.closing = true;
            self.respond(Method::Get, &plain("405 Method Not Allowed", "Allow: GET, HEAD\r\n", ""));
            return;
        }
        let response = match (request.path.as_str(), phase) {
            ("/healthz", _) => plain("200 OK", "", "ok\n"),
            ("/readyz", Phase::Starting(reason)) => plain("503 Service Unavailable", "", reason),
            ("/readyz", Phase::Serving(sources)) if sources.server.is_draining => {
                plain("503 Service Unavailable", "", "draining\n")
            }
            ("/readyz", _) => plain("200 OK", "", "ready\n"),
            ("/", _) => Response {
                status: "200 OK",
                content_type: "text/html; charset=utf-8",
                headers: page::HEADERS,
                body: page::HTML,
            },
            ("/metrics", Phase::Serving(sources)) => {
                let metrics = Body::Metrics(prometheus::scrape(sources));
                return self.stream(request, prometheus::CONTENT_TYPE, metrics);
            }
            ("/page.json", Phase::Serving(sources)) if !request.names(sources) => plain(
                "421 Misdirected Request",
                "",
                "this name is not known here: use an address, or start the server with --metrics NAME:PORT\n",
            ),
            ("/page.json", Phase::Serving(sources)) => {
                let figures = Body::PageFigures(page::figures(sources, Query::parse(&request.query)));
                return self.stream(request, page::FIGURES_CONTENT_TYPE, figures);
            }
            ("/metrics" | "/page.json", Phase::Starting(reason)) => {
                plain("503 Service Unavailable", "", reason)
            }
            _ => plain("404 Not Found", "", "not found\n"),
        };
        self.respond(request.method, &response);
    }

    fn respond(&mut self, method: Method, response: &Response<'_>) {
        let Response { status, content_type, headers, body } = response;
        let framing = format_args!("Content-Length: {}\r\n{headers}", body.len()).to_string();
        self.head(status, content_type, &framing);
        if method != Method::Head {
            self.output.push_str(body);
        }
    }

    /// Begins a response that is rendered in slices.
    fn stream(&mut self, request: &Request, content_type: &str, body: Body) {
        let chunked = request.is_1_1;
        self.closing |= !chunked;
        self.head("200 OK", content_type, if chunked { "Transfer-Encoding: chunked\r\n" } else { "" });
        if request.method == Method::Get {
            self.rest = Some(Rest { body, chunked });
        }
    }

    fn head(&mut self, status: &str, content_type: &str, headers: &str) {
        let connection = if self.closing { "close" } else { "keep-alive" };
        put(
            &mut self.output,
            format_args!(
                "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{headers}Connection: {connection}\r\n\
                 Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
            ),
        );
    }
}

impl Request {
    fn of(parsed: &httparse::Request<'_, '_>) -> Self {
        let mut headers = parsed.headers.iter();
        let mut names = parsed.headers.iter().map(|header| header.name);
        let has_body = names.any(|name| {
            name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
        });
        let closes = headers.any(|header| {
            header.name.eq_ignore_ascii_case("connection")
                && header
                    .value
                    .split(|&byte| byte == b',')
                    .any(|part| part.trim_ascii().eq_ignore_ascii_case(b"close"))
        });
        let is_1_1 = parsed.version == Some(1);
        let target = parsed.path.unwrap_or_default();
        let (host, target) =
            host::split_absolute(target).map_or((None, target), |(host, path)| (Some(host), path));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let named = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        let named = named.map(|header| String::from_utf8_lossy(header.value).into_owned());
        Self {
            method: match parsed.method {
                Some("GET") => Method::Get,
                Some("HEAD") => Method::Head,
                _ => Method::Other,
            },
            path: path.to_owned(),
            query: query.to_owned(),
            hosts: host.map(str::to_owned).into_iter().chain(named).collect(),
            is_1_1,
            // Nothing here takes a body, so the next request could not be told from one.
            keep_alive: is_1_1 && !closes && !has_body,
        }
    }

    /// Whether every host that is named is this server, so that no page elsewhere can have asked. What names none
    /// is no browser.
    fn names(&self, sources: &Sources<'_>) -> bool {
        self.hosts.iter().all(|host| host::is_address_or_local(host) || sources.has_name(host::name_of(host)))
    }
}

fn plain<'a>(status: &'static str, headers: &'static str, body: &'a str) -> Response<'a> {
    Response { status, content_type: "text/plain; charset=utf-8", headers, body }
}
