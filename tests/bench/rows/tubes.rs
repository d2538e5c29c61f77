//! The cost of many tubes in which no client works.

use crate::client::Client;
use crate::failure::Failure;
use crate::load::Load;
use crate::runner::{Bench, Contest, column, ratios};
use crate::server::{Role, Server, Setup};
use crate::table::{Row, Target};

const TUBES: usize = 20_000;
/// Tubes made before their replies are read.
const TUBES_AT_ONCE: usize = 100;

/// Resident bytes per tube with one job, and how much these tubes slow down a command in another tube.
pub fn many(bench: &Bench) -> Vec<Row> {
    let load = Load::new(32, 32);
    let bytes_each = bench.servers_one_by_one(|contender| {
        let server = bench.start(contender, Setup::PLAIN)?;
        Ok([fill(&server, TUBES)? - Load::BODY_BYTES as f64])
    });
    let costs = bench.in_turns(
        |contender| {
            if contender.role == Role::Floor {
                return Err(Failure::Meaningless);
            }
            let crowded = bench.start(contender, Setup::PLAIN)?;
            fill(&crowded, TUBES)?;
            let empty = bench.start(contender, Setup::PLAIN)?;
            Ok((Contest::open(crowded, load)?, Contest::open(empty, load)?))
        },
        |(crowded, empty)| Ok([crowded.cycles(bench.round())?.0, empty.cycles(bench.round())?.0]),
    );
    vec![
        Row::new(
            "20 k tubes with a job each: resident per tube beyond the body",
            "bytes",
            Target::AtMost(400.0),
            column(&bytes_each, 0),
        ),
        Row::new(
            "… CPU per command in another tube, 32 x 32, to the same without them",
            "ratio",
            Target::AtMost(1.05),
            ratios(&costs),
        ),
        Row::new("… CPU per command beside 20 k tubes", "µs", Target::None, column(&costs, 0)),
        Row::new("… CPU per command without them", "µs", Target::None, column(&costs, 1)),
    ]
}

/// Makes this many tubes with a job each, and returns the resident bytes per tube, with its job.
pub fn fill(server: &Server, tubes: usize) -> Result<f64, Failure> {
    let mut client = Client::connect(server.address)?;
    let body = "x".repeat(Load::BODY_BYTES);
    let before = server.resident_bytes()?;
    for first in (0..tubes).step_by(TUBES_AT_ONCE) {
        let mut commands = String::new();
        for index in first..first + TUBES_AT_ONCE {
            commands += &format!("use tube-{index:05}\r\nput 1024 0 120 {}\r\n{body}\r\n", body.len());
        }
        client.send(commands.as_bytes())?;
        for _ in 0..TUBES_AT_ONCE {
            client.expect("USING ")?;
            client.expect("INSERTED ")?;
        }
    }
    Ok((server.resident_bytes()? - before) / tubes as f64)
}
