//! Servers for the tests of beanstalkctl and its client library.
//!
//! Owns: starting this repository's server and Debian's, each on a unix socket of its own, and [`Fake`], a server in
//! this process that speaks the extensions.
//! Never: takes a TCP port; leaves a process behind.

mod fake;
mod fake_queue;

pub use fake::{Fake, FakeOptions};

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A server that is a process. It ends when this is dropped.
pub struct Server {
    /// For messages.
    pub name: &'static str,
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    /// Its address, as `--server` takes it.
    pub fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Starts `program` with further `arguments`.
    pub fn start(name: &'static str, program: &Path, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let child = Command::new(program)
            .arg("-l")
            .arg(format!("unix:{}", socket.display()))
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let server = Self { name, child, directory };
        server.wait_until_it_answers();
        server
    }

    fn wait_until_it_answers(&self) {
        let give_up_at = Instant::now() + START_WITHIN;
        while Instant::now() < give_up_at {
            if let Ok(mut stream) = UnixStream::connect(self.socket()) {
                let mut first = [0];
                if stream.write_all(b"list-tube-used\r\n").is_ok() && stream.read_exact(&mut first).is_ok() {
                    return;
                }
            }
            // The socket comes to be without an event that another process could await.
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{}: the server does not answer", self.name);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This repository's server and Debian's, where they are; says which are missing. Extensions are none of their business.
pub fn servers(arguments: &[&str]) -> Vec<Server> {
    [ours(arguments), debians(arguments)].into_iter().flatten().collect()
}

/// This repository's server: `$BEANSTALKD`, or the one beside the test's own program.
pub fn ours(arguments: &[&str]) -> Option<Server> {
    let program = match std::env::var_os("BEANSTALKD") {
        Some(path) => PathBuf::from(path),
        // A test runs as target/debug/deps/NAME.
        None => std::env::current_exe().ok()?.ancestors().nth(2)?.join("beanstalkd"),
    };
    start_if_there("ours", &program, arguments)
}

/// Debian's server.
pub fn debians(arguments: &[&str]) -> Option<Server> {
    start_if_there("Debian's", Path::new("/usr/bin/beanstalkd"), arguments)
}

fn start_if_there(name: &'static str, program: &Path, arguments: &[&str]) -> Option<Server> {
    if program.exists() {
        return Some(Server::start(name, program, arguments));
    }
    skip(&format!("there is no {}", program.display()));
    None
}

/// Says that something is not tested. Where `CI` is set that fails: what is skipped there would look like passed.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI needs it");
    eprintln!("skipped: {why}");
}
