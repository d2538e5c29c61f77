//! A server with rules for tubes: the commands of an operator for them.

use beanstalkd_testkit::installed;
use std::io::Write;
use std::process::Stdio;

use beanstalk_client::{Client, JobState, PutOptions};
use beanstalkd_testkit::panicking::{Server, wait_until};
use beanstalkd_testkit::server::free_address;

use crate::support::{client, command, counts, ctl, interrupt, name, put, put_buried};

const RULES: &str =
    "[[tube]]\nname = \"dead\"\n[[tube]]\nname = \"*\"\nmax-attempts = 2\ndead-tube = \"dead\"\n";

/// A server with these rules, and its address.
pub struct Ruled {
    pub address: String,
    pub directory: tempfile::TempDir,
    _server: Server,
}

pub fn start(rules: &str) -> Ruled {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tubes.toml");
    std::fs::write(&file, rules).unwrap();
    let address = free_address().unwrap().to_string();
    let server = Server::start(&["--listen", &address, "--tubes", &file.to_string_lossy()]);
    Ruled { address, directory, _server: server }
}

/// Puts a job into the tube, and lets it fail twice.
fn kill(client: &mut Client, tube: &str) -> u64 {
    let id = put(client, tube, b"x", 0);
    fail_twice(client, id);
    id
}

fn fail_twice(client: &mut Client, id: u64) {
    for _ in 0..2 {
        client.reserve_job(id).unwrap();
        client.release(id, 7, 0).unwrap();
    }
}

#[test]
fn dead_jobs_go_back_to_where_each_came_from_without_failures() {
    let Ruled { address, .. } = &start(RULES);
    let mut client = client(address);
    let (mail, news, buried) =
        (kill(&mut client, "mail"), kill(&mut client, "news"), kill(&mut client, "mail"));
    client.reserve_job(buried).unwrap();
    client.bury(buried, 9).unwrap();
    let reserved = kill(&mut client, "mail");
    client.reserve_job(reserved).unwrap();
    let other = put(&mut client, "dead", b"no rule has sent it here", 0);
    assert_eq!(counts(address, "dead"), [3, 1, 0, 1]);

    let dry = ctl(address, &["redrive", "dead", "--rate", "10/s", "--dry-run"]).ends_with(0);
    assert!(
        dry.err.contains(
            "would redrive 3 jobs (2 ready, 1 buried) of the tube dead back to mail, news, at most 10/s, on "
        ) && dry.err.contains(", and leave out 1 reserved, 1 not dead\n"),
        "{dry:?}"
    );
    assert_eq!(dry.out, "3 matched\n");
    ctl(address, &["redrive", "dead"]).ends_with(2); // It cannot ask.
    assert_eq!(counts(address, "dead"), [3, 1, 0, 1]);
    let done = ctl(address, &["redrive", "dead", "--yes", "--json"]).ends_with(0).json();
    assert_eq!((&done[0]["action"], &done[0]["done"]), (&"redrive".into(), &3.into()));
    assert_eq!((counts(address, "mail"), counts(address, "news")), ([1, 0, 0, 1], [1, 0, 0, 0]));
    let info = client.stats_job(buried).unwrap();
    assert_eq!((info.state, info.pri, info.releases), (JobState::Buried, 9, 2), "the counters stay");
    for id in [mail, news] {
        assert_eq!(client.stats_job(id).unwrap().dead_from, None);
        // It has no failures: it is dead again after two more, and not after one.
        client.reserve_job(id).unwrap();
        client.release(id, 7, 0).unwrap();
        assert_ne!(client.stats_job(id).unwrap().tube, "dead");
        client.reserve_job(id).unwrap();
        client.release(id, 7, 0).unwrap();
        assert_eq!(client.stats_job(id).unwrap().tube, "dead");
    }
    assert_eq!(client.stats_job(other).unwrap().tube, "dead");
}

#[test]
fn job_shows_the_failures_the_death_the_session_and_what_the_job_waits_for() {
    let Ruled { address, .. } = &start(RULES);
    let mut client = client(address);
    let (dead, delayed) = (kill(&mut client, "mail").to_string(), put(&mut client, "mail", b"x", 3600));
    let reserved = put(&mut client, "mail", b"x", 0);
    client.session(&name("night"), std::time::Duration::from_secs(60)).unwrap();
    client.reserve_job(reserved).unwrap();
    let ids = [&dead, &delayed.to_string(), &reserved.to_string()];
    let jobs = ctl(address, &["job", ids[0], ids[1], ids[2], "--json"]).ends_with(0).json();
    assert_eq!((&jobs[0]["failures"], &jobs[0]["dead_from"]), (&2.into(), &"mail".into()));
    assert!(jobs[0]["dead_since"].as_u64() > Some(1_700_000_000), "{}", jobs[0]);
    assert_eq!((&jobs[1]["waits_for"][0], &jobs[1]["failures"]), (&"delay".into(), &0.into()));
    assert_eq!(jobs[2]["session"], "night");
    for key in ["session", "dead_from", "dead_since"] {
        assert!(jobs[1].get(key).is_none(), "{key}: {}", jobs[1]);
    }
    let text = ctl(address, &["job", &dead]).ends_with(0).out;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key).map(str::trim));
    assert_eq!((value("dead_from "), value("failures ")), (Some("mail"), Some("2")), "{text}");
}

