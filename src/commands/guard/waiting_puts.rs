//! Puts that wait for the pace of their identity.
//!
//! Owns: when a put is permitted, and when a client stops waiting. The pace itself is [`Pace`](crate::access::Pace).

use super::Guard;
use crate::access::IdentityId;
use crate::clock::Timestamp;
use crate::commands::Executor;
use crate::queue::ClientId;

/// Puts that wait for their permission.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPuts {
    /// When all of them are permitted.
    pub(super) at: Timestamp,
    /// How many puts their identity gets back if they are abandoned; 0 if they were charged to another identity, which
    /// the client had before a reload.
    pub(super) count: u32,
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

impl Guard {
    /// Whether the put of the client is abandoned instead of waiting any longer; others can use its permission then.
    pub(crate) fn gives_up_put(&mut self, client: ClientId) -> bool {
        let Some(known) = self.client_mut(client).filter(|known| known.has_ended) else { return false };
        let (identity, waiting) = (known.identity, known.waiting.take());
        self.cancel_wait(identity, waiting, client.index);
        waiting.is_some()
    }

    pub(super) fn cancel_wait(&mut self, identity: IdentityId, waiting: Option<WaitingPuts>, index: u32) {
        let Some(WaitingPuts { at, count }) = waiting else { return };
        self.waiting_puts.remove(&(at, index));
        if let Some(per_second) = self.rules.identity(identity).limits.puts_per_second {
            self.usage[identity.index()].pace.give_back(count, per_second);
        }
    }

    /// Whether the put of the client still has to wait.
    pub(crate) fn has_waiting_put(&self, client: ClientId) -> bool {
        self.client(client).is_some_and(|known| known.waiting.is_some())
    }
}

impl Executor {
    /// Takes the permission for `count` puts of the client, at once or later. The client waits until the last of them
    /// may be done, unless that is only at `too_late` or after it; then nothing is taken.
    pub(in crate::commands) fn permit_puts(
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
        let pace = &mut guard.usage[identity.index()].pace;
        let mut taken = *pace;
        let at = taken.take(count, per_second, now);
        if at > now && too_late.is_some_and(|too_late| at >= too_late) {
            return Permission::TooLate;
        }
        *pace = taken;
        if at == now {
            return Permission::Now;
        }
        guard.figures[identity.index()].puts_delayed += u64::from(count);
        guard.waiting_puts.insert((at, client.index));
        if let Some(known) = guard.client_mut(client) {
            known.waiting = Some(WaitingPuts { at, count });
        }
        Permission::Later
    }

    /// The index of the next client whose put is permitted now.
    pub(crate) fn next_permitted(&mut self, now: Timestamp) -> Option<u32> {
        let guard = self.guard.as_mut()?;
        let &(at, index) = guard.waiting_puts.first().filter(|(at, _)| *at <= now)?;
        guard.waiting_puts.remove(&(at, index));
        if let Some(Some(known)) = guard.clients.get_mut(index as usize) {
            known.waiting = None;
        }
        Some(index)
    }

    /// When the next put that waits is permitted.
    pub(crate) fn next_permit_at(&self) -> Option<Timestamp> {
        self.guard.as_ref()?.waiting_puts.first().map(|&(at, _)| at)
    }

    /// Notes that the client's connection will send no more. A put that waits is abandoned, or it would keep the
    /// connection open.
    pub(crate) fn note_end(&mut self, client: ClientId) {
        if let Some(known) = self.guard.as_mut().and_then(|guard| guard.client_mut(client)) {
            known.has_ended = true;
        }
    }
}
