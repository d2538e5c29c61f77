//! Servers with TLS.

use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::tls::{Authority, Leaf};
use beanstalkd_testkit::tls_server::TlsServer;

use crate::support::{command, ctl, text, write};

#[test]
fn servers_with_tls_are_reached_with_the_files_that_the_options_name() {
    let directory = tempfile::tempdir().unwrap();
    let clients = Authority::new("clients");
    let server = TlsServer::start_with(&[("tls-client-ca", &clients.pem())], &[]);
    let (address, ca) = (server.address.to_string(), server.file("ca.pem"));
    let ca = text(&ca);
    let other = write(directory.path(), "other", &Authority::new("other").pem());
    let [_, cert, _, key] = clients.issue(Leaf::of("worker")).write(directory.path()).unwrap();
    let shown = ["--tls", "--ca", ca, "--cert", &cert, "--key", &key];
    ctl(&address, &[&["put", "mail", "hello"], &shown[..]].concat()).ends_with(0);
    let tubes = ctl(&address, &[&["tubes"], &shown[..]].concat()).ends_with(0);
    assert!(tubes.out.contains("mail"), "{tubes:?}");
    // Without a certificate, with another authority, and without TLS.
    ctl(&address, &["tubes", "--tls", "--ca", ca]).ends_with(3);
    ctl(&address, &["tubes", "--tls", "--ca", &other, "--cert", &cert, "--key", &key]).ends_with(3);
    ctl(&address, &["tubes", "--timeout", "5s"]).ends_with(3);
    for wrong in [vec!["--ca", ca], vec!["--tls", "--ca", ca, "--cert", &cert]] {
        ctl(&address, &[&["tubes"], &wrong[..]].concat()).ends_with(2);
    }
    // From the environment, and with the authorities of the system: this authority is at first not among them, and then
    // it is.
    let mut tubes = command(&address, &["tubes"]);
    tubes.envs([("BEANSTALKD_TLS", "1"), ("BEANSTALKD_CERT", &cert), ("BEANSTALKD_KEY", &key)]);
    assert_eq!(tubes.env("BEANSTALKD_CA", ca).output().unwrap().status.code(), Some(0));
    assert_eq!(tubes.env("BEANSTALKD_TLS", "0").output().unwrap().status.code(), Some(3));
    let shown = ["tubes", "--tls", "--cert", &cert, "--key", &key];
    for (authorities, code) in [(&*other, 3), (ca, 0)] {
        let mut tubes = command(&address, &shown);
        tubes.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", authorities);
        assert_eq!(tubes.output().unwrap().status.code(), Some(code));
    }
    let missing = ctl(&address, &["tubes", "--tls", "--ca", "/missing"]).ends_with(2);
    assert!(missing.err.contains("/missing: No such file or directory"), "{missing:?}");
}

#[test]
fn tls_with_a_plain_port_and_the_other_way_round_are_reported_at_once() {
    let plain = free_address().unwrap().to_string();
    let server = TlsServer::start(&["--listen", &plain]);
    let (secret, ca) = (server.address.to_string(), server.file("ca.pem"));
    let ca = text(&ca);
    // No reply would come before this time-out, which is longer than the test may take.
    let wrong = ctl(&plain, &["tubes", "--timeout", "1h", "--tls", "--ca", ca]).ends_with(3);
    let no_tls = "speaks the protocol without TLS, and the connection uses TLS; leave out --tls\n";
    assert_eq!(wrong.err, format!("beanstalkctl: {plain} {no_tls}"));
    let wrong = ctl(&secret, &["tubes", "--timeout", "1h"]).ends_with(3);
    let tls = "this port speaks TLS, and the connection does not use it; connect with --tls\n";
    assert_eq!(wrong.err, format!("beanstalkctl: {secret}: {tls}"));
    // A server that only takes a long time for its handshake is waited for.
    let slow = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = slow.local_addr().unwrap().to_string();
    let silent = std::thread::spawn(move || {
        let first = slow.accept().unwrap();
        // The probe gets no answer, either.
        let probe = slow.accept().unwrap();
        drop(first);
        drop(probe);
    });
    let slow = ctl(&address, &["tubes", "--timeout", "1h", "--tls", "--ca", ca]).ends_with(3);
    assert!(!slow.err.contains("without TLS"), "{slow:?}");
    silent.join().unwrap();
}
