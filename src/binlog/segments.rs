//! Which job stands in which file, and what each file holds.
//!
//! Owns: the files of the log that have been written, in order; for each job the file of its full record;
//! the count of live bytes. Never touches a disk. Driven by the replay, then by the writer.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::format::SHORT_BYTES;
use crate::id_map::IdMap;
use crate::job::JobId;

/// Set in [`Location::file`] when the job's newest state stands in a short record.
const UPDATED: u32 = 1 << 31;
/// No job: ids begin at 1.
const NONE: u64 = 0;

/// Where a job's full record stands: 24 bytes a job.
#[derive(Clone, Copy, Debug)]
struct Location {
    /// The jobs before and after it in the list of its file.
    previous: u64,
    next: u64,
    /// The file's index plus one, and [`UPDATED`].
    file: NonZeroU32,
    /// Length of the full record.
    bytes: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Option<Location>>() == 24, "every job has a location");

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

/// A file that is or was being written.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its index: `binlog.N`.
    pub index: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// Jobs whose full record stands in it.
    pub jobs: u64,
    first: u64,
    last: u64,
}

/// The files of the log, oldest first; the last is the one being written.
#[derive(Debug, Default)]
pub struct Segments {
    files: VecDeque<Segment>,
    locations: IdMap<Location>,
    /// The largest id ever placed.
    newest: u64,
    live_bytes: u64,
    /// Sum of the lengths of all jobs' full records.
    full_bytes: u64,
    /// Sum of the lengths of all files but the last.
    closed_bytes: u64,
}

impl Segments {
    /// Adds a file after all others.
    pub fn push(&mut self, index: u32, bytes: u64) {
        debug_assert!(self.files.back().is_none_or(|last| last.index < index));
        self.closed_bytes += self.files.back().map_or(0, |last| last.bytes);
        self.files.push_back(Segment { index, bytes, jobs: 0, first: NONE, last: NONE });
    }

    /// The oldest file, unless it is the one being written.
    #[must_use]
    pub fn oldest_closed(&self) -> Option<&Segment> {
        if self.files.len() > 1 { self.files.front() } else { None }
    }

    /// Removes the oldest file, in which no job is left.
    pub fn pop_oldest(&mut self) {
        if let Some(oldest) = self.files.pop_front() {
            debug_assert_eq!(oldest.jobs, 0);
            self.closed_bytes -= oldest.bytes;
        }
    }

    /// Forgets file `index`, if it is there and no job stands in it.
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

    /// How many jobs' full records stand in file `index`.
    #[must_use]
    pub fn jobs_in(&self, index: u32) -> u64 {
        self.position(index).map_or(0, |at| self.files[at].jobs)
    }

    /// The closed files, oldest first.
    pub fn closed(&self) -> impl Iterator<Item = &Segment> {
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
        self.files.front().map_or(0, |segment| segment.index)
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

    /// Length of all files but the one being written.
    #[must_use]
    pub fn closed_bytes(&self) -> u64 {
        self.closed_bytes
    }

    /// Bytes that the newest state of all jobs takes, with the room for their deletes.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes that the log would have if each job stood in it once.
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
    pub fn emptied(&self) -> impl Iterator<Item = &Segment> {
        self.closed().take_while(|segment| segment.jobs == 0)
    }

    /// The job whose record has stood longest in the oldest file with a job, unless that file is being
    /// written.
    #[must_use]
    pub fn first_to_migrate(&self) -> Option<JobId> {
        self.closed().find(|segment| segment.jobs > 0).map(|segment| JobId(segment.first))
    }

    /// Notes that the job's full record, `bytes` long, was written to file `index`.
    pub fn place(&mut self, id: JobId, index: u32, bytes: u64) {
        // Jobs usually come in the order of their ids, and a newer one than all cannot be there.
        if id.0 <= self.newest {
            self.remove(id);
        }
        self.newest = self.newest.max(id.0);
        let Some(at) = self.position(index) else { return };
        let segment = &mut self.files[at];
        let location = Location {
            previous: segment.last,
            next: NONE,
            file: NonZeroU32::MIN.saturating_add(index),
            // A body size is an i32 and a name has 200 bytes, so the sum is less than 2^32.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        segment.jobs += 1;
        let before = std::mem::replace(&mut segment.last, id.0);
        if before == NONE {
            segment.first = id.0;
        } else if let Some(neighbour) = self.locations.get_mut(JobId(before)) {
            neighbour.next = id.0;
        }
        self.live_bytes += location.live_bytes();
        self.full_bytes += u64::from(location.bytes);
        self.locations.insert(id, location);
    }

    /// Notes that the job's newest state stands in a short record.
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
        if let Some(neighbour) = self.locations.get_mut(JobId(location.previous)) {
            neighbour.next = location.next;
        }
        if let Some(neighbour) = self.locations.get_mut(JobId(location.next)) {
            neighbour.previous = location.previous;
        }
        if let Some(at) = self.position(location.index()) {
            let segment = &mut self.files[at];
            segment.jobs -= 1;
            if segment.first == id.0 {
                segment.first = location.next;
            }
            if segment.last == id.0 {
                segment.last = location.previous;
            }
        }
        true
    }

    /// Where file `index` stands among the files.
    fn position(&self, index: u32) -> Option<usize> {
        let last = self.files.len().checked_sub(1)?;
        if self.files[last].index == index {
            return Some(last);
        }
        self.files.binary_search_by_key(&index, |segment| segment.index).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_a_file_keeps_the_order_of_its_records() {
        let mut segments = Segments::default();
        segments.push(1, 4096);
        for id in 1..=5 {
            segments.place(JobId(id), 1, 100);
        }
        segments.push(4, 4096);
        assert_eq!(segments.live_bytes(), 5 * 184);
        segments.update(JobId(3));
        segments.update(JobId(3));
        assert_eq!(segments.live_bytes(), 5 * 184 + 84);
        assert!(segments.remove(JobId(2)));
        assert!(!segments.remove(JobId(2)));
        for expected in [1, 3, 4, 5] {
            let id = segments.first_to_migrate().unwrap();
            assert_eq!(id, JobId(expected));
            segments.place(id, 4, 100);
            assert_eq!(segments.file_of(id), Some(4));
        }
        assert_eq!(segments.first_to_migrate(), None);
        assert_eq!(segments.live_bytes(), 4 * 184);
        segments.pop_oldest();
        assert_eq!((segments.oldest_index(), segments.closed_bytes(), segments.count()), (4, 0, 1));
        for id in [5, 1, 4, 3] {
            assert!(segments.remove(JobId(id)));
        }
        assert_eq!((segments.live_bytes(), segments.job_count()), (0, 0));
    }
}
