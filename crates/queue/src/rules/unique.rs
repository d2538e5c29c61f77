//! The tag `idp`: a job is the only one with its key in its tube.
//!
//! Owns: the job of each key, and the cooldowns: keys that still count for a while after their job was deleted. A tube
//! with a running cooldown stays, because the key belongs to that tube.

use std::collections::BTreeMap;
use std::hash::RandomState;

use beanstalkd_structures::{HashIndex, OrderedQueue, Timer};

use super::{Ending, JobEnd, MarkedJob, Rule, Rules};
use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Priority};
use crate::seconds::Seconds;
use crate::state::index::mixed;
use crate::state::jobs::Marks;
use crate::state::keys::{DueKey, TubeKey, hash_of};
use crate::state::tubes::TubeTagState;
use crate::tags::{Idempotency, Name, TagSet};
use crate::tube_name::TubeName;
use crate::{Change, Queue};

/// The memory of a cooldown whose key has `key_bytes`, in bytes.
pub(crate) fn cooldown_bytes(key_bytes: usize) -> usize {
    192 + key_bytes
}

/// The keys in use.
#[derive(Debug, Default)]
pub(crate) struct UniqueKeys {
    /// The jobs that have a key, and the deleted ones whose cooldown runs.
    pub(super) index: HashIndex<JobId>,
    pub(super) cooldowns: BTreeMap<JobId, RunningCooldown>,
    /// The ends of the cooldowns.
    pub(super) due: OrderedQueue<DueKey>,
    /// The memory of the cooldowns, in bytes.
    pub(super) bytes: usize,
    /// The memory of the cooldowns that existing jobs will begin when they are deleted, in bytes.
    pub(super) reserved_bytes: usize,
    /// Longer cooldowns are cut to this many seconds.
    pub(super) max_s: Option<u32>,
    /// Whether jobs with the same key were restored from a log: after a power loss in which a delete was not synced.
    pub(super) has_duplicates: bool,
}

/// A cooldown that runs: the key of a deleted job.
#[derive(Debug)]
pub(super) struct RunningCooldown {
    pub(super) tube: TubeKey,
    pub(super) key: Box<str>,
    pub(super) until: Timestamp,
    /// The owner that is charged for it.
    pub(super) owner: Option<Box<str>>,
}

/// The cooldowns that run, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say everything")]
pub struct CooldownSums {
    pub count: u64,
    pub bytes: u64,
}

impl TubeTagState {
    pub(crate) fn cooldown_sums(&self) -> CooldownSums {
        CooldownSums { count: self.cooldowns.len() as u64, bytes: self.cooldown_bytes as u64 }
    }
}

/// The job or the cooldown that uses the key of a `put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// This job has it.
    Of(JobId, JobState),
    /// This job had it until it was deleted.
    OfDeleted(JobId),
}

impl UniqueKeys {
    /// The hash by which the job with a key in a tube is found. Two keys can have the same hash, so code that finds a
    /// job also compares its tags.
    fn hash(hasher: &RandomState, tube: TubeKey, key: Name<'_>) -> u64 {
        mixed(hash_of(hasher, key.as_bytes()), tube.0.into())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes that count for owners.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (&str, usize)> {
        let cooldowns = self.cooldowns.values();
        cooldowns
            .filter_map(|cooldown| Some((cooldown.owner.as_deref()?, cooldown_bytes(cooldown.key.len()))))
    }
}

/// The memory of the cooldown for this tag, if it has one.
fn reserved_bytes(tag: Idempotency<'_>) -> usize {
    if tag.cooldown_s.is_zero() { 0 } else { cooldown_bytes(tag.key.len()) }
}

impl Rules {
    /// The cooldowns that run, and their memory.
    pub(crate) fn cooldowns(&self) -> CooldownSums {
        CooldownSums { count: self.unique.cooldowns.len() as u64, bytes: self.unique.bytes as u64 }
    }

