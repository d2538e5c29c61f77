//! The conditions before and after a move of a job, for the assertions of debug builds.
//!
//! Owns: the counts of jobs before a move ([`Counted`]), and the counts that may result from it. Each function
//! that moves a job notes them ([`in_debug`](beanstalkd_types::assertions::in_debug)) and asserts the difference. The
//! functions are `#[inline]` (see `invariants.rs`), so a release build has none of them.

use crate::clock::Timestamp;
use crate::job::{JobId, JobState, Priority};
use crate::seconds::Seconds;
use crate::state::jobs::{Collection, Marks};
use crate::state::keys::{ClientKey, ReadyKey, Reservation, TubeKey};
use crate::state::sessions::SessionState;
use crate::{Change, JobCounts, Queue};

/// The jobs of one tube and the jobs of all tubes, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    tube: JobCounts,
    all: JobCounts,
}

impl Counted {
    /// With one job more of this state and priority.
    #[inline]
    pub(crate) fn more(mut self, state: JobState, priority: Priority) -> Self {
        [&mut self.tube, &mut self.all].into_iter().for_each(|counts| {
            *count_of(counts, state) += 1;
            counts.urgent += u64::from(state == JobState::Ready && priority.is_urgent());
        });
        self
    }

    /// With one job fewer of this state and priority.
    #[inline]
    pub(crate) fn less(mut self, state: JobState, priority: Priority) -> Self {
        [&mut self.tube, &mut self.all].into_iter().for_each(|counts| {
            *count_of(counts, state) -= 1;
            counts.urgent -= u64::from(state == JobState::Ready && priority.is_urgent());
        });
        self
    }

    /// Whether exactly one job has moved: this tube had one more before, and `there` had one less.
    #[inline]
    pub(crate) fn has_moved_to(self, here_before: Self, there: Self, there_before: Self) -> bool {
        self.tube.total() + 1 == here_before.tube.total()
            && there.tube.total() == there_before.tube.total() + 1
            && self.all.total() == here_before.all.total()
    }

    /// Whether `later`, of the same tube, has `by` more jobs, in any state.
    #[inline]
    pub(crate) fn has_grown_to(self, later: Self, by: usize) -> bool {
        self.tube.total() + by == later.tube.total() && self.all.total() + by == later.all.total()
    }
}

#[inline]
fn count_of(counts: &mut JobCounts, state: JobState) -> &mut u64 {
    match state {
        JobState::Ready => &mut counts.ready,
        JobState::Reserved => &mut counts.reserved,
        JobState::Delayed => &mut counts.delayed,
        JobState::Buried => &mut counts.buried,
    }
}

impl Queue {
    /// Whether the tube has `by` more jobs than `before`. Jobs whose time was over may have ended meanwhile: a slot
    /// that became free was offered to them.
    #[inline]
    pub(crate) fn has_gained(&self, before: Counted, tube: TubeKey, by: usize) -> bool {
        self.rules.has_overdue() || before.has_grown_to(self.counted(tube), by)
    }

    /// The jobs of the tube, and of all tubes.
    #[inline]
    pub(crate) fn counted(&self, tube: TubeKey) -> Counted {
        Counted { tube: self.tubes.get(tube).job_counts(), all: self.sums.jobs }
    }

    /// The jobs of the tube of this job, and of all tubes; 0 if there is no such job.
    #[inline]
    pub(crate) fn counted_with(&self, id: JobId) -> Counted {
        self.jobs.get(id).map_or_else(Counted::default, |job| self.counted(job.tube))
    }

    /// Whether the job is in the collection that its record names. In debug builds, each move of a job asserts this
    /// before or after the move, but not during it.
    #[inline]
    pub(crate) fn is_linked(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        let tube = self.tubes.get(job.tube);
        match job.collection() {
            Collection::Ready(_) => {
                let key = ReadyKey::new(job.priority, id);
                let parked = tube.tag_state().filter(|_| job.has(Marks::PARKED));
                parked.map_or_else(|| tube.ready.contains(key), |tagged| tagged.parked.contains(key))
            }
            Collection::Delayed(until) => {
                let key = (Timestamp::from(until), id);
                let held = tube.tag_state().filter(|_| job.has(Marks::HELD));
                held.map_or_else(|| tube.delayed.contains(key), |tagged| tagged.held.contains(key))
            }
            Collection::Buried(number) => tube.buried.contains((number.into(), id)),
            Collection::Reserved(until) => {
                let key = Reservation::key(Timestamp::from(until), id);
                let holder = self.jobs.history(job).holder;
                holder.is_some_and(|holder| self.clients[holder].reserved.contains(key))
            }
        }
    }

