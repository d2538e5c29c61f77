//! delete, kick, bury, release, move, redrive and reprioritize, on jobs by id or on all jobs that a filter matches.
//!
//! Owns: finding the jobs, the confirmation, the loop with its progress, and the report at the end.
//! Never: changes a job whose state or tube has changed since it was counted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Instant;

use beanstalk_client::{JobInfo, JobState, TubeName};
use serde_json::json;

use super::change::{ChangeResult, JobChange};
use super::pace::Pacer;
use super::{confirm, jobs};
use crate::cli::ActOn;
use crate::failure::{Failure, Result};
use crate::group_order::GroupOrder;
use crate::input;
use crate::interrupt;
use crate::listing;
use crate::output::{Output, by_state, counted, with_commas};
use crate::progress::ShownProgress;
use crate::server::Server;

/// How many jobs are checked and then changed together.
const BATCH: usize = 200;

/// The question names at most this many of the tubes to which dead jobs go back.
const MAX_SHOWN_SOURCES: usize = 5;

/// A job, with its state and tube at the time of the count.
struct CountedJob {
    id: u64,
    state: JobState,
    tube: u32,
}

/// The jobs to change.
#[derive(Default)]
struct Targets {
    jobs: Vec<CountedJob>,
    tubes: Vec<String>,
    /// The positions of their names in `tubes`: a search for each job would look at all tubes.
    tube_numbers: HashMap<String, u32>,
    by_state: BTreeMap<JobState, u64>,
    /// The number of jobs that match but whose state does not allow the change.
    left_out: BTreeMap<&'static str, u64>,
    /// The number of jobs that match but are not dead, if the change is for dead jobs.
    not_dead: u64,
    /// The jobs that wait for groups, if the jobs are deleted.
    groups: GroupOrder,
    /// The tubes that dead jobs came from.
    sources: BTreeSet<TubeName>,
    missing: Vec<u64>,
}

impl Targets {
    fn add(&mut self, change: &JobChange, info: &JobInfo) {
        if let JobChange::Redrive(_) = change {
            match &info.dead_from {
                None => {
                    self.not_dead += 1;
                    return;
                }
                Some(source) if info.state != JobState::Reserved && !self.sources.contains(source) => {
                    self.sources.insert(source.clone());
                }
                Some(_) => {}
            }
        }
        if !change.applies_to(info) {
            let why = if info.held { "waiting for a group" } else { info.state.as_str() };
            *self.left_out.entry(why).or_default() += 1;
            return;
        }
        if *change == JobChange::Delete {
            self.groups.add(info);
        }
        let tube = self.tube_number(&info.tube);
        self.jobs.push(CountedJob { id: info.id, state: info.state, tube });
        *self.by_state.entry(info.state).or_default() += 1;
    }

