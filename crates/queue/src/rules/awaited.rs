//! Clients that wait until a job is deleted or buried: `wait-job`.
//!
//! Owns: which client waits for which job, in which order, and until when. A job for which a client waits has a mark,
//! so that any other job costs nothing. Such a client waits in no tube, and its own reservations can end while it
//! waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;

use beanstalkd_structures::{OrderedQueue, Timer};

use super::{JobEnd, MarkedJob, Rule, Rules};
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::seconds::Seconds;
use crate::state::clients::Wait;
use crate::state::jobs::Marks;
use crate::state::keys::{ClientKey, DueKey};
use crate::{AwaitedEnd, ClientId, Queue, WaitOutcome};

/// The memory of a waiting client in the three indexes, in bytes. Blocks that are not full take a little more.
const WAIT_BYTES: usize = size_of::<(ClientKey, JobId, Wait)>()
    + size_of::<(JobId, NonZeroU64, ClientKey)>()
    + size_of::<(Timestamp, JobId, ClientKey)>();

/// How many clients are answered at once when their job ends; the others are answered in later turns, a share in each.
const ANSWERS_AT_ONCE: usize = 32;

/// The immediate result of a `wait-job`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other variants say everything")]
pub enum WaitJob {
    NotFound,
    Buried,
    /// The client asked not to wait.
    TimedOut,
    /// The client waits; a [`Delivery`](crate::Delivery) answers it.
    Waiting,
}

#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// The job for which each client waits.
    by_client: BTreeMap<ClientKey, (JobId, Wait)>,
    /// For each job, the numbers of the waits and their clients: the first has waited longest.
    by_job: OrderedQueue<(JobId, NonZeroU64, ClientKey)>,
    /// The waits with a time-out, by its end.
    by_end: OrderedQueue<(Timestamp, JobId, ClientKey)>,
    /// The jobs that were deleted or buried, each with the number of its last wait at that time: not all of their
    /// clients have been answered yet.
    ended: VecDeque<(JobId, NonZeroU64, AwaitedEnd)>,
}

impl Awaited {
    /// Whether there are clients to answer whose job has ended.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The client that has waited longest for a job that has ended, and its answer.
    fn next_answer(&mut self) -> Option<(ClientKey, WaitOutcome)> {
        loop {
            let &(id, last, end) = self.ended.front()?;
            if let Some((number, client)) = self.first_of(id)
                && number <= last
            {
                return Some((client, WaitOutcome::Ended(id, end)));
            }
            self.ended.pop_front();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.by_client.len() * WAIT_BYTES
    }

    /// The job for which the client waits, and its wait.
    pub(crate) fn wait_of(&self, client: ClientKey) -> Option<(JobId, Wait)> {
        self.by_client.get(&client).copied()
    }

    /// Whether every client that waited for this removed job has an answer or is due to get one.
    #[inline]
    pub(super) fn has_answered(&self, id: JobId) -> bool {
        self.first_of(id).is_none() || self.ended.iter().any(|&(ended, ..)| ended == id)
    }

    /// The client that has waited longest for this job, after the number of its wait.
    fn first_of(&self, id: JobId) -> Option<(NonZeroU64, ClientKey)> {
        // No job has the id 0.
        let (of, number, client) =
            self.by_job.first_after((JobId(id.0 - 1), NonZeroU64::MAX, ClientKey(u32::MAX)))?;
        (of == id).then_some((number, client))
    }
}

impl Rule for Awaited {
    const BURIED: Marks = Marks::AWAITED;
    fn buried(queue: &mut Queue, job: &MarkedJob<'_>) {
        queue.answer_job_waits(job.id, AwaitedEnd::Buried);
    }

    const ENDED: Marks = Marks::AWAITED;
    fn ended(queue: &mut Queue, job: &MarkedJob<'_>, _end: &mut JobEnd) {
        queue.answer_job_waits(job.id, AwaitedEnd::Deleted);
    }

    fn next_due(rules: &Rules) -> Option<DueKey> {
        if let Some(&(id, ..)) = rules.awaited.ended.front() {
            return Some((Timestamp::AT_ONCE, id));
        }
        rules.awaited.by_end.first().map(|(until, id, _)| (until, id))
    }

    /// Ends the wait whose time-out comes first.
    fn tick(queue: &mut Queue, _id: JobId) -> bool {
        if queue.rules.awaited.has_ended() {
            queue.answer_ended(1);
        } else if let Some((_, _, client)) = queue.rules.awaited.by_end.first() {
            queue.end_job_wait(client);
            queue.deliver(client, WaitOutcome::TimedOut);
        }
        false
    }

