//! The way to the disk: the one trait through which the binlog reaches it, and the real directory.
//!
//! Owns: file names, open handles, and the jobs that the helper thread does. Never decides when. The trait
//! is the seam where a simulated disk takes the place of the real one, in tests of crashes and failures.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use super::marker::HEAD_BYTES;

/// A name in the binlog's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// `binlog.N`: a file of the log.
    Segment(u32),
    /// `binlog.N.new`: a file being made.
    Unfinished(u32),
    /// `lost.N.X`: what recovery cut off `binlog.N` at offset X.
    Lost(u32, u64),
}

impl FileName {
    /// The name as the directory holds it.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Segment(index) => format!("binlog.{index}"),
            Self::Unfinished(index) => format!("binlog.{index}.new"),
            Self::Lost(index, offset) => format!("lost.{index}.{offset}"),
        }
    }
}

/// The numbers of two errors that have no name in the standard library; they are the same on every Unix.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Whether the machine or the process lacks something that comes back by itself: descriptors or memory. The
/// call has done nothing and may be made again.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::OutOfMemory)
        || is_lack_of_descriptors(error)
}

/// Whether the machine or the process has no descriptor left.
pub(super) fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Whether the disk, a quota or a limit has no room.
pub(super) fn is_lack_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// What the binlog asks of a directory. Every operation may fail; none is tried twice after a failed
/// write or sync, because the kernel may by then have dropped the data.
pub trait Disk {
    /// The names that begin with `binlog.`, without that beginning.
    fn list(&mut self) -> io::Result<Vec<String>>;
    /// Length of a file in bytes.
    fn size(&mut self, name: FileName) -> io::Result<u64>;
    /// Reads at most `bytes.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&mut self, name: FileName, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Keeps a handle until [`Disk::release`], so that no write needs a descriptor that may be lacking.
    fn open(&mut self, name: FileName) -> io::Result<()>;
    /// Makes an empty file, or empties the one that has the name.
    fn create(&mut self, name: FileName) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    fn write_at(&mut self, name: FileName, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Ends a file at `bytes`.
    fn truncate(&mut self, name: FileName, bytes: u64) -> io::Result<()>;
    /// Returns when all that was written to the file is on the medium.
    fn sync(&mut self, name: FileName) -> io::Result<()>;
    /// Gives a file another name.
    fn rename(&mut self, from: FileName, to: FileName) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&mut self, name: FileName) -> io::Result<()>;
    /// No more is asked of this file for now: a handle to it would keep its space after its removal.
    fn release(&mut self, name: FileName);
    /// Returns when all names made and removed so far are on the medium.
    fn sync_directory(&mut self) -> io::Result<()>;
}

/// What the helper thread does for the binlog, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskTask {
    /// Put all bytes of file `index` below `offset` on the medium.
    Sync {
        /// Index of the file.
        index: u32,
        /// Bytes that were written to it.
        offset: u64,
    },
    /// Make file `index`: under another name until it is whole.
    Create {
        /// Index of the file.
        index: u32,
        /// Its length; zeros after the head.
        bytes: u64,
        /// What it begins with.
        head: Box<[u8; HEAD_BYTES as usize]>,
    },
    /// Give back the zeros at the end of a file that is no longer written.
    Truncate {
        /// Index of the file.
        index: u32,
        /// Its new length.
        bytes: u64,
    },
    /// Remove file `index`.
    Unlink {
        /// Index of the file.
        index: u32,
    },
}

/// What came of a task.
#[derive(Debug)]
pub struct Completion {
    /// The task.
    pub task: DiskTask,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
    /// Whether it was done.
    pub result: io::Result<()>,
}

impl DiskTask {
    /// Does the task.
    pub fn run(self, disk: &mut dyn Disk) -> Completion {
        let start = Instant::now();
        let result = match &self {
            Self::Sync { index, .. } => disk.sync(FileName::Segment(*index)),
            Self::Create { index, bytes, head } => make_file(disk, *index, *bytes, &head[..]),
            Self::Truncate { index, bytes } => disk.truncate(FileName::Segment(*index), *bytes),
            Self::Unlink { index } => unlink_durably(disk, FileName::Segment(*index)),
        };
        let elapsed_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Completion { task: self, elapsed_us, result }
    }
}

