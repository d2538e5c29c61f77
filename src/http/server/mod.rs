//! The connections of a site, over which it serves metrics, health and the page, or the API.
//!
//! Owns: the listener, its few connections, and the samples of the last minutes. HTTP connections are not clients of
//! the queue. The event loop calls `turn` after the work of the protocol; [`crate::http`] describes how little work a
//! turn does.

mod connection;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use log::{Level, debug, warn};
use mio::event::Event;
use mio::{Interest, Registry};

use self::connection::{HttpConnection, HttpStage, SocketState};
use super::exchange::ServerRequest;
use super::{HttpAddress, HttpExchange, LookUpClient, SampleHistory, ServerPhase, Site, Sources};
use crate::clock::{NS_PER_S, Timestamp};
use crate::orders::{Control, Order};
use crate::os;
use crate::os::listen::Listener;
use crate::peer::ClientSource;
use crate::poll_token::PollToken;
use crate::rate_limited_log::RateLimitedLog;
use crate::stats::Connections;
use crate::stream::{Accepted, ListenerSocket, Stream};
use crate::tls::Acceptor;

/// The maximum number of connections of a site: enough for a few scrapers and some people who have the page open.
pub const MAX_CONNECTIONS: usize = 16;

/// How long the server stops accepting after a failure, which is usually a lack of descriptors.
const ACCEPT_PAUSE_NS: u64 = NS_PER_S;

/// How long a connection that is being answered keeps its slot although a new connection needs one: longer than any
/// scrape takes if the scraper reads the response.
const PROTECTED_NS: u64 = 30 * NS_PER_S;

/// The maximum number of connections that keep their slots while they are answered. The other slots are always
/// available to a new connection, so a health check never waits.
const MAX_PROTECTED: usize = MAX_CONNECTIONS - 4;

/// The HTTP side of the server.
pub struct HttpServer {
    listener: SiteListener,
    warnings: RateLimitedLog,
    denials: RateLimitedLog,
    connections: [Option<HttpConnection>; MAX_CONNECTIONS],
    /// The slot of the connection that gets the next slice of work.
    next: usize,
    /// The slot of the connection that may take the next step of its handshake.
    next_handshake: usize,
    /// The data of closed connections that must still be freed, a slice in each turn.
    ended: Vec<HttpExchange>,
    /// Whether the last turn did work, so that there may be more.
    has_more_work: bool,
    registry: Rc<Registry>,
    history: SampleHistory,
    site: Site,
}

/// The listener of the site.
struct SiteListener {
    socket: ListenerSocket,
    /// The host on the command line.
    host: Option<String>,
    /// When to accept the next connection; `None` while none waits.
    accept_at: Option<Timestamp>,
}

/// The server in a turn, with the connections of its clients, before its figures are read.
type ServerInTurn<'a> = ServerPhase<'a, (&'a mut dyn Control, &'a dyn Connections)>;

impl Site {
    /// Distinguishes the poll tokens of the two sites.
    fn number(&self) -> u32 {
        match self {
            Self::Metrics(_) => 0,
            Self::Admin(_) => 1,
        }
    }

    /// Whether responses may be sent now. Figures and health may always be sent.
    fn may_answer(&self, server: &ServerInTurn<'_>) -> bool {
        match (self, server) {
            (Self::Metrics(_), _) | (_, ServerPhase::Starting(_)) => true,
            (Self::Admin(_), ServerPhase::Serving((control, _))) => control.may_answer(),
        }
    }
}

