//! The files of the log: the jobs in each file, and its live bytes.
//!
//! Owns: the files of the log to which records were appended, in order; for each job the file of its full record, for
//! each cooldown the file of its markers; the count of live bytes. It knows indexes and lengths, but no bytes. Driven
//! by the replay, then by the open log.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use beanstalkd_structures::IdMap;

use super::MAX_INDEX;
use super::chunked_queue::ChunkedQueue;
use super::format::{MAX_JOB_ID, SHORT_BYTES};
use super::item::{Item, Newest, PackedFile, PackedItem};
use crate::assertions::in_debug;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::JobId;

/// The maximum length of a file in a description: the sum of many lengths must not overflow.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 40;
/// The largest id in a description. No server has ids in the upper half, and sums with an id must not overflow.
const MAX_DESCRIBED_ID: u64 = MAX_JOB_ID / 2;
/// How many ids of jobs that have left the file are skipped at a time: this takes some microseconds.
const PASSED_AT_ONCE: usize = 1024;

/// The location of a job's full record, or of a cooldown: 8 bytes a job.
#[derive(Clone, Copy, Debug)]
struct Location {
    file: PackedFile,
    /// Length of the full record and its tags, or of the cooldown.
    bytes: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Option<Location>>() == 8, "every job has a location");

impl Location {
    fn index(self) -> u32 {
        self.file.unpack().0
    }

    /// The bytes of the log that a job needs: its record, the newest state, and room for the delete. A cooldown needs
    /// its markers, and room for the one that ends it.
    fn live_bytes(self) -> u64 {
        let update = match self.file.unpack().1 {
            Newest::Full => 0,
            Newest::Short => SHORT_BYTES,
        };
        u64::from(self.bytes) + update + SHORT_BYTES
    }
}

/// A file to which records are or were appended.
#[derive(Debug)]
pub(crate) struct LogFile {
    /// Index of the file: `binlog.N`.
    pub index: u32,
    pub bytes: u64,
    /// The number of jobs whose full record is in the file, and of cooldowns in it.
    pub live: u64,
    /// The jobs and cooldowns whose records were appended to it, in order. One that leaves the file stays here until it
    /// is skipped: to remove it from the middle would cost more than the 8 bytes.
    order: ChunkedQueue<PackedItem>,
}

/// The files of the log, oldest first. Records are appended to the last one; the others are closed.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: VecDeque<LogFile>,
    locations: Locations,
    /// The largest id that was ever added.
    newest: u64,
    live_bytes: u64,
    /// Total length of all jobs' full records and tags, and of all cooldowns.
    full_bytes: u64,
    /// Total length of all files except the last.
    closed_bytes: u64,
    /// The result of [`Files::longest_live`], until a file that counts for it changes.
    longest_live: Cell<Option<u64>>,
}

/// The location of each job and each cooldown.
#[derive(Debug, Default)]
struct Locations {
    jobs: IdMap<Location>,
    cooldowns: IdMap<Location>,
}

impl Locations {
    fn of(&self, item: Item) -> Option<&Location> {
        match item {
            Item::Job(id) => self.jobs.get(id),
            Item::Cooldown(id) => self.cooldowns.get(id),
        }
    }

    /// The locations of items of the same kind.
    fn like(&mut self, item: Item) -> &mut IdMap<Location> {
        match item {
            Item::Job(_) => &mut self.jobs,
            Item::Cooldown(_) => &mut self.cooldowns,
        }
    }

    /// Whether `item` is in file `index`.
    fn has(&self, item: Item, index: u32) -> bool {
        self.of(item).is_some_and(|location| location.index() == index)
    }
}

impl Files {
    /// Adds a file after all others.
    pub(crate) fn push(&mut self, index: u32, bytes: u64) {
        debug_assert!(self.files.back().is_none_or(|last| last.index < index), "the files are in order");
        let before = in_debug(|| self.total_bytes());
        self.closed_bytes += self.files.back().map_or(0, |last| last.bytes);
        self.files.push_back(LogFile { index, bytes, live: 0, order: ChunkedQueue::default() });
        self.longest_live.set(None);
        debug_assert_eq!(self.total_bytes(), before + bytes, "a new file adds its length");
    }

    /// The oldest file, if it is closed.
    #[must_use]
    pub(crate) fn oldest_closed(&self) -> Option<&LogFile> {
        if self.files.len() > 1 { self.files.front() } else { None }
    }

