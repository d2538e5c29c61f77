//! The token with which a connection logs in.

use std::fmt;

/// A token for `auth`. It is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The form of a token, for [`Error::Invalid`](crate::Error::Invalid).
    pub(crate) const RULE: &str = "a token is one or more visible characters of ASCII";

    /// The token in a text: visible characters of ASCII, with white space around it.
    pub fn parse(text: &str) -> Option<Self> {
        let token = text.trim_ascii();
        Self::is_valid(token.as_bytes()).then(|| Self(token.to_owned()))
    }

    pub(super) fn is_valid(token: &[u8]) -> bool {
        !token.is_empty() && token.iter().all(u8::is_ascii_graphic)
    }

    /// The token as it is sent.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", Token::parse(" secret\n").unwrap()), "Token(…)");
        assert!(Token::parse("a b").is_none() && Token::parse(" ").is_none());
    }
}
