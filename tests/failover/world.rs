//! Two servers for one queue, kept running as a service manager would, and what they use.
//!
//! Owns: the processes of the servers, the store, and the links between them. It starts a server again when it has ended.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::postgres::{Installation, PASSWORD, Pair, url};
use beanstalkd_testkit::server::{POLL_INTERVAL, free_address, spawn};
use beanstalkd_testkit::{PATIENCE, server_under_test};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::proxy::{Link, Proxy};

/// When a standby takes over from an owner whose heartbeat it does not see.
pub const TAKEOVER_AFTER: Duration = Duration::from_secs(2);
/// How long commands wait for the database.
const STORE_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a client waits for a reply before it tries another server.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(3);
/// Small files, so that files are often filled, compacted and removed.
const FILE_BYTES: &str = "65536";

/// A server, which is the owner, waits to become it, or starts.
struct Member {
    /// Its flags without the program.
    flags: Vec<OsString>,
    directory: TempDir,
    address: SocketAddr,
    metrics: SocketAddr,
    child: Mutex<Child>,
    /// A member that the test has taken away is not started again.
    is_wanted: AtomicBool,
}

impl Member {
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Links by what they lead to.
type Replication = Rc<RefCell<BTreeMap<SocketAddr, Proxy>>>;

/// Where the queue is kept.
pub enum Store {
    /// A directory that both servers see; kept until the end.
    Directory(#[expect(dead_code, reason = "removed when dropped")] TempDir),
    /// A primary and a standby, and for each server a link to each of them.
    Database {
        pair: Box<Pair>,
        links: [[Proxy; 2]; 2],
        /// The ways of standbys to the clusters that they have streamed from.
        replication: Replication,
    },
}

/// The servers and their store.
pub struct World {
    members: Arc<[Member; 2]>,
    /// The store.
    pub store: Store,
    supervisor: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl World {
    /// Two servers with one directory.
    pub fn on_directory() -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let target: OsString = directory.path().into();
        let members = [&target, &target].map(|target| Member::start(target.clone(), &["-f", "0"]));
        Self::of(members, Store::Directory(directory))
    }

    /// Two servers with a queue in a pair of clusters.
    pub fn on_database(installation: &Installation) -> io::Result<Self> {
        let replication = Replication::default();
        let proxies = Rc::clone(&replication);
        let route = move |primary| {
            let proxy = Proxy::start(primary)?;
            let address = proxy.address();
            proxies.borrow_mut().insert(primary, proxy);
            Ok(address)
        };
        let installation = installation.clone().with_small_disks();
        let pair = Box::new(Pair::start_through(&installation, Box::new(route))?);
        let clusters = [pair.primary.address(), pair.standby.address()];
        let links_of_member =
            || -> io::Result<[Proxy; 2]> { Ok([Proxy::start(clusters[0])?, Proxy::start(clusters[1])?]) };
        let links = [links_of_member()?, links_of_member()?];
        let takeover_after = TAKEOVER_AFTER.as_secs().to_string();
        let store_timeout = STORE_TIMEOUT.as_secs().to_string();
        let flags = ["--takeover-after", &takeover_after, "--store-timeout", &store_timeout];
        let members = links.each_ref().map(|links| {
            let target = url(&links.each_ref().map(Proxy::address), "failover");
            Member::start(target.into(), &[&flags[..], &["--store-password-file", "password"]].concat())
        });
        Self::of(members, Store::Database { pair, links, replication })
    }

