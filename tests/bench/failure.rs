//! The reasons for which a figure could not be measured.
//!
//! Owns: the reasons. Never decides what follows from one: the table prints it in place of the figure.

use std::fmt;
use std::io;
use std::process::ExitStatus;

/// The reason for which a figure is missing.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The operating system refused something.
    Io(String),
    /// The server exited before its first reply.
    Exited(ExitStatus),
    /// The server did not answer for [`crate::client::PATIENCE`].
    Silent,
    /// The server closed a connection.
    Closed,
    /// The server's reply was not the one that the workload expects.
    Reply(String),
    /// A tool that the row needs is missing, or printed this message instead of a figure.
    Tool(String),
    /// The row was left out for this server, or for a quick run.
    Skipped(&'static str),
    /// The figure would mean nothing: the floor keeps no jobs.
    Meaningless,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed
            }
            _ => Self::Io(error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(text) => write!(out, "{text}"),
            Self::Exited(status) => write!(out, "exited before its first reply ({status})"),
            Self::Silent => write!(out, "did not answer"),
            Self::Closed => write!(out, "closed the connection"),
            Self::Reply(line) => write!(out, "answered \"{}\"", line.escape_debug()),
            Self::Tool(text) => write!(out, "not measured: {text}"),
            Self::Skipped(reason) => write!(out, "{reason}"),
            Self::Meaningless => write!(out, "has no meaning here"),
        }
    }
}
