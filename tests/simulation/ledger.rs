//! What the clients of a server with a binlog know of their jobs, and so what must come back after its end.
//!
//! Owns: each job's life in versions, and which of them were acknowledged. Never speaks to a server: driven
//! by `crashes`, which tells it what was asked for and what was answered.

use beanstalkd::job::{Body, JobRecord, JobState};
use beanstalkd::tube_name::TubeName;

/// A job between two commands, as far as it must come back. A reserved one comes back ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub state: JobState,
    pub priority: u32,
    pub delay_s: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
}

/// One state in a job's life; no facts once it is deleted.
#[derive(Clone, Debug)]
struct Version {
    facts: Option<Facts>,
    /// How many acknowledgements came before this one's, if that has come.
    acknowledged: Option<u64>,
}

#[derive(Debug)]
pub struct Job {
    /// Known once the put is acknowledged, or the job has come back.
    pub id: Option<u64>,
    pub tube: String,
    pub body: Vec<u8>,
    /// A command on it is under way.
    pub is_busy: bool,
    /// The client that has it reserved.
    pub holder: Option<usize>,
    /// Orders the burials in a tube.
    pub buried: u64,
    versions: Vec<Version>,
}

impl Job {
    /// As it is once all commands so far are executed.
    pub fn newest(&self) -> Option<&Facts> {
        self.versions.last().and_then(|version| version.facts.as_ref())
    }
}

/// A job and a version of it, which a reply acknowledges.
pub type Step = (usize, usize);

/// A job as the binlog gives it back.
pub type Restored = (JobRecord, TubeName, Body, Vec<u8>);

#[derive(Debug, Default)]
pub struct Ledger {
    pub jobs: Vec<Job>,
    /// Acknowledgements of this life of the server so far; those of the lives before count as one.
    pub acknowledgements: u64,
    burials: u64,
    /// The first id that this life of the server may give.
    first_id: u64,
}

impl Ledger {
    /// A job that is being put. Its body begins with its place here.
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

    /// A command is sent that makes this of a job.
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

    /// A reply has left that says that these have happened.
    pub fn acknowledge(&mut self, steps: &[Step]) {
        for &(job, version) in steps {
            self.jobs[job].is_busy = false;
            self.jobs[job].versions[version].acknowledged = Some(self.acknowledgements);
        }
        self.acknowledgements += 1;
    }

    /// A reply has left that carries this id.
    pub fn learn_id(&mut self, job: usize, id: u64) {
        if self.jobs[job].id != Some(id) {
            let is_new = id >= self.first_id && self.jobs.iter().all(|job| job.id != Some(id));
            assert!(is_new, "the id {id} is given twice");
            self.jobs[job].id = Some(id);
        }
    }

    /// A client has got this job from the ready queue: all that had happened to it is told by that.
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

    /// The server has been started anew. `promised`: the acknowledgements that must hold; `None` where
    /// nothing is promised but that no job comes from nowhere.
    pub fn restart(&mut self, restored: &[Restored], next_id: u64, promised: Option<u64>) {
        let mut found: Vec<Option<&Restored>> = vec![None; self.jobs.len()];
        for job in restored {
            let (record, tube, body, _) = job;
            let known = &self.jobs[token(body.as_slice())];
            assert!(
                known.body == body.as_slice() && known.tube == tube.as_str(),
                "{record:?} comes from nowhere"
            );
            let before = found[token(body.as_slice())].replace(job);
            assert!(before.is_none(), "{record:?} comes back twice");
        }
        for (job, found) in self.jobs.iter_mut().zip(found) {
            let facts = found.map(|(record, ..)| facts_of(record));
            if let Some(promised) = promised {
                job.check(facts.as_ref(), promised);
            }
            // The id of a job that was acknowledged is not given again, though the job was lost: its client may
            // still delete it.
            job.id = found.map(|(record, ..)| record.id.0).or(job.id.filter(|_| promised.is_some()));
            assert!(job.id.is_none_or(|id| id < next_id), "the id {next_id} is given twice");
            job.versions = vec![Version { facts, acknowledged: Some(0) }];
            (job.is_busy, job.holder) = (false, None);
        }
        self.first_id = next_id;
        self.acknowledgements = 1;
        // The order of their burial is the order in which they come back.
        for (_, _, body, _) in restored.iter().filter(|(record, ..)| record.state == JobState::Buried) {
            self.burials += 1;
            self.jobs[token(body.as_slice())].buried = self.burials;
        }
    }
}

impl Job {
    /// What comes back of it is not older than what was promised.
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

/// The place in the ledger of the job with this body.
fn token(body: &[u8]) -> usize {
    let digits = body.split(|&byte| byte == b':').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("a body that was put")
}
