//! The server without a process: its executor and the system facts that it gets, the clients' ends of its connections,
//! its start with a log on a disk in memory, and a hand-over to another one.
//!
//! Owns: no time and no randomness. A test decides when bytes arrive, turns run and tasks of the disk are done;
//! [`SimulatedServer`] does that for a test whose steps are known.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

use beanstalkd::access::Peer;
use beanstalkd::server::{Executor, ExecutorConfig, Readiness, Server};
use beanstalkd::simulation::Stream;
use beanstalkd::stats::ServerInfo;
use beanstalkd_binlog::{Binlog, Config, Cooldown, OpenError, ReplaySummary, Storage, SyncPolicy};
use beanstalkd_model::{BINLOG_FILE_BYTES, PID, VERSION};
use beanstalkd_os::process::CpuTime;
use beanstalkd_queue::{ClientId, PoisonLimits, Queue};
use beanstalkd_types::clock::{NS_PER_S, Timestamp};
use beanstalkd_types::description::{Reader, Writer};
use beanstalkd_types::job::{Body, JobRecord};
use beanstalkd_types::tube_name::TubeName;

use crate::disk::SimDisk;
use crate::observer;
use crate::sockets::{FakeStream, Pipe};

/// The time at which the server starts.
pub const START: Timestamp = Timestamp(1_700_000_000_123_456_789);

pub const INSTANCE: u64 = 0x0123_4567_89ab_cdef;

/// The number of turns in which a server without new input must become idle.
const MAX_TURNS: usize = 100_000;

/// An executor with an empty queue.
pub fn executor(poison: PoisonLimits, max_job_bytes: u32) -> Executor {
    let config = ExecutorConfig {
        max_job_bytes: u64::from(max_job_bytes),
        binlog_file_bytes: BINLOG_FILE_BYTES,
        poison,
        ..ExecutorConfig::default()
    };
    let info = ServerInfo {
        version: VERSION.to_owned(),
        instance: ServerInfo::instance_of(INSTANCE),
        pid: PID,
        hostname: "host".to_owned(),
        os: "#1 SMP".to_owned(),
        platform: "x86_64".to_owned(),
        started_at: START,
        cpu_time: || CpuTime { user: Duration::from_millis(1500), system: Duration::from_micros(7) },
    };
    Executor::new(config, info)
}

/// The client's end of a connection to a server without a process.
#[derive(Debug)]
pub struct Connection {
    pub id: ClientId,
    pub pipe: Rc<RefCell<Pipe>>,
    /// Bytes that were sent and have not arrived yet.
    pub under_way: VecDeque<u8>,
}

impl Connection {
    /// Connects to `server` over this pipe.
    pub fn open(server: &mut Server<FakeStream>, pipe: Rc<RefCell<Pipe>>, now: Timestamp) -> Self {
        let Ok(connection) = Self::open_with(server, pipe, now, Ok::<_, Infallible>);
        connection
    }

    /// Connects to `server`, whose stream lies over the socket that `open` gets.
    ///
    /// # Errors
    /// That of `open`.
    pub fn open_with<S: Stream, E>(
        server: &mut Server<S>,
        pipe: Rc<RefCell<Pipe>>,
        now: Timestamp,
        open: impl FnOnce(FakeStream) -> Result<S, E>,
    ) -> Result<Self, E> {
        let id = server.accept(|id| open(FakeStream { id, pipe: Rc::clone(&pipe) }), now)?;
        Ok(Self { id, pipe, under_way: VecDeque::new() })
    }

    /// Sends `bytes`, which arrive at once.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> &Self {
        self.pipe.borrow_mut().arrive(bytes.as_ref());
        self
    }

    /// Lets at most `count` of the bytes under way arrive.
    pub fn arrive(&mut self, count: usize) {
        let count = count.min(self.under_way.len());
        if count > 0 {
            let bytes = self.under_way.make_contiguous()[..count].to_vec();
            self.under_way.drain(..count);
            self.send(bytes);
        }
    }

    /// Closes the sending half.
    pub fn end(&self) {
        self.pipe.borrow_mut().end(false);
    }

    /// Breaks the connection.
    pub fn break_off(&self) {
        self.pipe.borrow_mut().break_off();
    }

    /// The event that the poll of the server reports for the connection.
    pub fn take_event(&self) -> (ClientId, Readiness) {
        (self.id, self.pipe.borrow_mut().take_event())
    }

    /// Reads the replies that have come, `most` bytes of them at most.
    pub fn received_bytes(&self, most: usize) -> Vec<u8> {
        self.pipe.borrow_mut().take_outbound(most)
    }

    /// Reads all replies that have come.
    ///
    /// # Panics
    /// If they are not text.
    pub fn received(&self) -> String {
        String::from_utf8(self.received_bytes(usize::MAX)).expect("replies are text here")
    }
}

