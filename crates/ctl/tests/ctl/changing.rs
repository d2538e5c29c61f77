//! The commands that change jobs and tubes, on one and on many: delete, kick, bury, release, move, reprioritize, pause,
//! resume, flush, drain.

use super::support::{
    Any, between, client, command, counts, ctl, ctl_with, everywhere, interrupt, name, put, put_buried,
};
use super::terminal::Terminal;
use beanstalk_client::{JobState, PutOptions};
use beanstalkd_testkit::fake::{Fake, FakeOptions};
use beanstalkd_testkit::installed;
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn jobs_are_changed_by_id() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        let id = put(&mut client, "t", b"x", 0).to_string();
        ctl(&address, &["bury", &id]).ends_with(0);
        assert_eq!(counts(&address, "t"), [0, 0, 0, 1]);
        ctl(&address, &["kick", &id]).ends_with(0);
        assert_eq!(counts(&address, "t"), [1, 0, 0, 0]);
        ctl(&address, &["release", &id, "--delay", "1h", "--priority", "9"]).ends_with(0);
        assert_eq!(counts(&address, "t"), [0, 0, 1, 0]);
        ctl(&address, &["reprioritize", &id, "--priority", "4"]).ends_with(0);
        let info = client.stats_job(id.parse().unwrap()).unwrap();
        assert_eq!((info.pri, info.state), (4, JobState::Delayed));
        assert!(info.time_left > 3_500, "the delay stays: {info:?}");
        let deleted = ctl(&address, &["delete", &id, "999999", "--json"]).ends_with(1);
        assert_eq!(deleted.json()[0]["done"], 1);
        assert_eq!(counts(&address, "t"), [0; 4]);
    }
}

#[test]
fn many_are_chosen_by_state_body_and_tube() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        for body in [&b"keep 1"[..], b"drop 2", b"drop 3"] {
            put(&mut client, "mail-a", body, 0);
            put_buried(&mut client, "mail-b", body);
            put(&mut client, "other", body, 0);
        }
        let choose = ["--tube", "mail-*", "--body-matches", "^drop"];
        let dry = ctl(&address, &[&["delete", "--dry-run"], &choose[..]].concat()).ends_with(0);
        assert!(dry.err.contains("4 jobs (2 ready, 2 buried) of 2 tubes"), "{dry:?}");
        // Standard input is not a terminal, so the program cannot ask.
        ctl(&address, &[&["delete"], &choose[..]].concat()).ends_with(2);
        assert_eq!((counts(&address, "mail-a"), counts(&address, "mail-b")), ([3, 0, 0, 0], [0, 0, 0, 3]));
        ctl(&address, &[&["delete", "--yes", "--state", "buried"], &choose[..]].concat()).ends_with(0);
        ctl(&address, &["kick", "--state", "buried", "--tube", "mail-b", "--yes"]).ends_with(0);
        assert_eq!((counts(&address, "mail-a"), counts(&address, "mail-b")), ([3, 0, 0, 0], [1, 0, 0, 0]));
        assert_eq!(counts(&address, "other"), [3, 0, 0, 0]);
        ctl(&address, &["delete", "--tube", "other"]).ends_with(2);
        ctl(&address, &["delete", "--tube", "nothing", "--all", "--yes"]).ends_with(1);
        ctl(&address, &["delete", "5", "--all"]).ends_with(2);
    }
}

#[test]
fn reserved_jobs_are_not_changed() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        let reserved = put(&mut client, "t", b"reserved", 0);
        put(&mut client, "t", b"free", 0);
        client.reserve_job(reserved).unwrap();
        ctl(&address, &["delete", &reserved.to_string()]).ends_with(4);
        ctl(&address, &["delete", "--tube", "t", "--all", "--yes"]).ends_with(0);
        assert_eq!(counts(&address, "t"), [0, 1, 0, 0]);
        client.delete(reserved).unwrap();
    }
}

