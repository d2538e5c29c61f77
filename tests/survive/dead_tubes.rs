//! Dead tubes and reservations of tubes with rules, where others have a say: pauses, access rules, sessions, the
//! compaction of the binlog, and C beanstalkd.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use beanstalkd_testkit::panicking::{Client, Server};
use beanstalkd_testkit::server::{self, Transport};
use beanstalkd_testkit::{TOKEN, TOKEN_HASH, debian_server};

const RULES: &str = "[[tube]]\nname = \"t\"\nmax-attempts = 1\ndead-tube = \"dead\"\n\
                     [[tube]]\nname = \"one\"\nmax-reserved = 1\n";

/// The command line of a server with these rules and a binlog, whose files have 4096 bytes.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("tubes.toml"), RULES).unwrap();
        fs::create_dir(directory.path().join("binlog")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, others: &[&str]) -> Server {
        let (rules, binlog) = (self.path("tubes.toml"), self.path("binlog"));
        let flags = ["--tubes", text(&rules), "-b", text(&binlog), "-s", "4096", "-f0"];
        Server::start(&[&flags, others].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Puts a job into the tube `t`, and lets it die.
fn kill_job(client: &mut Client) -> u64 {
    assert_eq!(client.ask("use t"), "USING t");
    let id = client.put(0, 60, b"x");
    assert_eq!(client.reserve(&format!("reserve-job {id}")), id);
    assert_eq!(client.ask(&format!("release {id} 0 0")), "RELEASED");
    id
}

/// The tube, the origin and the failures of a job.
fn death(client: &mut Client, id: u64) -> [String; 3] {
    let stats = client.data(&format!("stats-job {id}"));
    ["tube", "dead-from", "failures"].map(|key| stats[key].clone())
}

#[test]
fn a_dead_job_waits_for_the_end_of_the_pause_of_its_dead_tube() {
    let files = Files::new();
    let server = files.start(&[]);
    let (mut client, mut worker) = (server.connect(), server.connect());
    assert_eq!(worker.ask("watch dead"), "WATCHING 2");
    assert_eq!(client.ask("pause-tube dead 1000"), "PAUSED");
    worker.send("reserve\r\n");
    let id = kill_job(&mut client);
    assert_eq!(death(&mut client, id), ["dead", "t", "1"]);
    assert_eq!(client.data(&format!("stats-job {id}"))["waits-for"], "pause");
    assert_eq!(client.ask("pause-tube dead 0"), "PAUSED");
    assert_eq!(worker.line(), format!("RESERVED {id} 1"));
}

#[test]
fn a_job_goes_to_a_dead_tube_that_the_client_who_lets_it_fail_may_not_use() {
    let files = Files::new();
    let access = files.path("access.toml");
    let rules = format!(
        "[strangers]\nproduce = [\"t\"]\nwork = [\"t\"]\n[identities.operator]\n\
         tokens = [\"{TOKEN_HASH}\"]\nmanage = [\"*\"]\nwork = [\"*\"]\n"
    );
    fs::write(&access, rules).unwrap();
    let server = files.start(&["--access", text(&access)]);
    let mut client = server.connect();
    assert_eq!(client.ask("use dead"), "FORBIDDEN");
    let id = kill_job(&mut client);
    let seen = client.ask(&format!("stats-job {id}"));
    assert!(["NOT_FOUND", "FORBIDDEN"].contains(&&*seen), "it may not see the tube: {seen}");
    let mut operator = server.connect();
    assert!(operator.ask(&format!("auth {TOKEN}")).starts_with("AUTHENTICATED"));
    assert_eq!(death(&mut operator, id), ["dead", "t", "1"]);
    assert_eq!(operator.ask(&format!("move {id} t")), "MOVED");
    assert_eq!(death(&mut operator, id), ["t", "", "0"]);
}

#[test]
fn a_reservation_of_a_session_counts_for_max_reserved_after_a_restart() {
    let files = Files::new();
    let server = files.start(&[]);
    let mut client = server.connect();
    assert_eq!(client.ask("session night 600"), "SESSION 0");
    assert_eq!(
        (client.ask("use one"), client.ask("watch one")),
        ("USING one".to_owned(), "WATCHING 2".to_owned())
    );
    let (first, second) = (client.put(0, 600, b"x"), client.put(0, 600, b"x"));
    assert_eq!(client.reserve("reserve"), first);
    // The server ends as in a crash.
    server.signal(Signal::KILL);
    drop(server);
    let server = files.start(&[]);
    let mut other = server.connect();
    assert_eq!(other.ask("watch one"), "WATCHING 2");
    assert_eq!(other.ask("reserve-with-timeout 0"), "TIMED_OUT");
    assert_eq!(other.ask(&format!("reserve-job {second}")), "NOT_FOUND");
    let mut client = server.connect();
    assert_eq!(client.ask("session night 600"), "SESSION 1");
    assert_eq!(client.ask(&format!("delete {first}")), "DELETED");
    assert_eq!(other.reserve("reserve-with-timeout 0"), second);
}

#[test]
fn compaction_keeps_what_makes_a_job_dead() {
    let files = Files::new();
    let server = files.start(&[]);
    let mut client = server.connect();
    let id = kill_job(&mut client);
    let oldest = client.stat("binlog-oldest-index");
    assert_eq!(client.ask("use other"), "USING other");
    while client.stat("binlog-oldest-index") <= oldest + 1 {
        for _ in 0..20 {
            let other = client.put(0, 60, &[b'o'; 500]);
            assert_eq!(client.ask(&format!("delete {other}")), "DELETED");
        }
    }
    assert!(client.stat("binlog-records-migrated") > 0, "the job was written again");
    server.signal(Signal::KILL);
    drop(server);
    let server = files.start(&[]);
    let mut client = server.connect();
    assert_eq!(death(&mut client, id), ["dead", "t", "1"]);
    assert_eq!(client.ask(&format!("move {id} t")), "MOVED");
    assert_eq!(death(&mut client, id), ["t", "", "0"]);
}

#[test]
fn after_a_trip_through_c_the_jobs_are_where_they_were_and_the_rules_go_on() {
    let Some(c) = debian_server() else { return };
    let files = Files::new();
    let mut server = files.start(&[]);
    let mut client = server.connect();
    let id = kill_job(&mut client);
    server.signal(Signal::TERM);
    assert!(server.end().success());
    let binlog = files.path("binlog");
    let flags = ["-b", text(&binlog), "-s", "4096"].map(str::to_owned);
    let mut old = server::Server::start(&c, Transport::Unix, &flags).unwrap();
    let server::Address::Unix(socket) = old.address() else { unreachable!("it listens on a unix socket") };
    let mut client = Client::to_unix(&socket).unwrap();
    assert_eq!(client.data(&format!("stats-job {id}"))["tube"], "dead");
    assert_eq!(client.ask("use t"), "USING t");
    let of_c = client.put(0, 60, b"x");
    old.stop(Signal::KILL).unwrap();
    let server = files.start(&[]);
    let mut client = server.connect();
    // Whether it is still dead depends on what C has written again.
    assert_eq!(death(&mut client, id)[0], "dead");
    assert_eq!(client.reserve(&format!("reserve-job {of_c}")), of_c);
    assert_eq!(client.ask(&format!("release {of_c} 0 0")), "RELEASED");
    assert_eq!(death(&mut client, of_c), ["dead", "t", "1"]);
}
