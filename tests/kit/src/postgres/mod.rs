//! Clusters of PostgreSQL that a test makes, breaks and removes.
//!
//! Owns: the directory of a cluster, its server processes and its port. It signals only processes that it has started.
//! A cluster listens on a port of the loopback interface, and on a socket in its directory, where the test is the
//! superuser. Driven by the suites that need a database.

mod installation;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::{NamedTempFile, TempDir};

use crate::PATIENCE;
use crate::server::{self, POLL_INTERVAL, free_address};
use crate::system::Process;
use crate::tls::Identity;

pub use self::installation::{Installation, installation};

/// The database of the tests, and the role that owns only the schema with its name there.
pub const DATABASE: &str = "jobs";
/// The role with which servers log in.
pub const ROLE: &str = "beanstalkd";
/// Its password.
pub const PASSWORD: &str = "a password of the tests";

/// `--takeover-after` of the servers under test: the time after which a standby takes over from an owner whose
/// heartbeat it does not see.
pub const TAKEOVER_AFTER: Duration = Duration::from_secs(2);
/// An owner that stands still for this time is taken over from, if a standby can take over.
pub const PAUSE_FOR_TAKEOVER: Duration = TAKEOVER_AFTER.saturating_add(Duration::from_millis(1500));

/// The size of the disk of a cluster that has its own.
const DISK_BYTES: u64 = 1 << 30;

/// Settings of each cluster: small, and ready for a standby. What is durable stays durable.
const SETTINGS: &str = "
max_connections = 80
shared_buffers = 32MB
max_wal_senders = 8
max_wal_size = 128MB
wal_keep_size = 64MB
wal_receiver_status_interval = 1s
wal_retrieve_retry_interval = 100ms
unix_socket_permissions = 0777
log_min_messages = warning
";

/// Who may log in, and how: the test on the socket, roles with their password, standbys.
const LOG_INS: &str = "
local all all trust
local replication all trust
host replication all 127.0.0.1/32 trust
host all all all scram-sha-256
";

/// Debian's path of the library that gives a program another clock.
fn faketime() -> String {
    format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH)
}

/// How a cluster is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// In order; its sessions end.
    Fast,
    /// At once, as if the power failed: every process gets SIGKILL.
    Kill,
}

/// A cluster: one directory of data, with or without a running server.
pub struct Cluster {
    installation: Installation,
    directory: TempDir,
    address: SocketAddr,
    postmaster: Option<Child>,
    /// Whether the directory is a disk in memory.
    has_own_disk: bool,
    /// How far its clock is ahead, in seconds.
    clock_error_s: i64,
}

impl Cluster {
    /// A running cluster with [`DATABASE`] and [`ROLE`].
    pub fn start(installation: &Installation) -> io::Result<Self> {
        Self::start_with(installation, "")
    }

    /// As `start`, with further `settings` in lines of postgresql.conf.
    pub fn start_with(installation: &Installation, settings: &str) -> io::Result<Self> {
        let mut cluster = Self::empty(installation)?;
        cluster.run(
            "initdb",
            &["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"],
            &[],
        )?;
        cluster.configure(settings)?;
        cluster.launch()?;
        cluster.make_role()?;
        Ok(cluster)
    }

    /// A standby at the address `own` that streams from `source`, which leads to this cluster.
    pub fn standby_at(&self, own: SocketAddr, source: SocketAddr) -> io::Result<Self> {
        let mut standby = Self::empty(&self.installation)?;
        standby.address = own;
        let from = self.conninfo();
        standby.run(
            "pg_basebackup",
            &["--no-sync", "--checkpoint=fast", "--wal-method=stream"],
            &["-d", &from],
        )?;
        standby.configure("")?;
        standby.installation.write(&standby.data().join("standby.signal"), "")?;
        standby.follow(source)?;
        standby.launch()?;
        Ok(standby)
    }

    /// Sets where a standby streams from.
    fn follow(&self, source: SocketAddr) -> io::Result<()> {
        // The time-out makes a standby notice a connection that is cut without a sign.
        let conninfo = format!(
            "host={} port={} user=postgres application_name=standby_{}",
            source.ip(),
            source.port(),
            self.address.port()
        );
        self.append_settings(&format!("primary_conninfo = '{conninfo}'\nwal_receiver_timeout = 5s\n"))
    }

