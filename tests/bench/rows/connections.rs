//! The cost of waiting clients, and the time until a job reaches one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use crate::client::{Client, PATIENCE, parse_reserved, unexpected};
use crate::failure::Failure;
use crate::load::Load;
use crate::rows::CONNECTIONS_AT_ONCE;
use crate::runner::{Bench, column, median, per_command_us};
use crate::server::{Role, Server, Setup};
use crate::table::{Row, Target};

const WAITING: usize = 10_000;
/// The number of waiting clients that a measurement wakes.
const WOKEN: usize = 2_000;
/// The number of puts sent together, because the wake-up of the server costs more than a put.
const PUTS_TOGETHER: usize = 8;

const RIVALS: usize = 16;
const DELIVERIES: usize = 2_000;

fn put() -> Vec<u8> {
    format!("put 1024 0 120 {}\r\n{}\r\n", Load::BODY_BYTES, "x".repeat(Load::BODY_BYTES)).into_bytes()
}

/// Bytes per waiting connection, and the cost of a put that wakes one waiting client.
pub fn waiting(bench: &Bench) -> Vec<Row> {
    let figures = bench.servers_one_by_one(|contender| {
        let server = bench.start(contender, Setup::PLAIN)?;
        let mut control = Client::connect(server.address)?;
        control.await_stat("current-waiting", |count| count == 0)?;
        let before = server.resident_bytes()?;
        let mut connections = Vec::with_capacity(WAITING);
        for index in 1..=WAITING {
            let mut connection = TcpStream::connect(server.address)?;
            connection.write_all(b"reserve\r\n")?;
            connections.push(connection);
            if index % CONNECTIONS_AT_ONCE == 0 {
                control.await_stat("current-waiting", |count| count == index)?;
            }
        }
        let bytes_each = (server.resident_bytes()? - before) / WAITING as f64;
        let together_us = wake(&server, &mut control, PUTS_TOGETHER)?;
        let singly_us = wake(&server, &mut control, 1)?;
        control.await_stat("current-waiting", |count| count == WAITING - 2 * WOKEN)?;
        Ok([bytes_each, together_us, singly_us])
    });
    vec![
        Row::new(
            "10 k connections waiting in reserve: resident each",
            "bytes",
            Target::AtMost(350.0),
            column(&figures, 0),
        ),
        Row::new(
            "… CPU of a put that wakes one, 8 together",
            "µs",
            Target::AtMost(12.0),
            column(&figures, 1),
        ),
        Row::new("10 k waiting: CPU of a single put that wakes one", "µs", Target::None, column(&figures, 2)),
    ]
}

/// Microseconds of the server's processor time for each put that wakes a client, with `together` puts in a write.
fn wake(server: &Server, control: &mut Client, together: usize) -> Result<f64, Failure> {
    let puts = put().repeat(together);
    let (cpu, ()) = server.cpu_of(|| {
        for _ in 0..WOKEN / together {
            control.send(&puts)?;
            for _ in 0..together {
                control.expect("INSERTED ")?;
            }
        }
        Ok(())
    })?;
    Ok(per_command_us(cpu, WOKEN as u64))
}

/// The time from sending a put to the job's arrival at one of 16 waiting clients, and how often that is the client
/// that has waited longest. The generator polls without sleeping, so that its own wake-up does not count.
pub fn delivery(bench: &Bench) -> Vec<Row> {
    let figures = bench.in_turns(
        |contender| match contender.role {
            Role::Floor => Err(Failure::Meaningless),
            _ => {
                let server = bench.start(contender, Setup::PLAIN)?;
                let rivals = Rivals::connect(server.address)?;
                Ok((server, rivals))
            }
        },
        |(_, rivals)| rivals.round(),
    );
    vec![
        Row::new("16 waiting, one put: p50 to delivery", "µs", Target::OfPeer(0.6), column(&figures, 0)),
        Row::new(
            "… to the client that waits longest",
            "% of puts",
            Target::AtLeast(100.0),
            column(&figures, 1),
        ),
    ]
}

/// Clients that wait for the same jobs, and the client that puts them.
struct Rivals {
    poll: Poll,
    events: Events,
    producer: Client,
    waiting: Vec<mio::net::TcpStream>,
    /// Indexes into `waiting`, in the order in which they began to wait.
    order: std::collections::VecDeque<usize>,
}

impl Rivals {
    fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let poll = Poll::new()?;
        let mut producer = Client::connect(address)?;
        let mut waiting = Vec::new();
        for index in 0..RIVALS {
            let mut client = Client::connect(address)?;
            client.send(b"reserve\r\n")?;
            producer.await_stat("current-waiting", |count| count == index + 1)?;
            let stream = client.into_stream();
            stream.set_nonblocking(true)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            waiting.push(stream);
        }
        let events = Events::with_capacity(RIVALS);
        Ok(Self { poll, events, producer, waiting, order: (0..RIVALS).collect() })
    }

    fn round(&mut self) -> Result<[f64; 2], Failure> {
        let put = put();
        let mut latencies_us = Vec::with_capacity(DELIVERIES);
        let mut to_first = 0;
        for _ in 0..DELIVERIES {
            let sent = Instant::now();
            self.producer.send(&put)?;
            let receiver = self.await_receiver()?;
            latencies_us.push(sent.elapsed().as_secs_f64() * 1e6);
            to_first += usize::from(self.order.front() == Some(&receiver));
            self.producer.expect("INSERTED ")?;
            self.wait_again(receiver)?;
        }
        Ok([median(latencies_us), to_first as f64 * 100.0 / DELIVERIES as f64])
    }

    fn await_receiver(&mut self) -> Result<usize, Failure> {
        let started = Instant::now();
        loop {
            self.poll.poll(&mut self.events, Some(Duration::ZERO))?;
            if let Some(event) = self.events.iter().next() {
                return Ok(event.token().0);
            }
            if started.elapsed() > PATIENCE {
                return Err(Failure::Silent);
            }
        }
    }

    /// Reads the reply, deletes the job, and waits again, behind the other clients.
    fn wait_again(&mut self, receiver: usize) -> Result<(), Failure> {
        let line =
            self.read_until(receiver, |reply| reply.iter().filter(|&&byte| byte == b'\n').count() == 2)?;
        let end = line.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let Some((id, _)) = parse_reserved(&line[..end]) else { return Err(unexpected(&line)) };
        self.waiting[receiver].write_all(format!("delete {id}\r\n").as_bytes())?;
        let deleted = self.read_until(receiver, |reply| reply.ends_with(b"\r\n"))?;
        if deleted != b"DELETED\r\n" {
            return Err(unexpected(&deleted));
        }
        self.waiting[receiver].write_all(b"reserve\r\n")?;
        self.order.retain(|&index| index != receiver);
        self.order.push_back(receiver);
        self.producer.await_stat("current-waiting", |count| count == RIVALS)
    }

    fn read_until(&mut self, receiver: usize, is_whole: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, Failure> {
        let started = Instant::now();
        let mut reply = Vec::new();
        let mut buffer = [0; 1024];
        while !is_whole(&reply) {
            match self.waiting[receiver].read(&mut buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => reply.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock && started.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(reply)
    }
}
