//! The ownership of a queue: takeovers, clean stops, and owners that are resumed after a takeover.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use beanstalkd_testkit::client::{Client, id_of};
use beanstalkd_testkit::copy_built_server;
use beanstalkd_testkit::launched::{Launched, Service};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::postgres::{Cluster, PAUSE_FOR_TAKEOVER, ROLE, TAKEOVER_AFTER};
use beanstalkd_testkit::printable;
use beanstalkd_testkit::server::Server;
use rustix::process::Signal;

use crate::figures::{get, metrics_flag, scrape};
use crate::servers::{Servers, has, mail_queue, put};

#[test]
fn jobs_survive_the_death_of_their_server_and_ids_go_on() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let mut server = servers.serve(&url, &["--allow-async"]);
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
    let other = servers.serve(&cluster.url("other"), &["--allow-async"]);
    assert_eq!(put(&mut other.connect().unwrap(), small), 1);
    let (sound, report) = servers.run(&["--check", &url]);
    assert!(sound && report.contains("3 jobs"), "{report}");
    let (_, dumped) = servers.run(&["--dump", &url]);
    assert_eq!(dumped.lines().count(), 3, "{dumped}");
}

#[test]
fn a_clean_stop_hands_over_at_once() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let patient = ["--allow-async", "--takeover-after", "3600"];
    let mut owner = servers.serve(&url, &patient);
    let id = put(&mut owner.connect().unwrap(), "job");
    let standby = servers.launch(&url, &[&patient[..], &["--wait-for-lock"]].concat());
    standby.wait_for("waiting for it");
    assert!(owner.stop(Signal::TERM).unwrap().success());
    assert!(has(&mut standby.connect(), id, "job"));
}

#[test]
fn an_owner_that_was_stopped_acknowledges_nothing_after_a_takeover() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let mut old = servers.launch(&url, &["--allow-async"]);
    let mut client = old.connect();
    let id = put(&mut client, "before");
    let standby = servers.launch(&url, &["--allow-async", "--wait-for-lock"]);
    standby.wait_for("waiting for it");
    old.signal(Signal::STOP);
    // The owner may have lost the queue before that, and closed the connection.
    let _ = client.send(b"put 0 0 100 5\r\nlater\r\n");
    let mut new = standby.connect();
    assert!(has(&mut new, id, "before"));
    old.signal(Signal::CONT);
    assert_eq!(received(&mut client), "");
    assert_eq!(old.wait().code(), Some(1));
    assert!(old.log().contains("the queue was taken over by"), "{}", old.log());
    assert!(!has(&mut new, id + 1, "later"));
    assert!(standby.log().contains("took over from"), "{}", standby.log());
}

#[test]
fn failures_count_on_after_a_takeover_and_a_dead_job_stays_dead() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let rules = servers.directory().join("rules");
    fs::write(&rules, "[[tube]]\nname = \"mail\"\nmax-attempts = 2\ndead-tube = \"dead\"\n").unwrap();
    let flags = ["--allow-async", "--wait-for-lock", "--tubes", rules.to_str().unwrap()];
    let mut owner = servers.launch(&url, &flags);
    for (name, tube, failures) in [("second", "mail", 1), ("third", "dead", 2), ("fourth", "dead", 2)] {
        let mut client = owner.connect();
        client.exchange(b"watch mail\r\nwatch dead\r\n", b"WATCHING 2\r\nWATCHING 3\r\n").unwrap();
        if name == "second" {
            client.exchange(b"use mail\r\nput 0 0 600 1\r\nx\r\n", b"USING mail\r\nINSERTED 1\r\n").unwrap();
        }
        client.exchange(b"reserve\r\nrelease 1 0 0\r\n", b"RESERVED 1 1\r\nx\r\nRELEASED\r\n").unwrap();
        let standby = servers.launch(&url, &flags);
        standby.wait_for("waiting for it");
        owner.signal(Signal::KILL);
        owner = standby;
        let stats = owner.connect().ask(b"stats-job 1\r\n").unwrap();
        let stats = String::from_utf8(stats).unwrap();
        for line in [format!("tube: \"{tube}\"\n"), format!("failures: {failures}\n")] {
            assert!(stats.contains(&line), "{name}: {stats}");
        }
    }
}

/// All bytes that a client still gets, until its connection ends in any way.
fn received(client: &mut Client) -> String {
    let mut received = Vec::new();
    while let Ok(byte) = client.read_bytes(1) {
        received.extend(byte);
    }
    String::from_utf8_lossy(&received).into_owned()
}

