//! The queue: tubes, jobs, clients' watch lists, reservations and every deadline.
//!
//! Owns: the whole state that the protocol describes. Pure: it does no I/O and reads no clock; `now` is
//! always the last argument. Never knows of connections, bytes or the binlog. Driven by the server, which
//! calls one method per command, then takes the [`Delivery`]s for clients that waited and the
//! [`Change`]s to be logged.
//!
//! A job moves along these arrows; each is one method:
//!
//! ```text
//!            put ──▶ ready ──reserve──▶ reserved ──delete──▶ gone
//!             │       ▲ ▲ ▲                │ │ │
//!             │  delay│ │ └─release, TTR───┘ │ └─bury──▶ buried
//!             └──▶ delayed ◀──release────────┘             │
//!                       │ kick                        kick │
//!                       └────────▶ ready ◀─────────────────┘
//! ```
//!
//! ```
//! use beanstalkd_queue::{NewJob, PoisonLimits, Queue, Reserve};
//! use beanstalkd_types::clock::Timestamp;
//! use beanstalkd_types::job::{Body, Priority};
//!
//! let now = Timestamp(0);
//! let mut queue = Queue::new(PoisonLimits::default());
//! let client = queue.connect();
//! let id = queue.take_id();
//! queue.reserve_put()?; // all that the put will allocate
//! queue.put(client, NewJob { id, priority: Priority(5), delay_s: 0, ttr_s: 60 }, Body::copy_of(b"hello")?, now);
//! assert!(matches!(queue.reserve(client, None, now), Reserve::Job(job) if job == id));
//! assert_eq!(queue.delete(client, id, now).unwrap().as_slice(), b"hello");
//! # Ok::<(), std::collections::TryReserveError>(())
//! ```

mod arena;
mod client;
mod deadlines;
mod flush;
mod invariants;
mod jobs;
mod keys;
mod leave;
mod life;
mod listing;
mod modes;
#[cfg(test)]
mod modes_tests;
mod ordered;
mod page;
mod relocate;
mod reserve;
mod tagged;
mod times;
mod touch;
mod tube;
mod view;
mod wide;

use std::collections::{TryReserveError, VecDeque};
use std::num::NonZeroU64;

use beanstalkd_types::{clock, id_map, job, tags, tube_name};
use slab::Slab;

pub use self::client::{ClientId, SAFETY_MARGIN_NS};
pub use self::flush::{BeginFlush, FlushStep, Flushed};
pub use self::life::{NewJob, Released};
pub use self::modes::ReserveMode;
pub use self::page::{Page, PageOrder, Place, Search};
pub use self::reserve::{Advanced, Reserve};
pub use self::tagged::{CooldownSums, Duplicate, GroupView};
pub use self::times::{Durations, TOTAL_BOUNDS, Totals};
pub use self::tube::TubeCounters;
pub use self::view::{JobView, TubeView};

/// The data structures alone, so that a benchmark can measure them beside the usual ones (`make micro`).
#[doc(hidden)]
pub mod structures {
    pub use super::arena::Arena;
    pub use super::deadlines::{Deadlines, Owner};
    pub use super::keys::ReadyKey;
    pub use super::ordered::OrderedQueue;
}

use self::client::Client;
use self::deadlines::{Deadlines, Owner};
use self::flush::Flushes;
use self::jobs::Jobs;
use self::keys::{TubeKey, WaitKey};
use self::modes::{Generator, USUAL_WEIGHT};
use self::ordered::OrderedQueue;
use self::tagged::Tagged;
use self::tube::{DEFAULT, Tubes, reserve_in_slab};
use crate::clock::Timestamp;
use crate::job::JobId;

/// An answer for a client that waited in a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The client that waited.
    pub client: ClientId,
    /// How its wait ended.
    pub outcome: WaitOutcome,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The client has now reserved this job.
    Reserved(JobId),
    /// The time-out of its reserve is over.
    TimedOut,
    /// One of its reservations is in its safety margin.
    DeadlineSoon,
}

