//! Damage of every kind to small logs is refused or reported: there is never a panic or an unreported loss.

use std::collections::BTreeMap;

use beanstalkd::binlog::{OpenError, ReplaySummary, SyncPolicy};
use beanstalkd::clock::Timestamp;

use crate::harness::{Harness, Restored, config, open};
use crate::tag_model::{TagModel, cooldowns_of};
use beanstalkd_testkit::disk::{Random, SimDisk};

type Files = BTreeMap<u32, Vec<u8>>;

const NOW: Timestamp = Timestamp(2_000_000_000_000);

/// A log and the jobs in it.
struct Log {
    files: Files,
    jobs: Restored,
}

impl Log {
    fn new(files: Files) -> Self {
        let (_, summary, jobs) = reopen(&files).unwrap();
        assert!(!is_reported(&summary), "{summary:?}");
        assert!(jobs.len() > 3, "{} jobs are too few for this test", jobs.len());
        Self { files, jobs }
    }

    /// A log of one file, after a clean exit.
    fn closed() -> Self {
        let mut harness = harness_after(3, 8192, 8);
        harness.log.close(harness.now).unwrap();
        Self::new(harness.disk.files())
    }

    /// A log of several files with tags and cooldowns, all of it durable.
    fn tagged() -> Self {
        let mut harness = new_harness(5, 4096);
        harness.tag_model = Some(TagModel::default());
        run_turns(&mut harness, 12, 40);
        run_until_idle(&mut harness);
        assert!(harness.log.cooldowns().count() > 0);
        let log = Self::new(harness.disk.files());
        assert!(log.jobs.iter().filter(|(_, _, _, tags)| !tags.is_empty()).count() > 3);
        log
    }

    /// A log of several files, all of it durable, of a server that was killed while it was idle.
    fn killed() -> Self {
        let mut harness = harness_after(5, 4096, 17);
        run_until_idle(&mut harness);
        let log = Self::new(harness.disk.files());
        assert!(log.files.len() >= 3);
        log
    }

    /// The log of two servers: the first lost power during a write, and the second has cut off the torn tail.
    fn restarted() -> Self {
        let mut random = Random::new(7);
        let mut first = harness_after(7, 4096, 12);
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

/// Compaction included, which would have the log wake for ever.
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
enum Outcome {
    Refused,
    Whole,
    LossReported,
}

/// Opens a damaged log. Fails if a loss is not reported.
fn outcome(log: &Log, damaged: &Files, what: &str) -> Outcome {
    match reopen(damaged) {
        Err(OpenError::Refused(refusals)) => {
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

fn changed(log: &Log, index: u32, change: impl FnOnce(&mut Vec<u8>)) -> Files {
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
    every_bit(&Log::closed());
}

#[test]
fn every_flipped_bit_of_a_killed_log_is_refused_or_harmless() {
    every_bit(&Log::killed());
}

#[test]
fn every_flipped_bit_of_a_log_with_a_cut_tail_is_refused_or_harmless() {
    every_bit(&Log::restarted());
}

#[test]
fn truncation_at_every_byte_is_refused_or_reported() {
    for log in [Log::closed(), Log::killed(), Log::restarted()] {
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
    for log in [Log::closed(), Log::killed(), Log::restarted()] {
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
fn files_swapped_duplicated_and_removed_are_refused() {
    let log = Log::killed();
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
    let logs = [Log::closed(), Log::killed(), Log::restarted(), Log::tagged()];
    let mut random = Random::new(11);
    for _ in 0..2000 {
        let log = &logs[random.below(4) as usize];
        let mut damaged = log.files.clone();
        for bytes in damaged.values_mut() {
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                let length = random.below(200).min((bytes.len() - at) as u64) as usize;
                bytes[at..at + length].fill_with(|| random.next() as u8);
            }
        }
        let disk = SimDisk::with_files(&damaged);
        let settings = config(SyncPolicy::EachCommit, 4096, 1);
        let plain = open(&disk.fork(), settings, NOW);
        assert!(plain.is_ok() || matches!(plain, Err(OpenError::Refused(_))));
        // A start with `--recover` always succeeds, and the next start finds the same jobs.
        let recover = beanstalkd::binlog::Config { recover: true, ..settings };
        let (log, first, jobs) = open(&disk, recover, NOW).unwrap();
        let cooldowns = cooldowns_of(&log);
        let (log, second, again) =
            open(&disk, settings, NOW).unwrap_or_else(|error| panic!("{error} after {first:?}"));
        assert_eq!(jobs, again, "{second:?} after {first:?}");
        assert_eq!(cooldowns, cooldowns_of(&log), "{second:?} after {first:?}");
    }
}
