//! Rounds of load with faults at random moments; after each, the queue must be what clients were promised.
//!
//! `FAILOVER_ROUNDS` sets their number and `SEED` the first seed; each seed decides the faults and the moments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::postgres::installation;
use beanstalkd_testkit::random::{Random, number_from_environment};

use crate::clients::{Load, Shared, drain};
use crate::faults::Fault;
use crate::world::World;

/// Rounds of a short run.
const ROUNDS: u64 = 5;
/// The most replies that clients read before a fault.
const MOST_REPLIES: u64 = 800;

#[test]
fn nothing_that_was_acknowledged_is_lost_on_a_shared_directory() {
    let world = World::on_directory().unwrap();
    run_rounds(world, 3, &[Fault::KillOwner, Fault::StopOwner]);
}

#[test]
fn nothing_that_was_acknowledged_is_lost_on_a_database() {
    let Some(installation) = installation() else { return };
    let world = World::on_database(&installation).unwrap();
    run_rounds(world, number_from_environment("FAILOVER_ROUNDS").unwrap_or(ROUNDS), Fault::ALL);
}

fn run_rounds(mut world: World, rounds: u64, faults: &[Fault]) {
    let first = number_from_environment("SEED").unwrap_or(0);
    let shared = Arc::<Shared>::default();
    let mut struck: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + rounds {
        let mut random = Random::new(seed);
        // Each round has its turn's fault, so that all come equally often, and sometimes further ones.
        let mut chosen = vec![faults[(seed % faults.len() as u64) as usize]];
        while random.once_in(3) {
            chosen.push(random.pick(faults));
        }
        println!("seed {seed}: {chosen:?}");
        let load = Load::start(&shared, &world.addresses(), &seed.to_string(), &mut random);
        for &fault in &chosen {
            load.wait_for_replies(1 + random.below(MOST_REPLIES), Duration::from_secs(5));
            fault.strike(&mut world, &load, &mut random).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            *struck.entry(format!("{fault:?}")).or_default() += 1;
        }
        let goes_on = load.wait_for_replies(200, PATIENCE);
        load.stop();
        assert!(goes_on, "seed {seed}: {chosen:?}: clients get no replies any more\n{}", world.logs());
        let left = drain(&world.addresses());
        let mut history = shared.history();
        history.drained(&left);
        let problems = history.problems();
        assert!(
            problems.is_empty(),
            "seed {seed}: {chosen:?}: {} problems\n{}\n{}",
            problems.len(),
            problems[..problems.len().min(20)].join("\n"),
            world.logs()
        );
        drop(history);
        assert!(!world.logs().contains("panicked"), "seed {seed}: {chosen:?}\n{}", world.logs());
    }
    let (inserted, deleted) = shared.history().counts();
    println!("{rounds} rounds, {inserted} jobs INSERTED, {deleted} DELETED, faults: {struck:?}");
    assert!(inserted > 0 && deleted > 0, "the clients have done nothing");
}
