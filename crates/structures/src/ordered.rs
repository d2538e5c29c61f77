//! A queue that is ordered by its keys and stores them in blocks.
//!
//! Owns: the order of ready jobs, delays, reservations, burials and waiting clients. The usual operations, taking the
//! first key and adding a last key, touch one block each; any other key is found by bisection. A heap would have to
//! write the position of each moved entry into its job, which is a cache miss for each level.
//!
//! An operation moves at most the keys of a block. Two operations also move entries of the list of blocks, at most half
//! of the list: an insertion that splits a full block, and a removal that empties a block or joins it with the next. In
//! a queue of n keys the list has n/256 entries or more, of some 56 bytes each. With ten million keys that came in
//! random order, this is up to 2 MB. A block takes half its keys again before the next split, and the first keys have a
//! block of their own outside the list.

use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::clock::Timestamp;
use crate::deadlines::ClientKey;
use crate::job::JobId;

/// Keys in a full block: large enough that the list of blocks stays short, small enough that
/// shifting half a block costs less than finding it.
const BLOCK_KEYS: usize = 256;
/// How many keys a block grows by after a split: such blocks are neither full nor empty, and there are many of them.
const GROWTH_KEYS: usize = 32;
/// A block with at most this many keys is joined to its neighbour and frees half of its capacity.
const MAX_SPARSE_KEYS: usize = BLOCK_KEYS / 4;

/// In how many blocks one search for the oldest key probes every key. The smallest ids of the other blocks are known.
const MAX_PROBED_BLOCKS: usize = 512;

/// A key of an [`OrderedQueue`].
pub trait Key: Copy + Ord {
    /// The id of the entry: the smaller, the older. Not 0 in a queue that is asked for its oldest entry.
    fn id(self) -> u64;
}

/// A job, ordered by its id.
impl Key for JobId {
    fn id(self) -> u64 {
        self.0
    }
}

/// A job, ordered by an instant.
impl Key for (Timestamp, JobId) {
    fn id(self) -> u64 {
        self.1.0
    }
}

/// A job, ordered by a number.
impl Key for (u64, JobId) {
    fn id(self) -> u64 {
        self.1.0
    }
}

/// A client, ordered by a number.
impl Key for (u64, ClientKey) {
    fn id(self) -> u64 {
        self.0
    }
}

/// A client, ordered by a job and a number.
impl Key for (JobId, NonZeroU64, ClientKey) {
    fn id(self) -> u64 {
        self.1.get()
    }
}

/// A client, ordered by an instant and a job.
impl Key for (Timestamp, JobId, ClientKey) {
    fn id(self) -> u64 {
        self.1.0
    }
}

/// A client, ordered by its index.
impl Key for ClientKey {
    fn id(self) -> u64 {
        self.0.into()
    }
}

/// Unique keys in ascending order. An unused queue is one word wide and allocates nothing.
#[derive(Debug)]
pub struct OrderedQueue<K>(Option<Box<Blocks<K>>>);

#[derive(Debug)]
struct Blocks<K> {
    /// The smallest keys; empty only if the queue is empty.
    front: VecDeque<K>,
    /// The other keys, block after block; neither the list nor any of the blocks is empty. It is behind a
    /// pointer, because in most queues all keys are in `front`.
    #[allow(clippy::box_collection, reason = "a word instead of four in a queue that has none")]
    later: Option<Box<VecDeque<Block<K>>>>,
    len: usize,
}

#[derive(Debug)]
struct Block<K> {
    /// The block has the keys from this one up to the `from` of the next block. The list of blocks holds this key, so
    /// that a search for a block does not touch the blocks.
    from: K,
    keys: VecDeque<K>,
    /// The smallest id in the block; 0 if it is not known. It is updated where that costs nothing, and otherwise
    /// searched for when it is needed, so that the oldest of ten million keys is found with one probe for each block.
    oldest: Cell<u64>,
}

