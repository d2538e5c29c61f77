//! The whole state of the queue, on one page: the parts of [`Queue`], their owners, and the invariants between two
//! commands.
//!
//! | what | owned by |
//! |---|---|
//! | jobs: records, bodies, histories, by id | [`jobs::Jobs`] |
//! | tubes: jobs by state in their order, who waits, pauses, counters | [`registry::Tubes`] |
//! | clients: watch lists, reservations, waits | [`clients::Clients`] |
//! | sessions: clients that others are attached to | [`sessions::Sessions`] |
//! | running flushes | [`flushes::Flushes`] |
//! | what tags ask for: keys, slots, groups, expiry, owners | [`Rules`](crate::rules::Rules) |
//! | when something becomes due | [`Deadlines`](beanstalkd_structures::Deadlines) |
//!
//! The invariants ([`Queue::check_invariants`] asserts all of them, [`Queue::is_linked`] the first one around each
//! move):
//!
//! - A job is in exactly one collection, and its record names that collection: its tube's ready, parked, delayed, held
//!   or buried jobs, or the reservations of one client.
//! - An open tube (it is not paused, and no rule has closed its gate) has either ready jobs that may be reserved or
//!   waiting clients, never both.
//! - A job that may not be reserved now is never in a ready queue when a reserve chooses: it is parked, or held.
//! - A job has no marks if it has no tags, its tube has no rule, and no client waits for its end. No rule is asked
//!   about such a job.
//! - Each timer is checked no later than its deadline.
//! - Sums and counts are correct.

pub(crate) mod clients;
pub(crate) mod flushes;
pub(crate) mod gate;
pub(crate) mod index;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod many_tubes;
pub(crate) mod registry;
pub(crate) mod reserve_settings;
pub(crate) mod rotation;
pub(crate) mod sessions;
pub(crate) mod stored_body;
pub(crate) mod subscriptions;
pub(crate) mod times;
pub(crate) mod tube_listing;
pub(crate) mod tube_rule;
pub(crate) mod tubes;

use std::collections::{TryReserveError, VecDeque};
use std::ops::AddAssign;

use self::clients::{Client, ClientId};
use self::keys::{ClientKey, TubeKey};
use self::tubes::TubeCounters;
use crate::Queue;
use crate::clock::Timestamp;
use crate::job::{JobId, Priority};

/// The sums over all tubes.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// The jobs of all existing tubes.
    pub(crate) jobs: JobCounts,
    /// The events, including those of removed tubes.
    pub(crate) events: TubeCounters,
    /// The jobs that were sent to dead tubes.
    pub(crate) dead: u64,
}

/// The numbers that are assigned in ascending order, and never twice.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The id of the next job; larger than the id of any job.
    pub(crate) next_id: u64,
    /// The number of the next burial.
    pub(crate) next_burial: u64,
    /// When the last requested delay began.
    pub(crate) last_delay: Timestamp,
}

impl Numbers {
    /// Makes sure that ids below `next` are not assigned again.
    pub(crate) fn skip_ids_below(&mut self, next: u64) {
        self.next_id = self.next_id.max(next);
    }

    /// Makes sure that the burials of a run that starts at `now` have higher numbers than the burials of earlier runs.
    /// So a cursor of a page from an earlier run leaves out no later burial: the numbers grow more slowly than the
    /// time.
    pub(crate) fn skip_earlier_burials(&mut self, now: Timestamp) {
        self.next_burial = self.next_burial.max(now.0);
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self { next_id: 1, next_burial: 0, last_delay: Timestamp::default() }
    }
}

/// The results that the caller takes after a command.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) deliveries: VecDeque<Delivery>,
    /// Always empty unless `keeps_changes`.
    pub(crate) changes: Vec<Change>,
    /// Likewise. The jobs that were buried, in this order.
    pub(crate) burials: Vec<JobId>,
    pub(crate) keeps_changes: bool,
}

/// An answer for a client that waited for a job, or for the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say everything")]
pub struct Delivery {
    pub client: ClientId,
    pub outcome: WaitOutcome,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The client has now reserved this job.
    Reserved(JobId),
    /// The time-out of its wait has come.
    TimedOut,
    /// One of its reservations is in its safety margin.
    DeadlineSoon,
    /// The job for whose end it has waited has ended.
    Ended(JobId, AwaitedEnd),
}

/// How a job ends for the clients that wait for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the variants say everything")]
pub enum AwaitedEnd {
    Deleted,
    Buried,
}

