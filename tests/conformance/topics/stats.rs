//! The three stats commands: their keys in C's order, their form, and the counts of commands.

use crate::case::{Bench, Case, Needs, code, script};
use crate::mark::{self, Mark};
use beanstalkd_testkit::client::{Failure, pairs_of};

const STATS: &[&str] = &[
    "current-jobs-urgent",
    "current-jobs-ready",
    "current-jobs-reserved",
    "current-jobs-delayed",
    "current-jobs-buried",
    "cmd-put",
    "cmd-peek",
    "cmd-peek-ready",
    "cmd-peek-delayed",
    "cmd-peek-buried",
    "cmd-reserve",
    "cmd-reserve-with-timeout",
    "cmd-delete",
    "cmd-release",
    "cmd-use",
    "cmd-watch",
    "cmd-ignore",
    "cmd-bury",
    "cmd-kick",
    "cmd-touch",
    "cmd-stats",
    "cmd-stats-job",
    "cmd-stats-tube",
    "cmd-list-tubes",
    "cmd-list-tube-used",
    "cmd-list-tubes-watched",
    "cmd-pause-tube",
    "job-timeouts",
    "total-jobs",
    "max-job-size",
    "current-tubes",
    "current-connections",
    "current-producers",
    "current-workers",
    "current-waiting",
    "total-connections",
    "pid",
    "version",
    "rusage-utime",
    "rusage-stime",
    "uptime",
    "binlog-oldest-index",
    "binlog-current-index",
    "binlog-records-migrated",
    "binlog-records-written",
    "binlog-max-size",
    "draining",
    "id",
    "hostname",
    "os",
    "platform",
];

const STATS_TUBE: &[&str] = &[
    "name",
    "current-jobs-urgent",
    "current-jobs-ready",
    "current-jobs-reserved",
    "current-jobs-delayed",
    "current-jobs-buried",
    "total-jobs",
    "current-using",
    "current-watching",
    "current-waiting",
    "cmd-delete",
    "cmd-pause-tube",
    "pause",
    "pause-time-left",
];

const STATS_JOB: &[&str] = &[
    "id",
    "tube",
    "state",
    "pri",
    "age",
    "delay",
    "ttr",
    "time-left",
    "file",
    "reserves",
    "timeouts",
    "releases",
    "buries",
    "kicks",
];

const STATS_TUBE_IN_FULL: &str = r#"---
name: "default"
current-jobs-urgent: 0
current-jobs-ready: 0
current-jobs-reserved: 0
current-jobs-delayed: 0
current-jobs-buried: 0
total-jobs: 0
current-using: 1
current-watching: 1
current-waiting: 0
cmd-delete: 0
cmd-pause-tube: 0
pause: 0
pause-time-left: 0
"#;

const STATS_JOB_IN_FULL: &str = r#"---
id: 1
tube: "default"
state: ready
pri: 5
age: 0
delay: 0
ttr: 60
time-left: 0
file: 0
reserves: 0
timeouts: 0
releases: 0
buries: 0
kicks: 0
"#;