impl HttpServer {
    /// Serves on `listener`, which needs the acceptor if it is for TLS; `host` is its host on the command line.
    ///
    /// # Errors
    /// If the socket cannot be added to the poll, or the acceptor is missing.
    pub fn new(
        listener: Listener,
        tls: Option<&Rc<Acceptor>>,
        host: Option<String>,
        site: Site,
        registry: &Registry,
    ) -> io::Result<Self> {
        let registry = Rc::new(registry.try_clone()?);
        let mut socket = ListenerSocket::new(listener, tls)?;
        let token = PollToken::HttpListener(site.number());
        registry.register(socket.source(), token.into(), Interest::READABLE)?;
        Ok(Self {
            listener: SiteListener { socket, host, accept_at: Some(Timestamp::AT_ONCE) },
            warnings: RateLimitedLog::default(),
            denials: RateLimitedLog::default(),
            connections: [const { None }; MAX_CONNECTIONS],
            next: 0,
            next_handshake: 0,
            ended: Vec::new(),
            has_more_work: false,
            registry,
            history: SampleHistory::default(),
            site,
        })
    }

    /// Whether no connection waits for an answer.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connections.iter().flatten().all(|connection| !matches!(connection.stage, HttpStage::Answer(_)))
    }

    /// The socket that listens.
    #[must_use]
    pub fn listener(&self) -> &ListenerSocket {
        &self.listener.socket
    }

    /// Notes an event. A slot gets another connection only in `turn`, which comes after all events of a poll, so no
    /// event is for an earlier connection in the slot.
    pub fn notice(&mut self, event: &Event) {
        match PollToken::decode(event.token()) {
            Some(PollToken::HttpListener(number)) if number == self.site.number() => {
                self.listener.accept_at = Some(Timestamp::AT_ONCE);
            }
            Some(PollToken::HttpConnection(number)) => {
                let slot = (number as usize).checked_sub(self.first_number());
                if let Some(Some(connection)) = slot.and_then(|slot| self.connections.get_mut(slot)) {
                    connection.notice(event);
                }
            }
            _ => {}
        }
    }

    /// The number of the first connection in poll tokens.
    fn first_number(&self) -> usize {
        self.site.number() as usize * MAX_CONNECTIONS
    }

    /// When the next turn is due if no event comes before it.
    pub fn next_turn_at(&self) -> Timestamp {
        let sample_at = self.history.next_at();
        self.next_event_at().map_or(sample_at, |at| at.min(sample_at))
    }

    /// When a connection or the listener has work.
    pub fn next_event_at(&self) -> Option<Timestamp> {
        if self.has_more_work {
            return Some(Timestamp::AT_ONCE);
        }
        let connections = self.connections.iter().flatten();
        let follow = connections.clone().filter_map(|connection| connection.exchange.follows_until());
        connections.map(HttpConnection::is_over_at).chain(follow).chain(self.listener.accept_at).min()
    }

    /// Closes all connections and returns the listener.
    ///
    /// # Errors
    /// If the socket cannot be removed from the poll.
    pub fn into_listener(mut self) -> io::Result<Listener> {
        self.registry.deregister(self.listener.socket.source())?;
        Ok(self.listener.socket.into())
    }

    /// After a reload, closes the connections of clients whose certificates are no longer accepted.
    pub fn recheck_certificates(&mut self) {
        for slot in &mut self.connections {
            // A client in its handshake is checked when the handshake ends.
            slot.take_if(|connection| {
                !connection.socket.is_handshaking() && !connection.socket.is_certificate_good()
            });
        }
    }

    /// A turn: accepts, reads, does one slice of work, writes, and closes finished connections.
    pub fn turn(&mut self, mut server: ServerInTurn<'_>, now: Timestamp) {
        if let ServerPhase::Serving((control, _)) = &server
            && now >= self.history.next_at()
        {
            self.history.take_sample(&control.server_view(now));
        }
        self.accept(now);
        let handshake = self.take_handshake();
        let mut has_more_input = false;
        for (slot, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            if handshake == Some(slot) || !connection.socket.is_handshaking() {
                has_more_input |= connection.read(now);
                connection.note_stage(now);
            }
            if let ServerPhase::Serving((control, _)) = &server {
                connection.exchange.check_task(control.tasks(), now);
                if connection.exchange.follows_until().is_some() {
                    connection.exchange.check_job(control.server_view(now).queue, now);
                }
            }
            if self.site.may_answer(&server) {
                connection.write(now);
            }
        }
        self.has_more_work = self.work(&mut server, now) || handshake.is_some() || has_more_input;
        self.ended.pop_if(HttpExchange::free_slice);
        for slot in &mut self.connections {
            let Some(connection) = slot else { continue };
            connection.note_stage(now);
            if connection.is_over(now) {
                let ended = slot.take().map(|connection| connection.exchange);
                self.ended.extend(ended.filter(HttpExchange::is_rendering));
                // A client may be waiting for the slot.
                self.listener.accept_at = self.listener.accept_at.map(|_| Timestamp::AT_ONCE);
            }
        }
        self.has_more_work |= !self.ended.is_empty();
    }

    /// The slot of the connection whose handshake continues in this turn. One handshake continues in each turn, because
    /// a step takes up to a millisecond.
    fn take_handshake(&mut self) -> Option<usize> {
        let slots = (0..MAX_CONNECTIONS).map(|step| (self.next_handshake + step) % MAX_CONNECTIONS);
        let slot = { slots }.find(|&slot| {
            self.connections[slot].as_ref().is_some_and(|connection| {
                connection.socket.is_handshaking()
                    && matches!(connection.socket_state, SocketState::Open { readable: true, .. })
            })
        })?;
        self.next_handshake = slot + 1;
        Some(slot)
    }

    /// Does a slice of work for the next connection that has work. Returns whether there was one.
    fn work(&mut self, server: &mut ServerInTurn<'_>, now: Timestamp) -> bool {
        for step in 0..MAX_CONNECTIONS {
            let slot = (self.next + step) % MAX_CONNECTIONS;
            let has_work = |connection: &mut HttpConnection| connection.exchange.has_work();
            let Some(mut connection) = self.connections[slot].take_if(has_work) else { continue };
            let worked = match server {
                ServerPhase::Starting(reason) => connection.exchange.turn(ServerPhase::Starting(reason)),
                ServerPhase::Serving((control, connections)) => {
                    let clients = |id, at| control.client(id, *connections, at);
                    let sources = self.sources(&**control, &clients, now);
                    let worked = connection.exchange.turn(ServerPhase::Serving(&sources));
                    forward_command(&mut connection, &mut **control, now);
                    connection.log_denial(&mut self.denials, now);
                    worked
                }
            };
            if worked && self.site.may_answer(server) {
                connection.write(now);
            }
            self.connections[slot] = Some(connection);
            if worked {
                self.next = slot + 1;
                return true;
            }
        }
        false
    }

    fn sources<'a>(
        &'a self,
        control: &'a dyn Control,
        clients: &'a LookUpClient<'a>,
        now: Timestamp,
    ) -> Sources<'a> {
        Sources {
            site: &self.site,
            tasks: control.tasks(),
            clients,
            server: control.server_view(now),
            usage: os::process::usage,
            history: &self.history,
            address: match self.listener.socket {
                ListenerSocket::Tcp(_) | ListenerSocket::Tls(..) => {
                    HttpAddress::Tcp(self.listener.host.as_deref())
                }
                ListenerSocket::Unix(_) => HttpAddress::Unix,
            },
        }
    }

    /// Accepts at most as many connections as there are slots; the others wait for the next turn.
    fn accept(&mut self, now: Timestamp) {
        for _ in 0..MAX_CONNECTIONS {
            if self.listener.accept_at.is_none_or(|at| now < at) {
                return;
            }
            // In the next turn there is a slot: the connections of this turn have been read from, and no more than
            // `MAX_PROTECTED` are protected.
            let Some(slot) = self.slot_for_new_connection(now) else { return };
            match self.listener.socket.accept() {
                Ok(accepted) => self.add(accepted, slot, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.listener.accept_at = None,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.listener.accept_at = Some(now + ACCEPT_PAUSE_NS);
                    self.warnings.line(now, |withheld| {
                        warn!(
                            "cannot accept an HTTP connection: {error}; {withheld} others since the last such line"
                        );
                    });
                }
            }
        }
    }

    /// A slot for a new connection. If no slot is free, a client with the most connections gives one, so that a client
    /// that connects all the time replaces its own connections, and not those whose requests are about to arrive. This
    /// is the slot of its oldest incomplete request, or else of its connection that has been idle for the longest time.
    /// The first connections that are being answered keep their slots for `PROTECTED_NS`.
    fn slot_for_new_connection(&self, now: Timestamp) -> Option<usize> {
        let stage = |slot: usize| self.connections[slot].as_ref().map(|connection| connection.stage);
        let mut answering: Vec<(Timestamp, usize)> = (0..MAX_CONNECTIONS)
            .filter_map(|slot| match stage(slot) {
                Some(HttpStage::Answer(since)) => Some((since, slot)),
                _ => None,
            })
            .collect();
        answering.sort_unstable();
        let not_protected = answering.get(MAX_PROTECTED..).unwrap_or_default();
        let is_available = |&slot: &usize| match stage(slot) {
            Some(HttpStage::Answer(since)) => {
                not_protected.contains(&(since, slot)) || since + PROTECTED_NS <= now
            }
            Some(HttpStage::Head(_) | HttpStage::Idle(_)) | None => true,
        };
        let connections = || self.connections.iter().flatten();
        let crowd = |source| connections().filter(|connection| connection.source == source).count();
        let rank = |connection: &HttpConnection| (Reverse(crowd(connection.source)), connection.stage);
        let slots = (0..MAX_CONNECTIONS).filter(is_available);
        let slot = slots.min_by_key(|&slot| self.connections[slot].as_ref().map(rank))?;
        // A connection that was accepted in this turn has not been read from yet.
        (stage(slot) != Some(HttpStage::Head(now))).then_some(slot)
    }

    fn add(&mut self, accepted: Accepted, slot: usize, now: Timestamp) {
        let token = PollToken::HttpConnection((self.first_number() + slot) as u32);
        let source = ClientSource::of(accepted.access_peer());
        match accepted.watch(Rc::clone(&self.registry), token) {
            Ok(socket) => {
                let before = self.connections[slot].replace(HttpConnection {
                    socket,
                    source,
                    token,
                    exchange: HttpExchange::default(),
                    socket_state: SocketState::Open { readable: true, writable: true },
                    last_progress_at: now,
                    stage: HttpStage::Head(now),
                });
                let ended = before.map(|connection| connection.exchange);
                self.ended.extend(ended.filter(HttpExchange::is_rendering));
            }
            Err(error) => debug!("cannot watch a connection for HTTP: {error}"),
        }
    }
}

/// Forwards the order of the exchange to the server, if there is one, and logs its origin.
fn forward_command(connection: &mut HttpConnection, control: &mut dyn Control, now: Timestamp) {
    match connection.exchange.take_request() {
        None => {}
        Some(ServerRequest::Order(order)) => {
            let is_short = order.is_short();
            // A put does not change existing jobs.
            let level = if matches!(order, Order::Put(_)) { Level::Debug } else { Level::Info };
            let command = order.in_words();
            match control.order(order, now) {
                None => connection.exchange.refuse_order(),
                Some(id) => {
                    connection.log_command(level, id, &command);
                    if is_short {
                        connection.exchange.await_task(id)
                    } else {
                        connection.exchange.accept(id, control.tasks(), now)
                    }
                }
            }
        }
        Some(ServerRequest::Stop(id)) => {
            control.stop(id);
            connection.log_command(Level::Info, id, "stop");
            connection.exchange.accept(id, control.tasks(), now);
        }
    }
}
