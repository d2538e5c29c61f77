//! The tag `con`, a counting semaphore for each key: at most N jobs with a key are reserved at once, over all tubes.
//!
//! Owns: how many jobs of each key are reserved, and which ready jobs may be reserved now. Jobs of one tube with the
//! same key and the same limit form a line: if any of them may be reserved, the most urgent may. So only the first of a
//! line is in the tube's ready queue, and only while a slot is free. The others, and the first while no slot is free,
//! are parked: a peek shows them as ready, and no reserve sees them.
//!
//! `used_keys.rs` has an entry for each key, which holds the first job of one line. That is enough for a key with one
//! ready job at a time. Only the first jobs of further lines, in other tubes or with other limits, and the jobs behind
//! the first are in ordered indexes here.
//!
//! The [`Marks`] of a job with a key, and the collections that have it:
//!
//! | job | `FIRST` | `PARKED` | `IN_ROTATION` | in its tube | here |
//! |---|---|---|---|---|---|
//! | reserved, delayed or buried | no | no | no | the collection of its state | none |
//! | ready, first of its line, a slot is free | yes | no | no | ready queue | entry or `first` |
//! | the same in a fair tube, and it is first in the rotation | yes | no | yes | ready queue, rotation | entry or `first` |
//! | the same in a fair tube, and others are before it | yes | yes | yes | parked jobs, rotation | entry or `first` |
//! | ready, first of its line, no slot is free | yes | yes | no | parked jobs | entry, or `first` and `parked` |
//! | ready, behind the first | no | yes | no | parked jobs | `behind` |
//!
//! A first job is in `first` if it has the mark `INDEXED`, which no other job has; otherwise it is in the entry of its
//! key.
//!
//! A key may be used in very many tubes. When its last slot is taken, the first jobs of the lines in other tubes stay
//! in their ready queues until a reserve is about to choose from these: it parks them (`refresh_head`).
//! `HeadChecks::STALE` says that there may be such jobs; while there are none, reserves probe nothing.
//!
//! A free slot is first kept for the released job that has freed it: this job gets its position, and only then are the
//! free slots offered to others (`offered`).

pub(crate) mod line;
pub(crate) mod offered;
mod used_keys;

use std::collections::BTreeMap;

use beanstalkd_structures::OrderedQueue;

use self::line::{KeyLine, SlotKey};
pub(super) use self::offered::OfferedSlots;
use self::used_keys::{KeyJobs, UsedKeys};
use super::{HeadChecks, MarkedJob, Rule};
use crate::Queue;
use crate::job::JobId;
use crate::state::index::{Hash, Ranked, ranked_after, with_hash_and_rank};
use crate::state::jobs::{Collection, Job, Marks};
use crate::state::keys::{ReadyKey, TubeKey, hash_of};
use crate::tags::Concurrency;

/// For a line of which only the values are needed that do not depend on its tube.
const ANY_TUBE: TubeKey = TubeKey(0);

/// The slots of all keys.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// The keys of the ready and the reserved jobs, with the first job of one line each.
    keys: UsedKeys,
    /// The first jobs of the other lines, by the hash of key and limit, and then by the tube.
    first: OrderedQueue<Ranked>,
    /// The jobs behind the first of all lines, by the hash of key, limit and tube, and then by the priority.
    behind: OrderedQueue<Ranked>,
    /// The jobs in `first` that are parked, by the hash of key and limit, and then by the priority.
    parked: OrderedQueue<Ranked>,
    /// The keys and limits that have a newly freed slot; empty between commands.
    pub(crate) freed: Vec<SlotKey>,
}

impl Slots {
    pub(crate) fn bytes(&self) -> usize {
        self.keys.bytes()
    }
}

/// The tag `con` of a job that has one.
fn key_of<'a>(job: &MarkedJob<'a>) -> Concurrency<'a> {
    job.tags.concurrency.expect("the job has a key")
}

impl Rule for Slots {
    const ADMITS: Marks = Marks::KEYED;
    /// Only the first job of a line may be reserved, and only while a slot is free.
    fn admits(queue: &mut Queue, job: &MarkedJob<'_>) -> bool {
        let tag = key_of(job);
        let line = queue.line(job.tube, tag);
        let Some(taken) = queue.rules.slots.keys.enter_alone(line.key, job.id) else {
            return queue.join_line(job.id, line);
        };
        queue.jobs.expect_mut(job.id).marks |= Marks::FIRST;
        taken < tag.limit && !queue.rules.offered.searches(tag)
    }

