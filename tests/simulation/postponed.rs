//! Replies while making the next file of the log takes long: no reply leaves before its changes are in the log,
//! wherever the previous file ends. After a full disk, the log gets the states of jobs.

use beanstalkd::server::Server;
use beanstalkd_binlog::{BinlogError, Config, SyncPolicy};
use beanstalkd_queue::{PoisonLimits, Queue, TubeRule};
use beanstalkd_types::clock::NS_PER_S;
use beanstalkd_types::job::{JobId, JobState, Priority};

use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer, executor, hand_over};

/// The most changes of job 3, which fill the existing files of the log. Each needs two records.
const MAX_FILL: usize = 70;
const FILL: &str = "reserve-job 3\r\nrelease 3 0 0\r\n";
const FILE_BYTES: u64 = 4096;
/// A session with both jobs of the tube.
const BOTH: &str = "session w 60\r\nreserve-job 1\r\nreserve-job 2\r\n";

/// A command of the worker, and the change that it must have made once it is answered.
struct Case {
    prepare: &'static str,
    command: &'static str,
    reply: &'static str,
    /// The command of another client after that of the worker.
    other: &'static str,
    is_done: fn(&Queue) -> bool,
}

const CASES: [Case; 9] = [
    Case {
        prepare: BOTH,
        command: "touch 1\r\n",
        reply: "TOUCHED\r\n",
        other: "",
        is_done: |queue| ends_after(queue, 1, 605),
    },
    Case {
        prepare: BOTH,
        command: "touch 2 900\r\n",
        reply: "TOUCHED\r\n",
        other: "",
        is_done: |queue| ends_after(queue, 2, 905),
    },
    Case {
        prepare: BOTH,
        command: "touch-all\r\n",
        reply: "TOUCHED_ALL 2\r\n",
        other: "",
        is_done: |queue| ends_after(queue, 1, 605) && ends_after(queue, 2, 605),
    },
    Case {
        prepare: "reserve-job 1\r\nreserve-job 2\r\n",
        command: "session w 60\r\n",
        reply: "SESSION 2\r\n",
        other: "",
        is_done: |queue| [1, 2].iter().all(|&id| queue.session_reservation(JobId(id)).is_some()),
    },
    Case {
        prepare: "reserve-job 1\r\n",
        command: "release 1 0 0\r\n",
        reply: "RELEASED\r\n",
        other: "",
        is_done: |queue| is_in(queue, 1, "dead"),
    },
    Case {
        prepare: "reserve-job 2\r\n",
        command: "bury 2 0\r\n",
        reply: "BURIED\r\n",
        other: "",
        is_done: |queue| is_in(queue, 2, "dead"),
    },
    Case {
        prepare: "session w 60\r\nwatch new\r\n",
        command: "reserve-batch 5 100\r\n",
        reply: "RESERVED_BATCH 1\r\nRESERVED 4 0\r\n\r\n",
        other: "use new\r\nput 0 0 600 0\r\n\r\n",
        is_done: |queue| queue.session_reservation(JobId(4)).is_some(),
    },
    Case {
        prepare: "session w 60\r\nwatch new\r\n",
        command: "reserve\r\n",
        reply: "RESERVED 4 0\r\n\r\n",
        other: "use new\r\nput 0 0 600 0\r\n\r\n",
        is_done: |queue| queue.session_reservation(JobId(4)).is_some(),
    },
    Case {
        prepare: "reserve-job 2\r\nwatch dead\r\n",
        command: "reserve\r\n",
        reply: "RESERVED 1 0\r\n\r\n",
        other: "reserve-job 1\r\nrelease 1 0 0\r\n",
        is_done: |queue| is_in(queue, 1, "dead"),
    },
];

fn ends_after(queue: &Queue, id: u64, seconds: u32) -> bool {
    queue
        .session_reservation(JobId(id))
        .is_some_and(|reservation| reservation.until == START.plus_seconds(seconds))
}

fn is_in(queue: &Queue, id: u64, tube: &str) -> bool {
    queue.job(JobId(id)).is_some_and(|job| job.tube.as_str() == tube)
}

/// Whether a server that starts after a kill has the changes of the command.
fn is_done_after_kill(case: &Case, harness: &SimulatedServer) -> bool {
    let disk = harness.disk.fork();
    let after = SimulatedServer::start_at(harness.now, disk, SyncPolicy::Every(50), FILE_BYTES);
    (case.is_done)(after.queue())
}

