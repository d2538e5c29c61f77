//! What the tags of a `put` do, beyond C's protocol.
//!
//! Owns: the tags of all jobs that have some, and what they ask for, a file for each: keys that are unique in a tube
//! (`unique`), keys of which so many jobs are reserved at once (`places`), groups (`groups`), expiry (`expiry`) and the sums of owners (`owners`).
//! `storage` keeps the tags, `index` has the keys of the indexes.
//!
//! A job without tags has no marks, and nothing here is asked about it. For a job with tags the rest of the queue calls
//! one function when the job comes into being, becomes ready, is taken out of what holds it, is reserved, is buried or
//! ends. Whether it may be reserved has one answer, the place where it stands: a tube's ready queue has only jobs that may
//! be reserved now. Ready jobs that may not be are parked, and delayed jobs that wait for a group are held; both queues
//! are the tube's, too. Whoever changes the answer for other jobs calls `settle` at the end: it tells clients that wait.

mod expiry;
mod groups;
mod index;
mod offers;
mod owners;
mod places;
pub mod storage;
#[cfg(test)]
mod tests;
mod unique;

use std::collections::{TryReserveError, VecDeque};
use std::hash::RandomState;

pub use self::groups::GroupView;
pub use self::unique::{CooldownSums, Duplicate};

use self::groups::Groups;
use self::offers::Offers;
use self::owners::{Maker, Owners};
use self::places::Places;
use self::storage::{Packed, Storage, split};
use self::unique::Unique;
use super::deadlines::Owner;
use super::jobs::{Job, Link, Place, marks};
use super::keys::{DueKey, ReadyKey, TubeKey};
use super::ordered::OrderedQueue;
use super::{Change, ClientId, NewJob, Queue};
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobRecord, JobState, Priority};
use crate::tags::{After, Concurrency, EncodedTags, Name, TagSet};

/// What all tags together need.
#[derive(Debug, Default)]
pub struct Tagged {
    storage: Storage,
    unique: Unique,
    places: Places,
    offers: Offers,
    groups: Groups,
    owners: Owners,
    /// When jobs expire.
    expiries: OrderedQueue<DueKey>,
    /// Seeds the hashes against chosen names; nothing that can be observed depends on it.
    hasher: RandomState,
    /// Jobs that have tags.
    jobs: usize,
    /// What the indexes take for their tags.
    index_bytes: usize,
    /// The groups that the ends of jobs have freed, in the order of the changes [`Change::DeletedWith`].
    freed_groups: VecDeque<Option<Box<str>>>,
    expired_bodies: Vec<Body>,
    /// Room for a copy of a job's tags.
    scratch: Vec<u8>,
}

/// The jobs of a tube that may not be reserved, and the keys that its deleted jobs have left.
#[derive(Debug, Default)]
pub struct TubeTagged {
    /// Ready jobs.
    pub parked: OrderedQueue<ReadyKey>,
    /// Delayed jobs, by the end of their delay.
    pub held: OrderedQueue<DueKey>,
    /// Deleted jobs whose idempotency keys still count.
    pub cooldowns: OrderedQueueOfIds,
    /// What these keys take, in bytes.
    pub cooldown_bytes: usize,
    /// The owner for whom the tube counts, if there is one.
    pub maker: Maker,
}

/// Jobs in the order of their ids.
#[derive(Debug, Default)]
pub struct OrderedQueueOfIds(OrderedQueue<JobId>);

impl OrderedQueueOfIds {
    pub fn insert(&mut self, id: JobId) {
        self.0.insert(id);
    }

