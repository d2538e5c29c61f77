//! `export`: writes jobs to a file.
//!
//! Without `--drain` the jobs do not change, and the file gets its name when it is complete. With `--drain` each job is
//! buried, so that no worker gets it; then its line is written and synced; then it is deleted. The members of a group
//! are deleted after the jobs that wait for the group, so that no worker gets a job that waits. After an interruption,
//! the same command continues: it does not write a job again that is in the file, and FILE.taking says which jobs were
//! buried for the export.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::Path;

use beanstalk_client::{Command, JobId, JobInfo, JobState, Reply, TagKind};
use serde_json::json;

use super::destination::{Destination, Replacement, check_replaceable, open_stream};
use super::drain_file::DrainFile;
use super::record::Record;
use super::taken_jobs::TakenJobs;
use crate::cli::{ExportArguments, JobFilter};
use crate::commands::change::{bury, put_back};
use crate::commands::confirm;
use crate::failure::{Failure, OfFile, Result};
use crate::group_order::{GroupOrder, tag_name};
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
    let server_id = server.id();
    let mut count = 0;
    listing::jobs_once(server, filter, true, &mut |found| {
        for found in found {
            let record = Record::new(&found.info, found.body.unwrap_or_default(), &server_id);
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
    /// The stages of the jobs that wait for a group.
    stages: HashMap<u64, usize>,
    /// The number of other jobs that match, which clients have reserved.
    reserved: u64,
    /// The groups of these other jobs.
    reserved_groups: HashSet<String>,
}

impl DrainedJobs {
    /// The ids, a batch at a time. No batch has a member of a group and a job that waits for it, unless groups wait for
    /// each other in a circle.
    fn batches(&self) -> impl Iterator<Item = &[u64]> {
        let is_same_stage = |one: &u64, other: &u64| self.stages.get(one) == self.stages.get(other);
        self.ids.chunk_by(is_same_stage).flat_map(|stage| stage.chunks(BATCH))
    }
}

/// Finds the jobs to drain: the jobs that match, and the jobs that an interrupted export has begun to take, which may
/// be buried by now.
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
    let (mut still_reserved, mut reserved_groups) = (0, HashSet::new());
    for info in server.job_infos(reserved)?.into_iter().flatten() {
        if info.state == JobState::Reserved {
            still_reserved += 1;
            reserved_groups.extend(tag_name(&info.tags, TagKind::Group).map(str::to_owned));
        } else if filter.fits(&info) {
            add(&info);
        }
    }
    let stages = order.stages();
    ids.sort_unstable_by_key(|id| (stages.get(id), *id));
    ids.dedup();
    Ok(DrainedJobs { ids, stages, reserved: still_reserved, reserved_groups })
}

/// What has become of a job of a drain that is not deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is not in the file, because another client has changed or deleted it.
    Changed,
    /// It is unchanged, because the server has refused to reserve it.
    Refused,
    /// It is unchanged, because it waits for a group, and a member of the group stays on the server.
    Waiting,
    /// It is in the file, and a member of a group. It stays buried until the jobs that wait for the group are deleted,
    /// so that no worker gets them.
    Member,
    /// It is such a member, and stays buried for longer, because a job that waits for it was kept.
    KeptMember,
    /// It is in the file, and its delete has failed, because another client has changed or deleted it.
    NotDeleted,
}

/// What has become of the jobs of a drain.
#[derive(Default)]
struct DrainProgress {
    deleted: u64,
    /// The jobs that were handled and are not deleted.
    fates: BTreeMap<u64, Fate>,
    /// The server's first refusal to reserve a job.
    refusal: Option<Failure>,
    /// The groups with a member that stays on the server.
    kept_groups: HashSet<String>,
}

impl DrainProgress {
    /// Whether the job waits for a group with a member that stays on the server. In the file it would come before that
    /// member, and an import would not let it wait.
    fn must_stay(&self, info: &JobInfo) -> bool {
        info.held
            && tag_name(&info.tags, TagKind::After).is_some_and(|group| self.kept_groups.contains(group))
    }

