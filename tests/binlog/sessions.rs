//! Reservations of sessions in the log: wherever the log ends, a job is as before or is reserved by the session.

use beanstalkd_binlog::{LoggedReservation, NoRoom, RestoredReservation, SyncPolicy, WholeJob};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{JobId, JobRecord, JobState};
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::c_server::{CServer, peer};
use crate::damage::Files;
use crate::fixture::{Fixture, START, job};
use crate::harness::{config, open};
use crate::torn::{TornRecords, assert_whole_or_nothing, change};
use beanstalkd_testkit::disk::SimDisk;

const FILE_BYTES: u64 = 16 * 1024;
/// C takes the times of the log for those of the wall clock.
const IN_2093: u32 = 3_900_000_000;
/// Names whose attachments have one part, two and five.
const NAMES: [&str; 3] = ["w", "a-worker-with-a-name-of-some-length", LONG_NAME];
const LONG_NAME: &str = concat!(
    "a-worker-with-a-name-of-two-hundred-bytes-a-worker-with-a-name-of-two-hundred-bytes-a-worker-with",
    "-a-name-of-two-hundred-bytes-a-worker-with-a-name-of-two-hundred-bytes-a-worker-with-a-name-of-200-byte",
);
const _: () = assert!(LONG_NAME.len() == TubeName::MAX_BYTES);

/// The log's records of job 1.
type Found = (JobState, u32, Vec<RestoredReservation>);

/// Job 1 in this state.
fn in_state(state: JobState) -> JobRecord {
    let deadline_at = match state {
        JobState::Delayed => START.plus_seconds(IN_2093),
        JobState::Ready | JobState::Reserved | JobState::Buried => Timestamp(0),
    };
    JobRecord { state, delay_s: IN_2093.into(), deadline_at, ..job(1) }
}

fn reservation(name: &str) -> LoggedReservation<'_> {
    let until = START.plus_seconds(IN_2093 - 1);
    LoggedReservation { until, reserves: 1, grace_ms: 60_000, identity: "", name }
}

/// The files before and after a session reserves a job in this state, and with the record in state 2 that logs of
/// earlier versions have if it `is_old`.
fn files(state: JobState, name: &str, is_old: bool) -> [Files; 2] {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, FILE_BYTES);
    fixture.put().unwrap();
    fixture.update(&in_state(state)).unwrap();
    fixture.commit();
    let before = disk.files();
    if is_old {
        let mut reserved = in_state(JobState::Reserved);
        reserved.counters.reserves = 1;
        fixture.update(&reserved).unwrap();
    }
    fixture.log.reserve_for_session(0, name.len()).unwrap();
    fixture.log.append_session_reservation(JobId(1), &reservation(name)).unwrap();
    fixture.log.commit(START).unwrap();
    [before, disk.files()]
}

fn found(files: &Files, sync: SyncPolicy) -> Found {
    let disk = SimDisk::with_files(files);
    let (mut log, _, restored) = open(&disk, config(sync, FILE_BYTES, 9), START).unwrap();
    let [(record, ..)] = restored.as_slice() else { panic!("one job: {restored:?}") };
    (record.state, record.counters.reserves, log.take_restored_reservations())
}

#[test]
fn a_reservation_that_is_cut_off_anywhere_has_changed_nothing() {
    for state in [JobState::Ready, JobState::Delayed, JobState::Buried] {
        for name in NAMES {
            let [before, after] = files(state, name, false);
            let LoggedReservation { until, grace_ms, .. } = reservation(name);
            let logged =
                RestoredReservation { id: JobId(1), until, grace_ms, identity: "".into(), name: name.into() };
            for sync in [SyncPolicy::EachCommit, SyncPolicy::Every(50)] {
                assert_eq!(found(&before, sync), (state, 0, vec![]));
                assert_eq!(found(&after, sync), (JobState::Ready, 1, vec![logged.clone()]), "{state:?}");
            }
            assert_whole_or_nothing(&before, &after, TornRecords::MayStay, &format!("{state:?}, {name}"));
        }
    }
}

#[test]
fn logs_of_earlier_versions_say_the_same() {
    for state in [JobState::Ready, JobState::Delayed, JobState::Buried] {
        for name in NAMES {
            let [[before_old, old], [before_new, new]] =
                [true, false].map(|is_old| files(state, name, is_old));
            let sync = SyncPolicy::EachCommit;
            assert_eq!(found(&old, sync), found(&new, sync));
            let bytes = |before, after| change(before, after).1.len();
            assert!(bytes(&before_new, &new) < bytes(&before_old, &old), "it is one record");
        }
    }
}

/// In C, no client has reserved the job. If C has not changed it, the session has it again.
#[test]
fn c_finds_the_job_as_it_was_and_ours_finds_the_session_again() {
    let Some(program) = peer() else { return };
    for state in [JobState::Ready, JobState::Delayed, JobState::Buried] {
        for name in NAMES {
            let [_, after] = files(state, name, false);
            for kicks in [false, true] {
                let directory = tempfile::tempdir().unwrap();
                let path = |number: u32| directory.path().join(format!("binlog.{number}"));
                for (&number, bytes) in &after {
                    std::fs::write(path(number), bytes).unwrap();
                }
                let mut server = CServer::start(&program, directory.path(), 1 << 20);
                let stats = server.stats_job(1).unwrap();
                assert_eq!((stats["state"].as_str(), stats["reserves"].as_str()), (state.as_str(), "0"));
                let kicks = kicks && state == JobState::Buried;
                if kicks {
                    assert_eq!(server.ask("kick-job 1"), "KICKED");
                }
                server.kill();
                let mut files = after.clone();
                for number in files.keys().last().unwrap() + 1.. {
                    let Ok(bytes) = std::fs::read(path(number)) else { break };
                    files.insert(number, bytes);
                }
                let (found, _, reservations) = found(&files, SyncPolicy::Every(50));
                assert_eq!((found, reservations.len()), (JobState::Ready, usize::from(!kicks)), "{state:?}");
            }
        }
    }
}

/// A `move` reserves room for the session's records of the log, too: the older file can be removed with the job.
#[test]
fn a_move_has_room_for_the_session() {
    let mut places = 0;
    for used in 0..60 {
        let disk = SimDisk::default();
        let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
        fixture.put().unwrap();
        fixture.log.append_session_reservation(JobId(1), &reservation(LONG_NAME)).unwrap();
        for _ in 0..used {
            fixture.update(&in_state(JobState::Ready)).unwrap();
        }
        if fixture.log.append_session_reservation(JobId(1), &reservation(LONG_NAME)).is_err() {
            continue;
        }
        fixture.commit_alone();
        let tube = TubeName::parse(b"other").unwrap();
        let names = Some((0, LONG_NAME.len()));
        let reserved = fixture.log.reserve_move(5, fixture.body.len(), &EncodedTags::NONE, names);
        if reserved == Err(NoRoom::Pending) {
            continue;
        }
        places += 1;
        let mut moved = in_state(JobState::Reserved);
        moved.counters.reserves = 1;
        fixture.log.append_moved(&WholeJob::plain(&moved, &tube, &fixture.body), START);
        fixture.log.append_session_reservation(JobId(1), &reservation(LONG_NAME)).unwrap();
    }
    assert!((1..60).contains(&places), "with room and without: {places}");
}
