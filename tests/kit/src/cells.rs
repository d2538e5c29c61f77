//! The cells of the table of tags in `doc/protocol.md` that a step of the model test has covered.
//!
//! Owns: how a cell is recognized: by the changes of the model in a step. Knows no rule of the queue.

use std::collections::BTreeSet;

use crate::operations::{ClientCommand, Operation, job_of};
use beanstalkd_model::{Job, Model, State};

/// A row and a column of the table.
pub type Cell = (&'static str, &'static str);

/// The cells that `operation` has covered, which has turned one model into the other.
pub fn cells_of(operation: Operation, before: &Model, after: &Model) -> BTreeSet<Cell> {
    let mut cells = BTreeSet::new();
    for job in &before.jobs {
        let row = match after.job(job.id) {
            Some(now) => row_of_change(operation, job, now),
            None => row_of_end(operation),
        };
        cells.extend(row.into_iter().flat_map(|row| tags_of(job).map(move |tag| (row, tag))));
    }
    cells.extend(cells_of_put(before, after));
    cells.extend(cells_without_change(operation, before));
    cells.extend(cells_of_pauses(before, after));
    cells
}

/// The columns of a job.
fn tags_of(job: &Job) -> impl Iterator<Item = &'static str> {
    let tags = job.tags;
    [
        tags.idempotency.map(|_| "idp"),
        tags.concurrency.map(|_| "con"),
        tags.group.map(|_| "grp"),
        tags.after.map(|_| "aft"),
        tags.expires_after_s.map(|_| "exp"),
    ]
    .into_iter()
    .flatten()
}

fn row_of_change(operation: Operation, job: &Job, now: &Job) -> Option<&'static str> {
    let (old, new) = (job.counters, now.counters);
    let was_reserved = matches!(job.state, State::Reserved { .. });
    use ClientCommand as C;
    let row = match operation {
        Operation::Command { command, .. } => match command {
            C::Release { release, .. } if release.delay_s == 0 && new.releases > old.releases => {
                "release without delay"
            }
            C::Release { .. } if new.releases > old.releases => "release with delay",
            C::Bury { .. } if new.buries > old.buries => "bury",
            C::Kick { .. } if new.kicks > old.kicks => "kick",
            C::Reserve { .. } if new.reserves > old.reserves => "reserve",
            C::ReserveJob { .. } if new.reserves > old.reserves => "reserve-job",
            C::Move { .. } if now.tube != job.tube => "move",
            _ => return row_of_timeout(job, now),
        },
        Operation::KickJob { .. } if new.kicks > old.kicks => "kick-job",
        Operation::Reprioritize { .. } if now.priority != job.priority => "reprioritize",
        Operation::Disconnect { .. } if was_reserved && now.state != job.state => "the connection ends",
        _ => return row_of_timeout(job, now),
    };
    Some(row)
}

fn row_of_timeout(job: &Job, now: &Job) -> Option<&'static str> {
    (now.counters.timeouts > job.counters.timeouts).then_some("the TTR is over")
}

fn row_of_end(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::Command { command: ClientCommand::Delete { .. }, .. } => Some("delete, delete-batch"),
        Operation::Command { command: ClientCommand::Flush { .. }, .. } => Some("flush-tube, flush-buried"),
        Operation::Pass { .. } | Operation::PassToDeadline { .. } => Some("the job expires"),
        _ => None,
    }
}

/// A put after another with the same key or group.
fn cells_of_put(before: &Model, after: &Model) -> Vec<Cell> {
    const ROW: &str = "put, a second time";
    let new = after.jobs.iter().filter(|job| job.id >= before.next_id);
    let mut cells: Vec<Cell> = Vec::new();
    for job in new {
        let has_members = |group| before.members(group).next().is_some();
        let is_one_more = job.tags.group.is_some_and(has_members);
        cells.extend(is_one_more.then_some((ROW, "grp")));
        cells.extend(job.held.then_some((ROW, "aft")));
        cells.extend(job.tags.expires_after_s.map(|_| (ROW, "exp")));
    }
    let is_upgraded = |job: &Job| {
        let now = after.job(job.id);
        job.tags.idempotency.is_some() && now.is_some_and(|now| now.priority < job.priority)
    };
    // Only a put that is not stored makes a job more urgent.
    if before.next_id < after.next_id && before.jobs.iter().any(is_upgraded) {
        cells.push((ROW, "idp"));
    }
    cells
}

/// The cell of a command that finds a job and does not change it.
fn cells_without_change(operation: Operation, before: &Model) -> Option<Cell> {
    use ClientCommand as C;
    let is_any_held = || before.jobs.iter().any(|job| job.held);
    let is_held = |raw| before.job(job_of(raw, before).0).is_some_and(|job| job.held);
    match operation {
        Operation::Command { command: C::Reserve { .. }, .. } => is_any_held().then_some(("reserve", "aft")),
        Operation::Command { command: C::Kick { .. }, .. } => is_any_held().then_some(("kick", "aft")),
        Operation::Command { command: C::ReserveJob { job }, .. } => {
            is_held(job).then_some(("reserve-job", "aft"))
        }
        Operation::KickJob { job } => is_held(job).then_some(("kick-job", "aft")),
        _ => None,
    }
}

/// The cells of a paused tube.
fn cells_of_pauses(before: &Model, after: &Model) -> Vec<Cell> {
    const ROW: &str = "pause-tube";
    let is_paused = |job: &&Job| after.tubes[job.tube].as_ref().is_some_and(|tube| tube.pause.is_some());
    let mut cells: Vec<Cell> = Vec::new();
    for job in after.jobs.iter().filter(is_paused) {
        let may_go =
            job.state == State::Ready && job.tags.concurrency.is_some() && after.may_be_reserved(job);
        let is_awaited =
            after.clients.iter().any(|client| client.wait.is_some() && client.watching.contains(&job.tube));
        cells.extend((may_go && is_awaited).then_some((ROW, "con")));
        let is_freed = !job.held && before.job(job.id).is_some_and(|job| job.held);
        cells.extend(is_freed.then_some((ROW, "aft")));
    }
    let has_expired = |job: &&Job| after.job(job.id).is_none() && job.tags.expires_after_s.is_some();
    if before.jobs.iter().filter(is_paused).any(|job| has_expired(&job)) {
        cells.push((ROW, "exp"));
    }
    cells
}
