//! What talks to the servers, on a thread of its own: a slow server does not keep a key waiting.

use crate::commands::act::Action;
use crate::commands::batch::{self, Outcome};
use crate::commands::flush;
use crate::commands::jobs::sort;
use crate::failure::Failure;
use crate::listing::{self, Filter};
use crate::session::{Session, Tube};
use beanstalk_client::{JobInfo, Name, State};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// The most jobs of a tube that are shown.
pub const MAX_JOBS: usize = 500;

/// Which jobs are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsOf {
    /// By its place in the list of servers.
    pub server: usize,
    /// The tube.
    pub tube: Name,
    /// Their state.
    pub state: State,
}

/// What the user wants to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Kick every buried job of the tube.
    KickBuried,
    /// Pause the tube for so many seconds; 0 ends it.
    Pause(u32),
    /// Delete every job of the tube.
    Flush,
    /// Act on one job.
    Job(u64, Action),
}

/// What is asked of the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Look at all tubes, and at these jobs. A server without `list-jobs` is asked for every id to find them: that is done
    /// only where the user has just asked for them.
    Look {
        /// Which jobs.
        jobs: Option<JobsOf>,
        /// Whether the user has just asked for them.
        asked: bool,
    },
    /// Look at this body.
    Body {
        /// The server.
        server: usize,
        /// The job.
        id: u64,
    },
    /// Do something with a tube or a job of it.
    Act(usize, Name, Act),
}

/// What the backend tells.
pub enum Update {
    /// The tubes of each server; of one that does not answer, why.
    Tubes(Vec<Result<Vec<Tube>, String>>),
    /// The jobs that were asked for.
    Jobs(JobsOf, Vec<JobInfo>),
    /// The body that was asked for.
    Body(u64, Vec<u8>),
    /// What was done, or could not be.
    Said(String),
}

/// Answers requests until nobody is left who asks.
pub fn run(
    mut sessions: Vec<Session>,
    timeout: Duration,
    inbox: &Receiver<Request>,
    outbox: &Sender<Update>,
) {
    while let Ok(request) = inbox.recv() {
        let updates = match request {
            Request::Look { jobs, asked } => {
                let jobs = jobs.filter(|of| asked || sessions[of.server].has("list-jobs"));
                look(&mut sessions, timeout, jobs)
            }
            Request::Body { server, id } => vec![body(&mut sessions[server], id)],
            Request::Act(server, tube, act) => {
                let done = perform(&mut sessions[server], &tube, act);
                vec![Update::Said(done.unwrap_or_else(|failure| failure.to_string()))]
            }
        };
        for update in updates {
            if outbox.send(update).is_err() {
                return;
            }
        }
    }
}

fn look(sessions: &mut [Session], timeout: Duration, jobs: Option<JobsOf>) -> Vec<Update> {
    let tubes = sessions.iter_mut().map(|session| {
        session.tubes(&[]).map_err(|failure| {
            // The next look finds a new connection, if there is one.
            if let Ok(again) = Session::open(&session.address, timeout) {
                *session = again;
            }
            failure.to_string()
        })
    });
    let mut updates = vec![Update::Tubes(tubes.collect())];
    if let Some(of) = jobs {
        updates.push(match find_jobs(&mut sessions[of.server], &of) {
            Ok(found) => Update::Jobs(of, found),
            Err(failure) => Update::Said(failure.to_string()),
        });
    }
    updates
}

fn find_jobs(session: &mut Session, of: &JobsOf) -> Result<Vec<JobInfo>, Failure> {
    let tubes = vec![crate::cli::glob(&of.tube).map_err(Failure::Local)?];
    let filter = Filter { tubes, states: vec![of.state], ..Filter::default() };
    let mut jobs = Vec::new();
    listing::jobs(session, &filter, false, &mut |found| {
        jobs.extend(found.into_iter().map(|found| found.info));
        Ok(jobs.len() < MAX_JOBS)
    })?;
    if !session.has("list-jobs") {
        sort(&mut jobs);
    }
    jobs.truncate(MAX_JOBS);
    Ok(jobs)
}

fn body(session: &mut Session, id: u64) -> Update {
    match session.client.peek(id) {
        Ok(job) => Update::Body(id, job.body),
        Err(error) => Update::Said(format!("job {id}: {error}")),
    }
}

fn perform(session: &mut Session, tube: &Name, act: Act) -> Result<String, Failure> {
    match act {
        Act::Pause(seconds) => {
            session.client.pause_tube(tube, seconds)?;
            Ok(if seconds == 0 {
                format!("{tube} is resumed")
            } else {
                format!("{tube} is paused for {seconds}s")
            })
        }
        Act::Flush => Ok(format!("{} jobs of {tube} deleted", flush::everything(session, tube)?)),
        Act::KickBuried => kick_buried(session, tube),
        Act::Job(id, action) => act_on_job(session, id, &action),
    }
}

/// As many as are buried now. A kick of more would go on with delayed jobs.
fn kick_buried(session: &mut Session, tube: &Name) -> Result<String, Failure> {
    let buried = session.client.stats_tube(tube)?.number_or_zero("current-jobs-buried");
    session.client.use_tube(tube)?;
    let kicked = if buried == 0 { 0 } else { session.client.kick(buried)? };
    Ok(format!("{kicked} jobs of {tube} kicked"))
}

fn act_on_job(session: &mut Session, id: u64, action: &Action) -> Result<String, Failure> {
    let Some(info) = session.job_infos([id])?.pop().flatten() else {
        return Ok(format!("job {id} is gone"));
    };
    if !action.applies_to(info.state) {
        return Ok(format!("job {id} is {}: that cannot be done with it", info.state));
    }
    let mut said = String::new();
    batch::apply(session, action, &[info], &mut |outcome| {
        said = match outcome {
            Outcome::Done => format!("job {id}: done"),
            Outcome::Gone | Outcome::Changed => format!("job {id} has changed meanwhile"),
            Outcome::Refused(why) => format!("job {id}: {why}"),
        };
    })?;
    Ok(said)
}
