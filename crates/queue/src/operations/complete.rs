//! The command `complete`: a job ends, and others come, in one step.
//!
//! Owns: what each put of it would be, decided before anything changes; and the order of the changes. The job ends
//! first, so that its keys are free for the puts; its group does not end if a put joins it.

use std::collections::{BTreeMap, TryReserveError};

use super::put::NewJob;
use crate::clock::Timestamp;
use crate::job::{Body, JobId};
use crate::rules::Ending;
use crate::rules::tag_storage::StoredBody;
use crate::rules::unique::Duplicate;
use crate::tags::{EncodedTags, Name, TagSet};
use crate::{ClientId, Queue};

/// What a put of a `complete` asks for.
#[derive(Clone, Copy, Debug)]
pub struct CompletedPut<'a> {
    /// The job, if it is new.
    pub new: NewJob,
    /// Its tags, with the tube that they name.
    pub tags: EncodedTags<'a>,
    /// The length of its body in bytes.
    pub body_bytes: usize,
}

/// What becomes of a put of a `complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// Its job is stored.
    New,
    /// This job has its key, or had it; it gets the priority of the put if that is `more_urgent`.
    Duplicate {
        /// The job.
        first: JobId,
        /// Whether the put has a more urgent priority.
        more_urgent: bool,
    },
    /// A rule limits its tube, and there is no room.
    TubeFull,
}

/// The body of a put, with its tags, ready to become a job.
#[derive(Debug)]
pub struct PackedBody(StoredBody);

/// What is planned for a tube.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    jobs: u64,
    bytes: u64,
}

impl Queue {
    /// What becomes of the puts of a `complete` of this job, which is there. Nothing changes.
    #[must_use]
    pub fn plan_complete(
        &self,
        client: ClientId,
        id: JobId,
        puts: &[CompletedPut<'_>],
        now: Timestamp,
    ) -> Vec<Planned> {
        let (mut keys, mut loads) = (BTreeMap::new(), BTreeMap::<&str, Load>::new());
        let mut plan = Vec::with_capacity(puts.len());
        for put in puts {
            let tube = self.target_of(client, put.tags.set());
            let key = put.tags.set().idempotency.map(|tag| (tube, tag.key.as_str()));
            let first = key.and_then(|key| keys.get(&key).copied().or_else(|| self.first_with(key, id, now)));
            plan.push(match first {
                Some((first, priority)) => {
                    let more_urgent = priority.is_some_and(|priority| put.new.priority < priority);
                    if more_urgent && let Some(key) = key {
                        keys.insert(key, (first, Some(put.new.priority)));
                    }
                    Planned::Duplicate { first, more_urgent }
                }
                None => {
                    let load = loads.entry(tube).or_default();
                    if self.is_full_without(id, tube, *load, put.body_bytes) {
                        Planned::TubeFull
                    } else {
                        (load.jobs, load.bytes) = (load.jobs + 1, load.bytes + put.body_bytes as u64);
                        if let Some(key) = key {
                            keys.insert(key, (put.new.id, Some(put.new.priority)));
                        }
                        Planned::New
                    }
                }
            });
        }
        plan
    }

    /// The name of the tube into which a put with these tags goes.
    fn target_of<'a>(&'a self, client: ClientId, tags: &TagSet<'a>) -> &'a str {
        tags.tube.map_or_else(|| self.used_tube(client).as_str(), Name::as_str)
    }

    /// The job in this tube that has this key, with its priority, or the one that had it. The key of the job that is
    /// completed is free.
    fn first_with(
        &self,
        (tube, key): (&str, &str),
        completed: JobId,
        now: Timestamp,
    ) -> Option<(JobId, Option<crate::job::Priority>)> {
        let tube = self.tubes.find(tube)?;
        match self.holder_of_key(tube, key.into(), now)? {
            Duplicate::Of(first, _) if first == completed => None,
            Duplicate::Of(first, _) => Some((first, self.jobs.get(first).map(|job| job.priority))),
            Duplicate::OfDeleted(first) => Some((first, None)),
        }
    }

    /// Whether a tube that has got this load already takes no further body of so many bytes when the job is gone.
    fn is_full_without(&self, completed: JobId, name: &str, load: Load, body_bytes: usize) -> bool {
        let Some(tube) = self.tubes.find(name) else {
            let rule = self.tubes.rules.find(name);
            return rule.is_some_and(|rule| !rule.has_room(load.jobs, load.bytes, body_bytes));
        };
        let record = self.tubes.get(tube);
        let ruled = record.ruled.as_ref().and_then(|ruled| Some((ruled.rule.as_ref()?, ruled.bytes)));
        let Some((rule, bytes)) = ruled else { return false };
        let gone = self.jobs.get(completed).filter(|job| job.tube == tube);
        let gone_bytes = gone.map_or(0, |job| job.body().len() as u64);
        let jobs = record.job_counts().total() as u64 + load.jobs - u64::from(gone.is_some());
        !rule.has_room(jobs, bytes + load.bytes - gone_bytes, body_bytes)
    }

    /// Makes a body ready to be stored with its tags.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub fn pack(body: Body, tags: &EncodedTags<'_>) -> Result<PackedBody, TryReserveError> {
        match tags.bytes() {
            [] => Ok(PackedBody(StoredBody { body, aside: None })),
            bytes => StoredBody::new(body, bytes, false).map(PackedBody),
        }
    }

