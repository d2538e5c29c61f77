//! `reserve`: reserves a job, prints its body, and releases, deletes, buries or holds it.

use std::time::{Duration, Instant};

use beanstalk_client::{Client, Error, Job, Refusal, Seconds, TubeName};

use super::jobs::with_body;
use crate::cli::{ReserveArguments, Then};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::{self, Output, say};
use crate::server::Server;

/// The longest wait of one reserve. The program checks for an interrupt after each.
const MAX_WAIT: Seconds = Seconds::ONE;

/// Reserves a job, prints it, and does what `--then` says.
pub fn run(mut server: Server, arguments: &ReserveArguments, out: &mut Output) -> Result {
    watch_only(&mut server.client, &arguments.tubes)?;
    let wait = arguments.wait.map(|wait| server.time("--wait", wait));
    let job = wait_for_one(&mut server.client, wait)?;
    let info = server.client.stats_job(job.id)?;
    if out.is_json() {
        out.value(&with_body(output::job(&info), &job.body))?;
    } else {
        say(&format!("job {} of {}", job.id, info.tube));
        out.body(&job.body)?;
    }
    out.flush()?;
    let mut client = server.client;
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
pub fn watch_only(client: &mut Client, tubes: &[TubeName]) -> Result {
    for tube in tubes {
        client.watch(tube)?;
    }
    let default = TubeName::default_tube();
    if !tubes.contains(&default) {
        client.ignore(&default)?;
    }
    Ok(())
}

fn wait_for_one(client: &mut Client, wait: Option<Seconds>) -> Result<Job> {
    // Only a wait that has a fraction itself may ask for a fraction: not every server knows them.
    let has_fraction = wait.is_some_and(|wait| wait.thousandths() > 0);
    let give_up_at = wait.map(|wait| Instant::now() + Duration::from_nanos(wait.as_ns()));
    loop {
        let timeout = give_up_at.map_or(MAX_WAIT, |at| timeout_until(at, has_fraction));
        let asked = Instant::now();
        match client.reserve_with_timeout(timeout) {
            Ok(job) => return Ok(job),
            // A server that has answered too early gets the next command when the time is over.
            Err(Error::Refused(Refusal::TimedOut)) => {
                interrupt::wait(Duration::from_nanos(timeout.as_ns()).saturating_sub(asked.elapsed()));
            }
            Err(error) => return Err(error.into()),
        }
        interrupt::check("stopped while waiting for a job")?;
        if timeout.is_zero() || give_up_at.is_some_and(|at| Instant::now() >= at) {
            return Err(Failure::NothingMatched("no job came in time".to_owned()));
        }
    }
}

/// How long to wait for a job that must come until `at`: at most [`MAX_WAIT`], in whole seconds unless fractions are
/// allowed.
fn timeout_until(at: Instant, has_fraction: bool) -> Seconds {
    let left = at.saturating_duration_since(Instant::now());
    match (left.as_secs(), left.as_micros().div_ceil(1000) as u16) {
        (0, 0) => Seconds::from(0),
        (0, thousandths @ ..1000) if has_fraction => Seconds::new(0, thousandths),
        _ => MAX_WAIT,
    }
}
