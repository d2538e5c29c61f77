//! The life of a job: put, delete, release, bury, kick, touch.
//!
//! Each public method is a command that has passed its checks, or answers that the checks fail and
//! changes nothing. The two moves that all of them are made of, `unlink` (out of the queue that holds
//! the job) and one of `make_ready`, `delay` and `make_buried` (into the next), keep every counter.

use std::collections::TryReserveError;

use super::deadlines::Owner;
use super::jobs::{Job, Link, Place, marks};
use super::keys::{ReadyKey, Reservation, TubeKey};
use super::tagged::Ending;
use super::tube::Pause;
use super::{Change, ClientId, Queue};
use crate::clock::Timestamp;
use crate::job::{Body, Counters, JobId, JobRecord, JobState, Priority};

/// What a `put` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// The id that was assigned when the command was accepted.
    pub id: JobId,
    /// Its priority.
    pub priority: Priority,
    /// Seconds until it becomes ready.
    pub delay_s: u32,
    /// Time to run, in seconds; 0 means 1.
    pub ttr_s: u32,
}

/// Where a released job went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// To the ready or the delayed jobs, as asked.
    Queued,
    /// To the buried ones: it has been released as often as the limit allows.
    Buried,
}

impl Queue {
    /// Assigns the next job id to a `put` whose header is accepted.
    pub fn take_id(&mut self) -> JobId {
        let id = JobId(self.next_id);
        self.next_id += 1;
        id
    }

    /// The id that the next job gets.
    #[must_use]
    pub fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// Makes sure that ids below `next` are not assigned again.
    pub fn skip_ids_below(&mut self, next: u64) {
        self.next_id = self.next_id.max(next);
    }

    /// From now on the client counts as a producer.
    pub fn mark_producer(&mut self, client: ClientId) {
        let first = !std::mem::replace(&mut self.client_mut(client).producer, true);
        self.producers += u64::from(first);
    }

    /// From now on the client counts as a worker.
    pub(super) fn mark_worker(&mut self, client: ClientId) {
        let first = !std::mem::replace(&mut self.client_mut(client).worker, true);
        self.workers += u64::from(first);
    }

    /// Makes sure that there is room for the record of a `put`; nothing else changes.
    ///
    /// # Errors
    /// If the allocator has no memory.
    #[inline]
    pub fn reserve_put(&mut self) -> Result<(), TryReserveError> {
        self.jobs.reserve()
    }

    /// The command `put`, when the whole body has arrived. The job goes into the tube that the client uses.
    pub fn put(&mut self, client: ClientId, new: NewJob, body: Body, now: Timestamp) {
        debug_assert!(self.jobs.get(new.id).is_none(), "an id is given once");
        let tube = self.client(client).using;
        let job = Job::new(now, new.priority, new.delay_s, new.ttr_s.max(1), tube, body);
        self.jobs.insert(new.id, job);
        self.counters.puts += 1;
        self.tubes.get_mut(tube).puts += 1;
        self.note(Change::Put(new.id));
        if new.delay_s == 0 {
            self.enqueue(new.id, tube, new.priority, now);
        } else {
            let until = self.end_of_delay(new.delay_s, now);
            self.delay(new.id, until);
        }
        debug_assert!(self.is_linked(new.id));
    }

    /// Restores a job after a restart. A reservation does not survive a restart, so a reserved job becomes ready.
    pub fn restore(&mut self, record: &JobRecord, tube: &str, body: Body, now: Timestamp) {
        let job = self.restored(record, tube, body, now);
        self.jobs.insert(record.id, job);
        self.restore_history(record);
        self.restore_place(record, now);
        debug_assert!(self.is_linked(record.id));
    }

    /// The record of a job that is restored.
    pub(super) fn restored(&mut self, record: &JobRecord, tube: &str, body: Body, now: Timestamp) -> Job {
        let tube = self.tubes.find_or_make(tube);
        let mut job =
            Job::new(record.created_at, record.priority, record.delay_s, record.ttr_s.max(1), tube, body);
        // A record does not say when a job became ready, but for one that nothing has happened to.
        let since = match record.state {
            JobState::Delayed => record.deadline_at,
            _ if record.counters == Counters::default() => record.created_at.plus_seconds(record.delay_s),
            _ => now,
        };
        job.set_place(Place::Ready(since.min(now).0.into()));
        job
    }

