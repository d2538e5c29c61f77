//! Why the program ends without having done what was asked, and the exit code that says so.

use beanstalk_client::{Culprit, Error};
use std::fmt;
use std::io;

/// The end of a command that is not success. Each kind has an exit code of its own.
#[derive(Debug)]
pub enum Failure {
    /// 1: no job, no tube is what was asked for.
    NothingMatched(String),
    /// 2: the command line asks for something that makes no sense.
    Usage(String),
    /// 3: no connection, or it broke.
    Connection(String),
    /// 4: the server said no, or cannot do it.
    Refused(String),
    /// 5: a file, a command or the terminal of this machine.
    Local(String),
    /// 130: stopped by Ctrl-C or SIGTERM.
    Interrupted(String),
    /// 0: whoever read the output wants no more of it.
    OutputClosed,
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::NothingMatched(_) => 1,
            Self::Usage(_) => 2,
            Self::Connection(_) => 3,
            Self::Refused(_) => 4,
            Self::Local(_) => 5,
            Self::Interrupted(_) => 130,
        }
    }

    /// With what was being done in front.
    pub fn while_doing(self, what: &str) -> Self {
        let with = |text: String| format!("{what}: {text}");
        match self {
            Self::NothingMatched(text) => Self::NothingMatched(with(text)),
            Self::Usage(text) => Self::Usage(with(text)),
            Self::Connection(text) => Self::Connection(with(text)),
            Self::Refused(text) => Self::Refused(with(text)),
            Self::Local(text) => Self::Local(with(text)),
            Self::Interrupted(text) => Self::Interrupted(with(text)),
            Self::OutputClosed => Self::OutputClosed,
        }
    }

    /// What went wrong with a file.
    pub fn file(path: &std::path::Path, error: &dyn fmt::Display) -> Self {
        Self::Local(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingMatched(text)
            | Self::Usage(text)
            | Self::Connection(text)
            | Self::Refused(text)
            | Self::Local(text)
            | Self::Interrupted(text) => f.write_str(text),
            Self::OutputClosed => Ok(()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.culprit() {
            Culprit::Network => Self::Connection(error.to_string()),
            Culprit::Caller | Culprit::Server => Self::Refused(error.to_string()),
        }
    }
}

/// Of standard output. Other files say their path: see [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Local(format!("standard output: {error}")),
        }
    }
}
