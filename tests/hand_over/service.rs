//! A server whose program can be replaced, with the test as its service manager.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use beanstalkd_testkit::panicking::{Client, wait_until};
use beanstalkd_testkit::{PATIENCE, built_server};
use rustix::process::{Pid, Signal, kill_process};

/// The server.
pub struct Service {
    server: Child,
    notifications: UnixDatagram,
    directory: tempfile::TempDir,
}

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
        copy_program(&directory.path().join("program"));
        prepare(directory.path());
        let notifications = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        notifications.set_read_timeout(Some(PATIENCE)).unwrap();
        let server = spawn(directory.path(), flags, script, input);
        let service = Self { server, notifications, directory };
        service.message_with("READY=1");
        service
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The program's file.
    pub fn program(&self) -> PathBuf {
        self.directory().join("program")
    }

    pub fn connect(&self) -> Client {
        Client::to_unix(&self.directory().join("socket")).expect("the server listens")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    /// Replaces the program's file by another one with the same contents.
    pub fn replace(&self) {
        self.replace_with(|path| {
            copy_program(path);
        });
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
        self.message_with("READY=1");
    }

    /// The next message to the service manager that contains `part`.
    pub fn message_with(&self, part: &str) -> String {
        let mut message = [0; 4096];
        loop {
            let length = self.notifications.recv(&mut message).unwrap_or_else(|error| {
                panic!("no message with {part}: {error}; the log: {}", self.log());
            });
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            if text.contains(part) {
                return text;
            }
            assert!(!text.contains("refused"), "{text}");
        }
    }

    /// The next message to the service manager, if there is one.
    pub fn next_message(&self) -> Option<String> {
        let mut message = [0; 4096];
        self.notifications.set_nonblocking(true).unwrap();
        let length = self.notifications.recv(&mut message);
        self.notifications.set_nonblocking(false).unwrap();
        Some(String::from_utf8_lossy(&message[..length.ok()?]).into_owned())
    }

    /// Sends the server SIGTERM, and returns its exit status.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits until the server has exited, and returns its exit status.
    pub fn wait(&mut self) -> ExitStatus {
        beanstalkd_testkit::panicking::wait_for(&mut self.server)
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory().join("stderr")).unwrap_or_default()
    }

    /// Kills the server, and starts another one in its place.
    pub fn kill_and_restart(&mut self, flags: &[&str]) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        // A child that is about to try the other program holds the sockets, too, until it exits.
        let socket = self.directory().join("socket");
        wait_until("the socket is closed", || UnixStream::connect(&socket).is_err());
        while self.next_message().is_some() {}
        self.server = spawn(self.directory.path(), flags, "exec \"$@\"", Stdio::null());
        self.message_with("READY=1");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn spawn(directory: &Path, flags: &[&str], script: &str, input: Stdio) -> Child {
    let in_directory = |flag: &&str| flag.replace("{dir}", &directory.display().to_string());
    let log = fs::File::options().create(true).append(true).open(directory.join("stderr")).unwrap();
    Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(directory.join("program"))
        .args(["-l", &format!("unix:{}/socket", directory.display())])
        .args(flags.iter().map(in_directory))
        .current_dir(directory)
        .env("NOTIFY_SOCKET", directory.join("notify"))
        .env_remove("WATCHDOG_USEC")
        .stdin(input)
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Copies the server in another process: a program cannot run while it is open for writing in this process, or in a
/// child that another thread of it is about to start.
pub fn copy_program(path: &Path) {
    assert!(Command::new("cp").arg(built_server()).arg(path).status().unwrap().success());
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
