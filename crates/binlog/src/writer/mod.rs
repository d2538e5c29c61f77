//! The open log: what is written, when, and in which order.
//!
//! Owns: the state of the log by subject. `append` has the calls that log a change, `unlogged` the changes without
//! room; `markers` writes the markers between records, `appender` has the bytes of the turn, and `room` the space;
//! `files_ahead` makes the next files; `compaction` copies jobs out of old files and removes these; `durability` knows
//! what is synced and when the next sync is due; `ids` knows which job ids are announced; `rest` ends a run. [`Binlog`]
//! puts them together: this file states the order of a commit and the consequences of each task's outcome. Never reads
//! a clock: the server passes `now`. Never waits, except at the start and in `rest`: slow work is submitted to the
//! store as a [`StoreTask`]. Driven by the server, once per turn and for each [`Completion`].

use super::cooldowns::Cooldowns;
use super::files::Files;
use super::marker::MarkerKind;
use super::replay::RestoredReservation;
use super::storage::{Completion, DatabaseFigures, Storage, StoreTask, is_lack_of_room};
use super::wall_clock::WallOffset;
use super::{BinlogError, Config, LogPosition, SequenceNumber, SyncPolicy};
use crate::clock::{NS_PER_S, Timestamp};
use crate::job::JobId;
use crate::rate_limited_log::RateLimitedLog;

use self::appender::Appender;
use self::compaction::Compaction;
use self::durability::Durability;
use self::files_ahead::{Creation, FilesAhead, OPEN_AHEAD};
use self::ids::Ids;
use self::unlogged::Unlogged;

mod append;
mod appender;
mod burials;
mod compaction;
mod description;
mod durability;
mod files_ahead;
mod ids;
mod invariants;
mod markers;
mod rest;
mod room;
mod side_effects;
mod unlogged;

pub use self::append::{CompleteRoom, WholeJob};
pub(super) use self::burials::Burials;
pub use self::description::DescribedLog;
pub(super) use self::room::{JobRoom, Room};

/// Maximum length of the first file of a run: the server answers no client before this file is made. By the time it is
/// full, the store has made the next one.
const FIRST_FILE_BYTES: u64 = 1024 * 1024;
/// The shortest time between two warnings about files that can be neither made nor removed.
const WARNING_INTERVAL_NS: u64 = 60 * NS_PER_S;
/// How long the log must have been idle before a marker records that its end is durable.
const IDLE_MARK_NS: u64 = NS_PER_S;

/// What the log can do now, for the stats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    /// The server has no log.
    #[default]
    Off,
    /// It can write.
    Ok,
    /// The store has no room for another file. The log tries again every second.
    Full,
    /// It has ended after an error.
    Failed,
}

impl LogState {
    /// The word for it in the stats.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Ok => "ok",
            Self::Full => "full",
            Self::Failed => "failed",
        }
    }
}

/// The figures of the binlog for the stats. Without a log they are the default ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct Stats {
    /// `binlog-oldest-index`.
    pub oldest_index: u32,
    /// `binlog-current-index`.
    pub current_index: u32,
    /// `binlog-max-size`, in bytes.
    pub max_bytes: u64,
    /// `binlog-records-written`.
    pub records_written: u64,
    /// `binlog-records-migrated`.
    pub records_migrated: u64,
    /// Files of the log, including those made ahead.
    pub files: u64,
    pub bytes: u64,
    /// Bytes of the newest states of all jobs, with the room for their deletes.
    pub live_bytes: u64,
    pub syncs: u64,
    /// Total time of the syncs, in microseconds.
    pub sync_us: u64,
    /// `binlog-state`.
    pub state: LogState,
    pub database: Option<DatabaseFigures>,
}

/// The open log.
pub struct Binlog {
    pub(super) storage: Box<dyn Storage>,
    config: Config,
    clock: LogClock,
    pub(super) contents: Contents,
    ids: Ids,
    appender: Appender,
    unlogged: Unlogged,
    ahead: FilesAhead,
    compaction: Compaction,
    durability: Durability,
    health: Health,
    /// The reservations of sessions that were found at the start, until the caller takes them.
    pub(super) restored_reservations: Vec<RestoredReservation>,
    /// The clock for the ends of the cooldowns that were found at the start.
    pub(super) restored_clock: WallOffset,
    /// For files that can be neither made nor removed, which is tried again soon.
    warnings: RateLimitedLog,
}

/// The contents of the log, and the room that they need.
#[derive(Debug)]
pub(super) struct Contents {
    /// The file of each job.
    pub(super) files: Files,
    pub(super) burials: Burials,
    pub(super) cooldowns: Cooldowns,
    pub(super) room: Room,
}

