//! Opening the log: replay, repair, and the new file in which it continues.
//!
//! Owns: the order of the steps, which makes them safe to repeat after a crash at any point. Driven by the
//! server, once.

use std::collections::BTreeSet;

use super::format::SHORT_BYTES;
use super::replay::{
    DamagedFile, FileEnd, FileKind, FileState, Judgement, LoggedJobs, Replay, ReplaySummary, ReplayedJob,
    StartTimes,
};
use super::storage::{Storage, StoreTask, is_lack_of_room};
use super::wall_clock::WallOffset;
use super::writer::{Beginning, Binlog, Burials, Contents, JobRoom, Room, WholeJob};
use super::{Config, LogPosition, MAX_INDEX, NoRoom, OpenError, SyncPolicy};
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobRecord, JobState};
use crate::tags::{EncodedTags, JobTags};
use crate::tube_name::TubeName;

/// Zeros at the end of an old file are freed if there are at least this many bytes.
const MIN_TRIM_BYTES: u64 = 4096;

/// Takes a replayed job: its record, its tube, its body, and its encoded tags (see [`JobTags`](crate::tags::JobTags)),
/// empty if it has none.
pub type Restore<'a> = dyn FnMut(JobRecord, &TubeName, Body, &[u8]) + 'a;

impl Binlog {
    /// Reads the log in `storage`, repairs the damage of a crash, and begins a new file. Then `restore` is called once
    /// for each job: first the jobs that are not buried, by ascending id, then the buried jobs in the order of their
    /// burial. A reserved job becomes ready. `wall_offset_ns` is the clock of the log less the clock of `now`.
    ///
    /// # Errors
    /// If the log cannot be read, or has damage that a crash does not explain; in these cases nothing has changed on
    /// disk. Also if the new file cannot be made.
    pub fn open(
        mut storage: Box<dyn Storage>,
        config: Config,
        now: Timestamp,
        wall_offset_ns: i64,
        restore: &mut Restore<'_>,
    ) -> Result<(Self, ReplaySummary), OpenError> {
        let wall = WallOffset(wall_offset_ns);
        let config = config.rounded();
        let mut replay = Replay::read(&mut *storage, config.recover)?;
        let judgement = replay.judge();
        if !judgement.faults.is_empty() {
            return Err(OpenError::Faulty(judgement.faults));
        }
        // 1. The tails to be cut off are copied.
        let tails = keep_tails(&mut *storage, &replay, &judgement)?;
        // 2. A new file records where the old ones end, and repeats the state that depends on records about to be cut.
        let newest = replay.files.last().map(|last| last.index).max(judgement.given_up.last().copied());
        let next_index = newest.unwrap_or(0) + 1;
        if next_index > MAX_INDEX {
            return Err(OpenError::TooManyFiles);
        }
        replay.jobs.end_cooldowns(wall.to_disk(now))?;
        let freed_groups = replay.jobs.tagged.groups_without_members();
        for group in &freed_groups {
            replay.jobs.tagged.free_group(group.as_bytes());
        }
        let beginning = beginning(&mut replay, &judgement, next_index);
        let mut log = Self::begin(storage, config, beginning, wall)
            .map_err(|error| OpenError::Write { file: next_index, error })?;
        log.log_ends(&replay, &judgement)?;
        let times = StartTimes { wall, now, known: replay.facts.time };
        log.restored_clock = times.going_on();
        if times.is_set_back() {
            // Without room for this, delays may last longer after the next start.
            let _ = log.log_time(now);
        }
        log.repeat_rescued(&replay, times)?;
        log.log_freed_groups(&freed_groups)?;
        // 3. All of that, and everything that was read, is on the medium before anything is cut. If nothing must be
        //    cut, `-F` applies; if nothing was read, the new file, which was synced when it was made, can wait for its
        //    first record.
        let syncs = !judgement.cuts.is_empty()
            || !judgement.given_up.is_empty()
            || (config.sync != SyncPolicy::Never && !replay.files.is_empty());
        log.flush(syncs, now).map_err(OpenError::Failed)?;
        // 4. Until this step, a start without `--recover` finds the same damage.
        log.cut_tails(&replay, &judgement, now)?;
        keep_given_up(&mut *log.storage, &replay, &judgement)?;
        log.trim_files(&replay, config.sync);
        log.prepare_files();
        let summary = replay.summary(&judgement, tails);
        log.restored_reservations = replay.jobs.take_sessions(times.going_on());
        if !log.restored_reservations.is_empty() {
            log.note_session_reservations();
        }
        log.log_again(restore_jobs(replay.jobs, times, restore)?);
        Ok((log, summary))
    }

