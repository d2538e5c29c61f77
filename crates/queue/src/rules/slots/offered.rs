//! Concurrency slots that have become free, and the clients that get them.
//!
//! Owns: the walks through the parked jobs of these keys. A key may be used in a hundred thousand tubes, each with a
//! parked job and some with waiting clients, so a walk does one share of its work with the command that has freed
//! the slot, and one in each `advance`. First it searches for waiting clients, the most urgent job first; in the
//! meantime the slot is not free for others, so that a client that comes later is not served before a waiting one. If a
//! slot is still free then, the walk moves the jobs to the ready queues of their tubes. The client whose command has
//! begun the walk reserves nothing before its end, so it finds the slots that it has freed. For other clients a job is
//! free when the walk has reached it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::line::SlotKey;
use crate::clock::Timestamp;
use crate::state::keys::{ClientKey, ReadyKey};
use crate::tags::Concurrency;
use crate::{ClientId, Queue};

/// Jobs that are probed before a released job becomes ready: about 100 microseconds.
const PROBES_BEFORE: usize = 256;

/// The walks in progress.
#[derive(Debug, Default)]
pub(crate) struct OfferedSlots {
    walks: VecDeque<Walk>,
    /// By key: the limits for which a walk searches for waiting clients.
    searched: BTreeMap<Box<[u8]>, BTreeSet<u32>>,
    /// How many of the walks each client has begun, by its index.
    causes: BTreeMap<ClientKey, usize>,
}

/// A walk through the parked jobs of the keys whose slots one command has freed.
#[derive(Debug)]
struct Walk {
    steps: Vec<Step>,
    /// Whether it still searches for waiting clients.
    is_searching: bool,
    /// The number of the last wait that had begun when the walk began.
    last_wait: u64,
    /// The index of the client that gave the command.
    cause: Option<ClientKey>,
}

/// The progress of a walk for one key and limit.
#[derive(Debug)]
struct Step {
    slot_key: SlotKey,
    /// No client waits for the jobs up to this one.
    after: Option<ReadyKey>,
}

impl OfferedSlots {
    pub(crate) fn is_empty(&self) -> bool {
        self.walks.is_empty()
    }

    /// Whether a walk searches for clients that wait for a job with this tag.
    pub(crate) fn searches(&self, tag: Concurrency<'_>) -> bool {
        !self.searched.is_empty()
            && self.searched.get(tag.key.as_bytes()).is_some_and(|limits| limits.contains(&tag.limit))
    }

    /// Whether the client has begun a walk that is still in progress.
    pub(crate) fn are_awaited_by(&self, client: ClientKey) -> bool {
        self.causes.contains_key(&client)
    }

    /// Puts off the rest of a walk, without the keys for which another walk already searches.
    fn put_off(&mut self, mut walk: Walk, is_first: bool) {
        let is_searching = walk.is_searching;
        walk.steps.retain(|Step { slot_key, .. }| {
            !is_searching || self.searched.entry(slot_key.key.clone()).or_default().insert(slot_key.limit)
        });
        if walk.steps.is_empty() {
            return;
        }
        if let Some(client) = walk.cause {
            *self.causes.entry(client).or_insert(0) += 1;
        }
        if is_first {
            self.walks.push_front(walk);
        } else {
            self.walks.push_back(walk);
        }
    }

    /// Takes the walk that continues next.
    fn take_first(&mut self) -> Option<Walk> {
        let walk = self.walks.pop_front()?;
        if let Some(client) = walk.cause
            && let Some(count) = self.causes.get_mut(&client)
        {
            *count -= 1;
            if *count == 0 {
                self.causes.remove(&client);
            }
        }
        for Step { slot_key, .. } in walk.steps.iter().filter(|_| walk.is_searching) {
            if let Some(limits) = self.searched.get_mut(&slot_key.key) {
                limits.remove(&slot_key.limit);
                if limits.is_empty() {
                    self.searched.remove(&slot_key.key);
                }
            }
        }
        Some(walk)
    }

    /// The keys and limits of all walks.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &SlotKey> {
        self.walks.iter().flat_map(|walk| &walk.steps).map(|step| &step.slot_key)
    }

    /// Asserts the invariants of the fields.
    pub(crate) fn check(&self) {
        let searching = || self.walks.iter().filter(|walk| walk.is_searching);
        let searched: usize = self.searched.values().map(BTreeSet::len).sum();
        assert_eq!(searching().map(|walk| walk.steps.len()).sum::<usize>(), searched);
        for Step { slot_key, .. } in searching().flat_map(|walk| &walk.steps) {
            assert!(self.searches(slot_key.tag()), "a key is searched by one walk");
        }
        let causes = self.walks.iter().filter(|walk| walk.cause.is_some()).count();
        assert_eq!(self.causes.values().sum::<usize>(), causes);
        assert!(self.walks.iter().all(|walk| !walk.steps.is_empty()));
    }
}

