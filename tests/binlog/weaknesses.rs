//! The known weaknesses of C's binlog, each with a test that this server does not have it. Those of writing and syncing
//! are in `room`, those of undetected damage in `damage`.

use std::collections::BTreeMap;

use beanstalkd_binlog::{
    Config, FileName, LogFault, LogPosition, OpenError, ReplaySummary, StoreTask, SyncPolicy, Warning,
    WholeJob,
};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::c_file::{BURIED, CFile, DELETED, READY};
use crate::fixture::Fixture;
use crate::harness::{config, open};
use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::Restored;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

fn disk_of(files: &[&CFile]) -> SimDisk {
    let files: BTreeMap<u32, Vec<u8>> = (1..).zip(files.iter().map(|file| file.bytes.clone())).collect();
    SimDisk::with_files(&files)
}

fn replay(files: &[&CFile], recover: bool) -> Result<(ReplaySummary, Restored), OpenError> {
    let settings = Config { recover, ..config(SyncPolicy::EachCommit, 8192, 1) };
    let (_, summary, restored) = open(&disk_of(files), settings, NOW)?;
    Ok((summary, restored))
}

fn ids(restored: &Restored) -> Vec<u64> {
    restored.iter().map(|(record, ..)| record.id.0).collect()
}

fn refusals(files: &[&CFile]) -> Vec<LogFault> {
    match replay(files, false) {
        Err(OpenError::Faulty(refusals)) => refusals,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_job_of_the_largest_size_does_not_hide_the_records_after_it() {
    let largest = vec![b'x'; 65_535];
    let file = CFile::new(7).full(1, &largest, READY).full(2, b"next", READY).zeros(4096);
    let (summary, restored) = replay(&[&file], false).unwrap();
    assert_eq!(ids(&restored), [1, 2]);
    assert_eq!(restored[0].2, largest);
    assert!(summary.tails.is_empty());
}

#[test]
fn the_marks_of_this_server_mean_nothing_in_a_file_of_c() {
    for (version, length_bytes) in [(5, 8), (7, 4)] {
        for mark in 1..=3 {
            let mut file = CFile::new(version).full(1, b"one", READY);
            // In the time to run of a full record: the job has tags, or belongs to a `complete`.
            file.bytes[4 + length_bytes + "default".len() + 24] |= mark as u8;
            // In the length of the body of a delete: other records belong to it.
            let deleted = file.clone().full(2, b"two", READY).short(1, (-mark - 2) as usize, DELETED);
            let (summary, restored) = replay(&[&file.zeros(300)], false).unwrap();
            assert_eq!((ids(&restored), summary.tails.len()), (vec![1], 0), "{version} {mark}");
            assert_eq!(restored[0].0.ttr_s, 60);
            let (summary, restored) = replay(&[&deleted.zeros(300)], false).unwrap();
            assert_eq!((ids(&restored), summary.tails.len()), (vec![2], 0), "{version} {mark}");
        }
    }
}

#[test]
fn a_crash_of_c_in_a_record_gives_no_job_with_a_body_of_zeros() {
    let whole = CFile::new(7).full(1, b"one", READY);
    let offset = whole.bytes.len() as u64;
    let file = whole.full_without_body(2, 40).zeros(4096);
    let (summary, restored) = replay(&[&file], false).unwrap();
    assert_eq!(ids(&restored), [1]);
    assert_eq!((summary.tails[0].file, summary.tails[0].offset), (1, offset));
}

#[test]
fn every_beginning_of_a_record_of_c_is_a_torn_tail() {
    let whole = CFile::new(7).full(1, b"one", READY);
    let next = whole.clone().full(2, b"two", READY);
    // C makes four writes a record, each after the other.
    for written in [4, 4 + 7, 4 + 7 + 80] {
        let mut file = whole.clone();
        file.bytes.extend_from_slice(&next.bytes[whole.bytes.len()..whole.bytes.len() + written]);
        let (summary, restored) = replay(&[&file.zeros(4096)], false).unwrap();
        assert_eq!((ids(&restored), summary.tails.len()), (vec![1], 1), "{written} bytes written");
    }
}

#[test]
fn every_beginning_of_a_job_larger_than_a_file_of_c_is_a_torn_tail() {
    let before = CFile::new(7).full(1, b"one", READY).zeros(512);
    // Each number looks like the beginning of a short record.
    let numbers: Vec<u8> = (0..1250_u64).flat_map(u64::to_le_bytes).collect();
    for (version, body) in [(5, &[b'x'; 10_000][..]), (7, &[b'x'; 10_000]), (5, &numbers), (7, &numbers)] {
        let (length_bytes, fixed_bytes) = if version == 5 { (8, 77) } else { (4, 80) };
        let head_bytes = 4 + length_bytes + 7 + fixed_bytes;
        let whole = CFile::new(version).full(2, body, READY);
        // C 1.4.6 makes no file in advance, but the server that was started next has made one.
        let next = if version == 5 { CFile::new(5).full(3, b"next", READY) } else { CFile::new(7) };
        for next in [None, Some(next.zeros(4096))] {
            // C was killed between two writes, or in that of the body.
            let pieces = [4 + length_bytes, 4 + length_bytes + 7, head_bytes, head_bytes + 1];
            for written in pieces.into_iter().chain([4096, 8192, 9000, head_bytes + 10_001]) {
                let mut file = whole.clone();
                file.bytes.truncate(written);
                let file = file.zeros(8192_usize.saturating_sub(written));
                let files: Vec<_> = [&before, &file].into_iter().chain(&next).collect();
                let (summary, restored) = replay(&files, false).unwrap();
                let tail = summary.tails[..].first().map(|tail| (tail.file, tail.offset));
                let expected = if version == 5 && next.is_some() { vec![1, 3] } else { vec![1] };
                assert_eq!((ids(&restored), tail), (expected, Some((2, 4))), "{version}, {written} bytes");
            }
        }
    }
}

#[test]
fn a_job_larger_than_a_file_of_c_1_4_is_torn_after_other_jobs() {
    let before = CFile::new(5).full(1, b"one", READY);
    let mut file = before.clone().full(2, &[b'x'; 10_000], READY);
    file.bytes.truncate(9000);
    let (summary, restored) = replay(&[&file], false).unwrap();
    assert_eq!((ids(&restored), summary.tails[0].offset), (vec![1], before.bytes.len() as u64));
}

#[test]
fn deletes_of_jobs_that_c_1_4_has_stored_with_a_ttr_of_0_count() {
    for version in [5, 7] {
        let deleted = CFile::with_ttr_of_0(version).full(1, b"one", READY).short(1, 3, DELETED);
        for (file, left) in [(deleted.clone(), vec![]), (deleted.full(2, b"two", READY), vec![2])] {
            let (summary, restored) = replay(&[&file.zeros(512)], false).unwrap();
            assert_eq!((ids(&restored), summary.tails.len()), (left, 0), "version {version}");
        }
    }
}

#[test]
fn a_record_with_a_damaged_length_hides_no_records_after_it() {
    for version in [5, 7] {
        let damaged = CFile::new(version).full(1, &[b'x'; 300], READY);
        let size_at = 4 + if version == 5 { 8 } else { 4 } + 7 + 32;
        let next = [
            damaged.clone().full(256, b"next", READY),
            damaged.clone().short(1, 300, DELETED),
            damaged.clone().short(256, 5, BURIED),
        ];
        let of_0 = CFile::with_ttr_of_0(version).full(1, &[b'x'; 300], READY).full(2, b"next", READY);
        for mut file in next.into_iter().chain([of_0]) {
            file.bytes[size_at + 2] ^= 1;
            let refused = refusals(&[&file.zeros(4096)]);
            assert_eq!(refused, [LogFault::BadRecord { file: 1, offset: 4 }], "version {version}");
        }
    }
}

/// In versions of C after 1.4.6, a job that is larger than a file is the first one of its file, and the last one that a
/// killed C has written.
#[test]
fn a_record_that_ends_after_its_file_is_torn_only_where_c_was_killed() {
    let first = CFile::new(7).full(1, &[b'x'; 300], READY);
    let offset = first.bytes.len();
    let last = first.clone().full(2, &[b'y'; 300], READY);
    let next = CFile::new(7).full(3, b"next", READY).zeros(4096);
    let (mut longer, mut cut) = (last.clone(), last);
    longer.bytes[offset + 4 + 7 + 32 + 2] ^= 1;
    cut.bytes.truncate(offset + 200);
    for damaged in [longer, cut] {
        let refused = [LogFault::BadRecord { file: 1, offset: offset as u64 }];
        assert_eq!(refusals(&[&damaged]), refused);
        assert_eq!(refusals(&[&damaged, &next]), refused);
    }
    let mut only = first;
    only.bytes.truncate(200);
    assert_eq!(refusals(&[&only, &next]), [LogFault::BadRecord { file: 1, offset: 4 }]);
    assert!(replay(&[&only, &CFile::new(7).zeros(4096)], false).unwrap().1.is_empty());
}

/// C writes a short record over zeros. Of one that crosses the end of a page, a crash can leave the first part; its
/// state is then 0, which is that of a delete.
#[test]
fn the_beginning_of_a_short_record_of_c_deletes_no_job() {
    for version in [5, 7] {
        let before = CFile::new(version).full(1, b"one", READY).full(257, b"two", READY);
        let whole = before.clone().short(257, 3, BURIED);
        let id_at = before.bytes.len() + if version == 5 { 8 } else { 4 };
        for written in id_at + 1..=id_at + 24 {
            let mut file = whole.clone();
            file.bytes.truncate(written);
            let (summary, restored) = replay(&[&file.zeros(4096)], false).unwrap();
            assert_eq!((ids(&restored), summary.tails.len()), (vec![1, 257], 1), "{version}, {written}");
        }
    }
}

#[test]
fn a_torn_copy_does_not_drop_a_job_whose_original_is_whole() {
    let original = CFile::new(7).full(1, b"original", READY).zeros(512);
    let copy = CFile::new(7).full_without_body(1, 8).zeros(512);
    let (summary, restored) = replay(&[&original, &copy], false).unwrap();
    assert_eq!(restored[0].2, b"original");
    assert_eq!(summary.tails.len(), 1);
}

#[test]
fn a_zeroed_page_of_a_c_file_does_not_silently_end_it() {
    let mut file = CFile::new(7);
    for id in 1..=100 {
        file = file.full(id, b"some body or other", READY);
    }
    let mut file = file.zeros(4096);
    file.bytes[4096..8192].fill(0);
    let refused = refusals(&[&file]);
    assert!(matches!(refused[..], [LogFault::BadRecord { file: 1, .. }]), "{refused:?}");
    let (summary, restored) = replay(&[&file], true).unwrap();
    assert_eq!(restored.last().map(|last| last.0.id), Some(JobId(100)), "records after the damage are found");
    assert_eq!((summary.tails.len(), summary.warnings.len()), (1, 1));
}

#[test]
fn an_id_that_would_leave_none_for_other_jobs_is_damage() {
    for id in [1 << 63, u64::MAX - 1, u64::MAX] {
        let file = CFile::new(7).full(1, b"before", READY).full(id, b"x", READY).full(2, b"after", READY);
        let refused = refusals(&[&file.zeros(512)]);
        assert!(matches!(refused[..], [LogFault::BadRecord { file: 1, .. }]), "{id}: {refused:?}");
    }
    let (_, restored) = replay(&[&CFile::new(7).full((1 << 63) - 1, b"x", READY).zeros(512)], false).unwrap();
    assert_eq!(ids(&restored), [(1 << 63) - 1]);
}

#[test]
fn a_short_record_with_another_body_size_is_invalid() {
    let file = CFile::new(7).full(1, b"12345678", READY).short(1, 7000, BURIED).full(2, b"after", READY);
    let file = file.zeros(512);
    assert!(matches!(refusals(&[&file])[..], [LogFault::BadRecord { file: 1, offset: 105 }]));
    let (_, restored) = replay(&[&file], true).unwrap();
    assert_eq!(ids(&restored), [1, 2]);
    assert_eq!((restored[0].0.state, &restored[0].2[..]), (JobState::Ready, &b"12345678"[..]));
}

#[test]
fn a_later_full_record_of_another_size_replaces_the_job() {
    let file =
        CFile::new(7).full(1, b"12345678", READY).full(1, b"much longer than before", READY).zeros(512);
    let (_, restored) = replay(&[&file], false).unwrap();
    assert_eq!(restored[0].2, b"much longer than before");
}

#[test]
fn a_bad_state_byte_does_not_drop_the_rest() {
    let file = CFile::new(7).full(1, b"one", READY).full(2, b"two", 9).full(3, b"three", READY).zeros(512);
    assert!(matches!(refusals(&[&file])[..], [LogFault::BadRecord { file: 1, .. }]));
    assert_eq!(ids(&replay(&[&file], true).unwrap().1), [1, 3]);
}

#[test]
fn short_records_of_unknown_jobs_are_counted_and_ignored() {
    let file = CFile::new(7).short(9, 3, READY).short(9, 3, DELETED).full(2, b"two", READY).zeros(512);
    let (summary, restored) = replay(&[&file], false).unwrap();
    assert_eq!((ids(&restored), summary.ignored_records), (vec![2], 2));
    assert_eq!(summary.next_job_id, 10, "the id in a delete was assigned, too");
}

#[test]
fn version_5_is_read() {
    let file = CFile::new(5).full(1, b"old", READY).full(2, b"gone", READY).short(2, 4, DELETED).zeros(512);
    let (_, restored) = replay(&[&file], false).unwrap();
    assert_eq!(ids(&restored), [1]);
    let record = restored[0].0;
    assert_eq!((record.delay_s, record.ttr_s), (2.into(), 60.into()));
    assert_eq!(record.created_at, Timestamp(1_600_000_000_000_000_000));
}

#[test]
fn unknown_versions_and_indexes_beyond_the_format_are_refused() {
    let file = CFile::new(6).full(1, b"x", READY).zeros(512);
    assert_eq!(refusals(&[&file]), [LogFault::UnknownVersion { file: 1, version: 6 }]);
    let known = CFile::new(7).zeros(512).bytes;
    let disk = SimDisk::with_files(&BTreeMap::from([(2_147_483_647, known)]));
    let opened = open(&disk, config(SyncPolicy::EachCommit, 8192, 1), NOW);
    assert!(matches!(opened, Err(OpenError::TooManyFiles)));
}

#[test]
fn a_gap_among_files_of_c_is_a_warning() {
    let file = CFile::new(7).full(1, b"x", READY).zeros(512);
    let other = CFile::new(7).full(2, b"y", READY).zeros(512);
    let disk = SimDisk::with_files(&BTreeMap::from([(1, file.bytes), (3, other.bytes)]));
    let (_, summary, restored) = open(&disk, config(SyncPolicy::EachCommit, 8192, 1), NOW).unwrap();
    assert_eq!((ids(&restored), summary.warnings), (vec![1, 2], vec![Warning::Gap { file: 2 }]));
}

#[test]
fn the_summary_counts_files_records_and_bytes() {
    let first = CFile::new(7).full(1, b"one", READY).full(2, b"two", READY).zeros(512);
    let second = CFile::new(7).short(1, 3, BURIED).full(3, b"three", READY).short(9, 1, READY).zeros(700);
    let bytes = (first.bytes.len() + second.bytes.len()) as u64;
    let (summary, _) = replay(&[&first, &second], false).unwrap();
    assert_eq!((summary.files, summary.records, summary.jobs, summary.bytes), (2, 5, 3, bytes));
    assert_eq!(summary.ignored_records, 1);
}

/// C makes a file and writes its version before it uses it.
#[test]
fn an_empty_file_is_reported_unless_c_has_continued_with_the_next_one() {
    let version = CFile::new(7);
    let zeros = CFile { bytes: vec![0; 512], ..version.clone() };
    let used = CFile::new(7).full(1, b"x", READY).zeros(512);
    let cases: [(&[&CFile], &[u32]); 7] = [
        (&[&version], &[1]),
        (&[&version, &used], &[]),
        (&[&used, &version, &used], &[]),
        (&[&version, &version], &[2]),
        (&[&version, &zeros], &[1, 2]),
        (&[&zeros, &used], &[1]),
        (&[&used, &version], &[2]),
    ];
    for (files, blank) in cases {
        let (summary, _) = replay(files, false).unwrap();
        let expected: Vec<Warning> = blank.iter().map(|&file| Warning::Blank { file }).collect();
        assert_eq!(summary.warnings, expected);
    }
}

#[test]
fn a_file_that_others_know_to_have_records_is_not_taken_for_one_that_was_never_used() {
    let mut fixture = Fixture::open(&SimDisk::default(), SyncPolicy::EachCommit, 8192);
    while fixture.disk.files().len() < 5 {
        fixture.put().unwrap();
        fixture.commit();
    }
    let files = fixture.disk.files();
    let newest = fixture.log.stats().current_index;
    assert!(newest >= 3, "some files are full");
    for (&index, bytes) in &files {
        let mut damaged = files.clone();
        damaged.insert(index, vec![0; bytes.len()]);
        let opened = open(&SimDisk::with_files(&damaged), config(SyncPolicy::EachCommit, 8192, 1), NOW);
        match opened {
            Err(OpenError::Faulty(refusals)) => {
                assert!(index <= newest && refusals.contains(&LogFault::DamagedHeader { file: index }));
            }
            Ok((_, summary, _)) => {
                assert!(index > newest, "binlog.{index} has records");
                assert_eq!(summary.warnings, [Warning::Blank { file: index }]);
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn c_may_have_removed_files_behind_ours() {
    let mut fixture = Fixture::open(&SimDisk::default(), SyncPolicy::EachCommit, 8192);
    fixture.put().unwrap();
    fixture.commit();
    let mut files = fixture.disk.files();
    let next = files.keys().last().unwrap() + 1;
    files.insert(next + 1, CFile::new(7).full(90, b"x", READY).zeros(512).bytes);
    let (_, summary, _) =
        open(&SimDisk::with_files(&files), config(SyncPolicy::EachCommit, 8192, 1), NOW).unwrap();
    assert_eq!(summary.warnings, [Warning::Gap { file: next }]);
}

fn job(id: u64, state: JobState) -> JobRecord {
    JobRecord {
        id: JobId(id),
        priority: Priority(1),
        delay_s: 0.into(),
        ttr_s: 60.into(),
        created_at: NOW,
        deadline_at: Timestamp(0),
        counters: Counters::default(),
        state,
    }
}

#[test]
fn an_old_file_is_removed_only_after_its_copies_are_synced_and_after_older_files() {
    let disk = SimDisk::default();
    let settings = config(SyncPolicy::EachCommit, 4096, 1);
    let (mut log, _, _) = open(&disk, settings, NOW).unwrap();
    let (tube, body) = (TubeName::default_tube(), Body::copy_of(&[b'z'; 200]).unwrap());
    let (mut unlinked, mut migrated_until) = (Vec::new(), None);
    for id in 1..=200 {
        while log.reserve_put(7, 200, &EncodedTags::NONE).is_err() {
            let task = disk.next_task().expect("room is pending");
            log.on_completion(task.run(&mut disk.clone()), NOW).unwrap();
        }
        log.append_put(&WholeJob::plain(&job(id, JobState::Ready), &tube, &body), NOW);
        if id > 3 {
            log.append_delete(JobId(id));
        }
        while let Some(id) = log.next_migration() {
            log.append_migrated(&WholeJob::plain(&job(id.0, JobState::Ready), &tube, &body), NOW);
            migrated_until = Some(log.appended());
        }
        log.commit(NOW).unwrap();
        while let Some(task) = disk.next_task() {
            if let StoreTask::Remove { file: index } = task {
                assert!(
                    migrated_until.is_none_or(|until| log.durable() >= until),
                    "unlinked before the sync"
                );
                unlinked.push(index);
            }
            log.on_completion(task.run(&mut disk.clone()), NOW).unwrap();
        }
    }
    assert!(migrated_until.is_some() && unlinked.len() > 3);
    assert!(unlinked.iter().copied().eq(1..=unlinked.len() as u32), "oldest first: {unlinked:?}");
    assert_eq!(ids(&open(&disk, settings, NOW).unwrap().2), [1, 2, 3]);
}

#[test]
fn a_filled_file_is_synced_before_the_next_one() {
    let disk = SimDisk::default();
    let (mut log, _, _) = open(&disk, config(SyncPolicy::Every(50), 4096, 1), NOW).unwrap();
    let (tube, body) = (TubeName::default_tube(), Body::copy_of(&[b'z'; 200]).unwrap());
    let mut synced = Vec::new();
    for id in 1..=60 {
        while log.reserve_put(7, 200, &EncodedTags::NONE).is_err() {
            let task = disk.next_task().expect("room is pending");
            if let StoreTask::Sync(LogPosition { file: index, .. }) = task {
                synced.push(index);
            }
            log.on_completion(task.run(&mut disk.clone()), NOW).unwrap();
        }
        log.append_put(&WholeJob::plain(&job(id, JobState::Ready), &tube, &body), NOW);
        log.commit(NOW).unwrap();
    }
    assert!(synced.len() >= 3 && synced.is_sorted(), "{synced:?}");
    assert_eq!(synced[..3], [1, 2, 3]);
}

#[test]
fn releases_counters_and_the_order_of_burial_survive_restarts_and_compaction() {
    let disk = SimDisk::default();
    let tube = TubeName::default_tube();
    let body = Body::copy_of(&[b'b'; 50]).unwrap();
    let counters = Counters { reserves: 5, timeouts: 4, releases: 3, buries: 2, kicks: 1 };
    let changed = |id, state| JobRecord { counters, priority: Priority(77), ..job(id, state) };
    let burial_order = [7, 2, 9, 1];
    let (mut log, _, _) = open(&disk, config(SyncPolicy::EachCommit, 4096, 1), NOW).unwrap();
    for id in 1..=10 {
        log.reserve_put(7, 50, &EncodedTags::NONE).unwrap();
        log.append_put(&WholeJob::plain(&job(id, JobState::Ready), &tube, &body), NOW);
    }
    for id in burial_order {
        log.append_update(&changed(id, JobState::Buried), 50, NOW);
    }
    log.append_update(&changed(3, JobState::Ready), 50, NOW);
    log.commit(NOW).unwrap();
    for seed in 2..5 {
        let (mut log, _, restored) = open(&disk, config(SyncPolicy::EachCommit, 4096, seed), NOW).unwrap();
        let buried = restored.iter().filter(|(record, ..)| record.state == JobState::Buried);
        assert!(buried.map(|(record, ..)| record.id.0).eq(burial_order));
        let jobs: BTreeMap<u64, JobRecord> =
            restored.iter().map(|(record, ..)| (record.id.0, *record)).collect();
        assert_eq!(jobs[&3], changed(3, JobState::Ready));
        assert_eq!(jobs[&9], changed(9, JobState::Buried));
        // All of them are copied, in the order in which they were put.
        for record in jobs.values() {
            while log.reserve_put(7, 50, &EncodedTags::NONE).is_err() {
                let task = disk.next_task().expect("room is pending");
                log.on_completion(task.run(&mut disk.clone()), NOW).unwrap();
            }
            log.append_migrated(&WholeJob::plain(record, &tube, &body), NOW);
        }
        log.commit(NOW).unwrap();
    }
}

#[test]
fn ids_are_not_assigned_twice_even_if_all_jobs_and_their_files_are_gone() {
    let disk = SimDisk::default();
    let (tube, body) = (TubeName::default_tube(), Body::copy_of(b"").unwrap());
    let (mut log, _, _) = open(&disk, config(SyncPolicy::EachCommit, 4096, 1), NOW).unwrap();
    log.reserve_put(7, 0, &EncodedTags::NONE).unwrap();
    log.append_put(&WholeJob::plain(&job(1234, JobState::Ready), &tube, &body), NOW);
    log.append_delete(JobId(1234));
    log.commit(NOW).unwrap();
    for seed in 2..6 {
        let (mut log, summary, _) = open(&disk, config(SyncPolicy::EachCommit, 4096, seed), NOW).unwrap();
        assert_eq!(summary.next_job_id, 1235);
        for _ in 0..4 {
            log.commit(NOW).unwrap();
            while let Some(task) = disk.next_task() {
                log.on_completion(task.run(&mut disk.clone()), NOW).unwrap();
            }
        }
    }
    assert!(!disk.names().contains(&FileName::Log(1)));
}

#[test]
fn files_of_every_size_are_made_whole_before_they_are_used() {
    let disk = SimDisk::default();
    let (mut log, _, _) = open(&disk, config(SyncPolicy::EachCommit, 4096, 1), NOW).unwrap();
    let (tube, body) = (TubeName::default_tube(), Body::copy_of(&[b'q'; 30_000]).unwrap());
    while log.reserve_put(7, 30_000, &EncodedTags::NONE).is_err() {
        let task = disk.next_task().expect("room is pending");
        log.on_completion(task.run(&mut disk.clone()), NOW).unwrap();
    }
    let before = disk.used();
    log.append_put(&WholeJob::plain(&job(1, JobState::Ready), &tube, &body), NOW);
    log.commit(NOW).unwrap();
    assert_eq!(disk.used(), before, "no write makes a file longer");
}
