//! The moves of a job between its collections, which all commands and rules consist of.
//!
//! `unlink` takes a job out of its collection; `make_ready`, `delay` or `make_buried` puts it into the next, or
//! `assign` reserves it. The moves keep every sum correct, together with the methods of rules that put a job among the
//! parked or held ones and take it out. They call the hooks of the rules if the job has marks (`marked.rs`), and serve
//! the clients that wait (`waiting.rs`). What rules have noted becomes moves, too: a gate opens (`gates.rs`), a slot is
//! free (`free_slots.rs`), the time of a job is over (`overdue.rs`). In debug builds, each move asserts the conditions
//! of `conditions.rs` before and after.

mod free_slots;
mod gates;
mod marked;
mod overdue;
mod waiting;

use beanstalkd_structures::Timer;

use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Priority};
use crate::state::jobs::{Collection, Job, Link, Marks};
use crate::state::keys::{ClientKey, ReadyKey, Reservation, TubeKey};
use crate::{Change, Queue};

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
            !marks.intersects(Marks::PARKED | Marks::IN_ROTATION | Marks::HELD),
            "a collection of a rule has the job"
        );
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
                self.count_unreserved(key);
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
        debug_assert!(self.has_gained(before, tube, 1), "one more job is counted");
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
        if !(record.waiting.is_empty() && self.clients.subscribers.is_empty()) && record.is_open() {
            self.offer(id, tube, priority, now);
        } else if record.rotation().is_none() {
            self.count_ready(tube, priority);
            self.tubes.get_mut(tube).ready.insert(ReadyKey::new(priority, id));
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

    /// Adds a job to the ready jobs of a tube that may have a rotation.
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
        self.numbers.next_burial += 1;
        self.link_buried(id, self.numbers.next_burial - 1);
        if self.outbox.keeps_changes {
            self.outbox.burials.push(id);
        }
    }

    /// Buries a job that is in no queue, with this number in the order of burial.
    pub(crate) fn link_buried(&mut self, id: JobId, number: u64) {
        debug_assert!(!self.is_linked(id), "a job that becomes buried is in no other collection");
        let before = in_debug(|| self.counted_with(id));
        let job = self.jobs.expect_mut(id);
        job.set_collection(Collection::Buried(number.into()));
        let (key, marks, priority) = (job.tube, job.marks, job.priority);
        self.flushes.note_moved(id, key);
        self.tubes.get_mut(key).buried.insert((number, id));
        self.sums.jobs.buried += 1;
        self.call_buried(id, marks);
        debug_assert!(self.is_linked_as(id, JobState::Buried));
        debug_assert_eq!(self.counted(key), before.more(JobState::Buried, priority), "one more is counted");
    }

    /// Buries a job that has failed too often.
    pub(crate) fn bury_poisoned(&mut self, id: JobId) {
        debug_assert!(!self.is_linked(id), "a job that is buried was taken out of its collection");
        let (job, history) = self.jobs.expect_with_history(id);
        history.counters.buries = history.counters.buries.saturating_add(1);
        let tube = job.tube;
        self.count(tube, |counters| &mut counters.poisoned);
        self.make_buried(id);
    }

    pub(crate) fn take_first_ready(&mut self, tube: TubeKey) -> Option<JobId> {
        let before = in_debug(|| self.counted(tube));
        let record = self.tubes.get_mut(tube);
        let first = record.ready.pop_first()?;
        if record.rotation().is_some() {
            self.advance_rotation(first, tube);
        }
        self.count_unready(tube, first.priority());
        debug_assert!(!self.is_linked(first.job()), "a job that was taken out is in no collection");
        debug_assert_eq!(
            self.counted(tube),
            before.less(JobState::Ready, first.priority()),
            "one less is counted"
        );
        Some(first.job())
    }

    /// Takes out the delayed job whose delay ends first, and returns it with that instant.
    pub(crate) fn take_first_delayed(&mut self, tube: TubeKey) -> Option<(Timestamp, JobId)> {
        let before = in_debug(|| self.counted(tube));
        let (until, id) = self.tubes.get_mut(tube).delayed.pop_first()?;
        self.sums.jobs.delayed -= 1;
        debug_assert!(!self.is_linked(id), "a job that was taken out is in no collection");
        let after = in_debug(|| before.less(JobState::Delayed, Priority(0)));
        debug_assert_eq!(self.counted(tube), after, "one less is counted");
        Some((until, id))
    }

    /// Reserves a job that is in no queue, for a client, or for its session if it has one.
    pub(crate) fn assign(&mut self, client: ClientKey, id: JobId, now: Timestamp) {
        debug_assert!(self.can_wait(client), "a client that gets a job is connected and does not wait");
        debug_assert!(self.may_be_reserved(id), "no rule keeps the job back");
        let holder = self.holder_for(client);
        let change = if holder != client { Change::SessionReserved(id) } else { Change::Reserved(id) };
        self.link_reserved(id, holder, now, None);
        self.note(change);
    }

    /// Reserves a job that is in no queue, until `restored` if the reservation is restored. A new one lasts for the
    /// job's time to run; it is counted, and takes a token of the tube.
    #[inline(always)]
    pub(crate) fn link_reserved(
        &mut self,
        id: JobId,
        holder: ClientKey,
        since: Timestamp,
        restored: Option<Timestamp>,
    ) {
        debug_assert!(!self.is_linked(id), "a job that is reserved was taken out of its collection");
        let counts = in_debug(|| self.counted_with(id));
        let is_new = restored.is_none();
        let (job, history) = self.jobs.expect_with_history(id);
        debug_assert!(history.holder.is_none(), "no client has reserved the job");
        let before = job.collection();
        let until = restored.unwrap_or_else(|| since.plus_seconds(job.ttr()));
        job.set_collection(Collection::Reserved(until.0.into()));
        history.counters.reserves = history.counters.reserves.saturating_add(is_new.into());
        history.holder = Some(holder);
        let (tube, marks, priority) = (job.tube, job.marks, job.priority);
        let record = self.tubes.get_mut(tube);
        record.reserved += 1;
        if record.ruled.as_ref().is_some_and(|ruled| ruled.has_gate()) {
            self.pass_gate(tube, is_new.then_some(since));
        }
        self.sums.jobs.reserved += 1;
        if is_new {
            self.count_reservation(tube, before, since);
        }
        let reserved = &mut self.clients[holder].reserved;
        let reservation = Reservation { until, id, since };
        reserved.insert(reservation);
        // Later reservations do not change the deadline.
        if reserved.first() == Some(reservation) {
            self.schedule(Timer::Client(holder));
        }
        self.call_reserved(id, marks);
        debug_assert!(self.is_linked_as(id, JobState::Reserved));
        debug_assert_eq!(
            self.counted(tube),
            counts.more(JobState::Reserved, priority),
            "one more is counted"
        );
        debug_assert!(
            self.is_scheduled(Timer::Client(holder)),
            "the end of the reservation is not passed over"
        );
    }

    /// Counts a new reservation, and the waiting time of the job if it was ready.
    #[inline]
    fn count_reservation(&mut self, tube: TubeKey, before: Collection, now: Timestamp) {
        self.count(tube, |counters| &mut counters.reserves);
        if let Collection::Ready(since) = before
            && let Some(times) = self.tubes.times_mut(tube, now)
        {
            times.observe_wait(now.since_ns(Timestamp::from(since)), now);
        }
    }

    /// Counts a reserved job in another tube. The gates of both tubes follow.
    pub(crate) fn move_reservation(&mut self, from: TubeKey, target: TubeKey) {
        self.tubes.get_mut(from).reserved -= 1;
        self.tubes.get_mut(target).reserved += 1;
        self.note_gate(from);
        self.close_gate(target);
    }

    /// Counts a job that is no longer reserved: the gate of its tube may open at the end of the command.
    #[inline]
    pub(crate) fn count_unreserved(&mut self, tube: TubeKey) {
        let record = self.tubes.get_mut(tube);
        record.reserved -= 1;
        if record.is_throttled() {
            self.rules.tubes.to_open.push(tube);
        }
        self.sums.jobs.reserved -= 1;
    }
}
