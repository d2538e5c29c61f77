//! The servers under test.
//!
//! Owns: starting a server as a child on a separate port, reading its cost from /proc, and ending it. Treats all
//! servers alike: except for the rows about `--spin`, HTTP, TLS and access rules, ours gets no option that another
//! server does not get. The kit of the tests does not start these servers, because the start itself is measured here,
//! programs other than beanstalkd take part, and a server that fails must cost one row and not the whole run.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use beanstalkd_testkit::server::{KilledOnDrop, free_address};
use beanstalkd_testkit::tls;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::{NamedTempFile, TempDir};

use crate::client::{Client, Endpoint, PATIENCE};
use crate::failure::Failure;
use crate::load::Load;
use crate::machine::Cores;

/// How long to wait until the server sleeps, before its counters are read.
const SETTLE: Duration = Duration::from_millis(2);
/// The pause between two attempts to connect to a starting server.
const RETRY: Duration = Duration::from_micros(100);

/// The role of a program in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The floor, which keeps no jobs.
    Floor,
    /// Another server.
    Peer,
    /// The server of this project.
    Ours,
    /// Redis, for comparison. It is not in the table and has another protocol.
    Redis,
}

/// A program that is measured.
#[derive(Clone)]
pub struct Contender {
    /// Its role.
    pub role: Role,
    /// The column's heading.
    pub label: String,
    /// The executable.
    pub program: PathBuf,
}

impl Contender {
    /// A server, labelled with the output of its `-v`.
    pub fn labelled(role: Role, program: PathBuf) -> Self {
        let printed = Command::new(&program).arg("-v").stdin(Stdio::null()).output();
        let label = match printed {
            Ok(output) if output.status.success() && !output.stdout.is_empty() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            _ => program.display().to_string(),
        };
        Self { role, label, program }
    }

    /// For rows that mean something for our server alone.
    pub fn must_be_ours(&self) -> Result<(), Failure> {
        if self.role == Role::Ours { Ok(()) } else { Err(Failure::Meaningless) }
    }
}

/// A queue in a database.
#[derive(Clone, Copy)]
pub struct Store<'a> {
    /// The URL.
    pub url: &'a str,
    /// The password of its role.
    pub password: &'a str,
    /// Whether the server waits for the owner and takes over, and after how many seconds.
    pub takeover_after_s: Option<u64>,
}

/// How a server is started.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Directory of the binlog and the milliseconds between syncs.
    pub binlog: Option<(&'a Path, u32)>,
    /// Length of the bodies that the floor sends, in bytes.
    pub body_bytes: usize,
    /// Microseconds that our server polls before it sleeps; 0 starts it without `--spin`.
    pub spin_us: u32,
    /// The largest job in bytes; 0 for the default.
    pub max_job_bytes: usize,
    /// Whether our server listens for HTTP, too.
    pub has_http: bool,
    /// Our server keeps the binlog in a database, and syncs it before each reply.
    pub store: Option<Store<'a>>,
    /// Whether the load arrives over TLS. Another server is then behind stunnel, whose cost is included.
    pub has_tls: bool,
    /// The access rules of our server.
    pub access: Option<&'static str>,
    /// The rules for tubes of our server.
    pub tubes: Option<&'static str>,
    /// The file into which callgrind writes the instructions that our server has executed.
    pub counts: Option<&'a Path>,
}

impl Setup<'_> {
    /// Without a binlog, with bodies of the usual length.
    pub const PLAIN: Setup<'static> = Setup {
        binlog: None,
        body_bytes: Load::BODY_BYTES,
        spin_us: 0,
        max_job_bytes: 0,
        has_http: false,
        store: None,
        has_tls: false,
        access: None,
        tubes: None,
        counts: None,
    };
}

/// The addresses of HTTP of our server.
#[derive(Clone, Copy)]
pub struct HttpAddresses {
    /// The address of `--metrics`.
    pub metrics: SocketAddr,
    /// The address of `--admin`.
    pub admin: SocketAddr,
}

/// A running server, killed when dropped.
pub struct Server {
    child: KilledOnDrop,
    /// The address on which it listens without TLS; that of TLS for the floor with it.
    pub address: SocketAddr,
    tls: Option<TlsListener>,
    /// The addresses of HTTP, if the server listens for it.
    pub http: Option<HttpAddresses>,
    /// The time from the start of the program to its first reply.
    pub first_reply: Duration,
    /// Its files of rules, which the next program reads again.
    _rules: [Option<tempfile::NamedTempFile>; 2],
}

