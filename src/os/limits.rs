//! Resource limits.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one; the limit that holds from now on.
///
/// # Errors
/// Where the system refuses; the limit is then as it was.
#[allow(clippy::unnecessary_cast, reason = "limits are signed numbers on FreeBSD")]
pub fn raise_open_files() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // macOS names an infinite hard limit, and refuses a soft one above its OPEN_MAX.
    #[cfg(target_vendor = "apple")]
    let hard = hard.min(10_240);
    if hard > soft {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard.max(soft) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::child::Child;

    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_raises_its_limit() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 20, hard).unwrap();
        let raised = raise_open_files().unwrap();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((raised, soft), (hard, hard));
        Child::say("raised");
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let mut child = Child::start("os::limits::tests::child_raises_its_limit", "".as_ref());
        assert_eq!(child.line(), "raised");
    }
}
