//! The server and the client for tests in which every step must succeed. A step that fails ends the test, and shows the
//! conversation and the server's log.
//!
//! Owns: the panics; [`crate::server`] and [`crate::client`] do the work. `BEANSTALKD_UNDER_TEST` names another
//! server, for example C's, which shows that the tests can fail.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::Signal;
use rustls::ClientConfig;

use crate::client::{self, Failure};
use crate::random::number_from_environment;
use crate::server::{self, Address, POLL_INTERVAL, Transport};
use crate::system::Process;
use crate::{PATIENCE, server_under_test, tls};

/// Whether the tests run as root. Prints a message if they do not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can do this");
    }
    root
}

/// The number in the environment variable `name`, or `otherwise`. Panics if it is no number.
pub fn scale(name: &str, otherwise: usize) -> usize {
    number_from_environment(name).map_or(otherwise, |number| number as usize)
}

/// Waits for `what`: until `holds` returns true. Panics if that takes too long.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for_some(|| what.to_owned(), || holds().then_some(()));
}

/// Waits until `poll` returns something, and returns it. Panics if that takes too long, and then says `what`.
#[track_caller]
pub fn wait_for_some<T>(what: impl Fn() -> String, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?}: {}", what());
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A running server; killed when dropped. The one within is for steps that may fail.
pub struct Server(pub server::Server);

impl Server {
    /// A server with `flags` on a unix socket.
    pub fn start(flags: &[&str]) -> Self {
        Self::start_in(&[], flags)
    }

    /// Like [`Server::start`], but `wrapper` is a command line that starts the server.
    pub fn start_in(wrapper: &[&str], flags: &[&str]) -> Self {
        Self::launch(wrapper, &server_under_test(), Transport::Unix, flags)
            .unwrap_or_else(|failure| panic!("{}", failure.error))
    }

    /// Another program with `flags` on a unix socket.
    pub fn start_program(program: &Path, flags: &[&str]) -> Self {
        Self::launch(&[], program, Transport::Unix, flags)
            .unwrap_or_else(|failure| panic!("{}", failure.error))
    }

    /// Like [`Server::start_in`], but returns the exit status of a server that could not start.
    pub fn try_start_in(wrapper: &[&str], flags: &[&str]) -> Result<Self, ExitStatus> {
        Self::launch(wrapper, &server_under_test(), Transport::Unix, flags)
            .map_err(|failure| failure.status.unwrap_or_else(|| panic!("{}", failure.error)))
    }

    /// A server with `flags` on a port of the loopback interface.
    pub fn start_tcp(flags: &[&str]) -> Self {
        Self::launch(&[], &server_under_test(), Transport::Tcp, flags)
            .unwrap_or_else(|failure| panic!("{}", failure.error))
    }

    /// Returns once the server accepts connections and has answered on one.
    fn launch(
        wrapper: &[&str],
        program: &Path,
        transport: Transport,
        flags: &[&str],
    ) -> Result<Self, server::StartError> {
        let wrapper: Vec<OsString> = wrapper.iter().map(OsString::from).collect();
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let mut server = server::Server::start_wrapped(&wrapper, program, transport, &flags)?;
        let mut first = server.connect()?;
        match first.ask(b"list-tube-used\r\n") {
            Ok(_) => Ok(Self(server)),
            Err(failure) => {
                let status = Some(server.wait()?);
                let error = io::Error::other(format!("{failure}: {}", server.stderr()));
                Err(server::StartError { status, error })
            }
        }
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client(self.0.address().connect().expect("the server accepts connections"))
    }

    /// The directory of this server alone.
    pub fn directory(&self) -> &Path {
        self.0.directory()
    }

    /// The path of its unix socket.
    pub fn socket_path(&self) -> PathBuf {
        match self.0.address() {
            Address::Unix(path) => path,
            Address::Tcp(_) | Address::Tls(_) => panic!("the server listens on a port, not on a unix socket"),
        }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        match self.0.address() {
            Address::Tcp(address) | Address::Tls(address) => address.port(),
            Address::Unix(_) => panic!("the server listens on a unix socket, not on a port"),
        }
    }

    /// The text that the server has written to its standard error.
    pub fn log(&self) -> String {
        self.0.stderr()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.0.signal(signal).unwrap();
    }

    /// Sends it SIGHUP, and waits until the log has `outcome` once more.
    #[track_caller]
    pub fn reload(&self, outcome: &str) {
        let count = || self.log().matches(outcome).count();
        let expected = count() + 1;
        self.signal(Signal::HUP);
        wait_until(outcome, || count() == expected);
    }

