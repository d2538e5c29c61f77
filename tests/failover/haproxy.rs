//! Clients reach the owner of the queue through HAProxy with the configuration of `packaging/haproxy.cfg`.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::{wait_for_some, wait_until};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::server::{KilledOnDrop, free_address};
use rustix::process::Signal;

use crate::clients::{Load, Shared};
use crate::programs::Program;
use crate::world::{World, open};

/// Debian's path of the program.
const PROGRAM: &str = "/usr/sbin/haproxy";

/// HAProxy, killed when dropped.
pub struct Balancer {
    pub address: SocketAddr,
    _child: KilledOnDrop,
    _directory: tempfile::TempDir,
}

impl Balancer {
    /// Starts it in front of the servers of `world`; `None` after saying why the test is skipped.
    pub fn start(world: &World) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            beanstalkd_testkit::skip(&format!("{PROGRAM} is not installed (apt-get install haproxy)"));
            return None;
        }
        let address = free_address().unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/haproxy.cfg");
        let mut config = std::fs::read_to_string(path).unwrap();
        let mut replace = |shown: &str, ours: &str| {
            assert!(config.contains(shown), "packaging/haproxy.cfg has no {shown}");
            config = config.replace(shown, ours);
        };
        replace("bind :11300", &format!("bind {address}"));
        for (number, (server, metrics)) in (1..).zip(world.addresses().iter().zip(world.metrics())) {
            let shown = format!("192.0.2.{number}:11300 check port 11380");
            replace(&shown, &format!("{server} check port {}", metrics.port()));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("haproxy.cfg");
        std::fs::write(&path, config).unwrap();
        // In the foreground, and without a log line for each check.
        let mut command = Command::new(PROGRAM);
        let child = command.args(["-db", "-q", "-f"]).arg(&path).stderr(Stdio::null()).spawn().unwrap();
        let balancer = Self { address, _child: KilledOnDrop(child), _directory: directory };
        wait_until("HAProxy listens", || TcpStream::connect(address).is_ok());
        Some(balancer)
    }
}

#[test]
fn clients_go_on_through_haproxy_after_a_takeover() {
    let world = World::on_directory().unwrap();
    let Some(balancer) = Balancer::start(&world) else { return };
    let shared = Arc::<Shared>::default();
    let load = Load::through_balancer(&shared, balancer.address, &mut Random::new(1));
    for signal in [Signal::KILL, Signal::TERM] {
        assert!(load.wait_for_replies(300, PATIENCE), "clients get no replies\n{}", world.logs());
        let before = open(balancer.address).map(|(_, id)| id);
        world.signal(world.owner(), signal);
        assert!(load.wait_for_replies(300, PATIENCE), "no replies after {signal:?}\n{}", world.logs());
        // The clients may have read replies of the earlier owner until it ended.
        wait_until("HAProxy leads to the new owner", || {
            open(balancer.address).is_some_and(|(_, id)| before.as_ref() != Some(&id))
        });
    }
    load.stop();
    shared.check_all_jobs(&[balancer.address], || world.logs());
    assert!(shared.observed().history.job_count() > 0, "the clients have put nothing");
}

#[test]
fn a_worker_goes_on_through_haproxy_while_the_owner_drains() {
    let world = World::on_directory().unwrap();
    let Some(balancer) = Balancer::start(&world) else { return };
    let leads_to_owner = || "HAProxy leads to the owner".to_owned();
    // HAProxy closes the connections of an owner that is late twice.
    let goes_on = || {
        let (mut worker, _) = wait_for_some(leads_to_owner, || open(balancer.address));
        worker.set_patience(PATIENCE);
        worker.exchange(b"drain\r\n", b"DRAINING\r\n")?;
        // Meanwhile HAProxy asks the owner several times whether it is ready.
        worker.exchange(b"reserve-with-timeout 3\r\n", b"TIMED_OUT\r\n")?;
        worker.exchange(b"undrain\r\n", b"NOT_DRAINING\r\n")
    };
    Pace::watch().unwrap().judge(goes_on).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_programs_of_the_documents_go_on_through_haproxy_after_a_takeover() {
    let world = World::on_directory().unwrap();
    let Some(balancer) = Balancer::start(&world) else { return };
    for mut program in Program::all(balancer.address) {
        program.run();
        world.signal(world.owner(), Signal::KILL);
        program.run();
    }
}
