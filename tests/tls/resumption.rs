//! A resumed session is accepted no longer than the certificate of its first handshake is valid, and a reload
//! closes the connections of clients that are no longer accepted.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::tls::{Authority, Identity, Leaf};
use rustix::process::Signal;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, SignatureScheme};

use crate::{TlsServer, open};

/// A server whose clients need a certificate of the authority.
fn start(clients: &Authority) -> TlsServer {
    let files = [("tls-client-ca", clients.pem()), ("tls-crl", clients.revoke(&[], 4000))];
    TlsServer::start_with(&files.each_ref().map(|(flag, pem)| (*flag, pem.as_str())), &[])
}

/// Asks for something, and returns how the handshake went.
fn handshake(server: &TlsServer, settings: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let mut stream = open(server.address, settings).ok()?;
    stream.write_all(b"list-tube-used\r\n").ok()?;
    stream.read_exact(&mut [0; 15]).ok()?;
    stream.conn.handshake_kind()
}

/// Waits until the certificate is not valid any more.
fn outlive(end: SystemTime) {
    wait_until("the certificate expires", || SystemTime::now() > end + Duration::from_secs(1));
}

/// A certificate that is valid for nine or ten seconds, and its end.
fn short_lived(clients: &Authority) -> (Identity, SystemTime) {
    let end = SystemTime::now() + Duration::from_secs(10);
    (clients.issue_until(Leaf::of("worker"), end), end)
}

#[test]
fn a_session_is_not_resumed_after_the_end_of_its_certificate() {
    let clients = Authority::new("clients");
    let server = start(&clients);
    let (identity, end) = short_lived(&clients);
    let both = [&TLS12, &TLS13].map(|version| server.authority.client(Some(&identity), &[version]));
    for settings in &both {
        assert_eq!(handshake(&server, settings), Some(HandshakeKind::Full));
        // Its ticket is from a resumed session then.
        assert_eq!(handshake(&server, settings), Some(HandshakeKind::Resumed));
    }
    outlive(end);
    for settings in &both {
        assert_eq!(handshake(&server, settings), None);
        assert_eq!(handshake(&server, settings), None, "the next ticket is no better");
    }
}

/// The client of a program that renews its certificate and keeps its tickets.
#[test]
fn a_ticket_of_an_expired_certificate_does_not_keep_a_new_one_out() {
    let clients = Authority::new("clients");
    let server = start(&clients);
    let (identity, end) = short_lived(&clients);
    let mut settings = ClientConfig::clone(&server.settings(None));
    let shown = Arc::new(Shown(Mutex::new(server.settings(Some(&identity)))));
    settings.client_auth_cert_resolver = Arc::<Shown>::clone(&shown);
    let settings = Arc::new(settings);
    assert_eq!(handshake(&server, &settings), Some(HandshakeKind::Full));
    assert_eq!(handshake(&server, &settings), Some(HandshakeKind::Resumed));
    *shown.0.lock().unwrap() = server.settings(Some(&clients.issue(Leaf::of("worker"))));
    outlive(end);
    assert_eq!(handshake(&server, &settings), Some(HandshakeKind::Full));
    assert_eq!(handshake(&server, &settings), Some(HandshakeKind::Resumed));
}

#[test]
fn a_reload_closes_connections_whose_certificates_have_expired_or_were_revoked() {
    let clients = Authority::new("clients");
    let server = start(&clients);
    let (expiring, end) = short_lived(&clients);
    let revoked = clients.issue(Leaf { serial: 7, ..Leaf::of("revoked") });
    let good = clients.issue(Leaf { serial: 8, ..Leaf::of("good") });
    let connect = |identity| {
        let mut stream = open(server.address, &server.settings(Some(identity))).unwrap();
        stream.write_all(b"list-tube-used\r\n").unwrap();
        stream.read_exact(&mut [0; 15]).unwrap();
        stream
    };
    // More than a turn checks.
    let mut bad: Vec<_> = [&expiring, &revoked].into_iter().cycle().take(12).map(connect).collect();
    let mut others: Vec<_> = (0..6).map(|_| connect(&good)).collect();
    outlive(end);
    std::fs::write(server.file("tls-crl"), clients.revoke(&[7], 4000)).unwrap();
    server.server.signal(Signal::HUP);
    for stream in &mut bad {
        assert!(matches!(stream.read(&mut [0]), Ok(0)), "the server closes it, and says so in TLS");
    }
    for stream in &mut others {
        stream.write_all(b"list-tube-used\r\n").unwrap();
        stream.read_exact(&mut [0; 15]).unwrap();
    }
}

/// A handshake that began before a reload and ends after it.
#[test]
fn a_handshake_that_a_reload_interrupts_is_judged_by_the_new_files() {
    let clients = Authority::new("clients");
    let server = start(&clients);
    let settings = server.settings(Some(&clients.issue(Leaf { serial: 7, ..Leaf::of("revoked") })));
    let mut socket = server.socket();
    let mut tls = rustls::ClientConnection::new(settings, "localhost".try_into().unwrap()).unwrap();
    tls.complete_io(&mut Half(&mut socket)).ok();
    std::fs::write(server.file("tls-crl"), clients.revoke(&[7], 4000)).unwrap();
    server.server.reload("the certificates were read again");
    while tls.wants_write() {
        tls.write_tls(&mut socket).unwrap();
    }
    tls.writer().write_all(b"list-tube-used\r\n").unwrap();
    let _ = tls.complete_io(&mut socket);
    let mut reply = [0; 15];
    let result = rustls::Stream::new(&mut tls, &mut socket).read_exact(&mut reply);
    assert!(result.is_err(), "{reply:?}");
}

/// A client that shows the certificate of these settings.
#[derive(Debug)]
struct Shown(Mutex<Arc<ClientConfig>>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap().client_auth_cert_resolver.resolve(hints, schemes)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A socket that takes the first message of the client, and no other.
struct Half<'a>(&'a mut std::net::TcpStream);

impl Read for Half<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Half<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // A hello is a record of a handshake; what follows it is not.
        if bytes.first() == Some(&22) {
            self.0.write(bytes)
        } else {
            Err(std::io::ErrorKind::WouldBlock.into())
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
