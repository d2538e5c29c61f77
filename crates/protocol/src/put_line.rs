//! The line of a `put`: its numbers, and the tags that may follow the size.
//!
//! Owns: their grammar. Spaces separate the tags, which are checked from left to right; the first wrong word decides.
//! A word that is not a tag makes the line an invalid line of C's protocol: the reply is BAD_FORMAT, and the body is
//! read as commands. A wrong tag is also BAD_FORMAT, but the body is skipped: a client that sends tags knows them, and
//! its body must not be executed.

use super::argument::Argument;
use crate::described;
use crate::job::Priority;
use crate::number::leading_u32;
use crate::seconds::Seconds;
use crate::tags::{PutTags, TagError, TagKind};
use crate::tube_name::TubeNameRef;

/// The longest line of a `put` with tags, in bytes with its CRLF: all tags with names of 200 bytes and numbers of ten
/// digits, with some room for leading zeros and spaces.
pub const MAX_PUT_LINE_BYTES: usize = 1280;

/// The line of a `put`; the body follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutHeader {
    /// The new job's priority.
    pub priority: Priority,
    /// Time before it becomes ready.
    pub delay_s: Seconds,
    /// Time to run.
    pub ttr_s: Seconds,
    /// The length of the body in bytes, without its CRLF.
    pub size: u32,
}

described!(PutHeader { priority, delay_s, ttr_s, size });

impl Argument for PutHeader {
    fn write(&self, line: &mut Vec<u8>) {
        self.priority.write(line);
        self.delay_s.write(line);
        self.ttr_s.write(line);
        self.size.write(line);
    }
}

/// The numbers of the `put` whose line begins like this, and the text after its size.
#[must_use]
pub fn put_line(start: &[u8]) -> Option<(PutHeader, &[u8])> {
    numbers_of_put::<true>(start.strip_prefix(b"put ")?)
}

/// The numbers of the `put` on `line`, if they are in whole seconds and nothing follows the size.
#[must_use]
pub fn plain_put_line(line: &[u8]) -> Option<PutHeader> {
    let (header, rest) = numbers_of_put::<false>(line.strip_prefix(b"put ")?)?;
    rest.is_empty().then_some(header)
}

/// The numbers of the `put` whose line begins like this, if a tag follows its size.
#[must_use]
pub fn tagged_put(start: &[u8]) -> Option<PutHeader> {
    let (header, text) = put_line(start)?;
    first_word(text).filter(|(word, _)| TagKind::split(word).is_some()).map(|_| header)
}

/// The numbers of a `put`, and the text after the last one. Without `FRACTIONS`, a fraction of a second is no number.
#[inline(always)]
pub(super) fn numbers_of_put<const FRACTIONS: bool>(rest: &[u8]) -> Option<(PutHeader, &[u8])> {
    let (priority, rest) = leading_u32(rest)?;
    let (delay_s, rest) = leading_seconds::<FRACTIONS>(rest)?;
    let (ttr_s, rest) = leading_seconds::<FRACTIONS>(rest)?;
    let (size, rest) = leading_u32(rest)?;
    Some((PutHeader { priority: Priority(priority), delay_s, ttr_s, size }, rest))
}

#[inline(always)]
fn leading_seconds<const FRACTIONS: bool>(text: &[u8]) -> Option<(Seconds, &[u8])> {
    if FRACTIONS {
        return Seconds::leading(text);
    }
    let (whole, rest) = leading_u32(text)?;
    Some((whole.into(), rest))
}

/// The tube in the text after a size, if the text has the tag `tub`.
#[must_use]
pub fn target_of(text: &[u8]) -> Option<TubeNameRef<'_>> {
    memchr::memmem::find(text, b" tub:")?;
    parse_tags(text).ok()?.tube
}

/// The tags in the text after a size; the text is not empty.
///
/// # Errors
/// If the text has anything other than valid tags.
pub fn parse_tags(mut text: &[u8]) -> Result<PutTags<'_>, TagError> {
    let mut tags = PutTags::default();
    while let Some((word, rest)) = first_word(text) {
        tags.add(word)?;
        text = rest;
    }
    if tags == PutTags::default() || !text.iter().all(|&byte| byte == b' ') {
        return Err(TagError::UnknownWord);
    }
    Ok(tags)
}