    /// The memory of the cooldowns that existing jobs will begin when they are deleted, in bytes.
    pub(crate) fn reserved_cooldown_bytes(&self) -> u64 {
        self.unique.reserved_bytes as u64
    }
}

impl Rule for UniqueKeys {
    const ADDED: Marks = Marks::TAGGED;
    fn added(queue: &mut Queue, job: &MarkedJob<'_>) {
        if let Some(tag) = job.tags.idempotency {
            queue.claim_key(job.id, job.tube, tag.key);
            queue.rules.unique.reserved_bytes += reserved_bytes(tag);
        }
    }

    fn moved(queue: &mut Queue, job: &MarkedJob<'_>, from: TubeKey) {
        if let Some(tag) = job.tags.idempotency {
            queue.free_key(job.id, from, tag.key);
            queue.claim_key(job.id, job.tube, tag.key);
        }
    }

    fn retagged(queue: &mut Queue, before: &MarkedJob<'_>, after: &MarkedJob<'_>) {
        if let (Some(tag), None) = (before.tags.idempotency, after.tags.idempotency) {
            queue.rules.unique.reserved_bytes -= reserved_bytes(tag);
            queue.free_key(before.id, before.tube, tag.key);
        }
    }

    const ENDED: Marks = Marks::TAGGED;
    fn ended(queue: &mut Queue, job: &MarkedJob<'_>, end: &mut JobEnd) {
        let Some(tag) = job.tags.idempotency else { return };
        queue.rules.unique.reserved_bytes -= reserved_bytes(tag);
        if end.ending == Ending::Deleted && !tag.cooldown_s.is_zero() {
            let earlier = queue.cooldown_of_key(job.tube, tag.key);
            let until = end.now.plus_seconds(queue.cooldown_s(tag));
            let until = earlier.map_or(until, |(_, earlier)| until.max(earlier));
            queue.begin_cooldown(job.id, job.tube, tag.key.as_str(), until, job.tags.owner.map(Name::as_str));
            if let Some((id, _)) = earlier {
                queue.end_cooldown(id);
            }
            end.begins_cooldown = true;
        } else {
            queue.free_key(job.id, job.tube, tag.key);
        }
    }

    /// The end of the first cooldown.
    fn next_due(rules: &Rules) -> Option<DueKey> {
        rules.unique.due.first()
    }

    fn tick(queue: &mut Queue, id: JobId) -> bool {
        queue.end_cooldown(id);
        false
    }

    #[inline]
    fn check(queue: &Queue) {
        let unique = &queue.rules.unique;
        assert_eq!(unique.due.len(), unique.cooldowns.len(), "each cooldown ends");
        let mut keys: Vec<(TubeKey, String)> = Vec::new();
        for id in queue.jobs.ids() {
            if let Some(tag) = queue.tags(id).and_then(|tags| tags.idempotency) {
                let job = queue.jobs.expect(id);
                let hash = UniqueKeys::hash(&queue.rules.hasher, job.tube, tag.key);
                assert!(unique.index.all(hash).any(|other| other == id), "a key in use is indexed");
                keys.push((job.tube, tag.key.as_str().to_owned()));
            }
        }
        assert_eq!(unique.index.len(), keys.len() + unique.cooldowns.len());
        keys.sort_unstable();
        let are_unique = keys.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(are_unique || unique.has_duplicates, "a key is in use once in a tube");
        for (id, cooldown) in &unique.cooldowns {
            assert!(queue.jobs.get(*id).is_none(), "a cooldown begins with a delete");
            let tube = queue.tubes.get(cooldown.tube);
            assert!(tube.tag_state().is_some_and(|tagged| tagged.cooldowns.iter().any(|other| other == *id)));
        }
        let in_tubes = || queue.tubes.iter().filter_map(|tube| tube.tag_state());
        assert_eq!(in_tubes().map(|tagged| tagged.cooldowns.len()).sum::<usize>(), unique.cooldowns.len());
        assert_eq!(in_tubes().map(|tagged| tagged.cooldown_bytes).sum::<usize>(), unique.bytes);
        let keys = unique.cooldowns.values().map(|cooldown| cooldown_bytes(cooldown.key.len()));
        assert_eq!(keys.sum::<usize>(), unique.bytes);
        let tags = queue.jobs.ids().filter_map(|id| queue.tags(id)?.idempotency);
        assert_eq!(tags.map(reserved_bytes).sum::<usize>(), unique.reserved_bytes);
    }
}

impl Queue {
    /// Cuts new cooldowns to this many seconds; `None` means no limit.
    pub fn limit_cooldowns(&mut self, max_s: Option<u32>) {
        self.rules.unique.max_s = max_s;
    }

