//! A server process with a listener for TLS, with an authority of its own. A step that fails ends the test.
//!
//! Owns: the process and its files. Driven by the tests of TLS listeners, and of clients that connect to them.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::PATIENCE;
use crate::panicking::{Client, Server};
use crate::server::free_address;
use crate::tls::{Authority, Identity, Leaf, open};

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
        std::fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
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

    /// The path of one of its files: `ca.pem` is the certificate of its authority.
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
