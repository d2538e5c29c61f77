//! Figures about this process and its machine, random numbers, and the end of the process after a panic.
//!
//! Keeps nothing between two calls. A figure that the system does not report is left out, without an error.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::process;
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::utsname::uname;

use super::platform;

/// Processor time that the process has used, to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// The time in the program itself.
    pub user: Duration,
    /// The time in the kernel on behalf of the program.
    pub system: Duration,
}

/// The processor time used so far; zero if the system does not report it.
#[must_use]
pub fn cpu_time() -> CpuTime {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return CpuTime { user: Duration::ZERO, system: Duration::ZERO };
    };
    CpuTime { user: duration(usage.user_time()), system: duration(usage.system_time()) }
}

fn duration(time: TimeVal) -> Duration {
    Duration::from_micros(time.num_microseconds().unsigned_abs())
}

/// The resources that the process uses. A figure is `None` if the system does not report it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Memory that is in RAM, in bytes.
    pub resident_bytes: Option<u64>,
    /// Address space, in bytes.
    pub virtual_bytes: Option<u64>,
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// How many descriptors the process may have open.
    pub max_files: Option<u64>,
}

/// The resources that the process uses now; the call takes tens of microseconds. `files` is roughly the number of open
/// descriptors: if it is large, and an old kernel (before Linux 6.2) does not report the number, the descriptors are
/// not counted.
#[must_use]
pub fn usage(files: usize) -> Usage {
    let (virtual_bytes, resident_bytes) = platform::memory().unzip();
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    #[allow(clippy::unnecessary_cast, reason = "limits are signed numbers on FreeBSD")]
    let max_files = limit.ok().map(|(soft, _)| soft as u64);
    Usage { resident_bytes, virtual_bytes, open_files: platform::open_files(files), max_files }
}

/// The resident memory of the process, in bytes; `None` if the system does not report it.
#[must_use]
pub fn resident_bytes() -> Option<usize> {
    usize::try_from(platform::memory()?.1).ok()
}

/// The machine, as `uname` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The host's name.
    pub hostname: String,
    /// The system's version.
    pub os: String,
    /// The kind of hardware.
    pub platform: String,
}

impl Machine {
    /// This machine.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn this() -> io::Result<Self> {
        let names = uname()?;
        Ok(Self {
            hostname: names.nodename().to_string_lossy().into_owned(),
            os: names.version().to_string_lossy().into_owned(),
            platform: names.machine().to_string_lossy().into_owned(),
        })
    }
}

/// A random number that no other call, in this process or another, is likely to return. It distinguishes instances of
/// the server and is not secret.
#[must_use]
pub fn random_u64() -> u64 {
    // The standard library takes the keys of its hashers from the system's random numbers.
    RandomState::new().build_hasher().finish()
}

/// From now on a panic in any thread ends the process at once, with a message and SIGABRT. After a panic the state
/// cannot be trusted, so nothing is cleaned up and nothing more is written to files. The binlog keeps everything that
/// was written before.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        // This writes to stderr directly, because the log itself may have failed.
        let _ = writeln!(io::stderr(), "this server has a bug and ends: {panic}");
        process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::child::Child;

    #[test]
    fn cpu_time_grows_with_work() {
        let start = cpu_time();
        while cpu_time() == start {
            std::hint::spin_loop();
        }
        let now = cpu_time();
        assert!(now.user + now.system > start.user + start.system);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_and_descriptors_are_those_in_use() {
        let files: Vec<_> = (0..50).map(|_| tempfile::tempfile().unwrap()).collect();
        let memory = vec![1_u8; 64 << 20];
        let used = usage(0);
        // Other tests open and close descriptors at the same time.
        assert!(used.open_files.unwrap() >= 50 && used.max_files.unwrap() >= used.open_files.unwrap());
        assert!(used.resident_bytes.unwrap() >= 64 << 20);
        assert!(used.virtual_bytes >= used.resident_bytes);
        drop((files, memory));
    }

    #[test]
    fn the_machine_has_names() {
        let machine = Machine::this().unwrap();
        assert!(!machine.hostname.is_empty() && !machine.os.is_empty() && !machine.platform.is_empty());
    }

    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_panics_in_a_thread() {
        end_on_panic();
        let _ = std::thread::spawn(|| panic!("on purpose")).join();
        Child::say("survived");
    }

    #[test]
    fn a_panic_in_any_thread_ends_the_process_with_a_message() {
        let mut child = Child::start("process::tests::child_panics_in_a_thread", "".as_ref());
        let status = child.finish();
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
    }

    #[test]
    fn random_numbers_differ() {
        let numbers: HashSet<u64> = (0..1000).map(|_| random_u64()).collect();
        assert_eq!(numbers.len(), 1000);
    }
}
