//! Who may use the API.
//!
//! Owns: the token, and the decision whether a request may read or change anything. Never knows what a request asks
//! for beyond that. Driven by an exchange, before the body of the request is read.
//!
//! With a token, a request must have it: a page from elsewhere does not know it. Without one, the listener is on a
//! loopback address or a unix socket (`startup` sees to that), and what has to be kept out are pages from elsewhere in
//! a browser on the same machine. They cannot read, because of the host that they name (see [`super::host`]), and they
//! cannot change anything, because they cannot send the header `X-Beanstalkd-Admin`.

use super::Sources;
use super::request::{Method, Request};
use crate::token::TokenHash;

/// The conditions for every request for the API.
#[derive(Debug, Default)]
pub struct Access {
    /// The token that every request has to show; `None` if none is asked for.
    pub token: Option<TokenHash>,
    /// Whether changes are refused.
    pub is_read_only: bool,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It names a host that is not this server; this option could name it.
    Misdirected(&'static str),
    /// It has no token, or a wrong one.
    Unauthorized,
    /// A page from elsewhere has made it.
    FromElsewhere,
    /// It wants a change, and lacks the header that pages from elsewhere cannot send.
    Unmarked,
    /// It wants a change, and the server allows none.
    ReadOnly,
}

impl Denied {
    /// The reason, for the log.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Misdirected(_) => "it names another host",
            Self::Unauthorized => "a wrong token",
            Self::FromElsewhere => "a page from elsewhere has made it",
            Self::Unmarked => "it has no header X-Beanstalkd-Admin",
            Self::ReadOnly => "nothing can be changed here (--metrics, or --admin-read-only)",
        }
    }
}

impl Access {
    /// Judges a request.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn judge(&self, request: &Request, sources: &Sources<'_>) -> Result<(), Denied> {
        let is_change = !matches!(request.method, Method::Get | Method::Head);
        match &self.token {
            Some(token)
                if !request.origin.bearer.as_ref().is_some_and(|given| token.is(&TokenHash::of(given))) =>
            {
                return Err(Denied::Unauthorized);
            }
            Some(_) => {}
            None if !request.origin.names(sources) => return Err(Denied::Misdirected(sources.site.option())),
            None if request.origin.is_from_elsewhere() => return Err(Denied::FromElsewhere),
            None if is_change && !request.origin.is_marked => return Err(Denied::Unmarked),
            None => {}
        }
        if is_change && self.is_read_only { Err(Denied::ReadOnly) } else { Ok(()) }
    }
}
