//! The addresses of `--metrics` and `--admin` with TLS.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use beanstalkd::http::{HttpServer, ServerPhase, Site as HttpSite, StartupHealth};
use beanstalkd::tls::{Acceptor, HANDSHAKE_TIMEOUT};
use beanstalkd_os::listen::Listener;
use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::tls::{self, Authority, Leaf};
use beanstalkd_types::clock::Timestamp;
use mio::Poll;
use rustix::process::Signal;
use rustls::ClientConfig;

use crate::{TlsServer, bare_end, client_hello, open, read_to_close};

/// The most connections that a site keeps.
const MAX_CONNECTIONS: usize = 16;

/// A server with one of the sites, which is asked for as `flag`.
struct Site {
    server: TlsServer,
    address: SocketAddr,
}

impl Site {
    fn start(flag: &str, files: &[(&str, &str)], flags: &[&str]) -> Self {
        let address = free_address().unwrap();
        let url = format!("tls://{address}");
        let server = TlsServer::start_with(files, &[&[flag, &url], flags].concat());
        Self { server, address }
    }

    /// The whole response, which the server must have ended with `close_notify`.
    fn ask(&self, config: &Arc<ClientConfig>, request: &str) -> io::Result<String> {
        let mut stream = open(self.address, config)?;
        stream.write_all(request.as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    }

    fn get(&self, path: &str) -> String {
        self.ask(&self.server.settings(None), &format!("GET {path} HTTP/1.0\r\n\r\n")).unwrap()
    }

    fn socket(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }
}

#[test]
fn metrics_and_the_status_page_are_served() {
    let site = Site::start("--metrics", &[], &[]);
    let mut client = site.server.connect();
    for tube in 0..500 {
        assert_eq!(client.ask(&format!("use tube-{tube}")), format!("USING tube-{tube}"));
        client.put(0, 60, b"x");
    }
    let metrics = site.get("/metrics");
    assert!(metrics.contains("\nbeanstalkd_current_jobs_ready 500\n"), "{metrics}");
    assert!(metrics.contains("tube=\"tube-499\""), "it has come whole, slice by slice");
    assert!(site.get("/").contains("<!doctype html>"));
    assert!(site.get("/readyz").ends_with("\r\n\r\nready\n"));
    let mut kept = open(site.address, &site.server.settings(None)).unwrap();
    for _ in 0..3 {
        kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nok\n") {
            let mut byte = [0];
            kept.read_exact(&mut byte).unwrap();
            response.extend(byte);
        }
    }
}

#[test]
fn the_page_and_the_api_of_admin_are_served() {
    let token = "0123456789abcdef0123456789abcdef";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, token).unwrap();
    let site = Site::start("--admin", &[], &["--admin-token-file", path.to_str().unwrap()]);
    assert!(site.get("/").contains("<!doctype html>"));
    assert!(site.get("/api/v1/tubes").starts_with("HTTP/1.1 401 "));
    let body = r#"{"action": "drain"}"#;
    let host = site.address;
    let request = format!(
        "POST /api/v1/server/actions HTTP/1.1\r\nHost: {host}\r\nOrigin: https://{host}\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = site.ask(&site.server.settings(None), &request).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let mut client = site.server.connect();
    assert_eq!(client.ask("put 0 0 60 1\r\nx"), "DRAINING");
}

#[test]
fn only_clients_of_the_authority_are_answered() {
    let clients = Authority::new("clients");
    let site = Site::start("--metrics", &[("tls-client-ca", &clients.pem())], &[]);
    let request = "GET /healthz HTTP/1.0\r\n\r\n";
    let scraper = site.server.settings(Some(&clients.issue(Leaf::of("scraper"))));
    assert!(site.ask(&scraper, request).unwrap().ends_with("\r\n\r\nok\n"));
    site.ask(&site.server.settings(None), request).unwrap_err();
    let mut plain = site.socket();
    plain.write_all(request.as_bytes()).unwrap();
    let received = read_to_close(&plain);
    assert!(received.is_empty() || received[0] == 21, "nothing but an alert answers a plain request");
    let line = "TLS: closed the connection of 127.0.0.1:";
    wait_until("the log says so", || site.server.server.log().contains(line));
}

