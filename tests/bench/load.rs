//! The load generator: one thread, many connections, each sending a batch and waiting for its replies.
//!
//! Owns: the connections of one load against one server. Assumes only that the server answers each connection in
//! order. Driven by the rows, which measure the cost of the server during the load.
//!
//! A batch is `depth` commands of one kind, because a `delete` can only be sent once the `reserve` before it
//! has been answered. Each connection works in a separate tube, as independent users of one server do, so that the
//! figures include what the number of tubes costs. It reserves only as many jobs as it has put before, so that no
//! `reserve` ever waits.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use beanstalkd_testkit::random::Random;
use memchr::memchr;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::client::{Client, Endpoint, PATIENCE, parse_reserved, unexpected};
use crate::failure::Failure;
use crate::wire::Wire;

const EVENTS_PER_TURN: usize = 1024;
const BUFFER_BYTES: usize = 256 * 1024;
/// Delays of one to two hours, so that none ends during a measurement.
const DELAY_S: std::ops::Range<u32> = 3600..7200;

/// Whether the puts of a load differ.
#[derive(Clone, Copy)]
pub enum Puts {
    /// All puts have the same priority and no delay.
    Same,
    /// Each put has a random priority.
    RandomPriority,
    /// Each put has a random delay of one to two hours.
    RandomDelay,
    /// Each with this tag, and a different key.
    Tagged(&'static str),
    /// Each with the tag `con` and one of this many keys.
    Keyed(u32),
}

/// The tubes in which the connections of a load put and reserve.
#[derive(Clone, Copy)]
pub enum Tubes {
    /// All in the default tube.
    Default,
    /// Each in a separate tube.
    OneEach,
}

/// The connections of a load and their commands.
#[derive(Clone, Copy)]
pub struct Load {
    /// How many connections.
    pub connections: usize,
    /// Commands that a connection sends before it waits.
    pub depth: usize,
    /// Length of each job's body.
    pub body_bytes: usize,
    /// Whether the puts differ.
    pub puts: Puts,
    /// Where the connections work.
    pub tubes: Tubes,
    /// Whether each connection holds a session.
    pub has_sessions: bool,
}

impl Load {
    /// The length of a body, in all rows except those about large bodies.
    pub const BODY_BYTES: usize = 64;

    /// A load of equal jobs, in a tube for each connection.
    pub const fn new(connections: usize, depth: usize) -> Self {
        Self {
            connections,
            depth,
            body_bytes: Self::BODY_BYTES,
            puts: Puts::Same,
            tubes: Tubes::OneEach,
            has_sessions: false,
        }
    }
}

/// The kind of the commands of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `put`
    Put,
    /// `reserve`
    Reserve,
    /// `delete`, for the jobs that the previous batch reserved.
    Delete,
    /// `complete` of the jobs that the last batch of reserves got, each with one put.
    Complete,
    /// A single `reserve-batch` for this many jobs.
    ReserveBatch,
    /// A single `delete-batch` of the jobs that the previous batch reserved.
    DeleteBatch,
    /// Redis' `LPUSH`.
    Push,
    /// Redis' `RPOP`.
    Pop,
}

/// Put, reserve, delete.
pub const CYCLE: &[Kind] = &[Kind::Put, Kind::Reserve, Kind::Delete];
/// Put alone.
pub const FILL: &[Kind] = &[Kind::Put];
/// Reserve, delete.
pub const DRAIN: &[Kind] = &[Kind::Reserve, Kind::Delete];
/// Reserve and delete, with one command for all jobs of a batch.
pub const DRAIN_IN_BATCHES: &[Kind] = &[Kind::ReserveBatch, Kind::DeleteBatch];
/// Put, then reserve and delete with one command for all jobs of a batch.
pub const CYCLE_IN_BATCHES: &[Kind] = &[Kind::Put, Kind::ReserveBatch, Kind::DeleteBatch];
/// Reserve alone.
pub const TAKE: &[Kind] = &[Kind::Reserve];
/// Put, and then delete the reserved job, so that each job is followed by another one.
pub const HAND_ON: &[Kind] = &[Kind::Put, Kind::Delete];
/// Like `HAND_ON`, in a single command.
pub const COMPLETE: &[Kind] = &[Kind::Complete];

/// The nearest equivalent of a cycle in Redis.
pub const REDIS_CYCLE: &[Kind] = &[Kind::Push, Kind::Pop];

