//! The cooldowns that have not ended, in the encoding of the log.
//!
//! Owns: their bytes, by the job whose delete started each. Does not know their positions. Driven by the replay, then
//! by the open log.

use beanstalkd_structures::IdMap;

use super::attachment::LoggedCooldown;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::JobId;
use crate::wall_clock::WallTime;

#[derive(Debug, Default)]
pub(super) struct Cooldowns {
    by_job: IdMap<Box<[u8]>>,
    len_bytes: usize,
}

impl Cooldowns {
    /// Adds a cooldown, and replaces an earlier cooldown of the same job. Returns whether its bytes are valid.
    pub(super) fn insert(&mut self, id: JobId, bytes: Box<[u8]>) -> bool {
        let is_one = LoggedCooldown::decode(&bytes).is_some();
        if is_one {
            self.len_bytes += bytes.len();
            self.len_bytes -= self.by_job.insert(id, bytes).map_or(0, |before| before.len());
        }
        is_one
    }

    /// Removes the cooldown of a job. Returns when it would have ended, if there was one.
    pub(super) fn remove(&mut self, id: JobId) -> Option<WallTime> {
        let bytes = self.by_job.remove(id)?;
        self.len_bytes -= bytes.len();
        LoggedCooldown::decode(&bytes).map(|cooldown| cooldown.until)
    }

    /// The bytes of a job's cooldown.
    pub(super) fn get(&self, id: JobId) -> Option<&[u8]> {
        self.by_job.get(id).map(|bytes| &**bytes)
    }

    /// All cooldowns, by ascending id of their jobs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, LoggedCooldown<'_>)> {
        self.by_job
            .iter()
            .filter_map(|(id, bytes)| LoggedCooldown::decode(bytes).map(|cooldown| (id, cooldown)))
    }

    /// Memory of all cooldowns, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.by_job.bytes() + self.len_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.by_job.len()
    }
}

impl Described for Cooldowns {
    fn describe(&self, out: &mut Writer<'_>) {
        let Self { by_job, len_bytes: _ } = self;
        out.count(by_job.len());
        for (id, bytes) in by_job.iter() {
            id.describe(out);
            out.bytes(bytes);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut cooldowns = Self::default();
        for _ in 0..from.count()? {
            let id = from.value()?;
            if !cooldowns.insert(id, from.bytes()?.into()) {
                return Err(Malformed("a cooldown of the log"));
            }
        }
        Ok(cooldowns)
    }
}
