//! Workers with sessions, which use the extensions of this server in tubes that they share.
//!
//! Owns: their commands, and the replies that each may get. A worker knows which jobs it has reserved, so a command on
//! one of them must succeed. What several workers may not do together is in `tagged.rs`.

use std::array;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use beanstalkd_testkit::client::{Client, Failure, id_of, pairs_of};
use beanstalkd_testkit::history::{History, Tick};
use beanstalkd_testkit::random::Random;

use crate::harness::{Both, Harness};
use crate::own_tube::OwnTube;
use crate::session::first_line;
use crate::tagged::{GROUPS, LONG_S, TUBES, WORKERS};

/// The time between two commands of a worker: all of them together send a fifth of what the other clients send.
const PAUSE: Duration = Duration::from_millis(20);
/// The maximum number of reservations of a worker.
const MAX_RESERVATIONS: usize = 6;
/// With this many jobs or more, a worker deletes one instead of putting one.
const POPULATION: usize = 80;
/// How long a session outlives its connection, in seconds: longer than a restart.
const GRACE_S: u32 = 120;

/// A worker over all runs of the server. Its session outlives them.
pub struct Worker {
    number: usize,
    random: Random,
    /// The `complete` that was not answered: its job, and the keys of its puts.
    completing: Option<(u64, Vec<u64>)>,
}

/// The connection of a worker.
struct Connection<'a> {
    harness: &'a Harness<'a>,
    client: Client,
    asked_at: Tick,
}

impl<'a> Connection<'a> {
    fn open(harness: &'a Harness<'a>) -> Result<Self, Failure> {
        harness.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Self { harness, client: harness.address.connect()?, asked_at: 0 })
    }

    /// Sends a command and reads its reply.
    fn ask(&mut self, command: &[u8]) -> Result<Vec<u8>, Failure> {
        self.asked_at = self.harness.history().tick();
        let reply = self.client.ask(command)?;
        self.harness.replies.fetch_add(1, Ordering::Relaxed);
        Ok(reply)
    }

    /// Sends a line, and requires a reply that begins with one of `allowed`.
    fn expect(&mut self, line: &str, allowed: &[&str]) -> Result<Vec<u8>, Failure> {
        let reply = self.ask(format!("{line}\r\n").as_bytes())?;
        if !allowed.iter().any(|allowed| reply.starts_with(allowed.as_bytes())) {
            self.harness.history().report(format!("{line}: {}", first_line(&reply)));
        }
        Ok(reply)
    }
}

/// The jobs of the workers' sessions, by worker.
pub fn jobs_of_sessions(client: &mut Client) -> Result<[BTreeSet<u64>; WORKERS], Failure> {
    let mut by_session = client.jobs_by_session(&TUBES)?;
    Ok(array::from_fn(|number| by_session.remove(&name_of(number)).unwrap_or_default()))
}

fn name_of(number: usize) -> String {
    format!("worker-{number}")
}

impl Worker {
    pub fn new(number: usize, seed: u64) -> Self {
        Self { number, random: Random::new(seed), completing: None }
    }

    /// Works until the run of the server ends.
    pub fn work_for_life(&mut self, harness: &Harness<'_>) {
        let worked = self.work(harness);
        if let Some(failure) = worked.err().filter(|_| !harness.is_dying()) {
            harness.history().report(format!("the connection of worker {} failed: {failure}", self.number));
        }
    }

    fn work(&mut self, harness: &Harness<'_>) -> Result<(), Failure> {
        let mut connection = self.come(harness)?;
        while !harness.is_stopping() {
            match self.random.below(60) {
                0 => {
                    connection.client.send(b"quit\r\n")?;
                    connection.client.expect_closed()?;
                    connection = self.come(harness)?;
                }
                1 => {
                    // The new connection takes the session, and the server closes the old one.
                    let mut old = std::mem::replace(&mut connection, self.come(harness)?);
                    old.client.expect_closed()?;
                }
                2 => OwnTube::run(harness, &mut self.random, PAUSE)?,
                _ => self.command(&mut connection)?,
            }
            std::thread::sleep(PAUSE);
        }
        connection.client.send(b"quit\r\n")?;
        connection.client.expect_closed()
    }

