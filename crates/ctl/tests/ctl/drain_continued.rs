//! `export --drain`: which jobs and which lines of the file belong to an interrupted export.

use super::support::{Ended, between, client, counts, ctl, name, put, put_buried, text};
use super::transfer::fill;
use beanstalk_client::PutOptions;
use beanstalkd_testkit::fake::{Fake, Fault, at_each_command_after};
use beanstalkd_testkit::installed::{self, Installed};
use beanstalkd_testkit::pace::Pace;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

type StartWithBinlog = fn(&Path) -> Option<Installed>;

/// The servers with a binlog in a directory.
const WITH_BINLOG: [StartWithBinlog; 2] = [
    |directory| installed::ours(&["-b", text(directory)]),
    |directory| installed::debians(&["-b", text(directory)]),
];

fn drain(address: &str, file: &Path, filter: &[&str]) -> Ended {
    ctl(address, &[&["export", "t", "--drain", "--yes", "--output", text(file)], filter].concat())
}

/// Drains the server, whose address is that of `path`, until job 1 is to be deleted.
fn interrupted_drain(path: &Path, server: &str, file: &Path) {
    let address = between(path, server, |line| line != "delete 1");
    drain(&address, file, &[]).ends_with(3);
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn owned((id, state): (u64, &str)) -> (u64, String) {
    (id, state.to_owned())
}

/// The ids and states of the jobs in the file, sorted.
fn states(file: &Path) -> Vec<(u64, String)> {
    let state = |line: &Value| owned((line["id"].as_u64().unwrap(), line["state"].as_str().unwrap()));
    let mut states: Vec<_> = lines(file).iter().map(state).collect();
    states.sort();
    states
}

#[test]
fn equal_jobs_of_two_servers_are_both_in_the_file() {
    for start in WITH_BINLOG {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs");
        for binlog in ["one", "other"] {
            fs::create_dir(directory.path().join(binlog)).unwrap();
            let Some(server) = start(&directory.path().join(binlog)) else { continue };
            let before = lines(&file).len();
            put(&mut client(&server.address()), "t", b"tick", 0);
            drain(&server.address(), &file, &[]).ends_with(0);
            assert_eq!((lines(&file).len(), counts(&server.address(), "t")), (before + 1, [0; 4]));
        }
    }
}

/// Waits until the job is older than the ages can be wrong, which are whole seconds.
fn wait_for_age(server: &Installed, id: u64) {
    while client(&server.address()).stats_job(id).unwrap().age < 3 {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Runs `test` with each server, again if the machine stood still: the program compares ages by its clock.
fn each_with_binlog(test: impl Fn(StartWithBinlog)) {
    let pace = Pace::watch().unwrap();
    for start in WITH_BINLOG {
        pace.judge_panics(|| test(start));
    }
}

#[test]
fn a_job_of_a_server_that_restarted_empty_is_another_job_with_the_same_id() {
    each_with_binlog(|start| {
        for is_old in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (file, socket) = (directory.path().join("jobs"), directory.path().join("socket"));
            let binlogs = ["one", "other"].map(|binlog| directory.path().join(binlog));
            binlogs.iter().for_each(|binlog| fs::create_dir(binlog).unwrap());
            let Some(server) = start(&binlogs[0]) else { return };
            put(&mut client(&server.address()), "t", b"tick", 0);
            if is_old {
                wait_for_age(&server, 1);
            }
            interrupted_drain(&socket, &server.address(), &file);
            drop(server);
            let Some(server) = start(&binlogs[1]) else { return };
            // As an interrupted drain would leave it.
            put_buried(&mut client(&server.address()), "t", b"tick");
            let address = between(&socket, &server.address(), |_| true);
            drain(&address, &file, &[]).ends_with(0);
            assert_eq!(counts(&address, "t"), [0; 4]);
            let states: Vec<Value> = lines(&file).iter().map(|line| line["state"].clone()).collect();
            assert_eq!(states, ["ready", "buried"]);
        }
    });
}

#[test]
fn a_drain_is_continued_after_the_server_was_restarted_with_its_jobs() {
    each_with_binlog(|start| {
        let directory = tempfile::tempdir().unwrap();
        let (file, socket) = (directory.path().join("jobs"), directory.path().join("socket"));
        let binlog = directory.path().join("binlog");
        fs::create_dir(&binlog).unwrap();
        let Some(mut server) = start(&binlog) else { return };
        fill(&server.address());
        wait_for_age(&server, 3);
        for run in 0..3 {
            interrupted_drain(&socket, &server.address(), &file);
            if run == 0 {
                // As if the interruption had come before the jobs were written.
                fs::write(&file, "").unwrap();
            }
            drop(server);
            server = start(&binlog).unwrap();
        }
        let address = between(&socket, &server.address(), |_| true);
        drain(&address, &file, &[]).ends_with(0);
        assert_eq!(counts(&address, "t"), [0; 4]);
        assert_eq!(states(&file), [(1, "ready"), (2, "delayed"), (3, "buried")].map(owned));
        assert!(!directory.path().join("jobs.taking").exists());
    });
}

#[test]
fn a_drain_that_another_server_has_not_completed_is_not_continued() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    put_buried(&mut client(&source.address()), "t", b"x");
    let entry = json!({
        "id": 1, "state": "ready", "left": 0, "reserves": 0, "buries": 0, "tags": [], "age": 0, "time": 0,
        "server": "other", "address": "queue.example:11300",
    });
    fs::write(directory.path().join("jobs.taking"), format!("{entry}\n")).unwrap();
    let refused = drain(&source.address(), &file, &[]).ends_with(5);
    assert!(refused.err.contains("continue it with --server queue.example:11300"), "{refused:?}");
    assert_eq!((counts(&source.address(), "t"), file.exists()), ([0, 0, 0, 1], false));
}

#[test]
fn a_drain_of_some_jobs_that_is_interrupted_anywhere_is_continued() {
    let filters =
        [("ready", ["--state", "ready"]), ("delayed", ["--state", "delayed"]), ("ready", ["--tag", "exp"])];
    let set_up = |address: &str| {
        let mut worker = client(address);
        worker.use_tube(&name("t")).unwrap();
        let tags = vec!["exp:1000".parse().unwrap()];
        worker.put(b"ready", &PutOptions { tags, ..PutOptions::default() }).unwrap();
        worker.put(b"delayed", &PutOptions { delay: 3_600.into(), ..PutOptions::default() }).unwrap();
    };
    for (state, filter) in filters {
        at_each_command_after(set_up, Fault::CloseAfter, 7, |source, at| {
            let directory = tempfile::tempdir().unwrap();
            let (file, taking) = (directory.path().join("jobs"), directory.path().join("jobs.taking"));
            drain(&source.address(), &file, &filter);
            let broken = source.disarm();
            drain(&source.address(), &file, &filter).ends_with(if broken { 0 } else { 1 });
            let found: Vec<_> =
                lines(&file).iter().map(|line| (line["body"].clone(), line["state"].clone())).collect();
            assert_eq!(found, [(json!(state), json!(state))], "{filter:?}, at {at}");
            let left = if state == "ready" { [0, 0, 1, 0] } else { [1, 0, 0, 0] };
            assert_eq!(
                (counts(&source.address(), "t"), taking.exists()),
                (left, false),
                "{filter:?}, at {at}"
            );
        });
    }
}

#[test]
fn a_drain_that_was_interrupted_after_its_last_delete_is_completed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, taking) = (directory.path().join("jobs"), directory.path().join("jobs.taking"));
    let source = Fake::start();
    fill(&source.address());
    let kept = directory.path().join("kept");
    // FILE.taking as it was before the first delete.
    let (from, to) = (taking.clone(), kept.clone());
    let address = between(&directory.path().join("socket"), &source.address(), move |line| {
        !line.starts_with("delete 1") || fs::copy(&from, &to).is_ok()
    });
    drain(&address, &file, &[]).ends_with(0);
    fs::rename(kept, &taking).unwrap();
    drain(&address, &file, &["--dry-run"]).ends_with(1);
    assert!(taking.exists());
    drain(&address, &file, &[]).ends_with(0);
    assert_eq!((lines(&file).len(), taking.exists()), (3, false));
}

