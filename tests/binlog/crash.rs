//! Loss of power at every operation of the disk: nothing that was durable is lost, and the server starts.

use beanstalkd_binlog::{OpenError, SyncPolicy};

use crate::harness::{Harness, TAGS, config};
use beanstalkd_testkit::disk::{Random, SimDisk};

/// The default number of disk images that are tried.
const IMAGES: u64 = 20_000;

fn images() -> u64 {
    std::env::var("BINLOG_CRASH_IMAGES").ok().and_then(|count| count.parse().ok()).unwrap_or(IMAGES)
}

/// Runs one server after another on the same disk and ends each by a crash. Returns the number of images that were
/// tried.
fn crashes(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let sync = match random.below(7) {
        0 => SyncPolicy::Never,
        1 | 2 => SyncPolicy::Every(50),
        _ => SyncPolicy::EachCommit,
    };
    let file_bytes = 4096 << random.below(3);
    let mut images = 0;
    let mut disk = SimDisk::default();
    let mut before: Option<Harness> = None;
    for _ in 0..4 {
        let settings = config(sync, file_bytes, random.next());
        // Up to three crashes while the previous crash is being repaired.
        for _ in 0..random.below(4) {
            let attempt = disk.fork();
            attempt.crash_after(1 + random.below(60));
            match Harness::begin(attempt.clone(), settings, before.as_ref()) {
                Ok(_) => {}
                Err(OpenError::Faulty(refusals)) => panic!("seed {seed}: refused {refusals:?}"),
                Err(_) => assert!(attempt.has_crashed(), "seed {seed}"),
            }
            disk = attempt.crashed_image(&mut random);
            images += 1;
        }
        let mut harness = match Harness::begin(disk.clone(), settings, before.as_ref()) {
            Ok(harness) => harness,
            Err(error) => panic!("seed {seed}: {sync:?} {error}"),
        };
        harness.relocates = true;
        if before.is_none() && random.below(4) > 0 {
            harness.tags = TAGS;
        }
        disk.crash_after(1 + random.below(250));
        harness.run(150, &mut random);
        disk = disk.crashed_image(&mut random);
        before = Some(harness);
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
        let outcome = std::panic::catch_unwind(|| crashes(seed));
        tried += outcome
            .unwrap_or_else(|_| panic!("seed {seed} (BINLOG_CRASH_SEED={seed} BINLOG_CRASH_IMAGES=1)"));
        seed += 1;
    }
}
