//! Full disks, failing disks, and the number of operations on a disk that works.

use std::collections::VecDeque;
use std::io::ErrorKind;

use beanstalkd_binlog::{
    BinlogError, Completion, Disk, FileName, LogPosition, LogState, LoggedReservation, NoRoom, StoreTask,
    SyncPolicy, WholeJob,
};
use beanstalkd_types::clock::NS_PER_S;
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState};
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::fixture::{Fixture, START, job};
use crate::harness::{Harness, config, open};
use beanstalkd_testkit::disk::{EMFILE, Random, SimDisk};

#[test]
fn a_delete_never_fails_for_lack_of_space() {
    let disk = SimDisk::default();
    disk.set_room(Some(100_000));
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 8192);
    let count = fixture.fill();
    assert!(count > 200, "{count}");
    assert_eq!(fixture.log.stats().state, LogState::Full);
    for id in 1..=count {
        fixture.log.append_delete(JobId(id));
        fixture.commit();
        assert_eq!(fixture.log.durable(), fixture.log.appended(), "the delete of {id} is on disk");
    }
    let (_, _, restored) = open(&disk, config(SyncPolicy::EachCommit, 8192, 8), START).unwrap();
    assert!(restored.is_empty());
}

#[test]
fn deletes_after_a_restart_on_a_full_disk_are_logged_as_room_comes() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    for _ in 0..300 {
        fixture.put().unwrap();
        fixture.commit();
    }
    // There is room only for the file that a start needs.
    let disk = disk.crashed_image(&mut Random::new(1));
    disk.set_room(Some(disk.used() + 4096));
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    assert_eq!(fixture.put(), Err(NoRoom::Full));
    for id in 1..=300 {
        fixture.log.append_delete(JobId(id));
    }
    fixture.commit();
    assert!(fixture.log.durable() < fixture.log.appended(), "there was no room for all");
    disk.set_room(None);
    for _ in 0..20 {
        fixture.reach(fixture.now.plus_seconds(1));
        fixture.commit();
    }
    assert_eq!(fixture.log.durable(), fixture.log.appended());
    let (_, _, restored) = open(&disk, config(SyncPolicy::EachCommit, 4096, 8), START).unwrap();
    assert!(restored.is_empty());
}

#[test]
fn a_full_disk_refuses_changes_and_takes_them_again_a_second_after_room_comes() {
    let disk = SimDisk::default();
    disk.set_room(Some(40_000));
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 8192);
    fixture.fill();
    let buried = JobRecord { state: JobState::Buried, ..job(1) };
    while fixture.update(&buried).is_ok() {
        fixture.commit();
    }
    assert_eq!((fixture.put(), fixture.update(&buried)), (Err(NoRoom::Full), Err(NoRoom::Full)));
    disk.set_room(None);
    let retry = fixture.log.next_deadline().expect("it tries again by itself");
    assert!(retry.since_ns(fixture.now) <= NS_PER_S);
    fixture.reach(retry);
    assert_eq!((fixture.put(), fixture.update(&buried)), (Ok(()), Ok(())));
    assert_eq!(fixture.log.stats().state, LogState::Ok);
}

