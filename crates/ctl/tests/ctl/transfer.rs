//! `export` and `import`: no job is lost or put twice, wherever they are interrupted.

use super::support::{client, command, counts, ctl, everywhere, name, put, put_buried, text};
use beanstalkd_testkit::fake::{Fake, FakeOptions, Fault, at_each_command, at_each_command_after};
use beanstalkd_testkit::installed;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BODIES: [&[u8]; 3] = [b"ready \xff", b"later", b"buried\n"];

/// Puts a job of each state.
pub fn fill(address: &str) {
    let mut client = client(address);
    put(&mut client, "t", BODIES[0], 0);
    put(&mut client, "t", BODIES[1], 3_600);
    put_buried(&mut client, "t", BODIES[2]);
}

/// The bodies of all jobs of `t`, with their states and priorities.
pub fn jobs(address: &str) -> Vec<(Vec<u8>, String, u64)> {
    let listed = ctl(address, &["jobs", "t", "--json"]);
    let mut client = client(address);
    let mut jobs: Vec<_> = listed
        .json()
        .iter()
        .map(|job| {
            let body = client.peek(job["id"].as_u64().unwrap()).unwrap().body;
            (body, job["state"].as_str().unwrap().to_owned(), job["priority"].as_u64().unwrap())
        })
        .collect();
    jobs.sort();
    jobs
}

pub fn expected() -> Vec<(Vec<u8>, String, u64)> {
    let mut jobs: Vec<_> = BODIES
        .iter()
        .zip([("ready", 1024), ("delayed", 1024), ("buried", 7)])
        .map(|(body, (state, pri))| (body.to_vec(), state.to_owned(), pri))
        .collect();
    jobs.sort();
    jobs
}

#[test]
fn jobs_are_transferred_once_between_servers_of_every_kind() {
    let directory = tempfile::tempdir().unwrap();
    let (sources, targets) = (everywhere(), everywhere());
    for (number, source) in sources.iter().enumerate() {
        fill(&source.address());
        let file = directory.path().join(format!("{number}.jsonl"));
        ctl(&source.address(), &["export", "t", "--output", text(&file)]).ends_with(0);
        assert_eq!(jobs(&source.address()), expected(), "the source has not changed");
        for (place, target) in targets.iter().enumerate() {
            let journal = directory.path().join(format!("{number}.{place}"));
            let import = ["import", text(&file), "--journal", text(&journal), "--json"];
            assert_eq!(ctl(&target.address(), &import).ends_with(0).json()[0]["done"], 3);
            assert_eq!(jobs(&target.address()), expected());
            assert_eq!(ctl(&target.address(), &import).ends_with(0).json()[0]["done"], 0);
            assert_eq!(jobs(&target.address()), expected());
            ctl(&target.address(), &["flush", "t", "--yes"]).ends_with(0);
        }
    }
}

#[test]
fn an_import_that_is_interrupted_anywhere_can_be_continued() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    fill(&source.address());
    let file = directory.path().join("jobs");
    ctl(&source.address(), &["export", "t", "--output", text(&file)]).ends_with(0);
    for fault in Fault::CLOSINGS {
        at_each_command(fault, 12, |target, at| {
            let journal = directory.path().join(format!("{fault:?}{at}"));
            let import = ["import", text(&file), "--journal", text(&journal)];
            let first = ctl(&target.address(), &import);
            let broken = target.disarm();
            assert_eq!(first.code, if broken { 3 } else { 0 }, "{first:?}");
            ctl(&target.address(), &import).ends_with(0);
            assert_eq!(jobs(&target.address()), expected(), "{fault:?}, at command {at}");
        });
    }
}

#[test]
fn a_job_that_was_finished_after_an_interrupted_import_is_not_put_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"once\"}\n").unwrap();
    at_each_command(Fault::CloseAfter, 5, |target, at| {
        let journal = directory.path().join(format!("{at}"));
        let import = ["import", text(&file), "--journal", text(&journal)];
        let first = ctl(&target.address(), &import);
        if !target.disarm() {
            assert_eq!(first.code, 0, "{first:?}");
            return;
        }
        let mut worker = client(&target.address());
        worker.watch(&name("t")).unwrap();
        let mut worked = 0;
        for _ in 0..2 {
            while let Ok(job) = worker.reserve_with_timeout(0) {
                worker.delete(job.id).unwrap();
                worked += 1;
            }
            ctl(&target.address(), &import);
        }
        while let Ok(job) = worker.reserve_with_timeout(0) {
            worker.delete(job.id).unwrap();
            worked += 1;
        }
        assert_eq!((worked, counts(&target.address(), "t")), (1, [0; 4]), "at command {at}");
    });
}

