//! `export`: writes jobs to a file.
//!
//! Without `--drain` the jobs do not change, and the file gets its name when it is complete. With `--drain` each job is
//! buried, so that no worker gets it; then its line is written and synced; then it is deleted. The members of a group
//! are deleted after the jobs that wait for the group, so that no worker gets one of these. After an interruption, the
//! same command continues: it does not write a job again that is in the file, and FILE.taking says which jobs were
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
use crate::group_order::GroupOrder;
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
    let jobs = find(server, filter, &begun)?;
    if jobs.ids.is_empty() && begun.path().exists() && !arguments.confirm.dry_run {
        // The interrupted export had deleted all its jobs.
        DrainFile::open(path, server)?.finish(server)?;
        return print_report(out, 0, true);
    }
    if jobs.ids.is_empty() {
        return Err(Failure::NothingMatched(
            "no job matches, except jobs that clients have reserved".to_owned(),
        ));
    }
    let stay = match jobs.reserved {
        0 => String::new(),
        reserved => format!("; leave out {} reserved by clients", counted(reserved, "job")),
    };
    let what = format!(
        "write {} to {}, and delete {} on {}{stay}",
        counted(jobs.ids.len() as u64, "job"),
        path.display(),
        if jobs.ids.len() == 1 { "it" } else { "them" },
        server.address
    );
    if !confirm::ask(&arguments.confirm, &what)? {
        return out.dry_run("export", jobs.ids.len() as u64);
    }
    drain_all(server, &jobs, DrainFile::open(path, server)?, out)
}

/// The jobs to drain.
struct DrainedJobs {
    /// Their ids, in the order of the file: the members of a group come before the jobs that wait for it.
    ids: Vec<u64>,
    /// Whether one of them waits for a group.
    has_held: bool,
    /// The number of other jobs that match, which clients have reserved.
    reserved: u64,
}

/// Finds the jobs to drain: those that match, and those that an interrupted export has begun to take, which may be
/// buried by now.
fn find(server: &mut Server, filter: &JobFilter, begun: &TakenJobs) -> Result<DrainedJobs> {
    let (mut ids, mut order, mut reserved) = (Vec::new(), GroupOrder::default(), Vec::new());
    let mut add = |info: &JobInfo| {
        ids.push(info.id);
        order.add(info);
    };
    begun.present(server, &mut |info| add(&info))?;
    listing::jobs_once(server, filter, false, &mut |found| {
        for FoundJob { info, .. } in found {
            if info.state == JobState::Reserved { reserved.push(info.id) } else { add(&info) }
        }
        Ok(())
    })?;
    let mut still_reserved = 0;
    for info in server.job_infos(reserved)?.into_iter().flatten() {
        if info.state == JobState::Reserved {
            still_reserved += 1;
        } else if filter.fits(&info) {
            add(&info);
        }
    }
    let stages = order.stages();
    ids.sort_unstable_by_key(|id| (stages.get(id), *id));
    ids.dedup();
    Ok(DrainedJobs { ids, has_held: !stages.is_empty(), reserved: still_reserved })
}

/// What has become of the jobs of a drain.
#[derive(Default)]
struct DrainProgress {
    deleted: u64,
    /// The jobs that were not deleted, or were deleted by other clients.
    left: Vec<u64>,
    /// The number of jobs that the server has refused to reserve, which are unchanged, and its first refusal.
    refused: u64,
    refusal: Option<Failure>,
    /// The members of groups that are in the file. They stay buried until the jobs that wait for them are deleted, so
    /// that no worker gets one of these.
    members: Vec<u64>,
}

/// Moves the jobs to the file, and prints how many.
fn drain_all(server: &mut Server, jobs: &DrainedJobs, mut file: DrainFile, out: &mut Output) -> Result {
    let mut progress = DrainProgress::default();
    let moved = move_all(server, jobs, &mut file, &mut progress);
    if !matches!(moved, Ok(()) | Err(Failure::Interrupted(_))) {
        return moved;
    }
    let complete = moved.and_then(|()| conclude(server, &file, &progress));
    // A closed output hides no failure.
    let printed = print_report(out, progress.deleted, true);
    complete.and(printed)
}

/// Ends the drain whose jobs are moved, and fails if jobs were kept.
fn conclude(server: &mut Server, file: &DrainFile, progress: &DrainProgress) -> Result {
    let complete = match number_on_server(server, &progress.left)? {
        0 => file.finish(server),
        left => Err(Failure::Refused(format!(
            "kept {}, which changed meanwhile, or whose key or rule allows no more reserved jobs",
            counted(left, "job")
        ))),
    };
    let Some(refusal) = &progress.refusal else { return complete };
    let kept = format!("kept {}: {refusal}", counted(progress.refused, "job"));
    match complete {
        Ok(()) => file.remove_empty().and(Err(Failure::Refused(kept))),
        Err(Failure::Refused(others)) => Err(Failure::Refused(format!("{kept}; {others}"))),
        failed => failed,
    }
}

