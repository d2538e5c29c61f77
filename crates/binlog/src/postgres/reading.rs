//! Reads files of the log, as a stream of rows.
//!
//! Owns: the connection for reading, and the current row. Used at the start, and by `--check`, `--dump` and `--copy`.

use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

use super::claim::{Claim, open_reading};
use super::sql::{SqlValue, int};
use super::wire::{BYTES, DatabaseConnection, StatementError};
use super::{Settings, StoreError, sql};
use crate::storage::Listing;

/// The time between two attempts to connect again.
const RETRY: Duration = Duration::from_millis(200);

/// A connection that reads the files of a queue.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) connection: DatabaseConnection,
    queue: i64,
    /// The settings with which an owner connects again, and the epoch with which it began: a host with a lower one has
    /// an old copy. A reader that is not the owner does not connect again.
    again: Option<(Settings, u64)>,
    /// The last file whose length was requested.
    length: Option<(u32, u64)>,
    stream: Option<RowStream>,
}

/// The rows of a file from some offset on, which the database sends while they are being read.
#[derive(Debug)]
struct RowStream {
    file: u32,
    /// Bytes before this offset have passed.
    floor: u64,
    row: Option<Piece>,
    is_over: bool,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

fn failed(failure: StatementError) -> io::Error {
    io::Error::other(failure.to_string())
}

/// Another connection for reading the log of an owner.
fn reopen(settings: &Settings, queue: i64, epoch: u64) -> Result<DatabaseConnection, StoreError> {
    let mut connection = open_reading(settings)?;
    let rows = connection.run(&sql::QUEUE, &[SqlValue::Text(&settings.url.queue)])?;
    match rows.first().map(|row| (row.number(0), row.natural(1))) {
        Some((Some(found), Some(now))) if found == queue && now >= epoch => Ok(connection),
        _ => Err(StoreError::Lost("it is an old copy".to_owned())),
    }
}

impl Reading {
    /// Reads the log for `--check`, `--dump` and `--copy`.
    pub(super) fn new(connection: DatabaseConnection, queue: i64) -> Self {
        Self { connection, queue, again: None, length: None, stream: None }
    }

    /// Reads the log for its owner, which has taken it from another server and must not fail because of a lost
    /// connection.
    pub(super) fn of_owner(connection: DatabaseConnection, claim: &Claim, settings: &Settings) -> Self {
        Self { again: Some((settings.clone(), claim.epoch)), ..Self::new(connection, claim.queue.id) }
    }

    /// Reads, and starts again through another connection if this one is lost, as long as the owner continues without
    /// the database.
    fn persist<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T, StatementError>) -> io::Result<T> {
        let start = Instant::now();
        loop {
            let failure = match read(self) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let Some((settings, epoch)) = self.again.as_ref().filter(|_| failure.is_retryable()) else {
                return Err(failed(failure));
            };
            let longest = Duration::from_nanos(settings.times.store_timeout_ns);
            self.connection = loop {
                if start.elapsed() >= longest {
                    return Err(failed(failure));
                }
                thread::sleep(RETRY);
                if let Ok(connection) = reopen(settings, self.queue, *epoch) {
                    break connection;
                }
            };
            (self.length, self.stream) = (None, None);
        }
    }

    pub(super) fn list(&mut self) -> io::Result<Listing> {
        let indexes = self.persist(|reading| {
            reading.finish()?;
            let rows = reading.connection.run(&sql::LIST, &[int(reading.queue)])?;
            Ok(rows.iter().filter_map(|row| row.natural(0)).collect())
        })?;
        Ok(Listing { indexes, strange_names: Vec::new() })
    }

    pub(super) fn size(&mut self, file: u32) -> io::Result<u64> {
        self.length = None;
        self.known_size(file)
    }

