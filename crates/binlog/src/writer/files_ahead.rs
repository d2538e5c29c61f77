//! The files made ahead of the one to which records are appended.
//!
//! Owns: the length of the next file, whether it is being made, and why it could not be made, in [`FilesAhead`]. Driven
//! by appends, which need room, and by the outcomes of [`StoreTask::Make`].

use std::io::{self, ErrorKind};

use log::warn;

use super::room::{Room, Spare, Target};
use super::{Binlog, FIRST_FILE_BYTES};
use crate::assertions::in_debug;
use crate::clock::{NS_PER_S, Timestamp};
use crate::described;
use crate::format::{SHORT_BYTES, Seal, mix};
use crate::marker::{HEAD_BYTES, MarkerKind, file_head};
use crate::storage::{StoreTask, is_lack_of_room, is_shortage};
use crate::{BLOCK_BYTES, BinlogError, Config, MAX_INDEX};

/// How long the log waits before it tries again to make a file for which there was no room.
const CREATE_RETRY_NS: u64 = NS_PER_S;
/// How long the log waits before it tries again to make a file for which descriptors or memory were lacking, or whose
/// making was interrupted. Commands may wait for that file.
const SHORTAGE_RETRY_NS: u64 = NS_PER_S / 10;
/// How many of the files made ahead stay open, besides the file to which records are appended.
pub(super) const OPEN_AHEAD: usize = 3;
/// If the disk has no room for a file of the usual length, shorter ones are made, down to this length.
const MIN_FILE_BYTES: u64 = 64 * 1024;

/// The creation of the next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creation {
    Idle,
    UnderWay {
        nonce: u64,
    },
    Failed {
        retry_at: Timestamp,
        /// Whether descriptors or memory were lacking, and not room.
        is_shortage: bool,
    },
    /// Ended early, at the request of the log.
    Interrupted {
        retry_at: Timestamp,
    },
}

/// The next file.
#[derive(Debug)]
pub(super) struct FilesAhead {
    pub(super) creation: Creation,
    /// Length of the next file unless a record needs more: `-s`, or less while disk space is low.
    pub(super) usual_bytes: u64,
    next_index: u32,
    nonce_seed: u64,
    /// Whether the last attempt to make a file has failed for lack of room.
    pub(super) is_disk_full: bool,
    /// Whether the next file could not be opened for lack of a descriptor. The disk may be full as well: this file
    /// exists, and one after it cannot be made.
    pub(super) lacks_descriptor: bool,
}

/// The next file, as the old program describes it in a hand-over.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescribedNextFile {
    pub(super) next_index: u32,
    pub(super) usual_bytes: u64,
    is_disk_full: bool,
}

described!(DescribedNextFile { next_index, usual_bytes, is_disk_full });

impl FilesAhead {
    pub(super) fn new(config: &Config, next_index: u32) -> Self {
        Self {
            creation: Creation::Idle,
            usual_bytes: config.file_bytes.min(FIRST_FILE_BYTES),
            next_index,
            nonce_seed: config.nonce_seed,
            is_disk_full: false,
            lacks_descriptor: false,
        }
    }

    /// The state for the new program.
    pub(super) fn described(&self) -> DescribedNextFile {
        let Self { next_index, usual_bytes, is_disk_full, .. } = *self;
        DescribedNextFile { next_index, usual_bytes, is_disk_full }
    }

    /// Resumes after a hand-over.
    pub(super) fn resume(config: &Config, described: DescribedNextFile) -> Self {
        let DescribedNextFile { next_index, usual_bytes, is_disk_full } = described;
        Self { usual_bytes, is_disk_full, ..Self::new(config, next_index) }
    }

    /// Whether the next file is being made.
    fn is_under_way(&self) -> bool {
        matches!(self.creation, Creation::UnderWay { .. })
    }

    /// When the log tries to make a file again; `None` if the last attempt has not ended without one.
    pub(super) fn retry_at(&self) -> Option<Timestamp> {
        match self.creation {
            Creation::Failed { retry_at, .. } | Creation::Interrupted { retry_at } => Some(retry_at),
            Creation::Idle | Creation::UnderWay { .. } => None,
        }
    }

