//! The journal of an import: a file beside the export with the progress so far. Each entry is synced before the next
//! step.
//!
//! The first entry identifies the import, and the second one is its key. A batch of lines has three entries. `begin`:
//! these lines are about to be put. `put`: they were put with these ids, and have a delay that never ends. `done`: the
//! delay is removed. After an interruption, [`super::import`] asks the server what was done after the last entry.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::destination::lock;
use super::lines::{open_appended, read_lines};
use crate::failure::{Failure, OfFile, Result};

/// The first bytes of a journal.
const HEADER_START: &[u8] = b"{\"journal\":";

/// What the server has done with the job of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// It has this id.
    Put(u64),
    /// It was not stored, because another one has or had its `idp` key.
    Duplicate,
    /// The server has refused it, or was not asked yet.
    Refused,
}

impl Imported {
    /// The number in the file. No job has the id 0.
    fn of_number(number: Option<u64>) -> Self {
        number.map_or(Self::Refused, |id| if id == 0 { Self::Duplicate } else { Self::Put(id) })
    }

    fn number(self) -> Option<u64> {
        match self {
            Self::Put(id) => Some(id),
            Self::Duplicate => Some(0),
            Self::Refused => None,
        }
    }

    /// The id of the job, if it was stored.
    pub fn id(self) -> Option<u64> {
        if let Self::Put(id) = self { Some(id) } else { None }
    }
}

/// Lines that are imported together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportBatch {
    /// The numbers of the lines, counted from 0.
    pub lines: Vec<usize>,
    /// The hash of the bytes of the lines.
    pub hash: u64,
    /// The key of the journal.
    key: u64,
    /// Jobs with ids up to this one existed before the batch.
    pub above: u64,
    /// What the server has done, in the order of the lines; `None` while the batch is not put.
    pub imported: Option<Vec<Imported>>,
}

impl ImportBatch {
    /// The `idp` key that the job at this position gets if it needs one. No other line has this key, and a line that is
    /// put again in a later batch has the same one.
    pub fn idp_key(&self, position: usize) -> String {
        format!("import-{:016x}-{}", self.key, self.lines[position])
    }

    /// The delay that never ends, in seconds: 135 years or more. Another import has another one, so that it does not
    /// take the jobs of this import for its own.
    pub fn endless_delay(&self) -> u32 {
        u32::MAX - (self.key % (1 << 24)) as u32
    }
}

/// The open journal.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// A random number, which no other journal has; `None` until it is written.
    key: Option<u64>,
    /// The lines whose jobs are imported.
    pub done: HashSet<usize>,
    /// The batches that are done, with the hashes that show whether the export is still the same.
    pub finished: Vec<ImportBatch>,
    /// The batch in progress, or the one in progress when the program ended.
    pub open: Option<ImportBatch>,
}

impl Journal {
    /// Opens or creates the file. `header` identifies the import: [`Failure::Usage`] if the file belongs to another
    /// one. Locks the file: another import cannot open it.
    pub fn open(path: &Path, header: &Value) -> Result<Self> {
        let file = open_appended(path)?;
        lock(path, &file, "import")?;
        let (done, finished) = (HashSet::new(), Vec::new());
        let mut journal = Self { path: path.to_owned(), file, key: None, done, finished, open: None };
        let file = journal.file.try_clone().of_file(path)?;
        let length = read_lines(path, &file, [HEADER_START, b""], &mut |start, line| {
            let taken = match (start, serde_json::from_slice(line).ok()) {
                (0, Some(entry)) if entry == *header => Some(()),
                (0, Some(entry)) => return Err(journal.belongs_to(&entry, header)),
                (_, Some(entry)) => journal.take(&entry),
                (_, None) => None,
            };
            taken.ok_or_else(|| Failure::file(path, format!("invalid journal entry at byte {start}")))
        })?;
        if length == 0 {
            journal.append(header)?;
        }
        if journal.key.is_none() {
            let key = RandomState::new().hash_one(());
            journal.append(&json!({ "key": format!("{key:016x}") }))?;
            journal.key = Some(key);
        }
        Ok(journal)
    }

    fn belongs_to(&self, found: &Value, header: &Value) -> Failure {
        Failure::Usage(format!(
            "{} is the journal of another import: {found}, not {header}; name another journal with --journal",
            self.path.display()
        ))
    }

