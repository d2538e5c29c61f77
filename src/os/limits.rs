//! Resource limits.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::statvfs::statvfs;

/// Raises the soft limit of open descriptors to the hard limit; returns the new soft limit.
///
/// # Errors
/// If the system refuses. The limit is then unchanged.
#[allow(clippy::unnecessary_cast, reason = "limits are signed numbers on FreeBSD")]
pub fn raise_open_files() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // macOS reports an infinite hard limit, but refuses a soft limit above its OPEN_MAX.
    #[cfg(target_vendor = "apple")]
    let hard = hard.min(10_240);
    if hard > soft {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard.max(soft) as u64)
}

/// Bytes that are free for this user in the file system of `path`.
///
/// # Errors
/// Where the system does not tell.
#[allow(clippy::unnecessary_cast, reason = "the counts are narrower on 32 bits and on macOS")]
pub fn disk_room(path: &Path) -> io::Result<u64> {
    let room = statvfs(path)?;
    Ok((room.blocks_available() as u64).saturating_mul(room.fragment_size() as u64))
}

/// The memory that the process' control group may use, in bytes, or any of the groups around it; `None` without a
/// limit, or if the system has no control groups. At the limit the kernel ends the process; no allocation fails
/// before that.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::child::Child;

    #[test]
    fn the_smallest_limit_of_the_groups_around_holds() {
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
    #[ignore = "runs as a child of other tests"]
    fn child_raises_its_limit() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 20, hard).unwrap();
        let raised = raise_open_files().unwrap();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // The system's numbers of this kind have no sign on Linux, and one on FreeBSD.
        assert_eq!((i128::from(raised), soft), (i128::from(hard), hard));
        Child::say("raised");
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let mut child = Child::start("os::limits::tests::child_raises_its_limit", "".as_ref());
        assert_eq!(child.line(), "raised");
    }
}