/// Something about a job that a restart must not undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The job is new.
    Put(JobId),
    /// Its state, its priority, its delay or one of its counters has changed.
    Updated(JobId),
    /// It is in another tube, in whatever state it is now.
    Moved(JobId),
    /// The job is gone.
    Deleted(JobId),
    /// The same, of a job whose tags make more of it: [`Queue::cooldown`] and [`Queue::next_freed_group`] say what.
    DeletedWith(JobId),
    /// The cooldown that the job's delete began is over, or forgotten.
    CooldownOver(JobId),
}

/// How often a job may fail before it is buried instead of becoming ready again; `None` means any number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoisonLimits {
    /// Time-outs.
    pub timeouts: Option<u32>,
    /// Releases.
    pub releases: Option<u32>,
}

/// Jobs by state, over all tubes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Ready jobs with an urgent priority.
    pub urgent: u64,
    /// Ready jobs.
    pub ready: u64,
    /// Reserved jobs.
    pub reserved: u64,
    /// Delayed jobs.
    pub delayed: u64,
    /// Buried jobs.
    pub buried: u64,
}

/// The whole state of the work queue.
#[derive(Debug)]
pub struct Queue {
    jobs: Jobs,
    tubes: Tubes,
    clients: Slab<Box<Client>>,
    deadlines: Deadlines,
    next_id: u64,
    next_generation: u32,
    /// How many of the clients are internal.
    internal_clients: usize,
    next_wait: NonZeroU64,
    next_burial: u64,
    /// When the delay began that was asked for last.
    last_delay: Timestamp,
    counts: JobCounts,
    counters: TubeCounters,
    waiting: u64,
    producers: u64,
    workers: u64,
    /// Entries in all clients' watch lists.
    watched: usize,
    /// Those of clients that have a reserve mode or weights.
    weighed: usize,
    /// Decides what clients in a weighted mode get.
    random: Generator,
    limits: PoisonLimits,
    deliveries: VecDeque<Delivery>,
    /// Always empty unless `keeps_changes`.
    changes: Vec<Change>,
    keeps_changes: bool,
    /// Clients that are gone and still have jobs or tubes, because they had more than is given back at once.
    leaving: VecDeque<u32>,
    /// The cost of all calls beyond a few steps, in simple commands.
    work: u64,
    shares: Shares,
    /// The flushes that are under way.
    flushes: Flushes,
    /// By tube: the wide clients that are told when the tube has a more urgent first job.
    subscribers: Vec<OrderedQueue<u32>>,
    /// The wide clients that wait in a reserve, in the order in which they began to wait.
    wide_waiting: OrderedQueue<WaitKey>,
    tagged: Box<Tagged>,
    /// Whether a reserve has to look which ready jobs may be reserved now: keys of jobs in several tubes are used up or
    /// being offered.
    is_unsettled: bool,
}

/// How much of a long operation is done at once.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Jobs and tubes that a client gives back when it leaves; the rest follows, as many in each `advance`.
    pub given_back: usize,
    /// Jobs that go to waiting clients when a pause ends; the rest follows, as many in each `advance`.
    pub delivered: usize,
    /// Tubes that one call of `reserve` looks at for a client that watches many.
    pub looked_at: usize,
    /// Clients that watch more tubes than this are wide: they count as clients that watch many tubes.
    pub narrow_tubes: usize,
}

impl Default for Shares {
    /// Some 100 microseconds each, where the jobs have tags and there are a million of them.
    fn default() -> Self {
        Self { given_back: 64, delivered: 32, looked_at: 512, narrow_tubes: 16 }
    }
}

