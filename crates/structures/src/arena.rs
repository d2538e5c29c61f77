//! A store of records in chunks: records never move, and an empty chunk goes back to the allocator.
//!
//! Owns: the storage of the records. A slab in one vector would copy all records when it grows, and would keep the
//! memory of a burst; this store does neither. Driven by the queue.

use std::collections::TryReserveError;
use std::num::NonZeroU32;

/// Records in a chunk. The store grows by a chunk and frees a chunk when all of its records are gone. With this
/// number, the 56 bytes of a job fill 8 KiB and the 28 bytes of a history half of that, because allocators
/// round blocks of this size up to about the next power of two.
const CHUNK_RECORDS: usize = 146;

/// The low bits of an address are the number of the entry in its chunk, the other bits are the number of the chunk.
/// With as many bits as a byte has, an address is taken apart without a division.
const ENTRY_BITS: u32 = u8::BITS;
/// The number of chunks that have an address, with room for more than two thousand million records.
const MAX_CHUNKS: usize = 1 << (u32::BITS - ENTRY_BITS);

/// The address of a record. An `Option<RecordAddress>` is as small as a `RecordAddress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAddress(NonZeroU32);

impl RecordAddress {
    fn new(chunk: u32, entry: u8) -> Self {
        Self(NonZeroU32::MIN.saturating_add(chunk << ENTRY_BITS | u32::from(entry)))
    }

    fn chunk(self) -> usize {
        ((self.0.get() - 1) >> ENTRY_BITS) as usize
    }

    fn entry(self) -> u8 {
        (self.0.get() - 1) as u8
    }
}

#[derive(Debug)]
enum Entry<T> {
    Used(T),
    /// The entry is free; the number is the next free entry of the chunk, if there is one.
    Free(Option<u8>),
}

#[derive(Debug)]
struct Chunk<T> {
    /// The entries. The vector has no capacity while the chunk is not in use.
    entries: Vec<Entry<T>>,
    free: Option<u8>,
    used: usize,
}

/// A store of records by their `RecordAddress`.
#[derive(Debug)]
pub struct Arena<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks that have room, each listed once; the last is filled first.
    open: Vec<u32>,
    /// The entries of the last chunk that became empty, so that a single record that comes and goes at the edge of
    /// a chunk does not allocate each time.
    spare: Vec<Entry<T>>,
    /// Chunks that have entries.
    in_use: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), open: Vec::new(), spare: Vec::new(), in_use: 0 }
    }
}

impl<T> Arena<T> {
    /// Memory of the chunks and of the lists of chunks, in bytes.
    pub fn bytes(&self) -> usize {
        self.in_use * CHUNK_RECORDS * size_of::<Entry<T>>()
            + self.chunks.capacity() * size_of::<Chunk<T>>()
            + self.open.capacity() * size_of::<u32>()
    }

    /// The number of chunks, in use or not.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Makes sure that the list of chunks has room for `count` chunks.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn try_reserve_chunks(&mut self, count: usize) -> Result<(), TryReserveError> {
        self.chunks.try_reserve(count.saturating_sub(self.chunks.len()))?;
        self.open.try_reserve(count.saturating_sub(self.open.len()))
    }

    /// Makes sure that there is room for the next `insert`.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        if self.open.is_empty() {
            // A chunk without an address is refused like one for which there is no memory.
            let more = if self.chunks.len() < MAX_CHUNKS { 1 } else { usize::MAX };
            self.chunks.try_reserve(more)?;
            self.open.try_reserve(1)?;
            self.open.push(self.chunks.len() as u32);
            self.chunks.push(Chunk { entries: Vec::new(), free: None, used: 0 });
        }
        let chunk = &mut self.chunks[self.open[self.open.len() - 1] as usize];
        if chunk.entries.capacity() == 0 {
            chunk.entries = std::mem::take(&mut self.spare);
            chunk.entries.try_reserve_exact(CHUNK_RECORDS)?;
            self.in_use += 1;
        }
        Ok(())
    }

    /// Stores `record`; after a `try_reserve` it does not allocate.
    #[inline]
    pub fn insert(&mut self, record: T) -> RecordAddress {
        if self.open.last().is_none_or(|&chunk| self.chunks[chunk as usize].entries.capacity() == 0) {
            self.try_reserve().expect("room for a record was reserved before");
        }
        let index = self.open[self.open.len() - 1];
        let chunk = &mut self.chunks[index as usize];
        let entry = match chunk.free {
            Some(entry) => {
                let Entry::Free(next) = chunk.entries[usize::from(entry)] else {
                    unreachable!("the free list holds free entries");
                };
                chunk.free = next;
                chunk.entries[usize::from(entry)] = Entry::Used(record);
                entry
            }
            None => {
                chunk.entries.push(Entry::Used(record));
                (chunk.entries.len() - 1) as u8
            }
        };
        chunk.used += 1;
        if chunk.used == CHUNK_RECORDS {
            self.open.pop();
        }
        RecordAddress::new(index, entry)
    }

    /// Removes the record at `address` and returns it.
    ///
    /// # Panics
    /// If there is no record: an address is valid only until its record is removed.
    #[inline]
    pub fn remove(&mut self, address: RecordAddress) -> T {
        let chunk = &mut self.chunks[address.chunk()];
        let entry = &mut chunk.entries[usize::from(address.entry())];
        let Entry::Used(record) = std::mem::replace(entry, Entry::Free(chunk.free)) else {
            panic!("an address is held only as long as its record");
        };
        chunk.free = Some(address.entry());
        if chunk.used == CHUNK_RECORDS {
            self.open.push(address.chunk() as u32);
        }
        chunk.used -= 1;
        if chunk.used == 0 {
            let mut entries = std::mem::take(&mut chunk.entries);
            chunk.free = None;
            self.in_use -= 1;
            entries.clear();
            self.spare = entries;
        }
        record
    }

    /// The record at `address`.
    pub fn get(&self, address: RecordAddress) -> &T {
        match &self.chunks[address.chunk()].entries[usize::from(address.entry())] {
            Entry::Used(record) => record,
            Entry::Free(_) => panic!("an address is held only as long as its record"),
        }
    }

    /// The record at `address`, for changes in place.
    pub fn get_mut(&mut self, address: RecordAddress) -> &mut T {
        match &mut self.chunks[address.chunk()].entries[usize::from(address.entry())] {
            Entry::Used(record) => record,
            Entry::Free(_) => panic!("an address is held only as long as its record"),
        }
    }
}

#[cfg(test)]
mod tests {
    use beanstalkd_types::random::Generator;

    use super::*;

    #[test]
    fn records_keep_their_addresses_and_empty_chunks_free_their_memory() {
        let mut arena = Arena::default();
        let mut held: Vec<(RecordAddress, u32)> = Vec::new();
        let mut random = Generator::new(7);
        for step in 0..30_000u32 {
            let seed = random.draw();
            let grow = if step < 15_000 { 3 } else { 1 };
            if held.is_empty() || seed >> 33 & 3 < grow {
                held.push((arena.insert(step), step));
            } else {
                let (address, value) = held.swap_remove((seed >> 35) as usize % held.len());
                assert_eq!(arena.remove(address), value);
            }
        }
        for &(address, value) in &held {
            assert_eq!(*arena.get(address), value);
        }
        for (address, value) in held {
            assert_eq!(arena.remove(address), value);
        }
        assert!(arena.chunks.iter().all(|chunk| chunk.entries.capacity() == 0));
        assert_eq!(arena.open.len(), arena.chunks.len());
    }
}
