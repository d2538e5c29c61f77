//! `--recover` on logs with files damaged at their beginnings: only the damaged parts are lost. The next start works
//! and finds the same jobs, and so does one after a kill, a loss of power or a full disk in the middle of the recovery.

use beanstalkd_binlog::{
    Config, LogFault, LoggedReservation, OpenError, ReplaySummary, RestoredReservation, SyncPolicy, Warning,
    WholeJob,
};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::c_file::{BURIED, CFile, DELETED, READY};
use crate::damage::{Files, Log, Outcome, changed, outcome};
use crate::harness::{Harness, config, open};
use beanstalkd_testkit::disk::{Random, SimDisk};
use beanstalkd_testkit::simulated::{Cooldowns, Restored, cooldowns_of};

const NOW: Timestamp = Timestamp(2_000_000_000_000);

/// The offset of the first record in a file of this server: after the version, the header and the marker `opened`.
const HEAD: usize = 4 + 84 + 84;

/// The changed length of a file of C: beyond its version and the length of the first name, C has no checksum that would
/// show a change.
const HEAD_OF_C: usize = 4 + 8;

/// The result of a start.
#[derive(Debug)]
pub struct Found {
    summary: ReplaySummary,
    pub jobs: Restored,
    cooldowns: Cooldowns,
    reservations: Vec<RestoredReservation>,
}

impl Found {
    pub fn assert_same(&self, again: &Self, what: &str) {
        assert_eq!(self.jobs, again.jobs, "{what}: {:?} after {:?}", again.summary, self.summary);
        assert_eq!(self.cooldowns, again.cooldowns, "{what}: {:?} after {:?}", again.summary, self.summary);
        assert_eq!(
            self.reservations, again.reservations,
            "{what}: {:?} after {:?}",
            again.summary, self.summary
        );
    }
}

pub fn start(disk: &SimDisk, recover: bool) -> Result<Found, OpenError> {
    let settings = Config { recover, ..config(SyncPolicy::EachCommit, 4096, 1) };
    let (mut log, summary, jobs) = open(disk, settings, NOW)?;
    Ok(Found { summary, jobs, cooldowns: cooldowns_of(&log), reservations: log.take_restored_reservations() })
}