    /// Whether the job is in this state, in the collection that its record names.
    #[inline]
    pub(crate) fn is_linked_as(&self, id: JobId, state: JobState) -> bool {
        self.is_linked(id) && self.jobs.get(id).is_some_and(|job| job.state() == state)
    }

    /// Whether the job is ready, or has gone at once to a client that waited for it.
    #[inline]
    pub(crate) fn is_linked_as_offered(&self, id: JobId) -> bool {
        self.is_linked_as(id, JobState::Ready) || self.is_linked_as(id, JobState::Reserved)
    }

    /// Whether the tube counts no more ready and no more urgent jobs than all tubes together, and these count no more
    /// urgent jobs than ready ones.
    #[inline]
    pub(crate) fn are_ready_counted(&self, tube: TubeKey) -> bool {
        let Counted { tube, all } = self.counted(tube);
        tube.ready <= all.ready && tube.urgent <= all.urgent && all.urgent <= all.ready
    }

    /// Whether a job without a delay is ready or has gone to a client that waited, and a job with a delay is delayed.
    #[inline]
    pub(crate) fn is_linked_for_delay(&self, id: JobId, delay_s: Seconds) -> bool {
        if delay_s.is_zero() {
            self.is_linked_as_offered(id)
        } else {
            self.is_linked_as(id, JobState::Delayed)
        }
    }

    /// Whether no client waits for the tube while it has a ready job that may be reserved. Clients that watch many
    /// tubes are not asked.
    #[inline]
    pub(crate) fn has_no_unserved_client(&self, tube: TubeKey) -> bool {
        let tube = self.tubes.get(tube);
        !tube.is_open() || tube.ready.is_empty() || tube.waiting.is_empty()
    }

    /// Whether the client can begin to wait: it does not wait, and is not gone.
    #[inline]
    pub(crate) fn can_wait(&self, index: ClientKey) -> bool {
        let id = self.clients.id_of(index);
        self.is_connected(id) && !self.is_waiting(id)
    }

    /// Whether none of the client's tubes has a job for it. One that watches many has probed each of them.
    #[inline]
    pub(crate) fn has_nothing_to_reserve(&self, index: ClientKey) -> bool {
        let client = &self.clients[index];
        match &client.many {
            None => self.most_urgent_of(&client.watching).is_none(),
            Some(many) => !many.must_probe() && !many.knows_a_job(),
        }
    }

    /// Whether the client is attached to this session, which has no other.
    #[inline]
    pub(crate) fn is_attached(&self, client: ClientKey, session: ClientKey) -> bool {
        let record = self.sessions.records.get(&session);
        self.clients[session].is_session()
            && self.holder_for(client) == session
            && record.is_some_and(|record| record.state == SessionState::Attached(client))
    }

    /// Whether the queue is as this change says. A put is noted before its job is stored.
    #[inline]
    pub(crate) fn agrees_with(&self, change: &Change) -> bool {
        match *change {
            Change::Put(id) => id.0 < self.numbers.next_id,
            Change::Updated(id) | Change::Postponable(id) | Change::Moved(id) | Change::Died(id) => {
                self.jobs.get(id).is_some()
            }
            Change::Reserved(id) => self.is_linked_as(id, JobState::Reserved),
            Change::SessionReserved(id) => {
                self.is_linked_as(id, JobState::Reserved) && self.session_reservation(id).is_some()
            }
            Change::Deleted(id) => self.jobs.get(id).is_none(),
            Change::DeletedWithCooldown(id) => self.jobs.get(id).is_none() && self.cooldown(id).is_some(),
            Change::DeletedLast(ref last) => self.jobs.get(last.id).is_none(),
            Change::CooldownOver(id) => self.cooldown(id).is_none(),
        }
    }
}
