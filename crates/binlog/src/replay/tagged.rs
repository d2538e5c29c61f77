//! Tags, cooldowns and freed groups during the replay.
//!
//! Owns: the attachments that wait for their record; the tags of the jobs that have any; the jobs that wait for each
//! group; the cooldowns. Knows neither jobs nor files. Driven by the table of jobs, record by record.

use std::collections::{BTreeSet, HashMap, HashSet, TryReserveError};

use beanstalkd_structures::IdMap;

use crate::LogPosition;
use crate::attachment::{AttachmentKind, LoggedCooldown, Part};
use crate::cooldowns::Cooldowns;
use crate::format::SHORT_BYTES;
use crate::job::JobId;
use crate::tags::{After, JobTags, Name};
use crate::tube_name::TubeName;

/// The attachments of a record: its tags, a cooldown, a freed group.
const MAX_ATTACHMENTS: usize = 3;

/// A complete attachment.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) kind: AttachmentKind,
    pub(crate) job: JobId,
    pub(crate) bytes: Box<[u8]>,
}

/// An attachment whose next parts may follow.
#[derive(Debug)]
struct Incomplete {
    /// The part that was read last.
    last: Part,
    bytes: Vec<u8>,
}

/// Attachments, one directly after another, that wait for their record.
#[derive(Debug, Default)]
pub(crate) struct PendingAttachments {
    attachments: Vec<Incomplete>,
    /// The position at which the next part or the record must begin.
    end: LogPosition,
}

impl PendingAttachments {
    /// Adds the part at `at`. Returns the attachment if it stands alone and is now complete.
    pub(crate) fn add(
        &mut self,
        part: &Part,
        at: LogPosition,
    ) -> Result<Option<Attachment>, TryReserveError> {
        if self.end != at {
            self.attachments.clear();
        }
        self.end = LogPosition { offset: at.offset + SHORT_BYTES, ..at };
        if part.number == 0 {
            let is_after_whole_ones =
                self.attachments.iter().all(|before| before.last.is_last() && before.last.job == part.job);
            if !is_after_whole_ones || self.attachments.len() >= MAX_ATTACHMENTS {
                self.attachments.clear();
            }
            self.attachments.try_reserve(1)?;
            self.attachments.push(Incomplete { last: *part, bytes: Vec::new() });
        }
        let Some(incomplete) = self.attachments.last_mut() else { return Ok(None) };
        if part.number > 0 && !part.follows(&incomplete.last) {
            self.attachments.clear();
            return Ok(None);
        }
        incomplete.last = *part;
        incomplete.bytes.try_reserve(part.payload().len())?;
        incomplete.bytes.extend_from_slice(part.payload());
        if !part.kind.stands_alone() || !part.is_last() {
            return Ok(None);
        }
        let whole = self.attachments.pop();
        self.attachments.clear();
        Ok(whole.map(Incomplete::into_attachment))
    }

    /// Takes all attachments of the record of `job` that begins at `at`; none if one of them is incomplete.
    pub(crate) fn take(&mut self, job: JobId, at: LogPosition) -> Vec<Attachment> {
        if self.attachments.is_empty() {
            return Vec::new();
        }
        let pending = std::mem::take(&mut self.attachments);
        let is_whole = |one: &Incomplete| one.last.is_last() && one.last.job == job;
        if self.end != at || !pending.iter().all(is_whole) {
            return Vec::new();
        }
        pending.into_iter().map(Incomplete::into_attachment).collect()
    }
}

impl Incomplete {
    fn into_attachment(self) -> Attachment {
        Attachment { kind: self.last.kind, job: self.last.job, bytes: self.bytes.into_boxed_slice() }
    }
}

/// The tags of a full record.
#[derive(Debug)]
pub(crate) enum FoundTags {
    /// The job has no tags.
    None,
    /// The tags are stored before this record.
    Here(Box<[u8]>),
    /// The tags here are damaged, but are also stored before an earlier record of the job.
    Earlier,
    /// The tags are lost.
    Lost,
}

