//! One run of the command: the body goes to its standard input, its end is awaited, and something is done meanwhile.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// The process groups of the commands that run.
static RUNNING: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<HashSet<i32>>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends SIGTERM to the commands that run: somebody has asked twice to stop.
pub fn end_commands() {
    for group in running().iter().flatten() {
        // One that has just ended is none to end.
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
        // Ctrl-C in a terminal goes to its whole process group: the command is to come to its end.
        .process_group(0)
        .spawn()?;
    let group = i32::try_from(child.id()).map_err(io::Error::other)?;
    running().get_or_insert_default().insert(group);
    let mut input = child.stdin.take();
    let (ended, end) = mpsc::channel();
    // Nobody waits for this thread: something that the command has left behind may keep the pipe open and not read it.
    std::thread::spawn(move || {
        // A command need not read its input, and then the pipe breaks.
        let _ = input.as_mut().map(|input| input.write_all(&body));
    });
    let status = std::thread::scope(|scope| {
        scope.spawn(move || ended.send(child.wait()));
        loop {
            match end.recv_timeout(every) {
                Ok(status) => return status,
                Err(mpsc::RecvTimeoutError::Timeout) => meanwhile(),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("nobody waits for it"));
                }
            }
        }
    });
    running().get_or_insert_default().remove(&group);
    status
}
