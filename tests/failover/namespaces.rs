//! Two servers, each on its machine: network namespaces on a bridge, with an address that moves to the owner.
//!
//! Owns: the namespaces, which need root.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use beanstalkd_testkit::http;
use beanstalkd_testkit::launched::Launched;
use beanstalkd_testkit::panicking::{is_root, wait_for_some};
use beanstalkd_testkit::postgres::{Cluster, DATABASE, PASSWORD, ROLE, TAKEOVER_AFTER, installation};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::server::{KilledOnDrop, wait};
use beanstalkd_testkit::{PATIENCE, server_under_test};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::clients::{Load, Shared};
use crate::programs::Program;
use crate::world::open;

const PORT: u16 = 11300;
const METRICS_PORT: u16 = 11380;

/// The host of this address in the network of the test: 1 is the test, 2 and 3 are the servers, 9 moves.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 213, 87, number)
}
const VIRTUAL: u8 = 9;

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

/// Debian's path of the program.
const KEEPALIVED: &str = "/usr/sbin/keepalived";

/// A bridge with two machines, removed when dropped.
struct Network {
    names: [String; 2],
    bridge: String,
    /// Each address and name of the test exists once.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Network {
    /// `None` after saying why the test is skipped.
    fn make() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let (pid, alone) = (std::process::id(), ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        let names = [2, 3].map(|number| format!("bt{pid}-{number}"));
        let network = Self { names, bridge: format!("bt{pid}"), _alone: alone };
        let bridge = &network.bridge;
        ip(&format!("link add {bridge} type bridge"));
        ip(&format!("addr add {}/24 dev {bridge}", host(1)));
        ip(&format!("link set {bridge} up"));
        for (name, number) in network.names.iter().zip(2..) {
            ip(&format!("netns add {name}"));
            ip(&format!("link add {name} type veth peer name eth0 netns {name}"));
            ip(&format!("link set {name} master {bridge} up"));
            ip(&format!("-n {name} addr add {}/24 dev eth0", host(number)));
            ip(&format!("-n {name} link set eth0 up"));
            ip(&format!("-n {name} link set lo up"));
        }
        Some(network)
    }

    /// Does the work of keepalived on both machines: the machine whose server is ready gets the address. A machine that
    /// is cut off keeps the address, because it does not know that the other one has it.
    fn move_address(&self, to: usize) {
        let address = host(VIRTUAL);
        ip(&format!("-n {} addr add {address}/24 dev eth0", self.names[to]));
        // keepalived announces the address to the network.
        ip(&format!("neigh flush dev {}", self.bridge));
    }

    fn take_address(&self, from: usize) {
        ip(&format!("-n {} addr del {}/24 dev eth0", self.names[from], host(VIRTUAL)));
    }

    /// Connects a machine with the network, or disconnects it.
    fn plug(&self, machine: usize, is_connected: bool) {
        let state = if is_connected { "up" } else { "down" };
        ip(&format!("link set {} {state}", self.names[machine]));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // The kernel removes it with the namespace, but some time later.
            let _ = Command::new("ip").args(["link", "del", name]).status();
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
        let _ = Command::new("ip").args(["link", "del", &self.bridge]).status();
    }
}

/// A server on a machine, killed when dropped.
struct Machine {
    number: u8,
    server: Launched,
}

impl Machine {
    fn start(network: &Network, machine: usize, url: &str) -> Self {
        Self::start_with(network, machine, url, TAKEOVER_AFTER)
    }

    fn start_with(network: &Network, machine: usize, url: &str, takeover_after: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let password: PathBuf = directory.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        fs::set_permissions(&password, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let metrics = format!("0.0.0.0:{METRICS_PORT}");
        let takeover_after_s = takeover_after.as_secs().to_string();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network.names[machine]]).arg(server_under_test());
        command.args(["-b", url, "--wait-for-lock", "--allow-async", "--store-password-file", "password"]);
        command.args(["--takeover-after", &takeover_after_s, "--store-timeout", "6", "-l", "0.0.0.0"]);
        command.args(["--metrics", &metrics]);
        Self { number: machine as u8 + 2, server: Launched::start(&mut command, directory) }
    }

    /// The status of `/readyz`; 0 if the server does not answer.
    fn readiness(&self) -> u16 {
        http::readiness((host(self.number), METRICS_PORT).into())
    }

    fn wait_until_ready(&self, code: u16) {
        let what = || format!("{}: {code}: {}", self.number, self.server.log());
        wait_for_some(what, || (self.readiness() == code).then_some(()));
    }
}

/// keepalived on a machine, ended when dropped.
struct Keepalived {
    child: KilledOnDrop,
    directory: TempDir,
}

