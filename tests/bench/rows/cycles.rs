//! The cost of a command in cycles of put, reserve and delete.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::failure::Failure;
use crate::load::{Load, Puts, REDIS_CYCLE, Tubes, Until};
use crate::runner::{Bench, Contest, column};
use crate::server::{Contender, Role, Setup, signal};
use crate::table::{Row, Target};

/// Processor time per command, throughput and latencies.
pub fn cost(bench: &Bench, name: &str, load: Load, target: Target) -> Vec<Row> {
    let setup = Setup { body_bytes: load.body_bytes, ..Setup::PLAIN };
    let figures = bench.in_turns(
        |contender| Contest::open(bench.start(contender, setup)?, load),
        |contest| {
            let (cpu_us, outcome) = contest.cycles(bench.round())?;
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| outcome.latency_us(quantile));
            Ok([cpu_us, outcome.rate() / 1e3, p50, p99, p999])
        },
    );
    vec![
        Row::new(format!("{name}: CPU per command"), "µs", target, column(&figures, 0)),
        Row::new(format!("{name}: throughput"), "1000 commands/s", Target::None, column(&figures, 1)),
        Row::new(format!("{name}: p50 of a batch"), "µs", Target::None, column(&figures, 2)),
        Row::new(format!("{name}: p99 of a batch"), "µs", Target::None, column(&figures, 3)),
        Row::new(format!("{name}: p99.9 of a batch"), "µs", Target::None, column(&figures, 4)),
    ]
}

/// The cost of a cycle of jobs with a tag, as a multiple of the plain cycle's, on two servers of ours.
pub fn tagged(bench: &Bench) -> Vec<Row> {
    let row = |tag: &'static str| {
        let figures = bench.in_turns(
            |contender| {
                contender.must_be_ours()?;
                let load = Load::new(32, 32);
                let plain = Contest::open(bench.start(contender, Setup::PLAIN)?, load)?;
                let load = Load { puts: Puts::Tagged(tag), ..load };
                Ok((plain, Contest::open(bench.start(contender, Setup::PLAIN)?, load)?))
            },
            |(plain, tagged)| Ok([tagged.cycles(bench.round())?.0 / plain.cycles(bench.round())?.0]),
        );
        let name = format!("32 x 32 with {tag}: CPU per command beside the plain cycle's");
        Row::new(name, "x", Target::AtMost(1.5), column(&figures, 0))
    };
    vec![row("idp"), row("con")]
}

/// The cost of a command compared with one of Redis. There is no row if Redis is not installed.
pub fn beside_redis(bench: &Bench) -> Vec<Row> {
    let redis = Contender { role: Role::Redis, label: "Redis".to_owned(), program: "redis-server".into() };
    if Command::new(&redis.program).arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("bench: the row beside Redis is left out, because redis-server is not installed");
        return Vec::new();
    }
    let mut all = bench.contenders.clone();
    all.push(redis);
    let load = Load::new(32, 32);
    let mut figures = bench.in_turns_among(
        &all,
        |contender| {
            let server = bench.start(contender, Setup::PLAIN)?;
            if contender.role == Role::Redis {
                return Contest::open_for(REDIS_CYCLE, server, Load { tubes: Tubes::Default, ..load });
            }
            Contest::open(server, load)
        },
        |contest| Ok([contest.cycles(bench.round())?.0]),
    );
    let name = "32 x 32: CPU per command, below Redis' LPUSH and RPOP";
    match figures.pop() {
        Some(Ok([redis_us])) => vec![Row::new(name, "µs", Target::Below(redis_us), column(&figures, 0))],
        _ => vec![Row::new(name, "µs", Target::None, column(&figures, 0))],
    }
}

/// System calls per command, counted by strace. This is a separate round, because strace slows down each call. The
/// server is then so slow that every connection is ready in each turn.
pub fn system_calls(bench: &Bench) -> Vec<Row> {
    let figures = bench.one_by_one(|contender| {
        let mut contest = Contest::open(bench.start(contender, Setup::PLAIN)?, Load::new(8, 1))?;
        let counter = Counter::attach(contest.server_id())?;
        let (_, outcome) = contest.cycles(Until::Elapsed(Duration::from_millis(500)))?;
        Ok([counter.detach()? as f64 / outcome.commands as f64])
    });
    vec![Row::new("8 x 1: system calls per command", "calls", Target::AtMost(2.2), column(&figures, 0))]
}

/// A running strace that counts the system calls of a process.
struct Counter {
    strace: Child,
    summary: tempfile::NamedTempFile,
}

impl Counter {
    fn attach(id: u32) -> Result<Self, Failure> {
        let summary = tempfile::NamedTempFile::new()?;
        let mut strace = Command::new("strace")
            .args(["-c", "-f", "-p", &id.to_string(), "-o"])
            .arg(summary.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|_| Failure::Tool("strace is not installed".to_owned()))?;
        let mut message = String::new();
        if let Some(messages) = strace.stderr.take() {
            BufReader::new(messages).read_line(&mut message)?;
        }
        let counter = Self { strace, summary };
        if message.contains("attached") { Ok(counter) } else { Err(Failure::Tool(message.trim().to_owned())) }
    }

    fn detach(mut self) -> Result<u64, Failure> {
        signal(&self.strace, Signal::SIGINT)?;
        self.strace.wait()?;
        // "% time, seconds, µs a call, calls", then "errors" where there are any, then "total".
        for line in BufReader::new(File::open(self.summary.path())?).lines() {
            let line = line?;
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.last() == Some(&"total")
                && let Some(calls) = fields.get(3).and_then(|calls| calls.parse().ok())
            {
                return Ok(calls);
            }
        }
        Err(Failure::Tool("strace printed no total".to_owned()))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // An error means that it has exited already.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}