    /// Writes `text` to the file `path`, and reloads.
    #[track_caller]
    pub fn reload_with(&self, path: impl AsRef<Path>, text: &str, outcome: &str) {
        std::fs::write(path, text).unwrap();
        self.reload(outcome);
    }

    /// Waits until the server exits, and returns its status.
    pub fn end(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    /// The process, for its memory, processor time and descriptors.
    pub fn usage(&self) -> Process {
        self.0.process()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log: {}", self.log());
        }
    }
}

/// A connection. A read panics if nothing arrives in time. The client within is for steps that may fail.
pub struct Client(pub client::Client);

/// The value, or a panic that shows the conversation.
#[track_caller]
fn must<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

impl Client {
    /// A connection to the unix socket at `path`.
    pub fn to_unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).and_then(client::Client::over_unix).map(Self)
    }

    /// A connection to a port of the loopback interface.
    pub fn to_port(port: u16) -> io::Result<Self> {
        TcpStream::connect(("127.0.0.1", port)).and_then(client::Client::over_tcp).map(Self)
    }

    /// A connection with TLS to an address, by these settings.
    pub fn over_tls(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        tls::connect(address, config).and_then(client::Client::over_tls).map(Self)
    }

    /// Sends all of `bytes`.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        must(self.0.send(bytes.as_ref()));
    }

    /// Closes the sending half.
    pub fn half_close(&mut self) {
        must(self.0.half_close());
    }

    /// The next line, without its CRLF.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.try_line().expect("the server sends a line, and does not close the connection")
    }

    /// The next line, or `None` if the server has closed the connection.
    #[track_caller]
    pub fn try_line(&mut self) -> Option<String> {
        must(self.0.read_line()).map(|line| String::from_utf8_lossy(&line).into_owned())
    }

    /// Reads until the server closes, and discards the bytes without looking for line ends, because there may be
    /// hundreds of megabytes. Returns how many bytes came.
    #[track_caller]
    pub fn read_to_end(&mut self) -> usize {
        must(self.0.discard_to_end())
    }

    /// Reads `size` bytes and the CRLF that follows them, and returns the bytes.
    #[track_caller]
    pub fn body(&mut self, size: usize) -> Vec<u8> {
        let mut body = must(self.0.read_bytes(size + 2));
        assert_eq!(&body[size..], b"\r\n");
        body.truncate(size);
        body
    }

    /// Sends a line, and reads one.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.line()
    }

    /// Puts a job, and returns its id.
    #[track_caller]
    pub fn put(&mut self, delay_s: u32, ttr_s: u32, body: &[u8]) -> u64 {
        self.send(client::put_command(0, delay_s, ttr_s, body));
        let reply = self.line();
        reply.strip_prefix("INSERTED ").and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("{reply}"))
    }

    /// Reserves a job with the command `line`, and returns its id.
    #[track_caller]
    pub fn reserve(&mut self, line: &str) -> u64 {
        let reply = self.ask(line);
        let words: Vec<&str> = reply.split(' ').collect();
        assert_eq!(words[0], "RESERVED", "{reply}");
        self.body(words[2].parse().unwrap());
        words[1].parse().unwrap()
    }

    /// Sends `line`, and returns the data or the body of the reply, or `None` if it is NOT_FOUND.
    #[track_caller]
    pub fn find(&mut self, line: &str) -> Option<Vec<u8>> {
        let reply = self.ask(line);
        let size = reply.rsplit(' ').next().and_then(|size| size.parse().ok());
        match size {
            Some(size) => Some(self.body(size)),
            None if reply == "NOT_FOUND" => None,
            None => panic!("{line}: {reply}"),
        }
    }

    /// Sends `line`, and returns the pairs in the reply's data by key, without quotes, or `None` if it is NOT_FOUND.
    #[track_caller]
    pub fn find_data(&mut self, line: &str) -> Option<HashMap<String, String>> {
        Some(client::pairs_of(&self.find(line)?).into_iter().collect())
    }

    /// Sends `line`, and returns the pairs in the reply's data by key, without quotes.
    #[track_caller]
    pub fn data(&mut self, line: &str) -> HashMap<String, String> {
        self.find_data(line).unwrap_or_else(|| panic!("{line}: NOT_FOUND"))
    }

    /// A number among the stats.
    #[track_caller]
    pub fn stat(&mut self, key: &str) -> u64 {
        self.data("stats")[key].parse().unwrap()
    }

    /// Requires that the server closes without sending more.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        must(self.0.expect_closed());
    }
}
