//! Sessions and dead jobs, one step at a time, while the disk can fail between any two of its operations.
//!
//! Owns: a server with a binlog, workers of two sessions, a tube whose jobs die, and a model of these. A step is a
//! command, a lost connection, some time that passes, a hand-over, or a disk that becomes full or has room again. After
//! it, the server must have the state of the model. After a crash, each job is as it was before or after the last step;
//! once the command was answered, it must be as after the step, except what `full_disk` allows. `crashes` has several
//! commands at a time, but no sessions, no rules and no full disk.

mod full_disk;
mod hand_over;
mod judge;

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd::server::Server;
use beanstalkd_binlog::{Completion, Config, OpenError, StoreTask, SyncPolicy};
use beanstalkd_protocol::{Command, parse};
use beanstalkd_queue::{ClientId, PoisonLimits, Slices, TubeRule};
use beanstalkd_types::clock::{NS_PER_MS, Timestamp};
use beanstalkd_types::job::{JobId, JobState};
use beanstalkd_types::tags::{Concurrency, PutTags, TagSet};

use beanstalkd_model::{Accepted, Answer, Facts, Model, PutWords, Server as Oracle, State};
use beanstalkd_testkit::disk::{self as sim_disk, SimDisk};
use beanstalkd_testkit::observer::{self, ServedStep};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{Connection, START, crash_at_start, events_of, executor, start_on};
use beanstalkd_testkit::sockets::{FakeStream, Pipe};

use self::judge::ids_of;
use crate::facts::facts_of;

/// The number of servers that run on the same disk, one after another, each until it crashes.
const SERVERS: u64 = 5;
/// The maximum number of steps of a server.
const MAX_STEPS: u64 = 40;
/// The number of losses of power that are examined for each crash, besides the one after which the next server starts.
const IMAGES: u64 = 12;
/// The number of turns in which a server without new input must become idle.
const TURNS_TO_REST: usize = 2000;
/// The longest body.
const MAX_JOB_BYTES: u32 = 65_535;
/// A length so small that the log is compacted all the time.
const FILE_BYTES: u64 = 4096;
/// More operations than any run does.
const NEVER: u64 = 1 << 60;
/// The tags of a put into a fair tube.
const KEYS: [&str; 5] = ["", " con:a:9", " con:b:9", " con:b:2", " con:c:1"];
/// Within this time, all that no reply waits for is on the medium.
const REST_NS: u64 = 60_000_000;

/// The number of cases seen, so that a test knows that it has tested something.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Jobs that a session had after a crash.
    pub kept_by_session: u64,
    /// Jobs that were dead after a crash.
    pub dead: u64,
    /// Jobs whose unanswered change a crash has kept.
    pub kept: u64,
    /// Jobs whose unanswered change a crash has lost.
    pub lost: u64,
    /// Commands that a full disk has refused.
    pub refused: u64,
    /// How often another program has taken over.
    pub hand_overs: u64,
    /// Reservations of a job before an older one, because of the position of its key.
    pub overtakes: u64,
}

/// A client of a session.
struct SessionClient {
    connection: Connection,
    /// Whether it is about to be closed, because the client is gone or its session was taken over.
    is_ending: bool,
    is_closed: bool,
}

/// A command whose reply has not come.
struct Asked {
    client: ClientId,
    expected: Vec<u8>,
    received: Vec<u8>,
    /// The jobs that the command changes.
    changed: BTreeSet<u64>,
    before: Model,
    /// The index in `stages` of the state after the command.
    stage: usize,
}

/// The states that may be on the medium.
#[derive(Default)]
struct Doubt {
    /// The states of the model since all was last on the medium: one after each event.
    stages: Vec<Model>,
    /// By job: the first of these states that includes the acknowledged changes.
    answered: BTreeMap<u64, usize>,
    asked: Option<Asked>,
}

struct Settings {
    sync: SyncPolicy,
    rules: Vec<TubeRule>,
}

struct Steps {
    random: Random,
    disk_random: sim_disk::Random,
    settings: Settings,
    disk: SimDisk,
    server: Server<FakeStream>,
    oracle: Oracle,
    clients: Vec<SessionClient>,
    doubt: Doubt,
    /// The next file of the log, while making it takes long. The store does nothing else meanwhile.
    slow: Option<StoreTask>,
    /// Whether the disk is full, as far as the log knows.
    is_disk_full: bool,
    /// Whether power was lost since the last server.
    has_lost_power: bool,
    now: Timestamp,
    outcome: Outcome,
    trace: bool,
}

