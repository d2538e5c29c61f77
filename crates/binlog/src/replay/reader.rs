//! Reads a file of the log from its beginning to its end, a large piece at a time.
//!
//! Owns: one buffer, which is used for every file. Does not know the format. Driven by the replay.

use std::io::{self, ErrorKind};

use crate::OpenError;
use crate::storage::Storage;

/// The bytes of one read: enough to make the calls cheap, and few enough to stay in the cache until they are parsed.
const PIECE_BYTES: usize = 256 * 1024;

/// The number of bytes that are compared with zeros at a time.
const ZERO_RUN_BYTES: usize = 256;

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |bits, &byte| bits | byte) == 0
}

/// A window on a file. An error names the file.
pub(super) struct LogFileReader<'s> {
    storage: &'s mut dyn Storage,
    file: u32,
    size: u64,
    buffer: Vec<u8>,
    /// The window is `buffer[start..end]`, and begins at `offset` of the file.
    start: usize,
    end: usize,
    offset: u64,
}

impl<'s> LogFileReader<'s> {
    /// A reader without a file.
    pub(super) fn new(storage: &'s mut dyn Storage) -> Self {
        Self { storage, file: 0, size: 0, buffer: Vec::new(), start: 0, end: 0, offset: 0 }
    }

    /// Begins to read file `file`. Returns its length in bytes.
    pub(super) fn open(&mut self, file: u32) -> Result<u64, OpenError> {
        self.file = file;
        self.size = self.storage.size(file).map_err(|error| self.failed(error))?;
        (self.start, self.end, self.offset) = (0, 0, 0);
        Ok(self.size)
    }

    /// Length of the file, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Stops reading the file.
    pub(super) fn close(&mut self) {
        self.storage.release(self.file);
    }

    /// The bytes at `offset`: at least `min_bytes` of them, or all up to the end of the file.
    pub(super) fn at(&mut self, offset: u64, min_bytes: usize) -> Result<&[u8], OpenError> {
        let skipped = offset.checked_sub(self.offset).and_then(|skipped| usize::try_from(skipped).ok());
        match skipped {
            Some(skipped) if skipped <= self.end - self.start => self.start += skipped,
            _ => (self.start, self.end) = (0, 0),
        }
        self.offset = offset;
        let rest = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        if self.end - self.start < min_bytes.min(rest) {
            self.fill(min_bytes.min(rest), rest).map_err(|error| self.failed(error))?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn failed(&self, error: io::Error) -> OpenError {
        OpenError::Read { file: self.file, error }
    }

    fn fill(&mut self, min_bytes: usize, rest: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let wanted = min_bytes.next_multiple_of(PIECE_BYTES).min(rest);
        if self.buffer.len() < wanted {
            // A record is as long as its body, or as long as damage claims.
            self.buffer.try_reserve_exact(wanted - self.buffer.len())?;
            self.buffer.resize(wanted, 0);
        }
        while self.end < wanted {
            let at = self.offset + self.end as u64;
            match self.storage.read(self.file, at, &mut self.buffer[self.end..wanted]) {
                Ok(0) => {
                    // The file is shorter than its reported size: there are no more bytes.
                    self.size = at;
                    break;
                }
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first byte at or after `offset` that is not zero; `None` if there is none.
    pub(super) fn first_nonzero(&mut self, mut offset: u64) -> Result<Option<u64>, OpenError> {
        loop {
            let bytes = self.at(offset, 1)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            // Whole runs of zeros first, which the compiler compares a vector at a time.
            let runs = bytes.chunks_exact(ZERO_RUN_BYTES);
            let run = runs.take_while(|run| is_zero(run)).count() * ZERO_RUN_BYTES;
            if let Some(at) = bytes[run..].iter().position(|&byte| byte != 0) {
                return Ok(Some(offset + (run + at) as u64));
            }
            offset += bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_cancel_each_other_out_are_not_zeros() {
        for len in [2, 255, 256, 257] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            (bytes[0], bytes[len - 1]) = (7, 7);
            assert!(!is_zero(&bytes));
        }
    }
}
