//! The figures of identities for operators: lines in the log, series in the metrics, and sums that survive a restart.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use beanstalkd::access::TokenHash;
use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::{Client, Server, wait_until};
use beanstalkd_testkit::server::free_address;

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
fn the_log_says_who_did_what_to_how_many_and_of_refusals_rarely() {
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
    assert_eq!(guest.ask("kick 1"), "FORBIDDEN");
    wait_until("no refusal hides one of another command", || {
        !lines(&server, &["\"identity\":\"guest\"", "\"command\":\"kick\""]).is_empty()
    });
    let paused = ["\"identity\":\"boss\"", "\"command\":\"pause-tube mail 0\"", "\"reply\":\"PAUSED\""];
    assert_eq!(lines(&server, &paused).len(), 1, "no line is withheld: {}", server.log());
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
    let (_, metrics) = http::get(UnixStream::connect(&path).unwrap(), "/metrics").unwrap();
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

/// Each job counts its body and 128 bytes, and the tube that it has made 404, also after the server has read them from
/// its binlog.
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

/// The response of the API to a request.
fn api(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (String, SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let peer = stream.local_addr().unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-Beanstalkd-Admin: 1\r\n\
         Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap_or_default().to_owned(), peer)
}

#[test]
fn the_api_logs_who_did_what() {
    let directory = tempfile::tempdir().unwrap();
    let (address, token) = (free_address().unwrap(), token("admin"));
    let file = directory.path().join("token");
    fs::write(&file, &token).unwrap();
    let flags = ["--admin", &address.to_string(), "--admin-token-file", file.to_str().unwrap()];
    let server = Server::start(&flags);
    put(&mut server.connect(), "mail", "x");
    let bearer = format!("Authorization: Bearer {token}\r\n");
    for (path, body, words) in [
        ("/api/v1/tubes/mail/actions", r#"{"action": "pause", "seconds": 5}"#, "pause mail 5"),
        ("/api/v1/server/actions", r#"{"action": "drain"}"#, "drain"),
        ("/api/v1/server/actions", r#"{"action": "undrain"}"#, "undrain"),
        ("/api/v1/jobs/actions", r#"{"action": "delete", "jobs": [1]}"#, "delete 1"),
    ] {
        let (status, peer) = api(address, "POST", path, &bearer, body);
        assert!(status.starts_with('2'), "{words}: {status}");
        let line = format!("administration from {peer}: task ");
        assert_eq!(lines(&server, &[&line, &format!(": {words}")]).len(), 1, "{words}: {}", server.log());
    }
    assert_eq!(lines(&server, &["administration: task ", ": done; 1 done, "]).len(), 4, "{}", server.log());
    let pause = r#"{"action": "pause", "seconds": 5}"#;
    assert_eq!(api(address, "POST", "/api/v1/tubes/none/actions", &bearer, pause).0, "404");
    let failed = ": failed: there is no such tube; 0 done, 0 unchanged";
    assert_eq!(lines(&server, &["administration: task ", failed]).len(), 1, "{}", server.log());
    let (status, _) = api(address, "GET", "/api/v1/tubes", "", "");
    assert_eq!(status, "401");
    assert!(lines(&server, &["refused a request"]).is_empty(), "the page asks without a token first");
    let wrong = format!("Authorization: Bearer {}\r\n", self::token("nobody"));
    let (status, peer) = api(address, "GET", "/api/v1/tubes", &wrong, "");
    assert_eq!(status, "401");
    let refused = format!("refused a request of the API from {peer}: a wrong token");
    assert_eq!(lines(&server, &[&refused]).len(), 1, "{}", server.log());
    for secret in [token, self::token("nobody")] {
        assert!(!server.log().contains(&secret), "a token is in the log");
    }
}

/// Whether the memory of a process has these bytes somewhere where it can write.
fn memory_has(pid: u32, bytes: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|digits| u64::from_str_radix(digits, 16).unwrap());
        let mut content = vec![0; (end - begin) as usize];
        memory.read_exact_at(&mut content, begin).is_ok() && memchr::memmem::find(&content, bytes).is_some()
    })
}

#[test]
fn tokens_do_not_stay_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let admin_file = directory.path().join("token");
    fs::write(&admin_file, token("admin")).unwrap();
    let address = free_address().unwrap();
    let rules = write_rules(directory.path());
    let server = Server::start(&[
        "--access",
        &rules,
        "--admin",
        &address.to_string(),
        "--admin-token-file",
        admin_file.to_str().unwrap(),
    ]);
    let mut boss = log_in(&server, "boss");
    // The token of another client comes in pieces, and before other commands.
    let mut team = server.connect();
    team.send(format!("auth {}", &token("team")[..20]));
    boss.ask("list-tubes");
    team.send(format!("{}\r\nlist-tube-used\r\nuse ma", &token("team")[20..]));
    assert_eq!((team.line(), team.line()), ("AUTHENTICATED".to_owned(), "USING default".to_owned()));
    let bearer = format!("Authorization: Bearer {}\r\n", token("admin"));
    assert_eq!(api(address, "GET", "/api/v1/tubes", &bearer, "").0, "200");
    // The search finds bytes that must be there.
    boss.ask("use a-tube-whose-name-stays-in-memory");
    boss.ask("put 0 0 60 1\r\nx");
    assert!(memory_has(server.usage().0, b"a-tube-whose-name-stays-in-memory"));
    for name in ["boss", "team", "admin"] {
        assert!(!memory_has(server.usage().0, token(name).as_bytes()), "the token of {name}");
    }
}
