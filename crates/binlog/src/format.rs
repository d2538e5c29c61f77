//! The bytes of a binlog file: version 7 as C beanstalkd writes it, version 5 as it still reads it.
//!
//! Owns: offsets, widths and the meaning of each field, and the seal (checksum and tag) that this server puts into the
//! padding. It sees one record at a time, and does not decide what a bad record means. `doc/binlog.md` describes the
//! same layout in tables.

use crate::job::{Counters, JobId, JobRecord, JobState};
use crate::seconds::Seconds;
use crate::tube_name::TubeName;
use crate::wall_clock::{WallOffset, WallTime};

/// The version that the server writes.
pub(crate) const VERSION: i32 = 7;
/// The version of C beanstalkd 1.4.6, which the server only reads.
pub(crate) const VERSION_5: i32 = 5;
/// Length of the version at the start of a file.
pub(crate) const VERSION_BYTES: u64 = 4;
/// Length of the fixed part of a version 7 record, without the name's length.
pub(crate) const RECORD_BYTES: usize = 80;
/// Length of the fixed part of a version 5 record.
pub(crate) const RECORD_5_BYTES: usize = 77;
/// Length of a short record: a name length of 0 and the fixed part.
pub(crate) const SHORT_BYTES: u64 = 4 + RECORD_BYTES as u64;
/// The line end that is stored after each body and counted in its size.
pub(crate) const TRAILER: &[u8; 2] = b"\r\n";
/// The job id that makes a short record a marker: C ignores short records of jobs it does not know.
pub(crate) const MARKER_ID: u64 = u64::MAX;
/// The largest id that a job can have: a thousand million puts a second reach it in 292 years. A record with a larger
/// id is damaged; a server that continued from there would soon have no ids left.
pub(crate) const MAX_JOB_ID: u64 = i64::MAX as u64;
/// The largest body whose size, with the trailer, the format can hold.
pub(crate) const MAX_BODY_BYTES: usize = i32::MAX as usize - TRAILER.len();

/// Offset of the padding that holds the checksum.
const CHECKSUM: usize = 12;
/// Offset of the padding that holds the lower 32 bits of the tag.
const TAG_LOW: usize = 36;
/// Offset of the padding that holds the upper 24 bits of the tag.
const TAG_HIGH: usize = 77;

/// Length of the data that the checksum covers before the record: nonce and offset.
const PREFIX_BYTES: usize = 16;
/// How many bytes of a record are copied, with its position, to compute the checksum: enough for every record without
/// its body, and for most whole records.
const COPIED_BYTES: usize = 512;
const _: () = assert!(COPIED_BYTES >= PREFIX_BYTES + 4 + TubeName::MAX_BYTES + RECORD_BYTES);

/// Bytes that begin at a multiple of eight; the checksum reads eight at a time.
#[repr(align(8))]
struct Aligned([u8; COPIED_BYTES]);

/// The state of a deleted job.
const STATE_DELETED: u8 = 0;
const STATE_READY: u8 = 1;
const STATE_RESERVED: u8 = 2;
const STATE_BURIED: u8 = 3;
const STATE_DELAYED: u8 = 4;
/// In a full record after tags, the time to run consists of thousandths of a second and this remainder, in ns. C runs
/// the job for a nanosecond longer; its records have no ignored field that could be used instead.
const TAGGED_NS: i64 = 1;
/// In a full record that counts only with the delete that ends a `complete`, the remainder in the time to run, in ns.
const PART_OF_COMPLETE_NS: i64 = 2;

/// Length of a full record.
#[must_use]
pub(crate) fn full_record_bytes(tube_len: usize, body_len: usize) -> u64 {
    SHORT_BYTES + tube_len as u64 + body_len as u64 + TRAILER.len() as u64
}

/// What a record says about its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedState {
    /// The job's state after a restart: a reserved job is ready again.
    Live(JobState),
    /// The job is deleted.
    Deleted(DeleteKind),
}

/// What belongs to a delete. On disk it is the length of the body: C ignores it in a delete, and its deletes have none
/// of the numbers below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleteKind {
    /// Nothing, as in every delete of C's.
    Plain,
    /// The full record of the job in another tube follows. The record is a delete for C alone.
    Departure,
    /// Attachments precede it: the cooldown that it starts, or the group that it frees.
    WithSideEffects,
    /// It ends a `complete`, whose puts and attachments precede it.
    Completion,
}

