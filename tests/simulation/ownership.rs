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

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd_binlog::{Lease, Owner, OwnerStep, OwnershipTimes, Seen, StepAnswer, Watch};
use beanstalkd_testkit::random::Random;
use beanstalkd_types::clock::Timestamp;

const SERVERS: usize = 3;
const STEPS: usize = 4000;
const MS: u64 = 1_000_000;
/// The rate of a clock that a daemon corrects as fast as it can.
const RATE_PER_MILLION: u64 = 83_333;
const TIMES: OwnershipTimes = OwnershipTimes { takeover_after_ns: 2000 * MS, store_timeout_ns: 30_000 * MS };

/// Takes the place of an owner's step: a server that is not the owner waits for an answer.
const WATCHING: OwnerStep = OwnerStep::Rest(Timestamp(0));

/// The rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// A commit does not check the epoch.
    NoFence,
    /// A takeover does not wait for a commit that holds the row.
    NoLock,
    /// An owner that has lost its connection checks for its rows without raising its epoch.
    NoRaise,
    /// An owner that checks for its rows does not check the epoch.
    BlindCheck,
    /// No query after a commit checks whether the database still waits for its standby.
    NoQuestion,
    /// A reply is sent without a check of the lease.
    NoCheck,
    /// The lease is checked before the command is executed.
    CheckFirst,
    /// The lease starts with the answer to a heartbeat.
    FromAnswer,
    /// A standby measures the age of a heartbeat by the clock of the database.
    Age,
    /// A standby takes over before it has a connection for reading.
    ClaimFirst,
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
    told: usize,
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
    pub told: usize,
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
        told: world.told,
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
            told: 0,
            silences: 0,
            lives: SERVERS as u64,
            trace,
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
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
                self.tell(|| format!("server {server} is stopped for {} ms", pause / MS));
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

    // ---- the database ----

    fn set_waiting(&mut self, waits: bool) {
        self.cluster.waits_for_standby = waits;
        if !waits {
            self.release();
        }
    }

    /// The clock of the database jumps: it is now that of another machine, or it was set.
    fn set_clock(&mut self) {
        self.cluster.clock_ahead = 1_000_000 * MS - self.random.below(60_000) * MS;
    }

    fn replicate(&mut self) {
        if self.cluster.is_attached && !self.cluster.is_slow {
            self.cluster.replicated = self.cluster.changes.len();
            self.release();
        }
    }

    /// Answers the statement that holds the row, if it need no longer wait.
    fn release(&mut self) {
        let waits = self.cluster.waits_for_standby;
        let replicated = self.cluster.replicated;
        for flight in &mut self.flights {
            if let Stage::Held(number, reply) = &flight.stage
                && (!waits || *number < replicated)
            {
                self.cluster.visible.apply(&self.cluster.changes[*number]);
                // The query after the commit finds that the database no longer waits for its standby.
                let is_doubtful = !waits && self.mutation != Mutation::NoQuestion;
                flight.stage = Stage::Answered(if is_doubtful { Reply::Doubtful } else { reply.clone() });
            }
        }
    }

    /// The primary is lost with all connections, and its standby takes its place. Later there is a new standby.
    fn fail_over(&mut self) {
        self.tell(|| "the primary is lost".to_owned());
        if self.cluster.is_attached && !self.cluster.is_slow && self.random.once_in(2) {
            self.cluster.replicated = self.cluster.changes.len();
        }
        self.cluster.changes.truncate(self.cluster.replicated);
        self.set_clock();
        self.cluster.is_attached = false;
        self.recover();
    }

    /// The primary starts again. A change that was waiting for the standby is committed now, although the standby may
    /// not have it.
    fn restart_primary(&mut self) {
        self.tell(|| "the primary starts again".to_owned());
        self.recover();
    }

    fn recover(&mut self) {
        self.cluster.visible = State::after(&self.cluster.changes);
        for flight in std::mem::take(&mut self.flights) {
            if let Some((server, life)) = flight.server {
                self.lost(server, life);
            }
        }
        // Servers without a statement under way lose their connections, too.
        for Server { role, .. } in &mut self.servers {
            if let Role::Watching { watch, is_connected, can_read, .. } = role {
                (*is_connected, *can_read) = (false, false);
                watch.lost();
            }
        }
        for id in &self.acknowledged {
            let is_there = self.cluster.visible.log.values().any(|found| found == id);
            assert!(is_there, "job {id} was acknowledged and is lost");
        }
    }

    /// A connection breaks. The statements that were sent through it may still be executed.
    fn lose_connection(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.random.below(self.flights.len() as u64) as usize;
        if let Some((server, life)) = self.flights[at].server.take() {
            self.tell(|| format!("server {server} loses its connection: {:?}", self.flights[at].request));
            self.lost(server, life);
        }
    }

    /// One statement progresses: it arrives, or its answer does.
    fn progress(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.random.below(self.flights.len() as u64) as usize;
        if let Stage::Sent = self.flights[at].stage {
            let request = self.flights[at].request.clone();
            let is_held = self.flights.iter().any(|flight| matches!(flight.stage, Stage::Held(..)));
            let ignores_lock =
                self.mutation == Mutation::NoLock && matches!(request, Request::TakeOver { .. });
            let writes =
                matches!(request, Request::TakeOver { .. } | Request::Raise { .. } | Request::Prove { .. });
            if writes && is_held && !ignores_lock {
                return;
            }
            self.flights[at].stage = self.execute(&request);
            self.release();
            return;
        }
        if let Some((server, life)) = self.flights[at].server
            && self.servers[server].life == life
            && self.servers[server].frozen_until > self.now
        {
            return;
        }
        if let Stage::Answered(_) = self.flights[at].stage {
            let flight = self.flights.swap_remove(at);
            if let (Some((server, life)), Stage::Answered(reply)) = (flight.server, flight.stage)
                && self.servers[server].life == life
            {
                self.receive(server, reply);
            }
        }
    }

    fn execute(&mut self, request: &Request) -> Stage {
        let clock = self.now.0 + self.cluster.clock_ahead;
        let Cluster { visible, is_attached, waits_for_standby, has_free_connections, .. } = &self.cluster;
        let row = visible.row.clone();
        let heartbeat = Some(row.heartbeat.map_or(clock, |before| clock.max(before + 1)));
        match request {
            Request::Connect | Request::OpenReading
                if *is_attached && *waits_for_standby && *has_free_connections =>
            {
                Stage::Answered(Reply::Connected)
            }
            Request::Connect | Request::OpenReading => Stage::Answered(Reply::Busy),
            Request::See => Stage::Answered(Reply::Seen(row, clock)),
            Request::Read { epoch } if row.epoch == *epoch => {
                let ids: BTreeSet<u64> = visible.log.values().copied().collect();
                let missing = self.acknowledged.difference(&ids).next();
                assert_eq!(
                    missing, None,
                    "a job was acknowledged, and the owner of epoch {epoch} does not read it"
                );
                Stage::Answered(Reply::Read(visible.log.clone()))
            }
            Request::Read { .. } => Stage::Answered(Reply::Busy),
            Request::CheckCommit { epoch, .. }
                if row.epoch != *epoch && self.mutation != Mutation::BlindCheck =>
            {
                Stage::Answered(Reply::NotProven)
            }
            Request::CheckCommit { at, .. } => Stage::Answered(Reply::Found(visible.log.contains_key(at))),
            Request::TakeOver { seen, owner } => {
                if (row.epoch, row.heartbeat) != (seen.epoch, seen.heartbeat) || !*waits_for_standby {
                    return Stage::Answered(Reply::Epoch(None));
                }
                let epoch = row.epoch + 1;
                self.change(Row { epoch, owner: *owner, heartbeat }, None, Reply::Epoch(Some(epoch)))
            }
            Request::Raise { epoch, .. } if self.mutation == Mutation::NoRaise => {
                Stage::Answered(Reply::Epoch(Some(*epoch)))
            }
            Request::Raise { epoch, owner } => {
                if row.owner != *owner && row.epoch >= *epoch {
                    return Stage::Answered(Reply::TakenOver);
                }
                if row.epoch < *epoch || !*waits_for_standby {
                    return Stage::Answered(Reply::Busy);
                }
                let epoch = row.epoch + 1;
                self.change(Row { epoch, heartbeat, ..row }, None, Reply::Epoch(Some(epoch)))
            }
            Request::Prove { epoch, add, beats } => {
                let is_fenced = row.epoch != *epoch && self.mutation != Mutation::NoFence;
                if is_fenced || !*waits_for_standby {
                    return Stage::Answered(Reply::NotProven);
                }
                if add.is_some_and(|(at, _)| visible.log.contains_key(&at)) {
                    return Stage::Answered(Reply::Doubtful);
                }
                let heartbeat = if *beats { heartbeat } else { row.heartbeat };
                self.change(Row { heartbeat, ..row }, *add, Reply::Proven)
            }
        }
    }

    fn change(&mut self, row: Row, added: Option<(Position, u64)>, reply: Reply) -> Stage {
        self.cluster.changes.push(Change { row, added });
        Stage::Held(self.cluster.changes.len() - 1, reply)
    }

    // ---- the servers ----

    fn die(&mut self, server: usize, why: &str) {
        self.tell(|| format!("server {server} {why}"));
        self.lives += 1;
        let until = self.now + self.random.below(3000) * MS;
        self.servers[server] = Server {
            role: Role::Down { until },
            life: self.lives,
            is_waiting: None,
            frozen_until: Timestamp(0),
            clock: self.servers[server].clock,
        };
    }

    fn send(&mut self, server: usize, step: OwnerStep, request: Request) {
        let life = self.servers[server].life;
        self.servers[server].is_waiting = Some(step);
        self.flights.push(Flight { server: Some((server, life)), request, stage: Stage::Sent });
    }

    /// A server that waits for nothing takes its next step.
    fn act(&mut self, at: usize) {
        let begins_work = self.random.once_in(2);
        let claims_first = self.mutation == Mutation::ClaimFirst;
        let Server { role, life, is_waiting, frozen_until, clock } = &mut self.servers[at];
        if is_waiting.is_some() || *frozen_until > self.now {
            return;
        }
        let (life, now) = (*life, clock.at(self.now));
        let (step, request) = match role {
            Role::Down { until } if *until > self.now => return,
            Role::Down { .. } => {
                let watch = Watch::new(TIMES);
                *role = Role::Watching { watch, is_connected: false, can_read: false, sent_at: now };
                return;
            }
            Role::Watching { is_connected: false, .. } => (OwnerStep::Connect, Request::Connect),
            Role::Watching { can_read: false, .. } if !claims_first => (WATCHING, Request::OpenReading),
            Role::Watching { .. } => (WATCHING, Request::See),
            Role::Reading { can_read: false, .. } => (WATCHING, Request::OpenReading),
            Role::Reading { epoch, .. } => (WATCHING, Request::Read { epoch: *epoch }),
            Role::Owning(owning) => {
                let Owning { owner, work, next_id, file, offset, .. } = &mut **owning;
                if owner.is_free() && begins_work {
                    *work = Some(((*file, *offset), *next_id));
                    (*next_id, *offset) = (*next_id + 1, *offset + 1);
                    owner.begin();
                }
                let step = owner.next(now);
                let add = *work;
                match step {
                    OwnerStep::Connect => (step, Request::Connect),
                    OwnerStep::Raise(epoch) => (step, Request::Raise { epoch, owner: life }),
                    OwnerStep::CheckCommit(epoch) => {
                        let (at, _) = add.expect("a transaction is under way");
                        (step, Request::CheckCommit { at, epoch })
                    }
                    OwnerStep::Commit { epoch, beats } => (step, Request::Prove { epoch, add, beats }),
                    OwnerStep::Beat(epoch) => (step, Request::Prove { epoch, add: None, beats: true }),
                    OwnerStep::Rest(_) => return,
                    OwnerStep::End(end) => return self.die(at, &format!("ends: {end:?}")),
                }
            }
        };
        self.send(at, step, request);
    }

    /// Takes a step of the owner's turn.
    fn serve(&mut self) {
        let at = self.random.below(SERVERS as u64) as usize;
        let Server { role: Role::Owning(owning), frozen_until, clock, .. } = &mut self.servers[at] else {
            return;
        };
        if *frozen_until > self.now {
            return;
        }
        let holds = owning.lease.holds(clock.at(self.now)) || self.mutation == Mutation::NoCheck;
        let checks_first = self.mutation == Mutation::CheckFirst;
        owning.turn = match owning.turn {
            Turn::Idle if checks_first && !holds => return,
            Turn::Idle if checks_first => Turn::MayBegin,
            Turn::MayBegin => Turn::MayAnswer(self.steps),
            Turn::Idle => Turn::Executed(self.steps),
            Turn::Executed(_) if !holds => {
                self.silences += 1;
                return;
            }
            Turn::Executed(step) => Turn::MayAnswer(step),
            Turn::MayAnswer(executed) => {
                let later = self.taken.range(owning.claimed + 1..).next();
                assert!(
                    later.is_none_or(|(_, &taken)| taken > executed),
                    "server {at} answers what it has executed after {later:?} has taken over"
                );
                self.told += 1;
                Turn::Idle
            }
        };
    }

    /// The connection is gone through which a server waits for an answer.
    fn lost(&mut self, server: usize, life: u64) {
        if self.servers[server].life != life {
            return;
        }
        let Some(step) = self.servers[server].is_waiting.take() else { return };
        let now = self.servers[server].clock.at(self.now);
        match &mut self.servers[server].role {
            Role::Watching { watch, is_connected, can_read, .. } => {
                (*is_connected, *can_read) = (false, false);
                watch.lost();
            }
            Role::Reading { can_read, .. } => *can_read = false,
            Role::Owning(owning) => {
                owning.owner.answered(step, StepAnswer::Lost, now);
                owning.lease = owning.owner.lease();
            }
            Role::Down { .. } => {}
        }
    }

    fn receive(&mut self, server: usize, reply: Reply) {
        let Server { life, is_waiting, clock, .. } = &mut self.servers[server];
        let (now, life) = (clock.at(self.now), *life);
        let Some(step) = is_waiting.take() else { return };
        match &self.servers[server].role {
            Role::Down { .. } => {}
            Role::Watching { .. } => self.watch(server, step, reply, now, life),
            Role::Reading { epoch, sent_at, .. } => {
                let (epoch, sent_at) = (*epoch, *sent_at);
                match reply {
                    Reply::Read(log) => self.begin_to_own(server, epoch, sent_at, &log),
                    Reply::Connected => {
                        self.servers[server].role = Role::Reading { epoch, can_read: true, sent_at };
                    }
                    // The connection was lost, and there is no new one yet.
                    _ if self.cluster.visible.row.epoch == epoch => {
                        self.servers[server].role = Role::Reading { epoch, can_read: false, sent_at };
                    }
                    _ => self.die(server, "finds another epoch"),
                }
            }
            Role::Owning(_) => self.own(server, step, reply, now),
        }
    }

    /// An answer to a server that waits.
    fn watch(&mut self, server: usize, step: OwnerStep, reply: Reply, now: Timestamp, life: u64) {
        let is_mutant = self.mutation == Mutation::Age;
        let Role::Watching { watch, is_connected, can_read, sent_at } = &mut self.servers[server].role else {
            return;
        };
        match reply {
            Reply::Connected if step == OwnerStep::Connect => *is_connected = true,
            Reply::Connected => *can_read = true,
            Reply::Seen(row, clock) => {
                let heartbeat = row.heartbeat.map(|at| i64::try_from(at).unwrap());
                let is_own = row.owner == life;
                let seen = Seen { epoch: row.epoch, heartbeat, is_own, takeover_after_ns: 0 };
                let age_ns = row.heartbeat.map(|at| clock.saturating_sub(at));
                let is_old = age_ns.is_none_or(|age_ns| age_ns > TIMES.takeover_after_ns);
                if if is_mutant { is_old } else { watch.observe(seen, now) } {
                    *sent_at = now;
                    self.send(server, WATCHING, Request::TakeOver { seen: row, owner: life });
                }
            }
            Reply::Epoch(Some(epoch)) => {
                let (can_read, sent_at) = (*can_read, *sent_at);
                assert!(can_read, "server {server} has taken over from a server, and cannot serve");
                self.servers[server].role = Role::Reading { epoch, can_read, sent_at };
                self.taken.insert(epoch, self.steps);
            }
            Reply::Epoch(None) => {}
            _ => {
                (*is_connected, *can_read) = (false, false);
                watch.lost();
            }
        }
    }

    /// An answer to an owner.
    fn own(&mut self, server: usize, step: OwnerStep, reply: Reply, now: Timestamp) {
        let Role::Owning(owning) = &mut self.servers[server].role else { return };
        let answer = match (step, reply) {
            (_, Reply::Connected | Reply::Proven | Reply::Found(true)) => StepAnswer::Done,
            (_, Reply::Found(false)) => StepAnswer::Absent,
            (_, Reply::Epoch(Some(epoch))) => StepAnswer::Raised(epoch),
            (_, Reply::TakenOver) => StepAnswer::TakenOver,
            (_, Reply::NotProven) => StepAnswer::NotProven,
            (_, Reply::Busy) => StepAnswer::Busy,
            _ => StepAnswer::Lost,
        };
        let is_committed = owning.owner.answered(step, answer, now);
        owning.lease = match (self.mutation, step, answer) {
            (
                Mutation::FromAnswer,
                OwnerStep::Beat(_) | OwnerStep::Commit { beats: true, .. },
                StepAnswer::Done,
            ) => Lease::of(now, TIMES),
            (Mutation::FromAnswer, _, StepAnswer::Done) => owning.lease,
            _ => owning.owner.lease(),
        };
        if is_committed {
            let ((_, id), claimed) =
                (owning.work.take().expect("a transaction is under way"), owning.claimed);
            self.acknowledge(id, claimed);
        }
    }

    fn begin_to_own(&mut self, server: usize, epoch: u64, sent_at: Timestamp, log: &BTreeMap<Position, u64>) {
        let ids: BTreeSet<u64> = log.values().copied().collect();
        let next_id = ids.last().map_or(1, |last| last + 1);
        let file = log.keys().last().map_or(1, |last| last.0 + 1);
        self.tell(|| format!("server {server} owns the queue, epoch {epoch}, next id {next_id}"));
        self.read.insert(epoch, ids);
        let owner = Owner::new(TIMES, epoch, sent_at);
        self.servers[server].role = Role::Owning(Box::new(Owning {
            owner,
            lease: owner.lease(),
            work: None,
            next_id,
            file,
            offset: 0,
            claimed: epoch,
            turn: Turn::Idle,
        }));
    }

    /// The owner that began with epoch `claimed` acknowledges a job.
    fn acknowledge(&mut self, id: u64, claimed: u64) {
        self.tell(|| format!("the owner that began with epoch {claimed} acknowledges job {id}"));
        assert!(self.acknowledged.insert(id), "id {id} is given twice");
        for (epoch, ids) in self.read.range(claimed + 1..) {
            assert!(
                ids.contains(&id),
                "job {id} is acknowledged, and the owner of epoch {epoch} has not read it"
            );
        }
    }
}
