//! The listeners: sockets on which clients connect, and how many are accepted.
//!
//! Owns: the listeners, the bound on connections, and the pause in accepting when descriptors are short. Clients that
//! connect during a pause wait in the system's backlog; the loop does not spin, and the last few descriptors stay free
//! for the files of the binlog. Driven by the loop, once a turn.

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

/// Connections accepted in one turn, so that many new clients do not delay the connected ones.
const ACCEPTS_PER_TURN: usize = 64;

/// How long a pause lasts if no connection ends: descriptors can also become free elsewhere.
const PAUSE_NS: u64 = NS_PER_S;

const SHORT_OF_DESCRIPTORS: &str = "all file descriptors are in use, except the spare ones";

/// The limits on connections.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections above this number are closed at once; `None` for no limit.
    pub max_connections: Option<usize>,
    /// How many descriptors the process may open.
    pub open_files: u64,
    /// How many of these descriptors are kept for the files of the binlog and for HTTP.
    pub spare_files: usize,
}

/// Every socket that listens.
pub(crate) struct Listeners {
    listeners: Vec<PolledListener>,
    max_connections: usize,
    /// Descriptors with at least this number are the spare ones.
    first_spare: RawFd,
    /// From this number of clients on, the next free descriptor is checked before each accept: descriptors were short
    /// once with twice as many clients, and the numbers in use have had gaps since.
    crowded_from: usize,
    pause: Option<AcceptPause>,
    shortages: RateLimitedLog,
    refusals: RateLimitedLog,
}

struct PolledListener {
    socket: ListenerSocket,
    /// A connection may be waiting at the listener.
    has_pending: bool,
    /// The clients that wait may have come before the listener had its options. This happens if a service manager
    /// starts the server for them.
    has_early_clients: bool,
}

/// No client is accepted until one disconnects, or until an instant.
struct AcceptPause {
    until: Timestamp,
    clients: usize,
}

impl Listeners {
    /// Adds `listeners` to the poll. Listeners for TLS need the acceptor.
    ///
    /// # Errors
    /// If the system does not add one of them to its poll, or if the acceptor is missing.
    pub(crate) fn open(
        listeners: Vec<Listener>,
        tls: Option<&Rc<Acceptor>>,
        limits: AcceptLimits,
        registry: &Registry,
    ) -> io::Result<Self> {
        let mut polled = Vec::new();
        for (number, listener) in (0..).zip(listeners) {
            let mut socket = ListenerSocket::new(listener, tls)?;
            registry.register(socket.source(), PollToken::Listener(number).into(), Interest::READABLE)?;
            polled.push(PolledListener { socket, has_pending: true, has_early_clients: true });
        }
        let first_spare = limits.open_files.saturating_sub(limits.spare_files as u64);
        Ok(Self {
            listeners: polled,
            max_connections: limits.max_connections.map_or(MAX_CLIENTS, |max| max.min(MAX_CLIENTS)),
            first_spare: RawFd::try_from(first_spare).unwrap_or(RawFd::MAX),
            crowded_from: usize::MAX,
            pause: None,
            shortages: RateLimitedLog::default(),
            refusals: RateLimitedLog::default(),
        })
    }

    /// How many connections may wait for their identification: a quarter of all.
    pub(crate) fn log_in_limit(&self) -> usize {
        let descriptors = usize::try_from(self.first_spare).unwrap_or(usize::MAX);
        (self.max_connections.min(descriptors) / 4).max(1)
    }

    /// Notes an event of the listener with this number.
    pub(crate) fn notice(&mut self, number: u32) {
        if let Some(listener) = self.listeners.get_mut(number as usize) {
            listener.has_pending = true;
        }
    }

    /// When the listeners need a turn.
    pub(crate) fn next_turn_at(&self) -> Option<Timestamp> {
        let has_pending = self.listeners.iter().any(|listener| listener.has_pending);
        has_pending.then(|| self.pause.as_ref().map_or(Timestamp::AT_ONCE, |pause| pause.until))
    }

    /// Accepts clients that wait, up to the limit for a turn.
    #[inline]
    pub(crate) fn accept(&mut self, server: &mut Server<Socket>, registry: &Rc<Registry>, now: Timestamp) {
        if !self.resume_accepting(server.client_count(), now) {
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
                        if listener.has_early_clients {
                            accepted.set_options();
                        }
                        self.admit(accepted, server, registry, now);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        (listener.has_pending, listener.has_early_clients) = (false, false);
                    }
                    // That client has disconnected, or a packet filter rejects it; the next one may succeed.
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::ConnectionAborted
                                | ErrorKind::Interrupted
                                | ErrorKind::PermissionDenied
                        ) => {}
                    // Out of descriptors or of memory, or an unknown error: it will not pass at once.
                    Err(error) => self.pause(&error.to_string(), server.client_count(), now),
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
        if is_full || !server.make_room_for_client() {
            server.executor_mut().count_refused_connection();
            let reason =
                if is_full { "--max-connections is reached" } else { "memory, or --max-memory, is used up" };
            self.refusals.line(now, |withheld| {
                warn!("refused a connection: {reason}; {withheld} others since the last such line");
            });
            return;
        }
        let number = accepted.number();
        // Finding the address of the other end costs a system call.
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
        // The system gives the lowest free number, so all numbers below this one are in use.
        if number + 1 >= self.first_spare {
            self.pause(SHORT_OF_DESCRIPTORS, server.client_count(), now);
        }
    }

    /// Whether a new descriptor would not be a spare one. If the limit leaves only spare ones, one client is still
    /// accepted.
    fn has_free_descriptor(&self, clients: usize) -> bool {
        if clients == 0 {
            return true;
        }
        let lowest_free = self.listeners.first().map(|listener| listener.socket.as_fd().try_clone_to_owned());
        lowest_free.is_some_and(|free| free.is_ok_and(|free| free.as_raw_fd() < self.first_spare))
    }

    /// Ends the pause, or begins the next one. Returns whether connections are accepted.
    fn resume_accepting(&mut self, clients: usize, now: Timestamp) -> bool {
        let Some(pause) = &self.pause else { return true };
        if now < pause.until && clients >= pause.clients {
            return false;
        }
        let may_accept = self.has_free_descriptor(clients);
        self.pause = (!may_accept).then_some(AcceptPause { until: now + PAUSE_NS, clients });
        may_accept
    }

    fn pause(&mut self, reason: &str, clients: usize, now: Timestamp) {
        self.pause = Some(AcceptPause { until: now + PAUSE_NS, clients });
        self.crowded_from = clients / 2;
        self.shortages.line(now, |withheld| {
            warn!("new connections must wait: {reason}; {withheld} others since the last such line");
        });
    }

    /// The facts that another program needs to take over the listeners.
    pub(crate) fn described(&self) -> Vec<DescribedListener> {
        self.listeners.iter().map(|listener| listener.socket.described(ListenerRole::Clients)).collect()
    }

    /// Closes the listeners: no client is accepted any more.
    pub(crate) fn close(&mut self) {
        self.listeners.clear();
        info!("accepting no more connections");
    }
}
