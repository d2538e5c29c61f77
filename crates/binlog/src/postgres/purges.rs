//! Removed files that still have rows.
//!
//! Owns: the list of these files, and how many of their rows the next transactions delete. Pure. Driven by the helper.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

/// How many rows of removed files are deleted for each added row.
const PURGED_PER_ROW: usize = 2;
/// The minimum number of rows that are deleted at a time, because a statement costs more than a row.
const MIN_PURGED: usize = 64;
/// How many rows of removed files are deleted at a time while there is no other work.
const PURGED_IDLE: usize = 2000;

/// The time without a commit after which there counts as no other work.
const IDLE_AFTER: Duration = Duration::from_millis(100);

/// The files, and the rows to delete.
#[derive(Debug)]
pub(super) struct Purges {
    files: VecDeque<u32>,
    /// When the last commit with other work ended.
    idle_since: Instant,
    /// The number of rows to delete.
    rows: usize,
}

impl Purges {
    /// Begins with files that were removed earlier.
    pub(super) fn new(removed: Vec<u32>, now: Instant) -> Self {
        Self { files: removed.into(), idle_since: now, rows: 0 }
    }

    /// How long to wait until rows are deleted in a transaction of their own; `None` if no removed file has rows.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        let idle = now.saturating_duration_since(self.idle_since);
        (!self.files.is_empty()).then(|| IDLE_AFTER.saturating_sub(idle))
    }

    /// Notes the end of a commit with other work.
    pub(super) fn note_commit(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// Adds the removed file `file`.
    pub(super) fn add(&mut self, file: u32) {
        self.files.push_back(file);
    }

    /// Takes file `file` out, which was made again.
    pub(super) fn cancel(&mut self, file: u32) {
        self.files.retain(|&purged| purged != file);
    }

    /// Notes that a transaction begins, or begins again, that adds `rows` rows.
    pub(super) fn begin(&mut self, rows: usize) {
        self.rows = self.rows.min(MIN_PURGED) + PURGED_PER_ROW * rows;
    }

    /// Notes that a transaction begins that only deletes rows.
    pub(super) fn begin_idle(&mut self) {
        self.rows = PURGED_IDLE;
    }

    /// The file and the number of its rows that the transaction deletes.
    pub(super) fn next(&self) -> Option<(u32, usize)> {
        self.files.front().map(|&file| (file, self.rows)).filter(|_| self.rows >= MIN_PURGED)
    }

    /// Notes that the transaction has deleted the rows of [`Purges::next`]. Returns their maximum number.
    pub(super) fn finish(&mut self, file_is_gone: bool) -> usize {
        if file_is_gone {
            self.files.pop_front();
        }
        mem::take(&mut self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_rows_are_deleted_as_rows_are_added_and_faster_while_idle() {
        let mut purges = Purges::new(vec![3], Instant::now());
        purges.add(4);
        for _ in 0..31 {
            purges.begin(1);
            assert_eq!(purges.next(), None, "too few for a statement");
        }
        purges.begin(1);
        assert_eq!(purges.next(), Some((3, MIN_PURGED)));
        purges.begin(1);
        assert_eq!(purges.next(), Some((3, MIN_PURGED + PURGED_PER_ROW)), "it was tried again");
        assert_eq!((purges.finish(true), purges.next()), (MIN_PURGED + PURGED_PER_ROW, None));
        purges.begin_idle();
        assert_eq!(purges.next(), Some((4, PURGED_IDLE)));
        purges.cancel(4);
        assert!(purges.pause(Instant::now()).is_none() && purges.next().is_none());
    }
}
