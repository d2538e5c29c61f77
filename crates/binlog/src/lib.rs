//! The binlog: every job, on disk, in files that C beanstalkd 1.12 and 1.13 can also read and write.
//!
//! Owns: the log's format, its files and the room in them, which records are on the medium, and the replay at start.
//! Everything outside `directory` and `postgres` is pure: it calls no clock, no file system and no thread. It uses the
//! store of its files through the trait [`Storage`], submits slow work as a [`StoreTask`] and gets the outcome as a
//! [`Completion`]; these two implement the trait. Driven by the server: **check, reserve, mutate, append**, then one
//! [`Binlog::commit`] a turn. `doc/binlog.md` has the layout and the rules of recovery.
//!
//! The public face, by purpose:
//!
//! | for | types, and methods of [`Binlog`] |
//! |---|---|
//! | a store | [`DirectoryStorage`]; [`PostgresStorage`], whose settings come from a [`DatabaseUrl`]. A [`Disk`] and [`TaskRunner`] of your own make an [`OnDisk`] |
//! | the start | `open`, with a [`Config`]; a [`ReplaySummary`] with its [`Warning`]s, or an [`OpenError`]; `start` and `cooldowns` after it |
//! | room, before anything changes | `reserve_put`, `reserve_update`, `reserve_move`, `reserve_complete`, `reserve_for_session`, `reserve_id`: each may answer [`NoRoom`] |
//! | records | `append_put` and `append_moved` of a [`WholeJob`]; `append_update`, `append_reservation`, `note_burial` before the record of a burial; `append_delete`, with [`SideEffects`] `append_delete_with`; `begin_complete` before its puts; `append_session_reservation` with a [`LoggedReservation`] |
//! | changes without room | `postpone_update`, `next_postponed`, `lacks_state_of`, `lacks_states` |
//! | a turn | `commit`; then `appended`, `awaited` and `durable` say which replies can be sent |
//! | time, and the tasks of the store | `next_deadline`, `on_deadline`, `begin_tasks`, `next_completion`, `on_completion` |
//! | compaction | `next_migration`, `has_room_for_copy`, `append_migrated` |
//! | shutdown and hand-over | `close`; `is_ready_to_quiesce`, `interrupt_making`, `quiesce`, `describe`, `resume` with a [`DescribedLog`] |
//! | one owner of a log in a database | [`Owner`] and [`Watch`], which decide on each [`StepAnswer`] of the database. They are pure, and public so that the simulation can drive them |
//! | operators | [`check()`], [`dump`], [`PostgresCopy`]; the figures: [`Stats`] |
//!
//! ```
//! use beanstalkd_binlog::{Binlog, Config, DirectoryStorage, SyncPolicy};
//! use beanstalkd_types::clock::Timestamp;
//!
//! let directory = tempfile::tempdir()?;
//! let storage = Box::new(DirectoryStorage::new(directory.path()));
//! let config = Config { file_bytes: 65536, sync: SyncPolicy::EachCommit, recover: false, nonce_seed: 1 };
//! let mut jobs = Vec::new();
//! let mut restore = |record: _, _tube: &_, _body, _tags: &_| jobs.push(record);
//! let (mut binlog, summary) = Binlog::open(storage, config, Timestamp(0), 0, &mut restore)?;
//! binlog.commit(Timestamp(0))?; // a turn without a change
//! assert!(jobs.is_empty(), "{summary:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]
// With a new state or task, the compiler points at every `match` that must handle it.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use beanstalkd_os as os;
use beanstalkd_types::{
    assertions, clock, described, description, job, json, percent, rate_limited_log, seconds, tags, tube_name,
};

mod attachment;
mod check;
mod chunked_queue;
mod cooldowns;
mod database_url;
mod directory;
mod errors;
mod files;
mod format;
mod item;
mod marker;
mod open;
mod ownership;
#[cfg(feature = "postgres")]
mod postgres;
mod record;
mod replay;
mod storage;
mod wall_clock;
mod writer;

pub use attachment::{Cooldown, LoggedReservation, SideEffects};
pub use check::{CheckReport, FileReport, check, dump};
pub use database_url::{DatabaseHost, DatabaseTls, DatabaseUrl, is_database_url};
pub use directory::{Directory, DirectoryStorage, Disk, FileName, MAX_DESCRIPTORS, OnDisk, TaskRunner};
pub use errors::{BinlogError, LogFault, NoRoom, OpenError};
pub use open::Restore;
pub use ownership::{Lease, Owner, OwnerStep, OwnershipEnd, OwnershipTimes, SeenRow, StepAnswer, Watch};
#[cfg(feature = "postgres")]
pub use postgres::{Password, PostgresCopy, PostgresStorage, Settings, StoreError};
pub use replay::{DamagedFile, ReplaySummary, RestoredReservation, Warning};
pub use storage::{Completion, DatabaseFigures, Listing, Storage, StoreTask};
pub use writer::{Binlog, CompleteRoom, DescribedLog, LogState, Stats, WholeJob};

/// The last index that a file may have: C counts files in an `int`.
const MAX_INDEX: u32 = i32::MAX as u32 - 1;

/// No log has lengths, ids and counts above this: sums with them must not overflow.
const MAX_NUMBER: u64 = u64::MAX / 4;

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
    /// `-f`, `-F` or `-D`.
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

/// A position in the log: a file's index and an offset in it, in bytes, in the order in which the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names of the fields say everything")]
pub struct LogPosition {
    pub file: u32,
    pub offset: u64,
}
