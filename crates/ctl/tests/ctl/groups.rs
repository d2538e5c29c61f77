//! Jobs that wait for groups: `export --drain` and `delete` of these and of the members.

use super::rules::{Ruled, start};
use super::support::{between, client, counts, ctl, everywhere, name, text};
use super::transfer::states_and_tags;
use beanstalk_client::{Client, PutOptions};
use beanstalkd_testkit::fake::{Fake, Fault, at_each_command, at_each_command_after};
use beanstalkd_testkit::installed;
use beanstalkd_testkit::panicking::wait_until;
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

/// Puts one job of each kind.
fn fill_one(address: &str) {
    fill(address, 1);
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
    at_each_command_after(fill_one, Fault::CloseAfter, 10, |source, at| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs");
        let drain = ["export", "t", "--drain", "--yes", "--output", text(&file)];
        ctl(&source.address(), &drain);
        let broken = source.disarm();
        ctl(&source.address(), &drain).ends_with(if broken { 0 } else { 1 });
        assert_eq!((ids(&file), counts(&source.address(), "t")), (vec![1, 2, 3], [0; 4]), "at {at}");
        let mut deleted = deleted(source);
        deleted.dedup();
        assert_eq!(deleted, [3, 2, 1], "at {at}");
    });
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

#[test]
fn an_export_has_the_members_of_each_group_before_the_jobs_that_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    for server in everywhere().into_iter().filter(|server| server.has_extensions()) {
        let address = server.address();
        let mut source = client(&address);
        let put = |source: &mut Client, tube: &str, delay: u32, tags: &[&str]| {
            let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
            let options = PutOptions { delay: delay.into(), tags, ..PutOptions::default() };
            source.put_in(&name(tube), b"x", &options).unwrap().id
        };
        let member = put(&mut source, "z", 0, &["grp:x"]);
        let both =
            [("y", 0), ("a", 3_600)].map(|(tube, delay)| put(&mut source, tube, delay, &["aft:x", "grp:y"]));
        let last = put(&mut source, "a", 0, &["aft:y"]);
        ctl(&address, &["export", "a", "y", "z", "--output", text(&file)]).ends_with(0);
        assert_eq!(ids(&file), [member, both[1], both[0], last]);
        let target = Fake::start();
        ctl(
            &target.address(),
            &["import", text(&file), "--journal", text(&directory.path().join(&*address.replace('/', "-")))],
        )
        .ends_with(0);
        let jobs = ctl(&target.address(), &["jobs", "*", "--json"]).json();
        assert_eq!(jobs.iter().filter(|job| job["held"] == true).count(), 3, "{jobs:?}");
    }
}

#[test]
fn a_job_that_has_waited_for_its_group_does_not_wait_again_after_an_import() {
    for server in everywhere().into_iter().filter(|server| server.has_extensions()) {
        for drain in [&[][..], &["--drain", "--yes"]] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("jobs");
            let (address, target) = (server.address(), Fake::start());
            let mut source = client(&address);
            let mut put = |body: &str, tag: &str, delay: u32| {
                let options = PutOptions::new().tag(tag.parse().unwrap()).delay(delay);
                source.put_in(&name("t"), body.as_bytes(), &options).unwrap().id
            };
            let member = put("0", "grp:g", 0);
            put("1", "aft:g", 0);
            put("2", "aft:g", 3_600);
            ctl(&address, &["delete", &member.to_string()]).ends_with(0);
            put("3", "grp:g", 0);
            put("4", "aft:g", 0);
            ctl(&address, &[&["export", "t", "--output", text(&file)], drain].concat()).ends_with(0);
            ctl(&target.address(), &["import", text(&file)]).ends_with(0);
            let jobs = states_and_tags(&target.address());
            // The job that waits has a key of the import before its tag.
            let last = |tags: &Value| Some(tags.as_array()?.last()?.as_str()?.to_owned());
            let shown = jobs.iter().map(|(_, state, tags)| (state.clone(), last(tags).unwrap_or_default()));
            let expected = [("ready", ""), ("delayed", ""), ("ready", "grp:g"), ("held", "aft:g")];
            let expected = expected.map(|(state, tag)| (state.to_owned(), tag.to_owned()));
            assert_eq!(shown.collect::<Vec<_>>(), expected);
            ctl(&address, &["flush", "t", "--yes"]);
        }
    }
}

