//! What the clients of a server that will be ended ask for.
//!
//! Owns: the choice of the next command, and what it is answered. Each client has a tube of its own, whose jobs
//! no other touches, so that it knows the answers without a model; the jobs of one more tube go to whoever
//! reserves first. Driven by `crashes`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;

use beanstalkd::job::JobState;
use beanstalkd::queue::ClientId;

use crate::crashes::Lives;
use crate::ledger::{Facts, Job, Step};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::sockets::{FakeStream, Pipe};

/// The tube whose jobs go to whoever reserves first.
pub const SHARED_TUBE: &str = "shared";
/// Delays and times to run, in seconds, are longer than all lives together.
const LONG_S: u32 = 1_000_000;

/// What a client is answered next.
#[derive(Debug)]
pub enum Expected {
    /// These bytes; they acknowledge these steps.
    Reply(Vec<u8>, Vec<Step>),
    Inserted(Step),
    /// Any job of the shared tube.
    SharedJob,
}

pub struct Client {
    pub id: ClientId,
    pub pipe: Rc<RefCell<Pipe>>,
    /// Sent, but not arrived yet.
    pub under_way: VecDeque<u8>,
    /// Not taken note of yet.
    pub received: Vec<u8>,
    pub expected: VecDeque<Expected>,
    pub is_closed: bool,
}

impl Lives {
    pub fn connect(&mut self) {
        let capacity = self.random.pick(&[30, 100_000]);
        let pipe = Pipe::new(capacity, Random::new(self.random.next()));
        let open = |id| Ok::<_, Infallible>(FakeStream { id, pipe: Rc::clone(&pipe) });
        let Ok(id) = self.server.accept(open, self.now);
        self.clients.push(Client {
            id,
            pipe,
            under_way: VecDeque::new(),
            received: Vec::new(),
            expected: VecDeque::new(),
            is_closed: false,
        });
        let at = self.clients.len() - 1;
        let tube = self.own_tube(at);
        self.use_tube(at, &tube);
        self.ask_reply(at, &format!("watch {SHARED_TUBE}\r\n"), b"WATCHING 2\r\n".to_vec());
        self.ask_reply(at, "ignore default\r\n", b"WATCHING 1\r\n".to_vec());
    }

    /// The tube that no other client touches.
    fn own_tube(&self, client: usize) -> String {
        format!("of-{client}")
    }

    /// The client sends a command, on a job of its own or for one of the shared tube.
    pub fn request(&mut self, client: usize) {
        if self.clients[client].pipe.borrow().ended {
            return;
        }
        match self.random.below(16) {
            0..=4 => self.put(client),
            5 => {
                let waits = |expected: &Expected| matches!(expected, Expected::SharedJob);
                if !self.clients[client].expected.iter().any(waits) {
                    let wait = self.random.pick(&["reserve\r\n", "reserve-with-timeout 1000\r\n"]);
                    self.ask(client, wait, Expected::SharedJob);
                }
            }
            6 => self.kick(client),
            7 if self.random.once_in(4) => self.flush(client),
            _ => self.change(client),
        }
    }

    fn put(&mut self, client: usize) {
        let (own, is_shared) = (self.own_tube(client), self.random.once_in(3));
        let priority = self.random.below(3) as u32;
        let delay_s = if !is_shared && self.random.once_in(4) { LONG_S } else { 0 };
        let filler = match self.random.below(24) {
            0 => self.random.below(12_000),
            _ => self.random.below(400),
        } as usize;
        let state = if delay_s > 0 { JobState::Delayed } else { JobState::Ready };
        let facts = Facts { state, priority, delay_s, releases: 0, buries: 0, kicks: 0 };
        let tube = if is_shared { SHARED_TUBE } else { &own };
        if is_shared {
            self.use_tube(client, SHARED_TUBE);
        }
        let step = self.ledger.put(tube.to_owned(), facts, filler);
        let body = self.ledger.jobs[step.0].body.clone();
        let mut bytes = format!("put {priority} {delay_s} {LONG_S} {}\r\n", body.len()).into_bytes();
        bytes.extend(body);
        bytes.extend(b"\r\n");
        self.ask_bytes(client, &bytes, Expected::Inserted(step));
        if is_shared {
            self.use_tube(client, &own);
        }
    }

