//! `reserve` and `reserve-job`: a client gets a job, or begins to wait for one.
//!
//! Owns: the answer to a reserve. For clients that watch many tubes or have a reserve mode, `many_tubes` and `modes`
//! choose the tube.

use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::operations::many_tubes::ReserveSearch;
use crate::seconds::Seconds;
use crate::{Change, ClientId, Queue};

/// The immediate result of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The client has now reserved this job.
    Job(JobId),
    /// There is no job, and one of its reservations is in its safety margin.
    DeadlineSoon,
    /// There is no job, and the client asked not to wait.
    TimedOut,
    /// The client waits; a [`Delivery`](crate::Delivery) answers it.
    Waiting,
    /// There are more tubes than one call probes: the caller must call again.
    Unfinished,
}

impl Queue {
    /// The reserves: the most urgent job of the watched tubes, or, in another mode, that of the chosen tube. With a
    /// `timeout_s` of `None` the wait has no limit.
    #[inline(always)]
    pub fn reserve(&mut self, client: ClientId, timeout_s: Option<Seconds>, now: Timestamp) -> Reserve {
        self.mark_worker(client);
        let record = self.client(client);
        let tube = if record.is_plain && !self.rules.must_refresh_heads() {
            self.most_urgent_of(&record.watching)
        } else {
            match self.search(client.key(), now) {
                ReserveSearch::Found(tube) => Some(tube),
                ReserveSearch::Nothing => None,
                ReserveSearch::Unfinished => return Reserve::Unfinished,
            }
        };
        if let Some(tube) = tube
            && let Some(id) = self.take_first_ready(tube)
        {
            self.assign(client.key(), id, now);
            debug_assert!(
                self.has_reserved(client, id) && self.has_no_unserved_client(tube),
                "the client has the job"
            );
            return Reserve::Job(id);
        }
        if self.margin_of(client.key()).is_some_and(|margin| margin <= now) {
            return Reserve::DeadlineSoon;
        }
        if timeout_s == Some(Seconds::ZERO) {
            return Reserve::TimedOut;
        }
        let until = timeout_s.map_or(Timestamp::NEVER, |timeout| now.plus_seconds(timeout));
        self.begin_wait(client.key(), until);
        Reserve::Waiting
    }

    /// The command `reserve-job`; returns whether the job exists, no client had reserved it, and its tags allow it.
    pub fn reserve_job(&mut self, client: ClientId, id: JobId, now: Timestamp) -> bool {
        self.end_overdue_and_serve(id, now);
        let is_ready = match self.jobs.get(id) {
            Some(job) if job.state() == JobState::Reserved => return false,
            Some(job) if self.tubes.get(job.tube).is_throttled() => return false,
            Some(job) if !job.marks.is_empty() && !self.may_be_reserved(id) => return false,
            Some(job) => job.state() == JobState::Ready,
            None => return false,
        };
        self.mark_worker(client);
        self.unlink(id);
        // The whole record of a session's reservation is logged.
        if !is_ready && self.holder_for(client.key()) == client.key() {
            self.note(Change::Updated(id));
        }
        self.assign(client.key(), id, now);
        debug_assert!(self.has_reserved(client, id), "the client has the job");
        true
    }

    /// From now on the client counts as a worker.
    #[inline]
    pub(super) fn mark_worker(&mut self, client: ClientId) {
        let first = !std::mem::replace(&mut self.client_mut(client).has_reserved, true);
        self.clients.counts.workers += u64::from(first);
        debug_assert!(self.clients.counts.workers <= self.clients.records.len() as u64, "each counts once");
    }
}