impl Queue {
    /// An empty queue whose first job gets id 1.
    #[must_use]
    pub fn new(limits: PoisonLimits) -> Self {
        Self {
            jobs: Jobs::default(),
            tubes: Tubes::new(),
            clients: Slab::new(),
            deadlines: Deadlines::default(),
            next_id: 1,
            next_generation: 0,
            internal_clients: 0,
            next_wait: NonZeroU64::MIN,
            next_burial: 0,
            last_delay: Timestamp::default(),
            counts: JobCounts::default(),
            counters: TubeCounters::default(),
            waiting: 0,
            producers: 0,
            workers: 0,
            watched: 0,
            weighed: 0,
            random: Generator::default(),
            limits,
            deliveries: VecDeque::new(),
            changes: Vec::new(),
            keeps_changes: false,
            leaving: VecDeque::new(),
            work: 0,
            shares: Shares::default(),
            flushes: Flushes::default(),
            subscribers: Vec::new(),
            wide_waiting: OrderedQueue::default(),
            tagged: Box::default(),
            is_unsettled: false,
        }
    }

    /// Changes these limits, so that tests can reach them with little work.
    pub fn set_shares(&mut self, shares: Shares) {
        self.shares = shares;
    }

    /// The cost of all calls so far beyond the usual, in simple commands. A command's own cost is the difference.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.work
    }

    /// From now on each change is kept until `swap_changes`, so that a binlog can write it.
    pub fn keep_changes(&mut self) {
        self.keeps_changes = true;
    }

    /// Puts the changes since the last call into `changes`, in their order, and its room in their place. A
    /// job stands there at most once in a row.
    pub fn swap_changes(&mut self, changes: &mut Vec<Change>) {
        debug_assert!(changes.is_empty(), "changes are logged before the next are taken");
        std::mem::swap(&mut self.changes, changes);
    }

    /// Whether anything has changed since `swap_changes`.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The next delivery to a client that waited, in the order in which the waits ended.
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    /// Whether `poll_delivery` would return a delivery.
    #[must_use]
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// The earliest instant at which `advance` has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if !self.leaving.is_empty() || self.has_more_to_do() {
            return Some(Timestamp::default());
        }
        self.deadlines.first().map(|(at, _)| at)
    }

    /// Makes sure that the registry has room for the next client.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn reserve_client(&mut self) -> Result<(), TryReserveError> {
        reserve_in_slab(&mut self.clients)?;
        self.deadlines.reserve(self.tubes.len() + 1, self.clients.len() + 1)
    }

    /// Makes sure that the registries have room for the client's next `use` or `watch`.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn reserve_tube(&mut self, id: ClientId) -> Result<(), TryReserveError> {
        let watching = &mut self.client_mut(id).watching;
        if watching.len() == watching.capacity() {
            // Its own way to grow has another error. What is free now is free for the list.
            Vec::<TubeKey>::new().try_reserve_exact(2 * watching.len())?;
            watching.grow(2 * watching.len());
        }
        self.tubes.reserve()?;
        self.deadlines.reserve(self.tubes.len() + 1, self.clients.len() + 1)
    }

    /// Adds a client, which uses and watches only the tube "default".
    pub fn connect(&mut self) -> ClientId {
        let tube = self.tubes.get_mut(DEFAULT);
        tube.using += 1;
        tube.watching += 1;
        self.watched += 1;
        self.add_client(Client::new)
    }

    /// Adds a client for the server itself. No count of clients has it: not the connections, nor those that use or watch a
    /// tube, nor producers and workers. So a tube that it uses ends as if nobody did: it uses "default" again before any
    /// other client gives a command.
    pub fn connect_internal(&mut self) -> ClientId {
        self.internal_clients += 1;
        self.add_client(Client::internal)
    }

    fn add_client(&mut self, new: impl FnOnce(u32) -> Client) -> ClientId {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let index = self.clients.insert(Box::new(new(generation))) as u32;
        ClientId { index, generation }
    }

    /// Whether this client still exists.
    #[must_use]
    pub fn is_connected(&self, id: ClientId) -> bool {
        let client = self.clients.get(id.index as usize);
        client.is_some_and(|client| client.generation == id.generation && !client.leaving)
    }

    /// The command `use`. `name` is valid; its tube is created if there is none.
    pub fn use_tube(&mut self, id: ClientId, name: &str) {
        let tube = self.tubes.find_or_make(name);
        let client = self.client_mut(id);
        let before = std::mem::replace(&mut client.using, tube);
        let counted = u32::from(!client.is_internal);
        self.tubes.get_mut(tube).using += counted;
        self.tubes.get_mut(before).using -= counted;
        self.remove_tube_if_idle(before);
    }

    /// The command `watch` without a weight; returns how many tubes the client watches now.
    pub fn watch(&mut self, id: ClientId, name: &str) -> usize {
        self.watch_with_weight(id, name, USUAL_WEIGHT)
    }

    /// The command `watch` with a weight, which is not 0; returns how many tubes the client watches now.
    pub fn watch_with_weight(&mut self, id: ClientId, name: &str, weight: u16) -> usize {
        let tube = self.tubes.find_or_make(name);
        let client = self.client_mut(id);
        let known = client.place_of(tube);
        let place = known.unwrap_or(client.watching.len());
        if known.is_none() {
            client.watching.push(tube);
            self.weighed += usize::from(client.choice.is_some());
            self.tubes.get_mut(tube).watching += 1;
            self.watched += 1;
            self.index_watched(id.index, tube, place);
        }
        self.set_weight(id, place, weight);
        self.client(id).watching.len()
    }

    /// The command `ignore`; returns how many tubes the client watches now, or `None` if it would watch none.
    pub fn ignore(&mut self, id: ClientId, name: &str) -> Option<usize> {
        let tube = self.tubes.find(name);
        let client = self.client(id);
        if let Some(place) = tube.and_then(|tube| client.place_of(tube)) {
            if client.watching.len() == 1 {
                return None;
            }
            self.unwatch(id.index, place);
        }
        Some(self.client(id).watching.len())
    }

    fn client(&self, id: ClientId) -> &Client {
        let client = &self.clients[id.index as usize];
        assert_eq!(client.generation, id.generation, "commands come from clients that are there");
        client
    }

    fn client_mut(&mut self, id: ClientId) -> &mut Client {
        let client = &mut self.clients[id.index as usize];
        assert_eq!(client.generation, id.generation, "commands come from clients that are there");
        client
    }

    fn remove_tube_if_idle(&mut self, tube: TubeKey) {
        if self.tubes.remove_if_idle(tube) {
            self.deadlines.set(Owner::Tube(tube), None);
            self.flushes.forget_tube(tube);
        }
    }

    /// When something of the tube, of the client, or of the tags becomes due.
    fn deadline_of(&self, owner: Owner) -> Option<Timestamp> {
        match owner {
            Owner::Tube(tube) => self.tubes.get(tube).deadline(),
            Owner::Client(client) => self.clients[client as usize].deadline(),
            Owner::Tags => self.tagged.next_due(),
        }
    }

    /// The deadline of the owner may have come closer.
    #[inline]
    fn schedule(&mut self, owner: Owner) {
        if let Some(at) = self.deadline_of(owner) {
            self.deadlines.note(owner, at);
        }
    }

    /// Counts an event that is not a put, in its tube and in the totals.
    fn count(&mut self, tube: TubeKey, counter: impl Fn(&mut TubeCounters) -> &mut u64) {
        *counter(&mut self.counters) += 1;
        *counter(self.tubes.get_mut(tube).events()) += 1;
    }

    /// Records that the job differs from its last logged record.
    fn note(&mut self, change: Change) {
        if !self.keeps_changes {
            return;
        }
        if let Change::Updated(id) = change
            && let Some(&(Change::Put(last) | Change::Moved(last) | Change::Updated(last))) =
                self.changes.last()
            && last == id
        {
            return;
        }
        self.changes.push(change);
    }
}
