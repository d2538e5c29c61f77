//! The helper thread: one transaction after another, and heartbeats in between.
//!
//! Owns: the connection of the owner, and the pending transaction. [`Backlog`] and [`Purges`] decide the contents of
//! the next transaction, [`Owner`] the reaction to an answer; this file carries the decisions out.

use std::io;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{error, info, warn};

use super::backlog::{Backlog, StoreRequest, Transaction};
use super::ballast::Ballast;
use super::claim::{Claim, HostError, connect};
use super::commit_delay::CommitDelay;
use super::figures::StoreFigures;
use super::purges::Purges;
use super::sql::{SqlValue, int};
use super::statements::OwnedQueue;
use super::vacuum::Vacuum;
use super::wire::{DatabaseConnection, ResultRow, StatementError, first_number};
use super::{Settings, now, sql};
use crate::clock::Timestamp;
use crate::ownership::{Owner, OwnerStep, OwnershipEnd, StepAnswer};
use crate::storage::{Completion, StoreTask};

mod room;

/// The function that wakes the loop; `None` before the loop runs.
pub(super) type Wake = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

/// The thread's link to the loop.
pub(super) struct LoopLink {
    pub(super) given: Receiver<StoreRequest>,
    pub(super) done: Sender<Completion>,
    pub(super) wake: Wake,
}

impl LoopLink {
    fn complete(&self, task: StoreTask, elapsed_us: u64, result: io::Result<()>) {
        self.send(task, elapsed_us, result);
        self.wake();
    }

    /// Sends an outcome; the caller must then call [`LoopLink::wake`].
    fn send(&self, task: StoreTask, elapsed_us: u64, result: io::Result<()>) {
        // If the receiver has been dropped, the process is ending.
        let _ = self.done.send(Completion { task, elapsed_us, result });
    }

    fn wake(&self) {
        if let Some(wake) = &*self.wake.lock().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }
}

/// The connection of the owner.
struct OwnerConnection {
    open: Option<DatabaseConnection>,
    /// The reason why there is no working connection, or why it has ended.
    trouble: String,
}

/// The contents of a transaction that proves that this server is the owner.
#[derive(Clone, Copy)]
struct Proof {
    /// Whether it has a heartbeat.
    beats: bool,
    /// Whether it is the pending transaction.
    has_work: bool,
}

impl Proof {
    const HEARTBEAT: Self = Self { beats: true, has_work: false };
}

pub(super) struct PostgresHelper {
    settings: Settings,
    link: LoopLink,
    owner: Owner,
    queue: OwnedQueue,
    connection: OwnerConnection,
    backlog: Backlog,
    under_way: Option<(Transaction, Instant)>,
    commit_delay: CommitDelay,
    purges: Purges,
    vacuum: Vacuum,
    ballast: Ballast,
    figures: Arc<StoreFigures>,
}

impl PostgresHelper {
    pub(super) fn new(settings: Settings, claim: Claim, link: LoopLink, figures: Arc<StoreFigures>) -> Self {
        let Claim { connection, queue, epoch, sent_at, removed } = claim;
        let owner = Owner::new(settings.times, epoch, sent_at);
        figures.set_lease(owner.lease());
        Self {
            settings,
            link,
            owner,
            ballast: Ballast::new(Arc::clone(&figures), queue.id),
            queue,
            connection: OwnerConnection { open: Some(connection), trouble: String::new() },
            backlog: Backlog::default(),
            under_way: None,
            commit_delay: CommitDelay::default(),
            purges: Purges::new(removed, Instant::now()),
            vacuum: Vacuum::new(Arc::clone(&figures)),
            figures,
        }
    }

