//! The knowledge of a client that watches many tubes.
//!
//! Owns: the first jobs of these tubes at the last probe, and the tubes that the client must probe again. A client may
//! believe that a tube's first job is more urgent than it is, but never less urgent.

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd_structures::OrderedQueue;

use crate::Queue;
use crate::state::keys::{ClientKey, ReadyKey, TubeKey};

/// The tubes of a client that watches many, with its knowledge about them.
#[derive(Debug, Default)]
pub(crate) struct ManyTubes {
    /// Every tube that the client watches.
    tubes: BTreeMap<TubeKey, KnownHead>,
    /// The first jobs of tubes at the last probe. No tube outside `to_probe` has a more urgent job now.
    heads: BTreeSet<(ReadyKey, TubeKey)>,
    /// Tubes to probe again. The client subscribes to the others.
    to_probe: BTreeSet<TubeKey>,
}

#[derive(Debug)]
struct KnownHead {
    /// The index of the tube in the client's list.
    position: u32,
    /// The tube's first job, if it is in `heads`.
    head: Option<ReadyKey>,
}

impl ManyTubes {
    pub(crate) fn watches(&self, tube: TubeKey) -> bool {
        self.tubes.contains_key(&tube)
    }

    pub(crate) fn position_of(&self, tube: TubeKey) -> Option<usize> {
        self.tubes.get(&tube).map(|known| known.position as usize)
    }

    /// Whether the client subscribes to the tube: it watches it and need not probe it again.
    #[inline]
    pub(crate) fn subscribes_to(&self, tube: TubeKey) -> bool {
        self.watches(tube) && !self.to_probe.contains(&tube)
    }

    /// Whether the client knows a job of the tube.
    pub(crate) fn has_head(&self, tube: TubeKey) -> bool {
        self.tubes.get(&tube).is_some_and(|known| known.head.is_some())
    }

    /// Whether the client knows a job of any tube.
    #[inline]
    pub(crate) fn knows_a_job(&self) -> bool {
        !self.heads.is_empty()
    }

    /// Whether a tube is to be probed again.
    #[inline]
    pub(crate) fn must_probe(&self) -> bool {
        !self.to_probe.is_empty()
    }

    /// A tube that must be probed again.
    pub(crate) fn next_to_probe(&mut self) -> Option<TubeKey> {
        self.to_probe.pop_first()
    }

    /// Notes that the client must probe the tube again; returns whether it has subscribed to it until now.
    pub(crate) fn probe_again(&mut self, tube: TubeKey) -> bool {
        self.to_probe.insert(tube)
    }

    /// The most urgent job that the client knows, and its tube.
    pub(crate) fn first_head(&self) -> Option<(ReadyKey, TubeKey)> {
        self.heads.first().copied()
    }

    /// Forgets a tube that the client no longer watches; returns whether it has subscribed to it until now.
    pub(crate) fn forget(&mut self, tube: TubeKey) -> bool {
        self.set_head(tube, None);
        self.tubes.remove(&tube);
        !self.to_probe.remove(&tube)
    }

    /// Notes that the list has `tube` at `position`.
    pub(crate) fn set_position(&mut self, tube: TubeKey, position: usize) {
        let known = self.tubes.entry(tube).or_insert(KnownHead { position: 0, head: None });
        known.position = position as u32;
    }

    /// Notes that the tube now has this first job.
    pub(crate) fn set_head(&mut self, tube: TubeKey, head: Option<ReadyKey>) {
        let known = self.tubes.get_mut(&tube).expect("a client probes tubes that it watches");
        let before = std::mem::replace(&mut known.head, head);
        if before != head {
            let removed = before.map(|before| self.heads.remove(&(before, tube)));
            debug_assert!(removed != Some(false), "a head that the client knows is among the heads");
            self.heads.extend(head.map(|head| (head, tube)));
        }
        debug_assert!(self.heads.len() <= self.tubes.len(), "a tube has one head");
    }
}

impl Queue {
    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_many_tubes(&self) {
        let mut subscriptions = 0;
        for (index, client) in &self.clients.records {
            let index = ClientKey(index as u32);
            let Some(many) = &client.many else {
                assert!(client.is_leaving || client.watching.len() <= self.slices.few_tubes);
                continue;
            };
            let is_waiting = client.wait().map(|wait| (wait.number.get(), index));
            assert_eq!(self.clients.many_waiting.iter().find(|&(_, waiting)| waiting == index), is_waiting);
            assert_eq!(many.tubes.len(), client.watching.len(), "each watched tube is indexed");
            assert_eq!(many.heads.len(), many.tubes.values().filter(|known| known.head.is_some()).count());
            assert!(many.to_probe.iter().all(|&tube| many.watches(tube)));
            assert!(
                is_waiting.is_none() || many.to_probe.is_empty(),
                "a client that waits has probed each tube"
            );
            for (position, &tube) in client.watching.iter().enumerate() {
                let known = &many.tubes[&tube];
                assert_eq!(known.position as usize, position);
                assert!(known.head.is_none_or(|head| many.heads.contains(&(head, tube))));
                let subscribes = self
                    .clients
                    .subscribers
                    .get(tube.index())
                    .is_some_and(|set| set.iter().any(|other| other == index));
                assert_ne!(
                    subscribes,
                    many.to_probe.contains(&tube),
                    "a client subscribes to a tube, or has to probe it"
                );
                subscriptions += usize::from(subscribes);
                if let (true, Some(head)) = (subscribes, self.tubes.get(tube).open_head()) {
                    assert!(
                        known.head.is_some_and(|known| known <= head),
                        "a known head is at least as urgent as the first job of the tube"
                    );
                    assert!(is_waiting.is_none(), "no client waits for a job that it could have");
                }
            }
        }
        assert_eq!(subscriptions, self.clients.subscribers.iter().map(OrderedQueue::len).sum::<usize>());
        assert!(self.clients.many_waiting.iter().all(|(_, client)| self.clients[client].many.is_some()));
    }
}
