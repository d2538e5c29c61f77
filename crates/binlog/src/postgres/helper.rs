//! The helper thread: one transaction after another, and a heartbeat while there is none.
//!
//! Owns: the connection of the owner, and the transaction under way. What the next transaction does is decided by
//! [`Backlog`] and [`Purges`], what to do upon an answer by [`Owner`]; this file carries it out.

use std::io;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{error, info, warn};

use super::Settings;
use super::backlog::{Backlog, Transaction, Work};
use super::ballast::Ballast;
use super::claim::{Claim, Unfit, as_int, connect, now, number, text};
use super::commit_delay::CommitDelay;
use super::figures::Figures;
use super::purges::Purges;
use super::queue_clock::QueueClock;
use super::sql;
use super::statements::{add_append, add_task};
use super::vacuum::Vacuum;
use super::wire::{Failure, Session, Value};
use crate::clock::Timestamp;
use crate::ownership::{Answer, End, Owner, Step};
use crate::storage::{Completion, Task};

mod room;

/// There is nothing else to do after this time without a commit.
const IDLE_AFTER: Duration = Duration::from_millis(100);

/// What wakes the loop; nothing before the loop runs.
pub(super) type Wake = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

pub(super) struct Helper {
    pub(super) settings: Settings,
    pub(super) given: Receiver<Work>,
    pub(super) done: Sender<Completion>,
    pub(super) wake: Wake,
    owner: Owner,
    owner_name: String,
    queue: i64,
    clock: QueueClock,
    session: Option<Session>,
    backlog: Backlog,
    under_way: Option<(Transaction, Instant)>,
    commit_delay: CommitDelay,
    /// When the last commit ended.
    last_end: Instant,
    purges: Purges,
    vacuum: Vacuum,
    ballast: Ballast,
    figures: Arc<Figures>,
    tickets: i64,
    /// Why there is no good connection, or why it is over.
    trouble: String,
}

impl Helper {
    pub(super) fn new(
        settings: Settings,
        claim: Claim,
        given: Receiver<Work>,
        done: Sender<Completion>,
        wake: Wake,
        figures: Arc<Figures>,
    ) -> Self {
        let Claim { session, queue, epoch, owner: owner_name, sent_at, removed, clock } = claim;
        let owner = Owner::new(settings.times, epoch, sent_at);
        figures.set_lease(owner.lease());
        Self {
            owner,
            settings,
            given,
            done,
            wake,
            owner_name,
            queue,
            clock,
            session: Some(session),
            backlog: Backlog::default(),
            under_way: None,
            commit_delay: CommitDelay::default(),
            last_end: Instant::now(),
            purges: Purges::new(removed),
            vacuum: Vacuum::new(Arc::clone(&figures)),
            ballast: Ballast::new(Arc::clone(&figures), queue),
            figures,
            tickets: 0,
            trouble: String::new(),
        }
    }

    /// Works until no more can come, and then hands the queue over.
    pub(super) fn run(mut self) {
        let mut is_closing = false;
        loop {
            self.take_all();
            self.ballast.look_after(&self.settings);
            self.begin_next(is_closing);
            match self.owner.next(now()) {
                Step::End(end) => return self.end(end),
                Step::Rest(_) if is_closing && self.under_way.is_none() => return self.hand_over(),
                Step::Rest(until) => is_closing |= self.rest(until, is_closing),
                step => self.carry_out(step),
            }
        }
    }

    fn take_all(&mut self) {
        while let Ok(work) = self.given.try_recv() {
            self.backlog.push(work);
        }
    }

    /// Waits for work until a time. Returns whether no more can come.
    fn rest(&mut self, until: Timestamp, is_closing: bool) -> bool {
        let mut pause = Duration::from_nanos(until.since_ns(now()));
        let start = Instant::now();
        let until_due = self.backlog.pause(start);
        for left in until_due.into_iter().chain(self.commit_delay.pause(start, self.backlog.bytes())) {
            pause = pause.min(left);
        }
        if !self.purges.is_empty() && self.owner.is_serving() {
            pause = pause.min(IDLE_AFTER.saturating_sub(self.last_end.elapsed()));
        }
        if is_closing {
            std::thread::sleep(pause);
            return true;
        }
        match self.given.recv_timeout(pause) {
            Ok(work) => self.backlog.push(work),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
        }
        false
    }

    // ---- transactions ----

