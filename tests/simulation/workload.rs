//! The commands of the clients of a server that will crash.
//!
//! Owns: the choice of the next command, and the expected reply. Each client has a separate tube, whose jobs
//! no other client touches, so that each reply is known. All clients share one more tube. Driven by `crashes`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;

use beanstalkd_queue::ClientId;
use beanstalkd_types::job::JobState;
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{After, Concurrency, Idempotency, Name, TagSet, Trace};

use crate::crashes::Lives;
use crate::durable_model::{Facts, Job, Step};
use beanstalkd_model::words_of;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::sockets::{FakeStream, Pipe};

/// The tube from which all clients reserve.
pub const SHARED_TUBE: &str = "shared";
/// Delays and times to run, in seconds, are longer than all servers run together.
const LONG_S: u32 = 1_000_000;

/// The keys and groups of each client.
const NAMES: [[&str; 2]; 4] = [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]];

/// The next reply that a client expects.
#[derive(Debug)]
pub enum Expected {
    /// These bytes, which acknowledge these steps.
    Reply(Vec<u8>, Vec<Step>),
    Inserted(Step),
    /// The ids of these jobs, which a `complete` has put; the same `complete` has done the other steps.
    Completed(Vec<Step>, Vec<Step>),
    /// Any job of the shared tube.
    SharedJob,
}

pub struct Client {
    pub id: ClientId,
    pub pipe: Rc<RefCell<Pipe>>,
    /// Bytes that were sent and have not arrived yet.
    pub under_way: VecDeque<u8>,
    /// Bytes that were received and not compared yet.
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

