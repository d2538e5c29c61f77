//! Damage of every kind to small logs is refused or reported: there is never a panic or an unreported loss.

use std::collections::BTreeMap;

use beanstalkd_binlog::{Config, OpenError, ReplaySummary, SyncPolicy};
use beanstalkd_types::clock::Timestamp;

use crate::harness::{Harness, TAGS, config, open};
use crate::recover::{assert_only_damaged_is_lost, recovered, start};
use beanstalkd_testkit::disk::{Random, SimDisk};
use beanstalkd_testkit::simulated::Restored;

pub type Files = BTreeMap<u32, Vec<u8>>;

const NOW: Timestamp = Timestamp(2_000_000_000_000);

/// A log and the jobs in it.
pub struct Log {
    pub files: Files,
    pub jobs: Restored,
}

impl Log {
    pub fn new(files: Files) -> Self {
        Self::with_jobs(files).expect("more jobs are needed for this test")
    }

    /// `None` if there are too few jobs.
    fn with_jobs(files: Files) -> Option<Self> {
        let (_, summary, jobs) = reopen(&files).unwrap();
        assert!(!is_reported(&summary), "{summary:?}");
        (jobs.len() > 3).then_some(Self { files, jobs })
    }

    /// A log of one file, after a clean exit.
    pub fn closed(seed: u64) -> Self {
        let closed_by = |seed| {
            let mut harness = harness_after(seed, 8192, 8);
            harness.log.close(harness.now).unwrap();
            Self::with_jobs(harness.disk.files())
        };
        (seed..).find_map(closed_by).expect("a workload that leaves jobs")
    }

    /// A log of several files with tags and cooldowns, all of it durable.
    pub fn tagged(seed: u64) -> Self {
        let has_tags = |log: &Self| log.jobs.iter().filter(|(_, _, _, tags)| !tags.is_empty()).count() > 3;
        let tagged_by = |seed| {
            let mut harness = new_harness(5, 4096);
            harness.tags = TAGS;
            run_turns(&mut harness, seed, 40);
            run_until_idle(&mut harness);
            let has_cooldowns = harness.log.cooldowns().count() > 0;
            Self::with_jobs(harness.disk.files()).filter(|log| has_cooldowns && has_tags(log))
        };
        (seed..).find_map(tagged_by).expect("a workload that leaves jobs with tags, and cooldowns")
    }

    /// A log of several files, all of it durable, of a server that was killed while it was idle.
    pub fn killed(seed: u64) -> Self {
        let killed_by = |seed| {
            let mut harness = harness_after(seed, 4096, 17);
            run_until_idle(&mut harness);
            Self::with_jobs(harness.disk.files()).filter(|log| log.files.len() >= 3)
        };
        (seed..).find_map(killed_by).expect("a workload that fills files")
    }

    /// The log of two servers: the first lost power during a write, and the second has cut off the torn tail.
    pub fn restarted(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut first = harness_after(seed, 4096, 12);
        (0..8).for_each(|_| first.put(&mut random).unwrap());
        first.log.commit(first.now).unwrap();
        let torn = (0..100)
            .map(|_| first.disk.crashed_image(&mut random))
            .find(|image| {
                open(&image.fork(), config(SyncPolicy::EachCommit, 4096, 8), NOW).is_ok_and(has_tail)
            })
            .expect("some losses of power tear a record");
        let image = first.disk.files();
        let mut second = Harness::begin(torn, config(SyncPolicy::EachCommit, 4096, 8), Some(&first)).unwrap();
        second.max_body = 60;
        (0..8).for_each(|_| second.turn(&mut random).unwrap());
        second.help_all().unwrap();
        run_until_idle(&mut second);
        let log = Self::new(second.disk.files());
        assert!(log.files.keys().any(|index| !image.contains_key(index)), "the second has also written");
        log
    }

