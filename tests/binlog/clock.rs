//! Starts at a time at which the wall clock was set back.

use beanstalkd_binlog::{Binlog, Cooldown, LoggedReservation, SideEffects, SyncPolicy, WholeJob};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::job::{JobId, JobRecord, JobState};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::EncodedTags;
use beanstalkd_types::tube_name::TubeName;

use crate::fixture::{Fixture, START, job};
use crate::harness::{config, open};
use beanstalkd_testkit::disk::SimDisk;

const STEP_S: u64 = 1800;

fn after(seconds: u64) -> Timestamp {
    START + seconds * NS_PER_S
}

fn set_back(at: Timestamp) -> Timestamp {
    at.minus_ns(STEP_S * NS_PER_S)
}

fn put_delayed(fixture: &mut Fixture, delay_s: impl Into<Seconds>) {
    let delay_s = delay_s.into();
    let id = fixture.next_id;
    fixture.next_id += 1;
    let deadline_at = fixture.now.plus_seconds(delay_s);
    let delayed = JobRecord {
        // As in the queue: only the instant has the fraction.
        delay_s: delay_s.whole().into(),
        deadline_at,
        created_at: fixture.now,
        state: JobState::Delayed,
        ..job(id)
    };
    fixture.log.reserve_put(7, fixture.body.len(), &EncodedTags::NONE).unwrap();
    fixture.log.append_put(&WholeJob::plain(&delayed, &TubeName::default_tube(), &fixture.body), fixture.now);
    fixture.commit();
}

/// Handles all deadlines up to this instant.
fn pass(fixture: &mut Fixture, to: Timestamp) {
    for round in 0.. {
        let Some(at) = fixture.log.next_deadline().filter(|&at| at <= to) else { break };
        assert!(round < 1000, "work is due at {at:?} for ever");
        fixture.now = fixture.now.max(at);
        fixture.migrate();
        fixture.reach(fixture.now);
    }
    fixture.now = to;
    fixture.commit();
}

/// The log after a kill, and for how many seconds each job is delayed when a server starts on it at `now`.
fn restart(disk: &SimDisk, now: Timestamp) -> (Binlog, Vec<(u64, u64)>) {
    let mut delays = Vec::new();
    let settings = config(SyncPolicy::EachCommit, 1 << 20, 9);
    let (log, _) = Binlog::open(disk.storage(), settings, now, 0, &mut |record, _, _, _| {
        let left = if record.state == JobState::Delayed { record.deadline_at.since_s(now) } else { 0 };
        delays.push((record.id.0, left));
    })
    .unwrap();
    delays.sort_unstable();
    (log, delays)
}

#[test]
fn a_start_cuts_no_fraction_off_a_delay() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
    let delay = Seconds::new(2, 750);
    put_delayed(&mut fixture, delay);
    let mut ends = Vec::new();
    let settings = config(SyncPolicy::EachCommit, 1 << 20, 9);
    Binlog::open(disk.fork().storage(), settings, fixture.now, 0, &mut |record, _, _, _| {
        ends.push(record.deadline_at);
    })
    .unwrap();
    assert_eq!(ends, [fixture.now.plus_seconds(delay)]);
}

#[test]
fn a_job_that_was_ready_stays_ready_and_no_delay_is_longer_than_its_own() {
    for closes in [false, true] {
        let disk = SimDisk::default();
        let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
        put_delayed(&mut fixture, 3);
        put_delayed(&mut fixture, 100);
        pass(&mut fixture, after(3));
        if !closes {
            fixture.log.note_end_of_delay(fixture.now);
        }
        pass(&mut fixture, after(5));
        if closes {
            fixture.log.close(fixture.now).unwrap();
        }
        let disk = disk.fork();
        let (mut log, delays) = restart(&disk, set_back(after(6)));
        assert_eq!(delays, [(1, 0), (2, 100)], "closed: {closes}");
        // The corrected ends are logged, so that they hold at the next start, too.
        assert_eq!(log.next_postponed(), Some(JobId(1)));
        let now = set_back(after(6));
        log.append_update(&job(1), 100, now);
        let second = JobRecord {
            delay_s: 100.into(),
            deadline_at: now.plus_seconds(100),
            state: JobState::Delayed,
            ..job(2)
        };
        assert_eq!(log.next_postponed(), Some(JobId(2)));
        log.append_update(&second, 100, now);
        log.commit(now).unwrap();
        assert_eq!(restart(&disk.fork(), now + 60 * NS_PER_S).1, [(1, 0), (2, 40)]);
    }
}

