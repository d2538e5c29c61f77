//! Reservations: which client gets which job, which clients wait, and what the passing of time does.
//!
//! A tube that is not paused has ready jobs that may be reserved or waiting clients, never both: a job that may be
//! reserved from now on goes directly to the first waiting client, and a client waits only if there is no such job. A
//! tube's ready queue has these jobs alone; the others are parked (`tagged`).

use super::client::Wait;
use super::deadlines::Owner;
use super::jobs::Place;
use super::keys::{ReadyKey, Reservation, TubeKey, WaitKey};
use super::tube::Tube;
use super::wide::Search;
use super::{Change, ClientId, Delivery, JobCounts, Queue, WaitOutcome};
use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Priority};

/// The immediate result of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The client has now reserved this job.
    Job(JobId),
    /// There is no job, and one of its reservations is in its safety margin.
    DeadlineSoon,
    /// There is no job, and the client asked not to wait.
    TimedOut,
    /// The client waits; a [`Delivery`] will tell.
    Waiting,
    /// There are more tubes than one call looks at: the caller must call again.
    Unfinished,
}

/// What has become of a call of `advance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advanced {
    /// Whether there may be more to do at once.
    pub has_more: bool,
    /// Whether delays have ended.
    pub have_delays_ended: bool,
}

/// How many things that are due one call of `advance` does at most: a million delays
/// that end in the same instant must not keep everybody waiting until all are moved. What has tags takes some microseconds.
const DUE_PER_ADVANCE: u64 = 32;

/// What a delivery costs beside the command that makes it: a system call of its own, because it goes to another client.
pub(super) const WORK_PER_DELIVERY: u64 = 32;

impl Queue {
    /// The reserves: the most urgent job of the watched tubes, or, in another mode, that of the tube that is chosen.
    /// `timeout_s` of `None` waits for ever.
    #[inline(always)]
    pub fn reserve(&mut self, client: ClientId, timeout_s: Option<u32>, now: Timestamp) -> Reserve {
        self.mark_worker(client);
        let record = self.client(client);
        let tube = if record.is_plain && !self.is_unsettled {
            self.most_urgent_of(&record.watching)
        } else {
            match self.search(client.index, now) {
                Search::Found(tube) => Some(tube),
                Search::Nothing => None,
                Search::Unfinished => return Reserve::Unfinished,
            }
        };
        if let Some(tube) = tube
            && let Some(id) = self.take_first_ready(tube)
        {
            self.assign(client.index, id, now);
            return Reserve::Job(id);
        }
        if self.client(client).margin_at().is_some_and(|margin| margin <= now) {
            return Reserve::DeadlineSoon;
        }
        if timeout_s == Some(0) {
            return Reserve::TimedOut;
        }
        let until = timeout_s.map_or(Timestamp::NEVER, |timeout| now.plus_seconds(timeout));
        self.begin_wait(client.index, until);
        Reserve::Waiting
    }

    /// The command `reserve-job`; returns whether the job exists, no client had reserved it, and its tags allow it.
    pub fn reserve_job(&mut self, client: ClientId, id: JobId, now: Timestamp) -> bool {
        match self.jobs.get(id) {
            Some(job) if job.place().state() == JobState::Reserved => return false,
            Some(job) if job.marks != 0 && !self.may_be_reserved(id) => return false,
            Some(_) => {}
            None => return false,
        }
        self.mark_worker(client);
        self.unlink(id);
        self.assign(client.index, id, now);
        true
    }

    /// Whether the client waits in a reserve.
    #[must_use]
    pub fn is_waiting(&self, client: ClientId) -> bool {
        self.client(client).wait.is_some()
    }

    /// Ends the client's wait without a delivery; returns whether it waited.
    pub fn stop_waiting(&mut self, client: ClientId) -> bool {
        let waited = self.client(client).wait.is_some();
        self.end_wait(client.index);
        waited
    }

    /// Does what has become due by `now`, the earliest first, and not more than a share of it, which takes a fraction of a
    /// turn: while `next_deadline` is not after `now`, there is more to do.
    #[inline]
    pub fn advance(&mut self, now: Timestamp) -> Advanced {
        let delayed = self.counts.delayed;
        let mut has_more = false;
        if !self.leaving.is_empty() {
            self.go_on_leaving(now);
            has_more = !self.leaving.is_empty();
        }
        if self.is_unsettled {
            self.go_on_offering(now);
            has_more |= self.has_more_to_do();
        }
        let end = self.work + DUE_PER_ADVANCE;
        while self.work < end {
            self.work += 1;
            if self.frees_jobs() {
                self.go_on_freeing(now);
                continue;
            }
            let Some((at, owner)) = self.deadlines.first().filter(|&(at, _)| at <= now) else { break };
            // What has moved away is not due yet.
            if self.deadline_of(owner) == Some(at) {
                match owner {
                    Owner::Tube(tube) => self.tube_is_due(tube, now),
                    Owner::Client(client) => self.client_is_due(client, now),
                    Owner::Tags => self.tags_are_due(now),
                }
            }
            self.deadlines.set(owner, self.deadline_of(owner));
        }
        Advanced { has_more: has_more || self.work >= end, have_delays_ended: self.counts.delayed < delayed }
    }