impl<K: Key> Block<K> {
    /// The smallest id in the block, if it is known or if `left` allows the search.
    fn oldest(&self, left: &mut usize) -> Option<u64> {
        if self.oldest.get() == 0 && *left > 0 {
            *left -= 1;
            self.oldest.set(self.keys.iter().map(|key| key.id()).min().unwrap_or(0));
        }
        Some(self.oldest.get()).filter(|&oldest| oldest > 0)
    }
}

impl<K> Default for OrderedQueue<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Key> OrderedQueue<K> {
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |blocks| blocks.len)
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The smallest key.
    pub fn first(&self) -> Option<K> {
        self.0.as_ref()?.front.front().copied()
    }

    /// All keys, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.0.iter().flat_map(|blocks| {
            blocks
                .front
                .iter()
                .chain(blocks.later.iter().flat_map(|later| later.iter().flat_map(|block| &block.keys)))
                .copied()
        })
    }

    /// The keys after `key`, in ascending order.
    pub fn iter_after(&self, key: K) -> impl Iterator<Item = K> {
        self.0.iter().flat_map(move |blocks| {
            let number = blocks.block_of(key);
            let block = blocks.block(number);
            let rest = block.range(block.partition_point(|&other| other <= key)..);
            let later = blocks.later.iter().flat_map(move |later| later.range(number..));
            rest.chain(later.flat_map(|block| &block.keys)).copied()
        })
    }

    /// The smallest key after `key`. For one or two keys this costs less than an iterator.
    pub fn first_after(&self, key: K) -> Option<K> {
        let blocks = self.0.as_ref()?;
        let number = blocks.block_of(key);
        let block = blocks.block(number);
        match block.get(block.partition_point(|&other| other <= key)) {
            Some(&next) => Some(next),
            None => blocks.later.as_ref()?.get(number)?.keys.front().copied(),
        }
    }

    /// The smallest key after `after`, or the smallest of all.
    pub fn next_after(&self, after: Option<K>) -> Option<K> {
        after.map_or_else(|| self.first(), |key| self.first_after(key))
    }

    /// Whether `key` is in the queue.
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// The stored key that compares equal to `key`.
    pub fn get(&self, key: K) -> Option<K> {
        let blocks = self.0.as_ref()?;
        let block = blocks.block(blocks.block_of(key));
        block.binary_search(&key).ok().map(|position| block[position])
    }

    /// The smallest id of all keys. If many keys were removed out of order, some blocks are searched only by later
    /// calls.
    pub fn oldest(&self) -> Option<u64> {
        let blocks = self.0.as_ref()?;
        let mut left = MAX_PROBED_BLOCKS;
        let front = blocks.front.iter().map(|key| key.id());
        let later = blocks.later.iter().flat_map(|later| later.iter());
        front.chain(later.filter_map(|block| block.oldest(&mut left))).min()
    }

    /// Adds `key`, which must not be in the queue yet.
    pub fn insert(&mut self, key: K) {
        let blocks = self.0.get_or_insert_with(|| {
            Box::new(Blocks { front: VecDeque::with_capacity(1), later: None, len: 0 })
        });
        blocks.len += 1;
        let index = blocks.block_of(key);
        let block = blocks.block_mut(index);
        if block.back().is_none_or(|&last| last < key) {
            if block.len() < BLOCK_KEYS {
                block.push_back(key);
                blocks.note_id(index, key.id());
            } else {
                let keys = VecDeque::from([key]);
                blocks.insert_block(index, Block { from: key, keys, oldest: Cell::new(key.id()) });
            }
            return;
        }
        if block.len() == BLOCK_KEYS {
            let keys = block.split_off(BLOCK_KEYS / 2);
            block.shrink_to(BLOCK_KEYS / 2 + GROWTH_KEYS);
            let from = keys[0];
            blocks.insert_block(index, Block { from, keys, oldest: Cell::new(0) });
            blocks.forget_oldest(index);
            let target = index + usize::from(from < key);
            insert_sorted(blocks.block_mut(target), key);
        } else {
            insert_sorted(block, key);
            blocks.note_id(index, key.id());
        }
    }

    /// Removes the smallest key and returns it.
    #[inline]
    pub fn pop_first(&mut self) -> Option<K> {
        let blocks = self.0.as_mut()?;
        let key = blocks.front.pop_front()?;
        blocks.len -= 1;
        if blocks.later.is_some() {
            blocks.tidy(0);
        } else {
            shrink_by_half(&mut blocks.front);
        }
        Some(key)
    }

    /// Removes `key` and returns it as it was in the queue; `None` if it was not there.
    pub fn remove(&mut self, key: K) -> Option<K> {
        let blocks = self.0.as_mut()?;
        // Jobs are often deleted in the order in which they were reserved.
        if blocks.front.front() == Some(&key) {
            return self.pop_first();
        }
        let index = blocks.block_of(key);
        let block = blocks.block_mut(index);
        let position = block.binary_search(&key).ok()?;
        let key = block.remove(position)?;
        blocks.len -= 1;
        if let Some(later) = &blocks.later
            && index > 0
            && later[index - 1].oldest.get() == key.id()
        {
            blocks.forget_oldest(index);
        }
        blocks.tidy(index);
        Some(key)
    }

    /// Removes `old` and adds `new`, which must not be in the queue yet; returns `old` as it was in the queue, or
    /// `None` if it was not there. If no other key is between them, no key moves.
    pub fn replace(&mut self, old: K, new: K) -> Option<K> {
        let replaced = self.0.as_mut().and_then(|blocks| blocks.replace_in_place(old, new));
        if replaced.is_none() {
            let found = self.remove(old);
            self.insert(new);
            return found;
        }
        replaced
    }
}

