//! The stats: which keys, in which order, with which values.
//!
//! C's keys come first, in C's order and with C's quoting; ours follow after C's last one.

use super::execute::Executor;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::metrics::Value;
use crate::metrics::families::TUBE;
use crate::os::process::CpuTime;
use crate::protocol::{Dictionary, Verb};

/// Who this server is, for the stats.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The version, as MAJOR.MINOR.
    pub version: String,
    /// Tells this run of the server from every other; 16 hexadecimal digits, the first a letter, so that nothing takes it for a number.
    pub instance: String,
    /// The process id.
    pub pid: u32,
    /// The host's name.
    pub hostname: String,
    /// The system's version.
    pub os: String,
    /// The kind of hardware.
    pub platform: String,
    /// When the server began.
    pub started_at: Timestamp,
    /// Tells the processor time used so far.
    pub cpu_time: fn() -> CpuTime,
}

impl Identity {
    /// The text of `instance` for a random number.
    #[must_use]
    pub fn instance_of(random: u64) -> String {
        const FIRST_DIGIT: u64 = 0xa << 60;
        format!("{:016x}", random | FIRST_DIGIT)
    }
}

/// The whole of `stats`.
pub fn server(executor: &Executor, now: Timestamp) -> Vec<u8> {
    let mut dictionary = Dictionary::default();
    each_server_value(executor, now, &mut |key, value| match value {
        Value::Text(text) => dictionary.quoted(key, text),
        plain => dictionary.plain(key, plain),
    });
    dictionary.into_bytes()
}

/// The commands that C counts, in the order of its stats.
const COUNTED_BY_C: [(&str, Verb); 22] = [
    ("cmd-put", Verb::Put),
    ("cmd-peek", Verb::Peek),
    ("cmd-peek-ready", Verb::PeekReady),
    ("cmd-peek-delayed", Verb::PeekDelayed),
    ("cmd-peek-buried", Verb::PeekBuried),
    ("cmd-reserve", Verb::Reserve),
    ("cmd-reserve-with-timeout", Verb::ReserveWithTimeout),
    ("cmd-delete", Verb::Delete),
    ("cmd-release", Verb::Release),
    ("cmd-use", Verb::Use),
    ("cmd-watch", Verb::Watch),
    ("cmd-ignore", Verb::Ignore),
    ("cmd-bury", Verb::Bury),
    ("cmd-kick", Verb::Kick),
    ("cmd-touch", Verb::Touch),
    ("cmd-stats", Verb::Stats),
    ("cmd-stats-job", Verb::StatsJob),
    ("cmd-stats-tube", Verb::StatsTube),
    ("cmd-list-tubes", Verb::ListTubes),
    ("cmd-list-tube-used", Verb::ListTubeUsed),
    ("cmd-list-tubes-watched", Verb::ListTubesWatched),
    ("cmd-pause-tube", Verb::PauseTube),
];

