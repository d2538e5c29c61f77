//! A pause in which the server executes no new command, because it is about to be handed over, and after which it
//! continues itself: the hand-over has failed. What has happened in the pause must have its effect then.

use beanstalkd_binlog::SyncPolicy;

use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::simulated::{Connection, SimulatedServer};

use crate::access::{ANNA, guarded};

const SLOW: &str =
    "[identities.anna]\nunix-users = [1]\nproduce = [\"*\"]\nwork = [\"*\"]\nputs-per-second = 1\n";

/// Pauses the server for some turns, in the first of which these clients have events.
fn pause_for<'a>(server: &mut SimulatedServer, clients: impl IntoIterator<Item = &'a Connection>) {
    server.pause(true);
    server.one_turn(clients);
    for _ in 0..3 {
        server.one_turn([]);
    }
    server.pause(false);
    server.turn([]);
}

#[test]
fn a_client_that_sends_no_more_or_leaves_in_a_pause_does_not_wait_after_it() {
    let happenings: [fn(&Connection); 3] =
        [Connection::end, |client| client.pipe.borrow_mut().end(true), Connection::break_off];
    let waits = [
        "reserve\r\n",
        "reserve-with-timeout 600\r\n",
        "reserve-with-abort\r\n",
        "reserve-batch 5 600\r\n",
        "wait-job 1\r\n",
        // A put that waits for its pace, with another one behind it.
        "put 0 0 9 1\r\na\r\nput 0 0 9 1\r\nb\r\nput 0 0 9 1\r\nc\r\n",
    ];
    for rules in [false, true] {
        for wait in waits {
            for (number, happen) in happenings.iter().enumerate() {
                let mut server = if rules { guarded(SLOW) } else { SimulatedServer::with_max_job_bytes(100) };
                let [holder, client] = [(); 2].map(|()| server.connect_as(ANNA));
                server.say(&holder, "put 0 0 600 1\r\nx\r\nreserve\r\n");
                server.say(&client, wait);
                happen(&client);
                pause_for(&mut server, [&client]);
                let case = format!("{wait:?} with rules: {rules}, happening {number}");
                assert_eq!(server.queue().figures().waiting, 0, "{case}");
                assert_eq!(server.client_count(), 1, "{case}");
                let is_put = wait.starts_with("put");
                if number == 0 && !is_put {
                    assert_eq!(client.received(), "TIMED_OUT\r\n", "{case}");
                }
            }
        }
    }
}

#[test]
fn a_command_that_comes_in_a_pause_is_executed_after_it() {
    let mut server = SimulatedServer::with_max_job_bytes(100);
    let [line, half, abortable] = server.connect_each();
    server.say(&half, "put 0 0 600 5\r\nhe");
    server.say(&abortable, "reserve-with-abort\r\n");
    line.send("list-tube-used\r\n");
    half.send("llo\r\n");
    abortable.send("list-tube-used\r\n");
    server.pause(true);
    server.one_turn([&line, &abortable, &half]);
    assert_eq!([&line, &half, &abortable].map(Connection::received), ["", "", ""]);
    server.pause(false);
    server.turn([]);
    assert_eq!(line.received(), "USING default\r\n");
    assert_eq!(half.received(), "INSERTED 1\r\n");
    assert!(abortable.received().ends_with("USING default\r\n"));
}

/// The last step before a hand-over waits for the files of the log that are being made. If the hand-over then fails,
/// nothing else tells the commands that wait for one of them.
#[test]
fn a_put_that_waits_for_a_file_goes_on_if_the_last_step_fails() {
    let mut server = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::Never, 4096);
    let client = server.connect();
    let mut puts = 0;
    while server.next_put_is_answered(&client) {
        puts += 1;
        assert!(puts < 1000, "a put has to wait for a file");
    }
    server.pause(true);
    server.one_turn([]);
    let now = server.now;
    assert!(server.is_quiet(), "it can be described");
    server.executor_mut().quiesce_binlog(now);
    server.pause(false);
    server.turn([]);
    assert_eq!(client.received(), format!("INSERTED {}\r\n", puts + 1));
}

/// Without copies no file would ever be removed from a full disk, and the put could take their room. Whether the log
/// waits for room for copies depends on which jobs are left.
#[test]
fn copies_come_before_a_put_that_goes_on_if_the_last_step_fails() {
    let has_copied = |kept: usize| (10..120).step_by(5).any(|deleted| copies_in_last_step(kept, deleted) > 0);
    assert!((2..6).any(has_copied));
}

/// The number of copies in the last step, after the deletes of some jobs, except each `kept`th.
fn copies_in_last_step(kept: usize, deleted: usize) -> u64 {
    let mut server = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::Never, 4096);
    let [client, other] = server.connect_each();
    for _ in 0..120 {
        assert!(server.say_and_wait(&client, PUT).starts_with("INSERTED"));
    }
    let mut puts = 120;
    while server.next_put_is_answered(&client) {
        puts += 1;
    }
    let deletes = (1..deleted).filter(|id| !id.is_multiple_of(kept)).map(|id| format!("delete {id}\r\n"));
    other.send(deletes.collect::<String>());
    server.turn([&other]);
    other.received();
    other.send("stats\r\n");
    server.turn([&other]);
    let before = migrated(&other.received());
    server.pause(true);
    let now = server.now;
    server.executor_mut().quiesce_binlog(now);
    server.pause(false);
    other.send("stats\r\n");
    // The put comes before the statistics, and the copies of the turn after them.
    server.one_turn([&other]);
    assert_eq!(client.received(), format!("INSERTED {}\r\n", puts + 1));
    migrated(&other.received()) - before
}

const PUT: &str = "put 0 0 600 90\r\n\
    012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\r\n";

/// The number of copies, in the output of `stats`.
fn migrated(stats: &str) -> u64 {
    let count = stats.lines().find_map(|line| line.strip_prefix("binlog-records-migrated: "));
    count.expect("stats have it").parse().expect("it is a number")
}

trait Puts {
    fn next_put_is_answered(&mut self, client: &Connection) -> bool;
}

impl Puts for SimulatedServer {
    /// Puts a job, without help for the log.
    fn next_put_is_answered(&mut self, client: &Connection) -> bool {
        client.send(format!("put 0 0 600 90\r\n{}\r\n", "x".repeat(90)));
        self.turn([client]);
        !client.received().is_empty()
    }
}
