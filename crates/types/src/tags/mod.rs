//! The tags of a job: the requests of a `put` that C's protocol does not have, and what the server and the queue keep
//! in the same place: the owner, the failures, the arrival in a tube.
//!
//! Owns: the compact encoding in which the queue and the binlog keep the tags of a job; in `words.rs` the words of a
//! `put`, in `filter.rs` the filters for jobs. Never decides what a tag does.

mod filter;
mod words;

use std::collections::TryReserveError;
use std::ops::Deref;

pub use self::filter::TagFilter;
pub use self::words::{PutTags, TagError, TagKind};
pub use crate::name::Name;
use crate::seconds::Seconds;
pub use crate::trace::Trace;
use crate::tube_name::TubeName;

/// The tags that a `put` asks for and its job keeps, each at most once. Keys and names follow the rules of tube names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagSet<'a> {
    /// `idp:<key>[:<seconds>]`: the job is the only one with this key in its tube.
    pub idempotency: Option<Idempotency<'a>>,
    /// `con:<key>[:<n>]`: at most `n` jobs with this key are reserved at once.
    pub concurrency: Option<Concurrency<'a>>,
    /// `grp:<name>`: the group of which the job is a member.
    pub group: Option<Name<'a>>,
    /// `aft:<name>`: the group that the job waits for.
    pub after: Option<After<'a>>,
    /// `exp:<seconds>`: the job is deleted if nobody has reserved it within this time after the put; more than 0.
    pub expires_after_s: Option<Seconds>,
    /// `trc:<traceparent>`: the trace that the job belongs to.
    pub trace: Option<Trace<'a>>,
}

/// What is kept with a job: the tags of its `put`, which can be read from this directly, and values that no word of
/// `put` sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTags<'a> {
    /// The tags of its `put`, except for those that a dead job has lost. The queue sets `is_free`.
    pub asked: TagSet<'a>,
    /// The owner of the job, if the bytes of the owner's jobs are limited. The server sets it.
    pub owner: Option<Name<'a>>,
    /// What the counters of the job do not say about its failures. The queue sets it.
    pub failures: Option<Failures<'a>>,
    /// The time from the put until the job came into its tube, if a rule of that tube needs it. The queue sets it.
    pub arrived_after_s: Option<Seconds>,
}

/// The tag `idp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency<'a> {
    /// The key.
    pub key: Name<'a>,
    /// How long the key still counts after the job has been deleted.
    pub cooldown_s: Seconds,
}

/// The tag `con`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency<'a> {
    /// The key.
    pub key: Name<'a>,
    /// How many jobs with the key may be reserved while this one is; at least 1.
    pub limit: u32,
}

/// What the counters of a job do not say about its failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failures<'a> {
    /// A rule has sent the job to a dead tube.
    Dead(Dead<'a>),
    /// The job was dead and went back; this number of its failures no longer counts.
    Forgiven(u32),
}

/// A job that a rule has sent to a dead tube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead<'a> {
    /// The tube in which the job failed.
    pub from: Name<'a>,
    /// When the job came into the dead tube, in seconds since 1970.
    pub since_s: u32,
    /// How often the job had failed by then.
    pub failures: u32,
}

/// The tag `aft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After<'a> {
    /// The group that the job waits for.
    pub group: Name<'a>,
    /// Whether the group has had no members at some time since the put. Such a job is never held again.
    pub is_free: bool,
}

macro_rules! field_kinds {
    ($($byte:literal $kind:ident $has_name:literal $number_bytes:literal;)+) => {
        /// The kind of an encoded field. A field consists of these parts:
        ///
        /// | bytes | content | present |
        /// |---|---|---|
        /// | 1 | the kind | always |
        /// | 1 | the length of the name | if the kind has a name |
        /// | 0 to 255 | the name | if the kind has a name |
        /// | 4 | the number, little-endian | if the kind has a number |
        /// | 2 | the thousandths of a second, little-endian | if the kind has fractions of seconds |
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        enum FieldKind {
            $($kind = $byte,)+
        }

        impl FieldKind {
            fn of(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$kind),)+
                    _ => None,
                }
            }

            fn has_name(self) -> bool {
                match self {
                    $(Self::$kind => $has_name,)+
                }
            }

            /// The size of its number in bytes.
            fn number_bytes(self) -> usize {
                match self {
                    $(Self::$kind => $number_bytes,)+
                }
            }
        }
    };
}

