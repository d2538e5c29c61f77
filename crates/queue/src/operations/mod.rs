//! The effects of commands and time on jobs, a file for each command or family.
//!
//! Each public method is a command that has passed its checks; otherwise it returns that its checks fail, and changes
//! nothing. All of them consist of two moves, which keep every sum correct, and which call the rules if the job has
//! marks: `unlink` takes a job out of its collection; `make_ready`, `delay` or `make_buried` puts it into the next, or
//! `assign` reserves it.

pub(crate) mod advance;
pub(crate) mod complete;
mod delete;
pub(crate) mod flush;
mod kick;
mod leave;
pub(crate) mod listing;
pub(crate) mod many_tubes;
pub(crate) mod modes;
#[cfg(test)]
mod modes_tests;
pub(crate) mod pages;
mod pause;
pub(crate) mod put;
pub(crate) mod release;
mod relocate;
pub(crate) mod reserve;
pub(crate) mod session;
mod touch;
pub(crate) mod waiting;
pub(crate) mod watch;

use beanstalkd_structures::Timer;

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Priority};
use crate::state::jobs::{Collection, Job, Link, Marks};
use crate::state::keys::{ReadyKey, Reservation, TubeKey};
use crate::state::tubes::Tube;
use crate::{JobCounts, Queue};

impl Queue {
    /// Takes a job out of its collection; the caller puts it into another one, or removes it. Returns since when it was
    /// reserved, if it was.
    pub(crate) fn unlink(&mut self, id: JobId) -> Option<Timestamp> {
        let link = self.jobs.expect_mut(id).link();
        self.unlink_from(id, link)
    }

    /// Unlinks a job that the caller has already looked up; `link` is the job's link.
    #[inline]
    fn unlink_from(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let (state, before) = (link.collection.state(), in_debug(|| self.counted(link.tube)));
        debug_assert!(self.is_linked_as(id, state), "the job is in the collection that its link names");
        let since =
            if link.marks.is_empty() { self.unlink_plain(id, link) } else { self.unlink_marked(id, link) };
        debug_assert!(!self.is_linked(id), "a job that was taken out is in no collection");
        debug_assert_eq!(
            self.counted(link.tube),
            before.less(state, link.priority),
            "one job less is counted"
        );
        debug_assert_eq!(since.is_some(), state == JobState::Reserved, "a reservation alone has a beginning");
        since
    }

    /// Unlinks a job that is known to be in a collection for jobs without tags.
    pub(crate) fn unlink_plain(&mut self, id: JobId, link: Link) -> Option<Timestamp> {
        let Link { collection, priority, tube: key, history, marks } = link;
        debug_assert!(
            !marks.intersects(Marks::IN_ROTATION | Marks::HELD),
            "a collection of a rule has the job"
        );
        debug_assert!(!marks.intersects(Marks::PARKED), "the job is among the parked ones");
        let tube = self.tubes.get_mut(key);
        match collection {
            Collection::Ready(_) => {
                let found = tube.ready.remove(ReadyKey::new(priority, id));
                assert!(found.is_some(), "a ready job is in the ready queue of its tube");
                self.count_unready(key, priority);
            }
            Collection::Delayed(until) => {
                let found = tube.delayed.remove((Timestamp::from(until), id));
                assert!(found.is_some(), "a delayed job is among the delayed jobs of its tube");
                self.sums.jobs.delayed -= 1;
            }
            Collection::Buried(number) => {
                let found = tube.buried.remove((number.into(), id));
                assert!(found.is_some(), "a buried job is among the buried jobs of its tube");
                self.sums.jobs.buried -= 1;
            }
            Collection::Reserved(until) => {
                tube.reserved -= 1;
                if tube.is_throttled() {
                    self.rules.tubes.to_open.push(key);
                }
                self.sums.jobs.reserved -= 1;
                let holder = self.jobs.take_holder(history);
                let key = Reservation::key(Timestamp::from(until), id);
                let found = self.clients[holder].reserved.remove(key);
                let found = found.expect("a reserved job is among its holder's reservations");
                return Some(found.since);
            }
        }
        None
    }

    /// Makes a job that is in no queue ready, or gives it to a client that waits for it.
    pub(crate) fn make_ready(&mut self, id: JobId, now: Timestamp) {
        self.make_ready_since(id, now, now);
    }

    /// Makes a job ready that should have become ready at `since`: its time in the ready queue counts from that
    /// instant.
    pub(crate) fn make_ready_since(&mut self, id: JobId, since: Timestamp, now: Timestamp) {
        debug_assert!(!self.is_linked(id), "a job that becomes ready is in no other collection");
        debug_assert!(since <= now, "a job is ready since the present at the latest");
        let before = in_debug(|| self.counted_with(id));
        let job = self.jobs.expect_mut(id);
        job.set_collection(Collection::Ready(since.0.into()));
        let tube = job.tube;
        self.flushes.note_moved(id, tube);
        self.enter_ready(id, now);
        debug_assert!(self.is_linked_as_offered(id), "the job is ready, or reserved by a client that waited");
        debug_assert!(before.has_grown_to(self.counted(tube), 1), "one more job is counted");
    }