#[test]
fn a_drain_that_is_interrupted_several_times_keeps_the_states() {
    let directory = tempfile::tempdir().unwrap();
    let (file, socket) = (directory.path().join("jobs"), directory.path().join("socket"));
    let source = Fake::start();
    fill(&source.address());
    for last in ["delete 1", "reserve-job 1", "delete 1", "reserve-job 1"] {
        let address = between(&socket, &source.address(), move |line| !line.starts_with(last));
        drain(&address, &file, &[]).ends_with(3);
        // As if the interruption had come before the jobs were written.
        fs::write(&file, "").unwrap();
    }
    drain(&source.address(), &file, &[]).ends_with(0);
    assert_eq!(states(&file), [(1, "ready"), (2, "delayed"), (3, "buried")].map(owned));
}

#[test]
fn a_drain_is_not_complete_while_the_connection_of_an_interrupted_one_has_a_job() {
    let directory = tempfile::tempdir().unwrap();
    let (file, taking) = (directory.path().join("jobs"), directory.path().join("jobs.taking"));
    let source = Fake::start();
    fill(&source.address());
    let address =
        between(&directory.path().join("socket"), &source.address(), |line| line != "reserve-job 2");
    drain(&address, &file, &[]).ends_with(3);
    // The server has not noticed yet that the connection has ended.
    let mut half_open = client(&source.address());
    half_open.reserve_job(2).unwrap();
    for _ in 0..2 {
        let refused = drain(&source.address(), &file, &[]).ends_with(4);
        assert!(refused.err.contains("run the same command again later"), "{refused:?}");
        assert_eq!((counts(&source.address(), "t"), taking.exists()), ([0, 1, 0, 0], true));
    }
    drop(half_open);
    while counts(&source.address(), "t")[1] > 0 {
        thread::yield_now();
    }
    drain(&source.address(), &file, &[]).ends_with(0);
    assert_eq!(states(&file), [(1, "ready"), (2, "delayed"), (3, "buried")].map(owned));
    assert!(!taking.exists());
}

#[test]
fn a_job_that_a_worker_deletes_meanwhile_does_not_count_as_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (file, taking) = (directory.path().join("jobs"), directory.path().join("jobs.taking"));
    let source = Fake::start();
    fill(&source.address());
    let mut worker = client(&source.address());
    let address = between(&directory.path().join("socket"), &source.address(), move |line| {
        line != "reserve-job 1" || worker.delete(2).is_ok()
    });
    let drained = drain(&address, &file, &[]).ends_with(0);
    assert_eq!((drained.out.as_str(), taking.exists()), ("exported and deleted 2 jobs\n", false));
}
