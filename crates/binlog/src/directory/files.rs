//! A directory of the file system: the files of the log by name, and their open handles.
//!
//! Owns: the directory's path and handle, and the handles of files. Decides nothing: [`super::OnDisk`] decides what is
//! done to which file, and when.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::{AT_ONCE_BYTES, Disk, FileName};
use crate::os;

/// The maximum number of open handles: of the file that is written, of the one before it, and of the next ones.
const MAX_OPEN_FILES: usize = 4;

/// The maximum number of descriptors that a binlog and its helper need at a time. Each of the two has its files, one
/// more while a file replaces another, and the directory.
pub const MAX_DESCRIPTORS: usize = 2 * (MAX_OPEN_FILES + 2);

/// A real directory. Each holder opens its own handles; they see the same files.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The directory itself, held open: it can then be synced when no descriptor is left, and another directory under
    /// the same path is noticed. `None` if it could not be opened.
    handle: Option<File>,
    /// Open files, the most recently used one at the end.
    open: Vec<OpenFile>,
    read_only: bool,
}

#[derive(Debug)]
struct OpenFile {
    name: FileName,
    /// Shared with the syncs in progress.
    file: Arc<File>,
    /// Whether it stays open until it is released.
    is_kept: bool,
}

impl Directory {
    /// The directory at `path`, for reading and writing.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let handle = File::open(path).ok();
        Self { path: path.to_owned(), handle, open: Vec::with_capacity(MAX_OPEN_FILES), read_only: false }
    }

    /// The directory at `path`, read-only.
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

    /// The handle of `name`; opens the file if it is not open.
    fn handle(&mut self, name: FileName) -> io::Result<&mut OpenFile> {
        if let Some(at) = self.open.iter().position(|handle| handle.name == name) {
            self.open[at..].rotate_left(1);
        } else {
            let path = self.path_of(name);
            let writing = (!self.read_only).then(|| OpenOptions::new().read(true).write(true).open(&path));
            let file = match writing {
                Some(Ok(file)) => file,
                Some(Err(error)) if error.kind() != ErrorKind::PermissionDenied => return Err(error),
                // C makes its files read-only, and a replay only reads.
                _ => os::settings_file::open(&path)?,
            };
            self.add(name, file);
        }
        let last = self.open.len() - 1;
        Ok(&mut self.open[last])
    }

    fn file(&mut self, name: FileName) -> io::Result<&File> {
        self.handle(name).map(|handle| &*handle.file)
    }

    /// The open handle of `name`; `None` if the file is not open.
    pub(super) fn open_file(&self, name: FileName) -> Option<Arc<File>> {
        let handle = self.open.iter().find(|handle| handle.name == name)?;
        Some(Arc::clone(&handle.file))
    }

    /// Adds a handle, and closes the least recently used one if there are too many.
    fn add(&mut self, name: FileName, file: File) {
        if self.open.len() >= MAX_OPEN_FILES
            && let Some(at) = self.open.iter().position(|handle| !handle.is_kept)
        {
            self.open.remove(at);
        }
        debug_assert!(self.open.iter().all(|handle| handle.name != name), "a file has one handle");
        self.open.push(OpenFile { name, file: Arc::new(file), is_kept: false });
        debug_assert!(
            self.open.len() <= MAX_OPEN_FILES || self.open.iter().rev().skip(1).all(|handle| handle.is_kept),
            "only files that are kept open exceed the limit"
        );
    }

    /// Fails if files must not be changed through the directory's path.
    fn check_changeable(&self) -> io::Result<()> {
        if self.read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { self.check_in_place() }
    }

    /// Fails if the directory was removed, or if another one was moved or mounted to its path: a file under that path
    /// is not a file of this log.
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

    /// Returns when everything written to the file is on the medium.
    ///
    /// # Errors
    /// If the kernel reports an error, or if the file or the directory was removed or replaced: then no later start can
    /// find the file's bytes.
    pub(super) fn sync_open(&self, file: &File) -> io::Result<()> {
        file.sync_data()?;
        if os::link_count(file)? == 0 {
            return Err(io::Error::new(ErrorKind::NotFound, "another program has removed the file"));
        }
        self.check_in_place()
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
        self.check_changeable()?;
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
        self.check_changeable()?;
        let path = self.path_of(name);
        match self.file(name)?.set_len(bytes) {
            // The handle may be read-only, because C makes its files with mode 0400.
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
        let file = Arc::clone(&self.handle(name)?.file);
        self.sync_open(&file)
    }

    fn rename(&mut self, from: FileName, to: FileName) -> io::Result<()> {
        self.check_changeable()?;
        fs::rename(self.path_of(from), self.path_of(to))?;
        self.forget(to);
        for handle in self.open.iter_mut().filter(|handle| handle.name == from) {
            handle.name = to;
        }
        Ok(())
    }

    fn unlink(&mut self, name: FileName) -> io::Result<()> {
        self.check_changeable()?;
        self.forget(name);
        let path = self.path_of(name);
        // The name is removed while the file is open, so that no program sees a part of a file. Then the file is cut in
        // small steps. A file of C's can only be read; it is freed at once.
        let file = OpenOptions::new().write(true).open(&path);
        fs::remove_file(&path)?;
        if let Ok(file) = file {
            let mut length = file.metadata().map_or(0, |metadata| metadata.len());
            // A part that cannot be cut is freed at once when the file is closed.
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
        let name = FileName::Log(1);
        assert!(disk.write_at(name, 0, b"x").is_err());
        assert!(disk.truncate(name, 0).is_err());
        assert!(disk.unlink(name).is_err());
        assert!(disk.create(FileName::Log(2)).is_err());
        assert_eq!(disk.size(name).unwrap(), 3);
        assert_eq!(disk.list().unwrap(), ["1"]);
    }

    #[test]
    fn nothing_is_changed_in_another_directory_at_the_same_path_and_no_sync_succeeds() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("binlog");
        fs::create_dir(&path).unwrap();
        let mut disk = Directory::new(&path);
        let name = FileName::Log(1);
        disk.create(name).unwrap();
        disk.sync(name).unwrap();
        fs::rename(&path, parent.path().join("elsewhere")).unwrap();
        assert!(disk.sync(name).is_err());
        fs::create_dir(&path).unwrap();
        fs::write(path.join("binlog.1"), b"abc").unwrap();
        assert!(disk.sync(name).is_err());
        assert!(disk.truncate(name, 0).is_err());
        assert!(disk.rename(name, FileName::Log(2)).is_err());
        assert!(disk.unlink(name).is_err());
        assert!(disk.create(name).is_err());
        assert_eq!(fs::read(path.join("binlog.1")).unwrap(), b"abc");
    }
}
