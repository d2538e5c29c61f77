//! The harness's jobs with tags: groups and the jobs that wait for them, cooldowns, and what must come back after a
//! crash.

use std::collections::BTreeMap;

use beanstalkd_binlog::{Binlog, Cooldown, SequenceNumber, SideEffects, SyncPolicy};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{JobId, JobRecord};
use beanstalkd_types::tags::{After, Concurrency, Idempotency, Name, TagSet, Trace};

use crate::harness::{Harness, Job, Restored};
use beanstalkd_testkit::disk::Random;

/// Cooldowns by the job whose delete started each.
pub type Cooldowns = BTreeMap<u64, State>;

/// The tube, the key and the end of a cooldown.
type State = (String, String, Timestamp);

/// The cooldowns that deletes have started, and the file of each log position.
#[derive(Debug, Default)]
pub struct TagModel {
    /// The states of each cooldown, with their positions in the log; `None` after its end.
    cooldowns: BTreeMap<u64, Vec<(SequenceNumber, Option<State>)>>,
    /// The file that was written at each position of the log.
    files: Vec<(SequenceNumber, u32)>,
}

impl TagModel {
    /// Begins again with the cooldowns that a start has found.
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

/// These tags with the job freed from its group.
pub fn as_free(tags: &[u8]) -> Vec<u8> {
    let Some(mut tags) = TagSet::decode(tags) else { return Vec::new() };
    tags.after = tags.after.map(|after| After { is_free: true, ..after });
    encoded(&tags)
}

impl Harness {
    /// Random tags for a put; empty for a job without tags.
    pub fn random_tags(&self, random: &mut Random) -> Vec<u8> {
        if self.tag_model.is_none() || random.once_in(3) {
            return Vec::new();
        }
        let names = ["g", "group/two", "a.name.that.takes.more.than.one.record.of.the.log.and.then.some"];
        let mut pick = || names[random.below(3) as usize];
        let (key, group, awaited) = (pick(), pick(), pick());
        let mut tags = TagSet::default();
        if random.once_in(2) {
            let cooldown_s = [0, 1, 3600][random.below(3) as usize];
            tags.idempotency = Some(Idempotency { key: key.into(), cooldown_s: cooldown_s.into() });
        }
        if random.once_in(4) {
            tags.concurrency = Some(Concurrency { key: key.into(), limit: 1 + random.below(2) as u32 });
        }
        if random.once_in(2) {
            tags.group = Some(group.into());
        }
        if random.once_in(3) {
            let is_free = !self.has_member_beside(0, awaited) && tags.group != Some(awaited.into());
            tags.after = Some(After { group: awaited.into(), is_free });
        }
        if tags.is_empty() || random.once_in(5) {
            tags.expires_after_s = Some((1 + random.below(100) as u32).into());
        }
        if random.once_in(4) {
            tags.trace = Trace::check(beanstalkd_testkit::TRACE);
        }
        encoded(&tags)
    }

    fn living(&self) -> impl Iterator<Item = &Job> {
        self.versions.values().filter_map(|versions| versions.last()?.job.as_ref())
    }

    /// Whether a job other than `id` is a member of the group.
    fn has_member_beside(&self, id: u64, group: &str) -> bool {
        let mut others = self.living().filter(|job| job.record.id.0 != id);
        others.any(|job| TagSet::decode(&job.tags).is_some_and(|tags| tags.group == Some(group.into())))
    }

    /// Deletes a job, starts its cooldown, and frees the jobs that wait for its group if it was the last member.
    pub fn delete_tagged(&mut self, job: &Job) {
        let id = job.record.id.0;
        let tags = TagSet::decode(&job.tags).expect("the job has tags");
        let idempotency = tags.idempotency.filter(|tag| tag.cooldown_s > 0);
        let cooldown = idempotency.map(|Idempotency { key, cooldown_s }| Cooldown {
            tube: job.tube.as_str(),
            key: key.as_str(),
            until: self.now.plus_seconds(cooldown_s),
        });
        let freed_group = tags.group.map(Name::as_str).filter(|group| !self.has_member_beside(id, group));
        self.log.append_delete_with(JobId(id), &SideEffects { cooldown, freed_group, completes: None });
        self.logged(id, None);
        if let Some(cooldown) = cooldown {
            let state = (cooldown.tube.to_owned(), cooldown.key.to_owned(), cooldown.until);
            self.cooldown_logged(id, Some(state));
        }
        let waits = |job: &&Job| {
            let after = TagSet::decode(&job.tags).and_then(|tags| tags.after);
            after.is_some_and(|after| Some(after.group.as_str()) == freed_group && !after.is_free)
        };
        let freed: Vec<Job> = self.living().filter(waits).cloned().collect();
        for mut job in freed {
            job.tags = as_free(&job.tags);
            self.logged(job.record.id.0, Some(job));
        }
    }

