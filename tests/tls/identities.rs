//! Which clients the server accepts.

use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::tls::{Authority, Leaf};
use rustls::version::{TLS12, TLS13};

use crate::TlsServer;

/// A server for the clients of `clients` alone.
fn start(clients: &Authority, crl: Option<&str>) -> TlsServer {
    let pem = clients.pem();
    let mut files = vec![("tls-client-ca", pem.as_str())];
    files.extend(crl.map(|crl| ("tls-crl", crl)));
    TlsServer::start_with(&files, &[])
}

#[test]
fn without_an_authority_every_client_gets_in() {
    let server = TlsServer::start(&[]);
    for version in [&TLS12, &TLS13] {
        server.serves(&server.authority.client(None, &[version])).unwrap();
    }
}

#[test]
fn only_clients_of_the_authority_get_in() {
    let clients = Authority::new("clients");
    let server = start(&clients, None);
    let good = clients.issue(Leaf::of("worker"));
    let foreign = Authority::new("clients").issue(Leaf::of("worker"));
    let expired = clients.issue(Leaf { until: 2020, ..Leaf::of("worker") });
    for version in [&TLS12, &TLS13] {
        let settings = |identity| server.authority.client(identity, &[version]);
        server.serves(&settings(Some(&good))).unwrap();
        server.serves(&settings(None)).unwrap_err();
        server.serves(&settings(Some(&foreign))).unwrap_err();
        server.serves(&settings(Some(&expired))).unwrap_err();
    }
    let line = "warn TLS: closed the connection of 127.0.0.1:";
    wait_until("the log says so", || server.server.log().contains(line));
}

#[test]
fn keys_of_all_kinds_are_taken() {
    let clients = Authority::new("clients");
    let server = start(&clients, None);
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let identity = clients.issue(Leaf { algorithm, ..Leaf::of("worker") });
        server.serves(&server.settings(Some(&identity))).unwrap();
    }
}

#[test]
fn a_revoked_client_does_not_get_in() {
    let clients = Authority::new("clients");
    let server = start(&clients, Some(&clients.revoke(&[7], 4000)));
    let good = clients.issue(Leaf { serial: 8, ..Leaf::of("worker") });
    let revoked = clients.issue(Leaf { serial: 7, ..Leaf::of("worker") });
    server.serves(&server.settings(Some(&good))).unwrap();
    server.serves(&server.settings(Some(&revoked))).unwrap_err();
}

#[test]
fn an_outdated_revocation_list_still_counts_and_gives_a_warning() {
    let clients = Authority::new("clients");
    let server = start(&clients, Some(&clients.revoke(&[7], 2021)));
    assert!(server.server.log().contains("a newer list was due at 2021-01-01T00:00:00Z"));
    let good = clients.issue(Leaf { serial: 8, ..Leaf::of("worker") });
    let revoked = clients.issue(Leaf { serial: 7, ..Leaf::of("worker") });
    server.serves(&server.settings(Some(&good))).unwrap();
    server.serves(&server.settings(Some(&revoked))).unwrap_err();
}
