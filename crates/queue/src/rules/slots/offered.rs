//! Concurrency slots that have become free, and the clients that get them. `moves/free_slots.rs` takes the steps.
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
use crate::state::keys::{ClientKey, ReadyKey};
use crate::tags::Concurrency;

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
pub(crate) struct Walk {
    pub(crate) steps: Vec<Step>,
    /// Whether it still searches for waiting clients.
    pub(crate) is_searching: bool,
    /// The number of the last wait that had begun when the walk began.
    pub(crate) last_wait: u64,
    /// The index of the client that gave the command.
    pub(crate) cause: Option<ClientKey>,
}

/// The progress of a walk for one key and limit.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) slot_key: SlotKey,
    /// No client waits for the jobs up to this one.
    pub(crate) after: Option<ReadyKey>,
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
    pub(crate) fn put_off(&mut self, mut walk: Walk, is_first: bool) {
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
    pub(crate) fn take_first(&mut self) -> Option<Walk> {
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
