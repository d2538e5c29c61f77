//! Attacks of a client, an operator or a machine in the middle of a hand-over.

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::Duration;

use beanstalkd_testkit::copy_built_server;
use beanstalkd_testkit::panicking::{Client, scale, wait_until};
use beanstalkd_testkit::random::Random;
use rustix::process::{Pid, Signal, kill_process};

use super::LOGS;
use super::service::{BROKEN_AFTER_TRIAL, Service};

#[test]
fn commands_that_come_byte_by_byte_lose_none() {
    for log in LOGS {
        let service = Service::start(log);
        let mut client = service.connect();
        let stream = b"put 0 0 600 4\r\nbody\r\nreserve\r\nwatch a\r\nignore a\r\n";
        for round in 0..3 {
            for (at, byte) in stream.iter().enumerate() {
                if at % 9 == round {
                    service.replace();
                    service.signal(Signal::HUP);
                }
                client.send([*byte]);
                // Each program reports that it is ready, and waits if nobody listens.
                while service.next_message().is_some() {}
            }
            let id = round + 1;
            let replies = [format!("INSERTED {id}"), format!("RESERVED {id} 4"), "body".to_owned()];
            for reply in replies.iter().map(String::as_str).chain(["WATCHING 2", "WATCHING 1"]) {
                assert_eq!(client.line(), reply, "round {round} with {log:?}");
            }
        }
    }
}

#[test]
fn a_stop_in_the_middle_of_a_hand_over_ends_the_server_in_order() {
    let mut random = Random::new(3);
    for round in 0..scale("HANDOVER_STOPS", 8) {
        let mut service = Service::start(&["-b", "{dir}", "-f", "0"]);
        let mut client = service.connect();
        for _ in 0..10 {
            client.put(0, 600, b"x");
        }
        service.replace();
        service.signal(Signal::HUP);
        thread::sleep(Duration::from_micros(random.below(100_000)));
        assert!(service.stop().success(), "round {round}: {}", service.log());
        assert!(!service.directory().join("socket").exists(), "its socket is gone");
        client.expect_closed();
    }
}

#[test]
fn a_client_that_never_reads_is_handed_over_up_to_a_bound_and_delays_nobody() {
    const LARGE: usize = 6_000_000;
    const TOO_LARGE: usize = 18_000_000;
    let service = Service::start(&["-z", "20000000"]);
    let (mut some, mut much) = (service.connect(), service.connect());
    let mut producer = service.connect();
    let ids = [LARGE, TOO_LARGE].map(|bytes| producer.put(0, 600, &vec![b'x'; bytes]));
    some.send(format!("peek {}\r\n", ids[0]));
    // This reply exceeds the 16 MiB that are handed over.
    much.send(format!("peek {}\r\n", ids[1]));
    producer.data("stats");
    service.hand_over();
    assert_eq!(producer.ask("use a"), "USING a");
    assert_eq!(some.line(), format!("FOUND {} {LARGE}", ids[0]));
    assert!(some.body(LARGE).iter().all(|&byte| byte == b'x'));
    assert_eq!(some.ask("use b"), "USING b");
    assert_eq!(producer.stat("current-connections"), 2, "the other one is closed");
    assert!(much.read_to_end() < TOO_LARGE);
}

#[test]
fn two_connections_that_take_one_session_at_the_same_moment_are_one_at_the_end() {
    for log in LOGS {
        let service = Service::start(log);
        let mut first = service.connect();
        assert_eq!(first.ask("session s 60"), "SESSION 0");
        let id = first.put(0, 600, b"x");
        first.reserve("reserve");
        let (mut second, mut third) = (service.connect(), service.connect());
        second.send("session s 60\r\n");
        third.send("session s 60\r\n");
        service.hand_over();
        let mut left = [second, third].into_iter().filter_map(|mut client| {
            let answers = [client.try_line(), client.try_line_of("list-tube-used")];
            answers[1].as_ref().map(|_| client)
        });
        let mut holder = left.next().expect("one of them has it");
        assert!(left.next().is_none(), "and the other one is closed");
        first.expect_closed();
        assert_eq!(holder.data(&format!("stats-job {id}"))["session"], "s", "with {log:?}");
        assert_eq!(service.connect().ask(&format!("delete {id}")), "NOT_FOUND");
        assert_eq!(holder.ask(&format!("delete {id}")), "DELETED");
    }
}