/// Runs some servers on one disk, each until it crashes.
///
/// # Panics
/// If a server does anything other than the model, or a crash changes a fact that it must keep.
pub fn run(seed: u64, trace: bool) -> Outcome {
    observer::take();
    let mut steps = Steps::new(seed, trace);
    let mut crashes = 0;
    while steps.start() && crashes < SERVERS {
        steps.run_server();
        steps.crash();
        crashes += 1;
    }
    Outcome { overtakes: steps.oracle.model.overtakes, ..steps.outcome }
}

impl Settings {
    fn new(random: &mut Random) -> Self {
        let mut rules = vec![TubeRule {
            max_attempts: Some(random.pick(&[1, 2, 2, 2, 3])),
            backoff_s: random.pick(&[None, Some(2), Some(2)]),
            dead_tube: (!random.once_in(4)).then(|| "dead".into()),
            is_fair: random.once_in(2),
            ..TubeRule::new("mail")
        }];
        if random.once_in(4) {
            rules.push(TubeRule { max_jobs: Some(2), ..TubeRule::new("dead") });
        }
        let sync = random.pick(&[SyncPolicy::EachCommit, SyncPolicy::EachCommit, SyncPolicy::Every(50)]);
        Self { sync, rules }
    }
}

impl Steps {
    fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings::new(&mut random);
        let mut oracle = Oracle::new(PoisonLimits::default(), MAX_JOB_BYTES, START);
        oracle.model.set_rules(settings.rules.clone(), START);
        Self {
            disk_random: sim_disk::Random::new(random.next()),
            doubt: Doubt { stages: vec![oracle.model.clone()], ..Doubt::default() },
            random,
            settings,
            disk: SimDisk::default(),
            server: Server::new(executor(PoisonLimits::default(), MAX_JOB_BYTES)),
            oracle,
            clients: Vec::new(),
            slow: None,
            is_disk_full: false,
            has_lost_power: false,
            now: START,
            outcome: Outcome::default(),
            trace,
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>16} {}", self.now.since_ns(START), what());
        }
    }

    // Starts and ends.

    fn config(&mut self) -> Config {
        let (sync, nonce_seed) = (self.settings.sync, self.random.next());
        Config { file_bytes: FILE_BYTES, sync, recover: false, nonce_seed }
    }

    fn open(&mut self, disk: &SimDisk) -> Result<Server<FakeStream>, OpenError> {
        let config = self.config();
        let mut executor = executor(PoisonLimits::default(), MAX_JOB_BYTES);
        executor.set_tube_rules(self.settings.rules.clone(), self.now);
        start_on(disk, executor, config, self.now)
    }

    /// Starts a server, which must have each job of the model. Returns false if a loss of power has moved a job back,
    /// where the model cannot follow.
    fn start(&mut self) -> bool {
        self.now = self.now + self.random.pick(&[0, 0, 300, 2000, 20_000]) * NS_PER_MS;
        let disk = self.disk.clone();
        self.server = self.open(&disk).expect("the server starts");
        self.slow = None;
        self.clients.clear();
        // The sockets of the previous server were dropped with it.
        observer::take();
        self.say(|| format!("starts with {:?}", self.server.executor().queue().figures().jobs));
        let stages = self.stages_after_restart();
        let moves_back = std::mem::take(&mut self.has_lost_power);
        let chosen = self.judge(&self.server, &stages, moves_back);
        self.is_disk_full = false;
        let queue = self.server.executor().queue();
        if chosen.iter().any(|&(id, stage)| facts_of(queue, id) != stages[stage].facts(id)) {
            return false;
        }
        self.note_outcome(&stages, &chosen);
        let mut model = stages[stages.len() - 1].clone();
        for (id, stage) in chosen {
            model.take_job_of(&stages[stage], id);
        }
        model.finish_restart();
        model.next_id = self.server.executor().queue().next_id().0;
        self.oracle.model = model;
        self.settled();
        self.compare();
        true
    }

    /// Runs the server that has started, until the disk crashes or for some steps.
    fn run_server(&mut self) {
        if self.random.once_in(4) {
            self.disk.crash_after(1 + self.random.below(12));
        }
        // A start logs again what it has found.
        self.advance_model();
        self.settle();
        for _ in 0..self.random.below(MAX_STEPS) {
            if self.disk.has_crashed() {
                return;
            }
            if self.random.once_in(MAX_STEPS / 2) {
                self.disk.crash_after(1 + self.random.below(10));
            }
            self.step();
        }
    }

    /// A kill or a loss of power, sometimes followed by more of them while the next servers start.
    fn crash(&mut self) {
        if self.settings.sync == SyncPolicy::EachCommit {
            let stages = self.stages_after_restart();
            for _ in 0..IMAGES {
                let image = self.disk.crashed_image(&mut self.disk_random);
                image.set_room(None);
                let server = self.open(&image).expect("the server starts");
                self.judge(&server, &stages, true);
            }
        }
        self.leave_disk();
        for _ in 0..self.random.below(3) {
            let operations = 1 + self.random.below(40);
            crash_at_start(&self.disk.clone(), operations, |disk| self.open(disk));
            self.leave_disk();
        }
    }

    /// Leaves the disk as after a kill or, if replies have waited for the disk, as after a loss of power.
    fn leave_disk(&mut self) {
        let is_kill = self.settings.sync != SyncPolicy::EachCommit || self.random.once_in(2);
        self.say(|| format!("crashes, by a kill: {is_kill}"));
        self.has_lost_power |= !is_kill;
        self.disk = if is_kill { self.disk.fork() } else { self.disk.crashed_image(&mut self.disk_random) };
        self.disk.crash_after(NEVER);
        self.disk.set_room(None);
    }

    // Steps.

    fn step(&mut self) {
        let client = self.random.below(1 + self.clients.len() as u64) as usize;
        if client == self.clients.len() {
            return if client < 4 && self.random.once_in(2) { self.connect() } else { self.pass_time() };
        }
        match self.random.below(24) {
            0 => self.leave(client),
            1 | 2 => self.pass_time(),
            3 => self.churn(client),
            4 => self.hand_over(),
            5..=7 if self.is_disk_full || self.random.once_in(12) => self.change_room(client),
            _ => self.command(client),
        }
    }

    fn connect(&mut self) {
        let pipe = Pipe::new(1 << 20, Random::new(self.random.next()));
        let connection = Connection::open(&mut self.server, pipe, self.now);
        let index = connection.id.index;
        self.oracle.model.connect(index);
        self.clients.push(SessionClient { connection, is_ending: false, is_closed: false });
        let client = self.clients.len() - 1;
        self.say(|| format!("{index} connects"));
        for line in ["use mail", "watch mail", "watch dead"] {
            self.ask(client, line, None);
        }
        if self.random.once_in(2) {
            self.begin_session(client);
        }
    }

    fn begin_session(&mut self, client: usize) {
        let (name, grace) = (self.random.pick(&["a", "b"]), self.random.pick(&["0", "0.5", "3", "60"]));
        self.ask(client, &format!("session {name} {grace}"), None);
    }

    fn leave(&mut self, client: usize) {
        self.advance_clock();
        let client = &mut self.clients[client];
        client.is_ending = true;
        client.connection.break_off();
        let index = client.connection.id.index;
        self.say(|| format!("{index} is gone"));
        self.oracle.model.disconnect(index, Slices::default().given_back, self.now);
        self.note_stage();
        self.settle();
    }

    fn pass_time(&mut self) {
        let deadline = self.oracle.model.next_deadline().unwrap_or(self.now);
        let to = match self.random.below(6) {
            0 => Timestamp(deadline.0 - 1),
            1 => self.now + 500 * NS_PER_MS,
            2 => self.now + 5000 * NS_PER_MS,
            _ => deadline,
        };
        self.now = self.now.max(to);
        self.say(|| "is the time now".to_owned());
        self.advance_model();
        self.settle();
    }

    fn command(&mut self, client: usize) {
        let (index, model) = (self.clients[client].connection.id.index, &self.oracle.model);
        let ids: Vec<u64> = model.jobs.iter().map(|job| job.id).collect();
        let reserved: Vec<u64> = ids.iter().copied().filter(|&id| model.has_reserved(index, id)).collect();
        let has_session = model.sessions.iter().any(|session| session.client == Some(index));
        let any = if ids.is_empty() { 1 } else { self.random.pick(&ids) };
        let own = if reserved.is_empty() { any } else { self.random.pick(&reserved) };
        let line = match self.random.below(20) {
            0..=2 => return self.put(client),
            3 => return self.begin_session(client),
            4..=7 => "reserve-with-timeout 0".to_owned(),
            8 => format!("reserve-job {any}"),
            9 if !has_session => format!("reserve-batch {}", self.random.pick(&[2, 50])),
            10 => format!("touch {own}{}", self.random.pick(&["", " 1", " 30"])),
            11 => "touch-all".to_owned(),
            12 => format!("bury {own} 3"),
            13 => format!("kick-job {any}"),
            14 => format!("delete {own}"),
            15 => format!("move {any} {}", self.random.pick(&["mail", "dead", "other"])),
            16 => format!("release {own} 1 0 uncounted"),
            17 => format!("release {own} 2 3"),
            _ => format!("release {own} 4 0"),
        };
        self.ask(client, &line, None);
    }

    /// Puts a job, or so many jobs that their reservations do not fit into one file.
    fn put(&mut self, client: usize) {
        let count = if self.random.once_in(12) { 30 } else { 1 };
        for _ in 0..count {
            let body = vec![b'x'; self.random.pick(&[0, 20, 200])];
            let (priority, delay) = (self.random.below(3), self.random.pick(&[0, 0, 0, 2]));
            let ttr = self.random.pick(&[1, 3, 60, 600]);
            let is_keyed = self.settings.rules[0].is_fair;
            let key = if is_keyed { self.random.pick(&KEYS) } else { "" };
            self.ask(client, &format!("put {priority} {delay} {ttr} {}{key}", body.len()), Some(&body));
        }
    }

    // The effect of a step on the server and on the model.

    fn advance_clock(&mut self) {
        self.now = self.now + 1000 + self.random.below(NS_PER_MS);
        self.advance_model();
    }

    fn advance_model(&mut self) {
        if self.oracle.model.next_deadline().is_some_and(|at| at <= self.now) {
            self.oracle.model.advance(self.now);
            self.note_stage();
        }
    }

    fn note_stage(&mut self) {
        self.oracle.model.forget_the_past();
        self.doubt.stages.push(self.oracle.model.clone());
    }

    /// Sends a command. Unless the disk crashes, its reply must be that of the model.
    fn ask(&mut self, client: usize, line: &str, body: Option<&[u8]>) {
        if self.disk.has_crashed() {
            return;
        }
        self.advance_clock();
        let before = self.oracle.model.clone();
        let id = self.clients[client].connection.id;
        let expected = self.execute(id.index, line, body);
        self.say(|| {
            format!("{} sends {line}: {}", id.index, expected[..expected.len().min(60)].escape_ascii())
        });
        self.note_stage();
        let after = &self.oracle.model;
        let mut changed = ids_of([&before, after].into_iter());
        // No reply waits for the record of a reservation without a session.
        let is_forgotten = |facts: Facts| facts.record.state == JobState::Reserved && facts.session.is_none();
        changed.retain(|&id| {
            let (before, after) = (before.facts(id), after.facts(id));
            let is_logged =
                !self.is_disk_full || Self::is_logged_on_full_disk(line, before.as_ref(), after.as_ref());
            is_logged && before != after && !after.is_some_and(is_forgotten)
        });
        let stage = self.doubt.stages.len() - 1;
        self.doubt.asked = Some(Asked { client: id, expected, received: Vec::new(), changed, before, stage });
        let mut bytes = format!("{line}\r\n").into_bytes();
        if let Some(body) = body {
            bytes.extend([body, b"\r\n"].concat());
        }
        self.clients[client].connection.send(&bytes);
        self.settle();
    }

    /// Executes a command in the model; returns its reply.
    fn execute(&mut self, index: u32, line: &str, body: Option<&[u8]>) -> Vec<u8> {
        let answer = match parse(line.as_bytes()).expect("a command") {
            Command::Put(_) | Command::PutWith(..) => self.execute_put(index, line, body),
            command => self.oracle.command(index, command, self.now),
        };
        for before in std::mem::take(&mut self.oracle.model.taken_over) {
            self.oracle.model.disconnect(before, Slices::default().given_back, self.now);
            let victim = self.clients.iter_mut().find(|client| client.connection.id.index == before);
            victim.expect("it was connected").is_ending = true;
        }
        let Answer::Reply(reply) = answer else { panic!("{line} is answered at once") };
        reply
    }

    fn execute_put(&mut self, index: u32, line: &str, body: Option<&[u8]>) -> Answer {
        let (header, key) = match parse(line.as_bytes()) {
            Ok(Command::Put(header)) => (header, None),
            Ok(Command::PutWith(header, _)) => (header, KEYS.into_iter().rfind(|key| line.ends_with(key))),
            other => panic!("{other:?} is no put"),
        };
        let concurrency = key.and_then(|key| {
            let (key, limit) = key.strip_prefix(" con:")?.split_once(':')?;
            Some(Concurrency { key: key.try_into().unwrap(), limit: limit.parse().expect("a number") })
        });
        let Answer::Body(id) = self.oracle.put(index, header.size, PutWords::Good) else {
            unreachable!("a body follows")
        };
        let accepted = Accepted {
            id,
            tags: PutTags { kept: TagSet { concurrency, ..TagSet::NONE }, tube: None },
            priority: header.priority.0,
            delay_s: header.delay_s,
            ttr_s: header.ttr_s,
        };
        self.oracle.body(index, accepted, body.expect("a put has a body").into(), true, self.now)
    }

    /// Runs the server until all its work is done and on the medium, or the disk has crashed. Then it must have the
    /// state of the model. While making a file takes long, runs only until the command is answered, if it can be.
    fn settle(&mut self) {
        let until = self.now + REST_NS;
        for _ in 0..TURNS_TO_REST {
            if self.disk.has_crashed() {
                return;
            }
            self.turn();
            self.receive();
            if self.disk.has_crashed() {
                return;
            }
            let has_events = self.open_connections().any(|open| open.pipe.borrow().has_event());
            if let Some(task) = self.next_task() {
                self.help(task);
            } else if has_events {
                continue;
            } else if let Some(at) = self.server.next_turn_at()
                && (at <= self.now || at <= until && !self.delays_execution())
            {
                self.now = self.now.max(at);
                self.advance_model();
            } else if let Some(task) = self.slow.take() {
                if self.doubt.asked.is_none() && !self.random.once_in(16) {
                    self.slow = Some(task);
                    return self.compare();
                }
                self.help(task);
            } else {
                assert!(self.doubt.asked.is_none(), "{} is not answered", self.asked());
                self.settled();
                return self.compare();
            }
        }
        panic!("the server has not become idle after {TURNS_TO_REST} turns; {}", self.asked());
    }

    /// Whether the server waits for a file before it executes the command. The model has executed the command, so the
    /// clock must not advance.
    fn delays_execution(&self) -> bool {
        let (queue, model) = (self.server.executor().queue(), &self.oracle.model);
        let mut changed = self.doubt.asked.iter().flat_map(|asked| &asked.changed);
        self.slow.is_some() && changed.any(|&id| facts_of(queue, id) != model.facts(id))
    }

    /// The next task of the store; `None` while making a file takes long.
    fn next_task(&mut self) -> Option<StoreTask> {
        if self.slow.is_some() {
            return None;
        }
        let task = self.disk.next_task()?;
        if matches!(task, StoreTask::Make { .. }) && self.random.once_in(2) {
            self.say(|| "a file takes long to be made".to_owned());
            self.slow = Some(task);
            return None;
        }
        Some(task)
    }

    fn help(&mut self, task: StoreTask) {
        let completion = Completion { elapsed_us: 1, ..task.run(&mut self.disk) };
        if !self.disk.has_crashed() {
            self.server.binlog_completed(completion, self.now);
        }
    }

    fn asked(&self) -> String {
        let expected = self.doubt.asked.as_ref().map(|asked| asked.expected.escape_ascii().to_string());
        expected.unwrap_or_default()
    }

    fn open_connections(&self) -> impl Iterator<Item = &Connection> {
        self.clients.iter().filter(|client| !client.is_closed).map(|client| &client.connection)
    }

    fn turn(&mut self) {
        let events = events_of(self.open_connections());
        self.server.turn(events.into_iter(), self.now);
        for step in observer::take() {
            if let ServedStep::Closed(id) = step {
                let closed = self.clients.iter_mut().filter(|client| client.connection.id == id);
                closed.for_each(|client| client.is_closed = true);
            }
        }
    }

    fn receive(&mut self) {
        let Doubt { answered, asked, .. } = &mut self.doubt;
        let Some(Asked { client, expected, received, changed, stage, .. }) = asked else { return };
        let client =
            self.clients.iter().find(|known| known.connection.id == *client).expect("it is connected");
        received.extend(client.connection.received_bytes(usize::MAX));
        let is_refused = self.is_disk_full && received == full_disk::REFUSAL;
        let is_right = is_refused || expected.starts_with(received) || self.server.executor().has_failed();
        assert!(is_right, "{} instead of {}", received.escape_ascii(), expected.escape_ascii());
        if received == expected {
            answered.extend(changed.iter().map(|&id| (id, *stage)));
            *asked = None;
        } else if is_refused {
            self.take_refusal();
        }
    }

    /// Notes that the whole state of the model is on the medium, unless the disk is full.
    fn settled(&mut self) {
        self.oracle.model.forget_the_past();
        if self.is_disk_full {
            return;
        }
        self.doubt = Doubt { stages: vec![self.oracle.model.clone()], ..Doubt::default() };
    }
}
