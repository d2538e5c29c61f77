//! The commands `use`, `watch` and `ignore`, and the watch lists of clients that may not reserve from every tube.
//!
//! Owns: the rule that tubes from which a client may not reserve leave its watch list. Often `default`, which each
//! client watches at first, is such a tube.

use crate::access::{Roles, Verdict};
use crate::executor::{Caller, Executor, Outcome, answer, watched_tubes_from};
use crate::protocol::Reply;
use crate::queue::ClientId;

/// The maximum number of watched tubes that are examined in a turn, while there is time.
const TUBES_PER_TURN: u64 = 256;
/// How many watched tubes are examined between two checks of the time: matching a pattern can take long.
const TUBES_AT_ONCE: usize = 8;

/// Whether a client may reserve from the tubes that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchRights {
    /// From all of them.
    Allowed,
    /// From none of them: it watches one tube, from which it may not reserve.
    Forbidden,
    /// Some tubes have not been examined.
    Unfinished,
}

impl Executor {
    pub(super) fn use_tube(&mut self, caller: &mut Caller<'_>, tube: &str) -> Outcome {
        if let Some(known) = self.guard.as_mut().and_then(|guard| guard.client_mut(caller.client)) {
            known.used = None;
        }
        self.queue.use_tube(caller.client, tube);
        answer(caller.output, &Reply::Using(tube))
    }

    /// Tubes in the client's watch list that have not been examined are checked, and may leave it, before the answer
    /// counts them.
    pub(super) fn watch(&mut self, caller: &mut Caller<'_>, tube: &str, weight: u16) -> Outcome {
        if self.queue.make_room_for_weight(caller.client, weight).is_err()
            || self.watches_enough(caller.client, tube)
        {
            return answer(caller.output, &Reply::OutOfMemory);
        }
        let known = self.guard.as_ref().and_then(|guard| guard.client(caller.client));
        let is_checked = known.is_none_or(|known| known.checked == self.queue.watched_count(caller.client));
        self.queue.watch_with_weight(caller.client, tube, weight);
        if is_checked {
            self.count_watched(caller.client);
        } else {
            self.drop_unwatchable(caller.client);
        }
        answer(caller.output, &Reply::Watching(self.queue.watched_count(caller.client) as u64))
    }

    /// The last tube of the watch list moves to the index of the removed one.
    pub(super) fn ignore(&mut self, caller: &mut Caller<'_>, tube: &str) -> Outcome {
        let before = self.queue.watched_count(caller.client);
        let left = self.queue.ignore(caller.client, tube);
        if let Some(known) = self.guard.as_mut().and_then(|guard| guard.client_mut(caller.client)) {
            known.checked = if known.checked == before { left.unwrap_or(before) } else { 0 };
        }
        self.count_watched(caller.client);
        answer(caller.output, &left.map_or(Reply::NotIgnored, |left| Reply::Watching(left as u64)))
    }

    /// Updates the count for the client's watch list, whose length may have changed.
    fn count_watched(&mut self, client: ClientId) {
        if let Some(guard) = &mut self.guard {
            guard.set_watched(client, self.queue.watched_count(client));
        }
    }

    /// Removes tubes from which the client may not reserve from its watch list, a turn's share. The last tube stays,
    /// because a client always watches at least one.
    pub(super) fn drop_unwatchable(&mut self, client: ClientId) -> WatchRights {
        let end = self.measured_cost() + TUBES_PER_TURN;
        loop {
            let watched = self.drop_some_unwatchable(client);
            if watched != WatchRights::Unfinished || self.measured_cost() >= end {
                return watched;
            }
        }
    }

    fn drop_some_unwatchable(&mut self, client: ClientId) -> WatchRights {
        let Self { guard: Some(guard), queue, .. } = self else { return WatchRights::Forbidden };
        let Some(mut checked) = guard.client(client).map(|known| known.checked) else {
            return WatchRights::Forbidden;
        };
        let Some(grants) = guard.grants(client) else { return WatchRights::Forbidden };
        let mut state = WatchRights::Allowed;
        let mut examined = 0;
        while checked < queue.watched_count(client) {
            if examined == TUBES_AT_ONCE {
                state = WatchRights::Unfinished;
                break;
            }
            examined += 1;
            let Some(tube) = watched_tubes_from(queue, client, checked).next().cloned() else { break };
            if grants.judge(Roles::WORK, tube.as_str()) == Verdict::Allowed {
                checked += 1;
            } else if queue.ignore(client, tube.as_str()).is_none() {
                state = WatchRights::Forbidden;
                break;
            }
        }
        if let Some(known) = guard.client_mut(client) {
            known.checked = checked;
        }
        guard.set_watched(client, queue.watched_count(client));
        self.count_cost(examined as u64);
        state
    }
}
