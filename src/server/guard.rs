//! The guard of a server with access rules: who each client is.
//!
//! Owns: the rules in force, and for each client its identity and what was already decided about the tubes that it uses and
//! watches. `guarded` asks it about commands, `narrowed` makes the lists and stats of clients that may not see everything.
//! An open server has no guard. Driven by `execute`.

use std::collections::BTreeSet;
use std::rc::Rc;

use log::{info, warn};

use super::execute::Executor;
use super::narrowed::Narrowed;
use crate::access::{Grants, IdentityId, Limits, Need, Pace, Peer, Roles, Rules, TokenHash, Tries, Verdict};
use crate::clock::Timestamp;
use crate::queue::ClientId;
use crate::rate_limited_log::RateLimitedLog;
use crate::stats::IdentityFigures;
use crate::tls;

/// What a client takes here, in bytes.
const CLIENT_BYTES: usize = size_of::<Option<GuardedClient>>();

/// The rules, and the clients to which they apply.
#[derive(Debug)]
pub struct Guard {
    rules: Rules,
    /// By the index of the [`ClientId`].
    clients: Vec<Option<GuardedClient>>,
    /// What the clients of each identity take, by the identities of the rules.
    usage: Vec<Usage>,
    /// What is told of it, in the same order.
    figures: Vec<IdentityFigures>,
    /// Puts that wait until they are permitted: when that is, and whose they are.
    waiting_puts: BTreeSet<(Timestamp, u32)>,
    tries: Tries,
    wrong_tokens: RateLimitedLog,
    full: RateLimitedLog,
}

/// What goes on about an identity.
#[derive(Debug, Default)]
struct Usage {
    pace: Pace,
    log_ins: RateLimitedLog,
    refusals: RateLimitedLog,
    actions: RateLimitedLog,
    /// The tubes that its clients watch, each as often as it is watched.
    watched: usize,
}

/// What the guard knows of a client.
#[derive(Debug)]
pub struct GuardedClient {
    peer: Peer,
    /// The names in its certificate; `None` if it has shown none.
    names: Option<Box<[String]>>,
    /// The hash of the token that it has shown.
    token: Option<TokenHash>,
    identity: IdentityId,
    /// Its roles for the tube that it uses; `None` if they were not looked up yet.
    pub(super) used: Option<Roles>,
    /// So many tubes at the start of its watch list are known to be ones from which it may reserve.
    pub(super) checked: usize,
    /// The list or the stats that it waits for.
    pub(super) narrowed: Option<Box<Narrowed>>,
    /// How many tubes it watches.
    watched: usize,
    /// When its put is permitted, if that waits.
    put_at: Option<Timestamp>,
    /// The managing command that it has given and that is not over.
    action: Option<Box<str>>,
}

