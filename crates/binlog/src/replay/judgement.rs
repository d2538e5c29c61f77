//! The judgement of a log that was read: which files continue, which are cut, and which faults prevent a start.
//!
//! Owns: which finding is a fault, and the warnings with their messages. Driven by the replay, after its last file.

use std::collections::BTreeSet;
use std::fmt;

use super::decision::{Decision, FileEnd, Situation, decide};
use super::{FileKind, FileState, MarkerFacts, Replay};
use crate::format::VERSION_BYTES;
use crate::{LogFault, LogPosition};

/// A warning for the operator of a server that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum Warning {
    /// A fault that would have prevented the start without `--recover`.
    Overridden(LogFault),
    /// File `file` has only zeros, or less than a record: the server that made it was killed before it was used.
    Blank { file: u32 },
    /// There is no file `file`, and C may have written it.
    Gap { file: u32 },
    /// A name that begins like a file of the log, but is not one.
    StrangeName(String),
    /// Job `job` is restored without its tags, which were damaged before its record at `offset` of file `file`.
    TagsLost { file: u32, offset: u64, job: u64 },
    /// The delete of job `job` at `offset` of file `file` counts, but its side effects were damaged: the cooldown of
    /// its idempotency key, or that its group has no members.
    SideEffectsLost { file: u32, offset: u64, job: u64 },
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overridden(fault) => write!(out, "{fault}"),
            Self::Blank { file } => write!(out, "binlog.{file}: empty, skipped"),
            Self::Gap { file } => {
                write!(out, "binlog.{file}: missing, although there are files before it")
            }
            Self::TagsLost { file, offset, job } => {
                write!(out, "binlog.{file}: the tags of job {job}, whose record is at {offset}, are lost")
            }
            Self::SideEffectsLost { file, offset, job } => {
                write!(
                    out,
                    "binlog.{file}: the delete of job {job} at {offset} has lost the cooldown or the end of the \
                     group that it led to"
                )
            }
            Self::StrangeName(name) => write!(out, "{name}: not a file of the binlog, skipped"),
        }
    }
}

/// A file whose tail, from `offset` on, is not part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct DamagedFile {
    pub file: u32,
    pub offset: u64,
    /// Length of the tail without the zeros after it.
    pub bytes: u64,
    /// Records of the tail that were still applied.
    pub records_applied: u64,
}

/// The findings of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct ReplaySummary {
    pub files: u64,
    /// Records read, markers not counted.
    pub records: u64,
    pub jobs: u64,
    pub bytes: u64,
    /// Short records of unknown jobs.
    pub ignored_records: u64,
    /// Tails that were cut off and kept as `lost.N.X`.
    pub tails: Vec<DamagedFile>,
    pub warnings: Vec<Warning>,
    /// Neither this job id nor a larger one has ever been assigned.
    pub next_job_id: u64,
}

/// The decisions about all files.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) faults: Vec<LogFault>,
    pub(crate) warnings: Vec<Warning>,
    /// The files to cut, by their index in the list.
    pub(crate) cuts: Vec<usize>,
    /// The files that the operator has agreed to lose, existing or not.
    pub(crate) given_up: BTreeSet<u32>,
}

impl Replay {
    /// Decides about all files, after all markers have been read.
    pub(crate) fn judge(&self) -> Judgement {
        let mut judgement = Judgement::default();
        for (at, file) in self.files.iter().enumerate() {
            let fault = match file.kind {
                FileKind::Ours { .. } | FileKind::C(_) => self.judge_end(at, file, &mut judgement),
                FileKind::Blank if self.is_emptied(file.index) => None,
                FileKind::Blank if self.was_used(file.index) => {
                    Some(LogFault::DamagedHeader { file: file.index })
                }
                // C ends a file to which it wrote only the version, once it has made the next one.
                FileKind::Blank if file.bytes == VERSION_BYTES && self.c_wrote(at + 1) => None,
                FileKind::Blank => {
                    judgement.warnings.push(Warning::Blank { file: file.index });
                    None
                }
                FileKind::BrokenHeader => Some(LogFault::DamagedHeader { file: file.index }),
                FileKind::Misplaced(made_as) => Some(LogFault::Misplaced { file: file.index, made_as }),
                FileKind::UnknownVersion(version) => {
                    Some(LogFault::UnknownVersion { file: file.index, version })
                }
            };
            self.refuse(fault, &mut judgement);
        }
        self.judge_sequence(&mut judgement);
        judgement.warnings.extend(self.strange_names.iter().cloned().map(Warning::StrangeName));
        judgement.warnings.extend(self.jobs.lost.iter().map(|lost| {
            let (LogPosition { file, offset }, job) = (lost.at, lost.id.0);
            if lost.is_delete {
                Warning::SideEffectsLost { file, offset, job }
            } else {
                Warning::TagsLost { file, offset, job }
            }
        }));
        debug_assert!(judgement.faults.is_empty() || !self.recover, "with `--recover`, a fault is a warning");
        debug_assert!(
            judgement.given_up.is_empty() || self.recover,
            "files are given up only if the operator has agreed to lose them"
        );
        debug_assert!(judgement.cuts.is_sorted_by(|a, b| a < b), "a file is cut once");
        judgement
    }