/// Each key of `stats` with its value, in order.
pub fn each_server_value(executor: &Executor, now: Timestamp, each: &mut dyn FnMut(&'static str, Value)) {
    use Value::{Counter, Gauge, Seconds, Text, Token, Word};
    let queue = &executor.queue;
    let identity = &executor.identity;
    let (jobs, flow) = (queue.counts(), queue.flow());
    each("current-jobs-urgent", Gauge(jobs.urgent));
    each("current-jobs-ready", Gauge(jobs.ready));
    each("current-jobs-reserved", Gauge(jobs.reserved));
    each("current-jobs-delayed", Gauge(jobs.delayed));
    each("current-jobs-buried", Gauge(jobs.buried));
    for (key, verb) in COUNTED_BY_C {
        each(key, Counter(executor.commands.of(verb)));
    }
    each("job-timeouts", Counter(flow.timeouts));
    each("total-jobs", Counter(flow.puts));
    each("max-job-size", Gauge(executor.config.max_job_bytes));
    each("current-tubes", Gauge(queue.tube_count() as u64));
    each("current-connections", Gauge(queue.client_count() as u64));
    each("current-producers", Gauge(queue.producer_count()));
    each("current-workers", Gauge(queue.worker_count()));
    each("current-waiting", Gauge(queue.waiting_count()));
    each("total-connections", Counter(executor.connections));
    each("pid", Gauge(u64::from(identity.pid)));
    each("version", Text(identity.version.clone()));
    let cpu_time = (identity.cpu_time)();
    each("rusage-utime", Seconds(cpu_time.user));
    each("rusage-stime", Seconds(cpu_time.system));
    each("uptime", Gauge(now.since_s(identity.started_at)));
    let binlog = executor.journal.stats();
    each("binlog-oldest-index", Gauge(u64::from(binlog.oldest_index)));
    each("binlog-current-index", Gauge(u64::from(binlog.current_index)));
    each("binlog-records-migrated", Counter(binlog.records_migrated));
    each("binlog-records-written", Counter(binlog.records_written));
    each("binlog-max-size", Gauge(executor.config.binlog_file_bytes));
    each("draining", Word(if executor.draining { "true" } else { "false" }));
    each("id", Token(identity.instance.clone()));
    each("hostname", Text(identity.hostname.clone()));
    each("os", Text(identity.os.clone()));
    each("platform", Text(identity.platform.clone()));
    // C's keys end here.
    each("cmd-reserve-job", Counter(executor.commands.of(Verb::ReserveJob)));
    each("cmd-kick-job", Counter(executor.commands.of(Verb::KickJob)));
    each("job-reserves", Counter(flow.reserves));
    each("job-deletes", Counter(flow.deletes));
    each("job-releases", Counter(flow.releases));
    each("job-buries", Counter(flow.buries));
    each("job-kicks", Counter(flow.kicks));
    each("job-poisoned", Counter(flow.poisoned));
    each("job-bytes", Gauge(queue.job_bytes() as u64));
    each("binlog-files", Gauge(binlog.files));
    each("binlog-bytes", Gauge(binlog.bytes));
    each("binlog-live-bytes", Gauge(binlog.live_bytes));
    each("binlog-syncs", Counter(binlog.syncs));
    each("binlog-sync-microseconds", Counter(binlog.sync_us));
    each("binlog-state", Word(if executor.journal.is_kept() { binlog.state } else { "off" }));
    each("buffer-bytes", Gauge(executor.buffer_bytes as u64));
    each("connections-refused", Counter(executor.refused_connections));
    each("cmd-quit", Counter(executor.commands.of(Verb::Quit)));
    each("malformed-commands", Counter(executor.malformed));
    each("rejected-puts", Counter(executor.rejected_puts));
}

/// The whole of `stats-job`, if there is such a job.
pub fn job(executor: &Executor, id: JobId, now: Timestamp) -> Option<Vec<u8>> {
    let job = executor.queue.job(id)?;
    let record = &job.record;
    let time_left_s = match record.state {
        JobState::Reserved | JobState::Delayed => record.deadline_at.since_s(now),
        JobState::Ready | JobState::Buried => 0,
    };
    let mut dictionary = Dictionary::default();
    dictionary.plain("id", id.0);
    dictionary.quoted("tube", job.tube);
    dictionary.plain("state", record.state.as_str());
    dictionary.plain("pri", record.priority.0);
    dictionary.plain("age", now.since_s(record.created_at));
    dictionary.plain("delay", record.delay_s);
    dictionary.plain("ttr", record.ttr_s);
    dictionary.plain("time-left", time_left_s);
    dictionary.plain("file", executor.journal.file_of(id));
    dictionary.plain("reserves", record.counters.reserves);
    dictionary.plain("timeouts", record.counters.timeouts);
    dictionary.plain("releases", record.counters.releases);
    dictionary.plain("buries", record.counters.buries);
    dictionary.plain("kicks", record.counters.kicks);
    Some(dictionary.into_bytes())
}

/// The whole of `stats-tube`, if there is such a tube. The metrics have the same figures.
pub fn tube(executor: &Executor, name: &str, now: Timestamp) -> Option<Vec<u8>> {
    let tube = executor.queue.tube(name, now)?;
    let mut dictionary = Dictionary::default();
    dictionary.quoted("name", tube.name);
    for figure in &TUBE {
        dictionary.plain(figure.key, (figure.read)(&tube));
    }
    Some(dictionary.into_bytes())
}
