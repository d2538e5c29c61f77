//! The tag `con`: at most N jobs with a key are reserved at once, over all tubes.
//!
//! Owns: how many jobs of each key are reserved, and which ready jobs may be reserved now. Jobs of one tube with the
//! same key and the same limit form a line: if any of them may be reserved, the most urgent may. So only the first of a
//! line is in the tube's ready queue, and only while a slot is free. The others, and the first while no slot is free,
//! are parked: a peek shows them as ready, and no reserve sees them.
//!
//! A key may be used in very many tubes. When its last slot is taken, the first jobs of the lines in other tubes stay
//! in their ready queues until a reserve is about to choose from these: it parks them (`settle_head`).
//! `is_unsettled` says that there may be such jobs; while there are none, reserves probe nothing.
//!
//! A free slot is first kept for the released job that has freed it: this job gets its position, and only then are the
//! free slots offered to others (`offered_slots`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher, RandomState};

use beanstalkd_structures::OrderedQueue;

use super::index::{Hash, Ranked, hash_of, ranked_after, spread, with_hash_and_rank};
use super::{Admission, Rule, TaggedJob};
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::state::jobs::{Place, marks};
use crate::state::keys::{ReadyKey, TubeKey};
use crate::tags::{Concurrency, Name};

/// The memory of a key with reserved jobs, in bytes.
const KEY_BYTES: usize = 40;

/// How many jobs whose time is over one call of `reserve` ends at most: about 100 microseconds.
const MAX_ENDED: usize = 64;

/// The slots of all keys.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// The first jobs of all lines, by the hash of key and limit, and then by the tube.
    first: OrderedQueue<Ranked>,
    /// The other jobs, by the hash of key, limit and tube, and then by the priority.
    behind: OrderedQueue<Ranked>,
    /// The first jobs that are parked, by the hash of key and limit, and then by the priority.
    parked: OrderedQueue<Ranked>,
    /// By the hash of a key: how many of its jobs are reserved; not 0. Two keys with the same 64 bits would share their
    /// slots, but no job would be reserved above its limit. If a million keys are in use, the chance of that is one in
    /// 30 million.
    taken: BTreeMap<u64, u32>,
    /// The keys and limits that have a newly freed slot; empty between commands.
    pub(crate) freed: Vec<SlotKey>,
    /// Whether a reserve must check which ready jobs may be reserved now: keys of jobs in several tubes are used up or
    /// being offered.
    pub(crate) is_unsettled: bool,
}

/// A key and a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotKey {
    pub(crate) key: Box<[u8]>,
    pub(crate) limit: u32,
    /// The hash of the key.
    hash: u64,
}

impl SlotKey {
    fn of(line: Line<'_>) -> Self {
        Self { key: line.tag.key.as_bytes().into(), limit: line.tag.limit, hash: line.key }
    }

    /// Its line of jobs in a tube.
    fn line(&self, tube: TubeKey) -> Line<'_> {
        Line { tube, tag: self.tag(), key: self.hash }
    }

    pub(crate) fn tag(&self) -> Concurrency<'_> {
        Concurrency { key: Name::again(&self.key), limit: self.limit }
    }
}

/// The common values of the jobs of a line.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    tube: TubeKey,
    tag: Concurrency<'a>,
    /// The hash of the key.
    key: u64,
}

impl<'a> Line<'a> {
    fn new(tube: TubeKey, tag: Concurrency<'a>, hasher: &RandomState) -> Self {
        Self { tube, tag, key: hash_of(hasher, tag.key) }
    }

    /// The hash by which the first jobs of all tubes are found.
    fn hash(self) -> Hash {
        Hash::new(self.key ^ spread(self.tag.limit))
    }

    /// The hash by which the jobs after the first are found. The numbers of tubes can be guessed, so they go into the
    /// seeded hash: nobody may be able to put a line among a million jobs of another one.
    fn hash_behind(self, hasher: &RandomState) -> Hash {
        Hash::new(hasher.hash_one((self.key, self.tag.limit, self.tube)))
    }

    /// The position of one of its jobs if that is the first.
    fn first(self, id: JobId) -> Ranked {
        Ranked::new(self.hash(), self.tube, id)
    }

    /// The position of one of its jobs among the parked first ones.
    fn parked(self, key: ReadyKey) -> Ranked {
        Ranked::ready(self.hash(), key)
    }

    /// The line of the jobs with another limit.
    fn with_limit(self, limit: u32) -> Self {
        Self { tag: Concurrency { limit, ..self.tag }, ..self }
    }
}

