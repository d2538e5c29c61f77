//! A long list of names or jobs, in pieces that all replies with this list share.
//!
//! Owns: the YAML of the list, cut into pieces. The list is never copied for a client and never in one piece, because a
//! hundred thousand names take twenty megabytes. The server adds the names, a few at a time.

use std::collections::TryReserveError;
use std::mem;
use std::rc::Weak;

use crate::job::{Body, SHARED_FROM_BYTES};

/// The size of a piece: large enough that a list has few pieces, small enough that the allocator finds memory for one.
const PIECE_BYTES: usize = 64 * 1024;

/// The first line of every list.
const HEAD: &[u8] = b"---\n";
/// The bytes around a name.
const AROUND_NAME_BYTES: usize = b"- \n".len();

/// Lists shorter than this are one piece that is copied into each reply.
pub const SHORT_LIST_BYTES: usize = SHARED_FROM_BYTES;

/// The length of a list of `names` names with `name_bytes` bytes in total, in bytes.
#[must_use]
pub fn list_bytes(names: usize, name_bytes: usize) -> usize {
    HEAD.len() + names * AROUND_NAME_BYTES + name_bytes
}

/// A list of names, one `- name` a line.
#[derive(Debug, PartialEq, Eq)]
pub struct List {
    pieces: Vec<Body>,
    bytes: usize,
}

impl List {
    /// Its length in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Body] {
        &self.pieces
    }

    /// Whether a reply still holds a piece of the list. The last piece is the last one to be sent.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let last = self.pieces.iter().rev().find_map(Body::watch);
        last.is_some_and(|piece| piece.strong_count() > 1)
    }

    /// The shared pieces with their lengths. Each weak reference shows how long replies hold the piece.
    pub fn watch(&self) -> impl Iterator<Item = (Weak<Vec<u8>>, usize)> {
        self.pieces.iter().filter_map(|piece| Some((piece.watch()?, piece.len())))
    }
}

/// A list that is being written.
#[derive(Debug)]
pub struct ListWriter {
    pieces: Vec<Body>,
    /// The piece that is not full yet.
    open: Vec<u8>,
    bytes: usize,
}

impl ListWriter {
    /// An empty list with an expected length of `expected` bytes.
    ///
    /// # Errors
    /// If the allocator has no memory. This holds for all methods; after an error, drop the list.
    pub fn new(expected: usize) -> Result<Self, TryReserveError> {
        let mut pieces = Vec::new();
        pieces.try_reserve_exact(expected / PIECE_BYTES + 1)?;
        let mut open = Vec::new();
        open.try_reserve_exact(expected.clamp(HEAD.len(), PIECE_BYTES))?;
        open.extend_from_slice(HEAD);
        Ok(Self { pieces, open, bytes: HEAD.len() })
    }

    /// Adds a name.
    ///
    /// # Errors
    /// As `new`.
    pub fn push(&mut self, name: &str) -> Result<(), TryReserveError> {
        self.make_room(name.len() + AROUND_NAME_BYTES)?;
        self.open.extend_from_slice(b"- ");
        self.open.extend_from_slice(name.as_bytes());
        self.open.push(b'\n');
        Ok(())
    }

    /// Adds whole lines of YAML, 64 KiB at most.
    ///
    /// # Errors
    /// As `new`.
    pub fn push_lines(&mut self, lines: &str) -> Result<(), TryReserveError> {
        self.make_room(lines.len())?;
        self.open.extend_from_slice(lines.as_bytes());
        Ok(())
    }

    /// Makes sure that the open piece has room for the `bytes` bytes that are added next.
    fn make_room(&mut self, bytes: usize) -> Result<(), TryReserveError> {
        if self.open.len() + bytes > PIECE_BYTES {
            self.close_piece()?;
            self.open.try_reserve_exact(PIECE_BYTES)?;
        } else {
            self.open.try_reserve(bytes)?;
        }
        self.bytes += bytes;
        Ok(())
    }

    fn close_piece(&mut self) -> Result<(), TryReserveError> {
        self.pieces.try_reserve(1)?;
        self.pieces.push(Body::from(mem::take(&mut self.open)));
        Ok(())
    }

    /// The memory that the list takes so far, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.pieces.len() * PIECE_BYTES + self.open.capacity()
    }

    /// The whole list.
    ///
    /// # Errors
    /// As `new`.
    pub fn finish(mut self) -> Result<List, TryReserveError> {
        // The last piece is seldom full, so it is copied into a piece of the right size.
        let mut last = Vec::new();
        last.try_reserve_exact(self.open.len())?;
        last.extend_from_slice(&self.open);
        self.open = last;
        self.close_piece()?;
        Ok(List { pieces: self.pieces, bytes: self.bytes })
    }
}
