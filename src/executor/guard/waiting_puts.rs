//! Puts that wait for the pace of their identity.
//!
//! Owns: the order of these puts, which is the order of arrival, and when a client stops waiting. A put is taken from
//! the pace when it is permitted. So a put that is abandoned, or a client that gets another identity, leaves nothing to
//! correct. The pace itself is [`Pace`](crate::access::Pace).

use std::collections::BTreeSet;

use super::{Guard, GuardedIdentity};
use crate::access::{IdentityId, Pace};
use crate::clock::Timestamp;
use crate::executor::Executor;
use crate::queue::ClientId;

/// The waiting puts of a client. All of them are permitted at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitingPuts {
    /// They come before puts with a higher number.
    pub(super) number: u64,
    /// The index of the client.
    pub(super) client: u32,
    pub(super) count: u32,
}

/// The puts of an identity.
#[derive(Debug, Default)]
pub(super) struct IdentityPuts {
    pub(super) pace: Pace,
    pub(super) waiting: BTreeSet<WaitingPuts>,
    /// How many puts wait.
    count: u64,
    /// When the first of `waiting` is permitted, and its number.
    pub(super) first: Option<(Timestamp, u64)>,
}

/// When puts may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Now,
    /// The client waits for it.
    Later,
    /// The put would come too late. The client does not wait.
    TooLate,
}

impl IdentityPuts {
    /// With this pace, for clients that are added next. The puts with the number `first` came first before.
    pub(super) fn of(pace: Pace, first: Option<u64>) -> Self {
        Self { pace, first: first.map(|number| (Timestamp::default(), number)), ..Self::default() }
    }

    pub(super) fn add(&mut self, puts: WaitingPuts) {
        self.count += u64::from(puts.count);
        self.waiting.insert(puts);
    }

    fn remove(&mut self, puts: WaitingPuts) {
        self.count -= u64::from(puts.count);
        self.waiting.remove(&puts);
    }

    /// Asserts that the puts that wait are `waiting`, and that the first of them is known.
    pub(super) fn check_invariants(&self, waiting: &BTreeSet<WaitingPuts>) {
        assert_eq!(self.waiting, *waiting, "each put that waits belongs to a client that waits");
        let count: u64 = waiting.iter().map(|puts| u64::from(puts.count)).sum();
        assert_eq!(self.count, count, "they are counted");
        assert_eq!(
            self.first.map(|(_, number)| number),
            waiting.first().map(|puts| puts.number),
            "the first one"
        );
    }
}

impl Guard {
    /// Sets when the first waiting puts of the identity are permitted, after a change of these puts or of the rules.
    pub(super) fn schedule_puts(&mut self, identity: IdentityId, now: Timestamp) {
        let per_second = self.rules.identity(identity).limits.puts_per_second;
        let puts = &mut self.identities[identity.index()].puts;
        let before = puts.first.take();
        if let Some((at, _)) = before {
            self.permits.remove(&(at, identity));
        }
        let Some(&WaitingPuts { number, count, .. }) = puts.waiting.first() else { return };
        let at = per_second.map_or(Timestamp::AT_ONCE, |per_second| {
            puts.pace.adapt(per_second, now);
            // While puts wait, they save up what they need. Others must not get that.
            if before.is_none_or(|(_, before)| before != number) {
                puts.pace.forget_saved(per_second, now);
            }
            puts.pace.permits_at(count.into(), per_second)
        });
        puts.first = Some((at, number));
        self.permits.insert((at, identity));
    }

    /// Whether the put of the client is abandoned instead of waiting any longer.
    pub(crate) fn gives_up_put(&mut self, client: ClientId, now: Timestamp) -> bool {
        let Some(known) = self.client_mut(client).filter(|known| known.has_ended) else { return false };
        let (identity, waiting) = (known.identity, known.waiting.take());
        self.cancel_wait(identity, waiting, now);
        waiting.is_some()
    }

