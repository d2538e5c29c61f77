//! The settings that SIGHUP changes, and those that it keeps.

use beanstalkd_testkit::panicking::Server;
use beanstalkd_testkit::tls::{Authority, Leaf};
use rustix::process::Signal;

use crate::{TlsServer, open};

const DONE: &str = "SIGHUP: the certificates were read again";
const REFUSED: &str = "SIGHUP: refused --tls-";

#[test]
fn new_connections_get_the_new_certificate_and_the_others_stay() {
    let server = TlsServer::start(&[]);
    let settings = server.settings(None);
    let shown = || {
        let stream = open(server.address, &settings).unwrap();
        stream.conn.peer_certificates().unwrap()[0].clone()
    };
    let mut client = server.connect();
    client.put(0, 60, b"x");
    let old = shown();
    let renewed = server.authority.issue(Leaf { serial: 2, ..Leaf::of("localhost") });
    server.replace_identity(&renewed);
    assert_eq!(shown(), old, "nothing changes before the signal");
    server.server.reload(DONE);
    assert_eq!(shown(), renewed.certificate);
    assert_eq!(client.reserve("reserve"), 1, "the connection is the same");
}

#[test]
fn bad_files_change_nothing_and_the_log_says_why() {
    let server = TlsServer::start(&[]);
    let foreign = Authority::new("another").issue(Leaf::of("localhost"));
    let key = std::fs::read(server.file("key.pem")).unwrap();
    std::fs::write(server.file("key.pem"), foreign.key_pem()).unwrap();
    server.server.reload(REFUSED);
    std::fs::remove_file(server.file("key.pem")).unwrap();
    server.server.reload(REFUSED);
    server.serves(&server.settings(None)).unwrap();
    let log = server.server.log();
    assert!(log.contains("this is not the key of the first certificate in --tls-cert"), "{log}");
    assert!(log.contains("key.pem: No such file or directory"), "{log}");
    assert!(!log.contains("certificates were read again"), "{log}");
    std::fs::write(server.file("key.pem"), key).unwrap();
    server.server.reload(DONE);
}

/// With a ticket from before the reload, the server would accept a client without checking its certificate again.
#[test]
fn a_client_revoked_by_a_reload_cannot_resume_its_session() {
    let clients = Authority::new("clients");
    let files = [("tls-client-ca", clients.pem()), ("tls-crl", clients.revoke(&[], 4000))];
    let files = files.each_ref().map(|(flag, pem)| (*flag, pem.as_str()));
    let server = TlsServer::start_with(&files, &[]);
    let worker = server.settings(Some(&clients.issue(Leaf { serial: 7, ..Leaf::of("worker") })));
    server.serves(&worker).unwrap();
    server.serves(&worker).unwrap();
    std::fs::write(server.file("tls-crl"), clients.revoke(&[7], 4000)).unwrap();
    server.server.reload(DONE);
    server.serves(&worker).unwrap_err();
}

#[test]
fn without_tls_the_signal_ends_the_server_as_it_ends_c() {
    // Under `nohup`, the tests ignore the signal, and so would the server.
    let mut server = Server::start_in(&["env", "--default-signal=HUP"], &[]);
    server.signal(Signal::HUP);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&server.end()), Some(1));
}
