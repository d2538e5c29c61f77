//! Writing the log.
//!
//! Owns: the bytes of the turn, the file being written, the files made ahead, what is due next. Never
//! waits: a sync, a new file, a removal is handed out as a task. Driven by the server once per turn, and by
//! each completion (`upkeep.rs`).

use std::collections::{BTreeSet, TryReserveError, VecDeque};

use super::burials::Burials;
use super::disk::{Disk, DiskTask, FileName, is_lack_of_room};
use super::durability::Durability;
use super::format::{
    DiskRecord, MAX_BODY_BYTES, SHORT_BYTES, Seal, TRAILER, WallOffset, full_record_bytes, mix,
};
use super::marker::{HEAD_BYTES, Marker, MarkerKind, Place, file_head};
use super::segments::Segments;
use super::space::{BLOCK_BYTES, Space, Target, file_bytes, file_units};
use super::{BinlogError, Config, NoRoom, Position, SyncPolicy};
use crate::clock::{NS_PER_S, Timestamp};
use crate::job::{Body, JobId, JobRecord, JobState};
use crate::tube_name::TubeName;

mod moves;
mod upkeep;

/// How long a failed attempt to make a file is not repeated.
const CREATE_RETRY_NS: u64 = NS_PER_S;
/// How long the log must have been idle until a marker says that its end is durable.
const IDLE_MARK_NS: u64 = NS_PER_S;
/// Bytes that a turn may migrate however little it writes itself: a few dozen small jobs, some
/// microseconds.
const MIGRATION_BYTES: u64 = 16 * 1024;
/// Closed files may be this many times as long as the records of all jobs; all files once more and two
/// files. Writing a byte then costs at most about one more for migration.
const CLOSED_TO_LIVE: u64 = 2;
/// While files wait for their removal, no further one is made that would take the directory beyond so many
/// times the live bytes
const DIRECTORY_TO_LIVE: u64 = 3;
/// and so many files;
const DIRECTORY_FILES: u64 = 2;
/// but so many files are always free to be there, or every file would wait for the removal of the one
/// before the last where little is alive: the one being written, one made ahead, one to be removed, and
/// one that was filled meanwhile.
const UNHINDERED_FILES: u64 = 4;
/// Once the turn's bytes are more than this they are written without waiting for its end, so that the buffer
/// is never much larger than one record; a larger one is given back.
const BUFFER_KEEP_BYTES: usize = 1024 * 1024;
/// Length of the first file of a run, where files are longer: the server does not answer before it is
/// made, and by the time it is full the helper thread has long made the next one.
const FIRST_FILE_BYTES: u64 = 1024 * 1024;
/// On a disk without room for a file of the usual length shorter ones are made, down to this.
const LEAST_FILE_BYTES: u64 = 64 * 1024;
/// So many ids are announced ahead of the one given last, where jobs are acknowledged before they are on the medium:
/// after a loss of power none of them is given again. A million puts a second with `-f 50` need half of them.
const IDS_AHEAD: u64 = 100_000;
/// The last index that a file may have: C counts files in an `int`.
pub(super) const MAX_INDEX: u32 = i32::MAX as u32 - 1;

/// The file being written.
#[derive(Clone, Copy, Debug)]
struct Current {
    index: u32,
    seal: Seal,
    /// Where the turn's bytes will go.
    offset: u64,
}

/// The making of the next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Creation {
    Idle,
    UnderWay {
        nonce: u64,
    },
    Failed {
        retry_at: Timestamp,
        /// Whether what was lacking comes back by itself: descriptors or memory, not room.
        passes: bool,
    },
}

/// The removal of files in which no job is left.
#[derive(Clone, Copy, Debug)]
struct Retirement {
    /// Files with a smaller index go,
    below: u32,
    /// once the log is durable up to here: the marker that says so, and all copies before it; `None` once
    /// the helper thread has been told to remove them.
    after: Option<Place>,
}

impl Retirement {
    /// The next file may go at once: the log is durable beyond the announcement.
    fn announced(self) -> Self {
        Self { after: Some(Place::default()), ..self }
    }
}

/// What the stats say about the binlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Files of the log, those made ahead included.
    pub files: u64,
    /// Their length, in bytes.
    pub bytes: u64,
    /// Bytes that the newest state of all jobs takes, with the room for their deletes.
    pub live_bytes: u64,
    /// Syncs done.
    pub syncs: u64,
    /// Time that they took, in microseconds.
    pub sync_us: u64,
    /// "ok", "full" or "failed".
    pub state: &'static str,
}

