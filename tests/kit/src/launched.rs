//! A server process that was started and may not answer yet, and the messages that it sends to its service manager. A
//! step that fails ends the test.
//!
//! Owns: the process, its directory, and in it the log, the unix socket and the socket of the service manager. Driven
//! by the tests of servers that wait, are refused or are replaced; [`crate::server`] starts servers that answer.

use std::fs::{self, File};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use crate::client::Client;
use crate::panicking::{self, wait_for_some};
use crate::server::{self, KilledOnDrop, POLL_INTERVAL, Server};
use crate::{PATIENCE, copy_built_server};

/// A hand-over ends with one of these reasons if the machine is too slow for it: the last one, if the disk takes longer
/// than a second to make the next file of the log.
pub const TIME_IS_OVER: [&str; 5] = [
    "its trial took longer",
    "a command was in progress",
    "a command did not end",
    "the disk of the binlog did not answer",
    "no room for all changes",
];

/// Hands a server that runs a copy of the built program over to another copy, and waits until that serves. Requests the
/// hand-over once more each time that the machine was too slow for it.
///
/// # Errors
///
/// If the server has another reason, or does nothing in time.
pub fn hand_over(server: &Server) -> io::Result<()> {
    let next = server.binary().with_extension("next");
    copy_built_server(&next)?;
    fs::rename(&next, server.binary())?;
    let lines = |words: &str| -> Vec<String> {
        server.stderr().lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    };
    let hand_overs = || lines("continued where").len();
    let (before, mut refused) = (hand_overs(), lines("this program continues").len());
    server.signal(Signal::HUP)?;
    let start = Instant::now();
    while hand_overs() == before {
        if let Some(refusal) = lines("this program continues").get(refused) {
            if !TIME_IS_OVER.iter().any(|reason| refusal.contains(reason)) {
                return Err(io::Error::other(refusal.clone()));
            }
            refused += 1;
            server.signal(Signal::HUP)?;
        }
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("no hand-over: {}", server.stderr())));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// A server that was started, killed when dropped.
pub struct Launched {
    child: KilledOnDrop,
    directory: TempDir,
}

impl Launched {
    /// Runs `command` in `directory`, with its log in the file `stderr`.
    pub fn start(command: &mut Command, directory: TempDir) -> Self {
        Self { child: spawn(command, directory.path()), directory }
    }

    /// The directory of this server alone.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The path of its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory().join("socket")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The text that it has written to its standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory().join("stderr")).unwrap_or_default()
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that the test has waited for its end already.
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), options), Ok(None))
    }

    /// Waits until its log has `words`.
    #[track_caller]
    pub fn wait_for(&self, words: &str) {
        self.poll(&format!("its log has {words:?}"), || self.log().contains(words).then_some(()));
    }

    /// A connection, once it listens.
    #[track_caller]
    pub fn connect(&self) -> Client {
        let stream = self.poll("it listens", || UnixStream::connect(self.socket()).ok());
        Client::over_unix(stream).unwrap()
    }

    /// Polls until there is a result, and panics if the process has ended without one.
    #[track_caller]
    fn poll<T>(&self, what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
        let context = || format!("{what}; the log: {}", self.log());
        wait_for_some(context, || {
            let has_ended = self.has_ended();
            let found = poll();
            assert!(found.is_some() || !has_ended, "the server has ended before this: {}", context());
            found
        })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal).unwrap();
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        server::wait(&mut self.child).unwrap()
    }

    /// Sends it SIGTERM, and waits until it has ended.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends it SIGKILL, unless it has ended, and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.wait();
    }
}

fn spawn(command: &mut Command, directory: &Path) -> KilledOnDrop {
    let log = File::options().create(true).append(true).open(directory.join("stderr")).unwrap();
    command.current_dir(directory).stdout(Stdio::null()).stderr(log).spawn().map(KilledOnDrop).unwrap()
}

/// A server whose service manager is the test.
pub struct Service {
    server: Launched,
    notifications: UnixDatagram,
}

impl Service {
    /// Runs `command` as [`Launched::start`] does.
    pub fn start(command: &mut Command, directory: TempDir) -> Self {
        let path = directory.path().join("notify");
        let notifications = UnixDatagram::bind(&path).unwrap();
        notifications.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { server: Launched::start(command.env("NOTIFY_SOCKET", path), directory), notifications }
    }

    /// Runs `command` in the place of a process that has ended. The log goes on.
    pub fn start_again(&mut self, command: &mut Command) {
        let directory = self.server.directory();
        self.server.child = spawn(command.env("NOTIFY_SOCKET", directory.join("notify")), directory);
    }

    /// A connection to the server, which must listen now.
    #[track_caller]
    pub fn connect(&self) -> panicking::Client {
        panicking::Client::to_unix(&self.socket()).expect("the server listens")
    }

    /// The next message of the server.
    #[track_caller]
    pub fn message(&self) -> String {
        self.receive().unwrap_or_else(|error| panic!("no message: {error}; the log: {}", self.log()))
    }

    /// The next message that contains `part`. None before it may say that something was refused.
    #[track_caller]
    pub fn message_with(&self, part: &str) -> String {
        // The messages of a watchdog never end.
        let start = Instant::now();
        loop {
            let message = self.message();
            if message.contains(part) {
                return message;
            }
            let is_over = start.elapsed() > PATIENCE || message.contains("refused");
            assert!(!is_over, "no message with {part:?} but {message:?}; the log: {}", self.log());
        }
    }

    /// The next message, if it has arrived already.
    pub fn next_message(&self) -> Option<String> {
        self.notifications.set_nonblocking(true).unwrap();
        let message = self.receive();
        self.notifications.set_nonblocking(false).unwrap();
        message.ok()
    }

    fn receive(&self) -> io::Result<String> {
        let mut message = [0; 4096];
        let length = self.notifications.recv(&mut message)?;
        Ok(String::from_utf8_lossy(&message[..length]).into_owned())
    }
}

impl Deref for Service {
    type Target = Launched;

    fn deref(&self) -> &Launched {
        &self.server
    }
}

impl DerefMut for Service {
    fn deref_mut(&mut self) -> &mut Launched {
        &mut self.server
    }
}
