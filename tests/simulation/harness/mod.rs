//! The server, its clients, the sockets between them, and the clock, all driven by one seed.
//!
//! Owns: the order of events outside the server, and the comparison of its replies with those of the oracle.

mod following;
mod rest;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use beanstalkd::access::{AccessRules, Peer};
use beanstalkd::server::Server;
use beanstalkd_protocol::Command;
use beanstalkd_queue::{ClientId, PoisonLimits, Slices, TubeRule, WaitOutcome};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::JobId;
use beanstalkd_types::tags::PutTags;

use crate::script::{Knowledge, Request, Tags, request};
use beanstalkd_model::{ANY_NUMBER, Accepted, Answer, NO_JUMPS_FROM, Server as Oracle};
use beanstalkd_testkit::observer::{self, ServedStep};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::rules::tube_rule;
use beanstalkd_testkit::simulated::{Connection, START, described, executor, hand_over};
use beanstalkd_testkit::sockets::{FakeStream, Pipe};

/// The most clients at a time.
const MAX_CLIENTS: usize = 6;
/// The number of turns in which a server without new input must become idle.
const TURNS_TO_REST: usize = 1000;
/// The longest time that passes while clients send commands, in seconds. A job that is moved notes its age, which may
/// not be larger.
const MAX_SECONDS: u64 = u32::MAX as u64;
/// Access rules with which a server replies like one without rules.
const EVERYTHING_IS_ALLOWED: &str =
    "[strangers]\nproduce = [\"*\"]\nwork = [\"*\"]\nobserve = [\"*\"]\nmanage = [\"*\"]\n";

/// What a client has sent, and the replies that it expects.
struct FollowedClient {
    connection: Connection,
    /// A number that no other client has.
    number: u64,
    /// The number of bytes sent so far.
    sent: usize,
    /// Requests that were not executed yet, each with the number of bytes sent up to its end.
    requests: VecDeque<(Request, usize)>,
    /// The `put` whose body comes next.
    accepted: Option<Accepted>,
    /// The replies that it has not read yet.
    expected: VecDeque<u8>,
    /// The number of its replies that the observer has not seen yet.
    owed: u32,
    /// The end of its wait, and the reply at that time, if the observer has not seen the reply yet.
    delivery: Option<(WaitOutcome, Vec<u8>)>,
    /// Whether it reserves at random.
    draws: bool,
    /// While it waits in a `reserve-with-abort`: the number of bytes sent up to the end of that command.
    abortable_from: Option<u64>,
    /// Whether the server has executed its `quit`.
    has_quit: bool,
    /// Whether another client has killed it or taken over its session, so that its connection ends at once.
    is_taken_over: bool,
}

pub struct Harness {
    random: Random,
    server: Server<FakeStream>,
    oracle: Oracle,
    limits: PoisonLimits,
    rule: Option<TubeRule>,
    clients: Vec<FollowedClient>,
    /// The number of the last client.
    last_number: u64,
    now: Timestamp,
    digest: DefaultHasher,
    /// Whether the server executes no new command, as before a hand-over.
    is_paused: bool,
    trace: bool,
}

/// Observations of a server.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The digest of every byte that its clients received.
    digest: u64,
    /// The number of reservations of a job before an older one, because of the position of its key.
    pub overtakes: u64,
}

/// Runs a server from start to end.
///
/// # Panics
/// If the server does anything other than what the oracle expects.
pub fn run(seed: u64, trace: bool) -> Outcome {
    observer::take();
    let mut harness = Harness::new(seed, trace);
    harness.say(|| format!("limits {:?}, rule {:?}", harness.limits, harness.rule));
    let steps = 20 + harness.random.below(180);
    for _ in 0..steps {
        harness.step();
    }
    harness.come_to_rest();
    harness.end_everything();
    Outcome { digest: harness.digest.finish(), overtakes: harness.oracle.model.overtakes }
}

/// A server without clients.
fn new_server(
    limits: PoisonLimits,
    max_job_bytes: u32,
    has_rules: bool,
    rule: Option<&TubeRule>,
) -> Server<FakeStream> {
    let mut executor = executor(limits, max_job_bytes);
    if has_rules {
        executor
            .guard_with(AccessRules::parse(EVERYTHING_IS_ALLOWED, &|_| None).expect("the rules are right"));
    }
    executor.set_tube_rules(rule.into_iter().cloned().collect(), START);
    Server::new(executor)
}

