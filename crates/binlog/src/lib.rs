//! The binlog: every job, on disk, in files that C beanstalkd 1.12 and 1.13 can also read and write.
//!
//! Owns: the log's format, its files and the room in them, which records are on the medium, and the replay at start.
//! Everything outside `directory` and `postgres` is pure: it calls no clock, no file system and no thread. It uses the
//! store of its files through the trait [`Storage`], submits slow work as a [`StoreTask`] and gets the outcome as a
//! [`Completion`]; these two implement the trait. Driven by the server: **check, reserve, mutate, append**, then one
//! [`Binlog::commit`] a turn. `doc/binlog.md` has the layout and the rules of recovery.
//!
//! ```
//! use beanstalkd_binlog::{Binlog, Config, DirectoryStorage, SyncPolicy};
//! use beanstalkd_types::clock::Timestamp;
//!
//! let directory = tempfile::tempdir()?;
//! let storage = Box::new(DirectoryStorage::new(directory.path(), None));
//! let config = Config { file_bytes: 65536, sync: SyncPolicy::EachCommit, recover: false, nonce_seed: 1 };
//! let mut jobs = Vec::new();
//! let mut restore = |record: _, _tube: &_, _body, _tags: &_| jobs.push(record);
//! let (mut binlog, summary) = Binlog::open(storage, config, Timestamp(0), 0, &mut restore)?;
//! binlog.commit(Timestamp(0))?; // a turn without a change
//! assert!(jobs.is_empty(), "{summary:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::TryReserveError;
use std::fmt;
use std::io;

use beanstalkd_os as os;
use beanstalkd_types::{
    clock, described, description, job, json, percent, rate_limited_log, seconds, tags, tube_name,
};

mod attachment;
mod check;
mod chunked_queue;
mod completing;
mod cooldowns;
pub mod database_url;
mod decision;
mod directory;
mod files;
mod format;
mod jobs;
mod marker;
mod open;
mod ownership;
#[cfg(feature = "postgres")]
mod postgres;
mod reader;
mod record;
mod replay;
mod storage;
mod tagged;
mod writer;

pub use attachment::{Cooldown, LoggedReservation, SideEffects};
pub use check::{CheckReport, FileReport, check, dump};
pub use decision::{Decision, FileEnd, Situation, WrittenBy, decide};
pub use directory::{Directory, DirectoryStorage, Disk, FileName, MAX_DESCRIPTORS, OnDisk, TaskRunner};
pub use jobs::RestoredReservation;
pub use open::Restore;
pub use ownership::{Lease, Owner, OwnerStep, OwnershipEnd, OwnershipTimes, Seen, StepAnswer, Watch};
#[cfg(feature = "postgres")]
pub use postgres::{Password, PostgresCopy, PostgresStorage, Settings, StoreError};
pub use replay::{DamagedFile, LogFault, ReplaySummary, Warning};
pub use storage::{Completion, DatabaseFigures, Listing, Storage, StoreTask};
pub use writer::{Binlog, CompleteRoom, DescribedLog, Stats};

/// The last index that a file may have: C counts files in an `int`.
const MAX_INDEX: u32 = i32::MAX as u32 - 1;

/// Lengths of files are rounded up to this many bytes, as C does.
const BLOCK_BYTES: u64 = 4096;

/// When replies can be sent, and when the store syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The store never syncs (`-F`).
    Never,
    /// At most this many milliseconds after the first byte that no sync covers (`-f MS`).
    Every(u32),
    /// After every commit; replies are sent only after that (`-f 0`, `-D`).
    EachCommit,
}

/// The settings of the log.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Length of a file, in bytes (`-s`); rounded up to blocks of 4096.
    pub file_bytes: u64,
    /// When to sync.
    pub sync: SyncPolicy,
    /// Whether to start in spite of damage (`--recover`). Tails that are cut off are kept.
    pub recover: bool,
    /// A random number, new at each start: the nonces of the files are computed from it.
    pub nonce_seed: u64,
}

impl Config {
    /// Rounds the length to whole blocks, and gives each policy a single form.
    fn rounded(self) -> Self {
        Self {
            file_bytes: self.file_bytes.max(1).next_multiple_of(BLOCK_BYTES),
            sync: if self.sync == SyncPolicy::Every(0) { SyncPolicy::EachCommit } else { self.sync },
            ..self
        }
    }
}

