//! The addresses of the hosts in a URL.
//!
//! Owns: the resolution of their names. A name may have several addresses, and each of them counts as a separate host:
//! one of them may be a standby, or down. Used only on the helper thread and at the start, because it waits for the
//! DNS.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::within;
use crate::database_url::DatabaseHost;

/// Longer than a resolver tries.
const RESOLVED_WITHIN: Duration = Duration::from_secs(60);

/// The address of a server of the database.
#[derive(Clone, Debug)]
pub(super) enum DatabaseAddress {
    Tcp {
        /// The name in the URL, which the certificate must have.
        name: String,
        address: SocketAddr,
    },
    Unix(PathBuf),
}

/// All addresses of `hosts` in order, each with its name for a message; or the reason why a host has none. A name is
/// resolved when it is needed, before `limit`.
pub(super) fn addresses(
    hosts: &[DatabaseHost],
    limit: Option<Instant>,
) -> impl Iterator<Item = (String, Result<DatabaseAddress, String>)> + '_ {
    hosts.iter().flat_map(move |host| match host {
        DatabaseHost::Unix(path) => vec![(host.to_string(), Ok(DatabaseAddress::Unix(path.clone())))],
        DatabaseHost::Tcp { host: name, port } => match resolved(name, *port, limit) {
            Err(error) => vec![(host.to_string(), Err(error.to_string()))],
            Ok(found) if found.is_empty() => {
                vec![(host.to_string(), Err("the name has no address".to_owned()))]
            }
            Ok(found) => {
                let several = found.len() > 1;
                let with_words = |address: SocketAddr| {
                    let words = if several { format!("{host} ({})", address.ip()) } else { host.to_string() };
                    (words, Ok(DatabaseAddress::Tcp { name: name.clone(), address }))
                };
                found.into_iter().map(with_words).collect()
            }
        },
    })
}

/// Resolves a name. The system needs as long as its settings say, and the call cannot be cancelled: a separate thread
/// waits, and is abandoned if the limit comes first.
fn resolved(name: &str, port: u16, limit: Option<Instant>) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let (found, name) = (channel(), name.to_owned());
    Builder::new().name("resolver".to_owned()).spawn(move || {
        // The caller may no longer wait.
        let _ = found.0.send((name.as_str(), port).to_socket_addrs().map(Iterator::collect));
    })?;
    let in_time = found.1.recv_timeout(within(limit, RESOLVED_WITHIN));
    in_time.unwrap_or_else(|_| Err(io::Error::new(ErrorKind::TimedOut, "the name was not resolved in time")))
}
