//! Lines of standard input, for which nobody waits longer than until Ctrl-C.
//!
//! A read of standard input goes on after a signal. So a thread reads, and whoever waits for a line looks at times whether
//! somebody has asked the program to stop.

use crate::failure::Failure;
use crate::interrupt;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Lines that are read ahead.
const AHEAD: usize = 1024;

/// How long a wait is, after which it looks.
const TURN: Duration = Duration::from_millis(50);

/// The lines of standard input.
pub struct Lines(Receiver<io::Result<Vec<u8>>>);

impl Lines {
    /// Begins to read.
    pub fn new() -> Self {
        let (lines, receiver) = sync_channel(AHEAD);
        std::thread::spawn(move || {
            let mut input = io::stdin().lock();
            loop {
                let mut line = Vec::new();
                let read = input.read_until(b'\n', &mut line);
                let is_end = !matches!(read, Ok(1..));
                let line = read.map(|_| line);
                if matches!(line, Ok(ref line) if line.is_empty()) || lines.send(line).is_err() || is_end {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// Waits for the next line, which has no line end any more. `None`: there is no more.
    pub fn wait(&self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            match self.0.recv_timeout(TURN) {
                Ok(line) => return taken(line).map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if interrupt::requested() => {
                    return Err(Failure::Interrupted("stopped".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The next line if it has come.
    pub fn ready(&self) -> Result<Option<Vec<u8>>, Failure> {
        self.0.try_recv().ok().map(taken).transpose()
    }
}

fn taken(line: io::Result<Vec<u8>>) -> Result<Vec<u8>, Failure> {
    let mut line = line.map_err(|error| Failure::Local(format!("standard input: {error}")))?;
    let end = line.strip_suffix(b"\r\n").or(line.strip_suffix(b"\n")).unwrap_or(&line).len();
    line.truncate(end);
    Ok(line)
}