    /// The log of two servers: the fourth file of the first, its newest one, is gone, and two others are damaged. The
    /// second was started with `--recover`.
    pub fn recovered(seed: u64) -> Self {
        let filled_by = |seed| {
            let mut first = new_harness(seed, 4096);
            put_until(&mut first, 4, &mut Random::new(seed));
            let mut files = first.disk.files();
            files.split_off(&4);
            (files.len() == 3).then_some(files)
        };
        let mut files = (seed..).find_map(filled_by).expect("a workload without a job that fills a file");
        for (at, bytes) in [1500, 50].into_iter().zip(files.values_mut()) {
            bytes[at..at + 40].fill(0xA5);
        }
        let settings = Config { recover: true, ..config(SyncPolicy::EachCommit, 4096, 9) };
        let mut second = Harness::begin(SimDisk::with_files(&files), settings, None).unwrap();
        second.max_body = 60;
        put_until(&mut second, 7, &mut Random::new(seed));
        // The idle server marks everything as durable. Compaction, which would remove the damaged files, does not run.
        for _ in 0..3 {
            second.now = second.now + 1_000_000_000;
            second.log.commit(second.now).unwrap();
            second.log.on_deadline(second.now).unwrap();
            second.help_all().unwrap();
        }
        Self::new(second.disk.files())
    }
}

fn harness_after(seed: u64, file_bytes: u64, turns: u64) -> Harness {
    let mut harness = new_harness(seed, file_bytes);
    run_turns(&mut harness, seed, turns);
    harness
}

fn new_harness(seed: u64, file_bytes: u64) -> Harness {
    let settings = config(SyncPolicy::EachCommit, file_bytes, seed);
    let mut harness = Harness::begin(SimDisk::default(), settings, None).unwrap();
    harness.max_body = 60;
    harness
}

fn run_turns(harness: &mut Harness, seed: u64, turns: u64) {
    let mut random = Random::new(seed);
    for _ in 0..turns {
        harness.turn(&mut random).unwrap();
    }
    harness.help_all().unwrap();
}

/// Puts jobs until they are in file `index`.
fn put_until(harness: &mut Harness, index: u32, random: &mut Random) {
    while harness.log.stats().current_index < index {
        harness.put(random).unwrap();
        harness.log.commit(harness.now).unwrap();
        harness.help_all().unwrap();
    }
}

/// Includes compaction: without it, the log would wake again and again.
fn run_until_idle(harness: &mut Harness) {
    while let Some(at) = harness.log.next_deadline() {
        harness.now = harness.now.max(at);
        harness.migrate();
        harness.log.commit(harness.now).unwrap();
        harness.log.on_deadline(harness.now).unwrap();
        harness.help_all().unwrap();
    }
}

fn has_tail<T>((_, summary, _): (T, ReplaySummary, Restored)) -> bool {
    !summary.tails.is_empty()
}

fn reopen(files: &Files) -> Result<((), ReplaySummary, Restored), OpenError> {
    let disk = SimDisk::with_files(files);
    let (_, summary, restored) = open(&disk, config(SyncPolicy::EachCommit, 4096, 99), NOW)?;
    Ok(((), summary, restored))
}

fn is_reported(summary: &ReplaySummary) -> bool {
    !summary.tails.is_empty() || !summary.warnings.is_empty()
}

/// The result of a start on a damaged log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Refused,
    Whole,
    LossReported,
}

/// Opens a damaged log. Fails if a loss is not reported.
pub fn outcome(log: &Log, damaged: &Files, what: &str) -> Outcome {
    match reopen(damaged) {
        Err(OpenError::Faulty(refusals)) => {
            assert!(!refusals.is_empty());
            Outcome::Refused
        }
        Err(error) => panic!("{what}: {error}"),
        Ok((_, _, jobs)) if jobs == log.jobs => Outcome::Whole,
        Ok((_, summary, jobs)) => {
            assert!(
                is_reported(&summary),
                "{what}: unreported loss: {} of {} jobs",
                jobs.len(),
                log.jobs.len()
            );
            Outcome::LossReported
        }
    }
}

pub fn changed(log: &Log, index: u32, change: impl FnOnce(&mut Vec<u8>)) -> Files {
    let mut files = log.files.clone();
    change(files.get_mut(&index).unwrap());
    files
}

