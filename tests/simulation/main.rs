//! The whole server over fake sockets and a virtual clock, driven from a seed.
//!
//! `SIMULATION_SEEDS=n` sets the number of seeds, `SEED=n` runs one of them and tells every step.

mod directed;
#[path = "../model/naive.rs"]
mod naive;
mod observer;
#[path = "../model/random.rs"]
mod random;
mod replies;
mod script;
mod sockets;
mod subject;
mod world;

use std::panic;

use random::number_from_environment;

/// Seeds where the environment asks for no other number.
const SEEDS: u64 = 20_000;
/// Every so many seeds one is run twice.
const REPEATED: u64 = 16;

#[test]
fn every_reply_is_the_one_foretold_and_none_is_missing() {
    observer::install();
    let only = number_from_environment("SEED");
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..number_from_environment("SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let run = || {
            panic::catch_unwind(|| world::run(seed, only.is_some()))
                .unwrap_or_else(|_| panic!("SEED={seed} fails"))
        };
        let digest = run();
        if seed % REPEATED == 0 {
            assert_eq!(run(), digest, "SEED={seed} is not the same when run again");
        }
    }
}
