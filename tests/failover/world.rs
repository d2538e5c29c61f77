//! Two servers for one queue, kept running like under a service manager, and their surroundings.
//!
//! Owns: the processes of the servers, the store, and the links between them. It restarts a server that has ended.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::panicking::wait_for_some;
use beanstalkd_testkit::postgres::{Installation, PASSWORD, Pair, TAKEOVER_AFTER, url};
use beanstalkd_testkit::server::{Address, KilledOnDrop, free_address, spawn};
use beanstalkd_testkit::server_under_test;
use beanstalkd_testkit::tls::server_identity;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use crate::fence::Process;
use crate::proxy::{Link, Proxy};

/// The time for which commands wait for the database.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(8);
/// The time for which a client waits for a reply before it tries another server.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(3);
/// The queue of all servers.
const QUEUE: &str = "failover";
/// Small files, so that files are often filled, compacted and removed.
const FILE_BYTES: &str = "65536";

/// A server, which is the owner, waits to become it, or starts.
struct Member {
    /// Its flags without the program.
    flags: Vec<OsString>,
    directory: TempDir,
    address: SocketAddr,
    metrics: SocketAddr,
    admin: SocketAddr,
    tls: SocketAddr,
    child: Mutex<KilledOnDrop>,
    /// A member that the test has taken away is not started again.
    is_wanted: AtomicBool,
}

