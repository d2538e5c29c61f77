//! The data of stats and pages.
//!
//! The bytes that they count are constants here, too: if another figure of the server changes, a reply differs.

use std::collections::BTreeSet;
use std::fmt::Write;

use beanstalkd_protocol::{JobCursor, Origin, Verb};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{JobState, SHARED_FROM_BYTES};
use beanstalkd_types::tags::{Name, TagSet, Trace};
use beanstalkd_types::tube_name::TubeNameRef;

use crate::queue::{Job, Model, State};
use crate::server::{ANY_NUMBER, Server};

/// The bytes that the stats count for a job in addition to its body.
const RECORD_BYTES: usize = if usize::BITS == 64 { 80 } else { 72 };
/// The bytes that they count for a cooldown in addition to its key.
const COOLDOWN_BYTES: usize = 192;
/// The bytes that they count for a group in addition to its name.
const GROUP_BYTES: usize = 152;
/// The bytes that they count for the key of reserved jobs.
const USED_KEY_BYTES: usize = 40;

/// The value of the server's version in `stats`.
pub const VERSION: &str = "2.0";
/// The value of the server's pid in `stats`.
pub const PID: u32 = 4711;
/// The value of the server's binlog file size in `stats`.
pub const BINLOG_FILE_BYTES: u64 = 10_485_760;

impl Server {
    pub(crate) fn stats(&self, now: Timestamp) -> String {
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
        for verb in commands(Origin::C) {
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
        for verb in commands(Origin::Ours) {
            add(&format!("cmd-{}", verb.as_str()), &self.commands[verb as usize]);
        }
        add("job-expirations", &model.counters.expirations);
        let cooldowns = model.cooldowns.iter().map(|cooldown| cooldown.key);
        let asked = model.jobs.iter().filter_map(|job| job.tags.idempotency);
        let asked = asked.filter(|tag| tag.cooldown_s > 0).map(|tag| tag.key);
        add("current-cooldowns", &model.cooldowns.len());
        add("cooldown-bytes", &cooldowns.map(|key| COOLDOWN_BYTES + key.len()).sum::<usize>());
        add("cooldown-bytes-reserved", &asked.map(|key| COOLDOWN_BYTES + key.len()).sum::<usize>());
        add("current-sessions", &model.sessions.len());
        add("dead-jobs", &model.dead);
        let words: Vec<&str> = commands(Origin::Ours).map(Verb::as_str).collect();
        if self.has_rules {
            add("identity", &"\"(strangers.unix)\"");
            add("identity-connections", &self.model.clients.len());
            for key in ["job-bytes", "log-ins", "log-ins-refused", "commands-forbidden", "puts-delayed"] {
                add(&format!("identity-{key}"), &0);
            }
            add("identity-managing-commands", &(ANY_NUMBER as char));
        }
        add("client-id", &(ANY_NUMBER as char));
        let auth = if self.has_rules { " auth" } else { "" };
        add(
            "extensions",
            &format!(
                "\"{} idp con grp aft exp tub trc touch-seconds release-uncounted fractions{auth}\"",
                words.join(" ")
            ),
        );
        text
    }

    pub(crate) fn list_jobs(
        &self,
        tube: &str,
        state: JobState,
        limit: usize,
        after: Option<JobCursor>,
        now: Timestamp,
    ) -> Option<String> {
        let is_held = |id| self.model.job(id).is_some_and(|job| job.held);
        let jobs = self.model.in_order(self.model.find(tube)?, state);
        let after =
            after.map(|JobCursor { position, .. }| (position.is_held, position.number, position.id.0));
        let is_rest = |&(position, id): &(u64, u64)| Some((is_held(id), position, id)) > after;
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
                job.delay_s.whole(),
                job.ttr_s.whole(),
                job.body.len(),
                counters.reserves,
                counters.timeouts,
                counters.releases,
                counters.buries,
                counters.kicks,
                tags_of(&self.model, job, now)
                    .iter()
                    .filter(|(key, value)| *key != "failures"
                        && !["\"\"", "0", "false"].contains(&value.as_str()))
                    .map(|(key, value)| format!(", {key}: {value}"))
                    .collect::<String>(),
            )
            .expect("a string takes all text");
        }
        Some(text)
    }

    /// The ages of a tube's oldest jobs, and its waiting and running times.
    pub(crate) fn ages_and_times(&self, index: usize, now: Timestamp) -> String {
        let oldest = |state| self.model.oldest(index, state);
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
        for (kind, times) in [("wait", self.model.waits(index, now)), ("run", self.model.runs(index, now))] {
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

    pub(crate) fn stats_job(&self, id: u64, now: Timestamp) -> Option<String> {
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
             time-left: {left_s}\nfile: 0\nreserves: {}\ntimeouts: {}\nreleases: {}\nburies: {}\nkicks: {}\n{}\
             waits-for: \"{}\"\n",
            job.priority,
            job.delay_s.whole(),
            job.ttr_s.whole(),
            counters.reserves,
            counters.timeouts,
            counters.releases,
            counters.buries,
            counters.kicks,
            tags_of(&self.model, job, now)
                .iter()
                .map(|(key, value)| format!("{key}: {value}\n"))
                .collect::<String>(),
            self.model.waits_for(job, now).join(" "),
        ))
    }

    pub(crate) fn stats_group(&self, name: TubeNameRef<'_>) -> Option<String> {
        let members = self.model.members(name.into()).count();
        let waiting = self.model.waiting_for(name.into()).count();
        let is_buried = |job: &&Job| matches!(job.state, State::Buried { .. });
        let buried = self.model.members(name.into()).filter(is_buried).count();
        (members + waiting > 0 || self.model.ended_groups.iter().any(|ended| *ended == *name)).then(|| {
            format!(
                "---\nname: \"{name}\"\npending: {members}\nburied: {buried}\ncomplete: {}\nwaiting-jobs: {waiting}\n",
                members == 0
            )
        })
    }

    pub(crate) fn stats_tube(&self, name: &str, now: Timestamp) -> Option<String> {
        let index = self.model.find(name)?;
        let tube = self.model.tube(index);
        let jobs = self.model.counts(Some(index));
        let (pause_until, pause_s) = tube.pause.unwrap_or_default();
        let cooldowns = self.model.cooldowns.iter().filter(|cooldown| cooldown.tube == index);
        let cooldowns: Vec<Name<'_>> = cooldowns.map(|cooldown| cooldown.key).collect();
        let watching = self.model.clients_that(|client| client.watching.contains(&index));
        let waiting =
            self.model.clients_that(|client| client.watching.contains(&index) && client.wait.is_some());
        Some(format!(
            "---\nname: \"{name}\"\ncurrent-jobs-urgent: {}\ncurrent-jobs-ready: {}\n\
             current-jobs-reserved: {}\ncurrent-jobs-delayed: {}\ncurrent-jobs-buried: {}\ntotal-jobs: {}\n\
             current-using: {}\ncurrent-watching: {watching}\ncurrent-waiting: {waiting}\ncmd-delete: {}\n\
             cmd-pause-tube: {}\npause: {pause_s}\npause-time-left: {}\n\
             job-reserves: {}\njob-timeouts: {}\njob-releases: {}\njob-buries: {}\njob-kicks: {}\n\
             job-poisoned: {}\njob-expirations: {}\ncurrent-cooldowns: {}\ncooldown-bytes: {}\n{}\
             rule: \"{}\"\nrejected-full: {}\ndead-jobs: {}\nthrottled: {}\n",
            jobs.urgent,
            jobs.ready,
            jobs.reserved,
            jobs.delayed,
            jobs.buried,
            tube.counters.puts,
            self.model.clients_that(|client| client.using == index),
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
            cooldowns.iter().map(|key| COOLDOWN_BYTES + key.len()).sum::<usize>(),
            self.ages_and_times(index, now),
            self.model.rule_of(index).map_or("", |rule| &rule.pattern),
            tube.rejected,
            tube.dead,
            u8::from(tube.is_closed),
        ))
    }
}