/// Moves the jobs to the file, a batch at a time.
fn move_all(
    server: &mut Server,
    jobs: &DrainedJobs,
    file: &mut DrainFile,
    progress: &mut DrainProgress,
) -> Result {
    let check = || interrupt::check("stopped; run the same command again to continue");
    let shown = ShownProgress::new("exporting", jobs.ids.len() as u64);
    for batch in jobs.ids.chunks(BATCH) {
        check()?;
        let written = write_batch(server, batch, file, progress)?;
        let stays = |info: &JobInfo| jobs.has_held && info.tags.iter().any(|tag| tag.word() == "grp");
        let (members, others): (Vec<_>, Vec<_>) = written.into_iter().partition(stays);
        progress.members.extend(members.iter().map(|info| info.id));
        delete(server, &others.iter().map(|info| info.id).collect::<Vec<u64>>(), progress)?;
        shown.add(batch.len() as u64);
    }
    // A member can wait for another group. In the file it comes after the members of that one.
    let members: Vec<u64> = std::mem::take(&mut progress.members).into_iter().rev().collect();
    for members in members.chunks(BATCH) {
        check()?;
        delete(server, members, progress)?;
    }
    Ok(())
}

fn delete(server: &mut Server, ids: &[u64], progress: &mut DrainProgress) -> Result {
    let commands = ids.iter().map(|id| Command::Delete(JobId(*id)));
    server.client.pipeline(commands, |position, reply| {
        if reply == Reply::Deleted {
            progress.deleted += 1;
        } else {
            progress.left.push(ids[position]);
        }
    })?;
    Ok(())
}

/// How many of these jobs exist.
fn number_on_server(server: &mut Server, ids: &[u64]) -> Result<u64> {
    let mut count = 0;
    for ids in ids.chunks(BATCH) {
        count += server.job_infos(ids.iter().copied())?.into_iter().flatten().count() as u64;
    }
    Ok(count)
}

/// Buries a batch of jobs and writes them to the file. Returns those that are in the file.
fn write_batch(
    server: &mut Server,
    ids: &[u64],
    file: &mut DrainFile,
    progress: &mut DrainProgress,
) -> Result<Vec<JobInfo>> {
    let mut infos: Vec<JobInfo> = server.job_infos(ids.iter().copied())?.into_iter().flatten().collect();
    let servers = file.begin(&mut infos)?;
    let bodies = take(server, &infos, progress)?;
    let (mut taken, mut records) = (Vec::new(), Vec::new());
    for ((info, body), server_id) in infos.into_iter().zip(bodies).zip(servers) {
        let Some(body) = body else { continue };
        records.push(Record::new(&info, body, &server_id).map_err(Failure::Refused)?);
        taken.push(info);
    }
    if let Err(failure) = file.append(&records) {
        return Err(match put_all_back(server, &taken) {
            Ok(()) => failure,
            Err(lost) => lost.while_doing(&format!("{failure}; the jobs were not put back")),
        });
    }
    Ok(taken)
}

/// Reserves and buries jobs. Returns their bodies; `None` for a job that is left, of which `progress` gets a note. If
/// the server refuses to reserve a job, that does not stop the others: some of them are buried by then.
fn take(
    server: &mut Server,
    infos: &[JobInfo],
    progress: &mut DrainProgress,
) -> Result<Vec<Option<Vec<u8>>>> {
    let commands =
        infos.iter().flat_map(|info| [Command::ReserveJob(JobId(info.id)), bury(info.id, info.pri)]);
    let (mut bodies, mut is_refused, mut failed) = (vec![None; infos.len()], vec![false; infos.len()], None);
    server.client.pipeline(commands, |position, reply| match (position % 2, reply) {
        (0, Reply::Reserved(_, body)) => bodies[position / 2] = Some(body.as_slice().to_vec()),
        (0, Reply::NotFound) | (1, Reply::Buried) => {}
        (0, other) if other.refusal().is_some() => {
            is_refused[position / 2] = true;
            progress.refusal.get_or_insert_with(|| unexpected("reserve-job", &other));
        }
        (0, other) => failed = failed.take().or(Some(unexpected("reserve-job", &other))),
        (_, _) => bodies[position / 2] = None,
    })?;
    failed.map_or(Ok(()), Err)?;
    for ((info, body), is_refused) in infos.iter().zip(&mut bodies).zip(is_refused) {
        if is_refused {
            progress.refused += 1;
            continue;
        }
        // No client can reserve a held job before its group is empty.
        if body.is_none() && info.held {
            *body = server.client.peek(info.id).ok().map(|job| job.body);
        }
        if body.is_none() {
            progress.left.push(info.id);
        }
    }
    Ok(bodies)
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