impl Member {
    fn child(&self) -> MutexGuard<'_, KilledOnDrop> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Links by their destinations.
type Replication = Rc<RefCell<BTreeMap<SocketAddr, Proxy>>>;

/// The store of the queue.
pub enum Store {
    /// A directory that both servers can reach; kept until the end.
    Directory(#[expect(dead_code, reason = "removed when dropped")] TempDir),
    /// A primary and a standby, and for each server a link to each of them.
    Database {
        pair: Box<Pair>,
        links: [[Proxy; 2]; 2],
        /// The links of standbys to the clusters from which they have streamed.
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
    pub fn on_database(installation: &Installation, takeover_after: Duration) -> io::Result<Self> {
        let replication = Replication::default();
        let proxies = Rc::clone(&replication);
        let route = move |primary| {
            let proxy = Proxy::start(primary)?;
            let address = proxy.address();
            proxies.borrow_mut().insert(primary, proxy);
            Ok(address)
        };
        let pair = Box::new(Pair::start_through(installation, Box::new(route))?);
        let clusters = [pair.primary.address(), pair.standby.address()];
        let links_of_member =
            || -> io::Result<[Proxy; 2]> { Ok([Proxy::start(clusters[0])?, Proxy::start(clusters[1])?]) };
        let links = [links_of_member()?, links_of_member()?];
        let members = links.each_ref().map(|links| {
            let target = url(&links.each_ref().map(Proxy::address), QUEUE);
            Member::start(target.into(), &database_flags(takeover_after).each_ref().map(String::as_str))
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

    /// The addresses where the servers listen for clients.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        self.members.each_ref().map(|member| member.address)
    }

    /// The addresses where they answer health checks.
    pub fn metrics(&self) -> [SocketAddr; 2] {
        self.members.each_ref().map(|member| member.metrics)
    }

    /// All addresses where a server listens for clients.
    pub fn listeners(&self, member: usize) -> [Address; 3] {
        let member = &self.members[member];
        let socket = member.directory.path().join("socket");
        [Address::Tcp(member.address), Address::Unix(socket), Address::Tls(member.tls)]
    }

    /// The addresses where they serve the API.
    pub fn admins(&self) -> [SocketAddr; 2] {
        self.members.each_ref().map(|member| member.admin)
    }

    /// Starts one more server of the queue, whose links have no faults. It is killed when dropped.
    pub fn third(&self) -> io::Result<Third> {
        let Store::Database { pair, .. } = &self.store else {
            unreachable!("only databases have a third server")
        };
        let flags = database_flags(TAKEOVER_AFTER);
        Member::start(pair.url(QUEUE).into(), &flags.each_ref().map(String::as_str)).map(Third)
    }

    /// Waits until a server answers, and returns its number.
    pub fn owner(&self) -> usize {
        self.owner_of(&[0, 1])
    }

    /// Waits until one of these servers answers, and returns its number.
    pub fn owner_of(&self, members: &[usize]) -> usize {
        let answers = |&member: &usize| open(self.members[member].address).is_some();
        wait_for_some(
            || format!("a server of {members:?} owns the queue\n{}", self.logs()),
            || members.iter().copied().find(answers),
        )
    }

    /// Sends a signal to a server.
    pub fn signal(&self, member: usize, signal: Signal) {
        // It may have ended in the meantime.
        let _ = self.members[member].child().signal(signal);
    }

    /// Pauses all threads of a server, and waits until they are paused or the server has ended.
    pub fn stand_still(&self, member: usize) {
        let child = self.members[member].child();
        let _ = child.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // Another thread may have waited for its end already.
        let _ = waitid(WaitId::Pid(Pid::from_child(&child)), options);
    }

    /// Whether a server has ended. It stays down only if it is not wanted.
    pub fn has_ended(&self, member: usize) -> bool {
        matches!(self.members[member].child().try_wait(), Ok(Some(_)))
    }

    /// Gives both servers a password for their next connection.
    pub fn set_password(&self, password: &str) -> io::Result<()> {
        let write = |member: &Member| fs::write(member.directory.path().join("password"), password);
        self.members.iter().try_for_each(write)
    }

    /// Waits until a server has ended by itself, and returns its status. It is started again only after this.
    pub fn wait_for_end(&self, member: usize) -> ExitStatus {
        let member = &self.members[member];
        wait_for_some(
            || format!("the server ends\n{}", self.logs()),
            || member.child().try_wait().expect("it is a child"),
        )
    }

    /// Sets whether a server is restarted when it has ended.
    pub fn keep(&self, member: usize, is_wanted: bool) {
        self.members[member].is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// Sets whether both servers are restarted when they have ended.
    pub fn keep_all(&self, is_wanted: bool) {
        (0..2).for_each(|member| self.keep(member, is_wanted));
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
        self.members.iter().for_each(Member::kill);
    }
}

/// A server in addition to the two, killed when dropped.
pub struct Third(Member);

impl Third {
    /// The address where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }
}

/// The flags of servers whose queue is in a database.
fn database_flags(takeover_after: Duration) -> [String; 6] {
    let [takeover_after, store_timeout] =
        [takeover_after, STORE_TIMEOUT].map(|time| time.as_secs().to_string());
    let words = ["--takeover-after", &takeover_after, "--store-timeout", &store_timeout];
    let [a, b, c, d] = words.map(str::to_owned);
    [a, b, c, d, "--store-password-file".into(), "password".into()]
}

impl Member {
    fn start(target: OsString, flags: &[&str]) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("beanstalkd-failover-").tempdir()?;
        let password = directory.path().join("password");
        fs::write(&password, PASSWORD)?;
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600))?;
        let (address, metrics, admin, tls) =
            (free_address()?, free_address()?, free_address()?, free_address()?);
        let socket = directory.path().join("socket");
        let (port, metrics_address) = (address.port().to_string(), metrics.to_string());
        let mut own = vec!["-b".into(), target];
        own.extend(["--wait-for-lock", "-s", FILE_BYTES, "-l", "127.0.0.1", "-p", &port].map(OsString::from));
        own.extend(["--metrics", &metrics_address, "--admin", &admin.to_string()].map(OsString::from));
        own.extend(
            ["--listen", &format!("unix:{}", socket.display()), "--listen", &format!("tls://{tls}")]
                .map(OsString::from),
        );
        own.extend(server_identity().write(directory.path())?.map(OsString::from));
        own.extend(flags.iter().map(OsString::from));
        let child = Mutex::new(launch(&own, directory.path())?);
        Ok(Self {
            flags: own,
            directory,
            address,
            metrics,
            admin,
            tls,
            child,
            is_wanted: AtomicBool::new(true),
        })
    }

    fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
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

fn launch(flags: &[OsString], directory: &Path) -> io::Result<KilledOnDrop> {
    spawn(&[], &server_under_test(), flags, directory)
}

/// A client of the server at `address` and the server's id, which differs for each process; `None` if it does
/// not answer.
pub fn open(address: SocketAddr) -> Option<(Client, String)> {
    meet(&Address::Tcp(address)).map(|(client, process)| (client, process.id))
}

/// A client of the server at `address`, with the server's id and epoch; `None` if it does not answer.
pub fn meet(address: &Address) -> Option<(Client, Process)> {
    let mut client = address.connect().ok()?;
    client.set_patience(CLIENT_PATIENCE);
    let stats = String::from_utf8(client.ask(b"stats\r\n").ok()?).ok()?;
    let figure = |key| stats.lines().find_map(|line| line.strip_prefix(key));
    let id = figure("id: ")?.trim().to_owned();
    let epoch = figure("store-epoch: ").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    Some((client, Process { id, epoch }))
}
