//! The attachments. Four kinds precede a record and belong to it: the tags of a job, the cooldown that a delete starts,
//! the group that it frees, the number of puts that are one change with it. Four kinds stand alone: a copied cooldown,
//! a group that is free, the end of a cooldown, the session of a reservation.
//!
//! Owns: the layout of the markers that hold the attachments, and of their contents. Driven by the writer and by the
//! replay. The writer appends the first four kinds in one piece with their record, and the replay uses these only if
//! the record follows.

use super::format::{MARKER_ID, MAX_JOB_ID, RECORD_BYTES, SHORT_BYTES, Seal, put, take};
use super::marker::{FIXED_AT, KIND_AT, MAGIC, MAGIC_AT};
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::tags::{JobTags, TagSet};
use crate::tube_name::TubeName;
use crate::wall_clock::{WallOffset, WallTime};

/// Offsets in the fixed part, as in doc/binlog.md: of the job's id, of the number of the part, and of the length of the
/// whole attachment.
const JOB_AT: usize = 16;
const NUMBER_AT: usize = 73;
const TOTAL_AT: usize = 74;

/// How many bytes one marker holds: after the job's id and after the tag of the seal.
const PART_BYTES: usize = FIRST_BYTES + SECOND_BYTES;
const FIRST_AT: usize = 24;
const FIRST_BYTES: usize = 12;
const SECOND_AT: usize = 40;
const SECOND_BYTES: usize = 32;

/// A cooldown with the longest names: its end, the tube's name with its length, the key.
const MAX_COOLDOWN_BYTES: usize = 8 + 1 + 2 * TubeName::MAX_BYTES;
/// The bytes that precede the names of a session: the end of the reservation, its number, the grace, the length of the
/// identity.
const SESSION_HEAD_BYTES: usize = 8 + 4 + 4 + 1;
/// A session with the longest names.
const MAX_SESSION_BYTES: usize = SESSION_HEAD_BYTES + 2 * TubeName::MAX_BYTES;
const _: () = assert!(MAX_SESSION_BYTES <= MAX_BYTES);
/// The short records of such a session.
pub(super) const MAX_SESSION_UNITS: u64 = MAX_SESSION_BYTES.div_ceil(PART_BYTES) as u64;
/// The maximum length of an attachment.
const MAX_BYTES: usize = JobTags::MAX_BYTES;
const _: () = assert!(MAX_COOLDOWN_BYTES <= MAX_BYTES && MAX_BYTES.div_ceil(PART_BYTES) <= u8::MAX as usize);

/// The maximum number of short records for a delete: for a cooldown, for a group that it frees, and for itself. One
/// more says how many puts are one change with it, if there are any.
pub(super) const MAX_DELETE_UNITS: u64 =
    (MAX_COOLDOWN_BYTES.div_ceil(PART_BYTES) + TubeName::MAX_BYTES.div_ceil(PART_BYTES) + 1) as u64;

/// The cooldown of an idempotency key: the key still counts, although its job in `tube` was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say everything")]
pub struct Cooldown<'a> {
    pub tube: &'a str,
    pub key: &'a str,
    pub until: Timestamp,
}

/// The side effects of a delete. The log keeps them and the delete as one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideEffects<'a> {
    /// The cooldown that it starts, if it starts one.
    pub cooldown: Option<Cooldown<'a>>,
    /// The group of which the job was the last member: the jobs that wait for it become free.
    pub freed_group: Option<&'a str>,
    /// How many puts, which have been logged directly before it, are one change with it.
    pub completes: Option<u8>,
}

/// A reservation that belongs to the session `name` of `identity`, so that it outlives the server. In the log, its end
/// is a time of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct LoggedReservation<'a, Time = Timestamp> {
    pub until: Time,
    /// The job's counter of reservations, including this one. It distinguishes this reservation from others of the job.
    pub reserves: u32,
    /// How long the session lasts without a client, in milliseconds.
    pub grace_ms: u32,
    pub identity: &'a str,
    pub name: &'a str,
}

/// The kind of an attachment. The numbers continue those of [`MarkerKind`](super::marker::MarkerKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachmentKind {
    /// The tags of the job whose full record follows.
    Tags = 7,
    /// The cooldown that the following delete starts.
    DeleteCooldown = 8,
    /// The group that the following delete frees.
    DeleteFrees = 9,
    /// A copied cooldown: it needs no record.
    Cooldown = 10,
    /// A group that was found without members: it needs no record.
    Frees = 11,
    /// The end of the job's cooldown: it needs no record.
    Forgets = 12,
    /// The session that has reserved the job: it needs no record, and means that the job is reserved.
    Session = 13,
    /// How many full records directly before it form one change with the delete that follows.
    Completes = 14,
}

