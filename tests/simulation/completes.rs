//! `complete`: single cases about the time between its line and its last body, and about its refusals.

use std::cell::Cell;

use beanstalkd::access::AccessRules;
use beanstalkd::server::Server;
use beanstalkd::simulation::CommandRefusal;
use beanstalkd_binlog::SyncPolicy;
use beanstalkd_queue::{PoisonLimits, TubeRule};
use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer, described, executor, hand_over};
use beanstalkd_types::clock::NS_PER_S;

use crate::access::{self, ANNA, OPERATOR};

/// A job, reserved, and its `complete` with two puts.
const RESERVE: &str = "put 0 0 60 1\r\nx\r\nreserve\r\n";
const RESERVED: &str = "INSERTED 1\r\nRESERVED 1 1\r\nx\r\n";
const COMPLETE: &str = "complete 1 2\r\nput 0 0 60 4 grp:g tub:t\r\nquit\r\nput 7 0 60 0\r\n\r\n";

#[test]
fn a_hand_over_after_any_byte_of_a_complete_changes_nothing_of_it() {
    for (stream, expected) in [
        (COMPLETE.to_owned() + "peek 2\r\n", "COMPLETED 2 3\r\nFOUND 2 4\r\nquit\r\n"),
        (COMPLETE.replace("\r\n\r\n", "\r\nX\n") + "peek 1\r\n", "EXPECTED_CRLF\r\nFOUND 1 1\r\nx\r\n"),
        (COMPLETE.replace("0 4 grp", "0 4 what grp") + "peek 1\r\n", "BAD_FORMAT\r\nFOUND 1 1\r\nx\r\n"),
        (COMPLETE.replace(" 1 2", " 9 2") + "peek 1\r\n", "NOT_FOUND\r\nFOUND 1 1\r\nx\r\n"),
        (COMPLETE.replace("0 4 grp", &format!("0 4 grp:{} grp", "h".repeat(1300))), "BAD_FORMAT\r\n"),
        // Only the bytes after the 224 of a line of C show that this put has a tag.
        (
            COMPLETE.replace("0 4 grp", &format!("0 {}4 grp", "0".repeat(216))) + "peek 2\r\n",
            "COMPLETED 2 3\r\nFOUND 2 4\r\nquit\r\n",
        ),
        (COMPLETE.replace("0 4 grp", &format!("0 4 {} grp", "x".repeat(300))), "BAD_FORMAT\r\n"),
        (COMPLETE.replace("0 0\r", &format!("0 {}\r", "0".repeat(300))), "BAD_FORMAT\r\n"),
        (COMPLETE.replace("0 0\r", &format!("0 {}\r", "0".repeat(1300))), "BAD_FORMAT\r\n"),
        (COMPLETE.replace("put 7", "pat 7"), "BAD_FORMAT\r\n"),
    ] {
        for cut in 0..=stream.len() {
            let mut harness = SimulatedServer::with_max_job_bytes(100);
            let client = harness.connect();
            assert_eq!(harness.say(&client, RESERVE), RESERVED);
            let mut replies = harness.say(&client, &stream[..cut]);
            if harness.client_count() == 1 {
                let next = Server::new(executor(PoisonLimits::default(), 100));
                let description = hand_over(&mut harness.server, next, [&client].into_iter(), false, START);
                assert!(described(&harness) == description, "what was read is what was described");
                harness.check_invariants();
                replies += &harness.say(&client, &stream[cut..]);
            }
            assert_eq!(replies, expected, "cut at {cut} of {stream}");
            harness.queue().check_invariants();
        }
    }
}

/// If the job is lost in any way while the puts arrive, they are read, and nothing has changed.
#[test]
fn a_complete_whose_job_is_lost_while_its_puts_come_changes_nothing() {
    for how in ["kill", "session", "flush", "leave"] {
        for cut in [COMPLETE.find("quit").unwrap() + 2, COMPLETE.len() - 1] {
            let mut harness = SimulatedServer::with_max_job_bytes(100);
            let [worker, other] = harness.connect_each();
            harness.say(&worker, "session s 60\r\n");
            assert_eq!(harness.say(&worker, RESERVE), RESERVED);
            assert_eq!(harness.say(&worker, &COMPLETE[..cut]), "");
            let number = harness.queue().client_number(worker.id);
            match how {
                "kill" => assert_eq!(harness.say(&other, format!("kill-client {number}\r\n")), "KILLED\r\n"),
                "session" => assert_eq!(harness.say(&other, "session s 60\r\n"), "SESSION 1\r\n"),
                "flush" => assert_eq!(harness.say(&other, "flush-tube default\r\n"), "FLUSHED 1\r\n"),
                _ => {
                    worker.pipe.borrow_mut().end(true);
                    harness.say(&worker, "");
                }
            }
            let rest = harness.say(&worker, &COMPLETE[cut..]);
            assert_eq!(rest, if how == "flush" { "NOT_FOUND\r\n" } else { "" }, "{how}");
            let jobs = harness.queue().figures().jobs;
            assert_eq!(jobs.total(), usize::from(how != "flush"), "{how}");
            assert_eq!(harness.say(&other, "peek 2\r\nstats-group g\r\n"), "NOT_FOUND\r\nNOT_FOUND\r\n");
            harness.check_invariants();
        }
    }
}