    /// Connects. The session must have exactly the jobs that the worker has not begun to give back.
    fn come<'a>(&mut self, harness: &'a Harness<'a>) -> Result<Connection<'a>, Failure> {
        let mut connection = Connection::open(harness)?;
        let reply =
            connection.expect(&format!("session {} {GRACE_S}", name_of(self.number)), &["SESSION "])?;
        let found = jobs_of_sessions(&mut connection.client)?[self.number].clone();
        let known: BTreeSet<u64> = harness.history().reservations(self.number).collect();
        if found != known || reply != format!("SESSION {}\r\n", known.len()).as_bytes() {
            let reply = first_line(&reply);
            harness
                .history()
                .report(format!("worker {} has {known:?}, found {found:?}, {reply}", self.number));
        }
        for tube in TUBES {
            connection.expect(&format!("watch {tube}"), &["WATCHING "])?;
        }
        connection.expect("ignore default", &["WATCHING 5\r\n"])?;
        connection.expect("reserve-fields tube releases", &["USING tube releases\r\n"])?;
        Ok(connection)
    }

    fn command(&mut self, connection: &mut Connection<'_>) -> Result<(), Failure> {
        let harness = connection.harness;
        let reserved: Vec<u64> = harness.history().reservations(self.number).collect();
        let is_full = reserved.len() >= MAX_RESERVATIONS;
        if is_full || !reserved.is_empty() && self.random.once_in(2) {
            return self.use_one(connection, &reserved);
        }
        let is_crowded = harness.both().0.count() > POPULATION;
        match self.random.below(24) {
            0..9 if !is_crowded => self.put(connection),
            0..9 => self.delete_any(connection),
            9..12 => self.reserve(connection, "reserve-with-timeout 0"),
            12..14 => self.reserve(connection, "reserve-with-abort 0.02"),
            14 => self.reserve(connection, "reserve-with-timeout 0.05"),
            15..17 => self.reserve_batch(connection),
            17 => self.delete_any(connection),
            18 => {
                let tube = self.random.pick(&TUBES);
                connection.expect(&format!("use {tube}"), &["USING "])?;
                connection.expect("kick 5", &["KICKED "]).map(drop)
            }
            19 => connection.expect("list-clients", &["OK "]).map(drop),
            20 => connection.expect("peek-reserved", &["FOUND ", "NOT_FOUND\r\n"]).map(drop),
            21 => {
                let mode = self.random.pick(&["fifo", "weighted", "weighted-fair"]);
                connection.expect(&format!("reserve-mode {mode}"), &["USING "]).map(drop)
            }
            22 => self.look_at_group(connection),
            _ => self.look_at_any(connection),
        }
    }

    fn put(&mut self, connection: &mut Connection<'_>) -> Result<(), Failure> {
        let (key, command) = {
            let (mut tagged, mut history) = connection.harness.both();
            tagged.choose(&mut history, &mut self.random, None)
        };
        let reply = connection.ask(&command)?;
        let (mut tagged, mut history) = connection.harness.both();
        tagged.put_answered(&mut history, key, &reply, connection.asked_at);
        Ok(())
    }

    fn reserve(&self, connection: &mut Connection<'_>, line: &str) -> Result<(), Failure> {
        let reply = connection.expect(line, &["RESERVED ", "TIMED_OUT\r\n"])?;
        if reply.starts_with(b"RESERVED ") {
            self.take(connection, &reply);
        }
        Ok(())
    }

    fn reserve_batch(&mut self, connection: &mut Connection<'_>) -> Result<(), Failure> {
        let most = 1 + self.random.below(3);
        let reply = connection.expect(&format!("reserve-batch {most}"), &["RESERVED_BATCH "])?;
        let count = id_of(&reply, "RESERVED_BATCH").unwrap_or_default();
        if count > most {
            connection.harness.history().report(format!("reserve-batch {most}: {}", first_line(&reply)));
        }
        for _ in 0..count {
            let reply = connection.client.read_reply()?;
            self.take(connection, &reply);
        }
        Ok(())
    }

