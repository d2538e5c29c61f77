//! Sessions: reservations that outlive the connection of the client that made them.
//!
//! A session is itself a client, which has the reservations and is in no count of clients; the client of a connection
//! is attached to it. So a connection can end, and another one can be attached, while no job moves. Clients without a
//! session have none of this.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use crate::clock::{NS_PER_MS, Timestamp};
use crate::job::JobId;
use crate::state::clients::{Client, ClientKind};
use crate::state::keys::ClientKey;
use crate::{ClientId, Queue};

/// The key of a session. Sessions of two identities never have the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// The identity that owns the session; empty on a server without access rules.
    pub identity: Arc<str>,
    /// The name that the client has given it.
    pub name: Arc<str>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub key: SessionKey,
    /// How long its reservations are kept without a client.
    pub grace_ms: u32,
    /// Whether the log may have another grace for some of its reservations.
    pub lacks_grace: bool,
    pub state: SessionState,
}

/// Whether a session has a client, and when it ends otherwise. A description has another `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState<C = ClientKey> {
    /// This client is attached.
    Attached(C),
    /// No client has been attached since the session was made or restored, and its grace has not begun.
    Unbegun,
    /// The session ends at this time if no client comes.
    EndsAt(Timestamp),
}

impl SessionState {
    /// The attached client.
    pub(crate) fn attached(self) -> Option<ClientKey> {
        if let Self::Attached(client) = self { Some(client) } else { None }
    }

    /// When the session ends if no client comes.
    pub(crate) fn ends_at(self) -> Option<Timestamp> {
        if let Self::EndsAt(at) = self { Some(at) } else { None }
    }
}

impl Session {
    /// Begins the grace: no client is attached.
    pub(crate) fn begin_grace(&mut self, now: Timestamp) {
        self.state = SessionState::EndsAt(now + u64::from(self.grace_ms) * NS_PER_MS);
    }
}

/// A reservation that belongs to a session.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct SessionReservation<'a> {
    pub key: &'a SessionKey,
    /// How long the session lasts without a client.
    pub grace_ms: u32,
    pub until: Timestamp,
    /// How often the job was reserved, this time included.
    pub reserves: u32,
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
    /// Memory of all sessions, without the memory of their clients, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const PER_SESSION: usize = 512;
        self.records.len() * PER_SESSION
    }
}

