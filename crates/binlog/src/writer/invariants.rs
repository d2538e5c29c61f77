//! The invariants of the open log between two calls, as one sweep for debug builds and tests.

use super::Binlog;
use super::unlogged::NeededChange;

impl Binlog {
    /// Asserts every invariant, unless the log has ended. The cost grows with the number of jobs.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline]
    pub fn check_invariants(&self) {
        if !self.health.is_serving() {
            return;
        }
        self.contents.files.check_invariants();
        self.ahead.check_invariants(&self.contents.room);
        self.ids.check_invariants();
        self.contents.burials.check_invariants();
        let end = self.appender.end();
        self.durability.check_invariants(end);
        self.compaction.check_invariants(&self.contents.files, end.file);
        let current = self.contents.files.newest().expect("a file is being written");
        assert_eq!(end.file, current.index, "records go to the newest file");
        assert_eq!(
            end.offset,
            self.contents.room.end_in(current.bytes),
            "the appended and the free bytes fill the file"
        );
        assert!(
            self.appender.must_write() || self.appender.is_empty() || self.clock.idle_mark_at.is_some(),
            "a marker that waits for a record is written alone at last"
        );
        self.check_unlogged();
        self.check_side_effects();
    }

    /// Checks that no job has both an unlogged delete and an unlogged update.
    #[inline]
    fn check_unlogged(&self) {
        for change in self.unlogged.needed.iter() {
            let NeededChange::Delete(id) = change else { continue };
            assert!(self.contents.files.file_of(id).is_none(), "a deleted job has no record: {id:?}");
            assert!(!self.unlogged.updates.contains(&id), "a deleted job has no other change: {id:?}");
        }
        for &id in &self.unlogged.updates {
            assert!(self.contents.files.file_of(id).is_some(), "a job that has changed was put: {id:?}");
        }
        for id in self.contents.burials.ids() {
            assert!(self.contents.files.file_of(id).is_some(), "a buried job was put: {id:?}");
        }
    }
}