    /// What has happened to a job that is restored.
    pub(super) fn restore_history(&mut self, record: &JobRecord) {
        if record.counters != Counters::default() {
            self.jobs.held_with_history(record.id).1.counters = record.counters;
        }
        self.skip_ids_below(record.id.0.saturating_add(1));
    }

    /// Puts a job that is restored where it belongs.
    pub(super) fn restore_place(&mut self, record: &JobRecord, now: Timestamp) {
        match record.state {
            JobState::Buried => self.make_buried(record.id),
            JobState::Delayed if record.deadline_at > now => self.delay(record.id, record.deadline_at),
            JobState::Delayed | JobState::Ready | JobState::Reserved => {
                let job = self.jobs.held(record.id);
                let (tube, marks) = (job.tube, job.marks);
                if marks == 0 {
                    self.enqueue(record.id, tube, record.priority, now);
                } else {
                    self.enqueue_tagged(record.id, now);
                }
            }
        }
    }

    /// The command `delete`. Returns the job's body if the job exists and no other client has reserved it.
    #[inline(always)]
    pub fn delete(&mut self, client: ClientId, id: JobId, now: Timestamp) -> Option<Body> {
        let job = self.jobs.get(id)?;
        let is_reserved = job.place().state() == JobState::Reserved;
        if is_reserved && self.jobs.history(job).holder != Some(client.index) {
            return None;
        }
        let (tube, link) = (job.tube, job.link());
        let since = self.unlink_from(id, link);
        let body = if link.marks == 0 {
            self.remove(id, tube)
        } else {
            self.remove_tagged(id, tube, Ending::Deleted, now)
        };
        if let Some(since) = since
            && let Some(times) = self.tubes.times(tube, now)
        {
            times.observe_run(now.since_ns(since), now);
        }
        if link.marks != 0 {
            self.settle(Some(client), now);
        }
        self.remove_tube_if_idle(tube);
        Some(body)
    }

    /// Ends a job of this tube that is in no queue, and returns its body; the caller looks whether the tube is to end, too.
    #[inline]
    pub(super) fn remove(&mut self, id: JobId, tube: TubeKey) -> Body {
        debug_assert!(!self.is_linked(id));
        let job = self.jobs.remove(id).expect("what a queue held is there");
        self.count(tube, |counters| &mut counters.deletes);
        self.note(Change::Deleted(id));
        job.body
    }

