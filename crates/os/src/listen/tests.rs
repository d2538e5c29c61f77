//! Listening on the loopback address and in directories of the tests.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};

use super::*;

/// Checks that a client can reach `listener` at `port` of `host`.
fn connect(listener: &TcpListener, host: impl Into<std::net::IpAddr>, port: u16) {
    listener.set_nonblocking(false).unwrap();
    let mut client = TcpStream::connect((host.into(), port)).unwrap();
    client.write_all(b"!").unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.read_exact(&mut [0]).unwrap();
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

#[test]
fn listens_on_addresses_and_names_without_blocking() {
    for (host, address) in [
        ("127.0.0.1", Ipv4Addr::LOCALHOST.into()),
        ("0.0.0.0", Ipv4Addr::LOCALHOST.into()),
        ("::1", Ipv6Addr::LOCALHOST.into()),
        ("::", std::net::IpAddr::from(Ipv6Addr::LOCALHOST)),
    ] {
        let listener = tcp(Some(host), "0").unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        connect(&listener, address, port_of(&listener));
    }
    let listener = tcp(Some("localhost"), "0").unwrap();
    connect(&listener, listener.local_addr().unwrap().ip(), port_of(&listener));
}

#[test]
fn without_a_host_every_address_is_listened_on() {
    let listener = tcp(None, "0").unwrap();
    connect(&listener, Ipv4Addr::LOCALHOST, port_of(&listener));
}

#[test]
fn a_port_in_use_and_an_unknown_name_are_different_errors() {
    let listener = tcp(Some("127.0.0.1"), "0").unwrap();
    let port = port_of(&listener).to_string();
    match tcp(Some("127.0.0.1"), &port) {
        Err(ListenError::Bind { address, source }) => {
            assert_eq!(address, format!("127.0.0.1:{port}"));
            assert_eq!(source.kind(), ErrorKind::AddrInUse);
        }
        other => panic!("{other:?}"),
    }
    for host in ["", "127.0.0.1.1", "a\0b"] {
        assert!(matches!(tcp(Some(host), "0"), Err(ListenError::LookUp { .. })), "{host}");
    }
    let unknown = tcp(Some("127.0.0.1"), "no-such-service");
    assert!(matches!(unknown, Err(ListenError::NoSuchPort { .. })), "{unknown:?}");
}

#[test]
fn a_port_can_be_bound_again_while_connections_are_in_time_wait() {
    let listener = tcp(Some("127.0.0.1"), "0").unwrap();
    let port = port_of(&listener);
    connect(&listener, Ipv4Addr::LOCALHOST, port);
    drop(listener);
    tcp(Some("127.0.0.1"), &port.to_string()).unwrap();
}

#[test]
fn a_unix_socket_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (listener, file) = unix(&path, UnixAccess::default()).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    UnixStream::connect(&path).unwrap();
    listener.accept().unwrap();
    drop(file);
    assert!(!path.exists());
}

#[test]
fn the_socket_of_another_server_outlives_ours() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (listener, file) = unix(&path, UnixAccess::default()).unwrap();
    fs::rename(&path, directory.path().join("elsewhere")).unwrap();
    let (_other, _other_file) = unix(&path, UnixAccess::default()).unwrap();
    drop((listener, file));
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_stale_socket_is_replaced_and_one_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (_listener, _file) = unix(&path, UnixAccess::default()).unwrap();
    let error = unix(&path, UnixAccess::default()).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_socket_in_use_of_another_kind_or_with_a_full_backlog_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("datagrams");
    let _datagrams = UnixDatagram::bind(&path).unwrap();
    assert!(matches!(unix(&path, UnixAccess::default()), Err(ListenError::InUse { .. })));

    let path = directory.path().join("full");
    let full = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let address = SockAddr::unix(&path).unwrap();
    full.bind(&address).unwrap();
    full.listen(0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        client.set_nonblocking(true).unwrap();
        let connected = client.connect(&address).is_ok();
        waiting.push(client);
        if !connected {
            break;
        }
    }
    assert!(matches!(unix(&path, UnixAccess::default()), Err(ListenError::InUse { .. })));
}

#[test]
fn other_files_and_impossible_paths_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(unix(&path, UnixAccess::default()), Err(ListenError::NotASocket { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let missing = directory.path().join("missing/socket");
    assert!(matches!(unix(&missing, UnixAccess::default()), Err(ListenError::BindUnix { .. })));
    let long = directory.path().join("x".repeat(200));
    assert!(matches!(unix(&long, UnixAccess::default()), Err(ListenError::PathTooLong { .. })));
}

#[test]
fn mode_and_owner_are_set_on_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let own = fs::metadata(directory.path()).unwrap();
    let (user, group) = (own.uid().to_string(), own.gid().to_string());
    let access = UnixAccess::new(Some(0o620), Some(&user), Some(&group)).unwrap();
    let (_listener, _file) = unix(&path, access).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o620);
    assert_eq!((metadata.uid(), metadata.gid()), (own.uid(), own.gid()));
    assert!(UnixAccess::new(None, Some("nobody-of-this-name"), None).is_err());
}
