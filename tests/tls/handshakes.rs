//! The effects of clients before their handshake is done: small, and gone when the clients have left.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use beanstalkd_testkit::panicking::{scale, wait_until};
use beanstalkd_testkit::tls::{Authority, Leaf};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};
use socket2::SockRef;

use crate::{TlsServer, bare_end, client_hello, open, read_to_close};

/// A record that announces `length` bytes, with as many of them as are in `body`.
fn record(kind: u8, length: u16, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1], &length.to_be_bytes()[..], body].concat()
}

const HANDSHAKE: u8 = 22;

/// Handshakes that end after any byte, by a half-close or a reset.
#[test]
fn a_handshake_cut_at_any_byte_leaves_nothing_behind() {
    let server = TlsServer::start(&[]);
    let hello = client_hello(&server.settings(None));
    let mut client = server.connect();
    for length in 0..hello.len() {
        let mut socket = server.socket();
        socket.write_all(&hello[..length]).unwrap();
        if length % 2 == 0 {
            bare_end(&socket);
            read_to_close(&socket);
        } else {
            SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
    }
    assert_eq!(client.ask("list-tube-used"), "USING default");
    wait_until("all anonymous clients are gone", || client.stat("current-connections") == 1);
}

/// Does the handshake up to the last flight of the client, and returns this flight.
fn last_flight(mut socket: &TcpStream, config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut tls = ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap();
    tls.write_tls(&mut socket).unwrap();
    // With TLS 1.2 the handshake continues after this flight, with TLS 1.3 it ends with it.
    while tls.is_handshaking() && !(tls.wants_write() && tls.protocol_version() == Some(TLS12.version)) {
        tls.read_tls(&mut socket).unwrap();
        tls.process_new_packets().unwrap();
    }
    let mut flight = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut flight).unwrap();
    }
    flight
}

/// At the end of a handshake there is a second flight: the certificate of the client, the proof that it has the key,
/// and the last message.
#[test]
fn a_certificate_of_a_client_cut_at_any_byte_lets_nobody_in() {
    let clients = Authority::new("clients");
    let server = TlsServer::start_with(&[("tls-client-ca", &clients.pem())], &[]);
    let mut observer = server.server.connect();
    let worker = clients.issue(Leaf::of("worker"));
    for version in [&TLS12, &TLS13] {
        let settings = server.authority.client(Some(&worker), &[version]);
        let length = last_flight(&server.socket(), &settings).len();
        for cut in 0..length {
            let socket = server.socket();
            // A signature is a byte longer or shorter than others.
            let flight = last_flight(&socket, &settings);
            (&socket).write_all(&flight[..cut.min(flight.len() - 1)]).unwrap();
            if cut % 2 == 0 {
                bare_end(&socket);
                assert!(read_to_close(&socket).is_empty(), "the server says nothing after {cut} bytes");
            } else {
                SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            }
        }
        server.serves(&settings).unwrap();
    }
    wait_until("all anonymous clients are gone", || observer.stat("current-connections") == 1);
}

#[test]
fn garbage_is_refused_and_closed() {
    let server = TlsServer::start(&[]);
    let oversized = record(HANDSHAKE, 0xffff, &[1]);
    let message_of_16_mb = record(HANDSHAKE, 4, &[1, 0xff, 0xff, 0xff]);
    let garbage: &[&[u8]] = &[
        b"put 0 0 60 1\r\nx\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        &[0; 64],
        &[0xff; 64],
        &oversized,
        &message_of_16_mb,
        &record(23, 3, b"abc"),
        &record(21, 2, &[2, 40]),
    ];
    for bytes in garbage {
        let mut socket = server.socket();
        socket.write_all(bytes).unwrap();
        let received = read_to_close(&socket);
        assert!(
            received.is_empty() || received[0] == 21,
            "nothing but an alert answers {}",
            bytes.escape_ascii()
        );
    }
    assert_eq!(server.connections(), 1);
    let line = "TLS: closed the connection of 127.0.0.1:";
    wait_until("the log says so", || server.server.log().contains(line));
}

/// An offer of TLS 1.1, or of suites without forward secrecy alone, is refused with the reason (RFC 8446, 6.2).
#[test]
fn old_versions_and_weak_suites_are_refused() {
    const PROTOCOL_VERSION: u8 = 70;
    const HANDSHAKE_FAILURE: u8 = 40;
    /// The heads of the record and the message, the version, the random bytes and the length of the session id.
    const HEAD_BYTES: usize = 5 + 4 + 2 + 32 + 1;
    let server = TlsServer::start(&[]);
    let hello = client_hello(&server.authority.client(None, &[&TLS12]));
    let mut old = hello.clone();
    old[9..11].copy_from_slice(&[3, 2]);
    let versions = [0, 43, 0, 3, 2, 3, 3];
    if let Some(at) = old.windows(versions.len()).position(|window| window == versions) {
        old[at + 6] = 2;
    }
    let mut weak = hello;
    let begin = HEAD_BYTES + usize::from(weak[HEAD_BYTES - 1]);
    let length = u16::from_be_bytes([weak[begin], weak[begin + 1]]);
    for suite in weak[begin + 2..][..length.into()].chunks_mut(2) {
        // TLS_RSA_WITH_AES_128_GCM_SHA256.
        suite.copy_from_slice(&[0, 0x9c]);
    }
    for (hello, reason) in [(old, PROTOCOL_VERSION), (weak, HANDSHAKE_FAILURE)] {
        let mut socket = server.socket();
        socket.write_all(&hello).unwrap();
        let received = read_to_close(&socket);
        assert!(received.first() == Some(&21) && received.ends_with(&[2, reason]), "{received:?}");
    }
}