    fn of([first, second]: [io::Result<Member>; 2], store: Store) -> io::Result<Self> {
        let members = Arc::new([first?, second?]);
        let is_over = Arc::new(AtomicBool::new(false));
        let (supervised, over) = (Arc::clone(&members), Arc::clone(&is_over));
        let supervisor = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                supervised.iter().for_each(Member::restart_if_ended);
                thread::sleep(Duration::from_millis(20));
            }
        });
        Ok(Self { members, store, supervisor: Some(supervisor), is_over })
    }

    /// Where the servers listen for clients.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        self.members.each_ref().map(|member| member.address)
    }

    /// Where they answer health checks.
    pub fn metrics(&self) -> [SocketAddr; 2] {
        self.members.each_ref().map(|member| member.metrics)
    }

    /// Waits until a server answers, and returns its number.
    pub fn owner(&self) -> usize {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(found) = self.addresses().iter().position(|&address| open(address).is_some()) {
                return found;
            }
            thread::sleep(POLL_INTERVAL);
        }
        panic!("no server owns the queue\n{}", self.logs());
    }

    /// Sends a signal to a server.
    pub fn signal(&self, member: usize, signal: Signal) {
        let child = self.members[member].child();
        // It may have ended meanwhile.
        let _ = kill_process(Pid::from_child(&child), signal);
    }

    /// Waits until a server has ended by itself, and returns its status. It is started again only after this.
    pub fn wait_for_end(&self, member: usize) -> ExitStatus {
        let member = &self.members[member];
        let start = Instant::now();
        loop {
            if let Some(status) = member.child().try_wait().expect("it is a child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the server has not ended\n{}", self.logs());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// From now on, a server is started again when it has ended, or not.
    pub fn keep(&self, member: usize, is_wanted: bool) {
        self.members[member].is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// The pair of clusters.
    pub fn pair(&mut self) -> &mut Pair {
        match &mut self.store {
            Store::Database { pair, .. } => pair,
            Store::Directory(_) => unreachable!("only worlds with a database have faults of databases"),
        }
    }

    /// Changes the links of a server.
    pub fn set_links(&self, member: usize, link: Link) {
        if let Store::Database { links, .. } = &self.store {
            links[member].iter().for_each(|proxy| proxy.set(link));
        }
    }

    /// Changes the link between primary and standby.
    pub fn set_replication(&self, link: Link) {
        if let Store::Database { replication, .. } = &self.store {
            replication.borrow().values().for_each(|proxy| proxy.set(link));
        }
    }

    /// The logs of both servers.
    pub fn logs(&self) -> String {
        let log = |member: &Member| {
            let text = fs::read_to_string(member.directory.path().join("log")).unwrap_or_default();
            let now = fs::read_to_string(member.directory.path().join("stderr")).unwrap_or_default();
            format!("--- {}\n{text}{now}", member.address)
        };
        self.members.each_ref().map(log).join("")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
        for member in self.members.iter() {
            let mut child = member.child();
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Member {
    fn start(target: OsString, flags: &[&str]) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("beanstalkd-failover-").tempdir()?;
        let password = directory.path().join("password");
        fs::write(&password, PASSWORD)?;
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600))?;
        let (address, metrics) = (free_address()?, free_address()?);
        let (port, metrics_address) = (address.port().to_string(), metrics.to_string());
        let mut own = vec!["-b".into(), target];
        own.extend(["--wait-for-lock", "-s", FILE_BYTES, "-l", "127.0.0.1", "-p", &port].map(OsString::from));
        own.extend(["--metrics", &metrics_address].map(OsString::from));
        own.extend(flags.iter().map(OsString::from));
        let child = Mutex::new(launch(&own, directory.path())?);
        Ok(Self { flags: own, directory, address, metrics, child, is_wanted: AtomicBool::new(true) })
    }

    fn restart_if_ended(&self) {
        let mut child = self.child();
        let ended = matches!(child.try_wait(), Ok(Some(_)));
        if ended && self.is_wanted.load(Ordering::Relaxed) {
            let path = self.directory.path();
            let said = fs::read_to_string(path.join("stderr")).unwrap_or_default();
            let earlier = fs::read_to_string(path.join("log")).unwrap_or_default();
            let _ = fs::write(path.join("log"), earlier + &said);
            if let Ok(started) = launch(&self.flags, path) {
                *child = started;
            }
        }
    }
}

fn launch(flags: &[OsString], directory: &Path) -> io::Result<Child> {
    spawn(&[], &server_under_test(), flags, directory)
}

/// A client of the server at `address` and the server's id, which is another one for each process; `None` if it does not
/// answer.
pub fn open(address: SocketAddr) -> Option<(Client, String)> {
    let stream = std::net::TcpStream::connect_timeout(&address, CLIENT_PATIENCE).ok()?;
    let mut client = Client::over_tcp(stream).ok()?;
    client.set_patience(CLIENT_PATIENCE);
    let stats = String::from_utf8(client.ask(b"stats\r\n").ok()?).ok()?;
    let id = stats.lines().find_map(|line| line.strip_prefix("id: "))?.trim().to_owned();
    Some((client, id))
}
