//! A queue, first in, first out, in chunks that never move.
//!
//! Owns: the chunks. Adding an item allocates at most one chunk, so that no growth copies the queue and none needs much
//! memory at a time.

use std::collections::VecDeque;

/// Size of a chunk in bytes. Chunks of 4 KiB would share the allocator's pages with those of the queue, and the memory
/// of the replay could not be used again.
const CHUNK_BYTES: usize = 512;

/// A queue of small items.
#[derive(Debug)]
pub(super) struct ChunkedQueue<T> {
    chunks: VecDeque<Vec<T>>,
    /// How many items of the first chunk have been removed.
    taken: usize,
    len: usize,
}

impl<T> Default for ChunkedQueue<T> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), taken: 0, len: 0 }
    }
}

impl<T: Copy> ChunkedQueue<T> {
    const CHUNK_LEN: usize = CHUNK_BYTES / size_of::<T>();

    /// Adds `item` after all others.
    pub(super) fn push(&mut self, item: T) {
        self.len += 1;
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < Self::CHUNK_LEN => chunk.push(item),
            _ => {
                let mut chunk = Vec::with_capacity(Self::CHUNK_LEN);
                chunk.push(item);
                self.chunks.push_back(chunk);
            }
        }
    }

    /// The oldest item.
    pub(super) fn first(&self) -> Option<T> {
        self.chunks.front().map(|chunk| chunk[self.taken])
    }

    /// Removes the oldest item.
    pub(super) fn pop(&mut self) -> Option<T> {
        let chunk = self.chunks.front()?;
        let item = chunk[self.taken];
        self.taken += 1;
        self.len -= 1;
        if self.taken == chunk.len() {
            self.chunks.pop_front();
            self.taken = 0;
        }
        Some(item)
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no items.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All items, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.chunks.iter().flatten().skip(self.taken).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_in_the_order_in_which_they_came() {
        let mut queue = ChunkedQueue::default();
        let mut model = VecDeque::new();
        for (step, id) in (0_u64..1000).enumerate() {
            queue.push(id);
            model.push_back(id);
            // Sometimes down to none, sometimes in the middle of a chunk.
            for _ in 0..[0, 1, 3, 0, 70][step % 5] {
                assert_eq!(queue.pop(), model.pop_front());
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(queue.first(), model.front().copied());
            assert!(queue.iter().eq(model.iter().copied()));
        }
    }
}
