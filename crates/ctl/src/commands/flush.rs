//! `flush`: deletes every job of tubes, or the buried ones.
//!
//! Without `flush-tube`, ready jobs are reserved and deleted, many at once, and delayed and buried jobs are peeked at
//! and deleted one after the other. Reserved jobs cannot be deleted then.

use beanstalk_client::{Client, Command, JobId, JobState, Reply, TubeName};
use serde_json::json;

use super::confirm;
use crate::cli::TubeArguments;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::{Output, by_state, counted};
use crate::progress::ShownProgress;
use crate::server::{Server, Tube, unexpected};

/// How many jobs are reserved, and then deleted, together.
const BATCH: u64 = 200;

/// Asks for confirmation and flushes the tubes.
pub fn run(server: &mut Server, arguments: &TubeArguments, buried: bool, out: &mut Output) -> Result {
    let tubes = server.tubes(&arguments.tubes)?;
    let states = states(buried);
    let count = |state: JobState| tubes.iter().map(|tube| tube.count(state)).sum::<u64>();
    let total: u64 = states.iter().map(|state| count(*state)).sum();
    if total == 0 {
        return Err(Failure::NothingMatched("no job matches".to_owned()));
    }
    let reserved = if buried || server.has("flush-tube") { 0 } else { count(JobState::Reserved) };
    let details =
        by_state(states.iter().map(|state| (*state, count(*state))).filter(|(_, count)| *count > 0));
    let of = match tubes.iter().filter(|tube| tube.jobs() > 0).collect::<Vec<_>>().as_slice() {
        [only] => format!("the tube {}", only.name),
        several => counted(several.len() as u64, "tube"),
    };
    let what = format!("delete {} ({details}) of {of} on {}", counted(total, "job"), server.address);
    if !confirm::ask(&arguments.confirm, &what)? {
        return out.dry_run("flush", total);
    }
    let mut done = 0;
    let flushed = tubes.iter().try_for_each(|tube| flush(server, tube, buried, &mut done));
    let printed = out.value_or_line(
        &json!({ "action": "flush", "matched": total, "done": done, "refused": reserved }),
        &format!("deleted {}", counted(done, "job")),
    );
    flushed?;
    if reserved > 0 {
        let reserved = counted(reserved, "job");
        return Err(Failure::Refused(format!(
            "{reserved} reserved by clients: on a server without flush-tube, only the client that has \
             reserved a job can delete it"
        )));
    }
    printed
}

/// Deletes all jobs of a tube that can be deleted, and returns their number.
pub fn everything(server: &mut Server, tube: &TubeName) -> Result<u64> {
    let stats = server.client.stats_tube(tube)?;
    let tube = Tube { name: tube.clone(), stats };
    let mut done = 0;
    flush(server, &tube, false, &mut done)?;
    Ok(done)
}

/// The states of the jobs that are deleted.
fn states(buried: bool) -> &'static [JobState] {
    if buried { &[JobState::Buried] } else { &JobState::ALL }
}

fn flush(server: &mut Server, tube: &Tube, buried: bool, done: &mut u64) -> Result {
    interrupt::check("stopped")?;
    let command = if buried { "flush-buried" } else { "flush-tube" };
    let (has_command, client) = (server.has(command), &mut server.client);
    if has_command {
        *done += if buried { client.flush_buried(&tube.name)? } else { client.flush_tube(&tube.name)? };
        return Ok(());
    }
    let count = states(buried).iter().map(|state| tube.count(*state)).sum();
    let progress = ShownProgress::new(tube.name.as_str(), count);
    if !buried {
        flush_ready(client, &tube.name, tube.count(JobState::Ready), &progress, done)?;
    }
    client.use_tube(&tube.name)?;
    for state in states(buried) {
        let peek = match state {
            JobState::Ready => Command::PeekReady,
            JobState::Reserved => continue,
            JobState::Delayed => Command::PeekDelayed,
            JobState::Buried => Command::PeekBuried,
        };
        flush_by_peeking(client, peek, tube.count(*state), &progress, done)?;
    }
    Ok(())
}

/// Reserves and deletes ready jobs. The jobs of a paused tube cannot be reserved: [`flush_by_peeking`] deletes them.
fn flush_ready(
    client: &mut Client,
    tube: &TubeName,
    count: u64,
    progress: &ShownProgress,
    done: &mut u64,
) -> Result {
    let watched: Vec<TubeName> =
        client.list_tubes_watched()?.iter().filter_map(|name| name.parse().ok()).collect();
    client.watch(tube)?;
    for other in watched.iter().filter(|other| *other != tube) {
        client.ignore(other)?;
    }
    let mut left = count;
    while left > 0 && !interrupt::requested() {
        let reserves = (0..left.min(BATCH)).map(|_| Command::ReserveWithTimeout { timeout_s: 0.into() });
        let reserved = client.call_all(reserves, |reply| match reply {
            Reply::Reserved(id, _) => Ok(Some(id)),
            Reply::TimedOut | Reply::DeadlineSoon => Ok(None),
            other => Err(unexpected("reserve-with-timeout", &other)),
        })?;
        let ids: Vec<JobId> = reserved.into_iter().filter_map(Result::transpose).collect::<Result<_>>()?;
        if ids.is_empty() {
            break;
        }
        client.pipeline(ids.iter().map(|id| Command::Delete(*id)), |_, reply| {
            *done += u64::from(reply == Reply::Deleted);
        })?;
        progress.add(ids.len() as u64);
        left -= ids.len() as u64;
    }
    Ok(())
}

/// Peeks at the next job with `peek`, then sends its delete together with the next peek: one round trip for each job.
fn flush_by_peeking(
    client: &mut Client,
    peek: Command<'static>,
    count: u64,
    progress: &ShownProgress,
    done: &mut u64,
) -> Result {
    let found = |reply: &Reply<'_>| match reply {
        Reply::Found(id, _) => Ok(Some(*id)),
        Reply::NotFound => Ok(None),
        other => Err(unexpected(peek.verb().as_str(), other)),
    };
    let mut next = found(&client.call(peek)?)?;
    for _ in 0..count {
        interrupt::check("stopped")?;
        let Some(id) = next else { break };
        let mut peeked = Ok(None);
        client.pipeline([Command::Delete(id), peek], |position, reply| match position {
            0 => *done += u64::from(reply == Reply::Deleted),
            _ => peeked = found(&reply),
        })?;
        next = peeked?;
        progress.add(1);
    }
    Ok(())
}
