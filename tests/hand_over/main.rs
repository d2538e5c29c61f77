//! Hand-overs: SIGHUP with another program on the disk. Whatever the clients of a server are doing, they must not
//! notice one, and a program that is not fit must not get the server.
//!
//! `HANDOVER_ROUNDS`, `HANDOVER_CONNECTIONS` and `HANDOVER_JOBS` set the amount; `make handover` sets large values.

mod attacks;
mod certificates;
mod environment;
mod format;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod known;
mod load;
mod refused;
mod service;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod stalled;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod steps;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tracer;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::{Client, wait_until};
use beanstalkd_testkit::tls;

use self::service::{Service, in_time};

/// The flags for the log in these hand-overs; `{dir}` is the server's directory.
const LOGS: [&[&str]; 4] = [&[], &["-b", "{dir}"], &["-b", "{dir}", "-f", "0"], &["-b", "{dir}", "-F"]];

/// Access rules: everybody may put and reserve, one put a second after the first one.
const RULES: &str = "[strangers]\nproduce = [\"*\"]\nwork = [\"*\"]\nobserve = [\"*\"]\nmanage = [\"*\"]\n\
    [identities.slow]\nproduce = [\"*\"]\nobserve = [\"*\"]\nputs-per-second = 1\n\
    tokens = [\"";

#[test]
fn the_process_its_age_and_its_counters_stay() {
    in_time(|| {
        for log in LOGS {
            let service = Service::start(log);
            let mut client = service.connect();
            assert_eq!(client.put(0, 60, b"a job"), 1);
            let before = client.data("stats");
            for _ in 0..3 {
                service.hand_over();
            }
            let refusals = service.log().matches("cannot hand over").count();
            assert!(refusals < 2, "a slow machine may miss one time limit: {}", service.log());
            let after = client.data("stats");
            for key in
                ["pid", "id", "cmd-put", "total-jobs", "total-connections", "current-connections", "version"]
            {
                assert_eq!(before[key], after[key], "{key} with {log:?}");
            }
            assert_eq!(client.put(0, 60, b"another"), 2, "ids go on with {log:?}");
            assert_eq!(service.connect().put(0, 60, b"of a new client"), 3);
        }
    });
}

#[test]
fn half_a_command_half_a_body_and_half_a_reply_go_on() {
    const BIG: usize = 3_000_000;
    for log in LOGS {
        let service = Service::start(&[log, &["-z", "4000000"]].concat());
        let (mut line, mut body, mut large) = (service.connect(), service.connect(), service.connect());
        let mut reader = service.connect();
        reader.put(0, 600, &vec![b'x'; BIG]);
        line.send("put 0 0 60 5\r\nhello\r\nuse so");
        assert_eq!(line.line(), "INSERTED 2");
        body.send("put 0 0 60 5\r\nhe");
        large.send("put 0 0 60 100000\r\n");
        large.send(vec![b'y'; 60_000]);
        // The test does not read the reply, so most of it stays with the server; other commands follow it.
        reader.send("reserve-job 1\r\nlist-tube-used\r\n");
        // Once a later client gets its reply, the server has read each of these.
        service.connect().ask("list-tubes");
        for _ in 0..3 {
            service.hand_over();
        }
        line.send("me\r\n");
        assert_eq!(line.line(), "USING some");
        body.send("llo\r\n");
        assert!(body.line().starts_with("INSERTED "));
        large.send(vec![b'y'; 40_000]);
        large.send("\r\n");
        assert!(large.line().starts_with("INSERTED "));
        assert_eq!(reader.line(), format!("RESERVED 1 {BIG}"));
        assert!(
            reader.body(BIG).iter().all(|&byte| byte == b'x'),
            "not one byte is missing or twice, with {log:?}"
        );
        assert_eq!(reader.line(), "USING default");
    }
}

