//! The cost of a job that is reserved and deleted in a batch, compared with the plain commands.

use std::time::Duration;

use crate::load::{CYCLE, DRAIN_IN_BATCHES, FILL, Generator, Load, Until};
use crate::runner::{Bench, column};
use crate::server::Setup;
use crate::table::{Row, Target};

/// Jobs of a batch, and commands that a connection of the plain cycle sends before it waits.
const DEPTH: usize = 100;
const CONNECTIONS: usize = 32;

/// Processor time per job: `reserve-batch` and `delete-batch`, to put, reserve and delete. Other servers have no
/// batches.
pub fn cost(bench: &Bench) -> Vec<Row> {
    // The same number at a time as in the plain cycle.
    let at_once = CONNECTIONS * DEPTH;
    let rounds = bench.million() / 4 / at_once;
    let jobs = rounds * at_once;
    let figures = bench.in_turns(
        |contender| {
            contender.must_be_ours()?;
            let server = bench.start(contender, Setup::PLAIN)?;
            let mut generator = Generator::connect(server.endpoint(), Load::new(CONNECTIONS, DEPTH))?;
            generator.run(CYCLE, Until::Jobs(jobs / 10))?;
            Ok((server, generator))
        },
        |(server, generator)| {
            let (plain, _) = server.cpu_of(|| generator.run(CYCLE, Until::Jobs(jobs)))?;
            let mut batched = Duration::ZERO;
            for _ in 0..rounds {
                generator.run(FILL, Until::Jobs(at_once))?;
                batched += server.cpu_of(|| generator.run(DRAIN_IN_BATCHES, Until::Jobs(at_once)))?.0;
            }
            let [plain_us, batched_us] = [plain, batched].map(|cpu| cpu.as_secs_f64() * 1e6 / jobs as f64);
            Ok([batched_us / plain_us, batched_us])
        },
    );
    let name = "reserve-batch 100 and delete-batch 100: CPU per job";
    vec![
        Row::new(
            format!("{name}, to put, reserve and delete, 32 x 100"),
            "ratio",
            Target::AtMost(0.333),
            column(&figures, 0),
        ),
        Row::new(name, "µs", Target::None, column(&figures, 1)),
    ]
}
