//! `export`: jobs into a file.
//!
//! Without `--drain` the jobs stay as they are, and the file gets its name when it is complete. With `--drain` each job is
//! buried, so that no worker has it; then its line is written and synced; then it is deleted. Whoever is interrupted runs
//! the same again: jobs whose line is in the file are not written a second time, and those that were buried for the export
//! are known by the file FILE.taking.

use super::drain_file::DrainFile;
use super::record::Record;
use crate::cli::ExportArguments;
use crate::commands::batch::put_back;
use crate::commands::confirm;
use crate::failure::Failure;
use crate::interrupt;
use crate::listing::{self, Filter};
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::session::{Session, unexpected};
use beanstalk_client::{Command, JobInfo, Refusal, Reply, State};
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Jobs that are buried, written and deleted at once.
const BATCH: usize = 200;

/// Exports.
pub fn run(session: &mut Session, arguments: &ExportArguments, out: &mut Output) -> Result<(), Failure> {
    let filter = arguments.filter.filter(&arguments.tubes);
    let to_stdout = arguments.output == Path::new("-");
    match (arguments.drain, to_stdout) {
        (true, true) => {
            Err(Failure::Usage("--drain needs --output FILE, which can be synced to the disk".to_owned()))
        }
        (true, false) => drain(session, &filter, arguments, out),
        (false, true) => copy(session, &filter, &mut |line| out.line(line.trim_end())).map(drop),
        (false, false) => to_file(session, &filter, &arguments.output, out),
    }
}

/// Gives the line of every job, and tells how many they are.
fn copy(
    session: &mut Session,
    filter: &Filter,
    write: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let server = instance(session);
    let mut count = 0;
    listing::jobs(session, filter, true, &mut |found| {
        for found in found {
            let record = Record::new(&found.info, found.body.unwrap_or_default(), &server);
            write(&record.map_err(Failure::Refused)?.line())?;
            count += 1;
        }
        Ok(true)
    })?;
    match count {
        0 => Err(Failure::NothingMatched("no job matches".to_owned())),
        count => Ok(count),
    }
}

/// The `id` of the server's stats.
pub fn instance(session: &Session) -> String {
    session.stats.get("id").unwrap_or_default().to_owned()
}

fn to_file(session: &mut Session, filter: &Filter, path: &Path, out: &mut Output) -> Result<(), Failure> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let failed = |error: std::io::Error| Failure::file(&partial, &error);
    let mut file = BufWriter::new(File::create(&partial).map_err(failed)?);
    let copied = copy(session, filter, &mut |line| file.write_all(line.as_bytes()).map_err(failed));
    let count = match copied {
        Ok(count) => count,
        Err(failure) => {
            // A part of the jobs is no export; all of them are still where they were.
            fs::remove_file(&partial).map_err(failed)?;
            return Err(failure);
        }
    };
    file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
    fs::rename(&partial, path)
        .and_then(|()| sync_directory(path))
        .map_err(|error| Failure::file(path, &error))?;
    say(out, count, false)
}

fn say(out: &mut Output, count: u64, drained: bool) -> Result<(), Failure> {
    let value = json!({ "action": "export", "done": count, "deleted": drained });
    let how = if drained { ", and deleted them" } else { "" };
    out.value_or_line(&value, &format!("exported {}{how}", counted(count, "job")))
}

/// A new name is safe when its directory is.
pub fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

fn drain(
    session: &mut Session,
    filter: &Filter,
    arguments: &ExportArguments,
    out: &mut Output,
) -> Result<(), Failure> {
    let (mut ids, mut held) = (Vec::new(), 0);
    listing::jobs(session, filter, false, &mut |found| {
        held += found.iter().filter(|found| found.info.state == State::Reserved).count() as u64;
        ids.extend(
            found
                .iter()
                .map(|found| &found.info)
                .filter(|info| info.state != State::Reserved)
                .map(|info| info.id),
        );
        Ok(true)
    })?;
    if ids.is_empty() {
        return Err(Failure::NothingMatched(
            "no job matches that is not in the hands of a client".to_owned(),
        ));
    }
    ids.sort_unstable();
    let path = &arguments.output;
    let stay = match held {
        0 => String::new(),
        held => format!("; {} in the hands of clients stay", counted(held, "job")),
    };
    let what = format!(
        "write {} to {}, and delete them on {}{stay}",
        counted(ids.len() as u64, "job"),
        path.display(),
        session.address
    );
    if !confirm::ask(&arguments.confirm, &what)? {
        return out.value_or_line(
            &json!({ "action": "export", "matched": ids.len(), "dry_run": true }),
            &format!("{} matched", ids.len()),
        );
    }
    let mut file = DrainFile::open(path, session)?;
    let progress = Progress::new("exporting", ids.len() as u64);
    let mut done = 0;
    for batch in ids.chunks(BATCH) {
        if interrupt::requested() {
            say(out, done, true)?;
            return Err(Failure::Interrupted("stopped; run the same again to go on".to_owned()));
        }
        done += drain_batch(session, batch, &mut file)?;
        progress.add(batch.len() as u64);
    }
    drop(progress);
    say(out, done, true)?;
    match ids.len() as u64 - done {
        0 => file.finish(),
        left => Err(Failure::Refused(format!("{} had changed meanwhile, and stay", counted(left, "job")))),
    }
}

/// Tells how many jobs are in the file and gone from the server.
fn drain_batch(session: &mut Session, ids: &[u64], file: &mut DrainFile) -> Result<u64, Failure> {
    let mut infos: Vec<JobInfo> = session.job_infos(ids.iter().copied())?.into_iter().flatten().collect();
    infos.iter_mut().for_each(|info| file.restore(info));
    file.begin(&infos)?;
    let commands = infos
        .iter()
        .flat_map(|info| [Command::ReserveJob(info.id), Command::Bury { id: info.id, pri: info.pri }]);
    let replies = session.client.call_all(commands)?;
    let (mut taken, mut records) = (Vec::new(), Vec::new());
    for (info, pair) in infos.into_iter().zip(replies.chunks(2)) {
        let body = match pair {
            [Reply::Reserved(job), Reply::Buried(None)] => job.body.clone(),
            // Nobody can take a held job before its group is empty.
            [Reply::Refused(Refusal::NotFound), _] if info.held => match session.client.peek(info.id) {
                Ok(job) => job.body,
                Err(_) => continue,
            },
            [Reply::Refused(Refusal::NotFound), _] => continue,
            [other, _] | [other] => return Err(unexpected("reserve-job", other)),
            _ => continue,
        };
        let record = Record::new(&info, body, file.server()).map_err(Failure::Refused)?;
        records.push(record);
        taken.push(info);
    }
    if let Err(failure) = file.append(&records) {
        let back = taken.iter().flat_map(|info| [Command::ReserveJob(info.id), put_back(info, info.pri)]);
        session.client.pipeline(back, |_, _| {})?;
        return Err(failure);
    }
    let mut deleted = 0;
    session.client.pipeline(taken.iter().map(|info| Command::Delete(info.id)), |_, reply| {
        deleted += u64::from(reply == Reply::Deleted);
    })?;
    Ok(deleted)
}