impl Server {
    /// Starts `contender` on the server's core and waits for its first reply.
    pub fn start(contender: &Contender, cores: Cores, setup: Setup<'_>) -> Result<Self, Failure> {
        let address = free_address()?;
        let mut command = setup.counts.map_or_else(
            || Command::new(&contender.program),
            |counts| under_callgrind(&contender.program, counts),
        );
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let mut tls = setup.has_tls.then(|| TlsListener::for_server(contender.role, address)).transpose()?;
        match contender.role {
            Role::Floor => command.args(["floor", &port, &setup.body_bytes.to_string()]),
            Role::Peer | Role::Ours => command.args(["-l", &ip, "-p", &port]),
            Role::Redis => command.args(["--bind", &ip, "--port", &port, "--save", "", "--appendonly", "no"]),
        };
        if let Some((directory, sync_ms)) = setup.binlog {
            command.arg("-b").arg(directory).args(["-f", &sync_ms.to_string()]);
        }
        if let Some(store) = setup.store {
            command.args(["-b", store.url]).env("PGPASSWORD", store.password);
            if let Some(seconds) = store.takeover_after_s {
                command.args(["--wait-for-lock", "--takeover-after", &seconds.to_string()]);
            }
        }
        if setup.spin_us > 0 {
            command.args(["--spin", &setup.spin_us.to_string()]);
        }
        if setup.max_job_bytes > 0 {
            command.args(["-z", &setup.max_job_bytes.to_string()]);
        }
        if let Some(tls) = &tls {
            command.args(tls.arguments(contender.role));
        }
        let rules = setup.access.map(file_of).transpose()?;
        if let Some(rules) = &rules {
            command.arg("--access").arg(rules.path());
        }
        let tubes = setup.tubes.map(file_of).transpose()?;
        if let Some(tubes) = &tubes {
            command.arg("--tubes").arg(tubes.path());
        }
        let http = if setup.has_http {
            let http = HttpAddresses { metrics: free_address()?, admin: free_address()? };
            command.args(["--metrics", &http.metrics.to_string(), "--metrics-tubes", "1000000"]);
            command.args(["--admin", &http.admin.to_string()]);
            Some(http)
        } else {
            None
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = Instant::now();
        let child = cores.on_server_core(|| command.spawn()).map_err(|error| match setup.counts {
            Some(_) => Failure::Tool(format!("valgrind: {error}")),
            None => error.into(),
        })?;
        if let (Role::Peer, Some(tls)) = (contender.role, &mut tls) {
            tls.start_stunnel(cores, address)?;
        }
        let child = KilledOnDrop(child);
        let mut server =
            Self { child, address, tls, http, first_reply: Duration::ZERO, _rules: [rules, tubes] };
        server.await_first_reply(started)?;
        server.first_reply = started.elapsed();
        Ok(server)
    }

    fn await_first_reply(&mut self, started: Instant) -> Result<(), Failure> {
        let endpoint = self.endpoint();
        let (Endpoint::Plain(address) | Endpoint::Tls(address)) = endpoint;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(Failure::Exited(status));
            }
            if started.elapsed() > PATIENCE {
                return Err(Failure::Silent);
            }
            thread::sleep(RETRY);
        }
        let mut client = Client::connect_to(endpoint)?;
        client.send(b"delete 0\r\n")?;
        client.line()?;
        Ok(())
    }

    /// Where the load connects.
    pub fn endpoint(&self) -> Endpoint {
        self.tls.as_ref().map_or(Endpoint::Plain(self.address), |tls| Endpoint::Tls(tls.address))
    }

    /// The processes whose cost is that of the server.
    fn ids(&self) -> impl Iterator<Item = u32> {
        let stunnel = self.tls.as_ref().and_then(|tls| tls.stunnel.as_ref());
        [Some(&*self.child), stunnel].into_iter().flatten().map(Child::id)
    }

    /// The server's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that all its threads have used.
    pub fn cpu(&self) -> Result<Duration, Failure> {
        let mut used_ns = 0;
        for id in self.ids() {
            for task in fs::read_dir(format!("/proc/{id}/task"))? {
                used_ns += cpu_ns(&task?.path().join("schedstat"))?;
            }
        }
        Ok(Duration::from_nanos(used_ns))
    }

    /// Processor time that all its threads use while `work` runs, and the result of `work`.
    pub fn cpu_of<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<(Duration, T), Failure> {
        let before = self.cpu()?;
        let result = work()?;
        thread::sleep(SETTLE);
        Ok((self.cpu()?.saturating_sub(before), result))
    }

    /// Resident bytes, from `smaps_rollup`, because the counters in `status` and `statm` lag by some pages per core.
    pub fn resident_bytes(&self) -> Result<f64, Failure> {
        thread::sleep(SETTLE);
        self.ids().map(resident_bytes_of).sum()
    }

    /// The largest number of resident bytes since the start.
    pub fn peak_resident_bytes(&self) -> Result<f64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kibibytes.map(|count| count * 1024.0).ok_or_else(|| Failure::Tool("status names no VmHWM".to_owned()))
    }

    /// Ends the server as a service manager does, and waits until it is gone.
    pub fn stop(mut self) -> Result<(), Failure> {
        signal(&self.child, Signal::SIGTERM)?;
        self.child.wait()?;
        Ok(())
    }
}

