//! The server over TLS on fake sockets: bytes arrive in pieces, writes find little room, calls are interrupted, and a
//! seed repeats it all. Each script's replies must be those that the same script gets without TLS.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use beanstalkd::server::Server;
use beanstalkd::simulation::{PollToken, TlsStream};
use beanstalkd::tls::{Acceptor, Channel, HANDSHAKE_TIMEOUT};
use beanstalkd_queue::PoisonLimits;
use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::simulated::{Connection, START, SimulatedServer, events_of, executor};
use beanstalkd_testkit::sockets::{FakeStream, Pipe};
use beanstalkd_testkit::tls;
use beanstalkd_types::clock::Timestamp;
use rustls::ClientConnection;

use crate::client_hello;

/// Turns in which a server without new input must become idle.
const TURNS_TO_REST: usize = 10_000;

/// Far more handshakes than a turn continues.
const ANONYMOUS_CLIENTS: usize = 50;

const MAX_JOB_BYTES: u32 = 1 << 20;

/// A client of the simulated server.
struct Peer {
    /// The connection of the ciphertext.
    connection: Connection,
    tls: ClientConnection,
    replies: Vec<u8>,
    is_closed: bool,
}

struct Simulation {
    server: Server<TlsStream<FakeStream>>,
    acceptor: Rc<Acceptor>,
    random: Random,
    now: Timestamp,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let server = Server::new(executor(PoisonLimits::default(), MAX_JOB_BYTES));
        Self { server, acceptor: tls::acceptor(), random: Random::new(seed), now: START }
    }

    fn connect(&mut self, capacity: usize) -> Peer {
        let pipe = Pipe::new(capacity, Random::new(self.random.next()));
        let over = |socket: FakeStream| {
            let token = PollToken::Client(socket.id);
            TlsStream::new(socket, token, Rc::clone(&self.acceptor))
        };
        let connection = Connection::open_with(&mut self.server, pipe, self.now, over).unwrap();
        let tls =
            ClientConnection::new(Arc::clone(tls::usual_client()), "localhost".try_into().unwrap()).unwrap();
        Peer { connection, tls, replies: Vec::new(), is_closed: false }
    }

    fn turn(&mut self, peers: &[&mut Peer]) {
        let events = events_of(peers.iter().map(|peer| &peer.connection));
        self.server.turn(events.into_iter(), self.now);
    }

    /// Whether the server would continue without an event.
    fn is_busy(&self) -> bool {
        self.server.next_turn_at().is_some_and(|at| at <= self.now)
    }

    /// A random step of the network, or a turn.
    fn step(&mut self, peer: &mut Peer) {
        match self.random.below(4) {
            0 => {
                let most = self.random.pick(&[1, 5, 100, 5000, 40_000, usize::MAX]);
                peer.arrive(most);
            }
            1 => {
                let most = self.random.pick(&[1, 5, 100, 5000, usize::MAX]);
                peer.read(most);
            }
            2 if self.random.once_in(16) => peer.connection.pipe.borrow_mut().false_alarm(),
            _ => self.turn(&[peer]),
        }
    }

    /// Passes everything on until nothing happens any more.
    fn rest(&mut self, peer: &mut Peer) {
        for _ in 0..TURNS_TO_REST {
            peer.arrive(usize::MAX);
            let read = peer.read(usize::MAX);
            if !read
                && peer.connection.under_way.is_empty()
                && !peer.connection.pipe.borrow().has_event()
                && !self.is_busy()
            {
                return;
            }
            self.turn(&[peer]);
        }
        panic!("the server does not come to rest");
    }
}

impl Peer {
    /// Says something, which is under way then.
    fn say(&mut self, bytes: &[u8]) {
        self.tls.set_buffer_limit(None);
        self.tls.writer().write_all(bytes).unwrap();
    }

    /// Says something, each byte in a record of its own.
    fn say_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes.chunks(1) {
            self.say(byte);
        }
    }

    /// How many bytes are in the socket.
    fn unread(&self) -> usize {
        self.connection.pipe.borrow().unread_by_server()
    }

    /// Lets some of the sent bytes arrive.
    fn arrive(&mut self, most: usize) {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.connection.under_way).unwrap();
        }
        self.connection.arrive(most);
    }

    /// Reads some of what the server has sent; returns whether there was anything.
    fn read(&mut self, most: usize) -> bool {
        let wire = self.connection.received_bytes(most);
        let mut rest = &wire[..];
        while !rest.is_empty() {
            if self.tls.read_tls(&mut rest).unwrap() == 0 {
                break;
            }
            self.is_closed |= self.tls.process_new_packets().unwrap().peer_has_closed();
            match self.tls.reader().read_to_end(&mut self.replies) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                Ok(_) => assert!(self.is_closed),
            }
        }
        !wire.is_empty()
    }
}