/// A server with one identity with these lines in its table, and a worker that has reserved a job of 1 byte.
fn guarded(lines: &str) -> (SimulatedServer, Connection) {
    let all = "produce = [\"*\"]\nwork = [\"*\"]\nmanage = [\"*\"]\n";
    let mut server = access::guarded(&format!(
        "[identities.team]\nunix-users = [1]\n{all}{lines}\n[identities.operator]\nunix-users = [0]\n{all}"
    ));
    let client = server.connect_as(ANNA);
    assert_eq!(server.say(&client, RESERVE), RESERVED);
    (server, client)
}

#[test]
fn the_puts_of_a_complete_count_for_the_rate_and_the_commands_behind_it_wait() {
    let (mut server, client) = guarded("puts-per-second = 2");
    let other = server.connect_as(ANNA);
    // One of the two puts of the first second is used.
    assert_eq!(server.say(&client, format!("{COMPLETE}list-tube-used\r\n")), "");
    let operator = server.connect_as(OPERATOR);
    assert_eq!(server.say(&operator, "peek 1\r\npeek 2\r\n"), "FOUND 1 1\r\nx\r\nNOT_FOUND\r\n");
    assert_eq!(server.say(&other, "put 0 0 60 1\r\ny\r\n"), "", "it waits for the end of the complete");
    server.pass(500_000_000);
    assert_eq!(client.received(), "COMPLETED 2 3\r\nUSING default\r\n");
    assert_eq!(other.received(), "");
    server.pass(500_000_000);
    assert_eq!(other.received(), "INSERTED 4\r\n");
    // One without puts waits for nothing.
    assert_eq!(
        server.say(&client, "reserve-job 4\r\ncomplete 4 0\r\n"),
        "RESERVED 4 1\r\ny\r\nCOMPLETED\r\n"
    );
}

/// A `complete` of this job with this number of puts.
fn complete_with(id: u64, puts: usize) -> String {
    format!("complete {id} {puts}\r\n{}", "put 0 0 60 1\r\ny\r\n".repeat(puts))
}

#[test]
fn a_complete_that_is_refused_anyway_does_not_wait_and_uses_no_permission() {
    let (mut server, client) = guarded("puts-per-second = 2\nmax-job-bytes = 10000");
    for (refused, reply) in [
        (complete_with(9, 40), "NOT_FOUND\r\n"),
        (complete_with(1, 90), "OUT_OF_MEMORY\r\n"),
        ("complete 1 1\r\nput 0 0 60 1 what\r\nx\r\n".to_owned(), "BAD_FORMAT\r\n"),
        ("complete 1 1\r\nput 0 0 60 1\r\nxyz".to_owned(), "EXPECTED_CRLF\r\n"),
        (
            format!("drain\r\n{}put 0 0 60 1\r\ny\r\nundrain\r\n", complete_with(1, 3)),
            "DRAINING\r\nDRAINING\r\n",
        ),
    ] {
        let replies = server.say(&client, &refused);
        let expected = if refused.starts_with("drain") {
            format!("DRAINING\r\n{reply}NOT_DRAINING\r\n")
        } else {
            reply.to_owned()
        };
        assert_eq!(replies, expected, "{refused}");
    }
    // One put of the first second is left.
    assert!(server.say(&client, complete_with(1, 1)).starts_with("COMPLETED "));
    assert!(server.say(&client, "stats\r\n").contains("identity-puts-delayed: 0\n"));
}