/// A server with job 1 in the tube `fails`, whose jobs die of a failure, job 2 in `ages`, whose jobs die of age, and
/// job 3 in `fill`; and three clients.
fn start(disk: &SimDisk) -> (SimulatedServer, [Connection; 3]) {
    let mut harness = SimulatedServer::start_on(disk.clone(), SyncPolicy::Every(50), FILE_BYTES);
    let dead_tube = || Some("dead".into());
    let rules = vec![
        TubeRule { max_attempts: Some(1), dead_tube: dead_tube(), ..TubeRule::new("fails") },
        TubeRule { max_age_s: Some(3), dead_tube: dead_tube(), ..TubeRule::new("ages") },
    ];
    harness.executor_mut().set_tube_rules(rules, START);
    let clients = harness.connect_each();
    let put = |tube: &str| format!("use {tube}\r\nput 0 0 600 0\r\n\r\n");
    let puts = [put("fails"), put("ages"), put("fill")].concat();
    assert!(harness.say(&clients[1], &puts).ends_with("INSERTED 3\r\n"));
    (harness, clients)
}

/// Returns whether the reply had to wait for the file.
fn has_waited(case: &Case, fill: usize) -> bool {
    let disk = SimDisk::default();
    let (mut harness, [worker, other, filler]) = start(&disk);
    harness.say(&worker, case.prepare);
    harness.now = harness.now.plus_seconds(5);
    filler.send(FILL.repeat(fill).as_bytes());
    harness.turn([&filler]);
    worker.send(case.command.as_bytes());
    harness.turn([&worker]);
    other.send(case.other.as_bytes());
    harness.turn([&other]);
    let reply = worker.received();
    if !reply.is_empty() {
        assert_eq!(reply, case.reply);
        assert!(is_done_after_kill(case, &harness), "{} is lost, filled with {fill}", case.command);
        return false;
    }
    while harness.help() {}
    assert_eq!(worker.received(), case.reply, "{}, filled with {fill}", case.command);
    assert!(is_done_after_kill(case, &harness), "{} is lost, filled with {fill}", case.command);
    true
}

#[test]
fn no_reply_leaves_before_the_log_has_what_it_says() {
    for case in &CASES {
        let waits = (0..MAX_FILL).filter(|&fill| has_waited(case, fill)).count();
        assert!((1..MAX_FILL).contains(&waits), "{}: {waits} of {MAX_FILL} replies wait", case.command);
    }
}

/// A job is reserved, fails and dies while the next file is being made. Then the server is killed in this operation of
/// the disk. Returns whether the job is dead after that; if it is not, it must be as it was before.
fn is_dead_after_kill(fill: usize, operation: u64) -> bool {
    let disk = SimDisk::default();
    let (mut harness, [worker, _, filler]) = start(&disk);
    for (client, commands) in [(&filler, FILL.repeat(fill)), (&worker, "reserve-job 1\r\n".into())] {
        client.send(commands.as_bytes());
        harness.turn([client]);
    }
    harness.now = harness.now.plus_seconds(600);
    disk.crash_after(operation);
    harness.turn([]);
    while !disk.has_crashed() && harness.help() {}
    let disk = disk.fork();
    disk.crash_after(1 << 60);
    let after = SimulatedServer::start_on(disk, SyncPolicy::Every(50), FILE_BYTES);
    let queue = after.queue();
    let is_dead = is_in(queue, 1, "dead");
    let timeouts = queue.job(JobId(1)).map(|job| job.record.counters.timeouts);
    assert_eq!(timeouts, Some(u32::from(is_dead)), "operation {operation}, filled with {fill}");
    is_dead
}

#[test]
fn after_a_kill_a_job_with_its_last_failure_is_in_the_dead_tube() {
    const MAX_OPERATIONS: u64 = 20;
    let operations = |fill| (1..=MAX_OPERATIONS).map(move |operation| (fill, operation));
    let dead = (0..MAX_FILL).flat_map(operations).filter(|&(fill, at)| is_dead_after_kill(fill, at)).count();
    assert!((1..MAX_FILL * MAX_OPERATIONS as usize).contains(&dead), "dead in {dead} runs");
}

