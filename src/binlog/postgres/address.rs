//! The addresses at which the hosts of a URL are.
//!
//! Owns: the resolution of their names. A name may have several addresses, and each of them counts as a host of its own:
//! one of them may be a standby, or down. Used on the helper thread and at the start alone, because it waits for the DNS.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use super::wire::Failure;
use crate::database_url::DatabaseHost;

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

/// All addresses of `hosts` in their order, each with its words for a message. A name is resolved when its turn comes.
pub(super) fn addresses(
    hosts: &[DatabaseHost],
) -> impl Iterator<Item = (String, Result<Address, Failure>)> + '_ {
    hosts.iter().flat_map(|host| match host {
        DatabaseHost::Unix(path) => vec![(host.to_string(), Ok(Address::Unix(path.clone())))],
        DatabaseHost::Tcp { host: name, port } => match resolved(name, *port) {
            Err(error) => vec![(host.to_string(), Err(Failure::Lost(error.to_string())))],
            Ok(found) if found.is_empty() => {
                vec![(host.to_string(), Err(Failure::Lost("the name has no address".to_owned())))]
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

fn resolved(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}
