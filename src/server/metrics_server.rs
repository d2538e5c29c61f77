//! The sockets over which metrics, health and the page are served.
//!
//! Owns: the HTTP listener, its few connections, and the samples of the last minutes. HTTP connections are no
//! clients: they have no place in the queue and no share in its work. Driven by `event_loop`, which calls
//! `turn` behind the work of the protocol; [`crate::metrics`] says how little a turn does.

use std::io::{self, ErrorKind, Read, Write};

use log::{debug, warn};
use mio::event::{Event, Source};
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};

use super::Executor;
use super::rare_log::RareLog;
use super::stats;
use crate::clock::{NS_PER_S, Timestamp};
use crate::metrics::{Connection, History, Phase, ProcessFigures, Sources, Timings, Value};
use crate::os;
use crate::os::listen::Listener;
use crate::queue::Queue;

/// Connections at a time: a few scrapers and some people who look at the page.
const CONNECTIONS: usize = 16;

/// How long a connection may make no progress. Scrapers that keep theirs ask more often.
const IDLE_NS: u64 = 120 * NS_PER_S;

/// How long accepting rests after it has failed, for want of descriptors as a rule.
const ACCEPT_PAUSE_NS: u64 = NS_PER_S;

/// What is read at a time.
const READ_BYTES: usize = 4096;

/// The tokens of the connections lie below that of the listener, one for each place. Above it are those of
/// the loop itself.
const LISTENER: usize = usize::MAX - 16;

/// The HTTP side of the server.
pub struct MetricsServer {
    listener: Door,
    /// Somebody may wait at the listener; not to be looked at before this instant.
    knocked_at: Option<Timestamp>,
    warnings: RareLog,
    visitors: [Option<Visitor>; CONNECTIONS],
    /// Whose turn it is to get a slice of work.
    next: usize,
    /// The last turn has done work, so there may be more of it.
    busy: bool,
    registry: Registry,
    history: History,
    max_tubes: usize,
}

/// Whose figures are served.
#[derive(Clone, Copy)]
pub enum State<'a> {
    /// Nobody's yet, for this reason.
    Starting(&'a str),
    /// The server's.
    Serving(&'a Executor),
}

enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection with its socket.
struct Visitor {
    socket: Box<dyn Socket>,
    connection: Connection,
    readable: bool,
    writable: bool,
    /// It has ended, or is no good.
    gone: bool,
    moved_at: Timestamp,
}

impl Door {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener) => listener,
        }
    }
}

trait Socket: Read + Write + Source {}
impl<S: Read + Write + Source> Socket for S {}

impl MetricsServer {
    /// Serves on `listener`; at most `max_tubes` tubes have series of their own.
    ///
    /// # Errors
    /// Where the system does not take the socket into its poll.
    pub fn new(listener: Listener, max_tubes: usize, registry: &Registry) -> io::Result<Self> {
        let registry = registry.try_clone()?;
        let mut listener = match listener {
            Listener::Tcp(listener) => Door::Tcp(TcpListener::from_std(listener)),
            Listener::Unix(listener) => Door::Unix(UnixListener::from_std(listener)),
        };
        registry.register(listener.source(), Token(LISTENER), Interest::READABLE)?;
        Ok(Self {
            listener,
            knocked_at: Some(Timestamp::default()),
            warnings: RareLog::default(),
            visitors: [const { None }; CONNECTIONS],
            next: 0,
            busy: false,
            registry,
            history: History::default(),
            max_tubes,
        })
    }

    /// Notes an event; tells whether it was for HTTP. One for a connection that is gone does no harm to the
    /// next in its place.
    pub fn notice(&mut self, event: &Event) -> bool {
        let Some(below) = LISTENER.checked_sub(event.token().0).filter(|&below| below <= CONNECTIONS) else {
            return false;
        };
        match below.checked_sub(1).map(|place| &mut self.visitors[place]) {
            None => self.knocked_at = Some(Timestamp::default()),
            Some(Some(visitor)) => {
                visitor.readable |= event.is_readable() || event.is_read_closed();
                visitor.writable |= event.is_writable();
                visitor.gone |= event.is_error() || event.is_write_closed();
            }
            Some(None) => {}
        }
        true
    }

