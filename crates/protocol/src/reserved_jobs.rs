//! The jobs of a `RESERVED_BATCH`.

use super::reply::Reply;
use super::reply_reader::Received;
use crate::job::{BodyRef, JobId};

/// The jobs of a batch: those that a server sends, or those that a client has received.
#[derive(Clone, Copy, Debug)]
pub struct ReservedJobs<'a> {
    listed: &'a [(JobId, BodyRef<'a>)],
    /// Whole RESERVED replies.
    received: &'a [u8],
    count: usize,
}

impl<'a> ReservedJobs<'a> {
    /// These jobs.
    #[must_use]
    pub fn new(listed: &'a [(JobId, BodyRef<'a>)]) -> Self {
        Self { listed, received: b"", count: listed.len() }
    }

    /// The jobs of so many RESERVED replies, which were read before.
    pub(super) fn received(count: usize, received: &'a [u8]) -> Self {
        Self { listed: &[], received, count }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The jobs, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, BodyRef<'a>)> {
        let mut rest = self.received;
        let received = std::iter::from_fn(move || match Reply::read(rest) {
            Ok(Received::Whole(Reply::Reserved(id, body), taken)) => {
                rest = &rest[taken..];
                Some((id, body))
            }
            _ => None,
        });
        self.listed.iter().copied().chain(received)
    }
}

impl PartialEq for ReservedJobs<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ReservedJobs<'_> {}