#[test]
fn jobs_that_stay_unchanged_are_counted() {
    let fake = Fake::start();
    let (address, mut client) = (fake.address(), client(&fake.address()));
    let reserved = put(&mut client, "t", b"reserved", 0);
    client.reserve_job(reserved).unwrap();
    let reserved = reserved.to_string();
    let free = put(&mut client, "t", b"free", 0).to_string();
    let deleted = ctl(&address, &["delete", &reserved, &free]).ends_with(4);
    assert_eq!(deleted.out, "deleted 1 job; left out 1 reserved\n");
    assert!(deleted.err.contains("1 reserved cannot be deleted"), "{deleted:?}");
    let none = ctl(&address, &["delete", &reserved, "999999"]).ends_with(4);
    assert!(none.err.contains("there is no job 999999; 1 reserved cannot be deleted"), "{none:?}");
    let all = ["delete", "--tube", "t", "--all", "--yes", "--json"];
    for (arguments, expected) in
        [(&all[..5], "deleted 1 job; left out 1 reserved\n"), (&all, "\"refused\":0,\"left_out\":1}\n")]
    {
        put(&mut client, "t", b"free", 0);
        let deleted = ctl(&address, arguments).ends_with(0);
        assert!(deleted.out.ends_with(expected), "{deleted:?}");
    }
}

#[test]
fn a_moved_job_keeps_its_state_and_priority() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        put(&mut client, "from", b"ready", 0);
        put(&mut client, "from", b"later", 3_600);
        put_buried(&mut client, "from", b"buried");
        ctl(&address, &["move", "--tube", "from", "--all", "--to", "to", "--yes"]).ends_with(0);
        assert_eq!((counts(&address, "from"), counts(&address, "to")), ([0; 4], [1, 0, 1, 1]));
        let jobs = ctl(&address, &["jobs", "to", "--json"]).ends_with(0).json();
        let buried = jobs.iter().find(|job| job["state"] == "buried").unwrap();
        assert_eq!((&buried["priority"], &buried["ttr"]), (&7.into(), &60.into()));
        let delayed = jobs.iter().find(|job| job["state"] == "delayed").unwrap();
        assert!(delayed["time_left"].as_u64() > Some(3_500));
    }
}

#[test]
fn a_move_keeps_the_order_of_jobs() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        for number in 0..120 {
            put(&mut client, "from", format!("{number}").as_bytes(), 0);
        }
        ctl(&address, &["move", "--tube", "from", "--all", "--to", "to", "--yes"]).ends_with(0);
        client.watch(&name("to")).unwrap();
        for number in 0..120 {
            let job = client.reserve_with_timeout(0).unwrap();
            assert_eq!(String::from_utf8(job.body).unwrap(), number.to_string());
        }
    }
}

#[test]
fn a_move_that_is_refused_changes_nothing() {
    let fake = Fake::start_with(FakeOptions { without: vec!["move"], ..FakeOptions::default() });
    let mut client = client(&fake.address());
    put(&mut client, "from", b"ready", 0);
    put_buried(&mut client, "from", b"buried");
    ctl(&fake.address(), &["drain"]).ends_with(0);
    ctl(&fake.address(), &["move", "--tube", "from", "--all", "--to", "to", "--yes"]).ends_with(4);
    assert_eq!((counts(&fake.address(), "from"), counts(&fake.address(), "to")), ([1, 0, 0, 1], [0; 4]));
}

#[test]
fn a_job_whose_copy_cannot_be_buried_stays() {
    let fake = Fake::start_with(FakeOptions { without: vec!["move"], ..FakeOptions::default() });
    let mut client = client(&fake.address());
    client.use_tube(&name("from")).unwrap();
    // While the job is reserved for the move, its key has no free slot for the copy.
    let tags = vec!["con:k:1".parse().unwrap()];
    let id = client.put(b"x", &PutOptions { tags, ..PutOptions::default() }).unwrap().id;
    client.reserve_job(id).unwrap();
    client.bury(id, 7).unwrap();
    ctl(&fake.address(), &["move", "--tube", "from", "--all", "--to", "to", "--yes"]).ends_with(4);
    assert_eq!((counts(&fake.address(), "from"), counts(&fake.address(), "to")), ([0, 0, 0, 1], [0; 4]));
}

