//! Durability: which records are on the medium.
//!
//! Owns: which syncs are due, requested and done, and the durable position in the markers. Decides when a sync is due;
//! the store does it. Driven by the writes of the log, by commits, and by the outcomes of syncs. One sync serves all
//! commits before it (group commit).

use std::collections::VecDeque;

use crate::clock::{NS_PER_MS, Timestamp};
use crate::job::JobId;
use crate::{LogPosition, SequenceNumber, SyncPolicy};

/// With [`SyncPolicy::EachCommit`]: how long records for which no reply waits may stay unsynced.
const UNAWAITED_NS: u64 = 50 * NS_PER_MS;
/// With [`SyncPolicy::EachCommit`]: after a sync of at least this time, the next one waits a quarter of it for the
/// clients that are being answered. A faster disk needs no such delay, because the loop needs that long to answer them.
const SLOW_SYNC_US: u64 = 4000;

/// Larger than the id of any job.
const NO_JOB: JobId = JobId(u64::MAX);

/// A point in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogMark {
    pub(super) end: LogPosition,
    /// Number of the last record before it.
    pub(super) sequence: SequenceNumber,
    /// The job id that the markers before it announce: all assigned ids are smaller.
    pub(super) ids: u64,
}

/// The state of syncing. Syncs are done in the order of the requests, so that the durable part is always the beginning
/// of the log.
#[derive(Debug)]
pub(super) struct Durability {
    policy: SyncPolicy,
    /// Everything that was written to the store.
    written: LogMark,
    /// The requested syncs, oldest first, each with the smallest id of a job whose whole record is new in it.
    in_flight: VecDeque<(LogMark, JobId)>,
    /// The smallest id of a job whose whole record is appended and has no requested sync.
    lowest_appended: JobId,
    /// The smallest id of a job whose whole record is appended and not durable.
    lowest_unsynced: JobId,
    /// After a slow sync: until when the next one waits, unless this record is written before.
    commit_delay: Option<(Timestamp, SequenceNumber)>,
    /// The last record for which replies wait.
    awaited: SequenceNumber,
    durable: LogMark,
    /// The end of the turn in which the first byte without a requested sync was written.
    unsynced_since: Option<Timestamp>,
    /// Whether the next commit must request a sync, whatever the policy says about time.
    is_urgent: bool,
    /// The last durable record according to the newest marker.
    marked: SequenceNumber,
    /// Syncs done, and the time that they took in microseconds.
    sync_totals: (u64, u64),
}

impl Durability {
    /// Nothing has been written. Everything before `end` is durable, and the markers in it announce the ids below
    /// `ids`.
    pub(super) fn new(policy: SyncPolicy, end: LogPosition, ids: u64) -> Self {
        Self {
            policy,
            written: LogMark::default(),
            in_flight: VecDeque::new(),
            lowest_appended: NO_JOB,
            lowest_unsynced: NO_JOB,
            commit_delay: None,
            awaited: SequenceNumber::default(),
            durable: LogMark { end, sequence: SequenceNumber::default(), ids },
            unsynced_since: None,
            is_urgent: false,
            marked: SequenceNumber::default(),
            sync_totals: (0, 0),
        }
    }

    /// Resumes after a hand-over: everything written is durable, or need not be.
    pub(super) fn resume(
        policy: SyncPolicy,
        durable: LogMark,
        written: LogMark,
        sync_totals: (u64, u64),
    ) -> Self {
        Self { written, awaited: written.sequence, durable, sync_totals, ..Self::new(policy, durable.end, 0) }
    }

    /// Notes that the store has taken the log up to `mark`.
    pub(super) fn wrote(&mut self, mark: LogMark) {
        debug_assert!(
            self.written.end < mark.end && self.written.sequence <= mark.sequence,
            "a log only grows"
        );
        self.written = mark;
    }

    /// Notes the time of the turn in which the log was written. Replies wait for the records up to `awaited`.
    pub(super) fn end_turn(&mut self, now: Timestamp, awaited: SequenceNumber) {
        self.awaited = awaited;
        if self.is_unsynced() {
            self.unsynced_since.get_or_insert(now);
        }
    }

