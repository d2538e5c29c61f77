//! Syncs and writes that fail in the running program. The server must acknowledge only what is on the medium.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::jobs::{ours, see_jobs, start_program};
use crate::trace::Traced;
use beanstalkd_testkit::client::{Client, id_of, put_command};
use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::server::{Server, Transport};

const CONNECTIONS: usize = 10;
const DEPTH: usize = 64;
/// The maximum number of pipelines that each connection sends, one after another: enough to reach every injected
/// failure.
const MAX_ROUNDS: usize = 200;
/// The numbers of the calls that fail: the first are calls of the start, and the others of the running server.
const CALLS: std::ops::RangeInclusive<u32> = 1..=20;

/// The replies to one connection's pipelines.
#[derive(Default)]
struct Outcome {
    /// The body of each acknowledged job, by its id.
    inserted: BTreeMap<u64, String>,
    refused: usize,
    closed: bool,
}

/// Sends pipelines of puts until the server closes, and sorts the replies. The first pipelines are short: all that
/// arrives before a sync is acknowledged after it, and the earliest failures must not come before every acknowledgment.
fn put_pipelines(mut client: Client, number: usize) -> Outcome {
    let mut outcome = Outcome::default();
    for round in 0..MAX_ROUNDS {
        let depth = DEPTH.min(1 << round.min(10));
        let tag = |at: usize| format!("{number}-{round}-{at}");
        let commands: Vec<u8> =
            (0..depth).flat_map(|at| put_command(0, 0, 60, format!("tag-{};", tag(at)).as_bytes())).collect();
        if client.send(&commands).is_err() {
            outcome.closed = true;
            return outcome;
        }
        for at in 0..depth {
            let Ok(reply) = client.read_reply() else {
                outcome.closed = true;
                return outcome;
            };
            match id_of(&reply, "INSERTED") {
                Some(id) => {
                    assert_eq!(outcome.refused, 0, "a put was acknowledged after a refused one");
                    outcome.inserted.insert(id, tag(at));
                }
                None => {
                    assert_eq!(String::from_utf8_lossy(&reply), "INTERNAL_ERROR\r\n");
                    outcome.refused += 1;
                }
            }
        }
    }
    outcome
}

struct Run {
    outcomes: Vec<Outcome>,
    failed_at_start: bool,
}

/// Runs ten connections on a server in which `injection` makes a call fail, and checks the result.
fn run(flags: &[&str], injection: &str) -> Run {
    let mut traced = match Traced::start(flags, injection) {
        Ok(traced) => traced,
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("exited at its start"), "{message}");
            assert!(message.contains(" binlog."), "expected a message that names a file: {message}");
            return Run { outcomes: Vec::new(), failed_at_start: true };
        }
    };
    // A server without commands also writes after a second: it may have ended before all clients are connected.
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| traced.server.connect().ok()).collect();
    let work = |(number, client): (usize, Option<Client>)| {
        std::thread::spawn(move || match client {
            Some(client) => put_pipelines(client, number),
            None => Outcome { closed: true, ..Outcome::default() },
        })
    };
    let workers: Vec<_> = clients.into_iter().enumerate().map(work).collect();
    let outcomes: Vec<Outcome> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    // The server has closed all connections, so it is ending by itself. It would obey a signal, and exit with 0.
    let status = traced.server.stop(Signal::TERM).unwrap();
    let said = traced.server.stderr();
    assert!(outcomes.iter().all(|outcome| outcome.closed), "the injected failure did not happen: {said}");
    assert!(status.code().is_some_and(|code| code != 0), "{status}: {said}");
    assert!(said.contains(" binlog."), "expected a message that names a file: {said}");
    let failed_at_start = !said.contains("jobs in");
    assert!(
        failed_at_start || said.contains("ending, so that a restart begins from what the disk holds"),
        "{said}"
    );
    let inserted: BTreeMap<u64, String> =
        outcomes.iter().flat_map(|outcome| outcome.inserted.clone()).collect();
    if flags.contains(&"0") {
        assert_eq!(traced.check_replies_follow_syncs(&inserted), inserted.len());
    }
    assert_all_there(&traced, &inserted);
    Run { outcomes, failed_at_start }
}

/// Requires that all acknowledged jobs exist after a restart without failures.
fn assert_all_there(traced: &Traced, inserted: &BTreeMap<u64, String>) {
    let server = start_program(ours(), traced.server.directory().to_str().unwrap(), &[]);
    let jobs = see_jobs(&mut server.connect().unwrap(), inserted.keys().copied()).unwrap();
    for (id, tag) in inserted {
        assert_eq!(jobs[id].body, format!("tag-{tag};").as_bytes(), "job {id}");
    }
}

fn summary(name: &str, runs: &[Run]) {
    let at_start = runs.iter().filter(|run| run.failed_at_start).count();
    let outcomes = || runs.iter().flat_map(|run| &run.outcomes);
    let inserted: usize = outcomes().map(|outcome| outcome.inserted.len()).sum();
    let refused: usize = outcomes().map(|outcome| outcome.refused).sum();
    println!(
        "{name}: {} runs, {at_start} exited at their start, {inserted} INSERTED, {refused} refused",
        runs.len()
    );
    assert!(at_start < runs.len() && inserted > 0 && refused > 0, "no failure happened while clients worked");
}

#[test]
fn a_failed_sync_acknowledges_nothing_and_ends_the_server() {
    if !has_tool("strace") {
        return;
    }
    let runs: Vec<Run> =
        CALLS.map(|call| run(&["-f", "0"], &format!("fdatasync,fsync:error=EIO:when={call}"))).collect();
    summary("failed syncs at -f 0", &runs);
}