impl DeleteKind {
    fn to_disk(self) -> i32 {
        match self {
            Self::Plain => 0,
            Self::Departure => -1,
            Self::WithSideEffects => -2,
            Self::Completion => -3,
        }
    }

    fn of_disk(body_size: i32) -> Self {
        match body_size {
            -1 => Self::Departure,
            -2 => Self::WithSideEffects,
            -3 => Self::Completion,
            _ => Self::Plain,
        }
    }
}

/// The fixed part of a record, with the fields in their order on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskRecord {
    /// The job's id; 0 at the end of the file, [`MARKER_ID`] in a marker.
    pub id: u64,
    pub priority: u32,
    pub delay_ns: i64,
    pub ttr_ns: i64,
    /// Length of the job's body in bytes, with the trailer; in a delete, its [`DeleteKind`].
    pub body_size: i32,
    pub created_at: WallTime,
    /// When its delay or reservation ends; for a job that this server buried, the time of the burial, which preserves
    /// the order of burial across copies.
    pub deadline_at: WallTime,
    pub counters: Counters,
    /// One of [`STATE_DELETED`] to [`STATE_DELAYED`]; others are damage.
    state: u8,
}

impl DiskRecord {
    /// The short record that deletes job `id`. C reads only the id and the state of a delete.
    #[must_use]
    pub(crate) fn delete(id: JobId, kind: DeleteKind) -> Self {
        Self { id: id.0, state: STATE_DELETED, body_size: kind.to_disk(), ..Self::default() }
    }

    /// The record without the marks of this server: in a record of C's, the same bits mean nothing.
    #[must_use]
    pub(crate) fn without_marks(self) -> Self {
        let ttr_ns = self.ttr_ns & !(TAGGED_NS | PART_OF_COMPLETE_NS);
        let body_size =
            if self.state == STATE_DELETED { DeleteKind::Plain.to_disk() } else { self.body_size };
        Self { ttr_ns, body_size, ..self }
    }

    /// Marks this full record as valid only together with the delete that ends its `complete`.
    #[must_use]
    pub(crate) fn as_part_of_complete(self) -> Self {
        Self { ttr_ns: self.ttr_ns + PART_OF_COMPLETE_NS, ..self }
    }

    /// Whether the full record counts only with such a delete.
    #[must_use]
    pub(crate) fn is_part_of_complete(&self) -> bool {
        self.ttr_ns & PART_OF_COMPLETE_NS != 0
    }

    /// Marks this full record as preceded by its job's tags.
    #[must_use]
    pub(crate) fn with_tags(self) -> Self {
        Self { ttr_ns: self.ttr_ns + TAGGED_NS, ..self }
    }

    /// Whether tags precede the full record.
    #[must_use]
    pub(crate) fn has_tags(&self) -> bool {
        // Thousandths of a second are multiples of four nanoseconds.
        self.ttr_ns & TAGGED_NS != 0
    }

    /// The record of `job`, whose body has `body_len` bytes.
    #[must_use]
    pub(crate) fn of_job(job: &JobRecord, body_len: usize, wall: WallOffset) -> Self {
        Self {
            id: job.id.0,
            priority: job.priority.0,
            delay_ns: job.delay_s.as_ns() as i64,
            ttr_ns: job.ttr_s.as_ns() as i64,
            body_size: i32::try_from(body_len + TRAILER.len()).unwrap_or(i32::MAX),
            created_at: wall.to_disk(job.created_at),
            deadline_at: match job.state {
                JobState::Reserved | JobState::Delayed => wall.to_disk(job.deadline_at),
                JobState::Ready | JobState::Buried => WallTime::EPOCH,
            },
            counters: job.counters,
            state: match job.state {
                JobState::Ready => STATE_READY,
                JobState::Reserved => STATE_RESERVED,
                JobState::Buried => STATE_BURIED,
                JobState::Delayed => STATE_DELAYED,
            },
        }
    }

    /// Whether it records the job's reservation with this number.
    pub(crate) fn is_reservation(&self, reserves: u32) -> bool {
        self.state == STATE_RESERVED && self.counters.reserves == reserves
    }

