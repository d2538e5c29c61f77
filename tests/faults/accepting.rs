//! Accepting connections: the lack of descriptors, and the options of accepted sockets.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::Signal;
use socket2::SockRef;

use beanstalkd_binlog::MAX_DESCRIPTORS;
use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::panicking::{Client, Server, wait_until};
use beanstalkd_testkit::server::wait;
use beanstalkd_testkit::server_under_test;
use beanstalkd_testkit::system::{Process, has_user_timeout};

use crate::wait_until_idle;

/// A server that may open 20 descriptors, and 200 clients that connect to it.
fn crowd() -> (Server, Vec<Client>) {
    let server = Server::start_in(&["prlimit", "--nofile=20:20"], &[]);
    let crowd = (0..200).map(|_| server.connect()).collect();
    (server, crowd)
}

#[test]
fn emfile_does_not_spin() {
    if !has_tool("prlimit") {
        return;
    }
    let (server, _crowd) = crowd();
    wait_until("descriptors run short", || server.usage().descriptors() >= 15);
    wait_until_idle(&server, Duration::from_secs(5));
    let log = server.log();
    assert!(log.lines().any(|line| line.contains(" warn ")), "{log}");
    assert!(log.lines().count() < 10, "{log}");
}

#[test]
fn accepting_goes_on_when_descriptors_are_free() {
    if !has_tool("prlimit") {
        return;
    }
    let (server, crowd) = crowd();
    // Each client leaves when it has been served, and makes room for a client that waits.
    for mut client in crowd {
        assert_eq!(client.ask("use x"), "USING x");
    }
    assert_eq!(server.connect().stat("total-connections"), 202);
}

#[test]
fn the_last_descriptors_are_left_to_files() {
    if !has_tool("prlimit") {
        return;
    }
    let (server, mut crowd) = crowd();
    assert_eq!(crowd[0].ask("use x"), "USING x");
    wait_until("the server pauses accepting", || server.usage().descriptors() >= 20 - 2);
    // When a client leaves, one other is accepted.
    for mut client in crowd {
        assert_eq!(client.ask("use y"), "USING y");
        // To find out which number is free, the server opens one more for a moment.
        wait_until("a descriptor is left", || server.usage().descriptors() < 20);
    }
}

#[test]
fn the_binlog_finds_a_descriptor_at_the_limit() {
    if !has_tool("prlimit") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-b", directory.path().to_str().unwrap(), "-s", "8192"];
    let server = Server::start_in(&["prlimit", "--nofile=40:40"], &flags);
    let mut crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
    assert_eq!(crowd[0].ask("use x"), "USING x");
    let kept_back = 2 + MAX_DESCRIPTORS;
    wait_until("the server pauses accepting", || server.usage().descriptors() >= 40 - kept_back);
    // The jobs fill many files, and each of them is acknowledged.
    for _ in 0..200 {
        crowd[0].put(0, 60, &[b'x'; 1_000]);
    }
    assert!(crowd[0].stat("binlog-current-index") > 10);
    assert!(server.usage().descriptors() <= 40);
}

