//! A change of jobs, with the server's own command or with the commands of C.
//!
//! `bury` and `release`, and without these extensions also `move` and `reprioritize`, first reserve the job, so that no
//! worker gets it. If the connection breaks before the second command, the job is ready.

mod relocate;

use beanstalk_client::{Command, Counting, JobId, JobInfo, JobState, Priority, Reply, Seconds, TubeName};

use crate::cli::JobRate;
use crate::failure::Result;
use crate::server::{Server, unexpected};

/// A change of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobChange {
    /// Deletes it.
    Delete,
    /// Makes it ready.
    Kick,
    /// Buries it.
    Bury,
    /// Makes it ready, or delays it.
    Release {
        /// The new priority; `None` keeps the present one.
        pri: Option<u32>,
        /// The delay; 0 makes the job ready.
        delay: Seconds,
    },
    /// Moves it to this tube.
    Move(TubeName),
    /// Sends a dead job back to its original tube, at most at this rate.
    Redrive(Option<JobRate>),
    /// Gives it this priority.
    Reprioritize(u32),
}

impl JobChange {
    /// The verb, and its past participle.
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Delete => ("delete", "deleted"),
            Self::Kick => ("kick", "kicked"),
            Self::Bury => ("bury", "buried"),
            Self::Release { .. } => ("release", "released"),
            Self::Move(_) => ("move", "moved"),
            Self::Redrive(_) => ("redrive", "redriven"),
            Self::Reprioritize(_) => ("reprioritize", "reprioritized"),
        }
    }

    /// The verb.
    pub fn verb(&self) -> &'static str {
        self.words().0
    }

    /// Its past participle.
    pub fn done(&self) -> &'static str {
        self.words().1
    }

    /// Whether the job can be changed. A reserved job belongs to its client, and one that waits for a group cannot be
    /// reserved or kicked.
    pub fn applies_to(&self, info: &JobInfo) -> bool {
        let state = info.state;
        match self {
            Self::Kick | Self::Bury | Self::Release { .. } if info.held => false,
            Self::Kick => matches!(state, JobState::Delayed | JobState::Buried),
            Self::Bury => matches!(state, JobState::Ready | JobState::Delayed),
            Self::Delete
            | Self::Release { .. }
            | Self::Move(_)
            | Self::Redrive(_)
            | Self::Reprioritize(_) => state != JobState::Reserved,
        }
    }

    /// Makes the change of all of `jobs`, and passes the result of each to `each`.
    pub fn apply(&self, server: &mut Server, jobs: &[JobInfo], each: &mut EachResult<'_>) -> Result {
        match self {
            Self::Delete => directly(server, jobs.iter().map(|job| Command::Delete(JobId(job.id))), each),
            Self::Kick => directly(server, jobs.iter().map(|job| Command::KickJob(JobId(job.id))), each),
            Self::Bury => after_reserve(server, jobs, |job| bury(job.id, job.pri), each),
            Self::Release { pri, delay } => {
                let counting = server.uncounted();
                let release = |job: &JobInfo| release(job.id, pri.unwrap_or(job.pri), *delay, counting);
                after_reserve(server, jobs, release, each)
            }
            Self::Reprioritize(pri) if server.has("reprioritize") => {
                let priority = Priority(*pri);
                let commands = jobs.iter().map(|job| Command::Reprioritize { id: JobId(job.id), priority });
                directly(server, commands, each)
            }
            Self::Reprioritize(pri) => {
                let counting = server.uncounted();
                after_reserve(server, jobs, |job| put_back(job, *pri, counting), each)
            }
            Self::Move(tube) if server.has("move") => {
                let tube = tube.into();
                directly(server, jobs.iter().map(|job| Command::Move { id: JobId(job.id), tube }), each)
            }
            Self::Move(tube) => relocate::by_copies(server, jobs, tube, each),
            // A `move` to its original tube resets the failures of a dead job.
            Self::Redrive(_) => {
                let back = jobs.iter().filter_map(|job| {
                    let tube = job.dead_from.as_ref()?.into();
                    Some(Command::Move { id: JobId(job.id), tube })
                });
                directly(server, back, each)
            }
        }
    }
}

