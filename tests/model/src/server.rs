//! The server: the reply to each command, byte for byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use beanstalkd_protocol::{Command, Field, FieldList, ModeWord, Verb, parse_tags};
use beanstalkd_queue::{AwaitedEnd, NewJob, PoisonLimits, Release, Released, Reserve, WaitOutcome};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{JobId, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{PutTags, TagError, Trace};

use crate::complete::CompletedPut;
use crate::queue::Model;

/// Stands in an expected reply for a number that only the server knows.
pub const ANY_NUMBER: u8 = 1;

/// With at most this many unread bytes, a batch is not cut short.
const MIN_ROOM_BYTES: usize = 64 * 1024;

/// A model of the whole server without its sockets: its settings, the counts of the stats, and what commands have left
/// of clients.
#[derive(Clone, Debug)]
pub struct Server {
    pub model: Model,
    pub max_job_bytes: u32,
    /// Whether the server has access rules, which allow everything.
    pub has_rules: bool,
    pub draining: bool,
    pub started_at: Timestamp,
    pub connections: u64,
    /// By client: the unanswered `reserve-batch`, with the jobs that it has reserved.
    pub batches: BTreeMap<u32, Batch>,
    /// By client: the `complete` whose puts are being read.
    pub completing: BTreeMap<u32, Completing>,
    /// The fields that each client has requested.
    pub fields: BTreeMap<u32, FieldList>,
    pub(crate) commands: [u64; Verb::COUNT],
    pub(crate) malformed: u64,
    pub(crate) rejected_puts: u64,
}

/// An unanswered `reserve-batch`.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub max_jobs: u32,
    /// The job that has ended its wait.
    pub first: Option<u64>,
}

/// A `complete` whose puts are being read.
#[derive(Clone, Debug)]
pub struct Completing {
    id: u64,
    /// The puts with an id.
    puts: Vec<CompletedPut>,
    /// The reasons against it so far.
    refusals: Vec<&'static str>,
}

/// The reasons against a `complete`: its reply is the first of this list that applies.
const REFUSALS: [&str; 6] =
    ["NOT_FOUND", "JOB_TOO_BIG", "DRAINING", "TUBE_FULL", "BAD_FORMAT", "EXPECTED_CRLF"];

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Reply(Vec<u8>),
    /// No reply yet: a reserve waits, or a body follows.
    None,
    /// A body follows the line of a `put`: the id that the put has taken, or the reason why it is not stored.
    Body(Result<u64, &'static str>),
    Close,
}

/// The accepted line of a `put` whose body has not arrived completely.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub id: Result<u64, &'static str>,
    pub tags: PutTags<'static>,
    pub priority: u32,
    pub delay_s: Seconds,
    pub ttr_s: Seconds,
}

/// The words after the size of a `put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutWords {
    /// Tags, or nothing.
    Good,
    /// An invalid tag: the body is skipped.
    Bad,
    /// A word that is not a tag: the body is not read as a body.
    Unknown,
}

impl PutWords {
    fn of(text: &[u8]) -> Self {
        match parse_tags(text) {
            Ok(_) => Self::Good,
            Err(TagError::BadTag) => Self::Bad,
            Err(TagError::UnknownWord) => Self::Unknown,
        }
    }
}

fn reply(text: impl Into<Vec<u8>>) -> Answer {
    let mut bytes = text.into();
    bytes.extend(b"\r\n");
    Answer::Reply(bytes)
}

fn found(is_there: bool, text: &str) -> Answer {
    reply(if is_there { text } else { "NOT_FOUND" })
}

fn data(text: Option<String>) -> Answer {
    text.map_or_else(|| reply("NOT_FOUND"), |text| reply(format!("OK {}\r\n{text}", text.len())))
}

impl Server {
    pub fn new(limits: PoisonLimits, max_job_bytes: u32, started_at: Timestamp) -> Self {
        Self {
            model: Model::new(limits),
            max_job_bytes,
            has_rules: false,
            draining: false,
            started_at,
            connections: 0,
            batches: BTreeMap::new(),
            completing: BTreeMap::new(),
            fields: BTreeMap::new(),
            commands: [0; Verb::COUNT],
            malformed: 0,
            rejected_puts: 0,
        }
    }

    /// The reply to a reserve.
    fn job(&self, word: &str, id: u64) -> Answer {
        let body = &self.model.job(id).expect("the job exists").body;
        let mut bytes = format!("{word} {id} {}\r\n", body.len()).into_bytes();
        bytes.extend(&body[..]);
        reply(bytes)
    }

