//! The figures of `stats` and `/metrics` about the database.

use std::os::unix::net::UnixStream;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::postgres::{Pair, installation};
use beanstalkd_testkit::server::Server;

use crate::servers::{Servers, mail_queue, put};

/// The keys of `stats`, and their series.
const FIGURES: [(&str, &str); 7] = [
    ("store-epoch", "beanstalkd_store_epoch"),
    ("store-commits", "beanstalkd_store_commits_total"),
    ("store-reconnects", "beanstalkd_store_reconnects_total"),
    ("store-silence", "beanstalkd_store_silence_seconds"),
    ("store-lease", "beanstalkd_store_lease"),
    ("store-replicated", "beanstalkd_store_replicated"),
    ("store-table-bytes", "beanstalkd_store_table_bytes"),
];

/// Keys or series with their values, of those about the store.
type Figures = Vec<(String, String)>;

fn stats(server: &Server) -> Figures {
    let reply = String::from_utf8(server.connect().unwrap().ask(b"stats\r\n").unwrap()).unwrap();
    let lines = reply.lines().filter(|line| line.starts_with("store-"));
    lines.filter_map(|line| line.split_once(": ")).map(|(key, value)| (key.into(), value.into())).collect()
}

/// The metrics of the server with [`metrics_flag`].
pub fn scrape(servers: &Servers) -> String {
    get(servers, "/metrics")
}

/// Its response to a request for `path`.
pub fn get(servers: &Servers, path: &str) -> String {
    let stream = UnixStream::connect(servers.directory().join("metrics")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    http::get(stream, path).unwrap().1
}

fn metrics(servers: &Servers) -> Figures {
    let scrape = scrape(servers);
    let lines = scrape.lines().filter(|line| line.starts_with("beanstalkd_store_"));
    lines.filter_map(|line| line.split_once(' ')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// The flag for metrics in the directory of the servers.
pub fn metrics_flag(servers: &Servers) -> String {
    format!("--metrics=unix:{}", servers.directory().join("metrics").display())
}

fn value(figures: &Figures, name: &str) -> u64 {
    let found = figures.iter().find(|(key, _)| key == name);
    found.unwrap_or_else(|| panic!("{figures:?} without {name}")).1.parse().unwrap()
}

#[test]
fn stats_and_metrics_have_the_figures_of_a_database() {
    let Some(installation) = installation() else { return };
    let pair = Pair::start(&installation).unwrap();
    let (url, servers) = (pair.primary.url("mail"), Servers::new());
    let flag = metrics_flag(&servers);
    let server = servers.serve(&url, &[&flag]);
    put(&mut server.connect().unwrap(), "job");
    let (keys, series) = (stats(&server), metrics(&servers));
    let names = |figures: &Figures| figures.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&keys), FIGURES.map(|(key, _)| key));
    assert_eq!(names(&series), FIGURES.map(|(_, name)| name));
    assert!(keys.contains(&("store-replicated".into(), "true".into())), "{keys:?}");
    let of = |name: &str| value(&metrics(&servers), name);
    assert_eq!((of("beanstalkd_store_replicated"), of("beanstalkd_store_table_bytes")), (1, 0));
    assert_eq!((of("beanstalkd_store_epoch"), of("beanstalkd_store_reconnects_total")), (1, 0));
    let commits = of("beanstalkd_store_commits_total");
    assert!(commits >= value(&keys, "store-commits"), "it was read later");
    put(&mut server.connect().unwrap(), "another");
    assert!(of("beanstalkd_store_commits_total") > commits);

    pair.primary.pause();
    wait_until("the silence of the database shows", || of("beanstalkd_store_silence_seconds") > 0);
    pair.primary.resume();
    wait_until("the silence is over", || of("beanstalkd_store_silence_seconds") == 0);
    let before = (of("beanstalkd_store_epoch"), of("beanstalkd_store_reconnects_total"));
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'beanstalkd'";
    pair.primary.query(end).unwrap();
    put(&mut server.connect().unwrap(), "through a new connection");
    assert!(of("beanstalkd_store_epoch") > before.0);
    assert!(of("beanstalkd_store_reconnects_total") > before.1);
}

#[test]
fn a_database_that_need_not_replicate_shows_as_such_and_a_directory_has_no_figures() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let flag = metrics_flag(&servers);
    let server = servers.serve(&url, &["--allow-async", &flag]);
    assert!(stats(&server).contains(&("store-replicated".into(), "false".into())));
    assert_eq!(value(&metrics(&servers), "beanstalkd_store_replicated"), 0);
    drop(server);
    let directory = servers.directory().join("log");
    std::fs::create_dir(&directory).unwrap();
    let server = servers.serve_directory_with(directory.to_str().unwrap(), &[&flag]);
    assert_eq!((stats(&server), metrics(&servers)), (Vec::new(), Vec::new()));
}
