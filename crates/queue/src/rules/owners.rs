//! The bytes of the jobs of each owner whose bytes are limited.
//!
//! Owns: a sum for each owner: the memory of its jobs with their tags, of the tubes and groups that they have created,
//! and of the cooldowns that their deletes will begin. The server decides the limit.

use std::collections::BTreeMap;

use super::groups::GROUP_BYTES;
use super::unique::cooldown_bytes;
use super::{JobEnd, MarkedJob, Rule, index_bytes};
use crate::job::JobId;
use crate::state::jobs::Marks;
use crate::state::keys::TubeKey;
use crate::state::tubes::{BYTES_PER_TUBE, DEFAULT};
use crate::tags::{JobTags, TagSet};
use crate::{ClientId, Queue};

/// The bytes that a job counts besides its body and its tags: roughly the queue's memory for it, so that empty jobs
/// count, too.
const OWNED_JOB_BYTES: u64 = 128;
/// The memory of an owner besides its name, in bytes.
const OWNER_BYTES: usize = 72;

#[derive(Debug, Default)]
pub(crate) struct Owners {
    bytes_by_name: BTreeMap<Box<str>, u64>,
    name_bytes: usize,
    /// Who has made the tubes and groups that jobs of owners are in.
    makers: BTreeMap<SharedScope<Box<str>>, Maker>,
    /// The memory of the names in `makers`, in bytes.
    maker_bytes: usize,
}

/// A tube or a group, which the jobs of several owners can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SharedScope<N> {
    Tube(TubeKey),
    Group(N),
}

/// The owner that is charged for a tube or a group: the owner of the first job, with the number of its jobs that have
/// come since. It is charged as long as there are any.
#[derive(Debug, PartialEq, Eq)]
struct Maker {
    owner: Box<str>,
    jobs: u64,
}

/// The memory of a maker besides the names, in bytes.
const MAKER_BYTES: usize = 72;

impl Owners {
    /// The memory of the sums, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes_by_name.len() * OWNER_BYTES
            + self.name_bytes
            + self.makers.len() * MAKER_BYTES
            + self.maker_bytes
    }

    pub(crate) fn add(&mut self, owner: &str, added: u64) {
        match self.bytes_by_name.get_mut(owner) {
            Some(bytes) => *bytes += added,
            None => {
                self.name_bytes += owner.len();
                self.bytes_by_name.insert(owner.into(), added);
            }
        }
    }

    pub(crate) fn subtract(&mut self, owner: &str, gone: u64) {
        let bytes = self.bytes_by_name.get_mut(owner).expect("an owner with a job has a sum");
        debug_assert!(*bytes >= gone, "the bytes of an owner include the removed ones");
        *bytes -= gone;
        if *bytes == 0 {
            self.bytes_by_name.remove(owner);
            self.name_bytes -= owner.len();
        }
    }

    /// Charges `bytes` to this owner if the tube or the group is new.
    fn enter(&mut self, shared: SharedScope<&str>, owner: &str, bytes: u64) {
        let shared = shared.to_owned();
        match self.makers.get_mut(&shared) {
            Some(maker) => maker.jobs += u64::from(*maker.owner == *owner),
            None => {
                self.maker_bytes += shared.name_bytes() + owner.len();
                self.makers.insert(shared, Maker { owner: owner.into(), jobs: 1 });
                self.add(owner, bytes);
            }
        }
    }

    /// Removes a job of this owner from the tube or the group.
    fn leave(&mut self, shared: SharedScope<&str>, owner: &str, bytes: u64) {
        let shared = shared.to_owned();
        let Some(maker) = self.makers.get_mut(&shared).filter(|maker| *maker.owner == *owner) else { return };
        debug_assert!(maker.jobs > 0, "the owner has a job in the tube or group that it has made");
        maker.jobs -= 1;
        if maker.jobs == 0 {
            self.maker_bytes -= shared.name_bytes() + owner.len();
            self.makers.remove(&shared);
            self.subtract(owner, bytes);
        }
    }
}

impl SharedScope<&str> {
    fn to_owned(self) -> SharedScope<Box<str>> {
        match self {
            Self::Tube(tube) => SharedScope::Tube(tube),
            Self::Group(name) => SharedScope::Group(name.into()),
        }
    }
}

impl SharedScope<Box<str>> {
    fn name_bytes(&self) -> usize {
        match self {
            Self::Tube(_) => 0,
            Self::Group(name) => name.len(),
        }
    }
}

/// The bytes that a job counts for its owner: its own bytes, and the bytes of the cooldown that its delete begins.
fn job_bytes(body_bytes: usize, mut tags: JobTags<'_>) -> u64 {
    tags.owner = None;
    let cooldown = tags
        .idempotency
        .filter(|tag| !tag.cooldown_s.is_zero())
        .map_or(0, |tag| cooldown_bytes(tag.key.len()));
    OWNED_JOB_BYTES + (body_bytes + tags.encoded_len() + index_bytes(&tags) + cooldown) as u64
}

fn group_bytes(name: &str) -> u64 {
    (GROUP_BYTES + name.len()) as u64
}

impl Rule for Owners {
    const ADDED: Marks = Marks::TAGGED;
    fn added(queue: &mut Queue, job: &MarkedJob<'_>) {
        let Some(owner) = job.tags.owner else { return };
        let owner = owner.as_str();
        queue.rules.owners.add(owner, job_bytes(job.body_bytes, *job.tags));
        queue.enter_tube(owner, job.tube);
        if let Some(group) = job.tags.group {
            queue.rules.owners.enter(SharedScope::Group(group.as_str()), owner, group_bytes(group.as_str()));
        }
    }

