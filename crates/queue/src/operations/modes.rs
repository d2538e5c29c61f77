//! Reserve modes: the choice of the tube from which a client gets its next job, if not the most urgent job of all.
//!
//! Owns: the choice of a tube. In a weighted mode, each tube that has a job to reserve is chosen at random, in
//! proportion to its weight. For a client that watches many tubes, the draw is from the chances in its settings
//! (`state/reserve_settings.rs`). Its knowledge may be out of date, so the drawn tube is probed; if its job is gone,
//! its weight leaves the chances, and the next draw is among the others. Pure: the random numbers come from a generator
//! in the queue that is seeded from outside.

use std::collections::TryReserveError;

use crate::clock::Timestamp;
use crate::operations::many_tubes::ReserveSearch;
use crate::random::Generator;
use crate::state::clients::{Client, Clients};
use crate::state::keys::{ClientKey, TubeKey};
use crate::state::reserve_settings::{ReserveSettings, USUAL_WEIGHT};
use crate::state::subscriptions::PROBES_PER_COST;
use crate::{ClientId, Queue, ReserveMode};

/// For how many tubes one reserve of a client that watches many looks up the run time again.
const REFRESHED: usize = 4;

impl Queue {
    /// Seeds the random numbers with which clients in a weighted mode get their tubes. The same seed and the same calls
    /// give the same jobs.
    pub fn seed(&mut self, seed: u64) {
        self.clients.random = Generator::new(seed);
    }

