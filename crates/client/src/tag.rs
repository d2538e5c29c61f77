//! The tags of a put, an extension: words after the size.

use crate::name::Name;
use std::fmt;
use std::str::FromStr;

/// A tag of a job. As text: `idp:KEY[:SECONDS]`, `con:KEY[:LIMIT]`, `grp:NAME`, `aft:NAME`, `exp:SECONDS`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tag {
    /// No other job of the tube has this key, while this job exists and for `seconds` after its delete.
    Idempotency {
        /// The key, unique in the tube.
        key: Name,
        /// How many seconds the key counts after a delete.
        seconds: Option<u32>,
    },
    /// At most `limit` jobs with this key are reserved at once, over all tubes.
    Concurrency {
        /// The key, which the limited jobs share.
        key: Name,
        /// The limit, at least 1; the default is 1.
        limit: Option<u32>,
    },
    /// The job is a member of this group.
    Group(Name),
    /// The job is held until this group has no members.
    After(Name),
    /// The job is deleted if no client has reserved it within this many seconds after the put; at least 1.
    Expires(u32),
}

/// The text is not a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagError(String);

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a tag: expected idp:KEY[:SECONDS], con:KEY[:LIMIT], grp:NAME, aft:NAME or exp:SECONDS",
            self.0
        )
    }
}

impl std::error::Error for TagError {}

impl Tag {
    /// The word before the colon, by which a server lists the tag among its extensions.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Idempotency { .. } => "idp",
            Self::Concurrency { .. } => "con",
            Self::Group(_) => "grp",
            Self::After(_) => "aft",
            Self::Expires(_) => "exp",
        }
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        parse(text).ok_or_else(|| TagError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Tag> {
    let (word, value) = text.split_once(':')?;
    match word {
        "idp" => with_number(value).map(|(key, seconds)| Tag::Idempotency { key, seconds }),
        "con" => with_number(value)
            .filter(|(_, limit)| *limit != Some(0))
            .map(|(key, limit)| Tag::Concurrency { key, limit }),
        "grp" => value.parse().ok().map(Tag::Group),
        "aft" => value.parse().ok().map(Tag::After),
        "exp" => number(value).filter(|seconds| *seconds > 0).map(Tag::Expires),
        _ => None,
    }
}

fn with_number(value: &str) -> Option<(Name, Option<u32>)> {
    match value.split_once(':') {
        Some((key, digits)) => Some((key.parse().ok()?, Some(number(digits)?))),
        None => Some((value.parse().ok()?, None)),
    }
}

fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idempotency { key, seconds: Some(seconds) } => write!(f, "idp:{key}:{seconds}"),
            Self::Idempotency { key, seconds: None } => write!(f, "idp:{key}"),
            Self::Concurrency { key, limit: Some(limit) } => write!(f, "con:{key}:{limit}"),
            Self::Concurrency { key, limit: None } => write!(f, "con:{key}"),
            Self::Group(name) => write!(f, "grp:{name}"),
            Self::After(name) => write!(f, "aft:{name}"),
            Self::Expires(seconds) => write!(f, "exp:{seconds}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_displayed_as_they_are_parsed() {
        for text in ["idp:a", "idp:a:60", "con:a", "con:a:3", "grp:b", "aft:c/d", "exp:5"] {
            assert_eq!(text.parse::<Tag>().map(|tag| tag.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn invalid_tags_are_refused() {
        for text in
            ["", "idp", "idp:", "idp:a:", "idp:a:b", "con:a:0", "exp:0", "exp:-1", "exp:+1", "grp:a:b", "x:a"]
        {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }
}