/// When a run stops to begin rounds. Connections finish the rounds that they have begun.
#[derive(Clone, Copy)]
pub enum Until {
    /// This long after its start.
    Elapsed(Duration),
    /// After this many jobs of all connections together, rounded up to whole batches.
    Jobs(usize),
}

/// The results of a run.
pub struct Outcome {
    /// Commands answered.
    pub commands: u64,
    /// From the first byte sent to the last reply.
    pub elapsed: Duration,
    /// For each batch, the nanoseconds from sending it to its last reply, in ascending order.
    pub latencies_ns: Vec<u64>,
}

impl Outcome {
    /// Commands per second.
    pub fn rate(&self) -> f64 {
        self.commands as f64 / self.elapsed.as_secs_f64()
    }

    /// The given quantile (0 to 1) of the latencies, in microseconds.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        let last = self.latencies_ns.len() - 1;
        self.latencies_ns[(last as f64 * quantile).round() as usize] as f64 / 1e3
    }
}

/// Connections to one server, kept over all the rounds of a row.
pub struct Generator {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    requests: Requests,
    buffer: Box<[u8]>,
}

impl Generator {
    /// Connects them all.
    pub fn connect(endpoint: Endpoint, load: Load) -> Result<Self, Failure> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(load.connections);
        for index in 0..load.connections {
            let mut client = Client::connect_to(endpoint)?;
            if let Tubes::OneEach = load.tubes {
                client.enter_tube(&format!("load-{index}"))?;
            }
            if load.has_sessions {
                client.enter_session(&format!("load-{index}"))?;
            }
            let mut stream = client.into_stream();
            stream.socket().set_nonblocking(true)?;
            let mut stream = stream.map(TcpStream::from_std);
            poll.registry().register(
                stream.socket(),
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            connections.push(Connection::new(stream));
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_TURN),
            connections,
            requests: Requests::new(load),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        })
    }

    /// Lets every connection send batches of `kinds` in turn, until the run is over.
    pub fn run(&mut self, kinds: &'static [Kind], until: Until) -> Result<Outcome, Failure> {
        let started = Instant::now();
        let mut progress = Progress::new(kinds, until, started);
        for connection in &mut self.connections {
            progress.next_batch(connection, &mut self.requests)?;
        }
        while progress.under_way > 0 {
            self.poll.poll(&mut self.events, Some(PATIENCE))?;
            if self.events.is_empty() {
                return Err(Failure::Silent);
            }
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                if event.is_writable() {
                    connection.send(&self.requests)?;
                }
                if event.is_readable() {
                    progress.receive(connection, &mut self.requests, &mut self.buffer)?;
                }
            }
            progress.read_clock();
        }
        progress.latencies_ns.sort_unstable();
        Ok(Outcome {
            commands: progress.commands,
            elapsed: started.elapsed(),
            latencies_ns: progress.latencies_ns,
        })
    }
}

/// The state of a run.
struct Progress {
    kinds: &'static [Kind],
    until: Until,
    started: Instant,
    /// Whether connections no longer begin a round.
    over: bool,
    /// Connections that wait for replies.
    under_way: usize,
    jobs_begun: usize,
    commands: u64,
    latencies_ns: Vec<u64>,
}

impl Progress {
    fn new(kinds: &'static [Kind], until: Until, started: Instant) -> Self {
        Self {
            kinds,
            until,
            started,
            over: false,
            under_way: 0,
            jobs_begun: 0,
            commands: 0,
            latencies_ns: Vec::new(),
        }
    }

    fn read_clock(&mut self) {
        if let Until::Elapsed(duration) = self.until {
            self.over |= self.started.elapsed() >= duration;
        }
    }

    /// Sends a connection's next batch, unless this would begin a round and the run is over.
    fn next_batch(&mut self, connection: &mut Connection, requests: &mut Requests) -> Result<(), Failure> {
        if connection.step == 0 {
            if let Until::Jobs(jobs) = self.until {
                self.over |= self.jobs_begun >= jobs;
            }
            if self.over {
                return Ok(());
            }
            self.jobs_begun += requests.load.depth;
        }
        self.under_way += 1;
        let kind = self.kinds[connection.step];
        connection.step = (connection.step + 1) % self.kinds.len();
        connection.begin(kind, requests);
        connection.send(requests)
    }