    /// What it says about the job; `None` if the format does not have the state.
    #[must_use]
    pub(crate) fn logged_state(&self) -> Option<LoggedState> {
        match self.state {
            STATE_DELETED => Some(LoggedState::Deleted(DeleteKind::of_disk(self.body_size))),
            STATE_READY | STATE_RESERVED => Some(LoggedState::Live(JobState::Ready)),
            STATE_BURIED => Some(LoggedState::Live(JobState::Buried)),
            STATE_DELAYED => Some(LoggedState::Live(JobState::Delayed)),
            _ => None,
        }
    }

    /// The job's delay.
    #[must_use]
    pub(crate) fn delay_s(&self) -> Seconds {
        Seconds::of_ns(self.delay_ns)
    }

    /// The job's time to run, at least 1 second.
    #[must_use]
    pub(crate) fn ttr_s(&self) -> Seconds {
        Seconds::of_ns(self.ttr_ns).at_least_one()
    }

    /// The fixed part of a version 7 record, its padding zero.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        put(&mut bytes, 0, self.id.to_le_bytes());
        put(&mut bytes, 8, self.priority.to_le_bytes());
        put(&mut bytes, 16, self.delay_ns.to_le_bytes());
        put(&mut bytes, 24, self.ttr_ns.to_le_bytes());
        put(&mut bytes, 32, self.body_size.to_le_bytes());
        put(&mut bytes, 40, self.created_at.0.to_le_bytes());
        put(&mut bytes, 48, self.deadline_at.0.to_le_bytes());
        put(&mut bytes, 56, self.counters.reserves.to_le_bytes());
        put(&mut bytes, 60, self.counters.timeouts.to_le_bytes());
        put(&mut bytes, 64, self.counters.releases.to_le_bytes());
        put(&mut bytes, 68, self.counters.buries.to_le_bytes());
        put(&mut bytes, 72, self.counters.kicks.to_le_bytes());
        bytes[76] = self.state;
        bytes
    }

    /// Reads the fixed part of a version 7 record and ignores its padding.
    #[must_use]
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        Self {
            id: u64::from_le_bytes(take(bytes, 0)),
            priority: u32::from_le_bytes(take(bytes, 8)),
            delay_ns: i64::from_le_bytes(take(bytes, 16)),
            ttr_ns: i64::from_le_bytes(take(bytes, 24)),
            body_size: i32::from_le_bytes(take(bytes, 32)),
            created_at: WallTime(i64::from_le_bytes(take(bytes, 40))),
            deadline_at: WallTime(i64::from_le_bytes(take(bytes, 48))),
            counters: Counters {
                reserves: u32::from_le_bytes(take(bytes, 56)),
                timeouts: u32::from_le_bytes(take(bytes, 60)),
                releases: u32::from_le_bytes(take(bytes, 64)),
                buries: u32::from_le_bytes(take(bytes, 68)),
                kicks: u32::from_le_bytes(take(bytes, 72)),
            },
            state: bytes[76],
        }
    }

    /// Reads the fixed part of a version 5 record: the same offsets, but times in microseconds and no
    /// padding at the end.
    #[must_use]
    pub(crate) fn decode_5(bytes: &[u8; RECORD_5_BYTES]) -> Self {
        let mut wide = [0; RECORD_BYTES];
        wide[..RECORD_5_BYTES].copy_from_slice(bytes);
        let record = Self::decode(&wide);
        let ns = |us: i64| us.saturating_mul(1000);
        Self {
            delay_ns: ns(record.delay_ns),
            ttr_ns: ns(record.ttr_ns),
            created_at: WallTime(ns(record.created_at.0)),
            deadline_at: WallTime(ns(record.deadline_at.0)),
            ..record
        }
    }
}

/// Copies `field` into `bytes` at `at`.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// The `N` bytes of `bytes` at `at`.
pub(super) fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// The seal of a file, which ties a record to its position through the random nonce of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub nonce: u64,
}

impl Seal {
    /// The seal of the file in which this whole record was written at `offset`; `None` if the record has none. The tag
    /// contains all of the nonce except eight bits.
    #[must_use]
    pub(crate) fn of(record: &[u8], fixed_at: usize, offset: u64) -> Option<Self> {
        let fixed: [u8; RECORD_BYTES] = take(record, fixed_at);
        let tag = u64::from(u32::from_le_bytes(take(&fixed, TAG_LOW)));
        let high = take::<3>(&fixed, TAG_HIGH);
        let tag = tag | u64::from(u32::from_le_bytes([high[0], high[1], high[2], 0])) << 32;
        let seals = (0..=0xFF).map(|low| Self { nonce: unmix(tag << 8 | low) ^ spread(offset) });
        { seals }.find(|seal| seal.matches(record, fixed_at, offset))
    }

