//! Servers that own a queue one after another, on a replicated database in memory: connections and answers are lost,
//! statements arrive late, servers and database machines stop and die, and replication is switched off and on.
//!
//! Owns: the database with its row of the queue, the statements on their way, and servers that do what
//! [`Owner`] and [`Watch`] say. Oracle: what was acknowledged is in every later state of the database and was read by
//! every later owner; no id is acknowledged twice. [`Mutation`] breaks the rules one by one, to see that this is noticed.

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd::binlog::{Answer, Owner, Seen, Step, Times, Watch};
use beanstalkd::clock::Timestamp;
use beanstalkd_testkit::random::Random;

const SERVERS: usize = 3;
const STEPS: usize = 4000;
const MS: u64 = 1_000_000;
const TIMES: Times = Times { takeover_after_ns: 5000 * MS, store_timeout_ns: 30_000 * MS };

/// In place of the step of an owner: a server that is none waits for an answer.
const WATCHING: Step = Step::Rest(Timestamp(0));

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    None,
    /// A commit does not look at the epoch.
    NoFence,
    /// A takeover does not wait for a commit that holds the row.
    NoLock,
    /// An owner that has lost its connection looks without raising its epoch.
    NoRaise,
    /// An owner that looks does not look at the epoch.
    BlindLook,
    /// Nobody asks behind a commit whether the database still waits for its standby.
    NoQuestion,
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
    See,
    TakeOver { seen: Row, owner: u64 },
    Read { epoch: u64 },
    Raise { epoch: u64, owner: u64 },
    Look { at: Position, epoch: u64 },
    Prove { epoch: u64, add: Option<(Position, u64)>, beats: bool },
}

#[derive(Clone, Debug)]
enum Reply {
    Connected,
    Busy,
    Seen(Row),
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
    /// Who waits for the answer, and in which life; nobody once the connection is lost.
    server: Option<(usize, u64)>,
    request: Request,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Sent,
    /// It holds the row, and waits for the standby to have change number N.
    Held(usize, Reply),
    Answered(Reply),
}

/// The primary and its standby.
#[derive(Debug)]
struct Cluster {
    changes: Vec<Change>,
    /// What the primary shows: all changes but the last, if a statement holds the row.
    visible: State,
    /// How many changes the standby has.
    replicated: usize,
    is_attached: bool,
    /// Whether the standby is there and gets nothing for a while.
    is_slow: bool,
    waits_for_standby: bool,
    clock_ahead: u64,
}

#[derive(Debug)]
enum Role {
    Down { until: Timestamp },
    Watching { watch: Watch, is_connected: bool },
    Reading { epoch: u64 },
    Owning { owner: Owner, work: Option<(Position, u64)>, next_id: u64, file: u64, offset: u64, claimed: u64 },
}

#[derive(Debug)]
struct Server {
    role: Role,
    /// Each process has a name of its own.
    life: u64,
    is_waiting: Option<Step>,
    frozen_until: Timestamp,
}

struct World {
    random: Random,
    mutation: Mutation,
    now: Timestamp,
    cluster: Cluster,
    servers: Vec<Server>,
    flights: Vec<Flight>,
    acknowledged: BTreeSet<u64>,
    /// What each owner has read, by the epoch with which it began.
    read: BTreeMap<u64, BTreeSet<u64>>,
    lives: u64,
    trace: bool,
}

/// How much has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub acknowledged: usize,
    pub takeovers: usize,
    pub epochs: u64,
}

/// Runs one seed.
///
/// # Panics
/// If a promise is broken.
pub fn run(seed: u64, trace: bool) -> Outcome {
    run_mutant(seed, trace, Mutation::None)
}

/// The same with a rule broken.
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
    }
}

