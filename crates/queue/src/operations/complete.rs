//! The command `complete`: a job ends, and others come, in one step.
//!
//! Owns: what each put of it would be, decided before anything changes; and the order of the changes. The job ends
//! first, so that its keys are free for the puts; its group does not end if a put joins it.

use std::collections::{BTreeMap, TryReserveError};

use super::put::NewJob;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, Priority};
use crate::rules::Ending;
use crate::rules::tag_storage::StoredBody;
use crate::rules::unique::Duplicate;
use crate::state::jobs::marks;
use crate::tags::{EncodedTags, Name};
use crate::{ClientId, Queue};

/// What a put of a `complete` asks for.
#[derive(Clone, Copy, Debug)]
pub struct CompletedPut<'a> {
    /// The job, if it is new.
    pub new: NewJob,
    /// Its tags in their bytes; none if it has none.
    pub tags: &'a [u8],
    /// Its tube, if it is not the one that the client uses.
    pub tube: Option<&'a str>,
    /// The length of its body in bytes.
    pub body_bytes: usize,
}

impl<'a> CompletedPut<'a> {
    /// Its tags.
    ///
    /// # Panics
    /// If their bytes are not those of tags.
    #[must_use]
    pub fn tags(&self) -> EncodedTags<'a> {
        EncodedTags::read(self.tags).expect("the bytes of tags are tags")
    }

    /// Its key, if it is to be the only job with it in its tube.
    fn key(&self) -> Option<Name<'a>> {
        if self.tags.is_empty() {
            return None;
        }
        self.tags().set().idempotency.map(|tag| tag.key)
    }
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

/// Says of the puts of a `complete`, one after the other, what becomes of them.
struct Planning<'a> {
    queue: &'a Queue,
    client: ClientId,
    /// The job that ends.
    completed: JobId,
    now: Timestamp,
    /// The job for each tube and key of those that were planned, and its priority if it is there.
    keys: BTreeMap<(&'a str, &'a str), (JobId, Option<Priority>)>,
    /// What was planned for each tube, if there are rules.
    loads: BTreeMap<&'a str, Load>,
}

impl<'a> Planning<'a> {
    /// What becomes of the next put.
    #[inline]
    fn plan(&mut self, put: &CompletedPut<'a>) -> Planned {
        let key = put.key().map(|key| (self.queue.target_of(self.client, put.tube), key.as_str()));
        if let Some(key) = key
            && let Some((first, priority)) = self.first_with(key)
        {
            let more_urgent = priority.is_some_and(|priority| put.new.priority < priority);
            if more_urgent {
                self.keys.insert(key, (first, Some(put.new.priority)));
            }
            return Planned::Duplicate { first, more_urgent };
        }
        if !self.queue.tubes.rules.is_empty() && !self.finds_room(put) {
            return Planned::TubeFull;
        }
        if let Some(key) = key {
            self.keys.insert(key, (put.new.id, Some(put.new.priority)));
        }
        Planned::New
    }

    /// The job with this key, or the one that had it.
    fn first_with(&self, key: (&str, &str)) -> Option<(JobId, Option<Priority>)> {
        let planned = self.keys.get(&key).copied();
        planned.or_else(|| self.queue.first_with(key, self.completed, self.now))
    }

    /// Whether the tube of a put has room for it, which is taken then.
    #[cold]
    fn finds_room(&mut self, put: &CompletedPut<'a>) -> bool {
        let tube = self.queue.target_of(self.client, put.tube);
        let load = self.loads.entry(tube).or_default();
        let has_room = !self.queue.is_full_without(self.completed, tube, *load, put.body_bytes);
        if has_room {
            *load = Load { jobs: load.jobs + 1, bytes: load.bytes + put.body_bytes as u64 };
        }
        has_room
    }
}

