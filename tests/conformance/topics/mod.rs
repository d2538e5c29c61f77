//! The topics of the suite, with a file for each.

use crate::case::{Case, resting_on};
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

/// All cases by topic, with the mark of cases that do not set their own.
pub fn all() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("access", resting_on(mark::UNKNOWN_COMMAND, access::cases())),
        ("clients", timed(clients::cases())),
        ("complete", timed(complete::cases())),
        ("deadlines", resting_on(mark::PUT, timed(deadlines::cases()))),
        ("drain", resting_on(mark::DRAINING, drain::cases())),
        ("fields", timed(fields::cases())),
        ("fractions", timed(fractions::cases())),
        ("half_close", resting_on(Mark::Habit, half_close::cases())),
        ("kick", resting_on(mark::KICK, kick::cases())),
        ("limits", resting_on(mark::PUT, limits::cases())),
        ("lines", resting_on(mark::BAD_FORMAT, lines::cases())),
        ("manage", manage::cases()),
        ("names", resting_on(mark::NAMES, names::cases())),
        ("numbers", resting_on(mark::BAD_FORMAT, numbers::cases())),
        ("order", resting_on(mark::RESERVE, order::cases())),
        ("peek", resting_on(mark::PEEK, peek::cases())),
        ("pipelining", resting_on(mark::PROTOCOL, pipelining::cases())),
        ("prefixes", resting_on(Mark::Habit, prefixes::cases())),
        ("process", resting_on(Mark::Habit, process::cases())),
        ("put", resting_on(mark::PUT, put::cases())),
        ("reserve", resting_on(mark::RESERVE, timed(reserve::cases()))),
        ("restart", resting_on(Mark::Habit, restart::cases())),
        ("rules", rules::cases()),
        ("sessions", timed(sessions::cases())),
        ("states", resting_on(mark::LIFE, states::cases())),
        ("stats", resting_on(mark::STATS, timed(stats::cases()))),
        ("tags", tags::cases()),
        ("timers", resting_on(mark::PUT, timed(timers::cases()))),
        ("tubes", resting_on(mark::TUBES, tubes::cases())),
        ("wait_job", timed(wait_job::cases())),
        ("waits", resting_on(mark::RESERVE, timed(waits::cases()))),
        ("work", timed(work::cases())),
    ]
}

fn timed(cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| Case { timed: true, ..case }).collect()
}
