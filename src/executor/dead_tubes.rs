//! Jobs that are buried because their dead tube is full.
//!
//! Owns: when the log has a line about them, which names both tubes. The event loop asks once a turn.

use log::warn;

use super::Executor;
use crate::clock::Timestamp;

impl Executor {
    /// Logs a line about jobs that a full dead tube has not taken, if there are any and no line was logged just before.
    #[inline]
    pub fn log_full_dead_tubes(&mut self, now: Timestamp) {
        if !self.queue.has_kept_from_dead_tube() {
            return;
        }
        let Self { queue, counters, .. } = self;
        // While no line is due, the queue continues to count.
        counters.full_dead_tubes.line(now, |_| {
            if let Some(kept) = queue.take_kept_from_dead_tube() {
                let others = kept.jobs - 1;
                let (tube, dead_tube) = (kept.tube, kept.dead_tube);
                warn!(
                    "buried a job in the tube {tube}, because its dead tube {dead_tube} is full; {others} others since \
                     the last such line"
                );
            }
        });
    }
}