/// Random commands whose replies depend on nothing but themselves.
fn script(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for id in 1..=3 + random.below(20) {
        let size = random.pick(&[0, 1, 100, 5000, 16_384, 40_000, 300_000]);
        bytes.extend(format!("put 0 0 60 {size}\r\n").as_bytes());
        bytes.extend((0..size).map(|_| b'a' + random.below(26) as u8));
        bytes.extend(b"\r\n");
        match random.below(6) {
            0 => bytes.extend(format!("peek {id}\r\n").repeat(5).as_bytes()),
            1 => bytes.extend(b"reserve\r\n"),
            2 => bytes.extend(format!("delete {id}\r\n").as_bytes()),
            3 => bytes.extend("list-tubes\r\n".repeat(300).as_bytes()),
            4 => bytes.extend(format!("watch t{id}\r\nreserve-with-timeout 0\r\n").as_bytes()),
            _ => {}
        }
    }
    bytes.extend(
        random.pick(&["", "quit\r\n", "watch x\r\nignore default\r\nreserve\r\nuse x\r\n"]).as_bytes(),
    );
    bytes
}

/// The replies to the script without TLS, to a client that half-closes after it.
fn plain_replies(script: &[u8]) -> Vec<u8> {
    let mut server = SimulatedServer::with_max_job_bytes(MAX_JOB_BYTES);
    let client = server.connect_with_room(usize::MAX);
    client.send(script).end();
    server.turn([&client]);
    assert_eq!(server.client_count(), 0, "the connection ends");
    client.received_bytes(usize::MAX)
}

fn run(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let script = script(&mut simulation.random);
    let expected = plain_replies(&script);
    let capacity = simulation.random.pick(&[1000, 4096, 100_000, 4_000_000]);
    let mut peer = simulation.connect(capacity);
    // How the client ends: by `close_notify`, by the end of the stream, or by both.
    let (announces, closes) = simulation.random.pick(&[(true, false), (false, true), (true, true)]);
    let mut rest = &script[..];
    while !rest.is_empty() {
        let most = simulation.random.pick(&[10, 1000, 100_000, usize::MAX]).min(rest.len());
        peer.say(&rest[..most]);
        rest = &rest[most..];
        for _ in 0..simulation.random.below(20) {
            simulation.step(&mut peer);
        }
    }
    // Before the end of the handshake, an end would be its failure.
    while peer.tls.is_handshaking() {
        simulation.step(&mut peer);
    }
    if announces {
        peer.tls.send_close_notify();
    }
    for _ in 0..simulation.random.below(200) {
        simulation.step(&mut peer);
    }
    if closes {
        peer.arrive(usize::MAX);
        peer.connection.end();
    }
    simulation.rest(&mut peer);
    assert_eq!(simulation.server.client_count(), 0, "seed {seed}: the connection ends");
    assert!(peer.is_closed, "seed {seed}: the server announces the end");
    let same = expected.iter().zip(&peer.replies).take_while(|(a, b)| a == b).count();
    assert!(expected == peer.replies, "seed {seed}: replies differ at byte {same} of {}", expected.len());
    let figures = simulation.acceptor.figures();
    assert_eq!((figures.open_connections, figures.full_handshakes), (0, 1));
    assert_eq!(simulation.acceptor.memory_bytes(), 0, "seed {seed}: nobody holds anything");
}

/// A read can use room in the socket, to send encrypted bytes. The reply continues nevertheless.
#[test]
fn a_reply_goes_on_after_a_read_has_sent_what_was_encrypted() {
    let mut simulation = Simulation::new(1);
    let mut peer = simulation.connect(5000);
    simulation.rest(&mut peer);
    let body = "x".repeat(9000);
    peer.say(format!("put 0 0 60 9000\r\n{body}\r\npeek 1\r\n").as_bytes());
    peer.arrive(usize::MAX);
    while simulation.is_busy() || peer.connection.pipe.borrow().has_event() {
        simulation.turn(&[&mut peer]);
    }
    let idle_bytes = 12_000;
    assert!(simulation.acceptor.memory_bytes() > idle_bytes, "what is encrypted is counted");
    peer.say(b"list-tube-used\r\n");
    peer.arrive(usize::MAX);
    let readable = peer.connection.take_event();
    peer.connection.pipe.borrow_mut().widen();
    peer.read(usize::MAX);
    simulation.server.turn([readable].into_iter(), simulation.now);
    simulation.rest(&mut peer);
    assert!(peer.replies.ends_with(b"\r\nUSING default\r\n"), "{}", peer.replies.len());
    assert!(simulation.acceptor.memory_bytes() < idle_bytes);
}

#[test]
fn replies_over_tls_are_those_without_it() {
    if let Some(seed) = number_from_environment("SEED") {
        return run(seed);
    }
    for seed in 0..number_from_environment("TLS_SEEDS").unwrap_or(100) {
        run(seed);
    }
}

