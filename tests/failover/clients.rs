//! Clients that put, reserve and delete without a pause, and go to another server when one does not answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::server::Address;

use crate::fence::Process;
use crate::history::{History, Tick};
use crate::world::{meet, open};

/// How many clients work at once.
const CLIENTS: usize = 4;
/// The maximum number of jobs that a client holds at once.
const MAX_HELD: usize = 8;
/// The maximum number of puts in a pipeline.
const MAX_DEPTH: u64 = 12;
/// The pause before another try to connect.
const PAUSE: Duration = Duration::from_millis(10);

/// The shared state of all clients.
pub struct Shared {
    history: Mutex<History>,
    start: Instant,
    replies: AtomicU64,
    is_over: AtomicBool,
    is_resting: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            history: Mutex::default(),
            start: Instant::now(),
            replies: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_resting: AtomicBool::new(false),
        }
    }
}

impl Shared {
    /// The history so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The history, and a tick of the clock in it.
    pub fn tick(&self) -> (MutexGuard<'_, History>, Tick) {
        let mut history = self.history();
        let time_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(Tick::MAX);
        let tick = history.tick_at(time_ns);
        (history, tick)
    }

    /// A client of the server at `address`, if it answers.
    pub fn meet(&self, address: &Address) -> Option<(Client, Process)> {
        let asked_at = self.tick().1;
        let (client, process) = meet(address)?;
        self.answered(&process, asked_at, "stats");
        Some((client, process))
    }

