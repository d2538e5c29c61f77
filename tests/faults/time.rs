//! Deadlines that the C server loses, moves or computes wrongly.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::{Server, wait_until};
use beanstalkd_testkit::stepping_clock;

#[test]
fn expiries_are_never_lost_on_an_idle_connection() {
    const CLIENTS: usize = 200;
    // On a slow machine, the first job is ready again before the last one is reserved.
    Pace::watch().unwrap().judge_panics(|| {
        let server = Server::start(&[]);
        let mut idle: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut idle {
            client.put(0, 1, b"x");
        }
        // Each client holds one job and sends nothing more, and there are no other clients.
        for client in &mut idle {
            client.reserve("reserve");
        }
        // A question meanwhile would wake the server.
        std::thread::sleep(Duration::from_millis(2_500));
        let stats = server.connect().data("stats");
        assert_eq!(stats["job-timeouts"], CLIENTS.to_string());
        assert_eq!(stats["current-jobs-reserved"], "0");
        assert_eq!(stats["current-jobs-ready"], CLIENTS.to_string());
    });
}

#[test]
fn a_reserve_during_a_stop_of_the_process_gets_one_correct_reply() {
    // On a slow machine, the time of the job may end before the stop, or that of its second reservation after it.
    Pace::watch().unwrap().judge_panics(|| {
        let server = Server::start(&[]);
        let mut holder = server.connect();
        let id = holder.put(0, 2, b"x");
        holder.reserve("reserve");
        holder.send("reserve\r\n");
        let mut other = server.connect();
        wait_until("the reserve is executed", || other.stat("cmd-reserve") == 2);
        assert_eq!(other.stat("current-waiting"), 1);
        // Both the safety margin and the reservation end while the process is stopped.
        server.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(2_500));
        server.signal(Signal::CONT);
        let reply = holder.line();
        let state = other.data(&format!("stats-job {id}"))["state"].clone();
        let is_reserved = reply != "DEADLINE_SOON";
        if is_reserved {
            assert_eq!(reply, format!("RESERVED {id} 1"));
            holder.body(1);
        } else {
            assert_eq!(other.stat("current-waiting"), 0);
        }
        // Only the reply to this command comes, so there was no second reply to the reserve.
        assert_eq!(holder.ask("list-tube-used"), "USING default");
        assert_eq!(state, if is_reserved { "reserved" } else { "ready" });
    });
}

#[test]
fn delays_and_times_to_run_up_to_the_largest_number_hold() {
    const MAX_SECONDS: u32 = u32::MAX;
    let server = Server::start(&[]);
    let mut client = server.connect();
    let delayed = client.put(MAX_SECONDS, MAX_SECONDS, b"x");
    let time_left = |client: &mut beanstalkd_testkit::panicking::Client, id: u64| {
        client.data(&format!("stats-job {id}"))["time-left"].parse::<u64>().unwrap()
    };
    assert!(time_left(&mut client, delayed) >= u64::from(MAX_SECONDS) - 10);
    let held = client.put(0, MAX_SECONDS, b"x");
    client.reserve("reserve");
    assert!(time_left(&mut client, held) >= u64::from(MAX_SECONDS) - 10);
    assert_eq!(client.ask(&format!("release {held} 0 {MAX_SECONDS}")), "RELEASED");
    assert!(time_left(&mut client, held) >= u64::from(MAX_SECONDS) - 10);
    assert_eq!(client.ask(&format!("pause-tube default {MAX_SECONDS}")), "PAUSED");
    assert_eq!(client.data("stats-tube default")["pause"], MAX_SECONDS.to_string());
    // The longest wait does not delay a short deadline.
    let mut waiter = server.connect();
    assert_eq!(waiter.ask("watch soon"), "WATCHING 2");
    waiter.send("reserve-with-timeout 2147483647\r\n");
    client.ask("use soon");
    let soon = client.put(1, 1, b"y");
    assert_eq!(waiter.line(), format!("RESERVED {soon} 1"));
}

#[test]
fn clock_steps_of_a_day_move_no_deadline() {
    if !has_tool("cc") || !has_tool("env") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let variables = stepping_clock::variables(directory.path());
    for direction in [stepping_clock::FORTH, stepping_clock::BACK] {
        let wrapper: Vec<&str> = ["env"].into_iter().chain(variables.iter().map(String::as_str)).collect();
        let server = Server::start_in(&wrapper, &[]);
        let mut client = server.connect();
        let held = client.put(0, 60, b"h");
        client.reserve("reserve");
        client.put(60, 60, b"late");
        let put_at = Instant::now();
        let soon = client.put(2, 60, b"soon");
        std::fs::write(path(direction), "").unwrap();
        // Each command makes the server read the clock.
        let mut other = server.connect();
        let early = other.find("peek-ready");
        let is_due = put_at.elapsed() >= Duration::from_secs(2);
        assert!(early.is_none() || is_due, "{direction}: no delay and no TTR ends early");
        let time_left = other.data(&format!("stats-job {held}"))["time-left"].parse::<u64>().unwrap();
        assert!((1..=60).contains(&time_left), "{direction}: {time_left}");
        assert_eq!(other.reserve("reserve-with-timeout 10"), soon, "{direction}: no delay ends late");
        assert!(put_at.elapsed() >= Duration::from_secs(2));
        assert_eq!(other.stat("current-jobs-delayed"), 1);
        assert_eq!(other.stat("current-jobs-reserved"), 2);
        std::fs::remove_file(path(direction)).unwrap();
    }
}
