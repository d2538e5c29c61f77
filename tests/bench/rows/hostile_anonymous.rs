//! The effect of clients without rights, and of handshakes, on a normal client. Only the server of this project has
//! access rules.
//!
//! Owns: the rules, and what the anonymous clients send, at the lowest priority, while the normal client works.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use beanstalkd_testkit::tls;
use rustls::ClientConnection;

use super::hostile::{Hostile, NORMAL_CONNECTIONS, STRETCH, WARM_UP};
use crate::client::Endpoint;
use crate::failure::Failure;
use crate::load::{CYCLE, Generator, Load, Until};
use crate::runner::{Bench, column};
use crate::server::{Server, Setup};
use crate::table::{Row, Target};

/// The tubes of the normal client, where everybody may work. No client may do anything else.
const RULES: &str = "[strangers]\nproduce = [\"load-*\"]\nwork = [\"load-*\", \"default\"]\n";

/// Refused commands in one write.
const PIPELINED: usize = 8_192;
/// Handshakes that have begun and stall.
const STALLED: usize = 1_000;

type Begin = fn(&Server) -> Result<Hostile, Failure>;

/// Each kind of anonymous clients: its name, and how it begins.
const KINDS: [(&str, Begin); 5] = [
    ("refused commands without end", |server| {
        pipeline(server.address, b"flush-tube hidden\r\nstats-tube hidden\r\nkick 1000000\r\n")
    }),
    ("looks for jobs of others without end", |server| {
        pipeline(server.address, b"peek 1\r\ndelete-batch 1 2 3 4 5 6 7 8 9 10\r\nreserve-job 3\r\n")
    }),
    ("wrong tokens without end", |server| {
        let address = server.address;
        repeat(move || ask(address, b"auth a-token-that-is-nobody-s-but-long-enough\r\n"))
    }),
    ("handshakes that end after the first message, without end", |server| {
        let (Endpoint::Plain(address) | Endpoint::Tls(address)) = server.endpoint();
        let hello = hello()?;
        repeat(move || ask(address, &hello))
    }),
    ("1,000 handshakes that stall", |server| {
        let (Endpoint::Plain(address) | Endpoint::Tls(address)) = server.endpoint();
        let (hello, mut hostile) = (hello()?, Hostile::new());
        for _ in 0..STALLED {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(&hello[..hello.len() - 1])?;
            hostile.streams.push(stream);
        }
        Ok(hostile)
    }),
];

/// The latency of a normal client beside anonymous clients.
pub fn anonymous(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, begin) in KINDS {
        let figures = bench.in_turns(
            |contender| Ok(contender.clone()),
            |contender| {
                contender.must_be_ours()?;
                let setup = Setup { has_tls: true, access: Some(RULES), ..Setup::PLAIN };
                let server = bench.start(contender, setup)?;
                let load = Load::new(NORMAL_CONNECTIONS, 1);
                let mut normal = Generator::connect(Endpoint::Plain(server.address), load)?;
                normal.run(CYCLE, Until::Elapsed(WARM_UP))?;
                let alone = normal.run(CYCLE, Until::Elapsed(STRETCH))?;
                let hostile = begin(&server)?;
                let beside = normal.run(CYCLE, Until::Elapsed(STRETCH))?;
                hostile.check()?;
                Ok([
                    beside.latency_us(0.99) / alone.latency_us(0.99),
                    beside.latency_us(0.99),
                    beside.latency_us(1.0),
                ])
            },
        );
        let name = format!("4 x 1 beside {name}");
        rows.extend([
            Row::new(
                format!("{name}: p99, to that alone"),
                "ratio",
                Target::AtMost(3.0),
                column(&figures, 0),
            ),
            Row::new(format!("{name}: p99"), "µs", Target::AtMost(2_000.0), column(&figures, 1)),
            Row::new(format!("{name}: worst"), "µs", Target::AtMost(10_000.0), column(&figures, 2)),
        ]);
    }
    rows
}

fn hello() -> Result<Vec<u8>, Failure> {
    let name = "localhost".try_into().map_err(io::Error::other)?;
    let tls = ClientConnection::new(tls::usual_client().clone(), name).map_err(io::Error::other);
    let mut hello = Vec::new();
    tls?.write_tls(&mut hello)?;
    Ok(hello)
}

/// Sends something on a separate connection, and waits for the beginning of a reply.
fn ask(address: SocketAddr, bytes: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(bytes)?;
    stream.read_exact(&mut [0])
}

fn repeat(ask: impl Fn() -> io::Result<()> + Send + 'static) -> Result<Hostile, Failure> {
    let mut hostile = Hostile::new();
    hostile.spawn(move |over| while !over.load(Ordering::Relaxed) && ask().is_ok() {});
    Ok(hostile)
}

/// A connection that sends these commands again and again, and reads the replies as fast as it can.
fn pipeline(address: SocketAddr, commands: &[u8]) -> Result<Hostile, Failure> {
    let mut writer = TcpStream::connect(address)?;
    let mut reader = writer.try_clone()?;
    let commands = commands.repeat(PIPELINED);
    let mut hostile = Hostile::new();
    hostile.streams.push(writer.try_clone()?);
    hostile.spawn(move |_| while writer.write_all(&commands).is_ok() {});
    hostile.spawn(move |_| {
        let mut buffer = vec![0; 1 << 20];
        while reader.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    Ok(hostile)
}
