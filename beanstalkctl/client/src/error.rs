//! What can go wrong, by who has to change something.

use crate::address::Address;
use crate::reply::ParseError;
use crate::yaml::YamlError;
use std::fmt;
use std::io;

/// Why a command has no result.
#[derive(Debug)]
pub enum Error {
    /// Nobody answers at the address.
    Connect {
        /// Where.
        address: Address,
        /// What the system says.
        source: io::Error,
    },
    /// The connection failed.
    Io(io::Error),
    /// The server closed the connection.
    Closed,
    /// The reply did not come in time. It may still come: the connection can be read again.
    TimedOut,
    /// What came is no reply of the protocol. The connection is of no more use.
    Malformed(ParseError),
    /// The data behind OK is not what the command gives.
    MalformedData(YamlError),
    /// A reply of the protocol, but none of this command.
    Unexpected {
        /// The command's word.
        command: String,
        /// The reply.
        reply: String,
    },
    /// The server understood, or did not, and says no. Nothing has changed.
    Refused(Refusal),
}

/// How a server says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The arguments are wrong, or the line is too long.
    BadFormat,
    /// The server does not have this command.
    UnknownCommand,
    /// There is no room, in memory or on the disk.
    OutOfMemory,
    /// The server failed.
    InternalError,
    /// The body is above the server's limit.
    JobTooBig,
    /// The server takes no new jobs.
    Draining,
    /// The body did not end where its size said.
    ExpectedCrlf,
    /// No such job or tube, or not held by this connection, or not in the right state.
    NotFound,
    /// It is the last watched tube.
    NotIgnored,
    /// No job came in time.
    TimedOut,
    /// A reservation of this connection ends within a second.
    DeadlineSoon,
    /// The reserve was ended by a byte that the client sent.
    Aborted,
    /// The other tube has the job with this id, which has the same key.
    Exists(u64),
}

/// Who has to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// The command, or the moment at which it was sent.
    Caller,
    /// The server, which failed or speaks something else.
    Server,
    /// The way between.
    Network,
}

impl Error {
    /// Who has to change something before it can work.
    pub fn culprit(&self) -> Culprit {
        match self {
            Self::Connect { .. } | Self::Io(_) | Self::Closed | Self::TimedOut => Culprit::Network,
            Self::Malformed(_) | Self::MalformedData(_) | Self::Unexpected { .. } => Culprit::Server,
            Self::Refused(Refusal::OutOfMemory | Refusal::InternalError | Refusal::Draining) => {
                Culprit::Server
            }
            Self::Refused(_) => Culprit::Caller,
        }
    }

    /// Whether the server said NOT_FOUND.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NotFound))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::BadFormat => "BAD_FORMAT",
            Self::UnknownCommand => "UNKNOWN_COMMAND",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::InternalError => "INTERNAL_ERROR",
            Self::JobTooBig => "JOB_TOO_BIG",
            Self::Draining => "DRAINING",
            Self::ExpectedCrlf => "EXPECTED_CRLF",
            Self::NotFound => "NOT_FOUND",
            Self::NotIgnored => "NOT_IGNORED",
            Self::TimedOut => "TIMED_OUT",
            Self::DeadlineSoon => "DEADLINE_SOON",
            Self::Aborted => "ABORTED",
            Self::Exists(id) => return write!(f, "EXISTS {id}"),
        };
        f.write_str(words)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { address, source } => write!(f, "no connection to {address}: {source}"),
            Self::Io(error) => write!(f, "the connection failed: {error}"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::TimedOut => f.write_str("the server did not answer in time"),
            Self::Malformed(error) => write!(f, "the server does not speak the protocol: {error}"),
            Self::MalformedData(error) => write!(f, "the server's data cannot be read: {error}"),
            Self::Unexpected { command, reply } => write!(f, "the server answered {command} with {reply}"),
            Self::Refused(refusal) => write!(f, "the server answered {refusal}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } | Self::Io(source) => Some(source),
            Self::Malformed(error) => Some(error),
            Self::MalformedData(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // A read with a time-out ends with either, depending on the system.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Io(error),
        }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        Self::Malformed(error)
    }
}

impl From<YamlError> for Error {
    fn from(error: YamlError) -> Self {
        Self::MalformedData(error)
    }
}
