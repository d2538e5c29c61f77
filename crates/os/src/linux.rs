//! The facilities that only Linux has: the clock that continues while the machine is suspended, figures in `/proc`,
//! the path by which a program was started, control groups, the other process of a unix socket, and the time-out of
//! unacknowledged data.
//!
//! `elsewhere` has the same items for other systems.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::time::ClockId;
use nix::unistd::{SysconfVar, linkat, sysconf};
use socket2::SockRef;

/// This clock continues while the machine is suspended, as delays and TTRs must.
pub(crate) const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;

/// If the kernel does not report the number of descriptors, up to this many are counted one by one.
const MAX_COUNTED_FILES: usize = 1000;

/// The path by which this program was started; `None` if the system was given an open file instead.
pub(crate) fn called_path() -> Option<PathBuf> {
    // SAFETY: any number may be asked for.
    let address = unsafe { libc::getauxval(libc::AT_EXECFN) };
    let text = std::ptr::with_exposed_provenance::<libc::c_char>(usize::try_from(address).ok()?);
    if text.is_null() {
        return None;
    }
    // SAFETY: the kernel has put a string with a final NUL at this address, and nobody changes it.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()));
    (!path.starts_with("/dev/fd")).then(|| path.to_owned())
}

/// Address space and memory in RAM, from `proc_pid_statm(5)`.
pub(crate) fn memory() -> Option<(u64, u64)> {
    let page_bytes = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').map(|pages| pages.parse::<u64>().ok());
    Some((pages.next()?? * page_bytes, pages.next()?? * page_bytes))
}

/// Lets the kernel kill this process rather than another one of its control group when that has no memory left.
pub(crate) fn kill_first_without_memory(process: u32) {
    // Without this, the kernel chooses by size.
    let _ = fs::write(format!("/proc/{process}/oom_score_adj"), "1000");
}

/// Opens a new file without a name in `directory`. The file disappears when it is closed, unless it gets a name.
///
/// # Errors
/// If the system or the file system does not support such files.
pub fn open_unnamed(directory: &Path) -> io::Result<File> {
    File::options().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory)
}

/// Gives the path `path`, in the same file system, to a file without a name.
///
/// # Errors
/// If the system refuses it.
pub fn name_file(file: &File, path: &Path) -> io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(AT_FDCWD, &*unnamed, AT_FDCWD, path, AtFlags::AT_SYMLINK_FOLLOW)?)
}

/// An empty file in memory. The system closes it when the process runs another program.
pub(crate) fn memory_file() -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    Ok(memfd_create(c"beanstalkd-handover", flags)?.into())
}

/// From now on nobody can change or shorten the file.
pub(crate) fn seal(file: &File) -> io::Result<()> {
    let seals =
        SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// Ends the process when the thread that has started it ends.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// Sets whether the kernel may use huge pages for memory that is touched from now on. They make a start with a large
/// binlog faster. A running server does without them: a small server would take twice the memory, and the page fault of
/// a huge page takes milliseconds. The setting has no effect where the system never uses huge pages, or uses them only
/// on request, and in old kernels, which have no such setting.
pub fn allow_huge_pages(allow: bool) {
    let _ = nix::sys::prctl::set_thp_disable(!allow);
}

/// The number of names of a file. It asks for nothing else: since Linux 6.13, after somebody has read the times of a
/// file, its next write gets exact times, and `fdatasync` then has to write the inode, too.
///
/// # Errors
/// If the system does not report it.
pub fn link_count(file: &File) -> io::Result<u64> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the path is an empty string with its final NUL, and the kernel fills `found`, for
    // which zeros are valid, too.
    let (status, found) = unsafe {
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        let status =
            libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_NLINK, found.as_mut_ptr());
        (status, found.assume_init())
    };
    if status == 0 && found.stx_mask & libc::STATX_NLINK != 0 {
        return Ok(found.stx_nlink.into());
    }
    // A kernel before 4.11, or a file system that does not report the number.
    Ok(file.metadata()?.nlink())
}

/// The number of open descriptors. `files` is roughly that number: if it is large, and the kernel does not report the
/// number, the descriptors are not counted.
pub(crate) fn open_files(files: usize) -> Option<u64> {
    let directory = "/proc/self/fd";
    let counted = fs::metadata(directory).ok()?.len();
    if counted > 0 {
        return Some(counted);
    }
    if files > MAX_COUNTED_FILES {
        return None;
    }
    // One of these descriptors is open on the directory itself.
    Some((fs::read_dir(directory).ok()?.count() as u64).saturating_sub(1))
}

/// The smallest memory limit, in bytes, of the process' control group and the groups around it; `None` without a limit.
/// At the limit the kernel ends the process; no allocation fails before that.
#[must_use]
pub fn group_memory_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    smallest_group_limit(&groups, Path::new("/sys/fs/cgroup"))
}

