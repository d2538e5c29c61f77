//! New jobs: `put`, and the jobs restored from a log.
//!
//! Owns: the ids, which are assigned here in ascending order and never twice, and the ends of new delays. After
//! `make_room_for_put`, a put can lack memory only for its tags.

use std::collections::TryReserveError;

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{Body, Counters, JobId, JobRecord, JobState, Priority};
use crate::rules::unique::Duplicate;
use crate::seconds::Seconds;
use crate::state::jobs::{Collection, Job, Marks};
use crate::state::keys::TubeKey;
use crate::state::stored_body::StoredBody;
use crate::tags::{After, EncodedTags, JobTags, TagSet};
use crate::{Change, ClientId, Queue};

/// The job of a `put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct NewJob {
    /// The id that was assigned when the command was accepted.
    pub id: JobId,
    pub priority: Priority,
    pub delay_s: Seconds,
    /// Time to run; less than a second means 1.
    pub ttr_s: Seconds,
}

impl Queue {
    /// Assigns the next job id to a `put` whose header is accepted.
    pub fn allocate_id(&mut self) -> JobId {
        let id = JobId(self.numbers.next_id);
        self.numbers.next_id += 1;
        debug_assert!(self.jobs.get(id).is_none() && self.cooldown(id).is_none(), "an id is given once");
        id
    }

    /// The duplicate of a `put` with these tags, if there is one: in this tube, or in the one that the client uses.
    /// Ends a job with the key whose time is over.
    #[inline]
    pub fn duplicate(
        &mut self,
        client: ClientId,
        tube: Option<&str>,
        tags: &TagSet<'_>,
        now: Timestamp,
    ) -> Option<Duplicate> {
        let key = tags.idempotency?.key;
        loop {
            match self.holder_of_key(self.find_target(client, tube)?, key, now)? {
                Duplicate::Of(first, _) if self.end_overdue_and_serve(first, now) => {}
                duplicate @ (Duplicate::Of(..) | Duplicate::OfDeleted(_)) => return Some(duplicate),
            }
        }
    }

    /// The id that the next job gets.
    #[must_use]
    pub fn next_id(&self) -> JobId {
        JobId(self.numbers.next_id)
    }

    /// From now on the client counts as a producer.
    #[inline]
    pub fn mark_producer(&mut self, client: ClientId) {
        let first = !std::mem::replace(&mut self.client_mut(client).has_put, true);
        self.clients.counts.producers += u64::from(first);
        debug_assert!(self.clients.counts.producers <= self.clients.records.len() as u64, "each counts once");
    }

    /// Makes sure that there is room for the record of a `put`; nothing else changes.
    ///
    /// # Errors
    /// If the allocator has no memory.
    #[inline]
    pub fn make_room_for_put(&mut self) -> Result<(), TryReserveError> {
        self.jobs.try_reserve()
    }

    /// The command `put`, when the whole body has arrived. The job goes into the tube that the client uses.
    #[inline]
    pub fn put(&mut self, client: ClientId, new: NewJob, body: Body, now: Timestamp) {
        self.put_into(self.client(client).using, new, body, now);
    }

    /// Stores a job without tags.
    pub(super) fn put_into(&mut self, tube: TubeKey, new: NewJob, body: Body, now: Timestamp) {
        debug_assert!(self.jobs.get(new.id).is_none(), "an id is given once");
        debug_assert!(new.id < self.next_id(), "the id of a new job has been taken");
        let before = in_debug(|| self.counted(tube));
        let job = Job::new(now, new.priority, new.delay_s, new.ttr_s.at_least_one(), tube, body);
        self.jobs.insert(new.id, job);
        self.sums.events.puts += 1;
        self.tubes.get_mut(tube).puts += 1;
        self.added_plain(new.id, tube);
        self.note(Change::Put(new.id));
        self.flushes.note_arrival(new.id, tube);
        if new.delay_s.is_zero() {
            self.enqueue(new.id, tube, new.priority, now);
        } else {
            let until = self.end_of_delay(new.delay_s, now);
            self.delay(new.id, until);
        }
        debug_assert!(self.is_put(new, tube, false), "the job has the values of the put");
        debug_assert!(self.has_gained(before, tube, 1), "the tube has one job more");
    }