#[test]
fn why_says_what_a_job_waits_for_of_all_there_is() {
    let rules = "[[tube]]\nname = \"one\"\nmax-reserved = 1\n\
        [[tube]]\nname = \"slow\"\nrate = \"1/h\"\nburst = 1\n\
        [[tube]]\nname = \"turns\"\nfair = true\n\
        [[tube]]\nname = \"mail\"\nmax-attempts = 2\nbackoff = \"1h\"\ndead-tube = \"dead\"\n\
        [[tube]]\nname = \"news\"\nmax-attempts = 2\ndead-tube = \"full\"\n\
        [[tube]]\nname = \"full\"\nmax-jobs = 1\n";
    let Ruled { address, .. } = &start(rules);
    let mut client = client(address);
    put(&mut client, "full", b"x", 0);
    let undead = kill(&mut client, "news");
    let mut put_with = |tube: &str, tags: &[&str]| {
        client.use_tube(&name(tube)).unwrap();
        let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        client.put(b"x", &PutOptions { tags, ..PutOptions::default() }).unwrap().id
    };
    let (limited, holder) = (put_with("t", &["con:k"]), put_with("t", &["con:k", "grp:g"]));
    let grouped = put_with("t", &["aft:g"]);
    let (first, second) = (put_with("one", &[]), put_with("one", &[]));
    let (token, none) = (put_with("slow", &[]), put_with("slow", &[]));
    let (_, turn) = (put_with("turns", &["con:a"]), put_with("turns", &["con:b"]));
    let (failed, dead) = (put_with("mail", &[]), put_with("mail", &[]));
    let delayed = put(&mut client, "t", b"x", 3600);
    let plain = put(&mut client, "quiet", b"x", 0);
    let buried = put_buried(&mut client, "t", b"x");
    client.session(&name("night"), std::time::Duration::from_secs(60)).unwrap();
    for id in [holder, first, token, failed, dead] {
        client.reserve_job(id).unwrap();
    }
    client.release(failed, 0, 0).unwrap();
    client.release(dead, 0, 0).unwrap();
    client.reserve_job(dead).unwrap();
    client.release(dead, 0, 0).unwrap();
    for (id, expected) in [
        (limited, "1 job with the key k: reserved"),
        (holder, "a client of the session night has reserved it; its time to run ends in "),
        (grouped, "its group g has 1 job left, 0 of them buried"),
        (second, "1 job of its tube reserved, and max-reserved of the rule one allows no more"),
        (none, "the rate of the rule slow lets no job through"),
        (turn, "its turn: 2 jobs of its tube ready, and the keys of con take turns by the rule turns"),
        (failed, "it has failed 1 time"),
        (undead, "it is buried: only a kick makes it ready; it has failed 2 times"),
        (dead, "it is dead: it came from mail, and `redrive dead` sends it back"),
        (delayed, "its delay ends in 59m"),
        (plain, "no client watches the tube quiet"),
        (buried, "it is buried: only a kick makes it ready"),
    ] {
        let why = ctl(address, &["why", &id.to_string()]).ends_with(0);
        assert!(
            why.out.starts_with(&format!("job {id} is ")) && why.out.contains(expected),
            "{expected}: {why:?}"
        );
    }
    client.pause_tube(&name("t"), 600).unwrap();
    let why = ctl(address, &["why", &limited.to_string(), &plain.to_string(), "--json"]).ends_with(0).json();
    assert_eq!(why[0]["waits_for"], serde_json::json!(["pause", "key"]));
    assert!(why[0]["reasons"][0].as_str().unwrap().starts_with("its tube is paused for another "));
    assert_eq!(why[1]["waits_for"], serde_json::json!(["worker"]));
    ctl(address, &["why", "999"]).ends_with(1);
}

