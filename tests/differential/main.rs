//! The differential runner: one random script, two servers, the same replies.
//!
//! `DIFFERENTIAL_SEEDS=n` plays n scripts (2,000 without it), `SEED=n` the one of that seed. `DIFFERENTIAL_A`
//! and `DIFFERENTIAL_B` name the servers: Debian's C server and ours without them. What may differ is listed
//! in [`normalize`], what is left out in [`script`]. A difference is shown with its seed and the shortest
//! script that still shows it.

mod lockstep;
mod normalize;
mod script;

use beanstalkd_testkit::pace::Pace;
use libtest_mimic::{Arguments, Failed, Trial};
use lockstep::{Difference, Pair, Treatment, play};
use script::Step;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const SEEDS: u64 = 2000;

/// Trials among which the seeds are divided, so that a filter and the threads have a choice.
const BATCHES: u64 = 16;

/// One in this many scripts hands our server over to another program while it is played.
const HANDED_OVER: u64 = 40;

/// One in this many scripts is played with sessions on our server.
const IN_SESSIONS: u64 = 10;

/// The time limit for shortening a script: a script that lets time pass takes seconds each time it is played.
const SHORTENING: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let path = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let Some(a) = path("DIFFERENTIAL_A").or_else(beanstalkd_testkit::debian_server) else {
        return ExitCode::SUCCESS;
    };
    let other = path("DIFFERENTIAL_B");
    let treatment = if other.is_none() { treatment_of_ours } else { |_| Treatment::Plain };
    let b = other.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_beanstalkd")));
    let pair_of = move |seed| Pair { a: a.clone(), b: b.clone(), treatment: treatment(seed) };
    let pace = Pace::watch().expect("the system gives a pair of sockets");
    let number =
        |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse::<u64>());
    let trials = match (number("SEED").transpose(), number("DIFFERENTIAL_SEEDS").transpose()) {
        (Ok(Some(seed)), Ok(_)) => vec![trial(format!("seed_{seed}"), seed..seed + 1, &pair_of, &pace)],
        (Ok(None), Ok(seeds)) => batches(seeds.unwrap_or(SEEDS), &pair_of, &pace),
        _ => {
            eprintln!("SEED and DIFFERENTIAL_SEEDS are numbers");
            return ExitCode::FAILURE;
        }
    };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The disturbance of our server while the script of this seed is played.
fn treatment_of_ours(seed: u64) -> Treatment {
    if seed.is_multiple_of(HANDED_OVER) {
        Treatment::HandOvers
    } else if seed % IN_SESSIONS == 1 {
        Treatment::Sessions
    } else {
        Treatment::Plain
    }
}

fn batches(seeds: u64, pair_of: &(impl Fn(u64) -> Pair + Clone + Send + 'static), pace: &Pace) -> Vec<Trial> {
    let size = seeds.div_ceil(BATCHES).max(1);
    (0..seeds)
        .step_by(usize::try_from(size).expect("a batch fits"))
        .map(|first| {
            let last = (first + size).min(seeds);
            trial(format!("seeds_{first}_to_{}", last - 1), first..last, pair_of, pace)
        })
        .collect()
}

fn trial(
    name: String,
    seeds: std::ops::Range<u64>,
    pair_of: &(impl Fn(u64) -> Pair + Clone + Send + 'static),
    pace: &Pace,
) -> Trial {
    let (pair_of, pace) = (pair_of.clone(), pace.clone());
    Trial::test(name, move || {
        for seed in seeds {
            let (script, pair) = (script::generate(seed), pair_of(seed));
            // If the machine stalls or is slow, a short TTR of the script may end on one of the servers alone, or one
            // of them may count a second more.
            let same = || match play(&script, &pair) {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err(None),
                Err(error) => Err(Some(error)),
            };
            if let Err(failure) = pace.judge_within(script::time_limit(&script), same) {
                if let Some(error) = failure {
                    return Err(error.into());
                }
                return Err(report(seed, &script, &pair)?.into());
            }
        }
        Ok(())
    })
}

fn report(seed: u64, script: &[Step], pair: &Pair) -> Result<String, Failed> {
    let shortest = shorten(script, pair)?;
    let Pair { a, b, treatment } = pair;
    let mut text = format!(
        "the servers differ ({treatment:?}); replay with SEED={seed}. The shortest script that shows it:\n"
    );
    for (number, step) in shortest.iter().enumerate() {
        let _ = writeln!(text, "  {number:>2} {step}");
    }
    if let Some(Difference { step, a: heard_a, b: heard_b }) = play(&shortest, pair)? {
        let _ = writeln!(text, "at step {step}\n  {}:\n      {heard_a}", a.display());
        let _ = writeln!(text, "  {}:\n      {heard_b}", b.display());
    }
    Ok(text)
}

/// Leaves out pieces of the script, halves first and single steps last, then commands of a step and cuts
/// between its writes, while the servers still differ and there is time.
fn shorten(script: &[Step], pair: &Pair) -> Result<Vec<Step>, Failed> {
    let give_up_at = Instant::now() + SHORTENING;
    let mut script = script.to_vec();
    let mut piece = script.len().div_ceil(2);
    loop {
        let (mut at, mut shortened) = (0, false);
        while at < script.len() {
            let end = (at + piece).min(script.len());
            let rest: Vec<Step> = script[..at].iter().chain(&script[end..]).cloned().collect();
            if Instant::now() > give_up_at {
                return Ok(script);
            }
            if play(&rest, pair)?.is_some() {
                script = rest;
                shortened = true;
            } else {
                at = end;
            }
        }
        if piece == 1 && !shortened {
            break;
        }
        piece = piece.div_ceil(2);
    }
    for at in 0..script.len() {
        let mut command = 0;
        while let Some(shorter) = script[at].without_command(command) {
            if Instant::now() > give_up_at {
                return Ok(script);
            }
            let mut rest = script.clone();
            rest[at] = shorter;
            if play(&rest, pair)?.is_some() {
                script = rest;
            } else {
                command += 1;
            }
        }
    }
    Ok(script)
}
