//! Which files the server starts with.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;

use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::panicking::{Client, is_root};
use beanstalkd_testkit::server::{free_address, run_to_end};
use beanstalkd_testkit::server_under_test;
use beanstalkd_testkit::tls::{Authority, Leaf, pem};
use rustls::version::{TLS12, TLS13};

use crate::{TlsServer, text};

/// The message of a server that does not start with these files.
fn refusal(files: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address().unwrap();
    let mut arguments: Vec<OsString> = vec!["-l".into(), format!("tls://{address}").into()];
    for (flag, content) in files {
        let path = directory.path().join(flag);
        if *content != "missing" {
            std::fs::write(&path, content).unwrap();
        }
        arguments.extend([format!("--{flag}").into(), path.into()]);
    }
    let ended = run_to_end(&server_under_test(), &arguments, directory.path()).unwrap();
    assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
    ended.stderr
}

#[test]
fn each_file_that_cannot_be_used_is_named_with_the_reason() {
    let authority = Authority::new("authority");
    let identity = authority.issue(Leaf::of("localhost"));
    let (certificate, key) = (identity.certificate_pem(), identity.key_pem());
    let other = authority.issue(Leaf::of("localhost")).key_pem();
    let encrypted = pem("ENCRYPTED PRIVATE KEY", b"x");
    let garbage = pem("CERTIFICATE", b"x");
    let cut = &certificate[..certificate.len() / 2];
    let refusals: &[(&[(&str, &str)], &str)] = &[
        (&[("tls-cert", "missing"), ("tls-key", &key)], "tls-cert: No such file or directory"),
        (&[("tls-cert", &certificate), ("tls-key", "missing")], "tls-key: No such file or directory"),
        (
            &[("tls-cert", ""), ("tls-key", &key)],
            "tls-cert: found no certificate in it, expected a file in PEM",
        ),
        (
            &[("tls-cert", cut), ("tls-key", &key)],
            "tls-cert: expected a file in PEM format: found no -----END CERTIFICATE-----",
        ),
        (
            &[("tls-cert", "-----BEGIN CERTIFICATE\n"), ("tls-key", &key)],
            "tls-cert: expected a file in PEM format: found -----BEGIN CERTIFICATE without ----- at its end",
        ),
        (&[("tls-cert", &garbage), ("tls-key", &key)], "tls-cert: cannot be used: "),
        (&[("tls-cert", &certificate), ("tls-key", &certificate)], "tls-key: found no private key in it"),
        (
            &[("tls-cert", &certificate), ("tls-key", &other)],
            "tls-key: this is not the key of the first certificate",
        ),
        (
            &[("tls-cert", &certificate), ("tls-key", &encrypted)],
            "tls-key: cannot be used: the key has a passphrase",
        ),
        (
            &[("tls-cert", &certificate), ("tls-key", &key), ("tls-client-ca", &key)],
            "tls-client-ca: found no certificate in it",
        ),
        (
            &[
                ("tls-cert", &certificate),
                ("tls-key", &key),
                ("tls-client-ca", &certificate),
                ("tls-crl", &key),
            ],
            "tls-crl: found no revocation list (X509 CRL) in it",
        ),
    ];
    for (files, expected) in refusals {
        let said = refusal(files);
        assert!(said.contains(expected), "expected {expected:?} in {said}");
    }
}

#[test]
fn warnings_about_certificates_and_keys_are_in_the_log() {
    let authority = Authority::new("authority");
    let expired = authority.issue(Leaf { until: 2020, ..Leaf::of("localhost") });
    let directory = tempfile::tempdir().unwrap();
    let flags = expired.write(directory.path()).unwrap();
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let address = format!("tls://{}", free_address().unwrap());
    flags.extend(["--listen", &address]);
    let key = directory.path().join("key.pem");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let log = beanstalkd_testkit::panicking::Server::start(&flags).log();
    assert!(log.contains("cert.pem: expired at 2020-01-01T00:00:00Z; clients will refuse it"), "{log}");
    assert!(log.contains("key.pem: everybody on this machine can read it (chmod o-r)"), "{log}");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).unwrap();
    let log = beanstalkd_testkit::panicking::Server::start(&flags).log();
    assert!(!log.contains("everybody"), "{log}");
    assert!(log.contains(&format!("listening on {address}")), "{log}");
}