/// Asserts that the server has no job that waited for a group and is free now.
#[track_caller]
fn assert_held(address: &str, at: usize) {
    for job in ctl(address, &["jobs", "*", "--json"]).json() {
        let waits =
            job["tags"].as_array().unwrap().iter().any(|tag| tag.as_str().unwrap().starts_with("aft:"));
        assert_eq!(job["held"], waits, "at {at}: {job}");
    }
}

#[test]
fn a_drain_that_is_refused_a_job_keeps_the_members_for_which_it_waits() {
    let mut has_kept = false;
    at_each_command_after(fill_one, Fault::Refuse, 10, |source, at| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs");
        let drain = ["export", "t", "--drain", "--yes", "--output", text(&file)];
        let first = ctl(&source.address(), &drain);
        let refused = source.disarm();
        // A refused delete of a member that waits itself comes too late for the members that it waits for.
        if source.take_log().get(at - 1).is_none_or(|line| line != "delete 2") {
            assert_held(&source.address(), at);
        }
        has_kept |= first.err.contains("buried and also in");
        if !refused {
            first.ends_with(0);
            return;
        }
        wait_until("the end of the connection", || counts(&source.address(), "t")[1] == 0);
        let again = ctl(&source.address(), &drain);
        assert!(again.code == 0 || first.code == 0, "at {at}: {first:?}, {again:?}");
        let mut ids = ids(&file);
        ids.sort_unstable();
        assert_eq!((ids, counts(&source.address(), "t")), (vec![1, 2, 3], [0; 4]), "at {at}");
    });
    assert!(has_kept, "a refused delete was tried");
}

#[test]
fn a_drain_leaves_the_jobs_that_wait_for_a_member_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let drain = ["export", "t", "--drain", "--yes", "--output", text(&file)];
    let source = Fake::start();
    fill_one(&source.address());
    let mut worker = client(&source.address());
    worker.reserve_job(1).unwrap();
    let kept = ctl(&source.address(), &drain).ends_with(4);
    assert!(kept.err.contains("kept 2 jobs, which wait for groups"), "{kept:?}");
    assert_held(&source.address(), 1);
    assert!(ids(&file).is_empty());
    drop(worker);
    wait_until("the member is ready", || counts(&source.address(), "t")[0] == 1);
    ctl(&source.address(), &drain).ends_with(0);
    assert_eq!((ids(&file), counts(&source.address(), "t")), (vec![1, 2, 3], [0; 4]));
}

#[test]
fn a_drain_leaves_the_jobs_that_wait_for_a_member_without_a_slot() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    for (tube, tags) in [("other", "con:k"), ("t", "grp:a con:k"), ("t", "aft:a")] {
        let tags = tags.split(' ').flat_map(|tag| ["--tag", tag]);
        let put: Vec<&str> = ["put", tube, "x"].into_iter().chain(tags).collect();
        ctl(&source.address(), &put).ends_with(0);
    }
    let mut worker = client(&source.address());
    worker.reserve_job(1).unwrap();
    let kept = ctl(&source.address(), &["export", "t", "--drain", "--yes", "--output", text(&file)]);
    assert!(kept.ends_with(4).err.contains("kept 1 job, which waits for groups"));
    assert_held(&source.address(), 1);
    assert_eq!(counts(&source.address(), "t"), [1, 0, 1, 0]);
}

#[test]
fn a_drain_names_the_job_that_a_worker_gets_after_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    fill(&source.address(), 1);
    ctl(&source.address(), &["move", "1", "--to", "members"]).ends_with(0);
    let mut worker = client(&source.address());
    let address = between(&directory.path().join("socket"), &source.address(), move |line| {
        if line == "delete 3" {
            worker.delete(1).unwrap();
            worker.reserve_job(2).unwrap();
        }
        true
    });
    let kept = ctl(&address, &["export", "t", "--drain", "--yes", "--output", text(&file)]).ends_with(4);
    let in_both = format!("kept 1 job, also in {}, which the server did not delete", file.display());
    assert!(kept.err.contains(&in_both) && kept.err.ends_with(": 2\n"), "{kept:?}");
    assert_eq!(ids(&file), [2, 3]);
}