/// Inserts `key` at its position in `block`, which is not full.
fn insert_sorted<K: Key>(block: &mut VecDeque<K>, key: K) {
    if block.len() == block.capacity() && block.len() >= BLOCK_KEYS / 2 {
        block.reserve_exact(GROWTH_KEYS);
    }
    let position = block.partition_point(|&other| other < key);
    debug_assert!(block.get(position) != Some(&key), "a key is added once");
    block.insert(position, key);
}

impl<K: Key> Blocks<K> {
    /// The number of the block to which `key` belongs: 0 is the front, n the n-th of the later ones.
    fn block_of(&self, key: K) -> usize {
        match &self.later {
            None => 0,
            Some(later) if later[later.len() - 1].from <= key => later.len(),
            Some(later) => later.partition_point(|block| block.from <= key),
        }
    }

    fn block(&self, number: usize) -> &VecDeque<K> {
        match &self.later {
            Some(later) if number > 0 => &later[number - 1].keys,
            _ => &self.front,
        }
    }

    fn block_mut(&mut self, number: usize) -> &mut VecDeque<K> {
        match &mut self.later {
            Some(later) if number > 0 => &mut later[number - 1].keys,
            _ => &mut self.front,
        }
    }

    /// Writes `new` over `old` if the order stays the same.
    fn replace_in_place(&mut self, old: K, new: K) -> Option<K> {
        let number = self.block_of(old);
        let block = self.block(number);
        let position = block.binary_search(&old).ok()?;
        let after_previous = match position.checked_sub(1) {
            Some(previous) => block[previous] < new,
            // A key below the first key of a later block may belong to the block before it.
            None => number == 0 || self.later.as_ref()?[number - 1].from <= new,
        };
        let next = block.get(position + 1).copied();
        let next = next.or_else(|| Some(self.later.as_ref()?.get(number)?.from));
        if !after_previous || next.is_some_and(|next| next <= new) {
            return None;
        }
        let replaced = std::mem::replace(&mut self.block_mut(number)[position], new);
        self.forget_oldest(number);
        Some(replaced)
    }

    /// Notes that a key with this id was added to block `number`.
    fn note_id(&mut self, number: usize, id: u64) {
        if let Some(later) = &self.later
            && number > 0
        {
            // If the smallest id is not known, it stays unknown.
            let oldest = &later[number - 1].oldest;
            oldest.set(oldest.get().min(id));
        }
    }

    /// Marks the smallest id of block `number` as not known.
    fn forget_oldest(&mut self, number: usize) {
        if let Some(later) = &self.later
            && number > 0
        {
            later[number - 1].oldest.set(0);
        }
    }