/// The keys of `stats-job` about the tags.
fn tags_of(model: &Model, job: &Job, now: Timestamp) -> [(&'static str, String); 13] {
    let name = |name: Option<&str>| format!("\"{}\"", name.unwrap_or_default());
    let TagSet { idempotency, concurrency, group, after, .. } = job.tags.asked;
    [
        ("idempotency-key", name(idempotency.map(|tag| tag.key.as_str()))),
        ("idempotency-ttl", idempotency.map_or(0, |tag| tag.cooldown_s.rounded_up()).to_string()),
        ("group", name(group.map(Name::as_str))),
        ("after-group", name(after.map(|after| after.group.as_str()))),
        ("concurrency-key", name(concurrency.map(|tag| tag.key.as_str()))),
        ("concurrency-limit", concurrency.map_or(0, |tag| tag.limit).to_string()),
        ("held", job.held.to_string()),
        ("expires-in", model.expires_in_s(job, now).to_string()),
        ("session", name(model.session_of_job(job))),
        ("failures", model.failures(job).to_string()),
        ("dead-from", name(job.tags.dead().map(|dead| dead.from.as_str()))),
        ("dead-since", job.tags.dead().map_or(0, |dead| dead.since_s).to_string()),
        ("trace", name(job.tags.trace.map(Trace::as_str))),
    ]
}

/// The memory of the jobs, with their groups and the keys of reserved jobs.
fn job_bytes_of(model: &Model) -> usize {
    let jobs: usize = model.jobs.iter().map(job_bytes).sum();
    let groups: BTreeSet<Name<'_>> = model.jobs.iter().filter_map(|job| job.tags.group).collect();
    let reserved = model.jobs.iter().filter(|job| matches!(job.state, State::Reserved { .. }));
    let keys: BTreeSet<Name<'_>> = reserved.filter_map(|job| Some(job.tags.concurrency?.key)).collect();
    jobs + groups.iter().map(|name| GROUP_BYTES + name.len()).sum::<usize>() + keys.len() * USED_KEY_BYTES
}

/// The memory of a job, with the tags after a short body or beside a large one, and their index entries.
fn job_bytes(job: &Job) -> usize {
    let tags = match job.tags.encoded_len() {
        0 => 0,
        len @ 1..255 => len + 1,
        len => len + 3,
    };
    let is_after_body = job.body.len() + tags < SHARED_FROM_BYTES;
    let kept = if is_after_body || tags == 0 { tags } else { 48 + job.tags.encoded_len() };
    let TagSet { idempotency, concurrency, after, expires_after_s, .. } = job.tags.asked;
    let indexed = [
        (idempotency.is_some(), 24),
        (concurrency.is_some(), 48),
        (after.is_some(), 32),
        (expires_after_s.is_some(), 24),
    ];
    let indexed = indexed.iter().map(|&(is_there, bytes)| if is_there { bytes } else { 0 }).sum::<usize>();
    job.body.len() + RECORD_BYTES + kept + indexed
}

/// The commands of this origin, in the order of `stats`.
fn commands(origin: Origin) -> impl Iterator<Item = Verb> {
    Verb::ALL.into_iter().filter(move |verb| verb.origin() == origin)
}
