//! `--wait-for-lock`: a second server takes over when the first one exits or is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::jobs::{ours, put, see_jobs, start, start_program};
use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::server::{KilledOnDrop, POLL_INTERVAL};

const JOBS: u64 = 2000;

/// A waiting standby and its standard error.
struct Waiting {
    child: KilledOnDrop,
    said: BufReader<ChildStderr>,
}

impl Waiting {
    /// Starts a standby for the binlog in `directory`, and returns when its log says that it waits.
    fn start(directory: &Path, socket: &Path) -> Self {
        Self::start_with(directory, socket, &[])
    }

    /// The same, with further flags.
    fn start_with(directory: &Path, socket: &Path, flags: &[&str]) -> Self {
        let mut child = Command::new(ours())
            .args(flags)
            .args(["--wait-for-lock", "-f", "0", "-b"])
            .arg(directory)
            .arg("-l")
            .arg(format!("unix:{}", socket.display()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut waiting = Self { child: KilledOnDrop(child), said };
        waiting.wait_for("standby: waiting for the lock of");
        waiting
    }

    /// Reads its log until a line contains `words`.
    fn wait_for(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(
                self.said.read_line(&mut line).unwrap() > 0,
                "the standby has exited; expected it to log: {words}"
            );
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends it SIGTERM, and returns its exit code.
    fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.said.read_to_end(&mut Vec::new()).unwrap();
        self.child.wait().unwrap().code()
    }
}

/// The reply of `/readyz`, or `None` while no server listens.
fn readiness(metrics: &Path) -> Option<String> {
    let mut stream = UnixStream::connect(metrics).ok()?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
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
    while !readiness(&metrics).is_some_and(|answer| answer.contains("standby: waiting for the lock")) {
        std::thread::sleep(POLL_INTERVAL);
    }
    assert!(readiness(&metrics).unwrap().starts_with("HTTP/1.1 503 "));

    let mut client = active.connect().unwrap();
    let commands: Vec<u8> =
        (1..=2 * JOBS).flat_map(|at| put(0, 0, 60, format!("job {at}").as_bytes())).collect();
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
    while !readiness(&metrics).is_some_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn a_standby_ends_with_0_at_a_stop() {
    let active = start(&["-f", "0"]);
    let own = tempfile::tempdir().unwrap();
    let waiting = Waiting::start(active.directory(), &own.path().join("socket"));
    assert_eq!(waiting.stop(), Some(0));
    active.connect().unwrap().exchange(&put(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
}

#[test]
fn a_standby_takes_over_from_a_server_that_was_stopped() {
    let mut active = start(&["-f", "0"]);
    active.connect().unwrap().exchange(&put(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
    let own = tempfile::tempdir().unwrap();
    let socket = own.path().join("socket");
    let mut waiting = Waiting::start(active.directory(), &socket);
    assert!(active.stop(Signal::TERM).unwrap().success());
    waiting.wait_for("listening on");
    let mut client = Client::over_unix(UnixStream::connect(&socket).unwrap()).unwrap();
    client.exchange(b"peek 1\r\n", b"FOUND 1 1\r\nx\r\n").unwrap();
    assert_eq!(waiting.stop(), Some(0));
}

#[test]
fn a_standby_obeys_the_signals_that_came_while_it_waited() {
    let mut active = start(&["-f", "0"]);
    active.connect().unwrap().exchange(&put(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
    let own = tempfile::tempdir().unwrap();
    let (socket, access) = (own.path().join("socket"), own.path().join("access.toml"));
    let permit = |role: &str| {
        let rules = format!("[identities.nobody]\nunix-users = [4000000]\n[strangers]\n{role} = [\"*\"]\n");
        std::fs::write(&access, rules).unwrap();
    };
    permit("observe");
    let flags = ["--access", access.to_str().unwrap()];
    let mut waiting = Waiting::start_with(active.directory(), &socket, &flags);
    permit("produce");
    for signals in [[Signal::USR2, Signal::HUP], [Signal::USR1, Signal::HUP]] {
        signals.into_iter().for_each(|signal| waiting.signal(signal));
        // No event tells that a standby has received signals; it checks for them five times a second.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(active.stop(Signal::TERM).unwrap().success());
    waiting.wait_for("listening on");
    let mut client = Client::over_unix(UnixStream::connect(&socket).unwrap()).unwrap();
    client.exchange(b"peek 1\r\n", b"FORBIDDEN\r\n").unwrap();
    client.exchange(&put(0, 0, 60, b"y"), b"DRAINING\r\n").unwrap();
    assert_eq!(waiting.stop(), Some(0));
}
