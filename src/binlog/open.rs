//! Opening the log: replay, repair, and the new file in which it goes on.
//!
//! Owns: the order of the steps, which makes them safe to repeat after a crash at any point. Driven by the
//! server, once.

use std::io;

use super::burials::Burials;
use super::decision::FileEnd;
use super::disk::{Disk, FileName};
use super::format::{SHORT_BYTES, WallOffset};
use super::jobs::{Jobs, ReplayedJob};
use super::marker::Place;
use super::reader::Reader;
use super::replay::{DamagedFile, Kind, Replay, ReplaySummary, Verdict};
use super::writer::{Beginning, Binlog, MAX_INDEX};
use super::{Config, NoRoom, OpenError, SyncPolicy};
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobRecord};
use crate::tube_name::TubeName;

/// Lengths of files are rounded up to this many bytes, as C does.
const BLOCK_BYTES: u64 = 4096;
/// Zeros at the end of an old file are given back from this many bytes on.
const TRIM_BYTES: u64 = 4096;
/// Bytes copied at a time into a file of what was lost.
const COPY_BYTES: usize = 256 * 1024;

impl Binlog {
    /// Reads the log in `disk`, repairs what a crash has torn, and begins a new file. `restore` is then
    /// called once for each job: those that are not buried by ascending id, then the buried in the order
    /// of their burial. A job that was reserved is ready. `wall_offset_ns` is the wall clock less the
    /// clock of `now`.
    ///
    /// # Errors
    /// Where the log cannot be read, or holds damage that a crash does not explain; nothing has changed
    /// on disk in that case. Where the new file cannot be made.
    pub fn open(
        mut disk: Box<dyn Disk>,
        config: Config,
        now: Timestamp,
        wall_offset_ns: i64,
        restore: &mut dyn FnMut(JobRecord, &TubeName, Body),
    ) -> Result<(Self, ReplaySummary), OpenError> {
        let wall = WallOffset(wall_offset_ns);
        let config = Config {
            segment_bytes: config.segment_bytes.max(1).next_multiple_of(BLOCK_BYTES),
            sync: if config.sync == SyncPolicy::Every(0) { SyncPolicy::EachCommit } else { config.sync },
            ..config
        };
        let mut replay = Replay::read(&mut *disk, config.recover)?;
        let verdict = replay.judge();
        if !verdict.refusals.is_empty() {
            return Err(OpenError::Refused(verdict.refusals));
        }
        // 1. What is to be cut off is kept aside.
        let tails = keep_tails(&mut *disk, &replay, &verdict)?;
        keep_given_up(&mut *disk, &replay, &verdict)?;
        // 2. A new file says where the old ones end, and repeats what rests on records about to be cut.
        let next_index = replay.files.last().map_or(1, |last| last.index + 1);
        if next_index > MAX_INDEX {
            return Err(OpenError::TooManyFiles);
        }
        let beginning = beginning(&mut replay, &verdict, next_index);
        let name = FileName::Segment(next_index);
        let mut log = Self::begin(disk, config, beginning, now, wall)
            .map_err(|error| OpenError::Write { name, error })?;
        log.tell_ends(&replay, &verdict)?;
        log.repeat_rescued(&replay, wall)?;
        // 3. All of that is on the medium, and all that was read, before anything is cut.
        // Where nothing is to be cut, `-F` holds; where nothing was read, the new file, which was synced
        // when it was made, may wait for its first record.
        let syncs =
            !verdict.cuts.is_empty() || (config.sync != SyncPolicy::Never && !replay.files.is_empty());
        log.flush(syncs).map_err(OpenError::Failed)?;
        log.cut_tails(&replay, &verdict)?;
        log.trim_files(&replay, config.sync);
        log.prepare_files();
        let summary = replay.summary(&verdict, tails);
        hand_over(replay.jobs, wall, restore);
        Ok((log, summary))
    }

