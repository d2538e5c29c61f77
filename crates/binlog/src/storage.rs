//! The interface between the log and the store of its files.
//!
//! Owns: the trait [`Storage`], the tasks of a store and their outcomes. The log uses a store only through this trait,
//! so that the store can be a directory, a disk in memory or a database.

use std::io::{self, ErrorKind};

use super::LogPosition;
use super::marker::HEAD_BYTES;

/// A store of the log's files. Each file has an index, a length from its creation, and bytes that are zero until they
/// are appended.
///
/// A store belongs to one log at a time: the code that makes it takes the ownership (a lock, for a directory), and the
/// store releases it when it is dropped.
///
/// No method is called again after a failed append or sync, because the store may have dropped the data.
pub trait Storage {
    /// The existing files.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn list(&mut self) -> io::Result<Listing>;

    /// Length of file `file`, in bytes.
    ///
    /// # Errors
    /// If there is no such file, or if it cannot be read.
    fn size(&mut self, file: u32) -> io::Result<u64>;

    /// Reads at most `bytes.len()` bytes at `offset` of file `file`. Returns how many; 0 at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read(&mut self, file: u32, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Takes the resources for appending to file `file` and syncing it, so that neither fails because others have taken
    /// them. The log calls this before it appends to the file for the first time.
    ///
    /// # Errors
    /// If a resource is lacking (descriptors or memory), or if there is no such file.
    fn prepare(&mut self, file: u32) -> io::Result<()>;

    /// Writes all of `bytes` at the end of what was appended before. Returns without waiting for the medium.
    ///
    /// # Errors
    /// If the store cannot take all bytes. Then it is not known which of them it has.
    fn append(&mut self, at: LogPosition, bytes: &[u8]) -> io::Result<()>;

    /// Releases the resources for reading or appending to file `file`, because the log does not read it or append to it
    /// now.
    fn release(&mut self, file: u32);

    /// Submits `task` to the store, which does it after all tasks that were submitted before.
    fn submit(&mut self, task: StoreTask);

    /// The outcome of the next completed task; `None` if there is none. The store may do several syncs of one file as
    /// one, and then returns only the outcome of the last of them.
    fn poll(&mut self) -> Option<Completion>;

    /// Begins the submitted tasks, now at the latest. The caller calls this when it has sent its replies: waking
    /// another thread takes time, and on a machine with one processor that thread may run at once.
    fn begin(&mut self) {}

    /// Whether there are submitted tasks that could begin now.
    fn has_tasks_to_begin(&self) -> bool {
        false
    }

    /// Asks the store to end the making of a file early. If it does, the outcome is an error of the kind
    /// [`ErrorKind::Interrupted`]; the store may also complete the file.
    fn interrupt_making(&mut self) {}

    /// Whether the outcome of a submitted task is missing.
    fn is_busy(&self) -> bool;

    /// As [`Storage::poll`], but waits for a task in progress; `None` if there is none.
    fn wait(&mut self) -> Option<Completion>;

    /// From now on, the store does its tasks on another thread, and calls `wake` when an outcome can be polled. Before
    /// this call, only [`Storage::wait`] does tasks.
    ///
    /// # Errors
    /// If the system provides no thread.
    fn start(&mut self, wake: Box<dyn Fn() + Send>) -> io::Result<()>;

    /// The current time in nanoseconds since 1970, by a clock that passes between the log's owners on different
    /// machines; `None` if the times in the log are those of this machine's wall clock.
    fn clock_ns(&self) -> Option<u64> {
        None
    }

    /// Whether there is no room for more, although the files exist. Appended bytes get the remaining room.
    fn is_full(&self) -> bool {
        false
    }

    /// For how many nanoseconds from now on replies about the changes so far can be sent; 0 if they cannot. `None` if
    /// no other server can take over the store while this process lives. The store reads a clock in this call.
    fn lease_left_ns(&self) -> Option<u64> {
        None
    }

    /// The figures of the database; `None` for a store that is not a database.
    fn database(&self) -> Option<DatabaseFigures> {
        None
    }

    /// Copies file `file` from `offset` up to its last byte that is not zero, to a place from which no log is read.
    /// Returns how many bytes it copied; they are durable then.
    ///
    /// # Errors
    /// If the bytes cannot be read or written.
    fn keep_tail(&mut self, file: u32, offset: u64) -> io::Result<u64>;

    /// Removes file `file` from the log and keeps its bytes. Fails if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be removed from the log.
    fn set_aside(&mut self, file: u32) -> io::Result<()>;
}

/// The figures of a store in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct DatabaseFigures {
    pub epoch: u64,
    /// Transactions of this owner that the database has confirmed, heartbeats included.
    pub commits: u64,
    /// How often a new connection was necessary.
    pub reconnects: u64,
    /// The time since the last confirmed transaction, in seconds.
    pub silence_s: u64,
    /// Whether the server has recently proved that it owns the queue: otherwise it sends no replies.
    pub has_lease: bool,
    /// Whether the server ensures that the database replicates each commit.
    pub is_replicated: bool,
    /// The size of the table of the log when it was last vacuumed, in bytes; 0 before that.
    pub table_bytes: u64,
}

/// The files of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Indexes of the files, in any order.
    pub indexes: Vec<u64>,
    /// Names that look like names of the log's files but are not.
    pub strange_names: Vec<String>,
}

/// A task that a store does for the log outside of the loop, in the order of submission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum StoreTask {
    /// Make all bytes of a file durable that were appended before this position. The log submits a sync for each file
    /// that it has filled, so that the durable part is always the beginning of the log.
    Sync(LogPosition),
    /// Make file `file`, which has `bytes`: `head`, and then zeros. It is complete and durable before it appears in the
    /// log.
    Make { file: u32, bytes: u64, head: Box<[u8; HEAD_BYTES as usize]> },
    /// Cut file `file`, to which nothing more is appended, to `bytes`.
    Shorten { file: u32, bytes: u64 },
    /// Remove file `file`. Once this is done, the file stays removed.
    Remove { file: u32 },
}

/// The outcome of a task.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names of the fields say everything")]
pub struct Completion {
    pub task: StoreTask,
    pub elapsed_us: u64,
    pub result: io::Result<()>,
}

/// The numbers of two errors that have no name in the standard library; they are the same on every Unix.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Whether the machine or the process lacked a resource that others may release: descriptors or memory. The call has
/// done nothing and may be repeated.
#[must_use]
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::OutOfMemory)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Whether the disk is full, or a quota or a limit of the file's size is reached.
#[must_use]
pub(crate) fn is_lack_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}
