//! The items of `linux` for other systems. A server there does the same for its clients, but it knows less about its
//! process.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::ClockId;
use socket2::SockRef;

/// The clock that is most like Linux's. Whether it continues while the machine is suspended depends on the system.
pub(crate) const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Unknown: the path that the standard library reports is used.
pub(crate) fn called_path() -> Option<PathBuf> {
    None
}

/// Unknown: the figures are in `/proc` on Linux.
pub(crate) fn memory() -> Option<(u64, u64)> {
    None
}

/// Does nothing: these systems have no order in which processes are killed.
pub(crate) fn kill_first_without_memory(_process: u32) {}

/// Fails: these systems have no such files.
///
/// # Errors
/// In any case.
pub fn open_unnamed(_directory: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails: these systems have no such files.
///
/// # Errors
/// In any case.
pub fn name_file(_file: &File, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// An empty file without a name. The system closes it when the process runs another program.
pub(crate) fn memory_file() -> io::Result<File> {
    let number = crate::process::random_u64();
    let path = std::env::temp_dir().join(format!("beanstalkd-handover-{}-{number:016x}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Does nothing: no other process can open a file without a name.
pub(crate) fn seal(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the time limit ends the child.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(())
}

/// Does nothing: these systems have no such setting.
pub fn allow_huge_pages(_allow: bool) {}

/// The number of names of a file.
///
/// # Errors
/// If the system does not report it.
pub fn link_count(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.nlink())
}

/// Unknown.
pub(crate) fn open_files(_files: usize) -> Option<u64> {
    None
}

/// No limit: there are no control groups.
#[must_use]
pub fn group_memory_bytes() -> Option<u64> {
    None
}

/// Returns false: only Linux is asked for the limit.
pub(crate) fn has_address_space_limit() -> bool {
    false
}

/// Does nothing: keepalive alone finds out that a client is gone.
#[allow(clippy::unnecessary_wraps, reason = "Linux may refuse")]
pub(crate) fn set_user_timeout(_socket: &SockRef<'_>, _timeout: Duration) -> io::Result<()> {
    Ok(())
}

/// The user at the other end of a unix socket, for the log.
#[cfg(not(any(target_os = "illumos", target_os = "solaris")))]
pub(crate) fn unix_peer(connection: &impl AsFd) -> String {
    match nix::unistd::getpeereid(connection) {
        Ok((uid, _)) => format!("unix:uid={uid}"),
        Err(_) => "unix".to_owned(),
    }
}

/// Solaris and illumos have no `getpeereid`.
#[cfg(any(target_os = "illumos", target_os = "solaris"))]
pub(crate) fn unix_peer(_connection: &impl AsFd) -> String {
    "unix".to_owned()
}

/// The user at the other end of a unix socket, if the system knows it.
#[cfg(not(any(target_os = "illumos", target_os = "solaris")))]
#[must_use]
pub fn unix_peer_user(connection: &impl AsFd) -> Option<u32> {
    nix::unistd::getpeereid(connection).ok().map(|(uid, _)| uid.as_raw())
}

/// Solaris and illumos have no `getpeereid`.
#[cfg(any(target_os = "illumos", target_os = "solaris"))]
#[must_use]
pub fn unix_peer_user(_connection: &impl AsFd) -> Option<u32> {
    None
}

/// False: there is no systemd.
#[must_use]
pub fn is_in_private_tmp(_path: &Path) -> bool {
    false
}

/// Does nothing: these systems have no such call.
pub(crate) fn touch(_start: usize, _bytes: usize) -> bool {
    false
}

/// Does nothing: the pages of the block stay in use.
///
/// # Safety
/// As in `linux`; nothing is required here.
pub(crate) unsafe fn leave_untouched(_block: *mut u8, _bytes: usize) {}