    /// The position of the tube in [`Self::tubes`], to which it is added if it is new.
    fn tube_number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.tube_numbers.get(name) {
            return *number;
        }
        let number = self.tubes.len() as u32;
        self.tubes.push(name.to_owned());
        self.tube_numbers.insert(name.to_owned(), number);
        number
    }

    /// Puts each job that waits for a group before the members of the group. If these were deleted first, the job would
    /// change its state.
    fn sort_by_groups(&mut self) {
        let stages = self.groups.stages();
        if !stages.is_empty() {
            self.jobs.sort_by_key(|job| Reverse(stages.get(&job.id)));
        }
    }

    /// Adds jobs until there are `limit`.
    fn add_first(&mut self, change: &JobChange, infos: impl IntoIterator<Item = JobInfo>, limit: usize) {
        for info in infos {
            if self.jobs.len() < limit {
                self.add(change, &info);
            }
        }
    }

    /// The tubes to which dead jobs go back, and the rate; empty for other actions.
    fn back_to(&self, change: &JobChange) -> String {
        let JobChange::Redrive(rate) = change else { return String::new() };
        let mut names: Vec<&str> =
            self.sources.iter().take(MAX_SHOWN_SOURCES).map(TubeName::as_str).collect();
        let others = counted((self.sources.len() - names.len()) as u64, "other tube");
        if self.sources.len() > names.len() {
            names.push(&others);
        }
        let rate = rate.map_or(String::new(), |rate| format!(", at most {rate},"));
        format!(" back to {}{rate}", names.join(", "))
    }

    /// The numbers of jobs that stay unchanged, as text; `None` if there are none.
    fn left_out(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.left_out.is_empty() {
            parts.push(states(&self.left_out));
        }
        if self.not_dead > 0 {
            parts.push(format!("{} not dead", with_commas(self.not_dead)));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Why the jobs of `left_out` stay unchanged; `None` if there are none.
    fn cannot(&self, change: &JobChange) -> Option<String> {
        (!self.left_out.is_empty()).then(|| format!("{} cannot be {}", states(&self.left_out), change.done()))
    }

    fn tubes(&self) -> String {
        match self.tubes.as_slice() {
            [only] => format!("of the tube {only}"),
            several => format!("of {}", counted(several.len() as u64, "tube")),
        }
    }
}

/// The numbers of jobs by state, as text.
fn states(counts: &BTreeMap<impl fmt::Display, u64>) -> String {
    by_state(counts.iter().map(|(state, count)| (state, *count)))
}

/// The results, counted.
#[derive(Default)]
struct ChangeReport {
    done: u64,
    gone: u64,
    stale: u64,
    refused: BTreeMap<String, u64>,
}

impl ChangeReport {
    fn add(&mut self, result: ChangeResult) {
        match result {
            ChangeResult::Done => self.done += 1,
            ChangeResult::Gone => self.gone += 1,
            ChangeResult::Stale => self.stale += 1,
            ChangeResult::Refused(why) => *self.refused.entry(why).or_default() += 1,
        }
    }

    fn refused(&self) -> u64 {
        self.refused.values().sum()
    }
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.gone > 0 {
            parts.push(format!("{} had been deleted meanwhile", with_commas(self.gone)));
        }
        if self.stale > 0 {
            parts.push(format!("{} had changed meanwhile", with_commas(self.stale)));
        }
        parts.extend(self.refused.iter().map(|(why, count)| format!("{}: {why}", with_commas(*count))));
        f.write_str(&parts.join("; "))
    }
}

/// Finds the jobs, asks for confirmation unless they are given by id, and changes them.
pub fn run(server: &mut Server, change: JobChange, on: &ActOn, out: &mut Output) -> Result {
    let targets = find(server, &change, on)?;
    let total = targets.jobs.len() as u64;
    if total == 0 {
        return Err(nothing(&change, &targets));
    }
    let what = format!(
        "{} {} ({}) {}{} on {}{}",
        change.verb(),
        counted(total, "job"),
        states(&targets.by_state),
        targets.tubes(),
        targets.back_to(&change),
        server.address,
        targets.left_out().map_or(String::new(), |left_out| format!(", and leave out {left_out}")),
    );
    let by_id = !on.ids.is_empty() && !on.confirm.dry_run;
    if !by_id && !confirm::ask(&on.confirm, &what)? {
        return out.dry_run(change.verb(), total);
    }
    let mut report = ChangeReport::default();
    let ended = act_on_all(server, &change, &targets, &mut report);
    let printed = print_report(&change, &targets, &report, out);
    ended?;
    conclude(&change, &targets, &report, by_id)?;
    printed
}

fn find(server: &mut Server, change: &JobChange, on: &ActOn) -> Result<Targets> {
    let mut targets = Targets::default();
    if !on.ids.is_empty() {
        let ids = input::ids(&on.ids)?;
        let infos = server.job_infos(ids.iter().copied())?;
        for (id, info) in ids.into_iter().zip(infos) {
            match info {
                Some(info) => targets.add(change, &info),
                None => targets.missing.push(id),
            }
        }
        targets.sort_by_groups();
        return Ok(targets);
    }
    let filter = on.choose.filter().ok_or_else(|| {
        Failure::Usage(
            "no jobs are chosen: give ids, or --all, --state, --older-than, --younger-than, --tag or \
             --body-matches, with or without --tube"
                .to_owned(),
        )
    })?;
    let limit = on.choose.limit.unwrap_or(usize::MAX);
    // Without list-jobs, jobs come in the order of their ids: the first ones are known only when all are.
    let must_sort = limit < usize::MAX && !server.has("list-jobs");
    let mut unsorted = Vec::new();
    listing::jobs(server, &filter, false, &mut |found| {
        let infos = found.into_iter().map(|found| found.info);
        if must_sort {
            unsorted.extend(infos)
        } else {
            targets.add_first(change, infos, limit)
        }
        Ok(targets.jobs.len() < limit)
    })?;
    jobs::sort(&mut unsorted);
    targets.add_first(change, unsorted, limit);
    // A move by copies assigns ascending ids: if the jobs are copied in this order, jobs of one priority keep their
    // order.
    targets.jobs.sort_by_key(|target| target.id);
    targets.sort_by_groups();
    Ok(targets)
}