impl Keepalived {
    /// With the configuration of `packaging/`, and the address of the test. `None` after saying why the test is
    /// skipped.
    fn start(network: &Network, machine: usize) -> Option<Self> {
        if !Path::new(KEEPALIVED).exists() {
            beanstalkd_testkit::skip(&format!("{KEEPALIVED} is not installed (apt-get install keepalived)"));
            return None;
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/keepalived.conf");
        let config = fs::read_to_string(path).unwrap();
        assert!(config.contains("192.0.2.9/24"), "packaging/keepalived.conf has another address");
        let config = config.replace("192.0.2.9", &host(VIRTUAL).to_string());
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("keepalived.conf"), config).unwrap();
        let run = || {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &network.names[machine], KEEPALIVED]);
            command.arg("--use-file").arg(at("keepalived.conf")).stdin(Stdio::null());
            command
        };
        assert!(
            run().arg("--config-test").status().unwrap().success(),
            "keepalived refuses its configuration"
        );
        let log = fs::File::create(at("log")).unwrap();
        let mut command = run();
        command.args(["--dont-fork", "--log-console", "--log-detail", "--vrrp"]);
        for (flag, file) in [("--pid", "pid"), ("--vrrp_pid", "vrrp-pid"), ("--checkers_pid", "checkers-pid")]
        {
            command.arg(flag).arg(at(file));
        }
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Some(Self { child: KilledOnDrop(child), directory })
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        // Ends its child, too, which would survive SIGKILL.
        let _ = self.child.signal(Signal::TERM);
        let _ = wait(&mut self.child);
    }
}

#[test]
fn the_programs_of_the_documents_go_on_at_an_address_that_keepalived_moves() {
    let (Some(installation), Some(network)) = (installation(), Network::make()) else { return };
    let cluster = Cluster::start_with(&installation, "listen_addresses = '*'\n").unwrap();
    let at = SocketAddr::from((host(1), cluster.address().port()));
    let url = format!("postgresql://{ROLE}@{at}/{DATABASE}?queue=moves&sslmode=disable");
    let Some(first) = Keepalived::start(&network, 0) else { return };
    let second = Keepalived::start(&network, 1).unwrap();
    let mut machines = [0, 1].map(|machine| Machine::start(&network, machine, &url));
    let address = SocketAddr::from((host(VIRTUAL), PORT));
    let logs = || format!("{}\n{}", first.log(), second.log());
    let mut patience = TAKEOVER_AFTER;
    let mut take_over = || {
        let owner = wait_for_some(logs, || machines.iter().position(|machine| machine.readiness() == 200));
        machines[owner].server.kill();
        // It is back before its absence has an effect, and waits for longer than the other one: it runs, but is not the
        // owner.
        patience += 4 * TAKEOVER_AFTER;
        machines[owner] = Machine::start_with(&network, owner, &url, patience);
        machines[1 - owner].wait_until_ready(200);
    };
    let shared = Arc::<Shared>::default();
    let load = Load::start(&shared, &[address], &mut Random::new(1));
    // There and back.
    for takeovers in 0..3 {
        let goes_on = load.wait_for_replies(300, PATIENCE);
        assert!(goes_on, "no replies after {takeovers} takeovers\n{}", logs());
        if takeovers < 2 {
            take_over();
        }
    }
    load.stop();
    shared.check_all_jobs(&[address], logs);

    let mut programs = Program::all(address);
    programs.iter_mut().for_each(Program::run);
    take_over();
    programs.iter_mut().for_each(Program::run);
}

#[test]
fn an_address_moves_to_the_new_owner_and_a_machine_that_was_cut_off_is_fenced() {
    let (Some(installation), Some(network)) = (installation(), Network::make()) else { return };
    let cluster = Cluster::start_with(&installation, "listen_addresses = '*'\n").unwrap();
    let at = SocketAddr::from((host(1), cluster.address().port()));
    let url = format!("postgresql://{ROLE}@{at}/{DATABASE}?queue=moves&sslmode=disable");
    let mut first = Machine::start(&network, 0, &url);
    first.wait_until_ready(200);
    let second = Machine::start(&network, 1, &url);
    second.wait_until_ready(503);

    network.move_address(0);
    let address = SocketAddr::from((host(VIRTUAL), PORT));
    let (mut client, owner) = open(address).unwrap();
    client.exchange(b"put 0 0 60 4\r\nkept\r\n", b"INSERTED 1\r\n").unwrap();

    network.plug(0, false);
    // It is in the kernel of a machine without network, and arrives when the network is back.
    client.send(b"put 0 0 60 4\r\nlate\r\n").unwrap();
    second.wait_until_ready(200);
    network.move_address(1);
    let (mut other, new_owner) = open(address).unwrap();
    assert_ne!(new_owner, owner);
    other.exchange(b"reserve-with-timeout 0\r\n", b"RESERVED 1 4\r\nkept\r\n").unwrap();
    other.exchange(b"delete 1\r\n", b"DELETED\r\n").unwrap();

    network.take_address(0);
    network.plug(0, true);
    let status = first.server.wait();
    assert!(!status.success(), "a server that was fenced has ended with {status}: {}", first.server.log());
    let said = client.read_to_end().unwrap_or_default();
    assert!(!said.starts_with(b"INSERTED"), "a server that was fenced has acknowledged a put");
    other.exchange(b"reserve-with-timeout 0\r\n", b"TIMED_OUT\r\n").unwrap();
}
