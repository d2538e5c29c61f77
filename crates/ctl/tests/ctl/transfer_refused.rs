//! `export` and `import`: which jobs a refusal of the server keeps back, and how the user gets them.

use super::support::{between, client, command, counts, ctl, text};
use super::transfer::{expected, fill, jobs};
use beanstalkd_testkit::fake::{Fake, FakeOptions, Fault, at_each_command};
use beanstalkd_testkit::panicking::wait_until;
use serde_json::json;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

#[test]
fn a_drain_that_cannot_write_its_file_puts_the_jobs_back_or_names_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let export = ["export", "t", "--drain", "--yes", "--output", text(&file)];
    // The file is larger than the program may make one, and FILE.taking is not.
    let limited = |source: &Fake| {
        let line = json!({ "id": 1, "tube": "other", "drained": true, "body": "x".repeat(20_000) });
        fs::write(&file, format!("{line}\n")).unwrap();
        fill(&source.address());
        source.take_log();
        let run = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
        let mut drain = Command::new("sh");
        drain.args(["-c", run, "sh", env!("CARGO_BIN_EXE_beanstalkctl")]).args(export);
        let drain = drain.env("BEANSTALKD_SERVER", source.address()).output().unwrap();
        assert_eq!(drain.status.code(), Some(5), "{drain:?}");
        String::from_utf8(drain.stderr).unwrap()
    };
    let source = Fake::start();
    let said = limited(&source);
    assert!(said.contains("too large") && !said.contains("put back"), "{said}");
    // The last commands reserve each job and put it back.
    let first = source.count() - 5;
    assert_eq!(jobs(&source.address()), expected());
    fs::remove_file(directory.path().join("jobs.taking")).unwrap();
    for at in 0..6 {
        let refuse_at = first + at;
        let source = Fake::start_with(FakeOptions { refuse_at, ..FakeOptions::default() });
        let said = limited(&source);
        let why = format!("job {} was not put back: the server answered ", at / 2 + 1);
        assert!(said.contains("too large") && said.contains(&why), "at {at}: {said}");
        assert_eq!((said.matches("put back").count(), said.contains("OUT_OF_MEMORY")), (1, true), "{said}");
        wait_until("the end of the connection", || counts(&source.address(), "t")[1] == 0);
        ctl(&source.address(), &export).ends_with(0);
        let target = Fake::start();
        ctl(
            &target.address(),
            &["import", text(&file), "--journal", text(&file.with_extension(at.to_string()))],
        )
        .ends_with(0);
        let jobs = jobs(&target.address());
        match at % 2 {
            // It stayed buried, and FILE.taking has its state.
            0 => assert_eq!(jobs, expected(), "at {at}"),
            _ => assert_eq!(jobs.len(), 3, "at {at}"),
        }
    }
}

#[test]
fn an_import_of_which_any_command_is_refused_can_be_continued() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    fill(&source.address());
    let file = directory.path().join("jobs");
    ctl(&source.address(), &["export", "t", "--output", text(&file)]).ends_with(0);
    at_each_command(Fault::Refuse, 12, |target, refuse_at| {
        let journal = directory.path().join(refuse_at.to_string());
        let import = ["import", text(&file), "--journal", text(&journal)];
        let first = ctl(&target.address(), &import);
        target.disarm();
        let is_complete = first.code == 0;
        assert!(
            if is_complete { jobs(&target.address()) == expected() } else { first.code == 4 },
            "{first:?}"
        );
        wait_until("the end of the connection", || counts(&target.address(), "t")[1] == 0);
        ctl(&target.address(), &import).ends_with(0);
        assert_eq!(jobs(&target.address()), expected(), "at {refuse_at}");
    });
}

#[test]
fn jobs_that_the_server_refuses_are_put_by_a_later_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let target = Fake::start();
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"a\"}\n").unwrap();
    ctl(&target.address(), &["drain"]).ends_with(0);
    ctl(&target.address(), &["import", text(&file)]).ends_with(4);
    ctl(&target.address(), &["undrain"]).ends_with(0);
    ctl(&target.address(), &["import", text(&file)]).ends_with(0);
    assert_eq!(counts(&target.address(), "t"), [1, 0, 0, 0]);
}

#[test]
fn an_import_says_that_the_server_is_draining_if_another_refusal_comes_after() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let line = |bytes: usize| format!("{}\n", json!({ "tube": "t", "body": "x".repeat(bytes) }));
    // The last job is larger than the server accepts.
    fs::write(&file, [line(1), line(1 << 21)].concat()).unwrap();
    let target = Fake::start();
    ctl(&target.address(), &["drain"]).ends_with(0);
    let refused = ctl(&target.address(), &["import", text(&file)]).ends_with(4);
    assert!(refused.err.contains("DRAINING"), "{refused:?}");
}

#[test]
fn a_drain_whose_disk_is_full_leaves_no_line_of_the_jobs_that_go_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    fill(&source.address());
    // A part of the lines fits.
    let before =
        format!("{}\n", json!({ "id": 1, "tube": "other", "drained": true, "body": "x".repeat(3_700) }));
    fs::write(&file, &before).unwrap();
    let run = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let mut drain = Command::new("sh");
    drain.args(["-c", run, "sh", env!("CARGO_BIN_EXE_beanstalkctl"), "export", "t", "--drain", "--yes"]);
    drain.args(["--output", text(&file)]).env("BEANSTALKD_SERVER", source.address());
    let drain = drain.output().unwrap();
    assert_eq!(drain.status.code(), Some(5), "{drain:?}");
    assert_eq!(jobs(&source.address()), expected());
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

#[test]
fn a_closed_output_hides_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    fill(&source.address());
    ctl(&source.address(), &["export", "t", "--output", text(&file)]).ends_with(0);
    let mut worker = client(&source.address());
    // A worker reserves a job of the drain.
    let address = between(&directory.path().join("socket"), &source.address(), move |line| {
        line != "reserve-job 1" || worker.reserve_job(2).is_ok()
    });
    let target = Fake::start();
    ctl(&target.address(), &["drain"]).ends_with(0);
    let drained = directory.path().join("drained");
    let drain = ["export", "t", "--drain", "--yes", "--output", text(&drained)];
    for (address, arguments) in [(&address, &drain[..]), (&target.address(), &["import", text(&file)])] {
        let (output, reader) = UnixStream::pair().unwrap();
        drop(reader);
        let ended = command(address, arguments).stdout(OwnedFd::from(output)).output().unwrap();
        assert_eq!(ended.status.code(), Some(4), "{arguments:?}: {ended:?}");
    }
}
