//! The requests and responses of one HTTP connection, over bytes.
//!
//! Owns: the part of a request that has arrived, the rendered part of the response, and whether another request may
//! follow. It answers the requests of a connection one after the other. `httparse` parses them, and `response` chooses
//! the responses. It hands an order over to the server, and answers when the server reports the result.

mod response;

use zeroize::Zeroize;

use self::response::json;
use super::access::RequestRefusal;
use super::api::write::TaskNow;
use super::api::{self, Problem};
use super::followed::Followed;
use super::rendering::SlicedText;
use super::request::{Arrival, BodyLength, HttpRequest, Method};
use super::{SLICE_BYTES, ServerPhase, Site, Sources};
use crate::clock::Timestamp;
use crate::orders::{Order, TaskId, Tasks};
use crate::queue::Queue;
use crate::{job, json};

/// The maximum size of a request line with headers, in bytes; browsers behind proxies send two or three thousand.
const MAX_HEAD_BYTES: usize = 8 * 1024;

/// The maximum number of headers; browsers send about twenty.
const MAX_HEADERS: usize = 64;

/// The maximum length of a body that is too large and is dropped when it arrives, in bytes. If it is longer, the server
/// closes the connection at once.
const MAX_DROPPED_BYTES: u64 = 1024 * 1024;

/// The requests of one HTTP client, and the responses to them.
#[derive(Debug, Default)]
pub struct HttpExchange {
    input: Vec<u8>,
    /// How much of the next request's head has arrived, and how many bytes of the input have been searched for its end.
    arrival: Arrival,
    seen: usize,
    output: Vec<u8>,
    /// How many bytes of `output` have been sent.
    sent: usize,
    stage: ExchangeStage,
    /// Whether the exchange answers no further requests.
    is_closing: bool,
    /// How many bytes of a refused body are still to be read and dropped.
    to_drop: usize,
    /// Whether the client has closed its side.
    has_ended: bool,
    /// The reason why a request was refused.
    denied: Option<RequestRefusal>,
}

/// The progress of a request or of its response.
#[derive(Debug, Default)]
enum ExchangeStage {
    /// The end of the head of a request is missing.
    #[default]
    Head,
    /// The end of the body of this request is missing; the number is the body's length in bytes.
    Body(Box<HttpRequest>, usize),
    /// An order for the server.
    Order(Box<ServerRequest>),
    /// The server works on this task; the response reports the result.
    Await(TaskId),
    /// The response is sent when a job has ended.
    Follow(Followed),
    /// The rest of the response must be rendered.
    Render(Box<SlicedResponse>),
}

/// A request to the server.
#[derive(Debug)]
pub enum ServerRequest {
    /// To carry out an order.
    Order(Order),
    /// To stop a task.
    Stop(TaskId),
}

/// A response that is rendered in slices.
#[derive(Debug)]
struct SlicedResponse {
    body: Content,
    /// Whether the response is sent in chunks. The last chunk marks its end. Otherwise it ends with the connection,
    /// or its head has its length.
    is_chunked: bool,
}

#[derive(Debug)]
enum Content {
    Text(Box<dyn SlicedText>),
    /// The body of a job, and how many of its bytes are rendered.
    Bytes(job::Body, usize),
}

