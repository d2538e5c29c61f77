//! The command line: what there is to say, and how it is explained.
//!
//! Owns: every subcommand, argument and default. The manual page and the completions are generated from here.

mod arguments;
#[cfg(test)]
mod generated;

pub use arguments::{ActOn, Confirm, Delay, FilterArguments, Tubes};

use crate::commands::tubes::TubeKey;
pub use arguments::glob;
use arguments::{duration, seconds};
use beanstalk_client::{Address, Name, State, Tag};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use globset::GlobMatcher;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Looks after the jobs of a beanstalkd
#[derive(Parser)]
#[command(name = "beanstalkctl", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas
    #[arg(
        long,
        short,
        global = true,
        env = "BEANSTALKD_SERVER",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "127.0.0.1:11300",
        value_name = "ADDRESS",
        help_heading = GLOBAL
    )]
    pub server: Vec<Address>,
    /// Print JSON, a value on each line
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// How long the server may take to answer
    #[arg(long, global = true, value_parser = duration, default_value = "60s", value_name = "TIME", help_heading = GLOBAL)]
    pub timeout: Duration,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const GLOBAL: &str = "Options of every command";

const AFTER_HELP: &str = "Times are seconds, or like 90s, 15m, 2h, 1d. \
Exit codes: 0 done, 1 nothing matched, 2 usage, 3 no connection, 4 refused by the server, \
5 a file or a command of this machine, 130 stopped by Ctrl-C.";

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Show the counters of the server, or of a tube
    Stats {
        /// This tube's instead of the server's
        tube: Option<Name>,
    },
    /// List tubes with their counts
    Tubes(TubesArguments),
    /// List the jobs of tubes
    Jobs(JobsArguments),
    /// Show what the server tells of jobs
    Job {
        /// The job's id
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
    },
    /// Print the body of a job
    Peek(PeekArguments),
    /// Put jobs
    Put(PutArguments),
    /// Take a job, print its body, and give it back
    Reserve(ReserveArguments),
    /// Delete jobs
    Delete(ActOn),
    /// Make buried and delayed jobs ready
    Kick(ActOn),
    /// Bury ready and delayed jobs
    Bury(ActOn),
    /// Make jobs ready, or delay them, by reserving them for a moment
    Release {
        /// Which
        #[command(flatten)]
        on: ActOn,
        /// Their new priority; by default they keep theirs
        #[arg(long, short)]
        priority: Option<u32>,
        /// When they are ready
        #[command(flatten)]
        delay: Delay,
    },
    /// Move jobs to another tube
    Move {
        /// Which
        #[command(flatten)]
        on: ActOn,
        /// The tube that they go to
        #[arg(long, value_name = "TUBE")]
        to: Name,
    },
    /// Change the priority of jobs
    Reprioritize {
        /// Which
        #[command(flatten)]
        on: ActOn,
        /// Their new priority; 0 is the most urgent
        #[arg(long, short)]
        priority: u32,
    },
    /// Let nobody reserve from tubes
    Pause {
        /// Which
        #[command(flatten)]
        tubes: Tubes,
        /// For how long
        #[arg(long = "for", value_parser = seconds, default_value = "1h", value_name = "TIME")]
        time: u32,
    },
    /// End the pause of tubes
    Resume(Tubes),
    /// Delete every job of tubes
    Flush {
        /// Which
        #[command(flatten)]
        tubes: Tubes,
        /// The buried jobs alone
        #[arg(long)]
        buried: bool,
    },
    /// Let the server take no new jobs
    Drain,
    /// Let the server take new jobs again
    Undrain,
    /// Tell what happens in tubes, as it happens
    Watch {
        /// Patterns of names; all tubes without them
        #[arg(value_parser = glob, value_name = "TUBE")]
        tubes: Vec<GlobMatcher>,
        /// How often to look
        #[arg(long, value_parser = duration, default_value = "1s", value_name = "TIME")]
        interval: Duration,
    },
    /// Show tubes and jobs live, and act on them
    Top {
        /// How often to look
        #[arg(long, value_parser = duration, default_value = "1s", value_name = "TIME")]
        interval: Duration,
    },
    /// Run a command for each job
    Work(WorkArguments),
    /// Write jobs as lines of JSON
    Export(ExportArguments),
    /// Put the jobs of an export
    Import(ImportArguments),
}

/// Of `tubes`.
#[derive(Args)]
pub struct TubesArguments {
    /// Patterns of names, such as 'mail-*'; all without them
    #[arg(value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Order by this; counts with the largest first
    #[arg(long, value_enum, default_value_t = TubeKey::Name)]
    pub sort: TubeKey,
    /// The other way round
    #[arg(long, short)]
    pub reverse: bool,
}

