//! Markers: records with facts that this server needs at the next start, and that C ignores.
//!
//! Owns: the layout of a marker, which is a sealed short record with an id that no job has. Driven by
//! `writer/markers.rs`, which writes the current facts, and by the replay, which uses only markers with a valid seal.

use super::format::{MARKER_ID, RECORD_BYTES, SHORT_BYTES, Seal, VERSION, VERSION_BYTES, put, take};
use super::wall_clock::WallTime;
use super::{LogPosition, SyncPolicy};

/// "BTK" and the version of the marker's own layout.
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"BTK\x01");
/// Offset of the fixed part in a short record.
pub(super) const FIXED_AT: usize = 4;
/// Offset of [`MAGIC`] in the fixed part.
pub(super) const MAGIC_AT: usize = 8;
/// Offset in the fixed part of the kind of a marker or of an attachment.
pub(super) const KIND_AT: usize = 72;

/// By how much the wall clock must be set back at once to count as set back. Smaller steps are constant corrections.
pub(super) const CLOCK_STEP_NS: i64 = 1_000_000_000;

/// Length of the head of each file of ours: the version and the header marker.
pub(crate) const HEAD_BYTES: u64 = VERSION_BYTES + SHORT_BYTES;

/// The contents of a marker, besides the fields that all markers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerKind {
    /// Comes after the version: the file is this server's. The offset is the file's original length.
    Header(u64),
    /// The file is in use; the one before it ended at this position.
    Opened(LogPosition),
    /// No further contents: the marker was written for its durable position.
    Durable,
    /// The server exited cleanly; nothing follows.
    Closed,
    /// The log continues in the file with this index.
    Continued(u32),
    /// Recovery ended a file at this position.
    Cut(LogPosition),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub kind: MarkerKind,
    /// Index of the file that it is in.
    pub file: u32,
    /// Every job id assigned so far is smaller than this.
    pub next_job_id: u64,
    /// All bytes of the log before this position were on the medium when the marker was written.
    pub durable: LogPosition,
    /// No file with a smaller index was needed any more.
    pub oldest: u32,
    /// When the server that wrote the marker answered its clients.
    pub sync: SyncPolicy,
    /// In markers of the kinds `Durable` and `Closed`: a time that had passed when the marker was written;
    /// [`WallTime::EPOCH`] if it is not known.
    pub time: WallTime,
}

impl Marker {
    /// The bytes of the marker at `offset` of the file with this `seal`.
    #[must_use]
    pub(crate) fn encode(&self, seal: Seal, offset: u64) -> [u8; SHORT_BYTES as usize] {
        let (kind, other) = match self.kind {
            MarkerKind::Header(bytes) => (1, LogPosition { file: 0, offset: bytes }),
            MarkerKind::Opened(previous_end) => (2, previous_end),
            MarkerKind::Durable => (3, LogPosition { file: 0, offset: self.time.0.cast_unsigned() }),
            MarkerKind::Closed => (4, LogPosition { file: 0, offset: self.time.0.cast_unsigned() }),
            MarkerKind::Continued(next) => (5, LogPosition { file: next, offset: 0 }),
            MarkerKind::Cut(end) => (6, end),
        };
        let (policy, milliseconds) = match self.sync {
            SyncPolicy::EachCommit => (0, 0),
            SyncPolicy::Every(milliseconds) => (1, milliseconds),
            SyncPolicy::Never => (2, 0),
        };
        let mut bytes = [0; SHORT_BYTES as usize];
        let fixed = &mut bytes[FIXED_AT..];
        put(fixed, 0, MARKER_ID.to_le_bytes());
        put(fixed, MAGIC_AT, MAGIC.to_le_bytes());
        put(fixed, 16, seal.nonce.to_le_bytes());
        put(fixed, 24, self.next_job_id.to_le_bytes());
        put(fixed, 32, self.file.to_le_bytes());
        put(fixed, 40, self.durable.offset.to_le_bytes());
        put(fixed, 48, other.offset.to_le_bytes());
        put(fixed, 56, self.durable.file.to_le_bytes());
        put(fixed, 60, other.file.to_le_bytes());
        put(fixed, 64, self.oldest.to_le_bytes());
        put(fixed, 68, u32::to_le_bytes(milliseconds));
        put(fixed, KIND_AT, [kind, policy, 0, 0]);
        seal.apply(&mut bytes, FIXED_AT, offset);
        bytes
    }

