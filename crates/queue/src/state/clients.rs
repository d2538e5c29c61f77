//! A client: the tubes that it uses and watches, the jobs that it has reserved, and its wait.
//!
//! Owns: the records of all clients, and the counts over them. Never moves a job: the operations do that.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::{Index, IndexMut};

use beanstalkd_structures::OrderedQueue;
use slab::Slab;
use smallvec::{SmallVec, smallvec};

use crate::clock::{NS_PER_S, Timestamp};
use crate::random::Generator;
use crate::state::keys::{ClientKey, Reservation, TubeKey, WaitKey};
use crate::state::many_tubes::ManyTubes;
use crate::state::reserve_settings::ReserveSettings;
use crate::state::tubes::DEFAULT;

/// The last part of a time to run, in which the client does not wait for another job (protocol, "reserve").
pub(crate) const SAFETY_MARGIN_NS: u64 = NS_PER_S;

/// How many watched tubes fit into the client's record.
const FEW_TUBES: usize = 4;

/// A client's identity. An id is assigned again only after 2^32 other clients, so an id that is used after the client's
/// end finds no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId {
    /// The client's index; a later client may have the same index.
    pub index: u32,
    /// Distinguishes the clients that have had this index.
    pub generation: u32,
}

impl ClientId {
    pub(crate) fn key(self) -> ClientKey {
        ClientKey(self.index)
    }
}

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// A client with a connection.
    Connected,
    /// A client with a connection and a session, which has its reservations.
    Attached,
    /// The server itself. Such a client is in no count, and watches no tube.
    Internal,
    /// A session. Such a client is in no count, and watches no tube.
    Session,
}

/// A reserve that has not been answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The number of the wait among all waits: the client with the smallest number is served first.
    pub number: NonZeroU64,
    /// When it ends without a job; `NEVER` if the client set no time-out.
    pub until: Timestamp,
}

/// The clients, and what is counted over all of them.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub records: Slab<Box<Client>>,
    /// The number of the last client, of whatever kind. The first is 1.
    pub last_number: u64,
    /// How many waits have begun; also the number of the last one.
    pub waits: u64,
    pub counts: ClientCounts,
    /// Clients that have disconnected and still have jobs or tubes, because they had more than is released at once.
    pub leaving: VecDeque<ClientKey>,
    /// By tube: the clients that watch many tubes and probe it again when it has a more urgent first job.
    pub subscribers: Vec<OrderedQueue<ClientKey>>,
    /// The clients that watch many tubes and wait in a reserve, in the order in which they began to wait.
    pub many_waiting: OrderedQueue<WaitKey>,
    /// The random numbers for clients in a weighted mode.
    pub random: Generator,
}

/// The counts over all clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientCounts {
    /// Clients that wait in a reserve.
    pub waiting: u64,
    pub producers: u64,
    pub workers: u64,
    /// Clients without a connection: the clients of sessions, and the clients of the server itself.
    pub unconnected: usize,
    /// Entries in all watch lists.
    pub watched: usize,
    /// Entries in the watch lists of clients that have a reserve mode or weights.
    pub weighed: usize,
}

impl Clients {
    #[inline]
    pub(crate) fn id_of(&self, key: ClientKey) -> ClientId {
        ClientId { index: key.0, generation: self[key].generation }
    }

    /// The client's number. Its record has 40 bits of it.
    pub(crate) fn number_of(&self, client: &Client) -> u64 {
        const KEPT: u64 = (1 << 40) - 1;
        let kept = u64::from(client.era) << u32::BITS | u64::from(client.generation);
        self.last_number - (self.last_number.wrapping_sub(kept) & KEPT)
    }

    /// The number of a wait that begins.
    pub(crate) fn next_wait(&mut self) -> NonZeroU64 {
        let number = NonZeroU64::MIN.saturating_add(self.waits);
        self.waits += 1;
        number
    }
}

impl Index<ClientKey> for Clients {
    type Output = Client;

    /// The client at this index. The index must come from an object that belongs to the client.
    #[inline]
    fn index(&self, index: ClientKey) -> &Client {
        &self.records[index.index()]
    }
}

impl IndexMut<ClientKey> for Clients {
    #[inline]
    fn index_mut(&mut self, index: ClientKey) -> &mut Client {
        &mut self.records[index.index()]
    }
}