    /// The length of the cooldown for this tag, whose job may have been put under another limit.
    #[inline]
    #[must_use]
    pub fn cooldown_s(&self, tag: Idempotency<'_>) -> Seconds {
        let max_s = self.rules.unique.max_s;
        max_s.map_or(tag.cooldown_s, |max_s| tag.cooldown_s.min(max_s.into()))
    }

    /// The memory of the cooldowns, and of the cooldown of a job with these tags, in bytes.
    #[must_use]
    pub fn cooldown_bytes_with(&self, tags: &TagSet<'_>) -> u64 {
        let unique = &self.rules.unique;
        (unique.bytes + unique.reserved_bytes + tags.idempotency.map_or(0, reserved_bytes)) as u64
    }

    /// The job of this tube with this key, or the deleted one whose cooldown runs.
    pub(crate) fn holder_of_key(&self, tube: TubeKey, key: Name<'_>, now: Timestamp) -> Option<Duplicate> {
        self.holder_of_key_after(None, tube, key, now)
    }

    /// Finds the job or the cooldown that has this key when the job `ended` has ended.
    #[inline(always)]
    pub(crate) fn holder_of_key_after(
        &self,
        ended: Option<JobId>,
        tube: TubeKey,
        key: Name<'_>,
        now: Timestamp,
    ) -> Option<Duplicate> {
        let unique = &self.rules.unique;
        // Several jobs have the key only if they were restored so: the oldest counts.
        let (mut first, mut cooling): (Option<(JobId, JobState)>, Option<JobId>) = (None, None);
        for id in unique.index.all(UniqueKeys::hash(&self.rules.hasher, tube, key)) {
            if let Some(cooldown) = unique.cooldowns.get(&id) {
                if cooldown.tube == tube && cooldown.key.as_bytes() == key.as_bytes() && cooldown.until > now
                {
                    cooling = cooling.max(Some(id));
                }
            } else if let Some(job) = self.jobs.get(id)
                && job.tube == tube
                && ended != Some(id)
                && first.is_none_or(|(first, _)| id < first)
                && self.expect_tags(id).idempotency.is_some_and(|tag| tag.key == key)
            {
                first = Some((id, job.state()));
            }
        }
        let first = first.map(|(id, state)| Duplicate::Of(id, state));
        first.or(cooling.map(Duplicate::OfDeleted))
    }

    /// The cooldown of this key in this tube, and when it ends. If a job with the key was moved here and is deleted,
    /// its cooldown takes the place of this one, so that no key is in the index many times.
    fn cooldown_of_key(&self, tube: TubeKey, key: Name<'_>) -> Option<(JobId, Timestamp)> {
        let unique = &self.rules.unique;
        unique.index.all(UniqueKeys::hash(&self.rules.hasher, tube, key)).find_map(|id| {
            let cooldown = unique.cooldowns.get(&id)?;
            let is_it = cooldown.tube == tube && cooldown.key.as_bytes() == key.as_bytes();
            is_it.then_some((id, cooldown.until))
        })
    }

    /// Whether a duplicate with this priority makes the job more urgent.
    #[must_use]
    pub fn would_upgrade(&self, id: JobId, priority: Priority) -> bool {
        self.jobs.get(id).is_some_and(|job| priority < job.priority)
    }

