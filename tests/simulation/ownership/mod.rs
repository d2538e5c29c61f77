//! Servers that own a queue one after another, on a replicated database in memory: connections and answers are lost,
//! statements arrive late, servers and database machines stop and die, connections run out, clocks differ and jump, and
//! replication is switched off and on.
//!
//! Owns: the database with its row of the queue, the statements on their way, and servers that follow [`Owner`],
//! [`Lease`] and [`Watch`]. A server has two threads that pause between any two steps: one sends statements to the
//! database, the other one executes commands that leave no record (duplicates, peeks, time-outs, reservations without
//! room for their record), checks the lease, and sends. Oracle: an acknowledged change is in every later state of the
//! database, and every later owner has read it; no id is acknowledged twice; no server sends a reply that it made after
//! another server had taken over; a server that takes over serves clients. [`Mutation`] breaks the rules one by one,
//! and the oracle must notice it.

mod database;
mod servers;

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd_binlog::{Lease, Owner, OwnerStep, OwnershipTimes, SeenRow, StepAnswer, Watch};
use beanstalkd_testkit::random::Random;
use beanstalkd_types::clock::Timestamp;

const SERVERS: usize = 3;
const STEPS: usize = 4000;
const MS: u64 = 1_000_000;
/// The rate of a clock that a daemon corrects as fast as it can.
const RATE_PER_MILLION: u64 = 83_333;
const TIMES: OwnershipTimes = OwnershipTimes { takeover_after_ns: 2000 * MS, store_timeout_ns: 30_000 * MS };

/// Takes the place of an owner's step: a server that is not the owner waits for an answer.
const WATCHING: OwnerStep = OwnerStep::Sleep(Timestamp(0));

/// The rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// A commit does not check the epoch.
    CommitsWithoutEpoch,
    /// A takeover does not wait for a commit that holds the row.
    TakesOverWithoutLock,
    /// An owner that has lost its connection checks for its rows without raising its epoch.
    ReconnectsWithoutRaise,
    /// An owner that checks for its rows does not check the epoch.
    ChecksRowsWithoutEpoch,
    /// No query after a commit checks whether the database still waits for its standby.
    CommitsWithoutQuery,
    /// A reply is sent without a check of the lease.
    RepliesWithoutLease,
    /// The lease is checked before the command is executed.
    ChecksLeaseTooEarly,
    /// The lease starts with the answer to a heartbeat.
    LeaseFromAnswer,
    /// A standby measures the age of a heartbeat by the clock of the database.
    AgeByDatabaseClock,
    /// A standby takes over before it has a connection for reading.
    TakesOverBeforeReading,
}

/// A place in the log: a file of the log and an offset in it.
type Position = (u64, u64);

#[derive(Clone, Debug, Default)]
struct Row {
    epoch: u64,
    owner: u64,
    heartbeat: Option<u64>,
}

/// One committed transaction.
#[derive(Clone, Debug)]
struct Change {
    row: Row,
    added: Option<(Position, u64)>,
}

/// The state after some changes.
#[derive(Clone, Debug, Default)]
struct State {
    row: Row,
    log: BTreeMap<Position, u64>,
}

impl State {
    fn after(changes: &[Change]) -> Self {
        let mut state = Self::default();
        for change in changes {
            state.apply(change);
        }
        state
    }

    fn apply(&mut self, change: &Change) {
        self.row = change.row.clone();
        self.log.extend(change.added);
    }
}

#[derive(Clone, Debug)]
enum Request {
    Connect,
    OpenReading,
    See,
    TakeOver { seen: Row, owner: u64 },
    Read { epoch: u64 },
    Raise { epoch: u64, owner: u64 },
    CheckCommit { at: Position, epoch: u64 },
    Prove { epoch: u64, add: Option<(Position, u64)>, beats: bool },
}

#[derive(Clone, Debug)]
enum Reply {
    Connected,
    Busy,
    /// The row, and the clock of the database.
    Seen(Row, u64),
    Epoch(Option<u64>),
    TakenOver,
    Read(BTreeMap<Position, u64>),
    Found(bool),
    Proven,
    NotProven,
    Doubtful,
}

/// A statement on its way.
#[derive(Debug)]
struct Flight {
    /// The server that waits for the answer, and its process; `None` if the connection is lost.
    server: Option<(usize, u64)>,
    request: Request,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Sent,
    /// The statement holds the row, and waits until the standby has change number N.
    Held(usize, Reply),
    Answered(Reply),
}

/// The primary and its standby.
#[derive(Debug)]
struct Cluster {
    changes: Vec<Change>,
    /// The state that the primary shows: all changes but the last, if a statement holds the row.
    visible: State,
    /// The number of changes that the standby has.
    replicated: usize,
    is_attached: bool,
    /// Whether the standby is connected, but receives nothing for a while.
    is_slow: bool,
    waits_for_standby: bool,
    has_free_connections: bool,
    clock_ahead: u64,
}

#[derive(Debug)]
enum Role {
    Down {
        until: Timestamp,
    },
    Watching {
        watch: Watch,
        is_connected: bool,
        can_read: bool,
        /// When the last statement was sent, by the clock of the server.
        sent_at: Timestamp,
    },
    Reading {
        epoch: u64,
        can_read: bool,
        sent_at: Timestamp,
    },
    Owning(Box<Owning>),
}

#[derive(Debug)]
struct Owning {
    owner: Owner,
    lease: Lease,
    work: Option<(Position, u64)>,
    next_id: u64,
    file: u64,
    offset: u64,
    /// The epoch with which its ownership began.
    claimed: u64,
    turn: Turn,
}

