//! A filter for jobs by a tag.
//!
//! Owns: the syntax of such a filter, and which tags match it.

use super::{TagKind, TagSet, Trace};
use crate::tube_name::TubeName;

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
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (word, name) = match text.split_once(':') {
            Some((word, name)) => (word, Some(TubeName::parse(name.as_bytes())?)),
            None => (text, None),
        };
        let kind = TagKind::ALL.into_iter().find(|kind| kind.word() == word)?;
        let is_kept = kind != TagKind::Tube;
        (is_kept && (kind != TagKind::Expiry || name.is_none())).then_some(Self { kind, name })
    }

    /// Whether a job with these tags matches.
    #[must_use]
    pub fn matches(&self, tags: &TagSet<'_>) -> bool {
        let found = match self.kind {
            TagKind::Idempotency => tags.idempotency.map(|tag| tag.key),
            TagKind::Concurrency => tags.concurrency.map(|tag| tag.key),
            TagKind::Group => tags.group,
            TagKind::After => tags.after.map(|tag| tag.group),
            TagKind::Trace => tags.trace.map(Trace::name),
            TagKind::Expiry => return tags.expires_after_s.is_some(),
            TagKind::Tube => None,
        };
        found.is_some_and(|found| self.matches_tag(self.kind, found.as_bytes()))
    }

    /// Whether a job with a tag of this kind, with this key, group or trace, matches.
    #[must_use]
    pub fn matches_tag(&self, kind: TagKind, name: &[u8]) -> bool {
        self.kind == kind && self.name.as_ref().is_none_or(|wanted| wanted.as_str().as_bytes() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::PutTags;

    const TRACE: &str = "trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_filter_matches_a_kind_with_any_key_or_with_one() {
        let words = ["idp:order:60", "con:host:2", "grp:rows", "aft:files", "exp:60", TRACE];
        let mut tags = PutTags::default();
        for word in words {
            tags.add(word.as_bytes()).unwrap();
        }
        let kinds = ["idp", "con", "grp", "aft", "exp", "trc"];
        let names = ["idp:order", "con:host", "grp:rows", "aft:files", TRACE];
        let others = ["idp:host", "con:order", "grp:files", "aft:rows", "grp:row", "grp:rows2", "trc:rows"];
        for (texts, expected) in [(&kinds[..], true), (&names, true), (&others, false)] {
            for text in texts {
                let filter = TagFilter::parse(text).unwrap_or_else(|| panic!("{text} is a filter"));
                assert_eq!(filter.matches(&tags.kept), expected, "{text}");
                assert!(!filter.matches(&TagSet::NONE), "{text}");
                let is_matched = words.iter().any(|word| {
                    let (kind, value) = TagKind::split(word.as_bytes()).unwrap();
                    filter.matches_tag(kind, value.split(|&byte| byte == b':').next().unwrap())
                });
                assert_eq!(is_matched, expected, "{text}");
            }
        }
    }

    #[test]
    fn other_texts_are_no_filters() {
        for text in [
            "", ":", "idp:", "grp:-a", "grp:a:b", "exp:5", "GRP", "group", "idp:k:60", "grp:a b", "tub",
            "tub:t",
        ] {
            assert_eq!(TagFilter::parse(text), None, "{text}");
        }
    }
}