impl AttachmentKind {
    const ALL: [Self; 8] = [
        Self::Tags,
        Self::DeleteCooldown,
        Self::DeleteFrees,
        Self::Cooldown,
        Self::Frees,
        Self::Forgets,
        Self::Session,
        Self::Completes,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether it counts as soon as all its parts have been read.
    pub(super) fn stands_alone(self) -> bool {
        matches!(self, Self::Cooldown | Self::Frees | Self::Forgets | Self::Session)
    }
}

/// The number of markers that hold `len` bytes; an attachment without bytes has one.
pub(super) fn parts(len: usize) -> u64 {
    len.div_ceil(PART_BYTES).max(1) as u64
}

/// Length of the markers for tags of `len` bytes; 0 without tags.
pub(super) fn tag_record_bytes(len: usize) -> u64 {
    if len == 0 { 0 } else { parts(len) * SHORT_BYTES }
}

/// One marker of an attachment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) kind: AttachmentKind,
    /// The job to which it belongs; 0 if there is none.
    pub(super) job: JobId,
    /// The number of the part in its attachment, from 0.
    pub(super) number: u8,
    /// Length of the whole attachment in bytes.
    pub(super) total: u16,
    bytes: [u8; PART_BYTES],
}

impl Part {
    /// The markers that hold `bytes`, at most [`MAX_BYTES`] of them.
    pub(super) fn all(kind: AttachmentKind, job: JobId, bytes: &[u8]) -> impl Iterator<Item = Self> {
        debug_assert!(bytes.len() <= MAX_BYTES, "an attachment has a bound");
        (0..parts(bytes.len())).map(move |number| {
            let rest = &bytes[number as usize * PART_BYTES..];
            let mut part =
                Self { kind, job, number: number as u8, total: bytes.len() as u16, bytes: [0; PART_BYTES] };
            let len = rest.len().min(PART_BYTES);
            part.bytes[..len].copy_from_slice(&rest[..len]);
            part
        })
    }

    /// The bytes of the marker at `offset` of the file with this `seal`.
    pub(super) fn encode(&self, seal: Seal, offset: u64) -> [u8; SHORT_BYTES as usize] {
        let mut bytes = [0; SHORT_BYTES as usize];
        let fixed = &mut bytes[FIXED_AT..];
        put(fixed, 0, MARKER_ID.to_le_bytes());
        put(fixed, MAGIC_AT, MAGIC.to_le_bytes());
        put(fixed, JOB_AT, self.job.0.to_le_bytes());
        put(fixed, FIRST_AT, take::<FIRST_BYTES>(&self.bytes, 0));
        put(fixed, SECOND_AT, take::<SECOND_BYTES>(&self.bytes, FIRST_BYTES));
        put(fixed, KIND_AT, [self.kind as u8]);
        put(fixed, NUMBER_AT, [self.number]);
        put(fixed, TOTAL_AT, self.total.to_le_bytes());
        seal.apply(&mut bytes, FIXED_AT, offset);
        bytes
    }

    /// Reads the fixed part of a marker with a valid seal; `None` if it is not part of an attachment.
    pub(super) fn decode(fixed: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut bytes = [0; PART_BYTES];
        put(&mut bytes, 0, take::<FIRST_BYTES>(fixed, FIRST_AT));
        put(&mut bytes, FIRST_BYTES, take::<SECOND_BYTES>(fixed, SECOND_AT));
        let part = Self {
            kind: AttachmentKind::of(fixed[KIND_AT])?,
            job: JobId(u64::from_le_bytes(take(fixed, JOB_AT))),
            number: fixed[NUMBER_AT],
            total: u16::from_le_bytes(take(fixed, TOTAL_AT)),
            bytes,
        };
        let is_within =
            usize::from(part.total) <= MAX_BYTES && u64::from(part.number) < parts(part.total.into());
        let is_sound = is_within && part.job.0 <= MAX_JOB_ID;
        (is_sound && take::<4>(fixed, MAGIC_AT) == MAGIC.to_le_bytes()).then_some(part)
    }

    /// The bytes of the attachment in this part.
    pub(super) fn payload(&self) -> &[u8] {
        let rest = usize::from(self.total).saturating_sub(usize::from(self.number) * PART_BYTES);
        &self.bytes[..rest.min(PART_BYTES)]
    }

