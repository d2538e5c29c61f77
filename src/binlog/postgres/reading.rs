//! Reading files of the log, as a stream of rows.
//!
//! Owns: the connection that reads, and the row that the reader has come to. Used at the start, and by `--check`, `--dump`
//! and `--copy`.

use std::io::{self, ErrorKind};

use super::claim::number;
use super::wire::{Failure, Session, Value};
use crate::binlog::storage::Listing;

/// A connection that reads the files of a queue.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) session: Session,
    queue: i64,
    /// The last file whose length was asked for.
    length: Option<(u32, u64)>,
    stream: Option<RowStream>,
}

/// The rows of a file from some offset on, which the database sends as they are taken.
#[derive(Debug)]
struct RowStream {
    file: u32,
    /// What lies before this has gone by.
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

fn failed(failure: Failure) -> io::Error {
    io::Error::other(failure.to_string())
}

impl Reading {
    pub(super) fn new(session: Session, queue: i64) -> Self {
        Self { session, queue, length: None, stream: None }
    }

    fn file_numbers(&mut self, statement: &str) -> io::Result<Vec<u64>> {
        self.finish()?;
        let rows = self.session.run(statement, &[Value::Int(self.queue)]).map_err(failed)?;
        Ok(rows.iter().filter_map(|row| u64::try_from(number(row, 0)?).ok()).collect())
    }

    pub(super) fn list(&mut self) -> io::Result<Listing> {
        Ok(Listing { indexes: self.file_numbers("list")?, strange_names: Vec::new() })
    }

    pub(super) fn size(&mut self, file: u32) -> io::Result<u64> {
        self.finish()?;
        let rows =
            self.session.run("length", &[Value::Int(self.queue), Value::Int(file.into())]).map_err(failed)?;
        let length = rows.first().and_then(|row| u64::try_from(number(row, 0)?).ok());
        let length = length.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "there is no such file"))?;
        self.length = Some((file, length));
        Ok(length)
    }

    /// As [`Storage::read`](crate::binlog::storage::Storage::read), but as many bytes as there are.
    pub(super) fn read(&mut self, file: u32, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let length = match self.length {
            Some((known, length)) if known == file => length,
            _ => self.size(file)?,
        };
        let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = bytes.len().min(left);
        self.seek(file, offset)?;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let piece = self.piece_at(at)?;
            let rest = &mut bytes[done..wanted];
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
        Ok(wanted)
    }

    /// Has the rows of `file` from `offset` on come, if they do not come yet.
    fn seek(&mut self, file: u32, offset: u64) -> io::Result<()> {
        if self.stream.as_ref().is_some_and(|stream| stream.file == file && stream.floor <= offset) {
            return Ok(());
        }
        self.finish()?;
        let start = i64::try_from(offset).unwrap_or(i64::MAX);
        let values = [Value::Int(self.queue), Value::Int(file.into()), Value::Int(start)];
        self.session.add("read", &values, true).map_err(failed)?;
        self.session.end();
        self.session.flush().map_err(failed)?;
        self.stream = Some(RowStream { file, floor: offset, row: None, is_over: false });
        Ok(())
    }

    /// The first piece that ends behind `at`; `None` if none does.
    fn piece_at(&mut self, at: u64) -> io::Result<Option<&Piece>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        while !stream.is_over && stream.row.as_ref().is_none_or(|row| row.end() <= at) {
            self.session.extend();
            if let Some(row) = &stream.row {
                stream.floor = row.end();
            }
            stream.row = match self.session.next_row().map_err(failed)? {
                None => {
                    stream.is_over = true;
                    None
                }
                Some(mut row) => {
                    let bytes = row.get_mut(1).and_then(Option::take).unwrap_or_default();
                    let start =
                        row.first().and_then(Option::as_deref).and_then(|start| start.try_into().ok());
                    let start = start.map_or(0, u64::from_be_bytes);
                    Some(Piece { start, bytes })
                }
            };
        }
        Ok(stream.row.as_ref())
    }

    /// Takes what still comes of the last file.
    fn finish(&mut self) -> io::Result<()> {
        if let Some(stream) = self.stream.take().filter(|stream| !stream.is_over) {
            drop(stream);
            while self.session.next_row().map_err(failed)?.is_some() {
                self.session.extend();
            }
        }
        Ok(())
    }

    /// Copies the end of a file to the table of what was lost.
    pub(super) fn keep_tail(&mut self, file: u32, offset: u64) -> io::Result<u64> {
        self.finish()?;
        let start = i64::try_from(offset).unwrap_or(i64::MAX);
        let values = [Value::Int(self.queue), Value::Int(file.into()), Value::Int(start)];
        let rows = self.session.run("keep_tail", &values).map_err(failed)?;
        Ok(rows.first().and_then(|row| u64::try_from(number(row, 0)?).ok()).unwrap_or(0))
    }

    /// Takes a file out of the log, and keeps its rows.
    pub(super) fn set_aside(&mut self, file: u32) -> io::Result<()> {
        self.keep_tail(file, 0)?;
        let values = [Value::Int(self.queue), Value::Int(file.into())];
        let rows = self.session.run("drop_file", &values).map_err(failed)?;
        if rows.is_empty() {
            return Err(io::Error::new(ErrorKind::NotFound, "there is no such file"));
        }
        Ok(())
    }
}
