//! The description of the open log: a snapshot, with which the new program continues after a hand-over.
//!
//! Owns: which parts of the log are described, and the checks when they are read: the file of each job and the length
//! of its record, the files made ahead, the reserved room, and the durable part. The files themselves are not read
//! again, because that would take as long as a start. Reading never panics: bytes that are not a description are
//! [`Malformed`]. Driven by the server, when the log is quiesced ([`Binlog::quiesce`]); a trial reads a log that is
//! not.

use std::io::{self, ErrorKind};

use super::appender::Appender;
use super::compaction::{Compaction, DescribedCompaction};
use super::durability::{Durability, LogMark};
use super::files_ahead::{DescribedNextFile, FilesAhead};
use super::ids::Ids;
use super::room::{Room, Spare};
use super::unlogged::Unlogged;
use super::{Binlog, Contents, IDLE_MARK_NS, OPEN_AHEAD};
use crate::clock::Timestamp;
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::item::Item;
use crate::job::JobId;
use crate::marker::HEAD_BYTES;
use crate::storage::Storage;
use crate::wall_clock::WallOffset;
use crate::{BLOCK_BYTES, Config, LogPosition, MAX_INDEX, MAX_NUMBER, OpenError, SequenceNumber};

/// An open log as the old program has left it.
#[derive(Debug)]
pub struct DescribedLog {
    contents: Contents,
    progress: DescribedProgress,
    compaction: DescribedCompaction,
}

/// The end of the log, and the facts in its markers.
#[derive(Debug)]
struct DescribedProgress {
    end: LogPosition,
    /// The nonce of the file to which records are appended.
    nonce: u64,
    appended: SequenceNumber,
    durable: LogMark,
    next_id: u64,
    announced_id: u64,
    /// The wall clock less the clock of the instants.
    wall_offset_ns: i64,
    next_file: DescribedNextFile,
    /// Syncs done, and the time that they took in microseconds.
    sync_totals: (u64, u64),
    /// Jobs whose newest states the log lacks.
    updates: Vec<JobId>,
}

described!(LogPosition { file, offset });
described!(LogMark { end, sequence, ids });
described!(Spare { index, bytes, nonce });
described!(DescribedProgress {
    end,
    nonce,
    appended,
    durable,
    next_id,
    announced_id,
    wall_offset_ns,
    next_file,
    sync_totals,
    updates
});

impl Described for SequenceNumber {
    fn describe(&self, out: &mut Writer<'_>) {
        self.0.describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        bounded(from).map(Self)
    }
}

/// A number of a log.
fn bounded(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    Some(from.value()?).filter(|&number| number <= MAX_NUMBER).ok_or(Malformed("a number of the log"))
}

impl Binlog {
    /// Writes the facts that the new program needs to continue this log. It can do so only if the log is quiesced.
    pub fn describe(&self, out: &mut Writer<'_>) {
        let Self {
            contents: Contents { files, burials, cooldowns, room },
            appender,
            durability,
            ids,
            ahead,
            compaction,
            clock,
            // The new program has its own store and command line.
            storage: _,
            config: _,
            health: _,
            warnings: _,
            // Nothing else is unlogged once the log is quiesced.
            unlogged: Unlogged { updates, .. },
            // The state of the start is not needed any more.
            restored_reservations: _,
            restored_clock: _,
        } = self;
        files.describe(out);
        burials.describe(out);
        cooldowns.describe(out);
        room.describe(out);
        let progress = DescribedProgress {
            end: appender.end(),
            nonce: appender.nonce(),
            appended: appender.appended(),
            durable: durability.durable(),
            next_id: ids.next(),
            announced_id: ids.announced(),
            wall_offset_ns: clock.wall.0,
            next_file: ahead.described(),
            sync_totals: durability.sync_totals(),
            updates: updates.iter().copied().collect(),
        };
        progress.describe(out);
        compaction.described().describe(out);
    }

    /// Whether the log lacks changes that must find room: all that it can lack other than states of jobs.
    #[must_use]
    pub fn lacks_needed_changes(&self) -> bool {
        !self.unlogged.is_empty()
    }

    /// Whether the new program can continue with the output of [`Binlog::describe`]: nothing but states of jobs waits
    /// for room.
    #[must_use]
    pub fn is_quiesced(&self) -> bool {
        self.health.is_serving() && self.appender.is_empty() && self.unlogged.is_empty()
    }