    /// Applies an entry that was read; `None` if it is invalid.
    fn take(&mut self, entry: &Value) -> Option<()> {
        if let Some(begin) = entry.get("begin") {
            let lines =
                numbers(begin)?.into_iter().map(|line| usize::try_from(line?).ok()).collect::<Option<_>>()?;
            let hash = hexadecimal(entry.get("hash")?)?;
            let above = entry.get("above")?.as_u64()?;
            self.open = Some(ImportBatch { lines, hash, key: self.key?, above, imported: None });
            return Some(());
        }
        if let Some(key) = entry.get("key") {
            self.key = Some(hexadecimal(key)?);
            return Some(());
        }
        if let Some(ids) = entry.get("put") {
            let batch = self.open.as_mut()?;
            let imported = numbers(ids)?.into_iter().map(Imported::of_number);
            let imported = batch.imported.insert(imported.collect());
            return (imported.len() == batch.lines.len()).then_some(());
        }
        entry.get("done")?;
        self.finish();
        Some(())
    }

    fn finish(&mut self) {
        let Some(batch) = self.open.take() else { return };
        let imported = batch.imported.iter().flatten();
        let put = batch.lines.iter().zip(imported).filter(|(_, imported)| **imported != Imported::Refused);
        self.done.extend(put.map(|(line, _)| *line));
        self.finished.push(batch);
    }

    /// The numbers of the jobs that were put, and of the duplicates.
    pub fn counts(&self) -> (u64, u64) {
        let imported = self.finished.iter().filter_map(|batch| batch.imported.as_ref()).flatten();
        imported.fold((0, 0), |(put, duplicates), imported| match imported {
            Imported::Put(_) => (put + 1, duplicates),
            Imported::Duplicate => (put, duplicates + 1),
            Imported::Refused => (put, duplicates),
        })
    }

    /// Records that these lines are about to be put.
    pub fn begin(&mut self, lines: &[usize], hash: u64, above: u64) -> Result<&ImportBatch> {
        self.append(&json!({ "begin": lines, "hash": format!("{hash:016x}"), "above": above }))?;
        let key = self.key.expect("an open journal has a key");
        let batch = ImportBatch { lines: lines.to_vec(), hash, key, above, imported: None };
        Ok(self.open.insert(batch))
    }

    /// Records what the server has done with the lines of the open batch.
    pub fn put(&mut self, imported: Vec<Imported>) -> Result {
        let ids: Vec<Option<u64>> = imported.iter().map(|imported| imported.number()).collect();
        self.append(&json!({ "put": ids }))?;
        if let Some(batch) = self.open.as_mut() {
            batch.imported = Some(imported);
        }
        Ok(())
    }

    /// Records that the open batch is done.
    pub fn done(&mut self) -> Result {
        self.append(&json!({ "done": true }))?;
        self.finish();
        Ok(())
    }

    fn append(&mut self, entry: &Value) -> Result {
        writeln!(self.file, "{entry}").and_then(|()| self.file.sync_data()).of_file(&self.path)
    }
}

fn hexadecimal(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?, 16).ok()
}

fn numbers(value: &Value) -> Option<Vec<Option<u64>>> {
    Some(value.as_array()?.iter().map(Value::as_u64).collect())
}

/// The FNV-1a hash of lines. It detects an export that was changed by mistake, not one that was forged.
pub fn hash(mut lines: impl Iterator<Item = Result<Vec<u8>>>) -> Result<u64> {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    lines.try_fold(0xcbf2_9ce4_8422_2325, |hash, line| Ok(line?.iter().fold(hash, step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_entries_are_restored_and_a_torn_entry_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let header = json!({ "journal": 1, "server": "a" });
        let mut journal = Journal::open(&path, &header).unwrap();
        journal.begin(&[0, 1], 7, 100).unwrap();
        journal.put(vec![Imported::Put(101), Imported::Refused]).unwrap();
        journal.done().unwrap();
        let open = journal.begin(&[1, 2], 8, 101).unwrap().clone();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for torn in [&b""[..], b"{\"put\":[10"] {
            std::fs::write(&path, [&whole, torn].concat()).unwrap();
            let again = Journal::open(&path, &header).unwrap();
            assert_eq!(again.done, HashSet::from([0]));
            assert_eq!(again.open, Some(open.clone()));
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
        assert!(matches!(Journal::open(&path, &json!({ "server": "b" })), Err(Failure::Usage(_))));
        std::fs::write(&path, [&whole, &b"nonsense\n"[..]].concat()).unwrap();
        assert!(matches!(Journal::open(&path, &header), Err(Failure::Local(_))));
    }
}