/// Of `jobs`.
#[derive(Args)]
pub struct JobsArguments {
    /// Names of tubes, or patterns
    #[arg(required = true, value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Which of their jobs
    #[command(flatten)]
    pub filter: FilterArguments,
    /// At most so many
    #[arg(long, short = 'n')]
    pub limit: Option<u64>,
}

/// Of `peek`.
#[derive(Args)]
pub struct PeekArguments {
    /// The job's id
    #[arg(required_unless_present = "next", conflicts_with_all = ["next", "tube"], value_name = "ID")]
    pub id: Option<u64>,
    /// The next job of this state instead
    #[arg(long, value_name = "STATE")]
    pub next: Option<State>,
    /// Of this tube
    #[arg(long, default_value = "default")]
    pub tube: Name,
    /// Format a body that is JSON
    #[arg(long)]
    pub pretty: bool,
}

/// Of `put`.
#[derive(Args)]
pub struct PutArguments {
    /// The tube
    pub tube: Name,
    /// The body
    #[arg(required_unless_present_any = ["file", "lines"], conflicts_with_all = ["file", "lines"])]
    pub body: Option<OsString>,
    /// The body is what this file holds; - for standard input
    #[arg(long, short, value_hint = ValueHint::FilePath, conflicts_with = "lines")]
    pub file: Option<PathBuf>,
    /// A job for each line of standard input
    #[arg(long, short)]
    pub lines: bool,
    /// 0 is the most urgent; below 1024 counts as urgent
    #[arg(long, short, default_value_t = 1024)]
    pub priority: u32,
    /// When it is ready
    #[command(flatten)]
    pub delay: Delay,
    /// How long a worker has for it
    #[arg(long, value_parser = seconds, default_value = "60s", value_name = "TIME")]
    pub ttr: u32,
    /// Tags, which the server must know
    #[arg(
        long = "tag",
        value_name = "TAG",
        help = "idp:KEY[:SECONDS], con:KEY[:LIMIT], grp:NAME, aft:NAME or exp:SECONDS; the server must know it"
    )]
    pub tags: Vec<Tag>,
}

/// Of `reserve`.
#[derive(Args)]
pub struct ReserveArguments {
    /// The tubes to take it from
    #[arg(default_value = "default", value_name = "TUBE")]
    pub tubes: Vec<Name>,
    /// How long to wait for one; 0s: not at all. Without it: until there is one
    #[arg(long, value_parser = seconds, value_name = "TIME")]
    pub wait: Option<u32>,
    /// What becomes of it then
    #[arg(long, value_enum, default_value_t = Then::Release)]
    pub then: Then,
}

/// What becomes of a job that was reserved.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Then {
    /// It is ready again
    Release,
    /// It is done
    Delete,
    /// It is set aside
    Bury,
    /// It stays reserved, and is touched, until Ctrl-C; then it is ready again
    Hold,
}

/// Of `work`.
#[derive(Args)]
pub struct WorkArguments {
    /// The tubes to take jobs from
    #[arg(required = true, value_name = "TUBE")]
    pub tubes: Vec<Name>,
    /// The command with its arguments. It gets the body on standard input, and exits with 0 when the job is done
    #[arg(required = true, last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// So many commands at once
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub jobs: u32,
    /// Bury a job that has failed so many times
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub attempts: u64,
    /// Delay after the first failure; it doubles with each
    #[arg(long, value_parser = seconds, default_value = "10s", value_name = "TIME")]
    pub delay: u32,
    /// The longest delay
    #[arg(long, value_parser = seconds, default_value = "1h", value_name = "TIME")]
    pub max_delay: u32,
    /// End when there is no job, instead of waiting for one
    #[arg(long)]
    pub until_empty: bool,
}

/// Of `export`.
#[derive(Args)]
pub struct ExportArguments {
    /// Names of tubes, or patterns; all without them
    #[arg(value_parser = glob, value_name = "TUBE")]
    pub tubes: Vec<GlobMatcher>,
    /// Which of their jobs
    #[command(flatten)]
    pub filter: FilterArguments,
    /// The file; - for standard output. It gets its name when it is complete
    #[arg(long, short, default_value = "-", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Delete the jobs once they are safe in the file
    #[arg(long)]
    pub drain: bool,
    /// With --drain: ask or not
    #[command(flatten)]
    pub confirm: Confirm,
}

/// Of `import`.
#[derive(Args)]
pub struct ImportArguments {
    /// A file that export has written
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Put all jobs into this tube
    #[arg(long)]
    pub tube: Option<Name>,
    /// Where it is written down what was put; by default FILE.journal
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub journal: Option<PathBuf>,
    /// Put jobs with tags that the server does not know without them
    #[arg(long)]
    pub drop_tags: bool,
    /// Only check the file, and say what would be put
    #[arg(long)]
    pub dry_run: bool,
}
