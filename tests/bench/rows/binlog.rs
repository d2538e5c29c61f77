//! The cost of the binlog, with a sync every 50 ms, and with a sync before each reply.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::load::{Load, Until};
use crate::runner::{Bench, Contest, column, ratios};
use crate::server::{Contender, Role, Setup};
use crate::table::{Row, Target};

/// Milliseconds between syncs: the default of this server and of the C server.
const USUAL_SYNC_MS: u32 = 50;

/// A directory on the disk that the project is built on, because the directory for temporary files may be in
/// memory, where a sync costs nothing.
pub fn directory() -> Result<TempDir, Failure> {
    Ok(TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?)
}

fn open(
    bench: &Bench,
    contender: &Contender,
    sync_ms: u32,
    load: Load,
) -> Result<(Contest, TempDir), Failure> {
    if contender.role == Role::Floor {
        return Err(Failure::Meaningless);
    }
    let directory = directory()?;
    let server =
        bench.start(contender, Setup { binlog: Some((directory.path(), sync_ms)), ..Setup::PLAIN })?;
    let contest = Contest::open(server, load)?;
    check_written(&directory)?;
    Ok((contest, directory))
}

/// Fails unless the directory has a file that is not empty: a server that ignores `-b` must not get a figure.
fn check_written(directory: &TempDir) -> Result<(), Failure> {
    for file in fs::read_dir(directory.path())? {
        if file?.metadata()?.len() > 0 {
            return Ok(());
        }
    }
    Err(Failure::Tool("the server has written no binlog".to_owned()))
}

/// Processor time per command.
pub fn cost(bench: &Bench) -> Vec<Row> {
    let figures = bench.in_turns(
        |contender| open(bench, contender, USUAL_SYNC_MS, Load::new(32, 32)),
        |(contest, _)| Ok([contest.cycles(bench.round())?.0]),
    );
    vec![Row::new("binlog, -f 50, 32 x 32: CPU per command", "µs", Target::AtMost(1.0), column(&figures, 0))]
}

/// The cost of a cycle whose reservations belong to sessions, and so are logged, as a multiple of the cost without
/// sessions, on two servers of ours.
pub fn sessions(bench: &Bench) -> Vec<Row> {
    let figures = bench.in_turns(
        |contender| {
            contender.must_be_ours()?;
            let load = Load::new(32, 32);
            let without = open(bench, contender, USUAL_SYNC_MS, load)?;
            Ok((open(bench, contender, USUAL_SYNC_MS, Load { has_sessions: true, ..load })?, without))
        },
        |((with, _), (without, _))| {
            let with_us = with.cycles(bench.round())?.0;
            Ok([with_us, without.cycles(bench.round())?.0])
        },
    );
    let name = "binlog, -f 50, 32 x 32 with sessions: CPU per command";
    vec![
        Row::new(format!("{name} beside without"), "x", Target::AtMost(1.1), ratios(&figures)),
        Row::new(name, "µs", Target::None, column(&figures, 0)),
    ]
}

/// The slowest replies with a binlog, which show whether replies wait for the disk.
pub fn tail_latency(bench: &Bench) -> Vec<Row> {
    let load = Load::new(32, 1);
    let figures = bench.in_turns(
        |contender| {
            let with = open(bench, contender, USUAL_SYNC_MS, load)?;
            let without = Contest::open(bench.start(contender, Setup::PLAIN)?, load)?;
            Ok((with, without))
        },
        |((with, _), without)| {
            let with_us = with.cycles(bench.round())?.1.latency_us(0.999);
            Ok([with_us, without.cycles(bench.round())?.1.latency_us(0.999)])
        },
    );
    vec![
        Row::new(
            "binlog, -f 50, 32 x 1: p99.9, to the same without binlog",
            "ratio",
            Target::AtMost(1.5),
            ratios(&figures),
        ),
        Row::new("binlog, -f 50, 32 x 1: p99.9", "µs", Target::None, column(&figures, 0)),
        Row::new("no binlog, 32 x 1: p99.9", "µs", Target::None, column(&figures, 1)),
    ]
}

/// Commands per second if each reply is sent after a sync.
pub fn synced_rate(bench: &Bench, name: &str, load: Load, times_peer: f64) -> Vec<Row> {
    // A slow disk syncs a hundred times a second, and a peer may sync for every command.
    let round = Until::Elapsed(Duration::from_millis(if bench.quick { 500 } else { 1000 }));
    let figures = bench.in_turns(
        |contender| open(bench, contender, 0, load),
        |(contest, _)| {
            let (cpu_us, outcome) = contest.cycles(round)?;
            Ok([outcome.rate(), outcome.latency_us(0.5), cpu_us])
        },
    );
    vec![
        Row::new(
            format!("binlog, -f 0, {name}"),
            "commands/s",
            Target::TimesPeer(times_peer),
            column(&figures, 0),
        ),
        Row::new(format!("binlog, -f 0, {name}: p50 of a batch"), "µs", Target::None, column(&figures, 1)),
        Row::new(format!("binlog, -f 0, {name}: CPU per command"), "µs", Target::None, column(&figures, 2)),
    ]
}
