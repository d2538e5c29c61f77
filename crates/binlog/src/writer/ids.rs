//! The job ids that markers announce, so that no restart assigns an id twice.
//!
//! Owns: the next id and the id that the last marker has announced. Driven by the appending of puts and of markers.

use crate::SyncPolicy;
use crate::job::JobId;
use crate::marker::MarkerKind;

/// How many ids markers announce beyond the last assigned one, if jobs are acknowledged before they are on the medium:
/// after a power loss, a restart assigns none of these ids again. A million puts per second with `-f 50` need half of
/// them.
const IDS_AHEAD: u64 = 100_000;

/// The ids that were assigned and announced.
#[derive(Debug)]
pub(super) struct Ids {
    sync: SyncPolicy,
    /// All ids assigned so far are smaller.
    next: u64,
    /// The last marker announces that all assigned ids are smaller than this one; 0 before the first marker.
    announced: u64,
}

impl Ids {
    /// All ids assigned so far are smaller than `next`.
    pub(super) fn new(sync: SyncPolicy, next: u64) -> Self {
        Self { sync, next, announced: 0 }
    }

    /// Resumes after a hand-over.
    pub(super) fn resume(sync: SyncPolicy, next: u64, announced: u64) -> Self {
        Self { sync, next, announced }
    }

    /// The next id to be assigned, at the earliest.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Notes that job `id` exists.
    pub(super) fn give(&mut self, id: JobId) {
        self.next = self.next.max(id.0.saturating_add(1));
    }

    /// Whether more ids must be announced soon, when markers up to `durable` are on the medium.
    pub(super) fn is_near(&self, id: JobId, durable: u64) -> bool {
        id.0 + IDS_AHEAD / 2 >= durable
    }

    /// Whether no written marker covers `id`, or the ids after `durable`.
    pub(super) fn must_announce(&self, id: JobId, durable: u64) -> bool {
        self.announced <= durable.max(id.0)
    }

    /// The id that a marker announces. With `-f 0` no job is acknowledged before it is on the medium, so the id of a
    /// lost job can be assigned again.
    pub(super) fn announced_by(&self, kind: MarkerKind) -> u64 {
        match (kind, self.sync) {
            (MarkerKind::Closed, _) | (_, SyncPolicy::EachCommit) => self.next,
            (_, SyncPolicy::Every(_) | SyncPolicy::Never) => self.next.saturating_add(IDS_AHEAD),
        }
    }

    /// Notes that a marker announces `id`.
    pub(super) fn note_announced(&mut self, id: u64) {
        self.announced = id;
    }

    /// The id that the last marker has announced.
    pub(super) fn announced(&self) -> u64 {
        self.announced
    }

    /// Asserts the invariants between two calls.
    #[inline]
    pub(super) fn check_invariants(&self) {
        assert!(self.next >= 1, "no job has the id 0");
        assert!(self.announced <= self.next.saturating_add(IDS_AHEAD), "no more ids are announced than that");
    }
}