fn nothing(change: &JobChange, targets: &Targets) -> Failure {
    let cannot = targets.cannot(change).map_or(String::new(), |cannot| format!("; {cannot}"));
    let text = match targets.missing.as_slice() {
        // The server does not show that a job is dead to a client without a role for the tube that it came from.
        [] if targets.not_dead > 0 => format!(
            "no job of these tubes is dead{cannot}; with access rules, only dead jobs count that came from a tube for \
             which this client has a role"
        ),
        [] => format!("no job matches{cannot}"),
        [id] => format!("there is no job {id}{cannot}"),
        several => format!("{} of these jobs do not exist{cannot}", several.len()),
    };
    if targets.left_out.is_empty() { Failure::NothingMatched(text) } else { Failure::Refused(text) }
}

fn act_on_all(
    server: &mut Server,
    change: &JobChange,
    targets: &Targets,
    report: &mut ChangeReport,
) -> Result {
    let progress = ShownProgress::new(change.verb(), targets.jobs.len() as u64);
    let rate = if let JobChange::Redrive(rate) = change { *rate } else { None };
    let mut pace = Pacer::new(rate, Instant::now());
    for targets_now in targets.jobs.chunks(pace.batch(BATCH)) {
        if interrupt::wait(pace.wait(targets_now.len(), Instant::now())) {
            return Err(Failure::Interrupted("stopped".to_owned()));
        }
        // Time may have passed before the confirmation: a job that has changed since the count is not changed.
        let infos = server.job_infos(targets_now.iter().map(|target| target.id))?;
        let mut same = Vec::with_capacity(infos.len());
        for (target, info) in targets_now.iter().zip(infos) {
            match info {
                None => report.add(ChangeResult::Gone),
                Some(info)
                    if info.state == target.state
                        && info.tube == targets.tubes[target.tube as usize]
                        && (info.dead_from.is_some() || !matches!(change, JobChange::Redrive(_))) =>
                {
                    same.push(info);
                }
                Some(_) => report.add(ChangeResult::Stale),
            }
        }
        change.apply(server, &same, &mut |result| report.add(result))?;
        progress.add(targets_now.len() as u64);
    }
    Ok(())
}

fn print_report(change: &JobChange, targets: &Targets, report: &ChangeReport, out: &mut Output) -> Result {
    let matched = targets.jobs.len() as u64;
    let value = json!({
        "action": change.verb(),
        "matched": matched,
        "done": report.done,
        "gone": report.gone,
        "changed": report.stale,
        "refused": report.refused(),
        "left_out": targets.left_out.values().sum::<u64>() + targets.not_dead,
    });
    let left_out = targets.left_out().map(|left_out| format!("left out {left_out}"));
    let details = Some(report.to_string()).filter(|details| !details.is_empty());
    let details = details.into_iter().chain(left_out).collect::<Vec<_>>().join("; ");
    let of = if report.done == matched { String::new() } else { format!(" of {}", with_commas(matched)) };
    let colon = if details.is_empty() { "" } else { "; " };
    out.value_or_line(
        &value,
        &format!("{} {}{of}{colon}{details}", change.done(), counted(report.done, "job")),
    )
}

fn conclude(change: &JobChange, targets: &Targets, report: &ChangeReport, by_id: bool) -> Result {
    if report.refused() > 0 {
        return Err(Failure::Refused(format!("the server has refused {}", counted(report.refused(), "job"))));
    }
    // Jobs that were given by id must exist, in a state that allows the change. Others may have been deleted in the
    // meantime.
    let missing = (!targets.missing.is_empty()).then(|| Failure::no_jobs(&targets.missing));
    if by_id && let Some(cannot) = targets.cannot(change) {
        let missing = missing.map_or(String::new(), |missing| format!("; {missing}"));
        return Err(Failure::Refused(format!("{cannot}{missing}")));
    }
    if let Some(missing) = missing {
        return Err(missing);
    }
    if report.done == 0 {
        return Err(Failure::NothingMatched(format!("no job was {}", change.done())));
    }
    Ok(())
}
