//! Facts about processes that the tests ask the system for. Everything that only Linux has is in this file.
//!
//! On other systems the suites compile, and tests that need these facts fail with "not on this system".

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A process as the system sees it.
#[derive(Clone, Copy)]
pub struct Process(pub u32);

impl Process {
    /// The share of a processor that it uses during `time`; 1 is a whole processor. It is a ratio of times, so it
    /// does not grow on a slow or busy machine.
    pub fn cpu_share_during(self, time: Duration) -> f64 {
        let (start, before) = (Instant::now(), self.cpu_time());
        std::thread::sleep(time);
        (self.cpu_time() - before).as_secs_f64() / start.elapsed().as_secs_f64()
    }

    /// Memory in use, in bytes.
    pub fn memory(self) -> usize {
        self.bytes("VmRSS")
    }

    /// The most memory that was in use so far, in bytes.
    pub fn peak_memory(self) -> usize {
        self.bytes("VmHWM")
    }

    fn bytes(self, key: &str) -> usize {
        self.status(key).trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }
}

/// A control group (version 1 or 2) with a memory limit; removed when dropped.
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// `None` if no group can be made, for lack of permission or of the memory controller.
    pub fn new(limit: usize) -> Option<Self> {
        let name = format!("beanstalkd-test-{}-{limit}", std::process::id());
        for (mount, file) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = Self(Path::new(mount).join(&name));
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(file), limit.to_string()).is_ok() {
                return Some(group);
            }
        }
        eprintln!("skipped: a control group with a memory limit cannot be made here");
        None
    }

    /// The script of a shell that joins the group and executes its arguments.
    pub fn script(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A mounted file system, unmounted when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// One of this size, in memory. `None`, with a message, if the test may not mount a file system.
    pub fn mount(bytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let arguments = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let mounted = Command::new("mount").args(arguments).arg(directory.path()).output();
        if !mounted.is_ok_and(|done| done.status.success()) {
            eprintln!("skipped: mounting a file system needs root");
            return None;
        }
        Some(Self(directory))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The server may not have exited yet.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[cfg(target_os = "linux")]
pub use linux::{has_user_timeout, limit_descriptors};

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;
    use std::process::Child;
    use std::time::Duration;

    use rustix::process::{
        Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getrlimit, pidfd_getfd, pidfd_open, prlimit,
    };
    use socket2::SockRef;

    use super::Process;

    /// Limits `child` to `count` descriptors in all.
    pub fn limit_descriptors(child: &Child, count: u64) -> io::Result<()> {
        // The hard limit stays, so that the limit can be raised later.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: Some(count), maximum };
        prlimit(Some(Pid::from_child(child)), Resource::Nofile, limit)?;
        Ok(())
    }

    /// Whether `socket` closes its connection if sent data is not acknowledged in time (`TCP_USER_TIMEOUT`).
    pub fn has_user_timeout(socket: &OwnedFd) -> bool {
        SockRef::from(socket).tcp_user_timeout().unwrap().is_some()
    }

    impl Process {
        /// Processor time so far, over all threads.
        pub fn cpu_time(self) -> Duration {
            self.cpu_time_if_running().expect("the process is running")
        }

        /// Processor time so far, over all threads; `None` if the process has ended.
        pub fn cpu_time_if_running(self) -> Option<Duration> {
            let threads = fs::read_dir(format!("/proc/{}/task", self.0)).ok()?;
            let nanoseconds = threads.map(|thread| {
                // The thread may have ended after the directory was listed.
                let schedstat = fs::read_to_string(thread.unwrap().path().join("schedstat"));
                schedstat.map_or(0, |text| text.split(' ').next().unwrap().parse::<u64>().unwrap())
            });
            Some(Duration::from_nanos(nanoseconds.sum()))
        }

        /// Processor time of its children that have ended, to a hundredth of a second.
        pub fn cpu_time_of_ended_children(self) -> Duration {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap();
            // The name of the program stands in parentheses and may have spaces; the times are fields 16 and 17.
            let fields = stat.rsplit(") ").next().unwrap().split(' ').skip(13).take(2);
            Duration::from_millis(fields.map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum())
        }

        /// A line of its status.
        pub fn status(self, key: &str) -> String {
            let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("no {key}")).trim().to_owned()
        }

        /// How many descriptors are open.
        pub fn descriptors(self) -> usize {
            fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap().count()
        }

        /// The processes that it has started and that still run.
        pub fn children(self) -> Vec<Process> {
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0)).unwrap();
            children.split_whitespace().map(|pid| Process(pid.parse().unwrap())).collect()
        }

        /// A second descriptor of its end of the connection whose other end is at `port`.
        pub fn socket_connected_to(self, port: u16) -> OwnedFd {
            let pidfd = pidfd_open(Pid::from_raw(self.0 as i32).unwrap(), PidfdFlags::empty()).unwrap();
            let names = fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap();
            let numbers = names.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
            let is_connected_to = |socket: &OwnedFd| {
                let address = SockRef::from(socket).peer_addr().ok();
                address.and_then(|address| address.as_socket()).as_ref().map(SocketAddr::port) == Some(port)
            };
            numbers
                .filter_map(|number| pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).ok())
                .find(is_connected_to)
                .expect("the process has a socket for the client")
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use super::Process;

    #[allow(clippy::unused_self, reason = "they answer on Linux")]
    impl Process {
        /// Processor time so far, over all threads.
        pub fn cpu_time(self) -> Duration {
            unimplemented!("not on this system")
        }

        /// Processor time so far, over all threads; `None` if the process has ended.
        pub fn cpu_time_if_running(self) -> Option<Duration> {
            unimplemented!("not on this system")
        }

        /// Processor time of its children that have ended.
        pub fn cpu_time_of_ended_children(self) -> Duration {
            unimplemented!("not on this system")
        }

        /// A line of its status.
        pub fn status(self, _key: &str) -> String {
            unimplemented!("not on this system")
        }

        /// How many descriptors are open.
        pub fn descriptors(self) -> usize {
            unimplemented!("not on this system")
        }

        /// The processes that it has started and that still run.
        pub fn children(self) -> Vec<Process> {
            unimplemented!("not on this system")
        }

        /// A second descriptor of its end of the connection whose other end is at `port`.
        pub fn socket_connected_to(self, _port: u16) -> OwnedFd {
            unimplemented!("not on this system")
        }
    }
}

/// Fails, because this system cannot limit the descriptors of another process.
#[cfg(not(target_os = "linux"))]
pub fn limit_descriptors(_child: &std::process::Child, _count: u64) -> std::io::Result<()> {
    use std::io::{Error, ErrorKind};
    Err(Error::new(ErrorKind::Unsupported, "no limits of another process on this system"))
}

/// True, because this system has no such option.
#[cfg(not(target_os = "linux"))]
pub fn has_user_timeout(_socket: &std::os::fd::OwnedFd) -> bool {
    true
}
