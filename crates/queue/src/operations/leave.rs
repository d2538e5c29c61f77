//! The end of a client: its reserved jobs and watched tubes are released.
//!
//! Owns: the order in which this happens, and how much is done at once. A client with very many jobs and tubes also
//! ends at once, but each `advance` releases only a limited number of them, so that no client waits while a million
//! jobs are moved. A job stays reserved, and no other client can get it, until it is released.

use std::collections::VecDeque;

use beanstalkd_structures::Timer;

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::JobState;
use crate::rules::retries::{AttemptEnd, NextState};
use crate::seconds::Seconds;
use crate::state::keys::{ClientKey, ReadyKey, Reservation};
use crate::{Change, ClientId, Queue, Released};

impl Queue {
    /// Ends a client: its wait ends without a delivery, and its reserved jobs become ready, a limited number at once.
    pub fn disconnect(&mut self, id: ClientId, now: Timestamp) {
        assert!(self.is_connected(id), "a client leaves once");
        self.end_wait(id.key());
        self.end_job_wait(id.key());
        self.flushes.end(id);
        self.drop_reserve_settings(id.key());
        if self.has_session(id) {
            self.leave_session(id.key(), now);
        }
        let client = self.client_mut(id);
        client.update_is_plain();
        client.is_leaving = true;
        let (has_put, has_reserved, has_connection) =
            (client.has_put, client.has_reserved, client.has_connection());
        let counts = &mut self.clients.counts;
        if has_connection {
            counts.producers -= u64::from(has_put);
            counts.workers -= u64::from(has_reserved);
        } else {
            counts.unconnected -= 1;
        }
        self.deadlines.set(Timer::Client(id.key()), None);
        let mut share = self.slices.given_back;
        if !self.give_back(id.key(), &mut share, now) {
            self.clients.leaving.push_back(id.key());
        }
        debug_assert!(!self.is_connected(id), "a client that has left is not connected");
    }

    /// Releases a limited number of jobs and tubes of clients that have disconnected.
    pub(super) fn continue_leaving(&mut self, now: Timestamp) {
        let mut share = self.slices.given_back;
        while share > 0
            && let Some(&index) = self.clients.leaving.front()
        {
            if !self.give_back(index, &mut share, now) {
                return;
            }
            self.clients.leaving.pop_front();
        }
        if self.clients.leaving.is_empty() {
            self.clients.leaving = VecDeque::new();
        }
    }

    /// Releases at most one share of the client's jobs and tubes; returns whether these were the last and the client is
    /// removed.
    fn give_back(&mut self, index: ClientKey, share: &mut usize, now: Timestamp) -> bool {
        let before = *share;
        self.give_back_jobs(index, share, now);
        // This is the order in which C gives up tubes; it decides the order of the remaining tubes.
        while *share > 0 {
            if self.clients[index].watching.is_empty() {
                break;
            }
            *share -= 1;
            self.unwatch(index, 0);
        }
        self.cost += (before - *share) as u64;
        let client = &self.clients[index];
        if !client.reserved.is_empty() || !client.watching.is_empty() {
            return false;
        }
        self.remove_client(index);
        true
    }

    /// Removes a client that has no jobs and tubes left.
    pub(super) fn remove_client(&mut self, index: ClientKey) {
        let client = self.clients.records.remove(index.index());
        debug_assert!(
            client.reserved.is_empty() && client.watching.is_empty(),
            "a client that ends has reserved no job"
        );
        debug_assert!(client.wait().is_none() && !client.has_session(), "nothing refers to the client");
        debug_assert!(!self.sessions.records.contains_key(&index), "a session ends before its client");
        let using = client.using;
        self.tubes.get_mut(using).using -= u32::from(client.has_connection());
        self.remove_tube_if_idle(using);
        if self.clients.records.is_empty() {
            self.clients.records.shrink_to_fit();
            self.clients.subscribers = Vec::new();
        }
    }

    /// Releases at most one share of the jobs that the client has reserved.
    pub(super) fn give_back_jobs(&mut self, index: ClientKey, share: &mut usize, now: Timestamp) {
        let mut jobs = self.take_reservations(index, share);
        // Waiting clients get the most urgent job first.
        jobs.sort_unstable();
        let mut may_be_idle = Vec::new();
        for key in jobs {
            let id = key.job();
            let job = self.jobs.expect_mut(id);
            let (tube, marks) = (job.tube, job.marks);
            // Not earlier: the jobs that follow still count in their tubes, and one of these tubes may be the dead tube
            // of another.
            let before = in_debug(|| self.counted(tube));
            self.count_unreserved(tube);
            let after = in_debug(|| before.less(JobState::Reserved, key.priority()));
            debug_assert_eq!(self.counted(tube), after, "one job less is counted");
            let next = self.next_state(id, (tube, marks), AttemptEnd::Uncounted, Seconds::ZERO, now);
            if next == NextState::Ready {
                self.offer_before(key, now);
            }
            match self.enter(id, next, now) {
                Released::Buried => self.note(Change::Postponable(id)),
                Released::Queued if next == NextState::Ready => {}
                Released::Queued => may_be_idle.push(tube),
            }
        }
        // A gate that opens now fills its bucket, which may be the only thing that keeps its tube.
        self.serve_waiting(None, now);
        for tube in may_be_idle {
            if self.tubes.contains(tube) {
                self.remove_tube_if_idle(tube);
            }
        }
    }

    /// Ends at most one share of the client's reservations; returns the jobs, whose collections have not changed yet.
    fn take_reservations(&mut self, index: ClientKey, share: &mut usize) -> Vec<ReadyKey> {
        let is_session = self.clients[index].is_session();
        debug_assert!(
            is_session || self.clients[index].is_leaving,
            "only a session or a leaving client gives back jobs"
        );
        let mut jobs: Vec<ReadyKey> = Vec::new();
        while *share > 0
            && let Some(Reservation { id, .. }) = self.clients[index].reserved.pop_first()
        {
            *share -= 1;
            let (job, history) = self.jobs.expect_with_history(id);
            debug_assert_eq!(job.state(), JobState::Reserved, "the job is reserved");
            debug_assert_eq!(history.holder, Some(index), "the client has reserved this job");
            history.holder = None;
            jobs.push(ReadyKey::new(job.priority, id));
            let marks = job.marks;
            self.call_left(id, marks, JobState::Reserved);
            if is_session {
                // A restart would find the reservation.
                self.note(Change::Postponable(id));
            }
        }
        jobs
    }
}
