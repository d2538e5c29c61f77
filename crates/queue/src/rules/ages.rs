//! The rule `max-age`: how long a job stays in a tube before it goes to the dead tube, or is deleted.
//!
//! Owns: for each tube with the rule, the order in which its jobs came into it, so that the first one is the next to
//! become too old. Three kinds of jobs are not in this order: reserved jobs, which the rule checks when they are
//! released; dead jobs; and jobs that became too old while their dead tube was full. The last ones stay buried until
//! they are released again, a new file of rules is read, or another server takes over the jobs.
//!
//! A job comes into its tube with its put. A move into a tube with the rule notes the time in the tags of the job, as a
//! distance from the put, because the log moves the instant of the put together with the clock.

use std::collections::{BTreeMap, BTreeSet};

use beanstalkd_structures::Timer;

use super::{JobEnd, MarkedJob, Rule};
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::seconds::Seconds;
use crate::state::jobs::{Job, Marks};
use crate::state::keys::{DueKey, TubeKey};
use crate::tags::JobTags;

/// The memory for the position of a job, in bytes, in the usual case.
pub(crate) const BYTES_PER_JOB: usize = 20;

/// The ages of jobs. Each tube with a rule keeps the ages of its jobs.
#[derive(Debug)]
pub(crate) struct Ages;

/// When a job that was put at `created_at` came into its tube.
fn arrived_at(created_at: Timestamp, tags: &JobTags<'_>) -> Timestamp {
    tags.arrived_after_s.map_or(created_at, |after| created_at.plus_seconds(after))
}

impl Rule for Ages {
    const ADDED: Marks = Marks::TAGGED.union(Marks::RULED);
    #[inline]
    fn added(queue: &mut Queue, job: &MarkedJob<'_>) {
        if queue.max_age_of(job.tube).is_none() || job.tags.dead().is_some() {
            return;
        }
        if queue.jobs.expect(job.id).state() != JobState::Reserved {
            queue.begin_aging((arrived_at(job.created_at, job.tags), job.id), job.tube);
        }
    }

    const RESERVED: Marks = Marks::AGES;
    fn reserved(queue: &mut Queue, job: &MarkedJob<'_>) {
        queue.end_aging((arrived_at(job.created_at, job.tags), job.id), job.tube);
        queue.jobs.expect_mut(job.id).marks &= !Marks::AGES;
    }

    fn moved(queue: &mut Queue, job: &MarkedJob<'_>, _from: TubeKey) {
        Self::added(queue, job);
    }

    const ENDED: Marks = Marks::AGES;
    fn ended(queue: &mut Queue, job: &MarkedJob<'_>, _end: &mut JobEnd) {
        queue.end_aging((arrived_at(job.created_at, job.tags), job.id), job.tube);
    }

    #[inline]
    fn check(queue: &Queue) {
        let all = queue.jobs.ids().filter_map(|id| Some((id, queue.jobs.get(id)?)));
        let mut aging: BTreeMap<TubeKey, BTreeSet<DueKey>> = BTreeMap::new();
        for (id, job) in all.filter(|(_, job)| job.has(Marks::AGES)) {
            assert!(job.state() != JobState::Reserved, "a reserved job does not age");
            assert!(queue.tags(id).is_none_or(|tags| tags.dead().is_none()), "a dead job does not age");
            aging.entry(job.tube).or_default().insert((queue.arrived_at(id, job), id));
        }
        for tube in queue.tubes.iter() {
            let Some(ruled) = &tube.ruled else { continue };
            let key = queue.tubes.find(tube.name.as_str()).expect("a listed tube is found by its name");
            let expected = aging.remove(&key).unwrap_or_default();
            assert!(
                ruled.ages.iter().eq(expected),
                "{}: the ages list each job that can become too old, in order",
                tube.name
            );
        }
        assert!(aging.is_empty(), "only jobs of tubes with a rule age");
    }
}

impl Queue {
    fn max_age_of(&self, tube: TubeKey) -> Option<u32> {
        self.tubes.get(tube).rule()?.max_age_s
    }

    fn arrived_at(&self, id: JobId, job: &Job) -> Timestamp {
        self.tags(id).map_or(job.created_at, |tags| arrived_at(job.created_at, &tags))
    }

    fn begin_aging(&mut self, key: DueKey, tube: TubeKey) {
        let ruled = self.tubes.get_mut(tube).ruled.as_mut().expect("its rule exists");
        ruled.ages.insert(key);
        self.rules.tubes.aging_jobs += 1;
        let job = self.jobs.expect_mut(key.1);
        debug_assert!(!job.has(Marks::AGES) && job.tube == tube, "a job ages once, in its tube");
        job.marks |= Marks::AGES;
        self.schedule(Timer::Tube(tube));
    }

