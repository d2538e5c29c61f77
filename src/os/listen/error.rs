//! Why a socket could not be made to listen.

use std::path::PathBuf;
use std::{fmt, io};

/// Why a socket could not be made to listen.
#[derive(Debug)]
pub enum ListenError {
    /// The host or the port has no address.
    LookUp {
        /// The host, `*` for every address.
        host: String,
        /// The port.
        port: String,
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
    /// A server listens on the unix socket.
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// A file that is no socket stands in its place.
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The path does not fit an address.
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
            Self::LookUp { host, port, source } => write!(out, "cannot look up {host} port {port}: {source}"),
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
            Self::LookUp { source, .. } | Self::Bind { source, .. } | Self::Access { source, .. } => {
                Some(source)
            }
            Self::InUse { .. } | Self::NotASocket { .. } | Self::PathTooLong { .. } => None,
        }
    }
}
