//! Encodes records and markers, and collects the bytes of a turn for one write.
//!
//! Owns: the end of the log and the bytes that have not been written yet, in [`Appender`]. Driven by `append`.

use std::collections::TryReserveError;

use crate::attachment::{AttachmentKind, Part};
use crate::format::{DiskRecord, SHORT_BYTES, Seal, TRAILER};
use crate::job::{BodyRef, JobId};
use crate::marker::{HEAD_BYTES, Marker};
use crate::{LogPosition, SequenceNumber};

/// If the bytes of a turn exceed this, they are written before the turn ends, so that the buffer is never much larger
/// than one record. A larger buffer is freed after the turn.
const BUFFER_KEEP_BYTES: usize = 1024 * 1024;

/// The minimum size of the buffer, so that an empty one has room for short records and markers, whose appending must
/// not fail for lack of memory.
pub(super) const MIN_BUFFER_BYTES: usize = 4096;

/// The end of the log, and the bytes to append there.
#[derive(Debug)]
pub(super) struct Appender {
    /// Where the next write begins.
    at: LogPosition,
    seal: Seal,
    /// The bytes of the next write.
    buffer: Vec<u8>,
    /// Whether the buffer contains more than a marker that can wait for the next record.
    must_write: bool,
    /// Length of the records of this turn in bytes, already written or not.
    turn_bytes: u64,
    appended: SequenceNumber,
    /// The last record for which replies wait. No reply waits for the record of a reservation that changes nothing
    /// else.
    awaited: SequenceNumber,
}

impl Appender {
    /// An appender at `end`, the end of an older file, to which nothing can be appended.
    pub(super) fn after(end: LogPosition) -> Self {
        Self {
            at: end,
            seal: Seal { nonce: 0 },
            buffer: Vec::with_capacity(MIN_BUFFER_BYTES),
            must_write: false,
            turn_bytes: 0,
            appended: SequenceNumber::default(),
            awaited: SequenceNumber::default(),
        }
    }

    /// Resumes after a hand-over: everything appended is written, up to `end`.
    pub(super) fn resume(end: LogPosition, nonce: u64, appended: SequenceNumber) -> Self {
        Self { seal: Seal { nonce }, appended, awaited: appended, ..Self::after(end) }
    }

    /// The nonce of the file to which records are appended.
    pub(super) fn nonce(&self) -> u64 {
        self.seal.nonce
    }

    /// Index of the file to which records are appended.
    pub(super) fn file(&self) -> u32 {
        self.at.file
    }

    /// Whether the file belongs to this run, so that records can be appended to it.
    pub(super) fn has_file(&self) -> bool {
        self.seal.nonce != 0
    }

    /// The end of the log once the buffer is written.
    pub(super) fn end(&self) -> LogPosition {
        LogPosition { file: self.at.file, offset: self.at.offset + self.buffer.len() as u64 }
    }

    /// Continues in file `file`, after its head.
    pub(super) fn begin_file(&mut self, file: u32, nonce: u64) {
        assert!(self.buffer.is_empty(), "the bytes of a file are written before the next file begins");
        assert!(nonce != 0, "a file of this server has a nonce");
        self.at = LogPosition { file, offset: HEAD_BYTES };
        self.seal = Seal { nonce };
    }

    /// The last record so far.
    pub(super) fn appended(&self) -> SequenceNumber {
        self.appended
    }

    /// The last record so far for which replies wait.
    pub(super) fn awaited(&self) -> SequenceNumber {
        self.awaited
    }