#[test]
fn the_backoff_of_a_rule_counts_below_work_without_a_delay_of_its_own() {
    let rules = "[[tube]]\nname = \"t\"\nmax-attempts = 2\nbackoff = \"1h\"\ndead-tube = \"dead\"\n";
    let Ruled { address, .. } = &start(rules);
    let mut client = client(address);
    let id = put(&mut client, "t", b"x", 0);
    ctl(address, &["work", "t", "--until-empty", "--delay", "0s", "--", "false"]).ends_with(0);
    let info = client.stats_job(id).unwrap();
    assert_eq!((info.state, info.delay), (JobState::Delayed, 3600));
    client.kick_job(id).unwrap();
    ctl(address, &["work", "t", "--until-empty", "--delay", "7s", "--", "false"]).ends_with(0);
    assert_eq!(client.stats_job(id).unwrap().dead_from, Some(name("t")));
}

#[test]
fn why_knows_what_a_server_without_extensions_shows() {
    for server in installed::debians(&[]).into_iter() {
        let address = &server.address();
        let mut client = client(address);
        let (ready, delayed) = (put(&mut client, "t", b"x", 0), put(&mut client, "t", b"x", 3600));
        assert!(
            ctl(address, &["why", &delayed.to_string()]).ends_with(0).out.contains("its delay ends in 59m")
        );
        client.pause_tube(&name("t"), 600).unwrap();
        assert!(ctl(address, &["why", &ready.to_string()]).ends_with(0).out.contains("its tube is paused"));
    }
}

#[test]
fn rules_shows_the_file_and_what_it_has_done() {
    let rules = "[[tube]]\nname = \"mail-*\"\nmax-attempts = 2\ndead-tube = \"dead\"\nmax-jobs = 2\n\
        [[tube]]\nname = \"none\"\n[[tube]]\nname = \"one\"\nmax-reserved = 1\n";
    let Ruled { address, directory, .. } = &start(rules);
    let mut client = client(address);
    ctl(address, &["rules"]).ends_with(1);
    kill(&mut client, "mail-a");
    put(&mut client, "mail-a", b"x", 0);
    put(&mut client, "mail-a", b"x", 0);
    client.put(b"x", &PutOptions::default()).unwrap_err();
    let reserved = put(&mut client, "one", b"x", 0);
    client.reserve_job(reserved).unwrap();
    let shown = ctl(address, &["rules"]).ends_with(0).out;
    assert_eq!(
        shown,
        "RULE    TUBE    JOBS  RESERVED  DEAD  THROTTLED  REJECTED\n\
         mail-*  mail-a     2         0     1          -         1\n\
         one     one        1         1     0        yes         0\n"
    );
    let file = directory.path().join("tubes.toml").to_string_lossy().into_owned();
    let shown = ctl(address, &["rules", "--file", &file]).ends_with(0).out;
    assert!(shown.contains("mail-*  dead-tube=dead max-attempts=2 max-jobs=2  mail-a     2"), "{shown}");
    assert!(shown.contains("none    nothing ") && shown.contains("max-reserved=1"), "{shown}");
    let json = ctl(address, &["rules", "mail-*", "--file", &file, "--json"]).ends_with(0).json();
    assert_eq!((&json[0]["asks_for"]["max-jobs"], &json[0]["rejected_full"]), (&"2".into(), &1.into()));
    assert!(json.len() == 3 && json[1]["tube"].is_null(), "{json:?}");
    // Of two entries with the same name, tubes follow the first.
    std::fs::write(&file, format!("{rules}[[tube]]\nname = \"one\"\nmax-jobs = 5\n")).unwrap();
    let json = ctl(address, &["rules", "one", "--file", &file, "--json"]).ends_with(0).json();
    let of_one: Vec<_> = json.iter().filter(|line| line["rule"] == "one").collect();
    assert_eq!((of_one.len(), &of_one[0]["tube"], &of_one[1]["tube"]), (2, &"one".into(), &().into()));
    // A file that the server has not read.
    std::fs::write(&file, "[[tube]]\nname = \"one\"\n").unwrap();
    let other = ctl(address, &["rules", "--file", &file]).ends_with(0);
    assert!(other.err.contains("mail-a follows \"mail-*\", which is not in "), "{other:?}");
    for wrong in ["tube = 1", "[[tube]]\nmax-jobs = 1", "[["] {
        std::fs::write(&file, wrong).unwrap();
        ctl(address, &["rules", "--file", &file]).ends_with(5);
    }
    ctl(address, &["rules", "--file", "/missing"]).ends_with(5);
}

#[test]
fn lines_that_a_full_tube_refuses_are_counted_after_those_that_it_took() {
    let Ruled { address, .. } = &start("[[tube]]\nname = \"t\"\nmax-jobs = 2\n");
    let mut put = command(address, &["put", "t", "--lines"]);
    let mut put = put.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"a\nb\nc\nd\n").unwrap();
    let output = put.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), b"1\n2\n".as_slice()), "{said}");
    assert!(said.contains("after 2 jobs: the server answered put with TUBE_FULL"), "{said}");
}