    fn cooldown_logged(&mut self, id: u64, state: Option<State>) {
        let logged = self.log.appended();
        let model = self.tag_model.as_mut().expect("jobs have tags");
        model.cooldowns.entry(id).or_default().push((logged, state));
    }

    /// Ends a random cooldown, as `flush-tube` does.
    pub fn end_some_cooldown(&mut self, random: &mut Random) {
        let model = self.tag_model.as_ref().expect("jobs have tags");
        let alive: Vec<u64> = model
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

    /// Checks that a crash may leave these tags and cooldowns.
    pub fn check_tags(&self, restored: &Restored, cooldowns: &Cooldowns, sync: SyncPolicy) {
        let Some(model) = &self.tag_model else { return };
        let is_cooling = |job: &JobRecord| cooldowns.contains_key(&job.id.0);
        assert!(
            !restored.iter().any(|(job, ..)| is_cooling(job)),
            "a job comes back with the cooldown of its delete"
        );
        if sync == SyncPolicy::EachCommit && self.is_unsynced_part_in_one_file() {
            return self.check_prefix(model, restored, cooldowns);
        }
        for (record, _, _, tags) in restored {
            let versions = &self.versions[&record.id.0];
            let mut jobs = versions.iter().filter_map(|version| version.job.as_ref());
            assert!(jobs.any(|job| as_free(&job.tags) == as_free(tags)), "tags of {record:?}");
        }
        for (id, cooldown) in cooldowns {
            let mut states = model.cooldowns[id].iter();
            assert!(states.any(|(_, state)| state.as_ref() == Some(cooldown)), "{cooldown:?}");
        }
        for (id, states) in &model.cooldowns {
            let durable = states.iter().rposition(|(logged, _)| *logged <= self.seen_durable);
            let Some(durable) = durable else { continue };
            let may_be_gone = states[durable..].iter().any(|(_, state)| self.has_ended(state.as_ref()));
            assert!(may_be_gone || cooldowns.contains_key(id), "the cooldown of {id}: {states:?}");
        }
    }

    fn has_ended(&self, cooldown: Option<&State>) -> bool {
        cooldown.is_none_or(|(_, _, until)| *until <= self.now)
    }

    /// Whether all records that are not synced are in one file. If they are in two, the first may lose its end while
    /// the second is whole.
    fn is_unsynced_part_in_one_file(&self) -> bool {
        let model = self.tag_model.as_ref().expect("jobs have tags");
        let synced = model.files.iter().rfind(|(appended, _)| *appended <= self.seen_durable);
        synced.map(|(_, file)| *file) == Some(self.log.stats().current_index)
    }

    /// Records which file the log writes to at its present position.
    pub fn note_file(&mut self) {
        let state = (self.log.appended(), self.log.stats().current_index);
        if let Some(model) = &mut self.tag_model {
            model.files.push(state);
        }
    }

    /// With `-f 0`, the restored state must be the state at one position of the log: no change is there in part, and
    /// none without those before it.
    fn check_prefix(&self, model: &TagModel, restored: &Restored, cooldowns: &Cooldowns) {
        let found: BTreeMap<u64, _> = restored
            .iter()
            .map(|(record, tube, body, tags)| (record.id.0, (record, tube, body, tags)))
            .collect();
        let mut positions: Vec<SequenceNumber> = self.versions.values().flatten().map(|v| v.logged).collect();
        positions.extend(model.cooldowns.values().flatten().map(|(logged, _)| *logged));
        positions.retain(|&position| position > self.seen_durable);
        positions.push(self.seen_durable);
        positions.sort_unstable();
        positions.dedup();
        let is_at = |position: &SequenceNumber| {
            let versions = self.versions.iter().filter_map(|(id, versions)| {
                let version = versions.iter().rfind(|version| version.logged <= *position)?;
                version.job.as_ref().map(|job| (*id, (&job.record, &job.tube, &job.body, &job.tags)))
            });
            let states = model.cooldowns.iter().filter_map(|(id, states)| {
                let (_, state) = states.iter().rfind(|(logged, _)| logged <= position)?;
                state.as_ref().filter(|_| !self.has_ended(state.as_ref())).map(|state| (*id, state))
            });
            versions.eq(found.iter().map(|(id, job)| (*id, *job)))
                && states.eq(cooldowns.iter().map(|(id, state)| (*id, state)))
        };
        assert!(
            positions.iter().any(is_at),
            "no position of the log has this state: {found:?} {cooldowns:?} {model:?} {positions:?}"
        );
    }
}