/// Zeros are written this many bytes at a time, some twenty microseconds, and then the processor is offered to
/// the loop, which may have no other: the kernel takes it from no thread that is at work within it.
const FILL_BYTES: usize = 64 * 1024;
/// A new file is synced whenever it has grown by this many bytes, and an old one cut by as many, because what is
/// done at once is done without a break.
const AT_ONCE_BYTES: u64 = 1024 * 1024;

/// Makes a file that holds `head` and zeros: whole and on the medium before it has its name, so that a
/// file of the log never lacks its head and never runs out of space.
fn make_file(disk: &mut dyn Disk, index: u32, bytes: u64, head: &[u8]) -> io::Result<()> {
    let unfinished = FileName::Unfinished(index);
    let filled = fill_file(disk, unfinished, bytes, head);
    if let Err(error) = filled {
        // The space of a file that could not be finished belongs to the jobs that are there.
        let _ = disk.unlink(unfinished);
        return Err(error);
    }
    disk.rename(unfinished, FileName::Segment(index))?;
    disk.sync_directory()
}

fn fill_file(disk: &mut dyn Disk, name: FileName, bytes: u64, head: &[u8]) -> io::Result<()> {
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
    }
    disk.write_at(name, 0, head)?;
    disk.sync(name)
}

/// Removes `name` and waits until it stays removed, so that files go in order even through a crash.
pub(super) fn unlink_durably(disk: &mut dyn Disk, name: FileName) -> io::Result<()> {
    match disk.unlink(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => disk.sync_directory(),
    }
}

/// Handles kept open: the file being written, the one before it, and those about to be.
const OPEN_FILES: usize = 4;

/// The most descriptors that a binlog and its helper need at a time: for their files, and each for the file
/// that takes another's place and for the directory while it is synced.
pub const MOST_DESCRIPTORS: usize = 2 * (OPEN_FILES + 2);

/// A real directory. Each holder opens its own handles; they see the same files.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The directory itself, held open, so that it can be synced where no descriptor is left, and so that
    /// another one in its place is seen. `None` if it could not be opened.
    handle: Option<File>,
    /// Open files, the one used last at the end.
    open: Vec<Handle>,
    read_only: bool,
}

#[derive(Debug)]
struct Handle {
    name: FileName,
    file: File,
    /// Whether it stays open until it is released.
    is_kept: bool,
}

impl Directory {
    /// The directory at `path`, to be read and written.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let handle = File::open(path).ok();
        Self { path: path.to_owned(), handle, open: Vec::with_capacity(OPEN_FILES), read_only: false }
    }

    /// The directory at `path`, in which nothing can be changed through this value.
    #[must_use]
    pub fn read_only(path: &Path) -> Self {
        Self { read_only: true, ..Self::new(path) }
    }

    fn path_of(&self, name: FileName) -> PathBuf {
        self.path.join(name.text())
    }

    fn forget(&mut self, name: FileName) {
        self.open.retain(|handle| handle.name != name);
    }

    /// The handle of `name`, opened if it is not yet.
    fn handle(&mut self, name: FileName) -> io::Result<&mut Handle> {
        if let Some(at) = self.open.iter().position(|handle| handle.name == name) {
            self.open[at..].rotate_left(1);
        } else {
            let path = self.path_of(name);
            let writing = OpenOptions::new().read(true).write(!self.read_only).open(&path);
            let file = match writing {
                // C makes its files for reading only, and a replay needs no more.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => File::open(&path)?,
                other => other?,
            };
            self.add(name, file);
        }
        let last = self.open.len() - 1;
        Ok(&mut self.open[last])
    }

    fn file(&mut self, name: FileName) -> io::Result<&File> {
        self.handle(name).map(|handle| &handle.file)
    }

    /// Adds a handle, in place of the one that has not been used for longest if there are too many.
    fn add(&mut self, name: FileName, file: File) {
        if self.open.len() >= OPEN_FILES
            && let Some(at) = self.open.iter().position(|handle| !handle.is_kept)
        {
            self.open.remove(at);
        }
        self.open.push(Handle { name, file, is_kept: false });
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    /// A directory that was removed, or that another was put or mounted in place of: what is made under its
    /// path would not be found beside the files that are there.
    fn check_in_place(&self) -> io::Result<()> {
        let Some(handle) = &self.handle else { return Ok(()) };
        let (held, named) = (handle.metadata()?, fs::metadata(&self.path)?);
        if (held.dev(), held.ino()) != (named.dev(), named.ino()) {
            return Err(io::Error::new(
                ErrorKind::NotFound,
                "another directory has taken the place of the binlog's",
            ));
        }
        Ok(())
    }
}

