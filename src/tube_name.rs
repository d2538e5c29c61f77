//! The name of a tube, valid by construction.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A tube's name: 1 to 200 bytes of `A-Z a-z 0-9 - + / ; . $ _ ( )`, not beginning with a hyphen
/// (protocol, "Protocol"). Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TubeName(Arc<str>);

impl TubeName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// The tube that every client uses and watches at first.
    #[must_use]
    pub fn default_tube() -> Self {
        Self(Arc::from("default"))
    }

    /// The name in `bytes`, or `None` where they break a rule.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::check(bytes).map(|name| Self(Arc::from(name)))
    }

    /// `bytes` as the text of a name, if they keep the rules: what `parse` makes a name of.
    #[must_use]
    pub fn check(bytes: &[u8]) -> Option<&str> {
        let valid = (1..=Self::MAX_BYTES).contains(&bytes.len())
            && bytes[0] != b'-'
            && bytes.iter().all(|&byte| is_name_byte(byte));
        if valid { std::str::from_utf8(bytes).ok() } else { None }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Whether `byte` may stand in a name.
#[must_use]
pub fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'+' | b'/' | b';' | b'.' | b'$' | b'_' | b'(' | b')')
}

impl Borrow<str> for TubeName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for TubeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.as_str())
    }
}

impl fmt::Display for TubeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_200_legal_bytes_without_a_leading_hyphen() {
        assert!(TubeName::parse(b"").is_none());
        assert!(TubeName::parse(b"a").is_some());
        assert!(TubeName::parse(&[b'a'; 200]).is_some());
        assert!(TubeName::parse(&[b'a'; 201]).is_none());
        assert!(TubeName::parse(b"-a").is_none());
        assert!(TubeName::parse(b"a-").is_some());
        for byte in 0..=u8::MAX {
            let legal = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()";
            assert_eq!(TubeName::parse(&[b'x', byte]).is_some(), legal.contains(&byte), "{byte}");
        }
    }
}