    fn take(&self, connection: &Connection<'_>, reply: &[u8]) {
        let (mut tagged, mut history) = connection.harness.both();
        tagged.reserved(&mut history, self.number, reply, connection.asked_at);
    }

    /// Sends a command on a job that it has reserved.
    fn use_one(&mut self, connection: &mut Connection<'_>, reserved: &[u64]) -> Result<(), Failure> {
        let harness = connection.harness;
        let (id, priority) = (self.random.pick(reserved), self.random.below(4));
        match self.random.below(16) {
            0..3 => self.delete(connection, id, &["DELETED\r\n"]),
            3..5 => self.delete_batch(connection, &reserved[..reserved.len().min(2)]),
            5..8 => self.complete(connection, id),
            8..11 => {
                {
                    let (mut tagged, mut history) = harness.both();
                    tagged.releasing(id);
                    history.giving_back(id);
                }
                connection.expect(&format!("release {id} {priority} 0"), &["RELEASED\r\n"])?;
                harness.both().0.released(id);
                Ok(())
            }
            11 => {
                harness.history().giving_back(id);
                let delay = self.random.pick(&["0", "0.3"]);
                let line = format!("release {id} {priority} {delay} uncounted");
                connection.expect(&line, &["RELEASED\r\n"]).map(drop)
            }
            12 => {
                harness.history().giving_back(id);
                connection.expect(&format!("bury {id} {priority}"), &["BURIED\r\n"]).map(drop)
            }
            13 => connection.expect(&format!("touch {id} {LONG_S}"), &["TOUCHED\r\n"]).map(drop),
            14 if harness.both().0.is_movable(id) => {
                let tube = self.random.pick(&TUBES[..2]);
                harness.both().0.moved(id, None);
                connection.expect(&format!("move {id} {tube}"), &["MOVED\r\n"])?;
                harness.both().0.moved(id, Some(tube));
                Ok(())
            }
            _ => {
                let all = format!("TOUCHED_ALL {}\r\n", reserved.len());
                connection.expect("touch-all", &[&all]).map(drop)
            }
        }
    }

    fn delete(&self, connection: &mut Connection<'_>, id: u64, allowed: &[&str]) -> Result<(), Failure> {
        connection.harness.history().deleting(id);
        let sent = Instant::now();
        let reply = connection.expect(&format!("delete {id}"), allowed)?;
        let (mut tagged, mut history) = connection.harness.both();
        if reply == b"DELETED\r\n" {
            tagged.deleted(&mut history, id, sent);
        } else {
            history.not_deleted(id);
        }
        Ok(())
    }

    /// Deletes a job that another worker may have reserved, or may delete at the same time.
    fn delete_any(&mut self, connection: &mut Connection<'_>) -> Result<(), Failure> {
        let picked = connection.harness.both().0.pick(&mut self.random);
        picked.map_or(Ok(()), |id| self.delete(connection, id, &["DELETED\r\n", "NOT_FOUND\r\n"]))
    }

    /// Deletes jobs that it has reserved, the first one twice.
    fn delete_batch(&self, connection: &mut Connection<'_>, ids: &[u64]) -> Result<(), Failure> {
        ids.iter().for_each(|&id| connection.harness.history().deleting(id));
        let sent = Instant::now();
        let words: String = ids.iter().chain(&ids[..1]).map(|id| format!(" {id}")).collect();
        let deleted = format!("DELETED_BATCH {} 1\r\n", ids.len());
        connection.expect(&format!("delete-batch{words}"), &[&deleted])?;
        let (mut tagged, mut history) = connection.harness.both();
        ids.iter().for_each(|&id| tagged.deleted(&mut history, id, sent));
        Ok(())
    }