/// The keys whose values are not numbers.
const WORDS: &[&str] = &["version", "draining", "id", "hostname", "os", "platform", "name", "tube", "state"];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        code("stats_has_all_keys_in_order", |bench| has_keys(bench, b"stats\r\n", STATS, true)).habit(),
        code("stats_tube_has_all_keys_in_order", |bench| {
            has_keys(bench, b"stats-tube default\r\n", STATS_TUBE, true)
        }).habit(),
        code("stats_job_has_all_keys_in_order", |bench| {
            bench.steps("a: put 0 0 60 1 | x -> INSERTED 1")?;
            has_keys(bench, b"stats-job 1\r\n", STATS_JOB, true)
        }).habit(),
        code("stats_has_all_keys", |bench| has_keys(bench, b"stats\r\n", STATS, false)),
        code("stats_tube_has_all_keys", |bench| has_keys(bench, b"stats-tube default\r\n", STATS_TUBE, false))
            .mark(mark::STATS_TUBE),
        code("stats_job_has_all_keys", |bench| {
            bench.steps("a: put 0 0 60 1 | x -> INSERTED 1")?;
            has_keys(bench, b"stats-job 1\r\n", STATS_JOB, false)
        })
        .mark(mark::STATS_JOB),
        code("the_values_of_a_fresh_server_are_zero", fresh_values).habit(),
        code("the_form_is_what_simple_readers_take", |bench| {
            bench.steps("a: put 0 0 60 1 | x -> INSERTED 1")?;
            for question in ["stats\r\n", "stats-tube default\r\n", "stats-job 1\r\n"] {
                has_form(bench, question.as_bytes())?;
            }
            Ok(())
        }).habit(),
        code("stats_tube_in_full", |bench| begins(bench, "stats-tube default", STATS_TUBE_IN_FULL)).habit()
            .needs(Needs::Since113),
        code("stats_job_in_full", |bench| {
            bench.steps("a: put 5 0 60 1 | x -> INSERTED 1")?;
            begins(bench, "stats-job 1", STATS_JOB_IN_FULL)
        }).habit()
        .needs(Needs::Since113),
        code("words_are_quoted_but_id_and_state", |bench| {
            bench.steps("a: put 0 0 60 1 | x -> INSERTED 1")?;
            let client = bench.client("a")?;
            let mut text = client.ask(b"stats\r\n")?;
            text.extend(client.ask(b"stats-tube default\r\n")?);
            text.extend(client.ask(b"stats-job 1\r\n")?);
            let text = String::from_utf8_lossy(&text).into_owned();
            for key in ["version", "hostname", "os", "platform", "name", "tube"] {
                let quoted = text.lines().any(|line| line.starts_with(&format!("{key}: \"")) && line.ends_with('"'));
                if !quoted {
                    return Err(client.failure(&format!("expected {key} in quotes")));
                }
            }
            if text.contains("state: \"") || text.contains("id: \"") {
                return Err(client.failure("expected id and state without quotes"));
            }
            Ok(())
        }).habit()
        .needs(Needs::Since113),
        code("the_version_is_major_and_minor", |bench| {
            let client = bench.client("a")?;
            let reply = client.ask(b"stats\r\n")?;
            let version = value(&reply, "version");
            let numbers: Vec<&str> = version.split('.').collect();
            let plain = |number: &&str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            if numbers.len() != 2 || !numbers.iter().all(plain) {
                return Err(client.failure("not MAJOR.MINOR"));
            }
            Ok(())
        }).ours()
        .needs(Needs::Extension),
        code("the_id_cannot_be_read_as_a_number", |bench| {
            use rustix::process::Signal;
            for _ in 0..12 {
                let client = bench.client("a")?;
                let id = value(&client.ask(b"stats\r\n")?, "id");
                let not_hexadecimal = id.len() != 16 || !id.bytes().all(|byte| byte.is_ascii_hexdigit());
                if not_hexadecimal || !id.starts_with(|first: char| first.is_ascii_alphabetic()) {
                    return Err(client.failure("expected an id of sixteen hexadecimal digits, the first a letter"));
                }
                bench.finish()?;
                bench.server_mut().restart(Signal::KILL)?;
            }
            Ok(())
        }).ours()
        .deviation("numeric-id"),
        script(
            "stats_of_what_does_not_exist",
            "a: stats-tube t -> NOT_FOUND
             a: stats-job 1 -> NOT_FOUND
             a: stats-job 0 -> NOT_FOUND
             a: stats-job 18446744073709551615 -> NOT_FOUND",
        ),
        script(
            "stats_of_a_tube_count_its_jobs_alone",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: use t -> USING t
             a: put 0 0 60 1 | x -> INSERTED 2
             a: put 2000 0 60 1 | x -> INSERTED 3
             a: put 0 60 60 1 | x -> INSERTED 4
             a: stats-tube t => current-jobs-urgent: 1, current-jobs-ready: 2, current-jobs-delayed: 1, total-jobs: 3
             a: delete 2 -> DELETED
             a: stats-tube t => current-jobs-urgent: 0, current-jobs-ready: 1, cmd-delete: 1, total-jobs: 3
             a: stats-tube default => current-jobs-ready: 1, cmd-delete: 0, total-jobs: 1
             a: stats => total-jobs: 4, current-jobs-ready: 2, current-tubes: 2",
        ),
        script(
            "a_delete_that_finds_nothing_counts_for_the_server_alone",
            "a: delete 1 -> NOT_FOUND
             a: stats => cmd-delete: 1
             a: stats-tube default => cmd-delete: 0",
        ).habit(),
        script(
            "connections_are_counted",
            "a: stats => current-connections: 1, current-producers: 0, current-workers: 0
             b: list-tube-used -> USING default
             a: stats => current-connections: 2
             b: <close>
             until a: stats => current-connections: 1",
        ),
        script(
            "binlog_keys_without_a_binlog",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: stats => binlog-oldest-index: 0, binlog-current-index: 0, binlog-records-written: 0, \
                  binlog-max-size: 10485760
             a: stats-job 1 => file: 0",
        ).habit(),
    ];
    cases.extend(counters());
    cases
}

fn value(reply: &[u8], key: &str) -> String {
    pairs_of(reply).into_iter().find_map(|(k, v)| (k == key).then_some(v)).unwrap_or_default()
}

/// Requires that the data begins with exactly these bytes. Keys that a server adds come after them.
fn begins(bench: &mut Bench, question: &str, expected: &str) -> Result<(), Failure> {
    let client = bench.client("a")?;
    let reply = client.ask(format!("{question}\r\n").as_bytes())?;
    let text = String::from_utf8_lossy(&reply).into_owned();
    let body = text.split_once("\r\n").map_or("", |(_, body)| body);
    if body.starts_with(expected) {
        Ok(())
    } else {
        Err(client.failure(&format!("expected a reply that begins with {expected:?}")))
    }
}

