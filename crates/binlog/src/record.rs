//! One record among the bytes of a file: the positions of its parts, and whether they are plausible.
//!
//! Owns: the bounds. Accepts no length that goes beyond the end of the file. Driven by the replay.

use super::format::{
    DeleteKind, DiskRecord, LoggedState, MARKER_ID, MAX_JOB_ID, RECORD_5_BYTES, RECORD_BYTES, TRAILER,
    VERSION_5, take,
};
use crate::clock::{NS_PER_MS, NS_PER_S};
use crate::job::JobId;
use crate::tube_name::TubeName;

/// The maximum length of a record's head, up to its body.
pub(super) const MAX_HEAD_BYTES: usize = 8 + TubeName::MAX_BYTES + RECORD_BYTES;

/// The layout of a file, one of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Seven,
    Five,
}

/// The format of the records of a file: its layout, and whether they have the marks of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Version 7 with marks.
    Ours,
    /// As C writes it: bits that would be marks mean nothing.
    C(Version),
}

impl Format {
    pub(super) fn version(self) -> Version {
        match self {
            Self::Ours => Version::Seven,
            Self::C(version) => version,
        }
    }
}

impl Version {
    pub(super) fn of(number: i32) -> Option<Self> {
        match number {
            super::format::VERSION => Some(Self::Seven),
            VERSION_5 => Some(Self::Five),
            _ => None,
        }
    }

    /// Width of the name's length.
    fn length_bytes(self) -> usize {
        match self {
            Self::Seven => 4,
            Self::Five => 8,
        }
    }

    /// The maximum number of zeros with which a record begins: the length of the name in a short record, and the id
    /// without its last byte.
    pub(super) fn max_first_zeros(self) -> u64 {
        self.length_bytes() as u64 + 7
    }

    /// The length of a short record.
    pub(super) fn short_bytes(self) -> u64 {
        (self.length_bytes() + self.fixed_bytes()) as u64
    }

    fn fixed_bytes(self) -> usize {
        match self {
            Self::Seven => RECORD_BYTES,
            Self::Five => RECORD_5_BYTES,
        }
    }
}

/// The positions of the parts of a record, from its first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Offset of the name; the fixed part follows it.
    pub(super) name_at: usize,
    pub(super) fixed_at: usize,
    /// Offset of the body, or of the end of a short record.
    pub(super) body_at: usize,
    /// Length of the whole record.
    pub(super) total: usize,
    /// The fixed part; without marks, if it is not in a file of ours.
    pub(super) record: DiskRecord,
}

impl Layout {
    /// The job of the record.
    pub(super) fn id(&self) -> JobId {
        JobId(self.record.id)
    }

    /// The layout of the record at the beginning of `bytes`, with `rest` bytes left in the file. `None` if its head is
    /// incomplete, or if its lengths go beyond the file.
    pub(super) fn read(format: Format, bytes: &[u8], rest: u64) -> Option<Self> {
        let version = format.version();
        let name_at = version.length_bytes();
        let length = bytes.get(..name_at)?;
        let name_len = match version {
            Version::Seven => u64::try_from(i32::from_le_bytes(take(length, 0))).ok()?,
            Version::Five => u64::from_le_bytes(take(length, 0)),
        };
        let name_len = usize::try_from(name_len).ok().filter(|&len| len <= TubeName::MAX_BYTES)?;
        let fixed_at = name_at + name_len;
        let body_at = fixed_at + version.fixed_bytes();
        let fixed = bytes.get(fixed_at..body_at)?;
        let record = match version {
            Version::Seven => DiskRecord::decode(&take(fixed, 0)),
            Version::Five => DiskRecord::decode_5(&take(fixed, 0)),
        };
        let body_size = if name_len == 0 { 0 } else { usize::try_from(record.body_size).ok()? };
        let total = body_at + body_size;
        let record = match format {
            Format::Ours => record,
            Format::C(_) => record.without_marks(),
        };
        (total as u64 <= rest).then_some(Self { name_at, fixed_at, body_at, total, record })
    }

    /// Whether it is a full record, with a name and a body.
    pub(super) fn is_full(&self) -> bool {
        self.fixed_at > self.name_at
    }

    /// Whether it is a marker of ours, or another record with its id.
    pub(super) fn is_marker(&self) -> bool {
        !self.is_full() && self.record.id == MARKER_ID
    }

    /// Whether it deletes a job, with what `kind` says.
    pub(super) fn is_delete_of_kind(&self, kind: DeleteKind) -> bool {
        self.record.logged_state() == Some(LoggedState::Deleted(kind))
    }

    /// Whether it is a record of a `complete`.
    pub(super) fn is_part_of_complete(&self) -> bool {
        if self.is_full() {
            self.record.is_part_of_complete()
        } else {
            self.is_delete_of_kind(DeleteKind::Completion)
        }
    }

    /// The tube's name in the whole record in `bytes`; empty in a short record.
    pub(super) fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.name_at..self.fixed_at]
    }

    /// Whether the whole record in `bytes` is plausible: the parts that [`Layout::is_plausible_except_name`] checks,
    /// and the name.
    pub(super) fn is_plausible(&self, bytes: &[u8]) -> bool {
        self.has_plausible_head(bytes) && self.has_plausible_body(bytes)
    }

    /// Whether the parts of the whole record in `bytes`, except its name, are plausible: a job, a known state, a body
    /// that ends in the trailer.
    pub(super) fn is_plausible_except_name(&self, bytes: &[u8]) -> bool {
        self.has_plausible_fixed_part() && self.has_plausible_body(bytes)
    }

    /// Whether the parts before the body are plausible. `bytes` begin with them.
    pub(super) fn has_plausible_head(&self, bytes: &[u8]) -> bool {
        self.has_plausible_fixed_part() && (!self.is_full() || TubeName::check(self.name(bytes)).is_some())
    }

    fn has_plausible_fixed_part(&self) -> bool {
        let record = &self.record;
        match record.logged_state() {
            Some(LoggedState::Live(_)) if self.is_full() => (1..=MAX_JOB_ID).contains(&record.id),
            Some(LoggedState::Live(_) | LoggedState::Deleted(_)) => !self.is_full() && record.id != 0,
            None => false,
        }
    }

    fn has_plausible_body(&self, bytes: &[u8]) -> bool {
        !self.is_full() || bytes[self.body_at..self.total].ends_with(TRAILER)
    }

    /// Whether C can have written the times of the record: whole seconds, or the time to run of a job of this server,
    /// or one microsecond, which is what C 1.4 stores for a time to run of 0.
    pub(super) fn has_times_of_c(&self) -> bool {
        const SECOND: i64 = NS_PER_S as i64;
        const MICROSECOND: i64 = 1000;
        let DiskRecord { delay_ns, ttr_ns, .. } = self.record;
        let is_ttr = ttr_ns >= SECOND && ttr_ns % NS_PER_MS as i64 == 0 || ttr_ns == MICROSECOND;
        is_ttr && delay_ns >= 0 && delay_ns % SECOND == 0
    }

    /// Whether this is a short record of C that was written only up to the time to run, over zeros: it then looks like
    /// a delete. C stores no time to run of 0.
    pub(super) fn is_torn_short(&self) -> bool {
        matches!(self.record.logged_state(), Some(LoggedState::Deleted(_))) && self.record.ttr_ns == 0
    }
}
