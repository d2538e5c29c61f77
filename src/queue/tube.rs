//! Tubes: named queues, each with its jobs by state, its waiting clients and its counters.
//!
//! Owns: which tubes there are, under which name and in which order `list-tubes` shows them. Moves no
//! jobs: that is `Queue`'s work.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use slab::Slab;

use super::jobs::{BuriedKey, DueKey, ReadyKey};
use super::ordered::OrderedQueue;
use crate::clock::Timestamp;
use crate::tube_name::TubeName;

/// A tube's place in the registry.
pub type TubeKey = u32;

/// The tube "default": the first that is made, and never removed.
pub const DEFAULT: TubeKey = 0;

/// Who waits, by order of arrival: the number of the wait, and the client.
pub type WaitKey = (u64, u32);

/// What has happened to the jobs of a tube, or of all tubes, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Jobs put.
    pub puts: u64,
    /// Reservations, whatever command made them.
    pub reserves: u64,
    /// Reservations that ran out.
    pub timeouts: u64,
    /// Releases by clients.
    pub releases: u64,
    /// Burials by clients.
    pub buries: u64,
    /// Jobs kicked.
    pub kicks: u64,
    /// Jobs deleted.
    pub deletes: u64,
    /// Jobs buried by the limits on time-outs and releases.
    pub poisoned: u64,
}

/// A pause: no job is reserved from the tube until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub until: Timestamp,
    /// The length that was asked for, in seconds.
    pub length_s: u32,
}

#[derive(Debug)]
pub struct Tube {
    pub name: TubeName,
    pub ready: OrderedQueue<ReadyKey>,
    pub delayed: OrderedQueue<DueKey>,
    pub buried: OrderedQueue<BuriedKey>,
    /// Clients that wait in a reserve and watch this tube, the first come first. While the tube is not
    /// paused, either this or `ready` is empty.
    pub waiting: OrderedQueue<WaitKey>,
    pub pause: Option<Pause>,
    /// Ready jobs with an urgent priority.
    pub urgent: u32,
    pub reserved: u32,
    /// Clients that use the tube.
    pub using: u32,
    /// Clients that watch the tube.
    pub watching: u32,
    /// Index in the order of `list-tubes`.
    position: u32,
    pub puts: u64,
    /// Made at the first event that is not a put: in a crowd of tubes most have seen none.
    events: Option<Box<Events>>,
}

/// What has happened in a tube besides puts.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    /// `pause-tube` commands.
    pauses: u64,
    /// The rest; its `puts` are those of the tube.
    flow: Flow,
}

impl Tube {
    /// What has happened to the jobs of the tube.
    pub fn flow(&self) -> Flow {
        let flow = self.events.as_ref().map_or_else(Flow::default, |events| events.flow);
        Flow { puts: self.puts, ..flow }
    }

    /// Where events other than puts are counted.
    pub fn events(&mut self) -> &mut Flow {
        &mut self.events.get_or_insert_default().flow
    }

    /// How often the tube was paused.
    pub fn pauses(&self) -> u64 {
        self.events.as_ref().map_or(0, |events| events.pauses)
    }

    /// Pauses the tube.
    pub fn set_pause(&mut self, pause: Pause) {
        self.pause = Some(pause);
        self.events.get_or_insert_default().pauses += 1;
    }

    /// When something becomes due here: the end of the pause or of the first delay.
    pub fn deadline(&self) -> Option<Timestamp> {
        let delay = self.delayed.first().map(|key| key.0);
        let pause = self.pause.map(|pause| pause.until);
        [delay, pause].into_iter().flatten().min()
    }

    /// Whether nothing holds the tube in being: no job, no client.
    fn is_idle(&self) -> bool {
        self.using == 0
            && self.watching == 0
            && self.reserved == 0
            && self.ready.is_empty()
            && self.delayed.is_empty()
            && self.buried.is_empty()
    }
}

/// A name's hash beside the tube, so that growing the index reads no names.
#[derive(Clone, Copy, Debug)]
struct Named {
    hash: u32,
    key: TubeKey,
}