/// What a token has come to.
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
        self.names.as_deref().unwrap_or_default()
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
            wrong_tokens: RateLimitedLog::default(),
            full: RateLimitedLog::default(),
        }
    }

    /// Other rules are in force from now on. Each client becomes who it is by them: the owner of the token that it has shown,
    /// or the user of its socket, or a stranger. What is known of identities of the same name is kept.
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
            figures[known.identity.index()].connections += 1;
            usage[known.identity.index()].watched += known.watched;
        }
        (self.rules, self.usage, self.figures) = (next.rules, usage, figures);
    }

    /// What it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.clients.capacity() * CLIENT_BYTES
    }

    /// Makes sure that there is room for another client; tells whether there is.
    pub fn reserve_client(&mut self) -> bool {
        self.clients.try_reserve(1).is_ok()
    }

    /// The client is gone.
    pub fn forget(&mut self, client: ClientId) {
        let known = self.clients.get_mut(client.index as usize).and_then(Option::take);
        let Some(GuardedClient { identity, put_at, watched, .. }) = known else { return };
        self.figures[identity.index()].connections -= 1;
        self.usage[identity.index()].watched -= watched;
        if let Some(at) = put_at {
            self.waiting_puts.remove(&(at, client.index));
            if let Some(per_second) = self.rules.identity(identity).limits.puts_per_second {
                self.usage[identity.index()].pace.give_back(per_second);
            }
        }
    }

    /// What is known of the client; `None` if nobody has said who it is.
    pub fn client(&self, client: ClientId) -> Option<&GuardedClient> {
        self.clients.get(client.index as usize)?.as_ref()
    }

    /// The same, for changes.
    pub fn client_mut(&mut self, client: ClientId) -> Option<&mut GuardedClient> {
        self.clients.get_mut(client.index as usize)?.as_mut()
    }

    /// What the client may do.
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

    /// Somebody has connected; returns whether it may stay.
    fn identify(&mut self, client: ClientId, peer: Peer, now: Timestamp) -> bool {
        self.forget(client);
        let index = client.index as usize;
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        let identity = self.rules.identify(peer, &[], None);
        let is_welcome = self.has_room_for(identity);
        let name = &self.rules.identity(identity).name;
        let figures = &mut self.figures[identity.index()];
        if !is_welcome {
            self.full.line(now, |withheld| say_full(name, peer, withheld));
        } else if !Rules::is_stranger(identity) {
            figures.log_ins += 1;
            let lines = &mut self.usage[identity.index()].log_ins;
            lines.line(now, |withheld| say_log_in(name, client, peer, "its user", withheld));
        }
        figures.connections += 1;
        self.clients[index] = Some(GuardedClient {
            peer,
            names: None,
            token: None,
            identity,
            used: None,
            checked: 0,
            narrowed: None,
            watched: 0,
            put_at: None,
            action: None,
        });
        is_welcome
    }

    /// Whether it is not known what the client's certificate says, if it has one.
    pub fn awaits_certificate(&self, client: ClientId) -> bool {
        self.client(client).is_some_and(|known| known.names.is_none())
    }

    /// The client has shown a certificate with these names; returns whether it may stay.
    pub fn show_certificate(&mut self, client: ClientId, names: Vec<String>, now: Timestamp) -> bool {
        let Some(known) = self.client(client) else { return false };
        let (peer, before) = (known.peer, known.identity);
        let identity = self.rules.identify(peer, &names, known.token.as_ref());
        if let Some(known) = self.client_mut(client) {
            known.names = Some(names.into());
        }
        identity == before || self.change_identity(client, identity, "its certificate", now)
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

    /// The client watches so many tubes now.
    pub fn set_watched(&mut self, client: ClientId, watched: usize) {
        let Some(known) = self.client_mut(client) else { return };
        let (before, identity) = (std::mem::replace(&mut known.watched, watched), known.identity);
        let usage = &mut self.usage[identity.index()];
        usage.watched = usage.watched - before + watched;
    }

    /// Whether the clients of this one's identity together watch as many tubes as they may: `most` if the rules do not say
    /// how many these are.
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
        let may_try = self.tries.may_try(peer, now);
        let hash = TokenHash::of(token);
        let Some(identity) = self.rules.owner_of(&hash).filter(|_| may_try) else {
            if may_try {
                self.tries.note_wrong(peer, now);
            }
            self.figures[before.index()].log_ins_refused += 1;
            self.wrong_tokens.line(now, |withheld| say_refused(peer, may_try, withheld));
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

    /// When the put of the client may be done, if not now. The client waits until then.
    pub fn put_waits_until(&mut self, client: ClientId, now: Timestamp) -> Option<Timestamp> {
        let identity = self.client(client)?.identity;
        let per_second = self.rules.identity(identity).limits.puts_per_second?;
        let at = self.usage[identity.index()].pace.take(per_second, now);
        if at <= now {
            return None;
        }
        self.figures[identity.index()].puts_delayed += 1;
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

fn say_log_in(name: &str, client: ClientId, peer: Peer, by: &str, withheld: u64) {
    info!(
        identity = name, client = client.index, peer:% = peer, withheld = withheld;
        "{name} has logged in from {peer} by {by}; {withheld} others since the last such line"
    );
}

fn say_refused(peer: Peer, was_tried: bool, withheld: u64) {
    let reason = if was_tried { "a wrong token" } else { "too many wrong tokens from there" };
    warn!(
        peer:% = peer, withheld = withheld;
        "refused a log-in from {peer}: {reason}; {withheld} others since the last such line"
    );
}

fn say_full(name: &str, peer: Peer, withheld: u64) {
    warn!(
        identity = name, peer:% = peer, withheld = withheld;
        "refused a connection of {name} from {peer}: max-connections; {withheld} others since the last such line"
    );
}

/// The audit: what is logged and counted of commands.
impl Guard {
    /// What is told of each identity.
    pub fn figures(&self) -> &[IdentityFigures] {
        &self.figures
    }

    /// What is told of the client's identity.
    pub fn figures_of(&self, client: ClientId) -> Option<&IdentityFigures> {
        Some(&self.figures[self.client(client)?.identity.index()])
    }

    /// A command was refused, and the client was told so.
    pub fn count_refusal(&mut self, client: ClientId) {
        let Some(identity) = self.client(client).map(|known| known.identity) else { return };
        self.figures[identity.index()].commands_forbidden += 1;
    }

    /// The same for the log, also if the client was told that there is no such job.
    pub fn log_refusal(&mut self, client: ClientId, command: &str, now: Timestamp) {
        let Some(known) = self.client(client) else { return };
        let (identity, peer) = (known.identity, known.peer);
        let name = &self.rules.identity(identity).name;
        self.usage[identity.index()].refusals.line(now, |withheld| {
            warn!(
                identity = &**name, client = client.index, peer:% = peer, command = command, withheld = withheld;
                "refused {command} of {name} from {peer}; {withheld} others since the last such line"
            );
        });
    }

    /// The client begins a managing command.
    pub fn begin_action(&mut self, client: ClientId, command: String) {
        if let Some(known) = self.client_mut(client) {
            known.action = Some(command.into());
            let identity = known.identity;
            self.figures[identity.index()].managing_commands += 1;
        }
    }

    /// The managing command of the client, if it has given one, is over, with this reply.
    pub fn end_action(&mut self, client: ClientId, reply: &[u8], now: Timestamp) {
        let Some(known) = self.client_mut(client) else { return };
        let Some(command) = known.action.take() else { return };
        let (identity, peer) = (known.identity, known.peer);
        let name = &self.rules.identity(identity).name;
        let reply = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let reply = String::from_utf8_lossy(reply);
        self.usage[identity.index()].actions.line(now, |withheld| {
            info!(
                identity = &**name, client = client.index, peer:% = peer, command = &*command,
                reply = &*reply, withheld = withheld;
                "{name} from {peer}: {command}: {reply}; {withheld} others since the last such line"
            );
        });
    }
}

impl Executor {
    /// From now on the rules decide what each client may do. Comes before the first client.
    pub fn guard_with(&mut self, rules: Rules) {
        self.guard = Some(Box::new(Guard::new(rules)));
    }

    /// Whether the client may have shown a certificate that was not looked at.
    pub(super) fn awaits_certificate(&self, client: ClientId) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.awaits_certificate(client))
    }

    /// The client has shown a certificate, in DER; returns whether it may stay.
    pub(super) fn show_certificate(&mut self, client: ClientId, certificate: &[u8], now: Timestamp) -> bool {
        let names = tls::names(certificate);
        self.guard.as_mut().is_none_or(|guard| guard.show_certificate(client, names, now))
    }

    /// Other rules are in force from now on.
    pub(super) fn replace_rules(&mut self, rules: Rules) {
        if let Some(guard) = &mut self.guard {
            guard.replace(rules);
        }
    }

    /// Whether the client may reserve from all tubes that it watches.
    pub(super) fn may_wait(&self, client: ClientId) -> bool {
        let grants = self.guard.as_ref().and_then(|guard| guard.grants(client));
        grants.is_some_and(|grants| {
            let mut tubes = self.queue.watched_tubes(client);
            tubes.all(|tube| grants.judge(Need::RESERVE, tube.as_str()) == Verdict::Allowed)
        })
    }

    /// The index of the next client whose put is permitted now.
    pub(super) fn next_permitted(&mut self, now: Timestamp) -> Option<u32> {
        self.guard.as_mut()?.next_permitted(now)
    }

    /// When the next put that waits is permitted.
    pub(super) fn next_permit_at(&self) -> Option<Timestamp> {
        self.guard.as_ref()?.next_permit_at()
    }

    /// Whether there are access rules.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Who is at the other end of a client's connection; returns whether it may stay.
    pub(super) fn identify(&mut self, client: ClientId, peer: Peer, now: Timestamp) -> bool {
        self.guard.as_mut().is_none_or(|guard| guard.identify(client, peer, now))
    }
}
