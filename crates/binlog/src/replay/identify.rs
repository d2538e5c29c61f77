//! The kind of a file of the log: by its first bytes and, with `--recover`, by its records if these bytes are damaged.
//!
//! Owns: the order of the checks. Reads a file and changes nothing. Driven by the replay.

use super::FileKind;
use super::reader::LogFileReader;
use crate::format::{MARKER_ID, MAX_JOB_ID, SHORT_BYTES, Seal, VERSION_BYTES, take};
use crate::marker::{FIXED_AT, HEAD_BYTES, MAGIC, Marker, MarkerKind};
use crate::record::{Format, Layout, MAX_HEAD_BYTES, Version};
use crate::{OpenError, SyncPolicy};

/// Offset of the magic number in the header marker.
const MAGIC_AT: u64 = VERSION_BYTES + FIXED_AT as u64 + 8;
/// From how many full records the seal of a file is derived at most: a record of C's can look sealed with a chance of
/// 2^-24.
const MAX_RECORDS_FOR_SEAL: u32 = 64;

/// The kind of the file. With `recover`, the records decide if the head is damaged.
pub(super) fn identify(
    reader: &mut LogFileReader<'_>,
    index: u32,
    recover: bool,
) -> Result<FileKind, OpenError> {
    let kind = by_head(reader, index)?;
    let may_be_damaged = match kind {
        FileKind::BrokenHeader | FileKind::C(_) | FileKind::UnknownVersion(_) => true,
        FileKind::Ours { .. } | FileKind::Blank | FileKind::Misplaced(_) => false,
    };
    if recover && may_be_damaged { by_records(reader, index, kind) } else { Ok(kind) }
}

/// The version in the file's first bytes; `None` if this server cannot read that version.
pub(super) fn stated_version(reader: &mut LogFileReader<'_>) -> Result<Option<Version>, OpenError> {
    let head = reader.at(0, VERSION_BYTES as usize)?;
    Ok(head.first_chunk().and_then(|&version| Version::of(i32::from_le_bytes(version))))
}

/// The kind of the file, by its first bytes.
fn by_head(reader: &mut LogFileReader<'_>, index: u32) -> Result<FileKind, OpenError> {
    let head = reader.at(0, HEAD_BYTES as usize)?;
    let head = head[..head.len().min(HEAD_BYTES as usize)].to_vec();
    let version = head.first_chunk().map_or(0, |&version| i32::from_le_bytes(version));
    if head.len() == HEAD_BYTES as usize {
        let header = marker_in(&head[VERSION_BYTES as usize..], VERSION_BYTES);
        if let Some((seal, header)) =
            header.filter(|(_, marker)| matches!(marker.kind, MarkerKind::Header(_)))
        {
            return Ok(match Version::of(version) {
                _ if header.file != index => FileKind::Misplaced(header.file),
                Some(Version::Seven) => FileKind::Ours { seal, sync: header.sync },
                Some(Version::Five) | None => FileKind::UnknownVersion(version),
            });
        }
    }
    if Marker::resembles_header(&head) {
        return Ok(FileKind::BrokenHeader);
    }
    Ok(match Version::of(version) {
        // A version without room for a record: the remains of a file of C's or of this server's.
        Some(_) if head.len() < HEAD_BYTES as usize => FileKind::Blank,
        Some(version) => FileKind::C(version),
        None if version == 0 && reader.first_nonzero(0)?.is_none() => FileKind::Blank,
        None => FileKind::UnknownVersion(version),
    })
}

/// The kind of a file that looks like `kind` and whose head may be damaged.
fn by_records(reader: &mut LogFileReader<'_>, index: u32, kind: FileKind) -> Result<FileKind, OpenError> {
    let stated = kind.format().map(Format::version);
    if let Some(version) = stated
        && is_record(reader, version, VERSION_BYTES)?
    {
        return Ok(kind);
    }
    // Every marker has the nonce, so one whole marker is enough to read a file of this server.
    if let Some(ours) = find_marker(reader, index)? {
        return Ok(ours);
    }
    if let Some(seal) = find_seal(reader)? {
        // The sync policy is lost; with `--recover` all whole records count anyway.
        return Ok(FileKind::Ours { seal, sync: SyncPolicy::Never });
    }
    let has_magic = reader.at(MAGIC_AT, 4)?.starts_with(&MAGIC.to_le_bytes());
    if kind == FileKind::BrokenHeader && has_magic {
        return Ok(kind);
    }
    for version in stated.into_iter().chain([Version::Seven, Version::Five]) {
        if next_full(reader, version, VERSION_BYTES)?.is_some() || is_record(reader, version, VERSION_BYTES)?
        {
            return Ok(FileKind::C(version));
        }
    }
    Ok(kind)
}

