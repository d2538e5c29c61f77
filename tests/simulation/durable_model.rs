//! A model of the jobs of a server with a binlog: the jobs that must come back after a restart.
//!
//! Owns: the versions of each job, and which of them were acknowledged. Never talks to a server. Driven by `crashes`,
//! which reports the commands and the replies.

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd_types::job::{Body, JobRecord, JobState};
use beanstalkd_types::tags::{After, Name, TagSet};
use beanstalkd_types::tube_name::TubeName;

/// The facts of a job that must survive a restart. A reserved job comes back ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub state: JobState,
    pub priority: u32,
    pub delay_s: beanstalkd_types::seconds::Seconds,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
    /// Whether it waits for a group; the state is delayed.
    pub is_held: bool,
    /// For a job that expires: whether it was ever reserved.
    pub was_reserved: bool,
}

/// One version of a job. A deleted job has no facts.
#[derive(Clone, Debug)]
struct Version {
    facts: Option<Facts>,
    /// Whether the key of the deleted job still counts.
    is_cooling: bool,
    /// The number of earlier acknowledgements, if this version was acknowledged.
    acknowledged: Option<u64>,
}

#[derive(Debug)]
pub struct Job {
    /// Known when the put is acknowledged, or the job has come back.
    pub id: Option<u64>,
    pub tube: String,
    pub body: Vec<u8>,
    /// The tags of the put.
    pub tags: TagSet<'static>,
    /// Whether a duplicate has raised its priority since it was reserved.
    pub is_upgraded: bool,
    /// Whether a command on it is not yet answered.
    pub is_busy: bool,
    /// The client that has reserved it.
    pub holder: Option<usize>,
    /// Its position in the order of burials.
    pub buried: u64,
    /// Whether the group that it was waiting for has lost its last member since it was deleted.
    is_freed_by_loss: bool,
    versions: Vec<Version>,
}

impl Job {
    /// The facts when all commands so far are executed.
    pub fn newest(&self) -> Option<&Facts> {
        self.versions.last().and_then(|version| version.facts.as_ref())
    }

    /// Whether its key still counts after its delete.
    pub fn is_cooling(&self) -> bool {
        self.versions.last().is_some_and(|version| version.is_cooling)
    }

    fn is_member_of(&self, group: Name<'_>) -> bool {
        self.tags.group == Some(group) && self.newest().is_some()
    }

    fn waits_for(&self, group: Name<'_>) -> bool {
        self.newest().is_some_and(|facts| facts.is_held)
            && self.tags.after.is_some_and(|after| after.group == group)
    }
}

/// A job and a version of it, which a reply acknowledges.
pub type Step = (usize, usize);

/// A job as the binlog restores it.
pub type Restored = (JobRecord, TubeName, Body, Vec<u8>);

/// The cooldowns that the binlog restores, by the id of the deleted job: the tube and the key.
pub type Cooldowns = BTreeMap<u64, (String, String)>;

#[derive(Debug, Default)]
pub struct DurableModel {
    pub jobs: Vec<Job>,
    /// The number of acknowledgements of this server. Those of all earlier servers count as one.
    pub acknowledgements: u64,
    burials: u64,
    /// The first id that this server may issue.
    first_id: u64,
    /// Each `complete` that was sent to this server: its job, and the jobs of its puts.
    completes: Vec<(usize, Vec<usize>)>,
}

impl DurableModel {
    /// Adds a job that is being put. Its body begins with its index here.
    pub fn put(&mut self, tube: String, facts: Facts, tags: TagSet<'static>, filler: usize) -> Step {
        let mut body = format!("{}:", self.jobs.len()).into_bytes();
        body.extend((0..filler).map(|at| (at % 251) as u8));
        self.jobs.push(Job {
            id: None,
            tube,
            body,
            tags,
            is_upgraded: false,
            is_busy: true,
            holder: None,
            buried: 0,
            is_freed_by_loss: false,
            versions: vec![Version { facts: Some(facts), is_cooling: false, acknowledged: None }],
        });
        (self.jobs.len() - 1, 0)
    }

    /// Whether the group has members.
    pub fn has_members(&self, group: Name<'_>) -> bool {
        self.jobs.iter().any(|job| job.is_member_of(group))
    }

    /// Notes a command that deletes a job and, if it is a flush, forgets its key. If it was the last member of its
    /// group, the jobs that wait for the group become free.
    pub fn end(&mut self, job: usize, is_flush: bool) -> Vec<Step> {
        let tags = self.jobs[job].tags;
        let mut steps = vec![self.change(job, None)];
        let is_cooling = !is_flush && tags.idempotency.is_some_and(|tag| tag.cooldown_s > 0);
        self.jobs[job].versions[steps[0].1].is_cooling = is_cooling;
        if let Some(group) = tags.group.filter(|&group| !self.has_members(group)) {
            for at in 0..self.jobs.len() {
                if self.jobs[at].waits_for(group) {
                    let facts = self.jobs[at].newest().map(freed);
                    steps.push(self.change(at, facts));
                } else if self.jobs[at].newest().is_none() {
                    let after = self.jobs[at].tags.after;
                    self.jobs[at].is_freed_by_loss |= after.is_some_and(|after| after.group == group);
                }
            }
        }
        steps
    }

