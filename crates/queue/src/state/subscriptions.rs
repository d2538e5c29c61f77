//! The subscriptions of clients that watch many tubes.
//!
//! Owns: which clients probe a tube again when its first job becomes more urgent. A client probes a tube once and then
//! subscribes to it. When the tube gets a more urgent first job, or its pause ends, the subscriptions end, and each of
//! these clients probes the tube again before its next reserve. When another client takes a job, nothing happens. The
//! cost of each probe counts for the command that caused it. Clients that watch few tubes do not take part in this.

use beanstalkd_structures::OrderedQueue;

use crate::Queue;
use crate::state::keys::{ClientKey, TubeKey, WaitKey};

/// How many probes of tubes cost as much as a simple command.
pub(crate) const PROBES_PER_COST: u64 = 2;

impl Queue {
    /// Looks up the tube's first job for the client, and subscribes the client to the tube.
    pub(crate) fn probe(&mut self, client: ClientKey, tube: TubeKey) {
        let head = self.tubes.get(tube).open_head();
        if let Some(many) = &mut self.clients[client].many {
            many.set_head(tube, head);
        }
        let index = tube.index();
        if self.clients.subscribers.len() <= index {
            self.clients.subscribers.resize_with(index + 1, OrderedQueue::default);
        }
        debug_assert!(
            self.clients[client].many.as_ref().is_some_and(|many| many.subscribes_to(tube)),
            "a client subscribes to a tube that it watches and need not probe"
        );
        self.clients.subscribers[index].insert(client);
    }

    /// Makes the subscribers of the tube probe it again, because its first job is more urgent than before, or can be
    /// reserved again.
    pub(crate) fn announce(&mut self, tube: TubeKey) {
        let Some(subscribers) = self.clients.subscribers.get_mut(tube.index()) else { return };
        let subscribers = std::mem::take(subscribers);
        self.cost += subscribers.len() as u64 / PROBES_PER_COST;
        for client in subscribers.iter() {
            let many = self.clients[client].many.as_mut();
            let is_new = many.expect("a subscriber watches many tubes").probe_again(tube);
            debug_assert!(is_new, "a client that has to probe a tube does not subscribe to it");
        }
    }

    /// The client that has waited longest for a job of this tube.
    pub(crate) fn first_waiting(&mut self, tube: TubeKey) -> Option<WaitKey> {
        let few = self.tubes.get(tube).waiting.first();
        if self.clients.many_waiting.is_empty() {
            return few;
        }
        [few, self.first_many_waiting(tube)].into_iter().flatten().min()
    }

    /// The client that watches many tubes and has waited longest for a job of this tube.
    pub(crate) fn first_many_waiting(&mut self, tube: TubeKey) -> Option<WaitKey> {
        let subscribers = self.clients.subscribers.get(tube.index())?;
        let mut probes = 0;
        let max_probes = subscribers.len();
        let wait_of = |client: ClientKey| Some((self.clients[client].wait()?.number.get(), client));
        let watches =
            |client: ClientKey| self.clients[client].many.as_ref().is_some_and(|many| many.watches(tube));
        // Workers of one kind all watch the tube, so the one that has waited longest is usually among the first.
        let mut first = self
            .clients
            .many_waiting
            .iter()
            .take(max_probes)
            .inspect(|_| probes += 1)
            .find(|&(_, c)| watches(c));
        if first.is_none() && max_probes < self.clients.many_waiting.len() {
            // A waiting client has probed all of its tubes, and is therefore subscribed to them.
            first = subscribers.iter().inspect(|_| probes += 1).filter_map(wait_of).min();
        }
        self.cost += probes / PROBES_PER_COST;
        first
    }
}
