//! The command `session`: the client's reservations outlive its connection.
//!
//! Owns: the owner of a session, how many reservations join it in a turn, and which connections end because another
//! client has taken over their session. The server closes these before any other command, so that no more of their
//! commands are executed.

use crate::binlog::NoRoom;
use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::executor::{Caller, Executor, Outcome, answer, stall};
use crate::job::JobId;
use crate::protocol::{Grace, Reply};
use crate::queue::{BeginSession, ClientId, SessionJoin, SessionKey};

/// Reservations that join a session in a turn.
const JOINED_PER_TURN: usize = 256;

impl Executor {
    pub(super) fn begin_session(&mut self, caller: &mut Caller<'_>, name: &str, grace: Grace) -> Outcome {
        let key = SessionKey { identity: self.identity_of(caller.client).into(), name: name.into() };
        match self.queue.begin_session(caller.client, &key, grace.as_ms()) {
            Ok(BeginSession::Attached { taken_from, joining }) => {
                self.to_close.extend(taken_from);
                self.join_session(caller, joining)
            }
            Ok(BeginSession::HasAnother) => {
                self.counters.malformed += 1;
                answer(caller.output, &Reply::BadFormat)
            }
            Err(_) => answer(caller.output, &Reply::OutOfMemory),
        }
    }

    /// Moves the client's earlier reservations to the session, a turn's share, and answers if these were the last.
    fn join_session(&mut self, caller: &mut Caller<'_>, mut joining: SessionJoin) -> Outcome {
        let mut left = JOINED_PER_TURN;
        let is_over = self.queue.join_session(caller.client, &mut joining, &mut left);
        self.count_cost((JOINED_PER_TURN - left) as u64);
        if !is_over {
            return stall(Until::NextTurn, move |executor, caller| executor.join_session(caller, joining));
        }
        let reserved = self.queue.reservation_count(caller.client) as u64;
        self.answer_when_logged(caller, Reply::Session(reserved), None)
    }

    /// The name of the client's identity; empty on a server without access rules.
    fn identity_of(&self, client: ClientId) -> &str {
        self.guard.as_ref().and_then(|guard| guard.identity_name(client)).map_or("", |name| name)
    }

    /// The name of the session that has reserved the job, if it belongs to the client's identity; otherwise empty.
    pub(super) fn session_shown_to(&self, client: ClientId, id: JobId) -> &str {
        let Some(key) = self.queue.session_of_job(id) else { return "" };
        if *key.identity == *self.identity_of(client) { &key.name } else { "" }
    }

    /// Reserves room in the log for the reservation that the client is about to make, if it belongs to a session,
    /// because it is then as durable as a put.
    #[inline(always)]
    pub(super) fn room_for_session_reservation(&mut self, client: ClientId) -> Result<(), NoRoom> {
        if self.queue.has_session(client) { self.room_for_reservation_of_session(client) } else { Ok(()) }
    }

    #[cold]
    fn room_for_reservation_of_session(&mut self, client: ClientId) -> Result<(), NoRoom> {
        let Some(SessionKey { identity, name }) = self.queue.session_of(client) else { return Ok(()) };
        self.persistence.room_for_session_reservation(identity.len(), name.len())
    }

    /// Answers a client that waited for a job. If the reservation belongs to a session, the reply waits until the log
    /// has it; if the client loses the job before that, its reserve begins again. On a full disk the client does not
    /// get the job. It learns that in the next turn, because the job may then go to another client with a session, and
    /// so on.
    pub(super) fn answer_delivered(
        &mut self,
        caller: &mut Caller<'_>,
        id: JobId,
        is_abortable: bool,
    ) -> Outcome {
        if !self.persistence.lacks_death_or_session_of(&self.queue, id) {
            return self.answer_reserved(caller.client, id, caller.output, caller.now);
        }
        let until =
            if self.persistence.refuses(&self.queue, id) { Until::NextTurn } else { Until::BinlogRoom };
        stall(until, move |executor, caller| {
            if !executor.queue.has_reserved(caller.client, id) {
                executor.reserve_again(caller, is_abortable)
            } else if executor.persistence.refuses(&executor.queue, id) {
                executor.refuse_delivered(caller, id)
            } else {
                executor.answer_delivered(caller, id, is_abortable)
            }
        })
    }

    /// Refuses the job that the client has got while it waited: the disk is too full for a reservation by a session.
    pub(super) fn refuse_delivered(&mut self, caller: &mut Caller<'_>, id: JobId) -> Outcome {
        self.queue.undo_reserve(caller.client, id, caller.now);
        self.persistence.forget_session_reservation(id);
        answer(caller.output, &Reply::OutOfMemory)
    }

    /// Starts the graces of restored sessions, because the server listens now.
    pub fn begin_graces(&mut self, now: Timestamp) {
        self.queue.begin_graces(now);
    }
}