/// The tags of all jobs read so far, and the cooldowns.
#[derive(Debug, Default)]
pub(crate) struct Tagged {
    /// The tags of the jobs that have any.
    pub(crate) tags: IdMap<Box<[u8]>>,
    pub(crate) cooldowns: Cooldowns,
    /// For each group, the jobs that were read and wait for it; some may have been deleted since, or no longer wait.
    waiting: HashMap<Box<str>, Vec<JobId>>,
}

/// The side effects that precede a delete, if they can be read.
#[derive(Debug, Default)]
pub(crate) struct FoundSideEffects {
    pub(crate) cooldown: Option<Box<[u8]>>,
    pub(crate) freed_group: Option<Box<[u8]>>,
    /// How many full records directly before the delete form one change with it.
    pub(crate) completes: Option<u8>,
}

impl FoundSideEffects {
    /// The side effects in the attachments before a delete. `None` if there are none, or unexpected ones.
    pub(crate) fn of(attachments: Vec<Attachment>) -> Option<Self> {
        let mut found = Self::default();
        for Attachment { kind, bytes, .. } in attachments {
            match kind {
                AttachmentKind::DeleteCooldown if LoggedCooldown::decode(&bytes).is_some() => {
                    found.cooldown = Some(bytes);
                }
                AttachmentKind::DeleteFrees if TubeName::check(&bytes).is_some() => {
                    found.freed_group = Some(bytes)
                }
                AttachmentKind::Completes if bytes.len() == 1 => found.completes = Some(bytes[0]),
                AttachmentKind::DeleteCooldown | AttachmentKind::DeleteFrees | AttachmentKind::Completes => {
                    return None;
                }
                AttachmentKind::Tags
                | AttachmentKind::Cooldown
                | AttachmentKind::Frees
                | AttachmentKind::Forgets
                | AttachmentKind::Session => return None,
            }
        }
        let has_any = found.cooldown.is_some() || found.freed_group.is_some() || found.completes.is_some();
        has_any.then_some(found)
    }
}

impl Tagged {
    /// The tags of job `id`, empty if it has none.
    pub(crate) fn of(&self, id: JobId) -> &[u8] {
        self.tags.get(id).map_or(&[], |tags| tags)
    }

    /// The tags of a full record with tags, from the attachments before it.
    pub(crate) fn find(&self, id: JobId, mut attachments: Vec<Attachment>) -> FoundTags {
        match attachments.pop() {
            Some(Attachment { kind: AttachmentKind::Tags, bytes, .. })
                if attachments.is_empty() && JobTags::decode_checked(&bytes).is_some() =>
            {
                FoundTags::Here(bytes)
            }
            _ if self.tags.get(id).is_some() => FoundTags::Earlier,
            _ => FoundTags::Lost,
        }
    }

    /// Sets the tags of job `id` from its newest full record. Returns their length.
    pub(crate) fn set(&mut self, id: JobId, found: FoundTags) -> Result<usize, TryReserveError> {
        match found {
            FoundTags::None | FoundTags::Lost => {
                self.forget(id);
                Ok(0)
            }
            FoundTags::Earlier => Ok(self.of(id).len()),
            FoundTags::Here(bytes) => {
                let after = JobTags::decode_checked(&bytes).and_then(|tags| tags.after);
                if let Some(After { group, is_free: false }) = after {
                    if !self.waiting.contains_key(group.as_str()) {
                        self.waiting.try_reserve(1)?;
                        self.waiting.insert(group.as_str().into(), Vec::new());
                    }
                    if let Some(waiting) = self.waiting.get_mut(group.as_str()) {
                        waiting.try_reserve(1)?;
                        waiting.push(id);
                    }
                }
                let len = bytes.len();
                self.tags.insert(id, bytes);
                Ok(len)
            }
        }
    }

