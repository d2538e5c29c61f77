//! The description of the guard: the token that identifies each client, puts that wait, and the figures of identities.
//!
//! Owns: which parts are described. The rules are not described: the next program reads them itself, and each client
//! gets its identity from the rules that it reads, as at a reload. Suppressed lines of the log are forgotten.

use std::collections::BTreeMap;

use super::{Guard, GuardedClient, GuardedIdentity, IdentityPuts, Standing, WaitingPuts};
use crate::access::{AccessRules, IdentityId, Pace, Peer, TokenHash};
use crate::clock::Timestamp;
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::executor::Executor;
use crate::queue::ClientId;
use crate::stats::IdentityFigures;

/// A client as the guard knows it.
struct DescribedGuardedClient {
    peer: Peer,
    token: Option<[u8; TokenHash::BYTES]>,
    /// If the client has waiting puts: the number that decides their order, and how many they are.
    waiting: Option<(u64, u32)>,
    has_ended: bool,
    is_surplus: bool,
}

described!(enum Peer, "the peer of a client" { 0 => Tcp(address), 1 => Unix(user) });
described!(DescribedGuardedClient { peer, token, waiting, has_ended, is_surplus });

/// The resources that an identity uses now.
struct DescribedIdentity {
    name: String,
    /// Log-ins, refused ones, refused commands, delayed puts, managing commands.
    counts: [u64; 5],
    /// When its next put is permitted.
    next_put_at: Timestamp,
    /// The number of its first puts that wait.
    first_number: Option<u64>,
}

described!(DescribedIdentity { name, counts, next_put_at, first_number });

impl Executor {
    /// Writes the guard's facts about the clients, if there is a guard.
    pub(crate) fn describe_guard(&self, out: &mut Writer<'_>) {
        self.guard.is_some().describe(out);
        let Some(guard) = &self.guard else { return };
        let Guard {
            identities,
            rules: _,
            clients: _,
            // The rest follows from the clients, or is about lines of the log.
            permits: _,
            next_number: _,
            tries: _,
            has_read_token: _,
            wrong_tokens: _,
            refusals: _,
            full: _,
        } = &**guard;
        out.count(identities.len());
        identities.iter().for_each(|identity| describe_identity(identity).describe(out));
        for id in self.queue.described_clients() {
            guard.client(id).map(describe_client).describe(out);
        }
    }

    /// Reads the facts that `describe_guard` has written about these clients.
    ///
    /// # Errors
    /// If the bytes are something else, or if one program has access rules and the other has none.
    pub(crate) fn read_guard(
        &mut self,
        clients: &[ClientId],
        from: &mut Reader<'_>,
        now: Timestamp,
    ) -> Result<(), Malformed> {
        let is_guarded: bool = from.value()?;
        let Some(guard) = &mut self.guard else {
            return if is_guarded {
                Err(Malformed("access rules, which this server does not have"))
            } else {
                Ok(())
            };
        };
        if !is_guarded {
            return Err(Malformed("access rules that the old server did not have"));
        }
        let identities: Vec<DescribedIdentity> = from.value()?;
        for described in &identities {
            let mut known = guard.identities.iter_mut();
            if let Some(known) = known.find(|known| *known.figures.name == *described.name) {
                let [log_ins, log_ins_refused, commands_forbidden, puts_delayed, managing_commands] =
                    described.counts;
                known.figures = IdentityFigures {
                    name: known.figures.name.clone(),
                    connections: 0,
                    log_ins,
                    log_ins_refused,
                    commands_forbidden,
                    puts_delayed,
                    managing_commands,
                };
                let pace = Pace::until(described.next_put_at);
                known.puts = IdentityPuts::of(pace, described.first_number);
            }
        }
        let owners = guard.rules.owners();
        for &id in clients {
            if let Some(described) = from.value::<Option<DescribedGuardedClient>>()? {
                guard.adopt(id, described, self.queue.watched_count(id), &owners)?;
            }
        }
        guard.rules.ids().for_each(|identity| guard.schedule_puts(identity, now));
        Ok(())
    }
}

impl Guard {
    /// Gives the client its identity from the rules in force, whatever the number of its connections.
    fn adopt(
        &mut self,
        id: ClientId,
        described: DescribedGuardedClient,
        watched: usize,
        owners: &BTreeMap<[u8; TokenHash::BYTES], IdentityId>,
    ) -> Result<(), Malformed> {
        let DescribedGuardedClient { peer, token, waiting, has_ended, is_surplus } = described;
        let owner = token.and_then(|token| owners.get(&token).copied());
        let identity = self.rules.identify(peer, &[], owner);
        let index = id.index as usize;
        self.clients.resize_with(self.clients.len().max(index + 1), || None);
        let is_surplus = is_surplus && AccessRules::is_anonymous(identity);
        let state = &mut self.identities[identity.index()];
        state.figures.connections += u64::from(!is_surplus);
        state.watched += watched;
        if let Some((_, 0)) = waiting {
            return Err(Malformed("the puts that wait"));
        }
        let waiting = waiting.map(|(number, count)| WaitingPuts { number, client: id.index, count });
        if let Some(puts) = waiting {
            state.puts.add(puts);
            self.next_number = self.next_number.max(puts.number.saturating_add(1));
        }
        self.clients[index] = Some(GuardedClient {
            peer,
            standing: if is_surplus { Standing::Surplus } else { Standing::Counted },
            certificate: None,
            token: token.map(TokenHash::from),
            identity,
            used: None,
            checked: 0,
            watched,
            waiting,
            has_ended,
            action: None,
        });
        Ok(())
    }
}

fn describe_client(client: &GuardedClient) -> DescribedGuardedClient {
    let GuardedClient {
        peer,
        standing,
        token,
        waiting,
        has_ended,
        // Only a connection with TLS has a certificate, and such connections are closed. The other values are looked up
        // again.
        certificate: _,
        identity: _,
        used: _,
        checked: _,
        watched: _,
        action: _,
    } = client;
    DescribedGuardedClient {
        peer: *peer,
        token: token.as_ref().map(TokenHash::bytes),
        waiting: waiting.map(|puts| (puts.number, puts.count)),
        has_ended: *has_ended,
        is_surplus: *standing == Standing::Surplus,
    }
}

fn describe_identity(identity: &GuardedIdentity) -> DescribedIdentity {
    let GuardedIdentity { figures, puts, log_ins: _, refusals: _, watched: _ } = identity;
    let IdentityFigures {
        name,
        connections: _,
        log_ins,
        log_ins_refused,
        commands_forbidden,
        puts_delayed,
        managing_commands,
    } = figures;
    let counts = [*log_ins, *log_ins_refused, *commands_forbidden, *puts_delayed, *managing_commands];
    DescribedIdentity {
        name: name.to_string(),
        counts,
        next_put_at: puts.pace.next_at(),
        first_number: puts.first.map(|(_, number)| number),
    }
}
