//! The queue: tubes, jobs, clients' watch lists, reservations and every deadline.
//!
//! Owns: the whole state that the protocol speaks about. Pure: it does no I/O and reads no clock; `now` is
//! always the last argument. Never knows of connections, bytes or the binlog. Driven by the server, which
//! calls one method per command, then takes out the [`Delivery`]s to clients that waited and the
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

mod arena;
mod client;
mod deadlines;
mod invariants;
mod jobs;
mod life;
mod ordered;
mod reserve;
mod tube;
mod view;

use std::collections::VecDeque;

use slab::Slab;

pub use self::client::{ClientId, SAFETY_MARGIN_NS};
pub use self::life::{NewJob, Released};
pub use self::reserve::Reserve;
pub use self::tube::Flow;
pub use self::view::{JobView, TubeView};

use self::client::Client;
use self::deadlines::{Deadlines, Owner};
use self::jobs::{Jobs, ReadyKey};
use self::tube::{DEFAULT, TubeKey, Tubes};
use crate::clock::Timestamp;
use crate::job::JobId;

/// An answer for a client that waited in a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Who waited.
    pub client: ClientId,
    /// What came of it.
    pub outcome: WaitOutcome,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The client now holds this job.
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
    /// Its state, priority, delay or one of its counters is another.
    Updated(JobId),
    /// The job is gone.
    Deleted(JobId),
}

/// How often a job may fail before it is buried instead of becoming ready again; `None` is for ever.
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
    next_wait: u64,
    next_burial: u64,
    counts: JobCounts,
    flow: Flow,
    waiting: u64,
    producers: u64,
    workers: u64,
    limits: PoisonLimits,
    deliveries: VecDeque<Delivery>,
    /// Empty at all times unless `keeps_changes`.
    changes: Vec<Change>,
    keeps_changes: bool,
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
            next_wait: 0,
            next_burial: 0,
            counts: JobCounts::default(),
            flow: Flow::default(),
            waiting: 0,
            producers: 0,
            workers: 0,
            limits,
            deliveries: VecDeque::new(),
            changes: Vec::new(),
            keeps_changes: false,
        }
    }

    /// From now on each change is kept until `swap_changes`, for a binlog to write down.
    pub fn keep_changes(&mut self) {
        self.keeps_changes = true;
    }

    /// Puts the changes since the last call into `changes`, in their order, and its room in their place. A
    /// job stands there at most once in a row.
    pub fn swap_changes(&mut self, changes: &mut Vec<Change>) {
        debug_assert!(changes.is_empty(), "changes are logged before the next are taken");
        std::mem::swap(&mut self.changes, changes);
    }

    /// Whether anything has changed since.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The next answer to a client that waited, in the order in which the answers came about.
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    /// Whether `poll_delivery` would yield any.
    #[must_use]
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// The earliest instant at which `advance` has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| at)
    }

    /// A new client: it uses and watches "default" alone.
    pub fn connect(&mut self) -> ClientId {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let index = self.clients.insert(Box::new(Client::new(generation))) as u32;
        let tube = self.tubes.get_mut(DEFAULT);
        tube.using += 1;
        tube.watching += 1;
        ClientId { index, generation }
    }

    /// The client is gone: the jobs that it holds become ready at once, its wait ends unanswered.
    pub fn disconnect(&mut self, id: ClientId, now: Timestamp) {
        assert!(self.is_connected(id), "a client leaves once");
        self.end_wait(id.index);
        let mut jobs: Vec<ReadyKey> = Vec::new();
        while let Some((_, job)) = self.client(id).reserved.first() {
            self.withdraw(job);
            jobs.push(ReadyKey::new(self.jobs.held(job).priority, job));
        }
        // Clients that wait get the most urgent first.
        jobs.sort_unstable();
        for key in jobs {
            self.make_ready(key.id(), now);
        }
        self.deadlines.set(Owner::Client(id.index), None);
        let mut client = self.clients.remove(id.index as usize);
        self.producers -= u64::from(client.producer);
        self.workers -= u64::from(client.worker);
        // The order in which C lets go of tubes, which decides the order of those that stay.
        while !client.watching.is_empty() {
            let tube = client.watching.swap_remove(0);
            self.tubes.get_mut(tube).watching -= 1;
            self.remove_tube_if_idle(tube);
        }
        self.tubes.get_mut(client.using).using -= 1;
        self.remove_tube_if_idle(client.using);
        if self.clients.is_empty() {
            self.clients.shrink_to_fit();
        }
    }

    /// Whether this very client is still there.
    #[must_use]
    pub fn is_connected(&self, id: ClientId) -> bool {
        self.clients.get(id.index as usize).is_some_and(|client| client.generation == id.generation)
    }

    /// The command `use`: `name` is valid, and its tube is made if there is none.
    pub fn use_tube(&mut self, id: ClientId, name: &str) {
        let tube = self.tubes.find_or_make(name);
        self.tubes.get_mut(tube).using += 1;
        let before = std::mem::replace(&mut self.client_mut(id).using, tube);
        self.tubes.get_mut(before).using -= 1;
        self.remove_tube_if_idle(before);
    }

    /// The command `watch`; returns how many tubes the client watches now.
    pub fn watch(&mut self, id: ClientId, name: &str) -> usize {
        let tube = self.tubes.find_or_make(name);
        let client = self.client_mut(id);
        if !client.watching.contains(&tube) {
            client.watching.push(tube);
            self.tubes.get_mut(tube).watching += 1;
        }
        self.client(id).watching.len()
    }

    /// The command `ignore`; returns how many tubes the client watches now, or `None` where it would be none.
    pub fn ignore(&mut self, id: ClientId, name: &str) -> Option<usize> {
        let tube = self.tubes.find(name);
        let client = self.client_mut(id);
        let place = client.watching.iter().position(|&watched| Some(watched) == tube);
        if let (Some(place), Some(tube)) = (place, tube) {
            if client.watching.len() == 1 {
                return None;
            }
            client.watching.swap_remove(place);
            self.tubes.get_mut(tube).watching -= 1;
            self.remove_tube_if_idle(tube);
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
        }
    }

    /// Brings the heap of deadlines up to the tube's state.
    fn reschedule_tube(&mut self, tube: TubeKey) {
        self.deadlines.set(Owner::Tube(tube), self.tubes.get(tube).deadline());
    }

    /// Brings the heap of deadlines up to the client's state.
    fn reschedule_client(&mut self, client: u32) {
        self.deadlines.set(Owner::Client(client), self.clients[client as usize].deadline());
    }

    /// Counts an event, other than a put, in its tube and over all of them.
    fn count(&mut self, tube: TubeKey, counter: impl Fn(&mut Flow) -> &mut u64) {
        *counter(&mut self.flow) += 1;
        *counter(self.tubes.get_mut(tube).events()) += 1;
    }

    /// Remembers that the job's record is another than the one logged last.
    fn note(&mut self, change: Change) {
        if !self.keeps_changes {
            return;
        }
        if let Change::Updated(id) = change
            && matches!(self.changes.last(), Some(&(Change::Put(last) | Change::Updated(last))) if last == id)
        {
            return;
        }
        self.changes.push(change);
    }
}
