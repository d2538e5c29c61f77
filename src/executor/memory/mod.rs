//! The memory limit, and the commands that are refused when it is reached.
//!
//! Owns: the sum of the memory in use, and the rule for each command. Commands that add something (jobs, tubes, lists)
//! are refused at the limit. Reserves, which make histories, have a margin above it, so that workers can empty a full
//! queue. Commands that only remove something are never refused.

mod detached_bodies;

pub(super) use self::detached_bodies::DetachedBodies;

use super::Executor;
use crate::binlog::Binlog;
use crate::queue::ClientId;

/// Reserves may exceed the limit by one part in this many, so that workers can empty a full queue.
const MARGIN_PART: u64 = 8;
/// Lines of `delete-batch` that have arrived in part may exceed it by one part in this many, because they free memory.
/// For input that grows in small steps, the allocator takes up to twice its size.
const LONG_LINE_MARGIN_PART: u64 = 16;

/// The shares of the memory for one client, or for one kind of thing; `None` means no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryShares {
    /// The maximum memory of cooldowns, in bytes, including those that the deletes of existing jobs will begin.
    pub cooldown_bytes: Option<u64>,
    /// The longest cooldown, in seconds.
    pub max_cooldown_s: Option<u32>,
    /// The maximum number of tubes that a client may watch.
    pub watched_tubes: Option<usize>,
    /// The maximum number of tubes that all clients of an identity may watch together, unless the access rules set
    /// another limit.
    pub watched_tubes_of_identity: Option<usize>,
}

/// The class of a command by the memory that it needs. A `put` is not refused by its class, because its body must be
/// skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemoryClass<'a> {
    /// The command removes something, or only reads, or checks by itself whether there is memory: its class does not
    /// refuse it.
    Free,
    /// The command makes histories or waits, for which there is a margin above the limit.
    Margin,
    /// The command makes histories or waits, as `Margin`, and the tube with this name if it does not exist.
    AddsTube(&'a str),
}

/// The limits of memory, and its uses that no other part counts.
#[derive(Debug)]
pub(crate) struct MemoryUse {
    /// The maximum memory of jobs and connections, in bytes.
    max_bytes: Option<u64>,
    /// The largest body that a `put` may carry, in bytes.
    pub(crate) max_job_bytes: u64,
    shares: MemoryShares,
    /// Whether the allocator has begun to use its reserve.
    is_exhausted: fn() -> bool,
    /// Bytes that connections hold: incomplete bodies, input that has not been executed, replies that have not been
    /// sent.
    buffer_bytes: usize,
    pub(super) detached_bodies: DetachedBodies,
}

impl MemoryUse {
    pub(super) fn new(max_bytes: Option<u64>, max_job_bytes: u64, shares: MemoryShares) -> Self {
        Self {
            max_bytes,
            max_job_bytes,
            shares,
            is_exhausted: || false,
            buffer_bytes: 0,
            detached_bodies: DetachedBodies::default(),
        }
    }

    /// Whether the allocator has begun to use its reserve.
    #[inline]
    pub(super) fn is_exhausted(&self) -> bool {
        (self.is_exhausted)()
    }

    /// Whether cooldowns may not take `bytes`.
    pub(crate) fn forbids_cooldowns(&self, bytes: u64) -> bool {
        self.shares.cooldown_bytes.is_some_and(|max| bytes > max)
    }

    /// Asserts that the bytes of connections and of bodies are counted.
    pub(super) fn check_invariants(&self, connection_bytes: usize) {
        assert_eq!(connection_bytes, self.buffer_bytes, "the buffers are counted");
        self.detached_bodies.check_invariants();
    }
}