    fn moved(queue: &mut Queue, job: &MarkedJob<'_>, from: TubeKey) {
        if let Some(owner) = job.tags.owner {
            queue.leave_tube(owner.as_str(), from);
            queue.enter_tube(owner.as_str(), job.tube);
        }
    }

    fn retagged(queue: &mut Queue, before: &MarkedJob<'_>, after: &MarkedJob<'_>) {
        let Some(owner) = after.tags.owner else { return };
        queue.rules.owners.add(owner.as_str(), job_bytes(after.body_bytes, *after.tags));
        queue.rules.owners.subtract(owner.as_str(), job_bytes(before.body_bytes, *before.tags));
    }

    const ENDED: Marks = Marks::TAGGED;
    fn ended(queue: &mut Queue, job: &MarkedJob<'_>, _end: &mut JobEnd) {
        let Some(owner) = job.tags.owner else { return };
        let owner = owner.as_str();
        if let Some(group) = job.tags.group {
            queue.rules.owners.leave(SharedScope::Group(group.as_str()), owner, group_bytes(group.as_str()));
        }
        queue.leave_tube(owner, job.tube);
        queue.rules.owners.subtract(owner, job_bytes(job.body_bytes, *job.tags));
    }

    #[inline]
    fn check(queue: &Queue) {
        let mut owners = Owners::default();
        let mut jobs: BTreeMap<(SharedScope<&str>, &str), u64> = BTreeMap::new();
        let tags = queue.jobs.ids().filter_map(|id| Some((id, queue.tags(id)?)));
        let tags: Vec<_> = tags.filter_map(|(id, tags)| Some((id, tags, tags.owner?))).collect();
        for (id, tags, owner) in &tags {
            let job = queue.jobs.expect(*id);
            owners.add(owner.as_str(), job_bytes(job.body().len(), *tags));
            *jobs.entry((SharedScope::Tube(job.tube), owner.as_str())).or_default() += 1;
            if let Some(group) = tags.group {
                *jobs.entry((SharedScope::Group(group.as_str()), owner.as_str())).or_default() += 1;
            }
        }
        for (shared, maker) in &queue.rules.owners.makers {
            let (shared, bytes) = match shared {
                SharedScope::Tube(tube) => (SharedScope::Tube(*tube), queue.tube_bytes(*tube)),
                SharedScope::Group(name) => (SharedScope::Group(&**name), group_bytes(name)),
            };
            let there = jobs.get(&(shared, &*maker.owner)).copied().unwrap_or(0);
            assert!((1..=there).contains(&maker.jobs));
            owners.add(&maker.owner, bytes);
        }
        queue.rules.unique.owned().for_each(|(owner, bytes)| owners.add(owner, bytes as u64));
        let found = &queue.rules.owners;
        assert_eq!(owners.bytes_by_name, found.bytes_by_name, "the sums are those of the jobs");
        assert_eq!(owners.name_bytes, found.name_bytes);
        let names = found.makers.iter().map(|(shared, maker)| shared.name_bytes() + maker.owner.len());
        assert_eq!(names.sum::<usize>(), found.maker_bytes);
    }
}

impl Queue {
    /// The bytes that the tube counts for its maker. "default" has no maker.
    fn tube_bytes(&self, tube: TubeKey) -> u64 {
        if tube == DEFAULT { 0 } else { (BYTES_PER_TUBE + self.tubes.get(tube).name.as_bytes().len()) as u64 }
    }

    /// The bytes that a put with these tags, into this tube or the used one, would count for its owner.
    #[must_use]
    pub fn owned_bytes_of_put(
        &self,
        client: ClientId,
        target: Option<&str>,
        body_bytes: usize,
        tags: &TagSet<'_>,
    ) -> u64 {
        let makers = &self.rules.owners.makers;
        let tube_bytes = match self.find_target(client, target) {
            Some(tube) if makers.contains_key(&SharedScope::Tube(tube)) => 0,
            Some(tube) => self.tube_bytes(tube),
            None => (BYTES_PER_TUBE + target.map_or(0, str::len)) as u64,
        };
        let group = tags.group.map(|group| group.as_str());
        let group = group.filter(|&group| !makers.contains_key(&SharedScope::Group(group).to_owned()));
        job_bytes(body_bytes, (*tags).into()) + tube_bytes + group.map_or(0, group_bytes)
    }

    /// The minimum number of bytes that the end of this job frees for the owner; 0 if the job has another one. More is
    /// freed if its tube or group ends with it.
    #[must_use]
    pub fn bytes_left_by(&self, id: JobId, owner: &str) -> u64 {
        let tags = self.tags(id).filter(|tags| tags.owner.is_some_and(|name| name == owner));
        tags.zip(self.jobs.get(id)).map_or(0, |(tags, job)| job_bytes(job.body().len(), tags))
    }

    /// Adds a job of the owner to the tube.
    fn enter_tube(&mut self, owner: &str, tube: TubeKey) {
        if tube != DEFAULT {
            let bytes = self.tube_bytes(tube);
            self.rules.owners.enter(SharedScope::Tube(tube), owner, bytes);
        }
    }

    /// Removes a job of the owner from the tube.
    fn leave_tube(&mut self, owner: &str, tube: TubeKey) {
        if tube != DEFAULT {
            let bytes = self.tube_bytes(tube);
            self.rules.owners.leave(SharedScope::Tube(tube), owner, bytes);
        }
    }

    /// The bytes that count for an owner.
    #[must_use]
    pub fn owned_bytes(&self, owner: &str) -> u64 {
        self.rules.owners.bytes_by_name.get(owner).copied().unwrap_or(0)
    }
}
