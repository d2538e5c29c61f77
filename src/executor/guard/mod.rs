//! The guard of a server with access rules: the identity of each client.
//!
//! Owns: the rules in force, and for each client its identity and the decisions about the tubes that it uses and
//! watches. `judge` checks commands, `audit` logs them, and `waiting_puts` delays puts. An open server has no guard.
//! Driven by the executor and the commands.

mod audit;
mod description;
mod judge;
mod waiting_puts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

pub(crate) use self::waiting_puts::Permission;

use self::audit::{RefusedCommandLine, report_full, report_log_in, report_refused};
use self::waiting_puts::{IdentityPuts, WaitingPuts};
use super::Executor;
use crate::access::{
    AccessRules, Grants, IdentityId, IdentityLimits, Peer, Roles, TokenHash, Tries, Verdict,
};
use crate::clock::Timestamp;
use crate::queue::{ClientId, Queue};
use crate::rate_limited_log::RateLimitedLog;
use crate::stats::IdentityFigures;
use crate::tls::ClientCertificate;
use crate::tube_name::TubeName;

/// The memory of a client here, in bytes.
const CLIENT_BYTES: usize = size_of::<Option<GuardedClient>>();

/// The rules, and the clients to which they apply.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) rules: AccessRules,
    /// By the index of the [`ClientId`].
    clients: Vec<Option<GuardedClient>>,
    /// By the [`IdentityId`] of the rules.
    identities: Vec<GuardedIdentity>,
    /// When the first waiting puts of an identity are permitted.
    permits: BTreeSet<(Timestamp, IdentityId)>,
    /// The number by which the next puts that have to wait are ordered.
    next_number: u64,
    tries: Tries,
    /// Whether the input that was executed last contained a token.
    has_read_token: bool,
    wrong_tokens: RateLimitedLog,
    /// Refusals to log at the end of the turn.
    refusals: Vec<RefusedCommandLine>,
    full: RateLimitedLog,
}

/// An identity, as the guard knows it.
#[derive(Debug, Default)]
struct GuardedIdentity {
    figures: IdentityFigures,
    puts: IdentityPuts,
    log_ins: RateLimitedLog,
    /// By the word of the command, so that no line hides another command.
    refusals: BTreeMap<&'static str, RateLimitedLog>,
    /// The number of tubes that its clients watch; a tube counts once for each client.
    watched: usize,
}

/// Whether a client counts for the connections of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The client is in its handshake, and does not count yet.
    Handshaking,
    /// The client counts.
    Counted,
    /// The client does not count: it is anonymous, above the limit of connections, and may only log in.
    Surplus,
}

/// A client, as the guard knows it.
#[derive(Debug)]
pub(crate) struct GuardedClient {
    peer: Peer,
    standing: Standing,
    /// The contents of its certificate, if it has shown one.
    certificate: Option<Box<ClientCertificate>>,
    /// The hash of the token that it has sent.
    token: Option<TokenHash>,
    identity: IdentityId,
    /// The client's roles for the tube that it uses; `None` if they have not been looked up yet.
    pub(crate) used: Option<Roles>,
    /// How many tubes at the start of its watch list have been checked: it may reserve from these.
    pub(crate) checked: usize,
    /// How many tubes it watches.
    watched: usize,
    /// The client's puts that wait: all puts of a `complete`, or one put.
    waiting: Option<WaitingPuts>,
    /// The client's connection will send no more, so its put does not wait.
    has_ended: bool,
    /// The client's managing command, if one is in progress.
    action: Option<Box<str>>,
}

/// The result of a login with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogInResult {
    /// The client now has the identity of the token's owner.
    Done,
    /// The token belongs to no identity, or was not checked.
    Refused,
    /// The owner has reached its limit of connections.
    Full,
}

impl GuardedClient {
    fn names(&self) -> &[String] {
        self.certificate.as_ref().map_or(&[], |certificate| &certificate.names)
    }

    /// Whether it counts for the connections of its identity.
    fn is_counted(&self) -> bool {
        self.standing == Standing::Counted
    }