/// All tubes.
#[derive(Debug)]
pub struct Tubes {
    slab: Slab<Box<Tube>>,
    names: HashTable<Named>,
    /// Seeds the hash against chosen names; nothing that can be observed depends on it.
    hasher: RandomState,
    /// Order of creation, but for a removed tube's place, which the last one takes (as in C).
    order: Vec<TubeKey>,
    /// The tube found or made last; jobs that are restored come in runs for the same one.
    latest: TubeKey,
}

impl Tubes {
    /// The registry with the default tube.
    pub fn new() -> Self {
        let mut tubes = Self {
            slab: Slab::new(),
            names: HashTable::new(),
            hasher: RandomState::new(),
            order: Vec::new(),
            latest: DEFAULT,
        };
        let key = tubes.find_or_make(TubeName::default_tube().as_str());
        assert_eq!(key, DEFAULT);
        tubes
    }

    /// How many tubes there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The tubes in the order of `list-tubes`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tube> {
        self.iter_from(0)
    }

    /// The tubes from `position` on in the order of `list-tubes`.
    pub fn iter_from(&self, position: usize) -> impl ExactSizeIterator<Item = &Tube> {
        self.order.get(position..).unwrap_or_default().iter().map(|&key| self.get(key))
    }

    /// The tube at `key`, which holds it in being.
    pub fn get(&self, key: TubeKey) -> &Tube {
        &self.slab[key as usize]
    }

    /// The tube at `key`, to be changed.
    pub fn get_mut(&mut self, key: TubeKey) -> &mut Tube {
        &mut self.slab[key as usize]
    }

    /// The tube of this name.
    pub fn find(&self, name: &str) -> Option<TubeKey> {
        let hash = self.hasher.hash_one(name);
        let is_it = |named: &Named| named.hash == hash as u32 && self.get(named.key).name.as_str() == name;
        self.names.find(spread(hash as u32), is_it).map(|named| named.key)
    }

    /// The tube of this valid name, made if there is none. It lasts until `remove_if_idle` finds it idle.
    pub fn find_or_make(&mut self, name: &str) -> TubeKey {
        if self.slab.get(self.latest as usize).is_some_and(|tube| tube.name.as_str() == name) {
            return self.latest;
        }
        self.latest = self.find(name).unwrap_or_else(|| self.make(name));
        self.latest
    }

    fn make(&mut self, name: &str) -> TubeKey {
        let name = TubeName::parse(name.as_bytes()).expect("a name is checked where it is read");
        let hash = self.hasher.hash_one(name.as_str()) as u32;
        let position = self.order.len() as u32;
        let tube = Tube {
            name,
            ready: OrderedQueue::default(),
            delayed: OrderedQueue::default(),
            buried: OrderedQueue::default(),
            waiting: OrderedQueue::default(),
            pause: None,
            urgent: 0,
            reserved: 0,
            using: 0,
            watching: 0,
            position,
            puts: 0,
            events: None,
        };
        let key = self.slab.insert(Box::new(tube)) as TubeKey;
        self.order.push(key);
        self.names.insert_unique(spread(hash), Named { hash, key }, |named| spread(named.hash));
        key
    }

    /// Removes the tube where nothing holds it any more; tells whether it did.
    pub fn remove_if_idle(&mut self, key: TubeKey) -> bool {
        let tube = self.get(key);
        if key == DEFAULT || !tube.is_idle() {
            return false;
        }
        let position = tube.position;
        let hash = self.hasher.hash_one(tube.name.as_str()) as u32;
        if let Ok(entry) = self.names.find_entry(spread(hash), |named| named.key == key) {
            entry.remove();
        }
        self.slab.remove(key as usize);
        self.order.swap_remove(position as usize);
        if let Some(&moved) = self.order.get(position as usize) {
            self.get_mut(moved).position = position;
        }
        self.give_back_room();
        true
    }

    /// Lets go of what a burst of tubes has left behind.
    fn give_back_room(&mut self) {
        let needed = self.order.len().max(64);
        if self.order.capacity() > 4 * needed {
            self.order.shrink_to(2 * needed);
            self.names.shrink_to(2 * needed, |named| spread(named.hash));
            self.slab.shrink_to_fit();
        }
    }
}

/// The table takes its buckets from the low bits and its tags from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
