//! Which job is in which file, and what each file holds.
//!
//! Owns: the files of the log to which records were appended, in order; for each job the file of its full record;
//! the count of live bytes. It knows indexes and lengths, and no bytes. Driven by the replay, then by the open log.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;

use super::format::SHORT_BYTES;
use super::id_queue::IdQueue;
use crate::id_map::IdMap;
use crate::job::JobId;

/// Set in [`Location::file`] if the job's newest state is in a short record.
const UPDATED: u32 = 1 << 31;
/// So many ids of jobs that are in the file no more are passed over at a time, which takes some microseconds.
const PASSED_AT_ONCE: usize = 1024;

/// Where a job's full record is: 8 bytes a job.
#[derive(Clone, Copy, Debug)]
struct Location {
    /// The file's index plus one, and [`UPDATED`].
    file: NonZeroU32,
    /// Length of the full record.
    bytes: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Option<Location>>() == 8, "every job has a location");

impl Location {
    fn index(self) -> u32 {
        (self.file.get() & !UPDATED) - 1
    }

    /// What the job keeps of the log: its record, the newest state, and room for the delete.
    fn live_bytes(self) -> u64 {
        let update = if self.file.get() & UPDATED == 0 { 0 } else { SHORT_BYTES };
        u64::from(self.bytes) + update + SHORT_BYTES
    }
}

/// A file to which records are or were appended.
#[derive(Debug)]
pub struct LogFile {
    /// Its index: `binlog.N`.
    pub index: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// Jobs whose full record is in it.
    pub jobs: u64,
    /// The jobs whose full records were appended to it, in this order. A job that leaves the file stays here until it is
    /// passed over: to take it out of the middle would cost more than the 8 bytes.
    order: IdQueue,
}

/// The files of the log, oldest first. Records are appended to the last one; the others are closed.
#[derive(Debug, Default)]
pub struct Files {
    files: VecDeque<LogFile>,
    locations: IdMap<Location>,
    /// The largest id ever placed.
    newest: u64,
    live_bytes: u64,
    /// Sum of the lengths of all jobs' full records.
    full_bytes: u64,
    /// Sum of the lengths of all files but the last.
    closed_bytes: u64,
}

impl Files {
    /// Adds a file after all others.
    pub fn push(&mut self, index: u32, bytes: u64) {
        debug_assert!(self.files.back().is_none_or(|last| last.index < index));
        self.closed_bytes += self.files.back().map_or(0, |last| last.bytes);
        self.files.push_back(LogFile { index, bytes, jobs: 0, order: IdQueue::default() });
    }

    /// The oldest file, if it is closed.
    #[must_use]
    pub fn oldest_closed(&self) -> Option<&LogFile> {
        if self.files.len() > 1 { self.files.front() } else { None }
    }

    /// Removes the oldest file, in which no job is left.
    pub fn pop_oldest(&mut self) {
        if let Some(oldest) = self.files.pop_front() {
            debug_assert_eq!(oldest.jobs, 0);
            self.closed_bytes -= oldest.bytes;
        }
    }

    /// Forgets file `index`, if it is there and no job is in it.
    pub fn forget_empty(&mut self, index: u32) {
        if let Some(at) = self.position(index)
            && self.files[at].jobs == 0
        {
            let last = self.files.len() - 1;
            match self.files.remove(at) {
                Some(gone) if at < last => self.closed_bytes -= gone.bytes,
                _ => self.closed_bytes -= self.files.back().map_or(0, |last| last.bytes),
            }
        }
    }

    /// How many jobs' full records are in file `index`.
    #[must_use]
    pub fn jobs_in(&self, index: u32) -> u64 {
        self.position(index).map_or(0, |at| self.files[at].jobs)
    }

    /// The file to which records are appended; `None` if there is no file.
    #[must_use]
    pub fn newest(&self) -> Option<&LogFile> {
        self.files.back()
    }

    /// The closed files, oldest first.
    pub fn closed(&self) -> impl Iterator<Item = &LogFile> {
        self.files.iter().take(self.files.len().saturating_sub(1))
    }

