//! The tags of a world's jobs: groups, who waits for them, cooldowns, and what must be left of all that.

use std::collections::BTreeMap;

use beanstalkd::binlog::{Aftermath, Binlog, Cooldown, SequenceNumber, SyncPolicy};
use beanstalkd::clock::Timestamp;
use beanstalkd::job::JobId;
use beanstalkd::tags::{After, Concurrency, Idempotency, TagSet};

use crate::world::{Job, Restored, World};
use beanstalkd_testkit::disk::Random;

/// Cooldowns by the job whose delete started each.
pub type Cooldowns = BTreeMap<u64, State>;

/// A cooldown: tube, key and end.
type State = (String, String, Timestamp);

/// What the tags have led to, beside the tags themselves.
#[derive(Debug, Default)]
pub struct TaggedWorld {
    /// The states of each cooldown.
    cooldowns: BTreeMap<u64, Vec<(SequenceNumber, Option<State>)>>,
    /// The file in which the log was after so many records.
    files: Vec<(SequenceNumber, u32)>,
}

impl TaggedWorld {
    /// What a restart has found.
    pub fn restart(&mut self, found: Cooldowns) {
        let version = |cooldown| vec![(SequenceNumber::default(), Some(cooldown))];
        self.cooldowns = found.into_iter().map(|(id, cooldown)| (id, version(cooldown))).collect();
    }
}

pub fn cooldowns_of(log: &Binlog) -> Cooldowns {
    let owned = |cooldown: Cooldown<'_>| (cooldown.tube.to_owned(), cooldown.key.to_owned(), cooldown.until);
    log.cooldowns().map(|(id, cooldown)| (id.0, owned(cooldown))).collect()
}

pub fn encoded(tags: &TagSet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    tags.encode(&mut bytes).unwrap();
    bytes
}

/// The same tags, whether the job waits or not.
fn as_free(tags: &[u8]) -> Vec<u8> {
    let Some(mut tags) = TagSet::decode(tags) else { return Vec::new() };
    tags.after = tags.after.map(|after| After { is_free: true, ..after });
    encoded(&tags)
}

impl World {
    /// The tags of a job that is about to be put; empty for none.
    pub fn random_tags(&self, random: &mut Random) -> Vec<u8> {
        if self.tagged.is_none() || random.once_in(3) {
            return Vec::new();
        }
        let names = ["g", "group/two", "a.name.that.takes.more.than.one.record.of.the.log.and.then.some"];
        let mut pick = || names[random.below(3) as usize];
        let (key, group, awaited) = (pick(), pick(), pick());
        let mut tags = TagSet::default();
        if random.once_in(2) {
            let cooldown_s = [0, 1, 3600][random.below(3) as usize];
            tags.idempotency = Some(Idempotency { key, cooldown_s });
        }
        if random.once_in(4) {
            tags.concurrency = Some(Concurrency { key, limit: 1 + random.below(2) as u32 });
        }
        if random.once_in(2) {
            tags.group = Some(group);
        }
        if random.once_in(3) {
            let is_free = !self.has_member_beside(0, awaited) && tags.group != Some(awaited);
            tags.after = Some(After { group: awaited, is_free });
        }
        if tags.is_empty() || random.once_in(5) {
            tags.expires_after_s = Some(1 + random.below(100) as u32);
        }
        encoded(&tags)
    }

    fn living(&self) -> impl Iterator<Item = &Job> {
        self.versions.values().filter_map(|versions| versions.last()?.job.as_ref())
    }

    /// Whether a job other than `id` is a member.
    fn has_member_beside(&self, id: u64, group: &str) -> bool {
        let mut others = self.living().filter(|job| job.record.id.0 != id);
        others.any(|job| TagSet::decode(&job.tags).is_some_and(|tags| tags.group == Some(group)))
    }

    /// Deletes a job with all that this leads to.
    pub fn delete_tagged(&mut self, job: &Job) {
        let id = job.record.id.0;
        let tags = TagSet::decode(&job.tags).expect("the job has tags");
        let idempotency = tags.idempotency.filter(|tag| tag.cooldown_s > 0);
        let cooldown = idempotency.map(|Idempotency { key, cooldown_s }| Cooldown {
            tube: job.tube.as_str(),
            key,
            until: self.now.plus_seconds(cooldown_s),
        });
        let freed_group = tags.group.filter(|group| !self.has_member_beside(id, group));
        self.log.append_delete_with(JobId(id), &Aftermath { cooldown, freed_group });
        self.logged(id, None);
        if let Some(cooldown) = cooldown {
            let state = (cooldown.tube.to_owned(), cooldown.key.to_owned(), cooldown.until);
            self.cooldown_logged(id, Some(state));
        }
        let waits = |job: &&Job| {
            let after = TagSet::decode(&job.tags).and_then(|tags| tags.after);
            after.is_some_and(|after| Some(after.group) == freed_group && !after.is_free)
        };
        let freed: Vec<Job> = self.living().filter(waits).cloned().collect();
        for mut job in freed {
            job.tags = as_free(&job.tags);
            self.logged(job.record.id.0, Some(job));
        }
    }

