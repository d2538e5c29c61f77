//! The guard of a server with access rules: who each client is.
//!
//! Owns: the rules in force, and for each client its identity and what was already decided about the tubes that it uses
//! and watches. `audit` has what is logged of it. `judge` asks it about commands, `narrowed` makes the lists and stats
//! of clients that may not see everything. An open server has no guard. Driven by the executor.

mod description;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Executor;
use super::audit::{RefusalLine, say_full, say_log_in, say_refused};
use crate::access::{Grants, IdentityId, Limits, Pace, Peer, Roles, Rules, TokenHash, Tries, Verdict};
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
pub struct Guard {
    pub(super) rules: Rules,
    /// By the index of the [`ClientId`].
    clients: Vec<Option<GuardedClient>>,
    /// The usage of each identity, by the identities of the rules.
    pub(super) usage: Vec<Usage>,
    /// The counts of each identity, in the same order.
    pub(super) figures: Vec<IdentityFigures>,
    /// Puts that wait until they are permitted: when that is, and whose they are.
    waiting_puts: BTreeSet<(Timestamp, u32)>,
    tries: Tries,
    /// Whether there is a token in the input that was executed last.
    has_read_token: bool,
    wrong_tokens: RateLimitedLog,
    /// Refusals that are to be logged at the end of the turn.
    pub(super) refusals: Vec<RefusalLine>,
    full: RateLimitedLog,
}

/// The resources that an identity uses now.
#[derive(Debug, Default)]
pub struct Usage {
    pace: Pace,
    log_ins: RateLimitedLog,
    /// By the word of the command, so that none hides another.
    pub(super) refusals: BTreeMap<&'static str, RateLimitedLog>,
    /// The tubes that its clients watch, each as often as it is watched.
    watched: usize,
}

/// A client, as the guard knows it.
#[derive(Debug)]
pub struct GuardedClient {
    pub(super) peer: Peer,
    /// What its certificate says, which is nothing if it has none; `None` during its handshake, in which it does not
    /// count for the connections of its identity.
    pub(super) certificate: Option<Box<ClientCertificate>>,
    /// The hash of the token that it has shown.
    token: Option<TokenHash>,
    pub(super) identity: IdentityId,
    /// Its roles for the tube that it uses; `None` if they were not looked up yet.
    pub(super) used: Option<Roles>,
    /// How many tubes at the start of its watch list were checked: it may reserve from them.
    pub(super) checked: usize,
    /// How many tubes it watches.
    watched: usize,
    /// When its put is permitted, if that waits.
    put_at: Option<Timestamp>,
    /// Its connection will bring no more, so its put does not wait.
    has_ended: bool,
    /// The managing command that it has given and that is not over.
    pub(super) action: Option<Box<str>>,
}

/// The result of a login with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogIn {
    /// The client is its owner now.
    Done,
    /// It is nobody's, or it was not looked at.
    Refused,
    /// Its owner has as many connections as it may have.
    Full,
}

impl GuardedClient {
    fn names(&self) -> &[String] {
        self.certificate.as_ref().map_or(&[], |certificate| &certificate.names)
    }

    fn become_identity(&mut self, identity: IdentityId) {
        self.identity = identity;
        (self.used, self.checked) = (None, 0);
    }
}

