//! An action on a batch of jobs, by the server's own command or by what C has.
//!
//! Without `move` and `reprioritize`, and for `bury` and `release` ever, a job is reserved for a moment: then no worker
//! gets it, and if the connection breaks in between it is ready.

use super::act::Action;
use super::relocate;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use beanstalk_client::{Command, JobInfo, Refusal, Reply, State};

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As was asked.
    Done,
    /// It was not there any more.
    Gone,
    /// It was in another state, or in somebody's hands.
    Changed,
    /// The server said no.
    Refused(String),
}

/// Acts on all of `jobs`, and tells what became of each.
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

/// Gives a job that was reserved for a moment back into the state in which it was.
pub fn put_back(job: &JobInfo, pri: u32) -> Command<'static> {
    match job.state {
        State::Buried => Command::Bury { id: job.id, pri },
        State::Delayed => {
            // A delay of 0 would make it ready, which it is anyway within this second.
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

/// Two commands for each job: where the first finds nothing, neither does the second.
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

/// What a reply says of the job.
pub fn outcome(reply: Reply) -> Outcome {
    match reply {
        Reply::Deleted
        | Reply::Kicked(None)
        | Reply::Buried(None)
        | Reply::Released
        | Reply::Reprioritized
        | Reply::Moved => Outcome::Done,
        // It was there a moment ago: somebody has reserved, deleted or kicked it.
        Reply::Refused(Refusal::NotFound) => Outcome::Changed,
        Reply::Refused(Refusal::Exists(id)) => {
            Outcome::Refused(format!("the other tube has a job with the same key, {id}"))
        }
        other => Outcome::Refused(unexpected("it", &other).to_string()),
    }
}
