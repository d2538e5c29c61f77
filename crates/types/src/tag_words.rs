//! The tags of a `put`.
//!
//! Owns: the words of the tags and the limits of their numbers. Never decides what a tag does.

use crate::name::Name;
use crate::number::whole_u32;
use crate::seconds::Seconds;
use crate::tags::{After, Concurrency, Idempotency, TagSet};
use crate::trace::Trace;

/// The tags of a `put`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutTags<'a> {
    /// The tags that the job keeps.
    pub kept: TagSet<'a>,
    /// `tub:<tube>`: the tube into which the job goes, in place of the used one.
    pub tube: Option<Name<'a>>,
}

/// Why a word is not accepted as a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagError {
    /// The word is not a tag.
    UnknownWord,
    /// The tag is malformed, repeated or out of range.
    BadTag,
}

impl<'a> PutTags<'a> {
    /// Whether the word begins like a tag.
    #[must_use]
    pub fn is_tag(word: &[u8]) -> bool {
        Self::default().add(word) != Err(TagError::UnknownWord)
    }

    /// Adds the tag in a word, such as `idp:order-7:60`.
    ///
    /// # Errors
    /// If the word is not a tag, or if the tag cannot be added.
    pub fn add(&mut self, word: &'a [u8]) -> Result<(), TagError> {
        let (kind, value) = word.split_first_chunk().ok_or(TagError::UnknownWord)?;
        let Self { kept, tube } = self;
        let is_new = match kind {
            b"idp:" => set(&mut kept.idempotency, idempotency(value)),
            b"con:" => set(&mut kept.concurrency, concurrency(value)),
            b"grp:" => set(&mut kept.group, Name::check(value)),
            b"aft:" => set(&mut kept.after, Name::check(value).map(|group| After { group, is_free: false })),
            b"exp:" => {
                set(&mut kept.expires_after_s, Seconds::parse(value).filter(|seconds| !seconds.is_zero()))
            }
            b"tub:" => set(tube, Name::check(value)),
            b"trc:" => set(&mut kept.trace, Trace::check(value)),
            _ => return Err(TagError::UnknownWord),
        };
        is_new.ok_or(TagError::BadTag)
    }
}

/// Sets a tag that has a value and is not set yet.
fn set<T>(tag: &mut Option<T>, value: Option<T>) -> Option<()> {
    if tag.is_some() {
        return None;
    }
    *tag = Some(value?);
    Some(())
}

fn idempotency(value: &[u8]) -> Option<Idempotency<'_>> {
    let (key, cooldown_s) = with_number(value, Seconds::ZERO, Seconds::parse)?;
    Some(Idempotency { key, cooldown_s })
}

fn concurrency(value: &[u8]) -> Option<Concurrency<'_>> {
    let (key, limit) = with_number(value, 1, whole_u32)?;
    (limit > 0).then_some(Concurrency { key, limit })
}

/// `<name>[:<number>]`
fn with_number<T>(value: &[u8], default: T, number: impl Fn(&[u8]) -> Option<T>) -> Option<(Name<'_>, T)> {
    let colon = value.iter().position(|&byte| byte == b':');
    let (name, number) = match colon {
        Some(colon) => (&value[..colon], number(&value[colon + 1..])?),
        None => (value, default),
    };
    Some((Name::check(name)?, number))
}