impl Guard {
    /// A guard without clients.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            usage: rules.identities().map(|_| Usage::default()).collect(),
            figures: rules.identities().map(|one| IdentityFigures::new(Rc::clone(&one.name))).collect(),
            rules,
            clients: Vec::new(),
            waiting_puts: BTreeSet::new(),
            tries: Tries::default(),
            has_read_token: false,
            wrong_tokens: RateLimitedLog::default(),
            refusals: Vec::new(),
            full: RateLimitedLog::default(),
        }
    }

    /// Other rules are in force from now on. Each client becomes who it is by them: the owner of the token that it has
    /// shown, or the user of its socket, or anonymous. What is known of identities of the same name is kept.
    pub fn replace(&mut self, rules: Rules) {
        let next = Self::new(rules);
        let (mut usage, mut figures) = (next.usage, next.figures);
        for (figures, usage) in figures.iter_mut().zip(&mut usage) {
            if let Some(before) = self.figures.iter().position(|before| before.name == figures.name) {
                *figures = IdentityFigures { connections: 0, ..self.figures[before].clone() };
                *usage = Usage { watched: 0, ..std::mem::take(&mut self.usage[before]) };
            }
        }
        for known in self.clients.iter_mut().flatten() {
            known.become_identity(next.rules.identify(known.peer, known.names(), known.token.as_ref()));
            figures[known.identity.index()].connections += u64::from(known.certificate.is_some());
            usage[known.identity.index()].watched += known.watched;
        }
        (self.rules, self.usage, self.figures) = (next.rules, usage, figures);
    }

    /// Its memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.clients.capacity() * CLIENT_BYTES
    }

    /// Makes sure that there is room for another client; tells whether there is.
    pub fn reserve_client(&mut self) -> bool {
        self.clients.try_reserve(1).is_ok()
    }

    /// The client is gone.
    pub fn forget(&mut self, client: ClientId) {
        self.end_action(client, b"(the client has left)");
        let known = self.clients.get_mut(client.index as usize).and_then(Option::take);
        let Some(GuardedClient { identity, put_at, certificate, watched, .. }) = known else { return };
        self.figures[identity.index()].connections -= u64::from(certificate.is_some());
        self.cancel_wait(identity, put_at, client.index);
        self.usage[identity.index()].watched -= watched;
    }

    /// The client, as far as it is known; `None` if it is not identified.
    pub fn client(&self, client: ClientId) -> Option<&GuardedClient> {
        self.clients.get(client.index as usize)?.as_ref()
    }

    /// The client, as far as it is known, for changes.
    pub fn client_mut(&mut self, client: ClientId) -> Option<&mut GuardedClient> {
        self.clients.get_mut(client.index as usize)?.as_mut()
    }

    /// The grants of the client.
    pub fn grants(&self, client: ClientId) -> Option<&Grants> {
        self.client(client).map(|known| &self.rules.identity(known.identity).grants)
    }

    /// The name and the limits of the client's identity.
    pub fn limits(&self, client: ClientId) -> Option<(Rc<str>, Limits)> {
        let identity = self.rules.identity(self.client(client)?.identity);
        Some((Rc::clone(&identity.name), identity.limits))
    }

    /// Whether the identity may have another connection.
    fn has_room_for(&self, identity: IdentityId) -> bool {
        let most = self.rules.identity(identity).limits.max_connections;
        most.is_none_or(|most| self.figures[identity.index()].connections < most.into())
    }

    /// Somebody has connected; returns whether it may stay. If the client is in its handshake, this is decided at the
    /// end of that, when it is known who it is.
    fn identify(&mut self, client: ClientId, peer: Peer, is_handshaking: bool, now: Timestamp) -> bool {
        self.forget(client);
        let index = client.index as usize;
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        self.clients[index] = Some(GuardedClient {
            peer,
            certificate: None,
            token: None,
            identity: self.rules.identify(peer, &[], None),
            used: None,
            checked: 0,
            watched: 0,
            put_at: None,
            has_ended: false,
            action: None,
        });
        is_handshaking || self.end_handshake(client, ClientCertificate::default(), now)
    }

    /// Whether the client is in its handshake, as far as the guard was told.
    pub fn awaits_certificate(&self, client: ClientId) -> bool {
        self.client(client).is_some_and(|known| known.certificate.is_none())
    }

    /// The client has done its handshake, if there was one, and perhaps shown a certificate; returns whether it may
    /// stay.
    fn end_handshake(&mut self, client: ClientId, certificate: ClientCertificate, now: Timestamp) -> bool {
        let Some(known) = self.client_mut(client) else { return false };
        let (peer, has_certificate) = (known.peer, !certificate.serial.is_empty());
        known.certificate = Some(Box::new(certificate));
        let identity =
            self.rules.identify(peer, self.client(client).map_or(&[], |known| known.names()), None);
        let is_welcome = self.has_room_for(identity);
        if !is_welcome {
            let name = &self.rules.identity(identity).name;
            self.full.line(now, |withheld| say_full(name, peer, withheld));
        } else if !Rules::is_anonymous(identity) {
            let by = if has_certificate { "its certificate" } else { "its user" };
            self.figures[identity.index()].log_ins += 1;
            let name = &self.rules.identity(identity).name;
            let lines = &mut self.usage[identity.index()].log_ins;
            lines.line(now, |withheld| say_log_in(name, client, peer, by, withheld));
        }
        self.figures[identity.index()].connections += 1;
        if let Some(known) = self.client_mut(client) {
            known.become_identity(identity);
        }
        is_welcome
    }

    /// Whether it is not known yet who the client is: it is in its handshake, or it may do nothing before it logs in.
    fn is_unknown(&self, client: ClientId) -> bool {
        self.client(client).is_none_or(|known| {
            let identity = self.rules.identity(known.identity);
            known.certificate.is_none()
                || Rules::is_anonymous(known.identity) && identity.grants.somewhere().is_empty()
        })
    }

    /// The client becomes another identity, if that may have another connection; returns whether.
    fn change_identity(&mut self, client: ClientId, identity: IdentityId, by: &str, now: Timestamp) -> bool {
        let Some((peer, before)) = self.client(client).map(|known| (known.peer, known.identity)) else {
            return false;
        };
        let name = &self.rules.identity(identity).name;
        if before != identity && !self.has_room_for(identity) {
            self.full.line(now, |withheld| say_full(name, peer, withheld));
            return false;
        }
        let lines = &mut self.usage[identity.index()].log_ins;
        lines.line(now, |withheld| say_log_in(name, client, peer, by, withheld));
        self.figures[before.index()].connections -= 1;
        self.figures[identity.index()].connections += 1;
        self.figures[identity.index()].log_ins += 1;
        if let Some(known) = self.client_mut(client) {
            known.become_identity(identity);
            let watched = known.watched;
            self.usage[before.index()].watched -= watched;
            self.usage[identity.index()].watched += watched;
        }
        true
    }

    /// The client watches this many tubes now.
    pub fn set_watched(&mut self, client: ClientId, watched: usize) {
        let Some(known) = self.client_mut(client) else { return };
        let (before, identity) = (std::mem::replace(&mut known.watched, watched), known.identity);
        let usage = &mut self.usage[identity.index()];
        usage.watched = usage.watched - before + watched;
    }

    /// Whether the clients of this one's identity together watch as many tubes as they may: `most` if the rules do not
    /// say how many these are.
    pub fn watches_enough(&self, client: ClientId, most: Option<usize>) -> bool {
        self.client(client).is_some_and(|known| {
            let own = self.rules.identity(known.identity).limits.max_watched_tubes;
            let most = own.map(|most| most as usize).or(most);
            most.is_some_and(|most| self.usage[known.identity.index()].watched >= most)
        })
    }

    /// The client shows a token.
    pub fn log_in(&mut self, client: ClientId, token: &[u8], now: Timestamp) -> LogIn {
        let Some((peer, before)) = self.client(client).map(|known| (known.peer, known.identity)) else {
            return LogIn::Refused;
        };
        self.has_read_token = true;
        let hash = TokenHash::of(token);
        let Some(identity) = self.rules.owner_of(&hash) else {
            let is_too_many = self.tries.note_wrong(peer, now);
            self.figures[before.index()].log_ins_refused += 1;
            if !is_too_many {
                self.wrong_tokens.line(now, |withheld| say_refused(peer, withheld));
            }
            return LogIn::Refused;
        };
        if !self.change_identity(client, identity, "a token", now) {
            return LogIn::Full;
        }
        if let Some(known) = self.client_mut(client) {
            known.token = Some(hash);
        }
        LogIn::Done
    }

    /// The client's connection will bring no more. A put that waits is given up, or it would hold the connection.
    pub fn note_end(&mut self, client: ClientId) {
        if let Some(known) = self.client_mut(client) {
            known.has_ended = true;
        }
    }

    /// Whether the put of the client is given up instead of waiting any longer; its permission is for others then.
    pub fn gives_up_put(&mut self, client: ClientId) -> bool {
        let Some(known) = self.client_mut(client).filter(|known| known.has_ended) else { return false };
        let (identity, put_at) = (known.identity, known.put_at.take());
        self.cancel_wait(identity, put_at, client.index);
        put_at.is_some()
    }

    fn cancel_wait(&mut self, identity: IdentityId, put_at: Option<Timestamp>, index: u32) {
        let Some(at) = put_at else { return };
        self.waiting_puts.remove(&(at, index));
        if let Some(per_second) = self.rules.identity(identity).limits.puts_per_second {
            self.usage[identity.index()].pace.give_back(per_second);
        }
    }

    /// When the put of the client may be done, if not now. The client waits until then.
    pub fn put_waits_until(&mut self, client: ClientId, now: Timestamp) -> Option<Timestamp> {
        self.puts_wait_until(client, 1, now)
    }

    /// When the last of `count` puts may be done, if not now. The client waits until then.
    pub fn puts_wait_until(&mut self, client: ClientId, count: usize, now: Timestamp) -> Option<Timestamp> {
        let identity = self.client(client)?.identity;
        let per_second = self.rules.identity(identity).limits.puts_per_second?;
        let pace = &mut self.usage[identity.index()].pace;
        let at = (0..count).map(|_| pace.take(per_second, now)).last()?;
        if at <= now {
            return None;
        }
        self.figures[identity.index()].puts_delayed += count as u64;
        self.waiting_puts.insert((at, client.index));
        self.client_mut(client)?.put_at = Some(at);
        Some(at)
    }

    /// The next client whose put is permitted now.
    pub fn next_permitted(&mut self, now: Timestamp) -> Option<u32> {
        let &(at, index) = self.waiting_puts.first().filter(|(at, _)| *at <= now)?;
        self.waiting_puts.remove(&(at, index));
        if let Some(Some(known)) = self.clients.get_mut(index as usize) {
            known.put_at = None;
        }
        Some(index)
    }

    /// Whether the put of the client still has to wait.
    pub fn has_waiting_put(&self, client: ClientId) -> bool {
        self.client(client).is_some_and(|known| known.put_at.is_some())
    }

    /// When the next put that waits is permitted.
    pub fn next_permit_at(&self) -> Option<Timestamp> {
        self.waiting_puts.first().map(|&(at, _)| at)
    }
}

