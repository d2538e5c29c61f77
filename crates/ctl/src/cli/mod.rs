//! The command line: subcommands, arguments and their help texts.
//!
//! Owns: every subcommand, argument and default. `generated.rs` makes the manual page and the completions from them.

mod arguments;
pub mod generated;
mod tube_completion;

pub use arguments::{ActOn, Confirm, Id, JobFilter, JobRate, RedriveArguments, TubeArguments};

pub use arguments::glob;
use arguments::{duration, grace, id, interval, limit, seconds, session, states, tag_of_put, whole_seconds};
use beanstalk_client::{Address, JobState, Seconds, Tag, TubeName};
use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use globset::GlobMatcher;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Show and change the tubes and jobs of a beanstalkd
#[derive(Parser)]
#[command(name = "beanstalkctl", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// The options of every command
    #[command(flatten)]
    pub options: GlobalOptions,
    /// The subcommand
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The options of every command.
#[derive(Args)]
#[command(next_help_heading = "Options of every command")]
pub struct GlobalOptions {
    /// Address of the server: host:port or unix:PATH. stats, tubes, clients, watch, top, drain and undrain accept
    /// several, separated by commas
    #[arg(
        long,
        short,
        global = true,
        env = "BEANSTALKD_SERVER",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "127.0.0.1:11300",
        value_name = "ADDRESS"
    )]
    pub server: Vec<Address>,
    /// Print JSON, one value on each line
    #[arg(long, global = true)]
    pub json: bool,
    /// Longest time to wait for a reply of the server
    #[arg(long, global = true, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
    /// Connect with TLS
    #[arg(
        long,
        global = true,
        env = "BEANSTALKD_TLS",
        hide_env_values = true,
        value_parser = FalseyValueParser::new()
    )]
    pub tls: bool,
    /// Trust servers with a certificate of these authorities (PEM); without it, of those of the system
    #[arg(
        long,
        global = true,
        env = "BEANSTALKD_CA",
        hide_env_values = true,
        requires = "tls",
        value_name = "FILE",
        value_hint = ValueHint::FilePath
    )]
    pub ca: Option<PathBuf>,
    /// Show this certificate to the server (PEM)
    #[arg(
        long,
        global = true,
        env = "BEANSTALKD_CERT",
        hide_env_values = true,
        requires_all = ["tls", "key"],
        value_name = "FILE",
        value_hint = ValueHint::FilePath
    )]
    pub cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(
        long,
        global = true,
        env = "BEANSTALKD_KEY",
        hide_env_values = true,
        requires = "cert",
        value_name = "FILE",
        value_hint = ValueHint::FilePath
    )]
    pub key: Option<PathBuf>,
    /// Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN
    #[arg(
        long,
        global = true,
        env = "BEANSTALKD_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath
    )]
    pub token_file: Option<PathBuf>,
}

const AFTER_HELP: &str = "A TIME is a number of seconds, such as 90 or 0.5, or has units: 500ms, 90s, 15m, 2h, 1d. \
Exit codes: 0 done, 1 nothing matched, 2 wrong command line, 3 no connection, 4 refused by the server, \
5 a local file or command failed, 130 stopped by Ctrl-C.";

