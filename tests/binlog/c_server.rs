//! A C beanstalkd on a directory of ours, spoken to over a unix socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where Debian puts it; another may be named in `BINLOG_PEER`.
const PEER: &str = "/usr/bin/beanstalkd";

/// The C server to test against. Where there is none, the test is skipped, but not in CI.
pub fn peer() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var("BINLOG_PEER").unwrap_or_else(|_| PEER.to_owned()));
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{} must be there in CI", path.display());
    eprintln!("skipped: no C beanstalkd at {}", path.display());
    None
}

pub struct CServer {
    child: Child,
    stream: BufReader<UnixStream>,
}

impl CServer {
    /// Starts `program` on the log in `directory` and waits for its first answer: it listens before it has
    /// read its log and made its next file.
    pub fn start(program: &Path, directory: &Path, file_bytes: u64) -> Self {
        let mut server = Self::launch(program, directory, file_bytes);
        assert_eq!(server.send(b"list-tube-used\r\n"), "USING default");
        server
    }

    /// Starts `program` on the log in `directory`, of which it may have read nothing yet.
    pub fn launch(program: &Path, directory: &Path, file_bytes: u64) -> Self {
        let socket = directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        let mut child = Command::new(program)
            .args(["-F", "-s", &file_bytes.to_string(), "-b"])
            .arg(directory)
            .arg("-l")
            .arg(format!("unix:{}", socket.display()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says nothing when it is ready, so its socket is tried until it answers or it is gone.
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            assert!(child.try_wait().unwrap().is_none(), "the C server has exited");
            std::thread::yield_now();
        };
        Self { child, stream: BufReader::new(stream) }
    }

    /// Sends a command and returns the line that answers it.
    pub fn send(&mut self, command: &[u8]) -> String {
        self.say(command);
        self.answer()
    }

    /// Sends commands without waiting for their answers.
    pub fn say(&mut self, commands: &[u8]) {
        self.stream.get_mut().write_all(commands).unwrap();
    }

    /// The next line that it says.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads a body of `bytes` and its line end.
    fn body(&mut self, bytes: &str) -> Vec<u8> {
        let mut body = vec![0; bytes.parse::<usize>().unwrap() + 2];
        self.stream.read_exact(&mut body).unwrap();
        body.truncate(body.len() - 2);
        body
    }

    pub fn put(&mut self, tube: &str, pri: u32, delay: u32, ttr: u32, body: &[u8]) -> u64 {
        self.send(format!("use {tube}\r\n").as_bytes());
        let mut command = format!("put {pri} {delay} {ttr} {}\r\n", body.len()).into_bytes();
        command.extend_from_slice(body);
        command.extend_from_slice(b"\r\n");
        let reply = self.send(&command);
        reply.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("{reply}")).parse().unwrap()
    }

    pub fn reserve_job(&mut self, id: u64) {
        let reply = self.send(format!("reserve-job {id}\r\n").as_bytes());
        let bytes = reply.rsplit(' ').next().unwrap().to_owned();
        assert!(reply.starts_with("RESERVED"), "{reply}");
        self.body(&bytes);
    }

    /// `stats-job`, or `None` if there is no such job.
    pub fn stats_job(&mut self, id: u64) -> Option<BTreeMap<String, String>> {
        let reply = self.send(format!("stats-job {id}\r\n").as_bytes());
        let yaml = self.body(reply.strip_prefix("OK ")?);
        let yaml = String::from_utf8(yaml).unwrap();
        let pair = |line: &str| line.split_once(": ").map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(yaml.lines().filter_map(pair).collect())
    }

    /// The body of a job.
    pub fn peek(&mut self, id: u64) -> Option<Vec<u8>> {
        let reply = self.send(format!("peek {id}\r\n").as_bytes());
        let bytes = reply.strip_prefix("FOUND ")?.rsplit(' ').next().unwrap().to_owned();
        Some(self.body(&bytes))
    }

    /// Kills the server and returns what it has complained of.
    pub fn kill(mut self) -> String {
        self.child.kill().unwrap();
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        self.child.wait().unwrap();
        complaints
    }
}
