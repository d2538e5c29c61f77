//! The whole server with a binlog, which ends at any moment: by a kill, by a loss of power, in the middle of a write,
//! or in order. When it starts again, it must have everything that it has acknowledged.
//!
//! Owns: a server on a disk in memory, the ways in which it ends, and the helper thread's tasks, which are done and
//! reported at random moments. `workload` has the commands of the clients, and `versions` the jobs that must come back.
//! `harness` tests the whole protocol.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use beanstalkd::server::Server;
use beanstalkd_binlog::{Completion, Config, StoreTask, SyncPolicy};
use beanstalkd_protocol::Verb;
use beanstalkd_queue::{PoisonLimits, Slices};
use beanstalkd_types::clock::Timestamp;

use crate::facts::facts_of;
use crate::versions::{Step, Versions};
use crate::workload::{Dialogue, Expected, SHARED_TUBE};
use beanstalkd_model::State;
use beanstalkd_testkit::client::whole_reply;
use beanstalkd_testkit::disk::{self as sim_disk, SimDisk};
use beanstalkd_testkit::observer::{self, ServedStep};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{
    OpenedLog, START, cooldowns_of, crash_at_start, events_of, executor, hand_over,
};
use beanstalkd_testkit::sockets::FakeStream;

/// The number of servers that run on the same disk, one after another.
const SERVERS: u64 = 4;
/// The number of turns in which a server without new input must become idle.
const TURNS_TO_REST: usize = 1000;
/// The longest body.
pub const MAX_JOB_BYTES: u32 = 65_535;
/// More operations than any run does.
const NEVER: u64 = 1 << 60;
/// When the server becomes idle, the test waits for deadlines within this time.
const REST_NS: u64 = 10_000_000_000;

/// The commands that are not sent to a server that crashes, and why: `workload` and `crash_steps` name the others.
const NOT_SENT: &[&str] = &[
    // They change nothing.
    "list-clients",
    "list-jobs",
    "list-tube-used",
    "list-tubes",
    "list-tubes-watched",
    "peek",
    "peek-buried",
    "peek-delayed",
    "peek-ready",
    "peek-reserved",
    "stats",
    "stats-group",
    "stats-job",
    "stats-tube",
    // What they change is not in the log: the connection, the pause of a tube, drain mode.
    "auth",
    "drain",
    "kill-client",
    "pause-tube",
    "quit",
    "reserve-fields",
    "reserve-mode",
    "undrain",
    "wait-job",
    // Their changes are those of `flush-tube` and `reserve`.
    "flush-buried",
    "reserve-with-abort",
];

/// The result of a seed, to be compared with that of a second run.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A digest of all bytes that the clients received, and of all files.
    pub digest: u64,
    /// The number of turns at whose end a command waited for room in the binlog.
    pub stalls: u64,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The process is killed. Everything that it has written is in the files.
    Killed,
    /// The machine loses power. Writes that were not synced may be lost.
    PowerLoss,
    /// The machine loses power in the middle of the server's disk operations.
    PowerLossWithin(u64),
    /// A disk operation fails, and the process ends itself.
    DiskFailure,
    /// The process ends in order.
    Exit,
}

/// Several servers on one disk, one after another.
pub struct ServersOnDisk {
    pub random: Random,
    disk_random: sim_disk::Random,
    pub versions: Versions,
    pub server: Server<FakeStream>,
    disk: SimDisk,
    sync: SyncPolicy,
    file_bytes: u64,
    pub clients: Vec<Dialogue>,
    pub now: Timestamp,
    /// Tasks of the helper thread, each with the number of acknowledgements before the turn that submitted it.
    given: VecDeque<(StoreTask, u64)>,
    /// Tasks that are done, but not yet reported to the server.
    done: VecDeque<(Completion, u64)>,
    /// The number of acknowledgements whose records are on the medium.
    durable: u64,
    hasher: DefaultHasher,
    stalls: u64,
    trace: bool,
}