/// The times of the log, and when a marker is due.
#[derive(Debug)]
struct LogClock {
    wall: WallOffset,
    /// Whether the times in the log are times of the wall clock, which can be set.
    follows_wall: bool,
    /// When the last turn with a write was, or the start.
    last_turn_at: Timestamp,
    /// When a marker must record the time.
    time_mark_at: Option<Timestamp>,
    /// When a marker that waits for the next record is written without one.
    idle_mark_at: Option<Timestamp>,
}

impl LogClock {
    fn new(wall: WallOffset, storage: &dyn Storage, last_turn_at: Timestamp) -> Self {
        let follows_wall = storage.clock_ns().is_none();
        Self { wall, follows_wall, last_turn_at, time_mark_at: None, idle_mark_at: None }
    }
}

/// Whether the log can continue.
#[derive(Debug)]
enum Health {
    Serving,
    /// No new work is begun.
    Closing,
    /// The log has failed, and the caller has not received the reason yet.
    Failed(BinlogError),
    /// The log has failed or was closed.
    Stopped,
}

impl Health {
    fn is_serving(&self) -> bool {
        matches!(self, Self::Serving)
    }

    fn has_failed(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Stopped)
    }
}

/// The state with which a log begins, new or replayed.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) contents: Contents,
    pub(super) next_job_id: u64,
    pub(super) next_index: u32,
    /// The end of the log.
    pub(super) end: LogPosition,
    /// The end of its durable part.
    pub(super) durable: LogPosition,
}

impl Binlog {
    /// A log that continues from `beginning` in a new file, which is made before this returns.
    pub(super) fn begin(
        storage: Box<dyn Storage>,
        config: Config,
        beginning: Beginning,
        wall: WallOffset,
    ) -> Result<Self, std::io::Error> {
        let Beginning { contents, next_job_id, next_index, end, durable } = beginning;
        let ids = Ids::new(config.sync, next_job_id);
        // The header of the file that is made below announces these ids.
        let announced = ids.announced_by(MarkerKind::Durable);
        let durability = Durability::new(config.sync, durable, announced);
        let mut log = Self {
            clock: LogClock::new(wall, &*storage, Timestamp::default()),
            storage,
            config,
            contents,
            ids,
            appender: Appender::after(end),
            unlogged: Unlogged::default(),
            restored_reservations: Vec::new(),
            restored_clock: wall,
            ahead: FilesAhead::new(&config, next_index),
            compaction: Compaction::new(),
            durability,
            health: Health::Serving,
            warnings: RateLimitedLog::every(WARNING_INTERVAL_NS),
        };
        log.make_next_file();
        let mut usual_bytes = config.file_bytes;
        while let Err(error) = log.await_file() {
            if !is_lack_of_room(&error) || !log.shorten_files() {
                return Err(error);
            }
            usual_bytes = log.ahead.usual_bytes;
            log.make_next_file();
        }
        log.ahead.usual_bytes = usual_bytes;
        log.use_next_file();
        Ok(log)
    }

    // ---- the turn ----

    /// Writes everything that was logged since the last commit, in one write (one more for each file that was filled),
    /// and requests the syncs that are due.
    ///
    /// # Errors
    /// If the log has failed: nothing logged since the last sync may be acknowledged, and the process
    /// must end.
    pub fn commit(&mut self, now: Timestamp) -> Result<(), BinlogError> {
        self.clock.last_turn_at = now;
        self.log_needed();
        let announced = self.announce_removal();
        let logged = self.appender.end_turn();
        if self.appender.must_write() {
            self.write_buffer();
            self.clock.idle_mark_at = None;
        }
        self.appender.trim();
        if self.durability.take_urgency() || announced {
            // Room is needed soon, and a put that waits for an id must continue, even if `-f` permits a longer wait.
            self.request_sync();
        }
        self.sync_if_due(now);
        self.remove_announced_files();
        self.open_spares(OPEN_AHEAD);
        self.prepare_files();
        self.allot_copies(logged);
        self.outcome()
    }

    /// The last record appended so far.
    #[must_use]
    pub fn appended(&self) -> SequenceNumber {
        SequenceNumber(self.appender.appended().0 + self.unlogged.needed.len() as u64)
    }

    /// The last record so far for which replies wait. With `-f 0`, a reply can be sent once [`Binlog::durable`] reaches
    /// the number that this function returned when the reply was made. No reply waits for the record of a reservation,
    /// unless it keeps the job from expiring: a restart makes the job ready again, with or without this record.
    #[must_use]
    pub fn awaited(&self) -> SequenceNumber {
        if self.unlogged.needed.is_empty() { self.appender.awaited() } else { self.appended() }
    }

