//! The next state of a job whose reservation ends, and the rules `max-attempts`, `backoff` and `dead-tube`. A dead tube
//! is a dead-letter queue.
//!
//! Owns: the one decision ([`NextState`]), from the age of the job, its failures, the limits of the server, the rule of
//! its tube and the delay of a release; how many failures a job has, how long it waits after each, and where it goes
//! after too many. A failure is a time-out or a release that counts, so the counters of the job give their number,
//! which survives a restart whenever the counters do. Facts that the counters do not have are in the tags of the job:
//! the origin of a dead job, and the failures that were forgiven when it was sent back.
//!
//! A dead job loses its `idp` and `con`, and no rule moves it to a dead tube again, so a circle of dead tubes is
//! harmless. If a job cannot go to the dead tube, it is buried in its own.

use std::collections::TryReserveError;
use std::rc::Rc;

use super::ruled_tubes::KeptFromDeadTube;
use super::{MarkedJob, Queue, index_bytes};
use crate::TubeRule;
use crate::assertions::in_debug;
use crate::clock::{NS_PER_S, Timestamp};
use crate::job::{Counters, JobId, JobState};
use crate::seconds::Seconds;
use crate::state::jobs::Marks;
use crate::state::keys::TubeKey;
use crate::state::stored_body::StoredBody;
use crate::tags::{After, Dead, Failures, JobTags, TagSet};
use crate::tube_name::TubeNameRef;

/// How a reservation counts for its job when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The job has not failed.
    Uncounted,
    /// The job has failed.
    Failed,
    /// The job has failed as often as the server permits, unless the rule of its tube has a number of its own.
    FailedTooOften,
}

impl AttemptEnd {
    /// After the failure with this number.
    #[inline]
    pub(crate) fn failed(number: u32, limit: Option<u32>) -> Self {
        if limit.is_some_and(|limit| number >= limit) { Self::FailedTooOften } else { Self::Failed }
    }
}

/// The next state of a job whose reservation ends, unless a client deletes or buries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextState {
    /// It is too old for its tube: it goes to the dead tube, or is deleted if there is none.
    TooOld,
    /// It goes to the dead tube of its tube.
    Dead,
    /// It is buried, as is a job that the dead tube cannot take.
    Buried,
    /// It is delayed by this time.
    Delayed(Seconds),
    Ready,
}

impl NextState {
    #[inline]
    fn after(delay_s: Seconds) -> Self {
        if delay_s.is_zero() { Self::Ready } else { Self::Delayed(delay_s) }
    }
}

/// How many failures count for a job with these counters and tags.
pub(crate) fn failures_of(counters: Counters, tags: Option<&JobTags<'_>>) -> u32 {
    let counted = counters.timeouts.saturating_add(counters.releases);
    match tags.and_then(|tags| tags.failures) {
        Some(Failures::Dead(dead)) => dead.failures,
        Some(Failures::Forgiven(count)) => counted.saturating_sub(count),
        None => counted,
    }
}

impl Queue {
    /// The next state of a job that was taken from its holder, and is in no collection. Its counters include the
    /// failure. `delay_s` is the delay of a release. From now on the job ages again, unless it is too old.
    #[inline(always)]
    pub(crate) fn next_state(
        &mut self,
        id: JobId,
        (tube, marks): (TubeKey, Marks),
        end: AttemptEnd,
        delay_s: Seconds,
        now: Timestamp,
    ) -> NextState {
        if marks.intersects(Marks::RULED) && self.ages_again(id, now) {
            return NextState::TooOld;
        }
        match end {
            AttemptEnd::Uncounted => NextState::after(delay_s),
            // The job of a tube with a rule may have no mark while a reload runs.
            AttemptEnd::Failed | AttemptEnd::FailedTooOften if self.tubes.get(tube).rule().is_some() => {
                self.next_state_by_rule(id, end, delay_s)
            }
            AttemptEnd::Failed => NextState::after(delay_s),
            AttemptEnd::FailedTooOften => NextState::Buried,
        }
    }