/// Runs a few servers on one disk.
///
/// # Panics
/// If the jobs after a restart are not those that were acknowledged.
pub fn run(seed: u64, trace: bool) -> Outcome {
    let mut servers = ServersOnDisk::new(seed, trace);
    servers.say(|| format!("{:?}, files of {} bytes", servers.sync, servers.file_bytes));
    let mut promised = Some(0);
    for _ in 0..SERVERS {
        servers.start(promised);
        let end = servers.run_server();
        // Losses of power while the next server replays the binlog.
        let losses = servers.random.below(3);
        promised = servers.promise(end, losses > 0);
        servers.end(end);
        for _ in 0..losses {
            servers.lose_power_at_start();
        }
    }
    Outcome { digest: servers.hasher.finish(), stalls: servers.stalls }
}

impl ServersOnDisk {
    fn new(seed: u64, trace: bool) -> Self {
        use SyncPolicy::{EachCommit, Every, Never};
        let mut random = Random::new(seed);
        Self {
            sync: random.pick(&[EachCommit, EachCommit, EachCommit, Every(50), Never]),
            file_bytes: random.pick(&[4096, 4096, 8192, 32_768]),
            random,
            disk_random: sim_disk::Random::new(seed),
            versions: Versions::default(),
            server: Server::new(executor(PoisonLimits::default(), MAX_JOB_BYTES)),
            disk: SimDisk::default(),
            clients: Vec::new(),
            now: START,
            given: VecDeque::new(),
            done: VecDeque::new(),
            durable: 0,
            hasher: DefaultHasher::new(),
            stalls: 0,
            trace,
        }
    }

    fn config(&mut self) -> Config {
        let (file_bytes, sync, nonce_seed) = (self.file_bytes, self.sync, self.random.next());
        Config { file_bytes, sync, recover: false, nonce_seed }
    }

    /// Starts a new server on the disk. The first `promised` acknowledgements must hold.
    fn start(&mut self, promised: Option<u64>) {
        let config = self.config();
        let log = OpenedLog::open(self.disk.storage(), config, self.now)
            .unwrap_or_else(|error| panic!("{:?}: the server does not start: {error}", self.sync));
        self.versions.restart(&log.restored, cooldowns_of(&log.binlog), log.next_job_id, promised, self.now);
        self.server = log.start(executor(PoisonLimits::default(), MAX_JOB_BYTES), self.now);
        for (at, job) in self.versions.jobs.iter().enumerate() {
            let found = job.id.and_then(|id| facts_of(self.server.executor().queue(), id));
            assert_eq!(found, self.versions.oracle.model.facts(at as u64), "job {:?}", job.id);
        }
        self.clients.clear();
        self.given.clear();
        self.done.clear();
        self.durable = 1;
        // The sockets of the previous server were dropped with it.
        observer::take();
    }

    /// Runs the server that has started, and returns how it ends.
    fn run_server(&mut self) -> End {
        let end = match self.random.below(7) {
            0 => End::Killed,
            1 | 2 => End::PowerLoss,
            3 | 4 => End::PowerLossWithin(1 + self.random.below(200)),
            5 => End::DiskFailure,
            _ => End::Exit,
        };
        if let End::PowerLossWithin(operations) = end {
            self.disk.crash_after(operations);
        }
        for _ in 0..1 + self.random.below(4) {
            self.connect();
        }
        for _ in 0..20 + self.random.below(150) {
            self.step();
            if self.disk.has_crashed() {
                return end;
            }
        }
        if end == End::DiskFailure {
            self.fail();
            return end;
        }
        if end == End::Exit || self.random.once_in(3) {
            self.come_to_rest();
        }
        if end == End::Exit {
            self.server.executor_mut().close_binlog(self.now).expect("the disk works");
        }
        end
    }

    /// Makes a sync or a write fail. (If a file cannot be made, the server keeps running.)
    fn fail(&mut self) {
        for client in &self.clients {
            client.connection.pipe.borrow_mut().widen();
        }
        for _ in 0..TURNS_TO_REST {
            self.disk.fail_after(1);
            if matches!(self.given.front(), Some((StoreTask::Sync(_), _))) {
                self.help();
                self.disk.fail_after(NEVER);
            }
            self.report_completion();
            self.turn();
            self.disk.fail_after(NEVER);
            if self.server.executor().has_failed() {
                assert!(self.clients.iter().all(|client| client.is_closed), "every client is closed");
                return;
            }
            self.step();
        }
    }

