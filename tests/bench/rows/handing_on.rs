//! The cost for a worker to end its job and put the next one, in one command and in two.

use std::time::Duration;

use crate::load::{COMPLETE, FILL, Generator, HAND_ON, Load, TAKE, Until};
use crate::runner::{Bench, column};
use crate::server::Setup;
use crate::table::{Row, Target};

/// Processor time of a `complete` with one put, to that of a put and a delete. Other servers have no `complete`.
pub fn by_complete(bench: &Bench) -> Vec<Row> {
    [(1000, 1), (32, 32)].into_iter().flat_map(|load| beside_two_commands(bench, load)).collect()
}

fn beside_two_commands(bench: &Bench, (connections, depth): (usize, usize)) -> Vec<Row> {
    let at_once = connections * depth;
    let jobs = Until::Jobs(at_once);
    let rounds = bench.million() / 8 / at_once;
    let figures = bench.in_turns(
        |contender| {
            contender.must_be_ours()?;
            let server = bench.start(contender, Setup::PLAIN)?;
            let mut generator = Generator::connect(server.endpoint(), Load::new(connections, depth))?;
            generator.run(FILL, jobs)?;
            Ok((server, generator))
        },
        |(server, generator)| {
            let (mut apart, mut together) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..rounds {
                generator.run(TAKE, jobs)?;
                apart += server.cpu_of(|| generator.run(HAND_ON, jobs))?.0;
                generator.run(TAKE, jobs)?;
                together += server.cpu_of(|| generator.run(COMPLETE, jobs))?.0;
            }
            let completed = (rounds * at_once) as f64;
            let [apart_us, together_us] = [apart, together].map(|cpu| cpu.as_secs_f64() * 1e6 / completed);
            Ok([together_us / apart_us, together_us])
        },
    );
    let name = format!("{connections} x {depth}: CPU of a complete with one put");
    vec![
        Row::new(format!("{name}, to put and delete"), "ratio", Target::AtMost(0.7), column(&figures, 0)),
        Row::new(name, "µs", Target::None, column(&figures, 1)),
    ]
}
