//! Changes of a job's position: another tube, another priority, another delay.
//!
//! Owns: the parts of a job that each change keeps. A job that is moved, or gets another priority, stays in its state.

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Priority};
use crate::rules::unique::Duplicate;
use crate::seconds::Seconds;
use crate::state::jobs::{Collection, Marks};
use crate::tags::Idempotency;
use crate::{Change, ClientId, Queue};

impl Queue {
    /// Whether the client may move this job: it exists, and no other client has reserved it.
    #[must_use]
    pub fn is_movable(&self, client: ClientId, id: JobId) -> bool {
        self.jobs
            .get(id)
            .is_some_and(|job| job.state() != JobState::Reserved || self.has_reserved(client, id))
    }

    /// The job with the same key as this one in the tube of this name. Ends one whose time is over.
    pub fn duplicate_in(&mut self, id: JobId, name: &str, now: Timestamp) -> Option<JobId> {
        loop {
            let job = self.jobs.get(id).filter(|job| job.has(Marks::TAGGED))?;
            let Idempotency { key, .. } = self.expect_tags(id).idempotency?;
            let target = self.tubes.find(name).filter(|&target| target != job.tube)?;
            match self.holder_of_key(target, key, now)? {
                Duplicate::Of(duplicate, _) if self.end_overdue_and_serve(duplicate, now) => {}
                Duplicate::Of(duplicate, _) => return Some(duplicate),
                Duplicate::OfDeleted(_) => return None,
            }
        }
    }

    /// The command `move`, for a job that may be moved: from now on it is in the tube with this valid name, which is
    /// created if it does not exist. A delayed job keeps its deadline, a buried one its place in the order of burial, a
    /// reserved one its reservation; a ready one goes at once to a client that waits for it. Returns false if the
    /// time of the job was over, which has ended it instead.
    #[must_use]
    pub fn move_job(&mut self, id: JobId, name: &str, now: Timestamp) -> bool {
        if self.end_overdue_and_serve(id, now) {
            return false;
        }
        let target = self.tubes.find_or_make(name);
        let job = self.jobs.expect_mut(id);
        let (from, collection) = (job.tube, job.collection());
        if from == target {
            return true;
        }
        let marks = job.marks;
        debug_assert!(self.is_linked(id), "a job that is moved is in a collection");
        let (here, there) = in_debug(|| (self.counted(from), self.counted(target)));
        let is_held = !marks.is_empty() && self.is_held(id);
        if let Collection::Reserved(_) = collection {
            self.move_reservation(from, target);
        } else {
            self.unlink(id);
        }
        if !marks.is_empty() || self.tubes.get(target).ruled.is_some() {
            self.stop_aging(id);
            // Without memory, the job keeps its old tags.
            let _ = self.retag_in(id, name, now);
            self.jobs.expect_mut(id).tube = target;
            self.moved_marked(id, from);
            // It can be too old at once: 136 years after its put, or without memory, no arrival is noted.
            self.note_overdue(now);
        } else {
            self.jobs.expect_mut(id).tube = target;
        }
        self.flushes.note_arrival(id, target);
        self.note(Change::Moved(id));
        match collection {
            Collection::Ready(_) => self.enter_ready(id, now),
            Collection::Delayed(until) if marks.intersects(Marks::HELD) => {
                self.hold_again(id, Timestamp::from(until), is_held, now);
            }
            Collection::Delayed(until) => self.delay(id, Timestamp::from(until)),
            Collection::Buried(number) => self.link_buried(id, number.into()),
            Collection::Reserved(_) if self.session_of_job(id).is_some() => {
                self.note(Change::SessionReserved(id))
            }
            Collection::Reserved(_) => {}
        }
        if !marks.is_empty() || !self.rules.tubes.to_open.is_empty() {
            self.serve_waiting(None, now);
        }
        debug_assert!(self.is_linked(id), "a job that was moved is in a collection");
        debug_assert!(self.counted(from).has_moved_to(here, self.counted(target), there), "one job moved");
        self.remove_tube_if_idle(from);
        true
    }

    /// Whether the delay of the job can be changed: it is ready or delayed, and not held.
    #[must_use]
    pub fn is_delayable(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| {
            matches!(job.state(), JobState::Ready | JobState::Delayed) && !job.has(Marks::HELD)
        })
    }

    /// Gives a ready or delayed job a delay of `delay_s` seconds, which ends at `until`. Without a delay, it is ready.
    /// Returns false if the time of the job was over, which has ended it instead.
    #[must_use]
    pub fn set_delay(&mut self, id: JobId, delay_s: Seconds, until: Timestamp, now: Timestamp) -> bool {
        assert!(self.is_delayable(id), "only ready and delayed jobs get another delay");
        if self.end_overdue_and_serve(id, now) {
            return false;
        }
        self.unlink(id);
        self.jobs.expect_mut(id).delay_s = delay_s.whole();
        self.note(Change::Updated(id));
        if delay_s.is_zero() {
            self.make_ready(id, now);
        } else {
            self.delay(id, until);
        }
        self.serve_waiting(None, now);
        debug_assert!(self.is_linked_for_delay(id, delay_s), "the job has the delay that was asked for");
        true
    }

    /// Whether the job exists and no client has reserved it.
    #[must_use]
    pub fn is_unreserved(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| job.state() != JobState::Reserved)
    }

    /// Gives another priority to a job that no client has reserved. Returns false if the time of the job was over, and
    /// this has ended it instead.
    #[must_use]
    pub fn set_priority(&mut self, id: JobId, priority: Priority, now: Timestamp) -> bool {
        assert!(
            self.is_unreserved(id),
            "the job is not reserved: a release sets the priority of a reserved job"
        );
        if self.end_overdue_and_serve(id, now) {
            return false;
        }
        self.note(Change::Updated(id));
        debug_assert!(self.is_linked(id), "a job that gets another priority is in a collection");
        let before = in_debug(|| self.counted_with(id));
        let job = self.jobs.expect_mut(id);
        if let Collection::Ready(_) = job.collection() {
            let link = job.link();
            let is_in_rotation = link.marks.intersects(Marks::IN_ROTATION);
            if is_in_rotation {
                self.unlink_for_now(id, link)
            } else {
                self.unlink(id)
            };
            // The walk of a flush may be after the new place.
            self.flushes.note_moved(id, link.tube);
            self.jobs.expect_mut(id).priority = priority;
            self.enter_ready(id, now);
            if is_in_rotation {
                self.forget_position(link.tube);
            }
            self.serve_waiting(None, now);
        } else {
            job.priority = priority;
        }
        debug_assert!(self.is_linked(id), "a job that has another priority is in a collection");
        debug_assert!(
            self.has_gained(before, self.jobs.expect(id).tube, 0),
            "the number of jobs stays the same"
        );
        true
    }
}
