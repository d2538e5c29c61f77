//! The registry of tubes.
//!
//! Owns: the existing tubes, their names, and the order in which `list-tubes` shows them.

use std::collections::TryReserveError;
use std::hash::RandomState;
use std::ops::Range;

use beanstalkd_structures::OrderedQueue;
use hashbrown::HashTable;
use slab::Slab;

use crate::clock::Timestamp;
use crate::description::{Described, Writer};
use crate::state::keys::{TubeKey, hash_of};
use crate::state::times::{MAX_TIMED_TUBES, TubeTimes};
use crate::state::tube_listing::TubeListing;
use crate::state::tube_rule::RuleBook;
use crate::state::tubes::{BYTES_PER_TUBE, DEFAULT, Tube, TubeRuleState};
use crate::tube_name::TubeName;

/// The number of parts of the index of names.
const NAME_PARTS: usize = 64;

/// A name's hash beside the tube, so that a growing index reads no names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    hash: u32,
    key: TubeKey,
}

/// The result of removing a tube if it is idle.
pub(crate) enum TubeRemoval {
    /// The tube stays.
    InUse,
    /// The tube is gone. This was the state of its rule.
    Removed(Option<Box<TubeRuleState>>),
}

/// All tubes.
#[derive(Debug)]
pub(crate) struct Tubes {
    slab: Slab<Box<Tube>>,
    /// The index of names, in parts that grow one at a time: one table of 300,000 names takes milliseconds to grow. A
    /// `HashIndex` would take about 10 bytes less for each tube, but a third more time to create the 300,000th: each
    /// search reads the header of a bucket and then its entries, both from distant memory.
    names: [HashTable<Named>; NAME_PARTS],
    /// Seeds the hash against chosen names; nothing that can be observed depends on it.
    hasher: RandomState,
    /// The tubes in the order of creation, except that the last tube takes the place of a removed one (as in C).
    order: Vec<TubeKey>,
    /// The list of all tubes in progress.
    pub listing: TubeListing,
    /// How often a tube was created or removed.
    version: u64,
    /// The total length of all names.
    name_bytes: usize,
    /// Tubes that have a record of times.
    timed: usize,
    /// The memory of the states of tubes with rules, in bytes.
    ruled_bytes: usize,
    /// The rules for new tubes.
    pub rules: RuleBook,
    /// The tube that was found or created last; during a restore many successive jobs are in the same tube.
    latest: TubeKey,
}

impl Default for Tubes {
    /// The registry with the default tube.
    fn default() -> Self {
        let mut tubes = Self {
            slab: Slab::new(),
            names: [const { HashTable::new() }; NAME_PARTS],
            hasher: RandomState::new(),
            order: Vec::new(),
            listing: TubeListing::default(),
            version: 0,
            name_bytes: 0,
            timed: 0,
            ruled_bytes: 0,
            rules: RuleBook::default(),
            latest: DEFAULT,
        };
        let key = tubes.find_or_make(TubeName::default_tube().as_str());
        assert_eq!(key, DEFAULT);
        tubes
    }
}

