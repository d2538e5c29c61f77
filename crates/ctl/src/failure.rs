//! The reasons for which the program fails, each with its exit code.

use std::fmt;
use std::io;
use std::path::Path;

use beanstalk_client::{Culprit, Error};

/// The result of a step that can fail.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Why a command did not succeed. Each kind has its own exit code.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 1: no job or tube matches.
    NothingMatched(String),
    /// Exit code 2: the command line makes no sense, or a confirmation is needed and cannot be asked for.
    Usage(String),
    /// Exit code 3: the server cannot be reached, or the connection broke.
    Connection(String),
    /// Exit code 4: the server refused the command, or does not have it.
    Refused(String),
    /// Exit code 5: a local file, a local command or the terminal failed.
    Local(String),
    /// Exit code 130: stopped by Ctrl-C or SIGTERM, or the question was answered with no.
    Interrupted(String),
    /// This exit code, for failures that were printed when they occurred.
    Reported(u8),
    /// Exit code 0: the reader of standard output has closed it, as `head` does.
    OutputClosed,
}

impl Failure {
    /// The exit code of [`Self::Connection`], also where the failures were reported when they occurred.
    pub const CONNECTION_CODE: u8 = 3;

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Reported(code) => *code,
            Self::NothingMatched(_) => 1,
            Self::Usage(_) => 2,
            Self::Connection(_) => Self::CONNECTION_CODE,
            Self::Refused(_) => 4,
            Self::Local(_) => 5,
            Self::Interrupted(_) => 130,
        }
    }

    /// Puts `what`, the operation that failed, in front of the message.
    pub fn while_doing(mut self, what: &str) -> Self {
        match &mut self {
            Self::NothingMatched(text)
            | Self::Usage(text)
            | Self::Connection(text)
            | Self::Refused(text)
            | Self::Local(text)
            | Self::Interrupted(text) => text.insert_str(0, &format!("{what}: ")),
            Self::OutputClosed | Self::Reported(_) => {}
        }
        self
    }

    /// The failure because these jobs do not exist.
    pub fn no_jobs(ids: &[u64]) -> Self {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        Self::NothingMatched(format!("there is no job {}", ids.join(", ")))
    }

    /// The failure of an operation on a file.
    pub fn file(path: &Path, error: impl fmt::Display) -> Self {
        Self::Local(format!("{}: {error}", path.display()))
    }
}

/// Names the file in the failure of an operation on it.
pub trait OfFile<T> {
    /// The failure has this path.
    fn of_file(self, path: &Path) -> Result<T>;
}

impl<T, E: fmt::Display> OfFile<T> for Result<T, E> {
    fn of_file(self, path: &Path) -> Result<T> {
        self.map_err(|error| Failure::file(path, error))
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
            Self::OutputClosed | Self::Reported(_) => Ok(()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let advice = match &error {
            Error::SpeaksTls => "; connect with --tls",
            Error::SpeaksNoTls { .. } => "; leave out --tls",
            _ => "",
        };
        match error.culprit() {
            Culprit::Network => Self::Connection(format!("{error}{advice}")),
            Culprit::Caller | Culprit::Server => Self::Refused(error.to_string()),
        }
    }
}

/// For errors of standard output alone. Errors of other files name their path: see [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Local(format!("standard output: {error}")),
        }
    }
}
