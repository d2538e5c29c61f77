//! `why`: why a job waits, in sentences.
//!
//! The server gives the reasons in words (`waits-for` of `stats-job`); the stats of the tube and of the group have the
//! numbers. For a server without `waits-for`, only the state of the job and the pause of its tube are known.

use beanstalk_client::{Command, Dictionary, Error, JobId, JobState, Reply, TubeName, parse_dictionary};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::{Output, age, counted};
use crate::server::{Server, Tube};

/// Prints why each job waits.
pub fn run(server: &mut Server, ids: &[u64], out: &mut Output) -> Result {
    let mut missing = Vec::new();
    for &id in ids {
        match server.stats_of("stats-job", [Command::StatsJob(JobId(id))], Ok)?.pop().flatten() {
            Some(job) => explain(server, id, &job, out)?,
            None => missing.push(id),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::no_jobs(&missing)) }
}

/// The data of a tube or a group; `None` if there is none, or if this client may not see it.
fn dictionary(server: &mut Server, command: Command<'_>) -> Result<Option<Dictionary>> {
    match server.client.call(command)? {
        Reply::Data(data) => Ok(Some(parse_dictionary(data).map_err(Error::from)?)),
        _ => Ok(None),
    }
}

fn explain(server: &mut Server, id: u64, job: &Dictionary, out: &mut Output) -> Result {
    let text = |key| job.get(key).unwrap_or_default();
    let (name, state) = (text("tube"), text("state"));
    let tube = match name.parse::<TubeName>() {
        Ok(name) => dictionary(server, Command::StatsTube((&name).into()))?.map(|stats| Tube { name, stats }),
        Err(_) => None,
    };
    let group = match text("after-group").try_into() {
        Ok(group) => dictionary(server, Command::StatsGroup(group))?,
        Err(_) => None,
    };
    let words: Vec<&str> = match job.get("waits-for") {
        Some(words) => words.split_ascii_whitespace().collect(),
        None => vec![word_of_c(state, tube.as_ref())],
    };
    let mut reasons: Vec<String> =
        words.iter().map(|word| sentence(word, job, tube.as_ref(), group.as_ref())).collect();
    let is_unwatched = |tube: &Tube| tube.stats.number_or_zero("current-watching") == 0;
    if !words.contains(&"client") && tube.as_ref().is_some_and(is_unwatched) {
        reasons.push(format!("no client watches the tube {name}"));
    }
    let from = text("dead-from");
    if !from.is_empty() {
        reasons.push(format!("it is dead: it came from {from}, and `redrive {name}` sends it back"));
    }
    if out.is_json() {
        let value = json!({ "id": id, "tube": name, "state": state, "waits_for": words, "reasons": reasons });
        return out.value(&value);
    }
    out.line(&format!("job {id} is {state} in {name}"))?;
    reasons.iter().try_for_each(|reason| out.line(&format!("  {reason}")))
}

/// The reason for a job on a server without `waits-for`.
fn word_of_c(state: &str, tube: Option<&Tube>) -> &'static str {
    match state.parse() {
        Ok(JobState::Reserved) => "client",
        Ok(JobState::Buried) => "kick",
        Ok(JobState::Delayed) => "delay",
        Ok(JobState::Ready) | Err(_)
            if tube.is_some_and(|tube| tube.stats.number_or_zero("pause-time-left") > 0) =>
        {
            "pause"
        }
        Ok(JobState::Ready) | Err(_) => "worker",
    }
}

/// The meaning of a word for this job.
fn sentence(word: &str, job: &Dictionary, tube: Option<&Tube>, group: Option<&Dictionary>) -> String {
    let text = |key| job.get(key).unwrap_or_default();
    let left = age(job.number_or_zero("time-left"));
    let of_tube = |key| tube.map_or(0, |tube| tube.stats.number_or_zero(key));
    let failed = match job.number_or_zero("failures") {
        0 => String::new(),
        failures => format!("; it has failed {}", counted(failures, "time")),
    };
    let rule = tube.and_then(|tube| tube.stats.get("rule")).unwrap_or_default();
    match word {
        "client" => {
            let session = text("session");
            let of = if session.is_empty() { String::new() } else { format!(" of the session {session}") };
            format!("a client{of} has reserved it; its time to run ends in {left}")
        }
        "kick" => format!("it is buried: only a kick makes it ready{failed}"),
        "delay" => format!("its delay ends in {left}{failed}"),
        "group" => {
            let name = text("after-group");
            let Some(group) = group else { return format!("its group {name} has not ended") };
            let (pending, buried) = (group.number_or_zero("pending"), group.number_or_zero("buried"));
            format!("its group {name} has {} left, {buried} of them buried", counted(pending, "job"))
        }
        "pause" => format!("its tube is paused for another {}", age(of_tube("pause-time-left"))),
        "key" => {
            let (key, limit) = (text("concurrency-key"), job.number_or_zero("concurrency-limit"));
            format!("{} with the key {key}: reserved, and it allows no more", counted(limit, "job"))
        }
        "max-reserved" => {
            let reserved = counted(of_tube("current-jobs-reserved"), "job");
            format!("{reserved} of its tube reserved, and max-reserved of the rule {rule} allows no more")
        }
        "rate" => format!("the rate of the rule {rule} lets no job through before the next token"),
        "turn" => {
            let ready = counted(of_tube("current-jobs-ready"), "job");
            format!("its turn: {ready} of its tube ready, and the keys of con take turns by the rule {rule}")
        }
        "worker" => {
            let (ready, watching) = (of_tube("current-jobs-ready"), of_tube("current-watching"));
            format!(
                "a worker: {} of its tube ready, {} watching it",
                counted(ready, "job"),
                counted(watching, "client")
            )
        }
        other => other.to_owned(),
    }
}