/// A server with a full disk, and a client that has released job 1 with priority 9, and job 3, which was buried. The
/// log lacks both releases.
fn start_with_lacking_states(disk: &SimDisk) -> (SimulatedServer, Connection) {
    let mut harness = SimulatedServer::start_on(disk.clone(), SyncPolicy::EachCommit, FILE_BYTES);
    let client = harness.connect();
    harness
        .say(&client, "put 5 0 600 0\r\n\r\n".repeat(3) + "reserve-job 3\r\nbury 3 5\r\nreserve-job 1\r\n");
    disk.set_room(Some(disk.used() + 10 * FILE_BYTES));
    let mut fill = |command: &str, reply: &str| {
        let filled = (0..10_000).any(|_| !harness.say_and_wait(&client, command).starts_with(reply));
        assert!(filled, "the disk becomes full");
    };
    // The jobs are so long that nothing is copied.
    fill(&format!("put 5 0 600 100\r\n{}\r\n", "x".repeat(100)), "INSERTED ");
    fill("reprioritize 2 6\r\n", "REPRIORITIZED\r\n");
    assert_eq!(harness.say(&client, "release 1 9 0\r\n"), "RELEASED\r\n");
    assert!(harness.say(&client, "reserve-job 3\r\nrelease 3 9 0\r\n").ends_with("RELEASED\r\n"));
    assert_eq!(
        states_after_kill(disk),
        [(Priority(5), 0, JobState::Ready), (Priority(5), 0, JobState::Buried)]
    );
    (harness, client)
}

/// Jobs 1 and 3 once the log has all of their states.
const RELEASED: [(Priority, u32, JobState); 2] = [(Priority(9), 1, JobState::Ready); 2];

/// The priorities of jobs 1 and 3, how often they were released, and their states, as a server finds them that starts
/// after a kill, when the disk has room.
fn states_after_kill(disk: &SimDisk) -> [(Priority, u32, JobState); 2] {
    let disk = disk.fork();
    disk.set_room(None);
    let after = SimulatedServer::start_on(disk, SyncPolicy::EachCommit, FILE_BYTES);
    [1, 3].map(|id| {
        let record = after.queue().job(JobId(id)).expect("it was never deleted").record;
        (record.priority, record.counters.releases, record.state)
    })
}

/// Another program takes over the server and its log.
fn hand_over_with_log(harness: &mut SimulatedServer, client: &Connection) {
    harness.server.executor_mut().quiesce_binlog(harness.now);
    let next = Server::new(executor(PoisonLimits::default(), 100));
    hand_over(&mut harness.server, next, [client].into_iter(), true, harness.now);
    let config =
        Config { file_bytes: FILE_BYTES, sync: SyncPolicy::EachCommit, recover: false, nonce_seed: 1 };
    let (storage, executor) = (harness.disk.storage(), harness.server.executor_mut());
    executor.continue_with_binlog(storage, config, harness.now, 0).expect("the log goes on");
}

#[test]
fn when_the_disk_has_room_again_the_log_gets_the_states_that_it_lacks() {
    for is_handed_over in [false, true] {
        let disk = SimDisk::default();
        let (mut harness, client) = start_with_lacking_states(&disk);
        if is_handed_over {
            hand_over_with_log(&mut harness, &client);
        }
        disk.set_room(None);
        // The log makes a file at its next attempt.
        for _ in 0..2 {
            harness.pass(NS_PER_S);
            while harness.help() {}
        }
        assert_eq!(states_after_kill(&disk), RELEASED, "is handed over: {is_handed_over}");
    }
}

#[test]
fn a_clean_exit_waits_for_the_file_that_takes_the_states_that_the_log_lacks() {
    let disk = SimDisk::default();
    let (mut harness, _client) = start_with_lacking_states(&disk);
    disk.set_room(None);
    harness.now = harness.now + NS_PER_S;
    harness.turn([]);
    let now = harness.now;
    harness.server.executor_mut().close_binlog(now).expect("the disk has room");
    assert_eq!(states_after_kill(&disk), RELEASED);
}

#[test]
fn a_clean_exit_during_which_the_disk_fails_returns_the_reason() {
    let disk = SimDisk::default();
    let (mut harness, _client) = start_with_lacking_states(&disk);
    disk.set_room(None);
    harness.now = harness.now + NS_PER_S;
    harness.turn([]);
    disk.crash_after(0);
    let now = harness.now;
    let error = harness.server.executor_mut().close_binlog(now).expect_err("the disk has failed");
    assert!(!matches!(error, BinlogError::Stopped), "{error}");
}
