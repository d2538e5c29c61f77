//! The listeners: sockets on which clients connect, and how many are accepted.
//!
//! Owns: the listeners, the bound on connections, and the pause in accepting while descriptors are
//! short. Clients that connect during a pause wait in the system's backlog; nobody spins, and the last few
//! descriptors stay free for the files of the binlog. Driven by the loop, once a turn.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;

use log::{debug, info, warn};
use mio::{Interest, Registry};

use crate::clock::{NS_PER_S, Timestamp};
use crate::os::listen::Listener;
use crate::poll_token::{MAX_CLIENTS, PollToken};
use crate::rate_limited_log::RateLimitedLog;
use crate::server::Server;
use crate::server::hand_over::{DescribedListener, ListenerRole};
use crate::stream::{Accepted, ListenerSocket, Socket};
use crate::tls::Acceptor;

/// Connections accepted in one turn, so that a crowd that connects does not keep the connected clients waiting.
const ACCEPTS_PER_TURN: usize = 64;

/// How long a pause lasts where no connection ends: descriptors can also become free elsewhere.
const PAUSE_NS: u64 = NS_PER_S;

const SHORT_OF_DESCRIPTORS: &str = "all descriptors but the spare ones are in use";

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections beyond this many are closed at once; `None` where there is no such bound.
    pub max_connections: Option<usize>,
    /// How many descriptors the process may open.
    pub open_files: u64,
    /// How many of these no client gets: what the files of the binlog need.
    pub spare_files: usize,
}

/// Every socket that listens.
pub struct Listeners {
    listeners: Vec<PolledListener>,
    max_connections: usize,
    /// Descriptors with this number and above are the spare ones.
    first_spare: RawFd,
    /// From this many clients on the next free number is looked at before each accept: descriptors were
    /// short once with twice as many, and the numbers in use have gaps since.
    crowded_from: usize,
    pause: Option<Pause>,
    shortages: RateLimitedLog,
    refusals: RateLimitedLog,
}

struct PolledListener {
    socket: ListenerSocket,
    /// A connection may be waiting there.
    has_pending: bool,
    /// The clients that wait may have come before the listener had its options, as they do where a service manager
    /// starts the server for them.
    early: bool,
}

/// Nobody is accepted until a client leaves, or until an instant.
struct Pause {
    until: Timestamp,
    clients: usize,
}

impl Listeners {
    /// Has the poll watch `listeners`. Those for TLS need the acceptor.
    ///
    /// # Errors
    /// Where the system does not take one of them into its poll, or the acceptor is missing.
    pub fn open(
        listeners: Vec<Listener>,
        tls: Option<&Rc<Acceptor>>,
        limits: AcceptLimits,
        registry: &Registry,
    ) -> io::Result<Self> {
        let mut polled = Vec::new();
        for (number, listener) in (0..).zip(listeners) {
            let mut socket = ListenerSocket::new(listener, tls)?;
            registry.register(socket.source(), PollToken::Listener(number).into(), Interest::READABLE)?;
            polled.push(PolledListener { socket, has_pending: true, early: true });
        }
        let first_spare = limits.open_files.saturating_sub(limits.spare_files as u64);
        Ok(Self {
            listeners: polled,
            max_connections: limits.max_connections.map_or(MAX_CLIENTS, |most| most.min(MAX_CLIENTS)),
            first_spare: RawFd::try_from(first_spare).unwrap_or(RawFd::MAX),
            crowded_from: usize::MAX,
            pause: None,
            shortages: RateLimitedLog::default(),
            refusals: RateLimitedLog::default(),
        })
    }

    /// How many connections there may be of which it is not known yet whose they are: a quarter of all.
    pub fn log_in_limit(&self) -> usize {
        let descriptors = usize::try_from(self.first_spare).unwrap_or(usize::MAX);
        (self.max_connections.min(descriptors) / 4).max(1)
    }

    /// Notes an event of the listener with this number.
    pub fn notice(&mut self, number: u32) {
        if let Some(listener) = self.listeners.get_mut(number as usize) {
            listener.has_pending = true;
        }
    }

    /// When there is to be a turn for the listeners' sake.
    pub fn next_turn_at(&self) -> Option<Timestamp> {
        let has_pending = self.listeners.iter().any(|listener| listener.has_pending);
        has_pending.then(|| self.pause.as_ref().map_or(Timestamp::default(), |pause| pause.until))
    }