#[cfg(test)]
thread_local! {
    /// Names of watched tubes that the server has looked at.
    pub(crate) static WATCHED_NAMES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The names of the tubes that the client watches, from this place on.
pub(super) fn watched_tubes_from(
    queue: &Queue,
    client: ClientId,
    place: usize,
) -> impl Iterator<Item = &TubeName> {
    let names = queue.watched_tubes_from(client, place);
    #[cfg(test)]
    let names = names.inspect(|_| WATCHED_NAMES.set(WATCHED_NAMES.get() + 1));
    names
}

impl Executor {
    /// From now on the rules decide what each client may do. Comes before the first client.
    pub fn guard_with(&mut self, rules: Rules) {
        self.guard = Some(Box::new(Guard::new(rules)));
    }

    /// Whether the client is in its handshake, as far as the guard was told.
    pub(crate) fn awaits_certificate(&self, client: ClientId) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.awaits_certificate(client))
    }

    /// The client has done its handshake, and perhaps shown a certificate, in DER; returns whether it may stay.
    pub(crate) fn end_handshake(
        &mut self,
        client: ClientId,
        certificate: Option<&[u8]>,
        now: Timestamp,
    ) -> bool {
        let certificate = certificate.map(ClientCertificate::of).unwrap_or_default();
        self.guard.as_mut().is_none_or(|guard| guard.end_handshake(client, certificate, now))
    }

    /// Whether it is not known yet who the client is. On an open server, everybody is known.
    pub(crate) fn is_unknown(&self, client: ClientId) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_unknown(client))
    }

    /// Other rules are in force from now on.
    pub(crate) fn replace_rules(&mut self, rules: Rules) {
        if let Some(guard) = &mut self.guard {
            guard.replace(rules);
        }
    }

    /// What the client may do. `None` on an open server, and while it is not known who the client is.
    pub(super) fn grants(&self, client: ClientId) -> Option<&Grants> {
        self.guard.as_ref()?.grants(client)
    }

    /// Whether the client may wait as it does: it may reserve from all tubes that it watches, or see the end of the
    /// job.
    pub(crate) fn may_wait(&self, client: ClientId) -> bool {
        if let Some(may_wait) = self.may_wait_for_job(client) {
            return may_wait;
        }
        let grants = self.grants(client);
        grants.is_some_and(|grants| {
            let mut tubes = watched_tubes_from(&self.queue, client, 0);
            tubes.all(|tube| grants.judge(Roles::WORK, tube.as_str()) == Verdict::Allowed)
        })
    }

    /// Logs what was refused in the turn.
    pub(crate) fn write_refusals(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.write_refusals();
        }
    }

    /// Whether there was a token in what was executed since the last call.
    pub(crate) fn take_read_token(&mut self) -> bool {
        self.guard.as_mut().is_some_and(|guard| std::mem::take(&mut guard.has_read_token))
    }

    /// The client's connection will bring no more while its put waits.
    pub(crate) fn note_end(&mut self, client: ClientId) {
        if let Some(guard) = &mut self.guard {
            guard.note_end(client);
        }
    }

    /// The index of the next client whose put is permitted now.
    pub(crate) fn next_permitted(&mut self, now: Timestamp) -> Option<u32> {
        self.guard.as_mut()?.next_permitted(now)
    }

    /// When the next put that waits is permitted.
    pub(crate) fn next_permit_at(&self) -> Option<Timestamp> {
        self.guard.as_ref()?.next_permit_at()
    }

    /// Whether there are access rules.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Who is at the other end of a client's connection; returns whether it may stay.
    pub(crate) fn identify(
        &mut self,
        client: ClientId,
        peer: Peer,
        is_handshaking: bool,
        now: Timestamp,
    ) -> bool {
        self.guard.as_mut().is_none_or(|guard| guard.identify(client, peer, is_handshaking, now))
    }
}
