//! `import`: how many jobs it puts, and in which states.

use beanstalkd_testkit::fake::{Fake, Fault, at_each_command, at_each_command_after};
use beanstalkd_testkit::panicking::wait_until;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, Mutex};

use super::rules::{Ruled, start};
use super::support::{between, client, command, counts, ctl, ctl_with, interrupt, name, put, text};
use super::transfer::fifo;

const HELD: &str = "{\"tube\":\"t\",\"body\":\"x\",\"tags\":[\"aft:g\"]}\n";

/// A server with a member of the group `g`.
fn with_group() -> Fake {
    let target = Fake::start();
    ctl(&target.address(), &["put", "other", "member", "--tag", "grp:g"]).ends_with(0);
    target
}

#[test]
fn equal_lines_are_a_job_each() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, HELD.repeat(1_000)).unwrap();
    let target = with_group();
    // Of two equal batches, and of the same file with another journal, even after the first jobs were deleted.
    for journal in ["one", "other"] {
        let journal = directory.path().join(journal);
        let import = ["import", text(&file), "--journal", text(&journal), "--json"];
        assert_eq!(ctl(&target.address(), &import).ends_with(0).json()[0]["done"], 1_000);
        assert_eq!(counts(&target.address(), "t").iter().sum::<u64>(), 1_000);
        ctl(&target.address(), &["delete", "--tube", "t", "--all", "--yes"]).ends_with(0);
    }
}

#[test]
fn a_held_job_whose_second_put_is_refused_is_put_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, HELD).unwrap();
    at_each_command(Fault::CloseAfter, 3, |target, close_after| {
        let journal = directory.path().join(close_after.to_string());
        let import = ["import", text(&file), "--journal", text(&journal)];
        ctl(&target.address(), &import);
        target.disarm();
        ctl(&target.address(), &["drain"]).ends_with(0);
        ctl(&target.address(), &import);
        ctl(&target.address(), &["undrain"]).ends_with(0);
        ctl(&target.address(), &import).ends_with(0);
        assert_eq!(counts(&target.address(), "t").iter().sum::<u64>(), 1, "at command {close_after}");
    });
}

#[test]
fn only_one_import_uses_a_journal() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"x\"}\n").unwrap();
    let other = fs::File::create(directory.path().join("jobs.journal")).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let target = Fake::start();
    let refused = ctl(&target.address(), &["import", text(&file)]).ends_with(5);
    assert!(refused.err.contains("another import uses this file"), "{refused:?}");
    assert_eq!(counts(&target.address(), "t"), [0; 4]);
    flock(&other, FlockOperation::Unlock).unwrap();
    ctl(&target.address(), &["import", text(&file)]).ends_with(0);
    assert_eq!(counts(&target.address(), "t"), [1, 0, 0, 0]);
}

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

#[test]
fn a_duplicate_does_not_count_as_put() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let line =
        |key: &str| format!("{}\n", json!({ "tube": "t", "body": "x", "tags": [format!("idp:{key}:60")] }));
    fs::write(&file, [line("new"), line("new"), line("there"), line("deleted")].concat()).unwrap();
    let target = Fake::start();
    ctl(&target.address(), &["put", "t", "x", "--tag", "idp:deleted:60"]).ends_with(0);
    ctl(&target.address(), &["delete", "1"]).ends_with(0);
    ctl(&target.address(), &["put", "t", "x", "--tag", "idp:there:60"]).ends_with(0);
    let imported = ctl(&target.address(), &["import", text(&file)]).ends_with(0);
    assert_eq!(imported.out, "put 1 job of 4; 3 duplicates (idp)\n");
    // They are not tried again, even if their jobs are deleted.
    ctl(&target.address(), &["delete", "--tube", "t", "--all", "--yes"]).ends_with(0);
    let again = ctl(&target.address(), &["import", text(&file), "--json"]).ends_with(0).json();
    let expected = json!({ "action": "import", "matched": 4, "before": 1, "done": 0, "duplicates": 3 });
    assert_eq!(again, [expected]);
}

#[test]
fn a_continued_import_compares_the_tags_of_lines_and_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let line = |tags: &[&str]| format!("{}\n", json!({ "tube": "t", "body": "x", "tags": tags }));
    let waits = line(&["aft:g"]);
    let lines = [waits, line(&[]), line(&["con:one", "exp:1000"]), line(&["con:two:1"]), line(&["idp:k:60"])];
    fs::write(&file, lines.concat()).unwrap();
    let put_member = |address: &str| {
        ctl(address, &["put", "other", "member", "--tag", "grp:g"]).ends_with(0);
    };
    at_each_command_after(put_member, Fault::CloseAfter, 10, |target, close_after| {
        let journal = directory.path().join(close_after.to_string());
        let import = ["import", text(&file), "--journal", text(&journal)];
        ctl(&target.address(), &import);
        target.disarm();
        ctl(&target.address(), &import).ends_with(0);
        assert_eq!(counts(&target.address(), "t"), [4, 0, 1, 0], "at command {close_after}");
    });
}

#[test]
fn a_duplicate_in_a_file_counts_once_after_an_interruption() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"x\",\"tags\":[\"idp:k\"]}\n".repeat(2)).unwrap();
    at_each_command(Fault::CloseAfter, 6, |target, close_after| {
        let journal = directory.path().join(close_after.to_string());
        let import = ["import", text(&file), "--journal", text(&journal), "--json"];
        ctl(&target.address(), &import);
        target.disarm();
        let report = ctl(&target.address(), &import).ends_with(0).json().remove(0);
        let put = report["before"].as_u64().unwrap() + report["done"].as_u64().unwrap();
        assert_eq!((put, &report["duplicates"]), (1, &json!(1)), "at command {close_after}");
    });
}

