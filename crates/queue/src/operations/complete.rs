//! The command `complete`: a job ends, and new jobs are put, in one step.
//!
//! Owns: the outcome of each of its puts, decided before anything changes, and the order of the changes. The job ends
//! first, so that its keys are free for the puts; its group does not end if a put joins it.

use std::collections::{BTreeMap, TryReserveError};

use super::put::NewJob;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, Priority};
use crate::rules::Ending;
use crate::rules::unique::Duplicate;
use crate::state::jobs::Marks;
use crate::state::stored_body::StoredBody;
use crate::tags::{EncodedTags, Name};
use crate::{ClientId, Queue};

/// A put of a `complete`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct CompletedPut<'a> {
    /// The job, if it is new.
    pub new: NewJob,
    pub tags: &'a EncodedTags<'a>,
    /// The tube of the job, if that is not the tube that the client uses.
    pub tube: Option<&'a str>,
    pub body_bytes: usize,
}

impl<'a> CompletedPut<'a> {
    /// The idempotency key of the job, if it has one.
    fn key(&self) -> Option<Name<'a>> {
        self.tags.set().idempotency.map(|tag| tag.key)
    }
}

/// The outcome of a put of a `complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the comment of a variant names its fields")]
pub enum Planned {
    /// The job of the put is stored.
    New,
    /// The job `first` has the key of the put, or had it; it gets the priority of the put if that is `more_urgent`.
    Duplicate { first: JobId, more_urgent: bool },
}

/// A rule limits the tube of a put, and the tube is full: the `complete` must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TubeFull;

/// The body of a put, encoded with its tags, to become a job.
#[derive(Debug)]
pub struct EncodedBody(StoredBody);

/// The planned puts for a tube.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    jobs: u64,
    bytes: u64,
}

/// Decides the outcomes of the puts of a `complete`, one after the other.
struct Planning<'a> {
    queue: &'a Queue,
    client: ClientId,
    /// The job that ends.
    completed: JobId,
    now: Timestamp,
    /// For each tube and key of the planned puts: the job, and its priority if the job exists.
    keys: BTreeMap<(&'a str, &'a str), (JobId, Option<Priority>)>,
    /// The planned puts for each tube, if there are rules.
    loads: BTreeMap<&'a str, Load>,
}

impl<'a> Planning<'a> {
    /// The outcome of the next put.
    #[inline]
    fn plan(&mut self, put: &CompletedPut<'a>) -> Result<Planned, TubeFull> {
        let key = put.key().map(|key| (self.queue.target_tube_name(self.client, put.tube), key.as_str()));
        if let Some(key) = key
            && let Some((first, priority)) = self.first_with(key)
        {
            let more_urgent = priority.is_some_and(|priority| put.new.priority < priority);
            if more_urgent {
                self.keys.insert(key, (first, Some(put.new.priority)));
            }
            return Ok(Planned::Duplicate { first, more_urgent });
        }
        if !self.queue.tubes.rules.is_empty() && !self.finds_room(put) {
            return Err(TubeFull);
        }
        if let Some(key) = key {
            self.keys.insert(key, (put.new.id, Some(put.new.priority)));
        }
        Ok(Planned::New)
    }

    /// The job with this key, or the deleted job whose cooldown runs.
    fn first_with(&self, key: (&str, &str)) -> Option<(JobId, Option<Priority>)> {
        let planned = self.keys.get(&key).copied();
        planned.or_else(|| self.queue.first_with(key, self.completed, self.now))
    }

    /// Whether the tube of a put has room for it; if so, takes the room.
    #[cold]
    fn finds_room(&mut self, put: &CompletedPut<'a>) -> bool {
        let tube = self.queue.target_tube_name(self.client, put.tube);
        let load = self.loads.entry(tube).or_default();
        let has_room = !self.queue.is_full_without(self.completed, tube, *load, put.body_bytes);
        if has_room {
            *load = Load { jobs: load.jobs + 1, bytes: load.bytes + put.body_bytes as u64 };
        }
        has_room
    }
}

