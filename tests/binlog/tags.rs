//! Tags, cooldowns and ends of groups in the log: a change exists as a whole or not at all, however the log ends.

use std::collections::BTreeMap;

use beanstalkd_binlog::{Cooldown, NoRoom, OpenError, SideEffects, SyncPolicy, Warning, WholeJob};
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState};
use beanstalkd_types::tags::{After, Concurrency, EncodedTags, Idempotency, JobTags, TagSet};
use beanstalkd_types::tube_name::TubeName;

use crate::fixture::{Fixture, START as NOW, job};
use crate::harness::{config, open};
use crate::torn::{TornRecords, assert_whole_or_nothing, used};
use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::{Cooldowns, Restored, cooldowns_of};
use beanstalkd_testkit::tags::encoded;

const FILE_BYTES: u64 = 8192;

/// A log with a few jobs that have tags.
struct Log {
    fixture: Fixture,
}

impl Log {
    fn open(disk: &SimDisk) -> Self {
        Self { fixture: Fixture::open(disk, SyncPolicy::EachCommit, FILE_BYTES) }
    }

    fn put<'a>(&mut self, tags: impl Into<JobTags<'a>>) -> u64 {
        let (id, tags) = (self.fixture.next_id, tags.into());
        let bytes = encoded(tags);
        let tags = EncodedTags::of(&bytes, tags);
        while let Err(no_room) = self.fixture.log.reserve_put(7, 4, &tags) {
            assert_eq!(no_room, NoRoom::Pending);
            self.fixture.help().unwrap();
        }
        let (tube, body) = (TubeName::default_tube(), Body::copy_of(b"body").unwrap());
        self.fixture.log.append_put(&WholeJob { tags, ..WholeJob::plain(&job(id), &tube, &body) }, NOW);
        self.fixture.next_id += 1;
        id
    }

    fn move_to(&mut self, id: u64, tube: &str, tags: JobTags<'_>) {
        let (bytes, tube) = (encoded(tags), TubeName::parse(tube.as_bytes()).unwrap());
        let tags = EncodedTags::of(&bytes, tags);
        self.fixture.log.reserve_move(tube.as_bytes().len(), 4, &tags, None).unwrap();
        self.fixture.log.append_moved(
            &WholeJob { tags, ..WholeJob::plain(&job(id), &tube, &Body::copy_of(b"body").unwrap()) },
            NOW,
        );
    }

    fn commit(&mut self) {
        self.fixture.log.commit(NOW).unwrap();
        self.fixture.log.check_invariants();
        self.fixture.help().unwrap();
    }
}

/// The jobs and cooldowns that a start finds.
type Found = (Restored, Cooldowns);

fn start(files: &BTreeMap<u32, Vec<u8>>, recover: bool) -> Result<(Found, Vec<Warning>), OpenError> {
    let settings = beanstalkd_binlog::Config { recover, ..config(SyncPolicy::EachCommit, FILE_BYTES, 9) };
    let (log, summary, restored) = open(&SimDisk::with_files(files), settings, NOW)?;
    Ok(((restored, cooldowns_of(&log)), summary.warnings))
}

fn grouped(group: &str) -> TagSet<'_> {
    TagSet { group: Some(group.try_into().unwrap()), ..TagSet::default() }
}

fn waiting(group: &str) -> TagSet<'_> {
    TagSet { after: Some(After { group: group.try_into().unwrap(), is_free: false }), ..TagSet::default() }
}

fn unique(key: &str) -> TagSet<'_> {
    TagSet {
        idempotency: Some(Idempotency { key: key.try_into().unwrap(), cooldown_s: 60.into() }),
        ..TagSet::default()
    }
}

fn cooldown(key: &str) -> Cooldown<'_> {
    Cooldown { tube: "default", key, until: NOW.plus_seconds(60) }
}

