//! The log in a directory of files: the store for `-b DIRECTORY`.
//!
//! Owns: file names, the order of the steps that make, remove and cut a file, the thread that takes these steps, and
//! the lock of the directory. It is the shell of the binlog: it calls the file system, a thread and a clock, and
//! decides nothing about the log. Driven by the log through [`Storage`].
//!
//! [`Disk`] is the seam below: in the tests of crashes and of failing disks, a disk in memory replaces [`Directory`],
//! and a list of tasks replaces the [`DirectoryHelper`].

use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::Instant;

use super::LogPosition;
use super::storage::{Completion, Listing, Storage, StoreTask};
use crate::os::directory_lock::{DirectoryLock, LockError, check_in_place};

mod files;
mod helper;

pub use files::{Directory, MAX_DESCRIPTORS};
pub(crate) use helper::DirectoryHelper;

/// Zeros are written in pieces of this many bytes, each of which takes about twenty microseconds. Then the thread
/// offers the processor to the loop, which may have no other: the kernel does not interrupt a thread in the middle of a
/// write.
const FILL_BYTES: usize = 64 * 1024;
/// A new file is synced each time it has grown by this many bytes, and an old one is cut by this many at a time: the
/// kernel does not interrupt itself during either.
const AT_ONCE_BYTES: u64 = 1024 * 1024;
/// The size of a piece in which recovery copies a tail.
const COPY_BYTES: usize = 256 * 1024;

/// A name in the binlog's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// `binlog.N`: a file of the log.
    Log(u32),
    /// `binlog.N.new`: an incomplete file.
    Unfinished(u32),
    /// `lost.N.X`: the tail that recovery cut off `binlog.N` at offset X.
    Lost(u32, u64),
}

impl FileName {
    /// The name in the directory.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Log(index) => format!("binlog.{index}"),
            Self::Unfinished(index) => format!("binlog.{index}.new"),
            Self::Lost(index, offset) => format!("lost.{index}.{offset}"),
        }
    }
}

/// The operations on a directory that the store needs. Every operation may fail. None is repeated after a failed write
/// or sync, because the kernel may have dropped the data.
pub trait Disk {
    /// The names that begin with `binlog.`, without that prefix.
    fn list(&mut self) -> io::Result<Vec<String>>;
    /// Length of a file in bytes.
    fn size(&mut self, name: FileName) -> io::Result<u64>;
    /// Reads at most `bytes.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&mut self, name: FileName, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Keeps a handle until [`Disk::release`], so that no write fails for lack of a descriptor.
    fn open(&mut self, name: FileName) -> io::Result<()>;
    /// Makes an empty file, or empties the existing one.
    fn create(&mut self, name: FileName) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    fn write_at(&mut self, name: FileName, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Ends a file at `bytes`.
    fn truncate(&mut self, name: FileName, bytes: u64) -> io::Result<()>;
    /// Returns when everything written to the file is on the medium.
    fn sync(&mut self, name: FileName) -> io::Result<()>;
    /// Renames a file.
    fn rename(&mut self, from: FileName, to: FileName) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&mut self, name: FileName) -> io::Result<()>;
    /// Closes the handle of a file that is not used for now: it would keep the space of a removed file.
    fn release(&mut self, name: FileName);
    /// Returns when all names made and removed so far are on the medium.
    fn sync_directory(&mut self) -> io::Result<()>;
}

/// The execution of a store's tasks.
pub trait TaskRunner<D> {
    /// Takes a task; `disk` is the one through which the log appends.
    fn submit(&mut self, task: StoreTask, disk: &mut D);
    /// See [`Storage::poll`].
    fn poll(&mut self) -> Option<Completion>;
    /// See [`Storage::begin`].
    fn begin(&mut self) {}
    /// See [`Storage::has_tasks_to_begin`].
    fn has_tasks_to_begin(&self) -> bool {
        false
    }
    /// See [`Storage::interrupt_making`].
    fn interrupt_making(&mut self) {}
    /// See [`Storage::is_busy`].
    fn is_busy(&self) -> bool;
    /// See [`Storage::wait`].
    fn wait(&mut self, disk: &mut D) -> Option<Completion>;
    /// See [`Storage::start`].
    ///
    /// # Errors
    /// If the system provides no thread.
    fn start(&mut self, wake: Box<dyn Fn() + Send>) -> io::Result<()>;
}

