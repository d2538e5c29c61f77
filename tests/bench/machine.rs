//! The machine that the figures come from: its cores, its limits, its name.
//!
//! Owns: pinning and the descriptor limit. Never measures.

use std::fs;
use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

const THIS_THREAD: Pid = Pid::from_raw(0);

/// Which core runs the server under test and which the load generator.
#[derive(Clone, Copy)]
pub struct Cores {
    server: usize,
    generator: usize,
}

impl Cores {
    /// The first two cores that this process may use. If it may use only one, server and generator share it.
    pub fn first_two() -> io::Result<Self> {
        let allowed = sched_getaffinity(THIS_THREAD)?;
        let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core) == Ok(true));
        let server = cores.next().unwrap_or(0);
        Ok(Self { server, generator: cores.next().unwrap_or(server) })
    }

    /// Whether server and generator share a core, which makes every latency meaningless.
    pub fn are_one(self) -> bool {
        self.server == self.generator
    }

    /// Pins this thread to the generator's core.
    pub fn pin_generator(self) -> io::Result<()> {
        pin(self.generator)
    }

    /// Runs `spawn` on both cores, for programs beside the server.
    pub fn on_both<T>(self, spawn: impl FnOnce() -> T) -> io::Result<T> {
        let mut both = CpuSet::new();
        both.set(self.server)?;
        both.set(self.generator)?;
        sched_setaffinity(THIS_THREAD, &both)?;
        let spawned = spawn();
        self.pin_generator()?;
        Ok(spawned)
    }

    /// Lets the main thread of a server, and those that it starts from now on, run on both cores.
    pub fn allow_both(self, server: u32) -> io::Result<()> {
        let mut both = CpuSet::new();
        both.set(self.server)?;
        both.set(self.generator)?;
        Ok(sched_setaffinity(Pid::from_raw(server.cast_signed()), &both)?)
    }

    /// Runs `spawn` on the server's core. The child inherits this core, so that none of its threads ever runs on
    /// another.
    pub fn on_server_core<T>(self, spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        pin(self.server)?;
        let child = spawn();
        self.pin_generator()?;
        child
    }
}

fn pin(core: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core)?;
    Ok(sched_setaffinity(THIS_THREAD, &only)?)
}

/// Raises the soft limit on descriptors to the hard one, for this process and the servers it starts:
/// the row with 10,000 connections needs that many on either side.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let (_, maximum) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, maximum, maximum)?)
}

/// Processor, kernel and number of cores, in one line.
pub fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{model}, {cores} core(s), Linux {}", kernel.trim_end())
}
