//! Keeping the reserve of memory full.

use log::{info, warn};

use crate::clock::{NS_PER_S, Timestamp};
use crate::os;
use crate::server::rare_log::RareLog;

/// How long to wait between attempts to fill the reserve: each may cost system calls that fail.
const RETRY_NS: u64 = NS_PER_S / 10;

/// Fills the reserve again after it was needed.
pub struct MemoryReserve {
    fill: fn() -> bool,
    next_try_at: Timestamp,
    warnings: RareLog,
}

impl MemoryReserve {
    /// Fills the reserve for the first time.
    pub fn new(fill: fn() -> bool) -> Self {
        fill();
        Self { fill, next_try_at: Timestamp::default(), warnings: RareLog::default() }
    }

    /// Fills the reserve if it is needed and time to try.
    pub fn tend(&mut self, now: Timestamp) {
        if !os::memory::is_exhausted() || now < self.next_try_at {
            return;
        }
        self.next_try_at = now + RETRY_NS;
        if (self.fill)() {
            info!("there is memory again");
        } else {
            self.warnings.line(now, |_| warn!("out of memory: commands that need any are refused"));
        }
    }
}
