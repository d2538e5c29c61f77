//! The addresses at which the hosts of a URL are.
//!
//! Owns: the resolution of their names. A name may have several addresses, and each of them counts as a host of its
//! own: one of them may be a standby, or down. Used on the helper thread and at the start alone, because it waits for
//! the DNS.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::wire::{StatementError, within};
use crate::database_url::DatabaseHost;

/// Longer than a resolver tries.
const RESOLVED_WITHIN: Duration = Duration::from_secs(60);

/// Where a server of the database is.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Tcp {
        /// The name in the URL, which the certificate must have.
        name: String,
        address: SocketAddr,
    },
    Unix(PathBuf),
}

/// All addresses of `hosts` in their order, each with its words for a message. A name is resolved when its turn comes,
/// before `limit`.
pub(super) fn addresses(
    hosts: &[DatabaseHost],
    limit: Option<Instant>,
) -> impl Iterator<Item = (String, Result<Address, StatementError>)> + '_ {
    hosts.iter().flat_map(move |host| match host {
        DatabaseHost::Unix(path) => vec![(host.to_string(), Ok(Address::Unix(path.clone())))],
        DatabaseHost::Tcp { host: name, port } => match resolved(name, *port, limit) {
            Err(error) => vec![(host.to_string(), Err(StatementError::Lost(error.to_string())))],
            Ok(found) if found.is_empty() => {
                vec![(host.to_string(), Err(StatementError::Lost("the name has no address".to_owned())))]
            }
            Ok(found) => {
                let several = found.len() > 1;
                let with_words = |address: SocketAddr| {
                    let words = if several { format!("{host} ({})", address.ip()) } else { host.to_string() };
                    (words, Ok(Address::Tcp { name: name.clone(), address }))
                };
                found.into_iter().map(with_words).collect()
            }
        },
    })
}

/// The system resolves a name for as long as its settings say, and nothing ends that: a thread of its own waits, and is
/// left behind if the limit comes first.
fn resolved(name: &str, port: u16, limit: Option<Instant>) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let (found, name) = (channel(), name.to_owned());
    Builder::new().name("resolver".to_owned()).spawn(move || {
        // The caller may have stopped waiting for it.
        let _ = found.0.send((name.as_str(), port).to_socket_addrs().map(Iterator::collect));
    })?;
    let in_time = found.1.recv_timeout(within(limit, RESOLVED_WITHIN));
    in_time.unwrap_or_else(|_| Err(io::Error::new(ErrorKind::TimedOut, "the name was not resolved in time")))
}
