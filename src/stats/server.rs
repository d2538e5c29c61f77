//! The figures of the server as a whole.

use std::sync::LazyLock;
use std::time::Duration;

use super::{Figure, Histogram, Identities, Read, Series, ServerStats};
use crate::binlog;
use crate::clock::Timestamp;
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::os::CpuTime;
use crate::protocol::{Origin, Verb};
use crate::queue::{CooldownSums, JobCounts, Queue, TubeCounters};
use crate::tags::TagKind;
use crate::tls;

/// The server as its stats see it.
#[derive(Clone, Copy, Debug)]
pub struct ServerView<'a> {
    /// The facts about this run of the server.
    pub info: &'a ServerInfo,
    /// Tubes, jobs and clients.
    pub queue: &'a Queue,
    /// Sums over its tubes, or over the tubes that the client may see.
    pub sums: TubeSums,
    /// The identities of the access rules, if there are rules.
    pub identities: Option<&'a dyn Identities>,
    /// The commands and tags that C does not have, separated by spaces.
    pub extensions: &'a str,
    /// The figures of the binlog; the default ones if there is none.
    pub binlog: binlog::Stats,
    /// How often each command was received.
    pub commands: &'a CommandCounts,
    /// Durations.
    pub timings: &'a Timings,
    /// Whether the server is in drain mode.
    pub is_draining: bool,
    /// The largest body that `put` accepts, in bytes.
    pub max_job_bytes: u64,
    /// The size of a binlog file that the operator has set, in bytes.
    pub binlog_file_bytes: u64,
    /// The memory of connections for bytes that are not yet a job, or not yet sent.
    pub buffer_bytes: usize,
    /// Connections since the start.
    pub connections: u64,
    /// Connections that were closed because there were too many.
    pub refused_connections: u64,
    /// Lines that were not commands.
    pub malformed: u64,
    /// Complete bodies that the server did not store, for a reason of its own.
    pub refused_puts: u64,
    /// The figures of the TLS listeners; `None` if there are none.
    pub tls: Option<tls::TlsFigures>,
    /// The instant of the request.
    pub now: Timestamp,
}

/// Sums over tubes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TubeSums {
    /// The number of tubes.
    pub tubes: u64,
    /// Jobs of these tubes by state.
    pub jobs: JobCounts,
    /// The counts of events of their jobs.
    pub counters: TubeCounters,
    /// Memory that the jobs take, in bytes, if all tubes are summed up.
    pub job_bytes: u64,
    /// The number of cooldowns, and the memory that they take.
    pub cooldowns: CooldownSums,
    /// Memory for the cooldowns that begin when jobs are deleted, in bytes.
    pub reserved_cooldown_bytes: u64,
    /// The jobs that rules have sent to dead tubes.
    pub dead: u64,
}

impl TubeSums {
    /// The sums over all tubes, including the events of removed tubes.
    #[must_use]
    pub fn of(queue: &Queue) -> Self {
        let figures = queue.figures();
        Self {
            tubes: figures.tubes as u64,
            jobs: figures.jobs,
            counters: figures.events,
            job_bytes: figures.job_bytes as u64,
            cooldowns: figures.cooldowns,
            reserved_cooldown_bytes: figures.reserved_cooldown_bytes,
            dead: figures.dead,
        }
    }

    /// Adds a tube.
    pub fn add(&mut self, jobs: JobCounts, counters: TubeCounters, dead: u64) {
        // The queue knows the memory and the cooldowns only for all tubes.
        let Self {
            tubes,
            jobs: all_jobs,
            counters: all_counters,
            job_bytes: _,
            cooldowns: _,
            reserved_cooldown_bytes: _,
            dead: all_dead,
        } = self;
        *tubes += 1;
        *all_jobs += jobs;
        *all_counters += counters;
        *all_dead += dead;
    }
}

