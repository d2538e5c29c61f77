//! Tubes: named queues, each with its jobs by state, its waiting clients and its counters.
//!
//! Owns: the existing tubes, their names, and the order in which `list-tubes` shows them. Moves no jobs: that is
//! `Queue`'s work.

use std::collections::TryReserveError;
use std::hash::RandomState;
use std::num::NonZeroU32;
use std::ops::{AddAssign, Range};

use beanstalkd_structures::OrderedQueue;
use hashbrown::HashTable;
use slab::Slab;

use crate::JobCounts;
use crate::clock::Timestamp;
use crate::rules::TubeTagState;
use crate::rules::ruled_tubes::TubeRuleState;
use crate::rules::tube_rule::RuleBook;
use crate::state::keys::{BuriedKey, DueKey, ReadyKey, TubeKey, WaitKey, hash_of};
use crate::state::times::{self, TubeTimes};
use crate::state::tube_listing::TubeListing;
use crate::tube_name::TubeName;

/// The tube "default": the first that is created, and never removed.
pub(crate) const DEFAULT: TubeKey = TubeKey(0);

/// The memory of a tube besides its name and its jobs, in bytes: the record, its counters, the entries in the registry
/// and among the deadlines, and the queues that its jobs may leave empty.
pub(crate) const BYTES_PER_TUBE: usize = 400;

/// The number of parts of the index of names.
const NAME_PARTS: usize = 64;

/// How often each event has happened to the jobs of a tube, or of all tubes, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct TubeCounters {
    pub puts: u64,
    /// Reservations, by any command.
    pub reserves: u64,
    pub timeouts: u64,
    /// Releases by clients.
    pub releases: u64,
    /// Burials by clients.
    pub buries: u64,
    pub kicks: u64,
    pub deletes: u64,
    /// Jobs buried by the limits on time-outs and releases, or by a rule.
    pub poisoned: u64,
    /// Jobs that expired because no client reserved them in time.
    pub expirations: u64,
}

impl AddAssign for TubeCounters {
    fn add_assign(&mut self, other: Self) {
        let Self { puts, reserves, timeouts, releases, buries, kicks, deletes, poisoned, expirations } =
            other;
        self.puts += puts;
        self.reserves += reserves;
        self.timeouts += timeouts;
        self.releases += releases;
        self.buries += buries;
        self.kicks += kicks;
        self.deletes += deletes;
        self.poisoned += poisoned;
        self.expirations += expirations;
    }
}

/// A pause: no job is reserved from the tube until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// When it ends, plus 2^32 ns: the first word is not 0, so that an absent pause needs no word of its own.
    until: (NonZeroU32, u32),
    /// The requested length, in whole seconds.
    pub length_s: u32,
}

impl Pause {
    pub(crate) fn new(until: Timestamp, length_s: u32) -> Self {
        let shifted = until.0.saturating_add(1 << 32);
        let high = NonZeroU32::new((shifted >> 32) as u32).expect("2^32 was added");
        Self { until: (high, shifted as u32), length_s }
    }

    pub(crate) fn until(self) -> Timestamp {
        let (high, low) = self.until;
        Timestamp((u64::from(high.get() - 1) << 32) + u64::from(low))
    }
}

/// A tube. Everything that each tube needs lies in one block of memory.
#[derive(Debug)]
pub(crate) struct Tube {
    pub name: TubeName,
    pub ready: OrderedQueue<ReadyKey>,
    pub delayed: OrderedQueue<DueKey>,
    pub buried: OrderedQueue<BuriedKey>,
    /// Clients that wait in a reserve and watch this tube, in order of arrival, except those that watch many tubes.
    /// While the tube is open, this or `ready` is empty.
    pub waiting: OrderedQueue<WaitKey>,
    pub pause: Option<Pause>,
    /// The state of its rule, if there is one for its name, or there was one that a reload has not forgotten yet.
    pub ruled: Option<Box<TubeRuleState>>,
    /// Ready jobs with an urgent priority.
    pub urgent: u32,
    pub reserved: u32,
    /// Clients that use the tube.
    pub using: u32,
    /// Clients that watch the tube.
    pub watching: u32,
    /// The index in the order of `list-tubes`.
    pub position: u32,
    /// The number of the last list that has this tube, or that must not have it.
    pub listed: u32,
    /// The version of the set of tubes when it was created, without the high bits.
    pub made: u32,
    pub puts: u64,
    /// Created when it is needed: among very many tubes, most do without it.
    pub rare: Option<Box<RareState>>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Tube>() <= 112, "a tube is a block of 112 bytes");

/// What few of very many tubes have: the counts of events besides puts, and the state that tags need.
#[derive(Debug, Default)]
pub(crate) struct RareState {
    /// `pause-tube` commands.
    pub pauses: u64,
    /// The other counts; its `puts` are those of the tube.
    pub counters: TubeCounters,
    /// Created when a job is reserved, unless there are [`times::MAX_TIMED_TUBES`] already.
    pub times: Option<Box<TubeTimes>>,
    /// Created for the first job with tags that needs it.
    pub tag_state: Option<Box<TubeTagState>>,
}

