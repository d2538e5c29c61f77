//! Rounds of load with faults at random moments; after each, the queue must be what clients were promised.
//!
//! `FAILOVER_ROUNDS` sets their number and `SEED` the first seed; each seed decides the faults and the moments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::postgres::{TAKEOVER_AFTER, installation};
use beanstalkd_testkit::random::{Random, number_from_environment};

use crate::clients::{Load, Shared};
use crate::faults::Fault;
use crate::probes::Probes;
use crate::world::World;

/// Rounds of a short run.
const ROUNDS: u64 = 8;
/// How long a server stands still at most, in a short run and in a long one.
const MAX_PAUSES: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(60)];
/// The maximum number of replies that clients read before a fault.
const MAX_REPLIES: u64 = 800;

#[test]
fn nothing_that_was_acknowledged_is_lost_on_a_shared_directory() {
    let world = World::on_directory().unwrap();
    run_rounds(world, 3, &[Fault::KillOwner, Fault::StopOwner]);
}

#[test]
fn nothing_that_was_acknowledged_is_lost_on_a_database() {
    let Some(installation) = installation() else { return };
    let world = World::on_database(&installation, TAKEOVER_AFTER).unwrap();
    run_rounds(world, number_from_environment("FAILOVER_ROUNDS").unwrap_or(ROUNDS), Fault::ALL);
}

fn run_rounds(mut world: World, rounds: u64, faults: &[Fault]) {
    let first = number_from_environment("SEED").unwrap_or(0);
    let longest = MAX_PAUSES[usize::from(rounds > ROUNDS)];
    let shared = Arc::<Shared>::default();
    let probes = Probes::start(&shared, &world, &mut Random::new(first));
    let mut silences_ms = Vec::new();
    let mut struck: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + rounds {
        let mut random = Random::new(seed);
        // Each round has the next fault of the list, so that all come equally often, and sometimes further ones.
        let mut chosen = vec![faults[(seed % faults.len() as u64) as usize]];
        while random.once_in(3) {
            chosen.push(random.pick(faults));
        }
        println!("seed {seed}: {chosen:?}");
        let load = Load::start(&shared, &world.addresses(), &mut random);
        for &fault in &chosen {
            load.wait_for_replies(1 + random.below(MAX_REPLIES), Duration::from_secs(5));
            // Without a load, no record stands between a probe and its reply.
            load.rest(random.once_in(2));
            let result = fault.strike(&mut world, &load, &mut random, longest);
            result.unwrap_or_else(|error| panic!("{fault:?}: {error}\n{}", world.logs()));
            load.rest(false);
            *struck.entry(format!("{fault:?}")).or_default() += 1;
        }
        let goes_on = load.wait_for_replies(200, PATIENCE);
        let taken = shared.observed().fence.silences();
        let taken: Vec<u64> = taken.into_iter().map(|silence_ns| silence_ns / 1_000_000).collect();
        println!("seed {seed}: nobody has answered for {taken:?} ms before takeovers");
        silences_ms.extend(taken);
        load.stop();
        assert!(goes_on, "seed {seed}: {chosen:?}: clients get no replies any more\n{}", world.logs());
        let context = || format!("seed {seed}: {chosen:?}\n{}", world.logs());
        shared.check_all_jobs(&world.addresses(), context);
        assert!(!world.logs().contains("panicked"), "seed {seed}: {chosen:?}\n{}", world.logs());
    }
    probes.stop();
    let (owners, answers) = shared.observed().fence.counts();
    silences_ms.sort_unstable();
    let (median, worst) = (silences_ms.get(silences_ms.len() / 2), silences_ms.last());
    println!(
        "{answers} answers of {owners} owners; silence before takeovers: median {median:?} ms, worst {worst:?} ms"
    );
    let jobs = shared.observed().history.job_count();
    println!("{rounds} rounds, {jobs} jobs, faults: {struck:?}");
    assert!(jobs > 0, "the clients have done nothing");
}