/// A command without a record needs no commit, so no commit holds its reply back.
#[test]
fn an_owner_that_stood_still_says_nothing_to_those_that_ask_for_no_change() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let mut old = servers.launch(&url, &["--allow-async"]);
    let mut clients = [(); 3].map(|()| old.connect());
    let put_once = b"put 0 0 100 3 idp:o1\r\njob\r\n";
    clients[0].exchange(put_once, b"INSERTED 1\r\n").unwrap();
    clients[0].exchange(put_once, b"INSERTED 1 READY\r\n").unwrap();
    let standby = servers.launch(&url, &["--allow-async", "--wait-for-lock"]);
    standby.wait_for("waiting for it");
    old.signal(Signal::STOP);
    for (client, command) in
        clients.iter_mut().zip([&put_once[..], b"peek 1\r\n", b"reserve-with-timeout 0\r\n"])
    {
        // The owner may have lost the queue before it was stopped, and closed the connection.
        let _ = client.send(command);
    }
    standby.connect().exchange(b"delete 1\r\n", b"DELETED\r\n").unwrap();
    old.signal(Signal::CONT);
    assert_eq!(clients.each_mut().map(received), ["", "", ""]);
    assert_eq!(old.wait().code(), Some(1));
}

#[test]
fn an_owner_without_the_database_is_not_ready_sends_its_workers_away_and_ends() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let flags = ["--allow-async", "--store-timeout", "8", &metrics_flag(&servers)];
    let mut server = servers.launch(&url, &flags);
    let (mut worker, mut reader) = (server.connect(), server.connect());
    put(&mut reader, "job");
    worker.send(b"watch other\r\nignore default\r\nreserve\r\n").unwrap();
    worker.expect(b"WATCHING 2\r\nWATCHING 1\r\n").unwrap();
    let is_ready = || get(&servers, "/readyz") == "ready\n";
    wait_until("it is ready", is_ready);
    cluster.pause();
    worker.expect_closed().unwrap();
    assert!(get(&servers, "/readyz").starts_with("no lease:"));
    assert!(scrape(&servers).lines().any(|line| line == "beanstalkd_store_lease 0"));
    reader.send(b"peek 1\r\npeek 2\r\n").unwrap();
    assert!(!reader.has_reply_within(Duration::from_millis(500)).unwrap());
    cluster.resume();
    reader.expect(b"FOUND 1 3\r\njob\r\nNOT_FOUND\r\n").unwrap();
    wait_until("it is ready again", is_ready);
    // No client sends anything.
    cluster.pause();
    assert_eq!(received(&mut reader), "");
    assert_eq!(server.wait().code(), Some(1));
    assert!(server.log().contains("has confirmed nothing for 8 s (--store-timeout)"), "{}", server.log());
    cluster.resume();
}

/// An owner with a job, and a standby that has seen a clock that is set forward again and again. `Err` if the standby
/// has taken over from the owner, which is right if the machine stood still.
fn keep_the_owner(
    cluster: &Cluster,
    url: &str,
    servers: &Servers,
) -> Result<(Server, u64, Launched), String> {
    let owner = servers.serve(url, &["--allow-async"]);
    let id = put(&mut owner.connect().unwrap(), "job");
    let standby = servers.launch(url, &["--allow-async", "--wait-for-lock"]);
    standby.wait_for("waiting for it");
    // For a clock that was set forward, every heartbeat is old.
    let start = Instant::now();
    while start.elapsed() < TAKEOVER_AFTER * 2 {
        cluster.query("UPDATE beanstalkd.queue SET heartbeat = heartbeat - interval '1 hour'").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let epoch = cluster.query("SELECT epoch FROM beanstalkd.queue").unwrap();
    if epoch == "1" { Ok((owner, id, standby)) } else { Err(format!("epoch {epoch}: {}", standby.log())) }
}

/// Its clock can be set, and at a promotion another machine's clock replaces it.
#[test]
fn the_clock_of_the_database_does_not_decide_about_a_takeover() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let kept = Pace::watch_disk(&cluster.data()).unwrap().judge(|| {
        let empty = format!("DROP SCHEMA {ROLE} CASCADE; CREATE SCHEMA {ROLE} AUTHORIZATION {ROLE}");
        cluster.query(&empty).unwrap();
        keep_the_owner(&cluster, &url, &servers)
    });
    let (mut owner, id, standby) = kept.unwrap();
    assert!(has(&mut owner.connect().unwrap(), id, "job"), "it is alive");
    // For a clock that was set back, none ever is.
    owner.stop(Signal::KILL).unwrap();
    cluster.query("UPDATE beanstalkd.queue SET heartbeat = clock_timestamp() + interval '1 hour'").unwrap();
    assert!(has(&mut standby.connect(), id, "job"));
}

