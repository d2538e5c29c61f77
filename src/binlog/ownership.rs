//! Who owns a queue whose log is in a database, and what an owner does upon each answer of the database.
//!
//! Owns: the decisions of an owner, in [`Owner`], and of a server that waits to become one, in [`Watch`]. Pure: both say what
//! to do next, and are told what came of it. Driven by the helper thread of `postgres/`, and by the simulation with a
//! database in memory.
//!
//! The queue has a row with an epoch, an owner and a heartbeat. Each transaction of the owner holds that row and proves that
//! it still has the owner's epoch. Who takes over raises the epoch, and has to wait for a transaction that holds the row. So
//! after that, no earlier owner commits anything, whatever the clocks say; the clocks only say when to take over.
//!
//! If a connection is lost in the middle of a transaction, nobody knows whether it was committed, and it may still be on its
//! way. The owner then raises its own epoch through a new connection. After that the earlier transaction is either there
//! or will never be, and the owner looks. All that was committed before is as durable as the raised epoch.

use crate::clock::Timestamp;

/// How long an owner waits before it tries to reach the database again.
const RETRY_NS: u64 = 200_000_000;

/// The times that the operator has chosen, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How old a heartbeat is when its owner is taken for dead.
    pub takeover_after_ns: u64,
    /// How long commands wait for the database.
    pub store_timeout_ns: u64,
}

impl Times {
    /// The time between two heartbeats.
    #[must_use]
    pub fn beat_ns(self) -> u64 {
        (self.takeover_after_ns / 5).min(crate::clock::NS_PER_S)
    }
}

/// What an owner does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reach a server of the database that takes writes, and whose commits are as durable as the operator wants.
    Connect,
    /// Raise the epoch of the queue if this server still owns it and if the row has at least this epoch.
    Raise(u64),
    /// Look whether the transaction under way is there, if the queue has this epoch: another owner may have written to the
    /// same place of the log since.
    Look(u64),
    /// Commit the transaction under way if the queue has this epoch.
    Commit(u64),
    /// Prove that this server is alive if the queue has this epoch.
    Beat(u64),
    /// Nothing until this time, or until there is something to commit.
    Rest(Timestamp),
    /// Nothing more: the transaction under way has failed, and so will all others.
    End(End),
}

/// Why an owner ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Another server owns the queue.
    TakenOver,
    /// The database was not to be had for as long as commands may wait.
    TimedOut,
    /// The database refuses what it must do.
    Refused,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done. To [`Step::Look`]: the transaction is there.
    Done,
    /// To [`Step::Raise`]: the epoch that the queue has now.
    Raised(u64),
    /// To [`Step::Look`]: the transaction is not there.
    Absent,
    /// To [`Step::Raise`]: another server owns the queue.
    TakenOver,
    /// The queue has another epoch, or the database has stopped to replicate. Nothing was changed.
    NotProven,
    /// Nothing was changed, and the same may succeed later.
    Busy,
    /// Nothing was changed, and the same will fail again.
    Refused,
    /// The connection is lost, and what the step has done is unknown.
    Lost,
}

/// The transaction under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    None,
    /// It was not begun, or has not changed anything.
    Open,
    /// It was begun, and its answer was lost.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no connection. The next attempt is at this time.
    Lost { retry_at: Timestamp },
    /// There is a connection, and no proof that this server is the owner.
    Connected,
    /// This server is the owner, and does not know whether the transaction under way is there.
    Raised,
    /// This server has proven that it is the owner.
    Serving { beat_at: Timestamp },
    /// It is over.
    Ended(End),
}

/// An owner.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    times: Times,
    epoch: u64,
    state: State,
    pending: Pending,
    /// Since when commands wait without a good answer of the database.
    waiting_since: Option<Timestamp>,
}

impl Owner {
    /// A server that has become the owner with `epoch`, and is connected.
    #[must_use]
    pub fn new(times: Times, epoch: u64, now: Timestamp) -> Self {
        let state = State::Serving { beat_at: now + times.beat_ns() };
        Self { times, epoch, state, pending: Pending::None, waiting_since: None }
    }

