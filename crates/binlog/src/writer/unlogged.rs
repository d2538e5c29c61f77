//! The changes that the log lacks because there was no room for them.
//!
//! Owns: their order, and the number of short records that each needs. Driven by `append` and `side_effects`.

use std::collections::{BTreeMap, BTreeSet};

use crate::attachment::parts;
use crate::chunked_queue::ChunkedQueue;
use crate::format::DiskRecord;
use crate::job::JobId;

/// The memory of one of the updates, in bytes: a set of ids has half of its places free if they came in order.
const UPDATE_BYTES: usize = 20;

/// Changes that the log lacks because there was no room for them.
#[derive(Debug, Default)]
pub(super) struct Unlogged {
    /// The changes are logged in this order, and before anything else. Only a restart on a full disk, or a lack of
    /// descriptors, leaves no room for one.
    pub(super) needed: ChunkedQueue<NeededChange>,
    /// The side effects of the deletes that have some.
    pub(super) side_effects: BTreeMap<JobId, UnloggedSideEffects>,
    /// The records of the first reservations.
    pub(super) reservations: BTreeMap<JobId, DiskRecord>,
    /// Jobs whose newest state must be logged as soon as there is room. A copy of the job has the state.
    pub(super) updates: BTreeSet<JobId>,
}

impl Unlogged {
    /// Whether nothing is missing in the log, except states of jobs.
    pub(super) fn is_empty(&self) -> bool {
        let Self { needed, side_effects, reservations, updates: _ } = self;
        needed.is_empty() && side_effects.is_empty() && reservations.is_empty()
    }

    /// Memory of the part that can grow with the jobs, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        UPDATE_BYTES * self.updates.len()
    }

    /// The short records of the delete of job `id`, which is not logged yet.
    pub(super) fn delete_units(&self, id: JobId) -> u64 {
        1 + self.side_effects.get(&id).map_or(0, UnloggedSideEffects::units)
    }

    /// Drops the cooldown from the delete of job `id`, if it is one of these. Returns how many short records are not
    /// needed because of that.
    pub(super) fn drop_cooldown(&mut self, id: JobId) -> u64 {
        let Some(mut side_effects) = self.side_effects.remove(&id) else { return 0 };
        let units = side_effects.needed_units();
        side_effects.cooldown = None;
        let left = side_effects.needed_units();
        // A delete without any side effect left becomes a plain one: a record of the other kind would lack its
        // attachment.
        if left > 0 {
            self.side_effects.insert(id, side_effects);
        }
        units - left
    }

    /// All short records that the log lacks, and those for the ends of the cooldowns in them.
    pub(super) fn needed_units(&self) -> u64 {
        let side_effects = self.side_effects.values().map(UnloggedSideEffects::needed_units).sum::<u64>();
        self.needed.len() as u64 + side_effects
    }
}

/// A change that must find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeededChange {
    /// The delete of the job.
    Delete(JobId),
    /// The job's first reservation, after which it does not expire any more.
    FirstReservation(JobId),
    /// The early end of the cooldown that the delete of the job has started.
    EndOfCooldown(JobId),
}

/// The side effects of a delete, until there is room for them.
#[derive(Debug, Default)]
pub(super) struct UnloggedSideEffects {
    pub(super) cooldown: Option<Box<[u8]>>,
    pub(super) freed_group: Option<Box<str>>,
    /// How many full records directly before the delete form one change with it.
    pub(super) completes: Option<u8>,
}

impl UnloggedSideEffects {
    /// Short records of these side effects.
    pub(super) fn units(&self) -> u64 {
        self.cooldown.as_ref().map_or(0, |bytes| parts(bytes.len()))
            + self.freed_group.as_ref().map_or(0, |group| parts(group.len()))
            + u64::from(self.completes.is_some())
    }

    /// The units to reserve, including the one that ends the cooldown.
    pub(super) fn needed_units(&self) -> u64 {
        self.units() + u64::from(self.cooldown.is_some())
    }
}
