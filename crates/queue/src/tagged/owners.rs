//! Who has put how much: the bytes of the jobs of owners whose bytes are limited.
//!
//! Owns: a sum for each owner: what its jobs take, with their tags, the tubes and groups that they have made, and the
//! cooldowns that their deletes lead to. The server decides what the limit is.

use std::collections::BTreeMap;

use super::groups::GROUP_BYTES;
use super::index_bytes;
use super::unique::cooldown_bytes;
use crate::keys::TubeKey;
use crate::tags::TagSet;
use crate::tube::{BYTES_PER_TUBE, DEFAULT};
use crate::{ClientId, Queue};

/// What a job counts beside its body and its tags, in bytes: about what the queue keeps of it, so that empty jobs count, too.
const OWNED_JOB_BYTES: u64 = 128;
/// What an owner takes beside its name, in bytes.
const OWNER_BYTES: usize = 72;

/// The sums.
#[derive(Debug, Default)]
pub struct Owners {
    bytes_by_name: BTreeMap<Box<str>, u64>,
    name_bytes: usize,
}

/// For whom something counts that jobs share, a tube or a group: the owner of the job that came first, with the number of
/// its jobs that have come since. It counts for this owner as long as there are any.
#[derive(Debug, Default)]
pub struct Maker(Option<(Box<str>, u64)>);

impl Maker {
    /// A job of this owner comes; returns whether the thing counts for the owner from now on.
    #[must_use]
    pub fn enter(&mut self, owner: &str) -> bool {
        match &mut self.0 {
            Some((maker, jobs)) => {
                *jobs += u64::from(**maker == *owner);
                false
            }
            None => {
                self.0 = Some((owner.into(), 1));
                true
            }
        }
    }

    /// A job of this owner is gone; returns whether the thing counts for the owner no more.
    #[must_use]
    pub fn leave(&mut self, owner: &str) -> bool {
        let Some((_, jobs)) = self.0.as_mut().filter(|(maker, _)| **maker == *owner) else { return false };
        *jobs -= 1;
        let is_over = *jobs == 0;
        if is_over {
            self.0 = None;
        }
        is_over
    }

    /// Whether it counts for anybody.
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }
}

impl Owners {
    /// What the sums take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes_by_name.len() * OWNER_BYTES + self.name_bytes
    }

    pub fn add(&mut self, owner: &str, added: u64) {
        match self.bytes_by_name.get_mut(owner) {
            Some(bytes) => *bytes += added,
            None => {
                self.name_bytes += owner.len();
                self.bytes_by_name.insert(owner.into(), added);
            }
        }
    }

    pub fn subtract(&mut self, owner: &str, gone: u64) {
        let bytes = self.bytes_by_name.get_mut(owner).expect("who has something has a sum");
        *bytes -= gone;
        if *bytes == 0 {
            self.bytes_by_name.remove(owner);
            self.name_bytes -= owner.len();
        }
    }
}

/// What a job counts for its owner: what it takes, and what the cooldown takes that its delete begins.
fn job_cost(body_bytes: usize, tags: &TagSet<'_>) -> u64 {
    let words = TagSet { owner: None, ..*tags };
    let cooldown =
        tags.idempotency.filter(|tag| tag.cooldown_s > 0).map_or(0, |tag| cooldown_bytes(tag.key.len()));
    OWNED_JOB_BYTES + (body_bytes + words.encoded_len() + index_bytes(tags) + cooldown) as u64
}

fn group_cost(name: &str) -> u64 {
    (GROUP_BYTES + name.len()) as u64
}

impl Queue {
    /// What the tube counts for its maker. Nobody has made "default".
    fn tube_cost(&self, tube: TubeKey) -> u64 {
        if tube == DEFAULT { 0 } else { (BYTES_PER_TUBE + self.tubes.get(tube).name.as_bytes().len()) as u64 }
    }