    /// Says where each file ends that is ours or is about to be cut, so that a shorter one is known for damage for ever after, and
    /// which files the operator has agreed to miss. Of the newest file the new one says so anyway, which
    /// is enough unless the file has lost what was durable.
    fn tell_ends(&mut self, replay: &Replay, verdict: &Verdict) -> Result<(), OpenError> {
        let newest = replay.files.last().map_or(0, |last| last.index);
        for (at, file) in replay.files.iter().enumerate() {
            if !file.is_ours() && !verdict.cuts.contains(&at) {
                continue;
            }
            let cut = replay.told.cuts.get(&file.index);
            let told = cut.or(replay.told.ends.get(&file.index));
            let end = Place { file: file.index, offset: file.end };
            let is_told_anyway =
                file.index == newest && cut.is_none() && file.end >= replay.durable_bytes(file);
            if told != Some(&end.offset) && !is_told_anyway {
                self.with_room(|log| log.append_cut(end))?;
            }
        }
        for &file in &verdict.given_up {
            self.with_room(|log| log.append_cut(Place { file, offset: 0 }))?;
        }
        Ok(())
    }

    /// Writes the state of the jobs that rest on records beyond a broken place once more.
    fn repeat_rescued(&mut self, replay: &Replay, wall: WallOffset) -> Result<(), OpenError> {
        for &id in &replay.jobs.rescued {
            let Some(found) = replay.jobs.alive.get(id) else {
                self.with_room(|log| log.reserve_update())?;
                self.append_deletion(id);
                continue;
            };
            let tube = &replay.jobs.tubes[found.tube as usize];
            let body_len = found.body.len();
            self.with_room(|log| log.reserve_put(tube.as_bytes().len(), body_len))?;
            self.append_put(&found.to_record(id, &replay.jobs.histories, wall), tube, &found.body);
        }
        self.outcome().map_err(OpenError::Failed)
    }