    fn end_aging(&mut self, key: DueKey, tube: TubeKey) {
        let ruled = self.tubes.get_mut(tube).ruled.as_mut().expect("a tube with a job that ages has a rule");
        let found = ruled.ages.remove(key);
        assert!(found.is_some(), "a job that ages is in the order of its tube");
        debug_assert!(self.rules.tubes.aging_jobs > 0, "the job is counted");
        self.rules.tubes.aging_jobs -= 1;
    }

    /// Called when the job leaves its tube, or when its tags are about to change.
    pub(crate) fn stop_aging(&mut self, id: JobId) {
        let job = self.jobs.expect(id);
        if job.has(Marks::AGES) {
            let (arrived, tube) = (self.arrived_at(id, job), job.tube);
            self.end_aging((arrived, id), tube);
            self.jobs.expect_mut(id).marks &= !Marks::AGES;
        }
    }

    /// Called when a reload comes to this job: it ages if its tube has the rule.
    pub(crate) fn age_by_rule(&mut self, id: JobId) {
        let job = self.jobs.expect(id);
        if self.max_age_of(job.tube).is_none() {
            self.stop_aging(id);
        } else if !job.has(Marks::AGES) {
            let tags = self.tags(id).unwrap_or_default();
            let is_aging = tags.dead().is_none() && job.state() != JobState::Reserved;
            let (key, tube) = ((arrived_at(job.created_at, &tags), id), job.tube);
            if is_aging {
                self.begin_aging(key, tube);
            }
        }
    }

    /// The arrival time of a job that is moved now into the tube with this name, as a time after its put, if a rule
    /// needs it.
    pub(crate) fn arrival_in(&self, job: &Job, name: &str, now: Timestamp) -> Option<Seconds> {
        let rule = match self.tubes.find(name) {
            Some(tube) => self.tubes.get(tube).rule()?,
            None => self.tubes.rules.find(name)?,
        };
        rule.max_age_s?;
        // Rounded up, so that no job is too old before its time.
        let ns = now.since_ns(job.created_at).div_ceil(1_000_000).saturating_mul(1_000_000);
        Some(Seconds::of_ns(i64::try_from(ns).unwrap_or(i64::MAX)))
    }

    /// Lets the job, which was reserved and is in no collection, age again. Returns whether it is too old.
    #[cold]
    pub(crate) fn ages_again(&mut self, id: JobId, now: Timestamp) -> bool {
        debug_assert!(!self.is_linked(id), "the job was taken out of its collection");
        let job = self.jobs.expect(id);
        let tube = job.tube;
        let Some(max_age_s) = self.max_age_of(tube) else { return false };
        let tags = self.tags(id).unwrap_or_default();
        if tags.dead().is_some() {
            return false;
        }
        let arrived = arrived_at(job.created_at, &tags);
        let is_too_old = arrived.plus_seconds(max_age_s) <= now;
        if !is_too_old {
            self.begin_aging((arrived, id), tube);
        }
        is_too_old
    }

    /// Whether the job ages and is too old.
    pub(crate) fn is_too_old(&self, id: JobId, now: Timestamp) -> bool {
        let Some(job) = self.jobs.get(id).filter(|job| job.has(Marks::AGES)) else { return false };
        let max_age_s = self.max_age_of(job.tube);
        max_age_s.is_some_and(|max_age_s| self.arrived_at(id, job).plus_seconds(max_age_s) <= now)
    }

