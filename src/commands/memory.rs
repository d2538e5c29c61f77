//! The bound on memory, and which commands are refused when it is reached.
//!
//! Owns: the sum of the memory in use, and the rule for each command. Commands that add something (jobs, tubes, lists)
//! are refused at the bound. Reserves, which make histories, have a margin beyond it, so that a full queue can be
//! worked off. Commands that only remove something are never refused.

use super::Executor;
use crate::queue::ClientId;
use crate::tags::TagSet;

/// Reserves may exceed the bound by one part in this many, so that workers can empty a full queue.
const MARGIN_PART: u64 = 8;

/// The shares of the memory that one client, or one kind of thing, may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryShares {
    /// The most bytes that cooldowns may take, with those that the deletes of jobs begin. `None` means any amount, as
    /// below.
    pub cooldown_bytes: Option<u64>,
    /// The longest cooldown, in seconds; 0 means any.
    pub max_cooldown_s: u32,
    /// The most tubes that a client may watch.
    pub watched_tubes: Option<usize>,
    /// The most tubes that all clients of an identity may watch together, unless the access rules set another limit.
    pub watched_tubes_of_identity: Option<usize>,
}

/// The class of a command by the memory that it needs. A `put` is not refused by its class, because its body has to be
/// skipped.
#[derive(Clone, Copy, Debug)]
pub enum MemoryClass<'a> {
    /// It removes something, or looks only: it is never refused.
    Free,
    /// It makes histories or waits, for which there is a margin beyond the bound.
    Margin,
    /// It makes histories or waits, as `Margin`, and the tube of this name if there is none.
    AddsTube(&'a str),
}

impl Executor {
    /// Sets the shares of the memory.
    pub fn share_memory(&mut self, shares: MemoryShares) {
        self.shares = shares;
        self.queue.limit_cooldowns(shares.max_cooldown_s);
    }

    /// Whether there is no room for the cooldown for which a put with these tags asks.
    pub(super) fn lacks_room_for_cooldown(&self, tags: &TagSet<'_>) -> bool {
        tags.idempotency.is_some_and(|tag| !tag.cooldown_s.is_zero())
            && self.shares.cooldown_bytes.is_some_and(|most| self.queue.cooldown_bytes_with(tags) > most)
    }

    /// Whether the client, or all clients of its identity together, watch as many tubes as they may, and not this one.
    pub(super) fn watches_enough(&self, client: ClientId, tube: &str) -> bool {
        let is_full = self.shares.watched_tubes.is_some_and(|most| self.queue.watched_count(client) >= most)
            || self
                .guard
                .as_ref()
                .is_some_and(|guard| guard.watches_enough(client, self.shares.watched_tubes_of_identity));
        is_full && !self.queue.watches(client, tube)
    }

    /// Sets the function that says whether the allocator's memory is exhausted. While it returns true, commands that
    /// need memory for more than a moment are answered OUT_OF_MEMORY.
    pub fn watch_memory(&mut self, is_exhausted: fn() -> bool) {
        self.is_memory_exhausted = is_exhausted;
    }

    /// The memory of jobs, tubes, clients and connections, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.queue.bytes()
            + self.persistence.memory_bytes()
            + self.all_buffer_bytes()
            + self.detached_bodies.bytes()
            + self.tube_lists.bytes()
            + self.guard.as_ref().map_or(0, |guard| guard.bytes())
    }

    /// The memory of the input and output of connections, with that of TLS.
    pub(super) fn all_buffer_bytes(&self) -> usize {
        self.buffer_bytes + self.tls.as_ref().map_or(0, |acceptor| acceptor.held_bytes())
    }

    /// Whether there is no memory for `bytes`. They include what the client's own session holds, because `buffer_bytes`
    /// counts only the other connections while a client is served.
    pub(crate) fn lacks_memory_for(&self, bytes: usize) -> bool {
        (self.is_memory_exhausted)() || self.exceeds_bound(bytes, 0)
    }

    /// Whether the bound is reached, so that connections should use little memory.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        (self.is_memory_exhausted)() || self.exceeds_bound(0, 0)
    }

    /// Makes sure that there is room for another client; tells whether there is.
    pub(crate) fn reserve_client(&mut self) -> bool {
        !self.is_beyond_margin()
            && self.queue.reserve_client().is_ok()
            && self.guard.as_mut().is_none_or(|guard| guard.reserve_client())
    }

    /// Whether a command of this class must be refused. `held_bytes` is what the client's session holds.
    #[inline(always)]
    pub(super) fn lacks_memory_to(
        &mut self,
        class: MemoryClass<'_>,
        client: ClientId,
        held_bytes: usize,
    ) -> bool {
        match class {
            MemoryClass::Free => false,
            MemoryClass::Margin => (self.is_memory_exhausted)() || self.is_beyond_margin(),
            // To use or watch an existing tube costs little, and workers must be able to do it.
            MemoryClass::AddsTube(name) => {
                (self.is_memory_exhausted)()
                    || self.exceeds_bound(held_bytes, 0) && self.queue.tube_name(name).is_none()
                    || self.is_beyond_margin()
                    || self.queue.reserve_tube(client).is_err()
            }
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
