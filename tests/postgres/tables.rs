//! What stands in the tables: bounded under load, repaired, and of one version.

use std::time::Instant;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::postgres::{Cluster, installation};
use rustix::process::Signal;

use crate::servers::{Password, figure as figure_of_stats, has, put, wait_until};

#[test]
fn the_rows_of_removed_files_go() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    let server = password.serve(&url, &["--allow-async", "-s", "65536"]);
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

#[test]
fn the_space_of_deleted_rows_is_used_again() {
    let Some(installation) = installation() else { return };
    // The server alone has to see to it.
    let cluster = Cluster::start_with(&installation, "autovacuum = off\n").unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    let server = password.serve(&url, &["--allow-async", "-s", "4194304", "-z", "1048576"]);
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
    assert!(of_stats("store-commits") >= rows / 125 && of_stats("store-table-bytes") > 1 << 24);
    let pages = figure("SELECT pg_relation_size('beanstalkd.log') / 8192");
    assert!(pages * 2 < rows, "{pages} pages for {rows} rows");
}

#[test]
fn a_damaged_log_is_refused_and_recovered_with_what_was_cut_off_kept() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let (url, password) = (cluster.url("mail"), Password::new());
    let mut server = password.serve(&url, &["--allow-async"]);
    let mut client = server.connect().unwrap();
    let ids = [put(&mut client, "first"), put(&mut client, "second"), put(&mut client, "third")];
    server.stop(Signal::TERM).unwrap();
    let damage =
        "UPDATE beanstalkd.log SET bytes = overlay(bytes PLACING 'secunda' FROM position('second' IN bytes))
        WHERE position('second' IN bytes) > 0";
    cluster.query(damage).unwrap();
    assert!(!password.run(&["--check", &url]).0);
    let mut refused = password.launch(&url, &["--allow-async"], "refused");
    assert_eq!(refused.wait().code(), Some(65));
    assert!(refused.log().contains("the binlog is damaged"), "{}", refused.log());
    let server = password.serve(&url, &["--allow-async", "--recover"]);
    let mut client = server.connect().unwrap();
    assert!(has(&mut client, ids[0], "first") && !has(&mut client, ids[1], "sec"));
    assert_ne!(cluster.query("SELECT count(*) FROM beanstalkd.lost").unwrap(), "0");
}

#[test]
fn tables_of_another_version_are_refused() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let password = Password::new();
    password.use_once(&cluster.url("mail"));
    cluster.query("UPDATE beanstalkd.version SET version = 2").unwrap();
    let mut refused = password.launch(&cluster.url("other"), &["--allow-async"], "refused");
    assert_eq!(refused.wait().code(), Some(10));
    assert!(refused.log().contains("version 2, expected 1"), "{}", refused.log());
}