impl Tube {
    /// The counts of events of the tube's jobs.
    pub(crate) fn counters(&self) -> TubeCounters {
        let counters = self.rare.as_ref().map_or_else(TubeCounters::default, |rare| rare.counters);
        TubeCounters { puts: self.puts, ..counters }
    }

    /// The record in which events other than puts are counted.
    #[inline]
    pub(crate) fn counters_mut(&mut self) -> &mut TubeCounters {
        &mut self.rare.get_or_insert_default().counters
    }

    /// The state of rules for tags in this tube, if it had jobs with tags.
    pub(crate) fn tag_state(&self) -> Option<&TubeTagState> {
        self.rare.as_ref()?.tag_state.as_deref()
    }

    /// The state of rules for tags in this tube, created if it does not exist.
    pub(crate) fn tag_state_mut(&mut self) -> &mut TubeTagState {
        self.rare.get_or_insert_default().tag_state.get_or_insert_default()
    }

    /// Waiting and running times, if any were counted.
    #[inline]
    pub(crate) fn times(&self) -> Option<&TubeTimes> {
        self.rare.as_ref()?.times.as_deref()
    }

    /// How often the tube was paused.
    pub(crate) fn pauses(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.pauses)
    }

    /// Pauses the tube.
    pub(crate) fn set_pause(&mut self, pause: Pause) {
        self.pause = Some(pause);
        self.rare.get_or_insert_default().pauses += 1;
    }

    /// Whether jobs may be reserved here.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.pause.is_none() && !self.is_throttled()
    }

    /// The job that a reserve would take.
    pub(crate) fn open_head(&self) -> Option<ReadyKey> {
        self.ready.first().filter(|_| self.is_open())
    }

    /// The tube's jobs by state.
    pub(crate) fn job_counts(&self) -> JobCounts {
        let tagged = self.tag_state();
        JobCounts {
            urgent: u64::from(self.urgent),
            ready: (self.ready.len() + tagged.map_or(0, |tagged| tagged.parked.len())) as u64,
            reserved: u64::from(self.reserved),
            delayed: (self.delayed.len() + tagged.map_or(0, |tagged| tagged.held.len())) as u64,
            buried: self.buried.len() as u64,
        }
    }

    /// The next deadline of the tube: the end of the pause or of the first delay.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let delay = self.delayed.first().map(|key| key.0);
        let pause = self.pause.map(Pause::until);
        if self.ruled.is_none() {
            return [delay, pause].into_iter().flatten().min();
        }
        [delay, pause, self.gate_at(), self.deficit_ends_at(), self.age_ends_at()].into_iter().flatten().min()
    }

    /// Whether the tube can be removed: it has no job, and no client uses or watches it.
    fn is_idle(&self) -> bool {
        self.is_unused() && self.ruled.as_ref().is_none_or(|ruled| !ruled.gate.has_deficit())
    }

    /// Whether the tube can be removed, unless the token bucket of its rule keeps it.
    pub(crate) fn is_unused(&self) -> bool {
        self.using == 0
            && self.watching == 0
            && self.reserved == 0
            && self.ready.is_empty()
            && self.delayed.is_empty()
            && self.buried.is_empty()
            && self.tag_state().is_none_or(TubeTagState::is_empty)
    }
}

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

#[derive(Debug)]
pub(crate) struct Tubes {
    pub slab: Slab<Box<Tube>>,
    /// The index of names, in parts that grow one at a time: one table of 300,000 names takes milliseconds to grow. A
    /// `HashIndex` would take about 10 bytes less for each tube, but a third more time to create the 300,000th: each
    /// search reads the header of a bucket and then its entries, both from distant memory.
    pub names: [HashTable<Named>; NAME_PARTS],
    /// Seeds the hash against chosen names; nothing that can be observed depends on it.
    pub hasher: RandomState,
    /// The tubes in the order of creation, except that the last tube takes the place of a removed one (as in C).
    pub order: Vec<TubeKey>,
    /// The list of all tubes in progress.
    pub listing: TubeListing,
    /// How often a tube was created or removed.
    pub version: u64,
    /// The total length of all names.
    pub name_bytes: usize,
    /// Tubes that have a record of times.
    pub timed: usize,
    /// The memory of the states of tubes with rules, in bytes.
    pub ruled_bytes: usize,
    /// The rules for new tubes.
    pub rules: RuleBook,
    /// The tube that was found or created last; during a restore many successive jobs are in the same tube.
    pub latest: TubeKey,
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
            if self.timed == times::MAX_TIMED_TUBES {
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
        self.names[part_of(hash)].find(spread(hash), is_it).map(|named| named.key)
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
            .insert_unique(spread(hash), Named { hash, key }, |named| spread(named.hash));
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
        if let Ok(entry) = names.find_entry(spread(hash), |named| named.key == key) {
            entry.remove();
        }
        if names.capacity() > 4 * names.len().max(16) {
            names.shrink_to(2 * names.len(), |named| spread(named.hash));
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

/// The part of the index for names with this hash. A part itself does not use these bits (see `spread`), except in a
/// registry of tens of millions of tubes.
fn part_of(hash: u32) -> usize {
    (hash >> 19) as usize % NAME_PARTS
}

/// The table takes its buckets from the low bits and its tags from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