    /// Records the end of each file that is ours, is about to be cut or has lost durable bytes, so that a file that is
    /// shorter at a later start counts as damaged, and which files the operator has agreed to lose. The new file
    /// records the end of the newest one anyway, which is enough unless that file is cut or has lost durable bytes.
    fn log_ends(&mut self, replay: &Replay, judgement: &Judgement) -> Result<(), OpenError> {
        let newest = replay.files.last().map_or(0, |last| last.index);
        for (at, file) in replay.files.iter().enumerate() {
            let must_record = judgement.cuts.contains(&at) || file.end < replay.durable_bytes(file);
            if !file.is_ours() && !must_record {
                continue;
            }
            let end = LogPosition { file: file.index, offset: file.end };
            let is_known_anyway = file.index == newest
                && !replay.facts.cuts.contains_key(&file.index)
                && file.end > 0
                && !must_record;
            if replay.facts.recorded_end(file.index) != Some(end.offset) && !is_known_anyway {
                self.with_room(|log| log.append_cut(end))?;
            }
        }
        for &file in &judgement.given_up {
            self.with_room(|log| log.append_cut(LogPosition { file, offset: 0 }))?;
        }
        Ok(())
    }

    /// Writes the state of the jobs again that depends on records after a damaged one.
    fn repeat_rescued(&mut self, replay: &Replay, times: StartTimes) -> Result<(), OpenError> {
        for &id in &replay.jobs.rescued {
            let Some(found) = replay.jobs.alive.get(id) else {
                self.with_room(|log| log.reserve_update())?;
                self.append_deletion(id);
                continue;
            };
            let tube = replay.jobs.tubes.name(found.tube);
            let tags = EncodedTags::read(replay.jobs.tagged.of(id)).unwrap_or(EncodedTags::NONE);
            self.with_room(|log| log.reserve_put(tube.as_bytes().len(), found.body.len(), &tags))?;
            let mut record = found.to_record(id, &replay.jobs.histories, times);
            let reservation = replay.jobs.session_of(id, times.going_on());
            if let Some(reservation) = &reservation {
                (record.state, record.deadline_at) = (JobState::Reserved, reservation.until);
            }
            let job = WholeJob { tags, ..WholeJob::plain(&record, tube, &found.body) };
            self.append_put(&job, times.now);
            if let Some(reservation) = &reservation {
                self.with_room(|log| log.append_session_reservation(id, reservation))?;
            }
        }
        for &id in &replay.jobs.rescued_cooldowns {
            if self.contents.cooldowns.get(id).is_some() {
                self.with_room(|log| log.repeat_cooldown(id))?;
            } else {
                self.with_room(|log| log.reserve_update())?;
                self.append_forgetting(id);
            }
        }
        self.outcome().map_err(OpenError::Failed)
    }

    /// Logs the groups for which jobs no longer wait, as far as there is room: the next start finds the others again.
    fn log_freed_groups(&mut self, groups: &BTreeSet<Box<str>>) -> Result<(), OpenError> {
        for group in groups {
            match self.with_room(|log| log.append_freed_group(group)) {
                Err(OpenError::TooManyFiles | OpenError::NoRoom) => break,
                Err(OpenError::Write { error, .. }) if is_lack_of_room(&error) => break,
                result => result?,
            }
        }
        Ok(())
    }