/// The open log.
pub struct Binlog {
    pub(super) disk: Box<dyn Disk>,
    config: Config,
    wall: WallOffset,
    pub(super) segments: Segments,
    pub(super) burials: Burials,
    space: Space,
    current: Current,
    /// What the next write will hold.
    buffer: Vec<u8>,
    /// Whether the buffer holds more than a marker that can wait for the next record.
    must_write: bool,
    /// Length of the records of this turn, written already or not.
    turn_bytes: u64,
    sync: Durability,
    appended: Position,
    /// The durable position that the newest marker told of.
    marked: Position,
    /// When the end of an idle log is to be marked.
    idle_mark_at: Option<Timestamp>,
    creation: Creation,
    /// Whether the last attempt to make a file has failed for lack of room.
    is_disk_full: bool,
    /// Length of the next file unless a record needs more: `-s`, less while the disk is short of room.
    usual_bytes: u64,
    /// Until then no more is said of files that cannot be made or removed.
    quiet_until: Timestamp,
    /// Length of the record for which there was no room at last; 0 if there was.
    wanted_bytes: u64,
    next_index: u32,
    next_job_id: u64,
    /// The id that the last marker has announced: none from this one on is given before another is durable.
    announced_ids: u64,
    /// Whether the turn's bytes are to be synced at once.
    is_sync_urgent: bool,
    /// Deletes for which a restart on a full disk has left no room; written before anything else.
    owed: VecDeque<JobId>,
    /// Jobs whose newest state the log lacks, because the file for it was still being made.
    postponed: BTreeSet<JobId>,
    retirement: Option<Retirement>,
    /// When a removal that has failed is tried again.
    removal_retry_at: Option<Timestamp>,
    migration_bytes: u64,
    /// Bytes that may be copied until something else is logged: copying alone never ends where it frees nothing.
    copy_credit: u64,
    /// Length of the full records of the jobs that were deleted in this turn.
    freed_bytes: u64,
    /// Whether the next file cannot be opened for want of a descriptor.
    lacks_descriptor: bool,
    tasks: VecDeque<DiskTask>,
    failure: Option<BinlogError>,
    stopped: bool,
    /// The instant of the turn.
    now: Timestamp,
    stats: Stats,
}

/// What a log begins from, new or replayed.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) segments: Segments,
    pub(super) burials: Burials,
    pub(super) next_job_id: u64,
    pub(super) next_index: u32,
    /// Where the log ended.
    pub(super) end: Place,
    /// Where the durable part of it ended.
    pub(super) durable: Place,
}

impl Binlog {
    /// A log that goes on from `beginning` in a new file, which is made before this returns.
    pub(super) fn begin(
        disk: Box<dyn Disk>,
        config: Config,
        beginning: Beginning,
        now: Timestamp,
        wall: WallOffset,
    ) -> Result<Self, std::io::Error> {
        let Beginning { segments, burials, next_job_id, next_index, end, durable } = beginning;
        let mut log = Self {
            disk,
            config,
            wall,
            segments,
            burials,
            space: Space::default(),
            current: Current { index: end.file, seal: Seal { nonce: 0 }, offset: end.offset },
            buffer: Vec::new(),
            must_write: false,
            turn_bytes: 0,
            // The header of the file that is made below says so.
            sync: Durability::new(config.sync, durable, ids_announced(config.sync, next_job_id)),
            appended: Position::default(),
            marked: Position::default(),
            idle_mark_at: None,
            creation: Creation::Idle,
            is_disk_full: false,
            usual_bytes: config.segment_bytes.min(FIRST_FILE_BYTES),
            quiet_until: Timestamp(0),
            wanted_bytes: 0,
            next_index,
            next_job_id,
            announced_ids: 0,
            is_sync_urgent: false,
            owed: VecDeque::new(),
            postponed: BTreeSet::new(),
            retirement: None,
            removal_retry_at: None,
            migration_bytes: 0,
            copy_credit: u64::MAX,
            freed_bytes: 0,
            lacks_descriptor: false,
            tasks: VecDeque::new(),
            failure: None,
            stopped: false,
            now,
            stats: Stats::default(),
        };
        log.make_next_file();
        let mut next_bytes = config.segment_bytes;
        while let Err(error) = log.run_tasks() {
            if !is_lack_of_room(&error) || !log.shorten_files() {
                return Err(error);
            }
            next_bytes = log.usual_bytes;
            log.make_next_file();
        }
        log.usual_bytes = next_bytes;
        log.use_next_file();
        Ok(log)
    }

    // ---- room ----

