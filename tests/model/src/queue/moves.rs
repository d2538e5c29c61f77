//! The moves of a job between its states, of which the operations consist.

use beanstalkd_queue::{AwaitedEnd, Change, TubeCounters, WaitOutcome};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::JobId;
use beanstalkd_types::seconds::Seconds;

use super::{Model, State, TubeIndex, Wait, after_s};
use crate::tags::id_key;

impl Model {
    /// The client that has waited longest for a job of this tube.
    pub(crate) fn first_waiting(&self, tube: TubeIndex) -> Option<u32> {
        let waiting = self.clients.iter().filter(|client| client.watching.contains(&tube));
        let waiting = waiting.filter_map(|client| Some((client.wait?.number, client.index)));
        waiting.min().map(|(_, index)| index)
    }

    /// A reserved job, or one that has died, becomes ready. Before it goes to a waiting client, more urgent jobs whose
    /// slots are free now do.
    pub(crate) fn give_back(&mut self, id: u64, now: Timestamp) {
        let job = self.job_mut(id);
        job.state = State::Delayed { until: now };
        let key = id_key(job);
        self.serve_before(key, now);
        self.make_ready(id, now);
    }

    /// The end of a delay that a command sets. Of equal delays, the first ends first.
    pub(crate) fn end_of_delay(&mut self, delay_s: Seconds, now: Timestamp) -> Timestamp {
        self.last_delay = now.max(Timestamp(self.last_delay.0 + 1));
        after_s(self.last_delay, delay_s)
    }

    pub(crate) fn make_ready(&mut self, id: u64, now: Timestamp) {
        self.make_ready_since(id, now, now);
    }

    pub(crate) fn make_ready_since(&mut self, id: u64, since: Timestamp, now: Timestamp) {
        let tube = self.job(id).expect("the job is there").tube;
        let is_awaited = self.lets_through(tube) && self.first_waiting(tube).is_some();
        if is_awaited && self.ends_instead(id, now) {
            return;
        }
        let job = self.job_mut(id);
        (job.state, job.ready_since) = (State::Ready, since);
        if self.lets_through(tube)
            && self.may_be_reserved(self.job(id).expect("the job is there"))
            && !self.is_behind(id)
            && let Some(client) = self.first_waiting(tube)
        {
            self.deliver_job(client, id, now);
        } else {
            self.line_up(id);
        }
    }

    pub(crate) fn deliver_job(&mut self, client: u32, id: u64, now: Timestamp) {
        self.client_mut(client).wait = None;
        if self.job_mut(id).is_in_front {
            self.advance_rotation(id);
        }
        self.assign(client, id, now);
        self.deliveries.push((client, WaitOutcome::Reserved(JobId(id))));
    }

    pub(crate) fn assign(&mut self, client: u32, id: u64, now: Timestamp) {
        let by = self.holder_for(client);
        let job = self.job_mut(id);
        let wait_ns = (job.state == State::Ready).then(|| now.since_ns(job.ready_since));
        job.state = State::Reserved { until: after_s(now, job.ttr_s), by };
        job.reserved_since = now;
        (job.upgraded, job.is_left) = (false, false);
        job.counters.reserves += 1;
        let (tube, tag) = (job.tube, job.tags.concurrency);
        self.tube_mut(tube).waits.extend(wait_ns.map(|ns| (now, ns)));
        self.count(tube, |counters| &mut counters.reserves);
        self.pass_gate(tube, now);
        self.note(if by == client {
            Change::Reserved(JobId(id))
        } else {
            Change::SessionReserved(JobId(id))
        });
        self.bring_next(tube, tag, id);
    }

    pub(crate) fn make_buried(&mut self, id: u64) {
        self.job_mut(id).counters.buries += 1;
        self.put_among_buried(id);
    }

    pub(crate) fn next_burial(&mut self) -> u64 {
        self.next_burial += 1;
        self.next_burial - 1
    }

    pub(crate) fn put_among_buried(&mut self, id: u64) {
        let number = self.next_burial();
        let before = self.job(id).expect("it is there").clone();
        self.job_mut(id).state = State::Buried { number };
        self.burials.push(JobId(id));
        self.leave_front(&before);
        self.answer_job_waits(id, AwaitedEnd::Buried);
    }

    /// The command `wait-job`.
    pub fn wait_job(
        &mut self,
        client: u32,
        id: u64,
        timeout_s: Option<Seconds>,
        now: Timestamp,
    ) -> Option<&'static str> {
        match self.job(id).map(|job| job.state) {
            None => return Some("NOT_FOUND"),
            Some(State::Buried { .. }) => return Some("BURIED"),
            Some(_) if timeout_s == Some(Seconds::ZERO) => return Some("TIMED_OUT"),
            Some(_) => {}
        }
        let wait = Wait { number: self.next_wait, until: timeout_s.map(|timeout| after_s(now, timeout)) };
        self.next_wait += 1;
        self.client_mut(client).job_wait = Some((id, wait));
        None
    }

    /// The job is buried or gone: answers the clients that wait for it, first the one that has waited longest.
    pub(crate) fn answer_job_waits(&mut self, id: u64, end: AwaitedEnd) {
        let waits = self.clients.iter().filter_map(|client| Some((client.job_wait?, client.index)));
        let mut waits: Vec<_> = waits
            .filter(|((job, _), _)| *job == id)
            .map(|((_, wait), client)| (wait.number, client))
            .collect();
        waits.sort_unstable();
        for (_, client) in waits {
            self.client_mut(client).job_wait = None;
            self.deliveries.push((client, WaitOutcome::Ended(JobId(id), end)));
        }
    }

    pub(crate) fn bury_poisoned(&mut self, id: u64) {
        let tube = self.job_mut(id).tube;
        self.count(tube, |counters| &mut counters.poisoned);
        self.make_buried(id);
    }

    pub(crate) fn count(&mut self, tube: TubeIndex, counter: impl Fn(&mut TubeCounters) -> &mut u64) {
        *counter(&mut self.counters) += 1;
        *counter(&mut self.tube_mut(tube).counters) += 1;
    }

    /// Records a change for the binlog. A second update of the job that was recorded last is not recorded.
    pub(crate) fn note(&mut self, change: Change) {
        if let Change::Updated(id) | Change::Postponable(id) | Change::Reserved(id) = change {
            let same = [Change::Put(id), Change::Updated(id), Change::Postponable(id), Change::Moved(id)];
            if self.changes.last().is_some_and(|last| same.contains(last)) {
                return;
            }
            self.changes.pop_if(|last| *last == Change::Reserved(id));
        }
        self.changes.push(change);
    }
}
