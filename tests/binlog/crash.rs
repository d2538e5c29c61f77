//! Loss of power at every operation of the disk: nothing that was durable is lost, and the server starts.

use beanstalkd::binlog::{OpenError, SyncPolicy};

use crate::tagged_world::TaggedWorld;
use crate::world::{World, config};
use beanstalkd_testkit::disk::{Random, SimDisk};

/// Images tried where nothing else is asked for.
const IMAGES: u64 = 20_000;

fn images() -> u64 {
    std::env::var("BINLOG_CRASH_IMAGES").ok().and_then(|count| count.parse().ok()).unwrap_or(IMAGES)
}

/// One server after another on the same disk, each ended by a crash. Returns how many images were tried.
fn lives(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let sync = match random.below(7) {
        0 => SyncPolicy::Never,
        1 | 2 => SyncPolicy::Every(50),
        _ => SyncPolicy::EachCommit,
    };
    let file_bytes = 4096 << random.below(3);
    let mut images = 0;
    let mut disk = SimDisk::default();
    let mut before: Option<World> = None;
    for _ in 0..4 {
        let settings = config(sync, file_bytes, random.next());
        // Up to three crashes while the server before this one's crash is mended.
        for _ in 0..random.below(4) {
            let attempt = disk.fork();
            attempt.crash_after(1 + random.below(60));
            match World::begin(attempt.clone(), settings, before.as_ref()) {
                Ok(_) => {}
                Err(OpenError::Refused(refusals)) => panic!("seed {seed}: refused {refusals:?}"),
                Err(_) => assert!(attempt.has_crashed(), "seed {seed}"),
            }
            disk = attempt.crashed_image(&mut random);
            images += 1;
        }
        let mut world = match World::begin(disk.clone(), settings, before.as_ref()) {
            Ok(world) => world,
            Err(error) => panic!("seed {seed}: {sync:?} {error}"),
        };
        world.relocates = true;
        if before.is_none() && random.below(4) > 0 {
            world.tagged = Some(TaggedWorld::default());
        }
        disk.crash_after(1 + random.below(250));
        world.live(150, &mut random);
        disk = disk.crashed_image(&mut random);
        before = Some(world);
        images += 1;
    }
    images
}

#[test]
fn nothing_durable_is_lost_and_no_crash_is_refused() {
    let wanted = images();
    let first: u64 = std::env::var("BINLOG_CRASH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (mut tried, mut seed) = (0, first);
    while tried < wanted {
        let outcome = std::panic::catch_unwind(|| lives(seed));
        tried += outcome
            .unwrap_or_else(|_| panic!("seed {seed} (BINLOG_CRASH_SEED={seed} BINLOG_CRASH_IMAGES=1)"));
        seed += 1;
    }
}
