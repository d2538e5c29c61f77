//! Removed files that still have rows.
//!
//! Owns: which files, and how many of their rows the next transactions delete. Pure. Driven by the helper.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

/// Rows of removed files that are deleted for each row that is added.
const PURGED_PER_ROW: usize = 2;
/// The fewest rows that are deleted at a time, because a statement costs more than a row.
const MIN_PURGED: usize = 64;
/// Rows of removed files that are deleted at a time while there is nothing else to do.
const PURGED_IDLE: usize = 2000;

/// There is nothing else to do after this time without a commit.
const IDLE_AFTER: Duration = Duration::from_millis(100);

/// The files, and what is to be deleted of them.
#[derive(Debug)]
pub(super) struct Purges {
    files: VecDeque<u32>,
    /// When the last commit ended that did something else.
    idle_since: Instant,
    /// Rows that are to be deleted.
    rows: usize,
}

impl Purges {
    /// These files were removed before.
    pub(super) fn new(removed: Vec<u32>, now: Instant) -> Self {
        Self { files: removed.into(), idle_since: now, rows: 0 }
    }

    /// How long to wait until rows are deleted without another reason for a transaction; `None` if no removed file has
    /// rows.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        let idle = now.saturating_duration_since(self.idle_since);
        (!self.files.is_empty()).then(|| IDLE_AFTER.saturating_sub(idle))
    }

    /// A commit has ended that did something else.
    pub(super) fn note_commit(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// File `file` was removed.
    pub(super) fn add(&mut self, file: u32) {
        self.files.push_back(file);
    }

    /// File `file` was made again.
    pub(super) fn cancel(&mut self, file: u32) {
        self.files.retain(|&purged| purged != file);
    }

    /// A transaction begins, again perhaps, that adds `rows` rows.
    pub(super) fn begin(&mut self, rows: usize) {
        self.rows = self.rows.min(MIN_PURGED) + PURGED_PER_ROW * rows;
    }

    /// A transaction begins that does nothing else.
    pub(super) fn begin_idle(&mut self) {
        self.rows = PURGED_IDLE;
    }

    /// The file and the number of its rows that the transaction deletes.
    pub(super) fn next(&self) -> Option<(u32, usize)> {
        self.files.front().map(|&file| (file, self.rows)).filter(|_| self.rows >= MIN_PURGED)
    }

    /// The transaction has deleted what [`Purges::next`] has said. Returns how many rows these were at most.
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
    fn rows_are_deleted_as_rows_are_added_and_many_when_there_is_nothing_else() {
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
