//! A client with two tubes that no other client uses. The common model knows each of its replies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use beanstalkd_model::{Answer, Server as Model, words_of};
use beanstalkd_protocol::parse;
use beanstalkd_queue::{NewJob, PoisonLimits};
use beanstalkd_testkit::client::{Client, Failure, id_of, jobs_of_list};
use beanstalkd_testkit::history::body;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::tags::TagChoice;
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{JobId, Priority};
use beanstalkd_types::seconds::Seconds;

use crate::harness::Harness;
use crate::session::first_line;
use crate::tagged::LONG_S;

/// The time of the first command in the model. Each later one is a nanosecond later: no deadline passes, but the order
/// of reservations and delays is that of the commands.
const BEGIN: Timestamp = Timestamp(1_000_000_000);
/// The client, in the model.
const CLIENT: u32 = 0;

/// The client and its model.
pub struct OwnTube<'a> {
    harness: &'a Harness<'a>,
    client: Client,
    model: Model,
    now: Timestamp,
    tubes: [String; 2],
    /// Keys and groups that no other client has.
    names: [&'static str; 2],
}

impl OwnTube<'_> {
    /// Runs a random script, and flushes the tubes.
    pub fn run(harness: &Harness<'_>, random: &mut Random, pause: Duration) -> Result<(), Failure> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        harness.connections.fetch_add(1, Ordering::Relaxed);
        let mut model = Model::new(PoisonLimits::default(), 1 << 20, BEGIN);
        model.model.connect(CLIENT);
        let mut own = OwnTube {
            harness,
            client: harness.address.connect()?,
            model,
            now: BEGIN,
            tubes: ["a", "b"].map(|end| format!("alone-{number}-{end}")),
            names: ["a", "b"].map(|end| &*format!("{number}-{end}").leak()),
        };
        let tube = own.tubes[0].clone();
        for line in [format!("use {tube}"), format!("watch {tube}"), "ignore default".to_owned()] {
            own.ask(&line)?;
        }
        for _ in 0..10 + random.below(30) {
            if harness.is_stopping() {
                break;
            }
            own.step(random)?;
            std::thread::sleep(pause / 4);
        }
        for tube in own.tubes.clone() {
            own.ask(&format!("flush-tube {tube}"))?;
        }
        own.client.send(b"quit\r\n")?;
        own.client.expect_closed()
    }

    fn step(&mut self, random: &mut Random) -> Result<(), Failure> {
        let [tube, other] = self.tubes.clone();
        // One id in eight is of no job.
        let mut ids: Vec<u64> = self.ids();
        ids.push(u64::MAX);
        let (id, priority) = (random.pick(&ids), random.below(4));
        let state = random.pick(&["ready", "reserved", "delayed", "buried"]);
        match random.below(24) {
            0..8 => self.put(random),
            8 | 9 => self.ask(&format!("reserve-batch {}", 1 + random.below(4))),
            10 => self.ask("reserve-with-timeout 0"),
            11 => self.ask(&format!("reserve-job {id}")),
            12 => self.ask("touch-all"),
            13 => self.ask(&format!("delete-batch {id} {}", random.pick(&ids))),
            14 => {
                self.ask(&format!("release {id} {priority} {}", random.pick(&["0", "0 uncounted", "100000"])))
            }
            15 => self.ask(&format!("bury {id} {priority}")),
            16 => self.ask(&format!("kick {}", random.below(4))),
            17 => self.ask(&format!("reprioritize {id} {priority}")),
            18 => self.ask(&format!("move {id} {}", random.pick(&[&tube, &other]))),
            19 => self.ask(&format!("flush-buried {tube}")),
            20 => self.ask(&format!("list-jobs {tube} {state}")),
            21 => self.ask(&format!("peek-{state}")),
            22 => self.ask(&format!("stats-group {}", random.pick(&self.names))),
            _ => self.ask(&format!("wait-job {id} 0")),
        }
    }

    fn ids(&self) -> Vec<u64> {
        self.model.model.jobs.iter().map(|job| job.id).collect()
    }

    /// Sends a line, and requires the reply of the model.
    fn ask(&mut self, line: &str) -> Result<(), Failure> {
        let before = self.ids();
        let command = parse(line.as_bytes()).expect("the script has only valid lines");
        self.now.0 += 1;
        let answer = self.model.command(CLIENT, command, self.now);
        self.model.model.forget_the_past();
        let Answer::Reply(expected) = answer else { unreachable!("no line is a put, waits, or ends") };
        let after = self.ids();
        let gone: Vec<u64> = before.into_iter().filter(|id| !after.contains(id)).collect();
        gone.iter().for_each(|&id| self.harness.history().deleting(id));
        let mut reply = self.client.ask(format!("{line}\r\n").as_bytes())?;
        // The jobs of a batch follow.
        while reply.len() < expected.len()
            && reply.starts_with(b"RESERVED_BATCH ")
            && expected.starts_with(&reply)
        {
            reply.extend(self.client.read_reply()?);
        }
        self.harness.replies.fetch_add(1, Ordering::Relaxed);
        gone.iter().for_each(|&id| self.harness.history().deleted(id));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_right = if line.starts_with("list-jobs ") && reply.starts_with(b"OK ") {
            // The ages differ.
            let (reply, expected) = (text(&reply), text(&expected));
            jobs_of_list(&reply).eq(jobs_of_list(&expected))
        } else {
            reply == expected
        };
        self.require(is_right, line, &expected, &reply)
    }

    fn put(&mut self, random: &mut Random) -> Result<(), Failure> {
        let names = &self.names;
        let choice = TagChoice {
            keys: (3, names),
            cooldowns_s: &[Seconds::new(LONG_S, 0), Seconds::ZERO],
            limited: (3, names),
            limits: &[1, 2],
            groups: (3, names),
            awaited: (4, names),
            expiries_s: (4, &[Seconds::new(LONG_S, 0)]),
            ..TagChoice::NEVER
        };
        let tags = choice.tags(random);
        let key = self.harness.history().putting_apart();
        let body = body(key, random.index(100));
        let (priority, delay) = (random.below(4) as u32, if random.once_in(5) { LONG_S } else { 0 });
        let line = format!("put {priority} {delay} {LONG_S} {}{}", body.len(), words_of(&tags, None));
        let reply = self.client.ask(&[line.as_bytes(), b"\r\n", &body, b"\r\n"].concat())?;
        self.harness.replies.fetch_add(1, Ordering::Relaxed);
        if reply == b"DRAINING\r\n" {
            self.harness.history().refused(key);
            return Ok(());
        }
        self.now.0 += 1;
        let duplicate = self.model.model.duplicate(CLIENT, &tags, priority, self.now);
        let expected = match duplicate {
            None => {
                let Some(id) = id_of(&reply, "INSERTED") else {
                    return self.require(false, &line, b"INSERTED", &reply);
                };
                let (priority, delay_s, ttr_s) = (Priority(priority), delay.into(), LONG_S.into());
                let new = NewJob { id: JobId(id), priority, delay_s, ttr_s };
                self.model.model.put_tagged(CLIENT, new, body.into(), tags, self.now);
                self.harness.history().inserted(key, id);
                format!("INSERTED {id}\r\n")
            }
            Some(duplicate) => {
                self.harness.history().refused(key);
                format!("{}\r\n", duplicate.reply(duplicate.first))
            }
        };
        self.model.model.forget_the_past();
        self.require(reply == expected.as_bytes(), &line, expected.as_bytes(), &reply)
    }

    /// Reports a wrong reply, and ends the script: the model is wrong from then on.
    fn require(&self, is_right: bool, line: &str, expected: &[u8], reply: &[u8]) -> Result<(), Failure> {
        if is_right {
            return Ok(());
        }
        let (expected, reply) = (first_line(expected), first_line(reply));
        let problem = format!("{}: {line}: {reply}, expected {expected}", self.tubes[0]);
        self.harness.history().report(problem.clone());
        Err(self.client.failure(&problem))
    }
}
