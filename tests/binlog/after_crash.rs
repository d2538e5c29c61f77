//! What a crash may leave: of each job a state that is not older than the last durable one, and with `-f 0` the state
//! at one position of the log.

use std::collections::BTreeMap;

use beanstalkd_binlog::{SequenceNumber, SyncPolicy};
use beanstalkd_types::job::{JobRecord, JobState};
use beanstalkd_types::tags::JobTags;
use beanstalkd_types::tube_name::TubeName;

use crate::harness::{Harness, Version};
use beanstalkd_testkit::simulated::{Cooldowns, Restored, RunningCooldown};
use beanstalkd_testkit::tags::{self, encoded};

/// The encoding of the same tags, with the job freed from the group that it waits for.
pub fn as_free(tags: &[u8]) -> Vec<u8> {
    JobTags::decode(tags).map_or(Vec::new(), |tags| encoded(tags::as_free(tags)))
}

impl Harness {
    /// Checks that a crash may leave these jobs and cooldowns.
    pub fn check(&self, restored: &Restored, cooldowns: &Cooldowns, sync: SyncPolicy) {
        self.check_jobs(restored, sync);
        self.check_tags(restored, cooldowns, sync);
    }

    fn check_jobs(&self, restored: &Restored, sync: SyncPolicy) {
        let mut found = BTreeMap::new();
        for (record, tube, body, _) in restored {
            assert!(found.insert(record.id.0, (record, tube, body)).is_none(), "restored twice");
        }
        let mut order = Vec::new();
        for (id, versions) in &self.versions {
            let back = found.remove(id);
            let durable = versions.iter().rposition(|version| version.logged <= self.seen_durable);
            // A job without a durable record may be lost.
            let allowed = &versions[durable.unwrap_or(0)..];
            // Of the records that are not durable, some may be lost: if a move is lost and a later change is not, the
            // job comes back changed, in its old tube. A tube from before the last durable record would be a loss.
            let is_tube = |tube: &TubeName| {
                allowed.iter().filter_map(|version| version.job.as_ref()).any(|job| job.tube == *tube)
            };
            let matches = |version: &&Version| match (&version.job, back) {
                (None, None) => true,
                (Some(job), Some((record, tube, body))) => {
                    job.record == *record && is_tube(tube) && job.body == *body
                }
                _ => false,
            };
            let matched = allowed.iter().rev().find(matches);
            assert!(
                matched.is_some() || (durable.is_none() && back.is_none()),
                "{sync:?}: job {id} came back as {back:?}, not one of {allowed:?}; durable {:?}",
                self.seen_durable
            );
            if let Some(job) = matched.and_then(|version| version.job.as_ref()) {
                order.push((job.record.state == JobState::Buried, job.buried, *id));
            }
        }
        assert!(found.is_empty(), "jobs that were never put: {found:?}");
        let mut expected: Vec<u64> = Vec::new();
        expected.extend(order.iter().filter(|(buried, ..)| !buried).map(|(_, _, id)| *id));
        let mut buried: Vec<_> = order.iter().filter(|(buried, ..)| *buried).collect();
        buried.sort();
        expected.extend(buried.iter().map(|(_, _, id)| *id));
        assert!(restored.iter().map(|(record, ..)| record.id.0).eq(expected), "order of restoration");
    }

    fn check_tags(&self, restored: &Restored, cooldowns: &Cooldowns, sync: SyncPolicy) {
        let is_cooling = |job: &JobRecord| cooldowns.contains_key(&job.id.0);
        assert!(
            !restored.iter().any(|(job, ..)| is_cooling(job)),
            "a job comes back with the cooldown of its delete"
        );
        if sync == SyncPolicy::EachCommit && self.is_unsynced_part_in_one_file() {
            return self.check_prefix(restored, cooldowns);
        }
        for (record, _, _, tags) in restored {
            let versions = &self.versions[&record.id.0];
            let mut jobs = versions.iter().filter_map(|version| version.job.as_ref());
            assert!(jobs.any(|job| as_free(&job.tags) == as_free(tags)), "tags of {record:?}");
        }
        for (id, cooldown) in cooldowns {
            let mut states = self.cooldowns[id].iter();
            assert!(states.any(|(_, state)| state.as_ref() == Some(cooldown)), "{cooldown:?}");
        }
        for (id, states) in &self.cooldowns {
            let durable = states.iter().rposition(|(logged, _)| *logged <= self.seen_durable);
            let Some(durable) = durable else { continue };
            let may_be_gone = states[durable..].iter().any(|(_, state)| self.has_ended(state.as_ref()));
            assert!(may_be_gone || cooldowns.contains_key(id), "the cooldown of {id}: {states:?}");
        }
    }

    fn has_ended(&self, cooldown: Option<&RunningCooldown>) -> bool {
        cooldown.is_none_or(|(_, _, until)| *until <= self.now)
    }

    /// Whether all records that are not synced are in one file. If they are in two, the first may lose its end while
    /// the second is whole.
    fn is_unsynced_part_in_one_file(&self) -> bool {
        let synced = self.files.iter().rfind(|(appended, _)| *appended <= self.seen_durable);
        synced.map(|(_, file)| *file) == Some(self.log.stats().current_index)
    }

    /// With `-f 0`, the restored state must be the state at one position of the log: no change is there in part, and
    /// none without those before it.
    fn check_prefix(&self, restored: &Restored, cooldowns: &Cooldowns) {
        let found: BTreeMap<u64, _> = restored
            .iter()
            .map(|(record, tube, body, tags)| (record.id.0, (record, tube, body, tags)))
            .collect();
        let mut positions: Vec<SequenceNumber> = self.versions.values().flatten().map(|v| v.logged).collect();
        positions.extend(self.cooldowns.values().flatten().map(|(logged, _)| *logged));
        positions.retain(|&position| position > self.seen_durable);
        positions.push(self.seen_durable);
        positions.sort_unstable();
        positions.dedup();
        let is_at = |position: &SequenceNumber| {
            let versions = self.versions.iter().filter_map(|(id, versions)| {
                let version = versions.iter().rfind(|version| version.logged <= *position)?;
                version.job.as_ref().map(|job| (*id, (&job.record, &job.tube, &job.body, &job.tags)))
            });
            let states = self.cooldowns.iter().filter_map(|(id, states)| {
                let (_, state) = states.iter().rfind(|(logged, _)| logged <= position)?;
                state.as_ref().filter(|_| !self.has_ended(state.as_ref())).map(|state| (*id, state))
            });
            versions.eq(found.iter().map(|(id, job)| (*id, *job)))
                && states.eq(cooldowns.iter().map(|(id, state)| (*id, state)))
        };
        assert!(
            positions.iter().any(is_at),
            "no position of the log has this state: {found:?} {cooldowns:?} {positions:?}"
        );
    }
}