    /// Inserts `block` after block `number`.
    fn insert_block(&mut self, number: usize, block: Block<K>) {
        self.later.get_or_insert_default().insert(number, block);
    }

    /// Removes the block after block `number`, if there is one, and returns its keys.
    fn take_block_behind(&mut self, number: usize) -> Option<VecDeque<K>> {
        let later = self.later.as_mut()?;
        let block = later.remove(number)?;
        shrink_by_half(later);
        if later.is_empty() {
            self.later = None;
        }
        Some(block.keys)
    }

    /// Restores the invariants of block `number` after a key has been removed from it.
    fn tidy(&mut self, number: usize) {
        let len = self.block_mut(number).len();
        if len >= MAX_SPARSE_KEYS {
            return;
        }
        let behind = self.later.as_ref().and_then(|later| later.get(number)).map(|block| block.keys.len());
        if len == 0 && number > 0 {
            self.take_block_behind(number - 1);
        } else if behind.is_some_and(|behind| len == 0 || len + behind <= BLOCK_KEYS / 2) {
            let keys = self.take_block_behind(number).unwrap_or_default();
            let block = self.block_mut(number);
            if len == 0 {
                *block = keys;
            } else {
                block.extend(keys);
                self.forget_oldest(number);
            }
        } else if number > 0 || behind.is_none() {
            shrink_by_half(self.block_mut(number));
        }
    }

    /// Asserts the invariants of the fields.
    #[cfg(test)]
    fn check(&self) {
        let later: Vec<&Block<K>> = self.later.iter().flat_map(|later| later.iter()).collect();
        let later_len: usize = later.iter().map(|block| block.keys.len()).sum();
        assert_eq!(self.len, self.front.len() + later_len);
        assert_eq!(self.later.is_some(), !later.is_empty());
        assert!(!self.front.is_empty() || later.is_empty());
        assert!(later.iter().all(|block| block.keys.len() <= BLOCK_KEYS && block.keys[0] >= block.from));
        assert!(later.iter().is_sorted_by_key(|block| block.from));
        for block in later {
            let least = block.keys.iter().map(|key| key.id()).min();
            assert!([Some(0), least].contains(&Some(block.oldest.get())), "the least id, or none");
        }
    }
}

