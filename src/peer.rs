//! The other end of a connection.
//!
//! Owns: its address or its user, and the source that it belongs to, for counts and limits. Never knows an identity:
//! `access` does.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client that has connected by TCP from this address.
    Tcp(SocketAddr),
    /// The client of a unix socket, with its user's id if the system knows it.
    Unix(Option<u32>),
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => SocketAddr::new(address.ip().to_canonical(), address.port()).fmt(out),
            Self::Unix(Some(user)) => write!(out, "unix:uid={user}"),
            Self::Unix(None) => out.write_str("unix"),
        }
    }
}

/// The source of a client's connections. An IPv6 network that belongs to one customer is one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientSource {
    /// An address, or the first one of a network.
    Address(IpAddr),
    /// The user of a unix socket, if the system knows it.
    User(Option<u32>),
}

impl ClientSource {
    /// The source of the client at `peer`.
    #[must_use]
    pub(crate) fn of(peer: Peer) -> Self {
        match peer {
            Peer::Tcp(address) => Self::Address(match address.ip().to_canonical() {
                IpAddr::V6(address) => {
                    let [a, b, c, d, ..] = address.segments();
                    IpAddr::from([a, b, c, d, 0, 0, 0, 0])
                }
                address => address,
            }),
            Peer::Unix(user) => Self::User(user),
        }
    }
}