    /// Which of these tubes, of those that are not paused, has the most urgent job.
    pub(super) fn most_urgent_of(&self, tubes: &[TubeKey]) -> Option<TubeKey> {
        let open = tubes.iter().filter(|&&key| self.tubes.get(key).pause.is_none());
        let first = open.filter_map(|&key| Some((self.tubes.get(key).ready.first()?, key)));
        first.min().map(|(_, key)| key)
    }

    fn take_first_ready(&mut self, tube: TubeKey) -> Option<JobId> {
        let first = self.tubes.get_mut(tube).ready.pop_first()?;
        self.count_unready(tube, first.priority());
        Some(first.job())
    }

    /// Reserves a job that is in no queue for a client.
    fn assign(&mut self, client: u32, id: JobId, now: Timestamp) {
        debug_assert!(!self.is_linked(id));
        let (job, history) = self.jobs.held_with_history(id);
        let until = now.plus_seconds(job.ttr_s);
        let before = job.place();
        job.set_place(Place::Reserved(until.0.into()));
        history.holder = Some(client);
        history.counters.reserves = history.counters.reserves.saturating_add(1);
        let (tube, marks) = (job.tube, job.marks);
        self.tubes.get_mut(tube).reserved += 1;
        self.counts.reserved += 1;
        self.count(tube, |counters| &mut counters.reserves);
        if let Place::Ready(since) = before {
            self.observe_wait(tube, Timestamp(since.into()), now);
        }
        let reserved = &mut self.clients[client as usize].reserved;
        let reservation = Reservation { until, id, since: now };
        reserved.insert(reservation);
        // The others end later, and change no deadline.
        if reserved.first() == Some(reservation) {
            self.schedule(Owner::Client(client));
        }
        self.note(Change::Updated(id));
        if marks != 0 {
            self.assigned_tagged(id);
        }
        debug_assert!(self.is_linked(id));
    }

    /// A job of the tube is reserved that was ready since then.
    #[inline]
    fn observe_wait(&mut self, tube: TubeKey, since: Timestamp, now: Timestamp) {
        if let Some(times) = self.tubes.times(tube, now) {
            times.observe_wait(now.since_ns(since), now);
        }
    }

    /// Makes a job that is in no queue ready, or gives it to a client that waits for it.
    pub(super) fn make_ready(&mut self, id: JobId, now: Timestamp) {
        self.make_ready_since(id, now, now);
    }

    /// As `make_ready`, for a job that should have been ready `since` then.
    pub(super) fn make_ready_since(&mut self, id: JobId, since: Timestamp, now: Timestamp) {
        debug_assert!(!self.is_linked(id));
        let job = self.jobs.held(id);
        job.set_place(Place::Ready(since.0.into()));
        let (tube, priority, marks) = (job.tube, job.priority, job.marks);
        self.flushes.note_moved(id, tube);
        if marks == 0 {
            self.enqueue(id, tube, priority, now);
        } else {
            self.enqueue_tagged(id, now);
        }
        debug_assert!(self.is_linked(id));
    }

    /// As `make_ready`, for a job of this tube and priority whose place is set already, and which may be reserved.
    #[inline]
    pub(super) fn enqueue(&mut self, id: JobId, tube: TubeKey, priority: Priority, now: Timestamp) {
        let record = self.tubes.get_mut(tube);
        if record.pause.is_none() && !(record.waiting.is_empty() && self.subscribers.is_empty()) {
            self.offer(id, tube, priority, now);
        } else {
            push_ready(record, &mut self.counts, id, priority);
        }
    }

    /// As `enqueue`, where clients may wait for the job, or want to know of it. Apart, so that the usual path is short.
    #[inline(never)]
    fn offer(&mut self, id: JobId, tube: TubeKey, priority: Priority, now: Timestamp) {
        if let Some((_, client)) = self.first_waiting(tube) {
            self.deliver_job(id, client, now);
            return;
        }
        let record = self.tubes.get_mut(tube);
        push_ready(record, &mut self.counts, id, priority);
        if record.ready.first().map(ReadyKey::job) == Some(id) {
            self.announce(tube);
        }
    }

    /// The client that has waited longest for a job of this tube.
    pub(super) fn first_waiting(&mut self, tube: TubeKey) -> Option<WaitKey> {
        let narrow = self.tubes.get(tube).waiting.first();
        if self.wide_waiting.is_empty() {
            return narrow;
        }
        [narrow, self.first_wide_waiting(tube)].into_iter().flatten().min()
    }

    fn deliver_job(&mut self, id: JobId, client: u32, now: Timestamp) {
        self.end_wait(client);
        self.assign(client, id, now);
        self.deliver(client, WaitOutcome::Reserved(id));
    }

