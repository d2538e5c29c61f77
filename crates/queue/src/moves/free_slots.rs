//! The moves for concurrency slots: jobs that get a free slot come forward, and those that have none are parked.
//!
//! Owns: the steps of the walks of `rules/slots/offered.rs`, and the check of the first job of a tube before a reserve
//! chooses it.

use std::collections::BTreeSet;

use crate::clock::Timestamp;
use crate::rules::slots::line::SlotKey;
use crate::rules::slots::offered::{Step, Walk};
use crate::state::keys::{ClientKey, ReadyKey, TubeKey};
use crate::{ClientId, Queue};

/// The maximum number of overdue jobs that one call of `reserve` ends: about 100 microseconds.
const MAX_OVERDUE_ENDED: usize = 64;

/// Jobs that are probed before a released job becomes ready: about 100 microseconds.
const PROBES_BEFORE: usize = 256;

impl Queue {
    /// Offers the slots that have become free to the parked jobs of their keys, the most urgent first. `cause` is the
    /// client whose command freed them.
    pub(crate) fn offer_free_slots(&mut self, cause: Option<ClientId>, now: Timestamp) {
        if self.rules.slots.freed.is_empty() {
            return;
        }
        if self.clients.counts.waiting == 0
            && self.rules.slots.freed.len() == 1
            && let Some(slot_key) = self.rules.slots.freed.pop()
        {
            // The usual case needs no walk.
            if self.show_parked(&slot_key, &mut { self.slices.given_back }, now) {
                self.rules.slots.freed.clear();
                self.note_stale_heads();
                return;
            }
            self.rules.slots.freed.push(slot_key);
        }
        let steps = self.take_freed();
        let cause = cause.map(|client| client.key());
        let walk = Walk { steps, is_searching: true, last_wait: self.clients.waits, cause };
        self.continue_with(walk, false, now);
    }

    /// Called when a job with this key is about to become ready: waiting clients first get the more urgent jobs for
    /// which this command has freed slots.
    pub(crate) fn offer_before(&mut self, next: ReadyKey, now: Timestamp) {
        if self.rules.slots.freed.is_empty() || self.clients.counts.waiting == 0 {
            return;
        }
        let steps = self.take_freed();
        let keys: Vec<SlotKey> = steps.iter().map(|step| step.slot_key.clone()).collect();
        let mut walk = Walk { steps, is_searching: true, last_wait: self.clients.waits, cause: None };
        self.search_waiting(&mut walk, Some(next), &mut { PROBES_BEFORE }, now);
        // The rest is offered at the end of the command.
        self.rules.slots.freed.extend(keys);
    }

    /// The first steps of a walk through the freed slots.
    fn take_freed(&mut self) -> Vec<Step> {
        let mut freed = std::mem::take(&mut self.rules.slots.freed);
        freed.sort_unstable();
        freed.dedup();
        freed.into_iter().map(|slot_key| Step { slot_key, after: None }).collect()
    }

    /// Continues the walk that was begun first.
    pub(crate) fn continue_offering(&mut self, now: Timestamp) {
        if let Some(walk) = self.rules.offered.take_first() {
            self.continue_with(walk, true, now);
        }
    }

    fn continue_with(&mut self, mut walk: Walk, is_first: bool, now: Timestamp) {
        let mut left = self.slices.given_back;
        if walk.is_searching {
            walk.is_searching = !self.search_waiting(&mut walk, None, &mut left, now);
        }
        let mut show = |step: &Step| self.show_parked(&step.slot_key, &mut left, now);
        if walk.is_searching || !walk.steps.iter().all(&mut show) {
            self.rules.offered.put_off(walk, is_first);
        }
        // The jobs that have come forward in the meantime were behind others of the walk, which has seen them or will
        // see them.
        self.rules.slots.freed.clear();
        self.note_stale_heads();
    }

