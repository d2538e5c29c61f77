//! The server's messages to a service manager. The test listens on a socket in place of systemd.

use std::net::TcpListener;
use std::process::Command;

use beanstalkd_testkit::launched::Service;
use beanstalkd_testkit::panicking::{Client, Server, wait_until};
use beanstalkd_testkit::server_under_test;
use rustix::process::Signal;

/// A server with these flags, and with a watchdog if there is a time for it.
fn start(watchdog_us: Option<u64>, flags: &[&str]) -> Service {
    let mut command = Command::new(server_under_test());
    command.env_remove("WATCHDOG_PID").env_remove("WATCHDOG_USEC").args(["-l", "unix:socket"]).args(flags);
    command.envs(watchdog_us.map(|us| ("WATCHDOG_USEC", us.to_string())));
    Service::start(&mut command, tempfile::tempdir().unwrap())
}

const EMPTY: &str = "serving: 0 ready, 0 reserved, 0 delayed, 0 buried; 1 tube, 0 connections";

#[test]
fn ready_comes_once_the_server_listens_and_stopping_before_it_ends() {
    let mut service = start(None, &[]);
    assert_eq!(service.message(), format!("READY=1\nSTATUS={EMPTY}\n"));
    drop(service.connect());
    service.signal(Signal::TERM);
    assert_eq!(service.message_with("STOPPING"), "STOPPING=1\n");
    assert_eq!(service.wait().code(), Some(0));
}

/// `tests/tls` has the server without a service manager, which the signal ends.
#[test]
fn sighup_does_not_end_a_server_although_it_has_nothing_to_read_again() {
    let mut service = start(None, &[]);
    service.message_with("READY");
    let mut client = service.connect();
    service.signal(Signal::HUP);
    service.wait_for("SIGHUP: nothing to read again");
    assert_eq!(client.ask("use a"), "USING a");
    assert_eq!(service.stop().code(), Some(0));
}

#[test]
fn an_idle_server_sends_watchdog_messages() {
    let service = start(Some(200_000), &[]);
    assert!(service.message().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(service.message(), format!("WATCHDOG=1\nSTATUS={EMPTY}\n"));
    }
}

#[test]
fn a_busy_server_sends_watchdog_messages_and_its_status() {
    let service = start(Some(200_000), &[]);
    assert!(service.message().starts_with("READY=1\n"));
    let mut client = service.connect();
    client.put(100, 60, b"x");
    // Commands follow each other without a pause, so the loop never sleeps for long.
    let mut signs = 0;
    while signs < 3 {
        assert_eq!(client.ask("use default"), "USING default");
        if let Some(message) = service.next_message() {
            assert!(message.starts_with("WATCHDOG=1\nSTATUS=serving: 0 ready,"), "{message}");
            signs += usize::from(message.contains("1 delayed, 0 buried; 1 tube, 1 connection"));
        }
    }
}

#[test]
fn the_status_shows_drain_mode_at_once() {
    let service = start(None, &[]);
    assert!(service.message().starts_with("READY=1\n"));
    let mut client = service.connect();
    let mut put_until = |expected: &str| while !client.ask("put 0 0 60 1\r\nx").starts_with(expected) {};
    // Without a watchdog the status is sent every ten seconds, which would be long after the end of drain mode.
    service.signal(Signal::USR1);
    put_until("DRAINING");
    service.signal(Signal::USR2);
    put_until("INSERTED");
    assert!(service.message().starts_with("STATUS=draining: "));
    assert!(service.message().starts_with("STATUS=serving: "));
}

#[test]
fn a_standby_is_ready_at_once_and_gives_signs_of_life_only_when_it_serves() {
    let jobs = tempfile::tempdir().unwrap();
    let jobs = jobs.path().to_str().unwrap();
    let mut active = Server::start(&["-b", jobs]);
    let service = start(Some(200_000), &["-b", jobs, "--wait-for-lock"]);
    // Without this message systemd waits, and with it dpkg or the boot, until the other server ends.
    assert_eq!(
        service.message_with("READY"),
        format!("READY=1\nSTATUS=standby: waiting for the lock of {jobs}\nWATCHDOG_USEC=0\n")
    );
    assert!(Client::to_unix(&service.socket()).is_err(), "a standby does not listen");
    active.signal(Signal::KILL);
    active.end();
    assert_eq!(service.message_with("READY"), format!("READY=1\nSTATUS={EMPTY}\nWATCHDOG_USEC=200000\n"));
    assert_eq!(service.message_with("WATCHDOG=1"), format!("WATCHDOG=1\nSTATUS={EMPTY}\n"));
    drop(service.connect());
}

#[cfg(feature = "postgres")]
#[test]
fn a_standby_whose_database_cannot_be_reached_is_ready_and_ends_at_a_stop() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgresql://mail@{gone}/jobs?queue=mail&sslmode=disable");
    let mut service = start(None, &["-b", &url, "--wait-for-lock"]);
    let ready = service.message_with("READY");
    assert!(ready.starts_with("READY=1\nSTATUS=standby: waiting for postgresql://"), "{ready}");
    service.signal(Signal::TERM);
    assert_eq!(service.wait().code(), Some(0));
}

#[test]
fn refused_puts_are_in_the_status_and_in_one_line_of_the_log() {
    let service = start(Some(200_000), &[]);
    assert!(service.message().starts_with("READY=1\n"));
    service.signal(Signal::USR1);
    let mut client = service.connect();
    wait_until("the server drains", || client.ask("put 0 0 60 1\r\nx") == "DRAINING");
    for _ in 0..100 {
        assert_eq!(client.ask("put 0 0 60 1\r\nx"), "DRAINING");
    }
    let status = service.message_with("refused");
    assert!(
        status.contains("draining: ") && status.contains("; refused 1 put: the server drains\n"),
        "{status}"
    );
    let log = service.log();
    assert_eq!(log.matches("warn refused ").count(), 1, "{log}");
}
