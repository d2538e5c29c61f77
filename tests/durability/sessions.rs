//! Workers with sessions, whose server is killed again and again: a job that a worker has reserved and that it knows of
//! is still its own when it comes back within the grace, and nobody else has got it; a worker that does not come back
//! loses its jobs when the grace is over.

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd_testkit::client::{Client, Failure};
use beanstalkd_testkit::random::{Random, number_from_environment};
use beanstalkd_testkit::server::Server;
use rustix::process::Signal;

use crate::jobs::start;

/// Rounds, unless `SESSION_ROUNDS` is set.
const ROUNDS: u64 = 6;
/// Workers, unless `SESSION_WORKERS` is set.
const WORKERS: u64 = 12;
/// Commands of all workers in a round.
const STEPS: u64 = 120;

struct Worker {
    name: String,
    client: Client,
    /// The jobs that it has, as it knows.
    held: BTreeSet<u64>,
    /// Those of them whose end it has asked for, without having read the reply.
    unsure: BTreeSet<u64>,
}

/// The number in the reply behind this word.
fn number(reply: &[u8], word: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(reply);
    text.strip_prefix(word)?.split_ascii_whitespace().next()?.parse().ok()
}

/// The jobs that sessions have, by the name of the session.
fn held_by_session(client: &mut Client) -> Result<BTreeMap<String, BTreeSet<u64>>, Failure> {
    let list = client.ask(b"list-jobs default reserved 1000\r\n")?;
    let mut held: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&list).lines() {
        let Some((id, rest)) = line.strip_prefix("- {id: ").and_then(|rest| rest.split_once(',')) else {
            continue;
        };
        let name = rest.split_once("session: \"").and_then(|(_, name)| name.split_once('"'));
        if let (Ok(id), Some((name, _))) = (id.parse(), name) {
            held.entry(name.to_owned()).or_default().insert(id);
        }
    }
    Ok(held)
}

impl Worker {
    /// A worker comes, or comes back. What it has must be there, and nothing that it has not asked for.
    fn come(&mut self, server: &Server, held: &BTreeMap<String, BTreeSet<u64>>) -> Result<(), Failure> {
        let found = held.get(&self.name).cloned().unwrap_or_default();
        let sure: BTreeSet<u64> = self.held.difference(&self.unsure).copied().collect();
        assert!(found.is_superset(&sure), "{} had {sure:?}, and has {found:?}", self.name);
        self.client = server.connect().map_err(|error| Failure::new(error.to_string()))?;
        let reply = self.client.ask(format!("session {} 60\r\n", self.name).as_bytes())?;
        assert_eq!(number(&reply, "SESSION "), Some(found.len() as u64), "{}", self.name);
        (self.held, self.unsure) = (found, BTreeSet::new());
        Ok(())
    }

    fn step(&mut self, random: &mut Random, taken: &mut BTreeMap<u64, String>) -> Result<(), Failure> {
        let own = self.held.iter().copied().nth(random.below(8) as usize);
        match (random.below(8), own) {
            (0, Some(id)) => {
                self.client.exchange(format!("touch {id}\r\n").as_bytes(), b"TOUCHED\r\n")?;
            }
            (1, Some(id)) => {
                self.client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n")?;
                self.held.remove(&id);
                taken.remove(&id);
            }
            (2, Some(id)) => {
                self.client.exchange(format!("release {id} 0 0\r\n").as_bytes(), b"RELEASED\r\n")?;
                self.held.remove(&id);
                taken.remove(&id);
            }
            (3 | 4, _) => {
                self.client.ask(b"put 0 0 600 1\r\nx\r\n")?;
            }
            _ => {
                let reply = self.client.ask(b"reserve-with-timeout 0\r\n")?;
                if let Some(id) = number(&reply, "RESERVED ") {
                    let before = taken.insert(id, self.name.clone());
                    assert_eq!(before, None, "job {id} goes to {} although another one has it", self.name);
                    self.held.insert(id);
                }
            }
        }
        Ok(())
    }