    /// The jobs with this fate.
    fn with(&self, fate: Fate) -> Vec<u64> {
        self.fates.iter().filter(|(_, other)| **other == fate).map(|(id, _)| *id).collect()
    }

    fn set(&mut self, jobs: &[JobInfo], fate: Fate) {
        self.fates.extend(jobs.iter().map(|info| (info.id, fate)));
    }

    /// Notes the groups of jobs that stay on the server.
    fn keep(&mut self, jobs: &[JobInfo]) {
        self.kept_groups
            .extend(jobs.iter().filter_map(|info| tag_name(&info.tags, TagKind::Group)).map(str::to_owned));
    }
}

/// Moves the jobs to the file, and prints how many.
fn drain_all(server: &mut Server, jobs: &DrainedJobs, mut file: DrainFile, out: &mut Output) -> Result {
    let kept_groups = jobs.reserved_groups.clone();
    let mut progress = DrainProgress { kept_groups, ..DrainProgress::default() };
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
    let path = file.path().display();
    let mut kept = Vec::new();
    if let Some(refusal) = &progress.refusal {
        kept.push(format!("kept {}: {refusal}", counted(progress.with(Fate::Refused).len() as u64, "job")));
    }
    let before = kept.len();
    let left = present(server, &progress.with(Fate::Changed))?.len() as u64;
    if left > 0 {
        kept.push(format!(
            "kept {}, which changed meanwhile, or whose key or rule allows no more reserved jobs",
            counted(left, "job")
        ));
    }
    let waiting = present(server, &progress.with(Fate::Waiting))?.len() as u64;
    if waiting > 0 {
        let jobs = if waiting == 1 { "job, which waits" } else { "jobs, which wait" };
        kept.push(format!("kept {waiting} {jobs} for groups with members that were kept or are reserved"));
    }
    let written = present(server, &progress.with(Fate::NotDeleted))?;
    if !written.is_empty() {
        let ids: Vec<String> = written.iter().map(|info| info.id.to_string()).collect();
        kept.push(format!(
            "kept {}, also in {path}, which the server did not delete, because a client has reserved it since or for \
             another reason: {}",
            counted(written.len() as u64, "job"),
            ids.join(", ")
        ));
    }
    let kept_members = progress.with(Fate::KeptMember).len() as u64;
    if kept_members > 0 {
        kept.push(format!(
            "kept {}, buried and also in {path}, because jobs that were kept wait for their groups; run the same \
             command again when these can be exported",
            counted(kept_members, "member")
        ));
    }
    if kept.len() == before {
        match file.finish(server) {
            Ok(()) => file.remove_empty()?,
            Err(Failure::Refused(unfinished)) => kept.push(unfinished),
            Err(failed) => return Err(failed),
        }
    }
    if kept.is_empty() { Ok(()) } else { Err(Failure::Refused(kept.join("; "))) }
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
    for batch in jobs.batches() {
        check()?;
        let written = write_batch(server, batch, file, progress)?;
        let stays =
            |info: &JobInfo| !jobs.stages.is_empty() && tag_name(&info.tags, TagKind::Group).is_some();
        let (members, others): (Vec<_>, Vec<_>) = written.into_iter().partition(stays);
        progress.set(&members, Fate::Member);
        delete(server, &others.iter().map(|info| info.id).collect::<Vec<u64>>(), progress)?;
        shown.add(batch.len() as u64);
    }
    // A member can wait for another group. In the file it comes after the members of that one.
    let is_member = |id: &u64| progress.fates.get(id) == Some(&Fate::Member);
    let members: Vec<u64> = jobs.ids.iter().rev().copied().filter(is_member).collect();
    let members = without_awaited(server, members, progress)?;
    for members in members.chunks(BATCH) {
        check()?;
        delete(server, members, progress)?;
    }
    Ok(())
}

