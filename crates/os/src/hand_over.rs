//! The system calls that hand a process over to another program: a file for the description, descriptors that stay open
//! across the change of programs, a test run of the other program, and the change itself.
//!
//! Owns: the way in which the next program gets the descriptor of the description. Decides nothing.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::platform;

/// The variable that names the process for which the description is meant, and the descriptor of the description.
const VARIABLE: &str = "BEANSTALKD_HANDOVER";

/// How many pieces of a description can wait for the thread that writes them.
const PIECES_AHEAD: usize = 8;

/// The program that runs, and the path by which it was started.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    running: Option<FileIdentity>,
}

/// The values that distinguish a file, with its contents, from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// When the contents were last changed: seconds since 1970, and nanoseconds.
    changed_at: (i64, i64),
}

impl FileIdentity {
    /// The file that currently has this path.
    ///
    /// # Errors
    /// If there is no such file, or if the system does not show it.
    pub fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            changed_at: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// The text that Linux adds to the path of a program whose file has been replaced.
const REPLACED: &[u8] = b" (deleted)";

impl Program {
    /// This program. Must be called at the start, before its file can have been replaced.
    ///
    /// # Errors
    /// If the system does not report the path of the file.
    pub fn this() -> io::Result<Self> {
        let path = std::env::current_exe()?;
        let running = FileIdentity::of(&path).ok();
        // If the file was replaced between the start of this program and now, this is the identity of the new file.
        let now = std::env::current_exe()?;
        Ok(match now.as_os_str().as_bytes().strip_suffix(REPLACED) {
            Some(path) if FileIdentity::of(&now).is_err() => {
                Self { path: OsStr::from_bytes(path).into(), running: None }
            }
            // The system reports the path without links. A link may be changed later to run another program.
            _ => {
                let called = platform::called_path().and_then(|called| std::path::absolute(called).ok());
                let is_this =
                    |called: &PathBuf| running.is_some() && FileIdentity::of(called).ok() == running;
                Self { path: called.filter(is_this).unwrap_or(path), running }
            }
        })
    }

    /// The path by which the program was started.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that currently has that path, if it is not the file that runs.
    #[must_use]
    pub fn replaced_by(&self) -> Option<FileIdentity> {
        FileIdentity::of(&self.path).ok().filter(|&now| Some(now) != self.running)
    }
}

/// A file for a description. No other process sees it.
#[derive(Debug)]
pub struct DescriptionFile(File);

impl DescriptionFile {
    /// An empty file in memory, or, where the system has no such files, a file without a name in the directory for
    /// temporary files.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn new() -> io::Result<Self> {
        platform::memory_file().map(Self)
    }

    /// Replaces the contents with the output of `describe`, in order. Another thread writes, because writing takes as
    /// long as describing. A file that already held a description keeps its memory, so the system need not find new
    /// memory.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn fill(&mut self, describe: impl FnOnce(&mut dyn FnMut(Vec<u8>))) -> io::Result<()> {
        thread::scope(|scope| {
            let (pieces, described) = sync_channel::<Vec<u8>>(PIECES_AHEAD);
            let file = &mut self.0;
            let write = move || {
                file.rewind()?;
                described.iter().try_for_each(|piece| file.write_all(&piece))?;
                let end = file.stream_position()?;
                file.set_len(end)
            };
            let writer = thread::Builder::new().name("description".to_owned()).spawn_scoped(scope, write)?;
            // If the thread has stopped, its result below says why.
            describe(&mut |piece| drop(pieces.send(piece)));
            drop(pieces);
            writer.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes has ended")))
        })
    }

    /// Protects the file from changes by any process, including this one, if the system supports that.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn seal(&self) -> io::Result<()> {
        platform::seal(&self.0)
    }

    /// The descriptor of the file.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A description in memory.
#[derive(Debug)]
pub struct Description {
    start: *const u8,
    len: usize,
}

// SAFETY: the mapping belongs to the value, and any thread may read it or remove it.
unsafe impl Send for Description {}

impl Description {
    /// The description that another program has left to this process through a descriptor; `None` if there is none. The
    /// descriptor is closed.
    ///
    /// # Errors
    /// If the descriptor does not refer to a file, or if there is no memory.
    pub fn inherited() -> io::Result<Option<Self>> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let numbers = text.to_str().and_then(|text| text.split_once(':'));
        let numbers =
            numbers.and_then(|(pid, fd)| Some((pid.parse::<u32>().ok()?, fd.parse::<RawFd>().ok()?)));
        match numbers {
            Some((pid, descriptor)) if pid == std::process::id() => Self::of(descriptor).map(Some),
            // The variable was meant for another process, which has started this one.
            _ => Ok(None),
        }
    }

    /// The description in the file with this descriptor, which is closed.
    ///
    /// # Errors
    /// If the descriptor does not refer to a file, or if there is no memory.
    pub fn of(descriptor: RawFd) -> io::Result<Self> {
        let no_file =
            || io::Error::new(io::ErrorKind::InvalidInput, "this descriptor does not refer to a description");
        let file = File::from(adopt(descriptor)?);
        let metadata = file.metadata()?;
        let len = usize::try_from(metadata.len()).map_err(|_| no_file())?;
        if !metadata.is_file() || len == 0 {
            return Err(no_file());
        }
        // SAFETY: a new mapping at an address that the system chooses, of an open file of this length. Nobody changes
        // or shortens the file while it is mapped: it has no name, and it is sealed, or the program that has written it
        // waits for the end of this process before it writes again. The pages are not mapped in advance: the system
        // maps 16 of them at the first access to one, which takes much less time.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), len })
    }

    /// Unmaps the description on another thread if one can be started, because the system needs long for it.
    pub fn drop_beside(self) {
        let give_back = move || {
            leave_signals_to_others();
            drop(self);
        };
        let _ = thread::Builder::new().name("give-back".to_owned()).spawn(give_back);
    }
}

