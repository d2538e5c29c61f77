//! A model of the jobs of a server with a binlog, which knows what must come back after a restart.
//!
//! Owns: the versions of each job, and which of them were acknowledged. Never talks to a server. Driven by `crashes`,
//! which reports the commands and the replies.

use beanstalkd::job::{Body, JobRecord, JobState};
use beanstalkd::tube_name::TubeName;

/// The facts of a job that must survive a restart. A reserved job comes back ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub state: JobState,
    pub priority: u32,
    pub delay_s: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
}

/// One version of a job. A deleted job has no facts.
#[derive(Clone, Debug)]
struct Version {
    facts: Option<Facts>,
    /// The number of earlier acknowledgements, if this version was acknowledged.
    acknowledged: Option<u64>,
}

#[derive(Debug)]
pub struct Job {
    /// Known when the put is acknowledged, or the job has come back.
    pub id: Option<u64>,
    pub tube: String,
    pub body: Vec<u8>,
    /// Whether a command on it is not yet answered.
    pub is_busy: bool,
    /// The client that has reserved it.
    pub holder: Option<usize>,
    /// Its position in the order of burials.
    pub buried: u64,
    versions: Vec<Version>,
}

impl Job {
    /// The facts when all commands so far are executed.
    pub fn newest(&self) -> Option<&Facts> {
        self.versions.last().and_then(|version| version.facts.as_ref())
    }
}

/// A job and a version of it, which a reply acknowledges.
pub type Step = (usize, usize);

/// A job as the binlog restores it.
pub type Restored = (JobRecord, TubeName, Body, Vec<u8>);

#[derive(Debug, Default)]
pub struct DurableModel {
    pub jobs: Vec<Job>,
    /// The number of acknowledgements of this server. Those of all earlier servers count as one.
    pub acknowledgements: u64,
    burials: u64,
    /// The first id that this server may give.
    first_id: u64,
}

impl DurableModel {
    /// Adds a job that is being put. Its body begins with its index here.
    pub fn put(&mut self, tube: String, facts: Facts, filler: usize) -> Step {
        let mut body = format!("{}:", self.jobs.len()).into_bytes();
        body.extend((0..filler).map(|at| (at % 251) as u8));
        self.jobs.push(Job {
            id: None,
            tube,
            body,
            is_busy: true,
            holder: None,
            buried: 0,
            versions: vec![Version { facts: Some(facts), acknowledged: None }],
        });
        (self.jobs.len() - 1, 0)
    }

    /// Notes a command that gives a job these facts.
    pub fn change(&mut self, job: usize, facts: Option<Facts>) -> Step {
        self.burials += 1;
        let burials = self.burials;
        let known = &mut self.jobs[job];
        if facts.as_ref().is_some_and(|facts| facts.state == JobState::Buried) {
            known.buried = burials;
        }
        known.is_busy = true;
        known.versions.push(Version { facts, acknowledged: None });
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
    pub fn restart(&mut self, restored: &[Restored], next_id: u64, promised: Option<u64>) {
        let mut found: Vec<Option<&Restored>> = vec![None; self.jobs.len()];
        for job in restored {
            let (record, tube, body, _) = job;
            let known = &self.jobs[token(body.as_slice())];
            assert!(known.body == body.as_slice() && known.tube == tube.as_str(), "{record:?} was never put");
            let before = found[token(body.as_slice())].replace(job);
            assert!(before.is_none(), "{record:?} is restored twice");
        }
        for (job, found) in self.jobs.iter_mut().zip(found) {
            let facts = found.map(|(record, ..)| facts_of(record));
            if let Some(promised) = promised {
                job.check(facts.as_ref(), promised);
            }
            // The id of an acknowledged job is not given again, even if the job was lost, because its client may
            // still delete it.
            job.id = found.map(|(record, ..)| record.id.0).or(job.id.filter(|_| promised.is_some()));
            assert!(job.id.is_none_or(|id| id < next_id), "the id {next_id} is given twice");
            job.versions = vec![Version { facts, acknowledged: Some(0) }];
            (job.is_busy, job.holder) = (false, None);
        }
        self.first_id = next_id;
        self.acknowledgements = 1;
        // Buried jobs are restored in the order of their burials.
        for (_, _, body, _) in restored.iter().filter(|(record, ..)| record.state == JobState::Buried) {
            self.burials += 1;
            self.jobs[token(body.as_slice())].buried = self.burials;
        }
    }
}

impl Job {
    /// Checks that the restored version is not older than the promised one.
    fn check(&self, facts: Option<&Facts>, promised: u64) {
        let is_promised = |version: &Version| version.acknowledged.is_some_and(|before| before < promised);
        let first = self.versions.iter().rposition(is_promised);
        let is_allowed = match first {
            None if facts.is_none() => true,
            _ => self.versions[first.unwrap_or(0)..].iter().any(|version| version.facts.as_ref() == facts),
        };
        assert!(
            is_allowed,
            "job {:?} comes back as {facts:?}; {promised} acknowledgements hold, the last of it is \
             number {first:?} of {:?}",
            self.id, self.versions
        );
    }
}

fn facts_of(record: &JobRecord) -> Facts {
    Facts {
        state: record.state,
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
