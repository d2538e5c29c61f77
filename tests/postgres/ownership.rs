//! Who owns a queue: takeovers, clean stops, and owners that were thought to be dead.

use std::time::Instant;

use beanstalkd_testkit::postgres::{Cluster, installation};
use rustix::process::{Pid, Signal, kill_process};

use crate::servers::{Password, has, put};

#[test]
fn jobs_survive_the_death_of_their_server_and_ids_go_on() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    let mut server = password.serve(&url, &["--allow-async"]);
    let mut client = server.connect().unwrap();
    let (large, small) = ("x".repeat(50_000), "small");
    let ids = [put(&mut client, &large), put(&mut client, small), put(&mut client, small)];
    client.exchange(format!("delete {}\r\n", ids[1]).as_bytes(), b"DELETED\r\n").unwrap();
    server.restart(Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    assert!(has(&mut client, ids[0], &large) && has(&mut client, ids[2], small));
    assert!(!has(&mut client, ids[1], small), "it was deleted");
    assert!(put(&mut client, small) > ids[2], "an id is given once");
    assert_eq!(cluster.query("SELECT epoch FROM beanstalkd.queue").unwrap(), "2");
    // Another queue of the same database has nothing to do with it.
    let other = password.serve(&cluster.url("other"), &["--allow-async"]);
    assert_eq!(put(&mut other.connect().unwrap(), small), 1);
    let (sound, report) = password.run(&["--check", &url]);
    assert!(sound && report.contains("3 jobs"), "{report}");
    let (_, dumped) = password.run(&["--dump", &url]);
    assert_eq!(dumped.lines().count(), 3, "{dumped}");
}

#[test]
fn a_clean_stop_hands_over_at_once() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    let patient = ["--allow-async", "--takeover-after", "3600"];
    let mut owner = password.serve(&url, &patient);
    let id = put(&mut owner.connect().unwrap(), "job");
    let standby = password.launch(&url, &[&patient[..], &["--wait-for-lock"]].concat(), "standby");
    standby.wait_for("waiting for it");
    assert!(owner.stop(Signal::TERM).unwrap().success());
    assert!(has(&mut standby.connect(), id, "job"));
}

#[test]
fn an_owner_that_was_stopped_acknowledges_nothing_after_a_takeover() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    let mut old = password.launch(&url, &["--allow-async"], "old");
    let mut client = old.connect();
    let id = put(&mut client, "before");
    let standby = password.launch(&url, &["--allow-async", "--wait-for-lock"], "standby");
    standby.wait_for("waiting for it");
    let pid = Pid::from_child(&old.child);
    kill_process(pid, Signal::STOP).unwrap();
    client.send(b"put 0 0 100 5\r\nlater\r\n").unwrap();
    let mut new = standby.connect();
    assert!(has(&mut new, id, "before"));
    kill_process(pid, Signal::CONT).unwrap();
    client.expect(b"INTERNAL_ERROR\r\n").unwrap();
    assert_eq!(old.wait().code(), Some(1));
    assert!(old.log().contains("the queue was taken over by"), "{}", old.log());
    assert!(!has(&mut new, id + 1, "later"));
    assert!(standby.log().contains("took over from"), "{}", standby.log());
}

#[test]
fn an_owner_that_nobody_asks_for_anything_ends_too_once_it_was_taken_over_from() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let password = Password::new();
    let mut old = password.launch(&cluster.url("mail"), &["--allow-async"], "old");
    put(&mut old.connect(), "job");
    cluster.query("UPDATE beanstalkd.queue SET epoch = epoch + 1, owner = 'another'").unwrap();
    assert_eq!(old.wait().code(), Some(1));
    assert!(old.log().contains("the queue was taken over by another"), "{}", old.log());
}

#[test]
fn a_second_server_is_refused_while_the_first_one_lives() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    // On a busy machine a heartbeat may be late.
    let flags = ["--allow-async", "--takeover-after", "8"];
    let owner = password.serve(&url, &flags);
    put(&mut owner.connect().unwrap(), "it owns the queue");
    let mut second = password.launch(&url, &flags, "second");
    assert_eq!(second.wait().code(), Some(10));
    assert!(second.log().contains("--wait-for-lock to take over"), "{}", second.log());
    put(&mut owner.connect().unwrap(), "the first one goes on");
}

/// Each lost connection leaves the owner without an answer to its commit.
#[test]
fn connections_that_are_lost_under_load_lose_and_double_nothing() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    let mut server = password.serve(&url, &["--allow-async"]);
    let mut client = server.connect().unwrap();
    let mut ids = Vec::new();
    for round in 0..10 {
        let end = Instant::now() + std::time::Duration::from_millis(300);
        client.send(&b"put 0 0 100 3\r\nabc\r\n".repeat(50)).unwrap();
        cluster
            .query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'beanstalkd'")
            .unwrap();
        for _ in 0..50 {
            let reply = String::from_utf8(client.read_reply().unwrap()).unwrap();
            let id = reply.trim_end().strip_prefix("INSERTED ");
            ids.push(id.unwrap_or_else(|| panic!("round {round}: {reply}")).parse::<u64>().unwrap());
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }
    server.restart(Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    for &id in &ids {
        assert!(has(&mut client, id, "abc"), "{id} is missing");
    }
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!(unique.len(), ids.len());
    assert_eq!(crate::servers::figure(&mut client, "current-jobs-ready"), ids.len().to_string());
}
