//! Logging in: passwords, certificates, and a role that can do no more than it needs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;

use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::postgres::{DATABASE, PASSWORD, ROLE};
use beanstalkd_testkit::server::{Server, Transport};
use beanstalkd_testkit::tls;

use crate::servers::{has, mail_queue, ours, put};

/// The statements of the manual, for a role that does not own the tables.
const GRANTS: &str = "
    GRANT USAGE ON SCHEMA beanstalkd TO least;
    GRANT SELECT ON beanstalkd.version TO least;
    GRANT SELECT, INSERT, UPDATE ON beanstalkd.queue TO least;
    GRANT SELECT, INSERT, UPDATE, DELETE ON beanstalkd.file, beanstalkd.log TO least;
    GRANT SELECT, INSERT, UPDATE ON beanstalkd.lost TO least;";

#[test]
fn the_password_is_nowhere_to_be_seen() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    for from_file in [true, false] {
        let mut wrapper: Vec<OsString> = ["env", "RUST_LOG=trace"].map(OsString::from).into();
        let mut flags =
            ["-b", &url, "--allow-async", "--takeover-after", "1", "-VV"].map(str::to_owned).to_vec();
        flags.extend(["--metrics", "unix:{dir}/metrics"].map(str::to_owned));
        if from_file {
            flags.extend(["--store-password-file".to_owned(), servers.password_file()]);
        } else {
            wrapper.push(format!("PGPASSWORD={PASSWORD}").into());
        }
        let server = Server::start_wrapped(&wrapper, ours(), Transport::Unix, &flags).unwrap();
        let mut client = server.connect().unwrap();
        put(&mut client, "job");
        let stats = String::from_utf8(client.ask(b"stats\r\n").unwrap()).unwrap();
        let words = fs::read_to_string(format!("/proc/{}/cmdline", server.process().0)).unwrap();
        let metrics = server.directory().join("metrics");
        let mut texts = vec![stats, words, server.stderr()];
        for path in ["/metrics", "/api/v1/server", "/"] {
            let (head, body) = http::get(UnixStream::connect(&metrics).unwrap(), path).unwrap();
            assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
            texts.extend([head, body]);
        }
        for text in texts {
            assert!(!text.contains(PASSWORD), "{text}");
        }
    }
    let secret = format!("postgresql://{ROLE}:hidden@{}/{DATABASE}?queue=mail", cluster.address());
    let (done, said) = servers.run(&["-b", &secret]);
    assert!(!done && said.contains("--store-password-file") && !said.contains("hidden"), "{said}");
    fs::write(servers.password_file(), "wrong\n").unwrap();
    let mut refused = servers.launch(&cluster.url("other"), &["--allow-async"]);
    assert_eq!(refused.wait().code(), Some(10));
    let log = refused.log();
    assert!(log.contains("password authentication failed") && !log.contains("wrong"), "{log}");
    fs::write(servers.password_file(), "\n").unwrap();
    assert!(!servers.run(&["--check", &url]).0);
}

#[test]
fn the_certificate_of_the_database_is_verified() {
    let Some((mut cluster, plain, servers)) = mail_queue() else { return };
    cluster.require_tls(tls::server_identity()).unwrap();
    let roots = servers.directory().join("roots.pem");
    let plain = plain.replace("127.0.0.1", "localhost");
    let url = format!("{plain}&sslmode=verify-full&sslrootcert={}", roots.display());
    fs::write(&roots, tls::authority().pem()).unwrap();
    let server = servers.serve(&url, &["--allow-async"]);
    put(&mut server.connect().unwrap(), "encrypted");
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'beanstalkd'";
    assert_eq!(cluster.query(encrypted).unwrap(), "t");
    drop(server);
    fs::write(&roots, tls::Authority::new("another").pem()).unwrap();
    let (done, said) = servers.run(&["--check", &url]);
    assert!(!done && said.contains("invalid peer certificate"), "{said}");
    let (done, said) = servers.run(&["--check", &cluster.url("mail")]);
    assert!(!done && said.contains("no pg_hba.conf entry"), "{said}");
}

#[test]
fn a_role_needs_no_more_than_the_documented_rights() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    // The owner of the schema makes the tables.
    servers.use_once(&cluster.url("first"));
    cluster.query(&format!("CREATE ROLE least LOGIN PASSWORD '{PASSWORD}'")).unwrap();
    cluster.query(&format!("GRANT CONNECT ON DATABASE {DATABASE} TO least")).unwrap();
    cluster.query(GRANTS).unwrap();
    let url = url.replace(ROLE, "least");
    let mut server = servers.serve(&url, &["--allow-async", "-s", "65536"]);
    let mut client = server.connect().unwrap();
    for _ in 0..20 {
        let id = put(&mut client, &"x".repeat(20_000));
        client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    }
    // It may not vacuum; the log says so once, and it does no harm.
    wait_until("the log says that the tables are left to autovacuum", || {
        let id = put(&mut client, &"x".repeat(60_000));
        client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
        server.stderr().contains("are left to autovacuum")
    });
    let last = put(&mut client, "last");
    server.restart(rustix::process::Signal::TERM).unwrap();
    assert!(has(&mut server.connect().unwrap(), last, "last"));
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/binlog.md")).unwrap();
    for line in GRANTS.lines().map(|line| line.trim().replace("TO least", "TO mail")) {
        assert!(manual.contains(&line), "doc/binlog.md does not have {line}");
    }
}