/// A rule for tubes, which says something in any of its fields, or nothing.
fn random_rule(random: &mut Random) -> TubeRule {
    let mut rule = tube_rule(random, &["*", "?*", "default"], &["default", "dead"]);
    if rule.is_fair && !random.once_in(4) {
        // Without these limits, keys can have several jobs.
        (rule.max_jobs, rule.max_bytes) = (None, None);
    }
    rule
}

impl Harness {
    fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random::new(seed);
        let limit = |random: &mut Random| random.once_in(4).then(|| 1 + random.below(3) as u32);
        let limits = PoisonLimits { timeouts: limit(&mut random), releases: limit(&mut random) };
        let max_job_bytes = random.pick(&[10, 65_535, 65_535, 1 << 20]);
        let mut oracle = Oracle::new(limits, max_job_bytes, START);
        oracle.has_rules = random.once_in(4);
        let rule = random.once_in(3).then(|| random_rule(&mut random));
        oracle.model.set_rules(rule.iter().cloned().collect(), START);
        Self {
            server: new_server(limits, max_job_bytes, oracle.has_rules, rule.as_ref()),
            limits,
            rule,
            oracle,
            clients: Vec::new(),
            last_number: 0,
            now: START,
            digest: DefaultHasher::new(),
            random,
            is_paused: false,
            trace,
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>16} {}", self.now.since_ns(START), what());
        }
    }

    /// Does one random event outside the server, or a turn of the server.
    fn step(&mut self) {
        if self.clients.is_empty() {
            return self.connect();
        }
        let client = self.random.below(self.clients.len() as u64) as usize;
        match self.random.below(64) {
            0 | 1 if self.clients.len() < MAX_CLIENTS => self.connect(),
            0..=19 => self.send(client),
            20..=33 => self.arrive(client),
            34..=39 => self.read(client),
            40 => self.end(client),
            41 if self.random.once_in(3) => self.break_off(client),
            42 if self.random.once_in(4) => {
                let draining = !self.oracle.draining;
                self.say(|| format!("draining: {draining}"));
                self.oracle.draining = draining;
                self.server.executor_mut().set_draining(draining);
            }
            43 if self.random.once_in(3) => self.hand_over(),
            43 if self.random.once_in(3) => self.pause(!self.is_paused),
            43 if self.rule.is_some() && self.random.once_in(3) => self.reload(),
            43 => self.clients[client].connection.pipe.borrow_mut().false_alarm(),
            44..=47 => self.pass_time(),
            _ => self.turn(8),
        }
    }

    /// The file of rules has another rule, or none. The tubes are so few that they follow it before the next command.
    fn reload(&mut self) {
        self.rule = (!self.random.once_in(4)).then(|| random_rule(&mut self.random));
        self.say(|| format!("reads its rules again: {:?}", self.rule));
        let rules: Vec<TubeRule> = self.rule.iter().cloned().collect();
        self.server.executor_mut().set_tube_rules(rules.clone(), self.now);
        self.oracle.model.set_rules(rules, self.now);
        self.turn(1);
    }

    /// A hand-over is about to happen, or has failed.
    fn pause(&mut self, is_paused: bool) {
        self.say(|| format!("is paused: {is_paused}"));
        self.is_paused = is_paused;
        self.server.pause(is_paused);
    }

    /// Another program takes over the whole state of the server, unless a command is half done.
    fn hand_over(&mut self) {
        if !self.server.is_quiet() {
            return;
        }
        self.say(|| "hands over".to_owned());
        self.server.check_invariants();
        let next =
            new_server(self.limits, self.oracle.max_job_bytes, self.oracle.has_rules, self.rule.as_ref());
        let connections = self.clients.iter().map(|client| &client.connection);
        let description = hand_over(&mut self.server, next, connections, false, self.now);
        self.is_paused = false;
        assert!(described(&self.server) == description, "what was read is what was described");
        self.oracle.model.judge_ages_again();
        assert_eq!(self.server.client_count(), self.clients.len());
        let queue = self.server.executor().queue();
        for client in &self.clients {
            assert_eq!(queue.client_number(client.connection.id), client.number, "it keeps its number");
        }
        queue.check_invariants();
        self.oracle.model.hand_over();
    }

    fn connect(&mut self) {
        let refused = self.random.once_in(16);
        let capacity = self.random.pick(&[1, 7, 300, 4096, 100_000, 4_000_000]);
        let pipe = Pipe::new(capacity, Random::new(self.random.next()));
        self.oracle.connections += 1;
        if refused {
            let before = self.server.executor().queue().figures().clients;
            let result = self.server.accept(|_| Err::<FakeStream, ()>(()), self.now);
            assert_eq!((result, self.server.executor().queue().figures().clients), (Err(()), before));
            return;
        }
        let connection = Connection::open(&mut self.server, pipe, self.now);
        let id = connection.id;
        self.server.identify(id, Peer::Unix(None), self.now);
        self.oracle.model.connect(id.index);
        self.say(|| format!("{} connects, {capacity} bytes of room", id.index));
        let number = self.server.executor().queue().client_number(id);
        assert!(self.last_number < number, "the number of a client is used again");
        self.last_number = number;
        self.clients.push(FollowedClient {
            connection,
            number,
            sent: 0,
            requests: VecDeque::new(),
            accepted: None,
            expected: VecDeque::new(),
            owed: 0,
            delivery: None,
            draws: self.random.once_in(3),
            abortable_from: None,
            has_quit: false,
            is_taken_over: false,
        });
    }

    /// Sends some requests of a client. They have not arrived yet.
    fn send(&mut self, client: usize) {
        let known = Knowledge {
            client: self.random.pick(&self.clients.iter().map(|client| client.number).collect::<Vec<_>>()),
            reserved: {
                let (index, model) = (self.clients[client].index(), &self.oracle.model);
                model.jobs.iter().map(|job| job.id).find(|&id| model.has_reserved(index, id))
            },
            next_id: self.oracle.model.next_id,
            max_job_bytes: self.oracle.max_job_bytes,
            draws: self.clients[client].draws,
            is_fair: self.rule.as_ref().is_some_and(|rule| rule.is_fair),
        };
        // With so many jobs that a list of them takes several turns, its reply would come later than that of the
        // oracle.
        let (usual, most) = if known.is_fair { (15, 60) } else { (5, 300) };
        let count = if self.random.once_in(100) { most } else { 1 + self.random.below(usual) };
        let client = &mut self.clients[client];
        if client.connection.pipe.borrow().ended {
            return;
        }
        for _ in 0..count {
            let mut bytes = Vec::new();
            for (request, length) in request(&mut self.random, known, &mut bytes) {
                if self.trace {
                    eprintln!("{:>16} {} sends {request:?}", "", client.index());
                }
                client.requests.push_back((request, client.sent + length));
            }
            client.sent += bytes.len();
            client.connection.under_way.extend(bytes);
        }
    }

    /// Lets some of the sent bytes arrive.
    fn arrive(&mut self, client: usize) {
        let client = &mut self.clients[client];
        let all = client.connection.under_way.len();
        if all > 0 {
            let most = self.random.pick(&[1, 2, 5, 30, 300, 70_000, 400_000, usize::MAX]).min(all);
            let count = 1 + self.random.below(most as u64) as usize;
            client.connection.arrive(count);
        }
    }

    /// Reads some of a client's replies, which must be the expected ones.
    fn read(&mut self, client: usize) {
        let most = self.random.pick(&[1, 5, 100, 10_000, usize::MAX]);
        self.take_replies(client, most);
    }

    fn take_replies(&mut self, client: usize, most: usize) {
        let client = &mut self.clients[client];
        let bytes = client.connection.received_bytes(most);
        if bytes.is_empty() {
            return;
        }
        self.digest.write_u32(client.index());
        self.digest.write(&bytes);
        for (at, &byte) in bytes.iter().enumerate() {
            if client.expected.front() == Some(&ANY_NUMBER) && !byte.is_ascii_digit() {
                client.expected.pop_front();
            }
            match client.expected.front() {
                Some(&ANY_NUMBER) => {}
                Some(&expected) if expected == byte => drop(client.expected.pop_front()),
                _ => client.complain(&bytes, at),
            }
        }
    }

    /// Closes a client's sending half, sometimes in the middle of a request. Sometimes the client does not read either.
    fn end(&mut self, client: usize) {
        let gone = self.random.once_in(3);
        let cut = self.random.once_in(2);
        let index = self.clients[client].index();
        if self.clients[client].connection.pipe.borrow().ended {
            return;
        }
        if !cut {
            while !self.clients[client].connection.under_way.is_empty() {
                self.arrive(client);
            }
        }
        self.say(|| format!("{index} ends, gone: {gone}, cut: {cut}"));
        let client = &mut self.clients[client];
        client.forget_what_will_not_arrive();
        client.connection.pipe.borrow_mut().end(gone);
    }

    fn break_off(&mut self, client: usize) {
        self.say(|| format!("{} breaks off", self.clients[client].index()));
        let client = &mut self.clients[client];
        client.forget_what_will_not_arrive();
        client.connection.break_off();
    }

    fn pass_time(&mut self) {
        let deadline = self.oracle.model.next_deadline().unwrap_or(self.now);
        let to = match self.random.below(8) {
            0 => self.now + 1,
            1 => self.now + self.random.below(3_000_000_000),
            2 => self.now + self.random.pick(&[60, 3600, 40_000_000]) * 1_000_000_000,
            3 => Timestamp(deadline.0 - 1),
            4 => deadline + 1,
            _ => deadline,
        };
        self.pass_time_to(to.min(START + MAX_SECONDS * 1_000_000_000));
    }

    fn pass_time_to(&mut self, to: Timestamp) {
        if self.now < NO_JUMPS_FROM {
            self.now = self.now.max(to);
            self.say(|| "is the time now".to_owned());
        }
    }

    /// Runs a turn of the server. One in `leave_one_in` events is delivered a turn later.
    fn turn(&mut self, leave_one_in: u64) {
        let mut events = Vec::new();
        for FollowedClient { connection, .. } in &self.clients {
            let has_event = connection.pipe.borrow().has_event();
            if has_event && !(leave_one_in > 1 && self.random.once_in(leave_one_in)) {
                events.push(connection.take_event());
            }
        }
        if events.len() > 1 {
            let first = self.random.below(events.len() as u64) as usize;
            events.rotate_left(first);
        }
        self.say(|| format!("turn {events:?}"));
        self.oracle.model.advance(self.now);
        self.expect_deliveries();
        self.server.turn(events.into_iter(), self.now);
        let all = observer::take();
        for (at, &step) in all.iter().enumerate() {
            // A command that is answered at once is followed by its reply.
            let number = match (step, all.get(at + 1)) {
                (ServedStep::Command(index), Some(&ServedStep::Reply(of, number))) if of == index => number,
                (ServedStep::Reply(_, number), _) => number,
                _ => 0,
            };
            self.follow(step, number);
        }
        for client in &self.clients {
            assert!(!client.is_taken_over, "client {} is still there, which was to end", client.index());
            assert_eq!(client.owed, 0, "client {} waits for a reply at the end of the turn", client.index());
        }
        if self.random.once_in(8) || self.trace {
            self.server.check_invariants();
            self.compare_waits();
        }
    }
}

