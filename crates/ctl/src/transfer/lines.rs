//! The lines of a file to which a program appends: it syncs them before it acts on them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::destination::sync_directory;
use crate::failure::{Failure, OfFile, Result};

/// Opens or creates a file for reading and appending, and makes its name durable.
pub fn open_appended(path: &Path) -> Result<File> {
    let file = File::options().read(true).append(true).create(true).open(path).of_file(path)?;
    sync_directory(path)?;
    Ok(file)
}

/// Passes each line of the file, with its offset and its line end, to `each`. Then cuts off an incomplete last line: it
/// was never synced, so nothing was done after it. Returns the length of the file. The first line begins with the first
/// of `starts`, each other line with the second one: the end of any other file is not changed.
pub fn read_lines(
    path: &Path,
    file: &File,
    starts: [&[u8]; 2],
    each: &mut dyn FnMut(u64, &[u8]) -> Result,
) -> Result<u64> {
    let (mut reader, mut offset) = (BufReader::new(file), 0);
    loop {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line).of_file(path)? as u64;
        if line.ends_with(b"\n") {
            each(offset, &line)?;
            offset += read;
            continue;
        }
        let start = starts[usize::from(offset > 0)];
        if !line.starts_with(start) && !start.starts_with(&line) {
            return Err(Failure::file(path, "another program wrote this file"));
        }
        file.set_len(offset).of_file(path)?;
        return Ok(offset);
    }
}
