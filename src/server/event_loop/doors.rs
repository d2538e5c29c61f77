//! The doors: sockets that listen, and who is let in.
//!
//! Owns: the listeners, the bound on connections, and the pause in accepting while descriptors are
//! short. Those who find the doors shut wait in the system's backlog; nobody spins, and the last few
//! descriptors stay free for the files of the binlog. Driven by the loop, once a turn.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;

use log::{debug, info, warn};
use mio::event::Source;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};

use super::client_token;
use super::socket::{Accepted, Socket};
use crate::clock::{NS_PER_S, Timestamp};
use crate::os::listen::Listener;
use crate::server::Server;
use crate::server::rare_log::RareLog;

/// Connections accepted in one turn, so that a crowd at the door does not keep those inside waiting.
const ACCEPTS_PER_TURN: usize = 64;

/// How long a pause lasts where no connection ends: descriptors can also become free elsewhere.
const PAUSE_NS: u64 = NS_PER_S;

const SHORT_OF_DESCRIPTORS: &str = "all descriptors but the spare ones are in use";

/// Listeners take their tokens from the top of the indexes, where no client's index comes near.
const FIRST_TOKEN: usize = u32::MAX as usize - 1;

/// The most listeners that there are tokens for.
pub const MAX_DOORS: usize = u16::MAX as usize;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct DoorLimits {
    /// Connections beyond this many are closed at once; `None` where there is no such bound.
    pub max_connections: Option<usize>,
    /// How many descriptors the process may open.
    pub open_files: u64,
    /// How many of these no client gets: what the files of the binlog need.
    pub spare_files: usize,
}

/// Every socket that listens.
pub struct Doors {
    doors: Vec<Door>,
    max_connections: usize,
    /// Descriptors with this number and above are the spare ones.
    first_spare: RawFd,
    /// From this many clients on the next free number is looked at before each accept: descriptors were
    /// short once with twice as many, and the numbers in use have gaps since.
    crowded_from: usize,
    pause: Option<Pause>,
    shortages: RareLog,
    refusals: RareLog,
}

struct Door {
    socket: DoorSocket,
    /// A connection may be waiting there.
    knocked: bool,
    /// Those who wait may have come before the listener had its options, as they do where a service manager
    /// starts the server for them.
    early: bool,
}

enum DoorSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Nobody is accepted until a client leaves, or until an instant.
struct Pause {
    until: Timestamp,
    clients: usize,
}

impl Doors {
    /// Has the poll watch `listeners`.
    ///
    /// # Errors
    /// Where the system does not take one of them into its poll, or there are more than `MAX_DOORS`.
    pub fn open(listeners: Vec<Listener>, limits: DoorLimits, registry: &Registry) -> io::Result<Self> {
        if listeners.len() > MAX_DOORS {
            return Err(io::Error::new(ErrorKind::InvalidInput, "too many listening sockets"));
        }
        let mut doors = Vec::new();
        for (index, listener) in listeners.into_iter().enumerate() {
            let mut socket = match listener {
                Listener::Tcp(listener) => DoorSocket::Tcp(TcpListener::from_std(listener)),
                Listener::Unix(listener) => DoorSocket::Unix(UnixListener::from_std(listener)),
            };
            registry.register(socket.source(), Token(FIRST_TOKEN - index), Interest::READABLE)?;
            doors.push(Door { socket, knocked: true, early: true });
        }
        let first_spare = limits.open_files.saturating_sub(limits.spare_files as u64);
        Ok(Self {
            doors,
            max_connections: limits.max_connections.unwrap_or(usize::MAX),
            first_spare: RawFd::try_from(first_spare).unwrap_or(RawFd::MAX),
            crowded_from: usize::MAX,
            pause: None,
            shortages: RareLog::default(),
            refusals: RareLog::default(),
        })
    }

    /// Notes an event; tells whether it was for a door.
    pub fn notice(&mut self, token: Token) -> bool {
        let index = FIRST_TOKEN.checked_sub(token.0);
        let Some(door) = index.and_then(|index| self.doors.get_mut(index)) else { return false };
        door.knocked = true;
        true
    }

