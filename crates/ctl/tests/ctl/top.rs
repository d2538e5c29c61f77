//! `top` in a real terminal.

use super::support::{client, counts, put, put_buried};
use super::terminal::Terminal;
use beanstalkd_testkit::fake::Fake;
use beanstalkd_testkit::panicking::wait_until;
use std::process::Command;

#[test]
fn tubes_jobs_and_bodies_are_shown_and_changed() {
    let fake = Fake::start();
    let address = fake.address();
    let mut client = client(&address);
    put(&mut client, "mail", b"one", 0);
    put_buried(&mut client, "failed", b"{\"to\":\"ann\"}");
    let second = put_buried(&mut client, "failed", b"\x1b[2Jtwo");
    let Some(terminal) = Terminal::with(&address, "top --interval 100ms") else { return };

    terminal.shows("3 tubes, buried first");
    wait_until("the tube with buried jobs is first", || {
        let screen = terminal.shows("3 tubes");
        screen.lines().nth(3).is_some_and(|line| line.trim_start().starts_with("failed "))
    });
    terminal.keys(&["/"]);
    terminal.keys(&["mail", "Enter"]);
    terminal.shows("1 tube matching \"mail\"");
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
    terminal.shows("1 buried job of failed");
    terminal.keys(&["k"]);
    terminal.shows("0 buried jobs of failed");
    terminal.keys(&["Tab"]);
    terminal.shows("1 ready job of failed");
    assert_eq!(counts(&address, "failed"), [1, 0, 0, 0]);
    terminal.keys(&["Escape"]);
    terminal.shows("3 tubes");
    terminal.keys(&["q"]);
    terminal.shows("ended with 0");
}

#[test]
fn several_servers_of_which_one_comes_and_goes_are_shown_in_80_columns() {
    let up = Fake::start();
    put(&mut client(&up.address()), "mail", b"0123456789abcdef and more", 0);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("late");
    let several = format!("{},unix:{}", up.address(), socket.display());
    let Some(terminal) = Terminal::sized(80, &several, "top --interval 100ms") else { return };
    terminal.shows("is gone: 2 tubes");
    for text in ["such file or directory", " buried 0  ready 1 ", "? help"] {
        terminal.shows(text);
    }
    let fake = Fake::start();
    put(&mut client(&fake.address()), "letters", b"x", 0);
    std::os::unix::fs::symlink(fake.address().strip_prefix("unix:").unwrap(), &socket).unwrap();
    for text in [": 4 tubes", "late", "letters"] {
        terminal.shows(text);
    }
    terminal.keys(&["?"]);
    terminal.shows("any key closes this");
    terminal.keys(&["Enter"]);
    terminal.shows("? help");
    terminal.keys(&["/"]);
    terminal.keys(&["mail", "Enter"]);
    terminal.shows("1 tube matching");
    terminal.keys(&["Enter"]);
    terminal.shows("1 ready job of mail");
    terminal.keys(&["Enter"]);
    terminal.shows("0123456789abcdef and more");
    terminal.keys(&["x"]);
    terminal.shows("30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|");
}

#[test]
fn top_ends_with_its_terminal() {
    let fake = Fake::start();
    let Some(terminal) = Terminal::with(&fake.address(), "top") else { return };
    terminal.shows("1 tube,");
    let program = terminal.program_id();
    assert!(!program.is_empty());
    drop(terminal);
    let runs = || Command::new("ps").args(["-p", &program]).output().unwrap().status.success();
    wait_until("the end of the program", || !runs());
}
