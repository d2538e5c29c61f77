//! `export`: writes jobs to a file.
//!
//! Without `--drain` the jobs do not change, and the file gets its name when it is complete. With `--drain` each job is
//! buried, so that no worker gets it; then its line is written and synced; then it is deleted. After an interruption,
//! the same command continues: it does not write a job again that is in the file, and FILE.taking says which jobs were
//! buried for the export.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use beanstalk_client::{Command, JobId, JobInfo, JobState, Reply};
use serde_json::json;

use super::destination::{Destination, Replacement, check_replaceable, open_stream, parent};
use super::drain_file::DrainFile;
use super::record::Record;
use super::taken_jobs::TakenJobs;
use crate::cli::{ExportArguments, JobFilter};
use crate::commands::batch::{bury, put_back};
use crate::commands::confirm;
use crate::failure::{Failure, OfFile, Result};
use crate::interrupt;
use crate::listing::{self, FoundJob};
use crate::output::{Output, counted, say};
use crate::progress::ShownProgress;
use crate::server::{Server, unexpected};

/// How many jobs are buried, written and deleted together.
const BATCH: usize = 200;

/// Runs the export that the arguments describe.
pub fn run(server: &mut Server, arguments: &ExportArguments, out: &mut Output) -> Result {
    let filter = arguments.filter.of(&arguments.tubes);
    match (arguments.drain, Destination::of(&arguments.output)?) {
        (true, Destination::File(path)) => drain(server, &filter, arguments, &path, out),
        (true, Destination::Stdout) if arguments.output == Path::new("-") => {
            Err(Failure::Usage("--drain needs --output FILE, which can be synced to the disk".to_owned()))
        }
        (true, _) => {
            Err(Failure::file(&arguments.output, "--drain needs a file, which can be synced to the disk"))
        }
        (false, Destination::Stdout) => {
            copy(server, &filter, &mut |line| out.json_line(line.trim_end())).map(drop)
        }
        (false, Destination::Stream(path)) => to_stream(server, &filter, &path),
        (false, Destination::File(path)) => to_file(server, &filter, &path, arguments.force, out),
    }
}

/// Passes the line of every job that matches to `write`, and returns the number of jobs.
fn copy(server: &mut Server, filter: &JobFilter, write: &mut dyn FnMut(&str) -> Result) -> Result<u64> {
    let instance = instance(server);
    let mut count = 0;
    listing::jobs_once(server, filter, true, &mut |found| {
        for found in found {
            let record = Record::new(&found.info, found.body.unwrap_or_default(), &instance);
            write(&record.map_err(Failure::Refused)?.line())?;
            count += 1;
        }
        Ok(())
    })?;
    match count {
        0 => Err(Failure::NothingMatched("no job matches".to_owned())),
        count => Ok(count),
    }
}

/// The `id` of the server's stats.
pub fn instance(server: &Server) -> String {
    server.stats.get("id").unwrap_or_default().to_owned()
}

fn to_stream(server: &mut Server, filter: &JobFilter, path: &Path) -> Result {
    let mut stream = open_stream(path)?;
    copy(server, filter, &mut |line| stream.write_all(line.as_bytes()).of_file(path))?;
    stream.flush().of_file(path)
}

fn to_file(server: &mut Server, filter: &JobFilter, path: &Path, force: bool, out: &mut Output) -> Result {
    if !force {
        check_replaceable(path)?;
    }
    let mut file = Replacement::create(path)?;
    let count = copy(server, filter, &mut |line| file.write(line.as_bytes()))?;
    file.finish(force)?;
    print_report(out, count, false)
}

fn print_report(out: &mut Output, count: u64, drained: bool) -> Result {
    let value = json!({ "action": "export", "done": count, "deleted": drained });
    let done = if drained { "exported and deleted" } else { "exported" };
    out.value_or_line(&value, &format!("{done} {}", counted(count, "job")))
}

/// Syncs the directory of a file, which makes a new name durable.
pub fn sync_directory(path: &Path) -> Result {
    File::open(parent(path)).and_then(|directory| directory.sync_all()).of_file(path)
}

fn drain(
    server: &mut Server,
    filter: &JobFilter,
    arguments: &ExportArguments,
    path: &Path,
    out: &mut Output,
) -> Result {
    let begun = TakenJobs::read(path, server)?;
    let (ids, reserved) = find(server, filter, &begun)?;
    if ids.is_empty() && begun.path().exists() && !arguments.confirm.dry_run {
        // The interrupted export had deleted all its jobs.
        DrainFile::open(path, server)?.finish()?;
        return print_report(out, 0, true);
    }
    if ids.is_empty() {
        return Err(Failure::NothingMatched(
            "no job matches, except jobs that clients have reserved".to_owned(),
        ));
    }
    let stay = match reserved {
        0 => String::new(),
        reserved => format!("; leave out {} reserved by clients", counted(reserved, "job")),
    };
    let what = format!(
        "write {} to {}, and delete {} on {}{stay}",
        counted(ids.len() as u64, "job"),
        path.display(),
        if ids.len() == 1 { "it" } else { "them" },
        server.address
    );
    if !confirm::ask(&arguments.confirm, &what)? {
        return out.dry_run("export", ids.len() as u64);
    }
    drain_all(server, &ids, DrainFile::open(path, server)?, out)
}