    /// Removes the oldest file, which has no live items.
    pub(crate) fn pop_oldest(&mut self) {
        if let Some(oldest) = self.files.pop_front() {
            debug_assert_eq!(oldest.live, 0, "a file that is removed has no live items");
            debug_assert!(!self.files.is_empty(), "the file that records go to is never removed");
            self.closed_bytes -= oldest.bytes;
        }
    }

    /// Removes file `index`, if it exists and has no live items.
    pub(crate) fn forget_empty(&mut self, index: u32) {
        if let Some(at) = self.position(index)
            && self.files[at].live == 0
        {
            let last = self.files.len() - 1;
            let before = in_debug(|| (self.total_bytes(), self.files[at].bytes));
            self.longest_live.set(None);
            match self.files.remove(at) {
                Some(gone) if at < last => self.closed_bytes -= gone.bytes,
                // The newest file has gone, and the one before it is now the newest and no longer closed.
                _ => self.closed_bytes -= self.files.back().map_or(0, |newest| newest.bytes),
            }
            debug_assert_eq!(
                self.total_bytes() + before.1,
                before.0,
                "a file that is forgotten takes its length"
            );
        }
    }

    /// The memory for the locations of jobs and cooldowns, in bytes.
    #[must_use]
    pub(crate) fn memory_bytes(&self) -> usize {
        // Each is also in the list of its file.
        let Locations { jobs, cooldowns } = &self.locations;
        jobs.bytes() + cooldowns.bytes() + (jobs.len() + cooldowns.len()) * size_of::<PackedItem>()
    }

    /// The number of live jobs and cooldowns in file `index`.
    #[must_use]
    pub(crate) fn live_in(&self, index: u32) -> u64 {
        self.position(index).map_or(0, |at| self.files[at].live)
    }

