//! The binlog's side of executing commands: check, **reserve**, mutate, **append**.
//!
//! Owns: how the queue's changes become records, and up to which record replies can be sent. Without a binlog
//! everything here does nothing, and every reply can be sent at once.

mod complete;
mod postponed;

use std::fmt;
use std::io;

use self::postponed::{Postponed, log_update};
use super::Executor;
use crate::binlog::{
    self, Binlog, BinlogError, Completion, Cooldown, DescribedLog, NoRoom, OpenError, RestoredReservation,
    SequenceNumber, SideEffects, Storage, StoreTask, WholeJob,
};
use crate::clock::Timestamp;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::{Body, JobId, JobRecord};
use crate::queue::{Change, JobView, Queue, SessionKey, SessionReservation};
use crate::tags::EncodedTags;
use crate::tube_name::TubeName;

/// The log, and the progress of its writes.
#[derive(Default)]
pub(crate) struct Persistence {
    log: Log,
    /// The last record of the last successful commit.
    written: SequenceNumber,
    /// How many replies that depend on no record were made since [`Persistence::take_settled_replies`] was last called.
    settled_replies: u32,
    /// Empty between commands; kept for its capacity.
    changes: Vec<Change>,
    /// A buffer for the tags of a job.
    tags: Vec<u8>,
    postponed: Postponed,
    asked: AskedRoom,
    /// How many tasks the store has done without an error: a disk that hangs does none.
    done_tasks: u64,
    /// The size of a file that the operator has set, in bytes, for the stats.
    pub(crate) file_bytes: u64,
}

/// The room for which a command has asked since the last changes. Only debug builds note it, and assert that no command
/// forgets to ask.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum AskedRoom {
    #[default]
    Nothing,
    /// For a new state of a job.
    Update,
    /// For a whole job.
    Job,
}

/// Whether there is a log.
#[derive(Default)]
#[allow(clippy::large_enum_variant, reason = "a server has one of these")]
enum Log {
    #[default]
    None,
    /// That of another program, until this one opens it.
    Described(Box<DescribedLog>),
    Open(OpenLog),
}

struct OpenLog {
    binlog: Binlog,
    /// Whether another server can take over the store, so that replies are sent only while this server has a lease.
    is_leased: bool,
    /// The reason why the log has ended; nothing that was not settled by then may be acknowledged.
    failure: Option<BinlogError>,
}

impl Log {
    #[inline]
    fn open(&self) -> Option<&OpenLog> {
        match self {
            Self::Open(open) => Some(open),
            Self::None | Self::Described(_) => None,
        }
    }

    #[inline]
    fn binlog(&self) -> Option<&Binlog> {
        self.open().map(|open| &open.binlog)
    }

    #[inline]
    fn binlog_mut(&mut self) -> Option<&mut Binlog> {
        match self {
            Self::Open(open) => Some(&mut open.binlog),
            Self::None | Self::Described(_) => None,
        }
    }
}

/// The tags of `job`, whose bytes may be in `room`.
fn tags_of<'a>(queue: &'a Queue, job: &JobView<'a>, room: &'a mut Vec<u8>) -> EncodedTags<'a> {
    match job.tags {
        Some(tags) => EncodedTags::of(queue.tags_for_log(job.record.id, room), tags),
        None => EncodedTags::NONE,
    }
}

/// The whole of `job`, whose tags may be in `room`.
fn whole<'a>(queue: &'a Queue, job: &'a JobView<'a>, room: &'a mut Vec<u8>) -> WholeJob<'a> {
    WholeJob { tags: tags_of(queue, job, room), ..WholeJob::plain(&job.record, job.tube, job.body) }
}

/// Logs a job's new state, for which room has been reserved.
fn append_state(binlog: &mut Binlog, job: &JobView<'_>, is_reservation: bool, now: Timestamp) {
    if is_reservation {
        binlog.append_reservation(&job.record, job.body.len(), now);
    } else {
        binlog.append_update(&job.record, job.body.len(), now);
    }
}

