//! Reads the log at the start: all files, oldest first, record by record.
//!
//! | file | what it has |
//! |---|---|
//! | this one | the order in which files, records and markers are read, and what each file and each marker says |
//! | `reader.rs` | the bytes of a file |
//! | `identify.rs` | the program and the version that wrote a file |
//! | `jobs.rs` | the jobs of the records read so far |
//! | `tagged.rs`, `logged_tubes.rs`, `completing.rs` | their tags, their tubes, and the puts of a `complete` whose end has not been read |
//! | `judgement.rs` | after the last file: the decision about each file, in the table of `decision.rs`, and the report |
//!
//! Changes nothing in the store. Driven by `open`, which carries out the decisions, and by `check`, which reports them.

use std::collections::BTreeMap;

use super::attachment::Part;
use super::format::{MAX_JOB_ID, RECORD_BYTES, SHORT_BYTES, Seal, VERSION_BYTES, take};
use super::marker::{CLOCK_STEP_NS, Marker, MarkerKind};
use super::record::{Format, Layout, MAX_HEAD_BYTES, Version};
use super::storage::Storage;
use super::wall_clock::WallTime;
use super::{LogPosition, MAX_INDEX, OpenError, SyncPolicy};

mod completing;
mod decision;
mod identify;
mod jobs;
mod judgement;
mod logged_tubes;
mod reader;
mod tagged;

pub(super) use self::decision::FileEnd;
use self::decision::WrittenBy;
pub use self::jobs::RestoredReservation;
pub(super) use self::jobs::{LoggedJobs, ReplayedJob, StartTimes};
pub(super) use self::judgement::Judgement;
pub use self::judgement::{DamagedFile, ReplaySummary, Warning};
use self::reader::LogFileReader;

/// How often a long replay reports its progress, in bytes read.
const PROGRESS_BYTES: u64 = 512 * 1024 * 1024;

/// The kind of a file, as found by the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Written by this server.
    Ours { seal: Seal, sync: SyncPolicy },
    /// Written by C beanstalkd, in this layout.
    C(Version),
    /// No record, and no room for one, or only zeros: C was killed while it made the file.
    Blank,
    /// Written by this server, but its header is damaged.
    BrokenHeader,
    /// Written by this server, but made as the file with another index.
    Misplaced(u32),
    /// Of a version that this server does not know.
    UnknownVersion(i32),
}

impl FileKind {
    /// The format of its records, if they can be read.
    fn format(self) -> Option<Format> {
        match self {
            Self::Ours { .. } => Some(Format::Ours),
            Self::C(version) => Some(Format::C(version)),
            Self::Blank | Self::BrokenHeader | Self::Misplaced(_) | Self::UnknownVersion(_) => None,
        }
    }
}

/// The findings of the replay in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileState {
    pub(super) index: u32,
    pub(super) kind: FileKind,
    pub(super) bytes: u64,
    /// Original length of the file, if this server made it.
    pub(super) made_bytes: u64,
    /// The end of the unbroken sequence of records; 0 if even the version is damaged.
    pub(super) end: u64,
    pub(super) file_end: FileEnd,
    /// Whether a torn record at its end is damage if the next file has records.
    pub(super) next_must_be_unused: bool,
    /// Records in the unbroken sequence, markers not counted.
    pub(super) records: u64,
    /// Whole records after it.
    pub(super) records_beyond: u64,
    /// The file in which the log continues, as its last marker says.
    pub(super) continued: Option<u32>,
    /// The end of the file before it, if that is known.
    pub(super) opened: Option<LogPosition>,
}

impl FileState {
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.kind, FileKind::Ours { .. })
    }

    /// The program that wrote it, as in the table of decisions.
    pub(super) fn writer(&self) -> WrittenBy {
        let FileKind::Ours { sync, .. } = self.kind else { return WrittenBy::C };
        match sync {
            SyncPolicy::EachCommit => WrittenBy::OursSyncedFirst,
            SyncPolicy::Every(_) | SyncPolicy::Never => WrittenBy::OursAnsweredFirst,
        }
    }
}

/// The source of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) file: u32,
    /// Where it begins in the file, in bytes.
    pub(super) offset: u64,
    /// Whether this server wrote the record. Then the record of a buried job has the time of its burial.
    pub(super) is_ours: bool,
    /// Whether the record comes after a damaged one.
    pub(super) beyond: bool,
    /// Whether the record counts without its attachments, if they are lost.
    pub(super) recovers: bool,
}

impl Source {
    pub(super) fn position(self) -> LogPosition {
        LogPosition { file: self.file, offset: self.offset }
    }
}

