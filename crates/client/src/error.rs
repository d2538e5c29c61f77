//! The errors of a command, by their cause.

use std::fmt;
use std::io;

use beanstalkd_protocol::{Refusal, Reply, ReplyError, Verb, YamlError};

use crate::address::Address;

/// The reason why a command has failed.
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
    /// The server answered with TLS, but the connection does not use it.
    SpeaksTls,
    /// The server speaks the protocol without TLS, but the connection uses it.
    SpeaksNoTls {
        /// The address.
        address: Address,
    },
    /// The reply did not arrive in time. It may still arrive: [`Connection::receive`](crate::Connection::receive) can
    /// be called again.
    TimedOut,
    /// The received bytes are not a reply of the protocol. The connection can no longer be used.
    Malformed(ReplyError),
    /// The data after OK does not have the form that the protocol defines for the command. The connection can be used
    /// further.
    MalformedData(YamlError),
    /// A reply of the protocol that this command does not have. The connection can no longer be used.
    Unexpected {
        /// The name of the command.
        command: &'static str,
        /// The reply.
        reply: String,
    },
    /// A reply that came before the command that it would answer. The connection can no longer be used.
    Unasked {
        /// The reply.
        reply: String,
    },
    /// The server refused the command. Nothing has changed.
    Refused(Refusal),
    /// The command was not sent, because it breaks this rule: a limit of the protocol, or the form of a request.
    /// Nothing has changed.
    Invalid(&'static str),
    /// The connection was lost before the reply, and the command must not be sent again automatically: the server may
    /// or may not have executed it.
    Unconfirmed {
        /// The name of the command.
        command: &'static str,
    },
    /// The server does not have this extension, because it is another or an older server. Nothing has changed.
    Unsupported {
        /// The command or the tag, as in `extensions` of `stats`.
        extension: String,
    },
    /// All connections of the pool are in use, and none was returned in time.
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
    /// The error for a reply that refuses the command, or that belongs to another command.
    pub fn of_reply(command: Verb, reply: &Reply<'_>) -> Self {
        match Self::refusal(command, reply) {
            Some(refusal) => Self::Refused(refusal),
            None => Self::Unexpected { command: command.as_str(), reply: reply.shortened() },
        }
    }

    /// The refusal in a reply to this command.
    pub(crate) fn refusal(command: Verb, reply: &Reply<'_>) -> Option<Refusal> {
        match (command, reply) {
            (Verb::Put | Verb::Complete, Reply::Draining) => Some(Refusal::Draining),
            // C buries the job if it has no memory for its ready queue.
            (Verb::Put, Reply::BuriedJob(_)) => Some(Refusal::OutOfMemory),
            (_, reply) => reply.refusal(),
        }
    }

    /// The error of an attempt to connect.
    pub(crate) fn connect(address: &Address, source: io::Error) -> Self {
        let address = address.clone();
        if is_not_tls(&source) { Self::SpeaksNoTls { address } } else { Self::Connect { address, source } }
    }

    /// The error for a reply to a command that was not sent.
    pub(crate) fn unasked(reply: &Reply<'_>) -> Self {
        Self::Unasked { reply: reply.shortened() }
    }

    /// The party that caused the error.
    pub fn culprit(&self) -> Culprit {
        match self {
            Self::Connect { .. } | Self::Io(_) | Self::Closed | Self::TimedOut => Culprit::Network,
            Self::SpeaksTls | Self::SpeaksNoTls { .. } => Culprit::Network,
            Self::Malformed(_) | Self::MalformedData(_) => Culprit::Server,
            Self::Unexpected { .. } | Self::Unasked { .. } => Culprit::Server,
            Self::Refused(Refusal::OutOfMemory | Refusal::InternalError | Refusal::Draining) => {
                Culprit::Server
            }
            Self::Unconfirmed { .. } => Culprit::Network,
            Self::Unsupported { .. } => Culprit::Server,
            Self::Refused(_) | Self::Invalid(_) | Self::PoolExhausted => Culprit::Caller,
        }
    }

    /// Whether the connection can no longer be used: it is lost, or out of step.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Io(_) | Self::Closed => true,
            Self::SpeaksTls | Self::SpeaksNoTls { .. } => true,
            Self::Malformed(_) | Self::Unexpected { .. } | Self::Unasked { .. } => true,
            Self::TimedOut | Self::MalformedData(_) | Self::Refused(_) | Self::Invalid(_) => false,
            Self::Unconfirmed { .. } | Self::Unsupported { .. } | Self::PoolExhausted => false,
        }
    }

    /// Whether the commands after it still get their replies.
    pub(crate) fn concerns_one_command(&self) -> bool {
        matches!(
            self,
            Self::Refused(_) | Self::Invalid(_) | Self::Unconfirmed { .. } | Self::Unsupported { .. }
        )
    }

    /// Whether a server without the extension of a command answers like this.
    pub(crate) fn may_be_unsupported(&self) -> bool {
        matches!(self, Self::Refused(Refusal::UnknownCommand | Refusal::BadFormat))
    }

    /// Whether another connection may help.
    pub(crate) fn is_network_error(&self) -> bool {
        match self {
            Self::Connect { source, .. } => {
                source.kind() != io::ErrorKind::InvalidData && !is_tls_error(source)
            }
            Self::Io(_) | Self::Closed | Self::TimedOut => true,
            Self::SpeaksTls | Self::SpeaksNoTls { .. } | Self::Malformed(_) | Self::MalformedData(_) => false,
            Self::Unexpected { .. } | Self::Unasked { .. } | Self::Refused(_) | Self::Invalid(_) => false,
            Self::Unconfirmed { .. } | Self::Unsupported { .. } | Self::PoolExhausted => false,
        }
    }

    /// Whether the server has not answered in time: another attempt may take as long.
    pub(crate) fn is_late(&self) -> bool {
        // A connect that times out has either kind, depending on the system.
        let is_late = |kind| matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        matches!(self, Self::TimedOut)
            || matches!(self, Self::Connect { source, .. } if is_late(source.kind()))
    }

    /// Whether the server may be able to execute the command later: it had no memory or no space, or it has a bug.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Refused(Refusal::OutOfMemory | Refusal::InternalError))
    }

    /// Whether the server has sent something that is not a reply to the command. It is not known which command its next
    /// bytes answer, so the connection cannot be used any more: a method of a [`Client`](crate::Client) has closed it.
    /// A caller of [`Connection::call`](crate::Connection::call), who gets every reply, closes it with
    /// [`Connection::hang_up`](crate::Connection::hang_up).
    pub fn is_out_of_step(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::Unexpected { .. } | Self::Unasked { .. })
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
            Self::Connect { address, source } => write!(f, "cannot connect to {address}: {source}"),
            Self::Io(error) => write!(f, "the connection failed: {error}"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::SpeaksTls => f.write_str("this port speaks TLS, and the connection does not use it"),
            Self::SpeaksNoTls { address } => {
                write!(f, "{address} speaks the protocol without TLS, and the connection uses TLS")
            }
            Self::TimedOut => f.write_str("the server did not answer in time"),
            Self::Malformed(error) => write!(f, "the server does not speak the protocol: {error}"),
            Self::MalformedData(error) => write!(f, "the server's data cannot be read: {error}"),
            Self::Unexpected { command, reply } => write!(f, "the server answered {command} with {reply}"),
            Self::Unasked { reply } => write!(f, "the server sent {reply} before the command for it"),
            Self::Refused(refusal) => write!(f, "the server answered {refusal}"),
            Self::Invalid(rule) => write!(f, "the command was not sent: {rule}"),
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
            Self::Closed | Self::SpeaksTls | Self::SpeaksNoTls { .. } | Self::TimedOut => None,
            Self::Unexpected { .. } | Self::Unasked { .. } | Self::Refused(_) | Self::Invalid(_) => None,
            Self::Unconfirmed { .. } | Self::Unsupported { .. } | Self::PoolExhausted => None,
        }
    }
}

/// Whether the server was reached, but its certificate or its messages cannot be trusted.
#[cfg(feature = "tls")]
fn is_tls_error(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<rustls::Error>())
}

#[cfg(not(feature = "tls"))]
fn is_tls_error(_: &io::Error) -> bool {
    false
}

/// Whether the server was reached, and does not use TLS.
#[cfg(feature = "tls")]
fn is_not_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<crate::tls::NotTls>())
}

#[cfg(not(feature = "tls"))]
fn is_not_tls(_: &io::Error) -> bool {
    false
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        // A read that times out has either kind, depending on the system.
        let is_timed_out = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        if is_timed_out { Self::TimedOut } else { Self::Io(error) }
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