    /// Begins the next transaction if none is under way and there is something to do.
    fn begin_next(&mut self, is_closing: bool) {
        let is_delayed = self.commit_delay.pause(Instant::now(), self.backlog.bytes()).is_some();
        if self.under_way.is_some() || is_delayed && !is_closing {
            return;
        }
        let Some(transaction) = self.next_transaction(is_closing) else { return };
        if let Transaction::Append { appends, syncs } = &transaction
            && appends.is_empty()
        {
            // What is to be synced was committed before.
            for task in syncs.clone() {
                self.complete(task, 0, Ok(()));
            }
            return;
        }
        self.under_way = Some((transaction, Instant::now()));
        self.owner.begin();
    }

    fn next_transaction(&mut self, is_closing: bool) -> Option<Transaction> {
        let next = self.backlog.next(Instant::now(), is_closing);
        let may_purge = self.owner.is_serving() && self.last_end.elapsed() >= IDLE_AFTER;
        next.or_else(|| (may_purge && !self.purges.is_empty()).then_some(Transaction::Purge))
    }

    fn complete(&self, task: Task, elapsed_us: u64, result: io::Result<()>) {
        self.tell(task, elapsed_us, result);
        self.wake();
    }

    fn tell(&self, task: Task, elapsed_us: u64, result: io::Result<()>) {
        // If the receiver is gone, the process is ending.
        let _ = self.done.send(Completion { task, elapsed_us, result });
    }

    fn wake(&self) {
        if let Some(wake) = &*self.wake.lock().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }

    /// The transaction under way has ended.
    fn finish(&mut self, result: io::Result<()>) {
        let Some((transaction, start)) = self.under_way.take() else { return };
        let elapsed = start.elapsed();
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        if !matches!(transaction, Transaction::Purge) {
            self.last_end = Instant::now();
        }
        let copy = |result: &io::Result<()>| match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match transaction {
            Transaction::Append { appends, syncs } => {
                self.take_all();
                let bytes = appends.iter().map(|(_, bytes)| bytes.len()).sum();
                self.commit_delay.note_commit(
                    self.last_end,
                    elapsed,
                    // A reservation is appended without a client that waits for its commit.
                    syncs.len(),
                    bytes,
                    self.backlog.bytes(),
                );
                for task in syncs {
                    self.tell(task, elapsed_us, copy(&result));
                }
                self.wake();
            }
            Transaction::Do(task) => {
                if let (Task::Remove { file }, true) = (&task, result.is_ok()) {
                    self.purges.add(*file);
                }
                if let Task::Make { file, .. } = &task {
                    self.purges.cancel(*file);
                }
                self.complete(task, elapsed_us, result);
            }
            Transaction::Purge => {}
        }
    }

    // ---- steps ----

    fn carry_out(&mut self, step: Step) {
        let was_serving = self.owner.is_serving();
        self.limit_waits();
        let (step, answer) = match step {
            Step::Connect => (step, self.connect()),
            Step::Raise(epoch) => (step, self.raise(epoch)),
            Step::Look(epoch) => (step, self.look(epoch)),
            Step::Beat(epoch) => match self.commit(epoch, true, false) {
                Ok(()) => (step, Answer::Done),
                Err(failure) => (step, self.answer_of(failure)),
            },
            Step::Commit { epoch, beats } => match self.commit(epoch, beats, true) {
                Ok(()) => (step, Answer::Done),
                Err(failure) if failure.is_lack_of_room() => match self.await_room(epoch, &failure) {
                    Some(answer) => (Step::Beat(epoch), answer),
                    None => return,
                },
                Err(failure) => (step, self.answer_of(failure)),
            },
            Step::Rest(_) | Step::End(_) => return,
        };
        let is_committed = self.owner.answered(step, answer, now());
        self.publish_lease();
        self.figures.epoch.store(self.owner.epoch(), Relaxed);
        if matches!(answer, Answer::Lost | Answer::Busy) {
            self.session = None;
        }
        if !self.owner.is_serving() && matches!(self.under_way, Some((Transaction::Purge, _))) {
            // No command waits for it, and it is begun again later.
            self.owner.abandon();
            self.under_way = None;
        }
        if was_serving && !self.owner.is_serving() {
            warn!(
                "{}: {}; nothing is acknowledged until the database confirms it",
                self.place(),
                self.trouble
            );
        }
        if !was_serving && self.owner.is_serving() {
            info!("{}: reached again; epoch {}", self.place(), self.owner.epoch());
        }
        if is_committed {
            self.finish(Ok(()));
        }
    }

    /// No step takes longer than this owner goes on without the database.
    fn limit_waits(&mut self) {
        let gives_up_at = self.owner.gives_up_at();
        let limit = gives_up_at.map(|at| Instant::now() + Duration::from_nanos(at.since_ns(now())));
        self.settings.log_in.limit = limit;
        if let Some(session) = &mut self.session {
            session.limit = limit;
        }
    }

