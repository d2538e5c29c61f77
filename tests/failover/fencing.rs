//! An owner without a lease sends no reply: the cases that were once seen, one by one.

use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use beanstalkd_testkit::client::{Client, id_of};
use beanstalkd_testkit::http::readiness;
use beanstalkd_testkit::launched::Launched;
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::{is_root, wait_for_some};
use beanstalkd_testkit::postgres::{Cluster, DATABASE, PASSWORD, ROLE, Stop, TAKEOVER_AFTER, installation};
use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::{PATIENCE, server_under_test, skip};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::clients::Shared;
use crate::haproxy::Balancer;
use crate::proxy::{Link, Proxy};
use crate::world::{STORE_TIMEOUT, World, open};

const SECOND: Duration = Duration::from_secs(1);

/// A connection with a command that writes no record.
struct Asked {
    client: Client,
    command: String,
}

impl Asked {
    fn send(&mut self) {
        self.client.send(self.command.as_bytes()).unwrap();
    }

    /// All bytes until the server closes.
    fn rest(mut self) -> String {
        let said = String::from_utf8_lossy(&self.client.read_to_end().unwrap()).into_owned();
        // Health checks and the API may say that it is not ready.
        let is_fenced = said.is_empty() || said.starts_with("HTTP/1.1 503 ");
        if is_fenced { String::new() } else { format!("{:?}: {said:?}; ", self.command) }
    }
}

fn wait_until(world: &World, what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for_some(|| format!("{what}\n{}", world.logs()), || is_so().then_some(()));
}

/// A world whose first owner has a job, and the id of the job.
fn with_job() -> Option<(World, usize, u64)> {
    let world = World::on_database(&installation()?, TAKEOVER_AFTER).unwrap();
    let owner = world.owner();
    let (mut client, _) = open(world.addresses()[owner]).unwrap();
    let reply = client.ask(b"put 0 0 3600 1 idp:order\r\nx\r\n").unwrap();
    Some((world, owner, id_of(&reply, "INSERTED").unwrap()))
}

/// Connections over each transport with a command for each, and the API's.
fn connections(world: &World, owner: usize, id: u64) -> Vec<Asked> {
    let commands = [
        "put 0 0 3600 1 idp:order\r\nx\r\n".to_owned(),
        format!("peek {id}\r\n"),
        "watch empty\r\nignore default\r\nreserve-with-timeout 0\r\n".to_owned(),
        "list-tubes\r\nuse other\r\nkick 0\r\n".to_owned(),
        format!("delete {}\r\npeek-ready\r\nno command\r\n", u64::MAX),
        "quit\r\n".to_owned(),
    ];
    let mut all = Vec::new();
    for address in world.listeners(owner) {
        for command in &commands {
            let mut client = address.connect().unwrap();
            // The server knows it before its pause.
            client.ask(b"list-tube-used\r\n").unwrap();
            all.push(Asked { client, command: command.clone() });
        }
    }
    let (metrics, admin, job) = (world.metrics()[owner], world.admins()[owner], format!("/api/v1/jobs/{id}"));
    for (address, path) in [(metrics, "/readyz"), (admin, "/api/v1/server"), (admin, &job)] {
        let mut client = Client::over_tcp(TcpStream::connect(address).unwrap()).unwrap();
        let command = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.send(command.as_bytes()).unwrap();
        let mut length = 0;
        while let Some(line) = client.read_line().unwrap().filter(|line| !line.is_empty()) {
            let line = String::from_utf8(line).unwrap();
            length = line.strip_prefix("Content-Length: ").map_or(length, |length| length.parse().unwrap());
        }
        client.read_bytes(length).unwrap();
        all.push(Asked { client, command });
    }
    all
}

#[test]
fn a_server_that_stood_still_says_nothing_after_a_takeover() {
    let Some((world, owner, id)) = with_job() else { return };
    let mut asked = connections(&world, owner, id);
    // It waits when the pause begins, and its time-out is over when the pause ends.
    let [tcp, ..] = world.listeners(owner);
    let mut waits = tcp.connect().unwrap();
    waits.send(b"watch empty\r\nignore default\r\nreserve-with-timeout 1\r\n").unwrap();
    waits.read_reply().and_then(|_| waits.read_reply()).unwrap();

    world.keep(owner, false);
    world.stand_still(owner);
    asked.iter_mut().for_each(Asked::send);
    let (mut client, _) = open(world.addresses()[world.owner_of(&[1 - owner])]).unwrap();
    client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    if waits.has_reply_within(Duration::from_millis(1)).unwrap() {
        // Its time-out was over before the pause.
        waits.read_reply().unwrap();
    }
    world.signal(owner, Signal::CONT);
    let mut said: String = asked.into_iter().map(Asked::rest).collect();
    let rest = waits.read_to_end().unwrap();
    said += &String::from_utf8_lossy(&rest);
    assert_eq!(said, "", "a server that was fenced has spoken\n{}", world.logs());
    assert!(!world.wait_for_end(owner).success());
}

