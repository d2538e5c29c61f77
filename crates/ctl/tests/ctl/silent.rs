//! One of several servers does not answer, as a machine that is powered off: it delays none of the others.

use super::support::{client, command, put};
use super::terminal::Terminal;
use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::fake::Fake;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that never answers: the system accepts connections to it.
struct Silent {
    address: String,
    _listener: UnixListener,
    _directory: TempDir,
}

impl Silent {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("silent");
        let listener = UnixListener::bind(&path).unwrap();
        Self { address: format!("unix:{}", path.display()), _listener: listener, _directory: directory }
    }

    /// This server, and then another one.
    fn and(&self, other: &Fake) -> String {
        format!("{},{}", self.address, other.address())
    }
}

/// The first line that the program prints for a server that does not answer and for `up`, long before the time-out.
fn first_line(up: &Fake, arguments: &[&str], mut meanwhile: impl FnMut()) -> Option<String> {
    let silent = Silent::start();
    let several = silent.and(up);
    let mut child = command(&several, &[arguments, &["--timeout", "1h"]].concat()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let (start, mut line) = (Instant::now(), None);
    while line.is_none() && start.elapsed() < PATIENCE / 2 {
        meanwhile();
        line = lines.recv_timeout(Duration::from_millis(20)).ok();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    line
}

#[test]
fn a_command_for_several_servers_does_what_it_can_at_once() {
    let up = Fake::start();
    for arguments in [&["stats", "--json"][..], &["stats"], &["undrain"], &["drain"]] {
        let line = first_line(&up, arguments, || ());
        assert!(line.as_ref().is_some_and(|line| line.contains(&up.address())), "{arguments:?}: {line:?}");
    }
    assert!(up.take_log().contains(&"drain".to_owned()));
}

#[test]
fn a_report_that_nobody_reads_any_more_does_not_wait_for_a_server() {
    let (silent, up) = (Silent::start(), Fake::start());
    let several = format!("{},{}", up.address(), silent.address);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command(&several, &["stats", "--timeout", "1h"]).stdout(writer).spawn().unwrap();
    let status = beanstalkd_testkit::server::wait(&mut child);
    child.kill().unwrap();
    assert!(status.expect("it ends at once").success());
}

#[test]
fn watch_takes_no_samples_while_its_output_is_not_read() {
    let up = Fake::start();
    let mut client = client(&up.address());
    let mut child = command(&up.address(), &["watch", "--interval", "1ms", "--json"]).spawn().unwrap();
    let (tube, start) = ("t".repeat(200), Instant::now());
    let mut samples = 1;
    while samples > 0 && start.elapsed() < PATIENCE {
        up.take_log();
        for _ in 0..50 {
            put(&mut client, &tube, b"x", 0);
            thread::sleep(Duration::from_millis(10));
        }
        samples = up.take_log().iter().filter(|line| line.starts_with("stats-tube")).count();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(samples, 0, "samples that nobody sees fill the memory");
}

#[test]
fn watch_shows_the_servers_that_answer() {
    let up = Fake::start();
    let mut client = client(&up.address());
    let line = first_line(&up, &["watch", "--interval", "20ms"], || {
        put(&mut client, "t", b"x", 0);
    });
    assert!(line.as_ref().is_some_and(|line| line.contains(&up.address())), "{line:?}");
}

#[test]
fn top_shows_the_servers_that_answer() {
    let (silent, up) = (Silent::start(), Fake::start());
    put(&mut client(&up.address()), "mail", b"x", 0);
    let Some(terminal) = Terminal::with(&silent.and(&up), "top --timeout 1h") else { return };
    terminal.shows("2 tubes");
    terminal.keys(&["q"]);
    terminal.shows("ended with 0");
}
