//! The loop around [`Server`]: the poll, the sockets, the signals, the clock.
//!
//! Owns: everything that touches the system while the server runs. Accepts connections, turns readiness
//! into [`Readiness`], reads the clock once a turn, and decides how long to sleep.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use log::{debug, error, info};
use mio::event::{Event, Source};
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Registry, Token};

use super::metrics_server::{MetricsServer, State};
use super::notifier::Notifier;
use super::{Executor, Readiness, Server, Stream};
use crate::clock::Timestamp;
use crate::os;
use crate::os::listen::Listener;
use crate::os::signals::{Signal, Signals};
use crate::queue::ClientId;

/// Events taken from one poll.
const EVENTS: usize = 1024;

/// Connections accepted in one turn, so that a crowd at the door does not keep those inside waiting.
const ACCEPTS_PER_TURN: usize = 64;

/// How long replies are written out after the signal to stop.
const FAREWELL: Duration = Duration::from_secs(1);

/// The token of the signals; those of the listeners lie below it.
const SIGNALS: Token = Token(usize::MAX);

/// Clock readings as the server counts time: the wall time at the start and the boot time since.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ns: u64,
}

impl Clock {
    /// A clock that starts at the wall time.
    #[must_use]
    pub fn start() -> Self {
        Self { offset_ns: os::clock::wall_time_ns().saturating_sub(os::clock::boot_time_ns()) }
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.offset_ns + os::clock::boot_time_ns())
    }
}

/// The server with its sockets.
pub struct EventLoop {
    poll: Poll,
    registry: Rc<Registry>,
    server: Server<Socket>,
    listeners: Vec<Door>,
    signals: Signals,
    clock: Clock,
    spin: Duration,
    notifier: Option<Notifier>,
    metrics: Option<MetricsServer>,
}

/// A socket that accepts connections.
struct Door {
    socket: DoorSocket,
    /// A connection may be waiting there.
    open: bool,
}

enum DoorSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl EventLoop {
    /// A loop that serves on `listeners`.
    ///
    /// # Errors
    /// Where the system gives no poll, or does not take a socket into it.
    pub fn new(
        executor: Executor,
        listeners: Vec<Listener>,
        mut signals: Signals,
        clock: Clock,
        spin: Duration,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = Rc::new(poll.registry().try_clone()?);
        registry.register(&mut signals, SIGNALS, Interest::READABLE)?;
        let mut doors = Vec::new();
        for (index, listener) in listeners.into_iter().enumerate() {
            let mut socket = match listener {
                Listener::Tcp(listener) => DoorSocket::Tcp(TcpListener::from_std(listener)),
                Listener::Unix(listener) => DoorSocket::Unix(UnixListener::from_std(listener)),
            };
            registry.register(socket.source(), door_token(index), Interest::READABLE)?;
            doors.push(Door { socket, open: true });
        }
        Ok(Self {
            poll,
            registry,
            server: Server::new(executor),
            listeners: doors,
            signals,
            clock,
            spin,
            notifier: Notifier::from_environment(),
            metrics: None,
        })
    }

    /// Serves metrics on `listener`, too; at most `max_tubes` tubes have series of their own.
    ///
    /// # Errors
    /// Where the system does not take the socket into its poll.
    pub fn serve_metrics(&mut self, listener: Listener, max_tubes: usize) -> io::Result<()> {
        self.metrics = Some(MetricsServer::new(listener, max_tubes, &self.registry)?);
        Ok(())
    }

