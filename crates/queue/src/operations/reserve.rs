//! `reserve` and `reserve-job`: a client gets a job, or begins to wait for one.
//!
//! Owns: the answer to a reserve. For clients that watch many tubes or have a reserve mode, `many_tubes` and `modes`
//! choose the tube.

use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::operations::many_tubes::ReserveSearch;
use crate::rules::retries::AttemptEnd;
use crate::seconds::Seconds;
use crate::{Change, ClientId, Queue, Released};

/// The immediate result of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The client has now reserved this job.
    Job(JobId),
    /// There is no job, and one of the client's reservations is in its safety margin.
    DeadlineSoon,
    /// There is no job, and the client asked not to wait.
    TimedOut,
    /// The client waits; a [`Delivery`](crate::Delivery) answers it.
    Waiting,
    /// There are more tubes than one call probes: the caller must call again.
    Unfinished,
}

impl Queue {
    /// The reserves: take the most urgent job of the watched tubes or, in another mode, of the chosen tube. With a
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
            self.note(Change::Postponable(id));
        }
        self.assign(client.key(), id, now);
        debug_assert!(self.has_reserved(client, id), "the client has the job");
        true
    }

    /// Undoes a reservation before the client has a reply about it: the job is as if it had not been reserved. It
    /// becomes ready, and its tube gets the token back. The totals of the tube keep the reservation, because a counter
    /// that decreases looks like a restart. Its wait stays in the histogram and, in a fair tube, its key keeps the
    /// later turn.
    pub fn undo_reserve(&mut self, client: ClientId, id: JobId, now: Timestamp) {
        assert!(self.has_reserved(client, id), "only the reservation of a client is undone");
        self.unlink(id);
        let (job, history) = self.jobs.expect_with_history(id);
        history.counters.reserves = history.counters.reserves.saturating_sub(1);
        let (tube, marks) = (job.tube, job.marks);
        self.return_token(tube);
        if self.expires_again(id, now) {
            self.remove_expired(id, now);
        } else {
            let next = self.next_state(id, (tube, marks), AttemptEnd::Uncounted, Seconds::ZERO, now);
            if self.enter(id, next, now) == Released::Buried {
                self.note(Change::Postponable(id));
            }
        }
        self.serve_waiting(Some(client), now);
        debug_assert!(!self.has_reserved(client, id), "the client has no longer reserved the job");
        self.remove_tube_if_idle(tube);
    }

    /// From now on the client counts as a worker.
    #[inline]
    pub(super) fn mark_worker(&mut self, client: ClientId) {
        let first = !std::mem::replace(&mut self.client_mut(client).has_reserved, true);
        self.clients.counts.workers += u64::from(first);
        debug_assert!(self.clients.counts.workers <= self.clients.records.len() as u64, "each counts once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::job::Counters;
    use crate::tags::TagSet;
    use crate::testing::{NOW, TestJob, con};
    use crate::{Delivery, Rate, TubeRule, WaitOutcome};

    /// The job that the queue delivers next, to this client.
    fn delivered(queue: &mut Queue, to: ClientId) -> JobId {
        match queue.poll_delivery() {
            Some(Delivery { client, outcome: WaitOutcome::Reserved(id) }) if client == to => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_whose_reservation_is_undone_goes_to_the_next_client_from_its_place() {
        let mut queue = Queue::default();
        let rate = Some(Rate { tokens: 1, period_ns: 60 * NS_PER_S, burst: 1 });
        let rule = TubeRule { max_attempts: Some(1), max_reserved: Some(1), rate, ..TubeRule::new("*") };
        queue.set_tube_rules(vec![rule], NOW);
        let [producer, first, second] = [(); 3].map(|()| queue.connect());
        assert_eq!(queue.reserve(first, None, NOW), Reserve::Waiting);
        assert_eq!(queue.reserve(second, None, NOW), Reserve::Waiting);
        let id = TestJob { tags: con("k", 1), ..TestJob::default() }.put(&mut queue, producer, NOW);
        assert_eq!(delivered(&mut queue, first), id);
        TestJob { tags: con("k", 1), ..TestJob::default() }.put(&mut queue, producer, NOW);
        queue.undo_reserve(first, id, NOW);
        queue.check_invariants();
        assert!(!queue.is_waiting(first) && queue.poll_delivery().is_some(), "its wait has ended");
        assert!(queue.has_reserved(second, id), "the older job has kept its place");
        queue.undo_reserve(second, id, NOW);
        queue.check_invariants();
        let record = queue.job(id).unwrap().record;
        assert_eq!((record.state, record.counters), (JobState::Ready, Counters::default()));
        assert_eq!(queue.reserve(first, None, NOW), Reserve::Job(id));
    }

    #[test]
    fn a_job_whose_first_reservation_is_undone_expires_as_if_it_had_not_been_reserved() {
        let end = NOW + 10 * NS_PER_S;
        for undone_at in [NOW + 1, end] {
            let mut queue = Queue::default();
            let [producer, first, second] = [(); 3].map(|()| queue.connect());
            let tags = TagSet { expires_after_s: Some(10.into()), ..TagSet::default() };
            let id = TestJob { tags, ..TestJob::default() }.put(&mut queue, producer, NOW);
            assert_eq!(queue.reserve(first, None, NOW), Reserve::Job(id));
            queue.undo_reserve(first, id, undone_at);
            queue.check_invariants();
            assert_eq!(queue.job(id).is_some(), undone_at < end);
            while queue.next_deadline().is_some_and(|at| at <= end) {
                queue.advance(end);
            }
            assert_eq!((queue.job(id).is_some(), queue.figures().events.expirations), (false, 1));
            assert_eq!(queue.reserve(second, None, end), Reserve::Waiting);
        }
    }
}
