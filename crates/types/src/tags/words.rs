//! The tags of a `put`.
//!
//! Owns: the words of the tags and the limits of their numbers. Never decides what a tag does.

use super::{After, Concurrency, Idempotency, Name, TagSet, Trace};
use crate::number::whole_u32;
use crate::seconds::Seconds;
use crate::tube_name::{TubeName, TubeNameRef};

macro_rules! tag_kinds {
    ($($prefix:literal $kind:ident)+) => {
        /// The kind of a tag.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
        pub enum TagKind {
            $($kind,)+
        }

        impl TagKind {
            /// All kinds, in the order in which a server lists their words.
            pub const ALL: [Self; [$($prefix),+].len()] = [$(Self::$kind),+];

            /// The word before the colon.
            #[must_use]
            pub fn word(self) -> &'static str {
                let [word @ .., _] = match self {
                    $(Self::$kind => $prefix,)+
                };
                std::str::from_utf8(word).unwrap_or_default()
            }

            /// The kind of a tag such as `idp:order-7:60`, and the text after the first colon; `None` for another word.
            #[must_use]
            #[inline]
            pub fn split(tag: &[u8]) -> Option<(Self, &[u8])> {
                let (prefix, value) = tag.split_first_chunk()?;
                let kind = match prefix {
                    $($prefix => Self::$kind,)+
                    _ => return None,
                };
                Some((kind, value))
            }
        }
    };
}

// The table of the tags. `extensions` has the words in this order.
tag_kinds! {
    b"idp:" Idempotency
    b"con:" Concurrency
    b"grp:" Group
    b"aft:" After
    b"exp:" Expiry
    b"tub:" Tube
    b"trc:" Trace
}

/// The tags of a `put`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutTags<'a> {
    /// The tags that the job keeps.
    pub kept: TagSet<'a>,
    /// `tub:<tube>`: the tube into which the job goes, in place of the used one.
    pub tube: Option<TubeNameRef<'a>>,
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
    /// Adds the tag in a word, such as `idp:order-7:60`.
    ///
    /// # Errors
    /// If the word is not a tag, or if the tag cannot be added.
    pub fn add(&mut self, word: &'a [u8]) -> Result<(), TagError> {
        let (kind, value) = TagKind::split(word).ok_or(TagError::UnknownWord)?;
        let Self { kept, tube } = self;
        let is_new = match kind {
            TagKind::Idempotency => set(&mut kept.idempotency, idempotency(value)),
            TagKind::Concurrency => set(&mut kept.concurrency, concurrency(value)),
            TagKind::Group => set(&mut kept.group, Name::check(value)),
            TagKind::After => {
                set(&mut kept.after, Name::check(value).map(|group| After { group, is_free: false }))
            }
            TagKind::Expiry => {
                set(&mut kept.expires_after_s, Seconds::parse(value).filter(|seconds| !seconds.is_zero()))
            }
            TagKind::Tube => set(tube, TubeName::check(value)),
            TagKind::Trace => set(&mut kept.trace, Trace::check(value)),
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
