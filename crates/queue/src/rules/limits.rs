//! The rules `max-jobs` and `max-bytes`: limits on the contents of a tube.
//!
//! Owns: the total size of the bodies in each tube that has such a rule. A job is marked while its tube counts it. The
//! number of jobs of a tube is known without that. Only a put and a move are refused; no other change of a job ever
//! fails because of a limit.

use std::collections::HashMap;

use super::{JobEnd, MarkedJob, Rule};
use crate::state::jobs::Marks;
use crate::state::keys::TubeKey;
use crate::{ClientId, Queue};

/// The limits of tubes.
#[derive(Debug)]
pub(crate) struct TubeLimits;

impl Rule for TubeLimits {
    const ADDED: Marks = Marks::TAGGED.union(Marks::RULED);
    fn added(queue: &mut Queue, job: &MarkedJob<'_>) {
        if let Some(ruled) = &mut queue.tubes.get_mut(job.tube).ruled
            && ruled.rule.is_some()
        {
            ruled.body_bytes += job.body_bytes as u64;
            let record = queue.jobs.expect_mut(job.id);
            debug_assert!(!record.has(Marks::RULED), "a tube counts a job once");
            record.marks |= Marks::RULED;
        }
    }

    fn moved(queue: &mut Queue, job: &MarkedJob<'_>, from: TubeKey) {
        if job.marks.intersects(Marks::RULED) {
            Self::forget(queue, job, from);
        }
        Self::added(queue, job);
    }

    const ENDED: Marks = Marks::RULED;
    fn ended(queue: &mut Queue, job: &MarkedJob<'_>, _end: &mut JobEnd) {
        queue.uncount(job.tube, job.body_bytes);
    }

    #[inline]
    fn check(queue: &Queue) {
        let mut by_tube: HashMap<TubeKey, (u64, u64, u64)> = HashMap::new();
        for job in queue.jobs.ids().filter_map(|id| queue.jobs.get(id)) {
            let (count, marked, bytes) = by_tube.entry(job.tube).or_default();
            *count += 1;
            if job.has(Marks::RULED) {
                *marked += 1;
                *bytes += job.body().len() as u64;
            }
        }
        for tube in queue.tubes.iter() {
            let key = queue.tubes.find(tube.name.as_str()).expect("a listed tube is found by its name");
            let (count, marked, bytes) = by_tube.get(&key).copied().unwrap_or_default();
            assert_eq!(
                tube.ruled.as_ref().map_or(0, |ruled| ruled.body_bytes),
                bytes,
                "{}: the bytes of the jobs are counted",
                tube.name
            );
            if !queue.rules.tubes.is_reloading() {
                let is_ruled = tube.ruled.is_some();
                assert_eq!(marked, if is_ruled { count } else { 0 }, "{}: each job is counted", tube.name);
            }
        }
    }
}

impl TubeLimits {
    /// Removes the mark of a job that this tube counts, and the job's body from the tube's sum.
    pub(crate) fn forget(queue: &mut Queue, job: &MarkedJob<'_>, tube: TubeKey) {
        queue.jobs.expect_mut(job.id).marks &= !Marks::RULED;
        queue.uncount(tube, job.body_bytes);
    }
}

impl Queue {
    /// Removes a body that counted in this tube.
    pub(crate) fn uncount(&mut self, tube: TubeKey, body_bytes: usize) {
        let ruled = self.tubes.get_mut(tube).ruled.as_mut().expect("a tube that counts a job has a rule");
        debug_assert!(
            ruled.body_bytes >= body_bytes as u64,
            "the bytes of the tube include the removed body"
        );
        ruled.body_bytes -= body_bytes as u64;
    }

    /// Whether the tube of a put, or of a move, has no room for a job with a body of `body_bytes`.
    #[inline]
    #[must_use]
    pub fn is_full_for(&self, client: ClientId, tube: Option<&str>, body_bytes: usize) -> bool {
        if self.tubes.rules.is_empty() {
            return false;
        }
        if let Some(name) = tube {
            return self.is_tube_full_for(name, body_bytes);
        }
        let tube = self.client(client).using;
        self.tubes.get(tube).ruled.is_some() && self.lacks_room(tube, body_bytes)
    }

    #[inline(never)]
    fn lacks_room(&self, tube: TubeKey, body_bytes: usize) -> bool {
        let tube = self.tubes.get(tube);
        let ruled = tube.rule_and_bytes().filter(|(rule, _)| rule.has_limits());
        ruled.is_some_and(|(rule, bytes)| !rule.has_room(tube.job_counts().total() as u64, bytes, body_bytes))
    }

    /// Whether the tube with this name, which need not exist, has no room for a job with a body of `body_bytes`.
    pub(crate) fn is_tube_full_for(&self, name: &str, body_bytes: usize) -> bool {
        match self.tubes.find(name) {
            Some(tube) => self.lacks_room(tube, body_bytes),
            None => self.tubes.rules.find(name).is_some_and(|rule| !rule.has_room(0, 0, body_bytes)),
        }
    }

    /// Counts a job that was refused because the tube of its put, or of its move, is full.
    #[cold]
    pub fn count_refused(&mut self, client: ClientId, tube: Option<&str>) {
        self.count_refused_by(self.find_target(client, tube));
    }

    pub(crate) fn count_refused_by(&mut self, tube: Option<TubeKey>) {
        if let Some(tube) = tube
            && let Some(ruled) = &mut self.tubes.get_mut(tube).ruled
        {
            ruled.rejected += 1;
        }
    }
}