impl Deref for Description {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has this length, can be read, and stays until the value is dropped.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `of`, and no slice of it outlives this value.
        unsafe {
            libc::munmap(self.start.cast_mut().cast(), self.len);
        }
    }
}

/// Takes ownership of a descriptor from another program: the descriptor of a description, or a descriptor that the
/// description names. From now on the system closes it when the process runs another program.
///
/// # Errors
/// If the descriptor is not open.
pub fn adopt(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 3 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is a descriptor of the standard streams",
        ));
    }
    // SAFETY: `fcntl` accepts any number; the descriptor is owned only if it is open. The descriptor of the description
    // was opened for this call before the process began. The description names each descriptor once, which its reader
    // checks, and no other part of this process knows of it.
    let owned = unsafe {
        if libc::fcntl(descriptor, libc::F_GETFD) < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    keep_open(owned.as_raw_fd(), false)?;
    Ok(owned)
}

/// Sets whether a descriptor stays open when the process runs another program.
fn keep_open(descriptor: RawFd, stays: bool) -> io::Result<()> {
    // SAFETY: the caller has the descriptor open; it is borrowed for this call alone.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let flags = if stays { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(borrowed, FcntlArg::F_SETFD(flags))?;
    Ok(())
}

/// Starts the program as a child that tries to read the description; returns a descriptor from which the child's output
/// is read. The child ends when this process ends, at the latest. It has the arguments of this process, and before them
/// `flag` and the number of the descriptor, because `--` among them may end the flags.
///
/// # Errors
/// If the child cannot be started.
pub fn try_out(program: &Path, flag: &str, description: &DescriptionFile) -> io::Result<(Child, OwnedFd)> {
    let descriptor = description.descriptor();
    let parent = std::process::id();
    let mut command = Command::new(program);
    command.arg(flag).arg(descriptor.to_string()).args(std::env::args_os().skip(1));
    let (output, input) = io::pipe()?;
    command.env_remove(VARIABLE).stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let prepare = move || {
        platform::end_with_parent()?;
        if nix::unistd::getppid().as_raw().unsigned_abs() != parent {
            return Err(io::Error::other("the server is gone"));
        }
        keep_open(descriptor, true)
    };
    // SAFETY: the closure only makes system calls, which are safe after a fork, and allocates nothing unless it fails.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn()?;
    platform::kill_first_without_memory(child.id());
    // From now on only the child has the other end, so that this process sees when the child ends.
    drop(command);
    Ok((child, output.into()))
}

/// Waits for the end of a child that was killed, on another thread: the system may need long for it.
pub fn reap_beside(child: &Child) {
    let id = Pid::from_raw(child.id() as i32);
    let reap = move || {
        leave_signals_to_others();
        let _ = waitpid(id, None);
    };
    let _ = thread::Builder::new().name("reap".to_owned()).spawn(reap);
}

/// While this value lives, signals wait: for the next program, or for this one if it continues.
#[derive(Debug)]
pub struct HeldSignals(SigSet);

/// Holds back the signals that have a handler, in this thread and in those that it starts from now on. Every other
/// thread of the process must call [`leave_signals_to_others`], because the system gives a signal to any thread that
/// accepts it, and a signal that a handler of this program has noted would be lost with the program.
///
/// # Errors
/// If the system refuses it.
pub fn hold_signals() -> io::Result<HeldSignals> {
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&handled()), Some(&mut before))?;
    Ok(HeldSignals(before))
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.0), None);
    }
}

/// This thread no longer receives the signals that have a handler; the thread of the poll loop receives them.
pub fn leave_signals_to_others() {
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&handled()), None);
}

/// Runs `program` in this process, with its arguments. The description, these descriptors and the signals that are held
/// back stay for the new program. Returns only if that fails; then nothing has changed.
#[must_use]
pub fn change_program(
    program: &Path,
    description: &DescriptionFile,
    descriptors: &[RawFd],
    _held: &HeldSignals,
) -> io::Error {
    let all = || descriptors.iter().copied().chain([description.descriptor()]);
    if let Some(error) = all().find_map(|descriptor| keep_open(descriptor, true).err()) {
        all().for_each(|descriptor| drop(keep_open(descriptor, false)));
        return error;
    }
    let error = exec(program, description.descriptor());
    all().for_each(|descriptor| drop(keep_open(descriptor, false)));
    error
}

/// Calls `execve` itself, because the standard library would let all signals in.
fn exec(program: &Path, description: RawFd) -> io::Error {
    let text = |text: OsString| CString::new(text.into_vec());
    let variable = OsString::from(format!("{VARIABLE}={}:{description}", std::process::id()));
    let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE).map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    let environment: Result<Vec<_>, _> = others.chain([variable]).map(text).collect();
    let arguments: Result<Vec<_>, _> = std::env::args_os().map(text).collect();
    let (Ok(path), Ok(arguments), Ok(environment)) =
        (text(program.as_os_str().to_owned()), arguments, environment)
    else {
        return io::ErrorKind::InvalidInput.into();
    };
    match nix::unistd::execve(&path, &arguments, &environment) {
        Ok(never) => match never {},
        Err(errno) => errno.into(),
    }
}

/// The signals that have a handler.
fn handled() -> SigSet {
    [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}

/// Accepts signals again, once the handlers are installed. Signals that came since the last program ended are handled
/// now.
pub fn unblock_signals() {
    let _ = pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&handled()), None);
}
