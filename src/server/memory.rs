//! What clients may still make grow.
//!
//! Owns: the sum of what is in use, and what is refused where that is all that was allowed. Whatever is new (jobs, tubes,
//! lists) is refused at the bound. Working off what is there goes on: reserves, which make histories, have a
//! margin of their own, and what only takes away is never refused. Driven by `execute`.

use super::execute::Executor;
use crate::protocol::Command;
use crate::queue::ClientId;

/// Workers may take the memory beyond the bound by one part in so many: a queue that is full has to be
/// worked off.
const MARGIN_PART: u64 = 8;

impl Executor {
    /// From now on `is_exhausted` is asked before a command that needs memory for more than a moment; while
    /// it says yes, such commands are answered OUT_OF_MEMORY.
    pub fn watch_memory(&mut self, is_exhausted: fn() -> bool) {
        self.is_memory_exhausted = is_exhausted;
    }

    /// What jobs, tubes, clients and connections use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.queue.bytes() + self.buffer_bytes + self.detached_bodies.bytes() + self.tube_lists.bytes()
    }

    /// Whether `bytes`, for a client with what its session holds, are too many beside what is counted in
    /// `buffer_bytes` for the others.
    pub(super) fn lacks_memory_for(&self, bytes: usize) -> bool {
        (self.is_memory_exhausted)() || self.exceeds_bound(bytes, 0)
    }

    /// Whether connections should make do with little: all that was allowed is in use.
    pub(super) fn is_short_of_memory(&self) -> bool {
        (self.is_memory_exhausted)() || self.exceeds_bound(0, 0)
    }

    /// Makes sure that there is room for another client; tells whether there is.
    pub(super) fn has_room_for_client(&mut self) -> bool {
        !self.is_beyond_margin() && self.queue.reserve_client().is_ok()
    }

    /// Whether a command would leave more behind than may be: tubes, watch lists, waits, histories of jobs. A
    /// `put` does, too, but has a body to be skipped. `held_bytes` is what the client's session holds.
    pub(super) fn lacks_memory_to(
        &mut self,
        command: &Command<'_>,
        client: ClientId,
        held_bytes: usize,
    ) -> bool {
        use Command::{Kick, KickJob, ListJobs, Move, PauseTube, PeekReserved, Reprioritize};
        use Command::{Reserve, ReserveJob, ReserveWithTimeout, Use, Watch};
        match *command {
            Use(name) | Watch(name) | Move { tube: name, .. } => {
                // To join a tube that is there costs little, and workers have to.
                (self.is_memory_exhausted)()
                    || self.exceeds_bound(held_bytes, 0) && !self.queue.is_tube(name)
                    || self.is_beyond_margin()
                    || self.queue.reserve_tube(client).is_err()
            }
            Reserve
            | ReserveWithTimeout { .. }
            | ReserveJob(_)
            | Kick { .. }
            | KickJob(_)
            | ListJobs { .. }
            | PeekReserved
            | Reprioritize { .. }
            | PauseTube { .. } => (self.is_memory_exhausted)() || self.is_beyond_margin(),
            _ => false,
        }
    }

    fn is_beyond_margin(&self) -> bool {
        self.exceeds_bound(0, MARGIN_PART)
    }

    /// Whether what is in use and `more` bytes exceed the bound, with a margin of one part in `margin_part` if
    /// that is not 0.
    fn exceeds_bound(&self, more: usize, margin_part: u64) -> bool {
        self.config.max_memory_bytes.is_some_and(|bound| {
            let margin = bound.checked_div(margin_part).unwrap_or(0);
            (self.memory_bytes() + more) as u64 > bound.saturating_add(margin)
        })
    }
}