// The table of kinds: the byte, whether it has a name, and the size of its number.
field_kinds! {
    1 Idempotency true 0;
    2 IdempotencyWithCooldown true 4;
    3 Concurrency true 0;
    4 ConcurrencyWithLimit true 4;
    5 Group true 0;
    6 After true 0;
    7 AfterFree true 0;
    8 Expiry false 4;
    9 Owner true 0;
    10 IdempotencyWithFraction true 6;
    11 ExpiryWithFraction false 6;
    12 Trace true 0;
    20 Dead true 4;
    21 Failures false 4;
    22 Arrival false 6;
}

impl FieldKind {
    /// The size of a field of this kind in bytes, with a name of `name_len` bytes if it has one.
    fn field_bytes(self, name_len: usize) -> usize {
        1 + if self.has_name() { 1 + name_len } else { 0 } + self.number_bytes()
    }
}

impl TagSet<'_> {
    /// No tags.
    pub const NONE: Self = Self {
        idempotency: None,
        concurrency: None,
        group: None,
        after: None,
        expires_after_s: None,
        trace: None,
    };
}

impl<'a> Deref for JobTags<'a> {
    type Target = TagSet<'a>;

    #[inline]
    fn deref(&self) -> &TagSet<'a> {
        &self.asked
    }
}

impl<'a> From<TagSet<'a>> for JobTags<'a> {
    fn from(asked: TagSet<'a>) -> Self {
        Self { asked, ..Self::NONE }
    }
}

impl<'a> JobTags<'a> {
    /// No tags.
    pub const NONE: Self = Self { asked: TagSet::NONE, owner: None, failures: None, arrived_after_s: None };

    /// The largest encoding of a job's tags, in bytes.
    pub const MAX_BYTES: usize =
        6 * (2 + TubeName::MAX_BYTES) + (6 + 4 + 4) + 2 * (1 + 6) + (2 + Trace::BYTES) + (1 + 4);