    /// The epoch that this owner has raised last.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the last answer came through a connection that is still good.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        matches!(self.state, State::Serving { .. })
    }

    /// Whether no transaction is under way, so that another may begin.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.pending == Pending::None
    }

    /// A transaction is to be committed.
    ///
    /// # Panics
    /// If one is under way.
    pub fn begin(&mut self, now: Timestamp) {
        assert!(self.is_free(), "one transaction at a time");
        self.pending = Pending::Open;
        self.waiting_since = Some(now);
    }

    /// What to do now.
    pub fn next(&mut self, now: Timestamp) -> Step {
        let deadline = self.waiting_since.map(|since| since + self.times.store_timeout_ns);
        if !self.is_serving() && deadline.is_some_and(|at| at <= now) {
            self.end(End::TimedOut);
        }
        match self.state {
            State::Ended(end) => Step::End(end),
            State::Lost { retry_at } if retry_at > now => {
                Step::Rest(deadline.map_or(retry_at, |at| at.min(retry_at)))
            }
            State::Lost { .. } => Step::Connect,
            State::Connected => Step::Raise(self.epoch),
            State::Raised => Step::Look(self.epoch),
            State::Serving { .. } if self.pending == Pending::Open => Step::Commit(self.epoch),
            State::Serving { beat_at } if beat_at <= now => Step::Beat(self.epoch),
            State::Serving { beat_at } => Step::Rest(beat_at),
        }
    }

    /// Takes note of what came of `step`. Returns whether the transaction under way is committed now.
    pub fn answered(&mut self, step: Step, answer: Answer, now: Timestamp) -> bool {
        match (step, answer) {
            (Step::Connect, Answer::Done) => self.state = State::Connected,
            (Step::Raise(_), Answer::Raised(epoch)) => {
                self.epoch = epoch;
                self.state = if self.pending == Pending::Unknown {
                    State::Raised
                } else {
                    State::Serving { beat_at: now + self.times.beat_ns() }
                };
            }
            (Step::Look(_) | Step::Commit(_), Answer::Done) => {
                self.serve(now);
                self.pending = Pending::None;
                self.waiting_since = None;
                return true;
            }
            (Step::Look(_), Answer::Absent) => {
                self.serve(now);
                self.pending = Pending::Open;
            }
            (Step::Beat(_), Answer::Done) => self.serve(now),
            // Perhaps it was this server that has raised the epoch, through a connection that it has given up.
            (Step::Commit(_) | Step::Beat(_) | Step::Look(_), Answer::NotProven) => {
                self.state = State::Connected
            }
            (_, Answer::TakenOver) => self.end(End::TakenOver),
            (_, Answer::Refused) => self.end(End::Refused),
            (_, answer) => {
                if matches!((step, answer), (Step::Commit(_), Answer::Lost)) {
                    self.pending = Pending::Unknown;
                }
                self.state = State::Lost { retry_at: now + RETRY_NS };
            }
        }
        false
    }

    /// The transaction under way has changed nothing, and is given up.
    pub fn abandon(&mut self) {
        self.pending = Pending::None;
        self.waiting_since = None;
    }

    fn serve(&mut self, now: Timestamp) {
        self.state = State::Serving { beat_at: now + self.times.beat_ns() };
    }

    fn end(&mut self, end: End) {
        self.state = State::Ended(end);
    }
}

/// The row of a queue, as a server sees it that does not own it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The epoch.
    pub epoch: u64,
    /// How old the heartbeat is by the clock of the database, in nanoseconds; `None` if nobody owns the queue.
    pub age_ns: Option<u64>,
}

/// A server that waits until it may take over.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    takeover_after_ns: u64,
    /// After a lost connection, a heartbeat that is old says only that the owner could not reach the database either.
    not_before: Timestamp,
}

impl Watch {
    /// A server that has not looked yet.
    #[must_use]
    pub fn new(times: Times) -> Self {
        Self { takeover_after_ns: times.takeover_after_ns, not_before: Timestamp(0) }
    }

    /// The connection was lost.
    pub fn lost(&mut self, now: Timestamp) {
        self.not_before = now + self.takeover_after_ns;
    }

    /// Whether to take over from the epoch that was seen. It is done in one update, which changes nothing if the row is not
    /// as it was seen.
    #[must_use]
    pub fn may_take_over(&self, seen: Seen, now: Timestamp) -> bool {
        match seen.age_ns {
            None => true,
            Some(age_ns) => age_ns > self.takeover_after_ns && now >= self.not_before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TIMES: Times = Times { takeover_after_ns: 5000 * MS, store_timeout_ns: 30_000 * MS };

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * MS)
    }

    /// What the owner does next, once it has been told what came of that.
    fn answer(owner: &mut Owner, answer: Answer, now: Timestamp) -> (Step, bool) {
        let step = owner.next(now);
        (step, owner.answered(step, answer, now))
    }

