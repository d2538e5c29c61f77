//! The running flushes.
//!
//! Owns: which jobs each of them deletes, and how far its walk has come. A flush walks through the held jobs, the ready
//! jobs, parked or not, the delayed jobs, the buried jobs, and the reservations of all clients, once each. In the
//! meantime, no held job goes to a client. Last, it ends the cooldowns of the tube. A job that changes its state or its
//! priority in the meantime may get behind the walk, so it is noted, and deleted wherever it is. Jobs that come later
//! stay: their ids are larger, or they are noted when they are put, or moved here from another tube. While no flush is
//! running, this costs only a check for an empty list when a job is put or changes its state.

use std::collections::BTreeSet;

use crate::job::JobId;
use crate::state::jobs::{Collection, Job};
use crate::state::keys::{BuriedKey, DueKey, ReadyKey, Reservation, TubeKey};
use crate::state::tubes::Tube;
use crate::{ClientId, Queue};

/// The jobs or cooldowns that a flush of a tube deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other variants say everything")]
pub enum FlushScope {
    All,
    Buried,
    /// No jobs, but the cooldowns of deleted jobs.
    Cooldowns,
}

/// The running flushes.
#[derive(Debug, Default)]
pub(crate) struct Flushes(pub Vec<Flush>);

#[derive(Debug)]
pub(crate) struct Flush {
    /// The client that has asked for it.
    pub client: ClientId,
    /// `None` once the tube is removed: then it had no job left.
    pub tube: Option<TubeKey>,
    pub scope: FlushScope,
    /// Jobs with this id or a larger one were put after the flush began. A put can have taken its id before.
    pub next_id: u64,
    /// Jobs with this number of burial or a larger one were buried after the flush began.
    pub next_burial: u64,
    pub stage: FlushStage,
    /// Jobs that have changed their state or their priority in the meantime.
    pub moved: BTreeSet<JobId>,
    /// Jobs with smaller ids that were put in the meantime, or have come from other tubes.
    pub came: BTreeSet<JobId>,
}

/// The position of the walk: after this job of this state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushStage {
    Ready(Option<ReadyKey>),
    Delayed(Option<DueKey>),
    Held(Option<DueKey>),
    Buried(Option<BuriedKey>),
    Reserved {
        client: usize,
        after: Option<Reservation>,
    },
    /// After this cooldown, which stays.
    Cooldowns(Option<JobId>),
    Over,
}

impl Flush {
    /// Whether the job was in the tube when the flush came.
    pub(crate) fn takes(&self, id: JobId, job: &Job) -> bool {
        let is_in_scope = match (self.scope, job.collection()) {
            (FlushScope::All, _) => true,
            (FlushScope::Buried, Collection::Buried(number)) => u64::from(number) < self.next_burial,
            (FlushScope::Buried | FlushScope::Cooldowns, _) => false,
        };
        is_in_scope && Some(job.tube) == self.tube && id.0 < self.next_id && !self.came.contains(&id)
    }

    /// Advances by one job in a queue of the tube; returns the job.
    pub(crate) fn step(&mut self, tube: &Tube) -> Option<JobId> {
        let tagged = tube.tag_state();
        match self.stage {
            FlushStage::Held(after) => {
                let next = tagged.and_then(|tagged| tagged.held.next_after(after));
                self.stage = next.map_or(FlushStage::Ready(None), |key| FlushStage::Held(Some(key)));
                next.map(|(_, id)| id)
            }
            FlushStage::Ready(after) => {
                // A job keeps its position in the common order when it is parked or becomes free.
                let parked = tagged.and_then(|tagged| tagged.parked.next_after(after));
                let next = tube.ready.next_after(after).into_iter().chain(parked).min();
                self.stage = next.map_or(FlushStage::Delayed(None), |key| FlushStage::Ready(Some(key)));
                next.map(ReadyKey::job)
            }
            FlushStage::Delayed(after) => {
                let next = tube.delayed.next_after(after);
                self.stage = next.map_or(FlushStage::Buried(None), |key| FlushStage::Delayed(Some(key)));
                next.map(|(_, id)| id)
            }
            FlushStage::Buried(after) => {
                // Jobs that are buried later come after the others.
                let next = tube.buried.next_after(after).filter(|&(number, _)| number < self.next_burial);
                let behind = match self.scope {
                    FlushScope::All => FlushStage::Reserved { client: 0, after: None },
                    FlushScope::Buried | FlushScope::Cooldowns => FlushStage::Over,
                };
                self.stage = next.map_or(behind, |key| FlushStage::Buried(Some(key)));
                next.map(|(_, id)| id)
            }
            FlushStage::Reserved { .. } | FlushStage::Cooldowns(_) | FlushStage::Over => None,
        }
    }
}

impl Flushes {
    /// Whether no flush is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that the job, which is in this tube, is about to change its state or its priority, or that its
    /// reservation now ends earlier. Must be called for all states except reserved.
    #[inline]
    pub(crate) fn note_moved(&mut self, id: JobId, tube: TubeKey) {
        if !self.0.is_empty() {
            self.note(id, tube, |flush| &mut flush.moved);
        }
    }

    /// Notes that the job comes into this tube: it is put, or comes from another one.
    #[inline]
    pub(crate) fn note_arrival(&mut self, id: JobId, tube: TubeKey) {
        if !self.0.is_empty() {
            self.note(id, tube, |flush| &mut flush.came);
        }
    }

    #[cold]
    fn note(&mut self, id: JobId, tube: TubeKey, into: fn(&mut Flush) -> &mut BTreeSet<JobId>) {
        for flush in self.0.iter_mut().filter(|flush| flush.tube == Some(tube) && id.0 < flush.next_id) {
            into(flush).insert(id);
        }
    }

    /// Whether a flush has reached its held jobs: held jobs that it has not deleted yet may become free.
    pub(crate) fn has_reached_held(&self) -> bool {
        self.0.iter().any(|flush| flush.tube.is_some() && matches!(flush.stage, FlushStage::Held(_)))
    }

    /// Notes that the tube is removed. It had no jobs, and another tube may get its key.
    pub(crate) fn forget_tube(&mut self, tube: TubeKey) {
        for flush in self.0.iter_mut().filter(|flush| flush.tube == Some(tube)) {
            flush.tube = None;
        }
    }

    /// Ends the flush of this client, if there is one.
    pub(crate) fn end(&mut self, client: ClientId) {
        if !self.0.is_empty() {
            self.0.retain(|flush| flush.client != client);
        }
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}

impl Queue {
    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_flushes(&self) {
        for flush in &self.flushes.0 {
            assert!(self.is_connected(flush.client), "a flush ends with its client");
            assert!(flush.next_id <= self.numbers.next_id && flush.next_burial <= self.numbers.next_burial);
        }
    }
}
