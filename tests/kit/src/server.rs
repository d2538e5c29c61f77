//! A server process under test: start, address, signals, exit.
//!
//! Owns: the child, its directory, and the files that take its output. Ends only the child that it
//! started. Driven by the tests, each of which has its own server or shares one.

use crate::PATIENCE;
use crate::client::Client;
use crate::system::{self, Process};
use crate::tls;
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The pause between two checks of a condition that causes no event.
pub const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The kind of address on which a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A socket in the server's own directory.
    Unix,
    /// A port of the loopback interface that the kernel picks.
    Tcp,
    /// TLS over such a port.
    Tls,
}

/// The address of a running server.
#[derive(Clone, Debug)]
pub enum Address {
    /// A socket's path.
    Unix(PathBuf),
    /// A port of the loopback interface.
    Tcp(SocketAddr),
    /// A port where the server speaks TLS and its certificate is [`tls::server_identity`].
    Tls(SocketAddr),
}

impl Address {
    /// A connection of the system to it, over which nothing is sent.
    pub fn open_socket(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).map(Into::into),
            Self::Tcp(address) | Self::Tls(address) => TcpStream::connect(address).map(Into::into),
        }
    }

    /// A new connection.
    pub fn connect(&self) -> io::Result<Client> {
        match self {
            Self::Unix(path) => Client::over_unix(UnixStream::connect(path)?),
            Self::Tcp(address) => Client::over_tcp(TcpStream::connect(address)?),
            Self::Tls(address) => Client::over_tls(tls::connect(*address, tls::usual_client())?),
        }
    }
}

/// The results of a process that has exited.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// The reason why a server could not be started.
#[derive(Debug)]
pub struct StartError {
    /// Its status, if it has ended.
    pub status: Option<ExitStatus>,
    /// The problem, with the server's standard error.
    pub error: io::Error,
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self { status: None, error }
    }
}

impl From<StartError> for io::Error {
    fn from(failure: StartError) -> Self {
        failure.error
    }
}

/// A running server, killed when dropped.
pub struct Server {
    /// The command line that starts the server; empty if nothing does. The server's own command line is appended to it.
    wrapper: Vec<OsString>,
    binary: PathBuf,
    flags: Vec<String>,
    transport: Transport,
    directory: tempfile::TempDir,
    child: KilledOnDrop,
    address: Address,
    /// The connection that proved that the server accepts. The test gets it as its first connection, so that the server
    /// has no other clients than those of the test.
    first: Cell<Option<Client>>,
}

impl Server {
    /// Starts `binary` with `flags`, in which `{dir}` stands for the server's own directory, and
    /// returns once it accepts connections.
    pub fn start(binary: &Path, transport: Transport, flags: &[String]) -> io::Result<Self> {
        Ok(Self::start_wrapped(&[], binary, transport, flags)?)
    }

    /// Like [`Server::start`], but with the command line `wrapper`, to which the server's own is appended.
    pub fn start_wrapped(
        wrapper: &[OsString],
        binary: &Path,
        transport: Transport,
        flags: &[String],
    ) -> Result<Self, StartError> {
        let directory = tempfile::Builder::new().prefix("beanstalkd-test-").tempdir()?;
        let (child, address, first) = launch(wrapper, binary, transport, flags, directory.path())?;
        let (flags, first) = (flags.to_vec(), Cell::new(Some(first)));
        let (wrapper, binary) = (wrapper.to_vec(), binary.into());
        Ok(Self { wrapper, binary, flags, transport, directory, child, address, first })
    }

    /// The program that it runs.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The directory that is this server's own.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A new connection.
    pub fn connect(&self) -> io::Result<Client> {
        match self.first.take() {
            Some(client) => Ok(client),
            None => self.address.connect(),
        }
    }

    /// The address on which it listens, for threads that connect themselves.
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Limits the server to `count` descriptors in all. The limit can be raised later.
    pub fn limit_descriptors(&self, count: u64) -> io::Result<()> {
        system::limit_descriptors(&self.child, count)
    }

    /// Sends `signal` to the server.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.child.signal(signal)
    }

    /// Sends `signal`, waits until the server exits, and starts it again in the same directory.
    pub fn restart(&mut self, signal: Signal) -> io::Result<()> {
        self.stop(signal)?;
        let (child, address, first) =
            launch(&self.wrapper, &self.binary, self.transport, &self.flags, self.directory.path())?;
        (self.child, self.address) = (child, address);
        self.first.set(Some(first));
        Ok(())
    }

    /// Sends `signal`, and waits until the server exits.
    pub fn stop(&mut self, signal: Signal) -> io::Result<ExitStatus> {
        self.signal(signal)?;
        self.wait()
    }

    /// Waits until the server exits.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        wait(&mut self.child)
    }

    /// The process, for its memory, processor time and descriptors.
    pub fn process(&self) -> Process {
        Process(self.child.id())
    }

    /// The text that the server has written to its standard error.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }
}