impl Slots {
    pub(crate) fn bytes(&self) -> usize {
        self.taken.len() * KEY_BYTES
    }
}

impl Rule for Slots {
    /// Only the first job of a line may be reserved, and only while a slot is free.
    fn became_ready(queue: &mut Queue, job: &TaggedJob<'_>) -> Admission {
        let Some(tag) = job.tags.concurrency else { return Admission::Open };
        let &TaggedJob { id, tube, .. } = job;
        let key = queue.ready_key(id);
        let line = queue.line(tube, tag);
        let first = queue.first_of(line).map(|first| queue.ready_key(first));
        if first.is_some_and(|first| first < key) {
            queue.stand_behind(key, line);
            return Admission::Parked;
        }
        if let Some(first) = first {
            queue.unmark_first(first, line);
            queue.stand_behind(first, line);
            let id = first.job();
            if !queue.jobs.expect_mut(id).lacks_slot() {
                queue.take_out_of_ready(id, tube);
                queue.park(id, tube);
                if !queue.is_free(line) {
                    queue.forget_position(tube);
                }
            }
        }
        queue.stand_first(first.map(ReadyKey::job), Some(key), line);
        if queue.is_free(line) { Admission::Open } else { Admission::Parked }
    }

    /// A slot that is being offered counts as free.
    fn may_be_reserved(queue: &Queue, job: &TaggedJob<'_>) -> bool {
        job.tags.concurrency.is_none_or(|tag| queue.has_slot(queue.line(job.tube, tag)))
    }

    /// A job in the ready queue was the first of its line.
    fn reserved(queue: &mut Queue, job: &TaggedJob<'_>) {
        let Some(tag) = job.tags.concurrency else { return };
        let line = queue.line(job.tube, tag);
        let taken = queue.rules.slots.taken.entry(line.key).or_insert(0);
        *taken += 1;
        let used_up = line.with_limit(*taken);
        if !queue.rules.slots.is_unsettled && queue.has_first(used_up, job.id) {
            queue.rules.slots.is_unsettled = true;
            queue.rules.note_must_settle();
        }
        if job.marks & marks::FIRST != 0 {
            queue.advance_line(queue.ready_key(job.id), line, false);
        }
    }

    fn left(queue: &mut Queue, job: &TaggedJob<'_>, state: JobState) {
        match (job.tags.concurrency, state) {
            (Some(tag), JobState::Ready) => queue.leave_line(job.id, tag),
            (Some(tag), JobState::Reserved) => queue.free_slot(tag),
            (Some(_), JobState::Delayed | JobState::Buried) | (None, _) => {}
        }
    }

    #[inline]
    fn check(queue: &Queue) {
        let slots = &queue.rules.slots;
        let mut taken: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut ready, mut firsts, mut parked) = (0, 0, 0);
        let is_offered = |tag| queue.rules.offered.keys().any(|key| key.tag() == tag);
        for id in queue.jobs.ids() {
            let job = queue.jobs.get(id).expect("an indexed job exists");
            let tag = queue.tags(id).and_then(|tags| tags.concurrency);
            let Some(tag) = tag else {
                assert!(!job.has(marks::FIRST) && !job.lacks_slot(), "only keys keep slots back");
                continue;
            };
            match job.place() {
                Place::Reserved(_) => *taken.entry(hash_of(&queue.rules.hasher, tag.key)).or_insert(0) += 1,
                Place::Ready(_) => {
                    ready += 1;
                    let line = queue.line(job.tube, tag);
                    let first = queue.first_of(line).expect("a line with a ready job has a first job");
                    assert_eq!(first == id, job.has(marks::FIRST));
                    assert!(queue.ready_key(first) <= queue.ready_key(id), "the first is the most urgent");
                    if first != id {
                        assert!(job.lacks_slot(), "a ready job behind the first of its line has no slot");
                        continue;
                    }
                    firsts += 1;
                    if job.lacks_slot() {
                        parked += 1;
                        assert!(slots.parked.contains(line.parked(queue.ready_key(id))));
                        assert!(!queue.has_free_slot(tag) || is_offered(tag), "free slots are offered");
                    } else {
                        assert!(
                            queue.has_free_slot(tag) || queue.rules.slots.is_unsettled,
                            "reserves know that they have to probe"
                        );
                    }
                }
                Place::Delayed(_) | Place::Buried(_) => assert!(!job.has(marks::FIRST | marks::PARKED)),
            }
        }
        assert_eq!((slots.first.len(), slots.behind.len()), (firsts, ready - firsts));
        assert_eq!(slots.parked.len(), parked);
        assert_eq!(slots.taken, taken, "each reserved job has a slot");
        assert!(slots.freed.is_empty(), "free slots are offered before a command ends");
        queue.rules.offered.check();
        assert!(queue.rules.offered.is_empty() || queue.rules.slots.is_unsettled);
    }
}