    /// Sets that replies wait only for the records up to `awaited`.
    pub(super) fn await_only(&mut self, awaited: SequenceNumber) {
        debug_assert!(awaited <= self.awaited, "the awaited record stays or becomes an earlier one");
        self.awaited = awaited;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Whether the buffer holds more than a marker that can wait for the next record.
    pub(super) fn must_write(&self) -> bool {
        self.must_write
    }

    /// Makes the next commit write the buffer, whatever it contains.
    pub(super) fn require_write(&mut self) {
        self.must_write = !self.buffer.is_empty();
    }

    /// Makes sure that a record of `bytes` fits into memory, with the markers around it if it begins a new file.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), TryReserveError> {
        let bytes = (bytes + 2 * SHORT_BYTES) as usize;
        // A large record gets exactly its size. For small ones the buffer must not grow one by one.
        if bytes > BUFFER_KEEP_BYTES {
            self.buffer.try_reserve_exact(bytes)
        } else {
            self.buffer.try_reserve(bytes)
        }
    }

    /// Appends an attachment. It counts only with the next call: its record, or [`Appender::count_record`].
    pub(super) fn push_attachment(&mut self, kind: AttachmentKind, job: JobId, bytes: &[u8]) {
        let start = self.buffer.len();
        for part in Part::all(kind, job, bytes) {
            let offset = self.end().offset;
            self.buffer.extend_from_slice(&part.encode(self.seal, offset));
        }
        self.turn_bytes += (self.buffer.len() - start) as u64;
    }

    /// Counts a record that was appended. Returns whether the buffer is full.
    pub(super) fn count_record(&mut self) -> bool {
        self.appended.0 += 1;
        self.awaited = self.appended;
        self.must_write = true;
        self.buffer.len() > BUFFER_KEEP_BYTES
    }

    /// Appends a record; a short one has no name and no body. Returns whether the buffer is full.
    pub(super) fn push_record(
        &mut self,
        record: &DiskRecord,
        tube: &[u8],
        body: Option<BodyRef<'_>>,
    ) -> bool {
        let start = self.buffer.len();
        let offset = self.end().offset;
        self.buffer.extend_from_slice(&(tube.len() as i32).to_le_bytes());
        self.buffer.extend_from_slice(tube);
        let fixed_at = self.buffer.len() - start;
        self.buffer.extend_from_slice(&record.encode());
        if let Some(body) = body {
            self.buffer.extend_from_slice(body.as_slice());
            self.buffer.extend_from_slice(TRAILER);
        }
        self.seal.apply(&mut self.buffer[start..], fixed_at, offset);
        self.turn_bytes += (self.buffer.len() - start) as u64;
        self.count_record()
    }

    /// Appends a marker, which waits for the next write unless [`Appender::require_write`] is called.
    pub(super) fn push_marker(&mut self, marker: &Marker) {
        let offset = self.end().offset;
        self.buffer.extend_from_slice(&marker.encode(self.seal, offset));
    }

    /// Drops a marker that waits for the next write.
    pub(super) fn drop_waiting_marker(&mut self) {
        debug_assert!(
            !self.must_write && self.buffer.len() as u64 <= SHORT_BYTES,
            "only a marker can be dropped"
        );
        self.buffer.clear();
    }

    /// The next write: its position and its bytes.
    pub(super) fn next_write(&self) -> (LogPosition, &[u8]) {
        (self.at, &self.buffer)
    }

    /// Notes that the store has taken the buffer.
    pub(super) fn wrote(&mut self) {
        self.at = self.end();
        self.buffer.clear();
        self.must_write = false;
    }

    /// Ends the turn. Returns the length of its records in bytes, without copies.
    pub(super) fn end_turn(&mut self) -> u64 {
        std::mem::take(&mut self.turn_bytes)
    }

    /// Frees a buffer that a large record has needed.
    pub(super) fn trim(&mut self) {
        self.buffer.shrink_to(BUFFER_KEEP_BYTES);
    }

    /// Takes the last `bytes`, which were copies, out of the records of the turn.
    pub(super) fn uncount(&mut self, bytes: u64) {
        self.turn_bytes = self.turn_bytes.saturating_sub(bytes);
    }

    /// Drops the buffer, because the log has ended.
    pub(super) fn discard(&mut self) {
        self.buffer = Vec::new();
        self.must_write = false;
    }
}
