//! The reasons why a socket cannot listen.

use std::path::PathBuf;
use std::{fmt, io};

/// The reason why a socket cannot listen.
#[derive(Debug)]
pub enum ListenError {
    /// The port is neither a number nor the name of a service.
    NoSuchPort {
        /// The port.
        port: String,
    },
    /// The host has no address.
    LookUp {
        /// The host, `*` for every address.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// The system refused to bind the file of a unix socket or to listen on it.
    BindUnix {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The system refused to bind the address or to listen on it.
    Bind {
        /// The address.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// Another server listens on the unix socket.
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path names a file that is not a socket.
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The path is too long or not valid for a socket's address.
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The mode or the owner of the unix socket cannot be set.
    Access {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl fmt::Display for ListenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPort { port } => {
                write!(out, "'{port}' is neither a port up to 65535 nor the name of a service")
            }
            Self::LookUp { host, source } => {
                write!(out, "'{host}' is not an address, and looking it up as a host name failed: {source}")
            }
            Self::BindUnix { path, source } => write!(out, "cannot listen on {}: {source}", path.display()),
            Self::Bind { address, source } => write!(out, "cannot listen on {address}: {source}"),
            Self::InUse { path } => write!(out, "another server listens on {}", path.display()),
            Self::NotASocket { path } => {
                write!(out, "{} exists and is not a socket", path.display())
            }
            Self::PathTooLong { path } => {
                write!(out, "{} is too long for the path of a socket", path.display())
            }
            Self::Access { path, source } => {
                write!(out, "cannot set the mode or owner of {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::LookUp { source, .. }
            | Self::BindUnix { source, .. }
            | Self::Bind { source, .. }
            | Self::Access { source, .. } => Some(source),
            Self::NoSuchPort { .. }
            | Self::InUse { .. }
            | Self::NotASocket { .. }
            | Self::PathTooLong { .. } => None,
        }
    }
}
