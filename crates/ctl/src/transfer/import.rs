//! `import`: puts each job of an export once, even if it is interrupted and run again.
//!
//! If the reply to a put is lost, the job may exist or not, and a worker may have finished it since. So each job is
//! first put with a delay that never ends: no worker can reserve it, and it can be found after an interruption. When
//! its id is in the [`Journal`], the delay is removed. Removing it twice does no harm.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::destination::beside;
use super::journal::{ImportBatch, Journal, hash};
use super::put::{self, Putting, RefusedJobs};
use super::record::Record;
use crate::cli::ImportArguments;
use crate::failure::{Failure, OfFile, Result};
use crate::output::{Output, counted, say, with_commas};
use crate::progress::ShownProgress;
use crate::server::Server;
use crate::{input, interrupt};

/// The maximum number of lines that go through the three steps together.
const MAX_BATCH: usize = 500;

/// The maximum number of bytes of these lines, if they are more than one. The program holds their jobs in memory.
const MAX_BATCH_BYTES: u64 = 4 << 20;

/// The file of the export, with the positions of its lines. The lines themselves stay on the disk.
struct ExportLines {
    path: PathBuf,
    file: File,
    /// The offset of each line, and at the end the length of the file.
    starts: Vec<u64>,
    /// Whether `file` is a copy, because `path` can be read only once.
    is_copy: bool,
}