    const MAY_BE_RESERVED: Marks = Marks::KEYED;
    /// A slot that is being offered counts as free.
    fn may_be_reserved(queue: &Queue, job: &MarkedJob<'_>) -> bool {
        queue.is_line_below_limit(queue.line(job.tube, key_of(job)))
    }

    const RESERVED: Marks = Marks::KEYED;
    /// A job in the ready queue was the first of its line.
    fn reserved(queue: &mut Queue, job: &MarkedJob<'_>) {
        let line = queue.line(job.tube, key_of(job));
        if queue.rules.slots.keys.take_if_alone(line.key, job.id) {
            queue.jobs.expect_mut(job.id).marks &= !Marks::FIRST;
            return;
        }
        let taken = queue.rules.slots.keys.take(line.key);
        let used_up = line.with_limit(taken);
        if !queue.rules.has_stale_heads() && queue.has_first(used_up, job.id) {
            queue.rules.head_checks.insert(HeadChecks::STALE);
        }
        if job.marks.intersects(Marks::FIRST) {
            queue.advance_line(queue.ready_key(job.id), line, false);
        }
    }

    const LEFT_READY: Marks = Marks::KEYED;
    fn left_ready(queue: &mut Queue, job: &MarkedJob<'_>) {
        queue.leave_line(job);
    }

    const LEFT_RESERVED: Marks = Marks::KEYED;
    fn left_reserved(queue: &mut Queue, job: &MarkedJob<'_>) {
        queue.free_slot(key_of(job));
    }

    #[inline]
    fn check(queue: &Queue) {
        let slots = &queue.rules.slots;
        let mut keys: BTreeMap<u64, KeyJobs> = BTreeMap::new();
        let (mut firsts, mut behind, mut parked) = (0, 0, 0);
        for id in queue.jobs.ids() {
            let job = queue.jobs.expect(id);
            let Some(tag) = queue.tags(id).and_then(|tags| tags.concurrency) else { continue };
            let line = queue.line(job.tube, tag);
            match job.collection() {
                Collection::Reserved(_) => keys.entry(line.key).or_default().taken += 1,
                Collection::Ready(_) => {
                    let key = keys.entry(line.key).or_default();
                    let first = queue.first_of(line).expect("a line with a ready job has a first job");
                    assert_eq!(first == id, job.has(Marks::FIRST));
                    assert!(queue.ready_key(first) <= queue.ready_key(id), "the first is the most urgent");
                    if first != id {
                        behind += 1;
                        key.indexed += 1;
                        assert!(slots.behind.contains(line.behind(queue.ready_key(id))));
                        continue;
                    }
                    if job.has(Marks::INDEXED) {
                        firsts += 1;
                        key.indexed += 1;
                        assert!(slots.first.contains(line.first(id)));
                    } else {
                        assert!(key.first.replace(id).is_none(), "an entry has one first job");
                    }
                    if job.marks.lack_slot() && job.has(Marks::INDEXED) {
                        parked += 1;
                        assert!(slots.parked.contains(line.parked(queue.ready_key(id))));
                    }
                    queue.check_first(job, tag);
                }
                Collection::Delayed(_) | Collection::Buried(_) => {}
            }
        }
        slots.keys.check(&keys);
        assert_eq!((slots.first.len(), slots.behind.len()), (firsts, behind));
        assert_eq!(slots.parked.len(), parked);
        assert!(slots.freed.is_empty(), "free slots are offered before a command ends");
        queue.rules.offered.check();
        assert!(queue.rules.offered.is_empty() || queue.rules.has_stale_heads());
    }
}

impl Queue {
    /// Asserts that the first job of a line is parked if and only if it must be.
    fn check_first(&self, job: &Job, tag: Concurrency<'_>) {
        let is_free = self.has_free_slot(tag);
        if job.marks.lack_slot() {
            let is_offered = || self.rules.offered.keys().any(|key| key.tag() == tag);
            assert!(!is_free || is_offered(), "free slots are offered");
        } else {
            assert!(is_free || self.rules.has_stale_heads(), "reserves know that they have to probe");
        }
    }

    /// Whether a ready or delayed job with this tag may be reserved now.
    pub(crate) fn has_free_slot(&self, tag: Concurrency<'_>) -> bool {
        self.is_line_free(self.line(ANY_TUBE, tag))
    }

