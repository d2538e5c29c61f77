//! The access rules of the API.
//!
//! Owns: the token, and the decision whether a request may read or change anything. Knows nothing else about a request.
//! Driven by an exchange, before the body of the request is read.
//!
//! If there is a token, a request must have it: a page from another site does not know it. Without a token, the
//! listener is on a loopback address or a unix socket (`startup` checks that), and the server must reject pages from
//! other sites in a browser on the same machine. They cannot read, because of the host that they name (see
//! [`super::host`]), and they cannot change anything, because they cannot send the header `X-Beanstalkd-Admin`.

use super::Sources;
use super::request::{HttpRequest, Method};
use crate::token::TokenHash;

/// The conditions for every request to the API.
#[derive(Debug, Default)]
pub struct Access {
    /// The token that every request must have; `None` if none is required.
    pub token: Option<TokenHash>,
    /// Whether changes are refused.
    pub is_read_only: bool,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// The request names a host that is not this server. The named option can add that host.
    Misdirected(&'static str),
    /// The request has no token, or a wrong one.
    Unauthorized,
    /// A page from another site has made the request.
    FromElsewhere,
    /// The request is for a change, and lacks the header that pages from other sites cannot send.
    Unmarked,
    /// The request is for a change, and the server allows none.
    ReadOnly,
}

impl RequestRefusal {
    /// The reason, for the log.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Misdirected(_) => "it names another host",
            Self::Unauthorized => "a wrong token",
            Self::FromElsewhere => "a page of another site has sent it",
            Self::Unmarked => "it has no header X-Beanstalkd-Admin",
            Self::ReadOnly => "it is for a change, which --metrics and --admin-read-only do not allow",
        }
    }
}

impl Access {
    /// Checks a request.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn check(&self, request: &HttpRequest, sources: &Sources<'_>) -> Result<(), RequestRefusal> {
        let is_change = !matches!(request.method, Method::Get | Method::Head);
        match &self.token {
            Some(token)
                if !request.origin.bearer.as_ref().is_some_and(|given| token.is(&TokenHash::of(given))) =>
            {
                return Err(RequestRefusal::Unauthorized);
            }
            Some(_) => {}
            None if !request.origin.names(sources) => {
                return Err(RequestRefusal::Misdirected(sources.site.option()));
            }
            None if request.origin.is_from_elsewhere() => return Err(RequestRefusal::FromElsewhere),
            None if is_change && !request.origin.is_marked => return Err(RequestRefusal::Unmarked),
            None => {}
        }
        if is_change && self.is_read_only { Err(RequestRefusal::ReadOnly) } else { Ok(()) }
    }
}