    /// The reply RESERVED to this client, which may have requested fields.
    fn reserved(&self, client: u32, id: u64, now: Timestamp) -> Answer {
        let Some(fields) = self.fields.get(&client) else { return self.job("RESERVED", id) };
        let job = self.model.job(id).expect("the job exists");
        let mut line = format!("RESERVED {id} {}", job.body.len());
        for field in fields.iter() {
            line += &match field {
                Field::Tube => format!(" {}", self.model.tube(job.tube).name),
                Field::Attempts => format!(" {}", job.counters.reserves),
                Field::Timeouts => format!(" {}", job.counters.timeouts),
                Field::Releases => format!(" {}", job.counters.releases),
                Field::Age => format!(" {}", now.since_s(job.created_at)),
                Field::Pri => format!(" {}", job.priority),
                Field::Ttr => format!(" {}", job.ttr_s.whole()),
                Field::Trace => format!(" {}", job.tags.trace.map_or("-", Trace::as_str)),
            };
        }
        reply([line.as_bytes(), b"\r\n", &job.body].concat())
    }

    /// The reply to a client that waited; none yet if it has got the first job of a batch.
    pub fn delivery(&mut self, client: u32, outcome: WaitOutcome, now: Timestamp) -> Option<Vec<u8>> {
        if let (Some(batch), WaitOutcome::Reserved(id)) = (self.batches.get_mut(&client), outcome) {
            batch.first = Some(id.0);
            return None;
        }
        self.batches.remove(&client);
        let answer = match outcome {
            WaitOutcome::Reserved(id) => self.reserved(client, id.0, now),
            WaitOutcome::TimedOut => reply("TIMED_OUT"),
            WaitOutcome::DeadlineSoon => reply("DEADLINE_SOON"),
            WaitOutcome::Ended(id, AwaitedEnd::Deleted) => reply(format!("DELETED {}", id.0)),
            WaitOutcome::Ended(id, AwaitedEnd::Buried) => reply(format!("BURIED {}", id.0)),
        };
        let Answer::Reply(bytes) = answer else { unreachable!("a delivery is a reply") };
        Some(bytes)
    }

    /// A batch reserves the jobs that it still lacks, and is answered with `count` jobs, as in the server's reply. Only
    /// the server knows how many jobs the room in the output allows; at most `unread` bytes are already there.
    pub fn answer_batch(&mut self, client: u32, count: u64, unread: usize, now: Timestamp) -> Answer {
        let batch = self.batches.remove(&client).expect("a batch is not answered");
        let mut jobs: Vec<u64> =
            batch.first.into_iter().filter(|&id| self.model.has_reserved(client, id)).collect();
        // A first job that it has lost in the meantime counts, unless no other would be left.
        let lost = u32::from(batch.first.is_some() && jobs.is_empty());
        let max_jobs = (batch.max_jobs - lost).max(1) as usize;
        while (jobs.len() as u64) < count {
            match self.model.reserve(client, Some(Seconds::ZERO), None, now) {
                Reserve::Job(id) => jobs.push(id.0),
                other => panic!("{count} jobs for client {client}, but {other:?} after {}", jobs.len()),
            }
        }
        assert!(jobs.len() <= max_jobs, "client {client} wanted {} jobs", batch.max_jobs);
        let mut reply = format!("RESERVED_BATCH {count}\r\n").into_bytes();
        for &id in &jobs {
            let Answer::Reply(job) = self.reserved(client, id, now) else { unreachable!("a job is a reply") };
            reply.extend(job);
        }
        if unread + reply.len() <= MIN_ROOM_BYTES && jobs.len() < max_jobs {
            let more = self.model.reserve(client, Some(Seconds::ZERO), None, now);
            assert!(
                !matches!(more, Reserve::Job(_)),
                "client {client} gets {count} jobs, and there are more"
            );
        }
        Answer::Reply(reply)
    }

    /// Executes a `put` whose body has arrived completely.
    pub fn body(
        &mut self,
        client: u32,
        accepted: Accepted,
        bytes: Arc<[u8]>,
        ended_well: bool,
        now: Timestamp,
    ) -> Answer {
        let id = match accepted.id {
            Ok(id) => id,
            Err("BAD_FORMAT") => {
                self.malformed += 1;
                return reply("BAD_FORMAT");
            }
            Err(refusal) => {
                self.rejected_puts += 1;
                return reply(refusal);
            }
        };
        if !ended_well {
            return reply("EXPECTED_CRLF");
        }
        if self.draining {
            self.rejected_puts += 1;
            return reply("DRAINING");
        }
        let Some(name) = accepted.tags.tube else { return self.store(client, accepted, id, bytes, now) };
        let before = self.model.use_temporarily(client, name.as_str());
        let answer = self.store(client, accepted, id, bytes, now);
        self.model.restore_used(client, before);
        answer
    }