    /// Reads the fixed part of a marker with a valid seal; `None` for a kind that this version does not have and must
    /// ignore.
    #[must_use]
    pub(crate) fn decode(fixed: &[u8; RECORD_BYTES]) -> Option<Self> {
        let u32_at = |at| u32::from_le_bytes(take(fixed, at));
        let u64_at = |at| u64::from_le_bytes(take(fixed, at));
        let other = LogPosition { file: u32_at(60), offset: u64_at(48) };
        let kind = match fixed[KIND_AT] {
            1 => MarkerKind::Header(other.offset),
            2 => MarkerKind::Opened(other),
            3 => MarkerKind::Durable,
            4 => MarkerKind::Closed,
            5 => MarkerKind::Continued(other.file),
            6 => MarkerKind::Cut(other),
            _ => return None,
        };
        let sync = match fixed[KIND_AT + 1] {
            0 => SyncPolicy::EachCommit,
            1 => SyncPolicy::Every(u32_at(68)),
            _ => SyncPolicy::Never,
        };
        Some(Self {
            kind,
            file: u32_at(32),
            next_job_id: u64_at(24),
            durable: LogPosition { file: u32_at(56), offset: u64_at(40) },
            oldest: u32_at(64),
            sync,
            time: match kind {
                MarkerKind::Durable | MarkerKind::Closed => WallTime(other.offset.cast_signed()),
                MarkerKind::Header(_)
                | MarkerKind::Opened(_)
                | MarkerKind::Continued(_)
                | MarkerKind::Cut(_) => WallTime::EPOCH,
            },
        })
    }

    /// The nonce of the file that contains a marker.
    #[must_use]
    pub(crate) fn nonce(fixed: &[u8; RECORD_BYTES]) -> u64 {
        u64::from_le_bytes(take(fixed, 16))
    }

    /// Whether the bytes after the version look like the remains of a damaged header marker. No record of C's has this
    /// id, or this number instead of a priority.
    #[must_use]
    pub(crate) fn resembles_header(head: &[u8]) -> bool {
        let at = VERSION_BYTES as usize + FIXED_AT;
        let id = head.get(at..at + 8).is_some_and(|id| id == MARKER_ID.to_le_bytes());
        let magic = head.get(at + 8..at + 12).is_some_and(|magic| magic == MAGIC.to_le_bytes());
        // A flipped bit can have changed either of the two. In a record of C's, the priority may happen to be the magic
        // number, so this number alone is not enough.
        id || (magic && head.get(at..at + 8).is_some_and(|id| id.iter().filter(|&&b| b == 0xFF).count() >= 7))
    }
}

/// The first bytes of a new file: the version and the header marker.
#[must_use]
pub(crate) fn file_head(header: &Marker, seal: Seal) -> [u8; HEAD_BYTES as usize] {
    let mut head = [0; HEAD_BYTES as usize];
    put(&mut head, 0, VERSION.to_le_bytes());
    put(&mut head, VERSION_BYTES as usize, header.encode(seal, VERSION_BYTES));
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_damaged_header_is_distinguished_from_a_record_of_c() {
        let header = Marker {
            kind: MarkerKind::Header(4096),
            file: 1,
            next_job_id: 1,
            durable: LogPosition::default(),
            oldest: 0,
            sync: SyncPolicy::Never,
            time: WallTime::EPOCH,
        };
        let head = file_head(&header, Seal { nonce: 7 });
        let at = VERSION_BYTES as usize + FIXED_AT;
        let damaged = |offsets: &[usize]| {
            let mut head = head;
            offsets.iter().for_each(|&offset| head[at + offset] ^= 0x10);
            Marker::resembles_header(&head)
        };
        assert!(damaged(&[]) && damaged(&[20]), "the id and the number are there");
        assert!((0..8).all(|offset| damaged(&[offset])), "one byte of the id is damaged");
        assert!((8..12).all(|offset| damaged(&[offset])), "the number is damaged");
        assert!((1..8).all(|offset| !damaged(&[0, offset])), "the number alone may be a priority");
        assert!((0..8).all(|offset| (8..12).all(|other| !damaged(&[offset, other]))), "both are damaged");
        assert!(Marker::resembles_header(&head[..at + 8]) && !Marker::resembles_header(&head[..at + 7]));
    }

    #[test]
    fn a_marker_reads_back_and_is_right_at_its_position_alone() {
        let seal = Seal { nonce: 7 };
        for kind in [
            MarkerKind::Header(1 << 34),
            MarkerKind::Opened(LogPosition { file: 3, offset: 4_000_000_000 }),
            MarkerKind::Durable,
            MarkerKind::Closed,
            MarkerKind::Continued(5),
            MarkerKind::Cut(LogPosition { file: 2, offset: 88 }),
        ] {
            let marker = Marker {
                kind,
                file: 4,
                next_job_id: 1 << 40,
                durable: LogPosition { file: 3, offset: 1 << 33 },
                oldest: 2,
                sync: SyncPolicy::Every(50),
                time: WallTime(if matches!(kind, MarkerKind::Durable | MarkerKind::Closed) { -7 } else { 0 }),
            };
            let bytes = marker.encode(seal, 172);
            assert!(seal.matches(&bytes, FIXED_AT, 172));
            assert!(!seal.matches(&bytes, FIXED_AT, 256));
            let fixed = take(&bytes, FIXED_AT);
            assert_eq!(Marker::decode(&fixed), Some(marker));
            assert_eq!(Marker::nonce(&fixed), 7);
            assert_eq!(&bytes[..12], [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        }
    }
}
