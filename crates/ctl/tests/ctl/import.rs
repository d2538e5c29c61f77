//! `import`: how many jobs it puts, and in which states.

use beanstalkd_testkit::fake::Fake;
use serde_json::json;
use std::fs;

use super::rules::{Ruled, start};
use super::support::{client, counts, ctl, name, put};
use super::transfer::{fifo, text};

#[test]
fn a_rule_that_allows_no_more_reserved_jobs_leaves_no_job_delayed_without_an_end() {
    let rules = "[[tube]]\nname = \"one\"\nmax-reserved = 1\n[[tube]]\nname = \"rated\"\nrate = \"1/h\"\n";
    let Ruled { address, directory, .. } = &start(rules);
    let file = directory.path().join("jobs");
    let line = |tube: &str, state: &str, delay: u32| {
        format!("{}\n", json!({ "tube": tube, "body": "x", "state": state, "delay": delay }))
    };
    let tube =
        |tube: &str| [line(tube, "buried", 0), line(tube, "delayed", 500), line(tube, "ready", 0)].concat();
    let endless = line("other", "delayed", u32::MAX);
    fs::write(&file, format!("{}{}{endless}", tube("one"), tube("rated"))).unwrap();
    // A worker has the only slot.
    let mut worker = client(address);
    let id = put(&mut worker, "one", b"busy", 0);
    worker.watch(&name("one")).unwrap();
    assert_eq!(worker.reserve_with_timeout(5).unwrap().id, id);
    let imported = ctl(address, &["import", text(&file)]).ends_with(0);
    assert!(imported.err.contains("made 3 jobs ready instead of buried or delayed"), "{imported:?}");
    assert_eq!(counts(address, "one"), [3, 1, 0, 0]);
    assert_eq!(counts(address, "rated"), [2, 0, 0, 1]);
    assert_eq!(counts(address, "other"), [0, 0, 1, 0]);
}

#[test]
fn large_jobs_are_put_a_few_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let line = format!("{}\n", json!({ "tube": "t", "body": "x".repeat(1_000_000) }));
    fs::write(&file, line.repeat(12)).unwrap();
    let target = Fake::start();
    ctl(&target.address(), &["import", text(&file)]).ends_with(0);
    assert_eq!(counts(&target.address(), "t"), [12, 0, 0, 0]);
    let journal = fs::read_to_string(directory.path().join("jobs.journal")).unwrap();
    assert_eq!(journal.matches("\"begin\"").count(), 3, "{journal}");
}

#[test]
fn an_import_reads_a_fifo() {
    let directory = tempfile::tempdir().unwrap();
    let target = Fake::start();
    let pipe = fifo(directory.path());
    for done in 1..3 {
        let writer = pipe.clone();
        let line = format!("{{\"tube\":\"t\",\"body\":\"{done}\"}}\n");
        let written = std::thread::spawn(move || fs::write(writer, line).unwrap());
        ctl(&target.address(), &["import", text(&pipe)]).ends_with(0);
        written.join().unwrap();
        assert_eq!(counts(&target.address(), "t"), [done, 0, 0, 0]);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no journal is left");
}
