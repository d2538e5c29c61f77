//! A connection and its commands. The history of all jobs gets what it sends and reads.
//!
//! Owns: the commands, and the replies that each may get. All clients share the jobs, so most commands may get one of
//! several replies. No reply may show that a job is damaged, lost, or back after its delete.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::Harness;
use beanstalkd_testkit::client::{Client, Failure, body_of, id_of, inserted_id, put_command};
use beanstalkd_testkit::history::{Tick, body};
use beanstalkd_testkit::random::Random;

/// Tubes that are always in use.
const TUBES: u64 = 20;
/// The number of names for tubes that are made and removed. It is much larger than the number of jobs in them, so that
/// such a tube rarely has a second job.
const FLEETING_TUBES: u64 = 5_000;
/// With this many jobs or more, a client deletes one instead of putting one.
const POPULATION: usize = 2_000;
/// The maximum number of reservations of a client.
const MAX_RESERVATIONS: usize = 12;
/// The size of the job that the slow reader peeks, in bytes.
pub const SLOW_BODY: usize = 60_000;

/// A connection.
pub struct Session<'a> {
    pub harness: &'a Harness<'a>,
    pub client: Client,
    pub random: Random,
    /// The jobs that it has reserved, unless their TTR has ended.
    reserved: Vec<u64>,
    /// When it sent the last command.
    asked_at: Tick,
}

impl<'a> Session<'a> {
    /// Connects, uses one tube and watches two.
    pub fn begin(harness: &'a Harness<'a>, random: &mut Random) -> Result<Self, Failure> {
        let client = harness.address.connect()?;
        harness.connections.fetch_add(1, Ordering::Relaxed);
        let random = Random::new(random.next());
        let mut session = Self { harness, client, random, reserved: Vec::new(), asked_at: 0 };
        let (used, watched) = (session.random.below(TUBES), session.random.below(TUBES));
        session.expect(&format!("use tube-{used}"), &["USING "])?;
        session.expect(&format!("watch tube-{used}"), &["WATCHING "])?;
        session.expect(&format!("watch tube-{watched}"), &["WATCHING "])?;
        Ok(session)
    }

    /// Reports a violation.
    pub fn report(&self, what: String) {
        self.harness.history().report(what);
    }