/// The server's part of the handshake is longer than the room in the socket, and nothing but that room causes an event.
#[test]
fn a_handshake_goes_on_when_there_is_room_again() {
    for capacity in [1, 100, 700] {
        let mut simulation = Simulation::new(capacity);
        let mut peer = simulation.connect(capacity as usize);
        peer.arrive(usize::MAX);
        while peer.tls.is_handshaking() {
            assert!(
                peer.connection.pipe.borrow().has_event() || simulation.is_busy(),
                "there is a reason for a turn"
            );
            simulation.turn(&[&mut peer]);
            peer.read(usize::MAX);
        }
        simulation.rest(&mut peer);
        assert_eq!(simulation.acceptor.figures().full_handshakes, 1);
    }
}

#[test]
fn a_handshake_has_ten_seconds() {
    let mut simulation = Simulation::new(1);
    let hello = client_hello(tls::usual_client());
    let mut peers: Vec<Peer> = (0..3).map(|_| simulation.connect(100_000)).collect();
    peers[0].connection.send(&hello[..hello.len() - 1]);
    peers[1].connection.send(&hello);
    simulation.rest(&mut peers[2]);
    let limit = HANDSHAKE_TIMEOUT.as_nanos() as u64;
    let [first, second, done] = &mut peers[..] else { unreachable!() };
    simulation.turn(&[first, second, done]);
    assert_eq!(simulation.server.next_turn_at(), Some(START + limit), "nothing else is to be done");
    simulation.now = START + (limit - 1);
    simulation.turn(&[]);
    assert_eq!(simulation.server.client_count(), 3);
    simulation.now = START + limit;
    simulation.turn(&[]);
    assert_eq!(simulation.server.client_count(), 1, "the one whose handshake is done stays");
    assert_eq!(simulation.acceptor.figures().failed_handshakes[0], ("unfinished", 2));
    assert_eq!(simulation.server.next_turn_at(), None, "nothing checks it any more");
}

#[test]
fn a_turn_goes_on_with_a_few_handshakes_and_serves_the_others_first() {
    let mut simulation = Simulation::new(1);
    let hello = client_hello(tls::usual_client());
    let mut known = simulation.connect(100_000);
    simulation.rest(&mut known);
    let mut anonymous: Vec<Peer> = (0..ANONYMOUS_CLIENTS).map(|_| simulation.connect(100_000)).collect();
    for peer in &anonymous {
        peer.connection.send(&hello);
    }
    known.say(b"list-tube-used\r\n");
    known.arrive(usize::MAX);
    // The events of anonymous clients come first.
    let mut all: Vec<&mut Peer> = anonymous.iter_mut().chain([&mut known]).collect();
    simulation.turn(&all);
    let answered =
        |all: &[&mut Peer]| all.iter().filter(|peer| peer.connection.pipe.borrow().has_outbound()).count();
    let in_first_turn = answered(&all);
    assert!((2..8).contains(&in_first_turn), "{in_first_turn} answers in a turn");
    assert!(all.last().unwrap().connection.pipe.borrow().has_outbound(), "the client is answered");
    let mut turns = 1;
    while simulation.is_busy() {
        simulation.turn(&all);
        turns += 1;
    }
    assert_eq!(answered(&all), ANONYMOUS_CLIENTS + 1, "all are answered in the end");
    assert!(turns >= ANONYMOUS_CLIENTS / in_first_turn, "{turns} turns");
    all.clear();
}

/// A connection without the interruptions of a random one, after its handshake.
fn open_peer(simulation: &mut Simulation) -> Peer {
    let mut peer = simulation.connect(usize::MAX);
    peer.connection.pipe.borrow_mut().calm();
    simulation.rest(&mut peer);
    peer
}

/// A client chooses how much it sends in a record, so a turn decrypts a limited number of records for it.
#[test]
fn short_records_are_read_in_several_turns() {
    const BODY_BYTES: usize = 2_000;
    const MAX_RECORDS: usize = 128;
    let mut simulation = Simulation::new(1);
    let mut peer = open_peer(&mut simulation);
    let body = "x".repeat(BODY_BYTES);
    peer.say_bytewise(format!("put 0 0 60 {BODY_BYTES}\r\n{body}\r\n").as_bytes());
    peer.arrive(usize::MAX);
    let mut turns = 0;
    while peer.connection.pipe.borrow().has_event() || simulation.is_busy() {
        simulation.turn(&[&mut peer]);
        turns += 1;
    }
    assert!(turns >= BODY_BYTES / MAX_RECORDS, "{turns} turns");
    peer.read(usize::MAX);
    assert_eq!(peer.replies, b"INSERTED 1\r\n", "it goes on without another event");
}