/// The server info: the facts about this run of the server, which do not change.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The version, as MAJOR.MINOR.
    pub version: String,
    /// Identifies this run of the server; 16 hexadecimal digits, the first a letter, so that no reader takes it for a
    /// number.
    pub instance: String,
    /// The process id.
    pub pid: u32,
    /// The host's name.
    pub hostname: String,
    /// The system's version.
    pub os: String,
    /// The kind of hardware.
    pub platform: String,
    /// When the server started.
    pub started_at: Timestamp,
    /// Reads the processor time used so far.
    pub cpu_time: fn() -> CpuTime,
}

/// A server without names that has used no processor time.
impl Default for ServerInfo {
    fn default() -> Self {
        Self {
            version: String::new(),
            instance: String::new(),
            pid: 0,
            hostname: String::new(),
            os: String::new(),
            platform: String::new(),
            started_at: Timestamp::default(),
            cpu_time: || CpuTime { user: Duration::ZERO, system: Duration::ZERO },
        }
    }
}

impl ServerInfo {
    /// The text of `instance` for a random number.
    #[must_use]
    pub fn instance_of(random: u64) -> String {
        const FIRST_DIGIT: u64 = 0xa << 60;
        format!("{:016x}", random | FIRST_DIGIT)
    }
}

/// How often each command was received.
#[derive(Clone, Copy, Debug)]
pub struct CommandCounts([u64; Verb::COUNT]);

impl Default for CommandCounts {
    fn default() -> Self {
        Self::NONE
    }
}