    /// Notes that a closed file was cut to `bytes`.
    pub fn shrink(&mut self, index: u32, bytes: u64) {
        if let Some(at) = self.position(index)
            && at + 1 < self.files.len()
        {
            self.closed_bytes -= self.files[at].bytes.saturating_sub(bytes);
            self.files[at].bytes = self.files[at].bytes.min(bytes);
        }
    }

    /// Index of the oldest file; 0 if there is none.
    #[must_use]
    pub fn oldest_index(&self) -> u32 {
        self.files.front().map_or(0, |file| file.index)
    }

    /// How many files.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Length of all files, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.closed_bytes + self.files.back().map_or(0, |last| last.bytes)
    }

    /// Length of the closed files, in bytes.
    #[must_use]
    pub fn closed_bytes(&self) -> u64 {
        self.closed_bytes
    }

    /// Bytes that the newest state of all jobs takes, with the room for their deletes.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes that the log would have if it had each job once.
    #[must_use]
    pub fn full_bytes(&self) -> u64 {
        self.full_bytes
    }

    /// How many jobs have a full record in the log.
    #[must_use]
    pub fn job_count(&self) -> u64 {
        self.locations.len() as u64
    }

    /// Index of the file that holds the job's full record.
    #[must_use]
    pub fn file_of(&self, id: JobId) -> Option<u32> {
        self.locations.get(id).map(|location| location.index())
    }

    /// Length of the job's full record.
    #[must_use]
    pub fn record_bytes(&self, id: JobId) -> Option<u64> {
        self.locations.get(id).map(|location| u64::from(location.bytes))
    }

    /// The oldest files, in which no job is left: they only wait for their removal.
    pub fn emptied(&self) -> impl Iterator<Item = &LogFile> {
        self.closed().take_while(|file| file.jobs == 0)
    }

    /// Whether a closed file has a job.
    #[must_use]
    pub fn has_jobs_in_closed(&self) -> bool {
        self.closed().any(|file| file.jobs > 0)
    }

    /// The job to be copied first: the first one in the oldest file with a job, if that file is closed. `None` also if
    /// [`Files::find_first`] has not found it yet.
    #[must_use]
    pub fn first_to_migrate(&self) -> Option<JobId> {
        let file = self.closed().find(|file| file.jobs > 0)?;
        file.order.first().filter(|&id| self.file_of(id) == Some(file.index))
    }

    /// Passes over the jobs that are not in the oldest file any more. Returns what [`Files::first_to_migrate`] says then;
    /// `None` if there is more to pass over than is done at once.
    pub fn find_first(&mut self) -> Option<JobId> {
        let closed = self.files.len().saturating_sub(1);
        let file = self.files.iter_mut().take(closed).find(|file| file.jobs > 0)?;
        for _ in 0..PASSED_AT_ONCE {
            let id = file.order.first()?;
            if self.locations.get(id).is_some_and(|location| location.index() == file.index) {
                return Some(id);
            }
            file.order.pop();
        }
        None
    }

    /// Notes that the job's full record, `bytes` long, is in file `index` now.
    pub fn place(&mut self, id: JobId, index: u32, bytes: u64) {
        // Jobs usually come in the order of their ids, and a newer one than all cannot be there.
        if id.0 <= self.newest {
            self.remove(id);
        }
        self.newest = self.newest.max(id.0);
        let Some(at) = self.position(index) else { return };
        let file = &mut self.files[at];
        let location = Location {
            file: NonZeroU32::MIN.saturating_add(index),
            // A body size is an i32 and a name has 200 bytes, so the sum is less than 2^32.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        file.jobs += 1;
        file.order.push(id);
        self.live_bytes += location.live_bytes();
        self.full_bytes += u64::from(location.bytes);
        self.locations.insert(id, location);
    }

    /// Notes that the job's newest state is in a short record.
    pub fn update(&mut self, id: JobId) {
        if let Some(location) = self.locations.get_mut(id)
            && location.file.get() & UPDATED == 0
        {
            location.file |= UPDATED;
            self.live_bytes += SHORT_BYTES;
        }
    }

    /// Forgets the job. Returns whether it was there.
    pub fn remove(&mut self, id: JobId) -> bool {
        let Some(location) = self.locations.remove(id) else { return false };
        self.live_bytes -= location.live_bytes();
        self.full_bytes -= u64::from(location.bytes);
        if let Some(at) = self.position(location.index()) {
            let file = &mut self.files[at];
            file.jobs -= 1;
            if file.jobs == 0 {
                file.order = IdQueue::default();
            }
        }
        true
    }

    /// Asserts every invariant; the cost grows with the number of jobs.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        let (mut jobs, mut live_bytes, mut full_bytes) = (0, 0, 0);
        for file in &self.files {
            let ids: BTreeSet<JobId> = file.order.iter().collect();
            let mut count = 0;
            for location in ids.into_iter().filter_map(|id| self.locations.get(id)) {
                if location.index() == file.index {
                    live_bytes += location.live_bytes();
                    full_bytes += u64::from(location.bytes);
                    count += 1;
                }
            }
            assert_eq!(count, file.jobs, "a file's list has all its jobs");
            jobs += count;
        }
        assert_eq!(jobs, self.job_count(), "each job is in exactly one list");
        assert_eq!(
            (live_bytes, full_bytes),
            (self.live_bytes, self.full_bytes),
            "the sums are those of the jobs"
        );
        assert_eq!(self.closed_bytes, self.closed().map(|file| file.bytes).sum::<u64>());
        assert!(self.files.iter().is_sorted_by(|a, b| a.index < b.index), "the files are in order");
    }

    /// Where file `index` stands among the files.
    fn position(&self, index: u32) -> Option<usize> {
        let last = self.files.len().checked_sub(1)?;
        if self.files[last].index == index {
            return Some(last);
        }
        self.files.binary_search_by_key(&index, |file| file.index).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_a_file_keeps_the_order_of_its_records() {
        let mut files = Files::default();
        files.push(1, 4096);
        for id in 1..=5 {
            files.place(JobId(id), 1, 100);
        }
        files.push(4, 4096);
        assert_eq!(files.live_bytes(), 5 * 184);
        files.update(JobId(3));
        files.update(JobId(3));
        assert_eq!(files.live_bytes(), 5 * 184 + 84);
        assert!(files.remove(JobId(2)));
        assert!(!files.remove(JobId(2)));
        for expected in [1, 3, 4, 5] {
            let id = files.find_first().unwrap();
            assert_eq!(files.first_to_migrate(), Some(id));
            assert_eq!(id, JobId(expected));
            files.place(id, 4, 100);
            assert_eq!(files.file_of(id), Some(4));
        }
        assert_eq!((files.find_first(), files.has_jobs_in_closed()), (None, false));
        files.check_invariants();
        assert_eq!(files.live_bytes(), 4 * 184);
        files.pop_oldest();
        assert_eq!((files.oldest_index(), files.closed_bytes(), files.count()), (4, 0, 1));
        for id in [5, 1, 4, 3] {
            assert!(files.remove(JobId(id)));
        }
        assert_eq!((files.live_bytes(), files.job_count()), (0, 0));
    }

    #[test]
    fn jobs_that_are_gone_are_passed_over_a_thousand_at_a_time() {
        const JOBS: u64 = 3 * PASSED_AT_ONCE as u64 + 2;
        let mut files = Files::default();
        files.push(1, 4096);
        for id in 1..=JOBS {
            files.place(JobId(id), 1, 100);
        }
        files.push(2, 4096);
        for id in (1..JOBS).rev() {
            assert!(files.remove(JobId(id)));
        }
        files.check_invariants();
        let looks = (1..10).find(|_| files.find_first() == Some(JobId(JOBS)));
        assert_eq!(looks, Some(4), "the last job is found, and not at once");
        assert_eq!(files.first_to_migrate(), Some(JobId(JOBS)));
        files.check_invariants();
    }
}