    /// Whether it comes next after `before` in the same attachment.
    pub(super) fn follows(&self, before: &Self) -> bool {
        (self.kind, self.job, self.total) == (before.kind, before.job, before.total)
            && u32::from(self.number) == u32::from(before.number) + 1
    }

    /// Whether it is the last part of its attachment.
    pub(super) fn is_last(&self) -> bool {
        u64::from(self.number) + 1 == parts(self.total.into())
    }
}

impl Cooldown<'_> {
    /// The encoding in the log: the end on the wall clock, the length of the tube's name, the name, the key.
    pub(super) fn encode(&self, wall: WallOffset) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(cooldown_bytes(self.tube.len(), self.key.len()));
        bytes.extend_from_slice(&wall.to_disk(self.until).0.to_le_bytes());
        bytes.push(self.tube.len() as u8);
        bytes.extend_from_slice(self.tube.as_bytes());
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.into_boxed_slice()
    }
}

/// Length of the output of [`Cooldown::encode`].
fn cooldown_bytes(tube_len: usize, key_len: usize) -> usize {
    8 + 1 + tube_len + key_len
}

/// A cooldown in the encoding of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedCooldown<'a> {
    pub(super) tube: &'a str,
    pub(super) key: &'a str,
    pub(super) until: WallTime,
}

impl<'a> LoggedCooldown<'a> {
    /// Reads bytes from [`Cooldown::encode`], or from a disk; `None` if they are not a cooldown.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (until, rest) = bytes.split_first_chunk()?;
        let (&tube_len, rest) = rest.split_first()?;
        let (tube, key) = rest.split_at_checked(tube_len.into())?;
        Some(Self {
            tube: TubeName::check(tube)?.as_str(),
            key: TubeName::check(key)?.as_str(),
            until: WallTime(i64::from_le_bytes(*until)),
        })
    }
}

impl LoggedReservation<'_> {
    /// The encoding in the log. Names that are too long for it, which no identity has, are cut off.
    pub(super) fn encode(&self, wall: WallOffset) -> Vec<u8> {
        let identity = &self.identity.as_bytes()[..self.identity.len().min(TubeName::MAX_BYTES)];
        let mut bytes = Vec::with_capacity(SESSION_HEAD_BYTES + identity.len() + self.name.len());
        bytes.extend_from_slice(&wall.to_disk(self.until).0.to_le_bytes());
        bytes.extend_from_slice(&self.reserves.to_le_bytes());
        bytes.extend_from_slice(&self.grace_ms.to_le_bytes());
        bytes.push(identity.len() as u8);
        bytes.extend_from_slice(identity);
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// Length of the output of [`LoggedReservation::encode`].
    fn bytes(identity_len: usize, name_len: usize) -> usize {
        SESSION_HEAD_BYTES + identity_len.min(TubeName::MAX_BYTES) + name_len
    }

    /// Length of the markers of a session whose identity and name have these lengths.
    pub(super) fn record_bytes(identity_len: usize, name_len: usize) -> u64 {
        parts(Self::bytes(identity_len, name_len)) * SHORT_BYTES
    }
}

impl<'a> LoggedReservation<'a, WallTime> {
    /// Reads bytes from [`LoggedReservation::encode`], or from a disk; `None` if they are not a session.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (until, rest) = bytes.split_first_chunk()?;
        let (reserves, rest) = rest.split_first_chunk()?;
        let (grace_ms, rest) = rest.split_first_chunk()?;
        let (&identity_len, rest) = rest.split_first()?;
        let (identity, name) = rest.split_at_checked(identity_len.into())?;
        Some(Self {
            until: WallTime(i64::from_le_bytes(*until)),
            reserves: u32::from_le_bytes(*reserves),
            grace_ms: u32::from_le_bytes(*grace_ms),
            identity: std::str::from_utf8(identity).ok()?,
            name: TubeName::check(name)?.as_str(),
        })
    }
}

