//! `reserve` and `reserve-job`: a client gets a job, or begins to wait for one.
//!
//! Owns: the move that reserves a job (`assign`), at once or for a client that has waited. For clients that watch many
//! tubes or have a reserve mode, `many_tubes` and `modes` choose the tube.

use beanstalkd_structures::Timer;

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::operations::many_tubes::ReserveSearch;
use crate::seconds::Seconds;
use crate::state::jobs::{Collection, Marks};
use crate::state::keys::{ClientKey, Reservation, TubeKey};
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
        let tube = if record.is_plain && !self.rules.must_refresh_heads {
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
    pub(crate) fn mark_worker(&mut self, client: ClientId) {
        let first = !std::mem::replace(&mut self.client_mut(client).has_reserved, true);
        self.clients.counts.workers += u64::from(first);
        debug_assert!(self.clients.counts.workers <= self.clients.records.len() as u64, "each counts once");
    }

    /// The one of these tubes, without paused ones, that has the most urgent job.
    pub(crate) fn most_urgent_of(&self, tubes: &[TubeKey]) -> Option<TubeKey> {
        let open = tubes.iter().filter(|&&key| self.tubes.get(key).is_open());
        let first = open.filter_map(|&key| Some((self.tubes.get(key).ready.first()?, key)));
        first.min().map(|(_, key)| key)
    }

    pub(crate) fn take_first_ready(&mut self, tube: TubeKey) -> Option<JobId> {
        let before = in_debug(|| self.counted(tube));
        let record = self.tubes.get_mut(tube);
        let first = record.ready.pop_first()?;
        if record.ruled.as_ref().is_some_and(|ruled| ruled.turns.is_some()) {
            self.took_turn(first, tube);
        }
        self.count_unready(tube, first.priority());
        debug_assert!(!self.is_linked(first.job()), "a job that was taken out is in no collection");
        debug_assert_eq!(
            self.counted(tube),
            before.less(JobState::Ready, first.priority()),
            "one less is counted"
        );
        Some(first.job())
    }

    /// Reserves a job that is in no queue, for a client, or for its session if it has one.
    pub(crate) fn assign(&mut self, client: ClientKey, id: JobId, now: Timestamp) {
        debug_assert!(!self.is_linked(id), "a job that is reserved was taken out of its collection");
        debug_assert!(self.can_wait(client), "a client that gets a job is connected and does not wait");
        debug_assert!(self.may_be_reserved(id), "no rule keeps the job back");
        let counts = in_debug(|| self.counted_with(id));
        let holder = self.holder_for(client);
        let (is_of_session, client) = (holder != client, holder);
        let (job, history) = self.jobs.expect_with_history(id);
        debug_assert!(history.holder.is_none(), "no client has reserved the job");
        let until = now.plus_seconds(job.ttr());
        let before = job.collection();
        job.set_collection(Collection::Reserved(until.0.into()));
        history.holder = Some(client);
        history.counters.reserves = history.counters.reserves.saturating_add(1);
        let (tube, marked, priority) = (job.tube, job.marks, job.priority);
        let record = self.tubes.get_mut(tube);
        record.reserved += 1;
        if record.ruled.as_ref().is_some_and(|ruled| ruled.has_gate()) {
            self.pass_gate(tube, now);
        }
        self.sums.jobs.reserved += 1;
        self.count(tube, |counters| &mut counters.reserves);
        if let Collection::Ready(since) = before {
            self.observe_wait(tube, Timestamp::from(since), now);
        }
        let reserved = &mut self.clients[client].reserved;
        let reservation = Reservation { until, id, since: now };
        reserved.insert(reservation);
        // Later reservations do not change the deadline.
        if reserved.first() == Some(reservation) {
            self.schedule(Timer::Client(client));
        }
        self.note(if is_of_session { Change::SessionReserved(id) } else { Change::Reserved(id) });
        // The job still counts for the rule of its tube.
        if marked.intersects(!Marks::RULED) {
            self.reserved_marked(id);
        }
        debug_assert!(self.is_linked_as(id, JobState::Reserved));
        debug_assert_eq!(
            self.counted(tube),
            counts.more(JobState::Reserved, priority),
            "one more is counted"
        );
        debug_assert!(
            self.is_scheduled(Timer::Client(client)),
            "the end of the reservation is not passed over"
        );
    }

    /// Counts the waiting time of a job that has been ready since the instant `since` and is now reserved.
    #[inline]
    fn observe_wait(&mut self, tube: TubeKey, since: Timestamp, now: Timestamp) {
        if let Some(times) = self.tubes.times_mut(tube, now) {
            times.observe_wait(now.since_ns(since), now);
        }
    }
}