    /// Gives free slots to waiting clients, the most urgent job first, up to the job with the key `end`, if that is not
    /// `None`; returns whether it has reached the end.
    fn search_waiting(
        &mut self,
        walk: &mut Walk,
        end: Option<ReadyKey>,
        left: &mut usize,
        now: Timestamp,
    ) -> bool {
        if self.clients.counts.waiting == 0 {
            return true;
        }
        let next = |queue: &Self, step: &Step| queue.first_parked(&step.slot_key, step.after);
        let steps = walk.steps.iter().enumerate();
        let mut nexts: BTreeSet<(ReadyKey, usize)> =
            steps.filter_map(|(at, step)| Some((next(self, step)?, at))).collect();
        while let Some((first, at)) = nexts.pop_first() {
            if end.is_some_and(|end| first > end) {
                break;
            }
            let step = &mut walk.steps[at];
            if !self.is_slot_free(&step.slot_key) {
                continue;
            }
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.cost += 1;
            step.after = Some(first);
            let tube = self.jobs.expect_mut(first.job()).tube;
            let has_waited = |(number, _)| number <= walk.last_wait;
            if self.tubes.get(tube).is_open() && self.first_waiting(tube).is_some_and(has_waited) {
                self.bring_forward(first, &step.slot_key, now);
            }
            nexts.extend(next(self, &walk.steps[at]).map(|next| (next, at)));
        }
        true
    }

    /// Moves the parked jobs with this key and limit to the ready queues of their tubes as long as slots are free;
    /// returns whether it has reached the end.
    fn show_parked(&mut self, slot_key: &SlotKey, left: &mut usize, now: Timestamp) -> bool {
        while self.is_slot_free(slot_key)
            && let Some(first) = self.first_parked(slot_key, None)
        {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.cost += 1;
            self.bring_forward(first, slot_key, now);
        }
        true
    }

    /// Brings a parked first job with this key and limit forward, because it may be reserved: it goes to a waiting
    /// client, or into the ready queue or the rotation of its tube.
    pub(crate) fn bring_forward(&mut self, first: ReadyKey, slot_key: &SlotKey, now: Timestamp) {
        let tube = self.jobs.expect_mut(first.job()).tube;
        if self.end_overdue_if_awaited(first.job(), tube, now) {
            return;
        }
        let is_awaited = self.tubes.get(tube).is_open() && self.first_waiting(tube).is_some();
        if !is_awaited && self.uses_rotation(tube) {
            self.join_rotation_from_parked(first, slot_key.line(tube));
            return;
        }
        self.unpark(first, slot_key.line(tube));
        self.count_unready(tube, first.priority());
        self.enqueue(first.job(), tube, first.priority(), now);
    }

    /// Called when a client is about to reserve from the tube. While the tube's first job may not be reserved, this
    /// parks it, or ends it if it is overdue: at most `left` jobs, from which their number is subtracted. Returns
    /// whether the first job may be reserved now, or the tube has none.
    #[cold]
    pub(crate) fn refresh_head(&mut self, tube: TubeKey, left: &mut usize, now: Timestamp) -> bool {
        while let Some(first) = self.tubes.get(tube).ready.first() {
            let id = first.job();
            let is_overdue = self.is_overdue(id, now);
            if !is_overdue && self.concurrency(id).is_none_or(|tag| self.has_free_slot(tag)) {
                return true;
            }
            if *left == 0 {
                return false;
            }
            self.cost += 1;
            if is_overdue {
                // Ending a job takes as long as several probes.
                *left -= (self.slices.probed_tubes / MAX_OVERDUE_ENDED).clamp(1, *left);
                self.end_overdue(id, now);
                continue;
            }
            *left -= 1;
            self.take_out_of_ready(id, tube);
            self.park(id, tube);
            self.forget_position(tube);
        }
        true
    }

    /// Refreshes the heads of a client's tubes before it chooses among them, while that is necessary; returns whether
    /// it may choose now. The tubes of a client that watches many are probed when they come first.
    #[cold]
    pub(crate) fn refresh_heads(&mut self, client: ClientKey, now: Timestamp) -> bool {
        if self.rules.offered.are_awaited_by(client) {
            return false;
        }
        if self.clients[client].many.is_some() {
            return true;
        }
        let mut left = self.slices.probed_tubes;
        let count = self.clients[client].watching.len();
        (0..count).all(|position| {
            let tube = self.clients[client].watching[position];
            self.refresh_head(tube, &mut left, now)
        })
    }
}
