//! An index of small values by their hashes, which never moves as a whole.
//!
//! Owns: the entries, each a hash and a value. A linear hash table: whenever it has too many entries for its buckets,
//! it splits one bucket in two, and whenever it has too few, it joins two. So an insertion moves a few entries, however
//! many there are. The caller provides hashes whose low bits nobody can choose, and compares what it finds: two keys
//! can have the same hash.

/// A bucket is split when there are more entries than this for each bucket: few enough that a search is short, and so
/// many that the bucket itself takes little memory beside them.
const MAX_MEAN_ENTRIES: usize = 12;
/// Two buckets are joined when there are fewer entries than this for each bucket. Much less than the maximum, so that
/// entries that come and go split and join nothing.
const MIN_MEAN_ENTRIES: usize = 4;
/// The number of buckets in a segment, of which only the last grows.
const SEGMENT_BUCKETS: usize = 256;
/// How many entries a full bucket grows by: few, because there are many such buckets.
const GROWTH_ENTRIES: usize = 2;
/// A bucket keeps room for this many entries even if it has fewer.
const MIN_ROOM_ENTRIES: usize = 4;

/// Entries by their hashes. An unused index allocates nothing.
#[derive(Debug)]
pub struct HashIndex<V> {
    /// The buckets in the order of their numbers. All segments but the last are full.
    segments: Vec<Vec<Bucket<V>>>,
    /// The number of buckets; not 0 once there has been an entry.
    buckets: usize,
    /// The number of buckets, rounded up to a power of two, minus 1. The low bits of a hash are the number of its
    /// bucket; if there is no such bucket yet, the number without its highest bit is.
    mask: usize,
    len: usize,
}

/// The entries whose hashes have the same low bits, in no order.
type Bucket<V> = Vec<Entry<V>>;

/// The bytes of the hash have no alignment, so that an entry takes no more than both together.
#[derive(Clone, Copy, Debug)]
struct Entry<V> {
    hash: [u8; 8],
    value: V,
}

impl<V> Entry<V> {
    #[inline]
    fn hash(&self) -> u64 {
        u64::from_ne_bytes(self.hash)
    }
}

impl<V> Default for HashIndex<V> {
    fn default() -> Self {
        Self { segments: Vec::new(), buckets: 0, mask: 0, len: 0 }
    }
}

