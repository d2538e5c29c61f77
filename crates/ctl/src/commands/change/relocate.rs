//! Moves jobs on a server without `move`: puts a copy into the other tube, then deletes the job.
//!
//! The job is reserved in the meantime, so that no worker gets both. If the connection breaks in between, both the job
//! and its copy may exist, but no job is lost. The copy has a new id, and its age and counters begin at 0.

use beanstalk_client::{Command, Inserted, JobId, JobInfo, JobState, PutOptions, Reply, Request, TubeName};

use super::{ChangeResult, EachResult, bury, put_back};
use crate::failure::Result;
use crate::server::{Server, put_failed, unexpected};

/// How many jobs are reserved together: few, so that all are moved before the shortest TTR, a second, ends.
const BATCH: usize = 50;

/// The delay of a copy that will be buried, in seconds: no worker may reserve it before.
const NEVER: u32 = u32::MAX;

/// Moves the jobs, and passes the result of each to `each`.
pub fn by_copies(
    server: &mut Server,
    jobs: &[JobInfo],
    tube: &TubeName,
    each: &mut EachResult<'_>,
) -> Result {
    server.client.use_tube(tube)?;
    jobs.chunks(BATCH).try_for_each(|batch| move_batch(server, batch, each))
}

fn move_batch(server: &mut Server, jobs: &[JobInfo], each: &mut EachResult<'_>) -> Result {
    let mut reserved = Vec::with_capacity(jobs.len());
    let reserves = jobs.iter().map(|job| Command::ReserveJob(JobId(job.id)));
    server.client.pipeline(reserves, |position, reply| match reply {
        Reply::Reserved(_, body) => reserved.push((&jobs[position], body.as_slice().to_vec())),
        Reply::NotFound => each(ChangeResult::Stale),
        other => each(ChangeResult::Refused(unexpected("reserve-job", &other).to_string())),
    })?;
    let options: Vec<PutOptions> = reserved.iter().map(|(job, _)| options_of_copy(job)).collect();
    let puts = reserved.iter().zip(&options).map(|((_, body), options)| Request::Put(options, body));
    let replies = server.client.call_all(puts, |reply| Inserted::of_reply(&reply))?;
    let mut copies = Vec::with_capacity(reserved.len());
    for ((job, _), reply) in reserved.iter().zip(replies) {
        match reply {
            Ok(inserted) => copies.push((*job, inserted.id)),
            Err(error) => {
                let back = put_back(job, job.pri, server.uncounted());
                server.client.call(back)?;
                each(ChangeResult::Refused(put_failed(error).to_string()));
            }
        }
    }
    let copies = bury_copies(server, copies, each)?;
    delete_originals(server, &copies, each)
}

fn options_of_copy(job: &JobInfo) -> PutOptions {
    let ttr = u32::try_from(job.ttr).unwrap_or(u32::MAX);
    PutOptions { pri: job.pri, delay: delay_of_copy(job).into(), ttr: ttr.into(), tags: job.tags.clone() }
}

fn delay_of_copy(job: &JobInfo) -> u32 {
    match job.state {
        JobState::Delayed => u32::try_from(job.time_left).unwrap_or(u32::MAX),
        JobState::Buried => NEVER,
        JobState::Ready | JobState::Reserved => 0,
    }
}

/// Buries the copies of buried jobs. If the server refuses that, the copy is deleted and the job stays buried. Returns
/// the other copies.
fn bury_copies<'a>(
    server: &mut Server,
    copies: Vec<(&'a JobInfo, u64)>,
    each: &mut EachResult<'_>,
) -> Result<Vec<(&'a JobInfo, u64)>> {
    let (buried, mut good): (Vec<_>, Vec<_>) =
        copies.into_iter().partition(|(job, _)| job.state == JobState::Buried);
    let commands =
        buried.iter().flat_map(|(job, copy)| [Command::ReserveJob(JobId(*copy)), bury(*copy, job.pri)]);
    let mut refusals = Vec::with_capacity(buried.len());
    server.client.pipeline(commands, |position, reply| {
        if position % 2 == 1 {
            refusals.push((reply != Reply::Buried).then(|| unexpected("bury", &reply).to_string()));
        }
    })?;
    for ((job, copy), refusal) in buried.into_iter().zip(refusals) {
        match refusal {
            Some(why) if server.client.call(Command::Delete(JobId(copy)))? == Reply::Deleted => {
                server.client.call(bury(job.id, job.pri))?;
                each(ChangeResult::Refused(why));
            }
            // Another client has kicked or deleted the copy, which it can only do if the copy counts as the job.
            Some(_) | None => good.push((job, copy)),
        }
    }
    Ok(good)
}

fn delete_originals(server: &mut Server, copies: &[(&JobInfo, u64)], each: &mut EachResult<'_>) -> Result {
    let deletes = copies.iter().map(|(job, _)| Command::Delete(JobId(job.id)));
    let are_deleted = server.client.call_all(deletes, |reply| reply == Reply::Deleted)?;
    for ((_, copy), is_deleted) in copies.iter().zip(are_deleted) {
        if is_deleted {
            each(ChangeResult::Done);
            continue;
        }
        // The TTR has ended, and a worker may have reserved the job: the copy must go.
        server.client.call(Command::Delete(JobId(*copy)))?;
        each(ChangeResult::Stale);
    }
    Ok(())
}
