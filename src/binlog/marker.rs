//! Markers: what this server writes for itself where C beanstalkd never looks.
//!
//! Owns: the layout of a marker, a sealed short record with the id that no job has. Driven by the writer,
//! which says what is known at the time, and by the replay, which believes only markers whose seal holds.

use super::SyncPolicy;
use super::format::{MARKER_ID, RECORD_BYTES, SHORT_BYTES, Seal, VERSION, VERSION_BYTES, put, take};

/// "BTK" and the version of the marker's own layout.
const MAGIC: u32 = u32::from_le_bytes(*b"BTK\x01");
/// Where the fixed part stands in a short record.
const FIXED_AT: usize = 4;

/// Length of what every file of ours begins with: the version and the header marker.
pub const HEAD_BYTES: u64 = VERSION_BYTES + SHORT_BYTES;

/// A place in the log: a file's index and an offset in it. Ordered as the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Index of the file.
    pub file: u32,
    /// Offset in bytes.
    pub offset: u64,
}

/// What a marker is there to say, beside what all of them say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerKind {
    /// Follows the version: the file is ours, and was made with so many bytes.
    Header(u64),
    /// The file is in use; the one before it ended at this place.
    Opened(Place),
    /// Nothing new: written for its durable place.
    Durable,
    /// The server exited cleanly; nothing follows.
    Closed,
    /// The log goes on in the file with this index.
    Continued(u32),
    /// Recovery ended a file at this place.
    Cut(Place),
}

/// A marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// What it is there for.
    pub kind: MarkerKind,
    /// Index of the file that it stands in.
    pub file: u32,
    /// Every job id given so far is smaller than this.
    pub next_job_id: u64,
    /// All bytes of the log before this place were on disk when the marker was written.
    pub durable: Place,
    /// No file with a smaller index was needed any more.
    pub oldest: u32,
    /// When the writer answered its clients.
    pub sync: SyncPolicy,
}

impl Marker {
    /// The marker as it stands at `offset` of the file that `seal` belongs to.
    #[must_use]
    pub fn encode(&self, seal: Seal, offset: u64) -> [u8; SHORT_BYTES as usize] {
        let (kind, other) = match self.kind {
            MarkerKind::Header(bytes) => (1, Place { file: 0, offset: bytes }),
            MarkerKind::Opened(previous_end) => (2, previous_end),
            MarkerKind::Durable => (3, Place::default()),
            MarkerKind::Closed => (4, Place::default()),
            MarkerKind::Continued(next) => (5, Place { file: next, offset: 0 }),
            MarkerKind::Cut(place) => (6, place),
        };
        let (policy, milliseconds) = match self.sync {
            SyncPolicy::EachCommit => (0, 0),
            SyncPolicy::Every(milliseconds) => (1, milliseconds),
            SyncPolicy::Never => (2, 0),
        };
        let mut bytes = [0; SHORT_BYTES as usize];
        let fixed = &mut bytes[FIXED_AT..];
        put(fixed, 0, MARKER_ID.to_le_bytes());
        put(fixed, 8, MAGIC.to_le_bytes());
        put(fixed, 16, seal.nonce.to_le_bytes());
        put(fixed, 24, self.next_job_id.to_le_bytes());
        put(fixed, 32, self.file.to_le_bytes());
        put(fixed, 40, self.durable.offset.to_le_bytes());
        put(fixed, 48, other.offset.to_le_bytes());
        put(fixed, 56, self.durable.file.to_le_bytes());
        put(fixed, 60, other.file.to_le_bytes());
        put(fixed, 64, self.oldest.to_le_bytes());
        put(fixed, 68, u32::to_le_bytes(milliseconds));
        put(fixed, 72, [kind, policy, 0, 0]);
        seal.apply(&mut bytes, FIXED_AT, offset);
        bytes
    }

    /// Reads the fixed part of a marker whose seal holds; `None` for a kind that this version does not
    /// know, which is to be passed over.
    #[must_use]
    pub fn decode(fixed: &[u8; RECORD_BYTES]) -> Option<Self> {
        let u32_at = |at| u32::from_le_bytes(take(fixed, at));
        let u64_at = |at| u64::from_le_bytes(take(fixed, at));
        let other = Place { file: u32_at(60), offset: u64_at(48) };
        let kind = match fixed[72] {
            1 => MarkerKind::Header(other.offset),
            2 => MarkerKind::Opened(other),
            3 => MarkerKind::Durable,
            4 => MarkerKind::Closed,
            5 => MarkerKind::Continued(other.file),
            6 => MarkerKind::Cut(other),
            _ => return None,
        };
        let sync = match fixed[73] {
            0 => SyncPolicy::EachCommit,
            1 => SyncPolicy::Every(u32_at(68)),
            _ => SyncPolicy::Never,
        };
        Some(Self {
            kind,
            file: u32_at(32),
            next_job_id: u64_at(24),
            durable: Place { file: u32_at(56), offset: u64_at(40) },
            oldest: u32_at(64),
            sync,
        })
    }

    /// The nonce of the file that a marker stands in.
    #[must_use]
    pub fn nonce(fixed: &[u8; RECORD_BYTES]) -> u64 {
        u64::from_le_bytes(take(fixed, 16))
    }

    /// Whether the bytes after the version look like the remains of a header marker: no record of C's
    /// has this id or this number in its padding's place.
    #[must_use]
    pub fn resembles_header(head: &[u8]) -> bool {
        let at = VERSION_BYTES as usize + FIXED_AT;
        let id = head.get(at..at + 8).is_some_and(|id| id == MARKER_ID.to_le_bytes());
        let magic = head.get(at + 8..at + 12).is_some_and(|magic| magic == MAGIC.to_le_bytes());
        // Either could be lost to a flipped bit; C's own records have neither, but for a priority
        // that happens to be the magic number, which alone is not believed.
        id || (magic && head.get(at..at + 8).is_some_and(|id| id.iter().filter(|&&b| b == 0xFF).count() >= 7))
    }
}

/// The first bytes of a new file: the version and the header marker.
#[must_use]
pub fn file_head(header: &Marker, seal: Seal) -> [u8; HEAD_BYTES as usize] {
    let mut head = [0; HEAD_BYTES as usize];
    put(&mut head, 0, VERSION.to_le_bytes());
    put(&mut head, VERSION_BYTES as usize, header.encode(seal, VERSION_BYTES));
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_reads_back_and_keeps_to_its_place() {
        let seal = Seal { nonce: 7 };
        for kind in [
            MarkerKind::Header(1 << 34),
            MarkerKind::Opened(Place { file: 3, offset: 4_000_000_000 }),
            MarkerKind::Durable,
            MarkerKind::Closed,
            MarkerKind::Continued(5),
            MarkerKind::Cut(Place { file: 2, offset: 88 }),
        ] {
            let marker = Marker {
                kind,
                file: 4,
                next_job_id: 1 << 40,
                durable: Place { file: 3, offset: 1 << 33 },
                oldest: 2,
                sync: SyncPolicy::Every(50),
            };
            let bytes = marker.encode(seal, 172);
            assert!(seal.holds(&bytes, FIXED_AT, 172));
            assert!(!seal.holds(&bytes, FIXED_AT, 256));
            let fixed = take(&bytes, FIXED_AT);
            assert_eq!(Marker::decode(&fixed), Some(marker));
            assert_eq!(Marker::nonce(&fixed), 7);
            assert_eq!(&bytes[..12], [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        }
    }
}