    /// The jobs that have a full record in the log, by ascending id.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.locations.jobs.iter().map(|(id, _)| id)
    }

    /// The number of cooldowns in the log.
    #[must_use]
    pub(crate) fn cooldown_count(&self) -> usize {
        self.locations.cooldowns.len()
    }

    /// The number of cooldowns in each file that has any. This examines all of them.
    #[must_use]
    pub(crate) fn cooldowns_by_file(&self) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for (_, location) in self.locations.cooldowns.iter() {
            *counts.entry(location.index()).or_default() += 1;
        }
        counts
    }

    /// The file to which records are appended; `None` if there is no file.
    #[must_use]
    pub(crate) fn newest(&self) -> Option<&LogFile> {
        self.files.back()
    }

    /// The closed files, oldest first.
    pub(crate) fn closed(&self) -> impl Iterator<Item = &LogFile> {
        self.files.iter().take(self.files.len().saturating_sub(1))
    }

    /// Notes that a closed file was cut to `bytes`.
    pub(crate) fn shrink(&mut self, index: u32, bytes: u64) {
        if let Some(at) = self.position(index)
            && at + 1 < self.files.len()
        {
            debug_assert!(bytes <= self.files[at].bytes, "a file is cut, and never grows");
            self.closed_bytes -= self.files[at].bytes.saturating_sub(bytes);
            self.files[at].bytes = self.files[at].bytes.min(bytes);
            self.longest_live.set(None);
        }
    }

    /// Index of the oldest file; 0 if there is none.
    #[must_use]
    pub(crate) fn oldest_index(&self) -> u32 {
        self.files.front().map_or(0, |file| file.index)
    }

    /// The number of files.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.files.len()
    }

    /// Length of all files, in bytes.
    #[must_use]
    pub(crate) fn total_bytes(&self) -> u64 {
        self.closed_bytes + self.files.back().map_or(0, |last| last.bytes)
    }

    /// Length of the closed files, in bytes.
    #[must_use]
    pub(crate) fn closed_bytes(&self) -> u64 {
        self.closed_bytes
    }

    /// Bytes of the newest states of all jobs and of all cooldowns, with the room for their deletes.
    #[must_use]
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes that the log would have if it contained each job and each cooldown once.
    #[must_use]
    pub(crate) fn full_bytes(&self) -> u64 {
        self.full_bytes
    }

    /// The number of jobs with a full record in the log.
    #[must_use]
    pub(crate) fn job_count(&self) -> u64 {
        self.locations.jobs.len() as u64
    }

    /// Index of the file that holds the job's full record.
    #[must_use]
    pub(crate) fn file_of(&self, id: JobId) -> Option<u32> {
        self.locations.jobs.get(id).map(|location| location.index())
    }

    /// Length of the item's live record: the job's full record and tags, or the cooldown.
    #[must_use]
    pub(crate) fn record_bytes(&self, item: Item) -> Option<u64> {
        self.locations.of(item).map(|location| u64::from(location.bytes))
    }

    /// The oldest files, as long as they have no live items: they wait only for their removal.
    pub(crate) fn emptied(&self) -> impl Iterator<Item = &LogFile> {
        self.closed().take_while(|file| file.live == 0)
    }

    /// Length of the longest closed file with live items, in bytes. On a full disk the log asks for it with each
    /// record, so the files are examined only after one of them was filled, cut or emptied.
    #[must_use]
    pub(crate) fn longest_live(&self) -> u64 {
        self.longest_live.get().unwrap_or_else(|| {
            let longest = self.find_longest_live();
            self.longest_live.set(Some(longest));
            longest
        })
    }

    fn find_longest_live(&self) -> u64 {
        self.closed().filter(|file| file.live > 0).map(|file| file.bytes).max().unwrap_or(0)
    }

    /// Whether a closed file has a live item.
    #[must_use]
    pub(crate) fn has_live_in_closed(&self) -> bool {
        self.closed().any(|file| file.live > 0)
    }

    /// The item to copy first: the first one in the oldest file with live items, if that file is closed. Also `None` if
    /// [`Files::find_first`] has not found it yet.
    #[must_use]
    pub(crate) fn first_to_migrate(&self) -> Option<Item> {
        let file = self.closed().find(|file| file.live > 0)?;
        file.order.first().map(PackedItem::unpack).filter(|&item| self.locations.has(item, file.index))
    }

    /// Skips items that have left the oldest file. Returns the new result of [`Files::first_to_migrate`]; `None` if
    /// there are more items to skip than one call does.
    pub(crate) fn find_first(&mut self) -> Option<Item> {
        let closed = self.files.len().saturating_sub(1);
        let file = self.files.iter_mut().take(closed).find(|file| file.live > 0)?;
        for _ in 0..PASSED_AT_ONCE {
            let item = file.order.first()?.unpack();
            if self.locations.has(item, file.index) {
                debug_assert!(file.live > 0, "a file with an item has live items");
                return Some(item);
            }
            file.order.pop();
        }
        None
    }

    /// Notes that the full record of the job, or the cooldown, is now in file `index`. Its length is `bytes`, including
    /// the tags of the job. Returns whether the item existed before.
    pub(crate) fn place(&mut self, item: Item, index: u32, bytes: u64) -> bool {
        // Jobs usually come in the order of their ids, and a job newer than all others cannot be there.
        let was_there = item.id().0 <= self.newest && self.remove(item).is_some();
        self.newest = self.newest.max(item.id().0);
        let Some(at) = self.position(index) else { return was_there };
        let location = Location {
            file: PackedFile::pack(index, Newest::Full),
            // The size of a body is an i32, a name has 200 bytes and tags have a limit, so the sum is less than 2^32.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        if self.files[at].live == 0 && at + 1 < self.files.len() {
            self.longest_live.set(None);
        }
        let file = &mut self.files[at];
        file.live += 1;
        file.order.push(PackedItem::pack(item));
        self.live_bytes += location.live_bytes();
        self.full_bytes += u64::from(location.bytes);
        let replaced = self.locations.like(item).insert(item.id(), location);
        debug_assert!(replaced.is_none(), "{item:?}: an item is removed before it is placed again");
        was_there
    }

    /// Notes that the job's newest state is in a short record.
    pub(crate) fn update(&mut self, id: JobId) {
        if let Some(location) = self.locations.jobs.get_mut(id)
            && let (index, Newest::Full) = location.file.unpack()
        {
            location.file = PackedFile::pack(index, Newest::Short);
            debug_assert_eq!(location.index(), index, "a short record leaves the full one in its file");
            self.live_bytes += SHORT_BYTES;
        }
    }

    /// Removes the job or the cooldown. Returns the length of its live record, if it existed.
    pub(crate) fn remove(&mut self, item: Item) -> Option<u64> {
        let location = self.locations.like(item).remove(item.id())?;
        self.live_bytes -= location.live_bytes();
        self.full_bytes -= u64::from(location.bytes);
        if let Some(at) = self.position(location.index()) {
            let file = &mut self.files[at];
            debug_assert!(file.live > 0, "{item:?}: a file with an item has live items");
            file.live -= 1;
            if file.live == 0 {
                file.order = ChunkedQueue::default();
                if at + 1 < self.files.len() {
                    self.longest_live.set(None);
                }
            }
        }
        Some(location.bytes.into())
    }

    /// Asserts every invariant; the cost grows with the number of jobs.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline]
    pub(crate) fn check_invariants(&self) {
        let (mut live, mut live_bytes, mut full_bytes) = (0, 0, 0);
        for file in &self.files {
            let items: BTreeSet<Item> = file.order.iter().map(PackedItem::unpack).collect();
            let mut count = 0;
            for item in items {
                if let Some(location) =
                    self.locations.of(item).filter(|_| self.locations.has(item, file.index))
                {
                    live_bytes += location.live_bytes();
                    full_bytes += u64::from(location.bytes);
                    count += 1;
                }
            }
            assert_eq!(count, file.live, "the list of a file has its live items");
            live += count;
        }
        let expected = self.job_count() + self.cooldown_count() as u64;
        assert_eq!(live, expected, "each job and each cooldown is in exactly one list");
        assert_eq!(
            (live_bytes, full_bytes),
            (self.live_bytes, self.full_bytes),
            "the sums are those of the jobs"
        );
        assert_eq!(self.closed_bytes, self.closed().map(|file| file.bytes).sum::<u64>());
        assert!(
            self.longest_live.get().is_none_or(|longest| longest == self.find_longest_live()),
            "the longest file is known, or must be found"
        );
        assert!(self.files.iter().is_sorted_by(|a, b| a.index < b.index), "the files are in order");
    }

    /// The position of file `index` among the files.
    fn position(&self, index: u32) -> Option<usize> {
        let last = self.files.len().checked_sub(1)?;
        if self.files[last].index == index {
            return Some(last);
        }
        self.files.binary_search_by_key(&index, |file| file.index).ok()
    }
}

