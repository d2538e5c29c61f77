//! The invariants of the server between two turns, as one sweep for debug builds and tests.

use std::collections::HashSet;

use super::Server;
use super::client_lists::{Lists, WaitList};
use super::connection::Connection;
use crate::exchange::WaitKind;
use crate::queue::ClientId;
use crate::stream::Stream;

/// A new server is swept after each of this many turns. Later, the next sweep comes after as many, or after a number
/// that is the size of a larger state. So a debug build spends little of its time on sweeps, and still finds a wrong
/// count soon. The simulation sweeps after turns that it chooses, too.
const SWEPT_ONE_BY_ONE: u64 = 16;

/// A state with more jobs, tubes and connections is not swept: a sweep needs memory in proportion to it, and would
/// itself end a server that has no memory left.
const MAX_SWEPT_STATE: usize = 4096;

/// When to sweep next; only in debug builds.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    /// Turns since the start.
    turns: u64,
    /// The last turn that was swept.
    last: u64,
}

impl<S: Stream> Server<S> {
    /// Sweeps the state at the end of a turn, unless it was swept a short time ago.
    pub(super) fn sweep(&mut self) {
        self.sweeps.turns += 1;
        let queue = self.executor.queue();
        let size = queue.figures().jobs.total() + queue.figures().tubes + self.client_count();
        let Sweeps { turns, last } = self.sweeps;
        let interval = if turns <= SWEPT_ONE_BY_ONE { 1 } else { SWEPT_ONE_BY_ONE.max(size as u64) };
        if turns - last >= interval && size <= MAX_SWEPT_STATE {
            self.sweeps.last = turns;
            self.check_invariants();
        }
    }

    /// Asserts every invariant of the server, its connections and its executor.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        let (mut count, mut waiting, mut job_waits, mut buffer_bytes, mut watched) = (0, 0, 0, 0, 0);
        for (index, connection) in self.connections.iter().enumerate() {
            let Some(connection) = connection else { continue };
            connection.check_invariants();
            count += 1;
            waiting += u64::from(connection.exchange.is_waiting());
            assert!(
                !connection.exchange.is_waiting()
                    || self.executor.has_failed()
                    || self.waits_alike(connection.id_at(index), &connection.exchange),
                "the client waits for the same in the queue"
            );
            job_waits += u64::from(matches!(connection.exchange.wait_kind(), Some(WaitKind::EndOf(_))));
            buffer_bytes += connection.counted_bytes();
            let check_at = self.idle_timeouts.check_at(connection.id_at(index));
            watched += usize::from(check_at.is_some());
        }
        self.check_lists();
        self.idle_timeouts.check_invariants();
        let listed = self.connections.iter().flatten();
        self.log_ins.check_invariants(listed.filter(|one| one.listed.contains(Lists::LOG_IN)).count());
        assert_eq!(count, self.client_count(), "each client has a connection");
        self.executor.check_invariants(buffer_bytes);
        assert_eq!(watched, self.idle_timeouts.len(), "each idle time-out has its connection");
        // After the binlog has failed, exchanges are closed although they still wait in the queue.
        if !self.executor.has_failed() {
            let reserves = self.executor.queue().figures().waiting;
            assert_eq!(
                waiting,
                reserves + job_waits,
                "the exchanges that wait are the clients that wait in the queue"
            );
        }
        assert!(!self.executor.queue().has_deliveries(), "a turn ends without pending deliveries");
    }

    /// Each list has a client at most once, and exactly the clients that say that the list has them.
    fn check_lists(&self) {
        self.check_list(
            Lists::SCHEDULED,
            self.lists.runnable.iter().chain(&self.lists.postponed).chain(&self.lists.handshaking),
        );
        self.check_list(Lists::UNSENT, self.lists.unsent.iter());
        for (list, clients) in WaitList::ALL.into_iter().zip(&self.lists.waiting) {
            self.check_list(list.flag(), clients.iter());
        }
    }

    fn check_list<'a>(&self, list: Lists, clients: impl Iterator<Item = &'a ClientId>) {
        let mut found = HashSet::new();
        for &id in clients {
            if let Some(connection) = self.connection(id) {
                assert!(
                    connection.listed.contains(list),
                    "{list:?}: a listed client has the flag of its list"
                );
                assert!(found.insert(id.index), "{list:?}: a client is in the list once");
            }
        }
        let listed = self.connections.iter().flatten().filter(|connection| connection.listed.contains(list));
        assert_eq!(listed.count(), found.len(), "{list:?}: a client with the flag is in the list");
    }

    fn connection(&self, id: ClientId) -> Option<&Connection<S>> {
        self.connections.get(id.index as usize)?.as_deref().filter(|connection| connection.belongs_to(id))
    }
}