impl HttpExchange {
    /// Takes bytes that were read from the socket.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.to_drop > 0 {
            self.to_drop -= bytes.len();
            return;
        }
        if self.input.capacity() == 0 {
            // Reserved first, because a buffer that grows leaves a copy of a token in freed memory.
            self.input.reserve(MAX_HEAD_BYTES);
        }
        self.input.extend_from_slice(bytes);
        self.check_for_head();
    }

    /// Checks whether the next request has arrived, if the previous one is done.
    fn check_for_head(&mut self) {
        if !matches!(self.stage, ExchangeStage::Head)
            || !self.output.is_empty()
            || self.arrival != Arrival::Partial
        {
            return;
        }
        // Empty lines before a request have no meaning (RFC 9112, section 2.2).
        while self.seen == 0 && self.input.starts_with(b"\r\n") {
            self.input.drain(..2);
        }
        self.arrival = Arrival::of(&self.input, self.seen);
        // A CR at the end may be the start of an empty line.
        self.seen = if self.input == b"\r" { 0 } else { self.input.len() };
    }

    /// Notes that the client has closed its side. Requests that have arrived are still answered.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// How many more bytes the exchange takes; 0 if it must first answer a request that has arrived.
    #[must_use]
    pub fn room(&self) -> usize {
        let wanted = if let ExchangeStage::Body(_, length) = self.stage {
            length
        } else if self.to_drop > 0 {
            return self.to_drop;
        } else if self.is_closing {
            0
        } else {
            MAX_HEAD_BYTES
        };
        wanted.saturating_sub(self.input.len())
    }

    /// The bytes that are rendered but not sent.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Notes that the socket has taken `count` bytes of the output.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.output.len(), "the sent bytes are bytes of the output");
        if self.sent == self.output.len() {
            self.output.clear();
            self.output.shrink_to(2 * SLICE_BYTES);
            self.sent = 0;
            self.check_for_head();
        }
    }

    /// Whether the exchange is over: no request follows, and all responses are sent.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_answered = matches!(self.stage, ExchangeStage::Head) && self.output.is_empty();
        self.is_closing && is_answered && (self.to_drop == 0 || self.has_ended)
    }

    /// Whether a request is being answered whose head, at least, has arrived. No request is answered while the client
    /// waits for the end of a job, whatever it sends in the meantime.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        let awaits_head = matches!(self.stage, ExchangeStage::Head)
            && self.arrival == Arrival::Partial
            && self.input.len() < MAX_HEAD_BYTES
            && self.output.is_empty();
        !awaits_head && self.follows_until().is_none()
    }

    /// Whether everything that has arrived is answered, and the answers are sent. A client that waits for the end of a
    /// job counts as idle: its connection makes room for others.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_answered = matches!(self.stage, ExchangeStage::Head);
        is_answered && self.input.is_empty() && self.output.is_empty() || self.follows_until().is_some()
    }

    /// When a request that waits for the end of a job is answered at the latest.
    #[must_use]
    pub fn follows_until(&self) -> Option<Timestamp> {
        if let ExchangeStage::Follow(Followed { until, is_over: false, .. }) = self.stage {
            return Some(until);
        }
        None
    }

    /// Checks whether the job for whose end the request waits has ended.
    pub fn check_job(&mut self, queue: &Queue, now: Timestamp) {
        if let ExchangeStage::Follow(followed) = &mut self.stage {
            followed.check(queue, self.has_ended, now);
        }
    }

    /// Whether `turn` may have work: the previous slice is sent, and there is more to render.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.output.is_empty()
            && match &self.stage {
                ExchangeStage::Head => !self.is_closing && (self.has_ended || self.is_answering()),
                ExchangeStage::Body(_, length) => self.has_ended || self.input.len() >= *length,
                ExchangeStage::Render(_) => true,
                ExchangeStage::Follow(followed) => followed.is_over,
                ExchangeStage::Order(_) | ExchangeStage::Await(_) => false,
            }
    }

    /// Whether a response is incomplete.
    #[must_use]
    pub fn is_rendering(&self) -> bool {
        matches!(self.stage, ExchangeStage::Render(_))
    }

    /// Frees a slice of the response's data, after the connection has ended; returns whether nothing is left.
    pub fn free_slice(&mut self) -> bool {
        let ExchangeStage::Render(response) = &mut self.stage else { return true };
        match &mut response.body {
            Content::Text(text) => text.free_slice(),
            Content::Bytes(..) => true,
        }
    }

    /// Does a slice of work, if the previous slice has been sent. Returns whether it did any work.
    pub fn turn(&mut self, phase: ServerPhase<'_>) -> bool {
        if !self.has_work() {
            return false;
        }
        match (phase, std::mem::take(&mut self.stage)) {
            // Such a response was begun while the server was serving, and a serving server never returns to its start.
            (ServerPhase::Serving(sources), ExchangeStage::Render(response)) => {
                self.render(response, sources);
                true
            }
            (ServerPhase::Serving(sources), ExchangeStage::Follow(Followed { job, method, .. })) => {
                match api::job_now(job, sources) {
                    Ok(body) => self.respond(method, &json("200 OK", "", &body)),
                    Err(problem) => self.respond_problem(method, &problem),
                }
                true
            }
            (phase, ExchangeStage::Body(request, length)) => {
                if self.input.len() < length {
                    // The client has closed its side in the middle of its request.
                    self.is_closing = true;
                    return false;
                }
                let body: Vec<u8> = self.input.drain(..length).collect();
                self.answer(&request, &body, phase);
                true
            }
            (
                phase,
                ExchangeStage::Head
                | ExchangeStage::Order(_)
                | ExchangeStage::Await(_)
                | ExchangeStage::Follow(_)
                | ExchangeStage::Render(_),
            ) => self.begin(phase),
        }
    }

    /// The request to the server, if there is one. The caller must then call `accept`, `await_task` or `refuse_order`.
    pub fn take_request(&mut self) -> Option<ServerRequest> {
        let stage = std::mem::take(&mut self.stage);
        if let ExchangeStage::Order(request) = stage {
            return Some(*request);
        }
        self.stage = stage;
        None
    }

    /// The server carries out the order; the answer is sent when it is done.
    pub fn await_task(&mut self, id: TaskId) {
        self.stage = ExchangeStage::Await(id);
    }

    /// The server will carry out the order; the answer names the task.
    pub fn accept(&mut self, id: TaskId, tasks: &Tasks, now: Timestamp) {
        match tasks.get(id) {
            Some(task) => self.respond_json("202 Accepted", &json::line(&TaskNow(task, now))),
            None => self.respond_problem(Method::Post, &Problem::not_found("there is no such task")),
        }
    }

    /// The server does not carry out the order.
    pub fn refuse_order(&mut self) {
        self.respond_problem(Method::Post, &Problem::busy());
    }

    /// Answers a request that waits for a task, if the task has ended.
    pub fn check_task(&mut self, tasks: &Tasks, now: Timestamp) {
        let ExchangeStage::Await(id) = self.stage else { return };
        let task = tasks.get(id);
        if task.is_some_and(|task| !task.is_over()) {
            return;
        }
        self.stage = ExchangeStage::Head;
        let Some(task) = task else {
            return self.respond_problem(Method::Post, &Problem::not_found("there is no such task"));
        };
        match task.reason() {
            Some(refusal) => self.respond_problem(Method::Post, &refusal.into()),
            None if task.job.is_some() && task.done > 0 => {
                self.respond_json("201 Created", &json::line(&TaskNow(task, now)))
            }
            None => self.respond_json("200 OK", &json::line(&TaskNow(task, now))),
        }
    }

    /// Renders a slice of a response.
    fn render(&mut self, mut response: Box<SlicedResponse>, sources: &Sources<'_>) {
        let mut slice = String::new();
        let is_last = match &mut response.body {
            Content::Text(text) => text.render(sources, &mut slice),
            Content::Bytes(body, done) => {
                let end = body.len().min(*done + SLICE_BYTES);
                self.output.extend_from_slice(&body.as_slice()[*done..end]);
                *done = end;
                end == body.len()
            }
        };
        if response.is_chunked {
            // An empty chunk would mark the end of the response.
            if !slice.is_empty() {
                self.output.extend_from_slice(format!("{:x}\r\n{slice}\r\n", slice.len()).as_bytes());
            }
            if is_last {
                self.output.extend_from_slice(b"0\r\n\r\n");
            }
        } else {
            self.output.extend_from_slice(slice.as_bytes());
        }
        if !is_last {
            self.stage = ExchangeStage::Render(response);
        }
    }

    /// Answers the next request, if all of it has arrived.
    fn begin(&mut self, phase: ServerPhase<'_>) -> bool {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        let arrival = std::mem::take(&mut self.arrival);
        let request = match (parsed.parse(&self.input), arrival) {
            (Ok(httparse::Status::Complete(length)), Arrival::Whole) => {
                let request = HttpRequest::of(&parsed);
                // The head may contain a token.
                let rest = self.input.split_off(length);
                self.input.zeroize();
                self.input.extend_from_slice(&rest);
                self.seen = 0;
                request
            }
            (Ok(httparse::Status::Partial), Arrival::Partial) if self.input.len() < MAX_HEAD_BYTES => {
                self.is_closing |= self.has_ended;
                return false;
            }
            (Ok(httparse::Status::Partial), Arrival::Partial) | (Err(httparse::Error::TooManyHeaders), _) => {
                self.refuse("431 Request Header Fields Too Large");
                return true;
            }
            _ => {
                self.refuse("400 Bad Request");
                return true;
            }
        };
        self.is_closing = !request.keep_alive;
        match (phase, request.body) {
            (_, BodyLength::Contradictory) => self.refuse("400 Bad Request"),
            _ if !request.has_proper_host => self.refuse("400 Bad Request"),
            (phase, BodyLength::Bytes(0)) => self.answer(&request, &[], phase),
            // No request to the site of `--metrics` may have a body.
            (ServerPhase::Serving(sources @ Sources { site: Site::Admin(_), .. }), length)
                if sources.is_api_request(&request) =>
            {
                self.read_body(request, length, sources);
            }
            (phase, _) => {
                // The bytes that follow may be the body of this request, which no path accepts.
                self.is_closing = true;
                self.answer(&request, &[], phase);
            }
        }
        true
    }

    /// Reads the body of a request to the API, if the request may have one.
    fn read_body(&mut self, request: HttpRequest, length: BodyLength, sources: &Sources<'_>) {
        let problem = match (self.check_access(&request, sources), length) {
            (Err(problem), _) => problem,
            (Ok(()), BodyLength::Bytes(length)) if length <= api::MAX_BODY_BYTES => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if request.expects_continue && self.input.len() < length {
                    self.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                self.stage = ExchangeStage::Body(Box::new(request), length);
                return;
            }
            (Ok(()), BodyLength::Bytes(length)) => {
                // If the connection was closed while the client is sending, the client could lose the answer.
                if length <= MAX_DROPPED_BYTES && !request.expects_continue {
                    self.to_drop = (length as usize).saturating_sub(self.input.len());
                    self.input.clear();
                }
                Problem::too_large(api::MAX_BODY_BYTES)
            }
            (Ok(()), BodyLength::Unknown | BodyLength::Contradictory) => Problem::length_required(),
        };
        self.is_closing = true;
        self.respond_problem(request.method, &problem);
    }

    /// Checks whether the API may answer the request; notes a refusal for the log.
    fn check_access(&mut self, request: &HttpRequest, sources: &Sources<'_>) -> Result<(), Problem> {
        sources.check_access(request).map_err(|denied| {
            // The page sends requests without a token until somebody enters one.
            let is_first = denied == RequestRefusal::Unauthorized && request.origin.bearer.is_none();
            self.denied = Some(denied).filter(|_| !is_first);
            denied.into()
        })
    }

    /// The reason of a refusal since the last call, if there was one.
    pub fn take_denial(&mut self) -> Option<RequestRefusal> {
        self.denied.take()
    }
}