/// A server looks for the end of a waiting client in what comes after the reserve. That costs something, too.
#[test]
fn short_records_behind_a_reserve_use_up_a_turn() {
    let mut simulation = Simulation::new(1);
    let mut peers: Vec<Peer> = (0..100).map(|_| open_peer(&mut simulation)).collect();
    for peer in &mut peers {
        peer.say(b"reserve\r\n");
        simulation.rest(peer);
        peer.say_bytewise(&[b'x'; 300]);
        peer.arrive(usize::MAX);
    }
    simulation.turn(&peers.iter_mut().collect::<Vec<_>>());
    let later = peers.iter().filter(|peer| peer.unread() > 0).count();
    assert!((1..100).contains(&later), "{later} clients are left for the next turns");
    while simulation.is_busy() {
        simulation.turn(&[]);
    }
    assert!(peers.iter().all(|peer| peer.unread() == 0), "all of them have a turn");
}

/// rustls keeps the records of a message until it is whole. The server does not see the messages, so it counts all
/// records since the last one with input.
#[test]
fn records_without_input_count_as_memory() {
    // Less than the record of the command, which is the last one before it.
    const KEY_UPDATE_BYTES: usize = 27;
    let mut simulation = Simulation::new(1);
    let mut peer = open_peer(&mut simulation);
    peer.say(b"list-tube-used\r\n");
    simulation.rest(&mut peer);
    let before = simulation.acceptor.memory_bytes();
    peer.tls.refresh_traffic_keys().unwrap();
    peer.say(b"list-tube-used\r\n");
    peer.arrive(KEY_UPDATE_BYTES);
    simulation.turn(&[&mut peer]);
    let after = simulation.acceptor.memory_bytes();
    assert!(after > before, "{before} bytes, and {after} with another record");
    simulation.rest(&mut peer);
    assert_eq!(simulation.acceptor.memory_bytes(), before);
    assert_eq!(peer.replies, b"USING default\r\n".repeat(2));
}

/// A socket that counts the reads.
#[derive(Default)]
struct CountedSocket {
    inbound: VecDeque<u8>,
    outbound: Vec<u8>,
    reads: usize,
}

impl Read for CountedSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.inbound.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { self.inbound.read(buffer) }
    }
}

impl Write for CountedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outbound.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_read_with_little_room_takes_a_record_in_few_reads_of_the_socket() {
    let mut channel = Channel::new(tls::acceptor()).unwrap();
    let server_name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::clone(tls::usual_client()), server_name).unwrap();
    let mut socket = CountedSocket::default();
    let mut exchange = |client: &mut ClientConnection, socket: &mut CountedSocket, room: usize| {
        while client.wants_write() {
            client.write_tls(&mut socket.inbound).unwrap();
        }
        let mut read: Vec<u8> = Vec::new();
        let result = channel.read(socket, room, |bytes| read.extend(bytes));
        let mut sent: &[u8] = &std::mem::take(&mut socket.outbound);
        while !sent.is_empty() {
            client.read_tls(&mut sent).unwrap();
            client.process_new_packets().unwrap();
        }
        result.map(|_| read)
    };
    while client.is_handshaking() || client.wants_write() {
        let result = exchange(&mut client, &mut socket, 1);
        assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    socket.reads = 0;
    client.writer().write_all(&[b'x'; 16_000]).unwrap();
    for _ in 0..16_000 {
        assert_eq!(exchange(&mut client, &mut socket, 1).unwrap(), b"x");
    }
    assert!(socket.reads < 20, "{} reads", socket.reads);
}

#[test]
fn input_that_waits_counts_as_memory() {
    const SENT: usize = 12_000;
    const ABOUT: std::ops::Range<usize> = SENT - 100..4 * SENT;
    let mut simulation = Simulation::new(1);
    let mut peer = open_peer(&mut simulation);
    let idle_bytes = simulation.acceptor.memory_bytes();
    let grown = |simulation: &Simulation| simulation.acceptor.memory_bytes().saturating_sub(idle_bytes);
    peer.say(b"reserve-with-timeout 1\r\n");
    for _ in 0..SENT / 100 {
        peer.say_bytewise(&[b'x'; 100]);
        simulation.rest(&mut peer);
    }
    assert!(ABOUT.contains(&grown(&simulation)), "{} bytes behind a reserve", grown(&simulation));
    simulation.now = START + 2_000_000_000;
    simulation.rest(&mut peer);
    assert!(peer.replies.starts_with(b"TIMED_OUT\r\n"));
    assert!(grown(&simulation) < 100, "{} bytes when they are read", grown(&simulation));
    peer.say(&[b'x'; 16_000]);
    peer.arrive(SENT);
    simulation.turn(&[&mut peer]);
    assert!(ABOUT.contains(&grown(&simulation)), "{} bytes of a record", grown(&simulation));
}
