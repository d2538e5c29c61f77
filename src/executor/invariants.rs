//! The invariants of the executor between two turns, as one sweep for debug builds and tests.
//!
//! Owns: the call of each part's own assertions. A count that is kept up to date by hand is compared here with what it
//! counts.

use super::Executor;

impl Executor {
    /// Asserts every invariant of the state on which commands work. `connection_bytes` is the memory of all exchanges.
    /// The cost grows with the numbers of jobs, tubes and clients.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(crate) fn check_invariants(&self, connection_bytes: usize) {
        self.queue.check_invariants();
        self.check_binlog();
        self.memory.check_invariants(connection_bytes);
        assert!(self.to_close.is_empty(), "a client that another one kills is closed in the same turn");
        assert!(self.flushed.is_empty(), "a flushed job is kept until the deliveries of the turn are over");
        self.tube_lists.check_invariants();
        self.guard.iter().for_each(|guard| guard.check_invariants());
        self.orders.iter().for_each(|orders| orders.check_invariants());
    }
}