/// Lines of a member of the group `a`, a member of `b` that waits for `a`, a job that waits for `b`, and another job.
fn chain(body: &str) -> [String; 4] {
    ["\"grp:a\"", "\"grp:b\",\"aft:a\"", "\"aft:b\"", ""]
        .map(|tags| format!("{{\"tube\":\"t\",\"body\":\"{body}\",\"tags\":[{tags}]}}\n"))
}

#[test]
fn an_import_that_is_refused_a_member_leaves_out_the_jobs_that_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, chain("x").concat()).unwrap();
    let mut has_left_out = false;
    at_each_command(Fault::Refuse, 8, |target, refuse_at| {
        let journal = directory.path().join(refuse_at.to_string());
        let import = ["import", text(&file), "--journal", text(&journal)];
        let first = ctl(&target.address(), &import);
        target.disarm();
        assert_held(&target.address(), refuse_at);
        has_left_out |= first.err.contains("left out 2 jobs, which must wait for them");
        ctl(&target.address(), &import).ends_with(0);
        assert_held(&target.address(), refuse_at);
        assert_eq!(counts(&target.address(), "t"), [2, 0, 2, 0], "at {refuse_at}");
    });
    assert!(has_left_out, "a refused put of a member was tried");
}

#[test]
fn a_job_is_not_put_if_the_same_import_was_refused_a_member_of_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let Some(target) = installed::ours(&["-z", "10"]) else { return };
    let [_, others @ ..] = chain("x");
    fs::write(&file, [&chain(&"x".repeat(20))[..1], &others].concat().concat()).unwrap();
    let refused = ctl(&target.address(), &["import", text(&file)]).ends_with(4);
    assert!(refused.err.contains("JOB_TOO_BIG; left out 2 jobs, which must wait for them"), "{refused:?}");
    assert_eq!(counts(&target.address(), "t"), [1, 0, 0, 0]);
}

#[test]
fn a_continued_batch_waits_for_group_members_that_were_not_put() {
    let Ruled { address, directory, .. } = &start("[[tube]]\nname = \"full\"\nmax-jobs = 1\n");
    let (file, journal) = (directory.path().join("jobs"), directory.path().join("jobs.journal"));
    // The member is so long that it has a batch of its own.
    let padding = "x".repeat(4 << 20);
    let member =
        format!("{{\"tube\":\"full\",\"body\":\"x\",\"tags\":[\"grp:a\"],\"padding\":\"{padding}\"}}\n");
    let [_, others @ ..] = chain("x");
    fs::write(&file, member + &others.concat()).unwrap();
    ctl(address, &["put", "full", "the only job"]).ends_with(0);
    let import = ["import", text(&file)];
    let left_out = "TUBE_FULL; left out 2 jobs, which must wait for them";
    let refused = ctl(address, &import).ends_with(4);
    assert!(refused.err.contains(left_out), "{refused:?}");
    // It was interrupted when it had begun the second batch.
    let entries = fs::read_to_string(&journal).unwrap();
    let begun = entries.match_indices("{\"begin\"").nth(1).unwrap().0;
    let cut = begun + entries[begun..].find('\n').unwrap() + 1;
    for is_full in [true, false] {
        ctl(address, &["flush", "t", "--yes"]).ends_with(0);
        fs::write(&journal, &entries[..cut]).unwrap();
        if is_full {
            let refused = ctl(address, &import).ends_with(4);
            assert!(refused.err.contains(left_out), "{refused:?}");
        } else {
            ctl(address, &["flush", "full", "--yes"]).ends_with(0);
            ctl(address, &import).ends_with(0);
            assert_eq!(counts(address, "full"), [1, 0, 0, 0]);
        }
        assert_held(address, begun);
        assert_eq!(counts(address, "t"), [1, 0, if is_full { 0 } else { 2 }, 0]);
    }
}