    fn complete(&mut self, connection: &mut Connection<'_>, id: u64) -> Result<(), Failure> {
        let count = self.random.below(3);
        let mut command = format!("complete {id} {count}\r\n").into_bytes();
        let mut keys = Vec::new();
        {
            let (mut tagged, mut history) = connection.harness.both();
            for _ in 0..count {
                let (key, put) = tagged.choose(&mut history, &mut self.random, Some(id));
                keys.push(key);
                command.extend(put);
            }
            history.deleting(id);
        }
        self.completing = Some((id, keys.clone()));
        let sent = Instant::now();
        let reply = connection.ask(&command)?;
        self.completing = None;
        let (mut tagged, mut history) = connection.harness.both();
        let text = String::from_utf8_lossy(&reply);
        let ids =
            text.trim_end().strip_prefix("COMPLETED").map(|ids| ids.split_ascii_whitespace().map(str::parse));
        match ids.map(|ids| ids.collect::<Result<Vec<u64>, _>>().unwrap_or_default()) {
            Some(ids) if ids.len() == keys.len() => {
                let puts: Vec<(u64, u64)> = keys.into_iter().zip(ids).collect();
                tagged.completed(id, &puts);
                tagged.deleted(&mut history, id, sent);
                for (key, id) in puts {
                    tagged.inserted(&mut history, key, id, connection.asked_at);
                }
            }
            _ => {
                if !["DRAINING\r\n", "TUBE_FULL\r\n"].contains(&&*text) || count == 0 {
                    history.report(format!("complete {id} {count}: {text}"));
                }
                history.not_deleted(id);
                keys.into_iter().for_each(|key| history.refused(key));
            }
        }
        Ok(())
    }

    /// A group has at least the members that exist all the time.
    fn look_at_group(&mut self, connection: &mut Connection<'_>) -> Result<(), Failure> {
        let harness = connection.harness;
        let group = self.random.pick(&GROUPS);
        let members = |(tagged, history): Both<'_>| tagged.members(&history, group);
        let before = members(harness.both());
        let reply = connection.expect(&format!("stats-group {group}"), &["OK ", "NOT_FOUND\r\n"])?;
        let after = members(harness.both());
        let stayed = before.iter().filter(|id| after.contains(id)).count();
        let pairs = pairs_of(&reply);
        let pending =
            pairs.iter().find(|(key, _)| key == "pending").map_or(0, |(_, count)| count.parse().unwrap_or(0));
        if pending < stayed {
            harness.history().report(format!("{group} has {pending} members, expected at least {stayed}"));
        }
        Ok(())
    }

    /// Asks for the end of a job, and does not wait for it. A job that exists all the time must be found.
    fn look_at_any(&mut self, connection: &mut Connection<'_>) -> Result<(), Failure> {
        let harness = connection.harness;
        let Some(id) = harness.both().0.pick(&mut self.random) else { return Ok(()) };
        let was_safe = harness.history().is_safe(id);
        let buried = format!("BURIED {id}\r\n");
        let reply =
            connection.expect(&format!("wait-job {id} 0"), &["TIMED_OUT\r\n", "NOT_FOUND\r\n", &buried])?;
        let mut history = harness.history();
        if reply == b"NOT_FOUND\r\n" && was_safe && history.is_safe(id) {
            history.report(format!("job {id} is lost"));
        }
        Ok(())
    }

    /// Judges the `complete` that was not answered, after all jobs were compared with the history: it was executed as a
    /// whole or not at all.
    pub fn settle(&mut self, history: &mut History) {
        let Some((id, keys)) = self.completing.take() else { return };
        let is_done = !history.is_safe(id);
        if keys.iter().any(|&key| history.is_kept(key) != is_done) {
            history.report(format!("the complete of job {id} was half executed"));
        }
    }

    /// Deletes the jobs of its session.
    pub fn leave(&mut self, harness: &Harness<'_>) -> Result<(), Failure> {
        let mut connection = self.come(harness)?;
        let reserved: Vec<u64> = harness.history().reservations(self.number).collect();
        reserved.into_iter().try_for_each(|id| self.delete(&mut connection, id, &["DELETED\r\n"]))
    }
}