    /// With `-f 0`: whether the job is known to be on the medium, in any state.
    #[must_use]
    pub fn has_on_medium(&self, id: JobId) -> bool {
        self.durability.has_job(id)
    }

    /// Whether replies wait until the records before them are on the medium, and not only written.
    #[must_use]
    pub fn waits_for_medium(&self) -> bool {
        self.config.sync == SyncPolicy::EachCommit
    }

    /// All records up to this one are on the medium.
    #[must_use]
    pub fn durable(&self) -> SequenceNumber {
        self.durability.durable().sequence
    }

    /// When [`Binlog::on_deadline`] must be called; `None` if nothing is due before another event.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let migration = self.can_migrate().then_some(Timestamp::AT_ONCE);
        let retries = [self.ahead.retry_at(), self.compaction.removal_retry_at()];
        [self.durability.deadline(), self.clock.idle_mark_at, self.clock.time_mark_at, migration]
            .into_iter()
            .chain(retries)
            .flatten()
            .min()
    }

    /// Handles what is due: a sync, the marker of an idle log, another attempt to make or to remove a file.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn on_deadline(&mut self, now: Timestamp) -> Result<(), BinlogError> {
        if self.ahead.retry_at().is_some_and(|at| at <= now) {
            self.ahead.retry();
        }
        self.compaction.retry(now);
        if self.clock.idle_mark_at.take_if(|at| *at <= now).is_some() {
            // The marker that waits for the next record is written without one, and synced like a record.
            self.appender.require_write();
        }
        if self.clock.time_mark_at.take_if(|at| *at <= now).is_some() {
            self.clock.last_turn_at = now;
            // If there is no room for it, the next marker has the time.
            let _ = self.append_marker(MarkerKind::Durable);
        }
        self.commit(now)
    }

    // ---- the store ----

    /// From now on, the store works on another thread, and calls `wake` when [`Binlog::next_completion`] has an
    /// outcome.
    ///
    /// # Errors
    /// If the system provides no thread.
    pub fn start(&mut self, wake: Box<dyn Fn() + Send>) -> std::io::Result<()> {
        self.storage.start(wake)
    }

    /// The outcome of a task of the store, for [`Binlog::on_completion`].
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.storage.poll()
    }

    /// When the store must begin requested tasks that it has not begun; `None` if there are none, or if it is working.
    #[must_use]
    pub fn tasks_begin_at(&self) -> Option<Timestamp> {
        self.storage.has_tasks_to_begin().then(|| self.durability.begins_at())
    }

    /// As [`Storage::lease_left_ns`].
    #[must_use]
    pub fn lease_left_ns(&self) -> Option<u64> {
        self.storage.lease_left_ns()
    }

    /// Begins the tasks that were submitted to the store since the last call.
    pub fn begin_tasks(&mut self) {
        self.storage.begin();
    }

    /// Handles the outcome of a task.
    ///
    /// # Errors
    /// As [`Binlog::commit`].
    pub fn on_completion(&mut self, completion: Completion, now: Timestamp) -> Result<(), BinlogError> {
        self.note(completion, now);
        self.outcome()
    }

    fn note(&mut self, completion: Completion, now: Timestamp) {
        let Completion { task, elapsed_us, result } = completion;
        match (task, result) {
            (StoreTask::Sync(position), Ok(())) => {
                self.durability.completed(position, elapsed_us, now);
                self.mark_durable();
                self.clock.idle_mark_at = (!self.appender.is_empty()).then_some(now + IDLE_MARK_NS);
                self.sync_if_due(now);
                self.remove_announced_files();
            }
            (StoreTask::Sync(position), Err(error)) => {
                self.fail(BinlogError::Sync { file: position.file, error })
            }
            (StoreTask::Make { file, bytes, .. }, Ok(())) => {
                self.file_was_made(file, bytes);
                self.log_needed();
                self.prepare_files();
            }
            (StoreTask::Make { file, .. }, Err(error)) => self.file_was_not_made(file, error, now),
            (StoreTask::Shorten { file, bytes }, Ok(())) => self.contents.files.shrink(file, bytes),
            // The zeros at the end of an old file only take space.
            (StoreTask::Shorten { .. }, Err(_)) => {}
            (StoreTask::Remove { file }, Ok(())) => self.file_was_removed(file),
            (StoreTask::Remove { file }, Err(error)) => self.file_was_not_removed(file, error, now),
        }
    }

    /// Gives `task` to the store.
    fn submit(&mut self, task: StoreTask) {
        if self.health.is_serving() {
            self.storage.submit(task);
        }
    }

    fn sync_if_due(&mut self, now: Timestamp) {
        self.durability.end_turn(now, self.awaited());
        if self.durability.deadline().is_some_and(|at| at <= now) {
            self.request_sync();
        }
    }

    fn request_sync(&mut self) {
        if self.health.is_serving()
            && let Some(position) = self.durability.request()
        {
            self.submit(StoreTask::Sync(position));
        }
    }

    /// Frees the zeros at the end of an old file.
    pub(super) fn trim(&mut self, file: u32, bytes: u64) {
        self.submit(StoreTask::Shorten { file, bytes });
    }

    fn fail(&mut self, error: BinlogError) {
        if !self.health.has_failed() {
            self.health = Health::Failed(error);
        }
    }

    /// Whether the log can continue; the first call after a failure returns the reason.
    pub(super) fn outcome(&mut self) -> Result<(), BinlogError> {
        if !self.health.has_failed() {
            return Ok(());
        }
        match std::mem::replace(&mut self.health, Health::Stopped) {
            Health::Failed(error) => Err(error),
            Health::Serving | Health::Closing | Health::Stopped => Err(BinlogError::Stopped),
        }
    }

    // ---- the start and the end ----

    /// Waits until the store has made the requested file. If it could not, another one can be requested.
    pub(super) fn await_file(&mut self) -> std::io::Result<()> {
        while let Some(done) = self.storage.wait() {
            if done.result.is_err() && matches!(done.task, StoreTask::Make { .. }) {
                self.ahead.creation = Creation::Idle;
            }
            done.result?;
            if let StoreTask::Make { file, bytes, .. } = done.task {
                self.file_was_made(file, bytes);
            }
        }
        Ok(())
    }

    /// Gives `task` to the store after all others, and waits for it.
    pub(super) fn run(&mut self, task: StoreTask, now: Timestamp) -> std::io::Result<()> {
        self.storage.submit(task.clone());
        let mut result = Ok(());
        while let Some(done) = self.storage.wait() {
            if done.task == task {
                result = done.result;
            } else {
                self.note(done, now);
            }
        }
        result
    }

    /// Writes everything that was logged, and waits until it is on the medium if `syncs`.
    pub(super) fn flush(&mut self, syncs: bool, now: Timestamp) -> Result<(), BinlogError> {
        self.write_buffer();
        self.outcome()?;
        if !syncs {
            return Ok(());
        }
        // The files that were filled since the last sync come first, because the durable part must be a beginning of
        // the log.
        let durable = self.durability.durable().end.file;
        let filled = self.contents.files.closed().filter(|file| file.index >= durable);
        let filled = filled.map(|file| LogPosition { file: file.index, offset: file.bytes });
        for end in filled.chain([self.appender.end()]).collect::<Vec<_>>() {
            if let Err(error) = self.run(StoreTask::Sync(end), now) {
                self.fail(BinlogError::Sync { file: end.file, error });
                return self.outcome();
            }
        }
        self.durability.all_synced();
        self.outcome()
    }

    // ---- stats ----

    /// The log's memory for jobs, burials and cooldowns, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.contents.files.memory_bytes()
            + self.contents.burials.memory_bytes()
            + self.contents.room.memory_bytes()
            + self.contents.cooldowns.memory_bytes()
            + self.unlogged.memory_bytes()
    }

    /// The figures for `stats`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (syncs, sync_us) = self.durability.sync_totals();
        Stats {
            oldest_index: self.contents.files.oldest_index(),
            current_index: self.appender.file(),
            max_bytes: self.config.file_bytes,
            records_written: self.appender.appended().0,
            records_migrated: self.compaction.copied_records,
            files: (self.contents.files.count() + self.contents.room.spare_count()) as u64,
            bytes: self.directory_bytes(),
            live_bytes: self.live_bytes(),
            syncs,
            sync_us,
            state: self.state(),
            database: self.storage.database(),
        }
    }

    /// Whether the log serves, and whether its store has room.
    #[must_use]
    pub fn state(&self) -> LogState {
        match (self.health.is_serving(), self.ahead.is_refused() || self.is_store_full()) {
            (false, _) => LogState::Failed,
            (true, true) => LogState::Full,
            (true, false) => LogState::Ok,
        }
    }

    /// Index of the file that holds the job's record, for `file` in `stats-job`; 0 if there is none.
    #[must_use]
    pub fn file_of(&self, id: JobId) -> u32 {
        self.contents.files.file_of(id).unwrap_or(0)
    }
}