    /// Notes that the job with this key has come into its tube.
    pub(crate) fn claim_key(&mut self, id: JobId, tube: TubeKey, key: Name<'_>) {
        let hash = UniqueKeys::hash(&self.rules.hasher, tube, key);
        self.rules.unique.index.insert(hash, id);
    }

    /// Notes a restored job with this key: another one may have been restored with it.
    pub(crate) fn note_duplicate(&mut self, tube: &str, key: Name<'_>, now: Timestamp) {
        let duplicate = self.tubes.find(tube).and_then(|tube| self.holder_of_key(tube, key, now));
        self.rules.unique.has_duplicates |= matches!(duplicate, Some(Duplicate::Of(..)));
    }

    /// Notes that the job has left its tube.
    pub(crate) fn free_key(&mut self, id: JobId, tube: TubeKey, key: Name<'_>) {
        let hash = UniqueKeys::hash(&self.rules.hasher, tube, key);
        let found = self.rules.unique.index.remove(hash, |other| other == id);
        assert!(found.is_some(), "a key in use is indexed");
    }

    /// Keeps the key of a deleted job until `until`. The index has it, or will get it.
    pub(crate) fn begin_cooldown(
        &mut self,
        id: JobId,
        tube: TubeKey,
        key: &str,
        until: Timestamp,
        owner: Option<&str>,
    ) {
        let bytes = cooldown_bytes(key.len());
        if let Some(owner) = owner {
            self.rules.owners.add(owner, bytes as u64);
        }
        let unique = &mut self.rules.unique;
        unique.bytes += bytes;
        unique
            .cooldowns
            .insert(id, RunningCooldown { tube, key: key.into(), until, owner: owner.map(Box::from) });
        unique.due.insert((until, id));
        let tagged = self.tubes.get_mut(tube).tag_state_mut();
        tagged.cooldowns.insert(id);
        tagged.cooldown_bytes += bytes;
        self.schedule(Timer::Rules);
    }

    /// Restores a cooldown after a restart, in the tube of this valid name. It lasts no longer than a new one, even if
    /// the wall clock has been set back.
    pub fn restore_cooldown(&mut self, id: JobId, name: &str, key: &str, until: Timestamp, now: Timestamp) {
        let tube = self.tubes.find_or_make(name);
        let until = self.rules.unique.max_s.map_or(until, |max_s| until.min(now.plus_seconds(max_s)));
        self.claim_key(id, tube, Name::again(key.as_bytes()));
        self.begin_cooldown(id, tube, key, until, None);
        self.numbers.skip_ids_below(id.0.saturating_add(1));
    }

    /// The tube, the key and the end of the cooldown that the job's delete began, if it still runs.
    #[must_use]
    pub fn cooldown(&self, id: JobId) -> Option<(&TubeName, &str, Timestamp)> {
        let RunningCooldown { tube, key, until, .. } = self.rules.unique.cooldowns.get(&id)?;
        Some((&self.tubes.get(*tube).name, key, *until))
    }

    /// Ends the cooldown of a deleted job.
    pub fn end_cooldown(&mut self, id: JobId) {
        let unique = &mut self.rules.unique;
        let Some(RunningCooldown { tube, key, until, owner }) = unique.cooldowns.remove(&id) else { return };
        let bytes = cooldown_bytes(key.len());
        unique.bytes -= bytes;
        unique.due.remove((until, id));
        if let Some(owner) = owner {
            self.rules.owners.subtract(&owner, bytes as u64);
        }
        self.free_key(id, tube, Name::again(key.as_bytes()));
        let tagged = self.tubes.get_mut(tube).tag_state_mut();
        tagged.cooldowns.remove(id);
        tagged.cooldown_bytes -= bytes;
        self.note(Change::CooldownOver(id));
        self.remove_tube_if_idle(tube);
    }
}