impl Queue {
    /// The outcomes of the puts of a `complete` of this job. Changes nothing.
    pub fn plan_complete<'a>(
        &'a self,
        client: ClientId,
        completed: JobId,
        puts: impl Iterator<Item = CompletedPut<'a>>,
        now: Timestamp,
    ) -> impl Iterator<Item = Result<Planned, TubeFull>> {
        let (keys, loads) = (BTreeMap::new(), BTreeMap::new());
        let mut planning = Planning { queue: self, client, completed, now, keys, loads };
        puts.map(move |put| planning.plan(&put))
    }

    /// The job in this tube that has this key, with its priority, or the deleted job whose cooldown runs. The key of
    /// the completed job is free.
    fn first_with(
        &self,
        (tube, key): (&str, &str),
        completed: JobId,
        now: Timestamp,
    ) -> Option<(JobId, Option<Priority>)> {
        let tube = self.tubes.find(tube)?;
        match self.holder_of_key_after(Some(completed), tube, Name::again(key.as_bytes()), now)? {
            Duplicate::Of(first, _) => Some((first, self.jobs.get(first).map(|job| job.priority))),
            Duplicate::OfDeleted(first) => Some((first, None)),
        }
    }

    /// Whether a tube with this load has no room for another body of `body_bytes` bytes, once the completed job is
    /// gone.
    fn is_full_without(&self, completed: JobId, name: &str, load: Load, body_bytes: usize) -> bool {
        let Some(tube) = self.tubes.find(name) else {
            let rule = self.tubes.rules.find(name);
            return rule.is_some_and(|rule| !rule.has_room(load.jobs, load.bytes, body_bytes));
        };
        let record = self.tubes.get(tube);
        let Some((rule, bytes)) = record.rule_and_bytes() else { return false };
        let gone = self.jobs.get(completed).filter(|job| job.tube == tube);
        // While a reload runs, the rule may not know the job yet.
        let gone_bytes = gone.filter(|job| job.has(Marks::RULED)).map_or(0, |job| job.body().len() as u64);
        let jobs = record.job_counts().total() as u64 + load.jobs - u64::from(gone.is_some());
        !rule.has_room(jobs, bytes + load.bytes - gone_bytes, body_bytes)
    }

    /// Encodes a body with its tags.
    ///
    /// # Errors
    /// If the allocator has no memory.
    #[inline]
    pub fn encode_body(body: Body, tags: &[u8]) -> Result<EncodedBody, TryReserveError> {
        match tags {
            [] => Ok(EncodedBody(StoredBody { body, separate_tags: None })),
            bytes => StoredBody::new(body, bytes, false).map(EncodedBody),
        }
    }

    /// The command `complete`: deletes the job, which the client has reserved, and executes each put, with its body, as
    /// planned. Returns the body of the job.
    pub fn complete<'a>(
        &mut self,
        client: ClientId,
        id: JobId,
        puts: impl Iterator<Item = CompletedPut<'a>> + Clone,
        bodies: impl Iterator<Item = EncodedBody>,
        plan: &[Planned],
        now: Timestamp,
    ) -> Option<Body> {
        debug_assert_eq!(puts.clone().count(), plan.len(), "each put is planned");
        let is_tagged = self.jobs.get(id).is_some_and(|job| job.has(Marks::TAGGED));
        let (ending, group) = if is_tagged {
            self.ending_of_completed(client, id, puts.clone().zip(plan))
        } else {
            (Ending::Deleted, None)
        };
        if let Some(group) = &group {
            self.rules.groups.pin(group);
        }
        let body = self.delete_with(client, id, ending, now);
        for ((put, packed), planned) in puts.zip(bodies).zip(plan) {
            match *planned {
                Planned::New => self.put_completed(client, &put, packed, now),
                Planned::Duplicate { first, more_urgent: true } if self.jobs.get(first).is_some() => {
                    self.upgrade(first, put.new.priority, now);
                }
                Planned::Duplicate { .. } => {}
            }
        }
        if let Some(group) = &group {
            self.rules.groups.unpin(group);
            debug_assert!(
                self.rules.groups.has_members(group),
                "a put has joined the group of the job that ended"
            );
        }
        body
    }

    /// How a job with tags ends if these puts follow: no cooldown begins if a put takes its key, and its group stays if
    /// a put joins it.
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
            stays |= put.tags.set().group == tags.group;
            let takes_key = key.is_some() && put.key() == key;
            if takes_key && self.find_target(client, put.tube) == tube {
                ending = Ending::Flushed;
            }
        }
        (ending, tags.group.filter(|_| stays).map(|group| group.as_str().into()))
    }

    fn put_completed(
        &mut self,
        client: ClientId,
        put: &CompletedPut<'_>,
        EncodedBody(mut packed): EncodedBody,
        now: Timestamp,
    ) {
        let tube = self.target(client, put.tube);
        if put.tags.bytes().is_empty() {
            self.put_into(tube, put.new, packed.body, now);
        } else {
            let tags = put.tags.set();
            let waits_for = self.awaited_group(tags);
            if tags.after.is_some() && waits_for.is_none() {
                packed.set_free();
            }
            self.put_packed((client, tube), put.new, packed, tags, waits_for, now);
        }
    }
}