/// The events of these connections, without those that have none.
pub fn events_of<'a>(connections: impl Iterator<Item = &'a Connection>) -> Vec<(ClientId, Readiness)> {
    connections
        .filter(|connection| connection.pipe.borrow().has_event())
        .map(Connection::take_event)
        .collect()
}

/// The whole state of the server.
pub fn described(server: &Server<FakeStream>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sink = |piece: Vec<u8>| bytes.extend(piece);
    server.describe(&mut Writer::new(&mut sink));
    bytes
}

/// Another program takes over the whole state of `server`, with these connections. `next` is its server, which is
/// empty. `has_log` tells whether its log is attached later. Returns the description, which that of the new server
/// equals, unless it has other rules.
///
/// # Panics
/// If it does not read all of it, or if a connection is missing.
pub fn hand_over<'a>(
    server: &mut Server<FakeStream>,
    mut next: Server<FakeStream>,
    connections: impl Iterator<Item = &'a Connection> + Clone,
    has_log: bool,
    now: Timestamp,
) -> Vec<u8> {
    let description = described(server);
    let from = &mut Reader::new(&description);
    let read = next.read_description(from, now, has_log, |id, handle| {
        assert_eq!(handle.descriptor, id.index as i32, "each client keeps its socket");
        let mut all = connections.clone();
        let connection = all.find(|connection| connection.id == id).expect("a client that is there");
        connection.pipe.borrow_mut().watch_again();
        Ok(FakeStream { id, pipe: Rc::clone(&connection.pipe) })
    });
    read.expect("a server reads what another one has described");
    assert!(from.is_at_end(), "all of it was read");
    *server = next;
    // The old program's sockets are closed, but no connection ends.
    observer::take();
    description
}

/// The jobs that a log has restored, in this order: record, tube, body and encoded tags.
pub type Restored = Vec<(JobRecord, TubeName, Vec<u8>, Vec<u8>)>;

/// The tube, the key and the end of a cooldown.
pub type RunningCooldown = (String, String, Timestamp);

/// The cooldowns that a log has restored, by the job whose delete started each.
pub type Cooldowns = BTreeMap<u64, RunningCooldown>;

/// Opens the log in this store.
///
/// # Errors
/// Those of the log, for example because the disk crashes meanwhile.
pub fn open_log(
    storage: Box<dyn Storage>,
    config: Config,
    now: Timestamp,
) -> Result<(Binlog, ReplaySummary, Restored), OpenError> {
    let mut restored = Vec::new();
    let mut restore = |record, tube: &TubeName, body: Body, tags: &[u8]| {
        restored.push((record, tube.clone(), body.as_slice().to_vec(), tags.to_vec()));
    };
    let (binlog, summary) = Binlog::open(storage, config, now, 0, &mut restore)?;
    Ok((binlog, summary, restored))
}

pub fn cooldowns_of(log: &Binlog) -> Cooldowns {
    let owned = |cooldown: Cooldown<'_>| (cooldown.tube.to_owned(), cooldown.key.to_owned(), cooldown.until);
    log.cooldowns().map(|(id, cooldown)| (id.0, owned(cooldown))).collect()
}

/// Lets the disk crash after these operations of a start, which must not fail for another reason.
pub fn crash_at_start<T>(
    disk: &SimDisk,
    operations: u64,
    start: impl FnOnce(&SimDisk) -> Result<T, OpenError>,
) {
    disk.crash_after(operations);
    if let Err(error) = start(disk) {
        assert!(disk.has_crashed() && !matches!(error, OpenError::Faulty(_)), "the start fails: {error:?}");
    }
}

/// A log that was opened, and the jobs in it.
pub struct OpenedLog {
    pub binlog: Binlog,
    pub restored: Restored,
    pub next_job_id: u64,
}

impl OpenedLog {
    /// Opens the log in this store.
    ///
    /// # Errors
    /// Those of the log.
    pub fn open(storage: Box<dyn Storage>, config: Config, now: Timestamp) -> Result<Self, OpenError> {
        let (binlog, summary, restored) = open_log(storage, config, now)?;
        Ok(Self { binlog, restored, next_job_id: summary.next_job_id })
    }

    /// The server that restores the jobs and keeps the log.
    pub fn start(self, mut executor: Executor, now: Timestamp) -> Server<FakeStream> {
        for (record, tube, body, tags) in self.restored {
            let body = Body::copy_of(&body).expect("there is memory");
            executor.restore(&record, &tube, body, &tags, now);
        }
        executor.keep_binlog(self.binlog, self.next_job_id, now);
        executor.begin_graces(now);
        Server::new(executor)
    }
}

/// Starts a server with this executor and the log on the disk, as the program does.
///
/// # Errors
/// Those of the log.
pub fn start_on(
    disk: &SimDisk,
    executor: Executor,
    config: Config,
    now: Timestamp,
) -> Result<Server<FakeStream>, OpenError> {
    Ok(OpenedLog::open(disk.storage(), config, now)?.start(executor, now))
}

