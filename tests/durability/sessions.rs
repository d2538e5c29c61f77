//! Workers with sessions, whose server is killed, stopped, handed over and taken over again and again, and whose links
//! are cut. A worker that comes back within the grace still holds all jobs that it has reserved and knows of, and no
//! other client has got them; a worker that does not come back loses its jobs at the end of the grace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beanstalkd_testkit::client::{Client, Failure, id_of};
use beanstalkd_testkit::copy_built_server;
use beanstalkd_testkit::history::History;
use beanstalkd_testkit::launched::hand_over;
use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::sent::{JobCommand, SentCommand};
use beanstalkd_testkit::server::Server;
use rustix::process::Signal;

use crate::jobs::{see_jobs, start_program};

/// The number of rounds, unless `SESSION_ROUNDS` is set.
const ROUNDS: u64 = 8;
/// The number of workers, unless `SESSION_WORKERS` is set.
const WORKERS: u64 = 12;
/// The number of commands of all workers in a round, for a short round.
const MIN_STEPS: u64 = 120;
/// The grace of workers that do not come back.
const SHORT_GRACE: Duration = Duration::from_secs(1);

/// The event at the end of a round.
#[derive(Clone, Copy, Debug)]
enum Event {
    Kill,
    Stop,
    /// A hand-over to the same program in another file.
    HandOver,
    /// A takeover by another server, which waits for the lock, after a kill.
    TakeOver,
}

struct Worker {
    /// In the history.
    number: usize,
    client: Client,
}

impl Worker {
    /// Connects a worker for the first time or again. Its session must have the jobs that the history has for it.
    fn come(
        &mut self,
        server: &Server,
        by_session: &BTreeMap<String, BTreeSet<u64>>,
        history: &mut History,
    ) -> Result<(), Failure> {
        let name = format!("w{}", self.number);
        let found = by_session.get(&name).cloned().unwrap_or_default();
        history.came_back(self.number, &found);
        self.client = server.connect()?;
        let reply = self.client.ask(format!("session {name} 60\r\n").as_bytes())?;
        assert_eq!(id_of(&reply, "SESSION"), Some(found.len() as u64), "{name}");
        Ok(())
    }

    fn step(&mut self, random: &mut Random, history: &mut History) -> Result<(), Failure> {
        let own = history.reservations(self.number).nth(random.below(8) as usize);
        let command = match (random.below(8), own) {
            (0, Some(id)) => JobCommand::Touch(id),
            (1, Some(id)) => JobCommand::Delete(id),
            (2, Some(id)) => JobCommand::Release(id),
            (3 | 4, _) => JobCommand::Put(history.putting(), 1),
            (_, _) => JobCommand::Reserve,
        };
        let sent = self.ask(command, history)?;
        self.read(&sent, history)
    }

    fn ask(&mut self, command: JobCommand, history: &mut History) -> Result<SentCommand, Failure> {
        let sent = SentCommand::new(history, command);
        self.client.send(&sent.bytes)?;
        Ok(sent)
    }

    /// Reads the reply.
    fn read(&mut self, sent: &SentCommand, history: &mut History) -> Result<(), Failure> {
        let reply = self.client.read_reply()?;
        let is_right = sent.answered(history, self.number, "", &reply);
        if is_right { Ok(()) } else { Err(self.client.failure("the command was not executed")) }
    }

    /// Sends a command whose reply it may never read.
    fn leave_in_the_middle(
        &mut self,
        random: &mut Random,
        history: &mut History,
    ) -> Result<SentCommand, Failure> {
        let own = history.reservations(self.number).next().filter(|_| random.once_in(2));
        self.ask(own.map_or(JobCommand::Reserve, JobCommand::Delete), history)
    }
}

/// The servers on one log, one after the other, and their workers.
struct World {
    /// The directory of the log, the program and the rules.
    home: tempfile::TempDir,
    server: Server,
    workers: Vec<Worker>,
    history: History,
    random: Random,
    /// The longest time between the end of a grace and the delivery of the job to another worker.
    longest: Duration,
}

impl World {
    fn new(workers: u64, seed: u64) -> Result<Self, Failure> {
        let home = tempfile::tempdir().expect("there is room");
        // With rules, SIGHUP does not end the server.
        fs::write(home.path().join("rules"), "[[tube]]\nname = \"other\"\nmax-jobs = 1\n")
            .expect("there is room");
        copy_built_server(&home.path().join("program")).expect("there is room");
        let server = start_in(home.path());
        let (random, longest) = (Random::new(seed), Duration::ZERO);
        let mut history = History::default();
        let mut all = Vec::new();
        for number in 0..workers as usize {
            let mut worker = Worker { number, client: server.connect()? };
            worker.come(&server, &BTreeMap::new(), &mut history)?;
            all.push(worker);
        }
        Ok(Self { home, server, workers: all, history, random, longest })
    }