    /// Whether recovery has left no record of file `index`, or the operator has agreed to lose it.
    fn is_emptied(&self, index: u32) -> bool {
        self.facts.cuts.get(&index).is_some_and(|&cut| cut <= VERSION_BYTES)
    }

    /// Whether other files show that file `index` had contents.
    fn was_used(&self, index: u32) -> bool {
        self.facts.durable.file == index
            || self.facts.recorded_end(index).is_some_and(|end| end > VERSION_BYTES)
            || self.files.iter().any(|file| file.continued == Some(index))
    }

    /// Whether C wrote the file with this index in the list.
    fn c_wrote(&self, at: usize) -> bool {
        self.files.get(at).is_some_and(|file| {
            matches!(file.kind, FileKind::C(_))
                || (file.kind == FileKind::Blank && file.bytes == VERSION_BYTES)
        })
    }

    /// Adds a fault, or a warning if the operator wants to continue.
    fn refuse(&self, fault: Option<LogFault>, judgement: &mut Judgement) {
        let Some(fault) = fault else { return };
        if self.recover {
            judgement.given_up.extend(fault.file_given_up());
            judgement.warnings.push(Warning::Overridden(fault));
        } else if !judgement.faults.contains(&fault) {
            judgement.faults.push(fault);
        }
    }

    fn judge_end(&self, at: usize, file: &FileState, judgement: &mut Judgement) -> Option<LogFault> {
        let durable = self.durable_bytes(file);
        let next = self.files.get(at + 1).filter(|next| next.index == file.index + 1);
        let is_followed = file.next_must_be_unused && next.is_some_and(|next| next.records > 0);
        let is_damaged = file.file_end == FileEnd::Torn && is_followed;
        let end = if is_damaged { FileEnd::DataBeyond } else { file.file_end };
        let situation = Situation {
            writer: file.writer(),
            end,
            below_durable: file.end < durable,
            recover: self.recover,
        };
        let damaged = if situation.below_durable {
            LogFault::Damaged { file: file.index, offset: file.end, durable }
        } else {
            LogFault::BadRecord { file: file.index, offset: file.end }
        };
        match decide(situation) {
            Decision::Refuse => return Some(damaged),
            Decision::Accept => {}
            Decision::CutTail | Decision::ApplyAndCutTail => judgement.cuts.push(at),
        }
        // A fault that would have prevented the start without --recover is still reported.
        (decide(Situation { recover: false, ..situation }) == Decision::Refuse).then_some(damaged)
    }

    /// The offset up to which the records of the file were on the medium.
    pub(crate) fn durable_bytes(&self, file: &FileState) -> u64 {
        if file.kind.format().is_none() {
            return 0;
        }
        let MarkerFacts { durable, cuts, .. } = &self.facts;
        let cut = cuts.get(&file.index).copied();
        let recorded_end = self.facts.recorded_end(file.index);
        let length = recorded_end.unwrap_or(file.made_bytes);
        let is_shortened = match cut {
            // Recovery syncs everything before it shortens a file.
            Some(cut) => file.bytes <= cut,
            // A file of this server has its length before it has its name, and is never cut below an end that a marker
            // records.
            None => file.is_ours() && file.bytes < length,
        };
        if is_shortened {
            return length;
        }
        let known = match durable.file.cmp(&file.index) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => durable.offset,
            std::cmp::Ordering::Greater => recorded_end.unwrap_or(0),
        };
        cut.map_or(known, |cut| cut.min(known))
    }

    /// Checks that all files exist.
    fn judge_sequence(&self, judgement: &mut Judgement) {
        let present = |index: u32| self.files.binary_search_by_key(&index, |file| file.index).is_ok();
        for pair in self.files.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            if after.index == before.index + 1 {
                continue;
            }
            if before.is_ours() && after.is_ours() {
                self.refuse(self.first_missing(before.index + 1..after.index), judgement);
            } else {
                judgement.warnings.push(Warning::Gap { file: before.index + 1 });
            }
        }
        for file in &self.files {
            self.refuse(self.first_missing(file.continued.filter(|&next| !present(next))), judgement);
        }
        self.judge_beginning(judgement);
    }

    /// The fault of these files, which do not exist: the first file is missing that recovery has not emptied.
    fn first_missing(&self, absent: impl IntoIterator<Item = u32>) -> Option<LogFault> {
        absent.into_iter().find(|&file| !self.is_emptied(file)).map(|file| LogFault::Missing { file })
    }

    /// Checks that the oldest needed file exists. C removes files without a record, so facts from before it ran prove
    /// nothing.
    fn judge_beginning(&self, judgement: &mut Judgement) {
        let (Some((oldest, said_by)), Some(first)) = (self.facts.oldest, self.files.first()) else { return };
        let c_ran = self.files.iter().any(|file| file.index > said_by && !file.is_ours());
        if oldest != 0 && !c_ran {
            self.refuse(self.first_missing(oldest..first.index), judgement);
        }
    }

    /// The summary for the operator.
    pub(crate) fn summary(&self, judgement: &Judgement, tails: Vec<DamagedFile>) -> ReplaySummary {
        ReplaySummary {
            files: self.files.len() as u64,
            records: self.records,
            jobs: self.jobs.alive.len() as u64,
            bytes: self.bytes,
            ignored_records: self.jobs.ignored,
            tails,
            warnings: judgement.warnings.clone(),
            next_job_id: self.jobs.next_id,
        }
    }
}