    /// Serves until a signal says to stop; then writes out for a moment what is owed.
    ///
    /// # Errors
    /// Where the poll itself fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        if let Some(notifier) = &mut self.notifier {
            notifier.ready(self.server.executor(), self.clock.now());
        }
        while !self.turn(&mut events)? {}
        info!("stopping");
        if let Some(notifier) = &mut self.notifier {
            notifier.stopping(self.clock.now());
        }
        self.listeners.clear();
        // Who asks now whether the server is ready finds nobody.
        self.metrics = None;
        let farewell = self.clock.now() + FAREWELL.as_nanos() as u64;
        while self.server.owes_replies() && self.clock.now() < farewell {
            let left = farewell.since_ns(self.clock.now());
            self.wait(&mut events, Some(Duration::from_nanos(left)))?;
            let now = self.clock.now();
            let writable = |event: &Event| {
                Some((client_of(event.token())?, Readiness { readable: false, ..readiness(event) }))
            };
            self.server.turn(events.iter().filter_map(writable), now);
        }
        Ok(())
    }

    /// One turn; tells whether it is time to stop.
    fn turn(&mut self, events: &mut Events) -> io::Result<bool> {
        self.poll_for_events(events)?;
        let now = self.clock.now();
        let mut stop = false;
        for event in events.iter() {
            if event.token() == SIGNALS {
                stop |= self.obey_signals();
            } else if let Some(index) = door_of(event.token(), self.listeners.len()) {
                self.listeners[index].open = true;
            } else if let Some(metrics) = &mut self.metrics {
                metrics.notice(event);
            }
        }
        let clients = events.iter().filter_map(|event| Some((client_of(event.token())?, readiness(event))));
        self.server.turn(clients, now);
        if self.metrics.is_some() {
            let spent_ns = self.clock.now().since_ns(now);
            self.server.executor_mut().observe_turn(spent_ns);
        }
        self.accept(now);
        if let Some(metrics) = &mut self.metrics {
            metrics.turn(State::Serving(self.server.executor()), now);
        }
        if let Some(notifier) = &mut self.notifier {
            notifier.turn(self.server.executor(), now);
        }
        Ok(stop)
    }

    /// Sleeps until something happens, or until the next turn is due.
    fn poll_for_events(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = if self.listeners.iter().any(|door| door.open) {
            Some(Duration::ZERO)
        } else {
            self.next_turn_at().map(|at| Duration::from_nanos(at.since_ns(self.clock.now())))
        };
        if !self.spin.is_zero() && timeout.is_none_or(|timeout| !timeout.is_zero()) {
            let start = self.clock.now();
            loop {
                self.wait(events, Some(Duration::ZERO))?;
                let spun = Duration::from_nanos(self.clock.now().since_ns(start));
                if !events.is_empty() || timeout.is_some_and(|timeout| spun >= timeout) {
                    return Ok(());
                }
                if spun >= self.spin {
                    break;
                }
            }
        }
        self.wait(events, timeout)
    }

    /// When something is to be done although no event comes.
    fn next_turn_at(&self) -> Option<Timestamp> {
        let notifier = self.notifier.as_ref().map(Notifier::next_at);
        let metrics = self.metrics.as_ref().map(MetricsServer::next_turn_at);
        [self.server.next_turn_at(), notifier, metrics].into_iter().flatten().min()
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            result => result,
        }
    }

    fn obey_signals(&mut self) -> bool {
        let mut stop = false;
        for signal in self.signals.pending() {
            match signal {
                Signal::Drain => self.server.executor_mut().set_draining(true),
                Signal::Undrain => self.server.executor_mut().set_draining(false),
                Signal::Stop => stop = true,
            }
        }
        stop
    }

    fn accept(&mut self, now: Timestamp) {
        for door in &mut self.listeners {
            if !door.open {
                continue;
            }
            for _ in 0..ACCEPTS_PER_TURN {
                let socket = match door.socket.accept() {
                    Ok(socket) => socket,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        door.open = false;
                        break;
                    }
                    Err(error) => {
                        error!("accept: {error}");
                        break;
                    }
                };
                let registry = Rc::clone(&self.registry);
                let opened = self.server.accept(
                    |id| {
                        let mut socket = Socket { kind: socket, registry, token: client_token(id) };
                        socket.register()?;
                        Ok::<_, io::Error>(socket)
                    },
                    now,
                );
                match opened {
                    Ok(id) => debug!("accept {}", id.index),
                    Err(error) => error!("cannot watch a connection: {error}"),
                }
            }
        }
    }
}

impl DoorSocket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener) => listener,
        }
    }

    fn accept(&self) -> io::Result<Kind> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Kind::Tcp(stream)),
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Kind::Unix(stream)),
        }
    }
}

/// A connection's socket.
struct Socket {
    kind: Kind,
    registry: Rc<Registry>,
    token: Token,
}

enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn register(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::Tcp(stream) => self.registry.register(stream, self.token, Interest::READABLE),
            Kind::Unix(stream) => self.registry.register(stream, self.token, Interest::READABLE),
        }
    }
}

impl Stream for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Tcp(stream) => stream.read(buffer),
            Kind::Unix(stream) => stream.read(buffer),
        }
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        match &self.kind {
            Kind::Tcp(stream) => os::socket::read_into_spare(stream, body, max_bytes),
            Kind::Unix(stream) => os::socket::read_into_spare(stream, body, max_bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Tcp(stream) => stream.write(bytes),
            Kind::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Tcp(stream) => stream.write_vectored(slices),
            Kind::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn await_writable(&mut self, awaited: bool) {
        let interest = if awaited { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let result = match &mut self.kind {
            Kind::Tcp(stream) => self.registry.reregister(stream, self.token, interest),
            Kind::Unix(stream) => self.registry.reregister(stream, self.token, interest),
        };
        if let Err(error) = result {
            error!("cannot watch a connection: {error}");
        }
    }
}

fn readiness(event: &Event) -> Readiness {
    Readiness {
        readable: event.is_readable(),
        writable: event.is_writable(),
        read_closed: event.is_read_closed(),
        failed: event.is_error() || event.is_write_closed(),
    }
}

/// A client's token holds its whole identity, so that an event for one that is gone finds nobody.
fn client_token(id: ClientId) -> Token {
    Token((id.generation as usize) << 32 | id.index as usize)
}

/// Listeners take the indexes from the top, where no client's index comes near.
const FIRST_DOOR: u32 = u32::MAX;

fn door_token(index: usize) -> Token {
    Token((FIRST_DOOR - 1) as usize - index)
}

fn door_of(token: Token, doors: usize) -> Option<usize> {
    (FIRST_DOOR as usize - 1).checked_sub(token.0).filter(|&index| index < doors)
}

fn client_of(token: Token) -> Option<ClientId> {
    let index = token.0 as u32;
    let is_client = index < FIRST_DOOR - 1 - u32::from(u16::MAX);
    is_client.then_some(ClientId { index, generation: (token.0 >> 32) as u32 })
}
