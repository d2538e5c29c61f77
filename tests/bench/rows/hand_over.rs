//! The pause that clients notice when a server is handed over to another program, by jobs and connections.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::client::{Client, PATIENCE};
use crate::failure::Failure;
use crate::load::{FILL, Generator, Load, Tubes, Until};
use crate::rows::CONNECTIONS_AT_ONCE;
use crate::rows::binlog::directory;
use crate::runner::{Bench, column};
use crate::server::{Contender, Role, Server, Setup};
use crate::table::{Row, Target};

/// The longest pause that is promised, with a million jobs and ten thousand connections.
const MAX_PAUSE_MS: f64 = 300.0;
/// How many hand-overs each figure has: the longest pause of all of them counts.
const HAND_OVERS: usize = 3;
const BODY_BYTES: usize = 100;
/// Without files that can be read again, SIGHUP would end the server.
const RULES: &str = "[strangers]\nproduce = [\"*\"]\nwork = [\"*\"]\nobserve = [\"*\"]\n";

/// The longest wait of a client that asks again and again. The server may use both cores.
pub fn pauses(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for (jobs, connections) in [(0, 10), (bench.million() / 10, 1_000), (bench.million(), 10_000)] {
        for (name, has_log) in [("without a log", false), ("with a log", true)] {
            let figures = bench.one_by_one(|contender| match contender.role {
                Role::Ours => longest_pause(bench, contender, jobs, connections, has_log).map(|ms| [ms]),
                _ => Err(Failure::Meaningless),
            });
            let name = format!("hand-over, {jobs} jobs, {connections} connections, {name}: longest pause");
            rows.push(Row::new(name, "ms", Target::AtMost(MAX_PAUSE_MS), column(&figures, 0)));
        }
    }
    rows
}

fn longest_pause(
    bench: &Bench,
    contender: &Contender,
    jobs: usize,
    connections: usize,
    has_log: bool,
) -> Result<f64, Failure> {
    let directory = directory()?;
    let program = directory.path().join("program");
    let log = directory.path().join("log");
    fs::create_dir(&log)?;
    fs::copy(&contender.program, &program)?;
    let contender = Contender { program, ..contender.clone() };
    let binlog = has_log.then_some((log.as_path(), 50));
    let server = bench.start(&contender, Setup { binlog, access: Some(RULES), ..Setup::PLAIN })?;
    bench.cores.allow_both(server.id())?;
    if jobs > 0 {
        let load = Load { body_bytes: BODY_BYTES, tubes: Tubes::Default, ..Load::new(8, 125) };
        Generator::connect(server.endpoint(), load)?.run(FILL, Until::Jobs(jobs))?;
    }
    let mut clients = Vec::with_capacity(connections);
    let mut asking = Client::connect(server.address)?;
    while clients.len() < connections {
        for _ in 0..CONNECTIONS_AT_ONCE.min(connections - clients.len()) {
            let mut client = Client::connect(server.address)?;
            // Of ten, one waits and one holds a job.
            match clients.len() % 10 {
                0 => client.send(b"watch quiet\r\nignore default\r\nreserve\r\n")?,
                1 => client.send(b"reserve-with-timeout 0\r\n")?,
                _ => {}
            }
            clients.push(client);
        }
        asking.stat("current-connections")?;
    }
    let mut longest = Duration::ZERO;
    for _ in 0..HAND_OVERS {
        longest = longest.max(hand_over(&server, &contender, &mut asking)?);
    }
    Ok(longest.as_secs_f64() * 1e3)
}

/// Hands the server over; returns the longest time that a client has waited for a reply in the meantime.
fn hand_over(server: &Server, contender: &Contender, asking: &mut Client) -> Result<Duration, Failure> {
    let next = contender.program.with_extension("next");
    fs::copy(&contender.program, &next)?;
    fs::rename(&next, &contender.program)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let probe = scope.spawn(|| -> Result<Duration, Failure> {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                asking.send(b"list-tube-used\r\n")?;
                asking.line()?;
                longest = longest.max(start.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
            Ok(longest)
        });
        let sent = kill(Pid::from_raw(server.id().cast_signed()), Signal::SIGHUP);
        let outcome = sent
            .map_err(std::io::Error::from)
            .map_err(Failure::from)
            .and_then(|()| await_program(server.id()));
        // The first answers of the next program count.
        thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let longest = probe.join().map_err(|_| Failure::Tool("the probe has ended".to_owned()))?;
        outcome.and(longest)
    })
}

/// Waits until the process runs the file that has the name now.
fn await_program(id: u32) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    while fs::read_link(format!("/proc/{id}/exe"))?.to_string_lossy().ends_with("(deleted)") {
        if Instant::now() > end {
            return Err(Failure::Silent);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