trait Asks {
    fn try_line_of(&mut self, line: &str) -> Option<String>;
}

impl Asks for Client {
    /// The reply; `None` if the connection is closed.
    fn try_line_of(&mut self, line: &str) -> Option<String> {
        self.0.send(format!("{line}\r\n").as_bytes()).ok()?;
        self.try_line()
    }
}

/// The next program continues the log of this one. Its own records and the earlier ones survive a crash.
#[test]
fn a_crash_after_hand_overs_keeps_what_both_programs_have_logged() {
    const FLAGS: &[&str] = &["-b", "{dir}", "-f", "0", "-s", "65536"];
    let mut service = Service::start(FLAGS);
    let mut client = service.connect();
    let mut worker = service.connect();
    worker.ask("session w 600");
    let body = vec![b'x'; 3_000];
    let mut left = HashSet::new();
    for round in 0..6 {
        for _ in 0..60 {
            left.insert(client.put(0, 600, &body));
        }
        let gone: Vec<u64> = left.iter().copied().filter(|id| id % 3 != round % 3).take(50).collect();
        for id in gone {
            assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
            left.remove(&id);
        }
        left.remove(&worker.reserve("reserve"));
        service.hand_over();
    }
    let before = client.data("stats");
    assert!(before["binlog-records-migrated"].parse::<u64>().unwrap() > 0, "files were emptied");
    service.kill_and_restart(FLAGS);
    let mut client = service.connect();
    assert_eq!(client.stat("current-jobs-ready"), left.len() as u64);
    assert_eq!(client.stat("current-jobs-reserved"), 6, "the session has them still");
    assert_eq!(client.ask("session w 600"), "SESSION 6");
    for id in left {
        assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    }
}

/// The program on the disk is not the one that was tried: a second package was installed in the meantime.
#[test]
fn a_program_that_was_not_tried_does_not_get_the_server() {
    let service = Service::start(&[]);
    copy_built_server(&service.directory().join("real")).unwrap();
    let mut client = service.connect();
    client.put(0, 600, b"x");
    service.replace_with_script(BROKEN_AFTER_TRIAL);
    service.signal(Signal::HUP);
    service.await_refusal("this one is broken");
    assert_eq!(client.ask("delete 1"), "DELETED");
    service.hand_over();
    assert_eq!(client.ask("use a"), "USING a");
}

/// The tried program is killed again and again: one of the two programs goes on serving.
#[test]
fn a_kill_of_the_tried_program_disturbs_nobody() {
    let service = Service::start(&[]);
    let mut client = service.connect();
    for _ in 0..1000 {
        client.put(0, 600, b"x");
    }
    let children = format!("/proc/{0}/task/{0}/children", service.pid());
    let mut random = Random::new(5);
    for _ in 0..6 {
        // The machine may be too slow for a trial, too.
        let ends = ["continued where", "this program continues"];
        let count_ends = || ends.map(|end| service.log().matches(end).count());
        let before = count_ends();
        service.replace();
        service.signal(Signal::HUP);
        let mut child = String::new();
        wait_until("the trial", || {
            child = fs::read_to_string(&children).unwrap();
            !child.is_empty() || count_ends() != before
        });
        thread::sleep(Duration::from_micros(random.below(2_000)));
        if let Some(pid) = child.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        assert_eq!(client.ask("use a"), "USING a");
        client.send("put 0 0 600 1\r\nx\r\n");
        assert!(client.line().starts_with("INSERTED"));
    }
}

/// No memory for the description: the server keeps serving, and logs the reason.
#[test]
fn a_server_whose_description_finds_no_room_serves_on() {
    let service = Service::started(&["-z", "8000000"], |_| (), "ulimit -f 4096; exec \"$@\"");
    let mut client = service.connect();
    client.put(0, 600, &vec![b'x'; 7_000_000]);
    service.replace();
    service.signal(Signal::HUP);
    service.await_refusal("too large");
    assert_eq!(client.ask("delete 1"), "DELETED");
    service.hand_over();
}