/// Flips every bit. Everything that is marked as durable must come back or the start be refused: a report is not
/// enough.
fn every_bit(log: &Log) {
    for (&index, bytes) in &log.files {
        for bit in 0..bytes.len() * 8 {
            let damaged = changed(log, index, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let what = format!("bit {bit} of binlog.{index}");
            assert_ne!(outcome(log, &damaged, &what), Outcome::LossReported, "{what}");
        }
    }
}

#[test]
fn every_flipped_bit_of_a_closed_log_is_refused_or_harmless() {
    every_bit(&Log::closed(3));
}

#[test]
fn every_flipped_bit_of_a_killed_log_is_refused_or_harmless() {
    every_bit(&Log::killed(5));
}

#[test]
fn every_flipped_bit_of_a_log_with_a_cut_tail_is_refused_or_harmless() {
    every_bit(&Log::restarted(7));
}

#[test]
fn truncation_at_every_byte_is_refused_or_reported() {
    for log in [Log::closed(3), Log::killed(5), Log::restarted(7), Log::recovered(5)] {
        for (&index, bytes) in &log.files {
            for length in 0..bytes.len() {
                let damaged = changed(&log, index, |bytes| bytes.truncate(length));
                let what = format!("binlog.{index} cut at {length}");
                outcome(&log, &damaged, &what);
            }
        }
    }
}

#[test]
fn zeroed_blocks_are_refused_or_reported() {
    for log in [Log::closed(3), Log::killed(5), Log::restarted(7), Log::recovered(5)] {
        for (&index, bytes) in &log.files {
            for block in [512, 4096] {
                for start in (0..bytes.len()).step_by(block) {
                    let end = (start + block).min(bytes.len());
                    let damaged = changed(&log, index, |bytes| bytes[start..end].fill(0));
                    outcome(&log, &damaged, &format!("{start}..{end} of binlog.{index} zeroed"));
                }
            }
        }
    }
}

#[test]
fn each_missing_file_of_a_recovered_log_is_refused_or_reported() {
    let log = Log::recovered(5);
    // Up to two files were made ahead.
    let spare = log.files.last_key_value().unwrap().0 - 1;
    for (index, bytes) in &log.files {
        let mut removed = log.files.clone();
        removed.remove(index);
        let is_whole = outcome(&log, &removed, "removed") == Outcome::Whole;
        assert!(!is_whole || *index >= spare || bytes.len() == 4, "{index} removed");
    }
}

#[test]
fn files_swapped_duplicated_and_removed_are_refused() {
    let log = Log::killed(5);
    let indexes: Vec<u32> = log.files.keys().copied().collect();
    // The last file was made ahead and never used, so its removal loses nothing.
    let spare = *indexes.last().unwrap();
    for &a in &indexes {
        for &b in indexes.iter().filter(|&&b| b != a) {
            let mut swapped = log.files.clone();
            swapped.insert(a, log.files[&b].clone());
            swapped.insert(b, log.files[&a].clone());
            assert_eq!(outcome(&log, &swapped, "swapped"), Outcome::Refused, "{a} and {b} swapped");
            let mut copied = log.files.clone();
            copied.insert(b, log.files[&a].clone());
            assert_eq!(outcome(&log, &copied, "copied"), Outcome::Refused, "{a} copied over {b}");
        }
        let mut copied = log.files.clone();
        copied.insert(spare + 1, log.files[&a].clone());
        assert_eq!(outcome(&log, &copied, "copied"), Outcome::Refused, "{a} copied to the end");
        let mut removed = log.files.clone();
        removed.remove(&a);
        let expected = if a == spare { Outcome::Whole } else { Outcome::Refused };
        assert_eq!(outcome(&log, &removed, "removed"), expected, "{a} removed");
    }
}

#[test]
fn random_bytes_in_any_number_of_places_never_panic() {
    let first: u64 = std::env::var("BINLOG_DAMAGE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + 16 {
        let mut random = Random::new(seed);
        let make = [Log::closed, Log::killed, Log::restarted, Log::tagged];
        let mut logs: Vec<Log> = make.into_iter().map(|make| make(random.below(1 << 32))).collect();
        if seed == 1 {
            // It has found that a file without a version was left behind.
            logs.push(Log::tagged(7));
        }
        for round in 0..125 {
            let log = &logs[random.below(logs.len() as u64) as usize];
            let mut damaged = log.files.clone();
            for bytes in damaged.values_mut() {
                for _ in 0..random.below(4) {
                    let at = random.below(bytes.len() as u64) as usize;
                    let length = random.below(200).min((bytes.len() - at) as u64) as usize;
                    bytes[at..at + length].fill_with(|| random.next() as u8);
                }
            }
            let what = format!("seed {seed} (BINLOG_DAMAGE_SEED), round {round}");
            let disk = SimDisk::with_files(&damaged);
            let plain = start(&disk.fork(), false);
            assert!(plain.is_ok() || matches!(plain, Err(OpenError::Faulty(_))), "{what}: {plain:?}");
            // A start with `--recover` always succeeds, and the next start finds the same jobs.
            let found = recovered(&disk, &what);
            assert_only_damaged_is_lost(log, &damaged, &found, &what);
        }
    }
}
