//! Moves jobs on a server without `move`: puts a copy into the other tube, then deletes the job.
//!
//! The job is reserved meanwhile, so that no worker gets both. If the connection breaks in between, both the job and its copy
//! may exist, but no job is lost. The copy has a new id, and its age and counters begin at 0.

use super::batch::{Outcome, put_back};
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use beanstalk_client::{Command, JobInfo, Name, Refusal, Reply, State};

/// How many jobs are reserved together: few, so that all are moved before the shortest TTR, a second, ends.
const BATCH: usize = 50;

/// The delay of a copy that is to be buried, in seconds: no worker may reserve it before.
pub const NEVER: u32 = u32::MAX;

/// Moves the jobs, and passes the outcome of each to `each`.
pub fn by_copies(
    session: &mut Session,
    jobs: &[JobInfo],
    tube: &Name,
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    session.client.use_tube(tube)?;
    jobs.chunks(BATCH).try_for_each(|batch| move_batch(session, batch, each))
}

fn move_batch(session: &mut Session, jobs: &[JobInfo], each: &mut dyn FnMut(Outcome)) -> Result<(), Failure> {
    let replies = session.client.call_all(jobs.iter().map(|job| Command::ReserveJob(job.id)))?;
    let mut held = Vec::with_capacity(jobs.len());
    for (job, reply) in jobs.iter().zip(replies) {
        match reply {
            Reply::Reserved(reserved) => held.push((job, reserved.body)),
            Reply::Refused(Refusal::NotFound) => each(Outcome::Changed),
            other => each(Outcome::Refused(unexpected("reserve-job", &other).to_string())),
        }
    }
    let puts = held.iter().map(|(job, body)| Command::Put {
        pri: job.pri,
        delay: delay_of_copy(job),
        ttr: u32::try_from(job.ttr).unwrap_or(u32::MAX),
        body,
        tags: &job.tags,
    });
    let replies = session.client.call_all(puts)?;
    let mut copies = Vec::with_capacity(held.len());
    for ((job, _), reply) in held.iter().zip(replies) {
        match reply {
            Reply::Inserted(inserted) => copies.push((*job, inserted.id)),
            other => {
                session.client.call(&put_back(job, job.pri))?;
                each(Outcome::Refused(match other {
                    Reply::Draining => "the server accepts no new jobs (DRAINING)".to_owned(),
                    other => unexpected("put", &other).to_string(),
                }));
            }
        }
    }
    bury_copies(session, &copies)?;
    delete_originals(session, &copies, each)
}

fn delay_of_copy(job: &JobInfo) -> u32 {
    match job.state {
        State::Delayed => u32::try_from(job.time_left).unwrap_or(u32::MAX),
        State::Buried => NEVER,
        State::Ready | State::Reserved => 0,
    }
}

fn bury_copies(session: &mut Session, copies: &[(&JobInfo, u64)]) -> Result<(), Failure> {
    let buried = copies.iter().filter(|(job, _)| job.state == State::Buried);
    let commands = buried
        .flat_map(|(job, copy)| [Command::ReserveJob(*copy), Command::Bury { id: *copy, pri: job.pri }]);
    Ok(session.client.pipeline(commands, |_, _| {})?)
}

fn delete_originals(
    session: &mut Session,
    copies: &[(&JobInfo, u64)],
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    let replies = session.client.call_all(copies.iter().map(|(job, _)| Command::Delete(job.id)))?;
    for ((_, copy), reply) in copies.iter().zip(replies) {
        if matches!(reply, Reply::Deleted) {
            each(Outcome::Done);
            continue;
        }
        // The TTR has ended, and a worker may have reserved the job: the copy must go.
        session.client.call(&Command::Delete(*copy))?;
        each(Outcome::Changed);
    }
    Ok(())
}
