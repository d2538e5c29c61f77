//! Resource limits.

use std::io;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::statvfs::statvfs;

pub use super::platform::group_memory_bytes;

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
/// If the system does not report it.
#[allow(clippy::unnecessary_cast, reason = "the counts are narrower on 32 bits and on macOS")]
pub fn disk_room(path: &Path) -> io::Result<u64> {
    let room = statvfs(path)?;
    Ok((room.blocks_available() as u64).saturating_mul(room.fragment_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Child;

    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_raises_its_limit() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 20, hard).unwrap();
        let raised = raise_open_files().unwrap();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // These numbers are unsigned on Linux and signed on FreeBSD.
        assert_eq!((i128::from(raised), soft), (i128::from(hard), hard));
        Child::say("raised");
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let mut child = Child::start("limits::tests::child_raises_its_limit", "".as_ref());
        assert_eq!(child.line(), "raised");
    }
}