    /// The next state of a job that has failed in a tube with a rule. No rule applies to a dead job.
    #[cold]
    fn next_state_by_rule(&self, id: JobId, end: AttemptEnd, delay_s: Seconds) -> NextState {
        let tags = self.tags(id);
        let rule = self.rule_of(id).filter(|_| tags.is_none_or(|tags| tags.dead().is_none()));
        let failures = failures_of(self.jobs.history(self.jobs.expect(id)).counters, tags.as_ref());
        match rule.and_then(|rule| rule.max_attempts) {
            Some(max) if failures >= max => return NextState::Dead,
            None if end == AttemptEnd::FailedTooOften => return NextState::Buried,
            Some(_) | None => {}
        }
        let backoff_s = rule.and_then(|rule| rule.backoff_after(failures)).filter(|_| delay_s.is_zero());
        NextState::after(backoff_s.map_or(delay_s, Seconds::from))
    }

    pub(crate) fn rule_of(&self, id: JobId) -> Option<&Rc<TubeRule>> {
        self.tubes.get(self.jobs.get(id)?.tube).rule()
    }

    /// Whether the rule of the job's tube names a dead tube.
    pub(crate) fn has_dead_tube(&self, id: JobId) -> bool {
        self.rule_of(id).is_some_and(|rule| rule.dead_tube.is_some())
    }

    /// Returns whether the dead tube has room for the job; if not, counts the refusal there.
    pub(crate) fn admit_to_dead_tube(&mut self, id: JobId) -> bool {
        let Some(rule) = self.rule_of(id).cloned() else { return false };
        let Some(target) = rule.dead_tube.as_deref() else { return false };
        let job = self.jobs.expect(id);
        if self.tubes.get(job.tube).name.as_str() == target {
            return false;
        }
        let is_full = self.is_tube_full_for(target, job.body().len());
        if is_full {
            self.count_refused_by(self.tubes.find(target));
            self.note_kept_from_dead_tube(id, target);
        }
        !is_full
    }

    /// Notes, for the log, that the job is buried because this dead tube is full. A job that was buried before, or that
    /// its group holds, stays as it is.
    fn note_kept_from_dead_tube(&mut self, id: JobId, dead_tube: &str) {
        if self.stays_where_it_is(id) {
            return;
        }
        if let Some(kept) = &mut self.rules.tubes.kept_from_dead_tube {
            kept.jobs += 1;
            return;
        }
        let tube = self.tubes.get(self.jobs.expect(id).tube).name.as_str().into();
        let kept = KeptFromDeadTube { jobs: 1, tube, dead_tube: dead_tube.into() };
        self.rules.tubes.kept_from_dead_tube = Some(Box::new(kept));
    }

    /// Marks the job as dead from now on.
    pub(crate) fn mark_dead(
        &mut self,
        id: JobId,
        from: TubeNameRef<'_>,
        now: Timestamp,
    ) -> Result<(), TryReserveError> {
        let job = self.jobs.expect(id);
        let failures = failures_of(self.jobs.history(job).counters, self.tags(id).as_ref());
        let since_s = u32::try_from(now.0 / NS_PER_S).unwrap_or(u32::MAX);
        let tags = self.tags(id).unwrap_or_default();
        let after = tags.after.map(|after| After { is_free: true, ..after });
        let tags = JobTags {
            asked: TagSet { idempotency: None, concurrency: None, after, ..tags.asked },
            owner: tags.owner,
            failures: Some(Failures::Dead(Dead { from: from.into(), since_s, failures })),
            arrived_after_s: None,
        };
        let mut bytes = Vec::new();
        tags.encode(&mut bytes)?;
        self.retag(id, &bytes)
    }

