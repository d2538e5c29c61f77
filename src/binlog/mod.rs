//! The binlog: every job, on disk, in files that C beanstalkd 1.12 and 1.13 can read and write too.
//!
//! Owns: the log's format, its files and the room in them, what is on the medium and what is not yet, the
//! replay at start. Never calls a clock, a socket or a thread: slow work is handed out as [`DiskTask`]s and
//! comes back as [`Completion`]s. Driven by the server: **check, reserve, mutate, append**, then one
//! [`Binlog::commit`] a turn. `doc/binlog.md` has the layout and the rules of recovery.

use std::fmt;
use std::io;

mod burials;
mod check;
mod decision;
mod disk;
mod durability;
mod format;
mod helper;
mod jobs;
mod marker;
mod open;
mod reader;
mod record;
mod replay;
mod segments;
mod space;
mod writer;

pub use check::{CheckReport, FileReport, check, dump};
pub use decision::{Decision, FileEnd, Situation, Writer, decide};
pub use disk::{Completion, Directory, Disk, DiskTask, FileName, MOST_DESCRIPTORS};
pub use helper::Helper;
pub use marker::Place;
pub use replay::{DamagedFile, Refusal, ReplaySummary, Warning};
pub use writer::{Binlog, Stats};

/// When a reply may leave, and when the disk is told to keep what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Never told (`-F`).
    Never,
    /// At most this many milliseconds after the first byte that is not yet kept (`-f MS`).
    Every(u32),
    /// After every commit; no reply leaves before (`-f 0`, `-D`).
    EachCommit,
}

/// What the binlog is told at start.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Length of a file, in bytes (`-s`); rounded up to blocks of 4096.
    pub segment_bytes: u64,
    /// When to sync.
    pub sync: SyncPolicy,
    /// Whether to go on past damage (`--recover`), keeping what is cut off.
    pub recover: bool,
    /// Random, and new at each start: from it come the nonces of the files.
    pub nonce_seed: u64,
}

/// A count of the records of this run, by which the server knows whether a reply may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// Why a record may not be written now. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The next file is being made: there may be room after the next completion.
    Pending,
    /// The disk is full. It is tried again every second.
    Full,
}

/// Why the log has ended. Nothing that was not durable before may be acknowledged any more.
#[derive(Debug)]
pub enum BinlogError {
    /// Bytes could not be written to file `file` at `offset`.
    Write {
        /// Index of the file.
        file: u32,
        /// Offset in bytes.
        offset: u64,
        /// What the system said.
        error: io::Error,
    },
    /// File `file` could not be synced: what the kernel held of it may be gone.
    Sync {
        /// Index of the file.
        file: u32,
        /// What the system said.
        error: io::Error,
    },
    /// File `file` could not be made or opened, and not for lack of room or of what comes back by itself: the medium fails,
    /// or the directory was removed, replaced or made read-only.
    Create {
        /// Index of the file.
        file: u32,
        /// What the system said.
        error: io::Error,
    },
    /// File `file`, in which no job is left, could not be removed.
    Unlink {
        /// Index of the file.
        file: u32,
        /// What the system said.
        error: io::Error,
    },
    /// A record was appended for which no room had been reserved: a mistake in the caller.
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
            Self::Unlink { file, error } => write!(out, "binlog.{file}: unlink: {error}"),
            Self::NotReserved => out.write_str("binlog: a record without a reservation"),
            Self::Stopped => out.write_str("binlog: stopped after an earlier error"),
        }
    }
}

impl std::error::Error for BinlogError {}

/// Why the log could not be opened. The files are as they were.
#[derive(Debug)]
pub enum OpenError {
    /// The directory could not be read.
    List(io::Error),
    /// A file could not be read.
    Read {
        /// Index of the file.
        file: u32,
        /// What the system said.
        error: io::Error,
    },
    /// A file of the log could not be made, cut or synced.
    Write {
        /// The file.
        name: FileName,
        /// What the system said.
        error: io::Error,
    },
    /// A body did not fit into memory.
    OutOfMemory,
    /// No index is left for a new file: the format's last one is 2147483646.
    TooManyFiles,
    /// What the files hold contradicts itself: damage, or files that are missing or misplaced.
    Refused(Vec<Refusal>),
    /// The log failed while it was being repaired.
    Failed(BinlogError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(error) => write!(out, "binlog directory: {error}"),
            Self::Read { file, error } => write!(out, "binlog.{file}: read: {error}"),
            Self::Write { name, error } => write!(out, "{}: {error}", name.text()),
            Self::OutOfMemory => out.write_str("out of memory while reading the binlog"),
            Self::TooManyFiles => out.write_str("no index is left for another binlog file"),
            Self::Refused(refusals) => {
                for (at, refusal) in refusals.iter().enumerate() {
                    write!(out, "{}{refusal}", if at == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Self::Failed(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for OpenError {}
