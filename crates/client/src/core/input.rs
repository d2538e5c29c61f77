//! The received bytes that have not been parsed.
//!
//! Owns: their memory, which is zeroed when it is allocated, and not again for each reply.

/// Empty buffers that a large job has made larger than this are freed.
pub(super) const MAX_KEPT_BYTES: usize = 1024 * 1024;

/// Received bytes, with room for more after them.
#[derive(Debug, Default)]
pub(crate) struct Input {
    memory: Vec<u8>,
    /// The bytes between these two have been received but not parsed.
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn unread(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Marks the first of them as parsed.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// The bytes that were skipped last.
    pub(crate) fn just_read(&self, bytes: usize) -> &[u8] {
        &self.memory[self.start - bytes..self.start]
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Room for this many more bytes.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == 0 && self.memory.len() > MAX_KEPT_BYTES {
            self.memory = Vec::new();
        }
        let whole = self.end + bytes;
        if self.memory.len() < whole {
            self.memory.resize(whole, 0);
        }
        &mut self.memory[self.end..whole]
    }

    /// Notes that this many bytes were received into that room.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.end += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_are_read_once_and_in_order() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut input, mut sent, mut seen) = (Input::default(), 0_u8, 0_u8);
        for _ in 0..10_000 {
            let room = input.room(random.usize(1..20));
            let count = random.usize(..=room.len());
            room[..count].fill_with(|| {
                sent = sent.wrapping_add(1);
                sent
            });
            input.received(count);
            let read = random.usize(..=input.unread().len());
            for byte in &input.unread()[..read] {
                seen = seen.wrapping_add(1);
                assert_eq!(*byte, seen);
            }
            input.skip(read);
        }
    }

    #[test]
    fn the_memory_of_a_large_job_is_given_back() {
        let mut input = Input::default();
        input.room(MAX_KEPT_BYTES + 1);
        input.received(MAX_KEPT_BYTES + 1);
        input.skip(MAX_KEPT_BYTES);
        input.room(1);
        assert!(input.memory.len() > MAX_KEPT_BYTES, "some of it is not read yet");
        input.skip(1);
        input.room(1);
        assert!(input.memory.capacity() < MAX_KEPT_BYTES);
    }
}