    /// Stores a job in the tube that the client uses, unless it is a duplicate.
    fn store(
        &mut self,
        client: u32,
        accepted: Accepted,
        id: u64,
        bytes: Arc<[u8]>,
        now: Timestamp,
    ) -> Answer {
        let Accepted { priority, delay_s, ttr_s, tags, .. } = accepted;
        if let Some(duplicate) = self.model.duplicate(client, &tags.kept, priority, now) {
            return reply(duplicate.reply(duplicate.first));
        }
        let tube = self.model.tube(self.model.client(client).using).name.clone();
        if self.model.is_full(&tube, bytes.len()) {
            self.model.refuse_for(&tube);
            return reply("TUBE_FULL");
        }
        let new = NewJob { id: JobId(id), priority: Priority(priority), delay_s, ttr_s };
        self.model.put_tagged(client, new, bytes, tags.kept, now);
        reply(format!("INSERTED {id}"))
    }

    /// Executes the line of a `put`.
    pub fn put(&mut self, client: u32, size: u32, tags: PutWords) -> Answer {
        self.commands[Verb::Put as usize] += 1;
        match tags {
            _ if size > self.max_job_bytes => Answer::Body(Err("JOB_TOO_BIG")),
            PutWords::Unknown => self.refuse("BAD_FORMAT"),
            PutWords::Bad => Answer::Body(Err("BAD_FORMAT")),
            PutWords::Good => Answer::Body(Ok(self.model.allocate_id(client))),
        }
    }

    /// Executes the line of a put of a `complete`. The text after its body is known already, and its id is issued here.
    pub fn put_of_complete(
        &mut self,
        client: u32,
        put: CompletedPut,
        size: u32,
        tags: PutWords,
        ended_well: bool,
    ) {
        // Here the body is read as a body even after a word that is no tag.
        let tags = if tags == PutWords::Unknown { PutWords::Bad } else { tags };
        let answer = self.put(client, size, tags);
        let completing = self.completing.get_mut(&client).expect("a complete is being read");
        match answer {
            Answer::Body(Ok(id)) => {
                completing.refusals.extend((!ended_well).then_some("EXPECTED_CRLF"));
                completing.puts.push(CompletedPut { new: NewJob { id: JobId(id), ..put.new }, ..put });
            }
            Answer::Body(Err(refusal)) => completing.refusals.push(refusal),
            Answer::None | Answer::Reply(_) | Answer::Close => unreachable!("a put of a complete has a body"),
        }
    }

    /// Executes a `complete` when all its puts were read.
    pub fn end_complete(&mut self, client: u32, now: Timestamp) -> Answer {
        let Completing { id, puts, mut refusals } =
            self.completing.remove(&client).expect("a complete is being read");
        let has_puts = !puts.is_empty() || !refusals.is_empty();
        refusals.extend((self.draining && has_puts).then_some("DRAINING"));
        let mut full = None;
        if !self.model.has_reserved(client, id) {
            refusals.push("NOT_FOUND");
        } else if let Err(tube) = self.model.clone().complete(client, id, &puts, now) {
            refusals.push("TUBE_FULL");
            full = Some(tube);
        }
        match REFUSALS.into_iter().find(|refusal| refusals.contains(refusal)) {
            Some(refusal) => {
                self.rejected_puts += u64::from(["JOB_TOO_BIG", "DRAINING"].contains(&refusal));
                self.malformed += u64::from(refusal == "BAD_FORMAT");
                if let Some(tube) = full.filter(|_| refusal == "TUBE_FULL") {
                    self.model.refuse_for(&tube);
                }
                reply(refusal)
            }
            None => {
                let ids = self.model.complete(client, id, &puts, now).expect("no tube is full");
                reply(ids.iter().fold("COMPLETED".to_owned(), |text, id| format!("{text} {id}")))
            }
        }
    }

    /// Refuses a line that is no command, with this reply.
    pub fn refuse(&mut self, refusal: &str) -> Answer {
        self.malformed += 1;
        reply(refusal)
    }