    fn round(&mut self, round: u64) -> Result<(), Failure> {
        let count = self.workers.len() as u64;
        for _ in 0..count.max(MIN_STEPS) {
            let at = self.random.below(count) as usize;
            if self.random.once_in(20) {
                // The link is cut. The old connection may still be open when the worker comes back.
                let by_session = self.server.connect()?.jobs_by_session(&["default"])?;
                self.workers[at].come(&self.server, &by_session, &mut self.history)?;
            } else {
                self.workers[at].step(&mut self.random, &mut self.history)?;
            }
        }
        let event = self.random.pick(&[Event::Kill, Event::Stop, Event::HandOver, Event::TakeOver]);
        let (id, gone) = self.one_goes(round)?;
        // A hand-over does not disturb the worker that waits for its job.
        let waiting = matches!(event, Event::HandOver).then(|| wait_for_it(&self.server, round, id));
        let mut sent = Vec::new();
        for (at, worker) in self.workers.iter_mut().enumerate() {
            if self.random.once_in(2) {
                sent.push((at, worker.leave_in_the_middle(&mut self.random, &mut self.history)?));
            }
        }
        let since = self.carry_out(event).unwrap_or(gone);
        let waiting = match waiting {
            Some(waiting) => waiting,
            None => {
                let workers = self.server.connect()?.stat("current-workers")?;
                assert_eq!(workers, 0, "nobody has come back");
                wait_for_it(&self.server, round, id)
            }
        };
        if matches!(event, Event::HandOver) {
            // No client has noticed anything.
            for (at, sent) in sent {
                self.workers[at].read(&sent, &mut self.history)?;
            }
        } else {
            let by_session = self.server.connect()?.jobs_by_session(&["default"])?;
            for worker in &mut self.workers {
                worker.come(&self.server, &by_session, &mut self.history)?;
            }
        }
        let free = waiting.join().expect("it says why")?;
        assert_eq!(self.history.problems(), [""; 0], "round {round}");
        self.longest = self.longest.max(free.saturating_duration_since(since + SHORT_GRACE));
        Ok(())
    }

    /// All jobs that were put and not deleted must still exist, and no others.
    fn check_all(&mut self) -> Result<(), Failure> {
        let mut observer = self.server.connect()?;
        let end = put_and_reserve(&mut observer, u64::MAX)?;
        let found = see_jobs(&mut observer, 1..end)?;
        self.history.settle(&found.into_iter().map(|(id, job)| (id, job.body)).collect());
        assert_eq!(self.history.problems(), [""; 0]);
        Ok(())
    }

    /// Returns the time since which the server serves again; `None` if it was never interrupted.
    fn carry_out(&mut self, event: Event) -> Option<Instant> {
        match event {
            Event::Kill => self.server.restart(Signal::KILL).expect("it starts on its log"),
            Event::Stop => self.server.restart(Signal::TERM).expect("it starts on its log"),
            Event::HandOver => {
                hand_over(&self.server).expect("another copy of the program takes over");
                return None;
            }
            Event::TakeOver => {
                let home = self.home.path().to_owned();
                let standby = thread::spawn(move || start_in(&home));
                self.server.stop(Signal::KILL).expect("it runs");
                self.server = standby.join().expect("it gets the lock");
            }
        }
        Some(Instant::now())
    }

    /// Connects a worker that reserves the job of this round, and disconnects it. Returns the job and the instant.
    fn one_goes(&mut self, round: u64) -> Result<(u64, Instant), Failure> {
        let mut client = self.server.connect()?;
        client.ask(format!("session gone-{round} {}\r\n", SHORT_GRACE.as_secs()).as_bytes())?;
        let id = put_and_reserve(&mut client, round)?;
        drop(client);
        Ok((id, Instant::now()))
    }
}

/// Waits for the job of the worker that has left. Returns the time of its delivery.
fn wait_for_it(server: &Server, round: u64, id: u64) -> JoinHandle<Result<Instant, Failure>> {
    let address = server.address();
    thread::spawn(move || {
        let mut other = address.connect()?;
        other.ask(format!("watch alone-{round}\r\n").as_bytes())?;
        other.ask(b"ignore default\r\n")?;
        let reply = other.ask(b"reserve-with-timeout 30\r\n")?;
        let free = Instant::now();
        assert_eq!(id_of(&reply, "RESERVED"), Some(id), "{}", reply.escape_ascii());
        other.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n")?;
        Ok(free)
    })
}

/// Puts and reserves a job in the tube of this round.
fn put_and_reserve(client: &mut Client, round: u64) -> Result<u64, Failure> {
    for line in [format!("use alone-{round}"), format!("watch alone-{round}"), "ignore default".to_owned()] {
        client.ask(format!("{line}\r\n").as_bytes())?;
    }
    client.ask(b"put 0 0 600 1\r\nx\r\n")?;
    let reply = client.ask(b"reserve-with-timeout 0\r\n")?;
    id_of(&reply, "RESERVED").ok_or_else(|| client.failure("it has reserved nothing"))
}

/// A server on the log in the home directory, once it has the lock.
fn start_in(home: &Path) -> Server {
    let rules = home.join("rules");
    let flags = ["-f", "0", "-s", "65536", "--wait-for-lock", "--tubes", rules.to_str().expect("it is text")];
    start_program(&home.join("program"), home.to_str().expect("it is text"), &flags)
}

/// `SESSION_LIMIT_MS` is the time for which a job may stay, after the grace, with a worker that does not come back.
#[test]
fn no_job_of_a_session_is_lost_or_given_to_another_worker() -> Result<(), Failure> {
    let rounds = number_from_environment("SESSION_ROUNDS").unwrap_or(ROUNDS);
    let count = number_from_environment("SESSION_WORKERS").unwrap_or(WORKERS);
    let mut world = World::new(count, number_from_environment("SEED").unwrap_or(1))?;
    for round in 0..rounds {
        world.round(round)?;
    }
    world.check_all()?;
    println!(
        "{rounds} rounds, {count} workers: a job stayed {:?} longer than its grace at most",
        world.longest
    );
    if let Some(limit) = number_from_environment("SESSION_LIMIT_MS") {
        assert!(world.longest <= Duration::from_millis(limit), "{:?}", world.longest);
    }
    Ok(())
}
