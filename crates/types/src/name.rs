//! The names in tags: keys and groups.
//!
//! Owns: the rule that they follow the rules of tube names.

use std::fmt;

use crate::tube_name::{NameError, TubeName, TubeNameRef};

/// A key or the name of a group: bytes that follow the rules of tube names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(pub(crate) &'a [u8]);

impl<'a> Name<'a> {
    /// The name in `bytes`, or `None` if they are not a valid name.
    #[must_use]
    pub fn check(bytes: &'a [u8]) -> Option<Self> {
        TubeName::is_valid(bytes).then_some(Self(bytes))
    }

    /// The name in bytes that were checked before.
    #[must_use]
    pub fn again(bytes: &'a [u8]) -> Self {
        debug_assert!(TubeName::is_valid(bytes), "{bytes:?} is a name");
        Self(bytes)
    }

    /// The name as bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no name is empty")]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        std::str::from_utf8(self.0).unwrap_or_default()
    }
}

impl<'a> From<TubeNameRef<'a>> for Name<'a> {
    fn from(name: TubeNameRef<'a>) -> Self {
        Self(name.as_str().as_bytes())
    }
}

impl<'a> TryFrom<&'a str> for Name<'a> {
    type Error = NameError;

    fn try_from(text: &'a str) -> Result<Self, NameError> {
        TubeNameRef::try_from(text).map(Self::from)
    }
}

impl PartialEq<&str> for Name<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), out)
    }
}
