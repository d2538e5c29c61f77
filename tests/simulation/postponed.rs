//! Replies while making the next file of the log takes long: no reply leaves before its changes are in the log,
//! wherever the previous file ends.

use beanstalkd_binlog::SyncPolicy;
use beanstalkd_queue::{Queue, TubeRule};
use beanstalkd_types::job::JobId;

use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::START;

use crate::waits::{Client, Harness};

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

const CASES: [Case; 7] = [
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
fn is_done_after_kill(case: &Case, disk: &SimDisk) -> bool {
    let after = Harness::start(disk.fork(), SyncPolicy::Every(50), FILE_BYTES);
    (case.is_done)(after.server.executor().queue())
}

/// A server with job 1 in the tube `fails`, whose jobs die of a failure, job 2 in `ages`, whose jobs die of age, and
/// job 3 in `fill`; and three clients.
fn start(disk: &SimDisk) -> (Harness, [Client; 3]) {
    let mut harness = Harness::start(disk.clone(), SyncPolicy::Every(50), FILE_BYTES);
    let dead_tube = || Some("dead".into());
    let rules = vec![
        TubeRule { max_attempts: Some(1), dead_tube: dead_tube(), ..TubeRule::new("fails") },
        TubeRule { max_age_s: Some(3), dead_tube: dead_tube(), ..TubeRule::new("ages") },
    ];
    harness.server.executor_mut().set_tube_rules(rules, START);
    let clients = [(); 3].map(|()| harness.connect());
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
    filler.pipe.borrow_mut().arrive(FILL.repeat(fill).as_bytes());
    harness.turn(&[&filler]);
    worker.pipe.borrow_mut().arrive(case.command.as_bytes());
    harness.turn(&[&worker]);
    other.pipe.borrow_mut().arrive(case.other.as_bytes());
    harness.turn(&[&other]);
    let reply = worker.received();
    if !reply.is_empty() {
        assert_eq!(reply, case.reply);
        assert!(is_done_after_kill(case, &disk), "{} is lost, filled with {fill}", case.command);
        return false;
    }
    while harness.help() {}
    assert_eq!(worker.received(), case.reply, "{}, filled with {fill}", case.command);
    assert!(is_done_after_kill(case, &disk), "{} is lost, filled with {fill}", case.command);
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
        client.pipe.borrow_mut().arrive(commands.as_bytes());
        harness.turn(&[client]);
    }
    harness.now = harness.now.plus_seconds(600);
    disk.crash_after(operation);
    harness.turn(&[]);
    while !disk.has_crashed() && harness.help() {}
    let disk = disk.fork();
    disk.crash_after(1 << 60);
    let after = Harness::start(disk, SyncPolicy::Every(50), FILE_BYTES);
    let queue = after.server.executor().queue();
    let is_dead = is_in(queue, 1, "dead");
    let timeouts = queue.job(JobId(1)).map(|job| job.record.counters.timeouts);
    assert_eq!(timeouts, Some(u32::from(is_dead)), "operation {operation}, filled with {fill}");
    is_dead
}

#[test]
fn a_kill_leaves_no_job_in_its_tube_with_the_failure_of_which_it_has_died() {
    const MAX_OPERATIONS: u64 = 20;
    let operations = |fill| (1..=MAX_OPERATIONS).map(move |operation| (fill, operation));
    let dead = (0..MAX_FILL).flat_map(operations).filter(|&(fill, at)| is_dead_after_kill(fill, at)).count();
    assert!((1..MAX_FILL * MAX_OPERATIONS as usize).contains(&dead), "dead in {dead} runs");
}
