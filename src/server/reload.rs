//! The effects of a reload on connected clients.
//!
//! Owns: the rules that a client without the right to wait does not wait, and that a client whose certificate is no
//! longer accepted is closed. Driven by `event_loop/reload.rs`, and by the turn for the slices.

use log::info;

use super::{Server, Stream, each};
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
        for (id, connection) in each(&mut self.connections) {
            if !connection.exchange.is_waiting() || self.executor.may_wait(id) {
                continue;
            }
            connection.end_wait(&mut self.executor, id);
            connection.note_unsettled_replies(&mut self.executor);
            self.lists.send(id, &mut connection.listed);
            if connection.is_runnable() {
                self.lists.run(id, &mut connection.listed);
            }
        }
    }

    /// Puts new TLS files in force: from the next turn on, checks the certificate of each connected client, and closes
    /// the connections of clients that would no longer be accepted.
    pub fn recheck_certificates(&mut self) {
        self.next_check = Some(0);
    }

    /// Checks certificates, up to the limits for a turn.
    pub(super) fn check_certificates(&mut self, now: Timestamp) {
        let Some(first) = self.next_check.take() else { return };
        let (mut index, mut checks) = (first, 0);
        while checks < CHECKS_PER_TURN && index < first + VISITS_PER_TURN {
            let Some(connection) = self.connections.get(index) else { return };
            if let Some(connection) = connection.as_deref().filter(|connection| connection.has_certificate())
            {
                checks += 1;
                if !connection.is_certificate_good() {
                    let id = connection.id_at(index);
                    info!(client = id.index; "closed client {}: its certificate is no longer accepted", id.index);
                    self.close(id, now);
                }
            }
            index += 1;
        }
        self.next_check = Some(index);
    }
}