impl Tubes {
    /// The number of tubes.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The tubes in the order of `list-tubes`.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Tube> {
        self.keys_from(0).map(|key| self.get(key))
    }

    /// The keys of the tubes from `position` on in the order of `list-tubes`.
    pub(crate) fn keys_from(&self, position: usize) -> impl ExactSizeIterator<Item = TubeKey> {
        self.order.get(position..).unwrap_or_default().iter().copied()
    }

    /// The tubes with keys in this range that have existed since the set of tubes had the version `since`. `None` after
    /// the last key.
    pub(crate) fn since(&self, since: u64, keys: Range<usize>) -> Option<impl Iterator<Item = &Tube>> {
        // Each tube that was created later has a greater number, unless four thousand million have been created since.
        let is_old = move |tube: &&Tube| (since as u32).wrapping_sub(tube.made) as i32 > 0;
        let tubes =
            |keys: Range<usize>| keys.filter_map(|key| self.slab.get(key)).map(Box::as_ref).filter(is_old);
        (keys.start < self.slab.capacity()).then(|| tubes(keys))
    }

    /// How often a tube was created or removed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The total length of all names, in bytes.
    pub(crate) fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// The memory of the tubes, in bytes, including their entries in the registry and those that they may get among the
    /// deadlines. Their jobs are counted elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        self.len() * BYTES_PER_TUBE + self.name_bytes + self.timed * size_of::<TubeTimes>() + self.ruled_bytes
    }

    /// Writes what a description has of the registry beside the tubes.
    pub(crate) fn describe(&self, out: &mut Writer<'_>) {
        let Self {
            version,
            // The tubes are found by `iter`; the rest is derived, or belongs to a list in progress.
            slab: _,
            names: _,
            hasher: _,
            order: _,
            listing: _,
            name_bytes: _,
            timed: _,
            ruled_bytes: _,
            latest: _,
            // The next program reads them itself.
            rules: _,
        } = self;
        version.describe(out);
    }

    /// Completes the registry after the tubes of a description were created and changed.
    pub(crate) fn restore(&mut self, version: u64) {
        self.version = version;
        self.timed = self.iter().filter(|tube| tube.times().is_some()).count();
    }

    /// Changes the state of the tube's rule, which counts with another size then.
    pub(crate) fn change_ruled(
        &mut self,
        key: TubeKey,
        change: impl FnOnce(&mut Option<Box<TubeRuleState>>),
    ) {
        let ruled = &mut self.slab[key.index()].ruled;
        self.ruled_bytes -= ruled_bytes(ruled.as_deref());
        change(ruled);
        self.ruled_bytes += ruled_bytes(ruled.as_deref());
    }

    /// Asserts the sum of `ruled_bytes`.
    pub(crate) fn check_ruled_bytes(&self) {
        let bytes = self.iter().map(|tube| ruled_bytes(tube.ruled.as_deref()));
        assert_eq!(self.ruled_bytes, bytes.sum::<usize>(), "the bytes of rules");
    }

    /// The record to which the tube's next duration is added. Creates the record, unless the maximum number of records
    /// exists.
    #[inline]
    pub(crate) fn times_mut(&mut self, key: TubeKey, now: Timestamp) -> Option<&mut TubeTimes> {
        let rare = self.slab[key.index()].rare.get_or_insert_default();
        if rare.times.is_none() {
            if self.timed == MAX_TIMED_TUBES {
                return None;
            }
            self.timed += 1;
            rare.times = Some(TubeTimes::new(now));
        }
        rare.times.as_deref_mut()
    }

    /// Calls `each` with the tubes at the next `count` indexes from `start` on, in the order of `list-tubes`.
    pub(crate) fn each_in_order<E>(
        &mut self,
        start: usize,
        count: usize,
        mut each: impl FnMut(&mut Tube) -> Result<(), E>,
    ) -> Result<(), E> {
        let keys = self.order.get(start..).unwrap_or_default().iter().take(count);
        keys.into_iter().try_for_each(|&key| each(&mut self.slab[key.index()]))
    }

    /// Makes sure that the registry has room for the next tube, because clients decide its size.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub(crate) fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        // A part of the index stays small enough that its growth can use the reserve of `os::memory`.
        self.order.try_reserve(1)?;
        make_room_in_slab(&mut self.slab)
    }

    /// The tubes with the next `count` keys from `key` on, and whether no larger key is in use.
    pub(crate) fn with_keys_from(&self, key: usize, count: usize) -> (Vec<TubeKey>, bool) {
        let end = key.saturating_add(count).min(self.slab.capacity());
        let keys = (key..end).filter(|&key| self.slab.contains(key)).map(|key| TubeKey(key as u32));
        (keys.collect(), end == self.slab.capacity())
    }

    /// Whether there is a tube with this key.
    pub(crate) fn contains(&self, key: TubeKey) -> bool {
        self.slab.contains(key.index())
    }

    /// The tube at `key`. The holder of the key must keep the tube from being removed.
    #[inline]
    pub(crate) fn get(&self, key: TubeKey) -> &Tube {
        &self.slab[key.index()]
    }

    /// The tube at `key`, for changes.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: TubeKey) -> &mut Tube {
        &mut self.slab[key.index()]
    }

    /// The tube of this name.
    pub(crate) fn find(&self, name: &str) -> Option<TubeKey> {
        self.find_hashed(name, self.hash_of(name))
    }

    fn find_hashed(&self, name: &str, hash: u32) -> Option<TubeKey> {
        let is_it = |named: &Named| named.hash == hash && self.get(named.key).name.as_str() == name;
        self.names[part_of(hash)].find(table_hash(hash), is_it).map(|named| named.key)
    }

    fn hash_of(&self, name: &str) -> u32 {
        hash_of(&self.hasher, name.as_bytes()) as u32
    }

    /// The tube with this valid name, created if it does not exist. It exists until `remove_if_idle` finds it idle.
    pub(crate) fn find_or_make(&mut self, name: &str) -> TubeKey {
        if self.slab.get(self.latest.index()).is_some_and(|tube| tube.name.as_str() == name) {
            return self.latest;
        }
        let hash = self.hash_of(name);
        self.latest = self.find_hashed(name, hash).unwrap_or_else(|| self.make(name, hash));
        self.latest
    }

    fn make(&mut self, name: &str, hash: u32) -> TubeKey {
        let name = TubeName::parse(name.as_bytes()).expect("a name is checked where it is read");
        let position = self.order.len() as u32;
        let ruled = self.rules.find(name.as_str()).map(TubeRuleState::new);
        self.ruled_bytes += ruled_bytes(ruled.as_deref());
        let tube = Tube {
            name,
            ready: OrderedQueue::default(),
            delayed: OrderedQueue::default(),
            buried: OrderedQueue::default(),
            waiting: OrderedQueue::default(),
            pause: None,
            ruled,
            urgent: 0,
            reserved: 0,
            using: 0,
            watching: 0,
            position,
            listed: self.listing.number(),
            made: self.version as u32,
            puts: 0,
            rare: None,
        };
        let key = TubeKey(self.slab.insert(Box::new(tube)) as u32);
        self.order.push(key);
        self.version += 1;
        self.name_bytes += self.get(key).name.as_bytes().len();
        self.names[part_of(hash)]
            .insert_unique(table_hash(hash), Named { hash, key }, |named| table_hash(named.hash));
        key
    }

    /// Removes the tube if it has no job and no client.
    pub(crate) fn remove_if_idle(&mut self, key: TubeKey) -> TubeRemoval {
        let tube = self.get(key);
        if key == DEFAULT || !tube.is_idle() {
            return TubeRemoval::InUse;
        }
        let position = tube.position;
        let hash = self.hash_of(tube.name.as_str());
        let names = &mut self.names[part_of(hash)];
        if let Ok(entry) = names.find_entry(table_hash(hash), |named| named.key == key) {
            entry.remove();
        }
        if names.capacity() > 4 * names.len().max(16) {
            names.shrink_to(2 * names.len(), |named| table_hash(named.hash));
        }
        let removed = self.slab.remove(key.index());
        self.timed -= usize::from(removed.times().is_some());
        self.ruled_bytes -= ruled_bytes(removed.ruled.as_deref());
        self.version += 1;
        self.name_bytes -= removed.name.as_bytes().len();
        self.order.swap_remove(position as usize);
        if let Some(&moved) = self.order.get(position as usize) {
            let moved = &mut self.slab[moved.index()];
            moved.position = position;
            self.listing.note_move(moved, position as usize);
        }
        self.shrink_room();
        TubeRemoval::Removed(removed.ruled)
    }

    /// Frees the memory that a burst of tubes has left.
    fn shrink_room(&mut self) {
        let needed = self.order.len().max(64);
        if self.order.capacity() > 4 * needed {
            self.order.shrink_to(2 * needed);
            self.slab.shrink_to_fit();
        }
    }
}

fn ruled_bytes(ruled: Option<&TubeRuleState>) -> usize {
    ruled.map_or(0, TubeRuleState::bytes)
}

/// Makes sure that there is room for the next record, without the slab's own growth, which cannot report a failure.
pub(crate) fn make_room_in_slab<T>(slab: &mut Slab<T>) -> Result<(), TryReserveError> {
    if slab.len() == slab.capacity() {
        let more = slab.capacity().max(4);
        // Memory that is free now is free for the slab.
        Vec::<(usize, T)>::new().try_reserve_exact(slab.capacity() + more)?;
        slab.reserve(more);
    }
    Ok(())
}

/// The part of the index for names with this hash. A part itself does not use these bits (see `table_hash`), except in
/// a registry of tens of millions of tubes.
fn part_of(hash: u32) -> usize {
    (hash >> 19) as usize % NAME_PARTS
}

/// The hash for a table, which takes its buckets from the low bits and its tags from the high ones.
fn table_hash(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