/// The progress of a turn in which a client sends a command that writes no record. The numbers are those of the
/// steps in which the command was executed.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Idle,
    /// The lease was checked.
    MayBegin,
    Executed(u64),
    /// The lease was checked, and the reply can be sent.
    MayAnswer(u64),
}

#[derive(Debug)]
struct Server {
    role: Role,
    /// A number that no other process of this server has.
    life: u64,
    is_waiting: Option<OwnerStep>,
    frozen_until: Timestamp,
    clock: Clock,
}

/// A clock that nobody can set. It begins at any time, and is too slow or too fast.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: u64,
    rate_per_million: u64,
}

impl Clock {
    fn at(self, now: Timestamp) -> Timestamp {
        Timestamp(self.start + now.0 / 1000 * self.rate_per_million / 1000)
    }
}

struct World {
    random: Random,
    mutation: Mutation,
    now: Timestamp,
    cluster: Cluster,
    servers: Vec<Server>,
    flights: Vec<Flight>,
    acknowledged: BTreeSet<u64>,
    /// The ids that each owner has read, by the epoch with which its ownership began.
    read: BTreeMap<u64, BTreeSet<u64>>,
    /// The step in which each owner has learned of its ownership, by the epoch with which it began.
    taken: BTreeMap<u64, u64>,
    steps: u64,
    replies: usize,
    silences: usize,
    lives: u64,
    trace: bool,
}

/// The numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub acknowledged: usize,
    pub takeovers: usize,
    pub epochs: u64,
    /// Replies that were sent, and checks that found the lease over.
    pub replies: usize,
    pub silences: usize,
}

/// Runs one seed.
///
/// # Panics
/// If a promise is broken.
pub fn run(seed: u64, trace: bool) -> Outcome {
    run_mutant(seed, trace, Mutation::None)
}

/// Runs one seed with a rule broken.
pub fn run_mutant(seed: u64, trace: bool, mutation: Mutation) -> Outcome {
    let mut world = World::new(seed, trace, mutation);
    for _ in 0..STEPS {
        world.step();
    }
    // At the end, whatever the standby lacks is lost.
    world.fail_over();
    Outcome {
        acknowledged: world.acknowledged.len(),
        takeovers: world.read.len(),
        epochs: world.cluster.visible.row.epoch,
        replies: world.replies,
        silences: world.silences,
    }
}

impl World {
    fn new(seed: u64, trace: bool, mutation: Mutation) -> Self {
        let mut random = Random::new(seed);
        let mut server = |life| Server {
            role: Role::Down { until: Timestamp(0) },
            life,
            is_waiting: None,
            frozen_until: Timestamp(0),
            clock: Clock {
                start: random.below(1_000_000_000 * MS),
                rate_per_million: 1_000_000 - RATE_PER_MILLION + random.below(2 * RATE_PER_MILLION + 1),
            },
        };
        let servers = (1..=SERVERS as u64).map(&mut server).collect();
        let cluster = Cluster {
            changes: Vec::new(),
            visible: State::default(),
            replicated: 0,
            is_attached: true,
            is_slow: false,
            waits_for_standby: true,
            has_free_connections: true,
            clock_ahead: 1_000_000 * MS,
        };
        Self {
            random,
            mutation,
            now: Timestamp(MS),
            cluster,
            servers,
            flights: Vec::new(),
            acknowledged: BTreeSet::new(),
            read: BTreeMap::new(),
            taken: BTreeMap::new(),
            steps: 0,
            replies: 0,
            silences: 0,
            lives: SERVERS as u64,
            trace,
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>9} ms {}", self.now.0 / MS, what());
        }
    }

    fn step(&mut self) {
        self.steps += 1;
        match self.random.below(100) {
            0..=9 => self.pass(400),
            10..=24 => {
                let server = self.random.below(SERVERS as u64) as usize;
                self.act(server);
            }
            25..=34 => self.serve(),
            35..=69 => self.progress(),
            70..=89 => self.replicate(),
            _ => self.disturb(),
        }
    }

    /// Time passes. A server that waits to become the owner looks more often than others act.
    fn pass(&mut self, longest_ms: u64) {
        self.now = self.now + self.random.below(longest_ms * MS);
        for server in 0..SERVERS {
            if matches!(self.servers[server].role, Role::Watching { .. }) && self.random.once_in(2) {
                self.act(server);
            }
        }
    }

    fn disturb(&mut self) {
        let server = self.random.below(SERVERS as u64) as usize;
        match self.random.below(48) {
            0 => self.die(server, "is killed"),
            1 => {
                let pause = self.random.below(20_000) * MS;
                self.servers[server].frozen_until = self.now + pause;
                self.say(|| format!("server {server} is stopped for {} ms", pause / MS));
            }
            2..=5 => self.lose_connection(),
            6 => self.fail_over(),
            7 => self.restart_primary(),
            8 => self.cluster.is_attached = !self.cluster.is_attached,
            9 => self.set_waiting(false),
            10..=12 => self.set_waiting(true),
            13 => self.pass(8000),
            14 => self.cluster.is_slow = true,
            15..=20 => self.cluster.is_slow = false,
            21..=22 => self.cluster.has_free_connections = false,
            23..=28 => self.cluster.has_free_connections = true,
            29 => self.set_clock(),
            _ => self.cluster.is_attached = true,
        }
    }
}
