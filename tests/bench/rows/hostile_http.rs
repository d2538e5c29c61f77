//! The effect of HTTP requests on a normal client of the protocol. Only the server of this project has HTTP.
//!
//! Owns: the requests, which a thread repeats at the lowest priority while the normal client works.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use super::hostile::{Hostile, JOB, NORMAL_CONNECTIONS, STRETCH, WARM_UP, in_batches, watcher};
use crate::failure::Failure;
use crate::load::{CYCLE, Generator, Load, Until};
use crate::runner::{Bench, column};
use crate::server::{HttpAddresses, Setup};
use crate::table::{Row, Target};

const TUBES: usize = 20_000;
const JOBS: usize = 1_000_000;
/// Connections of browsers that do not read: all that the server has for HTTP.
const BROWSERS: usize = 16;

/// Begins to send requests to a prepared server.
type Begin = fn(HttpAddresses) -> Result<Hostile, Failure>;

/// Each kind of request: its name, how many tubes and jobs the server has, and how it begins.
const KINDS: [(&str, usize, usize, Begin); 5] = [
    ("scrapes of 20,000 tubes", TUBES, 0, |http| repeat(http.metrics, "/metrics")),
    ("scrapes of 100,000 tubes", 5 * TUBES, 0, |http| repeat(http.metrics, "/metrics")),
    ("lists of a million jobs that match no filter", 1, JOBS, |http| {
        repeat(http.admin, "/api/v1/tubes/hostile-0/jobs?state=ready&contains=needle")
    }),
    ("counts of a million jobs", 1, JOBS, |http| {
        repeat(http.admin, "/api/v1/tubes/hostile-0/jobs/count?state=ready&contains=needle")
    }),
    ("16 browsers that do not read 20,000 tubes", TUBES, 0, |http| unread(http.metrics, "/metrics")),
];

/// The latency of a normal client while the server answers HTTP requests.
pub fn requests(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, tubes, jobs, begin) in KINDS {
        let figures = bench.in_turns(
            |contender| Ok(contender.clone()),
            |contender| {
                contender.must_be_ours()?;
                let server = bench.start(contender, Setup { has_http: true, ..Setup::PLAIN })?;
                let mut owner = watcher(server.address, tubes)?;
                in_batches(&mut owner, jobs, 1, |_| JOB.to_owned())?;
                let mut normal = Generator::connect(server.endpoint(), Load::new(NORMAL_CONNECTIONS, 1))?;
                normal.run(CYCLE, Until::Elapsed(WARM_UP))?;
                let hostile = begin(server.http.ok_or(Failure::Meaningless)?)?;
                let beside = normal.run(CYCLE, Until::Elapsed(STRETCH))?;
                hostile.check()?;
                Ok([beside.latency_us(0.99), beside.latency_us(1.0)])
            },
        );
        for (index, (what, most)) in [("p99", 2_000.0), ("worst", 10_000.0)].into_iter().enumerate() {
            let name = format!("4 x 1 beside {name}: {what}");
            rows.push(Row::new(name, "µs", Target::AtMost(most), column(&figures, index)));
        }
    }
    rows
}

/// Sends a request and waits for the end of the response.
fn get(address: SocketAddr, path: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    assert!(head.ends_with(b"200"), "{path}: {}", head.escape_ascii());
    std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
}

/// Sends one request after another.
fn repeat(address: SocketAddr, path: &'static str) -> Result<Hostile, Failure> {
    let mut hostile = Hostile::new();
    hostile.spawn(move |over| while !over.load(Ordering::Relaxed) && get(address, path).is_ok() {});
    Ok(hostile)
}

/// Opens connections, and sends a request on each whose response is never read.
fn unread(address: SocketAddr, path: &str) -> Result<Hostile, Failure> {
    let mut hostile = Hostile::new();
    for _ in 0..BROWSERS {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
        hostile.streams.push(stream);
    }
    Ok(hostile)
}