    /// The command `put` with tags, when the whole body has arrived and no other job has its key. The job goes into
    /// this tube, which is created if it does not exist, or into the tube that the client uses.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn put_tagged(
        &mut self,
        client: ClientId,
        tube: Option<&str>,
        new: NewJob,
        body: Body,
        tags: &EncodedTags<'_>,
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        let (bytes, tags) = (tags.bytes(), tags.set());
        if bytes.is_empty() {
            let tube = self.target(client, tube);
            self.put_into(tube, new, body, now);
            return Ok(());
        }
        let waits_for = self.awaited_group(tags);
        let packed = StoredBody::new(body, bytes, tags.after.is_some() && waits_for.is_none())?;
        let tube = self.target(client, tube);
        self.put_packed((client, tube), new, packed, tags, waits_for, now);
        Ok(())
    }

    /// The tube into which a client puts: this one, which is created if it does not exist, or the used one.
    #[inline]
    pub(super) fn target(&mut self, client: ClientId, tube: Option<&str>) -> TubeKey {
        match tube {
            Some(name) => self.tubes.find_or_make(name),
            None => self.client(client).using,
        }
    }

    /// The group for which a job with these tags waits when it is put.
    #[inline(always)]
    pub(super) fn awaited_group<'a>(&self, tags: &TagSet<'a>) -> Option<After<'a>> {
        let must_wait = |after: &After<'_>| tags.group == Some(after.group) || self.must_wait(after);
        tags.after.filter(must_wait)
    }

    /// Stores a job whose body and tags are encoded; the tags contain whether its group has had no members.
    #[inline(always)]
    pub(super) fn put_packed(
        &mut self,
        (client, tube): (ClientId, TubeKey),
        new: NewJob,
        packed: StoredBody,
        tags: &JobTags<'_>,
        waits_for: Option<After<'_>>,
        now: Timestamp,
    ) {
        debug_assert!(self.jobs.get(new.id).is_none(), "an id is given once");
        debug_assert!(new.id < self.next_id(), "the id of a new job has been taken");
        let before = in_debug(|| self.counted(tube));
        let until = if !new.delay_s.is_zero() { self.end_of_delay(new.delay_s, now) } else { now };
        self.sums.events.puts += 1;
        self.tubes.get_mut(tube).puts += 1;
        self.note(Change::Put(new.id));
        self.flushes.note_arrival(new.id, tube);
        let job = Job::new(now, new.priority, new.delay_s, new.ttr_s.at_least_one(), tube, packed.body);
        let added = self.insert_tagged(new.id, job, Counters::default(), packed.separate_tags, tags);
        match waits_for {
            Some(after) => self.hold(new.id, after.group.as_str(), until),
            None if !new.delay_s.is_zero() => self.delay(new.id, until),
            None => self.admit(&added, new.priority, now),
        }
        debug_assert_eq!(
            self.is_held(new.id),
            waits_for.is_some(),
            "its group holds a job that waits for it"
        );
        self.serve_waiting(Some(client), now);
        debug_assert!(self.is_put(new, tube, waits_for.is_some()), "the job has the values of the put");
        debug_assert!(self.has_gained(before, tube, 1), "the tube has one job more");
    }

    /// Whether this job, which was just put into the tube and may be held by its group, has the values of the put.
    #[inline]
    fn is_put(&self, new: NewJob, tube: TubeKey, is_held: bool) -> bool {
        let has_same_values =
            |job: &Job| job.tube == tube && job.priority == new.priority && job.has(Marks::HELD) == is_held;
        self.is_linked_for_delay(new.id, if is_held { Seconds::ONE } else { new.delay_s })
            && self.jobs.get(new.id).is_some_and(has_same_values)
    }

    /// Gives the job the more urgent priority of a duplicate. A reserved job has it when it is released.
    pub fn upgrade(&mut self, id: JobId, priority: Priority, now: Timestamp) {
        if self.is_unreserved(id) {
            let _ = self.set_priority(id, priority, now);
            return;
        }
        let job = self.jobs.expect_mut(id);
        job.priority = priority;
        job.marks |= Marks::UPGRADED;
        self.note(Change::Updated(id));
    }

    /// Restores a job after a restart, with its encoded tags. A reservation does not survive a restart, so a reserved
    /// job becomes ready. The caller must call `finish_restore` once all jobs are restored.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn restore(
        &mut self,
        record: &JobRecord,
        tube: &str,
        body: Body,
        tags: &[u8],
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        debug_assert!(self.jobs.get(record.id).is_none(), "an id is given once");
        self.numbers.skip_ids_below(record.id.0.saturating_add(1));
        match JobTags::decode(tags).filter(|_| !tags.is_empty()) {
            Some(set) => self.restore_tagged(record, tube, body, &EncodedTags::of(tags, set), now)?,
            None => {
                let job = self.restored(record, tube, body, now);
                let tube = job.tube;
                self.jobs.insert(record.id, job);
                self.jobs.set_counters(record.id, record.counters);
                self.added_plain(record.id, tube);
                self.restore_collection(record, now);
            }
        }
        debug_assert!(self.is_linked(record.id), "a restored job is in a collection");
        debug_assert!(record.id < self.next_id(), "no later job gets the id");
        Ok(())
    }

    fn restore_tagged(
        &mut self,
        record: &JobRecord,
        tube: &str,
        body: Body,
        tags: &EncodedTags<'_>,
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        let (bytes, tags) = (tags.bytes(), tags.set());
        let must_wait = |after: &After<'_>| !after.is_free && record.state == JobState::Delayed;
        let waits_for = tags.after.filter(must_wait);
        let packed = StoredBody::new(body, bytes, tags.after.is_some() && waits_for.is_none())?;
        if let Some(tag) = tags.idempotency {
            self.note_duplicate(tube, tag.key, now);
        }
        let job = self.restored(record, tube, packed.body, now);
        self.insert_tagged(record.id, job, record.counters, packed.separate_tags, tags);
        match waits_for {
            Some(after) => self.hold(record.id, after.group.as_str(), record.deadline_at),
            None => self.restore_collection(record, now),
        }
        Ok(())
    }

    /// The record of a restored job.
    pub(super) fn restored(&mut self, record: &JobRecord, tube: &str, body: Body, now: Timestamp) -> Job {
        let tube = self.tubes.find_or_make(tube);
        let mut job = Job::new(
            record.created_at,
            record.priority,
            record.delay_s,
            record.ttr_s.at_least_one(),
            tube,
            body,
        );
        // A record does not say since when a job has been ready, unless nothing has happened to it.
        let since = match record.state {
            JobState::Delayed => record.deadline_at,
            JobState::Ready | JobState::Reserved | JobState::Buried => {
                let is_new = record.counters == Counters::default();
                if is_new { record.created_at.plus_seconds(record.delay_s) } else { now }
            }
        };
        job.set_collection(Collection::Ready(since.min(now).0.into()));
        job
    }

    /// Puts a restored job into its collection.
    pub(super) fn restore_collection(&mut self, record: &JobRecord, now: Timestamp) {
        debug_assert!(!self.is_linked(record.id), "a job to restore is in no collection");
        match record.state {
            JobState::Buried => {
                self.numbers.skip_earlier_burials(now);
                self.make_buried(record.id);
            }
            JobState::Delayed if record.deadline_at > now => self.delay(record.id, record.deadline_at),
            JobState::Delayed | JobState::Ready | JobState::Reserved => {
                self.enter_ready(record.id, now);
            }
        }
    }

    /// The end of a delay for a command at `now`. It counts from an instant that is at least a nanosecond later than
    /// for the previous command: many commands share an instant, and of equal delays the first must end first.
    pub(super) fn end_of_delay(&mut self, delay_s: Seconds, now: Timestamp) -> Timestamp {
        self.numbers.last_delay = now.max(self.numbers.last_delay + 1);
        let until = self.numbers.last_delay.plus_seconds(delay_s);
        debug_assert!(until >= now, "no delay ends before it begins");
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reserve;
    use crate::clock::NS_PER_S;
    use crate::testing::NOW;

    /// The waiting time that is counted when a restored job is reserved at once.
    fn waited_s(state: JobState, deadline_at: Timestamp, counters: Counters) -> u64 {
        let record = JobRecord {
            id: JobId(1),
            priority: Priority(0),
            delay_s: 30.into(),
            ttr_s: 60.into(),
            created_at: Timestamp(NOW.0 - 100 * NS_PER_S),
            deadline_at: Timestamp((NOW.0 + deadline_at.0).saturating_sub(1000 * NS_PER_S)),
            counters,
            state,
        };
        let mut queue = Queue::default();
        queue.restore(&record, "default", Body::copy_of(b"x").unwrap(), &[], NOW).unwrap();
        let worker = queue.connect();
        assert_eq!(queue.reserve(worker, Some(0.into()), NOW), Reserve::Job(record.id));
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