    /// Whether the client has reserved this job.
    #[must_use]
    pub fn holds(&self, client: ClientId, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| self.jobs.history(job).holder == Some(client.index))
    }

    /// The command `release`, by the client that has reserved the job.
    pub fn release(
        &mut self,
        client: ClientId,
        id: JobId,
        priority: Priority,
        delay_s: u32,
        now: Timestamp,
    ) -> Released {
        assert!(self.holds(client, id), "only the holder releases");
        self.unlink(id);
        let (job, history) = self.jobs.held_with_history(id);
        job.priority = Self::given_priority(job, priority);
        job.delay_s = delay_s;
        let marks = job.marks;
        history.counters.releases = history.counters.releases.saturating_add(1);
        let releases = history.counters.releases;
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.releases);
        self.note(Change::Updated(id));
        let is_poisoned = self.limits.releases.is_some_and(|limit| releases >= limit);
        if is_poisoned {
            self.bury_poisoned(id);
        } else if delay_s == 0 {
            self.make_ready(id, now);
        } else {
            let until = self.end_of_delay(delay_s, now);
            self.delay(id, until);
        }
        if marks != 0 {
            self.settle(Some(client), now);
        }
        debug_assert!(self.is_linked(id) && !self.holds(client, id));
        if is_poisoned { Released::Buried } else { Released::Queued }
    }

    /// The command `bury`, by the client that has reserved the job.
    pub fn bury(&mut self, client: ClientId, id: JobId, priority: Priority, now: Timestamp) {
        assert!(self.holds(client, id), "only the holder buries");
        self.unlink(id);
        let (job, history) = self.jobs.held_with_history(id);
        job.priority = Self::given_priority(job, priority);
        let marks = job.marks;
        history.counters.buries = history.counters.buries.saturating_add(1);
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.buries);
        self.note(Change::Updated(id));
        self.make_buried(id);
        if marks != 0 {
            self.settle(Some(client), now);
        }
        debug_assert!(self.is_linked(id) && !self.holds(client, id));
    }

    /// The command `touch`: the time to run starts again. Returns whether the client has reserved the job.
    pub fn touch(&mut self, client: ClientId, id: JobId, now: Timestamp) -> bool {
        if !self.holds(client, id) {
            return false;
        }
        debug_assert!(self.is_linked(id));
        let job = self.jobs.held(id);
        let before = job.place().deadline().expect("a reserved job has a deadline");
        let until = now.plus_seconds(job.ttr_s);
        job.set_place(Place::Reserved(until.0.into()));
        let reserved = &mut self.client_mut(client).reserved;
        let reservation = reserved.remove(Reservation::key(before, id));
        let reservation = reservation.expect("a reserved job stands among its holder's reservations");
        reserved.insert(Reservation { until, ..reservation });
        self.schedule(Owner::Client(client.index));
        debug_assert!(self.is_linked(id));
        true
    }

    /// The job that `kick` would take next from the client's tube: the oldest buried job or, if no job was
    /// buried at the start of the command (`state`), the delayed job that is due first.
    #[must_use]
    pub fn next_to_kick(&self, client: ClientId, state: JobState) -> Option<JobId> {
        match state {
            JobState::Buried => self.first_buried(client),
            JobState::Delayed => self.first_to_kick(client),
            JobState::Ready | JobState::Reserved => None,
        }
    }

    /// Whether a kick would move this job.
    #[must_use]
    pub fn is_kickable(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| {
            matches!(job.place().state(), JobState::Buried | JobState::Delayed) && !job.has(marks::HELD)
        })
    }

    /// Makes a buried or delayed job ready.
    pub fn kick(&mut self, id: JobId, now: Timestamp) {
        assert!(self.is_kickable(id), "only buried and delayed jobs are kicked");
        self.unlink(id);
        let (job, history) = self.jobs.held_with_history(id);
        history.counters.kicks = history.counters.kicks.saturating_add(1);
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.kicks);
        self.note(Change::Updated(id));
        self.make_ready(id, now);
    }

    /// The command `pause-tube`; returns whether the tube exists. 0 seconds end a pause at once.
    pub fn pause_tube(&mut self, name: &str, length_s: u32, now: Timestamp) -> bool {
        let Some(key) = self.tubes.find(name) else { return false };
        let until = now.plus_seconds(length_s);
        self.tubes.get_mut(key).set_pause(Pause { until, length_s });
        if length_s == 0 {
            self.end_pause(key, now);
        }
        self.schedule(Owner::Tube(key));
        true
    }

    /// Takes a job out of whatever holds it; the caller puts it somewhere else, or removes it. Returns since when it was
    /// reserved, if it was.
    pub(super) fn unlink(&mut self, id: JobId) -> Option<Timestamp> {
        let link = self.jobs.held(id).link();
        self.unlink_from(id, link)
    }

    /// As `unlink`, of a job that has been looked up.
    #[inline]
    fn unlink_from(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        debug_assert!(self.is_linked(id));
        let since = if link.marks == 0 { self.unlink_plain(id, link) } else { self.unlink_tagged(id, link) };
        debug_assert!(!self.is_linked(id));
        since
    }

    /// As `unlink_from`, of a job that is where jobs without tags are.
    pub(super) fn unlink_plain(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let Link { place, priority, tube: key, history, marks: _ } = link;
        let tube = self.tubes.get_mut(key);
        match place {
            Place::Ready(_) => {
                let found = tube.ready.remove(ReadyKey::new(priority, id));
                assert!(found.is_some(), "a ready job stands in its tube's ready queue");
                self.count_unready(key, priority);
            }
            Place::Delayed(until) => {
                let found = tube.delayed.remove((Timestamp(until.into()), id));
                assert!(found.is_some(), "a delayed job stands among its tube's delays");
                self.counts.delayed -= 1;
            }
            Place::Buried(number) => {
                let found = tube.buried.remove((number.into(), id));
                assert!(found.is_some(), "a buried job stands among its tube's buried jobs");
                self.counts.buried -= 1;
            }
            Place::Reserved(until) => {
                tube.reserved -= 1;
                self.counts.reserved -= 1;
                let holder = self.jobs.take_holder(history);
                let key = Reservation::key(Timestamp(until.into()), id);
                let found = self.clients[holder as usize].reserved.remove(key);
                let found = found.expect("a reserved job stands among its holder's reservations");
                return Some(found.since);
            }
        }
        None
    }

    /// A job has left its tube's ready queue.
    pub(super) fn count_unready(&mut self, tube: TubeKey, priority: Priority) {
        self.counts.ready -= 1;
        if priority.is_urgent() {
            self.counts.urgent -= 1;
            self.tubes.get_mut(tube).urgent -= 1;
        }
    }

    /// A job has come to its tube's ready ones.
    pub(super) fn count_ready(&mut self, tube: TubeKey, priority: Priority) {
        self.counts.ready += 1;
        if priority.is_urgent() {
            self.counts.urgent += 1;
            self.tubes.get_mut(tube).urgent += 1;
        }
    }

    /// When a delay ends that a command of this instant asks for. It is a nanosecond later than that of the command before,
    /// because many commands share an instant, and of equal delays the first is to end first.
    pub(super) fn end_of_delay(&mut self, delay_s: u32, now: Timestamp) -> Timestamp {
        self.last_delay = now.max(self.last_delay + 1);
        self.last_delay.plus_seconds(delay_s)
    }

    /// Puts a job among its tube's delayed ones.
    pub(super) fn delay(&mut self, id: JobId, until: Timestamp) {
        debug_assert!(!self.is_linked(id));
        let job = self.jobs.held(id);
        job.set_place(Place::Delayed(until.0.into()));
        let key = job.tube;
        self.flushes.note_moved(id, key);
        self.tubes.get_mut(key).delayed.insert((until, id));
        self.counts.delayed += 1;
        self.schedule(Owner::Tube(key));
        debug_assert!(self.is_linked(id));
    }

    /// Puts a job behind its tube's buried ones.
    fn make_buried(&mut self, id: JobId) {
        debug_assert!(!self.is_linked(id));
        let number = self.next_burial;
        self.next_burial += 1;
        let job = self.jobs.held(id);
        job.set_place(Place::Buried(number.into()));
        let (key, marks) = (job.tube, job.marks);
        self.flushes.note_moved(id, key);
        self.tubes.get_mut(key).buried.insert((number, id));
        self.counts.buried += 1;
        if marks != 0 {
            self.buried_tagged(id);
        }
        debug_assert!(self.is_linked(id));
    }

    /// Buries a job that has failed too often.
    pub(super) fn bury_poisoned(&mut self, id: JobId) {
        let (job, history) = self.jobs.held_with_history(id);
        history.counters.buries = history.counters.buries.saturating_add(1);
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.poisoned);
        self.make_buried(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::{PoisonLimits, Reserve};

    /// The waiting time that is counted when the job is reserved at once after it was restored.
    fn waited_s(state: JobState, deadline_at: Timestamp, counters: Counters) -> u64 {
        const NOW: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);
        let record = JobRecord {
            id: JobId(1),
            priority: Priority(0),
            delay_s: 30,
            ttr_s: 60,
            created_at: Timestamp(NOW.0 - 100 * NS_PER_S),
            deadline_at: Timestamp((NOW.0 + deadline_at.0).saturating_sub(1000 * NS_PER_S)),
            counters,
            state,
        };
        let mut queue = Queue::new(PoisonLimits::default());
        queue.restore(&record, "default", Body::copy_of(b"x").unwrap(), NOW);
        let worker = queue.connect();
        assert_eq!(queue.reserve(worker, Some(0), NOW), Reserve::Job(record.id));
        let tube = queue.tubes.get(queue.tubes.find("default").unwrap());
        tube.times().expect("a waiting time was counted").durations(NOW).0.max_ns / NS_PER_S
    }

    #[test]
    fn a_restored_job_has_waited_since_its_delay_ended_if_that_is_known() {
        let released = Counters { releases: 1, ..Counters::default() };
        let ago = |s: u64| Timestamp((1000 - s) * NS_PER_S);
        assert_eq!(waited_s(JobState::Ready, Timestamp(0), Counters::default()), 70);
        assert_eq!(waited_s(JobState::Ready, Timestamp(0), released), 0, "nobody knows when it became ready");
        assert_eq!(waited_s(JobState::Delayed, ago(20), Counters::default()), 20);
        assert_eq!(waited_s(JobState::Delayed, ago(20), released), 20);
        assert_eq!(waited_s(JobState::Delayed, ago(0), released), 0, "a delay that ends now is over");
    }
}
