//! `export`: writes jobs to a file.
//!
//! Without `--drain` the jobs do not change, and the file gets its name when it is complete. With `--drain` each job is
//! buried, so that no worker gets it; then its line is written and synced; then it is deleted. After an interruption, the same
//! command continues: it does not write a job again that is in the file, and FILE.taking says which jobs were buried for the
//! export.

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

/// How many jobs are buried, written and deleted together.
const BATCH: usize = 200;

/// Runs the export that the arguments describe.
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

/// Passes the line of every job that matches to `write`, and returns the number of jobs.
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
            // An incomplete export is removed: the jobs are still on the server.
            fs::remove_file(&partial).map_err(failed)?;
            return Err(failure);
        }
    };
    file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
    fs::rename(&partial, path)
        .and_then(|()| sync_directory(path))
        .map_err(|error| Failure::file(path, &error))?;
    print_report(out, count, false)
}

fn print_report(out: &mut Output, count: u64, drained: bool) -> Result<(), Failure> {
    let value = json!({ "action": "export", "done": count, "deleted": drained });
    let how = if drained { ", and deleted them" } else { "" };
    out.value_or_line(&value, &format!("exported {}{how}", counted(count, "job")))
}

/// Syncs the directory of a file, which makes a new name durable.
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
            "no job matches, except jobs that clients have reserved".to_owned(),
        ));
    }
    ids.sort_unstable();
    let path = &arguments.output;
    let stay = match held {
        0 => String::new(),
        held => format!("; {} reserved by clients stay", counted(held, "job")),
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
    drain_all(session, &ids, DrainFile::open(path, session)?, out)
}

/// Moves the jobs to the file, a batch at a time, and prints how many.
fn drain_all(
    session: &mut Session,
    ids: &[u64],
    mut file: DrainFile,
    out: &mut Output,
) -> Result<(), Failure> {
    let progress = Progress::new("exporting", ids.len() as u64);
    let mut done = 0;
    for batch in ids.chunks(BATCH) {
        if interrupt::requested() {
            print_report(out, done, true)?;
            return Err(Failure::Interrupted("stopped; run the same command again to continue".to_owned()));
        }
        done += drain_batch(session, batch, &mut file)?;
        progress.add(batch.len() as u64);
    }
    drop(progress);
    print_report(out, done, true)?;
    match ids.len() as u64 - done {
        0 => file.finish(),
        left => Err(Failure::Refused(format!("{} changed meanwhile and stay", counted(left, "job")))),
    }
}

/// Moves a batch of jobs to the file, and returns how many were deleted on the server.
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
            // No client can reserve a held job before its group is empty.
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