/// The ids of the jobs to drain: those that match, and those that an interrupted export has begun to take, which may be
/// buried by now. Also the number of jobs that match and that clients have reserved.
fn find(server: &mut Server, filter: &JobFilter, begun: &TakenJobs) -> Result<(Vec<u64>, u64)> {
    let (mut ids, mut reserved) = (begun.present(server)?, Vec::new());
    listing::jobs_once(server, filter, false, &mut |found| {
        for FoundJob { info, .. } in found {
            if info.state == JobState::Reserved { reserved.push(info.id) } else { ids.push(info.id) }
        }
        Ok(())
    })?;
    let mut still_reserved = 0;
    for info in server.job_infos(reserved)?.into_iter().flatten() {
        if info.state == JobState::Reserved {
            still_reserved += 1;
        } else if filter.fits(&info) {
            ids.push(info.id);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok((ids, still_reserved))
}

/// Moves the jobs to the file, a batch at a time, and prints how many.
fn drain_all(server: &mut Server, ids: &[u64], mut file: DrainFile, out: &mut Output) -> Result {
    let progress = ShownProgress::new("exporting", ids.len() as u64);
    let mut done = 0;
    for batch in ids.chunks(BATCH) {
        if interrupt::requested() {
            print_report(out, done, true)?;
            return Err(Failure::Interrupted("stopped; run the same command again to continue".to_owned()));
        }
        done += drain_batch(server, batch, &mut file)?;
        progress.add(batch.len() as u64);
    }
    drop(progress);
    let complete = match ids.len() as u64 - done {
        0 => file.finish(),
        left => Err(Failure::Refused(format!(
            "kept {}, which changed meanwhile, or whose key or rule allows no more reserved jobs",
            counted(left, "job")
        ))),
    };
    // A closed output hides no failure.
    let printed = print_report(out, done, true);
    complete.and(printed)
}

/// Moves a batch of jobs to the file, and returns how many were deleted on the server.
fn drain_batch(server: &mut Server, ids: &[u64], file: &mut DrainFile) -> Result<u64> {
    let mut infos: Vec<JobInfo> = server.job_infos(ids.iter().copied())?.into_iter().flatten().collect();
    let servers = file.begin(&mut infos)?;
    let commands =
        infos.iter().flat_map(|info| [Command::ReserveJob(JobId(info.id)), bury(info.id, info.pri)]);
    let (mut bodies, mut failed) = (vec![None; infos.len()], None);
    server.client.pipeline(commands, |position, reply| match (position % 2, reply) {
        (0, Reply::Reserved(_, body)) => bodies[position / 2] = Some(body.as_slice().to_vec()),
        (0, Reply::NotFound) | (1, Reply::Buried) => {}
        (0, other) => failed = failed.take().or(Some(unexpected("reserve-job", &other))),
        (_, _) => bodies[position / 2] = None,
    })?;
    failed.map_or(Ok(()), Err)?;
    let (mut taken, mut records) = (Vec::new(), Vec::new());
    for ((info, body), server_id) in infos.into_iter().zip(bodies).zip(servers) {
        let body = match body {
            Some(body) => body,
            // No client can reserve a held job before its group is empty.
            None if info.held => match server.client.peek(info.id) {
                Ok(job) => job.body,
                Err(_) => continue,
            },
            None => continue,
        };
        let record = Record::new(&info, body, &server_id).map_err(Failure::Refused)?;
        records.push(record);
        taken.push(info);
    }
    if let Err(failure) = file.append(&records) {
        return Err(match put_all_back(server, &taken) {
            Ok(()) => failure,
            Err(lost) => lost.while_doing(&format!("{failure}; the jobs were not put back")),
        });
    }
    let mut deleted = 0;
    server.client.pipeline(taken.iter().map(|info| Command::Delete(JobId(info.id))), |_, reply| {
        deleted += u64::from(reply == Reply::Deleted);
    })?;
    Ok(deleted)
}

/// Returns the jobs of a batch to their states, and names those that the server refuses: FILE.taking has their states,
/// and the same command exports them.
fn put_all_back(server: &mut Server, taken: &[JobInfo]) -> Result {
    let counting = server.uncounted();
    // A held job was not reserved.
    let taken: Vec<&JobInfo> = taken.iter().filter(|info| !info.held).collect();
    let back = taken
        .iter()
        .flat_map(|info| [Command::ReserveJob(JobId(info.id)), put_back(info, info.pri, counting)]);
    let mut refusal = None;
    server.client.pipeline(back, |position, reply| match (position % 2, reply) {
        (0, Reply::Reserved(..)) | (1, Reply::Released | Reply::Buried) => {}
        (0, other) => refusal = Some(unexpected("reserve-job", &other)),
        (_, other) => {
            let why = refusal.take().unwrap_or_else(|| unexpected("the command after reserve-job", &other));
            let JobInfo { id, state, .. } = taken[position / 2];
            say(&format!(
                "job {id} was not put back: {why}; it was {state}, and is buried or ready now; run the same command \
                 again to export it"
            ));
        }
    })?;
    Ok(())
}
