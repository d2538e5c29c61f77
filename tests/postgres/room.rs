//! A database whose disk is full.

use std::time::{Duration, Instant};

use beanstalkd_testkit::client::{Client, id_of, put_command};
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::postgres::{Cluster, installation};
use beanstalkd_testkit::printable;
use rustix::process::Signal;

use crate::servers::{Servers, figure, has, mail_queue, put};

/// The id of a job that was put; `None` if there is no room.
fn try_to_put(client: &mut Client, body: &str) -> Option<u64> {
    let reply = client.ask(&put_command(0, 0, 100, body.as_bytes())).unwrap();
    let id = id_of(&reply, "INSERTED");
    assert!(id.is_some() || reply == b"OUT_OF_MEMORY\r\n", "{}", printable(&reply));
    id
}

/// A cluster on a separate disk, with files of the write-ahead log made ahead: without them, PostgreSQL itself ends.
fn cluster_with_small_disk() -> Option<Cluster> {
    let cluster = Cluster::start(&installation()?).unwrap();
    for _ in 0..12 {
        cluster.query("SELECT txid_current()").unwrap();
        cluster.query("SELECT pg_switch_wal()").unwrap();
    }
    cluster.query("CHECKPOINT").unwrap();
    Some(cluster)
}

#[test]
fn a_full_database_refuses_puts_and_takes_deletes_as_a_full_directory_does() {
    let Some(cluster) = cluster_with_small_disk() else { return };
    let (url, servers) = (cluster.url("mail"), Servers::new());
    let flags = ["--allow-async", "--store-timeout", "4"];
    let mut server = servers.serve(&url, &flags);
    let mut client = server.connect().unwrap();
    let mut kept: Vec<u64> = (0..40).map(|_| put(&mut client, "small")).collect();
    wait_until("room is kept", || {
        let size = "SELECT coalesce(pg_relation_size(to_regclass('beanstalkd.ballast_1')), 0) > 8000000";
        cluster.query(size).unwrap() == "t"
    });
    let Some(ballast) = cluster.fill_disk().unwrap() else {
        eprintln!("skipped: only root can make a small disk");
        return;
    };
    let large = "x".repeat(60_000);
    let mut count = 0;
    while let Some(id) = try_to_put(&mut client, &large) {
        kept.push(id);
        count += 1;
        assert!(count < 300, "the disk is not full");
    }
    assert_eq!(figure(&mut client, "binlog-state"), "full");
    // Workers continue, for longer than commands would wait for a database that does not answer.
    let start = Instant::now();
    for id in kept.drain(..30) {
        client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(150));
    }
    assert!(start.elapsed() > Duration::from_secs(4));
    assert_eq!(try_to_put(&mut client, &large), None);
    drop(ballast);
    wait_until("puts are taken again", || {
        try_to_put(&mut client, "later").inspect(|&id| kept.push(id)).is_some()
    });
    assert_eq!(figure(&mut client, "binlog-state"), "ok");
    server.restart(Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    assert_eq!(figure(&mut client, "current-jobs-ready"), kept.len().to_string());
    assert!(kept.iter().all(|&id| has(&mut client, id, "")));
}

#[test]
fn an_owner_that_finds_no_room_for_its_first_file_waits_for_it_and_does_not_end() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    servers.use_once(&url);
    cluster
        .query(
            "CREATE FUNCTION beanstalkd.fill() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE 'no space left on device' USING ERRCODE = '53100'; END $$;
            CREATE TRIGGER fill BEFORE INSERT ON beanstalkd.file FOR EACH ROW EXECUTE FUNCTION beanstalkd.fill()",
        )
        .unwrap();
    let owner = servers.launch(&url, &["--allow-async", "--store-timeout", "4"]);
    owner.wait_for("the database has no room");
    let heartbeat = || cluster.query("SELECT heartbeat FROM beanstalkd.queue").unwrap();
    // For longer than it would wait for a database that is silent.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        let before = heartbeat();
        wait_until("the owner beats", || heartbeat() != before);
        assert!(!owner.has_ended(), "{}", owner.log());
    }
    cluster.query("DROP TRIGGER fill ON beanstalkd.file").unwrap();
    assert_eq!(figure(&mut owner.connect(), "current-jobs-ready"), "1");
}