    /// Whether job `id` may be acknowledged before it is on the medium: where a restart after a loss of power would
    /// give the id to another job, it has to wait for a marker.
    ///
    /// # Errors
    /// Where it has to, or where there is no room for that marker.
    pub fn reserve_id(&mut self, id: JobId) -> Result<(), NoRoom> {
        let durable = self.sync.durable().ids;
        if !matches!(self.config.sync, SyncPolicy::Every(_)) || id.0 + IDS_AHEAD / 2 < durable {
            return Ok(());
        }
        if self.announced_ids <= durable.max(id.0) {
            self.next_job_id = self.next_job_id.max(id.0.saturating_add(1));
            self.append_marker(MarkerKind::Durable)?;
        }
        self.is_sync_urgent = true;
        if id.0 < durable { Ok(()) } else { Err(NoRoom::Pending) }
    }

    /// Whether a put fits, with the delete that will follow it some day. The answer holds until the next
    /// append.
    ///
    /// # Errors
    /// Where it does not; nothing has changed.
    pub fn reserve_put(&mut self, tube_len: usize, body_len: usize) -> Result<(), NoRoom> {
        if body_len > MAX_BODY_BYTES {
            return Err(NoRoom::Full);
        }
        let bytes = full_record_bytes(tube_len, body_len);
        // In memory, too: the bytes of the turn hold the body once more.
        self.reserve_buffer(bytes).map_err(|_| NoRoom::Full)?;
        self.reserve(bytes, self.segments.job_count() + 1)
    }

    /// Whether a change of state fits. The answer holds until the next append.
    ///
    /// # Errors
    /// Where it does not; nothing has changed.
    pub fn reserve_update(&mut self) -> Result<(), NoRoom> {
        self.reserve(SHORT_BYTES, self.segments.job_count())
    }

    /// Makes sure that a record of `bytes` finds room among the bytes of the turn, with the markers that stand
    /// around it where it begins a new file.
    fn reserve_buffer(&mut self, bytes: u64) -> Result<(), TryReserveError> {
        let bytes = (bytes + 2 * SHORT_BYTES) as usize;
        // A large record gets what it needs; many small ones must not grow the buffer one by one.
        if bytes > BUFFER_KEEP_BYTES {
            self.buffer.try_reserve_exact(bytes)
        } else {
            self.buffer.try_reserve(bytes)
        }
    }

    fn reserve(&mut self, bytes: u64, deletes: u64) -> Result<(), NoRoom> {
        if self.owed.is_empty()
            && let Some(target) = self.space.find(bytes, deletes + self.kept_units())
        {
            return if self.open_up_to(target) { Ok(()) } else { Err(NoRoom::Pending) };
        }
        self.wanted_bytes = self.wanted_bytes.max(bytes);
        self.prepare_files();
        match self.creation {
            Creation::UnderWay { .. } | Creation::Failed { passes: true, .. } => Err(NoRoom::Pending),
            Creation::Idle if self.awaits_removal() => Err(NoRoom::Pending),
            Creation::Idle | Creation::Failed { passes: false, .. } => Err(NoRoom::Full),
        }
    }

    // ---- appending ----

    /// Logs a job that was put. The room must have been reserved.
    pub fn append_put(&mut self, job: &JobRecord, tube: &TubeName, body: &Body) {
        self.next_job_id = self.next_job_id.max(job.id.0.saturating_add(1));
        self.append_full(job, tube, body, self.segments.job_count() + 1);
    }

    /// Logs a job's new state. The room must have been reserved. `body_len` is the length of its body.
    pub fn append_update(&mut self, job: &JobRecord, body_len: usize) {
        let mut record = DiskRecord::of_job(job, body_len, self.wall);
        let is_burial_noted = self.postponed.remove(&job.id)
            && job.state == JobState::Buried
            && self.burials.time(job.id).is_some();
        if !is_burial_noted {
            self.note_burial(job);
        }
        if let Some(time) = self.burials.time(job.id) {
            record.deadline_at = time;
        }
        match self.space.find(SHORT_BYTES, self.segments.job_count()) {
            Some(target) => self.append_short(&record, target),
            None => self.fail(BinlogError::NotReserved),
        }
        self.segments.update(job.id);
    }

    /// Notes a job's new state for which there is `no_room`. Where it is to come, [`Binlog::next_postponed`]
    /// asks for the state then. On a full disk the state stays unlogged until the next change: what room
    /// comes there is for those who are refused without.
    pub fn postpone_update(&mut self, job: &JobRecord, no_room: NoRoom) {
        self.note_burial(job);
        if no_room == NoRoom::Pending {
            self.postponed.insert(job.id);
        }
    }

