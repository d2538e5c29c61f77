//! The connection to a server, on a separate thread: keys and the other servers work while it is slow.

use std::sync::mpsc::{Receiver, Sender};

use beanstalk_client::{JobInfo, JobState, TubeName};

use crate::cli::{JobFilter, glob};
use crate::commands::change::{ChangeResult, JobChange};
use crate::commands::flush;
use crate::commands::jobs::sort;
use crate::failure::{Failure, Result};
use crate::listing;
use crate::output::counted;
use crate::server::{PolledServer, Server, Tube};

/// The greatest number of jobs of a tube that are shown.
pub const MAX_JOBS: usize = 500;

/// Jobs of a tube in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsOf {
    /// The index in the list of servers.
    pub server: usize,
    /// The tube.
    pub tube: TubeName,
    /// Their state.
    pub state: JobState,
}

/// An action that the user has requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedAction {
    /// Kick every buried job of the tube.
    KickBuried,
    /// Pause the tube for this many seconds; 0 ends the pause.
    Pause(u32),
    /// Delete every job of the tube.
    Flush,
    /// Make this change of the job with this id.
    Job(u64, JobChange),
}

/// A request to the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendRequest {
    /// Read the counters of all tubes, and these jobs. Finding jobs is slow on a server without `list-jobs`, which has
    /// to be asked for every id, so it is done there only if it is needed.
    Refresh {
        /// The index in the list of servers.
        server: usize,
        /// The jobs in view, if they are of this server.
        jobs: Option<JobsOf>,
        /// Whether the jobs are needed even if finding them is slow.
        needs_jobs: bool,
    },
    /// Read this body.
    Body {
        /// The index in the list of servers.
        server: usize,
        /// The job's id.
        id: u64,
    },
    /// Perform an action on a tube of a server, or on one of its jobs.
    Act(usize, TubeName, RequestedAction),
}

/// An answer of the backend.
pub enum BackendAnswer {
    /// The tubes of the server with this index, or why they could not be read.
    Tubes(usize, Result<Vec<Tube>, String>),
    /// The requested jobs, or why they could not be read.
    Jobs(JobsOf, Result<Vec<JobInfo>, String>),
    /// The requested body of the job with this id.
    Body(u64, Vec<u8>),
    /// The result of an action, or an error.
    Message(String),
}

impl BackendRequest {
    /// The index of its server.
    pub fn server(&self) -> usize {
        match self {
            Self::Refresh { server, .. } | Self::Body { server, .. } | Self::Act(server, ..) => *server,
        }
    }
}

/// Answers requests until the sender of the requests, or the receiver of the answers, is dropped.
pub fn run(mut server: PolledServer, inbox: &Receiver<BackendRequest>, outbox: &Sender<BackendAnswer>) {
    while let Ok(request) = inbox.recv() {
        let updates = match request {
            BackendRequest::Refresh { server: number, jobs, needs_jobs } => {
                refresh(&mut server, number, jobs, needs_jobs)
            }
            BackendRequest::Body { id, .. } => {
                vec![match server.connected().and_then(|server| body(server, id)) {
                    Ok(body) => BackendAnswer::Body(id, body),
                    Err(failure) => BackendAnswer::Message(format!("job {id}: {failure}")),
                }]
            }
            BackendRequest::Act(_, tube, action) => {
                let done = server.connected().and_then(|server| perform(server, &tube, action));
                vec![BackendAnswer::Message(done.unwrap_or_else(|failure| failure.to_string()))]
            }
        };
        for update in updates {
            if outbox.send(update).is_err() {
                return;
            }
        }
    }
}

fn refresh(
    server: &mut PolledServer,
    number: usize,
    jobs: Option<JobsOf>,
    needs_jobs: bool,
) -> Vec<BackendAnswer> {
    let refreshed = server.connected().and_then(|server| {
        let tubes = server.tubes(&[])?;
        let jobs = jobs.filter(|_| needs_jobs || server.has("list-jobs")).map(|of| {
            let found = find_jobs(server, &of).map_err(|failure| failure.to_string());
            BackendAnswer::Jobs(of, found)
        });
        Ok((tubes, jobs))
    });
    match refreshed {
        Ok((tubes, jobs)) => [BackendAnswer::Tubes(number, Ok(tubes))].into_iter().chain(jobs).collect(),
        Err(failure) => {
            // The next refresh connects again.
            server.connected = None;
            vec![BackendAnswer::Tubes(number, Err(failure.to_string()))]
        }
    }
}

fn find_jobs(server: &mut Server, of: &JobsOf) -> Result<Vec<JobInfo>> {
    let tubes = vec![glob(of.tube.as_str()).map_err(Failure::Local)?];
    let filter = JobFilter { tubes, states: vec![of.state], ..JobFilter::default() };
    let mut jobs = Vec::new();
    listing::jobs(server, &filter, false, &mut |found| {
        jobs.extend(found.into_iter().map(|found| found.info));
        Ok(jobs.len() < MAX_JOBS)
    })?;
    if !server.has("list-jobs") {
        sort(&mut jobs);
    }
    jobs.truncate(MAX_JOBS);
    Ok(jobs)
}

fn body(server: &mut Server, id: u64) -> Result<Vec<u8>> {
    Ok(server.client.peek(id)?.body)
}

fn perform(server: &mut Server, tube: &TubeName, action: RequestedAction) -> Result<String> {
    match action {
        RequestedAction::Pause(seconds) => {
            server.client.pause_tube(tube, seconds)?;
            Ok(if seconds == 0 {
                format!("{tube} is resumed")
            } else {
                format!("{tube} is paused for {seconds}s")
            })
        }
        RequestedAction::Flush => {
            let deleted = counted(flush::everything(server, tube)?, "job");
            Ok(format!("{deleted} of {tube} deleted"))
        }
        RequestedAction::KickBuried => kick_buried(server, tube),
        RequestedAction::Job(id, change) => change_job(server, id, &change),
    }
}

/// Kicks as many jobs as are buried now.
fn kick_buried(server: &mut Server, tube: &TubeName) -> Result<String> {
    let buried = server.client.stats_tube(tube)?.number_or_zero("current-jobs-buried");
    server.client.use_tube(tube)?;
    let kicked = if buried == 0 { 0 } else { server.client.kick(buried)? };
    Ok(format!("{} of {tube} kicked", counted(kicked, "job")))
}

fn change_job(server: &mut Server, id: u64, change: &JobChange) -> Result<String> {
    let Some(info) = server.job_infos([id])?.pop().flatten() else {
        return Ok(format!("job {id} is gone"));
    };
    if !change.applies_to(&info) {
        let state = if info.held { "waiting for a group" } else { info.state.as_str() };
        return Ok(format!("job {id} is {state}: this action is not possible"));
    }
    let mut said = String::new();
    change.apply(server, &[info], &mut |result| {
        said = match result {
            ChangeResult::Done => format!("job {id}: done"),
            ChangeResult::Gone | ChangeResult::Stale => format!("job {id} has changed meanwhile"),
            ChangeResult::Refused(why) => format!("job {id}: {why}"),
        };
    })?;
    Ok(said)
}
