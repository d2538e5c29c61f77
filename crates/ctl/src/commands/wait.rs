//! `wait`: waits until jobs are done.
//!
//! The server answers when a job is deleted or buried. A server without `wait-job` is polled.

use std::time::{Duration, Instant};

use beanstalk_client::{Error, JobState, Refusal, Seconds};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::{Output, say};
use crate::server::Server;

/// The longest wait for a job at a time. The program checks for an interrupt after each.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The end of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitEnd {
    Deleted,
    Buried,
}

/// Waits for each job, at most `time` for all of them, and prints its end.
pub fn run(server: &mut Server, ids: &[u64], time: Option<Seconds>, out: &mut Output) -> Result {
    let give_up_at = time.map(|time| Instant::now() + Duration::from_nanos(time.as_ns()));
    // A job that exists here and is missing later was deleted in between.
    let found = server.job_infos(ids.iter().copied())?;
    let (mut missing, mut buried, mut late) = (Vec::new(), Vec::new(), Vec::new());
    let (mut printed, mut failed) = (Ok(()), None);
    for (&id, info) in ids.iter().zip(found) {
        if info.is_none() {
            missing.push(id);
            continue;
        }
        let end = match wait_for(server, id, give_up_at) {
            Ok(Some(end)) => end,
            Ok(None) => {
                late.push(format!("job {id} was not done in time"));
                continue;
            }
            Err(failure) => {
                failed = Some(failure);
                break;
            }
        };
        let word = match end {
            WaitEnd::Deleted => "deleted",
            WaitEnd::Buried => "buried",
        };
        if end == WaitEnd::Buried {
            buried.push(id.to_string());
        }
        printed = out.value_or_line(&json!({ "id": id, "end": word }), &format!("{id} {word}"));
        printed = printed.and_then(|()| out.flush());
        if printed.is_err() {
            break;
        }
    }
    let mut wrong = Vec::new();
    if !missing.is_empty() {
        wrong.push(Failure::no_jobs(&missing).to_string());
    }
    if !buried.is_empty() {
        wrong.push(format!("buried: {}", buried.join(", ")));
    }
    wrong.append(&mut late);
    let wrong = (!wrong.is_empty()).then(|| wrong.join("; "));
    match (failed, wrong) {
        (None, None) => printed,
        (None, Some(wrong)) => Err(Failure::NothingMatched(wrong)),
        (Some(failure), wrong) => {
            wrong.iter().for_each(|wrong| say(wrong));
            Err(failure)
        }
    }
}

/// The end of the job; `None` if it does not come in time.
fn wait_for(server: &mut Server, id: u64, give_up_at: Option<Instant>) -> Result<Option<WaitEnd>> {
    loop {
        let left = give_up_at.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(MAX_WAIT, |left| MAX_WAIT.min(left));
        if let Some(end) = ask(server, id, timeout)? {
            return Ok(Some(end));
        }
        interrupt::check(&format!("stopped while waiting for job {id}"))?;
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
    }
}

/// The end of the job, if it comes within `timeout`.
fn ask(server: &mut Server, id: u64, timeout: Duration) -> Result<Option<WaitEnd>> {
    if server.has("wait-job") {
        // A server with this command knows fractions of a second.
        let timeout = Seconds::new(timeout.as_secs() as u32, timeout.subsec_millis() as u16);
        return match server.client.wait_job(id, Some(timeout)) {
            Ok(true) | Err(Error::Refused(Refusal::NotFound)) => Ok(Some(WaitEnd::Deleted)),
            Ok(false) => Ok(Some(WaitEnd::Buried)),
            Err(Error::Refused(Refusal::TimedOut)) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
    match server.job_infos([id])?.first() {
        None | Some(None) => Ok(Some(WaitEnd::Deleted)),
        Some(Some(info)) if info.state == JobState::Buried => Ok(Some(WaitEnd::Buried)),
        Some(Some(_)) => {
            interrupt::wait(timeout);
            Ok(None)
        }
    }
}