/// The facts in the markers of all files.
#[derive(Debug, Default)]
pub(super) struct MarkerFacts {
    /// The highest durable position.
    pub(super) durable: LogPosition,
    /// The highest index below which no file was needed, and the file that records this. `None` if the last server did
    /// not sync before it removed files.
    pub(super) oldest: Option<(u32, u32)>,
    pub(super) ends: BTreeMap<u32, u64>,
    /// The ends at which recovery has cut files. They take precedence over `ends`.
    pub(super) cuts: BTreeMap<u32, u64>,
    /// Every assigned id is smaller.
    next_id: u64,
    /// The time in the last marker that has one, which had passed by then.
    pub(super) time: WallTime,
}

impl MarkerFacts {
    /// The end of file `index`, if a marker in a newer file records it.
    pub(super) fn recorded_end(&self, index: u32) -> Option<u64> {
        self.cuts.get(&index).or(self.ends.get(&index)).copied()
    }
}

/// The replay of a directory.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) files: Vec<FileState>,
    pub(super) jobs: LoggedJobs,
    pub(super) facts: MarkerFacts,
    /// Names that look like files of the log but are not.
    pub(super) strange_names: Vec<String>,
    /// Records read, markers not counted.
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) recover: bool,
}

impl Replay {
    /// Reads all files.
    pub(super) fn read(storage: &mut dyn Storage, recover: bool) -> Result<Self, OpenError> {
        let mut replay = Self { recover, ..Self::default() };
        replay.jobs.next_id = 1;
        let mut progress = PROGRESS_BYTES;
        let indexes = replay.list(storage)?;
        let mut reader = LogFileReader::new(storage);
        for index in indexes {
            replay.read_file(&mut reader, index)?;
            reader.close();
            if replay.bytes >= progress {
                progress = replay.bytes + PROGRESS_BYTES;
                log::info!("binlog: read {} MiB, {} records", replay.bytes >> 20, replay.records);
            }
        }
        replay.jobs.next_id = replay.jobs.next_id.max(replay.facts.next_id);
        replay.check_invariants();
        Ok(replay)
    }

