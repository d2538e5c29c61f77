//! The puts of a `complete` as the replay finds them: they count with the delete behind them, or not at all.
//!
//! Owns: the full records of which the delete was not read yet. Driven by the table of jobs, record by record.

use std::collections::TryReserveError;

use super::LogPosition;
use super::attachment::tag_record_bytes;
use super::jobs::Source;
use super::record::Layout;
use super::tagged::FoundTags;
use crate::job::JobId;

/// A full record that counts only with the delete that ends its `complete`.
#[derive(Debug)]
pub(super) struct OfComplete {
    pub(super) id: JobId,
    pub(super) layout: Layout,
    pub(super) bytes: Box<[u8]>,
    pub(super) source: Source,
    pub(super) tags: FoundTags,
    /// Where it begins, with its tags, and where the next record must begin.
    start: LogPosition,
    end: LogPosition,
}

/// The records, one directly behind the other.
#[derive(Debug, Default)]
pub(super) struct Completing(Vec<OfComplete>);

impl Completing {
    /// Keeps a record. Those before it do not belong to it if they do not stand directly before it.
    pub(super) fn push(
        &mut self,
        id: JobId,
        layout: &Layout,
        bytes: &[u8],
        source: Source,
        tags: FoundTags,
    ) -> Result<(), TryReserveError> {
        let tags_len = if let FoundTags::Here(tags) = &tags { tags.len() } else { 0 };
        let at = source.position();
        let start = LogPosition { offset: at.offset - tag_record_bytes(tags_len), ..at };
        let end = LogPosition { offset: at.offset + layout.total as u64, ..at };
        if self.0.last().is_some_and(|last| last.end != start) {
            self.clear();
        }
        self.0.try_reserve(1)?;
        self.0.push(OfComplete { id, layout: *layout, bytes: bytes.into(), source, tags, start, end });
        Ok(())
    }

    /// Something else has come: what is kept never counts.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The `count` records that are one change with a delete that begins at `start` with its attachments; `None` if
    /// they are not all there.
    pub(super) fn take(&mut self, count: u8, start: LogPosition) -> Option<Vec<OfComplete>> {
        let mut found = std::mem::take(&mut self.0);
        let surplus = found.len().checked_sub(count.into())?;
        (found.last()?.end == start).then(|| found.split_off(surplus))
    }

    /// The file has ended. If a `complete` in it has no delete, returns where it begins and how many records it has.
    pub(super) fn end_file(&mut self, file: u32) -> Option<(u64, u64)> {
        let dropped = std::mem::take(&mut self.0);
        let first = dropped.first().filter(|first| first.start.file == file)?;
        Some((first.start.offset, dropped.len() as u64))
    }
}