    /// A job whose state was postponed, if there is room for it now. The caller appends it with
    /// [`Binlog::append_update`] and asks again.
    pub fn next_postponed(&mut self) -> Option<JobId> {
        let id = *self.postponed.first()?;
        self.reserve_update().is_ok().then_some(id)
    }

    /// Notes when the job was buried, if its new state is that.
    fn note_burial(&mut self, job: &JobRecord) {
        if job.state == JobState::Buried {
            self.burials.bury(job.id, self.wall.to_disk(self.now));
        } else {
            self.burials.forget(job.id);
        }
    }

    /// Logs that a job was deleted: there is always room.
    pub fn append_delete(&mut self, id: JobId) {
        self.postponed.remove(&id);
        let full_bytes = self.segments.full_bytes();
        if !self.segments.remove(id) {
            return;
        }
        self.freed_bytes += full_bytes - self.segments.full_bytes();
        self.append_deletion(id);
    }

    /// Logs the end of a job that is not counted any more.
    pub(super) fn append_deletion(&mut self, id: JobId) {
        self.burials.forget(id);
        self.owed.push_back(id);
        self.write_owed();
    }

    /// Writes the deletes not yet written, as far as there is room.
    fn write_owed(&mut self) {
        while let Some(&id) = self.owed.front() {
            let deletes = self.segments.job_count() + self.owed.len() as u64 - 1;
            // Only after a restart with too few files for all the deletes can there be less room than
            // that; then it is first come, first served.
            let target = self.space.find_exactly(SHORT_BYTES, deletes);
            let Some(target) = target.or_else(|| self.space.find_exactly(SHORT_BYTES, 0)) else { return };
            if !self.open_up_to(target) {
                return;
            }
            self.owed.pop_front();
            self.append_short(&DiskRecord::deletion(id), target);
        }
    }

    fn append_full(&mut self, job: &JobRecord, tube: &TubeName, body: &Body, deletes: u64) {
        let bytes = full_record_bytes(tube.as_bytes().len(), body.len());
        let Some(target) = self.space.find(bytes, deletes) else {
            return self.fail(BinlogError::NotReserved);
        };
        self.enter(target);
        let mut record = DiskRecord::of_job(job, body.len(), self.wall);
        if job.state == JobState::Buried {
            record.deadline_at = self
                .burials
                .time(job.id)
                .unwrap_or_else(|| self.burials.bury(job.id, self.wall.to_disk(self.now)));
        }
        self.write_record(&record, tube.as_bytes(), Some(body));
        self.space.take(bytes);
        self.segments.place(job.id, self.current.index, bytes);
        self.postponed.remove(&job.id);
    }

    fn append_short(&mut self, record: &DiskRecord, target: Target) {
        self.enter(target);
        self.write_record(record, &[], None);
        self.space.take(SHORT_BYTES);
    }

