//! The file of a draining export, and FILE.taking beside it.
//!
//! Owns: which jobs are in the file already, and what jobs were before they were buried for the export.

use super::export::{instance, sync_directory};
use super::record::Record;
use crate::failure::Failure;
use crate::session::Session;
use beanstalk_client::{JobInfo, State};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

/// The file that jobs move into, and what was in it before.
pub struct DrainFile {
    path: PathBuf,
    file: File,
    /// By id. Jobs of an earlier run of the server may have had the same.
    known: HashMap<u64, Vec<Record>>,
    /// Jobs that an earlier run has begun to take out.
    taking: HashMap<u64, Taken>,
    taking_path: PathBuf,
    taking_file: File,
    server: String,
    has_binlog: bool,
}

impl DrainFile {
    /// Opens or creates it. A line that was being written when the program ended is cut off: its job was not deleted.
    pub fn open(path: &Path, session: &Session) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::file(path, &error);
        let mut file = File::options().read(true).append(true).create(true).open(path).map_err(failed)?;
        sync_directory(path).map_err(failed)?;
        let mut known: HashMap<u64, Vec<Record>> = HashMap::new();
        let (mut reader, mut whole) = (BufReader::new(&file), 0);
        loop {
            let mut line = Vec::new();
            let read = reader.read_until(b'\n', &mut line).map_err(failed)?;
            if !line.ends_with(b"\n") {
                break;
            }
            let record = Record::parse(&line).map_err(|error| Failure::file(path, &error))?;
            known.entry(record.id).or_default().push(record);
            whole += read as u64;
        }
        drop(reader);
        file.set_len(whole).and_then(|()| file.seek(std::io::SeekFrom::End(0)).map(drop)).map_err(failed)?;
        let has_binlog = session.stats.number_or_zero("binlog-current-index") > 0;
        let server = instance(session);
        let mut taking_path = path.as_os_str().to_owned();
        taking_path.push(".taking");
        let taking_path = PathBuf::from(taking_path);
        let failed = |error: std::io::Error| Failure::file(&taking_path, &error);
        let taking_file = File::options().append(true).create(true).open(&taking_path).map_err(failed)?;
        sync_directory(&taking_path).map_err(failed)?;
        let text = fs::read(&taking_path).map_err(failed)?;
        let is_ours = |entry: &Value| has_binlog || entry["server"] == json!(server);
        let entries = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let taking = entries.filter(is_ours).filter_map(|entry| taken(&entry)).collect();
        Ok(Self { path: path.to_owned(), file, known, taking, taking_path, taking_file, server, has_binlog })
    }

    /// The `id` of the server's stats.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// These jobs are about to be buried: what they are now is written down first.
    pub fn begin(&mut self, infos: &[JobInfo]) -> Result<(), Failure> {
        let entry = |info: &JobInfo| {
            let entry = json!({
                "id": info.id,
                "state": info.state.word(),
                "left": info.time_left,
                "reserves": info.reserves,
                "buries": info.buries,
                "server": self.server,
            });
            format!("{entry}\n")
        };
        let entries: String = infos.iter().map(entry).collect();
        let written =
            self.taking_file.write_all(entries.as_bytes()).and_then(|()| self.taking_file.sync_all());
        written.map_err(|error| Failure::file(&self.taking_path, &error))
    }

    /// Where an earlier run has reserved the job, or buried it, and come no further: what it was before.
    pub fn restore(&self, info: &mut JobInfo) {
        let Some(taken) = self.taking.get(&info.id) else { return };
        let broke_off = match info.state {
            State::Buried => info.buries == taken.buries + 1,
            State::Ready => info.buries == taken.buries,
            State::Delayed | State::Reserved => false,
        };
        if broke_off && info.reserves == taken.reserves + 1 {
            (info.state, info.time_left) = (taken.state, taken.left);
        }
    }

    /// All is done.
    pub fn finish(&self) -> Result<(), Failure> {
        fs::remove_file(&self.taking_path).map_err(|error| Failure::file(&self.taking_path, &error))
    }

    /// Whether this job's line is in the file. A server gives ids anew when it starts without a binlog.
    fn has(&self, record: &Record) -> bool {
        self.known.get(&record.id).into_iter().flatten().any(|known| {
            (known.server == record.server || self.has_binlog)
                && (&known.tube, known.ttr, &known.body) == (&record.tube, record.ttr, &record.body)
        })
    }

    /// Writes the jobs that are not in the file, and makes sure that they stay there.
    pub fn append(&mut self, records: &[Record]) -> Result<(), Failure> {
        let lines: String = records.iter().filter(|record| !self.has(record)).map(Record::line).collect();
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| Failure::file(&self.path, &error))
    }
}

/// A job before it was reserved and buried for the export.
struct Taken {
    state: State,
    left: u64,
    reserves: u64,
    buries: u64,
}

fn taken(entry: &Value) -> Option<(u64, Taken)> {
    let number = |key: &str| entry[key].as_u64();
    let state = State::from_word(entry["state"].as_str()?)?;
    Some((
        number("id")?,
        Taken { state, left: number("left")?, reserves: number("reserves")?, buries: number("buries")? },
    ))
}
