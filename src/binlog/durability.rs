//! What is on the medium and what is not yet.
//!
//! Owns: which syncs are due, asked for and done. Never touches a disk: it says when to ask. Driven by the
//! writer.

use std::collections::VecDeque;

use super::marker::Place;
use super::{Position, SyncPolicy};
use crate::clock::Timestamp;

/// Nanoseconds in a millisecond.
const NS_PER_MS: u64 = 1_000_000;

/// The end of the log at some time: where, and after how many records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Where.
    pub place: Place,
    /// After how many records.
    pub position: Position,
    /// The job id that the markers before it announce: all that are given are smaller.
    pub ids: u64,
}

/// The state of syncing. Syncs are done in the order in which they are asked for, so that what is durable
/// is always a beginning of the log.
#[derive(Debug)]
pub struct Durability {
    policy: SyncPolicy,
    /// All that was handed to the kernel.
    written: Mark,
    /// Asked for, oldest first.
    in_flight: VecDeque<Mark>,
    /// The end of what was asked for.
    requested: Place,
    durable: Mark,
    /// When the first byte was written for which no sync has been asked.
    unsynced_since: Option<Timestamp>,
}

impl Durability {
    /// Nothing written, nothing durable but what lies before `durable`, and that ids below `ids` may be given.
    #[must_use]
    pub fn new(policy: SyncPolicy, durable: Place, ids: u64) -> Self {
        Self {
            policy,
            written: Mark::default(),
            in_flight: VecDeque::new(),
            requested: durable,
            durable: Mark { place: durable, position: Position::default(), ids },
            unsynced_since: None,
        }
    }

    /// The log now ends at `end` for the kernel.
    pub fn wrote(&mut self, end: Mark, now: Timestamp) {
        self.written = end;
        self.unsynced_since.get_or_insert(now);
    }

    /// What lies before this is on the medium.
    #[must_use]
    pub fn durable(&self) -> Mark {
        self.durable
    }

    /// Whether all that lies before `place` may be relied on: it is on the medium, or nobody asked for that.
    #[must_use]
    pub fn is_settled(&self, place: Place) -> bool {
        match self.policy {
            SyncPolicy::Never => self.written.place >= place,
            SyncPolicy::Every(_) | SyncPolicy::EachCommit => self.durable.place >= place,
        }
    }

    /// When the next sync must be asked for; `None` if nothing is unsynced or one is under way.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let since = self.unsynced_since.filter(|_| self.in_flight.is_empty())?;
        match self.policy {
            SyncPolicy::Never => None,
            SyncPolicy::Every(milliseconds) => Some(since + u64::from(milliseconds) * NS_PER_MS),
            SyncPolicy::EachCommit => Some(since),
        }
    }

    /// Asks for a sync of all that was written: where it ends, or `None` if there is nothing to ask for.
    pub fn request(&mut self) -> Option<Place> {
        self.unsynced_since = None;
        if self.policy == SyncPolicy::Never || self.requested == self.written.place {
            return None;
        }
        self.requested = self.written.place;
        self.in_flight.push_back(self.written);
        Some(self.written.place)
    }

    /// The sync asked for at `place` has been done. One that [`Durability::all_synced`] has overtaken says nothing.
    pub fn completed(&mut self, place: Place) {
        while let Some(&mark) = self.in_flight.front().filter(|mark| mark.place <= place) {
            self.in_flight.pop_front();
            self.durable = mark;
        }
    }

    /// All that was written is on the medium: the caller has synced it itself.
    pub fn all_synced(&mut self) {
        self.in_flight.clear();
        self.unsynced_since = None;
        self.requested = self.written.place;
        self.durable = self.written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(offset: u64) -> Mark {
        Mark { place: Place { file: 1, offset }, position: Position(offset / 10), ids: 0 }
    }

    #[test]
    fn the_deadline_counts_from_the_first_unsynced_byte() {
        let mut sync = Durability::new(SyncPolicy::Every(50), Place::default(), 0);
        assert_eq!(sync.deadline(), None);
        sync.wrote(mark(10), Timestamp(1000));
        sync.wrote(mark(20), Timestamp(2000));
        assert_eq!(sync.deadline(), Some(Timestamp(50_001_000)));
        assert_eq!(sync.request(), Some(Place { file: 1, offset: 20 }));
        assert_eq!(sync.request(), None);
        sync.wrote(mark(30), Timestamp(3000));
        assert_eq!(sync.deadline(), None, "one sync at a time");
        sync.completed(mark(20).place);
        assert_eq!(sync.durable(), mark(20));
        assert_eq!(sync.deadline(), Some(Timestamp(50_003_000)));
    }

    #[test]
    fn a_sync_that_was_overtaken_makes_nothing_else_durable() {
        let mut sync = Durability::new(SyncPolicy::EachCommit, Place::default(), 0);
        sync.wrote(mark(10), Timestamp(1));
        let overtaken = sync.request().expect("there is something to sync");
        sync.all_synced();
        sync.wrote(mark(20), Timestamp(2));
        assert_eq!(sync.request(), Some(mark(20).place));
        sync.completed(overtaken);
        assert_eq!(sync.durable(), mark(10));
        sync.completed(mark(20).place);
        assert_eq!(sync.durable(), mark(20));
    }

    #[test]
    fn without_syncing_what_is_written_is_settled() {
        let mut sync = Durability::new(SyncPolicy::Never, Place::default(), 0);
        sync.wrote(mark(10), Timestamp(1000));
        assert_eq!((sync.deadline(), sync.request()), (None, None));
        assert!(sync.is_settled(Place { file: 1, offset: 10 }));
        assert!(!sync.is_settled(Place { file: 1, offset: 11 }));
    }
}