/// Runs `binary` with `arguments` in `directory` until it exits.
pub fn run_to_end(binary: &Path, arguments: &[OsString], directory: &Path) -> io::Result<Ended> {
    run_until(binary, arguments, directory, || false)?.ok_or_else(too_long)
}

/// Like [`run_to_end`], but kills the process when `enough` returns true or `PATIENCE` is over, and then returns
/// `None`.
pub fn run_until(
    binary: &Path,
    arguments: &[OsString],
    directory: &Path,
    enough: impl Fn() -> bool,
) -> io::Result<Option<Ended>> {
    let mut child = spawn(&[], binary, arguments, directory)?;
    let Some(status) = wait_unless(&mut child, enough)? else { return Ok(None) };
    let read = |name: &str| std::fs::read_to_string(directory.join(name));
    Ok(Some(Ended { status, stdout: read("stdout")?, stderr: read("stderr")? }))
}

fn launch(
    wrapper: &[OsString],
    binary: &Path,
    transport: Transport,
    flags: &[String],
    directory: &Path,
) -> Result<(KilledOnDrop, Address, Client), StartError> {
    let (address, mut arguments) = choose_address(transport, directory)?;
    let own = directory.to_string_lossy();
    arguments.extend(flags.iter().map(|flag| flag.replace("{dir}", &own).into()));
    let mut child = spawn(wrapper, binary, &arguments, directory)?;
    let first = wait_until_accepting(&mut child, &address, directory)?;
    Ok((child, address, first))
}

fn choose_address(transport: Transport, directory: &Path) -> io::Result<(Address, Vec<OsString>)> {
    match transport {
        Transport::Unix => {
            let path = directory.join("socket");
            // This removes the socket of an earlier run, so that a connection proves that the new server listens.
            let _ = std::fs::remove_file(&path);
            let mut listen = OsString::from("unix:");
            listen.push(&path);
            Ok((Address::Unix(path), vec!["-l".into(), listen]))
        }
        Transport::Tcp => {
            let address = free_address()?;
            let port = address.port().to_string();
            Ok((Address::Tcp(address), vec!["-l".into(), "127.0.0.1".into(), "-p".into(), port.into()]))
        }
        Transport::Tls => {
            let address = free_address()?;
            let mut arguments = vec!["-l".into(), format!("tls://{address}").into()];
            arguments.extend(tls::server_identity().write(directory)?.map(OsString::from));
            Ok((Address::Tls(address), arguments))
        }
    }
}

/// A loopback address with a port that the kernel picks and gives to no other process as long as this process runs: a
/// socket stays bound to it. A server can bind it besides, since both set `SO_REUSEADDR`. The socket never listens: a
/// program that another test starts holds it, too, until it is executed, and would take the port from the server and
/// its clients.
pub fn free_address() -> io::Result<SocketAddr> {
    static BOUND: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    let address = socket.local_addr()?.as_socket();
    // Elsewhere such a socket keeps the server from binding.
    if cfg!(target_os = "linux") {
        BOUND.lock().expect("no thread panics while it holds the lock").push(socket);
    }
    address.ok_or_else(|| io::Error::other("a socket of IPv4 has another address"))
}

/// Starts `binary`, with `wrapper` before its command line, and with its output in files of `directory`.
pub fn spawn(
    wrapper: &[OsString],
    binary: &Path,
    arguments: &[OsString],
    directory: &Path,
) -> io::Result<KilledOnDrop> {
    let file = |name: &str| std::fs::File::create(directory.join(name));
    let mut line = wrapper.iter().map(OsString::as_os_str).chain([binary.as_os_str()]);
    Command::new(line.next().expect("the command line names the binary"))
        .args(line)
        .args(arguments)
        .current_dir(directory)
        // Tests read the log.
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(file("stdout")?)
        .stderr(file("stderr")?)
        .spawn()
        .map(KilledOnDrop)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", binary.display())))
}

/// Waits until the server accepts connections at `address`, and returns the first one.
pub fn wait_until_accepting(
    child: &mut Child,
    address: &Address,
    directory: &Path,
) -> Result<Client, StartError> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let said = std::fs::read_to_string(directory.join("stderr")).unwrap_or_default();
            let error = io::Error::other(format!("the server exited at its start: {status}: {said}"));
            return Err(StartError { status: Some(status), error });
        }
        match address.connect() {
            Ok(client) => return Ok(client),
            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// A process that is killed when this is dropped, and waited for.
#[derive(Debug)]
pub struct KilledOnDrop(pub Child);

impl KilledOnDrop {
    /// Sends `signal` to the process.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }
}

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // An error means that it has exited already, or that the system does not end it in time.
        let _ = self.0.kill();
        let _ = wait(&mut self.0);
    }
}

/// Waits until `child` has exited.
pub fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    wait_unless(child, || false)?.ok_or_else(too_long)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server has not exited in time")
}

/// Waits until `child` has exited. Returns `None` if `enough` returns true before that, or `PATIENCE` is over.
fn wait_unless(child: &mut Child, enough: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if enough() || start.elapsed() > PATIENCE {
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
