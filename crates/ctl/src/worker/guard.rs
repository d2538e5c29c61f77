//! Ends the commands when the program ends without waiting for them, however it ends.
//!
//! Owns: a process, the guard, that is a copy of this program, and the process group of all commands, which is the
//! guard's. The guard reads a pipe that ends with the program. No signal that ends the program reaches it.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use crate::interrupt;
use rustix::process::{Signal, getpgrp, getpid, kill_process_group};

/// The argument that makes this program a guard.
const ARGUMENT: &str = "__guard-commands";

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// The running guard.
pub struct RunningGuard {
    process: Child,
    pipe: ChildStdin,
}

impl RunningGuard {
    /// Starts the guard.
    pub fn start() -> io::Result<Self> {
        // The link stays valid if the program's file is replaced by a newer version.
        let program = std::path::Path::new("/proc/self/exe");
        let program = if program.exists() { program.to_owned() } else { std::env::current_exe()? };
        let mut process = Command::new(program)
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take().ok_or_else(|| io::Error::other("no pipe to the guard"))?;
        Ok(Self { process, pipe })
    }

    /// The process group in which commands run. The terminal sends Ctrl-C to another group, so that they can finish.
    pub fn group(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Ends the guard. Processes that commands have left continue.
    pub fn dismiss(mut self) -> io::Result<()> {
        self.pipe.write_all(b".")?;
        drop(self.pipe);
        self.process.wait().map(drop)
    }
}

/// Whether this process was started as a guard.
pub fn is_guard() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Waits until the program has ended or dismisses the guard. If it was not dismissed, ends the commands.
pub fn run() -> ExitCode {
    let mut last_word = Vec::new();
    // Otherwise it would end the processes of its parent.
    let is_leader = getpgrp() == getpid();
    let (true, Ok(_caught)) = (is_leader, interrupt::catch()) else { return ExitCode::from(2) };
    if io::stdin().read_to_end(&mut last_word).is_ok() && last_word.is_empty() {
        let _ = kill_process_group(getpgrp(), Signal::TERM);
        std::thread::sleep(GRACE);
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    }
    ExitCode::SUCCESS
}