    /// Tells the loop how long it may answer, and wakes it if it has fallen silent.
    fn publish_lease(&self) {
        let before = self.figures.lease();
        if before != self.owner.lease() {
            self.figures.set_lease(self.owner.lease());
            // The clock is read after this: the loop has read the old lease before, if it has found that it is over.
            if !before.holds(now()) {
                self.wake();
            }
        }
    }

    fn place(&self) -> String {
        format!("queue {} in {}", self.settings.url.queue, self.settings.url)
    }

    fn connect(&mut self) -> Answer {
        self.session = None;
        let opened = connect(&self.settings).and_then(|mut session| {
            let prepared = session.prepare(sql::PREPARED);
            prepared
                .map(|()| session)
                .map_err(|failure| (Unfit::Failed(failure.clone()), failure.to_string()))
        });
        match opened {
            Ok(session) => {
                self.figures.reconnects.fetch_add(1, Relaxed);
                self.ballast.look_again();
                self.session = Some(session);
                Answer::Done
            }
            Err((_, text)) => {
                if text != self.trouble {
                    warn!("{}: cannot connect to the database at {text}; trying again", self.place());
                    self.trouble = text;
                }
                Answer::Busy
            }
        }
    }

    fn raise(&mut self, epoch: u64) -> Answer {
        match self.try_raise(epoch) {
            Ok(answer) => answer,
            Err(failure) => self.answer_of(failure),
        }
    }

    fn try_raise(&mut self, epoch: u64) -> Result<Answer, Failure> {
        let Some(session) = &mut self.session else { return Ok(Answer::Lost) };
        let allow_async = i64::from(self.settings.allow_async);
        let values = [
            Value::Int(self.queue),
            Value::Int(as_int(epoch)),
            Value::Text(&self.owner_name),
            Value::Int(allow_async),
            Value::Int(self.clock.at(now())),
        ];
        let raised = session.run("raise", &values)?;
        if let Some(epoch) = raised.first().and_then(|row| number(row, 0)) {
            check_replication(session, self.settings.allow_async)?;
            return Ok(Answer::Raised(self.settings.seen.note(epoch)));
        }
        let rows = session.run("see_queue", &[Value::Text(&self.settings.url.queue)])?;
        let Some(row) = rows.first() else { return Ok(Answer::Refused) };
        let (found, owner) = (number(row, 1).unwrap_or(0), text(row, 2));
        if owner != self.owner_name && found >= as_int(epoch) {
            self.trouble = format!("the queue was taken over by {owner}, epoch {found}");
            return Ok(Answer::TakenOver);
        }
        self.trouble = if found < as_int(epoch) {
            format!("the database has epoch {found} of the queue and not {epoch}: it is an old copy")
        } else {
            "the database has stopped to replicate".to_owned()
        };
        Ok(Answer::Busy)
    }

    fn look(&mut self, epoch: u64) -> Answer {
        let (Some(session), Some((transaction, _))) = (&mut self.session, &self.under_way) else {
            return Answer::Lost;
        };
        let Transaction::Append { appends, .. } = transaction else {
            // Everything else may be done twice.
            return Answer::Absent;
        };
        let Some((at, _)) = appends.first() else { return Answer::Absent };
        let (file, start) = (Value::Int(at.file.into()), Value::Int(as_int(at.offset)));
        match session.run("look", &[Value::Int(self.queue), file, start, Value::Int(as_int(epoch))]) {
            Ok(rows) => match rows.first().map(|row| text(row, 0)) {
                None => Answer::NotProven,
                Some("t") => Answer::Done,
                Some(_) => Answer::Absent,
            },
            Err(failure) => self.answer_of(failure),
        }
    }

