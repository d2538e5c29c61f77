//! Access rules with the real program: identities by certificate and by user, and other rules by SIGHUP.

use std::fs;
use std::io::{Read, Write};

use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::tls::{Authority, Leaf};
use rustix::process::{Signal, getuid};

use crate::{TlsServer, open};

/// The reply to `command` of a client that shows this certificate.
fn ask(server: &TlsServer, clients: &Authority, name: &str, command: &str) -> String {
    let identity = clients.issue(Leaf::of(name));
    let mut stream = open(server.address, &server.settings(Some(&identity))).unwrap();
    stream.write_all(format!("{command}\r\nquit\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// A server whose listener takes clients of `clients`, with these rules in its file `access`.
fn start(clients: &Authority, rules: &str) -> TlsServer {
    let pem = clients.pem();
    TlsServer::start_with(&[("tls-client-ca", &pem), ("access", rules)], &[])
}

fn reload(server: &TlsServer, rules: &str, outcome: &str) {
    fs::write(server.file("access"), rules).unwrap();
    let before = server.server.log().matches(outcome).count();
    server.server.signal(Signal::HUP);
    wait_until(outcome, || server.server.log().matches(outcome).count() > before);
}

/// The user of the tests, who may see everything.
fn operator() -> String {
    format!("[identities.operator]\nunix-users = [{}]\nobserve = [\"*\"]\n", getuid().as_raw())
}

#[test]
fn the_name_in_a_certificate_is_an_identity() {
    let clients = Authority::new("clients");
    let rules =
        format!("{}[identities.team]\ncertificates = [\"worker.team\"]\nproduce = [\"*\"]\n", operator());
    let server = start(&clients, &rules);
    let put = "put 0 0 60 1\r\nx";
    assert_eq!(ask(&server, &clients, "worker.team", put), "INSERTED 1\r\n");
    assert_eq!(ask(&server, &clients, "worker.other", put), "FORBIDDEN\r\n");
    wait_until("the log has the log-in", || {
        server.server.log().contains("team has logged in from 127.0.0.1 by its certificate")
    });
}

#[test]
fn a_certificate_above_the_limit_of_connections_is_told_so() {
    let clients = Authority::new("clients");
    let rules = format!(
        "{}[identities.team]\ncertificates = [\"team\"]\nproduce = [\"*\"]\nmax-connections = 1\n",
        operator()
    );
    let server = start(&clients, &rules);
    let identity = clients.issue(Leaf::of("team"));
    let mut first = open(server.address, &server.settings(Some(&identity))).unwrap();
    first.write_all(b"list-tube-used\r\n").unwrap();
    let mut reply = [0; 15];
    first.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"USING default\r\n");
    assert_eq!(ask(&server, &clients, "team", "list-tube-used"), "TOO_MANY_CONNECTIONS\r\n");
}

#[test]
fn sighup_puts_other_rules_in_force_and_bad_ones_change_nothing() {
    let clients = Authority::new("clients");
    let team = |role: &str| {
        format!("{}[identities.team]\ncertificates = [\"team\"]\n{role} = [\"*\"]\n", operator())
    };
    let server = start(&clients, &team("produce"));
    let mut local = server.server.connect();
    assert_eq!(local.ask("list-tube-used"), "USING default");
    let put = "put 0 0 60 1\r\nx";
    assert_eq!(ask(&server, &clients, "team", put), "INSERTED 1\r\n");
    reload(&server, "[identities.team]\nprodce = []\n", "nothing was changed: --access ");
    assert!(server.server.log().contains("line 2, column 1: unknown key \"prodce\""));
    assert_eq!(ask(&server, &clients, "team", put), "INSERTED 2\r\n");
    assert_eq!(local.ask("list-tube-used"), "USING default");
    reload(&server, &team("work").replace("unix-users", "# unix-users"), "the access rules were read again");
    assert_eq!(ask(&server, &clients, "team", put), "FORBIDDEN\r\n");
    assert_eq!(local.ask("list-tube-used"), "FORBIDDEN", "the connection stays, and its rights do not");
    // A certificate that cannot be used keeps the old rules, too.
    fs::write(server.file("key.pem"), "no key").unwrap();
    reload(&server, &team("produce"), "nothing was changed: --tls-");
    assert_eq!(local.ask("list-tube-used"), "FORBIDDEN");
}