    /// When there is to be a turn for the doors' sake.
    pub fn next_turn_at(&self) -> Option<Timestamp> {
        let knocked = self.doors.iter().any(|door| door.knocked);
        knocked.then(|| self.pause.as_ref().map_or(Timestamp::default(), |pause| pause.until))
    }

    /// Lets those in who wait at the doors: a turn's share of them.
    pub fn accept(&mut self, server: &mut Server<Socket>, registry: &Rc<Registry>, now: Timestamp) {
        if !self.may_accept(server.client_count(), now) {
            return;
        }
        for index in 0..self.doors.len() {
            for _ in 0..ACCEPTS_PER_TURN {
                if !self.doors[index].knocked || self.pause.is_some() {
                    break;
                }
                if server.client_count() >= self.crowded_from
                    && !self.has_free_descriptor(server.client_count())
                {
                    self.shut(SHORT_OF_DESCRIPTORS, server.client_count(), now);
                    break;
                }
                let door = &mut self.doors[index];
                match door.socket.accept() {
                    Ok(accepted) => {
                        if door.early {
                            accepted.set_options();
                        }
                        self.admit(accepted, server, registry, now);
                    }
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock => (door.knocked, door.early) = (false, false),
                        // That client has gone, or is kept out by a packet filter; the next one may not be.
                        ErrorKind::ConnectionAborted
                        | ErrorKind::Interrupted
                        | ErrorKind::PermissionDenied => {}
                        // Out of descriptors or of memory, or something unknown: it will not pass at once.
                        _ => self.shut(&error.to_string(), server.client_count(), now),
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
        if server.client_count() >= self.max_connections {
            server.executor_mut().count_refused_connection();
            self.refusals.line(now, |withheld| {
                warn!("refused a connection, and {withheld} since the last such line: --max-connections");
            });
            return;
        }
        let number = accepted.number();
        // Naming the other end costs a system call.
        let peer = log::log_enabled!(log::Level::Debug).then(|| accepted.peer());
        match server.accept(|id| accepted.watch(Rc::clone(registry), client_token(id)), now) {
            Ok(id) => debug!("accept {} from {}", id.index, peer.unwrap_or_default()),
            Err(error) => self.shut(&error.to_string(), server.client_count(), now),
        }
        // The lowest free number is given, so that all below this one are in use.
        if number + 1 >= self.first_spare {
            self.shut(SHORT_OF_DESCRIPTORS, server.client_count(), now);
        }
    }

    /// Whether a new descriptor would not be a spare one. Where the limit leaves no others, one client is
    /// let in all the same.
    fn has_free_descriptor(&self, clients: usize) -> bool {
        if clients == 0 {
            return true;
        }
        let lowest_free = self.doors.first().map(|door| door.socket.as_fd().try_clone_to_owned());
        lowest_free.is_some_and(|free| free.is_ok_and(|free| free.as_raw_fd() < self.first_spare))
    }

    /// Whether the doors are open, or can be opened again.
    fn may_accept(&mut self, clients: usize, now: Timestamp) -> bool {
        let Some(pause) = &self.pause else { return true };
        if now < pause.until && clients >= pause.clients {
            return false;
        }
        let may_accept = self.has_free_descriptor(clients);
        self.pause = (!may_accept).then_some(Pause { until: now + PAUSE_NS, clients });
        may_accept
    }

    fn shut(&mut self, reason: &str, clients: usize, now: Timestamp) {
        self.pause = Some(Pause { until: now + PAUSE_NS, clients });
        self.crowded_from = clients / 2;
        self.shortages.line(now, |withheld| {
            warn!("new connections have to wait (so {withheld} times since the last such line): {reason}");
        });
    }

    /// Closes the listeners: nobody is let in any more.
    pub fn close(&mut self) {
        self.doors.clear();
        info!("no connections are accepted any more");
    }
}

/// Whether a token with this index may be a client's.
pub fn is_client_index(index: u32) -> bool {
    (index as usize) < FIRST_TOKEN - MAX_DOORS
}

impl DoorSocket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener) => listener,
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Accepted::Tcp(stream)),
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}
