//! The tag `con`: at most so many jobs with a key are reserved at once, over all tubes.
//!
//! Owns: how many jobs of each key are reserved, and which ready jobs may be reserved now. Jobs of one tube with the same
//! key and the same limit are alike: if any of them may be reserved, the most urgent may. So only this one, the first,
//! stands in the tube's ready queue, and only while a place is free. The others, and the first while none is free, are
//! parked: they are ready for everybody who looks, and no reserve sees them. A place that is taken or given back
//! touches one job of each tube, however many wait.
//!
//! A place that is given back is first kept for the job that gives it back: this one is put where it belongs, and only
//! then the free places are offered to others (`serve_free_places`), the most urgent job first.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use super::index::{Hash, Hashed, HashedReady, ready_with_hash, with_hash, with_prefix};
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::queue::Queue;
use crate::queue::jobs::{Place, marks};
use crate::queue::keys::{ReadyKey, TubeKey};
use crate::queue::ordered::OrderedQueue;
use crate::tags::{Concurrency, TagSet};

/// What a key of which jobs are reserved takes beside its name, in bytes.
const KEY_BYTES: usize = 64;

/// Bits of a hash for the tube: the key and the limit have the rest.
const TUBE_BITS: u32 = 12;
/// Bits of a hash for the limit.
const LIMIT_BITS: u32 = 10;

/// The places of all keys.
#[derive(Debug, Default)]
pub struct Places {
    /// The first of those jobs that are alike, by the hash of key, limit and tube.
    first: OrderedQueue<Hashed>,
    /// The others.
    behind: OrderedQueue<HashedReady>,
    /// By key: how many of its jobs are reserved; not 0.
    taken: BTreeMap<Box<str>, u32>,
    key_bytes: usize,
    /// Keys and limits for which a place may have become free.
    freed: Vec<(Box<str>, u32)>,
}

/// What jobs that are alike have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    tube: TubeKey,
    key: &'a str,
    limit: u32,
}

impl<'a> Line<'a> {
    fn new(tube: TubeKey, tag: Concurrency<'a>) -> Self {
        Self { tube, key: tag.key, limit: tag.limit }
    }

    fn hash(self, hasher: &RandomState) -> Hash {
        let low = |value: u64, bits: u32| value & ((1 << bits) - 1);
        let limit = low(hasher.hash_one(self.limit), LIMIT_BITS);
        let tube = low(hasher.hash_one((self.tube, 't')), TUBE_BITS);
        Hash::new((hasher.hash_one(self.key) << LIMIT_BITS | limit) << TUBE_BITS | tube)
    }
}

impl Places {
    fn taken(&self, key: &str) -> u32 {
        self.taken.get(key).copied().unwrap_or(0)
    }

    pub fn bytes(&self) -> usize {
        self.taken.len() * KEY_BYTES + self.key_bytes
    }

    pub fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }
}

impl Queue {
    /// Whether a ready or delayed job with this tag may be reserved now.
    pub(in crate::queue) fn has_free_place(&self, tag: Concurrency<'_>) -> bool {
        self.tagged.places.taken(tag.key) < tag.limit
    }

    /// The first of the jobs in the line.
    fn first_of(&self, line: Line<'_>) -> Option<JobId> {
        with_hash(&self.tagged.places.first, line.hash(&self.tagged.hasher))
            .find(|&id| self.line_of(id) == Some(line))
    }

