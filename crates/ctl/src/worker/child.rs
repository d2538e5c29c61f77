//! A run of the command for one job: writes the body to its standard input and waits for its end.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

/// Runs `command` with `environment` in the process group `group`, and waits for its end.
pub fn run(
    command: &[OsString],
    group: i32,
    environment: &[(&str, String)],
    body: Vec<u8>,
) -> io::Result<ExitStatus> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::piped())
        .process_group(group)
        .spawn()?;
    let mut input = child.stdin.take();
    // This thread is not joined: a process that the command has left behind may keep the pipe open and not read it.
    std::thread::spawn(move || {
        // If the command ends without reading its input, the pipe breaks, which is no error.
        let _ = input.as_mut().map(|input| input.write_all(&body));
    });
    child.wait()
}