    /// When there is to be a turn, if no event comes before.
    pub fn next_turn_at(&self) -> Timestamp {
        let sample_at = self.history.next_at();
        self.next_event_at().map_or(sample_at, |at| at.min(sample_at))
    }

    /// When there is something to do for a connection.
    pub fn next_event_at(&self) -> Option<Timestamp> {
        if self.busy {
            return Some(Timestamp::default());
        }
        let idle = self.visitors.iter().flatten().map(|visitor| visitor.moved_at + IDLE_NS);
        idle.chain(self.knocked_at).min()
    }

    /// The listener, without those who are connected.
    ///
    /// # Errors
    /// Where the system does not take the socket out of its poll.
    pub fn into_listener(mut self) -> io::Result<Listener> {
        self.registry.deregister(self.listener.source())?;
        Ok(match self.listener {
            Door::Tcp(listener) => Listener::Tcp(listener.into()),
            Door::Unix(listener) => Listener::Unix(listener.into()),
        })
    }

    /// A turn: who is new, what has come, one slice of work, what can be sent, who is over.
    pub fn turn(&mut self, state: State<'_>, now: Timestamp) {
        if let State::Serving(executor) = state
            && now >= self.history.next_at()
        {
            let sample = History::sample(&self.figures(executor, now));
            self.history.push(sample);
        }
        self.accept(now);
        for visitor in self.visitors.iter_mut().flatten() {
            visitor.read(now);
            visitor.write(now);
        }
        self.busy = self.work(state, now);
        for place in &mut self.visitors {
            if place.as_ref().is_some_and(|visitor| visitor.is_over(now)) {
                *place = None;
            }
        }
    }

    /// A slice of work for the first in turn who has any; tells whether anybody had.
    fn work(&mut self, state: State<'_>, now: Timestamp) -> bool {
        for step in 0..CONNECTIONS {
            let place = (self.next + step) % CONNECTIONS;
            let Some(mut visitor) = self.visitors[place].take() else { continue };
            let worked = match state {
                State::Starting(reason) => visitor.connection.turn(Phase::Starting(reason)),
                State::Serving(executor) => {
                    visitor.connection.turn(Phase::Serving(&self.figures(executor, now)))
                }
            };
            if worked {
                visitor.write(now);
            }
            self.visitors[place] = Some(visitor);
            if worked {
                self.next = place + 1;
                return true;
            }
        }
        false
    }

    fn figures<'a>(&'a self, executor: &'a Executor, now: Timestamp) -> Figures<'a> {
        Figures { executor, history: &self.history, max_tubes: self.max_tubes, now }
    }

