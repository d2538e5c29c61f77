//! The reason for a case: the protocol document, a habit of C, or a decision of our server.
//!
//! The protocol document is `doc/protocol.txt` of C beanstalkd 1.13. The sections here are its headings, followed by
//! the command or the paragraph.

use std::fmt;

/// The reason why a server should behave as a case requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// The protocol document says so, in this section.
    Promised(&'static str),
    /// The document does not mention it, but C does so, and clients may rely on it.
    Habit,
    /// Our server does so, and C does not.
    Ours,
}

impl Mark {
    /// The names in `MARKS`.
    pub const WORDS: [&str; 3] = ["promised", "habit", "ours"];

    /// Its name in `MARKS`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Promised(_) => "promised",
            Self::Habit => "habit",
            Self::Ours => "ours",
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promised(section) => write!(f, "promised ({section})"),
            other => f.write_str(other.word()),
        }
    }
}

pub const PROTOCOL: Mark = Mark::Promised("Protocol");
pub const NAMES: Mark = Mark::Promised("Protocol: names");
pub const BODIES: Mark = Mark::Promised("Protocol: job bodies");
pub const BAD_FORMAT: Mark = Mark::Promised("Protocol: BAD_FORMAT");
pub const UNKNOWN_COMMAND: Mark = Mark::Promised("Protocol: UNKNOWN_COMMAND");
pub const LIFE: Mark = Mark::Promised("Job Lifecycle");
pub const TUBES: Mark = Mark::Promised("Job Lifecycle: tubes");
pub const PUT: Mark = Mark::Promised("Producer Commands: put");
pub const DRAINING: Mark = Mark::Promised("Producer Commands: put, DRAINING");
pub const USE: Mark = Mark::Promised("Producer Commands: use");
pub const RESERVE: Mark = Mark::Promised("Worker Commands: reserve");
pub const MARGIN: Mark = Mark::Promised("Worker Commands: reserve, DEADLINE_SOON");
pub const RESERVE_JOB: Mark = Mark::Promised("Worker Commands: reserve-job");
pub const DELETE: Mark = Mark::Promised("Worker Commands: delete");
pub const RELEASE: Mark = Mark::Promised("Worker Commands: release");
pub const BURY: Mark = Mark::Promised("Worker Commands: bury");
pub const TOUCH: Mark = Mark::Promised("Worker Commands: touch");
pub const WATCH: Mark = Mark::Promised("Worker Commands: watch");
pub const IGNORE: Mark = Mark::Promised("Worker Commands: ignore");
pub const PEEK: Mark = Mark::Promised("Other Commands: peek");
pub const KICK: Mark = Mark::Promised("Other Commands: kick");
pub const KICK_JOB: Mark = Mark::Promised("Other Commands: kick-job");
pub const STATS: Mark = Mark::Promised("Other Commands: stats");
pub const STATS_JOB: Mark = Mark::Promised("Other Commands: stats-job");
pub const STATS_TUBE: Mark = Mark::Promised("Other Commands: stats-tube");
pub const QUIT: Mark = Mark::Promised("Other Commands: quit");
pub const PAUSE: Mark = Mark::Promised("Other Commands: pause-tube");