/// The first word after at least one space, and the text after it.
fn first_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = text.iter().position(|&byte| byte != b' ').filter(|&start| start > 0)?;
    let word = &text[start..];
    Some(word.split_at(word.iter().position(|&byte| byte == b' ').unwrap_or(word.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::{After, Concurrency, Idempotency, TagSet, Trace};
    use crate::tube_name::TubeName;
    use crate::{Command, ParseError, parse};

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn tags_stand_in_any_order() {
        let kept = TagSet {
            idempotency: Some(Idempotency { key: "k".try_into().unwrap(), cooldown_s: 60.into() }),
            concurrency: Some(Concurrency { key: "c".try_into().unwrap(), limit: 3 }),
            group: Some("g".try_into().unwrap()),
            after: Some(After { group: "a".try_into().unwrap(), is_free: false }),
            expires_after_s: Some(7.into()),
            trace: Trace::check(TRACE.as_bytes()),
        };
        let all = PutTags { kept, tube: TubeName::check(b"t") };
        let tail = format!(" tub:t trc:{TRACE}");
        let with = |text: &str| parse_tags(format!("{text}{tail}").leak().as_bytes());
        assert_eq!(with(" idp:k:60 con:c:3 grp:g aft:a exp:7"), Ok(all));
        assert_eq!(with("  exp:007   aft:a grp:g con:c:3 idp:k:0060  "), Ok(all));
        let kept = TagSet {
            idempotency: Some(Idempotency { key: "k".try_into().unwrap(), cooldown_s: 0.into() }),
            concurrency: Some(Concurrency { key: "k".try_into().unwrap(), limit: 1 }),
            ..TagSet::default()
        };
        let plain = PutTags { kept, tube: None };
        assert_eq!(parse_tags(b" con:k idp:k"), Ok(plain));
        assert_eq!(parse_tags(b" idp:k:0 con:k:1"), Ok(plain));
    }

    #[test]
    fn a_wrong_tag_is_not_an_unknown_word() {
        let long = format!(" grp:{}", "g".repeat(201));
        for text in [
            " idp:",
            " idp:-k",
            " idp:k:",
            " idp:k:x",
            " idp:k:-1",
            " idp:k:+1",
            " idp:k:4294967296",
            " idp:k:1:2",
            " idp:k\0",
            " idp:a idp:b",
            " idp:a grp:g idp:a",
            " con:",
            " con:k:0",
            " con:k:00",
            " grp:",
            " grp:a:b",
            " aft:\t",
            " exp:",
            " exp:0",
            " exp:x",
            " exp:4294967296",
            " tub:",
            " tub:-t",
            " tub:a tub:a",
            " tub:t:1",
            " trc:",
            " trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            " trc:01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " trc:00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            " idp:- x",
            &long,
        ] {
            assert_eq!(parse_tags(text.as_bytes()), Err(TagError::BadTag), "{text:?}");
        }
    }

    #[test]
    fn a_word_that_is_not_a_tag_is_unknown() {
        for text in [" ", "x", " x", " idp", " IDP:k", " idp:k x", " x idp:-", "idp:k", " idp :k", "\tidp:k"]
        {
            assert_eq!(parse_tags(text.as_bytes()), Err(TagError::UnknownWord), "{text:?}");
        }
    }

    #[test]
    fn the_text_after_the_size_is_not_parsed_with_the_line() {
        let Ok(Command::PutWith(header, text)) = parse(b"put 1 2 3 4x y") else { panic!("a put") };
        assert_eq!(
            (header.priority, header.delay_s, header.ttr_s, header.size),
            (Priority(1), 2.into(), 3.into(), 4)
        );
        assert_eq!(text, b"x y");
        assert!(matches!(parse(b"put 0 0 1 4 idp:a\0b"), Ok(Command::PutWith(..))));
        assert_eq!(parse(b"put 0 0 1 4 x\0"), Err(ParseError::BadFormat));
    }

    #[test]
    fn every_tag_finds_room_in_a_line() {
        let (most, name) = (u32::MAX, "n".repeat(TubeName::MAX_BYTES));
        let line = format!(
            "put {most} {most} {most} {most} idp:{name}:{most}.999 con:{name}:{most} grp:{name} aft:{name} \
             exp:{most}.999 tub:{name} trc:{TRACE}\r\n"
        );
        assert!(
            line.len() < MAX_PUT_LINE_BYTES && tagged_put(&line.as_bytes()[..100]).is_some(),
            "{}",
            line.len()
        );
        for untagged in ["put 0 0 1 4 x", "put 0 0 1", "putt 0 0 0 4 idp:a"] {
            assert_eq!(tagged_put(untagged.as_bytes()), None, "{untagged}");
        }
    }
}
