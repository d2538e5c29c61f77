//! `top` in a real terminal.

use super::support::{client, counts, put, put_buried};
use super::terminal::Terminal;
use beanstalk_testing::Fake;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn tubes_jobs_and_bodies_are_shown_and_changed() {
    let fake = Fake::start();
    let address = fake.address();
    let mut client = client(&address);
    put(&mut client, "mail", b"one", 0);
    put_buried(&mut client, "failed", b"{\"to\":\"ann\"}");
    let second = put_buried(&mut client, "failed", b"\x1b[2Jtwo");
    let Some(terminal) = Terminal::with(&address, "top --interval 100ms") else { return };

    let screen = terminal.shows("3 tubes, buried first");
    let tubes: Vec<_> = screen.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(tubes[0], "failed", "buried first:\n{screen}");
    terminal.keys(&["/"]);
    terminal.keys(&["mail", "Enter"]);
    terminal.shows("1 tubes matching \"mail\"");
    terminal.keys(&["p"]);
    terminal.shows("mail is paused");
    terminal.keys(&["/", "Escape"]);
    terminal.shows("3 tubes");

    terminal.keys(&["Home", "Enter"]);
    terminal.shows("2 buried jobs of failed");
    terminal.keys(&["Enter"]);
    terminal.shows("\"to\": \"ann\"");
    terminal.keys(&["Escape"]);
    terminal.shows("2 buried jobs of failed");
    terminal.keys(&["Down", "Enter"]);
    terminal.shows("\\u{1b}[2Jtwo");
    terminal.keys(&["d"]);
    terminal.shows(&format!("delete job {second}? y/n"));
    terminal.keys(&["y"]);
    terminal.shows("done");
    assert_eq!(counts(&address, "failed"), [0, 0, 0, 1]);
    terminal.keys(&["Escape"]);
    terminal.shows("1 buried jobs of failed");
    terminal.keys(&["k"]);
    terminal.shows("0 buried jobs of failed");
    terminal.keys(&["Tab"]);
    terminal.shows("1 ready jobs of failed");
    assert_eq!(counts(&address, "failed"), [1, 0, 0, 0]);
    terminal.keys(&["Escape"]);
    terminal.shows("3 tubes");
    terminal.keys(&["q"]);
    terminal.shows("ended with 0");
}

#[test]
fn it_ends_with_its_terminal() {
    let fake = Fake::start();
    let Some(terminal) = Terminal::with(&fake.address(), "top") else { return };
    terminal.shows("1 tubes");
    let program = terminal.program_id();
    assert!(!program.is_empty());
    drop(terminal);
    let give_up_at = Instant::now() + Duration::from_secs(60);
    while Command::new("ps").args(["-p", &program]).output().unwrap().status.success() {
        assert!(Instant::now() < give_up_at, "{program} still runs");
        std::thread::sleep(Duration::from_millis(30));
    }
}