#[test]
fn changes_for_which_the_next_file_is_being_made_are_logged_in_their_last_state() {
    const JOBS: u64 = 30;
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 8192);
    for _ in 0..JOBS {
        fixture.put().unwrap();
    }
    fixture.commit();
    let reserved = |id| {
        let counters = Counters { reserves: 1, ..Counters::default() };
        JobRecord { counters, state: JobState::Reserved, ..job(id) }
    };
    // The helper is slow, and the files made ahead are filled.
    while fixture.log.reserve_update().is_ok() {
        fixture.log.append_update(&reserved(1), fixture.body.len(), fixture.now);
    }
    let buried = |id| JobRecord { state: JobState::Buried, ..reserved(id) };
    // The greatest ids come first; 7 is not buried any more, 6 is buried twice, 5 is deleted later.
    let changes =
        [buried(9), buried(8), buried(7), reserved(7), buried(6), reserved(6), buried(6), buried(5)];
    for record in &changes {
        assert_eq!(fixture.log.reserve_update(), Err(NoRoom::Pending));
        fixture.log.postpone_update(record, fixture.body.len(), false, fixture.now);
    }
    fixture.log.append_delete(JobId(5));
    assert_eq!(fixture.log.next_postponed(), None, "there is no room yet");
    fixture.log.commit(fixture.now).unwrap();
    fixture.help().unwrap();
    // A burial while others are still postponed comes after them.
    fixture.log.append_update(&buried(2), fixture.body.len(), fixture.now);
    let mut logged = Vec::new();
    while let Some(id) = fixture.log.next_postponed() {
        let last = changes.iter().rfind(|record| record.id == id).unwrap();
        fixture.log.append_update(last, fixture.body.len(), fixture.now);
        logged.push(id.0);
    }
    assert_eq!(logged, [6, 7, 8, 9]);
    fixture.log.commit(fixture.now).unwrap();
    fixture.help().unwrap();
    let (_, _, restored) = open(&disk, config(SyncPolicy::EachCommit, 8192, 8), fixture.now).unwrap();
    let order: Vec<u64> = restored.iter().map(|(record, ..)| record.id.0).collect();
    assert_eq!(order.len() as u64, JOBS - 1);
    assert!(order.ends_with(&[9, 8, 6, 2]), "buried in this order: {order:?}");
    let counted = restored.iter().filter(|(record, ..)| record.counters.reserves == 1);
    let mut counted: Vec<u64> = counted.map(|(record, ..)| record.id.0).collect();
    counted.sort_unstable();
    assert_eq!(counted, [1, 2, 6, 7, 8, 9]);
}

#[test]
fn an_endless_release_with_delay_keeps_to_three_times_the_live_bytes_and_two_files() {
    const FILE_BYTES: u64 = 16384;
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::Every(50), FILE_BYTES);
    for _ in 0..50 {
        fixture.put().unwrap();
    }
    fixture.commit();
    for round in 0..100_000_u32 {
        let id = 1 + u64::from(round % 50);
        let record =
            JobRecord { state: JobState::Delayed, delay_s: 1.into(), deadline_at: fixture.now, ..job(id) };
        fixture.update(&record).unwrap();
        fixture.now = fixture.now + 5_000_000;
        fixture.log.on_deadline(fixture.now).unwrap();
        fixture.commit();
        let stats = fixture.log.stats();
        let bound = 3 * 50 * (4 + 7 + 80 + 102) + 2 * FILE_BYTES;
        assert!(disk.used() <= bound, "round {round}: {} bytes, {stats:?}", disk.used());
    }
    assert!(fixture.log.stats().records_migrated > 0);
    assert_eq!(open(&disk, config(SyncPolicy::Every(50), FILE_BYTES, 9), fixture.now).unwrap().2.len(), 50);
}

/// Endless pipelines fill each file as soon as it exists. The disk makes files at once, but syncs and removes them only
/// when nothing else is left to do. The directory never exceeds its bound.
#[test]
fn pipelines_of_releases_keep_to_the_bound_however_late_the_disk_syncs() {
    const JOBS: u64 = 50;
    const DEPTH: u64 = 500;
    for (file_bytes, bound_files) in [(4096, 0), (16_384, 0), (1 << 20, 4)] {
        for sync in [SyncPolicy::EachCommit, SyncPolicy::Every(50), SyncPolicy::Never] {
            let disk = SimDisk::default();
            let mut fixture = Fixture::open(&disk, sync, file_bytes);
            for _ in 0..JOBS {
                fixture.put().unwrap();
            }
            let mut tasks = VecDeque::new();
            let live = JOBS * (4 + 7 + 80 + 102 + 2 * 84);
            let bound = (3 * live + 2 * file_bytes).max(bound_files * file_bytes);
            for round in 0..200_000_u64 {
                let record =
                    JobRecord { state: JobState::Delayed, delay_s: 1.into(), ..job(1 + round % JOBS) };
                while let Err(no_room) = fixture.log.reserve_update() {
                    assert_eq!(no_room, NoRoom::Pending, "-s {file_bytes} {sync:?}");
                    // The turn ends with a command that waits for room.
                    fixture.commit_alone();
                    fixture.help_late(&mut tasks);
                    let used = disk.used();
                    assert!(used <= bound, "-s {file_bytes} {sync:?} round {round}: {used} of {bound} bytes");
                }
                fixture.log.append_update(&record, fixture.body.len(), fixture.now);
                if round % DEPTH == 0 {
                    fixture.now = fixture.now + 1_000_000;
                    fixture.commit_alone();
                }
            }
            let stats = fixture.log.stats();
            assert!(stats.records_migrated < stats.records_written / 2, "{stats:?}");
        }
    }
}

