//! Answers to requests that cannot be fulfilled.
//!
//! Owns: the status, the word and the sentence of each.

use crate::http::access::RequestRefusal;
use crate::json::{self, Object};
use crate::refusal::{ChangeRefusal, PutRefusal};

/// The reason why a request cannot be fulfilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The status of the response.
    pub status: &'static str,
    /// A word for programs.
    pub code: &'static str,
    /// The message for operators.
    pub message: String,
    /// Further headers, each with its line end.
    pub headers: &'static str,
}

impl Problem {
    fn new(status: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), headers: "" }
    }

    /// The request makes no sense.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new("400 Bad Request", "bad-request", message)
    }

    /// There is nothing under this path.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new("404 Not Found", "not-found", message)
    }

    /// The path takes other methods.
    pub(crate) fn method(allow: &'static str) -> Self {
        let message = "this path takes another method";
        Self { headers: allow, ..Self::new("405 Method Not Allowed", "method-not-allowed", message) }
    }

    /// The request has a body of unknown length.
    pub(crate) fn length_required() -> Self {
        Self::new("411 Length Required", "length-required", "a request needs the header Content-Length")
    }

    /// The body is too long.
    pub(crate) fn too_large(max_bytes: u64) -> Self {
        let message = format!("the body of a request has at most {max_bytes} bytes");
        Self::new("413 Content Too Large", "too-large", message)
    }

    /// The body is not JSON.
    pub(crate) fn not_json() -> Self {
        let message = "the body has to be JSON, with the header Content-Type: application/json";
        Self::new("415 Unsupported Media Type", "not-json", message)
    }

    /// The jobs were counted by another run of the server.
    pub(crate) fn stale() -> Self {
        let message = "the server has been restarted since the jobs were counted; count them again";
        Self::new("409 Conflict", "stale", message)
    }

    /// Too many tasks are running.
    pub(crate) fn busy() -> Self {
        let message = "too many tasks are running; wait for one of them, or stop one";
        Self::new("429 Too Many Requests", "busy", message)
    }

    /// The body of the problem.
    pub(crate) fn json(&self) -> String {
        json::line(&Object([("error", self.code), ("message", &self.message)]))
    }
}

impl From<RequestRefusal> for Problem {
    fn from(denied: RequestRefusal) -> Self {
        let (status, code, message) = match denied {
            RequestRefusal::Misdirected(option) => {
                let message = format!(
                    "the server does not know this host name: use an address, \
                     or start the server with {option} NAME:PORT"
                );
                return Self::new("421 Misdirected Request", "misdirected", message);
            }
            RequestRefusal::Unauthorized => (
                "401 Unauthorized",
                "unauthorized",
                "the request needs the header Authorization: Bearer TOKEN",
            ),
            RequestRefusal::FromElsewhere => {
                ("403 Forbidden", "foreign-origin", "a page of another origin may not use the API")
            }
            RequestRefusal::Unmarked => {
                ("403 Forbidden", "unmarked", "a change needs the header X-Beanstalkd-Admin: 1")
            }
            RequestRefusal::ReadOnly => (
                "403 Forbidden",
                "read-only",
                "changes are not allowed here (--metrics, or --admin-read-only)",
            ),
        };
        let headers = if denied == RequestRefusal::Unauthorized {
            "WWW-Authenticate: Bearer realm=\"beanstalkd\"\r\n"
        } else {
            ""
        };
        Self { headers, ..Self::new(status, code, message) }
    }
}

impl From<ChangeRefusal> for Problem {
    fn from(refusal: ChangeRefusal) -> Self {
        let (status, code) = match refusal {
            ChangeRefusal::Put(PutRefusal::JobTooBig) => ("413 Content Too Large", "too-large"),
            ChangeRefusal::Put(PutRefusal::OutOfMemory) => ("507 Insufficient Storage", "no-room"),
            ChangeRefusal::Put(PutRefusal::Draining) => ("409 Conflict", "draining"),
            ChangeRefusal::Put(PutRefusal::TubeFull) => ("409 Conflict", "tube-full"),
            ChangeRefusal::NotFound | ChangeRefusal::NoTube | ChangeRefusal::NoClient => {
                ("404 Not Found", "not-found")
            }
            ChangeRefusal::Reserved => ("409 Conflict", "reserved"),
            ChangeRefusal::WrongState => ("409 Conflict", "wrong-state"),
            ChangeRefusal::NotDead => ("409 Conflict", "not-dead"),
            ChangeRefusal::KeyExists(_) => ("409 Conflict", "key-exists"),
        };
        Self::new(status, code, refusal.to_string())
    }
}

/// The beginning of a text, for use in a message.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(40).collect()
}