/// Logs the end of a job, with the effects of its tags, and how many puts directly before it belong to it
/// (`completes`).
fn append_end(binlog: &mut Binlog, queue: &Queue, end: &Change, completes: Option<u8>) {
    let Some((id, freed_group)) = end.deleted() else { return };
    let cooldown = queue.cooldown(id).map(|(tube, key, until)| Cooldown { tube: tube.as_str(), key, until });
    binlog.append_delete_with(id, &SideEffects { cooldown, freed_group, completes });
}

impl fmt::Debug for Persistence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Persistence").field("written", &self.written).finish_non_exhaustive()
    }
}

impl Persistence {
    /// No binlog, whose files would have this size.
    pub(crate) fn new(file_bytes: u64) -> Self {
        Self { file_bytes, ..Self::default() }
    }

    /// The log, to be read.
    #[inline]
    pub(crate) fn binlog(&self) -> Option<&Binlog> {
        self.log.binlog()
    }

    /// Notes that delays of jobs have ended.
    pub(super) fn note_end_of_delay(&mut self, now: Timestamp) {
        if let Some(binlog) = self.log.binlog_mut() {
            binlog.note_end_of_delay(now);
        }
    }

    /// Whether a put fits, together with its later delete. The queue stays unchanged in either case; the log may begin
    /// to make its next file, and may announce the ids. The length of its tube's name is asked only if there is a log.
    #[inline]
    pub(crate) fn room_for_put(
        &mut self,
        id: JobId,
        tube_len: impl FnOnce() -> usize,
        body: &Body,
        tags: &EncodedTags<'_>,
    ) -> Result<(), NoRoom> {
        self.note_asked(AskedRoom::Job);
        let Some(binlog) = self.log.binlog_mut() else { return Ok(()) };
        binlog.reserve_id(id)?;
        binlog.reserve_put(tube_len(), body.len(), tags)
    }

    /// Whether the log has room for the move of this job to a tube with this name. The queue stays unchanged in either
    /// case; the log may begin to make its next file.
    pub(crate) fn room_for_move(
        &mut self,
        queue: &Queue,
        id: JobId,
        tube: &str,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        self.note_asked(AskedRoom::Job);
        self.await_file()?;
        let (Some(binlog), Some(job)) = (self.log.binlog_mut(), queue.job(id)) else { return Ok(()) };
        let tags = match queue.tags_after_move(id, tube, now) {
            Some(tags) => {
                self.tags.clear();
                tags.encode(&mut self.tags).map_err(|_| NoRoom::Full)?;
                EncodedTags::of(&self.tags, tags)
            }
            None => tags_of(queue, &job, &mut self.tags),
        };
        // The log's record of the session may be in an older file, which will be removed with the job's record.
        let names = queue
            .session_reservation(id)
            .map(|SessionReservation { key, .. }| (key.identity.len(), key.name.len()));
        binlog.reserve_move(tube.len(), job.body.len(), &tags, names)
    }

    /// Whether a change of a job's state fits. The queue stays unchanged in either case; the log may begin to make its
    /// next file.
    pub(crate) fn room_for_update(&mut self) -> Result<(), NoRoom> {
        self.note_asked(AskedRoom::Update);
        self.await_file()?;
        self.log.binlog_mut().map_or(Ok(()), Binlog::reserve_update)
    }

    /// Whether a session's reservation of a job fits, if its identity and its name have these lengths.
    pub(crate) fn room_for_session_reservation(
        &mut self,
        identity_len: usize,
        name_len: usize,
    ) -> Result<(), NoRoom> {
        self.await_file()?;
        self.log.binlog_mut().map_or(Ok(()), |binlog| binlog.reserve_for_session(identity_len, name_len))
    }

    /// Notes what a command asks room for.
    #[inline]
    fn note_asked(&mut self, room: AskedRoom) {
        if cfg!(debug_assertions) {
            self.asked = self.asked.max(room);
        }
    }

