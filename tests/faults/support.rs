//! A server process of one's own, a client of raw lines, and what the system knows of a process.
//!
//! Owns: every process that a test starts, ended when dropped, and the deadline of every read. Driven by
//! the tests of faults and of survival. `BEANSTALKD_UNDER_TEST` names another server to be tested, which
//! is how these tests were seen to fail.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take that has to happen: far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two looks at something that has no event to wait for.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The program under test.
pub fn binary() -> PathBuf {
    std::env::var_os("BEANSTALKD_UNDER_TEST")
        .map_or_else(|| env!("CARGO_BIN_EXE_beanstalkd").into(), PathBuf::from)
}

/// Whether `tool` can be run here; says so where it cannot, so that a skipped test is seen.
pub fn has_tool(tool: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(tool).is_file()));
    if !found {
        eprintln!("skipped: there is no {tool}");
    }
    found
}

/// Whether the tests run as root; says so where they do not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can do this");
    }
    root
}

/// The number in the environment variable `name`, or `otherwise`.
pub fn scale(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Waits until `holds`, and panics with `what` if that takes too long.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "this does not come about: {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

#[derive(Clone, Debug)]
enum Address {
    Unix(PathBuf),
    Tcp(u16),
}

/// A running server; killed when dropped.
pub struct Server {
    pub child: Child,
    pub directory: tempfile::TempDir,
    address: Address,
}

impl Server {
    /// A server with `flags` on a unix socket.
    pub fn start(flags: &[&str]) -> Self {
        Self::start_in(&[], flags)
    }

    /// The same, started by the command line `wrapper`.
    pub fn start_in(wrapper: &[&str], flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("socket"));
        Self::launch(wrapper, flags, directory, address)
    }

    /// The same, or how it ended where it could not start.
    pub fn try_start_in(wrapper: &[&str], flags: &[&str]) -> Result<Self, ExitStatus> {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("socket"));
        Self::try_launch(wrapper, flags, directory, address).map_err(|(status, _)| status)
    }

    /// A server with `flags` on a port of the loopback interface.
    pub fn start_tcp(flags: &[&str]) -> Self {
        let port = free_port();
        Self::launch(&[], flags, tempfile::tempdir().unwrap(), Address::Tcp(port))
    }

    fn launch(wrapper: &[&str], flags: &[&str], directory: tempfile::TempDir, address: Address) -> Self {
        Self::try_launch(wrapper, flags, directory, address)
            .unwrap_or_else(|(status, log)| panic!("the server ended at its start: {status}: {log}"))
    }

    /// Returns once it accepts connections and has answered on one; else how it ended, and its log.
    fn try_launch(
        wrapper: &[&str],
        flags: &[&str],
        directory: tempfile::TempDir,
        address: Address,
    ) -> Result<Self, (ExitStatus, String)> {
        let child = spawn(wrapper, &listen_flags(&address), flags, directory.path());
        let mut server = Self { child, directory, address };
        let mut ended = None;
        wait_until("the server accepts", || {
            ended = server.child.try_wait().unwrap();
            ended.is_some() || server.try_connect().is_some_and(|mut client| client.is_answered())
        });
        match ended {
            Some(status) => Err((status, server.log())),
            None => Ok(server),
        }
    }

    fn try_connect(&self) -> Option<Client> {
        match &self.address {
            Address::Unix(path) => {
                UnixStream::connect(path).ok().map(|stream| Client::new(Stream::Unix(stream)))
            }
            Address::Tcp(port) => {
                TcpStream::connect(("127.0.0.1", *port)).ok().map(|stream| Client::new(Stream::Tcp(stream)))
            }
        }
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        self.try_connect().expect("the server accepts connections")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The path of its unix socket.
    pub fn socket_path(&self) -> &Path {
        match &self.address {
            Address::Unix(path) => path,
            Address::Tcp(_) => panic!("it listens on a port"),
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        match &self.address {
            Address::Tcp(port) => *port,
            Address::Unix(_) => panic!("it listens on a unix socket"),
        }
    }

    /// What it has written to its standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ends.
    pub fn end(&mut self) -> ExitStatus {
        wait_for(&mut self.child)
    }

    /// What the system knows of the process.
    pub fn usage(&self) -> Process {
        Process(self.pid())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log: {}", self.log());
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free at the moment.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn listen_flags(address: &Address) -> Vec<OsString> {
    match address {
        Address::Unix(path) => {
            let mut listen = OsString::from("unix:");
            listen.push(path);
            vec!["-l".into(), listen]
        }
        Address::Tcp(port) => vec!["-l".into(), "127.0.0.1".into(), "-p".into(), port.to_string().into()],
    }
}

/// Starts the program under test with its output in files of `directory`.
pub fn spawn(wrapper: &[&str], arguments: &[OsString], flags: &[&str], directory: &Path) -> Child {
    let program = binary();
    let mut command = match wrapper {
        [] => Command::new(program),
        [wrapper, rest @ ..] => {
            let mut command = Command::new(wrapper);
            command.args(rest).arg(program);
            command
        }
    };
    let file = |name: &str| fs::File::create(directory.join(name)).unwrap();
    command
        .args(arguments)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .unwrap()
}

/// How a process ends.
pub fn wait_for(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection. Each read ends in a panic if nothing comes.
pub struct Client {
    stream: Stream,
    unread: Vec<u8>,
}

impl Client {
    fn new(stream: Stream) -> Self {
        match &stream {
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
            }
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
            }
        }
        Self { stream, unread: Vec::new() }
    }

    /// A connection to the unix socket at `path`.
    pub fn to_unix(path: &Path) -> std::io::Result<Self> {
        UnixStream::connect(path).map(|stream| Self::new(Stream::Unix(stream)))
    }

    /// A connection to a port of the loopback interface.
    pub fn to_port(port: u16) -> std::io::Result<Self> {
        TcpStream::connect(("127.0.0.1", port)).map(|stream| Self::new(Stream::Tcp(stream)))
    }

    /// The descriptor, for options and for closing with a reset.
    pub fn into_fd(self) -> OwnedFd {
        match self.stream {
            Stream::Unix(stream) => stream.into(),
            Stream::Tcp(stream) => stream.into(),
        }
    }

    /// The port of this end.
    pub fn local_port(&self) -> u16 {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().unwrap().port(),
            Stream::Unix(_) => panic!("unix sockets have no ports"),
        }
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes.as_ref()).unwrap();
    }

    /// The same, where the server may have closed.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tcp(stream) => stream.write_all(bytes),
        }
    }

    /// Sends as much of `bytes` again and again as the socket takes without waiting; returns how much.
    pub fn send_until_full(&mut self, bytes: &[u8]) -> usize {
        self.set_nonblocking(true);
        let mut sent = 0;
        loop {
            let written = match &mut self.stream {
                Stream::Unix(stream) => stream.write(&bytes[sent % bytes.len()..]),
                Stream::Tcp(stream) => stream.write(&bytes[sent % bytes.len()..]),
            };
            match written {
                Ok(written) => sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.set_nonblocking(false);
        sent
    }

    fn set_nonblocking(&self, nonblocking: bool) {
        match &self.stream {
            Stream::Unix(stream) => stream.set_nonblocking(nonblocking).unwrap(),
            Stream::Tcp(stream) => stream.set_nonblocking(nonblocking).unwrap(),
        }
    }

    /// Says that nothing more will be sent.
    pub fn half_close(&self) {
        match &self.stream {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write).unwrap(),
        }
    }

    fn read_more(&mut self) -> std::io::Result<usize> {
        let mut buffer = [0; 64 * 1024];
        let read = match &mut self.stream {
            Stream::Unix(stream) => stream.read(&mut buffer)?,
            Stream::Tcp(stream) => stream.read(&mut buffer)?,
        };
        self.unread.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    /// The next line, without its CRLF.
    pub fn line(&mut self) -> String {
        self.try_line().expect("a line comes")
    }

    /// The next line, or `None` where the server has closed.
    pub fn try_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.unread[..end]).into_owned();
                self.unread.drain(..end + 2);
                return Some(line);
            }
            match self.read_more() {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no line comes: {error}"),
            }
        }
    }

    /// The next `size` bytes and the CRLF behind them.
    pub fn body(&mut self, size: usize) -> Vec<u8> {
        while self.unread.len() < size + 2 {
            assert_ne!(self.read_more().expect("a body comes"), 0, "the server closed in a body");
        }
        let body = self.unread[..size].to_vec();
        assert_eq!(&self.unread[size..size + 2], b"\r\n");
        self.unread.drain(..size + 2);
        body
    }

    /// Sends a line, and reads one.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.line()
    }

    /// Whether a command is answered; it is not where the server ends before.
    fn is_answered(&mut self) -> bool {
        self.try_send(b"list-tube-used\r\n").is_ok() && self.try_line().is_some()
    }

    /// Puts a job; its id.
    pub fn put(&mut self, delay_s: u32, ttr_s: u32, body: &[u8]) -> u64 {
        let mut bytes = format!("put 0 {delay_s} {ttr_s} {}\r\n", body.len()).into_bytes();
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"\r\n");
        self.send(bytes);
        let reply = self.line();
        reply.strip_prefix("INSERTED ").and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("{reply}"))
    }

    /// Reserves with `line`; the job's id.
    pub fn reserve(&mut self, line: &str) -> u64 {
        let reply = self.ask(line);
        let words: Vec<&str> = reply.split(' ').collect();
        assert_eq!(words[0], "RESERVED", "{reply}");
        self.body(words[2].parse().unwrap());
        words[1].parse().unwrap()
    }

    /// The data that answers `line`, by key.
    pub fn data(&mut self, line: &str) -> HashMap<String, String> {
        let reply = self.ask(line);
        let size = reply.strip_prefix("OK ").unwrap_or_else(|| panic!("{line}: {reply}")).parse().unwrap();
        let text = String::from_utf8(self.body(size)).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// A number among the stats.
    pub fn stat(&mut self, key: &str) -> u64 {
        self.data("stats")[key].parse().unwrap()
    }

    /// Requires that the server closes with nothing more to say.
    pub fn expect_closed(&mut self) {
        let line = self.try_line();
        assert_eq!((line, self.unread.len()), (None, 0));
    }
}

/// A process as the system sees it.
#[derive(Clone, Copy)]
pub struct Process(pub u32);

impl Process {
    /// Processor time so far, over all threads.
    pub fn cpu_time(self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0)).unwrap();
        let nanoseconds = threads.map(|thread| {
            let schedstat = fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
            schedstat.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    /// The part of a processor that it uses while `time` passes.
    pub fn cpu_share_during(self, time: Duration) -> f64 {
        let (start, before) = (Instant::now(), self.cpu_time());
        std::thread::sleep(time);
        (self.cpu_time() - before).as_secs_f64() / start.elapsed().as_secs_f64()
    }

    /// Memory in use, in bytes.
    pub fn memory(self) -> usize {
        self.bytes("VmRSS")
    }

    /// The most memory that was in use so far, in bytes.
    pub fn peak_memory(self) -> usize {
        self.bytes("VmHWM")
    }

    fn bytes(self, key: &str) -> usize {
        self.status(key).trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// A line of its status.
    pub fn status(self, key: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {key}")).trim().to_owned()
    }

    /// How many descriptors are open.
    pub fn descriptors(self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0)).unwrap().count()
    }
}
