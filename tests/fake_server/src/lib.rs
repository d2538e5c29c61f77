//! Servers for the tests of beanstalkctl and its client library.
//!
//! Owns: starting this repository's server and Debian's, each on its own unix socket, and [`Fake`], the model of the
//! server behind a socket in this process.
//! Never: uses a TCP port; leaves a process behind.

mod fake;

pub use fake::{Fake, FakeOptions};

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that a server may take to start.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A server process. Dropping it ends the process.
pub struct Server {
    /// The name in messages of tests.
    pub name: &'static str,
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    /// The address of its socket, in the form of `--server`.
    pub fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Starts `program` with `-l` and further `arguments`, and waits until it replies.
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
        server.wait_until_it_replies();
        server
    }

    fn wait_until_it_replies(&self) {
        let give_up_at = Instant::now() + START_WITHIN;
        while Instant::now() < give_up_at {
            if let Ok(mut stream) = UnixStream::connect(self.socket()) {
                let mut first = [0];
                if stream.write_all(b"list-tube-used\r\n").is_ok() && stream.read_exact(&mut first).is_ok() {
                    return;
                }
            }
            // No event shows another process that the socket exists.
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

/// Starts this repository's server and Debian's, as far as they are installed; prints which are missing.
pub fn servers(arguments: &[&str]) -> Vec<Server> {
    [ours(arguments), debians(arguments)].into_iter().flatten().collect()
}

/// Starts this repository's server: `$BEANSTALKD`, or the program in the directory of the test's own program.
pub fn ours(arguments: &[&str]) -> Option<Server> {
    let program = match std::env::var_os("BEANSTALKD") {
        Some(path) => PathBuf::from(path),
        // A test runs as target/debug/deps/NAME.
        None => std::env::current_exe().ok()?.ancestors().nth(2)?.join("beanstalkd"),
    };
    start_if_installed("ours", &program, arguments)
}

/// Starts Debian's server.
pub fn debians(arguments: &[&str]) -> Option<Server> {
    start_if_installed("Debian's", Path::new("/usr/bin/beanstalkd"), arguments)
}

fn start_if_installed(name: &'static str, program: &Path, arguments: &[&str]) -> Option<Server> {
    if program.exists() {
        return Some(Server::start(name, program, arguments));
    }
    skip(&format!("there is no {}", program.display()));
    None
}

/// Prints that a test is skipped. If `CI` is set this fails, because a skipped test would look like a passed one.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}, and CI needs it");
    eprintln!("skipped: {why}");
}
