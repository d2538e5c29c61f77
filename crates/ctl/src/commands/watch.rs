//! `watch`: prints what happens in tubes, as it happens.
//!
//! The protocol has no notifications, so this compares the counters of each tube with the counters of the previous
//! sample. A job that comes and goes between two samples shows only in the counters of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use beanstalk_client::JobState;
use globset::GlobMatcher;
use serde_json::{Value, json};

use super::ServerArguments;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::{Output, say};
use crate::server::{PolledServer, Tube};

/// Counters that only grow, and the word for what they count. A counter that a server does not have stays 0.
const EVENTS: &[(&str, &str)] = &[
    ("total-jobs", "put"),
    ("job-reserves", "reserved"),
    ("cmd-delete", "deleted"),
    ("job-releases", "released"),
    ("job-timeouts", "timed out"),
    ("job-buries", "buried"),
    ("job-kicks", "kicked"),
];

/// A sample of the counters of a tube.
#[derive(Clone, PartialEq, Eq)]
struct TubeSample {
    events: Vec<u64>,
    states: [u64; 4],
    paused: bool,
}

impl TubeSample {
    fn at(tube: &Tube) -> Self {
        Self {
            events: EVENTS.iter().map(|(key, _)| tube.stats.number_or_zero(key)).collect(),
            states: JobState::ALL.map(|state| tube.count(state)),
            paused: tube.stats.number_or_zero("pause-time-left") > 0,
        }
    }
}

/// The samples of all tubes of a server.
type Samples = BTreeMap<String, TubeSample>;

/// What the threads report to the loop that prints.
enum Update {
    /// The last sample of the server with this position, and a new one.
    Sampled(usize, Option<Samples>, Samples),
    /// The server with this position is down.
    Failed(usize, Failure),
    /// A signal stops the program.
    Stopped,
}

/// Watches until Ctrl-C. If one of several servers is down, reports that and continues with the others.
pub fn run(
    servers: &ServerArguments,
    patterns: &[GlobMatcher],
    interval: Duration,
    out: &mut Output,
) -> Result {
    let addresses = servers.addresses();
    let several = addresses.len() > 1;
    // While nobody reads the output, there are no further samples.
    let (sender, updates) = mpsc::sync_channel(1);
    for (position, address) in addresses.iter().enumerate() {
        let (address, connector) = (address.clone(), servers.connector().clone());
        let server = PolledServer { address, connector, connected: None };
        let mut watched = WatchedServer { server, several, last: None };
        let (sender, patterns) = (sender.clone(), patterns.to_vec());
        thread::spawn(move || {
            while sender.send(watched.update(position, &patterns)).is_ok() {
                thread::sleep(interval);
            }
        });
    }
    thread::spawn(move || {
        while !interrupt::wait(Duration::MAX) {}
        // The send fails if the loop has ended.
        let _ = sender.send(Update::Stopped);
    });
    let mut down = BTreeSet::new();
    for update in updates {
        match update {
            Update::Sampled(position, before, now) => {
                let address = addresses[position].to_string();
                if down.remove(&position) {
                    say(&format!("{address} is back"));
                }
                report(&address, several, before.as_ref(), &now, out)?;
                out.flush()?;
            }
            Update::Failed(_, failure) if !several => return Err(failure),
            Update::Failed(position, failure) => {
                if down.insert(position) {
                    say(&failure.to_string());
                }
                if down.len() == addresses.len() {
                    return Err(Failure::Reported(Failure::CONNECTION_CODE));
                }
            }
            Update::Stopped => break,
        }
    }
    Ok(())
}

/// A server that a thread of its own samples, so that a server that does not answer delays no other.
struct WatchedServer {
    server: PolledServer,
    /// Whether there are other servers, so that failures name this one.
    several: bool,
    last: Option<Samples>,
}

impl WatchedServer {
    /// A new sample, or why there is none. Then the next call connects again.
    fn update(&mut self, position: usize, patterns: &[GlobMatcher]) -> Update {
        match self.sample(patterns) {
            Ok(now) => Update::Sampled(position, self.last.replace(now.clone()), now),
            Err(failure) => {
                (self.server.connected, self.last) = (None, None);
                Update::Failed(position, failure)
            }
        }
    }

    fn sample(&mut self, patterns: &[GlobMatcher]) -> Result<Samples> {
        let server = self.server.connected()?;
        let tubes = server.tubes(patterns).map_err(|failure| {
            if self.several { failure.while_doing(&server.address.to_string()) } else { failure }
        })?;
        Ok(tubes.iter().map(|tube| (tube.name.to_string(), TubeSample::at(tube))).collect())
    }
}

fn report(server: &str, several: bool, before: Option<&Samples>, now: &Samples, out: &mut Output) -> Result {
    let Some(before) = before else { return Ok(()) };
    let none = TubeSample { events: vec![0; EVENTS.len()], states: [0; 4], paused: false };
    for (tube, sample) in now {
        let last = before.get(tube).unwrap_or(&none);
        let is_new = !before.contains_key(tube);
        if is_new || last != sample {
            let change = TubeChange { server, tube, is_new, last, sample };
            if out.is_json() { out.value(&change.value())? } else { out.line(&change.line(several))? }
        }
    }
    for tube in before.keys().filter(|tube| !now.contains_key(*tube)) {
        let line = format!("{} {}{tube}: gone", time(), prefix(server, several));
        out.value_or_line(&json!({ "time": time(), "server": server, "tube": tube, "gone": true }), &line)?;
    }
    Ok(())
}

struct TubeChange<'a> {
    server: &'a str,
    tube: &'a str,
    is_new: bool,
    last: &'a TubeSample,
    sample: &'a TubeSample,
}

impl TubeChange<'_> {
    /// How often each event happened. A tube that vanished and came back begins at zero.
    fn events(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.sample.events.iter().zip(&self.last.events);
        EVENTS
            .iter()
            .zip(counts)
            .map(|((_, word), (now, before))| (*word, now.checked_sub(*before).unwrap_or(*now)))
    }

    fn line(&self, several: bool) -> String {
        let server = prefix(self.server, several);
        let mut parts = Vec::new();
        if self.is_new {
            parts.push("new".to_owned());
        }
        parts.extend(
            self.events().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")),
        );
        if self.sample.paused != self.last.paused {
            parts.push(if self.sample.paused { "paused" } else { "resumed" }.to_owned());
        }
        let states: Vec<String> = JobState::ALL
            .iter()
            .zip(self.sample.states)
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        let happened = if parts.is_empty() { String::new() } else { format!("{}; ", parts.join(", ")) };
        format!("{} {server}{}: {happened}now {}", time(), self.tube, states.join(", "))
    }

    fn value(&self) -> Value {
        let Self { server, tube, is_new, .. } = self;
        let mut value = json!({ "time": time(), "server": server, "tube": tube, "new": is_new });
        for (word, count) in self.events() {
            value[word.replace(' ', "_")] = json!(count);
        }
        value["paused"] = json!(self.sample.paused);
        for (state, count) in JobState::ALL.iter().zip(self.sample.states) {
            value[format!("current_{state}")] = json!(count);
        }
        value
    }
}

/// The name of the server before the name of a tube, if there are several servers.
fn prefix(server: &str, several: bool) -> String {
    if several { format!("{server} ") } else { String::new() }
}

/// In UTC, as the server's log has it.
fn time() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
