//! A `complete` in the log: its puts and its delete exist as a whole or not at all, wherever the log ends.

use std::ops::Range;

use beanstalkd_binlog::{Cooldown, NoRoom, SideEffects, SyncPolicy, WholeJob};
use beanstalkd_types::job::{Body, JobId};
use beanstalkd_types::tags::{EncodedTags, TagSet};
use beanstalkd_types::tube_name::TubeName;

use crate::c_server::{CServer, peer};
use crate::damage::Files;
use crate::fixture::{Fixture, START as NOW, job};
use crate::harness::{config, open};
use crate::torn::{TornRecords, assert_whole_or_nothing, change};
use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::tags::encoded;

const FILE_BYTES: u64 = 16 * 1024;

/// The tags of the puts of a `complete`.
const TAGS: [Option<&str>; 3] = [None, Some("a"), None];

/// Puts the jobs of a `complete` of job `id`, whose bodies have this length.
fn complete(fixture: &mut Fixture, id: u64, body_len: usize) -> Result<(), NoRoom> {
    let bytes: Vec<Vec<u8>> = TAGS
        .iter()
        .map(|group| match *group {
            Some(group) => encoded(TagSet { group: Some(group.try_into().unwrap()), ..TagSet::NONE }),
            None => Vec::new(),
        })
        .collect();
    let tags: Vec<EncodedTags<'_>> = bytes.iter().map(|bytes| EncodedTags::read(bytes).unwrap()).collect();
    let room = loop {
        let puts = tags.iter().map(|tags| (7, body_len, tags));
        match fixture.log.reserve_complete(puts, 0) {
            Ok(room) => break room,
            Err(NoRoom::Full) => return Err(NoRoom::Full),
            Err(NoRoom::Pending) => fixture.help().unwrap(),
        }
    };
    fixture.log.begin_complete(room);
    for tags in &tags {
        let body = Body::copy_of(&vec![b'x'; body_len]).unwrap();
        let record = job(fixture.next_id);
        fixture.log.append_put(
            &WholeJob {
                tags: *tags,
                is_part_of_complete: true,
                ..WholeJob::plain(&record, &TubeName::default_tube(), &body)
            },
            NOW,
        );
        fixture.next_id += 1;
    }
    let cooldown = Some(Cooldown { tube: "default", key: "k", until: NOW.plus_seconds(60) });
    let side_effects = SideEffects { cooldown, freed_group: None, completes: Some(TAGS.len() as u8) };
    fixture.log.append_delete_with(JobId(id), &side_effects);
    fixture.log.check_invariants();
    Ok(())
}

/// The ids of the jobs that a start finds, and those whose cooldowns run.
fn found(files: &Files) -> (Vec<u64>, Vec<u64>) {
    let settings = config(SyncPolicy::EachCommit, FILE_BYTES, 9);
    let (log, _, restored) = open(&SimDisk::with_files(files), settings, NOW).unwrap();
    let mut ids: Vec<u64> = restored.iter().map(|(record, ..)| record.id.0).collect();
    ids.sort_unstable();
    (ids, log.cooldowns().map(|(id, _)| id.0).collect())
}

/// A job with a key, and its `complete`: the files before and after it.
fn files(body_len: usize) -> [Files; 2] {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, FILE_BYTES);
    let tags = TagSet {
        idempotency: Some(beanstalkd_types::tags::Idempotency {
            key: "k".try_into().unwrap(),
            cooldown_s: 60.into(),
        }),
        ..TagSet::NONE
    };
    let bytes = encoded(tags);
    let tags = EncodedTags::of(&bytes, tags.into());
    fixture.log.reserve_put(7, 1, &tags).unwrap();
    let body = Body::copy_of(b"x").unwrap();
    fixture
        .log
        .append_put(&WholeJob { tags, ..WholeJob::plain(&job(1), &TubeName::default_tube(), &body) }, NOW);
    fixture.next_id = 2;
    fixture.log.commit(NOW).unwrap();
    let before = disk.files();
    complete(&mut fixture, 1, body_len).unwrap();
    fixture.log.commit(NOW).unwrap();
    [before, disk.files()]
}

#[test]
fn a_complete_that_is_cut_off_anywhere_has_changed_nothing() {
    for body_len in [0, 1, 700] {
        let [before, after] = files(body_len);
        assert_eq!([&before, &after].map(found), [(vec![1], vec![]), (vec![2, 3, 4], vec![1])]);
        assert_whole_or_nothing(
            &before,
            &after,
            TornRecords::AreRemoved,
            &format!("bodies of {body_len} bytes"),
        );
    }
}

#[test]
fn a_complete_stands_in_one_file_and_one_that_fits_into_none_is_refused() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, FILE_BYTES);
    fixture.put().unwrap();
    assert_eq!(complete(&mut fixture, 1, FILE_BYTES as usize / 3), Err(NoRoom::Full));
    // Each fits into a file that begins with it, and few fit into the rest of the previous file.
    for _ in 0..20 {
        fixture.put().unwrap();
        fixture.commit();
        let id = fixture.next_id - 1;
        complete(&mut fixture, id, 4000).unwrap();
        fixture.log.commit(NOW).unwrap();
        fixture.log.check_invariants();
        let (ids, _) = found(&disk.files());
        assert!(!ids.contains(&id) && ids.ends_with(&[id + 1, id + 2, id + 3]), "{id}: {ids:?}");
        for done in id + 1..=id + 3 {
            fixture.log.append_delete(JobId(done));
        }
        fixture.commit();
    }
    assert_eq!(found(&disk.files()).0, [1]);
}

/// The delete comes last: C loses no job, wherever the log ends.
#[test]
fn c_reads_a_complete_as_its_puts_and_a_delete() {
    let Some(program) = peer() else { return };
    let [before, after] = files(700);
    let (index, Range { start, end }) = change(&before, &after);
    for cut in [start, start + 200, end - 100, end] {
        let directory = tempfile::tempdir().unwrap();
        for (number, bytes) in &after {
            let mut bytes = bytes.clone();
            if *number == index {
                bytes[cut..].fill(0);
            }
            std::fs::write(directory.path().join(format!("binlog.{number}")), bytes).unwrap();
        }
        let mut server = CServer::start(&program, directory.path(), 1 << 20);
        let there: Vec<u64> = (1..=5).filter(|&id| server.stats_job(id).is_some()).collect();
        let is_whole = there == [2, 3, 4];
        assert!(is_whole || there.contains(&1), "cut at {cut} of {start} to {end}: {there:?}");
        assert_eq!(is_whole, cut == end, "cut at {cut} of {start} to {end}: {there:?}");
    }
}
