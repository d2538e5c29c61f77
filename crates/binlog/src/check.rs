//! Reads a log without changing it: `--check` and `--dump`.
//!
//! Owns: the report and the lines of the dump. It reads a store that is opened read-only.

use std::collections::BTreeMap;
use std::{fmt, io};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_core::ser::{Serialize, SerializeMap, Serializer};

use super::attachment::LoggedCooldown;
use super::replay::{FileEnd, FileKind, FileState, LoggedJobs, Replay, ReplayedJob, Warning};
use super::storage::Storage;
use super::{LogFault, OpenError};
use crate::clock::NS_PER_S;
use crate::job::{Counters, JobId, JobState};
use crate::json;
use crate::tags::{After, Concurrency, Dead, Idempotency, JobTags};
use crate::wall_clock::WallTime;

/// The contents of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct FileReport {
    pub index: u32,
    /// Writer or state of the file: "written by this server", "written by C", "blank" or "damaged".
    pub writer: &'static str,
    pub bytes: u64,
    /// Whole records, markers not counted.
    pub records: u64,
    /// Live jobs whose full record is in it.
    pub live: u64,
    /// How many of them have tags.
    pub tagged: u64,
    /// Cooldowns in it that have no record of their end, including those whose time has passed.
    pub cooldowns: u64,
    /// The offset at which it is damaged, in bytes.
    pub broken_at: Option<u64>,
}

/// The contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The files, oldest first.
    pub files: Vec<FileReport>,
    /// The number of jobs that a server would have after starting.
    pub jobs: u64,
    /// The reasons why a server would not start.
    pub faults: Vec<LogFault>,
    /// Further warnings for the operator.
    pub warnings: Vec<Warning>,
}

impl CheckReport {
    /// Whether a server would start and find everything that was written.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty() && self.files.iter().all(|file| file.broken_at.is_none())
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            let FileReport { index, writer, bytes, records, live, tagged, cooldowns, broken_at } = file;
            write!(out, "binlog.{index}: {writer}, bytes: {bytes}, records: {records}, live jobs: {live}, ")?;
            if *tagged > 0 {
                write!(out, "with tags: {tagged}, ")?;
            }
            if *cooldowns > 0 {
                write!(out, "cooldowns: {cooldowns}, ")?;
            }
            match broken_at {
                Some(offset) => writeln!(out, "damaged at {offset}")?,
                None => writeln!(out, "0 damaged")?,
            }
        }
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        for fault in &self.faults {
            writeln!(out, "error: {fault}")?;
        }
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let (files, jobs) = (self.files.len() as u64, self.jobs);
        writeln!(out, "{files} file{}, {jobs} job{}", plural(files), plural(jobs))
    }
}

/// Checks the log in `storage` without changing it.
///
/// # Errors
/// If it cannot be read.
pub fn check(storage: &mut dyn Storage) -> Result<CheckReport, OpenError> {
    let replay = Replay::read(storage, false)?;
    let judgement = replay.judge();
    let LoggedJobs { files, tagged: found, .. } = &replay.jobs;
    let mut tagged = BTreeMap::new();
    for (id, _) in found.tags.iter() {
        *tagged.entry(files.file_of(id).unwrap_or(0)).or_default() += 1;
    }
    let cooldowns = files.cooldowns_by_file();
    let report = |file: &FileState| {
        let in_file = |counts: &BTreeMap<u32, u64>| counts.get(&file.index).copied().unwrap_or(0);
        report(file, files.live_in(file.index), in_file(&tagged), in_file(&cooldowns))
    };
    Ok(CheckReport {
        files: replay.files.iter().map(report).collect(),
        jobs: replay.jobs.alive.len() as u64,
        faults: judgement.faults,
        warnings: judgement.warnings,
    })
}

/// The report on a file with this number of live jobs, of tagged ones among them, and of cooldowns.
fn report(file: &FileState, live: u64, tagged: u64, cooldowns: u64) -> FileReport {
    let (writer, readable) = match file.kind {
        FileKind::Ours { .. } => ("written by this server", true),
        FileKind::C(_) => ("written by C", true),
        FileKind::Blank => ("blank", true),
        FileKind::BrokenHeader | FileKind::Misplaced(_) | FileKind::UnknownVersion(_) => ("damaged", false),
    };
    let broken_at = match (readable, file.file_end) {
        (false, _) => Some(0),
        (true, FileEnd::Clean) => None,
        (true, FileEnd::Torn | FileEnd::DataBeyond) => Some(file.end),
    };
    FileReport {
        index: file.index,
        writer,
        bytes: file.bytes,
        records: file.records + file.records_beyond,
        live: live - cooldowns,
        tagged,
        cooldowns,
        broken_at,
    }
}