    /// Asserts the invariants of a log that was read to its end.
    #[inline]
    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            self.jobs.files.check_invariants();
            let counts = (self.jobs.files.job_count(), self.jobs.files.cooldown_count());
            let found = (self.jobs.alive.len() as u64, self.jobs.tagged.cooldowns.len());
            assert_eq!(found, counts, "each live job and each cooldown is in a file");
            assert!(self.jobs.alive.iter().all(|(id, _)| id.0 < self.jobs.next_id), "the next id is new");
        }
    }

    /// The indexes of all files, in order.
    fn list(&mut self, storage: &mut dyn Storage) -> Result<Vec<u32>, OpenError> {
        let listing = storage.list().map_err(OpenError::List)?;
        self.strange_names = listing.strange_names;
        let mut indexes = Vec::new();
        for index in listing.indexes {
            let index = u32::try_from(index).ok().filter(|&index| index <= MAX_INDEX);
            indexes.push(index.ok_or(OpenError::TooManyFiles)?);
        }
        indexes.sort_unstable();
        Ok(indexes)
    }

    fn read_file(&mut self, reader: &mut LogFileReader<'_>, index: u32) -> Result<(), OpenError> {
        debug_assert!(self.files.last().is_none_or(|last| last.index < index), "files are read in order");
        let bytes = reader.open(index)?;
        self.bytes += bytes;
        let mut file = FileState {
            index,
            kind: identify::identify(reader, index, self.recover)?,
            bytes,
            made_bytes: 0,
            end: 0,
            file_end: FileEnd::Clean,
            next_must_be_unused: false,
            records: 0,
            records_beyond: 0,
            continued: None,
            opened: None,
        };
        if file.kind.format().is_some() || file.kind == FileKind::Blank {
            self.jobs.files.push(index, bytes);
        }
        if let Some(format) = file.kind.format() {
            // If the version is damaged, it is cut off together with everything after it.
            if identify::stated_version(reader)? == Some(format.version()) {
                let mut offset = VERSION_BYTES;
                while let Some(bytes) = self.read_one(reader, &mut file, format, offset, false)? {
                    offset += bytes;
                }
                if let Some((start, count)) = self.jobs.completing.end_file(index) {
                    // A `complete` whose end was not written: no part of it counts, for C neither.
                    offset = start;
                    file.records -= count;
                }
                file.end = offset;
            }
            debug_assert!(file.end <= bytes, "the unbroken sequence of records is a part of the file");
            self.read_tail(reader, &mut file, format)?;
            self.jobs.completing.end_file(index);
        }
        self.records += file.records + file.records_beyond;
        self.files.push(file);
        Ok(())
    }

    /// Applies the record at `offset`. Returns its length, or `None` if there is no valid record.
    fn read_one(
        &mut self,
        reader: &mut LogFileReader<'_>,
        file: &mut FileState,
        format: Format,
        offset: u64,
        beyond: bool,
    ) -> Result<Option<u64>, OpenError> {
        let mut bytes = reader.at(offset, MAX_HEAD_BYTES)?;
        let Some(layout) = Layout::read(format, bytes, file.bytes - offset) else { return Ok(None) };
        debug_assert!(offset + layout.total as u64 <= file.bytes, "a record ends in its file");
        if layout.total > bytes.len() {
            bytes = reader.at(offset, layout.total)?;
        }
        let Some(bytes) = bytes.get(..layout.total) else { return Ok(None) };
        if let FileKind::Ours { seal, .. } = file.kind {
            if !seal.matches(bytes, layout.fixed_at, offset) {
                return Ok(None);
            }
            if layout.is_marker() {
                let fixed = take(bytes, layout.fixed_at);
                self.read_marker(file, &fixed, offset, beyond)?;
                return Ok(Some(SHORT_BYTES));
            }
        } else if layout.is_marker() {
            return Ok(Some(layout.total as u64));
        } else if layout.is_torn_short() {
            return Ok(None);
        }
        let source = self.source(file, offset, beyond);
        if beyond && !self.applies_beyond(file) {
            return Ok(layout.is_plausible(bytes).then_some(layout.total as u64));
        }
        if !self.jobs.apply(&layout, bytes, source)? {
            return Ok(None);
        }
        *if beyond { &mut file.records_beyond } else { &mut file.records } += 1;
        Ok(Some(layout.total as u64))
    }

    fn source(&self, file: &FileState, offset: u64, beyond: bool) -> Source {
        let recovers = beyond && self.recover;
        Source { file: file.index, offset, is_ours: file.is_ours(), beyond, recovers }
    }

    /// Handles a marker, which counts at once; a part of an attachment waits for the others and for its record.
    fn read_marker(
        &mut self,
        file: &mut FileState,
        fixed: &[u8; RECORD_BYTES],
        offset: u64,
        beyond: bool,
    ) -> Result<(), OpenError> {
        if let Some(marker) = Marker::decode(fixed) {
            self.note_marker(file, &marker, beyond);
        } else if let Some(part) = Part::decode(fixed)
            && (!beyond || self.applies_beyond(file))
        {
            let source = self.source(file, offset, beyond);
            self.jobs.attach(&part, source)?;
        }
        Ok(())
    }

    /// Whether records after a damaged one count. They do not if no client can have received a reply that depends on
    /// them.
    fn applies_beyond(&self, file: &FileState) -> bool {
        match file.writer() {
            WrittenBy::OursAnsweredFirst => true,
            WrittenBy::OursSyncedFirst | WrittenBy::C => self.recover,
        }
    }

    /// Reads the bytes after the unbroken sequence.
    fn read_tail(
        &mut self,
        reader: &mut LogFileReader<'_>,
        file: &mut FileState,
        format: Format,
    ) -> Result<(), OpenError> {
        if reader.first_nonzero(file.end)?.is_none() {
            return Ok(());
        }
        debug_assert_eq!(file.file_end, FileEnd::Clean, "the end of a file is judged once");
        file.file_end = FileEnd::DataBeyond;
        if let FileKind::Ours { seal, .. } = file.kind {
            self.scan_ours(reader, file, seal)?;
        } else {
            let torn_bytes = torn_bytes(reader, file, format.version())?;
            if reader.first_nonzero(file.end + torn_bytes)?.is_none() {
                file.file_end = FileEnd::Torn;
            }
            if self.recover {
                self.scan_c(reader, file, format, torn_bytes)?;
            }
        }
        Ok(())
    }

    /// Searches for whole records of this server after the damaged one, by their tags.
    fn scan_ours(
        &mut self,
        reader: &mut LogFileReader<'_>,
        file: &mut FileState,
        seal: Seal,
    ) -> Result<(), OpenError> {
        file.file_end = FileEnd::Torn;
        let mut offset = file.end;
        while let Some(start) = reader.first_nonzero(offset)? {
            offset = start.saturating_sub(Version::Seven.max_first_zeros()).max(offset);
            while offset <= start {
                let bytes = reader.at(offset, MAX_HEAD_BYTES)?;
                let tagged = Layout::read(Format::Ours, bytes, file.bytes - offset)
                    .is_some_and(|layout| seal.tag_matches(&take(bytes, layout.fixed_at), offset));
                if tagged && let Some(bytes) = self.read_one(reader, file, Format::Ours, offset, true)? {
                    file.file_end = FileEnd::DataBeyond;
                    offset += bytes;
                    break;
                }
                offset += 1;
            }
        }
        Ok(())
    }

    /// Searches for whole records of C's after the damaged one: first where the damaged one ends according to its
    /// lengths. These may be the damaged part: if no record is there, at every position where a full record can be.
    fn scan_c(
        &mut self,
        reader: &mut LogFileReader<'_>,
        file: &mut FileState,
        format: Format,
        torn_bytes: u64,
    ) -> Result<(), OpenError> {
        let mut offset = file.end + torn_bytes;
        let mut in_sequence = torn_bytes > 0;
        if !in_sequence || !identify::is_record(reader, format.version(), offset)? {
            (offset, in_sequence) = (file.end + 1, false);
        }
        while offset < file.bytes {
            let bytes = reader.at(offset, MAX_HEAD_BYTES)?;
            let layout = Layout::read(format, bytes, file.bytes - offset);
            let may_begin = in_sequence || layout.is_some_and(|layout| layout.is_full());
            let read = if may_begin { self.read_one(reader, file, format, offset, true)? } else { None };
            in_sequence = read.is_some();
            offset += read.unwrap_or(1);
            if in_sequence {
                file.file_end = FileEnd::DataBeyond;
            }
        }
        Ok(())
    }

    /// Notes the facts in a marker. After a damaged record, a fact counts only if markers of all kinds have it: the
    /// marker will be cut off, and the new file repeats the other facts.
    fn note_marker(&mut self, file: &mut FileState, marker: &Marker, beyond: bool) {
        let facts = &mut self.facts;
        // After a clean exit, ids that were announced ahead but not assigned can be assigned.
        let known = if marker.kind == MarkerKind::Closed { 0 } else { facts.next_id };
        facts.next_id = known.max(marker.next_job_id).min(MAX_JOB_ID);
        facts.durable = facts.durable.max(marker.durable);
        if marker.sync == SyncPolicy::Never {
            // Its server may have removed files without a marker that a loss of power leaves.
            facts.oldest = None;
        } else if facts.oldest.is_none_or(|(oldest, _)| oldest <= marker.oldest) {
            facts.oldest = Some((marker.oldest, file.index));
        }
        match marker.kind {
            _ if beyond => {}
            MarkerKind::Opened(previous_end) => {
                file.opened = Some(previous_end);
                facts.ends.insert(previous_end.file, previous_end.offset);
            }
            MarkerKind::Continued(next) => file.continued = Some(next),
            MarkerKind::Cut(end) => {
                facts.cuts.insert(end.file, end.offset);
            }
            MarkerKind::Header(bytes) => file.made_bytes = bytes,
            MarkerKind::Durable | MarkerKind::Closed => self.note_time(marker.time),
        }
    }

    /// Notes a time that had passed. If an earlier marker has a later time, the wall clock was set back between them.
    fn note_time(&mut self, time: WallTime) {
        let before = self.facts.time;
        if time.plus_ns(CLOCK_STEP_NS) <= before && time != WallTime::EPOCH {
            self.jobs.note_set_back(before, time);
            self.facts.time = time;
        } else {
            self.facts.time = before.max(time);
        }
    }
}