#[test]
fn jobs_that_cannot_be_changed_are_reported_with_the_reason() {
    for server in everywhere().into_iter().filter(Any::has_extensions) {
        let (address, mut client) = (server.address(), server.client());
        client.use_tube(&name("t")).unwrap();
        let mut put = |tag: &str| {
            let tags = vec![tag.parse().unwrap()];
            client.put(b"x", &PutOptions { tags, ..PutOptions::default() }).unwrap().id
        };
        let (holder, blocked) = (put("con:k:1"), put("con:k:1"));
        let (_, held) = (put("grp:g"), put("aft:g"));
        client.reserve_job(holder).unwrap();
        for change in ["kick", "bury", "release"] {
            let refused = ctl(&address, &[change, &held.to_string()]).ends_with(4);
            assert!(refused.err.contains("1 waiting for a group cannot be"), "{refused:?}");
        }
        for change in ["bury", "release"] {
            let refused = ctl(&address, &[change, &blocked.to_string()]).ends_with(4);
            assert!(refused.out.contains("allows no more reserved jobs"), "{refused:?}");
            assert!(!refused.out.contains("meanwhile"), "{refused:?}");
        }
        let asked = ctl(&address, &["release", "--tube", "t", "--all"]).ends_with(2);
        assert!(asked.err.contains("leave out 1 reserved, 1 waiting for a group"), "{asked:?}");
    }
}

#[test]
fn the_reason_is_that_of_a_refused_reserve() {
    let bury = |options| {
        let fake = Fake::start_with(options);
        client(&fake.address()).put(b"x", &PutOptions::default()).unwrap();
        let before = fake.count();
        fake.take_log();
        let buried = ctl(&fake.address(), &["bury", "1"]);
        (before, fake.take_log(), buried)
    };
    let (before, log, _) = bury(FakeOptions::default());
    let at = log.iter().position(|line| line == "reserve-job 1").unwrap();
    let refused = bury(FakeOptions { refuse_at: before + at + 1, ..FakeOptions::default() }).2.ends_with(4);
    assert!(refused.out.contains("OUT_OF_MEMORY") && !refused.out.contains("allows no more"), "{refused:?}");
}

#[test]
fn tubes_are_flushed() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        for _ in 0..450 {
            put(&mut client, "t", b"x", 0);
        }
        for _ in 0..3 {
            put(&mut client, "t", b"x", 60);
            put_buried(&mut client, "t", b"x");
        }
        let reserved = put(&mut client, "t", b"reserved", 0);
        client.reserve_job(reserved).unwrap();
        put(&mut client, "other", b"x", 0);
        ctl(&address, &["flush", "t"]).ends_with(2);
        let buried = ctl(&address, &["flush", "t", "--buried", "--yes", "--json"]).ends_with(0);
        assert_eq!((buried.json()[0]["done"].as_u64(), counts(&address, "t")), (Some(3), [450, 1, 3, 0]));
        client.pause_tube(&name("t"), 60).unwrap();
        let flushed = ctl(&address, &["flush", "t", "--yes"]);
        // C has no command that deletes a job that another client has reserved. The exit code says so.
        let expected = if server.has_extensions() { (0, [0; 4]) } else { (4, [0, 1, 0, 0]) };
        assert_eq!((flushed.code, counts(&address, "t")), expected);
        assert_eq!(counts(&address, "other"), [1, 0, 0, 0]);
        ctl(&address, &["flush", "nothing", "--yes"]).ends_with(1);
    }
}

