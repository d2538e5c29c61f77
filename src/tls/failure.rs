//! The reasons why a handshake can fail, for the metrics.

use rustls::Error;

/// The reason why a handshake has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client has closed the connection, or was too slow.
    Unfinished,
    /// The bytes of the client are not TLS, or are damaged.
    Malformed,
    /// The client sent more than [`super::MAX_HANDSHAKE_BYTES`].
    TooLong,
    /// The client has no version of TLS, cipher suite or signature scheme that the server supports.
    Incompatible,
    /// The server requires a certificate, and the client sent none.
    NoCertificate,
    /// The certificate of the client is not from the authority, has expired or was revoked.
    BadCertificate,
    /// The client does not accept the certificate of the server, or another part of its handshake.
    Refused,
    /// Any other breach of the protocol.
    Protocol,
}

impl HandshakeFailure {
    /// All reasons, in the order of their numbers, with their names in the metrics.
    pub const ALL: [(Self, &str); Self::Protocol as usize + 1] = [
        (Self::Unfinished, "unfinished"),
        (Self::Malformed, "malformed"),
        (Self::TooLong, "too_long"),
        (Self::Incompatible, "incompatible"),
        (Self::NoCertificate, "no_certificate"),
        (Self::BadCertificate, "bad_certificate"),
        (Self::Refused, "refused_by_client"),
        (Self::Protocol, "protocol"),
    ];

    /// The kind of an error of rustls.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::InvalidMessage(_) | Error::PeerSentOversizedRecord | Error::DecryptError => {
                Self::Malformed
            }
            Error::PeerIncompatible(_) => Self::Incompatible,
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidCertificate(_) | Error::InvalidCertRevocationList(_) => Self::BadCertificate,
            Error::AlertReceived(_) => Self::Refused,
            _ => Self::Protocol,
        }
    }
}
