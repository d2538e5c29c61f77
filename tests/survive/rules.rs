//! Rules for tubes with the real program: a reload, a file that is wrong, a restart.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use beanstalkd_testkit::panicking::{Server, wait_until};

const PUT: &str = "put 0 0 60 1\r\nx";
/// The end of the line in the log when rules are in force.
const IN_FORCE: &str = "read again; they apply from now on";

#[test]
fn sighup_puts_other_rules_for_tubes_in_force_and_bad_ones_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tubes.toml");
    let path = path.to_str().unwrap();
    fs::write(path, "[[tube]]\nname = \"d*\"\nmax-jobs = 1\n").unwrap();
    let server = Server::start(&["--tubes", path]);
    let mut client = server.connect();
    assert_eq!(client.ask(PUT), "INSERTED 1");
    assert_eq!(client.ask(PUT), "TUBE_FULL");
    let wrong = "[[tube]]\nname = \"d*\"\nmax-jobs = 0\n";
    server.reload_with(path, wrong, "the previous rules for tubes stay in force");
    assert!(server.log().contains("line 3, column 12: max-jobs: expected a whole number of 1 to 4294967295"));
    assert_eq!(client.ask(PUT), "TUBE_FULL");
    server.reload_with(path, "[[tube]]\nname = \"d*\"\nmax-bytes = 3\n", IN_FORCE);
    assert_eq!((client.ask(PUT), client.ask(PUT)), ("INSERTED 4".to_owned(), "INSERTED 5".to_owned()));
    wait_until("the job that was there before counts", || client.ask(PUT) == "TUBE_FULL");
    server.reload_with(path, "", IN_FORCE);
    assert!(client.ask(PUT).starts_with("INSERTED "), "a tube whose rule is gone has no limit");
    assert_eq!(client.data("stats-tube default")["rule"], "");
}

#[test]
fn a_reload_wakes_clients_that_a_rule_has_kept_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tubes.toml");
    let path = path.to_str().unwrap();
    let kept = ["rate = \"1/h\"\nburst = 1", "max-reserved = 1"];
    for (keys, after) in kept.into_iter().flat_map(|keys| [(keys, ""), (keys, "max-reserved = 2\n")]) {
        let rule = |keys: &str| format!("[[tube]]\nname = \"d*\"\n{keys}\n");
        fs::write(path, rule(keys)).unwrap();
        let server = Server::start(&["--tubes", path]);
        let mut clients = [(); 2].map(|()| server.connect());
        assert_eq!(
            (clients[0].ask(PUT), clients[0].ask(PUT)),
            ("INSERTED 1".to_owned(), "INSERTED 2".to_owned())
        );
        assert_eq!(clients[0].ask("reserve"), "RESERVED 1 1");
        clients[1].send("reserve\r\n");
        wait_until("it waits", || server.connect().data("stats-tube default")["current-waiting"] == "1");
        let after = if after.is_empty() { String::new() } else { rule(after) };
        server.reload_with(path, &after, IN_FORCE);
        assert_eq!(clients[1].line(), "RESERVED 2 1", "{keys}");
    }
}

#[test]
fn limits_are_exact_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tubes.toml");
    fs::write(&path, "[[tube]]\nname = \"*\"\nmax-jobs = 3\nmax-bytes = 10\n").unwrap();
    let binlog = directory.path().join("binlog");
    fs::create_dir(&binlog).unwrap();
    let flags = ["-b", binlog.to_str().unwrap(), "--tubes", path.to_str().unwrap()];
    let mut server = Server::start(&flags);
    let mut client = server.connect();
    assert_eq!(client.ask("put 0 0 60 9 grp:g\r\n123456789"), "INSERTED 1");
    server.signal(Signal::TERM);
    assert!(server.end().success());
    let server = Server::start(&flags);
    let mut client = server.connect();
    assert_eq!(client.ask("put 0 0 60 2\r\nxx"), "TUBE_FULL");
    assert!(client.ask(PUT).starts_with("INSERTED "));
    assert_eq!(client.ask(PUT), "TUBE_FULL");
    assert!(client.ask("put 0 0 60 0\r\n").starts_with("INSERTED "));
    assert_eq!(client.ask("put 0 0 60 0\r\n"), "TUBE_FULL");
}

