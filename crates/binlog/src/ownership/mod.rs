//! The ownership of a queue whose log is in a database: the steps of an owner after each answer of the database, and
//! its right to reply.
//!
//! Owns: the decisions of an owner, in [`Owner`], its right to reply, in [`Lease`], and the decisions of a server that
//! waits to become the owner, in [`Watch`]. Pure: they return the next step, and get its outcome. Driven by the helper
//! thread of `postgres/`, by the turn of the server, and by the simulation with a database in memory.
//!
//! The queue has a row with an epoch, an owner and a heartbeat. Each transaction of the owner locks that row and proves
//! that it still has the owner's epoch. A server that takes over raises the epoch, and must wait for a transaction that
//! holds the row. After that, no earlier owner commits anything, whatever the clocks say; the clocks only decide when
//! to take over.
//!
//! Not every reply waits for a commit: a peek, a time-out or a duplicate leaves no record. For these there is the
//! lease. A standby takes over when it has not seen the heartbeat change for longer than `takeover_after` on its own
//! clock, so it cannot take over earlier than that after the owner has *sent* the last heartbeat that the standby has
//! seen. The owner counts the same time, less a margin, on its own clock, from an instant just before it sent its last
//! confirmed heartbeat. If a command took effect before that time was over, no other server owned the queue then. A
//! proof without a heartbeat does not extend the lease, because a standby does not see it.
//!
//! If a connection is lost in the middle of a transaction, the owner does not know whether it was committed, and it may
//! still be on its way. The owner then raises its own epoch through a new connection. After that, the earlier
//! transaction has either been committed or never will be, and the owner checks which. Everything that was committed
//! before is as durable as the raised epoch.

mod watch;

pub use self::watch::{SeenRow, Watch};
use crate::clock::{NS_PER_S, Timestamp};

/// How long an owner waits before it tries to reach the database again.
const RETRY_NS: u64 = 200_000_000;

/// The lease ends before `takeover_after` is over, by one part of it in this many. The clocks of two machines do not
/// have the same rate: a daemon that corrects one makes it faster or slower by up to 8.3 % (chrony's `maxslewrate`), so
/// the time between two instants can differ by 17 %. The time between the check of the lease and the write needs no
/// margin, because the check comes after the effect.
const MARGIN_SHARE: u64 = 5;

/// The times that the operator has chosen, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnershipTimes {
    /// How long a heartbeat must not change before its owner counts as dead.
    pub takeover_after_ns: u64,
    /// How long the owner continues without an answer of the database.
    pub store_timeout_ns: u64,
}

impl OwnershipTimes {
    /// The time between two heartbeats. Each leaves a dead version of the row, so they are as rare as a takeover
    /// permits.
    #[must_use]
    pub(crate) fn beat_ns(self) -> u64 {
        (self.takeover_after_ns / 10).min(NS_PER_S)
    }

    /// The time after which a standby reads the heartbeat again.
    #[must_use]
    pub fn poll_ns(self) -> u64 {
        self.beat_ns() / 2
    }

    /// How long a lease lasts after its heartbeat was sent.
    #[must_use]
    pub(crate) fn lease_ns(self) -> u64 {
        self.takeover_after_ns - self.takeover_after_ns / MARGIN_SHARE
    }
}

/// The right of an owner to reply: no other server can own the queue before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// On a clock of this machine that cannot be set, and that counts the time while the machine is suspended.
    end: Timestamp,
}

impl Lease {
    /// No right.
    pub const NONE: Self = Self { end: Timestamp(0) };

    /// The lease from a confirmed heartbeat that was sent after `sent_at`.
    #[must_use]
    pub fn of(sent_at: Timestamp, times: OwnershipTimes) -> Self {
        Self { end: sent_at + times.lease_ns() }
    }

    /// The lease that ends at `end`.
    #[must_use]
    pub fn until(end: Timestamp) -> Self {
        Self { end }
    }

    /// When it ends.
    #[must_use]
    pub fn end(self) -> Timestamp {
        self.end
    }

    /// Whether replies may be sent about changes so far. `now` must be read **after** the execution of the last command
    /// to be answered and before the first byte of its reply. A pause after that does no harm: the reply was true while
    /// no other server could own the queue, and its delay is like a delay in the network.
    #[must_use]
    pub fn is_valid_at(self, now: Timestamp) -> bool {
        self.left_ns(now) > 0
    }

    /// How long it still lasts.
    #[must_use]
    pub fn left_ns(self, now: Timestamp) -> u64 {
        self.end.since_ns(now)
    }
}