#[test]
fn a_standby_takes_over_when_it_has_all_that_it_needs_and_not_before() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let limit = |connections: u32| {
        cluster.query(&format!("ALTER ROLE {ROLE} CONNECTION LIMIT {connections}")).unwrap();
    };
    let mut owner = servers.launch(&url, &["--allow-async"]);
    let id = put(&mut owner.connect(), "job");
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'beanstalkd'";
    cluster.wait_for(sessions, "1").unwrap();
    limit(2);
    let standby = servers.launch(&url, &["--allow-async", "--wait-for-lock"]);
    wait_until("the standby has come to the database", || {
        standby.log().contains("too many connections") || standby.log().contains("waiting for it")
    });
    owner.signal(Signal::STOP);
    std::thread::sleep(PAUSE_FOR_TAKEOVER);
    owner.signal(Signal::CONT);
    assert!(has(&mut owner.connect(), id, "job"), "one of the two serves");
    limit(3);
    standby.wait_for("waiting for it");
    limit(1);
    owner.kill();
    assert!(has(&mut standby.connect(), id, "job"));
}

#[test]
fn a_connection_that_is_lost_while_the_log_is_read_ends_no_server() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    servers.use_once(&url);
    let lock = "BEGIN; LOCK TABLE beanstalkd.log; SELECT pg_sleep(600)";
    let server = std::thread::scope(|scope| {
        // It fails in the end, because its session is ended.
        let locker = scope.spawn(|| cluster.query(lock));
        let sleeps = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        cluster.wait_for(&format!("SELECT count(*) {sleeps}"), "1").unwrap();
        let server = servers.launch(&url, &["--allow-async"]);
        let reads =
            "FROM pg_stat_activity WHERE application_name = 'beanstalkd' AND wait_event_type = 'Lock'";
        cluster.wait_for(&format!("SELECT count(*) {reads}"), "1").unwrap();
        cluster.query(&format!("SELECT pg_terminate_backend(pid) {reads}")).unwrap();
        cluster.query(&format!("SELECT pg_terminate_backend(pid) {sleeps}")).unwrap();
        drop(locker.join());
        server
    });
    assert!(has(&mut server.connect(), 1, "job"));
}

#[test]
fn an_owner_that_nobody_asks_for_anything_ends_too_once_it_was_taken_over_from() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let mut old = servers.launch(&url, &["--allow-async"]);
    put(&mut old.connect(), "job");
    cluster.query("UPDATE beanstalkd.queue SET epoch = epoch + 1, owner = 'another'").unwrap();
    assert_eq!(old.wait().code(), Some(1));
    assert!(old.log().contains("the queue was taken over by another"), "{}", old.log());
}

#[test]
fn a_second_server_is_refused_while_the_first_one_lives() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    // On a busy machine a heartbeat may be late.
    let flags = ["--allow-async", "--takeover-after", "8"];
    let owner = servers.serve(&url, &flags);
    put(&mut owner.connect().unwrap(), "it owns the queue");
    let mut second = servers.launch(&url, &flags);
    assert_eq!(second.wait().code(), Some(10));
    assert!(second.log().contains("--wait-for-lock to take over"), "{}", second.log());
    put(&mut owner.connect().unwrap(), "the first one goes on");
}

/// With each lost connection, the reply to a commit is lost.
#[test]
fn connections_that_are_lost_under_load_lose_and_double_nothing() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let mut server = servers.serve(&url, &["--allow-async"]);
    let mut client = server.connect().unwrap();
    let mut ids = Vec::new();
    for round in 0..10 {
        let end = Instant::now() + Duration::from_millis(300);
        client.send(&b"put 0 0 100 3\r\nabc\r\n".repeat(50)).unwrap();
        cluster
            .query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'beanstalkd'")
            .unwrap();
        for _ in 0..50 {
            let reply = client.read_reply().unwrap();
            let id = id_of(&reply, "INSERTED");
            ids.push(id.unwrap_or_else(|| panic!("round {round}: {}", printable(&reply))));
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

#[test]
fn another_program_on_the_disk_does_not_get_a_server_whose_log_is_in_a_database() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let directory = tempfile::tempdir().unwrap();
    let [program, next] = ["program", "next"].map(|name| directory.path().join(name));
    copy_built_server(&program).unwrap();
    let mut command = Command::new(&program);
    command.args(servers.flags(&url, &["--allow-async"])).args(["-l", "unix:socket"]);
    let service = Service::start(command.env_remove("WATCHDOG_USEC"), directory);
    service.message_with("READY=1");
    let mut client = service.connect();
    let id = client.put(0, 100, b"before");
    copy_built_server(&next).unwrap();
    fs::rename(&next, &program).unwrap();
    service.signal(Signal::HUP);
    service.message_with("was refused: the binlog is in a database: restart the server instead");
    assert!(
        service.log().contains("restart the server instead; this program continues"),
        "{}",
        service.log()
    );
    assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    client.put(0, 100, b"after");
}
