//! The contents of the tables: bounded under load, repaired, and of one version.

use std::time::Instant;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::postgres::{Cluster, installation};
use rustix::process::Signal;

use crate::figures::{metrics_flag, scrape};
use crate::servers::{Servers, figure as figure_of_stats, has, mail_queue, put};

#[test]
fn the_rows_of_removed_files_go() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let server = servers.serve(&url, &["--allow-async", "-s", "65536"]);
    let mut client = server.connect().unwrap();
    let kept = put(&mut client, "kept");
    for _ in 0..100 {
        let id = put(&mut client, &"x".repeat(30_000));
        client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    }
    let figure = |sql: &str| cluster.query(sql).unwrap().parse::<u64>().unwrap();
    wait_until("few rows are left", || {
        figure("SELECT count(*) FROM beanstalkd.log") < 100
            && figure("SELECT count(*) FROM beanstalkd.file") < 12
    });
    assert_eq!(figure("SELECT max(length(bytes)) FROM beanstalkd.log"), 8000);
    let toast = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'beanstalkd.log'::regclass";
    assert_eq!(figure(toast), 0, "no row is stored apart");
    assert!(has(&mut client, kept, "kept"));
}

/// While the database does not answer, no client gets a reply: the metrics have the number of jobs.
fn wait_for_jobs(servers: &Servers, count: usize) {
    let line = format!("beanstalkd_current_jobs_ready {count}");
    wait_until("all puts have come", || scrape(servers).lines().any(|found| found == line));
}

#[test]
fn commits_that_wait_share_a_transaction_and_one_connection_stays() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let server = servers.serve(&url, &["--allow-async", &metrics_flag(&servers)]);
    let mut clients: Vec<_> = (0..40).map(|_| server.connect().unwrap()).collect();
    put(&mut clients[0], "the first file is there");
    // Each row knows its transaction.
    let transactions = "SELECT count(DISTINCT xmin::text) FROM beanstalkd.log";
    let count = || cluster.query(transactions).unwrap().parse::<u64>().unwrap();
    let before = count();
    cluster.pause();
    for (client, count) in clients.iter_mut().zip(2..) {
        client.send(b"put 0 0 100 4\r\nmany\r\n").unwrap();
        // Each in a separate turn.
        wait_for_jobs(&servers, count);
    }
    cluster.resume();
    for client in &mut clients {
        assert!(client.read_reply().unwrap().starts_with(b"INSERTED "));
    }
    // One transaction was under way, and another one has all changes of the meantime.
    let more = count() - before;
    assert!((1..=2).contains(&more), "{more} transactions");
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'beanstalkd'";
    cluster.wait_for(connections, "1").unwrap();
}

/// While another transaction is open, the next commit must read each version of the row that earlier commits have left.
#[test]
fn commits_leave_no_versions_of_the_row_of_the_queue() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let mut server = servers.serve(&url, &["--allow-async", "--takeover-after", "60"]);
    let mut client = server.connect().unwrap();
    for _ in 0..300 {
        put(&mut client, "job");
    }
    let seconds = figure_of_stats(&mut client, "uptime").parse::<u64>().unwrap();
    // The statistics of a session are complete when it has ended.
    server.stop(Signal::TERM).unwrap();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'beanstalkd'";
    cluster.wait_for(sessions, "0").unwrap();
    let updates = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'queue'";
    let updates = cluster.query(updates).unwrap().parse::<u64>().unwrap();
    assert!((2..seconds + 10).contains(&updates), "{updates} versions in {seconds} s");
}

#[test]
fn a_large_backlog_is_committed_in_several_transactions() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let flags = ["--allow-async", "-s", "67108864", "-z", "2000000", &metrics_flag(&servers)];
    let server = servers.serve(&url, &flags);
    let mut clients: Vec<_> = (0..10).map(|_| server.connect().unwrap()).collect();
    put(&mut clients[0], "the first file is there");
    cluster.pause();
    let large = format!("put 0 0 100 1500000\r\n{}\r\n", "x".repeat(1_500_000));
    clients.iter_mut().for_each(|client| client.send(large.as_bytes()).unwrap());
    wait_for_jobs(&servers, 11);
    cluster.resume();
    for client in &mut clients {
        assert!(client.read_reply().unwrap().starts_with(b"INSERTED "));
    }
    let largest = "SELECT max(bytes) FROM \
                   (SELECT sum(length(bytes)) AS bytes FROM beanstalkd.log GROUP BY xmin::text) AS each";
    let largest = cluster.query(largest).unwrap().parse::<u64>().unwrap();
    assert!(largest < (4 << 20) + 2_000_000, "{largest} bytes in one transaction");
}

