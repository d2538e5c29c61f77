//! The tag `exp`: a job that nobody has reserved for so long is deleted.
//!
//! Owns: when each such job expires. The first reservation ends that for good.

use super::Ending;
use crate::Queue;
use crate::clock::Timestamp;
use crate::deadlines::Owner;
use crate::job::{Body, JobId};
use crate::jobs::marks;

impl Queue {
    /// When the job expires if nobody reserves it before.
    #[must_use]
    pub fn expires_at(&self, id: JobId) -> Option<Timestamp> {
        let job = self.jobs.get(id).filter(|job| job.has(marks::EXPIRES))?;
        let seconds = self.tags_of(id).expires_after_s?;
        Some(job.created_at.plus_seconds(seconds))
    }

    /// The job expires then, unless it is reserved or deleted before.
    pub(crate) fn begin_expiry(&mut self, id: JobId, at: Timestamp) {
        self.jobs.held(id).marks |= marks::EXPIRES;
        self.tagged.expiries.insert((at, id));
        self.schedule(Owner::Tags);
    }

    /// A job that would have expired then does not, because it is reserved or gone.
    pub(crate) fn end_expiry(&mut self, id: JobId, at: Timestamp) {
        let found = self.tagged.expiries.remove((at, id));
        assert!(found.is_some(), "what expires is scheduled");
    }

    /// Deletes a job whose time is over.
    pub(crate) fn expire(&mut self, id: JobId, now: Timestamp) {
        let tube = self.jobs.held(id).tube;
        self.unlink(id);
        let body = self.remove_tagged(id, tube, Ending::Expired, now);
        if body.watch().is_some() {
            self.tagged.expired_bodies.push(body);
        }
        self.settle(None, now);
        self.remove_tube_if_idle(tube);
    }

    /// Whether `take_expired_bodies` would return any.
    #[inline]
    #[must_use]
    pub fn has_expired_bodies(&self) -> bool {
        !self.tagged.expired_bodies.is_empty()
    }

    /// The large bodies of jobs that have expired since the last call: replies may still hold them.
    pub fn take_expired_bodies(&mut self) -> Vec<Body> {
        std::mem::take(&mut self.tagged.expired_bodies)
    }

    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_expiries(&self) {
        let expiring = self.jobs.ids().filter_map(|id| Some((self.expires_at(id)?, id)));
        let mut expiring: Vec<_> = expiring.collect();
        expiring.sort_unstable();
        assert!(self.tagged.expiries.iter().eq(expiring), "what may expire is scheduled, and nothing else");
    }
}