impl World {
    fn new(seed: u64, trace: bool, mutation: Mutation) -> Self {
        let server = |life| Server {
            role: Role::Down { until: Timestamp(0) },
            life,
            is_waiting: None,
            frozen_until: Timestamp(0),
        };
        let cluster = Cluster {
            changes: Vec::new(),
            visible: State::default(),
            replicated: 0,
            is_attached: true,
            is_slow: false,
            waits_for_standby: true,
            clock_ahead: 1_000_000 * MS,
        };
        Self {
            random: Random::new(seed),
            mutation,
            now: Timestamp(MS),
            cluster,
            servers: (1..=SERVERS as u64).map(server).collect(),
            flights: Vec::new(),
            acknowledged: BTreeSet::new(),
            read: BTreeMap::new(),
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
        match self.random.below(100) {
            0..=9 => self.now = self.now + self.random.below(400 * MS),
            10..=29 => self.act(),
            30..=69 => self.progress(),
            70..=89 => self.replicate(),
            _ => self.disturb(),
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
            13 => self.now = self.now + self.random.below(8000 * MS),
            14 => self.cluster.is_slow = true,
            15..=20 => self.cluster.is_slow = false,
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

    fn replicate(&mut self) {
        if self.cluster.is_attached && !self.cluster.is_slow {
            self.cluster.replicated = self.cluster.changes.len();
            self.release();
        }
    }

    /// Answers the statement that holds the row, if it need not wait any more.
    fn release(&mut self) {
        let waits = self.cluster.waits_for_standby;
        let replicated = self.cluster.replicated;
        for flight in &mut self.flights {
            if let Stage::Held(number, reply) = &flight.stage
                && (!waits || *number < replicated)
            {
                self.cluster.visible.apply(&self.cluster.changes[*number]);
                // The question that was sent behind the commit finds that it need not have waited.
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
        self.cluster.clock_ahead = 1_000_000 * MS - self.random.below(4000) * MS;
        self.cluster.is_attached = false;
        self.recover();
    }

    /// What was waiting for the standby is committed here, although the standby may not have it.
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
        for id in &self.acknowledged {
            let is_there = self.cluster.visible.log.values().any(|found| found == id);
            assert!(is_there, "job {id} was acknowledged and is lost");
        }
    }

    /// A connection breaks. What was sent through it may still be done.
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

    /// One statement goes on: it arrives, or its answer does.
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
        let Cluster { visible, is_attached, waits_for_standby, .. } = &self.cluster;
        let row = visible.row.clone();
        let heartbeat = Some(row.heartbeat.map_or(clock, |before| clock.max(before + 1)));
        match request {
            Request::Connect if *is_attached && *waits_for_standby => Stage::Answered(Reply::Connected),
            Request::Connect => Stage::Answered(Reply::Busy),
            Request::See => Stage::Answered(Reply::Seen(row)),
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
            Request::Look { epoch, .. } if row.epoch != *epoch && self.mutation != Mutation::BlindLook => {
                Stage::Answered(Reply::NotProven)
            }
            Request::Look { at, .. } => Stage::Answered(Reply::Found(visible.log.contains_key(at))),
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
        };
    }

    fn send(&mut self, server: usize, step: Step, request: Request) {
        let life = self.servers[server].life;
        self.servers[server].is_waiting = Some(step);
        self.flights.push(Flight { server: Some((server, life)), request, stage: Stage::Sent });
    }

    /// A server that waits for nothing does what is next.
    fn act(&mut self) {
        let at = self.random.below(SERVERS as u64) as usize;
        let now = self.now;
        let begins_work = self.random.once_in(2);
        let Server { role, life, is_waiting, frozen_until } = &mut self.servers[at];
        if is_waiting.is_some() || *frozen_until > now {
            return;
        }
        let life = *life;
        let (step, request) = match role {
            Role::Down { until } if *until > now => return,
            Role::Down { .. } => {
                *role = Role::Watching { watch: Watch::new(TIMES), is_connected: false };
                return;
            }
            Role::Watching { is_connected: false, .. } => (Step::Connect, Request::Connect),
            Role::Watching { .. } => (WATCHING, Request::See),
            Role::Reading { epoch } => (WATCHING, Request::Read { epoch: *epoch }),
            Role::Owning { owner, work, next_id, file, offset, .. } => {
                if owner.is_free() && begins_work {
                    *work = Some(((*file, *offset), *next_id));
                    (*next_id, *offset) = (*next_id + 1, *offset + 1);
                    owner.begin();
                }
                let step = owner.next(now);
                let add = *work;
                match step {
                    Step::Connect => (step, Request::Connect),
                    Step::Raise(epoch) => (step, Request::Raise { epoch, owner: life }),
                    Step::Look(epoch) => {
                        let (at, _) = add.expect("a transaction is under way");
                        (step, Request::Look { at, epoch })
                    }
                    Step::Commit { epoch, beats } => (step, Request::Prove { epoch, add, beats }),
                    Step::Beat(epoch) => (step, Request::Prove { epoch, add: None, beats: true }),
                    Step::Rest(_) => return,
                    Step::End(end) => return self.die(at, &format!("ends: {end:?}")),
                }
            }
        };
        self.send(at, step, request);
    }

    /// The connection through which a server waits for an answer is gone.
    fn lost(&mut self, server: usize, life: u64) {
        if self.servers[server].life != life {
            return;
        }
        let Some(step) = self.servers[server].is_waiting.take() else { return };
        let now = self.now;
        match &mut self.servers[server].role {
            Role::Watching { watch, is_connected } => {
                *is_connected = false;
                watch.lost();
            }
            Role::Reading { .. } => self.die(server, "cannot read the log"),
            Role::Owning { owner, .. } => {
                owner.answered(step, Answer::Lost, now);
            }
            Role::Down { .. } => {}
        }
    }

    fn receive(&mut self, server: usize, reply: Reply) {
        let (now, life) = (self.now, self.servers[server].life);
        let Some(step) = self.servers[server].is_waiting.take() else { return };
        match &mut self.servers[server].role {
            Role::Down { .. } => {}
            Role::Watching { watch, is_connected } => match reply {
                Reply::Connected => *is_connected = true,
                Reply::Seen(row) => {
                    let heartbeat = row.heartbeat.map(|at| i64::try_from(at).unwrap());
                    let seen =
                        Seen { epoch: row.epoch, heartbeat, is_own: row.owner == life, takeover_after_ns: 0 };
                    if watch.may_take_over(seen, now) {
                        self.send(server, WATCHING, Request::TakeOver { seen: row, owner: life });
                    }
                }
                Reply::Epoch(Some(epoch)) => self.servers[server].role = Role::Reading { epoch },
                Reply::Epoch(None) => {}
                _ => watch.lost(),
            },
            Role::Reading { epoch } => {
                let epoch = *epoch;
                let Reply::Read(log) = reply else { return self.die(server, "finds another epoch") };
                self.begin_to_own(server, epoch, &log);
            }
            Role::Owning { owner, work, claimed, .. } => {
                let answer = match (step, reply) {
                    (_, Reply::Connected | Reply::Proven | Reply::Found(true)) => Answer::Done,
                    (_, Reply::Found(false)) => Answer::Absent,
                    (_, Reply::Epoch(Some(epoch))) => Answer::Raised(epoch),
                    (_, Reply::TakenOver) => Answer::TakenOver,
                    (_, Reply::NotProven) => Answer::NotProven,
                    (_, Reply::Busy) => Answer::Busy,
                    _ => Answer::Lost,
                };
                if owner.answered(step, answer, now) {
                    let ((_, id), claimed) = (work.take().expect("a transaction is under way"), *claimed);
                    self.acknowledge(id, claimed);
                }
            }
        }
    }

    fn begin_to_own(&mut self, server: usize, epoch: u64, log: &BTreeMap<Position, u64>) {
        let ids: BTreeSet<u64> = log.values().copied().collect();
        let next_id = ids.last().map_or(1, |last| last + 1);
        let file = log.keys().last().map_or(1, |last| last.0 + 1);
        self.tell(|| format!("server {server} owns the queue, epoch {epoch}, next id {next_id}"));
        self.read.insert(epoch, ids);
        let owner = Owner::new(TIMES, epoch, self.now);
        self.servers[server].role =
            Role::Owning { owner, work: None, next_id, file, offset: 0, claimed: epoch };
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