#[test]
fn a_turn_is_one_write_and_one_sync_however_much_was_logged() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
    fixture.help().unwrap();
    for turn in 0..5 {
        for _ in 0..200 {
            fixture.put().unwrap();
        }
        let before = disk.operations();
        fixture.log.commit(fixture.now).unwrap();
        assert_eq!(disk.operations() - before, 1, "turn {turn}");
        assert!(fixture.log.durable() < fixture.log.appended(), "no reply leaves before the sync");
        let task = fixture.disk.next_task().unwrap();
        assert!(matches!(task, StoreTask::Sync(LogPosition { file: 1, .. })));
        assert_eq!(fixture.disk.next_task(), None);
        fixture.log.on_completion(task.run(&mut disk.clone()), fixture.now).unwrap();
        assert_eq!(fixture.log.durable(), fixture.log.appended());
    }
}

#[test]
fn an_idle_log_is_synced_in_time_marked_once_and_then_left_alone() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::Every(50), 1 << 20);
    fixture.help().unwrap();
    fixture.put().unwrap();
    fixture.log.commit(fixture.now).unwrap();
    assert_eq!(fixture.log.next_deadline(), Some(fixture.now + 50_000_000));
    let mut deadlines = 0;
    while let Some(at) = fixture.log.next_deadline() {
        deadlines += 1;
        assert!(deadlines < 10, "an idle log has no end of deadlines");
        fixture.reach(at);
    }
    assert_eq!(fixture.log.durable(), fixture.log.appended());
    // The whole log is marked as durable, so a missing record is damage.
    let mut files = disk.files();
    files.get_mut(&1).unwrap()[300..340].fill(0);
    let damaged = SimDisk::with_files(&files);
    assert!(open(&damaged, config(SyncPolicy::Every(50), 1 << 20, 2), START).is_err());
}

#[test]
fn a_job_larger_than_a_file_gets_a_file_of_its_own_size() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    fixture.put().unwrap();
    fixture.body = Body::copy_of(&[b'y'; 50_000]).unwrap();
    fixture.put().unwrap();
    fixture.body = Body::copy_of(b"").unwrap();
    fixture.put().unwrap();
    fixture.commit();
    let (_, _, restored) = open(&disk, config(SyncPolicy::EachCommit, 4096, 2), START).unwrap();
    let lengths: Vec<usize> = restored.iter().map(|(_, _, body, _)| body.len()).collect();
    assert_eq!(lengths, [100, 50_000, 0]);
}

#[test]
fn after_a_failed_write_or_sync_nothing_becomes_durable_and_the_log_stops() {
    let mut stopped = 0;
    for nth in 1..200 {
        let disk = SimDisk::default();
        let settings = config(SyncPolicy::EachCommit, 4096, nth);
        let mut harness = Harness::begin(disk.clone(), settings, None).unwrap();
        disk.fail_after(nth);
        let mut random = Random::new(nth);
        let Some(error) = (0..200).find_map(|_| harness.turn(&mut random).err()) else { continue };
        stopped += 1;
        assert!(!matches!(error, BinlogError::NotReserved | BinlogError::Stopped), "{error}");
        let durable = harness.log.durable();
        while harness.disk.next_task().is_some() {}
        assert!(matches!(harness.log.commit(harness.now), Err(BinlogError::Stopped)));
        assert_eq!((harness.disk.next_task(), harness.log.durable()), (None, durable), "no task is started");
        assert_eq!(harness.log.stats().state, LogState::Failed);
        // The next start finds all that was durable before.
        Harness::begin(disk.crashed_image(&mut random), settings, Some(&harness)).unwrap();
    }
    assert!(stopped > 50, "{stopped} of the failures have stopped the log");
}

