//! The cost of a backlog: memory per job, processor time to put and to drain, and the memory that is kept afterwards.

use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::load::{CYCLE, DRAIN, FILL, Generator, Kind, Load, Puts, Until};
use crate::runner::{Bench, column, median, per_command_us};
use crate::server::{Contender, Role, Server, Setup};
use crate::table::{Row, Target};

/// Commands that the one connection sends before it waits: many, so that the cost of reads and writes does not count.
const DEPTH: usize = 256;
/// How long a server may take to give memory back.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(5);
/// The pause between two measurements of the remaining memory.
const POLL_EVERY: Duration = Duration::from_millis(100);

const SMALL_BACKLOG: usize = 10_000;
const LARGE_BACKLOG: usize = 10_000_000;
/// More than ten million jobs of the usual length take in any measured server.
const MEMORY_BYTES: usize = 3_000_000_000;
/// The number of puts whose mean cost is taken.
const STRETCH: usize = 200_000;

/// A server with one connection that fills it.
struct Backlog {
    server: Server,
    generator: Generator,
    resident_at_start: f64,
}

impl Backlog {
    fn open(bench: &Bench, contender: &Contender, puts: Puts) -> Result<Self, Failure> {
        let server = bench.start(contender, Setup::PLAIN)?;
        let load = Load { puts, ..Load::new(1, DEPTH) };
        let mut generator = Generator::connect(server.endpoint(), load)?;
        if !matches!(puts, Puts::RandomDelay) {
            generator.run(CYCLE, Until::Jobs(DEPTH))?;
        }
        let resident_at_start = server.resident_bytes()?;
        Ok(Self { server, generator, resident_at_start })
    }

    /// Microseconds of processor time per command.
    fn run(&mut self, kinds: &'static [Kind], jobs: usize) -> Result<f64, Failure> {
        let (cpu, outcome) = self.server.cpu_of(|| self.generator.run(kinds, Until::Jobs(jobs)))?;
        Ok(per_command_us(cpu, outcome.commands))
    }

    fn growth(&self) -> Result<f64, Failure> {
        Ok(self.server.resident_bytes()? - self.resident_at_start)
    }