impl<V: Copy> HashIndex<V> {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The hashes and values of all entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, V)> {
        self.segments.iter().flatten().flatten().map(|entry| (entry.hash(), entry.value))
    }

    /// The value of an entry with this hash.
    #[inline]
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<V> {
        self.all(hash).next()
    }

    /// The values of all entries with this hash.
    #[inline]
    pub fn all(&self, hash: u64) -> impl Iterator<Item = V> {
        let bucket: &[Entry<V>] = if self.len == 0 { &[] } else { self.bucket(self.number_of(hash)) };
        bucket.iter().filter(move |entry| entry.hash() == hash).map(|entry| entry.value)
    }

    /// The value of an entry with this hash, for changes in place.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, hash: u64) -> Option<&mut V> {
        if self.len == 0 {
            return None;
        }
        let number = self.number_of(hash);
        self.bucket_mut(number).iter_mut().find(|entry| entry.hash() == hash).map(|entry| &mut entry.value)
    }

    /// Adds an entry. Entries with the same hash stay.
    #[inline]
    pub fn insert(&mut self, hash: u64, value: V) {
        if self.len >= self.buckets * MAX_MEAN_ENTRIES {
            self.add_bucket();
        }
        let number = self.number_of(hash);
        push(self.bucket_mut(number), Entry { hash: hash.to_ne_bytes(), value });
        self.len += 1;
    }

    /// Removes the entry with this hash whose value is the wanted one, and returns its value.
    #[inline]
    pub fn remove(&mut self, hash: u64, is_wanted: impl Fn(V) -> bool) -> Option<V> {
        if self.len == 0 {
            return None;
        }
        let number = self.number_of(hash);
        let bucket = self.bucket_mut(number);
        let position = bucket.iter().position(|entry| entry.hash() == hash && is_wanted(entry.value))?;
        let Entry { value, .. } = bucket.swap_remove(position);
        give_back(bucket);
        self.len -= 1;
        if self.len < self.buckets * MIN_MEAN_ENTRIES && self.buckets > 1 {
            self.remove_bucket();
        }
        Some(value)
    }

    #[inline]
    fn number_of(&self, hash: u64) -> usize {
        let number = hash as usize & self.mask;
        if number < self.buckets { number } else { number & (self.mask >> 1) }
    }

    #[inline]
    fn bucket(&self, number: usize) -> &Bucket<V> {
        &self.segments[number / SEGMENT_BUCKETS][number % SEGMENT_BUCKETS]
    }

    #[inline]
    fn bucket_mut(&mut self, number: usize) -> &mut Bucket<V> {
        &mut self.segments[number / SEGMENT_BUCKETS][number % SEGMENT_BUCKETS]
    }

    /// Adds a bucket, and moves the entries into it that belong there.
    #[cold]
    fn add_bucket(&mut self) {
        let number = self.buckets;
        self.buckets += 1;
        self.mask = self.buckets.next_power_of_two() - 1;
        let mut moved = Vec::new();
        if number > 0 {
            let mask = self.mask;
            let bucket = self.bucket_mut(number & (mask >> 1));
            let belongs = |entry: &Entry<V>| entry.hash() as usize & mask == number;
            moved.reserve_exact(bucket.iter().filter(|entry| belongs(entry)).count());
            moved.extend(bucket.iter().filter(|entry| belongs(entry)));
            bucket.retain(|entry| !belongs(entry));
            bucket.shrink_to_fit();
        }
        if number.is_multiple_of(SEGMENT_BUCKETS) {
            // Only the first segment is often small.
            self.segments.push(Vec::with_capacity(if number == 0 { 1 } else { SEGMENT_BUCKETS }));
        }
        self.segments[number / SEGMENT_BUCKETS].push(moved);
    }

    /// Removes the last bucket, and moves its entries into the bucket from which it was split.
    #[cold]
    fn remove_bucket(&mut self) {
        self.buckets -= 1;
        self.mask = self.buckets.next_power_of_two() - 1;
        let number = self.buckets;
        let segment = &mut self.segments[number / SEGMENT_BUCKETS];
        let entries = segment.pop().unwrap_or_default();
        if segment.is_empty() {
            self.segments.pop();
            if self.segments.capacity() >= 4 * self.segments.len() {
                self.segments.shrink_to(2 * self.segments.len());
            }
        } else if number < SEGMENT_BUCKETS && segment.capacity() >= 4 * number.max(MIN_ROOM_ENTRIES) {
            segment.shrink_to(2 * number);
        }
        for entry in entries {
            let number = self.number_of(entry.hash());
            push(self.bucket_mut(number), entry);
        }
    }

    /// Asserts the invariants of the fields.
    #[cfg(test)]
    fn check(&self) {
        let counts: Vec<usize> = self.segments.iter().map(Vec::len).collect();
        assert_eq!(counts.iter().sum::<usize>(), self.buckets);
        assert!(counts.iter().rev().skip(1).all(|&count| count == SEGMENT_BUCKETS));
        assert!(counts.iter().all(|&count| count > 0));
        assert_eq!(self.iter().count(), self.len);
        assert!(self.len <= self.buckets * MAX_MEAN_ENTRIES);
        for (number, bucket) in self.segments.iter().flatten().enumerate() {
            assert!(bucket.iter().all(|entry| self.number_of(entry.hash()) == number));
            assert!(bucket.capacity() < 4 * bucket.len().max(MIN_ROOM_ENTRIES));
        }
    }
}