    /// Reads what has arrived, and sends the next batch after the last reply to the current one.
    fn receive(
        &mut self,
        connection: &mut Connection,
        requests: &mut Requests,
        buffer: &mut [u8],
    ) -> Result<(), Failure> {
        loop {
            let count = match connection.stream.read(buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            connection.take_replies(&buffer[..count])?;
            if connection.replies_left == 0 {
                self.under_way -= 1;
                self.commands += requests.load.depth as u64;
                let latency_ns = connection.sent_at.elapsed().as_nanos();
                self.latencies_ns.push(u64::try_from(latency_ns).unwrap_or(u64::MAX));
                self.next_batch(connection, requests)?;
            }
            if !connection.stream.may_have_more(count, buffer.len()) {
                return Ok(());
            }
        }
    }
}

/// The batches that all connections share, and what the other batches are built from.
struct Requests {
    load: Load,
    puts: Vec<u8>,
    reserves: Vec<u8>,
    reserve_batch: Vec<u8>,
    pushes: Vec<u8>,
    pops: Vec<u8>,
    body: Vec<u8>,
    random: Random,
}

impl Requests {
    fn new(load: Load) -> Self {
        let mut body = vec![b'x'; load.body_bytes];
        body.extend_from_slice(b"\r\n");
        let mut requests = Self {
            load,
            puts: Vec::new(),
            reserves: b"reserve\r\n".repeat(load.depth),
            reserve_batch: format!("reserve-batch {}\r\n", load.depth).into_bytes(),
            pushes: Vec::new(),
            pops: b"*2\r\n$4\r\nRPOP\r\n$4\r\nlist\r\n".repeat(load.depth),
            body,
            random: Random::new(1),
        };
        let mut puts = Vec::new();
        for _ in 0..load.depth {
            requests.append_put(1024, 0, None, &mut puts);
        }
        requests.puts = puts;
        let mut push = format!("*3\r\n$5\r\nLPUSH\r\n$4\r\nlist\r\n${}\r\n", load.body_bytes).into_bytes();
        push.extend_from_slice(&requests.body);
        requests.pushes = push.repeat(load.depth);
        requests
    }

    /// Fills `batch` with puts as the load asks for them.
    fn build_puts(&mut self, batch: &mut Vec<u8>) {
        batch.clear();
        for _ in 0..self.load.depth {
            let random = self.random.next() as u32;
            match self.load.puts {
                Puts::Same => self.append_put(1024, 0, None, batch),
                Puts::RandomPriority => self.append_put(random, 0, None, batch),
                Puts::Tagged(tag) => self.append_put(1024, 0, Some((tag, random)), batch),
                Puts::Keyed(keys) => self.append_put(1024, 0, Some(("con", random % keys)), batch),
                Puts::RandomDelay => {
                    let delay_s = DELAY_S.start + random % (DELAY_S.end - DELAY_S.start);
                    self.append_put(1024, delay_s, None, batch);
                }
            }
        }
    }

    fn append_put(&self, priority: u32, delay_s: u32, tag: Option<(&str, u32)>, batch: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        batch.extend_from_slice(b"put ");
        batch.extend_from_slice(number.format(priority).as_bytes());
        batch.push(b' ');
        batch.extend_from_slice(number.format(delay_s).as_bytes());
        batch.extend_from_slice(b" 120 ");
        batch.extend_from_slice(number.format(self.load.body_bytes).as_bytes());
        if let Some((word, key)) = tag {
            batch.extend_from_slice(format!(" {word}:{key:012}").as_bytes());
        }
        batch.extend_from_slice(b"\r\n");
        batch.extend_from_slice(&self.body);
    }
}

struct Connection {
    stream: Wire<TcpStream>,
    /// Index of the kind of the next batch.
    step: usize,
    /// The kind of the current batch.
    kind: Kind,
    replies_left: usize,
    sent_at: Instant,
    /// Bytes of the batch that the kernel has taken.
    sent: usize,
    /// A batch that other connections cannot share: puts that differ, or deletes, each of which is appended when its
    /// reserve is answered.
    own: Vec<u8>,
    /// The jobs that the last batch of reserves got.
    reserved: Vec<u64>,
    /// The beginning of a reply's line, until its end arrives.
    line: Vec<u8>,
    /// Bytes of a reserved body and its trailer still to come.
    body_left: usize,
}

impl Connection {
    fn new(stream: Wire<TcpStream>) -> Self {
        Self {
            stream,
            step: 0,
            kind: Kind::Put,
            replies_left: 0,
            sent_at: Instant::now(),
            sent: usize::MAX,
            own: Vec::new(),
            reserved: Vec::new(),
            line: Vec::new(),
            body_left: 0,
        }
    }