/// The number of a record of this run, from 1; 0 before the first one. It shows the server whether a reply can be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SequenceNumber(pub u64);

/// A position in the log: a file's index and an offset in it, in the order in which the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// Index of the file.
    pub file: u32,
    /// Offset in bytes.
    pub offset: u64,
}

/// The reason why a record cannot be appended now. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The next file is being made: there may be room after the next completion.
    Pending,
    /// The disk is full. The log tries again every second.
    Full,
}

/// The reason why the log has ended. After this, only changes that were already durable may be acknowledged.
#[derive(Debug)]
pub enum BinlogError {
    /// Bytes could not be written to file `file` at `offset`.
    Write {
        /// Index of the file.
        file: u32,
        /// Offset in bytes.
        offset: u64,
        /// The error of the system.
        error: io::Error,
    },
    /// File `file` could not be synced: data that the kernel held for it may be lost.
    Sync {
        /// Index of the file.
        file: u32,
        /// The error of the system.
        error: io::Error,
    },
    /// File `file` could not be made or opened, although there was enough room, descriptors and memory: the medium
    /// fails, or the directory was removed, replaced or made read-only.
    Create {
        /// Index of the file.
        file: u32,
        /// The error of the system.
        error: io::Error,
    },
    /// File `file`, in which no job is left, could not be removed.
    Remove {
        /// Index of the file.
        file: u32,
        /// The error of the system.
        error: io::Error,
    },
    /// A record was appended without reserved room. This is a mistake in the caller.
    NotReserved,
    /// An earlier call failed.
    Stopped,
}

impl fmt::Display for BinlogError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { file, offset, error } => write!(out, "binlog.{file}: write at {offset}: {error}"),
            Self::Sync { file, error } => write!(out, "binlog.{file}: sync: {error}"),
            Self::Create { file, error } => write!(out, "binlog.{file}: create: {error}"),
            Self::Remove { file, error } => write!(out, "binlog.{file}: unlink: {error}"),
            Self::NotReserved => out.write_str("binlog: a record without a reservation"),
            Self::Stopped => out.write_str("binlog: stopped after an earlier error"),
        }
    }
}

impl std::error::Error for BinlogError {}

/// The reason why the log could not be opened. The files have not been changed.
#[derive(Debug)]
pub enum OpenError {
    /// The directory could not be read.
    List(io::Error),
    /// A file could not be read.
    Read {
        /// Index of the file.
        file: u32,
        /// The error of the system.
        error: io::Error,
    },
    /// A file of the log could not be made, cut or synced.
    Write {
        /// Index of the file.
        file: u32,
        /// The error of the system.
        error: io::Error,
    },
    /// The tail that recovery was about to cut off file `file` could not be copied.
    Keep {
        /// Index of the file.
        file: u32,
        /// The offset of the cut, in bytes.
        offset: u64,
        /// The error of the system.
        error: io::Error,
    },
    /// The jobs did not fit into memory.
    OutOfMemory,
    /// No index is left for a new file: the format's last one is 2147483646.
    TooManyFiles,
    /// The contents of the files contradict each other: damage, or missing or misplaced files.
    Faulty(Vec<LogFault>),
    /// The log failed while it was being repaired.
    Failed(BinlogError),
}

impl From<TryReserveError> for OpenError {
    fn from(_: TryReserveError) -> Self {
        Self::OutOfMemory
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(error) => write!(out, "binlog directory: {error}"),
            Self::Read { file, error } => write!(out, "binlog.{file}: read: {error}"),
            Self::Write { file, error } => write!(out, "binlog.{file}: {error}"),
            Self::Keep { file, offset, error } => write!(out, "lost.{file}.{offset}: {error}"),
            Self::OutOfMemory => out.write_str("out of memory while reading the binlog"),
            Self::TooManyFiles => out.write_str("no index is left for another binlog file"),
            Self::Faulty(faults) => {
                for (at, fault) in faults.iter().enumerate() {
                    write!(out, "{}{fault}", if at == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Self::Failed(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for OpenError {}