#[test]
fn a_file_stays_as_it_is_until_no_job_is_left_in_it() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    fixture.put().unwrap();
    fixture.commit();
    fixture.log.close(fixture.now).unwrap();
    assert_eq!(disk.names(), [FileName::Log(1)], "a clean exit leaves no file made ahead");
    let before = disk.files();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    assert_eq!(disk.files()[&1], before[&1], "a start changes no whole file");
    fixture.log.append_delete(JobId(1));
    for _ in 0..3 {
        fixture.commit();
    }
    assert!(!disk.names().contains(&FileName::Log(1)));
    assert!(disk.clone().size(FileName::Log(2)).is_ok());
}

#[test]
fn no_id_is_assigned_twice_however_many_were_acknowledged_without_a_sync() {
    const JOBS: u64 = 130_000;
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::Every(3_600_000), 32 << 20);
    fixture.body = Body::copy_of(b"").unwrap();
    let (mut waits, mut acknowledged) = (0, 0);
    while fixture.next_id <= JOBS {
        let id = fixture.next_id;
        if let Err(no_room) = fixture.log.reserve_id(JobId(id)) {
            assert_eq!(no_room, NoRoom::Pending);
            fixture.commit();
            waits += 1;
            continue;
        }
        fixture.put().unwrap();
        fixture.log.append_delete(JobId(id));
        if id.is_multiple_of(13_000) {
            // Replies are sent after this, and the helper thread is late.
            fixture.commit_alone();
            acknowledged = id;
            if id.is_multiple_of(65_000) {
                let image = disk.crashed_image(&mut Random::new(id));
                let (_, summary, _) =
                    open(&image, config(SyncPolicy::Every(50), 1 << 20, id), fixture.now).unwrap();
                let next = summary.next_job_id;
                assert!(
                    next > acknowledged,
                    "{next} would be assigned again; {acknowledged} are acknowledged"
                );
            }
        }
    }
    assert!((1..=10).contains(&waits), "{waits} waits for {acknowledged} jobs");
    fixture.log.close(fixture.now).unwrap();
    let (_, summary, _) = open(&disk, config(SyncPolicy::Every(50), 1 << 20, 2), fixture.now).unwrap();
    assert_eq!(summary.next_job_id, fixture.next_id, "a clean exit leaves no gap");
}

/// Fills a disk with jobs of 10 kB, deletes them all, and fills it again. Returns the numbers of jobs.
fn fill_twice(disk_bytes: u64, file_bytes: u64) -> (u64, u64) {
    let disk = SimDisk::default();
    disk.set_room(Some(disk_bytes));
    let mut fixture = Fixture::open(&disk, SyncPolicy::Never, file_bytes);
    fixture.body = Body::copy_of(&[b'x'; 10_000]).unwrap();
    let first = fixture.fill();
    for id in 1..=first {
        fixture.log.append_delete(JobId(id));
        fixture.commit();
    }
    for _ in 0..5 {
        fixture.reach(fixture.now.plus_seconds(1));
    }
    (first, fixture.fill())
}

#[test]
fn a_disk_of_less_than_two_files_takes_what_fits_and_again_after_the_deletes() {
    const FILE: u64 = 10 << 20;
    for disk_bytes in [2 << 20, 5 << 20, FILE + 4096, 16 << 20, 3 * FILE] {
        let (first, again) = fill_twice(disk_bytes, FILE);
        let whole = disk_bytes / 10_100;
        assert!(first >= whole / 2 && again >= whole / 2, "{disk_bytes}: {first}, then {again} of {whole}");
    }
    let (first, _) = fill_twice(16 << 20, FILE);
    assert!(first >= 1030, "C takes 1030, this {first}");
}

