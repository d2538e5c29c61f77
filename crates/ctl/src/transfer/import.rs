//! `import`: puts each job of an export once, even if it is interrupted and run again.
//!
//! If the reply to a put is lost, the job may exist or not, and a worker may have finished it since. So each job is
//! first put with a delay that never ends: no worker can reserve it, and it can be found after an interruption. When
//! its id is in the [`Journal`], the delay is removed. Removing it twice does no harm.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::destination::beside;
use super::journal::{Journal, hash};
use super::put::{self, Putting, Refused};
use super::record::Record;
use crate::cli::ImportArguments;
use crate::failure::{Failure, OfFile, Result};
use crate::interrupt;
use crate::output::{Output, counted, say, with_commas};
use crate::progress::ShownProgress;
use crate::server::Server;

/// How many lines go through the three steps together.
const BATCH: usize = 500;

/// The file of the export, with the positions of its lines. The lines themselves stay on the disk.
struct ExportLines {
    path: PathBuf,
    file: File,
    /// The offset of each line, and at the end the length of the file.
    starts: Vec<u64>,
}

impl ExportLines {
    /// Reads the file once, and passes every job to `check`.
    fn open(path: &Path, check: &mut dyn FnMut(Record) -> Result) -> Result<Self> {
        let file = if path == Path::new("-") { spooled() } else { File::open(path) }.of_file(path)?;
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
                return Err(wrong(&"the line is incomplete: the export was interrupted"));
            }
            check(Record::parse(&line).map_err(|error| wrong(&error))?)?;
            starts.push(starts[starts.len() - 1] + read);
        }
        Ok(Self { path: path.to_owned(), file, starts })
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn read(&mut self, lines: &[usize]) -> Result<Vec<Vec<u8>>> {
        let mut read = |line: usize| -> std::io::Result<Vec<u8>> {
            let bounds = self.starts.get(line).zip(self.starts.get(line + 1));
            let (start, end) =
                bounds.ok_or_else(|| std::io::Error::other("the file has fewer lines than its journal"))?;
            let mut bytes = vec![0; (end - start) as usize];
            self.file.seek(SeekFrom::Start(*start))?;
            self.file.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        lines.iter().map(|line| read(*line)).collect::<Result<_, _>>().of_file(&self.path)
    }
}

/// Standard input in a file whose name has been removed. The lines are read twice.
fn spooled() -> std::io::Result<File> {
    let path = temporary("input");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
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
    let is_temporary = arguments.journal.is_none() && arguments.file == Path::new("-");
    let path = arguments.journal.clone().unwrap_or_else(|| match is_temporary {
        true => temporary("journal"),
        false => beside(&arguments.file, ".journal"),
    });
    let tube = arguments.tube.as_ref().map(|tube| tube.as_str());
    let header = json!({ "journal": 1, "server": server.address.to_string(), "tube": tube });
    let mut journal = Journal::open(&path, &header)?;
    check_unchanged(&mut lines, &journal)?;
    let before = journal.done.len();
    let imported = import(server, &mut lines, &putting, &mut journal);
    let done = (journal.done.len() - before) as u64;
    match &imported {
        Ok(()) if is_temporary => fs::remove_file(&path).of_file(&path)?,
        Err(_) if is_temporary => {
            say(&format!("to continue, give the same input again, with --journal {}", path.display()));
        }
        _ => {}
    }
    print_report(out, lines.len() as u64, before as u64, done)?;
    imported
}

fn print_report(out: &mut Output, matched: u64, before: u64, done: u64) -> Result {
    let earlier =
        if before == 0 { String::new() } else { format!("; {} had been put before", counted(before, "job")) };
    out.value_or_line(
        &json!({ "action": "import", "matched": matched, "before": before, "done": done }),
        &format!("put {} of {}{earlier}", counted(done, "job"), with_commas(matched)),
    )
}

/// Checks that the lines in the journal are still those of the file. The file may have more lines.
fn check_unchanged(lines: &mut ExportLines, journal: &Journal) -> Result {
    for batch in journal.finished.iter().chain(&journal.open) {
        if hash(&lines.read(&batch.lines)?) != batch.hash {
            return Err(Failure::Usage(format!(
                "{}: the lines have changed since the journal was started; name another journal with --journal",
                lines.path.display()
            )));
        }
    }
    Ok(())
}

fn import(server: &mut Server, lines: &mut ExportLines, putting: &Putting, journal: &mut Journal) -> Result {
    let mut refused = Refused::default();
    if let Some(batch) = journal.open.clone() {
        let (records, hash) = load(server, lines, putting, &batch.lines)?;
        if batch.ids.is_none() {
            let existing = put::find_again(server, &records, batch.above)?;
            journal.put(put::put(server, &records, existing, hash, &mut refused)?)?;
        }
        finish(server, &records, journal)?;
    }
    let left: Vec<usize> = (0..lines.len()).filter(|line| !journal.done.contains(line)).collect();
    // Every put has used up an id, so the newest one is at least the number of all jobs.
    let mut above = server.client.stats()?.number_or_zero("total-jobs");
    let progress = ShownProgress::new("importing", left.len() as u64);
    for batch in left.chunks(BATCH) {
        interrupt::check("stopped; run the same command again to continue")?;
        let (records, hash) = load(server, lines, putting, batch)?;
        journal.begin(batch, hash, above)?;
        let ids = put::put(server, &records, vec![None; records.len()], hash, &mut refused)?;
        above = ids.iter().flatten().copied().fold(above, u64::max);
        journal.put(ids)?;
        finish(server, &records, journal)?;
        progress.add(batch.len() as u64);
        if refused.takes_nothing_more() {
            break;
        }
    }
    refused.into_result()
}

fn load(
    server: &Server,
    lines: &mut ExportLines,
    putting: &Putting,
    batch: &[usize],
) -> Result<(Vec<Record>, u64)> {
    let bytes = lines.read(batch)?;
    let record = |line: &Vec<u8>| putting.prepare(server, Record::parse(line).map_err(Failure::Local)?);
    Ok((bytes.iter().map(record).collect::<Result<_, _>>()?, hash(&bytes)))
}

/// Removes the delay of the jobs of the open batch, and records that in the journal.
fn finish(server: &mut Server, records: &[Record], journal: &mut Journal) -> Result {
    let ids = journal.open.as_ref().and_then(|batch| batch.ids.clone()).unwrap_or_default();
    put::remove_delays(server, records, &ids)?;
    journal.done()
}