/// The subcommands.
#[derive(Subcommand)]
pub enum CtlCommand {
    /// Show the counters of the server, or of a tube
    Stats {
        /// Show the counters of this tube instead of those of the server
        tube: Option<TubeName>,
    },
    /// List tubes with their numbers of jobs
    Tubes(TubesArguments),
    /// List the jobs of tubes
    Jobs(JobsArguments),
    /// Show the counters of jobs
    Job {
        /// The job's id; - reads ids from standard input
        #[arg(required = true, value_name = "ID", value_parser = id)]
        ids: Vec<Id>,
    },
    /// Show what jobs wait for: a delay, a group, a key, a pause, a limit, a rate, or a worker
    Why {
        /// The job's id; - reads ids from standard input
        #[arg(required = true, value_name = "ID", value_parser = id)]
        ids: Vec<Id>,
    },
    /// Wait until jobs are deleted, and fail if one is buried
    Wait {
        /// The job's id; - reads ids from standard input
        #[arg(required = true, value_name = "ID", value_parser = id)]
        ids: Vec<Id>,
        /// Longest time to wait for all of them. Without it, wait until they are done
        #[arg(long = "for", value_parser = seconds, value_name = "TIME")]
        time: Option<Seconds>,
    },
    /// Show which rules tubes follow, and what the rules have done
    Rules(RulesArguments),
    /// Print the body of a job
    Peek(PeekArguments),
    /// Put jobs
    Put(PutArguments),
    /// Reserve a job, print its body, and release it
    Reserve(ReserveArguments),
    /// Delete jobs
    Delete(ActOn),
    /// Make buried and delayed jobs ready
    Kick(ActOn),
    /// Bury ready and delayed jobs, by reserving them first
    Bury(ActOn),
    /// Make jobs ready, or delay them, by reserving them first
    Release {
        /// Which
        #[command(flatten)]
        on: ActOn,
        /// New priority; without it, the jobs keep theirs
        #[arg(long, short)]
        priority: Option<u32>,
        /// Time until the job becomes ready
        #[arg(long, short, value_parser = seconds, default_value = "0s", value_name = "TIME")]
        delay: Seconds,
    },
    /// Move jobs to another tube
    Move {
        /// Which
        #[command(flatten)]
        on: ActOn,
        /// The new tube
        #[arg(long, value_name = "TUBE")]
        to: TubeName,
    },
    /// Send dead jobs back to the tubes that they came from, with no failures
    Redrive(RedriveArguments),
    /// Change the priority of jobs
    Reprioritize {
        /// Which
        #[command(flatten)]
        on: ActOn,
        /// New priority; 0 is the most urgent
        #[arg(long, short)]
        priority: u32,
    },
    /// Pause tubes: no client can reserve their jobs
    Pause {
        /// Which
        #[command(flatten)]
        tubes: TubeArguments,
        /// Length of the pause
        #[arg(long = "for", value_parser = seconds, default_value = "1h", value_name = "TIME")]
        time: Seconds,
    },
    /// End the pause of tubes
    Resume(TubeArguments),
    /// Delete every job of tubes
    Flush {
        /// Which
        #[command(flatten)]
        tubes: TubeArguments,
        /// Delete only the buried jobs
        #[arg(long)]
        buried: bool,
    },
    /// Start drain mode: the server accepts no new jobs
    Drain,
    /// End drain mode: the server accepts new jobs again
    Undrain,
    /// List the clients that are connected
    Clients,
    /// Close the connections of clients; what they have reserved becomes ready
    KillClient {
        /// The client's id, as clients shows it
        #[arg(required = true, value_name = "CLIENT")]
        ids: Vec<u64>,
        /// Ask or not
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Print what happens in tubes, until Ctrl-C
    Watch {
        /// Names of tubes, or patterns; without them, all tubes
        #[arg(value_parser = glob, value_name = "TUBE")]
        tubes: Vec<GlobMatcher>,
        /// How often to ask the servers: every 10ms to 24h
        #[arg(long, value_parser = interval, default_value = "1s", value_name = "TIME")]
        interval: Duration,
    },
    /// Show tubes and jobs in a live view, and change them
    Top {
        /// How often to ask the servers: every 10ms to 24h
        #[arg(long, value_parser = interval, default_value = "1s", value_name = "TIME")]
        interval: Duration,
    },
    /// Run a command for each job
    Work(WorkArguments),
    /// Write jobs as lines of JSON
    Export(ExportArguments),
    /// Put the jobs of an export
    Import(ImportArguments),
}

/// The arguments of `tubes`.
#[derive(Args)]
pub struct TubesArguments {
    /// Names of tubes, or patterns such as 'mail-*'; without them, all tubes
    #[arg(value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Sort by this; numbers with the largest first
    #[arg(long, value_enum, default_value_t = SortColumn::Name)]
    pub sort: SortColumn,
    /// Reverse the order
    #[arg(long, short)]
    pub reverse: bool,
}

/// The column by which tubes are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SortColumn {
    /// Name
    Name,
    /// Ready jobs
    Ready,
    /// Reserved jobs
    Reserved,
    /// Delayed jobs
    Delayed,
    /// Buried jobs
    Buried,
    /// Jobs in any state
    Jobs,
    /// Waiting workers
    Waiting,
    /// Jobs put since the tube was created
    Total,
    /// Age of the oldest ready job, if the server reports it
    Age,
}

/// The arguments of `jobs`.
#[derive(Args)]
pub struct JobsArguments {
    /// Names of tubes, or patterns
    #[arg(required = true, value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Which of their jobs
    #[command(flatten)]
    pub filter: JobFilter,
    /// Print at most this many jobs
    #[arg(long, short = 'n', value_parser = limit())]
    pub limit: Option<usize>,
}