    /// Clears the last failure so that the next attempt can begin.
    pub(super) fn retry(&mut self) {
        if matches!(self.creation, Creation::Failed { .. } | Creation::Interrupted { .. }) {
            self.creation = Creation::Idle;
        }
    }

    /// Whether the last attempt has failed because there was no room.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.creation, Creation::Failed { is_shortage: false, .. })
    }

    /// Notes that the file in progress has been made, with `bytes`. From now on files are at most `file_bytes` long.
    fn note_made(&mut self, index: u32, bytes: u64, file_bytes: u64) -> Option<Spare> {
        debug_assert!(index >= self.next_index, "an index is used once");
        let Creation::UnderWay { nonce } = self.creation else { return None };
        self.next_index = index + 1;
        self.creation = Creation::Idle;
        self.is_disk_full = false;
        self.lacks_descriptor = false;
        self.usual_bytes = (2 * self.usual_bytes).min(file_bytes);
        Some(Spare { index, bytes, nonce })
    }

    /// Asserts the invariants between two calls.
    #[inline]
    pub(super) fn check_invariants(&self, room: &Room) {
        assert!(room.newest_spare().is_none_or(|newest| newest < self.next_index), "an index is used once");
        assert!(self.usual_bytes.is_multiple_of(BLOCK_BYTES), "files have whole blocks");
    }
}

impl Binlog {
    /// Makes the file that `target` names the one to which records are appended.
    pub(super) fn enter(&mut self, target: Target) {
        if let Target::Spare(passed) = target {
            debug_assert!(passed < self.contents.room.spare_count(), "the file that is entered was made");
            let before = in_debug(|| self.contents.room.spare_count());
            for _ in 0..=passed {
                self.use_next_file();
            }
            debug_assert_eq!(
                self.contents.room.spare_count() + passed + 1,
                before,
                "the files up to the entered one are made ahead no more"
            );
        }
    }

    /// Ends the file to which records are appended, and continues in the next, which exists.
    pub(super) fn use_next_file(&mut self) {
        let Some(spare) = self.contents.room.next_spare() else { return };
        if self.appender.has_file() {
            self.push_marker(MarkerKind::Continued(spare.index));
            self.write_buffer();
            self.request_sync();
            self.storage.release(self.appender.file());
        }
        let end = self.appender.end();
        debug_assert!(end.file < spare.index, "files are used in order");
        self.contents.files.push(spare.index, spare.bytes);
        self.appender.begin_file(spare.index, spare.nonce);
        self.contents.room.use_file(spare.bytes, HEAD_BYTES + SHORT_BYTES);
        self.push_marker(MarkerKind::Opened(end));
        self.appender.require_write();
        debug_assert_eq!(
            self.appender.end().offset,
            self.contents.room.end_in(spare.bytes),
            "the appended and the free bytes fill the file"
        );
        debug_assert_eq!(
            self.contents.files.newest().map(|file| file.index),
            Some(self.appender.file()),
            "records go to the newest file"
        );
    }

    /// Requests the next file if room is low, unless one is being made or has just failed.
    pub(crate) fn prepare_files(&mut self) {
        let is_low = self.contents.room.check_level(self.config.file_bytes, self.kept_units());
        let wants_file = is_low || self.ahead.lacks_descriptor;
        if wants_file && self.ahead.creation == Creation::Idle && !self.awaits_removal() {
            self.make_next_file();
        }
    }

    /// Whether there is an index for another file.
    pub(crate) fn has_index(&self) -> bool {
        self.ahead.next_index <= MAX_INDEX
    }

    /// Requests the next file.
    pub(super) fn make_next_file(&mut self) {
        if !self.has_index() || !self.health.is_serving() {
            return;
        }
        debug_assert!(!self.ahead.is_under_way(), "one file is made at a time");
        let bytes = self.next_file_bytes();
        let file = self.ahead.next_index;
        debug_assert!(file > self.appender.file(), "files are made in order");
        // A nonce of 0 would mean that the file is not this server's.
        let nonce = mix(self.ahead.nonce_seed ^ mix(u64::from(file))).max(1);
        let head = Box::new(file_head(&self.header(file, bytes), Seal { nonce }));
        self.ahead.creation = Creation::UnderWay { nonce };
        self.submit(StoreTask::Make { file, bytes, head });
    }

