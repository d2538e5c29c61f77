//! Servers with TLS.

use beanstalkd_testkit::panicking::Server;
use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::tls::{Authority, Leaf};

use crate::support::ctl;

#[test]
fn servers_with_tls_are_reached_with_the_files_that_the_options_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let authority = Authority::new("authority");
    let [server, worker] = ["localhost", "worker"].map(|name| authority.issue(Leaf::of(name)));
    let (ca, other) = (file("ca", &authority.pem()), file("other", &Authority::new("other").pem()));
    let (server_cert, server_key) =
        (file("s.pem", &server.certificate_pem()), file("s.key", &server.key_pem()));
    let (cert, key) = (file("w.pem", &worker.certificate_pem()), file("w.key", &worker.key_pem()));
    let listen = free_address().unwrap();
    let tls = format!("tls://{listen}");
    let flags =
        ["--listen", &tls, "--tls-cert", &server_cert, "--tls-key", &server_key, "--tls-client-ca", &ca];
    let _server = Server::start(&flags);
    let address = listen.to_string();
    let shown = ["--tls", "--ca", &ca, "--cert", &cert, "--key", &key];
    ctl(&address, &[&["put", "mail", "hello"], &shown[..]].concat()).ends_with(0);
    let tubes = ctl(&address, &[&["tubes"], &shown[..]].concat()).ends_with(0);
    assert!(tubes.out.contains("mail"), "{tubes:?}");
    // Without a certificate, with another authority, and without TLS.
    ctl(&address, &["tubes", "--tls", "--ca", &ca]).ends_with(3);
    ctl(&address, &["tubes", "--tls", "--ca", &other, "--cert", &cert, "--key", &key]).ends_with(3);
    ctl(&address, &["tubes", "--timeout", "5s"]).ends_with(3);
    for wrong in [vec!["--tls"], vec!["--ca", &ca], vec!["--tls", "--ca", &ca, "--cert", &cert]] {
        ctl(&address, &[&["tubes"], &wrong[..]].concat()).ends_with(2);
    }
    let missing = ctl(&address, &["tubes", "--tls", "--ca", "/missing"]).ends_with(2);
    assert!(missing.err.contains("/missing: No such file or directory"), "{missing:?}");
}
