//! Jobs that wait for groups: `export --drain` and `delete` of these and of the members.

use super::support::{client, counts, ctl, name};
use super::transfer::text;
use beanstalk_client::PutOptions;
use beanstalkd_testkit::fake::{Fake, FakeOptions};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// As many jobs as the program changes together.
const MEMBERS: usize = 200;

/// Puts members of the group `a`, a member of the group `b` that waits for `a`, and a job that waits for `b`.
fn fill(address: &str, members: usize) {
    let mut client = client(address);
    client.use_tube(&name("t")).unwrap();
    let tags = (0..members).map(|_| vec!["grp:a"]).chain([vec!["grp:b", "aft:a"], vec!["aft:b"]]);
    for tags in tags {
        let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        client.put(b"x", &PutOptions { tags, ..PutOptions::default() }).unwrap();
    }
}

/// The ids of the jobs that were deleted, in this order.
fn deleted(source: &Fake) -> Vec<usize> {
    let log = source.take_log();
    log.iter().filter_map(|line| line.strip_prefix("delete ")).map(|id| id.parse().unwrap()).collect()
}

fn ids(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap()).collect()
}

#[test]
fn a_drain_deletes_the_jobs_that_wait_for_a_group_before_its_members() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    fill(&source.address(), MEMBERS);
    ctl(&source.address(), &["export", "t", "--drain", "--yes", "--output", text(&file)]).ends_with(0);
    assert_eq!(counts(&source.address(), "t"), [0; 4]);
    assert_eq!(deleted(&source), (1..=MEMBERS + 2).rev().collect::<Vec<_>>());
    assert_eq!(ids(&file), (1..=MEMBERS as u64 + 2).collect::<Vec<_>>());
    ctl(&source.address(), &["import", text(&file)]).ends_with(0);
    assert_eq!(counts(&source.address(), "t"), [MEMBERS as u64, 0, 2, 0]);
}

#[test]
fn a_drain_of_a_group_that_is_interrupted_anywhere_is_continued() {
    for at in 1.. {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs");
        let source = Fake::start_with(FakeOptions { close_after: at + 5, ..FakeOptions::default() });
        fill(&source.address(), 1);
        assert_eq!(source.count(), 5, "the number of commands that put the jobs");
        let drain = ["export", "t", "--drain", "--yes", "--output", text(&file)];
        ctl(&source.address(), &drain);
        let broken = source.disarm();
        ctl(&source.address(), &drain).ends_with(if broken { 0 } else { 1 });
        assert_eq!((ids(&file), counts(&source.address(), "t")), (vec![1, 2, 3], [0; 4]), "at {at}");
        let mut deleted = deleted(&source);
        deleted.dedup();
        assert_eq!(deleted, [3, 2, 1], "at {at}");
        if !broken {
            assert!(at > 10, "an interruption at every step was tried");
            break;
        }
    }
}

#[test]
fn jobs_that_wait_for_a_group_are_deleted_together_with_it() {
    let source = Fake::start();
    fill(&source.address(), MEMBERS);
    let done = ctl(&source.address(), &["delete", "--tube", "t", "--all", "--yes"]).ends_with(0);
    assert_eq!(done.out, "deleted 202 jobs\n");
    assert_eq!(deleted(&source)[..3], [MEMBERS + 2, MEMBERS + 1, 1]);
    assert_eq!(counts(&source.address(), "t"), [0; 4]);
    fill(&source.address(), MEMBERS);
    let ids: Vec<String> = (MEMBERS + 3..=2 * MEMBERS + 4).map(|id| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let done = ctl(&source.address(), &[&["delete"], &ids[..]].concat()).ends_with(0);
    assert_eq!(done.out, "deleted 202 jobs\n");
}
