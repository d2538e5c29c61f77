//! The instructions of our server in user space, counted by callgrind.
//!
//! Unlike processor times, the counts of two runs differ by less than a percent, whatever else the machine does. The
//! instructions of the kernel are not included.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::load::{CYCLE, CYCLE_IN_BATCHES, FILL, Generator, Kind, Load, Puts, Until};
use crate::runner::Bench;
use crate::server::{Contender, Role, Setup};
use crate::table::{Figure, Row, Target};

/// The jobs of a short and of a long run. The cost of a job is the difference of their counts, divided by that of their
/// jobs, so the start and the end of the server and its connections do not count.
const JOBS: [usize; 2] = [10_000, 30_000];

/// Instructions for each job: in cycles of put, reserve and delete, and in batches.
pub fn of_a_job(bench: &Bench) -> Vec<Row> {
    let row = |name: &str, load, setup| {
        let figures = ours_alone(bench, |contender| per_job(bench, contender, load, setup, CYCLE));
        Row::new(format!("{name}: instructions per job"), "count", Target::None, figures)
    };
    let cycle = |name, load| row(name, load, Setup::PLAIN);
    let wide = Load::new(32, 32);
    let rules = "[[tube]]\nname = \"load-*\"\nmax-attempts = 5\nrate = \"4000000000/s\"\n";
    vec![
        cycle("1 x 1", Load::new(1, 1)),
        cycle("1 x 32", Load::new(1, 32)),
        cycle("32 x 32", wide),
        cycle("32 x 32 with idp", Load { puts: Puts::Tagged("idp"), ..wide }),
        cycle("32 x 32 with con", Load { puts: Puts::Tagged("con"), ..wide }),
        cycle("32 x 32 with sessions", Load { has_sessions: true, ..wide }),
        row("32 x 32 with retries and a rate", wide, Setup { tubes: Some(rules), ..Setup::PLAIN }),
        row("32 x 32 over TLS", wide, Setup { has_tls: true, ..Setup::PLAIN }),
        cycle("32 x 100", Load::new(32, 100)),
        batches(bench),
    ]
}

/// A reserve and a delete in batches of 100.
fn batches(bench: &Bench) -> Row {
    let load = Load::new(32, 100);
    let figures = ours_alone(bench, |contender| {
        let of = |kinds| per_job(bench, contender, load, Setup::PLAIN, kinds);
        Ok(of(CYCLE_IN_BATCHES)? - of(FILL)?)
    });
    let name = "32 x 100, reserve-batch and delete-batch: instructions per job";
    Row::new(name, "count", Target::None, figures)
}

fn ours_alone(bench: &Bench, measure: impl Fn(&Contender) -> Figure) -> Vec<Figure> {
    let of = |contender: &Contender| match contender.role {
        Role::Ours => measure(contender),
        Role::Floor | Role::Peer | Role::Redis => Err(Failure::Meaningless),
    };
    bench.contenders.iter().map(of).collect()
}

fn per_job(
    bench: &Bench,
    contender: &Contender,
    load: Load,
    setup: Setup<'_>,
    kinds: &'static [Kind],
) -> Figure {
    let at_once = load.connections * load.depth;
    let [short, long] = JOBS.map(|jobs| jobs.next_multiple_of(at_once));
    let count = |jobs| {
        let file = tempfile::NamedTempFile::new()?;
        let server = bench.start(contender, Setup { counts: Some(file.path()), ..setup })?;
        Generator::connect(server.endpoint(), load)?.run(kinds, Until::Jobs(jobs))?;
        server.stop()?;
        total(file.path())
    };
    Ok((count(long)? - count(short)?) / (long - short) as f64)
}

/// The number of instructions in a file of callgrind.
fn total(counts: &Path) -> Figure {
    let text = fs::read_to_string(counts)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    total.ok_or_else(|| Failure::Tool("callgrind wrote no total".to_owned()))
}