impl Queue {
    /// Whether a ready or delayed job with this tag may be reserved now.
    pub(crate) fn has_free_slot(&self, tag: Concurrency<'_>) -> bool {
        self.is_free(self.line(0, tag))
    }

    /// Whether a ready or delayed job with this key and limit may be reserved now.
    pub(crate) fn is_slot_free(&self, group: &SlotKey) -> bool {
        self.is_free(group.line(0))
    }

    /// Whether a job of this line, ready or delayed, may be reserved now: a slot is free and not offered to others.
    fn is_free(&self, line: Line<'_>) -> bool {
        self.has_slot(line) && !self.rules.offered.searches(line.tag)
    }

    /// Whether the number of reserved jobs with this key is below the limit of this tag.
    pub(crate) fn has_slot_for(&self, tag: Concurrency<'_>) -> bool {
        self.has_slot(self.line(0, tag))
    }

    /// Whether fewer than `limit` jobs of the key are reserved, offered slots included.
    fn has_slot(&self, line: Line<'_>) -> bool {
        self.rules.slots.taken.get(&line.key).is_none_or(|&taken| taken < line.tag.limit)
    }

    fn line<'a>(&self, tube: TubeKey, tag: Concurrency<'a>) -> Line<'a> {
        Line::new(tube, tag, &self.rules.hasher)
    }

    /// The first of the jobs in the line.
    fn first_of(&self, line: Line<'_>) -> Option<JobId> {
        let index = &self.rules.slots.first;
        with_hash_and_rank(index, line.hash(), line.tube).find(|&id| self.is_of_line(id, line))
    }

    fn is_of_line(&self, id: JobId, line: Line<'_>) -> bool {
        #[cfg(test)]
        super::steps::note_probe();
        let job = self.jobs.get(id).expect("an indexed job exists");
        job.tube == line.tube && self.concurrency_of(id, job) == Some(line.tag)
    }

    fn ready_key(&self, id: JobId) -> ReadyKey {
        ReadyKey::new(self.jobs.get(id).expect("an indexed job exists").priority, id)
    }

    /// Removes a job with this tag, which was ready and is in no collection, from its line.
    pub(crate) fn leave_line(&mut self, id: JobId, tag: Concurrency<'_>) {
        let job = self.jobs.expect_mut(id);
        let (is_first, was_parked) = (job.has(marks::FIRST), job.lacks_slot());
        let (key, tube) = (ReadyKey::new(job.priority, id), job.tube);
        let line = self.line(tube, tag);
        if is_first {
            self.advance_line(key, line, was_parked);
        } else {
            let found = self.rules.slots.behind.remove(self.key_behind(key, line));
            assert!(found.is_some(), "a job behind the first is indexed");
        }
        self.jobs.expect_mut(id).marks &= !marks::PARKED;
    }

    /// Replaces the first job of the line by the next one, if there is one. If a client waits for that, it is offered
    /// at the end of the command. If the old one was parked while a slot is free, a walk will reach the line.
    fn advance_line(&mut self, first: ReadyKey, line: Line<'_>, was_parked: bool) {
        self.unmark_first(first, line);
        let next = self.take_second(line);
        self.stand_first(Some(first.job()), next, line);
        let Some(next) = next.filter(|_| !was_parked && self.is_free(line)) else { return };
        let tube = self.tubes.get(line.tube);
        if tube.is_open() && self.first_waiting(line.tube).is_some() {
            self.rules.slots.freed.push(SlotKey::of(line));
        } else if self.takes_turns(line.tube) {
            self.join_row_from_parked(next, line);
        } else {
            self.unpark(next, line);
            self.tubes.get_mut(line.tube).ready.insert(next);
        }
    }

    /// Removes and returns the second job of the line.
    fn take_second(&mut self, line: Line<'_>) -> Option<ReadyKey> {
        if self.rules.slots.behind.is_empty() {
            return None;
        }
        let hash = line.hash_behind(&self.rules.hasher);
        let is_meant = |key: &Ranked| self.is_of_line(key.job(), line);
        let second = ranked_after(&self.rules.slots.behind, hash, None).find(is_meant)?;
        self.rules.slots.behind.remove(second);
        Some(second.ready_key())
    }

    /// The position of a job after the first.
    fn key_behind(&self, key: ReadyKey, line: Line<'_>) -> Ranked {
        Ranked::ready(line.hash_behind(&self.rules.hasher), key)
    }

    /// Frees the slot of a job with this tag.
    pub(crate) fn free_slot(&mut self, tag: Concurrency<'_>) {
        let line = self.line(0, tag);
        let slots = &mut self.rules.slots;
        let Entry::Occupied(mut taken) = slots.taken.entry(line.key) else {
            unreachable!("a reserved job has a slot")
        };
        let before = *taken.get();
        if before == 1 {
            taken.remove();
        } else {
            *taken.get_mut() = before - 1;
        }
        // Only a parked job can have waited for the slot.
        if !slots.parked.is_empty() {
            slots.freed.push(SlotKey::of(line.with_limit(before)));
        }
    }

    /// Whether another ready job in any tube has the tag of this line.
    fn has_first(&self, line: Line<'_>, but: JobId) -> bool {
        let mut firsts = ranked_after(&self.rules.slots.first, line.hash(), None).map(Ranked::job);
        firsts.any(|id| id != but && self.concurrency(id) == Some(line.tag))
    }

    /// The most urgent of the parked first jobs with this key and limit, or the next after `after`.
    pub(crate) fn first_parked(&self, group: &SlotKey, after: Option<ReadyKey>) -> Option<ReadyKey> {
        let mut parked = ranked_after(&self.rules.slots.parked, group.line(0).hash(), after);
        let is_meant = |key: &Ranked| self.concurrency(key.job()) == Some(group.tag());
        parked.find(is_meant).map(Ranked::ready_key)
    }

    /// Brings a parked first job with this key and limit forward, because it may be reserved: it goes to a waiting
    /// client, or into the ready queue or the row of its tube.
    pub(crate) fn bring_forward(&mut self, first: ReadyKey, group: &SlotKey, now: Timestamp) {
        let tube = self.jobs.expect_mut(first.job()).tube;
        if self.end_overdue_if_awaited(first.job(), tube, now) {
            return;
        }
        let is_awaited = self.tubes.get(tube).is_open() && self.first_waiting(tube).is_some();
        if !is_awaited && self.takes_turns(tube) {
            self.join_row_from_parked(first, group.line(tube));
            return;
        }
        self.unpark(first, group.line(tube));
        self.count_unready(tube, first.priority());
        self.enqueue(first.job(), tube, first.priority(), now);
    }

    /// Adds a parked first job to the row of its tube: it stays parked, but only the turns of its tube keep it back.
    fn join_row_from_parked(&mut self, first: ReadyKey, line: Line<'_>) {
        let found = self.rules.slots.parked.remove(line.parked(first));
        assert!(found.is_some(), "a first job that has no slot is indexed");
        self.join_row(first, line.tube, Hash::new(line.key));
    }

    /// Parks the first jobs, in a tube from which a client is about to reserve, that may no longer be reserved, and
    /// ends those whose time is over: at most `left`, from which their number is subtracted. Returns whether none is
    /// left.
    #[cold]
    pub(crate) fn settle_head(&mut self, tube: TubeKey, left: &mut usize, now: Timestamp) -> bool {
        while let Some(first) = self.tubes.get(tube).ready.first() {
            let id = first.job();
            let is_overdue = self.is_overdue(id, now);
            if !is_overdue && self.concurrency(id).is_none_or(|tag| self.has_free_slot(tag)) {
                return true;
            }
            if *left == 0 {
                return false;
            }
            self.work += 1;
            if is_overdue {
                *left -= (self.slices.probed_tubes / MAX_ENDED).min(*left);
                self.end_overdue(id, now);
                continue;
            }
            *left -= 1;
            self.take_out_of_ready(id, tube);
            self.park(id, tube);
            self.forget_position(tube);
        }
        true
    }

    /// Settles the tubes of a client before it chooses among them, while that is necessary; returns whether it may
    /// choose now. The tubes of a client that watches many are probed when they come first.
    #[cold]
    pub(crate) fn settle_heads(&mut self, client: u32, now: Timestamp) -> bool {
        if self.rules.offered.are_awaited_by(client) {
            return false;
        }
        if self.clients[client].many.is_some() {
            return true;
        }
        let mut left = self.slices.probed_tubes;
        let count = self.clients[client].watching.len();
        (0..count).all(|position| {
            let tube = self.clients[client].watching[position];
            self.settle_head(tube, &mut left, now)
        })
    }

    /// Must be called when a walk has ended or is put off.
    pub(crate) fn note_unsettled(&mut self) {
        let is_settled = self.rules.offered.is_empty() && self.rules.slots.taken.is_empty();
        self.rules.slots.is_unsettled =
            !self.rules.offered.is_empty() || self.rules.slots.is_unsettled && !is_settled;
        self.rules.note_must_settle();
    }

    /// Replaces the first job of the line, `before`, by `first`. The index keeps the first jobs of a line at one
    /// position, so one is written over the other.
    fn stand_first(&mut self, before: Option<JobId>, first: Option<ReadyKey>, line: Line<'_>) {
        let index = &mut self.rules.slots.first;
        let found = match (before, first) {
            (Some(before), Some(first)) => index.replace(line.first(before), line.first(first.job())),
            (Some(before), None) => index.remove(line.first(before)),
            (None, Some(first)) => {
                index.insert(line.first(first.job()));
                None
            }
            (None, None) => None,
        };
        assert_eq!(found.is_some(), before.is_some(), "the first of a line is indexed");
        let Some(first) = first else { return };
        let job = self.jobs.expect_mut(first.job());
        job.marks |= marks::FIRST;
        if job.lacks_slot() {
            self.rules.slots.parked.insert(line.parked(first));
        }
    }

    /// Called when a first job is about to lose that position; whether it is parked has not changed yet.
    fn unmark_first(&mut self, first: ReadyKey, line: Line<'_>) {
        let job = self.jobs.expect_mut(first.job());
        job.marks &= !marks::FIRST;
        if job.lacks_slot() {
            self.rules.slots.parked.remove(line.parked(first));
        }
    }

    fn stand_behind(&mut self, key: ReadyKey, line: Line<'_>) {
        let behind = self.key_behind(key, line);
        self.rules.slots.behind.insert(behind);
    }

    /// Takes a job that stays ready out of the ready queue.
    fn take_out_of_ready(&mut self, id: JobId, tube: TubeKey) {
        let key = self.ready_key(id);
        if self.jobs.expect_mut(id).has(marks::IN_ROW) {
            self.take_out_of_row(key, tube);
        } else {
            let found = self.tubes.get_mut(tube).ready.remove(key);
            assert!(found.is_some(), "a first job that is not parked is in the ready queue of its tube");
        }
        self.count_unready(tube, key.priority());
    }

    /// Puts a job that is in no collection among its tube's parked jobs.
    pub(crate) fn park(&mut self, id: JobId, tube: TubeKey) {
        debug_assert!(!self.is_linked(id));
        let job = self.jobs.expect_mut(id);
        job.marks |= marks::PARKED;
        let (key, is_first) = (ReadyKey::new(job.priority, id), job.has(marks::FIRST));
        if is_first {
            let tag = self.concurrency(id).expect("the first job has a key");
            let parked = self.line(tube, tag).parked(key);
            self.rules.slots.parked.insert(parked);
        }
        self.tubes.get_mut(tube).rules_mut().parked.insert(key);
        self.count_ready(tube, key.priority());
        debug_assert!(self.is_linked(id));
    }

    /// Takes a first job out of its tube's parked jobs. It still counts as ready.
    fn unpark(&mut self, first: ReadyKey, line: Line<'_>) {
        debug_assert!(self.is_linked(first.job()));
        self.jobs.expect_mut(first.job()).marks &= !marks::PARKED;
        self.rules.slots.parked.remove(line.parked(first));
        let found = self.tubes.get_mut(line.tube).rules_mut().parked.remove(first);
        assert!(found.is_some(), "a parked job is among the parked jobs of its tube");
        debug_assert!(!self.is_linked(first.job()));
    }

    /// Takes a parked job out of its tube; the caller takes it out of its line.
    pub(crate) fn take_out_of_parked(&mut self, id: JobId, key: ReadyKey, tube: TubeKey) {
        let found = self.tubes.get_mut(tube).rules_mut().parked.remove(key);
        assert!(found.is_some(), "a parked job is among the parked jobs of its tube");
        self.count_unready(tube, key.priority());
        debug_assert!(self.jobs.expect_mut(id).has(marks::PARKED));
    }
}