#[test]
fn a_draining_export_that_is_interrupted_anywhere_has_each_job_once_in_the_end() {
    for fault in Fault::CLOSINGS {
        at_each_command_after(fill, fault, 8, |source, at| {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("jobs");
            // An earlier run was interrupted while it wrote the states of the jobs, before it changed one.
            fs::write(directory.path().join("jobs.taking"), "{\"id\":1,\"sta").unwrap();
            let export = ["export", "t", "--drain", "--yes", "--output", text(&file)];
            let first = ctl(&source.address(), &export);
            let broken = source.disarm();
            assert_eq!(first.code, if broken { 3 } else { 0 }, "{first:?}");
            if broken {
                // A power loss can leave an incomplete line.
                if let Ok(mut bytes) = fs::read(&file) {
                    bytes.extend_from_slice(b"{\"id\":");
                    fs::write(&file, bytes).unwrap();
                }
                let second = ctl(&source.address(), &export);
                assert!([0, 1].contains(&second.code), "{second:?}");
            }
            assert_eq!(counts(&source.address(), "t"), [0; 4], "{fault:?}, at {at}");
            let target = Fake::start();
            if broken {
                // If the second run had nothing to do, the incomplete line is still there.
                let bytes = fs::read(&file).unwrap();
                let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
                fs::write(&file, &bytes[..end]).unwrap();
            }
            ctl(&target.address(), &["import", text(&file)]).ends_with(0);
            assert_eq!(jobs(&target.address()), expected(), "{fault:?}, at {at}");
        });
    }
}

#[test]
fn a_draining_export_moves_the_jobs_of_every_server_to_the_file() {
    for server in everywhere() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs");
        let address = server.address();
        fill(&address);
        ctl(&address, &["export", "t", "--drain", "--output", text(&file)]).ends_with(2);
        ctl(&address, &["export", "t", "--drain", "--yes"]).ends_with(2);
        ctl(&address, &["export", "t", "--drain", "--yes", "--output", text(&file)]).ends_with(0);
        assert_eq!(counts(&address, "t"), [0; 4]);
        ctl(&address, &["import", text(&file)]).ends_with(0);
        assert_eq!(jobs(&address), expected());
    }
}

#[test]
fn tags_are_transferred_to_servers_that_support_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    for tags in [&["--tag", "idp:k", "--tag", "grp:g"][..], &["--tag", "aft:g"]] {
        ctl(&source.address(), &[&["put", "t", "x"], tags].concat()).ends_with(0);
    }
    ctl(&source.address(), &["export", "--output", text(&file)]).ends_with(0);
    for target in everywhere() {
        let journal = directory.path().join(target.address().replace('/', "_"));
        let import = ["import", text(&file), "--journal", text(&journal)];
        if !target.has_extensions() {
            ctl(&target.address(), &import).ends_with(4);
            assert_eq!(counts(&target.address(), "t"), [0; 4]);
            ctl(&target.address(), &[&import[..], &["--drop-tags"]].concat()).ends_with(0);
            assert_eq!(counts(&target.address(), "t"), [2, 0, 0, 0]);
            continue;
        }
        ctl(&target.address(), &import).ends_with(0);
        assert_eq!(counts(&target.address(), "t"), [1, 0, 1, 0]);
        let listed = ctl(&target.address(), &["jobs", "t", "--json"]).ends_with(0).json();
        assert_eq!(listed[0]["tags"], serde_json::json!(["idp:k", "grp:g"]));
        assert_eq!((&listed[1]["held"], &listed[1]["tags"][1]), (&true.into(), &"aft:g".into()));
    }
}

#[test]
fn a_journal_belongs_to_its_file_and_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let (one, other) = (Fake::start(), Fake::start());
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"a\"}\n").unwrap();
    ctl(&one.address(), &["import", text(&file)]).ends_with(0);
    ctl(&other.address(), &["import", text(&file)]).ends_with(2);
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"b\"}\n").unwrap();
    ctl(&one.address(), &["import", text(&file)]).ends_with(2);
    // Lines may be added to the file.
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"a\"}\n{\"tube\":\"t\",\"body\":\"b\"}\n").unwrap();
    ctl(&one.address(), &["import", text(&file)]).ends_with(0);
    assert_eq!((counts(&one.address(), "t"), counts(&other.address(), "t")), ([2, 0, 0, 0], [0; 4]));
}