/// The arguments of `rules`.
#[derive(Args)]
pub struct RulesArguments {
    /// Names of tubes, or patterns; without them, all tubes
    #[arg(value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// The file of --tubes: shows what each rule asks for, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

/// The arguments of `peek`.
#[derive(Args)]
pub struct PeekArguments {
    /// The job's id
    #[arg(required_unless_present = "next", conflicts_with_all = ["next", "tube"], value_name = "ID")]
    pub id: Option<u64>,
    /// Instead of an id: the next job in this state
    #[arg(long, value_name = "STATE", value_parser = states())]
    pub next: Option<JobState>,
    /// With --next: the tube
    #[arg(long, default_value = "default")]
    pub tube: TubeName,
    /// Format the body if it is JSON
    #[arg(long)]
    pub pretty: bool,
}

/// The arguments of `put`.
#[derive(Args)]
pub struct PutArguments {
    /// The tube
    pub tube: TubeName,
    /// The body
    #[arg(required_unless_present_any = ["file", "lines"], conflicts_with_all = ["file", "lines"])]
    pub body: Option<OsString>,
    /// Read the body from this file; - is standard input
    #[arg(long, short, value_hint = ValueHint::FilePath, conflicts_with = "lines")]
    pub file: Option<PathBuf>,
    /// Put a job for each line of standard input
    #[arg(long, short)]
    pub lines: bool,
    /// Priority; 0 is the most urgent, and jobs below 1024 count as urgent
    #[arg(long, short, default_value_t = 1024)]
    pub priority: u32,
    /// Time until the job becomes ready
    #[arg(long, short, value_parser = seconds, default_value = "0s", value_name = "TIME")]
    pub delay: Seconds,
    /// Time to run: how long a worker may keep the job reserved
    #[arg(long, value_parser = seconds, default_value = "60s", value_name = "TIME")]
    pub ttr: Seconds,
    /// Tags
    #[arg(
        long = "tag",
        value_name = "TAG",
        value_parser = tag_of_put,
        help = "idp:KEY[:SECONDS], con:KEY[:LIMIT], grp:NAME, aft:NAME, exp:SECONDS or trc:TRACEPARENT; the server \
                must support it"
    )]
    pub tags: Vec<Tag>,
}

/// The arguments of `reserve`.
#[derive(Args)]
pub struct ReserveArguments {
    /// The tubes to reserve from
    #[arg(default_value = "default", value_name = "TUBE")]
    pub tubes: Vec<TubeName>,
    /// Longest time to wait for a job; 0s does not wait. Without it, wait until there is a job
    #[arg(long, value_parser = seconds, value_name = "TIME")]
    pub wait: Option<Seconds>,
    /// What to do with the job after its body is printed
    #[arg(long, value_enum, default_value_t = Then::Release)]
    pub then: Then,
}

/// The fate of a reserved job after its body is printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Then {
    /// Make it ready again
    Release,
    /// Delete it
    Delete,
    /// Bury it
    Bury,
    /// Keep it reserved, with touches, until Ctrl-C; then make it ready again
    Hold,
}

/// The arguments of `work`.
#[derive(Args)]
pub struct WorkArguments {
    /// The tubes to reserve from
    #[arg(required = true, value_name = "TUBE")]
    pub tubes: Vec<TubeName>,
    /// The command with its arguments. The body is its standard input. If it exits with 0, the job is deleted
    #[arg(required = true, last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// Number of commands to run in parallel
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub jobs: u32,
    /// Bury a job when it has failed this many times
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub attempts: u64,
    /// Delay after the first failure, in whole seconds; it doubles with each further failure
    #[arg(long, value_parser = whole_seconds, default_value = "10s", value_name = "TIME")]
    pub delay: u32,
    /// The longest delay
    #[arg(long, value_parser = whole_seconds, default_value = "1h", value_name = "TIME")]
    pub max_delay: u32,
    /// Exit when there is no ready job, instead of waiting for one
    #[arg(long)]
    pub until_empty: bool,
    /// Keep the jobs when the connection or the server is lost: in sessions whose names begin with this one
    #[arg(long, value_parser = session, value_name = "NAME")]
    pub session: Option<TubeName>,
    /// For how long the server keeps them for a program that does not come back; at most 1h
    #[arg(long, value_parser = grace, default_value = "30s", value_name = "TIME", requires = "session")]
    pub grace: Duration,
}

/// The arguments of `export`.
#[derive(Args)]
pub struct ExportArguments {
    /// Names of tubes, or patterns; without them, all tubes
    #[arg(value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Which of their jobs
    #[command(flatten)]
    pub filter: JobFilter,
    /// The file; - is standard output. It gets its name when it is complete; a device or a FIFO is written to
    #[arg(long, short, default_value = "-", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Replace a file that --drain wrote, although it may have the only copy of its jobs
    #[arg(long, conflicts_with = "drain")]
    pub force: bool,
    /// Delete the jobs when they are in the file and synced
    #[arg(long)]
    pub drain: bool,
    /// With --drain: ask for confirmation or not
    #[command(flatten)]
    pub confirm: Confirm,
}

/// The arguments of `import`.
#[derive(Args)]
pub struct ImportArguments {
    /// A file that export has written; - is standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Put all jobs into this tube
    #[arg(long)]
    pub tube: Option<TubeName>,
    /// File that records which jobs were put; by default FILE.journal, for standard input or a FIFO a temporary file
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub journal: Option<PathBuf>,
    /// Leave out tags that the server does not support
    #[arg(long)]
    pub drop_tags: bool,
    /// Only check the file, and print what would be put
    #[arg(long)]
    pub dry_run: bool,
}
