//! The file of an export with `--drain`, and FILE.taking beside it while it is open.
//!
//! Owns: which jobs are already in the file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use beanstalk_client::JobInfo;

use super::destination::lock;
use super::lines::{open_appended, read_lines};
use super::record::{Record, is_drained};
use super::taken_jobs::TakenJobs;
use crate::failure::{Failure, OfFile, Result};
use crate::output::counted;
use crate::server::Server;

/// The first bytes of each line of an export, and of its FILE.taking.
const LINE_START: &[u8] = b"{\"id\":";

/// The open file, with the jobs that it held before.
pub struct DrainFile {
    path: PathBuf,
    file: File,
    /// The jobs in the file, by id. Several may have the same id if they come from different runs of the server.
    known: HashMap<u64, Vec<Record>>,
    taking: TakenJobs,
    taking_file: File,
    /// Whether this export has made the file.
    is_new: bool,
}

impl DrainFile {
    /// Opens or creates the file, and cuts off an incomplete last line. The job of such a line was not deleted.
    /// Locks the file: another export with `--drain` cannot open it.
    pub fn open(path: &Path, server: &Server) -> Result<Self> {
        let is_new = !path.exists();
        let file = open_appended(path)?;
        lock(path, &file, "export")?;
        let known = read(path, &file)?;
        let taking = TakenJobs::read(path, server)?;
        let taking_path = taking.path();
        let taking_file = open_appended(taking_path)?;
        // Cuts off an incomplete last line.
        read_lines(taking_path, &taking_file, [LINE_START, b""], &mut |_, _| Ok(()))?;
        Ok(Self { path: path.to_owned(), file, known, taking, taking_file, is_new })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records these jobs in FILE.taking, before they are buried. Returns for each the `id` of the stats of the server
    /// when an export first began to take it. Sets the states of jobs that an interrupted export has changed.
    pub fn begin(&mut self, infos: &mut [JobInfo]) -> Result<Vec<String>> {
        let servers: Vec<String> = infos.iter_mut().map(|info| self.taking.restore(info)).collect();
        let entries = infos.iter().zip(&servers).map(|(info, server)| self.taking.entry(info, server));
        let entries: String = entries.collect();
        let written = self.taking_file.write_all(entries.as_bytes());
        written.and_then(|()| self.taking_file.sync_all()).of_file(self.taking.path())?;
        Ok(servers)
    }

    /// Removes FILE.taking, because the export is complete. The file stays while jobs that an interrupted export has
    /// begun to take are on the server: it has their states.
    pub fn finish(&self, server: &mut Server) -> Result {
        match self.taking.unfinished(server)? {
            0 => fs::remove_file(self.taking.path()).of_file(self.taking.path()),
            left => Err(Failure::Refused(format!(
                "{}, which an interrupted export had begun to take, may still be reserved by its connection; run the \
                 same command again later",
                counted(left, "job")
            ))),
        }
    }

    /// Removes the file if this export has made it and has written no line. It is locked until then.
    pub fn remove_empty(&self) -> Result {
        let is_unused = self.is_new && self.file.metadata().of_file(&self.path)?.len() == 0;
        if is_unused { fs::remove_file(&self.path).of_file(&self.path) } else { Ok(()) }
    }

    /// Whether the job is in the file. A job of another run of the server can have the same id.
    fn has(&self, record: &Record) -> bool {
        self.known.get(&record.id).into_iter().flatten().any(|known| {
            (&known.server, &known.tube, known.ttr, &known.body)
                == (&record.server, &record.tube, record.ttr, &record.body)
        })
    }

    /// Appends the jobs that are not in the file, and syncs it. If that fails, no line of them stays, because the jobs
    /// go back to the server.
    pub fn append(&mut self, records: &[Record]) -> Result {
        let whole = self.file.metadata().of_file(&self.path)?.len();
        let lines: String =
            records.iter().filter(|record| !self.has(record)).map(Record::drained_line).collect();
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_all());
        if written.is_err() {
            self.file.set_len(whole).and_then(|()| self.file.sync_all()).of_file(&self.path)?;
        }
        written.of_file(&self.path)
    }
}

/// Reads the jobs of a drain file by id, and cuts off an incomplete last line. A line of an export without `--drain` is
/// an error: its job may have another state by now.
fn read(path: &Path, file: &File) -> Result<HashMap<u64, Vec<Record>>> {
    let (mut known, mut count) = (HashMap::<u64, Vec<Record>>::new(), 0);
    read_lines(path, file, [LINE_START; 2], &mut |_, line| {
        let record = Record::parse(line).of_file(path)?;
        count += 1;
        if !is_drained(line) {
            let text = format!("line {count}: an export without --drain wrote it; name another file");
            return Err(Failure::file(path, text));
        }
        known.entry(record.id).or_default().push(record);
        Ok(())
    })?;
    Ok(known)
}