#[test]
fn tubes_are_paused_and_resumed() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        put(&mut client, "a-1", b"x", 0);
        put(&mut client, "a-2", b"x", 0);
        let pause = |client: &mut beanstalk_client::Client, tube| {
            client.stats_tube(&name(tube)).unwrap().number_or_zero("pause")
        };
        ctl(&address, &["pause", "a-1", "--for", "10m"]).ends_with(0);
        assert_eq!((pause(&mut client, "a-1"), pause(&mut client, "a-2")), (600, 0));
        ctl(&address, &["pause", "a-*"]).ends_with(2);
        ctl(&address, &["pause", "a-*", "--yes"]).ends_with(0);
        assert_eq!(pause(&mut client, "a-2"), 3600);
        ctl(&address, &["resume", "a-1", "a-2"]).ends_with(0);
        assert_eq!((pause(&mut client, "a-1"), pause(&mut client, "a-2")), (0, 0));
        ctl(&address, &["pause", "nothing"]).ends_with(1);
        let partly = ctl(&address, &["pause", "a-1", "100"]);
        assert_eq!(partly.code, 0, "{partly:?}");
        assert!(partly.err.contains("no tube matches 100"), "a time that was taken for a tube: {partly:?}");
    }
}

/// A fraction is never lost: on a server that does not know them, it makes a whole second more.
#[test]
fn times_have_fractions_of_a_second() {
    for server in everywhere() {
        let (address, mut client) = (server.address(), server.client());
        let stats = client.stats().unwrap();
        let has_fractions = stats.get("extensions").is_some_and(|words| words.contains("fractions"));
        let expected = |whole: u64| whole + u64::from(!has_fractions);
        let assert_reported = |ended: super::support::Ended| {
            let ended = ended.ends_with(0);
            assert_eq!(ended.err.contains("whole seconds only"), !has_fractions, "{ended:?}");
        };
        let put = ctl(&address, &["put", "t", "x", "--delay", "900.5", "--ttr", "60s 250ms"]);
        let id: u64 = put.out.trim().parse().unwrap();
        assert_reported(put);
        let info = client.stats_job(id).unwrap();
        assert_eq!((info.delay, info.ttr), (expected(900), expected(60)), "{info:?}");
        assert_reported(ctl(&address, &["release", &id.to_string(), "--delay", "500.001"]));
        assert_eq!(client.stats_job(id).unwrap().delay, expected(500));
        assert_reported(ctl(&address, &["pause", "t", "--for", "600500ms"]));
        assert_eq!(client.stats_tube(&name("t")).unwrap().number_or_zero("pause"), expected(600));
        ctl(&address, &["resume", "t"]).ends_with(0);
        assert_reported(ctl(&address, &["pause", "t", "--for", "500ms", "--json"]));
        let stats = client.stats_tube(&name("t")).unwrap();
        assert_eq!(stats.number_or_zero("cmd-pause-tube"), 3, "{stats:?}");
        // No job comes in time.
        ctl(&address, &["reserve", "u", "--wait", "50ms"]).ends_with(1);
        for refused in [
            &["delete", "--all", "--older-than", "500ms", "--yes"][..],
            &["work", "t", "--delay", "0.9", "--", "true"],
            &["put", "t", "x", "--delay", "0.1234"],
        ] {
            assert!(ctl(&address, refused).ends_with(2).err.contains("expected"), "{refused:?}");
        }
    }
}

#[test]
fn drain_mode_is_set_if_the_server_has_the_command() {
    for server in everywhere() {
        let drained = ctl(&server.address(), &["drain"]);
        if server.has_extensions() {
            drained.ends_with(0);
            ctl(&server.address(), &["put", "t", "x"]).ends_with(4);
            ctl(&server.address(), &["undrain"]).ends_with(0);
            ctl(&server.address(), &["put", "t", "x"]).ends_with(0);
        } else {
            assert_eq!(drained.code, 4);
            assert!(drained.err.contains("kill -USR1"), "{drained:?}");
            put(&mut server.client(), "t", b"x", 0);
        }
    }
}