/// The next step of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum OwnerStep {
    /// Connect to a server of the database that accepts writes, and whose commits are as durable as the operator
    /// requires.
    Connect,
    /// Raise the epoch of the queue if this server still owns it and if the row has at least this epoch. This is a
    /// heartbeat.
    Raise(u64),
    /// Check whether the pending transaction has been committed, if the queue has this epoch: another owner may have
    /// written to the same position of the log since.
    CheckCommit(u64),
    /// Commit the pending transaction if the queue has `epoch`.
    Commit {
        epoch: u64,
        /// Whether the commit is also a heartbeat. Most are not: each heartbeat leaves a dead version of the row, which
        /// stays as long as another client has a transaction open.
        beats: bool,
    },
    /// Change the heartbeat if the queue has this epoch.
    Beat(u64),
    /// Nothing until this time, or until there is something to commit.
    Sleep(Timestamp),
    /// Stop: the pending transaction has failed, and so will all others.
    End(OwnershipEnd),
}

/// The reason why an owner ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipEnd {
    /// Another server owns the queue.
    TakenOver,
    /// The database has confirmed nothing within the time for which an owner continues without it.
    TimedOut,
    /// The database refuses a necessary operation.
    Refused,
}

/// The outcome of a step, which says by itself what has happened. The last three can come after any step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAnswer {
    /// After [`OwnerStep::Connect`]: there is a connection.
    Connected,
    /// After [`OwnerStep::Raise`]: the new epoch of the queue.
    Raised(u64),
    /// After [`OwnerStep::Raise`]: another server owns the queue.
    TakenOver,
    /// After [`OwnerStep::Commit`] or [`OwnerStep::CheckCommit`]: the pending transaction is committed.
    Committed,
    /// After [`OwnerStep::CheckCommit`]: the pending transaction was not committed.
    Absent,
    /// After [`OwnerStep::Beat`]: the heartbeat has changed.
    Beat,
    /// After [`OwnerStep::Commit`], [`OwnerStep::CheckCommit`] or [`OwnerStep::Beat`]: the queue has another epoch, or
    /// the database no longer replicates. Nothing has changed.
    NotProven,
    /// Nothing has changed, and the same step may succeed later.
    Busy,
    /// Nothing has changed, and the same step will fail again.
    Refused,
    /// The connection is lost, and the effect of the step is not known.
    Lost,
}

/// The pending transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingTransaction {
    None,
    /// The transaction has not been sent, or has changed nothing.
    Open,
    /// The transaction is sent, and there is no answer yet. It may also be a heartbeat.
    Sent {
        beats: bool,
    },
    /// The transaction was sent, and the answer was lost.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    /// There is no connection. The next attempt is at this time.
    Lost { retry_at: Timestamp },
    /// There is a connection, and no proof that this server is the owner.
    Connected,
    /// This server is the owner, and does not know whether the pending transaction was committed.
    Raised,
    /// This server has proven that it is the owner.
    Serving,
    /// The owner has ended.
    Ended(OwnershipEnd),
}

/// An owner.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    times: OwnershipTimes,
    epoch: u64,
    state: OwnerState,
    pending: PendingTransaction,
    lease: Lease,
    /// When the next heartbeat is due.
    beat_at: Timestamp,
    /// When the last step was requested, which is before it was sent.
    asked_at: Timestamp,
    /// The first step since then that the database has not confirmed.
    silent_since: Option<Timestamp>,
}

impl Owner {
    /// A server that has become the owner with `epoch`, and is connected. The takeover was sent after `sent_at`, and is
    /// its first heartbeat.
    #[must_use]
    pub fn new(times: OwnershipTimes, epoch: u64, sent_at: Timestamp) -> Self {
        let mut owner = Self {
            times,
            epoch,
            state: OwnerState::Serving,
            pending: PendingTransaction::None,
            lease: Lease::NONE,
            beat_at: sent_at,
            asked_at: sent_at,
            silent_since: None,
        };
        owner.note_beat();
        owner
    }

    /// The epoch that this owner raised last.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The owner's right to reply.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Whether the last answer came through a connection that still works.
    #[must_use]
    pub(crate) fn is_serving(&self) -> bool {
        self.state == OwnerState::Serving
    }

