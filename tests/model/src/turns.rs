//! Turns of keys (`fair`). The model does not say whose turn it is, but what holds in any case: a job that goes is the
//! most urgent and oldest of its key, none of its tube that may go is more urgent, and no key gets a second turn while
//! another one, whose job could have gone all the time, has had none. Which of the jobs goes that may, the queue says.

use std::collections::BTreeSet;

use beanstalkd_queue::WaitOutcome;
use beanstalkd_types::job::JobId;
use beanstalkd_types::tags::Name;

use crate::queue::{Job, Model, State, TubePlace};

/// The key of a job; jobs without one have one in common.
pub(crate) type Lane = Option<Name<'static>>;

fn lane(job: &Job) -> Lane {
    job.tags.concurrency.map(|tag| tag.key)
}

impl Model {
    /// What the queue has done, from which the model takes whose turn it was.
    pub fn hint(&mut self, delivered: (u32, WaitOutcome)) {
        self.hints.push(delivered);
    }

    /// What was given to `hint` since the last call.
    pub fn take_hints(&mut self) -> Vec<(u32, WaitOutcome)> {
        std::mem::take(&mut self.hints)
    }

    /// When the queue gave the job to a client that waited, if it did.
    fn hinted_at(&self, id: u64) -> Option<usize> {
        self.hints.iter().position(|&(_, outcome)| outcome == WaitOutcome::Reserved(JobId(id)))
    }

    /// Which of these jobs went first; the first one if the queue says nothing.
    pub(crate) fn first_hinted(&self, jobs: impl Iterator<Item = u64> + Clone) -> Option<u64> {
        let hinted = jobs.clone().filter_map(|id| Some((self.hinted_at(id)?, id))).min();
        hinted.map(|(_, id)| id).or_else(|| jobs.min())
    }

    pub(crate) fn is_fair(&self, place: TubePlace) -> bool {
        self.rule_of(place).is_some_and(|rule| rule.is_fair)
    }

    fn open_jobs(&self, place: TubePlace) -> impl Iterator<Item = &Job> {
        let open =
            move |job: &&Job| job.tube == place && job.state == State::Ready && self.may_be_reserved(job);
        self.jobs.iter().filter(open)
    }

    /// The jobs of the tube of which one goes next: by priority, then by id.
    pub(crate) fn heads(&self, place: TubePlace) -> Vec<(u32, u64)> {
        let mut open: Vec<_> = self.open_jobs(place).map(|job| (job.priority, job.id, lane(job))).collect();
        open.sort_unstable();
        let Some(&(first, ..)) = open.first() else { return Vec::new() };
        let mut lanes = BTreeSet::new();
        let count = if self.is_fair(place) { usize::MAX } else { 1 };
        let heads = open.into_iter().filter(|&(priority, _, lane)| lanes.insert(lane) && priority == first);
        heads.map(|(priority, id, _)| (priority, id)).take(count).collect()
    }

    /// Whether the job is ready and the first of its key, and so is a job of another key: whose turn it is, the model
    /// does not say.
    pub fn may_wait_for_turn(&self, job: &Job) -> bool {
        let heads = self.heads(job.tube);
        heads.len() > 1 && heads.iter().any(|&(_, id)| id == job.id)
    }

    /// A job of the tube goes to a client because it is its turn.
    pub(crate) fn take_turn(&mut self, id: u64) {
        let job = self.job(id).expect("it is there");
        let (place, priority, own) = (job.tube, job.priority, lane(job));
        if !self.is_fair(place) {
            return;
        }
        let open = self.open_jobs(place).filter(|job| job.priority == priority).map(lane);
        let open: BTreeSet<Lane> = open.filter(|&other| other != own).collect();
        let passed = &mut self.tube_mut(place).passed;
        passed.retain(|(waiting, _)| open.contains(waiting));
        for other in open {
            assert!(passed.insert((other, own)), "{own:?} has a second turn before {other:?} has one");
        }
    }

    /// To be called after each operation: what no longer waits for its turn begins anew.
    pub fn forget_turns(&mut self) {
        for place in 0..self.tubes.len() {
            if self.tubes[place].is_some() {
                let open: BTreeSet<Lane> = self.open_jobs(place).map(lane).collect();
                let is_fair = self.is_fair(place);
                self.tube_mut(place).passed.retain(|(waiting, _)| is_fair && open.contains(waiting));
            }
        }
    }
}
