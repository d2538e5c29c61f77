//! The cooldowns that have not ended, as they stand in the log.
//!
//! Owns: their bytes, by the job whose delete started each. It does not know where they stand. Driven by the replay, then
//! by the open log.

use super::attachment::LoggedCooldown;
use crate::id_map::IdMap;
use crate::job::JobId;

/// The cooldowns.
#[derive(Debug, Default)]
pub(super) struct Cooldowns(IdMap<Box<[u8]>>);

impl Cooldowns {
    /// Notes a cooldown, in place of another one of the same job. Returns whether its bytes can be one.
    pub(super) fn insert(&mut self, id: JobId, bytes: Box<[u8]>) -> bool {
        let is_one = LoggedCooldown::decode(&bytes).is_some();
        if is_one {
            self.0.insert(id, bytes);
        }
        is_one
    }

    /// Forgets the cooldown of a job. Returns when it would have ended, on the wall clock, if there was one.
    pub(super) fn remove(&mut self, id: JobId) -> Option<i64> {
        let bytes = self.0.remove(id)?;
        LoggedCooldown::decode(&bytes).map(|cooldown| cooldown.until)
    }

    /// The bytes of a job's cooldown.
    pub(super) fn get(&self, id: JobId) -> Option<&[u8]> {
        self.0.get(id).map(|bytes| &**bytes)
    }

    /// All of them, by ascending id of their jobs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, LoggedCooldown<'_>)> {
        self.0.iter().filter_map(|(id, bytes)| LoggedCooldown::decode(bytes).map(|cooldown| (id, cooldown)))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
