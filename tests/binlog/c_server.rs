//! A C beanstalkd on a directory of this server, and a connection to it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use beanstalkd_testkit::panicking::Client;
use beanstalkd_testkit::server::{Address, Server, Transport};
use rustix::process::Signal;

/// The C server to test against: the one in `BINLOG_PEER`, or Debian's. `None` if the test has to be skipped.
pub fn peer() -> Option<PathBuf> {
    std::env::var_os("BINLOG_PEER").map(PathBuf::from).or_else(beanstalkd_testkit::debian_server)
}

pub struct CServer {
    server: Server,
    client: Client,
}

impl CServer {
    /// Starts `program` on the log in `directory`, and waits for its first reply: C listens before it has read its log
    /// and made its next file.
    pub fn start(program: &Path, directory: &Path, file_bytes: u64) -> Self {
        let mut server = Self::launch(program, directory, file_bytes);
        assert_eq!(server.ask("list-tube-used"), "USING default");
        server
    }

    /// Starts `program` on the log in `directory`. It may not have read the log yet.
    pub fn launch(program: &Path, directory: &Path, file_bytes: u64) -> Self {
        let directory = directory.to_str().expect("temporary directories have names in UTF-8").to_owned();
        let flags = ["-F".to_owned(), "-s".to_owned(), file_bytes.to_string(), "-b".to_owned(), directory];
        let server = Server::start(program, Transport::Unix, &flags).unwrap();
        let Address::Unix(socket) = server.address() else { unreachable!("it listens on a unix socket") };
        let client = Client::to_unix(&socket).unwrap();
        Self { server, client }
    }

    /// Sends a command and returns the line of its reply.
    pub fn ask(&mut self, command: &str) -> String {
        self.client.ask(command)
    }

    /// Sends commands without waiting for their replies.
    pub fn send(&mut self, commands: &[u8]) {
        self.client.send(commands);
    }

    /// The line of the next reply.
    pub fn line(&mut self) -> String {
        self.client.line()
    }

    pub fn put(&mut self, tube: &str, pri: u32, delay: u32, ttr: u32, body: &[u8]) -> u64 {
        self.ask(&format!("use {tube}"));
        let line = format!("put {pri} {delay} {ttr} {}\r\n", body.len());
        self.send(&[line.as_bytes(), body, b"\r\n"].concat());
        let reply = self.line();
        reply.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("{reply}")).parse().unwrap()
    }

    pub fn reserve_job(&mut self, id: u64) {
        assert_eq!(self.client.reserve(&format!("reserve-job {id}")), id);
    }

    /// The data of `stats-job`, or `None` if there is no such job.
    pub fn stats_job(&mut self, id: u64) -> Option<HashMap<String, String>> {
        self.client.find_data(&format!("stats-job {id}"))
    }

    /// The body of a job, or `None` if there is no such job.
    pub fn peek(&mut self, id: u64) -> Option<Vec<u8>> {
        self.client.find(&format!("peek {id}"))
    }

    /// Kills the server, and returns what it has written to standard error.
    pub fn kill(mut self) -> String {
        self.server.stop(Signal::KILL).unwrap();
        self.server.stderr()
    }
}
