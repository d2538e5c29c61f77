//! The name of a tube, owned or borrowed. A value of either type is always valid.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

/// A tube's name: 1 to 200 bytes of `A-Z a-z 0-9 - + / ; . $ _ ( )`, not beginning with a hyphen
/// (protocol, "Bytes on a connection"). Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TubeName(Arc<str>);

impl TubeName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// The tube that every new client uses and watches.
    pub const DEFAULT: &str = "default";

    /// The name of the tube that every new client uses and watches.
    #[must_use]
    pub fn default_tube() -> Self {
        Self(Arc::from(Self::DEFAULT))
    }

    /// The name in `bytes`, or `None` if they are not a valid name.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::check(bytes).map(Self::from)
    }

    /// The name in `bytes`, or `None` if they are not a valid name. Unlike `parse`, it does not allocate.
    #[must_use]
    pub fn check(bytes: &[u8]) -> Option<TubeNameRef<'_>> {
        if Self::is_valid(bytes) { std::str::from_utf8(bytes).ok().map(TubeNameRef) } else { None }
    }

    /// Whether `bytes` are a valid name.
    #[must_use]
    pub fn is_valid(bytes: &[u8]) -> bool {
        (1..=Self::MAX_BYTES).contains(&bytes.len())
            && bytes[0] != b'-'
            && bytes.iter().all(|&byte| is_name_byte(byte))
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

/// A borrowed [`TubeName`]. Sessions and groups have such names, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TubeNameRef<'a>(&'a str);

impl<'a> TubeNameRef<'a> {
    /// The name as text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

impl Deref for TubeNameRef<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl<'a> From<&'a TubeName> for TubeNameRef<'a> {
    fn from(name: &'a TubeName) -> Self {
        Self(name.as_str())
    }
}

impl From<TubeNameRef<'_>> for TubeName {
    fn from(name: TubeNameRef<'_>) -> Self {
        Self(Arc::from(name.0))
    }
}

impl<'a> TryFrom<&'a str> for TubeNameRef<'a> {
    type Error = NameError;

    fn try_from(text: &'a str) -> Result<Self, NameError> {
        TubeName::check(text.as_bytes()).ok_or_else(|| NameError(text.to_owned()))
    }
}

/// Whether a name may contain `byte`.
#[must_use]
pub fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'+' | b'/' | b';' | b'.' | b'$' | b'_' | b'(' | b')')
}

/// The text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "\"{}\" is not a name: expected 1 to {} of A-Z a-z 0-9 - + / ; . $ _ ( ), not beginning with -",
            self.0,
            TubeName::MAX_BYTES
        )
    }
}

impl std::error::Error for NameError {}

impl FromStr for TubeName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        TubeNameRef::try_from(text).map(Self::from)
    }
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

impl fmt::Debug for TubeNameRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, out)
    }
}

impl fmt::Display for TubeNameRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
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
