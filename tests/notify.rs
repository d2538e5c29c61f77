//! What a service manager hears of the server: over a socket of ours, in the place of systemd's.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// How long a message may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that runs under our eyes.
struct Service {
    server: Child,
    notifications: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Service {
    fn start(watchdog_us: Option<u64>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let notifications = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        notifications.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_beanstalkd"));
        command.arg("-l").arg(listen_address(directory.path()));
        command.env("NOTIFY_SOCKET", directory.path().join("notify"));
        command.env_remove("WATCHDOG_PID").env_remove("WATCHDOG_USEC");
        if let Some(us) = watchdog_us {
            command.env("WATCHDOG_USEC", us.to_string());
        }
        Self { server: command.spawn().unwrap(), notifications, directory }
    }

    fn heard(&self) -> String {
        let mut message = [0; 512];
        let length = self.notifications.recv(&mut message).expect("the server speaks");
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    /// The first message that holds `part`, of those to come.
    fn heard_of(&self, part: &str) -> String {
        loop {
            let message = self.heard();
            if message.contains(part) {
                return message;
            }
        }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("socket")).expect("who is ready listens")
    }

    fn signal(&self, name: &str) {
        let id = self.server.id().to_string();
        assert!(Command::new("kill").args([name, id.as_str()]).status().unwrap().success());
    }

    fn ended(&mut self) -> ExitStatus {
        self.server.wait().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn listen_address(directory: &Path) -> String {
    format!("unix:{}", directory.join("socket").display())
}

const EMPTY: &str = "serving: 0 ready, 0 reserved, 0 delayed, 0 buried; 1 tubes, 0 connections";

#[test]
fn ready_comes_once_the_server_listens_and_stopping_before_it_ends() {
    let mut service = Service::start(None);
    assert_eq!(service.heard(), format!("READY=1\nSTATUS={EMPTY}\n"));
    drop(service.connect());
    service.signal("-TERM");
    assert_eq!(service.heard_of("STOPPING"), "STOPPING=1\n");
    assert_eq!(service.ended().code(), Some(0));
}

#[test]
fn an_idle_server_gives_signs_of_life() {
    let service = Service::start(Some(200_000));
    assert!(service.heard().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(service.heard(), format!("WATCHDOG=1\nSTATUS={EMPTY}\n"));
    }
}

#[test]
fn a_busy_server_gives_signs_of_life_with_what_it_does() {
    let service = Service::start(Some(200_000));
    assert!(service.heard().starts_with("READY=1\n"));
    let mut client = service.connect();
    let mut replies = BufReader::new(client.try_clone().unwrap());
    let mut exchange = |commands: &str| {
        client.write_all(commands.as_bytes()).unwrap();
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(exchange("put 0 100 60 1\r\nx\r\n"), "INSERTED 1\r\n");
    service.notifications.set_nonblocking(true).unwrap();
    // Commands come one upon the other: the loop never sleeps for long.
    let mut signs = 0;
    while signs < 3 {
        assert_eq!(exchange("use default\r\n"), "USING default\r\n");
        let mut message = [0; 512];
        if let Ok(length) = service.notifications.recv(&mut message) {
            let message = std::str::from_utf8(&message[..length]).unwrap();
            assert!(message.starts_with("WATCHDOG=1\nSTATUS=serving: 0 ready,"), "{message}");
            signs += usize::from(message.contains("1 delayed, 0 buried; 1 tubes, 1 connections"));
        }
    }
}

#[test]
fn the_status_tells_of_drain_mode() {
    let service = Service::start(Some(200_000));
    assert!(service.heard().starts_with("READY=1\n"));
    service.signal("-USR1");
    service.heard_of("STATUS=draining: ");
    service.signal("-USR2");
    service.heard_of("STATUS=serving: ");
}