/// The client could not touch the job while it waits, and would get NOT_FOUND in the end.
#[test]
fn a_complete_that_would_wait_past_the_end_of_its_reservation_is_refused_at_once() {
    let (mut server, client) = guarded("puts-per-second = 2");
    assert_eq!(server.say(&client, "touch 1 10\r\n"), "TOUCHED\r\n");
    assert_eq!(server.say(&client, complete_with(1, 21)), "OUT_OF_MEMORY\r\n", "10 s for 20 puts");
    assert_eq!(server.say(&client, complete_with(1, 20)), "", "9.5 s for 19 puts");
    server.pass(9_500_000_000);
    assert!(client.received().starts_with("COMPLETED "));
}

/// Nobody waits for puts that are not done, in whatever way their client ends.
#[test]
fn all_puts_of_a_complete_that_ends_with_its_client_are_given_back() {
    for how in ["lost", "killed", "half-closed"] {
        let (mut server, client) = guarded("puts-per-second = 2");
        let (other, operator) = (server.connect_as(ANNA), server.connect_as(OPERATOR));
        assert_eq!(server.say(&client, complete_with(1, 40)), "");
        match how {
            "killed" => {
                let number = server.queue().client_number(client.id);
                assert_eq!(server.say(&operator, format!("kill-client {number}\r\n")), "KILLED\r\n");
            }
            "half-closed" => {
                client.end();
                assert_eq!(server.say(&client, ""), "OUT_OF_MEMORY\r\n");
            }
            _ => {
                client.break_off();
                server.turn([&client]);
            }
        }
        assert!(server.say(&other, "put 0 0 60 1\r\nz\r\n").starts_with("INSERTED "), "{how}");
    }
}

#[test]
fn a_complete_that_loses_its_job_or_client_while_it_waits_changes_nothing() {
    for lost in ["job", "client"] {
        let (mut server, client) = guarded("puts-per-second = 1");
        assert_eq!(server.say(&client, COMPLETE), "");
        let operator = server.connect_as(OPERATOR);
        if lost == "job" {
            assert_eq!(server.say(&operator, "flush-tube default\r\n"), "FLUSHED 1\r\n");
        } else {
            client.break_off();
            server.turn([&client]);
        }
        server.pass(5_000_000_000);
        assert_eq!(client.received(), if lost == "job" { "NOT_FOUND\r\n" } else { "" });
        let jobs = server.queue().figures().jobs;
        assert_eq!(jobs.total(), usize::from(lost == "client"), "{lost}");
        server.queue().check_invariants();
    }
}

/// Each job counts its body and 128 bytes. The job that ends makes room for the puts.
#[test]
fn the_jobs_of_an_identity_have_an_exact_bound_in_a_complete() {
    let puts = |sizes: &[usize]| -> String {
        let each = |size: &usize| format!("put 0 0 60 {size}\r\n{}\r\n", "y".repeat(*size));
        format!("complete 1 {}\r\n{}", sizes.len(), sizes.iter().map(each).collect::<String>())
    };
    let owned = |server: &mut SimulatedServer, client: &Connection| -> usize {
        let stats = server.say(client, "stats\r\n");
        let line = stats.lines().find_map(|line| line.strip_prefix("identity-job-bytes: "));
        line.expect("the key is there").parse().expect("a number")
    };
    for (sizes, fits) in [(&[71, 1][..], true), (&[71, 2], false), (&[200], true), (&[201], false)] {
        let (mut server, client) = guarded("max-job-bytes = 328");
        let before = owned(&mut server, &client);
        assert_eq!(before, 129);
        let reply = server.say(&client, puts(sizes));
        let after = owned(&mut server, &client);
        if fits {
            assert!(reply.starts_with("COMPLETED "), "{sizes:?}: {reply}");
            assert_eq!(after, sizes.iter().map(|size| size + 128).sum::<usize>());
        } else {
            assert_eq!((reply.as_str(), after), ("OUT_OF_MEMORY\r\n", before), "{sizes:?}");
        }
        server.queue().check_invariants();
    }
}