impl Disk for Directory {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("binlog.")) {
                names.push(rest.to_owned());
            }
        }
        Ok(names)
    }

    fn size(&mut self, name: FileName) -> io::Result<u64> {
        Ok(self.file(name)?.metadata()?.len())
    }

    fn read_at(&mut self, name: FileName, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.file(name)?.read_at(bytes, offset)
    }

    fn open(&mut self, name: FileName) -> io::Result<()> {
        self.handle(name)?.is_kept = true;
        Ok(())
    }

    fn create(&mut self, name: FileName) -> io::Result<()> {
        self.check_writable()?;
        self.check_in_place()?;
        self.forget(name);
        let path = self.path_of(name);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        self.add(name, file);
        Ok(())
    }

    fn write_at(&mut self, name: FileName, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, name: FileName, bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        let path = self.path_of(name);
        match self.file(name)?.set_len(bytes) {
            // The handle may be one for reading only, of a file that C made (mode 0400).
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let mut permissions = fs::metadata(&path)?.permissions();
                std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
                fs::set_permissions(&path, permissions)?;
                self.forget(name);
                self.file(name)?.set_len(bytes)
            }
            other => other,
        }
    }

    fn sync(&mut self, name: FileName) -> io::Result<()> {
        let file = self.file(name)?;
        file.sync_data()?;
        if file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(ErrorKind::NotFound, "somebody has removed the file"));
        }
        Ok(())
    }

    fn rename(&mut self, from: FileName, to: FileName) -> io::Result<()> {
        self.check_writable()?;
        fs::rename(self.path_of(from), self.path_of(to))?;
        self.forget(to);
        for handle in self.open.iter_mut().filter(|handle| handle.name == from) {
            handle.name = to;
        }
        Ok(())
    }

    fn unlink(&mut self, name: FileName) -> io::Result<()> {
        self.check_writable()?;
        self.forget(name);
        let path = self.path_of(name);
        // Removed while it is open, and then cut bit by bit: nobody sees a part of a file. One of C's is for
        // reading only, and goes at once.
        let file = OpenOptions::new().write(true).open(&path);
        fs::remove_file(&path)?;
        if let Ok(file) = file {
            let mut length = file.metadata().map_or(0, |metadata| metadata.len());
            // What cannot be cut goes at once when the file is closed.
            while length > AT_ONCE_BYTES && file.set_len(length - AT_ONCE_BYTES).is_ok() {
                length -= AT_ONCE_BYTES;
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn release(&mut self, name: FileName) {
        self.forget(name);
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        match &self.handle {
            Some(handle) => handle.sync_all(),
            None => File::open(&self.path)?.sync_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_for_reading_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("binlog.1"), b"abc").unwrap();
        let mut disk = Directory::read_only(directory.path());
        let name = FileName::Segment(1);
        assert!(disk.write_at(name, 0, b"x").is_err());
        assert!(disk.truncate(name, 0).is_err());
        assert!(disk.unlink(name).is_err());
        assert!(disk.create(FileName::Segment(2)).is_err());
        assert_eq!(disk.size(name).unwrap(), 3);
        assert_eq!(disk.list().unwrap(), ["1"]);
    }

    #[test]
    fn a_file_has_its_name_only_once_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Directory::new(directory.path());
        let task = DiskTask::Create { index: 3, bytes: 8192, head: Box::new([7; HEAD_BYTES as usize]) };
        task.run(&mut disk).result.unwrap();
        assert_eq!(disk.list().unwrap(), ["3"]);
        let bytes = fs::read(directory.path().join("binlog.3")).unwrap();
        assert_eq!(bytes.len(), 8192);
        assert!(bytes[..88].iter().all(|&byte| byte == 7) && bytes[88..].iter().all(|&byte| byte == 0));
        DiskTask::Unlink { index: 3 }.run(&mut disk).result.unwrap();
        assert!(disk.list().unwrap().is_empty());
    }
}
