//! The lock that prevents two servers from using one binlog directory.
//!
//! Owns: the open `lock` file. The lock is the same as C's, a POSIX record lock on the whole file, so that C and
//! this server exclude each other. The system releases it when the process ends, for whatever reason. It also
//! releases it when the process closes *any* descriptor of that file, so no other code may open the file.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

/// A lock that this process holds. Dropping the value releases the lock.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
}

/// Why the process could not get the lock.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held {
        /// The lock file.
        path: PathBuf,
        /// The holder's process id; `None` if it has released the lock in the meantime or runs on another machine.
        pid: Option<i32>,
    },
    /// The lock file cannot be opened: the directory does not exist, or the process may not write to it.
    Open {
        /// The lock file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file system refused the lock.
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Another file has the path of the lock file now, so another server can lock that file.
    Replaced {
        /// The lock file.
        path: PathBuf,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { path, pid: Some(pid) } => {
                write!(out, "{} is locked by process {pid}", path.display())
            }
            Self::Held { path, pid: None } => write!(out, "{} is locked by another process", path.display()),
            Self::Open { path, source } => write!(out, "cannot open {}: {source}", path.display()),
            Self::Lock { path, source } => write!(out, "cannot lock {}: {source}", path.display()),
            Self::Replaced { path } => {
                write!(out, "{} is not the locked file any more: it was removed or replaced", path.display())
            }
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Held { .. } | Self::Replaced { .. } => None,
            Self::Open { source, .. } | Self::Lock { source, .. } => Some(source),
        }
    }
}

impl DirectoryLock {
    /// Takes the lock of `directory` without waiting.
    ///
    /// # Errors
    /// If another process holds it, or if the file cannot be opened or locked.
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let (path, file) = open(directory)?;
        lock(path, file)
    }

    /// The lock of `directory`, through a descriptor that another program in this process has locked.
    ///
    /// # Errors
    /// If another process holds it now.
    pub fn adopt(directory: &Path, descriptor: OwnedFd) -> Result<Self, LockError> {
        lock(directory.join("lock"), descriptor.into())
    }

    /// The descriptor that holds the lock.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Waits for the lock of `directory` on a thread of its own, and calls `finish` there. The wait ends only
    /// when the other holder or this process ends.
    ///
    /// # Errors
    /// If the file cannot be opened or the thread cannot be started.
    pub fn wait(
        directory: &Path,
        finish: impl FnOnce(Result<Self, LockError>) + Send + 'static,
    ) -> Result<(), LockError> {
        let (path, file) = open(directory)?;
        let path_of_thread = path.clone();
        let wait = move || finish(wait_for(path_of_thread, file));
        match thread::Builder::new().name("lock".into()).spawn(wait) {
            Ok(_) => Ok(()),
            Err(source) => Err(LockError::Lock { path, source }),
        }
    }
}

/// Checks that the file that is locked through `descriptor` is the lock file of `directory`. It is another one if
/// somebody has moved another directory to this path since the file was opened, for example while a server waited for
/// the lock.
///
/// # Errors
/// If it is another file, or if the system does not report that.
pub fn check_in_place(descriptor: RawFd, directory: &Path) -> Result<(), LockError> {
    let path = directory.join("lock");
    // SAFETY: the file is never dropped, so the descriptor stays open, and with it the lock; its owner has it open now.
    let locked = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let identity = |file: Metadata| (file.dev(), file.ino());
    match locked.metadata().and_then(|locked| Ok(identity(locked) == identity(fs::metadata(&path)?))) {
        Ok(true) => Ok(()),
        Err(source) if source.kind() != ErrorKind::NotFound => Err(LockError::Lock { path, source }),
        _ => Err(LockError::Replaced { path }),
    }
}

fn lock(path: PathBuf, file: File) -> Result<DirectoryLock, LockError> {
    match fcntl(&file, FcntlArg::F_SETLK(&whole_file())) {
        Ok(_) => Ok(DirectoryLock { file }),
        Err(Errno::EACCES | Errno::EAGAIN) => Err(LockError::Held { pid: holder(&file), path }),
        Err(errno) => Err(LockError::Lock { path, source: errno.into() }),
    }
}

fn wait_for(path: PathBuf, file: File) -> Result<DirectoryLock, LockError> {
    loop {
        match fcntl(&file, FcntlArg::F_SETLKW(&whole_file())) {
            Ok(_) => return Ok(DirectoryLock { file }),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(LockError::Lock { path, source: errno.into() }),
        }
    }
}

/// Opens the lock file with C's flags and mode.
fn open(directory: &Path) -> Result<(PathBuf, File), LockError> {
    let path = directory.join("lock");
    match OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path) {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(LockError::Open { path, source }),
    }
}

/// A write lock from the first byte of the file to the end, wherever that is.
fn whole_file() -> libc::flock {
    // SAFETY: `flock` is a plain C structure of integers, for which zero bytes are a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// The id of the process that holds the lock.
fn holder(file: &File) -> Option<i32> {
    let mut lock = whole_file();
    fcntl(file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    let held = lock.l_type != libc::F_UNLCK as libc::c_short;
    (held && lock.l_pid > 0).then_some(lock.l_pid)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::child::Child;

    /// Runs in the child of these tests: takes the lock of the directory in its argument, reports the result, and keeps
    /// the lock until its input ends.
    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_takes_the_lock() {
        let lock = DirectoryLock::take(Path::new(&Child::argument()));
        match &lock {
            Ok(_) => Child::say("taken"),
            Err(LockError::Held { pid, .. }) => Child::say(&format!("held by {pid:?}")),
            Err(other) => Child::say(&other.to_string()),
        }
        Child::wait_for_parent();
    }

    fn child(directory: &Path) -> Child {
        Child::start("directory_lock::tests::child_takes_the_lock", directory.as_os_str())
    }

    #[test]
    fn a_held_lock_excludes_other_processes_and_names_its_holder() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(directory.path()).unwrap();
        assert_eq!(child(directory.path()).line(), format!("held by Some({})", std::process::id()));
        drop(lock);
        assert_eq!(child(directory.path()).line(), "taken");
    }

    #[test]
    fn the_end_of_the_holder_ends_the_wait() {
        let directory = tempfile::tempdir().unwrap();
        let mut holder = child(directory.path());
        assert_eq!(holder.line(), "taken");
        let error = DirectoryLock::take(directory.path()).unwrap_err();
        assert!(matches!(error, LockError::Held { pid: Some(pid), .. } if pid as u32 == holder.id()));
        let (sender, receiver) = mpsc::channel();
        DirectoryLock::wait(directory.path(), move |lock| sender.send(lock).unwrap()).unwrap();
        assert!(receiver.try_recv().is_err());
        holder.kill();
        let lock = receiver.recv().unwrap().unwrap();
        assert!(child(directory.path()).line().starts_with("held by"));
        drop(lock);
    }

    #[test]
    fn a_directory_that_is_missing_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        assert!(matches!(DirectoryLock::take(&missing), Err(LockError::Open { .. })));
        assert!(matches!(DirectoryLock::wait(&missing, drop), Err(LockError::Open { .. })));
    }
}