#[test]
fn replies_that_were_half_sent_may_end_and_no_more_commands_are_answered() {
    let Some((world, owner, _)) = with_job() else { return };
    let [tcp, ..] = world.listeners(owner);
    let mut client = tcp.connect().unwrap();
    let large = "x".repeat(60_000);
    client.send(format!("put 0 0 3600 {}\r\n{large}\r\n", large.len()).as_bytes()).unwrap();
    let id = id_of(&client.read_reply().unwrap(), "INSERTED").unwrap();
    let peek = format!("peek {id}\r\n");
    const BEFORE: usize = 400;
    // More than the sockets and the server hold: most of the commands are not executed yet.
    client.send(peek.repeat(BEFORE).as_bytes()).unwrap();
    client.has_reply_within(PATIENCE).unwrap();

    world.keep(owner, false);
    world.stand_still(owner);
    client.send(b"list-tube-used\r\n").unwrap();
    world.owner_of(&[1 - owner]);
    world.signal(owner, Signal::CONT);
    let said = client.read_to_end().unwrap();
    let said = String::from_utf8_lossy(&said);
    let (replies, last) = (said.matches("FOUND").count(), &said[said.len().saturating_sub(20)..]);
    assert!(replies < BEFORE && !last.contains("USING"), "{replies} replies, the last: {last:?}");
}

#[test]
fn pending_commands_are_answered_when_the_database_confirms_the_owner_again() {
    Pace::watch().unwrap().judge_panics(answer_pending_commands);
}

/// No server takes over, and the database is back before the owner gives up, after `STORE_TIMEOUT`.
fn answer_pending_commands() {
    let Some((world, owner, id)) = with_job() else { return };
    world.keep(1 - owner, false);
    world.signal(1 - owner, Signal::KILL);
    let mut asked = connections(&world, owner, id);
    world.set_links(owner, Link::Silent);
    wait_until(&world, "the owner is not ready", || readiness(world.metrics()[owner]) == 503);
    asked.iter_mut().for_each(Asked::send);
    for Asked { client, command } in &mut asked {
        // Health checks are answered; a client that has left gets nothing.
        let is_check = command.contains("readyz");
        let time = if is_check { PATIENCE } else { Duration::from_millis(50) };
        let is_answered = client.has_reply_within(time).is_ok_and(|is_answered| is_answered);
        assert_eq!(is_answered, is_check, "{command:?}");
    }
    world.set_links(owner, Link::Whole);
    wait_until(&world, "the owner is ready again", || readiness(world.metrics()[owner]) == 200);
    for Asked { client, command } in &mut asked {
        let replies = match command.split_ascii_whitespace().next() {
            Some("GET" | "quit") => continue,
            Some("put" | "peek") => 1,
            _ => 3,
        };
        for _ in 0..replies {
            client.read_reply().unwrap();
        }
    }
    let api = asked.iter_mut().filter(|asked| asked.command.contains("/api/"));
    for Asked { client, command } in api {
        let status = client.read_line().unwrap().unwrap_or_default();
        assert!(status.starts_with(b"HTTP/1.1 200"), "{command:?}: {}", String::from_utf8_lossy(&status));
    }
}

#[test]
fn an_owner_without_the_database_is_not_ready_and_its_clients_find_the_other_one() {
    let Some((world, owner, _)) = with_job() else { return };
    let Some(balancer) = Balancer::start(&world) else { return };
    let shared = Arc::<Shared>::default();
    let metrics = world.metrics();
    wait_until(&world, "the owner is ready", || readiness(metrics[owner]) == 200);
    let (_, old) = shared.meet(&world.listeners(owner)[0]).unwrap();
    // It waits for a job that comes to the other server.
    let mut found = None;
    wait_until(&world, "HAProxy leads to the owner", || {
        found = open(balancer.address);
        found.is_some()
    });
    let (mut waiting, _) = found.unwrap();
    waiting.set_patience(PATIENCE);
    waiting.send(b"reserve\r\n").unwrap();
    waiting.read_reply().unwrap();
    waiting.send(b"reserve\r\n").unwrap();

    world.set_links(owner, Link::Silent);
    world.owner_of(&[1 - owner]);
    // It does not answer while it starts again.
    let code = wait_for_some(|| world.logs(), || Some(readiness(metrics[owner])).filter(|&code| code != 0));
    assert_eq!(code, 503, "the old owner is ready\n{}", world.logs());
    assert_eq!(waiting.read_to_end().unwrap(), b"", "the client that waits is closed without a word");
    wait_until(&world, "HAProxy leads to the new owner", || open(balancer.address).is_some());
    let pace = Pace::watch().unwrap();
    for number in 0..20 {
        let found = pace.judge(|| open(balancer.address).ok_or(()));
        let is_new = found.is_ok_and(|(_, id)| id != old.id);
        assert!(is_new, "connection {number} has starved\n{}", world.logs());
    }
}