/// The log in a directory, with a thread for its tasks.
pub type DirectoryStorage = OnDisk<Directory, DirectoryHelper>;

/// The log on a disk.
#[derive(Debug)]
pub struct OnDisk<D, T> {
    disk: D,
    tasks: T,
    /// Released after the tasks have ended, because a waiting server continues as soon as it has the lock.
    _lock: Option<DirectoryLock>,
}

impl DirectoryStorage {
    /// The log in the directory at `path`, which no other server uses in the meantime.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { disk: Directory::new(path), tasks: DirectoryHelper::new(Directory::new(path)), _lock: None }
    }

    /// The log in the directory at `path`, which no other server uses while `lock` is held.
    ///
    /// # Errors
    /// If the lock is that of another directory, which was at this path before.
    pub fn locked(path: &Path, lock: DirectoryLock) -> Result<Self, LockError> {
        let storage = Self::new(path);
        // From now on the directory itself is open, so that a later replacement is noticed.
        check_in_place(lock.descriptor(), path)?;
        Ok(Self { _lock: Some(lock), ..storage })
    }

    /// The log in the directory at `path`, read-only.
    #[must_use]
    pub fn read_only(path: &Path) -> Self {
        let tasks = DirectoryHelper::new(Directory::read_only(path));
        Self { disk: Directory::read_only(path), tasks, _lock: None }
    }
}

/// Not a part of the generic function that calls it, because the tests optimize this crate more than their own code.
fn without_zeros_at_end(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
}

impl<D: Disk, T: TaskRunner<D>> OnDisk<D, T> {
    /// The log on `disk`, with `tasks` for its tasks.
    pub fn with_tasks(disk: D, tasks: T) -> Self {
        Self { disk, tasks, _lock: None }
    }

    fn copy_tail(&mut self, file: u32, offset: u64, to: FileName) -> io::Result<u64> {
        let from = FileName::Log(file);
        self.disk.create(to)?;
        let mut piece = vec![0; COPY_BYTES];
        let (mut copied, mut kept) = (0, 0);
        loop {
            let count = match self.disk.read_at(from, offset + copied, &mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            };
            if count == 0 {
                break;
            }
            let nonzero = without_zeros_at_end(&piece[..count]);
            if !nonzero.is_empty() {
                self.disk.write_at(to, copied, nonzero)?;
                kept = copied + nonzero.len() as u64;
            }
            copied += count as u64;
        }
        self.disk.sync(to)?;
        self.disk.release(to);
        self.disk.release(from);
        self.disk.sync_directory()?;
        Ok(kept)
    }
}

impl<D: Disk, T: TaskRunner<D>> Storage for OnDisk<D, T> {
    fn list(&mut self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        let names = self.disk.list()?;
        // The process that made the newest of these names may have been killed before its sync. A power loss must not
        // remove that name and keep the name of a file that is made later: a file in the middle of the log would be
        // missing.
        if !names.is_empty() {
            self.disk.sync_directory()?;
        }
        for name in names {
            // As C writes them: decimal, without a sign or leading zeros.
            match name.parse::<u64>() {
                Ok(index) if index.to_string() == name => listing.indexes.push(index),
                _ if name.ends_with(".new") => {}
                _ => listing.strange_names.push(format!("binlog.{name}")),
            }
        }
        Ok(listing)
    }

    fn size(&mut self, file: u32) -> io::Result<u64> {
        self.disk.size(FileName::Log(file))
    }