    /// Sends a random command of a client, on a job in its own tube or in the shared tube.
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
        let mut tags = if is_shared { TagSet::default() } else { self.tags(client) };
        if let Some(key) = tags.idempotency.map(|tag| tag.key) {
            match self.first_with_key(&own, key) {
                Key::Free => {}
                Key::Unclear => tags.idempotency = None,
                Key::Used(first) => return self.put_again(client, first, priority, &tags),
            }
        }
        let tube = if is_shared { SHARED_TUBE } else { &own };
        if is_shared {
            self.use_tube(client, SHARED_TUBE);
        }
        let (step, bytes) = self.new_job(tube, (priority, delay_s), tags, filler, "");
        self.ask_bytes(client, &bytes, Expected::Inserted(step));
        if is_shared {
            self.use_tube(client, &own);
        }
    }

    /// A job that the server does not refuse, and the bytes of its put, with further words after its tags.
    fn new_job(
        &mut self,
        tube: &str,
        (priority, delay_s): (u32, u32),
        tags: TagSet<'static>,
        filler: usize,
        further: &str,
    ) -> (Step, Vec<u8>) {
        let is_held = tags.after.is_some_and(|after| {
            self.durable_model.has_members(after.group) || tags.group == Some(after.group)
        });
        let state = if delay_s > 0 || is_held { JobState::Delayed } else { JobState::Ready };
        let (releases, buries, kicks, was_reserved) = (0, 0, 0, false);
        let facts = Facts {
            state,
            priority,
            delay_s: delay_s.into(),
            releases,
            buries,
            kicks,
            is_held,
            was_reserved,
        };
        let step = self.durable_model.put(tube.to_owned(), facts, tags, filler);
        let body = self.durable_model.jobs[step.0].body.clone();
        let words = words_of(&tags);
        let mut bytes =
            format!("put {priority} {delay_s} {LONG_S} {}{words}{further}\r\n", body.len()).into_bytes();
        bytes.extend(body);
        bytes.extend(b"\r\n");
        (step, bytes)
    }

    /// Completes a job that the client has reserved, with puts into its own tube and the shared one.
    fn complete(&mut self, client: usize, job: usize, id: u64) {
        let own = self.own_tube(client);
        let count = self.random.pick(&[0, 1, 1, 2, 3, 5]);
        let ended = &self.durable_model.jobs[job];
        let is_own = ended.tube == own;
        let (key, group) = (ended.tags.idempotency.filter(|_| is_own).map(|tag| tag.key), ended.tags.group);
        let mut puts: Vec<(bool, TagSet<'static>)> = Vec::new();
        for _ in 0..count {
            let is_shared = self.random.once_in(3);
            let mut tags = if is_shared { TagSet::default() } else { self.tags(client) };
            let has_key = |other: &TagSet<'_>| {
                tags.idempotency.map(|tag| tag.key) == other.idempotency.map(|tag| tag.key)
            };
            let is_taken = puts.iter().any(|(_, other)| has_key(other))
                || tags.idempotency.is_some_and(|tag| match self.first_with_key(&own, tag.key) {
                    Key::Free => false,
                    Key::Used(first) => first != job,
                    Key::Unclear => true,
                });
            if is_taken {
                tags.idempotency = None;
            }
            puts.push((is_shared, tags));
        }
        // The job ends first, but its group does not end if a put joins it, and its key does not cool if a put has it.
        let is_joined = group.is_some() && puts.iter().any(|(_, tags)| tags.group == group);
        let takes_key =
            key.is_some() && puts.iter().any(|(_, tags)| tags.idempotency.map(|tag| tag.key) == key);
        let mut steps = if is_joined { vec![] } else { self.durable_model.end(job, takes_key) };
        let (mut news, mut bytes) = (Vec::new(), format!("complete {id} {count}\r\n").into_bytes());
        for (is_shared, tags) in puts {
            let (tube, further) = if is_shared { (SHARED_TUBE, " tub:shared") } else { (&*own, "") };
            let delay_s = if !is_shared && self.random.once_in(4) { LONG_S } else { 0 };
            // Several fit into the smallest file of the log.
            let filler = match count {
                1 if self.random.once_in(8) => self.random.below(12_000),
                ..=2 => self.random.below(400),
                _ => self.random.below(100),
            };
            let priority = self.random.below(3) as u32;
            let (step, put) = self.new_job(tube, (priority, delay_s), tags, filler as usize, further);
            news.push(step);
            bytes.extend(put);
        }
        if is_joined {
            steps = self.durable_model.end(job, takes_key);
        }
        self.durable_model.complete(job, &news);
        self.durable_model.jobs[job].holder = None;
        self.ask_bytes(client, &bytes, Expected::Completed(news, steps));
    }

    /// The tags of a put into the client's own tube: none, or some with names that no other client has.
    fn tags(&mut self, client: usize) -> TagSet<'static> {
        if self.random.once_in(2) {
            return TagSet::default();
        }
        let names = NAMES[client];
        let mut name = |one_in| self.random.once_in(one_in).then(|| Name::from(self.random.pick(&names)));
        let (key, limited, group, after) = (name(2), name(3), name(2), name(3));
        TagSet {
            idempotency: key.map(|key| Idempotency {
                key,
                cooldown_s: self.random.pick(&[Seconds::ZERO, LONG_S.into(), Seconds::new(LONG_S, 500)]),
            }),
            concurrency: limited.map(|key| Concurrency { key, limit: self.random.pick(&[1, 2]) }),
            group,
            after: after.map(|group| After { group, is_free: false }),
            expires_after_s: self.random.once_in(3).then_some(LONG_S.into()),
            trace: self.random.once_in(4).then(|| Trace::check(beanstalkd_testkit::TRACE)).flatten(),
            ..TagSet::default()
        }
    }

    /// The job of the tube that a put with this key names.
    fn first_with_key(&self, tube: &str, key: Name<'_>) -> Key {
        let has_key = |job: &Job| job.tube == tube && job.tags.idempotency.is_some_and(|tag| tag.key == key);
        let jobs = self.durable_model.jobs.iter().enumerate();
        let counts = |job: &Job| job.newest().is_some() || job.is_cooling();
        let first: Vec<_> = jobs.filter(|(_, job)| has_key(job) && counts(job)).collect();
        match first[..] {
            [] => Key::Free,
            [(at, job)] if job.id.is_some() && !job.is_busy => Key::Used(at),
            // After a loss of power there may be several: a delete was not synced.
            _ => Key::Unclear,
        }
    }

    /// Puts a job with the key of another one, which stores nothing.
    fn put_again(&mut self, client: usize, first: usize, priority: u32, tags: &TagSet<'_>) {
        let job = &mut self.durable_model.jobs[first];
        let id = job.id.expect("its put was answered");
        let line = format!("put {priority} 0 {LONG_S} 5{}\r\nagain\r\n", words_of(tags));
        let Some(facts) = job.newest().cloned() else {
            return self.ask_reply(client, &line, format!("INSERTED {id} DELETED\r\n").into());
        };
        let state = match facts.state {
            _ if job.holder.is_some() => "RESERVED",
            JobState::Delayed => "DELAYED",
            JobState::Buried => "BURIED",
            JobState::Ready | JobState::Reserved => "READY",
        };
        if priority >= facts.priority {
            return self.ask_reply(client, &line, format!("INSERTED {id} {state}\r\n").into());
        }
        job.is_upgraded |= job.holder.is_some();
        let step = self.durable_model.change(first, Some(Facts { priority, ..facts }));
        let reply = format!("INSERTED {id} {state} {priority}\r\n").into();
        self.ask(client, &line, Expected::Reply(reply, vec![step]));
    }

    /// Whether the tags of a job in the client's own tube allow that it is reserved.
    fn may_be_reserved(&self, job: usize) -> bool {
        let jobs = &self.durable_model.jobs;
        let is_held = jobs[job].newest().is_some_and(|facts| facts.is_held);
        let is_used_up = jobs[job].tags.concurrency.is_some_and(|tag| {
            let has_key = |job: &&Job| job.tags.concurrency.is_some_and(|other| other.key == tag.key);
            let taken = jobs.iter().filter(has_key).filter(|job| job.holder.is_some()).count();
            taken >= tag.limit as usize
        });
        !is_held && !is_used_up
    }

    /// Sends a command on one job that no other client may touch now.
    fn change(&mut self, client: usize) {
        let own = self.own_tube(client);
        let jobs = self.durable_model.jobs.iter().enumerate();
        let free: Vec<(usize, u64, Facts)> = jobs
            .filter(|(_, job)| !job.is_busy && (job.holder == Some(client) || job.tube == own))
            .filter_map(|(at, job)| Some((at, job.id?, job.newest()?.clone())))
            .collect();
        if free.is_empty() {
            return self.put(client);
        }
        let (job, id, mut facts) = free[self.random.below(free.len() as u64) as usize].clone();
        let holds = self.durable_model.jobs[job].holder == Some(client);
        let asked = self.random.below(3) as u32;
        let known = &self.durable_model.jobs[job];
        let priority = if known.is_upgraded { asked.min(facts.priority) } else { asked };
        let (command, reply, next) = match self.random.below(8) {
            4 | 5 if holds => return self.complete(client, job, id),
            0 => (format!("delete {id}\r\n"), "DELETED\r\n", None),
            1 => (format!("delete-batch {id} 0\r\n"), "DELETED_BATCH 1 1\r\n", None),
            6 if !holds => {
                facts.priority = asked;
                (format!("reprioritize {id} {asked}\r\n"), "REPRIORITIZED\r\n", Some(facts))
            }
            2 if holds => {
                return self.ask_reply(client, &format!("touch {id}\r\n"), b"TOUCHED\r\n".to_vec());
            }
            3 if holds => {
                facts.delay_s = if self.random.once_in(2) { LONG_S.into() } else { 0.into() };
                facts.state = if facts.delay_s > 0 { JobState::Delayed } else { JobState::Ready };
                facts.priority = priority;
                facts.releases += 1;
                (format!("release {id} {asked} {}\r\n", facts.delay_s), "RELEASED\r\n", Some(facts))
            }
            _ if holds => {
                (facts.state, facts.priority) = (JobState::Buried, priority);
                facts.buries += 1;
                (format!("bury {id} {asked}\r\n"), "BURIED\r\n", Some(facts))
            }
            2 | 3 if facts.is_held => {
                return self.ask_reply(client, &format!("kick-job {id}\r\n"), b"NOT_FOUND\r\n".to_vec());
            }
            2 | 3 if facts.state != JobState::Ready => {
                facts.state = JobState::Ready;
                facts.kicks += 1;
                (format!("kick-job {id}\r\n"), "KICKED\r\n", Some(facts))
            }
            _ => return self.reserve_job(client, job, id, facts),
        };
        let steps = match next {
            Some(_) => vec![self.durable_model.change(job, next)],
            None => self.durable_model.end(job, false),
        };
        self.durable_model.jobs[job].holder = None;
        self.ask(client, &command, Expected::Reply(reply.into(), steps));
    }

    /// Reserves a job by its id. The binlog need not have a record of this, but of the next change of the job, unless
    /// this is the first reservation of a job that expires.
    fn reserve_job(&mut self, client: usize, job: usize, id: u64, facts: Facts) {
        if !self.may_be_reserved(job) {
            let line = format!("reserve-job {id}\r\n");
            return self.ask_reply(client, &line, b"NOT_FOUND\r\n".to_vec());
        }
        let body = &self.durable_model.jobs[job].body;
        let mut reply = format!("RESERVED {id} {}\r\n", body.len()).into_bytes();
        reply.extend(body);
        reply.extend(b"\r\n");
        let known = &mut self.durable_model.jobs[job];
        (known.holder, known.is_upgraded) = (Some(client), false);
        let expires = known.tags.expires_after_s.is_some();
        let is_kept = expires && !facts.was_reserved;
        let step = self
            .durable_model
            .change(job, Some(Facts { state: JobState::Ready, was_reserved: expires, ..facts }));
        self.durable_model.jobs[job].is_busy = false;
        let steps = if is_kept { vec![step] } else { vec![] };
        self.ask(client, &format!("reserve-job {id}\r\n"), Expected::Reply(reply, steps));
    }

    /// Kicks some of the buried jobs in the client's own tube, or all delayed jobs.
    fn kick(&mut self, client: usize) {
        let own = self.own_tube(client);
        let jobs = || self.durable_model.jobs.iter().enumerate().filter(|(_, job)| job.tube == own);
        if jobs().any(|(_, job)| job.is_busy) {
            return;
        }
        let in_state = |state| {
            let is_in =
                move |job: &Job| job.newest().is_some_and(|facts| facts.state == state && !facts.is_held);
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
            let mut facts = self.durable_model.jobs[job].newest().expect("the job exists").clone();
            facts.state = JobState::Ready;
            facts.kicks += 1;
            steps.push(self.durable_model.change(job, Some(facts)));
        }
        let reply = format!("KICKED {}\r\n", kicked.len()).into();
        self.ask(client, &format!("kick {bound}\r\n"), Expected::Reply(reply, steps));
    }

    /// Deletes all jobs in the client's own tube, and forgets the keys of those that were deleted before.
    fn flush(&mut self, client: usize) {
        let own = self.own_tube(client);
        let jobs: Vec<usize> = (0..self.durable_model.jobs.len())
            .filter(|&at| self.durable_model.jobs[at].tube == own)
            .collect();
        if jobs.iter().any(|&at| self.durable_model.jobs[at].is_busy) {
            return;
        }
        let is_there = |job: &Job| job.newest().is_some();
        let count = jobs.iter().filter(|&&at| is_there(&self.durable_model.jobs[at])).count();
        let mut steps = Vec::new();
        for at in jobs {
            let job = &self.durable_model.jobs[at];
            if is_there(job) || job.is_cooling() {
                steps.extend(self.durable_model.end(at, true));
                self.durable_model.jobs[at].holder = None;
            }
        }
        let reply = format!("FLUSHED {count}\r\n").into();
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

    /// Sends a command that needs no record in the binlog.
    fn ask_reply(&mut self, client: usize, command: &str, reply: Vec<u8>) {
        self.ask(client, command, Expected::Reply(reply, vec![]));
    }

    fn use_tube(&mut self, client: usize, tube: &str) {
        self.ask_reply(client, &format!("use {tube}\r\n"), format!("USING {tube}\r\n").into());
    }
}

/// The job that a key of a put names.
enum Key {
    Free,
    Used(usize),
    /// The test cannot tell yet.
    Unclear,
}