    /// Accepts the clients that wait: a turn's share of them.
    pub fn accept(&mut self, server: &mut Server<Socket>, registry: &Rc<Registry>, now: Timestamp) {
        if !self.may_accept(server.client_count(), now) {
            return;
        }
        for index in 0..self.listeners.len() {
            for _ in 0..ACCEPTS_PER_TURN {
                if !self.listeners[index].has_pending || self.pause.is_some() {
                    break;
                }
                if server.client_count() >= self.crowded_from
                    && !self.has_free_descriptor(server.client_count())
                {
                    self.pause(SHORT_OF_DESCRIPTORS, server.client_count(), now);
                    break;
                }
                let listener = &mut self.listeners[index];
                match listener.socket.accept() {
                    Ok(accepted) => {
                        if listener.early {
                            accepted.set_options();
                        }
                        self.admit(accepted, server, registry, now);
                    }
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock => {
                            (listener.has_pending, listener.early) = (false, false);
                        }
                        // That client has gone, or is kept out by a packet filter; the next one may not be.
                        ErrorKind::ConnectionAborted
                        | ErrorKind::Interrupted
                        | ErrorKind::PermissionDenied => {}
                        // Out of descriptors or of memory, or something unknown: it will not pass at once.
                        _ => self.pause(&error.to_string(), server.client_count(), now),
                    },
                }
            }
        }
    }

    fn admit(
        &mut self,
        accepted: Accepted,
        server: &mut Server<Socket>,
        registry: &Rc<Registry>,
        now: Timestamp,
    ) {
        let is_full = server.client_count() >= self.max_connections;
        if is_full || !server.reserve_client() {
            server.executor_mut().count_refused_connection();
            let reason =
                if is_full { "--max-connections" } else { "no memory is left, or that of --max-memory" };
            self.refusals.line(now, |withheld| {
                warn!("refused a connection, and {withheld} since the last such line: {reason}");
            });
            return;
        }
        let number = accepted.number();
        // Naming the other end costs a system call.
        let peer = log::log_enabled!(log::Level::Debug).then(|| accepted.peer());
        let access_peer = server.executor().is_guarded().then(|| accepted.access_peer());
        match server.accept(|id| accepted.watch(Rc::clone(registry), PollToken::Client(id)), now) {
            Ok(id) => {
                debug!("accept {} from {}", id.index, peer.unwrap_or_default());
                if let Some(peer) = access_peer {
                    server.identify(id, peer, now);
                }
            }
            Err(error) => self.pause(&error.to_string(), server.client_count(), now),
        }
        // The lowest free number is given, so that all below this one are in use.
        if number + 1 >= self.first_spare {
            self.pause(SHORT_OF_DESCRIPTORS, server.client_count(), now);
        }
    }

    /// Whether a new descriptor would not be a spare one. Where the limit leaves no others, one client is
    /// accepted all the same.
    fn has_free_descriptor(&self, clients: usize) -> bool {
        if clients == 0 {
            return true;
        }
        let lowest_free = self.listeners.first().map(|listener| listener.socket.as_fd().try_clone_to_owned());
        lowest_free.is_some_and(|free| free.is_ok_and(|free| free.as_raw_fd() < self.first_spare))
    }

    /// Whether accepting goes on, or can be resumed.
    fn may_accept(&mut self, clients: usize, now: Timestamp) -> bool {
        let Some(pause) = &self.pause else { return true };
        if now < pause.until && clients >= pause.clients {
            return false;
        }
        let may_accept = self.has_free_descriptor(clients);
        self.pause = (!may_accept).then_some(Pause { until: now + PAUSE_NS, clients });
        may_accept
    }

    fn pause(&mut self, reason: &str, clients: usize, now: Timestamp) {
        self.pause = Some(Pause { until: now + PAUSE_NS, clients });
        self.crowded_from = clients / 2;
        self.shortages.line(now, |withheld| {
            warn!("new connections have to wait ({withheld} times since the last such line): {reason}");
        });
    }

    /// What another program needs to go on with them.
    pub fn described(&self) -> Vec<DescribedListener> {
        self.listeners.iter().map(|listener| listener.socket.described(ListenerRole::Clients)).collect()
    }

    /// Closes the listeners: nobody is accepted any more.
    pub fn close(&mut self) {
        self.listeners.clear();
        info!("no connections are accepted any more");
    }
}