/// Writes each live job of the log in `storage` to `out`, as one JSON object a line, by ascending id, then each
/// cooldown; returns how many files the log has. The store is not changed. Damaged parts are skipped as far as
/// possible.
///
/// # Errors
/// If the log cannot be read; an error of `out` is the inner [`io::Error`].
pub fn dump(storage: &mut dyn Storage, out: &mut dyn io::Write) -> Result<io::Result<usize>, OpenError> {
    let mut replay = Replay::read(storage, true)?;
    let tagged = &mut replay.jobs.tagged;
    for group in tagged.groups_without_members() {
        tagged.free_group(group.as_bytes());
    }
    let written = write_jobs(&replay.jobs, out).and_then(|()| out.flush());
    Ok(written.map(|()| replay.files.len()))
}

/// Writes a line for each job, and then one for each cooldown.
fn write_jobs(jobs: &LoggedJobs, out: &mut dyn io::Write) -> io::Result<()> {
    for (id, job) in jobs.alive.iter() {
        let counters = jobs.histories.get(job.history);
        let tube = jobs.tubes.name(job.tube).as_str();
        let tags = JobTags::decode_checked(jobs.tagged.of(id));
        json::write_line(&mut *out, &DumpedJob { id, job, counters, tube, tags })?;
    }
    for (job, cooldown) in jobs.tagged.cooldowns.iter() {
        json::write_line(&mut *out, &DumpedCooldown { job, cooldown })?;
    }
    Ok(())
}

/// A job in the dump. Times are seconds since 1970, rounded down. Only the words of tags have fractions.
struct DumpedJob<'a> {
    id: JobId,
    job: &'a ReplayedJob,
    counters: Counters,
    tube: &'a str,
    tags: Option<JobTags<'a>>,
}

impl Serialize for DumpedJob<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { id, job, counters, tube, tags } = self;
        let end_of_delay = if job.state == JobState::Delayed { job.deadline_at } else { WallTime::EPOCH };
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("id", &id.0)?;
        line.serialize_entry("tube", tube)?;
        line.serialize_entry("state", job.state.as_str())?;
        line.serialize_entry("pri", &job.priority.0)?;
        line.serialize_entry("delay", &job.delay_s)?;
        line.serialize_entry("ttr", &job.whole_ttr_s)?;
        line.serialize_entry("created", &(job.created_at.since_epoch_ns() / NS_PER_S))?;
        line.serialize_entry("deadline", &(end_of_delay.since_epoch_ns() / NS_PER_S))?;
        line.serialize_entry("reserves", &counters.reserves)?;
        line.serialize_entry("timeouts", &counters.timeouts)?;
        line.serialize_entry("releases", &counters.releases)?;
        line.serialize_entry("buries", &counters.buries)?;
        line.serialize_entry("kicks", &counters.kicks)?;
        if let Some(tags) = tags {
            write_tags(&mut line, self, tags)?;
        }
        let body = job.body.as_slice();
        match std::str::from_utf8(body) {
            Ok(text) => {
                line.serialize_entry("encoding", "utf-8")?;
                line.serialize_entry("body", text)?;
            }
            Err(_) => {
                line.serialize_entry("encoding", "base64")?;
                line.serialize_entry("body", &BASE64_STANDARD.encode(body))?;
            }
        }
        line.end()
    }
}

/// The tags of a job, by the keys of `stats-job`, and all together in the words of `put`. `expires-in` changes with
/// time, so `expires` gives the instant instead, as long as no client has reserved the job.
fn write_tags<M: SerializeMap>(
    line: &mut M,
    dumped: &DumpedJob<'_>,
    tags: &JobTags<'_>,
) -> Result<(), M::Error> {
    let mut words = Vec::new();
    if let Some(Idempotency { key, cooldown_s }) = tags.idempotency {
        line.serialize_entry("idempotency-key", key.as_str())?;
        line.serialize_entry("idempotency-ttl", &cooldown_s.rounded_up())?;
        words.push(format!("idp:{key}:{cooldown_s}"));
    }
    if let Some(Concurrency { key, limit }) = tags.concurrency {
        line.serialize_entry("concurrency-key", key.as_str())?;
        line.serialize_entry("concurrency-limit", &limit)?;
        words.push(format!("con:{key}:{limit}"));
    }
    if let Some(group) = tags.group {
        line.serialize_entry("group", group.as_str())?;
        words.push(format!("grp:{group}"));
    }
    if let Some(After { group, is_free }) = tags.after {
        line.serialize_entry("after-group", group.as_str())?;
        line.serialize_entry("held", &!is_free)?;
        words.push(format!("aft:{group}"));
    }
    if let Some(seconds) = tags.expires_after_s {
        if dumped.counters.reserves == 0 {
            let expires_at_ns = dumped.job.created_at.since_epoch_ns().saturating_add(seconds.as_ns());
            line.serialize_entry("expires", &(expires_at_ns / NS_PER_S))?;
        }
        words.push(format!("exp:{seconds}"));
    }
    if let Some(trace) = tags.trace {
        line.serialize_entry("trace", trace.as_str())?;
        words.push(format!("trc:{}", trace.as_str()));
    }
    if let Some(owner) = tags.owner {
        line.serialize_entry("owner", owner.as_str())?;
    }
    if let Some(Dead { from, since_s, .. }) = tags.dead() {
        line.serialize_entry("dead-from", from.as_str())?;
        line.serialize_entry("dead-since", &since_s)?;
    }
    line.serialize_entry("tags", &words)
}