    /// Notes a `complete` of this job with these puts: either all of it has happened, or none.
    pub fn complete(&mut self, job: usize, puts: &[Step]) {
        self.completes.push((job, puts.iter().map(|&(put, _)| put).collect()));
    }

    /// Checks that each `complete` was restored as a whole or not at all. A job may also be gone because its own put
    /// was not promised, and a job that was put may have been deleted since.
    fn check_completes(&self, found: &[Option<&Restored>], promised: Option<u64>) {
        for (job, puts) in &self.completes {
            let there = |at: &usize| found[*at].is_some();
            let ids = || puts.iter().map(|&put| self.jobs[put].id).collect::<Vec<_>>();
            if there(job) {
                let doubled = puts.iter().any(there);
                assert!(!doubled, "job {:?} is there, and jobs of {:?}, too", self.jobs[*job].id, ids());
                continue;
            }
            let is_promised = |version: &Version| {
                let before = version.acknowledged.zip(promised);
                version.facts.is_some() && before.is_some_and(|(before, promised)| before < promised)
            };
            let is_kept = |put: &usize| {
                there(put) || self.jobs[*put].versions.iter().any(|version| version.facts.is_none())
            };
            assert!(
                puts.iter().all(is_kept) || !self.jobs[*job].versions.iter().any(is_promised),
                "job {:?} is gone, and some of {:?} are not there",
                self.jobs[*job].id,
                ids()
            );
        }
    }

    /// Notes a command that gives a job these facts.
    pub fn change(&mut self, job: usize, facts: Option<Facts>) -> Step {
        self.burials += 1;
        let burials = self.burials;
        let known = &mut self.jobs[job];
        let is_buried = |facts: Option<&Facts>| facts.is_some_and(|facts| facts.state == JobState::Buried);
        if is_buried(facts.as_ref()) && !is_buried(known.newest()) {
            known.buried = burials;
        }
        known.is_busy = true;
        known.versions.push(Version { facts, is_cooling: false, acknowledged: None });
        (job, known.versions.len() - 1)
    }

    /// Notes a reply that acknowledges these steps.
    pub fn acknowledge(&mut self, steps: &[Step]) {
        for &(job, version) in steps {
            self.jobs[job].is_busy = false;
            self.jobs[job].versions[version].acknowledged = Some(self.acknowledgements);
        }
        self.acknowledgements += 1;
    }

    /// Notes a reply with the id of a job.
    pub fn learn_id(&mut self, job: usize, id: u64) {
        if self.jobs[job].id != Some(id) {
            let is_new = id >= self.first_id && self.jobs.iter().all(|job| job.id != Some(id));
            assert!(is_new, "the id {id} is given twice");
            self.jobs[job].id = Some(id);
        }
    }

    /// Notes that a client has got this job from the ready queue, which acknowledges all earlier changes of it.
    pub fn reserved(&mut self, id: u64, body: &[u8]) -> usize {
        let job = token(body);
        assert!(self.jobs[job].body == body, "the body of job {id}");
        assert!(self.jobs[job].newest().is_some(), "job {id} is deleted, and yet reserved");
        let newest = (job, self.jobs[job].versions.len() - 1);
        let was_busy = self.jobs[job].is_busy;
        self.learn_id(job, id);
        self.acknowledge(&[newest]);
        self.jobs[job].is_busy = was_busy;
        job
    }