/// A server, its disk and its clock, for tests whose steps are known.
pub struct SimulatedServer {
    pub server: Server<FakeStream>,
    pub disk: SimDisk,
    pub now: Timestamp,
}

impl Deref for SimulatedServer {
    type Target = Server<FakeStream>;

    fn deref(&self) -> &Self::Target {
        &self.server
    }
}

impl DerefMut for SimulatedServer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.server
    }
}

impl SimulatedServer {
    /// A server without a log.
    pub fn new(executor: Executor) -> Self {
        Self { server: Server::new(executor), disk: SimDisk::default(), now: START }
    }

    /// A server without a log, with the usual settings.
    pub fn with_max_job_bytes(max_job_bytes: u32) -> Self {
        Self::new(executor(PoisonLimits::default(), max_job_bytes))
    }

    /// A server with the log on this disk.
    ///
    /// # Panics
    /// If the log cannot be opened.
    pub fn start_on(disk: SimDisk, sync: SyncPolicy, file_bytes: u64) -> Self {
        Self::start_at(START, disk, sync, file_bytes)
    }

    /// As `start_on`, but at this instant.
    pub fn start_at(now: Timestamp, disk: SimDisk, sync: SyncPolicy, file_bytes: u64) -> Self {
        let config = Config { file_bytes, sync, recover: false, nonce_seed: 1 };
        let executor = executor(PoisonLimits::default(), 100);
        let server = start_on(&disk, executor, config, now).expect("the log can be opened");
        Self { server, disk, now }
    }

    pub fn queue(&self) -> &Queue {
        self.server.executor().queue()
    }

    /// A client whose socket has room for all replies.
    pub fn connect(&mut self) -> Connection {
        self.connect_with_room(1 << 24)
    }

    /// Several such clients.
    pub fn connect_each<const COUNT: usize>(&mut self) -> [Connection; COUNT] {
        std::array::from_fn(|_| self.connect())
    }

    /// A client whose socket takes no more than `room` bytes before some are read.
    pub fn connect_with_room(&mut self, room: usize) -> Connection {
        Connection::open(&mut self.server, Pipe::steady(room), self.now)
    }

    /// A client with this address or user.
    pub fn connect_as(&mut self, peer: Peer) -> Connection {
        let connection = self.connect();
        self.server.identify(connection.id, peer, self.now);
        connection
    }

    /// Runs a turn with the events of these clients, in this order.
    pub fn one_turn<'a>(&mut self, clients: impl IntoIterator<Item = &'a Connection>) {
        let events: Vec<_> = clients.into_iter().map(Connection::take_event).collect();
        self.server.turn(events.into_iter(), self.now);
    }

    /// Runs a turn with the events of these clients, and the turns that follow at once; returns their number. No task
    /// of the log's helper thread is done.
    ///
    /// # Panics
    /// If the server does not become idle.
    pub fn turn<'a>(&mut self, clients: impl IntoIterator<Item = &'a Connection>) -> usize {
        self.one_turn(clients);
        for turns in 1..MAX_TURNS {
            if self.disk.has_crashed() || self.server.next_turn_at().is_none_or(|at| at > self.now) {
                return turns;
            }
            self.one_turn([]);
        }
        panic!("the server has not become idle: {:?}", self.queue().figures().jobs);
    }

    /// Does one task of the log's helper thread, and reports it to the server. Returns whether there was a task.
    pub fn help(&mut self) -> bool {
        let Some(task) = self.disk.next_task() else { return false };
        let completion = task.run(&mut self.disk);
        self.server.binlog_completed(completion, self.now);
        self.turn([]);
        true
    }

    /// Lets time pass, and runs the turns that are due then.
    pub fn pass(&mut self, ns: u64) {
        self.now = self.now + ns;
        self.turn([]);
    }

    /// Sends commands, and returns the replies.
    pub fn say(&mut self, client: &Connection, commands: impl AsRef<[u8]>) -> String {
        self.say_and_count_turns(client, commands).0
    }

    /// Like [`SimulatedServer::say`]; also returns the number of turns.
    pub fn say_and_count_turns(
        &mut self,
        client: &Connection,
        commands: impl AsRef<[u8]>,
    ) -> (String, usize) {
        client.send(commands);
        let turns = self.turn([client]);
        while self.help() {}
        (client.received(), turns)
    }

    /// Like [`SimulatedServer::say`], for a reply that may have to wait until the log tries again to make or remove a
    /// file.
    pub fn say_and_wait(&mut self, client: &Connection, command: impl AsRef<[u8]>) -> String {
        let mut reply = self.say(client, command);
        for _ in 0..20 {
            if !reply.is_empty() {
                break;
            }
            self.pass(NS_PER_S);
            while self.help() {}
            reply = client.received();
        }
        reply
    }
}
