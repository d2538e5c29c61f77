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

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::panicking::{Client, Server};
use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::tls::{self, Authority, Identity, Leaf};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// A server with a listener for TLS beside its unix socket, and the files of the listener.
pub struct TlsServer {
    /// The process.
    pub server: Server,
    /// The address of its listener.
    pub address: SocketAddr,
    /// The authority that has issued its certificate.
    pub authority: Authority,
    directory: tempfile::TempDir,
}

impl TlsServer {
    /// A server that knows no clients by certificates.
    pub fn start(flags: &[&str]) -> Self {
        Self::start_with(&[], flags)
    }

    /// A server with these files beside its certificate; each has the name of its flag.
    pub fn start_with(files: &[(&str, &str)], flags: &[&str]) -> Self {
        let authority = Authority::new("the servers' authority");
        let for_us_alone = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(for_us_alone).tempdir().unwrap();
        let mut arguments = authority.issue(Leaf::of("localhost")).write(directory.path()).unwrap().to_vec();
        for (flag, content) in files {
            let path = directory.path().join(flag);
            std::fs::write(&path, content).unwrap();
            arguments.extend([format!("--{flag}"), path.to_string_lossy().into_owned()]);
        }
        let address = free_address().unwrap();
        arguments.extend(["--listen".to_owned(), format!("tls://{address}")]);
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        Self { server: Server::start(&arguments), address, authority, directory }
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The settings of a client with `identity`, or with none.
    pub fn settings(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
        self.authority.client(identity, rustls::ALL_VERSIONS)
    }

    /// A client over TLS.
    pub fn connect(&self) -> Client {
        Client::over_tls(self.address, &self.settings(None)).unwrap()
    }

    /// Whether a client with these settings is served, or the reason why not.
    pub fn serves(&self, config: &Arc<ClientConfig>) -> io::Result<()> {
        let mut stream = open(self.address, config)?;
        stream.write_all(b"list-tube-used\r\n")?;
        let mut reply = [0; 15];
        stream.read_exact(&mut reply)?;
        assert_eq!(&reply, b"USING default\r\n");
        Ok(())
    }

    /// A connection of the system, over which nothing was sent.
    pub fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Replaces the certificate of the server.
    pub fn replace_identity(&self, identity: &Identity) {
        identity.write(self.directory.path()).unwrap();
    }

    /// Asks the server over its unix socket, which needs no handshake.
    pub fn connections(&self) -> u64 {
        self.server.connect().stat("current-connections")
    }
}

/// A client that has done its part of the handshake, with its socket.
pub fn open(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let tls = tls::handshake(&socket, config)?;
    Ok(StreamOwned::new(tls, socket))
}

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