    /// Logs the changes of the queue. Changes that must be logged before their replies have reserved room before. Other
    /// changes ([`Change::Postponable`], a reservation, a release without delay) are logged as soon as there is room.
    /// For the first reservation of a job that expires, the log has kept room.
    #[inline]
    pub(crate) fn log_changes(&mut self, queue: &mut Queue, now: Timestamp) {
        if queue.has_changes() {
            self.append_changes(queue, now);
        }
        if cfg!(debug_assertions) {
            self.asked = AskedRoom::Nothing;
        }
    }

    #[inline(never)]
    fn append_changes(&mut self, queue: &mut Queue, now: Timestamp) {
        if self.log.binlog().is_none() {
            return;
        }
        queue.swap_changes(&mut self.changes);
        self.append_listed(queue, now);
    }

    /// Logs the changes in `changes`, and empties it.
    fn append_listed(&mut self, queue: &mut Queue, now: Timestamp) {
        if let Some(binlog) = self.log.binlog_mut() {
            queue.drain_burials().for_each(|id| binlog.note_burial(id, now));
        }
        let mut changes = std::mem::take(&mut self.changes);
        for change in changes.drain(..) {
            let Some(binlog) = self.log.binlog_mut() else { break };
            match change {
                Change::SessionReserved(id) => drop(self.log_session_reservation(queue, id, now)),
                Change::Died(id) => self.log_death(queue, id, now),
                Change::Updated(id) | Change::Postponable(id) | Change::Reserved(id) => {
                    let has_asked = self.asked > AskedRoom::Nothing || !matches!(change, Change::Updated(_));
                    debug_assert!(has_asked, "room was asked for before {change:?}");
                    let is_reservation = matches!(change, Change::Reserved(_));
                    if let Some(job) = queue.job(id).filter(|_| !self.postponed.awaits_death(id)) {
                        log_update(binlog, &job, is_reservation, now);
                    }
                }
                Change::Deleted(id) => binlog.append_delete(id),
                Change::DeletedWithCooldown(_) | Change::DeletedLast(_) => {
                    append_end(binlog, queue, &change, None);
                }
                Change::CooldownOver(id) => binlog.forget_cooldown(id, now),
                Change::Put(id) => {
                    debug_assert!(self.asked == AskedRoom::Job, "room was asked for before {change:?}");
                    if let Some(job) = queue.job(id) {
                        binlog.append_put(&whole(queue, &job, &mut self.tags), now);
                    }
                }
                Change::Moved(id) => {
                    debug_assert!(self.asked == AskedRoom::Job, "room was asked for before {change:?}");
                    self.postponed.deaths.remove(&id);
                    if let Some(job) = queue.job(id) {
                        binlog.append_moved(&whole(queue, &job, &mut self.tags), now);
                    }
                }
            }
        }
        self.changes = changes;
    }

    /// Copies some live jobs out of the oldest file, logs postponed changes, and writes everything that was logged
    /// since the last commit.
    pub(crate) fn commit(&mut self, queue: &Queue, now: Timestamp) {
        self.migrate(queue, now);
        self.catch_up(queue, now);
        let Some(binlog) = self.log.binlog_mut() else { return };
        match binlog.commit(now) {
            Ok(()) => self.written = binlog.appended(),
            Err(error) => self.fail(error),
        }
    }

    /// Copies live jobs out of the oldest file, up to the limit for a turn, and as far as there is room.
    fn migrate(&mut self, queue: &Queue, now: Timestamp) {
        while let Some(binlog) = self.log.binlog_mut()
            && let Some(id) = binlog.next_migration()
            && let Some(job) = queue.job(id)
        {
            let job = whole(queue, &job, &mut self.tags);
            // The log has kept room for a copy of the job as it was before it went to its dead tube.
            if self.postponed.deaths.contains(&id) && !binlog.has_room_for_copy(&job) {
                break;
            }
            binlog.append_migrated(&job, now);
            // The oldest file's record of the session is removed with the file.
            if queue.session_reservation(id).is_some() {
                let _ = self.log_session_reservation_by(queue, id, Binlog::append_session_reservation_copy);
            }
        }
    }