#[test]
fn clients_are_listed_and_killed_where_the_server_knows_them() {
    for server in everywhere().into_iter().filter(|server| !server.has_extensions()) {
        ctl(&server.address(), &["clients"]).ends_with(4);
        ctl(&server.address(), &["kill-client", "1", "--yes"]).ends_with(4);
    }
    let Some(server) = installed::ours(&[]) else { return };
    let address = server.address();
    let mut worker = client(&address);
    let id =
        worker.dictionary(beanstalk_client::Command::Stats).unwrap().number("client-id").unwrap().to_string();
    let listed = ctl(&address, &["clients"]).ends_with(0).out;
    let line = listed.lines().find(|line| line.trim_start().starts_with(&format!("{id} ")));
    assert!(line.is_some_and(|line| line.contains("ready") && line.contains("default")), "{listed}");
    let json = ctl(&address, &["clients", "--json"]).ends_with(0).json();
    assert!(json.iter().any(|client| client["id"] == *id), "{json:?}");
    worker.use_tube(&name("123")).unwrap();
    let json = ctl(&address, &["clients", "--json"]).ends_with(0).json();
    assert!(json.iter().any(|client| client["id"] == *id && client["using"] == "123"), "{json:?}");
    ctl(&address, &["kill-client", &id]).ends_with(2);
    ctl(&address, &["kill-client", &id, "--dry-run"]).ends_with(0);
    ctl(&address, &["kill-client", &id, &id, "--yes"]).ends_with(0);
    assert!(worker.list_tubes().is_err(), "its connection is closed");
    ctl(&address, &["kill-client", &id, "--yes"]).ends_with(1);
    // After the stats and the first client, the second one is refused.
    let fake = Fake::start_with(FakeOptions { refuse_at: 3, ..FakeOptions::default() });
    let refused = ctl(&fake.address(), &["kill-client", "1", "2", "--yes", "--json"]).ends_with(4).json();
    assert_eq!((&refused[0]["done"], &refused[0]["gone"]), (&0.into(), &1.into()));
}

#[test]
fn the_end_of_jobs_is_waited_for() {
    for server in everywhere().into_iter().filter(Any::lets_time_pass) {
        let address = server.address();
        let mut worker = server.client();
        let mut ready = || put(&mut worker, "t", b"x", 0);
        let ids = [ready(), put_buried(&mut server.client(), "u", b"x"), ready()];
        let [done, buried, open] = ids.map(|id| id.to_string());
        let none = ctl(&address, &["wait", "4000000000"]).ends_with(1);
        assert!(none.err.contains("there is no job 4000000000"), "{none:?}");
        let late = ctl(&address, &["wait", "4000000000", &open, &buried, "--for", "1s"]).ends_with(1);
        let all = format!("no job 4000000000; buried: {buried}; job {open} was not done in time\n");
        assert!(late.err.ends_with(&all) && late.out == format!("{buried} buried\n"), "{late:?}");
        let both = std::thread::scope(|scope| {
            let waits = scope.spawn(|| ctl(&address, &["wait", &done, &buried, &open, "--json"]));
            worker.delete(ids[0]).unwrap();
            worker.delete(ids[2]).unwrap();
            waits.join().unwrap()
        });
        // Jobs that were gone before the program listed them are not there.
        let both = both.ends_with(1);
        assert!(both.err.contains(&format!("buried: {buried}")), "{both:?}");
        assert!(both.json().iter().any(|line| line["id"] == ids[1] && line["end"] == "buried"), "{both:?}");
    }
    let Some(server) = installed::ours(&[]) else { return };
    let (address, mut worker) = (server.address(), client(&server.address()));
    let ids: Vec<u64> = (0..2).map(|_| put(&mut worker, "t", b"x", 0)).collect();
    let [first, second] = [0, 1].map(|at: usize| ids[at].to_string());
    let waiting = |worker: &mut beanstalk_client::Client| {
        let stats = worker.dictionary(beanstalk_client::Command::Stats).unwrap();
        stats.number_or_zero("cmd-wait-job") > 0
    };
    let done = std::thread::scope(|scope| {
        let waits = scope.spawn(|| ctl(&address, &["wait", &first, &second]));
        while !waiting(&mut worker) {
            std::thread::yield_now();
        }
        // The second one is gone before the command asks for it.
        worker.delete_batch(&[ids[1], ids[0]]).unwrap();
        waits.join().unwrap()
    });
    assert_eq!(done.ends_with(0).out, format!("{first} deleted\n{second} deleted\n"));
}