impl Queue {
    /// The facts about a session's reservation that the log must have.
    #[must_use]
    pub fn session_reservation(&self, id: JobId) -> Option<SessionReservation<'_>> {
        if self.sessions.records.is_empty() {
            return None;
        }
        let job = self.jobs.get(id)?;
        let history = self.jobs.history(job);
        let session = self.sessions.records.get(&history.holder?)?;
        let until = job.collection().deadline()?;
        Some(SessionReservation {
            key: &session.key,
            grace_ms: session.grace_ms,
            until,
            reserves: history.counters.reserves,
        })
    }

    /// Whether the client has a session.
    #[inline]
    #[must_use]
    pub fn has_session(&self, client: ClientId) -> bool {
        self.client(client).has_session()
    }

    /// The key of the session to which the client is attached.
    #[must_use]
    pub fn session_of(&self, client: ClientId) -> Option<&SessionKey> {
        let index = self.sessions.of_client.get(&client.key()).filter(|_| self.has_session(client))?;
        self.sessions.records.get(index).map(|session| &session.key)
    }

    /// The key of the session that has reserved the job.
    #[must_use]
    pub fn session_of_job(&self, id: JobId) -> Option<&SessionKey> {
        let holder = self.jobs.history(self.jobs.get(id)?).holder?;
        self.sessions.records.get(&holder).map(|session| &session.key)
    }

    /// Whether the job is reserved by a session without a client, and is therefore kept for its grace.
    #[must_use]
    pub fn is_kept_for_grace(&self, id: JobId) -> bool {
        let holder = self.jobs.get(id).and_then(|job| self.jobs.history(job).holder);
        let session = holder.and_then(|holder| self.sessions.records.get(&holder));
        session.is_some_and(|session| session.state.attached().is_none())
    }

    /// The index of the client that has the reservations of this one: its session, if it has one, or itself.
    #[inline]
    pub(crate) fn holder_for(&self, index: ClientKey) -> ClientKey {
        if self.clients[index].has_session() { self.session_index(index) } else { index }
    }

    #[inline(never)]
    pub(crate) fn session_index(&self, index: ClientKey) -> ClientKey {
        *self.sessions.of_client.get(&index).expect("a client that has a session is attached to one")
    }

    pub(crate) fn session_mut(&mut self, index: ClientKey) -> &mut Session {
        self.sessions.records.get_mut(&index).expect("the client is a session")
    }

    /// Attaches a client without a session to the session at `index`. Returns the client that had it until now; the
    /// caller must detach that client.
    pub(crate) fn attach_to_session(&mut self, client: ClientKey, index: ClientKey) -> Option<ClientKey> {
        let before = mem::replace(&mut self.session_mut(index).state, SessionState::Attached(client));
        self.sessions.of_client.insert(client, index);
        let kind = mem::replace(&mut self.clients[client].kind, ClientKind::Attached);
        debug_assert_eq!(kind, ClientKind::Connected, "a client has one session at most");
        before.attached()
    }

    /// Detaches a client from its session, which gets another client or begins its grace.
    pub(crate) fn detach_from_session(&mut self, client: ClientKey) {
        let index = self.sessions.of_client.remove(&client);
        debug_assert!(index.is_some(), "the client has a session");
        self.clients[client].kind = ClientKind::Connected;
    }

    /// Whether a reservation of `holder` belongs to this client.
    #[inline]
    pub(crate) fn is_reserved_by(&self, holder: Option<ClientKey>, client: ClientId) -> bool {
        holder == Some(client.key()) || holder.is_some() && holder == Some(self.holder_for(client.key()))
    }

    /// When the safety margin begins of the first reservation of the client or its session.
    #[inline]
    pub(crate) fn margin_of(&self, index: ClientKey) -> Option<Timestamp> {
        self.clients[self.holder_for(index)].margin_at()
    }

    /// The next deadline of a client that is a session, or is attached to one.
    #[inline(never)]
    pub(crate) fn deadline_with_session(&self, index: ClientKey) -> Option<Timestamp> {
        let client = &self.clients[index];
        let first_ends_at = client.reserved.first().map(|first| first.until);
        if client.is_session() {
            let ends_at = self.sessions.records.get(&index).and_then(|session| session.state.ends_at());
            return Timestamp::earliest([first_ends_at, ends_at]);
        }
        match client.wait() {
            Some(wait) => Timestamp::earliest([self.margin_of(index), Some(wait.until)]),
            // Reservations that have not joined the session yet.
            None => first_ends_at,
        }
    }

    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_sessions(&self) {
        let count =
            |is: fn(&Client) -> bool| self.clients.records.iter().filter(|(_, client)| is(client)).count();
        assert_eq!(count(|client| client.is_session()), self.sessions.records.len());
        assert_eq!(self.sessions.by_key.len(), self.sessions.records.len(), "a session is found by its key");
        for (&index, session) in &self.sessions.records {
            assert_eq!(self.sessions.by_key.get(&session.key), Some(&index));
            let attached = session.state.attached();
            assert!(
                attached.is_some() || !self.clients[index].reserved.is_empty(),
                "a session without a client has reservations"
            );
            assert_eq!(attached.map(|client| self.session_index(client)), attached.map(|_| index));
        }
        assert_eq!(
            count(|client| client.has_session()),
            self.sessions.of_client.len(),
            "a session has one client at most"
        );
        for (&client, index) in &self.sessions.of_client {
            assert!(self.clients[client].has_session());
            assert_eq!(
                self.sessions.records[index].state.attached(),
                Some(client),
                "a session has one client at most"
            );
        }
    }
}