/// The smallest limit of the groups that `groups` (cgroups(7), "/proc/pid/cgroup") names, in the hierarchies
/// mounted below `mounts`.
fn smallest_group_limit(groups: &str, mounts: &Path) -> Option<u64> {
    let mut limits = Vec::new();
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let (mount, file) = match controllers {
            "" => (mounts.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (mounts.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the mount begins at the container's own group, which the path may not contain.
        for ancestor in Path::new(path).ancestors() {
            let limit = fs::read_to_string(mount.join(ancestor).join(file)).ok();
            limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
        }
    }
    // Version 1 reports the largest number of whole pages if there is no limit.
    limits.into_iter().min().filter(|&limit| limit < 1 << 60)
}

/// Whether the process has a limit on its address space.
pub(crate) fn has_address_space_limit() -> bool {
    getrlimit(Resource::RLIMIT_AS).is_ok_and(|(limit, _)| limit != RLIM_INFINITY)
}

/// Limits how long data that was sent on `socket` may stay unacknowledged.
pub(crate) fn set_user_timeout(socket: &SockRef<'_>, timeout: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(timeout))
}

/// The process at the other end of a unix socket, for the log.
pub(crate) fn unix_peer(connection: &impl AsFd) -> String {
    match getsockopt(connection, PeerCredentials) {
        Ok(peer) => format!("unix:pid={},uid={}", peer.pid(), peer.uid()),
        Err(_) => "unix".to_owned(),
    }
}

/// The id of the user at the other end of a unix socket, if the system knows it.
#[must_use]
pub fn unix_peer_user(connection: &impl AsFd) -> Option<u32> {
    getsockopt(connection, PeerCredentials).ok().map(|peer| peer.uid())
}

/// Whether `path` is in a directory for temporary files that systemd has made for this unit alone (`PrivateTmp=` in
/// `systemd.exec(5)`), so that programs outside of the unit cannot see the files there.
#[must_use]
pub fn is_in_private_tmp(path: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| is_private_by(&mounts, path))
}

/// Decides `is_in_private_tmp` from the lines of `proc_pid_mountinfo(5)`. The fourth word is the mounted directory, the
/// fifth is the mount point.
fn is_private_by(mounts: &str, path: &Path) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(3);
        matches!((words.next(), words.next()), (Some(root), Some(at))
            if root.contains("/systemd-private-") && path.starts_with(at))
    })
}

/// Makes the kernel provide memory for all mapped pages in this range of addresses that have not been touched yet.
/// Returns whether it makes sense to call this again.
pub(crate) fn touch(start: usize, bytes: usize) -> bool {
    // SAFETY: the call changes the contents of no page, and maps or unmaps none, so any address is allowed.
    let status = unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_POPULATE_WRITE) };
    // A kernel before 5.14 does not know this advice; memory that is not mapped gives another error.
    status == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
}

/// Gives the memory of `block` back to the system; the next access gets ordinary pages, not huge ones.
///
/// # Safety
/// The block consists of `bytes` bytes in whole pages, and its contents are not needed.
pub(crate) unsafe fn leave_untouched(block: *mut u8, bytes: usize) {
    for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTNEED] {
        // SAFETY: the caller's guarantees are passed on. If the system does not follow the advice, nothing is lost.
        unsafe { libc::madvise(block.cast(), bytes, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_all_enclosing_groups_applies() {
        let mounts = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mounts.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups| smallest_group_limit(groups, mounts.path());
        assert_eq!(limit("0::/system.slice/a.service\n"), None);
        write("system.slice/memory.max", "2000000\n");
        write("system.slice/a.service/memory.max", "max\n");
        write("system.slice/b.service/memory.max", "1000000\n");
        assert_eq!(limit("0::/system.slice/a.service\n"), Some(2_000_000));
        assert_eq!(limit("0::/system.slice/b.service\n"), Some(1_000_000));
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("5:cpu,memory:/docker/1\n3:cpuset:/\n"), None);
        write("memory/docker/1/memory.limit_in_bytes", "3000000\n");
        assert_eq!(limit("5:cpu,memory:/docker/1\n3:cpuset:/\n0::/\n"), Some(3_000_000));
    }

    #[test]
    fn files_in_the_private_tmp_of_a_unit_are_hidden() {
        let mounts = "\
            22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
            40 22 8:1 /tmp/systemd-private-1f-beanstalkd.service-x/tmp /tmp rw - ext4 /dev/sda1 rw\n";
        assert!(is_private_by(mounts, Path::new("/tmp/socket")));
        assert!(!is_private_by(mounts, Path::new("/run/beanstalkd/socket")));
        assert!(!is_private_by(mounts, Path::new("/tmpfiles/socket")));
        assert!(!is_private_by("22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n", Path::new("/tmp/socket")));
    }
}