/// The keys and forms that `openssl` makes, RSA among them.
#[test]
fn keys_of_all_kinds_and_forms_are_taken() {
    if !has_tool("openssl") {
        return;
    }
    let server = TlsServer::start(&[]);
    let (key, certificate) = (server.file("key.pem"), server.file("cert.pem"));
    let openssl = |arguments: &[&str]| {
        let status = std::process::Command::new("openssl").args(arguments).output().unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    };
    let kinds: &[(&[&str], &str)] = &[
        (&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "PRIVATE KEY"),
        (&["genrsa", "-traditional", "2048"], "RSA PRIVATE KEY"),
        (&["ecparam", "-name", "prime256v1", "-genkey", "-noout"], "EC PRIVATE KEY"),
        (&["genpkey", "-algorithm", "ED25519"], "PRIVATE KEY"),
    ];
    for (make, label) in kinds {
        openssl(&[&make[..1], &["-out", text(&key)], &make[1..]].concat());
        assert!(std::fs::read_to_string(&key).unwrap().contains(&format!("BEGIN {label}")), "{label}");
        openssl(&[
            "req",
            "-x509",
            "-new",
            "-key",
            text(&key),
            "-out",
            text(&certificate),
            "-days",
            "9",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        server.server.reload("SIGHUP: the certificates were read again");
        let mut roots = rustls::RootCertStore::empty();
        let pem = std::fs::read(&certificate).unwrap();
        roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(&pem).unwrap()).unwrap();
        for version in rustls::ALL_VERSIONS {
            let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
            let client = rustls::ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            server.serves(&std::sync::Arc::new(client)).unwrap();
        }
    }
}

/// A client that knows the root alone needs the certificates between it and the server.
#[test]
fn all_certificates_of_a_chain_are_sent() {
    let server = TlsServer::start(&[]);
    let intermediate = server.authority.intermediate("intermediate");
    let identity = intermediate.issue(Leaf::of("localhost"));
    server.replace_identity(&identity);
    std::fs::write(server.file("cert.pem"), identity.certificate_pem() + &intermediate.pem()).unwrap();
    server.server.reload("the certificates were read again");
    for version in [&TLS12, &TLS13] {
        server.serves(&server.authority.client(None, &[version])).unwrap();
    }
}

#[test]
fn listeners_with_and_without_tls_have_the_same_jobs() {
    let others = [free_address().unwrap(), free_address().unwrap()];
    let [second, plain] = [format!("tls://{}", others[0]), others[1].to_string()];
    let server = TlsServer::start(&["--listen", &second, "--listen", &plain]);
    let settings = server.settings(None);
    let mut clients = vec![server.connect(), server.server.connect()];
    clients.push(Client::over_tls(others[0], &settings).unwrap());
    clients.push(Client::to_port(others[1].port()).unwrap());
    for (client, id) in clients.iter_mut().zip(1..) {
        assert_eq!(client.put(0, 60, b"x"), id);
    }
    for (client, id) in clients.iter_mut().rev().zip(1..) {
        assert_eq!(client.reserve("reserve-with-timeout 0"), id);
    }
}

#[test]
fn rules_are_checked_without_a_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.toml");
    let check = |rules: &str, identity: &[&str]| {
        std::fs::write(&path, rules).unwrap();
        let arguments = [&["--check-access", text(&path)], identity].concat();
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let ended = run_to_end(&server_under_test(), &arguments, directory.path()).unwrap();
        (ended.status.code(), ended.stdout, ended.stderr)
    };
    let rules = "[identities.a]\nwork = [\"w*\"]\n[identities.b]\nobserve = [\"*\"]\n";
    let (code, said, _) = check(rules, &["a"]);
    assert_eq!((code, said.as_str()), (Some(0), "a:\n  work: w* (reserves and finishes jobs)\n"));
    let (code, said, _) = check(rules, &[]);
    assert!(
        code == Some(0) && said.contains("b:\n  observe: *") && said.contains("(strangers):\n  nothing\n")
    );
    let (code, _, why) = check(rules, &["c"]);
    assert!(code == Some(1) && why.contains("the file has no identity of this name"), "{why}");
    let (code, _, why) = check("[identities.a]\nwrok = []\n", &[]);
    assert!(code == Some(1) && why.contains("line 2, column 1: unknown key \"wrok\""), "{why}");
}

#[test]
fn the_start_warns_of_files_that_a_reload_could_not_read() {
    if !is_root() {
        return;
    }
    let rules = "[identities.team]\nunix-users = [0]\nproduce = [\"*\"]\n";
    // The directory is for root alone.
    let server = TlsServer::start_with(&[("access", rules)], &["-u", "nobody"]);
    let log = server.server.log();
    for flag in ["--tls-cert", "--tls-key", "--access"] {
        let warned =
            log.lines().any(|line| line.contains(flag) && line.contains("user nobody cannot read it"));
        assert!(warned, "{flag}: {log}");
    }
}