    /// Makes files until `append` finds room.
    fn with_room(
        &mut self,
        mut append: impl FnMut(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), OpenError> {
        loop {
            match append(self) {
                Ok(()) => return Ok(()),
                Err(NoRoom::Full) => return Err(OpenError::TooManyFiles),
                Err(NoRoom::Pending) => self.run_tasks().map_err(|error| {
                    let name = FileName::Segment(self.stats().current_index + 1);
                    OpenError::Write { name, error }
                })?,
            }
        }
    }

    fn cut_tails(&mut self, replay: &Replay, verdict: &Verdict) -> Result<(), OpenError> {
        for &at in &verdict.cuts {
            let file = &replay.files[at];
            let name = FileName::Segment(file.index);
            let cut = self.disk.truncate(name, file.end).and_then(|()| self.disk.sync(name));
            cut.map_err(|error| OpenError::Write { name, error })?;
            self.disk.release(name);
            self.segments.shrink(file.index, file.end);
        }
        Ok(())
    }

    /// Gives back the zeros that a file of ours was made with and that no record will need. A file of C's
    /// loses its zeros where they are too few for a record, which C would complain of.
    fn trim_files(&mut self, replay: &Replay, sync: SyncPolicy) {
        for file in replay.files.iter().filter(|file| file.file_end == FileEnd::Clean) {
            let zeros = file.bytes - file.end;
            let trims = match file.kind {
                // A shorter file is damage unless another tells its end, which `-F` does not wait for.
                Kind::Ours { .. } => sync != SyncPolicy::Never && zeros >= TRIM_BYTES,
                Kind::C => (1..SHORT_BYTES).contains(&zeros),
                _ => false,
            };
            if trims {
                self.trim(file.index, file.end);
            }
        }
    }
}

/// The files and the jobs as the writer counts them.
fn beginning(replay: &mut Replay, verdict: &Verdict, next_index: u32) -> Beginning {
    let mut segments = std::mem::take(&mut replay.jobs.segments);
    for &index in &verdict.given_up {
        segments.forget_empty(index);
    }
    let mut burials = Burials::default();
    if replay.jobs.any_buried {
        for (id, job) in replay.jobs.alive.iter() {
            if let Some(time) = job.buried_at() {
                burials.restore(id, time);
            }
        }
    }
    let end =
        replay.files.last().map_or(Place::default(), |last| Place { file: last.index, offset: last.end });
    Beginning {
        segments,
        burials,
        next_job_id: replay.jobs.next_id,
        next_index,
        end,
        durable: replay.told.durable,
    }
}

/// Copies each tail that is to be cut into a file of its own.
fn keep_tails(
    disk: &mut dyn Disk,
    replay: &Replay,
    verdict: &Verdict,
) -> Result<Vec<DamagedFile>, OpenError> {
    let mut tails = Vec::new();
    let mut reader = Reader::default();
    for &at in &verdict.cuts {
        let file = &replay.files[at];
        let name = FileName::Lost(file.index, file.end);
        let bytes = copy_tail(disk, &mut reader, file.index, file.end, name)
            .map_err(|error| OpenError::Write { name, error })?;
        tails.push(DamagedFile {
            file: file.index,
            offset: file.end,
            bytes,
            records_applied: file.records_beyond,
        });
    }
    if let Some(tail) = tails.last() {
        let name = FileName::Lost(tail.file, tail.offset);
        disk.sync_directory().map_err(|error| OpenError::Write { name, error })?;
    }
    Ok(tails)
}

/// Takes the files that cannot be read at all, but that the operator has agreed to miss, out of the log.
fn keep_given_up(disk: &mut dyn Disk, replay: &Replay, verdict: &Verdict) -> Result<(), OpenError> {
    for file in replay.files.iter().filter(|file| verdict.given_up.contains(&file.index)) {
        let name = FileName::Lost(file.index, 0);
        let kept = disk.rename(FileName::Segment(file.index), name).and_then(|()| disk.sync_directory());
        kept.map_err(|error| OpenError::Write { name, error })?;
    }
    Ok(())
}

/// Copies file `index` from `from` on, up to its last byte that is not zero. Returns how many bytes.
fn copy_tail(
    disk: &mut dyn Disk,
    reader: &mut Reader,
    index: u32,
    from: u64,
    to: FileName,
) -> io::Result<u64> {
    let size = reader.open(disk, FileName::Segment(index))?;
    disk.create(to)?;
    let (mut offset, mut kept) = (from, 0);
    while offset < size {
        let bytes = reader.at(disk, offset, COPY_BYTES)?;
        if bytes.is_empty() {
            break;
        }
        let piece = bytes[..bytes.len().min(COPY_BYTES)].to_vec();
        if let Some(last) = piece.iter().rposition(|&byte| byte != 0) {
            disk.write_at(to, offset - from, &piece[..=last])?;
            kept = offset - from + last as u64 + 1;
        }
        offset += piece.len() as u64;
    }
    disk.sync(to)?;
    disk.release(to);
    disk.release(FileName::Segment(index));
    Ok(kept)
}

/// Gives the jobs to the server, in the order that makes its queues what they were.
fn hand_over(jobs: Jobs, wall: WallOffset, restore: &mut dyn FnMut(JobRecord, &TubeName, Body)) {
    let Jobs { alive, tubes, histories, .. } = jobs;
    let mut buried = Vec::new();
    let mut give = |id: JobId, job: ReplayedJob| {
        restore(job.to_record(id, &histories, wall), &tubes[job.tube as usize], job.body);
    };
    for (id, job) in alive {
        match job.buried_at() {
            Some(time) => buried.push((time, id, job)),
            None => give(id, job),
        }
    }
    buried.sort_unstable_by_key(|&(time, id, _)| (time, id));
    buried.into_iter().for_each(|(_, id, job)| give(id, job));
}