#[test]
fn an_idle_owner_without_the_database_ends_in_time() {
    let Some((world, owner, _)) = with_job() else { return };
    let metrics = world.metrics();
    let (pace, mut start) = (Pace::watch().unwrap(), Instant::now());
    wait_until(&world, "the owner is ready", || {
        start = Instant::now();
        readiness(metrics[owner]) == 200
    });
    for member in [owner, 1 - owner] {
        world.keep(member, false);
        world.set_links(member, Link::Silent);
    }
    wait_until(&world, "the owner is not ready any more", || readiness(metrics[owner]) == 503);
    pace.assert_within(TAKEOVER_AFTER, start, || "until it is not ready".to_owned());
    wait_until(&world, "the owner ends", || world.has_ended(owner));
    // It was ready after the start: the database had confirmed it less than this time before.
    assert!(start.elapsed() >= STORE_TIMEOUT - TAKEOVER_AFTER, "{}", world.logs());
    pace.assert_within(STORE_TIMEOUT + SECOND, start, || world.logs());
}

#[test]
fn an_owner_that_is_stopped_without_the_database_ends_in_time_and_says_nothing() {
    let Some((world, owner, id)) = with_job() else { return };
    let mut asked = connections(&world, owner, id);
    // The time of a job ends for a client that waits for another one.
    let [tcp, ..] = world.listeners(owner);
    let mut client = tcp.connect().unwrap();
    client.send(b"use held\r\nput 0 0 3 1\r\ny\r\nwatch held\r\nignore default\r\n").unwrap();
    for _ in 0..4 {
        client.read_reply().unwrap();
    }
    world.keep(owner, false);
    let start = Instant::now();
    client.ask(b"reserve\r\n").unwrap();
    client.send(b"reserve\r\n").unwrap();
    world.set_links(owner, Link::Silent);
    // The warning is due in two seconds. The lease ends 1.6 s after the last heartbeat.
    let ends_before_warning = start.elapsed() < Duration::from_millis(400);
    world.owner_of(&[1 - owner]);
    if client.has_reply_within(Duration::from_secs(2)).unwrap_or_default() {
        assert!(!ends_before_warning, "the job's time is near its end");
        client.read_reply().unwrap();
    }
    asked.push(Asked { client, command: "reserve".to_owned() });
    let last = asked.len() - 1;
    let (pace, start) = (Pace::watch().unwrap(), Instant::now());
    asked[..last].iter_mut().for_each(Asked::send);
    world.signal(owner, Signal::TERM);
    let said: String = asked.into_iter().map(Asked::rest).collect();
    assert_eq!(said, "", "a server without a lease has spoken\n{}", world.logs());
    world.wait_for_end(owner);
    pace.assert_within(STORE_TIMEOUT + SECOND, start, || world.logs());
}

/// The clock of a standby that becomes the primary is behind or ahead.
#[test]
fn no_clock_of_the_database_decides_about_a_takeover() {
    for error_s in [-45, 45] {
        let Some((mut world, owner, _)) = with_job() else { return };
        let pair = world.pair();
        if !pair.standby.set_clock_ahead(error_s) {
            return;
        }
        pair.standby.restart(Stop::Fast).unwrap();
        pair.primary.require_standbys("*").unwrap();
        // Its last heartbeat is from the other clock.
        let is_killed = error_s < 0;
        if is_killed {
            world.keep(owner, false);
            world.signal(owner, Signal::KILL);
        }
        let (pace, start, before) = (Pace::watch().unwrap(), Instant::now(), open(world.addresses()[owner]));
        world.pair().lose_primary().unwrap();
        world.pair().replace_standby().unwrap();
        // An owner that has replied after the start lives for longer than this without the database.
        let is_in_time = start.elapsed() < STORE_TIMEOUT - TAKEOVER_AFTER - SECOND;
        let clock = world.pair().primary.query("SELECT extract(epoch FROM clock_timestamp())::int8").unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let ahead_s = clock.parse::<i64>().unwrap() - now as i64;
        assert!((ahead_s - error_s).abs() < 10, "the clock of the database is ahead by {ahead_s} s");
        if is_killed {
            world.owner_of(&[1 - owner]);
            pace.assert_within(Duration::from_secs(30), start, || world.logs());
        } else {
            let (mut client, id) = open(world.addresses()[world.owner()]).unwrap();
            let is_judged = is_in_time && pace.was_kept_since(start);
            assert!(!is_judged || before.is_some_and(|(_, before)| before == id), "the owner has ended");
            let reply = client.ask(b"put 0 0 3600 1\r\nz\r\n").unwrap();
            assert!(reply.starts_with(b"INSERTED"), "{}", world.logs());
        }
    }
}