    /// Executes a command.
    pub fn command(&mut self, client: u32, command: Command<'_>, now: Timestamp) -> Answer {
        let number = match command {
            Command::ReserveBatch { max_jobs, .. } => {
                let mut model = self.model.clone();
                let mut is_more =
                    || matches!(model.reserve(client, Some(Seconds::ZERO), None, now), Reserve::Job(_));
                (0..u64::from(max_jobs)).take_while(|_| is_more()).count() as u64
            }
            _ => 0,
        };
        self.command_as_seen(client, command, number, 0, now)
    }

    /// Executes a command. `number` is the first number of the server's reply, for facts that only the server knows.
    pub fn command_as_seen(
        &mut self,
        client: u32,
        command: Command<'_>,
        number: u64,
        unread: usize,
        now: Timestamp,
    ) -> Answer {
        if !matches!(command, Command::Put(_) | Command::PutWith(..) | Command::Auth(_)) {
            self.commands[command.verb() as usize] += 1;
        }
        let using = self.model.client(client).using;
        let model = &mut self.model;
        match command {
            Command::Use(tube) => {
                model.use_tube(client, &tube);
                reply(format!("USING {tube}"))
            }
            Command::Watch { tube, .. } => reply(format!("WATCHING {}", model.watch(client, &tube))),
            Command::Ignore(tube) => match model.ignore(client, &tube) {
                Some(count) => reply(format!("WATCHING {count}")),
                None => reply("NOT_IGNORED"),
            },
            Command::Reserve => self.reserve(client, None, number, now),
            Command::ReserveWithTimeout { timeout_s } => self.reserve(client, Some(timeout_s), number, now),
            Command::ReserveWithAbort { timeout_s } => self.reserve(client, timeout_s, number, now),
            Command::ReserveBatch { max_jobs, timeout_s } => {
                self.batches.insert(client, Batch { max_jobs, first: None });
                match (model.reserve(client, timeout_s.or(Some(Seconds::ZERO)), None, now), timeout_s) {
                    (Reserve::Job(id), _) => {
                        self.batches.insert(client, Batch { max_jobs, first: Some(id.0) });
                        self.answer_batch(client, number, unread, now)
                    }
                    (Reserve::Waiting, _) => Answer::None,
                    (_, None) => self.answer_batch(client, 0, unread, now),
                    (Reserve::DeadlineSoon, _) => self.no_batch(client, "DEADLINE_SOON"),
                    (_, _) => self.no_batch(client, "TIMED_OUT"),
                }
            }
            Command::DeleteBatch(ids) => {
                let deleted = ids.iter().filter(|id| model.delete(client, id.0, now)).count();
                reply(format!("DELETED_BATCH {deleted} {}", ids.count() - deleted))
            }
            Command::TouchAll => reply(format!("TOUCHED_ALL {}", model.touch_all(client, now))),
            Command::ReserveMode(mode) => {
                model.set_weighted(client, matches!(mode, ModeWord::Weighted | ModeWord::WeightedFair));
                reply(format!("USING {}", mode.as_str()))
            }
            Command::ReserveJob(JobId(id)) => {
                if model.reserve_job(client, id, now) {
                    self.reserved(client, id, now)
                } else {
                    reply("NOT_FOUND")
                }
            }
            Command::Delete(JobId(id)) => found(model.delete(client, id, now), "DELETED"),
            Command::Release { id: JobId(id), priority, delay_s, counting } => {
                match model.release(client, id, Release { priority, delay_s, counting }, now) {
                    Some(Released::Queued) => reply("RELEASED"),
                    Some(Released::Buried) => reply("BURIED"),
                    None => reply("NOT_FOUND"),
                }
            }
            Command::Bury { id: JobId(id), priority: Priority(priority) } => {
                found(model.bury(client, id, priority, now), "BURIED")
            }
            Command::Touch { id: JobId(id), for_s } => found(model.touch(client, id, for_s, now), "TOUCHED"),
            Command::Peek(JobId(id)) => self.peek(self.model.job(id).map(|job| job.id)),
            Command::PeekReady => self.peek(self.model.first_ready(using)),
            Command::PeekDelayed => self.peek(self.model.first_shown_as_delayed(using)),
            Command::PeekBuried => self.peek(self.model.first_buried(using)),
            Command::Kick { bound } => reply(format!("KICKED {}", model.kick(client, bound, now))),
            Command::KickJob(JobId(id)) => found(model.kick_job(id, now), "KICKED"),
            Command::Stats => reply(format!("OK {}\r\n{}", ANY_NUMBER as char, self.stats(now))),
            Command::StatsJob(JobId(id)) => data(self.stats_job(id, now)),
            Command::StatsTube(tube) => match self.stats_tube(&tube, now) {
                Some(text) => reply(format!("OK {}\r\n{text}", ANY_NUMBER as char)),
                None => reply("NOT_FOUND"),
            },
            Command::StatsGroup(name) => data(self.stats_group(name)),
            Command::ListTubes => data(Some(self.list(&self.model.listed))),
            Command::ListTubeUsed => reply(format!("USING {}", model.tube(using).name)),
            Command::ListTubesWatched => {
                let watching = model.client(client).watching.clone();
                data(Some(self.list(&watching)))
            }
            Command::PauseTube { tube, delay_s } => found(model.pause_tube(&tube, delay_s, now), "PAUSED"),
            Command::FlushTube(tube) => reply(format!("FLUSHED {}", model.flush(&tube, false, now))),
            Command::FlushBuried(tube) => reply(format!("FLUSHED {}", model.flush(&tube, true, now))),
            Command::ListJobs { tube, state, limit, after } => {
                data(self.list_jobs(&tube, state, limit as usize, after, now))
            }
            Command::PeekReserved => self.peek(self.model.first_reserved_of(using)),
            Command::Move { id: JobId(id), tube } => match model.duplicate_in(id, &tube) {
                Some(duplicate) if model.is_movable(client, id) => reply(format!("EXISTS {duplicate}")),
                _ if model.is_refused_by(client, id, &tube) => {
                    model.refuse_for(&tube);
                    reply("TUBE_FULL")
                }
                _ => found(model.move_job(client, id, &tube, now), "MOVED"),
            },
            Command::Reprioritize { id: JobId(id), priority: Priority(priority) } => {
                found(model.reprioritize(id, priority), "REPRIORITIZED")
            }
            Command::Drain => {
                self.draining = true;
                reply("DRAINING")
            }
            Command::Undrain => {
                self.draining = false;
                reply("NOT_DRAINING")
            }
            Command::ReserveFields(fields) => {
                self.fields.remove(&client);
                if !fields.is_empty() {
                    self.fields.insert(client, fields);
                }
                let words = fields.iter().map(|field| format!(" {}", field.as_str()));
                reply(format!("USING{}", words.collect::<String>()))
            }
            Command::Quit => Answer::Close,
            Command::Put(header) => self.put(client, header.size, PutWords::Good),
            Command::PutWith(header, text) => self.put(client, header.size, PutWords::of(text)),
            Command::Session { name, grace } => match model.begin_session(client, &name, grace.as_ms()) {
                Some(count) => reply(format!("SESSION {count}")),
                None => self.refuse("BAD_FORMAT"),
            },
            // Only the server knows the addresses and the owners of connections: a caller that needs more checks these
            // itself.
            Command::ListClients { .. } => data(Some("---\nnext: \"\"\nclients:\n".to_owned())),
            Command::KillClient { .. } => reply("NOT_FOUND"),
            Command::Complete { id: JobId(id), count } => {
                let completing = Completing { id, puts: Vec::new(), refusals: Vec::new() };
                self.completing.insert(client, completing);
                if count == 0 { self.end_complete(client, now) } else { Answer::None }
            }
            Command::WaitJob { id: JobId(id), timeout_s } => {
                match model.wait_job(client, id, timeout_s, now) {
                    None => Answer::None,
                    Some("BURIED") => reply(format!("BURIED {id}")),
                    Some(word) => reply(word),
                }
            }
            // Only a server with access rules has it.
            Command::Auth(_) => self.refuse("UNKNOWN_COMMAND"),
        }
    }

    fn reserve(&mut self, client: u32, timeout_s: Option<Seconds>, number: u64, now: Timestamp) -> Answer {
        match self.model.reserve(client, timeout_s, Some(number), now) {
            Reserve::Job(id) => self.reserved(client, id.0, now),
            Reserve::DeadlineSoon => reply("DEADLINE_SOON"),
            Reserve::TimedOut => reply("TIMED_OUT"),
            Reserve::Waiting => Answer::None,
            Reserve::Unfinished => unreachable!("the model probes all tubes at once"),
        }
    }

    fn no_batch(&mut self, client: u32, text: &str) -> Answer {
        self.batches.remove(&client);
        reply(text)
    }

    fn peek(&self, id: Option<u64>) -> Answer {
        id.map_or_else(|| reply("NOT_FOUND"), |id| self.job("FOUND", id))
    }

    fn list(&self, tubes: &[usize]) -> String {
        tubes.iter().fold("---\n".to_owned(), |list, &tube| list + "- " + &self.model.tube(tube).name + "\n")
    }
}