/// The result of a change of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeResult {
    /// The job was changed.
    Done,
    /// The job had already been deleted.
    Gone,
    /// The job was in another state or tube than before.
    Stale,
    /// The server refused the change, for this reason.
    Refused(String),
}

/// The receiver of the result for each job.
pub type EachResult<'a> = dyn FnMut(ChangeResult) + 'a;

/// Buries the job.
pub fn bury(id: u64, pri: u32) -> Command<'static> {
    Command::Bury { id: JobId(id), priority: Priority(pri) }
}

/// Releases the job.
pub fn release(id: u64, pri: u32, delay: impl Into<Seconds>, counting: Counting) -> Command<'static> {
    Command::Release { id: JobId(id), priority: Priority(pri), delay_s: delay.into(), counting }
}

/// The command that returns a reserved job to the state in `job`, with the priority `pri`. A release is
/// counted as a failure or not, as `counting` says.
pub fn put_back(job: &JobInfo, pri: u32, counting: Counting) -> Command<'static> {
    match job.state {
        JobState::Buried => bury(job.id, pri),
        JobState::Delayed => {
            // With less than a second left the delay is 0, and the job becomes ready that much earlier.
            release(job.id, pri, u32::try_from(job.time_left).unwrap_or(u32::MAX), counting)
        }
        JobState::Ready | JobState::Reserved => release(job.id, pri, 0, counting),
    }
}

fn directly<'a>(
    server: &mut Server,
    commands: impl Iterator<Item = Command<'a>>,
    each: &mut EachResult<'_>,
) -> Result {
    Ok(server.client.pipeline(commands, |_, reply| each(result(reply)))?)
}

/// Sends two commands for each job. If the reserve is refused, so is the second command: then the reason of the first
/// one counts, if it has one.
fn after_reserve(
    server: &mut Server,
    jobs: &[JobInfo],
    then: impl Fn(&JobInfo) -> Command<'static>,
    each: &mut EachResult<'_>,
) -> Result {
    let commands = jobs.iter().flat_map(|job| [Command::ReserveJob(JobId(job.id)), then(job)]);
    let (mut refusal, mut not_found) = (None, Vec::new());
    server.client.pipeline(commands, |position, reply| {
        if position % 2 == 0 {
            refusal = match reply {
                Reply::Reserved(..) | Reply::NotFound => None,
                other => Some(result(other)),
            };
            return;
        }
        match (result(reply), refusal.take()) {
            (ChangeResult::Stale, Some(refused)) => each(refused),
            (ChangeResult::Stale, None) => not_found.push(&jobs[position / 2]),
            (other, _) => each(other),
        }
    })?;
    let infos = server.job_infos(not_found.iter().map(|job| job.id))?;
    for (job, info) in not_found.into_iter().zip(infos) {
        each(match info {
            None => ChangeResult::Gone,
            Some(info) if is_unchanged(job, &info) => ChangeResult::Refused(NO_SLOT.to_owned()),
            Some(_) => ChangeResult::Stale,
        });
    }
    Ok(())
}

/// Why a job that exists and has not changed cannot be reserved.
const NO_SLOT: &str = "its key or the rule of its tube allows no more reserved jobs at present";

/// Whether no client has reserved, kicked or moved the job since.
fn is_unchanged(before: &JobInfo, now: &JobInfo) -> bool {
    (before.state, &before.tube, before.reserves, before.kicks)
        == (now.state, &now.tube, now.reserves, now.kicks)
}

/// The result for a reply.
pub fn result(reply: Reply<'_>) -> ChangeResult {
    match reply {
        Reply::Deleted
        | Reply::KickedJob
        | Reply::Buried
        | Reply::Released
        | Reply::Reprioritized
        | Reply::Moved => ChangeResult::Done,
        // The job existed when it was checked: another client has reserved, deleted or kicked it since.
        Reply::NotFound => ChangeResult::Stale,
        Reply::Exists(JobId(id)) => {
            ChangeResult::Refused(format!("the other tube has a job with the same key, {id}"))
        }
        other => ChangeResult::Refused(unexpected("it", &other).to_string()),
    }
}
