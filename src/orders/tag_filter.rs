//! A filter for jobs by a tag.
//!
//! Owns: the syntax of such a filter, and which tags match it.

use crate::tags::{TagSet, Trace};
use crate::tube_name::TubeName;

/// The kinds of tags, each with its word in the protocol.
const KINDS: [(&str, TagKind); 6] = [
    ("idp", TagKind::Idempotency),
    ("con", TagKind::Concurrency),
    ("grp", TagKind::Group),
    ("aft", TagKind::After),
    ("exp", TagKind::Expiry),
    ("trc", TagKind::Trace),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagKind {
    Idempotency,
    Concurrency,
    Group,
    After,
    Expiry,
    Trace,
}

/// Matches jobs that have a tag of one kind, with any key or with a given one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter {
    kind: TagKind,
    /// The key or the group; `None` matches any.
    name: Option<TubeName>,
}

impl TagFilter {
    /// Parses `idp`, `con`, `grp`, `aft`, `trc` or `exp`; all except the last may be followed by a colon and a key, a
    /// group or a trace.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, name) = match text.split_once(':') {
            Some((word, name)) => (word, Some(TubeName::parse(name.as_bytes())?)),
            None => (text, None),
        };
        let &(_, kind) = KINDS.iter().find(|(known, _)| *known == word)?;
        (kind != TagKind::Expiry || name.is_none()).then_some(Self { kind, name })
    }

    /// Whether a job with these tags matches.
    pub fn matches(&self, tags: &TagSet<'_>) -> bool {
        let found = match self.kind {
            TagKind::Idempotency => tags.idempotency.map(|tag| tag.key),
            TagKind::Concurrency => tags.concurrency.map(|tag| tag.key),
            TagKind::Group => tags.group,
            TagKind::After => tags.after.map(|tag| tag.group),
            TagKind::Trace => tags.trace.map(Trace::name),
            TagKind::Expiry => return tags.expires_after_s.is_some(),
        };
        found.is_some_and(|found| self.name.as_ref().is_none_or(|name| found == name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::{After, Concurrency, Idempotency};

    fn filter(text: &str) -> TagFilter {
        TagFilter::parse(text).unwrap_or_else(|| panic!("{text} is a filter"))
    }

    #[test]
    fn a_filter_matches_a_kind_with_any_key_or_with_one() {
        let tags = TagSet {
            idempotency: Some(Idempotency { key: "order".into(), cooldown_s: 0.into() }),
            concurrency: Some(Concurrency { key: "host".into(), limit: 2 }),
            group: Some("rows".into()),
            after: Some(After { group: "files".into(), is_free: false }),
            expires_after_s: Some(60.into()),
            ..TagSet::default()
        };
        for text in ["idp", "con", "grp", "aft", "exp", "idp:order", "con:host", "grp:rows", "aft:files"] {
            assert!(filter(text).matches(&tags), "{text}");
            assert!(!filter(text).matches(&TagSet::default()), "{text}");
        }
        for text in ["idp:host", "con:order", "grp:files", "aft:rows", "grp:row", "grp:rows2"] {
            assert!(!filter(text).matches(&tags), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_filters() {
        for text in ["", ":", "idp:", "grp:-a", "grp:a:b", "exp:5", "GRP", "group", "idp:k:60", "grp:a b"] {
            assert_eq!(TagFilter::parse(text), None, "{text}");
        }
    }
}