    fn read(&mut self, file: u32, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.disk.read_at(FileName::Log(file), offset, bytes)
    }

    fn prepare(&mut self, file: u32) -> io::Result<()> {
        self.disk.open(FileName::Log(file))
    }

    fn append(&mut self, at: LogPosition, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(FileName::Log(at.file), at.offset, bytes)
    }

    fn release(&mut self, file: u32) {
        self.disk.release(FileName::Log(file));
    }

    fn submit(&mut self, task: StoreTask) {
        self.tasks.submit(task, &mut self.disk);
    }

    fn poll(&mut self) -> Option<Completion> {
        self.tasks.poll()
    }

    fn begin(&mut self) {
        self.tasks.begin();
    }

    fn has_tasks_to_begin(&self) -> bool {
        self.tasks.has_tasks_to_begin()
    }

    fn interrupt_making(&mut self) {
        self.tasks.interrupt_making();
    }

    fn is_busy(&self) -> bool {
        self.tasks.is_busy()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.tasks.wait(&mut self.disk)
    }

    fn start(&mut self, wake: Box<dyn Fn() + Send>) -> io::Result<()> {
        self.tasks.start(wake)
    }

    fn keep_tail(&mut self, file: u32, offset: u64) -> io::Result<u64> {
        self.copy_tail(file, offset, FileName::Lost(file, offset))
    }

    fn set_aside(&mut self, file: u32) -> io::Result<()> {
        self.disk.rename(FileName::Log(file), FileName::Lost(file, 0))?;
        self.disk.sync_directory()
    }
}

impl StoreTask {
    /// Carries out the task on `disk`, and measures how long it takes.
    pub fn run(self, disk: &mut dyn Disk) -> Completion {
        self.run_unless(disk, &|| false)
    }

    /// As [`StoreTask::run`], but ends the making of a file early once `is_interrupted`.
    fn run_unless(self, disk: &mut dyn Disk, is_interrupted: &dyn Fn() -> bool) -> Completion {
        let start = Instant::now();
        let result = match &self {
            Self::Sync(position) => disk.sync(FileName::Log(position.file)),
            Self::Make { file, bytes, head } => make_file(disk, *file, *bytes, &head[..], is_interrupted),
            Self::Shorten { file, bytes } => disk.truncate(FileName::Log(*file), *bytes),
            Self::Remove { file } => remove_file(disk, FileName::Log(*file)),
        };
        self.completed(start, result)
    }

    fn completed(self, start: Instant, result: io::Result<()>) -> Completion {
        let elapsed_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Completion { task: self, elapsed_us, result }
    }
}

/// Makes a file of `head` and zeros. It is complete and on the medium before it gets its name, so that a file of the
/// log never lacks its head and never runs out of space.
fn make_file(
    disk: &mut dyn Disk,
    index: u32,
    bytes: u64,
    head: &[u8],
    is_interrupted: &dyn Fn() -> bool,
) -> io::Result<()> {
    debug_assert!(head.len() as u64 <= bytes, "a file is longer than its head");
    let unfinished = FileName::Unfinished(index);
    let filled = fill_file(disk, unfinished, bytes, head, is_interrupted);
    if let Err(error) = filled {
        // On a full disk, the log needs the space of the unfinished file.
        let _ = disk.unlink(unfinished);
        return Err(error);
    }
    disk.rename(unfinished, FileName::Log(index))?;
    // The log opens its own handle.
    disk.release(FileName::Log(index));
    disk.sync_directory()
}