thread_local! {
    static IS_EXHAUSTED: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn while_memory_is_short_a_complete_with_puts_is_refused_and_its_bodies_are_freed() {
    let mut harness = SimulatedServer::with_max_job_bytes(100);
    harness.executor_mut().watch_memory(|| IS_EXHAUSTED.get());
    let client = harness.connect();
    assert_eq!(harness.say(&client, RESERVE), RESERVED);
    IS_EXHAUSTED.set(true);
    for drained in ["", "drain\r\n"] {
        harness.say(&client, drained);
        for (puts, reply) in [
            (COMPLETE.to_owned(), "OUT_OF_MEMORY\r\n"),
            (COMPLETE.replace("0 4 grp", "0 4 what grp"), "OUT_OF_MEMORY\r\n"),
            (COMPLETE.replace("\r\n\r\n", "\r\nX\n"), "OUT_OF_MEMORY\r\n"),
            (COMPLETE.replace("0 0\r\n", &format!("0 101\r\n{}", "x".repeat(101))), "JOB_TOO_BIG\r\n"),
            (COMPLETE.replace(" 1 2", " 9 2"), "NOT_FOUND\r\n"),
        ] {
            assert_eq!(harness.say(&client, &puts), reply, "{puts}");
        }
    }
    harness.say(&client, "undrain\r\n");
    IS_EXHAUSTED.set(false);
    // Memory becomes short while the puts arrive.
    let cut = COMPLETE.len() - 1;
    assert_eq!(harness.say(&client, &COMPLETE[..cut]), "");
    IS_EXHAUSTED.set(true);
    assert_eq!(harness.say(&client, &COMPLETE[cut..]), "OUT_OF_MEMORY\r\n");
    assert_eq!(harness.say(&client, "complete 1 0\r\n"), "COMPLETED\r\n");
    IS_EXHAUSTED.set(false);
    assert_eq!(harness.queue().figures().jobs.total(), 0);
    harness.check_invariants();
}

/// Rules by which everybody is a worker, and with `further` lines.
fn rules_of_workers(further: &str) -> AccessRules {
    let text = format!("[strangers]\nwork = [\"*\"]\n{further}");
    AccessRules::parse(&text, &|_| None).expect("the rules are right")
}

/// A server whose client has reserved a job, and a `complete` with one put that the server refuses for this reason; and
/// the reply.
fn refusing(refusal: Option<CommandRefusal>) -> (SimulatedServer, Connection, String, &'static str) {
    IS_EXHAUSTED.set(false);
    let mut harness = SimulatedServer::with_max_job_bytes(100);
    harness.executor_mut().watch_memory(|| IS_EXHAUSTED.get());
    let is_guarded = refusal == Some(CommandRefusal::Forbidden);
    if is_guarded {
        harness.executor_mut().guard_with(rules_of_workers("produce = [\"*\"]\n"));
    }
    let client = harness.connect();
    if is_guarded {
        harness.identify(client.id, OPERATOR, START);
    }
    assert_eq!(harness.say(&client, RESERVE), RESERVED);
    let complete = "complete 1 1\r\nput 0 0 60 1\r\ny\r\n".to_owned();
    let (complete, reply) = match refusal {
        None => (complete, "COMPLETED 2\r\n"),
        Some(CommandRefusal::NotFound) => (complete.replace("complete 1", "complete 9"), "NOT_FOUND\r\n"),
        Some(CommandRefusal::Forbidden) => {
            harness.server.replace_rules(rules_of_workers(""), START);
            (complete, "FORBIDDEN\r\n")
        }
        Some(CommandRefusal::JobTooBig) => {
            let body = format!("60 101\r\n{}\r\n", "y".repeat(101));
            (complete.replace("60 1\r\ny\r\n", &body), "JOB_TOO_BIG\r\n")
        }
        Some(CommandRefusal::OutOfMemory) => {
            IS_EXHAUSTED.set(true);
            (complete, "OUT_OF_MEMORY\r\n")
        }
        Some(CommandRefusal::Draining) => {
            harness.executor_mut().set_draining(true);
            (complete, "DRAINING\r\n")
        }
        Some(CommandRefusal::TubeFull) => {
            harness.say(&client, "put 0 0 60 1\r\nx\r\n");
            let rule = TubeRule { max_jobs: Some(1), ..TubeRule::new("default") };
            harness.executor_mut().set_tube_rules(vec![rule], START);
            (complete, "TUBE_FULL\r\n")
        }
        Some(CommandRefusal::BadTag) => (complete.replace("60 1\r", "60 1 what\r"), "BAD_FORMAT\r\n"),
        Some(CommandRefusal::ExpectedCrlf) => (complete.replace("y\r\n", "yXY"), "EXPECTED_CRLF\r\n"),
    };
    (harness, client, complete, reply)
}

/// A `complete` with one put that has arrived whole has a way of its own through the server, which checks everything at
/// once. In two pieces it takes the usual way.
#[test]
fn a_complete_that_has_arrived_whole_is_answered_like_one_in_two_pieces() {
    use CommandRefusal::{
        BadTag, Draining, ExpectedCrlf, Forbidden, JobTooBig, NotFound, OutOfMemory, TubeFull,
    };
    let refusals =
        [NotFound, Forbidden, JobTooBig, OutOfMemory, Draining, TubeFull, BadTag, ExpectedCrlf].map(Some);
    for refusal in refusals.into_iter().chain([None]) {
        let answered = |cut: usize| {
            let (mut harness, client, complete, reply) = refusing(refusal);
            let first = harness.say(&client, &complete[..cut]);
            let replies = first + &harness.say(&client, &complete[cut..]);
            assert_eq!(replies, reply, "{refusal:?}, cut at {cut} of {complete}");
            IS_EXHAUSTED.set(false);
            harness.check_invariants();
            described(&harness.server)
        };
        let length = refusing(refusal).2.len();
        let whole = answered(length);
        for cut in 1..length {
            assert!(answered(cut) == whole, "{refusal:?}: the state after a cut at {cut} of {length}");
        }
    }
}

/// On a full disk a complete with puts is refused, and changes nothing; one without puts makes room.
#[test]
fn a_full_disk_refuses_a_complete_and_keeps_its_job() {
    for sync in [SyncPolicy::EachCommit, SyncPolicy::Every(50)] {
        let mut harness = SimulatedServer::start_on(SimDisk::default(), sync, 4096);
        let client = harness.connect();
        assert_eq!(harness.say(&client, RESERVE.replace(" 60 ", " 100000 ")), RESERVED);
        harness.disk.set_room(Some(harness.disk.used()));
        let mut puts = 0;
        while harness.say_and_wait(&client, "put 5 0 100 0\r\n\r\n").starts_with("INSERTED") {
            puts += 1;
            assert!(puts < 10_000, "the disk becomes full");
        }
        let complete = "complete 1 1\r\nput 0 0 60 1\r\ny\r\n";
        assert_eq!(harness.say_and_wait(&client, complete), "OUT_OF_MEMORY\r\n");
        let job = harness.say(&client, "stats-job 1\r\n");
        assert!(job.contains("state: reserved\n"), "{job}");
        let image = harness.disk.crashed_image(&mut Random::new(1));
        image.set_room(None);
        let mut next = SimulatedServer::start_on(image, sync, 4096);
        let worker = next.connect();
        assert_eq!(next.say(&worker, "peek 1\r\n"), "FOUND 1 1\r\nx\r\n");
        // There is always room for the record of a delete.
        assert_eq!(harness.say_and_wait(&client, "complete 1 0\r\n"), "COMPLETED\r\n");
        harness.disk.set_room(None);
        assert_eq!(harness.say_and_wait(&client, "reserve-job 3\r\n"), "RESERVED 3 0\r\n\r\n");
        // The log makes a file at one of its next attempts.
        let completes = (0..20).any(|_| {
            harness.pass(NS_PER_S);
            while harness.help() {}
            harness.say_and_wait(&client, "complete 3 1\r\nput 0 0 60 1\r\ny\r\n").starts_with("COMPLETED ")
        });
        assert!(completes, "it is done when there is room again");
        harness.check_invariants();
    }
}

/// All jobs of a `complete` must fit into one file of the log, also those from the first full tube on.
#[test]
fn a_complete_that_is_too_long_for_the_log_is_refused_before_a_full_tube_counts() {
    let put = format!("put 0 0 60 100\r\n{}\r\n", "y".repeat(100));
    let put_into_full_tube = "put 0 0 60 1 tub:few\r\ny\r\n";
    for (before, after, reply) in [
        (0, 40, "OUT_OF_MEMORY\r\n"),
        (20, 20, "OUT_OF_MEMORY\r\n"),
        (40, 0, "OUT_OF_MEMORY\r\n"),
        (0, 10, "TUBE_FULL\r\n"),
        (5, 5, "TUBE_FULL\r\n"),
    ] {
        let mut harness = SimulatedServer::start_on(SimDisk::default(), SyncPolicy::EachCommit, 4096);
        let rule = TubeRule { max_jobs: Some(1), ..TubeRule::new("few") };
        harness.executor_mut().set_tube_rules(vec![rule], START);
        let client = harness.connect();
        let prepared = harness.say_and_wait(&client, RESERVE.to_owned() + put_into_full_tube);
        assert_eq!(prepared, RESERVED.to_owned() + "INSERTED 2\r\n");
        let (count, before_puts, after_puts) = (before + 1 + after, put.repeat(before), put.repeat(after));
        let complete = format!("complete 1 {count}\r\n{before_puts}{put_into_full_tube}{after_puts}");
        assert_eq!(harness.say_and_wait(&client, complete), reply, "{before} puts before, {after} after");
        harness.check_invariants();
    }
}
