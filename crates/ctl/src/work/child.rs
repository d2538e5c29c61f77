//! A run of the command for one job: writes the body to its standard input and waits for its end.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Runs `command` with `environment` in the process group `group`, and calls `meanwhile` each time `every` has passed.
/// passed.
pub fn run(
    command: &[OsString],
    group: i32,
    environment: &[(&str, String)],
    body: Vec<u8>,
    every: Duration,
    meanwhile: &mut dyn FnMut(),
) -> io::Result<ExitStatus> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::piped())
        .process_group(group)
        .spawn()?;
    let mut input = child.stdin.take();
    let (ended, end) = mpsc::channel();
    // This thread is not joined: a process that the command has left behind may keep the pipe open and not read it.
    std::thread::spawn(move || {
        // If the command ends without reading its input, the pipe breaks, which is no error.
        let _ = input.as_mut().map(|input| input.write_all(&body));
    });
    std::thread::scope(|scope| {
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
    })
}