    /// Writes the facts that another program needs to take over the log.
    pub(crate) fn describe(&self, out: &mut Writer<'_>) {
        self.log.binlog().is_some().describe(out);
        if let Some(binlog) = self.log.binlog() {
            binlog.describe(out);
        }
    }

    /// Reads the facts that [`Persistence::describe`] has written, about a log with the jobs of this queue.
    pub(crate) fn read_description(&mut self, from: &mut Reader<'_>, queue: &Queue) -> Result<(), Malformed> {
        if from.value()? {
            let log = DescribedLog::read(from)?;
            if !log.jobs().eq(queue.job_ids()) {
                return Err(Malformed("the log and the queue have different jobs"));
            }
            self.log = Log::Described(Box::new(log));
        }
        Ok(())
    }

    fn attach_log(&mut self, binlog: Binlog) {
        self.written = binlog.appended();
        let is_leased = binlog.lease_left_ns().is_some();
        self.log = Log::Open(OpenLog { binlog, is_leased, failure: None });
    }

    fn fail(&mut self, error: BinlogError) {
        if let Log::Open(open) = &mut self.log {
            open.failure.get_or_insert(error);
        }
    }

    /// Does the log's work that is due.
    #[inline]
    pub(crate) fn advance(&mut self, now: Timestamp) {
        let Some(binlog) = self.log.binlog_mut() else { return };
        if binlog.next_deadline().is_some_and(|at| at <= now)
            && let Err(error) = binlog.on_deadline(now)
        {
            self.fail(error);
        }
    }

    /// Starts the thread on which the store of the binlog does its slow work, if there is a binlog. It calls `wake`
    /// when some work is done.
    ///
    /// # Errors
    /// If the system provides no thread.
    pub(crate) fn start_binlog(&mut self, wake: impl Fn() + Send + 'static) -> io::Result<()> {
        self.log.binlog_mut().map_or(Ok(()), |binlog| binlog.start(Box::new(wake)))
    }

    /// Sets how far the wall clock is ahead of the clock of the turns, in nanoseconds, if a binlog needs it.
    pub(crate) fn set_wall_offset(&mut self, offset_ns: impl FnOnce() -> i64) {
        if let Some(binlog) = self.log.binlog_mut() {
            binlog.set_wall_offset(offset_ns());
        }
    }

    /// How many tasks the binlog's store has done without an error.
    pub(crate) fn done_tasks(&self) -> u64 {
        self.done_tasks
    }

    /// See [`Binlog::is_ready_to_quiesce`].
    pub(crate) fn is_ready_to_quiesce(&mut self) -> bool {
        self.log.binlog_mut().is_none_or(Binlog::is_ready_to_quiesce)
    }

    /// Interrupts the making of a file of the binlog, unless it is needed now.
    pub(crate) fn interrupt_making(&mut self) {
        if !self.lacks_anything()
            && let Some(binlog) = self.log.binlog_mut()
        {
            binlog.interrupt_making();
        }
    }

    /// When the tasks of the binlog's store begin, if it has any that have not begun.
    pub(crate) fn store_tasks_begin_at(&self) -> Option<Timestamp> {
        self.log.binlog().and_then(Binlog::tasks_begin_at)
    }

    /// Begins the tasks of the binlog's store.
    pub(crate) fn begin_store_tasks(&mut self) {
        if let Some(binlog) = self.log.binlog_mut() {
            binlog.begin_tasks();
        }
    }

