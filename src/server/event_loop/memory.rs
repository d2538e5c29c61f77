//! Fills the memory reserve again, and gives memory back after a burst.
//!
//! Owns: when each of the two is worth its system calls. The allocator is in `os::memory`. Driven by the loop, at the
//! end of a turn.

use log::{debug, info, warn};

use crate::clock::{NS_PER_S, Timestamp};
use crate::os;
use crate::rate_limited_log::RateLimitedLog;

/// How long to wait between attempts to fill the reserve: each may make system calls that fail.
const RETRY_NS: u64 = NS_PER_S / 10;

/// Less than this is not worth giving back: the allocator always has about this much unused.
const WORTHWHILE_BYTES: usize = 16 << 20;

/// This much is given back at once, without waiting for more: the system takes a millisecond for about ten megabytes,
/// and the server answers nobody in that time.
const AT_ONCE_BYTES: usize = 64 << 20;

/// How long memory must have been free before it is given back. A client that deletes a large job often puts the next
/// one at once, and the first use of a new page costs more than filling it.
const GIVE_BACK_AFTER_NS: u64 = NS_PER_S / 10;

/// How much may stay with the allocator: in pages with some byte in use, and in this program itself.
const KEPT_BYTES: usize = 12 << 20;

/// The cost, in simple requests, between two checks of the memory in use. So much can free a few megabytes at most,
/// which is less than is worth giving back.
const COST_BETWEEN_CHECKS: u64 = 64;

/// Manages the allocator, once a turn.
pub(crate) struct Memory {
    fill_reserve: fn() -> bool,
    next_try_at: Timestamp,
    warnings: RateLimitedLog,
    /// The cost at which the memory in use is checked next.
    next_check_cost: u64,
    /// The maximum in use since memory was last given back.
    peak_bytes: usize,
    /// When to give memory back, unless it is in use again by then.
    give_back_at: Option<Timestamp>,
    /// The memory in use when memory was last given back, or last checked. Some of it may be free now: only whole pages
    /// go back, and if jobs end in no particular order, the last job of a page ends late.
    rest_bytes: Option<usize>,
}

impl Memory {
    /// Fills the reserve for the first time.
    pub(crate) fn new(fill_reserve: fn() -> bool) -> Self {
        fill_reserve();
        Self {
            fill_reserve,
            next_try_at: Timestamp::AT_ONCE,
            warnings: RateLimitedLog::default(),
            next_check_cost: 0,
            peak_bytes: 0,
            give_back_at: None,
            rest_bytes: None,
        }
    }

    /// When `manage` must be called, if not at the end of an earlier turn.
    pub(crate) fn next_turn_at(&self) -> Option<Timestamp> {
        self.give_back_at
    }

    /// Called at the end of a turn with the `cost` since the start, and with the memory that jobs and connections
    /// use.
    #[inline]
    pub(crate) fn manage(&mut self, cost: u64, used_bytes: impl FnOnce() -> usize, now: Timestamp) {
        if cost >= self.next_check_cost || self.give_back_at.is_some_and(|at| at <= now) {
            self.next_check_cost = cost + COST_BETWEEN_CHECKS;
            self.check(used_bytes(), now);
        }
        if os::memory::is_exhausted() && now >= self.next_try_at {
            self.next_try_at = now + RETRY_NS;
            self.refill(now);
        }
    }

    /// Gives memory back if much of it has been free for a while.
    fn check(&mut self, used_bytes: usize, now: Timestamp) {
        self.peak_bytes = self.peak_bytes.max(used_bytes);
        let enough = (self.peak_bytes / 2).clamp(WORTHWHILE_BYTES, AT_ONCE_BYTES);
        let is_much = self.peak_bytes - used_bytes > enough;
        // A quarter less each time, so that the end of a backlog takes few attempts.
        let is_rest = self.rest_bytes.is_some_and(|rest| used_bytes < rest && used_bytes <= rest / 4 * 3);
        if !is_much && !is_rest {
            self.give_back_at = None;
        } else if now >= *self.give_back_at.get_or_insert(now + GIVE_BACK_AFTER_NS) {
            self.give_back_at = None;
            self.peak_bytes = used_bytes;
            self.rest_bytes = Some(used_bytes);
            if is_much || os::process::resident_bytes().is_some_and(|bytes| bytes > used_bytes + KEPT_BYTES) {
                os::memory::give_back();
                debug!("gave memory back to the system; {used_bytes} bytes are in use");
            }
        }
    }

    fn refill(&mut self, now: Timestamp) {
        if (self.fill_reserve)() {
            info!("memory is available again");
        } else {
            self.warnings.line(now, |_| warn!("out of memory: refusing commands that need memory"));
        }
    }
}