    /// Sends bytes that end with a command.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.asked_at = self.harness.history().tick();
        self.client.send(bytes)
    }

    /// Sends `line` and requires a reply that begins with one of `allowed`.
    fn expect(&mut self, line: &str, allowed: &[&str]) -> Result<Vec<u8>, Failure> {
        self.send(format!("{line}\r\n").as_bytes())?;
        let reply = self.client.read_reply()?;
        self.harness.replies.fetch_add(1, Ordering::Relaxed);
        if !allowed.iter().any(|allowed| reply.starts_with(allowed.as_bytes())) {
            self.report(format!("{line}: {}", first_line(&reply)));
        }
        Ok(reply)
    }

    /// Sends `count` random commands with pauses, or fewer if the run of the server ends.
    pub fn commands(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            if self.harness.is_stopping() {
                break;
            }
            self.command()?;
            std::thread::sleep(self.harness.pause);
        }
        Ok(())
    }

    fn command(&mut self) -> Result<(), Failure> {
        let is_full = self.reserved.len() >= MAX_RESERVATIONS;
        if is_full || !self.reserved.is_empty() && self.random.once_in(2) {
            return self.finish_one();
        }
        let is_crowded = self.harness.history().kept_count() > POPULATION;
        match self.random.below(30) {
            0..8 if !is_crowded => self.put(),
            0..9 => self.with_any(Self::delete),
            9..14 => self.reserve(),
            14 => self.with_any(Self::reserve_job),
            15 => self.with_any(Self::peek),
            16 => self.peek_next(),
            17 => drop_reply(self.expect("kick 10", &["KICKED "])),
            18 => self.with_any(|session, id| {
                drop_reply(session.expect(&format!("kick-job {id}"), &["KICKED\r\n", "NOT_FOUND\r\n"]))
            }),
            19 => {
                let (tube, time) = (self.random.below(TUBES), self.random.below(2));
                drop_reply(self.expect(&format!("pause-tube tube-{tube} {time}"), &["PAUSED", "NOT_FOUND"]))
            }
            20 => drop_reply(self.expect("stats", &["OK "])),
            21 => self.with_any(|session, id| {
                drop_reply(session.expect(&format!("stats-job {id}"), &["OK ", "NOT_FOUND\r\n"]))
            }),
            22 => {
                let tube = self.any_tube();
                drop_reply(self.expect(&format!("stats-tube {tube}"), &["OK ", "NOT_FOUND\r\n"]))
            }
            23 => drop_reply(self.expect("list-tubes", &["OK "])),
            24 => drop_reply(self.expect("list-tubes-watched", &["OK "])),
            25 => drop_reply(self.expect("list-tube-used", &["USING "])),
            26 | 27 => {
                let tube = self.any_tube();
                drop_reply(self.expect(&format!("use {tube}"), &["USING "]))
            }
            28 => {
                let tube = self.any_tube();
                drop_reply(self.expect(&format!("watch {tube}"), &["WATCHING "]))
            }
            _ => {
                let tube = self.any_tube();
                drop_reply(self.expect(&format!("ignore {tube}"), &["WATCHING ", "NOT_IGNORED\r\n"]))
            }
        }
    }

    fn any_tube(&mut self) -> String {
        match self.random.below(4) {
            0 => format!("fleeting-{}", self.random.below(FLEETING_TUBES)),
            _ => format!("tube-{}", self.random.below(TUBES)),
        }
    }

    /// Uses a tube that no other client ever sees.
    pub fn use_own_tube(&mut self) -> Result<(), Failure> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        drop_reply(self.expect(&format!("use own-{number}"), &["USING "]))
    }

    fn with_any(&mut self, command: impl Fn(&mut Self, u64) -> Result<(), Failure>) -> Result<(), Failure> {
        let picked = self.harness.history().pick(&mut self.random);
        match picked {
            Some(id) => command(self, id),
            None => self.put(),
        }
    }

    fn put(&mut self) -> Result<(), Failure> {
        let delay = if self.random.once_in(6) { 1 + self.random.below(3) as u32 } else { 0 };
        let length = match self.random.below(50) {
            0 => 4_000 + self.random.below(12_000),
            _ => self.random.below(500),
        };
        let priority = self.random.below(4) as u32;
        self.put_body(priority, delay, length as usize).map(drop)
    }

    /// Puts a body of `length` bytes; returns its id unless the server refuses because it drains.
    pub fn put_body(&mut self, priority: u32, delay: u32, length: usize) -> Result<Option<u64>, Failure> {
        let key = self.harness.history().putting();
        let ttr = if self.random.once_in(2) { 1 + self.random.below(2) as u32 } else { 120 };
        let reply = self.client.ask(&put_command(priority, delay, ttr, &body(key, length)))?;
        Ok(self.put_answered(key, &reply))
    }

    /// Judges the reply to a put, and returns the id in it.
    pub fn put_answered(&mut self, key: u64, reply: &[u8]) -> Option<u64> {
        self.harness.replies.fetch_add(1, Ordering::Relaxed);
        if reply == b"DRAINING\r\n" {
            self.harness.history().refused(key);
            return None;
        }
        match inserted_id(reply) {
            Some(id) => {
                self.harness.history().inserted(key, id);
                Some(id)
            }
            None => {
                self.report(format!("put: {}", first_line(reply)));
                None
            }
        }
    }

    /// Deletes a job.
    pub fn delete(&mut self, id: u64) -> Result<(), Failure> {
        self.harness.history().deleting(id);
        let reply = self.client.ask(format!("delete {id}\r\n").as_bytes())?;
        self.delete_answered(id, &reply);
        Ok(())
    }

    /// Judges the reply to a delete. NOT_FOUND is allowed: another client may hold the job, or may have deleted it.
    pub fn delete_answered(&mut self, id: u64, reply: &[u8]) {
        self.harness.replies.fetch_add(1, Ordering::Relaxed);
        match reply {
            b"DELETED\r\n" => self.harness.history().deleted(id),
            b"NOT_FOUND\r\n" => self.harness.history().not_deleted(id),
            _ => self.report(format!("delete {id}: {}", first_line(reply))),
        }
    }

    fn reserve(&mut self) -> Result<(), Failure> {
        let time = u64::from(self.random.once_in(8));
        let allowed = ["RESERVED ", "TIMED_OUT\r\n", "DEADLINE_SOON\r\n"];
        let reply = self.expect(&format!("reserve-with-timeout {time}"), &allowed)?;
        self.take_reservation(&reply);
        Ok(())
    }

    fn reserve_job(&mut self, id: u64) -> Result<(), Failure> {
        let reply = self.expect(&format!("reserve-job {id}"), &["RESERVED ", "NOT_FOUND\r\n"])?;
        self.take_reservation(&reply);
        Ok(())
    }

    /// Notes the job of a reply to a reserve, if the reply has one.
    pub fn take_reservation(&mut self, reply: &[u8]) {
        if let Some(id) = id_of(reply, "RESERVED").filter(|&id| self.saw(id, reply)) {
            self.reserved.push(id);
        }
    }

    /// Peeks a job that must exist unless another client deletes it at the same time.
    pub fn peek(&mut self, id: u64) -> Result<(), Failure> {
        let was_safe = self.harness.history().is_safe(id);
        let reply = self.expect(&format!("peek {id}"), &["FOUND ", "NOT_FOUND\r\n"])?;
        if reply.starts_with(b"FOUND ") {
            self.saw(id, &reply);
        } else if was_safe && self.harness.history().is_safe(id) {
            self.report(format!("job {id} is lost"));
        }
        Ok(())
    }

    fn peek_next(&mut self) -> Result<(), Failure> {
        let state = self.random.pick(&["ready", "delayed", "buried"]);
        let reply = self.expect(&format!("peek-{state}"), &["FOUND ", "NOT_FOUND\r\n"])?;
        if let Some(id) = id_of(&reply, "FOUND") {
            self.saw(id, &reply);
        }
        Ok(())
    }

    /// Judges one of many replies to a peek of this job.
    pub fn judge_found(&mut self, id: u64, reply: &[u8]) {
        self.harness.replies.fetch_add(1, Ordering::Relaxed);
        if id_of(reply, "FOUND") != Some(id) {
            self.report(format!("unexpected reply in a row of peeks: {}", first_line(reply)));
        }
        self.saw(id, reply);
    }

    /// Notes that a reply has this job. Returns whether it is intact and not deleted.
    fn saw(&self, id: u64, reply: &[u8]) -> bool {
        self.harness.history().seen(id, body_of(reply), self.asked_at)
    }

    /// Sends a command on a job that it has reserved, or lets the job time out.
    fn finish_one(&mut self) -> Result<(), Failure> {
        let index = self.random.below(self.reserved.len() as u64) as usize;
        let id = self.reserved[index];
        let kind = self.random.below(12);
        if kind == 0 {
            let reply = self.expect(&format!("touch {id}"), &["TOUCHED\r\n", "NOT_FOUND\r\n"])?;
            if reply.starts_with(b"TOUCHED") {
                return Ok(());
            }
        }
        self.reserved.swap_remove(index);
        let priority = self.random.below(4);
        match kind {
            1..7 => self.delete(id),
            7 | 8 => {
                let delay = self.random.below(3);
                let line = format!("release {id} {priority} {delay}");
                drop_reply(self.expect(&line, &["RELEASED\r\n", "NOT_FOUND\r\n"]))
            }
            9 => {
                let line = format!("bury {id} {priority}");
                drop_reply(self.expect(&line, &["BURIED\r\n", "NOT_FOUND\r\n"]))
            }
            _ => Ok(()),
        }
    }
}

fn drop_reply(reply: Result<Vec<u8>, Failure>) -> Result<(), Failure> {
    reply.map(drop)
}

/// A reply for a message: the printable part of its first line.
pub fn first_line(reply: &[u8]) -> String {
    let line = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
    line[..line.len().min(100)].escape_ascii().to_string()
}
