//! Accepting connections: where descriptors run out, and what accepted sockets are like.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::SockRef;

use crate::support::{Client, Process, Server, free_port, has_tool, spawn, wait_for, wait_until};

/// A server that may open 20 descriptors, and 200 clients at its door.
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
    let share = server.usage().cpu_share_during(Duration::from_secs(5));
    assert!(share < 0.05, "{share} of a processor");
    let log = server.log();
    assert!(log.contains("new connections have to wait"), "{log}");
    assert!(log.lines().count() < 10, "{log}");
}

#[test]
fn accepting_goes_on_when_descriptors_are_free() {
    if !has_tool("prlimit") {
        return;
    }
    let (server, crowd) = crowd();
    // Each leaves only when it has been served, and makes room for one who waits.
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
    wait_until("the doors are shut", || server.log().contains("new connections have to wait"));
    // As clients leave, others come in, and never one more.
    for mut client in crowd {
        assert_eq!(client.ask("use y"), "USING y");
        // One more for a moment, while the server looks which number is free.
        assert!(server.usage().descriptors() <= 20 - 2 + 1);
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
    wait_until("the doors are shut", || server.log().contains("new connections have to wait"));
    // Many files' worth of jobs, each of which is acknowledged.
    for _ in 0..200 {
        crowd[0].put(0, 60, &[b'x'; 1_000]);
    }
    assert!(crowd[0].stat("binlog-current-index") > 10);
    assert!(server.usage().descriptors() <= 40);
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
fn connections_beyond_the_bound_are_closed_at_once_and_counted() {
    let server = Server::start(&["--max-connections", "3"]);
    // The connection that proved the server up may not have been missed yet.
    let mut first = server.connect();
    wait_until("one is connected", || first.stat("current-connections") == 1);
    let mut others = [server.connect(), server.connect()];
    assert!(others.iter_mut().all(|client| client.ask("use x") == "USING x"));
    for _ in 0..5 {
        server.connect().expect_closed();
    }
    assert_eq!(first.stat("connections-refused"), 5);
    assert_eq!(first.stat("current-connections"), 3);
    drop(others);
    wait_until("they are gone", || first.stat("current-connections") == 1);
    assert_eq!(server.connect().ask("use x"), "USING x");
}

/// A second descriptor of the server's end of `client`'s connection.
fn server_end(process: Process, client: &Client) -> OwnedFd {
    let pid = Pid::from_raw(process.0 as i32).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let numbers = std::fs::read_dir(format!("/proc/{}/fd", process.0)).unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<i32>().unwrap());
    let is_peer = |socket: &OwnedFd| {
        let peer = SockRef::from(socket).peer_addr().ok().and_then(|address| address.as_socket());
        peer.is_some_and(|peer| peer.port() == client.local_port())
    };
    numbers
        .filter_map(|number| pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).ok())
        .find(is_peer)
        .expect("the server has a socket for the client")
}

fn assert_connection_options(socket: &OwnedFd) {
    let socket = SockRef::from(socket);
    assert!(socket.tcp_nodelay().unwrap(), "TCP_NODELAY");
    assert!(socket.keepalive().unwrap(), "SO_KEEPALIVE");
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
    assert!(socket.tcp_user_timeout().unwrap().is_some(), "TCP_USER_TIMEOUT");
}

#[test]
fn accepted_sockets_notice_dead_clients() {
    let server = Server::start_tcp(&[]);
    let mut client = server.connect();
    client.ask("use x");
    assert_connection_options(&server_end(server.usage(), &client));
}

#[test]
fn inherited_sockets_are_all_used_with_nodelay_and_keepalive() {
    if !has_tool("systemd-socket-activate") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let ports = [free_port(), free_port()];
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let path = directory.path().join("socket");
    let wrapper =
        ["systemd-socket-activate", "-l", &addresses[0], "-l", &addresses[1], "-l", path.to_str().unwrap()];
    let mut child = spawn(&wrapper, &[], &[], directory.path());
    let process = Process(child.id());
    let mut clients = ports.map(|port| {
        let mut client = None;
        wait_until("the port is open", || {
            client = Client::to_port(port).ok();
            client.is_some()
        });
        client.unwrap()
    });
    let mut unix = Client::to_unix(&path).unwrap();
    let served = clients.iter_mut().chain([&mut unix]).all(|client| client.ask("use x") == "USING x");
    let options_hold = std::panic::catch_unwind(|| {
        clients.iter().for_each(|client| assert_connection_options(&server_end(process, client)));
    });
    child.kill().unwrap();
    wait_for(&mut child);
    assert!(served);
    options_hold.unwrap();
}