    /// Whether there is no tag.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The facts of a job that a rule has sent to a dead tube.
    #[must_use]
    pub fn dead(&self) -> Option<Dead<'a>> {
        if let Some(Failures::Dead(dead)) = self.failures { Some(dead) } else { None }
    }

    /// Appends the encoded tags to `out`.
    ///
    /// # Errors
    /// If the allocator has no memory; `out` is as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TryReserveError> {
        let end = out.len() + self.encoded_len();
        out.try_reserve_exact(end - out.len())?;
        self.each_field(|kind, name, number| {
            out.push(kind as u8);
            if kind.has_name() {
                out.push(name.len() as u8);
                out.extend_from_slice(name.0);
            }
            match kind.number_bytes() {
                0 => {}
                4 => out.extend_from_slice(&number.whole().to_le_bytes()),
                _ => {
                    out.extend_from_slice(&number.whole().to_le_bytes());
                    out.extend_from_slice(&number.thousandths().to_le_bytes());
                }
            }
        });
        debug_assert_eq!(out.len(), end, "the encoded tags have the computed length");
        Ok(())
    }

    /// Calls `field` for each encoded field, with its kind, its name and its number, if it has them. A number of
    /// seconds can have thousandths.
    #[inline]
    fn each_field(&self, mut field: impl FnMut(FieldKind, Name<'a>, Seconds)) {
        const NO: Seconds = Seconds::ZERO;
        if let Some(Idempotency { key, cooldown_s }) = self.idempotency {
            let kind = match cooldown_s {
                Seconds::ZERO => FieldKind::Idempotency,
                whole if whole.thousandths() == 0 => FieldKind::IdempotencyWithCooldown,
                _ => FieldKind::IdempotencyWithFraction,
            };
            field(kind, key, cooldown_s);
        }
        if let Some(Concurrency { key, limit }) = self.concurrency {
            let kind = if limit == 1 { FieldKind::Concurrency } else { FieldKind::ConcurrencyWithLimit };
            field(kind, key, limit.into());
        }
        if let Some(name) = self.group {
            field(FieldKind::Group, name, NO);
        }
        if let Some(After { group, is_free }) = self.after {
            field(if is_free { FieldKind::AfterFree } else { FieldKind::After }, group, NO);
        }
        if let Some(seconds) = self.expires_after_s {
            let is_whole = seconds.thousandths() == 0;
            let kind = if is_whole { FieldKind::Expiry } else { FieldKind::ExpiryWithFraction };
            field(kind, Name(b""), seconds);
        }
        if let Some(trace) = self.trace {
            field(FieldKind::Trace, trace.name(), NO);
        }
        if let Some(name) = self.owner {
            field(FieldKind::Owner, name, NO);
        }
        if let Some(Dead { from, since_s, .. }) = self.dead() {
            field(FieldKind::Dead, from, since_s.into());
        }
        if let Some(Failures::Dead(Dead { failures, .. }) | Failures::Forgiven(failures)) = self.failures {
            field(FieldKind::Failures, Name(b""), failures.into());
        }
        if let Some(seconds) = self.arrived_after_s {
            field(FieldKind::Arrival, Name(b""), seconds);
        }
    }

    /// Sets, in bytes from `encode`, the mark that the group of `after` has had no members. The length of the bytes
    /// does not change.
    pub fn set_free(bytes: &mut [u8]) {
        let mut at = 0;
        while let Some(&[kind, name_len]) = bytes.get(at..at + 2)
            && let Some(kind) = FieldKind::of(kind)
        {
            if kind == FieldKind::After {
                bytes[at] = FieldKind::AfterFree as u8;
            }
            at += kind.field_bytes(name_len.into());
        }
    }

    /// The length of the bytes that `encode` writes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut bytes = 0;
        self.each_field(|kind, name, _| bytes += kind.field_bytes(name.len()));
        bytes
    }

    /// Reads bytes from a disk; `None` if they cannot come from `encode`.
    #[must_use]
    pub fn decode_checked(bytes: &'a [u8]) -> Option<Self> {
        let tags = Self::decode(bytes)?;
        let keys = [tags.idempotency.map(|tag| tag.key), tags.concurrency.map(|tag| tag.key)];
        let groups =
            [tags.group, tags.after.map(|tag| tag.group), tags.owner, tags.dead().map(|dead| dead.from)];
        let are_names = keys.into_iter().chain(groups).flatten().all(|name| Name::check(name.0).is_some())
            && tags.trace.is_none_or(|trace| Trace::check(trace.name().0).is_some());
        // If a field stood twice, or if a number had a shorter form, the encoding of these tags would be shorter.
        (are_names && tags.encoded_len() == bytes.len() && !bytes.is_empty()).then_some(tags)
    }

    /// Reads bytes from `encode`. For other bytes it may return tags that `encode` would not write like that.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut tags = Self::NONE;
        tags.read(bytes).map(|()| tags)
    }

    /// Adds the tags in bytes from `encode`, in place: copies of a set, which is large, would cost more than this.
    fn read(&mut self, mut bytes: &'a [u8]) -> Option<()> {
        while let Some((&kind, rest)) = bytes.split_first() {
            bytes = rest;
            let (kind, asked) = (FieldKind::of(kind)?, &mut self.asked);
            let name = if kind.has_name() { take_name(&mut bytes)? } else { Name(b"") };
            let number = take_number(&mut bytes, kind.number_bytes())?;
            match kind {
                FieldKind::Idempotency
                | FieldKind::IdempotencyWithCooldown
                | FieldKind::IdempotencyWithFraction => {
                    asked.idempotency = Some(Idempotency { key: name, cooldown_s: number });
                }
                FieldKind::Concurrency => asked.concurrency = Some(Concurrency { key: name, limit: 1 }),
                FieldKind::ConcurrencyWithLimit => {
                    asked.concurrency =
                        Some(Concurrency { key: name, limit: number.whole() }).filter(|_| !number.is_zero());
                }
                FieldKind::Group => asked.group = Some(name),
                FieldKind::After | FieldKind::AfterFree => {
                    asked.after = Some(After { group: name, is_free: kind == FieldKind::AfterFree });
                }
                FieldKind::Expiry | FieldKind::ExpiryWithFraction => {
                    asked.expires_after_s = Some(number).filter(|seconds| !seconds.is_zero());
                }
                FieldKind::Trace => asked.trace = Some(Trace::again(name)),
                FieldKind::Owner => self.owner = Some(name),
                // The number of a dead job follows its origin.
                FieldKind::Dead if self.failures.is_some() => return None,
                FieldKind::Dead => {
                    let dead = Dead { from: name, since_s: number.whole(), failures: 0 };
                    self.failures = Some(Failures::Dead(dead));
                }
                FieldKind::Failures => match &mut self.failures {
                    Some(Failures::Dead(dead)) => dead.failures = number.whole(),
                    none => *none = Some(Failures::Forgiven(number.whole())),
                },
                FieldKind::Arrival => self.arrived_after_s = Some(number),
            }
        }
        Some(())
    }

    /// The tag `con` in bytes from `encode`. The other tags are passed over, which costs less than reading them.
    #[must_use]
    pub fn concurrency_in(mut bytes: &'a [u8]) -> Option<Concurrency<'a>> {
        while let &[kind, name_len, ..] = bytes {
            let kind = FieldKind::of(kind)?;
            let (field, rest) = bytes.split_at_checked(kind.field_bytes(name_len.into()))?;
            let key = || Name(&field[2..2 + usize::from(name_len)]);
            if kind == FieldKind::Concurrency {
                return Some(Concurrency { key: key(), limit: 1 });
            }
            if kind == FieldKind::ConcurrencyWithLimit {
                let limit = u32::from_le_bytes(*field.last_chunk()?);
                return (limit > 0).then_some(Concurrency { key: key(), limit });
            }
            bytes = rest;
        }
        None
    }
}