    /// Makes sure that there is room for this weight of one more watched tube.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn make_room_for_weight(&mut self, id: ClientId, weight: u16) -> Result<(), TryReserveError> {
        let client = self.client_mut(id);
        let watched = client.watching.len() + 1;
        match &mut client.settings {
            None if weight == USUAL_WEIGHT => Ok(()),
            None => ReserveSettings::default().try_reserve(watched),
            Some(settings) => settings.try_reserve(watched),
        }
    }

    /// Makes sure that there is room for `set_reserve_mode`.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn make_room_for_mode(&mut self, id: ClientId) -> Result<(), TryReserveError> {
        // Memory that is free now is free for the next call.
        Vec::<u128>::new().try_reserve_exact(self.client(id).watching.len())
    }

    /// Gives a watched tube a weight.
    pub(super) fn set_weight(&mut self, id: ClientId, position: usize, weight: u16) {
        let client = self.client_mut(id);
        if client.settings.is_none() && weight == USUAL_WEIGHT {
            return;
        }
        debug_assert!(
            weight > 0 && position < self.client(id).watching.len(),
            "a watched tube gets a weight"
        );
        self.settings_of(id).set_weight(position, weight);
    }

    /// The command `reserve-mode`.
    pub fn set_reserve_mode(&mut self, id: ClientId, mode: ReserveMode) {
        let has_none = self.client(id).settings.is_none();
        if mode == ReserveMode::Fifo && (has_none || self.settings_of(id).weights.is_empty()) {
            self.drop_reserve_settings(id.key());
        } else {
            let watched = self.client(id).watching.len();
            self.settings_of(id).set_mode(mode, watched);
        }
        self.client_mut(id).update_is_plain();
    }

    /// The mode and the weights of the client, which has some from now on.
    fn settings_of(&mut self, id: ClientId) -> &mut ReserveSettings {
        let client = &mut self.clients.records[id.key().index()];
        if client.settings.is_none() {
            self.clients.counts.weighed += client.watching.len();
        }
        client.settings.get_or_insert_default()
    }

    /// Removes everything of the client besides its watch list.
    pub(super) fn drop_reserve_settings(&mut self, index: ClientKey) {
        let client = &mut self.clients.records[index.index()];
        if client.settings.take().is_some() {
            self.clients.counts.weighed -= client.watching.len();
        }
    }

    /// The tube at `position` leaves the client's watch list of `watched` tubes, in which the last tube takes its
    /// position.
    pub(super) fn forget_weight(&mut self, index: ClientKey, position: usize, watched: usize) {
        if let Some(settings) = &mut self.clients[index].settings {
            settings.remove(position, watched);
            debug_assert!(
                settings.weights.len() < watched && settings.chances.len() < watched,
                "one tube is gone"
            );
            self.clients.counts.weighed -= 1;
        }
    }

    /// The tube from which a client gets its next job. Called for a client that is not plain, and for any client while
    /// heads must be refreshed.
    pub(super) fn search(&mut self, index: ClientKey, now: Timestamp) -> ReserveSearch {
        if self.rules.must_refresh_heads() && !self.refresh_heads(index, now) {
            return ReserveSearch::Unfinished;
        }
        let client = &self.clients[index];
        match (client.mode(), &client.many) {
            (ReserveMode::Fifo, None) => {
                self.most_urgent_of(&client.watching).map_or(ReserveSearch::Nothing, ReserveSearch::Found)
            }
            (ReserveMode::Fifo, Some(_)) => self.search_many(index, now),
            (ReserveMode::Weighted | ReserveMode::WeightedFair, None) => self.choose(index, now),
            (ReserveMode::Weighted | ReserveMode::WeightedFair, Some(_)) => self.choose_of_many(index, now),
        }
    }

    /// A random tube, for a client that watches few: it probes each.
    fn choose(&mut self, index: ClientKey, now: Timestamp) -> ReserveSearch {
        let Self { clients: Clients { records, random, .. }, tubes, .. } = self;
        let Client { watching, settings: Some(settings), .. } = &mut *records[index.index()] else {
            return ReserveSearch::Nothing;
        };
        self.cost += watching.len() as u64 / PROBES_PER_COST;
        let (mut sum, mut found) = (0, ReserveSearch::Nothing);
        for (position, &key) in watching.iter().enumerate() {
            let tube = tubes.get(key);
            if tube.open_head().is_none() {
                continue;
            }
            let chance = settings.chance(position, tube, now).into();
            sum += chance;
            // Weighted reservoir sampling: each tube replaces the choice so far with probability chance / sum.
            if random.below(sum) < chance {
                found = ReserveSearch::Found(key);
            }
        }
        found
    }

    /// A random tube, for a client that watches many.
    fn choose_of_many(&mut self, index: ClientKey, now: Timestamp) -> ReserveSearch {
        let (mut probes, mut left) = (self.refresh(index, now), self.slices.probed_tubes);
        let found = loop {
            if probes >= self.slices.probed_tubes {
                break ReserveSearch::Unfinished;
            }
            probes += 1;
            let Clients { records, random, .. } = &mut self.clients;
            let Client { watching, many: Some(many), settings: Some(settings), .. } =
                &mut *records[index.index()]
            else {
                break ReserveSearch::Nothing;
            };
            if let Some(tube) = many.next_to_probe() {
                let position = many.position_of(tube);
                self.probe(index, tube);
                position.inspect(|&position| self.weigh(index, position, now));
                continue;
            }
            let known = settings.chances.len();
            if known < watching.len() {
                settings.chances.push(0);
                self.weigh(index, known, now);
                continue;
            }
            let sum = settings.chances.sum(known);
            if sum == 0 {
                break ReserveSearch::Nothing;
            }
            let position = settings.chances.find(random.below(sum));
            let tube = watching[position];
            if self.rules.must_refresh_heads() && !self.refresh_head(tube, &mut left, now) {
                break ReserveSearch::Unfinished;
            }
            let head = self.tubes.get(tube).open_head();
            if let Some(many) = &mut self.clients[index].many {
                many.set_head(tube, head);
            }
            self.weigh(index, position, now);
            if head.is_some() {
                break ReserveSearch::Found(tube);
            }
        };
        self.cost += probes as u64 / PROBES_PER_COST;
        found
    }

    /// Gives the tube at `position` of a long watch list its chance: the chance of its weight if the client knows a job
    /// in it.
    fn weigh(&mut self, index: ClientKey, position: usize, now: Timestamp) {
        let Self { clients: Clients { records, .. }, tubes, .. } = self;
        let Client { watching, many: Some(many), settings: Some(settings), .. } =
            &mut *records[index.index()]
        else {
            return;
        };
        if position >= settings.chances.len() {
            return;
        }
        let key: TubeKey = watching[position];
        let chance = if many.has_head(key) { settings.chance(position, tubes.get(key), now) } else { 0 };
        settings.chances.set(position, chance.into());
    }

    /// Looks up some of the run times again, which have changed since the tubes got their chances; returns how many.
    fn refresh(&mut self, index: ClientKey, now: Timestamp) -> usize {
        let Some(settings) = &mut self.clients[index].settings else { return 0 };
        let known = settings.chances.len();
        if settings.mode != ReserveMode::WeightedFair || known == 0 {
            return 0;
        }
        let (from, count) = (settings.next_refreshed, REFRESHED.min(self.slices.probed_tubes / 2));
        settings.next_refreshed = (from + count) % known;
        (from..from + count).for_each(|position| self.weigh(index, position % known, now));
        count
    }
}