    /// Whether no transaction is pending, so that another can begin.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.pending == PendingTransaction::None
    }

    /// Begins a transaction that must be committed.
    ///
    /// # Panics
    /// If one is pending.
    pub fn begin(&mut self) {
        assert!(self.is_free(), "one transaction at a time");
        self.pending = PendingTransaction::Open;
    }

    /// When this owner ends if the database continues to confirm nothing; `None` while everything is confirmed.
    #[must_use]
    pub(crate) fn gives_up_at(&self) -> Option<Timestamp> {
        self.silent_since.map(|since| since + self.times.store_timeout_ns)
    }

    /// The next step. `now` is read before the step is sent.
    pub fn next(&mut self, now: Timestamp) -> OwnerStep {
        let gives_up_at = self.gives_up_at();
        // An owner that was suspended in the meantime may still be the owner: it asks first.
        if !self.is_serving() && gives_up_at.is_some_and(|at| at <= now) {
            self.end(OwnershipEnd::TimedOut);
        }
        let step = match self.state {
            OwnerState::Ended(end) => return OwnerStep::End(end),
            OwnerState::Lost { retry_at } if retry_at > now => {
                return OwnerStep::Sleep(gives_up_at.map_or(retry_at, |at| at.min(retry_at)));
            }
            OwnerState::Lost { .. } => OwnerStep::Connect,
            OwnerState::Connected => OwnerStep::Raise(self.epoch),
            OwnerState::Raised => OwnerStep::CheckCommit(self.epoch),
            OwnerState::Serving if self.pending == PendingTransaction::Open => {
                let beats = self.beat_at <= now;
                self.pending = PendingTransaction::Sent { beats };
                OwnerStep::Commit { epoch: self.epoch, beats }
            }
            OwnerState::Serving if self.beat_at <= now => OwnerStep::Beat(self.epoch),
            OwnerState::Serving => return OwnerStep::Sleep(self.beat_at),
        };
        self.asked_at = now;
        self.silent_since.get_or_insert(now);
        step
    }

    /// Handles the answer to the last step. Returns whether the pending transaction is now committed.
    pub fn answered(&mut self, answer: StepAnswer, now: Timestamp) -> bool {
        // A trigger of the operator, or a proxy, may answer as no statement of this server does.
        let answer = if self.expects(answer) { answer } else { StepAnswer::Lost };
        let before = self.pending;
        if let PendingTransaction::Sent { .. } = before {
            let is_lost = answer == StepAnswer::Lost;
            self.pending = if is_lost { PendingTransaction::Unknown } else { PendingTransaction::Open };
        }
        match answer {
            StepAnswer::Connected => self.state = OwnerState::Connected,
            StepAnswer::Raised(epoch) => {
                self.epoch = epoch;
                self.note_beat();
                let is_unknown = self.pending == PendingTransaction::Unknown;
                self.state = if is_unknown { OwnerState::Raised } else { OwnerState::Serving };
            }
            StepAnswer::Committed => {
                self.state = OwnerState::Serving;
                self.pending = PendingTransaction::None;
                if before == (PendingTransaction::Sent { beats: true }) {
                    self.note_beat();
                }
                self.silent_since = None;
                return true;
            }
            StepAnswer::Absent => {
                self.state = OwnerState::Serving;
                self.pending = PendingTransaction::Open;
            }
            StepAnswer::Beat => self.note_beat(),
            // This server itself may have raised the epoch, through a connection that it has abandoned.
            StepAnswer::NotProven => {
                self.state = OwnerState::Connected;
                self.lease = Lease::NONE;
            }
            StepAnswer::TakenOver => {
                self.lease = Lease::NONE;
                self.end(OwnershipEnd::TakenOver);
            }
            StepAnswer::Refused => self.end(OwnershipEnd::Refused),
            StepAnswer::Busy | StepAnswer::Lost => {
                self.state = OwnerState::Lost { retry_at: now + RETRY_NS };
            }
        }
        false
    }

    /// Whether the last step can have this answer.
    fn expects(&self, answer: StepAnswer) -> bool {
        let (is_raised, is_serving) = (self.state == OwnerState::Raised, self.is_serving());
        match answer {
            StepAnswer::Connected => matches!(self.state, OwnerState::Lost { .. }),
            StepAnswer::Raised(_) | StepAnswer::TakenOver => self.state == OwnerState::Connected,
            StepAnswer::Committed => is_raised || matches!(self.pending, PendingTransaction::Sent { .. }),
            StepAnswer::Absent => is_raised,
            StepAnswer::Beat => is_serving,
            StepAnswer::NotProven => is_raised || is_serving,
            StepAnswer::Busy | StepAnswer::Refused | StepAnswer::Lost => true,
        }
    }

    /// Notes that the pending transaction has changed nothing for lack of space. The database has answered, so the
    /// transaction is not abandoned; in the meantime, the step is a heartbeat.
    pub fn note_lack_of_room(&mut self) {
        self.pending = PendingTransaction::Open;
        self.silent_since = None;
    }

    /// Abandons the pending transaction, which has changed nothing.
    pub fn abandon(&mut self) {
        self.pending = PendingTransaction::None;
    }

    /// Notes a confirmed heartbeat that was sent after `asked_at`. While a transaction waits, its clients wait, too.
    fn note_beat(&mut self) {
        self.lease = Lease::of(self.asked_at, self.times);
        self.beat_at = self.asked_at + self.times.beat_ns();
        if self.is_free() {
            self.silent_since = None;
        }
    }

    fn end(&mut self, end: OwnershipEnd) {
        self.state = OwnerState::Ended(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const MS: u64 = 1_000_000;
    pub(super) const TIMES: OwnershipTimes =
        OwnershipTimes { takeover_after_ns: 5000 * MS, store_timeout_ns: 30_000 * MS };

    pub(super) fn at(ms: u64) -> Timestamp {
        Timestamp(ms * MS)
    }

    /// The owner's next step after the outcome of the last one.
    fn answer(owner: &mut Owner, answer: StepAnswer, now: Timestamp) -> (OwnerStep, bool) {
        let step = owner.next(now);
        (step, owner.answered(answer, now))
    }

    fn commit(epoch: u64) -> OwnerStep {
        OwnerStep::Commit { epoch, beats: false }
    }

    #[test]
    fn an_owner_beats_at_intervals_whether_it_commits_or_not() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        assert_eq!(owner.next(at(0)), OwnerStep::Sleep(at(500)));
        assert_eq!(answer(&mut owner, StepAnswer::Beat, at(500)), (OwnerStep::Beat(7), false));
        owner.begin();
        assert_eq!(answer(&mut owner, StepAnswer::Committed, at(750)), (commit(7), true));
        assert_eq!(owner.next(at(800)), OwnerStep::Sleep(at(1000)), "the commit was no heartbeat");
        owner.begin();
        let beats = OwnerStep::Commit { epoch: 7, beats: true };
        assert_eq!(answer(&mut owner, StepAnswer::Committed, at(1000)), (beats, true));
        assert_eq!(owner.next(at(1250)), OwnerStep::Sleep(at(1500)));
    }

    #[test]
    fn a_lease_counts_from_the_sending_of_the_last_confirmed_heartbeat() {
        let mut owner = Owner::new(TIMES, 7, at(100));
        assert_eq!(owner.lease(), Lease::until(at(4100)), "a margin of a second before a standby takes over");
        assert!(owner.lease().is_valid_at(at(4099)) && !owner.lease().is_valid_at(at(4100)));
        assert_eq!(owner.next(at(1100)), OwnerStep::Beat(7));
        assert_eq!(owner.lease().end(), at(4100), "it is not confirmed");
        owner.answered(StepAnswer::Beat, at(3000));
        assert_eq!(owner.lease().end(), at(5100), "the standby may have seen it when it was sent");
        owner.begin();
        assert_eq!(answer(&mut owner, StepAnswer::Committed, at(1500)), (commit(7), true));
        assert_eq!(owner.lease().end(), at(5100), "no standby sees a commit");
        for (ends, answers) in [(at(5100), StepAnswer::Lost), (at(0), StepAnswer::NotProven)] {
            let mut owner = owner;
            answer(&mut owner, answers, at(4000));
            assert_eq!(owner.lease().end(), ends, "{answers:?}");
            if answers == StepAnswer::Lost {
                answer(&mut owner, StepAnswer::Connected, at(4200));
            }
            answer(&mut owner, StepAnswer::Raised(8), at(4300));
            assert_eq!(owner.lease().end(), at(8300), "raising the epoch changes the heartbeat");
        }
    }

    #[test]
    fn a_commit_whose_answer_is_lost_is_checked_under_a_new_epoch() {
        for (found, committed) in [(StepAnswer::Committed, true), (StepAnswer::Absent, false)] {
            let mut owner = Owner::new(TIMES, 7, at(0));
            owner.begin();
            answer(&mut owner, StepAnswer::Lost, at(0));
            assert_eq!(owner.next(at(1)), OwnerStep::Sleep(at(200)));
            assert_eq!(answer(&mut owner, StepAnswer::Connected, at(200)), (OwnerStep::Connect, false));
            assert_eq!(answer(&mut owner, StepAnswer::Raised(9), at(201)), (OwnerStep::Raise(7), false));
            assert_eq!(answer(&mut owner, found, at(202)), (OwnerStep::CheckCommit(9), committed));
            assert!(owner.is_serving() && owner.is_free() == committed);
            let next = if committed { OwnerStep::Sleep(at(701)) } else { commit(9) };
            assert_eq!(owner.next(at(202)), next);
        }
    }

    #[test]
    fn a_connection_lost_without_a_commit_leaves_no_commit_to_check() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        assert_eq!(answer(&mut owner, StepAnswer::Lost, at(1000)), (OwnerStep::Beat(7), false));
        answer(&mut owner, StepAnswer::Connected, at(1200));
        answer(&mut owner, StepAnswer::Raised(8), at(1200));
        assert_eq!(owner.next(at(1200)), OwnerStep::Sleep(at(1700)));
    }

    #[test]
    fn an_owner_that_is_fenced_ends_unless_it_has_raised_the_epoch_itself() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        owner.begin();
        assert_eq!(answer(&mut owner, StepAnswer::NotProven, at(0)), (commit(7), false));
        let mut by_itself = owner;
        answer(&mut by_itself, StepAnswer::Raised(9), at(0));
        assert_eq!(by_itself.next(at(0)), commit(9), "without a change there is nothing to check");
        answer(&mut owner, StepAnswer::TakenOver, at(0));
        assert_eq!(owner.next(at(0)), OwnerStep::End(OwnershipEnd::TakenOver));
        assert_eq!(owner.lease(), Lease::NONE);
    }

    #[test]
    fn an_owner_ends_when_the_database_is_silent_for_too_long() {
        for waits in [false, true] {
            let mut owner = Owner::new(TIMES, 7, at(0));
            if waits {
                owner.begin();
            }
            answer(&mut owner, StepAnswer::Lost, at(1000));
            assert_eq!(owner.gives_up_at(), Some(at(31_000)));
            answer(&mut owner, StepAnswer::Busy, at(30_900));
            assert_eq!(owner.next(at(30_900)), OwnerStep::Sleep(at(31_000)), "it ends to the second");
            assert_eq!(owner.next(at(31_000)), OwnerStep::End(OwnershipEnd::TimedOut));
        }
    }

    #[test]
    fn commands_that_wait_do_not_begin_again_with_each_connection() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        owner.begin();
        for ms in [0, 10_000, 20_000] {
            answer(&mut owner, StepAnswer::Lost, at(ms));
            answer(&mut owner, StepAnswer::Connected, at(ms + 200));
            answer(&mut owner, StepAnswer::Raised(8), at(ms + 201));
            answer(&mut owner, StepAnswer::Absent, at(ms + 202));
        }
        answer(&mut owner, StepAnswer::Lost, at(29_999));
        assert_eq!(owner.next(at(30_000)), OwnerStep::End(OwnershipEnd::TimedOut));
    }

    #[test]
    fn an_owner_that_stood_still_asks_before_it_gives_up() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        assert_eq!(owner.next(at(900_000)), OwnerStep::Beat(7));
        assert!(!owner.lease().is_valid_at(at(900_000)), "and says nothing until then");
        assert_eq!(owner.gives_up_at(), Some(at(930_000)));
    }

    #[test]
    fn a_transaction_that_is_given_up_leaves_nothing_to_do() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        owner.begin();
        owner.abandon();
        assert!(owner.is_free());
        assert_eq!(owner.next(at(0)), OwnerStep::Sleep(at(500)), "nothing is committed");
    }

    #[test]
    fn the_epoch_is_the_one_raised_last() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        assert_eq!(owner.epoch(), 7);
        answer(&mut owner, StepAnswer::Lost, at(1000));
        answer(&mut owner, StepAnswer::Connected, at(1200));
        answer(&mut owner, StepAnswer::Raised(12), at(1200));
        assert_eq!(owner.epoch(), 12);
    }

    /// The two clocks are corrected at the highest rate of any daemon.
    #[test]
    fn the_lease_is_over_before_a_standby_can_take_over_although_the_clocks_differ() {
        const FASTEST_PER_MILLION: u64 = 83_334;
        for takeover_after_ns in [NS_PER_S, 5 * NS_PER_S, 3600 * NS_PER_S] {
            let times = OwnershipTimes { takeover_after_ns, ..TIMES };
            let longest_lease = times.lease_ns() / (1_000_000 - FASTEST_PER_MILLION);
            let shortest_wait = takeover_after_ns / (1_000_000 + FASTEST_PER_MILLION);
            assert!(longest_lease < shortest_wait);
            assert!(2 * times.beat_ns() < times.lease_ns(), "a late heartbeat does no harm");
        }
    }
}
