//! The description of the room of a log, for the new program after a hand-over.
//!
//! Owns: which parts are described: the files made ahead, and the room that is reserved for single jobs. Driven by the
//! description of the log.

use std::num::NonZeroU8;

use super::{JobRoom, MAX_DELETE_UNITS, Room, Spare};
use crate::description::{Described, Malformed, Reader, Writer};
use crate::files::MAX_FILE_BYTES;
use crate::job::JobId;

/// Values that depend on the jobs, the cooldowns and the file to which records are appended are not described.
impl Described for Room {
    fn describe(&self, out: &mut Writer<'_>) {
        let Self {
            spares,
            waste_units,
            by_job,
            // These follow from the rest, or are requested again.
            free: _,
            open_count: _,
            spare_units: _,
            spare_bytes: _,
            needed: _,
            by_job_units: _,
            wanted: _,
        } = self;
        (*waste_units > 0).describe(out);
        out.count(spares.len());
        spares.iter().for_each(|spare| spare.describe(out));
        out.count(by_job.len());
        by_job.iter().for_each(|(id, packed)| (id, packed.get()).describe(out));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut room = Self::default();
        if from.value()? {
            room.waste_units = MAX_DELETE_UNITS - 1;
        }
        for _ in 0..from.count()? {
            let spare: Spare = from.value()?;
            let is_next = room.newest_spare().is_none_or(|newest| newest < spare.index);
            if !is_next || spare.nonce == 0 || spare.bytes > MAX_FILE_BYTES {
                return Err(Malformed("a file made ahead"));
            }
            room.add_spare(spare);
        }
        for _ in 0..from.count()? {
            let (id, packed): (JobId, u8) = from.value()?;
            let packed = NonZeroU8::new(packed).ok_or(Malformed("the room of a job"))?;
            room.reserve_for(id, JobRoom::from_packed(packed));
        }
        Ok(room)
    }
}
