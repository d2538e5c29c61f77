//! TLS listeners, with the real program: what anonymous clients can do, which clients are accepted, what a reload
//! changes, and that connections behave as over TCP. Besides, access rules with the real program. `simulated.rs` drives
//! the same streams over fake sockets and a clock that is a number.

mod access;
mod audit;
mod figures;
mod handshakes;
mod http;
mod identities;
mod reload;
mod resumption;
mod simulated;
mod start;
mod streams;

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;

pub use beanstalkd_testkit::tls::open;
pub use beanstalkd_testkit::tls_server::TlsServer;
use rustls::{ClientConfig, ClientConnection};

/// The first bytes of a client with these settings.
pub fn client_hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut tls = ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).unwrap();
    bytes
}

/// Reads until the server closes, or resets, the connection.
pub fn read_to_close(mut socket: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "the server closes"),
    }
    bytes
}

/// Sends only the end of the stream, without `close_notify`.
pub fn bare_end(socket: &TcpStream) {
    socket.shutdown(Shutdown::Write).unwrap();
}

/// The text of a path, for a flag.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