/// The server has to make files and to remove files while it may open nothing. It waits, or refuses puts, and goes on
/// when it may open files again.
#[test]
fn the_binlog_goes_on_after_a_lack_of_descriptors() {
    const PUT: &str = "put 0 0 60 1000\r\n";
    const JOBS: usize = 100;
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-b", directory.path().to_str().unwrap(), "-s", "8192", "-f0"];
    let mut server = Server::start_in(&["env", "-u", "RUST_LOG"], &flags);
    let mut client = server.connect();
    let put = format!("{PUT}{}\r\n", "x".repeat(1000));
    client.send(put.repeat(JOBS));
    let jobs: Vec<String> = (0..JOBS)
        .map(|_| client.line().strip_prefix("INSERTED ").expect("there is room").to_owned())
        .collect();
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    let before = files();
    server.0.limit_descriptors(1).unwrap();
    let deletes: String = jobs[..JOBS - 1].iter().map(|id| format!("delete {id}\r\n")).collect();
    client.send(deletes + &put.repeat(20));
    wait_until("a file cannot be opened", || server.log().lines().any(|line| line.contains(" warn ")));
    server.0.limit_descriptors(1000).unwrap();
    assert!((1..JOBS).all(|_| client.line() == "DELETED"));
    let inserted = (0..20).filter(|_| {
        let reply = client.line();
        assert!(reply.starts_with("INSERTED ") || reply == "OUT_OF_MEMORY", "{reply}");
        reply != "OUT_OF_MEMORY"
    });
    let mut left = 1 + inserted.count();
    wait_until("puts are accepted, and files are removed", || {
        let accepted = client.ask(put.trim_end()).starts_with("INSERTED ");
        left += usize::from(accepted);
        accepted && files() < before
    });
    server.signal(Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
    let server = Server::start(&flags);
    assert_eq!(server.connect().stat("current-jobs-ready"), left as u64);
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    if !has_tool("prlimit") {
        return;
    }
    let server = Server::start_in(&["prlimit", "--nofile=20:100"], &[]);
    let mut crowd: Vec<_> = (0..60).map(|_| server.connect()).collect();
    assert!(crowd.iter_mut().all(|client| client.ask("use x") == "USING x"));
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once_and_counted() {
    let server = Server::start(&["--max-connections", "3"]);
    // The server may not have noticed yet that the first connection, which proved that it is up, has closed.
    let mut first = server.connect();
    wait_until("one client is connected", || first.stat("current-connections") == 1);
    let mut others = [server.connect(), server.connect()];
    assert!(others.iter_mut().all(|client| client.ask("use x") == "USING x"));
    for _ in 0..5 {
        server.connect().expect_closed();
    }
    assert_eq!(first.stat("connections-refused"), 5);
    assert_eq!(first.stat("current-connections"), 3);
    drop(others);
    wait_until("the other clients are gone", || first.stat("current-connections") == 1);
    assert_eq!(server.connect().ask("use x"), "USING x");
}

fn assert_connection_options(socket: &OwnedFd) {
    assert!(has_user_timeout(socket), "TCP_USER_TIMEOUT");
    let socket = SockRef::from(socket);
    assert!(socket.tcp_nodelay().unwrap(), "TCP_NODELAY");
    assert!(socket.keepalive().unwrap(), "SO_KEEPALIVE");
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
}

#[test]
fn accepted_sockets_notice_dead_clients() {
    let server = Server::start_tcp(&[]);
    let mut client = server.connect();
    client.ask("use x");
    assert_connection_options(&server.usage().socket_connected_to(client.0.local_port().unwrap()));
}

/// Starts a server with `sockets` as a service manager does: as its descriptors from 3 on, with its own process id.
fn start_with(sockets: [OwnedFd; 3], directory: &Path) -> Child {
    const SCRIPT: &str = "exec 3<&0 4<&1 5<&2 </dev/null >stdout 2>stderr
        LISTEN_PID=$$ LISTEN_FDS=3 exec \"$0\"";
    let [first, second, third] = sockets;
    let mut command = Command::new("sh");
    command.arg("-c").arg(SCRIPT).arg(server_under_test()).current_dir(directory);
    command.stdin(first).stdout(second).stderr(third).spawn().unwrap()
}

#[test]
fn inherited_sockets_are_all_used_with_nodelay_and_keepalive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let tcp = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    // They listen before the server starts, so clients can connect at once.
    let unix = UnixListener::bind(&path).unwrap();
    let mut tcp_clients = tcp.each_ref().map(|it| Client::to_port(it.local_addr().unwrap().port()).unwrap());
    let mut unix_client = Client::to_unix(&path).unwrap();
    let [first, second] = tcp;
    let mut child = start_with([first.into(), second.into(), unix.into()], directory.path());
    let process = Process(child.id());
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
        for client in tcp_clients.iter_mut().chain([&mut unix_client]) {
            assert_eq!(client.ask("use x"), "USING x");
        }
        for client in &tcp_clients {
            assert_connection_options(&process.socket_connected_to(client.0.local_port().unwrap()));
        }
    }));
    child.kill().unwrap();
    wait(&mut child).unwrap();
    result.unwrap_or_else(|cause| resume_unwind(cause));
}