    #[test]
    fn an_idle_owner_beats_and_a_commit_is_a_beat() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        assert_eq!(owner.next(at(0)), Step::Rest(at(1000)));
        assert_eq!(answer(&mut owner, Answer::Done, at(1000)), (Step::Beat(7), false));
        owner.begin(at(1500));
        assert_eq!(answer(&mut owner, Answer::Done, at(1500)), (Step::Commit(7), true));
        assert_eq!(owner.next(at(2000)), Step::Rest(at(2500)));
    }

    #[test]
    fn a_commit_whose_answer_is_lost_is_looked_for_under_a_new_epoch() {
        for (found, committed) in [(Answer::Done, true), (Answer::Absent, false)] {
            let mut owner = Owner::new(TIMES, 7, at(0));
            owner.begin(at(0));
            answer(&mut owner, Answer::Lost, at(0));
            assert_eq!(owner.next(at(1)), Step::Rest(at(200)));
            assert_eq!(answer(&mut owner, Answer::Done, at(200)), (Step::Connect, false));
            assert_eq!(answer(&mut owner, Answer::Raised(9), at(201)), (Step::Raise(7), false));
            assert_eq!(answer(&mut owner, found, at(202)), (Step::Look(9), committed));
            assert!(owner.is_serving() && owner.is_free() == committed);
            let next = if committed { Step::Rest(at(1202)) } else { Step::Commit(9) };
            assert_eq!(owner.next(at(202)), next);
        }
    }

    #[test]
    fn a_lost_connection_without_a_commit_is_not_looked_through() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        assert_eq!(answer(&mut owner, Answer::Lost, at(1000)), (Step::Beat(7), false));
        answer(&mut owner, Answer::Done, at(1200));
        answer(&mut owner, Answer::Raised(8), at(1200));
        assert_eq!(owner.next(at(1200)), Step::Rest(at(2200)));
    }

    #[test]
    fn an_owner_that_is_fenced_ends_unless_it_has_raised_the_epoch_itself() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        owner.begin(at(0));
        assert_eq!(answer(&mut owner, Answer::NotProven, at(0)), (Step::Commit(7), false));
        let mut by_itself = owner;
        answer(&mut by_itself, Answer::Raised(9), at(0));
        assert_eq!(by_itself.next(at(0)), Step::Commit(9), "nothing was changed, so nothing is looked for");
        answer(&mut owner, Answer::TakenOver, at(0));
        assert_eq!(owner.next(at(0)), Step::End(End::TakenOver));
    }

    #[test]
    fn commands_wait_for_the_database_and_an_owner_without_commands_waits_for_ever() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        answer(&mut owner, Answer::Lost, at(1000));
        answer(&mut owner, Answer::Busy, at(90_000));
        assert_eq!(owner.next(at(90_000)), Step::Rest(at(90_200)));
        owner.begin(at(90_100));
        answer(&mut owner, Answer::Busy, at(120_000));
        assert_eq!(owner.next(at(120_000)), Step::Rest(at(120_100)));
        assert_eq!(owner.next(at(120_100)), Step::End(End::TimedOut));
    }

    #[test]
    fn a_transaction_that_is_given_up_leaves_nothing_to_do_or_to_wait_for() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        owner.begin(at(0));
        owner.abandon();
        assert!(owner.is_free());
        assert_eq!(owner.next(at(0)), Step::Rest(at(1000)), "nothing is committed");
        answer(&mut owner, Answer::Lost, at(1000));
        assert_eq!(owner.next(at(90_000)), Step::Connect, "no command waits for the database");
    }

    #[test]
    fn the_epoch_is_the_one_raised_last() {
        let mut owner = Owner::new(TIMES, 7, at(0));
        assert_eq!(owner.epoch(), 7);
        answer(&mut owner, Answer::Lost, at(1000));
        answer(&mut owner, Answer::Done, at(1200));
        answer(&mut owner, Answer::Raised(12), at(1200));
        assert_eq!(owner.epoch(), 12);
    }

    #[test]
    fn a_standby_takes_over_from_nobody_and_from_the_silent() {
        let mut watch = Watch::new(TIMES);
        let seen = |age_ms: Option<u64>| Seen { epoch: 3, age_ns: age_ms.map(|age_ms| age_ms * MS) };
        assert!(watch.may_take_over(seen(None), at(0)));
        assert!(
            !watch.may_take_over(seen(Some(5000)), at(0)) && watch.may_take_over(seen(Some(5001)), at(0))
        );
        watch.lost(at(100));
        assert!(!watch.may_take_over(seen(Some(60_000)), at(5099)), "the owner could not reach it either");
        assert!(
            watch.may_take_over(seen(Some(60_000)), at(5100)) && watch.may_take_over(seen(None), at(100))
        );
    }
}
