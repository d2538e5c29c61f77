//! The gain of `--spin` for the speed of a single connection, and its cost in processor time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::PATIENCE;
use crate::failure::Failure;
use crate::rows::scale::idle_percent;
use crate::runner::{Bench, Figures, column};
use crate::server::{Contender, Role, Server, Setup};
use crate::table::{Row, Target};

const SPIN_US: u32 = 50;
/// The number of round trips in a round, one after the other.
const ROUND_TRIPS: usize = 20_000;
/// The number of commands of a client that pauses between commands, and the pause.
const PACED: usize = 200;
const PACE: Duration = Duration::from_millis(5);

/// A command on an empty tube, because it is the least work for a server.
const REQUEST: &[u8] = b"peek-ready\r\n";
const REPLY: &[u8] = b"NOT_FOUND\r\n";

/// A single connection with one command at a time, without and with `--spin`.
pub fn round_trips(bench: &Bench) -> Vec<Row> {
    let plain = contest(bench, 0);
    let spinning = contest(bench, SPIN_US);
    let mut rows = Vec::new();
    for (figures, how) in [(plain, String::new()), (spinning, format!(" with --spin {SPIN_US}"))] {
        let names = [
            ("p50 of the round trip", "µs"),
            ("p99 of the round trip", "µs"),
            ("CPU when busy", "% of a core"),
            ("CPU at one command every 5 ms", "% of a core"),
            ("CPU over 5 s in which nothing happens", "% of a core"),
        ];
        for (index, (name, unit)) in names.into_iter().enumerate() {
            let name = format!("one connection, depth 1{how}: {name}");
            rows.push(Row::new(name, unit, Target::None, column(&figures, index)));
        }
    }
    rows
}

fn contest(bench: &Bench, spin_us: u32) -> Figures<5> {
    bench.in_turns(
        |contender| match contender.role {
            Role::Floor => Err(Failure::Meaningless),
            Role::Peer if spin_us > 0 => Err(Failure::Meaningless),
            _ => Single::open(bench, contender, spin_us),
        },
        Single::round,
    )
}

/// A server and its only client, which polls without sleeping, so that its own wake-up does not count.
struct Single {
    server: Server,
    stream: TcpStream,
}

impl Single {
    fn open(bench: &Bench, contender: &Contender, spin_us: u32) -> Result<Self, Failure> {
        let server = bench.start(contender, Setup { spin_us, ..Setup::PLAIN })?;
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { server, stream })
    }

    fn round(&mut self) -> Result<[f64; 5], Failure> {
        let Self { server, stream } = self;
        let mut latencies_us = Vec::with_capacity(ROUND_TRIPS);
        let started = Instant::now();
        let (busy, ()) = server.cpu_of(|| {
            for _ in 0..ROUND_TRIPS {
                let asked = Instant::now();
                ask(stream)?;
                latencies_us.push(asked.elapsed().as_secs_f64() * 1e6);
            }
            Ok(())
        })?;
        let busy_percent = busy.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
        let started = Instant::now();
        let (paced, ()) = server.cpu_of(|| {
            for _ in 0..PACED {
                ask(stream)?;
                thread::sleep(PACE);
            }
            Ok(())
        })?;
        let paced_percent = paced.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
        let idle_percent = idle_percent(server)?;
        latencies_us.sort_by(f64::total_cmp);
        let quantile = |share: f64| latencies_us[(ROUND_TRIPS as f64 * share) as usize];
        Ok([quantile(0.5), quantile(0.99), busy_percent, paced_percent, idle_percent])
    }
}

fn ask(stream: &mut TcpStream) -> Result<(), Failure> {
    let started = Instant::now();
    stream.write_all(REQUEST)?;
    let mut reply = [0; REPLY.len()];
    let mut count = 0;
    while count < REPLY.len() {
        match stream.read(&mut reply[count..]) {
            Ok(0) => return Err(Failure::Closed),
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock && started.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.into()),
        }
    }
    if reply == REPLY {
        return Ok(());
    }
    Err(Failure::Reply(String::from_utf8_lossy(&reply).trim_end().to_owned()))
}