    /// Whether a ready or delayed job with this key and limit may be reserved now.
    pub(crate) fn is_slot_free(&self, slot_key: &SlotKey) -> bool {
        self.is_line_free(slot_key.line(ANY_TUBE))
    }

    /// Whether a job of this line, ready or delayed, may be reserved now: a slot is free and not offered to others.
    fn is_line_free(&self, line: KeyLine<'_>) -> bool {
        self.is_line_below_limit(line) && !self.rules.offered.searches(line.tag)
    }

    /// Whether the number of reserved jobs with this key is below the limit of this tag.
    pub(crate) fn is_below_limit(&self, tag: Concurrency<'_>) -> bool {
        self.is_line_below_limit(self.line(ANY_TUBE, tag))
    }

    /// Called when a job was reserved that has a key, and neither expires nor ages. If it was the only ready job of the
    /// key, this does all that `reserved` does, and returns true. Otherwise nothing has changed.
    pub(super) fn take_only_slot(&mut self, id: JobId) -> bool {
        let tag = self.concurrency(id).expect("the job has a key");
        let hash = hash_of(&self.rules.hasher, tag.key.as_bytes());
        let was_alone = self.rules.slots.keys.take_if_alone(hash, id);
        if was_alone {
            self.jobs.expect_mut(id).marks &= !Marks::FIRST;
        }
        was_alone
    }

    /// Whether fewer than `limit` jobs of the key are reserved. A slot that is being offered counts as free.
    fn is_line_below_limit(&self, line: KeyLine<'_>) -> bool {
        self.rules.slots.keys.get(line.key).taken() < line.tag.limit
    }

