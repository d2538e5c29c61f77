//! The whole server over fake sockets and a virtual clock, driven from a seed.
//!
//! `SIMULATION_SEEDS=n` sets the number of seeds. `SEED=n` runs one of them, and prints every step.

mod access;
mod batches;
mod completes;
mod crash_steps;
mod crashes;
mod directed;
mod facts;
mod full_disk;
mod gate;
mod harness;
mod intruders;
mod measured;
mod orders;
mod ownership;
mod paused;
mod postponed;
mod rights;
mod script;
mod slices;
mod turns;
mod versions;
mod waits;
mod workload;

use std::fmt::Debug;
use std::num::NonZero;
use std::{panic, thread};

use beanstalkd_testkit::observer;
use beanstalkd_testkit::random::number_from_environment;

/// The number of seeds, unless `SIMULATION_SEEDS` is set.
const SEEDS: u64 = 10_000;
/// The simulation with crashes runs one in this many seeds, because each runs several servers.
const CRASH_SHARE: u64 = 4;
/// The simulation with a crash in each life runs one in this many seeds, because it compares all jobs after each step.
const STEP_SHARE: u64 = 10;
/// One in this many seeds is run twice.
const REPEATED: u64 = 16;

/// Runs one seed, or one in `share` of all, some of them twice, on as many threads as there are cores.
fn run_seeds<T: Debug + PartialEq + Send>(share: u64, run: fn(u64, bool) -> T) -> Vec<T> {
    observer::install();
    let only = number_from_environment("SEED");
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..number_from_environment("SIMULATION_SEEDS").unwrap_or(SEEDS).div_ceil(share),
    };
    let of = |seed| {
        panic::catch_unwind(|| run(seed, only.is_some())).unwrap_or_else(|_| panic!("SEED={seed} fails"))
    };
    let checked = |seed| {
        let outcome = of(seed);
        if seed % REPEATED == 0 {
            assert_eq!(of(seed), outcome, "SEED={seed} has another result when it is run again");
        }
        outcome
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let part = |first| seeds.clone().skip(first).step_by(threads).map(checked).collect::<Vec<T>>();
        let parts: Vec<_> = (0..threads).map(|first| scope.spawn(move || part(first))).collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_else(|cause| panic::resume_unwind(cause)))
            .collect()
    })
}

/// Asserts that `count`, over all `runs`, is above a bound, unless there are too few runs to judge that.
fn assert_seen(what: &str, count: u64, above: usize, runs: usize) {
    if runs < 100 {
        println!("{what}: not judged: {runs} seeds are too few");
        return;
    }
    assert!(count > above as u64, "{what}: {count} in {runs} runs, expected more than {above}");
}

#[test]
fn every_reply_is_the_expected_one_and_none_is_missing() {
    let outcomes = run_seeds(1, harness::run);
    let overtakes = outcomes.iter().map(|outcome| outcome.overtakes).sum();
    assert_seen("overtakes", overtakes, outcomes.len() / 100, outcomes.len());
}

#[test]
fn acknowledged_changes_survive_every_end_of_the_server() {
    let outcomes = run_seeds(CRASH_SHARE, crashes::run);
    let stalls: u64 = outcomes.iter().map(|outcome| outcome.stalls).sum();
    assert_seen("commands that waited for room in the binlog", stalls, 0, outcomes.len());
}

#[test]
fn sessions_and_dead_jobs_are_as_before_or_after_the_step_in_which_the_disk_crashes() {
    let outcomes = run_seeds(STEP_SHARE, crash_steps::run);
    let sum = |of: fn(&crash_steps::Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert_seen("kept by a session", sum(|seen| seen.kept_by_session), 0, outcomes.len());
    assert_seen("dead", sum(|seen| seen.dead), 0, outcomes.len());
    assert_seen("kept", sum(|seen| seen.kept), 0, outcomes.len());
    assert_seen("lost", sum(|seen| seen.lost), 0, outcomes.len());
    assert_seen("refused", sum(|seen| seen.refused), 0, outcomes.len());
    assert_seen("hand-overs", sum(|seen| seen.hand_overs), 0, outcomes.len());
    assert_seen("overtakes", sum(|seen| seen.overtakes), 0, outcomes.len());
}

#[test]
fn an_owner_acknowledges_only_what_every_later_owner_reads() {
    let outcomes = run_seeds(1, ownership::run);
    let runs = outcomes.len();
    let sum = |of: fn(&ownership::Outcome) -> usize| outcomes.iter().map(of).sum::<usize>() as u64;
    assert_seen("acknowledged", sum(|outcome| outcome.acknowledged), 10 * runs, runs);
    assert_seen("takeovers", sum(|outcome| outcome.takeovers), 2 * runs, runs);
    assert_seen("replies", sum(|outcome| outcome.replies), 10 * runs, runs);
    assert_seen("silences", sum(|outcome| outcome.silences), runs, runs);
}

/// Each rule of the fencing and of the lease is needed: a seed fails if it is broken.
#[test]
fn the_simulation_of_owners_notices_each_broken_rule() {
    use ownership::Mutation::{
        AgeByDatabaseClock, ChecksLeaseTooEarly, ChecksRowsWithoutEpoch, CommitsWithoutEpoch,
        CommitsWithoutQuery, LeaseFromAnswer, ReconnectsWithoutRaise, RepliesWithoutLease,
        TakesOverBeforeReading, TakesOverWithoutLock,
    };
    let of_commits = [
        CommitsWithoutEpoch,
        TakesOverWithoutLock,
        ReconnectsWithoutRaise,
        ChecksRowsWithoutEpoch,
        CommitsWithoutQuery,
    ];
    let of_replies = [
        RepliesWithoutLease,
        ChecksLeaseTooEarly,
        LeaseFromAnswer,
        AgeByDatabaseClock,
        TakesOverBeforeReading,
    ];
    for mutation in of_commits.into_iter().chain(of_replies) {
        let is_noticed = |seed| panic::catch_unwind(|| ownership::run_mutant(seed, false, mutation)).is_err();
        assert!((0..10_000).any(is_noticed), "{mutation:?} breaks no promise in 10,000 seeds");
    }
}
