//! A client: what it uses and watches, what it holds, what it waits for.

use super::jobs::DueKey;
use super::ordered::OrderedQueue;
use super::tube::{DEFAULT, TubeKey};
use crate::clock::{NS_PER_S, Timestamp};

/// The last part of a time to run, in which its holder is not made to wait for another job
/// (protocol, "reserve").
pub const SAFETY_MARGIN_NS: u64 = NS_PER_S;

/// A client's identity: never given twice, so that whoever keeps one past the client's end finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId {
    /// The client's place; another client may take it later.
    pub index: u32,
    /// Which of the clients at this place it is.
    pub generation: u32,
}

/// A reserve that has not been answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its number among all waits: who came first is served first.
    pub number: u64,
    /// When it ends without a job; `NEVER` where the client set no time-out.
    pub until: Timestamp,
}

#[derive(Debug)]
pub struct Client {
    pub generation: u32,
    pub using: TubeKey,
    /// In the order of `list-tubes-watched`; never empty while the client is connected.
    pub watching: Vec<TubeKey>,
    /// The jobs that the client holds, by the end of their reservation.
    pub reserved: OrderedQueue<DueKey>,
    pub wait: Option<Wait>,
    /// Whether it has ever put.
    pub producer: bool,
    /// Whether it has ever reserved.
    pub worker: bool,
}

impl Client {
    pub fn new(generation: u32) -> Self {
        Self {
            generation,
            using: DEFAULT,
            watching: vec![DEFAULT],
            reserved: OrderedQueue::default(),
            wait: None,
            producer: false,
            worker: false,
        }
    }

    /// When the safety margin of its first reservation begins.
    pub fn margin_at(&self) -> Option<Timestamp> {
        self.reserved.first().map(|key| key.0.minus_ns(SAFETY_MARGIN_NS))
    }

    /// When something becomes due here: the wait's end, the margin while it waits, a reservation's end.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.wait {
            Some(wait) => {
                let end = self.margin_at().map_or(wait.until, |margin| margin.min(wait.until));
                (end != Timestamp::NEVER).then_some(end)
            }
            None => self.reserved.first().map(|key| key.0),
        }
    }
}
