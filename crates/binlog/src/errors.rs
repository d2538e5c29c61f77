//! The errors of the log: a record cannot be appended now, the log has ended, or it could not be opened.
//!
//! Owns: the reasons, and the words for the operator. Never decides what follows from one: the server does.

use std::collections::TryReserveError;
use std::{fmt, io};

/// The reason why a record cannot be appended now. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The next file is being made: there may be room after the next completion.
    Pending,
    /// The disk is full, or there is no memory for the record, or the record is too long. On a full disk the log tries
    /// again every second.
    Full,
}

/// The reason why the log has ended. After this, only changes that were already durable may be acknowledged.
#[derive(Debug)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum BinlogError {
    /// Bytes could not be written to file `file` at `offset`.
    Write { file: u32, offset: u64, error: io::Error },
    /// File `file` could not be synced: data that the kernel held for it may be lost.
    Sync { file: u32, error: io::Error },
    /// File `file` could not be made or opened, although there was enough room, descriptors and memory: the medium
    /// fails, or the directory was removed, replaced or made read-only.
    Create { file: u32, error: io::Error },
    /// File `file`, in which no job is left, could not be removed.
    Remove { file: u32, error: io::Error },
    /// A record was appended without reserved room. This is a mistake in the caller.
    NotReserved,
    /// An earlier call failed.
    Stopped,
}

impl fmt::Display for BinlogError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { file, offset, error } => {
                write!(out, "binlog.{file}: cannot write at {offset}: {error}")
            }
            Self::Sync { file, error } => write!(out, "binlog.{file}: cannot sync this file: {error}"),
            Self::Create { file, error } => write!(out, "binlog.{file}: cannot create this file: {error}"),
            Self::Remove { file, error } => write!(out, "binlog.{file}: cannot remove this file: {error}"),
            Self::NotReserved => out.write_str("binlog: a record was appended without reserved room"),
            Self::Stopped => out.write_str("binlog: stopped after an earlier error"),
        }
    }
}

impl std::error::Error for BinlogError {}

/// A fault in a log. The server does not start with it; `--recover` turns each fault into a
/// [`Warning`](crate::Warning).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum LogFault {
    /// File `file` is damaged at `offset`, below `durable`, up to which it was on the medium.
    Damaged { file: u32, offset: u64, durable: u64 },
    /// File `file`, written by C, has a bad record at `offset` and more data after it.
    BadRecord { file: u32, offset: u64 },
    /// The header of file `file` is damaged.
    DamagedHeader { file: u32 },
    /// File `file` was made as the file with index `made_as`.
    Misplaced { file: u32, made_as: u32 },
    /// File `file` is missing.
    Missing { file: u32 },
    /// File `file` has `version`, which this server does not know.
    UnknownVersion { file: u32, version: i32 },
}

impl LogFault {
    /// The file that is missing, or counts as missing.
    pub(super) fn file_given_up(&self) -> Option<u32> {
        match *self {
            Self::Damaged { .. } | Self::BadRecord { .. } => None,
            Self::DamagedHeader { file }
            | Self::Misplaced { file, .. }
            | Self::Missing { file }
            | Self::UnknownVersion { file, .. } => Some(file),
        }
    }
}

impl fmt::Display for LogFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { file, offset, durable } => {
                write!(out, "binlog.{file}: damaged at {offset}, although it was on disk up to {durable}")
            }
            Self::BadRecord { file, offset } => {
                write!(out, "binlog.{file}: bad record at {offset}, with more data after it")
            }
            Self::DamagedHeader { file } => write!(out, "binlog.{file}: the header is damaged, at 4"),
            Self::Misplaced { file, made_as } => write!(out, "binlog.{file}: was made as binlog.{made_as}"),
            Self::Missing { file } => write!(out, "binlog.{file}: missing"),
            Self::UnknownVersion { file, version } => write!(out, "binlog.{file}: unknown version {version}"),
        }
    }
}

/// The reason why the log could not be opened. The next start finds what this one has found.
#[derive(Debug)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum OpenError {
    /// The directory could not be read.
    List(io::Error),
    /// File `file` could not be read.
    Read { file: u32, error: io::Error },
    /// File `file` could not be made, cut or synced.
    Write { file: u32, error: io::Error },
    /// The tail of file `file` from `offset` on, which recovery was about to cut off, could not be copied.
    Keep { file: u32, offset: u64, error: io::Error },
    /// The jobs did not fit into memory.
    OutOfMemory,
    /// No index is left for a new file: the format's last one is 2147483646.
    TooManyFiles,
    /// The database accepts no more, or there is no memory for a record of the repair.
    NoRoom,
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
            Self::List(error) => write!(out, "cannot list the files of the binlog: {error}"),
            Self::Read { file, error } => write!(out, "binlog.{file}: cannot read this file: {error}"),
            Self::Write { file, error } => {
                write!(out, "binlog.{file}: cannot make or change this file: {error}")
            }
            Self::Keep { file, offset, error } => {
                write!(out, "cannot copy the damaged tail of binlog.{file} to lost.{file}.{offset}: {error}")
            }
            Self::OutOfMemory => out.write_str("out of memory while reading the binlog"),
            Self::TooManyFiles => out.write_str("no index is left for another binlog file"),
            Self::NoRoom => {
                out.write_str("the database or the memory has no room for the repair of the binlog")
            }
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