    /// Seals a whole record, from the name's length to the end of the body: fills the padding, which is zero, of the
    /// fixed part at `fixed_at`.
    pub(crate) fn apply(self, record: &mut [u8], fixed_at: usize, offset: u64) {
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&self.prefix(offset)), record);
        let tag = self.tag(offset);
        put(record, fixed_at + CHECKSUM, checksum.to_le_bytes());
        put(record, fixed_at + TAG_LOW, (tag as u32).to_le_bytes());
        record[fixed_at + TAG_HIGH..fixed_at + RECORD_BYTES].copy_from_slice(&tag.to_le_bytes()[4..7]);
    }

    /// Whether the tag in the fixed part shows that the record was written at `offset` of this file.
    #[must_use]
    pub(crate) fn tag_matches(self, fixed: &[u8; RECORD_BYTES], offset: u64) -> bool {
        let tag = self.tag(offset).to_le_bytes();
        fixed[TAG_LOW..TAG_LOW + 4] == tag[..4] && fixed[TAG_HIGH..] == tag[4..7]
    }

    /// Whether a whole record, from the name's length to the end of the body, is exactly the one that was written at
    /// `offset` of this file.
    #[must_use]
    pub(crate) fn matches(self, record: &[u8], fixed_at: usize, offset: u64) -> bool {
        let stored_fixed: [u8; RECORD_BYTES] = take(record, fixed_at);
        if !self.tag_matches(&stored_fixed, offset) {
            return false;
        }
        // The position and the record, with zeros for its padding, in one aligned piece as far as they fit: the
        // checksum of a piece costs most if the piece begins or ends in the middle of eight bytes.
        let mut copy = Aligned([0; COPIED_BYTES]);
        let (copied, rest) = record.split_at(record.len().min(COPIED_BYTES - PREFIX_BYTES));
        let copy = &mut copy.0[..PREFIX_BYTES + copied.len()];
        copy[..PREFIX_BYTES].copy_from_slice(&self.prefix(offset));
        copy[PREFIX_BYTES..].copy_from_slice(copied);
        let fixed = &mut copy[PREFIX_BYTES + fixed_at..PREFIX_BYTES + fixed_at + RECORD_BYTES];
        put(fixed, CHECKSUM, [0; 4]);
        put(fixed, TAG_LOW, [0; 4]);
        put(fixed, TAG_HIGH, [0; 3]);
        let mut checksum = crc32c::crc32c(copy);
        if !rest.is_empty() {
            checksum = crc32c::crc32c_append(checksum, rest);
        }
        checksum == u32::from_le_bytes(take(&stored_fixed, CHECKSUM))
    }

    /// The bytes that the checksum covers before the record.
    fn prefix(self, offset: u64) -> [u8; PREFIX_BYTES] {
        let mut prefix = [0; PREFIX_BYTES];
        put(&mut prefix, 0, self.nonce.to_le_bytes());
        put(&mut prefix, 8, offset.to_le_bytes());
        prefix
    }

    /// 56 bits that are different at each offset and in each file.
    fn tag(self, offset: u64) -> u64 {
        mix(self.nonce ^ spread(offset)) >> 8
    }
}