impl ExportLines {
    /// Reads the file once, and passes every job to `check`.
    fn open(path: &Path, check: &mut dyn FnMut(Record) -> Result) -> Result<Self> {
        let input = path.to_owned();
        let (file, is_copy) = input::read(move || open_or_copy(&input))?.of_file(path)?;
        let mut reader = BufReader::new(file.try_clone().of_file(path)?);
        let mut starts = vec![0];
        loop {
            let mut line = Vec::new();
            let read = reader.read_until(b'\n', &mut line).of_file(path)? as u64;
            if read == 0 {
                break;
            }
            let wrong =
                |what: &dyn std::fmt::Display| Failure::file(path, format!("line {}: {what}", starts.len()));
            if !line.ends_with(b"\n") {
                return Err(wrong(&"it has no line end; an export that wrote it was interrupted"));
            }
            if line.trim_ascii().is_empty() {
                return Err(wrong(&"it is empty"));
            }
            check(Record::parse(&line).map_err(|error| wrong(&error))?)?;
            starts.push(starts[starts.len() - 1] + read);
        }
        Ok(Self { path: path.to_owned(), file, starts, is_copy })
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn read(&mut self, line: usize) -> Result<Vec<u8>> {
        let bounds = self.starts.get(line).zip(self.starts.get(line + 1));
        let (start, end) =
            bounds.ok_or_else(|| Failure::file(&self.path, "the file has fewer lines than its journal"))?;
        let mut bytes = vec![0; (end - start) as usize];
        let seeked = self.file.seek(SeekFrom::Start(*start));
        seeked.and_then(|_| self.file.read_exact(&mut bytes)).of_file(&self.path)?;
        Ok(bytes)
    }

    /// The hash of these lines.
    fn hash(&mut self, lines: &[usize]) -> Result<u64> {
        hash(lines.iter().map(|line| self.read(*line)))
    }

    /// The number of the first lines of `left` that go through the three steps together.
    fn batch_length(&self, left: &[usize]) -> usize {
        let mut bytes = 0;
        let fits = |line: &&usize| {
            bytes += self.starts[**line + 1] - self.starts[**line];
            bytes <= MAX_BATCH_BYTES
        };
        left.iter().take(MAX_BATCH).take_while(fits).count().max(1)
    }
}

/// Opens the file; or copies standard input, a FIFO or a device, because the lines are read twice. Returns whether it
/// is a copy.
fn open_or_copy(path: &Path) -> io::Result<(File, bool)> {
    if path == Path::new("-") {
        return Ok((copied(&mut io::stdin().lock())?, true));
    }
    let mut file = File::open(path)?;
    if file.metadata()?.is_file() { Ok((file, false)) } else { Ok((copied(&mut file)?, true)) }
}

/// The input in a file whose name has been removed.
fn copied(input: &mut impl Read) -> io::Result<File> {
    let path = temporary("input");
    let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    io::copy(input, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// A name in the directory for temporary files that only this process has.
fn temporary(what: &str) -> PathBuf {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    std::env::temp_dir().join(format!("beanstalkctl-{}-{}.{what}", std::process::id(), now.as_nanos()))
}

/// Runs the import that the arguments describe.
pub fn run(server: &mut Server, arguments: &ImportArguments, out: &mut Output) -> Result {
    let mut tubes: BTreeMap<String, u64> = BTreeMap::new();
    let putting = Putting { tube: arguments.tube.clone(), drop_tags: arguments.drop_tags };
    let mut lines = ExportLines::open(&arguments.file, &mut |record| {
        let record = putting.prepare(server, record)?;
        *tubes.entry(record.tube.to_string()).or_default() += 1;
        Ok(())
    })?;
    if lines.len() == 0 {
        return Err(Failure::NothingMatched(format!("{}: there are no jobs", arguments.file.display())));
    }
    if arguments.dry_run {
        return tubes.iter().try_for_each(|(tube, count)| {
            out.value_or_line(
                &json!({ "action": "import", "tube": tube, "matched": count, "dry_run": true }),
                &format!("would put {} into {tube}", counted(*count, "job")),
            )
        });
    }
    let is_temporary = arguments.journal.is_none() && lines.is_copy;
    let path = arguments.journal.clone().unwrap_or_else(|| {
        if is_temporary { temporary("journal") } else { beside(&arguments.file, ".journal") }
    });
    let tube = arguments.tube.as_ref().map(|tube| tube.as_str());
    let header = json!({ "journal": 1, "server": server.address.to_string(), "tube": tube });
    let mut journal = Journal::open(&path, &header)?;
    check_unchanged(&mut lines, &journal)?;
    let (before, _) = journal.counts();
    if is_temporary {
        // A second signal ends the program at once.
        let journal = path.display();
        say(&format!("if this import does not succeed, give the same input again, with --journal {journal}"));
    }
    let imported = import(server, &mut lines, &putting, &mut journal);
    if is_temporary && imported.is_ok() {
        fs::remove_file(&path).of_file(&path)?;
    }
    // A closed output hides no failure.
    let printed = print_report(out, lines.len() as u64, before, &journal);
    imported.and(printed)
}

fn print_report(out: &mut Output, matched: u64, before: u64, journal: &Journal) -> Result {
    let (put, duplicates) = journal.counts();
    let done = put - before;
    let mut text = format!("put {} of {}", counted(done, "job"), with_commas(matched));
    if before > 0 {
        text += &format!("; {} had been put before", counted(before, "job"));
    }
    if duplicates > 0 {
        text += &format!("; {} (idp)", counted(duplicates, "duplicate"));
    }
    let value = json!({
        "action": "import", "matched": matched, "before": before, "done": done, "duplicates": duplicates
    });
    out.value_or_line(&value, &text)
}

/// Checks that the lines in the journal are still the lines of the file. The file may have more lines.
fn check_unchanged(lines: &mut ExportLines, journal: &Journal) -> Result {
    for batch in journal.finished.iter().chain(&journal.open) {
        if lines.hash(&batch.lines)? != batch.hash {
            return Err(Failure::Usage(format!(
                "{}: the lines have changed since the journal was started; name another journal with --journal",
                lines.path.display()
            )));
        }
    }
    Ok(())
}

fn import(server: &mut Server, lines: &mut ExportLines, putting: &Putting, journal: &mut Journal) -> Result {
    if let Some(batch) = journal.open.clone() {
        let records = load(server, lines, putting, &batch.lines)?;
        if batch.imported.is_none() {
            let existing = put::find_again(server, &records, &batch)?;
            let mut refused = refused_before(server, lines, putting, journal, &batch)?;
            journal.put(put::put(server, &records, Some(existing), &batch, &mut refused)?)?;
        }
        finish(server, &records, journal)?;
    }
    // What was refused so far is tried again.
    let mut refused = RefusedJobs::default();
    let left: Vec<usize> = (0..lines.len()).filter(|line| !journal.done.contains(line)).collect();
    // Every put has used up an id, so the newest one is at least the number of all jobs.
    let mut above = server.client.stats()?.number_or_zero("total-jobs");
    let progress = ShownProgress::new("importing", left.len() as u64);
    let mut left = &left[..];
    while !left.is_empty() {
        let (batch, rest) = left.split_at(lines.batch_length(left));
        left = rest;
        interrupt::check("stopped; run the same command again to continue")?;
        let records = load(server, lines, putting, batch)?;
        let begun = journal.begin(batch, lines.hash(batch)?, above)?;
        let imported = put::put(server, &records, None, begun, &mut refused)?;
        above = imported.iter().filter_map(|imported| imported.id()).fold(above, u64::max);
        journal.put(imported)?;
        finish(server, &records, journal)?;
        progress.add(batch.len() as u64);
        if refused.takes_nothing_more() {
            break;
        }
    }
    refused.into_result()
}

/// The jobs that the server had refused before this batch was begun.
fn refused_before(
    server: &Server,
    lines: &mut ExportLines,
    putting: &Putting,
    journal: &Journal,
    batch: &ImportBatch,
) -> Result<RefusedJobs> {
    let mut refused = RefusedJobs::default();
    let first = batch.lines.first().copied().unwrap_or_default();
    for line in (0..first).filter(|line| !journal.done.contains(line)) {
        load(server, lines, putting, &[line])?.iter().for_each(|record| refused.leave_out(record));
    }
    Ok(refused)
}

fn load(server: &Server, lines: &mut ExportLines, putting: &Putting, batch: &[usize]) -> Result<Vec<Record>> {
    let record =
        |line: &usize| putting.prepare(server, Record::parse(&lines.read(*line)?).map_err(Failure::Local)?);
    batch.iter().map(record).collect()
}

/// Removes the delay of the jobs of the open batch, and records that in the journal.
fn finish(server: &mut Server, records: &[Record], journal: &mut Journal) -> Result {
    if let Some(batch) = &journal.open {
        put::remove_delays(server, records, batch)?;
    }
    journal.done()
}