    /// Puts a record into the turn's bytes.
    fn write_record(&mut self, record: &DiskRecord, tube: &[u8], body: Option<&Body>) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&(tube.len() as i32).to_le_bytes());
        self.buffer.extend_from_slice(tube);
        let fixed_at = self.buffer.len() - start;
        self.buffer.extend_from_slice(&record.encode());
        if let Some(body) = body {
            self.buffer.extend_from_slice(body.as_slice());
            self.buffer.extend_from_slice(TRAILER);
        }
        let offset = self.current.offset + start as u64;
        self.current.seal.apply(&mut self.buffer[start..], fixed_at, offset);
        self.appended.0 += 1;
        self.stats.records_written += 1;
        self.must_write = true;
        self.turn_bytes += (self.buffer.len() - start) as u64;
        if self.buffer.len() > BUFFER_KEEP_BYTES {
            self.write_buffer();
        }
    }

    fn marker(&self, kind: MarkerKind) -> Marker {
        let durable = self.sync.durable().place;
        Marker {
            kind,
            file: self.current.index,
            next_job_id: match kind {
                MarkerKind::Closed => self.next_job_id,
                _ => ids_announced(self.config.sync, self.next_job_id),
            },
            durable,
            oldest: self.retirement.map_or(self.segments.oldest_index(), |retirement| retirement.below),
            sync: self.config.sync,
        }
    }

    /// Puts a marker into the turn's bytes; its room is the caller's affair.
    fn write_marker(&mut self, kind: MarkerKind) {
        let offset = self.current.offset + self.buffer.len() as u64;
        let marker = self.marker(kind);
        self.announced_ids = marker.next_job_id;
        self.buffer.extend_from_slice(&marker.encode(self.current.seal, offset));
        self.marked = self.sync.durable().position;
    }

    /// Logs where an old file ends. Before the server serves, this goes before all room for deletes.
    pub(super) fn append_cut(&mut self, place: Place) -> Result<(), NoRoom> {
        let Some(target) = self.space.find_exactly(SHORT_BYTES, 0) else {
            self.make_next_file();
            return Err(NoRoom::Pending);
        };
        self.append_marker_at(MarkerKind::Cut(place), target);
        Ok(())
    }

    fn append_marker(&mut self, kind: MarkerKind) -> Result<(), NoRoom> {
        let deletes = self.segments.job_count() + self.owed.len() as u64;
        let target = self.space.find_exactly(SHORT_BYTES, deletes).ok_or(NoRoom::Full)?;
        if !self.open_up_to(target) {
            return Err(NoRoom::Pending);
        }
        self.append_marker_at(kind, target);
        Ok(())
    }

    fn append_marker_at(&mut self, kind: MarkerKind, target: Target) {
        self.enter(target);
        self.write_marker(kind);
        self.space.take(SHORT_BYTES);
        self.must_write = true;
    }

    /// Has the next write begin by saying what is durable. Where room is short, it does not.
    fn mark_durable(&mut self) {
        if self.sync.durable().position <= self.marked {
            return;
        }
        if self.buffer.is_empty() {
            let deletes = self.segments.job_count() + self.owed.len() as u64;
            if self.space.find(SHORT_BYTES, deletes + self.kept_units()) == Some(Target::Current) {
                self.space.take(SHORT_BYTES);
                self.write_marker(MarkerKind::Durable);
            }
        } else if !self.must_write {
            // The marker in the buffer has grown old before it was written.
            self.buffer.clear();
            self.write_marker(MarkerKind::Durable);
        }
    }

    // ---- files ----

    /// Makes the file that `target` names the one being written.
    fn enter(&mut self, target: Target) {
        if let Target::Spare(passed) = target {
            for _ in 0..=passed {
                self.use_next_file();
            }
        }
    }

    /// Ends the file being written and goes on in the next, which is there.
    fn use_next_file(&mut self) {
        let Some(spare) = self.space.next_spare() else { return };
        if self.current.seal.nonce != 0 {
            self.write_marker(MarkerKind::Continued(spare.index));
            self.write_buffer();
            self.request_sync();
            self.disk.release(FileName::Segment(self.current.index));
        }
        let end = Place { file: self.current.index, offset: self.current.offset };
        self.segments.push(spare.index, spare.bytes);
        self.current = Current { index: spare.index, seal: Seal { nonce: spare.nonce }, offset: HEAD_BYTES };
        self.write_marker(MarkerKind::Opened(end));
        self.space.use_file(spare.bytes, HEAD_BYTES + SHORT_BYTES);
        self.must_write = true;
    }

    /// Asks for the next file if room is getting short, unless one is being made or has just failed.
    pub(super) fn prepare_files(&mut self) {
        let deletes = self.segments.job_count() + self.owed.len() as u64 + 1;
        let needed = deletes + self.kept_units();
        if self.wanted_bytes > 0 && self.space.find(self.wanted_bytes, needed).is_some() {
            self.wanted_bytes = 0;
        }
        let low = self.wanted_bytes > 0
            || self.lacks_descriptor
            || self.space.is_low(self.config.segment_bytes, deletes);
        if low && self.creation == Creation::Idle && !self.awaits_removal() {
            self.make_next_file();
        }
    }

    /// Asks for the next file.
    fn make_next_file(&mut self) {
        if self.next_index > MAX_INDEX || self.stopped {
            return;
        }
        let bytes = self.next_file_bytes();
        let index = self.next_index;
        // A nonce of 0 would be a file of no one's.
        let nonce = mix(self.config.nonce_seed ^ mix(u64::from(index)) ^ self.now.0).max(1);
        let header = Marker { file: index, ..self.marker(MarkerKind::Header(bytes)) };
        let head = Box::new(file_head(&header, Seal { nonce }));
        self.creation = Creation::UnderWay { nonce };
        self.tasks.push_back(DiskTask::Create { index, bytes, head });
    }
}

/// The id that a marker announces: at `-f 0` no job is acknowledged that is not on the medium, so that a lost one
/// may leave its id to another.
fn ids_announced(sync: SyncPolicy, next_job_id: u64) -> u64 {
    match sync {
        SyncPolicy::EachCommit => next_job_id,
        SyncPolicy::Every(_) | SyncPolicy::Never => next_job_id.saturating_add(IDS_AHEAD),
    }
}