#[test]
fn nothing_is_put_from_a_malformed_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let target = Fake::start();
    for content in ["{\"tube\":\"t\",\"body\":\"a\"}\nnonsense\n", "{\"tube\":\"t\",\"body\":\"a\"}", "{}\n"]
    {
        fs::write(&file, content).unwrap();
        ctl(&target.address(), &["import", text(&file)]).ends_with(5);
    }
    fs::write(&file, "").unwrap();
    ctl(&target.address(), &["import", text(&file)]).ends_with(1);
    ctl(&target.address(), &["import", "/nonexistent"]).ends_with(5);
    assert_eq!(counts(&target.address(), "t"), [0; 4]);
}

#[test]
fn an_export_without_jobs_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    let source = Fake::start();
    ctl(&source.address(), &["export", "t", "--output", text(&file)]).ends_with(1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Runs `mkfifo` and returns its path.
pub fn fifo(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn an_export_writes_into_what_is_no_regular_file_and_never_replaces_it() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    fill(&source.address());
    let export = |path: &Path| ctl(&source.address(), &["export", "t", "--output", text(path)]);

    let pipe = fifo(directory.path());
    let (sent, received) = std::sync::mpsc::channel();
    let reader = pipe.clone();
    std::thread::spawn(move || sent.send(fs::read_to_string(reader).unwrap()));
    export(&pipe).ends_with(0);
    let lines = received.recv_timeout(Duration::from_secs(30)).expect("the FIFO got the export");
    assert_eq!(lines.lines().count(), 3);
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());

    // A link to a device stays, and so does a link to a file, which gets the export.
    for (name, to) in [("device", Path::new("/dev/null")), ("link", &directory.path().join("file"))] {
        let link = directory.path().join(name);
        fs::write(directory.path().join("file"), "before\n").unwrap();
        std::os::unix::fs::symlink(to, &link).unwrap();
        export(&link).ends_with(0);
        assert_eq!(fs::read_link(&link).unwrap(), to);
    }
    assert_eq!(fs::read_to_string(directory.path().join("file")).unwrap().lines().count(), 3);
    let dangling = directory.path().join("dangling");
    std::os::unix::fs::symlink("/nonexistent/file", &dangling).unwrap();
    export(&dangling).ends_with(5);
    export(directory.path()).ends_with(5);

    // Jobs are deleted only when a regular file has them.
    for path in [&directory.path().join("device"), &pipe, &dangling, directory.path()] {
        ctl(&source.address(), &["export", "t", "--drain", "--yes", "--output", text(path)]).ends_with(5);
    }
    assert_eq!(jobs(&source.address()), expected());
    let left = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["dangling", "device", "fifo", "file", "link"]);
}

#[test]
fn an_export_to_a_name_of_standard_output_is_appended_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    fill(&source.address());
    let file = directory.path().join("jobs");
    fs::write(&file, "before\n").unwrap();
    // As /dev/stdout is. That link itself would be replaced if this test failed as root.
    let links = tempfile::tempdir().unwrap();
    let stdout = links.path().join("stdout");
    std::os::unix::fs::symlink("/proc/self/fd/1", &stdout).unwrap();
    for path in [text(&stdout), "/dev/fd/1", "/proc/self/fd/1", "-"] {
        let out = fs::File::options().append(true).open(&file).unwrap();
        let mut export = command(&source.address(), &["export", "t", "--output", path]);
        assert!(export.stdout(out).status().unwrap().success(), "{path}");
        let lines = fs::read_to_string(&file).unwrap();
        assert_eq!((lines.lines().next(), lines.lines().count()), (Some("before"), 4), "{path}");
        fs::write(&file, "before\n").unwrap();
        let piped = ctl(&source.address(), &["export", "t", "--output", path]).ends_with(0);
        assert_eq!(piped.out.lines().count(), 3, "{path}: {piped:?}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_drain_wrote_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    let file = directory.path().join("jobs");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let export = ["export", "t", "--output", text(&file)];
    fill(&source.address());
    // Two exports of copies: the second replaces the first.
    ctl(&source.address(), &export).ends_with(0);
    ctl(&source.address(), &export).ends_with(0);
    fs::remove_file(&file).unwrap();
    ctl(&source.address(), &[&export[..], &["--drain", "--yes"]].concat()).ends_with(0);
    let drained = fs::read(&file).unwrap();
    put(&mut client(&source.address()), "t", b"new", 0);
    let refused = ctl(&source.address(), &export).ends_with(5);
    assert!(refused.err.contains("--force") && refused.err.contains("--drain"), "{refused:?}");
    ctl(&source.address(), &["export", "t", "--output", text(&link)]).ends_with(5);
    assert_eq!(fs::read(&file).unwrap(), drained);
    ctl(&source.address(), &[&export[..], &["--force"]].concat()).ends_with(0);
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1);
    // A drain that is not complete yet may have written nothing, and its jobs are buried.
    fs::write(directory.path().join("jobs.taking"), "").unwrap();
    ctl(&source.address(), &export).ends_with(5);
}

