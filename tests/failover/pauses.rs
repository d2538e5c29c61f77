//! An owner, or its database, that stands still for less than `--takeover-after` loses nothing: the queue stays where
//! it is.
//!
//! `FAILOVER_PAUSES` sets the number of pauses and `SEED` the first seed; each seed decides who stands still, when, and
//! for how long. The servers have the usual `--takeover-after`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use beanstalkd::options::DEFAULT_TAKEOVER_AFTER;
use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::postgres::installation;
use beanstalkd_testkit::random::{Random, number_from_environment};

use crate::clients::{Load, Shared};
use crate::faults::Standstill;
use crate::probes::Probes;
use crate::world::{World, open};

/// Pauses of a short run.
const PAUSES: u64 = 6;
/// How long a pause is.
const SHORTEST_MS: u64 = 100;
const MAX_PAUSE_MS: u64 = 3000;
/// A resumed server may wait this long until it runs. On a machine that stands still for longer, a takeover is no
/// fault.
const SCHEDULING: Duration = Duration::from_millis(100);

#[test]
fn a_pause_of_less_than_the_takeover_takes_nothing_over() {
    let Some(installation) = installation() else { return };
    let mut world = World::on_database(&installation, DEFAULT_TAKEOVER_AFTER).unwrap();
    let first = number_from_environment("SEED").unwrap_or(0);
    let pauses = number_from_environment("FAILOVER_PAUSES").unwrap_or(PAUSES);
    let shared = Arc::<Shared>::default();
    let pace = Pace::watch_disk(&world.pair().primary.data()).unwrap();
    let probes = Probes::start(&shared, &world, &mut Random::new(first));
    let (mut short, mut taken) = (0, 0);
    for seed in first..first + pauses {
        let mut random = Random::new(seed);
        let load = Load::start(&shared, &world.addresses(), &mut random);
        let owner = world.owner();
        let id = |member| open(world.addresses()[member]).map(|(_, id)| id);
        let before = id(owner);
        load.wait_for_replies(1 + random.below(400), Duration::from_secs(5));
        // In a short run, every other pause is a short one.
        let longest_ms = if seed % 2 == 0 { 900 } else { MAX_PAUSE_MS };
        let pause = Duration::from_millis(SHORTEST_MS + random.below(longest_ms - SHORTEST_MS));
        let is_database = random.once_in(2);
        let start = Instant::now();
        if is_database {
            world.pair().primary.pause();
            thread::sleep(pause);
            world.pair().primary.resume();
        } else {
            let still = Standstill::begin(&world, &load, owner);
            thread::sleep(pause);
            still.end(&world);
        }
        let took = start.elapsed();
        let goes_on = load.wait_for_replies(200, PATIENCE);
        load.stop();
        assert!(goes_on, "seed {seed}: clients get no replies any more\n{}", world.logs());
        let after = open(world.addresses()[owner]).map(|(_, id)| id);
        let is_short = took + SCHEDULING < DEFAULT_TAKEOVER_AFTER;
        // The last heartbeat before the pause may have been late, too.
        let proves_nothing = !is_short || !pace.was_kept_since(start - DEFAULT_TAKEOVER_AFTER);
        let what = if is_database { "database" } else { "owner" };
        println!("seed {seed}: the {what} stood still for {took:?}; same owner: {}", before == after);
        assert!(
            before == after || proves_nothing,
            "seed {seed}: taken over after {took:?}\n{}",
            world.logs()
        );
        short += u64::from(is_short);
        taken += u64::from(before != after);
        shared.check_all_jobs(&world.addresses(), || format!("seed {seed}\n{}", world.logs()));
    }
    probes.stop();
    println!("{pauses} pauses, {short} of them short; {taken} takeovers");
    assert!(short > 0);
}