/// A change of a job that a restart must not undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The job is new.
    Put(JobId),
    /// The state, the priority, the delay or a counter of the job has changed.
    Updated(JobId),
    /// As `Updated`, but because time has passed, a client has gone, a client has reserved a job that was not ready, or
    /// a reservation was undone. No room in the log was reserved for this.
    Postponable(JobId),
    /// The job was ready and is now reserved. After a restart it is ready, whether or not this change was logged.
    Reserved(JobId),
    /// The job is in another tube, in any state.
    Moved(JobId),
    /// A rule has sent it to a dead tube. No room in the log was reserved for this.
    Died(JobId),
    /// A session has reserved the job, or its grace has changed: see [`Queue::session_reservation`].
    SessionReserved(JobId),
    /// The job is deleted.
    Deleted(JobId),
    /// The job is deleted, and a cooldown has begun: see [`Queue::cooldown`].
    DeletedWithCooldown(JobId),
    /// The job is deleted, and its group is free. A cooldown may have begun, too.
    DeletedLast(Box<LastMember>),
    /// The cooldown that the job's delete began has ended.
    CooldownOver(JobId),
}

/// A job that was the last member of a group for which others wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say everything")]
pub struct LastMember {
    pub id: JobId,
    pub group: Box<str>,
}

impl Change {
    /// The job that is deleted, and the group that this frees.
    #[must_use]
    pub fn deleted(&self) -> Option<(JobId, Option<&str>)> {
        match *self {
            Self::Deleted(id) | Self::DeletedWithCooldown(id) => Some((id, None)),
            Self::DeletedLast(ref last) => Some((last.id, Some(&last.group))),
            Self::Put(_)
            | Self::Updated(_)
            | Self::Postponable(_)
            | Self::Reserved(_)
            | Self::Moved(_)
            | Self::Died(_)
            | Self::SessionReserved(_)
            | Self::CooldownOver(_) => None,
        }
    }
}

/// How often a job may fail before it is buried instead of becoming ready again; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say everything")]
pub struct PoisonLimits {
    pub timeouts: Option<u32>,
    pub releases: Option<u32>,
}

/// Jobs by state, of one tube or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct JobCounts {
    /// Ready jobs with an urgent priority.
    pub urgent: u64,
    pub ready: u64,
    pub reserved: u64,
    pub delayed: u64,
    pub buried: u64,
}

impl JobCounts {
    /// The total number of jobs.
    #[must_use]
    pub fn total(&self) -> usize {
        (self.ready + self.reserved + self.delayed + self.buried) as usize
    }
}

impl AddAssign for JobCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { urgent, ready, reserved, delayed, buried } = other;
        self.urgent += urgent;
        self.ready += ready;
        self.reserved += reserved;
        self.delayed += delayed;
        self.buried += buried;
    }
}

/// How much of a long operation is done at once, and from how many tubes on a reserve is such an operation. Each
/// default takes about 100 microseconds, if the jobs have tags and there are a million of them.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// Jobs and tubes that a client releases when it leaves; `advance` releases the rest, this many in each call.
    pub given_back: usize,
    /// Jobs that go to waiting clients when a pause ends; `advance` delivers the rest, this many in each call.
    pub delivered: usize,
    /// Tubes that one call of `reserve` probes for a client that watches many.
    pub probed_tubes: usize,
    /// A client that watches more tubes than this counts as a client that watches many tubes.
    pub few_tubes: usize,
}

impl Default for Slices {
    fn default() -> Self {
        Self { given_back: 64, delivered: 32, probed_tubes: 512, few_tubes: 16 }
    }
}

/// The cost of a delivery, in addition to the command that causes it: it needs its own system call, because it goes to
/// another client.
pub(crate) const COST_PER_DELIVERY: u64 = 32;

impl Queue {
    /// An empty queue whose first job gets id 1. `Queue::default()` has no limits, and the default slices.
    #[must_use]
    pub fn new(limits: PoisonLimits, slices: Slices) -> Self {
        Self { limits, slices, ..Self::default() }
    }

    /// The cost of all calls so far beyond their usual cost, in simple commands. The cost of one command is the
    /// difference.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// From now on each change is kept until `swap_changes`, so that a binlog can write it.
    pub fn keep_changes(&mut self) {
        self.outbox.keeps_changes = true;
    }

    /// Swaps the changes since the last call with `changes`, whose memory is used again. A job is in the list at most
    /// once in a row.
    pub fn swap_changes(&mut self, changes: &mut Vec<Change>) {
        debug_assert!(changes.is_empty(), "changes are logged before the next are taken");
        std::mem::swap(&mut self.outbox.changes, changes);
    }