    /// What a put with these tags into the tube that the client uses would count for its owner.
    #[must_use]
    pub fn put_cost(&self, client: ClientId, body_bytes: usize, tags: &TagSet<'_>) -> u64 {
        let tube = self.client(client).using;
        let is_made = self.tubes.get(tube).tagged().is_some_and(|tagged| tagged.maker.is_known());
        let groups = &self.tagged.groups;
        let group = tags.group.filter(|group| !groups.has_maker(group.as_str()));
        job_cost(body_bytes, tags)
            + if is_made { 0 } else { self.tube_cost(tube) }
            + group.map_or(0, |group| group_cost(group.as_str()))
    }

    /// The owner has a job in this tube.
    pub(super) fn own_job(&mut self, owner: &str, tube: TubeKey, body_bytes: usize, tags: &TagSet<'_>) {
        self.tagged.owners.add(owner, job_cost(body_bytes, tags));
        self.enter_tube(owner, tube);
        if let Some(group) = tags.group
            && self.tagged.groups.enter_as(group.as_str(), owner)
        {
            self.tagged.owners.add(owner, group_cost(group.as_str()));
        }
    }

    /// The job is gone. Its group is still there.
    pub(super) fn disown_job(&mut self, owner: &str, tube: TubeKey, body_bytes: usize, tags: &TagSet<'_>) {
        if let Some(group) = tags.group
            && self.tagged.groups.leave_as(group.as_str(), owner)
        {
            self.tagged.owners.subtract(owner, group_cost(group.as_str()));
        }
        self.leave_tube(owner, tube);
        self.tagged.owners.subtract(owner, job_cost(body_bytes, tags));
    }

    /// A job of the owner comes into the tube.
    pub(super) fn enter_tube(&mut self, owner: &str, tube: TubeKey) {
        if tube != DEFAULT && self.tubes.get_mut(tube).tagged_mut().maker.enter(owner) {
            self.tagged.owners.add(owner, self.tube_cost(tube));
        }
    }

    /// A job of the owner is gone from the tube.
    pub(super) fn leave_tube(&mut self, owner: &str, tube: TubeKey) {
        if tube != DEFAULT && self.tubes.get_mut(tube).tagged_mut().maker.leave(owner) {
            self.tagged.owners.subtract(owner, self.tube_cost(tube));
        }
    }

    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_owners(&self) {
        let mut owners = Owners::default();
        let mut shared: BTreeMap<(bool, &str, &str), u64> = BTreeMap::new();
        for id in self.jobs.ids() {
            let Some(tags) = self.tags_of_any(id) else { continue };
            let Some(owner) = tags.owner else { continue };
            owners.add(owner.as_str(), job_cost(self.body(id).map_or(0, |body| body.len()), &tags));
            let tube = self.tubes.get(self.jobs.get(id).expect("an indexed job is there").tube).name.as_str();
            *shared.entry((false, tube, owner.as_str())).or_default() += 1;
            if let Some(group) = tags.group {
                *shared.entry((true, group.as_str(), owner.as_str())).or_default() += 1;
            }
        }
        for tube in self.tubes.iter() {
            if let Some((owner, jobs)) = tube.tagged().and_then(|tagged| tagged.maker.0.as_ref()) {
                let there = shared.get(&(false, tube.name.as_str(), owner)).copied().unwrap_or(0);
                assert!((1..=there).contains(jobs));
                owners.add(owner, (BYTES_PER_TUBE + tube.name.as_bytes().len()) as u64);
            }
        }
        for (name, maker) in self.tagged.groups.makers() {
            if let Some((owner, jobs)) = &maker.0 {
                let there = shared.get(&(true, name, owner)).copied().unwrap_or(0);
                assert!((1..=there).contains(jobs));
                owners.add(owner, group_cost(name));
            }
        }
        self.tagged.unique.owned().for_each(|(owner, bytes)| owners.add(owner, bytes as u64));
        assert_eq!(owners.bytes_by_name, self.tagged.owners.bytes_by_name, "the sums are what there is");
        assert_eq!(owners.name_bytes, self.tagged.owners.name_bytes);
    }

    /// The bytes that count for an owner.
    #[must_use]
    pub fn owned_bytes(&self, owner: &str) -> u64 {
        self.tagged.owners.bytes_by_name.get(owner).copied().unwrap_or(0)
    }
}