/// A torn write leaves the state before the change or the state after it.
#[test]
fn each_change_is_there_as_a_whole_or_not_at_all_wherever_its_write_is_torn() {
    let long = "k".repeat(150);
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    let all = TagSet {
        idempotency: Some(Idempotency { key: (&*long).try_into().unwrap(), cooldown_s: 60.into() }),
        concurrency: Some(Concurrency { key: "c".try_into().unwrap(), limit: 3 }),
        group: Some((&*long).try_into().unwrap()),
        ..TagSet::default()
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Log));
    let changes: [Change<'_>; 5] = [
        ("put", &|log| assert_eq!(log.put(all), 1)),
        ("held", &|log| assert_eq!(log.put(waiting(&long)), 2)),
        ("move", &|log| log.move_to(1, "moved", all.into())),
        ("delete", &|log| {
            let (cooldown, freed_group) = (Some(cooldown(&long)), Some(&*long));
            let side_effects = SideEffects { cooldown, freed_group, completes: None };
            log.fixture.log.append_delete_with(JobId(1), &side_effects);
        }),
        ("forget", &|log| log.fixture.log.forget_cooldown(JobId(1), NOW)),
    ];
    let (mut states, mut cuts) = (Vec::new(), 0);
    for (what, change) in changes {
        let before = disk.files();
        change(&mut log);
        log.fixture.log.commit(NOW).unwrap();
        let after = disk.files();
        cuts += assert_whole_or_nothing(&before, &after, TornRecords::MayStay, what);
        log.fixture.help().unwrap();
        states.push(start(&after, false).unwrap().0);
    }
    assert!(cuts > 2000, "{cuts}");
    let (jobs, cooldowns) = &states[3];
    assert_eq!(
        JobTags::decode(&jobs[0].3).unwrap().after.unwrap(),
        After { group: (&*long).try_into().unwrap(), is_free: true }
    );
    assert_eq!(cooldowns[&1], ("default".to_owned(), long.clone(), NOW.plus_seconds(60)));
    assert!(states[4].1.is_empty(), "the cooldown is forgotten");
}

#[test]
fn every_flipped_bit_in_tags_and_cooldowns_is_refused_and_recovery_loses_no_job() {
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    log.put(unique("a.key.so.long.that.it.needs.a.second.record.of.the.log"));
    log.put(waiting("g"));
    log.put(grouped("g"));
    let first = used(&disk.files()[&1]);
    log.put(unique("k"));
    log.commit();
    let side_effects = SideEffects { cooldown: Some(cooldown("k")), freed_group: None, completes: None };
    log.fixture.log.append_delete_with(JobId(4), &side_effects);
    let side_effects = SideEffects { cooldown: None, freed_group: Some("g"), completes: None };
    log.fixture.log.append_delete_with(JobId(3), &side_effects);
    log.commit();
    log.fixture.log.close(NOW).unwrap();
    let files = disk.files();
    let whole = start(&files, false).unwrap().0;
    assert_eq!((whole.0.len(), whole.1.len()), (2, 1));
    let mut lost = [0, 0];
    for bit in (first * 8..used(&files[&1]) * 8).step_by(3) {
        let mut files = files.clone();
        files.get_mut(&1).unwrap()[bit / 8] ^= 1 << (bit % 8);
        match start(&files, false) {
            Err(OpenError::Faulty(_)) => {}
            Ok((found, _)) => assert_eq!(found, whole, "bit {bit}"),
            Err(error) => panic!("bit {bit}: {error}"),
        }
        let ((jobs, cooldowns), warnings) = start(&files, true).unwrap();
        let is_there = |id: u64| jobs.iter().find(|(record, ..)| record.id == JobId(id));
        for (record, _, _, tags) in &whole.0 {
            let id = record.id.0;
            let is_reported =
                warnings.iter().any(|warning| matches!(warning, Warning::TagsLost { job, .. } if *job == id));
            lost[0] += usize::from(is_reported);
            match is_there(id) {
                Some((_, _, _, found)) if is_reported => {
                    assert!(found.is_empty(), "bit {bit}: tags that were lost")
                }
                // A held job may be free or not: the delete that frees it may be before or after the damage.
                Some((_, _, _, found)) => {
                    assert_eq!(found.len(), tags.len(), "bit {bit}: tags are lost without a report");
                }
                None => assert!(!warnings.is_empty(), "bit {bit}: job {id} is lost without a report"),
            }
        }
        let is_reported = warnings.iter().any(|warning| matches!(warning, Warning::SideEffectsLost { .. }));
        lost[1] += usize::from(is_reported);
        assert!(
            cooldowns == whole.1 || !warnings.is_empty(),
            "bit {bit}: a cooldown is lost without a report"
        );
    }
    assert!(lost[0] > 100 && lost[1] > 100, "{lost:?}");
}

