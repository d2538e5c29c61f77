//! TLS: certificates and keys from files, and the encrypted half of a connection.
//!
//! Owns: what the files contain, the state of each handshake, and what is encrypted or decrypted and not yet passed on.
//! Never owns a socket: each call is given one, so that tests drive it over memory. Sessions know nothing of it. Driven
//! by the sockets of `server/event_loop/` and of `http/socket.rs`.
//!
//! Until its handshake is done, a client of a TLS listener is not known. The constants below limit what such a client
//! can make the server hold, and how long the server waits for it.

mod acceptor;
mod channel;
mod credentials;
mod failure;
mod sessions;
mod x509;

use std::time::Duration;

pub use self::acceptor::{Acceptor, Figures};
pub use self::channel::Channel;
pub use self::credentials::{CredentialError, Credentials, Files};
pub use self::failure::HandshakeFailure;
pub use self::x509::ClientCertificate;

/// How long a client may take for its handshake. A handshake takes two round trips; a machine far away or under load
/// takes a second or two.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes that a client may send before its handshake is done: several times as many as a chain of certificates
/// with the longest keys takes.
pub const HANDSHAKE_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests;