impl FollowedClient {
    fn index(&self) -> u32 {
        self.connection.id.index
    }

    /// Notes the next reply that the oracle expects.
    fn expect(&mut self, bytes: Vec<u8>) {
        self.expected.extend(bytes);
        self.owed += 1;
    }

    /// A client is answered although no event in the queue has ended its wait.
    fn expect_end_of_wait(&mut self) {
        let pipe = self.connection.pipe.borrow();
        let reply = match self.abortable_from.take() {
            Some(from) if pipe.read > from => "ABORTED\r\n",
            _ => {
                assert!(pipe.end_is_known, "client {} is answered, but still waits", self.index());
                "TIMED_OUT\r\n"
            }
        };
        self.expected.extend(reply.bytes());
    }

    /// Panics because the received byte `at` this index is not the expected one.
    fn complain(&self, bytes: &[u8], at: usize) -> ! {
        let expected: Vec<u8> = self.expected.iter().copied().take(100).collect();
        let end = bytes.len().min(at + 100);
        panic!(
            "client {} receives \"{}\", then \"{}\" instead of \"{}\"",
            self.index(),
            bytes[at.saturating_sub(40)..at].escape_ascii(),
            bytes[at..end].escape_ascii(),
            expected.escape_ascii(),
        );
    }

    /// Forgets the requests whose bytes will not arrive, because the connection has ended.
    fn forget_what_will_not_arrive(&mut self) {
        let arrived = self.sent - self.connection.under_way.len();
        self.connection.under_way.clear();
        self.requests.retain(|&(_, end)| end <= arrived);
    }
}
