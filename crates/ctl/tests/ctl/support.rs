//! Runs the program, and starts the servers that it is run against.

use beanstalk_client::{Client, PutOptions, TubeName};
use beanstalkd_testkit::fake::Fake;
use beanstalkd_testkit::installed::{self, Installed};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// The exit code and the output of the program.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// The values that `--json` has printed.
    pub fn json(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// The program with these arguments, not started yet.
pub fn command(address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_beanstalkctl"));
    command.env("BEANSTALKD_SERVER", address).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program with `input` on standard input.
pub fn ctl_with(address: &str, arguments: &[&str], input: &[u8]) -> Ended {
    run_command(command(address, arguments), input)
}

/// Runs this command with `input` on standard input.
pub fn run_command(mut command: Command, input: &[u8]) -> Ended {
    let mut child = command.spawn().unwrap();
    // The write fails if the program ends without reading, which is no error.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the program with an empty standard input.
pub fn ctl(address: &str, arguments: &[&str]) -> Ended {
    ctl_with(address, arguments, b"")
}

/// A server of any kind.
pub enum Any {
    Process(Box<Installed>),
    Fake(Fake),
}

impl Any {
    pub fn address(&self) -> String {
        match self {
            Self::Process(server) => server.address(),
            Self::Fake(fake) => fake.address(),
        }
    }

    pub fn client(&self) -> Client {
        client(&self.address())
    }

    /// Whether delays and times to run end: not on the fake.
    pub fn lets_time_pass(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// Whether it offers the extensions: this repository's server and the fake do.
    pub fn has_extensions(&self) -> bool {
        match self {
            Self::Process(server) => server.is_ours,
            Self::Fake(_) => true,
        }
    }
}

pub fn client(address: &str) -> Client {
    Client::connect(&address.parse().unwrap()).unwrap()
}

/// Starts a server of each kind that is installed.
pub fn everywhere() -> Vec<Any> {
    let processes = installed::servers(&[]).into_iter().map(|server| Any::Process(Box::new(server)));
    processes.chain([Any::Fake(Fake::start())]).collect()
}

pub fn name(text: &str) -> TubeName {
    text.parse().unwrap()
}

/// The text of a path, for an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes a file into `directory`, and returns its path.
pub fn write(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    text(&path).to_owned()
}

/// Puts a job and returns its id.
pub fn put(client: &mut Client, tube: &str, body: &[u8], delay: u32) -> u64 {
    client.use_tube(&name(tube)).unwrap();
    client.put(body, &PutOptions { delay: delay.into(), ..PutOptions::default() }).unwrap().id
}

/// Puts a job, buries it with priority 7, and returns its id.
pub fn put_buried(client: &mut Client, tube: &str, body: &[u8]) -> u64 {
    let id = put(client, tube, body, 0);
    client.reserve_job(id).unwrap();
    client.bury(id, 7).unwrap();
    id
}

/// The numbers of ready, reserved, delayed and buried jobs of a tube; zeros if there is no such tube.
pub fn counts(address: &str, tube: &str) -> [u64; 4] {
    match client(address).stats_tube(&name(tube)) {
        Ok(stats) => ["ready", "reserved", "delayed", "buried"]
            .map(|state| stats.number_or_zero(&format!("current-jobs-{state}"))),
        Err(error) if error.is_not_found() => [0; 4],
        Err(error) => panic!("{error}"),
    }
}

/// Sends SIGTERM. The signal that Ctrl-C sends may be ignored: a shell starts tests in the background so.
pub fn interrupt(child: &Child) {
    Command::new("kill").args([&child.id().to_string()]).status().unwrap();
}

/// Listens at `path` and passes each line that a client sends to `before`, and then to `server`. If `before` returns
/// `false`, the connection ends instead, and the client sees its end when the server has seen it. Returns the address
/// of `path`.
pub fn between(path: &Path, server: &str, mut before: impl FnMut(&str) -> bool + Send + 'static) -> String {
    let server = server.strip_prefix("unix:").unwrap().to_owned();
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let mut to_server = UnixStream::connect(&server).unwrap();
            let (mut replies, mut to_client) = (to_server.try_clone().unwrap(), client.try_clone().unwrap());
            let copied = thread::spawn(move || io::copy(&mut replies, &mut to_client));
            let (mut lines, mut line) = (BufReader::new(client), Vec::new());
            while lines.read_until(b'\n', &mut line).unwrap() > 0 {
                if !before(String::from_utf8_lossy(&line).trim_end()) || to_server.write_all(&line).is_err() {
                    break;
                }
                line.clear();
            }
            let _ = to_server.shutdown(Shutdown::Write);
            let _ = copied.join().unwrap();
        }
    });
    format!("unix:{}", path.display())
}