#[test]
fn waiting_clients_keep_their_order_and_other_clients_their_reservations() {
    for log in LOGS {
        let service = Service::start(log);
        let mut producer = service.connect();
        let mut holder = service.connect();
        let kept = producer.put(0, 600, b"kept");
        assert_eq!(holder.reserve("reserve"), kept);
        let mut waiting: Vec<Client> = (0..20).map(|_| service.connect()).collect();
        for (number, client) in waiting.iter_mut().enumerate() {
            client.send(if number % 2 == 0 { "reserve\r\n" } else { "reserve-with-timeout 600\r\n" });
            wait_until("the client waits", || producer.stat("current-waiting") > number as u64);
        }
        let mut timed = service.connect();
        timed.send("reserve-with-timeout 1\r\n");
        service.hand_over();
        service.hand_over();
        for (number, client) in waiting.iter_mut().enumerate() {
            let body = format!("for {number}");
            let id = producer.put(0, 600, body.as_bytes());
            assert_eq!(client.line(), format!("RESERVED {id} {}", body.len()));
            assert_eq!(client.body(body.len()), body.as_bytes(), "first come, first served, with {log:?}");
        }
        assert_eq!(timed.line(), "TIMED_OUT");
        assert_eq!(holder.ask(&format!("delete {kept}")), "DELETED");
    }
}

#[test]
fn delays_burials_pauses_and_the_settings_of_clients_stay() {
    for log in LOGS {
        let service = Service::start(log);
        let mut client = service.connect();
        let ids: Vec<u64> = (0..6).map(|number| client.put(0, 600, format!("{number}").as_bytes())).collect();
        for id in [3, 1, 5] {
            assert_eq!(client.ask(&format!("reserve-job {id}")).split(' ').next(), Some("RESERVED"));
            client.body(1);
            assert_eq!(client.ask(&format!("bury {id} 0")), "BURIED");
        }
        client.send("use other\r\nwatch a\r\nwatch b 7\r\nreserve-mode weighted\r\npause-tube other 500\r\n");
        let replies: Vec<String> = (0..5).map(|_| client.line()).collect();
        assert_eq!(replies, ["USING other", "WATCHING 2", "WATCHING 3", "USING weighted", "PAUSED"]);
        client.put(300, 600, b"later");
        let buried = |client: &mut Client| client.data("stats-tube default");
        let before = (buried(&mut client), client.data("stats-tube other"));
        service.hand_over();
        let after = (buried(&mut client), client.data("stats-tube other"));
        for key in ["current-jobs-buried", "current-jobs-ready", "total-jobs", "cmd-pause-tube", "pause"] {
            assert_eq!(
                (&before.0[key], &before.1[key]),
                (&after.0[key], &after.1[key]),
                "{key} with {log:?}"
            );
        }
        assert_eq!(after.1["current-jobs-delayed"], "1");
        assert_eq!(client.ask("list-tube-used"), "USING other");
        assert_eq!(client.find("list-tubes-watched").unwrap(), b"---\n- default\n- a\n- b\n");
        assert_eq!(client.ask("use default"), "USING default");
        for id in [3, 1, 5] {
            assert_eq!(client.ask("kick 1"), "KICKED 1");
            assert!(
                client.data(&format!("stats-job {id}"))["state"] == "ready",
                "kicked in the order of burial"
            );
        }
        assert_eq!(ids.len(), 6);
    }
}