    /// The next completion of the binlog's store.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.log.binlog_mut().and_then(Binlog::next_completion)
    }

    /// The last record for which replies can be sent.
    pub(crate) fn settled(&self) -> SequenceNumber {
        let Self { log, written, .. } = self;
        log.binlog().filter(|binlog| binlog.waits_for_medium()).map_or(*written, Binlog::durable)
    }

    /// The record for which replies about all changes so far wait; `None` without a binlog.
    #[inline]
    pub(crate) fn awaited(&self) -> Option<SequenceNumber> {
        self.log.binlog().map(Binlog::awaited)
    }

    /// How many of the replies since the last call depend on no record.
    #[inline]
    pub(crate) fn take_settled_replies(&mut self) -> u32 {
        std::mem::take(&mut self.settled_replies)
    }

    /// Whether another server can take over the store, so that replies are sent only while this server has a lease.
    #[inline]
    pub(crate) fn is_leased(&self) -> bool {
        self.log.open().is_some_and(|open| open.is_leased)
    }

    /// For how long replies can be sent from now on; without a lease, there is no limit.
    pub(crate) fn lease_left_ns(&self) -> u64 {
        self.log.binlog().and_then(Binlog::lease_left_ns).unwrap_or(u64::MAX)
    }

    /// Whether the log lacks changes for which there has been no room, other than states of jobs. Another program could
    /// not take these over.
    pub(crate) fn lacks_more_than_states(&self) -> bool {
        let Self { log, postponed, .. } = self;
        log.binlog().is_some_and(Binlog::lacks_needed_changes) || !postponed.is_empty()
    }

    /// Whether the log lacks anything for which there has been no room.
    fn lacks_anything(&self) -> bool {
        self.lacks_more_than_states() || self.log.binlog().is_some_and(Binlog::lacks_states)
    }
}

impl Executor {
    /// Restores a job that was replayed from the binlog, with its encoded tags.
    ///
    /// # Panics
    /// If the allocator has no memory.
    pub fn restore(&mut self, record: &JobRecord, tube: &TubeName, body: Body, tags: &[u8], now: Timestamp) {
        let restored = self.queue.restore(record, tube.as_str(), body, tags, now);
        restored.expect("a start without memory for its jobs fails");
    }

    /// From now on every change is logged. `next_job_id` is the first id that was never assigned.
    ///
    /// # Panics
    /// If the allocator has no memory.
    pub fn keep_binlog(&mut self, mut binlog: Binlog, next_job_id: u64, now: Timestamp) {
        for (id, Cooldown { tube, key, until }) in binlog.cooldowns() {
            self.queue.restore_cooldown(id, tube, key, until, now);
        }
        self.queue.finish_restore(next_job_id, now);
        self.queue.keep_changes();
        for RestoredReservation { id, until, grace_ms, identity, name } in binlog.take_restored_reservations()
        {
            let key = SessionKey { identity: (*identity).into(), name: (*name).into() };
            let restored = self.queue.restore_session_reservation(id, &key, grace_ms, until, now);
            restored.expect("a start without memory for its jobs fails");
        }
        self.persistence.attach_log(binlog);
    }

    /// Handles a completion of the binlog's store.
    pub(crate) fn binlog_completed(&mut self, completion: Completion, now: Timestamp) {
        let Some(binlog) = self.persistence.log.binlog_mut() else { return };
        self.persistence.done_tasks += u64::from(completion.result.is_ok());
        if matches!(completion.task, StoreTask::Sync(_)) && completion.result.is_ok() {
            self.counters.timings.syncs.observe(completion.elapsed_us.saturating_mul(1000), 1);
        }
        if let Err(error) = binlog.on_completion(completion, now) {
            self.persistence.fail(error);
        }
        // Copies and postponed changes come before the commands that wait for room: the commands could take all of it,
        // and without copies no file would ever be removed. If the changes take several turns, each has one share.
        self.persistence.migrate(&self.queue, now);
        if !self.persistence.is_catching_up() {
            self.persistence.catch_up(&self.queue, now);
        }
        self.wake_orders();
    }