#[test]
fn nothing_to_redrive_is_reported() {
    let Ruled { address, .. } = &start(RULES);
    let mut client = client(address);
    ctl(address, &["redrive", "dead", "--yes"]).ends_with(1);
    put(&mut client, "dead", b"alive", 0);
    let none = ctl(address, &["redrive", "dead", "--yes"]).ends_with(1);
    let expected =
        "no job of these tubes is dead; with access rules, only dead jobs count that came from a tube for";
    assert!(none.err.contains(expected), "{none:?}");
    let reserved = kill(&mut client, "mail");
    client.reserve_job(reserved).unwrap();
    let none = ctl(address, &["redrive", "dead", "--yes"]).ends_with(4);
    assert!(none.err.contains("1 reserved cannot be redriven"), "{none:?}");
    assert_eq!(counts(address, "dead"), [1, 1, 0, 0]);
    ctl(address, &["redrive", "--yes"]).ends_with(2);
    ctl(address, &["redrive", "dead", "--rate", "10", "--yes"]).ends_with(2);
}

#[test]
fn a_job_that_finds_its_tube_full_stays_dead() {
    let limit = "[[tube]]\nname = \"mail\"\nmax-attempts = 2\ndead-tube = \"dead\"\nmax-jobs = 1\n";
    let Ruled { address, .. } = &start(limit);
    let mut client = client(address);
    let ids = [kill(&mut client, "mail"), kill(&mut client, "mail")];
    let full = ctl(address, &["redrive", "dead", "--yes"]).ends_with(4);
    assert!(full.out.contains("redriven 1 job of 2; 1: ") && full.out.contains("TUBE_FULL"), "{full:?}");
    assert_eq!((counts(address, "mail"), counts(address, "dead")), ([1, 0, 0, 0], [1, 0, 0, 0]));
    let dead_from = ids.map(|id| client.stats_job(id).unwrap().dead_from);
    assert_eq!(dead_from, [None, Some(name("mail"))], "the job that was put first goes first");
}

#[test]
fn a_limit_and_a_filter_choose_among_the_dead() {
    let Ruled { address, .. } = &start(RULES);
    let mut client = client(address);
    for _ in 0..5 {
        kill(&mut client, "mail");
    }
    let done = ctl(address, &["redrive", "dea?", "--limit", "2", "--state", "ready", "--yes"]).ends_with(0);
    assert_eq!(done.out, "redriven 2 jobs\n");
    ctl(address, &["redrive", "dead", "--state", "buried", "--yes"]).ends_with(1);
    assert_eq!((counts(address, "mail"), counts(address, "dead")), ([2, 0, 0, 0], [3, 0, 0, 0]));
}

#[test]
fn a_rate_holds_and_ctrl_c_stops_it() {
    let Ruled { address, .. } = &start(RULES);
    let mut client = client(address);
    for _ in 0..3 {
        kill(&mut client, "mail");
    }
    let child = command(address, &["redrive", "dead", "--rate", "1/h", "--yes"]).spawn().unwrap();
    wait_until("the first job", || counts(address, "mail") == [1, 0, 0, 0]);
    interrupt(&child);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), String::from_utf8_lossy(&ended.stdout)),
        (Some(130), "redriven 1 job of 3\n".into())
    );
    assert_eq!(counts(address, "dead"), [2, 0, 0, 0]);
}

#[test]
fn jobs_that_are_put_back_into_their_state_have_not_failed() {
    let Ruled { address, directory, .. } =
        &start("[[tube]]\nname = \"*\"\nmax-attempts = 1\ndead-tube = \"dead\"\n");
    let file = directory.path().join("jobs");
    std::fs::write(&file, "{\"tube\":\"t\",\"body\":\"a\",\"state\":\"delayed\",\"delay\":3600}\n").unwrap();
    ctl(address, &["import", &file.to_string_lossy()]).ends_with(0);
    assert_eq!((counts(address, "t"), counts(address, "dead")), ([0, 0, 1, 0], [0; 4]));

    // A full disk makes the drain put its jobs back.
    let ready = put(&mut client(address), "t", b"ready", 0);
    let drained = directory.path().join("drained");
    let limited = format!(
        "ulimit -f 1; trap '' XFSZ; exec \"$0\" --server {address} export t --drain --yes --output {}",
        drained.display()
    );
    put(&mut client(address), "t", &[b'x'; 4_000], 0);
    let program = env!("CARGO_BIN_EXE_beanstalkctl");
    let ended = std::process::Command::new("sh").args(["-c", &limited, program]).output().unwrap();
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    assert_eq!((counts(address, "t"), counts(address, "dead")), ([2, 0, 1, 0], [0; 4]));
    assert_eq!(client(address).stats_job(ready).unwrap().failures.unwrap_or(0), 0);
}