impl Described for CommandCounts {
    /// By name, because another program may know other commands.
    fn describe(&self, out: &mut Writer<'_>) {
        let Self(counts) = self;
        out.count(counts.len());
        for (verb, count) in Verb::ALL.into_iter().zip(counts) {
            out.bytes(verb.counter_key().as_bytes());
            count.describe(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut counts = Self::NONE;
        for _ in 0..from.count()? {
            let (key, count) = (from.text()?, from.value()?);
            if let Some(verb) = Verb::ALL.into_iter().find(|verb| verb.counter_key() == key) {
                counts.0[verb as usize] = count;
            }
        }
        let total = counts.0.iter().try_fold(0_u64, |sum, &count| sum.checked_add(count));
        total.map(|_| counts).ok_or(Malformed("the numbers of commands"))
    }
}

impl CommandCounts {
    /// No command was received.
    pub const NONE: Self = Self([0; Verb::COUNT]);

    /// How often `verb` was received.
    #[must_use]
    pub fn of(&self, verb: Verb) -> u64 {
        self.0[verb as usize]
    }

    /// The number of received commands.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts a command.
    pub fn add(&mut self, verb: Verb) {
        self.0[verb as usize] += 1;
    }

    /// Undoes `add`, for a word that is not a command on this server.
    pub fn uncount(&mut self, verb: Verb) {
        self.0[verb as usize] -= 1;
    }
}

/// Durations. They are measured with one more reading of the clock in each turn, and only while metrics are served.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// Each turn of the loop: from the return of the poll until the system has all replies. Turns without a command
    /// count, too.
    pub turns: Histogram,
    /// Each command, with the duration of the turn that executed it. That is the most that its client has waited, after
    /// the loop saw the command, for this and other commands in the same turn. The time that a reserve waits for a job
    /// is not included.
    pub commands: Histogram,
    /// Each sync of the binlog, from its request to its completion.
    pub syncs: Histogram,
}

described!(Timings { turns, commands, syncs });

type Row = Figure<ServerStats>;

impl Row {
    const fn command(verb: Verb) -> Self {
        let read = Read::Command(|server: &ServerView<'_>, verb| server.commands.of(verb), verb);
        Self { key: verb.counter_key(), read, series: Series::Command }
    }
}

/// The figures of `stats`.
pub static SERVER: LazyLock<Vec<Figure<ServerStats>>> = LazyLock::new(|| {
    let mut rows = JOBS.to_vec();
    rows.extend(commands(Origin::C).map(Row::command));
    rows.extend(SINCE_THE_START);
    rows.extend(commands(Origin::Ours).map(Row::command));
    rows.extend(TAGS_AND_EXTENSIONS);
    rows
});

#[rustfmt::skip]
const JOBS: &[Row] = &[
    Row::gauge("current-jobs-urgent", "Ready jobs with a priority below 1024.", |server| server.sums.jobs.urgent),
    Row::gauge("current-jobs-ready", "Ready jobs, even if a pause, a tag or a rule keeps them back.",
        |server| server.sums.jobs.ready),
    Row::gauge("current-jobs-reserved", "Jobs that clients have reserved.", |server| server.sums.jobs.reserved),
    Row::gauge("current-jobs-delayed", "Jobs whose delay is not over.", |server| server.sums.jobs.delayed),
    Row::gauge("current-jobs-buried", "Jobs that wait for a kick.", |server| server.sums.jobs.buried),
];

#[rustfmt::skip]
const SINCE_THE_START: &[Row] = &[
    Row::counter("job-timeouts", "Reservations whose time to run has ended.", |server| server.sums.counters.timeouts),
    Row::counter("total-jobs", "Jobs put.", |server| server.sums.counters.puts).named("jobs"),
    Row::gauge("max-job-size", "The largest body that put accepts.", |server| server.max_job_bytes)
        .named("max_job_size_bytes"),
    Row::gauge("current-tubes", "Tubes.", |server| server.sums.tubes),
    Row::gauge("current-connections", "Connected clients.", |server| server.queue.figures().clients as u64),
    Row::gauge("current-producers", "Connected clients that have put.", |server| server.queue.figures().producers),
    Row::gauge("current-workers", "Connected clients that have reserved.", |server| server.queue.figures().workers),
    Row::gauge("current-waiting", "Clients that wait in a reserve.", |server| server.queue.figures().waiting),
    Row::counter("total-connections", "Clients that have connected.", |server| server.connections).named("connections"),
    Row::gauge("pid", "The process id.", |server| server.info.pid.into()),
    Row::info("version", Read::Text(|server| &server.info.version)),
    Row::new("rusage-utime", "Processor time used in the program.",
        Read::Seconds(|server| (server.info.cpu_time)().user)).named("cpu_user_seconds"),
    Row::new("rusage-stime", "Processor time used in the system.",
        Read::Seconds(|server| (server.info.cpu_time)().system)).named("cpu_system_seconds"),
    Row::gauge("uptime", "Time since the start.", |server| server.now.since_s(server.info.started_at))
        .named("uptime_seconds"),
    Row::gauge("binlog-oldest-index", "The number of the oldest binlog file.",
        |server| server.binlog.oldest_index.into()),
    Row::gauge("binlog-current-index", "The number of the binlog file that is written.",
        |server| server.binlog.current_index.into()),
    Row::counter("binlog-records-migrated", "Records rewritten by compaction.",
        |server| server.binlog.records_migrated),
    Row::counter("binlog-records-written", "Records written.", |server| server.binlog.records_written),
    Row::gauge("binlog-max-size", "The size of a binlog file.", |server| server.binlog_file_bytes)
        .named("binlog_max_size_bytes"),
    Row::new("draining", "1 while put is answered with DRAINING.", Read::Flag(|server| server.is_draining)),
    Row::info("id", Read::Word(|server| &server.info.instance)),
    Row::info("hostname", Read::Text(|server| &server.info.hostname)),
    Row::info("os", Read::Text(|server| &server.info.os)),
    Row::info("platform", Read::Text(|server| &server.info.platform)),
    // C's keys end here.
    Row::command(Verb::ReserveJob),
    Row::command(Verb::KickJob),
    Row::counter("job-reserves", "Reservations, by any command.", |server| server.sums.counters.reserves),
    Row::counter("job-deletes", "Jobs deleted.", |server| server.sums.counters.deletes),
    Row::counter("job-releases", "Releases by clients.", |server| server.sums.counters.releases),
    Row::counter("job-buries", "Burials by clients.", |server| server.sums.counters.buries),
    Row::counter("job-kicks", "Jobs kicked.", |server| server.sums.counters.kicks),
    Row::counter("job-poisoned", "Jobs buried by --max-timeouts, --max-releases or a rule.",
        |server| server.sums.counters.poisoned),
    Row::gauge("job-bytes", "Memory that jobs take.", |server| server.sums.job_bytes),
    Row::gauge("binlog-files", "Binlog files, those made ahead included.", |server| server.binlog.files),
    Row::gauge("binlog-bytes", "Length of all binlog files.", |server| server.binlog.bytes),
    Row::gauge("binlog-live-bytes", "Length of the newest records of all jobs in the binlog.",
        |server| server.binlog.live_bytes),
    Row::counter("binlog-syncs", "Syncs of the binlog.", |server| server.binlog.syncs),
    Row::new("binlog-sync-microseconds", "Time that syncs of the binlog have taken.",
        Read::Microseconds(|server| server.binlog.sync_us)).named("binlog_sync_time_seconds"),
    Row::new("binlog-state", "1 for the state that the binlog is in: ok, full, failed or off.",
        Read::Word(|server| server.binlog.state.as_str())),
    Row::gauge("buffer-bytes", "Memory for incomplete puts, waiting commands and unsent replies.",
        |server| server.buffer_bytes as u64),
    Row::counter("connections-refused", "Connections closed because of a limit on connections, or for lack of memory.",
        |server| server.refused_connections).named("refused_connections"),
    Row::command(Verb::Quit),
    Row::counter("malformed-commands", "Lines answered with BAD_FORMAT or UNKNOWN_COMMAND.", |server| server.malformed),
    Row::counter("rejected-puts", "Puts answered with DRAINING, JOB_TOO_BIG or OUT_OF_MEMORY.",
        |server| server.refused_puts),
];

#[rustfmt::skip]
const TAGS_AND_EXTENSIONS: &[Row] = &[
    Row::counter("job-expirations", "Jobs deleted because their tag exp, or the max-age of a rule, was over.",
        |server| server.sums.counters.expirations),
    Row::gauge("current-cooldowns", "Keys of deleted jobs that still count.", |server| server.sums.cooldowns.count),
    Row::gauge("cooldown-bytes", "Memory that the cooldowns take.", |server| server.sums.cooldowns.bytes),
    Row::gauge("cooldown-bytes-reserved", "Memory for the cooldowns that the deletes of jobs will begin.",
        |server| server.sums.reserved_cooldown_bytes),
    Row::gauge("current-sessions", "Sessions, with those whose connection is gone.",
        |server| server.queue.figures().sessions as u64),
    Row::counter("dead-jobs", "Jobs that rules have sent to dead tubes.", |server| server.sums.dead),
    // Clients expect it at the end; add new rows before it.
    Row::plain("extensions", Read::Text(|server| server.extensions)),
];

/// The words of arguments of C's commands that C does not have.
const OTHER_WORDS: [&str; 3] = ["touch-seconds", "release-uncounted", "fractions"];

/// The names of the extensions of C's protocol, which show a client what the server supports.
#[must_use]
pub fn extensions(is_guarded: bool) -> &'static str {
    static OPEN: LazyLock<String> = LazyLock::new(|| {
        let commands = commands(Origin::Ours).map(Verb::as_str);
        let words: Vec<&str> = commands.chain(TagKind::ALL.map(TagKind::word)).chain(OTHER_WORDS).collect();
        words.join(" ")
    });
    static GUARDED: LazyLock<String> = LazyLock::new(|| {
        let words = commands(Origin::OursGuarded).map(Verb::as_str);
        words.fold(OPEN.clone(), |list, word| list + " " + word)
    });
    if is_guarded { &GUARDED } else { &OPEN }
}

fn commands(origin: Origin) -> impl Iterator<Item = Verb> {
    Verb::ALL.into_iter().filter(move |verb| verb.origin() == origin)
}
