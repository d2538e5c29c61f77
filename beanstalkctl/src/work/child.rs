//! A run of the command for one job: writes the body to its standard input and waits for its end.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// The process groups of the running commands.
static RUNNING: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<HashSet<i32>>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends SIGTERM to the running commands. Called at the second signal to the program.
pub fn end_commands() {
    for group in running().iter().flatten() {
        // A command that has just ended needs no signal.
        let _ = Pid::from_raw(*group).map(|group| kill_process_group(group, Signal::TERM));
    }
}

/// Runs `command` with `environment`, and calls `meanwhile` each time that `every` has passed.
pub fn run(
    command: &[OsString],
    environment: &[(&str, String)],
    body: Vec<u8>,
    every: Duration,
    meanwhile: &mut dyn FnMut(),
) -> io::Result<ExitStatus> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::piped())
        // The terminal sends Ctrl-C to a whole process group. The command is not in it, so that it can finish.
        .process_group(0)
        .spawn()?;
    let group = i32::try_from(child.id()).map_err(io::Error::other)?;
    running().get_or_insert_default().insert(group);
    let mut input = child.stdin.take();
    let (ended, end) = mpsc::channel();
    // This thread is not joined: a process that the command has left behind may keep the pipe open and not read it.
    std::thread::spawn(move || {
        // If the command ends without reading its input, the pipe breaks, which is no error.
        let _ = input.as_mut().map(|input| input.write_all(&body));
    });
    let status = std::thread::scope(|scope| {
        scope.spawn(move || ended.send(child.wait()));
        loop {
            match end.recv_timeout(every) {
                Ok(status) => return status,
                Err(mpsc::RecvTimeoutError::Timeout) => meanwhile(),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that waits for the command has ended"));
                }
            }
        }
    });
    running().get_or_insert_default().remove(&group);
    status
}