#[test]
fn metrics_and_the_api_are_served_by_the_next_program_and_access_rules_go_on() {
    let token = "0123456789abcdef0123456789abcdef0123";
    let hash = service::hash_of(token);
    let service = Service::prepared(
        &["--access", "{dir}/rules", "--metrics", "unix:{dir}/metrics", "--admin", "unix:{dir}/admin"],
        |directory| std::fs::write(directory.join("rules"), format!("{RULES}{hash}\"]\n")).unwrap(),
    );
    let mut slow = service.connect();
    assert_eq!(slow.ask(&format!("auth {token}")), "AUTHENTICATED");
    slow.put(0, 60, b"first");
    // This put must wait for the rate of its identity, across the hand-over.
    slow.send("put 0 0 60 6\r\nsecond\r\nstats\r\n");
    service.hand_over();
    assert!(slow.line().starts_with("INSERTED "), "a put that waits is done by the next program");
    let header = slow.line();
    let size = header.strip_prefix("OK ").expect("the command after it is executed").parse().unwrap();
    assert!(String::from_utf8(slow.body(size)).unwrap().contains("identity: \"slow\""));
    for socket in ["metrics", "admin"] {
        let stream = UnixStream::connect(service.directory().join(socket)).unwrap();
        let (head, _) = http::get(stream, "/healthz").unwrap();
        assert!(head.starts_with("HTTP/1.1 "), "{socket}: {head}");
    }
}

#[test]
fn a_request_that_waits_for_the_end_of_a_job_is_closed_without_an_answer() {
    let service = Service::start(&["--admin", "unix:{dir}/admin"]);
    let mut client = service.connect();
    let id = client.put(0, 600, b"x");
    let connect = || UnixStream::connect(service.directory().join("admin")).unwrap();
    let mut waiting = connect();
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(waiting, "GET /api/v1/jobs/{id}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // Once a later request is answered, the server has read this one.
    http::get(connect(), "/healthz").unwrap();
    service.hand_over();
    let mut rest = String::new();
    waiting.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
}

#[test]
fn signals_that_come_meanwhile_are_not_lost_and_kill_nobody() {
    use rustix::process::Signal;
    let service = Service::start(&[]);
    let mut client = service.connect();
    for round in 0..5 {
        service.replace();
        for _ in 0..20 {
            service.signal(Signal::HUP);
            service.signal(if round % 2 == 0 { Signal::USR1 } else { Signal::USR2 });
            std::thread::sleep(Duration::from_millis(3));
        }
        service.await_hand_over();
        let draining = if round % 2 == 0 { "true" } else { "false" };
        wait_until("the last signal is obeyed", || client.data("stats")["draining"] == draining);
    }
}

#[test]
fn a_client_with_tls_gets_its_replies_is_closed_and_has_its_session_again() {
    let service = Service::prepared(&certificates::FLAGS, certificates::prepare);
    let connect = || tls::connect(certificates::address(&service), tls::usual_client()).unwrap().0;
    let mut plain = service.connect();
    let mut secret = connect();
    secret.write_all(b"session w 60\r\nput 0 0 600 1\r\nx\r\nreserve\r\n").unwrap();
    let begun = b"SESSION 0\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\n";
    let mut read = vec![0; begun.len()];
    secret.read_exact(&mut read).unwrap();
    assert_eq!(read, begun);
    // One client waits, and one is in the middle of a command.
    let mut waiting = connect();
    waiting.write_all(b"watch another\r\nreserve\r\n").unwrap();
    secret.write_all(b"use some\r\nput 0 0 60 5\r\nhe").unwrap();
    read.resize("USING some\r\n".len(), 0);
    secret.read_exact(&mut read).unwrap();
    assert_eq!(read, b"USING some\r\n");
    wait_until("a client waits", || plain.stat("current-waiting") == 1);
    for _ in 0..2 {
        service.hand_over();
    }
    let mut rest = String::new();
    secret.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "the connection is closed");
    waiting.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "WATCHING 2\r\n");
    assert_eq!(plain.ask("stats-tube another"), "NOT_FOUND", "the client that waited is gone");
    assert_eq!(plain.ask("delete 1"), "NOT_FOUND", "the job is still reserved");
    let mut again = connect();
    again.write_all(b"session w 60\r\ndelete 1\r\nquit\r\n").unwrap();
    again.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "WATCHING 2\r\nSESSION 1\r\nDELETED\r\n");
}