    /// Whether a job that is too old stays unchanged if its dead tube does not take it: it is buried, or its group
    /// holds it.
    pub(crate) fn stays_where_it_is(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| job.state() == JobState::Buried) || self.is_held(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NS_PER_S;
    use crate::job::{Body, Counting, Priority};
    use crate::tags::{After, TagSet};
    use crate::testing::{NOW, TestJob};
    use crate::{ClientId, Release, Released, Reserve, TubeRule};

    fn aging(pattern: &str, dead_tube: Option<&str>) -> TubeRule {
        TubeRule { max_age_s: Some(10), dead_tube: dead_tube.map(Into::into), ..TubeRule::new(pattern) }
    }

    fn put(queue: &mut Queue, client: ClientId, delay_s: u32, now: Timestamp) -> JobId {
        TestJob { delay_s, ..TestJob::default() }.put(queue, client, now)
    }

    fn release(queue: &mut Queue, client: ClientId, id: JobId, now: Timestamp) -> Released {
        let release = Release { priority: Priority(0), delay_s: 0.into(), counting: Counting::Uncounted };
        queue.release(client, id, release, now)
    }

    #[test]
    fn a_job_ends_to_the_nanosecond_in_every_state_but_reserved() {
        let mut queue = Queue::default();
        queue.apply_rules(vec![aging("*", None)], NOW);
        let client = queue.connect();
        let [ready, delayed, buried, reserved] =
            [0, 600, 0, 0].map(|delay_s| put(&mut queue, client, delay_s, NOW));
        assert!(queue.reserve_job(client, buried, NOW) && queue.reserve_job(client, reserved, NOW));
        queue.bury(client, buried, Priority(0), NOW);
        let end = NOW + 10 * NS_PER_S;
        assert_eq!(queue.next_deadline(), Some(end));
        queue.advance(end.minus_ns(1));
        assert!([ready, delayed, buried].into_iter().all(|id| queue.job(id).is_some()));
        queue.advance(end);
        queue.check_invariants();
        assert!([ready, delayed, buried].into_iter().all(|id| queue.job(id).is_none()));
        assert_eq!(queue.figures().events.expirations, 3);
        assert_eq!(release(&mut queue, client, reserved, end + 1), Released::Queued);
        assert_eq!((queue.figures().events.expirations, queue.figures().jobs.total()), (4, 0));
    }

    #[test]
    fn a_waiting_client_does_not_get_a_job_that_is_too_old_when_it_is_given_back() {
        for by_release in [true, false] {
            let mut queue = Queue::default();
            queue.apply_rules(vec![aging("default", Some("dead"))], NOW);
            let [holder, other] = [(); 2].map(|()| queue.connect());
            let id = put(&mut queue, holder, 0, NOW);
            assert!(queue.reserve_job(holder, id, NOW));
            assert_eq!(queue.reserve(other, None, NOW), Reserve::Waiting);
            let later = NOW + 11 * NS_PER_S;
            if by_release {
                assert_eq!(release(&mut queue, holder, id, later), Released::Queued);
            } else {
                queue.disconnect(holder, later);
            }
            queue.check_invariants();
            assert!(queue.is_waiting(other));
            assert_eq!(queue.job(id).unwrap().tube.as_str(), "dead");
        }
    }

    #[test]
    fn a_tube_goes_with_its_last_job_if_that_is_too_old_when_its_client_leaves() {
        let mut queue = Queue::default();
        queue.apply_rules(vec![aging("*", None)], NOW);
        let [producer, holder] = [(); 2].map(|()| queue.connect());
        queue.use_tube(producer, "work");
        let ids = [(); 2].map(|()| put(&mut queue, producer, 0, NOW));
        queue.use_tube(producer, "default");
        assert!(ids.into_iter().all(|id| queue.reserve_job(holder, id, NOW)));
        let later = NOW + 11 * NS_PER_S;
        queue.disconnect(holder, later);
        queue.check_invariants();
        assert_eq!(queue.figures().events.expirations, 2);
        assert!(queue.tube("work", later).is_none(), "nothing is left of it");
    }

    #[test]
    fn nothing_is_lost_or_tried_again_and_again_if_the_dead_tube_is_full() {
        let mut queue = Queue::default();
        let full = TubeRule { max_jobs: Some(1), ..TubeRule::new("dead") };
        queue.apply_rules(vec![aging("default", Some("dead")), full.clone()], NOW);
        let client = queue.connect();
        let ids = [(); 3].map(|()| put(&mut queue, client, 0, NOW));
        let end = NOW + 10 * NS_PER_S;
        while queue.next_deadline().is_some_and(|at| at <= end) {
            queue.advance(end);
        }
        let tubes = ids.map(|id| queue.job(id).unwrap().tube.as_str().to_owned());
        assert_eq!(tubes, ["dead", "default", "default"]);
        assert_eq!(queue.next_deadline(), None, "what stays is not due again");
        // With more room, a reload tries again.
        queue.set_tube_rules(
            vec![aging("default", Some("dead")), TubeRule { max_jobs: Some(2), ..full }],
            end,
        );
        while queue.next_deadline().is_some_and(|at| at <= end) {
            queue.advance(end);
            queue.check_invariants();
        }
        assert_eq!(ids.map(|id| queue.job(id).unwrap().tube.as_str() == "dead"), [true, true, false]);
    }

    #[test]
    fn a_job_that_is_too_old_when_its_group_ends_is_buried_before_a_client_gets_it() {
        let mut queue = Queue::default();
        queue.apply_rules(vec![aging("default", Some("default"))], NOW);
        let (producer, worker) = (queue.connect(), queue.connect());
        let tags = TagSet { group: Some("g".try_into().unwrap()), ..TagSet::default() };
        let member = TestJob { delay_s: 600, tags, ..TestJob::default() }.put(&mut queue, producer, NOW);
        let after = Some(After { group: "g".try_into().unwrap(), is_free: false });
        let tags = TagSet { after, ..TagSet::default() };
        let held = TestJob { tags, ..TestJob::default() }.put(&mut queue, producer, NOW + 1);
        assert_eq!(queue.reserve(worker, None, NOW), Reserve::Waiting);
        let end = NOW + 11 * NS_PER_S;
        queue.note_overdue(end);
        queue.delete(producer, member, end).expect("it is delayed");
        while queue.next_deadline().is_some_and(|at| at <= end) {
            queue.advance(end);
            queue.check_invariants();
        }
        assert!(queue.is_waiting(worker));
        assert_eq!(queue.job(held).unwrap().record.state, JobState::Buried);
        assert!(queue.tags(held).unwrap().after.unwrap().is_free, "it does not wait again after a restart");
    }

    #[test]
    fn a_client_that_leaves_with_a_job_of_a_full_dead_tube_makes_no_room_there() {
        let mut queue = Queue::default();
        let full = TubeRule { max_jobs: Some(1), ..TubeRule::new("dead") };
        queue.apply_rules(vec![aging("default", Some("dead")), full], NOW);
        let client = queue.connect();
        let old = put(&mut queue, client, 0, NOW);
        queue.use_tube(client, "dead");
        let dead = put(&mut queue, client, 0, NOW);
        assert!([old, dead].into_iter().all(|id| queue.reserve_job(client, id, NOW)));
        queue.disconnect(client, NOW + 10 * NS_PER_S);
        queue.check_invariants();
        let [old, dead] =
            [old, dead].map(|id| queue.job(id).map(|job| (job.tube.as_str().to_owned(), job.record.state)));
        assert_eq!(old, Some(("default".to_owned(), JobState::Buried)), "there is no room for it");
        assert_eq!(dead, Some(("dead".to_owned(), JobState::Ready)));
    }

    #[test]
    fn a_move_begins_the_age_again_and_the_tag_says_so_to_a_restart() {
        let mut queue = Queue::default();
        queue.apply_rules(vec![aging("a", None)], NOW);
        let client = queue.connect();
        let id = put(&mut queue, client, 0, NOW);
        let moved_at = NOW + 100 * NS_PER_S + 1;
        assert!(queue.move_job(id, "a", moved_at));
        let arrived = queue.job(id).unwrap().tags.unwrap().arrived_after_s;
        assert_eq!(arrived, Some(Seconds::new(100, 1)), "rounded up");
        let end = NOW + 110 * NS_PER_S + 1_000_000;
        assert_eq!(queue.next_deadline(), Some(end));
        let record = queue.job(id).unwrap().record;
        let mut room = Vec::new();
        let tags = queue.tags_for_log(id, &mut room).to_vec();
        let mut restarted = Queue::default();
        restarted.apply_rules(vec![aging("a", None)], end);
        restarted.restore(&record, "a", Body::copy_of(b"x").unwrap(), &tags, end.minus_ns(1)).unwrap();
        assert_eq!(restarted.next_deadline(), Some(end));
        // In a tube without the rule, nothing of it is left.
        assert!(queue.move_job(id, "b", moved_at));
        assert_eq!((queue.job(id).unwrap().tags, queue.next_deadline()), (None, None));
        queue.check_invariants();
    }

    #[test]
    fn no_age_is_too_large_and_a_reload_changes_it_without_a_walk_through_the_jobs() {
        let mut queue = Queue::default();
        let rule = |max_age_s| TubeRule { max_age_s, ..TubeRule::new("*") };
        queue.apply_rules(vec![rule(Some(u32::MAX))], NOW);
        let client = queue.connect();
        put(&mut queue, client, 0, NOW);
        assert_eq!(queue.next_deadline(), Some(NOW.plus_seconds(u32::MAX)));
        for max_age_s in [Some(1), None, Some(7)] {
            queue.apply_rules(vec![rule(max_age_s)], NOW);
            queue.check_invariants();
            let due = queue.deadline_of(Timer::Tube(crate::state::tubes::DEFAULT));
            assert_eq!(due, max_age_s.map(|seconds| NOW.plus_seconds(seconds)));
        }
    }
}
