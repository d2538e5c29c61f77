//! The time from a server's start to its first reply.

use crate::client::Client;
use crate::failure::Failure;
use crate::load::{FILL, Generator, Load, Tubes, Until};
use crate::rows::binlog::directory;
use crate::runner::{Bench, column, median};
use crate::server::{Contender, Setup};
use crate::table::{Row, Target};

/// With the tube's name, the record and the line end, a job with this body takes 231 bytes in the binlog.
const BODY_BYTES: usize = 138;
const RECORD_BYTES: usize = 4 + "default".len() + 80 + BODY_BYTES + 2;
/// The number of starts of which the median is taken.
const STARTS: usize = 3;
const EMPTY_STARTS: usize = 11;

/// Bytes of binlog read per second, from the start of the program to its first reply. The files are in the page
/// cache, because the same row has just written them.
pub fn on_binlog(bench: &Bench) -> Vec<Row> {
    let figures = bench.servers_one_by_one(|contender| replay(bench, contender));
    let name = format!(
        "start on a binlog of {} jobs ({} MB)",
        bench.million(),
        bench.million() * RECORD_BYTES / 1_000_000
    );
    vec![
        Row::new(name, "MB/s", Target::AtLeast(1000.0), column(&figures, 0)),
        Row::new("… to first reply", "ms", Target::None, column(&figures, 1)),
    ]
}

fn replay(bench: &Bench, contender: &Contender) -> Result<[f64; 2], Failure> {
    let directory = directory()?;
    let setup = Setup { binlog: Some((directory.path(), 50)), ..Setup::PLAIN };
    let server = bench.start(contender, setup)?;
    let load = Load { body_bytes: BODY_BYTES, tubes: Tubes::Default, ..Load::new(8, 125) };
    Generator::connect(server.endpoint(), load)?.run(FILL, Until::Jobs(bench.million()))?;
    server.stop()?;

    let mut seconds = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let server = bench.start(contender, setup)?;
        seconds.push(server.first_reply.as_secs_f64());
        let jobs = Client::connect(server.address)?.stat("current-jobs-ready")?;
        if jobs != bench.million() {
            return Err(Failure::Reply(format!("current-jobs-ready: {jobs}")));
        }
        server.stop()?;
    }
    let seconds = median(seconds);
    Ok([(bench.million() * RECORD_BYTES) as f64 / 1e6 / seconds, seconds * 1e3])
}

/// The start of a server without a binlog.
pub fn empty(bench: &Bench) -> Vec<Row> {
    let figures = bench.one_by_one(|contender| {
        let starts: Result<Vec<f64>, Failure> = (0..EMPTY_STARTS)
            .map(|_| Ok(bench.start(contender, Setup::PLAIN)?.first_reply.as_secs_f64() * 1e3))
            .collect();
        Ok([median(starts?)])
    });
    vec![Row::new("start, empty, to first reply", "ms", Target::AtMost(10.0), column(&figures, 0))]
}