impl Queue {
    /// Offers the slots that have become free to the parked jobs of their keys, the most urgent first. `cause` is the
    /// client whose command freed them.
    pub(crate) fn offer_free_slots(&mut self, cause: Option<ClientId>, now: Timestamp) {
        if self.rules.slots.freed.is_empty() {
            return;
        }
        if self.clients.counts.waiting == 0
            && self.rules.slots.freed.len() == 1
            && let Some(slot_key) = self.rules.slots.freed.pop()
        {
            // The usual case needs no walk.
            if self.show_parked(&slot_key, &mut { self.slices.given_back }, now) {
                self.rules.slots.freed.clear();
                self.note_stale_heads();
                return;
            }
            self.rules.slots.freed.push(slot_key);
        }
        let steps = self.take_freed();
        let cause = cause.map(|client| client.key());
        let walk = Walk { steps, is_searching: true, last_wait: self.clients.waits, cause };
        self.continue_with(walk, false, now);
    }

    /// Called when a job with this key is about to become ready: waiting clients first get the more urgent jobs for
    /// which this command has freed slots.
    pub(crate) fn offer_before(&mut self, next: ReadyKey, now: Timestamp) {
        if self.rules.slots.freed.is_empty() || self.clients.counts.waiting == 0 {
            return;
        }
        let steps = self.take_freed();
        let keys: Vec<SlotKey> = steps.iter().map(|step| step.slot_key.clone()).collect();
        let mut walk = Walk { steps, is_searching: true, last_wait: self.clients.waits, cause: None };
        self.search_waiting(&mut walk, Some(next), &mut { PROBES_BEFORE }, now);
        // The rest is offered at the end of the command.
        self.rules.slots.freed.extend(keys);
    }

    /// The first steps of a walk through the freed slots.
    fn take_freed(&mut self) -> Vec<Step> {
        let mut freed = std::mem::take(&mut self.rules.slots.freed);
        freed.sort_unstable();
        freed.dedup();
        freed.into_iter().map(|slot_key| Step { slot_key, after: None }).collect()
    }

    /// Continues the walk that was begun first.
    pub(crate) fn continue_offering(&mut self, now: Timestamp) {
        if let Some(walk) = self.rules.offered.take_first() {
            self.continue_with(walk, true, now);
        }
    }

    fn continue_with(&mut self, mut walk: Walk, is_first: bool, now: Timestamp) {
        let mut left = self.slices.given_back;
        if walk.is_searching {
            walk.is_searching = !self.search_waiting(&mut walk, None, &mut left, now);
        }
        let mut show = |step: &Step| self.show_parked(&step.slot_key, &mut left, now);
        if walk.is_searching || !walk.steps.iter().all(&mut show) {
            self.rules.offered.put_off(walk, is_first);
        }
        // The jobs that have come forward in the meantime were behind others of the walk, which has seen them or will
        // see them.
        self.rules.slots.freed.clear();
        self.note_stale_heads();
    }

    /// Gives free slots to waiting clients, the most urgent job first, up to the job with the key `end`, if that is not
    /// `None`; returns whether it has reached the end.
    fn search_waiting(
        &mut self,
        walk: &mut Walk,
        end: Option<ReadyKey>,
        left: &mut usize,
        now: Timestamp,
    ) -> bool {
        if self.clients.counts.waiting == 0 {
            return true;
        }
        let next = |queue: &Self, step: &Step| queue.first_parked(&step.slot_key, step.after);
        let steps = walk.steps.iter().enumerate();
        let mut nexts: BTreeSet<(ReadyKey, usize)> =
            steps.filter_map(|(at, step)| Some((next(self, step)?, at))).collect();
        while let Some((first, at)) = nexts.pop_first() {
            if end.is_some_and(|end| first > end) {
                break;
            }
            let step = &mut walk.steps[at];
            if !self.is_slot_free(&step.slot_key) {
                continue;
            }
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.cost += 1;
            step.after = Some(first);
            let tube = self.jobs.expect_mut(first.job()).tube;
            let has_waited = |(number, _)| number <= walk.last_wait;
            if self.tubes.get(tube).is_open() && self.first_waiting(tube).is_some_and(has_waited) {
                self.bring_forward(first, &step.slot_key, now);
            }
            nexts.extend(next(self, &walk.steps[at]).map(|next| (next, at)));
        }
        true
    }

    /// Moves the parked jobs with this key and limit to the ready queues of their tubes as long as slots are free;
    /// returns whether it has reached the end.
    fn show_parked(&mut self, slot_key: &SlotKey, left: &mut usize, now: Timestamp) -> bool {
        while self.is_slot_free(slot_key)
            && let Some(first) = self.first_parked(slot_key, None)
        {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.cost += 1;
            self.bring_forward(first, slot_key, now);
        }
        true
    }
}
