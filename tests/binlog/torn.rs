//! A change whose write is torn, by a kill or a loss of power: it is there as a whole or not at all.

use std::ops::Range;

use beanstalkd_binlog::{RestoredReservation, SyncPolicy, WholeJob};
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::damage::Files;
use crate::fixture::{Fixture, START, job};
use crate::harness::{config, open};
use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::{Cooldowns, Restored, cooldowns_of};

const FILE_BYTES: u64 = 16 * 1024;

/// The jobs, cooldowns and reservations that a start finds.
type Found = (Restored, Cooldowns, Vec<RestoredReservation>);

/// What a start finds, and the files that it leaves.
fn start(files: &Files, sync: SyncPolicy) -> (Found, Files) {
    let disk = SimDisk::with_files(files);
    let (mut log, summary, restored) = open(&disk, config(sync, FILE_BYTES, 9), START).unwrap();
    assert!(summary.warnings.is_empty(), "{summary:?}");
    let found = (restored, cooldowns_of(&log), log.take_restored_reservations());
    drop(log);
    (found, disk.files())
}

/// The number of bytes before the zeros at the end of a file.
pub fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// The file that a change was written to, and its place there.
pub fn change(before: &Files, after: &Files) -> (u32, Range<usize>) {
    let (&file, bytes) = after.iter().find(|(file, bytes)| before.get(file) != Some(bytes)).unwrap();
    (file, before.get(&file).map_or(0, |bytes| used(bytes))..used(bytes))
}

/// The records of a change whose write is torn, when a start has found that the change is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TornRecords {
    /// Whole records at its beginning stay: without the others they mean nothing.
    MayStay,
    AreRemoved,
}

/// Fails unless a start finds the change, or none of it, wherever a kill cuts it off, and whichever sector a loss of
/// power takes: a sector that was not synced can be lost, although later ones are there. Returns the number of cuts.
pub fn assert_whole_or_nothing(before: &Files, after: &Files, records: TornRecords, what: &str) -> usize {
    let (file, Range { start: begin, end }) = change(before, after);
    let zeroed = |from: usize, to: usize| {
        let mut files = after.clone();
        files.get_mut(&file).unwrap()[from..to].fill(0);
        files
    };
    for sync in [SyncPolicy::EachCommit, SyncPolicy::Every(50)] {
        let [was, is] = [before, after].map(|files| start(files, sync).0);
        assert_ne!(was, is, "{what}");
        for at in begin..=end {
            let what = format!("{what}, {sync:?}: at {at} of {begin} to {end}");
            let expected = |files: &Files| if files == after { &is } else { &was };
            let cut = zeroed(at, after[&file].len());
            let (found, left) = start(&cut, sync);
            assert_eq!(found, *expected(&cut), "{what}: cut off");
            // The next start, and C, find the same as this one.
            assert_eq!(start(&left, sync).0, found, "{what}: the start after it");
            let kept = left.get(&file).map_or(0, |bytes| used(bytes));
            let may_keep = found == is || records == TornRecords::MayStay;
            assert!(may_keep || kept <= begin, "{what}: {kept} bytes stay");
            let holed = zeroed(at, end.min(at + 512));
            assert_eq!(start(&holed, sync).0, *expected(&holed), "{what}: a hole");
        }
    }
    end + 1 - begin
}

/// A move has two records.
#[test]
fn a_move_of_which_only_the_first_record_is_written_has_not_happened() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, FILE_BYTES);
    fixture.put().unwrap();
    fixture.commit();
    let before = disk.files();
    let tube = TubeName::parse(b"to").unwrap();
    fixture.log.reserve_move(2, fixture.body.len(), &EncodedTags::NONE, None).unwrap();
    fixture.log.append_moved(&WholeJob::plain(&job(1), &tube, &fixture.body), START);
    fixture.log.commit(START).unwrap();
    assert_whole_or_nothing(&before, &disk.files(), TornRecords::MayStay, "a move");
}
