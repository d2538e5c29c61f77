//! A server whose program can be replaced, with the test as its service manager.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use beanstalkd_testkit::launched::{self, TIME_IS_OVER};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::{PATIENCE, built_server, copy_built_server};
use rustix::process::Signal;

/// A script that answers as the program `real`, and is broken afterwards.
pub const BROKEN_AFTER_TRIAL: &str = concat!(
    "#!/bin/sh\nprintf '#!/bin/sh\\necho this one is broken >&2\\nexit 1\\n' >broken\nchmod +x broken\n",
    "./real \"$@\"\nstatus=$?\nmv broken program\nexit $status\n",
);

/// The server.
pub struct Service(launched::Service);

impl Service {
    /// A server with these flags, in which `{dir}` is its directory.
    pub fn start(flags: &[&str]) -> Self {
        Self::prepared(flags, |_| ())
    }

    /// Starts a server after `prepare` has prepared its directory.
    pub fn prepared(flags: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        Self::started(flags, prepare, "exec \"$@\"")
    }

    /// Starts a server by a shell, which runs `script`; this ends with `exec "$@"`.
    pub fn started(flags: &[&str], prepare: impl FnOnce(&Path), script: &str) -> Self {
        Self::started_with(flags, prepare, script, Stdio::null())
    }

    /// Starts a server by a shell whose script has `input` as its standard input.
    pub fn started_with(flags: &[&str], prepare: impl FnOnce(&Path), script: &str, input: Stdio) -> Self {
        let directory = tempfile::Builder::new().prefix("beanstalkd-handover-").tempdir().unwrap();
        copy_built_server(&directory.path().join("program")).unwrap();
        prepare(directory.path());
        let mut command = command(directory.path(), flags, script, input);
        let service = Self(launched::Service::start(&mut command, directory));
        service.message_with("READY=1");
        service
    }

    /// The program's file.
    pub fn program(&self) -> PathBuf {
        self.directory().join("program")
    }

    /// Replaces the program's file by another one with the same contents.
    pub fn replace(&self) {
        self.replace_with(|path| copy_built_server(path).unwrap());
    }

    /// Replaces the program's file by the one that `make` makes.
    pub fn replace_with(&self, make: impl FnOnce(&Path)) {
        let next = self.directory().join("next");
        make(&next);
        fs::rename(next, self.program()).unwrap();
    }

    /// Replaces the program's file by a script.
    pub fn replace_with_script(&self, script: &str) {
        self.replace_with(|path| {
            fs::write(path, script).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        });
    }

    /// Hands over to the same program in another file.
    pub fn hand_over(&self) {
        self.replace();
        self.signal(Signal::HUP);
        self.await_hand_over();
    }

    pub fn await_hand_over(&self) {
        self.await_message("READY=1");
    }

    /// Waits until the server has refused the other program for this reason. The reason stays in the status: it comes
    /// with each message from now on.
    pub fn await_refusal(&self, reason: &str) {
        self.await_message(reason);
    }

    fn await_message(&self, part: &str) {
        let start = Instant::now();
        loop {
            let message = self.message();
            if self.is_result(&message, part) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no {part:?} but {message:?}; the log: {}", self.log());
        }
    }

    /// Whether `message` has `part`. If it says that the time of a hand-over is over, requests the hand-over once more.
    pub fn is_result(&self, message: &str, part: &str) -> bool {
        let is_result = message.contains(part);
        if !is_result && TIME_IS_OVER.iter().any(|reason| message.contains(reason)) {
            self.signal(Signal::HUP);
        }
        is_result
    }

    /// Kills the server, and starts another one in its place.
    pub fn kill_and_restart(&mut self, flags: &[&str]) {
        self.kill();
        // A child that is about to try the other program holds the sockets, too, until it exits.
        wait_until("the socket is closed", || UnixStream::connect(self.socket()).is_err());
        while self.next_message().is_some() {}
        let mut command = command(self.directory(), flags, "exec \"$@\"", Stdio::null());
        self.start_again(&mut command);
        self.message_with("READY=1");
    }
}

impl Deref for Service {
    type Target = launched::Service;

    fn deref(&self) -> &launched::Service {
        &self.0
    }
}

impl DerefMut for Service {
    fn deref_mut(&mut self) -> &mut launched::Service {
        &mut self.0
    }
}

fn command(directory: &Path, flags: &[&str], script: &str, input: Stdio) -> Command {
    let in_directory = |flag: &&str| flag.replace("{dir}", &directory.display().to_string());
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(directory.join("program"));
    command.args(["-l", &format!("unix:{}/socket", directory.display())]);
    command.args(flags.iter().map(in_directory)).env_remove("WATCHDOG_USEC").stdin(input);
    command
}

/// Runs `test`, and again if it fails while the machine or its disk does not keep time: a trial has five seconds.
pub fn in_time(test: impl FnMut()) {
    static PACE: OnceLock<Pace> = OnceLock::new();
    PACE.get_or_init(|| Pace::watch_disk(&std::env::temp_dir()).unwrap()).judge_panics(test);
}

/// The hash of a token in hexadecimal digits, as in the access file.
pub fn hash_of(token: &str) -> String {
    use std::io::Write;
    let mut program = Command::new(built_server())
        .arg("--hash-token")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    program.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    let output = program.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().trim_start_matches("sha256:").to_owned()
}
