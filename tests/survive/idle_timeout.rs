//! `--idle-timeout`: which connections the server closes, and which it never closes.

use std::time::Duration;

use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::{Server, wait_until};

#[test]
fn silent_clients_are_closed_but_never_one_that_waits_or_holds_a_job() {
    // On a slow machine, each of these clients may be silent for longer than it wants to be.
    Pace::watch().unwrap().judge_panics(|| {
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
        let mut lively = server.connect();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(600));
            assert_eq!(lively.ask("use elsewhere"), "USING elsewhere");
        }
        assert_eq!(lively.stat("current-connections"), 3);
        let job = lively.put(0, 60, b"y");
        assert_eq!(waiter.line(), format!("RESERVED {job} 1"));
        waiter.body(1);
        assert_eq!(holder.ask(&format!("delete {id}")), "DELETED");
        // When it holds no more jobs, it is idle like any other connection.
        holder.expect_closed();
    });
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
