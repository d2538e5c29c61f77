//! Standard input, as a whole or as lines. Ctrl-C ends the wait for it.
//!
//! A signal does not interrupt a read of standard input. A thread therefore does the reading, and the code that waits
//! for it checks for an interrupt in between.

use std::collections::HashSet;
use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use serde_json::Value;

use crate::cli::Id;
use crate::failure::{Failure, Result};
use crate::interrupt;

/// How many lines are read ahead.
const AHEAD: usize = 1024;

/// The time between two checks for an interrupt.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The lines of standard input.
pub struct StdinLines(Receiver<io::Result<Vec<u8>>>);

impl StdinLines {
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
    pub fn wait(&self) -> Result<Option<Vec<u8>>> {
        next(&self.0)?.map(taken).transpose()
    }

    /// The next line, if it was already read.
    pub fn ready(&self) -> Result<Option<Vec<u8>>> {
        self.0.try_recv().ok().map(taken).transpose()
    }
}

/// Waits for the next value; `None` if there is no further one.
fn next<T>(receiver: &Receiver<T>) -> Result<Option<T>> {
    loop {
        match receiver.recv_timeout(CHECK_INTERVAL) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => interrupt::check("stopped")?,
        }
    }
}

/// The result of `read`, which may wait for input.
pub fn read<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || sender.send(read()));
    Ok(next(&receiver)?.unwrap_or_else(|| Err(io::Error::other("the thread that reads has ended"))))
}

fn taken(line: io::Result<Vec<u8>>) -> Result<Vec<u8>> {
    let mut line = line.map_err(|error| Failure::Local(format!("standard input: {error}")))?;
    let end = line.strip_suffix(b"\r\n").or(line.strip_suffix(b"\n")).unwrap_or(&line).len();
    line.truncate(end);
    Ok(line)
}

/// The ids of the command line, each once; `-` is replaced by the ids of standard input.
pub fn ids(arguments: &[Id]) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    for argument in arguments {
        match argument {
            Id::Number(id) => ids.push(*id),
            Id::Stdin => ids.extend(ids_of_input()?),
        }
    }
    if ids.is_empty() {
        return Err(Failure::NothingMatched("there are no ids on standard input".to_owned()));
    }
    Ok(each_once(ids))
}

/// The ids, each once.
pub fn each_once(mut ids: Vec<u64>) -> Vec<u64> {
    let mut seen = HashSet::new();
    ids.retain(|id| seen.insert(*id));
    ids
}

fn ids_of_input() -> Result<Vec<u64>> {
    let (lines, mut ids, mut number) = (StdinLines::new(), Vec::new(), 0);
    while let Some(line) = lines.wait()? {
        number += 1;
        let found = ids_of_line(&String::from_utf8_lossy(&line));
        ids.extend(
            found.ok_or_else(|| Failure::Usage(format!("standard input, line {number}: expected ids")))?,
        );
    }
    Ok(ids)
}

/// The ids of a line: numbers, or a line that this program has printed: a job as JSON or in a table, or the id of a
/// put.
fn ids_of_line(line: &str) -> Option<Vec<u64>> {
    if line.trim_start().starts_with('{') {
        let value: Value = serde_json::from_str(line).ok()?;
        return Some(vec![value["id"].as_u64()?]);
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let number =
        |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten();
    let numbers: Option<Vec<u64>> = words.iter().map(number).collect();
    match (numbers, words.first()) {
        (Some(numbers), _) => Some(numbers),
        // The header of a table.
        (None, Some(&"ID")) => Some(Vec::new()),
        (None, first) => first.and_then(number).map(|id| vec![id]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_what_the_program_prints() {
        for (line, ids) in [
            ("7", Some(vec![7])),
            (" 7  8 9 ", Some(vec![7, 8, 9])),
            ("", Some(vec![])),
            ("ID  TUBE  STATE", Some(vec![])),
            ("7   2     ready  -  1024  0s", Some(vec![7])),
            ("7 deleted", Some(vec![7])),
            (r#"{"id":7,"tube":"t"}"#, Some(vec![7])),
            (r#"{"id":"7"}"#, None),
            ("-7", None),
            ("+7", None),
            ("job 7", None),
            ("18446744073709551616", None),
        ] {
            assert_eq!(ids_of_line(line), ids, "{line}");
        }
    }
}