    /// Notes that the next reply is RESERVED. The reply depends on no record if a restart finds the job in any case,
    /// because it contains nothing else from the log. A job with tags may be free because of a change that a restart
    /// does not find.
    pub(crate) fn note_reserved(&mut self, id: JobId) {
        let Some(binlog) = self.persistence.log.binlog() else { return };
        if binlog.has_on_medium(id)
            && !self.queue.has_tags(id)
            && self.queue.session_reservation(id).is_none()
        {
            self.persistence.settled_replies += 1;
        }
    }

    /// Asserts every invariant of the log. The cost grows with the number of jobs.
    pub(super) fn check_binlog(&self) {
        assert_eq!(self.persistence.settled_replies, 0, "each settled reply was counted for its connection");
        let Persistence { log, written, changes, .. } = &self.persistence;
        assert!(changes.is_empty(), "the changes of each command are logged");
        let Some(binlog) = log.binlog() else { return };
        binlog.check_invariants();
        if !self.has_failed() {
            assert!(*written <= binlog.appended(), "the written position is at most the appended one");
            assert!(binlog.durable() <= *written, "the durable position is at most the written one");
        }
    }

    /// Whether the log has ended because the disk has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.persistence.log.open().is_some_and(|open| open.failure.is_some())
    }

    /// Ends the log at a clean exit.
    ///
    /// # Errors
    /// If the disk has failed, now or before.
    pub fn close_binlog(&mut self, now: Timestamp) -> Result<(), BinlogError> {
        if !self.has_failed() {
            self.persistence.catch_up_at_once(&self.queue, now);
            if self.persistence.lacks_anything() {
                // A file that is being made or removed makes room.
                self.quiesce_binlog(now);
            }
        }
        let Log::Open(open) = &mut self.persistence.log else { return Ok(()) };
        open.failure.take().map_or_else(|| open.binlog.close(now), Err)
    }

    /// Logs all changes, makes them as durable as the policy requires, and waits for that: the server ends, or another
    /// program is about to take over the log. Changes that wait for the next file get it.
    pub fn quiesce_binlog(&mut self, now: Timestamp) {
        loop {
            self.persistence.catch_up_at_once(&self.queue, now);
            let needs_room = self.persistence.lacks_anything();
            let Some(binlog) = self.persistence.log.binlog_mut() else { return };
            match binlog.quiesce(needs_room, now) {
                // If no program takes over, copies have come before the commands that wait for room, as always.
                Ok(true) => self.persistence.migrate(&self.queue, now),
                Ok(false) => return,
                Err(error) => return self.persistence.fail(error),
            }
        }
    }

    /// Whether another program could not take over the log: it lacks more than states of jobs, or has changes that are
    /// not written.
    #[must_use]
    pub fn has_unlogged_changes(&self) -> bool {
        let Persistence { log, postponed, .. } = &self.persistence;
        !log.binlog().is_none_or(Binlog::is_quiesced) || !postponed.is_empty()
    }

    /// From now on every change is logged, in the log of the description. `wall_offset_ns` is the wall clock less the
    /// clock of `now`.
    ///
    /// # Errors
    /// If the description has no log, or the files are not the files of the other program.
    pub fn continue_with_binlog(
        &mut self,
        storage: Box<dyn Storage>,
        config: binlog::Config,
        now: Timestamp,
        wall_offset_ns: i64,
    ) -> Result<(), OpenError> {
        debug_assert!(self.persistence.log.binlog().is_none(), "a log is opened once");
        let Log::Described(log) = std::mem::take(&mut self.persistence.log) else {
            let error = io::Error::new(io::ErrorKind::NotFound, "the other program had no binlog");
            return Err(OpenError::List(error));
        };
        let binlog = Binlog::resume(storage, config, *log, now, wall_offset_ns)?;
        self.queue.keep_changes();
        self.persistence.attach_log(binlog);
        Ok(())
    }
}