    /// Removes the tags of job `id`, which has none or is deleted.
    pub(crate) fn forget(&mut self, id: JobId) {
        if !self.tags.is_empty() {
            self.tags.remove(id);
        }
    }

    /// Takes the tags of job `id`, empty if it has none.
    pub(crate) fn take(&mut self, id: JobId) -> Box<[u8]> {
        if self.tags.is_empty() { Box::default() } else { self.tags.remove(id).unwrap_or_default() }
    }

    /// Frees the memory of the groups, because no further record frees one.
    pub(crate) fn forget_groups(&mut self) {
        self.waiting = HashMap::new();
    }

    /// Frees the jobs so far that wait for `group`. Returns their ids.
    pub(crate) fn free_group(&mut self, group: &[u8]) -> Vec<JobId> {
        let Some(group) = TubeName::check(group) else { return Vec::new() };
        let mut freed = self.waiting.remove(&*group).unwrap_or_default();
        freed.retain(|&id| match self.tags.get_mut(id) {
            Some(tags) if waits_for(tags, &group) => {
                JobTags::set_free(tags);
                true
            }
            _ => false,
        });
        freed
    }

    /// The groups without members for which jobs wait. A delete and the group that it frees are one change, so such a
    /// group can be left only by damage, by a power loss that lost unacknowledged puts, or by C.
    pub(crate) fn groups_without_members(&self) -> BTreeSet<Box<str>> {
        let tags = || self.tags.iter().filter_map(|(_, bytes)| JobTags::decode_checked(bytes));
        let members: HashSet<Name<'_>> = tags().filter_map(|tags| tags.group).collect();
        let waited_for = tags().filter_map(|tags| tags.after).filter(|after| !after.is_free);
        waited_for
            .map(|after| after.group)
            .filter(|group| !members.contains(group))
            .map(|group| Box::from(group.as_str()))
            .collect()
    }
}

