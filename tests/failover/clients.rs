//! Clients that put, reserve and delete without a pause, and go to another server when one does not answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::client::{Client, body_of, id_of};
use beanstalkd_testkit::history::{History, Tick};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::sent::{JobCommand, SentCommand};
use beanstalkd_testkit::server::Address;

use crate::fence::{Fence, Process};
use crate::world::{meet, open};

/// How many clients work at once.
const CLIENTS: usize = 4;
/// The maximum number of jobs that a client holds at once.
const MAX_RESERVATIONS: usize = 8;
/// The maximum number of puts in a pipeline.
const MAX_DEPTH: u64 = 12;
/// The pause before another try to connect.
const PAUSE: Duration = Duration::from_millis(10);

/// What all clients have seen.
#[derive(Debug, Default)]
pub struct Observed {
    pub history: History,
    /// Which process may reply.
    pub fence: Fence,
}

/// The shared state of all clients.
pub struct Shared {
    observed: Mutex<Observed>,
    start: Instant,
    replies: AtomicU64,
    is_over: AtomicBool,
    is_resting: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            observed: Mutex::default(),
            start: Instant::now(),
            replies: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_resting: AtomicBool::new(false),
        }
    }
}

impl Shared {
    /// What the clients have seen so far.
    pub fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, and a tick of the clock in its history.
    pub fn tick(&self) -> (MutexGuard<'_, Observed>, Tick) {
        let mut observed = self.observed();
        let time_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(Tick::MAX);
        let tick = observed.history.tick_at(time_ns);
        (observed, tick)
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
        let (mut observed, now) = self.tick();
        if let Err(problem) = observed.fence.answered(process, asked_at, now, what) {
            observed.history.report(problem);
        }
    }

    /// Empties the queue through one of these addresses, and compares its jobs with the history, while no client works.
    pub fn check_all_jobs(&self, addresses: &[SocketAddr], context: impl FnOnce() -> String) {
        let left = drain(addresses);
        let history = &mut self.observed().history;
        history.drained(&left);
        let problems = history.problems();
        let shown = problems[..problems.len().min(300)].join("\n");
        assert!(problems.is_empty(), "{} problems\n{shown}\n{}", problems.len(), context());
    }
}

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the clients.
    pub fn start(shared: &Arc<Shared>, addresses: &[SocketAddr], random: &mut Random) -> Self {
        Self::start_with(shared, addresses, random, false)
    }

    /// Starts clients of a balancer.
    pub fn through_balancer(shared: &Arc<Shared>, address: SocketAddr, random: &mut Random) -> Self {
        Self::start_with(shared, &[address], random, true)
    }

    fn start_with(
        shared: &Arc<Shared>,
        addresses: &[SocketAddr],
        random: &mut Random,
        is_relayed: bool,
    ) -> Self {
        shared.is_over.store(false, Ordering::Relaxed);
        shared.is_resting.store(false, Ordering::Relaxed);
        let start = |number| {
            let worker = Worker {
                number,
                addresses: addresses.to_vec(),
                random: Random::new(random.next()),
                shared: Arc::clone(shared),
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
}

struct Worker {
    number: usize,
    addresses: Vec<SocketAddr>,
    random: Random,
    shared: Arc<Shared>,
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
                    let mut open = Open { client, process, owner };
                    while !self.is_over() && self.step(&mut open).is_ok() {}
                    // The history must know it first, because the server gives the jobs to others at once.
                    self.shared.observed().history.disconnected(self.number);
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
        let commands = self.choose();
        let sent: Vec<SentCommand> = {
            let history = &mut self.shared.tick().0.history;
            commands.into_iter().map(|command| SentCommand::new(history, command)).collect()
        };
        let bytes: Vec<u8> = sent.iter().flat_map(|sent| sent.bytes.clone()).collect();
        open.client.send(&bytes).map_err(|_| Lost)?;
        sent.iter().try_for_each(|sent| self.read(open, sent))
    }

    /// The next command, or a pipeline of puts.
    fn choose(&mut self) -> Vec<JobCommand> {
        let history = &mut self.shared.observed().history;
        let own: Vec<u64> = history.reservations(self.number).collect();
        let choice = self.random.below(10);
        match own.last() {
            Some(&id) if choice < 4 || own.len() >= MAX_RESERVATIONS => vec![JobCommand::Delete(id)],
            Some(&id) if choice == 4 => vec![JobCommand::Release(id)],
            _ if choice < 8 => vec![JobCommand::Reserve],
            _ => {
                let count = 1 + self.random.below(MAX_DEPTH);
                let put = |_| JobCommand::Put(history.putting(), self.random.index(200));
                (0..count).map(put).collect()
            }
        }
    }

    fn read(&self, open: &mut Open, sent: &SentCommand) -> Result<(), Lost> {
        let reply = open.client.read_reply().map_err(|_| Lost)?;
        self.shared.replies.fetch_add(1, Ordering::Relaxed);
        let what = reply[..reply.len().min(60)].escape_ascii().to_string();
        self.shared.answered(&open.process, sent.asked_at, &what);
        let history = &mut self.shared.observed().history;
        if sent.answered(history, self.number, &open.owner, &reply)
            || reply == b"OUT_OF_MEMORY\r\n" && sent.refused(history)
        {
            return Ok(());
        }
        if reply == b"NOT_FOUND\r\n" {
            history.report(format!("a job is missing: its holder got NOT_FOUND to {sent:?}"));
        }
        Err(Lost)
    }
}

/// Takes all jobs out of the queue, from either server, and returns them.
///
/// # Panics
///
/// If the queue is not emptied in time.
fn drain(addresses: &[SocketAddr]) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let Some((mut client, _)) = addresses.iter().find_map(|&address| open(address)) else {
            thread::sleep(PAUSE);
            continue;
        };
        while let Ok(reply) = client.ask(b"reserve-with-timeout 0\r\n") {
            if reply == b"TIMED_OUT\r\n" {
                return found;
            }
            let Some(id) = id_of(&reply, "RESERVED") else { break };
            found.insert(id, body_of(&reply).to_vec());
            // A delete without a reply: the job may come once more.
            let Ok(reply) = client.ask(format!("delete {id}\r\n").as_bytes()) else { break };
            if reply != b"DELETED\r\n" {
                break;
            }
        }
    }
    panic!("the queue was not emptied in time");
}