/// Numbers that differ in all bits for offsets that differ in few.
fn spread(offset: u64) -> u64 {
    offset.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Spreads every bit of `value` over all bits of the result (the finisher of SplitMix64).
#[must_use]
pub(crate) fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The value for which [`mix`] returns `mixed`: the factors are the inverse ones.
fn unmix(mixed: u64) -> u64 {
    let mut value = (mixed ^ (mixed >> 31) ^ (mixed >> 62)).wrapping_mul(0x3196_42B2_D24D_8EC3);
    value = (value ^ (value >> 27) ^ (value >> 54)).wrapping_mul(0x96DE_1B17_3F11_9089);
    value = value ^ (value >> 30) ^ (value >> 60);
    value.wrapping_sub(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> DiskRecord {
        DiskRecord {
            id: 0x0102_0304_0506_0708,
            priority: 0x1112_1314,
            delay_ns: 0x2122_2324_2526_2728,
            ttr_ns: 0x3132_3334_3536_3738,
            body_size: 0x4142_4344,
            created_at: WallTime(0x5152_5354_5556_5758),
            deadline_at: WallTime(0x6162_6364_6566_6768),
            counters: Counters { reserves: 1, timeouts: 2, releases: 3, buries: 4, kicks: 5 },
            state: STATE_BURIED,
        }
    }

    #[test]
    fn every_field_stands_where_version_7_has_it() {
        let bytes = sample().encode();
        let expected: &[u8] = &[
            8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0, 0, 0, 0, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
            0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0, 0, 0, 0,
            0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61,
            1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(DiskRecord::decode(&bytes), sample());
    }

    #[test]
    fn a_delete_record_has_its_kind_and_a_delete_record_of_c_is_plain() {
        use DeleteKind::{Completion, Departure, Plain, WithSideEffects};
        for (kind, body_size) in [(Plain, 0), (Departure, -1), (WithSideEffects, -2), (Completion, -3)] {
            let record = DiskRecord::delete(JobId(7), kind);
            assert_eq!((record.id, record.body_size), (7, body_size));
            assert_eq!(record.logged_state(), Some(LoggedState::Deleted(kind)));
        }
        for body_size in [2, 65_537, i32::MAX, -4, i32::MIN] {
            let record = DiskRecord { body_size, ..DiskRecord::delete(JobId(7), Plain) };
            assert_eq!(record.logged_state(), Some(LoggedState::Deleted(Plain)), "{body_size}");
        }
    }

    #[test]
    fn version_5_counts_in_microseconds() {
        let five = DiskRecord { delay_ns: 2_000_000, ttr_ns: 3_000_000, ..sample() };
        let read = DiskRecord::decode_5(&take(&five.encode(), 0));
        assert_eq!((read.delay_ns, read.ttr_ns), (2_000_000_000, 3_000_000_000));
        assert_eq!(read.created_at, WallTime(i64::MAX), "a time beyond the clock stops at its end");
    }

    #[test]
    fn a_seal_breaks_with_every_bit_and_at_every_other_offset() {
        let seal = Seal { nonce: 0xFEED };
        let mut record = Vec::from(5_i32.to_le_bytes());
        record.extend_from_slice(b"tubes");
        record.extend_from_slice(&sample().encode());
        record.extend_from_slice(b"body\r\n");
        seal.apply(&mut record, 9, 4096);
        assert!(seal.matches(&record, 9, 4096));
        assert!(!seal.matches(&record, 9, 4097));
        assert!(!Seal { nonce: 0xFEEC }.matches(&record, 9, 4096));
        // The record does not fit into one piece.
        let mut long = record.clone();
        long.resize(3 * COPIED_BYTES, 7);
        long[9 + CHECKSUM..9 + CHECKSUM + 4].fill(0);
        long[9 + TAG_LOW..9 + TAG_LOW + 4].fill(0);
        long[9 + TAG_HIGH..9 + RECORD_BYTES].fill(0);
        seal.apply(&mut long, 9, 4096);
        for byte in [0, 9, COPIED_BYTES - PREFIX_BYTES - 1, COPIED_BYTES - PREFIX_BYTES, long.len() - 1] {
            assert!(seal.matches(&long, 9, 4096));
            long[byte] ^= 1;
            assert!(!seal.matches(&long, 9, 4096), "byte {byte}");
            long[byte] ^= 1;
        }
        for bit in 0..record.len() * 8 {
            record[bit / 8] ^= 1 << (bit % 8);
            assert!(!seal.matches(&record, 9, 4096), "bit {bit}");
            record[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_whole_record_shows_the_seal_of_its_file() {
        for nonce in [1, 0xFEED, u64::MAX, 0x0123_4567_89AB_CDEF] {
            assert_eq!(unmix(mix(nonce)), nonce);
            let mut record = Vec::from(5_i32.to_le_bytes());
            record.extend_from_slice(b"tubes");
            record.extend_from_slice(&sample().encode());
            record.extend_from_slice(b"body\r\n");
            Seal { nonce }.apply(&mut record, 9, 4096);
            assert_eq!(Seal::of(&record, 9, 4096), Some(Seal { nonce }));
            assert_eq!(Seal::of(&record, 9, 4097), None);
            record[91] ^= 1;
            assert_eq!(Seal::of(&record, 9, 4096), None);
        }
    }
}