/// Frees half of the capacity if less than a quarter of it is in use, but keeps room for a few keys: a queue that has
/// one key at a time must not allocate for each one.
#[inline]
fn shrink_by_half<T>(room: &mut VecDeque<T>) {
    if room.capacity() >= 4 * room.len().max(4) {
        room.shrink_to(2 * room.len());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use beanstalkd_types::random::Generator;

    use super::*;

    impl Key for u64 {
        /// A number that is not in the order of the keys.
        fn id(self) -> u64 {
            1 + (self.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8)
        }
    }

    #[test]
    fn keeps_the_order_of_a_set_through_every_mix_of_operations() {
        for seed in 0..20u64 {
            let mut random = Generator::new(seed);
            let mut queue = OrderedQueue::default();
            let mut model = BTreeSet::new();
            let mut last = 1 << 40;
            for step in 0..4_000 {
                let growing = step % 2_000 < 1_200;
                match random.draw() % 8 {
                    0..=2 if growing => {
                        last += 1;
                        queue.insert(last);
                        model.insert(last);
                    }
                    3..=5 if growing => {
                        let key = random.draw() >> 33;
                        if model.insert(key) {
                            queue.insert(key);
                        }
                    }
                    5 if !model.is_empty() => {
                        let near = random.draw() >> 33;
                        let old =
                            model.range(near..).next().or(model.first()).copied().expect("there is one");
                        // Most often there is no other key between the two.
                        let new = old ^ (1 << (random.draw() % 24));
                        if !model.contains(&new) {
                            assert_eq!(queue.replace(old, new), Some(old));
                            assert!(model.remove(&old) && model.insert(new));
                        }
                    }
                    6 => {
                        let near = random.draw() >> 33;
                        let key = model.range(near..).next().copied().unwrap_or(near);
                        assert_eq!(queue.remove(key), model.remove(&key).then_some(key));
                    }
                    _ => assert_eq!(queue.pop_first(), model.pop_first()),
                }
                assert_eq!((queue.len(), queue.first()), (model.len(), model.first().copied()));
                if let Some(blocks) = &queue.0 {
                    blocks.check();
                }
            }
            assert!(queue.iter().eq(model.iter().copied()));
        }
    }

    #[test]
    fn the_keys_after_any_key_and_the_oldest_of_all_are_those_of_a_set() {
        let (mut queue, mut model, mut random) =
            (OrderedQueue::default(), BTreeSet::new(), Generator::new(5));
        for step in 0..40_000 {
            let key = random.draw() % 100_000;
            if random.draw() % 40_000 > step {
                if model.insert(key) {
                    queue.insert(key);
                }
            } else {
                let near = model.range(key..).next().copied().unwrap_or(key);
                assert_eq!(queue.remove(near), model.take(&near));
            }
            if step % 64 == 0 {
                assert_eq!(queue.first_after(key), model.range(key + 1..).next().copied());
                let after = queue.iter_after(key).take(600);
                assert!(after.eq(model.range(key + 1..).take(600).copied()), "after {key}");
                assert_eq!(queue.oldest(), model.iter().map(|key| key.id()).min());
                queue.0.as_ref().unwrap().check();
            }
        }
        assert!(model.len() < 10_000 && queue.0.unwrap().len == model.len());
    }

    #[test]
    fn the_oldest_key_is_found_at_once_if_keys_are_in_order_and_else_after_some_calls() {
        let mut queue = OrderedQueue::default();
        let least = (0..1_000_000u64).map(Key::id).min();
        (0..1_000_000u64).for_each(|key| queue.insert(key));
        assert_eq!(queue.oldest(), least, "what comes in order is known");
        let mut queue = OrderedQueue::default();
        (0..1_000_000u64).rev().for_each(|key| queue.insert(key));
        let answers: Vec<_> = (0..20).map(|_| queue.oldest().unwrap()).collect();
        assert!(answers.is_sorted_by(|a, b| a >= b) && answers.last().copied() == least, "{answers:?}");
    }

    #[test]
    fn a_key_is_replaced_by_one_beside_it_or_far_away_at_each_edge_of_a_block() {
        const KEYS: u64 = 5 * BLOCK_KEYS as u64;
        let keys = || (1..=KEYS).map(|key| key * 10);
        let all: Vec<u64> = keys().collect();
        let oldest: Vec<_> =
            all.chunks(BLOCK_KEYS).map(|block| block.iter().min_by_key(|key| key.id())).collect();
        let is_edge = |key: u64| (key / 10 + 2) % BLOCK_KEYS as u64 <= 4 || oldest.contains(&Some(&key));
        for old in keys().filter(|&key| is_edge(key)) {
            for new in [old - 5, old + 5, old - 1, 1, KEYS * 20] {
                let mut queue = OrderedQueue::default();
                keys().for_each(|key| queue.insert(key));
                assert_eq!(queue.oldest(), keys().map(Key::id).min());
                assert_eq!(queue.replace(old, new), Some(old));
                queue.0.as_ref().unwrap().check();
                let all: BTreeSet<u64> = keys().filter(|&key| key != old).chain([new]).collect();
                assert!(queue.iter().eq(all.iter().copied()), "{old} by {new}");
                assert_eq!(queue.oldest(), all.iter().map(|key| key.id()).min());
            }
        }
    }

    #[test]
    fn a_drained_queue_keeps_a_handful_of_keys_worth_of_memory() {
        let mut queue = OrderedQueue::default();
        (0..100_000u64).for_each(|key| queue.insert(key));
        (0..100_000u64).for_each(|key| assert_eq!(queue.pop_first(), Some(key)));
        let blocks = queue.0.unwrap();
        assert!(blocks.front.capacity() <= 16 && blocks.later.is_none());
    }
}