/// Cooldowns are copied, so that old files can be removed and no cooldown is lost with them.
#[test]
fn cooldowns_are_copied_until_they_end_and_the_directory_stays_small() {
    const COOLDOWNS: u64 = 20;
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    for _ in 0..COOLDOWNS {
        let id = log.put(unique("k"));
        let side_effects = SideEffects { cooldown: Some(cooldown("k")), freed_group: None, completes: None };
        log.fixture.log.append_delete_with(JobId(id), &side_effects);
        log.commit();
    }
    let first = start(&disk.files(), false).unwrap().0.1;
    assert_eq!(first.len() as u64, COOLDOWNS);
    log.fixture.log.forget_cooldown(JobId(1), NOW.plus_seconds(60));
    log.fixture.log.forget_cooldown(JobId(2), NOW.plus_seconds(59));
    for _ in 0..500 {
        log.fixture.put().unwrap();
        log.fixture.log.append_delete(JobId(log.fixture.next_id - 1));
        log.fixture.commit();
    }
    let stats = log.fixture.log.stats();
    assert!(stats.oldest_index > 3 && stats.bytes < 8 * FILE_BYTES, "{stats:?}");
    assert!(stats.records_migrated > 0, "{stats:?}");
    let ((jobs, cooldowns), _) = start(&disk.files(), false).unwrap();
    assert!(jobs.is_empty());
    // The first cooldown had ended by the clock, so nothing was logged for it, and it was removed with its file.
    assert_eq!(cooldowns.keys().copied().collect::<Vec<_>>(), (3..=COOLDOWNS).collect::<Vec<_>>());
    for (id, found) in cooldowns {
        assert_eq!(found, first[&id]);
    }
    for id in 3..=COOLDOWNS {
        log.fixture.log.forget_cooldown(JobId(id), NOW);
    }
    log.commit();
    let live = log.fixture.log.stats().live_bytes;
    assert_eq!((live, start(&disk.files(), false).unwrap().0), (0, (Vec::new(), Cooldowns::new())));
}

#[test]
fn a_delete_has_room_for_its_cooldown_and_the_end_of_its_group_on_a_full_disk() {
    let long = "k".repeat(200);
    let tags = TagSet { group: Some((&*long).try_into().unwrap()), ..unique(&long) };
    for room in [60_000, 61_000, 64_000, 70_000] {
        let disk = SimDisk::default();
        disk.set_room(Some(room));
        let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, FILE_BYTES);
        let bytes = encoded(tags);
        let tags = EncodedTags::of(&bytes, tags.into());
        let (tube, body) = (TubeName::default_tube(), Body::copy_of(b"").unwrap());
        loop {
            match fixture.log.reserve_put(7, 0, &tags) {
                Ok(()) => {
                    fixture.log.append_put(
                        &WholeJob { tags, ..WholeJob::plain(&job(fixture.next_id), &tube, &body) },
                        NOW,
                    );
                    fixture.next_id += 1;
                    fixture.commit();
                }
                Err(NoRoom::Pending) => fixture.help().unwrap(),
                Err(NoRoom::Full) => break,
            }
        }
        assert!(fixture.next_id > 10, "{}", fixture.next_id);
        for id in 1..fixture.next_id {
            let side_effects =
                SideEffects { cooldown: Some(cooldown(&long)), freed_group: Some(&long), completes: None };
            fixture.log.append_delete_with(JobId(id), &side_effects);
            fixture.commit_alone();
            fixture.help().unwrap();
            assert_eq!(fixture.log.durable(), fixture.log.appended(), "the delete of {id} is on disk");
        }
        for id in 1..fixture.next_id {
            fixture.log.forget_cooldown(JobId(id), NOW);
            fixture.commit_alone();
            fixture.help().unwrap();
            assert_eq!(
                fixture.log.durable(),
                fixture.log.appended(),
                "the cooldown of {id} is forgotten on disk"
            );
        }
        let ((jobs, cooldowns), _) = start(&disk.files(), false).unwrap();
        assert!(jobs.is_empty() && cooldowns.is_empty());
    }
}

#[test]
fn deletes_without_room_after_a_restart_are_logged_later_with_their_effects() {
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    let count = 150;
    for _ in 0..count {
        log.put(TagSet { group: Some("g".try_into().unwrap()), ..unique("k") });
        log.commit();
    }
    let disk = disk.fork();
    disk.set_room(Some(disk.used() + FILE_BYTES));
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, FILE_BYTES);
    for id in 1..=count {
        let freed_group = (id == count).then_some("g");
        fixture.log.append_delete_with(
            JobId(id),
            &SideEffects { cooldown: Some(cooldown("k")), freed_group, completes: None },
        );
    }
    // Of deletes that wait for room: one that frees a group and one that does nothing else; and one that is logged.
    for id in [count, count - 1, 1] {
        fixture.log.forget_cooldown(JobId(id), NOW);
    }
    fixture.commit_alone();
    fixture.help().unwrap();
    assert!(fixture.log.durable() < fixture.log.appended(), "there was no room for all");
    disk.set_room(None);
    for _ in 0..20 {
        fixture.reach(fixture.now.plus_seconds(1));
        fixture.log.check_invariants();
    }
    assert_eq!(fixture.log.durable(), fixture.log.appended());
    let ((jobs, cooldowns), _) = start(&disk.files(), false).unwrap();
    assert!(jobs.is_empty());
    assert_eq!(cooldowns.keys().copied().collect::<Vec<_>>(), (2..count - 1).collect::<Vec<_>>());
}

