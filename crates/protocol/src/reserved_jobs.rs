//! The jobs of a `RESERVED_BATCH`.

use super::reply::Reply;
use super::reply_reader::Received;
use crate::job::{BodyRef, JobId};

/// The jobs of a batch: those that a server sends, or those that a client has received.
#[derive(Clone, Copy, Debug)]
pub struct ReservedJobs<'a> {
    listed: &'a [(JobId, BodyRef<'a>)],
    /// The values of their fields: none, or one text for each job.
    values: &'a [String],
    /// Whole RESERVED replies.
    received: &'a [u8],
    count: usize,
}

impl<'a> ReservedJobs<'a> {
    /// These jobs, with the values of the fields for which the client has asked.
    #[must_use]
    pub fn new(listed: &'a [(JobId, BodyRef<'a>)], values: &'a [String]) -> Self {
        Self { listed, values, received: b"", count: listed.len() }
    }

    /// The jobs of `count` RESERVED replies, which have been parsed before.
    pub(super) fn received(count: usize, received: &'a [u8]) -> Self {
        Self { listed: &[], values: &[], received, count }
    }

    /// The number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no jobs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The jobs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, BodyRef<'a>)> {
        self.iter_with_values().map(|(id, body, _)| (id, body))
    }

    /// The jobs, in order, with the values of their fields; the values are empty if the client has not asked for
    /// fields.
    pub fn iter_with_values(&self) -> impl Iterator<Item = (JobId, BodyRef<'a>, &'a str)> {
        let mut rest = self.received;
        let received = std::iter::from_fn(move || match Reply::read(rest) {
            Ok(Received::Whole(Reply::Reserved(id, body), taken)) => {
                rest = &rest[taken..];
                Some((id, body, ""))
            }
            Ok(Received::Whole(Reply::ReservedWith(id, body, values), taken)) => {
                rest = &rest[taken..];
                Some((id, body, values))
            }
            _ => None,
        });
        let values = self.values.iter().map(String::as_str).chain(std::iter::repeat(""));
        let listed = self.listed.iter().zip(values).map(|(&(id, body), values)| (id, body, values));
        listed.chain(received)
    }
}

impl PartialEq for ReservedJobs<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter_with_values().eq(other.iter_with_values())
    }
}

impl Eq for ReservedJobs<'_> {}
