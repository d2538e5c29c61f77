//! A connection of HTTP: its socket, and the event for which it waits.
//!
//! Owns: what the poll has reported about the socket, and the time limits. Driven by the site.

use std::io::ErrorKind;

use log::{Level, log, warn};
use mio::event::Event;
use zeroize::Zeroize;

use crate::clock::{NS_PER_S, Timestamp};
use crate::http::HttpExchange;
use crate::orders::TaskId;
use crate::peer::ClientSource;
use crate::poll_token::PollToken;
use crate::rate_limited_log::RateLimitedLog;
use crate::stream::{Socket, Stream};
use crate::tls::{ClientCertificate, HANDSHAKE_TIMEOUT, MAX_RECORDS};

/// How long a connection may make no progress. A scraper that keeps its connection sends requests more often.
const IDLE_NS: u64 = 120 * NS_PER_S;

/// How long a TLS handshake may take.
const HANDSHAKE_NS: u64 = HANDSHAKE_TIMEOUT.as_nanos() as u64;

/// The time limit for the head of a request. A client that sends it byte by byte makes no progress with that.
pub(super) const HEAD_TIMEOUT_NS: u64 = 10 * NS_PER_S;

/// The maximum number of bytes in one read.
const MAX_READ_BYTES: usize = 4096;

/// A connection with its socket.
pub(super) struct HttpConnection {
    pub(super) socket: Socket,
    pub(super) source: ClientSource,
    pub(super) token: PollToken,
    pub(super) exchange: HttpExchange,
    pub(super) socket_state: SocketState,
    pub(super) last_progress_at: Timestamp,
    pub(super) stage: HttpStage,
}

/// The stage of a connection: the event for which it waits, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HttpStage {
    /// A request that is incomplete, or the first request of a client.
    Head(Timestamp),
    /// The next request of a client that has been answered; this is when it last made progress.
    Idle(Timestamp),
    /// The answer to the request.
    Answer(Timestamp),
}

/// The state of the socket, as the poll and the last calls have reported it.
pub(super) enum SocketState {
    Open {
        /// A read may return data.
        readable: bool,
        /// A write may succeed.
        writable: bool,
    },
    /// The client has closed the connection, or the connection has failed.
    Gone,
}

impl HttpConnection {
    pub(super) fn log_command(&self, level: Level, TaskId(task): TaskId, command: &str) {
        let certificate = self.socket.peer_certificate().map(ClientCertificate::of);
        let (peer, certificate) = (self.socket.peer(), certificate.unwrap_or_default().serial);
        let shown =
            if certificate.is_empty() { String::new() } else { format!(", certificate {certificate}") };
        log!(
            level, peer = &*peer, certificate = &*certificate, task = task, command = command;
            "administration from {peer}{shown}: task {task}: {command}"
        );
    }

    pub(super) fn log_denial(&mut self, log: &mut RateLimitedLog, now: Timestamp) {
        let Some(denied) = self.exchange.take_denial() else { return };
        let (peer, reason) = (self.socket.peer(), denied.reason());
        log.line(now, |withheld| {
            warn!(
                peer = &*peer, withheld = withheld;
                "refused a request of the API from {peer}: {reason}; {withheld} others since the last such line"
            );
        });
    }

    pub(super) fn notice(&mut self, event: &Event) {
        if event.is_error() || event.is_write_closed() {
            self.socket_state = SocketState::Gone;
        } else if let SocketState::Open { readable, writable } = &mut self.socket_state {
            // A read also sends the data of TLS itself.
            let sends = event.is_writable() && self.socket.wants_write();
            *readable |= event.is_readable() || event.is_read_closed() || sends;
            *writable |= event.is_writable();
        }
    }

    /// Reads while there is room. Returns whether it stopped earlier, because the share of a turn is used up.
    pub(super) fn read(&mut self, now: Timestamp) -> bool {
        let mut buffer = [0; MAX_READ_BYTES];
        let mut records = 0;
        while let SocketState::Open { readable: readable @ true, .. } = &mut self.socket_state {
            let room = self.exchange.room().min(MAX_READ_BYTES);
            if room == 0 {
                return false;
            }
            match self.socket.read(&mut buffer[..room]) {
                Ok(0) => {
                    // A client that has closed its side may still expect its answer.
                    *readable = false;
                    self.exchange.end();
                }
                Ok(read) => {
                    self.exchange.feed(&buffer[..read]);
                    buffer[..read].zeroize();
                    self.last_progress_at = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => *readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.socket_state = SocketState::Gone,
            }
            if let Some(decryption) = self.socket.decryption() {
                records += decryption.records;
                if decryption.may_have_more || records >= MAX_RECORDS as u64 {
                    return true;
                }
            }
        }
        false
    }

    pub(super) fn write(&mut self, now: Timestamp) {
        while let SocketState::Open { writable: writable @ true, .. } = &mut self.socket_state
            && !self.exchange.output().is_empty()
        {
            match self.socket.write(self.exchange.output()) {
                Ok(0) => self.socket_state = SocketState::Gone,
                Ok(written) => {
                    self.exchange.advance(written);
                    self.last_progress_at = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    *writable = false;
                    self.socket.await_writable(self.token, true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.socket_state = SocketState::Gone,
            }
        }
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        matches!(self.socket_state, SocketState::Gone)
            || self.exchange.is_finished()
            || now >= self.is_over_at()
    }

    /// Notes the event for which the connection waits.
    pub(super) fn note_stage(&mut self, now: Timestamp) {
        self.stage = match self.stage {
            HttpStage::Answer(since) if self.exchange.is_answering() => HttpStage::Answer(since),
            _ if self.exchange.is_answering() => HttpStage::Answer(now),
            HttpStage::Head(since) => HttpStage::Head(since),
            _ if self.exchange.is_idle() => HttpStage::Idle(self.last_progress_at),
            HttpStage::Idle(_) | HttpStage::Answer(_) => HttpStage::Head(now),
        };
    }

    /// When the connection exceeds its time limit. Steps of a handshake and parts of a head are not progress.
    pub(super) fn is_over_at(&self) -> Timestamp {
        match self.stage {
            HttpStage::Head(since) if self.socket.is_handshaking() => since + HANDSHAKE_NS,
            HttpStage::Head(since) => since + HEAD_TIMEOUT_NS,
            HttpStage::Idle(_) | HttpStage::Answer(_) => self.last_progress_at + IDLE_NS,
        }
    }
}
