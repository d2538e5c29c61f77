//! The way to the disk: the one trait through which the binlog reaches it, and the real directory.
//!
//! Owns: file names, open handles, and the jobs that the helper thread does. Never decides when. The trait
//! is the seam where a simulated disk takes the place of the real one, in tests of crashes and failures.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
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

/// What the binlog asks of a directory. Every operation may fail; none is tried twice after a failed
/// write or sync, because the kernel may by then have dropped the data.
pub trait Disk {
    /// The names that begin with `binlog.`, without that beginning.
    fn list(&mut self) -> io::Result<Vec<String>>;
    /// Length of a file in bytes.
    fn size(&mut self, name: FileName) -> io::Result<u64>;
    /// Reads at most `bytes.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&mut self, name: FileName, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
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
    /// The files used last, the latest at the end.
    open: Vec<(FileName, File)>,
    read_only: bool,
}

impl Directory {
    /// The directory at `path`, to be read and written.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), open: Vec::with_capacity(OPEN_FILES), read_only: false }
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
        self.open.retain(|(open, _)| *open != name);
    }

    /// The handle of `name`, opened if it is not yet.
    fn file(&mut self, name: FileName) -> io::Result<&File> {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == name) {
            return Ok(&self.open[at].1);
        }
        let path = self.path_of(name);
        let writing = OpenOptions::new().read(true).write(!self.read_only).open(&path);
        let file = match writing {
            // C makes its files for reading only, and a replay needs no more.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => File::open(&path)?,
            other => other?,
        };
        self.keep(name, file);
        Ok(&self.open[self.open.len() - 1].1)
    }

    fn keep(&mut self, name: FileName, file: File) {
        if self.open.len() == OPEN_FILES {
            self.open.remove(0);
        }
        self.open.push((name, file));
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
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

    fn create(&mut self, name: FileName) -> io::Result<()> {
        self.check_writable()?;
        self.forget(name);
        let path = self.path_of(name);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        self.keep(name, file);
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
        self.file(name)?.sync_data()
    }

    fn rename(&mut self, from: FileName, to: FileName) -> io::Result<()> {
        self.check_writable()?;
        fs::rename(self.path_of(from), self.path_of(to))?;
        self.forget(to);
        for (name, _) in &mut self.open {
            if *name == from {
                *name = to;
            }
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
            let mut length = file.metadata()?.len();
            while length > AT_ONCE_BYTES {
                length -= AT_ONCE_BYTES;
                file.set_len(length)?;
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn release(&mut self, name: FileName) {
        self.forget(name);
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
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