    /// Lets in no more than there are places; the others wait for the next turn.
    fn accept(&mut self, now: Timestamp) {
        for _ in 0..CONNECTIONS {
            if self.knocked_at.is_none_or(|at| now < at) {
                return;
            }
            let accepted: io::Result<Box<dyn Socket>> = match &self.listener {
                Door::Tcp(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
                Door::Unix(listener) => listener.accept().map(|(stream, _)| Box::new(stream) as _),
            };
            match accepted {
                Ok(socket) => self.admit(socket, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.knocked_at = None,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.knocked_at = Some(now + ACCEPT_PAUSE_NS);
                    self.warnings.line(now, |withheld| {
                        warn!("no metrics for a connection, nor for {withheld} since the last such line: {error}");
                    });
                }
            }
        }
    }

    /// Gives the newcomer a place: a free one, or that of whoever has been still for longest.
    fn admit(&mut self, mut socket: Box<dyn Socket>, now: Timestamp) {
        let stillness = |&place: &usize| self.visitors[place].as_ref().map(|visitor| visitor.moved_at);
        let Some(place) = (0..CONNECTIONS).min_by_key(stillness) else { return };
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self.registry.register(&mut *socket, Token(LISTENER - 1 - place), interest) {
            Ok(()) => {
                let connection = Connection::default();
                self.visitors[place] = Some(Visitor {
                    socket,
                    connection,
                    readable: true,
                    writable: true,
                    gone: false,
                    moved_at: now,
                });
            }
            Err(error) => debug!("cannot watch a connection for metrics: {error}"),
        }
    }
}

impl Visitor {
    fn read(&mut self, now: Timestamp) {
        let mut buffer = [0; READ_BYTES];
        while self.readable && !self.gone {
            let room = self.connection.room().min(READ_BYTES);
            if room == 0 {
                return;
            }
            match self.socket.read(&mut buffer[..room]) {
                Ok(0) => {
                    // Whoever sends no more may still want its answer.
                    self.readable = false;
                    self.connection.end();
                }
                Ok(read) => {
                    self.connection.feed(&buffer[..read]);
                    self.moved_at = now;
                }
                Err(error) => self.note_error(&error),
            }
        }
    }

    fn write(&mut self, now: Timestamp) {
        while self.writable && !self.gone && !self.connection.output().is_empty() {
            match self.socket.write(self.connection.output()) {
                Ok(written) => {
                    self.connection.advance(written);
                    self.moved_at = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) => self.note_error(&error),
            }
        }
    }

    fn note_error(&mut self, error: &io::Error) {
        match error.kind() {
            ErrorKind::WouldBlock => self.readable = false,
            ErrorKind::Interrupted => {}
            _ => self.gone = true,
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.gone || self.connection.is_finished() || now >= self.moved_at + IDLE_NS
    }
}

/// The figures of a turn.
struct Figures<'a> {
    executor: &'a Executor,
    history: &'a History,
    max_tubes: usize,
    now: Timestamp,
}

impl Sources for Figures<'_> {
    fn queue(&self) -> &Queue {
        &self.executor.queue
    }

    fn each_value(&self, each: &mut dyn FnMut(&'static str, Value)) {
        stats::each_server_value(self.executor, self.now, each);
    }

    fn timings(&self) -> &Timings {
        &self.executor.timings
    }

    fn history(&self) -> &History {
        self.history
    }

    fn process(&self) -> ProcessFigures {
        let usage = os::process::usage(self.executor.queue.client_count());
        let cpu = (self.executor.identity.cpu_time)();
        ProcessFigures {
            cpu: cpu.user + cpu.system,
            resident_bytes: usage.resident_bytes,
            virtual_bytes: usage.virtual_bytes,
            open_files: usage.open_files,
            max_files: usage.max_files,
        }
    }

    fn started_at(&self) -> Timestamp {
        self.executor.identity.started_at
    }

    fn is_draining(&self) -> bool {
        self.executor.draining
    }

    fn max_tubes(&self) -> usize {
        self.max_tubes
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use mio::Poll;

    use super::*;

    #[test]
    fn a_crowd_at_the_door_is_let_in_over_several_turns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let door = std::os::unix::net::UnixListener::bind(&path).unwrap();
        door.set_nonblocking(true).unwrap();
        let _crowd: Vec<_> = (0..2 * CONNECTIONS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let poll = Poll::new().unwrap();
        let mut server = MetricsServer::new(Listener::Unix(door), 0, poll.registry()).unwrap();
        for _ in 0..2 {
            server.turn(State::Starting("starting"), Timestamp(1));
            assert_eq!(server.next_event_at(), Some(Timestamp(0)), "there may be more of them");
        }
        server.turn(State::Starting("starting"), Timestamp(1));
        assert_eq!(server.next_event_at(), Some(Timestamp(1) + IDLE_NS), "nobody is left outside");
    }
}
