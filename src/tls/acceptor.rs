//! The state that the connections of all TLS listeners share.
//!
//! Owns: the credentials in force, the buffer for ciphertext, and the counts of connections and handshakes. A reload
//! replaces the credentials in place, because each connection refers to the acceptor. Driven by the listeners and the
//! channels.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use log::warn;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{HandshakeKind, ServerConfig};

use super::{Credentials, HandshakeFailure};
use crate::clock::Timestamp;
use crate::rate_limited_log::RateLimitedLog;

/// The maximum number of bytes of ciphertext in one read.
pub(super) const MAX_READ_BYTES: usize = 32 * 1024;

/// The credentials in force, the buffer into which all TLS connections read, and the counts of handshakes.
pub struct Acceptor {
    credentials: RefCell<Credentials>,
    pub(super) scratch: RefCell<Box<[u8]>>,
    counts: TlsCounts,
    /// The failures since the last report, with the latest of them.
    unreported: RefCell<(u64, String)>,
    log: RefCell<RateLimitedLog>,
}

/// The counts since the start.
#[derive(Default)]
struct TlsCounts {
    open: Cell<u64>,
    full: Cell<u64>,
    resumed: Cell<u64>,
    failed: [Cell<u64>; HandshakeFailure::ALL.len()],
    memory_bytes: Cell<usize>,
}

/// The figures of all TLS listeners, for the metrics.
#[derive(Clone, Copy, Debug)]
pub struct TlsFigures {
    /// Connections, including those in their handshake.
    pub open_connections: u64,
    /// Handshakes that succeeded without an earlier session.
    pub full_handshakes: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed_handshakes: u64,
    /// Handshakes that failed, by reason.
    pub failed_handshakes: [(&'static str, u64); HandshakeFailure::ALL.len()],
    /// When the certificate of the server expires, in seconds since 1970.
    pub expires_at_s: u64,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Acceptor").field("open", &self.counts.open).finish_non_exhaustive()
    }
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

impl Acceptor {
    /// An acceptor with these credentials.
    #[must_use]
    pub fn new(credentials: Credentials) -> Rc<Self> {
        Rc::new(Self {
            credentials: RefCell::new(credentials),
            scratch: RefCell::new(vec![0; MAX_READ_BYTES].into_boxed_slice()),
            counts: TlsCounts::default(),
            unreported: RefCell::default(),
            log: RefCell::default(),
        })
    }

    /// Uses other credentials for new handshakes. Handshakes in progress end with the old ones, and then their clients
    /// are checked with the new ones.
    pub fn replace(&self, credentials: Credentials) {
        *self.credentials.borrow_mut() = credentials;
    }

    /// The credentials in force, for an acceptor on another thread.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        self.credentials.borrow().clone()
    }

    /// The settings of a handshake that begins now.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.credentials.borrow().config)
    }

    /// Whether there was no reload since a handshake with `config` began.
    pub(super) fn is_in_force(&self, config: &Arc<ServerConfig>) -> bool {
        Arc::ptr_eq(&self.credentials.borrow().config, config)
    }

    /// Checks a client's certificates, its own first: whether they are valid, issued by an authority, and not revoked.
    pub(super) fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let Some(verifier) = self.credentials.borrow().verifier.clone() else { return Ok(()) };
        let (certificate, intermediates) =
            chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        verifier.verify_client_cert(certificate, intermediates, UnixTime::now()).map(|_| ())
    }

    pub(super) fn opened(&self) {
        add(&self.counts.open);
    }

    pub(super) fn closed(&self) {
        debug_assert!(self.counts.open.get() > 0, "a connection that closes was counted");
        self.counts.open.set(self.counts.open.get() - 1);
    }

    /// Notes that a connection holds `after` bytes now, and held `before` bytes.
    pub(super) fn count_memory(&self, before: usize, after: usize) {
        debug_assert!(self.counts.memory_bytes.get() >= before, "the memory of a connection was counted");
        self.counts.memory_bytes.set(self.counts.memory_bytes.get() - before + after);
    }

    /// The approximate memory of the encrypted halves of all connections, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.counts.memory_bytes.get()
    }

    pub(super) fn handshake_done(&self, kind: Option<HandshakeKind>) {
        add(if kind == Some(HandshakeKind::Resumed) { &self.counts.resumed } else { &self.counts.full });
    }

    pub(super) fn handshake_failed(&self, failure: HandshakeFailure) {
        add(&self.counts.failed[failure as usize]);
    }

    /// Notes for the log that a connection of `peer` was refused, or ended, because of `reason`.
    pub fn note_failure(&self, peer: &str, reason: &impl fmt::Display) {
        let (count, latest) = &mut *self.unreported.borrow_mut();
        *count += 1;
        *latest = format!("{peer}: {reason}");
    }

    /// Writes the failures to the log, at a limited rate. Must be called once a turn.
    pub fn report(&self, now: Timestamp) {
        let (count, latest) = &mut *self.unreported.borrow_mut();
        if *count > 0 {
            self.log.borrow_mut().line(now, |_| {
                let others = std::mem::take(count) - 1;
                warn!("TLS: closed the connection of {latest}; {others} others since the last such line");
            });
        }
    }

    /// The figures so far.
    #[must_use]
    pub fn figures(&self) -> TlsFigures {
        let TlsCounts { open, full, resumed, failed, .. } = &self.counts;
        TlsFigures {
            open_connections: open.get(),
            full_handshakes: full.get(),
            resumed_handshakes: resumed.get(),
            failed_handshakes: HandshakeFailure::ALL
                .map(|(failure, name)| (name, failed[failure as usize].get())),
            expires_at_s: self.credentials.borrow().expires_at_s(),
        }
    }
}