    /// Compares the restored jobs with the model. The first `promised` acknowledgements must hold. With `None`, any may
    /// be lost, but no job may be restored that was never put.
    pub fn restart(
        &mut self,
        restored: &[Restored],
        cooldowns: &Cooldowns,
        next_id: u64,
        promised: Option<u64>,
    ) {
        let mut found: Vec<Option<&Restored>> = vec![None; self.jobs.len()];
        for job in restored {
            let (record, tube, body, tags) = job;
            let known = &self.jobs[token(body.as_slice())];
            assert!(known.body == body.as_slice() && known.tube == tube.as_str(), "{record:?} was never put");
            assert_eq!(TagSet::decode(tags).map(as_put).unwrap_or_default(), as_put(known.tags));
            let before = found[token(body.as_slice())].replace(job);
            assert!(before.is_none(), "{record:?} is restored twice");
        }
        self.check_completes(&found, promised);
        self.completes.clear();
        let members: BTreeSet<&str> = restored
            .iter()
            .filter_map(|(.., tags)| TagSet::decode(tags)?.group)
            .map(|group| group.as_str())
            .collect();
        let mut unknown = cooldowns.clone();
        for (job, found) in self.jobs.iter_mut().zip(found) {
            let facts = found.map(|(record, .., tags)| facts_of(record, tags));
            let has_members = job.tags.after.is_some_and(|after| members.contains(after.group.as_str()));
            let is_held = facts.as_ref().is_some_and(|facts| facts.is_held);
            assert!(has_members || !is_held, "job {:?} waits for a group without members", job.id);
            let cooldown = job.id.and_then(|id| unknown.remove(&id));
            if let Some((tube, key)) = &cooldown {
                assert!(*tube == job.tube && job.tags.idempotency.is_some_and(|tag| tag.key == key.as_str()));
            }
            let is_cooling = cooldown.is_some();
            assert!(
                !is_cooling || facts.is_none(),
                "job {:?} comes back with the cooldown of its delete",
                job.id
            );
            if let Some(promised) = promised {
                job.check(facts.as_ref(), is_cooling, has_members, promised);
            }
            // The id of an acknowledged job is not issued again, even if the job was lost, because its client may still
            // delete it.
            let is_kept = promised.is_some() || is_cooling;
            job.id = found.map(|(record, ..)| record.id.0).or(job.id.filter(|_| is_kept));
            assert!(job.id.is_none_or(|id| id < next_id), "the id {next_id} is given twice");
            job.versions = vec![Version { facts, is_cooling, acknowledged: Some(0) }];
            (job.is_busy, job.holder, job.is_upgraded, job.is_freed_by_loss) = (false, None, false, false);
        }
        assert!(unknown.is_empty(), "cooldowns of no delete: {unknown:?}");
        self.first_id = next_id;
        self.acknowledgements = 1;
        // Buried jobs are restored in the order of their burials.
        for (_, _, body, _) in restored.iter().filter(|(record, ..)| record.state == JobState::Buried) {
            self.burials += 1;
            self.jobs[token(body.as_slice())].buried = self.burials;
        }
    }
}

/// The facts of a job whose group has lost its last member.
fn freed(held: &Facts) -> Facts {
    let state = if held.delay_s > 0 { JobState::Delayed } else { JobState::Ready };
    Facts { state, is_held: false, ..held.clone() }
}

/// The tags without the changes since the put.
fn as_put(tags: TagSet<'_>) -> TagSet<'_> {
    TagSet { after: tags.after.map(|after| After { is_free: false, ..after }), ..tags }
}

impl Job {
    /// Checks that the restored version is not older than the promised one. A loss of power can take the members of a
    /// group that are newer than the promised version: then the group holds nothing, whatever the versions are. It can
    /// also take the delete of a job, or another change of it, and leave the later delete by which its group has lost
    /// its last member. It can take the cooldown of a delete that was not promised, although the file with the job is
    /// already removed.
    fn check(&self, facts: Option<&Facts>, is_cooling: bool, has_members: bool, promised: u64) {
        let is_promised = |version: &Version| version.acknowledged.is_some_and(|before| before < promised);
        let first = self.versions.iter().rposition(is_promised);
        let since = &self.versions[first.unwrap_or(0)..];
        let is_not_held = |version: &Version| version.facts.as_ref().is_some_and(|facts| !facts.is_held);
        let may_be_free = !has_members || self.is_freed_by_loss || since.iter().any(is_not_held);
        let has_lost_cooldown = |version: &Version| version.is_cooling && !is_promised(version);
        let is_allowed = match first {
            None if facts.is_none() && !is_cooling => true,
            _ if facts.is_none() && !is_cooling && since.iter().any(has_lost_cooldown) => true,
            _ => since.iter().any(|version| {
                let is_free = |held: &Facts| may_be_free && held.is_held && facts == Some(&freed(held));
                version.is_cooling == is_cooling
                    && (version.facts.as_ref() == facts || version.facts.as_ref().is_some_and(is_free))
            }),
        };
        assert!(
            is_allowed,
            "job {:?} comes back as {facts:?}, cooling: {is_cooling}; {promised} acknowledgements hold, \
             the last of it is number {first:?} of {:?}",
            self.id, self.versions
        );
    }
}

fn facts_of(record: &JobRecord, tags: &[u8]) -> Facts {
    let tags = TagSet::decode(tags).unwrap_or_default();
    let is_delayed = record.state == JobState::Delayed;
    let is_free = tags.after.is_none_or(|after| after.is_free);
    // The record of a held job is from before it was free.
    let is_ready = is_delayed && is_free && record.delay_s == 0;
    Facts {
        state: if is_ready { JobState::Ready } else { record.state },
        is_held: is_delayed && !is_free,
        was_reserved: tags.expires_after_s.is_some() && record.counters.reserves > 0,
        priority: record.priority.0,
        delay_s: record.delay_s,
        releases: record.counters.releases,
        buries: record.counters.buries,
        kicks: record.counters.kicks,
    }
}

/// The index of the job with this body.
fn token(body: &[u8]) -> usize {
    let digits = body.split(|&byte| byte == b':').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("a body that was put")
}
