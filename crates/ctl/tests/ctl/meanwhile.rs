//! What commands that read many jobs find while other clients change them.

use super::support::{between, client, counts, ctl, name, put, put_buried, text};
use beanstalk_client::{Client, PutOptions};
use beanstalkd_testkit::fake::{Fake, FakeOptions};
use beanstalkd_testkit::installed;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A change of one of the jobs that [`changed_before`] has put.
type ChangeMeanwhile = fn(&mut Client);

const CHANGES: [(&str, ChangeMeanwhile); 4] = [
    ("the delay of a job ends", |worker| worker.kick_job(1).unwrap()),
    ("a buried job is kicked", |worker| worker.kick_job(2).unwrap()),
    ("a worker reserves a job and buries it", |worker| {
        worker.reserve_job(3).unwrap();
        worker.bury(3, 7).unwrap();
    }),
    ("a reserved job is released", |worker| assert!(worker.release(4, 7, 0).is_ok())),
];

/// Runs an export of four jobs, one of each state, and makes the change before its `at`-th `list-jobs`. Returns the
/// ids in the file, sorted, and the jobs that are left; `None` if there is no such `list-jobs`.
fn changed_before(at: usize, change: ChangeMeanwhile, options: &[&str]) -> Option<(Vec<u64>, u64)> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    let mut worker = client(&source.address());
    put(&mut worker, "t", b"delayed", 3_600);
    put_buried(&mut worker, "t", b"buried");
    put(&mut worker, "t", b"ready", 0);
    put(&mut worker, "t", b"reserved", 0);
    worker.reserve_job(4).unwrap();
    let (mut listed, is_changed) = (0, Arc::new(AtomicBool::new(false)));
    let changed = Arc::clone(&is_changed);
    let address = between(&directory.path().join("socket"), &source.address(), move |line| {
        listed += usize::from(line.starts_with("list-jobs"));
        if listed == at && !changed.swap(true, Ordering::SeqCst) {
            change(&mut worker);
        }
        true
    });
    ctl(&address, &[&["export", "t", "--output", text(&file)], options].concat()).ends_with(0);
    let lines = fs::read_to_string(&file).unwrap();
    let id = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap();
    let mut ids: Vec<u64> = lines.lines().map(id).collect();
    ids.sort_unstable();
    is_changed.load(Ordering::SeqCst).then(|| (ids, counts(&source.address(), "t").iter().sum()))
}

#[test]
fn an_export_has_each_job_once_if_one_changes_its_state_meanwhile() {
    for (what, change) in CHANGES {
        for at in 1.. {
            let Some((ids, _)) = changed_before(at, change, &[]) else {
                assert!(at > 4, "a change before each list was tried");
                break;
            };
            assert_eq!(ids, [1, 2, 3, 4], "{what} before list {at}");
        }
    }
}

#[test]
fn a_drain_has_each_job_if_one_becomes_ready_meanwhile() {
    for (what, change) in [CHANGES[0], CHANGES[1], CHANGES[3]] {
        for at in 1.. {
            let Some((ids, left)) = changed_before(at, change, &["--drain", "--yes"]) else {
                assert!(at > 4, "a change before each list was tried");
                break;
            };
            assert_eq!(ids[..3], [1, 2, 3], "{what} before list {at}");
            assert_eq!(
                (ids.len() as u64 + left, ids.len() == 4),
                (4, what == CHANGES[3].0),
                "{what} before list {at}"
            );
        }
    }
}

#[test]
fn the_oldest_jobs_are_found_without_list_jobs_if_others_are_put_meanwhile() {
    let put_many = |client: &mut Client| {
        client.use_tube(&name("t")).unwrap();
        for _ in 0..600 {
            client.put(b"x", &PutOptions::default()).unwrap();
        }
    };
    for at in 1.. {
        let directory = tempfile::tempdir().unwrap();
        let source = Fake::start_with(FakeOptions { without: vec!["list-jobs"], ..FakeOptions::default() });
        let mut producer = client(&source.address());
        put_many(&mut producer);
        let (mut count, searching) = (0, Arc::new(AtomicBool::new(false)));
        let is_searching = Arc::clone(&searching);
        let address = between(&directory.path().join("socket"), &source.address(), move |line| {
            count += 1;
            if count == at {
                is_searching.store(line.starts_with("stats-job "), Ordering::SeqCst);
                put_many(&mut producer);
            }
            true
        });
        let listed = ctl(&address, &["jobs", "t", "--json"]).ends_with(0).json();
        let oldest = listed.iter().filter(|job| job["id"].as_u64().unwrap() <= 600).count();
        assert_eq!(oldest, 600, "jobs were put before command {at}");
        if searching.load(Ordering::SeqCst) {
            assert!(at > 4, "a put before each step was tried");
            break;
        }
    }
}

#[test]
fn another_program_may_delete_the_probe_for_the_newest_id() {
    let directory = tempfile::tempdir().unwrap();
    let binlog = directory.path().join("binlog");
    fs::create_dir(&binlog).unwrap();
    let Some(server) = installed::debians(&["-b", text(&binlog)]) else { return };
    let mut other = client(&server.address());
    put(&mut other, "t", b"x", 0);
    put(&mut other, "beanstalkctl-probe", b"", 3_600);
    let address = between(&directory.path().join("socket"), &server.address(), move |line| {
        if let Some(id) = line.strip_prefix("delete ") {
            other.delete(id.parse().unwrap()).unwrap();
        }
        true
    });
    assert_eq!(ctl(&address, &["jobs", "t", "--json"]).ends_with(0).json().len(), 1);
}

#[test]
fn an_export_does_not_replace_what_another_is_writing() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    put(&mut client(&source.address()), "t", b"x", 0);
    let (file, partial) = (directory.path().join("jobs"), directory.path().join("jobs.partial"));
    let export = || ctl(&source.address(), &["export", "t", "--output", text(&file)]);
    let other = fs::File::create(&partial).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let refused = export().ends_with(5);
    assert!(refused.err.contains("another export"), "{refused:?}");
    assert_eq!((partial.exists(), file.exists()), (true, false));
    rustix::fs::flock(&other, rustix::fs::FlockOperation::Unlock).unwrap();
    export().ends_with(0);
    assert_eq!((partial.exists(), file.exists()), (false, true));
}