/// How many short records the delete of a job with these tags may need in addition to its own, including the one that
/// later ends the cooldown.
pub(super) fn side_effect_units(tube_len: usize, tags: &TagSet<'_>) -> u8 {
    let cooldown = tags.idempotency.filter(|tag| !tag.cooldown_s.is_zero());
    let cooldown = cooldown.map_or(0, |tag| parts(cooldown_bytes(tube_len, tag.key.len())) + 1);
    let group = tags.group.map_or(0, |group| parts(group.len()));
    (cooldown + group) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::Name;

    #[test]
    fn the_parts_of_an_attachment_read_back_at_every_length() {
        let seal = Seal { nonce: 7 };
        for len in 0..=MAX_BYTES {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
            let mut back = Vec::new();
            let all: Vec<Part> = Part::all(AttachmentKind::Tags, JobId(1 << 40), &bytes).collect();
            assert_eq!(all.len() as u64, parts(len));
            for (at, part) in all.iter().enumerate() {
                let encoded = part.encode(seal, 84);
                assert!(seal.matches(&encoded, FIXED_AT, 84));
                let read = Part::decode(&take(&encoded, FIXED_AT)).unwrap();
                assert_eq!(
                    (read.kind, read.job, usize::from(read.number)),
                    (AttachmentKind::Tags, JobId(1 << 40), at)
                );
                assert_eq!(read.is_last(), at + 1 == all.len());
                back.extend_from_slice(read.payload());
            }
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn parts_beyond_the_bounds_are_refused() {
        let part = Part::all(AttachmentKind::Tags, JobId(1), &[1; 50]).last().unwrap();
        let fixed = |part: Part| take(&part.encode(Seal { nonce: 1 }, 0), FIXED_AT);
        assert!(Part::decode(&fixed(part)).is_some());
        assert!(Part::decode(&fixed(Part { number: 2, ..part })).is_none());
        assert!(Part::decode(&fixed(Part { total: 44, ..part })).is_none());
        assert!(Part::decode(&fixed(Part { total: MAX_BYTES as u16 + 1, ..part })).is_none());
        let mut unknown: [u8; RECORD_BYTES] = fixed(part);
        unknown[KIND_AT] = AttachmentKind::Completes as u8 + 1;
        assert!(Part::decode(&unknown).is_none());
    }

    #[test]
    fn a_cooldown_reads_back_and_nothing_else_is_one() {
        let long = "k".repeat(TubeName::MAX_BYTES);
        for (tube, key) in [("t", "k"), (long.as_str(), long.as_str())] {
            let cooldown = Cooldown { tube, key, until: Timestamp(5) };
            let bytes = cooldown.encode(WallOffset(100));
            assert_eq!(
                LoggedCooldown::decode(&bytes),
                Some(LoggedCooldown { tube, key, until: WallTime(105) })
            );
            assert!(bytes.len() <= MAX_COOLDOWN_BYTES);
        }
        let bytes = Cooldown { tube: "tube", key: "k", until: Timestamp(5) }.encode(WallOffset(0));
        for end in 0..bytes.len() {
            assert_eq!(LoggedCooldown::decode(&bytes[..end]), None);
        }
    }

    #[test]
    fn a_session_reads_back_and_nothing_shorter_is_one() {
        let long = "n".repeat(TubeName::MAX_BYTES);
        for (identity, name) in [("", "w"), ("(anonymous.unix)", "worker-7"), (long.as_str(), long.as_str())]
        {
            let reservation =
                LoggedReservation { until: Timestamp(5_000), reserves: 3, grace_ms: 1_500, identity, name };
            let bytes = reservation.encode(WallOffset(100));
            let LoggedReservation { reserves, grace_ms, .. } = reservation;
            let logged = LoggedReservation { until: WallTime(5_100), reserves, grace_ms, identity, name };
            assert_eq!(LoggedReservation::decode(&bytes), Some(logged));
            assert_eq!(bytes.len(), LoggedReservation::bytes(identity.len(), name.len()));
            for end in 0..bytes.len() - name.len() {
                assert_eq!(LoggedReservation::decode(&bytes[..end]), None);
            }
        }
    }

    #[test]
    fn a_delete_needs_as_much_room_as_its_tags_may_ask_for() {
        let long = "k".repeat(TubeName::MAX_BYTES);
        let units = |tube_len, tags: TagSet<'_>| side_effect_units(tube_len, &tags);
        let idempotency = |key, cooldown_s| Some(crate::tags::Idempotency { key, cooldown_s });
        let (key, long) = (Name::try_from("k").unwrap(), Name::try_from(&*long).unwrap());
        let none = TagSet::default();
        assert_eq!(units(7, TagSet { idempotency: idempotency(key, 0.into()), ..none }), 0);
        assert_eq!(units(7, TagSet { idempotency: idempotency(key, 1.into()), ..none }), 2);
        assert_eq!(units(7, TagSet { group: Name::check(b"g"), ..none }), 1);
        assert_eq!(
            u64::from(units(
                200,
                TagSet { idempotency: idempotency(long, 1.into()), group: Some(long), ..none }
            )),
            MAX_DELETE_UNITS
        );
        assert_eq!(units(7, none), 0);
    }
}