/// The members of groups, except members for which a kept job waits: if they were deleted, that job would be ready. A
/// member comes after the jobs that wait for it.
fn without_awaited(server: &mut Server, members: Vec<u64>, progress: &mut DrainProgress) -> Result<Vec<u64>> {
    let kept: Vec<u64> =
        progress.fates.iter().filter(|(_, fate)| **fate != Fate::Member).map(|(id, _)| *id).collect();
    let mut awaited = HashSet::new();
    let note = |awaited: &mut HashSet<String>, info: &JobInfo| {
        if info.held {
            awaited.extend(tag_name(&info.tags, TagKind::After).map(str::to_owned));
        }
    };
    present(server, &kept)?.iter().for_each(|info| note(&mut awaited, info));
    if awaited.is_empty() {
        return Ok(members);
    }
    let mut others = Vec::new();
    for info in present(server, &members)? {
        if tag_name(&info.tags, TagKind::Group).is_some_and(|group| awaited.contains(group)) {
            progress.fates.insert(info.id, Fate::KeptMember);
            note(&mut awaited, &info);
        } else {
            others.push(info.id);
        }
    }
    Ok(others)
}

fn delete(server: &mut Server, ids: &[u64], progress: &mut DrainProgress) -> Result {
    let commands = ids.iter().map(|id| Command::Delete(JobId(*id)));
    server.client.pipeline(commands, |position, reply| {
        if reply == Reply::Deleted {
            progress.deleted += 1;
            progress.fates.remove(&ids[position]);
        } else {
            progress.fates.insert(ids[position], Fate::NotDeleted);
        }
    })?;
    Ok(())
}

/// The jobs with one of these ids that exist.
fn present(server: &mut Server, ids: &[u64]) -> Result<Vec<JobInfo>> {
    Ok(server.job_infos(ids.iter().copied())?.into_iter().flatten().collect())
}

/// Buries a batch of jobs and writes them to the file. Returns the jobs that are in the file.
fn write_batch(
    server: &mut Server,
    ids: &[u64],
    file: &mut DrainFile,
    progress: &mut DrainProgress,
) -> Result<Vec<JobInfo>> {
    let infos = server.job_infos(ids.iter().copied())?.into_iter().flatten();
    let (waiting, mut infos): (Vec<_>, Vec<_>) = infos.partition(|info| progress.must_stay(info));
    progress.keep(&waiting);
    progress.set(&waiting, Fate::Waiting);
    let servers = file.begin(&mut infos)?;
    let bodies = take(server, &infos, progress)?;
    let (mut taken, mut records, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for ((info, body), server_id) in infos.into_iter().zip(bodies).zip(servers) {
        let Some(body) = body else {
            left.push(info.id);
            continue;
        };
        records.push(Record::new(&info, body, &server_id).map_err(Failure::Refused)?);
        taken.push(info);
    }
    progress.keep(&present(server, &left)?);
    if let Err(failure) = file.append(&records) {
        return Err(match put_all_back(server, &taken) {
            Ok(()) => failure,
            Err(lost) => lost.while_doing(&format!("{failure}; the jobs were not put back")),
        });
    }
    Ok(taken)
}

/// Reserves and buries jobs. Returns their bodies; `None` for a job that is left, and `progress` gets a note of it. If
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
            progress.fates.insert(info.id, Fate::Refused);
            continue;
        }
        // No client can reserve a held job before its group is empty.
        if body.is_none() && info.held {
            *body = server.client.peek(info.id).ok().map(|job| job.body);
        }
        if body.is_none() {
            progress.fates.insert(info.id, Fate::Changed);
        }
    }
    Ok(bodies)
}

/// Returns the jobs of a batch to their states, and names the jobs that the server refuses: FILE.taking has their
/// states, and the same command exports them.
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
