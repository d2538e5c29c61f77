//! `--wait-for-lock`: a second server takes over when the first one exits or is killed.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::jobs::{ours, see_jobs, start, start_program};
use beanstalkd_testkit::client::put_command;
use beanstalkd_testkit::http;
use beanstalkd_testkit::launched::Launched;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::server::{Address, free_address};
use beanstalkd_testkit::system::Process;
use beanstalkd_testkit::tls::{self, Authority, Leaf};

const JOBS: u64 = 2000;

/// Starts a standby for the binlog in `directory`, and returns when its log says that it waits.
fn start_waiting(directory: &Path, flags: &[&str]) -> Launched {
    let mut command = Command::new(ours());
    command.args(["-l", "unix:socket", "--wait-for-lock", "-f", "0", "-b"]).arg(directory).args(flags);
    let waiting = Launched::start(&mut command, tempfile::tempdir().unwrap());
    waiting.wait_for("standby: waiting for the lock of");
    waiting
}

/// Waits until the head and the body of the reply of `/readyz` have these words.
fn wait_for_readiness(metrics: &Path, [in_head, in_body]: [&str; 2]) {
    let ask = || http::get(UnixStream::connect(metrics).ok()?, "/readyz").ok();
    let is_so = |(head, body): (String, String)| head.contains(in_head) && body.contains(in_body);
    wait_until(&format!("/readyz replies {in_head} {in_body}"), || ask().is_some_and(is_so));
}

#[test]
fn a_standby_takes_over_from_a_killed_server_with_all_that_it_acknowledged() {
    let mut active = start(&["-f", "0", "-s", "65536"]);
    let directory = active.directory().to_str().unwrap().to_owned();
    let own = tempfile::tempdir().unwrap();
    let metrics = own.path().join("metrics");
    let flags = ["-f", "0", "--wait-for-lock", "--metrics", &format!("unix:{}", metrics.display())]
        .map(str::to_owned);
    // It accepts no connections until it has taken over, so its start returns only then.
    let standby = std::thread::spawn(move || {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let standby = start_program(ours(), &directory, &flags);
        let mut client = standby.connect().unwrap();
        client.exchange(b"use taken\r\n", b"USING taken\r\n").unwrap();
        (standby, client, Instant::now())
    });
    wait_for_readiness(&metrics, ["HTTP/1.1 503 ", "standby: waiting for the lock"]);

    let mut client = active.connect().unwrap();
    let commands: Vec<u8> =
        (1..=2 * JOBS).flat_map(|at| put_command(0, 0, 60, format!("job {at}").as_bytes())).collect();
    let sending = client.send_in_background(commands).unwrap();
    for id in 1..=JOBS {
        client.expect(format!("INSERTED {id}\r\n").as_bytes()).unwrap();
    }
    let killed = Instant::now();
    active.stop(Signal::KILL).unwrap();
    let (standby, mut client, answered) = standby.join().unwrap();
    let _ = sending.join().unwrap();
    println!("{} ms from the kill to the first reply of the standby", (answered - killed).as_millis());
    assert!(standby.stderr().contains("standby: waiting for the lock of"), "{}", standby.stderr());
    let jobs = see_jobs(&mut client, 1..=JOBS).unwrap();
    for id in 1..=JOBS {
        assert_eq!(jobs[&id].body, format!("job {id}").as_bytes());
    }
    wait_for_readiness(&metrics, ["HTTP/1.1 200 ", ""]);
}

#[test]
fn a_standby_ends_with_0_at_a_stop() {
    let active = start(&["-f", "0"]);
    assert_eq!(start_waiting(active.directory(), &[]).stop().code(), Some(0));
    active.connect().unwrap().exchange(&put_command(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
}

#[test]
fn a_standby_takes_over_from_a_server_that_was_stopped() {
    let mut active = start(&["-f", "0"]);
    active.connect().unwrap().exchange(&put_command(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
    let mut waiting = start_waiting(active.directory(), &[]);
    assert!(active.stop(Signal::TERM).unwrap().success());
    let mut client = waiting.connect();
    client.exchange(b"peek 1\r\n", b"FOUND 1 1\r\nx\r\n").unwrap();
    assert_eq!(waiting.stop().code(), Some(0));
}

#[test]
fn a_standby_obeys_the_signals_that_came_while_it_waited() {
    let mut active = start(&["-f", "0"]);
    active.connect().unwrap().exchange(&put_command(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
    let own = tempfile::tempdir().unwrap();
    let access = own.path().join("access.toml");
    let permit = |role: &str| {
        let rules = format!("[identities.nobody]\nunix-users = [4000000]\n[strangers]\n{role} = [\"*\"]\n");
        std::fs::write(&access, rules).unwrap();
    };
    permit("observe");
    let address = free_address().unwrap();
    let mut flags =
        Authority::new("the earlier one").issue(Leaf::of("localhost")).write(own.path()).unwrap().to_vec();
    flags.extend(["--listen".to_owned(), format!("tls://{address}"), "--access".to_owned()]);
    flags.push(access.to_str().unwrap().to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut waiting = start_waiting(active.directory(), &flags);
    permit("produce");
    tls::server_identity().write(own.path()).unwrap();
    // No event tells that a standby has received signals: it checks for them when it has slept. A signal wakes it once.
    let sleeps = || Process(waiting.pid()).status("voluntary_ctxt_switches").parse::<u64>().unwrap();
    for signals in [[Signal::USR2, Signal::HUP], [Signal::USR1, Signal::HUP]] {
        signals.into_iter().for_each(|signal| waiting.signal(signal));
        let before = sleeps();
        wait_until("the standby has checked for signals", || sleeps() > before + 4);
    }
    assert!(active.stop(Signal::TERM).unwrap().success());
    let mut client = waiting.connect();
    client.exchange(b"peek 1\r\n", b"FORBIDDEN\r\n").unwrap();
    let mut secret = Address::Tls(address).connect().expect("it has the renewed certificate");
    for client in [&mut client, &mut secret] {
        client.exchange(&put_command(0, 0, 60, b"y"), b"DRAINING\r\n").unwrap();
    }
    assert_eq!(waiting.stop().code(), Some(0));
}

#[test]
fn a_standby_whose_directory_was_replaced_waits_for_the_lock_of_the_present_one() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("binlog");
    std::fs::create_dir(&directory).unwrap();
    let start_active = || start_program(ours(), directory.to_str().unwrap(), &["-f", "0"]);
    let mut first = start_active();
    let mut standby = start_waiting(&directory, &[]);
    // It would notice that its directory is replaced, and end.
    first.signal(Signal::STOP).unwrap();
    std::fs::rename(&directory, parent.path().join("elsewhere")).unwrap();
    std::fs::create_dir(&directory).unwrap();
    let mut second = start_active();
    first.stop(Signal::KILL).unwrap();
    wait_until("the standby waits again", || standby.log().matches("standby: waiting for").count() == 2);
    second.connect().unwrap().exchange(&put_command(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
    second.stop(Signal::KILL).unwrap();
    standby.connect().exchange(b"peek 1\r\n", b"FOUND 1 1\r\nx\r\n").unwrap();
    assert_eq!(standby.stop().code(), Some(0));
}