    /// The percentage of `peak` that is still resident after the allowed time, or as soon as it is below a tenth.
    fn kept_percent(&self, peak: f64) -> Result<f64, Failure> {
        let drained = Instant::now();
        loop {
            let percent = self.growth()?.max(0.0) / peak * 100.0;
            if percent <= 10.0 || drained.elapsed() >= GIVE_BACK_WITHIN {
                return Ok(percent);
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

/// Fills a server with jobs and drains it.
fn fill_and_drain(bench: &Bench, contender: &Contender, puts: Puts) -> Result<[f64; 4], Failure> {
    let jobs = bench.million();
    let mut backlog = Backlog::open(bench, contender, puts)?;
    let put_us = backlog.run(FILL, jobs)?;
    let peak = backlog.growth()?;
    let drain_us = backlog.run(DRAIN, jobs)?;
    let kept_percent = backlog.kept_percent(peak)?;
    Ok([peak / jobs as f64 - Load::BODY_BYTES as f64, put_us, drain_us, kept_percent])
}

/// Ready jobs of one priority.
pub fn ready(bench: &Bench) -> Vec<Row> {
    let name = format!("{} ready jobs of {} B", bench.million(), Load::BODY_BYTES);
    let figures = bench.servers_one_by_one(|contender| fill_and_drain(bench, contender, Puts::Same));
    vec![
        Row::new(
            format!("{name}: resident per job beyond the body"),
            "bytes",
            Target::AtMost(80.0),
            column(&figures, 0),
        ),
        Row::new("… CPU per put", "µs", Target::AtMost(0.6), column(&figures, 1)),
        Row::new("… CPU per command of the drain", "µs", Target::AtMost(0.8), column(&figures, 2)),
        Row::new(
            "… still resident 5 s after the drain",
            "% of peak",
            Target::AtMost(10.0),
            column(&figures, 3),
        ),
    ]
}

/// Ready jobs with random priorities.
pub fn random_priorities(bench: &Bench) -> Vec<Row> {
    let name = format!("{} ready jobs, random priorities", bench.million());
    let figures =
        bench.servers_one_by_one(|contender| fill_and_drain(bench, contender, Puts::RandomPriority));
    vec![
        Row::new(
            format!("{name}: CPU per command of the drain"),
            "µs",
            Target::AtMost(1.5),
            column(&figures, 2),
        ),
        Row::new(format!("{name}: CPU per put"), "µs", Target::None, column(&figures, 1)),
    ]
}

/// Delayed jobs with random delays.
pub fn delayed(bench: &Bench) -> Vec<Row> {
    let jobs = bench.million();
    let name = format!("{jobs} delayed jobs of {} B", Load::BODY_BYTES);
    let figures = bench.servers_one_by_one(|contender| {
        let mut backlog = Backlog::open(bench, contender, Puts::RandomDelay)?;
        let put_us = backlog.run(FILL, jobs)?;
        Ok([backlog.growth()? / jobs as f64 - Load::BODY_BYTES as f64, put_us])
    });
    vec![
        Row::new(
            format!("{name}: resident per job beyond the body"),
            "bytes",
            Target::AtMost(90.0),
            column(&figures, 0),
        ),
        Row::new("… CPU per put", "µs", Target::AtMost(0.8), column(&figures, 1)),
    ]
}

/// Whether puts become more expensive as the backlog grows, and how long the slowest takes.
pub fn ten_million(bench: &Bench) -> Vec<Row> {
    let figures = bench.servers_one_by_one(|contender| {
        if bench.quick {
            return Err(Failure::Skipped("10 M jobs take too long for a quick run"));
        }
        if contender.role == Role::Peer {
            return Err(Failure::Skipped("10 M jobs take minutes and gigabytes"));
        }
        have_memory_backed();
        let small_us = (0..bench.rounds())
            .map(|_| {
                let mut backlog = Backlog::open(bench, contender, Puts::Same)?;
                backlog.run(FILL, SMALL_BACKLOG)?;
                backlog.run(FILL, STRETCH)
            })
            .collect::<Result<Vec<f64>, Failure>>()?;
        let mut backlog = Backlog::open(bench, contender, Puts::Same)?;
        let worst_ms = worst_batch_ms(&mut backlog, LARGE_BACKLOG - bench.rounds() * STRETCH)?;
        let large_us =
            (0..bench.rounds()).map(|_| backlog.run(FILL, STRETCH)).collect::<Result<Vec<f64>, Failure>>()?;
        let (small_us, large_us) = (median(small_us), median(large_us));
        Ok([large_us / small_us, worst_ms])
    });
    vec![
        Row::new(
            "put at a backlog of 10 M, to put at 10 k: CPU",
            "ratio",
            Target::AtMost(1.3),
            column(&figures, 0),
        ),
        Row::new("… worst 256 puts on the way there", "ms", Target::AtMost(5.0), column(&figures, 1)),
    ]
}

/// Touches as much memory as the row will need, and frees it. On a virtual machine the host takes much longer for the
/// first use of a page than the server does, and the row must not include that time.
fn have_memory_backed() {
    std::hint::black_box(vec![1_u8; MEMORY_BYTES]);
}

/// The longest time of a batch, which is an upper bound for each put in it. The smaller of wall time and processor time
/// counts: the wall time includes other programs, and the processor time lags while the server does not sleep.
fn worst_batch_ms(backlog: &mut Backlog, jobs: usize) -> Result<f64, Failure> {
    let mut worst = Duration::ZERO;
    let mut cpu_before = backlog.server.cpu()?;
    for _ in 0..jobs / DEPTH {
        let wall = backlog.generator.run(FILL, Until::Jobs(DEPTH))?.elapsed;
        let cpu_after = backlog.server.cpu()?;
        worst = worst.max(wall.min(cpu_after.saturating_sub(cpu_before)));
        cpu_before = cpu_after;
    }
    Ok(worst.as_secs_f64() * 1e3)
}