/// A client: a connection, a session, or the server itself. All of it lies in one block of memory.
#[derive(Debug)]
pub(crate) struct Client {
    /// The low half of its number.
    pub generation: u32,
    pub using: TubeKey,
    /// In the order of `list-tubes-watched`; never empty while the client of a connection is connected.
    pub watching: SmallVec<[TubeKey; FEW_TUBES]>,
    /// The jobs that the client has reserved, by the end of their reservation.
    pub reserved: OrderedQueue<Reservation>,
    /// The number of its wait, if it waits.
    pub wait_number: Option<NonZeroU64>,
    /// When its last wait ends, or would have ended without a job.
    pub wait_until: Timestamp,
    /// The client's knowledge about its tubes, if it watches many.
    pub many: Option<Box<ManyTubes>>,
    /// Reserve mode of the client and the weights of its tubes, if any of them is not the default.
    pub settings: Option<Box<ReserveSettings>>,
    /// Whether it watches few tubes, and is in the default mode: its reserves probe each of its tubes.
    pub is_plain: bool,
    /// Whether the client has disconnected but has not released everything. Such a client has no deadline.
    pub is_leaving: bool,
    /// Whether it is counted as a producer, because the line of a put was accepted, or never will be, because it has no
    /// connection: a put need not look at the kind.
    pub has_put: bool,
    /// Whether it is counted as a worker, because it has sent a reserve or got a job with `reserve-job`, or never will
    /// be, because it has no connection.
    pub has_reserved: bool,
    pub kind: ClientKind,
    /// The next eight bits of its number. The higher bits are taken from the last number: no client stays while 2^40
    /// others come.
    pub era: u8,
    /// Whether the server keeps a list of fields for it. The queue does not know fields, but every reserve has loaded
    /// this part of the record.
    pub has_fields: bool,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Client>() <= 80, "a client is a block of 80 bytes");

impl Client {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            generation: number as u32,
            using: DEFAULT,
            watching: smallvec![DEFAULT],
            reserved: OrderedQueue::default(),
            wait_number: None,
            wait_until: Timestamp::NEVER,
            many: None,
            settings: None,
            is_plain: true,
            is_leaving: false,
            has_put: false,
            has_reserved: false,
            kind: ClientKind::Connected,
            era: (number >> u32::BITS) as u8,
            has_fields: false,
        }
    }

    /// The server itself: it is never counted as a producer or a worker.
    pub(crate) fn internal(number: u64) -> Self {
        let (watching, kind) = (SmallVec::new(), ClientKind::Internal);
        Self { watching, kind, has_put: true, has_reserved: true, ..Self::new(number) }
    }

    /// The client of a session.
    pub(crate) fn session(number: u64) -> Self {
        Self { kind: ClientKind::Session, ..Self::internal(number) }
    }

    /// Whether it is the client of a connection, and not of a session or of the server itself.
    pub(crate) fn has_connection(&self) -> bool {
        matches!(self.kind, ClientKind::Connected | ClientKind::Attached)
    }

    /// The reserve that has not been answered yet.
    #[inline]
    pub(crate) fn wait(&self) -> Option<Wait> {
        self.wait_number.map(|number| Wait { number, until: self.wait_until })
    }

    /// Whether it is attached to a session.
    pub(crate) fn has_session(&self) -> bool {
        self.kind == ClientKind::Attached
    }

    pub(crate) fn is_session(&self) -> bool {
        self.kind == ClientKind::Session
    }

    /// The index of this tube in the client's list of watched tubes.
    pub(crate) fn position_of(&self, tube: TubeKey) -> Option<usize> {
        match &self.many {
            Some(many) => many.position_of(tube),
            None => self.watching.iter().position(|&watched| watched == tube),
        }
    }

    /// When the safety margin of its first reservation begins.
    pub(crate) fn margin_at(&self) -> Option<Timestamp> {
        self.reserved.first().map(|first| first.until.minus_ns(SAFETY_MARGIN_NS))
    }

    /// The client's next deadline: the end of its wait, the safety margin while it waits, or the end of a reservation.
    /// The client must not be leaving: a leaving client has no deadline.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        match self.wait() {
            Some(wait) => {
                let end = self.margin_at().map_or(wait.until, |margin| margin.min(wait.until));
                (end != Timestamp::NEVER).then_some(end)
            }
            None => self.reserved.first().map(|first| first.until),
        }
    }
}
