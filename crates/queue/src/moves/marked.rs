//! The moves of a job with marks: they ask the rules, and call their hooks.
//!
//! Owns: the order of these calls, and the jobs whose groups have lost their last member.

use beanstalkd_structures::OrderedQueue;

use crate::Queue;
use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{Body, JobId, JobState, Priority};
use crate::rules::{Ending, MarkedJob, asks_rules_when_ready};
use crate::state::jobs::{Collection, Link, Marks};
use crate::state::keys::ReadyKey;

impl Queue {
    /// Makes a job with marks ready that is in no collection yet, although its record names the ready queue already.
    pub(crate) fn enter_ready_marked(&mut self, id: JobId, now: Timestamp) {
        debug_assert!(!self.is_linked(id), "a job that becomes ready is in no other collection");
        let job = self.jobs.expect_mut(id);
        let (tube, priority) = (job.tube, job.priority);
        let asks_rules = asks_rules_when_ready(job.marks);
        self.offer_before(ReadyKey::new(priority, id), now);
        if asks_rules {
            self.with_tags(id, |queue, job| queue.admit(job, priority, now));
        } else {
            self.enqueue(id, tube, priority, now);
        }
    }

    /// Decides the collection of a ready job: each rule may keep it back.
    pub(crate) fn admit(&mut self, job: &MarkedJob<'_>, priority: Priority, now: Timestamp) {
        debug_assert!(!self.is_linked(job.id), "a job that becomes ready is in no other collection");
        if self.call_admits(job) {
            self.enqueue(job.id, job.tube, priority, now);
        } else {
            self.park(job.id, job.tube);
        }
        debug_assert!(
            self.is_linked_as_offered(job.id),
            "the job is ready, parked or not, or reserved by a client that waited"
        );
    }

    /// Takes a job with marks out of its collection, like `unlink_from`.
    pub(crate) fn unlink_marked(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let since = self.unlink_for_now(id, link);
        if link.marks.intersects(Marks::IN_ROTATION) {
            self.forget_position(link.tube);
        }
        since
    }

    /// Unlinks a job with tags that becomes ready again at once: its key keeps its position in the tube's rotation.
    pub(crate) fn unlink_for_now(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let since = self.take_out_marked(id, link);
        self.call_left(id, link.marks, link.collection.state());
        since
    }

    /// Takes a job with marks out of its collection, without calling `left`.
    fn take_out_marked(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let (state, before) = (link.collection.state(), in_debug(|| self.counted(link.tube)));
        debug_assert!(self.is_linked_as(id, state), "the job is in the collection that its link names");
        let since = match link.collection {
            Collection::Ready(_) if link.marks.intersects(Marks::IN_ROTATION) => {
                self.remove_from_rotation(ReadyKey::new(link.priority, id), link.tube);
                self.count_unready(link.tube, link.priority);
                None
            }
            Collection::Ready(_) if link.marks.intersects(Marks::PARKED) => {
                self.take_out_of_parked(ReadyKey::new(link.priority, id), link.tube);
                None
            }
            Collection::Delayed(until) if link.marks.intersects(Marks::HELD) => {
                self.take_out_of_held(id, Timestamp::from(until));
                None
            }
            Collection::Ready(_)
            | Collection::Delayed(_)
            | Collection::Reserved(_)
            | Collection::Buried(_) => self.unlink_plain(id, link),
        };
        debug_assert_eq!(
            self.counted(link.tube),
            before.less(state, link.priority),
            "one job less is counted"
        );
        since
    }

    /// Ends a job with marks. Returns since when it was reserved, if it was, and its body, which may be followed by its
    /// tags.
    pub(crate) fn end_marked(
        &mut self,
        id: JobId,
        link: Link,
        ending: Ending,
        now: Timestamp,
    ) -> (Option<Timestamp>, Body) {
        let since = self.take_out_marked(id, link);
        let state = link.collection.state();
        let was_ready = state == JobState::Ready;
        if was_ready {
            // The rules need its record.
            self.call_left(id, link.marks, state);
        }
        let body = self.remove_marked(id, (!was_ready).then_some(state), ending, now);
        if link.marks.intersects(Marks::IN_ROTATION) {
            self.forget_position(link.tube);
        }
        (since, body)
    }

    /// Restores the job's old position, in its present tube, after it was taken out of the held jobs.
    pub(crate) fn hold_again(&mut self, id: JobId, until: Timestamp, is_held: bool, now: Timestamp) {
        if is_held {
            self.with_tags(id, |queue, job| {
                let after = job.tags.after.expect("a held job waits for a group");
                queue.hold(id, after.group.as_str(), until);
            });
        } else {
            self.set_free(id, until, now);
        }
    }

    /// Makes the job, which is in no collection, free permanently.
    fn set_free(&mut self, id: JobId, until: Timestamp, now: Timestamp) {
        self.note_free(id);
        if until > now {
            self.delay(id, until);
        } else {
            self.make_ready(id, now);
        }
        debug_assert!(self.waits_for_no_group(id), "a job that is free does not wait again after a restart");
    }

    /// Frees a limited number of jobs whose groups have lost their last member.
    pub(crate) fn continue_freeing(&mut self, now: Timestamp) {
        let mut share = self.slices.given_back;
        while share > 0
            && let Some(freed) = self.rules.groups.freeing.front_mut()
        {
            let Some(id) = freed.pop_first() else {
                self.rules.groups.freeing.pop_front();
                continue;
            };
            share -= 1;
            self.cost += 1;
            // The job may have been deleted since, or moved, which has freed it.
            if let Some(job) = self.jobs.get(id).filter(|job| job.has(Marks::HELD))
                && let Collection::Delayed(until) = job.collection()
            {
                let (until, tube) = (Timestamp::from(until), job.tube);
                if until > now || !self.end_overdue_if_awaited(id, tube, now) {
                    self.take_out_of_held(id, until);
                    self.set_free(id, until, now);
                }
                self.offer_free_slots(None, now);
            }
        }
        if self.rules.groups.freeing.front().is_some_and(OrderedQueue::is_empty) {
            self.rules.groups.freeing.pop_front();
        }
    }
}