#[test]
fn a_wait_that_breaks_names_the_jobs_before() {
    let (fake, directory) = (Fake::start(), tempfile::tempdir().unwrap());
    let id = put(&mut client(&fake.address()), "t", b"x", 0).to_string();
    let address =
        between(&directory.path().join("socket"), &fake.address(), |line| !line.starts_with("wait-job"));
    let broken = ctl(&address, &["wait", "4000000000", &id]).ends_with(3);
    assert!(broken.err.contains("there is no job 4000000000\n"), "{broken:?}");
}

/// The extensions that the fake only imitates, on this repository's server.
#[test]
fn the_server_of_this_repository_lists_moves_reprioritizes_and_flushes() {
    let Some(server) = installed::ours(&[]) else { return };
    let (address, mut client) = (server.address(), client(&server.address()));
    let offered = client.extensions().unwrap();
    for word in [
        "flush-tube",
        "flush-buried",
        "list-jobs",
        "peek-reserved",
        "move",
        "reprioritize",
        "drain",
        "undrain",
    ] {
        assert!(offered.has(word), "{word}");
    }
    // More than two pages, in each of the states.
    for number in 0..1_200 {
        put(&mut client, "t", format!("{number}").as_bytes(), 0);
    }
    for delay in 1..5 {
        put(&mut client, "t", b"delayed", 1000 * delay);
        put_buried(&mut client, "t", b"buried");
    }
    let first = client.reserve_job(1).unwrap();
    assert_eq!(
        (client.peek_next(JobState::Reserved).unwrap().id, counts(&address, "t")),
        (first.id, [1199, 1, 4, 4])
    );
    let listed = ctl(&address, &["jobs", "t", "--json"]).ends_with(0).json();
    let ids: std::collections::BTreeSet<u64> = listed.iter().map(|job| job["id"].as_u64().unwrap()).collect();
    assert_eq!((listed.len(), ids.len()), (1208, 1208));
    let sizes = listed.iter().map(|job| job["bytes"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sizes, 10 + 90 * 2 + 900 * 3 + 200 * 4 + 4 * 7 + 4 * 6);
    // A move keeps the id, which a copy would not.
    ctl(&address, &["move", "2", "--to", "u"]).ends_with(0);
    ctl(&address, &["move", "--tube", "t", "--state", "buried", "--to", "u", "--yes"]).ends_with(0);
    assert_eq!(client.stats_job(2).unwrap().tube, "u");
    assert_eq!((counts(&address, "t"), counts(&address, "u")), ([1198, 1, 4, 0], [1, 0, 0, 4]));
    ctl(&address, &["reprioritize", "1000", "-p", "0"]).ends_with(0);
    client.use_tube(&name("t")).unwrap();
    let pri = client.stats_job(1000).unwrap().pri;
    assert_eq!((client.peek_next(JobState::Ready).unwrap().id, pri), (1000, 0));
    ctl(&address, &["flush", "t", "--yes"]).ends_with(0);
    assert!(client.delete(first.id).unwrap_err().is_not_found(), "the job that it had reserved is gone");
    ctl(&address, &["flush", "u", "--buried", "--yes"]).ends_with(0);
    assert_eq!((counts(&address, "t"), counts(&address, "u")), ([0; 4], [1, 0, 0, 0]));
}

#[test]
fn extensions_are_used_if_and_only_if_they_are_offered() {
    for (extension, arguments) in [
        ("move", &["move", "1", "--to", "u"][..]),
        ("reprioritize", &["reprioritize", "1", "-p", "5"]),
        ("flush-tube", &["flush", "t", "--yes"]),
        ("list-jobs", &["jobs", "t"]),
    ] {
        for offered in [true, false] {
            let without = if offered { vec![] } else { vec![extension] };
            let fake = Fake::start_with(FakeOptions { without, ..FakeOptions::default() });
            put(&mut client(&fake.address()), "t", b"x", 0);
            ctl(&fake.address(), arguments).ends_with(0);
            let used = fake.take_log().iter().any(|line| line.starts_with(extension));
            assert_eq!(used, offered, "{extension}");
        }
    }
}

#[test]
fn ctrl_c_stops_between_jobs_and_reports_what_was_done() {
    let fake = Fake::start();
    let lines = "x\n".repeat(3_000);
    ctl_with(&fake.address(), &["put", "t", "--lines"], lines.as_bytes()).ends_with(0);
    // The first delete waits until the signal is sent. Then the program has nine seconds to notice it.
    let directory = tempfile::tempdir().unwrap();
    let (deletes, first_delete) = mpsc::sync_channel(0);
    let mut is_held = false;
    let address = between(&directory.path().join("socket"), &fake.address(), move |line| {
        if line.starts_with("delete ") && !std::mem::replace(&mut is_held, true) {
            deletes.send(()).and_then(|()| deletes.send(())).unwrap();
        }
        if is_held {
            std::thread::sleep(Duration::from_millis(3));
        }
        true
    });
    let child = command(&address, &["delete", "--all", "--yes", "--json"]).spawn().unwrap();
    first_delete.recv().unwrap();
    interrupt(&child);
    first_delete.recv().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (done, left) = (report["done"].as_u64().unwrap(), counts(&fake.address(), "t")[0]);
    assert!(done > 0 && left > 0 && done + left == 3_000, "{done} done, {left} left");
}

#[test]
fn jobs_that_change_before_the_confirmation_are_left_alone() {
    for (answer, expected) in [("y", [1, 0, 0, 0]), ("n", [1, 0, 0, 1]), ("C-c", [1, 0, 0, 1])] {
        let fake = Fake::start();
        let mut client = client(&fake.address());
        let kicked = put_buried(&mut client, "t", b"kicked meanwhile");
        put_buried(&mut client, "t", b"still buried");
        let Some(terminal) = Terminal::with(&fake.address(), "delete --state buried --tube t") else {
            return;
        };
        terminal.shows("delete 2 jobs (2 buried) of the tube t on ");
        client.kick_job(kicked).unwrap();
        terminal.keys(&[answer]);
        if answer != "C-c" {
            terminal.keys(&["Enter"]);
        }
        if answer == "y" {
            terminal.shows("deleted 1 job of 2; 1 had changed meanwhile");
            terminal.shows("ended with 0");
        } else {
            terminal.shows("nothing was changed");
            terminal.shows("ended with 130");
        }
        assert_eq!(counts(&fake.address(), "t"), expected);
    }
}

#[test]
fn ids_come_from_standard_input() {
    for server in everywhere() {
        let address = server.address();
        let mut client = server.client();
        let ids: Vec<u64> = (0..8).map(|_| put(&mut client, "t", b"x", 0)).collect();
        let left = || counts(&address, "t").iter().sum::<u64>();
        let json = ctl(&address, &["job", &ids[0].to_string(), "--json"]).ends_with(0).out;
        ctl_with(&address, &["delete", "-"], json.as_bytes()).ends_with(0);
        assert_eq!(left(), 7);
        let table = ctl(&address, &["jobs", "t", "--limit", "2"]).ends_with(0).out;
        assert_eq!(
            ctl_with(&address, &["delete", "-"], table.as_bytes()).ends_with(0).out,
            "deleted 2 jobs\n"
        );
        let words = format!("{} {}\n\n{}\n{}\n", ids[3], ids[4], ids[5], ids[5]);
        let shown = ctl_with(&address, &["job", "-", "--json"], words.as_bytes()).ends_with(0);
        assert_eq!(shown.json().len(), 3);
        ctl_with(&address, &["bury", "-"], words.as_bytes()).ends_with(0);
        ctl_with(&address, &["delete", "-", &ids[6].to_string()], words.as_bytes()).ends_with(0);
        assert_eq!(left(), 1);
        // Nothing is changed if one of the lines is not an id, or if there is no line.
        for wrong in
            [&b"-1\n"[..], b"{\"tube\":\"t\"}\n", b"{\"id\":\"1\"}\n", b"ID\nx\n", b"1 x ready\n2\nno\n"]
        {
            let input = [format!("{}\n", ids[7]).as_bytes(), wrong].concat();
            let refused = ctl_with(&address, &["delete", "-"], &input);
            assert_eq!(refused.code, 2, "{refused:?}");
        }
        ctl_with(&address, &["delete", "-"], b"").ends_with(1);
        ctl_with(&address, &["delete", "-", "--all"], b"").ends_with(2);
        ctl_with(&address, &["delete", "x"], b"").ends_with(2);
    }
}

#[test]
fn jobs_are_chosen_by_their_age_from_both_sides() {
    let fake = Fake::start(); // All of its jobs are 100 s old.
    put(&mut client(&fake.address()), "t", b"x", 0);
    for (arguments, found) in [
        (&["--younger-than", "101"][..], true),
        (&["--younger-than", "100"], false),
        (&["--younger-than", "2m", "--older-than", "1m"], true),
        (&["--younger-than", "2m", "--older-than", "101s"], false),
    ] {
        let code = i32::from(!found);
        ctl(&fake.address(), &[&["jobs", "t"], arguments].concat()).ends_with(code);
        ctl(&fake.address(), &[&["kick", "--dry-run"], arguments].concat()).ends_with(if found {
            4
        } else {
            1
        });
        ctl(&fake.address(), &[&["bury", "--dry-run"], arguments].concat()).ends_with(code);
    }
    ctl(&fake.address(), &["delete", "1", "--younger-than", "1h"]).ends_with(2);
}

#[test]
fn a_limit_changes_the_jobs_that_would_be_served_first() {
    for server in everywhere() {
        let address = server.address();
        let mut client = server.client();
        client.use_tube(&name("t")).unwrap();
        let ids = [30, 10, 20, 40]
            .map(|pri| client.put(b"x", &PutOptions { pri, ..PutOptions::default() }).unwrap().id);
        let limited = ["--tube", "t", "--all", "--limit", "2"];
        let dry = ctl(&address, &[&["delete", "--dry-run"], &limited[..]].concat()).ends_with(0);
        assert_eq!(dry.out, "2 matched\n");
        ctl(&address, &[&["delete", "--yes"], &limited[..]].concat()).ends_with(0);
        let left = ctl(&address, &["jobs", "t", "--json"]).ends_with(0).json();
        let left: Vec<u64> = left.iter().map(|job| job["id"].as_u64().unwrap()).collect();
        assert_eq!(left, [ids[0], ids[3]]);
        // A limit alone selects nothing.
        ctl(&address, &["delete", "--yes", "--limit", "1"]).ends_with(2);
        ctl(&address, &["delete", "--yes", "--all", "--limit", "0"]).ends_with(2);
    }
}