/// Whether a job with these tags waits for `group`.
fn waits_for(tags: &[u8], group: &str) -> bool {
    let after = JobTags::decode_checked(tags).and_then(|tags| tags.after);
    after.is_some_and(|after| after.group.as_str() == group && !after.is_free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::parts;
    use crate::tags::{Idempotency, TagSet};

    const HERE: LogPosition = LogPosition { file: 3, offset: 4096 };
    const JOB: JobId = JobId(7);

    fn after(markers: u64) -> LogPosition {
        LogPosition { offset: HERE.offset + markers * SHORT_BYTES, ..HERE }
    }

    /// Reads the attachments, one directly after another, then the record of `job` at `at`.
    fn taken(
        attachments: &[(AttachmentKind, JobId, &[u8])],
        job: JobId,
        at: LogPosition,
    ) -> Vec<(AttachmentKind, Vec<u8>)> {
        let mut pending = PendingAttachments::default();
        let all = attachments.iter().flat_map(|&(kind, job, bytes)| Part::all(kind, job, bytes));
        for (number, part) in all.enumerate() {
            assert!(pending.add(&part, after(number as u64)).unwrap().is_none(), "none stands alone");
        }
        pending.take(job, at).into_iter().map(|one| (one.kind, one.bytes.into_vec())).collect()
    }

    #[test]
    fn attachments_belong_to_the_record_of_their_job_directly_after_them() {
        let long = [b'x'; 200];
        let length = parts(long.len());
        let tags: &[(AttachmentKind, JobId, &[u8])] = &[(AttachmentKind::Tags, JOB, &long)];
        assert_eq!(taken(tags, JOB, after(length)), [(AttachmentKind::Tags, long.to_vec())]);
        assert!(taken(tags, JOB, after(length + 1)).is_empty(), "something stands between them");
        assert!(taken(tags, JobId(8), after(length)).is_empty(), "the record is another job's");
        let two: &[(AttachmentKind, JobId, &[u8])] =
            &[(AttachmentKind::DeleteCooldown, JOB, b"a"), (AttachmentKind::DeleteFrees, JOB, b"b")];
        assert_eq!(taken(two, JOB, after(2)).len(), 2);
        let strange: &[(AttachmentKind, JobId, &[u8])] =
            &[(AttachmentKind::DeleteCooldown, JobId(8), b"a"), (AttachmentKind::DeleteFrees, JOB, b"b")];
        assert_eq!(taken(strange, JOB, after(2)), [(AttachmentKind::DeleteFrees, b"b".to_vec())]);
    }

    #[test]
    fn an_attachment_without_its_last_part_counts_for_nothing() {
        let mut pending = PendingAttachments::default();
        let first = Part::all(AttachmentKind::Tags, JOB, &[b'x'; 200]).next().unwrap();
        assert!(pending.add(&first, HERE).unwrap().is_none());
        assert!(pending.take(JOB, after(1)).is_empty());
    }

    #[test]
    fn tags_that_are_damaged_are_those_of_an_earlier_record_or_lost() {
        let mut bytes = Vec::new();
        let key = Idempotency { key: Name::try_from("key").unwrap(), cooldown_s: 60.into() };
        let tags = TagSet { idempotency: Some(key), ..TagSet::NONE };
        JobTags::from(tags).encode(&mut bytes).unwrap();
        let whole = |kind| Attachment { kind, job: JOB, bytes: bytes.clone().into_boxed_slice() };
        let damaged = || Attachment { bytes: Box::from(&b"\xff"[..]), ..whole(AttachmentKind::Tags) };
        let mut tagged = Tagged::default();
        for attachments in [vec![], vec![damaged()], vec![whole(AttachmentKind::DeleteFrees)]] {
            assert!(matches!(tagged.find(JOB, attachments), FoundTags::Lost));
        }
        // No writer puts anything before the tags.
        assert!(matches!(tagged.find(JOB, vec![damaged(), whole(AttachmentKind::Tags)]), FoundTags::Lost));
        let found = tagged.find(JOB, vec![whole(AttachmentKind::Tags)]);
        assert!(matches!(&found, FoundTags::Here(tags) if **tags == bytes[..]));
        assert_eq!(tagged.set(JOB, found).unwrap(), bytes.len());
        assert!(matches!(tagged.find(JOB, vec![damaged()]), FoundTags::Earlier));
        assert!(matches!(tagged.find(JobId(8), vec![]), FoundTags::Lost));
        tagged.forget(JOB);
        assert_eq!(tagged.of(JOB), b"");
        assert!(matches!(tagged.find(JOB, vec![]), FoundTags::Lost));
    }

    #[test]
    fn the_side_effects_of_a_delete_are_understood_as_a_whole_or_not_at_all() {
        let one = |kind, bytes: &[u8]| Attachment { kind, job: JOB, bytes: bytes.into() };
        let cooldown = b"\x09\0\0\0\0\0\0\0\x07defaultkey";
        let found = FoundSideEffects::of(vec![
            one(AttachmentKind::DeleteCooldown, cooldown),
            one(AttachmentKind::DeleteFrees, b"g"),
        ]);
        let found = found.expect("both are understood");
        assert_eq!(
            (found.cooldown.as_deref(), found.freed_group.as_deref()),
            (Some(&cooldown[..]), Some(&b"g"[..]))
        );
        assert!(FoundSideEffects::of(vec![one(AttachmentKind::DeleteCooldown, cooldown)]).is_some());
        assert!(FoundSideEffects::of(vec![one(AttachmentKind::DeleteFrees, b"g")]).is_some());
        for strange in [
            vec![],
            vec![one(AttachmentKind::DeleteCooldown, b"\x01")],
            vec![one(AttachmentKind::DeleteFrees, b"no tube's name")],
            vec![one(AttachmentKind::Tags, b"g")],
            vec![one(AttachmentKind::DeleteCooldown, cooldown), one(AttachmentKind::Tags, b"g")],
        ] {
            assert!(FoundSideEffects::of(strange).is_none());
        }
    }
}
