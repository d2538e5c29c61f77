//! `--idle-timeout`: which connections the server closes, and which it never closes.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use beanstalkd_testkit::client::{self, Failure};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::{Server, wait_until};

#[test]
fn silent_clients_are_closed_but_never_one_that_waits_or_holds_a_job() {
    let server = Server::start(&["--idle-timeout", "2"]);
    let mut holder = server.connect();
    let id = holder.put(0, 60, b"x");
    holder.reserve("reserve");
    let mut waiter = server.connect();
    waiter.ask("watch elsewhere");
    waiter.ask("ignore default");
    waiter.send("reserve\r\n");
    let mut half = server.connect();
    half.send("put 0 0 60 10\r\nabc");
    let mut silent = server.connect();
    silent.expect_closed();
    half.expect_closed();
    // A connection that sends something now and then stays open.
    let stays_open = || {
        let mut lively = client::Client::over_unix(UnixStream::connect(server.socket_path())?)?;
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(600));
            lively.exchange(b"use elsewhere\r\n", b"USING elsewhere\r\n")?;
        }
        assert_eq!(lively.pairs("stats")?["current-connections"], "3");
        Ok::<_, Failure>(())
    };
    Pace::watch().unwrap().judge(stays_open).unwrap_or_else(|failure| panic!("{failure}"));
    let mut producer = server.connect();
    producer.ask("use elsewhere");
    let job = producer.put(0, 60, b"y");
    assert_eq!(waiter.line(), format!("RESERVED {job} 1"));
    waiter.body(1);
    assert_eq!(holder.ask(&format!("delete {id}")), "DELETED");
    // When it holds no more jobs, it is idle like any other connection.
    holder.expect_closed();
}

#[test]
fn without_the_option_idle_connections_stay_open() {
    let server = Server::start(&[]);
    let mut silent = server.connect();
    let mut other = server.connect();
    wait_until("both clients are connected", || other.stat("current-connections") == 2);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(silent.ask("use x"), "USING x");
}