/// A cooldown in the dump: `job` is the job whose delete started it.
struct DumpedCooldown<'a> {
    job: JobId,
    cooldown: LoggedCooldown<'a>,
}

impl Serialize for DumpedCooldown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LoggedCooldown { tube, key, until } = self.cooldown;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("cooldown", key)?;
        line.serialize_entry("tube", tube)?;
        line.serialize_entry("job", &self.job.0)?;
        line.serialize_entry("until", &(until.since_epoch_ns() / NS_PER_S))?;
        line.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Body, Priority};
    use crate::tags::{TagSet, Trace};

    fn dumped<'a>(tube: &'a str, tags: &'a [u8], body: &'a [u8]) -> String {
        let job = ReplayedJob {
            body: Body::copy_of(body).unwrap(),
            created_at: WallTime(5_999_999_999),
            deadline_at: WallTime(7_999_999_999),
            history: None,
            priority: Priority(0),
            delay_s: 0,
            whole_ttr_s: 60,
            ttr_thousandths: 0,
            tube: 0,
            state: JobState::Ready,
        };
        let (counters, tags) = (Counters::default(), JobTags::decode_checked(tags));
        json::line(&DumpedJob { id: JobId(7), job: &job, counters, tube, tags })
    }

    #[test]
    fn bodies_are_written_so_that_json_can_hold_them() {
        assert_eq!(
            dumped("a/b", &[], "say \"\\é\u{1}\r\n".as_bytes()),
            "{\"id\":7,\"tube\":\"a/b\",\"state\":\"ready\",\"pri\":0,\"delay\":0,\"ttr\":60,\"created\":5,\
             \"deadline\":0,\"reserves\":0,\"timeouts\":0,\"releases\":0,\"buries\":0,\"kicks\":0,\
             \"encoding\":\"utf-8\",\"body\":\"say \\\"\\\\é\\u0001\\r\\n\"}\n"
        );
        let line = dumped("a/b", &[], b"\xff\xfe");
        assert!(line.ends_with("\"encoding\":\"base64\",\"body\":\"//4=\"}\n"), "{line}");
    }

    #[test]
    fn tags_are_written_by_the_keys_of_stats_job_and_in_the_words_of_put() {
        let tags = TagSet {
            idempotency: Some(Idempotency { key: "i".try_into().unwrap(), cooldown_s: 30.into() }),
            concurrency: Some(Concurrency { key: "c".try_into().unwrap(), limit: 2 }),
            group: Some("g".try_into().unwrap()),
            after: Some(After { group: "a".try_into().unwrap(), is_free: false }),
            expires_after_s: Some(100.into()),
            trace: Trace::check(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        };
        let tags = JobTags { owner: Some("team".try_into().unwrap()), ..tags.into() };
        let mut bytes = Vec::new();
        tags.encode(&mut bytes).unwrap();
        let line = dumped("t", &bytes, b"");
        assert!(
            line.ends_with(
                "\"kicks\":0,\"idempotency-key\":\"i\",\"idempotency-ttl\":30,\"concurrency-key\":\"c\",\
                 \"concurrency-limit\":2,\"group\":\"g\",\"after-group\":\"a\",\"held\":true,\"expires\":105,\
                 \"trace\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\",\"owner\":\"team\",\
                 \"tags\":[\"idp:i:30\",\"con:c:2\",\"grp:g\",\"aft:a\",\"exp:100\",\
                 \"trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"],\
                 \"encoding\":\"utf-8\",\"body\":\"\"}\n"
            ),
            "{line}"
        );
        let cooldown = LoggedCooldown { tube: "t", key: "i", until: WallTime(1_999_999_999) };
        let line = json::line(&DumpedCooldown { job: JobId(7), cooldown });
        assert_eq!(line, "{\"cooldown\":\"i\",\"tube\":\"t\",\"job\":7,\"until\":1}\n");
    }
}
