//! The commands of the clients of a server that will crash.
//!
//! Owns: the choice of the next command, and the expected reply. Each client has a separate tube, whose jobs
//! no other client touches, so that each reply is known. All clients share one more tube. Driven by `crashes`.

use std::collections::VecDeque;

use beanstalkd_protocol::parse;
use beanstalkd_queue::NewJob;
use beanstalkd_types::job::{JobId, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{Name, TagSet};

use crate::crashes::ServersOnDisk;
use crate::versions::Step;
use beanstalkd_model::{Answer, CompletedPut, Job, Server, State, words_of};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::Connection;
use beanstalkd_testkit::sockets::Pipe;
use beanstalkd_testkit::tags::TagChoice;

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
    /// This word and the ids of the jobs that were put. The reply acknowledges these steps.
    Ids(&'static str, Vec<usize>, Vec<Step>),
    /// Any job of the shared tube.
    SharedJob,
}

/// What a client has received, and the replies that it expects.
pub struct Dialogue {
    pub connection: Connection,
    /// Bytes that were received and not compared yet.
    pub received: Vec<u8>,
    pub expected: VecDeque<Expected>,
    pub is_closed: bool,
}

impl ServersOnDisk {
    pub fn connect(&mut self) {
        let capacity = self.random.pick(&[30, 100_000]);
        let pipe = Pipe::new(capacity, Random::new(self.random.next()));
        self.clients.push(Dialogue {
            connection: Connection::open(&mut self.server, pipe, self.now),
            received: Vec::new(),
            expected: VecDeque::new(),
            is_closed: false,
        });
        let at = self.clients.len() - 1;
        let tube = self.own_tube(at);
        let model = &mut self.versions.oracle.model;
        model.connect(at as u32);
        model.use_tube(at as u32, &tube);
        model.watch(at as u32, SHARED_TUBE);
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
        if self.clients[client].connection.pipe.borrow().ended {
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
        let (put, bytes) = self.new_job(tube, (priority, delay_s), (tags, None), filler);
        let now = self.now;
        let ((), steps) = self.versions.execute(|Server { model, .. }| {
            let own = model.use_temporarily(client as u32, tube);
            model.put_tagged(client as u32, put.new, put.body, put.tags, now);
            model.restore_used(client as u32, own);
        });
        self.ask_bytes(client, &bytes, Expected::Ids("INSERTED", vec![put.new.id.0 as usize], steps));
        if is_shared {
            self.use_tube(client, &own);
        }
    }

    /// A put that the server does not refuse, and its bytes. Its tag `tub` may name another tube than the used one.
    fn new_job(
        &mut self,
        tube: &str,
        (priority, delay_s): (u32, u32),
        (tags, tub): (TagSet<'static>, Option<&'static str>),
        filler: usize,
    ) -> (CompletedPut, Vec<u8>) {
        let at = self.versions.new_job(tube, tags, filler);
        let body = &self.versions.jobs[at].body;
        let line = format!("put {priority} {delay_s} {LONG_S} {}{}\r\n", body.len(), words_of(&tags, tub));
        let bytes = [line.as_bytes(), body, b"\r\n"].concat();
        let new = NewJob {
            id: JobId(at as u64),
            priority: Priority(priority),
            delay_s: delay_s.into(),
            ttr_s: LONG_S.into(),
        };
        (CompletedPut { new, body: body.as_slice().into(), tags: tags.into(), tube: tub }, bytes)
    }

    /// Completes a job that the client has reserved, with puts into its own tube and the shared one.
    fn complete(&mut self, client: usize, job: usize) {
        let own = self.own_tube(client);
        let id = self.versions.jobs[job].id.expect("it is known");
        let count = self.random.pick(&[0, 1, 1, 2, 3, 5]);
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
        let (mut news, mut bytes) = (Vec::new(), format!("complete {id} {count}\r\n").into_bytes());
        for (is_shared, tags) in puts {
            let tub = is_shared.then_some(SHARED_TUBE);
            let tube = if is_shared { SHARED_TUBE } else { &own };
            let delay_s = if !is_shared && self.random.once_in(4) { LONG_S } else { 0 };
            // Several fit into the smallest file of the log.
            let filler = match count {
                1 if self.random.once_in(8) => self.random.below(12_000),
                ..=2 => self.random.below(400),
                _ => self.random.below(100),
            };
            let priority = self.random.below(3) as u32;
            let (new, put) = self.new_job(tube, (priority, delay_s), (tags, tub), filler as usize);
            news.push(new);
            bytes.extend(put);
        }
        let now = self.now;
        let (ids, steps) = self.versions.execute(|oracle| {
            oracle.model.complete(client as u32, job as u64, &news, now).expect("no tube has a rule")
        });
        let ids: Vec<usize> = ids.into_iter().map(|id| id as usize).collect();
        self.versions.complete(job, &ids);
        self.ask_bytes(client, &bytes, Expected::Ids("COMPLETED", ids, steps));
    }

    /// The tags of a put into the client's own tube: none, or some with names that no other client has.
    fn tags(&mut self, client: usize) -> TagSet<'static> {
        let names = &NAMES[client];
        let choice = TagChoice {
            none: 2,
            keys: (2, names),
            cooldowns_s: &[Seconds::ZERO, Seconds::new(LONG_S, 0), Seconds::new(LONG_S, 500)],
            limited: (3, names),
            limits: &[1, 2],
            groups: (2, names),
            awaited: (3, names),
            expiries_s: (3, &[Seconds::new(LONG_S, 0)]),
            trace: 4,
        };
        choice.tags(&mut self.random)
    }

    /// The job of the tube that a put with this key names.
    fn first_with_key(&self, tube: &str, key: Name<'_>) -> Key {
        let model = &self.versions.oracle.model;
        let Some(tube) = model.find(tube) else { return Key::Free };
        let has_key = |job: &&Job| job.tube == tube && job.tags.idempotency.is_some_and(|tag| tag.key == key);
        let jobs = model.jobs.iter().filter(has_key).map(|job| job.id);
        let cooldowns =
            model.cooldowns.iter().filter(|cooldown| cooldown.tube == tube && cooldown.key == key);
        let first: Vec<u64> = jobs.chain(cooldowns.map(|cooldown| cooldown.id)).collect();
        match first[..] {
            [] => Key::Free,
            [at] if self.is_known(at) => Key::Used(at as usize),
            // After a loss of power there may be several: a delete was not synced.
            _ => Key::Unclear,
        }
    }

    /// Whether the id of the job is known, and each command on it is answered.
    fn is_known(&self, at: u64) -> bool {
        let job = &self.versions.jobs[at as usize];
        job.id.is_some() && !job.is_busy
    }

    /// Puts a job with the key of another one, which stores nothing.
    fn put_again(&mut self, client: usize, first: usize, priority: u32, tags: &TagSet<'_>) {
        let id = self.versions.jobs[first].id.expect("its put was answered");
        let line = format!("put {priority} 0 {LONG_S} 5{}\r\nagain\r\n", words_of(tags, None));
        let now = self.now;
        let (duplicate, steps) =
            self.versions.execute(|oracle| oracle.model.duplicate(client as u32, tags, priority, now));
        let reply = format!("{}\r\n", duplicate.expect("its key is used").reply(id));
        self.ask(client, &line, Expected::Reply(reply.into(), steps));
    }

    /// Sends a command on one job that no other client may touch now.
    fn change(&mut self, client: usize) {
        let (index, model) = (client as u32, &self.versions.oracle.model);
        let own = model.client(index).using;
        let is_free =
            |job: &&Job| (job.tube == own || model.has_reserved(index, job.id)) && self.is_known(job.id);
        let free: Vec<u64> = model.jobs.iter().filter(is_free).map(|job| job.id).collect();
        if free.is_empty() {
            return self.put(client);
        }
        let job = free[self.random.below(free.len() as u64) as usize];
        let state = model.job(job).expect("it is there").state;
        let holds = matches!(state, State::Reserved { .. });
        let asked = self.random.below(3) as u32;
        let (word, rest) = match self.random.below(8) {
            4 | 5 if holds => return self.complete(client, job as usize),
            0 => ("delete", String::new()),
            1 => ("delete-batch", String::new()),
            6 if !holds => ("reprioritize", format!(" {asked}")),
            2 if holds => ("touch", String::new()),
            3 if holds => {
                ("release", format!(" {asked} {}", if self.random.once_in(2) { LONG_S } else { 0 }))
            }
            _ if holds => ("bury", format!(" {asked}")),
            2 | 3 if state != State::Ready => ("kick-job", String::new()),
            _ => return self.reserve_job(client, job as usize),
        };
        self.command(client, Some(job as usize), |id| format!("{word} {id}{rest}"));
    }

    /// Sends a command, whose reply is that of the model.
    fn command(&mut self, client: usize, named: Option<usize>, line: impl Fn(u64) -> String) {
        let in_model = line(named.unwrap_or_default() as u64);
        let (now, command) = (self.now, parse(in_model.as_bytes()).expect("a command"));
        let (answer, steps) = self.versions.execute(|oracle| oracle.command(client as u32, command, now));
        let Answer::Reply(reply) = answer else { panic!("{in_model} is answered at once") };
        let id = named.and_then(|job| self.versions.jobs[job].id).unwrap_or_default();
        self.ask(client, &format!("{}\r\n", line(id)), Expected::Reply(reply, steps));
    }

    /// Reserves a job by its id. The binlog need not have a record of this, but of the next change of the job, unless
    /// this is the first reservation of a job that expires.
    fn reserve_job(&mut self, client: usize, job: usize) {
        let (index, now) = (client as u32, self.now);
        let facts = self.versions.oracle.model.facts(job as u64);
        let (is_reserved, mut steps) =
            self.versions.execute(|oracle| oracle.model.reserve_job(index, job as u64, now));
        let job = &mut self.versions.jobs[job];
        let id = job.id.expect("it is known");
        let mut reply = b"NOT_FOUND\r\n".to_vec();
        if is_reserved {
            job.is_busy = false;
            reply = [format!("RESERVED {id} {}\r\n", job.body.len()).as_bytes(), &job.body, b"\r\n"].concat();
        }
        steps.retain(|_| facts.as_ref().is_some_and(|facts| facts.may_expire));
        self.ask(client, &format!("reserve-job {id}\r\n"), Expected::Reply(reply, steps));
    }

    /// Kicks some of the buried jobs in the client's own tube, or all delayed jobs.
    fn kick(&mut self, client: usize) {
        if self.is_own_busy(client) {
            return;
        }
        let model = &self.versions.oracle.model;
        let has_buried = model.first_buried(model.client(client as u32).using).is_some();
        let bound = if has_buried { 1 + self.random.below(6) } else { 1_000_000 };
        self.command(client, None, |_| format!("kick {bound}"));
    }

    /// Whether a command on a job in the client's own tube is not answered.
    fn is_own_busy(&self, client: usize) -> bool {
        let own = self.own_tube(client);
        self.versions.jobs.iter().any(|job| job.tube == own && job.is_busy)
    }

    /// Deletes all jobs in the client's own tube, and forgets the keys of those that were deleted before.
    fn flush(&mut self, client: usize) {
        if self.is_own_busy(client) {
            return;
        }
        let own = self.own_tube(client);
        self.command(client, None, |_| format!("flush-tube {own}"));
    }

    fn ask(&mut self, client: usize, line: &str, expected: Expected) {
        self.ask_bytes(client, line.as_bytes(), expected);
    }

    fn ask_bytes(&mut self, client: usize, bytes: &[u8], expected: Expected) {
        self.say(|| format!("{client} sends {}", bytes[..bytes.len().min(60)].escape_ascii()));
        self.clients[client].connection.under_way.extend(bytes);
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
