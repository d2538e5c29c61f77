//! The effects of a reload on connected clients.
//!
//! Owns: the rules that a client without the right to wait does not wait, that a client which may do nothing any more
//! has the time of a log-in, and that one whose certificate is no longer accepted is closed. Driven by
//! `event_loop/reload.rs`, and by the turn for the slices.

use log::info;

use super::budget::RUNNABLE_COST;
use super::client_lists::Lists;
use super::{Server, Stream, each, find};
use crate::access::AccessRules;
use crate::clock::Timestamp;

/// How many certificates are checked in a turn; each check takes about 100 microseconds.
const CHECKS_PER_TURN: usize = 4;

/// How many connections are visited in a turn; most of them may have no certificate.
const VISITS_PER_TURN: usize = 1024;

impl<S: Stream> Server<S> {
    /// Puts new access rules in force; from each client's next command on, the server refuses what is no longer
    /// allowed. A wait for a job ends with TIMED_OUT if its client may no longer reserve from the tube. Called between
    /// two turns.
    pub fn replace_rules(&mut self, rules: AccessRules, now: Timestamp) {
        self.executor.replace_access_rules(rules, now);
        self.recheck_rights();
    }

    /// Ends the waits of clients without the right to wait. From the next turn on, clients that may do nothing must log
    /// in.
    pub(super) fn recheck_rights(&mut self) {
        self.next_check = Some(0);
        let waiting = each(&mut self.connections).filter(|(_, connection)| connection.exchange.is_waiting());
        for id in self.executor.may_not_wait(waiting.map(|(id, _)| id)) {
            let Some(connection) = find(&mut self.connections, id) else { continue };
            connection.end_wait(&mut self.executor, id);
            connection.refile(id, &mut self.lists, &mut self.executor, &mut self.buffers);
        }
    }

    /// Puts new TLS files in force: from the next turn on, checks the certificate of each connected client, and closes
    /// the connections of clients that would no longer be accepted.
    pub fn recheck_certificates(&mut self) {
        self.next_check = Some(0);
    }

    /// Checks connections, up to the limits for a turn.
    pub(super) fn check_connections(&mut self, now: Timestamp) {
        let Some(first) = self.next_check.take() else { return };
        let end = self.executor.measured_cost() + RUNNABLE_COST;
        let (mut index, mut checks) = (first, 0);
        while checks < CHECKS_PER_TURN
            && index < first + VISITS_PER_TURN
            && self.executor.measured_cost() < end
        {
            let Some(connection) = self.connections.get_mut(index) else { return };
            if let Some(connection) = connection.as_deref_mut() {
                let id = connection.id_at(index);
                checks += usize::from(connection.has_certificate());
                if connection.has_certificate() && !connection.is_certificate_good() {
                    info!(client = id.index; "closed client {}: its certificate is no longer accepted", id.index);
                    self.close(id, now);
                } else {
                    // An earlier reload may have given it something that it may do.
                    self.log_ins.note(connection, &self.executor, id);
                    if !connection.listed.contains(Lists::LOG_IN) && self.executor.is_unknown(id) {
                        self.await_log_in(id, now);
                    }
                }
            }
            index += 1;
        }
        self.next_check = Some(index);
    }
}