#[test]
fn a_disk_of_one_file_takes_jobs() {
    let disk = SimDisk::default();
    disk.set_room(Some(4096));
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    let count = fixture.fill();
    assert!(count >= 4, "{count}");
    for id in 1..=count {
        fixture.log.append_delete(JobId(id));
        fixture.commit();
    }
    assert_eq!(fixture.log.durable(), fixture.log.appended());
}

#[test]
fn a_start_on_a_nearly_full_disk_makes_a_shorter_file() {
    const FILE_BYTES: u64 = 512 << 10;
    for (room, made) in [(600 << 10, Some(512 << 10)), (500 << 10, Some(256 << 10)), (60 << 10, None)] {
        let disk = SimDisk::default();
        disk.set_room(Some(room));
        let opened = open(&disk, config(SyncPolicy::EachCommit, FILE_BYTES, 7), START);
        assert_eq!(opened.is_ok(), made.is_some(), "with {room} bytes");
        assert_eq!(disk.files().values().map(Vec::len).next(), made, "with {room} bytes");
    }
}

#[test]
fn a_file_that_cannot_be_removed_or_made_without_a_descriptor_is_tried_again() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    let (mut removals, mut creations) = (0, 0);
    for round in 0..400 {
        fixture.put().unwrap();
        fixture.log.append_delete(JobId(fixture.next_id - 1));
        fixture.commit_alone();
        while let Some(task) = fixture.disk.next_task() {
            // Each is refused once.
            let count = match task {
                StoreTask::Remove { .. } => &mut removals,
                StoreTask::Make { .. } => &mut creations,
                StoreTask::Sync(_) | StoreTask::Shorten { .. } => {
                    fixture.log.on_completion(task.run(&mut disk.clone()), fixture.now).unwrap();
                    continue;
                }
            };
            *count += 1;
            let completion = if *count % 2 == 1 {
                let error = std::io::Error::from_raw_os_error(EMFILE);
                Completion { task, elapsed_us: 1, result: Err(error) }
            } else {
                task.run(&mut disk.clone())
            };
            fixture.log.on_completion(completion, fixture.now).unwrap();
        }
        fixture.now = fixture.now.plus_seconds(1);
        fixture.log.on_deadline(fixture.now).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    assert!(removals > 4 && creations > 4, "{removals}, {creations}");
    assert!(disk.files().len() <= 6, "what was refused is removed later: {:?}", disk.names());
    assert_eq!(fixture.log.stats().state, LogState::Ok);
}

#[test]
fn without_descriptors_commands_wait_and_deletes_are_logged_later() {
    const JOBS: u64 = 300;
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    for _ in 0..JOBS {
        fixture.put().unwrap();
        fixture.commit();
    }
    disk.lack_descriptors(true);
    for id in 1..=JOBS {
        fixture.log.append_delete(JobId(id));
        fixture.commit();
    }
    assert!(fixture.log.durable() < fixture.log.appended(), "not every file can be written");
    assert_eq!(
        fixture.log.reserve_put(7, 100, &EncodedTags::NONE),
        Err(NoRoom::Pending),
        "the room will come"
    );
    for _ in 0..10 {
        let retry = fixture.log.next_deadline().expect("it tries again by itself");
        assert!(retry > fixture.now, "it would try again without a pause");
        fixture.reach(retry);
    }
    disk.lack_descriptors(false);
    fixture.reach(fixture.log.next_deadline().unwrap());
    fixture.put().unwrap();
    fixture.commit();
    assert_eq!(fixture.log.durable(), fixture.log.appended());
    assert_eq!(fixture.log.stats().state, LogState::Ok);
    let (_, _, restored) = open(&disk, config(SyncPolicy::EachCommit, 4096, 8), fixture.now).unwrap();
    assert_eq!(restored.len(), 1);
}