/// Each file has its list, in which items that have left the file have the length 0.
impl Described for Files {
    fn describe(&self, out: &mut Writer<'_>) {
        // The sums follow from the lists.
        let Self {
            files,
            locations,
            newest: _,
            live_bytes: _,
            full_bytes: _,
            closed_bytes: _,
            longest_live: _,
        } = self;
        out.count(files.len());
        for LogFile { index, bytes, live: _, order } in files {
            (*index, *bytes).describe(out);
            out.count(order.len());
            for packed in order.iter() {
                let location =
                    locations.of(packed.unpack()).map(|location| (location.bytes, location.file.unpack()));
                let (bytes, newest) = match location {
                    Some((bytes, (file, newest))) if file == *index => (bytes, newest),
                    Some(_) | None => (0, Newest::Full),
                };
                (packed.0, (bytes, newest == Newest::Short)).describe(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut files = Self::default();
        for _ in 0..from.count()? {
            let (index, bytes): (u32, u64) = from.value()?;
            let is_next = files.newest().is_none_or(|newest| newest.index < index);
            if !is_next || index > MAX_INDEX || bytes > MAX_FILE_BYTES {
                return Err(Malformed("a file of the log"));
            }
            files.push(index, bytes);
            for _ in 0..from.count()? {
                let (packed, (bytes, is_short)): (u64, (u32, bool)) = from.value()?;
                let item = PackedItem(packed).unpack();
                if bytes == 0 {
                    continue;
                }
                if item.id().0 > MAX_DESCRIBED_ID || matches!(item, Item::Cooldown(_)) && is_short {
                    return Err(Malformed("a record of the log"));
                }
                files.place(item, index, bytes.into());
                if is_short {
                    files.update(item.id());
                }
            }
        }
        Ok(files)
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
            files.place(Item::Job(JobId(id)), 1, 100);
        }
        files.push(4, 4096);
        assert_eq!(files.live_bytes(), 5 * 184);
        files.update(JobId(3));
        files.update(JobId(3));
        assert_eq!(files.live_bytes(), 5 * 184 + 84);
        assert!(files.remove(Item::Job(JobId(2))).is_some());
        assert!(files.remove(Item::Job(JobId(2))).is_none());
        for expected in [1, 3, 4, 5] {
            let id = files.find_first().unwrap();
            assert_eq!(files.first_to_migrate(), Some(id));
            assert_eq!(id, Item::Job(JobId(expected)));
            files.place(Item::Job(JobId(expected)), 4, 100);
            assert_eq!(files.file_of(JobId(expected)), Some(4));
        }
        assert_eq!((files.find_first(), files.has_live_in_closed()), (None, false));
        files.check_invariants();
        assert_eq!(files.live_bytes(), 4 * 184);
        files.pop_oldest();
        assert_eq!((files.oldest_index(), files.closed_bytes(), files.count()), (4, 0, 1));
        for id in [5, 1, 4, 3] {
            assert!(files.remove(Item::Job(JobId(id))).is_some());
        }
        assert_eq!((files.live_bytes(), files.job_count()), (0, 0));
    }

    #[test]
    fn the_longest_closed_file_with_a_job_is_found_again_after_each_change() {
        let mut files = Files::default();
        let mut expect = |longest, change: &dyn Fn(&mut Files) -> bool| {
            change(&mut files);
            assert_eq!(files.longest_live(), longest);
            files.check_invariants();
        };
        let item = |id| Item::Job(JobId(id));
        expect(0, &|files| (files.push(1, 8000), files.place(item(1), 1, 100)).1);
        expect(8000, &|files| (files.push(2, 9000), files.place(item(2), 2, 100)).1);
        expect(9000, &|files| (files.push(3, 4096), files.place(item(3), 3, 100)).1);
        expect(8000, &|files| (files.shrink(2, 5000), true).1);
        expect(5000, &|files| files.place(item(1), 3, 100));
        expect(0, &|files| files.remove(item(2)).is_some());
    }

    #[test]
    fn jobs_that_are_gone_are_passed_over_a_thousand_at_a_time() {
        const JOBS: u64 = 3 * PASSED_AT_ONCE as u64 + 2;
        let mut files = Files::default();
        files.push(1, 4096);
        for id in 1..=JOBS {
            files.place(Item::Job(JobId(id)), 1, 100);
        }
        files.push(2, 4096);
        for id in (1..JOBS).rev() {
            assert!(files.remove(Item::Job(JobId(id))).is_some());
        }
        files.check_invariants();
        let calls = (1..10).find(|_| files.find_first() == Some(Item::Job(JobId(JOBS))));
        assert_eq!(calls, Some(4), "the last job is found, and not at once");
        assert_eq!(files.first_to_migrate(), Some(Item::Job(JobId(JOBS))));
        files.check_invariants();
    }

    #[test]
    fn a_cooldown_keeps_its_file_like_a_job_and_beside_a_job_of_the_same_id() {
        let mut files = Files::default();
        files.push(1, 4096);
        files.place(Item::Job(JobId(7)), 1, 100);
        files.place(Item::Cooldown(JobId(7)), 1, 84);
        files.place(Item::Cooldown(JobId(3)), 1, 84);
        files.place(Item::Job(JobId(8)), 1, 100);
        files.push(2, 4096);
        files.check_invariants();
        assert_eq!((files.live_bytes(), files.full_bytes(), files.job_count()), (2 * 184 + 2 * 168, 368, 2));
        assert_eq!((files.live_in(1), files.cooldowns_by_file()), (4, BTreeMap::from([(1, 2)])));
        assert!(files.remove(Item::Job(JobId(7))).is_some());
        assert_eq!(files.find_first(), Some(Item::Cooldown(JobId(7))));
        files.place(Item::Cooldown(JobId(7)), 2, 84);
        assert_eq!(files.find_first(), Some(Item::Cooldown(JobId(3))));
        files.remove(Item::Cooldown(JobId(3)));
        files.remove(Item::Cooldown(JobId(3)));
        assert_eq!(files.find_first(), Some(Item::Job(JobId(8))));
        assert!(files.remove(Item::Job(JobId(8))).is_some());
        files.check_invariants();
        assert!(!files.has_live_in_closed());
        assert_eq!((files.live_in(2), files.live_bytes()), (1, 168));
        assert_eq!(files.cooldowns_by_file(), BTreeMap::from([(2, 1)]));
    }
}
