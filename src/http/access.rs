//! Who may use the API.
//!
//! Owns: the token, and the decision whether a request may read or change anything. Never knows what a request asks
//! for beyond that. Driven by an exchange, before the body of the request is read.
//!
//! With a token, a request must have it: a page from elsewhere does not know it. Without one, the listener is on a
//! loopback address or a unix socket (`startup` sees to that), and what has to be kept out are pages from elsewhere in
//! a browser on the same machine. They cannot read, because of the host that they name (see [`super::host`]), and they
//! cannot change anything, because they cannot send the header `X-Beanstalkd-Admin`.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Sources;
use super::request::{Method, Request};
use crate::token::{self, TokenError};

/// What every request for the API must have.
#[derive(Debug, Default)]
pub struct Access {
    /// The token that every request has to show; `None` if none is asked for.
    pub token: Option<Token>,
    /// Whether changes are refused.
    pub is_read_only: bool,
}

/// A secret that opens the API, of which only the hash is kept.
pub struct Token([u8; 32]);

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

impl Token {
    /// The longest one: a head of a request has to have room for it.
    pub const MAX_BYTES: usize = 1024;

    /// The token in the text of a file, without the white space around it.
    ///
    /// # Errors
    /// If the text is no token.
    pub fn parse(text: &[u8]) -> Result<Self, TokenError> {
        token::parse(text, Self::MAX_BYTES).map(|token| Self(Sha256::digest(token).into()))
    }

    /// Whether `given` is the token. The time it takes tells nothing of the token.
    fn is(&self, given: &[u8]) -> bool {
        self.0[..].ct_eq(&Sha256::digest(given)).into()
    }
}

/// Says nothing of the secret.
impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token")
    }
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
            Some(token) if !request.bearer.as_ref().is_some_and(|given| token.is(given)) => {
                return Err(Denied::Unauthorized);
            }
            Some(_) => {}
            None if !request.names(sources) => return Err(Denied::Misdirected(sources.site.option())),
            None if request.is_from_elsewhere() => return Err(Denied::FromElsewhere),
            None if is_change && !request.is_marked => return Err(Denied::Unmarked),
            None => {}
        }
        if is_change && self.is_read_only { Err(Denied::ReadOnly) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token::parse(b" 0123456789abcdef0123456789abcdef\r\n").unwrap();
        assert!(token.is(b"0123456789abcdef0123456789abcdef"));
        for other in [b"".as_slice(), b"0123456789abcdef0123456789abcdeg", b"0123456789abcdef0123456789abcde"]
        {
            assert!(!token.is(other));
        }
        assert_eq!(format!("{token:?}"), "Token");
    }
}