    fn line<'a>(&self, tube: TubeKey, tag: Concurrency<'a>) -> KeyLine<'a> {
        KeyLine::new(tube, tag, &self.rules.hasher)
    }

    /// The first of the jobs in the line.
    fn first_of(&self, line: KeyLine<'_>) -> Option<JobId> {
        let slots = &self.rules.slots;
        let key = slots.keys.get(line.key);
        if let Some(first) = key.first().filter(|&first| self.belongs_to_line(first, line)) {
            return Some(first);
        }
        if !key.has_indexed() {
            return None;
        }
        with_hash_and_rank(&slots.first, line.hash(), line.tube.0).find(|&id| self.belongs_to_line(id, line))
    }

    /// Adds a ready job to its line, if the key has other jobs. Returns whether clients may reserve it.
    #[inline(never)]
    fn join_line(&mut self, id: JobId, line: KeyLine<'_>) -> bool {
        let key = self.ready_key(id);
        let first = self.first_of(line).map(|first| self.ready_key(first));
        if first.is_some_and(|first| first < key) {
            self.insert_behind(key, line);
            return false;
        }
        if let Some(first) = first {
            let id = first.job();
            let is_parked = self.jobs.expect(id).marks.lack_slot();
            self.unmark_first(first, line, is_parked);
            self.insert_behind(first, line);
            if !is_parked {
                self.take_out_of_ready(id, line.tube);
                self.park(id, line.tube);
                if !self.is_line_free(line) {
                    self.forget_position(line.tube);
                }
            }
        }
        self.replace_first(first.map(ReadyKey::job), Some(key), line);
        self.is_line_free(line)
    }

    fn belongs_to_line(&self, id: JobId, line: KeyLine<'_>) -> bool {
        #[cfg(test)]
        crate::testing::steps::note_probe();
        let job = self.jobs.expect(id);
        job.tube == line.tube && self.concurrency_of(id, job) == Some(line.tag)
    }

    fn ready_key(&self, id: JobId) -> ReadyKey {
        ReadyKey::new(self.jobs.expect(id).priority, id)
    }

    /// Removes a job, which was ready and is in no collection, from its line.
    fn leave_line(&mut self, job: &MarkedJob<'_>) {
        let (key, line) = (self.ready_key(job.id), self.line(job.tube, key_of(job)));
        if job.marks.intersects(Marks::FIRST) {
            self.advance_line(key, line, job.marks.lack_slot());
        } else {
            self.leave_behind(key, line);
        }
    }

    /// Replaces the first job of the line by the next one, if there is one. If a client waits for that, it is offered
    /// at the end of the command. If the old one was parked while a slot is free, a walk will reach the line.
    fn advance_line(&mut self, first: ReadyKey, line: KeyLine<'_>, was_parked: bool) {
        self.unmark_first(first, line, was_parked);
        let next = self.take_second(line);
        self.replace_first(Some(first.job()), next, line);
        let Some(next) = next.filter(|_| !was_parked && self.is_line_free(line)) else { return };
        let tube = self.tubes.get(line.tube);
        if tube.is_open() && self.first_waiting(line.tube).is_some() {
            self.rules.slots.freed.push(SlotKey::of(line));
        } else if self.uses_rotation(line.tube) {
            self.join_rotation_from_parked(next, line);
        } else {
            self.unpark(next, line);
            self.tubes.get_mut(line.tube).ready.insert(next);
        }
    }

    /// Removes and returns the second job of the line.
    fn take_second(&mut self, line: KeyLine<'_>) -> Option<ReadyKey> {
        let slots = &self.rules.slots;
        if slots.behind.is_empty() || !slots.keys.get(line.key).has_indexed() {
            return None;
        }
        let is_meant = |key: &Ranked| self.belongs_to_line(key.job(), line);
        let second = ranked_after(&slots.behind, line.hash_behind(), None).find(is_meant)?.ready_key();
        self.leave_behind(second, line);
        Some(second)
    }

    /// Frees the slot of a job with this tag.
    pub(crate) fn free_slot(&mut self, tag: Concurrency<'_>) {
        let line = self.line(ANY_TUBE, tag);
        let key = self.rules.slots.keys.give_back(line.key);
        let used_up = line.with_limit(key.taken());
        // Only a parked first job can have waited for the slot.
        let is_awaited = || key.first().is_some_and(|first| self.is_parked_with(first, used_up.tag));
        if key.has_indexed() && !self.rules.slots.parked.is_empty() || is_awaited() {
            self.rules.slots.freed.push(SlotKey::of(used_up));
        }
    }

    /// Whether this first job has this tag and is parked.
    fn is_parked_with(&self, first: JobId, tag: Concurrency<'_>) -> bool {
        let job = self.jobs.expect(first);
        job.marks.lack_slot() && self.concurrency_of(first, job) == Some(tag)
    }

    /// Whether another ready job in any tube is the first of a line with the tag of this one.
    fn has_first(&self, line: KeyLine<'_>, but: JobId) -> bool {
        let is_meant = |id| id != but && self.concurrency(id) == Some(line.tag);
        let key = self.rules.slots.keys.get(line.key);
        key.first().is_some_and(is_meant)
            || key.has_indexed()
                && ranked_after(&self.rules.slots.first, line.hash(), None).map(Ranked::job).any(is_meant)
    }

    /// The most urgent of the parked first jobs with this key and limit, or the next after `after`.
    pub(crate) fn first_parked(&self, slot_key: &SlotKey, after: Option<ReadyKey>) -> Option<ReadyKey> {
        let slots = &self.rules.slots;
        let key = slots.keys.get(slot_key.hash);
        let of_entry = key.first().filter(|&first| self.is_parked_with(first, slot_key.tag()));
        let of_entry = of_entry.map(|first| self.ready_key(first)).filter(|&first| Some(first) > after);
        if !key.has_indexed() {
            return of_entry;
        }
        let mut indexed = ranked_after(&slots.parked, slot_key.line(ANY_TUBE).hash(), after);
        let is_meant = |key: &Ranked| self.concurrency(key.job()) == Some(slot_key.tag());
        of_entry.into_iter().chain(indexed.find(is_meant).map(Ranked::ready_key)).min()
    }

    /// Adds a parked first job to the rotation of its tube: it stays parked, but only the jobs before it keep it back.
    pub(crate) fn join_rotation_from_parked(&mut self, first: ReadyKey, line: KeyLine<'_>) {
        self.remove_parked_first(first, line);
        self.join_rotation(first, line.tube, Hash::new(line.key));
    }

    /// Recomputes whether heads are stale. Call it when a walk ends or is postponed.
    pub(crate) fn note_stale_heads(&mut self) {
        let is_offering = !self.rules.offered.is_empty();
        let are_stale = is_offering || self.rules.has_stale_heads() && self.rules.slots.keys.has_taken();
        self.rules.head_checks.set(HeadChecks::STALE, are_stale);
    }

    /// Replaces the first job of the line, `before`, by `first`: in the entry of the key, or in the index. The index
    /// keeps the first jobs of a line at one position, so one is written over the other.
    fn replace_first(&mut self, mut before: Option<JobId>, first: Option<ReadyKey>, line: KeyLine<'_>) {
        let slots = &mut self.rules.slots;
        let id = first.map(ReadyKey::job);
        if slots.keys.get(line.key).first() == before {
            if slots.keys.set_first(line.key, id) {
                if let Some(id) = id {
                    self.jobs.expect_mut(id).marks |= Marks::FIRST;
                }
                return;
            }
            before = None;
        }
        let found = match (before, id) {
            (Some(before), Some(id)) => slots.first.replace(line.first(before), line.first(id)),
            (Some(before), None) => {
                slots.keys.remove_indexed(line.key);
                slots.first.remove(line.first(before))
            }
            (None, Some(id)) => {
                slots.keys.add_indexed(line.key);
                slots.first.insert(line.first(id));
                None
            }
            (None, None) => None,
        };
        assert_eq!(found.is_some(), before.is_some(), "the first of a line is in its entry or indexed");
        let Some(first) = first else { return };
        let job = self.jobs.expect_mut(first.job());
        job.marks |= Marks::FIRST | Marks::INDEXED;
        if job.marks.lack_slot() {
            self.rules.slots.parked.insert(line.parked(first));
        }
    }

    /// Called when the first job of a line is about to lose that position. `is_parked` says whether it is, or was until
    /// now, parked without a slot.
    fn unmark_first(&mut self, first: ReadyKey, line: KeyLine<'_>, is_parked: bool) {
        if is_parked {
            self.remove_parked_first(first, line);
        }
        self.jobs.expect_mut(first.job()).marks &= !(Marks::FIRST | Marks::INDEXED);
    }

    /// Removes a first job from the index of the parked ones, if it is there: the entry of its key may have it.
    fn remove_parked_first(&mut self, first: ReadyKey, line: KeyLine<'_>) {
        if self.jobs.expect_mut(first.job()).has(Marks::INDEXED) {
            let found = self.rules.slots.parked.remove(line.parked(first));
            assert!(found.is_some(), "a first job that has no slot is indexed");
        }
    }

    fn insert_behind(&mut self, key: ReadyKey, line: KeyLine<'_>) {
        let slots = &mut self.rules.slots;
        slots.keys.add_indexed(line.key);
        slots.behind.insert(line.behind(key));
    }

    fn leave_behind(&mut self, key: ReadyKey, line: KeyLine<'_>) {
        let slots = &mut self.rules.slots;
        slots.keys.remove_indexed(line.key);
        let found = slots.behind.remove(line.behind(key));
        assert!(found.is_some(), "a job behind the first is indexed");
    }

    /// Takes a job that stays ready out of the ready queue.
    pub(crate) fn take_out_of_ready(&mut self, id: JobId, tube: TubeKey) {
        let key = self.ready_key(id);
        if self.jobs.expect_mut(id).has(Marks::IN_ROTATION) {
            self.remove_from_rotation(key, tube);
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
        let (key, is_in_index) = (ReadyKey::new(job.priority, id), job.has(Marks::INDEXED));
        self.tubes.get_mut(tube).insert_parked(key, job);
        if is_in_index {
            let tag = self.concurrency(id).expect("the first job has a key");
            let parked = self.line(tube, tag).parked(key);
            self.rules.slots.parked.insert(parked);
        }
        self.count_ready(tube, key.priority());
        debug_assert!(self.is_linked(id));
    }

    /// Takes a first job out of its tube's parked jobs. It still counts as ready.
    pub(crate) fn unpark(&mut self, first: ReadyKey, line: KeyLine<'_>) {
        debug_assert!(self.is_linked(first.job()));
        self.remove_parked_first(first, line);
        self.tubes.get_mut(line.tube).remove_parked(first, self.jobs.expect_mut(first.job()));
        debug_assert!(!self.is_linked(first.job()));
    }

    /// Takes a parked job out of its tube; the caller takes it out of its line.
    pub(crate) fn take_out_of_parked(&mut self, key: ReadyKey, tube: TubeKey) {
        self.tubes.get_mut(tube).remove_parked(key, self.jobs.expect_mut(key.job()));
        self.count_unready(tube, key.priority());
    }
}
