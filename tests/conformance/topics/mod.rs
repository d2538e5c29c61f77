//! The topics of the suite, with a file for each.

use crate::case::{Case, script, with_mark};
use crate::mark::{self, Mark};

mod access;
mod clients;
mod complete;
mod deadlines;
mod drain;
mod fields;
mod fractions;
mod half_close;
mod kick;
mod limits;
mod lines;
mod manage;
mod names;
mod numbers;
mod order;
mod peek;
mod pipelining;
mod prefixes;
mod process;
mod put;
mod reserve;
mod restart;
mod rules;
mod sessions;
mod states;
mod stats;
mod tags;
mod timers;
mod tubes;
mod wait_job;
mod waits;
mod work;

/// The access rules: identities with roles in `mine`, and one that may do everything.
const ACCESS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/access.toml");

/// Rules for tubes.
const TUBES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/tubes.toml");

/// All cases by topic, with the mark of cases that do not set their own.
pub fn all() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("access", with_mark(mark::UNKNOWN_COMMAND, access::cases())),
        ("clients", timed(clients::cases())),
        ("complete", timed(complete::cases())),
        ("deadlines", with_mark(mark::PUT, timed(deadlines::cases()))),
        ("drain", with_mark(mark::DRAINING, drain::cases())),
        ("fields", timed(fields::cases())),
        ("fractions", timed(fractions::cases())),
        ("half_close", with_mark(Mark::Habit, half_close::cases())),
        ("kick", with_mark(mark::KICK, kick::cases())),
        ("limits", with_mark(mark::PUT, limits::cases())),
        ("lines", with_mark(mark::BAD_FORMAT, lines::cases())),
        ("manage", manage::cases()),
        ("names", with_mark(mark::NAMES, names::cases())),
        ("numbers", with_mark(mark::BAD_FORMAT, numbers::cases())),
        ("order", with_mark(mark::RESERVE, order::cases())),
        ("peek", with_mark(mark::PEEK, peek::cases())),
        ("pipelining", with_mark(mark::PROTOCOL, pipelining::cases())),
        ("prefixes", with_mark(Mark::Habit, prefixes::cases())),
        ("process", with_mark(Mark::Habit, process::cases())),
        ("put", with_mark(mark::PUT, put::cases())),
        ("reserve", with_mark(mark::RESERVE, timed(reserve::cases()))),
        ("restart", with_mark(Mark::Habit, restart::cases())),
        ("rules", rules::cases()),
        ("sessions", timed(sessions::cases())),
        ("states", with_mark(mark::LIFE, states::cases())),
        ("stats", with_mark(mark::STATS, timed(stats::cases()))),
        ("tags", timed(tags::cases())),
        ("timers", with_mark(mark::PUT, timed(timers::cases()))),
        ("tubes", with_mark(mark::TUBES, tubes::cases())),
        ("wait_job", timed(wait_job::cases())),
        ("waits", with_mark(mark::RESERVE, timed(waits::cases()))),
        ("work", timed(work::cases())),
    ]
}

/// A script for a server with access rules.
fn guarded_script(name: &str, text: &str) -> Case {
    script(name, played(text)).flags(&["--access", ACCESS])
}

/// A script in which the step `a: <worker>` logs a client in as the worker.
fn played(text: &str) -> String {
    let names = ["producer", "worker", "observer", "manager", "everybody", "limited"];
    names.iter().fold(text.to_owned(), |text, name| {
        let log_in = format!("auth token-of-{name}-for-the-conformance-suite -> AUTHENTICATED");
        text.replace(&format!("<{name}>"), &log_in)
    })
}

fn timed(cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| Case { timed: true, ..case }).collect()
}
