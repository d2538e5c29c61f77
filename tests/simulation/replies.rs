//! The expected reply to each request, byte for byte, from the protocol and the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use beanstalkd::clock::Timestamp;
use beanstalkd::job::{JobId, JobState, Priority, SHARED_FROM_BYTES};
use beanstalkd::protocol::Verb;
use beanstalkd::queue::{NewJob, PoisonLimits, Released, Reserve, WaitOutcome};
use beanstalkd::tags::{Name, TagSet};

use crate::script::{Request, Tags};
use beanstalkd_testkit::model::{Double, Job, Model, State};
use beanstalkd_testkit::subject::{BINLOG_FILE_BYTES, PID, VERSION};

/// Stands in an expected reply for a number that only the server knows.
pub const ANY_NUMBER: u8 = 1;

/// The bytes that the stats count for a job in addition to its body.
const RECORD_BYTES: usize = if usize::BITS == 64 { 80 } else { 72 };

/// As long as no more is unread, a batch is not cut short.
const LEAST_ROOM_BYTES: usize = 64 * 1024;

/// A model of the whole server without its sockets.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub model: Model,
    pub max_job_bytes: u32,
    /// Whether the server has access rules, which allow everything.
    pub has_rules: bool,
    pub draining: bool,
    pub started_at: Timestamp,
    pub connections: u64,
    /// By client: the `reserve-batch` that is not answered, with the jobs that it has got.
    pub batches: BTreeMap<u32, Batch>,
    commands: [u64; Verb::COUNT],
    malformed: u64,
    rejected_puts: u64,
}

/// A `reserve-batch` that is not answered.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub most: u32,
    /// The job that has ended its wait.
    pub first: Option<u64>,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Reply(Vec<u8>),
    /// No reply yet: a reserve waits, or a body follows.
    None,
    /// A body follows the line of a `put`: the id that it has taken, or why it is not stored.
    Body(Result<u64, &'static str>),
    Close,
}

/// The accepted line of a `put` whose body has not arrived completely.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub id: Result<u64, &'static str>,
    pub tags: TagSet<'static>,
    pub priority: u32,
    pub delay_s: u32,
    pub ttr_s: u32,
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

