//! The file of an export with `--drain`, and FILE.taking beside it.
//!
//! Owns: which jobs are already in the file, and the states that jobs had before they were buried for the export.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use beanstalk_client::{JobInfo, JobState, Tag};
use serde_json::{Value, json};

use super::destination::{Replacement, beside, lock};
use super::export::{instance, sync_directory};
use super::journal::read_entries;
use super::record::{Record, is_drained, marked_as_drained};
use crate::failure::{Failure, OfFile, Result};
use crate::server::Server;

/// The first bytes of each line of an export.
const LINE_START: &[u8] = b"{\"id\":";

/// The open file, with the jobs that it held before.
pub struct DrainFile {
    path: PathBuf,
    file: File,
    /// The jobs in the file, by id. Several may have the same id if they come from different runs of the server.
    known: HashMap<u64, Vec<Record>>,
    /// Jobs that an earlier, interrupted export has begun to bury.
    taking: HashMap<u64, DrainedJob>,
    taking_path: PathBuf,
    taking_file: File,
    server: String,
    has_binlog: bool,
}

impl DrainFile {
    /// Opens or creates the file, and cuts off an incomplete last line. The job of such a line was not deleted.
    /// Locks the file: another export with `--drain` cannot open it.
    pub fn open(path: &Path, server: &Server) -> Result<Self> {
        let file = File::options().read(true).append(true).create(true).open(path).of_file(path)?;
        lock(path, &file)?;
        sync_directory(path)?;
        let (file, known) = read(path, file)?;
        let has_binlog = server.stats.number_or_zero("binlog-current-index") > 0;
        let taking_path = beside(path, ".taking");
        let taking_file =
            File::options().read(true).append(true).create(true).open(&taking_path).of_file(&taking_path)?;
        sync_directory(&taking_path)?;
        let instance = instance(server);
        let is_ours = |entry: &Value| has_binlog || entry["server"] == json!(instance);
        let mut taking = HashMap::new();
        read_entries(&taking_path, taking_file.try_clone().of_file(&taking_path)?, &mut |_, entry| {
            taking.extend(entry.filter(is_ours).and_then(|entry| taken(&entry)));
            Ok(())
        })?;
        let path = path.to_owned();
        Ok(Self { path, file, known, taking, taking_path, taking_file, server: instance, has_binlog })
    }

    /// The `id` of the server's stats.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Records the states of these jobs in FILE.taking, before they are buried.
    pub fn begin(&mut self, infos: &[JobInfo]) -> Result {
        let entry = |info: &JobInfo| {
            let entry = json!({
                "id": info.id,
                "state": info.state.as_str(),
                "left": info.time_left,
                "reserves": info.reserves,
                "buries": info.buries,
                // A job that was reserved loses its expiry.
                "tags": info.tags.iter().map(Tag::to_string).collect::<Vec<_>>(),
                "server": self.server,
            });
            format!("{entry}\n")
        };
        let entries: String = infos.iter().map(entry).collect();
        let Self { taking_file, taking_path, .. } = self;
        taking_file.write_all(entries.as_bytes()).and_then(|()| taking_file.sync_all()).of_file(taking_path)
    }

    /// If an earlier export was interrupted after it had reserved or buried this job: sets the state and the tags
    /// that the job had before.
    pub fn restore(&self, info: &mut JobInfo) {
        let Some(taken) = self.taking.get(&info.id) else { return };
        let broke_off = match info.state {
            JobState::Buried => info.buries == taken.buries + 1,
            JobState::Ready => info.buries == taken.buries,
            JobState::Delayed | JobState::Reserved => false,
        };
        if broke_off && info.reserves == taken.reserves + 1 {
            (info.state, info.time_left) = (taken.state, taken.left);
            if let Some(tags) = &taken.tags {
                info.tags.clone_from(tags);
            }
        }
    }

    /// Removes FILE.taking, because the export is complete.
    pub fn finish(&self) -> Result {
        fs::remove_file(&self.taking_path).of_file(&self.taking_path)
    }

    /// Whether the job is in the file. A server without a binlog assigns the same ids again after a restart, so the id
    /// alone is not enough.
    fn has(&self, record: &Record) -> bool {
        self.known.get(&record.id).into_iter().flatten().any(|known| {
            (known.server == record.server || self.has_binlog)
                && (&known.tube, known.ttr, &known.body) == (&record.tube, record.ttr, &record.body)
        })
    }

    /// Appends the jobs that are not in the file, and syncs it.
    pub fn append(&mut self, records: &[Record]) -> Result {
        let lines: String =
            records.iter().filter(|record| !self.has(record)).map(Record::drained_line).collect();
        self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_all()).of_file(&self.path)
    }
}

/// The jobs of a drain file by id, and the file itself: without an incomplete last line, and with the mark of a drained
/// job in every line. Lines of an export without `--drain` have no mark, and a drain that finds its jobs there writes
/// no line.
fn read(path: &Path, mut file: File) -> Result<(File, HashMap<u64, Vec<Record>>)> {
    let (mut known, mut all_marked, mut whole) = (HashMap::<u64, Vec<Record>>::new(), true, 0);
    let mut reader = BufReader::new(&file);
    loop {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line).of_file(path)?;
        if !line.ends_with(b"\n") {
            // Our lines begin like this. The end of any other file is not changed.
            if !line.starts_with(LINE_START) && !LINE_START.starts_with(&line) {
                return Err(Failure::file(path, "this is not an export"));
            }
            break;
        }
        let record = Record::parse(&line).of_file(path)?;
        known.entry(record.id).or_default().push(record);
        all_marked &= is_drained(&line);
        whole += read as u64;
    }
    if all_marked {
        file.set_len(whole).and_then(|()| file.seek(SeekFrom::End(0))).of_file(path)?;
        return Ok((file, known));
    }
    let mut marked = Replacement::create(path)?;
    reader.seek(SeekFrom::Start(0)).of_file(path)?;
    for line in reader.take(whole).split(b'\n') {
        let line = marked_as_drained(&line.of_file(path)?).of_file(path)?;
        marked.write(line.as_bytes())?;
    }
    marked.replace(&file)?;
    let file = File::options().read(true).append(true).open(path).of_file(path)?;
    lock(path, &file)?;
    Ok((file, known))
}

/// The state and the tags of a job before it was reserved and buried for the export.
struct DrainedJob {
    state: JobState,
    left: u64,
    reserves: u64,
    buries: u64,
    /// `None` in a file of an earlier version.
    tags: Option<Vec<Tag>>,
}

fn taken(entry: &Value) -> Option<(u64, DrainedJob)> {
    let number = |key: &str| entry[key].as_u64();
    let state = entry["state"].as_str()?.parse().ok()?;
    let tag = |tag: &Value| tag.as_str()?.parse().ok();
    let tags = entry["tags"].as_array().and_then(|tags| tags.iter().map(tag).collect());
    let (reserves, buries) = (number("reserves")?, number("buries")?);
    Some((number("id")?, DrainedJob { state, left: number("left")?, reserves, buries, tags }))
}
