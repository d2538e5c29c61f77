//! Loss of power at every operation of the disk, whatever each server on it syncs: nothing that was durable is lost,
//! and the server starts.

use std::collections::BTreeSet;

use beanstalkd_binlog::{LogFault, OpenError, SyncPolicy};
use beanstalkd_types::job::JobId;

use crate::fixture::{Fixture, START};
use crate::harness::{Harness, TAGS, config, open};
use beanstalkd_testkit::disk::{Random, SimDisk};
use beanstalkd_testkit::simulated::crash_at_start;

/// The default number of disk images that are tried.
const IMAGES: u64 = 20_000;
const POLICIES: [SyncPolicy; 3] = [SyncPolicy::EachCommit, SyncPolicy::Every(50), SyncPolicy::Never];

fn images() -> u64 {
    std::env::var("BINLOG_CRASH_IMAGES").ok().and_then(|count| count.parse().ok()).unwrap_or(IMAGES)
}

fn some_policy(random: &mut Random) -> SyncPolicy {
    match random.below(7) {
        0 => SyncPolicy::Never,
        1 | 2 => SyncPolicy::Every(50),
        _ => SyncPolicy::EachCommit,
    }
}

/// Runs one server after another on the same disk and ends each by a crash. Returns the number of images that were
/// tried.
fn crashes(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut sync = some_policy(&mut random);
    let file_bytes = 4096 << random.below(3);
    let mut images = 0;
    let mut disk = SimDisk::default();
    let mut before: Option<Harness> = None;
    for _ in 0..4 {
        if random.once_in(3) {
            sync = some_policy(&mut random);
        }
        let settings = config(sync, file_bytes, random.next());
        // Up to three crashes while the previous crash is being repaired.
        for _ in 0..random.below(4) {
            let attempt = disk.fork();
            crash_at_start(&attempt, 1 + random.below(60), |disk| {
                Harness::begin(disk.clone(), settings, before.as_ref())
            });
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

/// Fails unless a server with any policy starts on `disk` without a warning, and has these jobs.
fn assert_starts(disk: &SimDisk, jobs: &BTreeSet<u64>, what: &str) {
    let files = disk.files();
    for next in POLICIES {
        let start = open(&SimDisk::with_files(&files), config(next, 4096, 8), START);
        let (_, summary, restored) = start.unwrap_or_else(|error| panic!("{what}, then {next:?}: {error}"));
        assert!(summary.warnings.is_empty(), "{what}, then {next:?}: {summary:?}");
        let found: BTreeSet<u64> = restored.iter().map(|(record, ..)| record.id.0).collect();
        assert_eq!(&found, jobs, "{what}, then {next:?}");
    }
}

/// Runs a server that fills some files, keeps a few of its jobs, compacts the log until no file of an earlier server is
/// left, and puts more jobs in two files. After each removal of a file, the next server starts, after a loss of power,
/// too. `jobs` are those in the log.
fn run_and_compact(disk: &SimDisk, sync: SyncPolicy, jobs: &mut BTreeSet<u64>, what: &str) -> Fixture {
    let mut random = Random::new(1);
    let mut fixture = Fixture::open(disk, sync, 4096);
    let first_file = fixture.log.stats().current_index;
    let mut oldest = 0;
    let mut is_compact = false;
    while !is_compact || fixture.log.stats().current_index <= first_file + 2 {
        let id = fixture.next_id;
        fixture.put().unwrap();
        jobs.insert(id);
        if !is_compact && !id.is_multiple_of(25) {
            fixture.log.append_delete(JobId(id));
            jobs.remove(&id);
        }
        fixture.commit();
        // With `-f MS`, a sync is due.
        fixture.reach(fixture.now.plus_seconds(1));
        let stats = fixture.log.stats();
        if stats.oldest_index > oldest {
            oldest = stats.oldest_index;
            assert_starts(disk, jobs, what);
            for next in POLICIES {
                let start = open(&disk.crashed_image(&mut random), config(next, 4096, 8), START);
                assert!(start.is_ok(), "{what}, after a loss of power {next:?}: {:?}", start.err());
            }
        }
        is_compact |= stats.oldest_index >= first_file && stats.current_index > first_file;
    }
    fixture
}

#[test]
fn files_that_were_removed_are_not_missed_after_a_change_of_the_sync_policy() {
    for (order, exits) in (0..27).flat_map(|order| [(order, false), (order, true)]) {
        let order = [order / 9, order / 3 % 3, order % 3].map(|nth| POLICIES[nth]);
        let disk = SimDisk::default();
        let mut jobs = BTreeSet::new();
        for (nth, sync) in order.into_iter().enumerate() {
            let what = format!("{:?}, exits {exits}", &order[..=nth]);
            let mut fixture = run_and_compact(&disk, sync, &mut jobs, &what);
            if exits {
                fixture.log.close(fixture.now).unwrap();
            }
            assert_starts(&disk, &jobs, &what);
            // A server that syncs proves which files are needed, whatever ran before it.
            let mut damaged = disk.files();
            let (oldest, _) = damaged.pop_first().unwrap();
            let start = open(&SimDisk::with_files(&damaged), config(SyncPolicy::EachCommit, 4096, 8), START);
            match start {
                Err(OpenError::Faulty(faults)) if faults.contains(&LogFault::Missing { file: oldest }) => {}
                other => assert_eq!(sync, SyncPolicy::Never, "{what}: {:?}", other.err()),
            }
        }
    }
}
