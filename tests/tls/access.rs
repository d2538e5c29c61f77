//! Access rules with the real program: identities by certificate and by user, and other rules by SIGHUP.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::tls::{Authority, Leaf};
use rustix::process::getuid;

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
    server.server.reload_with(server.file("access"), rules, outcome);
}

/// The user of the tests. This user may see everything.
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
        let log = server.server.log();
        log.lines().any(|line| {
            line.contains("team has logged in from 127.0.0.1:") && line.contains(" by its certificate")
        })
    });
}

#[test]
fn a_certificate_above_the_limit_of_connections_gets_a_reply_that_says_so() {
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
    reload(&server, "[identities.team]\nprodce = []\n", "refused --access ");
    assert!(server.server.log().contains("line 2, column 1: unknown key \"prodce\""));
    assert_eq!(ask(&server, &clients, "team", put), "INSERTED 2\r\n");
    assert_eq!(local.ask("list-tube-used"), "USING default");
    reload(&server, &team("work").replace("unix-users", "# unix-users"), "the access rules were read again");
    assert_eq!(ask(&server, &clients, "team", put), "FORBIDDEN\r\n");
    assert_eq!(local.ask("list-tube-used"), "FORBIDDEN", "the connection stays, and its rights do not");
}

#[test]
fn a_file_that_cannot_be_used_keeps_no_other_from_being_used() {
    let clients = Authority::new("clients");
    let team = |role: &str| {
        format!("{}[identities.team]\ncertificates = [\"team\"]\n{role} = [\"*\"]\n", operator())
    };
    let no_list = clients.revoke(&[], 4000);
    let pem = clients.pem();
    let rules = team("produce");
    let files = [("tls-client-ca", pem.as_str()), ("tls-crl", &no_list), ("access", &rules)];
    let server = TlsServer::start_with(&files, &[]);
    let put = "put 0 0 60 1\r\nx";
    assert_eq!(ask(&server, &clients, "team", put), "INSERTED 1\r\n");
    fs::write(server.file("key.pem"), "no key").unwrap();
    reload(&server, &team("work"), "SIGHUP: refused --tls-key");
    wait_until("the rules are read", || server.server.log().contains("the access rules were read again"));
    assert_eq!(ask(&server, &clients, "team", put), "FORBIDDEN\r\n", "the rules are in force");
    // The serial number of a leaf is 1000 by default.
    fs::write(server.file("tls-crl"), clients.revoke(&[1000], 4000)).unwrap();
    fs::write(server.file("tls-client-ca"), "no authority").unwrap();
    reload(&server, "no rules", "SIGHUP: refused --access");
    let serves = |serial| {
        let identity = clients.issue(Leaf { serial, ..Leaf::of("team") });
        server.serves(&server.settings(Some(&identity)))
    };
    serves(1000).expect_err("the list is in force");
    serves(7).unwrap();
}

#[test]
fn a_reload_refuses_rules_without_identities_and_a_file_that_everybody_can_write_to() {
    let clients = Authority::new("clients");
    let server = start(&clients, &operator());
    let mut local = server.server.connect();
    for nobody in ["", "# all of it\n", "[strangers]\nproduce = [\"*\"]\n"] {
        reload(&server, nobody, "the file has no identities");
        assert_eq!(local.ask("list-tube-used"), "USING default", "the rules stay");
    }
    fs::set_permissions(server.file("access"), fs::Permissions::from_mode(0o666)).unwrap();
    reload(&server, &operator(), "everybody on this machine can write to it");
    assert!(!server.server.log().contains("the access rules were read again"));
    assert_eq!(local.ask("list-tube-used"), "USING default");
}

/// A client in its handshake has no identity yet, and does not count as anonymous.
#[test]
fn a_limit_for_anonymous_clients_keeps_no_certificate_out() {
    let clients = Authority::new("clients");
    let rules = format!(
        "{}[identities.team]\ncertificates = [\"team\"]\nproduce = [\"*\"]\n[strangers]\nmax-connections = 1\n",
        operator()
    );
    let server = start(&clients, &rules);
    let _silent: Vec<_> = (0..5).map(|_| server.socket()).collect();
    assert_eq!(ask(&server, &clients, "team", "list-tube-used"), "USING default\r\n");
    // Clients whose certificates name no identity are anonymous.
    let other = clients.issue(Leaf::of("other"));
    let mut first = open(server.address, &server.settings(Some(&other))).unwrap();
    first.write_all(b"list-tube-used\r\n").unwrap();
    first.read_exact(&mut [0; 11]).unwrap();
    assert_eq!(ask(&server, &clients, "other", "list-tube-used"), "TOO_MANY_CONNECTIONS\r\n");
}

#[test]
fn silent_clients_do_not_take_all_connections() {
    let server = {
        let clients = Authority::new("clients");
        TlsServer::start_with(
            &[("tls-client-ca", &clients.pem()), ("access", &operator())],
            &["--max-connections", "8"],
        )
    };
    let _silent: Vec<_> = (0..50).map(|_| server.socket()).collect();
    // Silent clients have two connections.
    let known: Vec<_> = (0..6).map(|_| server.server.connect()).collect();
    for mut client in known {
        assert_eq!(client.ask("list-tube-used"), "USING default");
    }
}

/// With the serial number of the certificate, and the port.
#[test]
fn each_managing_command_has_a_line_with_the_certificate() {
    let clients = Authority::new("clients");
    let rules = "[identities.boss]\ncertificates = [\"boss\"]\nmanage = [\"*\"]\n";
    let server = start(&clients, rules);
    let identity = clients.issue(Leaf { serial: 1000, ..Leaf::of("boss") });
    let mut boss = open(server.address, &server.settings(Some(&identity))).unwrap();
    let peer = boss.sock.local_addr().unwrap();
    boss.write_all(b"kick 5\r\npause-tube default 0\r\nflush-tube default\r\ndrain\r\nkick 5\r\nquit\r\n")
        .unwrap();
    boss.read_to_string(&mut String::new()).unwrap();
    let log = server.server.log();
    for line in [
        "kick 5 of default: KICKED 0",
        "pause-tube default 0: PAUSED",
        "flush-tube default: FLUSHED 0",
        "drain: DRAINING",
        "kick 5 of default: KICKED 0",
    ] {
        assert!(log.contains(&format!("boss from {peer}, certificate 03E8: {line}")), "{line}: {log}");
    }
    assert_eq!(log.matches("kick 5 of default: KICKED 0").count(), 2);
}