    fn deliver(&mut self, index: u32, outcome: WaitOutcome) {
        let generation = self.clients[index as usize].generation;
        self.deliveries.push_back(Delivery { client: ClientId { index, generation }, outcome });
        self.work += WORK_PER_DELIVERY;
    }

    fn begin_wait(&mut self, index: u32, until: Timestamp) {
        let number = self.next_wait;
        self.next_wait = number.saturating_add(1);
        let client = &mut self.clients[index as usize];
        client.wait = Some(Wait { number, until });
        let number = number.get();
        if client.wide.is_some() {
            self.wide_waiting.insert((number, index));
        } else {
            for &tube in &client.watching {
                self.tubes.get_mut(tube).waiting.insert((number, index));
            }
        }
        self.waiting += 1;
        self.schedule(Owner::Client(index));
    }

    /// Does nothing if the client does not wait.
    pub(super) fn end_wait(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        let Some(wait) = client.wait.take() else { return };
        let number = wait.number.get();
        if client.wide.is_some() {
            let found = self.wide_waiting.remove((number, index));
            assert!(found.is_some(), "who waits stands among those who wait");
        } else {
            for &tube in &client.watching {
                let found = self.tubes.get_mut(tube).waiting.remove((number, index));
                assert!(found.is_some(), "who waits stands in every watched tube");
            }
        }
        self.waiting -= 1;
    }

    /// A pause or a delay has ended. If both have, the earlier one is processed first, and the delay first if they
    /// end at the same instant. A waiting client therefore gets the most urgent of the jobs that are ready when the
    /// pause ends, however late the server notices its end.
    fn tube_is_due(&mut self, key: TubeKey, now: Timestamp) {
        let tube = self.tubes.get_mut(key);
        let delay = tube.delayed.first().map_or(Timestamp::NEVER, |(until, _)| until);
        if tube.pause.is_some_and(|pause| pause.until < delay && pause.until <= now) {
            self.end_pause(key, now);
        } else if let Some((until, id)) = tube.delayed.pop_first() {
            self.counts.delayed -= 1;
            self.make_ready_since(id, until, now);
        }
    }

    /// Ends a tube's pause: waiting clients get its ready jobs, a limited number at a time.
    pub(super) fn end_pause(&mut self, key: TubeKey, now: Timestamp) {
        let mut looks = self.shares.looked_at;
        for _ in 0..self.shares.delivered {
            let Some((_, client)) = self.first_waiting(key) else { break };
            if self.is_unsettled && !self.park_used_up(key, &mut looks) {
                break;
            }
            let Some(id) = self.take_first_ready(key) else { break };
            self.deliver_job(id, client, now);
        }
        let has_ready = !self.tubes.get(key).ready.is_empty();
        // While ready jobs and waiting clients are left, the tube stays paused and due.
        if has_ready && self.first_waiting(key).is_some() {
            return;
        }
        self.tubes.get_mut(key).pause = None;
        if has_ready {
            self.announce(key);
        }
    }

    /// A wait or a reservation has ended. A waiting client's safety margin begins before its
    /// reservation ends, so the client gets DEADLINE_SOON and stops waiting before it loses the job.
    fn client_is_due(&mut self, index: u32, now: Timestamp) {
        let client = &self.clients[index as usize];
        if let Some(wait) = client.wait {
            let soon = client.margin_at().is_some_and(|margin| margin <= wait.until);
            self.end_wait(index);
            self.deliver(index, if soon { WaitOutcome::DeadlineSoon } else { WaitOutcome::TimedOut });
        } else if let Some(Reservation { id, .. }) = client.reserved.first() {
            self.time_out(id, now);
        }
    }

    /// The time to run is over: the job becomes ready again, or is buried if this has happened too often.
    fn time_out(&mut self, id: JobId, now: Timestamp) {
        self.unlink(id);
        let (job, history) = self.jobs.held_with_history(id);
        history.counters.timeouts = history.counters.timeouts.saturating_add(1);
        let timeouts = history.counters.timeouts;
        let (tube, marks) = (job.tube, job.marks);
        self.count(tube, |counters| &mut counters.timeouts);
        self.note(Change::Updated(id));
        if self.limits.timeouts.is_some_and(|limit| timeouts >= limit) {
            self.bury_poisoned(id);
        } else {
            self.make_ready(id, now);
        }
        if marks != 0 {
            self.settle(None, now);
        }
        debug_assert!(self.is_linked(id));
    }
}

/// Adds a job to its tube's ready queue.
#[inline(always)]
fn push_ready(tube: &mut Tube, counts: &mut JobCounts, id: JobId, priority: Priority) {
    tube.ready.insert(ReadyKey::new(priority, id));
    counts.ready += 1;
    if priority.is_urgent() {
        tube.urgent += 1;
        counts.urgent += 1;
    }
}
