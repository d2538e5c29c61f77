//! The floor: a server that does the least work with which this protocol can be answered.
//!
//! Owns: one edge-triggered loop that frames `put`, `reserve` and `delete` and answers each with a plausible
//! reply. Never keeps a job, so its cost is that of the kernel and of the framing. The benchmark runs it as a child
//! process with a subcommand. With TLS it is the least that a server over the same rustls does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use memchr::memchr;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustls::crypto::ring::{self, Ticketer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use slab::Slab;

use crate::wire::Wire;

const LISTENER: Token = Token(usize::MAX);
const EVENTS_PER_TURN: usize = 1024;
/// A single read takes all that a connection sends at depth 256, and half of 16 bodies of 16 KiB.
const BUFFER_BYTES: usize = 128 * 1024;
/// Ids as wide as those of a server that has run for a while.
const INSERTED: &[u8] = b"INSERTED 1000000\r\n";

/// The settings of TLS with the files of a certificate and its key.
pub fn tls_settings(certificate: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_file(certificate).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let settings = builder.with_no_client_auth().with_single_cert(vec![certificate], key);
    let mut settings = settings.map_err(io::Error::other)?;
    settings.ticketer = Ticketer::new().map_err(io::Error::other)?;
    Ok(Arc::new(settings))
}

/// Serves on `port` of the loopback address until killed, with TLS if there are settings for it; every reserved job has
/// `body_bytes`.
pub fn serve(port: u16, body_bytes: usize, tls: Option<&Arc<ServerConfig>>) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(EVENTS_PER_TURN);
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connections = Slab::new();
    let mut responder = Responder::new(body_bytes);
    loop {
        match poll.poll(&mut events, None) {
            Ok(()) => {}
            // strace, which counts the system calls, interrupts the current one when it attaches.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        for event in &events {
            if event.token() == LISTENER {
                accept_all(&listener, tls, &poll, &mut connections)?;
            } else if let Some(connection) = connections.get_mut(event.token().0)
                && let Outcome::Closed = responder.attend(connection, event.is_readable())
            {
                connections.remove(event.token().0);
            }
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    tls: Option<&Arc<ServerConfig>>,
    poll: &Poll,
    connections: &mut Slab<Connection>,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nodelay(true)?;
                let entry = connections.vacant_entry();
                poll.registry().register(
                    &mut stream,
                    Token(entry.key()),
                    Interest::READABLE | Interest::WRITABLE,
                )?;
                let stream = match tls {
                    None => Wire::Plain(stream),
                    Some(settings) => {
                        let mut tls =
                            ServerConnection::new(Arc::clone(settings)).map_err(io::Error::other)?;
                        tls.set_buffer_limit(None);
                        Wire::with_tls(stream, tls)
                    }
                };
                entry.insert(Connection { stream, framing: Framing::default(), unsent: Vec::new() });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

struct Connection {
    stream: Wire<TcpStream>,
    framing: Framing,
    /// Replies that the kernel had no room for. While there are any, the floor does not read from this connection.
    unsent: Vec<u8>,
}

/// How far the framing has come between two reads.
#[derive(Default)]
struct Framing {
    /// The beginning of a command line, until its end arrives.
    line: Vec<u8>,
    /// Bytes of a body and its trailer still to come.
    body_left: usize,
}

enum Outcome {
    Open,
    Closed,
}

/// The buffers and the reply to `reserve`, which all connections share.
struct Responder {
    input: Box<[u8]>,
    output: Vec<u8>,
    reserved: Vec<u8>,
}

impl Responder {
    fn new(body_bytes: usize) -> Self {
        let mut reserved = format!("RESERVED 1000000 {body_bytes}\r\n").into_bytes();
        reserved.resize(reserved.len() + body_bytes, b'x');
        reserved.extend_from_slice(b"\r\n");
        Self { input: vec![0; BUFFER_BYTES].into_boxed_slice(), output: Vec::new(), reserved }
    }

    /// A single read and a single write, unless the read filled the buffer.
    fn attend(&mut self, connection: &mut Connection, readable: bool) -> Outcome {
        if connection.stream.flush().is_err() {
            return Outcome::Closed;
        }
        if connection.unsent.is_empty() {
            if !readable {
                return Outcome::Open;
            }
        } else {
            let unsent = std::mem::take(&mut connection.unsent);
            match send(connection, &unsent) {
                Ok(()) if connection.unsent.is_empty() => {}
                Ok(()) => return Outcome::Open,
                Err(_) => return Outcome::Closed,
            }
        }
        loop {
            let count = match connection.stream.read(&mut self.input) {
                Ok(0) => return Outcome::Closed,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Outcome::Open,
                Err(_) => return Outcome::Closed,
            };
            self.output.clear();
            answer(&mut connection.framing, &self.input[..count], &self.reserved, &mut self.output);
            if send(connection, &self.output).is_err() {
                return Outcome::Closed;
            }
            let may_have_more = connection.stream.may_have_more(count, self.input.len());
            if !may_have_more || !connection.unsent.is_empty() {
                return Outcome::Open;
            }
        }
    }
}

/// Writes once, and keeps the bytes that the kernel did not take.
fn send(connection: &mut Connection, replies: &[u8]) -> io::Result<()> {
    if replies.is_empty() {
        return Ok(());
    }
    let written = match connection.stream.write(replies) {
        Ok(written) => written,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    connection.unsent.extend_from_slice(&replies[written..]);
    Ok(())
}

fn answer(framing: &mut Framing, mut input: &[u8], reserved: &[u8], output: &mut Vec<u8>) {
    while !input.is_empty() {
        if framing.body_left > 0 {
            let taken = framing.body_left.min(input.len());
            framing.body_left -= taken;
            input = &input[taken..];
            if framing.body_left == 0 {
                output.extend_from_slice(INSERTED);
            }
            continue;
        }
        let Some(end) = memchr(b'\n', input) else {
            framing.line.extend_from_slice(input);
            return;
        };
        let (head, rest) = input.split_at(end + 1);
        input = rest;
        if framing.line.is_empty() {
            framing.body_left = answer_line(head, reserved, output);
        } else {
            framing.line.extend_from_slice(head);
            framing.body_left = answer_line(&framing.line, reserved, output);
            framing.line.clear();
        }
    }
}

/// Answers one line, and returns the number of bytes between it and the next line.
fn answer_line(line: &[u8], reserved: &[u8], output: &mut Vec<u8>) -> usize {
    match line[0] {
        b'p' => {
            let digits = line.strip_suffix(b"\r\n").unwrap_or(line).rsplit(|&byte| byte == b' ').next();
            let size = digits.unwrap_or_default().iter();
            return size.fold(0, |size: usize, digit| size * 10 + usize::from(digit & 0xf)) + 2;
        }
        b'r' => output.extend_from_slice(reserved),
        b'd' => output.extend_from_slice(b"DELETED\r\n"),
        b'u' => output.extend_from_slice(b"USING x\r\n"),
        b'w' => output.extend_from_slice(b"WATCHING 2\r\n"),
        b'i' => output.extend_from_slice(b"WATCHING 1\r\n"),
        _ => output.extend_from_slice(b"UNKNOWN_COMMAND\r\n"),
    }
    0
}