    /// Sends a command whose reply it will not read.
    fn leave_in_the_middle(&mut self, random: &mut Random) {
        let own = self.held.first().copied().filter(|_| random.once_in(2));
        let line = match own {
            Some(id) => format!("delete {id}\r\n"),
            None => "reserve-with-timeout 0\r\n".to_owned(),
        };
        self.unsure.extend(own);
        // The server may be gone.
        let _ = self.client.send(line.as_bytes());
    }
}

#[test]
fn no_job_of_a_session_is_lost_or_given_to_another_worker() -> Result<(), Failure> {
    let rounds = number_from_environment("SESSION_ROUNDS").unwrap_or(ROUNDS);
    let count = number_from_environment("SESSION_WORKERS").unwrap_or(WORKERS);
    let mut random = Random::new(number_from_environment("SEED").unwrap_or(1));
    let mut server = start(&["-f", "0", "-s", "65536"]);
    let mut workers = Vec::new();
    for at in 0..count {
        let client = server.connect().map_err(|error| Failure::new(error.to_string()))?;
        let (held, unsure) = (BTreeSet::new(), BTreeSet::new());
        let mut worker = Worker { name: format!("w{at}"), client, held, unsure };
        worker.come(&server, &BTreeMap::new())?;
        workers.push(worker);
    }
    for round in 0..rounds {
        let mut taken: BTreeMap<u64, String> = BTreeMap::new();
        for worker in &workers {
            for &id in &worker.held {
                let before = taken.insert(id, worker.name.clone());
                assert_eq!(before, None, "job {id} is of two sessions, one is {}", worker.name);
            }
        }
        for _ in 0..STEPS {
            let at = random.below(count) as usize;
            if random.once_in(20) {
                // The link is cut. The old connection may still be there when the worker comes back.
                let held = held_by_session(&mut observer(&server)?)?;
                workers[at].come(&server, &held)?;
            } else {
                workers[at].step(&mut random, &mut taken)?;
            }
        }
        for worker in &mut workers {
            if random.once_in(2) {
                worker.leave_in_the_middle(&mut random);
            }
        }
        let signal = random.pick(&[Signal::KILL, Signal::KILL, Signal::TERM]);
        server.restart(signal).map_err(|error| Failure::new(format!("round {round}: {error}")))?;
        let held = held_by_session(&mut observer(&server)?)?;
        let nobody = observer(&server)?.ask(b"stats\r\n")?;
        assert!(String::from_utf8_lossy(&nobody).contains("current-workers: 0"), "nobody has come back");
        for worker in &mut workers {
            worker.come(&server, &held)?;
        }
    }
    let alone = workers.remove(0);
    one_does_not_come_back(&server, alone)
}

/// The job of a worker that does not come back is another one's when the grace is over.
fn one_does_not_come_back(server: &Server, mut worker: Worker) -> Result<(), Failure> {
    worker.client.ask(b"use alone\r\n")?;
    worker.client.ask(b"put 0 0 600 4\r\nlast\r\n")?;
    worker.client.ask(b"watch alone\r\n")?;
    worker.client.ask(b"ignore default\r\n")?;
    let reply = worker.client.ask(b"reserve-with-timeout 0\r\n")?;
    let id = number(&reply, "RESERVED ").ok_or_else(|| worker.client.failure("it has reserved nothing"))?;
    let held = worker.held.len() + 1;
    worker.client.exchange(
        format!("session {} 1\r\n", worker.name).as_bytes(),
        format!("SESSION {held}\r\n").as_bytes(),
    )?;
    drop(worker.client);
    let mut other = observer(server)?;
    other.ask(b"watch alone\r\n")?;
    other.ask(b"ignore default\r\n")?;
    let reply = other.ask(b"reserve-with-timeout 30\r\n")?;
    assert_eq!(number(&reply, "RESERVED "), Some(id), "{}", reply.escape_ascii());
    Ok(())
}

fn observer(server: &Server) -> Result<Client, Failure> {
    server.connect().map_err(|error| Failure::new(error.to_string()))
}