    fn become_identity(&mut self, identity: IdentityId) {
        self.identity = identity;
        (self.used, self.checked) = (None, 0);
    }
}

impl Guard {
    /// A guard without clients.
    #[must_use]
    pub(crate) fn new(rules: AccessRules) -> Self {
        let figures = rules.identities().map(|identity| IdentityFigures::new(Rc::clone(&identity.name)));
        let identity = |figures| GuardedIdentity { figures, ..GuardedIdentity::default() };
        Self {
            identities: figures.map(identity).collect(),
            rules,
            clients: Vec::new(),
            permits: BTreeSet::new(),
            next_number: 0,
            tries: Tries::default(),
            has_read_token: false,
            wrong_tokens: RateLimitedLog::default(),
            refusals: Vec::new(),
            full: RateLimitedLog::default(),
        }
    }

    /// Memory of the guard, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.clients.capacity() * CLIENT_BYTES
    }

    /// Asserts that the counts of each identity, and the puts that wait, agree with its clients.
    pub(super) fn check_invariants(&self) {
        for (index, GuardedIdentity { figures, puts, watched, .. }) in self.identities.iter().enumerate() {
            let clients = self.clients.iter().flatten().filter(|known| known.identity.index() == index);
            let connections = clients.clone().filter(|known| known.is_counted()).count();
            assert_eq!(
                figures.connections, connections as u64,
                "the connections of {} are counted",
                figures.name
            );
            puts.check_invariants(&clients.clone().filter_map(|known| known.waiting).collect());
            let sum: usize = clients.map(|known| known.watched).sum();
            assert_eq!(*watched, sum, "the watched tubes of {} are counted", figures.name);
        }
        let firsts = self.rules.ids().zip(&self.identities);
        let firsts = firsts.filter_map(|(id, identity)| Some((identity.puts.first?.0, id)));
        assert!(self.permits == firsts.collect(), "the first waiting puts of each identity are scheduled");
    }

    /// Makes sure that there is room for another client; returns whether there is.
    pub(crate) fn make_room_for_client(&mut self) -> bool {
        self.clients.try_reserve(1).is_ok()
    }

    /// Removes a client that has disconnected.
    pub(crate) fn forget(&mut self, client: ClientId, now: Timestamp) {
        self.end_action(client, b"(the client has left)");
        let known = self.clients.get_mut(client.index as usize).and_then(Option::take);
        let Some(known) = known else { return };
        let GuardedClient { identity, waiting, watched, .. } = known;
        let state = &mut self.identities[identity.index()];
        state.figures.connections -= u64::from(known.is_counted());
        state.watched -= watched;
        self.cancel_wait(identity, waiting, now);
    }

    /// The client, as far as the guard knows it; `None` if it has not been identified.
    pub(crate) fn client(&self, client: ClientId) -> Option<&GuardedClient> {
        self.clients.get(client.index as usize)?.as_ref()
    }

    /// The client, as far as the guard knows it, for changes.
    pub(crate) fn client_mut(&mut self, client: ClientId) -> Option<&mut GuardedClient> {
        self.clients.get_mut(client.index as usize)?.as_mut()
    }

    /// The grants of the client; `None` if it may only log in.
    pub(crate) fn grants(&self, client: ClientId) -> Option<&Grants> {
        self.client(client)
            .filter(|known| known.standing != Standing::Surplus)
            .map(|known| &self.rules.identity(known.identity).grants)
    }

    /// The name of the client's identity.
    pub(crate) fn identity_name(&self, client: ClientId) -> Option<&Rc<str>> {
        Some(&self.rules.identity(self.client(client)?.identity).name)
    }

    /// The name and the limits of the client's identity.
    pub(crate) fn limits(&self, client: ClientId) -> Option<(Rc<str>, IdentityLimits)> {
        let identity = self.rules.identity(self.client(client)?.identity);
        Some((Rc::clone(&identity.name), identity.limits))
    }

    /// Whether the identity may have another connection.
    fn has_room_for(&self, identity: IdentityId) -> bool {
        let max = self.rules.identity(identity).limits.max_connections;
        max.is_none_or(|max| self.identities[identity.index()].figures.connections < max.into())
    }

    /// Handles a new connection; returns whether it may stay. For a client in its handshake this is decided at the end
    /// of the handshake, when its identity is known.
    fn identify(&mut self, client: ClientId, peer: Peer, is_handshaking: bool, now: Timestamp) -> bool {
        self.forget(client, now);
        let index = client.index as usize;
        self.clients.resize_with(self.clients.len().max(index + 1), || None);
        self.clients[index] = Some(GuardedClient {
            peer,
            standing: Standing::Handshaking,
            certificate: None,
            token: None,
            identity: self.rules.identify(peer, &[], None),
            used: None,
            checked: 0,
            watched: 0,
            waiting: None,
            has_ended: false,
            action: None,
        });
        is_handshaking || self.end_handshake(client, None, now)
    }

    /// Handles the end of a client's handshake, if there was one, with its certificate, if it has one; returns whether
    /// it may stay.
    fn end_handshake(
        &mut self,
        client: ClientId,
        certificate: Option<Box<ClientCertificate>>,
        now: Timestamp,
    ) -> bool {
        let Some(known) = self.client_mut(client) else { return false };
        let (peer, has_certificate) = (known.peer, certificate.is_some());
        known.certificate = certificate;
        let identity =
            self.rules.identify(peer, self.client(client).map_or(&[], |known| known.names()), None);
        let has_room = self.has_room_for(identity);
        let is_surplus = !has_room && AccessRules::is_anonymous(identity);
        if is_surplus {
            // The client is refused, and that is logged, if its command is not `auth`.
        } else if !has_room {
            let name = &self.rules.identity(identity).name;
            self.full.line(now, |withheld| report_full(name, peer, withheld));
        } else if !AccessRules::is_anonymous(identity) {
            let by = if has_certificate { "its certificate" } else { "its user" };
            self.note_log_in(identity, client, peer, by, now);
        }
        self.set_standing(client, identity, if is_surplus { Standing::Surplus } else { Standing::Counted });
        has_room || is_surplus
    }

    /// Gives the client an identity and a standing, and counts its connection for the identity, if it counts.
    fn set_standing(&mut self, client: ClientId, identity: IdentityId, standing: Standing) {
        let Some(known) = self.clients.get_mut(client.index as usize).and_then(Option::as_mut) else {
            return;
        };
        self.identities[known.identity.index()].figures.connections -= u64::from(known.is_counted());
        known.become_identity(identity);
        known.standing = standing;
        self.identities[identity.index()].figures.connections += u64::from(known.is_counted());
    }

    /// Counts and logs that the client has become the identity `by` this.
    fn note_log_in(&mut self, identity: IdentityId, client: ClientId, peer: Peer, by: &str, now: Timestamp) {
        let name = &self.rules.identity(identity).name;
        let GuardedIdentity { figures, log_ins, .. } = &mut self.identities[identity.index()];
        figures.log_ins += 1;
        log_ins.line(now, |withheld| report_log_in(name, client, peer, by, withheld));
    }

    /// Refuses and logs a client that may only log in, because it is anonymous and above the limit of connections. If
    /// there is room for it now, it gets the rights of the others instead. Returns whether it is refused.
    pub(crate) fn refuse_surplus(&mut self, client: ClientId, now: Timestamp) -> bool {
        let Some(known) = self.client(client).filter(|known| known.standing == Standing::Surplus) else {
            return false;
        };
        let (peer, identity) = (known.peer, known.identity);
        if self.has_room_for(identity) {
            self.set_standing(client, identity, Standing::Counted);
            return false;
        }
        let name = &self.rules.identity(identity).name;
        self.full.line(now, |withheld| report_full(name, peer, withheld));
        true
    }

    /// Whether the client has not been identified: it is in its handshake, or it may do nothing before it logs in.
    fn is_unknown(&self, client: ClientId) -> bool {
        self.client(client).is_none_or(|known| {
            let identity = self.rules.identity(known.identity);
            !known.is_counted()
                || AccessRules::is_anonymous(known.identity) && identity.grants.somewhere().is_empty()
        })
    }

    /// Gives the client another identity, if that may have another connection; returns whether it did.
    fn change_identity(&mut self, client: ClientId, identity: IdentityId, by: &str, now: Timestamp) -> bool {
        let Some(known) = self.client(client) else { return false };
        let (peer, before, watched) = (known.peer, known.identity, known.watched);
        if before != identity && !self.has_room_for(identity) {
            let name = &self.rules.identity(identity).name;
            self.full.line(now, |withheld| report_full(name, peer, withheld));
            return false;
        }
        self.note_log_in(identity, client, peer, by, now);
        self.set_standing(client, identity, Standing::Counted);
        self.identities[before.index()].watched -= watched;
        self.identities[identity.index()].watched += watched;
        true
    }

    /// Notes that the client now watches this many tubes.
    pub(crate) fn set_watched(&mut self, client: ClientId, watched: usize) {
        let Some(known) = self.client_mut(client) else { return };
        let (before, identity) = (std::mem::replace(&mut known.watched, watched), known.identity);
        let sum = &mut self.identities[identity.index()].watched;
        *sum = *sum - before + watched;
    }

    /// Whether the clients of this one's identity together have reached their limit of watched tubes, which is `max`
    /// if the rules set none.
    pub(crate) fn watches_enough(&self, client: ClientId, max: Option<usize>) -> bool {
        self.client(client).is_some_and(|known| {
            let own = self.rules.identity(known.identity).limits.max_watched_tubes;
            let max = own.map(|max| max as usize).or(max);
            max.is_some_and(|max| self.identities[known.identity.index()].watched >= max)
        })
    }

    /// Logs the client in with a token.
    pub(crate) fn log_in(&mut self, client: ClientId, token: &[u8], now: Timestamp) -> LogInResult {
        let Some((peer, before)) = self.client(client).map(|known| (known.peer, known.identity)) else {
            return LogInResult::Refused;
        };
        self.has_read_token = true;
        let hash = TokenHash::of(token);
        let Some(identity) = self.rules.owner_of(&hash) else {
            let is_too_many = self.tries.note_wrong(peer, now);
            self.identities[before.index()].figures.log_ins_refused += 1;
            if !is_too_many {
                self.wrong_tokens.line(now, |withheld| report_refused(peer, withheld));
            }
            return LogInResult::Refused;
        };
        if !self.change_identity(client, identity, "a token", now) {
            return LogInResult::Full;
        }
        if let Some(known) = self.client_mut(client) {
            known.token = Some(hash);
        }
        LogInResult::Done
    }
}

