//! The order of burial.
//!
//! Owns: when each buried job was buried, with a different time for each in this run. Driven by the replay, then by
//! `append`.

use beanstalkd_structures::IdMap;

use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::JobId;
use crate::wall_clock::WallTime;

/// The order in which jobs were buried, which the disk stores as the time of burial.
#[derive(Debug, Default)]
pub(crate) struct Burials {
    times: IdMap<WallTime>,
    latest: WallTime,
}

impl Burials {
    /// Notes a burial at `now`, after all earlier ones, whatever the clock says. Returns its time.
    pub(super) fn bury(&mut self, id: JobId, now: WallTime) -> WallTime {
        let time = now.max(self.latest.plus_ns(1));
        self.restore(id, time);
        time
    }

    /// Notes a burial that is already in the log.
    pub(crate) fn restore(&mut self, id: JobId, time: WallTime) {
        self.latest = self.latest.max(time);
        self.times.insert(id, time);
    }

    /// When the job was buried; `None` if it is not.
    pub(super) fn time(&self, id: JobId) -> Option<WallTime> {
        self.times.get(id).copied()
    }

    /// Removes a job that is no longer buried.
    pub(super) fn forget(&mut self, id: JobId) {
        if !self.times.is_empty() {
            self.times.remove(id);
        }
    }

    /// The memory of the order, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.times.bytes()
    }

    /// The buried jobs.
    pub(super) fn ids(&self) -> impl Iterator<Item = JobId> {
        self.times.iter().map(|(id, _)| id)
    }

    /// Asserts the invariants between two calls.
    #[inline]
    pub(super) fn check_invariants(&self) {
        assert!(
            self.times.iter().all(|(_, &time)| time <= self.latest),
            "the next burial comes after all others"
        );
    }
}

impl Described for Burials {
    fn describe(&self, out: &mut Writer<'_>) {
        let Self { times, latest } = self;
        out.count(times.len());
        times.iter().for_each(|(id, &WallTime(ns))| (id, ns).describe(out));
        latest.0.describe(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut burials = Self::default();
        for _ in 0..from.count()? {
            let (id, ns) = from.value()?;
            burials.restore(id, WallTime(ns));
        }
        burials.latest = burials.latest.max(WallTime(from.value()?));
        Ok(burials)
    }
}
