//! Which ready jobs are in front: those that no key holds back. In a tube with the rule `fair`, the keys rotate.
//!
//! A job comes to the front when its key has room for its reservation, and no more urgent job of the tube has the same
//! key and limit. Of the jobs in front, a reserve takes the most urgent and oldest. In a fair tube, a key is in the
//! rotation while one of its jobs is in front; the reserve takes the first job of a key, and of those that are equally
//! urgent, that of the key that is the first in the rotation. Then this key goes to the end. Jobs without a key have
//! one in common.
//!
//! If reservations in other tubes, with another limit, or by `reserve-job` use up a key, its jobs stay in front and the
//! key keeps its position in the rotation until a reserve comes to them.

use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::tags::{Concurrency, Name};

use crate::queue::{Job, Model, State, TubeIndex};
use crate::tags::id_key;

/// The key of a job, or that of all jobs without one.
pub(crate) type RotationKey = Option<Name<'static>>;

fn rotation_key(job: &Job) -> RotationKey {
    job.tags.concurrency.map(|tag| tag.key)
}

impl Model {
    pub(crate) fn is_fair(&self, index: TubeIndex) -> bool {
        self.rule_of(index).is_some_and(|rule| rule.is_fair)
    }

    fn in_front(&self, index: TubeIndex) -> impl Iterator<Item = &Job> + Clone {
        self.jobs.iter().filter(move |job| job.tube == index && job.is_in_front)
    }

    /// The tube's jobs in the order in which they would be reserved; in a fair tube, only the first of each key.
    fn reserve_order(&self, index: TubeIndex) -> Vec<(u32, u64)> {
        if !self.is_fair(index) {
            let mut jobs: Vec<_> = self.in_front(index).map(id_key).collect();
            jobs.sort_unstable();
            return jobs;
        }
        let first = |key: &RotationKey| {
            self.in_front(index).filter(|job| rotation_key(job) == *key).map(id_key).min()
        };
        let mut jobs: Vec<_> = self.tube(index).rotation.iter().filter_map(first).collect();
        // Equally urgent ones keep the order of the rotation.
        jobs.sort_by_key(|&(priority, _)| priority);
        jobs
    }

    /// The next job of the tube to be reserved.
    pub(crate) fn head(&self, index: TubeIndex) -> Option<(u32, u64)> {
        self.reserve_order(index).first().copied()
    }

    /// Whether the tube is fair and another job goes before this one, which may be reserved.
    pub(crate) fn is_passed_over(&self, job: &Job) -> bool {
        let may_go = |&(_, id): &(u32, u64)| self.may_be_reserved(self.job(id).expect("it is there"));
        let next = self.reserve_order(job.tube).into_iter().find(may_go);
        self.is_fair(job.tube) && next.is_some_and(|(_, id)| id != job.id)
    }

    /// A reserve probes the tube: jobs whose time is over end, and jobs whose keys are used up leave the front, until a
    /// client may get the first job.
    pub(crate) fn refresh_head(&mut self, index: TubeIndex, now: Timestamp) {
        while let Some((_, id)) = self.head(index) {
            if self.ends_instead(id, now) {
                continue;
            }
            if self.may_be_reserved(self.job(id).expect("it is there")) {
                break;
            }
            self.job_mut(id).is_in_front = false;
            self.shorten_rotation(index);
        }
    }

    /// Brings the job to the front; its key joins the end of the rotation if it is not in the rotation.
    fn come_to_front(&mut self, id: u64) {
        let job = self.job_mut(id);
        job.is_in_front = true;
        let (index, key) = (job.tube, rotation_key(job));
        if self.is_fair(index) && !self.tube(index).rotation.contains(&key) {
            self.tube_mut(index).rotation.push(key);
        }
    }

    /// Removes keys without jobs in front from the rotation.
    fn shorten_rotation(&mut self, index: TubeIndex) {
        let mut rotation = std::mem::take(&mut self.tube_mut(index).rotation);
        rotation.retain(|key| self.in_front(index).any(|job| rotation_key(job) == *key));
        self.tube_mut(index).rotation = rotation;
    }

    /// Lines up a job that has become ready and for which no client waits. It replaces a less urgent one with the same
    /// key and limit.
    pub(crate) fn line_up(&mut self, id: u64) {
        let job = self.job(id).expect("it is ready").clone();
        if self.is_behind(id) {
            return self.shorten_rotation(job.tube);
        }
        let is_alike = |other: &Job| {
            job.tags.concurrency.is_some()
                && (other.tube, other.tags.concurrency) == (job.tube, job.tags.concurrency)
        };
        self.jobs.iter_mut().filter(|other| is_alike(other)).for_each(|other| other.is_in_front = false);
        if self.may_be_reserved(&job) {
            self.come_to_front(id);
        }
        self.shorten_rotation(job.tube);
    }

