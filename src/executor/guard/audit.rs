//! The audit of a server with access rules: the lines and the counts of log-ins and commands.
//!
//! Owns: the lines. Each managing command has its own line, so that none can hide another; the executor counts the cost
//! of a line. Events that a client can cause without rights, such as wrong tokens, are logged at a limited rate. Driven
//! by `guard` and `judge`.

use std::rc::Rc;

use log::{info, warn};

use super::Guard;
use crate::clock::Timestamp;
use crate::executor::Executor;
use crate::peer::Peer;
use crate::queue::ClientId;
use crate::stats::{Identities, IdentityFigures};

pub(crate) fn report_log_in(name: &str, client: ClientId, peer: Peer, by: &str, withheld: u64) {
    info!(
        identity = name, client = client.index, peer:% = peer, withheld = withheld;
        "{name} has logged in from {peer} by {by}; {withheld} others since the last such line"
    );
}

pub(crate) fn report_refused(peer: Peer, withheld: u64) {
    warn!(
        peer:% = peer, withheld = withheld;
        "refused a log-in from {peer}: a wrong token; {withheld} others since the last such line"
    );
}

pub(crate) fn report_full(name: &str, peer: Peer, withheld: u64) {
    warn!(
        identity = name, peer:% = peer, withheld = withheld;
        "refused a connection of {name} from {peer}: max-connections is reached; {withheld} others since the last \
         such line"
    );
}

/// A command that was refused.
#[derive(Debug)]
pub(crate) struct RefusedCommandLine {
    name: Rc<str>,
    client: ClientId,
    peer: Peer,
    command: &'static str,
    withheld: u64,
}

impl Identities for Guard {
    fn figures(&self) -> Box<dyn Iterator<Item = &IdentityFigures> + '_> {
        Box::new(self.identities.iter().map(|identity| &identity.figures))
    }
}

impl Guard {
    /// The counts of the client's identity.
    pub(crate) fn figures_of(&self, client: ClientId) -> Option<&IdentityFigures> {
        Some(&self.identities[self.client(client)?.identity.index()].figures)
    }

    /// Counts a command that was refused with FORBIDDEN.
    pub(crate) fn count_refusal(&mut self, client: ClientId) {
        let Some(identity) = self.client(client).map(|known| known.identity) else { return };
        self.identities[identity.index()].figures.commands_forbidden += 1;
    }

    /// Logs a refused command, even if the reply was that there is no such job. The line is written after the replies
    /// of the turn. For a job that does not exist (`is_real` is false then), the same code runs, so that the duration
    /// of the reply does not show whether the job exists.
    pub(crate) fn log_refusal(
        &mut self,
        client: ClientId,
        command: &'static str,
        is_real: bool,
        now: Timestamp,
    ) {
        let Some(known) = self.client(client) else { return };
        let (identity, peer) = (known.identity, known.peer);
        let name = &self.rules.identity(identity).name;
        let lines = self.identities[identity.index()].refusals.entry(command).or_default();
        if !is_real {
            return;
        }
        lines.line(now, |withheld| {
            self.refusals.push(RefusedCommandLine { name: Rc::clone(name), client, peer, command, withheld });
        });
    }

    /// Notes that the client begins a managing command.
    pub(crate) fn begin_action(&mut self, client: ClientId, command: String) {
        if let Some(known) = self.client_mut(client) {
            known.action = Some(command.into());
            let identity = known.identity;
            self.identities[identity.index()].figures.managing_commands += 1;
        }
    }

    /// Logs the end of the client's managing command, if it has given one, with this reply.
    pub(crate) fn end_action(&mut self, client: ClientId, reply: &[u8]) {
        let Some(known) = self.client_mut(client) else { return };
        let Some(command) = known.action.take() else { return };
        let (identity, peer) = (known.identity, known.peer);
        let name = &*self.rules.identity(identity).name;
        let certificate = self.client(client).and_then(|known| known.certificate.as_ref());
        let serial = certificate.map_or("", |certificate| &certificate.serial);
        let shown = if serial.is_empty() { String::new() } else { format!(", certificate {serial}") };
        let reply = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let reply = String::from_utf8_lossy(reply);
        info!(
            identity = name, client = client.index, peer:% = peer, certificate = serial, command = &*command,
            reply = &*reply;
            "{name} from {peer}{shown}: {command}: {reply}"
        );
    }
}

impl Executor {
    /// Writes the refusals of the turn to the log.
    #[inline]
    pub(crate) fn write_refusals(&mut self) {
        let Some(guard) = &mut self.guard else { return };
        for RefusedCommandLine { name, client, peer, command, withheld } in guard.refusals.drain(..) {
            warn!(
                identity = &*name, client = client.index, peer:% = peer, command = command, withheld = withheld;
                "refused {command} of {name} from {peer}; {withheld} others since the last such line"
            );
        }
    }
}