    /// The command `complete`: deletes the job, which the client has reserved, and does with each put what is planned.
    /// Returns the body of the job.
    pub fn complete(
        &mut self,
        client: ClientId,
        id: JobId,
        puts: Vec<(CompletedPut<'_>, PackedBody)>,
        plan: &[Planned],
        now: Timestamp,
    ) -> Option<Body> {
        let news = || puts.iter().zip(plan).filter(|(_, planned)| **planned == Planned::New);
        let tags = self.tags(id);
        let key = tags.as_ref().and_then(|tags| Some((self.jobs.get(id)?.tube, tags.idempotency?.key)));
        let takes_key = news().any(|((put, _), _)| {
            let tags = put.tags.set();
            let tube = self.tubes.find(self.target_of(client, tags));
            tags.idempotency.is_some() && tube.zip(tags.idempotency.map(|tag| tag.key)) == key
        });
        let group = tags
            .as_ref()
            .and_then(|tags| tags.group)
            .filter(|&group| news().any(|((put, _), _)| put.tags.set().group == Some(group)));
        let group: Option<Box<str>> = group.map(|group| group.as_str().into());
        if let Some(group) = &group {
            self.rules.groups.keep(group);
        }
        // The key counts no longer if a put takes it.
        let ending = if takes_key { Ending::Flushed } else { Ending::Deleted };
        let body = self.delete_with(client, id, ending, now);
        for ((put, packed), planned) in puts.into_iter().zip(plan) {
            match *planned {
                Planned::New => self.put_completed(client, &put, packed, now),
                Planned::Duplicate { first, more_urgent: true } if self.jobs.get(first).is_some() => {
                    self.upgrade(first, put.new.priority, now);
                }
                Planned::Duplicate { .. } | Planned::TubeFull => {}
            }
        }
        if let Some(group) = &group {
            self.rules.groups.keep_no_longer(group);
        }
        body
    }

    fn put_completed(
        &mut self,
        client: ClientId,
        put: &CompletedPut<'_>,
        PackedBody(mut packed): PackedBody,
        now: Timestamp,
    ) {
        let tags = put.tags.set();
        let before = tags.tube.map(|tube| self.use_for_put(client, tube.as_str()));
        if put.tags.bytes().is_empty() {
            self.put(client, put.new, packed.body, now);
        } else {
            let waits_for = self.awaited_group(tags);
            if tags.after.is_some() && waits_for.is_none() {
                packed.set_free();
            }
            self.put_packed(client, put.new, packed, tags, waits_for, now);
        }
        if let Some(before) = before {
            self.use_again(client, before);
        }
    }
}