    /// The end of the requested syncs, or of the durable part if none is in progress.
    fn requested(&self) -> &LogMark {
        self.in_flight.back().map_or(&self.durable, |(mark, _)| mark)
    }

    /// Whether something was written for which no sync has been requested.
    fn is_unsynced(&self) -> bool {
        self.requested().end < self.written.end
    }

    /// Whether everything that was written is on the medium, or need not be, and no sync is in progress.
    pub(super) fn is_settled(&self) -> bool {
        self.in_flight.is_empty() && (self.policy == SyncPolicy::Never || !self.is_unsynced())
    }

    /// Notes that the whole record of a job is appended.
    pub(super) fn append_job(&mut self, id: JobId) {
        self.lowest_appended = self.lowest_appended.min(id);
        self.lowest_unsynced = self.lowest_unsynced.min(id);
    }

    /// Whether the job's full record is known to be durable. Known only below the smallest id whose record is not
    /// durable yet.
    pub(super) fn has_job(&self, id: JobId) -> bool {
        self.policy == SyncPolicy::EachCommit && id < self.lowest_unsynced
    }

    /// The state up to which everything is on the medium.
    pub(super) fn durable(&self) -> LogMark {
        self.durable
    }

    /// Whether everything before `position` is on the medium, or need not be.
    pub(super) fn is_durable_up_to(&self, position: LogPosition) -> bool {
        match self.policy {
            SyncPolicy::Never => self.written.end >= position,
            SyncPolicy::Every(_) | SyncPolicy::EachCommit => self.durable.end >= position,
        }
    }