    fn cooldown_logged(&mut self, id: u64, state: Option<State>) {
        let logged = self.log.appended();
        let tagged = self.tagged.as_mut().expect("jobs have tags");
        tagged.cooldowns.entry(id).or_default().push((logged, state));
    }

    /// A cooldown ends, or is forgotten before.
    pub fn forget_some_cooldown(&mut self, random: &mut Random) {
        let tagged = self.tagged.as_ref().expect("jobs have tags");
        let alive: Vec<u64> = tagged
            .cooldowns
            .iter()
            .filter(|(_, states)| states.last().is_some_and(|(_, state)| state.is_some()))
            .map(|(&id, _)| id)
            .collect();
        if alive.is_empty() {
            return;
        }
        let id = alive[random.below(alive.len() as u64) as usize];
        self.log.forget_cooldown(JobId(id), self.now);
        self.cooldown_logged(id, None);
    }

    /// Whether tags and cooldowns came back as a crash may leave them.
    pub fn check_tags(&self, restored: &Restored, cooldowns: &Cooldowns, sync: SyncPolicy) {
        let Some(tagged) = &self.tagged else { return };
        if sync == SyncPolicy::EachCommit && self.is_unsynced_part_in_one_file() {
            return self.check_prefix(tagged, restored, cooldowns);
        }
        for (record, _, _, tags) in restored {
            let versions = &self.versions[&record.id.0];
            let mut jobs = versions.iter().filter_map(|version| version.job.as_ref());
            assert!(jobs.any(|job| as_free(&job.tags) == as_free(tags)), "tags of {record:?}");
        }
        for (id, cooldown) in cooldowns {
            let mut states = tagged.cooldowns[id].iter();
            assert!(states.any(|(_, state)| state.as_ref() == Some(cooldown)), "{cooldown:?}");
        }
        for (id, states) in &tagged.cooldowns {
            let durable = states.iter().rposition(|(logged, _)| *logged <= self.seen_durable);
            let Some(durable) = durable else { continue };
            let may_be_gone = states[durable..].iter().any(|(_, state)| self.has_ended(state.as_ref()));
            assert!(may_be_gone || cooldowns.contains_key(id), "the cooldown of {id}: {states:?}");
        }
    }

    fn has_ended(&self, cooldown: Option<&State>) -> bool {
        cooldown.is_none_or(|(_, _, until)| *until <= self.now)
    }

    /// A file that was not synced may lose its end and the next one nothing.
    fn is_unsynced_part_in_one_file(&self) -> bool {
        let tagged = self.tagged.as_ref().expect("jobs have tags");
        let synced = tagged.files.iter().rfind(|(appended, _)| *appended <= self.seen_durable);
        synced.map(|(_, file)| *file) == Some(self.log.stats().current_index)
    }

    /// Notes which file the log is in after so many records.
    pub fn note_file(&mut self) {
        let state = (self.log.appended(), self.log.stats().current_index);
        if let Some(tagged) = &mut self.tagged {
            tagged.files.push(state);
        }
    }

    /// With `-f 0`, all that comes back is what there was at one moment: no change is there in part, and none without
    /// those before it.
    fn check_prefix(&self, tagged: &TaggedWorld, restored: &Restored, cooldowns: &Cooldowns) {
        let found: BTreeMap<u64, _> = restored
            .iter()
            .map(|(record, tube, body, tags)| (record.id.0, (record, tube, body, tags)))
            .collect();
        let mut moments: Vec<SequenceNumber> = self.versions.values().flatten().map(|v| v.logged).collect();
        moments.extend(tagged.cooldowns.values().flatten().map(|(logged, _)| *logged));
        moments.retain(|&moment| moment > self.seen_durable);
        moments.push(self.seen_durable);
        moments.sort_unstable();
        moments.dedup();
        let is_at = |moment: &SequenceNumber| {
            let versions = self.versions.iter().filter_map(|(id, versions)| {
                let version = versions.iter().rfind(|version| version.logged <= *moment)?;
                version.job.as_ref().map(|job| (*id, (&job.record, &job.tube, &job.body, &job.tags)))
            });
            let states = tagged.cooldowns.iter().filter_map(|(id, states)| {
                let (_, state) = states.iter().rfind(|(logged, _)| logged <= moment)?;
                state.as_ref().filter(|_| !self.has_ended(state.as_ref())).map(|state| (*id, state))
            });
            versions.eq(found.iter().map(|(id, job)| (*id, *job)))
                && states.eq(cooldowns.iter().map(|(id, state)| (*id, state)))
        };
        assert!(
            moments.iter().any(is_at),
            "what came back was never there at once: {found:?} {cooldowns:?} {tagged:?} {moments:?}"
        );
    }
}