    /// `process` has sent a reply that cannot have been true before `asked_at`.
    pub fn answered(&self, process: &Process, asked_at: Tick, what: &str) {
        let (mut history, now) = self.tick();
        history.answered(process, asked_at, now, what);
    }
}

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the clients. `name` is in each body, and no other load has it.
    pub fn start(shared: &Arc<Shared>, addresses: &[SocketAddr], name: &str, random: &mut Random) -> Self {
        Self::start_with(shared, addresses, name, random, false)
    }

    /// Starts clients of a balancer.
    pub fn through_balancer(shared: &Arc<Shared>, address: SocketAddr, random: &mut Random) -> Self {
        Self::start_with(shared, &[address], "through", random, true)
    }

    fn start_with(
        shared: &Arc<Shared>,
        addresses: &[SocketAddr],
        name: &str,
        random: &mut Random,
        is_relayed: bool,
    ) -> Self {
        shared.is_over.store(false, Ordering::Relaxed);
        shared.is_resting.store(false, Ordering::Relaxed);
        let start = |number| {
            let worker = Worker {
                number,
                name: format!("{name}-{number}"),
                addresses: addresses.to_vec(),
                random: Random::new(random.next()),
                shared: Arc::clone(shared),
                puts: 0,
                held: Vec::new(),
                is_relayed,
            };
            thread::spawn(move || worker.run())
        };
        Self { shared: Arc::clone(shared), threads: (0..CLIENTS).map(start).collect() }
    }

    /// Waits until the clients have read `count` replies more; returns whether they did in this time.
    pub fn wait_for_replies(&self, count: u64, patience: Duration) -> bool {
        let (start, before) = (Instant::now(), self.shared.replies.load(Ordering::Relaxed));
        while self.shared.replies.load(Ordering::Relaxed) < before + count {
            if start.elapsed() > patience {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// The shared state of the clients.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// From now on, the clients send nothing, so that nothing remains to be committed or continued.
    pub fn rest(&self, is_resting: bool) {
        self.shared.is_resting.store(is_resting, Ordering::Relaxed);
    }

    /// Ends the clients.
    pub fn stop(self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client does not panic");
        }
    }
}

/// The connection is lost, or cannot be used any more.
struct Lost;

/// A connection to a server.
struct Open {
    client: Client,
    process: Process,
    /// Which owner the history names: through a balancer, one for each client.
    owner: String,
    /// When the last commands were sent.
    asked_at: Tick,
}

struct Worker {
    number: usize,
    name: String,
    addresses: Vec<SocketAddr>,
    random: Random,
    shared: Arc<Shared>,
    puts: u64,
    /// The jobs that it has reserved through its connection.
    held: Vec<u64>,
    /// Whether a balancer may close both its connections at once. The server may then give a job to another client
    /// before this one knows.
    is_relayed: bool,
}

impl Worker {
    fn run(mut self) {
        while !self.is_over() {
            let address = self.random.pick(&self.addresses);
            match self.shared.meet(&Address::Tcp(address)) {
                Some((client, process)) => {
                    let id = &process.id;
                    let owner = if self.is_relayed { format!("{id} by {}", self.number) } else { id.clone() };
                    let mut open = Open { client, process, owner, asked_at: 0 };
                    while !self.is_over() && self.step(&mut open).is_ok() {}
                    // The history must know it first, because the server gives the jobs to others at once.
                    self.shared.history().disconnected(self.number);
                    self.held.clear();
                }
                None => thread::sleep(PAUSE),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }

    fn step(&mut self, open: &mut Open) -> Result<(), Lost> {
        if self.shared.is_resting.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
            return Ok(());
        }
        let choice = self.random.below(10);
        match self.held.pop() {
            Some(id) if choice < 4 || self.held.len() + 1 >= MAX_HELD => self.delete(open, id),
            Some(id) if choice == 4 => self.give_back(open, id),
            held => {
                self.held.extend(held);
                if choice < 8 { self.reserve(open) } else { self.put(open) }
            }
        }
    }

    fn put(&mut self, open: &mut Open) -> Result<(), Lost> {
        let count = 1 + self.random.below(MAX_DEPTH);
        let bodies: Vec<String> = (0..count).map(|_| self.new_body()).collect();
        let put = |body: &String| format!("put 0 0 3600 {}\r\n{body}\r\n", body.len());
        let commands: String = bodies.iter().map(put).collect();
        let mut history = self.shared.history();
        bodies.iter().for_each(|body| history.putting(body));
        drop(history);
        self.send(open, &commands)?;
        for body in &bodies {
            let reply = self.read(open)?;
            match reply.strip_prefix("INSERTED ") {
                Some(id) => self.shared.history().inserted(body, id.parse().map_err(|_| Lost)?),
                None if reply == "OUT_OF_MEMORY" => self.shared.history().refused(body),
                None => return Err(Lost),
            }
        }
        Ok(())
    }

    fn new_body(&mut self) -> String {
        self.puts += 1;
        let padding = "x".repeat(self.random.below(200) as usize);
        format!("{}-{}-{padding}", self.name, self.puts)
    }

    fn reserve(&mut self, open: &mut Open) -> Result<(), Lost> {
        self.send(open, "reserve-with-timeout 0\r\n")?;
        let reply = self.read(open)?;
        if reply == "TIMED_OUT" {
            return Ok(());
        }
        let (id, body) = reserved(&reply).ok_or(Lost)?;
        self.shared.history().reserved(self.number, &open.owner, id, body, open.asked_at);
        self.held.push(id);
        Ok(())
    }

    fn delete(&mut self, open: &mut Open, id: u64) -> Result<(), Lost> {
        self.shared.history().deleting(id);
        self.send(open, &format!("delete {id}\r\n"))?;
        match self.read(open)?.as_str() {
            "DELETED" => self.shared.history().deleted(id),
            "NOT_FOUND" => self.shared.history().held_job_not_found(id),
            _ => return Err(Lost),
        }
        Ok(())
    }

    fn give_back(&mut self, open: &mut Open, id: u64) -> Result<(), Lost> {
        self.shared.history().giving_back(id);
        self.send(open, &format!("release {id} 0 0\r\n"))?;
        if self.read(open)? == "RELEASED" { Ok(()) } else { Err(Lost) }
    }

    fn send(&self, open: &mut Open, commands: &str) -> Result<(), Lost> {
        open.asked_at = self.shared.tick().1;
        open.client.send(commands.as_bytes()).map_err(|_| Lost)
    }

    fn read(&self, open: &mut Open) -> Result<String, Lost> {
        let reply = open.client.read_reply().map_err(|_| Lost)?;
        self.shared.replies.fetch_add(1, Ordering::Relaxed);
        let reply = String::from_utf8(reply).map_err(|_| Lost)?;
        self.shared.answered(&open.process, open.asked_at, &reply);
        Ok(reply.trim_end().to_owned())
    }
}

/// Id and body of the reply RESERVED, which has lost its last line end.
fn reserved(reply: &str) -> Option<(u64, &str)> {
    let (line, body) = reply.split_once("\r\n")?;
    let id = line.strip_prefix("RESERVED ")?.split(' ').next()?;
    Some((id.parse().ok()?, body))
}

/// Takes all jobs out of the queue, from either server, and returns them.
///
/// # Panics
///
/// If the queue is not emptied in time.
pub fn drain(addresses: &[SocketAddr]) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let Some((mut client, _)) = addresses.iter().find_map(|&address| open(address)) else {
            thread::sleep(PAUSE);
            continue;
        };
        while let Ok(reply) = client.ask(b"reserve-with-timeout 0\r\n") {
            let reply = String::from_utf8_lossy(&reply).trim_end().to_owned();
            if reply == "TIMED_OUT" {
                return found;
            }
            let Some((id, body)) = reserved(&reply) else { break };
            found.insert(id, body.to_owned());
            // A delete without a reply: the job may come once more.
            let Ok(reply) = client.ask(format!("delete {id}\r\n").as_bytes()) else { break };
            if reply != b"DELETED\r\n" {
                break;
            }
        }
    }
    panic!("the queue was not emptied in time");
}