fn fill_file(
    disk: &mut dyn Disk,
    name: FileName,
    bytes: u64,
    head: &[u8],
    is_interrupted: &dyn Fn() -> bool,
) -> io::Result<()> {
    disk.create(name)?;
    let zeros = vec![0; FILL_BYTES.min(usize::try_from(bytes).unwrap_or(FILL_BYTES))];
    let mut at = 0;
    while at < bytes {
        let part = zeros.len().min(usize::try_from(bytes - at).unwrap_or(zeros.len()));
        disk.write_at(name, at, &zeros[..part])?;
        at += part as u64;
        if at.is_multiple_of(AT_ONCE_BYTES) {
            disk.sync(name)?;
        }
        thread::yield_now();
        if is_interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
    }
    disk.write_at(name, 0, head)?;
    disk.sync(name)
}

/// Removes `name`, and waits until the removal is on the medium, so that files are removed in order even if the machine
/// crashes.
fn remove_file(disk: &mut dyn Disk, name: FileName) -> io::Result<()> {
    match disk.unlink(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => disk.sync_directory(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::marker::HEAD_BYTES;
    use crate::storage::is_shortage;

    #[test]
    fn a_file_has_its_name_only_once_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Directory::new(directory.path());
        let task = StoreTask::Make { file: 3, bytes: 8192, head: Box::new([7; HEAD_BYTES as usize]) };
        task.run(&mut disk).result.unwrap();
        assert_eq!(disk.list().unwrap(), ["3"]);
        let bytes = fs::read(directory.path().join("binlog.3")).unwrap();
        assert_eq!(bytes.len(), 8192);
        assert!(bytes[..88].iter().all(|&byte| byte == 7) && bytes[88..].iter().all(|&byte| byte == 0));
        StoreTask::Remove { file: 3 }.run(&mut disk).result.unwrap();
        assert!(disk.list().unwrap().is_empty());
    }

    #[test]
    fn a_file_whose_making_is_interrupted_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Directory::new(directory.path());
        let bytes = 3 * FILL_BYTES as u64;
        let task = StoreTask::Make { file: 3, bytes, head: Box::new([7; HEAD_BYTES as usize]) };
        let pieces = Cell::new(0);
        let is_interrupted = || {
            pieces.set(pieces.get() + 1);
            pieces.get() == 2
        };
        let error = task.clone().run_unless(&mut disk, &is_interrupted).result.unwrap_err();
        assert!(is_shortage(&error), "the log tries again: {error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        task.run(&mut disk).result.unwrap();
        assert_eq!(disk.list().unwrap(), ["3"]);
    }

    #[test]
    fn the_lock_of_another_directory_that_was_at_the_path_before_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("binlog");
        fs::create_dir(&path).unwrap();
        let lock = DirectoryLock::take(&path).unwrap();
        fs::rename(&path, parent.path().join("elsewhere")).unwrap();
        assert!(matches!(DirectoryStorage::locked(&path, lock), Err(LockError::Replaced { .. })));
        fs::create_dir(&path).unwrap();
        let lock = DirectoryLock::take(&path).unwrap();
        assert!(DirectoryStorage::locked(&path, lock).is_ok());
        let lock = DirectoryLock::take(&path).unwrap();
        fs::remove_file(path.join("lock")).unwrap();
        fs::write(path.join("lock"), "").unwrap();
        assert!(matches!(DirectoryStorage::locked(&path, lock), Err(LockError::Replaced { .. })));
    }

    #[test]
    fn a_tail_is_kept_without_the_zeros_at_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = vec![1_u8; COPY_BYTES + 10];
        bytes[20..COPY_BYTES].fill(0);
        bytes.resize(2 * COPY_BYTES, 0);
        fs::write(directory.path().join("binlog.2"), &bytes).unwrap();
        let mut storage = DirectoryStorage::new(directory.path());
        assert_eq!(storage.keep_tail(2, 5).unwrap(), COPY_BYTES as u64 + 5);
        assert_eq!(fs::read(directory.path().join("lost.2.5")).unwrap(), bytes[5..COPY_BYTES + 10]);
        assert_eq!(storage.list().unwrap().indexes, [2], "what was kept is no file of the log");
    }
}
