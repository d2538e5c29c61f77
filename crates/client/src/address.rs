//! The address of a server: host and port, or the path of a unix socket.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of beanstalkd.
pub const DEFAULT_PORT: u16 = 11300;

/// The address of a server. As text: `host:port`, `host`, `[::1]:port`, `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host name or an IP address, without brackets, and a port.
    Tcp {
        /// Host name, IPv4 or IPv6 address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not an address: expected host:port, [IPv6]:port or unix:PATH", self.0)
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Unix(path.into())) };
        }
        let (host, port) = split_host(text).ok_or_else(wrong)?;
        let port = match port {
            // The parser of u16 accepts a plus sign.
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                port.parse().map_err(|_| wrong())?
            }
            Some(_) => return Err(wrong()),
            None => DEFAULT_PORT,
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

/// Host and port. A bare IPv6 address has no port: its colons belong to it.
fn split_host(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        return match rest {
            "" => Some((host, None)),
            _ => Some((host, Some(rest.strip_prefix(':')?))),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => text.parse::<Ipv6Addr>().ok().map(|_| (text, None)),
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_displayed() {
        for (text, shown) in [
            ("127.0.0.1:11300", "127.0.0.1:11300"),
            ("queue.example", "queue.example:11300"),
            ("[::1]:1", "[::1]:1"),
            ("[::1]", "[::1]:11300"),
            ("::1", "[::1]:11300"),
            ("unix:/run/b.sock", "unix:/run/b.sock"),
        ] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in
            ["", ":1", "host:", "host:+1", "host:70000", "unix:", "[::1", "[::1]1", "a:1:b", "a b:1", "[]:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