    /// The jobs that were buried since the last call, in this order: a change does not say whether its job has just
    /// been buried or was buried before.
    pub fn drain_burials(&mut self) -> impl Iterator<Item = JobId> {
        self.outbox.burials.drain(..)
    }

    /// Whether anything has changed since `swap_changes`.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.outbox.changes.is_empty()
    }

    /// The next delivery to a client that waited, in the order in which the waits ended.
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        self.outbox.deliveries.pop_front()
    }

    /// Whether `poll_delivery` would return a delivery.
    #[must_use]
    pub fn has_deliveries(&self) -> bool {
        !self.outbox.deliveries.is_empty()
    }

    /// Whether this client still exists.
    #[must_use]
    pub(crate) fn is_connected(&self, id: ClientId) -> bool {
        let client = self.clients.records.get(id.key().index());
        client.is_some_and(|client| client.generation == id.generation && !client.is_leaving)
    }

    #[inline]
    pub(crate) fn client(&self, id: ClientId) -> &Client {
        let client = &self.clients[id.key()];
        assert_eq!(client.generation, id.generation, "the client of a command is connected");
        client
    }

    #[inline]
    pub(crate) fn client_mut(&mut self, id: ClientId) -> &mut Client {
        let client = &mut self.clients[id.key()];
        assert_eq!(client.generation, id.generation, "the client of a command is connected");
        client
    }

    /// The tube of a put, if it exists: this one, or the one that the client uses.
    #[inline]
    pub(crate) fn find_target(&self, client: ClientId, tube: Option<&str>) -> Option<TubeKey> {
        match tube {
            Some(name) => self.tubes.find(name),
            None => Some(self.client(client).using),
        }
    }

    /// The one of these tubes, without paused ones, that has the most urgent job.
    pub(crate) fn most_urgent_of(&self, tubes: &[TubeKey]) -> Option<TubeKey> {
        let open = tubes.iter().filter(|&&key| self.tubes.get(key).is_open());
        let first = open.filter_map(|&key| Some((self.tubes.get(key).ready.first()?, key)));
        first.min().map(|(_, key)| key)
    }

    /// Makes sure that there is room for one more tube, and for the deadlines of one more client.
    pub(crate) fn make_room_for_one_tube(&mut self) -> Result<(), TryReserveError> {
        self.tubes.try_reserve()?;
        self.deadlines.try_reserve(self.tubes.len() + 1, self.clients.records.len() + 1)
    }

    /// Counts an event that is not a put, in its tube and in the totals.
    pub(crate) fn count(&mut self, tube: TubeKey, counter: impl Fn(&mut TubeCounters) -> &mut u64) {
        *counter(&mut self.sums.events) += 1;
        *counter(self.tubes.get_mut(tube).counters_mut()) += 1;
    }

    /// Counts a job that has become ready in its tube.
    #[inline]
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

    /// Records that the job differs from its last logged record.
    #[inline]
    pub(crate) fn note(&mut self, change: Change) {
        debug_assert!(self.agrees_with(&change), "the queue is as the change says: {change:?}");
        if !self.outbox.keeps_changes {
            return;
        }
        if let Change::Updated(id) | Change::Postponable(id) | Change::Reserved(id) = change
            && let Some(last) = self.outbox.changes.last()
        {
            if let Change::Put(of) | Change::Moved(of) | Change::Updated(of) | Change::Postponable(of) = *last
                && of == id
            {
                return;
            }
            // One record contains both changes.
            self.outbox.changes.pop_if(|last| *last == Change::Reserved(id));
        }
        // The failure and the death are one record: between two records, a crash would leave a job in its old tube that
        // has failed too often.
        if let Change::Died(id) = change {
            let failures = [Change::Updated(id), Change::Postponable(id)];
            self.outbox.changes.pop_if(|last| failures.contains(last));
        }
        self.outbox.changes.push(change);
    }

    /// Answers a client that has waited. The client may disconnect before the caller takes the delivery.
    pub(crate) fn deliver(&mut self, index: ClientKey, outcome: WaitOutcome) {
        let client = self.clients.id_of(index);
        debug_assert!(
            self.can_wait(index),
            "a client gets an answer after its wait has ended, while it is connected"
        );
        self.outbox.deliveries.push_back(Delivery { client, outcome });
        self.cost += COST_PER_DELIVERY;
    }
}