#[inline]
fn push<T>(bucket: &mut Vec<T>, entry: T) {
    if bucket.len() == bucket.capacity() {
        bucket.reserve_exact(GROWTH_ENTRIES);
    }
    bucket.push(entry);
}

/// Frees half of the capacity if less than a quarter of it is in use, but keeps room for a few entries.
#[inline]
fn give_back<T>(bucket: &mut Vec<T>) {
    if bucket.capacity() >= 4 * bucket.len().max(MIN_ROOM_ENTRIES) {
        bucket.shrink_to(2 * bucket.len());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use beanstalkd_types::random::Generator;

    use super::*;

    /// The memory of the index, in bytes.
    fn bytes(index: &HashIndex<u32>) -> usize {
        let of_entries: usize = index.segments.iter().flatten().map(Vec::capacity).sum();
        let of_buckets: usize = index.segments.iter().map(Vec::capacity).sum();
        of_entries * size_of::<Entry<u32>>() + of_buckets * size_of::<Bucket<u32>>()
    }

    #[test]
    fn entries_are_found_as_in_a_map_while_the_index_grows_and_shrinks() {
        let mut random = Generator::new(11);
        // With few different hashes, many entries have the same one.
        for mask in [u64::MAX, 0xff, 0xffff_0000_0000_000f] {
            let mut index = HashIndex::default();
            let mut model: HashMap<u64, Vec<u32>> = HashMap::new();
            let mut all: Vec<(u64, u32)> = Vec::new();
            for step in 0..40_000u32 {
                let draw = random.draw();
                let grow = if step / 10_000 % 2 == 0 { 3 } else { 1 };
                if all.is_empty() || draw >> 33 & 3 < grow {
                    let hash = random.draw() & mask;
                    index.insert(hash, step);
                    model.entry(hash).or_default().push(step);
                    all.push((hash, step));
                } else {
                    let (hash, value) = all.swap_remove((draw >> 35) as usize % all.len());
                    assert_eq!(index.remove(hash, |other| other == value), Some(value));
                    assert_eq!(index.remove(hash, |other| other == value), None, "it was there once");
                    let values = model.get_mut(&hash).unwrap();
                    values.retain(|&other| other != value);
                }
                let hash = all.last().map_or(draw, |&(hash, _)| hash) & mask;
                let mut found: Vec<u32> = index.all(hash).collect();
                found.sort_unstable();
                assert_eq!(found, model.get(&hash).cloned().unwrap_or_default());
                assert_eq!(index.get(hash).is_some(), index.get_mut(hash).is_some());
                assert_eq!(index.len(), all.len());
                if step.is_multiple_of(500) {
                    index.check();
                }
            }
            let mut entries: Vec<(u64, u32)> = index.iter().collect();
            entries.sort_unstable();
            all.sort_unstable();
            assert_eq!(entries, all);
        }
    }

    #[test]
    fn memory_grows_and_shrinks_with_the_entries() {
        let mut index = HashIndex::default();
        let mut random = Generator::new(12);
        let hashes: Vec<u64> = (0..100_000).map(|_| random.draw()).collect();
        for (number, &hash) in hashes.iter().enumerate() {
            index.insert(hash, number as u32);
        }
        index.check();
        let full = bytes(&index);
        assert!(full < 100_000 * 17, "{full} bytes");
        for (number, &hash) in hashes.iter().enumerate().skip(100) {
            assert_eq!(index.remove(hash, |_| true), Some(number as u32));
        }
        index.check();
        assert!(bytes(&index) < full / 100, "{} bytes are left of {full}", bytes(&index));
        for &hash in &hashes[..100] {
            *index.get_mut(hash).unwrap() = 7;
            assert_eq!(index.remove(hash, |_| true), Some(7));
        }
        index.check();
        assert!(index.is_empty() && bytes(&index) < 1024);
        assert_eq!((index.get(hashes[0]), index.get_mut(hashes[0])), (None, None));
    }
}