    /// Resumes the log of the old program, whose files are in `storage`.
    ///
    /// # Errors
    /// If the file to which records are appended does not exist, or is shorter than it was.
    pub fn resume(
        mut storage: Box<dyn Storage>,
        config: Config,
        described: DescribedLog,
        now: Timestamp,
        wall_offset_ns: i64,
    ) -> Result<Self, OpenError> {
        let config = config.rounded();
        let DescribedLog { contents, progress, compaction } = described;
        let DescribedProgress {
            end,
            nonce,
            appended,
            durable,
            next_id,
            announced_id,
            next_file,
            updates,
            ..
        } = progress;
        let read = |error| OpenError::Read { file: end.file, error };
        storage.prepare(end.file).map_err(read)?;
        if storage.size(end.file).map_err(read)? < end.offset {
            return Err(read(io::Error::new(ErrorKind::UnexpectedEof, "it is shorter than it was")));
        }
        let written = LogMark { end, sequence: appended, ids: announced_id };
        let wall = WallOffset(progress.wall_offset_ns);
        let mut log = Self {
            clock: super::LogClock::new(wall, &*storage, now),
            storage,
            config,
            contents,
            ids: Ids::resume(config.sync, next_id, announced_id),
            appender: Appender::resume(end, nonce, appended),
            unlogged: Unlogged { updates: updates.into_iter().collect(), ..Unlogged::default() },
            restored_reservations: Vec::new(),
            restored_clock: wall,
            ahead: FilesAhead::resume(&config, next_file),
            compaction: Compaction::resume(compaction),
            durability: Durability::resume(config.sync, durable, written, progress.sync_totals),
            health: super::Health::Serving,
            warnings: super::RateLimitedLog::every(super::WARNING_INTERVAL_NS),
        };
        log.open_spares(OPEN_AHEAD);
        // A marker soon records what the old program's last sync has made durable, and which delays have ended.
        log.mark_durable();
        log.clock.idle_mark_at = (!log.appender.is_empty()).then_some(now + IDLE_MARK_NS);
        log.note_end_of_delay(now);
        // The wall clock may have been set in the meantime.
        log.set_wall_offset(wall_offset_ns);
        log.prepare_files();
        log.outcome().map_err(OpenError::Failed)?;
        Ok(log)
    }
}

impl DescribedLog {
    /// Reads the output of [`Binlog::describe`].
    ///
    /// # Errors
    /// If the bytes are not the description of a log.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (files, burials, cooldowns) = (from.value()?, from.value()?, from.value()?);
        let contents = Contents { files, burials, cooldowns, room: from.value()? };
        let mut log = Self { contents, progress: from.value()?, compaction: from.value()? };
        log.check()?;
        log.check_lists()?;
        let Contents { files, cooldowns, room, .. } = &mut log.contents;
        room.need(files.job_count() + cooldowns.len() as u64);
        let (bytes, offset) = (files.newest().map_or(0, |file| file.bytes), log.progress.end.offset);
        if !Room::has_tail(bytes, offset) {
            return Err(Malformed("the end of the log"));
        }
        room.use_file(bytes, offset);
        Ok(log)
    }

    /// The jobs in the log, each once, by ascending id.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.contents.files.jobs()
    }

    /// Checks that the lists are consistent.
    fn check_lists(&self) -> Result<(), Malformed> {
        let Self { contents: Contents { files, burials, cooldowns, room }, progress, compaction } = self;
        let is_in_log = |id| files.file_of(id).is_some();
        let is_kept = cooldowns.len() == files.cooldown_count()
            && cooldowns.iter().all(|(id, _)| files.record_bytes(Item::Cooldown(id)).is_some());
        let below = compaction.below.unwrap_or(0);
        let is_emptied = files.closed().filter(|file| file.index < below).all(|file| file.live == 0);
        let is_compaction =
            compaction.below.is_none() || files.oldest_index() < below && below <= progress.end.file;
        if burials.ids().all(is_in_log)
            && progress.updates.iter().copied().all(is_in_log)
            && room.jobs().all(is_in_log)
            && is_kept
            && is_emptied
            && is_compaction
        {
            Ok(())
        } else {
            Err(Malformed("the lists of the log do not match"))
        }
    }

    /// Checks that the numbers are consistent.
    fn check(&self) -> Result<(), Malformed> {
        let DescribedProgress { end, nonce, durable, next_id, announced_id, next_file, .. } = &self.progress;
        let expect = |holds: bool, what| if holds { Ok(()) } else { Err(Malformed(what)) };
        let current = self.contents.files.newest().ok_or(Malformed("the log has no file"))?;
        expect(current.index == end.file && *nonce != 0, "the file of the log")?;
        expect(end.offset >= HEAD_BYTES && end.offset <= current.bytes, "the end of the log")?;
        expect(durable.end <= *end && durable.sequence <= self.progress.appended, "what is durable")?;
        expect(durable.ids <= MAX_NUMBER && *announced_id <= MAX_NUMBER, "the ids of the log")?;
        expect((1..=MAX_NUMBER).contains(next_id), "the ids of the log")?;
        let DescribedNextFile { next_index, usual_bytes, .. } = *next_file;
        let newest = self.contents.room.newest_spare().unwrap_or(end.file);
        expect(newest < next_index && next_index <= MAX_INDEX + 1, "the next file of the log")?;
        let is_length = usual_bytes.is_multiple_of(BLOCK_BYTES) && (1..=MAX_NUMBER).contains(&usual_bytes);
        expect(is_length, "the length of the next file")?;
        expect(self.contents.room.first_spare().is_none_or(|first| first > end.file), "a file made ahead")
    }
}