impl Executor {
    /// Whether the client, or all clients of its identity together, have reached the limit of watched tubes and do not
    /// watch this one.
    pub(crate) fn watches_enough(&self, client: ClientId, tube: &str) -> bool {
        let MemoryShares { watched_tubes, watched_tubes_of_identity, .. } = self.memory.shares;
        let is_full = watched_tubes.is_some_and(|max| self.queue.watched_count(client) >= max)
            || self
                .guard
                .as_ref()
                .is_some_and(|guard| guard.watches_enough(client, watched_tubes_of_identity));
        is_full && !self.queue.watches(client, tube)
    }

    /// Sets the function that reports whether the allocator's memory is exhausted. While it returns true, commands that
    /// need memory for more than a moment are answered OUT_OF_MEMORY.
    pub fn watch_memory(&mut self, is_exhausted: fn() -> bool) {
        self.memory.is_exhausted = is_exhausted;
    }

    /// The memory of jobs, tubes, clients and connections, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.queue.bytes()
            + self.persistence.binlog().map_or(0, Binlog::memory_bytes)
            + self.all_buffer_bytes()
            + self.memory.detached_bodies.bytes()
            + self.tube_lists.bytes()
            + self.guard.as_ref().map_or(0, |guard| guard.bytes())
    }

    /// The memory of the input and output of connections, including that of TLS.
    pub(crate) fn all_buffer_bytes(&self) -> usize {
        self.memory.buffer_bytes + self.tls.as_ref().map_or(0, |acceptor| acceptor.memory_bytes())
    }

    /// The bytes that connections hold. The server counts them.
    #[inline(always)]
    pub(crate) fn buffer_bytes(&mut self) -> &mut usize {
        &mut self.memory.buffer_bytes
    }

    /// Whether there is no memory for `bytes`. They include the bytes of the client's own exchange, because
    /// `buffer_bytes` counts only the other connections while a client is served.
    pub(crate) fn lacks_memory_for(&self, bytes: usize) -> bool {
        self.memory.is_exhausted() || self.exceeds_bound(bytes, 0)
    }

    /// Whether no more of a line that is longer than all others may be kept.
    pub(crate) fn lacks_memory_for_long_line(&self) -> bool {
        self.memory.is_exhausted() || self.exceeds_bound(0, LONG_LINE_MARGIN_PART)
    }

    /// Whether the limit is reached, so that connections should use little memory.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.memory.is_exhausted() || self.exceeds_bound(0, 0)
    }

    /// Makes sure that there is room for another client; returns whether there is.
    pub(crate) fn make_room_for_client(&mut self) -> bool {
        !self.is_beyond_margin()
            && self.queue.make_room_for_client().is_ok()
            && self.guard.as_mut().is_none_or(|guard| guard.make_room_for_client())
    }

    /// Whether a command of this class must be refused. `memory_bytes` are the bytes of the client's exchange.
    #[inline(always)]
    pub(crate) fn lacks_memory_to(
        &mut self,
        class: MemoryClass<'_>,
        client: ClientId,
        memory_bytes: usize,
    ) -> bool {
        match class {
            MemoryClass::Free => false,
            MemoryClass::Margin => self.memory.is_exhausted() || self.is_beyond_margin(),
            // Using or watching an existing tube costs little, and workers must be able to do it.
            MemoryClass::AddsTube(name) => {
                self.memory.is_exhausted()
                    || self.exceeds_bound(memory_bytes, 0) && self.queue.tube_name(name).is_none()
                    || self.is_beyond_margin()
                    || self.queue.make_room_for_tube(client).is_err()
            }
        }
    }

    fn is_beyond_margin(&self) -> bool {
        self.exceeds_bound(0, MARGIN_PART)
    }

    /// Whether the memory in use and `more` bytes exceed the limit, with a margin of one part in `margin_part` if that
    /// is not 0.
    fn exceeds_bound(&self, more: usize, margin_part: u64) -> bool {
        self.memory.max_bytes.is_some_and(|bound| {
            let margin = bound.checked_div(margin_part).unwrap_or(0);
            (self.memory_bytes() + more) as u64 > bound.saturating_add(margin)
        })
    }
}
