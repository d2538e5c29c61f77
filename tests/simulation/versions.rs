//! The versions of each job of a server with a binlog, and which of them may come back after a restart.
//!
//! Owns: the model of the server after all commands that were sent; the facts of each job in it after each command; and
//! which of these versions were acknowledged. Never talks to a server. Driven by `crashes`, which reports the commands
//! and the replies.

use beanstalkd_model::{Facts, Model, Server};
use beanstalkd_queue::PoisonLimits;
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{JobId, JobRecord};
use beanstalkd_types::tags::{After, JobTags, TagSet};

use crate::crashes::MAX_JOB_BYTES;
use beanstalkd_testkit::simulated::{Cooldowns, Restored, START};
use beanstalkd_testkit::tags::as_free;

/// One version of a job. A deleted job has no facts.
#[derive(Clone, Debug)]
struct Version {
    facts: Option<Facts>,
    /// Whether the key of the deleted job still counts.
    is_cooling: bool,
    /// The number of earlier acknowledgements, if this version was acknowledged.
    acknowledged: Option<u64>,
}

/// A job that was put. Its index is its id in the model.
#[derive(Debug)]
pub struct Job {
    /// Known when the put is acknowledged, or the job has come back.
    pub id: Option<u64>,
    pub tube: String,
    /// Begins with the index.
    pub body: Vec<u8>,
    /// The tags of the put.
    pub tags: TagSet<'static>,
    /// Whether a command on it is not yet answered.
    pub is_busy: bool,
    /// Whether the group that it was waiting for has lost its last member since it was deleted.
    is_freed_by_loss: bool,
    versions: Vec<Version>,
}

/// A job and a version of it, which a reply acknowledges.
pub type Step = (usize, usize);

pub struct Versions {
    pub oracle: Server,
    pub jobs: Vec<Job>,
    /// The number of acknowledgements of this server. Those of all earlier servers count as one.
    pub acknowledgements: u64,
    /// The first id that this server may issue.
    first_id: u64,
    /// Each `complete` that was sent to this server: its job, and the jobs of its puts.
    completes: Vec<(usize, Vec<usize>)>,
}

impl Default for Versions {
    fn default() -> Self {
        let oracle = Server::new(PoisonLimits::default(), MAX_JOB_BYTES, START);
        Self { oracle, jobs: Vec::new(), acknowledgements: 0, first_id: 0, completes: Vec::new() }
    }
}

impl Versions {
    /// Makes a job that is about to be put.
    pub fn new_job(&mut self, tube: &str, tags: TagSet<'static>, filler: usize) -> usize {
        let mut body = format!("{}:", self.jobs.len()).into_bytes();
        body.extend((0..filler).map(|at| (at % 251) as u8));
        self.jobs.push(Job {
            id: None,
            tube: tube.to_owned(),
            body,
            tags,
            is_busy: true,
            is_freed_by_loss: false,
            versions: Vec::new(),
        });
        self.jobs.len() - 1
    }

    /// Executes a command in the model. Returns its result, and the new versions of the jobs that it has changed.
    pub fn execute<T>(&mut self, command: impl FnOnce(&mut Server) -> T) -> (T, Vec<Step>) {
        self.oracle.model.ended_groups.clear();
        let result = command(&mut self.oracle);
        let model = &mut self.oracle.model;
        model.forget_the_past();
        let mut steps = Vec::new();
        for (at, job) in self.jobs.iter_mut().enumerate() {
            let facts = model.facts(at as u64).map(Facts::forget_times);
            let is_cooling = model.cooldowns.iter().any(|cooldown| cooldown.id == at as u64);
            let has_ended =
                |after: After<'_>| model.ended_groups.iter().any(|ended| ended == after.group.as_str());
            job.is_freed_by_loss |= facts.is_none() && job.tags.after.is_some_and(has_ended);
            let is_last = |last: &Version| last.facts == facts && last.is_cooling == is_cooling;
            if !job.versions.last().is_some_and(is_last) {
                job.is_busy = true;
                job.versions.push(Version { facts, is_cooling, acknowledged: None });
                steps.push((at, job.versions.len() - 1));
            }
        }
        (result, steps)
    }

    /// Notes a `complete` of this job with these puts: either all of it has happened, or none.
    pub fn complete(&mut self, job: usize, puts: &[usize]) {
        self.completes.push((job, puts.to_vec()));
    }