fn has_keys(bench: &mut Bench, question: &[u8], keys: &[&str], in_order: bool) -> Result<(), Failure> {
    let client = bench.client("a")?;
    let reply = client.ask(question)?;
    let found: Vec<String> = pairs_of(&reply).into_iter().map(|(key, _)| key).collect();
    if let Some(lacking) = keys.iter().find(|&&key| !found.iter().any(|found| found == key)) {
        return Err(client.wrong_reply(&format!("the key {lacking}"), &format!("{found:?}")));
    }
    // Keys that a server adds come after C's last one.
    if in_order && found[..keys.len()] != *keys {
        return Err(client.wrong_reply("the keys in the order of C", &format!("{found:?}")));
    }
    Ok(())
}

/// Requires `---` first, one `: ` in each line, plain ASCII, no empty line, and plain numbers that are not negative.
fn has_form(bench: &mut Bench, question: &[u8]) -> Result<(), Failure> {
    let client = bench.client("a")?;
    let reply = client.ask(question)?;
    let problem = |problem: &str| Err(client.failure(problem));
    if !reply.is_ascii() {
        return problem("not ASCII");
    }
    let text = String::from_utf8_lossy(&reply).into_owned();
    let (line, body) = text.split_once("\r\n").unwrap_or_default();
    let Some(body) = body.strip_suffix("\n\r\n") else { return problem("expected LF and CRLF at the end") };
    if line != format!("OK {}", body.len() + 1) {
        return problem("expected the announced length");
    }
    let Some(pairs) = body.strip_prefix("---\n") else { return problem("expected --- first") };
    for line in pairs.split('\n') {
        let Some((key, value)) = line.split_once(": ") else { return problem("expected `: ` in each line") };
        let plain =
            value.bytes().all(|byte| byte.is_ascii_digit() || (key.starts_with("rusage") && byte == b'.'));
        if !WORDS.contains(&key) && STATS.contains(&key) && !plain {
            return problem(&format!("expected a plain number for {key}"));
        }
    }
    Ok(())
}

fn fresh_values(bench: &mut Bench) -> Result<(), Failure> {
    let client = bench.client("a")?;
    let reply = client.ask(b"stats\r\n")?;
    let machine = ["pid", "rusage-utime", "rusage-stime", "uptime", "total-connections"];
    for key in STATS {
        let expected = match *key {
            key if WORDS.contains(&key) || machine.contains(&key) => continue,
            "cmd-stats" | "current-tubes" | "current-connections" => "1",
            "max-job-size" => "65535",
            "binlog-max-size" => "10485760",
            _ => "0",
        };
        if value(&reply, key) != expected {
            return Err(client.failure(&format!("expected {key}: {expected}")));
        }
    }
    Ok(())
}

/// Each command raises its own count by one, and no other. Refused commands raise no count.
fn counters() -> Vec<Case> {
    let commands = [
        ("cmd-put", "put 0 0 60 1 | x"),
        ("cmd-peek", "peek 7"),
        ("cmd-peek-ready", "peek-ready"),
        ("cmd-peek-delayed", "peek-delayed"),
        ("cmd-peek-buried", "peek-buried"),
        ("cmd-reserve", "reserve"),
        ("cmd-reserve-with-timeout", "reserve-with-timeout 0"),
        ("cmd-delete", "delete 7"),
        ("cmd-release", "release 7 0 0"),
        ("cmd-use", "use t"),
        ("cmd-watch", "watch t"),
        ("cmd-ignore", "ignore t"),
        ("cmd-bury", "bury 7 0"),
        ("cmd-kick", "kick 7"),
        ("cmd-touch", "touch 7"),
        ("cmd-stats-job", "stats-job 7"),
        ("cmd-stats-tube", "stats-tube t"),
        ("cmd-list-tubes", "list-tubes"),
        ("cmd-list-tube-used", "list-tube-used"),
        ("cmd-list-tubes-watched", "list-tubes-watched"),
        ("cmd-pause-tube", "pause-tube t 1"),
        ("none", "kick-job 7"),
        ("none", "reserve-job 7"),
        ("none", "reserve-job"),
        ("none", "nonsense"),
        ("none", "put x"),
        ("none", "delete x"),
        ("none", "use -"),
        ("none", "kick x"),
        ("none", "list-tubes x"),
        ("none", "pause-tube"),
    ];
    commands
        .into_iter()
        .map(|(key, command)| {
            let name = command.split(" | ").next().unwrap_or(command).replace(' ', "_");
            code(format!("{name}_counts_as_{key}"), move |bench| {
                bench.steps("b: put 0 0 60 1 | y -> INSERTED 1")?;
                let client = bench.client("a")?;
                let before = client.ask(b"stats\r\n")?;
                client.send(&crate::case::bytes_of(command))?;
                client.read_reply()?;
                let after = client.ask(b"stats\r\n")?;
                for counted in STATS.iter().filter(|key| key.starts_with("cmd-")) {
                    let more = u64::from(*counted == key || *counted == "cmd-stats");
                    let number = |reply: &[u8]| value(reply, counted).parse::<u64>().unwrap_or(u64::MAX);
                    if number(&after) != number(&before) + more {
                        return Err(client.failure(&format!("expected {counted} to rise by {more}")));
                    }
                }
                Ok(())
            })
            .mark(if key == "none" { Mark::Habit } else { mark::STATS })
        })
        .collect()
}