#[cfg(test)]
thread_local! {
    /// How many names of watched tubes the server has examined.
    pub(crate) static WATCHED_NAMES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The names of the tubes that the client watches, from this index on.
pub(crate) fn watched_tubes_from(
    queue: &Queue,
    client: ClientId,
    position: usize,
) -> impl Iterator<Item = &TubeName> {
    let names = queue.watched_tubes_from(client, position);
    #[cfg(test)]
    let names = names.inspect(|_| WATCHED_NAMES.set(WATCHED_NAMES.get() + 1));
    names
}

impl Executor {
    /// From now on the rules decide about each command. Called before the first client connects.
    pub fn guard_with(&mut self, rules: AccessRules) {
        self.guard = Some(Box::new(Guard::new(rules)));
    }

    /// Handles the end of a client's handshake, with its certificate in DER, if it has one; returns whether it may
    /// stay.
    pub(crate) fn end_handshake(
        &mut self,
        client: ClientId,
        certificate: Option<&[u8]>,
        now: Timestamp,
    ) -> bool {
        let certificate = certificate.map(|certificate| Box::new(ClientCertificate::of(certificate)));
        self.guard.as_mut().is_none_or(|guard| guard.end_handshake(client, certificate, now))
    }

    /// The grants of the client. `None` on an open server, and before the client has been identified.
    pub(crate) fn grants(&self, client: ClientId) -> Option<&Grants> {
        self.guard.as_ref()?.grants(client)
    }

    /// The clients among `waiting` that may not continue to wait: they may no longer reserve from all tubes that they
    /// watch, or see the end of the job.
    pub(crate) fn may_not_wait(&self, waiting: impl Iterator<Item = ClientId>) -> Vec<ClientId> {
        // Many clients of an identity watch the same tubes.
        let mut judged = HashMap::new();
        let mut may_reserve = |client| {
            let known = self.guard.as_ref()?.client(client)?;
            let grants = self.grants(client)?;
            let may_work = |tube: &TubeName| grants.judge(Roles::WORK, tube.as_str()) == Verdict::Allowed;
            let mut tubes = watched_tubes_from(&self.queue, client, known.checked);
            Some(tubes.all(|tube| *judged.entry((known.identity, tube)).or_insert_with(|| may_work(tube))))
        };
        let mut may_wait = |client| self.may_wait_for_job(client).or_else(|| may_reserve(client));
        waiting.filter(|&client| may_wait(client) != Some(true)).collect()
    }

    /// Whether the input executed since the last call contained a token.
    pub(crate) fn take_read_token(&mut self) -> bool {
        self.guard.as_mut().is_some_and(|guard| std::mem::take(&mut guard.has_read_token))
    }

    /// Puts new rules in force, if the server has rules. Each client gets its identity from them: the owner of its
    /// token, or the user of its socket, or an anonymous identity. The usage and the counts of identities with the same
    /// name are kept.
    pub(crate) fn replace_access_rules(&mut self, rules: AccessRules, now: Timestamp) {
        let Some(guard) = &mut self.guard else { return };
        let Guard { rules, mut identities, .. } = Guard::new(rules);
        // The ids that identities with the same name and the same grants had.
        let mut same = vec![None; identities.len()];
        let ids = guard.rules.ids().map(|id| (&*guard.rules.identity(id).name, id));
        let by_name: HashMap<_, _> = ids.collect();
        for (identity, index) in rules.identities().zip(0..) {
            let Some(&id) = by_name.get(&*identity.name) else { continue };
            same[index] = (guard.rules.identity(id).grants == identity.grants).then_some(id);
            let before = std::mem::take(&mut guard.identities[id.index()]);
            let figures = IdentityFigures { connections: 0, ..before.figures };
            let puts = IdentityPuts::of(before.puts.pace, before.puts.first.map(|(_, number)| number));
            identities[index] = GuardedIdentity { figures, puts, watched: 0, ..before };
        }
        let owners = rules.owners();
        for known in guard.clients.iter_mut().flatten() {
            let owner = known.token.and_then(|token| owners.get(&token.bytes()).copied());
            let identity = rules.identify(known.peer, known.names(), owner);
            if same[identity.index()] == Some(known.identity) {
                known.identity = identity;
            } else {
                known.become_identity(identity);
            }
            if known.standing == Standing::Surplus && !AccessRules::is_anonymous(known.identity) {
                known.standing = Standing::Counted;
            }
            let identity = &mut identities[identity.index()];
            known.waiting.into_iter().for_each(|puts| identity.puts.add(puts));
            identity.figures.connections += u64::from(known.is_counted());
            identity.watched += known.watched;
        }
        (guard.rules, guard.identities) = (rules, identities);
        guard.permits.clear();
        guard.rules.ids().for_each(|identity| guard.schedule_puts(identity, now));
    }

    /// Handles a new connection; returns whether it may stay. For a client in its handshake this is decided at the end
    /// of the handshake, when its identity is known.
    pub(crate) fn identify(
        &mut self,
        client: ClientId,
        peer: Peer,
        is_handshaking: bool,
        now: Timestamp,
    ) -> bool {
        self.guard.as_mut().is_none_or(|guard| guard.identify(client, peer, is_handshaking, now))
    }

    /// Whether the rules have not identified the client yet.
    pub(crate) fn is_unknown(&self, client: ClientId) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_unknown(client))
    }

    /// Whether the rules wait for the end of the client's handshake.
    pub(crate) fn awaits_certificate(&self, client: ClientId) -> bool {
        let known = self.guard.as_ref().and_then(|guard| guard.client(client));
        known.is_some_and(|known| known.standing == Standing::Handshaking)
    }

    /// Whether there are access rules.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }
}
