//! The metrics of TLS.

use std::os::unix::net::UnixStream;

use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::tls::{Authority, Leaf};

use crate::TlsServer;

#[test]
fn the_metrics_count_handshakes_failures_connections_and_days() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics");
    let address = format!("unix:{}", path.display());
    let clients = Authority::new("clients");
    let server = TlsServer::start_with(&[("tls-client-ca", &clients.pem())], &["--metrics", &address]);
    let metric = |name: &str| {
        let (_, response) = http::get(UnixStream::connect(&path).unwrap(), "/metrics").unwrap();
        let line = response.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {response}")).parse::<i64>().unwrap()
    };
    let worker = server.settings(Some(&clients.issue(Leaf::of("worker"))));
    server.serves(&worker).unwrap();
    server.serves(&worker).unwrap();
    server.serves(&server.settings(None)).unwrap_err();
    drop(server.socket());
    let failures =
        |reason: &str| metric(&format!("beanstalkd_tls_handshake_failures_total{{reason=\"{reason}\"}}"));
    wait_until("the one that said nothing is gone", || failures("unfinished") == 1);
    assert_eq!(failures("no_certificate"), 1);
    assert_eq!(metric("beanstalkd_tls_handshakes_total{kind=\"full\"}"), 1);
    assert_eq!(metric("beanstalkd_tls_handshakes_total{kind=\"resumed\"}"), 1);
    assert!((500_000..800_000).contains(&metric("beanstalkd_tls_certificate_days_left")));
    wait_until("nobody is left", || metric("beanstalkd_tls_connections") == 0);
}