    /// Does the rest of `make_ready` once the caller has set the job's collection to ready.
    #[inline]
    pub(crate) fn enter_ready(&mut self, id: JobId, now: Timestamp) {
        let &mut Job { tube, priority, marks, .. } = self.jobs.expect_mut(id);
        if marks.is_empty() {
            self.enqueue(id, tube, priority, now);
        } else {
            self.enter_ready_marked(id, now);
        }
    }

    /// Does the rest of `make_ready` for a caller that also knows the tube, the priority, and that no rule keeps the
    /// job back.
    #[inline]
    pub(crate) fn enqueue(&mut self, id: JobId, tube: TubeKey, priority: Priority, now: Timestamp) {
        debug_assert!(!self.is_linked(id), "a job that becomes ready is in no other collection");
        debug_assert!(self.may_be_reserved(id), "no rule keeps the job back");
        let record = self.tubes.get_mut(tube);
        if record.is_open() && !(record.waiting.is_empty() && self.clients.subscribers.is_empty()) {
            self.offer(id, tube, priority, now);
        } else if record.ruled.as_ref().is_none_or(|ruled| ruled.turns.is_none()) {
            push_ready(record, &mut self.sums.jobs, id, priority);
        } else {
            self.push_ruled(id, tube, priority);
        }
        debug_assert!(
            self.is_linked_as_offered(id) && self.has_no_unserved_client(tube),
            "no client waits while the tube has a ready job"
        );
    }

    /// The slow path of `enqueue`: clients may be waiting for the job, or be subscribed to the tube. Kept out of line
    /// so that the usual path is short.
    #[inline(never)]
    fn offer(&mut self, id: JobId, tube: TubeKey, priority: Priority, now: Timestamp) {
        if let Some((_, client)) = self.first_waiting(tube) {
            self.deliver_job(id, client, now);
            return;
        }
        self.push_ruled(id, tube, priority);
        let record = self.tubes.get(tube);
        if record.ready.first().map(ReadyKey::job) == Some(id) {
            self.announce(tube);
        }
    }

    /// Adds a job to the ready ones of a tube in which jobs may be reserved by turns.
    #[inline(never)]
    fn push_ruled(&mut self, id: JobId, tube: TubeKey, priority: Priority) {
        self.show_ready(ReadyKey::new(priority, id), tube);
        self.count_ready(tube, priority);
    }

    /// Puts a job among its tube's delayed ones.
    pub(crate) fn delay(&mut self, id: JobId, until: Timestamp) {
        debug_assert!(!self.is_linked(id), "a job that becomes delayed is in no other collection");
        let before = in_debug(|| self.counted_with(id));
        let job = self.jobs.expect_mut(id);
        debug_assert!(!job.has(Marks::HELD), "a held job is among the held ones");
        job.set_collection(Collection::Delayed(until.0.into()));
        let (key, priority) = (job.tube, job.priority);
        self.flushes.note_moved(id, key);
        self.tubes.get_mut(key).delayed.insert((until, id));
        self.sums.jobs.delayed += 1;
        self.schedule(Timer::Tube(key));
        debug_assert!(self.is_linked_as(id, JobState::Delayed));
        debug_assert_eq!(self.counted(key), before.more(JobState::Delayed, priority), "one more is counted");
    }

    /// Adds a job to the end of its tube's buried ones.
    pub(crate) fn make_buried(&mut self, id: JobId) {
        debug_assert!(!self.is_linked(id), "a job that becomes buried is in no other collection");
        let before = in_debug(|| self.counted_with(id));
        let number = self.numbers.next_burial;
        self.numbers.next_burial += 1;
        let job = self.jobs.expect_mut(id);
        job.set_collection(Collection::Buried(number.into()));
        let (key, marks, priority) = (job.tube, job.marks, job.priority);
        self.flushes.note_moved(id, key);
        self.tubes.get_mut(key).buried.insert((number, id));
        self.sums.jobs.buried += 1;
        if !marks.is_empty() {
            self.buried_marked(id);
        }
        debug_assert!(self.is_linked_as(id, JobState::Buried));
        debug_assert_eq!(self.counted(key), before.more(JobState::Buried, priority), "one more is counted");
    }

    /// Counts a job that has become ready in its tube.
    pub(crate) fn count_ready(&mut self, tube: TubeKey, priority: Priority) {
        self.sums.jobs.ready += 1;
        if priority.is_urgent() {
            self.sums.jobs.urgent += 1;
            self.tubes.get_mut(tube).urgent += 1;
        }
        debug_assert!(self.are_ready_counted(tube), "a tube has its share of the ready jobs");
    }

    /// Counts a job that has left its tube's ready queue.
    pub(crate) fn count_unready(&mut self, tube: TubeKey, priority: Priority) {
        self.sums.jobs.ready -= 1;
        if priority.is_urgent() {
            self.sums.jobs.urgent -= 1;
            self.tubes.get_mut(tube).urgent -= 1;
        }
        debug_assert!(self.are_ready_counted(tube), "a tube has its share of the ready jobs");
    }
}

/// Adds a job to its tube's ready queue.
#[inline(always)]
fn push_ready(tube: &mut Tube, counts: &mut JobCounts, id: JobId, priority: Priority) {
    tube.ready.insert(ReadyKey::new(priority, id));
    counts.ready += 1;
    if priority.is_urgent() {
        tube.urgent += 1;
        counts.urgent += 1;
    }
}
