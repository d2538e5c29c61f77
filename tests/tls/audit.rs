//! What an operator sees of identities: lines in the log, series in the metrics, and sums that survive a restart.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use beanstalkd::access::TokenHash;
use beanstalkd_testkit::panicking::{Client, Server, wait_until};

/// The rules, in which the token of NAME is [`token`].
const RULES: [(&str, &str); 3] = [
    ("boss", "manage = [\"*\"]\nproduce = [\"*\"]"),
    ("team", "produce = [\"mail\"]\nwork = [\"mail\"]\nmax-job-bytes = 1404"),
    ("guest", "observe = [\"mail\"]"),
];

fn token(name: &str) -> String {
    format!("the-token-of-{name}-is-long-enough-for-a-test")
}

fn write_rules(directory: &Path) -> String {
    let identity = |(name, lines): (&str, &str)| {
        format!("[identities.{name}]\ntokens = [\"{}\"]\n{lines}\n", TokenHash::of(token(name).as_bytes()))
    };
    let path = directory.join("access.toml");
    fs::write(&path, RULES.map(identity).concat()).unwrap();
    path.display().to_string()
}

fn log_in(server: &Server, name: &str) -> Client {
    let mut client = server.connect();
    assert_eq!(client.ask(&format!("auth {}", token(name))), "AUTHENTICATED");
    client
}

fn put(client: &mut Client, tube: &str, body: &str) -> String {
    client.ask(&format!("use {tube}"));
    client.ask(&format!("put 0 0 60 {}\r\n{body}", body.len()))
}

/// The lines of the log with all of these.
fn lines(server: &Server, parts: &[&str]) -> Vec<String> {
    let log = server.log();
    let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
    log.lines().filter(has_all).map(str::to_owned).collect()
}

#[test]
fn the_log_says_who_did_what_to_how_many_and_does_so_rarely() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["--access", &write_rules(directory.path()), "--log-format", "json"]);
    let (mut boss, mut guest) = (log_in(&server, "boss"), log_in(&server, "guest"));
    for _ in 0..3 {
        put(&mut boss, "mail", "x");
        assert_eq!(guest.ask("delete 1"), "FORBIDDEN");
    }
    assert_eq!(boss.ask("flush-tube mail"), "FLUSHED 3");
    assert_eq!(boss.ask("pause-tube mail 0"), "PAUSED");
    let mut thief = server.connect();
    let wrong = token("nobody");
    assert_eq!(thief.ask(&format!("auth {wrong}")), "UNAUTHORIZED");
    wait_until("the log has the last of it", || !lines(&server, &["refused a log-in"]).is_empty());
    let log_ins = lines(&server, &["\"identity\":\"boss\"", "has logged in", "\"peer\":\"unix:uid="]);
    assert_eq!(log_ins.len(), 1, "{}", server.log());
    let refused = lines(&server, &["\"identity\":\"guest\"", "\"command\":\"delete\"", "\"withheld\":"]);
    assert_eq!(refused.len(), 1, "one line for three refusals: {}", server.log());
    let flushed = ["\"identity\":\"boss\"", "\"command\":\"flush-tube mail\"", "\"reply\":\"FLUSHED 3\""];
    assert_eq!(lines(&server, &flushed).len(), 1, "{}", server.log());
    assert!(lines(&server, &["pause-tube"]).is_empty(), "it is withheld for five seconds");
    for secret in [wrong, token("boss"), token("guest")] {
        assert!(!server.log().contains(&secret), "a token is in the log");
    }
}

#[test]
fn the_metrics_have_series_of_each_identity() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics");
    let address = format!("unix:{}", path.display());
    let server = Server::start(&["--access", &write_rules(directory.path()), "--metrics", &address]);
    let (mut team, mut guest) = (log_in(&server, "team"), log_in(&server, "guest"));
    put(&mut team, "mail", "x");
    guest.ask("delete 1");
    server.connect().ask("auth wrong");
    let mut boss = log_in(&server, "boss");
    boss.ask("flush-tube none");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    for (name, identity, value) in [
        ("connections", "team", 1),
        ("job_bytes", "team", 533),
        ("job_bytes", "guest", 0),
        ("log_ins_total", "boss", 1),
        ("log_ins_refused_total", "(strangers.unix)", 1),
        ("commands_forbidden_total", "guest", 1),
        ("commands_forbidden_total", "team", 0),
        ("managing_commands_total", "boss", 1),
        ("puts_delayed_total", "team", 0),
    ] {
        let series = format!("\nbeanstalkd_identity_{name}{{identity=\"{identity}\"}} {value}\n");
        assert!(metrics.contains(&series), "no {series} in {metrics}");
    }
}

/// Each job counts its body and 128 bytes, and the tube that it has made 404, also after the server has read them from its binlog.
#[test]
fn the_bytes_of_an_identity_are_those_of_its_jobs_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let binlog = tempfile::tempdir().unwrap();
    let rules = write_rules(directory.path());
    let start = || Server::start(&["--access", &rules, "-b", binlog.path().to_str().unwrap()]);
    let server = start();
    let mut team = log_in(&server, "team");
    assert_eq!(put(&mut team, "mail", &"x".repeat(400)), "INSERTED 1");
    assert_eq!(put(&mut team, "mail", &"y".repeat(200)), "INSERTED 2");
    put(&mut log_in(&server, "boss"), "mail", "of another");
    assert_eq!(team.stat("identity-job-bytes"), 1260);
    server.signal(rustix::process::Signal::KILL);
    drop((team, server));
    let server = start();
    let mut team = log_in(&server, "team");
    assert_eq!(team.stat("identity-job-bytes"), 1260);
    assert_eq!(put(&mut team, "mail", &"z".repeat(17)), "OUT_OF_MEMORY");
    assert_eq!(team.ask("delete 1"), "DELETED");
    assert_eq!(team.stat("identity-job-bytes"), 732);
    assert!(put(&mut team, "mail", &"z".repeat(17)).starts_with("INSERTED "));
}