    pub fn remove(&mut self, id: JobId) {
        self.0.remove(id);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn first(&self) -> Option<JobId> {
        self.0.first()
    }

    pub fn iter(&self) -> impl Iterator<Item = JobId> {
        self.0.iter()
    }
}

/// What the indexes take for these tags, in bytes, at their usual size. Keys in the order of hashes fill two thirds of
/// their blocks.
fn index_bytes(tags: &TagSet<'_>) -> usize {
    let if_any = |is_any, bytes| if is_any { bytes } else { 0 };
    if_any(tags.idempotency.is_some(), 24)
        + if_any(tags.concurrency.is_some(), 48)
        + if_any(tags.after.is_some(), 32)
        + if_any(tags.expires_after_s.is_some(), 24)
}

impl TubeTagged {
    pub fn cooldown_sums(&self) -> CooldownSums {
        CooldownSums { count: self.cooldowns.len() as u64, bytes: self.cooldown_bytes as u64 }
    }

    /// Whether nothing of this keeps the tube.
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.held.is_empty() && self.cooldowns.len() == 0
    }
}

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By a client's delete: the cooldown of its key begins.
    Deleted,
    /// By a flush.
    Flushed,
    /// By itself.
    Expired,
}

impl Tagged {
    /// The memory of tags and indexes, in bytes. Tags behind bodies count with them.
    pub fn bytes(&self) -> usize {
        self.job_bytes() + self.groups.ended_bytes() + self.unique.bytes() + self.owners.bytes()
    }

    /// The same without what outlives the jobs.
    pub fn job_bytes(&self) -> usize {
        self.index_bytes + self.storage.bytes() + self.places.bytes() + self.groups.bytes()
    }

    /// When the first job expires or the first cooldown ends.
    pub fn next_due(&self) -> Option<Timestamp> {
        [self.expiries.first().map(|(at, _)| at), self.unique.next_due()].into_iter().flatten().min()
    }

    /// Whether jobs that are free are still among the held ones.
    fn has_freed(&self) -> bool {
        self.groups.has_freed()
    }
}

impl Queue {
    /// Whether jobs that are free may leave the held ones now. They wait for a flush, which may have to delete them.
    pub(super) fn frees_jobs(&self) -> bool {
        self.tagged.has_freed() && !self.flushes.walk_through_held()
    }

    /// Whether `advance` has something to do, whatever the time.
    pub(super) fn has_more_to_do(&self) -> bool {
        !self.tagged.offers.is_empty() || self.frees_jobs()
    }

