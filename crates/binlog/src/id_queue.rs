//! Ids of jobs, first in, first out, in chunks that never move.
//!
//! Owns: the chunks. However many ids there are, adding one allocates a chunk at most, so that no growth copies them and
//! none needs much memory at a time.

use std::collections::VecDeque;

use crate::job::JobId;

/// Ids in a chunk, which has 512 bytes. Chunks of 4 KiB would share the allocator's pages with those of the queue, and
/// keep the memory of the replay from being used again.
const CHUNK_IDS: usize = 64;

/// A queue of ids.
#[derive(Debug, Default)]
pub(super) struct IdQueue {
    chunks: VecDeque<Vec<u64>>,
    /// Ids at the beginning of the first chunk that were taken.
    taken: usize,
    len: usize,
}

impl IdQueue {
    /// Adds an id after all others.
    pub(super) fn push(&mut self, id: JobId) {
        self.len += 1;
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < CHUNK_IDS => chunk.push(id.0),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_IDS);
                chunk.push(id.0);
                self.chunks.push_back(chunk);
            }
        }
    }

    /// The id that was added first.
    pub(super) fn first(&self) -> Option<JobId> {
        self.chunks.front().map(|chunk| JobId(chunk[self.taken]))
    }

    /// Takes the id that was added first.
    pub(super) fn pop(&mut self) -> Option<JobId> {
        let chunk = self.chunks.front()?;
        let id = JobId(chunk[self.taken]);
        self.taken += 1;
        self.len -= 1;
        if self.taken == chunk.len() {
            self.chunks.pop_front();
            self.taken = 0;
        }
        Some(id)
    }

    /// How many ids there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All ids, in the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = JobId> {
        self.chunks.iter().flatten().skip(self.taken).map(|&id| JobId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_leave_in_the_order_in_which_they_came() {
        let mut queue = IdQueue::default();
        let mut model = VecDeque::new();
        let ids = (0..).map(JobId);
        for (step, id) in ids.enumerate().take(1000) {
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