#[test]
fn a_failed_write_acknowledges_nothing_and_ends_the_server() {
    if !has_tool("strace") {
        return;
    }
    for sync in ["0", "50"] {
        let flags = ["-f", sync, "-s", "65536"];
        let runs: Vec<Run> =
            (1..=8).map(|call| run(&flags, &format!("pwrite64:error=EIO:when={call}"))).collect();
        summary(&format!("failed writes at -f {sync}"), &runs);
    }
}

#[test]
fn a_directory_that_is_removed_or_replaced_ends_the_server() {
    for (is_removed, has_successor) in [(true, false), (false, false), (false, true)] {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("binlog");
        std::fs::create_dir(&directory).unwrap();
        let mut server = start_program(ours(), directory.to_str().unwrap(), &["-f", "0"]);
        let mut client = server.connect().unwrap();
        client.exchange(&put_command(0, 0, 60, b"x"), b"INSERTED 1\r\n").unwrap();
        if is_removed {
            std::fs::remove_dir_all(&directory).unwrap();
        } else {
            std::fs::rename(&directory, parent.path().join("elsewhere")).unwrap();
        }
        if has_successor {
            std::fs::create_dir(&directory).unwrap();
        }
        if let Ok(reply) = client.ask(&put_command(0, 0, 60, b"x")) {
            assert_eq!(String::from_utf8_lossy(&reply), "INTERNAL_ERROR\r\n");
        }
        while client.read_reply().is_ok() {}
        let status = server.stop(Signal::TERM).unwrap();
        assert!(status.code().is_some_and(|code| code != 0), "{status}: {}", server.stderr());
    }
}

/// Each body takes a file, and the server has descriptors for only a few files.
#[test]
fn a_server_without_descriptors_serves_other_commands_and_executes_the_puts_later() {
    const PUTS: usize = 12;
    const MAX_OPEN_FILES: u64 = 3;
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-f", "0", "-s", "65536"];
    let mut server = start_program(ours(), directory.path().to_str().unwrap(), &flags);
    let (mut producer, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    // The server has accepted both connections.
    for client in [&mut producer, &mut other] {
        client.exchange(b"touch 1\r\n", b"NOT_FOUND\r\n").unwrap();
    }
    server.limit_descriptors(MAX_OPEN_FILES).unwrap();
    let mut ids = Vec::new();
    let mut waits = false;
    for _ in 0..PUTS {
        let sent = producer.send(&put_command(0, 0, 60, &[b'x'; 60_000]));
        assert!(sent.is_ok(), "{}", server.stderr());
        if !waits && !producer.has_reply_within(Duration::from_secs(2)).unwrap() {
            waits = true;
            // Commands that need no file are answered in the meantime.
            for id in &ids {
                other.exchange(format!("touch {id}\r\n").as_bytes(), b"NOT_FOUND\r\n").unwrap();
                other.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
            }
            ids.clear();
            server.limit_descriptors(1000).unwrap();
        }
        let reply = producer.read_reply().unwrap();
        ids.push(id_of(&reply, "INSERTED").unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&reply))));
    }
    assert!(waits, "no put had to wait for a descriptor");
    assert_eq!(other.job_count().unwrap(), ids.len() as u64);
    assert!(server.stop(Signal::TERM).unwrap().success(), "{}", server.stderr());
    let server = start_program(ours(), directory.path().to_str().unwrap(), &flags);
    let seen = see_jobs(&mut server.connect().unwrap(), 1..=*ids.last().unwrap()).unwrap();
    assert!(seen.keys().eq(&ids), "the existing jobs are those that were acknowledged");
}

/// The kernel sends a signal at this limit, which ends a program that does not expect it.
#[test]
fn a_limit_of_the_size_of_files_counts_as_a_full_disk() {
    let limited = ["sh", "-c", "ulimit -f 200; exec \"$@\"", "sh"].map(OsString::from);
    let flags = ["-b", "{dir}", "-f", "0"].map(str::to_owned);
    let server = Server::start_wrapped(&limited, ours(), Transport::Unix, &flags).unwrap();
    let mut client = server.connect().unwrap();
    // More than a file can hold, so that the server also makes files while it runs.
    for id in 1..=300 {
        let reply = client.ask(&put_command(0, 0, 60, &[b'x'; 1000])).unwrap();
        assert_eq!(id_of(&reply, "INSERTED"), Some(id), "{}", server.stderr());
    }
    assert!(server.stderr().contains("File too large"), "{}", server.stderr());
}

#[test]
fn copy_and_dump_report_a_limit_of_the_size_of_files() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    std::fs::create_dir(&from).unwrap();
    let mut server = start_program(ours(), from.to_str().unwrap(), &[]);
    server.connect().unwrap().ask(&put_command(0, 0, 60, &[b'x'; 60_000])).unwrap();
    assert!(server.stop(Signal::TERM).unwrap().success(), "{}", server.stderr());
    for (run, code) in [("exec \"$0\" --copy \"$1\" \"$2\"", 10), ("exec \"$0\" --dump \"$1\" > \"$2\"", 1)] {
        let limited = format!("ulimit -f 20; {run}");
        let output =
            Command::new("sh").args(["-c", &limited]).arg(ours()).args([&from, &to]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{}: {said}", output.status);
        assert!(said.contains("File too large"), "{said}");
    }
}