    /// The tags of the job after a move to the tube with this name, if they change. A dead job that goes back to its
    /// original tube is no longer dead, and has no failures.
    #[must_use]
    pub fn tags_after_move(&self, id: JobId, name: &str, now: Timestamp) -> Option<JobTags<'_>> {
        let job = self.jobs.get(id)?;
        let tags = self.tags(id).unwrap_or_default();
        let after = match tags.dead() {
            Some(dead) if dead.from != name => tags,
            Some(_) => {
                let Counters { timeouts, releases, .. } = self.jobs.history(job).counters;
                let forgiven = Some(timeouts.saturating_add(releases)).filter(|&failures| failures > 0);
                let failures = forgiven.map(Failures::Forgiven);
                JobTags { failures, arrived_after_s: self.arrival_in(job, name, now), ..tags }
            }
            None => JobTags { arrived_after_s: self.arrival_in(job, name, now), ..tags },
        };
        (after != tags).then_some(after)
    }

    /// Gives the job, which is about to move to the tube with this name, its tags for that tube. If there is no memory
    /// for them, it keeps its old ones: a dead job stays dead.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub(crate) fn retag_in(&mut self, id: JobId, name: &str, now: Timestamp) -> Result<(), TryReserveError> {
        let Some(tags) = self.tags_after_move(id, name, now) else { return Ok(()) };
        let mut bytes = Vec::new();
        tags.encode(&mut bytes)?;
        self.retag(id, &bytes)
    }

    /// Gives the job, which is in no collection or reserved, these encoded tags.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    fn retag(&mut self, id: JobId, bytes: &[u8]) -> Result<(), TryReserveError> {
        let state = in_debug(|| self.jobs.get(id).map(|job| job.state()));
        debug_assert!(state == Some(JobState::Reserved) || !self.is_linked(id), "no collection is by tags");
        let job = self.jobs.expect(id);
        let old_bytes = self.rules.tags.get(id, job).to_vec();
        let old = JobTags::decode(&old_bytes).expect("tags were written by the queue");
        let new = JobTags::decode(bytes).expect("tags that were just encoded can be decoded");
        let body = job.body().to_owned()?;
        let stored = if new.is_empty() {
            StoredBody { body, separate_tags: None }
        } else {
            StoredBody::new(body, bytes, false)?
        };
        let before = MarkedJob::new(id, job, &old);
        let after = MarkedJob { tags: &new, ..before };
        self.retagged(&before, &after);
        let is_separate = stored.separate_tags.is_some();
        self.rules.jobs += usize::from(!new.is_empty());
        self.rules.jobs -= usize::from(!old.is_empty());
        self.rules.index_bytes += index_bytes(&new);
        self.rules.index_bytes -= index_bytes(&old);
        self.rules.tags.remove(id);
        if let Some(separate_tags) = stored.separate_tags {
            self.rules.tags.insert(id, separate_tags);
        }
        let job = self.jobs.set_body(id, stored.body);
        job.marks.remove(Marks::TAGGED | Marks::BEHIND_BODY | Marks::KEYED);
        job.marks |= Marks::of_tags(&new, is_separate);
        debug_assert_eq!(self.tags(id).unwrap_or_default(), new, "the job has the new tags");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Counting, JobState, Priority};
    use crate::testing::{NOW, TestJob, con};
    use crate::{Change, Queue, Release, Reserve, TubeRule};

    #[test]
    fn the_delays_double_up_to_the_longest_to_the_nanosecond() {
        let mut queue = Queue::default();
        let rule = TubeRule { backoff_s: Some(10), max_backoff_s: Some(60), ..TubeRule::new("*") };
        queue.set_tube_rules(vec![rule], NOW);
        let client = queue.connect();
        let id = TestJob { ttr_s: 5, ..TestJob::default() }.put(&mut queue, client, NOW);
        let mut now = NOW + 7;
        let mut waited = Vec::new();
        for attempt in 0..6 {
            assert_eq!(queue.reserve(client, Some(0.into()), now), Reserve::Job(id));
            if attempt % 2 == 0 {
                let release =
                    Release { priority: Priority(0), delay_s: 0.into(), counting: Counting::Counted };
                queue.release(client, id, release, now);
            } else {
                now = now.plus_seconds(5);
                queue.advance(now);
            }
            let record = queue.job(id).unwrap().record;
            assert_eq!(record.state, JobState::Delayed);
            waited.push(record.deadline_at.since_ns(now));
            queue.advance(record.deadline_at.minus_ns(1));
            assert_eq!(
                queue.reserve(client, Some(0.into()), record.deadline_at.minus_ns(1)),
                Reserve::TimedOut
            );
            now = record.deadline_at;
            queue.advance(now);
            queue.check_invariants();
        }
        assert_eq!(waited, [10, 20, 40, 60, 60, 60].map(|seconds| seconds * NS_PER_S));
    }

    #[test]
    fn a_job_that_is_buried_instead_of_being_given_back_is_logged() {
        for is_undone in [true, false] {
            let mut queue = Queue::default();
            let dead_tube = Some("default".into());
            let rule = TubeRule { max_age_s: Some(10), dead_tube, ..TubeRule::new("*") };
            queue.apply_rules(vec![rule], NOW);
            let client = queue.connect();
            let id = TestJob::default().put(&mut queue, client, NOW);
            assert!(queue.reserve_job(client, id, NOW));
            queue.keep_changes();
            let later = NOW + 11 * NS_PER_S;
            if is_undone {
                queue.undo_reserve(client, id, later)
            } else {
                queue.disconnect(client, later)
            }
            queue.check_invariants();
            let mut changes = Vec::new();
            queue.swap_changes(&mut changes);
            assert_eq!(queue.job(id).unwrap().record.state, JobState::Buried);
            assert_eq!(changes, [Change::Postponable(id)]);
        }
    }

    #[test]
    fn a_slot_that_a_leaving_client_frees_goes_before_its_less_urgent_jobs() {
        let mut queue = Queue::default();
        let [producer, holder, waiting] = [(); 3].map(|()| queue.connect());
        let put = |queue: &mut Queue, priority, tags| {
            TestJob { priority, tags, ..TestJob::default() }.put(queue, producer, NOW)
        };
        let plain = put(&mut queue, 5, TagSet::default());
        let keyed = put(&mut queue, 9, con("k", 1));
        assert!([plain, keyed].into_iter().all(|id| queue.reserve_job(holder, id, NOW)));
        let parked = put(&mut queue, 1, con("k", 1));
        assert_eq!(queue.reserve(waiting, None, NOW), Reserve::Waiting);
        queue.disconnect(holder, NOW);
        queue.check_invariants();
        assert!(queue.has_reserved(waiting, parked));
    }

    #[test]
    fn a_job_that_fails_before_a_reload_has_come_to_it_follows_the_new_rule() {
        let mut queue = Queue::default();
        let client = queue.connect();
        let ids = [(); 1000].map(|()| TestJob::default().put(&mut queue, client, NOW));
        let id = ids[999];
        assert!(queue.reserve_job(client, id, NOW));
        queue.set_tube_rules(vec![TubeRule { backoff_s: Some(10), ..TubeRule::new("*") }], NOW);
        assert!(!queue.jobs.expect(id).has(Marks::RULED), "the reload has not come to the job");
        let release = Release { priority: Priority(0), delay_s: 0.into(), counting: Counting::Counted };
        queue.release(client, id, release, NOW);
        assert_eq!(queue.job(id).unwrap().record.state, JobState::Delayed);
    }

    #[test]
    fn no_number_of_failures_and_no_delay_is_too_large() {
        let rule = TubeRule { backoff_s: Some(u32::MAX), ..TubeRule::new("*") };
        for failures in [0, 1, 2, 31, 32, 33, 64, 65, u32::MAX] {
            assert_eq!(rule.backoff_after(failures), Some(u32::MAX));
        }
        let rule = TubeRule { backoff_s: Some(1), ..TubeRule::new("*") };
        let delays = [1, 2, 32, 33, u32::MAX].map(|failures| rule.backoff_after(failures));
        assert_eq!(delays, [1, 2, 1 << 31, u32::MAX, u32::MAX].map(Some));
    }
}