/// A command that counts the instructions of this program and writes them to a file at its end.
fn under_callgrind(program: &Path, counts: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display())).arg(program);
    command
}

fn resident_bytes_of(id: u32) -> Result<f64, Failure> {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup"))?;
    let kibibytes = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kibibytes.map(|count| count * 1024.0).ok_or_else(|| Failure::Tool("smaps_rollup names no Rss".to_owned()))
}

/// A file with this text, until it is dropped.
fn file_of(text: &str) -> Result<NamedTempFile, Failure> {
    let file = NamedTempFile::new()?;
    fs::write(file.path(), text)?;
    Ok(file)
}

/// Where a server listens for TLS, and what does it for a server that cannot.
struct TlsListener {
    address: SocketAddr,
    files: TempDir,
    stunnel: Option<Child>,
}

impl TlsListener {
    /// The floor has one listener, at `address`.
    fn for_server(role: Role, address: SocketAddr) -> Result<Self, Failure> {
        let files = tempfile::tempdir()?;
        tls::server_identity().write(files.path())?;
        let address = if role == Role::Floor { address } else { free_address()? };
        Ok(Self { address, files, stunnel: None })
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    fn arguments(&self, role: Role) -> Vec<String> {
        let (certificate, key) = (self.file("cert.pem"), self.file("key.pem"));
        match role {
            Role::Floor => vec![certificate, key],
            Role::Ours => {
                let listen = format!("tls://{}", self.address);
                let flags = [("--tls-cert", certificate), ("--tls-key", key), ("--listen", listen)];
                flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
            }
            Role::Peer | Role::Redis => Vec::new(),
        }
    }

    fn start_stunnel(&mut self, cores: Cores, server: SocketAddr) -> Result<(), Failure> {
        let settings = self.file("stunnel.conf");
        let text = format!(
            "foreground = yes\npid =\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n\
             [server]\naccept = {}\nconnect = {server}\ncert = {}\nkey = {}\n",
            self.address,
            self.file("cert.pem"),
            self.file("key.pem")
        );
        fs::write(&settings, text)?;
        let mut command = Command::new("stunnel");
        command.arg(settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let stunnel = cores.on_server_core(|| command.spawn());
        self.stunnel = Some(stunnel.map_err(|_| Failure::Tool("stunnel is not installed".to_owned()))?);
        Ok(())
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        if let Some(stunnel) = &mut self.stunnel {
            // An error means that it has exited already.
            let _ = stunnel.kill();
            let _ = stunnel.wait();
        }
    }
}

/// Sends `signal` to a child that has not been waited for.
pub fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill(Pid::from_raw(child.id().cast_signed()), signal)?)
}

/// Nanoseconds on a processor: the first number of a `schedstat` file.
fn cpu_ns(schedstat: &Path) -> Result<u64, Failure> {
    let text = match fs::read_to_string(schedstat) {
        Ok(text) => text,
        // The thread ended after the directory was listed.
        Err(error) if !schedstat.exists() && error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let used = text.split_whitespace().next().and_then(|field| field.parse().ok());
    used.ok_or_else(|| Failure::Tool("schedstat holds no number; is CONFIG_SCHED_INFO missing?".to_owned()))
}
