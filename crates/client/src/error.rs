//! The errors of a command, by their cause.

use crate::address::Address;
use beanstalkd_protocol::{Refusal, Reply, ReplyError, Verb, YamlError};
use std::fmt;
use std::io;

/// Why a command has failed.
#[derive(Debug)]
#[non_exhaustive]
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
    /// The reply did not arrive in time. It may still arrive: [`Connection::receive`](crate::Connection::receive) can
    /// be called again.
    TimedOut,
    /// The received bytes are not a reply of the protocol. The connection can no longer be used.
    Malformed(ReplyError),
    /// The data after OK does not have the form that the command promises.
    MalformedData(YamlError),
    /// A reply of the protocol that this command does not have.
    Unexpected {
        /// The name of the command.
        command: &'static str,
        /// The reply.
        reply: String,
    },
    /// The server refused the command. Nothing has changed.
    Refused(Refusal),
    /// The connection was lost before the reply, and the command must not be sent again by itself: the server may have
    /// executed it, or not.
    Unconfirmed {
        /// The name of the command.
        command: &'static str,
    },
    /// The server does not offer this extension: it is another one, or an older one. Nothing has changed.
    Unsupported {
        /// The command or the tag, as `extensions` in `stats` would have it.
        extension: String,
    },
    /// All connections of the pool are in use, and none came back in time.
    PoolExhausted,
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
    /// The error of a command whose reply says that it was not executed, or is that of another command.
    pub fn of_reply(command: Verb, reply: &Reply<'_>) -> Self {
        match reply.refusal() {
            Some(refusal) => Self::Refused(refusal),
            None => {
                let reply = format!("{reply:?}").chars().take(200).collect();
                Self::Unexpected { command: command.as_str(), reply }
            }
        }
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
            Self::Unconfirmed { .. } => Culprit::Network,
            Self::Unsupported { .. } => Culprit::Server,
            Self::Refused(_) | Self::PoolExhausted => Culprit::Caller,
        }
    }

    /// Whether the connection can no longer be used: it is lost, or nobody knows where the next reply begins.
    pub(crate) fn is_end_of_connection(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Io(_) | Self::Closed | Self::SpeaksTls | Self::Malformed(_) => true,
            Self::TimedOut | Self::MalformedData(_) | Self::Unexpected { .. } | Self::Refused(_) => false,
            Self::Unconfirmed { .. } | Self::Unsupported { .. } | Self::PoolExhausted => false,
        }
    }

    /// Whether a server without the extension of a command says this.
    pub(crate) fn may_be_unsupported(&self) -> bool {
        matches!(self, Self::Refused(Refusal::UnknownCommand | Refusal::BadFormat))
    }

    /// Whether another connection may help.
    pub(crate) fn is_of_network(&self) -> bool {
        match self {
            Self::Connect { source, .. } => source.kind() != io::ErrorKind::InvalidData && !is_of_tls(source),
            Self::Io(_) | Self::Closed | Self::TimedOut => true,
            _ => false,
        }
    }

    /// Whether the server has sent what the protocol does not have as an answer to the command. Nobody knows which
    /// command its next bytes answer, so the connection is of no more use.
    pub fn is_out_of_step(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::MalformedData(_) | Self::Unexpected { .. })
    }

    /// Whether the reply was TIMED_OUT: no job came in time.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::Refused(Refusal::TimedOut))
    }

    /// Whether the reply was NOT_FOUND.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NotFound))
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
            Self::Unconfirmed { command } => {
                write!(f, "the connection was lost before the reply to {command}: it may have been executed")
            }
            Self::Unsupported { extension } => {
                write!(f, "the server does not have the extension {extension}")
            }
            Self::PoolExhausted => f.write_str("all connections of the pool are in use"),
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

/// Whether the server was reached, and its certificate, or what it says, is not to be trusted.
#[cfg(feature = "tls")]
fn is_of_tls(error: &io::Error) -> bool {
    let source = error.get_ref();
    source.is_some_and(|source| source.is::<rustls::Error>() || source.is::<crate::tls::NotTls>())
}

#[cfg(not(feature = "tls"))]
fn is_of_tls(_: &io::Error) -> bool {
    false
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

/// Whether the error of a socket means that the other side has closed it.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
    )
}

impl From<ReplyError> for Error {
    fn from(error: ReplyError) -> Self {
        Self::Malformed(error)
    }
}

impl From<YamlError> for Error {
    fn from(error: YamlError) -> Self {
        Self::MalformedData(error)
    }
}