#[test]
fn a_drain_does_not_add_to_a_copy_in_which_its_jobs_have_other_states() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    let file = directory.path().join("jobs");
    let export = ["export", "t", "--output", text(&file)];
    put(&mut client(&source.address()), "t", b"x", 0);
    ctl(&source.address(), &export).ends_with(0);
    let copy = fs::read(&file).unwrap();
    ctl(&source.address(), &["release", "1", "--delay", "1h"]).ends_with(0);
    let refused = ctl(&source.address(), &[&export[..], &["--drain", "--yes"]].concat()).ends_with(5);
    assert!(refused.err.contains("line 1: an export without --drain wrote it"), "{refused:?}");
    assert_eq!((fs::read(&file).unwrap(), counts(&source.address(), "t")), (copy, [0, 0, 1, 0]));
}

#[test]
fn a_draining_export_does_not_cut_off_the_end_of_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    fill(&source.address());
    let file = directory.path().join("notes");
    for content in ["a line without an end", "{\"tube\":\"t\",\"body\":\"x\"}\nnotes"] {
        fs::write(&file, content).unwrap();
        ctl(&source.address(), &["export", "t", "--drain", "--yes", "--output", text(&file)]).ends_with(5);
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
    assert_eq!(jobs(&source.address()), expected());
}

#[test]
fn only_one_draining_export_writes_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let source = Fake::start();
    fill(&source.address());
    let file = directory.path().join("jobs");
    let other = fs::File::create(&file).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let export = ["export", "t", "--drain", "--yes", "--output", text(&file)];
    let refused = ctl(&source.address(), &export).ends_with(5);
    assert!(refused.err.contains("another"), "{refused:?}");
    assert_eq!(jobs(&source.address()), expected());
    rustix::fs::flock(&other, rustix::fs::FlockOperation::Unlock).unwrap();
    ctl(&source.address(), &export).ends_with(0);
}

/// The states and tags of the jobs of `t`, by body.
pub fn states_and_tags(address: &str) -> Vec<(Vec<u8>, String, serde_json::Value)> {
    let listed = ctl(address, &["jobs", "t", "--json"]).json();
    let mut client = client(address);
    let mut jobs: Vec<_> = listed
        .iter()
        .map(|job| {
            let body = client.peek(job["id"].as_u64().unwrap()).unwrap().body;
            let state = if job["held"] == true { "held" } else { job["state"].as_str().unwrap() };
            (body, state.to_owned(), job["tags"].clone())
        })
        .collect();
    jobs.sort_by(|one, other| one.0.cmp(&other.0));
    jobs
}

fn with_extensions() -> impl Iterator<Item = super::support::Any> {
    everywhere().into_iter().filter(super::support::Any::has_extensions)
}

#[test]
fn states_and_tags_come_back_together() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    // A group that still has members when the buried job comes back.
    let line = |body: &str, state: &str, delay: u32, tag: &str| {
        format!(
            "{{\"tube\":\"t\",\"body\":\"{body}\",\"state\":\"{state}\",\"delay\":{delay},\"tags\":[\"{tag}\"]}}\n"
        )
    };
    let lines = [
        line("1", "ready", 0, "grp:g"),
        line("2", "buried", 0, "aft:g"),
        line("3", "delayed", 0, "aft:g"),
        line("4", "ready", 0, "exp:1000"),
        line("5", "delayed", 500, "exp:1000"),
        line("6", "buried", 0, "grp:h"),
    ];
    fs::write(&file, lines.concat()).unwrap();
    for target in with_extensions() {
        let journal = directory.path().join(target.address().replace('/', "_"));
        for _ in 0..2 {
            ctl(&target.address(), &["import", text(&file), "--journal", text(&journal)]).ends_with(0);
            let jobs = states_and_tags(&target.address());
            let found = |at: usize| (jobs[at].1.as_str(), jobs[at].2[0].as_str().unwrap_or_default());
            assert_eq!(jobs.len(), 6, "{jobs:?}");
            assert_eq!([found(0), found(5)], [("ready", "grp:g"), ("buried", "grp:h")]);
            assert_eq!([found(1).0, found(2).0], ["buried", "held"]);
            let expiries = [&jobs[3], &jobs[4]].map(|job| {
                let tags = job.2.as_array().unwrap().iter().map(|tag| tag.as_str().unwrap());
                (job.1.as_str(), tags.filter(|tag| tag.starts_with("exp:")).count())
            });
            assert_eq!(expiries, [("ready", 1), ("delayed", 1)], "{jobs:?}");
        }
    }
}

