//! Tests of which client is served in which turn, over a stream that takes everything.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use super::budget::TURN_WORK;
use super::{Config, Executor, Readiness, Server, Stream};
use crate::clock::{NS_PER_S, Timestamp};
use crate::os::process::cpu_time;
use crate::queue::{ClientId, PoisonLimits};
use crate::stats::Identity;

const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

/// What a client has sent, and what it was sent.
#[derive(Default)]
struct Wire {
    sent: VecDeque<u8>,
    received: Vec<u8>,
}

#[derive(Clone, Default)]
struct FakeStream(Rc<RefCell<Wire>>);

impl Stream for FakeStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let sent = &mut self.0.borrow_mut().sent;
        if sent.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        io::Read::read(sent, buffer)
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        let mut buffer = vec![0; max_bytes];
        let read = self.read(&mut buffer)?;
        body.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().received.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        slices.iter().try_fold(0, |written, slice| Ok(written + self.write(slice)?))
    }

    fn await_writable(&mut self, _: ClientId, _: bool) {}
}

struct Client {
    id: ClientId,
    wire: FakeStream,
}

impl Client {
    /// Sends `bytes`; returns the event that tells of them.
    fn send(&self, bytes: &[u8]) -> (ClientId, Readiness) {
        self.wire.0.borrow_mut().sent.extend(bytes);
        (self.id, Readiness { readable: true, ..Readiness::default() })
    }

    fn has_received_nothing(&self) -> bool {
        self.wire.0.borrow().received.is_empty()
    }

    /// How many lines it has received since the last call.
    fn received_lines(&self) -> usize {
        let received = std::mem::take(&mut self.wire.0.borrow_mut().received);
        received.iter().filter(|&&byte| byte == b'\n').count()
    }
}

fn server() -> Server<FakeStream> {
    let config = Config {
        max_job_bytes: 1 << 16,
        max_memory_bytes: None,
        binlog_file_bytes: 0,
        poison: PoisonLimits::default(),
    };
    let identity = Identity {
        version: String::new(),
        instance: String::new(),
        pid: 1,
        hostname: String::new(),
        os: String::new(),
        platform: String::new(),
        started_at: START,
        cpu_time,
    };
    Server::new(Executor::new(config, identity))
}

fn connect(server: &mut Server<FakeStream>) -> Client {
    let wire = FakeStream::default();
    let Ok(id) = server.accept(|_| Ok::<_, Infallible>(wire.clone()), START);
    Client { id, wire }
}

/// Connects clients that send more than fits in a turn, until the turn has no time left for others.
fn fill_a_turn(server: &mut Server<FakeStream>, commands: usize) -> Vec<(ClientId, Readiness)> {
    let clients = TURN_WORK as usize / commands.min(1024);
    (0..clients).map(|_| connect(server).send(&b"peek-buried\r\n".repeat(commands))).collect()
}

#[test]
fn the_time_of_a_turn_counts_for_each_of_its_commands() {
    let mut server = server();
    let client = connect(&mut server);
    for (commands, ns) in [(3, 1_000), (2, 5_000)] {
        let event = client.send(&b"peek-buried\r\n".repeat(commands));
        server.turn([event].into_iter(), START);
        server.executor.observe_turn(ns);
    }
    let timings = &server.executor.timings;
    assert_eq!((timings.turns.count(), timings.turns.sum_ns()), (2, 6_000));
    assert_eq!((timings.commands.count(), timings.commands.sum_ns()), (5, 13_000));
}

#[test]
fn a_client_that_was_only_postponed_keeps_the_burst() {
    const BURST: usize = 1_000;
    let mut server = server();
    let mut events = fill_a_turn(&mut server, 1024);
    let late = connect(&mut server);
    events.push(late.send(&b"peek-buried\r\n".repeat(BURST)));
    server.turn(events.into_iter(), START);
    assert_eq!(late.received_lines(), 0, "the turn was full");
    server.turn(std::iter::empty(), START);
    assert_eq!(late.received_lines(), BURST);
}

#[test]
fn a_client_that_comes_anew_waits_for_one_turn_at_most_behind_any_number_that_go_on() {
    let mut server = server();
    let greedy: Vec<_> = (0..100)
        .map(|_| {
            let client = connect(&mut server);
            let event = client.send(&b"peek-buried\r\n".repeat(20_000));
            (client, event)
        })
        .collect();
    server.turn(greedy.iter().map(|(_, event)| *event), START);
    // Until each of them has had its burst: so long they come anew, too.
    while greedy.iter().any(|(client, _)| client.has_received_nothing()) {
        server.turn(std::iter::empty(), START);
    }
    greedy.iter().for_each(|(client, _)| assert!(client.received_lines() > 0));
    let modest = connect(&mut server);
    for _ in 0..50 {
        let event = modest.send(b"peek-buried\r\n");
        server.turn(std::iter::once(event), START);
        let in_first = modest.received_lines();
        server.turn(std::iter::empty(), START);
        assert_eq!(in_first + modest.received_lines(), 1);
    }
    let answered = greedy.iter().filter(|(client, _)| client.received_lines() > 0).count();
    assert_eq!(answered, greedy.len(), "nor does it keep the others from going on");
}

#[test]
fn an_idle_time_out_leaves_a_client_alone_whose_kick_goes_on() {
    const JOBS: usize = 2_000;
    let mut server = server();
    server.close_idle_after(Duration::from_secs(1));
    let client = connect(&mut server);
    server.turn(std::iter::once(client.send(&b"put 0 100 10 0\r\n\r\n".repeat(JOBS))), START);
    while server.next_turn_at() == Some(Timestamp::default()) {
        server.turn(std::iter::empty(), START);
    }
    assert_eq!(client.received_lines(), JOBS);
    server.turn(std::iter::once(client.send(b"kick 2000\r\n")), START);
    assert_eq!(client.received_lines(), 0, "a turn has moved all of them");
    for _ in 0..JOBS {
        server.turn(std::iter::empty(), START + 2 * NS_PER_S);
    }
    assert_eq!((server.client_count(), client.received_lines()), (1, 1));
}