/// The whole marker of this server at the beginning of `bytes`, and the seal of its file.
fn marker_in(bytes: &[u8], offset: u64) -> Option<(Seal, Marker)> {
    let bytes = bytes.get(..SHORT_BYTES as usize)?;
    let fixed = take(bytes, FIXED_AT);
    let seal = Seal { nonce: Marker::nonce(&fixed) };
    let is_whole =
        fixed[..8] == MARKER_ID.to_le_bytes() && seal.nonce != 0 && seal.matches(bytes, FIXED_AT, offset);
    Marker::decode(&fixed).filter(|_| is_whole).map(|marker| (seal, marker))
}

/// Reads a file of ours with a damaged header by any whole marker.
fn find_marker(reader: &mut LogFileReader<'_>, index: u32) -> Result<Option<FileKind>, OpenError> {
    let mut offset = VERSION_BYTES;
    while let Some(start) = reader.first_nonzero(offset)? {
        // A marker begins with the length of a name, which is 0.
        offset = start.saturating_sub(FIXED_AT as u64).max(offset);
        let marker = marker_in(reader.at(offset, SHORT_BYTES as usize)?, offset);
        if let Some((seal, marker)) = marker.filter(|(_, marker)| marker.file == index) {
            return Ok(Some(FileKind::Ours { seal, sync: marker.sync }));
        }
        offset += 1;
    }
    Ok(None)
}

/// The seal of a file of ours without a whole marker, derived from a whole record.
fn find_seal(reader: &mut LogFileReader<'_>) -> Result<Option<Seal>, OpenError> {
    let mut offset = VERSION_BYTES;
    for _ in 0..MAX_RECORDS_FOR_SEAL {
        let Some((start, layout)) = next_full(reader, Version::Seven, offset)? else { break };
        let bytes = reader.at(start, layout.total)?;
        let seal = bytes.get(..layout.total).and_then(|record| Seal::of(record, layout.fixed_at, start));
        if seal.is_some() {
            return Ok(seal);
        }
        offset = start + 1;
    }
    Ok(None)
}

/// Whether a plausible record is at `offset`.
pub(super) fn is_record(
    reader: &mut LogFileReader<'_>,
    version: Version,
    offset: u64,
) -> Result<bool, OpenError> {
    Ok(plausible(reader, version, offset)?.is_some_and(|layout| layout.record.id <= MAX_JOB_ID))
}

/// Whether a record that C can have written begins at `offset` or after it. Numbers in a body often look like a short
/// record, but have no times.
pub(super) fn has_record_of_c(
    reader: &mut LogFileReader<'_>,
    version: Version,
    mut offset: u64,
) -> Result<bool, OpenError> {
    while let Some(start) = reader.first_nonzero(offset)? {
        offset = start.saturating_sub(version.max_first_zeros()).max(offset);
        while offset <= start {
            if plausible(reader, version, offset)?.is_some_and(|layout| layout.has_times_of_c()) {
                return Ok(true);
            }
            offset += 1;
        }
    }
    Ok(false)
}

/// The next plausible full record from `offset` on, and its offset.
fn next_full(
    reader: &mut LogFileReader<'_>,
    version: Version,
    mut offset: u64,
) -> Result<Option<(u64, Layout)>, OpenError> {
    // The first byte is the lowest of the name's length.
    while let Some(start) = reader.first_nonzero(offset)? {
        if let Some(layout) = plausible(reader, version, start)?.filter(Layout::is_full) {
            return Ok(Some((start, layout)));
        }
        offset = start + 1;
    }
    Ok(None)
}

/// The layout of the record at `offset`, if it is plausible. Who has written the file is not known yet.
fn plausible(
    reader: &mut LogFileReader<'_>,
    version: Version,
    offset: u64,
) -> Result<Option<Layout>, OpenError> {
    let rest = reader.size().saturating_sub(offset);
    let head = reader.at(offset, MAX_HEAD_BYTES)?;
    let layout =
        Layout::read(Format::C(version), head, rest).filter(|layout| layout.has_plausible_head(head));
    let Some(layout) = layout else { return Ok(None) };
    let bytes = reader.at(offset, layout.total)?.get(..layout.total);
    Ok(bytes.is_some_and(|bytes| layout.is_plausible(bytes)).then_some(layout))
}