    fn begin(&mut self, kind: Kind, requests: &mut Requests) {
        self.kind = kind;
        self.replies_left = requests.load.depth;
        self.sent = 0;
        self.sent_at = Instant::now();
        match (kind, requests.load.puts) {
            (Kind::Put, Puts::Same) | (Kind::Delete | Kind::Push | Kind::Pop, _) => {}
            (Kind::DeleteBatch, _) => self.own.extend_from_slice(b"\r\n"),
            (Kind::ReserveBatch, _) => {
                self.own.clear();
                self.own.extend_from_slice(b"delete-batch");
            }
            (Kind::Put, _) => requests.build_puts(&mut self.own),
            (Kind::Reserve, _) => {
                self.own.clear();
                self.reserved.clear();
            }
            (Kind::Complete, _) => {
                self.own.clear();
                for id in &self.reserved {
                    self.own.extend_from_slice(format!("complete {id} 1\r\n").as_bytes());
                    requests.append_put(1024, 0, None, &mut self.own);
                }
            }
        }
    }

    /// Sends as much of the current batch as the kernel takes.
    fn send(&mut self, requests: &Requests) -> Result<(), Failure> {
        let batch = match (self.kind, requests.load.puts) {
            (Kind::Put, Puts::Same) => &requests.puts,
            (Kind::Put | Kind::Delete | Kind::Complete | Kind::DeleteBatch, _) => &self.own,
            (Kind::ReserveBatch, _) => &requests.reserve_batch,
            (Kind::Reserve, _) => &requests.reserves,
            (Kind::Push, _) => &requests.pushes,
            (Kind::Pop, _) => &requests.pops,
        };
        self.stream.flush()?;
        while self.sent < batch.len() {
            match self.stream.write(&batch[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn take_replies(&mut self, mut input: &[u8]) -> Result<(), Failure> {
        while !input.is_empty() {
            if self.body_left > 0 {
                let taken = self.body_left.min(input.len());
                self.body_left -= taken;
                input = &input[taken..];
                self.replies_left -= usize::from(self.body_left == 0);
                continue;
            }
            let Some(end) = memchr(b'\n', input) else {
                self.line.extend_from_slice(input);
                return Ok(());
            };
            let (head, rest) = input.split_at(end + 1);
            input = rest;
            if self.line.is_empty() {
                self.take_line(head)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.take_line(&line)?;
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), Failure> {
        let fits = match self.kind {
            Kind::Put => line.starts_with(b"INSERTED "),
            Kind::Delete => line == b"DELETED\r\n",
            Kind::Complete => line.starts_with(b"COMPLETED "),
            Kind::Push => line.starts_with(b":"),
            Kind::ReserveBatch if line.starts_with(b"RESERVED_BATCH ") => {
                return if number_in(line, 1) == Some(self.replies_left) {
                    Ok(())
                } else {
                    Err(unexpected(line))
                };
            }
            Kind::ReserveBatch => match parse_reserved(line) {
                Some((id, body_bytes)) => {
                    self.own.push(b' ');
                    self.own.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
                    self.body_left = body_bytes + 2;
                    true
                }
                None => false,
            },
            Kind::DeleteBatch => {
                let all =
                    number_in(line, 1) == Some(self.replies_left) && line.starts_with(b"DELETED_BATCH ");
                self.replies_left = 1;
                all
            }
            Kind::Reserve => match parse_reserved(line) {
                Some((id, body_bytes)) => {
                    self.reserved.push(id);
                    self.own.extend_from_slice(b"delete ");
                    self.own.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
                    self.own.extend_from_slice(b"\r\n");
                    self.body_left = body_bytes + 2;
                    true
                }
                None => false,
            },
            Kind::Pop => match parse_bulk(line) {
                Some(body_bytes) => {
                    self.body_left = body_bytes + 2;
                    true
                }
                None => false,
            },
        };
        if !fits || self.replies_left == 0 {
            return Err(unexpected(line));
        }
        // A reply with a body counts when the body has arrived.
        self.replies_left -= usize::from(self.body_left == 0);
        Ok(())
    }
}

/// The body's length in the first line of Redis' reply to `RPOP`.
fn parse_bulk(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(line.strip_prefix(b"$")?.strip_suffix(b"\r\n")?).ok()?.parse().ok()
}

/// The number that is the word of a line with this index.
fn number_in(line: &[u8], index: usize) -> Option<usize> {
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().nth(index)?.parse().ok()
}
