//! Requests of the log that the database has not carried out yet, in order of arrival.
//!
//! Owns: the order, and the choice of the requests for the next transaction. Pure: the caller passes the time. Driven
//! by the helper.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::LogPosition;
use crate::storage::StoreTask;

/// Bytes for which no sync was requested are committed when there are at least this many.
const MAX_UNASKED_BYTES: usize = 256 * 1024;
/// Such bytes are also committed after this time.
const UNASKED_FOR: Duration = Duration::from_millis(500);
/// A transaction takes no further bytes once it has this many: the amount sent to the database at once stays small,
/// even if much arrived while the database was unreachable.
const MAX_TRANSACTION_BYTES: usize = 4 << 20;

/// A request of the store to the thread, which carries them out in order.
#[derive(Debug)]
pub(super) enum StoreRequest {
    Append { at: LogPosition, bytes: Vec<u8> },
    Task(StoreTask),
}

/// A transaction.
#[derive(Debug)]
pub(super) enum Transaction {
    /// The appends to commit; none if everything to be synced was committed before.
    Append {
        appends: Vec<(LogPosition, Vec<u8>)>,
        syncs: Vec<StoreTask>,
    },
    Do(StoreTask),
    /// Rows of a removed file.
    Purge,
}

/// The requests that are not part of a transaction yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    requests: VecDeque<StoreRequest>,
    /// Bytes in `requests`, and when the first of them arrived.
    bytes: usize,
    since: Option<Instant>,
    /// Where the newest appended bytes end.
    end: LogPosition,
}

impl Backlog {
    /// Adds the newest request, which has arrived at `now`.
    pub(super) fn push(&mut self, request: StoreRequest, now: Instant) {
        if let StoreRequest::Append { at, bytes } = &request {
            self.bytes += bytes.len();
            self.since.get_or_insert(now);
            self.end = LogPosition { file: at.file, offset: at.offset + bytes.len() as u64 };
        }
        self.requests.push_back(request);
    }

    /// The bytes in it.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The end of the newest appended bytes, committed or not.
    pub(super) fn end(&self) -> LogPosition {
        self.end
    }

    /// How long bytes without a requested sync can still wait; `None` if there are none.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| UNASKED_FOR.saturating_sub(now.saturating_duration_since(since)))
    }

    /// Takes the requests for the next transaction, if any is due. At the end, all of them are.
    pub(super) fn next(&mut self, now: Instant, is_closing: bool) -> Option<Transaction> {
        let is_due = self.requests.iter().any(|request| matches!(request, StoreRequest::Task(_)))
            || self.bytes >= MAX_UNASKED_BYTES
            || self.pause(now).is_some_and(|pause| is_closing || pause.is_zero());
        if !is_due {
            return None;
        }
        if let Some(StoreRequest::Task(
            StoreTask::Make { .. } | StoreTask::Shorten { .. } | StoreTask::Remove { .. },
        )) = self.requests.front()
            && let Some(StoreRequest::Task(task)) = self.requests.pop_front()
        {
            return Some(Transaction::Do(task));
        }
        let (mut appends, mut syncs, mut taken) = (Vec::new(), Vec::new(), 0);
        while let Some(StoreRequest::Append { .. } | StoreRequest::Task(StoreTask::Sync(_))) =
            self.requests.front()
        {
            // The syncs after these appends may be part of the same transaction.
            if taken >= MAX_TRANSACTION_BYTES
                && matches!(self.requests.front(), Some(StoreRequest::Append { .. }))
            {
                break;
            }
            match self.requests.pop_front() {
                Some(StoreRequest::Append { at, bytes }) => {
                    taken += bytes.len();
                    appends.push((at, bytes));
                }
                Some(StoreRequest::Task(task)) => syncs.push(task),
                None => {}
            }
        }
        self.bytes -= taken;
        let rest = self.requests.iter().any(|request| matches!(request, StoreRequest::Append { .. }));
        debug_assert_eq!(rest, self.bytes > 0, "the backlog has bytes if and only if it has appends");
        self.since = rest.then_some(now);
        Some(Transaction::Append { appends, syncs })
    }

    /// The tasks in it, which will not be done.
    pub(super) fn into_tasks(self) -> impl Iterator<Item = StoreTask> {
        self.requests.into_iter().filter_map(StoreRequest::into_task)
    }
}

impl StoreRequest {
    /// The task; `None` for an append.
    pub(super) fn into_task(self) -> Option<StoreTask> {
        match self {
            Self::Task(task) => Some(task),
            Self::Append { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(offset: u64, len: usize) -> StoreRequest {
        StoreRequest::Append { at: LogPosition { file: 1, offset }, bytes: vec![0; len] }
    }

    fn sync(offset: u64) -> StoreRequest {
        StoreRequest::Task(StoreTask::Sync(LogPosition { file: 1, offset }))
    }

    /// How many appends and how many syncs the transaction has.
    fn sizes(transaction: Option<Transaction>) -> (usize, usize) {
        match transaction {
            Some(Transaction::Append { appends, syncs }) => (appends.len(), syncs.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_wait_for_a_sync_until_there_are_many_or_some_time_has_passed() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        assert!(backlog.next(now, true).is_none() && backlog.pause(now).is_none());
        backlog.push(append(0, 100), now);
        assert!(backlog.next(now, false).is_none());
        assert_eq!(sizes(backlog.next(now + UNASKED_FOR, false)), (1, 0));
        assert_eq!((backlog.bytes(), backlog.pause(now)), (0, None));
        backlog.push(append(100, MAX_UNASKED_BYTES), now);
        assert_eq!(sizes(backlog.next(now, false)), (1, 0));
        backlog.push(append(100, 1), now);
        assert_eq!(sizes(backlog.next(now, true)), (1, 0), "at the end all is due");
    }

    #[test]
    fn a_transaction_takes_all_that_came_and_not_too_much_of_it() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        for number in 0..3 {
            backlog.push(append(number, MAX_TRANSACTION_BYTES), now);
            backlog.push(sync(number + 1), now);
        }
        backlog.push(StoreRequest::Task(StoreTask::Remove { file: 7 }), now);
        assert_eq!(backlog.end(), LogPosition { file: 1, offset: 2 + MAX_TRANSACTION_BYTES as u64 });
        for left in [2, 1, 0] {
            assert_eq!(sizes(backlog.next(now, false)), (1, 1), "the sync after the bytes comes with them");
            assert_eq!(backlog.bytes(), left * MAX_TRANSACTION_BYTES);
        }
        backlog.push(append(9, 1), now);
        assert!(matches!(backlog.next(now, false), Some(Transaction::Do(StoreTask::Remove { file: 7 }))));
        assert!(backlog.next(now, false).is_none(), "no sync was asked for");
        backlog.push(sync(10), now);
        assert_eq!(backlog.into_tasks().count(), 1);
    }
}