    #[inline]
    fn check(queue: &Queue) {
        let Self { by_client, by_job, by_end, ended } = &queue.rules.awaited;
        let jobs: BTreeSet<_> =
            by_client.iter().map(|(&client, &(id, wait))| (id, wait.number, client)).collect();
        assert!(jobs.into_iter().eq(by_job.iter()), "each wait is in the list of its job");
        let ends = by_client.iter().map(|(&client, &(id, wait))| (wait.until, id, client));
        let ends: BTreeSet<_> = ends.filter(|end| end.0 != Timestamp::NEVER).collect();
        assert!(ends.into_iter().eq(by_end.iter()), "each wait with an end is in the order of the ends");
        for id in queue.jobs.ids() {
            let is_marked = queue.jobs.get(id).is_some_and(|job| job.has(Marks::AWAITED));
            assert_eq!(
                is_marked,
                queue.rules.awaited.first_of(id).is_some(),
                "{id:?}: a job has the mark AWAITED while a client waits for it"
            );
        }
        for (&client, &(id, wait)) in by_client {
            assert!(queue.clients[client].wait().is_none(), "a client waits for one thing");
            if ended.iter().any(|&(of, last, _)| of == id && wait.number <= last) {
                continue;
            }
            let job = queue.jobs.expect(id);
            assert!(job.state() != JobState::Buried, "a wait ends with the burial");
        }
    }
}

impl Queue {
    /// The command `wait-job`. With a `timeout_s` of `None` the wait has no limit.
    pub fn wait_job(
        &mut self,
        client: ClientId,
        id: JobId,
        timeout_s: Option<Seconds>,
        now: Timestamp,
    ) -> WaitJob {
        match self.jobs.get(id).map(|job| job.state()) {
            None => return WaitJob::NotFound,
            Some(JobState::Buried) => return WaitJob::Buried,
            Some(JobState::Ready | JobState::Reserved | JobState::Delayed) => {}
        }
        if timeout_s == Some(Seconds::ZERO) {
            return WaitJob::TimedOut;
        }
        let number = self.clients.next_wait();
        let until = timeout_s.map_or(Timestamp::NEVER, |timeout| now.plus_seconds(timeout));
        self.begin_job_wait_as(client.key(), id, Wait { number, until });
        WaitJob::Waiting
    }

    /// Begins the client's wait for an existing job, with a number that the wait already has.
    pub(crate) fn begin_job_wait_as(&mut self, client: ClientKey, id: JobId, wait: Wait) {
        debug_assert!(self.can_wait(client), "a client waits for one thing");
        debug_assert!(
            self.is_linked(id) && !self.is_linked_as(id, JobState::Buried),
            "a buried job has its answer"
        );
        let awaited = &mut self.rules.awaited;
        awaited.by_client.insert(client, (id, wait));
        awaited.by_job.insert((id, wait.number, client));
        if wait.until != Timestamp::NEVER {
            awaited.by_end.insert((wait.until, id, client));
        }
        self.jobs.expect_mut(id).marks |= Marks::AWAITED;
        self.schedule(Timer::Rules);
    }

    /// The job for which the client waits.
    #[must_use]
    pub fn awaited_by(&self, client: ClientId) -> Option<JobId> {
        self.rules.awaited.wait_of(client.key()).map(|(id, _)| id)
    }

    /// Ends the client's wait for a job; returns whether it waited.
    #[inline]
    pub(crate) fn end_job_wait(&mut self, client: ClientKey) -> bool {
        !self.rules.awaited.by_client.is_empty() && self.forget_job_wait(client)
    }

    fn forget_job_wait(&mut self, client: ClientKey) -> bool {
        let awaited = &mut self.rules.awaited;
        let Some((id, wait)) = awaited.by_client.remove(&client) else { return false };
        let found = awaited.by_job.remove((id, wait.number, client));
        debug_assert!(found.is_some(), "each wait is in the list of its job");
        let found = awaited.by_end.remove((wait.until, id, client));
        debug_assert_eq!(
            found.is_some(),
            wait.until != Timestamp::NEVER,
            "a wait with an end is in the order of the ends"
        );
        if awaited.first_of(id).is_none() && self.jobs.get(id).is_some() {
            self.jobs.expect_mut(id).marks &= !Marks::AWAITED;
        }
        true
    }

    /// Ends the waits of all clients that wait for this job.
    fn answer_job_waits(&mut self, id: JobId, end: AwaitedEnd) {
        // Later waits have larger numbers.
        let Some(last) = NonZeroU64::new(self.clients.waits) else { return };
        self.rules.awaited.ended.push_back((id, last, end));
        self.answer_ended(ANSWERS_AT_ONCE);
        if self.rules.awaited.has_ended() {
            self.schedule(Timer::Rules);
        }
    }

    /// Answers a client before the others if its job has ended; returns whether it has.
    pub(crate) fn answer_early(&mut self, client: ClientKey) -> bool {
        let awaited = &self.rules.awaited;
        let Some((id, wait)) = awaited.wait_of(client).filter(|_| awaited.has_ended()) else { return false };
        let is_meant = |&&(of, last, _): &&(JobId, NonZeroU64, AwaitedEnd)| of == id && wait.number <= last;
        let Some(&(.., end)) = awaited.ended.iter().find(is_meant) else { return false };
        self.forget_job_wait(client);
        self.deliver(client, WaitOutcome::Ended(id, end));
        debug_assert!(self.can_wait(client), "a client with an answer does not wait");
        true
    }

    /// Answers at most this many of the clients whose job has ended.
    fn answer_ended(&mut self, max_answers: usize) {
        for _ in 0..max_answers {
            let Some((client, outcome)) = self.rules.awaited.next_answer() else { return };
            self.forget_job_wait(client);
            self.deliver(client, outcome);
        }
        // Checks whether these were all.
        self.rules.awaited.next_answer();
    }
}
