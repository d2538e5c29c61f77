//! The head of a request, and the few parts of it on which an answer depends.
//!
//! Owns: which headers are read, and how the length of a body is determined. `httparse` parses the bytes.

use zeroize::Zeroizing;

use super::{Sources, host};
use crate::number::plain_u64;

/// The header that a page from another site cannot send without first asking this server, which never allows it.
pub(crate) const MARKER: &str = "x-beanstalkd-admin";

/// The parts of a request on which the responses depend.
#[derive(Debug)]
pub struct HttpRequest {
    /// The method of the request.
    pub method: Method,
    /// The path of the target.
    pub path: String,
    /// The text after the `?` of the target; empty if there is none.
    pub query: String,
    /// The origin of the request, as far as its headers show it.
    pub origin: RequestOrigin,
    /// Whether the number of headers `Host` is right: one, or none with HTTP/1.0.
    pub has_proper_host: bool,
    /// Whether this is HTTP/1.1, in which responses may be sent in chunks.
    pub is_1_1: bool,
    /// Whether the client may send another request on this connection.
    pub keep_alive: bool,
    /// The length of the body after the head.
    pub body: BodyLength,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the content type of the body is JSON.
    pub is_json: bool,
}

/// The origin of a request, as far as its headers show it.
#[derive(Debug)]
pub struct RequestOrigin {
    /// The hosts that the target and the headers name; usually there is one.
    hosts: Vec<String>,
    /// The origins of pages that the request names.
    pages: Vec<String>,
    /// The relation of the page to this server, as the browser reports it (`Sec-Fetch-Site`).
    fetch_sites: Vec<String>,
    /// Whether the request has the header [`MARKER`].
    pub is_marked: bool,
    /// The credentials after `Bearer`, if there is exactly one header `Authorization`.
    pub bearer: Option<Zeroizing<Vec<u8>>>,
}

/// The methods that have a meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Reads, without the body of the answer.
    Head,
    /// Changes something.
    Post,
    /// Any other method.
    Other,
}

/// How much of a head has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A part of it.
    #[default]
    Partial,
    /// All of it.
    Whole,
    /// A line ends with a bare LF. Another server on the way could see a different end of the head than this one.
    Malformed,
}

impl Arrival {
    /// How much of a head is in `input`. Its first `seen` bytes have been searched before.
    pub(crate) fn of(input: &[u8], seen: usize) -> Self {
        for end in (seen..input.len()).filter(|&at| input[at] == b'\n') {
            if end == 0 || input[end - 1] != b'\r' {
                return Self::Malformed;
            } else if input[..=end].ends_with(b"\r\n\r\n") {
                return Self::Whole;
            }
        }
        Self::Partial
    }
}

/// The length of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// A body of this many bytes; 0 if there is none.
    Bytes(u64),
    /// The length is not announced.
    Unknown,
    /// The headers contradict each other, or are not numbers. Two readers could disagree where the next request begins.
    Contradictory,
}

impl HttpRequest {
    /// The request in a head that is complete.
    pub fn of(parsed: &httparse::Request<'_, '_>) -> Self {
        let headers = Headers(parsed.headers);
        let is_1_1 = parsed.version == Some(1);
        let target = parsed.path.unwrap_or_default();
        let (host, target) =
            host::split_absolute(target).map_or((None, target), |(host, path)| (Some(host), path));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let closes = headers.all("connection").any(|value| {
            value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(b"close"))
        });
        Self {
            method: match parsed.method {
                Some("GET") => Method::Get,
                Some("HEAD") => Method::Head,
                Some("POST") => Method::Post,
                _ => Method::Other,
            },
            path: path.to_owned(),
            query: query.to_owned(),
            origin: RequestOrigin {
                hosts: host.map(str::to_owned).into_iter().chain(headers.texts("host")).collect(),
                pages: headers.texts("origin").collect(),
                fetch_sites: headers.texts("sec-fetch-site").collect(),
                is_marked: headers.all(MARKER).next().is_some(),
                bearer: headers.bearer(),
            },
            has_proper_host: match headers.all("host").count() {
                0 => !is_1_1,
                count => count == 1,
            },
            is_1_1,
            keep_alive: is_1_1 && !closes,
            body: headers.body_length(),
            expects_continue: is_1_1 && headers.all("expect").next().is_some(),
            is_json: headers.is_json(),
        }
    }
}

impl RequestOrigin {
    /// Whether every host that the request names is this server, so that no page from another site can have made the
    /// request. A request without a host does not come from a browser.
    pub fn names(&self, sources: &Sources<'_>) -> bool {
        self.hosts.iter().all(|host| host::is_address_or_local(host) || sources.has_name(host::name_of(host)))
    }

    /// Whether a browser says that a page of another origin has made the request.
    pub fn is_from_elsewhere(&self) -> bool {
        let is_own = |page: &String| {
            page.split_once("://")
                .is_some_and(|(_, host)| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
        };
        !self.pages.iter().all(is_own)
            || !self.fetch_sites.iter().all(|site| site == "same-origin" || site == "none")
    }
}

/// The headers of a request.
struct Headers<'a>(&'a [httparse::Header<'a>]);

impl<'a> Headers<'a> {
    /// The values of all headers with this name, which is in lower case.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        let Self(headers) = *self;
        headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }

    fn texts(&self, name: &'static str) -> impl Iterator<Item = String> {
        self.all(name).map(|value| String::from_utf8_lossy(value.trim_ascii()).into_owned())
    }

    fn body_length(&self) -> BodyLength {
        let mut lengths = self.all("content-length");
        let (first, second) = (lengths.next(), lengths.next());
        let is_chunked = self.all("transfer-encoding").next().is_some();
        match (first, second, is_chunked) {
            (None, _, true) => BodyLength::Unknown,
            (None, _, false) => BodyLength::Bytes(0),
            (Some(length), None, false) => {
                plain_u64(length).map_or(BodyLength::Contradictory, BodyLength::Bytes)
            }
            _ => BodyLength::Contradictory,
        }
    }

    fn is_json(&self) -> bool {
        self.all("content-type").next().is_some_and(|value| {
            let media_type = value.split(|&byte| byte == b';').next().unwrap_or_default();
            media_type.trim_ascii().eq_ignore_ascii_case(b"application/json")
        })
    }

    fn bearer(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut all = self.all("authorization");
        let (value, None) = (all.next()?, all.next()) else { return None };
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| Zeroizing::new(token.trim_ascii().to_vec()))
    }
}
