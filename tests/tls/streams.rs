//! Connections with TLS behave as those without.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use beanstalkd_testkit::panicking::wait_until;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

use crate::{TlsServer, bare_end, open};

#[test]
fn sessions_are_resumed_in_both_versions() {
    let server = TlsServer::start(&[]);
    for version in [&TLS12, &TLS13] {
        let settings = server.authority.client(None, &[version]);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut stream = open(server.address, &settings).unwrap();
            stream.write_all(b"list-tube-used\r\n").unwrap();
            stream.read_exact(&mut [0; 15]).unwrap();
            assert_eq!(stream.conn.handshake_kind(), Some(expected), "{version:?}");
        }
    }
}

/// An attacker could send again what a client sends before the handshake is done (0-RTT).
#[test]
fn a_resumed_session_takes_no_early_data() {
    let server = TlsServer::start(&[]);
    let mut settings = ClientConfig::clone(&server.settings(None));
    settings.enable_early_data = true;
    let settings = Arc::new(settings);
    server.serves(&settings).unwrap();
    let mut tls = ClientConnection::new(Arc::clone(&settings), "localhost".try_into().unwrap()).unwrap();
    assert!(tls.early_data().is_none(), "the ticket of the first session allows none");
    let mut stream = open(server.address, &settings).unwrap();
    stream.write_all(b"list-tube-used\r\n").unwrap();
    stream.read_exact(&mut [0; 15]).unwrap();
    assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn the_server_ends_with_a_word_in_tls() {
    let server = TlsServer::start(&[]);
    let mut stream = open(server.address, &server.settings(None)).unwrap();
    stream.write_all(b"list-tube-used\r\nquit\r\n").unwrap();
    let mut replies = String::new();
    // This is an error if the end is not announced.
    stream.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "USING default\r\n");
}

#[test]
fn each_kind_of_half_close_gets_all_replies() {
    let server = TlsServer::start(&[]);
    let mut waiting = server.server.connect();
    for (announced, closed) in [(true, false), (false, true), (true, true)] {
        for commands in ["list-tube-used\r\n", "reserve\r\nlist-tube-used\r\n"] {
            let mut stream = open(server.address, &server.settings(None)).unwrap();
            stream.write_all(commands.as_bytes()).unwrap();
            if commands.starts_with("reserve") {
                wait_until("it waits", || waiting.stat("current-waiting") == 1);
            }
            if announced {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
            if closed {
                bare_end(&stream.sock);
            }
            let mut replies = String::new();
            stream.read_to_string(&mut replies).unwrap();
            let expected =
                commands.replace("reserve", "TIMED_OUT").replace("list-tube-used", "USING default");
            assert_eq!(replies, expected, "announced: {announced}, closed: {closed}");
        }
    }
}

#[test]
fn bodies_of_a_megabyte_pass_in_both_directions() {
    let server = TlsServer::start(&["-z", "2m"]);
    let mut client = server.connect();
    let body: Vec<u8> = (0..1_000_003_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for id in 1..=3 {
        assert_eq!(client.put(0, 60, &body), id);
        assert_eq!(client.ask(&format!("peek {id}")), format!("FOUND {id} {}", body.len()));
        assert!(client.body(body.len()) == body, "the body is the same");
    }
}

#[test]
fn ten_thousand_commands_at_once_are_answered_in_order() {
    let server = TlsServer::start(&[]);
    let mut client = server.connect();
    let script = "put 0 0 60 5\r\nhello\r\nlist-tube-used\r\n".repeat(5000);
    let sender = std::thread::spawn({
        let mut stream = open(server.address, &server.settings(None)).unwrap();
        move || {
            stream.write_all(script.as_bytes()).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
            let mut replies = String::new();
            stream.read_to_string(&mut replies).unwrap();
            replies
        }
    });
    let replies = sender.join().unwrap();
    let expected: String = (1..=5000).map(|id| format!("INSERTED {id}\r\nUSING default\r\n")).collect();
    assert!(replies == expected, "{} bytes of replies", replies.len());
    assert_eq!(client.stat("current-jobs-ready"), 5000);
}

/// A client that asks for 64 MB and reads nothing is not served further, and takes no more memory than without TLS.
#[test]
fn unread_replies_are_bounded() {
    let server = TlsServer::start(&["-z", "2m"]);
    let mut client = server.connect();
    client.put(0, 60, &vec![b'x'; 1 << 20]);
    let before = server.server.usage().memory();
    let mut greedy = open(server.address, &server.settings(None)).unwrap();
    greedy.write_all("peek 1\r\n".repeat(64).as_bytes()).unwrap();
    greedy.sock.set_nonblocking(true).unwrap();
    wait_until("the server has executed what it will", || client.stat("cmd-peek") > 0);
    assert_eq!(client.ask("list-tube-used"), "USING default");
    let grown = server.server.usage().memory().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    greedy.sock.set_nonblocking(false).unwrap();
    let mut left = 64 * ((1 << 20) + "FOUND 1 1048576\r\n\r\n".len());
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        match greedy.read(&mut buffer) {
            Ok(count) => left -= count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
        }
    }
}