    fn empty(installation: &Installation) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("beanstalkd-pg-").tempdir_in(parent_directory())?;
        let has_own_disk = installation.has_small_disks && mount_memory(directory.path());
        installation.give(directory.path())?;
        // The servers under test reach the socket, whatever their user is.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711))?;
        let (installation, address) = (installation.clone(), free_address()?);
        Ok(Self { installation, directory, address, postmaster: None, has_own_disk, clock_error_s: 0 })
    }

    /// The directory of the data.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connection string with which the test is the superuser.
    pub fn conninfo(&self) -> String {
        format!("host={} port={} user=postgres", self.directory.path().display(), self.address.port())
    }

    /// The process that started the others, if the cluster runs.
    pub fn process(&self) -> Option<Process> {
        self.postmaster.as_ref().map(|child| Process(child.id()))
    }

    /// Its socket in the file system.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(format!(".s.PGSQL.{}", self.address.port()))
    }

    /// Whether it takes queries now.
    pub fn takes_queries(&self) -> bool {
        self.psql("postgres", "SELECT 1").is_ok()
    }

    /// Leaves no room on its disk until the file is dropped; `None` if the disk is not its own.
    pub fn fill_disk(&self) -> io::Result<Option<NamedTempFile>> {
        if !self.has_own_disk {
            return Ok(None);
        }
        let mut ballast = NamedTempFile::new_in(self.directory.path())?;
        let zeros = vec![0; 1 << 20];
        for size in [zeros.len(), 4096] {
            while ballast.write_all(&zeros[..size]).is_ok() {}
        }
        Ok(Some(ballast))
    }

    /// All its processes.
    pub fn processes(&self) -> Vec<Process> {
        let Some(postmaster) = self.process() else { return Vec::new() };
        let mut all = vec![postmaster];
        all.extend(postmaster.children());
        all
    }

    /// Starts it, and waits until it takes queries.
    pub fn launch(&mut self) -> io::Result<()> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = self.installation.command("postgres");
        if self.clock_error_s != 0 {
            command.env("LD_PRELOAD", faketime()).env("FAKETIME", format!("{:+}s", self.clock_error_s));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let child = command.arg("-D").arg(self.data()).stdout(log.try_clone()?).stderr(log).spawn()?;
        self.postmaster = Some(child);
        self.wait_for("SELECT 1", "1")
    }

    /// Stops it; what it has committed stays.
    pub fn stop(&mut self, how: Stop) -> io::Result<()> {
        let Some(mut postmaster) = self.postmaster.take() else { return Ok(()) };
        if how == Stop::Kill {
            let all = [vec![Process(postmaster.id())], Process(postmaster.id()).children()].concat();
            // No process may notice the death of another and react to it.
            signal_all(&all, Signal::STOP);
            signal_all(&all, Signal::KILL);
        } else {
            signal_all(&[Process(postmaster.id())], Signal::INT);
        }
        server::wait(&mut postmaster)?;
        Ok(())
    }

    /// Its clock is ahead by this from its next start on. Returns false after saying why the test is skipped.
    ///
    /// # Panics
    ///
    /// If `CI` is set, because a skipped test would look like a passed one there.
    pub fn set_clock_ahead(&mut self, seconds: i64) -> bool {
        let library = faketime();
        if !Path::new(&library).exists() {
            crate::skip(&format!("{library} is not installed (apt-get install libfaketime)"));
            return false;
        }
        self.clock_error_s = seconds;
        true
    }

    /// Stops and starts it.
    pub fn restart(&mut self, how: Stop) -> io::Result<()> {
        self.stop(how)?;
        self.launch()
    }

    /// Pauses all its processes, until [`Cluster::resume`].
    pub fn pause(&self) {
        signal_all(&self.processes(), Signal::STOP);
    }

    /// Ends [`Cluster::pause`].
    pub fn resume(&self) {
        signal_all(&self.processes(), Signal::CONT);
    }

    /// Makes a standby the primary.
    pub fn promote(&self) -> io::Result<()> {
        self.query("SELECT pg_promote()")?;
        self.wait_for("SELECT pg_is_in_recovery()", "f")
    }

    /// Commits wait from now on until a standby has them, whatever its name is; `""` for none. Waits until the standby
    /// is there.
    pub fn require_standbys(&self, names: &str) -> io::Result<()> {
        self.set("synchronous_standby_names", names)?;
        if names.is_empty() {
            return Ok(());
        }
        self.wait_for(
            "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')",
            "t",
        )
    }

    /// Changes a setting that needs no restart.
    pub fn set(&self, name: &str, value: &str) -> io::Result<()> {
        self.query(&format!("ALTER SYSTEM SET {name} = '{value}'"))?;
        self.query("SELECT pg_reload_conf()")?;
        // `SHOW` in a new session proves that the postmaster has read the file.
        let shown = format!("SELECT current_setting('{name}') = '{value}'");
        self.wait_for(&shown, "t")
    }

    /// Changes a setting that needs a restart, or one without a plain value; it counts from the next start.
    pub fn append_settings(&self, lines: &str) -> io::Result<()> {
        let path = self.data().join("postgresql.conf");
        let mut file = fs::OpenOptions::new().append(true).open(path)?;
        file.write_all(lines.as_bytes())
    }

    /// Speaks TLS with `identity`, and takes clients of the network only with it. Restarts.
    pub fn require_tls(&mut self, identity: &Identity) -> io::Result<()> {
        let data = self.data();
        self.installation.write(&data.join("server.crt"), &identity.certificate_pem())?;
        self.installation.write(&data.join("server.key"), &identity.key_pem())?;
        self.append_settings("ssl = on\n")?;
        let log_ins = LOG_INS.replace("host all", "hostssl all");
        self.installation.write(&data.join("pg_hba.conf"), &log_ins)?;
        self.restart(Stop::Fast)
    }

    /// Runs SQL in [`DATABASE`] as the superuser. Returns rows as lines, with `|` between columns.
    pub fn query(&self, sql: &str) -> io::Result<String> {
        self.psql(DATABASE, sql)
    }

    /// As `query`, in another database.
    pub fn psql(&self, database: &str, sql: &str) -> io::Result<String> {
        Ok(run(self.psql_command(database, sql))?.trim_end().to_owned())
    }

    fn psql_command(&self, database: &str, sql: &str) -> Command {
        let conninfo = format!("{} dbname={database} connect_timeout=5", self.conninfo());
        let mut command = self.installation.command("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &conninfo, "-c", sql]);
        command
    }

    /// Waits until a query returns `wanted`.
    pub fn wait_for(&self, sql: &str, wanted: &str) -> io::Result<()> {
        let start = Instant::now();
        loop {
            // The database of the tests is made after the first start.
            let last = self.psql("postgres", sql);
            if last.as_deref().is_ok_and(|found| found == wanted) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.log_path()).unwrap_or_default();
                return Err(io::Error::other(format!("{sql}: expected {wanted}, got {last:?}; log:\n{log}")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The URL of the queue `queue` in this cluster.
    pub fn url(&self, queue: &str) -> String {
        url(&[self.address], queue)
    }

    /// Processor time of all its processes so far, with those that have ended.
    pub fn cpu_time(&self) -> Duration {
        let live: Duration = self.processes().into_iter().filter_map(Process::cpu_time_if_running).sum();
        live + self.process().map_or(Duration::ZERO, Process::cpu_time_of_ended_children)
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Runs a program that fills the directory of the data.
    fn run(&self, program: &str, flags: &[&str], more: &[&str]) -> io::Result<()> {
        let mut command = self.installation.command(program);
        command.args(flags).args(more).arg("-D").arg(self.data());
        run(command).map(drop)
    }

    /// Replaces the settings: a copy of another cluster has those of that cluster.
    fn configure(&self, settings: &str) -> io::Result<()> {
        let directory = self.directory.path().display();
        let address = self.address;
        let own = format!(
            "listen_addresses = '{}'\nport = {}\nunix_socket_directories = '{directory}'\n",
            address.ip(),
            address.port()
        );
        let data = self.data();
        self.installation.write(&data.join("postgresql.conf"), &format!("{SETTINGS}{own}{settings}"))?;
        self.installation.write(&data.join("postgresql.auto.conf"), "")?;
        self.installation.write(&data.join("pg_hba.conf"), LOG_INS)
    }

    /// The steps of `doc/ha.md`.
    fn make_role(&self) -> io::Result<()> {
        self.psql("postgres", &format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"))?;
        self.psql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        self.query(&format!("REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC"))?;
        self.query(&format!("GRANT CONNECT ON DATABASE {DATABASE} TO {ROLE}"))?;
        self.query(&format!("CREATE SCHEMA {ROLE} AUTHORIZATION {ROLE}"))?;
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.stop(Stop::Kill);
        if self.has_own_disk {
            let _ = Command::new("umount").arg("--lazy").arg(self.directory.path()).status();
        }
    }
}

/// The directory for temporary files, if its path is short: that of a socket may not have more than 107 bytes.
fn parent_directory() -> PathBuf {
    let usual = std::env::temp_dir();
    if usual.as_os_str().len() <= 64 { usual } else { "/tmp".into() }
}

/// Makes `directory` a disk in memory; returns whether the system lets us.
fn mount_memory(directory: &Path) -> bool {
    let size = format!("size={DISK_BYTES}");
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The URL of the queue `queue` in the first of the clusters at `addresses` that is a primary.
pub fn url(addresses: &[SocketAddr], queue: &str) -> String {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("postgresql://{ROLE}@{}/{DATABASE}?queue={queue}", hosts.join(","))
}

/// A primary and a standby without which it acknowledges no commit.
pub struct Pair {
    /// Takes the writes.
    pub primary: Cluster,
    /// Streams from the primary.
    pub standby: Cluster,
    route: Route,
}

/// The address through which a standby reaches the primary at this one.
type Route = Box<dyn Fn(SocketAddr) -> io::Result<SocketAddr>>;

impl Pair {
    /// A running pair.
    pub fn start(installation: &Installation) -> io::Result<Self> {
        Self::start_through(installation, Box::new(Ok))
    }

    /// A running pair whose standby reaches the primary by another address.
    pub fn start_through(installation: &Installation, route: Route) -> io::Result<Self> {
        let primary = Cluster::start(installation)?;
        let standby = primary.standby_at(free_address()?, route(primary.address)?)?;
        primary.require_standbys("*")?;
        Ok(Self { primary, standby, route })
    }

    /// The URL of the queue `queue`, with both clusters, in an order that stays when they change their roles.
    pub fn url(&self, queue: &str) -> String {
        let mut addresses = [self.primary.address, self.standby.address];
        addresses.sort();
        url(&addresses, queue)
    }

    /// The loss of the primary: it gets SIGKILL, and the standby takes its place. Commits then wait for a new standby.
    pub fn lose_primary(&mut self) -> io::Result<()> {
        self.primary.stop(Stop::Kill)?;
        self.standby.set("synchronous_standby_names", "*")?;
        self.standby.promote()?;
        std::mem::swap(&mut self.primary, &mut self.standby);
        Ok(())
    }

    /// A new standby instead of the one that was lost, at the same address.
    pub fn replace_standby(&mut self) -> io::Result<()> {
        let address = self.standby.address;
        self.standby.stop(Stop::Kill)?;
        self.standby = self.primary.standby_at(address, (self.route)(self.primary.address)?)?;
        self.primary.require_standbys("*")
    }
}

fn signal_all(processes: &[Process], signal: Signal) {
    for process in processes {
        let pid = i32::try_from(process.0).ok().and_then(Pid::from_raw).expect("it is a process");
        // It may have ended in the meantime.
        let _ = kill_process(pid, signal);
    }
}

/// The standard output of a command that succeeds.
fn run(mut command: Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        return String::from_utf8(output.stdout)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{:?}: {}: {said}", command.get_program(), output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_survives_the_loss_of_the_primary_and_waits_for_a_standby() {
        let Some(installation) = installation() else { return };
        let mut pair = Pair::start(&installation).unwrap();
        let url = pair.url("mail");
        pair.primary.query("CREATE TABLE t (n int); INSERT INTO t VALUES (1)").unwrap();
        pair.lose_primary().unwrap();
        assert_eq!(pair.primary.query("SELECT n FROM t").unwrap(), "1");
        let mut late = pair.primary.psql_command(DATABASE, "INSERT INTO t VALUES (2)").spawn().unwrap();
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        pair.primary.wait_for(waits, "1").unwrap();
        assert!(late.try_wait().unwrap().is_none(), "it is committed without a standby");
        pair.replace_standby().unwrap();
        assert!(server::wait(&mut late).unwrap().success());
        pair.primary.query("INSERT INTO t VALUES (3)").unwrap();
        assert_eq!(pair.url("mail"), url);
    }

    #[test]
    fn a_cluster_is_paused_restarted_and_speaks_tls() {
        let Some(installation) = installation() else { return };
        let mut cluster = Cluster::start(&installation).unwrap();
        cluster.pause();
        let timed = "host=127.0.0.1";
        let port = cluster.address().port();
        let ready = |cluster: &Cluster| {
            let mut command = cluster.installation.command("pg_isready");
            command.args(["-t", "1", "-d", &format!("{timed} port={port}")]);
            run(command).is_ok()
        };
        assert!(!ready(&cluster));
        cluster.resume();
        crate::panicking::wait_until("it is ready", || ready(&cluster));
        cluster.require_tls(crate::tls::server_identity()).unwrap();
        let log_in = |ssl: &str| {
            let conninfo = format!("{timed} port={port} user={ROLE} dbname={DATABASE} sslmode={ssl}");
            let mut command = cluster.installation.command("psql");
            command.env("PGPASSWORD", PASSWORD).args(["-X", "-d", &conninfo, "-c", "CREATE TABLE a ()"]);
            run(command)
        };
        assert!(log_in("disable").is_err(), "TLS is required");
        log_in("require").unwrap();
        let schema = "SELECT schemaname FROM pg_tables WHERE tablename = 'a'";
        assert_eq!(cluster.query(schema).unwrap(), ROLE);
    }
}