#[test]
fn stalled_handshakes_do_not_keep_a_scraper_out() {
    let site = Site::start("--metrics", &[], &[]);
    let settings = site.server.settings(None);
    let hello = client_hello(&settings);
    let stall = |number: usize| {
        let mut socket = site.socket();
        socket.write_all(&hello[..number * 7]).unwrap();
        socket
    };
    let stalled: Vec<TcpStream> = (0..2 * MAX_CONNECTIONS).map(stall).collect();
    assert!(site.get("/healthz").ends_with("\r\n\r\nok\n"));
    let kept: Vec<_> = (0..2 * MAX_CONNECTIONS).map(|_| open(site.address, &settings).unwrap()).collect();
    let metrics = site.get("/metrics");
    let connections = metrics.lines().find_map(|line| line.strip_prefix("beanstalkd_tls_connections "));
    assert!(connections.unwrap().parse::<usize>().unwrap() <= MAX_CONNECTIONS, "{metrics}");
    drop((stalled, kept));
    let cut = site.socket();
    bare_end(&cut);
    assert_eq!(read_to_close(&cut), b"");
}

#[test]
fn sighup_replaces_the_certificate() {
    let site = Site::start("--metrics", &[], &[]);
    let settings = site.server.settings(None);
    let shown = || open(site.address, &settings).unwrap().conn.peer_certificates().unwrap()[0].clone();
    let old = shown();
    let renewed = site.server.authority.issue(Leaf { serial: 2, ..Leaf::of("localhost") });
    site.server.replace_identity(&renewed);
    assert_eq!(shown(), old);
    site.server.server.signal(Signal::HUP);
    wait_until("the certificate is the new one", || shown() == renewed.certificate);
}

/// A listener that a site can have.
fn listener() -> (Listener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (Listener::Tls(listener), address)
}

#[test]
fn health_checks_are_answered_while_the_server_starts() {
    let (listener, address) = listener();
    let credentials = tls::acceptor().credentials();
    let startup = StartupHealth::start(listener, Some(credentials), Timestamp::default, "replaying").unwrap();
    let (head, body) = http::get(open(address, tls::usual_client()).unwrap(), "/readyz").unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && body.ends_with("replaying\n"), "{head}: {body}");
    let Listener::Tls(listener) = startup.finish().unwrap() else { panic!("it was for TLS") };
    assert_eq!(listener.local_addr().unwrap(), address);
}

/// A site without a server behind it, whose turns a test makes.
fn site_of(acceptor: &Rc<Acceptor>, poll: &Poll) -> (HttpServer, SocketAddr) {
    let (listener, address) = listener();
    (HttpServer::new(listener, Some(acceptor), None, HttpSite::Metrics(0), poll.registry()).unwrap(), address)
}

#[test]
fn a_turn_does_one_step_of_a_handshake() {
    let (acceptor, poll) = (tls::acceptor(), Poll::new().unwrap());
    let (mut site, address) = site_of(&acceptor, &poll);
    let hello = client_hello(tls::usual_client());
    let sockets: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    for mut socket in &sockets {
        socket.write_all(&hello).unwrap();
        socket.set_nonblocking(true).unwrap();
    }
    let answered = || sockets.iter().filter(|socket| socket.peek(&mut [0]).is_ok()).count();
    for turn in 1..=sockets.len() {
        site.turn(ServerPhase::Starting("starting"), Timestamp(turn as u64));
        assert_eq!(answered(), turn);
        assert_eq!(site.next_event_at(), Some(Timestamp::AT_ONCE), "there is more to do");
    }
}

#[test]
fn a_stalled_handshake_is_over_after_ten_seconds() {
    let (acceptor, poll) = (tls::acceptor(), Poll::new().unwrap());
    let (mut site, address) = site_of(&acceptor, &poll);
    let _socket = TcpStream::connect(address).unwrap();
    let accepted_at = Timestamp(1);
    for _ in 0..3 {
        site.turn(ServerPhase::Starting("starting"), accepted_at);
    }
    assert_eq!(acceptor.figures().open_connections, 1);
    let over_at = accepted_at + Duration::as_nanos(&HANDSHAKE_TIMEOUT) as u64;
    assert_eq!(site.next_event_at(), Some(over_at));
    site.turn(ServerPhase::Starting("starting"), over_at);
    assert_eq!(acceptor.figures().open_connections, 0);
}
