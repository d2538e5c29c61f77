//! Lines of standard input. Ctrl-C ends the wait for the next one.
//!
//! A signal does not interrupt a read of standard input. A thread therefore does the reading, and the code that waits for
//! a line checks for an interrupt in between.

use crate::failure::Failure;
use crate::interrupt;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How many lines are read ahead.
const AHEAD: usize = 1024;

/// The time between two checks for an interrupt.
const TURN: Duration = Duration::from_millis(50);

/// The lines of standard input.
pub struct Lines(Receiver<io::Result<Vec<u8>>>);

impl Lines {
    /// Starts the thread that reads.
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

    /// Waits for the next line and returns it without its line end; `None` at the end of the input.
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

    /// The next line, if it was already read.
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