    /// A command on one job that nobody else may touch now.
    fn change(&mut self, client: usize) {
        let own = self.own_tube(client);
        let jobs = self.ledger.jobs.iter().enumerate();
        let free: Vec<(usize, u64, Facts)> = jobs
            .filter(|(_, job)| !job.is_busy && (job.holder == Some(client) || job.tube == own))
            .filter_map(|(at, job)| Some((at, job.id?, job.newest()?.clone())))
            .collect();
        if free.is_empty() {
            return self.put(client);
        }
        let (job, id, mut facts) = free[self.random.below(free.len() as u64) as usize].clone();
        let holds = self.ledger.jobs[job].holder == Some(client);
        let priority = self.random.below(3) as u32;
        let (command, reply, next) = match self.random.below(7) {
            0 => (format!("delete {id}\r\n"), "DELETED\r\n", None),
            1 => (format!("delete-batch {id} 0\r\n"), "DELETED_BATCH 1 1\r\n", None),
            6 if !holds => {
                facts.priority = priority;
                (format!("reprioritize {id} {priority}\r\n"), "REPRIORITIZED\r\n", Some(facts))
            }
            2 if holds => {
                return self.ask_reply(client, &format!("touch {id}\r\n"), b"TOUCHED\r\n".to_vec());
            }
            3 if holds => {
                facts.delay_s = if self.random.once_in(2) { LONG_S } else { 0 };
                facts.state = if facts.delay_s > 0 { JobState::Delayed } else { JobState::Ready };
                facts.priority = priority;
                facts.releases += 1;
                (format!("release {id} {priority} {}\r\n", facts.delay_s), "RELEASED\r\n", Some(facts))
            }
            _ if holds => {
                (facts.state, facts.priority) = (JobState::Buried, priority);
                facts.buries += 1;
                (format!("bury {id} {priority}\r\n"), "BURIED\r\n", Some(facts))
            }
            2 | 3 if facts.state != JobState::Ready => {
                facts.state = JobState::Ready;
                facts.kicks += 1;
                (format!("kick-job {id}\r\n"), "KICKED\r\n", Some(facts))
            }
            _ => return self.reserve_job(client, job, id, facts),
        };
        let step = self.ledger.change(job, next);
        self.ledger.jobs[job].holder = None;
        self.ask(client, &command, Expected::Reply(reply.into(), vec![step]));
    }

    /// That a job is reserved need not be in the log; the next change of it is.
    fn reserve_job(&mut self, client: usize, job: usize, id: u64, facts: Facts) {
        let body = &self.ledger.jobs[job].body;
        let mut reply = format!("RESERVED {id} {}\r\n", body.len()).into_bytes();
        reply.extend(body);
        reply.extend(b"\r\n");
        self.ledger.change(job, Some(Facts { state: JobState::Ready, ..facts }));
        self.ledger.jobs[job].is_busy = false;
        self.ledger.jobs[job].holder = Some(client);
        self.ask_reply(client, &format!("reserve-job {id}\r\n"), reply);
    }

    /// Kicks some of the buried jobs in the client's own tube, or all of the delayed.
    fn kick(&mut self, client: usize) {
        let own = self.own_tube(client);
        let jobs = || self.ledger.jobs.iter().enumerate().filter(|(_, job)| job.tube == own);
        if jobs().any(|(_, job)| job.is_busy) {
            return;
        }
        let in_state = |state| {
            let is_in = move |job: &Job| job.newest().is_some_and(|facts| facts.state == state);
            jobs().filter(move |(_, job)| is_in(job)).map(|(at, job)| (job.buried, at)).collect::<Vec<_>>()
        };
        let mut kicked = in_state(JobState::Buried);
        kicked.sort_unstable();
        let bound = if kicked.is_empty() { 1_000_000 } else { 1 + self.random.below(6) };
        if kicked.is_empty() {
            kicked = in_state(JobState::Delayed);
        }
        kicked.truncate(bound as usize);
        let mut steps = Vec::new();
        for &(_, job) in &kicked {
            let mut facts = self.ledger.jobs[job].newest().expect("it is there").clone();
            facts.state = JobState::Ready;
            facts.kicks += 1;
            steps.push(self.ledger.change(job, Some(facts)));
        }
        let reply = format!("KICKED {}\r\n", kicked.len()).into();
        self.ask(client, &format!("kick {bound}\r\n"), Expected::Reply(reply, steps));
    }

    /// Deletes all jobs in the client's own tube.
    fn flush(&mut self, client: usize) {
        let own = self.own_tube(client);
        let jobs: Vec<usize> =
            (0..self.ledger.jobs.len()).filter(|&at| self.ledger.jobs[at].tube == own).collect();
        if jobs.iter().any(|&at| self.ledger.jobs[at].is_busy) {
            return;
        }
        let mut steps = Vec::new();
        for at in jobs {
            if self.ledger.jobs[at].newest().is_some() {
                steps.push(self.ledger.change(at, None));
                self.ledger.jobs[at].holder = None;
            }
        }
        let reply = format!("FLUSHED {}\r\n", steps.len()).into();
        self.ask(client, &format!("flush-tube {own}\r\n"), Expected::Reply(reply, steps));
    }

    fn ask(&mut self, client: usize, line: &str, expected: Expected) {
        self.ask_bytes(client, line.as_bytes(), expected);
    }

    fn ask_bytes(&mut self, client: usize, bytes: &[u8], expected: Expected) {
        self.say(|| format!("{client} sends {}", bytes[..bytes.len().min(60)].escape_ascii()));
        self.clients[client].under_way.extend(bytes);
        self.clients[client].expected.push_back(expected);
    }

    /// Asks for something that leaves nothing in the log.
    fn ask_reply(&mut self, client: usize, command: &str, reply: Vec<u8>) {
        self.ask(client, command, Expected::Reply(reply, vec![]));
    }

    fn use_tube(&mut self, client: usize, tube: &str) {
        self.ask_reply(client, &format!("use {tube}\r\n"), format!("USING {tube}\r\n").into());
    }
}