    pub(super) fn cancel_wait(&mut self, identity: IdentityId, waiting: Option<WaitingPuts>, now: Timestamp) {
        let Some(waiting) = waiting else { return };
        self.identities[identity.index()].puts.remove(waiting);
        self.schedule_puts(identity, now);
    }

    /// Whether the put of the client still has to wait.
    pub(crate) fn has_waiting_put(&self, client: ClientId) -> bool {
        self.client(client).is_some_and(|known| known.waiting.is_some())
    }
}

impl Executor {
    /// Whether the puts of the client may have to wait.
    pub(crate) fn has_pace(&self, client: ClientId) -> bool {
        let limits = self.guard.as_ref().and_then(|guard| guard.limits(client));
        limits.is_some_and(|(_, limits)| limits.puts_per_second.is_some())
    }

    /// Takes the permission for `count` puts of the client, at once or later. The client waits until the last of them
    /// may be done, unless that is only at `too_late` or after it; then nothing is taken.
    pub(crate) fn permit_puts(
        &mut self,
        client: ClientId,
        count: u32,
        too_late: Option<Timestamp>,
        now: Timestamp,
    ) -> Permission {
        let Some(guard) = &mut self.guard else { return Permission::Now };
        let Some(identity) = guard.client(client).map(|known| known.identity) else { return Permission::Now };
        let Some(per_second) = guard.rules.identity(identity).limits.puts_per_second else {
            return Permission::Now;
        };
        let GuardedIdentity { figures, puts, .. } = &mut guard.identities[identity.index()];
        let is_first = puts.waiting.is_empty();
        if is_first {
            puts.pace.adapt(per_second, now);
            puts.pace.forget_saved(per_second, now);
        }
        let at = puts.pace.permits_at(puts.count + u64::from(count), per_second);
        if is_first && at <= now {
            puts.pace.take(count, per_second);
            return Permission::Now;
        }
        if too_late.is_some_and(|too_late| at >= too_late) {
            return Permission::TooLate;
        }
        let waiting = WaitingPuts { number: guard.next_number, client: client.index, count };
        guard.next_number += 1;
        puts.add(waiting);
        figures.puts_delayed += u64::from(count);
        if let Some(known) = guard.client_mut(client) {
            known.waiting = Some(waiting);
        }
        guard.schedule_puts(identity, now);
        Permission::Later
    }

    /// The index of the next client whose put is permitted now.
    pub(crate) fn next_permitted(&mut self, now: Timestamp) -> Option<u32> {
        let guard = self.guard.as_mut()?;
        let &(at, identity) = guard.permits.first().filter(|(at, _)| *at <= now)?;
        let puts = &mut guard.identities[identity.index()].puts;
        let first = *puts.waiting.first()?;
        puts.remove(first);
        if let Some(per_second) = guard.rules.identity(identity).limits.puts_per_second {
            puts.pace.take(first.count, per_second);
        }
        // If this turn is late, the next puts are not: they keep what has been saved up.
        puts.first = puts.waiting.first().map(|next| (at, next.number));
        guard.permits.remove(&(at, identity));
        guard.schedule_puts(identity, now);
        if let Some(Some(known)) = guard.clients.get_mut(first.client as usize) {
            known.waiting = None;
        }
        Some(first.client)
    }

    /// Whether the put of the client waits for the pace of its identity.
    pub(crate) fn has_waiting_put(&self, client: ClientId) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.has_waiting_put(client))
    }

    /// When the next put that waits is permitted.
    #[inline]
    pub(crate) fn next_permit_at(&self) -> Option<Timestamp> {
        self.guard.as_ref()?.permits.first().map(|&(at, _)| at)
    }

    /// Notes that the client's connection will send no more. A put that waits is abandoned, or it would keep the
    /// connection open.
    pub(crate) fn note_end(&mut self, client: ClientId) {
        if let Some(known) = self.guard.as_mut().and_then(|guard| guard.client_mut(client)) {
            known.has_ended = true;
        }
    }
}