    /// The job, described by `before`, is no longer ready in its tube.
    pub(crate) fn leave_front(&mut self, before: &Job) {
        self.step_aside(before);
        self.shorten_rotation(before.tube);
    }

    /// Like `leave_front`, for a job that will be ready there again at once: its key keeps its place.
    pub(crate) fn step_aside(&mut self, before: &Job) {
        if before.is_in_front {
            self.jobs.iter_mut().filter(|job| job.id == before.id).for_each(|job| job.is_in_front = false);
            self.bring_next(before.tube, before.tags.concurrency, before.id);
        }
    }

    /// The first of the other ready jobs with this key and limit comes to the front if it may. A client that waits for
    /// it gets it at the end of the command.
    pub(crate) fn bring_next(&mut self, index: TubeIndex, tag: Option<Concurrency<'_>>, but: u64) {
        let is_alike = |job: &&Job| {
            (job.tube, job.tags.concurrency, job.state) == (index, tag, State::Ready) && job.id != but
        };
        let next = self.jobs.iter().filter(is_alike).min_by_key(|job| id_key(job));
        let next = next.filter(|next| tag.is_some() && self.may_be_reserved(next)).map(|next| next.id);
        if let Some(next) = next
            && !(self.lets_through(index) && self.first_waiting(index).is_some())
        {
            self.come_to_front(next);
        }
    }

    /// Brings jobs whose keys have room again to the front, in the order of the keys.
    pub(crate) fn refresh_front(&mut self) {
        let may_come = |job: &&Job| {
            job.state == State::Ready
                && !job.is_in_front
                && self.may_be_reserved(job)
                && !self.is_behind(job.id)
        };
        let come = self.jobs.iter().filter(may_come);
        let mut come: Vec<_> = come
            .map(|job| (rotation_key(job), job.tags.concurrency.map(|tag| tag.limit), id_key(job)))
            .collect();
        come.sort_unstable();
        come.into_iter().for_each(|(.., (_, id))| self.come_to_front(id));
    }

    /// A client gets the job, which is in front; its key goes to the end of the rotation. The next job with the same
    /// key and limit comes to the front when this one is reserved.
    pub(crate) fn advance_rotation(&mut self, id: u64) {
        let job = self.job_mut(id);
        job.is_in_front = false;
        let (index, key, own) = (job.tube, rotation_key(job), id_key(job));
        let is_older = |other: &Job| self.may_be_reserved(other) && id_key(other) < own;
        let overtakes = self.in_front(index).any(is_older);
        self.overtakes += u64::from(overtakes);
        self.tube_mut(index).rotation.retain(|other| *other != key);
        let other = self.in_front(index).find(|job| rotation_key(job) == key).map(|job| job.id);
        other.into_iter().for_each(|other| self.come_to_front(other));
    }

    /// Gives the next job to a client that waits for the tube; returns whether there was one.
    pub(crate) fn deliver_next(&mut self, index: TubeIndex, now: Timestamp) -> bool {
        let Some(client) = self.first_waiting(index) else { return false };
        self.refresh_head(index, now);
        let Some((_, id)) = self.head(index) else { return false };
        self.deliver_job(client, id, now);
        true
    }

    /// Applies other rules to the rotations: they end, or all keys join one in the order of their oldest jobs.
    pub(crate) fn change_rotations(&mut self) {
        for index in 0..self.tubes.len() {
            if self.tubes[index].is_some() && !self.is_fair(index) {
                self.tube_mut(index).rotation.clear();
            }
        }
        let mut ids: Vec<u64> = self.jobs.iter().filter(|job| job.is_in_front).map(|job| job.id).collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| self.come_to_front(id));
    }

    /// Another server has read the jobs: the keys join new rotations in the order of their oldest jobs.
    pub(crate) fn line_up_again(&mut self) {
        for job in &mut self.jobs {
            job.is_in_front = false;
        }
        self.tubes.iter_mut().flatten().for_each(|tube| tube.rotation.clear());
        let ready = self.jobs.iter().filter(|job| job.state == State::Ready && self.may_be_reserved(job));
        let mut ready: Vec<u64> = ready.map(|job| job.id).collect();
        ready.sort_unstable();
        // First the jobs that are read first, then those that are the first of their kind.
        ready.iter().for_each(|&id| self.come_to_front(id));
        for id in ready {
            self.job_mut(id).is_in_front = !self.is_behind(id);
        }
    }
}
