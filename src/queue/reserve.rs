//! Reservations: who gets which job, who waits, and what the passing of time does.
//!
//! While a tube is not paused it has ready jobs or waiting clients, never both: whoever adds one
//! takes the other. So a job that becomes ready goes to the first waiting client without passing through the queue.

use super::client::Wait;
use super::deadlines::Owner;
use super::jobs::{Place, ReadyKey};
use super::tube::TubeKey;
use super::{Change, ClientId, Delivery, Queue, WaitOutcome};
use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Priority};

/// What comes of a reserve at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The client now holds this job.
    Job(JobId),
    /// There is no job, and one of its reservations is in its safety margin.
    DeadlineSoon,
    /// There is no job, and the client asked not to wait.
    TimedOut,
    /// The client waits; a [`Delivery`] will tell.
    Waiting,
}

/// How many things that are due one call of `advance` does at most: a million delays
/// that end in the same instant must not keep everybody waiting until all are moved.
const DUE_PER_ADVANCE: usize = 1024;

impl Queue {
    /// The commands `reserve` and `reserve-with-timeout`: the most urgent job of the watched tubes.
    /// `timeout_s` of `None` waits for ever.
    pub fn reserve(&mut self, client: ClientId, timeout_s: Option<u32>, now: Timestamp) -> Reserve {
        self.mark_worker(client);
        if let Some(tube) = self.most_urgent_tube(client)
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

    /// The command `reserve-job`: tells whether there is such a job that nobody holds.
    pub fn reserve_job(&mut self, client: ClientId, id: JobId, now: Timestamp) -> bool {
        if self.jobs.get(id).is_none_or(|job| job.place.state() == JobState::Reserved) {
            return false;
        }
        self.mark_worker(client);
        self.withdraw(id);
        self.assign(client.index, id, now);
        true
    }

    /// Ends the client's wait without an answer; tells whether it waited.
    pub fn stop_waiting(&mut self, client: ClientId) -> bool {
        let waited = self.client(client).wait.is_some();
        self.end_wait(client.index);
        waited
    }

    /// Does what has become due by `now`, the earliest first, and not more than a turn's share of it:
    /// while `next_deadline` is not after `now`, there is more to do.
    pub fn advance(&mut self, now: Timestamp) {
        for _ in 0..DUE_PER_ADVANCE {
            match self.deadlines.first() {
                Some((at, Owner::Tube(tube))) if at <= now => self.tube_is_due(tube, now),
                Some((at, Owner::Client(client))) if at <= now => self.client_is_due(client, now),
                _ => break,
            }
        }
    }

    /// Which of the tubes that the client watches and that are not paused has the most urgent job.
    fn most_urgent_tube(&self, client: ClientId) -> Option<TubeKey> {
        let open = self.client(client).watching.iter().filter(|&&key| self.tubes.get(key).pause.is_none());
        let first = open.filter_map(|&key| Some((self.tubes.get(key).ready.first()?, key)));
        first.min().map(|(_, key)| key)
    }

    fn take_first_ready(&mut self, tube: TubeKey) -> Option<JobId> {
        let id = self.tubes.get_mut(tube).ready.pop_first()?.id();
        let priority = self.jobs.held(id).priority;
        self.count_unready(tube, priority);
        Some(id)
    }

    /// Gives a job that no queue holds to a client.
    fn assign(&mut self, client: u32, id: JobId, now: Timestamp) {
        let (job, history) = self.jobs.held_with_history(id);
        let until = now.plus_seconds(job.ttr_s);
        job.place = Place::Reserved(until.0.into());
        history.holder = Some(client);
        history.counters.reserves = history.counters.reserves.saturating_add(1);
        let tube = job.tube;
        self.tubes.get_mut(tube).reserved += 1;
        self.counts.reserved += 1;
        self.count(tube, |flow| &mut flow.reserves);
        self.clients[client as usize].reserved.insert((until, id));
        self.reschedule_client(client);
        self.note(Change::Updated(id));
    }

    /// Puts a job that no queue holds among the ready ones, or into the hands of who waits for it.
    pub(super) fn make_ready(&mut self, id: JobId, now: Timestamp) {
        let job = self.jobs.held(id);
        job.place = Place::Ready;
        let (tube, priority) = (job.tube, job.priority);
        self.line_up(id, tube, priority, now);
    }

    /// As `make_ready`, for a job of this tube and priority whose place is set already.
    pub(super) fn line_up(&mut self, id: JobId, tube: TubeKey, priority: Priority, now: Timestamp) {
        let tube = self.tubes.get_mut(tube);
        if tube.pause.is_none()
            && let Some((_, client)) = tube.waiting.first()
        {
            self.hand_over(id, client, now);
            return;
        }
        tube.ready.insert(ReadyKey::new(priority, id));
        self.counts.ready += 1;
        if priority.is_urgent() {
            tube.urgent += 1;
            self.counts.urgent += 1;
        }
    }

    fn hand_over(&mut self, id: JobId, client: u32, now: Timestamp) {
        self.end_wait(client);
        self.assign(client, id, now);
        self.deliver(client, WaitOutcome::Reserved(id));
    }

    fn deliver(&mut self, index: u32, outcome: WaitOutcome) {
        let generation = self.clients[index as usize].generation;
        self.deliveries.push_back(Delivery { client: ClientId { index, generation }, outcome });
    }

    fn begin_wait(&mut self, index: u32, until: Timestamp) {
        let number = self.next_wait;
        self.next_wait += 1;
        let client = &mut self.clients[index as usize];
        client.wait = Some(Wait { number, until });
        for &tube in &client.watching {
            self.tubes.get_mut(tube).waiting.insert((number, index));
        }
        self.waiting += 1;
        self.reschedule_client(index);
    }

    /// Does nothing where the client does not wait.
    pub(super) fn end_wait(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        let Some(wait) = client.wait.take() else { return };
        for &tube in &client.watching {
            let found = self.tubes.get_mut(tube).waiting.remove((wait.number, index));
            assert!(found, "who waits stands in every watched tube");
        }
        self.waiting -= 1;
        self.reschedule_client(index);
    }

    /// A pause or a delay has ended. Of two the earlier is done first, and the delay where both end at
    /// once: whoever waits gets the most urgent of the jobs that are ready when the pause ends, however
    /// late its end is noticed.
    fn tube_is_due(&mut self, key: TubeKey, now: Timestamp) {
        let tube = self.tubes.get_mut(key);
        let delay = tube.delayed.first().map_or(Timestamp::NEVER, |(until, _)| until);
        if tube.pause.is_some_and(|pause| pause.until < delay && pause.until <= now) {
            self.end_pause(key, now);
        } else if let Some((_, id)) = tube.delayed.pop_first() {
            self.counts.delayed -= 1;
            self.make_ready(id, now);
        }
        self.reschedule_tube(key);
    }

    /// Lets jobs be reserved from a tube again; whoever waits for one has it.
    pub(super) fn end_pause(&mut self, key: TubeKey, now: Timestamp) {
        self.tubes.get_mut(key).pause = None;
        while let Some((_, client)) = self.tubes.get(key).waiting.first()
            && let Some(id) = self.take_first_ready(key)
        {
            self.hand_over(id, client, now);
        }
    }

    /// A wait, or a reservation, has ended. A waiting client's safety margin begins before its
    /// reservation ends, so it is told, and no longer waits, before it loses the job.
    fn client_is_due(&mut self, index: u32, now: Timestamp) {
        let client = &self.clients[index as usize];
        if let Some(wait) = client.wait {
            let soon = client.margin_at().is_some_and(|margin| margin <= wait.until);
            self.end_wait(index);
            self.deliver(index, if soon { WaitOutcome::DeadlineSoon } else { WaitOutcome::TimedOut });
        } else if let Some((_, id)) = client.reserved.first() {
            self.time_out(id, now);
        }
    }

    /// The time to run is over: the job becomes ready again, unless that has happened too often.
    fn time_out(&mut self, id: JobId, now: Timestamp) {
        self.withdraw(id);
        let (job, history) = self.jobs.held_with_history(id);
        history.counters.timeouts = history.counters.timeouts.saturating_add(1);
        let timeouts = history.counters.timeouts;
        let tube = job.tube;
        self.count(tube, |flow| &mut flow.timeouts);
        self.note(Change::Updated(id));
        if self.limits.timeouts.is_some_and(|limit| timeouts >= limit) {
            self.bury_poisoned(id);
        } else {
            self.make_ready(id, now);
        }
    }
}