    /// When the next sync must be requested; `None` if nothing is unsynced. With [`SyncPolicy::EachCommit`], every
    /// commit requests one if it wrote something for which replies wait: the store does all waiting syncs as one. With
    /// [`SyncPolicy::Every`], only one is requested at a time.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let since = self.unsynced_since?;
        match self.policy {
            SyncPolicy::Every(milliseconds) if self.in_flight.is_empty() => {
                Some(since + u64::from(milliseconds) * NS_PER_MS)
            }
            SyncPolicy::EachCommit if self.awaited <= self.requested().sequence => Some(since + UNAWAITED_NS),
            SyncPolicy::EachCommit => Some(since),
            SyncPolicy::Every(_) | SyncPolicy::Never => None,
        }
    }

    /// When a requested sync begins: at once unless more clients are about to wait for it.
    pub(super) fn begins_at(&self) -> Timestamp {
        match self.commit_delay {
            Some((until, enough)) if self.awaited < enough => until,
            _ => Timestamp::AT_ONCE,
        }
    }

    /// Makes the next commit request a sync, even if `-f` permits a longer wait.
    pub(super) fn hurry(&mut self) {
        self.is_urgent = true;
    }

    /// Whether [`Durability::hurry`] was called since the last call of this function.
    pub(super) fn take_urgency(&mut self) -> bool {
        std::mem::take(&mut self.is_urgent)
    }

    /// Requests a sync of everything written: returns its position, or `None` if there is nothing to sync.
    pub(super) fn request(&mut self) -> Option<LogPosition> {
        self.unsynced_since = None;
        if self.policy == SyncPolicy::Never || !self.is_unsynced() {
            return None;
        }
        self.in_flight.push_back((self.written, std::mem::replace(&mut self.lowest_appended, NO_JOB)));
        Some(self.written.end)
    }

    /// Handles the end of the sync up to `position`, which took `elapsed_us` microseconds. If
    /// [`Durability::all_synced`] has overtaken the sync, nothing more becomes durable.
    pub(super) fn completed(&mut self, position: LogPosition, elapsed_us: u64, now: Timestamp) {
        let (syncs, sync_us) = self.sync_totals;
        self.sync_totals = (syncs + 1, sync_us + elapsed_us);
        let before = self.durable.sequence;
        while let Some(&(mark, _)) = self.in_flight.front().filter(|(mark, _)| mark.end <= position) {
            self.in_flight.pop_front();
            self.durable = mark;
        }
        // The clients that are answered now will sync about the same amount again, in addition to the clients that
        // already wait. An eighth of them may not.
        let expected = self.awaited.0.saturating_sub(before.0);
        let enough = SequenceNumber(self.durable.sequence.0 + expected - expected.div_ceil(8));
        let pause_ns = elapsed_us.saturating_mul(1000) / 4;
        let is_slow = self.policy == SyncPolicy::EachCommit && elapsed_us >= SLOW_SYNC_US;
        self.commit_delay = is_slow.then_some((now + pause_ns, enough));
        let lowest = self.in_flight.iter().map(|(_, lowest)| *lowest).chain([self.lowest_appended]).min();
        self.lowest_unsynced = lowest.unwrap_or(NO_JOB);
    }

    /// Notes that everything written is on the medium, because the caller has waited for it.
    pub(super) fn all_synced(&mut self) {
        self.in_flight.clear();
        (self.lowest_appended, self.lowest_unsynced) = (NO_JOB, NO_JOB);
        self.unsynced_since = None;
        self.durable = self.written;
    }

    // ---- what the markers say ----

    /// Notes that a marker has the current durable position.
    pub(super) fn note_marked(&mut self) {
        self.marked = self.durable.sequence;
    }

    /// Whether a marker already has it.
    pub(super) fn is_marked(&self) -> bool {
        self.durable.sequence <= self.marked
    }

    /// Syncs done, and the time that they took in microseconds.
    pub(super) fn sync_totals(&self) -> (u64, u64) {
        self.sync_totals
    }

    /// Asserts the invariants between two calls, for a log that ends at `end` once it is written.
    #[inline]
    pub(super) fn check_invariants(&self, end: LogPosition) {
        let asked_for = [&self.durable].into_iter().chain(self.in_flight.iter().map(|(mark, _)| mark));
        assert!(asked_for.is_sorted_by(|a, b| a.end <= b.end && a.sequence <= b.sequence && a.ids <= b.ids));
        assert!(self.in_flight.is_empty() || self.policy != SyncPolicy::Never, "with -F nothing is synced");
        assert!(self.written.end <= end, "no more is written than was appended");
        assert!(self.marked <= self.durable.sequence, "the marked record is durable");
        // At the start, more may be durable than this run has written.
        if self.written != LogMark::default() {
            assert!(self.requested().end <= self.written.end, "a sync is requested only for written bytes");
            assert!(self.durable.sequence <= self.written.sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(offset: u64) -> LogMark {
        LogMark { end: LogPosition { file: 1, offset }, sequence: SequenceNumber(offset / 10), ids: 0 }
    }

    /// The log grows to `offset` in a turn at `now`.
    fn grow(sync: &mut Durability, offset: u64, now: u64) {
        sync.wrote(mark(offset));
        sync.end_turn(Timestamp(now), mark(offset).sequence);
    }

    #[test]
    fn the_deadline_counts_from_the_first_unsynced_byte() {
        let mut sync = Durability::new(SyncPolicy::Every(50), LogPosition::default(), 0);
        sync.end_turn(Timestamp(500), SequenceNumber::default());
        assert_eq!(sync.deadline(), None, "nothing was written");
        grow(&mut sync, 10, 1000);
        grow(&mut sync, 20, 2000);
        assert_eq!(sync.deadline(), Some(Timestamp(50_001_000)));
        assert_eq!(sync.request(), Some(LogPosition { file: 1, offset: 20 }));
        assert_eq!(sync.request(), None);
        grow(&mut sync, 30, 3000);
        assert_eq!(sync.deadline(), None, "one sync at a time");
        sync.completed(mark(20).end, 7, Timestamp(0));
        assert_eq!(sync.durable(), mark(20));
        assert_eq!(sync.deadline(), Some(Timestamp(50_003_000)));
        sync.check_invariants(mark(30).end);
    }

    #[test]
    fn each_commit_asks_for_a_sync_and_the_store_does_some_as_one() {
        let mut sync = Durability::new(SyncPolicy::EachCommit, LogPosition::default(), 0);
        for offset in [10, 20, 30] {
            grow(&mut sync, offset, offset);
            assert_eq!(sync.deadline(), Some(Timestamp(offset)));
            assert_eq!(sync.request(), Some(mark(offset).end));
        }
        sync.completed(mark(20).end, 7, Timestamp(40));
        assert_eq!((sync.durable(), sync.deadline()), (mark(20), None));
        sync.check_invariants(mark(30).end);
        sync.completed(mark(30).end, 7, Timestamp(50));
        assert_eq!((sync.durable(), sync.sync_totals()), (mark(30), (2, 14)));
    }

    #[test]
    fn on_a_slow_disk_a_sync_waits_for_the_clients_of_the_last_one_but_not_for_long() {
        let mut sync = Durability::new(SyncPolicy::EachCommit, LogPosition::default(), 0);
        let (ms, at_once) = (1_000_000, Timestamp::AT_ONCE);
        let grow_and_ask = |sync: &mut Durability, offset| {
            grow(sync, offset, offset);
            sync.request();
            sync.begins_at()
        };
        assert_eq!(grow_and_ask(&mut sync, 80), at_once);
        grow_and_ask(&mut sync, 160);
        sync.completed(mark(80).end, 8000, Timestamp(10 * ms));
        assert_eq!(sync.begins_at(), Timestamp(12 * ms), "half of sixteen wait already");
        assert_eq!(grow_and_ask(&mut sync, 210), Timestamp(12 * ms));
        assert_eq!(grow_and_ask(&mut sync, 220), at_once, "all but two of them");
        sync.completed(mark(220).end, 3999, Timestamp(20 * ms));
        assert_eq!(grow_and_ask(&mut sync, 230), at_once, "a fast disk");
        sync.completed(mark(230).end, 8000, Timestamp(30 * ms));
        assert_eq!(grow_and_ask(&mut sync, 240), at_once, "one client has nobody to wait for");
    }

    #[test]
    fn records_without_a_waiting_reply_are_synced_with_the_next_ones_or_a_moment_later() {
        let mut sync = Durability::new(SyncPolicy::EachCommit, LogPosition::default(), 0);
        sync.wrote(mark(10));
        sync.end_turn(Timestamp(1000), SequenceNumber::default());
        assert_eq!(sync.deadline(), Some(Timestamp(1000 + UNAWAITED_NS)));
        grow(&mut sync, 20, 2000);
        assert_eq!(sync.deadline(), Some(Timestamp(1000)), "at once");
        assert_eq!(sync.request(), Some(mark(20).end));
        sync.wrote(mark(30));
        sync.end_turn(Timestamp(3000), mark(20).sequence);
        assert_eq!(
            sync.deadline(),
            Some(Timestamp(3000 + UNAWAITED_NS)),
            "a requested sync is not awaited any more"
        );
    }

    #[test]
    fn a_sync_that_was_overtaken_makes_nothing_else_durable() {
        let mut sync = Durability::new(SyncPolicy::EachCommit, LogPosition::default(), 0);
        grow(&mut sync, 10, 1);
        let overtaken = sync.request().expect("there is something to sync");
        sync.all_synced();
        grow(&mut sync, 20, 2);
        assert_eq!(sync.request(), Some(mark(20).end));
        sync.completed(overtaken, 7, Timestamp(0));
        assert_eq!(sync.durable(), mark(10));
        sync.completed(mark(20).end, 7, Timestamp(0));
        assert_eq!(sync.durable(), mark(20));
    }

    #[test]
    fn without_syncing_what_is_written_is_settled() {
        let mut sync = Durability::new(SyncPolicy::Never, LogPosition::default(), 0);
        grow(&mut sync, 10, 1000);
        assert_eq!((sync.deadline(), sync.request()), (None, None));
        assert!(sync.is_durable_up_to(LogPosition { file: 1, offset: 10 }));
        assert!(!sync.is_durable_up_to(LogPosition { file: 1, offset: 11 }));
    }
}
