//! Tests of which connections keep their slots.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use beanstalkd_os::clock::wall_time_ns;
use beanstalkd_testkit::tls as kit;
use mio::Poll;
use socket2::{Domain, Socket, Type};

use super::connection::HEAD_TIMEOUT_NS;
use super::*;
use crate::tls::CredentialFiles;

#[test]
fn many_new_connections_are_accepted_over_several_turns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let poll = Poll::new().unwrap();
    let mut server = serve_at(&path, &poll);
    let _crowd: Vec<_> = (0..2 * MAX_CONNECTIONS).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for turn in 1..=2 {
        server.turn(ServerPhase::Starting("starting"), Timestamp(turn));
        assert_eq!(server.next_event_at(), Some(Timestamp::AT_ONCE), "there may be more of them");
    }
    server.turn(ServerPhase::Starting("starting"), Timestamp(3));
    assert_eq!(server.next_event_at(), Some(Timestamp(2) + HEAD_TIMEOUT_NS), "nobody waits");
}

/// A server that listens on the socket `path`.
fn serve_at(path: &std::path::Path, poll: &Poll) -> HttpServer {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    HttpServer::new(Listener::Unix(listener), None, None, Site::Metrics(0), poll.registry()).unwrap()
}

/// A turn at `now` that accepts new connections and reads from all connections.
fn turn(server: &mut HttpServer, now: u64) {
    server.listener.accept_at = Some(Timestamp::AT_ONCE);
    for connection in server.connections.iter_mut().flatten() {
        if let SocketState::Open { readable, .. } = &mut connection.socket_state {
            *readable = true;
        }
    }
    server.turn(ServerPhase::Starting("starting"), Timestamp(now));
}

fn connect(path: &std::path::Path, request: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request).unwrap();
    stream
}

fn is_answered(mut stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut reply = [0; 12];
    stream.read(&mut reply).is_ok_and(|read| &reply[..read] == b"HTTP/1.1 200")
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.0\r\n\r\n";

#[test]
fn incomplete_requests_never_keep_a_health_check_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let poll = Poll::new().unwrap();
    let mut server = serve_at(&path, &poll);
    let halves: [&[u8]; 4] = [b"", b"GET /healthz HTTP/1.1\r\nA: b\r\n", b"\r\n", b"GET / HTTP/1.1\r\n\r"];
    for now in 1..10 {
        let _crowd: Vec<_> =
            (0..MAX_CONNECTIONS).map(|number| connect(&path, halves[number % halves.len()])).collect();
        turn(&mut server, 2 * now);
        let check = connect(&path, HEALTH);
        turn(&mut server, 2 * now + 1);
        assert!(is_answered(&check), "turn {now}");
    }
}

#[test]
fn a_flood_of_connections_takes_no_slot_from_other_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let poll = Poll::new().unwrap();
    let site = Site::Metrics(0);
    let mut server = HttpServer::new(Listener::Tcp(listener), None, None, site, poll.registry()).unwrap();
    let check = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    check.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    check.connect(&address.into()).unwrap();
    let mut check = TcpStream::from(check);
    turn(&mut server, 1);
    for now in 2..10 {
        let _crowd: Vec<_> = (0..2 * MAX_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        turn(&mut server, 2 * now);
        turn(&mut server, 2 * now + 1);
    }
    check.write_all(HEALTH).unwrap();
    turn(&mut server, 100);
    check.set_nonblocking(true).unwrap();
    let mut reply = [0; 12];
    check.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"HTTP/1.1 200");
}

#[test]
fn unread_answers_never_keep_a_health_check_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let poll = Poll::new().unwrap();
    let mut server = serve_at(&path, &poll);
    let crowd: Vec<_> = (0..MAX_CONNECTIONS).map(|_| connect(&path, b"")).collect();
    crowd.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let requests = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    let mut now = 1;
    while !server.connections.iter().flatten().all(|it| !it.exchange.output().is_empty()) || now == 1 {
        for mut stream in &crowd {
            let _ = stream.write(&requests);
        }
        now += 1;
        turn(&mut server, now);
    }
    for _ in 0..3 {
        let check = connect(&path, HEALTH);
        now += 1;
        turn(&mut server, now);
        assert!(is_answered(&check));
    }
    let answers = server.connections.iter().flatten().filter(|it| matches!(it.stage, HttpStage::Answer(_)));
    assert!(answers.count() >= MAX_PROTECTED, "the first answers continue");
}

#[test]
fn a_head_that_arrives_byte_by_byte_has_ten_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let poll = Poll::new().unwrap();
    let mut server = serve_at(&path, &poll);
    let mut kept = connect(&path, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut dripping = connect(&path, b"G");
    turn(&mut server, 1);
    assert!(is_answered(&kept));
    for now in 1..10 {
        dripping.write_all(b"E").unwrap();
        turn(&mut server, now * NS_PER_S);
        assert_eq!(server.connections.iter().flatten().count(), 2);
    }
    turn(&mut server, 1 + HEAD_TIMEOUT_NS);
    assert_eq!(server.connections.iter().flatten().count(), 1, "the other one may ask again");
    kept.write_all(b"G").unwrap();
    turn(&mut server, 100 * NS_PER_S);
    assert_eq!(server.next_event_at(), Some(Timestamp(100 * NS_PER_S + HEAD_TIMEOUT_NS)));
}

/// Each turn decrypts a limited number of records of a client, and the next turn follows at once.
#[test]
fn a_request_in_short_records_is_read_in_several_turns() {
    const RECORDS: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    kit::server_identity().write(directory.path()).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let files = CredentialFiles { certificate, key, client_ca: None, crl: None };
    let acceptor = Acceptor::new(files.load(wall_time_ns()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let poll = Poll::new().unwrap();
    let site = Site::Metrics(0);
    let mut server =
        HttpServer::new(Listener::Tls(listener), Some(&acceptor), None, site, poll.registry()).unwrap();
    let client = std::thread::spawn(move || {
        let stream = TcpStream::connect(address).unwrap();
        let tls = kit::handshake(&stream, kit::usual_client()).unwrap();
        (stream, tls)
    });
    while !client.is_finished() {
        turn(&mut server, 1);
    }
    let (mut stream, mut tls) = client.join().unwrap();
    let head = format!("GET /healthz HTTP/1.0\r\nX: {:RECORDS$}\r\n\r\n", "x");
    let mut wire = Vec::new();
    for byte in head.as_bytes().chunks(1) {
        tls.writer().write_all(byte).unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut wire).unwrap();
        }
    }
    stream.write_all(&wire).unwrap();
    stream.set_nonblocking(true).unwrap();
    // The bytes can come in several events. Between these, the server needs none.
    let (mut turns, mut without_event) = (0, 0);
    while tls.read_tls(&mut stream).is_err()
        || tls.process_new_packets().unwrap().plaintext_bytes_to_read() == 0
    {
        if server.next_event_at() == Some(Timestamp::AT_ONCE) {
            server.turn(ServerPhase::Starting("starting"), Timestamp(3));
            without_event += 1;
        } else {
            turn(&mut server, 2);
        }
        turns += 1;
    }
    assert!(without_event > 0, "{turns} turns");
    assert!(turns >= RECORDS / 128, "{turns} turns");
}