    /// Proves that this server is the owner: with a heartbeat if it `beats`, and with the transaction under way if it
    /// `has_work`.
    fn commit(&mut self, epoch: u64, beats: bool, has_work: bool) -> Result<(), Failure> {
        self.tickets += 1;
        let (queue, ticket) = (Value::Int(self.queue), self.tickets);
        let allow_async = self.settings.allow_async;
        let gone = || Failure::Lost("the connection is lost".to_owned());
        let session = self.session.as_mut().ok_or_else(gone)?;
        let proof = [queue, Value::Int(as_int(epoch)), Value::Int(allow_async.into()), Value::Int(ticket)];
        let clock = Value::Int(self.clock.at(now()));
        let transaction = self.under_way.as_ref().map(|(transaction, _)| transaction).filter(|_| has_work);
        let appends = match transaction {
            Some(Transaction::Append { appends, .. }) => &appends[..],
            _ => &[],
        };
        if beats {
            session.add("beat", &[&proof[..], &[clock]].concat(), false)?;
        } else if appends.is_empty() {
            session.add("prove", &proof, false)?;
        }
        match transaction {
            Some(Transaction::Append { .. }) => self
                .purges
                .begin(appends.iter().map(|(_, bytes)| bytes.len().div_ceil(sql::PIECE_BYTES)).sum()),
            Some(Transaction::Do(task)) => add_task(session, queue, task)?,
            Some(Transaction::Purge) => self.purges.begin_idle(),
            None => {}
        }
        for (index, (at, bytes)) in appends.iter().enumerate() {
            let proof = if index == 0 && !beats { &proof[..] } else { &[] };
            add_append(session, proof, queue, *at, bytes)?;
        }
        let purge = self.purges.next().filter(|_| transaction.is_some());
        if let Some((file, rows)) = purge {
            let file = Value::Int(file.into());
            session.add("purge_rows", &[queue, file, Value::Int(as_int(rows as u64))], false)?;
            session.add("purge_file", &[queue, file], false)?;
        }
        session.end();
        if !allow_async {
            session.add("standby_names", &[], false)?;
            session.end();
        }
        session.flush()?;
        let rows = session.rows();
        // The answer to what was sent behind it comes in any case.
        let names = if allow_async { Ok(Vec::new()) } else { session.rows() };
        let (rows, names) = (rows?, names?);
        if rows.first().and_then(|row| number(row, 0)) != Some(ticket) {
            return Err(Failure::Lost("the database has answered something else".to_owned()));
        }
        if !allow_async && names.first().is_none_or(|row| text(row, 0).is_empty()) {
            return Err(Failure::Lost("synchronous_standby_names is empty".to_owned()));
        }
        self.figures.note_commit();
        if has_work {
            self.ballast.note_commit();
        }
        if purge.is_some() {
            self.vacuum.note_deleted(self.purges.finish(rows.len() > 1), &self.settings);
        }
        Ok(())
    }

    fn answer_of(&mut self, failure: Failure) -> Answer {
        let answer = match &failure {
            Failure::Lost(_) => Answer::Lost,
            Failure::Refused { code, .. } => match code.get(..2) {
                // The proof divides by the number of rows that it has found.
                _ if code == "22012" => {
                    self.trouble =
                        "the epoch of the queue has changed, or the database has stopped to replicate"
                            .to_owned();
                    return Answer::NotProven;
                }
                // These rows are there: perhaps an answer was lost.
                _ if code == "23505" => Answer::Lost,
                Some("08" | "25" | "40" | "53" | "55" | "57") => Answer::Busy,
                _ => Answer::Refused,
            },
        };
        self.trouble = failure.to_string();
        answer
    }

    // ---- the end ----

    /// Says that all has failed, and takes what still comes.
    fn end(mut self, end: End) {
        let reason = match end {
            End::TakenOver | End::Refused => mem::take(&mut self.trouble),
            End::TimedOut => format!(
                "the database has confirmed nothing for {} s (--store-timeout): {}",
                self.settings.times.store_timeout_ns / 1_000_000_000,
                self.trouble
            ),
        };
        error!("{}: {reason}", self.place());
        let failed = || Err(io::Error::other(reason.clone()));
        self.finish(failed());
        // The loop must know of the failure even if it waits for no task.
        self.complete(Task::Sync(self.backlog.end()), 0, failed());
        for task in mem::take(&mut self.backlog).into_tasks() {
            self.complete(task, 0, failed());
        }
        while let Ok(work) = self.given.recv() {
            if let Some(task) = work.into_task() {
                self.complete(task, 0, failed());
            }
        }
    }

    /// Says that this server does not own the queue any more, so that another need not wait.
    fn hand_over(mut self) {
        let Some(mut session) = self.session.take().filter(|_| self.owner.is_serving()) else { return };
        let (epoch, clock) = (as_int(self.owner.epoch()), self.clock.at(now()));
        match session.run("hand_over", &[self.queue, epoch, clock].map(Value::Int)) {
            Ok(_) => session.close(),
            Err(failure) => warn!("{}: cannot hand the queue over: {failure}", self.place()),
        }
    }
}

/// Fails if the database has stopped to wait for its standbys since the last statement began.
fn check_replication(session: &mut Session, allow_async: bool) -> Result<(), Failure> {
    if allow_async {
        return Ok(());
    }
    let names = session.run("standby_names", &[])?;
    if names.first().is_none_or(|row| text(row, 0).is_empty()) {
        return Err(Failure::Lost("synchronous_standby_names is empty".to_owned()));
    }
    Ok(())
}