    /// Length of the next file.
    pub(super) fn next_file_bytes(&self) -> u64 {
        self.contents.room.next_file_bytes(self.ahead.usual_bytes)
    }

    pub(super) fn file_was_made(&mut self, index: u32, bytes: u64) {
        if let Some(spare) = self.ahead.note_made(index, bytes, self.config.file_bytes) {
            self.contents.room.add_spare(spare);
        }
        self.open_spares(OPEN_AHEAD);
    }

    /// Handles a failure. If the disk has no room, a shorter file is tried at once. If a later attempt may succeed, the
    /// same length is tried again then.
    pub(super) fn file_was_not_made(&mut self, index: u32, error: io::Error, now: Timestamp) {
        debug_assert!(self.ahead.is_under_way(), "a creation fails that the log has requested");
        let has_no_room = is_lack_of_room(&error);
        if has_no_room && self.shorten_files() {
            let bytes = self.next_file_bytes();
            self.warnings.line(now, |_| warn!("binlog.{index}: {error}; trying a file of {bytes} bytes"));
            self.ahead.creation = Creation::Idle;
            self.prepare_files();
        } else if error.kind() == ErrorKind::Interrupted {
            self.ahead.creation = Creation::Interrupted { retry_at: now + SHORTAGE_RETRY_NS };
            self.contents.room.want_nothing();
        } else if has_no_room || is_shortage(&error) {
            self.warnings.line(now, |_| warn!("binlog.{index}: cannot create it, will try again: {error}"));
            let pause_ns = if has_no_room { CREATE_RETRY_NS } else { SHORTAGE_RETRY_NS };
            self.ahead.creation = Creation::Failed { retry_at: now + pause_ns, is_shortage: !has_no_room };
            self.ahead.is_disk_full |= has_no_room;
            self.contents.room.want_nothing();
        } else {
            self.fail(BinlogError::Create { file: index, error });
        }
    }

    /// Makes the file again whose making was interrupted, if any.
    pub(super) fn resume_making(&mut self) {
        if matches!(self.ahead.creation, Creation::Interrupted { .. }) {
            self.ahead.retry();
            self.prepare_files();
        }
    }

    /// Opens the first `count` files made ahead, so that no descriptor is needed to continue in one. Returns whether
    /// they are open now.
    pub(super) fn open_spares(&mut self, count: usize) -> bool {
        while let Some(index) = self.contents.room.next_to_open(count) {
            match self.storage.prepare(index) {
                Ok(()) => self.contents.room.note_open(),
                Err(error) => {
                    if !is_shortage(&error) {
                        self.fail(BinlogError::Create { file: index, error });
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Whether the file in `target`, and the files before it, can be appended to now. If a descriptor is lacking,
    /// another file is requested: the commands that wait for it try again once it has been made.
    pub(super) fn open_up_to(&mut self, target: Target) -> bool {
        let Target::Spare(passed) = target else { return true };
        let is_open = self.open_spares(passed + 1);
        if !is_open {
            self.ahead.lacks_descriptor = true;
            self.prepare_files();
        }
        is_open
    }

    /// Halves the length of the next file, unless that is too short. Returns whether the next file is shorter.
    pub(super) fn shorten_files(&mut self) -> bool {
        let before = self.next_file_bytes();
        let min_bytes = MIN_FILE_BYTES.min(self.config.file_bytes);
        let half = (self.ahead.usual_bytes / 2).next_multiple_of(BLOCK_BYTES);
        self.ahead.usual_bytes = half.max(min_bytes);
        debug_assert!(
            self.ahead.usual_bytes.is_multiple_of(BLOCK_BYTES) && self.next_file_bytes() <= before,
            "a file is not longer than the one for which there was no room, and has whole blocks"
        );
        self.next_file_bytes() < before
    }
}