    fn known_size(&mut self, file: u32) -> io::Result<u64> {
        let length = self.persist(|reading| reading.length_of(file))?;
        length.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "there is no such file"))
    }

    fn length_of(&mut self, file: u32) -> Result<Option<u64>, StatementError> {
        if let Some((_, length)) = self.length.filter(|&(known, _)| known == file) {
            return Ok(Some(length));
        }
        self.finish()?;
        let rows = self.connection.run(&sql::LENGTH, &[int(self.queue), int(file)])?;
        let length = rows.first().and_then(|row| row.natural(0));
        self.length = length.map(|length| (file, length));
        Ok(length)
    }

    /// As [`Storage::read`](crate::storage::Storage::read), but reads all available bytes.
    pub(super) fn read(&mut self, file: u32, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.known_size(file)?.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = bytes.len().min(left);
        self.persist(|reading| reading.fill(file, offset, &mut bytes[..wanted]))?;
        Ok(wanted)
    }

    /// Fills `bytes`, as far as there are bytes.
    fn fill(&mut self, file: u32, offset: u64, bytes: &mut [u8]) -> Result<(), StatementError> {
        self.seek(file, offset)?;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let piece = self.piece_at(at)?;
            let rest = &mut bytes[done..];
            done += match piece {
                Some(piece) if piece.start <= at => {
                    let skip = usize::try_from(at - piece.start).unwrap_or(usize::MAX);
                    let count = rest.len().min(piece.bytes.len() - skip);
                    rest[..count].copy_from_slice(&piece.bytes[skip..skip + count]);
                    count
                }
                // Nothing was appended here.
                next => {
                    let gap = next
                        .map_or(usize::MAX, |piece| usize::try_from(piece.start - at).unwrap_or(usize::MAX));
                    let count = rest.len().min(gap);
                    rest[..count].fill(0);
                    count
                }
            };
        }
        Ok(())
    }

    /// Requests the rows of `file` from `offset` on, unless they are already coming.
    fn seek(&mut self, file: u32, offset: u64) -> Result<(), StatementError> {
        if self.stream.as_ref().is_some_and(|stream| stream.file == file && stream.floor <= offset) {
            return Ok(());
        }
        self.finish()?;
        self.connection.add_with(BYTES, &sql::READ, &[int(self.queue), int(file), int(offset)])?;
        self.connection.end();
        self.connection.flush()?;
        self.stream = Some(RowStream { file, floor: offset, row: None, is_over: false });
        Ok(())
    }

    /// The first piece that ends after `at`; `None` if there is none.
    fn piece_at(&mut self, at: u64) -> Result<Option<&Piece>, StatementError> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        while !stream.is_over && stream.row.as_ref().is_none_or(|row| row.end() <= at) {
            self.connection.extend();
            if let Some(row) = &stream.row {
                stream.floor = row.end();
            }
            stream.row = match self.connection.next_row()? {
                None => {
                    stream.is_over = true;
                    None
                }
                Some(mut row) => {
                    let start = row.bytes(0).try_into().map_or(0, u64::from_be_bytes);
                    let bytes = row.columns.get_mut(1).and_then(Option::take).unwrap_or_default();
                    Some(Piece { start, bytes })
                }
            };
        }
        Ok(stream.row.as_ref())
    }

    /// Reads the remaining rows of the last file.
    fn finish(&mut self) -> Result<(), StatementError> {
        if let Some(stream) = self.stream.take().filter(|stream| !stream.is_over) {
            drop(stream);
            while self.connection.next_row()?.is_some() {
                self.connection.extend();
            }
        }
        Ok(())
    }

    /// Copies the end of a file to the table of lost tails.
    pub(super) fn keep_tail(&mut self, file: u32, offset: u64) -> io::Result<u64> {
        self.finish().map_err(failed)?;
        let values = [int(self.queue), int(file), int(offset)];
        let rows = self.connection.run(&sql::KEEP_TAIL, &values).map_err(failed)?;
        Ok(rows.first().and_then(|row| row.natural(0)).unwrap_or(0))
    }

    /// Takes a file out of the log, and keeps its rows.
    pub(super) fn set_aside(&mut self, file: u32) -> io::Result<()> {
        self.keep_tail(file, 0)?;
        let rows = self.connection.run(&sql::DROP_FILE, &[int(self.queue), int(file)]).map_err(failed)?;
        if rows.is_empty() {
            return Err(io::Error::new(ErrorKind::NotFound, "there is no such file"));
        }
        Ok(())
    }
}
