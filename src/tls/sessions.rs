//! Sessions that clients can resume.
//!
//! Owns: the life of a ticket, which is no longer than the validity of the certificates that the client has shown. A
//! client with a ticket shows no certificate, so the ticket carries their end; a client that comes later must show a
//! certificate again, which may be a new one. Driven by rustls, within [`SessionEnd::within`].

use std::cell::Cell;
use std::sync::Arc;

use rustls::DigitallySignedStruct;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DistinguishedName, Error, SignatureScheme};

use super::x509;

/// The size of the end before a session, in bytes.
const END_BYTES: usize = size_of::<u64>();

thread_local! {
    /// The end of the session of the connection that rustls processes on this thread. rustls calls a verifier and makes
    /// tickets without naming the connection.
    static CURRENT: Cell<SessionEnd> = const { Cell::new(SessionEnd::NEVER) };
}

/// Until when a session can be resumed, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionEnd(u64);

impl SessionEnd {
    /// As long as its ticket can be read.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The earliest end in a chain of certificates.
    fn of<'a>(chain: impl Iterator<Item = &'a CertificateDer<'a>>) -> Self {
        let end = |certificate| x509::validity(certificate).map_or(0, |(_, end)| end.as_secs());
        Self(chain.map(|certificate| end(certificate)).min().unwrap_or(0))
    }

    /// Lets rustls do `work` for the connection whose session has this end, which the work may change.
    pub(crate) fn within<T>(&mut self, work: impl FnOnce() -> T) -> T {
        CURRENT.set(*self);
        let result = work();
        *self = CURRENT.replace(Self::NEVER);
        result
    }
}

/// Makes the tickets.
#[derive(Debug)]
pub(crate) struct TicketMaker(Arc<dyn ProducesTickets>);

impl TicketMaker {
    /// Tickets with new keys, so that no earlier ticket can be read.
    pub(crate) fn new() -> Result<Self, Error> {
        Ticketer::new().map(Self)
    }
}

impl ProducesTickets for TicketMaker {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let SessionEnd(end) = CURRENT.get();
        self.0.encrypt(&[&end.to_be_bytes(), session].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let mut session = self.0.decrypt(ticket)?;
        let end = u64::from_be_bytes(*session.first_chunk()?);
        if UnixTime::now().as_secs() > end {
            return None;
        }
        CURRENT.set(SessionEnd(end));
        Some(session.split_off(END_BYTES))
    }
}

/// Checks the certificates of clients, and notes when they end.
#[derive(Debug)]
pub(crate) struct Verifier(Arc<dyn ClientCertVerifier>);

impl Verifier {
    /// A verifier that calls `verifier` for the check.
    pub(crate) fn of(verifier: Arc<dyn ClientCertVerifier>) -> Self {
        Self(verifier)
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(certificate, intermediates, now)?;
        CURRENT.set(SessionEnd::of(std::iter::once(certificate).chain(intermediates)));
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