    /// The tags of a job that has some.
    fn tags_of(&self, id: JobId) -> TagSet<'_> {
        self.tags_of_any(id).expect("it has tags")
    }

    /// The tags of a job.
    #[must_use]
    pub fn tags_of_any(&self, id: JobId) -> Option<TagSet<'_>> {
        let job = self.jobs.get(id).filter(|job| job.marks != 0)?;
        TagSet::decode(self.tagged.storage.get(id, job))
    }

    /// The bytes of the job's tags for the log, none if it has none. They stand in `room` if they are not those that the queue
    /// keeps: the job is free, and still among the held ones.
    pub fn tags_for_log<'a>(&'a self, id: JobId, room: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(job) = self.jobs.get(id).filter(|job| job.marks != 0) else { return &[] };
        let tags = self.tagged.storage.get(id, job);
        if !job.has(marks::HELD) || self.is_held(id) {
            return tags;
        }
        room.clear();
        room.extend_from_slice(tags);
        TagSet::set_free(room);
        room
    }

    /// A copy of the job's tags, for the time of a change. `give_back_tags` keeps its room.
    fn take_tags(&mut self, id: JobId) -> Vec<u8> {
        let mut tags = std::mem::take(&mut self.tagged.scratch);
        tags.clear();
        let job = self.jobs.get(id).expect("the job is there");
        tags.extend_from_slice(self.tagged.storage.get(id, job));
        tags
    }

    fn give_back_tags(&mut self, tags: Vec<u8>) {
        self.tagged.scratch = tags;
    }

    /// The command `put` with tags, when the whole body has arrived and no other job has its key. The job goes into the tube
    /// that the client uses.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn put_tagged(
        &mut self,
        client: ClientId,
        new: NewJob,
        body: Body,
        tags: &EncodedTags<'_>,
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        let tube = self.client(client).using;
        let (bytes, tags) = (tags.bytes(), tags.set());
        let must_wait = |after: &After<'_>| tags.group == Some(after.group) || self.must_wait(after);
        let waits_for = tags.after.filter(must_wait);
        let packed = Packed::new(body, bytes, tags.after.is_some() && waits_for.is_none())?;
        let ttr_s = new.ttr_s.max(1);
        let until = if new.delay_s > 0 { self.end_of_delay(new.delay_s, now) } else { now };
        self.counters.puts += 1;
        self.tubes.get_mut(tube).puts += 1;
        self.note(Change::Put(new.id));
        let job = Job::new(now, new.priority, new.delay_s, ttr_s, tube, packed.body);
        self.insert_tagged(new.id, job, packed.aside, tags);
        if let Some(seconds) = tags.expires_after_s {
            self.begin_expiry(new.id, now.plus_seconds(seconds));
        }
        match (waits_for, tags.concurrency) {
            (Some(after), _) => self.hold(new.id, after.group.as_str(), until),
            _ if new.delay_s > 0 => self.delay(new.id, until),
            (_, Some(tag)) => self.enter_line(new.id, tag, now),
            (_, None) => self.enqueue(new.id, tube, new.priority, now),
        }
        self.settle(Some(client), now);
        Ok(())
    }

    /// Stores the job, which is in no collection yet, with its key and its membership.
    fn insert_tagged(&mut self, id: JobId, mut job: Job, aside: Option<Box<[u8]>>, tags: &TagSet<'_>) {
        let tube = job.tube;
        let mark = |is_set, mark| if is_set { mark } else { 0 };
        job.marks = marks::TAGGED
            | mark(aside.is_none(), marks::BEHIND_BODY)
            | mark(tags.concurrency.is_some(), marks::KEYED);
        let body_bytes = job.body().len();
        self.jobs.insert(id, job);
        self.tagged.jobs += 1;
        self.tagged.index_bytes += index_bytes(tags);
        if let Some(tags) = aside {
            self.tagged.storage.insert(id, tags);
        }
        if let Some(tag) = tags.idempotency {
            self.claim_key(id, tube, tag.key);
            self.tagged.unique.reserve(tag);
        }
        if let Some(group) = tags.group {
            self.join_group(group.as_str());
        }
        if let Some(owner) = tags.owner {
            self.own_job(owner.as_str(), tube, body_bytes, tags);
        }
    }

    /// As `restore`, of a job with tags. `finish_restore` follows when all jobs are there.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn restore_tagged(
        &mut self,
        record: &JobRecord,
        tube: &str,
        body: Body,
        tags: &[u8],
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        let bytes = tags;
        let Some(tags) = TagSet::decode(bytes) else {
            self.restore(record, tube, body, now);
            return Ok(());
        };
        let must_wait = |after: &After<'_>| !after.is_free && record.state == JobState::Delayed;
        let waits_for = tags.after.filter(must_wait);
        let packed = Packed::new(body, bytes, tags.after.is_some() && waits_for.is_none())?;
        if let Some(tag) = tags.idempotency {
            self.note_double(tube, tag.key, now);
        }
        let job = self.restored(record, tube, packed.body, now);
        self.insert_tagged(record.id, job, packed.aside, &tags);
        self.restore_history(record);
        if let Some(seconds) = tags.expires_after_s
            && record.counters.reserves == 0
        {
            self.begin_expiry(record.id, record.created_at.plus_seconds(seconds));
        }
        match waits_for {
            Some(after) => self.hold(record.id, after.group.as_str(), record.deadline_at),
            None => self.restore_place(record, now),
        }
        Ok(())
    }

    /// Makes a job ready that is in no collection, and whose place says so already.
    pub(super) fn enqueue_tagged(&mut self, id: JobId, now: Timestamp) {
        let job = self.jobs.held(id);
        let (tube, priority, is_keyed) = (job.tube, job.priority, job.has(marks::KEYED));
        self.offer_before(ReadyKey::new(priority, id), now);
        if is_keyed {
            self.with_key(id, |queue, tag| queue.enter_line(id, tag, now));
        } else {
            self.enqueue(id, tube, priority, now);
        }
    }

    /// Has a change made with the concurrency key of a job that has one.
    fn with_key(&mut self, id: JobId, change: impl FnOnce(&mut Self, Concurrency<'_>)) {
        let tags = self.take_tags(id);
        let tag = TagSet::decode(&tags).and_then(|tags| tags.concurrency);
        change(self, tag.expect("the marks say that it has a key"));
        self.give_back_tags(tags);
    }

    /// Takes a job out of whatever holds it; as `unlink_from`.
    pub(super) fn unlink_tagged(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let since = match link.place {
            Place::Ready(_) if link.marks & marks::PARKED != 0 => {
                self.take_out_of_parked(id, ReadyKey::new(link.priority, id), link.tube);
                None
            }
            Place::Delayed(until) if link.marks & marks::HELD != 0 => {
                self.take_out_of_held(id, Timestamp(until.into()));
                None
            }
            _ => self.unlink_plain(id, link),
        };
        let is_keyed = link.marks & marks::KEYED != 0;
        match link.place {
            Place::Ready(_) if is_keyed => self.with_key(id, |queue, tag| queue.leave_line(id, tag)),
            Place::Reserved(_) if is_keyed => self.with_key(id, |queue, tag| queue.free_place(tag)),
            Place::Buried(_) => self.count_buried_member(id, false),
            Place::Ready(_) | Place::Reserved(_) | Place::Delayed(_) => {}
        }
        since
    }

    /// A client that is gone gives the job back, which is in no collection now.
    pub(super) fn given_back_tagged(&mut self, id: JobId) {
        if self.jobs.held(id).has(marks::KEYED) {
            self.with_key(id, |queue, tag| queue.free_place(tag));
        }
    }

    /// The job was reserved.
    #[inline(never)]
    pub(super) fn assigned_tagged(&mut self, id: JobId) {
        if let Some(at) = self.expires_at(id) {
            self.end_expiry(id, at);
        }
        let job = self.jobs.held(id);
        job.marks &= !(marks::UPGRADED | marks::EXPIRES);
        if job.has(marks::KEYED) {
            self.with_key(id, |queue, tag| queue.take_place(id, tag));
        }
    }

    /// The job was buried.
    #[inline(never)]
    pub(super) fn buried_tagged(&mut self, id: JobId) {
        self.count_buried_member(id, true);
    }

    /// The priority that a reserved job gets when it is given back with `priority`.
    pub(super) fn given_priority(job: &Job, priority: Priority) -> Priority {
        if job.has(marks::UPGRADED) { priority.min(job.priority) } else { priority }
    }

    /// Ends a job of this tube that is in no collection, and returns its body, which may have more behind it.
    pub(super) fn remove_tagged(&mut self, id: JobId, tube: TubeKey, ending: Ending, now: Timestamp) -> Body {
        if let Some(at) = self.expires_at(id) {
            self.end_expiry(id, at);
        }
        debug_assert!(!self.is_linked(id));
        let job = self.jobs.remove(id).expect("what a queue held is there");
        self.tagged.jobs -= 1;
        let aside = self.tagged.storage.remove(id);
        let tags = TagSet::decode(aside.as_deref().unwrap_or_else(|| split(job.body.as_slice()).1));
        let tags = tags.expect("it has tags");
        self.tagged.index_bytes -= index_bytes(&tags);
        if let Some(owner) = tags.owner {
            self.disown_job(owner.as_str(), tube, job.body().len(), &tags);
        }
        let (mut has_cooldown, mut freed_group) = (false, None);
        if let Some(tag) = tags.idempotency {
            self.tagged.unique.release(tag);
            if ending == Ending::Deleted && tag.cooldown_s > 0 {
                let until = now.plus_seconds(self.tagged.unique.seconds(tag));
                let owner = tags.owner.map(Name::as_str);
                self.begin_cooldown(id, tube, tag.key.as_str(), until, owner);
                has_cooldown = true;
            } else {
                self.free_key(id, tube, tag.key);
            }
        }
        if let Some(group) = tags.group
            && self.tagged.groups.leave(group.as_str())
        {
            freed_group = Some(group.as_str().into());
        }
        match ending {
            Ending::Deleted | Ending::Flushed => self.count(tube, |counters| &mut counters.deletes),
            Ending::Expired => self.count(tube, |counters| &mut counters.expirations),
        }
        if !has_cooldown && freed_group.is_none() {
            self.note(Change::Deleted(id));
        } else {
            self.note(Change::DeletedWith(id));
            if self.keeps_changes {
                self.tagged.freed_groups.push_back(freed_group);
            }
        }
        job.body
    }

    /// The group that the next [`Change::DeletedWith`] has freed, because it was the end of its last member.
    pub fn next_freed_group(&mut self) -> Option<Box<str>> {
        self.tagged.freed_groups.pop_front().flatten()
    }

    /// A command, of the client `cause` if it is one of a client, has changed whether other jobs may be reserved: they go to
    /// clients that wait.
    pub(super) fn settle(&mut self, cause: Option<ClientId>, now: Timestamp) {
        self.offer_free_places(cause, now);
        if self.frees_jobs() {
            self.go_on_freeing(now);
        }
    }

    /// A job expires, or a cooldown ends, the earlier first.
    pub(super) fn tags_are_due(&mut self, now: Timestamp) {
        match (self.tagged.expiries.first(), self.first_cooldown()) {
            (Some(expiry), cooldown) if cooldown.is_none_or(|cooldown| expiry <= cooldown) => {
                self.expire(expiry.1, now);
            }
            (_, Some((_, id))) => self.end_cooldown(id),
            _ => {}
        }
    }

    /// What the job's tags have in its tube goes with it to another one.
    pub(super) fn move_tags(&mut self, id: JobId, from: TubeKey, to: TubeKey) {
        let bytes = self.take_tags(id);
        let tags = TagSet::decode(&bytes).unwrap_or_default();
        if let Some(tag) = tags.idempotency {
            self.free_key(id, from, tag.key);
            self.claim_key(id, to, tag.key);
        }
        if let Some(owner) = tags.owner {
            self.leave_tube(owner.as_str(), from);
            self.enter_tube(owner.as_str(), to);
        }
        self.give_back_tags(bytes);
    }

    /// Asserts the invariants of the fields.
    #[inline]
    pub(super) fn check_tagged(&self) {
        let with_tags = self.jobs.ids().filter(|&id| self.jobs.get(id).is_some_and(|job| job.marks != 0));
        let (mut aside, mut indexed) = (0, 0);
        assert_eq!(
            self.tagged.jobs,
            with_tags
                .inspect(|&id| {
                    let job = self.jobs.get(id).expect("an indexed job is there");
                    aside += usize::from(!job.has(marks::BEHIND_BODY));
                    let tags = self.tags_of_any(id).expect("tags can be read");
                    indexed += index_bytes(&tags);
                    assert!(job.has(marks::TAGGED) && job.has(marks::KEYED) == tags.concurrency.is_some());
                })
                .count()
        );
        assert_eq!((aside, indexed), (self.tagged.storage.len(), self.tagged.index_bytes));
        self.check_deadline(Owner::Tags);
        assert!(self.keeps_changes || self.tagged.freed_groups.is_empty());
        self.check_unique();
        self.check_places();
        self.check_groups();
        self.check_owners();
        self.check_expiries();
    }
}