    /// Makes files until `append` finds room.
    ///
    /// # Errors
    /// If a file cannot be made, the log has failed, or no file would help.
    fn with_room(
        &mut self,
        mut append: impl FnMut(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), OpenError> {
        loop {
            match append(self) {
                Ok(()) => return Ok(()),
                Err(NoRoom::Full) => {
                    self.outcome().map_err(OpenError::Failed)?;
                    return Err(if self.has_index() { OpenError::NoRoom } else { OpenError::TooManyFiles });
                }
                Err(NoRoom::Pending) => self.await_file().map_err(|error| {
                    let file = self.stats().current_index + 1;
                    OpenError::Write { file, error }
                })?,
            }
        }
    }

    fn cut_tails(&mut self, replay: &Replay, judgement: &Judgement, now: Timestamp) -> Result<(), OpenError> {
        for &at in &judgement.cuts {
            let FileState { index: file, end, .. } = replay.files[at];
            let cut = self.run(StoreTask::Shorten { file, bytes: end }, now);
            cut.and_then(|()| self.run(StoreTask::Sync(LogPosition { file, offset: end }), now))
                .map_err(|error| OpenError::Write { file, error })?;
            self.storage.release(file);
            self.contents.files.shrink(file, end);
        }
        Ok(())
    }

    /// Frees the zeros at the end of our files that no record will need. A file of C's loses its zeros if they are too
    /// few for a record, because C would report that.
    fn trim_files(&mut self, replay: &Replay, sync: SyncPolicy) {
        for file in replay.files.iter().filter(|file| file.file_end == FileEnd::Clean) {
            let zeros = file.bytes - file.end;
            let trims = match file.kind {
                // A shorter file counts as damaged unless another file records its end. With `-F`, nothing waits for
                // that record.
                FileKind::Ours { .. } => sync != SyncPolicy::Never && zeros >= MIN_TRIM_BYTES,
                FileKind::C(_) => (1..SHORT_BYTES).contains(&zeros),
                FileKind::Blank
                | FileKind::BrokenHeader
                | FileKind::Misplaced(_)
                | FileKind::UnknownVersion(_) => false,
            };
            if trims {
                self.trim(file.index, file.end);
            }
        }
    }
}

/// The files and the jobs, as the writer counts them.
fn beginning(replay: &mut Replay, judgement: &Judgement, next_index: u32) -> Beginning {
    let mut files = std::mem::take(&mut replay.jobs.files);
    for &index in &judgement.given_up {
        files.forget_empty(index);
    }
    let mut burials = Burials::default();
    if replay.jobs.latest_burial.is_some() {
        for (id, job) in replay.jobs.alive.iter() {
            if let Some(time) = job.buried_at() {
                burials.restore(id, time);
            }
        }
    }
    let end = replay
        .files
        .last()
        .map_or(LogPosition::default(), |last| LogPosition { file: last.index, offset: last.end });
    let cooldowns = std::mem::take(&mut replay.jobs.tagged.cooldowns);
    let mut room = Room::needed_by(files.job_count(), cooldowns.len() as u64);
    for (id, tags) in replay.jobs.tagged.tags.iter() {
        if let Some(job) = replay.jobs.alive.get(id) {
            let tube_len = replay.jobs.tubes.name(job.tube).as_bytes().len();
            let tags = JobTags::decode(tags).unwrap_or_default();
            room.reserve_for(id, JobRoom::of(tube_len, &tags, job.was_reserved(&replay.jobs.histories)));
        }
    }
    Beginning {
        contents: Contents { files, burials, room, cooldowns },
        next_job_id: replay.jobs.next_id,
        next_index,
        end,
        durable: replay.facts.durable,
    }
}

/// Copies each tail that is about to be cut.
fn keep_tails(
    storage: &mut dyn Storage,
    replay: &Replay,
    judgement: &Judgement,
) -> Result<Vec<DamagedFile>, OpenError> {
    let mut tails = Vec::new();
    for &at in &judgement.cuts {
        let FileState { index: file, end: offset, records_beyond: records_applied, .. } = replay.files[at];
        let bytes =
            storage.keep_tail(file, offset).map_err(|error| OpenError::Keep { file, offset, error })?;
        tails.push(DamagedFile { file, offset, bytes, records_applied });
    }
    Ok(tails)
}

/// Removes the files from the log that cannot be read at all, and that the operator has agreed to lose.
fn keep_given_up(storage: &mut dyn Storage, replay: &Replay, judgement: &Judgement) -> Result<(), OpenError> {
    for file in replay.files.iter().map(|file| file.index).filter(|index| judgement.given_up.contains(index))
    {
        storage.set_aside(file).map_err(|error| OpenError::Keep { file, offset: 0, error })?;
    }
    Ok(())
}

/// Passes the jobs to the server, in the order that restores its queues. Returns the jobs whose delay ends earlier than
/// the log says, because the wall clock was set back. The memory of the replay is freed job by job, because the server
/// may have no room for both.
fn restore_jobs(
    jobs: LoggedJobs,
    times: StartTimes,
    restore: &mut Restore<'_>,
) -> Result<Vec<JobId>, OpenError> {
    let LoggedJobs { alive, tubes, histories, mut tagged, .. } = jobs;
    tagged.forget_groups();
    let (mut buried, mut earlier) = (Vec::new(), Vec::new());
    let mut give = |id: JobId, job: ReplayedJob| {
        if job.ends_earlier(times) {
            earlier.push(id);
        }
        let tags = tagged.take(id);
        restore(job.to_record(id, &histories, times), tubes.name(job.tube), job.body, &tags);
    };
    for (id, job) in alive.into_entries() {
        match job.buried_at() {
            Some(time) => {
                buried.try_reserve(1)?;
                buried.push((time, id, job));
            }
            None => give(id, job),
        }
    }
    buried.sort_unstable_by_key(|&(time, id, _)| (time, id));
    buried.into_iter().for_each(|(_, id, job)| give(id, job));
    Ok(earlier)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::job::{Counters, Priority};
    use crate::{Completion, DirectoryStorage, Listing};

    const NOW: Timestamp = Timestamp(1_000_000_000);

    /// A store that takes no more jobs, as a full database; its files are in a directory.
    struct FullDatabase(DirectoryStorage);

    impl Storage for FullDatabase {
        fn list(&mut self) -> io::Result<Listing> {
            self.0.list()
        }

        fn size(&mut self, file: u32) -> io::Result<u64> {
            self.0.size(file)
        }

        fn read(&mut self, file: u32, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.read(file, offset, bytes)
        }

        fn prepare(&mut self, file: u32) -> io::Result<()> {
            self.0.prepare(file)
        }

        fn append(&mut self, at: LogPosition, bytes: &[u8]) -> io::Result<()> {
            self.0.append(at, bytes)
        }

        fn release(&mut self, file: u32) {
            self.0.release(file);
        }

        fn submit(&mut self, task: StoreTask) {
            self.0.submit(task);
        }

        fn poll(&mut self) -> Option<Completion> {
            self.0.poll()
        }

        fn is_busy(&self) -> bool {
            self.0.is_busy()
        }

        fn wait(&mut self) -> Option<Completion> {
            self.0.wait()
        }

        fn start(&mut self, wake: Box<dyn Fn() + Send>) -> io::Result<()> {
            self.0.start(wake)
        }

        fn clock_ns(&self) -> Option<u64> {
            Some(NOW.0)
        }

        fn is_full(&self) -> bool {
            true
        }

        fn keep_tail(&mut self, file: u32, offset: u64) -> io::Result<u64> {
            self.0.keep_tail(file, offset)
        }

        fn set_aside(&mut self, file: u32) -> io::Result<()> {
            self.0.set_aside(file)
        }
    }

    fn open(storage: Box<dyn Storage>, recover: bool) -> Result<(Binlog, Vec<JobId>), OpenError> {
        let config = Config { file_bytes: 4096, sync: SyncPolicy::EachCommit, recover, nonce_seed: 1 };
        let mut ids = Vec::new();
        let mut restore = |job: JobRecord, _: &_, _, _: &_| ids.push(job.id);
        let (log, _) = Binlog::open(storage, config, NOW, 0, &mut restore)?;
        Ok((log, ids))
    }

    /// Writes a log with three jobs, and damages the body of the second.
    fn write_damaged_log(directory: &Path) {
        let (mut log, _) = open(Box::new(DirectoryStorage::new(directory)), false).unwrap();
        let tube = TubeName::default_tube();
        for (id, body) in (1..).zip([b"first!", b"second", b"third!"]) {
            let record = JobRecord {
                id: JobId(id),
                priority: Priority(0),
                delay_s: 0.into(),
                ttr_s: 1.into(),
                created_at: NOW,
                state: JobState::Ready,
                deadline_at: NOW,
                counters: Counters::default(),
            };
            log.reserve_put(tube.as_bytes().len(), body.len(), &EncodedTags::NONE).unwrap();
            log.append_put(&WholeJob::plain(&record, &tube, &Body::copy_of(body).unwrap()), NOW);
        }
        log.commit(NOW).unwrap();
        drop(log);
        let (mut storage, mut bytes) = (DirectoryStorage::new(directory), [0; 4096]);
        let read = storage.read(1, 0, &mut bytes).unwrap();
        let offset = bytes[..read].windows(6).position(|part| part == b"second").unwrap() as u64;
        storage.append(LogPosition { file: 1, offset }, b"damage").unwrap();
    }

    #[test]
    fn a_repair_without_room_is_reported_as_such_and_succeeds_once_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        write_damaged_log(directory.path());
        let storage = || DirectoryStorage::new(directory.path());
        for _ in 0..2 {
            assert!(matches!(open(Box::new(FullDatabase(storage())), true), Err(OpenError::NoRoom)));
        }
        let (_, ids) = open(Box::new(storage()), true).unwrap();
        assert_eq!(
            ids,
            [JobId(1), JobId(3)],
            "nothing was cut before there was room for what follows the cut"
        );
    }
}