    /// Checks that each `complete` was restored as a whole or not at all. A job may also be gone because its own put
    /// was not promised, and a job that was put may have been deleted since. If acknowledged changes may be lost, then
    /// also a `complete` whose puts are back: the log can have later copies of them.
    fn check_completes(&self, restored: &Model, promised: Option<u64>) {
        for (job, puts) in &self.completes {
            let there = |at: &usize| restored.job(*at as u64).is_some();
            let ids = || puts.iter().map(|&put| self.jobs[put].id).collect::<Vec<_>>();
            if there(job) {
                let is_torn = promised == Some(self.acknowledgements) && puts.iter().any(there);
                assert!(!is_torn, "job {:?} is there, and jobs of {:?}, too", self.jobs[*job].id, ids());
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
    pub fn seen(&mut self, id: u64, body: &[u8]) -> usize {
        let job = index_in(body);
        assert!(self.jobs[job].body == body, "the body of job {id}");
        assert!(self.oracle.model.job(job as u64).is_some(), "job {id} is deleted, and yet reserved");
        let newest = (job, self.jobs[job].versions.len() - 1);
        let was_busy = self.jobs[job].is_busy;
        self.learn_id(job, id);
        self.acknowledge(&[newest]);
        self.jobs[job].is_busy = was_busy;
        job
    }

    /// Compares the restored jobs with the versions, and the restored cooldowns, which are `unknown` until their jobs
    /// are found. The first `promised` acknowledgements must hold. With `None`, any may be lost, but no job may be
    /// restored that was never put.
    pub fn restart(
        &mut self,
        restored: &Restored,
        mut unknown: Cooldowns,
        next_id: u64,
        promised: Option<u64>,
        now: Timestamp,
    ) {
        let mut model = self.restored(restored, now);
        self.check_completes(&model, promised);
        self.completes.clear();
        for (record, _, body, _) in restored {
            let before = self.jobs[index_in(body)].id.replace(record.id.0);
            assert!(before.is_none_or(|before| before == record.id.0), "{record:?} was {before:?}");
        }
        for (at, job) in self.jobs.iter_mut().enumerate() {
            let facts = model.facts(at as u64).map(Facts::forget_times);
            let has_members = job.tags.after.is_some_and(|after| model.members(after.group).next().is_some());
            let is_held = facts.as_ref().is_some_and(|facts| facts.is_held);
            assert!(has_members || !is_held, "job {:?} waits for a group without members", job.id);
            let cooldown = job.id.and_then(|id| unknown.remove(&id));
            let is_cooling = cooldown.is_some();
            if let Some((tube, key, until)) = cooldown {
                let tag = job.tags.idempotency.filter(|tag| tube == job.tube && tag.key == key.as_str());
                model.restore_cooldown(at as u64, &tube, tag.expect("the key of the job").key, until);
            }
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
            if facts.is_none() && promised.is_none() && !is_cooling {
                job.id = None;
            }
            assert!(job.id.is_none_or(|id| id < next_id), "the id {next_id} is given twice");
            job.versions = vec![Version { facts, is_cooling, acknowledged: Some(0) }];
            (job.is_busy, job.is_freed_by_loss) = (false, false);
        }
        assert!(unknown.is_empty(), "cooldowns of no delete: {unknown:?}");
        (self.oracle.model, self.first_id, self.acknowledgements) = (model, next_id, 1);
    }

    /// The model of the restored jobs, each of which must have been put.
    fn restored(&self, restored: &Restored, now: Timestamp) -> Model {
        let mut model = Model::new(PoisonLimits::default());
        for (record, tube, body, tags) in restored {
            let at = index_in(body);
            let known = &self.jobs[at];
            assert!(known.body == *body && known.tube == tube.as_str(), "{record:?} was never put");
            let tags = JobTags::decode(tags).unwrap_or_default();
            assert_eq!(as_free(tags), as_free(known.tags.into()));
            assert!(model.job(at as u64).is_none(), "{record:?} is restored twice");
            let after = known
                .tags
                .after
                .map(|after| After { is_free: tags.after.is_some_and(|it| it.is_free), ..after });
            let record = JobRecord { id: JobId(at as u64), ..*record };
            model.restore(
                &record,
                &known.tube,
                known.body.as_slice().into(),
                TagSet { after, ..known.tags },
                now,
            );
        }
        model.jobs.sort_by_key(|job| job.id);
        model.finish_restart();
        model
    }
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
                let is_free = |held: &Facts| may_be_free && held.is_held && facts == Some(&held.freed());
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

/// The index of the job with this body.
fn index_in(body: &[u8]) -> usize {
    let digits = body.split(|&byte| byte == b':').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("a body that was put")
}
