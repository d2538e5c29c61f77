//! TLS: certificates and keys from files, and the encrypted half of a connection.
//!
//! Owns: the contents of the files, the state of each handshake, and encrypted or decrypted bytes that have not been
//! passed on. Never owns a socket: each call gets one, so that tests can drive it over memory. The exchange
//! of a connection does not know about TLS. Driven by the streams of `stream/tls_stream.rs`.
//!
//! Until the end of its handshake, a client of a TLS listener is not identified. The constants below limit the memory
//! that such a client can take, and how long the server waits for it.

// Most errors of rustls and most elements of ASN.1 mean nothing special here.
#![allow(clippy::wildcard_enum_match_arm)]

mod acceptor;
mod channel;
mod credentials;
mod failure;
mod records;
mod sessions;
mod x509;

use std::time::Duration;

pub use self::acceptor::{Acceptor, TlsFigures};
pub(crate) use self::channel::MAX_RECORDS;
pub use self::channel::{Channel, Decryption};
pub use self::credentials::{CredentialError, CredentialFiles, Credentials};
pub use self::failure::HandshakeFailure;
pub use self::x509::ClientCertificate;

/// The time limit for a handshake. A handshake takes two round trips; a machine far away or under load needs a second
/// or two.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of bytes that a client may send before its handshake is done: several times the size of a
/// certificate chain with the longest keys.
pub const MAX_HANDSHAKE_BYTES: usize = 32 * 1024;
