//! The topics of the suite, a file each.

use crate::case::Case;

mod deadlines;
mod drain;
mod half_close;
mod kick;
mod limits;
mod lines;
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
mod states;
mod stats;
mod timers;
mod tubes;

/// All cases by topic.
pub fn all() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("deadlines", timed(deadlines::cases())),
        ("drain", drain::cases()),
        ("half_close", half_close::cases()),
        ("kick", kick::cases()),
        ("limits", limits::cases()),
        ("lines", lines::cases()),
        ("names", names::cases()),
        ("numbers", numbers::cases()),
        ("order", order::cases()),
        ("peek", peek::cases()),
        ("pipelining", pipelining::cases()),
        ("prefixes", prefixes::cases()),
        ("process", process::cases()),
        ("put", put::cases()),
        ("reserve", timed(reserve::cases())),
        ("restart", restart::cases()),
        ("states", states::cases()),
        ("stats", timed(stats::cases())),
        ("timers", timed(timers::cases())),
        ("tubes", tubes::cases()),
    ]
}

fn timed(cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| Case { timed: true, ..case }).collect()
}
