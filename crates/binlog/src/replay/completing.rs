//! The puts of a `complete` during the replay: they count together with the delete after them, or not at all.
//!
//! Owns: the full records whose delete has not been read yet. Driven by the table of jobs, record by record.

use std::collections::TryReserveError;

use super::Source;
use super::tagged::FoundTags;
use crate::LogPosition;
use crate::attachment::tag_record_bytes;
use crate::record::Layout;

/// A full record that counts only with the delete that ends its `complete`.
#[derive(Debug)]
pub(super) struct OfComplete {
    pub(super) layout: Layout,
    pub(super) bytes: Box<[u8]>,
    pub(super) source: Source,
    pub(super) tags: FoundTags,
    /// Where it begins, including its tags, and where the next record must begin.
    start: LogPosition,
    end: LogPosition,
}

/// The records, one directly after the other.
#[derive(Debug, Default)]
pub(super) struct Completing(Vec<OfComplete>);

impl Completing {
    /// Keeps a record. Earlier ones are dropped if they are not directly before it.
    pub(super) fn push(
        &mut self,
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
        self.0.push(OfComplete { layout: *layout, bytes: bytes.into(), source, tags, start, end });
        Ok(())
    }

    /// Drops the kept records, which never count, because another record has come.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The `count` records that form one change with the delete that begins, including its attachments, at `start`;
    /// `None` if they are not all there.
    pub(super) fn take(&mut self, count: u8, start: LogPosition) -> Option<Vec<OfComplete>> {
        let mut found = std::mem::take(&mut self.0);
        let surplus = found.len().checked_sub(count.into())?;
        (found.last()?.end == start).then(|| found.split_off(surplus))
    }

    /// Ends a file. If a `complete` in it has no delete, returns where the `complete` begins and how many records it
    /// has.
    pub(super) fn end_file(&mut self, file: u32) -> Option<(u64, u64)> {
        let dropped = std::mem::take(&mut self.0);
        let first = dropped.first().filter(|first| first.start.file == file)?;
        Some((first.start.offset, dropped.len() as u64))
    }
}