#[test]
fn a_directory_in_which_nothing_can_be_made_any_more_ends_the_log() {
    for kind in [ErrorKind::NotFound, ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied] {
        let mut fixture = Fixture::open(&SimDisk::default(), SyncPolicy::EachCommit, 4096);
        let task = fixture.disk.next_task().expect("a file is made ahead");
        assert!(matches!(task, StoreTask::Make { .. }));
        let completion = Completion { task, elapsed_us: 1, result: Err(kind.into()) };
        let ended = fixture.log.on_completion(completion, fixture.now);
        assert!(matches!(ended, Err(BinlogError::Create { .. })), "{kind:?}");
    }
}

#[test]
fn a_file_is_not_removed_before_the_sync_of_the_marker_that_announces_it() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    while fixture.log.stats().current_index == 1 {
        fixture.put().unwrap();
        fixture.commit();
    }
    for id in 1..fixture.next_id {
        fixture.log.append_delete(JobId(id));
    }
    fixture.commit_alone();
    let tasks: Vec<StoreTask> = std::iter::from_fn(|| fixture.disk.next_task()).collect();
    assert!(tasks.iter().any(|task| matches!(task, StoreTask::Sync(_))), "{tasks:?}");
    // The removal must wait: the sync before it may still fail.
    assert!(!tasks.iter().any(|task| matches!(task, StoreTask::Remove { .. })), "{tasks:?}");
    for task in tasks {
        fixture.log.on_completion(task.run(&mut disk.clone()), fixture.now).unwrap();
    }
    assert!(matches!(fixture.disk.next_task(), Some(StoreTask::Remove { file: 1 })));
}

/// A turn that copies the jobs together with the log's records of the session.
fn turn(fixture: &mut Fixture, reserved: &[JobId], reservation: &LoggedReservation<'_>) {
    while let Some(copied) = fixture.log.next_migration() {
        let tube = TubeName::default_tube();
        fixture.log.append_migrated(&WholeJob::plain(&job(copied.0), &tube, &fixture.body), fixture.now);
        if reserved.contains(&copied) {
            let _ = fixture.log.append_session_reservation_copy(copied, reservation);
        }
    }
    fixture.log.commit(fixture.now).unwrap();
    fixture.log.check_invariants();
    fixture.help().unwrap();
}

/// A session's reservations must be in the log at each moment, also while files are emptied on a full disk.
#[test]
fn a_copy_on_a_full_disk_keeps_the_session_that_has_the_job() {
    for file_bytes in [4096, 8192] {
        for kept in 3..9 {
            let disk = SimDisk::default();
            disk.set_room(Some(60_000));
            let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, file_bytes);
            let name = "n".repeat(180);
            let reservation = LoggedReservation {
                until: START + 3600 * NS_PER_S,
                reserves: 0,
                grace_ms: 60_000,
                identity: "somebody",
                name: &name,
            };
            // Each `kept`th job is of the session; the others leave room on a full disk.
            let mut reserved = Vec::new();
            while fixture.put().is_ok() {
                let id = JobId(fixture.next_id - 1);
                if id.0.is_multiple_of(kept) && fixture.log.reserve_for_session(8, 180).is_ok() {
                    fixture.log.append_session_reservation(id, &reservation).unwrap();
                    reserved.push(id);
                }
                turn(&mut fixture, &reserved, &reservation);
            }
            let count = fixture.next_id - 1;
            for id in (1..=count).map(JobId).filter(|id| !reserved.contains(id)) {
                fixture.log.append_delete(id);
                turn(&mut fixture, &reserved, &reservation);
                let after_a_kill = disk.fork();
                after_a_kill.set_room(None);
                let (mut log, ..) =
                    open(&after_a_kill, config(SyncPolicy::EachCommit, file_bytes, 8), START).unwrap();
                let restored: Vec<JobId> =
                    log.take_restored_reservations().iter().map(|reservation| reservation.id).collect();
                assert_eq!(restored, reserved, "after the delete of {id:?}, every {kept}th of {count}");
            }
        }
    }
}
