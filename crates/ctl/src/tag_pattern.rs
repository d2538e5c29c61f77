//! A filter for jobs by a tag: `grp` matches any group, `grp:rows` a certain one.

use std::str::FromStr;

use beanstalk_client::{Tag, TubeName};

/// The words of the tags.
const WORDS: [&str; 6] = ["idp", "con", "grp", "aft", "exp", "trc"];

/// Matches tags of one kind, with any key or group or with a certain one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagPattern {
    word: &'static str,
    name: Option<TubeName>,
}

impl FromStr for TagPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected idp, con, grp, aft or trc, each alone or with a key, a group (grp:rows) or a trace, or exp"
                .to_owned()
        };
        let (word, name) = match text.split_once(':') {
            Some((word, name)) => (word, Some(name.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let word = WORDS.into_iter().find(|known| *known == word).ok_or_else(wrong)?;
        if word == "exp" && name.is_some() { Err(wrong()) } else { Ok(Self { word, name }) }
    }
}

impl TagPattern {
    /// Whether the tag matches.
    pub fn matches(&self, tag: &Tag) -> bool {
        tag.word() == self.word && self.name.as_ref().is_none_or(|name| name.as_str() == tag.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_pattern_matches_a_kind_with_any_key_or_with_one() {
        for (pattern, tag, expected) in [
            ("grp", "grp:a", true),
            ("grp:a", "grp:a", true),
            ("grp:a", "grp:b", false),
            ("aft:a", "grp:a", false),
            ("idp:k", "idp:k:60", true),
            ("con", "con:k:3", true),
            ("exp", "exp:5", true),
            ("trc", TRACE, true),
            (TRACE, TRACE, true),
            (TRACE, "grp:a", false),
        ] {
            let pattern: TagPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&tag.parse().unwrap()), expected, "{pattern:?} and {tag}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in ["", "grp:", "exp:5", "idp:k:60", "group", "grp:-a"] {
            assert!(text.parse::<TagPattern>().is_err(), "{text}");
        }
    }
}
