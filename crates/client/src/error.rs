//! The errors of a command, by their cause.

use crate::address::Address;
use crate::command::Command;
use crate::reply::{ParseError, Reply};
use crate::yaml::YamlError;
use std::fmt;
use std::io;

/// Why a command has failed.
#[derive(Debug)]
pub enum Error {
    /// The address does not accept connections.
    Connect {
        /// The address.
        address: Address,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection failed.
    Io(io::Error),
    /// The server closed the connection.
    Closed,
    /// The server answered with TLS, and the connection is without it.
    SpeaksTls,
    /// The reply did not arrive in time. It may still arrive: [`Connection::receive`](crate::Connection::receive) can be
    /// called again.
    TimedOut,
    /// The received bytes are not a reply of the protocol. The connection can no longer be used.
    Malformed(ParseError),
    /// The data after OK does not have the form that the command promises.
    MalformedData(YamlError),
    /// A reply of the protocol that this command does not have.
    Unexpected {
        /// The name of the command.
        command: String,
        /// The reply.
        reply: String,
    },
    /// The server refused the command. Nothing has changed.
    Refused(Refusal),
}

/// Why a server refused a command: its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The arguments are wrong, or the line is too long.
    BadFormat,
    /// The server does not have this command.
    UnknownCommand,
    /// There is no room in memory or on the disk.
    OutOfMemory,
    /// The server failed.
    InternalError,
    /// The body is above the server's limit.
    JobTooBig,
    /// The server is in drain mode and accepts no new jobs.
    Draining,
    /// CR LF did not follow the body.
    ExpectedCrlf,
    /// There is no such job or tube, or the job is not reserved by this connection, or not in the right state.
    NotFound,
    /// It is the last watched tube.
    NotIgnored,
    /// No job came in time.
    TimedOut,
    /// A reservation of this connection ends within a second.
    DeadlineSoon,
    /// A byte from the client ended the wait of the reserve.
    Aborted,
    /// The access rules of the server do not allow it.
    Forbidden,
    /// The token is nobody's.
    Unauthorized,
    /// The server has as many connections of this identity as it may have.
    TooManyConnections,
    /// In the other tube, the job with this id has the same idempotency key.
    Exists(u64),
}

/// The party that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// The caller: the command, or the time at which it was sent.
    Caller,
    /// The server: it failed, or does not follow the protocol.
    Server,
    /// The network between them.
    Network,
}

impl Error {
    pub(crate) fn unexpected(command: &Command<'_>, reply: &Reply) -> Self {
        let reply = format!("{reply:?}").chars().take(200).collect();
        Self::Unexpected { command: command.verb(), reply }
    }

    /// The party that caused the error.
    pub fn culprit(&self) -> Culprit {
        match self {
            Self::Connect { .. } | Self::Io(_) | Self::Closed | Self::SpeaksTls | Self::TimedOut => {
                Culprit::Network
            }
            Self::Malformed(_) | Self::MalformedData(_) | Self::Unexpected { .. } => Culprit::Server,
            Self::Refused(Refusal::OutOfMemory | Refusal::InternalError | Refusal::Draining) => {
                Culprit::Server
            }
            Self::Refused(_) => Culprit::Caller,
        }
    }

    /// Whether the reply was NOT_FOUND.
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
            Self::Forbidden => "FORBIDDEN",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::TooManyConnections => "TOO_MANY_CONNECTIONS",
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
            Self::SpeaksTls => f.write_str("this port speaks TLS; connect with --tls"),
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
            // A read that times out has either kind, depending on the system.
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