/// A server of the queue `alone` in a cluster, killed when dropped.
struct Alone {
    server: Launched,
    address: SocketAddr,
}

impl Alone {
    /// It reaches the database at `host`. `command` runs the program to which the flags are appended.
    fn start(host: &str, takeover_after_s: u64, mut command: Command, directory: TempDir) -> Self {
        fs::write(directory.path().join("password"), PASSWORD).unwrap();
        let address = free_address().unwrap();
        let url = format!("postgresql://{ROLE}@{host}/{DATABASE}?queue=alone&sslmode=disable");
        let [port, after, timeout] = [address.port().into(), takeover_after_s, STORE_TIMEOUT.as_secs()];
        let flags = format!(
            "--wait-for-lock --allow-async --store-password-file password -l 127.0.0.1 -p {port} \
             --takeover-after {after} --store-timeout {timeout}"
        );
        command.args(["-b", &url]).args(flags.split_ascii_whitespace());
        Self { server: Launched::start(&mut command, directory), address }
    }

    /// A client, once it serves.
    fn connect(&self) -> Client {
        wait_for_some(|| format!("it serves: {}", self.server.log()), || open(self.address)).0
    }
}

/// An operator changes `--takeover-after`, one server after the other.
#[test]
fn an_impatient_standby_does_not_take_over_while_a_patient_owner_answers() {
    let Some(installation) = installation() else { return };
    let cluster = Cluster::start(&installation).unwrap();
    let proxy = Proxy::start(cluster.address()).unwrap();
    let start = |host: SocketAddr, takeover_after_s| {
        let command = Command::new(server_under_test());
        Alone::start(&host.to_string(), takeover_after_s, command, tempfile::tempdir().unwrap())
    };
    let owner = start(proxy.address(), 6);
    let mut old = owner.connect();
    old.set_patience(PATIENCE);
    let standby = start(cluster.address(), 1);
    standby.server.wait_for("waiting for it");
    proxy.set(Link::Silent);
    standby.connect();
    old.send(b"list-tube-used\r\n").unwrap();
    let said = old.read_to_end().unwrap();
    assert_eq!(String::from_utf8_lossy(&said), "", "{}", owner.server.log() + &standby.server.log());
}

/// The names of the database are resolved by a server that does not answer any more.
#[test]
fn an_owner_that_waits_for_the_dns_ends_in_time() {
    let Some(installation) = installation().filter(|_| is_root()) else { return };
    // The bytes that come here are never read.
    let _dns = match UdpSocket::bind("127.87.0.1:53") {
        Ok(socket) => socket,
        Err(error) => return skip(&format!("cannot bind port 53 of 127.87.0.1: {error}")),
    };
    let cluster = Cluster::start(&installation).unwrap();
    let proxy = Proxy::start(cluster.address()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost db.test\n").unwrap();
    fs::write(directory.path().join("resolv.conf"), "nameserver 127.87.0.1\n").unwrap();
    let binds =
        "mount --bind hosts /etc/hosts && mount --bind resolv.conf /etc/resolv.conf && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", binds]).arg(server_under_test());
    let host = format!("db.test:{}", proxy.address().port());
    let alone = Alone::start(&host, TAKEOVER_AFTER.as_secs(), command, directory);
    alone.connect();
    fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    let (pace, asked) = (Pace::watch().unwrap(), Instant::now());
    alone.connect();
    let mut server = alone.server;
    let cut = Instant::now();
    proxy.set(Link::Cut);
    server.wait();
    // It has replied after it was asked: the database had confirmed it less than this time before.
    assert!(asked.elapsed() >= STORE_TIMEOUT - TAKEOVER_AFTER, "{}", server.log());
    pace.assert_within(STORE_TIMEOUT + SECOND, cut, || server.log());
}