/// Starts with `--recover`, and twice without it.
pub fn recovered(disk: &SimDisk, what: &str) -> Found {
    let found = start(disk, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    for _ in 0..2 {
        let again = start(disk, false);
        let again = again.unwrap_or_else(|error| panic!("{what}: {error} after {:?}", found.summary));
        found.assert_same(&again, what);
    }
    found
}

/// Fails if a job is lost that has a whole record in the damaged files.
pub fn assert_only_damaged_is_lost(log: &Log, damaged: &Files, found: &Found, what: &str) {
    for (record, tube, body, _) in &log.jobs {
        let is_back = found.jobs.iter().any(|(back, ..)| back.id == record.id);
        assert!(
            is_back || !has_whole_record(log, damaged, record.id, tube, body),
            "{what}: job {} is lost: {:?}",
            record.id.0,
            found.summary
        );
    }
}

fn has_whole_record(log: &Log, damaged: &Files, id: JobId, tube: &TubeName, body: &[u8]) -> bool {
    let mut begin = (tube.as_bytes().len() as u32).to_le_bytes().to_vec();
    begin.extend_from_slice(tube.as_bytes());
    begin.extend_from_slice(&id.0.to_le_bytes());
    let length = begin.len() + 72 + body.len() + 2;
    log.files.iter().any(|(index, bytes)| {
        let starts = bytes.windows(begin.len()).enumerate().filter(|(_, window)| *window == &begin[..]);
        let mut records = starts.map(|(at, _)| at..(at + length).min(bytes.len()));
        records.any(|record| damaged[index].get(record.clone()) == bytes.get(record))
    })
}

/// Files of C, of both versions.
fn logs_of_c() -> Vec<Log> {
    let of = |version| {
        let first = CFile::new(version).full(1, b"one", READY).full(2, b"two", BURIED).full(3, b"x", READY);
        let middle = CFile::new(version).full(4, b"four", READY).short(3, 1, DELETED).zeros(300);
        let last = CFile::new(version).short(2, 3, READY).full(5, b"five", READY).zeros(300);
        (1..).zip([first, middle, last].map(|file| file.bytes)).collect::<Files>()
    };
    // A newer server continues the log of an older one.
    let mixed: Files = (1..).zip([&of(5)[&1], &of(5)[&2], &of(7)[&3]].map(Clone::clone)).collect();
    [of(5), of(7), mixed].map(Log::new).into()
}

fn logs() -> Vec<Log> {
    let mut logs =
        vec![Log::closed(3), Log::killed(5), Log::restarted(7), Log::tagged(7), Log::with_sessions()];
    logs.extend(logs_of_c());
    logs
}

/// The first file, one in the middle, and the last two, of which the newest may not have been used.
fn some_files(log: &Log) -> Vec<u32> {
    let mut indexes: Vec<u32> = log.files.keys().copied().collect();
    let (middle, last) = (indexes.len() / 2, indexes.len() - 1);
    indexes = [0, middle, last.saturating_sub(1), last].map(|at| indexes[at]).into();
    indexes.dedup();
    indexes
}

impl Log {
    /// A log whose newest jobs are reserved by sessions, and have not been copied to another file since.
    fn with_sessions() -> Self {
        let settings = config(SyncPolicy::EachCommit, 4096, 3);
        let mut harness = Harness::begin(SimDisk::default(), settings, None).unwrap();
        let tube = TubeName::parse(b"default").unwrap();
        let log = &mut harness.log;
        for id in 1..=40 {
            let body = vec![b'b'; 100];
            let mut record = JobRecord {
                id: JobId(id),
                priority: Priority(0),
                delay_s: 0.into(),
                ttr_s: 600.into(),
                created_at: harness.now,
                deadline_at: Timestamp(0),
                counters: Counters::default(),
                state: JobState::Ready,
            };
            log.reserve_put(tube.as_bytes().len(), body.len(), &EncodedTags::NONE).unwrap();
            log.append_put(&WholeJob::plain(&record, &tube, &Body::copy_of(&body).unwrap()), harness.now);
            record.counters.reserves = 1;
            (record.state, record.deadline_at) = (JobState::Reserved, Timestamp(NOW.0 + 100_000_000_000));
            let name = if id % 2 == 0 { "worker" } else { "another.worker.with.a.name.of.two.markers" };
            let reservation = LoggedReservation {
                until: record.deadline_at,
                reserves: 1,
                grace_ms: 7000,
                identity: "",
                name,
            };
            if id % 3 == 0 {
                // As in logs of earlier versions.
                log.reserve_update().unwrap();
                log.append_update(&record, body.len(), harness.now);
            }
            log.append_session_reservation(record.id, &reservation).unwrap();
            log.commit(harness.now).unwrap();
            while let Some(task) = harness.disk.next_task() {
                let completion = task.run(&mut harness.disk.clone());
                log.on_completion(completion, harness.now).unwrap();
            }
        }
        let log = Self::new(harness.disk.files());
        assert_eq!(start(&SimDisk::with_files(&log.files), false).unwrap().reservations.len(), 40);
        assert!(log.files.len() > 3);
        log
    }
}

fn is_ours(file: &[u8]) -> bool {
    file.get(8..16) == Some(&[0xFF; 8])
}

#[test]
fn a_damaged_byte_where_a_file_begins_loses_no_more_than_its_record() {
    for (number, log) in logs().iter().enumerate() {
        let whole = start(&SimDisk::with_files(&log.files), false).unwrap();
        let is_ours = is_ours(log.files.values().next().unwrap());
        let head = if is_ours { HEAD } else { HEAD_OF_C };
        for index in some_files(log) {
            for at in 0..head.min(log.files[&index].len()) {
                for change in [0x02, 0xFF] {
                    let what = format!("log {number}: byte {at} of binlog.{index} changed by {change:#x}");
                    let mut damaged = log.files.clone();
                    damaged.get_mut(&index).unwrap()[at] ^= change;
                    let found = recovered(&SimDisk::with_files(&damaged), &what);
                    assert_only_damaged_is_lost(log, &damaged, &found, &what);
                    if is_ours {
                        whole.assert_same(&found, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn two_files_with_damaged_beginnings_lose_only_the_damaged_records() {
    let mut random = Random::new(1);
    for (number, log) in logs().iter().enumerate() {
        for round in 0..60 {
            let mut damaged = log.files.clone();
            for _ in 0..2 {
                let (index, to) = (random.pick(&some_files(log)), random.below(600) as usize);
                let fill = random.pick(&[0x00, 0x07, 0xFF]);
                let bytes = damaged.get_mut(&index).unwrap();
                let to = to.min(bytes.len());
                bytes[..to].fill_with(|| if round % 2 == 0 { fill } else { random.next() as u8 });
            }
            let what = format!("log {number}, round {round}");
            let found = recovered(&SimDisk::with_files(&damaged), &what);
            assert_only_damaged_is_lost(log, &damaged, &found, &what);
        }
    }
}

#[test]
fn files_of_zero_bytes_and_files_that_are_gone_lose_no_other_file() {
    for (number, log) in logs().iter().enumerate() {
        for index in some_files(log) {
            for other in some_files(log) {
                for empties in [true, false] {
                    let mut damaged = log.files.clone();
                    for index in [index, other] {
                        damaged.insert(index, Vec::new());
                    }
                    let what = format!("log {number}: binlog.{index} and binlog.{other} empty: {empties}");
                    let mut on_disk = damaged.clone();
                    on_disk.retain(|_, bytes| empties || !bytes.is_empty());
                    let found = recovered(&SimDisk::with_files(&on_disk), &what);
                    assert_only_damaged_is_lost(log, &damaged, &found, &what);
                }
            }
        }
    }
}

/// The log after damage within file `index` and a recovery that has cut this file there.
fn cut(log: &Log, index: u32, at: usize) -> Option<Log> {
    let damaged = changed(log, index, |bytes| bytes[at..at + 40].fill(0xA5));
    let disk = SimDisk::with_files(&damaged);
    let Found { summary, jobs, .. } = recovered(&disk, &format!("binlog.{index} damaged at {at}"));
    let is_cut = summary.tails.iter().any(|tail| tail.file == index && tail.offset > 4);
    is_cut.then(|| Log { files: disk.files(), jobs })
}

#[test]
fn a_file_that_recovery_has_cut_loses_no_more_without_a_report() {
    for (number, log) in logs().iter().enumerate() {
        let mut cuts = 0;
        for index in some_files(log) {
            let used = log.files[&index].iter().rposition(|&byte| byte != 0).unwrap_or(0);
            // The second damage is in the part that the first recovery has left.
            let Some(once) = cut(log, index, used * 2 / 3) else { continue };
            let twice = cut(&once, index, once.files[&index].len() / 2);
            for log in [Some(once), twice].into_iter().flatten() {
                cuts += 1;
                assert_no_silent_loss(&log, index, &format!("log {number}"));
            }
        }
        assert!(cuts > 1, "log {number} has files that can be cut");
    }
}

/// A kind of damage, and what it does to a file.
type Damage<'a> = (&'a str, &'a dyn Fn(&mut Vec<u8>));

/// Fails if a start reports nothing although file `index` is shorter, partly zeroed or gone, and this has lost jobs; or
/// if the next start with `--recover` does not report it. In a file of C, which has no checksums, the remains of a
/// record can be a valid delete if the rest is zeros.
fn assert_no_silent_loss(log: &Log, index: u32, what: &str) {
    let (length, is_ours) = (log.files[&index].len(), is_ours(&log.files[&index]));
    let check = |damaged: &Files, what: &str, recovers: bool| {
        if outcome(log, damaged, what) == Outcome::Refused && recovers {
            let Found { summary, .. } = recovered(&SimDisk::with_files(damaged), what);
            assert!(!summary.warnings.is_empty(), "{what}: {summary:?}");
        }
    };
    for at in 0..length {
        let recovers = at % 64 == 0;
        let damages: [Damage<'_>; 3] = [
            ("cut at", &|bytes| bytes.truncate(at)),
            ("zeroed before", &|bytes| bytes[..length - at].fill(0)),
            ("zeroed from", &|bytes| bytes[at..].fill(0)),
        ];
        let kinds = if at % 8 != 0 { 1 } else { 2 + usize::from(is_ours) };
        for (damage, change) in damages.into_iter().take(kinds) {
            let what = format!("{what}: binlog.{index} of {length} bytes {damage} {at}");
            check(&changed(log, index, change), &what, recovers);
        }
    }
    let mut removed = log.files.clone();
    removed.remove(&index);
    check(&removed, &format!("{what}: binlog.{index} is gone"), true);
}

#[test]
fn a_file_of_c_that_is_shorter_than_its_recorded_end_is_refused() {
    let before = CFile::new(7).full(1, b"one", READY);
    let (at, whole) = (before.bytes.len(), before.full(2, b"two", READY));
    let torn = whole.clone().full_without_body(3, 40);
    for (file, is_cut) in [(whole.clone().zeros(300), false), (torn, true)] {
        let disk = SimDisk::with_files(&[(1, file.bytes)].into());
        let settings = config(SyncPolicy::EachCommit, 4096, 1);
        let mut harness = Harness::begin(disk, settings, None).unwrap();
        // Without a cut, a later marker says that everything before it is on the medium.
        for _ in 0..if is_cut { 0 } else { 2 } {
            harness.put(&mut Random::new(1)).unwrap();
            harness.log.commit(harness.now).unwrap();
            harness.help_all().unwrap();
        }
        let files = harness.disk.files();
        assert_eq!(files[&1].len() == whole.bytes.len(), is_cut);
        let mut shorter = files.clone();
        shorter.get_mut(&1).unwrap().truncate(at);
        let mut zeroed = files;
        zeroed.get_mut(&1).unwrap()[at..].fill(0);
        let durable = whole.bytes.len() as u64;
        let expected = LogFault::Damaged { file: 1, offset: at as u64, durable };
        for damaged in [shorter, zeroed] {
            match start(&SimDisk::with_files(&damaged), false) {
                Err(OpenError::Faulty(faults)) => assert_eq!(faults, [expected]),
                other => panic!("is cut: {is_cut}: {other:?}"),
            }
            let found = recovered(&SimDisk::with_files(&damaged), "job 2 is lost");
            assert_eq!(found.summary.warnings, [Warning::Overridden(expected)]);
        }
    }
}

/// Damage that needs every ability of `--recover`: a version, a header, a first record, an empty file.
fn damages(log: &Log) -> Vec<Files> {
    let files = some_files(log);
    let change = |changes: &[(usize, std::ops::Range<usize>)]| {
        let mut damaged = log.files.clone();
        for (file, range) in changes {
            let bytes = damaged.get_mut(&files[(*file).min(files.len() - 1)]).unwrap();
            let range = range.start.min(bytes.len())..range.end.min(bytes.len());
            bytes[range].fill(0xA5);
        }
        damaged
    };
    vec![
        change(&[(0, 0..4), (1, 8..20)]),
        change(&[(1, 0..200), (2, 2..3)]),
        change(&[(0, 30..40), (1, 0..usize::MAX), (3, 0..4)]),
        change(&[(2, 0..usize::MAX), (3, 0..usize::MAX)]),
    ]
}

#[test]
fn a_loss_of_power_or_a_kill_within_recovery_is_recovered_from() {
    let mut random = Random::new(5);
    for (number, log) in logs().iter().enumerate() {
        for (which, damaged) in damages(log).iter().enumerate() {
            let whole = recovered(&SimDisk::with_files(damaged), "without a crash");
            for operations in 1.. {
                let what = format!("log {number}, damage {which}, crash after {operations}");
                let disk = SimDisk::with_files(damaged);
                disk.crash_after(operations);
                let is_done = start(&disk, true).is_ok() && !disk.has_crashed();
                for kill in [true, false] {
                    let disk = if kill { disk.fork() } else { disk.crashed_image(&mut random) };
                    disk.crash_after(u64::MAX / 2);
                    // A start without the option either refuses, or misses nothing.
                    if let Ok(found) = start(&disk.fork(), false) {
                        whole.assert_same(&found, &what);
                        let newest = log.files.keys().last();
                        assert!(disk.files().keys().last() > newest, "{what}: nothing says what is missing");
                    }
                    whole.assert_same(&recovered(&disk, &what), &what);
                }
                if is_done {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_full_disk_within_recovery_loses_nothing_and_room_ends_it() {
    for (number, log) in logs().iter().enumerate() {
        for (which, damaged) in damages(log).iter().enumerate() {
            let whole = recovered(&SimDisk::with_files(damaged), "with room");
            for room in (0..100_000).step_by(2039) {
                let what = format!("log {number}, damage {which}, {room} bytes of room");
                let disk = SimDisk::with_files(damaged);
                disk.set_room(Some(disk.used() + room));
                let outcome = start(&disk, true);
                disk.set_room(None);
                match &outcome {
                    Ok(found) => whole.assert_same(found, &what),
                    Err(_) => {
                        if let Ok(found) = start(&disk.fork(), false) {
                            whole.assert_same(&found, &what);
                        }
                    }
                }
                whole.assert_same(&recovered(&disk, &what), &what);
            }
        }
    }
}
