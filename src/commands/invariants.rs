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
        self.clients.check_invariants();
        self.tube_lists.check_invariants();
        self.guard.iter().for_each(|guard| guard.check_invariants());
        self.orders.iter().for_each(|orders| orders.check_invariants());
    }
}