#[test]
fn a_clock_that_is_set_back_while_the_server_runs_delays_nothing_again() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
    put_delayed(&mut fixture, 3);
    pass(&mut fixture, after(4));
    fixture.log.set_wall_offset(-((STEP_S * NS_PER_S) as i64));
    put_delayed(&mut fixture, 600);
    pass(&mut fixture, after(10));
    // A job put after the step is not ready merely because a time before the step was later.
    assert_eq!(restart(&disk.fork(), set_back(after(10))).1, [(1, 0), (2, 594)]);
}

#[test]
fn a_clock_that_was_ahead_makes_nothing_ready_too_early() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
    pass(&mut fixture, after(STEP_S));
    fixture.put().unwrap();
    pass(&mut fixture, after(STEP_S + 1));
    fixture.log.close(fixture.now).unwrap();
    let disk = disk.fork();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
    put_delayed(&mut fixture, 600);
    pass(&mut fixture, after(5));
    assert_eq!(restart(&disk.fork(), after(6)).1, [(1, 0), (2, 594)]);
}

#[test]
fn no_job_is_put_later_than_the_start_if_the_clock_was_set_back() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
    put_delayed(&mut fixture, 0);
    let start = set_back(after(6));
    let settings = config(SyncPolicy::EachCommit, 1 << 20, 9);
    let mut created = Vec::new();
    let mut restore = |record: JobRecord, _: &_, _, _: &_| created.push(record.created_at);
    Binlog::open(disk.storage(), settings, start, 0, &mut restore).unwrap();
    assert_eq!(created, [start]);
}

/// A session reserves job 1 until `after(60)`. The deletes of jobs 2 and 3 start cooldowns until then and until
/// `after(10)`.
fn reserve_and_delete(fixture: &mut Fixture) {
    let until = after(60);
    (0..3).for_each(|_| fixture.put().unwrap());
    let reservation = LoggedReservation { until, reserves: 0, grace_ms: 0, identity: "", name: "s" };
    fixture.log.append_session_reservation(JobId(1), &reservation).unwrap();
    for (id, key, until) in [(2, "k", until), (3, "over", after(10))] {
        let cooldown = Some(Cooldown { tube: "default", key, until });
        let side_effects = SideEffects { cooldown, ..SideEffects::default() };
        fixture.log.append_delete_with(JobId(id), &side_effects);
    }
    fixture.commit();
}

/// The ends of the reservations and of the cooldowns that a start at `now` finds.
fn ends(disk: &SimDisk, now: Timestamp) -> [Vec<Timestamp>; 2] {
    let (mut log, ..) = open(disk, config(SyncPolicy::EachCommit, 1 << 20, 9), now).unwrap();
    let reservations = log.take_restored_reservations().into_iter().map(|reservation| reservation.until);
    [reservations.collect(), log.cooldowns().map(|(_, cooldown)| cooldown.until).collect()]
}

#[test]
fn a_clock_that_was_set_back_makes_no_reservation_and_no_cooldown_longer() {
    for closes in [false, true] {
        let disk = SimDisk::default();
        let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
        reserve_and_delete(&mut fixture);
        pass(&mut fixture, after(20));
        fixture.put().unwrap();
        pass(&mut fixture, after(22));
        if closes {
            fixture.log.close(fixture.now).unwrap();
        }
        let now = set_back(after(25));
        let [reservations, cooldowns] = ends(&disk.fork(), now);
        // After a kill, the last time in the log is that of the last marker.
        let last = if closes { 22 } else { 0 };
        let until = now.plus_seconds(60 - last);
        assert_eq!((reservations, cooldowns), (vec![until], vec![until, until.minus_ns(50 * NS_PER_S)]));
    }
}

#[test]
fn a_clock_that_is_set_back_while_the_server_runs_makes_no_reservation_longer() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 1 << 20);
    reserve_and_delete(&mut fixture);
    pass(&mut fixture, after(20));
    fixture.log.set_wall_offset(-((STEP_S * NS_PER_S) as i64));
    pass(&mut fixture, after(25));
    let now = set_back(after(25));
    assert_eq!(ends(&disk.fork(), now)[0], [now.plus_seconds(35)]);
}
