//! Sessions: reservations that outlive the connection of the client that made them.
//!
//! A session is a client of its own, which has the reservations and is in no count of clients; the client of a
//! connection is attached to it. So a connection can end, and another one can be attached, while no job moves. Clients
//! without a session have nothing of this.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;

/// The key of a session. Those of two identities never meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// The identity whose session it is; empty on a server without access rules.
    pub identity: Arc<str>,
    /// The name that the client has given to it.
    pub name: Arc<str>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub key: SessionKey,
    /// For how long its reservations are kept without a client.
    pub grace_ms: u32,
    /// The index of the client that is attached to it.
    pub attached: Option<u32>,
    /// When the session ends if no client comes; `NEVER` while one is attached.
    pub ends_at: Timestamp,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the index of the session's own client.
    pub records: BTreeMap<u32, Session>,
    /// The indexes of their clients.
    pub by_key: BTreeMap<SessionKey, u32>,
    /// By the index of a client: that of the session to which it is attached.
    pub of_client: BTreeMap<u32, u32>,
}

impl Sessions {
    /// Their memory beside their clients, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const PER_SESSION: usize = 512;
        self.records.len() * PER_SESSION
    }
}