#[test]
fn a_job_with_the_tag_of_another_tube_is_put_once_and_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"x\",\"tags\":[\"tub:other\"]}\n").unwrap();
    at_each_command(Fault::CloseAfter, 5, |target, close_after| {
        let journal = directory.path().join(close_after.to_string());
        let import = ["import", text(&file), "--journal", text(&journal)];
        ctl(&target.address(), &import);
        target.disarm();
        ctl(&target.address(), &import).ends_with(0);
        let found = ["t", "other"].map(|tube| counts(&target.address(), tube));
        assert_eq!(found, [[0; 4], [1, 0, 0, 0]], "at command {close_after}");
    });
}

#[test]
fn a_duplicate_of_an_older_job_with_a_higher_id_is_no_job_of_the_import() {
    let directory = tempfile::tempdir().unwrap();
    let (file, journal) = (directory.path().join("jobs"), directory.path().join("jobs.journal"));
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"x\",\"tags\":[\"idp:key\"]}\n").unwrap();
    let target = Fake::start();
    ctl(&target.address(), &["put", "t", "older", "--tag", "idp:key"]).ends_with(0);
    ctl(&target.address(), &["import", text(&file)]).ends_with(0);
    // It was interrupted after the put, and the server had counted no job since its restart.
    let lines = fs::read_to_string(&journal).unwrap();
    let mut entries: Vec<Value> =
        lines.lines().take(3).map(|line| serde_json::from_str(line).unwrap()).collect();
    entries[2]["above"] = json!(0);
    let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
    fs::write(&journal, lines).unwrap();
    let again = ctl(&target.address(), &["import", text(&file), "--json"]).ends_with(0).json();
    assert_eq!((&again[0]["done"], &again[0]["duplicates"]), (&json!(0), &json!(1)));
}

#[test]
fn a_file_that_is_no_journal_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let [file, other] = ["jobs", "other"].map(|name| directory.path().join(name));
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"x\"}\n").unwrap();
    let target = Fake::start();
    for contents in ["a token", "{\"a\":1}", "a token\n"] {
        fs::write(&other, contents).unwrap();
        let refused = ctl(&target.address(), &["import", text(&file), "--journal", text(&other)]);
        assert_eq!(refused.ends_with(5).out, "", "{contents:?}");
        assert_eq!(fs::read_to_string(&other).unwrap(), contents);
    }
    assert_eq!(counts(&target.address(), "t"), [0; 4]);
    // An import was interrupted while it began its journal.
    fs::write(&other, "{\"jour").unwrap();
    ctl(&target.address(), &["import", text(&file), "--journal", text(&other)]).ends_with(0);
}

#[test]
fn a_signal_ends_the_read_of_standard_input() {
    let target = Fake::start();
    for (arguments, last) in [(&["import", "-"][..], "stats"), (&["put", "t", "--file", "-"], "use t")] {
        let mut child = command(&target.address(), arguments).spawn().unwrap();
        wait_until("the first commands", || target.take_log().iter().any(|line| line == last));
        let input = child.stdin.take();
        interrupt(&child);
        wait_until("the end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{arguments:?}");
        drop(input);
    }
    assert_eq!(counts(&target.address(), "t"), [0; 4]);
}

#[test]
fn the_name_of_a_temporary_journal_is_printed_at_the_start() {
    let target = Fake::start();
    let imported = ctl_with(&target.address(), &["import", "-"], b"{\"tube\":\"t\",\"body\":\"x\"}\n");
    let said = imported.ends_with(0).err;
    let journal = said.trim_end().rsplit_once(" --journal ").expect(&said).1;
    assert!(journal.ends_with(".journal") && !fs::exists(journal).unwrap(), "{said}");
}

#[test]
fn a_continued_import_does_not_take_the_job_of_another_import() {
    let directory = tempfile::tempdir().unwrap();
    let target = Fake::start();
    let last = Arc::new(Mutex::new(""));
    let stop_at = Arc::clone(&last);
    let address = between(&directory.path().join("socket"), &target.address(), move |line| {
        let last = *stop_at.lock().unwrap();
        last.is_empty() || !line.starts_with(last)
    });
    let import = |name: &str, stop_at: &'static str| {
        let file = directory.path().join(name);
        fs::write(&file, "{\"tube\":\"t\",\"body\":\"x\"}\n").unwrap();
        *last.lock().unwrap() = stop_at;
        ctl(&address, &["import", text(&file)])
    };
    import("one", "put ").ends_with(3);
    import("other", "kick-job ").ends_with(3);
    assert_eq!(counts(&target.address(), "t"), [0, 0, 1, 0]);
    for name in ["one", "other"] {
        assert_eq!(import(name, "").ends_with(0).out, "put 1 job of 1\n");
    }
    assert_eq!(counts(&target.address(), "t"), [2, 0, 0, 0]);
}

#[test]
fn a_wrong_line_is_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let target = Fake::start();
    let line = "{\"tube\":\"t\",\"body\":\"x\"}\n";
    for (contents, what) in [
        (line.trim_end().to_owned(), "line 1: it has no line end; an export that wrote it was interrupted"),
        (format!("{line}\n"), "line 2: it is empty"),
    ] {
        fs::write(&file, contents).unwrap();
        let refused = ctl(&target.address(), &["import", text(&file)]).ends_with(5);
        assert!(refused.err.contains(what), "{refused:?}");
    }
}
