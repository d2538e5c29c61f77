//! The jobs as the replay finds them, record by record.
//!
//! Owns: the jobs that are alive so far, their tubes and bodies, the order of burial. A valid full record
//! replaces an earlier one; an invalid one changes nothing. Driven by the replay, file by file.

use std::collections::{BTreeSet, HashMap};

use super::OpenError;
use super::format::{DiskRecord, STATE_DELETED, TRAILER};
use super::record::Layout;
use crate::id_map::IdMap;
use crate::job::{Body, JobId};
use crate::tube_name::TubeName;

/// What the format calls a buried job.
pub(super) const STATE_BURIED: u8 = 3;

/// A job so far.
#[derive(Debug)]
pub(super) struct ReplayedJob {
    pub(super) record: DiskRecord,
    pub(super) body: Body,
    /// Place of the tube's name in [`Jobs::tubes`].
    pub(super) tube: u32,
    /// Index of the file that holds its full record.
    pub(super) file: u32,
    /// Length of its full record.
    pub(super) bytes: u32,
    /// Whether its newest state stands in a short record.
    pub(super) updated: bool,
    /// When it was buried: only the order counts.
    pub(super) buried_at: i64,
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Index of the file.
    pub(super) file: u32,
    /// Whether a buried job's record holds the time of burial, as ours do.
    pub(super) tells_burial: bool,
    /// Whether it stands beyond a place where the file is broken.
    pub(super) beyond: bool,
}

/// All jobs so far.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) alive: IdMap<ReplayedJob>,
    pub(super) tubes: Vec<TubeName>,
    tube_numbers: HashMap<TubeName, u32>,
    latest_tube: u32,
    latest_burial: i64,
    /// Larger than every id seen.
    pub(super) next_id: u64,
    /// Short records of jobs that are not there: deleted, or migrated out of files that are gone.
    pub(super) ignored: u64,
    /// Jobs whose state rests on records beyond a broken place.
    pub(super) rescued: BTreeSet<JobId>,
}

impl Jobs {
    /// Applies the record in `bytes`. Returns false, with nothing changed, if it cannot be true.
    pub(super) fn apply(&mut self, layout: &Layout, bytes: &[u8], source: Source) -> Result<bool, OpenError> {
        if !layout.is_plausible(bytes) {
            return Ok(false);
        }
        let id = JobId(layout.record.id);
        let applied = if layout.is_full() {
            self.apply_full(id, layout, bytes, source)?;
            true
        } else {
            self.apply_short(id, &layout.record, source)
        };
        if applied {
            self.next_id = self.next_id.max(id.0.saturating_add(1));
            if source.beyond {
                self.rescued.insert(id);
            }
        }
        Ok(applied)
    }

    fn apply_full(
        &mut self,
        id: JobId,
        layout: &Layout,
        bytes: &[u8],
        source: Source,
    ) -> Result<(), OpenError> {
        let end = layout.total - TRAILER.len();
        let body = Body::copy_of(&bytes[layout.body_at..end]).map_err(|_| OpenError::OutOfMemory)?;
        let tube = self.tube_number(&bytes[layout.name_at..layout.fixed_at]);
        let mut job = ReplayedJob {
            record: layout.record,
            body,
            tube,
            file: source.file,
            bytes: u32::try_from(layout.total).unwrap_or(u32::MAX),
            updated: false,
            buried_at: 0,
        };
        if job.record.state == STATE_BURIED {
            let before =
                self.alive.get(id).filter(|old| old.record.state == STATE_BURIED).map(|old| old.buried_at);
            job.buried_at = self.burial(&job.record, before, true, source);
        }
        self.alive.insert(id, job);
        Ok(())
    }

    fn apply_short(&mut self, id: JobId, record: &DiskRecord, source: Source) -> bool {
        if record.state == STATE_DELETED {
            if self.alive.remove(id).is_none() {
                self.ignored += 1;
            }
            return true;
        }
        let Some(job) = self.alive.get(id) else {
            self.ignored += 1;
            return true;
        };
        if usize::try_from(record.body_size) != Ok(job.body.len() + TRAILER.len()) {
            return false;
        }
        let before = (job.record.state == STATE_BURIED).then_some(job.buried_at);
        let buried_at =
            if record.state == STATE_BURIED { self.burial(record, before, false, source) } else { 0 };
        if let Some(job) = self.alive.get_mut(id) {
            job.record = *record;
            job.updated = true;
            job.buried_at = buried_at;
        }
        true
    }

    /// When the job of `record`, which is buried, was buried; `before` if it was buried already. C leaves
    /// the end of the reservation in the record, which comes close; a short record of C's is written at
    /// the burial, so that it comes after all others.
    fn burial(&mut self, record: &DiskRecord, before: Option<i64>, is_full: bool, source: Source) -> i64 {
        let time = if source.tells_burial || (is_full && before.is_none()) {
            record.deadline_at
        } else {
            before.unwrap_or_else(|| record.deadline_at.max(self.latest_burial.saturating_add(1)))
        };
        self.latest_burial = self.latest_burial.max(time);
        time
    }

    fn tube_number(&mut self, name: &[u8]) -> u32 {
        if self.tubes.get(self.latest_tube as usize).is_some_and(|tube| tube.as_bytes() == name) {
            return self.latest_tube;
        }
        // A name that was not plausible has been turned away before.
        let Some(tube) = TubeName::parse(name) else { return 0 };
        let next = u32::try_from(self.tubes.len()).unwrap_or(u32::MAX);
        let tubes = &mut self.tubes;
        self.latest_tube = *self.tube_numbers.entry(tube).or_insert_with_key(|tube| {
            tubes.push(tube.clone());
            next
        });
        self.latest_tube
    }
}
