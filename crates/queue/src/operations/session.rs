//! `session`: reservations that outlive the connection of their client.
//!
//! Owns: the client that is attached to a session, and the session's end. If another client takes over a session, its
//! reservations stay unchanged; the reservations that a client made before it had a session join the session a few jobs
//! at a time. Driven by the server, which closes the connection of a client whose session was taken over before that
//! client can give another command.

use std::collections::TryReserveError;

use beanstalkd_structures::Timer;

use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::state::clients::Client;
use crate::state::jobs::Job;
use crate::state::keys::{ClientKey, Reservation};
use crate::state::sessions::{Session, SessionKey, SessionState};
use crate::{Change, ClientId, Queue};

/// The result of the command `session`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum BeginSession {
    /// The client is attached to the session, and `taken_from` was until now. Its connection must be closed, and the
    /// caller does the work in `joining` with `join_session`.
    Attached { taken_from: Option<ClientId>, joining: SessionJoin },
    /// The client has another session. Nothing has changed.
    HasAnother,
}

/// The progress of `join_session`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionJoin {
    /// Whether the log must get the session's new grace, for each of its reservations after `after`.
    has_new_grace: bool,
    after: Option<(Timestamp, JobId)>,
}

impl Queue {
    /// Attaches the client to the session with this key, which begins if it does not exist. The caller must call
    /// `join_session` until nothing is left to join. The session lasts for `grace_ms` without a client.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn begin_session(
        &mut self,
        client: ClientId,
        key: &SessionKey,
        grace_ms: u32,
    ) -> Result<BeginSession, TryReserveError> {
        if let Some(session) = self.session_of(client) {
            if session != key {
                return Ok(BeginSession::HasAnother);
            }
            let index = self.holder_for(client.key());
            let joining = self.set_grace(index, grace_ms);
            return Ok(BeginSession::Attached { taken_from: None, joining });
        }
        let index = self.find_or_make_session(key)?;
        let joining = self.set_grace(index, grace_ms);
        let taken_from = self.attach_to_session(client.key(), index).map(|before| {
            self.end_wait(before);
            self.end_job_wait(before);
            self.detach_from_session(before);
            self.clients.id_of(before)
        });
        debug_assert!(self.is_attached(client.key(), index), "the session has this client");
        debug_assert!(taken_from != Some(client), "a session is taken from another client");
        Ok(BeginSession::Attached { taken_from, joining })
    }

    fn set_grace(&mut self, index: ClientKey, grace_ms: u32) -> SessionJoin {
        let session = self.session_mut(index);
        // An earlier client may have left before the log had its grace.
        session.lacks_grace |= session.grace_ms != grace_ms;
        session.grace_ms = grace_ms;
        SessionJoin { has_new_grace: session.lacks_grace, after: None }
    }

    fn find_or_make_session(&mut self, key: &SessionKey) -> Result<ClientKey, TryReserveError> {
        if let Some(&index) = self.sessions.by_key.get(key) {
            return Ok(index);
        }
        self.make_room_for_client()?;
        let index = self.add_client(Client::session).key();
        self.clients.counts.unconnected += 1;
        let session =
            Session { key: key.clone(), grace_ms: 0, lacks_grace: false, state: SessionState::Unbegun };
        self.sessions.records.insert(index, session);
        self.sessions.by_key.insert(key.clone(), index);
        Ok(index)
    }

    /// Moves the client's earlier reservations to its session, and notes a new grace for the log. Handles at most
    /// `left` reservations, and subtracts their number from `left`. Returns whether no reservation is left to move.
    pub fn join_session(&mut self, client: ClientId, joining: &mut SessionJoin, left: &mut usize) -> bool {
        let holder = self.holder_for(client.key());
        if holder == client.key() {
            return true;
        }
        while joining.has_new_grace && *left > 0 {
            let after = joining.after.map(|(until, id)| Reservation::key(until, id));
            let Some(Reservation { until, id, .. }) = self.clients[holder].reserved.next_after(after) else {
                joining.has_new_grace = false;
                self.session_mut(holder).lacks_grace = false;
                break;
            };
            *left -= 1;
            joining.after = Some((until, id));
            self.note(Change::SessionReserved(id));
        }
        while *left > 0
            && let Some(first) = self.client(client).reserved.first()
        {
            *left -= 1;
            let found = self.client_mut(client).reserved.remove(first);
            debug_assert!(found.is_some(), "the first reservation is in the client's set");
            let (job, history) = self.jobs.expect_with_history(first.id);
            let tube = job.tube;
            debug_assert_eq!(
                history.holder,
                Some(client.key()),
                "the client has the reservation that moves to its session"
            );
            history.holder = Some(holder);
            self.clients[holder].reserved.insert(first);
            // A flush that walks through the reservations may be after this one, or before it.
            self.flushes.note_moved(first.id, tube);
            self.note(Change::SessionReserved(first.id));
            debug_assert!(self.is_linked_as(first.id, JobState::Reserved), "the session has the job");
        }
        self.schedule(Timer::Client(holder));
        !joining.has_new_grace && self.client(client).reserved.is_empty()
    }

    /// Restores a reservation that a session had before a restart, of a job that exists. The session has no client; the
    /// caller must call `begin_graces` later. A reservation that has already ended is left out.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn restore_session_reservation(
        &mut self,
        id: JobId,
        key: &SessionKey,
        grace_ms: u32,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        let is_ready = |job: &Job| job.state() == JobState::Ready;
        if until <= now || !self.jobs.get(id).is_some_and(is_ready) {
            return Ok(());
        }
        let index = self.find_or_make_session(key)?;
        let session = self.session_mut(index);
        debug_assert_eq!(session.state, SessionState::Unbegun, "no grace has begun");
        session.grace_ms = grace_ms;
        self.unlink(id);
        self.link_reserved(id, index, now, Some(until));
        self.note(Change::SessionReserved(id));
        Ok(())
    }

    /// Begins the graces of restored sessions, when the server listens.
    pub fn begin_graces(&mut self, now: Timestamp) {
        let restored: Vec<ClientKey> = self.sessions.records.keys().copied().collect();
        for index in restored {
            let session = self.session_mut(index);
            if session.state == SessionState::Unbegun {
                session.begin_grace(now);
                self.schedule(Timer::Client(index));
            }
        }
    }

    /// Detaches a client that is leaving: its session continues without it for the grace.
    pub(super) fn leave_session(&mut self, client: ClientKey, now: Timestamp) {
        let index = self.session_index(client);
        debug_assert!(self.is_attached(client, index), "the client has the session that it leaves");
        self.detach_from_session(client);
        self.session_mut(index).begin_grace(now);
        if !self.end_session_if_idle(index) {
            self.schedule(Timer::Client(index));
        }
    }

    /// Ends the session at `index` if it has no attached client and no jobs. Returns whether it ended.
    pub(super) fn end_session_if_idle(&mut self, index: ClientKey) -> bool {
        let is_idle =
            self.sessions.records.get(&index).is_some_and(|session| session.state.attached().is_none())
                && self.clients[index].reserved.is_empty();
        if is_idle {
            let session = self.sessions.records.remove(&index).expect("the session exists");
            let found = self.sessions.by_key.remove(&session.key);
            debug_assert_eq!(found, Some(index), "a session is found by its key");
            self.clients.counts.unconnected -= 1;
            self.deadlines.set(Timer::Client(index), None);
            self.remove_client(index);
        }
        is_idle
    }

    /// Handles the end of a session's reservation, or of its grace: in the latter case it releases a share of its jobs,
    /// like a client that leaves, and stays due until it has none. If both end at the same instant, the time to run
    /// comes first.
    pub(super) fn session_is_due(&mut self, index: ClientKey, now: Timestamp) {
        let ends_at = self.session_mut(index).state.ends_at();
        debug_assert!(
            self.deadline_with_session(index).is_some_and(|at| at <= now),
            "no session is due early"
        );
        match self.clients[index].reserved.first() {
            Some(Reservation { until, id, .. }) if ends_at.is_none_or(|at| until <= at) => {
                self.time_out(id, now)
            }
            Some(_) | None => {
                let mut share = self.slices.given_back;
                self.give_back_jobs(index, &mut share, now);
                self.cost += (self.slices.given_back - share) as u64;
            }
        }
        self.end_session_if_idle(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::testing::{NOW, TestJob};
    use crate::{Reserve, Slices, WaitOutcome};

    fn key(name: &str) -> SessionKey {
        SessionKey { identity: "".into(), name: name.into() }
    }

    fn joining(has_new_grace: bool) -> SessionJoin {
        SessionJoin { has_new_grace, after: None }
    }

    fn put(queue: &mut Queue, client: ClientId, ttr_s: u32) -> JobId {
        TestJob { ttr_s, ..TestJob::default() }.put(queue, client, NOW)
    }

    /// A worker with a session and this many reservations, each for ten minutes.
    fn worker(queue: &mut Queue, jobs: usize, grace_ms: u32) -> (ClientId, Vec<JobId>) {
        let worker = queue.connect();
        queue.begin_session(worker, &key("w"), grace_ms).unwrap();
        let ids: Vec<JobId> = (0..jobs).map(|_| put(queue, worker, 600)).collect();
        ids.iter().for_each(|_| assert!(matches!(queue.reserve(worker, None, NOW), Reserve::Job(_))));
        (worker, ids)
    }

    fn advance(queue: &mut Queue, now: Timestamp) {
        while queue.next_deadline().is_some_and(|at| at <= now) {
            queue.advance(now);
            queue.check_invariants();
        }
    }

    fn state(queue: &Queue, id: JobId) -> JobState {
        queue.job(id).unwrap().record.state
    }

    #[test]
    fn reservations_stay_for_the_grace_and_go_back_without_a_count() {
        let mut queue = Queue::default();
        let (worker, ids) = worker(&mut queue, 3, 1500);
        queue.disconnect(worker, NOW);
        assert_eq!((queue.figures().sessions, queue.figures().clients), (1, 0));
        advance(&mut queue, NOW + 1_499_999_999);
        assert_eq!(state(&queue, ids[0]), JobState::Reserved, "the grace is not over");
        advance(&mut queue, NOW + 1_500_000_000);
        for &id in &ids {
            let record = queue.job(id).unwrap().record;
            assert_eq!((record.state, record.counters.timeouts), (JobState::Ready, 0));
            assert_eq!(record.counters.releases, 0);
        }
        assert_eq!(queue.figures().sessions, 0);
    }

    #[test]
    fn a_time_to_run_that_ends_within_the_grace_is_a_time_out_and_the_last_ends_it() {
        let mut queue = Queue::default();
        let worker = queue.connect();
        queue.begin_session(worker, &key("w"), 3_600_000).unwrap();
        let id = put(&mut queue, worker, 5);
        assert!(queue.reserve_job(worker, id, NOW));
        queue.disconnect(worker, NOW);
        advance(&mut queue, NOW + 5 * NS_PER_S);
        assert_eq!(queue.job(id).unwrap().record.counters.timeouts, 1);
        assert_eq!((state(&queue, id), queue.figures().sessions), (JobState::Ready, 0));
    }

    #[test]
    fn a_session_without_jobs_ends_with_its_client_and_a_grace_of_0_holds_nothing() {
        let mut queue = Queue::default();
        let (idle, _) = worker(&mut queue, 0, 3_600_000);
        queue.disconnect(idle, NOW);
        assert_eq!(queue.figures().sessions, 0);
        let (busy, ids) = worker(&mut queue, 2, 0);
        queue.disconnect(busy, NOW);
        advance(&mut queue, NOW);
        assert_eq!((queue.figures().sessions, state(&queue, ids[1])), (0, JobState::Ready));
    }

    #[test]
    fn a_client_that_takes_over_a_session_has_its_jobs_and_the_first_has_none() {
        let mut queue = Queue::default();
        let (first, ids) = worker(&mut queue, 1, 1000);
        assert_eq!(queue.reserve(first, None, NOW), Reserve::Waiting);
        let second = queue.connect();
        let taken = queue.begin_session(second, &key("w"), 2000).unwrap();
        assert_eq!(taken, BeginSession::Attached { taken_from: Some(first), joining: joining(true) });
        queue.check_invariants();
        assert!(
            queue.has_reserved(second, ids[0])
                && !queue.has_reserved(first, ids[0])
                && !queue.is_waiting(first)
        );
        assert!(queue.delete(first, ids[0], NOW).is_none());
        queue.disconnect(first, NOW);
        assert!(queue.has_reserved(second, ids[0]), "the end of the first connection changes nothing");
        assert_eq!(queue.begin_session(second, &key("x"), 1).unwrap(), BeginSession::HasAnother);
        assert!(queue.delete(second, ids[0], NOW).is_some());
        queue.check_invariants();
        queue.disconnect(second, NOW);
        assert_eq!(queue.figures().sessions, 0);
    }

    #[test]
    fn a_job_that_was_delivered_to_a_client_that_is_gone_is_the_sessions() {
        let mut queue = Queue::default();
        let (first, _) = worker(&mut queue, 0, 1000);
        assert_eq!(queue.reserve(first, None, NOW), Reserve::Waiting);
        let producer = queue.connect();
        let id = put(&mut queue, producer, 60);
        queue.disconnect(first, NOW);
        let delivery = queue.poll_delivery().expect("it was delivered");
        assert_eq!((delivery.client, delivery.outcome), (first, WaitOutcome::Reserved(id)));
        assert_eq!(state(&queue, id), JobState::Reserved);
        let second = queue.connect();
        queue.begin_session(second, &key("w"), 1000).unwrap();
        assert!(queue.has_reserved(second, id));
        queue.check_invariants();
    }

    #[test]
    fn earlier_reservations_join_in_slices_and_a_flush_meanwhile_takes_all_of_them() {
        use crate::{BeginFlush, FlushScope, FlushStep};
        let mut queue = Queue::new(Default::default(), Slices::default());
        let (gone, worker, operator) = (queue.connect(), queue.connect(), queue.connect());
        let ids: Vec<JobId> = (0..50).map(|_| put(&mut queue, worker, 600)).collect();
        ids.iter().for_each(|&id| assert!(queue.reserve_job(worker, id, NOW)));
        assert_eq!(queue.begin_flush(operator, "default", FlushScope::All), BeginFlush::Begun);
        queue.disconnect(gone, NOW);
        let first = loop {
            if let FlushStep::Job(id) = queue.next_to_flush(operator, &mut 1) {
                break id;
            }
        };
        queue.flush_job(first, NOW);
        // The session has the index of the disconnected client, which the walk has passed.
        queue.begin_session(worker, &key("w"), 1000).unwrap();
        let mut slices = 0;
        let mut joining = joining(true);
        while !queue.join_session(worker, &mut joining, &mut 7) {
            queue.check_invariants();
            slices += 1;
        }
        assert_eq!((slices, queue.reservation_count(worker)), (6, 49));
        let mut flushed = 0;
        loop {
            match queue.next_to_flush(operator, &mut 3) {
                FlushStep::Job(id) => {
                    queue.flush_job(id, NOW);
                    flushed += 1;
                }
                FlushStep::Done => break,
                FlushStep::Cooldown(_) | FlushStep::Unfinished => {}
            }
        }
        assert_eq!((flushed, queue.figures().jobs.total()), (49, 0));
        queue.check_invariants();
    }

    #[test]
    fn a_new_grace_whose_client_is_gone_goes_to_the_log_with_the_next_client() {
        let mut queue = Queue::default();
        let (first, _) = worker(&mut queue, 5, 1000);
        while !queue.join_session(first, &mut joining(true), &mut 7) {}
        let begin = |queue: &mut Queue, client| match queue.begin_session(client, &key("w"), 2000) {
            Ok(BeginSession::Attached { joining, .. }) => joining,
            other => panic!("{other:?}"),
        };
        let mut unfinished = begin(&mut queue, first);
        assert!(!queue.join_session(first, &mut unfinished, &mut 2));
        let second = queue.connect();
        let mut joining = begin(&mut queue, second);
        let mut left = 7;
        assert!(queue.join_session(second, &mut joining, &mut left));
        assert_eq!(left, 2, "all five are logged");
        assert!(!begin(&mut queue, second).has_new_grace);
    }

    #[test]
    fn the_last_job_that_is_flushed_ends_a_session_that_nobody_is_attached_to() {
        let mut queue = Queue::default();
        let (worker, ids) = worker(&mut queue, 1, 60_000);
        queue.disconnect(worker, NOW);
        assert_eq!(queue.figures().sessions, 1);
        queue.flush_job(ids[0], NOW);
        queue.check_invariants();
        assert_eq!(queue.figures().sessions, 0);
    }

    #[test]
    fn a_session_with_many_jobs_gives_them_back_in_slices() {
        let mut queue = Queue::default();
        let (first, ids) = worker(&mut queue, 1000, 1000);
        queue.disconnect(first, NOW);
        let mut before = 1000;
        while queue.figures().sessions > 0 {
            queue.advance(NOW + NS_PER_S);
            queue.check_invariants();
            let left = queue.figures().jobs.reserved;
            assert!((1..=100).contains(&(before - left)), "a share at once");
            before = left;
        }
        assert!(ids.iter().all(|&id| state(&queue, id) == JobState::Ready));
    }

    #[test]
    fn a_session_whose_reservation_ends_soon_answers_the_wait_of_its_client() {
        let mut queue = Queue::default();
        let first = queue.connect();
        queue.begin_session(first, &key("w"), 60_000).unwrap();
        let id = put(&mut queue, first, 5);
        assert!(queue.reserve_job(first, id, NOW));
        queue.disconnect(first, NOW);
        let second = queue.connect();
        queue.begin_session(second, &key("w"), 60_000).unwrap();
        assert_eq!(queue.reserve(second, None, NOW), Reserve::Waiting);
        advance(&mut queue, NOW + 4 * NS_PER_S);
        assert_eq!(queue.poll_delivery().map(|delivery| delivery.outcome), Some(WaitOutcome::DeadlineSoon));
        assert_eq!(queue.reserve(second, Some(9.into()), NOW + 4 * NS_PER_S), Reserve::DeadlineSoon);
    }
}
