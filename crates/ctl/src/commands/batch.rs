//! An action on a batch of jobs, with the server's own command or with the commands of C.
//!
//! `bury` and `release`, and without these extensions also `move` and `reprioritize`, first reserve the job, so that no
//! worker gets it. If the connection breaks before the second command, the job is ready.

use super::act::Action;
use super::relocate;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use beanstalk_client::{Command, JobInfo, Refusal, Reply, State};

/// The outcome of an action on a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The job was changed.
    Done,
    /// The job was deleted before.
    Gone,
    /// The job was in another state or tube than before.
    Changed,
    /// The server refused the change, for this reason.
    Refused(String),
}

/// Performs the action on all of `jobs`, and passes the outcome of each to `each`.
pub fn apply(
    session: &mut Session,
    action: &Action,
    jobs: &[JobInfo],
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    match action {
        Action::Delete => directly(session, jobs.iter().map(|job| Command::Delete(job.id)), each),
        Action::Kick => directly(session, jobs.iter().map(|job| Command::KickJob(job.id)), each),
        Action::Bury => after_reserve(session, jobs, |job| Command::Bury { id: job.id, pri: job.pri }, each),
        Action::Release { pri, delay } => {
            let release =
                |job: &JobInfo| Command::Release { id: job.id, pri: pri.unwrap_or(job.pri), delay: *delay };
            after_reserve(session, jobs, release, each)
        }
        Action::Reprioritize(pri) if session.has("reprioritize") => {
            directly(session, jobs.iter().map(|job| Command::Reprioritize { id: job.id, pri: *pri }), each)
        }
        Action::Reprioritize(pri) => after_reserve(session, jobs, |job| put_back(job, *pri), each),
        Action::Move(tube) if session.has("move") => {
            directly(session, jobs.iter().map(|job| Command::Move { id: job.id, tube }), each)
        }
        Action::Move(tube) => relocate::by_copies(session, jobs, tube, each),
    }
}

/// The command that returns a reserved job to the state that `job` says, with the priority `pri`.
pub fn put_back(job: &JobInfo, pri: u32) -> Command<'static> {
    match job.state {
        State::Buried => Command::Bury { id: job.id, pri },
        State::Delayed => {
            // With less than a second left the delay is 0, and the job becomes ready that much earlier.
            let delay = u32::try_from(job.time_left).unwrap_or(u32::MAX);
            Command::Release { id: job.id, pri, delay }
        }
        State::Ready | State::Reserved => Command::Release { id: job.id, pri, delay: 0 },
    }
}

fn directly<'a>(
    session: &mut Session,
    commands: impl Iterator<Item = Command<'a>>,
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    Ok(session.client.pipeline(commands, |_, reply| each(outcome(reply)))?)
}

/// Sends two commands for each job. If the reserve is refused, so is the second command, and its reply counts.
fn after_reserve(
    session: &mut Session,
    jobs: &[JobInfo],
    then: impl Fn(&JobInfo) -> Command<'static>,
    each: &mut dyn FnMut(Outcome),
) -> Result<(), Failure> {
    let commands = jobs.iter().flat_map(|job| [Command::ReserveJob(job.id), then(job)]);
    Ok(session.client.pipeline(commands, |position, reply| {
        if position % 2 == 1 {
            each(outcome(reply));
        }
    })?)
}

/// The outcome that a reply stands for.
pub fn outcome(reply: Reply) -> Outcome {
    match reply {
        Reply::Deleted
        | Reply::Kicked(None)
        | Reply::Buried(None)
        | Reply::Released
        | Reply::Reprioritized
        | Reply::Moved => Outcome::Done,
        // The job existed when it was checked: another client has reserved, deleted or kicked it since.
        Reply::Refused(Refusal::NotFound) => Outcome::Changed,
        Reply::Refused(Refusal::Exists(id)) => {
            Outcome::Refused(format!("the other tube has a job with the same key, {id}"))
        }
        other => Outcome::Refused(unexpected("it", &other).to_string()),
    }
}
