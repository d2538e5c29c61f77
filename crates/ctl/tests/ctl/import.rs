//! `import`: how many jobs it puts, and in which states.

use serde_json::json;
use std::fs;

use super::rules::{Ruled, start};
use super::support::{client, counts, ctl, name, put};
use super::transfer::text;

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