#[test]
fn a_group_without_members_holds_no_job_after_a_start() {
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    log.put(waiting("g"));
    log.put(waiting("other"));
    log.put(grouped("other"));
    log.commit();
    log.fixture.log.close(NOW).unwrap();
    let is_free = |found: &Found, at: usize| JobTags::decode(&found.0[at].3).unwrap().after.unwrap().is_free;
    let settings = config(SyncPolicy::EachCommit, FILE_BYTES, 9);
    // A member that is put after the start does not hold the freed job again.
    let mut log = Log::open(&disk);
    log.put(grouped("g"));
    log.put(waiting("g"));
    log.commit();
    log.fixture.log.close(NOW).unwrap();
    let (_, _, restored) = open(&disk, settings, NOW).unwrap();
    let found = (restored, Cooldowns::new());
    assert_eq!([0, 1, 4].map(|at| is_free(&found, at)), [true, false, false]);
}

#[test]
fn a_start_on_a_full_disk_logs_the_groups_without_members_later() {
    const GROUPS: usize = 100;
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    for number in 0..GROUPS {
        log.put(waiting(&format!("a.group.without.members.{number}")));
        log.commit();
    }
    // There is room only for the file that a start needs.
    let disk = disk.fork();
    disk.set_room(Some(disk.used() + FILE_BYTES));
    let settings = config(SyncPolicy::EachCommit, FILE_BYTES, 9);
    let (mut log, _, restored) =
        open(&disk, settings, NOW).expect("the next start finds the other groups again");
    assert_eq!(restored.len(), GROUPS);
    log.check_invariants();
    disk.set_room(None);
    for second in 1..5 {
        log.on_deadline(NOW.plus_seconds(second)).unwrap();
        while let Some(task) = disk.next_task() {
            log.on_completion(task.run(&mut disk.clone()), NOW.plus_seconds(second)).unwrap();
        }
    }
    assert_eq!(log.reserve_put(7, 4000, &EncodedTags::NONE), Ok(()), "the log goes on once there is room");
}

#[test]
fn without_descriptors_a_first_reservation_waits_with_the_states_after_it() {
    const OTHERS: u64 = 300;
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    for _ in 1..OTHERS {
        log.put(TagSet::default());
        log.commit();
    }
    let id = log.put(TagSet { expires_after_s: Some(100.into()), ..TagSet::default() });
    log.commit();
    disk.lack_descriptors(true);
    for other in 1..OTHERS {
        log.fixture.log.append_delete(JobId(other));
        log.commit();
    }
    assert!(log.fixture.log.durable() < log.fixture.log.appended(), "the file is full");
    let counters = Counters { reserves: 1, ..Counters::default() };
    let reserved = JobRecord { state: JobState::Reserved, counters, ..job(id) };
    let buried = JobRecord { state: JobState::Buried, ..reserved };
    for record in [reserved, buried] {
        log.fixture.log.reserve_update().expect_err("no further file can be opened");
        log.fixture.log.postpone_update(&record, 4, false, NOW);
        log.fixture.log.check_invariants();
    }
    disk.lack_descriptors(false);
    for _ in 0..3 {
        log.fixture.reach(log.fixture.now.plus_seconds(1));
    }
    assert_eq!(log.fixture.log.next_postponed(), Some(JobId(id)));
    log.fixture.log.append_update(&buried, 4, NOW);
    log.commit();
    let ((jobs, _), _) = start(&disk.files(), false).unwrap();
    let job = jobs.iter().find(|(job, ..)| job.id == JobId(id)).expect("it does not expire").0;
    assert_eq!((job.state, job.counters.reserves), (JobState::Buried, 1));
}

#[test]
fn cooldowns_end_while_no_server_runs() {
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    let id = log.put(unique("k"));
    let side_effects = SideEffects { cooldown: Some(cooldown("k")), freed_group: None, completes: None };
    log.fixture.log.append_delete_with(JobId(id), &side_effects);
    log.commit();
    for (seconds, expected) in [(59, 1), (60, 0)] {
        let settings = config(SyncPolicy::EachCommit, FILE_BYTES, 9);
        let (log, _, _) = open(&disk.fork(), settings, NOW.plus_seconds(seconds)).unwrap();
        assert_eq!(log.cooldowns().count(), expected, "after {seconds} s");
        log.check_invariants();
    }
}

#[test]
fn a_job_without_tags_takes_no_additional_bytes() {
    let disk = SimDisk::default();
    let mut log = Log::open(&disk);
    log.fixture.put().unwrap();
    let before = log.fixture.log.stats().live_bytes;
    assert_eq!(before, 4 + 7 + 80 + 102 + 84);
}
