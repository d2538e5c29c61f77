//! Reading a file of the log from its beginning to its end, a large piece at a time.
//!
//! Owns: one buffer, used again for every file. Knows no format. Driven by the replay.

use std::io;

use super::disk::{Disk, FileName};

/// Bytes read at a time: large enough that the calls cost nothing, small enough to stay in the cache
/// until they are parsed.
const PIECE_BYTES: usize = 256 * 1024;

/// Zeros are looked for so many bytes at a time.
const ZERO_RUN_BYTES: usize = 256;

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |bits, &byte| bits | byte) == 0
}

/// A window on a file.
#[derive(Debug, Default)]
pub(super) struct Reader {
    name: Option<FileName>,
    size: u64,
    buffer: Vec<u8>,
    /// The window is `buffer[start..end]`, and stands at `offset` in the file.
    start: usize,
    end: usize,
    offset: u64,
}

impl Reader {
    /// Opens `name`. Returns its length.
    pub(super) fn open(&mut self, disk: &mut dyn Disk, name: FileName) -> io::Result<u64> {
        self.size = disk.size(name)?;
        self.name = Some(name);
        (self.start, self.end, self.offset) = (0, 0, 0);
        Ok(self.size)
    }

    /// The bytes at `offset`: at least `least` of them, or all to the end of the file.
    pub(super) fn at(&mut self, disk: &mut dyn Disk, offset: u64, least: usize) -> io::Result<&[u8]> {
        let skipped = offset.checked_sub(self.offset).and_then(|skipped| usize::try_from(skipped).ok());
        match skipped {
            Some(skipped) if skipped <= self.end - self.start => self.start += skipped,
            _ => (self.start, self.end) = (0, 0),
        }
        self.offset = offset;
        let rest = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        if self.end - self.start < least.min(rest) {
            self.fill(disk, least.min(rest), rest)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn fill(&mut self, disk: &mut dyn Disk, least: usize, rest: usize) -> io::Result<()> {
        let Some(name) = self.name else { return Ok(()) };
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let wanted = least.max(PIECE_BYTES).min(rest);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        while self.end < wanted {
            let at = self.offset + self.end as u64;
            match disk.read_at(name, at, &mut self.buffer[self.end..wanted]) {
                Ok(0) => {
                    // The file is shorter than it said: what is there is all there is.
                    self.size = at;
                    break;
                }
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first byte at or after `offset` that is not zero; `None` if there is none.
    pub(super) fn first_nonzero(&mut self, disk: &mut dyn Disk, mut offset: u64) -> io::Result<Option<u64>> {
        loop {
            let bytes = self.at(disk, offset, 1)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            // Whole runs of zeros first, which the compiler compares a vector at a time.
            let run =
                bytes.chunks_exact(ZERO_RUN_BYTES).take_while(|run| is_zero(run)).count() * ZERO_RUN_BYTES;
            if let Some(at) = bytes[run..].iter().position(|&byte| byte != 0) {
                return Ok(Some(offset + (run + at) as u64));
            }
            offset += bytes.len() as u64;
        }
    }
}
