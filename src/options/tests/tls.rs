//! Tests of the addresses and files of TLS.

use super::*;

#[test]
fn addresses_for_tls_need_a_certificate_and_the_files_need_an_address() {
    let files = ["--tls-cert", "c", "--tls-key", "k"];
    let with = |line: &[&'static str]| [&files, line].concat();
    let tls = |host: Option<&str>, port: &str| ListenAddress::Tcp {
        host: host.map(str::to_owned),
        port: port.to_owned(),
        is_tls: true,
    };
    let table = [
        ("tls://10.0.0.1:11301", tls(Some("10.0.0.1"), "11301")),
        ("tls://[::1]:11301", tls(Some("::1"), "11301")),
        ("tls://:11301", tls(None, "11301")),
        ("tls://queue.example", tls(Some("queue.example"), "11300")),
    ];
    for (argument, address) in table {
        let options = serve(&with(&["--listen", argument]));
        assert_eq!((options.listen.own, options.listen.further), (None, vec![address]), "{argument}");
    }
    let sites = serve(&with(&["--metrics", "tls://h:9130", "--admin", "tls://[::1]:11380"]));
    assert_eq!(sites.metrics.unwrap().address, tls(Some("h"), "9130"));
    assert_eq!(sites.admin.unwrap().address, tls(Some("::1"), "11380"));
    let options = serve(&with(&["-l", "tls://h", "-p", "7", "--tls-client-ca", "a", "--tls-crl", "r"]));
    assert_eq!(options.listen.own, Some(tls(Some("h"), "7")));
    let [certificate, key] = ["c", "k"].map(PathBuf::from);
    let [client_ca, crl] = ["a", "r"].map(|name| Some(PathBuf::from(name)));
    assert_eq!(options.listen.tls, Some(TlsFiles { certificate, key, client_ca, crl }));
    let listen: &[&str] = &["--listen", "tls://[::1]:7"];
    for (line, message) in [
        (listen.to_vec(), "tls://[::1]:7 needs --tls-cert FILE"),
        ([listen, &files[..2]].concat(), "tls://[::1]:7 needs --tls-key FILE"),
        ([listen, &files[2..]].concat(), "tls://[::1]:7 needs --tls-cert FILE"),
        (vec!["--admin", "tls://h:1"], "tls://h:1 needs --tls-cert FILE"),
        (with(&["--metrics", "tls://h"]), "--metrics 'tls://h': expected an address with a port"),
        (files.to_vec(), "--tls-cert does nothing without an address tls://HOST:PORT"),
        (vec!["--tls-client-ca", "a"], "--tls-client-ca does nothing without an address tls://HOST:PORT"),
        (
            [listen, &files, &["--tls-crl", "r"]].concat(),
            "--tls-crl does nothing without --tls-client-ca FILE",
        ),
        (with(&["--listen", "tls://"]), "--listen 'tls://': expected an address"),
        (with(&["--listen", "tls://h:65536"]), "--listen 'tls://h:65536': expected an address"),
        (vec!["--tls-cert", ""], "--tls-cert '': expected a file"),
    ] {
        assert!(refused(&line).starts_with(message), "{line:?}: {}", refused(&line));
    }
}
