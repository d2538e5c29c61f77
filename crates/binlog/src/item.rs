//! The jobs and cooldowns in the files of the log, and the location of each in few bytes.
//!
//! Owns: which bit of an id, and of the index of a file, has another meaning. Driven by the files of the log.

use std::num::NonZeroU32;

use super::MAX_INDEX;
use super::format::MAX_JOB_ID;
use crate::job::JobId;

/// A live job or cooldown in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A job, with its full record and its tags.
    Job(JobId),
    /// The cooldown that the delete of this job started.
    Cooldown(JobId),
}

impl Item {
    pub(super) fn id(self) -> JobId {
        match self {
            Self::Job(id) | Self::Cooldown(id) => id,
        }
    }
}

/// An [`Item`] in the 8 bytes of an id, because the list of a file has one for each job.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedItem(pub(super) u64);

impl PackedItem {
    /// The bit of a cooldown. No job has such an id.
    const COOLDOWN: u64 = 1 << 63;

    pub(super) fn pack(item: Item) -> Self {
        match item {
            Item::Job(id) => Self(id.0),
            Item::Cooldown(id) => Self(id.0 | Self::COOLDOWN),
        }
    }

    pub(super) fn unpack(self) -> Item {
        let id = JobId(self.0 & !Self::COOLDOWN);
        if self.0 == id.0 { Item::Job(id) } else { Item::Cooldown(id) }
    }
}

const _: () = assert!(MAX_JOB_ID < PackedItem::COOLDOWN);

/// The record with the newest state of a job. A cooldown has only its own record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    Full,
    Short,
}

/// The index of a file and [`Newest`] in 4 bytes; an `Option` of it takes no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedFile(NonZeroU32);

impl PackedFile {
    /// The bit of [`Newest::Short`]. No index has this bit, and neither has an index plus one, which is the stored
    /// number.
    const SHORT: u32 = 1 << 31;

    pub(super) fn pack(index: u32, newest: Newest) -> Self {
        let file = NonZeroU32::MIN.saturating_add(index);
        match newest {
            Newest::Full => Self(file),
            Newest::Short => Self(file | Self::SHORT),
        }
    }

    pub(super) fn unpack(self) -> (u32, Newest) {
        let newest = if self.0.get() & Self::SHORT == 0 { Newest::Full } else { Newest::Short };
        ((self.0.get() & !Self::SHORT) - 1, newest)
    }
}

const _: () = assert!(MAX_INDEX + 1 < PackedFile::SHORT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_items_and_files_read_back() {
        for item in
            [0, 1, MAX_JOB_ID].map(JobId).into_iter().flat_map(|id| [Item::Job(id), Item::Cooldown(id)])
        {
            assert_eq!(PackedItem::pack(item).unpack(), item);
        }
        for index in [0, 1, MAX_INDEX] {
            for newest in [Newest::Full, Newest::Short] {
                assert_eq!(PackedFile::pack(index, newest).unpack(), (index, newest));
            }
        }
    }
}