/// The encoded tags of a job, as the queue and the log keep them, with the decoded ones, so that nobody decodes twice.
#[derive(Clone, Copy, Debug)]
pub struct EncodedTags<'a> {
    bytes: &'a [u8],
    set: JobTags<'a>,
}

impl<'a> EncodedTags<'a> {
    /// No tags.
    pub const NONE: Self = Self { bytes: &[], set: JobTags::NONE };

    /// Reads bytes from [`JobTags::encode`]; `None` if they cannot be tags.
    #[must_use]
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut tags = Self { bytes, set: JobTags::NONE };
        tags.set.read(bytes).map(|()| tags)
    }

    /// Encoded tags that have been decoded already.
    #[must_use]
    pub fn of(bytes: &'a [u8], set: JobTags<'a>) -> Self {
        debug_assert_eq!(set.encoded_len(), bytes.len(), "the encoded bytes have the computed length");
        Self { bytes, set }
    }

    /// The bytes; none if there are no tags.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The decoded tags.
    #[must_use]
    pub fn set(&self) -> &JobTags<'a> {
        &self.set
    }
}

fn take_name<'a>(bytes: &mut &'a [u8]) -> Option<Name<'a>> {
    let (&len, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(len))?;
    *bytes = rest;
    Some(Name(name))
}

/// A number of `count` bytes; 0 if `count` is 0.
fn take_number(bytes: &mut &[u8], count: usize) -> Option<Seconds> {
    if count == 0 {
        return Some(Seconds::ZERO);
    }
    let whole = u32::from_le_bytes(take(bytes)?);
    let thousandths = if count == 6 { u16::from_le_bytes(take(bytes)?) } else { 0 };
    (thousandths < 1000).then(|| Seconds::new(whole, thousandths))
}