impl Queue {
    /// What becomes of the puts of a `complete` of this job, which is there. Nothing changes.
    pub fn plan_complete<'a>(
        &'a self,
        client: ClientId,
        completed: JobId,
        puts: impl Iterator<Item = CompletedPut<'a>>,
        now: Timestamp,
    ) -> impl Iterator<Item = Planned> {
        let (keys, loads) = (BTreeMap::new(), BTreeMap::new());
        let mut planning = Planning { queue: self, client, completed, now, keys, loads };
        puts.map(move |put| planning.plan(&put))
    }

    /// The name of the tube into which a put goes.
    fn target_of<'a>(&'a self, client: ClientId, tube: Option<&'a str>) -> &'a str {
        tube.unwrap_or_else(|| self.used_tube(client).as_str())
    }

    /// The job in this tube that has this key, with its priority, or the one that had it. The key of the job that is
    /// completed is free.
    fn first_with(
        &self,
        (tube, key): (&str, &str),
        completed: JobId,
        now: Timestamp,
    ) -> Option<(JobId, Option<Priority>)> {
        let tube = self.tubes.find(tube)?;
        match self.holder_of_key_after(Some(completed), tube, key.into(), now)? {
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

    /// Makes a body ready to be stored with its tags in their bytes.
    ///
    /// # Errors
    /// If the allocator has no memory.
    #[inline]
    pub fn pack(body: Body, tags: &[u8]) -> Result<PackedBody, TryReserveError> {
        match tags {
            [] => Ok(PackedBody(StoredBody { body, separate_tags: None })),
            bytes => StoredBody::new(body, bytes, false).map(PackedBody),
        }
    }

    /// The command `complete`: deletes the job, which the client has reserved, and does with each put, whose body comes
    /// beside it, what is planned. Returns the body of the job.
    pub fn complete<'a>(
        &mut self,
        client: ClientId,
        id: JobId,
        puts: impl Iterator<Item = CompletedPut<'a>> + Clone,
        bodies: impl Iterator<Item = PackedBody>,
        plan: &[Planned],
        now: Timestamp,
    ) -> Option<Body> {
        let is_tagged = self.jobs.get(id).is_some_and(|job| job.has(marks::TAGGED));
        let (ending, group) = match is_tagged {
            true => self.ending_of_completed(client, id, puts.clone().zip(plan)),
            false => (Ending::Deleted, None),
        };
        if let Some(group) = &group {
            self.rules.groups.keep(group);
        }
        let body = self.delete_with(client, id, ending, now);
        for ((put, packed), planned) in puts.zip(bodies).zip(plan) {
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

    /// How a job with tags ends if such puts follow: its key counts no longer if a put takes it, and its group
    /// stays if a put joins it.
    #[cold]
    fn ending_of_completed<'a, 'b>(
        &self,
        client: ClientId,
        id: JobId,
        puts: impl Iterator<Item = (CompletedPut<'a>, &'b Planned)>,
    ) -> (Ending, Option<Box<str>>) {
        let tags = self.expect_tags(id);
        let (tube, key) = (self.jobs.get(id).map(|job| job.tube), tags.idempotency.map(|tag| tag.key));
        let (mut ending, mut stays) = (Ending::Deleted, false);
        for (put, _) in puts.filter(|(_, planned)| **planned == Planned::New) {
            stays |= put.tags().set().group == tags.group;
            let takes_key = key.is_some() && put.key() == key;
            if takes_key && self.tubes.find(self.target_of(client, put.tube)) == tube {
                ending = Ending::Flushed;
            }
        }
        (ending, tags.group.filter(|_| stays).map(|group| group.as_str().into()))
    }

    fn put_completed(
        &mut self,
        client: ClientId,
        put: &CompletedPut<'_>,
        PackedBody(mut packed): PackedBody,
        now: Timestamp,
    ) {
        let before = put.tube.map(|tube| self.use_for_put(client, tube));
        if put.tags.is_empty() {
            self.put(client, put.new, packed.body, now);
        } else {
            let tags = put.tags();
            let tags = tags.set();
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