#[test]
fn a_drain_that_was_continued_keeps_all_tags() {
    // Interrupted after each command of the first batch: some of its jobs were reserved or buried by then.
    let set_up = |address: &str| {
        for tags in [&["--tag", "exp:1000", "--tag", "idp:k:60"][..], &["--tag", "grp:g", "--tag", "exp:900"]]
        {
            let mut client = client(address);
            client.use_tube(&name("t")).unwrap();
            let tags = tags.iter().skip(1).step_by(2).map(|tag| tag.parse().unwrap()).collect();
            client.put(b"x", &beanstalk_client::PutOptions { tags, ..Default::default() }).unwrap();
        }
    };
    at_each_command_after(set_up, Fault::CloseAfter, 6, |source, at| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs");
        let export = ["export", "t", "--drain", "--yes", "--output", text(&file)];
        ctl(&source.address(), &export);
        source.disarm();
        ctl(&source.address(), &export);
        let lines = fs::read_to_string(&file).unwrap();
        assert_eq!(lines.lines().count(), 2, "at {at}: {lines}");
        // The jobs are 100 s old.
        for tags in [r#""tags":["idp:k:60","exp:900"]"#, r#""tags":["grp:g","exp:800"]"#] {
            assert!(lines.contains(tags), "at {at}: {lines}");
        }
    });
}

#[test]
fn an_import_leaves_no_probe_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs");
    fs::write(&file, "{\"tube\":\"t\",\"body\":\"a\"}\n").unwrap();
    for without in [vec![], vec!["list-jobs"]] {
        let target = Fake::start_with(FakeOptions { without, ..FakeOptions::default() });
        ctl(&target.address(), &["import", text(&file), "--journal", text(&directory.path().join("j"))])
            .ends_with(0);
        assert!(!target.take_log().iter().any(|line| line.contains("probe")));
        fs::remove_file(directory.path().join("j")).unwrap();
    }
}

#[test]
fn a_probe_that_was_left_behind_goes_with_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = installed::debians(&["-b", text(directory.path())]) else { return };
    let mut before = client(&server.address());
    put(&mut before, "t", b"x", 0);
    put(&mut before, "beanstalkctl-probe", b"", 3_600);
    put(&mut before, "beanstalkctl-probe", b"", 0);
    ctl(&server.address(), &["jobs", "t"]).ends_with(0);
    assert_eq!(counts(&server.address(), "beanstalkctl-probe"), [0; 4]);
}

#[test]
fn an_export_goes_through_a_pipe_into_an_import() {
    let source = Fake::start();
    fill(&source.address());
    let exported = ctl(&source.address(), &["export", "t", "-o", "-"]).ends_with(0).out;
    for target in everywhere() {
        let directory = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| {
            let mut import = command(&target.address(), &[&["import", "-"], arguments].concat());
            let mut import = import.env("TMPDIR", directory.path()).spawn().unwrap();
            import.stdin.take().unwrap().write_all(exported.as_bytes()).unwrap();
            import.wait_with_output().unwrap()
        };
        let imported = run(&[]);
        assert!(imported.status.success(), "{imported:?}");
        assert_eq!(jobs(&target.address()), expected());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left in the directory");
        // With a journal, the same input is put once.
        let journal = directory.path().join("journal");
        for _ in 0..2 {
            assert!(run(&["--journal", text(&journal)]).status.success());
        }
        assert_eq!(counts(&target.address(), "t").iter().sum::<u64>(), 6);
    }
    // If it does not succeed, the journal stays, and its name is printed.
    let directory = tempfile::tempdir().unwrap();
    let target = Fake::start();
    ctl(&target.address(), &["drain"]).ends_with(0);
    let mut import = command(&target.address(), &["import", "-"]);
    let mut import = import.env("TMPDIR", directory.path()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(exported.as_bytes()).unwrap();
    let refused = import.wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(4));
    let journal = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&format!("--journal {}", text(&journal))));
}