#[test]
fn dead_jobs_and_forgiven_failures_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tubes.toml");
    fs::write(&path, "[[tube]]\nname = \"t\"\nmax-attempts = 2\ndead-tube = \"dead\"\n").unwrap();
    let binlog = directory.path().join("binlog");
    fs::create_dir(&binlog).unwrap();
    let flags = ["-b", binlog.to_str().unwrap(), "-f0", "--tubes", path.to_str().unwrap()];
    let server = Server::start(&flags);
    let mut client = server.connect();
    assert_eq!((client.ask("use t"), client.ask("watch t")), ("USING t".to_owned(), "WATCHING 2".to_owned()));
    let long = "b".repeat(9_000);
    assert_eq!(client.ask(&format!("put 0 0 60 9000 idp:k\r\n{long}")), "INSERTED 1");
    assert_eq!(client.ask("put 5 0 60 1 grp:g\r\nx"), "INSERTED 2");
    for id in [1, 2] {
        for _ in 0..2 {
            assert!(client.ask(&format!("reserve-job {id}")).starts_with("RESERVED "));
            client.line();
            assert_eq!(client.ask(&format!("release {id} 0 0")), "RELEASED");
        }
    }
    assert_eq!(client.ask("move 2 t"), "MOVED");
    // The server ends as in a crash.
    server.signal(Signal::KILL);
    drop(server);
    let server = Server::start(&flags);
    let mut client = server.connect();
    let stats = client.data("stats-job 1");
    let value = |key: &str| stats[key].clone();
    assert_eq!(["tube", "dead-from", "failures", "idempotency-key"].map(value), ["dead", "t", "2", ""]);
    let stats = client.data("stats-job 2");
    let value = |key: &str| stats[key].clone();
    assert_eq!(["tube", "dead-from", "failures", "releases", "group"].map(value), ["t", "", "0", "2", "g"]);
    assert_eq!(client.ask("move 1 t"), "MOVED");
    assert_eq!(client.data("stats-job 1")["failures"], "0");
}

#[test]
fn a_file_that_is_wrong_keeps_the_server_from_starting_and_check_tubes_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tubes.toml");
    fs::write(&path, "[[tube]]\nname = \"a\"\nmax-job = 1\n").unwrap();
    let run = |flag: &str| {
        let program = env!("CARGO_BIN_EXE_beanstalkd");
        let output = Command::new(program).arg(flag).arg(&path).args(["-p", "0"]).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let reason = "line 3, column 1: unknown key \"max-job\"";
    for (flag, code) in [("--check-tubes", 1), ("--tubes", 5)] {
        let (found, said) = run(flag);
        assert_eq!(found, Some(code), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    fs::write(&path, "[[tube]]\nname = \"a\"\nmax-jobs = 1\n").unwrap();
    assert_eq!(run("--check-tubes"), (Some(0), "a\n  takes at most 1 job\n".to_owned()));
}

#[test]
fn the_log_names_a_full_dead_tube_and_the_tube_whose_jobs_it_does_not_take() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tubes.toml");
    let rules = "[[tube]]\nname = \"default\"\nmax-attempts = 1\ndead-tube = \"dead\"\n\
                 [[tube]]\nname = \"dead\"\nmax-jobs = 1\n";
    fs::write(&path, rules).unwrap();
    let server = Server::start(&["--tubes", path.to_str().unwrap()]);
    let mut client = server.connect();
    for (id, reply) in [(1, "RELEASED"), (2, "BURIED"), (3, "BURIED")] {
        assert_eq!(
            (client.ask(PUT), client.ask("reserve")),
            (format!("INSERTED {id}"), format!("RESERVED {id} 1"))
        );
        client.line();
        assert_eq!(client.ask(&format!("release {id} 0 0")), reply);
    }
    let line = "buried a job in the tube default, because its dead tube dead is full; ";
    wait_until("the log says it", || server.log().contains(line));
    assert_eq!(server.log().matches(line).count(), 1, "the next line comes later");
}

#[test]
fn no_client_gets_a_job_that_has_become_too_old_while_the_server_was_down() {
    const JOBS: usize = 50_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tubes.toml");
    for (rule, tag) in [("[[tube]]\nname = \"*\"\nmax-age = \"2s\"\n", ""), ("", " exp:2")] {
        fs::write(&path, rule).unwrap();
        let binlog = directory.path().join(format!("binlog{}", rule.len()));
        fs::create_dir(&binlog).unwrap();
        let binlog = binlog.to_str().unwrap();
        let mut server = Server::start(&["-b", binlog]);
        let mut client = server.connect();
        for _ in 0..JOBS / 1000 {
            client.send(format!("put 0 0 60 1{tag}\r\nx\r\n").repeat(1000));
            (0..1000).for_each(|_| assert!(client.line().starts_with("INSERTED ")));
        }
        let last_put_at = Instant::now();
        server.signal(Signal::TERM);
        assert!(server.end().success());
        wait_until("all jobs are too old", || last_put_at.elapsed() > Duration::from_secs(2));
        let server = Server::start(&["-b", binlog, "--tubes", path.to_str().unwrap()]);
        let mut client = server.connect();
        for command in ["reserve-with-timeout 0", &format!("reserve-job {JOBS}"), "reserve-with-timeout 0"] {
            let reply = client.ask(command);
            assert!(["TIMED_OUT", "NOT_FOUND"].contains(&&*reply), "{rule}{tag} {command}: {reply}");
        }
        wait_until("they are deleted", || client.data("stats")["current-jobs-ready"] == "0");
    }
}
