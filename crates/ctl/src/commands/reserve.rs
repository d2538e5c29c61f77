//! `reserve`: reserves a job, prints its body, and releases, deletes, buries or holds it.

use super::jobs::with_body;
use crate::cli::{ReserveArguments, Then};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, StandardOutput, say};
use crate::session::ServerSession;
use beanstalk_client::{Client, Error, Job, Refusal, TubeName};
use std::time::{Duration, Instant};

/// The longest wait of one reserve, in seconds. The program checks for an interrupt after each.
const MAX_WAIT_SECONDS: u32 = 1;

/// Reserves a job, prints it, and does what `--then` says.
pub fn run(
    mut session: ServerSession,
    arguments: &ReserveArguments,
    out: &mut StandardOutput,
) -> Result<(), Failure> {
    watch_only(&mut session.client, &arguments.tubes)?;
    let job = wait_for_one(&mut session.client, arguments.wait)?;
    let info = session.client.stats_job(job.id)?;
    if out.is_json() {
        out.value(&with_body(output::job(&info), &job.body))?;
    } else {
        say(&format!("job {} of {}", job.id, info.tube));
        out.body(&job.body)?;
    }
    out.flush()?;
    let mut client = session.client;
    match arguments.then {
        Then::Release => {}
        Then::Delete => client.delete(job.id)?,
        Then::Bury => client.bury(job.id, info.pri)?,
        Then::Hold => {
            let every = Duration::from_millis((info.ttr * 1000 / 2).max(500));
            while !interrupt::wait(every) {
                client.touch(job.id)?;
            }
        }
    }
    // The end of the connection makes the job ready without a release, so clients that count releases as failures count
    // none.
    Ok(client.quit()?)
}

/// Watches only these tubes.
pub fn watch_only(client: &mut Client, tubes: &[TubeName]) -> Result<(), Failure> {
    for tube in tubes {
        client.watch(tube)?;
    }
    let default = TubeName::default_tube();
    if !tubes.contains(&default) {
        client.ignore(&default)?;
    }
    Ok(())
}

fn wait_for_one(client: &mut Client, wait: Option<u32>) -> Result<Job, Failure> {
    let give_up_at = wait.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    loop {
        let turn = match give_up_at {
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now()).as_secs_f32().ceil();
                MAX_WAIT_SECONDS.min(left as u32)
            }
            None => MAX_WAIT_SECONDS,
        };
        match client.reserve_with_timeout(turn) {
            Ok(job) => return Ok(job),
            Err(Error::Refused(Refusal::TimedOut)) => {}
            Err(error) => return Err(error.into()),
        }
        if interrupt::requested() {
            return Err(Failure::Interrupted("stopped while waiting for a job".to_owned()));
        }
        if turn == 0 || give_up_at.is_some_and(|at| Instant::now() >= at) {
            return Err(Failure::NothingMatched("no job came in time".to_owned()));
        }
    }
}