    /// Works until no more work can come, and then releases the ownership of the queue.
    pub(super) fn run(mut self) {
        let mut is_closing = false;
        loop {
            self.take_all();
            self.ballast.tend(&self.settings);
            self.begin_next(is_closing);
            match self.owner.next(now()) {
                OwnerStep::End(end) => return self.end(end),
                OwnerStep::Sleep(_) if is_closing && self.under_way.is_none() => return self.release_queue(),
                OwnerStep::Sleep(until) => is_closing |= self.sleep(until, is_closing),
                step @ (OwnerStep::Connect
                | OwnerStep::Raise(_)
                | OwnerStep::CheckCommit(_)
                | OwnerStep::Commit { .. }
                | OwnerStep::Beat(_)) => self.carry_out(step),
            }
        }
    }

    fn take_all(&mut self) {
        let now = Instant::now();
        while let Ok(request) = self.link.given.try_recv() {
            self.backlog.push(request, now);
        }
    }

    /// Waits for work until a time. Returns whether no more can come.
    fn sleep(&mut self, until: Timestamp, is_closing: bool) -> bool {
        let mut pause = Duration::from_nanos(until.since_ns(now()));
        let start = Instant::now();
        let purge = self.purges.pause(start).filter(|_| self.owner.is_serving());
        let delay = self.commit_delay.pause(start, self.backlog.bytes());
        for left in [self.backlog.pause(start), delay, purge].into_iter().flatten() {
            pause = pause.min(left);
        }
        if is_closing {
            std::thread::sleep(pause);
            return true;
        }
        match self.link.given.recv_timeout(pause) {
            Ok(request) => self.backlog.push(request, Instant::now()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
        }
        false
    }

    // ---- transactions ----

    /// Begins the next transaction if none is pending and there is work.
    fn begin_next(&mut self, is_closing: bool) {
        let is_delayed = self.commit_delay.pause(Instant::now(), self.backlog.bytes()).is_some();
        if self.under_way.is_some() || is_delayed && !is_closing {
            return;
        }
        let Some(transaction) = self.next_transaction(is_closing) else { return };
        if let Transaction::Append { appends, syncs } = &transaction
            && appends.is_empty()
        {
            // Everything to be synced was committed before.
            for task in syncs.clone() {
                self.link.complete(task, 0, Ok(()));
            }
            return;
        }
        self.under_way = Some((transaction, Instant::now()));
        self.owner.begin();
    }

    fn next_transaction(&mut self, is_closing: bool) -> Option<Transaction> {
        let now = Instant::now();
        let may_purge = self.owner.is_serving() && self.purges.pause(now) == Some(Duration::ZERO);
        self.backlog.next(now, is_closing).or_else(|| may_purge.then_some(Transaction::Purge))
    }

    /// Ends the pending transaction.
    fn finish(&mut self, result: io::Result<()>) {
        let Some((transaction, start)) = self.under_way.take() else { return };
        let (now, elapsed) = (Instant::now(), start.elapsed());
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        if !matches!(transaction, Transaction::Purge) {
            self.purges.note_commit(now);
        }
        match transaction {
            Transaction::Append { appends, syncs } => {
                self.take_all();
                let bytes = appends.iter().map(|(_, bytes)| bytes.len()).sum();
                // Reservations are appended without clients that wait for their commit.
                self.commit_delay.note_commit(now, elapsed, syncs.len(), bytes, self.backlog.bytes());
                for task in syncs {
                    let result = result.as_ref().copied();
                    let result = result.map_err(|error| io::Error::new(error.kind(), error.to_string()));
                    self.link.send(task, elapsed_us, result);
                }
                self.link.wake();
            }
            Transaction::Do(task) => {
                match task {
                    StoreTask::Remove { file } if result.is_ok() => self.purges.add(file),
                    StoreTask::Make { file, .. } => self.purges.cancel(file),
                    StoreTask::Remove { .. } | StoreTask::Shorten { .. } | StoreTask::Sync(_) => {}
                }
                self.link.complete(task, elapsed_us, result);
            }
            Transaction::Purge => {}
        }
    }

    // ---- steps ----

    fn carry_out(&mut self, step: OwnerStep) {
        let was_serving = self.owner.is_serving();
        self.limit_waits();
        let answer = match step {
            OwnerStep::Connect => Ok(self.connect()),
            OwnerStep::Raise(epoch) => self.raise(epoch),
            OwnerStep::CheckCommit(epoch) => self.check_commit(epoch),
            OwnerStep::Beat(epoch) => self.commit(epoch, Proof::HEARTBEAT),
            OwnerStep::Commit { epoch, beats } => match self.commit(epoch, Proof { beats, has_work: true }) {
                Err(failure) if failure.is_lack_of_room() => match self.await_room(epoch, &failure) {
                    Some(answer) => answer,
                    None => return,
                },
                answer => answer,
            },
            OwnerStep::Sleep(_) | OwnerStep::End(_) => return,
        };
        let answer = answer.unwrap_or_else(|failure| self.answer_of(failure));
        let is_committed = self.owner.answered(answer, now());
        self.publish_lease();
        self.figures.epoch.store(self.owner.epoch(), Relaxed);
        if matches!(answer, StepAnswer::Lost | StepAnswer::Busy) {
            self.connection.open = None;
        }
        if !self.owner.is_serving() && matches!(self.under_way, Some((Transaction::Purge, _))) {
            // No command waits for a purge, and the helper begins it again later.
            self.owner.abandon();
            self.under_way = None;
        }
        if was_serving && !self.owner.is_serving() {
            warn!(
                "{}: {}; nothing is acknowledged until the database confirms it",
                self.queue_address(),
                self.connection.trouble
            );
        }
        if !was_serving && self.owner.is_serving() {
            info!("{}: reached again; epoch {}", self.queue_address(), self.owner.epoch());
        }
        if is_committed {
            self.finish(Ok(()));
        }
    }

    /// Limits each step to the time for which this owner continues without the database.
    fn limit_waits(&mut self) {
        let gives_up_at = self.owner.gives_up_at();
        let limit = gives_up_at.map(|at| Instant::now() + Duration::from_nanos(at.since_ns(now())));
        self.settings.log_in.limit = limit;
        if let Some(connection) = &mut self.connection.open {
            connection.limit = limit;
        }
    }

    /// Publishes until when the loop may reply, and wakes the loop if it has stopped replying.
    fn publish_lease(&self) {
        let before = self.figures.lease();
        if before != self.owner.lease() {
            self.figures.set_lease(self.owner.lease());
            // The clock is read after this: if the loop found the old lease expired, it had read it before.
            if !before.is_valid_at(now()) {
                self.link.wake();
            }
        }
    }

    fn queue_address(&self) -> String {
        format!("queue {} in {}", self.settings.url.queue, self.settings.url)
    }

    fn connect(&mut self) -> StepAnswer {
        self.connection.open = None;
        let opened = connect(&self.settings).and_then(|mut connection| {
            let prepared = connection.prepare(sql::PREPARED);
            prepared
                .map(|()| connection)
                .map_err(|failure| (HostError::Failed(failure.clone()), failure.to_string()))
        });
        match opened {
            Ok(connection) => {
                self.figures.reconnects.fetch_add(1, Relaxed);
                self.ballast.check_again();
                self.connection.open = Some(connection);
                StepAnswer::Connected
            }
            Err((_, text)) => {
                if text != self.connection.trouble {
                    warn!("{}: cannot connect to the database at {text}; trying again", self.queue_address());
                    self.connection.trouble = text;
                }
                StepAnswer::Busy
            }
        }
    }

    fn raise(&mut self, epoch: u64) -> Result<StepAnswer, StatementError> {
        let OwnerConnection { open: Some(connection), trouble } = &mut self.connection else {
            return Ok(StepAnswer::Lost);
        };
        let Settings { owner: own_name, allow_async, seen, url, .. } = &self.settings;
        let values = [
            int(self.queue.id),
            int(epoch),
            SqlValue::Text(own_name.as_str()),
            int(*allow_async),
            self.queue.time(),
        ];
        if let Some(epoch) = first_number(&connection.run(&sql::RAISE, &values)?) {
            if !allow_async {
                check_replication(&connection.run(&sql::STANDBY_NAMES, &[])?)?;
            }
            return Ok(StepAnswer::Raised(seen.note(epoch)));
        }
        let rows = connection.run(&sql::SEE_QUEUE, &[SqlValue::Text(&url.queue)])?;
        let Some(row) = rows.first() else { return Ok(StepAnswer::Refused) };
        let (found, owner) = (row.natural(1).unwrap_or(0), row.text(2));
        if owner != own_name.as_str() && found >= epoch {
            *trouble = format!("the queue was taken over by {owner}, epoch {found}");
            return Ok(StepAnswer::TakenOver);
        }
        *trouble = if found < epoch {
            format!("the database has epoch {found} of the queue and not {epoch}: it is an old copy")
        } else {
            "the database has stopped replicating".to_owned()
        };
        Ok(StepAnswer::Busy)
    }

    fn check_commit(&mut self, epoch: u64) -> Result<StepAnswer, StatementError> {
        let (Some(connection), Some((transaction, _))) = (&mut self.connection.open, &self.under_way) else {
            return Ok(StepAnswer::Lost);
        };
        // Everything except an append may be done twice.
        let Transaction::Append { appends, .. } = transaction else { return Ok(StepAnswer::Absent) };
        let Some((at, _)) = appends.first() else { return Ok(StepAnswer::Absent) };
        let values = [int(self.queue.id), int(at.file), int(at.offset), int(epoch)];
        let rows = connection.run(&sql::IS_APPENDED, &values)?;
        Ok(match rows.first().map(|row| row.text(0)) {
            None => StepAnswer::NotProven,
            Some("t") => StepAnswer::Committed,
            Some(_) => StepAnswer::Absent,
        })
    }

    /// Proves that this server is the owner.
    fn commit(&mut self, epoch: u64, Proof { beats, has_work }: Proof) -> Result<StepAnswer, StatementError> {
        let proof = self.queue.proof(epoch);
        let gone = || StatementError::Lost("the connection is lost".to_owned());
        let connection = self.connection.open.as_mut().ok_or_else(gone)?;
        let transaction = self.under_way.as_ref().map(|(transaction, _)| transaction).filter(|_| has_work);
        let purge = add_statements(connection, &self.queue, &proof, beats, transaction, &mut self.purges)?;
        let (rows, names) = commit_and_ask(connection, self.queue.allow_async)?;
        if first_number(&rows) != Some(self.queue.ticket) {
            return Err(StatementError::Lost("the database has answered something else".to_owned()));
        }
        if let Some(names) = names {
            check_replication(&names)?;
        }
        self.figures.note_commit();
        if has_work {
            self.ballast.note_commit();
        }
        if purge.is_some() {
            self.vacuum.note_deleted(self.purges.finish(rows.len() > 1), &self.settings);
        }
        Ok(if has_work { StepAnswer::Committed } else { StepAnswer::Beat })
    }

    fn answer_of(&mut self, failure: StatementError) -> StepAnswer {
        let answer = match &failure {
            StatementError::Lost(_) => StepAnswer::Lost,
            // The proof divides by the number of rows that it has found.
            StatementError::Refused { code, .. } if code == sql::DIVISION_BY_ZERO => {
                self.connection.trouble =
                    "the epoch of the queue has changed, or the database has stopped replicating".to_owned();
                return StepAnswer::NotProven;
            }
            // The rows of this step exist: an earlier answer may have been lost.
            StatementError::Refused { code, .. } if code == sql::UNIQUE_VIOLATION => StepAnswer::Lost,
            refused if refused.is_transient() => StepAnswer::Busy,
            StatementError::Refused { .. } => StepAnswer::Refused,
        };
        self.connection.trouble = failure.to_string();
        answer
    }

    // ---- the end ----

    /// Reports that all work has failed, and fails all further work.
    fn end(mut self, end: OwnershipEnd) {
        let reason = match end {
            OwnershipEnd::TakenOver | OwnershipEnd::Refused => mem::take(&mut self.connection.trouble),
            OwnershipEnd::TimedOut => format!(
                "the database has confirmed nothing for {} s (--store-timeout): {}",
                self.settings.times.store_timeout_ns / 1_000_000_000,
                self.connection.trouble
            ),
        };
        error!("{}: {reason}", self.queue_address());
        let failed = || Err(io::Error::other(reason.clone()));
        self.finish(failed());
        // The loop must get the failure even if it waits for no task.
        self.link.complete(StoreTask::Sync(self.backlog.end()), 0, failed());
        for task in mem::take(&mut self.backlog).into_tasks() {
            self.link.complete(task, 0, failed());
        }
        while let Ok(request) = self.link.given.recv() {
            if let Some(task) = request.into_task() {
                self.link.complete(task, 0, failed());
            }
        }
    }

    /// Releases the ownership of the queue, so that another server need not wait.
    fn release_queue(mut self) {
        let Some(mut connection) = self.connection.open.take().filter(|_| self.owner.is_serving()) else {
            return;
        };
        match self.queue.release(&mut connection, self.owner.epoch()) {
            Ok(()) => connection.close(),
            Err(failure) => warn!("{}: cannot hand the queue over: {failure}", self.queue_address()),
        }
    }
}

/// Adds the proof and the statements of `transaction`. Returns which rows of a removed file are deleted with it.
fn add_statements(
    connection: &mut DatabaseConnection,
    queue: &OwnedQueue,
    proof: &[SqlValue<'_>],
    beats: bool,
    transaction: Option<&Transaction>,
    purges: &mut Purges,
) -> Result<Option<(u32, usize)>, StatementError> {
    let appends = match transaction {
        Some(Transaction::Append { appends, .. }) => &appends[..],
        Some(Transaction::Do(_) | Transaction::Purge) | None => &[],
    };
    if beats {
        connection.add(&sql::BEAT, &[proof, &[queue.time()]].concat())?;
    } else if appends.is_empty() {
        connection.add(&sql::PROVE, proof)?;
    }
    match transaction {
        Some(Transaction::Append { .. }) => {
            purges.begin(appends.iter().map(|(_, bytes)| bytes.len().div_ceil(sql::PIECE_BYTES)).sum());
        }
        Some(Transaction::Do(task)) => queue.add_task(connection, task)?,
        Some(Transaction::Purge) => purges.begin_idle(),
        None => {}
    }
    for (index, (at, bytes)) in appends.iter().enumerate() {
        let proof = if index == 0 && !beats { proof } else { &[] };
        queue.add_append(connection, proof, *at, bytes)?;
    }
    let purge = purges.next().filter(|_| transaction.is_some());
    if let Some((file, rows)) = purge {
        connection.add(&sql::PURGE_ROWS, &[int(queue.id), int(file), int(rows as u64)])?;
        connection.add(&sql::PURGE_FILE, &[int(queue.id), int(file)])?;
    }
    connection.end();
    Ok(purge)
}

/// Sends the transaction. Returns its rows, and then the names of the database's standbys, unless `allow_async`.
fn commit_and_ask(
    connection: &mut DatabaseConnection,
    allow_async: bool,
) -> Result<(Vec<ResultRow>, Option<Vec<ResultRow>>), StatementError> {
    if !allow_async {
        connection.add(&sql::STANDBY_NAMES, &[])?;
        connection.end();
    }
    connection.flush()?;
    let rows = connection.rows();
    // The answer to the statement sent after it comes in any case.
    let names = (!allow_async).then(|| connection.rows());
    Ok((rows?, names.transpose()?))
}

/// Fails if the database no longer waits for its standbys, whose names are in `rows`.
fn check_replication(rows: &[ResultRow]) -> Result<(), StatementError> {
    match rows.first().map_or("", |row| row.text(0)) {
        "" => Err(StatementError::Lost("synchronous_standby_names is empty".to_owned())),
        _ => Ok(()),
    }
}