/// How many bytes after the last valid record can belong to a record that C was writing: C writes the name's length,
/// the name, the fixed part and the body one after another, over zeros.
fn torn_bytes(
    reader: &mut LogFileReader<'_>,
    file: &mut FileState,
    version: Version,
) -> Result<u64, OpenError> {
    if file.end < VERSION_BYTES {
        return Ok(VERSION_BYTES);
    }
    let rest = file.bytes - file.end;
    if rest < version.short_bytes() {
        return Ok(rest);
    }
    let head = reader.at(file.end, MAX_HEAD_BYTES)?;
    let Some(layout) = Layout::read(Format::C(version), head, u64::MAX) else { return Ok(0) };
    if layout.record.id == 0 {
        return Ok(if layout.is_full() { layout.fixed_at as u64 } else { 0 });
    }
    if layout.total as u64 <= rest {
        return Ok(layout.total as u64);
    }
    // C writes a job that is larger than a file beyond the end of the file: 1.4.6 anywhere; later versions only as the
    // first job of a file, after they have made the next file. If the length is damaged, there may be records after
    // this one.
    file.next_must_be_unused = version == Version::Seven;
    let is_being_written = (file.end == VERSION_BYTES || version == Version::Five)
        && layout.has_plausible_head(head)
        && !identify::has_record_of_c(reader, version, file.end + layout.body_at as u64)?;
    Ok(if is_being_written { rest } else { 0 })
}
