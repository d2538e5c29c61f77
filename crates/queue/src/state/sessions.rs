//! Sessions: reservations that outlive the connection of the client that made them.
//!
//! A session is itself a client, which has the reservations and is in no count of clients; the client of a connection
//! is attached to it. So a connection can end, and another one can be attached, while no job moves. Clients without a
//! session have none of this.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::state::keys::ClientKey;

/// The key of a session. Sessions of two identities never have the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// The identity that owns the session; empty on a server without access rules.
    pub identity: Arc<str>,
    /// The name that the client has given it.
    pub name: Arc<str>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub key: SessionKey,
    /// How long its reservations are kept without a client.
    pub grace_ms: u32,
    /// The index of the attached client.
    pub attached: Option<ClientKey>,
    /// When the session ends if no client comes; `NEVER` while one is attached.
    pub ends_at: Timestamp,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the index of the session's own client.
    pub records: BTreeMap<ClientKey, Session>,
    /// The indexes of their clients.
    pub by_key: BTreeMap<SessionKey, ClientKey>,
    /// The index of the session to which a client is attached, by the index of the client.
    pub of_client: BTreeMap<ClientKey, ClientKey>,
}

impl Sessions {
    /// Memory of all sessions, without that of their clients, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const PER_SESSION: usize = 512;
        self.records.len() * PER_SESSION
    }
}