/// A client that sends a message of many fragments, which never ends.
#[test]
fn an_anonymous_client_can_send_32_kib_and_no_more() {
    let server = TlsServer::start(&[]);
    let mut socket = server.socket();
    let fragment = record(HANDSHAKE, 1024, &[0; 1024]);
    // A hello of 64,000 bytes begins.
    let mut begin = record(HANDSHAKE, 1024, &[0; 1024]);
    begin[5..9].copy_from_slice(&[1, 0, 0xfa, 0]);
    let mut taken = socket.write(&begin).unwrap();
    while taken < 40 * 1024 && socket.write_all(&fragment).is_ok() {
        taken += fragment.len();
    }
    read_to_close(&socket);
    let reason = "more bytes than a handshake may have";
    wait_until("the log says so", || server.server.log().contains(reason));
}

/// The memory that many anonymous clients can take: less than 80 KiB each, whatever they send.
#[test]
fn memory_for_anonymous_clients_is_bounded() {
    let clients = scale("TLS_ANONYMOUS", 300);
    let server = TlsServer::start(&[]);
    let mut client = server.server.connect();
    let earlier = client.stat("total-connections");
    let before = server.server.usage().memory();
    let mut begin = record(HANDSHAKE, 1024, &[0; 1024]);
    begin[5..9].copy_from_slice(&[1, 0, 0xfa, 0]);
    let fragment = record(HANDSHAKE, 1024, &[0; 1024]);
    let hold = |_| {
        let mut socket = server.socket();
        socket.write_all(&begin).unwrap();
        for _ in 0..29 {
            socket.write_all(&fragment).unwrap();
        }
        socket
    };
    let sockets: Vec<TcpStream> = (0..clients).map(hold).collect();
    // Of very many, the server has closed the first ones when the last ones come.
    wait_until("all have connected", || client.stat("total-connections") == earlier + clients as u64);
    let grown = server.server.usage().peak_memory().saturating_sub(before);
    assert!(grown < clients * 80 * 1024, "{} bytes for each client", grown / clients);
    drop(sockets);
    wait_until("all are gone", || client.stat("current-connections") == 1);
}

/// With a limit of memory, the memory of TLS counts, also for anonymous clients: at the limit, no more are accepted.
#[test]
fn connections_count_as_memory() {
    let server = TlsServer::start(&["--max-memory", "1m"]);
    let mut client = server.server.connect();
    let before = client.stat("buffer-bytes");
    let first = server.connect();
    wait_until("a connection is counted", || client.stat("buffer-bytes") >= before + 8 * 1024);
    drop(first);
    wait_until("it is gone", || client.stat("buffer-bytes") < before + 8 * 1024);
    let clients: Vec<TcpStream> = (0..300).map(|_| server.socket()).collect();
    wait_until("the first of them are connected", || client.stat("current-connections") > 50);
    wait_until("the others are refused", || client.stat("connections-refused") > 100);
    assert_eq!(client.ask("put 0 0 60 1\r\nx"), "OUT_OF_MEMORY");
    drop(clients);
    wait_until("all are gone", || client.stat("current-connections") == 1);
    assert!(client.ask("put 0 0 60 1\r\nx").starts_with("INSERTED "));
}

#[test]
fn a_handshake_that_stalls_is_closed() {
    // The limit is that of --idle-timeout where this is shorter; the simulation tests the other one.
    let server = TlsServer::start(&["--idle-timeout", "1"]);
    let hello = client_hello(&server.settings(None));
    let mut stalled = server.socket();
    stalled.write_all(&hello[..hello.len() / 2]).unwrap();
    let silent = server.socket();
    read_to_close(&stalled);
    read_to_close(&silent);
}

#[test]
fn a_thousand_handshakes_at_once_do_not_stop_the_others() {
    let clients = scale("TLS_HANDSHAKES", 300);
    let server = TlsServer::start(&[]);
    let hello = client_hello(&server.settings(None));
    let mut client = server.server.connect();
    let sockets: Vec<TcpStream> = (0..clients).map(|_| server.socket()).collect();
    for mut socket in &sockets {
        socket.write_all(&hello).unwrap();
    }
    // All of them complete in the end, and the server serves the client in between.
    assert_eq!(client.ask("list-tube-used"), "USING default");
    for mut socket in &sockets {
        let mut first = [0; 1];
        std::io::Read::read_exact(&mut socket, &mut first).unwrap();
        assert_eq!(first[0], HANDSHAKE);
    }
}

/// Damaged bytes after the handshake end the connection; the job that the client held comes back.
#[test]
fn damaged_records_end_the_connection() {
    let server = TlsServer::start(&[]);
    let mut worker = open(server.address, &server.settings(None)).unwrap();
    worker.write_all(b"put 0 0 60 1\r\nx\r\nreserve\r\n").unwrap();
    let mut replies = [0; 29];
    std::io::Read::read_exact(&mut worker, &mut replies).unwrap();
    assert_eq!(replies.escape_ascii().to_string(), "INSERTED 1\\r\\nRESERVED 1 1\\r\\nx\\r\\n");
    let mut observer = server.server.connect();
    worker.sock.write_all(&record(23, 32, &[7; 32])).unwrap();
    wait_until("the job is ready again", || observer.data("stats-job 1")["state"] == "ready");
}
