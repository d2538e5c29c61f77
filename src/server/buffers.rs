//! Output buffers, lent to the connections that have something to send: an idle connection has no buffer.

use crate::exchange::Output;

/// How many buffers are kept for the next turn: about the number that a turn usually needs.
const KEPT: usize = 64;
/// The size of a new buffer: a few short replies.
const NEW_BYTES: usize = 512;
/// A buffer that has grown beyond this is not kept.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// The buffers that no connection holds.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(Vec<Vec<u8>>);

impl BufferPool {
    /// Makes sure that `output` has a buffer.
    #[inline]
    pub(crate) fn lend(&mut self, output: &mut Output) {
        if output.memory_bytes() == 0 {
            output.give_buffer(self.0.pop().unwrap_or_else(|| Vec::with_capacity(NEW_BYTES)));
        }
    }

    /// Takes back the buffer of an `output` that has been sent completely.
    pub(crate) fn reclaim(&mut self, output: &mut Output) {
        let buffer = output.take_buffer();
        if self.0.len() < KEPT && (1..=MAX_KEPT_BYTES).contains(&buffer.capacity()) {
            self.0.push(buffer);
        }
    }
}
