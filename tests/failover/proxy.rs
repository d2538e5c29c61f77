//! A link between two programs that can be cut, silenced, slowed, and made to repeat answers.
//!
//! Owns: a listener and the connections through it. Bytes of PostgreSQL pass unchanged, except with
//! [`Link::Repeating`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How the link behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Passes everything on.
    Whole,
    /// Closes its connections and accepts no new ones.
    Cut,
    /// Passes nothing on and closes nothing, as if packets were lost. They arrive when the link is whole again.
    Silent,
    /// Passes everything on after this time.
    Slow(Duration),
    /// Passes on requests; answers wait until the link is whole again, so that they come late.
    LateAnswers,
    /// Passes on answers; requests wait until the link is whole again, so that they come late.
    LateRequests,
    /// Sends the last answer of the database once more, then passes everything on.
    Repeating,
}

#[derive(Default)]
struct Connections {
    link: Option<Link>,
    sockets: Vec<TcpStream>,
}

#[derive(Default)]
struct Shared {
    connections: Mutex<Connections>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

/// A link to one address. Its threads end with the program.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A link to `target`, where no program needs to listen yet.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // An error closes both sockets, as a refused connection would.
                let _ = connect(client, target, &own);
            }
        });
        Ok(Self { address, shared })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes its behaviour.
    pub fn set(&self, link: Link) {
        let mut connections = self.shared.lock();
        connections.link = Some(link);
        if link == Link::Cut {
            for socket in connections.sockets.drain(..) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
    }
}

fn connect(client: TcpStream, target: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    if shared.lock().link == Some(Link::Cut) {
        return Ok(());
    }
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut connections = shared.lock();
    connections.sockets.extend([client.try_clone()?, server.try_clone()?]);
    // A dead connection does not stay in the list.
    connections.sockets.retain(|socket| socket.peer_addr().is_ok());
    drop(connections);
    let back = (server.try_clone()?, client.try_clone()?);
    let (there, again) = (Arc::clone(shared), Arc::clone(shared));
    thread::spawn(move || pass(client, server, Direction::Requests, &there));
    thread::spawn(move || pass(back.0, back.1, Direction::Answers, &again));
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, direction: Direction, shared: &Shared) {
    let mut buffer = vec![0; 64 * 1024];
    let mut answer = Answer::default();
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        if direction == Direction::Answers {
            answer.follow(bytes);
        }
        let Some(link) = wait_for_link(shared, direction) else { break };
        if let Link::Slow(time) = link {
            thread::sleep(time);
        }
        if to.write_all(bytes).is_err() {
            break;
        }
        if link == Link::Repeating && direction == Direction::Answers && answer.is_whole() {
            shared.lock().link = Some(Link::Whole);
            if to.write_all(answer.last()).is_err() {
                break;
            }
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Waits while nothing may pass; `None` if the link is cut.
fn wait_for_link(shared: &Shared, direction: Direction) -> Option<Link> {
    let mut connections = shared.lock();
    loop {
        match connections.link {
            Some(Link::Cut) => return None,
            Some(Link::Silent) => {}
            Some(Link::LateAnswers) if direction == Direction::Answers => {}
            Some(Link::LateRequests) if direction == Direction::Requests => {}
            link => return Some(link.unwrap_or(Link::Whole)),
        }
        connections = shared.changed.wait(connections).unwrap_or_else(PoisonError::into_inner);
    }
}

/// The end of PostgreSQL's answers: messages of a type, a length and that many bytes, up to ReadyForQuery.
#[derive(Default)]
struct Answer {
    /// Bytes of a message that has not arrived as a whole.
    partial: Vec<u8>,
    /// Messages since the last ReadyForQuery.
    current: Vec<u8>,
    last: Vec<u8>,
}

impl Answer {
    fn follow(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(&[kind, a, b, c, d]) = self.partial.first_chunk() {
            let end = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
            if self.partial.len() < end {
                return;
            }
            self.current.extend(self.partial.drain(..end));
            if kind == b'Z' {
                self.last = std::mem::take(&mut self.current);
            }
        }
    }

    /// Whether an answer has just ended, so that it can be sent again.
    fn is_whole(&self) -> bool {
        self.partial.is_empty() && self.current.is_empty() && !self.last.is_empty()
    }

    fn last(&self) -> &[u8] {
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &[u8] = b"Z\0\0\0\x05I";

    #[test]
    fn links_cut_silence_and_repeat() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let (mut peer, _) = server.accept().unwrap();
        let mut six = [0; 6];

        peer.write_all(READY).unwrap();
        client.read_exact(&mut six).unwrap();

        proxy.set(Link::LateAnswers);
        peer.write_all(READY).unwrap();
        client.write_all(b"request").unwrap();
        peer.read_exact(&mut [0; 7]).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(client.read(&mut six).is_err(), "an answer has passed");
        client.set_read_timeout(None).unwrap();
        proxy.set(Link::Whole);
        client.read_exact(&mut six).unwrap();

        proxy.set(Link::LateRequests);
        peer.write_all(READY).unwrap();
        client.write_all(b"request").unwrap();
        client.read_exact(&mut six).unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(peer.read(&mut six).is_err(), "a request has passed");
        peer.set_read_timeout(None).unwrap();
        proxy.set(Link::Whole);
        peer.read_exact(&mut [0; 7]).unwrap();

        proxy.set(Link::Repeating);
        peer.write_all(READY).unwrap();
        let mut twice = [0; 12];
        client.read_exact(&mut twice).unwrap();
        assert_eq!(twice, *[READY, READY].concat());

        proxy.set(Link::Cut);
        assert_eq!(client.read(&mut six).unwrap(), 0);
        assert_eq!(peer.read(&mut six).unwrap(), 0);
        let mut refused = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(refused.read(&mut six).unwrap(), 0);
    }
}