    /// Ends the server, and leaves the disk in the state after this end.
    fn end(&mut self, end: End) {
        self.say(|| format!("{end:?}"));
        self.disk = match end {
            End::Killed | End::DiskFailure | End::Exit => self.disk.fork(),
            End::PowerLoss | End::PowerLossWithin(_) => self.disk.crashed_image(&mut self.disk_random),
        };
        for (index, bytes) in self.disk.files() {
            self.hasher.write_u32(index);
            self.hasher.write(&bytes);
        }
    }

    /// Starts a server that loses power during its start.
    fn lose_power_at_start(&mut self) {
        let attempt = self.disk.fork();
        let (operations, config) = (1 + self.random.below(40), self.config());
        crash_at_start(&attempt, operations, |disk| OpenedLog::open(disk.storage(), config, self.now));
        self.disk = attempt.crashed_image(&mut self.disk_random);
    }

    /// The number of acknowledgements that must hold after such an end, which a loss of power may follow.
    fn promise(&self, end: End, power_is_lost: bool) -> Option<u64> {
        let is_kept = matches!(end, End::Killed | End::DiskFailure | End::Exit) && !power_is_lost;
        match self.sync {
            _ if is_kept => Some(self.versions.acknowledgements),
            SyncPolicy::EachCommit => Some(self.versions.acknowledgements),
            SyncPolicy::Every(_) => Some(self.durable),
            SyncPolicy::Never => None,
        }
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>16} {}", self.now.since_ns(START), what());
        }
    }

    /// Does one random event outside the server, or a turn of the server.
    fn step(&mut self) {
        let client = self.random.below(self.clients.len() as u64) as usize;
        match self.random.below(32) {
            0..=9 => self.request(client),
            10..=15 => self.arrive(client),
            16 => self.now = self.now + self.random.below(2_000_000_000),
            17..=20 => self.help(),
            21..=23 => self.report_completion(),
            24 if self.random.once_in(8) => self.leave(client),
            25 if self.random.once_in(4) => self.hand_over(),
            _ => self.turn(),
        }
    }

    /// If nothing is half done, another program takes over the state of the server and its log. The disk may crash
    /// meanwhile.
    fn hand_over(&mut self) {
        while !self.done.is_empty() {
            self.report_completion();
        }
        if !self.server.is_quiet() || self.disk.has_crashed() {
            return;
        }
        self.disk.take_back(self.given.drain(..).map(|(task, _)| task));
        self.server.executor_mut().quiesce_binlog(self.now);
        if self.server.executor().has_failed() {
            assert!(self.disk.has_crashed(), "the log has failed");
            return;
        }
        if self.server.executor().has_unlogged_changes() {
            assert!(self.disk.has_crashed(), "changes that wait for room get it");
            return;
        }
        self.say(|| "hands over".to_owned());
        let next = Server::new(executor(PoisonLimits::default(), MAX_JOB_BYTES));
        let connections = self.clients.iter().map(|client| &client.connection);
        hand_over(&mut self.server, next, connections, true, self.now);
        let config = self.config();
        let log = self.server.executor_mut().continue_with_binlog(self.disk.storage(), config, self.now, 0);
        match log {
            Ok(()) => self.server.check_invariants(),
            Err(error) => assert!(self.disk.has_crashed(), "the log does not go on: {error}"),
        }
        if self.sync != SyncPolicy::Never {
            self.durable = self.versions.acknowledgements;
        }
    }

    fn arrive(&mut self, client: usize) {
        let most = self.random.pick(&[10, 500, usize::MAX]);
        self.clients[client].connection.arrive(most);
    }

    /// Ends a client, either with a half-close, after which it still reads, or with a broken connection, after which
    /// the test does not know which commands were executed.
    fn leave(&mut self, client: usize) {
        if self.clients[client].connection.pipe.borrow().ended {
            return;
        }
        // The test must know the state of a shared job, because other clients use it.
        let is_shared = |&(job, _): &Step| self.versions.jobs[job].tube == SHARED_TUBE;
        let concerns_others = |asked: &Expected| match asked {
            Expected::Reply(_, steps) => steps.iter().any(is_shared),
            Expected::Ids(_, puts, steps) => {
                steps.iter().any(|step| is_shared(step) && !puts.contains(&step.0))
            }
            Expected::SharedJob => false,
        };
        let breaks = self.random.once_in(2) && !self.clients[client].expected.iter().any(concerns_others);
        self.say(|| format!("{client} leaves, breaks: {breaks}"));
        let connection = &mut self.clients[client].connection;
        if breaks {
            connection.under_way.clear();
            connection.break_off();
        } else {
            connection.arrive(usize::MAX);
            connection.end();
        }
    }

    /// Does the helper thread's oldest task.
    fn help(&mut self) {
        if let Some((task, before)) = self.given.pop_front() {
            self.say(|| {
                format!("the helper does {}", format!("{task:?}").split(", head").next().unwrap_or(""))
            });
            let completion = Completion { elapsed_us: 1, ..task.run(&mut self.disk) };
            self.done.push_back((completion, before));
        }
    }

    /// Reports the oldest completed task to the server.
    fn report_completion(&mut self) {
        if let Some((completion, before)) = self.done.pop_front() {
            if matches!(completion.task, StoreTask::Sync(_)) && completion.result.is_ok() {
                self.durable = before;
            }
            self.server.binlog_completed(completion, self.now);
        }
    }

    fn turn(&mut self) {
        self.now = self.now + self.random.below(20_000_000);
        let before = self.versions.acknowledgements;
        let open = self.clients.iter().filter(|client| !client.is_closed);
        let events = events_of(open.map(|client| &client.connection));
        self.say(|| format!("turn {events:?}"));
        self.server.turn(events.into_iter(), self.now);
        while let Some(task) = self.disk.next_task() {
            self.given.push_back((task, before));
        }
        for step in observer::take() {
            if let ServedStep::Closed(id) = step {
                self.clients
                    .iter_mut()
                    .filter(|client| client.connection.id == id)
                    .for_each(|client| client.is_closed = true);
            }
        }
        for client in 0..self.clients.len() {
            self.receive(client);
        }
    }

    /// Reads a client's replies, which must be the expected ones, and notes what they acknowledge.
    fn receive(&mut self, at: usize) {
        let bytes = self.clients[at].connection.received_bytes(usize::MAX);
        self.hasher.write_usize(at);
        self.hasher.write(&bytes);
        self.clients[at].received.extend(bytes);
        let has_failed = self.server.executor().has_failed();
        while let Some(length) = whole_reply(&self.clients[at].received) {
            let reply: Vec<u8> = self.clients[at].received.drain(..length).collect();
            self.say(|| format!("{at} receives {}", reply[..length.min(60)].escape_ascii()));
            let expected = self.clients[at].expected.pop_front().expect("each reply belongs to a command");
            // After this reply the test does not know whether the command was executed.
            if !(has_failed && reply == b"INTERNAL_ERROR\r\n") {
                self.take_note(at, &reply, expected);
            }
        }
        let client = &self.clients[at];
        let pipe = client.connection.pipe.borrow();
        if client.is_closed && !pipe.broken && !has_failed {
            assert!(pipe.ended && client.expected.is_empty(), "client {at} is closed before its last reply");
        }
        // With this policy, replies wait for room only, and not for the disk.
        let waits_for_room = self.sync != SyncPolicy::EachCommit
            && !self.server.owes_replies()
            && !pipe.has_event()
            && client.connection.under_way.is_empty()
            && pipe.unread_by_server() == 0
            && self.server.next_turn_at().is_none_or(|next| next > self.now)
            && matches!(client.expected.front(), Some(expected) if !matches!(expected, Expected::SharedJob));
        self.stalls += u64::from(waits_for_room && !client.is_closed);
    }

    fn take_note(&mut self, at: usize, reply: &[u8], expected: Expected) {
        let line = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        let (word, number) = (words.next(), words.next().and_then(|id| id.parse::<u64>().ok()));
        match expected {
            Expected::Reply(bytes, steps) => {
                assert_eq!(reply.escape_ascii().to_string(), bytes.escape_ascii().to_string(), "client {at}");
                self.versions.acknowledge(&steps);
            }
            Expected::Ids(expected, puts, steps) => {
                assert_eq!(word, Some(expected), "client {at}");
                let ids: Vec<u64> = line.split(' ').skip(1).map(|id| id.parse().expect("an id")).collect();
                assert_eq!(ids.len(), puts.len(), "client {at}: {line}");
                puts.iter().zip(ids).for_each(|(&put, id)| self.versions.learn_id(put, id));
                self.versions.acknowledge(&steps);
            }
            Expected::SharedJob if word == Some("TIMED_OUT") => {
                assert!(self.clients[at].connection.pipe.borrow().end_is_known, "client {at} still waits");
            }
            Expected::SharedJob => {
                assert_eq!(word, Some("RESERVED"), "client {at}");
                let body = &reply[line.len() + 2..reply.len() - 2];
                let job = self.versions.seen(number.expect("an id"), body);
                // A client that has ended may read this reply late, when another client has the job.
                if !self.clients[at].connection.pipe.borrow().ended {
                    self.reserve_shared(at, job);
                }
            }
        }
    }

    /// A client has got a job of the shared tube. The jobs of clients that have ended are given back.
    fn reserve_shared(&mut self, at: usize, job: usize) {
        let model = &mut self.versions.oracle.model;
        let holder = match model.job(job as u64).map(|job| job.state) {
            Some(State::Reserved { by, .. }) => Some(by),
            _ => None,
        };
        if let Some(holder) =
            holder.filter(|&holder| self.clients[holder as usize].connection.pipe.borrow().ended)
        {
            model.disconnect(holder, Slices::default().given_back, self.now);
        }
        let is_free = model.reserve_job(at as u32, job as u64, self.now);
        assert!(is_free, "job {job} is given to {at}, but {holder:?} has it");
    }

    /// Lets all input arrive, does and reports all tasks, and advances the clock a little. Then every client must have
    /// its replies, and everything that was acknowledged must be on the medium.
    fn come_to_rest(&mut self) {
        self.say(|| "comes to rest".to_owned());
        for client in &self.clients {
            client.connection.pipe.borrow_mut().widen();
        }
        for _ in 0..TURNS_TO_REST {
            for client in 0..self.clients.len() {
                self.arrive(client);
            }
            self.help();
            if self.disk.has_crashed() {
                return;
            }
            self.report_completion();
            self.turn();
            let is_busy = self.disk.has_crashed()
                || !self.given.is_empty()
                || !self.done.is_empty()
                || self.clients.iter().any(|client| {
                    !client.connection.under_way.is_empty()
                        || (!client.is_closed && client.connection.pipe.borrow().has_event())
                });
            if is_busy {
                continue;
            }
            match self.server.next_turn_at() {
                Some(next) if next < self.now + REST_NS => self.now = self.now.max(next),
                _ => return self.check_rest(),
            }
        }
        panic!("the server has not become idle after {TURNS_TO_REST} turns");
    }

    fn check_rest(&mut self) {
        self.server.executor().queue().check_invariants();
        for (at, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.is_closed) {
            assert!(
                !client.connection.pipe.borrow().ended,
                "client {at} has ended, but the server has not closed it"
            );
            let answered = matches!(client.expected.front(), None | Some(Expected::SharedJob));
            assert!(answered, "client {at} waits for {:?}", client.expected.front());
        }
        // By now the medium must have everything, even with a policy by which replies do not wait for it.
        self.durable = self.versions.acknowledgements;
    }
}

#[test]
fn each_command_is_sent_to_a_server_that_crashes_or_has_a_reason() {
    let texts = [include_str!("workload.rs"), include_str!("crash_steps/mod.rs")];
    let begins_a_text = |word: &&str| {
        let begins = |end: &str| texts.iter().any(|text| text.contains(&format!("\"{word}{end}")));
        ["\"", " ", "\\r\\n"].into_iter().any(begins)
    };
    let not_sent = Verb::ALL.map(Verb::as_str).into_iter().filter(|word| !begins_a_text(word));
    assert_eq!(not_sent.collect::<BTreeSet<_>>(), NOT_SENT.iter().copied().collect());
}