    fn line_of(&self, id: JobId) -> Option<Line<'_>> {
        let job = self.jobs.get(id).expect("what an index has is there");
        Some(Line::new(job.tube, self.tags_of(id).concurrency?))
    }

    fn ready_key(&self, id: JobId) -> ReadyKey {
        ReadyKey::new(self.jobs.get(id).expect("what an index has is there").priority, id)
    }

    /// A job with this tag is in no collection, and is ready in its tube from now on: it may go to a client that waits.
    pub(in crate::queue) fn enter_line(&mut self, id: JobId, tag: Concurrency<'_>, now: Timestamp) {
        let key = self.ready_key(id);
        let tube = self.jobs.held(id).tube;
        let line = Line::new(tube, tag);
        let first = self.first_of(line);
        if first.is_some_and(|first| self.ready_key(first) < key) {
            self.stand_behind(id, line);
            self.park(id, tube);
            return;
        }
        if let Some(first) = first {
            self.remove_first(first, line);
            self.stand_behind(first, line);
            if !self.jobs.held(first).has(marks::PARKED) {
                self.take_out_of_ready(first, tube);
                self.park(first, tube);
            }
        }
        self.insert_first(id, line);
        if self.has_free_place(tag) {
            self.enqueue(id, tube, key.priority(), now);
        } else {
            self.park(id, tube);
        }
    }

    /// A job with this tag that was ready is in no collection any more, and leaves those that are alike.
    pub(in crate::queue) fn leave_line(&mut self, id: JobId, tag: Concurrency<'_>) {
        let job = self.jobs.held(id);
        let line = Line::new(job.tube, tag);
        let (is_first, was_parked) = (job.has(marks::FIRST), job.has(marks::PARKED));
        job.marks &= !marks::PARKED;
        if is_first {
            self.remove_first(id, line);
            self.advance_line(line, was_parked);
        } else {
            let key = HashedReady::new(line.hash(&self.tagged.hasher), self.ready_key(id).priority(), id);
            let found = self.tagged.places.behind.remove(key);
            assert!(found.is_some(), "a job behind the first is indexed");
        }
    }

    /// The next job of the line becomes the first. Where somebody waits for it, or nobody has looked for the one before
    /// it, it is offered when the command is done.
    fn advance_line(&mut self, line: Line<'_>, was_parked: bool) {
        let Some(next) = self.second_of(line) else { return };
        let hash = line.hash(&self.tagged.hasher);
        let key = self.ready_key(next);
        self.tagged.places.behind.remove(HashedReady::new(hash, key.priority(), next));
        self.insert_first(next, line);
        if self.tagged.places.taken(line.key) >= line.limit {
            return;
        }
        let tube = self.tubes.get(line.tube);
        if was_parked || tube.pause.is_none() && self.first_waiting(line.tube).is_some() {
            self.tagged.places.freed.push((line.key.into(), line.limit));
        } else {
            self.unpark(next, line.tube);
            self.tubes.get_mut(line.tube).ready.insert(key);
        }
    }

    /// The first of those behind the first.
    fn second_of(&self, line: Line<'_>) -> Option<JobId> {
        ready_with_hash(&self.tagged.places.behind, line.hash(&self.tagged.hasher))
            .find(|&id| self.line_of(id) == Some(line))
    }

    /// A job with this tag was reserved. `was_first`: it stood in the ready queue.
    pub(in crate::queue) fn take_place(&mut self, id: JobId, tag: Concurrency<'_>) {
        let job = self.jobs.held(id);
        let line = Line::new(job.tube, tag);
        let was_first = job.has(marks::FIRST);
        if was_first {
            self.remove_first(id, line);
        }
        let places = &mut self.tagged.places;
        let taken = match places.taken.get_mut(tag.key) {
            Some(taken) => {
                *taken += 1;
                *taken
            }
            None => {
                places.key_bytes += tag.key.len();
                places.taken.insert(tag.key.into(), 1);
                1
            }
        };
        for (id, tube) in self.firsts(tag.key, taken) {
            if !self.jobs.held(id).has(marks::PARKED) {
                self.work += 1;
                self.take_out_of_ready(id, tube);
                self.park(id, tube);
            }
        }
        if was_first {
            self.advance_line(line, false);
        }
    }

    /// A job with this tag is reserved no more.
    pub(in crate::queue) fn free_place(&mut self, tag: Concurrency<'_>) {
        let places = &mut self.tagged.places;
        let taken = places.taken.get_mut(tag.key).expect("a reserved job has a place");
        let before = *taken;
        *taken -= 1;
        if *taken == 0 {
            places.taken.remove(tag.key);
            places.key_bytes -= tag.key.len();
        }
        places.freed.push((tag.key.into(), before));
    }

    /// Offers the places that have become free to the first jobs of their keys, the most urgent first.
    pub(in crate::queue) fn serve_free_places(&mut self, now: Timestamp) {
        while !self.tagged.places.freed.is_empty() {
            let freed = std::mem::take(&mut self.tagged.places.freed);
            let firsts = freed.iter().flat_map(|(key, limit)| self.firsts(key, *limit));
            let parked = firsts.filter(|&(id, _)| self.is_parked(id));
            let mut parked: BTreeSet<_> = parked.map(|(id, tube)| (self.ready_key(id), tube)).collect();
            while let Some((first, tube)) = parked.pop_first() {
                self.work += 1;
                let tags = self.take_tags(first.job());
                if let Some(tag) = TagSet::decode(&tags).and_then(|tags| tags.concurrency)
                    && self.has_free_place(tag)
                {
                    self.unpark(first.job(), tube);
                    self.count_unready(tube, first.priority());
                    self.enqueue(first.job(), tube, first.priority(), now);
                    // If a client has got it, the next of its line is the first now.
                    let next = self.first_of(Line::new(tube, tag)).filter(|&next| self.is_parked(next));
                    parked.extend(next.map(|next| (self.ready_key(next), tube)));
                }
                self.give_back_tags(tags);
            }
        }
    }

    fn is_parked(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| job.has(marks::PARKED))
    }

    /// The firsts of all lines with this key and limit, and their tubes.
    fn firsts(&self, key: &str, limit: u32) -> Vec<(JobId, TubeKey)> {
        let hash = Line { tube: 0, key, limit }.hash(&self.tagged.hasher);
        let firsts = with_prefix(&self.tagged.places.first, hash, TUBE_BITS);
        let lines = firsts.filter_map(|id| Some((id, self.line_of(id)?)));
        lines
            .filter(|(_, line)| (line.key, line.limit) == (key, limit))
            .map(|(id, line)| (id, line.tube))
            .collect()
    }

    fn insert_first(&mut self, id: JobId, line: Line<'_>) {
        self.jobs.held(id).marks |= marks::FIRST;
        let hash = line.hash(&self.tagged.hasher);
        self.tagged.places.first.insert(Hashed::new(hash, id));
    }

    fn remove_first(&mut self, id: JobId, line: Line<'_>) {
        self.jobs.held(id).marks &= !marks::FIRST;
        let hash = line.hash(&self.tagged.hasher);
        let found = self.tagged.places.first.remove(Hashed::new(hash, id));
        assert!(found.is_some(), "the first of a line is indexed");
    }

    fn stand_behind(&mut self, id: JobId, line: Line<'_>) {
        let priority = self.ready_key(id).priority();
        let hash = line.hash(&self.tagged.hasher);
        self.tagged.places.behind.insert(HashedReady::new(hash, priority, id));
    }

    /// Takes a job that stays ready out of the queue of those that may be reserved.
    fn take_out_of_ready(&mut self, id: JobId, tube: TubeKey) {
        let key = self.ready_key(id);
        let found = self.tubes.get_mut(tube).ready.remove(key);
        assert!(found.is_some(), "a first job that is not parked stands in its tube's ready queue");
        self.count_unready(tube, key.priority());
    }

    /// Puts a job that is in no collection among its tube's parked jobs.
    fn park(&mut self, id: JobId, tube: TubeKey) {
        let key = self.ready_key(id);
        self.jobs.held(id).marks |= marks::PARKED;
        self.flushes.note_moved(id, tube);
        self.tubes.get_mut(tube).tagged_mut().parked.insert(key);
        self.count_ready(tube, key.priority());
    }

    /// Takes a job out of its tube's parked jobs. It still counts as ready.
    fn unpark(&mut self, id: JobId, tube: TubeKey) {
        let key = self.ready_key(id);
        self.jobs.held(id).marks &= !marks::PARKED;
        self.flushes.note_moved(id, tube);
        let found = self.tubes.get_mut(tube).tagged_mut().parked.remove(key);
        assert!(found.is_some(), "a parked job stands among its tube's parked jobs");
    }

    /// Takes a parked job out of its tube; the caller takes it out of its line.
    pub(in crate::queue) fn take_out_of_parked(&mut self, id: JobId, key: ReadyKey, tube: TubeKey) {
        let found = self.tubes.get_mut(tube).tagged_mut().parked.remove(key);
        assert!(found.is_some(), "a parked job stands among its tube's parked jobs");
        self.count_unready(tube, key.priority());
        debug_assert!(self.jobs.held(id).has(marks::PARKED));
    }

    /// Asserts the invariants of the fields.
    pub(in crate::queue) fn check_places(&self) {
        let places = &self.tagged.places;
        let mut taken: BTreeMap<&str, u32> = BTreeMap::new();
        let (mut ready, mut firsts) = (0, 0);
        for id in self.jobs.ids() {
            let job = self.jobs.get(id).expect("an indexed job is there");
            let tag = self.tags_of_any(id).and_then(|tags| tags.concurrency);
            let Some(tag) = tag else {
                assert!(!job.has(marks::FIRST | marks::PARKED), "only keys park jobs");
                continue;
            };
            match job.place() {
                Place::Reserved(_) => *taken.entry(tag.key).or_insert(0) += 1,
                Place::Ready(_) => {
                    ready += 1;
                    let line = Line::new(job.tube, tag);
                    let first = self.first_of(line).expect("of those that are ready, one is the first");
                    assert_eq!(first == id, job.has(marks::FIRST));
                    assert!(self.ready_key(first) <= self.ready_key(id), "the first is the most urgent");
                    firsts += usize::from(first == id);
                    let may_be_reserved = first == id && self.has_free_place(tag);
                    assert_eq!(may_be_reserved, !job.has(marks::PARKED), "{id:?} {tag:?}");
                }
                Place::Delayed(_) | Place::Buried(_) => assert!(!job.has(marks::FIRST | marks::PARKED)),
            }
        }
        assert_eq!((places.first.len(), places.behind.len()), (firsts, ready - firsts));
        assert!(
            places.taken.iter().map(|(key, &count)| (&**key, count)).eq(taken),
            "each reserved job has a place"
        );
        assert_eq!(places.taken.keys().map(|key| key.len()).sum::<usize>(), places.key_bytes);
        assert!(!places.has_freed(), "free places are offered before a command ends");
    }

    /// The state in which a job with tags may be reserved by `reserve-job`.
    pub(in crate::queue) fn may_be_reserved(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        job.place().state() != JobState::Reserved
            && !job.has(marks::HELD)
            && self
                .tags_of_any(id)
                .is_none_or(|tags| tags.concurrency.is_none_or(|tag| self.has_free_place(tag)))
    }
}