fn take<const LEN: usize>(bytes: &mut &[u8]) -> Option<[u8; LEN]> {
    let (&first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902B7-01";

    fn encoded(tags: &JobTags<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        tags.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), tags.encoded_len());
        bytes
    }

    fn all_tags(name: &str, number: u32, thousandths: u16) -> JobTags<'_> {
        let name = Name::try_from(name).unwrap();
        let asked = TagSet {
            idempotency: Some(Idempotency { key: name, cooldown_s: Seconds::new(number, thousandths) }),
            concurrency: Some(Concurrency { key: name, limit: number }),
            group: Some(name),
            after: Some(After { group: name, is_free: number.is_multiple_of(2) }),
            expires_after_s: Some(Seconds::new(number, thousandths)),
            trace: Trace::check(TRACE.as_bytes()),
        };
        let failures = Some(Failures::Dead(Dead { from: name, since_s: number, failures: number / 2 }));
        let arrived_after_s = Some(Seconds::new(number, thousandths));
        JobTags { asked, owner: Some(name), failures, arrived_after_s }
    }

    #[test]
    fn tags_read_back_as_they_were_written() {
        let long = "k".repeat(TubeName::MAX_BYTES);
        for tags in [
            all_tags("a", 1, 0),
            all_tags("a", 1, 1),
            all_tags(&long, u32::MAX, 999),
            TagSet { group: Name::check(b"g"), ..TagSet::default() }.into(),
            JobTags { owner: Name::check(b"o"), ..JobTags::default() },
            JobTags { failures: Some(Failures::Forgiven(3)), ..JobTags::default() },
            TagSet {
                idempotency: Some(Idempotency { key: "k".try_into().unwrap(), cooldown_s: Seconds::ZERO }),
                ..TagSet::default()
            }
            .into(),
        ] {
            let bytes = encoded(&tags);
            assert!(bytes.len() <= JobTags::MAX_BYTES);
            assert_eq!(JobTags::decode(&bytes), Some(tags));
            assert_eq!(JobTags::concurrency_in(&bytes), tags.concurrency);
        }
        assert_eq!(encoded(&all_tags(&long, u32::MAX, 999)).len(), JobTags::MAX_BYTES);
    }

    #[test]
    fn the_mark_of_a_free_group_is_set_in_the_encoded_bytes() {
        for mut tags in [JobTags::default(), all_tags("name", 6, 0), all_tags("name", 7, 7)] {
            tags.asked.after = Some(After { group: "g".try_into().unwrap(), is_free: false });
            let mut bytes = encoded(&tags);
            JobTags::set_free(&mut bytes);
            tags.asked.after = Some(After { group: "g".try_into().unwrap(), is_free: true });
            assert_eq!(JobTags::decode(&bytes), Some(tags));
        }
        let (group, expires_after_s) = (Some("\u{36}".try_into().unwrap()), Some(6.into()));
        let mut others = encoded(&TagSet { group, expires_after_s, ..TagSet::default() }.into());
        let before = others.clone();
        JobTags::set_free(&mut others);
        assert_eq!(others, before);
    }

    #[test]
    fn bytes_that_encode_does_not_write_are_refused() {
        assert_eq!(JobTags::decode_checked(b""), None);
        for bad in [
            &b"\x00"[..],
            b"\x09",
            b"\x0c\x01a",
            b"\x0b\x01\x00\x00\x00\x00\x00",
            b"\x0b\x01\x00\x00\x00\xe8\x03",
            b"\x0a\x01a\x01\x00\x00\x00\x00\x00",
            b"\x0a\x01a\x01\x00\x00\x00\x01",
            b"\x05",
            b"\x05\x00",
            b"\x05\x02a",
            b"\x05\x01-",
            b"\x05\x01a\x05\x01a",
            b"\x02\x01a\x00\x00\x00\x00",
            b"\x04\x01a\x01\x00\x00\x00",
            b"\x04\x01a\x00\x00\x00\x00",
            b"\x08\x00\x00\x00\x00",
            b"\x08\x01\x00\x00",
            b"\x14\x01a\x01\x00\x00\x00",
            b"\x15\x01\x00\x00\x00\x14\x01a\x01\x00\x00\x00",
        ] {
            assert_eq!(JobTags::decode_checked(bad), None, "{bad:?}");
        }
        let bytes = encoded(&all_tags("name", 300, 30));
        for end in 1..bytes.len() {
            let cut = JobTags::decode_checked(&bytes[..end]);
            assert!(cut.is_none_or(|tags| encoded(&tags) == bytes[..end]), "cut at {end}");
        }
    }
}