#[test]
fn the_space_of_deleted_rows_is_used_again() {
    let Some(installation) = installation() else { return };
    // Only the server vacuums.
    let cluster = Cluster::start_with(&installation, "autovacuum = off\n").unwrap();
    let (url, servers) = (cluster.url("mail"), Servers::new());
    let server = servers.serve(&url, &["--allow-async", "-s", "4194304", "-z", "1048576"]);
    let mut client = server.connect().unwrap();
    let figure = |sql: &str| cluster.query(sql).unwrap().parse::<u64>().unwrap();
    let vacuums = "SELECT coalesce(sum(vacuum_count), 0) FROM pg_stat_user_tables WHERE relname = 'log'";
    let body = "x".repeat(1_000_000);
    let mut rows = 0;
    for done in 0..4 {
        let start = Instant::now();
        while figure(vacuums) == done {
            assert!(start.elapsed() < PATIENCE, "no vacuum after {rows} rows");
            let id = put(&mut client, &body);
            client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
            rows += 125;
        }
    }
    let of_stats = |key: &str| figure_of_stats(&mut server.connect().unwrap(), key).parse::<u64>().unwrap();
    assert_eq!((of_stats("store-epoch"), of_stats("store-reconnects")), (1, 0));
    assert!(of_stats("store-commits") >= rows / 125 && of_stats("store-table-bytes") > 0);
    let pages = figure("SELECT pg_relation_size('beanstalkd.log') / 8192");
    assert!(pages * 2 < rows, "{pages} pages for {rows} rows");
}

#[test]
fn a_damaged_log_is_refused_and_recovered_with_what_was_cut_off_kept() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let mut server = servers.serve(&url, &["--allow-async"]);
    let mut client = server.connect().unwrap();
    let ids = [put(&mut client, "first"), put(&mut client, "second"), put(&mut client, "third")];
    server.stop(Signal::TERM).unwrap();
    let damage =
        "UPDATE beanstalkd.log SET bytes = overlay(bytes PLACING 'secunda' FROM position('second' IN bytes))
        WHERE position('second' IN bytes) > 0";
    cluster.query(damage).unwrap();
    assert!(!servers.run(&["--check", &url]).0);
    let mut refused = servers.launch(&url, &["--allow-async"]);
    assert_eq!(refused.wait().code(), Some(65));
    assert!(refused.log().contains("the binlog is damaged"), "{}", refused.log());
    let mut server = servers.serve(&url, &["--allow-async", "--recover"]);
    let mut client = server.connect().unwrap();
    assert!(has(&mut client, ids[0], "first") && !has(&mut client, ids[1], "sec"));
    assert_ne!(cluster.query("SELECT count(*) FROM beanstalkd.lost").unwrap(), "0");
    // The files that have a job: none of their records can be read. Compaction may have made a second one.
    server.stop(Signal::TERM).unwrap();
    let damage = "UPDATE beanstalkd.log SET bytes = decode(repeat('a5', length(bytes)), 'hex')
        WHERE file IN (SELECT file FROM beanstalkd.log WHERE position('first' IN bytes) > 0)";
    cluster.query(damage).unwrap();
    for arguments in [&["--allow-async", "--recover"][..], &["--allow-async"]] {
        let mut server = servers.serve(&url, arguments);
        assert!(!has(&mut server.connect().unwrap(), ids[0], "first"));
        server.stop(Signal::TERM).unwrap();
    }
}

#[test]
fn tables_of_another_version_are_refused() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    servers.use_once(&url);
    cluster.query("UPDATE beanstalkd.version SET version = 2").unwrap();
    let mut refused = servers.launch(&cluster.url("other"), &["--allow-async"]);
    assert_eq!(refused.wait().code(), Some(10));
    assert!(refused.log().contains("version 2, expected 1"), "{}", refused.log());
}