impl Oracle {
    pub fn new(limits: PoisonLimits, max_job_bytes: u32, started_at: Timestamp) -> Self {
        Self {
            model: Model::new(limits),
            max_job_bytes,
            has_rules: false,
            draining: false,
            started_at,
            connections: 0,
            batches: BTreeMap::new(),
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

    /// The reply to a client that waited; none yet if it has got the first job of a batch.
    pub fn delivery(&mut self, client: u32, outcome: WaitOutcome) -> Option<Vec<u8>> {
        if let (Some(batch), WaitOutcome::Reserved(id)) = (self.batches.get_mut(&client), outcome) {
            batch.first = Some(id.0);
            return None;
        }
        self.batches.remove(&client);
        let answer = match outcome {
            WaitOutcome::Reserved(id) => self.job("RESERVED", id.0),
            WaitOutcome::TimedOut => reply("TIMED_OUT"),
            WaitOutcome::DeadlineSoon => reply("DEADLINE_SOON"),
        };
        let Answer::Reply(bytes) = answer else { unreachable!("a delivery is a reply") };
        Some(bytes)
    }

    /// A batch reserves what it has not got yet, and is answered: with `count` jobs, as the server says. What it may
    /// not get for want of room in the output, only the server knows; `unread` bytes at most are there already.
    pub fn answer_batch(&mut self, client: u32, count: u64, unread: usize, now: Timestamp) -> Answer {
        let batch = self.batches.remove(&client).expect("a batch is not answered");
        let mut jobs: Vec<u64> = batch.first.into_iter().collect();
        let is_held =
            |jobs: &[u64], model: &Model| jobs.iter().filter(|&&id| model.holds(client, id)).count() as u64;
        while is_held(&jobs, &self.model) < count {
            match self.model.reserve(client, Some(0), None, now) {
                Reserve::Job(id) => jobs.push(id.0),
                other => panic!("{count} jobs for client {client}, but {other:?} after {}", jobs.len()),
            }
        }
        assert!(jobs.len() <= batch.most as usize, "client {client} wanted {} jobs", batch.most);
        // Jobs that it has lost in the meantime count, too, with the room that they would have taken.
        let is_full = jobs.len() == batch.most as usize;
        let wanted = jobs.len();
        jobs.retain(|&id| self.model.holds(client, id));
        let mut reply = format!("RESERVED_BATCH {count}\r\n").into_bytes();
        for &id in &jobs {
            let Answer::Reply(job) = self.job("RESERVED", id) else { unreachable!("a job is a reply") };
            reply.extend(job);
        }
        let has_room = unread + reply.len() <= LEAST_ROOM_BYTES && jobs.len() == wanted;
        if has_room && !is_full {
            let more = self.model.clone().reserve(client, Some(0), None, now);
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
        let Accepted { priority, delay_s, ttr_s, tags, .. } = accepted;
        if let Some(double) = self.model.double(client, &tags, priority, now) {
            return match double {
                Double::OfDeleted(first) => reply(format!("INSERTED {first} DELETED")),
                Double::Of(first, state, priority) => {
                    let word = state.as_str().to_uppercase();
                    let priority = priority.map(|priority| format!(" {priority}")).unwrap_or_default();
                    reply(format!("INSERTED {first} {word}{priority}"))
                }
            };
        }
        let new = NewJob { id: JobId(id), priority: Priority(priority), delay_s, ttr_s };
        self.model.put_tagged(client, new, bytes, tags, now);
        reply(format!("INSERTED {id}"))
    }

    /// Executes a line that has arrived completely. `number` is the first of the server's reply, for what only the
    /// server can know.
    pub fn line(
        &mut self,
        client: u32,
        request: &Request,
        number: u64,
        unread: usize,
        now: Timestamp,
    ) -> Answer {
        self.count(request);
        let using = self.model.client(client).using;
        let model = &mut self.model;
        match *request {
            Request::Put { size, tags, .. } => match tags {
                _ if size > self.max_job_bytes => Answer::Body(Err("JOB_TOO_BIG")),
                Tags::Unknown(_) => reply("BAD_FORMAT"),
                Tags::Bad(_) => Answer::Body(Err("BAD_FORMAT")),
                Tags::Good(_) => Answer::Body(Ok(model.take_id(client))),
            },
            Request::Body { .. } => unreachable!("a body is no line"),
            Request::Use(tube) => {
                model.use_tube(client, tube);
                reply(format!("USING {tube}"))
            }
            Request::Watch(tube) => reply(format!("WATCHING {}", model.watch(client, tube))),
            Request::Ignore(tube) => match model.ignore(client, tube) {
                Some(count) => reply(format!("WATCHING {count}")),
                None => reply("NOT_IGNORED"),
            },
            Request::Reserve { timeout_s } | Request::ReserveWithAbort { timeout_s } => {
                match model.reserve(client, timeout_s, Some(number), now) {
                    Reserve::Job(id) => self.job("RESERVED", id.0),
                    Reserve::DeadlineSoon => reply("DEADLINE_SOON"),
                    Reserve::TimedOut => reply("TIMED_OUT"),
                    Reserve::Waiting => Answer::None,
                    Reserve::Unfinished => unreachable!("the model looks at all tubes at once"),
                }
            }
            Request::ReserveBatch { most, timeout_s } => {
                self.batches.insert(client, Batch { most, first: None });
                match (model.reserve(client, timeout_s.or(Some(0)), None, now), timeout_s) {
                    (Reserve::Job(id), _) => {
                        self.batches.insert(client, Batch { most, first: Some(id.0) });
                        self.answer_batch(client, number, unread, now)
                    }
                    (Reserve::Waiting, _) => Answer::None,
                    (_, None) => self.answer_batch(client, 0, unread, now),
                    (Reserve::DeadlineSoon, _) => self.no_batch(client, "DEADLINE_SOON"),
                    (_, _) => self.no_batch(client, "TIMED_OUT"),
                }
            }
            Request::DeleteBatch(ref ids) => {
                let deleted = ids.iter().filter(|&&id| model.delete(client, id, now)).count();
                reply(format!("DELETED_BATCH {deleted} {}", ids.len() - deleted))
            }
            Request::TouchAll => reply(format!("TOUCHED_ALL {}", model.touch_all(client, now))),
            Request::ReserveMode(mode) => {
                model.set_weighted(client, mode.starts_with("weighted"));
                reply(format!("USING {mode}"))
            }
            Request::WatchWithWeight { tube, .. } => reply(format!("WATCHING {}", model.watch(client, tube))),
            Request::ReserveJob(id) => {
                if model.reserve_job(client, id, now) {
                    self.job("RESERVED", id)
                } else {
                    reply("NOT_FOUND")
                }
            }
            Request::Delete(id) => found(model.delete(client, id, now), "DELETED"),
            Request::Release { id, priority, delay_s } => {
                match model.release(client, id, priority, delay_s, now) {
                    Some(Released::Queued) => reply("RELEASED"),
                    Some(Released::Buried) => reply("BURIED"),
                    None => reply("NOT_FOUND"),
                }
            }
            Request::Bury { id, priority } => found(model.bury(client, id, priority, now), "BURIED"),
            Request::Touch(id) => found(model.touch(client, id, now), "TOUCHED"),
            Request::Peek(id) => self.peek(self.model.job(id).map(|job| job.id)),
            Request::PeekReady => self.peek(self.model.first_ready(using)),
            Request::PeekDelayed => self.peek(self.model.first_shown_as_delayed(using)),
            Request::PeekBuried => self.peek(self.model.first_buried(using)),
            Request::Kick(bound) => reply(format!("KICKED {}", model.kick(client, bound, now))),
            Request::KickJob(id) => found(model.kick_job(id, now), "KICKED"),
            Request::Stats => reply(format!("OK {}\r\n{}", ANY_NUMBER as char, self.stats(now))),
            Request::StatsJob(id) => data(self.stats_job(id, now)),
            Request::StatsTube(tube) => match self.stats_tube(tube, now) {
                Some(text) => reply(format!("OK {}\r\n{text}", ANY_NUMBER as char)),
                None => reply("NOT_FOUND"),
            },
            Request::StatsGroup(name) => data(self.stats_group(name)),
            Request::ListTubes => data(Some(self.list(&self.model.listed))),
            Request::ListTubeUsed => reply(format!("USING {}", model.tube(using).name)),
            Request::ListTubesWatched => {
                let watching = model.client(client).watching.clone();
                data(Some(self.list(&watching)))
            }
            Request::PauseTube { tube, delay_s } => found(model.pause_tube(tube, delay_s, now), "PAUSED"),
            Request::FlushTube(tube) => reply(format!("FLUSHED {}", model.flush(tube, false, now))),
            Request::FlushBuried(tube) => reply(format!("FLUSHED {}", model.flush(tube, true, now))),
            Request::ListJobs { tube, state, limit, after } => {
                data(self.list_jobs(tube, state, limit.unwrap_or(100), after, now))
            }
            Request::PeekReserved => self.peek(self.model.first_reserved_of(using)),
            Request::Move { id, tube } => match model.duplicate_in(id, tube) {
                Some(double) if model.is_movable(client, id) => reply(format!("EXISTS {double}")),
                _ => found(model.move_job(client, id, tube, now), "MOVED"),
            },
            Request::Reprioritize { id, priority } => {
                found(model.reprioritize(id, priority), "REPRIORITIZED")
            }
            Request::Drain => {
                self.draining = true;
                reply("DRAINING")
            }
            Request::Undrain => {
                self.draining = false;
                reply("NOT_DRAINING")
            }
            Request::Quit => Answer::Close,
            Request::BadFormat => reply("BAD_FORMAT"),
            Request::UnknownCommand => reply("UNKNOWN_COMMAND"),
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

    fn count(&mut self, request: &Request) {
        let verb = match request {
            Request::Put { .. } => Verb::Put,
            Request::Use(_) => Verb::Use,
            Request::Watch(_) | Request::WatchWithWeight { .. } => Verb::Watch,
            Request::Ignore(_) => Verb::Ignore,
            Request::Reserve { timeout_s: None } => Verb::Reserve,
            Request::Reserve { timeout_s: Some(_) } => Verb::ReserveWithTimeout,
            Request::ReserveJob(_) => Verb::ReserveJob,
            Request::Delete(_) => Verb::Delete,
            Request::Release { .. } => Verb::Release,
            Request::Bury { .. } => Verb::Bury,
            Request::Touch(_) => Verb::Touch,
            Request::Peek(_) => Verb::Peek,
            Request::PeekReady => Verb::PeekReady,
            Request::PeekDelayed => Verb::PeekDelayed,
            Request::PeekBuried => Verb::PeekBuried,
            Request::Kick(_) => Verb::Kick,
            Request::KickJob(_) => Verb::KickJob,
            Request::Stats => Verb::Stats,
            Request::StatsJob(_) => Verb::StatsJob,
            Request::StatsTube(_) => Verb::StatsTube,
            Request::StatsGroup(_) => Verb::StatsGroup,
            Request::ListTubes => Verb::ListTubes,
            Request::ListTubeUsed => Verb::ListTubeUsed,
            Request::ListTubesWatched => Verb::ListTubesWatched,
            Request::PauseTube { .. } => Verb::PauseTube,
            Request::FlushTube(_) => Verb::FlushTube,
            Request::FlushBuried(_) => Verb::FlushBuried,
            Request::ListJobs { .. } => Verb::ListJobs,
            Request::PeekReserved => Verb::PeekReserved,
            Request::Move { .. } => Verb::Move,
            Request::Reprioritize { .. } => Verb::Reprioritize,
            Request::Drain => Verb::Drain,
            Request::Undrain => Verb::Undrain,
            Request::ReserveBatch { .. } => Verb::ReserveBatch,
            Request::DeleteBatch(_) => Verb::DeleteBatch,
            Request::TouchAll => Verb::TouchAll,
            Request::ReserveMode(_) => Verb::ReserveMode,
            Request::ReserveWithAbort { .. } => Verb::ReserveWithAbort,
            Request::Quit => Verb::Quit,
            Request::BadFormat | Request::UnknownCommand => {
                self.malformed += 1;
                return;
            }
            Request::Body { .. } => return,
        };
        self.commands[verb as usize] += 1;
    }

    fn stats(&self, now: Timestamp) -> String {
        let model = &self.model;
        let jobs = model.counts(None);
        let mut text = "---\n".to_owned();
        let mut add = |key: &str, value: &dyn std::fmt::Display| {
            writeln!(text, "{key}: {value}").expect("a string takes all text");
        };
        add("current-jobs-urgent", &jobs.urgent);
        add("current-jobs-ready", &jobs.ready);
        add("current-jobs-reserved", &jobs.reserved);
        add("current-jobs-delayed", &jobs.delayed);
        add("current-jobs-buried", &jobs.buried);
        for verb in COUNTED {
            add(&format!("cmd-{}", verb.as_str()), &self.commands[verb as usize]);
        }
        add("job-timeouts", &model.counters.timeouts);
        add("total-jobs", &model.counters.puts);
        add("max-job-size", &self.max_job_bytes);
        add("current-tubes", &model.listed.len());
        add("current-connections", &model.clients.len());
        add("current-producers", &model.clients_that(|client| client.producer));
        add("current-workers", &model.clients_that(|client| client.worker));
        add("current-waiting", &model.clients_that(|client| client.wait.is_some()));
        add("total-connections", &self.connections);
        add("pid", &PID);
        add("version", &format!("\"{VERSION}\""));
        add("rusage-utime", &"1.500000");
        add("rusage-stime", &"0.000007");
        add("uptime", &now.since_s(self.started_at));
        for key in ["oldest-index", "current-index", "records-migrated", "records-written"] {
            add(&format!("binlog-{key}"), &0);
        }
        add("binlog-max-size", &BINLOG_FILE_BYTES);
        add("draining", &self.draining);
        add("id", &"a123456789abcdef");
        add("hostname", &"\"host\"");
        add("os", &"\"#1 SMP\"");
        add("platform", &"\"x86_64\"");
        // C's keys end here.
        add("cmd-reserve-job", &self.commands[Verb::ReserveJob as usize]);
        add("cmd-kick-job", &self.commands[Verb::KickJob as usize]);
        add("job-reserves", &model.counters.reserves);
        add("job-deletes", &model.counters.deletes);
        add("job-releases", &model.counters.releases);
        add("job-buries", &model.counters.buries);
        add("job-kicks", &model.counters.kicks);
        add("job-poisoned", &model.counters.poisoned);
        add("job-bytes", &job_bytes_of(model));
        for key in ["files", "bytes", "live-bytes", "syncs", "sync-microseconds"] {
            add(&format!("binlog-{key}"), &0);
        }
        add("binlog-state", &"off");
        add("buffer-bytes", &(ANY_NUMBER as char));
        add("connections-refused", &0);
        add("cmd-quit", &self.commands[Verb::Quit as usize]);
        add("malformed-commands", &self.malformed);
        add("rejected-puts", &self.rejected_puts);
        for verb in EXTENSIONS {
            add(&format!("cmd-{}", verb.as_str()), &self.commands[verb as usize]);
        }
        add("job-expirations", &model.counters.expirations);
        let cooldowns = model.cooldowns.iter().map(|cooldown| cooldown.key);
        let asked = model.jobs.iter().filter_map(|job| job.tags.idempotency);
        let asked = asked.filter(|tag| tag.cooldown_s > 0).map(|tag| tag.key);
        add("current-cooldowns", &model.cooldowns.len());
        add("cooldown-bytes", &cooldowns.map(|key| 192 + key.len()).sum::<usize>());
        add("cooldown-bytes-reserved", &asked.map(|key| 192 + key.len()).sum::<usize>());
        let words: Vec<&str> = EXTENSIONS.iter().map(|verb| verb.as_str()).collect();
        if self.has_rules {
            add("identity", &"\"(strangers.unix)\"");
            add("identity-connections", &self.model.clients.len());
            for key in ["job-bytes", "log-ins", "log-ins-refused", "commands-forbidden", "puts-delayed"] {
                add(&format!("identity-{key}"), &0);
            }
            add("identity-managing-commands", &(ANY_NUMBER as char));
        }
        let auth = if self.has_rules { " auth" } else { "" };
        add("extensions", &format!("\"{} idp con grp aft exp{auth}\"", words.join(" ")));
        text
    }

    fn list_jobs(
        &self,
        tube: &str,
        state: JobState,
        limit: usize,
        after: Option<(u64, u64)>,
        now: Timestamp,
    ) -> Option<String> {
        let is_held = |id| self.model.job(id).is_some_and(|job| job.held);
        let jobs = self.model.in_order(self.model.find(tube)?, state);
        let is_rest = |&(position, id): &(u64, u64)| is_held(id) || Some((position, id)) > after;
        let rest: Vec<_> = jobs.into_iter().filter(is_rest).collect();
        let next = match rest.get(limit - 1) {
            Some((position, id)) if rest.len() > limit => {
                let word = if is_held(*id) { "held" } else { state.as_str() };
                format!("{word}-{position}-{id}")
            }
            _ => String::new(),
        };
        let mut text = format!("---\nnext: \"{next}\"\njobs:\n");
        for (position, id) in rest.into_iter().take(limit) {
            let job = self.model.job(id)?;
            let left_s = match job.state {
                State::Ready | State::Buried { .. } => 0,
                State::Delayed { .. } | State::Reserved { .. } => Timestamp(position).since_s(now),
            };
            let (age_s, counters) = (now.since_s(job.created_at), job.counters);
            writeln!(
                text,
                "- {{id: {id}, pri: {}, age: {age_s}, delay: {}, ttr: {}, time-left: {left_s}, bytes: {}, \
                 reserves: {}, timeouts: {}, releases: {}, buries: {}, kicks: {}{}}}",
                job.priority,
                job.delay_s,
                job.ttr_s,
                job.body.len(),
                counters.reserves,
                counters.timeouts,
                counters.releases,
                counters.buries,
                counters.kicks,
                tags_of(&self.model, job, now)
                    .iter()
                    .filter(|(_, value)| !["\"\"", "0", "false"].contains(&value.as_str()))
                    .map(|(key, value)| format!(", {key}: {value}"))
                    .collect::<String>(),
            )
            .expect("a string takes all text");
        }
        Some(text)
    }

    /// The ages of a tube's oldest jobs, and its waiting and running times.
    fn ages_and_times(&self, place: usize, now: Timestamp) -> String {
        let oldest = |state| self.model.oldest(place, state);
        let age_s = |state| oldest(state).map_or(0, |job| now.since_s(job.created_at));
        let mut text = format!(
            "oldest-ready-age: {}\noldest-delayed-age: {}\noldest-buried-age: {}\noldest-ready-id: {}\n",
            age_s(JobState::Ready),
            age_s(JobState::Delayed),
            age_s(JobState::Buried),
            oldest(JobState::Ready).map_or(0, |job| job.id),
        );
        let any = ANY_NUMBER as char;
        let seconds = |ns: u64| format!("{}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000);
        for (kind, times) in [("wait", self.model.waits(place, now)), ("run", self.model.runs(place, now))] {
            write!(
                text,
                "{kind}-time-count: {}\n{kind}-time-mean: {}\n{kind}-time-p50: {any}.{any}\n\
                 {kind}-time-p95: {any}.{any}\n{kind}-time-p99: {any}.{any}\n{kind}-time-max: {}\n",
                times.count,
                seconds(times.mean_ns),
                seconds(times.max_ns),
            )
            .expect("a string takes all text");
        }
        text
    }

    fn stats_job(&self, id: u64, now: Timestamp) -> Option<String> {
        let job = self.model.job(id)?;
        let tube = &self.model.tube(job.tube).name;
        let (state, left_s) = match job.state {
            State::Ready => ("ready", 0),
            State::Buried { .. } => ("buried", 0),
            State::Delayed { until } => ("delayed", until.since_s(now)),
            State::Reserved { until, .. } => ("reserved", until.since_s(now)),
        };
        let (age_s, counters) = (now.since_s(job.created_at), job.counters);
        Some(format!(
            "---\nid: {id}\ntube: \"{tube}\"\nstate: {state}\npri: {}\nage: {age_s}\ndelay: {}\nttr: {}\n\
             time-left: {left_s}\nfile: 0\nreserves: {}\ntimeouts: {}\nreleases: {}\nburies: {}\nkicks: {}\n{}",
            job.priority,
            job.delay_s,
            job.ttr_s,
            counters.reserves,
            counters.timeouts,
            counters.releases,
            counters.buries,
            counters.kicks,
            tags_of(&self.model, job, now)
                .iter()
                .map(|(key, value)| format!("{key}: {value}\n"))
                .collect::<String>(),
        ))
    }

    fn stats_group(&self, name: &str) -> Option<String> {
        let members = self.model.members(name.into()).count();
        let waiting = self.model.waiting_for(name.into()).count();
        let is_buried = |job: &&Job| matches!(job.state, State::Buried { .. });
        let buried = self.model.members(name.into()).filter(is_buried).count();
        (members + waiting > 0 || self.model.ended_groups.contains(name)).then(|| {
            format!(
                "---\nname: \"{name}\"\npending: {members}\nburied: {buried}\ncomplete: {}\nwaiting-jobs: {waiting}\n",
                members == 0
            )
        })
    }

    fn stats_tube(&self, name: &str, now: Timestamp) -> Option<String> {
        let place = self.model.find(name)?;
        let tube = self.model.tube(place);
        let jobs = self.model.counts(Some(place));
        let (pause_until, pause_s) = tube.pause.unwrap_or_default();
        let cooldowns = self.model.cooldowns.iter().filter(|cooldown| cooldown.tube == place);
        let cooldowns: Vec<Name<'_>> = cooldowns.map(|cooldown| cooldown.key).collect();
        let watching = self.model.clients_that(|client| client.watching.contains(&place));
        let waiting =
            self.model.clients_that(|client| client.watching.contains(&place) && client.wait.is_some());
        Some(format!(
            "---\nname: \"{name}\"\ncurrent-jobs-urgent: {}\ncurrent-jobs-ready: {}\n\
             current-jobs-reserved: {}\ncurrent-jobs-delayed: {}\ncurrent-jobs-buried: {}\ntotal-jobs: {}\n\
             current-using: {}\ncurrent-watching: {watching}\ncurrent-waiting: {waiting}\ncmd-delete: {}\n\
             cmd-pause-tube: {}\npause: {pause_s}\npause-time-left: {}\n\
             job-reserves: {}\njob-timeouts: {}\njob-releases: {}\njob-buries: {}\njob-kicks: {}\n\
             job-poisoned: {}\njob-expirations: {}\ncurrent-cooldowns: {}\ncooldown-bytes: {}\n{}",
            jobs.urgent,
            jobs.ready,
            jobs.reserved,
            jobs.delayed,
            jobs.buried,
            tube.counters.puts,
            self.model.clients_that(|client| client.using == place),
            tube.counters.deletes,
            tube.pauses,
            pause_until.since_s(now),
            tube.counters.reserves,
            tube.counters.timeouts,
            tube.counters.releases,
            tube.counters.buries,
            tube.counters.kicks,
            tube.counters.poisoned,
            tube.counters.expirations,
            cooldowns.len(),
            cooldowns.iter().map(|key| 192 + key.len()).sum::<usize>(),
            self.ages_and_times(place, now),
        ))
    }
}

/// The keys of `stats-job` about the tags.
fn tags_of(model: &Model, job: &Job, now: Timestamp) -> [(&'static str, String); 8] {
    let name = |name: Option<&str>| format!("\"{}\"", name.unwrap_or_default());
    let TagSet { idempotency, concurrency, group, after, .. } = job.tags;
    [
        ("idempotency-key", name(idempotency.map(|tag| tag.key.as_str()))),
        ("idempotency-ttl", idempotency.map_or(0, |tag| tag.cooldown_s).to_string()),
        ("group", name(group.map(Name::as_str))),
        ("after-group", name(after.map(|after| after.group.as_str()))),
        ("concurrency-key", name(concurrency.map(|tag| tag.key.as_str()))),
        ("concurrency-limit", concurrency.map_or(0, |tag| tag.limit).to_string()),
        ("held", job.held.to_string()),
        ("expires-in", model.expires_in_s(job, now).to_string()),
    ]
}

/// The memory of the jobs, with their groups and the keys of reserved jobs.
fn job_bytes_of(model: &Model) -> usize {
    let jobs: usize = model.jobs.iter().map(job_bytes).sum();
    let groups: BTreeSet<Name<'_>> = model.jobs.iter().filter_map(|job| job.tags.group).collect();
    let reserved = model.jobs.iter().filter(|job| matches!(job.state, State::Reserved { .. }));
    let keys: BTreeSet<Name<'_>> = reserved.filter_map(|job| Some(job.tags.concurrency?.key)).collect();
    jobs + groups.iter().map(|name| 152 + name.len()).sum::<usize>() + keys.len() * 40
}

/// The memory of a job, with the tags behind a short body or beside a large one, and their index entries.
fn job_bytes(job: &Job) -> usize {
    let tags = match job.tags.encoded_len() {
        0 => 0,
        len @ 1..255 => len + 1,
        len => len + 3,
    };
    let is_behind = job.body.len() + tags < SHARED_FROM_BYTES;
    let kept = if is_behind || tags == 0 { tags } else { 48 + job.tags.encoded_len() };
    let TagSet { idempotency, concurrency, after, expires_after_s, .. } = job.tags;
    let indexed = [
        (idempotency.is_some(), 24),
        (concurrency.is_some(), 48),
        (after.is_some(), 32),
        (expires_after_s.is_some(), 24),
    ];
    let indexed = indexed.iter().map(|&(is_there, bytes)| if is_there { bytes } else { 0 }).sum::<usize>();
    job.body.len() + RECORD_BYTES + kept + indexed
}

/// The commands that C does not have, in the order of `stats`.
const EXTENSIONS: [Verb; 14] = [
    Verb::FlushTube,
    Verb::FlushBuried,
    Verb::ListJobs,
    Verb::PeekReserved,
    Verb::Move,
    Verb::Reprioritize,
    Verb::Drain,
    Verb::Undrain,
    Verb::ReserveBatch,
    Verb::DeleteBatch,
    Verb::TouchAll,
    Verb::ReserveMode,
    Verb::ReserveWithAbort,
    Verb::StatsGroup,
];

/// The commands that `stats` counts, in its order.
const COUNTED: [Verb; 22] = [
    Verb::Put,
    Verb::Peek,
    Verb::PeekReady,
    Verb::PeekDelayed,
    Verb::PeekBuried,
    Verb::Reserve,
    Verb::ReserveWithTimeout,
    Verb::Delete,
    Verb::Release,
    Verb::Use,
    Verb::Watch,
    Verb::Ignore,
    Verb::Bury,
    Verb::Kick,
    Verb::Touch,
    Verb::Stats,
    Verb::StatsJob,
    Verb::StatsTube,
    Verb::ListTubes,
    Verb::ListTubeUsed,
    Verb::ListTubesWatched,
    Verb::PauseTube,
];
